/* SPDX-License-Identifier: (GPL-2.0-only OR BSD-2-Clause) */
/* sched.h: one record for each off-CPU interval of a target thread, written when it runs again. */
#ifndef STAGELINE_SCHED_H
#define STAGELINE_SCHED_H

static __always_inline void switch_out(struct task_struct *p, bool preempt, __u64 now)
{
	struct sl_task *tc = task_ctx(p);
	struct pt_regs *regs;
	long nr;

	if (!tc) {
		count_loss(SL_KIND_OFFCPU, SL_LOSS_STORAGE, 0);
		return;
	}
	tc->out_ns = now;
	tc->wake_ns = 0;
	tc->waker_tgid = 0;
	tc->waker_tid = 0;
	tc->off_state = preempt || !p->__state ? SL_OFF_PREEMPTED : SL_OFF_SLEEP;
	regs = (void *)bpf_task_pt_regs(p);
	nr = regs->orig_ax;
	tc->off_call = nr >= 0 && nr < SL_SYSCALLS ? nr : -1; /* exceptions and interrupts: negative */
	tc->arg0 = regs->di;
	tc->arg1 = regs->si;
}

static __always_inline void switch_in(struct task_struct *p, __u64 now)
{
	struct sl_task *tc = bpf_task_storage_get(&sl_tasks, p, 0, 0);
	struct sl_offcpu r = {};

	if (!tc || !tc->out_ns)
		return; /* left the CPU before we looked */
	r.out_ns = tc->out_ns;
	r.wake_ns = tc->wake_ns;
	r.in_ns = now;
	r.arg0 = tc->arg0;
	r.arg1 = tc->arg1;
	r.waker_tgid = tc->waker_tgid;
	r.waker_tid = tc->waker_tid;
	r.call = tc->off_call;
	r.state = tc->off_state;
	tc->out_ns = 0;
	emit(&r.h, SL_KIND_OFFCPU, p->tgid, p->pid, sizeof(r));
}

/*
 * The waker is whoever runs on this CPU, which is a lie when an interrupt does the waking. Believe
 * it only from inside a call that can wake somebody.
 */
static __always_inline bool can_wake(long nr)
{
	switch (nr) {
	case SYS_write:
	case SYS_writev:
	case SYS_sendto:
	case SYS_sendmsg:
	case SYS_sendmmsg:
	case SYS_sendfile:
	case SYS_splice:
	case SYS_futex:
	case SYS_exit:
	case SYS_exit_group:
	case SYS_kill:
	case SYS_tgkill:
	case SYS_close:
	case SYS_flock:
	case SYS_read:
	case SYS_readv:
	case SYS_recvfrom:
	case SYS_recvmsg:
		return true;
	}
	return false;
}

static __always_inline void waking(struct task_struct *p)
{
	struct sl_task *tc = bpf_task_storage_get(&sl_tasks, p, 0, 0);
	struct task_struct *cur;
	struct pt_regs *regs;

	if (!tc || !tc->out_ns || tc->wake_ns)
		return;
	tc->wake_ns = bpf_ktime_get_ns();
	cur = bpf_get_current_task_btf();
	if (!cur->pid)
		return; /* idle: an interrupt */
	regs = (void *)bpf_task_pt_regs(cur);
	if (!can_wake(regs->orig_ax))
		return;
	tc->waker_tgid = cur->tgid;
	tc->waker_tid = cur->pid;
}

#endif
