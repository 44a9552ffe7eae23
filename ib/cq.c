// SPDX-License-Identifier: GPL-2.0
/*
 * Completion queues.
 */

#include <linux/build_bug.h>
#include <rdma/uverbs_ioctl.h>

#include "kfabric_ib.h"

/* Entries that are taken from kfabric.ko in one call. */
#define KFIB_POLL	16

#define KFIB_SAME(name) \
	static_assert(KFABRIC_VERBS_WC_##name == IB_WC_##name)
#define KFIB_SAME_OP(name) \
	static_assert(KFABRIC_VERBS_OP_##name == IB_WC_##name)

KFIB_SAME(SUCCESS);
KFIB_SAME(LOC_LEN_ERR);
KFIB_SAME(LOC_QP_OP_ERR);
KFIB_SAME(LOC_PROT_ERR);
KFIB_SAME(WR_FLUSH_ERR);
KFIB_SAME(BAD_RESP_ERR);
KFIB_SAME(LOC_ACCESS_ERR);
KFIB_SAME(REM_INV_REQ_ERR);
KFIB_SAME(REM_ACCESS_ERR);
KFIB_SAME(REM_OP_ERR);
KFIB_SAME(RETRY_EXC_ERR);
KFIB_SAME(RNR_RETRY_EXC_ERR);
KFIB_SAME(GRH);
KFIB_SAME(WITH_IMM);
KFIB_SAME(WITH_INVALIDATE);
static_assert(KFABRIC_VERBS_WC_NETWORK_HDR_TYPE ==
	      (int)IB_WC_WITH_NETWORK_HDR_TYPE);
static_assert(KFABRIC_VERBS_NETWORK_IPV4 == (int)RDMA_NETWORK_IPV4);
static_assert(KFABRIC_VERBS_NETWORK_IPV6 == (int)RDMA_NETWORK_IPV6);

KFIB_SAME_OP(SEND);
KFIB_SAME_OP(RDMA_WRITE);
KFIB_SAME_OP(RDMA_READ);
KFIB_SAME_OP(COMP_SWAP);
KFIB_SAME_OP(FETCH_ADD);
KFIB_SAME_OP(LOCAL_INV);
KFIB_SAME_OP(REG_MR);
KFIB_SAME_OP(RECV);
KFIB_SAME_OP(RECV_RDMA_WITH_IMM);

static_assert(KFABRIC_VERBS_ARM_SOLICITED == IB_CQ_SOLICITED);
static_assert(KFABRIC_VERBS_ARM_NEXT == IB_CQ_NEXT_COMP);
static_assert(KFABRIC_VERBS_ARM_REPORT_MISSED == IB_CQ_REPORT_MISSED_EVENTS);

/**
 * kfib_cq_comp - call the completion handler of a CQ
 * @cookie: the struct ib_cq
 *
 * Context: process; a mutex of a QP may be held; must not sleep.
 */
void kfib_cq_comp(void *cookie)
{
	struct ib_cq *ibcq = cookie;

	if (ibcq->comp_handler)
		ibcq->comp_handler(ibcq, ibcq->cq_context);
}

/**
 * kfib_cq_error - report that a CQ was full when an entry came
 * @cookie: the struct ib_cq
 *
 * Context: process; a mutex of a QP may be held; must not sleep.
 */
void kfib_cq_error(void *cookie)
{
	struct ib_cq *ibcq = cookie;
	struct ib_event event = {
		.device = ibcq->device,
		.element.cq = ibcq,
		.event = IB_EVENT_CQ_ERR,
	};

	if (ibcq->event_handler)
		ibcq->event_handler(&event, ibcq->cq_context);
}

/* The entries that a CQ has when @cqe were asked for. */
static unsigned int kfib_cqe(const struct kfib_cq *cq,
			     const struct kfabric_verbs_map *map,
			     unsigned int cqe)
{
	return cq->is_mapped ? map->entries : cqe;
}

/*
 * Tells a program what to map of its CQ; a kernel caller gets no answer. Fails
 * with -EINVAL if the program has no room for the answer, without which it
 * cannot map the CQ.
 */
static int kfib_respond_cq(const struct kfabric_verbs_map *map,
			   struct ib_udata *udata)
{
	struct kfabric_ib_cq_resp resp = {
		.mmap_offset = map->offset,
		.mmap_size = map->size,
		.entries = map->entries,
	};

	if (!udata)
		return 0;
	if (resp.mmap_offset && udata->outlen < sizeof(resp))
		return -EINVAL;
	return ib_respond_udata(udata, resp);
}

/**
 * kfib_create_cq - create a CQ for a program or a kernel caller
 * @ibcq: the CQ
 * @attr: its size
 * @attrs: the program's call, with a struct kfabric_ib_create_cq or nothing;
 *         NULL for a kernel caller
 *
 * Context: process.
 * Return: 0; -EINVAL for no entries or more than there may be, and for a mapped
 * CQ without room for the answer; -EOPNOTSUPP for any flag of the core and for
 * unknown flags of struct kfabric_ib_create_cq; -EFAULT, -ENOMEM.
 */
int kfib_create_cq(struct ib_cq *ibcq, const struct ib_cq_init_attr *attr,
		   struct uverbs_attr_bundle *attrs)
{
	struct ib_udata *udata = attrs ? &attrs->driver_udata : NULL;
	struct kfib_cq *cq = to_kfib_cq(ibcq);
	struct kfabric_ib_create_cq req = {};
	struct kfabric_verbs_cq *created;
	struct kfabric_verbs_map map;
	int ret;

	if (udata && udata->inlen) {
		ret = ib_copy_validate_udata_in(udata, req, reserved);
		if (ret)
			return ret;
	}
	if (attr->flags || req.reserved || req.flags & ~KFABRIC_IB_CQ_MAPPED)
		return -EOPNOTSUPP;
	cq->is_mapped = req.flags & KFABRIC_IB_CQ_MAPPED;
	created = kfabric_verbs_cq_create(to_kfib(ibcq->device)->device,
					  kfib_context_of(udata), attr->cqe,
					  cq->is_mapped, ibcq);
	if (IS_ERR(created))
		return PTR_ERR(created);
	cq->cq = created;
	kfabric_verbs_cq_map(created, &map);
	ibcq->cqe = kfib_cqe(cq, &map, attr->cqe);
	ret = kfib_respond_cq(&map, udata);
	if (ret)
		kfabric_verbs_cq_destroy(created);
	return ret;
}

/**
 * kfib_resize_user_cq - give the CQ of a program another size
 * @ibcq: the CQ
 * @cqe: the number of entries
 * @udata: the program's call, without input; a mapped CQ has other memory
 *         afterwards
 *
 * The program gets the answer before its CQ has the memory, so that a call that
 * fails changes nothing.
 *
 * Context: process.
 * Return: 0; -EINVAL for fewer entries than wait, none, or more than there may
 * be, and for a mapped CQ without room for the answer; -EFAULT, -ENOMEM.
 */
int kfib_resize_user_cq(struct ib_cq *ibcq, unsigned int cqe,
			struct ib_udata *udata)
{
	struct kfib_cq *cq = to_kfib_cq(ibcq);
	struct kfabric_verbs_cq_buf *buf;
	struct kfabric_verbs_map map;
	int ret;

	ret = ib_is_udata_in_empty(udata);
	if (ret)
		return ret;
	buf = kfabric_verbs_cq_buf_new(cq->cq, cqe, &map);
	if (IS_ERR(buf))
		return PTR_ERR(buf);
	ret = kfib_respond_cq(&map, udata);
	if (ret) {
		kfabric_verbs_cq_buf_free(buf);
		return ret;
	}
	ret = kfabric_verbs_cq_resize(cq->cq, buf);
	if (!ret)
		ibcq->cqe = kfib_cqe(cq, &map, cqe);
	return ret;
}

/**
 * kfib_destroy_cq - destroy a CQ that no QP has
 * @ibcq: the CQ
 * @udata: unused
 *
 * Context: process.
 * Return: 0.
 */
int kfib_destroy_cq(struct ib_cq *ibcq, struct ib_udata *udata)
{
	kfabric_verbs_cq_destroy(to_kfib_cq(ibcq)->cq);
	return 0;
}

/*
 * The QP of an entry of a program, for ib_uverbs_poll_cq(), which reads its
 * number and nothing else. Another thread may destroy the QP meanwhile, and
 * ib_uverbs_poll_cq() does not keep it. So the number is stored in the entry
 * itself, in bytes that a program never gets, and the result is where a QP
 * would be that has its number there.
 */
static struct ib_qp *kfib_number_of_qp(struct ib_wc *wc, u32 number)
{
	u32 *place = (u32 *)wc->smac;

	static_assert(IS_ALIGNED(offsetof(struct ib_wc, smac), sizeof(u32)));
	static_assert(sizeof_field(struct ib_wc, smac) >= sizeof(u32));
	*place = number;
	return container_of(place, struct ib_qp, qp_num);
}

static void kfib_fill_wc(const struct ib_cq *ibcq, struct ib_wc *wc,
			 const struct kfabric_verbs_wc *from)
{
	*wc = (struct ib_wc) {
		.wr_id = from->wr_id,
		.status = from->status,
		.opcode = from->opcode,
		.vendor_err = from->vendor_err,
		.byte_len = from->byte_len,
		.qp = from->qp,
		.src_qp = from->src_qp,
		.wc_flags = from->flags,
		.port_num = KFIB_PORT,
		.network_hdr_type = from->network_hdr_type,
	};
	if (from->flags & IB_WC_WITH_IMM)
		wc->ex.imm_data = cpu_to_be32(from->imm_or_key);
	else
		wc->ex.invalidate_rkey = from->imm_or_key;
	if (ibcq->uobject) {
		wc->qp = kfib_number_of_qp(wc, from->qpn);
		/*
		 * The core passes the flags on; those of programs have other
		 * numbers.
		 */
		wc->wc_flags = from->flags & (IB_WC_GRH | IB_WC_WITH_IMM);
		if (from->flags & IB_WC_WITH_INVALIDATE)
			wc->wc_flags |= KFABRIC_IB_WC_WITH_INV;
	}
}

/**
 * kfib_poll_cq - take entries from a CQ
 * @ibcq: the CQ
 * @count: how many, at most
 * @wc: out: the entries
 *
 * Context: any but NMIs.
 * Return: how many there were; -EOPNOTSUPP for a mapped CQ, which its program
 * reads itself.
 */
int kfib_poll_cq(struct ib_cq *ibcq, int count, struct ib_wc *wc)
{
	struct kfabric_verbs_wc taken[KFIB_POLL];
	int done = 0;

	if (to_kfib_cq(ibcq)->is_mapped)
		return -EOPNOTSUPP;
	while (done < count) {
		u32 most = min(count - done, KFIB_POLL), found, i;

		found = kfabric_verbs_cq_poll(to_kfib_cq(ibcq)->cq, most,
					      taken);
		for (i = 0; i < found; i++)
			kfib_fill_wc(ibcq, &wc[done++], &taken[i]);
		if (found < most)
			break;
	}
	return done;
}

/**
 * kfib_req_notify_cq - arm a CQ
 * @ibcq: the CQ
 * @flags: for which entry
 *
 * Context: any but NMIs.
 * Return: 1 if entries wait and @flags asks for that, otherwise 0; -EOPNOTSUPP
 * for unknown flags.
 */
int kfib_req_notify_cq(struct ib_cq *ibcq, enum ib_cq_notify_flags flags)
{
	return kfabric_verbs_cq_arm(to_kfib_cq(ibcq)->cq, flags);
}
