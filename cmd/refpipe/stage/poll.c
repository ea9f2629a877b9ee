// SPDX-License-Identifier: Apache-2.0
// Inputs that nobody announces: after a request's first message the receiver
// looks for its named segments every millisecond, one chunk after the other.
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "stage.h"

enum { EVERY_MS = 1 };

struct poller {
	struct poller *next;
	char id[ID_MAX];
	int from, to, chunk;
};

static struct poller *pollers;
static int64_t last_try;

void poll_begin(const struct msg *m)
{
	struct poller *p = calloc(1, sizeof(*p));
	if (!p)
		abort();
	strcpy(p->id, m->id);
	p->from = m->from;
	p->to = m->to;
	p->next = pollers;
	pollers = p;
	last_try = 0;
}

void poll_cancel(const char *id)
{
	for (struct poller **at = &pollers; *at;) {
		struct poller *p = *at;
		if (strcmp(p->id, id)) {
			at = &p->next;
			continue;
		}
		*at = p->next;
		free(p);
	}
}

int poll_timeout(int otherwise)
{
	return pollers ? EVERY_MS : otherwise;
}

// 1 when the chunk was there: it is on its way into the stage then.
static int take(struct poller *p, int *last)
{
	struct msg *m = msg_new(M_DATA, p->id);
	m->from = p->from;
	m->to = p->to;
	m->chunk = p->chunk;
	shm_name(m, p->chunk);
	if (shm_get(m, 1) != 0) {
		msg_free(m);
		return 0;
	}
	m->recv_ns = now_ns();
	m->shm[0] = 0;
	int tokens, chunks;
	char head[64] = "";
	memcpy(head, m->data.p, m->data.len < sizeof(head) - 1 ? m->data.len : sizeof(head) - 1);
	*last = sscanf(head, "tokens=%d chunks=%d", &tokens, &chunks) != 2 || p->chunk + 1 >= chunks;
	m->last = *last;
	struct trec *r = truth_new(T_RECV, m->id, m->from, m->to, m->chunk);
	if (r) {
		r->type = m->type;
		r->transport = C_SHM;
		r->peer = -1;
		r->bytes = m->data.len;
		r->t[0] = m->recv_ns;
	}
	p->chunk++;
	loop_arrive(m);
	return 1;
}

void poll_try(void)
{
	int64_t now = now_ns();
	if (!pollers || now - last_try < EVERY_MS * 1000000LL)
		return;
	last_try = now;
	for (struct poller **at = &pollers; *at;) {
		struct poller *p = *at;
		int last = 0;
		while (!last && take(p, &last))
			;
		if (last) {
			*at = p->next;
			free(p);
		} else {
			at = &p->next;
		}
	}
}
