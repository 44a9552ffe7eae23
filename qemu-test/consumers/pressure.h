/* SPDX-License-Identifier: GPL-2.0 */
/*
 * A machine whose memory is used up.
 *
 * Pages are taken until no allocation that cannot wait succeeds. What remains are
 * the kernel's reserves. While that lasts, a program or a kernel thread that
 * allocates gets a block of the taken pages before the kernel would kill a
 * process. The suite's own thread and the workers of kfabric.ko get none: they are
 * tested.
 */
#ifndef _CONSUMER_PRESSURE_H
#define _CONSUMER_PRESSURE_H

#include <linux/gfp.h>
#include <linux/kallsyms.h>
#include <linux/list.h>
#include <linux/mm.h>
#include <linux/notifier.h>
#include <linux/oom.h>
#include <linux/sched/mm.h>
#include <linux/spinlock.h>
#include <linux/string.h>
#include <linux/vmstat.h>
#include <linux/workqueue.h>

/**
 * struct pressure - the memory that is taken
 * @pages: linked by their lru, with their order in private; the largest last
 * @spare: blocks of SPARE_ORDER that can be given back before
 * @lock: protects both lists, from which other tasks take pages
 * @suite: the task that takes them
 * @oom: gives another task a block of @pages
 */
struct pressure {
	struct list_head	pages;
	struct list_head	spare;
	/* protects @pages and @spare */
	spinlock_t		lock;
	struct task_struct	*suite;
	struct notifier_block	oom;
};

/*
 * Pages of smaller blocks would go to a list of the CPU that gives them back. A
 * task on another CPU that cannot reclaim memory would never get them.
 */
#define SPARE_ORDER	(PAGE_ALLOC_COSTLY_ORDER + 1)

#define PRESSURE_GFP	(GFP_NOWAIT | __GFP_NOWARN | __GFP_NOMEMALLOC)

/* Takes a block of pages. Returns whether there was one. */
static inline bool pressure_take_one(struct pressure *p, struct list_head *list, gfp_t gfp,
				     int order)
{
	struct page *page = alloc_pages(gfp, order);

	if (!page)
		return false;
	set_page_private(page, order);
	spin_lock(&p->lock);
	list_add(&page->lru, list);
	spin_unlock(&p->lock);
	cond_resched();
	return true;
}

/* Frees the last block of the list. Returns the number of its pages, 0 if the list is empty. */
static inline unsigned long pressure_release_one(struct pressure *p, struct list_head *list)
{
	struct page *page = NULL;
	unsigned int order;

	spin_lock(&p->lock);
	if (!list_empty(list)) {
		page = list_last_entry(list, struct page, lru);
		list_del(&page->lru);
	}
	spin_unlock(&p->lock);
	if (!page)
		return 0;
	order = page_private(page);
	set_page_private(page, 0);
	__free_pages(page, order);
	return 1UL << order;
}

/* Whether the current task is a worker of kfabric.ko. @name gets the function of any worker. */
static inline bool pressure_worker(char name[static KSYM_SYMBOL_LEN])
{
	struct work_struct *work = current_work();

	if (!work)
		return false;
	sprint_symbol_no_offset(name, (unsigned long)work->func);
	return strstr(name, "[kfabric]");
}

/* Called before the kernel kills a process because there is no memory for the current task. */
static inline int pressure_oom(struct notifier_block *oom, unsigned long unused, void *freed)
{
	struct pressure *p = container_of(oom, struct pressure, oom);
	char name[KSYM_SYMBOL_LEN];

	if (current != p->suite && !pressure_worker(name))
		*(unsigned long *)freed += pressure_release_one(p, &p->pages);
	return NOTIFY_OK;
}

/* Takes what has become free, in blocks of this order. */
static inline void pressure_take(struct pressure *p, int order)
{
	while (pressure_take_one(p, &p->pages, PRESSURE_GFP, order))
		;
}

/* Takes all memory that is there, of which @spare blocks can be given back before. */
static inline void pressure_begin(struct pressure *p, unsigned long spare)
{
	int order;

	INIT_LIST_HEAD(&p->pages);
	INIT_LIST_HEAD(&p->spare);
	spin_lock_init(&p->lock);
	p->suite = current;
	p->oom = (struct notifier_block){ .notifier_call = pressure_oom };
	while (spare--)
		pressure_take_one(p, &p->spare, GFP_KERNEL, SPARE_ORDER);
	register_oom_notifier(&p->oom);
	for (order = MAX_PAGE_ORDER; order >= 0; order--)
		pressure_take(p, order);
}

static inline void pressure_release(struct pressure *p, struct list_head *list)
{
	while (pressure_release_one(p, list))
		cond_resched();
}

/* Gives the spare blocks back. */
static inline void pressure_spare(struct pressure *p)
{
	pressure_release(p, &p->spare);
}

/* Gives all of it back. */
static inline void pressure_end(struct pressure *p)
{
	pressure_release(p, &p->spare);
	pressure_release(p, &p->pages);
	unregister_oom_notifier(&p->oom);
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
