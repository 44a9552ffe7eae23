/* SPDX-License-Identifier: GPL-2.0 */
/*
 * Work requests by ibv_wr_start(3), for programs that include verbs-ends.h.
 */

#ifndef VERBS_WR_H
#define VERBS_WR_H

/* The operations of a QP of this type. */
static inline __u64 all_operations(enum ibv_qp_type type)
{
	const __u64 of_both = IBV_QP_EX_WITH_SEND | IBV_QP_EX_WITH_SEND_WITH_IMM;

	if (type == IBV_QPT_UD)
		return of_both;
	return of_both | IBV_QP_EX_WITH_SEND_WITH_INV | IBV_QP_EX_WITH_RDMA_WRITE |
		IBV_QP_EX_WITH_RDMA_WRITE_WITH_IMM | IBV_QP_EX_WITH_RDMA_READ |
		IBV_QP_EX_WITH_ATOMIC_CMP_AND_SWP | IBV_QP_EX_WITH_ATOMIC_FETCH_AND_ADD;
}

/*
 * Replaces the QP of @end by one for the functions of ibv_wr_start(), with the PD and CQs of
 * @end. Returns NULL, and errno is the reason, if that fails.
 */
static inline struct ibv_qp_ex *extend(struct end *end, struct ibv_qp_init_attr_ex init)
{
	init.pd = end->pd;
	init.send_cq = end->sends;
	init.recv_cq = end->receives;
	init.comp_mask = IBV_QP_INIT_ATTR_PD | IBV_QP_INIT_ATTR_SEND_OPS_FLAGS;
	if (end->qp)
		expect(!ibv_destroy_qp(end->qp), "destroy_qp");
	end->qp = ibv_create_qp_ex(device, &init);
	return end->qp ? ibv_qp_to_qp_ex(end->qp) : NULL;
}

/* The address of a byte of the memory of @end. */
static inline __u64 at(struct end *end, __u32 offset)
{
	return (__u64)(unsigned long)end->memory + offset;
}

/* The work request of the next builder has this ID and these flags. */
static inline void next(struct ibv_qp_ex *qp, __u64 id, unsigned int flags)
{
	qp->wr_id = id;
	qp->wr_flags = IBV_SEND_SIGNALED | flags;
}

static inline void complete(struct ibv_qp_ex *qp)
{
	int ret = ibv_wr_complete(qp);

	expect(!ret, "wr_complete: %s", strerror(ret));
}

#endif
