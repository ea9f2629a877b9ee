// SPDX-License-Identifier: Apache-2.0
// Compute threads. Work begins and ends with a spin that reads the vDSO clock, never
// with a system call, so that nothing in the kernel marks its boundaries.
#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/eventfd.h>
#include <unistd.h>

#include "stage.h"

enum { EDGE_SPIN_NS = 30000, STEP_NS = 3000 };

static struct {
	pthread_mutex_t lock;
	struct output *head, **tail;
	int sleeping, self_pipe;
	int rfd, wfd;
} done;

void compute_init(int self_pipe)
{
	pthread_mutex_init(&done.lock, NULL);
	done.tail = &done.head;
	done.self_pipe = self_pipe;
	if (!self_pipe) {
		done.rfd = done.wfd = eventfd(0, EFD_NONBLOCK | EFD_CLOEXEC);
		return;
	}
	int p[2];
	if (pipe2(p, O_NONBLOCK | O_CLOEXEC) != 0) {
		fprintf(stderr, "create self-pipe: %s\n", strerror(errno));
		exit(1);
	}
	done.rfd = p[0];
	done.wfd = p[1];
}

int compute_fd(void)
{
	return done.rfd;
}

void compute_woken(void)
{
	char b[512];
	(void)!read(done.rfd, b, sizeof(b));
}

struct output *compute_take(void)
{
	pthread_mutex_lock(&done.lock);
	struct output *o = done.head;
	done.head = NULL;
	done.tail = &done.head;
	pthread_mutex_unlock(&done.lock);
	return o;
}

int compute_sleep(void)
{
	pthread_mutex_lock(&done.lock);
	int empty = done.head == NULL;
	done.sleeping = empty;
	pthread_mutex_unlock(&done.lock);
	return empty;
}

static void hand_over(struct output *list)
{
	struct output **end = &list;
	while (*end)
		end = &(*end)->next;
	pthread_mutex_lock(&done.lock);
	*done.tail = list;
	done.tail = end;
	int wake = done.sleeping || done.self_pipe;
	done.sleeping = 0;
	pthread_mutex_unlock(&done.lock);
	uint64_t one = 1;
	if (wake)
		(void)!write(done.wfd, &one, done.self_pipe ? 1 : sizeof(one));
}

static struct output *output_new(struct job *j, int index, int final)
{
	struct output *o = calloc(1, sizeof(*o));
	if (!o)
		abort();
	o->job = j;
	o->index = index;
	o->final = final;
	return o;
}

uint64_t draw(const char *id, int stage, int index)
{
	uint64_t h = 1469598103934665603ULL ^ conf.seed;
	for (; *id; id++)
		h = (h ^ (uint8_t)*id) * 1099511628211ULL;
	h ^= ((uint64_t)stage << 32) + (uint32_t)index;
	h += 0x9e3779b97f4a7c15ULL;
	h = (h ^ h >> 30) * 0xbf58476d1ce4e5b9ULL;
	h = (h ^ h >> 27) * 0x94d049bb133111ebULL;
	return h ^ h >> 31;
}

// 0.6 to 1.4 times the base, and now and then several times that.
static int64_t service_ns(const struct stage_def *s, const char *id, int stage, int index)
{
	uint64_t r = draw(id, stage, index);
	int64_t ns = s->svc.base_ns * (600 + (int64_t)(r % 800)) / 1000;
	if ((int)((r >> 20) % 1000) < s->svc.tail_permille)
		ns *= 2 + (int64_t)((r >> 40) % (uint64_t)s->svc.tail_mult);
	return ns;
}

// Work is CPU time, as instructions are: what passes while another has the CPU does not count. A
// step of the clock beyond STEP_NS is such a time.
static void spin(int64_t ns)
{
	int64_t last = now_ns();
	while (ns > 0) {
		int64_t t = now_ns();
		ns -= t - last < STEP_NS ? t - last : 0;
		last = t;
	}
}

static void work(int64_t ns, int cpu_permille)
{
	int64_t burn = ns * cpu_permille / 1000 / 2;
	if (burn < EDGE_SPIN_NS)
		burn = EDGE_SPIN_NS;
	int64_t nap = ns - 2 * burn;
	spin(burn);
	if (nap > 0) {
		struct timespec t = {nap / 1000000000, nap % 1000000000};
		nanosleep(&t, NULL);
	}
	spin(burn);
}

static void stamp(struct job *j, int which, int64_t ns)
{
	if (j->visit)
		j->visit->t[which] = ns;
}

static void begin(struct stage_rt *rt, struct job *j)
{
	stamp(j, V_START, now_ns());
	if (conf.kill_stage == rt->stage && conf.replica == 0 &&
	    __atomic_add_fetch(&rt->activations, 1, __ATOMIC_RELAXED) >= conf.kill_after)
		raise(SIGKILL);
}

void compute_enqueue(struct stage_rt *rt, struct job *j)
{
	j->next = NULL;
	pthread_mutex_lock(&rt->lock);
	*rt->queue_tail = j;
	rt->queue_tail = &j->next;
	pthread_mutex_unlock(&rt->lock);
	pthread_cond_signal(&rt->more);
}

// With the lock held.
static struct job *pop(struct stage_rt *rt)
{
	struct job *j = rt->queue;
	if (!j)
		return NULL;
	rt->queue = j->next;
	if (!rt->queue)
		rt->queue_tail = &rt->queue;
	return j;
}

static struct job *wait_job(struct stage_rt *rt)
{
	struct job *j;
	pthread_mutex_lock(&rt->lock);
	while (!(j = pop(rt)))
		pthread_cond_wait(&rt->more, &rt->lock);
	pthread_mutex_unlock(&rt->lock);
	return j;
}

// One job at a time; a talker hands its chunks over as they come.
static void *serial_main(void *arg)
{
	struct stage_rt *rt = arg;
	const struct stage_def *s = &conf.stage[rt->stage];
	for (;;) {
		struct job *j = wait_job(rt);
		int parts = s->role == R_TALK ? j->chunks : 1;
		for (int i = 0; i < parts && !j->cancelled; i++) {
			if (i == 0)
				begin(rt, j);
			work(service_ns(s, j->id, rt->stage, s->role == R_TALK ? i : j->chunk), s->svc.cpu_permille);
			struct output *o = output_new(j, i, i == parts - 1);
			if (o->final) {
				stamp(j, V_FINISH, now_ns());
				j = NULL;
			}
			hand_over(o);
			if (!j)
				break;
		}
		if (j)
			hand_over(output_new(j, -1, 1));
	}
	return NULL;
}

// Continuous batching: every step takes what waits, up to the batch limit, and
// gives each member one token.
static void *think_main(void *arg)
{
	struct stage_rt *rt = arg;
	const struct stage_def *s = &conf.stage[rt->stage];
	struct job *active[64];
	int n = 0, step = 0, limit = s->svc.batch < 64 ? s->svc.batch : 64;
	for (;;) {
		int old = n;
		if (n == 0)
			active[n++] = wait_job(rt);
		pthread_mutex_lock(&rt->lock);
		while (n < limit && rt->queue)
			active[n++] = pop(rt);
		pthread_mutex_unlock(&rt->lock);
		for (int i = old; i < n; i++)
			begin(rt, active[i]);
		work(service_ns(s, active[0]->id, rt->stage, step++) + n * s->svc.per_seq_ns, s->svc.cpu_permille);
		struct output *list = NULL, **tail = &list;
		int kept = 0;
		for (int i = 0; i < n; i++) {
			struct job *j = active[i];
			int final = j->cancelled || j->done + 1 >= j->tokens;
			*tail = output_new(j, j->cancelled ? -1 : j->done, final);
			tail = &(*tail)->next;
			j->done++;
			if (final)
				stamp(j, V_FINISH, now_ns());
			else
				active[kept++] = j;
		}
		n = kept;
		hand_over(list);
	}
	return NULL;
}

void compute_start(struct stage_rt *rt)
{
	const struct stage_def *s = &conf.stage[rt->stage];
	int think = s->role == R_THINK;
	int workers = think ? 1 : s->svc.workers;
	pthread_mutex_init(&rt->lock, NULL);
	pthread_cond_init(&rt->more, NULL);
	rt->queue_tail = &rt->queue;
	for (int i = 0; i < workers && i < MAX_WORKERS; i++)
		if (pthread_create(&rt->worker[i], NULL, think ? think_main : serial_main, rt) != 0) {
			fprintf(stderr, "start compute thread: %s\n", strerror(errno));
			exit(1);
		}
}
