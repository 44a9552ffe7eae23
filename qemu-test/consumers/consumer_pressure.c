// SPDX-License-Identifier: GPL-2.0
/*
 * A consumer that writes back dirty pages: it posts in the scopes of such a
 * caller while memory is short, and makes progress.
 */

#include <linux/vmalloc.h>

#include <kfi/kfi_atomic.h>
#include <kfi/kfi_rma.h>

#include "pair.h"
#include "pressure.h"

#define ROUNDS	300
#define KEY	7
/* Each operation needs memory for the list of its pages. */
#define ROOM	(64 * 1024)
/* Blocks that are given back, for a caller that may not use reserves. */
#define SPARE	64

/**
 * struct world - two endpoints, and memory of each
 * @f: their domain
 * @ends: the endpoints
 * @mem: memory of each: @ROOM to send or receive, @ROOM to write, and two words
 * @mr: a region: the memory of the second
 */
struct world {
	struct fixture	f;
	struct end	ends[2];
	u8		*mem[2];
	struct kfid_mr	*mr;
};

static void world_open(struct kunit *test, struct world *w)
{
	int i;

	pair_open(test, &w->f, KFI_EP_RDM, w->ends);
	for (i = 0; i < 2; i++) {
		w->mem[i] = vzalloc(2 * ROOM + PAGE_SIZE);
		KUNIT_ASSERT_NOT_NULL(test, w->mem[i]);
	}
	KUNIT_ASSERT_EQ(test, kfi_mr_reg(w->f.domain, w->mem[1], 2 * ROOM + PAGE_SIZE,
					 KFI_REMOTE_READ | KFI_REMOTE_WRITE, 0, KEY, 0, &w->mr,
					 NULL), 0);
}

static void world_close(struct kunit *test, struct world *w)
{
	KUNIT_EXPECT_EQ(test, kfi_close(&w->mr->fid), 0);
	pair_close(test, &w->f, w->ends);
	vfree(w->mem[0]);
	vfree(w->mem[1]);
}

/* A message, a write and an atomic. */
static int turn(struct world *w, int round)
{
	struct kfid_ep *ep = w->ends[0].ep;
	kfi_addr_t peer = w->ends[0].peer;
	u64 *word = (u64 *)(w->mem[0] + 2 * ROOM);
	int ret;

	memset(w->mem[0], round, 2 * ROOM);
	word[0] = 1;
	ret = kfi_recv(w->ends[1].ep, w->mem[1], ROOM, NULL, KFI_ADDR_UNSPEC, NULL);
	ret = ret ?: kfi_send(ep, w->mem[0], ROOM, NULL, peer, NULL);
	ret = ret ?: kfi_write(ep, w->mem[0] + ROOM, ROOM, NULL, peer, ROOM, KEY, NULL);
	ret = ret ?: kfi_fetch_atomic(ep, &word[0], 1, NULL, &word[1], NULL, peer, 2 * ROOM, KEY,
				      KFI_UINT64, KFI_SUM, NULL);
	ret = ret ?: await_completions(&w->ends[0], 3);
	ret = ret ?: await_completions(&w->ends[1], 1);
	if (ret)
		return ret;
	return memcmp(w->mem[0], w->mem[1], 2 * ROOM) || word[1] != round ? -EILSEQ : 0;
}

/* Makes the rounds while memory is short, but for @spare blocks. */
static void under_pressure(struct kunit *test, unsigned int (*enter)(void),
			   void (*leave)(unsigned int flags), unsigned long spare)
{
	struct pressure pressure;
	unsigned int flags;
	struct world w;
	bool began;
	int round, ret = 0;
	unsigned long left;

	world_open(test, &w);
	pressure_begin(&pressure, spare);
	began = pressure_lasts();
	pressure_spare(&pressure);
	left = global_zone_page_state(NR_FREE_PAGES);
	flags = enter();
	for (round = 0; round < ROUNDS && !ret; round++) {
		if (!spare)
			pressure_take(&pressure, 0);
		ret = turn(&w, round);
	}
	leave(flags);
	pressure_end(&pressure);
	KUNIT_EXPECT_EQ_MSG(test, ret, 0, "round %d", round);
	KUNIT_EXPECT_TRUE(test, began);
	kunit_info(test, "%d rounds with %lu free pages of %lu\n", round, left,
		   totalram_pages());
	world_close(test, &w);
}

/* The reserves are for those who free memory. */
static void in_a_noreclaim_scope(struct kunit *test)
{
	under_pressure(test, memalloc_noreclaim_save, memalloc_noreclaim_restore, 0);
}

/* What all rounds together need is many times more than what is there. */
static void in_a_noio_scope(struct kunit *test)
{
	under_pressure(test, memalloc_noio_save, memalloc_noio_restore, SPARE);
}

CONSUMER("memory is short",
	 KUNIT_CASE_SLOW(in_a_noreclaim_scope),
	 KUNIT_CASE_SLOW(in_a_noio_scope));
