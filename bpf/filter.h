/* SPDX-License-Identifier: (GPL-2.0-only OR BSD-2-Clause) */
/*
 * filter.h: who is a target, what has been lost, and the one way out of the kernel.
 *
 * Rule of every program: an early return either means "not ours" or counts a loss.
 */
#ifndef STAGELINE_FILTER_H
#define STAGELINE_FILTER_H

/* Drop this many records of 1000 at the ring, to test what a loss does to the result. */
const volatile __u32 sl_debug_drop = 0;

/* So many bytes in the ring wake user space. */
const volatile __u64 sl_wake_bytes = 16 << 20;
#define WAKE_LOOK 64

struct {
	__uint(type, BPF_MAP_TYPE_RINGBUF);
	__uint(max_entries, 64 << 20);
} sl_events SEC(".maps");

struct {
	__uint(type, BPF_MAP_TYPE_HASH);
	__uint(max_entries, 16384);
	__type(key, __u32); /* tgid */
	__type(value, __u32);
} sl_targets SEC(".maps");

/*
 * The same set again. Every system call that may carry data, every switch and every wake-up of the
 * host asks it, and a look into a hash costs 40 ns.
 */
struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(map_flags, BPF_F_MMAPABLE);
	__uint(max_entries, 1);
	__type(key, __u32);
	__type(value, struct sl_pids);
} sl_target_pids SEC(".maps");

/* 0: no program records, whatever the targets are. */
__u32 sl_on;

/* Losses by record class and reason: index kind * SL_LOSS_MAX + reason. */
struct {
	__uint(type, BPF_MAP_TYPE_PERCPU_ARRAY);
	__uint(max_entries, SL_KIND_MAX * SL_LOSS_MAX);
	__type(key, __u32);
	__type(value, struct sl_count);
} sl_losses SEC(".maps");

/* A counter of losses moved since user space last cleared this: it looks at them only then. */
__u32 sl_lost;

/* Records handed to the ring, by class: sent = received + counted losses. */
struct {
	__uint(type, BPF_MAP_TYPE_PERCPU_ARRAY);
	__uint(max_entries, SL_KIND_MAX);
	__type(key, __u32);
	__type(value, struct sl_count);
} sl_sent SEC(".maps");

/* What one thread is doing: the call it is in and the off-CPU interval it is in. */
struct sl_task {
	struct sl_ep ep; /* endpoint of the io call in flight */
	__u64 enter_ns;
	__u64 file; /* struct file of the io call */
	__s64 queued;
	__s64 base;
	__s32 nr; /* call in flight + 1, SL_NR_UNSEEN or SL_NR_IDLE */
	__u32 io_flags;
	__u64 out_ns;
	__u64 wake_ns;
	__u64 arg0;
	__u64 arg1;
	__u32 waker_tgid;
	__u32 waker_tid;
	__s32 off_call;
	__u32 off_state;
};

struct {
	__uint(type, BPF_MAP_TYPE_TASK_STORAGE);
	__uint(map_flags, BPF_F_NO_PREALLOC);
	__type(key, int);
	__type(value, struct sl_task);
} sl_tasks SEC(".maps");

static __always_inline bool is_target(__u32 tgid)
{
	__u32 zero = 0;
	struct sl_pids *p = bpf_map_lookup_elem(&sl_target_pids, &zero);

	return p && p->target[tgid & (SL_PID_MAX - 1)] && sl_on; /* read for targets alone: free for others */
}

static __always_inline bool recording(void)
{
	return sl_on;
}

static __always_inline void set_target(__u32 tgid, bool on)
{
	__u32 zero = 0;
	struct sl_pids *p = bpf_map_lookup_elem(&sl_target_pids, &zero);

	if (p)
		p->target[tgid & (SL_PID_MAX - 1)] = on;
}

static __always_inline void count_loss(__u32 kind, __u32 reason, __u64 bytes)
{
	__u32 i = kind * SL_LOSS_MAX + reason;
	struct sl_count *c = bpf_map_lookup_elem(&sl_losses, &i);

	if (!c)
		return;
	__sync_fetch_and_add(&c->n, 1);
	__sync_fetch_and_add(&c->bytes, bytes);
	c->last_ns = bpf_ktime_get_ns();
	if (!sl_lost) /* one store: sl_on, which every event reads, lies beside it */
		sl_lost = 1; /* after the count: who clears this and then reads misses none */
}

/*
 * A wake-up for each record would preempt the process under test: user space polls, at intervals in
 * which a ring may fill. How full it is takes as long to ask as a look into a table: every WAKE_LOOK
 * records of a class on a processor are enough.
 */
static __always_inline __u64 wake_flag(__u64 nth)
{
	if (nth % WAKE_LOOK || bpf_ringbuf_query(&sl_events, BPF_RB_AVAIL_DATA) < sl_wake_bytes)
		return BPF_RB_NO_WAKEUP;
	return BPF_RB_FORCE_WAKEUP;
}

/*
 * Fills the header and sends the record; now: user space is to look at it at once. False: it was
 * lost, and counted.
 */
static __always_inline bool emit_at(struct sl_hdr *h, __u32 kind, __u32 tgid, __u32 tid, __u64 size, bool now)
{
	struct sl_count *c;
	__u64 nth = 0;

	h->kind = kind;
	h->cpu = bpf_get_smp_processor_id();
	h->len = size;
	h->tgid = tgid;
	h->tid = tid;
	c = bpf_map_lookup_elem(&sl_sent, &kind);
	if (c)
		nth = __sync_fetch_and_add(&c->n, 1);
	if (sl_debug_drop && kind != SL_KIND_ENDPOINT &&
	    bpf_get_prandom_u32() % 1000 < sl_debug_drop) {
		count_loss(kind, SL_LOSS_DEBUG, size);
		return false;
	}
	if (bpf_ringbuf_output(&sl_events, h, size, now ? BPF_RB_FORCE_WAKEUP : wake_flag(nth))) {
		count_loss(kind, SL_LOSS_RING, size);
		return false;
	}
	return true;
}

static __always_inline bool emit(struct sl_hdr *h, __u32 kind, __u32 tgid, __u32 tid, __u64 size)
{
	return emit_at(h, kind, tgid, tid, size, false);
}

static __always_inline struct sl_task *task_ctx(struct task_struct *t)
{
	return bpf_task_storage_get(&sl_tasks, t, 0, BPF_LOCAL_STORAGE_GET_F_CREATE);
}

#endif
