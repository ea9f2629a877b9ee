// SPDX-License-Identifier: Apache-2.0
// The subset of pickle protocol 4 in which a dict of strings, integers, bools
// and bytes is written by multiprocessing.Connection.send.
#include <string.h>

#include "stage.h"

static void op(struct buf *b, uint8_t c)
{
	buf_add(b, &c, 1);
}

static void le(struct buf *b, uint64_t v, int n)
{
	for (int i = 0; i < n; i++)
		op(b, v >> (8 * i));
}

static void str(struct buf *b, const char *s)
{
	size_t n = strlen(s);
	op(b, 0x8c); // SHORT_BINUNICODE
	op(b, n);
	buf_add(b, s, n);
	op(b, 0x94); // MEMOIZE
}

static void integer(struct buf *b, int v)
{
	if (v >= 0 && v < 256) {
		op(b, 'K');
		op(b, v);
		return;
	}
	op(b, 'J');
	le(b, (uint32_t)v, 4);
}

static void bytes(struct buf *b, const struct buf *d)
{
	if (d->len < 256) {
		op(b, 'C');
		op(b, d->len);
	} else {
		op(b, 'B');
		le(b, d->len, 4);
	}
	buf_add(b, d->p, d->len);
	op(b, 0x94);
}

void pickle_encode(struct buf *b, const struct msg *m)
{
	size_t start = b->len;
	op(b, 0x80); // PROTO 4
	op(b, 4);
	op(b, 0x95); // FRAME, length patched below
	le(b, 0, 8);
	op(b, '}');
	op(b, 0x94);
	op(b, '(');
	str(b, "type");
	str(b, mtype_name(m->type));
	str(b, "request_id");
	str(b, m->id);
	str(b, "from_stage");
	str(b, conf.stage[m->from].name);
	str(b, "to_stage");
	str(b, conf.stage[m->to].name);
	str(b, "chunk_id");
	integer(b, m->chunk);
	str(b, "final");
	op(b, m->last ? 0x88 : 0x89);
	str(b, "data");
	bytes(b, &m->data);
	op(b, 'u');
	op(b, '.');
	uint64_t n = b->len - start - 11;
	for (int i = 0; i < 8; i++)
		b->p[start + 3 + i] = n >> (8 * i);
}

struct pv {
	char kind; // s, i, or 0 at the end
	const uint8_t *p;
	size_t n;
	int64_t i;
};

static uint64_t get_le(const uint8_t **p, const uint8_t *end, int n)
{
	uint64_t v = 0;
	if (end - *p < n) {
		*p = end;
		return 0;
	}
	for (int i = 0; i < n; i++)
		v |= (uint64_t)(*p)[i] << (8 * i);
	*p += n;
	return v;
}

static struct pv run(const uint8_t **p, const uint8_t *end, size_t n)
{
	struct pv v = {'s', *p, n, 0};
	if ((size_t)(end - *p) < n) {
		*p = end;
		return (struct pv){0, NULL, 0, 0};
	}
	*p += n;
	return v;
}

static struct pv next(const uint8_t **p, const uint8_t *end)
{
	while (*p < end) {
		switch (*(*p)++) {
		case 0x80: *p += 1; break;
		case 0x95: *p += 8; break;
		case 0x94: case '}': case '(': break;
		case 0x8c: case 'C': return run(p, end, get_le(p, end, 1));
		case 'X': case 'B': return run(p, end, get_le(p, end, 4));
		case 'K': return (struct pv){'i', NULL, 0, (int64_t)get_le(p, end, 1)};
		case 'M': return (struct pv){'i', NULL, 0, (int64_t)get_le(p, end, 2)};
		case 'J': return (struct pv){'i', NULL, 0, (int32_t)get_le(p, end, 4)};
		case 0x88: return (struct pv){'i', NULL, 0, 1};
		case 0x89: case 'N': return (struct pv){'i', NULL, 0, 0};
		default: return (struct pv){0, NULL, 0, 0};
		}
	}
	return (struct pv){0, NULL, 0, 0};
}

static int is(struct pv k, const char *s)
{
	return k.n == strlen(s) && !memcmp(k.p, s, k.n);
}

int pickle_decode(struct msg *m, const uint8_t *p, size_t n)
{
	const uint8_t *end = p + n;
	for (;;) {
		struct pv k = next(&p, end);
		if (k.kind != 's')
			break;
		struct pv v = next(&p, end);
		if (is(k, "type") && v.kind == 's')
			m->type = mtype_parse(v.p, v.n);
		else if (is(k, "request_id") && v.kind == 's' && v.n < ID_MAX)
			memcpy(m->id, v.p, v.n);
		else if (is(k, "from_stage") && v.kind == 's')
			msg_set_stage(m, 0, v.p, v.n);
		else if (is(k, "to_stage") && v.kind == 's')
			msg_set_stage(m, 1, v.p, v.n);
		else if (is(k, "chunk_id"))
			m->chunk = v.i;
		else if (is(k, "final"))
			m->last = v.i;
		else if (is(k, "data") && v.kind == 's')
			buf_add(&m->data, v.p, v.n);
	}
	return m->type == M_NONE ? -1 : 0;
}
