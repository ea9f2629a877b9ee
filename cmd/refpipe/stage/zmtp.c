// SPDX-License-Identifier: Apache-2.0
// ZMTP 3.1 with the NULL mechanism: the signature goes first, the rest of the
// greeting once the peer showed itself, READY once the peer's greeting is in.
#include <string.h>

#include "io.h"

void zmtp_begin(struct conn *c)
{
	uint8_t sig[SIGNATURE] = {0xff, 0, 0, 0, 0, 0, 0, 0, 0, 0x7f};
	c->state = Z_SIGNATURE;
	buf_add(&c->control, sig, sizeof(sig));
}

static void send_greeting(struct conn *c)
{
	uint8_t g[GREETING - SIGNATURE] = {3, 1, 'N', 'U', 'L', 'L'};
	buf_add(&c->control, g, sizeof(g));
}

static void send_ready(struct conn *c)
{
	static const char prop[] = "\x05READY\x0bSocket-Type\x00\x00\x00\x04";
	uint8_t h[2] = {4, sizeof(prop) - 1 + 4};
	buf_add(&c->control, h, 2);
	buf_add(&c->control, prop, sizeof(prop) - 1);
	buf_add(&c->control, c->proc >= 0 ? "PUSH" : "PULL", 4);
}

// Returns how many of the n bytes belonged to the greeting.
static size_t greet(struct conn *c, const uint8_t *p, size_t n)
{
	size_t want = (c->state == Z_SIGNATURE ? SIGNATURE : GREETING) - c->nhead;
	if (n > want)
		n = want;
	memcpy(c->head + c->nhead, p, n);
	c->nhead += n;
	if (c->state == Z_SIGNATURE && c->nhead == SIGNATURE) {
		send_greeting(c);
		c->state = Z_GREETING;
	} else if (c->nhead == GREETING) {
		send_ready(c);
		c->state = Z_READY;
		c->nhead = 0;
	}
	return n;
}

// Reads a frame header byte by byte; returns 1 when it is complete.
static int header(struct conn *c, uint8_t b)
{
	c->head[c->nhead++] = b;
	c->in_bytes++;
	c->flags = c->head[0];
	size_t want = c->flags & 2 ? 9 : 2;
	if (c->nhead < want)
		return 0;
	c->need = 0;
	for (size_t i = 1; i < want; i++)
		c->need = c->need << 8 | c->head[i];
	c->nhead = 0;
	return 1;
}

static void frame_end(struct conn *c, int64_t ns, void (*emit)(struct conn *, struct msg *))
{
	c->in_body = 0;
	if (c->flags & 4) { // command
		if (c->state == Z_READY) {
			c->state = Z_TRAFFIC;
			c->can_send = 1;
		}
		msg_free(c->in);
		c->in = NULL;
		c->in_bytes = 0;
		return;
	}
	c->in->nparts++;
	if (c->flags & 1)
		return;
	c->in->recv_ns = ns;
	c->in->wire_bytes = c->in_bytes;
	c->in_bytes = 0;
	emit(c, c->in);
	c->in = NULL;
}

int zmtp_feed(struct conn *c, const uint8_t *p, size_t n, int64_t ns, void (*emit)(struct conn *, struct msg *))
{
	while (n > 0) {
		size_t used = 1;
		if (c->state < Z_READY) {
			used = greet(c, p, n);
		} else if (!c->in_body) {
			c->in_body = header(c, *p);
			if (c->in_body && !c->in)
				c->in = msg_new(M_NONE, NULL);
			if (c->in_body && c->in->nparts >= 3)
				return -1;
			if (c->in_body && c->need == 0)
				frame_end(c, ns, emit);
		} else {
			used = n < c->need ? n : c->need;
			buf_add(&c->in->wire, p, used);
			c->in->part[c->in->nparts] += used;
			c->in_bytes += used;
			c->need -= used;
			if (c->need == 0)
				frame_end(c, ns, emit);
		}
		p += used;
		n -= used;
	}
	return 0;
}
