/* SPDX-License-Identifier: GPL-2.0 */
/*
 * Per-CPU figures: declarations for the Rust code of this module.
 *
 * Part of bindings.h; the functions are documented in percpu.c.
 */
#ifndef _KFABRIC_SHIM_PERCPU_H
#define _KFABRIC_SHIM_PERCPU_H

#include <linux/types.h>

u64 *kfabric_shim_figures_alloc(u32 count);
void kfabric_shim_figures_free(u64 *figures);
void kfabric_shim_figures_add(u64 *figures, u32 which, u64 n);
u64 kfabric_shim_figures_sum(const u64 *figures, u32 which);

#endif /* _KFABRIC_SHIM_PERCPU_H */
