// SPDX-License-Identifier: GPL-2.0
/*
 * User memory and threads for the KUnit suites, which run in kernel threads
 * that have no memory of their own.
 *
 * Empty unless the module is built with its suites (KFI_KUNIT=1).
 */

#ifdef KFI_KUNIT

#include "bindings.h"

#include <kunit/test.h>
#include <linux/kthread.h>
#include <linux/mm.h>
#include <linux/mman.h>
#include <linux/sched.h>

/**
 * kfabric_shim_kunit_map - map anonymous memory for the current test
 * @len: bytes
 * @writable: whether it can be written
 *
 * Gives the test's thread an mm of its own first, if it has none.
 *
 * Return: the address, or a negative error number.
 */
long kfabric_shim_kunit_map(size_t len, bool writable)
{
	int ret = kunit_attach_mm();

	if (ret)
		return ret;
	return vm_mmap(NULL, 0, len, PROT_READ | (writable ? PROT_WRITE : 0),
		       MAP_PRIVATE | MAP_ANONYMOUS, 0);
}

/**
 * kfabric_shim_kunit_unmap - undo kfabric_shim_kunit_map()
 * @addr: what it returned
 * @len: as there
 */
void kfabric_shim_kunit_unmap(unsigned long addr, size_t len)
{
	vm_munmap(addr, len);
}

/**
 * kfabric_shim_kunit_pinned - pages that are charged to the current mm
 */
long kfabric_shim_kunit_pinned(void)
{
	return current->mm ? atomic64_read(&current->mm->pinned_vm) : 0;
}

/**
 * kfabric_shim_kunit_thread - start a kernel thread, holding a reference to it
 * @fn: what it runs
 * @data: argument of @fn
 * @name: its name
 *
 * Return: the task, with a reference for kthread_stop_put(), or an ERR_PTR.
 */
struct task_struct *kfabric_shim_kunit_thread(int (*fn)(void *data), void *data,
					      const char *name)
{
	struct task_struct *task = kthread_create(fn, data, "%s", name);

	if (!IS_ERR(task)) {
		get_task_struct(task);
		wake_up_process(task);
	}
	return task;
}

/**
 * kfabric_shim_kunit_join - wait until a kernel thread has ended
 * @task: what kfabric_shim_kunit_thread() gave; the reference is put
 */
void kfabric_shim_kunit_join(struct task_struct *task)
{
	kthread_stop_put(task);
}

#endif /* KFI_KUNIT */
