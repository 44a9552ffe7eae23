/* SPDX-License-Identifier: GPL-2.0 */
/*
 * What the suites share: what makes a module of their cases, and a domain on the
 * first link of this network namespace.
 *
 * The guest has a link on its loopback interface.
 */
#ifndef _CONSUMER_FIXTURE_H
#define _CONSUMER_FIXTURE_H

#include <linux/cpumask.h>
#include <linux/module.h>
#include <linux/sched.h>
#include <linux/slab.h>

#include <kunit/test.h>

#include <kfi/kfi_domain.h>
#include <kfi/kfi_eq.h>

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
static inline u8 *bytes(struct kunit *test, size_t len)
{
	u8 *mem = kunit_kzalloc(test, len, GFP_KERNEL);

	KUNIT_ASSERT_NOT_NULL(test, mem);
	return mem;
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
