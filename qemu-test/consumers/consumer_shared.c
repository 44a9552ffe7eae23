// SPDX-License-Identifier: GPL-2.0
/*
 * Shared contexts: their attributes and bindings, and what they refuse.
 */

#include <kfi/kfi_atomic.h>
#include <kfi/kfi_rma.h>
#include <kfi/kfi_trigger.h>

#include "pool.h"

/* More bytes than are buffered at the receiver. */
#define LONG_MESSAGE	(16 << 10)

static void attributes_are_checked(struct kunit *test)
{
	struct kfi_rx_attr rx = {};
	struct kfi_tx_attr tx = {};
	struct kfid_ep *srx = NULL;
	struct kfid_stx *stx = NULL;
	struct fixture f;

	fixture_open(test, &f);
	rx.caps = KFI_SEND;
	KUNIT_EXPECT_EQ(test, kfi_srx_context(f.domain, &rx, &srx, NULL), -KFI_EINVAL);
	rx.caps = KFI_MULTICAST;
	KUNIT_EXPECT_EQ(test, kfi_srx_context(f.domain, &rx, &srx, NULL), -KFI_EINVAL);
	rx.caps = KFI_MSG | KFI_RECV;
	rx.size = 16385;
	KUNIT_EXPECT_EQ(test, kfi_srx_context(f.domain, &rx, &srx, NULL), -KFI_EINVAL);
	rx.size = 7;
	rx.op_flags = KFI_INJECT;
	KUNIT_EXPECT_EQ(test, kfi_srx_context(f.domain, &rx, &srx, NULL), -KFI_EINVAL);
	rx.op_flags = 0;
	rx.total_buffered_recv = SIZE_MAX;
	KUNIT_EXPECT_EQ(test, kfi_srx_context(f.domain, &rx, &srx, NULL), -KFI_EINVAL);
	rx.total_buffered_recv = 0;
	rx.mode = KFI_CONTEXT;
	KUNIT_EXPECT_NULL(test, srx);
	KUNIT_ASSERT_EQ(test, kfi_srx_context(f.domain, &rx, &srx, &f), 0);
	/* What the context has. */
	KUNIT_EXPECT_EQ(test, rx.size, 7);
	KUNIT_EXPECT_EQ(test, rx.mode, 0);
	KUNIT_EXPECT_EQ(test, rx.caps, KFI_MSG | KFI_RECV);
	KUNIT_EXPECT_EQ(test, rx.op_flags, KFI_COMPLETION);
	KUNIT_EXPECT_NE(test, rx.iov_limit, 0);
	KUNIT_EXPECT_NE(test, rx.total_buffered_recv, 0);
	KUNIT_EXPECT_EQ(test, srx->fid.fclass, KFI_CLASS_SRX_CTX);
	KUNIT_EXPECT_PTR_EQ(test, srx->fid.context, &f);

	tx.caps = KFI_RECV;
	KUNIT_EXPECT_EQ(test, kfi_stx_context(f.domain, &tx, &stx, NULL), -KFI_EINVAL);
	tx.caps = 0;
	tx.size = 16385;
	KUNIT_EXPECT_EQ(test, kfi_stx_context(f.domain, &tx, &stx, NULL), -KFI_EINVAL);
	tx.size = 0;
	tx.tclass = 1;
	KUNIT_EXPECT_EQ(test, kfi_stx_context(f.domain, &tx, &stx, NULL), -KFI_EINVAL);
	tx.tclass = KFI_TC_LOW_LATENCY;
	tx.mode = KFI_CONTEXT;
	KUNIT_EXPECT_NULL(test, stx);
	KUNIT_ASSERT_EQ(test, kfi_stx_context(f.domain, &tx, &stx, &f), 0);
	KUNIT_EXPECT_NE(test, tx.size, 0);
	KUNIT_EXPECT_EQ(test, tx.mode, 0);
	KUNIT_EXPECT_NE(test, tx.inject_size, 0);
	KUNIT_EXPECT_EQ(test, tx.tclass, KFI_TC_BEST_EFFORT);
	KUNIT_EXPECT_EQ(test, tx.caps & (KFI_MSG | KFI_SEND | KFI_RECV), KFI_MSG | KFI_SEND);
	KUNIT_EXPECT_EQ(test, stx->fid.fclass, KFI_CLASS_STX_CTX);
	KUNIT_EXPECT_PTR_EQ(test, stx->fid.context, &f);
	/* A domain with a context is not closed. */
	KUNIT_EXPECT_EQ(test, kfi_close(&srx->fid), 0);
	KUNIT_EXPECT_EQ(test, kfi_close(&f.domain->fid), -KFI_EBUSY);
	KUNIT_EXPECT_EQ(test, kfi_close(&stx->fid), 0);
	KUNIT_ASSERT_EQ(test, kfi_srx_context(f.domain, NULL, &srx, NULL), 0);
	KUNIT_ASSERT_EQ(test, kfi_stx_context(f.domain, NULL, &stx, NULL), 0);
	KUNIT_EXPECT_EQ(test, kfi_close(&stx->fid), 0);
	KUNIT_EXPECT_EQ(test, kfi_close(&f.domain->fid), -KFI_EBUSY);
	KUNIT_EXPECT_EQ(test, kfi_close(&srx->fid), 0);
	fixture_close(test, &f);
}

/*
 * A receive context has the operations of an endpoint; most have no meaning.
 * consumer_slots has those that return -KFI_ENOSYS.
 */
static void other_operations_fail(struct kunit *test)
{
	const int level = KFI_OPT_ENDPOINT, least = KFI_OPT_MIN_MULTI_RECV;
	struct sockaddr_in addr = { .sin_family = AF_INET };
	size_t len = sizeof(addr), value = 99;
	struct kfid_ep *srx, *alias;
	u8 *word = zeroed(test, 8);
	struct fixture f;
	struct kfid_cq *cq;
	u64 flags;

	fixture_open(test, &f);
	KUNIT_ASSERT_EQ(test, kfi_srx_context(f.domain, NULL, &srx, NULL), 0);
	KUNIT_ASSERT_EQ(test, kfi_cq_open(f.domain, NULL, &cq, NULL, NULL), 0);
	/* It is ready; to enable it changes nothing. */
	KUNIT_EXPECT_EQ(test, kfi_enable(srx), 0);
	KUNIT_EXPECT_EQ(test, kfi_enable(srx), 0);
	KUNIT_EXPECT_EQ(test, kfi_ep_bind(srx, &cq->fid, KFI_RECV), -KFI_ENOSYS);
	KUNIT_EXPECT_EQ(test, kfi_getname(&srx->fid, &addr, &len), -KFI_EOPBADSTATE);
	addr.sin_family = AF_INET;
	addr.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
	KUNIT_EXPECT_EQ(test, kfi_setname(&srx->fid, &addr, sizeof(addr)), -KFI_EOPBADSTATE);
	KUNIT_EXPECT_LT(test, kfi_connect(srx, &addr, NULL, 0), 0);
	KUNIT_EXPECT_LT(test, kfi_accept(srx, NULL, 0), 0);
	KUNIT_EXPECT_LT(test, kfi_shutdown(srx, 0), 0);
	KUNIT_EXPECT_LT(test, kfi_getpeer(srx, &addr, &len), 0);
	KUNIT_EXPECT_EQ(test, kfi_send(srx, word, 8, NULL, 0, NULL), -KFI_EOPNOTSUPP);
	KUNIT_EXPECT_EQ(test, kfi_tsend(srx, word, 8, NULL, 0, 0, NULL), -KFI_EOPNOTSUPP);
	KUNIT_EXPECT_EQ(test, kfi_inject(srx, word, 8, 0), -KFI_EOPNOTSUPP);
	KUNIT_EXPECT_EQ(test, kfi_read(srx, word, 8, NULL, 0, 0, 0, NULL), -KFI_EOPNOTSUPP);
	KUNIT_EXPECT_EQ(test, kfi_write(srx, word, 8, NULL, 0, 0, 0, NULL), -KFI_EOPNOTSUPP);
	KUNIT_EXPECT_EQ(test, kfi_atomic(srx, word, 1, NULL, 0, 0, 0, KFI_UINT64, KFI_SUM, NULL),
			-KFI_EOPNOTSUPP);
	KUNIT_EXPECT_EQ(test, kfi_cancel(&srx->fid, NULL), -KFI_ENOENT);

	KUNIT_EXPECT_EQ(test, kfi_setopt(&srx->fid, level, least, &value, sizeof(value)), 0);
	value = 0;
	len = sizeof(value);
	KUNIT_EXPECT_EQ(test, kfi_getopt(&srx->fid, level, least, &value, &len), 0);
	KUNIT_EXPECT_EQ(test, value, 99);
	flags = KFI_RECV | KFI_MULTI_RECV;
	KUNIT_EXPECT_EQ(test, kfi_control(&srx->fid, KFI_SETOPSFLAG, &flags), 0);
	flags = KFI_RECV;
	KUNIT_EXPECT_EQ(test, kfi_control(&srx->fid, KFI_GETOPSFLAG, &flags), 0);
	KUNIT_EXPECT_EQ(test, flags, KFI_MULTI_RECV);
	KUNIT_ASSERT_EQ(test, kfi_ep_alias(srx, &alias, KFI_RECV), 0);
	KUNIT_EXPECT_EQ(test, kfi_close(&srx->fid), -KFI_EBUSY);
	CLOSE(test, &alias->fid, &cq->fid, &srx->fid);
	fixture_close(test, &f);
}

/* Tries to enable a member with another queue or vector, or other flags. */
static int try_member(struct kunit *test, struct pool *pool, struct kfid_av *av,
		      struct kfid_cq *cq, u64 flags)
{
	struct kfid_ep *ep;
	int ret;

	KUNIT_ASSERT_EQ(test, kfi_endpoint(pool->f.domain, pool->info, &ep, NULL), 0);
	KUNIT_EXPECT_EQ(test, kfi_ep_bind(ep, &pool->srx->fid, 0), 0);
	KUNIT_EXPECT_EQ(test, kfi_ep_bind(ep, &av->fid, 0), 0);
	KUNIT_EXPECT_EQ(test, kfi_ep_bind(ep, &cq->fid, flags), 0);
	if (!(flags & KFI_TRANSMIT))
		KUNIT_EXPECT_EQ(test, kfi_ep_bind(ep, &pool->sender.cq->fid, KFI_TRANSMIT), 0);
	ret = kfi_enable(ep);
	KUNIT_EXPECT_EQ(test, kfi_close(&ep->fid), 0);
	return ret;
}

static void bindings_are_checked(struct kunit *test)
{
	struct kfi_rx_attr few = { .caps = KFI_MSG | KFI_RECV };
	const u64 both = KFI_TRANSMIT | KFI_RECV;
	struct kfid_ep *alien, *ep, *narrow;
	struct kfid_stx *stx, *alien_stx;
	struct fixture other;
	u8 *byte = zeroed(test, 1);
	struct pool pool;

	pool_open(test, &pool, KFI_EP_RDM, NULL, 0);
	fixture_open(test, &other);
	KUNIT_ASSERT_EQ(test, kfi_srx_context(other.domain, NULL, &alien, NULL), 0);
	KUNIT_ASSERT_EQ(test, kfi_stx_context(other.domain, NULL, &alien_stx, NULL), 0);
	KUNIT_ASSERT_EQ(test, kfi_stx_context(pool.f.domain, NULL, &stx, NULL), 0);
	KUNIT_ASSERT_EQ(test, kfi_srx_context(pool.f.domain, &few, &narrow, NULL), 0);

	/* An endpoint that was not opened for it. */
	pool.info->ep_attr->rx_ctx_cnt = 1;
	KUNIT_ASSERT_EQ(test, kfi_endpoint(pool.f.domain, pool.info, &ep, NULL), 0);
	KUNIT_EXPECT_EQ(test, kfi_ep_bind(ep, &pool.srx->fid, 0), -KFI_EINVAL);
	KUNIT_EXPECT_EQ(test, kfi_ep_bind(ep, &stx->fid, 0), -KFI_EINVAL);
	KUNIT_EXPECT_EQ(test, kfi_close(&ep->fid), 0);

	pool.info->ep_attr->rx_ctx_cnt = KFI_SHARED_CONTEXT;
	pool.info->ep_attr->tx_ctx_cnt = KFI_SHARED_CONTEXT;
	KUNIT_ASSERT_EQ(test, kfi_endpoint(pool.f.domain, pool.info, &ep, NULL), 0);
	KUNIT_EXPECT_EQ(test, kfi_ep_bind(ep, &alien->fid, 0), -KFI_EINVAL);
	KUNIT_EXPECT_EQ(test, kfi_ep_bind(ep, &alien_stx->fid, 0), -KFI_EINVAL);
	/* A context with fewer capabilities than the endpoint. */
	KUNIT_EXPECT_EQ(test, kfi_ep_bind(ep, &narrow->fid, 0), -KFI_EINVAL);
	KUNIT_EXPECT_EQ(test, kfi_ep_bind(ep, &pool.srx->fid, KFI_RECV), -KFI_EINVAL);
	KUNIT_EXPECT_EQ(test, kfi_ep_bind(ep, &stx->fid, KFI_TRANSMIT), -KFI_EINVAL);
	/* An endpoint is no context. */
	KUNIT_EXPECT_EQ(test, kfi_ep_bind(ep, &pool.sender.ep->fid, 0), -KFI_EINVAL);
	KUNIT_EXPECT_EQ(test, kfi_ep_bind(ep, &pool.all.av->fid, 0), 0);
	KUNIT_EXPECT_EQ(test, kfi_ep_bind(ep, &pool.all.cq->fid, both), 0);
	/* Both have to be bound. */
	KUNIT_EXPECT_EQ(test, kfi_enable(ep), -KFI_EOPBADSTATE);
	KUNIT_EXPECT_EQ(test, kfi_ep_bind(ep, &pool.srx->fid, 0), 0);
	KUNIT_EXPECT_EQ(test, kfi_ep_bind(ep, &pool.srx->fid, 0), -KFI_EINVAL);
	KUNIT_EXPECT_EQ(test, kfi_enable(ep), -KFI_EOPBADSTATE);
	KUNIT_EXPECT_EQ(test, kfi_ep_bind(ep, &stx->fid, 0), 0);
	KUNIT_EXPECT_EQ(test, kfi_ep_bind(ep, &stx->fid, 0), -KFI_EINVAL);
	KUNIT_EXPECT_EQ(test, kfi_close(&pool.srx->fid), -KFI_EBUSY);
	KUNIT_EXPECT_EQ(test, kfi_close(&stx->fid), -KFI_EBUSY);
	KUNIT_EXPECT_EQ(test, kfi_enable(ep), 0);
	KUNIT_EXPECT_EQ(test, kfi_ep_bind(ep, &pool.srx->fid, 0), -KFI_EOPBADSTATE);
	KUNIT_EXPECT_EQ(test, kfi_ep_bind(ep, &stx->fid, 0), -KFI_EOPBADSTATE);
	KUNIT_EXPECT_EQ(test, kfi_close(&pool.srx->fid), -KFI_EBUSY);
	KUNIT_EXPECT_EQ(test, kfi_close(&stx->fid), -KFI_EBUSY);
	/* Its receives are those of the context. */
	KUNIT_EXPECT_EQ(test, kfi_recv(ep, byte, 1, NULL, 0, NULL), -KFI_ENOSYS);
	KUNIT_EXPECT_EQ(test, kfi_trecv(ep, byte, 1, NULL, 0, 0, 0, NULL), -KFI_ENOSYS);

	/* All members report alike, as long as there is one. */
	pool.info->ep_attr->tx_ctx_cnt = 1;
	KUNIT_EXPECT_EQ(test, try_member(test, &pool, pool.all.av, pool.all.cq, both), 0);
	KUNIT_EXPECT_EQ(test, try_member(test, &pool, pool.all.av, pool.all.cq, KFI_RECV), 0);
	KUNIT_EXPECT_EQ(test, try_member(test, &pool, pool.all.av, pool.sender.cq, both),
			-KFI_EINVAL);
	KUNIT_EXPECT_EQ(test, try_member(test, &pool, pool.sender.av, pool.all.cq, both),
			-KFI_EINVAL);
	KUNIT_EXPECT_EQ(test, try_member(test, &pool, pool.all.av, pool.all.cq,
					 both | KFI_SELECTIVE_COMPLETION), -KFI_EINVAL);
	KUNIT_EXPECT_EQ(test, kfi_close(&ep->fid), 0);
	KUNIT_EXPECT_EQ(test, try_member(test, &pool, pool.sender.av, pool.sender.cq,
					 both | KFI_SELECTIVE_COMPLETION), 0);
	CLOSE(test, &stx->fid, &narrow->fid, &alien->fid, &alien_stx->fid);
	fixture_close(test, &other);
	pool_close(test, &pool);
}

/* Endpoints share the room of a transmit context, and have their own CQs. */
static void transmits_share_room(struct kunit *test)
{
	u8 *from = zeroed(test, LONG_MESSAGE);
	u8 *to = zeroed(test, LONG_MESSAGE);
	struct kfi_tx_attr attr = { .size = 2 };
	struct end ends[2], target;
	struct kfid_stx *stx;
	struct kfi_info *info;
	struct fixture f;
	int i;

	fixture_open(test, &f);
	info = entry_of(test, KFI_EP_RDM);
	end_open_enabled(test, &f, info, &target);
	KUNIT_ASSERT_EQ(test, kfi_stx_context(f.domain, &attr, &stx, NULL), 0);
	KUNIT_EXPECT_EQ(test, attr.size, 2);
	info->ep_attr->tx_ctx_cnt = KFI_SHARED_CONTEXT;
	for (i = 0; i < 2; i++) {
		end_open(test, &f, info, &ends[i], 0);
		KUNIT_ASSERT_EQ(test, kfi_ep_bind(ends[i].ep, &stx->fid, 0), 0);
		KUNIT_ASSERT_EQ(test, kfi_enable(ends[i].ep), 0);
		end_knows(test, &ends[i], &target);
	}
	kfi_freeinfo(info);
	/* No receive: the messages wait with their senders. */
	for (i = 0; i < 2; i++)
		KUNIT_EXPECT_EQ(test, kfi_send(ends[i].ep, from, LONG_MESSAGE, NULL, ends[i].peer,
					       &ends[i]), 0);
	for (i = 0; i < 2; i++)
		KUNIT_EXPECT_EQ(test, kfi_send(ends[i].ep, from, LONG_MESSAGE, NULL, ends[i].peer,
					       NULL), -KFI_EAGAIN);
	/* A message that completes at once takes no room. */
	KUNIT_EXPECT_EQ(test, kfi_send(ends[1].ep, from, 8, NULL, ends[1].peer, from), 0);
	completed(test, &ends[1], from, KFI_MSG | KFI_SEND, 0);
	KUNIT_EXPECT_EQ(test, kfi_recv(target.ep, to, LONG_MESSAGE, NULL, ANY, to), 0);
	completed(test, &target, to, KFI_MSG | KFI_RECV, LONG_MESSAGE);
	/* The message is reported to its own sender, and leaves room for both. */
	completed(test, &ends[0], &ends[0], KFI_MSG | KFI_SEND, 0);
	nothing(test, &ends[1]);
	KUNIT_EXPECT_EQ(test, kfi_send(ends[1].ep, from, LONG_MESSAGE, NULL, ends[1].peer, to), 0);
	KUNIT_EXPECT_EQ(test, kfi_send(ends[0].ep, from, LONG_MESSAGE, NULL, ends[0].peer, NULL),
			-KFI_EAGAIN);
	KUNIT_EXPECT_EQ(test, kfi_cancel(&ends[1].ep->fid, to), 0);
	failed(test, &ends[1], to, KFI_ECANCELED);
	KUNIT_EXPECT_EQ(test, kfi_send(ends[0].ep, from, LONG_MESSAGE, NULL, ends[0].peer, NULL),
			0);
	/* An endpoint that closes takes its messages back, and returns the room. */
	end_close(test, &ends[0]);
	KUNIT_EXPECT_EQ(test, kfi_send(ends[1].ep, from, LONG_MESSAGE, NULL, ends[1].peer, NULL),
			0);
	KUNIT_EXPECT_EQ(test, kfi_send(ends[1].ep, from, LONG_MESSAGE, NULL, ends[1].peer, NULL),
			-KFI_EAGAIN);
	KUNIT_EXPECT_EQ(test, kfi_close(&stx->fid), -KFI_EBUSY);
	end_close(test, &ends[1]);
	KUNIT_EXPECT_EQ(test, kfi_close(&stx->fid), 0);
	end_close(test, &target);
	fixture_close(test, &f);
}

CONSUMER("shared contexts",
	 KUNIT_CASE(attributes_are_checked),
	 KUNIT_CASE(other_operations_fail),
	 KUNIT_CASE(bindings_are_checked),
	 KUNIT_CASE(transmits_share_room));
