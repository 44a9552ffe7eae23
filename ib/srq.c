// SPDX-License-Identifier: GPL-2.0
/*
 * Shared receive queues.
 */

#include <linux/build_bug.h>
#include <rdma/uverbs_ioctl.h>

#include "kfabric_ib.h"

static_assert(KFABRIC_VERBS_EVENT_SRQ_LIMIT == IB_EVENT_SRQ_LIMIT_REACHED);
static_assert(KFABRIC_VERBS_SRQ_MAX_WR == IB_SRQ_MAX_WR);
static_assert(KFABRIC_VERBS_SRQ_LIMIT == IB_SRQ_LIMIT);

/**
 * kfib_srq_event - report an event of an SRQ
 * @cookie: the struct ib_srq
 * @number: the event, of enum ib_event_type
 *
 * Context: process; a mutex of a QP may be held; must not sleep.
 */
void kfib_srq_event(void *cookie, u32 number)
{
	struct ib_srq *ibsrq = cookie;
	struct ib_event event = {
		.device = ibsrq->device,
		.element.srq = ibsrq,
		.event = number,
	};

	if (ibsrq->event_handler)
		ibsrq->event_handler(&event, ibsrq->srq_context);
}

/**
 * kfib_create_srq - create an SRQ
 * @ibsrq: the SRQ
 * @init: its size; the limit has no meaning here
 * @udata: no driver data; NULL for a kernel caller
 *
 * Context: process.
 * Return: 0; -EOPNOTSUPP for another type than the basic one, -EINVAL for no
 * receives, or for more receives or SGEs than there may be, -ENOMEM.
 */
int kfib_create_srq(struct ib_srq *ibsrq, struct ib_srq_init_attr *init,
		    struct ib_udata *udata)
{
	struct kfabric_verbs_srq *created;
	int ret;

	ret = ib_no_udata_io(udata);
	if (ret)
		return ret;
	if (init->srq_type != IB_SRQT_BASIC)
		return -EOPNOTSUPP;
	created = kfabric_verbs_srq_create(to_kfib_pd(ibsrq->pd)->pd,
					   init->attr.max_wr,
					   init->attr.max_sge, ibsrq);
	if (IS_ERR(created))
		return PTR_ERR(created);
	to_kfib_srq(ibsrq)->srq = created;
	return 0;
}

/**
 * kfib_modify_srq - change the size of an SRQ, arm its limit, or both
 * @ibsrq: the SRQ
 * @attr: the attributes
 * @mask: which of them
 * @udata: no driver data; NULL for a kernel caller
 *
 * Context: process.
 * Return: 0; -EINVAL for fewer receives than are posted, none, more than there
 * may be, or fewer than the limit, -EOPNOTSUPP for other attributes, -ENOMEM.
 */
int kfib_modify_srq(struct ib_srq *ibsrq, struct ib_srq_attr *attr,
		    enum ib_srq_attr_mask mask, struct ib_udata *udata)
{
	int ret;

	ret = ib_no_udata_io(udata);
	if (ret)
		return ret;
	return kfabric_verbs_srq_modify(to_kfib_srq(ibsrq)->srq, mask,
					attr->max_wr, attr->srq_limit);
}

/**
 * kfib_query_srq - query the attributes of an SRQ
 * @ibsrq: the SRQ
 * @attr: out: its size, and the limit, which is 0 if it is not armed
 *
 * Context: process.
 * Return: 0.
 */
int kfib_query_srq(struct ib_srq *ibsrq, struct ib_srq_attr *attr)
{
	struct kfabric_verbs_srq_attr now;

	kfabric_verbs_srq_query(to_kfib_srq(ibsrq)->srq, &now);
	attr->max_wr = now.max_wr;
	attr->max_sge = now.max_sge;
	attr->srq_limit = now.limit;
	return 0;
}

/**
 * kfib_destroy_srq - destroy an SRQ that no QP has
 * @ibsrq: the SRQ
 * @udata: unused
 *
 * Context: process.
 * Return: 0.
 */
int kfib_destroy_srq(struct ib_srq *ibsrq, struct ib_udata *udata)
{
	kfabric_verbs_srq_destroy(to_kfib_srq(ibsrq)->srq);
	return 0;
}
