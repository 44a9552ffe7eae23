// SPDX-License-Identifier: GPL-2.0
/*
 * Counters of operations: waits that operations end, wait queues that they wake, and
 * what keeps a counter open. consumer_cntr has the calls of counters.
 */

#include <linux/limits.h>
#include <linux/wait.h>

#include <kfi/kfi_rma.h>

#include "sep.h"

#define REMOTE	(KFI_REMOTE_READ | KFI_REMOTE_WRITE)

/**
 * struct waiter - a thread that waits for a counter
 * @cntr: the counter
 * @queue: its wait queue, for a thread that sleeps there; NULL: kfi_cntr_wait()
 * @threshold: the value that it waits for
 * @timeout: milliseconds
 * @value: the value after that
 * @call: of the thread
 */
struct waiter {
	struct kfid_cntr	*cntr;
	wait_queue_head_t	*queue;
	u64			threshold;
	int			timeout;
	u64			value;
	struct call		call;
};

static int wait_for_it(void *arg)
{
	struct waiter *it = arg;
	int ret = 0;

	if (!it->queue)
		ret = kfi_cntr_wait(it->cntr, it->threshold, it->timeout);
	else if (!wait_event_timeout(*it->queue, kfi_cntr_read(it->cntr) >= it->threshold,
				     msecs_to_jiffies(LONG)))
		ret = -KFI_ETIMEDOUT;
	it->value = kfi_cntr_read(it->cntr);
	return ret;
}

static void begin(struct kunit *test, struct waiter *it)
{
	call_sleeps(test, &it->call, wait_for_it, it);
	KUNIT_EXPECT_FALSE(test, completion_done(&it->call.done));
}

/* A negative timeout has no end, and the largest one is no negative one. */
static void a_negative_timeout_is_endless(struct kunit *test)
{
	static const int timeouts[] = { -1, -1000, INT_MIN, INT_MAX };
	struct waiter *it = zeroed(test, sizeof(*it));
	struct fixture f;
	int i;

	fixture_open(test, &f);
	it->cntr = open_cntr(test, &f, KFI_WAIT_UNSPEC, NULL, NULL);
	for (i = 0; i < ARRAY_SIZE(timeouts); i++) {
		it->timeout = timeouts[i];
		it->threshold = i + 1;
		begin(test, it);
		msleep(100);
		KUNIT_EXPECT_FALSE_MSG(test, completion_done(&it->call.done), "%d", timeouts[i]);
		KUNIT_EXPECT_EQ(test, kfi_cntr_add(it->cntr, 1), 0);
		call_ends(test, &it->call, 0);
		KUNIT_EXPECT_EQ(test, it->value, it->threshold);
	}
	KUNIT_EXPECT_EQ(test, kfi_close(&it->cntr->fid), 0);
	fixture_close(test, &f);
}

/* A receive that completes ends a wait, and one that fails does, with an error. */
static void operations_end_waits(struct kunit *test)
{
	struct waiter *it = zeroed(test, sizeof(*it));
	u8 *to = zeroed(test, 8);
	struct fixture f;
	struct end ends[2];

	pair_open(test, &f, KFI_EP_RDM, ends);
	it->cntr = ends[1].received;
	it->timeout = LONG;
	it->threshold = 1;
	KUNIT_EXPECT_EQ(test, kfi_recv(ends[1].ep, to, 8, NULL, 0, to), 0);
	begin(test, it);
	KUNIT_EXPECT_EQ(test, kfi_inject(ends[0].ep, "one", 4, ends[0].peer), 0);
	call_ends(test, &it->call, 0);
	KUNIT_EXPECT_EQ(test, it->value, 1);
	KUNIT_EXPECT_EQ(test, kfi_cntr_readerr(it->cntr), 0);

	it->threshold = 2;
	KUNIT_EXPECT_EQ(test, kfi_recv(ends[1].ep, to, 8, NULL, 0, to), 0);
	begin(test, it);
	KUNIT_EXPECT_EQ(test, kfi_cancel(&ends[1].ep->fid, to), 0);
	call_ends(test, &it->call, -KFI_EAVAIL);
	/* The value is that of the successes. */
	KUNIT_EXPECT_EQ(test, it->value, 1);
	KUNIT_EXPECT_EQ(test, kfi_cntr_readerr(it->cntr), 1);
	failed(test, &ends[1], to, KFI_ECANCELED);
	completed(test, &ends[1], to, RECEIVED, 4);
	/* The counter of the other side has counted the message alone. */
	KUNIT_EXPECT_EQ(test, kfi_cntr_wait(ends[0].sent, 1, LONG), 0);
	KUNIT_EXPECT_EQ(test, kfi_cntr_read(ends[0].sent), 1);
	KUNIT_EXPECT_EQ(test, kfi_cntr_readerr(ends[0].sent), 0);
	pair_close(test, &f, ends);
}

/* KFI_GETWAIT: a thread sleeps in the wait queue until operations have completed. */
static void operations_wake_the_queue(struct kunit *test)
{
	static const enum kfi_wait_obj objects[] = { KFI_WAIT_QUEUE, KFI_WAIT_UNSPEC };
	struct waiter *it = zeroed(test, sizeof(*it));
	u8 *to = zeroed(test, 8);
	struct kfi_info *info;
	struct kfid_cq *cq;
	struct kfid_ep *ep;
	struct kfid_av *av;
	struct fixture f;
	struct end peer = {}, own = {};
	int i;

	for (i = 0; i < ARRAY_SIZE(objects); i++) {
		fixture_open(test, &f);
		info = entry_of(test, KFI_EP_RDM);
		end_open_enabled(test, &f, info, &peer);
		KUNIT_ASSERT_EQ(test, kfi_endpoint(f.domain, info, &ep, NULL), 0);
		kfi_freeinfo(info);
		KUNIT_ASSERT_EQ(test, kfi_av_open(f.domain, NULL, &av, NULL), 0);
		KUNIT_ASSERT_EQ(test, kfi_cq_open(f.domain, NULL, &cq, NULL, NULL), 0);
		it->cntr = open_cntr(test, &f, objects[i], NULL, NULL);
		KUNIT_ASSERT_EQ(test, kfi_ep_bind(ep, &av->fid, 0), 0);
		KUNIT_ASSERT_EQ(test, kfi_ep_bind(ep, &cq->fid, KFI_TRANSMIT | KFI_RECV), 0);
		KUNIT_ASSERT_EQ(test, kfi_ep_bind(ep, &it->cntr->fid, KFI_RECV), 0);
		KUNIT_ASSERT_EQ(test, kfi_enable(ep), 0);
		own.ep = ep;
		end_knows(test, &peer, &own);

		it->queue = NULL;
		KUNIT_ASSERT_EQ(test, kfi_control(&it->cntr->fid, KFI_GETWAIT, &it->queue), 0);
		KUNIT_ASSERT_NOT_NULL(test, it->queue);
		it->threshold = 2;
		begin(test, it);
		KUNIT_EXPECT_EQ(test, kfi_recv(ep, to, 8, NULL, KFI_ADDR_UNSPEC, to), 0);
		KUNIT_EXPECT_EQ(test, kfi_inject(peer.ep, "one", 4, peer.peer), 0);
		KUNIT_EXPECT_EQ(test, kfi_cntr_wait(it->cntr, 1, LONG), 0);
		msleep(20);
		KUNIT_EXPECT_FALSE(test, completion_done(&it->call.done));
		KUNIT_EXPECT_EQ(test, kfi_recv(ep, to, 8, NULL, KFI_ADDR_UNSPEC, to), 0);
		KUNIT_EXPECT_EQ(test, kfi_inject(peer.ep, "two", 4, peer.peer), 0);
		call_ends(test, &it->call, 0);
		KUNIT_EXPECT_EQ(test, it->value, 2);
		end_close(test, &peer);
		CLOSE(test, &ep->fid, &av->fid, &cq->fid, &it->cntr->fid);
		fixture_close(test, &f);
	}
}

/* An endpoint, a transmit context, a receive context or a region keeps a counter open. */
static void a_bound_counter_is_busy(struct kunit *test)
{
	u8 *buf = zeroed(test, 8);
	struct kfi_info *info;
	struct kfid_cntr *cntr;
	struct kfid_ep *ep, *sep;
	struct kfid_mr *mr;
	struct fixture f;
	int i;

	fixture_open(test, &f);
	cntr = open_cntr(test, &f, KFI_WAIT_UNSPEC, NULL, NULL);
	info = entry_of(test, KFI_EP_RDM);
	KUNIT_ASSERT_EQ(test, kfi_endpoint(f.domain, info, &ep, NULL), 0);
	kfi_freeinfo(info);
	KUNIT_EXPECT_EQ(test, kfi_ep_bind(ep, &cntr->fid, KFI_SEND), 0);
	KUNIT_EXPECT_EQ(test, kfi_close(&cntr->fid), -KFI_EBUSY);
	KUNIT_EXPECT_EQ(test, kfi_close(&ep->fid), 0);

	info = sep_info(test, 1);
	KUNIT_ASSERT_EQ(test, kfi_scalable_ep(f.domain, info, &sep, NULL), 0);
	kfi_freeinfo(info);
	for (i = 0; i < 2; i++) {
		if (i)
			KUNIT_ASSERT_EQ(test, kfi_rx_context(sep, 0, NULL, &ep, NULL), 0);
		else
			KUNIT_ASSERT_EQ(test, kfi_tx_context(sep, 0, NULL, &ep, NULL), 0);
		KUNIT_EXPECT_EQ(test, kfi_ep_bind(ep, &cntr->fid, i ? KFI_RECV : KFI_SEND), 0);
		KUNIT_EXPECT_EQ(test, kfi_close(&cntr->fid), -KFI_EBUSY);
		KUNIT_EXPECT_EQ(test, kfi_close(&ep->fid), 0);
	}
	KUNIT_EXPECT_EQ(test, kfi_close(&sep->fid), 0);

	KUNIT_ASSERT_EQ(test, kfi_mr_reg(f.domain, buf, 8, REMOTE, 0, 1, 0, &mr, NULL), 0);
	KUNIT_EXPECT_EQ(test, kfi_mr_bind(mr, &cntr->fid, KFI_REMOTE_WRITE), 0);
	KUNIT_EXPECT_EQ(test, kfi_close(&cntr->fid), -KFI_EBUSY);
	KUNIT_EXPECT_EQ(test, kfi_close(&mr->fid), 0);

	/* It has not changed, and can be closed. */
	KUNIT_EXPECT_EQ(test, kfi_cntr_read(cntr), 0);
	KUNIT_EXPECT_EQ(test, kfi_cntr_add(cntr, 1), 0);
	KUNIT_EXPECT_EQ(test, kfi_close(&cntr->fid), 0);
	fixture_close(test, &f);
}

CONSUMER("counters of operations",
	 KUNIT_CASE(a_negative_timeout_is_endless),
	 KUNIT_CASE(operations_end_waits),
	 KUNIT_CASE(operations_wake_the_queue),
	 KUNIT_CASE(a_bound_counter_is_busy));
