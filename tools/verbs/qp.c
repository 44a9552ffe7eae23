// SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause
/*
 * Queue pairs.
 */

#include <errno.h>
#include <stdlib.h>

#include "kfabric.h"

struct ibv_qp *kf_create_qp_ex(struct ibv_context *context,
			       struct ibv_qp_init_attr_ex *attr)
{
	bool ops = attr->comp_mask & IBV_QP_INIT_ATTR_SEND_OPS_FLAGS;
	struct ibv_qp_init_attr_ex wanted = *attr;
	struct kf_qp *qp;
	int ret = 0;

	/* The commands of libibverbs do not know this flag. */
	wanted.comp_mask &= ~IBV_QP_INIT_ATTR_SEND_OPS_FLAGS;
	if (!check_comp_mask(wanted.comp_mask,
			     IBV_QP_INIT_ATTR_PD |
			     IBV_QP_INIT_ATTR_CREATE_FLAGS)) {
		errno = EOPNOTSUPP;
		return NULL;
	}
	qp = calloc(1, sizeof(*qp));
	if (!qp)
		return NULL;
	pthread_mutex_init(&qp->wrs.lock, NULL);
	ret = kf_cmd_create_qp(context, &qp->vqp, &wanted);
	if (ret)
		goto err_free;
	qp->cap = wanted.cap;
	if (ops) {
		ret = kf_wrs_init(qp, attr->send_ops_flags);
		if (ret)
			goto err_destroy;
	}
	attr->cap = wanted.cap;
	return &qp->vqp.qp;

err_destroy:
	ibv_cmd_destroy_qp(&qp->vqp.qp);
err_free:
	kf_wrs_free(qp);
	free(qp);
	errno = ret;
	return NULL;
}

struct ibv_qp *kf_create_qp(struct ibv_pd *pd, struct ibv_qp_init_attr *attr)
{
	struct ibv_qp_init_attr_ex attr_ex = {
		.qp_context = attr->qp_context,
		.send_cq = attr->send_cq,
		.recv_cq = attr->recv_cq,
		.srq = attr->srq,
		.cap = attr->cap,
		.qp_type = attr->qp_type,
		.sq_sig_all = attr->sq_sig_all,
		.comp_mask = IBV_QP_INIT_ATTR_PD,
		.pd = pd,
	};
	struct ibv_qp *qp = kf_create_qp_ex(pd->context, &attr_ex);

	if (qp)
		attr->cap = attr_ex.cap;
	return qp;
}

int kf_query_qp(struct ibv_qp *qp, struct ibv_qp_attr *attr, int attr_mask,
		struct ibv_qp_init_attr *init_attr)
{
	struct ibv_query_qp cmd;

	return ibv_cmd_query_qp(qp, attr, attr_mask, init_attr, &cmd,
				sizeof(cmd));
}

int kf_modify_qp(struct ibv_qp *qp, struct ibv_qp_attr *attr, int attr_mask)
{
	struct ibv_modify_qp cmd = {};

	return ibv_cmd_modify_qp(qp, attr, attr_mask, &cmd, sizeof(cmd));
}

int kf_destroy_qp(struct ibv_qp *ibqp)
{
	struct kf_qp *qp = to_kf_qp(ibqp);
	int ret;

	ret = ibv_cmd_destroy_qp(ibqp);
	if (ret)
		return ret;
	kf_cq_remove(ibqp->recv_cq, ibqp->qp_num);
	if (ibqp->send_cq != ibqp->recv_cq)
		kf_cq_remove(ibqp->send_cq, ibqp->qp_num);
	kf_wrs_free(qp);
	free(qp);
	return 0;
}
