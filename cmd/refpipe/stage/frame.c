// SPDX-License-Identifier: Apache-2.0
// From a message to the bytes of its carrier and back.
#include <stdio.h>
#include <string.h>

#include "stage.h"

static const char *const names[] = {"",       "submit",    "data_ready", "data_ack",     "stream",
				    "complete", "abort", "heartbeat",  "health_check"};

const char *mtype_name(enum mtype t)
{
	return names[t];
}

enum mtype mtype_parse(const uint8_t *p, size_t n)
{
	for (int t = M_SUBMIT; t <= M_HEALTH; t++)
		if (strlen(names[t]) == n && !memcmp(names[t], p, n))
			return t;
	return M_NONE;
}

void msg_set_stage(struct msg *m, int is_to, const uint8_t *p, size_t n)
{
	int replica = 0;
	if (n > 3 && p[n - 3] == '@') {
		replica = p[n - 1] - '0';
		n -= 3;
	}
	for (int i = 0; i < conf.nstages; i++) {
		if (strlen(conf.stage[i].name) != n || memcmp(conf.stage[i].name, p, n))
			continue;
		if (is_to) {
			m->to = i;
		} else {
			m->from = i;
			m->from_replica = replica == 1;
		}
	}
}

static void zmtp_frame(struct buf *w, int more, const void *p, size_t n)
{
	uint8_t h[9] = {more ? 1 : 0};
	if (n < 256) {
		h[1] = n;
		buf_add(w, h, 2);
	} else {
		h[0] |= 2;
		for (int i = 0; i < 8; i++)
			h[1 + i] = (uint64_t)n >> (56 - 8 * i);
		buf_add(w, h, 9);
	}
	buf_add(w, p, n);
}

static void ndjson_encode(struct buf *b, const struct msg *m)
{
	char head[ID_MAX + NAME_MAX_ + 128];
	int n = snprintf(head, sizeof(head),
			 "{\"type\":\"%s\",\"request_id\":\"%s\",\"from_stage\":\"%s\",\"chunk_id\":%d,\"final\":%s,\"data\":\"",
			 mtype_name(m->type), m->id, conf.stage[m->from].name, m->chunk, m->last ? "true" : "false");
	buf_add(b, head, n);
	buf_add(b, m->data.p, m->data.len); // generated words only: nothing to escape
	buf_add(b, "\"}\n", 3);
}

void frame_encode(struct msg *m, int framing)
{
	struct buf body = {0};
	m->framing = framing;
	if (framing == F_NDJSON) {
		ndjson_encode(&m->wire, m);
	} else if (framing == F_PICKLE) {
		pickle_encode(&body, m);
		uint8_t h[4] = {body.len >> 24, body.len >> 16, body.len >> 8, body.len};
		buf_add(&m->wire, h, 4);
		buf_add(&m->wire, body.p, body.len);
	} else if (framing == F_ARRAY) {
		uint8_t type = m->type == M_ABORT ? 1 : m->type == M_HEALTH ? 3 : m->type == M_COMPLETE ? 2 : 0;
		mp_encode_array(&body, m);
		zmtp_frame(&m->wire, 1, &type, 1);
		zmtp_frame(&m->wire, m->data.len > 0, body.p, body.len);
		if (m->data.len)
			zmtp_frame(&m->wire, 0, m->data.p, m->data.len);
	} else {
		mp_encode_map(&body, m);
		zmtp_frame(&m->wire, 0, body.p, body.len);
	}
	buf_free(&body);
	m->wire_bytes = m->wire.len;
}

int frame_decode(struct msg *m)
{
	if (m->framing == F_PICKLE)
		return pickle_decode(m, m->wire.p, m->wire.len);
	if (m->nparts == 1)
		return mp_decode_map(m, m->wire.p, m->part[0]);
	return mp_decode_array(m);
}
