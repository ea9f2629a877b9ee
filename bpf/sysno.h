/* SPDX-License-Identifier: (GPL-2.0-only OR BSD-2-Clause) */
/* sysno.h: x86-64 system calls that carry data or touch shared memory, and their argument forms. */
#ifndef STAGELINE_SYSNO_H
#define STAGELINE_SYSNO_H

#define SYS_read 0
#define SYS_write 1
#define SYS_open 2
#define SYS_mmap 9
#define SYS_munmap 11
#define SYS_readv 19
#define SYS_writev 20
#define SYS_shmget 29
#define SYS_shmat 30
#define SYS_sendfile 40
#define SYS_sendto 44
#define SYS_recvfrom 45
#define SYS_sendmsg 46
#define SYS_recvmsg 47
#define SYS_flock 73
#define SYS_ftruncate 77
#define SYS_rename 82
#define SYS_unlink 87
#define SYS_futex 202
#define SYS_exit 60
#define SYS_exit_group 231
#define SYS_kill 62
#define SYS_tgkill 234
#define SYS_openat 257
#define SYS_unlinkat 263
#define SYS_renameat 264
#define SYS_splice 275
#define SYS_recvmmsg 299
#define SYS_sendmmsg 307
#define SYS_renameat2 316
#define SYS_memfd_create 319
#define SYS_preadv2 327
#define SYS_pwritev2 328
#define SYS_close 3

#define SL_FORM_MASK 0x0f
#define SL_FORM_BUF 1    /* fd, buf, len */
#define SL_FORM_VEC 2    /* fd, iovec, count */
#define SL_FORM_MSG 3    /* fd, msghdr */
#define SL_FORM_MMSG 4   /* fd, mmsghdr, count */
#define SL_FORM_SPLICE 5 /* two descriptors, no bytes in user space */
#define SL_CLASS_SEND 0x10
#define SL_CLASS_RECV 0x20
#define SL_CLASS_SHM 0x40

#define SL_SYSCALLS 512

/* sl_task.nr when no call is in flight: never entered since attach, or left. */
#define SL_NR_UNSEEN 0
#define SL_NR_IDLE -1

static const __u8 sl_class[SL_SYSCALLS] = {
	[SYS_read] = SL_CLASS_RECV | SL_FORM_BUF,
	[SYS_write] = SL_CLASS_SEND | SL_FORM_BUF,
	[SYS_readv] = SL_CLASS_RECV | SL_FORM_VEC,
	[SYS_writev] = SL_CLASS_SEND | SL_FORM_VEC,
	[SYS_preadv2] = SL_CLASS_RECV | SL_FORM_VEC, /* with offset -1 as readv */
	[SYS_pwritev2] = SL_CLASS_SEND | SL_FORM_VEC,
	[SYS_sendto] = SL_CLASS_SEND | SL_FORM_BUF,
	[SYS_recvfrom] = SL_CLASS_RECV | SL_FORM_BUF,
	[SYS_sendmsg] = SL_CLASS_SEND | SL_FORM_MSG,
	[SYS_recvmsg] = SL_CLASS_RECV | SL_FORM_MSG,
	[SYS_sendmmsg] = SL_CLASS_SEND | SL_FORM_MMSG,
	[SYS_recvmmsg] = SL_CLASS_RECV | SL_FORM_MMSG,
	[SYS_sendfile] = SL_CLASS_SEND | SL_FORM_SPLICE,
	[SYS_splice] = SL_CLASS_SEND | SL_FORM_SPLICE,
	[SYS_open] = SL_CLASS_SHM,
	[SYS_openat] = SL_CLASS_SHM,
	[SYS_ftruncate] = SL_CLASS_SHM,
	[SYS_mmap] = SL_CLASS_SHM,
	[SYS_munmap] = SL_CLASS_SHM,
	[SYS_unlink] = SL_CLASS_SHM,
	[SYS_unlinkat] = SL_CLASS_SHM,
	[SYS_rename] = SL_CLASS_SHM,
	[SYS_renameat] = SL_CLASS_SHM,
	[SYS_renameat2] = SL_CLASS_SHM,
	[SYS_flock] = SL_CLASS_SHM,
	[SYS_memfd_create] = SL_CLASS_SHM,
	[SYS_shmget] = SL_CLASS_SHM,
	[SYS_shmat] = SL_CLASS_SHM,
};

/* Arguments of a call and who made it. */
struct sl_regs {
	__u64 a0, a1, a2, a3, a4;
	__u32 tgid, tid;
};

#endif
