// SPDX-License-Identifier: GPL-2.0
/*
 * Draining, shared receive queues and events, as kernel callers use them.
 */

#define pr_fmt(fmt) KBUILD_MODNAME ": " fmt

#include "callers.h"

static struct ib_send_wr empty_send(struct note *note)
{
	return (struct ib_send_wr) {
		.wr_cqe = &note->cqe,
		.opcode = IB_WR_SEND,
		.send_flags = IB_SEND_SIGNALED,
	};
}

/* Whether a work request has completed already, with this status. */
static bool has_ended(struct note *note, enum ib_wc_status status)
{
	return try_wait_for_completion(&note->done) &&
	       note->wc.status == status;
}

/* The peer has no receive, so the sends wait; all are flushed. */
static int drained(struct pair *pair)
{
	struct note *sends[8], *receives[8];
	struct ib_send_wr wr;
	int i;

	for (i = 0; i < 8; i++) {
		receives[i] = note_of(&pair->a);
		CHECK_EQ(receive(&pair->a, receives[i], pair->a.memory, 100), 0);
		sends[i] = note_of(&pair->a);
		wr = empty_send(sends[i]);
		CHECK_EQ(post(&pair->a, &wr), 0);
	}
	ib_drain_qp(pair->a.qp);
	for (i = 0; i < 8; i++) {
		CHECK(has_ended(sends[i], IB_WC_WR_FLUSH_ERR));
		CHECK(has_ended(receives[i], IB_WC_WR_FLUSH_ERR));
		CHECK(!i || sends[i]->number > sends[i - 1]->number);
		CHECK(!i || receives[i]->number > receives[i - 1]->number);
	}
	return 0;
}

static int drained_srq(struct pair *pair)
{
	struct note *left = note_of(&pair->b);

	CHECK_EQ(receive(&pair->b, left, pair->b.memory, 100), 0);
	ib_drain_qp(pair->b.qp);
	CHECK(has_event(&pair->b, IB_EVENT_QP_LAST_WQE_REACHED));
	/* Other QPs may use it. */
	CHECK(!completion_done(&left->done));
	return 0;
}

static int srq_limit(struct pair *pair)
{
	struct ib_srq_attr attr = { .srq_limit = 2 };
	struct note *receives[3], *sent;
	struct ib_send_wr wr;
	int i;

	for (i = 0; i < 3; i++) {
		receives[i] = note_of(&pair->b);
		CHECK_EQ(receive(&pair->b, receives[i], pair->b.memory, 100), 0);
	}
	CHECK_EQ(ib_modify_srq(pair->b.srq, &attr, IB_SRQ_LIMIT), 0);
	CHECK_EQ(ib_query_srq(pair->b.srq, &attr), 0);
	CHECK_EQ(attr.srq_limit, 2);
	for (i = 0; i < 2; i++) {
		CHECK(!test_bit(IB_EVENT_SRQ_LIMIT_REACHED, &pair->b.events));
		sent = note_of(&pair->a);
		wr = empty_send(sent);
		CHECK_EQ(post(&pair->a, &wr), 0);
		CHECK(done_with(sent, IB_WC_SUCCESS));
		CHECK(done_with(receives[i], IB_WC_SUCCESS));
	}
	CHECK(has_event(&pair->b, IB_EVENT_SRQ_LIMIT_REACHED));
	CHECK_EQ(ib_query_srq(pair->b.srq, &attr), 0);
	CHECK_EQ(attr.srq_limit, 0);
	return 0;
}

/* A message to a QP in RTR. */
static int established(struct pair *pair)
{
	struct note *sent = note_of(&pair->a), *received = note_of(&pair->b);
	struct ib_send_wr wr = empty_send(sent);

	CHECK_EQ(receive(&pair->b, received, pair->b.memory, 100), 0);
	CHECK_EQ(post(&pair->a, &wr), 0);
	CHECK(done_with(received, IB_WC_SUCCESS));
	CHECK(done_with(sent, IB_WC_SUCCESS));
	CHECK(has_event(&pair->b, IB_EVENT_COMM_EST));
	return 0;
}

/* The peer names memory that it may not access. */
static int access_error(struct pair *pair)
{
	struct note *note = note_of(&pair->a);
	struct ib_sge sge = part(&pair->a, pair->a.memory, 8);
	struct ib_rdma_wr wr = {
		.wr = {
			.wr_cqe = &note->cqe,
			.sg_list = &sge,
			.num_sge = 1,
			.opcode = IB_WR_RDMA_WRITE,
		},
		.remote_addr = (uintptr_t)pair->b.memory,
		/* A key for the owner alone. */
		.rkey = pair->b.pd->local_dma_lkey,
	};

	CHECK_EQ(post(&pair->a, &wr.wr), 0);
	CHECK(done_with(note, IB_WC_REM_ACCESS_ERR));
	CHECK(has_event(&pair->b, IB_EVENT_QP_ACCESS_ERR));
	return 0;
}

const struct test queue_tests[] = {
	{ "drain-softirq", { .poll = IB_POLL_SOFTIRQ }, drained },
	{ "drain-direct", { .poll = IB_POLL_DIRECT }, drained },
	{ "drain-srq", { .poll = IB_POLL_SOFTIRQ, .with_srq = true },
	  drained_srq },
	{ "srq-limit", { .poll = IB_POLL_WORKQUEUE, .with_srq = true },
	  srq_limit },
	{ "established", { .poll = IB_POLL_SOFTIRQ, .in_rtr = true },
	  established },
	{ "access-error", { .poll = IB_POLL_SOFTIRQ }, access_error },
	{}
};
