// SPDX-License-Identifier: GPL-2.0
/*
 * The C side of shim/rcu.rs and shim/work.rs: wrappers of macros and inline
 * functions for XArrays, RCU and workqueues.
 */

#include "bindings.h"

#include <linux/gfp.h>
#include <linux/rcupdate.h>

/**
 * kfabric_shim_map_init - initialise a map without entries
 * @map: the map
 */
void kfabric_shim_map_init(struct xarray *map)
{
	xa_init_flags(map, XA_FLAGS_ALLOC);
}

/**
 * kfabric_shim_map_insert - insert an entry at an index
 * @map: the map
 * @index: the index
 * @entry: the entry, aligned to 4 bytes
 *
 * Context: process, may sleep.
 * Return: 0, -EBUSY if there is an entry, -ENOMEM.
 */
int kfabric_shim_map_insert(struct xarray *map, u32 index, void *entry)
{
	return xa_insert(map, index, entry, GFP_KERNEL_ACCOUNT);
}

/**
 * kfabric_shim_map_alloc - insert an entry at the next free index
 * @map: the map
 * @index: out: the index
 * @entry: the entry, aligned to 4 bytes
 * @min: the first allowed index
 * @max: the last allowed index
 * @next: in: the start of the search; out: the start of the next search
 *
 * Context: process, may sleep.
 * Return: 0, or 1 if the search has wrapped; -EBUSY if no index is free,
 * -ENOMEM.
 */
int kfabric_shim_map_alloc(struct xarray *map, u32 *index, void *entry, u32 min,
			   u32 max, u32 *next)
{
	return xa_alloc_cyclic(map, index, entry, XA_LIMIT(min, max), next,
			       GFP_KERNEL_ACCOUNT);
}

/**
 * kfabric_shim_map_find - find the next entry
 * @map: the map
 * @index: in: the first index to check; out: the index of the entry
 *
 * Context: any, in an RCU read-side section.
 * Return: the entry, or NULL.
 */
void *kfabric_shim_map_find(struct xarray *map, u32 *index)
{
	unsigned long at = *index;
	void *entry = xa_find(map, &at, U32_MAX, XA_PRESENT);

	*index = at;
	return entry;
}

/**
 * kfabric_shim_rcu_work_init - prepare work for queue_rcu_work()
 * @work: the work, on the heap
 * @run: its function
 */
void kfabric_shim_rcu_work_init(struct rcu_work *work, work_func_t run)
{
	INIT_RCU_WORK(work, run);
}

/**
 * kfabric_shim_workqueue_alloc - allocate a workqueue
 * @name: its name
 * @percpu: whether its items run on one CPU; otherwise they run on any
 * @rescuer: whether it has a thread that runs items while memory is too short
 *	to make a worker
 *
 * Items for packets run on the CPU that queues them. On another CPU on which a
 * program spins they would wait for the next tick, because a lazily preempted
 * kernel sends no interrupt for them. They have the priority of ordinary tasks,
 * because any host on the network can cause them: a flood of packets gets a
 * share of the CPU, not all of it. Functions of kernel consumers run on the CPU
 * that the consumer names.
 *
 * Items of other queues may wait for different locks that calls hold, so as
 * many may run at the same time as the kernel allows.
 *
 * A rescuer runs one item after another. So an item of a queue with a rescuer
 * waits neither for an item that needs the same rescuer, nor for I/O; else it
 * could hold up the items that free memory. There are two exceptions. Functions
 * of kernel consumers must keep to this rule themselves. Items for packets of
 * programs may wait for a lock whose holder waits for I/O, so packets of kernel
 * consumers have a queue of their own. An item flushes only queues with a
 * rescuer, as check_flush_dependency() demands.
 *
 * Context: process, may sleep.
 * Return: the queue, or NULL.
 */
struct workqueue_struct *kfabric_shim_workqueue_alloc(const char *name,
						      bool percpu, bool rescuer)
{
	unsigned int flags = rescuer ? WQ_MEM_RECLAIM : 0;

	if (percpu)
		return alloc_workqueue("%s", WQ_PERCPU | flags, 0, name);
	return alloc_workqueue("%s", WQ_UNBOUND | flags, WQ_MAX_ACTIVE, name);
}

/**
 * kfabric_shim_workqueue_flush - wait for the current items of a workqueue
 * @wq: the queue
 *
 * Context: process, may sleep; not an item of @wq.
 */
void kfabric_shim_workqueue_flush(struct workqueue_struct *wq)
{
	flush_workqueue(wq);
}
