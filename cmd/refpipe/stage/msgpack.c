// SPDX-License-Identifier: Apache-2.0
// msgpack bodies: a MAP whose first keys are type and request_id, or an ARRAY
// (array16, as array-like structs are sent) whose element 0 is the request id.
#include <string.h>

#include "stage.h"

static void put_be(struct buf *b, uint8_t tag, uint64_t v, int n)
{
	uint8_t t[9] = {tag};
	for (int i = 0; i < n; i++)
		t[1 + i] = v >> (8 * (n - 1 - i));
	buf_add(b, t, 1 + n);
}

static void put_str(struct buf *b, const char *s)
{
	size_t n = strlen(s);
	if (n < 32)
		put_be(b, 0xa0 | n, 0, 0);
	else
		put_be(b, 0xd9, n, 1);
	buf_add(b, s, n);
}

static void put_int(struct buf *b, int64_t v)
{
	if (v >= 0 && v < 128)
		put_be(b, v, 0, 0);
	else if (v >= 0)
		put_be(b, 0xce, v, 4);
	else
		put_be(b, 0xd2, (uint32_t)v, 4);
}

static void put_bin(struct buf *b, const struct buf *d)
{
	put_be(b, 0xc6, d->len, 4);
	buf_add(b, d->p, d->len);
}

static void put_stage(struct buf *b, const struct msg *m)
{
	char name[NAME_MAX_ + 8];
	size_t n = strlen(conf.stage[m->from].name);
	memcpy(name, conf.stage[m->from].name, n + 1);
	if (conf.stage[m->from].nprocs > 1) {
		name[n] = '@';
		name[n + 1] = 'r';
		name[n + 2] = '0' + conf.replica;
		name[n + 3] = 0;
	}
	put_str(b, name);
}

static void put_object(struct buf *b, const struct msg *m)
{
	char s[ID_MAX + 2 * NAME_MAX_ + 32];
	size_t n = 0;
	const char *parts[] = {m->id, m->chunk < 0 ? ":payload:" : ":stream:", conf.stage[m->from].name, ":",
			       conf.stage[m->to].name};
	for (int i = 0; i < 5; i++) {
		memcpy(s + n, parts[i], strlen(parts[i]));
		n += strlen(parts[i]);
	}
	s[n] = 0;
	put_str(b, s);
}

static void put_data_ref(struct buf *b, const struct msg *m)
{
	put_str(b, "data_ref");
	put_be(b, 0x83, 0, 0);
	put_str(b, "object_id");
	put_object(b, m);
	put_str(b, "final");
	put_be(b, m->last ? 0xc3 : 0xc2, 0, 0);
	if (!m->shm[0]) {
		put_str(b, "data");
		put_bin(b, &m->data);
		return;
	}
	put_str(b, "buffer");
	put_be(b, 0x82, 0, 0);
	put_str(b, "kind");
	put_str(b, "shm");
	put_str(b, "info");
	put_be(b, 0x81, 0, 0);
	put_str(b, "transfer_info");
	put_be(b, 0x83, 0, 0);
	put_str(b, "shm_name");
	put_str(b, m->shm);
	put_str(b, "size");
	put_int(b, m->shm_size);
	put_str(b, "req_id");
	put_str(b, m->id);
}

static void put_head(struct buf *b, const struct msg *m, int pairs)
{
	put_be(b, 0x80 | pairs, 0, 0);
	put_str(b, "type");
	put_str(b, mtype_name(m->type));
	if (m->id[0]) {
		put_str(b, "request_id");
		put_str(b, m->id);
	}
	put_str(b, "from_stage");
	put_stage(b, m);
}

void mp_encode_map(struct buf *b, const struct msg *m)
{
	switch (m->type) {
	case M_DATA:
		put_head(b, m, m->chunk < 0 ? 5 : 6);
		put_str(b, "to_stage");
		put_str(b, conf.stage[m->to].name);
		put_data_ref(b, m);
		break;
	case M_ACK:
		put_head(b, m, m->chunk < 0 ? 6 : 7);
		put_str(b, "to_stage");
		put_str(b, conf.stage[m->to].name);
		put_str(b, "object_id");
		put_object(b, m);
		put_str(b, "ok");
		put_be(b, 0xc3, 0, 0);
		break;
	case M_BEAT:
		put_head(b, m, 3);
		put_str(b, "pending");
		put_int(b, m->last);
		return;
	default: // stream, complete
		put_head(b, m, m->chunk < 0 ? 5 : 6);
		put_str(b, "final");
		put_be(b, m->last ? 0xc3 : 0xc2, 0, 0);
		put_str(b, "data");
		put_bin(b, &m->data);
	}
	if (m->chunk >= 0) {
		put_str(b, "chunk_id");
		put_int(b, m->chunk);
	}
}

void mp_encode_array(struct buf *b, const struct msg *m)
{
	enum { ELEMENTS = 18 }; // more than a fixarray holds, as the structs it stands for
	put_be(b, 0xdc, ELEMENTS, 2);
	put_str(b, m->id);
	put_stage(b, m);
	put_str(b, conf.stage[m->to].name);
	put_int(b, m->chunk);
	put_be(b, m->last ? 0xc3 : 0xc2, 0, 0);
	if (m->shm[0])
		put_str(b, m->shm);
	else
		put_be(b, 0xc0, 0, 0);
	put_int(b, m->shm_size);
	for (int i = 7; i < ELEMENTS; i++)
		put_be(b, 0xc0, 0, 0);
}
