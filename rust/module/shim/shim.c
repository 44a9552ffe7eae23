// SPDX-License-Identifier: GPL-2.0
/*
 * The C side of shim/: functions that Rust cannot call itself.
 *
 * Most of them wrap a macro or an inline function of the kernel. They keep no
 * state.
 */

#include "bindings.h"

#include <linux/anon_inodes.h>
#include <linux/capability.h>
#include <linux/cred.h>
#include <linux/fcntl.h>
#include <linux/hrtimer.h>
#include <linux/memcontrol.h>
#include <linux/mm.h>
#include <linux/pagemap.h>
#include <linux/rcupdate.h>
#include <linux/sched/mm.h>
#include <linux/sched/rt.h>
#include <linux/sched/signal.h>
#include <linux/sched/user.h>
#include <linux/siphash.h>
#include <linux/sizes.h>
#include <linux/string.h>
#include <linux/timer.h>
#include <linux/uaccess.h>
#include <linux/unaligned.h>
#include <linux/user_namespace.h>
#include <linux/wait.h>

/**
 * kfabric_shim_set_interruptible - announce that the current task will sleep
 *
 * A full barrier follows the store: a condition that is checked afterwards is
 * newer than any wake-up that could be missed.
 */
void kfabric_shim_set_interruptible(void)
{
	set_current_state(TASK_INTERRUPTIBLE);
}

/**
 * kfabric_shim_set_uninterruptible - the same, for sleeps that signals do not
 * end
 */
void kfabric_shim_set_uninterruptible(void)
{
	set_current_state(TASK_UNINTERRUPTIBLE);
}

/** kfabric_shim_set_running - withdraw the announcement */
void kfabric_shim_set_running(void)
{
	__set_current_state(TASK_RUNNING);
}

/**
 * kfabric_shim_wake - release a sleeper and wake it
 * @state: the sleeper's word; the sleeper may be gone after the write
 * @value: the value to write
 * @task: the sleeper's task, alive until the write
 *
 * A reader that acquires @state sees all writes before this call. Tasks are
 * freed after an RCU grace period, so the task exists until it has been woken.
 */
void kfabric_shim_wake(u64 *state, u64 value, struct task_struct *task)
{
	rcu_read_lock();
	/* Pairs with the acquire in Sleeper::reason(). */
	smp_store_release(state, value);
	wake_up_process(task);
	rcu_read_unlock();
}

/**
 * kfabric_shim_sleep_until - sleep in the announced state
 * @deadline: CLOCK_MONOTONIC, ns; %U64_MAX: without limit
 *
 * Return: true if the deadline has passed, false if the task was woken.
 */
bool kfabric_shim_sleep_until(u64 deadline)
{
	ktime_t expires;

	if (deadline == U64_MAX) {
		schedule();
		return false;
	}
	/* 0 would mean "do not sleep" to schedule_hrtimeout_range(). */
	expires = clamp_t(u64, deadline, 1, KTIME_MAX);
	return !schedule_hrtimeout_range(&expires, current->timer_slack_ns,
					 HRTIMER_MODE_ABS);
}

/**
 * kfabric_shim_has_sleeper - whether a wait queue has entries
 * @head: the wait queue
 *
 * A full barrier precedes the check.
 *
 * Return: true if it has.
 */
bool kfabric_shim_has_sleeper(struct wait_queue_head *head)
{
	return wq_has_sleeper(head);
}

/**
 * kfabric_shim_pause_until - sleep until a time
 * @until: nanoseconds of CLOCK_MONOTONIC
 *
 * Return: 0, or -EINTR if a signal is pending.
 */
int kfabric_shim_pause_until(u64 until)
{
	ktime_t at = ns_to_ktime(until);

	while (ktime_before(ktime_get(), at)) {
		set_current_state(TASK_INTERRUPTIBLE);
		schedule_hrtimeout_range(&at, NSEC_PER_MSEC, HRTIMER_MODE_ABS);
		if (signal_pending(current))
			return -EINTR;
	}
	return 0;
}

/** kfabric_shim_cond_resched - call cond_resched() */
void kfabric_shim_cond_resched(void)
{
	cond_resched();
}

/**
 * kfabric_shim_fatal_signal_pending - whether the current task is being killed
 *
 * Return: true if it is.
 */
bool kfabric_shim_fatal_signal_pending(void)
{
	return fatal_signal_pending(current);
}

/**
 * kfabric_shim_nice - the nice value of the current task
 *
 * Return: the value; MAX_NICE for SCHED_IDLE, which is below all of them.
 */
int kfabric_shim_nice(void)
{
	return current->policy == SCHED_IDLE ? MAX_NICE : task_nice(current);
}

/**
 * kfabric_shim_set_nice - set the nice value of the current task
 * @nice: the value, from MIN_NICE to MAX_NICE
 */
void kfabric_shim_set_nice(int nice)
{
	set_user_nice(current, nice);
}

/**
 * kfabric_shim_deadline_init - prepare the timer of a deadline
 * @timer: the timer, on the heap
 * @expired: its callback, in softirq
 */
void kfabric_shim_deadline_init(struct timer_list *timer,
				void (*expired)(struct timer_list *timer))
{
	timer_setup(timer, expired, 0);
}

/**
 * kfabric_shim_deadline_start - start the timer of a deadline
 * @timer: the timer
 * @msecs: milliseconds until it expires
 *
 * Does nothing after kfabric_shim_deadline_end(). Context: process or softirq.
 */
void kfabric_shim_deadline_start(struct timer_list *timer, u32 msecs)
{
	mod_timer(timer, jiffies + msecs_to_jiffies(msecs));
}

/**
 * kfabric_shim_deadline_end - stop the timer of a deadline permanently
 * @timer: the timer
 *
 * Its callback is not running when this returns. Context: process.
 */
void kfabric_shim_deadline_end(struct timer_list *timer)
{
	timer_shutdown_sync(timer);
}

/**
 * kfabric_shim_pagefault_disable - make page faults on user memory fail
 *
 * Until kfabric_shim_pagefault_enable(), for this task.
 */
void kfabric_shim_pagefault_disable(void)
{
	pagefault_disable();
}

/** kfabric_shim_pagefault_enable - undo kfabric_shim_pagefault_disable() */
void kfabric_shim_pagefault_enable(void)
{
	pagefault_enable();
}

/**
 * kfabric_shim_siphash - hash four words with a secret key
 * @key: two words
 * @words: four words
 *
 * Return: the hash.
 */
u64 kfabric_shim_siphash(const u64 *key, const u64 *words)
{
	siphash_key_t sip_key = { .key = { key[0], key[1] } };

	return siphash_4u64(words[0], words[1], words[2], words[3], &sip_key);
}

/**
 * kfabric_shim_clear_user - write zeros to user memory
 * @addr: user memory
 * @len: number of bytes
 *
 * Return: false if some of it cannot be written.
 */
bool kfabric_shim_clear_user(const void *addr, size_t len)
{
	return !clear_user((void __user __force *)addr, len);
}

/**
 * kfabric_shim_get_words - read a small structure of 64-bit words
 * @dst: the structure, with any alignment
 * @src: user memory
 * @words: number of words
 *
 * It copies word by word: starting a string copy takes longer.
 *
 * Return: false if a word cannot be read.
 */
bool kfabric_shim_get_words(void *dst, const void *src, size_t words)
{
	const u64 __user *from = (const u64 __user *)src;
	u64 *to = dst;
	u64 word;

	if (!user_read_access_begin(from, words * sizeof(*from)))
		return false;
	for (; words >= 4; words -= 4, from += 4, to += 4) {
		unsafe_get_user(word, from, fault);
		put_unaligned(word, to);
		unsafe_get_user(word, from + 1, fault);
		put_unaligned(word, to + 1);
		unsafe_get_user(word, from + 2, fault);
		put_unaligned(word, to + 2);
		unsafe_get_user(word, from + 3, fault);
		put_unaligned(word, to + 3);
	}
	for (; words; words--) {
		unsafe_get_user(word, from++, fault);
		put_unaligned(word, to++);
	}
	user_read_access_end();
	return true;

fault:
	user_read_access_end();
	return false;
}

/**
 * kfabric_shim_put_words - write a small structure of 64-bit words
 * @dst: user memory
 * @src: the structure, with any alignment
 * @words: number of words
 *
 * Return: false if a word cannot be written.
 */
bool kfabric_shim_put_words(void *dst, const void *src, size_t words)
{
	u64 __user *to = (u64 __user *)dst;
	const u64 *from = src;

	if (!user_write_access_begin(to, words * sizeof(*to)))
		return false;
	for (; words; words--)
		unsafe_put_user(get_unaligned(from++), to++, fault);
	user_write_access_end();
	return true;

fault:
	user_write_access_end();
	return false;
}

/**
 * kfabric_shim_get_bytes - read a few bytes
 * @dst: the destination
 * @src: user memory
 * @len: number of bytes
 *
 * Copies up to 64 bytes word by word, as kfabric_shim_get_words().
 *
 * Return: false if a byte cannot be read.
 */
bool kfabric_shim_get_bytes(u8 *dst, const u8 *src, size_t len)
{
	const u8 __user *from = (const u8 __user *)src;
	u64 word;

	if (len > 64)
		return !copy_from_user(dst, from, len);
	if (!user_read_access_begin(from, len))
		return false;
	for (; len >= sizeof(u64); len -= sizeof(u64)) {
		unsafe_get_user(word, (const u64 __user *)from, fault);
		put_unaligned(word, (u64 *)dst);
		dst += sizeof(u64);
		from += sizeof(u64);
	}
	for (; len; len--)
		unsafe_get_user(*dst++, from++, fault);
	user_read_access_end();
	return true;

fault:
	user_read_access_end();
	return false;
}

/**
 * kfabric_shim_copy_struct_from_user - copy_struct_from_user()
 * @dst: a structure of @ksize bytes
 * @ksize: its size as the module knows it
 * @src: user memory
 * @usize: its size as the caller knows it
 *
 * Return: 0, -EFAULT, -E2BIG.
 */
int kfabric_shim_copy_struct_from_user(void *dst, size_t ksize,
				       const void *src, size_t usize)
{
	return copy_struct_from_user(dst, ksize, (const void __user *)src,
				     usize);
}

/**
 * kfabric_shim_anon_file - open an anonymous file for reading and writing
 * @name: class of the file, as /proc/PID/fd shows it
 * @fops: its operations; the file holds a reference to their owner
 * @priv: private_data
 *
 * Return: the file, or an ERR_PTR.
 */
struct file *kfabric_shim_anon_file(const char *name,
				    const struct file_operations *fops,
				    void *priv)
{
	return anon_inode_getfile(name, fops, priv, O_RDWR);
}

/** kfabric_shim_may_exceed_limits - whether current has CAP_SYS_RESOURCE */
bool kfabric_shim_may_exceed_limits(void)
{
	return capable_noaudit(CAP_SYS_RESOURCE);
}

/*
 * Whether the owner of a user namespace is charged for its users. Root, who
 * creates the namespaces of containers, is not: containers would share one
 * limit.
 */
static bool kfabric_shim_is_owned(const struct user_namespace *ns)
{
	return ns->parent && !uid_eq(ns->owner, GLOBAL_ROOT_UID);
}

/**
 * kfabric_shim_namespace_owners - the owners of user namespaces
 * @owners: out: the owners of the current task's namespace and of its
 * ancestors, the topmost first; without those that root owns
 * @max: size of @owners
 *
 * Return: number of owners.
 */
u32 kfabric_shim_namespace_owners(kuid_t *owners, u32 max)
{
	const struct user_namespace *ns;
	u32 count = 0, at;

	for (ns = current_user_ns(); ns && count < max; ns = ns->parent)
		count += kfabric_shim_is_owned(ns);
	at = count;
	for (ns = current_user_ns(); ns && at; ns = ns->parent)
		if (kfabric_shim_is_owned(ns))
			owners[--at] = ns->owner;
	return count;
}

/** kfabric_shim_memcg_current - the memory control group of current, with a reference */
void *kfabric_shim_memcg_current(void)
{
	return get_mem_cgroup_from_mm(current->mm);
}

/**
 * kfabric_shim_user_ns_current - the ID of the current task's user namespace
 *
 * Return: an ID that no other user namespace gets.
 */
u64 kfabric_shim_user_ns_current(void)
{
	return current_user_ns()->ns.ns_id;
}

/**
 * kfabric_shim_is_current - whether the current task runs on behalf of a
 * principal
 * @uid: its user
 * @user_ns: the ID of its user namespace
 * @memcg: its memory control group
 *
 * A worker thread runs on behalf of the task that queued its work item, which
 * is not known here.
 *
 * Context: any in which current is a task, also a softirq that interrupted it.
 * Return: whether the effective user, the user namespace and the memory control
 * group of the task are these, and it is no worker thread.
 */
bool kfabric_shim_is_current(kuid_t uid, u64 user_ns, const void *memcg)
{
	struct mem_cgroup *own;

	if (current->flags & PF_WQ_WORKER || !uid_eq(current_euid(), uid) ||
	    kfabric_shim_user_ns_current() != user_ns)
		return false;
	own = get_mem_cgroup_from_mm(current->mm);
	mem_cgroup_put(own);
	/*
	 * The caller's reference to @memcg prevents the reuse of its address.
	 */
	return own == memcg;
}

/** kfabric_shim_memcg_put - put a reference of kfabric_shim_memcg_current() */
void kfabric_shim_memcg_put(void *memcg)
{
	mem_cgroup_put(memcg);
}

/**
 * kfabric_shim_memcg_enter - set the control group that allocations are charged
 * to
 * @memcg: the group, or NULL for that of the current task
 *
 * Return: the previous group, to be set again.
 */
void *kfabric_shim_memcg_enter(void *memcg)
{
	return set_active_memcg(memcg);
}

/**
 * kfabric_shim_noio_save - begin a scope in which allocations start no I/O
 *
 * Context: any.
 * Return: what kfabric_shim_noio_restore() takes.
 */
unsigned int kfabric_shim_noio_save(void)
{
	return memalloc_noio_save();
}

/**
 * kfabric_shim_noio_restore - end the scope
 * @flags: the result of kfabric_shim_noio_save() in the same task
 *
 * Context: any.
 */
void kfabric_shim_noio_restore(unsigned int flags)
{
	memalloc_noio_restore(flags);
}

/**
 * kfabric_shim_buffer_alloc - allocate memory for bytes of an operation
 * @len: number of bytes
 * @may_sleep: whether the caller may sleep; otherwise @len is at most a page
 *
 * It is charged to the active memory control group. If the group is full, the
 * allocation fails and no process of the group is killed: otherwise any sender
 * could have one killed.
 *
 * Context: process with @may_sleep, otherwise any.
 * Return: the memory, for kfabric_shim_buffer_free(), or NULL.
 */
void *kfabric_shim_buffer_alloc(size_t len, bool may_sleep)
{
	if (!may_sleep)
		return kmalloc(len, GFP_ATOMIC | __GFP_ACCOUNT | __GFP_NOWARN);
	return kvmalloc(len, GFP_KERNEL_ACCOUNT | __GFP_RETRY_MAYFAIL | __GFP_NOWARN);
}

/**
 * kfabric_shim_message_alloc - allocate memory for a message that can wait
 * @len: number of bytes
 *
 * The active memory control group, which is charged, is the receiver's, and the
 * caller is often a task of the sender. It must not reclaim the memory of the
 * group for long. So if the group is full, and at most two attempts to reclaim
 * make no room, the allocation fails and the message stays with its sender. A
 * message of more than 8 KiB comes from a worker, which tries harder.
 *
 * Context: process.
 * Return: the memory, for kfabric_shim_buffer_free(), or NULL.
 */
void *kfabric_shim_message_alloc(size_t len)
{
	if (len > SZ_8K)
		return kfabric_shim_buffer_alloc(len, true);
	return kmalloc(len, GFP_KERNEL_ACCOUNT | __GFP_NORETRY | __GFP_NOWARN);
}

/** kfabric_shim_buffer_free - free the memory of kfabric_shim_buffer_alloc() */
void kfabric_shim_buffer_free(void *buffer)
{
	kvfree(buffer);
}

/**
 * kfabric_shim_charge - charge pinned pages to the current user
 * @pages: number of pages
 * @user: out: the charged user, with a reference
 * @mm: out: the mm whose VmPin was increased, with a reference (mmgrab)
 *
 * The limit is RLIMIT_MEMLOCK, for all memory that the user has locked in this
 * way; CAP_IPC_LOCK lifts it.
 *
 * Return: 0, or -ENOMEM.
 */
int kfabric_shim_charge(unsigned long pages, struct user_struct **user,
			struct mm_struct **mm)
{
	struct user_struct *u = current_user();
	unsigned long limit = rlimit(RLIMIT_MEMLOCK) >> PAGE_SHIFT;
	long old = atomic_long_read(&u->locked_vm);

	do {
		if (old + pages > limit && !capable_noaudit(CAP_IPC_LOCK))
			return -ENOMEM;
	} while (!atomic_long_try_cmpxchg(&u->locked_vm, &old, old + pages));

	atomic64_add(pages, &current->mm->pinned_vm);
	mmgrab(current->mm);
	*user = get_uid(u);
	*mm = current->mm;
	return 0;
}

/**
 * kfabric_shim_uncharge - undo kfabric_shim_charge()
 * @pages: as passed to kfabric_shim_charge()
 * @user: as returned by it
 * @mm: as returned by it
 */
void kfabric_shim_uncharge(unsigned long pages, struct user_struct *user,
			   struct mm_struct *mm)
{
	atomic64_sub(pages, &mm->pinned_vm);
	mmdrop(mm);
	atomic_long_sub(pages, &user->locked_vm);
	free_uid(user);
}

/**
 * kfabric_shim_copy - copy bytes that user space may change at the same time
 * @dst: the destination
 * @src: the source; may overlap @dst
 * @len: number of bytes
 *
 * The copy is in C because Rust must not have a slice of memory that others
 * write to.
 *
 * It uses memcpy() if the ranges do not overlap, because memmove() is much
 * slower where string instructions are slow: 10 times in an emulated machine.
 */
void kfabric_shim_copy(void *dst, const void *src, size_t len)
{
	if (dst + len <= src || src + len <= dst)
		memcpy(dst, src, len);
	else
		memmove(dst, src, len);
}

/**
 * kfabric_shim_fill - set bytes that user space may read at the same time
 * @dst: the destination
 * @byte: the value
 * @len: number of bytes
 */
void kfabric_shim_fill(void *dst, u8 byte, size_t len)
{
	memset(dst, byte, len);
}

/**
 * kfabric_shim_equal - compare bytes that user space may change at the same
 * time
 * @a: the first range
 * @b: the second range
 * @len: number of bytes
 *
 * Return: true if all bytes are equal.
 */
bool kfabric_shim_equal(const void *a, const void *b, size_t len)
{
	return !memcmp(a, b, len);
}
