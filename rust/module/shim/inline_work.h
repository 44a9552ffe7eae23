/* SPDX-License-Identifier: GPL-2.0 */
/*
 * What a task has its own softirqs see, as the Rust code of this module does.
 *
 * Part of bindings.h; inline_work.c holds the bodies and says what each needs and gives.
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
