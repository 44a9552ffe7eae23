/* SPDX-License-Identifier: GPL-2.0 */
/*
 * A machine whose memory is used up, but for clean pages that reclaim frees at
 * once. A shrinker stands for them. It also looks at the workers of kfabric.ko
 * that reclaim: one that may start I/O would wait for dirty pages that only the
 * consumer can write back.
 */
#ifndef _CONSUMER_RECLAIM_H
#define _CONSUMER_RECLAIM_H

#include <linux/shrinker.h>
#include <linux/swap.h>

#include <kfi/kfabric.h>

#include "fixture.h"
#include "pressure.h"

/*
 * So many messages of @LEN that no receive waits for: too many for what the
 * kernel keeps aside.
 */
#define LEN	(8 * 1024)
#define COUNT	400

/* An endpoint from @info keeps all of them. */
static inline void reclaim_sizes(struct kfi_info *info)
{
	info->tx_attr->size = 512;
	info->rx_attr->size = 512;
	/* One peer has four fifths of it. */
	info->rx_attr->total_buffered_recv = 2 * COUNT * LEN;
}

/* Blocks of clean pages: 32 MiB. */
#define CLEAN	512

/**
 * struct reclaim - the memory, and who reclaims
 * @pressure: what is taken; its spare blocks are the clean pages
 * @shrinker: frees them
 * @left: their number
 * @asked: how often a worker of kfabric.ko reclaimed without I/O
 * @waited: how often one reclaimed and could start I/O
 * @waiter: the work of the last one
 */
struct reclaim {
	struct pressure	pressure;
	struct shrinker	*shrinker;
	atomic_long_t	left;
	atomic_t	asked;
	atomic_t	waited;
	char		waiter[KSYM_SYMBOL_LEN];
};

static inline unsigned long reclaim_count(struct shrinker *shrinker, struct shrink_control *sc)
{
	struct reclaim *r = shrinker->private_data;

	/* It would free memory that nobody asks for. */
	return current_is_kswapd() ? 0 : atomic_long_read(&r->left);
}

/* Notes who reclaims, if it is a worker of kfabric.ko. */
static inline void reclaim_note(struct reclaim *r, gfp_t gfp)
{
	char name[KSYM_SYMBOL_LEN];

	if (!pressure_worker(name))
		return;
	if (!(gfp & (__GFP_IO | __GFP_FS))) {
		atomic_inc(&r->asked);
		return;
	}
	strscpy(r->waiter, name);
	atomic_inc(&r->waited);
}

/* Frees a block. */
static inline unsigned long reclaim_scan(struct shrinker *shrinker, struct shrink_control *sc)
{
	struct reclaim *r = shrinker->private_data;
	unsigned long pages;

	reclaim_note(r, sc->gfp_mask);
	pages = pressure_release_one(&r->pressure, &r->pressure.spare);
	if (pages) {
		atomic_long_dec(&r->left);
		mm_account_reclaimed_pages(pages);
	}
	/* One is enough for now. */
	return SHRINK_STOP;
}

static inline void reclaim_stop(void *arg)
{
	struct reclaim *r = arg;

	shrinker_free(r->shrinker);
	pressure_end(&r->pressure);
}

/* Takes what is free, and what CPUs have put aside for themselves. */
static inline void reclaim_take(struct reclaim *r)
{
	int cpu;

	for_each_online_cpu(cpu) {
		set_cpus_allowed_ptr(current, cpumask_of(cpu));
		pressure_take(&r->pressure, PAGE_ALLOC_COSTLY_ORDER);
		pressure_take(&r->pressure, 0);
	}
	set_cpus_allowed_ptr(current, cpu_possible_mask);
}

/* Takes all memory. It is given back by reclaim_end(), or when the test ends. */
static inline struct reclaim *reclaim_begin(struct kunit *test)
{
	struct reclaim *r = zeroed(test, sizeof(*r));

	atomic_long_set(&r->left, CLEAN);
	r->shrinker = shrinker_alloc(0, "kfi-clean");
	KUNIT_ASSERT_NOT_NULL(test, r->shrinker);
	r->shrinker->count_objects = reclaim_count;
	r->shrinker->scan_objects = reclaim_scan;
	r->shrinker->seeks = 0;
	r->shrinker->batch = 1;
	r->shrinker->private_data = r;
	pressure_begin(&r->pressure, CLEAN);
	shrinker_register(r->shrinker);
	KUNIT_ASSERT_EQ(test, kunit_add_action_or_reset(test, reclaim_stop, r), 0);
	reclaim_take(r);
	return r;
}

/*
 * Gives all memory back. No worker of kfabric.ko could start I/O; at least @asked
 * times one reclaimed, so that it matters.
 */
static inline void reclaim_end(struct kunit *test, struct reclaim *r, int asked)
{
	long left = atomic_long_read(&r->left);

	kunit_remove_action(test, reclaim_stop, r);
	reclaim_stop(r);
	KUNIT_EXPECT_EQ_MSG(test, atomic_read(&r->waited), 0, "%s", r->waiter);
	KUNIT_EXPECT_GE(test, atomic_read(&r->asked), asked);
	KUNIT_EXPECT_GT(test, left, 0);
	kunit_info(test, "workers reclaimed %d times, %ld of %d blocks are left\n",
		   atomic_read(&r->asked), left, CLEAN);
}

#endif /* _CONSUMER_RECLAIM_H */
