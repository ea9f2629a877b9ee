/* SPDX-License-Identifier: (GPL-2.0-only OR BSD-2-Clause) */
/* io.h: one record for each read- or write-like call on a socket, pipe, FIFO or eventfd. */
#ifndef STAGELINE_IO_H
#define STAGELINE_IO_H

#define MSG_PEEK 0x2
#define MSG_TRUNC 0x20
#define MSG_ERRQUEUE 0x2000
#define SOCK_DONE 1 /* bit of skc_flags: the peer's FIN has arrived */
#define EINTR 4
#define EAGAIN 11
#define ERESTARTSYS 512 /* … to 516: the kernel will restart the call, or turn this into EINTR */
#define ERESTART_RESTARTBLOCK 516
#define IOV_SCAN 8
#define BASE_SURE 32  /* sends in a row that agree on the alignment of their channel … */
#define BASE_EVERY 64 /* … after which one of so many is asked */
#define MMSG_SCAN 1024 /* UIO_MAXIOV: the kernel takes no more messages in one call */

/* Bytes captured from a call on an endpoint of which user space has said nothing yet. */
const volatile __u32 sl_capture_default = SL_CAPTURE_MAX;

struct io_buf {
	struct sl_io io;
	/* Twice the cap: offset and length are each bounded by it, their sum the verifier cannot see. */
	__u8 data[2 * SL_CAPTURE_MAX];
};

struct {
	__uint(type, BPF_MAP_TYPE_PERCPU_ARRAY);
	__uint(max_entries, 1);
	__type(key, __u32);
	__type(value, struct io_buf);
} sl_io_buf SEC(".maps");

/*
 * What a send says of the alignment of its channel: where the receiver's count stands for the first
 * byte of it. Once many in a row have said the same, few are asked: finding the peer takes a walk
 * through the kernel and a look into the table. The sender's count is taken off at exit.
 */
static __always_inline void io_base(struct sl_task *tc, struct sock *peer)
{
	struct sl_stream *own = stream_of(&tc->ep, SL_DIR_SEND, false), *to;
	struct sl_ep pe = tc->ep;

	if (own && own->agreed >= BASE_SURE && own->agreed % BASE_EVERY)
		return;
	if (peer)
		pe.ino = sock_ino(peer);
	if (!pe.ino)
		return;
	to = stream_of(&pe, SL_DIR_RECV, false);
	tc->base = (to ? to->pos : 0) + tc->queued;
	tc->io_flags = SL_IO_BASE;
}

static __always_inline void io_enter(struct sl_task *tc, __s32 fd, __u32 dir)
{
	struct file *f = file_of(fd);
	struct sock *reader = 0;

	tc->queued = -1;
	tc->base = 0;
	tc->io_flags = 0;
	if (!f || !endpoint_of(f, &tc->ep)) {
		tc->nr = SL_NR_IDLE; /* not ours */
		return;
	}
	tc->file = (__u64)f;
	if (tc->ep.transport == SL_TRANSPORT_PIPE) {
		tc->queued = pipe_queued(f);
	} else if (tc->ep.transport == SL_TRANSPORT_UNIX) {
		reader = sock_of(f);
		if (dir == SL_DIR_SEND)
			reader = unix_peer(reader);
		if (reader)
			tc->queued = unix_queued(reader);
	}
	if (dir == SL_DIR_SEND && tc->queued >= 0)
		io_base(tc, reader);
}

static __always_inline __u32 read_part(struct io_buf *b, __u32 off, __u64 src, __u64 n, __u32 want)
{
	if (off >= want)
		return off;
	if (n > want - off)
		n = want - off;
	if (n > SL_CAPTURE_MAX)
		n = SL_CAPTURE_MAX;
	off &= SL_CAPTURE_MAX - 1; /* off < want <= cap; clang drops the bound it can prove (6.18) */
	asm volatile("" : "+r"(n));
	if (n > SL_CAPTURE_MAX)
		return off;
	if (bpf_probe_read_user(b->data + off, n, (void *)src)) {
		count_loss(SL_KIND_IO, SL_LOSS_READ, n);
		return off;
	}
	return off + n;
}

static __always_inline __u32 read_iov(struct io_buf *b, __u64 iov, __u64 cnt, __u32 want)
{
	__u32 off = 0;

	for (int i = 0; i < IOV_SCAN; i++) {
		struct sl_iovec v = {};

		if (i >= cnt || off >= want)
			return off;
		if (bpf_probe_read_user(&v, sizeof(v), (void *)(iov + i * sizeof(v)))) {
			count_loss(SL_KIND_IO, SL_LOSS_READ, 0);
			return off;
		}
		if (v.len) {
			__u32 upto = read_part(b, off, v.base, v.len, want);

			if (upto == off)
				return off; /* unreadable: what follows would not be contiguous */
			off = upto;
		}
	}
	if (off < want)
		count_loss(SL_KIND_IO, SL_LOSS_TRUNC, want - off);
	return off;
}

static __always_inline __u32 read_msg(struct io_buf *b, __u64 msg, __u32 want)
{
	struct sl_msghdr m = {};

	if (bpf_probe_read_user(&m, sizeof(m), (void *)msg)) {
		count_loss(SL_KIND_IO, SL_LOSS_READ, 0);
		return 0;
	}
	return read_iov(b, m.iov, m.iovlen, want);
}

/* TCP sequence number behind the last byte that was read. A FIN takes a number as well. */
static __always_inline __u32 tcp_read_end(struct tcp_sock *tp)
{
	__u32 end = rd(tp, copied_seq);
	bool fin = rd((struct sock *)tp, __sk_common.skc_flags) & (1UL << SOCK_DONE);

	return fin && end == rd(tp, rcv_nxt) ? end - 1 : end;
}

/* Position of the first of n bytes that this call moved; advances the stream. */
static __always_inline __u64 io_position(struct sl_io *r, struct sl_stream *st, struct file *f, __u64 n)
{
	if (r->ep.transport == SL_TRANSPORT_TCP) {
		struct tcp_sock *tp = (void *)sock_of(f);
		__u32 end = r->dir == SL_DIR_SEND ? rd(tp, write_seq) : tcp_read_end(tp);

		r->flags |= SL_IO_POS_ABS;
		__sync_fetch_and_add(&st->pos, n);
		return (__u32)(end - (__u32)n);
	}
	if (r->ep.transport == SL_TRANSPORT_UNIX_DGRAM || r->ep.transport == SL_TRANSPORT_UDP)
		r->flags |= SL_IO_DGRAM;
	return __sync_fetch_and_add(&st->pos, n);
}

/* Bytes of each call on this stream to capture. */
static __always_inline __u32 io_wanted(struct sl_stream *st, const struct sl_ep *ep)
{
	__u32 gen = sl_capture_gen, *cap;

	if (st->cap_gen != gen) {
		cap = bpf_map_lookup_elem(&sl_capture, ep);
		st->cap = cap ? *cap : sl_capture_default;
		st->cap_gen = gen;
	}
	return st->cap;
}

static __always_inline __u32 io_capture(struct io_buf *b, const struct sl_regs *a, __u32 form, __u32 want, __u64 n)
{
	if (want > SL_CAPTURE_MAX)
		want = SL_CAPTURE_MAX;
	if (want > n)
		want = n;
	switch (form) {
	case SL_FORM_BUF:
		return read_part(b, 0, a->a1, want, want);
	case SL_FORM_VEC:
		return read_iov(b, a->a1, a->a2, want);
	case SL_FORM_MSG:
		return read_msg(b, a->a1, want);
	}
	return 0; /* splice, sendfile: bytes counted, never copied */
}

/* Completes what a send says of its channel, and counts how long the sends have agreed. */
static __always_inline void io_settle(struct sl_io *r, struct sl_stream *st)
{
	r->base -= r->pos;
	st->agreed = st->base == r->base ? st->agreed + 1 : 0;
	st->base = r->base;
}

static __always_inline void io_emit(const struct sl_task *tc, const struct sl_regs *a, __s32 fd, __u32 dir,
				    __u32 form, __s64 ret, __u64 id)
{
	__u64 bytes = ret > 0 ? ret : 0;
	__u32 zero = 0, cap = 0;
	struct io_buf *b = bpf_map_lookup_elem(&sl_io_buf, &zero);
	struct file *f = (struct file *)tc->file;
	struct sl_stream *st = 0;
	struct sl_io *r;

	if (!b)
		return;
	r = &b->io;
	__builtin_memset(r, 0, sizeof(*r));
	r->ep = tc->ep;
	r->enter_ns = tc->enter_ns;
	r->exit_ns = bpf_ktime_get_ns();
	r->ret = ret;
	r->queued = tc->queued;
	r->base = tc->base;
	r->flags = tc->io_flags;
	r->fd = fd;
	r->call = id;
	r->dir = dir;
	if (r->ep.transport != SL_TRANSPORT_EVENTFD) {
		st = stream_of(&r->ep, dir, true);
		if (!st) {
			count_loss(SL_KIND_IO, SL_LOSS_MAP, bytes);
			return;
		}
		announce(st, f, &r->ep, a->tgid, a->tid);
		r->pos = io_position(r, st, f, bytes);
		if (r->flags & SL_IO_BASE)
			io_settle(r, st);
		else if (st->agreed >= BASE_SURE)
			st->agreed++; /* before that a send that could not say counts for nothing */
		if (bytes)
			cap = io_capture(b, a, form, io_wanted(st, &r->ep), bytes);
	}
	if (cap > SL_CAPTURE_MAX)
		cap = SL_CAPTURE_MAX;
	r->cap = cap;
	emit(&r->h, SL_KIND_IO, a->tgid, a->tid, sizeof(*r) + cap);
}

/*
 * Sum of the lengths of the messages of sendmmsg/recvmmsg: all of them, or positions would be off.
 * Not inline: each of its ends would have the rest of the program verified anew (6.18).
 */
__attribute__((noinline)) __s64 mmsg_bytes(__u64 vec, __s64 count)
{
	__s64 sum = 0;

	for (int i = 0; i < MMSG_SCAN; i++) {
		__u32 len = 0;

		if (i >= count)
			return sum;
		if (bpf_probe_read_user(&len, sizeof(len), (void *)(vec + i * sizeof(struct sl_mmsghdr) + __builtin_offsetof(struct sl_mmsghdr, len)))) {
			count_loss(SL_KIND_IO, SL_LOSS_READ, 0);
			return sum;
		}
		sum += len;
	}
	if (count > MMSG_SCAN)
		count_loss(SL_KIND_IO, SL_LOSS_TRUNC, 0);
	return sum;
}

static __always_inline bool io_resolve(struct sl_task *tc, __s32 fd)
{
	struct file *f = file_of(fd);

	if (!f || !endpoint_of(f, &tc->ep))
		return false;
	tc->file = (__u64)f;
	tc->queued = -1;
	tc->io_flags = 0;
	return true;
}

static __always_inline __u64 recv_flags(const struct sl_regs *a, __u64 id)
{
	if (id == SYS_recvfrom || id == SYS_recvmmsg)
		return a->a3;
	return id == SYS_recvmsg ? a->a2 : 0;
}

static __always_inline void io_exit(struct sl_task *tc, struct sl_regs *a, __u32 cls, __s64 ret, __u64 id)
{
	__u32 form = cls & SL_FORM_MASK, dir = cls & SL_CLASS_RECV ? SL_DIR_RECV : SL_DIR_SEND;
	__s32 fd = a->a0;

	if (ret == -EAGAIN || ret == -EINTR || (ret == 0 && dir == SL_DIR_SEND) ||
	    (ret <= -ERESTARTSYS && ret >= -ERESTART_RESTARTBLOCK))
		return; /* nothing moved */
	if (recv_flags(a, id) & (MSG_PEEK | MSG_ERRQUEUE))
		return; /* will be read again, or never was part of the stream */
	if (recv_flags(a, id) & MSG_TRUNC)
		form = 0; /* the result may be larger than the buffer, which a stream leaves as it was */
	if (form == SL_FORM_MMSG && ret > 0)
		ret = mmsg_bytes(a->a1, ret);
	if (form == SL_FORM_SPLICE) {
		/* Two endpoints in one call: what left the first, and what entered the second. */
		if (id == SYS_splice && io_resolve(tc, fd))
			io_emit(tc, a, fd, SL_DIR_RECV, form, ret, id);
		fd = id == SYS_splice ? a->a2 : a->a0;
		if (io_resolve(tc, fd))
			io_emit(tc, a, fd, SL_DIR_SEND, form, ret, id);
		return;
	}
	io_emit(tc, a, fd, dir, form, ret, id);
}

#endif
