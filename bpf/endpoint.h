/* SPDX-License-Identifier: (GPL-2.0-only OR BSD-2-Clause) */
/* endpoint.h: from a file descriptor to the kernel object behind it. */
#ifndef STAGELINE_ENDPOINT_H
#define STAGELINE_ENDPOINT_H

#define S_IFMT 0170000
#define S_IFSOCK 0140000
#define S_IFIFO 0010000
#define AF_UNIX 1
#define AF_INET 2
#define AF_INET6 10
#define SOCK_STREAM 1
#define SOCK_DGRAM 2
#define SOCK_SEQPACKET 5
#define IPPROTO_TCP 6
#define IPPROTO_UDP 17
#define PIPE_SCAN 16 /* default ring of a pipe; fuller ones: queued unknown */
#define UNIX_SCAN 16 /* buffers of a unix socket's queue; longer ones: queued unknown */

/*
 * Nothing tells us that a socket is gone, so the table forgets the streams that were used longest
 * ago. One that comes back after that starts at position 0, which user space recognises.
 */
struct {
	__uint(type, BPF_MAP_TYPE_LRU_HASH);
	__uint(max_entries, 65536);
	__type(key, struct sl_stream_key);
	__type(value, struct sl_stream);
} sl_streams SEC(".maps");

/* Bytes of each call to capture, set by user space once it knows the protocol; absent = default. */
struct {
	__uint(type, BPF_MAP_TYPE_LRU_HASH);
	__uint(max_entries, 32768);
	__type(key, struct sl_ep);
	__type(value, __u32);
} sl_capture SEC(".maps");

/* Counts the changes of sl_capture: a stream looks there only after one. Written by user space. */
__u32 sl_capture_gen = 1;

/* What makes a file an eventfd, once one has been seen. */
__u64 sl_eventfd_ops;

struct {
	__uint(type, BPF_MAP_TYPE_PERCPU_ARRAY);
	__uint(max_entries, 1);
	__type(key, __u32);
	__type(value, struct sl_endpoint);
} sl_endpoint_buf SEC(".maps");

static __always_inline struct file *file_of(__s32 fd)
{
	struct fdtable *fdt = bpf_get_current_task_btf()->files->fdt;
	struct file *f = 0;

	if (fd < 0 || (__u32)fd >= fdt->max_fds)
		return 0;
	if (bpf_probe_read_kernel(&f, sizeof(f), &fdt->fd[fd]))
		return 0;
	return f;
}

/*
 * An eventfd has no inode of its own: the first one is known by the name of its anonymous dentry,
 * the others by their operations, which are the same.
 */
static __always_inline bool is_eventfd(struct file *f)
{
	__u64 ops = (__u64)rd(f, f_op);
	const unsigned char *name;
	char buf[10] = {};

	if (sl_eventfd_ops)
		return ops == sl_eventfd_ops;
	name = rd(rd(f, f_path.dentry), d_name.name);
	bpf_probe_read_kernel(buf, sizeof(buf), name);
	if (buf[0] != '[' || buf[1] != 'e' || buf[2] != 'v' || buf[3] != 'e' || buf[4] != 'n' ||
	    buf[5] != 't' || buf[6] != 'f' || buf[7] != 'd' || buf[8] != ']')
		return false;
	sl_eventfd_ops = ops;
	return true;
}

static __always_inline struct sock *sock_of(struct file *f)
{
	struct socket *s = rd(f, private_data);

	return rd(s, sk);
}

/* By protocol: an MPTCP socket is a stream too, but no tcp_sock. */
static __always_inline __u32 inet_transport(struct sock *sk, __u16 family)
{
	__u16 protocol = rd(sk, sk_protocol);

	if (family != AF_INET && family != AF_INET6)
		return SL_TRANSPORT_OTHER;
	if (protocol == IPPROTO_TCP)
		return SL_TRANSPORT_TCP;
	return protocol == IPPROTO_UDP ? SL_TRANSPORT_UDP : SL_TRANSPORT_OTHER;
}

/* False: not an endpoint (regular file, device, timer, …). */
static __always_inline bool endpoint_of(struct file *f, struct sl_ep *ep)
{
	struct inode *ino = rd(f, f_inode);
	__u16 mode = rd(ino, i_mode) & S_IFMT;

	ep->ino = rd(ino, i_ino);
	ep->dev = rd(rd(ino, i_sb), s_dev);
	if (mode == S_IFIFO) {
		ep->transport = SL_TRANSPORT_PIPE;
		return true;
	}
	if (mode == S_IFSOCK) {
		struct sock *sk = sock_of(f);
		__u16 family = rd(sk, __sk_common.skc_family);
		__u16 type = rd(sk, sk_type);

		/* SEQPACKET keeps the borders of messages and drops what a buffer cannot hold: no stream. */
		if (family == AF_UNIX)
			ep->transport = type == SOCK_DGRAM || type == SOCK_SEQPACKET ? SL_TRANSPORT_UNIX_DGRAM : SL_TRANSPORT_UNIX;
		else
			ep->transport = inet_transport(sk, family);
		return true;
	}
	if (mode == 0 && is_eventfd(f)) {
		struct eventfd_ctx *e = rd(f, private_data);

		ep->ino = rd(e, id);
		ep->dev = 0;
		ep->transport = SL_TRANSPORT_EVENTFD;
		return true;
	}
	return false;
}

static __always_inline struct sock *unix_peer(struct sock *sk)
{
	return rd((struct unix_sock *)sk, peer);
}

/* Inode of the socket that owns sk; 0 while it waits to be accepted. */
static __always_inline __u64 sock_ino(struct sock *sk)
{
	return rd(rd(rd(rd(sk, sk_socket), file), f_inode), i_ino);
}

/*
 * The reader's queue, added up without its lock: -1 when it is longer than is looked at, or when it
 * changed on the way. A change that leaves no trace makes one wrong number, which user space outvotes.
 */
static __always_inline __s64 unix_walk(struct sock *reader)
{
	__u64 head = (__u64)reader + bpf_core_field_offset(struct sock, sk_receive_queue);
	struct sk_buff *first = rd(reader, sk_receive_queue.next), *skb = first;
	__u32 n = rd(reader, sk_receive_queue.qlen);
	__s64 sum = 0;

	if (n > UNIX_SCAN)
		return -1;
	for (int i = 0; i < UNIX_SCAN; i++) {
		struct unix_skb_parms *p;

		if (i == n || !skb || (__u64)skb == head)
			break;
		p = (void *)((__u64)skb + bpf_core_field_offset(struct sk_buff, cb));
		sum += rd(skb, len) - rd(p, consumed);
		skb = rd(skb, next);
	}
	if ((__u64)skb != head || rd(reader, sk_receive_queue.next) != first ||
	    rd(reader, sk_receive_queue.qlen) != n)
		return -1;
	return sum;
}

/* Kernels keep the sum themselves since 6.17. */
static __always_inline __s64 unix_queued(struct sock *reader)
{
	if (!bpf_core_field_exists(((struct unix_sock *)0)->inq_len))
		return unix_walk(reader);
	return rd((struct unix_sock *)reader, inq_len);
}

static __always_inline __s64 pipe_queued(struct file *f)
{
	struct pipe_inode_info *p = rd(f, private_data);
	__u32 head = rd(p, head), tail = rd(p, tail);
	__u32 mask = rd(p, ring_size) - 1;
	struct pipe_buffer *bufs = rd(p, bufs);
	__u64 size = bpf_core_type_size(struct pipe_buffer);
	__s64 sum = 0;

	if (head - tail > PIPE_SCAN)
		return -1;
	for (int i = 0; i < PIPE_SCAN; i++) {
		struct pipe_buffer *b;

		if (tail + i == head)
			break;
		b = (void *)bufs + ((tail + i) & mask) * size;
		sum += rd(b, len);
	}
	return sum;
}

static __always_inline __u16 read_sun(struct sock *sk, __u8 *to)
{
	struct unix_address *a = rd((struct unix_sock *)sk, addr);
	__u64 len;

	if (!a)
		return 0;
	len = (__u32)rd(a, len) - 2; /* minus the family */
	asm volatile("" : "+r"(len)); /* keeps the bound below in the register that is passed (6.18) */
	if (len > SL_SUN_LEN)
		return 0;
	bpf_probe_read_kernel(to, len, (void *)&a->name[0].sun_path);
	return len;
}

static __always_inline void fill_inet(struct sl_endpoint *r, struct sock *sk)
{
	r->lport = rd(sk, __sk_common.skc_num);
	r->rport = bpf_ntohs(rd(sk, __sk_common.skc_dport));
	if (r->family == AF_INET) {
		__u32 a = rd(sk, __sk_common.skc_rcv_saddr);

		__builtin_memcpy(r->laddr, &a, 4);
		a = rd(sk, __sk_common.skc_daddr);
		__builtin_memcpy(r->raddr, &a, 4);
	} else {
		BPF_CORE_READ_INTO((struct in6_addr *)r->laddr, sk, __sk_common.skc_v6_rcv_saddr);
		BPF_CORE_READ_INTO((struct in6_addr *)r->raddr, sk, __sk_common.skc_v6_daddr);
	}
}

/*
 * Describes an endpoint to user space. A unix peer that has not been accepted yet has no inode:
 * such an endpoint is announced again by a later call (2 = incomplete).
 */
static __always_inline void announce(struct sl_stream *st, struct file *f, const struct sl_ep *ep,
				     __u32 tgid, __u32 tid)
{
	__u32 zero = 0, done = 1;
	struct sl_endpoint *r = bpf_map_lookup_elem(&sl_endpoint_buf, &zero);
	struct sock *sk, *peer;

	if (!r || st->announced == 1)
		return;
	__builtin_memset(r, 0, sizeof(*r));
	r->ep = *ep;
	r->first_ns = st->first_ns;
	if (ep->transport != SL_TRANSPORT_PIPE) {
		sk = sock_of(f);
		r->family = rd(sk, __sk_common.skc_family);
		r->netns = rd(rd(sk, __sk_common.skc_net.net), ns.inum);
		if (r->family == AF_UNIX) {
			r->path_len = read_sun(sk, r->path);
			peer = unix_peer(sk);
			if (peer) {
				r->peer_ino = sock_ino(peer);
				r->peer_path_len = read_sun(peer, r->peer_path);
			}
			if (!r->peer_ino)
				done = 2;
		} else if (r->family == AF_INET || r->family == AF_INET6) {
			fill_inet(r, sk);
		}
	}
	if (done == 2 && st->announced == 2)
		return;
	if (emit(&r->h, SL_KIND_ENDPOINT, tgid, tid, sizeof(*r)))
		st->announced = done;
}

static __always_inline struct sl_stream *stream_of(const struct sl_ep *ep, __u32 dir, bool create)
{
	struct sl_stream_key k = { .ep = *ep, .dir = dir };
	struct sl_stream *st = bpf_map_lookup_elem(&sl_streams, &k);
	struct sl_stream fresh = {};

	if (st || !create)
		return st;
	fresh.first_ns = bpf_ktime_get_ns();
	bpf_map_update_elem(&sl_streams, &k, &fresh, BPF_NOEXIST);
	return bpf_map_lookup_elem(&sl_streams, &k);
}

#endif
