// SPDX-License-Identifier: GPL-2.0
/*
 * The C side of shim/percpu.rs: per-CPU statistics.
 */

#include "bindings.h"

#include <linux/gfp.h>
#include <linux/percpu.h>

/*
 * On x86, GCC puts per-CPU pointers in a named address space and rejects a
 * direct cast to another one; a cast through an integer is allowed.
 */
static u64 __percpu *kfabric_shim_figures_percpu(const u64 *figures)
{
	return (u64 __percpu __force *)(unsigned long)figures;
}

/**
 * kfabric_shim_figures_alloc - allocate per-CPU figures, all 0
 * @count: number of figures
 *
 * Context: process, may sleep. Return: the figures, for the functions below
 * only; NULL if there is no memory.
 */
u64 *kfabric_shim_figures_alloc(u32 count)
{
	return (u64 *)(__force unsigned long)
		__alloc_percpu_gfp(count * sizeof(u64), sizeof(u64),
				   GFP_KERNEL_ACCOUNT);
}

/**
 * kfabric_shim_figures_free - free per-CPU figures
 * @figures: the result of kfabric_shim_figures_alloc()
 *
 * Context: any.
 */
void kfabric_shim_figures_free(u64 *figures)
{
	free_percpu(kfabric_shim_figures_percpu(figures));
}

/**
 * kfabric_shim_figures_add - add to a figure
 * @figure: an element of the result of kfabric_shim_figures_alloc()
 * @n: the number to add
 *
 * Context: any; accesses memory of this CPU only.
 */
void kfabric_shim_figures_add(u64 *figure, u64 n)
{
	this_cpu_add(*kfabric_shim_figures_percpu(figure), n);
}

/**
 * kfabric_shim_figures_count - add 1 to a figure and a number to the next one
 * @figure: the first of the two elements
 * @n: the number to add to the second one
 *
 * Context: any; accesses memory of this CPU only.
 */
void kfabric_shim_figures_count(u64 *figure, u64 n)
{
	this_cpu_inc(kfabric_shim_figures_percpu(figure)[0]);
	this_cpu_add(kfabric_shim_figures_percpu(figure)[1], n);
}

/**
 * kfabric_shim_figures_sum - add up a figure of all CPUs
 * @figure: an element of the result of kfabric_shim_figures_alloc()
 *
 * Context: any. Return: the sum, as it is at some moment of the call.
 */
u64 kfabric_shim_figures_sum(const u64 *figure)
{
	u64 sum = 0;
	int cpu;

	for_each_possible_cpu(cpu)
		sum += READ_ONCE(*per_cpu_ptr(kfabric_shim_figures_percpu(figure),
					      cpu));
	return sum;
}
