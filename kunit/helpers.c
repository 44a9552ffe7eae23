// SPDX-License-Identifier: GPL-2.0
/*
 * Reports, user memory, threads and files for the KUnit suites, which run in
 * kernel threads without an mm.
 */

#include "helpers.h"

#include <kunit/test-bug.h>
#include <kunit/test.h>
#include <linux/fcntl.h>
#include <linux/fdtable.h>
#include <linux/file.h>
#include <linux/fs.h>
#include <linux/kthread.h>
#include <linux/mm.h>
#include <linux/mman.h>
#include <linux/pagemap.h>
#include <linux/poll.h>
#include <linux/preempt.h>
#include <linux/sched.h>
#include <linux/sched/signal.h>
#include <linux/skbuff.h>
#include <linux/udp.h>

/**
 * kfabric_kunit_failed - report a condition that does not hold
 * @file: the file of the case
 * @line: the line of the condition
 * @condition: its text
 *
 * In the log of the current case, or in that of the kernel if the task runs
 * none. Does not end the case.
 */
void kfabric_kunit_failed(const char *file, unsigned int line,
			  const char *condition)
{
	struct kunit *test = kunit_get_current_test();

	if (test)
		kunit_err(test, "FAILED at %s:%u: expected %s\n", file, line,
			  condition);
	else
		pr_err("FAILED at %s:%u outside a case: expected %s\n", file,
		       line, condition);
}

/**
 * kfabric_kunit_map - map anonymous memory for the current test
 * @len: bytes
 * @writable: whether it can be written
 *
 * If the test's thread has no mm, it gets one first.
 *
 * Return: the address, or a negative error number.
 */
long kfabric_kunit_map(size_t len, bool writable)
{
	int ret = kunit_attach_mm();

	if (ret)
		return ret;
	return vm_mmap(NULL, 0, len, PROT_READ | (writable ? PROT_WRITE : 0),
		       MAP_PRIVATE | MAP_ANONYMOUS, 0);
}

/**
 * kfabric_kunit_unmap - undo kfabric_kunit_map()
 * @addr: the result of kfabric_kunit_map()
 * @len: the length passed to it
 */
void kfabric_kunit_unmap(unsigned long addr, size_t len)
{
	vm_munmap(addr, len);
}

/**
 * kfabric_kunit_page_lock - lock a page of the current mm
 * @addr: its address
 * @dirty: out: whether it was marked dirty; it is not afterwards
 *
 * Return: the page, for kfabric_kunit_page_unlock(), or NULL.
 */
struct page *kfabric_kunit_page_lock(unsigned long addr, bool *dirty)
{
	struct page *page;

	if (get_user_pages_fast(addr, 1, 0, &page) != 1)
		return NULL;
	lock_page(page);
	*dirty = TestClearPageDirty(page);
	return page;
}

/** kfabric_kunit_page_unlock - undo kfabric_kunit_page_lock() */
void kfabric_kunit_page_unlock(struct page *page)
{
	unlock_page(page);
	put_page(page);
}

/** kfabric_kunit_pinned - number of pages charged to the current mm */
long kfabric_kunit_pinned(void)
{
	return current->mm ? atomic64_read(&current->mm->pinned_vm) : 0;
}

/**
 * kfabric_kunit_thread - start a kernel thread, holding a reference to it
 * @fn: its function
 * @data: argument of @fn
 *
 * Return: the task, with a reference for kthread_stop_put(), or an ERR_PTR.
 */
struct task_struct *kfabric_kunit_thread(int (*fn)(void *data), void *data)
{
	struct task_struct *task = kthread_create(fn, data, "kfi-test");

	if (!IS_ERR(task)) {
		get_task_struct(task);
		wake_up_process(task);
	}
	return task;
}

/**
 * kfabric_kunit_join - wait until a kernel thread has ended
 * @task: the result of kfabric_kunit_thread(); its reference is put
 */
void kfabric_kunit_join(struct task_struct *task)
{
	kthread_stop_put(task);
}

/**
 * kfabric_kunit_allow_kill - let the current kernel thread be killed
 *
 * A kernel thread ignores all signals by default.
 */
void kfabric_kunit_allow_kill(void)
{
	allow_kernel_signal(SIGKILL);
}

/**
 * kfabric_kunit_kill - send SIGKILL to a kernel thread
 * @task: a thread that has called kfabric_kunit_allow_kill()
 *
 * The signal is pending afterwards.  The thread ends when its function returns.
 */
void kfabric_kunit_kill(struct task_struct *task)
{
	send_sig(SIGKILL, task, 1);
}

/**
 * kfabric_kunit_poll - poll a descriptor, without waiting
 * @fd: the descriptor
 *
 * Return: its events, or 0 for no such descriptor.
 */
u32 kfabric_kunit_poll(unsigned int fd)
{
	struct file *file = fget(fd);
	u32 events;

	if (!file)
		return 0;
	events = (__force u32)vfs_poll(file, NULL);
	fput(file);
	return events;
}

/**
 * kfabric_kunit_io - read or write a descriptor of an anonymous file
 * @fd: the descriptor
 * @write: write rather than read
 * @nonblock: set O_NONBLOCK first
 * @addr: user memory
 * @len: bytes of user memory
 *
 * Return: the result of the operation, or -EBADF.
 */
long kfabric_kunit_io(unsigned int fd, bool write, bool nonblock,
		      unsigned long addr, size_t len)
{
	struct file *file = fget(fd);
	char __user *buf = (char __user *)addr;
	long ret;

	if (!file)
		return -EBADF;
	if (nonblock)
		file->f_flags |= O_NONBLOCK;
	ret = write ? file->f_op->write(file, buf, len, NULL) :
		      file->f_op->read(file, buf, len, NULL);
	fput(file);
	return ret;
}

/**
 * kfabric_kunit_close - close a descriptor
 * @fd: the descriptor
 *
 * Return: 0, or -EBADF.
 */
int kfabric_kunit_close(unsigned int fd)
{
	return close_fd(fd);
}

/* Adds bytes @from to @to of @packet, at most @piece of them on each page. */
static bool kfabric_kunit_frags(struct sk_buff *skb, const u8 *packet,
				u32 from, u32 to, u32 piece)
{
	u32 len;

	for (; from < to; from += len) {
		int frag = skb_shinfo(skb)->nr_frags;
		struct page *page = alloc_page(GFP_KERNEL);

		if (!page || frag == MAX_SKB_FRAGS)
			return false;
		len = min(piece, to - from);
		memcpy(page_address(page) + 8, packet + from, len);
		skb_add_rx_frag(skb, frag, page, 8, len, PAGE_SIZE);
	}
	return true;
}

/**
 * kfabric_kunit_skb - create a received packet in several fragments
 * @packet: its bytes, from the IP header on
 * @len: number of bytes
 * @ip_len: bytes of the IP header
 * @linear: bytes after the UDP header that are in the linear part
 * @piece: bytes of each fragment, at most %PAGE_SIZE - 8
 *
 * Half of the other bytes are in page fragments of the packet, the other half
 * in those of a second buffer on its frag_list.
 *
 * Return: the packet, or NULL.
 */
struct sk_buff *kfabric_kunit_skb(const u8 *packet, u32 len, u32 ip_len,
				  u32 linear, u32 piece)
{
	u32 head = min(ip_len + (u32)sizeof(struct udphdr) + linear, len);
	u32 half = head + (len - head) / 2;
	struct sk_buff *skb = alloc_skb(head, GFP_KERNEL);
	struct sk_buff *more = alloc_skb(0, GFP_KERNEL);

	if (!skb || !more)
		goto fail;
	skb_reset_network_header(skb);
	skb_set_transport_header(skb, ip_len);
	skb_put_data(skb, packet, head);
	if (!kfabric_kunit_frags(skb, packet, head, half, piece) ||
	    !kfabric_kunit_frags(more, packet, half, len, piece))
		goto fail;
	if (more->len) {
		skb_shinfo(skb)->frag_list = more;
		skb->len += more->len;
		skb->data_len += more->len;
		skb->truesize += more->truesize;
	} else {
		kfree_skb(more);
	}
	__skb_pull(skb, ip_len + sizeof(struct udphdr));
	return skb;
fail:
	kfree_skb(skb);
	kfree_skb(more);
	return NULL;
}

/**
 * kfabric_kunit_may_sleep - whether the caller may sleep
 *
 * Return: false with interrupts, preemption or bottom halves disabled, as far
 * as the kernel configuration counts these.
 */
bool kfabric_kunit_may_sleep(void)
{
	return !preempt_count() && !irqs_disabled();
}

/**
 * kfabric_kunit_irq - the kind of interrupt that the caller is in
 *
 * Return: 0 for none, 1 for a softirq, 2 for a hard interrupt.
 */
int kfabric_kunit_irq(void)
{
	if (in_hardirq())
		return 2;
	return in_serving_softirq() ? 1 : 0;
}

/** kfabric_kunit_nice - the nice value of the current task */
int kfabric_kunit_nice(void)
{
	return task_nice(current);
}
