// SPDX-License-Identifier: GPL-2.0
/*
 * A fabric that is closed too early stays open, and the kernel's log names what
 * keeps it open (run-guest looks for the line).
 */

#include <linux/module.h>

#include "fixture.h"

static void a_fabric_in_use_is_not_closed(struct kunit *test)
{
	struct kfid_cntr *cntrs[2];
	struct kfid_wait *set;
	struct fixture f;
	int i;

	fixture_open(test, &f);
	for (i = 0; i < 2; i++)
		cntrs[i] = open_cntr(test, &f, KFI_WAIT_UNSPEC, NULL, NULL);
	KUNIT_ASSERT_EQ(test, kfi_wait_open(f.fabric, NULL, &set), 0);
	KUNIT_EXPECT_EQ(test, kfi_close(&set->kfid), 0);
	KUNIT_EXPECT_EQ(test, kfi_close(&f.domain->fid), -KFI_EBUSY);
	KUNIT_EXPECT_EQ(test, kfi_close(&f.fabric->fid), -KFI_EBUSY);
	/* Nothing has changed. */
	for (i = 0; i < 2; i++) {
		KUNIT_EXPECT_EQ(test, kfi_cntr_add(cntrs[i], 1), 0);
		KUNIT_EXPECT_EQ(test, kfi_close(&cntrs[i]->fid), 0);
	}
	fixture_close(test, &f);
}

static struct kunit_case cases[] = {
	KUNIT_CASE(a_fabric_in_use_is_not_closed),
	{}
};

static struct kunit_suite suite = {
	.name = "consumer_leak",
	.test_cases = cases,
};

kunit_test_suite(suite);

MODULE_DESCRIPTION("kfabric consumer: objects that keep a fabric open");
MODULE_LICENSE("GPL");
