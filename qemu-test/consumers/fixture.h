/* SPDX-License-Identifier: GPL-2.0 */
/*
 * What the suites share: what makes a module of their cases, memory, calls by other
 * threads and in softirqs, and a domain on the first link of this network namespace.
 *
 * The guest has a link on its loopback interface.
 */
#ifndef _CONSUMER_FIXTURE_H
#define _CONSUMER_FIXTURE_H

#include <linux/completion.h>
#include <linux/cpumask.h>
#include <linux/delay.h>
#include <linux/gfp.h>
#include <linux/kthread.h>
#include <linux/module.h>
#include <linux/sched.h>
#include <linux/slab.h>
#include <linux/timer.h>

#include <kunit/resource.h>
#include <kunit/test.h>

#include <kfi/kfi_domain.h>
#include <kfi/kfi_eq.h>

/* Milliseconds that are long enough on a busy machine. */
#define LONG	20000

/* The end of a file: its cases are a suite with the name of the module. */
#define CONSUMER(description, ...) \
	static struct kunit_case cases[] = { __VA_ARGS__, {} }; \
	static struct kunit_suite suite = { .name = KBUILD_MODNAME, .test_cases = cases }; \
	kunit_test_suite(suite); \
	MODULE_DESCRIPTION("kfabric consumer: " description); \
	MODULE_LICENSE("GPL")

/* Closes objects in this order, of which @names is a list. */
static inline void close_in_order(struct kunit *test, const char *names,
				  struct kfid * const *fids, size_t count)
{
	size_t i;

	for (i = 0; i < count; i++)
		KUNIT_EXPECT_EQ_MSG(test, kfi_close(fids[i]), 0, "number %zu of %s", i, names);
}

#define CLOSE(test, ...) \
	close_in_order(test, #__VA_ARGS__, (struct kfid *[]){ __VA_ARGS__ }, \
		       sizeof((struct kfid *[]){ __VA_ARGS__ }) / sizeof(struct kfid *))

/**
 * struct fixture - an open domain, and from what it was opened
 * @info: the entry
 * @fabric: the fabric
 * @domain: the domain
 */
struct fixture {
	struct kfi_info		*info;
	struct kfid_fabric	*fabric;
	struct kfid_domain	*domain;
};

/* Opens a domain. The test ends if that fails. */
static inline void fixture_open(struct kunit *test, struct fixture *f)
{
	KUNIT_ASSERT_EQ(test, kfi_getinfo(0, NULL, NULL, 0, NULL, &f->info), 0);
	KUNIT_ASSERT_EQ(test, kfi_fabric(f->info->fabric_attr, &f->fabric, f), 0);
	KUNIT_ASSERT_EQ(test, kfi_domain(f->fabric, f->info, &f->domain, f), 0);
}

/* Closes it. Everything that was made from it is closed. */
static inline void fixture_close(struct kunit *test, struct fixture *f)
{
	CLOSE(test, &f->domain->fid, &f->fabric->fid);
	kfi_freeinfo(f->info);
}

/* Closes a fixture whose domain is bound to an event queue, and the queue. */
static inline void fixture_close_with(struct kunit *test, struct fixture *f, struct kfid_eq *eq)
{
	CLOSE(test, &f->domain->fid, &eq->fid, &f->fabric->fid);
	kfi_freeinfo(f->info);
}

/* Memory of zeros, which is freed when the test ends. The test ends if there is none. */
static inline void *zeroed(struct kunit *test, size_t len)
{
	void *mem = kunit_kzalloc(test, len, GFP_KERNEL);

	KUNIT_ASSERT_NOT_NULL(test, mem);
	return mem;
}

static inline void zeroed_page_end(void *page)
{
	free_page((unsigned long)page);
}

/* The same: a page, with references of its own. */
static inline void *zeroed_page(struct kunit *test)
{
	void *page = (void *)get_zeroed_page(GFP_KERNEL);

	KUNIT_ASSERT_NOT_NULL(test, page);
	KUNIT_ASSERT_EQ(test, kunit_add_action_or_reset(test, zeroed_page_end, page), 0);
	return page;
}

/**
 * struct call - a call by a thread or in a softirq
 * @call: the function
 * @arg: its argument
 * @ret: its result
 * @done: it has returned
 * @timer: makes a call in a softirq
 */
struct call {
	int			(*call)(void *arg);
	void			*arg;
	int			ret;
	struct completion	done;
	struct timer_list	timer;
};

static inline int call_made(void *arg)
{
	struct call *c = arg;

	c->ret = c->call(c->arg);
	complete(&c->done);
	return 0;
}

/* Has a thread make a call, and returns the thread. */
static inline struct task_struct *call_begin(struct kunit *test, struct call *c,
					     int (*call)(void *arg), void *arg)
{
	struct task_struct *task;

	c->call = call;
	c->arg = arg;
	init_completion(&c->done);
	task = kthread_run(call_made, c, KBUILD_MODNAME);
	KUNIT_ASSERT_NOT_ERR_OR_NULL(test, task);
	return task;
}

/* The same, of a call that sleeps, or whose outcome is the same. */
static inline struct task_struct *call_sleeps(struct kunit *test, struct call *c,
					      int (*call)(void *arg), void *arg)
{
	struct task_struct *task = call_begin(test, c, call, arg);

	msleep(20);
	return task;
}

/* The call returns, with this result. */
static inline void call_ends(struct kunit *test, struct call *c, int ret)
{
	KUNIT_ASSERT_NE(test, wait_for_completion_timeout(&c->done, msecs_to_jiffies(2 * LONG)), 0);
	KUNIT_EXPECT_EQ(test, c->ret, ret);
}

static inline void call_by_timer(struct timer_list *timer)
{
	call_made(container_of(timer, struct call, timer));
}

/* Calls a function in a softirq, and returns its result. */
static inline int call_in_softirq(int (*call)(void *arg), void *arg)
{
	struct call c = { .call = call, .arg = arg };

	init_completion(&c.done);
	timer_setup_on_stack(&c.timer, call_by_timer, 0);
	mod_timer(&c.timer, jiffies + 1);
	wait_for_completion(&c.done);
	timer_delete_sync(&c.timer);
	timer_destroy_on_stack(&c.timer);
	return c.ret;
}

/* Opens a counter with a wait object. The test ends if that fails. */
static inline struct kfid_cntr *open_cntr(struct kunit *test, struct fixture *f,
					  enum kfi_wait_obj wait_obj,
					  struct kfid_wait *set, void *context)
{
	struct kfi_cntr_attr attr = { .wait_obj = wait_obj, .wait_set = set };
	struct kfid_cntr *cntr;

	KUNIT_ASSERT_EQ(test, kfi_cntr_open(f->domain, &attr, &cntr, context), 0);
	return cntr;
}

/*
 * Lets the rest of the test run on a CPU other than @cpu. The test ends if there
 * is none.
 */
static inline void run_elsewhere(struct kunit *test, unsigned int cpu)
{
	unsigned int other = cpumask_any_but(cpu_online_mask, cpu);

	KUNIT_ASSERT_LT(test, other, nr_cpu_ids);
	KUNIT_ASSERT_EQ(test, set_cpus_allowed_ptr(current, cpumask_of(other)), 0);
}

#endif /* _CONSUMER_FIXTURE_H */
