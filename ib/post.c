// SPDX-License-Identifier: GPL-2.0
/*
 * Posting work requests and receives. All values are checked by kfabric.ko.
 */

#include <linux/build_bug.h>

#include "kfabric_ib.h"

static_assert(KFABRIC_VERBS_WR_WRITE == (int)IB_WR_RDMA_WRITE);
static_assert(KFABRIC_VERBS_WR_WRITE_IMM == (int)IB_WR_RDMA_WRITE_WITH_IMM);
static_assert(KFABRIC_VERBS_WR_SEND == (int)IB_WR_SEND);
static_assert(KFABRIC_VERBS_WR_SEND_IMM == (int)IB_WR_SEND_WITH_IMM);
static_assert(KFABRIC_VERBS_WR_READ == (int)IB_WR_RDMA_READ);
static_assert(KFABRIC_VERBS_WR_COMPARE_SWAP == (int)IB_WR_ATOMIC_CMP_AND_SWP);
static_assert(KFABRIC_VERBS_WR_FETCH_ADD == (int)IB_WR_ATOMIC_FETCH_AND_ADD);
static_assert(KFABRIC_VERBS_WR_LOCAL_INV == (int)IB_WR_LOCAL_INV);
static_assert(KFABRIC_VERBS_WR_REG_MR == (int)IB_WR_REG_MR);
static_assert(KFABRIC_VERBS_WR_SEND_INV == (int)IB_WR_SEND_WITH_INV);
static_assert(KFABRIC_VERBS_SEND_FENCE == (int)IB_SEND_FENCE);
static_assert(KFABRIC_VERBS_SEND_SIGNALED == (int)IB_SEND_SIGNALED);
static_assert(KFABRIC_VERBS_SEND_SOLICITED == (int)IB_SEND_SOLICITED);
static_assert(KFABRIC_VERBS_SEND_INLINE == (int)IB_SEND_INLINE);

static_assert(sizeof(struct kfabric_verbs_sge) == sizeof(struct ib_sge));
static_assert(offsetof(struct kfabric_verbs_sge, addr) ==
	      offsetof(struct ib_sge, addr));
static_assert(offsetof(struct kfabric_verbs_sge, length) ==
	      offsetof(struct ib_sge, length));
static_assert(offsetof(struct kfabric_verbs_sge, lkey) ==
	      offsetof(struct ib_sge, lkey));

/*
 * Translates the registration of a region. Fails with -EINVAL for a region of
 * another PD, for one that is not for fast registration, and for a key of
 * another region.
 */
static int kfib_reg(const struct ib_qp *ibqp, const struct ib_reg_wr *wr,
		    struct kfabric_verbs_send *send)
{
	const struct ib_mr *ibmr = wr->mr;

	if (!ibmr || ibmr->pd != ibqp->pd || ibmr->type != IB_MR_TYPE_MEM_REG ||
	    (wr->key ^ ibmr->rkey) >> 8)
		return -EINVAL;
	send->remote_addr = ibmr->iova;
	send->rkey = wr->key;
	send->access = kfib_access(wr->access);
	send->num_sge = 0;
	return 0;
}

/*
 * Translates a work request. Members that its opcode does not use stay 0. Fails
 * with -EINVAL for a datagram with another opcode than a SEND or without an
 * address handle of the QP's PD, and as kfib_reg().
 */
static int kfib_send(const struct ib_qp *ibqp, const struct ib_send_wr *wr,
		     struct kfabric_verbs_send *send)
{
	*send = (struct kfabric_verbs_send) {
		.wr_id = wr->wr_id,
		.sges = kfib_sges(wr->sg_list),
		.num_sge = wr->num_sge,
		.opcode = wr->opcode,
		.flags = wr->send_flags,
	};
	if (ibqp->qp_type == IB_QPT_UD || ibqp->qp_type == IB_QPT_GSI) {
		/* Only these are in a struct ib_ud_wr. */
		if (wr->opcode != IB_WR_SEND &&
		    wr->opcode != IB_WR_SEND_WITH_IMM)
			return -EINVAL;
		if (!ud_wr(wr)->ah || ud_wr(wr)->ah->pd != ibqp->pd)
			return -EINVAL;
		send->av = &to_kfib_ah(ud_wr(wr)->ah)->av;
		send->remote_qpn = ud_wr(wr)->remote_qpn;
		send->remote_qkey = ud_wr(wr)->remote_qkey;
	}
	switch (wr->opcode) {
	case IB_WR_LOCAL_INV:
		send->num_sge = 0;
		fallthrough;
	case IB_WR_SEND_WITH_INV:
		send->imm_or_key = wr->ex.invalidate_rkey;
		break;
	case IB_WR_SEND_WITH_IMM:
		send->imm_or_key = be32_to_cpu(wr->ex.imm_data);
		break;
	case IB_WR_RDMA_WRITE_WITH_IMM:
		send->imm_or_key = be32_to_cpu(wr->ex.imm_data);
		fallthrough;
	case IB_WR_RDMA_WRITE:
	case IB_WR_RDMA_READ:
		send->remote_addr = rdma_wr(wr)->remote_addr;
		send->rkey = rdma_wr(wr)->rkey;
		break;
	case IB_WR_ATOMIC_CMP_AND_SWP:
	case IB_WR_ATOMIC_FETCH_AND_ADD:
		send->remote_addr = atomic_wr(wr)->remote_addr;
		send->compare_add = atomic_wr(wr)->compare_add;
		send->swap = atomic_wr(wr)->swap;
		send->rkey = atomic_wr(wr)->rkey;
		break;
	case IB_WR_REG_MR:
		/* That of a program has no region; kfabric.ko refuses it. */
		if (!ibqp->uobject)
			return kfib_reg(ibqp, reg_wr(wr), send);
		break;
	default:
		break;
	}
	return 0;
}

/**
 * kfib_post_send - post work requests
 * @ibqp: the QP
 * @wr: the first of a list
 * @bad_wr: out: the first that was not posted, with an error
 *
 * Context: any but NMIs; process context for a program.
 * Return: 0, or an error of kfabric_verbs_qp_post_send().
 */
int kfib_post_send(struct ib_qp *ibqp, const struct ib_send_wr *wr,
		   const struct ib_send_wr **bad_wr)
{
	struct kfabric_verbs_qp *qp = to_kfib_qp(ibqp)->qp;
	struct kfabric_verbs_send send;
	int ret = 0;

	for (; wr; wr = wr->next) {
		ret = kfib_send(ibqp, wr, &send);
		if (!ret)
			ret = kfabric_verbs_qp_post_send(qp, &send);
		if (ret) {
			*bad_wr = wr;
			break;
		}
	}
	kfabric_verbs_qp_post_end(qp);
	return ret;
}

/* Posts receives to an SRQ, or to a QP if there is none. */
static int kfib_post_receives(struct kfabric_verbs_qp *qp,
			      struct kfabric_verbs_srq *srq,
			      const struct ib_recv_wr *wr,
			      const struct ib_recv_wr **bad_wr)
{
	const struct kfabric_verbs_sge *sges;
	int ret;

	for (; wr; wr = wr->next) {
		sges = kfib_sges(wr->sg_list);
		if (wr->num_sge < 0)
			ret = -EINVAL;
		else if (srq)
			ret = kfabric_verbs_srq_post(srq, wr->wr_id, sges,
						     wr->num_sge);
		else
			ret = kfabric_verbs_qp_post_recv(qp, wr->wr_id, sges,
							 wr->num_sge);
		if (ret) {
			*bad_wr = wr;
			return ret;
		}
	}
	return 0;
}

/**
 * kfib_post_recv - post receives to a QP
 * @ibqp: the QP
 * @wr: the first of a list
 * @bad_wr: out: the first that was not posted, with an error
 *
 * Context: any but NMIs.
 * Return: 0, or an error of kfabric_verbs_qp_post_recv().
 */
int kfib_post_recv(struct ib_qp *ibqp, const struct ib_recv_wr *wr,
		   const struct ib_recv_wr **bad_wr)
{
	return kfib_post_receives(to_kfib_qp(ibqp)->qp, NULL, wr, bad_wr);
}

/**
 * kfib_post_srq_recv - post receives to an SRQ
 * @ibsrq: the SRQ
 * @wr: the first of a list
 * @bad_wr: out: the first that was not posted, with an error
 *
 * Context: any but NMIs.
 * Return: 0; -ENOMEM if the SRQ is full, -EINVAL for a receive of too many
 * SGEs.
 */
int kfib_post_srq_recv(struct ib_srq *ibsrq, const struct ib_recv_wr *wr,
		       const struct ib_recv_wr **bad_wr)
{
	return kfib_post_receives(NULL, to_kfib_srq(ibsrq)->srq, wr, bad_wr);
}
