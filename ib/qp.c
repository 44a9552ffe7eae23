// SPDX-License-Identifier: GPL-2.0
/*
 * Queue pairs and address handles.
 */

#include <rdma/ib_addr.h>
#include <rdma/uverbs_ioctl.h>

#include "kfabric_ib.h"

static_assert(KFABRIC_VERBS_EVENT_QP_FATAL == (int)IB_EVENT_QP_FATAL);
static_assert(KFABRIC_VERBS_EVENT_COMM_EST == (int)IB_EVENT_COMM_EST);
static_assert(KFABRIC_VERBS_EVENT_SQ_DRAINED == (int)IB_EVENT_SQ_DRAINED);
static_assert(KFABRIC_VERBS_EVENT_ACCESS_ERR == (int)IB_EVENT_QP_ACCESS_ERR);
static_assert(KFABRIC_VERBS_EVENT_LAST_WQE ==
	      (int)IB_EVENT_QP_LAST_WQE_REACHED);
static_assert(KFABRIC_VERBS_QP_STATE == (int)IB_QP_STATE);
static_assert(KFABRIC_VERBS_QP_GSI == (int)IB_QPT_GSI);
static_assert(KFABRIC_VERBS_QP_RC == (int)IB_QPT_RC);
static_assert(KFABRIC_VERBS_QP_UD == (int)IB_QPT_UD);

/* The attributes that kfib_modify_qp() keeps for queries. */
#define KFIB_QP_KEPT	(IB_QP_ACCESS_FLAGS | IB_QP_PKEY_INDEX | IB_QP_PORT | \
			 IB_QP_QKEY | IB_QP_AV | IB_QP_PATH_MTU | \
			 IB_QP_TIMEOUT | IB_QP_RETRY_CNT | IB_QP_RNR_RETRY | \
			 IB_QP_RQ_PSN | IB_QP_MAX_QP_RD_ATOMIC | \
			 IB_QP_MIN_RNR_TIMER | IB_QP_SQ_PSN | \
			 IB_QP_MAX_DEST_RD_ATOMIC | IB_QP_DEST_QPN | \
			 IB_QP_EN_SQD_ASYNC_NOTIFY)

/*
 * Translates an address vector. The core has found the GID of the source, and
 * keeps it while the caller has the attributes. It sets the hop limit to that
 * of the route, as kfabric.ko does for each packet.
 */
static int kfib_av(const struct rdma_ah_attr *attr, struct kfabric_verbs_av *av)
{
	if (!(attr->ah_flags & IB_AH_GRH) || !attr->grh.sgid_attr)
		return -EINVAL;
	memcpy(av->sgid, attr->grh.sgid_attr->gid.raw, sizeof(av->sgid));
	memcpy(av->dgid, attr->grh.dgid.raw, sizeof(av->dgid));
	av->traffic_class = attr->grh.traffic_class;
	return 0;
}

/**
 * kfib_create_ah - create an address handle
 * @ibah: the handle
 * @init_attr: its attributes
 * @udata: no driver data
 *
 * A work request that uses it finds the path.
 *
 * Context: any but NMIs; process for a program.
 * Return: 0; -EINVAL without a GRH; -EOPNOTSUPP for a multicast address;
 * -ENOMEM if the user has no more memory of the kernel.
 */
int kfib_create_ah(struct ib_ah *ibah, struct rdma_ah_init_attr *init_attr,
		   struct ib_udata *udata)
{
	struct rdma_ah_attr *attr = init_attr->ah_attr;
	int ret;

	ret = ib_no_udata_io(udata);
	if (ret)
		return ret;
	if (rdma_is_multicast_addr((struct in6_addr *)attr->grh.dgid.raw))
		return -EOPNOTSUPP;
	ret = kfib_av(attr, &to_kfib_ah(ibah)->av);
	if (ret)
		return ret;
	return kfabric_verbs_pd_charge_ah(to_kfib_pd(ibah->pd)->pd);
}

/**
 * kfib_destroy_ah - destroy an address handle
 * @ibah: the handle
 * @flags: whether the caller may sleep; this does not
 *
 * Context: any but NMIs.
 * Return: 0.
 */
int kfib_destroy_ah(struct ib_ah *ibah, u32 flags)
{
	kfabric_verbs_pd_uncharge_ah(to_kfib_pd(ibah->pd)->pd);
	return 0;
}

/**
 * kfib_create_qp - create a QP
 * @ibqp: the QP
 * @attr: its attributes; out: its capacities
 * @udata: no driver data
 *
 * Context: process.
 * Return: 0; -EOPNOTSUPP for another type than RC, UD and GSI, and for flags;
 * the errors of kfabric_verbs_qp_create().
 */
int kfib_create_qp(struct ib_qp *ibqp, struct ib_qp_init_attr *attr,
		   struct ib_udata *udata)
{
	struct kfib_qp *qp = to_kfib_qp(ibqp);
	struct kfabric_verbs_qp_init init;
	struct kfabric_verbs_qp *handle;
	int ret;

	/* QPs of other types need not have both CQs. */
	if (attr->qp_type != IB_QPT_RC && attr->qp_type != IB_QPT_UD &&
	    attr->qp_type != IB_QPT_GSI)
		return -EOPNOTSUPP;
	if (!attr->send_cq || !attr->recv_cq)
		return -EINVAL;
	if (attr->create_flags)
		return -EOPNOTSUPP;
	ret = ib_no_udata_io(udata);
	if (ret)
		return ret;

	init = (struct kfabric_verbs_qp_init) {
		.send_cq = to_kfib_cq(attr->send_cq)->cq,
		.recv_cq = to_kfib_cq(attr->recv_cq)->cq,
		.srq = attr->srq ? to_kfib_srq(attr->srq)->srq : NULL,
		.cookie = ibqp,
		.type = attr->qp_type,
		.signal_all = attr->sq_sig_type == IB_SIGNAL_ALL_WR,
		.max_send_wr = attr->cap.max_send_wr,
		.max_recv_wr = attr->cap.max_recv_wr,
		.max_send_sge = attr->cap.max_send_sge,
		.max_recv_sge = attr->cap.max_recv_sge,
		.max_inline = attr->cap.max_inline_data,
	};
	mutex_init(&qp->lock);
	spin_lock_init(&qp->attr_lock);
	handle = kfabric_verbs_qp_create(to_kfib_pd(ibqp->pd)->pd, &init);
	if (IS_ERR(handle)) {
		mutex_destroy(&qp->lock);
		return PTR_ERR(handle);
	}
	qp->qp = handle;
	ibqp->qp_num = kfabric_verbs_qp_number(handle);
	attr->cap.max_send_wr = init.max_send_wr;
	attr->cap.max_inline_data = init.max_inline;
	attr->cap.max_recv_wr = init.max_recv_wr;
	attr->cap.max_recv_sge = init.max_recv_sge;
	qp->attr.cap = attr->cap;
	qp->sig_type = attr->sq_sig_type;
	return 0;
}

/**
 * kfib_destroy_qp - destroy a QP
 * @ibqp: the QP
 * @udata: no driver data
 *
 * Context: process; waits for a run of the QP.
 * Return: 0.
 */
int kfib_destroy_qp(struct ib_qp *ibqp, struct ib_udata *udata)
{
	struct kfib_qp *qp = to_kfib_qp(ibqp);

	kfabric_verbs_qp_destroy(qp->qp);
	mutex_destroy(&qp->lock);
	return 0;
}

/* Keeps the attributes in the mask for a query. */
static void kfib_keep_attr(struct kfib_qp *qp, const struct ib_qp_attr *from,
			   int mask)
{
	struct ib_qp_attr *to = &qp->attr;

	if (mask & IB_QP_ACCESS_FLAGS)
		to->qp_access_flags = from->qp_access_flags;
	if (mask & IB_QP_PKEY_INDEX)
		to->pkey_index = from->pkey_index;
	if (mask & IB_QP_PORT)
		to->port_num = from->port_num;
	if (mask & IB_QP_QKEY)
		to->qkey = from->qkey;
	if (mask & IB_QP_AV) {
		to->ah_attr = from->ah_attr;
		/* The core keeps the GID only during the call. */
		to->ah_attr.grh.sgid_attr = NULL;
	}
	if (mask & IB_QP_PATH_MTU)
		to->path_mtu = from->path_mtu;
	if (mask & IB_QP_TIMEOUT)
		to->timeout = from->timeout;
	if (mask & IB_QP_RETRY_CNT)
		to->retry_cnt = from->retry_cnt;
	if (mask & IB_QP_RNR_RETRY)
		to->rnr_retry = from->rnr_retry;
	if (mask & IB_QP_RQ_PSN)
		to->rq_psn = from->rq_psn;
	if (mask & IB_QP_MAX_QP_RD_ATOMIC)
		to->max_rd_atomic = min(from->max_rd_atomic,
					KFABRIC_VERBS_MAX_RD_ATOMIC);
	if (mask & IB_QP_MIN_RNR_TIMER)
		to->min_rnr_timer = from->min_rnr_timer;
	if (mask & IB_QP_SQ_PSN)
		to->sq_psn = from->sq_psn;
	if (mask & IB_QP_MAX_DEST_RD_ATOMIC)
		to->max_dest_rd_atomic = from->max_dest_rd_atomic;
	if (mask & IB_QP_DEST_QPN)
		to->dest_qp_num = from->dest_qp_num;
	if (mask & IB_QP_EN_SQD_ASYNC_NOTIFY)
		to->en_sqd_async_notify = from->en_sqd_async_notify;
}

/* The attributes of a new QP, but for its capacities. */
static void kfib_forget_attr(struct kfib_qp *qp)
{
	struct ib_qp_cap cap = qp->attr.cap;

	memset(&qp->attr, 0, sizeof(qp->attr));
	qp->attr.cap = cap;
}

/* A state change; the QP's lock is held. */
static int kfib_do_modify(struct kfib_qp *qp, const struct ib_qp_attr *attr,
			  int mask)
{
	bool draining;
	enum ib_qp_state now = kfabric_verbs_qp_state(qp->qp, &draining);
	enum ib_qp_state cur = mask & IB_QP_CUR_STATE ? attr->cur_qp_state : now;
	enum ib_qp_state next = mask & IB_QP_STATE ? attr->qp_state : cur;
	struct kfabric_verbs_qp_attr to = {
		.state = next,
		.cur_state = attr->cur_qp_state,
		.path_mtu = attr->path_mtu,
		.qkey = attr->qkey,
		.rq_psn = attr->rq_psn,
		.sq_psn = attr->sq_psn,
		.dest_qpn = attr->dest_qp_num,
		.access = attr->qp_access_flags,
		.pkey_index = attr->pkey_index,
		.port = attr->port_num,
		.drain_event = mask & IB_QP_EN_SQD_ASYNC_NOTIFY ?
			       attr->en_sqd_async_notify : 0,
		.max_rd_atomic = attr->max_rd_atomic,
		.max_dest_rd_atomic = attr->max_dest_rd_atomic,
		.min_rnr_timer = attr->min_rnr_timer,
		.timeout = attr->timeout,
		.retry_cnt = attr->retry_cnt,
		.rnr_retry = attr->rnr_retry,
	};
	int ret;

	if (!ib_modify_qp_is_ok(cur, next, qp->ibqp.qp_type, mask))
		return -EINVAL;
	if (mask & IB_QP_AV) {
		ret = kfib_av(&attr->ah_attr, &to.av);
		if (ret)
			return ret;
	}
	ret = kfabric_verbs_qp_modify(qp->qp, &to, mask);
	if (ret)
		return ret;
	spin_lock(&qp->attr_lock);
	if (next == IB_QPS_RESET)
		kfib_forget_attr(qp);
	else
		kfib_keep_attr(qp, attr, mask & KFIB_QP_KEPT);
	spin_unlock(&qp->attr_lock);
	return 0;
}

/**
 * kfib_modify_qp - change the state and attributes of a QP
 * @ibqp: the QP
 * @attr: the attributes
 * @mask: which of them
 * @udata: no driver data
 *
 * Programs give a QP every right that verbs defines. Those that no QP of the
 * device has grant the peer nothing.
 *
 * Context: process.
 * Return: 0; -EOPNOTSUPP for attributes that no QP has, -EINVAL for a
 * transition that is not allowed and for unknown rights, and the errors of
 * kfabric_verbs_qp_modify().
 */
int kfib_modify_qp(struct ib_qp *ibqp, struct ib_qp_attr *attr, int mask,
		   struct ib_udata *udata)
{
	struct kfib_qp *qp = to_kfib_qp(ibqp);
	int ret;

	if (mask & ~IB_QP_ATTR_STANDARD_BITS)
		return -EOPNOTSUPP;
	if (mask & IB_QP_ACCESS_FLAGS &&
	    attr->qp_access_flags & ~IB_ACCESS_SUPPORTED)
		return -EINVAL;
	ret = ib_no_udata_io(udata);
	if (ret)
		return ret;
	mutex_lock(&qp->lock);
	ret = kfib_do_modify(qp, attr, mask);
	mutex_unlock(&qp->lock);
	return ret;
}

/**
 * kfib_query_qp - query the attributes of a QP
 * @ibqp: the QP
 * @attr: out: its attributes, as they were set; its state, as it is
 * @mask: not used; all attributes are stored
 * @init_attr: out: the attributes with which it was created
 *
 * Any user may ask for any QP (RDMA_NLDEV_CMD_RES_GET). A task that does not run
 * must not keep the owner waiting, so no lock is held that it may sleep with.
 *
 * Context: process.
 * Return: 0.
 */
int kfib_query_qp(struct ib_qp *ibqp, struct ib_qp_attr *attr, int mask,
		  struct ib_qp_init_attr *init_attr)
{
	struct kfib_qp *qp = to_kfib_qp(ibqp);
	bool draining;

	spin_lock(&qp->attr_lock);
	*attr = qp->attr;
	spin_unlock(&qp->attr_lock);
	attr->qp_state = kfabric_verbs_qp_state(qp->qp, &draining);
	attr->sq_draining = draining;
	attr->cur_qp_state = attr->qp_state;
	*init_attr = (struct ib_qp_init_attr) {
		.qp_context = ibqp->qp_context,
		.event_handler = ibqp->event_handler,
		.send_cq = ibqp->send_cq,
		.recv_cq = ibqp->recv_cq,
		.srq = ibqp->srq,
		.cap = attr->cap,
		.sq_sig_type = qp->sig_type,
		.qp_type = ibqp->qp_type,
		.port_num = KFIB_PORT,
	};
	return 0;
}

/**
 * kfib_qp_event - report an event of a QP
 * @cookie: the QP
 * @event: of enum ib_event_type
 *
 * Context: process, no lock held.
 */
void kfib_qp_event(void *cookie, u32 event)
{
	struct ib_qp *ibqp = cookie;
	struct ib_event ib_event = {
		.device = ibqp->device,
		.element.qp = ibqp,
		.event = event,
	};

	if (ibqp->event_handler)
		ibqp->event_handler(&ib_event, ibqp->qp_context);
}
