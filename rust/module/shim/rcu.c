// SPDX-License-Identifier: GPL-2.0
/*
 * The C side of shim/rcu.rs and shim/work.rs: macros and inline functions around
 * XArrays, RCU and workqueues.
 */

#include "rcu.h"

#include <linux/gfp.h>
#include <linux/rcupdate.h>

/**
 * kfabric_shim_map_init - a map without entries
 * @map: the map
 */
void kfabric_shim_map_init(struct xarray *map)
{
	xa_init_flags(map, XA_FLAGS_ALLOC);
}

/**
 * kfabric_shim_map_insert - enter something at an index
 * @map: the map
 * @index: the index
 * @entry: aligned to 4 bytes
 *
 * Context: process, may sleep. Return: 0, -EBUSY there is an entry, -ENOMEM.
 */
int kfabric_shim_map_insert(struct xarray *map, u32 index, void *entry)
{
	return xa_insert(map, index, entry, GFP_KERNEL_ACCOUNT);
}

/**
 * kfabric_shim_map_alloc - enter something at the next free index
 * @map: the map
 * @index: out: the index
 * @entry: aligned to 4 bytes
 * @min: the first index that may be given
 * @max: the last
 * @next: where to begin; out: where to begin next
 *
 * Context: process, may sleep. Return: 0, or with a new round 1; -EBUSY none is
 * free, -ENOMEM.
 */
int kfabric_shim_map_alloc(struct xarray *map, u32 *index, void *entry, u32 min,
			   u32 max, u32 *next)
{
	return xa_alloc_cyclic(map, index, entry, XA_LIMIT(min, max), next,
			       GFP_KERNEL_ACCOUNT);
}

/**
 * kfabric_shim_map_find - the next entry
 * @map: the map
 * @index: the first index that is looked at; out: that of the entry
 *
 * Context: any, in an RCU read-side section. Return: the entry, or NULL.
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
 * @run: what it does
 */
void kfabric_shim_rcu_work_init(struct rcu_work *work, work_func_t run)
{
	INIT_RCU_WORK(work, run);
}

/**
 * kfabric_shim_workqueue_alloc - make a workqueue
 * @name: its name
 * @packets: whether it is for what arrives; else its items run on any CPU
 *
 * Items for what arrives run on the CPU that queues them: on another CPU on which
 * a program spins they would wait for the next tick, because a lazily preempted
 * kernel sends nobody an interrupt for their sake.  They have the priority of
 * ordinary tasks, because anybody on the network can cause them: a flood of
 * packets gets a share of the CPU, not all of it.  The queue has a thread of its
 * own for when memory is short: what is done for packets may be what gives memory
 * back.  Its items must not wait for each other.
 *
 * Items of other queues may wait for locks that system calls hold, each for
 * another one, so as many may run at the same time as the kernel allows.
 *
 * Context: process, may sleep. Return: the queue, or NULL.
 */
struct workqueue_struct *kfabric_shim_workqueue_alloc(const char *name,
						      bool packets)
{
	if (packets)
		return alloc_workqueue("%s", WQ_PERCPU | WQ_MEM_RECLAIM, 0, name);
	return alloc_workqueue("%s", WQ_UNBOUND, WQ_MAX_ACTIVE, name);
}

/**
 * kfabric_shim_workqueue_flush - wait for the items that are in a workqueue now
 * @wq: the queue
 *
 * Context: process, may sleep; not an item of @wq.
 */
void kfabric_shim_workqueue_flush(struct workqueue_struct *wq)
{
	flush_workqueue(wq);
}
