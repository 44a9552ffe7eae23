// SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause
/*
 * ibv_wr_start() and the functions that follow it collect work requests, in the
 * kernel's format, and ibv_wr_complete() posts them with one system call.
 */

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "kfabric.h"

/* Elements that an array has room for at first. */
#define KF_ROOM	16

/* The operations that a QP of each type can be created for. */
#define KF_UD_OPS	(IBV_QP_EX_WITH_SEND | IBV_QP_EX_WITH_SEND_WITH_IMM)
#define KF_RC_OPS	(KF_UD_OPS | IBV_QP_EX_WITH_SEND_WITH_INV |	\
			 IBV_QP_EX_WITH_RDMA_WRITE |			\
			 IBV_QP_EX_WITH_RDMA_WRITE_WITH_IMM |		\
			 IBV_QP_EX_WITH_RDMA_READ |			\
			 IBV_QP_EX_WITH_ATOMIC_CMP_AND_SWP |		\
			 IBV_QP_EX_WITH_ATOMIC_FETCH_AND_ADD)

static void kf_fail(struct kf_wrs *wrs, int error)
{
	if (!wrs->error)
		wrs->error = error;
}

/*
 * Makes room for @more elements of @size behind the @num of an array.
 * Return: false if there is none; then the error is noted.
 */
static bool kf_grow(struct kf_wrs *wrs, void **array, size_t *room, size_t num,
		    size_t more, size_t size)
{
	size_t wanted = *room ? *room : KF_ROOM;
	void *grown;

	while (wanted - num < more)
		wanted *= 2;
	if (wanted == *room)
		return true;
	grown = reallocarray(*array, wanted, size);
	if (!grown) {
		kf_fail(wrs, ENOMEM);
		return false;
	}
	*array = grown;
	*room = wanted;
	return true;
}

/*
 * Begins a work request. Return: it, in which the caller sets what belongs to
 * the operation; NULL after an error.
 */
static struct ib_uverbs_send_wr *kf_wr(struct ibv_qp_ex *qp,
				       enum ib_uverbs_wr_opcode opcode)
{
	struct kf_wrs *wrs = &to_kf_qp_ex(qp)->wrs;
	struct ib_uverbs_send_wr *wr;

	if (wrs->error)
		return NULL;
	/* No queue takes more, so the memory is limited, too. */
	if (wrs->num_wrs >= to_kf_qp_ex(qp)->cap.max_send_wr) {
		kf_fail(wrs, ENOMEM);
		return NULL;
	}
	if (!kf_grow(wrs, (void **)&wrs->wrs, &wrs->room_wrs, wrs->num_wrs, 1,
		     sizeof(*wrs->wrs)))
		return NULL;
	wr = &wrs->wrs[wrs->num_wrs++];
	*wr = (struct ib_uverbs_send_wr) {
		.wr_id = qp->wr_id,
		.opcode = opcode,
		/* Inline data has functions of its own here. */
		.send_flags = qp->wr_flags & ~IBV_SEND_INLINE,
	};
	/* The kernel gives the lowest free number: no address handle has this one. */
	if (qp->qp_base.qp_type == IBV_QPT_UD)
		wr->wr.ud.ah = UINT32_MAX;
	return wr;
}

static void kf_wr_send(struct ibv_qp_ex *qp)
{
	kf_wr(qp, IB_UVERBS_WR_SEND);
}

static void kf_wr_send_imm(struct ibv_qp_ex *qp, __be32 imm_data)
{
	struct ib_uverbs_send_wr *wr = kf_wr(qp, IB_UVERBS_WR_SEND_WITH_IMM);

	if (wr)
		wr->ex.imm_data = imm_data;
}

static void kf_wr_send_inv(struct ibv_qp_ex *qp, uint32_t invalidate_rkey)
{
	struct ib_uverbs_send_wr *wr = kf_wr(qp, IB_UVERBS_WR_SEND_WITH_INV);

	if (wr)
		wr->ex.invalidate_rkey = invalidate_rkey;
}

static struct ib_uverbs_send_wr *kf_wr_rdma(struct ibv_qp_ex *qp,
					    enum ib_uverbs_wr_opcode opcode,
					    uint32_t rkey, uint64_t remote_addr)
{
	struct ib_uverbs_send_wr *wr = kf_wr(qp, opcode);

	if (wr) {
		wr->wr.rdma.remote_addr = remote_addr;
		wr->wr.rdma.rkey = rkey;
	}
	return wr;
}

static void kf_wr_rdma_read(struct ibv_qp_ex *qp, uint32_t rkey,
			    uint64_t remote_addr)
{
	kf_wr_rdma(qp, IB_UVERBS_WR_RDMA_READ, rkey, remote_addr);
}

static void kf_wr_rdma_write(struct ibv_qp_ex *qp, uint32_t rkey,
			     uint64_t remote_addr)
{
	kf_wr_rdma(qp, IB_UVERBS_WR_RDMA_WRITE, rkey, remote_addr);
}

static void kf_wr_rdma_write_imm(struct ibv_qp_ex *qp, uint32_t rkey,
				 uint64_t remote_addr, __be32 imm_data)
{
	struct ib_uverbs_send_wr *wr;

	wr = kf_wr_rdma(qp, IB_UVERBS_WR_RDMA_WRITE_WITH_IMM, rkey,
			remote_addr);
	if (wr)
		wr->ex.imm_data = imm_data;
}

static void kf_wr_atomic(struct ibv_qp_ex *qp, enum ib_uverbs_wr_opcode opcode,
			 uint32_t rkey, uint64_t remote_addr,
			 uint64_t compare_add, uint64_t swap)
{
	struct ib_uverbs_send_wr *wr = kf_wr(qp, opcode);

	if (!wr)
		return;
	wr->wr.atomic.remote_addr = remote_addr;
	wr->wr.atomic.compare_add = compare_add;
	wr->wr.atomic.swap = swap;
	wr->wr.atomic.rkey = rkey;
}

static void kf_wr_atomic_cmp_swp(struct ibv_qp_ex *qp, uint32_t rkey,
				 uint64_t remote_addr, uint64_t compare,
				 uint64_t swap)
{
	kf_wr_atomic(qp, IB_UVERBS_WR_ATOMIC_CMP_AND_SWP, rkey, remote_addr,
		     compare, swap);
}

static void kf_wr_atomic_fetch_add(struct ibv_qp_ex *qp, uint32_t rkey,
				   uint64_t remote_addr, uint64_t add)
{
	kf_wr_atomic(qp, IB_UVERBS_WR_ATOMIC_FETCH_AND_ADD, rkey, remote_addr,
		     add, 0);
}

/*
 * The work request that setters apply to; NULL, with an error noted, if none.
 */
static struct ib_uverbs_send_wr *kf_last(struct kf_wrs *wrs)
{
	if (wrs->error)
		return NULL;
	if (!wrs->num_wrs) {
		kf_fail(wrs, EINVAL);
		return NULL;
	}
	return &wrs->wrs[wrs->num_wrs - 1];
}

static void kf_wr_set_ud_addr(struct ibv_qp_ex *qp, struct ibv_ah *ah,
			      uint32_t remote_qpn, uint32_t remote_qkey)
{
	struct kf_wrs *wrs = &to_kf_qp_ex(qp)->wrs;
	struct ib_uverbs_send_wr *wr = kf_last(wrs);

	if (!wr)
		return;
	if (!ah) {
		kf_fail(wrs, EINVAL);
		return;
	}
	wr->wr.ud.ah = ah->handle;
	wr->wr.ud.remote_qpn = remote_qpn;
	wr->wr.ud.remote_qkey = remote_qkey;
}

/* Sets the SGEs of the last work request, of which there are at most @most. */
static void kf_set_sges(struct ibv_qp_ex *qp, size_t num_sge,
			const struct ibv_sge *sg_list, size_t most)
{
	struct kf_wrs *wrs = &to_kf_qp_ex(qp)->wrs;
	struct ib_uverbs_send_wr *wr = kf_last(wrs);

	if (!wr)
		return;
	/* The data of a work request is set once. */
	if (wr->num_sge || num_sge > most) {
		kf_fail(wrs, EINVAL);
		return;
	}
	if (!num_sge ||
	    !kf_grow(wrs, (void **)&wrs->sges, &wrs->room_sges, wrs->num_sges,
		     num_sge, sizeof(*wrs->sges)))
		return;
	memcpy(&wrs->sges[wrs->num_sges], sg_list, num_sge * sizeof(*sg_list));
	wrs->num_sges += num_sge;
	wr->num_sge = num_sge;
}

static void kf_wr_set_sge_list(struct ibv_qp_ex *qp, size_t num_sge,
			       const struct ibv_sge *sg_list)
{
	kf_set_sges(qp, num_sge, sg_list, to_kf_qp_ex(qp)->cap.max_send_sge);
}

static void kf_wr_set_sge(struct ibv_qp_ex *qp, uint32_t lkey, uint64_t addr,
			  uint32_t length)
{
	const struct ibv_sge sge = {
		.addr = addr,
		.length = length,
		.lkey = lkey,
	};

	kf_wr_set_sge_list(qp, 1, &sge);
}

/*
 * Inline data is copied, because the program may change its buffers before the
 * call. The copy may move until then, so the SGE has an offset. It is one SGE,
 * also for a QP that has none for other data.
 */
static void kf_wr_set_inline_data_list(struct ibv_qp_ex *qp, size_t num_buf,
				       const struct ibv_data_buf *buf_list)
{
	struct kf_wrs *wrs = &to_kf_qp_ex(qp)->wrs;
	uint32_t most = to_kf_qp_ex(qp)->cap.max_inline_data;
	struct ib_uverbs_send_wr *wr = kf_last(wrs);
	struct ibv_sge sge = { .addr = wrs->num_data };
	size_t i;

	if (!wr)
		return;
	for (i = 0; i < num_buf; i++) {
		if (buf_list[i].length > most - sge.length) {
			kf_fail(wrs, EINVAL);
			return;
		}
		sge.length += buf_list[i].length;
	}
	if (!kf_grow(wrs, (void **)&wrs->data, &wrs->room_data, wrs->num_data,
		     sge.length, 1))
		return;
	for (i = 0; i < num_buf; i++) {
		if (buf_list[i].length)
			memcpy(wrs->data + wrs->num_data, buf_list[i].addr,
			       buf_list[i].length);
		wrs->num_data += buf_list[i].length;
	}
	wr->send_flags |= IBV_SEND_INLINE;
	kf_set_sges(qp, 1, &sge, 1);
}

static void kf_wr_set_inline_data(struct ibv_qp_ex *qp, void *addr,
				  size_t length)
{
	const struct ibv_data_buf buf = {
		.addr = addr,
		.length = length,
	};

	kf_wr_set_inline_data_list(qp, 1, &buf);
}

static void kf_wr_start(struct ibv_qp_ex *qp)
{
	struct kf_wrs *wrs = &to_kf_qp_ex(qp)->wrs;

	pthread_mutex_lock(&wrs->lock);
	wrs->num_wrs = 0;
	wrs->num_sges = 0;
	wrs->num_data = 0;
	wrs->error = 0;
}

/* The addresses of inline data, which stays where it is from now on. */
static void kf_place_data(struct kf_wrs *wrs)
{
	struct ibv_sge *sge = wrs->sges;
	size_t i;

	for (i = 0; i < wrs->num_wrs; i++) {
		if (wrs->wrs[i].send_flags & IBV_SEND_INLINE)
			sge->addr += (uintptr_t)wrs->data;
		sge += wrs->wrs[i].num_sge;
	}
}

static int kf_wr_complete(struct ibv_qp_ex *qp)
{
	struct kf_wrs *wrs = &to_kf_qp_ex(qp)->wrs;
	int ret = wrs->error;

	if (!ret) {
		kf_place_data(wrs);
		ret = kf_post_collected(&qp->qp_base, wrs->wrs, wrs->num_wrs,
					wrs->sges);
	}
	pthread_mutex_unlock(&wrs->lock);
	return ret;
}

static void kf_wr_abort(struct ibv_qp_ex *qp)
{
	pthread_mutex_unlock(&to_kf_qp_ex(qp)->wrs.lock);
}

/**
 * kf_wrs_init - let a QP collect work requests
 * @qp: the QP, which is created
 * @send_ops_flags: the operations that the program will post
 *
 * Return: 0, or EOPNOTSUPP for an operation that such a QP does not have.
 */
int kf_wrs_init(struct kf_qp *qp, uint64_t send_ops_flags)
{
	bool ud = qp->vqp.qp.qp_type == IBV_QPT_UD;
	struct ibv_qp_ex *qp_ex = &qp->vqp.qp_ex;

	if (!check_comp_mask(send_ops_flags, ud ? KF_UD_OPS : KF_RC_OPS))
		return EOPNOTSUPP;
	qp_ex->wr_send = kf_wr_send;
	qp_ex->wr_send_imm = kf_wr_send_imm;
	if (ud) {
		qp_ex->wr_set_ud_addr = kf_wr_set_ud_addr;
	} else {
		qp_ex->wr_send_inv = kf_wr_send_inv;
		qp_ex->wr_rdma_read = kf_wr_rdma_read;
		qp_ex->wr_rdma_write = kf_wr_rdma_write;
		qp_ex->wr_rdma_write_imm = kf_wr_rdma_write_imm;
		qp_ex->wr_atomic_cmp_swp = kf_wr_atomic_cmp_swp;
		qp_ex->wr_atomic_fetch_add = kf_wr_atomic_fetch_add;
	}
	qp_ex->wr_set_sge = kf_wr_set_sge;
	qp_ex->wr_set_sge_list = kf_wr_set_sge_list;
	qp_ex->wr_set_inline_data = kf_wr_set_inline_data;
	qp_ex->wr_set_inline_data_list = kf_wr_set_inline_data_list;
	qp_ex->wr_start = kf_wr_start;
	qp_ex->wr_complete = kf_wr_complete;
	qp_ex->wr_abort = kf_wr_abort;
	qp->vqp.comp_mask |= VERBS_QP_EX;
	return 0;
}

void kf_wrs_free(struct kf_qp *qp)
{
	pthread_mutex_destroy(&qp->wrs.lock);
	free(qp->wrs.wrs);
	free(qp->wrs.sges);
	free(qp->wrs.data);
}
