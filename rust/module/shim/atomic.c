// SPDX-License-Identifier: GPL-2.0
/*
 * Changes of the elements of atomic operations in memory.
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

#ifdef CONFIG_X86_64
/* One instruction each. The register tells the assembler the width. */
#define KFABRIC_LOGICAL(name, type)					\
static void name(void *addr, u32 op, type n)				\
{									\
	switch (op) {							\
	case KFI_BOR:							\
		asm volatile(LOCK_PREFIX "or %1, %0"			\
			     : "+m"(*(type *)addr)			\
			     : "r"(n) : "memory", "cc");		\
		break;							\
	case KFI_BAND:							\
		asm volatile(LOCK_PREFIX "and %1, %0"			\
			     : "+m"(*(type *)addr)			\
			     : "r"(n) : "memory", "cc");		\
		break;							\
	case KFI_BXOR:							\
		asm volatile(LOCK_PREFIX "xor %1, %0"			\
			     : "+m"(*(type *)addr)			\
			     : "r"(n) : "memory", "cc");		\
		break;							\
	}								\
}

KFABRIC_LOGICAL(logical_8, u8)
KFABRIC_LOGICAL(logical_16, u16)
KFABRIC_LOGICAL(logical_32, u32)
KFABRIC_LOGICAL(logical_64, u64)

static void element_logical(void *addr, size_t size, u32 op, u64 n)
{
	switch (size) {
	case 1:
		logical_8(addr, op, n);
		break;
	case 2:
		logical_16(addr, op, n);
		break;
	case 4:
		logical_32(addr, op, n);
		break;
	default:
		logical_64(addr, op, n);
		break;
	}
}

static u64 element_add(void *addr, size_t size, u64 n)
{
	switch (size) {
	case 1:
		return xadd((u8 *)addr, (u8)n);
	case 2:
		return xadd((u16 *)addr, (u16)n);
	case 4:
		return xadd((u32 *)addr, (u32)n);
	default:
		return xadd((u64 *)addr, n);
	}
}

static u64 element_exchange(void *addr, size_t size, u64 n)
{
	switch (size) {
	case 1:
		return xchg((u8 *)addr, (u8)n);
	case 2:
		return xchg((u16 *)addr, (u16)n);
	case 4:
		return xchg((u32 *)addr, (u32)n);
	default:
		return xchg((u64 *)addr, n);
	}
}
#endif

/**
 * kfabric_shim_element_at_once - change an element by one instruction
 * @addr: its address, a multiple of @size
 * @size: 1, 2, 4 or 8 bytes
 * @op: enum kfi_op
 * @n: the operand
 * @old: out: the old value, if @fetches
 * @fetches: whether the old value is needed
 *
 * For integers, and for KFI_ATOMIC_WRITE of any type. Such an instruction is
 * not repeated, whatever others do to the element. Fully ordered.
 *
 * Return: whether the CPU has an instruction for @op. If not, nothing changes.
 */
bool kfabric_shim_element_at_once(void *addr, size_t size, u32 op, u64 n,
				  u64 *old, bool fetches)
{
#ifdef CONFIG_X86_64
	switch (op) {
	case KFI_SUM:
		*old = element_add(addr, size, n);
		return true;
	case KFI_ATOMIC_WRITE:
		*old = element_exchange(addr, size, n);
		return true;
	case KFI_BOR:
	case KFI_BAND:
	case KFI_BXOR:
		/* They return no value. */
		if (fetches)
			return false;
		element_logical(addr, size, op, n);
		return true;
	}
#endif
	return false;
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
 * kfabric_shim_float_burst - try several times to change an element
 * @addr: its address, a multiple of @size
 * @size: 4 or 8 bytes
 * @op: as for kfabric_float_apply(), as the next
 * @datatype: its type
 * @operand: the operand
 * @compare: the value to compare with
 * @old: the value that it probably has; out: the one that was found last
 * @rounds: the most rounds; out: the rest, 1 less for each failed round
 *
 * Preemption is disabled for the time of @rounds.
 *
 * Return: whether a round has succeeded: @old was replaced by the new value, or
 * stays.
 */
bool kfabric_shim_float_burst(void *addr, size_t size, u32 op, u32 datatype,
			      const u64 *operand, const u64 *compare, u64 *old,
			      u32 *rounds)
{
	bool done = false;
#ifdef KFABRIC_HAS_FLOATS
	u64 target[KFABRIC_ELEMENT_WORDS] = { *old, 0 };
	u64 value[KFABRIC_ELEMENT_WORDS];

	kernel_fpu_begin();
	while (*rounds > 0 && !done) {
		kfabric_float_apply(op, datatype, target, operand, compare,
				    value);
		done = value[0] == target[0] ||
		       kfabric_shim_element_cmpxchg(addr, size, &target[0],
						    value[0]);
		if (!done)
			--*rounds;
	}
	kernel_fpu_end();
	*old = target[0];
#else
	*rounds = 0;
#endif
	return done;
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
