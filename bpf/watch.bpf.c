//go:build ignore

// SPDX-License-Identifier: (GPL-2.0-only OR BSD-2-Clause)
/*
 * watch.bpf.c: the program behind hardware watchpoints on the flags of rings in shared memory. An
 * object of its own: it is loaded only where rings are looked into and watchpoints fire.
 *
 * It runs in the debug trap of the thread that wrote, after the write. A perf ring would do without a
 * program, but it needs a buffer for each thread and processor, cannot be inherited by new threads,
 * and does not say what the flags were.
 */
#include <linux/bpf.h>
#include <linux/bpf_perf_event.h>
#include <bpf/bpf_helpers.h>

#define SL_HIT_RING (256 << 10)

struct sl_hit {
	__u64 at_ns; /* CLOCK_MONOTONIC, after the write and before the thread goes on */
	__u64 addr;  /* that is watched, not all of which needs to have been written */
	__u64 flags; /* the 8 aligned bytes around it, after the write */
	__u64 seq;   /* of the hits of this process at this address, from 1: a gap shows a loss */
	__u32 tgid;
	__u32 tid;
};
_Static_assert(sizeof(struct sl_hit) == 40, "sl_hit");

struct sl_watched {
	__u64 addr;
	__u32 tgid;
	__u32 pad;
};
_Static_assert(sizeof(struct sl_watched) == 16, "sl_watched");

enum sl_hit_count { /* indices of sl_hit_counts */
	SL_HITS_SENT = 0,    /* handed to the ring; received = sent - full */
	SL_HITS_FULL = 1,    /* the ring was full */
	SL_HITS_NO_READ = 2, /* the flags could not be read */
	SL_HITS_MAX = 3,
};

struct {
	__uint(type, BPF_MAP_TYPE_RINGBUF);
	__uint(max_entries, SL_HIT_RING);
} sl_hits SEC(".maps");

/* Hits so far. What is not in it is no longer, or not yet, watched. */
struct {
	__uint(type, BPF_MAP_TYPE_HASH);
	__uint(max_entries, 4096);
	__type(key, struct sl_watched);
	__type(value, __u64);
} sl_watches SEC(".maps");

struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(max_entries, SL_HITS_MAX);
	__type(key, __u32);
	__type(value, __u64);
} sl_hit_counts SEC(".maps");

const struct sl_hit *unused_hit __attribute__((unused));
const enum sl_hit_count *unused_hit_count __attribute__((unused));

char LICENSE[] SEC("license") = "Dual BSD/GPL";

static __always_inline void count(__u32 what)
{
	__u64 *n = bpf_map_lookup_elem(&sl_hit_counts, &what);

	if (n)
		__sync_fetch_and_add(n, 1);
}

SEC("perf_event")
int sl_watchpoint(struct bpf_perf_event_data *ctx)
{
	struct sl_hit h = { .at_ns = bpf_ktime_get_ns(), .addr = ctx->addr };
	__u64 who = bpf_get_current_pid_tgid();
	struct sl_watched k = { .addr = h.addr, .tgid = who >> 32 };
	__u64 *seq = bpf_map_lookup_elem(&sl_watches, &k);

	if (!seq)
		return 0;
	h.seq = __sync_fetch_and_add(seq, 1) + 1;
	h.tgid = who >> 32;
	h.tid = (__u32)who;
	if (bpf_probe_read_user(&h.flags, sizeof(h.flags), (void *)(h.addr & ~7ULL))) {
		count(SL_HITS_NO_READ);
		return 0;
	}
	count(SL_HITS_SENT);
	/* No wake-up: the reader polls, and the thread is not to wait for it. */
	if (bpf_ringbuf_output(&sl_hits, &h, sizeof(h), BPF_RB_NO_WAKEUP))
		count(SL_HITS_FULL);
	return 0;
}
