// SPDX-License-Identifier: GPL-2.0
/*
 * Atomic changes of the elements of atomics.
 *
 * All functions need process context.
 */

#include "bindings.h"
#include "float.h"

#include <linux/atomic.h>
#include <linux/spinlock.h>

#ifdef KFABRIC_HAS_FLOATS
#include <linux/fpu.h>
#endif

/* Held while an element of 16 bytes is changed. A leaf. */
static DEFINE_SPINLOCK(kfabric_pair_lock);

/**
 * kfabric_shim_element_load - read an element
 * @addr: its address, a multiple of @size
 * @size: 1, 2, 4 or 8 bytes
 *
 * Return: the element; the upper bytes are 0.
 */
u64 kfabric_shim_element_load(const void *addr, size_t size)
{
	switch (size) {
	case 1:
		return READ_ONCE(*(const u8 *)addr);
	case 2:
		return READ_ONCE(*(const u16 *)addr);
	case 4:
		return READ_ONCE(*(const u32 *)addr);
	default:
		return READ_ONCE(*(const u64 *)addr);
	}
}

/**
 * kfabric_shim_element_cmpxchg - change an element if it has a value
 * @addr: its address, a multiple of @size
 * @size: 1, 2, 4 or 8 bytes
 * @old: the value; out: the value that was found
 * @new: the new value
 *
 * Fully ordered if it changes the element.
 *
 * Return: whether it did.
 */
bool kfabric_shim_element_cmpxchg(void *addr, size_t size, u64 *old, u64 new)
{
	bool changed;
	u8 found_8 = *old;
	u16 found_16 = *old;
	u32 found_32 = *old;

	switch (size) {
	case 1:
		changed = try_cmpxchg((u8 *)addr, &found_8, (u8)new);
		*old = found_8;
		return changed;
	case 2:
		changed = try_cmpxchg((u16 *)addr, &found_16, (u16)new);
		*old = found_16;
		return changed;
	case 4:
		changed = try_cmpxchg((u32 *)addr, &found_32, (u32)new);
		*old = found_32;
		return changed;
	default:
		return try_cmpxchg((u64 *)addr, old, new);
	}
}

/**
 * kfabric_shim_has_floats - whether floating-point numbers can be computed
 *
 * Return: true if they can.
 */
bool kfabric_shim_has_floats(void)
{
#ifdef KFABRIC_HAS_FLOATS
	return kernel_fpu_available();
#else
	return false;
#endif
}

/**
 * kfabric_shim_float_apply - the new value of a floating-point element
 * @op: as for kfabric_float_apply(), as the others
 * @datatype: its type
 * @target: its old value
 * @operand: the operand
 * @compare: the value to compare with
 * @value: out: its new value; the old one if kfabric_shim_has_floats() is false
 */
void kfabric_shim_float_apply(u32 op, u32 datatype, const u64 *target,
			      const u64 *operand, const u64 *compare,
			      u64 *value)
{
#ifdef KFABRIC_HAS_FLOATS
	kernel_fpu_begin();
	kfabric_float_apply(op, datatype, target, operand, compare, value);
	kernel_fpu_end();
#else
	value[0] = target[0];
	value[1] = target[1];
#endif
}

/**
 * kfabric_shim_pair_apply - change an element of 16 bytes
 * @low: the address of its first 8 bytes, a multiple of 8
 * @high: that of its last 8 bytes, which may be on another page
 * @op: as for kfabric_float_apply(), or KFI_ATOMIC_READ
 * @datatype: KFI_DOUBLE_COMPLEX
 * @operand: the operand
 * @compare: the value to compare with
 * @old: out: its old value
 *
 * Atomic with respect to other calls. Others see each half change by itself.
 */
void kfabric_shim_pair_apply(u64 *low, u64 *high, u32 op, u32 datatype,
			     const u64 *operand, const u64 *compare, u64 *old)
{
	u64 value[KFABRIC_ELEMENT_WORDS];

	spin_lock(&kfabric_pair_lock);
	old[0] = READ_ONCE(*low);
	old[1] = READ_ONCE(*high);
	if (op != KFI_ATOMIC_READ) {
		kfabric_shim_float_apply(op, datatype, old, operand, compare,
					 value);
		if (value[0] != old[0])
			WRITE_ONCE(*low, value[0]);
		if (value[1] != old[1])
			WRITE_ONCE(*high, value[1]);
	}
	spin_unlock(&kfabric_pair_lock);
}
