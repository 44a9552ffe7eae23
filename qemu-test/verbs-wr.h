/* SPDX-License-Identifier: GPL-2.0 */
/*
 * Work requests by ibv_wr_start(3), for programs that include verbs-ends.h.
 */

#ifndef VERBS_WR_H
#define VERBS_WR_H

/* The operations of a QP of this type. */
static __u64 all_operations(enum ibv_qp_type type)
{
	const __u64 of_both = IBV_QP_EX_WITH_SEND | IBV_QP_EX_WITH_SEND_WITH_IMM;

	if (type == IBV_QPT_UD)
		return of_both;
	return of_both | IBV_QP_EX_WITH_SEND_WITH_INV | IBV_QP_EX_WITH_RDMA_WRITE |
		IBV_QP_EX_WITH_RDMA_WRITE_WITH_IMM | IBV_QP_EX_WITH_RDMA_READ |
		IBV_QP_EX_WITH_ATOMIC_CMP_AND_SWP | IBV_QP_EX_WITH_ATOMIC_FETCH_AND_ADD;
}

/* The address of a byte of the memory of @end. */
static __u64 at(struct end *end, __u32 offset)
{
	return (__u64)(unsigned long)end->memory + offset;
}

/* The work request of the next builder has this ID and these flags. */
static void next(struct ibv_qp_ex *qp, __u64 id, unsigned int flags)
{
	qp->wr_id = id;
	qp->wr_flags = IBV_SEND_SIGNALED | flags;
}

static void complete(struct ibv_qp_ex *qp)
{
	int ret = ibv_wr_complete(qp);

	expect(!ret, "wr_complete: %s", strerror(ret));
}

#endif
