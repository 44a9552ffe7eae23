// SPDX-License-Identifier: GPL-2.0
/*
 * Deferred work of every type. A consumer that has waited for the completion
 * counter can close all objects at once.
 */

#include <linux/uio.h>

#include <kfi/kfi_atomic.h>
#include <kfi/kfi_rma.h>
#include <kfi/kfi_trigger.h>

#include "pair.h"

#define RECEIVED	(KFI_TAGGED | KFI_RECV)
#define CAPS		(KFI_MSG | KFI_RMA | KFI_TAGGED | KFI_ATOMIC | KFI_TAGGED_RMA | KFI_TRIGGER)
#define KEY		7
#define LEN		300
#define TAG		5
#define ROUNDS		50

/**
 * struct world - two endpoints, a region of the second, and operations of the first
 * @f: their domain
 * @ends: the endpoints
 * @mr: the region: all of @there
 * @here: memory of the first
 * @there: memory of the second
 * @iov: @here
 * @piece: @there
 * @rma: a read or a write
 * @tagged: a tagged message
 * @operand: the first value of @here
 * @compare: the second value of @here
 * @result: the third value of @here
 * @value: the first value of @there
 * @atomic: an atomic on it
 * @fetch_atomic: the same
 * @compare_atomic: the same
 */
struct world {
	struct fixture			f;
	struct end			ends[2];
	struct kfid_mr			*mr;
	u64				*here;
	u64				*there;
	struct kvec			iov;
	struct kfi_rma_iov		piece;
	struct kfi_op_rma		rma;
	struct kfi_op_tagged		tagged;
	struct kfi_ioc			operand;
	struct kfi_ioc			compare;
	struct kfi_ioc			result;
	struct kfi_rma_ioc		value;
	struct kfi_op_atomic		atomic;
	struct kfi_op_fetch_atomic	fetch_atomic;
	struct kfi_op_compare_atomic	compare_atomic;
};

/* What the operations name. */
static void operations(struct world *w)
{
	struct kfid_ep *ep = w->ends[0].ep;
	struct kfi_msg_atomic atomic = {
		.msg_iov = &w->operand,
		.iov_count = 1,
		.addr = w->ends[0].peer,
		.rma_iov = &w->value,
		.rma_iov_count = 1,
		.datatype = KFI_UINT64,
		.op = KFI_SUM,
	};

	w->iov = (struct kvec){ w->here, LEN };
	w->piece = (struct kfi_rma_iov){ .len = LEN, .key = KEY };
	w->rma = (struct kfi_op_rma){
		.ep = ep,
		.msg = {
			.type = KFI_KVEC, .msg_iov = &w->iov, .iov_count = 1,
			.addr = w->ends[0].peer, .rma_iov = &w->piece, .rma_iov_count = 1,
			.context = w,
		},
	};
	w->tagged = (struct kfi_op_tagged){
		.ep = ep,
		.msg = {
			.type = KFI_KVEC, .msg_iov = &w->iov, .iov_count = 1,
			.addr = w->ends[0].peer, .tag = TAG,
		},
	};
	w->operand = (struct kfi_ioc){ &w->here[0], 1 };
	w->compare = (struct kfi_ioc){ &w->here[1], 1 };
	w->result = (struct kfi_ioc){ &w->here[2], 1 };
	w->value = (struct kfi_rma_ioc){ .count = 1, .key = KEY };
	w->atomic = (struct kfi_op_atomic){ .ep = ep, .msg = atomic };
	w->fetch_atomic = (struct kfi_op_fetch_atomic){
		.ep = ep, .msg = atomic, .fetch = { .msg_iov = &w->result, .iov_count = 1 },
	};
	atomic.op = KFI_CSWAP;
	w->compare_atomic = (struct kfi_op_compare_atomic){
		.ep = ep, .msg = atomic, .fetch = { .msg_iov = &w->result, .iov_count = 1 },
		.compare = { .msg_iov = &w->compare, .iov_count = 1 },
	};
}

static struct world *world_open(struct kunit *test)
{
	struct world *w = zeroed(test, sizeof(*w));

	pair_open_from(test, &w->f, entry_with(test, KFI_EP_RDM, CAPS), w->ends, 0);
	w->here = zeroed_page(test);
	w->there = zeroed_page(test);
	KUNIT_ASSERT_EQ(test, kfi_mr_reg(w->f.domain, w->there, PAGE_SIZE,
					 KFI_REMOTE_READ | KFI_REMOTE_WRITE, 0, KEY, 0, &w->mr,
					 NULL), 0);
	operations(w);
	return w;
}

static void world_close(struct kunit *test, struct world *w)
{
	pair_close(test, &w->f, w->ends);
}

/*
 * Queues @work for a counter of its own, makes it due, and waits for its
 * completion. Both counters are closed at once, whoever has executed it.
 */
static void complete_work(struct kunit *test, struct world *w, struct kfi_deferred_work *work)
{
	struct kfid_cntr *go = open_cntr(test, &w->f, KFI_WAIT_UNSPEC, NULL, NULL);
	struct kfid_cntr *done = open_cntr(test, &w->f, KFI_WAIT_UNSPEC, NULL, NULL);

	work->triggering_cntr = go;
	work->threshold = 1;
	work->completion_cntr = done;
	KUNIT_EXPECT_EQ(test, kfi_control(&w->f.domain->fid, KFI_QUEUE_WORK, work), 0);
	KUNIT_EXPECT_EQ(test, kfi_cntr_read(done), 0);
	kfi_cntr_add(go, 1);
	KUNIT_EXPECT_EQ(test, kfi_cntr_wait(done, 1, LONG), 0);
	CLOSE(test, &done->fid, &go->fid);
}

static void memory_is_written_and_read(struct kunit *test)
{
	struct world *w = world_open(test);
	struct kfi_deferred_work write = { .op_type = KFI_OP_WRITE };
	struct kfi_deferred_work read = { .op_type = KFI_OP_READ };
	int i;

	write.op.rma = &w->rma;
	read.op.rma = &w->rma;
	for (i = 0; i < ROUNDS; i++) {
		/* The bytes are those of the time at which it starts. */
		memset(w->here, i, LEN);
		complete_work(test, w, &write);
		KUNIT_EXPECT_MEMEQ(test, w->there, w->here, LEN);
		memset(w->there, ~i, LEN);
		complete_work(test, w, &read);
		KUNIT_EXPECT_MEMEQ(test, w->here, w->there, LEN);
	}
	/* Their completions are only those of the counters. */
	nothing(test, &w->ends[0]);
	nothing(test, &w->ends[1]);
	KUNIT_EXPECT_EQ(test, kfi_close(&w->mr->fid), 0);
	world_close(test, w);
}

static void a_tagged_message_is_sent(struct kunit *test)
{
	struct world *w = world_open(test);
	struct kfi_deferred_work send = { .op_type = KFI_OP_TSEND };
	int i;

	send.op.tagged = &w->tagged;
	for (i = 0; i < ROUNDS; i++) {
		memset(w->here, i, LEN);
		KUNIT_EXPECT_EQ(test, kfi_trecv(w->ends[1].ep, w->there, LEN, NULL,
						KFI_ADDR_UNSPEC, TAG, 0, w), 0);
		complete_work(test, w, &send);
		completed(test, &w->ends[1], w, RECEIVED, LEN);
		KUNIT_EXPECT_MEMEQ(test, w->there, w->here, LEN);
	}
	nothing(test, &w->ends[0]);
	KUNIT_EXPECT_EQ(test, kfi_close(&w->mr->fid), 0);
	world_close(test, w);
}

static void a_receive_is_posted(struct kunit *test)
{
	struct world *w = world_open(test);
	struct kfi_deferred_work receive = { .op_type = KFI_OP_TRECV };
	int i;

	receive.op.tagged = &w->tagged;
	w->tagged.ep = w->ends[1].ep;
	w->tagged.msg.addr = KFI_ADDR_UNSPEC;
	w->iov.iov_base = w->there;
	for (i = 0; i < ROUNDS; i++) {
		memset(w->here, i, LEN);
		KUNIT_EXPECT_EQ(test, kfi_tsend(w->ends[0].ep, w->here, LEN, NULL,
						w->ends[0].peer, TAG, w), 0);
		completed(test, &w->ends[0], w, KFI_TAGGED | KFI_SEND, 0);
		complete_work(test, w, &receive);
		KUNIT_EXPECT_MEMEQ(test, w->there, w->here, LEN);
	}
	nothing(test, &w->ends[1]);
	KUNIT_EXPECT_EQ(test, kfi_close(&w->mr->fid), 0);
	world_close(test, w);
}

static void values_are_changed(struct kunit *test)
{
	struct world *w = world_open(test);
	struct kfi_deferred_work atomic = { .op_type = KFI_OP_ATOMIC };
	struct kfi_deferred_work fetch = { .op_type = KFI_OP_FETCH_ATOMIC };
	struct kfi_deferred_work compare = { .op_type = KFI_OP_COMPARE_ATOMIC };
	int i;

	atomic.op.atomic = &w->atomic;
	fetch.op.fetch_atomic = &w->fetch_atomic;
	compare.op.compare_atomic = &w->compare_atomic;
	for (i = 0; i < ROUNDS; i++) {
		w->there[0] = i;
		w->here[0] = 1000;
		complete_work(test, w, &atomic);
		KUNIT_EXPECT_EQ(test, w->there[0], 1000 + i);
		complete_work(test, w, &fetch);
		KUNIT_EXPECT_EQ(test, w->there[0], 2000 + i);
		KUNIT_EXPECT_EQ(test, w->here[2], 1000 + i);
		w->here[1] = 2000 + i;
		w->here[0] = 3;
		complete_work(test, w, &compare);
		KUNIT_EXPECT_EQ(test, w->there[0], 3);
		KUNIT_EXPECT_EQ(test, w->here[2], 2000 + i);
	}
	nothing(test, &w->ends[0]);
	KUNIT_EXPECT_EQ(test, kfi_close(&w->mr->fid), 0);
	world_close(test, w);
}

/* The memory is that of a tagged receive: it works as the call does. */
static void tagged_rma_is_deferred(struct kunit *test)
{
	struct world *w = world_open(test);
	struct kfi_deferred_work write = { .op_type = KFI_OP_WRITE };
	struct kfi_deferred_work read = { .op_type = KFI_OP_READ };
	struct kfid_cntr *go, *done;

	write.op.rma = &w->rma;
	read.op.rma = &w->rma;
	w->rma.flags = KFI_TAGGED;
	memset(w->here, 't', LEN);
	KUNIT_EXPECT_EQ(test, kfi_trecv(w->ends[1].ep, w->there, LEN, NULL, KFI_ADDR_UNSPEC, KEY,
					0, w), 0);
	complete_work(test, w, &write);
	completed(test, &w->ends[1], w, RECEIVED | KFI_RMA | KFI_WRITE, LEN);
	KUNIT_EXPECT_MEMEQ(test, w->there, w->here, LEN);
	memset(w->there, 'u', LEN);
	KUNIT_EXPECT_EQ(test, kfi_trecv(w->ends[1].ep, w->there, LEN, NULL, KFI_ADDR_UNSPEC, KEY,
					0, w), 0);
	complete_work(test, w, &read);
	completed(test, &w->ends[1], w, RECEIVED | KFI_RMA | KFI_READ, LEN);
	KUNIT_EXPECT_MEMEQ(test, w->here, w->there, LEN);
	nothing(test, &w->ends[0]);
	/* Without a receive it fails, which the counter and an error entry tell. */
	go = open_cntr(test, &w->f, KFI_WAIT_UNSPEC, NULL, NULL);
	done = open_cntr(test, &w->f, KFI_WAIT_UNSPEC, NULL, NULL);
	write.triggering_cntr = go;
	write.completion_cntr = done;
	KUNIT_EXPECT_EQ(test, kfi_control(&w->f.domain->fid, KFI_QUEUE_WORK, &write), 0);
	kfi_cntr_add(go, 1);
	KUNIT_EXPECT_EQ(test, failed(test, &w->ends[0], w, KFI_EREMOTEIO).flags,
			KFI_TAGGED | KFI_RMA | KFI_WRITE | KFI_SEND);
	KUNIT_EXPECT_EQ(test, kfi_cntr_readerr(done), 1);
	/* Arguments are checked when it is queued, as by the call. */
	w->piece.addr = (1ULL << 30) + 1;
	KUNIT_EXPECT_EQ(test, kfi_control(&w->f.domain->fid, KFI_QUEUE_WORK, &write), -KFI_EINVAL);
	CLOSE(test, &done->fid, &go->fid, &w->mr->fid);
	world_close(test, w);
}

static void counters_are_changed(struct kunit *test)
{
	struct world *w = world_open(test);
	struct kfi_op_cntr op = {};
	struct kfi_deferred_work work = { .op.cntr = &op };
	struct kfid_cntr *go, *changed;
	u64 value;
	int i;

	for (i = 0; i < 2 * ROUNDS; i++) {
		go = open_cntr(test, &w->f, KFI_WAIT_UNSPEC, NULL, NULL);
		changed = open_cntr(test, &w->f, KFI_WAIT_UNSPEC, NULL, NULL);
		KUNIT_EXPECT_EQ(test, kfi_cntr_add(changed, 10), 0);
		op.cntr = changed;
		work.op_type = i & 1 ? KFI_OP_CNTR_ADD : KFI_OP_CNTR_SET;
		/* A set and an add of it give different values. */
		op.value = i & 1 ? 3 : 30;
		value = i & 1 ? 13 : 30;
		work.triggering_cntr = go;
		work.threshold = 2;
		KUNIT_EXPECT_EQ(test, kfi_control(&w->f.domain->fid, KFI_QUEUE_WORK, &work), 0);
		/* In use until then. */
		KUNIT_EXPECT_EQ(test, kfi_close(&changed->fid), -KFI_EBUSY);
		KUNIT_EXPECT_EQ(test, kfi_close(&go->fid), -KFI_EBUSY);
		kfi_cntr_add(go, 2);
		KUNIT_EXPECT_EQ(test, kfi_cntr_wait(changed, value, LONG), 0);
		KUNIT_EXPECT_EQ(test, kfi_cntr_read(changed), value);
		CLOSE(test, &changed->fid, &go->fid);
	}
	KUNIT_EXPECT_EQ(test, kfi_close(&w->mr->fid), 0);
	world_close(test, w);
}

/* The endpoints, too, are closed at once, in the order that the interface asks for. */
static void everything_is_closed_after_the_completion(struct kunit *test)
{
	static const enum kfi_op_type types[] = {
		KFI_OP_WRITE, KFI_OP_READ, KFI_OP_ATOMIC, KFI_OP_FETCH_ATOMIC,
		KFI_OP_COMPARE_ATOMIC,
	};
	struct kfi_deferred_work work = {};
	struct world *w;
	int i;

	for (i = 0; i < 4 * ARRAY_SIZE(types); i++) {
		w = world_open(test);
		work.op_type = types[i % ARRAY_SIZE(types)];
		switch (work.op_type) {
		case KFI_OP_ATOMIC:
			work.op.atomic = &w->atomic;
			break;
		case KFI_OP_FETCH_ATOMIC:
			work.op.fetch_atomic = &w->fetch_atomic;
			break;
		case KFI_OP_COMPARE_ATOMIC:
			work.op.compare_atomic = &w->compare_atomic;
			break;
		default:
			work.op.rma = &w->rma;
		}
		complete_work(test, w, &work);
		KUNIT_EXPECT_EQ(test, kfi_close(&w->mr->fid), 0);
		world_close(test, w);
	}
}

CONSUMER("deferred work",
	 KUNIT_CASE(memory_is_written_and_read),
	 KUNIT_CASE(a_tagged_message_is_sent),
	 KUNIT_CASE(a_receive_is_posted),
	 KUNIT_CASE(values_are_changed),
	 KUNIT_CASE(tagged_rma_is_deferred),
	 KUNIT_CASE(counters_are_changed),
	 KUNIT_CASE(everything_is_closed_after_the_completion));
