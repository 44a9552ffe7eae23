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

/* How a value compares with the target. With a NaN, nothing holds. */
struct relation {
	bool less;
	bool equal;
	bool greater;
};

/* Whether the operand is stored: all operations that compute nothing. */
static bool stores_operand(u32 op, struct relation operand,
			   struct relation compare)
{
	switch (op) {
	case KFI_MIN:
		return operand.less;
	case KFI_MAX:
		return operand.greater;
	case KFI_ATOMIC_WRITE:
		return true;
	case KFI_CSWAP:
		return compare.equal;
	case KFI_CSWAP_NE:
		return !compare.equal;
	case KFI_CSWAP_LE:
		return compare.less || compare.equal;
	case KFI_CSWAP_LT:
		return compare.less;
	case KFI_CSWAP_GE:
		return compare.greater || compare.equal;
	case KFI_CSWAP_GT:
		return compare.greater;
	default:
		return false;
	}
}

static bool is_logical(u32 op)
{
	return op == KFI_LOR || op == KFI_LAND || op == KFI_LXOR;
}

static bool logical(u32 op, bool a, bool b)
{
	switch (op) {
	case KFI_LOR:
		return a || b;
	case KFI_LAND:
		return a && b;
	default:
		return a != b;
	}
}

static float real_single(u32 op, float target, float operand, float compare)
{
	struct relation of_operand = { operand < target, operand == target,
				       operand > target };
	struct relation of_compare = { compare < target, compare == target,
				       compare > target };

	if (op == KFI_SUM)
		return target + operand;
	if (op == KFI_PROD)
		return target * operand;
	if (is_logical(op))
		return logical(op, target != 0, operand != 0);
	return stores_operand(op, of_operand, of_compare) ? operand : target;
}

static double real_double(u32 op, double target, double operand, double compare)
{
	struct relation of_operand = { operand < target, operand == target,
				       operand > target };
	struct relation of_compare = { compare < target, compare == target,
				       compare > target };

	if (op == KFI_SUM)
		return target + operand;
	if (op == KFI_PROD)
		return target * operand;
	if (is_logical(op))
		return logical(op, target != 0, operand != 0);
	return stores_operand(op, of_operand, of_compare) ? operand : target;
}

/* Complex numbers: real and imaginary part. They have no order. */
static void complex_single(u32 op, const float *a, const float *b,
			   const float *c, float *value)
{
	struct relation none = { false, false, false };
	struct relation of_compare = { false, c[0] == a[0] && c[1] == a[1],
				       false };
	bool stores = stores_operand(op, none, of_compare);

	value[0] = stores ? b[0] : a[0];
	value[1] = stores ? b[1] : a[1];
	if (op == KFI_SUM) {
		value[0] = a[0] + b[0];
		value[1] = a[1] + b[1];
	} else if (op == KFI_PROD) {
		value[0] = a[0] * b[0] - a[1] * b[1];
		value[1] = a[0] * b[1] + a[1] * b[0];
	} else if (is_logical(op)) {
		value[0] = logical(op, a[0] != 0 || a[1] != 0,
				   b[0] != 0 || b[1] != 0);
		value[1] = 0;
	}
}

static void complex_double(u32 op, const double *a, const double *b,
			   const double *c, double *value)
{
	struct relation none = { false, false, false };
	struct relation of_compare = { false, c[0] == a[0] && c[1] == a[1],
				       false };
	bool stores = stores_operand(op, none, of_compare);

	value[0] = stores ? b[0] : a[0];
	value[1] = stores ? b[1] : a[1];
	if (op == KFI_SUM) {
		value[0] = a[0] + b[0];
		value[1] = a[1] + b[1];
	} else if (op == KFI_PROD) {
		value[0] = a[0] * b[0] - a[1] * b[1];
		value[1] = a[0] * b[1] + a[1] * b[0];
	} else if (is_logical(op)) {
		value[0] = logical(op, a[0] != 0 || a[1] != 0,
				   b[0] != 0 || b[1] != 0);
		value[1] = 0;
	}
}

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
