/* SPDX-License-Identifier: (GPL-2.0-only OR BSD-2-Clause) */
/*
 * read.h: how the programs read kernel objects.
 *
 * What a hook is given, and the current task, may be read with plain loads, pointers in them
 * followed. A pointer that came out of an array (a descriptor's file) has lost its type: rd() gives
 * it back with bpf_rdonly_cast, which is since 6.2 and costs nothing; before that it copies with a
 * helper call, some 15 ns a field.
 */
#ifndef STAGELINE_READ_H
#define STAGELINE_READ_H

extern void *bpf_rdonly_cast(const void *obj, __u32 btf_id) __attribute__((weak, section(".ksyms")));

#define rd(p, field)                                                                             \
	({                                                                                       \
		__auto_type p_ = (p);                                                            \
		__typeof__(p_->field) v_;                                                        \
		if ((void *)bpf_rdonly_cast)                                                     \
			v_ = ((__typeof__(p_))bpf_rdonly_cast(                                   \
				      p_, bpf_core_type_id_kernel(__typeof__(*p_))))->field;     \
		else                                                                             \
			bpf_core_read(&v_, sizeof(v_), &p_->field);                              \
		v_;                                                                              \
	})

#endif
