// SPDX-License-Identifier: GPL-2.0
/*
 * The C side of shim/percpu.rs and shim/cpu.rs: per-CPU statistics, and which
 * CPUs there are.
 */

#include "bindings.h"

#include <linux/cpumask.h>
#include <linux/gfp.h>
#include <linux/percpu.h>

/*
 * On x86, GCC puts per-CPU pointers in a named address space and rejects a
 * direct cast to another one; a cast through an integer is allowed.
 */
static u64 __percpu *kfabric_shim_percpu_ptr(const u64 *counters)
{
	return (u64 __percpu __force *)(unsigned long)counters;
}

/**
 * kfabric_shim_percpu_alloc - allocate per-CPU counters, all 0
 * @count: number of counters
 *
 * Context: process, may sleep.
 * Return: the counters, for the functions below only; NULL if there is no
 * memory.
 */
u64 *kfabric_shim_percpu_alloc(u32 count)
{
	return (u64 *)(__force unsigned long)
		__alloc_percpu_gfp(count * sizeof(u64), sizeof(u64),
				   GFP_KERNEL_ACCOUNT);
}

/**
 * kfabric_shim_percpu_free - free per-CPU counters
 * @counters: the result of kfabric_shim_percpu_alloc()
 *
 * Context: any.
 */
void kfabric_shim_percpu_free(u64 *counters)
{
	free_percpu(kfabric_shim_percpu_ptr(counters));
}

/**
 * kfabric_shim_percpu_add - add to a counter
 * @counter: an element of the result of kfabric_shim_percpu_alloc()
 * @n: the number to add
 *
 * Context: any; accesses memory of this CPU only.
 */
void kfabric_shim_percpu_add(u64 *counter, u64 n)
{
	this_cpu_add(*kfabric_shim_percpu_ptr(counter), n);
}

/**
 * kfabric_shim_percpu_count - add 1 to a counter and a number to the next one
 * @counter: the first of the two elements
 * @n: the number to add to the second one
 *
 * Context: any; accesses memory of this CPU only.
 */
void kfabric_shim_percpu_count(u64 *counter, u64 n)
{
	this_cpu_inc(kfabric_shim_percpu_ptr(counter)[0]);
	this_cpu_add(kfabric_shim_percpu_ptr(counter)[1], n);
}

/**
 * kfabric_shim_percpu_sum - add up a counter of all CPUs
 * @counter: an element of the result of kfabric_shim_percpu_alloc()
 *
 * Context: any.
 * Return: the sum, as it is at some moment of the call.
 */
u64 kfabric_shim_percpu_sum(const u64 *counter)
{
	u64 sum = 0;
	int cpu;

	for_each_possible_cpu(cpu)
		sum += READ_ONCE(*per_cpu_ptr(kfabric_shim_percpu_ptr(counter),
					      cpu));
	return sum;
}

/**
 * kfabric_shim_cpu_online - whether a CPU is online
 * @cpu: its number, or any other
 *
 * Context: any.
 * Return: true if it is.
 */
bool kfabric_shim_cpu_online(int cpu)
{
	return cpu >= 0 && cpu < nr_cpu_ids && cpu_online(cpu);
}
