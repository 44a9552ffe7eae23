/* SPDX-License-Identifier: GPL-2.0 */
/*
 * Look-ups without a lock, and workqueues: declarations for the Rust code of
 * this module.
 *
 * Part of bindings.h; the functions are documented in rcu.c.
 */
#ifndef _KFABRIC_SHIM_RCU_H
#define _KFABRIC_SHIM_RCU_H

#include <linux/types.h>
#include <linux/workqueue.h>
#include <linux/xarray.h>

void kfabric_shim_map_init(struct xarray *map);
int kfabric_shim_map_insert(struct xarray *map, u32 index, void *entry);
int kfabric_shim_map_alloc(struct xarray *map, u32 *index, void *entry, u32 min,
			   u32 max, u32 *next);
void *kfabric_shim_map_find(struct xarray *map, u32 *index);

void kfabric_shim_rcu_work_init(struct rcu_work *work, work_func_t run);
struct workqueue_struct *kfabric_shim_workqueue_alloc(const char *name,
						      bool packets);
void kfabric_shim_workqueue_flush(struct workqueue_struct *wq);

#endif /* _KFABRIC_SHIM_RCU_H */
