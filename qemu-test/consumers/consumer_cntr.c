// SPDX-License-Identifier: GPL-2.0
/*
 * Counters: kfi_cntr(3). consumer_cntr_irq has the contexts in which they may be used.
 */

#include <linux/ktime.h>
#include <linux/sched/signal.h>
#include <linux/wait.h>

#include "fixture.h"

static void values(struct kunit *test)
{
	struct kfid_cntr *cntr;
	struct fixture f;

	fixture_open(test, &f);
	cntr = open_cntr(test, &f, KFI_WAIT_NONE, NULL, &f);
	KUNIT_EXPECT_EQ(test, cntr->fid.fclass, KFI_CLASS_CNTR);
	KUNIT_EXPECT_PTR_EQ(test, cntr->fid.context, (void *)&f);
	KUNIT_EXPECT_EQ(test, cntr->ops->size, sizeof(*cntr->ops));
	KUNIT_EXPECT_EQ(test, cntr->fid.ops->size, sizeof(*cntr->fid.ops));
	KUNIT_EXPECT_EQ(test, kfi_cntr_read(cntr), 0);
	KUNIT_EXPECT_EQ(test, kfi_cntr_readerr(cntr), 0);
	KUNIT_EXPECT_EQ(test, kfi_cntr_add(cntr, 5), 0);
	KUNIT_EXPECT_EQ(test, kfi_cntr_adderr(cntr, 2), 0);
	KUNIT_EXPECT_EQ(test, kfi_cntr_read(cntr), 5);
	KUNIT_EXPECT_EQ(test, kfi_cntr_readerr(cntr), 2);
	KUNIT_EXPECT_EQ(test, kfi_cntr_set(cntr, ~0ULL), 0);
	KUNIT_EXPECT_EQ(test, kfi_cntr_seterr(cntr, 9), 0);
	KUNIT_EXPECT_EQ(test, kfi_cntr_add(cntr, 3), 0);
	KUNIT_EXPECT_EQ(test, kfi_cntr_read(cntr), 2);
	KUNIT_EXPECT_EQ(test, kfi_cntr_readerr(cntr), 9);
	KUNIT_EXPECT_EQ(test, kfi_close(&f.domain->fid), -KFI_EBUSY);
	KUNIT_EXPECT_EQ(test, kfi_close(&cntr->fid), 0);
	fixture_close(test, &f);
}

static void attributes(struct kunit *test)
{
	struct kfi_cntr_attr attr = {};
	struct kfid_cntr *cntr = NULL;
	struct fixture f;

	fixture_open(test, &f);
	attr.flags = 1;
	KUNIT_EXPECT_EQ(test, kfi_cntr_open(f.domain, &attr, &cntr, NULL), -KFI_EINVAL);
	attr.flags = 0;
	attr.events = 1;
	KUNIT_EXPECT_EQ(test, kfi_cntr_open(f.domain, &attr, &cntr, NULL), -KFI_EINVAL);
	attr.events = KFI_CNTR_EVENTS_COMP;
	attr.wait_obj = 4;
	KUNIT_EXPECT_EQ(test, kfi_cntr_open(f.domain, &attr, &cntr, NULL), -KFI_EINVAL);
	attr.wait_obj = KFI_WAIT_SET;
	KUNIT_EXPECT_EQ(test, kfi_cntr_open(f.domain, &attr, &cntr, NULL), -KFI_EINVAL);
	/* Not a wait set. */
	attr.wait_set = (struct kfid_wait *)f.domain;
	KUNIT_EXPECT_EQ(test, kfi_cntr_open(f.domain, &attr, &cntr, NULL), -KFI_EINVAL);
	KUNIT_EXPECT_NULL(test, cntr);
	/* Ignored without KFI_WAIT_SET. */
	attr.wait_obj = KFI_WAIT_UNSPEC;
	KUNIT_ASSERT_EQ(test, kfi_cntr_open(f.domain, &attr, &cntr, NULL), 0);
	KUNIT_EXPECT_EQ(test, kfi_close(&cntr->fid), 0);
	/* Without attributes, calls can wait. */
	KUNIT_ASSERT_EQ(test, kfi_cntr_open(f.domain, NULL, &cntr, NULL), 0);
	KUNIT_EXPECT_EQ(test, kfi_cntr_wait(cntr, 1, 1), -KFI_ETIMEDOUT);
	KUNIT_EXPECT_EQ(test, kfi_close(&cntr->fid), 0);
	fixture_close(test, &f);
}

static void timeouts(struct kunit *test)
{
	struct kfid_cntr *cntr, *none;
	struct fixture f;
	ktime_t begin;

	fixture_open(test, &f);
	cntr = open_cntr(test, &f, KFI_WAIT_UNSPEC, NULL, NULL);
	none = open_cntr(test, &f, KFI_WAIT_NONE, NULL, NULL);
	KUNIT_EXPECT_EQ(test, kfi_cntr_wait(cntr, 0, 0), 0);
	KUNIT_EXPECT_EQ(test, kfi_cntr_wait(cntr, 0, -1), 0);
	KUNIT_EXPECT_EQ(test, kfi_cntr_wait(cntr, 1, 0), -KFI_ETIMEDOUT);
	/* Milliseconds: not microseconds, not seconds. */
	begin = ktime_get();
	KUNIT_EXPECT_EQ(test, kfi_cntr_wait(cntr, 1, 100), -KFI_ETIMEDOUT);
	KUNIT_EXPECT_GE(test, ktime_ms_delta(ktime_get(), begin), 100);
	KUNIT_EXPECT_LT(test, ktime_ms_delta(ktime_get(), begin), LONG);
	KUNIT_EXPECT_EQ(test, kfi_cntr_readerr(cntr), 0);
	/* KFI_WAIT_NONE: the counter can be asked, not waited on. */
	KUNIT_EXPECT_EQ(test, kfi_cntr_wait(none, 1, 1), -KFI_EINVAL);
	KUNIT_EXPECT_EQ(test, kfi_cntr_wait(none, 1, -1), -KFI_EINVAL);
	KUNIT_EXPECT_EQ(test, kfi_cntr_wait(none, 1, 0), -KFI_ETIMEDOUT);
	KUNIT_EXPECT_EQ(test, kfi_cntr_wait(none, 0, 0), 0);
	/* An error from before the wait does not end it, success is looked at first. */
	kfi_cntr_adderr(cntr, 1);
	KUNIT_EXPECT_EQ(test, kfi_cntr_wait(cntr, 1, 1), -KFI_ETIMEDOUT);
	kfi_cntr_add(cntr, 1);
	KUNIT_EXPECT_EQ(test, kfi_cntr_wait(cntr, 1, -1), 0);
	CLOSE(test, &cntr->fid, &none->fid);
	fixture_close(test, &f);
}

/* What a thread waits for, and whether a signal ends that. */
struct waiter {
	struct kfid_cntr	*cntr;
	u64			threshold;
	bool			signals;
	struct call		call;
};

static int wait_on_it(void *arg)
{
	struct waiter *waiter = arg;

	if (waiter->signals)
		allow_signal(SIGINT);
	return kfi_cntr_wait(waiter->cntr, waiter->threshold, LONG);
}

static struct task_struct *begin(struct kunit *test, struct waiter *waiter)
{
	return call_sleeps(test, &waiter->call, wait_on_it, waiter);
}

static void waiters(struct kunit *test)
{
	struct waiter low = { .threshold = 2 }, high = { .threshold = 5 };
	struct kfid_cntr *cntr;
	struct task_struct *task;
	struct fixture f;

	fixture_open(test, &f);
	cntr = open_cntr(test, &f, KFI_WAIT_QUEUE, NULL, NULL);
	low.cntr = cntr;
	high.cntr = cntr;
	begin(test, &low);
	begin(test, &high);
	KUNIT_EXPECT_EQ(test, kfi_close(&cntr->fid), -KFI_EBUSY);
	kfi_cntr_add(cntr, 1);
	KUNIT_EXPECT_FALSE(test, completion_done(&low.call.done));
	kfi_cntr_add(cntr, 1);
	call_ends(test, &low.call, 0);
	KUNIT_EXPECT_FALSE(test, completion_done(&high.call.done));
	/* Reached at any moment is reached. */
	kfi_cntr_set(cntr, 5);
	kfi_cntr_set(cntr, 0);
	call_ends(test, &high.call, 0);
	/* A change of the error value ends a wait, also one that is taken back. */
	begin(test, &high);
	kfi_cntr_adderr(cntr, 1);
	kfi_cntr_seterr(cntr, 0);
	call_ends(test, &high.call, -KFI_EAVAIL);
	/* No change, no end. */
	begin(test, &high);
	kfi_cntr_adderr(cntr, 0);
	kfi_cntr_seterr(cntr, 0);
	msleep(20);
	KUNIT_EXPECT_FALSE(test, completion_done(&high.call.done));
	kfi_cntr_set(cntr, 7);
	call_ends(test, &high.call, 0);
	/* A signal. */
	kfi_cntr_set(cntr, 0);
	high.signals = true;
	task = begin(test, &high);
	send_sig(SIGINT, task, 1);
	call_ends(test, &high.call, -EINTR);
	KUNIT_EXPECT_EQ(test, kfi_close(&cntr->fid), 0);
	fixture_close(test, &f);
}

/* What a thread sleeps for in the wait queue. */
struct sleeper {
	struct kfid_cntr	*cntr;
	wait_queue_head_t	*queue;
	u64			threshold;
	bool			errors;
	struct call		call;
};

static int sleep_in_queue(void *arg)
{
	struct sleeper *it = arg;

	return !wait_event_timeout(*it->queue,
				   (it->errors ? kfi_cntr_readerr(it->cntr) :
				    kfi_cntr_read(it->cntr)) >= it->threshold, LONG * HZ / 1000);
}

static void the_wait_queue(struct kunit *test)
{
	struct sleeper it = {};
	wait_queue_head_t *queue = NULL;
	struct kfid_cntr *cntr, *none;
	struct fixture f;

	fixture_open(test, &f);
	cntr = open_cntr(test, &f, KFI_WAIT_QUEUE, NULL, NULL);
	none = open_cntr(test, &f, KFI_WAIT_NONE, NULL, NULL);
	KUNIT_EXPECT_EQ(test, kfi_control(&none->fid, KFI_GETWAIT, &queue), -KFI_EINVAL);
	KUNIT_EXPECT_EQ(test, kfi_control(&cntr->fid, KFI_GETWAIT, NULL), -KFI_EINVAL);
	KUNIT_ASSERT_EQ(test, kfi_control(&cntr->fid, KFI_GETWAIT, &queue), 0);
	KUNIT_ASSERT_NOT_NULL(test, queue);
	it.cntr = cntr;
	it.queue = queue;
	it.threshold = 3;
	call_sleeps(test, &it.call, sleep_in_queue, &it);
	kfi_cntr_add(cntr, 1);
	msleep(20);
	KUNIT_EXPECT_FALSE(test, completion_done(&it.call.done));
	kfi_cntr_add(cntr, 2);
	call_ends(test, &it.call, 0);
	it.threshold = 9;
	call_sleeps(test, &it.call, sleep_in_queue, &it);
	kfi_cntr_set(cntr, 9);
	call_ends(test, &it.call, 0);
	it.errors = true;
	it.threshold = 1;
	call_sleeps(test, &it.call, sleep_in_queue, &it);
	kfi_cntr_adderr(cntr, 1);
	call_ends(test, &it.call, 0);
	it.threshold = 4;
	call_sleeps(test, &it.call, sleep_in_queue, &it);
	kfi_cntr_seterr(cntr, 4);
	call_ends(test, &it.call, 0);
	CLOSE(test, &cntr->fid, &none->fid);
	fixture_close(test, &f);
}

static void flags(struct kunit *test)
{
	struct kfid_cntr *cntr;
	struct fixture f;
	u64 value = 7;

	fixture_open(test, &f);
	cntr = open_cntr(test, &f, KFI_WAIT_NONE, NULL, NULL);
	KUNIT_EXPECT_EQ(test, kfi_control(&cntr->fid, KFI_GETOPSFLAG, &value), 0);
	KUNIT_EXPECT_EQ(test, value, 0);
	value = KFI_COMPLETION;
	KUNIT_EXPECT_EQ(test, kfi_control(&cntr->fid, KFI_SETOPSFLAG, &value), 0);
	value = 0;
	KUNIT_EXPECT_EQ(test, kfi_control(&cntr->fid, KFI_GETOPSFLAG, &value), 0);
	KUNIT_EXPECT_EQ(test, value, KFI_COMPLETION);
	value = BIT_ULL(40);
	KUNIT_EXPECT_EQ(test, kfi_control(&cntr->fid, KFI_SETOPSFLAG, &value), -KFI_EINVAL);
	KUNIT_EXPECT_EQ(test, kfi_control(&cntr->fid, KFI_GETOPSFLAG, NULL), -KFI_EINVAL);
	/* The name of the manual page. */
	value = KFI_INJECT;
	KUNIT_EXPECT_EQ(test, kfi_cntr_control(cntr, KFI_SETOPSFLAG, &value), 0);
	value = 0;
	KUNIT_EXPECT_EQ(test, kfi_cntr_control(cntr, KFI_GETOPSFLAG, &value), 0);
	KUNIT_EXPECT_EQ(test, value, KFI_INJECT);
	KUNIT_EXPECT_EQ(test, kfi_cntr_control(cntr, KFI_ENABLE, NULL), -KFI_ENOSYS);
	KUNIT_EXPECT_EQ(test, kfi_control(&cntr->fid, KFI_ENABLE, NULL), -KFI_ENOSYS);
	KUNIT_EXPECT_EQ(test, kfi_control(&cntr->fid, -1, NULL), -KFI_ENOSYS);
	KUNIT_EXPECT_EQ(test, cntr->fid.ops->bind(&cntr->fid, &f.domain->fid, 0), -KFI_ENOSYS);
	KUNIT_EXPECT_EQ(test, kfi_close(&cntr->fid), 0);
	fixture_close(test, &f);
}

CONSUMER("counters",
	 KUNIT_CASE(values),
	 KUNIT_CASE(attributes),
	 KUNIT_CASE(timeouts),
	 KUNIT_CASE(waiters),
	 KUNIT_CASE(the_wait_queue),
	 KUNIT_CASE(flags));
