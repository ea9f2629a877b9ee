/* SPDX-License-Identifier: (GPL-2.0-only OR BSD-2-Clause) */
/* shm.h: calls on shared-memory files (tmpfs: /dev/shm, memfd; System V segments). */
#ifndef STAGELINE_SHM_H
#define STAGELINE_SHM_H

#define TMPFS_MAGIC 0x01021994
#define MAP_SHARED_ANY 3 /* MAP_SHARED | MAP_SHARED_VALIDATE */
#define MAP_ANONYMOUS 0x20
#define ENOENT 2
#define AT_FDCWD -100

struct {
	__uint(type, BPF_MAP_TYPE_HASH);
	__uint(map_flags, BPF_F_NO_PREALLOC);
	__uint(max_entries, 65536);
	__type(key, struct sl_map_key);
	__type(value, struct sl_map_val);
} sl_maps SEC(".maps");

struct {
	__uint(type, BPF_MAP_TYPE_PERCPU_ARRAY);
	__uint(max_entries, 1);
	__type(key, __u32);
	__type(value, struct sl_shm);
} sl_shm_buf SEC(".maps");

static __always_inline struct sl_shm *shm_start(const struct sl_task *tc, __u32 op, __s64 ret)
{
	__u32 zero = 0;
	struct sl_shm *r = bpf_map_lookup_elem(&sl_shm_buf, &zero);

	if (!r)
		return 0;
	__builtin_memset(r, 0, sizeof(*r) - SL_NAME_LEN);
	r->enter_ns = tc->enter_ns;
	r->exit_ns = bpf_ktime_get_ns();
	r->op = op;
	r->ret = ret;
	r->size = -1;
	return r;
}

static __always_inline void shm_emit(struct sl_shm *r, const struct sl_regs *a)
{
	__u32 n = r->name_len;

	if (n > SL_NAME_LEN)
		n = SL_NAME_LEN;
	emit(&r->h, SL_KIND_SHM, a->tgid, a->tid, sizeof(*r) - SL_NAME_LEN + n);
}

/* False: the descriptor is not a shared-memory file. */
static __always_inline bool shm_file(struct sl_shm *r, __s32 fd)
{
	struct file *f = file_of(fd);
	struct inode *ino;
	const unsigned char *name;
	long n;

	if (!f)
		return false;
	ino = rd(f, f_inode);
	if (rd(rd(ino, i_sb), s_magic) != TMPFS_MAGIC ||
	    (rd(ino, i_mode) & S_IFMT) != 0100000)
		return false;
	r->ino = rd(ino, i_ino);
	r->dev = rd(rd(ino, i_sb), s_dev);
	name = rd(rd(f, f_path.dentry), d_name.name);
	n = bpf_probe_read_kernel_str(r->name, SL_NAME_LEN, name);
	r->name_len = n > 1 ? n - 1 : 0;
	return true;
}

/* False: the path does not lie below /dev/shm. The name is what follows that prefix. */
static __always_inline bool shm_path(struct sl_shm *r, __u64 path)
{
	char p[9] = {};
	long n;

	if (bpf_probe_read_user(p, sizeof(p), (void *)path) < 0)
		return false; /* short paths at the end of a page; none is below /dev/shm */
	if (p[0] != '/' || p[1] != 'd' || p[2] != 'e' || p[3] != 'v' || p[4] != '/' || p[5] != 's' ||
	    p[6] != 'h' || p[7] != 'm' || p[8] != '/')
		return false;
	n = bpf_probe_read_user_str(r->name, SL_NAME_LEN, (void *)(path + 9));
	r->name_len = n > 1 ? n - 1 : 0;
	return true;
}

static __always_inline void shm_map_done(struct sl_shm *r, const struct sl_regs *a, __s64 ret)
{
	struct sl_map_key k = { .addr = ret, .tgid = a->tgid };
	struct sl_map_val v = { .ino = r->ino, .dev = r->dev };

	if (ret < 0 && ret > -4096)
		return;
	if (bpf_map_update_elem(&sl_maps, &k, &v, BPF_ANY))
		count_loss(SL_KIND_SHM, SL_LOSS_MAP, 0);
}

static __always_inline bool shm_unmap(struct sl_shm *r, const struct sl_regs *a)
{
	struct sl_map_key k = { .addr = a->a0, .tgid = a->tgid };
	struct sl_map_val *v = bpf_map_lookup_elem(&sl_maps, &k);

	if (!v)
		return false;
	r->ino = v->ino;
	r->dev = v->dev;
	r->addr = a->a0;
	r->size = a->a1;
	bpf_map_delete_elem(&sl_maps, &k);
	return true;
}

static __always_inline void shm_exit(struct sl_task *tc, struct sl_regs *a, __s64 ret, __u64 id)
{
	struct sl_shm *r;
	bool ours = false;

	switch (id) {
	case SYS_open:
	case SYS_openat: {
		__u64 path = id == SYS_open ? a->a0 : a->a1;

		r = shm_start(tc, SL_SHM_OPEN, ret);
		if (!r)
			return;
		r->flags = id == SYS_open ? a->a1 : a->a2;
		ours = ret >= 0 ? shm_file(r, ret) : ret == -ENOENT && shm_path(r, path);
		break;
	}
	case SYS_ftruncate:
		r = shm_start(tc, SL_SHM_TRUNCATE, ret);
		if (!r)
			return;
		r->size = a->a1;
		ours = shm_file(r, a->a0);
		break;
	case SYS_mmap:
		if ((a->a3 & MAP_ANONYMOUS) || !(a->a3 & MAP_SHARED_ANY))
			return;
		r = shm_start(tc, SL_SHM_MAP, ret);
		if (!r)
			return;
		r->addr = ret;
		r->size = a->a1;
		r->flags = a->a2;
		ours = (a->a3 & 1) && shm_file(r, a->a4);
		if (ours)
			shm_map_done(r, a, ret);
		break;
	case SYS_munmap:
		r = shm_start(tc, SL_SHM_UNMAP, ret);
		if (!r)
			return;
		ours = shm_unmap(r, a);
		break;
	case SYS_unlink:
	case SYS_unlinkat:
		r = shm_start(tc, SL_SHM_UNLINK, ret);
		if (!r)
			return;
		ours = shm_path(r, id == SYS_unlink ? a->a0 : a->a1);
		break;
	case SYS_rename:
	case SYS_renameat:
	case SYS_renameat2:
		r = shm_start(tc, SL_SHM_RENAME, ret);
		if (!r)
			return;
		ours = shm_path(r, id == SYS_rename ? a->a0 : a->a1);
		break;
	case SYS_flock:
		r = shm_start(tc, SL_SHM_FLOCK, ret);
		if (!r)
			return;
		r->flags = a->a1;
		ours = shm_file(r, a->a0);
		break;
	case SYS_memfd_create:
		r = shm_start(tc, SL_SHM_MEMFD, ret);
		if (!r)
			return;
		ours = ret >= 0 && shm_file(r, ret);
		break;
	case SYS_shmget:
		r = shm_start(tc, SL_SHM_GET, ret);
		if (!r)
			return;
		r->size = a->a1;
		ours = true;
		break;
	case SYS_shmat:
		r = shm_start(tc, SL_SHM_ATTACH, ret);
		if (!r)
			return;
		r->addr = ret;
		r->ino = a->a0; /* System V id */
		ours = true;
		break;
	default:
		return;
	}
	if (ours)
		shm_emit(r, a);
}

#endif
