// SPDX-License-Identifier: Apache-2.0
#ifndef REFPIPE_IO_H
#define REFPIPE_IO_H

#include "stage.h"

enum conn_kind { K_LISTEN, K_ZMTP, K_PIPE, K_TEXT, K_EVENT };
enum { Z_SIGNATURE, Z_GREETING, Z_READY, Z_TRAFFIC };
enum { GREETING = 64, SIGNATURE = 10, MAX_STAMPS = 512 };

struct stamp {
	struct msg *m;
	size_t at; // offset of the message's first byte in the buffer about to be written
};

struct conn {
	int fd, dead, want_out;
	enum conn_kind kind;
	int proc, carrier; // peer process of an outgoing connection, else -1
	int from;          // stage that was seen sending on it, -1 before
	int64_t defer_until;
	int deferred;

	// in
	int state;
	uint8_t head[GREETING];
	size_t nhead;
	uint8_t flags;
	uint64_t need;     // body bytes still missing, valid while in_body
	int in_body;
	struct msg *in;
	size_t in_bytes;   // wire size of the message being read

	// out
	struct msg *q, **qtail;
	struct msg *written, **wtail; // fully copied, kept until their stamp is set
	struct buf control; // handshake bytes, they go before any message
	size_t control_off;
	uint8_t out[IO_BATCH];
	const uint8_t *ptr;
	size_t len;
	struct stamp stamps[MAX_STAMPS];
	int nstamps;
	int can_send;
};

// zmtp.c
void zmtp_begin(struct conn *c);
int zmtp_feed(struct conn *c, const uint8_t *p, size_t n, int64_t ns, void (*emit)(struct conn *, struct msg *));

// out.c
void out_queue(struct conn *c, struct msg *m);
int out_event(struct conn *c); // 1: more may follow, 0: nothing to write, -1: peer gone
void out_drop(struct conn *c);

// in.c
int in_event(struct conn *c, void (*emit)(struct conn *, struct msg *)); // 0, or -1 when the peer is gone

#endif
