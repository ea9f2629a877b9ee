/* SPDX-License-Identifier: (GPL-2.0-only OR BSD-2-Clause) */
/*
 * net.h: what happens to a socket outside its owner's calls. These hooks run in whatever context
 * the packet arrives in, so "ours" means: an endpoint that a target has already used.
 */
#ifndef STAGELINE_NET_H
#define STAGELINE_NET_H

static __always_inline bool net_ours(struct sock *sk, struct sl_ep *ep)
{
	struct inode *ino = rd(rd(rd(sk, sk_socket), file), f_inode);

	if (!ino || rd(sk, sk_protocol) != IPPROTO_TCP || !recording())
		return false;
	ep->ino = rd(ino, i_ino);
	ep->dev = rd(rd(ino, i_sb), s_dev);
	ep->transport = SL_TRANSPORT_TCP;
	return stream_of(ep, SL_DIR_RECV, false) || stream_of(ep, SL_DIR_SEND, false);
}

static __always_inline void net_emit(struct sl_net *r, const struct sl_ep *ep, __u32 event)
{
	__u64 who = bpf_get_current_pid_tgid();

	r->ep = *ep;
	r->at_ns = bpf_ktime_get_ns();
	r->event = event;
	emit(&r->h, SL_KIND_NET, who >> 32, (__u32)who, sizeof(*r));
}

static __always_inline void net_state(struct sock *sk, int old, int new)
{
	struct sl_net r = {};
	struct sl_ep ep = {};

	if (!net_ours(sk, &ep))
		return;
	r.bytes = -1;
	r.old_state = old;
	r.new_state = new;
	net_emit(&r, &ep, SL_NET_STATE);
}

static __always_inline void net_data(struct sock *sk)
{
	__u16 family = rd(sk, __sk_common.skc_family);
	struct tcp_sock *tp = (void *)sk;
	struct sl_net r = {};
	struct sl_ep ep = {};

	if ((family != AF_INET && family != AF_INET6) || !net_ours(sk, &ep))
		return;
	r.bytes = (__u32)(rd(tp, rcv_nxt) - rd(tp, copied_seq));
	net_emit(&r, &ep, SL_NET_DATA);
}

#endif
