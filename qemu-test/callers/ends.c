// SPDX-License-Identifier: GPL-2.0
/*
 * Two ends with a QP each, and work requests of theirs.
 */

#define pr_fmt(fmt) KBUILD_MODNAME ": " fmt

#include <linux/delay.h>
#include <linux/slab.h>
#include <net/ipv6.h>
#include <rdma/ib_cache.h>

#include "callers.h"

/* Seconds for a work request. */
#define PATIENCE	30

#define QKEY	0x11223344

static void event(struct ib_event *event, void *context)
{
	struct end *end = context;

	set_bit(event->event, &end->events);
}

static int find_gid(struct end *end)
{
	struct ib_port_attr port;
	int ret;

	ret = ib_query_port(end->dev, 1, &port);
	if (ret)
		return ret;
	for (end->gid_index = 0; end->gid_index < port.gid_tbl_len;
	     end->gid_index++) {
		if (!rdma_query_gid(end->dev, 1, end->gid_index, &end->gid) &&
		    ipv6_addr_v4mapped((struct in6_addr *)end->gid.raw))
			return 0;
	}
	return -EADDRNOTAVAIL;
}

/**
 * way_to - the attributes of an address handle
 * @end: the end that uses it
 * @peer: where it leads
 * @attr: out: the attributes
 */
void way_to(const struct end *end, const struct end *peer,
	    struct rdma_ah_attr *attr)
{
	memset(attr, 0, sizeof(*attr));
	attr->type = RDMA_AH_ATTR_TYPE_ROCE;
	rdma_ah_set_port_num(attr, 1);
	rdma_ah_set_grh(attr, NULL, 0, end->gid_index, 64, 0);
	memcpy(attr->grh.dgid.raw, peer->gid.raw, sizeof(peer->gid.raw));
}

static int connect(struct end *end, const struct end *peer, bool to_rts)
{
	bool is_ud = end->qp->qp_type == IB_QPT_UD;
	struct ib_qp_attr attr = {
		.qp_state = IB_QPS_INIT,
		.port_num = 1,
		.qkey = QKEY,
		.qp_access_flags = IB_ACCESS_LOCAL_WRITE | REMOTE,
	};
	int ret;

	ret = ib_modify_qp(end->qp, &attr, IB_QP_STATE | IB_QP_PKEY_INDEX |
			   IB_QP_PORT |
			   (is_ud ? IB_QP_QKEY : IB_QP_ACCESS_FLAGS));
	if (ret)
		return ret;
	attr = (struct ib_qp_attr) {
		.qp_state = IB_QPS_RTR,
		.path_mtu = IB_MTU_1024,
		.dest_qp_num = peer->qp->qp_num,
		.rq_psn = 100,
		.max_dest_rd_atomic = 16,
		.min_rnr_timer = 1,
	};
	way_to(end, peer, &attr.ah_attr);
	ret = ib_modify_qp(end->qp, &attr, IB_QP_STATE | (is_ud ? 0 :
			   IB_QP_AV | IB_QP_PATH_MTU | IB_QP_DEST_QPN |
			   IB_QP_RQ_PSN | IB_QP_MAX_DEST_RD_ATOMIC |
			   IB_QP_MIN_RNR_TIMER));
	if (ret || !to_rts)
		return ret;
	attr = (struct ib_qp_attr) {
		.qp_state = IB_QPS_RTS,
		.sq_psn = 100,
		.timeout = 17,
		.retry_cnt = 7,
		.rnr_retry = 7,
		.max_rd_atomic = 16,
	};
	return ib_modify_qp(end->qp, &attr, IB_QP_STATE | IB_QP_SQ_PSN |
			    (is_ud ? 0 : IB_QP_TIMEOUT | IB_QP_RETRY_CNT |
			     IB_QP_RNR_RETRY | IB_QP_MAX_QP_RD_ATOMIC));
}

static int end_open(struct end *end, const struct setup *setup, bool with_srq)
{
	struct ib_srq_init_attr srq = {
		.event_handler = event,
		.srq_context = end,
		.attr = { .max_wr = NOTES, .max_sge = 2 },
	};
	struct ib_qp_init_attr init = {
		.event_handler = event,
		.qp_context = end,
		.cap = {
			.max_send_wr = NOTES,
			.max_recv_wr = NOTES,
			.max_send_sge = 4,
			.max_recv_sge = 4,
			.max_inline_data = 64,
		},
		.sq_sig_type = setup->signal_all ? IB_SIGNAL_ALL_WR :
			       IB_SIGNAL_REQ_WR,
		.qp_type = setup->type ? setup->type : IB_QPT_RC,
	};
	int ret;

	if (!ib_uses_virt_dma(end->dev))
		return -EOPNOTSUPP;
	ret = find_gid(end);
	if (ret)
		return ret;
	end->poll = setup->poll;
	end->memory = kzalloc(MEMORY, GFP_KERNEL);
	end->notes = kzalloc_objs(*end->notes, NOTES);
	if (!end->memory || !end->notes)
		return -ENOMEM;
	end->pd = ib_alloc_pd(end->dev, setup->pd_flags);
	if (IS_ERR(end->pd))
		return PTR_ERR(end->pd);
	end->cq = ib_alloc_cq(end->dev, end, 4 * NOTES, 0, setup->poll);
	if (IS_ERR(end->cq))
		return PTR_ERR(end->cq);
	if (with_srq) {
		end->srq = ib_create_srq(end->pd, &srq);
		if (IS_ERR(end->srq))
			return PTR_ERR(end->srq);
		init.srq = end->srq;
	}
	init.send_cq = end->cq;
	init.recv_cq = end->cq;
	end->qp = ib_create_qp(end->pd, &init);
	return PTR_ERR_OR_ZERO(end->qp);
}

/**
 * pair_open - makes both ends and connects them
 * @pair: both, with their devices
 * @setup: what they have
 *
 * Return: 0 or an error; pair_close() follows in any case.
 */
int pair_open(struct pair *pair, const struct setup *setup)
{
	int ret;

	ret = end_open(&pair->a, setup, false);
	if (!ret)
		ret = end_open(&pair->b, setup, setup->with_srq);
	if (!ret)
		ret = connect(&pair->a, &pair->b, true);
	if (!ret)
		ret = connect(&pair->b, &pair->a, !setup->in_rtr);
	return ret;
}

static void end_close(struct end *end)
{
	if (!IS_ERR_OR_NULL(end->qp)) {
		/* Waits for that event, which comes once. */
		if (end->qp->qp_type == IB_QPT_RC &&
		    !test_bit(IB_EVENT_QP_LAST_WQE_REACHED, &end->events))
			ib_drain_qp(end->qp);
		ib_destroy_qp(end->qp);
	}
	if (!IS_ERR_OR_NULL(end->srq))
		ib_destroy_srq(end->srq);
	if (!IS_ERR_OR_NULL(end->cq))
		ib_free_cq(end->cq);
	if (!IS_ERR_OR_NULL(end->pd))
		ib_dealloc_pd(end->pd);
	kfree(end->notes);
	kfree(end->memory);
}

/** pair_close - ends both ends */
void pair_close(struct pair *pair)
{
	end_close(&pair->a);
	end_close(&pair->b);
}

static void noted(struct ib_cq *cq, struct ib_wc *wc)
{
	struct note *note = container_of(wc->wr_cqe, struct note, cqe);

	note->wc = *wc;
	note->number = atomic_inc_return(&note->end->count);
	if (note->then)
		note->then(note);
	complete(&note->done);
}

/**
 * note_of - a note for a work request
 * @end: where it is posted
 *
 * Return: a note that no other work request has.
 */
struct note *note_of(struct end *end)
{
	struct note *note = &end->notes[end->used++ % NOTES];

	*note = (struct note) { .cqe.done = noted, .end = end };
	init_completion(&note->done);
	return note;
}

/**
 * wc_of - the entry of a work request
 * @note: its note
 *
 * Context: process; sleeps.
 * Return: the entry, or NULL if there is none after a while.
 */
const struct ib_wc *wc_of(struct note *note)
{
	unsigned long end = jiffies + PATIENCE * HZ;

	if (note->end->poll != IB_POLL_DIRECT)
		return wait_for_completion_timeout(&note->done, PATIENCE * HZ) ?
		       &note->wc : NULL;
	while (!try_wait_for_completion(&note->done)) {
		if (time_after(jiffies, end))
			return NULL;
		if (!ib_process_cq_direct(note->end->cq, -1))
			usleep_range(100, 200);
	}
	return &note->wc;
}

/** done_with - whether a work request completes, with this status */
bool done_with(struct note *note, enum ib_wc_status status)
{
	const struct ib_wc *wc = wc_of(note);

	if (!wc)
		pr_info("a work request does not complete\n");
	else if (wc->status != status)
		pr_info("the status is %s\n", ib_wc_status_msg(wc->status));
	return wc && wc->status == status;
}

/** has_event - whether an end gets this event */
bool has_event(struct end *end, enum ib_event_type event)
{
	int left = PATIENCE * 20;

	while (!test_bit(event, &end->events) && --left)
		msleep(50);
	return left;
}

/** post - posts a list of work requests; any context */
int post(struct end *end, const struct ib_send_wr *wr)
{
	return ib_post_send(end->qp, wr, NULL);
}

/** receive - posts a receive with its note; any context */
int receive(struct end *end, struct note *note, void *addr, u32 length)
{
	struct ib_sge sge = part(end, addr, length);
	struct ib_recv_wr wr = {
		.wr_cqe = &note->cqe,
		.sg_list = &sge,
		.num_sge = 1,
	};

	return end->srq ? ib_post_srq_recv(end->srq, &wr, NULL) :
	       ib_post_recv(end->qp, &wr, NULL);
}

/** part - an SGE of memory of the kernel */
struct ib_sge part(const struct end *end, void *addr, u32 length)
{
	return (struct ib_sge) {
		.addr = (uintptr_t)addr,
		.length = length,
		.lkey = end->pd->local_dma_lkey,
	};
}

/** fill - fills memory with bytes that holds() knows */
void fill(u8 *memory, size_t length, u8 seed)
{
	size_t i;

	for (i = 0; i < length; i++)
		memory[i] = i * 31 + (i >> 8) + seed;
}

/** holds - whether memory has the bytes of fill() */
bool holds(const u8 *memory, size_t length, u8 seed)
{
	size_t i;

	for (i = 0; i < length; i++)
		if (memory[i] != (u8)(i * 31 + (i >> 8) + seed))
			return false;
	return true;
}
