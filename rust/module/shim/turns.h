/* SPDX-License-Identifier: GPL-2.0 */
/*
 * What a task has its own softirqs see, as the Rust code of this module does.
 *
 * Part of bindings.h; turns.c holds the bodies and says what each needs and gives.
 */
#ifndef _KFABRIC_SHIM_TURNS_H
#define _KFABRIC_SHIM_TURNS_H

void kfabric_shim_bh_disable(void);
void kfabric_shim_bh_enable(void);
void kfabric_shim_bh_enable_with(void *turns);
void *kfabric_shim_turns(void);

/* For the KUnit suite of shim/turns.rs. */
void kfabric_shim_kunit_turns_begin(void *turns);
void kfabric_shim_kunit_turns_end(void);

#endif /* _KFABRIC_SHIM_TURNS_H */
