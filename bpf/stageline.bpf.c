//go:build ignore

// SPDX-License-Identifier: (GPL-2.0-only OR BSD-2-Clause)
/*
 * stageline.bpf.c: the programs. Thin: each names its hook, asks "ours?", and hands over to the
 * header of its class. One object, because all classes share the target set, the ring and the
 * per-thread state, and because io and shm share the two system-call hooks.
 */
#include "kernel.h"
#include <bpf/bpf_helpers.h>
#include <bpf/bpf_endian.h>
#include <bpf/bpf_core_read.h>
#include <bpf/bpf_tracing.h>

#include "abi.h"
#include "read.h"
#include "sysno.h"
#include "filter.h"
#include "endpoint.h"
#include "io.h"
#include "shm.h"
#include "sched.h"
#include "proc.h"
#include "net.h"

/* Keeps these types in BTF, from which the Go side is generated. */
const struct sl_net *unused_net __attribute__((unused));
const struct sl_proc *unused_proc __attribute__((unused));
const struct sl_offcpu *unused_offcpu __attribute__((unused));
const struct sl_shm *unused_shm __attribute__((unused));
const struct sl_io *unused_io __attribute__((unused));
const struct sl_endpoint *unused_endpoint __attribute__((unused));
const enum sl_kind *unused_kind __attribute__((unused));
const enum sl_transport *unused_transport __attribute__((unused));
const enum sl_dir *unused_dir __attribute__((unused));
const enum sl_loss *unused_loss __attribute__((unused));
const enum sl_shm_op *unused_shm_op __attribute__((unused));
const enum sl_off_state *unused_off_state __attribute__((unused));
const enum sl_proc_event *unused_proc_event __attribute__((unused));
const enum sl_io_flag *unused_io_flag __attribute__((unused));
const enum sl_target *unused_target __attribute__((unused));
const enum sl_net_event *unused_net_event __attribute__((unused));

char LICENSE[] SEC("license") = "Dual BSD/GPL";

static __always_inline __u32 class_of(long id)
{
	return (unsigned long)id < SL_SYSCALLS ? sl_class[id & (SL_SYSCALLS - 1)] : 0;
}

static __always_inline void read_regs(struct sl_regs *a, struct pt_regs *regs, struct task_struct *cur)
{
	a->a0 = regs->di;
	a->a1 = regs->si;
	a->a2 = regs->dx;
	a->a3 = regs->r10;
	a->a4 = regs->r8;
	a->tgid = cur->tgid;
	a->tid = cur->pid;
}

SEC("tp_btf/sys_enter")
int BPF_PROG(sl_sys_enter, struct pt_regs *regs, long id)
{
	__u32 cls = class_of(id);
	struct task_struct *cur;
	struct sl_task *tc;

	if (!cls)
		return 0;
	cur = bpf_get_current_task_btf(); /* newer kernels inline this one */
	if (!is_target(cur->tgid))
		return 0;
	tc = task_ctx(cur);
	if (!tc) {
		count_loss(cls & SL_CLASS_SHM ? SL_KIND_SHM : SL_KIND_IO, SL_LOSS_STORAGE, 0);
		return 0;
	}
	tc->enter_ns = bpf_ktime_get_ns();
	tc->nr = id + 1;
	if (cls & SL_CLASS_SHM || (cls & SL_FORM_MASK) == SL_FORM_SPLICE)
		return 0;
	io_enter(tc, regs->di, cls & SL_CLASS_SEND ? SL_DIR_SEND : SL_DIR_RECV);
	return 0;
}

SEC("tp_btf/sys_exit")
int BPF_PROG(sl_sys_exit, struct pt_regs *regs, long ret)
{
	/* The number stays in orig_ax: a call that was in flight at attach is known at its exit. */
	long id = regs->orig_ax;
	__u32 cls = class_of(id);
	struct task_struct *cur;
	struct sl_regs a;
	struct sl_task *tc;

	if (!cls)
		return 0;
	cur = bpf_get_current_task_btf();
	if (!is_target(cur->tgid))
		return 0;
	tc = task_ctx(cur);
	if (!tc) {
		count_loss(cls & SL_CLASS_SHM ? SL_KIND_SHM : SL_KIND_IO, SL_LOSS_STORAGE, 0);
		return 0;
	}
	read_regs(&a, regs, cur);
	if (tc->nr != id + 1) {
		if (tc->nr != SL_NR_UNSEEN)
			return 0; /* entered, and found not to be ours */
		tc->enter_ns = 0;
		if (!(cls & SL_CLASS_SHM) && (cls & SL_FORM_MASK) != SL_FORM_SPLICE && !io_resolve(tc, a.a0))
			goto out;
	}
	if (cls & SL_CLASS_SHM)
		shm_exit(tc, &a, ret, id);
	else
		io_exit(tc, &a, cls, ret, id);
out:
	tc->nr = SL_NR_IDLE;
	return 0;
}

SEC("tp_btf/sched_switch")
int BPF_PROG(sl_sched_switch, bool preempt, struct task_struct *prev, struct task_struct *next)
{
	bool out = is_target(prev->tgid), in = is_target(next->tgid);
	__u64 now;

	if (!out && !in)
		return 0;
	now = bpf_ktime_get_ns();
	if (out)
		switch_out(prev, preempt, now);
	if (in)
		switch_in(next, now);
	return 0;
}

SEC("tp_btf/sched_waking")
int BPF_PROG(sl_sched_waking, struct task_struct *p)
{
	if (is_target(p->tgid))
		waking(p);
	return 0;
}

SEC("tp_btf/sched_process_fork")
int BPF_PROG(sl_proc_fork, struct task_struct *parent, struct task_struct *child)
{
	if (is_target(parent->tgid))
		proc_fork(parent, child);
	return 0;
}

SEC("tp_btf/sched_process_exec")
int BPF_PROG(sl_proc_exec, struct task_struct *p)
{
	if (is_target(p->tgid))
		proc_emit(p, SL_PROC_EXEC, 0);
	return 0;
}

SEC("tp_btf/sched_process_exit")
int BPF_PROG(sl_proc_exit, struct task_struct *p)
{
	if (is_target(p->tgid))
		proc_exit(p);
	return 0;
}

SEC("tp_btf/task_rename")
int BPF_PROG(sl_proc_rename, struct task_struct *p, const char *comm)
{
	if (is_target(p->tgid))
		proc_emit_comm(p, SL_PROC_RENAME, 0, comm);
	return 0;
}

SEC("tp_btf/inet_sock_set_state")
int BPF_PROG(sl_net_state, const struct sock *sk, int old, int new)
{
	net_state((struct sock *)sk, old, new);
	return 0;
}

/* Not on 6.1: an extra. */
SEC("tp_btf/sk_data_ready")
int BPF_PROG(sl_net_data, const struct sock *sk)
{
	net_data((struct sock *)sk);
	return 0;
}
