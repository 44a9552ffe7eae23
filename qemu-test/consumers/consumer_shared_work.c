// SPDX-License-Identifier: GPL-2.0
/*
 * Shared contexts with tagged RMA, counters and deferred work (fi_endpoint(3),
 * fi_trigger(3)).
 */

#include <kfi/kfi_rma.h>
#include <kfi/kfi_trigger.h>

#include "pool.h"

#define CAPS		(KFI_MSG | KFI_RMA | KFI_TAGGED | KFI_TAGGED_RMA | KFI_SOURCE)
#define TAG		5
/* More bytes than are buffered at the receiver. */
#define LONG_MESSAGE	(16 << 10)

/* Opens a pool of one member with @caps, and a context with @attr. */
static void pool_open_with(struct kunit *test, struct pool *pool, u64 caps,
			   struct kfi_rx_attr *attr)
{
	struct kfi_cq_attr cq = { .format = KFI_CQ_FORMAT_TAGGED, .wait_obj = KFI_WAIT_UNSPEC };

	fixture_open(test, &pool->f);
	pool->info = entry_with(test, KFI_EP_RDM, caps);
	end_open_enabled(test, &pool->f, pool->info, &pool->sender);
	pool->info->ep_attr->rx_ctx_cnt = KFI_SHARED_CONTEXT;
	KUNIT_ASSERT_EQ(test, kfi_srx_context(pool->f.domain, attr, &pool->srx, pool), 0);
	pool->all.ep = pool->srx;
	KUNIT_ASSERT_EQ(test, kfi_av_open(pool->f.domain, NULL, &pool->all.av, NULL), 0);
	KUNIT_ASSERT_EQ(test, kfi_cq_open(pool->f.domain, &cq, &pool->all.cq, NULL, NULL), 0);
	member_open(test, pool, &pool->members[0]);
	member_enable(test, pool, &pool->members[0]);
}

/* A write or a read of 8 bytes of the receive with TAG of the member. */
static ssize_t access(struct pool *pool, u8 *buf, bool read)
{
	struct kvec iov = { buf, 8 };
	struct kfi_rma_iov remote = { .len = 8, .key = TAG };
	struct kfi_msg_rma msg = {
		.type = KFI_KVEC, .msg_iov = &iov, .iov_count = 1,
		.addr = pool->members[0].addr, .rma_iov = &remote, .rma_iov_count = 1,
		.context = buf,
	};

	if (read)
		return kfi_readmsg(pool->sender.ep, &msg, KFI_TAGGED | KFI_COMPLETION);
	return kfi_writemsg(pool->sender.ep, &msg, KFI_TAGGED | KFI_COMPLETION);
}

/* Tagged RMA takes a receive of the shared context, as a message does. */
static void tagged_rma_takes_a_shared_receive(struct kunit *test)
{
	const u64 out = KFI_TAGGED | KFI_RMA | KFI_SEND, in = KFI_TAGGED | KFI_RMA | KFI_RECV;
	struct kfi_rx_attr attr = { .caps = CAPS };
	u8 *here = zeroed(test, 8), *there = zeroed(test, 8);
	struct pool pool;
	int ret;

	fixture_open(test, &pool.f);
	ret = kfi_srx_context(pool.f.domain, &attr, &pool.srx, NULL);
	if (!ret)
		KUNIT_EXPECT_EQ(test, kfi_close(&pool.srx->fid), 0);
	fixture_close(test, &pool.f);
	/* Not every provider can: one that cannot refuses the capability. */
	if (ret) {
		KUNIT_EXPECT_EQ(test, ret, -KFI_EINVAL);
		return;
	}
	attr = (struct kfi_rx_attr){ .caps = CAPS };
	pool_open_with(test, &pool, CAPS, &attr);
	memset(here, 'w', 8);
	KUNIT_EXPECT_EQ(test, kfi_trecv(pool.srx, there, 8, NULL, ANY, TAG, 0, there), 0);
	KUNIT_EXPECT_EQ(test, access(&pool, here, false), 0);
	completed(test, &pool.sender, here, out | KFI_WRITE, 0);
	completed(test, &pool.all, there, in | KFI_WRITE, 8);
	KUNIT_EXPECT_MEMEQ(test, there, here, 8);
	memset(there, 'r', 8);
	KUNIT_EXPECT_EQ(test, kfi_trecv(pool.srx, there, 8, NULL, ANY, TAG, 0, there), 0);
	KUNIT_EXPECT_EQ(test, access(&pool, here, true), 0);
	completed(test, &pool.sender, here, out | KFI_READ, 0);
	completed(test, &pool.all, there, in | KFI_READ, 8);
	KUNIT_EXPECT_MEMEQ(test, there, here, 8);
	KUNIT_EXPECT_EQ(test, kfi_cntr_wait(pool.members[0].received, 2, LONG), 0);
	/* Without a receive it fails. */
	KUNIT_EXPECT_EQ(test, access(&pool, here, false), 0);
	failed(test, &pool.sender, here, KFI_EREMOTEIO);
	nothing(test, &pool.all);
	member_close(test, &pool.members[0]);
	pool_close(test, &pool);
}

/* Receives of members with fewer capabilities than the context are not for tagged RMA. */
static void tagged_rma_needs_the_capability(struct kunit *test)
{
	u8 *here = zeroed(test, 8), *there = zeroed(test, 8);
	struct pool pool;

	pool_open_with(test, &pool, KFI_MSG | KFI_RMA | KFI_TAGGED, NULL);
	end_close(test, &pool.sender);
	kfi_freeinfo(pool.info);
	pool.info = entry_with(test, KFI_EP_RDM, CAPS);
	end_open_enabled(test, &pool.f, pool.info, &pool.sender);
	pool.all.ep = pool.members[0].ep;
	end_knows(test, &pool.sender, &pool.all);
	pool.members[0].addr = pool.sender.peer;
	KUNIT_EXPECT_EQ(test, kfi_trecv(pool.srx, there, 8, NULL, ANY, TAG, 0, there), 0);
	KUNIT_EXPECT_EQ(test, access(&pool, here, true), 0);
	failed(test, &pool.sender, here, KFI_EREMOTEIO);
	nothing(test, &pool.all);
	KUNIT_EXPECT_EQ(test, kfi_tinject(pool.sender.ep, "message", 8, pool.sender.peer, TAG), 0);
	completed(test, &pool.all, there, KFI_TAGGED | KFI_RECV, 8);
	member_close(test, &pool.members[0]);
	pool_close(test, &pool);
}

/* Deferred work of endpoints that share the room of one transmit waits for that room. */
static void deferred_work_waits_for_shared_room(struct kunit *test)
{
	u8 *from = zeroed(test, LONG_MESSAGE), *to = zeroed(test, LONG_MESSAGE);
	struct kvec iov = { from, LONG_MESSAGE };
	struct kfi_tx_attr attr = { .size = 1 };
	struct kfi_deferred_work *works;
	struct kfi_op_msg *sends;
	struct kfid_cntr *go, *done;
	struct end ends[2], target;
	struct kfid_stx *stx;
	struct kfi_info *info;
	struct fixture f;
	int i;

	works = zeroed(test, 6 * sizeof(*works));
	sends = zeroed(test, 6 * sizeof(*sends));
	fixture_open(test, &f);
	info = entry_of(test, KFI_EP_RDM);
	end_open_enabled(test, &f, info, &target);
	KUNIT_ASSERT_EQ(test, kfi_stx_context(f.domain, &attr, &stx, NULL), 0);
	info->ep_attr->tx_ctx_cnt = KFI_SHARED_CONTEXT;
	go = open_cntr(test, &f, KFI_WAIT_UNSPEC, NULL, NULL);
	done = open_cntr(test, &f, KFI_WAIT_UNSPEC, NULL, NULL);
	for (i = 0; i < 2; i++) {
		end_open(test, &f, info, &ends[i], 0);
		KUNIT_ASSERT_EQ(test, kfi_ep_bind(ends[i].ep, &stx->fid, 0), 0);
		KUNIT_ASSERT_EQ(test, kfi_enable(ends[i].ep), 0);
		end_knows(test, &ends[i], &target);
	}
	kfi_freeinfo(info);
	for (i = 0; i < 6; i++) {
		struct end *end = &ends[i % 2];

		sends[i].ep = end->ep;
		sends[i].msg = (struct kfi_msg){ .type = KFI_KVEC, .msg_iov = &iov,
						 .iov_count = 1, .addr = end->peer };
		works[i].op_type = KFI_OP_SEND;
		works[i].op.msg = &sends[i];
		works[i].triggering_cntr = go;
		works[i].completion_cntr = done;
		works[i].threshold = 1;
		KUNIT_EXPECT_EQ(test, kfi_control(&f.domain->fid, KFI_QUEUE_WORK, &works[i]), 0);
	}
	/* Work that waits takes no room. */
	KUNIT_EXPECT_EQ(test, kfi_send(ends[0].ep, from, LONG_MESSAGE, NULL, ends[0].peer, from),
			0);
	KUNIT_EXPECT_EQ(test, kfi_send(ends[1].ep, from, LONG_MESSAGE, NULL, ends[1].peer, from),
			-KFI_EAGAIN);
	KUNIT_EXPECT_EQ(test, kfi_cntr_add(go, 1), 0);
	/* All of it has started, and one after the other gets the room. */
	for (i = 0; i < 7; i++) {
		KUNIT_EXPECT_EQ(test, kfi_recv(target.ep, to, LONG_MESSAGE, NULL, ANY, to), 0);
		completed(test, &target, to, KFI_MSG | KFI_RECV, LONG_MESSAGE);
	}
	KUNIT_EXPECT_EQ(test, kfi_cntr_wait(done, 6, LONG), 0);
	completed(test, &ends[0], from, KFI_MSG | KFI_SEND, 0);
	nothing(test, &ends[0]);
	nothing(test, &ends[1]);
	nothing(test, &target);
	KUNIT_EXPECT_EQ(test, kfi_cntr_read(ends[0].sent), 1);
	KUNIT_EXPECT_EQ(test, kfi_cntr_read(ends[1].sent), 0);
	end_close(test, &ends[0]);
	end_close(test, &ends[1]);
	KUNIT_EXPECT_EQ(test, kfi_close(&stx->fid), 0);
	end_close(test, &target);
	CLOSE(test, &go->fid, &done->fid);
	fixture_close(test, &f);
}

CONSUMER("tagged RMA and deferred work of shared contexts",
	 KUNIT_CASE(tagged_rma_takes_a_shared_receive),
	 KUNIT_CASE(tagged_rma_needs_the_capability),
	 KUNIT_CASE(deferred_work_waits_for_shared_room));
