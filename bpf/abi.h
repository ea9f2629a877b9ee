/* SPDX-License-Identifier: (GPL-2.0-only OR BSD-2-Clause) */
/*
 * abi.h: everything that crosses from the kernel programs to Go. Go types are generated from this
 * file by bpf2go; nothing here is mirrored by hand.
 *
 * Every record starts with struct sl_hdr. Times are bpf_ktime_get_ns (CLOCK_MONOTONIC). Padding is
 * explicit and zeroed.
 */
#ifndef STAGELINE_ABI_H
#define STAGELINE_ABI_H

#define SL_NAME_LEN 256
#define SL_SUN_LEN 108
#define SL_COMM_LEN 16
#define SL_CAPTURE_MAX 8192
#define SL_PID_MAX (4 << 20) /* PID_MAX_LIMIT of 64-bit kernels */

enum sl_kind {
	SL_KIND_ENDPOINT = 1,
	SL_KIND_IO = 2,
	SL_KIND_SHM = 3,
	SL_KIND_OFFCPU = 4,
	SL_KIND_PROC = 5,
	SL_KIND_NET = 6,
	/* 7 cuda and 8 user spans are reserved */
	SL_KIND_MAX = 9,
};

enum sl_transport { /* = run.Transport */
	SL_TRANSPORT_UNKNOWN = 0,
	SL_TRANSPORT_UNIX = 1,
	SL_TRANSPORT_UNIX_DGRAM = 2, /* SEQPACKET, too */
	SL_TRANSPORT_TCP = 3,
	SL_TRANSPORT_UDP = 4,
	SL_TRANSPORT_PIPE = 5,
	SL_TRANSPORT_EVENTFD = 6,
	SL_TRANSPORT_OTHER = 8,
};

enum sl_dir {
	SL_DIR_SEND = 1,
	SL_DIR_RECV = 2,
};

/* Why a record, or a part of one, is missing. */
enum sl_loss {
	SL_LOSS_RING = 0,     /* the ring buffer was full */
	SL_LOSS_MAP = 1,      /* a map was full: the stream or mapping could not be followed */
	SL_LOSS_READ = 2,     /* user or kernel memory could not be read */
	SL_LOSS_TRUNC = 3,    /* more iovecs or messages in one call than are looked at */
	SL_LOSS_DEBUG = 4,    /* dropped on purpose (debug setting) */
	SL_LOSS_STORAGE = 5,  /* no task storage: enter time or off-CPU start unknown */
	SL_LOSS_MAX = 8,
};

struct sl_hdr {
	__u16 kind;
	__u16 cpu;
	__u32 len; /* of the whole record, captured bytes included */
	__u32 tgid;
	__u32 tid;
};
_Static_assert(sizeof(struct sl_hdr) == 16, "sl_hdr");

/* One kernel object that bytes flow through. 'dev' tells FIFOs of several filesystems apart. */
struct sl_ep {
	__u64 ino;
	__u32 dev;
	__u32 transport;
};
_Static_assert(sizeof(struct sl_ep) == 16, "sl_ep");

/* Sent once for each endpoint, before its first io record. */
struct sl_endpoint {
	struct sl_hdr h;
	struct sl_ep ep;
	__u64 first_ns;
	__u64 peer_ino;
	__u32 netns;
	__u16 family;
	__u16 lport;
	__u16 rport;
	__u16 path_len; /* bytes of path that count; abstract names start with NUL */
	__u16 peer_path_len;
	__u16 pad;
	__u8 laddr[16];
	__u8 raddr[16];
	__u8 path[SL_SUN_LEN];
	__u8 peer_path[SL_SUN_LEN];
};
_Static_assert(sizeof(struct sl_endpoint) == 16 + 16 + 8 + 8 + 16 + 32 + 216, "sl_endpoint");

enum sl_io_flag {
	SL_IO_POS_ABS = 1, /* pos is a TCP sequence number (32 bits) */
	SL_IO_BASE = 2,    /* base is valid */
	SL_IO_DGRAM = 4,   /* one call is one datagram */
};

struct sl_io {
	struct sl_hdr h;
	struct sl_ep ep;
	__u64 enter_ns; /* 0: in flight at attach */
	__u64 exit_ns;
	__u64 pos;
	__s64 ret;
	__s64 queued; /* bytes queued towards the reader at enter, -1 unknown */
	__s64 base;   /* sends: receiver position of a byte − its sender position */
	__s32 fd;
	__u16 call;
	__u8 dir;
	__u8 flags;
	__u32 cap; /* bytes that follow */
	__u32 pad;
};
_Static_assert(sizeof(struct sl_io) == 16 + 16 + 48 + 16, "sl_io");

enum sl_shm_op { /* = run.ShmOp */
	SL_SHM_OPEN = 1,
	SL_SHM_TRUNCATE = 2,
	SL_SHM_MAP = 3,
	SL_SHM_UNMAP = 4,
	SL_SHM_UNLINK = 5,
	SL_SHM_RENAME = 6,
	SL_SHM_FLOCK = 7,
	SL_SHM_GET = 8,
	SL_SHM_ATTACH = 9,
	SL_SHM_MEMFD = 10,
};

struct sl_shm {
	struct sl_hdr h;
	__u64 enter_ns;
	__u64 exit_ns;
	__s64 ret;
	__u64 ino; /* 0 unknown */
	__u64 addr;
	__s64 size; /* -1 unknown */
	__u32 dev;
	__u32 flags;
	__u16 op;
	__u16 name_len;
	__u32 pad;
	__u8 name[SL_NAME_LEN]; /* only name_len bytes are sent */
};
_Static_assert(sizeof(struct sl_shm) == 16 + 48 + 16 + SL_NAME_LEN, "sl_shm");

enum sl_off_state { /* = run.OffState */
	SL_OFF_SLEEP = 1,
	SL_OFF_PREEMPTED = 2,
	SL_OFF_EXIT = 3,
};

struct sl_offcpu {
	struct sl_hdr h;
	__u64 out_ns;
	__u64 wake_ns; /* 0 never seen */
	__u64 in_ns;
	__u64 arg0;
	__u64 arg1;
	__u32 waker_tgid; /* 0 unknown */
	__u32 waker_tid;
	__s32 call; /* -1 none */
	__u32 state;
};
_Static_assert(sizeof(struct sl_offcpu) == 16 + 40 + 16, "sl_offcpu");

enum sl_proc_event { /* = run.ProcEvent */
	SL_PROC_FORK = 2,
	SL_PROC_THREAD = 3,
	SL_PROC_EXEC = 4,
	SL_PROC_EXIT = 5,
	SL_PROC_RENAME = 6,
};

struct sl_proc {
	struct sl_hdr h; /* tgid, tid: the new, exec'd, exiting or renamed task */
	__u64 at_ns;
	__u64 start_ns;
	__u32 event;
	__u32 parent;
	__s32 exit_code;
	__u32 last; /* exit: no thread of the process is left */
	__u8 comm[SL_COMM_LEN];
};
_Static_assert(sizeof(struct sl_proc) == 16 + 16 + 16 + 16, "sl_proc");

enum sl_net_event { /* = run.NetEvent */
	SL_NET_STATE = 1,
	SL_NET_DATA = 2,
};

struct sl_net {
	struct sl_hdr h;
	struct sl_ep ep;
	__u64 at_ns;
	__s64 bytes; /* readable after the event, -1 unknown */
	__u32 event;
	__u16 old_state;
	__u16 new_state;
};
_Static_assert(sizeof(struct sl_net) == 16 + 16 + 16 + 8, "sl_net");

/* Map values shared with user space. */

struct sl_stream_key {
	struct sl_ep ep;
	__u32 dir;
	__u32 pad;
};

struct sl_stream {
	__u64 pos;      /* bytes since first_ns */
	__u64 first_ns;
	__s64 base;     /* what the last send said; see sl_io.base */
	__u32 agreed;   /* sends in a row that said so; once it is sure, those not asked as well */
	__u32 announced;
	__u32 cap;      /* bytes of each call to capture, as of … */
	__u32 cap_gen;  /* … this value of sl_capture_gen */
};

struct sl_map_key { /* one shared mapping of a target */
	__u64 addr;
	__u32 tgid;
	__u32 pad;
};

struct sl_map_val {
	__u64 ino;
	__u32 dev;
	__u32 pad;
};

struct sl_pids {
	__u8 target[SL_PID_MAX]; /* by PID: 4 MiB, the most that 5.15 lets an entry of a table have */
};

struct sl_count {
	__u64 n;
	__u64 bytes;
	__u64 last_ns;
};

enum sl_target {
	SL_TARGET_NAMED = 1,    /* the user named it */
	SL_TARGET_FOLLOWED = 2, /* a child of a target */
};

#endif
