// SPDX-License-Identifier: GPL-2.0
/*
 * Aliases with KFI_TRIGGER: every transfer that is posted through them waits for
 * its counter (fi_trigger(3)).
 */

#include <linux/bvec.h>
#include <linux/scatterlist.h>
#include <linux/uio.h>

#include <kfi/kfi_atomic.h>
#include <kfi/kfi_rma.h>
#include <kfi/kfi_trigger.h>

#include "pair.h"

#define SENT		(KFI_MSG | KFI_SEND)
#define TAGGED_SENT	(KFI_TAGGED | KFI_SEND)
#define RECEIVED	(KFI_MSG | KFI_RECV)
#define TAGGED_RECEIVED	(KFI_TAGGED | KFI_RECV)
#define WRITTEN		(KFI_RMA | KFI_WRITE)
#define READ_		(KFI_RMA | KFI_READ)
#define CHANGED		(KFI_ATOMIC | KFI_WRITE)
#define FETCHED		(KFI_ATOMIC | KFI_READ)
#define KEY		7
#define TAG		5
/* The most transfers that wait at once. */
#define TRANSFERS	16

/**
 * struct world - two endpoints, an alias of the first, and memory of each
 * @f: their domain
 * @ends: the endpoints
 * @alias: the alias
 * @go: the counter that its transfers wait for
 * @when: the conditions: transfer i starts when @go is @started + i + 1
 * @flags: what the completions say
 * @count: transfers that wait
 * @started: transfers that have been started
 * @here: a page of the first
 * @there: a page of the second, a region for the first
 * @mr: the region
 * @iov: the first byte of @here
 * @biov: the same
 * @sgl: the same
 */
struct world {
	struct fixture			f;
	struct end			ends[2];
	struct kfid_ep			*alias;
	struct kfid_cntr		*go;
	struct kfi_triggered_context	when[TRANSFERS];
	u64				flags[TRANSFERS];
	int				count;
	int				started;
	u8				*here;
	u8				*there;
	struct kfid_mr			*mr;
	struct kvec			iov;
	struct bio_vec			biov;
	struct scatterlist		sgl;
};

static struct world *world_open(struct kunit *test, u64 alias_flags)
{
	struct world *w = zeroed(test, sizeof(*w));

	pair_open(test, &w->f, KFI_EP_RDM, w->ends);
	w->go = open_cntr(test, &w->f, KFI_WAIT_UNSPEC, NULL, NULL);
	w->here = zeroed_page(test);
	w->there = zeroed_page(test);
	w->iov = (struct kvec){ w->here, 1 };
	bvec_set_virt(&w->biov, w->here, 1);
	sg_init_one(&w->sgl, w->here, 1);
	KUNIT_ASSERT_EQ(test, kfi_mr_reg(w->f.domain, w->there, PAGE_SIZE,
					 KFI_REMOTE_READ | KFI_REMOTE_WRITE, 0, KEY, 0, &w->mr,
					 NULL), 0);
	KUNIT_ASSERT_EQ(test, kfi_ep_alias(w->ends[0].ep, &w->alias, alias_flags | KFI_TRIGGER),
			0);
	return w;
}

static void world_close(struct kunit *test, struct world *w)
{
	CLOSE(test, &w->alias->fid, &w->mr->fid, &w->go->fid);
	pair_close(test, &w->f, w->ends);
}

/* The condition of the next transfer, whose completion has @flags. */
static void *condition(struct world *w, u64 flags)
{
	struct kfi_triggered_context *when = &w->when[w->count];

	when->event_type = KFI_TRIGGER_THRESHOLD;
	when->trigger.threshold.cntr = w->go;
	when->trigger.threshold.threshold = w->started + w->count + 1;
	w->flags[w->count++] = flags;
	return when;
}

/* NEXT() is the context of a transfer, and WAITS() posts it. */
#define NEXT(flags)	condition(w, flags)
#define WAITS(call)	KUNIT_EXPECT_EQ(test, call, 0)

/* Starts the transfers that wait, one at a time. None has had an effect before. */
static void start_in_turn(struct kunit *test, struct world *w)
{
	int i;

	nothing(test, &w->ends[0]);
	nothing(test, &w->ends[1]);
	KUNIT_EXPECT_NULL(test, memchr_inv(w->there, 0, PAGE_SIZE));
	for (i = 0; i < w->count; i++) {
		KUNIT_EXPECT_EQ(test, kfi_cntr_add(w->go, 1), 0);
		completed(test, &w->ends[0], &w->when[i], w->flags[i], 1);
		nothing(test, &w->ends[0]);
	}
	w->started += w->count;
	w->count = 0;
}

static void sends_wait(struct kunit *test)
{
	struct world *w = world_open(test, KFI_TRANSMIT);
	kfi_addr_t peer = w->ends[0].peer;
	struct kfid_ep *ep = w->alias;
	int i;

	for (i = 0; i < 5; i++) {
		KUNIT_EXPECT_EQ(test, kfi_recv(w->ends[1].ep, w->there + i, 1, NULL,
					       KFI_ADDR_UNSPEC, NULL), 0);
		KUNIT_EXPECT_EQ(test, kfi_trecv(w->ends[1].ep, w->there + 5 + i, 1, NULL,
						KFI_ADDR_UNSPEC, TAG, 0, NULL), 0);
	}
	w->here[0] = 's';
	WAITS(kfi_send(ep, w->here, 1, NULL, peer, NEXT(SENT)));
	WAITS(kfi_sendv(ep, &w->iov, NULL, 1, peer, NEXT(SENT)));
	WAITS(kfi_sendbv(ep, &w->biov, NULL, 1, peer, NEXT(SENT)));
	WAITS(kfi_sendsgl(ep, &w->sgl, NULL, 1, peer, NEXT(SENT)));
	WAITS(kfi_senddata(ep, w->here, 1, NULL, 9, peer, NEXT(SENT)));
	WAITS(kfi_tsend(ep, w->here, 1, NULL, peer, TAG, NEXT(TAGGED_SENT)));
	WAITS(kfi_tsendv(ep, &w->iov, NULL, 1, peer, TAG, NEXT(TAGGED_SENT)));
	WAITS(kfi_tsendbv(ep, &w->biov, NULL, 1, peer, TAG, NEXT(TAGGED_SENT)));
	WAITS(kfi_tsendsgl(ep, &w->sgl, NULL, 1, peer, TAG, NEXT(TAGGED_SENT)));
	WAITS(kfi_tsenddata(ep, w->here, 1, NULL, 9, peer, TAG, NEXT(TAGGED_SENT)));
	start_in_turn(test, w);
	KUNIT_EXPECT_EQ(test, await_completions(&w->ends[1], 10), 0);
	nothing(test, &w->ends[1]);
	KUNIT_EXPECT_STREQ(test, w->there, "ssssssssss");
	world_close(test, w);
}

static void writes_and_reads_wait(struct kunit *test)
{
	struct world *w = world_open(test, KFI_TRANSMIT);
	kfi_addr_t peer = w->ends[0].peer;
	struct kfid_ep *ep = w->alias;

	w->here[0] = 'w';
	WAITS(kfi_write(ep, w->here, 1, NULL, peer, 0, KEY, NEXT(WRITTEN)));
	WAITS(kfi_writev(ep, &w->iov, NULL, 1, peer, 1, KEY, NEXT(WRITTEN)));
	WAITS(kfi_writebv(ep, &w->biov, NULL, 1, peer, 2, KEY, NEXT(WRITTEN)));
	WAITS(kfi_writesgl(ep, &w->sgl, NULL, 1, peer, 3, KEY, NEXT(WRITTEN)));
	WAITS(kfi_writedata(ep, w->here, 1, NULL, 9, peer, 4, KEY, NEXT(WRITTEN)));
	/* The last byte is not written: 0 is read. */
	WAITS(kfi_read(ep, w->here + 1, 1, NULL, peer, 0, KEY, NEXT(READ_)));
	WAITS(kfi_readv(ep, &w->iov, NULL, 1, peer, 1, KEY, NEXT(READ_)));
	WAITS(kfi_readbv(ep, &w->biov, NULL, 1, peer, 2, KEY, NEXT(READ_)));
	WAITS(kfi_readsgl(ep, &w->sgl, NULL, 1, peer, 5, KEY, NEXT(READ_)));
	start_in_turn(test, w);
	KUNIT_EXPECT_EQ(test, await_completions(&w->ends[1], 1), 0);
	nothing(test, &w->ends[1]);
	KUNIT_EXPECT_STREQ(test, w->there, "wwwww");
	KUNIT_EXPECT_EQ(test, w->here[0], 0);
	KUNIT_EXPECT_EQ(test, w->here[1], 'w');
	world_close(test, w);
}

static void atomics_wait(struct kunit *test)
{
	struct world *w = world_open(test, KFI_TRANSMIT);
	kfi_addr_t peer = w->ends[0].peer;
	struct kfid_ep *ep = w->alias;
	u64 *value = (u64 *)w->here;
	struct kfi_ioc operand = { &value[0], 1 };
	struct kfi_ioc compare = { &value[1], 1 };
	struct kfi_ioc result = { &value[2], 1 };

	value[0] = 10;
	value[1] = 40;
	WAITS(kfi_atomic(ep, &value[0], 1, NULL, peer, 0, KEY, KFI_UINT64, KFI_SUM,
			 NEXT(CHANGED)));
	WAITS(kfi_atomicv(ep, &operand, NULL, 1, peer, 0, KEY, KFI_UINT64, KFI_SUM,
			  NEXT(CHANGED)));
	WAITS(kfi_fetch_atomic(ep, &value[0], 1, NULL, &value[2], NULL, peer, 0, KEY, KFI_UINT64,
			       KFI_SUM, NEXT(FETCHED)));
	WAITS(kfi_fetch_atomicv(ep, &operand, NULL, 1, &result, NULL, 1, peer, 0, KEY, KFI_UINT64,
				KFI_SUM, NEXT(FETCHED)));
	/* The first one finds 40 and stores 10. The second finds 10 and changes nothing. */
	WAITS(kfi_compare_atomic(ep, &value[0], 1, NULL, &value[1], NULL, &value[3], NULL, peer, 0,
				 KEY, KFI_UINT64, KFI_CSWAP, NEXT(FETCHED)));
	WAITS(kfi_compare_atomicv(ep, &operand, NULL, 1, &compare, NULL, 1, &result, NULL, 1, peer,
				  0, KEY, KFI_UINT64, KFI_CSWAP, NEXT(FETCHED)));
	start_in_turn(test, w);
	nothing(test, &w->ends[1]);
	KUNIT_EXPECT_EQ(test, *(u64 *)w->there, 10);
	KUNIT_EXPECT_EQ(test, value[3], 40);
	KUNIT_EXPECT_EQ(test, value[2], 10);
	world_close(test, w);
}

/* A message that has come waits for the receive that waits for the counter. */
static void receives_wait(struct kunit *test)
{
	struct world *w = world_open(test, KFI_RECV);
	kfi_addr_t from = KFI_ADDR_UNSPEC;
	struct kfid_ep *ep = w->alias;
	int i;

	for (i = 0; i < 4; i++) {
		KUNIT_EXPECT_EQ(test, kfi_inject(w->ends[1].ep, "m", 1, w->ends[1].peer), 0);
		KUNIT_EXPECT_EQ(test, kfi_tinject(w->ends[1].ep, "t", 1, w->ends[1].peer, TAG), 0);
	}
	WAITS(kfi_recv(ep, w->here, 1, NULL, from, NEXT(RECEIVED)));
	WAITS(kfi_recvv(ep, &w->iov, NULL, 1, from, NEXT(RECEIVED)));
	WAITS(kfi_recvbv(ep, &w->biov, NULL, 1, from, NEXT(RECEIVED)));
	WAITS(kfi_recvsgl(ep, &w->sgl, NULL, 1, from, NEXT(RECEIVED)));
	start_in_turn(test, w);
	KUNIT_EXPECT_EQ(test, w->here[0], 'm');
	WAITS(kfi_trecv(ep, w->here, 1, NULL, from, TAG, 0, NEXT(TAGGED_RECEIVED)));
	WAITS(kfi_trecvv(ep, &w->iov, NULL, 1, from, TAG, 0, NEXT(TAGGED_RECEIVED)));
	WAITS(kfi_trecvbv(ep, &w->biov, NULL, 1, from, TAG, 0, NEXT(TAGGED_RECEIVED)));
	WAITS(kfi_trecvsgl(ep, &w->sgl, NULL, 1, from, TAG, 0, NEXT(TAGGED_RECEIVED)));
	start_in_turn(test, w);
	KUNIT_EXPECT_EQ(test, w->here[0], 't');
	nothing(test, &w->ends[1]);
	world_close(test, w);
}

CONSUMER("transfers of an alias wait for counters",
	 KUNIT_CASE(sends_wait),
	 KUNIT_CASE(writes_and_reads_wait),
	 KUNIT_CASE(atomics_wait),
	 KUNIT_CASE(receives_wait));
