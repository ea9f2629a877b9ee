// SPDX-License-Identifier: Apache-2.0
#include <errno.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#include "io.h"

static int read_zmtp(struct conn *c, void (*emit)(struct conn *, struct msg *))
{
	uint8_t buf[IO_BATCH];
	ssize_t n = recv(c->fd, buf, sizeof(buf), 0);
	int64_t ns = now_ns();
	if (n == 0)
		return -1;
	if (n < 0)
		return errno == EAGAIN || errno == EINTR ? 0 : -1;
	return zmtp_feed(c, buf, n, ns, emit);
}

// As Connection.recv: four bytes, then exactly the body.
static int read_pipe(struct conn *c, void (*emit)(struct conn *, struct msg *))
{
	uint8_t buf[65536];
	size_t want = c->in_body ? c->need : 4 - c->nhead;
	if (want > sizeof(buf))
		want = sizeof(buf);
	ssize_t n = read(c->fd, buf, want);
	int64_t ns = now_ns();
	if (n == 0)
		return -1;
	if (n < 0)
		return errno == EAGAIN || errno == EINTR ? 0 : -1;
	if (!c->in_body) {
		memcpy(c->head + c->nhead, buf, n);
		c->nhead += n;
		if (c->nhead < 4)
			return 0;
		c->need = (uint32_t)c->head[0] << 24 | c->head[1] << 16 | c->head[2] << 8 | c->head[3];
		c->in_body = 1;
		c->nhead = 0;
		c->in = msg_new(M_NONE, NULL);
		return 0;
	}
	buf_add(&c->in->wire, buf, n);
	c->need -= n;
	if (c->need)
		return 0;
	c->in_body = 0;
	c->in->nparts = 1;
	c->in->framing = F_PICKLE;
	c->in->recv_ns = ns;
	c->in->wire_bytes = c->in->wire.len + 4;
	emit(c, c->in);
	c->in = NULL;
	return 0;
}

int in_event(struct conn *c, void (*emit)(struct conn *, struct msg *))
{
	if (c->kind == K_PIPE)
		return read_pipe(c, emit);
	return read_zmtp(c, emit);
}
