/* SPDX-License-Identifier: GPL-2.0 */
/*
 * Figures that each CPU counts for itself, as the Rust code of this module sees
 * them.
 *
 * Part of bindings.h; percpu.c holds the bodies.
 */
#ifndef _KFABRIC_SHIM_PERCPU_H
#define _KFABRIC_SHIM_PERCPU_H

#include <linux/types.h>

u64 *kfabric_shim_figures_alloc(u32 count);
void kfabric_shim_figures_free(u64 *figures);
void kfabric_shim_figures_add(u64 *figures, u32 which, u64 n);
u64 kfabric_shim_figures_sum(const u64 *figures, u32 which);

#endif /* _KFABRIC_SHIM_PERCPU_H */
