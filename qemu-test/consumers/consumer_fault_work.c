// SPDX-License-Identifier: GPL-2.0
/*
 * Each allocation fails in turn: deferred work of every type, and every transfer
 * that waits for a counter (KFI_TRIGGER).
 */

#include "fault_posts.h"

/* What the peer sends to a receive of the first endpoint. */
#define BYTES	"bytes"

/* Queues deferred work of a type, which starts with the next addition to the counter. */
static int queue(struct faults_world *w, enum kfi_op_type type)
{
	struct kfi_msg_fetch fetch = { .msg_iov = &w->result, .iov_count = 1 };

	w->work = (struct kfi_deferred_work) {
		.op_type = type,
		.triggering_cntr = w->trigger,
		.threshold = w->triggered + 1,
		.completion_cntr = w->done,
		.op.msg = &w->op.msg,
	};
	switch (type) {
	case KFI_OP_RECV:
	case KFI_OP_SEND:
		w->op.msg = (struct kfi_op_msg){ .ep = EP(w), .msg = message_of(w) };
		if (type == KFI_OP_RECV)
			w->op.msg.msg.addr = KFI_ADDR_UNSPEC;
		break;
	case KFI_OP_TRECV:
	case KFI_OP_TSEND:
		w->op.tagged = (struct kfi_op_tagged){ .ep = EP(w), .msg = tagged_of(w) };
		w->work.op.tagged = &w->op.tagged;
		if (type == KFI_OP_TRECV)
			w->op.tagged.msg.addr = KFI_ADDR_UNSPEC;
		break;
	case KFI_OP_READ:
	case KFI_OP_WRITE:
		w->op.rma = (struct kfi_op_rma){ .ep = EP(w), .msg = rma_of(w) };
		w->work.op.rma = &w->op.rma;
		break;
	case KFI_OP_ATOMIC:
		w->op.atomic = (struct kfi_op_atomic){
			.ep = EP(w), .msg = atomic_of(w, KFI_SUM),
		};
		w->work.op.atomic = &w->op.atomic;
		break;
	case KFI_OP_FETCH_ATOMIC:
		w->op.fetch_atomic = (struct kfi_op_fetch_atomic){
			.ep = EP(w), .msg = atomic_of(w, KFI_SUM), .fetch = fetch,
		};
		w->work.op.fetch_atomic = &w->op.fetch_atomic;
		break;
	case KFI_OP_COMPARE_ATOMIC:
		w->op.compare_atomic = (struct kfi_op_compare_atomic){
			.ep = EP(w), .msg = atomic_of(w, KFI_CSWAP), .fetch = fetch,
			.compare = { .msg_iov = &w->compare, .iov_count = 1 },
		};
		w->work.op.compare_atomic = &w->op.compare_atomic;
		break;
	case KFI_OP_CNTR_SET:
	case KFI_OP_CNTR_ADD:
		w->op.cntr = (struct kfi_op_cntr){ .cntr = w->done, .value = 1 };
		if (type == KFI_OP_CNTR_SET)
			w->op.cntr.value += kfi_cntr_read(w->done);
		w->work.op.cntr = &w->op.cntr;
		w->work.completion_cntr = NULL;
		break;
	}
	return kfi_control(&w->f.domain->fid, KFI_QUEUE_WORK, &w->work);
}

/* A function that makes a call, whose world is @w. */
#define POSTS(name, call) \
static int name(struct faults_world *w) \
{ \
	return call; \
}

POSTS(queue_recv, queue(w, KFI_OP_RECV))
POSTS(queue_send, queue(w, KFI_OP_SEND))
POSTS(queue_trecv, queue(w, KFI_OP_TRECV))
POSTS(queue_tsend, queue(w, KFI_OP_TSEND))
POSTS(queue_read, queue(w, KFI_OP_READ))
POSTS(queue_write, queue(w, KFI_OP_WRITE))
POSTS(queue_atomic, queue(w, KFI_OP_ATOMIC))
POSTS(queue_fetch_atomic, queue(w, KFI_OP_FETCH_ATOMIC))
POSTS(queue_compare_atomic, queue(w, KFI_OP_COMPARE_ATOMIC))
POSTS(queue_cntr_set, queue(w, KFI_OP_CNTR_SET))
POSTS(queue_cntr_add, queue(w, KFI_OP_CNTR_ADD))

/* The counter reaches the threshold of what waits. */
static void start(struct kunit *test, struct faults_world *w)
{
	w->triggered++;
	KUNIT_EXPECT_EQ(test, kfi_cntr_add(w->trigger, 1), 0);
}

/* Deferred work starts, and completes once. */
static void work_done(struct kunit *test, struct faults_world *w)
{
	u64 done = kfi_cntr_read(w->done) + 1;

	start(test, w);
	KUNIT_EXPECT_EQ(test, kfi_cntr_wait(w->done, done, LONG), 0);
	KUNIT_EXPECT_EQ(test, kfi_cntr_read(w->done), done);
	KUNIT_EXPECT_EQ(test, kfi_cntr_readerr(w->done), 0);
}

static void send_done(struct kunit *test, struct faults_world *w)
{
	work_done(test, w);
	completed(test, &w->ends[1], w, KFI_MSG | KFI_RECV, LENGTH);
}

static void tsend_done(struct kunit *test, struct faults_world *w)
{
	work_done(test, w);
	completed(test, &w->ends[1], w, KFI_TAGGED | KFI_RECV, LENGTH);
}

/* The message comes before the receive. */
static void recv_done(struct kunit *test, struct faults_world *w)
{
	KUNIT_ASSERT_EQ(test, kfi_inject(w->ends[1].ep, BYTES, sizeof(BYTES), w->ends[1].peer),
			0);
	work_done(test, w);
	KUNIT_EXPECT_STREQ(test, w->here, BYTES);
}

static void trecv_done(struct kunit *test, struct faults_world *w)
{
	KUNIT_ASSERT_EQ(test, kfi_tinject(w->ends[1].ep, BYTES, sizeof(BYTES), w->ends[1].peer,
					  TAG), 0);
	work_done(test, w);
	KUNIT_EXPECT_STREQ(test, w->here, BYTES);
}

static void deferred_work(struct kunit *test)
{
	static const struct faults_call calls[] = {
		{ "KFI_OP_RECV", NULL, queue_recv, recv_done },
		{ "KFI_OP_SEND", receive_posted, queue_send, send_done },
		{ "KFI_OP_TRECV", NULL, queue_trecv, trecv_done },
		{ "KFI_OP_TSEND", tagged_receive_posted, queue_tsend, tsend_done },
		{ "KFI_OP_READ", NULL, queue_read, work_done },
		{ "KFI_OP_WRITE", NULL, queue_write, work_done },
		{ "KFI_OP_ATOMIC", NULL, queue_atomic, work_done },
		{ "KFI_OP_FETCH_ATOMIC", NULL, queue_fetch_atomic, work_done },
		{ "KFI_OP_COMPARE_ATOMIC", NULL, queue_compare_atomic, work_done },
		{ "KFI_OP_CNTR_SET", NULL, queue_cntr_set, work_done },
		{ "KFI_OP_CNTR_ADD", NULL, queue_cntr_add, work_done },
	};

	sweep(test, calls, ARRAY_SIZE(calls));
}

#define FLAGS	(KFI_TRIGGER | KFI_COMPLETION)

/* The context of an operation that starts with the next addition to the counter. */
static void *next_time(struct faults_world *w)
{
	w->when.event_type = KFI_TRIGGER_THRESHOLD;
	w->when.trigger.threshold.cntr = w->trigger;
	w->when.trigger.threshold.threshold = w->triggered + 1;
	return &w->when;
}

static int trigger_message(struct faults_world *w,
			   ssize_t (*post)(struct kfid_ep *ep, const struct kfi_msg *msg,
					   u64 flags))
{
	struct kfi_msg msg = message_of(w);

	msg.context = next_time(w);
	return post(EP(w), &msg, FLAGS);
}

static int trigger_tagged(struct faults_world *w,
			  ssize_t (*post)(struct kfid_ep *ep, const struct kfi_msg_tagged *msg,
					  u64 flags))
{
	struct kfi_msg_tagged msg = tagged_of(w);

	msg.context = next_time(w);
	return post(EP(w), &msg, FLAGS);
}

static int trigger_rma(struct faults_world *w,
		       ssize_t (*post)(struct kfid_ep *ep, const struct kfi_msg_rma *msg,
				       u64 flags))
{
	struct kfi_msg_rma msg = rma_of(w);

	msg.context = next_time(w);
	return post(EP(w), &msg, FLAGS);
}

static int trigger_atomic(struct faults_world *w)
{
	struct kfi_msg_atomic msg = atomic_of(w, KFI_SUM);

	msg.context = next_time(w);
	return kfi_atomicmsg(EP(w), &msg, FLAGS);
}

static int trigger_fetch_atomic(struct faults_world *w)
{
	struct kfi_msg_atomic msg = atomic_of(w, KFI_SUM);

	msg.context = next_time(w);
	return kfi_fetch_atomicmsg(EP(w), &msg, &w->result, NULL, 1, FLAGS);
}

static int trigger_compare_atomic(struct faults_world *w)
{
	struct kfi_msg_atomic msg = atomic_of(w, KFI_CSWAP);

	msg.context = next_time(w);
	return kfi_compare_atomicmsg(EP(w), &msg, &w->compare, NULL, 1, &w->result, NULL, 1,
				     FLAGS);
}

POSTS(trigger_recv, trigger_message(w, kfi_recvmsg))
POSTS(trigger_send, trigger_message(w, kfi_sendmsg))
POSTS(trigger_trecv, trigger_tagged(w, kfi_trecvmsg))
POSTS(trigger_tsend, trigger_tagged(w, kfi_tsendmsg))
POSTS(trigger_read, trigger_rma(w, kfi_readmsg))
POSTS(trigger_write, trigger_rma(w, kfi_writemsg))

/* What waits starts, and completes with these flags. */
static void completes(struct kunit *test, struct faults_world *w, u64 flags, size_t len)
{
	start(test, w);
	completed(test, &w->ends[0], &w->when, flags, len);
}

static void triggered_recv(struct kunit *test, struct faults_world *w)
{
	KUNIT_ASSERT_EQ(test, kfi_inject(w->ends[1].ep, BYTES, sizeof(BYTES), w->ends[1].peer),
			0);
	completes(test, w, KFI_MSG | KFI_RECV, sizeof(BYTES));
}

static void triggered_trecv(struct kunit *test, struct faults_world *w)
{
	KUNIT_ASSERT_EQ(test, kfi_tinject(w->ends[1].ep, BYTES, sizeof(BYTES), w->ends[1].peer,
					  TAG), 0);
	completes(test, w, KFI_TAGGED | KFI_RECV, sizeof(BYTES));
}

static void triggered_send(struct kunit *test, struct faults_world *w)
{
	completes(test, w, KFI_MSG | KFI_SEND, LENGTH);
	completed(test, &w->ends[1], w, KFI_MSG | KFI_RECV, LENGTH);
}

static void triggered_tsend(struct kunit *test, struct faults_world *w)
{
	completes(test, w, KFI_TAGGED | KFI_SEND, LENGTH);
	completed(test, &w->ends[1], w, KFI_TAGGED | KFI_RECV, LENGTH);
}

#define COMPLETES(name, flags, len) \
static void name(struct kunit *test, struct faults_world *w) \
{ \
	completes(test, w, flags, len); \
}

COMPLETES(triggered_read, KFI_RMA | KFI_READ, 0)
COMPLETES(triggered_write, KFI_RMA | KFI_WRITE, 0)
COMPLETES(triggered_change, KFI_ATOMIC | KFI_WRITE, 0)
COMPLETES(triggered_fetch, KFI_ATOMIC | KFI_READ, 0)

static void triggered_operations(struct kunit *test)
{
	static const struct faults_call calls[] = {
		{ "kfi_recvmsg", NULL, trigger_recv, triggered_recv },
		{ "kfi_sendmsg", receive_posted, trigger_send, triggered_send },
		{ "kfi_trecvmsg", NULL, trigger_trecv, triggered_trecv },
		{ "kfi_tsendmsg", tagged_receive_posted, trigger_tsend, triggered_tsend },
		{ "kfi_readmsg", NULL, trigger_read, triggered_read },
		{ "kfi_writemsg", NULL, trigger_write, triggered_write },
		{ "kfi_atomicmsg", NULL, trigger_atomic, triggered_change },
		{ "kfi_fetch_atomicmsg", NULL, trigger_fetch_atomic, triggered_fetch },
		{ "kfi_compare_atomicmsg", NULL, trigger_compare_atomic, triggered_fetch },
	};

	sweep(test, calls, ARRAY_SIZE(calls));
}

CONSUMER("failing allocations of operations that wait",
	 KUNIT_CASE_SLOW(deferred_work),
	 KUNIT_CASE_SLOW(triggered_operations));
