// SPDX-License-Identifier: Apache-2.0
// The loop thread: inbox, joins, admission, cancellation.
#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/eventfd.h>
#include <unistd.h>

#include "stage.h"

enum { LIFELINE_FD = 5, CANCELLED = 1024, BEAT_MS = 500 };

static struct stage_rt rts[MAX_STAGES];
static char cancelled[CANCELLED][ID_MAX];
static unsigned ncancelled;
static int stop_fd = -1;

static struct stage_rt *rt_of(int stage)
{
	for (int i = 0; i < conf.nown; i++)
		if (rts[i].stage == stage)
			return &rts[i];
	return NULL;
}

int cancelled_has(const char *id)
{
	unsigned n = ncancelled < CANCELLED ? ncancelled : CANCELLED;
	for (unsigned i = 0; i < n; i++)
		if (!strcmp(cancelled[i], id))
			return 1;
	return 0;
}

static void job_free(struct job *j)
{
	j->all_prev->all_next = j->all_next;
	if (j->all_next)
		j->all_next->all_prev = j->all_prev;
	buf_free(&j->payload);
	free(j);
}

static struct job *job_new(struct stage_rt *rt, const struct msg *m, int chunk)
{
	struct job *j = calloc(1, sizeof(*j));
	if (!j)
		abort();
	strcpy(j->id, m->id);
	j->stage = rt->stage;
	j->chunk = chunk;
	j->last = m->last;
	for (int i = 0; i < MAX_STAGES; i++)
		j->route[i] = -1;
	j->visit = truth_new(T_VISIT, m->id, rt->stage, rt->stage, chunk);
	j->all_prev = &rt->all;
	j->all_next = rt->all.all_next;
	if (j->all_next)
		j->all_next->all_prev = j;
	rt->all.all_next = j;
	return j;
}

static struct job *job_waiting(struct stage_rt *rt, const char *id)
{
	for (struct job *j = rt->all.all_next; j; j = j->all_next)
		if (j->waits_join && !strcmp(j->id, id))
			return j;
	return NULL;
}

static void admit(struct stage_rt *rt)
{
	while (rt->backlog && rt->admitted < conf.stage[rt->stage].svc.backlog) {
		struct job *j = rt->backlog;
		rt->backlog = j->next;
		if (!rt->backlog)
			rt->backlog_tail = &rt->backlog;
		rt->admitted++;
		compute_enqueue(rt, j);
	}
}

static void parse_head(struct job *j)
{
	char head[64];
	size_t n = j->payload.len < sizeof(head) - 1 ? j->payload.len : sizeof(head) - 1;
	memcpy(head, j->payload.p, n);
	head[n] = 0;
	if (sscanf(head, "tokens=%d chunks=%d", &j->tokens, &j->chunks) != 2 || j->tokens < 1 || j->chunks < 0)
		j->tokens = j->chunks = 1;
}

static void job_ready(struct stage_rt *rt, struct job *j)
{
	j->waits_join = 0;
	if (j->payload.len)
		parse_head(j);
	j->next = NULL;
	if (j->visit)
		j->visit->t[V_READY] = now_ns();
	*rt->backlog_tail = j;
	rt->backlog_tail = &j->next;
	admit(rt);
}

static int fetch(struct msg *m)
{
	const struct edge *e = config_edge(m->from, m->to);
	if (!m->shm[0])
		return 0;
	return shm_get(m, e && e->data == D_NAMED);
}

// Takes the message's payload, and the message.
void loop_arrive(struct msg *m)
{
	struct stage_rt *rt = rt_of(m->to);
	const struct edge *e = config_edge(m->from, m->to);
	if (e && e->data == D_POLLED && m->chunk < 0) {
		if (!cancelled_has(m->id))
			poll_begin(m);
		msg_free(m);
		return;
	}
	int anon = m->shm[0] && !strncmp(m->shm, "psm_", 4);
	if (!rt || fetch(m) != 0) {
		fprintf(stderr, "take %s for request %s: no such segment or stage\n", m->shm, m->id);
		msg_free(m);
		return;
	}
	send_strip(m);
	int ack_first = conf.stage[m->to].svc.ack_first;
	if (anon && ack_first)
		send_ack(m);
	if (!cancelled_has(m->id)) {
		struct job *j = job_waiting(rt, m->id);
		if (!j)
			j = job_new(rt, m, m->chunk);
		j->waits_join = 1;
		truth_arrival(j->visit, m->from, m->recv_ns);
		buf_add(&j->payload, m->data.p, m->data.len);
		if (++j->inputs >= config_inputs(m->to))
			job_ready(rt, j);
	}
	if (anon && !ack_first)
		send_ack(m);
	msg_free(m);
}

static void on_abort(const char *id)
{
	if (cancelled_has(id))
		return;
	poll_cancel(id);
	snprintf(cancelled[ncancelled++ % CANCELLED], ID_MAX, "%s", id);
	for (int i = 0; i < conf.nown; i++) {
		struct job *next;
		for (struct job *j = rts[i].all.all_next; j; j = next) {
			next = j->all_next;
			if (strcmp(j->id, id))
				continue;
			j->cancelled = 1;
			if (j->waits_join)
				job_free(j);
		}
	}
}

static void on_ack(const struct msg *m)
{
	struct stage_rt *rt = rt_of(m->to);
	if (!rt)
		return;
	rt->credits++;
	const struct stage_def *s = &conf.stage[m->from];
	int proc = s->procs[m->from_replica];
	if (rt->owed[proc] > 0)
		rt->owed[proc]--;
	send_pump(rt);
}

static void record_recv(const struct msg *m)
{
	if (!m->id[0])
		return;
	struct trec *r = truth_new(T_RECV, m->id, m->from, m->to, m->chunk);
	if (!r)
		return;
	r->type = m->type;
	r->transport = m->carrier;
	r->peer = -1;
	r->bytes = m->wire_bytes;
	r->t[0] = m->recv_ns;
}

static void on_message(struct msg *m)
{
	if (m->type == M_PEER_LOST) {
		for (int i = 0; i < conf.nown; i++)
			send_peer_lost(&rts[i], m->proc);
		msg_free(m);
		return;
	}
	if (frame_decode(m) != 0) {
		fprintf(stderr, "decode message of %u bytes: unknown form\n", m->wire_bytes);
		msg_free(m);
		return;
	}
	if (m->to == 0)
		m->to = conf.own[0];
	record_recv(m);
	if (m->type == M_SUBMIT || m->type == M_DATA) {
		loop_arrive(m);
		return;
	}
	if (m->type == M_ABORT)
		on_abort(m->id);
	else if (m->type == M_ACK)
		on_ack(m);
	msg_free(m);
}

static void on_output(struct output *o)
{
	struct job *j = o->job;
	struct stage_rt *rt = rt_of(j->stage);
	if (!j->cancelled && o->index >= 0)
		send_outputs(rt, o);
	if (o->final) {
		rt->admitted--;
		job_free(j);
		admit(rt);
	}
	free(o);
}

static void beat(void)
{
	static int64_t next;
	int64_t now = now_ns();
	if (!conf.noise || now < next)
		return;
	next = now + BEAT_MS * 1000000LL;
	struct msg *m = msg_new(M_BEAT, NULL);
	m->from = conf.own[0];
	m->last = rts[0].admitted;
	m->carrier = C_UNIX;
	frame_encode(m, F_MAP);
	mailbox_put(&outbox, m);
}

static void drain(void)
{
	struct msg *m = mailbox_take(&inbox);
	while (m) {
		struct msg *next = m->next;
		on_message(m);
		m = next;
	}
	struct output *o = compute_take();
	while (o) {
		struct output *next = o->next;
		on_output(o);
		o = next;
	}
}

void loop_stop(void)
{
	uint64_t one = 1;
	(void)!write(stop_fd, &one, sizeof(one));
}

void loop_start(void)
{
	stop_fd = eventfd(0, EFD_NONBLOCK | EFD_CLOEXEC);
	compute_init(conf.stage[conf.own[0]].svc.self_pipe);
	for (int i = 0; i < conf.nown; i++) {
		struct stage_rt *rt = &rts[i];
		rt->stage = conf.own[i];
		rt->credits = CREDITS;
		rt->backlog_tail = &rt->backlog;
		rt->waiting_tail = &rt->waiting;
		compute_start(rt);
	}
}

void loop_run(void)
{
	struct pollfd p[4] = {{inbox.fd, POLLIN, 0}, {compute_fd(), POLLIN, 0}, {stop_fd, POLLIN, 0}, {LIFELINE_FD, POLLIN, 0}};
	for (;;) {
		drain();
		poll_try();
		beat();
		int quiet = mailbox_sleep(&inbox);
		quiet = compute_sleep() && quiet;
		if (poll(p, 4, quiet ? poll_timeout(conf.noise ? BEAT_MS : -1) : 0) < 0)
			continue;
		if (p[0].revents)
			mailbox_woken(&inbox);
		if (p[1].revents)
			compute_woken();
		if (p[2].revents || p[3].revents)
			return;
	}
}
