/* SPDX-License-Identifier: GPL-2.0 */
/*
 * The list of receive work that a task passes to its softirqs.
 *
 * Part of bindings.h; the functions are documented in inline_work.c.
 */
#ifndef _KFABRIC_SHIM_INLINE_WORK_H
#define _KFABRIC_SHIM_INLINE_WORK_H

void kfabric_shim_bh_disable(void);
void kfabric_shim_bh_enable(void);
void kfabric_shim_bh_enable_with(void *list);
void *kfabric_shim_inline_list(void);

/* For the KUnit suite of shim/inline_work.rs. */
void kfabric_shim_kunit_inline_begin(void *list);
void kfabric_shim_kunit_inline_end(void);

#endif /* _KFABRIC_SHIM_INLINE_WORK_H */
