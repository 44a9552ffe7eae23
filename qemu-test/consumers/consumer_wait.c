// SPDX-License-Identifier: GPL-2.0
/*
 * Wait sets and poll sets, with counters as members.
 */

#include <linux/ktime.h>
#include <linux/wait.h>

#include "fixture.h"

static void a_wait_set_takes_a_signal(struct kunit *test)
{
	struct kfi_wait_attr attr = { .wait_obj = KFI_WAIT_QUEUE };
	struct kfid_cntr *one, *other;
	wait_queue_head_t *queue = NULL, *same = NULL;
	struct kfid_wait *set = NULL;
	struct fixture f;
	ktime_t begin;

	fixture_open(test, &f);
	attr.flags = 1;
	KUNIT_EXPECT_EQ(test, kfi_wait_open(f.fabric, &attr, &set), -KFI_EINVAL);
	attr.flags = 0;
	attr.wait_obj = KFI_WAIT_SET;
	KUNIT_EXPECT_EQ(test, kfi_wait_open(f.fabric, &attr, &set), -KFI_EINVAL);
	attr.wait_obj = KFI_WAIT_NONE;
	KUNIT_EXPECT_EQ(test, kfi_wait_open(f.fabric, &attr, &set), -KFI_EINVAL);
	KUNIT_EXPECT_NULL(test, set);
	KUNIT_ASSERT_EQ(test, kfi_wait_open(f.fabric, NULL, &set), 0);
	KUNIT_EXPECT_EQ(test, kfi_close(&set->kfid), 0);
	attr.wait_obj = KFI_WAIT_QUEUE;
	KUNIT_ASSERT_EQ(test, kfi_wait_open(f.fabric, &attr, &set), 0);
	KUNIT_EXPECT_EQ(test, set->kfid.fclass, KFI_CLASS_WAIT);
	KUNIT_EXPECT_EQ(test, set->ops->size, sizeof(*set->ops));

	one = open_cntr(test, &f, KFI_WAIT_SET, set, NULL);
	other = open_cntr(test, &f, KFI_WAIT_SET, set, NULL);
	KUNIT_EXPECT_EQ(test, kfi_close(&set->kfid), -KFI_EBUSY);
	KUNIT_EXPECT_EQ(test, kfi_wait(set, 0), -KFI_ETIMEDOUT);
	begin = ktime_get();
	KUNIT_EXPECT_EQ(test, kfi_wait(set, 50), -KFI_ETIMEDOUT);
	KUNIT_EXPECT_GE(test, ktime_ms_delta(ktime_get(), begin), 50);
	kfi_cntr_add(one, 1);
	kfi_cntr_adderr(other, 1);
	/* More signals add nothing until one is taken. */
	KUNIT_EXPECT_EQ(test, kfi_wait(set, -1), 0);
	KUNIT_EXPECT_EQ(test, kfi_wait(set, 0), -KFI_ETIMEDOUT);
	/* A member can be waited on itself. */
	KUNIT_EXPECT_EQ(test, kfi_cntr_wait(one, 1, -1), 0);
	/* Its wait queue is that of the set. */
	KUNIT_EXPECT_EQ(test, kfi_control(&set->kfid, KFI_GETWAIT, &queue), 0);
	KUNIT_EXPECT_EQ(test, kfi_control(&one->fid, KFI_GETWAIT, &same), 0);
	KUNIT_EXPECT_NOT_NULL(test, queue);
	KUNIT_EXPECT_PTR_EQ(test, queue, same);
	KUNIT_EXPECT_EQ(test, kfi_control(&set->kfid, KFI_GETOPSFLAG, &queue), -KFI_ENOSYS);
	CLOSE(test, &one->fid, &other->fid, &set->kfid);
	fixture_close(test, &f);
}

struct later {
	struct timer_list	timer;
	struct kfid_cntr	*cntr;
};

static void add_later(struct timer_list *timer)
{
	struct later *later = container_of(timer, struct later, timer);

	kfi_cntr_add(later->cntr, 1);
}

static void a_sleeper_of_a_wait_set_is_woken(struct kunit *test)
{
	struct later *later = zeroed(test, sizeof(*later));
	struct kfid_wait *set;
	struct fixture f;
	int i;

	fixture_open(test, &f);
	KUNIT_ASSERT_EQ(test, kfi_wait_open(f.fabric, NULL, &set), 0);
	later->cntr = open_cntr(test, &f, KFI_WAIT_SET, set, NULL);
	timer_setup(&later->timer, add_later, 0);
	for (i = 1; i <= 10; i++) {
		mod_timer(&later->timer, jiffies + 2);
		KUNIT_EXPECT_EQ(test, kfi_wait(set, LONG), 0);
		KUNIT_EXPECT_EQ(test, kfi_cntr_read(later->cntr), i);
	}
	timer_delete_sync(&later->timer);
	CLOSE(test, &later->cntr->fid, &set->kfid);
	fixture_close(test, &f);
}

static void a_set_of_another_fabric_is_refused(struct kunit *test)
{
	struct kfi_cntr_attr attr = { .wait_obj = KFI_WAIT_SET };
	struct kfid_cntr *cntr = NULL;
	struct fixture f, other;

	fixture_open(test, &f);
	fixture_open(test, &other);
	KUNIT_ASSERT_EQ(test, kfi_wait_open(other.fabric, NULL, &attr.wait_set), 0);
	KUNIT_EXPECT_EQ(test, kfi_cntr_open(f.domain, &attr, &cntr, NULL), -KFI_EINVAL);
	KUNIT_EXPECT_NULL(test, cntr);
	KUNIT_EXPECT_EQ(test, kfi_close(&attr.wait_set->kfid), 0);
	fixture_close(test, &other);
	fixture_close(test, &f);
}

/* consumer_poll_set has what is ready. */
static void calls_of_a_poll_set_are_checked(struct kunit *test)
{
	struct kfi_poll_attr attr = { .flags = 1 };
	struct kfid_cntr *one, *other;
	struct kfid_poll *set = NULL;
	struct fixture f, alien;
	void *contexts[3] = {};

	fixture_open(test, &f);
	fixture_open(test, &alien);
	KUNIT_EXPECT_EQ(test, kfi_poll_open(f.domain, &attr, &set), -KFI_EINVAL);
	attr.flags = 0;
	KUNIT_ASSERT_EQ(test, kfi_poll_open(f.domain, &attr, &set), 0);
	KUNIT_EXPECT_EQ(test, set->fid.fclass, KFI_CLASS_POLL);
	KUNIT_EXPECT_EQ(test, set->ops->size, sizeof(*set->ops));
	one = open_cntr(test, &f, KFI_WAIT_NONE, NULL, NULL);
	other = open_cntr(test, &f, KFI_WAIT_NONE, NULL, NULL);
	KUNIT_EXPECT_EQ(test, kfi_poll_add(set, &one->fid, 1), -KFI_EINVAL);
	KUNIT_EXPECT_EQ(test, kfi_poll_add(set, &f.domain->fid, 0), -KFI_EINVAL);
	KUNIT_EXPECT_EQ(test, kfi_poll_add(set, NULL, 0), -KFI_EINVAL);
	KUNIT_EXPECT_EQ(test, kfi_poll_add(set, &one->fid, 0), 0);
	KUNIT_EXPECT_EQ(test, kfi_poll_add(set, &one->fid, 0), -EEXIST);
	KUNIT_EXPECT_EQ(test, kfi_poll_del(set, &other->fid, 0), -KFI_ENOENT);
	KUNIT_EXPECT_EQ(test, kfi_poll_add(set, &other->fid, 0), 0);
	KUNIT_EXPECT_EQ(test, kfi_close(&one->fid), -KFI_EBUSY);

	KUNIT_EXPECT_EQ(test, kfi_poll(set, contexts, 0), -KFI_EINVAL);
	KUNIT_EXPECT_EQ(test, kfi_poll(set, contexts, -1), -KFI_EINVAL);
	KUNIT_EXPECT_EQ(test, kfi_poll_del(set, &one->fid, 0), 0);
	KUNIT_EXPECT_EQ(test, kfi_close(&one->fid), 0);

	/* A counter of another domain. */
	one = open_cntr(test, &alien, KFI_WAIT_NONE, NULL, NULL);
	KUNIT_EXPECT_EQ(test, kfi_poll_add(set, &one->fid, 0), -KFI_EINVAL);
	KUNIT_EXPECT_EQ(test, kfi_close(&one->fid), 0);
	KUNIT_EXPECT_EQ(test, kfi_poll_del(set, &other->fid, 0), 0);
	CLOSE(test, &set->fid, &other->fid);
	fixture_close(test, &alien);
	fixture_close(test, &f);
}

CONSUMER("wait sets and poll sets",
	 KUNIT_CASE(a_wait_set_takes_a_signal),
	 KUNIT_CASE(a_sleeper_of_a_wait_set_is_woken),
	 KUNIT_CASE(a_set_of_another_fabric_is_refused),
	 KUNIT_CASE(calls_of_a_poll_set_are_checked));
