// SPDX-License-Identifier: GPL-2.0
/*
 * A fabric that is closed too early stays open, and the kernel's log names what
 * keeps it open (run-guest looks for the line).
 */

#include <linux/module.h>

#include "sep.h"

static void a_fabric_in_use_is_not_closed(struct kunit *test)
{
	struct kfid_ep *sep, *tx[2], *rx;
	struct kfid_cntr *cntrs[2];
	struct kfi_info *info;
	struct kfid_wait *set;
	struct fixture f;
	int i;

	fixture_open(test, &f);
	for (i = 0; i < 2; i++)
		cntrs[i] = open_cntr(test, &f, KFI_WAIT_UNSPEC, NULL, NULL);
	info = sep_info(test, 2);
	KUNIT_ASSERT_EQ(test, kfi_scalable_ep(f.domain, info, &sep, NULL), 0);
	kfi_freeinfo(info);
	for (i = 0; i < 2; i++)
		KUNIT_ASSERT_EQ(test, kfi_tx_context(sep, i, NULL, &tx[i], NULL), 0);
	KUNIT_ASSERT_EQ(test, kfi_rx_context(sep, 0, NULL, &rx, NULL), 0);
	KUNIT_ASSERT_EQ(test, kfi_wait_open(f.fabric, NULL, &set), 0);
	KUNIT_EXPECT_EQ(test, kfi_close(&set->kfid), 0);
	KUNIT_EXPECT_EQ(test, kfi_close(&f.domain->fid), -KFI_EBUSY);
	KUNIT_EXPECT_EQ(test, kfi_close(&f.fabric->fid), -KFI_EBUSY);
	/* Nothing has changed. */
	for (i = 0; i < 2; i++) {
		KUNIT_EXPECT_EQ(test, kfi_cntr_add(cntrs[i], 1), 0);
		KUNIT_EXPECT_EQ(test, kfi_close(&cntrs[i]->fid), 0);
		KUNIT_EXPECT_EQ(test, kfi_close(&tx[i]->fid), 0);
	}
	KUNIT_EXPECT_EQ(test, kfi_close(&rx->fid), 0);
	KUNIT_EXPECT_EQ(test, kfi_close(&sep->fid), 0);
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
