// SPDX-License-Identifier: GPL-2.0
/*
 * What a consumer gets wrong, or does at an unexpected moment, and what becomes of it.
 */

#include <linux/module.h>
#include <linux/uio.h>

#include <kfi/kfi_trigger.h>

#include "pair.h"

/*
 * A work that was never queued, because the call that should have queued it failed, cannot be
 * cancelled. No other work is.
 */
static void only_a_queued_work_is_cancelled(struct kunit *test)
{
	struct kfi_op_cntr add = { .value = 1 };
	struct kfi_deferred_work queued = {}, refused = {};
	struct kfid_cntr *trigger;
	struct kfid *domain;
	struct fixture f;

	fixture_open(test, &f);
	domain = &f.domain->fid;
	trigger = open_cntr(test, &f, KFI_WAIT_UNSPEC, NULL, NULL);
	add.cntr = trigger;
	queued.op_type = KFI_OP_CNTR_ADD;
	queued.op.cntr = &add;
	queued.triggering_cntr = trigger;
	queued.threshold = 5;
	refused = queued;
	refused.op.cntr = NULL;
	KUNIT_EXPECT_EQ(test, kfi_control(domain, KFI_QUEUE_WORK, &queued), 0);
	KUNIT_EXPECT_EQ(test, kfi_control(domain, KFI_QUEUE_WORK, &refused), -KFI_EINVAL);
	KUNIT_EXPECT_EQ(test, kfi_control(domain, KFI_CANCEL_WORK, &refused), -KFI_ENOENT);
	KUNIT_EXPECT_EQ(test, kfi_control(domain, KFI_CANCEL_WORK, &queued), 0);
	KUNIT_EXPECT_EQ(test, kfi_close(&trigger->fid), 0);
	fixture_close(test, &f);
}

static struct kunit_case cases[] = {
	KUNIT_CASE(only_a_queued_work_is_cancelled),
	{}
};

static struct kunit_suite suite = {
	.name = "consumer_mistakes",
	.test_cases = cases,
};

kunit_test_suite(suite);

MODULE_DESCRIPTION("kfabric consumer: mistakes and unexpected moments");
MODULE_LICENSE("GPL");
