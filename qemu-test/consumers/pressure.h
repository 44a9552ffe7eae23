/* SPDX-License-Identifier: GPL-2.0 */
/*
 * A machine whose memory is used up.
 *
 * Pages are taken until no allocation that cannot wait gets one: as much is left
 * as the kernel keeps for those that may use its reserves. While that lasts a
 * suite should be quick: any other task that allocates may begin to look for
 * something to kill.
 */
#ifndef _CONSUMER_PRESSURE_H
#define _CONSUMER_PRESSURE_H

#include <linux/gfp.h>
#include <linux/list.h>
#include <linux/mm.h>
#include <linux/sched/mm.h>
#include <linux/vmstat.h>

/**
 * struct pressure - the memory that is taken
 * @pages: linked by their lru, with their order in private
 * @spare: blocks of SPARE_ORDER that can be given back before
 */
struct pressure {
	struct list_head	pages;
	struct list_head	spare;
};

/*
 * Pages of smaller blocks would go to a list of the CPU that gives them back. A
 * task on another CPU that cannot reclaim memory would never get them.
 */
#define SPARE_ORDER	(PAGE_ALLOC_COSTLY_ORDER + 1)

#define PRESSURE_GFP	(GFP_NOWAIT | __GFP_NOWARN | __GFP_NOMEMALLOC)

/* Takes a block of pages. Returns whether there was one. */
static inline bool pressure_take_one(struct list_head *list, gfp_t gfp, int order)
{
	struct page *page = alloc_pages(gfp, order);

	if (!page)
		return false;
	set_page_private(page, order);
	list_add(&page->lru, list);
	cond_resched();
	return true;
}

/* Takes what has become free, in blocks of this order. */
static inline void pressure_take(struct pressure *p, int order)
{
	while (pressure_take_one(&p->pages, PRESSURE_GFP, order))
		;
}

/* Takes all memory that is there, of which @spare blocks can be given back before. */
static inline void pressure_begin(struct pressure *p, unsigned long spare)
{
	int order;

	INIT_LIST_HEAD(&p->pages);
	INIT_LIST_HEAD(&p->spare);
	while (spare--)
		pressure_take_one(&p->spare, GFP_KERNEL, SPARE_ORDER);
	for (order = MAX_PAGE_ORDER; order >= 0; order--)
		pressure_take(p, order);
}

static inline void pressure_release(struct list_head *list)
{
	struct page *page, *next;

	list_for_each_entry_safe(page, next, list, lru) {
		unsigned int order = page_private(page);

		list_del(&page->lru);
		set_page_private(page, 0);
		__free_pages(page, order);
		cond_resched();
	}
}

/* Gives the spare blocks back. */
static inline void pressure_spare(struct pressure *p)
{
	pressure_release(&p->spare);
}

/* Gives all of it back. */
static inline void pressure_end(struct pressure *p)
{
	pressure_release(&p->spare);
	pressure_release(&p->pages);
}

/* Whether there is no memory for those who cannot wait. */
static inline bool pressure_lasts(void)
{
	struct page *page = alloc_page(PRESSURE_GFP);

	if (page)
		__free_page(page);
	return !page;
}

#endif /* _CONSUMER_PRESSURE_H */
