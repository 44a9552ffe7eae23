// SPDX-License-Identifier: GPL-2.0
/*
 * The order in which triggered operations and deferred work start, what their
 * condition is, and what they report (fi_trigger(3)).
 */

#include <linux/gfp.h>

#include <kfi/kfi_rma.h>
#include <kfi/kfi_trigger.h>

#include "pair.h"

#define SENT		(KFI_MSG | KFI_SEND)
#define RECEIVED	(KFI_MSG | KFI_RECV)
#define COUNT		6
#define KEY		7

/**
 * struct world - two endpoints, a counter, and operations of the first
 * @f: their domain
 * @ends: the endpoints
 * @go: the counter of the conditions
 * @done: a completion counter
 * @from: memory of the first: one byte for each operation
 * @to: memory of the second
 * @when: the conditions of the operations
 * @iov: the bytes
 * @msg: the operations
 * @sends: the same as deferred work
 * @works: deferred work
 */
struct world {
	struct fixture			f;
	struct end			ends[2];
	struct kfid_cntr		*go;
	struct kfid_cntr		*done;
	u8				*from;
	u8				*to;
	struct kfi_triggered_context	when[COUNT];
	struct kvec			iov[COUNT];
	struct kfi_msg			msg[COUNT];
	struct kfi_op_msg		sends[COUNT];
	struct kfi_deferred_work	works[COUNT];
};

/* Opens it: operation i sends the letter 'a' + i, and as many receives are posted. */
static struct world *world_open(struct kunit *test)
{
	struct world *w = kunit_kzalloc(test, sizeof(*w), GFP_KERNEL);
	int i;

	KUNIT_ASSERT_NOT_NULL(test, w);
	pair_open(test, &w->f, KFI_EP_RDM, w->ends);
	w->go = open_cntr(test, &w->f, KFI_WAIT_UNSPEC, NULL, NULL);
	w->done = open_cntr(test, &w->f, KFI_WAIT_UNSPEC, NULL, NULL);
	w->from = (u8 *)get_zeroed_page(GFP_KERNEL);
	w->to = (u8 *)get_zeroed_page(GFP_KERNEL);
	KUNIT_ASSERT_NOT_NULL(test, w->from);
	KUNIT_ASSERT_NOT_NULL(test, w->to);
	for (i = 0; i < COUNT; i++) {
		w->from[i] = 'a' + i;
		w->iov[i] = (struct kvec){ w->from + i, 1 };
		w->when[i].event_type = KFI_TRIGGER_THRESHOLD;
		w->when[i].trigger.threshold.cntr = w->go;
		w->msg[i] = (struct kfi_msg){
			.type = KFI_KVEC, .msg_iov = &w->iov[i], .iov_count = 1,
			.addr = w->ends[0].peer, .context = &w->when[i],
		};
		w->sends[i] = (struct kfi_op_msg){ .ep = w->ends[0].ep, .msg = w->msg[i] };
		w->works[i] = (struct kfi_deferred_work){
			.triggering_cntr = w->go, .completion_cntr = w->done,
			.op_type = KFI_OP_SEND, .op.msg = &w->sends[i],
		};
		KUNIT_EXPECT_EQ(test, kfi_recv(w->ends[1].ep, w->to + i, 1, NULL, KFI_ADDR_UNSPEC,
					       w->to + i), 0);
	}
	return w;
}

static void world_close(struct kunit *test, struct world *w)
{
	CLOSE(test, &w->go->fid, &w->done->fid);
	pair_close(test, &w->f, w->ends);
	free_page((unsigned long)w->from);
	free_page((unsigned long)w->to);
}

/* Posts operation @i for a threshold; the caller's structures are its own then. */
static void trigger(struct kunit *test, struct world *w, int i, size_t threshold)
{
	w->when[i].trigger.threshold.threshold = threshold;
	KUNIT_EXPECT_EQ(test, kfi_sendmsg(w->ends[0].ep, &w->msg[i], KFI_TRIGGER), 0);
}

static int queue(struct world *w, int i, u64 threshold)
{
	w->works[i].threshold = threshold;
	return kfi_control(&w->f.domain->fid, KFI_QUEUE_WORK, &w->works[i]);
}

/* The letters arrive in this order. */
static void arrive(struct kunit *test, struct world *w, const char *letters)
{
	int i;

	for (i = 0; letters[i]; i++)
		completed(test, &w->ends[1], w->to + i, RECEIVED, 1);
	nothing(test, &w->ends[1]);
	KUNIT_EXPECT_STREQ(test, w->to, letters);
}

/* By threshold, then by submission, also if one add passes several. */
static void operations_start_in_order(struct kunit *test)
{
	struct world *w = world_open(test);
	int i;

	trigger(test, w, 0, 5);
	trigger(test, w, 1, 2);
	trigger(test, w, 2, 3);
	trigger(test, w, 3, 2);
	trigger(test, w, 4, 100);
	KUNIT_EXPECT_EQ(test, kfi_cntr_add(w->go, 1), 0);
	nothing(test, &w->ends[1]);
	KUNIT_EXPECT_EQ(test, kfi_cntr_add(w->go, 9), 0);
	arrive(test, w, "bdca");
	completed(test, &w->ends[0], &w->when[1], SENT, 0);
	completed(test, &w->ends[0], &w->when[3], SENT, 0);
	completed(test, &w->ends[0], &w->when[2], SENT, 0);
	completed(test, &w->ends[0], &w->when[0], SENT, 0);
	nothing(test, &w->ends[0]);
	/* The condition is met: it starts without another change. */
	trigger(test, w, 5, 10);
	completed(test, &w->ends[1], w->to + 4, RECEIVED, 1);
	completed(test, &w->ends[0], &w->when[5], SENT, 0);
	KUNIT_EXPECT_EQ(test, kfi_cancel(&w->ends[0].ep->fid, &w->when[4]), 0);
	failed(test, &w->ends[0], &w->when[4], KFI_ECANCELED);
	KUNIT_EXPECT_EQ(test, kfi_cancel(&w->ends[0].ep->fid, &w->when[4]), -KFI_ENOENT);
	i = kfi_cntr_read(w->ends[0].sent);
	KUNIT_EXPECT_EQ(test, i, 5);
	world_close(test, w);
}

/* Deferred work of one counter keeps the same order, between triggered operations too. */
static void works_start_in_order(struct kunit *test)
{
	struct world *w = world_open(test);

	KUNIT_EXPECT_EQ(test, queue(w, 0, 7), 0);
	KUNIT_EXPECT_EQ(test, queue(w, 1, 4), 0);
	trigger(test, w, 2, 4);
	KUNIT_EXPECT_EQ(test, queue(w, 3, 4), 0);
	trigger(test, w, 4, 1);
	KUNIT_EXPECT_EQ(test, kfi_cntr_set(w->go, 7), 0);
	arrive(test, w, "ebcda");
	/* Deferred work is silent at its endpoint, and counts at its completion counter. */
	completed(test, &w->ends[0], &w->when[4], SENT, 0);
	completed(test, &w->ends[0], &w->when[2], SENT, 0);
	nothing(test, &w->ends[0]);
	KUNIT_EXPECT_EQ(test, kfi_cntr_wait(w->done, 3, LONG), 0);
	KUNIT_EXPECT_EQ(test, kfi_cntr_read(w->done), 3);
	KUNIT_EXPECT_EQ(test, kfi_cntr_read(w->ends[0].sent), 2);
	/* The condition is met when it is queued. It reports if it was asked to. */
	w->sends[5].flags = KFI_COMPLETION;
	KUNIT_EXPECT_EQ(test, queue(w, 5, 7), 0);
	completed(test, &w->ends[0], &w->when[5], SENT, 0);
	KUNIT_EXPECT_EQ(test, kfi_cntr_wait(w->done, 4, LONG), 0);
	KUNIT_EXPECT_EQ(test, kfi_cntr_wait(w->ends[0].sent, 3, LONG), 0);
	world_close(test, w);
}

/* Errors count for deferred work, and not for triggered operations. */
static void errors_count_for_deferred_work(struct kunit *test)
{
	struct world *w = world_open(test);

	trigger(test, w, 0, 2);
	KUNIT_EXPECT_EQ(test, queue(w, 1, 2), 0);
	KUNIT_EXPECT_EQ(test, kfi_cntr_add(w->go, 1), 0);
	nothing(test, &w->ends[1]);
	KUNIT_EXPECT_EQ(test, kfi_cntr_adderr(w->go, 1), 0);
	arrive(test, w, "b");
	KUNIT_EXPECT_EQ(test, kfi_cntr_adderr(w->go, 5), 0);
	nothing(test, &w->ends[1]);
	KUNIT_EXPECT_EQ(test, kfi_cntr_add(w->go, 1), 0);
	completed(test, &w->ends[1], w->to + 1, RECEIVED, 1);
	KUNIT_EXPECT_EQ(test, w->to[1], 'a');
	world_close(test, w);
}

/* A work that fails counts as an error, so that the next one can wait for it. */
static void a_failure_goes_on(struct kunit *test)
{
	struct kfi_rma_iov nowhere = { .len = 1, .key = KEY };
	struct kfi_op_rma write = {};
	struct kfi_deferred_work *work;
	struct world *w = world_open(test);

	write.ep = w->ends[0].ep;
	write.msg = (struct kfi_msg_rma){
		.type = KFI_KVEC, .msg_iov = &w->iov[0], .iov_count = 1,
		.addr = w->ends[0].peer, .rma_iov = &nowhere, .rma_iov_count = 1, .context = w,
	};
	work = &w->works[0];
	work->op_type = KFI_OP_WRITE;
	work->op.rma = &write;
	KUNIT_EXPECT_EQ(test, queue(w, 0, 1), 0);
	w->works[1].triggering_cntr = w->done;
	KUNIT_EXPECT_EQ(test, queue(w, 1, 1), 0);
	KUNIT_EXPECT_EQ(test, kfi_cntr_add(w->go, 1), 0);
	arrive(test, w, "b");
	failed(test, &w->ends[0], w, KFI_EACCES);
	KUNIT_EXPECT_EQ(test, kfi_cntr_readerr(w->done), 1);
	KUNIT_EXPECT_EQ(test, kfi_cntr_wait(w->done, 1, LONG), 0);
	/* A completion counter is not needed. */
	w->works[2].completion_cntr = NULL;
	KUNIT_EXPECT_EQ(test, queue(w, 2, 1), 0);
	completed(test, &w->ends[1], w->to + 1, RECEIVED, 1);
	KUNIT_EXPECT_EQ(test, kfi_cntr_read(w->done), 1);
	nothing(test, &w->ends[0]);
	world_close(test, w);
}

/* An alias is what triggers, and its endpoint is as before. */
static void an_alias_defers(struct kunit *test)
{
	struct world *w = world_open(test);
	kfi_addr_t peer = w->ends[0].peer;
	struct kfid_ep *alias;

	KUNIT_ASSERT_EQ(test, kfi_ep_alias(w->ends[0].ep, &alias, KFI_TRANSMIT | KFI_TRIGGER), 0);
	w->when[0].trigger.threshold.threshold = 1;
	KUNIT_EXPECT_EQ(test, kfi_send(alias, w->from, 1, NULL, peer, &w->when[0]), 0);
	/* Every transfer of the alias needs a condition. */
	KUNIT_EXPECT_EQ(test, kfi_send(alias, w->from, 1, NULL, peer, NULL), -KFI_EINVAL);
	/* An injected one cannot have one. */
	KUNIT_EXPECT_EQ(test, kfi_inject(alias, w->from, 1, peer), -KFI_ENOSYS);
	KUNIT_EXPECT_EQ(test, kfi_injectdata(alias, w->from, 1, 7, peer), -KFI_ENOSYS);
	KUNIT_EXPECT_EQ(test, kfi_tinject(alias, w->from, 1, peer, 7), -KFI_ENOSYS);
	KUNIT_EXPECT_EQ(test, kfi_tinjectdata(alias, w->from, 1, 7, peer, 7), -KFI_ENOSYS);
	KUNIT_EXPECT_EQ(test, kfi_inject_write(alias, w->from, 1, peer, 0, 0), -KFI_ENOSYS);
	KUNIT_EXPECT_EQ(test, kfi_inject_writedata(alias, w->from, 1, 7, peer, 0, 0),
			-KFI_ENOSYS);
	KUNIT_EXPECT_EQ(test, kfi_inject_atomic(alias, w->from, 1, peer, 0, 0, KFI_UINT8, KFI_SUM),
			-KFI_ENOSYS);
	KUNIT_EXPECT_EQ(test, kfi_send(w->ends[0].ep, w->from + 1, 1, NULL, peer, w), 0);
	completed(test, &w->ends[0], w, SENT, 0);
	/* A call that takes flags has these only. */
	KUNIT_EXPECT_EQ(test, kfi_sendmsg(alias, &w->msg[2], 0), 0);
	completed(test, &w->ends[0], &w->when[2], SENT, 0);
	/* The structure was copied. */
	memset(&w->when[0], 0xff, sizeof(w->when[0]));
	KUNIT_EXPECT_EQ(test, kfi_cntr_add(w->go, 1), 0);
	completed(test, &w->ends[0], &w->when[0], SENT, 0);
	arrive(test, w, "bca");
	KUNIT_EXPECT_EQ(test, kfi_close(&alias->fid), 0);
	world_close(test, w);
}

CONSUMER("order and conditions of deferred work",
	 KUNIT_CASE(operations_start_in_order),
	 KUNIT_CASE(works_start_in_order),
	 KUNIT_CASE(errors_count_for_deferred_work),
	 KUNIT_CASE(a_failure_goes_on),
	 KUNIT_CASE(an_alias_defers));
