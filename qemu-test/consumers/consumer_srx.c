// SPDX-License-Identifier: GPL-2.0
/*
 * Receives of a shared receive context: how they are posted, cancelled, searched
 * for and triggered, and where they complete.
 */

#include <linux/bottom_half.h>

#include <kfi/kfi_trigger.h>

#include "pool.h"

#define SENT		(KFI_MSG | KFI_SEND)
#define RECEIVED	(KFI_MSG | KFI_RECV)
#define ROOM		PAGE_SIZE

/* Sends @len bytes to a member. */
static void send_to(struct kunit *test, struct pool *pool, int member, u8 *from, size_t len)
{
	KUNIT_ASSERT_EQ(test, kfi_send(pool->sender.ep, from, len, NULL,
				       pool->members[member].addr, from), 0);
}

static void sent(struct kunit *test, struct pool *pool, u8 *from)
{
	completed(test, &pool->sender, from, SENT, 0);
}

/* Room in the CQ is reserved for what was posted before it was known. */
static void receives_are_posted_before_endpoints(struct kunit *test)
{
	struct kfi_rx_attr attr = { .size = 8 };
	u8 *to = zeroed(test, ROOM), *from = zeroed(test, ROOM);
	struct pool pool;
	int i;

	pool_open(test, &pool, KFI_EP_RDM, &attr, 4);
	for (i = 0; i < 5; i++)
		KUNIT_EXPECT_EQ(test, kfi_recv(pool.srx, to + i, 8, NULL, ANY, to + i), 0);
	/* As on any endpoint: one of several with the same context. */
	KUNIT_EXPECT_EQ(test, kfi_recv(pool.srx, to, 8, NULL, ANY, NULL), 0);
	KUNIT_EXPECT_EQ(test, kfi_cancel(&pool.srx->fid, NULL), 0);
	member_open(test, &pool, &pool.members[0]);
	KUNIT_EXPECT_EQ(test, kfi_enable(pool.members[0].ep), -KFI_EAGAIN);
	/* A receive that is cancelled now is reported nowhere. */
	KUNIT_EXPECT_EQ(test, kfi_cancel(&pool.srx->fid, to + 4), 0);
	KUNIT_EXPECT_EQ(test, kfi_cancel(&pool.srx->fid, to + 4), -KFI_ENOENT);
	member_enable(test, &pool, &pool.members[0]);
	KUNIT_EXPECT_EQ(test, kfi_recv(pool.srx, to, 8, NULL, ANY, to), -KFI_EAGAIN);
	for (i = 0; i < 4; i++) {
		send_to(test, &pool, 0, from, 8);
		sent(test, &pool, from);
	}
	/* Entries take the places of their receives until they are read. */
	KUNIT_EXPECT_EQ(test, kfi_recv(pool.srx, to, 8, NULL, ANY, to), -KFI_EAGAIN);
	for (i = 0; i < 4; i++)
		completed(test, &pool.all, to + i, RECEIVED, 8);
	for (i = 0; i < 4; i++)
		KUNIT_EXPECT_EQ(test, kfi_recv(pool.srx, to + i, 8, NULL, ANY, to + i), 0);
	KUNIT_EXPECT_EQ(test, kfi_recv(pool.srx, to, 8, NULL, ANY, to), -KFI_EAGAIN);
	/* A close of the last endpoint gives the places back. */
	member_close(test, &pool.members[0]);
	for (i = 4; i < 8; i++)
		KUNIT_EXPECT_EQ(test, kfi_recv(pool.srx, to + i, 8, NULL, ANY, to + i), 0);
	KUNIT_EXPECT_EQ(test, kfi_recv(pool.srx, to, 8, NULL, ANY, to), -KFI_EAGAIN);
	pool_close(test, &pool);
}

/* A cancelled receive is reported in the CQ of the endpoints. */
static void receives_are_cancelled(struct kunit *test)
{
	u8 *to = zeroed(test, ROOM), *from = zeroed(test, ROOM);
	struct kvec iov = { to, ROOM };
	struct kfi_msg msg = { .type = KFI_KVEC, .msg_iov = &iov, .iov_count = 1, .addr = ANY,
			       .context = from };
	struct kfi_cq_err_entry error;
	struct pool pool;

	pool_open_whole(test, &pool);
	KUNIT_EXPECT_EQ(test, kfi_recv(pool.srx, to, 8, NULL, ANY, to), 0);
	KUNIT_EXPECT_EQ(test, kfi_trecv(pool.srx, to, 8, NULL, ANY, 1, 0, to), 0);
	KUNIT_EXPECT_EQ(test, kfi_recvmsg(pool.srx, &msg, KFI_MULTI_RECV), 0);
	/* It is not an operation of an endpoint. */
	KUNIT_EXPECT_EQ(test, kfi_cancel(&pool.members[0].ep->fid, to), -KFI_ENOENT);
	KUNIT_EXPECT_EQ(test, kfi_cancel(&pool.srx->fid, to), 0);
	failed(test, &pool.all, to, KFI_ECANCELED);
	KUNIT_EXPECT_EQ(test, kfi_cancel(&pool.srx->fid, to), 0);
	error = failed(test, &pool.all, to, KFI_ECANCELED);
	KUNIT_EXPECT_EQ(test, error.flags, KFI_TAGGED | KFI_RECV);
	KUNIT_EXPECT_EQ(test, kfi_cancel(&pool.srx->fid, from), 0);
	error = failed(test, &pool.all, from, KFI_ECANCELED);
	KUNIT_EXPECT_EQ(test, error.flags, RECEIVED | KFI_MULTI_RECV);
	KUNIT_EXPECT_EQ(test, kfi_cancel(&pool.srx->fid, to), -KFI_ENOENT);
	KUNIT_EXPECT_EQ(test, kfi_cntr_readerr(pool.members[0].received), 0);
	pool_close_whole(test, &pool);
}

/* The parts of one buffer count for the endpoints to which their messages came. */
static void parts_of_a_buffer_are_counted(struct kunit *test)
{
	u8 *to = zeroed(test, ROOM), *from = zeroed(test, ROOM);
	struct kvec iov = { to, ROOM };
	struct kfi_msg msg = { .type = KFI_KVEC, .msg_iov = &iov, .iov_count = 1, .addr = ANY,
			       .context = to };
	struct pool pool;
	int i;

	pool_open_whole(test, &pool);
	KUNIT_EXPECT_EQ(test, kfi_recvmsg(pool.srx, &msg, KFI_MULTI_RECV), 0);
	for (i = 0; i < 5; i++) {
		from[i] = 'a' + i;
		send_to(test, &pool, i % MEMBERS, from + i, 64);
		sent(test, &pool, from + i);
		completed(test, &pool.all, to, RECEIVED, 64);
		KUNIT_EXPECT_EQ(test, to[64 * i], 'a' + i);
	}
	for (i = 0; i < MEMBERS; i++)
		KUNIT_EXPECT_EQ(test, kfi_cntr_read(pool.members[i].received), i < 2 ? 2 : 1);
	KUNIT_EXPECT_EQ(test, kfi_cancel(&pool.srx->fid, to), 0);
	failed(test, &pool.all, to, KFI_ECANCELED);
	pool_close_whole(test, &pool);
}

/* A search looks at the messages of all endpoints. */
static void messages_are_searched(struct kunit *test)
{
	u8 *to = zeroed(test, ROOM), *from = zeroed(test, ROOM);
	struct kvec iov = { to, 64 };
	struct kfi_msg_tagged msg = {
		.type = KFI_KVEC,
		.msg_iov = &iov,
		.iov_count = 1,
		.addr = ANY,
		.tag = 7,
		.context = to,
	};
	const u64 flags = KFI_TAGGED | KFI_RECV;
	struct pool pool;
	int i;

	pool_open(test, &pool, KFI_EP_RDM, NULL, 0);
	/* Without endpoints nobody reports what it finds. */
	KUNIT_EXPECT_EQ(test, kfi_trecvmsg(pool.srx, &msg, KFI_PEEK), -KFI_ENOCQ);
	for (i = 0; i < MEMBERS; i++) {
		member_open(test, &pool, &pool.members[i]);
		member_enable(test, &pool, &pool.members[i]);
	}
	KUNIT_EXPECT_EQ(test, kfi_trecvmsg(pool.srx, &msg, KFI_PEEK), 0);
	failed(test, &pool.all, to, KFI_ENOMSG);
	for (i = 0; i < 3; i++) {
		from[i] = 'x' + i;
		KUNIT_EXPECT_EQ(test, kfi_tsend(pool.sender.ep, from + i, 3, NULL,
						pool.members[i].addr, 7, from), 0);
		completed(test, &pool.sender, from, KFI_TAGGED | KFI_SEND, 0);
	}
	KUNIT_EXPECT_EQ(test, kfi_trecvmsg(pool.srx, &msg, KFI_PEEK), 0);
	completed(test, &pool.all, to, flags, 3);
	KUNIT_EXPECT_EQ(test, kfi_trecvmsg(pool.srx, &msg, KFI_PEEK | KFI_CLAIM), 0);
	completed(test, &pool.all, to, flags, 3);
	KUNIT_EXPECT_EQ(test, kfi_trecvmsg(pool.srx, &msg, KFI_PEEK | KFI_DISCARD), 0);
	completed(test, &pool.all, to, flags, 3);
	KUNIT_EXPECT_EQ(test, kfi_trecvmsg(pool.srx, &msg, KFI_CLAIM), 0);
	completed(test, &pool.all, to, flags, 3);
	KUNIT_EXPECT_EQ(test, to[0], 'x');
	KUNIT_EXPECT_EQ(test, kfi_trecvmsg(pool.srx, &msg, KFI_CLAIM), -KFI_ENOMSG);
	KUNIT_EXPECT_EQ(test, kfi_trecvmsg(pool.srx, &msg, 0), 0);
	completed(test, &pool.all, to, flags, 3);
	KUNIT_EXPECT_EQ(test, to[0], 'z');
	nothing(test, &pool.all);
	pool_close_whole(test, &pool);
}

/* A receive from one source, by the AV that all endpoints have. */
static void receives_take_one_source(struct kunit *test)
{
	u8 *to = zeroed(test, ROOM), *from = zeroed(test, ROOM);
	struct kfid_ep *ep;
	struct sockaddr_in addr;
	size_t len = sizeof(addr);
	kfi_addr_t addrs[2];
	struct pool pool;
	int i;

	pool_open(test, &pool, KFI_EP_RDM, NULL, 0);
	KUNIT_ASSERT_EQ(test, kfi_getname(&pool.sender.ep->fid, &addr, &len), 0);
	KUNIT_ASSERT_EQ(test, kfi_av_insert(pool.all.av, &addr, 1, &addrs[0], 0, NULL), 1);
	KUNIT_EXPECT_EQ(test, kfi_recv(pool.srx, to, 8, NULL, addrs[0], to), -KFI_ENOAV);
	for (i = 0; i < MEMBERS; i++) {
		member_open(test, &pool, &pool.members[i]);
		member_enable(test, &pool, &pool.members[i]);
	}
	/* A member sends to others, too. */
	ep = pool.members[0].ep;
	len = sizeof(addr);
	KUNIT_ASSERT_EQ(test, kfi_getname(&ep->fid, &addr, &len), 0);
	KUNIT_ASSERT_EQ(test, kfi_av_insert(pool.all.av, &addr, 1, &addrs[1], 0, NULL), 1);
	KUNIT_EXPECT_EQ(test, kfi_recv(pool.srx, to, 8, NULL, addrs[1], to), 0);
	KUNIT_EXPECT_EQ(test, kfi_recv(pool.srx, to, 8, NULL, addrs[0], to + 1), 0);
	KUNIT_EXPECT_EQ(test, kfi_recv(pool.srx, to, 8, NULL, 1234, to), -KFI_ENOENT);
	send_to(test, &pool, 1, from, 4);
	sent(test, &pool, from);
	completed(test, &pool.all, to + 1, RECEIVED, 4);
	KUNIT_EXPECT_EQ(test, kfi_send(ep, from, 5, NULL, addrs[1], from), 0);
	completed(test, &pool.all, to, RECEIVED, 5);
	completed(test, &pool.all, from, SENT, 0);
	pool_close_whole(test, &pool);
}

/*
 * Posts a receive where the caller may not sleep. At most as many wait there as may be posted, so
 * the call is repeated until the worker has posted some.
 */
static ssize_t recv_in_softirq(struct kfid_ep *srx, u8 *to, void *context)
{
	ssize_t ret = -KFI_EAGAIN;
	int i;

	for (i = 0; i < 10000 && ret == -KFI_EAGAIN; i++) {
		if (i)
			usleep_range(1000, 2000);
		local_bh_disable();
		ret = kfi_recv(srx, to, 64, NULL, ANY, context);
		local_bh_enable();
	}
	return ret;
}

/* A receive is posted where the caller may not sleep, and cancelled there. */
static void receives_are_posted_in_softirqs(struct kunit *test)
{
	u8 *to = zeroed(test, ROOM), *from = zeroed(test, ROOM);
	struct kfi_rx_attr attr = { .size = 2 };
	struct pool pool;
	int i;

	pool_open(test, &pool, KFI_EP_RDM, &attr, 0);
	for (i = 0; i < MEMBERS; i++) {
		member_open(test, &pool, &pool.members[i]);
		member_enable(test, &pool, &pool.members[i]);
	}
	/* More than there is room for: those that wait are posted later. */
	for (i = 0; i < 4; i++)
		KUNIT_EXPECT_EQ(test, recv_in_softirq(pool.srx, to + 64 * i, to + i), 0);
	for (i = 0; i < 3; i++) {
		from[i] = 'a' + i;
		send_to(test, &pool, i % MEMBERS, from + i, 1);
		sent(test, &pool, from + i);
		completed(test, &pool.all, to + i, RECEIVED, 1);
		KUNIT_EXPECT_EQ(test, to[64 * i], 'a' + i);
	}
	KUNIT_EXPECT_EQ(test, kfi_cancel(&pool.srx->fid, to + 3), 0);
	failed(test, &pool.all, to + 3, KFI_ECANCELED);
	pool_close_whole(test, &pool);
}

/* A counter posts a receive to a context; deferred work cannot. */
static void a_counter_triggers_a_receive(struct kunit *test)
{
	u8 *to = zeroed(test, ROOM), *from = zeroed(test, ROOM);
	struct kfi_triggered_context when = { .event_type = KFI_TRIGGER_THRESHOLD };
	struct kvec iov = { to, 8 };
	struct kfi_msg msg = { .type = KFI_KVEC, .msg_iov = &iov, .iov_count = 1, .addr = ANY,
			       .context = &when };
	struct kfi_op_msg deferred = {};
	struct kfi_deferred_work work = { .op_type = KFI_OP_RECV, .op.msg = &deferred };
	struct kfid_cntr *cntr;
	struct pool pool;

	pool_open_whole(test, &pool);
	cntr = open_cntr(test, &pool.f, KFI_WAIT_UNSPEC, NULL, NULL);
	when.trigger.threshold.cntr = cntr;
	when.trigger.threshold.threshold = 2;
	KUNIT_EXPECT_EQ(test, kfi_recvmsg(pool.srx, &msg, KFI_TRIGGER), 0);
	send_to(test, &pool, 0, from, 8);
	sent(test, &pool, from);
	KUNIT_EXPECT_EQ(test, kfi_cntr_add(cntr, 1), 0);
	nothing(test, &pool.all);
	KUNIT_EXPECT_EQ(test, kfi_cntr_add(cntr, 1), 0);
	completed(test, &pool.all, &when, RECEIVED, 8);
	deferred.ep = pool.srx;
	deferred.msg = msg;
	work.triggering_cntr = cntr;
	work.threshold = 3;
	KUNIT_EXPECT_EQ(test, kfi_control(&pool.f.domain->fid, KFI_QUEUE_WORK, &work),
			-KFI_ENOSYS);
	KUNIT_EXPECT_EQ(test, kfi_close(&cntr->fid), 0);
	pool_close_whole(test, &pool);
}

CONSUMER("shared receive contexts",
	 KUNIT_CASE(receives_are_posted_before_endpoints),
	 KUNIT_CASE(receives_are_cancelled),
	 KUNIT_CASE(parts_of_a_buffer_are_counted),
	 KUNIT_CASE(messages_are_searched),
	 KUNIT_CASE(receives_take_one_source),
	 KUNIT_CASE(receives_are_posted_in_softirqs),
	 KUNIT_CASE(a_counter_triggers_a_receive));
