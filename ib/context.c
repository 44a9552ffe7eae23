// SPDX-License-Identifier: GPL-2.0
/*
 * Contexts of programs; PDs.
 */

#include <linux/sched/task.h>
#include <rdma/restrack.h>
#include <rdma/uverbs_ioctl.h>

#include "kfabric_ib.h"

/*
 * The core has put the task into the resource of a new context. If the context
 * is not made, UVERBS_METHOD_GET_CONTEXT of Linux 7.3 leaks the reference to
 * the task, as often as a program repeats the call. This function puts the
 * reference, and removes the task from the resource, which the older command
 * can release without it.
 */
static int kfib_no_ucontext(struct ib_ucontext *ibucontext, int error)
{
	struct rdma_restrack_entry *res = &ibucontext->res;

	if (res->task) {
		put_task_struct(res->task);
		res->task = NULL;
	}
	return error;
}

/**
 * kfib_alloc_ucontext - make the context of a program that opens a device
 * @ibucontext: its context
 * @udata: no driver data
 *
 * Context: process.
 * Return: 0, or an error of kfabric_verbs_context_alloc().
 */
int kfib_alloc_ucontext(struct ib_ucontext *ibucontext, struct ib_udata *udata)
{
	struct kfib_ucontext *ucontext = to_kfib_ucontext(ibucontext);
	struct kfabric_verbs_context *context;
	int ret;

	ret = ib_no_udata_io(udata);
	if (ret)
		return kfib_no_ucontext(ibucontext, ret);
	context = kfabric_verbs_context_alloc(to_kfib(ibucontext->device)->device);
	if (IS_ERR(context))
		return kfib_no_ucontext(ibucontext, PTR_ERR(context));
	ucontext->context = context;
	return 0;
}

/**
 * kfib_query_ucontext - answer a query for the context of a file
 * @ibucontext: the context
 * @attrs: the program's call
 *
 * The core has answered; a driver without this function would refuse the call.
 *
 * Context: process.
 * Return: 0.
 */
int kfib_query_ucontext(struct ib_ucontext *ibucontext,
			struct uverbs_attr_bundle *attrs)
{
	return 0;
}

/**
 * kfib_dealloc_ucontext - free the context of a program, which has no objects
 * @ibucontext: its context
 *
 * Context: process.
 */
void kfib_dealloc_ucontext(struct ib_ucontext *ibucontext)
{
	kfabric_verbs_context_free(to_kfib_ucontext(ibucontext)->context);
}

/**
 * kfib_disassociate_ucontext - let a device go while a program has it open
 * @ibucontext: the program's context
 *
 * The core ends the objects of the program. It requires this function to remove
 * a device without waiting for the program. Memory that the program has mapped
 * stays.
 *
 * Context: process.
 */
void kfib_disassociate_ucontext(struct ib_ucontext *ibucontext)
{
}

/**
 * kfib_context_of - find the context of the program that makes a call
 * @udata: of the call; NULL for a kernel caller
 *
 * Context: any.
 * Return: the context; NULL for a kernel caller.
 */
struct kfabric_verbs_context *kfib_context_of(struct ib_udata *udata)
{
	struct kfib_ucontext *ucontext =
		rdma_udata_to_drv_context(udata, struct kfib_ucontext,
					  ibucontext);

	return ucontext ? ucontext->context : NULL;
}

/**
 * kfib_mmap - map memory of an object
 * @ibucontext: the context of the program
 * @vma: the mapping, whose offset selects the object
 *
 * The mapping has a file of kfabric.ko afterwards, and does not refer to this
 * module.
 *
 * Context: process; the mmap_lock is held.
 * Return: 0, or an error of kfabric_verbs_mmap().
 */
int kfib_mmap(struct ib_ucontext *ibucontext, struct vm_area_struct *vma)
{
	return kfabric_verbs_mmap(to_kfib_ucontext(ibucontext)->context, vma);
}

/**
 * kfib_alloc_pd - allocate a PD
 * @ibpd: the PD
 * @udata: no driver data; NULL for a kernel caller
 *
 * Context: process.
 * Return: 0, or an error of kfabric_verbs_pd_alloc().
 */
int kfib_alloc_pd(struct ib_pd *ibpd, struct ib_udata *udata)
{
	struct kfabric_verbs_pd *pd;
	int ret;

	ret = ib_no_udata_io(udata);
	if (ret)
		return ret;
	pd = kfabric_verbs_pd_alloc(to_kfib(ibpd->device)->device,
				    kfib_context_of(udata));
	if (IS_ERR(pd))
		return PTR_ERR(pd);
	to_kfib_pd(ibpd)->pd = pd;
	return 0;
}

/**
 * kfib_dealloc_pd - deallocate a PD, which has no objects
 * @ibpd: the PD
 * @udata: no driver data
 *
 * Context: process.
 * Return: 0.
 */
int kfib_dealloc_pd(struct ib_pd *ibpd, struct ib_udata *udata)
{
	kfabric_verbs_pd_free(to_kfib_pd(ibpd)->pd);
	return 0;
}
