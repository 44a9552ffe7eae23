/* SPDX-License-Identifier: GPL-2.0 */
/*
 * What the suites share: a domain on the first link of this network namespace.
 *
 * The guest has a link on its loopback interface.
 */
#ifndef _CONSUMER_FIXTURE_H
#define _CONSUMER_FIXTURE_H

#include <linux/cpumask.h>
#include <linux/sched.h>

#include <kunit/test.h>

#include <kfi/kfi_domain.h>

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
	KUNIT_EXPECT_EQ(test, kfi_close(&f->domain->fid), 0);
	KUNIT_EXPECT_EQ(test, kfi_close(&f->fabric->fid), 0);
	kfi_freeinfo(f->info);
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
