// SPDX-License-Identifier: Apache-2.0
// From an output of compute to messages: routes, payloads, credits.
#include <stdio.h>
#include <string.h>

#include "stage.h"

static int peer_lost[MAX_PROCS];

int send_lost(int proc)
{
	return peer_lost[proc];
}

static void post(struct msg *m, int proc, int carrier, int framing)
{
	m->proc = proc;
	m->carrier = carrier;
	frame_encode(m, framing);
	mailbox_put(&outbox, m);
}

// Round robin by request over the replicas that live.
static int route(struct job *j, int to)
{
	static int turn[MAX_STAGES];
	const struct stage_def *s = &conf.stage[to];
	if (j->route[to] < 0 || peer_lost[s->procs[j->route[to]]]) {
		int r = turn[to]++ % s->nprocs;
		if (peer_lost[s->procs[r]])
			r = (r + 1) % s->nprocs;
		j->route[to] = r;
	}
	return s->procs[j->route[to]];
}

// The target of a polled edge hears of a request once, and finds its chunks.
static void put_polled(struct job *j, const struct edge *e, struct msg *m)
{
	if (!j->announced) {
		struct msg *add = msg_new(M_DATA, m->id);
		add->from = m->from;
		add->to = m->to;
		j->announced = 1;
		post(add, m->proc, e->carrier, e->framing);
	}
	int64_t ns = now_ns();
	struct trec *r = truth_new(T_SEND, m->id, m->from, m->to, m->chunk);
	if (r) {
		r->type = m->type;
		r->transport = C_SHM;
		r->peer = m->proc;
		r->bytes = m->data.len;
		r->t[0] = ns;
	}
	if (m->visit && ns > m->visit->t[V_DEPARTURE])
		m->visit->t[V_DEPARTURE] = ns;
	shm_put_named(m, m->data.p, m->data.len);
	msg_free(m);
}

static void deliver(struct stage_rt *rt, const struct edge *e, struct msg *m)
{
	if (e->data == D_ANON) {
		rt->credits--;
		rt->owed[m->proc]++;
		shm_put_anon(m, m->data.p, m->data.len);
		buf_free(&m->data);
	} else if (e->data == D_NAMED) {
		shm_put_named(m, m->data.p, m->data.len);
		buf_free(&m->data);
	}
	post(m, m->proc, e->carrier, e->framing);
}

static void memory_hop(struct msg *m)
{
	int64_t ns = now_ns();
	for (int kind = T_SEND; kind <= T_RECV; kind++) {
		struct trec *r = truth_new(kind, m->id, m->from, m->to, m->chunk);
		if (!r)
			continue;
		r->type = m->type;
		r->transport = C_MEMORY;
		r->peer = conf.proc;
		r->bytes = m->data.len;
		r->t[0] = ns;
	}
	if (m->visit && ns > m->visit->t[V_DEPARTURE])
		m->visit->t[V_DEPARTURE] = ns;
	m->recv_ns = ns;
	loop_arrive(m);
}

static int is_big(const struct msg *m)
{
	return conf.big_bytes && m->from == conf.big_from && m->to == conf.big_to;
}

// Byte by byte, each depending on the last, as an encoder in an interpreter does it: some
// nanoseconds a byte on the loop thread, after compute is done with the request.
static void serialise(struct msg *m)
{
	uint8_t block[4096];
	uint64_t h = m->data.len;
	for (size_t left = conf.big_bytes; left > 0;) {
		size_t n = left < sizeof(block) ? left : sizeof(block);
		for (size_t i = 0; i < n; i++) {
			h = (h ^ i) * 0xbf58476d1ce4e5b9ULL;
			h = (h ^ h >> 27) * 0x94d049bb133111ebULL;
			block[i] = h >> 56;
		}
		buf_add(&m->data, block, n);
		left -= n;
	}
}

void send_strip(struct msg *in)
{
	if (is_big(in) && in->data.len >= conf.big_bytes)
		in->data.len -= conf.big_bytes;
}

static void send_data(struct stage_rt *rt, struct job *j, const struct edge *e, int chunk, int last, const struct buf *data)
{
	struct msg *m = msg_new(M_DATA, j->id);
	m->from = rt->stage;
	m->to = e->to;
	m->chunk = chunk;
	m->last = last;
	m->visit = j->visit;
	buf_add(&m->data, data->p, data->len);
	if (is_big(m))
		serialise(m);
	if (e->carrier == C_MEMORY) {
		memory_hop(m);
		return;
	}
	m->proc = route(j, e->to);
	if (peer_lost[m->proc]) {
		msg_free(m);
		return;
	}
	if (e->data == D_POLLED) {
		put_polled(j, e, m);
		return;
	}
	if (e->data == D_ANON && rt->credits == 0) {
		m->next = NULL;
		*rt->waiting_tail = m;
		rt->waiting_tail = &m->next;
		return;
	}
	deliver(rt, e, m);
}

void send_pump(struct stage_rt *rt)
{
	while (rt->waiting && rt->credits > 0) {
		struct msg *m = rt->waiting;
		rt->waiting = m->next;
		if (!rt->waiting)
			rt->waiting_tail = &rt->waiting;
		if (cancelled_has(m->id) || peer_lost[m->proc])
			msg_free(m);
		else
			deliver(rt, config_edge(m->from, m->to), m);
	}
}

// Acknowledgements of a dead process never come: its credits return here.
void send_peer_lost(struct stage_rt *rt, int proc)
{
	peer_lost[proc] = 1;
	rt->credits += rt->owed[proc];
	rt->owed[proc] = 0;
	send_pump(rt);
}

void send_ack(const struct msg *in)
{
	struct msg *m = msg_new(M_ACK, in->id);
	m->from = in->to;
	m->to = in->from;
	m->chunk = in->chunk;
	post(m, conf.stage[in->from].procs[in->from_replica], C_UNIX, F_MAP);
}

static void send_api(struct stage_rt *rt, struct job *j, enum mtype type, int chunk, int last, const void *p, size_t n)
{
	const struct edge *e = config_edge(rt->stage, 0);
	struct msg *m = msg_new(type, j->id);
	m->from = rt->stage;
	m->chunk = chunk;
	m->last = last;
	m->visit = j->visit;
	buf_add(&m->data, p, n);
	if (e)
		post(m, 0, e->carrier, e->framing);
	else
		post(m, 0, C_UNIX, F_MAP);
}

static void filler(struct buf *b, const struct job *j, int n)
{
	static const uint8_t zeros[4096];
	char head[64];
	int len = snprintf(head, sizeof(head), "tokens=%d chunks=%d\n", j->tokens, j->chunks);
	if (b->len == 0)
		buf_add(b, head, len);
	for (; n > 0; n -= (int)sizeof(zeros))
		buf_add(b, zeros, n < (int)sizeof(zeros) ? (size_t)n : sizeof(zeros));
}

static void fan_out(struct stage_rt *rt, struct job *j, int chunk, int last, const struct buf *data)
{
	for (int i = 0; i < conf.nedges; i++)
		if (conf.edge[i].from == rt->stage && conf.edge[i].to != 0)
			send_data(rt, j, &conf.edge[i], chunk, last, data);
}

static void send_token(struct stage_rt *rt, struct job *j, int index, int final)
{
	static const char *const words[] = {"amber ", "basin ", "cedar ", "delta ", "ember ", "fjord ", "grove ", "heron "};
	const char *w = words[draw(j->id, rt->stage, index + 1000) % 8];
	send_api(rt, j, M_STREAM, index, final, w, strlen(w));
	if (!final)
		return;
	struct buf b = {0};
	filler(&b, j, conf.stage[rt->stage].svc.filler);
	if (j->chunks > 0) // 0: text only
		fan_out(rt, j, -1, 1, &b);
	buf_free(&b);
	send_api(rt, j, M_COMPLETE, -1, 1, "", 0);
}

static void wave(struct buf *b, int64_t from, int n)
{
	for (int i = 0; i < n; i++) {
		int64_t k = (from + i) % 200; // a 120 Hz triangle at 24 kHz
		int16_t v = (k < 100 ? k : 200 - k) * 200 - 10000;
		uint8_t le[2] = {(uint16_t)v & 255, (uint16_t)v >> 8};
		buf_add(b, le, 2);
	}
}

static void send_audio(struct stage_rt *rt, struct job *j)
{
	enum { REPEATED = 555 };
	int samples = conf.stage[rt->stage].svc.filler / 2;
	struct buf b = {0};
	if (conf.repeat_samples && j->chunk > 0)
		wave(&b, (int64_t)j->chunk * samples - REPEATED, REPEATED);
	wave(&b, (int64_t)j->chunk * samples, samples);
	send_api(rt, j, M_STREAM, j->chunk, j->last, b.p, b.len);
	buf_free(&b);
	if (j->last)
		send_api(rt, j, M_COMPLETE, -1, 1, "", 0);
}

void send_outputs(struct stage_rt *rt, struct output *o)
{
	struct job *j = o->job;
	const struct stage_def *s = &conf.stage[rt->stage];
	struct buf b = {0};
	switch (s->role) {
	case R_THINK:
		send_token(rt, j, o->index, o->final);
		break;
	case R_TALK:
		if (o->index == conf.drop_chunk && !o->final)
			break;
		filler(&b, j, s->svc.filler);
		fan_out(rt, j, o->index, o->final, &b);
		break;
	case R_VOCODE:
		send_audio(rt, j);
		break;
	default:
		buf_add(&b, j->payload.p, j->payload.len);
		filler(&b, j, s->svc.filler);
		fan_out(rt, j, -1, 1, &b);
	}
	buf_free(&b);
}
