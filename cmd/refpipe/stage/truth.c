// SPDX-License-Identifier: Apache-2.0
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>

#include "stage.h"

// The first record's slot holds the counters, so that the parent can read
// what was dropped even after this process was killed.
struct thead {
	_Atomic uint64_t used, dropped;
};

static struct thead *head;
static struct trec *recs;
static uint64_t capacity;

void truth_open(int fd)
{
	struct stat st;
	if (fd < 0 || fstat(fd, &st) != 0 || st.st_size < (off_t)(2 * sizeof(struct trec)))
		return;
	void *p = mmap(NULL, st.st_size, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_POPULATE, fd, 0);
	if (p == MAP_FAILED)
		return;
	head = p;
	recs = (struct trec *)p + 1;
	capacity = st.st_size / sizeof(struct trec) - 1;
}

struct trec *truth_new(int kind, const char *id, int from, int to, int chunk)
{
	if (!head)
		return NULL;
	uint64_t i = atomic_fetch_add(&head->used, 1);
	if (i >= capacity) {
		atomic_fetch_add(&head->dropped, 1);
		return NULL;
	}
	struct trec *r = &recs[i];
	r->from = from;
	r->to = to;
	r->chunk = chunk;
	r->proc = conf.proc;
	strncpy(r->id, id, ID_MAX - 1);
	atomic_thread_fence(memory_order_release);
	r->kind = kind;
	return r;
}

void truth_arrival(struct trec *v, int from, int64_t ns)
{
	if (!v || v->narr >= MAX_INPUTS)
		return;
	v->arr_from[v->narr] = from;
	v->t[V_ARRIVAL + v->narr] = ns;
	v->narr++;
}
