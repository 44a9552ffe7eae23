// SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause
/*
 * The extended CQ: one entry at a time, whose members the program reads by
 * functions.
 */

#include <errno.h>
#include <stdlib.h>

#include "kfabric.h"

/* Takes an entry. Return: 0, ENOENT if there is none, or another error. */
static int kf_next(struct kf_cq *cq)
{
	int done = kf_cq_take(cq, 1, &cq->wc);

	if (done < 0)
		return errno ? errno : EIO;
	if (!done)
		return ENOENT;
	cq->vcq.cq_ex.status = cq->wc.status;
	cq->vcq.cq_ex.wr_id = cq->wc.wr_id;
	return 0;
}

static int kf_start_poll(struct ibv_cq_ex *ibcq, struct ibv_poll_cq_attr *attr)
{
	struct kf_cq *cq = to_kf_cq_ex(ibcq);
	int ret;

	if (attr->comp_mask)
		return EINVAL;
	kf_cq_lock(cq);
	ret = kf_next(cq);
	/* There is no end_poll() then. */
	if (ret)
		kf_cq_unlock(cq);
	return ret;
}

static int kf_next_poll(struct ibv_cq_ex *ibcq)
{
	return kf_next(to_kf_cq_ex(ibcq));
}

static void kf_end_poll(struct ibv_cq_ex *ibcq)
{
	kf_cq_unlock(to_kf_cq_ex(ibcq));
}

static enum ibv_wc_opcode kf_read_opcode(struct ibv_cq_ex *ibcq)
{
	return to_kf_cq_ex(ibcq)->wc.opcode;
}

static uint32_t kf_read_vendor_err(struct ibv_cq_ex *ibcq)
{
	return to_kf_cq_ex(ibcq)->wc.vendor_err;
}

static uint32_t kf_read_byte_len(struct ibv_cq_ex *ibcq)
{
	return to_kf_cq_ex(ibcq)->wc.byte_len;
}

/* Also the key of an invalidated region, which is in the same place. */
static __be32 kf_read_imm_data(struct ibv_cq_ex *ibcq)
{
	return to_kf_cq_ex(ibcq)->wc.imm_data;
}

static uint32_t kf_read_qp_num(struct ibv_cq_ex *ibcq)
{
	return to_kf_cq_ex(ibcq)->wc.qp_num;
}

static uint32_t kf_read_src_qp(struct ibv_cq_ex *ibcq)
{
	return to_kf_cq_ex(ibcq)->wc.src_qp;
}

static unsigned int kf_read_wc_flags(struct ibv_cq_ex *ibcq)
{
	return to_kf_cq_ex(ibcq)->wc.wc_flags;
}

static uint32_t kf_read_slid(struct ibv_cq_ex *ibcq)
{
	return to_kf_cq_ex(ibcq)->wc.slid;
}

static uint8_t kf_read_sl(struct ibv_cq_ex *ibcq)
{
	return to_kf_cq_ex(ibcq)->wc.sl;
}

static uint8_t kf_read_dlid_path_bits(struct ibv_cq_ex *ibcq)
{
	return to_kf_cq_ex(ibcq)->wc.dlid_path_bits;
}

struct ibv_cq_ex *kf_create_cq_ex(struct ibv_context *context,
				  struct ibv_cq_init_attr_ex *attr)
{
	struct ibv_cq_init_attr_ex wanted = *attr;
	struct ibv_cq_ex *cq_ex;
	bool single = false;
	struct kf_cq *cq;

	if (!check_comp_mask(attr->comp_mask, IBV_CQ_INIT_ATTR_MASK_FLAGS |
			     IBV_CQ_INIT_ATTR_MASK_PD) ||
	    !check_comp_mask(attr->wc_flags, IBV_WC_STANDARD_FLAGS)) {
		errno = EOPNOTSUPP;
		return NULL;
	}
	if (!(attr->comp_mask & IBV_CQ_INIT_ATTR_MASK_FLAGS))
		wanted.flags = 0;
	if (!check_comp_mask(wanted.flags,
			     IBV_CREATE_CQ_ATTR_SINGLE_THREADED |
			     IBV_CREATE_CQ_ATTR_IGNORE_OVERRUN)) {
		errno = EOPNOTSUPP;
		return NULL;
	}
	if (attr->comp_mask & IBV_CQ_INIT_ATTR_MASK_PD) {
		errno = kf_parent_is_single(attr->parent_domain, &single);
		if (errno)
			return NULL;
		wanted.comp_mask &= ~IBV_CQ_INIT_ATTR_MASK_PD;
	}
	cq = kf_cq_create(context, &wanted);
	if (!cq)
		return NULL;
	cq->single = single ||
		     wanted.flags & IBV_CREATE_CQ_ATTR_SINGLE_THREADED;
	cq_ex = &cq->vcq.cq_ex;
	cq_ex->start_poll = kf_start_poll;
	cq_ex->next_poll = kf_next_poll;
	cq_ex->end_poll = kf_end_poll;
	cq_ex->read_opcode = kf_read_opcode;
	cq_ex->read_vendor_err = kf_read_vendor_err;
	cq_ex->read_wc_flags = kf_read_wc_flags;
	if (attr->wc_flags & IBV_WC_EX_WITH_BYTE_LEN)
		cq_ex->read_byte_len = kf_read_byte_len;
	if (attr->wc_flags & IBV_WC_EX_WITH_IMM)
		cq_ex->read_imm_data = kf_read_imm_data;
	if (attr->wc_flags & IBV_WC_EX_WITH_QP_NUM)
		cq_ex->read_qp_num = kf_read_qp_num;
	if (attr->wc_flags & IBV_WC_EX_WITH_SRC_QP)
		cq_ex->read_src_qp = kf_read_src_qp;
	if (attr->wc_flags & IBV_WC_EX_WITH_SLID)
		cq_ex->read_slid = kf_read_slid;
	if (attr->wc_flags & IBV_WC_EX_WITH_SL)
		cq_ex->read_sl = kf_read_sl;
	if (attr->wc_flags & IBV_WC_EX_WITH_DLID_PATH_BITS)
		cq_ex->read_dlid_path_bits = kf_read_dlid_path_bits;
	return cq_ex;
}
