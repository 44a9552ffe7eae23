/* SPDX-License-Identifier: GPL-2.0 */
/* Floating point: float.c, called from atomic.c between kernel_fpu_begin() and _end(). */
#ifndef _KFABRIC_SHIM_FLOAT_H
#define _KFABRIC_SHIM_FLOAT_H

#include <linux/types.h>

/* Elements are at most two words long; a shorter one is in the low bits of the first. */
#define KFABRIC_ELEMENT_WORDS	2

#if defined(CONFIG_X86_64) && defined(CONFIG_ARCH_HAS_KERNEL_FPU_SUPPORT)
#define KFABRIC_HAS_FLOATS	1
void kfabric_float_apply(u32 op, u32 datatype, const u64 *target,
			 const u64 *operand, const u64 *compare, u64 *value);
#endif

#endif /* _KFABRIC_SHIM_FLOAT_H */
