/* SPDX-License-Identifier: GPL-2.0 */
/*
 * The C declarations that the Rust code of this module uses.
 *
 * bindgen generates bindings from this header (see Kbuild): the structures and
 * constants of <uapi/kfabric.h>, and the functions below. Types of the kernel
 * are those of the kernel crate's bindings.
 *
 * A function is here only if Rust cannot use the kernel's own: a macro, an
 * inline function, or a header that the kernel crate does not bind. Most bodies
 * are a line or two. They are in shim.c, unless a comment names another file.
 */
#ifndef _KFABRIC_SHIM_BINDINGS_H
#define _KFABRIC_SHIM_BINDINGS_H

#include <linux/types.h>
#include <linux/workqueue.h>
#include <linux/xarray.h>
#include <uapi/kfabric.h>

#include "net.h"
#include "skb.h"
#include "trace.h"
#include "udp.h"

struct dma_buf;
struct file;
struct file_operations;
struct mm_struct;
struct page;
struct scatterlist;
struct task_struct;
struct timer_list;
struct user_struct;
struct wait_queue_head;

/* Sleeping and waking: shim/wait.rs, shim/sched.rs. */
void kfabric_shim_set_interruptible(void);
void kfabric_shim_set_uninterruptible(void);
void kfabric_shim_set_running(void);
void kfabric_shim_wake(u64 *state, u64 value, struct task_struct *task);
bool kfabric_shim_sleep_until(u64 deadline);
bool kfabric_shim_has_sleeper(struct wait_queue_head *head);
void kfabric_shim_cond_resched(void);
int kfabric_shim_pause_until(u64 until);
bool kfabric_shim_fatal_signal_pending(void);
int kfabric_shim_nice(void);
void kfabric_shim_set_nice(int nice);

/* Scopes of allocations: shim/reclaim.rs. */
unsigned int kfabric_shim_noio_save(void);
void kfabric_shim_noio_restore(unsigned int flags);

/* Timers: shim/deadline.rs. */
void kfabric_shim_deadline_init(struct timer_list *timer,
				void (*expired)(struct timer_list *timer));
void kfabric_shim_deadline_start(struct timer_list *timer, u32 msecs);
void kfabric_shim_deadline_end(struct timer_list *timer);

/* Hashes with a secret key: shim/random.rs. */
u64 kfabric_shim_siphash(const u64 *key, const u64 *words);

/* User memory: shim/user.rs. */
void kfabric_shim_pagefault_disable(void);
void kfabric_shim_pagefault_enable(void);
bool kfabric_shim_clear_user(const void *addr, size_t len);
bool kfabric_shim_get_words(void *dst, const void *src, size_t words);
bool kfabric_shim_put_words(void *dst, const void *src, size_t words);
bool kfabric_shim_get_bytes(u8 *dst, const u8 *src, size_t len);
int kfabric_shim_copy_struct_from_user(void *dst, size_t ksize,
				       const void *src, size_t usize);

/* Files: shim/anon_file.rs. */
struct file *kfabric_shim_anon_file(const char *name,
				    const struct file_operations *fops,
				    void *priv);

/* Principals, control groups and charges: shim/cred.rs. */
bool kfabric_shim_may_exceed_limits(void);
u32 kfabric_shim_namespace_owners(kuid_t *owners, u32 max);
u64 kfabric_shim_user_ns_current(void);
bool kfabric_shim_is_current(kuid_t uid, u64 user_ns, const void *memcg);
void *kfabric_shim_memcg_current(void);
void kfabric_shim_memcg_put(void *memcg);
void *kfabric_shim_memcg_enter(void *memcg);
void *kfabric_shim_buffer_alloc(size_t len, bool may_sleep);
void *kfabric_shim_message_alloc(size_t len);
void kfabric_shim_buffer_free(void *buffer);
int kfabric_shim_charge(unsigned long pages, struct user_struct **user,
			struct mm_struct **mm);
void kfabric_shim_uncharge(unsigned long pages, struct user_struct *user,
			   struct mm_struct *mm);

/* Memory: mem/. */
void *kfabric_shim_page_address(struct page *page);
int kfabric_shim_mark_dirty(struct page *page);
void kfabric_shim_unpin(struct page *page, unsigned long count, bool written);
struct page *kfabric_shim_virt_to_page(void *addr);
void kfabric_shim_copy(void *dst, const void *src, size_t len);
void kfabric_shim_fill(void *dst, u8 byte, size_t len);
bool kfabric_shim_equal(const void *a, const void *b, size_t len);

/* Elements of atomics: atomic.c; mem/atomic.rs. */
u64 kfabric_shim_element_load(const void *addr, size_t size);
bool kfabric_shim_element_cmpxchg(void *addr, size_t size, u64 *old, u64 new);
bool kfabric_shim_element_at_once(void *addr, size_t size, u32 op, u64 n,
				  u64 *old, bool fetches);
bool kfabric_shim_has_floats(void);
void kfabric_shim_float_apply(u32 op, u32 datatype, const u64 *target,
			      const u64 *operand, const u64 *compare,
			      u64 *value);
bool kfabric_shim_float_burst(void *addr, size_t size, u32 op, u32 datatype,
			      const u64 *operand, const u64 *compare, u64 *old,
			      u32 *rounds);
void kfabric_shim_pair_apply(u64 *low, u64 *high, u32 op, u32 datatype,
			     const u64 *operand, const u64 *compare, u64 *old);

/* Memory of kernel consumers: memory.c; mem/consumer.rs. */
bool kfabric_shim_is_memory(unsigned long addr);
bool kfabric_shim_on_stack(unsigned long first, unsigned long last);
int kfabric_shim_page_check(void *addr);
bool kfabric_shim_page_get(void *addr);
void kfabric_shim_page_put(void *addr);
struct scatterlist *kfabric_shim_sg(struct scatterlist *sg, struct page **page,
				    size_t *offset, size_t *len);

/* DMA-BUFs: memory.c; mem/dma_buf.rs. */
int kfabric_shim_dma_buf_get(int fd, struct dma_buf **dmabuf, size_t *size);
void kfabric_shim_dma_buf_put(struct dma_buf *dmabuf);
int kfabric_shim_dma_buf_map(struct dma_buf *dmabuf, size_t end, bool write,
			     void **addr, size_t *size);
void kfabric_shim_dma_buf_unmap(struct dma_buf *dmabuf, void *addr);
int kfabric_shim_dma_buf_begin(struct dma_buf *dmabuf, bool write);
int kfabric_shim_dma_buf_end(struct dma_buf *dmabuf, bool write);

/* Look-ups without a lock: rcu.c; shim/rcu.rs. */
void kfabric_shim_map_init(struct xarray *map);
int kfabric_shim_map_insert(struct xarray *map, u32 index, void *entry);
int kfabric_shim_map_alloc(struct xarray *map, u32 *index, void *entry, u32 min,
			   u32 max, u32 *next);
void *kfabric_shim_map_find(struct xarray *map, u32 *index);
void kfabric_shim_rcu_work_init(struct rcu_work *work, work_func_t run);

/* Workqueues: rcu.c; shim/work.rs. */
struct workqueue_struct *kfabric_shim_workqueue_alloc(const char *name,
						      bool percpu, bool rescuer);
void kfabric_shim_workqueue_flush(struct workqueue_struct *wq);

/* Receive work that a task passes to its softirqs: inline_work.c. */
void kfabric_shim_bh_disable(void);
void kfabric_shim_bh_enable(void);
void kfabric_shim_bh_enable_with(void *list);
void *kfabric_shim_inline_list(void);

/* CPUs: percpu.c; shim/cpu.rs. */
bool kfabric_shim_cpu_online(int cpu);

/* Per-CPU statistics: percpu.c. */
u64 *kfabric_shim_percpu_alloc(u32 count);
void kfabric_shim_percpu_free(u64 *counters);
void kfabric_shim_percpu_add(u64 *counter, u64 n);
void kfabric_shim_percpu_count(u64 *counter, u64 n);
u64 kfabric_shim_percpu_sum(const u64 *counter);

#ifdef KFI_KUNIT
void kfabric_kunit_inline_begin(void *list);
void kfabric_kunit_inline_end(void);

#include "../../../kunit/bench.h"
#include "../../../kunit/helpers.h"
#endif

#endif /* _KFABRIC_SHIM_BINDINGS_H */
