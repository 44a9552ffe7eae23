// SPDX-License-Identifier: GPL-2.0
/*
 * Posts where the caller may not sleep.
 */

#include <linux/spinlock.h>
#include <linux/uio.h>

#include "cm.h"
#include "sep.h"

#define TAG		5
#define ROOM		PAGE_SIZE

/**
 * struct burst - what a context posts
 * @ends: receives at the second, sends from the first
 * @to: memory for receives
 * @from: bytes to send
 * @len: their number
 * @count: posted messages
 * @ret: the first error
 */
struct burst {
	struct end		*ends;
	u8			*to;
	u8			*from;
	size_t			len;
	int			count;
	int			ret;
};

static int post(void *arg)
{
	struct burst *burst = arg;
	struct end *ends = burst->ends;
	int i, ret = 0;

	for (i = 0; i < burst->count && !ret; i++) {
		ret = kfi_recv(ends[1].ep, burst->to, ROOM, NULL, 0, burst->to);
		if (!ret)
			ret = kfi_send(ends[0].ep, burst->from, burst->len, NULL, ends[0].peer,
				       burst->from);
	}
	/* Injected bytes may change at once. */
	if (!ret)
		ret = kfi_recv(ends[1].ep, burst->to, ROOM, NULL, 0, burst->to);
	if (!ret) {
		char text[] = "injected";

		ret = kfi_inject(ends[0].ep, text, sizeof(text), ends[0].peer);
		memset(text, 'x', sizeof(text) - 1);
	}
	return ret;
}

/* Everything of a burst completes, in its order. */
static void burst_completes(struct kunit *test, struct burst *burst)
{
	int i;

	KUNIT_EXPECT_EQ(test, burst->ret, 0);
	for (i = 0; i < burst->count; i++) {
		completed(test, &burst->ends[1], burst->to, RECEIVED, burst->len);
		completed(test, &burst->ends[0], burst->from, SENT, burst->len);
	}
	completed(test, &burst->ends[1], burst->to, RECEIVED, sizeof("injected"));
	KUNIT_EXPECT_STREQ(test, burst->to, "injected");
	nothing(test, &burst->ends[0]);
	nothing(test, &burst->ends[1]);
}

static void posts_need_not_sleep(struct kunit *test)
{
	static const size_t lengths[] = { 0, 8, 256, 257, 3000 };
	struct burst *burst = zeroed(test, sizeof(*burst));
	static DEFINE_SPINLOCK(lock);
	unsigned long flags;
	struct fixture f;
	struct end ends[2];
	int i;

	burst->to = zeroed_page(test);
	burst->from = zeroed_page(test);
	pair_open(test, &f, KFI_EP_RDM, ends);
	burst->ends = ends;
	burst->count = 20;
	for (i = 0; i < ARRAY_SIZE(lengths); i++) {
		burst->len = lengths[i];
		/* In a softirq. */
		burst->ret = call_in_softirq(post, burst);
		burst_completes(test, burst);
		/* Under a spin lock, with and without interrupts. */
		spin_lock(&lock);
		burst->ret = post(burst);
		spin_unlock(&lock);
		burst_completes(test, burst);
		spin_lock_irqsave(&lock, flags);
		burst->ret = post(burst);
		spin_unlock_irqrestore(&lock, flags);
		burst_completes(test, burst);
		/* In an RCU read-side critical section. */
		rcu_read_lock();
		burst->ret = post(burst);
		rcu_read_unlock();
		burst_completes(test, burst);
	}
	pair_close(test, &f, ends);
}

/**
 * struct route - from an endpoint or context to another one
 * @tx: it sends
 * @tx_cq: its completions
 * @rx: it receives
 * @rx_cq: its completions
 * @peer: @rx as @tx knows it
 * @kind: KFI_MSG or KFI_TAGGED
 * @loses: a message that finds no receive is lost
 */
struct route {
	struct kfid_ep	*tx;
	struct kfid_cq	*tx_cq;
	struct kfid_ep	*rx;
	struct kfid_cq	*rx_cq;
	kfi_addr_t	peer;
	u64		kind;
	bool		loses;
};

/* The route from the first end to the second. */
static struct route route_of(struct end *ends, u64 kind)
{
	return (struct route){
		.tx = ends[0].ep, .tx_cq = ends[0].cq, .rx = ends[1].ep, .rx_cq = ends[1].cq,
		.peer = ends[0].peer, .kind = kind,
	};
}

static ssize_t route_receive(struct route *route, void *to)
{
	if (route->kind == KFI_TAGGED)
		return kfi_trecv(route->rx, to, ROOM, NULL, KFI_ADDR_UNSPEC, TAG, 0, to);
	return kfi_recv(route->rx, to, ROOM, NULL, KFI_ADDR_UNSPEC, to);
}

static ssize_t route_send(struct route *route, void *from, size_t len, bool injects)
{
	if (route->kind == KFI_TAGGED)
		return injects ? kfi_tinject(route->tx, from, len, route->peer, TAG) :
				 kfi_tsend(route->tx, from, len, NULL, route->peer, TAG, from);
	return injects ? kfi_inject(route->tx, from, len, route->peer) :
			 kfi_send(route->tx, from, len, NULL, route->peer, from);
}

/* A message whose receive and send are posted with softirqs disabled. */
static void a_message_passes(struct kunit *test, struct route *route, u8 *to, u8 *from, size_t len,
			     bool injects)
{
	static DEFINE_SPINLOCK(lock);
	struct kfi_cq_tagged_entry entry = {};
	ssize_t received, sent, ret = -KFI_EAGAIN;
	int i, sends = 1;

	memset(to, 0, ROOM);
	spin_lock_bh(&lock);
	received = route_receive(route, to);
	sent = route_send(route, from, len, injects);
	spin_unlock_bh(&lock);
	KUNIT_ASSERT_EQ(test, received, 0);
	KUNIT_ASSERT_EQ(test, sent, 0);
	for (i = 0; i < LONG / 100 && ret == -KFI_EAGAIN; i++) {
		ret = kfi_cq_sread(route->rx_cq, &entry, 1, NULL, 100);
		if (ret == -KFI_EAGAIN && route->loses) {
			KUNIT_EXPECT_EQ(test, route_send(route, from, len, injects), 0);
			sends++;
		}
	}
	KUNIT_ASSERT_EQ(test, ret, 1);
	KUNIT_EXPECT_PTR_EQ(test, entry.op_context, (void *)to);
	KUNIT_EXPECT_EQ(test, entry.flags, route->kind | KFI_RECV);
	KUNIT_EXPECT_EQ(test, entry.len, len);
	KUNIT_EXPECT_MEMEQ(test, to, from, len);
	for (i = 0; i < (injects ? 0 : sends); i++)
		next_of(test, route->tx_cq, from, route->kind | KFI_SEND);
	KUNIT_EXPECT_EQ(test, kfi_cq_read(route->tx_cq, &entry, 1), -KFI_EAGAIN);
}

static void route_needs_no_sleep(struct kunit *test, struct route *route)
{
	u8 *to = zeroed_page(test);
	u8 *from = zeroed_page(test);
	int i;

	memset(from, 'p', ROOM);
	for (i = 0; i < 10; i++) {
		a_message_passes(test, route, to, from, 100, true);
		a_message_passes(test, route, to, from, 100, false);
	}
}

/* Messages of a kind between two endpoints of a type. */
static void pair_needs_no_sleep(struct kunit *test, enum kfi_ep_type type, u64 kind)
{
	struct end ends[2];
	struct fixture f;
	struct route route;

	pair_open(test, &f, type, ends);
	route = route_of(ends, kind);
	route.loses = type == KFI_EP_DGRAM;
	route_needs_no_sleep(test, &route);
	pair_close(test, &f, ends);
}

static void tagged_posts_need_not_sleep(struct kunit *test)
{
	pair_needs_no_sleep(test, KFI_EP_RDM, KFI_TAGGED);
}

static void datagram_posts_need_not_sleep(struct kunit *test)
{
	pair_needs_no_sleep(test, KFI_EP_DGRAM, KFI_MSG);
}

static void connected_posts_need_not_sleep(struct kunit *test)
{
	struct end server;
	struct kfid_eq *eq;
	struct route route;
	struct world w;

	world_open(test, &w);
	eq = eq_open(test, &w);
	connect_client(test, &w, &server, eq);
	route = (struct route){
		.tx = w.client.ep, .tx_cq = w.client.cq, .rx = server.ep, .rx_cq = server.cq,
		.kind = KFI_MSG,
	};
	route_needs_no_sleep(test, &route);
	end_close(test, &server);
	KUNIT_EXPECT_EQ(test, kfi_close(&eq->fid), 0);
	world_close(test, &w);
}

static void posts_of_contexts_need_not_sleep(struct kunit *test)
{
	struct sep *seps = zeroed(test, 2 * sizeof(*seps));
	struct fixture f;
	struct route route;

	fixture_open(test, &f);
	sep_open(test, &f, &seps[0]);
	sep_open(test, &f, &seps[1]);
	route = (struct route){
		.tx = seps[0].tx[1], .tx_cq = seps[0].tx_cq[1],
		.rx = seps[1].rx[2], .rx_cq = seps[1].rx_cq[2],
		.peer = kfi_rx_addr(sep_knows(test, &seps[0], &seps[1]), 2, BITS),
		.kind = KFI_MSG,
	};
	route_needs_no_sleep(test, &route);
	route.kind = KFI_TAGGED;
	route_needs_no_sleep(test, &route);
	sep_close(test, &seps[0]);
	sep_close(test, &seps[1]);
	fixture_close(test, &f);
}

/* What only posting finds out is an error of the completion there. */
static void a_late_error_is_an_entry(struct kunit *test)
{
	static DEFINE_SPINLOCK(lock);
	struct fixture f;
	struct end ends[2];
	ssize_t ret, bad;
	u8 byte = 1;

	pair_open(test, &f, KFI_EP_RDM, ends);
	spin_lock(&lock);
	ret = kfi_send(ends[0].ep, &byte, 1, NULL, KFI_ADDR_NOTAVAIL, &lock);
	bad = kfi_inject(ends[0].ep, NULL, 257, ends[0].peer);
	spin_unlock(&lock);
	KUNIT_EXPECT_EQ(test, ret, 0);
	KUNIT_EXPECT_LT(test, bad, 0);
	failed(test, &ends[0], &lock, KFI_ENOENT);
	nothing(test, &ends[0]);
	pair_close(test, &f, ends);
}

CONSUMER("posts that may not sleep",
	 KUNIT_CASE(posts_need_not_sleep),
	 KUNIT_CASE(tagged_posts_need_not_sleep),
	 KUNIT_CASE(datagram_posts_need_not_sleep),
	 KUNIT_CASE(connected_posts_need_not_sleep),
	 KUNIT_CASE(posts_of_contexts_need_not_sleep),
	 KUNIT_CASE(a_late_error_is_an_entry));
