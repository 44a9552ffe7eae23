// SPDX-License-Identifier: GPL-2.0
/*
 * The operations of atomics on floating-point numbers.
 *
 * Kbuild compiles this file, and no other, with the flags for floating point
 * (Documentation/core-api/floating-point.rst). So nothing else is here:
 * atomic.c has the calls of kernel_fpu_begin() and kernel_fpu_end(). Products
 * and sums are not contracted to one operation (-ffp-contract=off), so that a
 * result has the rounding of each.
 *
 * The rules are in rust/core/src/atomic/mod.rs. The comparisons of C are those
 * of IEEE 754: none but != holds with a NaN, and -0 equals +0.
 */

#include "float.h"

#ifdef KFABRIC_HAS_FLOATS

#include <uapi/kfabric.h>

union element {
	u64 words[KFABRIC_ELEMENT_WORDS];
	float single[2];
	double twice[2];
};

/* The new value of a real number. */
#define REAL(name, type)						\
static type name(u32 op, type target, type operand, type compare)	\
{									\
	switch (op) {							\
	case KFI_MIN:							\
		return operand < target ? operand : target;		\
	case KFI_MAX:							\
		return operand > target ? operand : target;		\
	case KFI_SUM:							\
		return target + operand;				\
	case KFI_PROD:							\
		return target * operand;				\
	case KFI_LOR:							\
		return target != 0 || operand != 0;			\
	case KFI_LAND:							\
		return target != 0 && operand != 0;			\
	case KFI_LXOR:							\
		return (target != 0) != (operand != 0);			\
	case KFI_ATOMIC_WRITE:						\
		return operand;						\
	case KFI_CSWAP:							\
		return compare == target ? operand : target;		\
	case KFI_CSWAP_NE:						\
		return compare != target ? operand : target;		\
	case KFI_CSWAP_LE:						\
		return compare <= target ? operand : target;		\
	case KFI_CSWAP_LT:						\
		return compare < target ? operand : target;		\
	case KFI_CSWAP_GE:						\
		return compare >= target ? operand : target;		\
	case KFI_CSWAP_GT:						\
		return compare > target ? operand : target;		\
	default:							\
		return target;						\
	}								\
}

/* The new value of a complex number: real and imaginary part. */
#define COMPLEX(name, type)						\
static void name(u32 op, const type *target, const type *operand,	\
		 const type *compare, type *value)			\
{									\
	bool is_true = target[0] != 0 || target[1] != 0;		\
	bool other = operand[0] != 0 || operand[1] != 0;		\
	bool equal = compare[0] == target[0] && compare[1] == target[1];\
	const type *taken = target;					\
									\
	switch (op) {							\
	case KFI_SUM:							\
		value[0] = target[0] + operand[0];			\
		value[1] = target[1] + operand[1];			\
		return;							\
	case KFI_PROD:							\
		value[0] = target[0] * operand[0] -			\
			   target[1] * operand[1];			\
		value[1] = target[0] * operand[1] +			\
			   target[1] * operand[0];			\
		return;							\
	case KFI_LOR:							\
		value[0] = is_true || other;				\
		value[1] = 0;						\
		return;							\
	case KFI_LAND:							\
		value[0] = is_true && other;				\
		value[1] = 0;						\
		return;							\
	case KFI_LXOR:							\
		value[0] = is_true != other;				\
		value[1] = 0;						\
		return;							\
	case KFI_ATOMIC_WRITE:						\
		taken = operand;					\
		break;							\
	case KFI_CSWAP:							\
		taken = equal ? operand : target;			\
		break;							\
	case KFI_CSWAP_NE:						\
		taken = equal ? target : operand;			\
		break;							\
	default:							\
		break;							\
	}								\
	value[0] = taken[0];						\
	value[1] = taken[1];						\
}

REAL(real_single, float)
REAL(real_double, double)
COMPLEX(complex_single, float)
COMPLEX(complex_double, double)

static void load(union element *to, const u64 *words)
{
	to->words[0] = words[0];
	to->words[1] = words[1];
}

/**
 * kfabric_float_apply - the new value of an element
 * @op: enum kfi_op, one that is defined for @datatype
 * @datatype: enum kfi_datatype: KFI_FLOAT, KFI_DOUBLE, or their complex types
 * @target: the bits of its old value, KFABRIC_ELEMENT_WORDS words
 * @operand: those of the operand
 * @compare: those of the value to compare with
 * @value: out: those of its new value; words that the type does not have are 0
 *
 * The caller is between kernel_fpu_begin() and kernel_fpu_end().
 */
void kfabric_float_apply(u32 op, u32 datatype, const u64 *target,
			 const u64 *operand, const u64 *compare, u64 *value)
{
	union element a, b, c, result = { .words = { 0, 0 } };

	load(&a, target);
	load(&b, operand);
	load(&c, compare);
	switch (datatype) {
	case KFI_FLOAT:
		result.single[0] = real_single(op, a.single[0], b.single[0],
					       c.single[0]);
		break;
	case KFI_DOUBLE:
		result.twice[0] = real_double(op, a.twice[0], b.twice[0],
					      c.twice[0]);
		break;
	case KFI_FLOAT_COMPLEX:
		complex_single(op, a.single, b.single, c.single, result.single);
		break;
	case KFI_DOUBLE_COMPLEX:
		complex_double(op, a.twice, b.twice, c.twice, result.twice);
		break;
	}
	value[0] = result.words[0];
	value[1] = result.words[1];
}

#endif /* KFABRIC_HAS_FLOATS */
