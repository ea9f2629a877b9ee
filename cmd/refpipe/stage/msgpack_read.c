// SPDX-License-Identifier: Apache-2.0
// Reading msgpack: the keys and elements that messages of this pipeline have.
#include <string.h>

#include "stage.h"

struct rd {
	const uint8_t *p, *end;
	int bad;
};

struct val {
	char kind; // s string or bin, i int, b bool, m map, a array, n nil, x other
	const uint8_t *p;
	size_t n;
	int64_t i;
};

static uint64_t get_be(struct rd *r, int n)
{
	uint64_t v = 0;
	if (r->end - r->p < n) {
		r->bad = 1;
		return 0;
	}
	for (int i = 0; i < n; i++)
		v = v << 8 | *r->p++;
	return v;
}

static struct val get_bytes(struct rd *r, uint64_t n)
{
	struct val v = {'s', r->p, n, 0};
	if ((uint64_t)(r->end - r->p) < n) {
		r->bad = 1;
		v.n = 0;
	} else {
		r->p += n;
	}
	return v;
}

static struct val get(struct rd *r)
{
	uint8_t t = get_be(r, 1);
	if (t < 0x80)
		return (struct val){'i', NULL, 0, t};
	if (t >= 0xe0)
		return (struct val){'i', NULL, 0, (int8_t)t};
	if (t < 0x90)
		return (struct val){'m', NULL, t & 15, 0};
	if (t < 0xa0)
		return (struct val){'a', NULL, t & 15, 0};
	if (t < 0xc0)
		return get_bytes(r, t & 31);
	switch (t) {
	case 0xc0: return (struct val){'n', NULL, 0, 0};
	case 0xc2: case 0xc3: return (struct val){'b', NULL, 0, t & 1};
	case 0xc4: case 0xd9: return get_bytes(r, get_be(r, 1));
	case 0xc5: case 0xda: return get_bytes(r, get_be(r, 2));
	case 0xc6: case 0xdb: return get_bytes(r, get_be(r, 4));
	case 0xcc: return (struct val){'i', NULL, 0, get_be(r, 1)};
	case 0xcd: return (struct val){'i', NULL, 0, get_be(r, 2)};
	case 0xce: return (struct val){'i', NULL, 0, get_be(r, 4)};
	case 0xcf: case 0xd3: return (struct val){'i', NULL, 0, get_be(r, 8)};
	case 0xd0: return (struct val){'i', NULL, 0, (int8_t)get_be(r, 1)};
	case 0xd1: return (struct val){'i', NULL, 0, (int16_t)get_be(r, 2)};
	case 0xd2: return (struct val){'i', NULL, 0, (int32_t)get_be(r, 4)};
	case 0xca: get_be(r, 4); return (struct val){'x', NULL, 0, 0};
	case 0xcb: get_be(r, 8); return (struct val){'x', NULL, 0, 0};
	case 0xdc: return (struct val){'a', NULL, get_be(r, 2), 0};
	case 0xde: return (struct val){'m', NULL, get_be(r, 2), 0};
	}
	r->bad = 1;
	return (struct val){'x', NULL, 0, 0};
}

static int key_is(struct val k, const char *s)
{
	return k.kind == 's' && k.n == strlen(s) && !memcmp(k.p, s, k.n);
}

static void copy_str(char *dst, size_t cap, struct val v)
{
	if (v.kind != 's' || v.n >= cap)
		return;
	memcpy(dst, v.p, v.n);
	dst[v.n] = 0;
}

static void take(struct msg *m, struct val k, struct val v)
{
	if (key_is(k, "type") && v.kind == 's')
		m->type = mtype_parse(v.p, v.n);
	else if (key_is(k, "request_id"))
		copy_str(m->id, sizeof(m->id), v);
	else if (key_is(k, "from_stage") && v.kind == 's')
		msg_set_stage(m, 0, v.p, v.n);
	else if (key_is(k, "to_stage") && v.kind == 's')
		msg_set_stage(m, 1, v.p, v.n);
	else if (key_is(k, "chunk_id") && v.kind == 'i')
		m->chunk = v.i;
	else if (key_is(k, "final") && v.kind == 'b')
		m->last = v.i;
	else if (key_is(k, "shm_name"))
		copy_str(m->shm, sizeof(m->shm), v);
	else if (key_is(k, "size") && v.kind == 'i')
		m->shm_size = v.i;
	else if (key_is(k, "data") && v.kind == 's')
		buf_add(&m->data, v.p, v.n);
}

static void read_map(struct msg *m, struct rd *r, size_t pairs, int depth)
{
	for (size_t i = 0; i < pairs && !r->bad; i++) {
		struct val k = get(r), v = get(r);
		if (v.kind == 'm' && depth < 8)
			read_map(m, r, v.n, depth + 1);
		else if (v.kind == 'a' || v.kind == 'm')
			r->bad = 1; // no message of this pipeline nests arrays
		else
			take(m, k, v);
	}
}

int mp_decode_map(struct msg *m, const uint8_t *p, size_t n)
{
	struct rd r = {p, p + n, 0};
	struct val v = get(&r);
	if (v.kind != 'm')
		return -1;
	read_map(m, &r, v.n, 0);
	return r.bad || m->type == M_NONE ? -1 : 0;
}

int mp_decode_array(struct msg *m)
{
	static const enum mtype by_byte[] = {M_DATA, M_ABORT, M_NONE, M_HEALTH};
	uint8_t t = m->wire.p[0];
	if (m->part[0] != 1 || t > 3)
		return -1;
	m->type = by_byte[t];
	struct rd r = {m->wire.p + 1, m->wire.p + 1 + m->part[1], 0};
	struct val v = get(&r);
	if (v.kind != 'a' || v.n < 7)
		return -1;
	copy_str(m->id, sizeof(m->id), get(&r));
	v = get(&r);
	if (v.kind == 's')
		msg_set_stage(m, 0, v.p, v.n);
	v = get(&r);
	if (v.kind == 's')
		msg_set_stage(m, 1, v.p, v.n);
	m->chunk = get(&r).i;
	m->last = get(&r).i;
	copy_str(m->shm, sizeof(m->shm), get(&r));
	m->shm_size = get(&r).i;
	if (m->nparts > 2)
		buf_add(&m->data, m->wire.p + 1 + m->part[1], m->part[2]);
	if (m->type == M_DATA && m->from == 0)
		m->type = M_SUBMIT;
	return r.bad ? -1 : 0;
}
