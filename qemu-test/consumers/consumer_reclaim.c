// SPDX-License-Identifier: GPL-2.0
/*
 * What workers do for a consumer that writes back dirty pages: they post what it
 * starts in softirqs, and what becomes due. Memory is short, and what they
 * allocate does not wait for I/O.
 */

#include <kfi/kfi_atomic.h>
#include <kfi/kfi_rma.h>
#include <kfi/kfi_trigger.h>

#include "pair.h"
#include "reclaim.h"

#define CAPS	(KFI_MSG | KFI_RMA | KFI_TAGGED | KFI_ATOMIC | KFI_TRIGGER)
#define KEY	7
#define TAG	5
/* A page of memory follows the bytes of messages and those of RMA. */
#define ROOM	(2 * LEN + PAGE_SIZE)
#define ORDER	get_order(ROOM)

/**
 * struct world - two endpoints, and memory of each
 * @f: their domain
 * @ends: the endpoints
 * @mem: memory of each: @LEN of messages, @LEN of RMA, values of atomics
 * @mr: a region: the memory of the second
 * @works: deferred messages
 * @op: what they send
 * @iov: its bytes
 */
struct world {
	struct fixture			f;
	struct end			ends[2];
	u8				*mem[2];
	struct kfid_mr			*mr;
	struct kfi_deferred_work	works[COUNT];
	struct kfi_op_tagged		op;
	struct kvec			iov;
};

static struct world *world_open(struct kunit *test)
{
	struct world *w = zeroed(test, sizeof(*w));
	struct kfi_info *info = entry_with(test, KFI_EP_RDM, CAPS);
	int i;

	reclaim_sizes(info);
	pair_open_from(test, &w->f, info, w->ends, 0);
	for (i = 0; i < 2; i++) {
		w->mem[i] = (u8 *)__get_free_pages(GFP_KERNEL | __GFP_ZERO | __GFP_COMP, ORDER);
		KUNIT_ASSERT_NOT_NULL(test, w->mem[i]);
	}
	KUNIT_ASSERT_EQ(test, kfi_mr_reg(w->f.domain, w->mem[1], ROOM,
					 KFI_REMOTE_READ | KFI_REMOTE_WRITE, 0, KEY, 0, &w->mr,
					 NULL), 0);
	return w;
}

static void world_close(struct kunit *test, struct world *w)
{
	int i;

	KUNIT_EXPECT_EQ(test, kfi_close(&w->mr->fid), 0);
	pair_close(test, &w->f, w->ends);
	for (i = 0; i < 2; i++)
		free_pages((unsigned long)w->mem[i], ORDER);
}

/* The messages arrive, from receives that are posted now. */
static int receive(struct world *w)
{
	int i, ret = 0;

	for (i = 0; i < COUNT && !ret; i++) {
		memset(w->mem[1], 0, LEN);
		ret = kfi_trecv(w->ends[1].ep, w->mem[1], LEN, NULL, KFI_ADDR_UNSPEC, TAG, 0, NULL);
		ret = ret ?: await_completions(&w->ends[1], 1);
		if (!ret && memcmp(w->mem[0], w->mem[1], LEN))
			ret = -EILSEQ;
	}
	return ret;
}

/* Messages that no receive waits for, then a write, a read and an atomic. */
static int post(void *arg)
{
	struct world *w = arg;
	struct kfid_ep *ep = w->ends[0].ep;
	kfi_addr_t peer = w->ends[0].peer;
	u64 *values = (u64 *)(w->mem[0] + 2 * LEN);
	int i, ret = 0;

	for (i = 0; i < COUNT && !ret; i++)
		ret = kfi_tsend(ep, w->mem[0], LEN, NULL, peer, TAG, NULL);
	ret = ret ?: kfi_write(ep, w->mem[0] + LEN, LEN, NULL, peer, LEN, KEY, NULL);
	ret = ret ?: kfi_read(ep, &values[2], 8, NULL, peer, LEN, KEY, NULL);
	return ret ?: kfi_fetch_atomic(ep, &values[0], 1, NULL, &values[1], NULL, peer, 2 * LEN,
				       KEY, KFI_UINT64, KFI_SUM, NULL);
}

static void posts_of_a_softirq_wait_for_no_io(struct kunit *test)
{
	struct world *w = world_open(test);
	u64 *values = (u64 *)(w->mem[0] + 2 * LEN);
	struct reclaim *r;
	unsigned int flags;
	int ret, missing;

	memset(w->mem[0], 0x5a, 2 * LEN);
	values[0] = 3;
	r = reclaim_begin(test);
	flags = memalloc_noio_save();
	ret = call_in_softirq(post, w);
	/*
	 * A message for whose bytes there is no memory stays with the sender until a
	 * receive is posted.
	 */
	missing = ret ?: take_completions(&w->ends[0], COUNT + 3, LONG / 4);
	ret = min(missing, 0);
	ret = ret ?: receive(w);
	ret = ret ?: await_completions(&w->ends[0], missing);
	memalloc_noio_restore(flags);
	reclaim_end(test, r, 1);
	KUNIT_EXPECT_EQ(test, ret, 0);
	KUNIT_EXPECT_MEMEQ(test, w->mem[0] + LEN, w->mem[1] + LEN, LEN);
	KUNIT_EXPECT_EQ(test, *(u64 *)(w->mem[1] + 2 * LEN), 3);
	KUNIT_EXPECT_EQ(test, values[2], 0x5a5a5a5a5a5a5a5aULL);
	world_close(test, w);
}

static int add_one(void *arg)
{
	return kfi_cntr_add(arg, 1);
}

/* An add in a softirq makes messages due. */
static void deferred_work_waits_for_no_io(struct kunit *test)
{
	struct world *w = world_open(test);
	struct kfid_cntr *go = open_cntr(test, &w->f, KFI_WAIT_UNSPEC, NULL, NULL);
	struct kfid_cntr *done = open_cntr(test, &w->f, KFI_WAIT_UNSPEC, NULL, NULL);
	struct reclaim *r;
	unsigned int flags;
	int i, ret;

	memset(w->mem[0], 0xa5, LEN);
	w->iov = (struct kvec){ w->mem[0], LEN };
	w->op = (struct kfi_op_tagged){
		.ep = w->ends[0].ep,
		.msg = {
			.type = KFI_KVEC, .msg_iov = &w->iov, .iov_count = 1,
			.addr = w->ends[0].peer, .tag = TAG,
		},
	};
	for (i = 0; i < COUNT; i++) {
		w->works[i] = (struct kfi_deferred_work){
			.threshold = 1, .triggering_cntr = go, .completion_cntr = done,
			.op_type = KFI_OP_TSEND, .op.tagged = &w->op,
		};
		KUNIT_ASSERT_EQ(test, kfi_control(&w->f.domain->fid, KFI_QUEUE_WORK, &w->works[i]),
				0);
	}
	r = reclaim_begin(test);
	flags = memalloc_noio_save();
	ret = call_in_softirq(add_one, go);
	/* The workers reclaim memory for messages.  As above, some may stay with the sender. */
	if (!ret)
		kfi_cntr_wait(done, COUNT, LONG / 4);
	ret = ret ?: receive(w);
	ret = ret ?: kfi_cntr_wait(done, COUNT, LONG);
	memalloc_noio_restore(flags);
	reclaim_end(test, r, 1);
	KUNIT_EXPECT_EQ(test, ret, 0);
	CLOSE(test, &done->fid, &go->fid);
	world_close(test, w);
}

CONSUMER("workers reclaim memory",
	 KUNIT_CASE_SLOW(posts_of_a_softirq_wait_for_no_io),
	 KUNIT_CASE_SLOW(deferred_work_waits_for_no_io));
