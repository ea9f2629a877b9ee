/* SPDX-License-Identifier: (GPL-2.0-only OR BSD-2-Clause) */
/* proc.h: life and death of targets. A child of a target is a target before it runs. */
#ifndef STAGELINE_PROC_H
#define STAGELINE_PROC_H

const volatile bool sl_follow = true;

static __always_inline void proc_fill(struct sl_proc *r, struct task_struct *p, __u32 event)
{
	r->at_ns = bpf_ktime_get_ns();
	r->start_ns = BPF_CORE_READ(p, group_leader, start_boottime);
	r->event = event;
	BPF_CORE_READ_STR_INTO(&r->comm, p, comm);
}

static __always_inline void proc_emit(struct task_struct *p, __u32 event, __u32 parent)
{
	struct sl_proc r = {};

	proc_fill(&r, p, event);
	r.parent = parent;
	/* What user space knows of a new process it reads from /proc: while there is one. */
	emit_at(&r.h, SL_KIND_PROC, p->tgid, p->pid, sizeof(r), event == SL_PROC_FORK || event == SL_PROC_EXEC);
}

static __always_inline void proc_emit_comm(struct task_struct *p, __u32 event, __u32 parent, const char *comm)
{
	struct sl_proc r = {};

	proc_fill(&r, p, event);
	r.parent = parent;
	bpf_probe_read_kernel_str(r.comm, sizeof(r.comm), comm);
	emit(&r.h, SL_KIND_PROC, p->tgid, p->pid, sizeof(r));
}

static __always_inline void proc_fork(struct task_struct *parent, struct task_struct *child)
{
	__u32 tgid = child->tgid, flags = SL_TARGET_FOLLOWED;

	if (child->tgid == child->pid) {
		if (!sl_follow)
			return; /* the user wants this process alone */
		if (bpf_map_update_elem(&sl_targets, &tgid, &flags, BPF_NOEXIST))
			count_loss(SL_KIND_PROC, SL_LOSS_MAP, 0);
		set_target(tgid, true);
		proc_emit(child, SL_PROC_FORK, parent->tgid);
		return;
	}
	proc_emit(child, SL_PROC_THREAD, parent->tgid);
}

static __always_inline void proc_exit(struct task_struct *p)
{
	struct sl_proc r = {};
	__u32 tgid = p->tgid;

	proc_fill(&r, p, SL_PROC_EXIT);
	r.exit_code = BPF_CORE_READ(p, exit_code);
	/* do_exit drops the count before it gets here: 0 means this was the last thread. */
	r.last = BPF_CORE_READ(p, signal, live.counter) == 0;
	if (r.last) {
		bpf_map_delete_elem(&sl_targets, &tgid);
		set_target(tgid, false);
	}
	emit(&r.h, SL_KIND_PROC, p->tgid, p->pid, sizeof(r));
}

#endif
