// SPDX-License-Identifier: GPL-2.0
/*
 * Contexts of scalable endpoints: their attributes beside those of the endpoint,
 * their counters, and operations that wait for a counter (fi_endpoint(3),
 * fi_trigger(3)).
 */

#include <kfi/kfi_atomic.h>
#include <kfi/kfi_rma.h>
#include <kfi/kfi_trigger.h>

#include "sep.h"

#define KEY	7

/* How kfi_tx_context() ends with @attr. */
static int try_tx(struct kfid_ep *sep, struct kfi_tx_attr attr)
{
	struct kfid_ep *ep = NULL;
	int ret = kfi_tx_context(sep, 0, &attr, &ep, NULL);

	if (ret)
		return ep ? -EBADMSG : ret;
	return kfi_close(&ep->fid);
}

static int try_rx(struct kfid_ep *sep, struct kfi_rx_attr attr)
{
	struct kfid_ep *ep = NULL;
	int ret = kfi_rx_context(sep, 0, &attr, &ep, NULL);

	if (ret)
		return ep ? -EBADMSG : ret;
	return kfi_close(&ep->fid);
}

/* A context has at most what the endpoint was opened with. */
static void attributes_are_those_of_the_endpoint_or_less(struct kunit *test)
{
	struct kfi_info *info = sep_info(test, CONTEXTS);
	size_t inject = info->tx_attr->inject_size;
	u64 order = info->tx_attr->msg_order;
	struct kfi_tx_attr tx = {};
	struct kfi_rx_attr rx = {};
	struct fixture f;
	struct kfid_ep *sep, *ep;

	fixture_open(test, &f);
	KUNIT_ASSERT_NE(test, inject, 0);
	KUNIT_ASSERT_NE(test, order & KFI_ORDER_SAS, 0);
	KUNIT_ASSERT_EQ(test, kfi_scalable_ep(f.domain, info, &sep, NULL), 0);
#define TX(...)	try_tx(sep, (struct kfi_tx_attr){ __VA_ARGS__ })
#define RX(...)	try_rx(sep, (struct kfi_rx_attr){ __VA_ARGS__ })
	KUNIT_EXPECT_EQ(test, TX(.msg_order = order), 0);
	KUNIT_EXPECT_EQ(test, TX(.msg_order = KFI_ORDER_SAS), 0);
	KUNIT_EXPECT_EQ(test, TX(.msg_order = KFI_ORDER_STRICT), -KFI_EINVAL);
	KUNIT_EXPECT_EQ(test, RX(.msg_order = KFI_ORDER_SAS), 0);
	KUNIT_EXPECT_EQ(test, RX(.msg_order = KFI_ORDER_STRICT), -KFI_EINVAL);
	KUNIT_EXPECT_EQ(test, TX(.comp_order = KFI_ORDER_STRICT | KFI_ORDER_DATA), -KFI_EINVAL);
	KUNIT_EXPECT_EQ(test, TX(.inject_size = inject), 0);
	KUNIT_EXPECT_EQ(test, TX(.inject_size = 1), 0);
	KUNIT_EXPECT_EQ(test, TX(.inject_size = inject + 1), -KFI_EINVAL);
	KUNIT_EXPECT_EQ(test, TX(.caps = KFI_MSG | KFI_SEND), 0);
	KUNIT_EXPECT_EQ(test, TX(.caps = KFI_MSG | KFI_RECV), -KFI_EINVAL);
	KUNIT_EXPECT_EQ(test, TX(.caps = KFI_MSG | KFI_MULTICAST), -KFI_EINVAL);
	KUNIT_EXPECT_EQ(test, RX(.caps = KFI_MSG | KFI_RECV | KFI_DIRECTED_RECV), 0);
	KUNIT_EXPECT_EQ(test, RX(.caps = KFI_MSG | KFI_SEND), -KFI_EINVAL);
	KUNIT_EXPECT_EQ(test, TX(.op_flags = KFI_PEEK), -KFI_EINVAL);
	KUNIT_EXPECT_EQ(test, RX(.op_flags = KFI_INJECT), -KFI_EINVAL);
	KUNIT_EXPECT_EQ(test, RX(.total_buffered_recv = SIZE_MAX), -KFI_EINVAL);
	KUNIT_EXPECT_EQ(test, kfi_close(&sep->fid), 0);
	/* An endpoint without a capability has no context with it. */
	info->caps = KFI_MSG;
	info->tx_attr->caps = 0;
	info->rx_attr->caps = 0;
	KUNIT_ASSERT_EQ(test, kfi_scalable_ep(f.domain, info, &sep, NULL), 0);
	KUNIT_EXPECT_EQ(test, TX(.caps = KFI_MSG), 0);
	KUNIT_EXPECT_EQ(test, TX(.caps = KFI_MSG | KFI_TAGGED), -KFI_EINVAL);
	KUNIT_EXPECT_EQ(test, RX(.caps = KFI_MSG | KFI_DIRECTED_RECV), -KFI_EINVAL);
	/* The attributes that the context has are returned. */
	KUNIT_ASSERT_EQ(test, kfi_tx_context(sep, 0, &tx, &ep, NULL), 0);
	KUNIT_EXPECT_EQ(test, tx.caps & (KFI_MSG | KFI_SEND | KFI_TAGGED), KFI_MSG | KFI_SEND);
	KUNIT_EXPECT_EQ(test, tx.inject_size, inject);
	KUNIT_EXPECT_EQ(test, tx.msg_order, order);
	KUNIT_EXPECT_EQ(test, kfi_close(&ep->fid), 0);
	KUNIT_ASSERT_EQ(test, kfi_rx_context(sep, 0, &rx, &ep, NULL), 0);
	KUNIT_EXPECT_EQ(test, rx.caps & (KFI_MSG | KFI_RECV | KFI_DIRECTED_RECV),
			KFI_MSG | KFI_RECV);
	CLOSE(test, &ep->fid, &sep->fid);
	kfi_freeinfo(info);
	fixture_close(test, &f);
}

/* Replaces a context by one that is bound to a counter, too. */
static void count_tx(struct kunit *test, struct sep *s, int i, struct kfid_cntr *cntr, u64 flags)
{
	KUNIT_EXPECT_EQ(test, kfi_close(&s->tx[i]->fid), 0);
	KUNIT_ASSERT_EQ(test, kfi_tx_context(s->ep, i, NULL, &s->tx[i], s), 0);
	KUNIT_EXPECT_EQ(test, kfi_ep_bind(s->tx[i], &s->tx_cq[i]->fid, 0), 0);
	KUNIT_EXPECT_EQ(test, kfi_ep_bind(s->tx[i], &cntr->fid, flags), 0);
	KUNIT_ASSERT_EQ(test, kfi_enable(s->tx[i]), 0);
}

static void count_rx(struct kunit *test, struct sep *s, int i, struct kfid_cntr *cntr, u64 flags)
{
	KUNIT_EXPECT_EQ(test, kfi_close(&s->rx[i]->fid), 0);
	KUNIT_ASSERT_EQ(test, kfi_rx_context(s->ep, i, NULL, &s->rx[i], s), 0);
	KUNIT_EXPECT_EQ(test, kfi_ep_bind(s->rx[i], &s->rx_cq[i]->fid, 0), 0);
	KUNIT_EXPECT_EQ(test, kfi_ep_bind(s->rx[i], &cntr->fid, flags), 0);
	KUNIT_ASSERT_EQ(test, kfi_enable(s->rx[i]), 0);
}

/* Each context counts its own operations, of the kinds that the counter is bound for. */
static void contexts_count(struct kunit *test)
{
	struct kfid_cntr *sends, *writes, *reads, *received, *accessed;
	u8 *here = zeroed(test, PAGE_SIZE), *there = zeroed(test, PAGE_SIZE);
	struct kfi_cq_err_entry error = {};
	struct kfi_cq_tagged_entry entry;
	kfi_addr_t peer;
	struct sep seps[2];
	struct kfid_mr *mr;
	struct fixture f;

	fixture_open(test, &f);
	sep_open(test, &f, &seps[0]);
	sep_open(test, &f, &seps[1]);
	peer = sep_knows(test, &seps[0], &seps[1]);
	sends = open_cntr(test, &f, KFI_WAIT_UNSPEC, NULL, NULL);
	writes = open_cntr(test, &f, KFI_WAIT_UNSPEC, NULL, NULL);
	reads = open_cntr(test, &f, KFI_WAIT_UNSPEC, NULL, NULL);
	received = open_cntr(test, &f, KFI_WAIT_UNSPEC, NULL, NULL);
	accessed = open_cntr(test, &f, KFI_WAIT_UNSPEC, NULL, NULL);
	count_tx(test, &seps[0], 0, sends, KFI_SEND);
	count_tx(test, &seps[0], 1, writes, KFI_WRITE);
	KUNIT_EXPECT_EQ(test, kfi_ep_bind(seps[0].tx[1], &reads->fid, KFI_READ),
			-KFI_EOPBADSTATE);
	count_tx(test, &seps[0], 2, reads, KFI_READ);
	count_rx(test, &seps[1], 0, received, KFI_RECV);
	count_rx(test, &seps[1], 1, accessed, KFI_REMOTE_WRITE | KFI_REMOTE_READ);
	KUNIT_ASSERT_EQ(test, kfi_mr_reg(f.domain, there, PAGE_SIZE,
					 KFI_REMOTE_READ | KFI_REMOTE_WRITE, 0, KEY, 0, &mr,
					 NULL), 0);
	/* Two messages to one context, one to another. */
	KUNIT_EXPECT_EQ(test, kfi_recv(seps[1].rx[0], there, 8, NULL, KFI_ADDR_UNSPEC, there), 0);
	KUNIT_EXPECT_EQ(test, kfi_trecv(seps[1].rx[0], there, 8, NULL, KFI_ADDR_UNSPEC, 1, 0,
					there), 0);
	KUNIT_EXPECT_EQ(test, kfi_recv(seps[1].rx[2], there, 8, NULL, KFI_ADDR_UNSPEC, there), 0);
	KUNIT_EXPECT_EQ(test, kfi_inject(seps[0].tx[0], here, 8, peer), 0);
	KUNIT_EXPECT_EQ(test, kfi_tinject(seps[0].tx[1], here, 8, peer, 1), 0);
	KUNIT_EXPECT_EQ(test, kfi_inject(seps[0].tx[0], here, 8, kfi_rx_addr(peer, 2, BITS)), 0);
	KUNIT_EXPECT_EQ(test, kfi_cntr_wait(sends, 2, LONG), 0);
	KUNIT_EXPECT_EQ(test, kfi_cntr_wait(received, 2, LONG), 0);
	/* Each kind of access, through the context that counts and through others. */
	KUNIT_EXPECT_EQ(test, kfi_write(seps[0].tx[1], here, 8, NULL, kfi_rx_addr(peer, 1, BITS),
					0, KEY, here), 0);
	next_of(test, seps[0].tx_cq[1], here, KFI_RMA | KFI_WRITE);
	KUNIT_EXPECT_EQ(test, kfi_write(seps[0].tx[2], here, 8, NULL, kfi_rx_addr(peer, 1, BITS),
					0, KEY, here), 0);
	next_of(test, seps[0].tx_cq[2], here, KFI_RMA | KFI_WRITE);
	KUNIT_EXPECT_EQ(test, kfi_read(seps[0].tx[2], here, 8, NULL, peer, 0, KEY, here), 0);
	next_of(test, seps[0].tx_cq[2], here, KFI_RMA | KFI_READ);
	KUNIT_EXPECT_EQ(test, kfi_cntr_wait(accessed, 2, LONG), 0);
	KUNIT_EXPECT_EQ(test, kfi_cntr_wait(writes, 1, LONG), 0);
	KUNIT_EXPECT_EQ(test, kfi_cntr_wait(reads, 1, LONG), 0);
	KUNIT_EXPECT_EQ(test, kfi_cntr_read(sends), 2);
	KUNIT_EXPECT_EQ(test, kfi_cntr_read(received), 2);
	KUNIT_EXPECT_EQ(test, kfi_cntr_read(accessed), 2);
	KUNIT_EXPECT_EQ(test, kfi_cntr_read(writes), 1);
	/* A failure is an error of the context's counter. */
	KUNIT_EXPECT_EQ(test, kfi_close(&mr->fid), 0);
	KUNIT_EXPECT_EQ(test, kfi_write(seps[0].tx[1], here, 8, NULL, kfi_rx_addr(peer, 1, BITS),
					0, KEY, here), 0);
	KUNIT_ASSERT_EQ(test, kfi_cq_sread(seps[0].tx_cq[1], &entry, 1, NULL, LONG), -KFI_EAVAIL);
	KUNIT_EXPECT_EQ(test, kfi_cq_readerr(seps[0].tx_cq[1], &error, 0), 1);
	KUNIT_EXPECT_EQ(test, error.err, KFI_EACCES);
	KUNIT_EXPECT_EQ(test, kfi_cntr_read(writes), 1);
	KUNIT_EXPECT_EQ(test, kfi_cntr_readerr(writes), 1);
	KUNIT_EXPECT_EQ(test, kfi_cntr_readerr(reads), 0);
	KUNIT_EXPECT_EQ(test, kfi_cntr_read(accessed), 2);
	KUNIT_EXPECT_EQ(test, kfi_close(&sends->fid), -KFI_EBUSY);
	KUNIT_EXPECT_EQ(test, kfi_close(&received->fid), -KFI_EBUSY);
	sep_close(test, &seps[0]);
	sep_close(test, &seps[1]);
	CLOSE(test, &sends->fid, &writes->fid, &reads->fid, &received->fid, &accessed->fid);
	fixture_close(test, &f);
}

/* A counter that is bound without flags counts every kind of operation of its context. */
static void contexts_count_all_without_flags(struct kunit *test)
{
	u8 *here = zeroed(test, PAGE_SIZE), *there = zeroed(test, PAGE_SIZE);
	struct kfid_cntr *out, *in;
	kfi_addr_t peer;
	struct sep seps[2];
	struct kfid_mr *mr;
	struct fixture f;

	fixture_open(test, &f);
	sep_open(test, &f, &seps[0]);
	sep_open(test, &f, &seps[1]);
	peer = sep_knows(test, &seps[0], &seps[1]);
	out = open_cntr(test, &f, KFI_WAIT_UNSPEC, NULL, NULL);
	in = open_cntr(test, &f, KFI_WAIT_UNSPEC, NULL, NULL);
	count_tx(test, &seps[0], 0, out, 0);
	count_rx(test, &seps[1], 0, in, 0);
	KUNIT_ASSERT_EQ(test, kfi_mr_reg(f.domain, there, PAGE_SIZE,
					 KFI_REMOTE_READ | KFI_REMOTE_WRITE, 0, KEY, 0, &mr,
					 NULL), 0);
	KUNIT_EXPECT_EQ(test, kfi_recv(seps[1].rx[0], there, 8, NULL, KFI_ADDR_UNSPEC, there), 0);
	KUNIT_EXPECT_EQ(test, kfi_inject(seps[0].tx[0], here, 8, peer), 0);
	KUNIT_EXPECT_EQ(test, kfi_cntr_wait(out, 1, LONG), 0);
	KUNIT_EXPECT_EQ(test, kfi_cntr_wait(in, 1, LONG), 0);
	KUNIT_EXPECT_EQ(test, kfi_inject_write(seps[0].tx[0], here, 8, peer, 0, KEY), 0);
	KUNIT_EXPECT_EQ(test, kfi_cntr_wait(out, 2, LONG), 0);
	KUNIT_EXPECT_EQ(test, kfi_cntr_wait(in, 2, LONG), 0);
	KUNIT_EXPECT_EQ(test, kfi_read(seps[0].tx[0], here, 8, NULL, peer, 0, KEY, here), 0);
	next_of(test, seps[0].tx_cq[0], here, KFI_RMA | KFI_READ);
	KUNIT_EXPECT_EQ(test, kfi_cntr_wait(out, 3, LONG), 0);
	KUNIT_EXPECT_EQ(test, kfi_cntr_wait(in, 3, LONG), 0);
	KUNIT_EXPECT_EQ(test, kfi_close(&mr->fid), 0);
	sep_close(test, &seps[0]);
	sep_close(test, &seps[1]);
	CLOSE(test, &out->fid, &in->fid);
	fixture_close(test, &f);
}

/* Operations of contexts wait for a counter, as those of endpoints do. */
static void contexts_are_triggered(struct kunit *test)
{
	u8 *here = zeroed(test, PAGE_SIZE), *there = zeroed(test, PAGE_SIZE);
	struct kfi_triggered_context first = { .event_type = KFI_TRIGGER_THRESHOLD };
	struct kfi_triggered_context second;
	struct kvec from = { here, 8 }, to = { there, 8 };
	struct kfi_msg msg = { .type = KFI_KVEC, .iov_count = 1 };
	struct kfid_cntr *go;
	kfi_addr_t peer;
	struct sep s;
	struct fixture f;

	fixture_open(test, &f);
	sep_open(test, &f, &s);
	peer = kfi_rx_addr(sep_knows(test, &s, &s), 2, BITS);
	go = open_cntr(test, &f, KFI_WAIT_UNSPEC, NULL, NULL);
	first.trigger.threshold.cntr = go;
	first.trigger.threshold.threshold = 1;
	second = first;
	second.trigger.threshold.threshold = 2;
	memset(here, 't', 8);
	/* The send waits for the receive, and that for the counter. */
	msg.msg_iov = &from;
	msg.addr = peer;
	msg.context = &first;
	KUNIT_EXPECT_EQ(test, kfi_sendmsg(s.tx[1], &msg, KFI_TRIGGER), 0);
	msg.msg_iov = &to;
	msg.addr = KFI_ADDR_UNSPEC;
	msg.context = &second;
	KUNIT_EXPECT_EQ(test, kfi_recvmsg(s.rx[2], &msg, KFI_TRIGGER), 0);
	/* A transmit that waits is an operation that has not completed. */
	KUNIT_EXPECT_EQ(test, kfi_close(&s.tx[1]->fid), -KFI_EBUSY);
	KUNIT_EXPECT_EQ(test, kfi_close(&go->fid), -KFI_EBUSY);
	KUNIT_EXPECT_EQ(test, kfi_cntr_add(go, 1), 0);
	next_of(test, s.tx_cq[1], &first, SENT);
	KUNIT_EXPECT_EQ(test, kfi_cntr_add(go, 1), 0);
	next_of(test, s.rx_cq[2], &second, RECEIVED);
	KUNIT_EXPECT_MEMEQ(test, there, here, 8);
	/* A context has the operations of its side. */
	msg.context = &first;
	KUNIT_EXPECT_EQ(test, kfi_recvmsg(s.tx[1], &msg, KFI_TRIGGER), -KFI_EOPNOTSUPP);
	KUNIT_EXPECT_EQ(test, kfi_sendmsg(s.rx[2], &msg, KFI_TRIGGER), -KFI_EOPNOTSUPP);
	KUNIT_EXPECT_EQ(test, kfi_close(&go->fid), 0);
	sep_close(test, &s);
	fixture_close(test, &f);
}

/* Deferred work of contexts. */
static void contexts_have_deferred_work(struct kunit *test)
{
	u8 *here = zeroed(test, PAGE_SIZE), *there = zeroed(test, PAGE_SIZE);
	struct kvec from = { here, 8 }, to = { there, 8 };
	struct kfi_op_msg send = {}, receive = {};
	struct kfi_op_rma write = {};
	struct kfi_rma_iov piece = { .addr = 64, .len = 8, .key = KEY };
	struct kfi_deferred_work works[3] = {}, bad = {};
	struct kfid_cntr *go, *done;
	kfi_addr_t peer;
	struct kfid_mr *mr;
	struct sep s;
	struct fixture f;
	int i;

	fixture_open(test, &f);
	sep_open(test, &f, &s);
	peer = kfi_rx_addr(sep_knows(test, &s, &s), 2, BITS);
	go = open_cntr(test, &f, KFI_WAIT_UNSPEC, NULL, NULL);
	done = open_cntr(test, &f, KFI_WAIT_UNSPEC, NULL, NULL);
	KUNIT_ASSERT_EQ(test, kfi_mr_reg(f.domain, there, PAGE_SIZE, KFI_REMOTE_WRITE, 0, KEY, 0,
					 &mr, NULL), 0);
	memset(here, 'd', 8);
	receive.ep = s.rx[2];
	receive.msg = (struct kfi_msg){ .type = KFI_KVEC, .msg_iov = &to, .iov_count = 1,
					.addr = KFI_ADDR_UNSPEC, .context = there };
	send.ep = s.tx[0];
	send.msg = (struct kfi_msg){ .type = KFI_KVEC, .msg_iov = &from, .iov_count = 1,
				     .addr = peer, .context = here };
	write.ep = s.tx[1];
	write.msg = (struct kfi_msg_rma){ .type = KFI_KVEC, .msg_iov = &from, .iov_count = 1,
					  .addr = peer, .rma_iov = &piece, .rma_iov_count = 1,
					  .context = here };
	write.flags = KFI_COMPLETION;
	works[0].op_type = KFI_OP_RECV;
	works[0].op.msg = &receive;
	works[1].op_type = KFI_OP_SEND;
	works[1].op.msg = &send;
	works[2].op_type = KFI_OP_WRITE;
	works[2].op.rma = &write;
	for (i = 0; i < 3; i++) {
		works[i].triggering_cntr = go;
		works[i].completion_cntr = done;
		works[i].threshold = 1;
		KUNIT_EXPECT_EQ(test, kfi_control(&f.domain->fid, KFI_QUEUE_WORK, &works[i]), 0);
	}
	/* Neither the scalable endpoint nor a context of the other side can do it. */
	bad = works[1];
	send.ep = s.ep;
	KUNIT_EXPECT_LT(test, kfi_control(&f.domain->fid, KFI_QUEUE_WORK, &bad), 0);
	send.ep = s.rx[2];
	KUNIT_EXPECT_EQ(test, kfi_control(&f.domain->fid, KFI_QUEUE_WORK, &bad), -KFI_ENOSYS);
	bad = works[0];
	receive.ep = s.tx[0];
	KUNIT_EXPECT_EQ(test, kfi_control(&f.domain->fid, KFI_QUEUE_WORK, &bad), -KFI_ENOSYS);
	KUNIT_EXPECT_EQ(test, kfi_cntr_add(go, 1), 0);
	KUNIT_EXPECT_EQ(test, kfi_cntr_wait(done, 3, LONG), 0);
	KUNIT_EXPECT_EQ(test, kfi_cntr_read(done), 3);
	KUNIT_EXPECT_MEMEQ(test, there, here, 8);
	KUNIT_EXPECT_MEMEQ(test, there + 64, here, 8);
	next_of(test, s.tx_cq[1], here, KFI_RMA | KFI_WRITE);
	for (i = 0; i < CONTEXTS; i++) {
		struct kfi_cq_tagged_entry entry;

		KUNIT_EXPECT_EQ(test, kfi_cq_read(s.tx_cq[i], &entry, 1), -KFI_EAGAIN);
		KUNIT_EXPECT_EQ(test, kfi_cq_read(s.rx_cq[i], &entry, 1), -KFI_EAGAIN);
	}
	KUNIT_EXPECT_EQ(test, kfi_close(&mr->fid), 0);
	sep_close(test, &s);
	CLOSE(test, &go->fid, &done->fid);
	fixture_close(test, &f);
}

CONSUMER("attributes, counters and deferred work of contexts",
	 KUNIT_CASE(attributes_are_those_of_the_endpoint_or_less),
	 KUNIT_CASE(contexts_count),
	 KUNIT_CASE(contexts_count_all_without_flags),
	 KUNIT_CASE(contexts_are_triggered),
	 KUNIT_CASE(contexts_have_deferred_work));
