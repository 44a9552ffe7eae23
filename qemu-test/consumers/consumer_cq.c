// SPDX-License-Identifier: GPL-2.0
/*
 * Completion queues: opening them, and the calls on an empty one.
 */

#include <linux/bottom_half.h>
#include <linux/ktime.h>
#include <linux/wait.h>

#include "fixture.h"

static struct kfid_cq *open_cq(struct kunit *test, struct fixture *f,
			       enum kfi_wait_obj wait_obj, void *context)
{
	struct kfi_cq_attr attr = {
		.format = KFI_CQ_FORMAT_TAGGED,
		.wait_obj = wait_obj,
	};
	struct kfid_cq *cq;

	KUNIT_ASSERT_EQ(test, kfi_cq_open(f->domain, &attr, &cq, NULL, context), 0);
	return cq;
}

static void never_called(struct kfid_cq *cq, void *context)
{
	WARN_ON(1);
}

static void attributes_are_checked(struct kunit *test)
{
	struct kfi_cq_attr attr = {};
	struct kfid_cq *cq = NULL;
	struct fixture f;

	fixture_open(test, &f);
#define REFUSED() \
	KUNIT_EXPECT_EQ(test, kfi_cq_open(f.domain, &attr, &cq, NULL, NULL), -KFI_EINVAL)
	attr.flags = KFI_READ;
	REFUSED();
	attr.flags = 0;
	attr.size = SIZE_MAX;
	REFUSED();
	attr.size = 0;
	attr.format = KFI_CQ_FORMAT_TAGGED + 1;
	REFUSED();
	attr.format = KFI_CQ_FORMAT_DATA;
	/* There is no KFI_WAIT_FD. */
	attr.wait_obj = KFI_WAIT_QUEUE + 1;
	REFUSED();
	attr.wait_obj = KFI_WAIT_SET;
	REFUSED();
	/* Not a wait set. */
	attr.wait_set = (struct kfid_wait *)f.domain;
	REFUSED();
	attr.wait_obj = KFI_WAIT_UNSPEC;
	attr.wait_cond = KFI_CQ_COND_THRESHOLD + 1;
	REFUSED();
	KUNIT_EXPECT_NULL(test, cq);
	/* Ignored without a wait object, as the vector is without affinity. */
	attr.wait_obj = KFI_WAIT_NONE;
	KUNIT_ASSERT_EQ(test, kfi_cq_open(f.domain, &attr, &cq, never_called, &f), 0);
	KUNIT_EXPECT_EQ(test, attr.format, KFI_CQ_FORMAT_DATA);
	KUNIT_EXPECT_EQ(test, cq->fid.fclass, KFI_CLASS_CQ);
	KUNIT_EXPECT_PTR_EQ(test, cq->fid.context, (void *)&f);
	KUNIT_EXPECT_PTR_EQ(test, (void *)cq->comp_handler, (void *)never_called);
	KUNIT_EXPECT_EQ(test, cq->ops->size, sizeof(*cq->ops));
	KUNIT_EXPECT_EQ(test, cq->fid.ops->size, sizeof(*cq->fid.ops));
	KUNIT_EXPECT_EQ(test, kfi_close(&f.domain->fid), -KFI_EBUSY);
	KUNIT_EXPECT_EQ(test, kfi_close(&cq->fid), 0);
	/* The attributes that the provider has chosen are returned. */
	attr = (struct kfi_cq_attr){
		.flags = KFI_AFFINITY,
		.size = 7,
	};
	KUNIT_ASSERT_EQ(test, kfi_cq_open(f.domain, &attr, &cq, NULL, NULL), 0);
	KUNIT_EXPECT_EQ(test, attr.format, KFI_CQ_FORMAT_CONTEXT);
	KUNIT_EXPECT_EQ(test, kfi_close(&cq->fid), 0);
	/* Without attributes, calls can wait. */
	KUNIT_ASSERT_EQ(test, kfi_cq_open(f.domain, NULL, &cq, NULL, NULL), 0);
	KUNIT_EXPECT_EQ(test, kfi_cq_sread(cq, &attr, 1, NULL, 1), -KFI_EAGAIN);
	KUNIT_EXPECT_EQ(test, kfi_cq_sread(cq, &attr, 1, NULL, 0), -KFI_EAGAIN);
	KUNIT_EXPECT_EQ(test, kfi_close(&cq->fid), 0);
	fixture_close(test, &f);
}

static void an_empty_queue_is_read(struct kunit *test)
{
	struct kfi_cq_err_entry error = {};
	struct kfi_cq_tagged_entry entry[2];
	kfi_addr_t source[2];
	struct kfid_cq *cq;
	struct fixture f;

	fixture_open(test, &f);
	cq = open_cq(test, &f, KFI_WAIT_NONE, NULL);
	KUNIT_EXPECT_EQ(test, kfi_cq_read(cq, entry, 2), -KFI_EAGAIN);
	KUNIT_EXPECT_EQ(test, kfi_cq_read(cq, NULL, 0), -KFI_EAGAIN);
	KUNIT_EXPECT_EQ(test, kfi_cq_read(cq, NULL, 1), -KFI_EINVAL);
	KUNIT_EXPECT_EQ(test, kfi_cq_readfrom(cq, entry, 2, source), -KFI_EAGAIN);
	KUNIT_EXPECT_EQ(test, kfi_cq_readerr(cq, &error, 0), -KFI_EAGAIN);
	KUNIT_EXPECT_EQ(test, kfi_cq_readerr(cq, &error, 1), -KFI_EINVAL);
	KUNIT_EXPECT_EQ(test, kfi_cq_readerr(cq, NULL, 0), -KFI_EINVAL);
	local_bh_disable();
	KUNIT_EXPECT_EQ(test, kfi_cq_read(cq, entry, 2), -KFI_EAGAIN);
	KUNIT_EXPECT_EQ(test, kfi_cq_readerr(cq, &error, 0), -KFI_EAGAIN);
	local_bh_enable();
	/* KFI_WAIT_NONE: these calls are not valid, whatever the timeout is. */
	KUNIT_EXPECT_EQ(test, kfi_cq_sread(cq, entry, 2, NULL, 0), -KFI_EINVAL);
	KUNIT_EXPECT_EQ(test, kfi_cq_sreadfrom(cq, entry, 2, source, NULL, 0), -KFI_EINVAL);
	KUNIT_EXPECT_EQ(test, kfi_cq_sread(cq, entry, 2, NULL, 1), -KFI_EINVAL);
	KUNIT_EXPECT_EQ(test, kfi_cq_sreadfrom(cq, entry, 2, source, NULL, -1), -KFI_EINVAL);
	KUNIT_EXPECT_EQ(test, kfi_cq_signal(cq), -KFI_EINVAL);
	KUNIT_EXPECT_EQ(test, kfi_control(&cq->fid, 77, NULL), -KFI_ENOSYS);
	KUNIT_EXPECT_EQ(test, kfi_close(&cq->fid), 0);
	fixture_close(test, &f);
}

static int wait_for_entry(void *cq)
{
	struct kfi_cq_tagged_entry entry;

	return kfi_cq_sread(cq, &entry, 1, NULL, LONG);
}

static void a_signal_ends_a_wait(struct kunit *test)
{
	struct kfi_cq_tagged_entry entry;
	struct call waiter;
	struct kfid_cq *cq;
	struct fixture f;
	ktime_t begin;

	fixture_open(test, &f);
	cq = open_cq(test, &f, KFI_WAIT_QUEUE, NULL);
	call_sleeps(test, &waiter, wait_for_entry, cq);
	KUNIT_EXPECT_FALSE(test, completion_done(&waiter.done));
	KUNIT_EXPECT_EQ(test, kfi_close(&cq->fid), -KFI_EBUSY);
	begin = ktime_get();
	KUNIT_EXPECT_EQ(test, kfi_cq_signal(cq), 0);
	call_ends(test, &waiter, -KFI_EAGAIN);
	/* Not by its timeout. */
	KUNIT_EXPECT_LT(test, ktime_ms_delta(ktime_get(), begin), LONG / 2);
	/* A signal without a thread inside is kept for the next. */
	KUNIT_EXPECT_EQ(test, kfi_cq_signal(cq), 0);
	KUNIT_EXPECT_EQ(test, kfi_cq_sread(cq, &entry, 1, NULL, -1), -KFI_EAGAIN);
	begin = ktime_get();
	KUNIT_EXPECT_EQ(test, kfi_cq_sread(cq, &entry, 1, NULL, 50), -KFI_EAGAIN);
	KUNIT_EXPECT_GE(test, ktime_ms_delta(ktime_get(), begin), 50);
	KUNIT_EXPECT_EQ(test, kfi_close(&cq->fid), 0);
	fixture_close(test, &f);
}

static void each_wait_object_has_its_queue(struct kunit *test)
{
	struct kfi_cq_attr attr = { .wait_obj = KFI_WAIT_SET };
	wait_queue_head_t *queue = NULL, *of_set = NULL;
	struct kfid_cq *cq;
	struct fixture f;

	fixture_open(test, &f);
	cq = open_cq(test, &f, KFI_WAIT_QUEUE, NULL);
	KUNIT_EXPECT_EQ(test, kfi_control(&cq->fid, KFI_GETWAIT, NULL), -KFI_EINVAL);
	KUNIT_ASSERT_EQ(test, kfi_control(&cq->fid, KFI_GETWAIT, &queue), 0);
	KUNIT_EXPECT_NOT_NULL(test, queue);
	KUNIT_EXPECT_FALSE(test, wq_has_sleeper(queue));
	KUNIT_EXPECT_EQ(test, kfi_close(&cq->fid), 0);
	cq = open_cq(test, &f, KFI_WAIT_NONE, NULL);
	KUNIT_EXPECT_EQ(test, kfi_control(&cq->fid, KFI_GETWAIT, &queue), -KFI_EINVAL);
	KUNIT_EXPECT_EQ(test, kfi_close(&cq->fid), 0);

	KUNIT_ASSERT_EQ(test, kfi_wait_open(f.fabric, NULL, &attr.wait_set), 0);
	KUNIT_ASSERT_EQ(test, kfi_control(&attr.wait_set->kfid, KFI_GETWAIT, &of_set), 0);
	KUNIT_ASSERT_EQ(test, kfi_cq_open(f.domain, &attr, &cq, NULL, NULL), 0);
	KUNIT_EXPECT_EQ(test, kfi_close(&attr.wait_set->kfid), -KFI_EBUSY);
	KUNIT_ASSERT_EQ(test, kfi_control(&cq->fid, KFI_GETWAIT, &queue), 0);
	KUNIT_EXPECT_PTR_EQ(test, queue, of_set);
	/* The set is what is waited on. */
	KUNIT_EXPECT_EQ(test, kfi_cq_sread(cq, &attr, 1, NULL, 0), -KFI_EINVAL);
	KUNIT_EXPECT_EQ(test, kfi_cq_sread(cq, &attr, 1, NULL, 1), -KFI_EINVAL);
	KUNIT_EXPECT_EQ(test, kfi_cq_signal(cq), 0);
	KUNIT_EXPECT_EQ(test, kfi_wait(attr.wait_set, LONG), 0);
	CLOSE(test, &cq->fid, &attr.wait_set->kfid);
	fixture_close(test, &f);
}

static void numbers_of_errors_have_a_text(struct kunit *test)
{
	char text[64], part[4];
	struct kfid_cq *cq;
	struct fixture f;
	const char *own;

	fixture_open(test, &f);
	cq = open_cq(test, &f, KFI_WAIT_NONE, NULL);
	own = kfi_cq_strerror(cq, 257, NULL, NULL, 0);
	KUNIT_EXPECT_STREQ(test, own, kfi_cq_strerror(cq, 257, NULL, part, 0));
	KUNIT_EXPECT_STRNEQ(test, own, kfi_cq_strerror(cq, 266, NULL, NULL, 0));
	own = kfi_cq_strerror(cq, -1, NULL, text, sizeof(text));
	KUNIT_EXPECT_STREQ(test, own, text);
	kfi_cq_strerror(cq, -1, NULL, part, sizeof(part));
	KUNIT_EXPECT_EQ(test, strlen(part), sizeof(part) - 1);
	KUNIT_EXPECT_EQ(test, strncmp(own, part, strlen(part)), 0);
	KUNIT_EXPECT_EQ(test, kfi_close(&cq->fid), 0);
	fixture_close(test, &f);
}

CONSUMER("completion queues",
	 KUNIT_CASE(attributes_are_checked),
	 KUNIT_CASE(an_empty_queue_is_read),
	 KUNIT_CASE(a_signal_ends_a_wait),
	 KUNIT_CASE(each_wait_object_has_its_queue),
	 KUNIT_CASE(numbers_of_errors_have_a_text));
