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
 * are a line or two. They are in shim.c, except those of the included headers.
 */
#ifndef _KFABRIC_SHIM_BINDINGS_H
#define _KFABRIC_SHIM_BINDINGS_H

#include <linux/types.h>
#include <uapi/kfabric.h>

#include "inline_work.h"
#include "memory.h"
#include "net.h"
#include "percpu.h"
#include "rcu.h"
#include "skb.h"
#include "trace.h"
#include "udp.h"

struct file;
struct file_operations;
struct mm_struct;
struct page;
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

/* Timers: shim/deadline.rs. */
void kfabric_shim_deadline_init(struct timer_list *timer,
				void (*expired)(struct timer_list *timer));
void kfabric_shim_deadline_start(struct timer_list *timer, u32 msecs);
void kfabric_shim_deadline_end(struct timer_list *timer);

/* Hashes with a secret key: shim/siphash.rs. */
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
void *kfabric_shim_buffer_alloc(size_t len);
void kfabric_shim_buffer_free(void *buffer);
int kfabric_shim_charge(unsigned long pages, struct user_struct **user,
			struct mm_struct **mm);
void kfabric_shim_uncharge(unsigned long pages, struct user_struct *user,
			   struct mm_struct *mm);

/* Memory: mem/. */
void *kfabric_shim_page_address(struct page *page);
struct page *kfabric_shim_virt_to_page(void *addr);
void kfabric_shim_copy(void *dst, const void *src, size_t len);
void kfabric_shim_fill(void *dst, u8 byte, size_t len);
bool kfabric_shim_equal(const void *a, const void *b, size_t len);

#ifdef KFI_KUNIT
#include "bench.h"
#include "kunit_memory.h"

/* For the KUnit suites: shim/kunit.rs, shim/kunit.c. */
long kfabric_shim_kunit_map(size_t len, bool writable);
void kfabric_shim_kunit_unmap(unsigned long addr, size_t len);
long kfabric_shim_kunit_pinned(void);
struct task_struct *kfabric_shim_kunit_thread(int (*fn)(void *data), void *data,
					      const char *name);
void kfabric_shim_kunit_join(struct task_struct *task);
void kfabric_shim_kunit_allow_kill(void);
void kfabric_shim_kunit_kill(struct task_struct *task);
u32 kfabric_shim_kunit_poll(unsigned int fd);
long kfabric_shim_kunit_io(unsigned int fd, bool write, bool nonblock,
			   unsigned long addr, size_t len);
int kfabric_shim_kunit_close(unsigned int fd);
bool kfabric_shim_kunit_may_sleep(void);
int kfabric_shim_kunit_nice(void);
struct sk_buff *kfabric_shim_kunit_skb(const u8 *packet, u32 len, u32 ip_len,
				       u32 linear, u32 piece);
#endif

#endif /* _KFABRIC_SHIM_BINDINGS_H */
