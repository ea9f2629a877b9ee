/*
 * Two processes that pass messages through rings in shared memory, as cmd/stageline/testdata/ring.py
 * does, for machines without Python: one ring there, one back, each of 10 chunks, then per chunk a
 * written flag and a flag for its one reader. The writer of the one there is a thread that was made
 * after the recorder attached; all others are there before.
 *
 * usage: ring N    prints {"pids": …}, waits for a line, passes N messages, prints of each when its
 * flags were set (CLOCK_MONOTONIC, before and after the write), and ends with its standard input
 */
#include <fcntl.h>
#include <pthread.h>
#include <sched.h>
#include <stdatomic.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

enum { CHUNKS = 10, THERE = 16 << 20, BACK = 24 << 20, MOST = 4096 };

struct ring {
	size_t chunk;
	unsigned char *base;
	int at;
};

struct moment { int64_t before, after; };

/* Of one message: put and taken on its way there, then back. */
struct times { struct moment put, taken, put_back, got; };

static struct ring there = { THERE }, back = { BACK };
static struct times *times; /* shared */
static int n;

static void die(const char *what)
{
	perror(what);
	exit(1);
}

static int64_t now(void)
{
	struct timespec t;

	clock_gettime(CLOCK_MONOTONIC, &t);
	return t.tv_sec * 1000000000LL + t.tv_nsec;
}

static void map(struct ring *r, const char *name)
{
	size_t size = (r->chunk + 2) * CHUNKS;
	int fd = shm_open(name, O_RDWR | O_CREAT | O_EXCL, 0600);

	if (fd < 0 || ftruncate(fd, size) < 0)
		die(name);
	r->base = mmap(NULL, size, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
	if (r->base == MAP_FAILED)
		die(name);
	close(fd);
}

static atomic_uchar *flags(struct ring *r) { return (atomic_uchar *)(r->base + r->chunk * CHUNKS + 2 * r->at); }

static struct moment set(atomic_uchar *flag)
{
	struct moment m;

	m.before = now();
	atomic_store(flag, 1);
	m.after = now();
	return m;
}

/* The body is the pickle of {"req_id": id}, behind its length. */
static struct moment put(struct ring *r, const char *id)
{
	atomic_uchar *f = flags(r);
	unsigned char *body = r->base + r->at * r->chunk;
	struct moment m;
	int len;

	while (f[0] && !f[1])
		sched_yield();
	f[0] = 0;
	len = sprintf((char *)body + 7, "\x80\x05}\x8c\x06req_id\x8c%c%ss.", (int)strlen(id), id);
	memcpy(body, (unsigned char[]){ 0, 0, 1, 0, 0, len >> 8, len }, 7);
	f[1] = 0;
	m = set(&f[0]);
	r->at = (r->at + 1) % CHUNKS;
	return m;
}

static struct moment get(struct ring *r)
{
	atomic_uchar *f = flags(r);
	struct moment m;

	while (!f[0] || f[1])
		sched_yield();
	m = set(&f[1]);
	r->at = (r->at + 1) % CHUNKS;
	return m;
}

static void name(char *id, int i) { sprintf(id, "req-ring-%04d", i); }

static void *write_there(void *unused)
{
	char id[32];

	for (int i = 0; i < n; i++) {
		name(id, i);
		times[i].put = put(&there, id);
		/* Two at once, then a pause in which an emulated machine gets round to a look. */
		if (i % 2)
			usleep(400000);
	}
	return unused;
}

static void *work(void *unused)
{
	char id[32];

	for (int i = 0; i < n; i++) {
		times[i].taken = get(&there);
		name(id, i);
		times[i].put_back = put(&back, id);
	}
	return unused;
}

static void print(const char *what, struct moment m) { printf("\"%s\": [%lld, %lld]", what, (long long)m.before, (long long)m.after); }

int main(int argc, char **argv)
{
	pthread_t t;
	pid_t child;
	char line[16];

	n = argc > 1 ? atoi(argv[1]) : 0;
	if (n < 1 || n > MOST)
		return fprintf(stderr, "usage: ring N, of 1 to %d messages\n", MOST), 2;
	times = mmap(NULL, MOST * sizeof(*times), PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
	if (times == MAP_FAILED)
		die("mmap");
	map(&there, "/ring-there");
	map(&back, "/ring-back");
	child = fork();
	if (child < 0)
		die("fork");
	if (child == 0) {
		if (pthread_create(&t, NULL, work, NULL) || pthread_join(t, NULL))
			die("thread");
		_exit(0);
	}
	printf("{\"pids\": [%d, %d]}\n", getpid(), child);
	fflush(stdout);
	if (!fgets(line, sizeof(line), stdin) || pthread_create(&t, NULL, write_there, NULL))
		die("begin");
	for (int i = 0; i < n; i++)
		times[i].got = get(&back);
	pthread_join(t, NULL);
	waitpid(child, NULL, 0);
	for (int i = 0; i < n; i++) {
		printf("{\"id\": \"req-ring-%04d\", ", i);
		print("put", times[i].put), printf(", ");
		print("taken", times[i].taken), printf(", ");
		print("put_back", times[i].put_back), printf(", ");
		print("got", times[i].got), printf("}\n");
	}
	fflush(stdout);
	while (fgets(line, sizeof(line), stdin))
		;
	shm_unlink("/ring-there");
	shm_unlink("/ring-back");
	return 0;
}
