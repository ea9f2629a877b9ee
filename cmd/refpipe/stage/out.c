// SPDX-License-Identifier: Apache-2.0
// Writing: many small messages share one write of IO_BATCH bytes, a large one
// goes out as IO_BATCH bytes and then the rest in one piece.
#include <errno.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#include "io.h"

void out_queue(struct conn *c, struct msg *m)
{
	m->next = NULL;
	m->off = 0;
	*c->qtail = m;
	c->qtail = &m->next;
}

static void pop(struct conn *c)
{
	struct msg *m = c->q;
	c->q = m->next;
	if (!c->q)
		c->qtail = &c->q;
	m->next = NULL;
	*c->wtail = m;
	c->wtail = &m->next;
}

static void mark(struct conn *c, struct msg *m, size_t at)
{
	c->stamps[c->nstamps++] = (struct stamp){m, at};
}

// multiprocessing's Connection: header and body in one write up to 16 KiB,
// above it two writes; never two messages in one.
static void fill_pipe(struct conn *c)
{
	enum { JOINED = 16384 };
	struct msg *m = c->q;
	if (m->off == 0)
		mark(c, m, 0);
	c->ptr = m->wire.p + m->off;
	c->len = m->wire.len - m->off;
	if (m->off == 0 && m->wire.len > JOINED + 4)
		c->len = 4;
	m->off += c->len;
	if (m->off == m->wire.len)
		pop(c);
}

static void fill_batch(struct conn *c)
{
	c->ptr = c->out;
	if (c->control.len > c->control_off) {
		c->len = c->control.len - c->control_off;
		memcpy(c->out, c->control.p + c->control_off, c->len);
		c->control_off = c->control.len;
	}
	while (c->can_send && c->q && c->len < IO_BATCH && c->nstamps < MAX_STAMPS) {
		struct msg *m = c->q;
		size_t left = m->wire.len - m->off, room = IO_BATCH - c->len;
		if (m->off == 0)
			mark(c, m, c->len);
		if (c->len == 0 && left >= IO_BATCH && m->off > 0) {
			c->ptr = m->wire.p + m->off;
			c->len = left;
			m->off = m->wire.len;
			pop(c);
			return;
		}
		size_t n = left < room ? left : room;
		memcpy(c->out + c->len, m->wire.p + m->off, n);
		c->len += n;
		m->off += n;
		if (m->off == m->wire.len)
			pop(c);
	}
}

static void record_send(struct conn *c, struct msg *m, int64_t ns)
{
	if (m->visit && ns > m->visit->t[V_DEPARTURE])
		m->visit->t[V_DEPARTURE] = ns;
	if (!m->id[0])
		return;
	struct trec *r = truth_new(T_SEND, m->id, m->from, m->to, m->chunk);
	if (!r)
		return;
	r->type = m->type;
	r->transport = c->carrier;
	r->peer = c->proc;
	r->bytes = m->wire_bytes;
	r->t[0] = ns;
}

// Sets the stamps of the messages whose first byte lies in the n bytes that the
// write took, and keeps the others for the next write.
static void commit(struct conn *c, size_t n, int64_t ns)
{
	int kept = 0;
	for (int i = 0; i < c->nstamps; i++) {
		struct stamp s = c->stamps[i];
		if (s.at < n) {
			record_send(c, s.m, ns);
			continue;
		}
		s.at -= n;
		c->stamps[kept++] = s;
	}
	c->nstamps = kept;
}

static void free_written(struct conn *c)
{
	if (c->nstamps || c->len)
		return;
	while (c->written) {
		struct msg *m = c->written;
		c->written = m->next;
		msg_free(m);
	}
	c->wtail = &c->written;
}

int out_event(struct conn *c)
{
	if (c->len == 0) {
		if (c->kind == K_ZMTP || c->kind == K_TEXT)
			fill_batch(c);
		else if (c->q)
			fill_pipe(c);
	}
	if (c->len == 0)
		return 0;
	int64_t ns = now_ns();
	ssize_t n = c->kind == K_PIPE ? write(c->fd, c->ptr, c->len) : send(c->fd, c->ptr, c->len, MSG_NOSIGNAL);
	if (n < 0)
		return errno == EAGAIN || errno == EINTR ? 1 : -1;
	commit(c, n, ns);
	c->ptr += n;
	c->len -= n;
	free_written(c);
	return 1;
}

void out_drop(struct conn *c)
{
	c->nstamps = 0;
	c->len = 0;
	free_written(c);
	while (c->q) {
		struct msg *m = c->q;
		c->q = m->next;
		msg_free(m);
	}
	c->qtail = &c->q;
}
