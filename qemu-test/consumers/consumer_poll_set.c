// SPDX-License-Identifier: GPL-2.0
/*
 * Poll sets: when a queue and when a counter is ready (fi_poll(3)).
 */

#include "pair.h"

/* The contexts of the first @room ready members, with zeros behind; their number. */
static int ready(struct kfid_poll *set, void **contexts, int room)
{
	memset(contexts, 0, 4 * sizeof(*contexts));
	return kfi_poll(set, contexts, room);
}

/* Whether exactly @context is ready. */
static bool only(struct kfid_poll *set, void *context)
{
	void *contexts[4];

	return ready(set, contexts, 4) == 1 && contexts[0] == context;
}

/* Whether nothing is ready. */
static bool none(struct kfid_poll *set)
{
	void *contexts[4];

	return ready(set, contexts, 4) == 0 && !contexts[0];
}

/* Opens an enabled endpoint whose CQ has the context @cq. */
static void end_with(struct kunit *test, struct fixture *f, struct end *end, void *cq)
{
	struct kfi_cq_attr attr = {
		.format = KFI_CQ_FORMAT_TAGGED,
		.wait_obj = KFI_WAIT_UNSPEC,
	};
	struct kfi_info *info = entry_of(test, KFI_EP_RDM);

	KUNIT_ASSERT_EQ(test, kfi_endpoint(f->domain, info, &end->ep, NULL), 0);
	KUNIT_ASSERT_EQ(test, kfi_av_open(f->domain, NULL, &end->av, NULL), 0);
	KUNIT_ASSERT_EQ(test, kfi_cq_open(f->domain, &attr, &end->cq, NULL, cq), 0);
	KUNIT_ASSERT_EQ(test, kfi_ep_bind(end->ep, &end->av->fid, 0), 0);
	KUNIT_ASSERT_EQ(test, kfi_ep_bind(end->ep, &end->cq->fid, KFI_TRANSMIT | KFI_RECV), 0);
	end->sent = open_cntr(test, f, KFI_WAIT_NONE, NULL, NULL);
	end->received = open_cntr(test, f, KFI_WAIT_NONE, NULL, NULL);
	KUNIT_ASSERT_EQ(test, kfi_enable(end->ep), 0);
	kfi_freeinfo(info);
}

/* A queue with an entry or an error is ready until it was read. */
static void a_queue_is_ready_until_it_is_empty(struct kunit *test)
{
	u8 *to = zeroed(test, 8);
	struct kfi_cq_err_entry error = {};
	struct kfi_cq_tagged_entry entry;
	struct kfid_poll *set;
	struct end ends[2];
	struct fixture f;
	int i;

	fixture_open(test, &f);
	for (i = 0; i < 2; i++)
		end_with(test, &f, &ends[i], &ends[i]);
	end_knows(test, &ends[0], &ends[1]);
	KUNIT_ASSERT_EQ(test, kfi_poll_open(f.domain, NULL, &set), 0);
	for (i = 0; i < 2; i++)
		KUNIT_EXPECT_EQ(test, kfi_poll_add(set, &ends[i].cq->fid, 0), 0);
	KUNIT_EXPECT_TRUE(test, none(set));
	for (i = 0; i < 2; i++)
		KUNIT_EXPECT_EQ(test, kfi_recv(ends[1].ep, to, 8, NULL, KFI_ADDR_UNSPEC, to), 0);
	KUNIT_EXPECT_TRUE(test, none(set));
	for (i = 0; i < 2; i++)
		KUNIT_EXPECT_EQ(test, kfi_inject(ends[0].ep, "poll", 5, ends[0].peer), 0);
	/* The other end has no completion: the message was injected. */
	for (i = 0; i < 2; i++) {
		KUNIT_EXPECT_TRUE(test, only(set, &ends[1]));
		KUNIT_EXPECT_TRUE(test, only(set, &ends[1]));
		KUNIT_EXPECT_EQ(test, kfi_cq_read(ends[1].cq, &entry, 1), 1);
	}
	KUNIT_EXPECT_TRUE(test, none(set));
	KUNIT_EXPECT_EQ(test, kfi_recv(ends[1].ep, to, 8, NULL, KFI_ADDR_UNSPEC, to), 0);
	KUNIT_EXPECT_EQ(test, kfi_cancel(&ends[1].ep->fid, to), 0);
	KUNIT_EXPECT_TRUE(test, only(set, &ends[1]));
	KUNIT_EXPECT_EQ(test, kfi_cq_read(ends[1].cq, &entry, 1), -KFI_EAVAIL);
	KUNIT_EXPECT_TRUE(test, only(set, &ends[1]));
	KUNIT_EXPECT_EQ(test, kfi_cq_readerr(ends[1].cq, &error, 0), 1);
	KUNIT_EXPECT_TRUE(test, none(set));
	/* Both ends, at the same time. */
	KUNIT_EXPECT_EQ(test, kfi_recv(ends[1].ep, to, 8, NULL, KFI_ADDR_UNSPEC, to), 0);
	KUNIT_EXPECT_EQ(test, kfi_send(ends[0].ep, to, 0, NULL, ends[0].peer, to), 0);
	completed(test, &ends[1], to, KFI_MSG | KFI_RECV, 0);
	KUNIT_EXPECT_TRUE(test, only(set, &ends[0]));
	KUNIT_EXPECT_EQ(test, kfi_poll_del(set, &ends[0].cq->fid, 0), 0);
	KUNIT_EXPECT_TRUE(test, none(set));
	KUNIT_EXPECT_EQ(test, kfi_poll_del(set, &ends[1].cq->fid, 0), 0);
	KUNIT_EXPECT_EQ(test, kfi_close(&set->fid), 0);
	pair_close(test, &f, ends);
}

/* A counter is ready after a change of either value, in each set by itself. */
static void a_counter_is_ready_when_it_has_changed(struct kunit *test)
{
	struct kfid_poll *set, *second;
	struct kfid_cntr *cntr;
	struct fixture f;

	fixture_open(test, &f);
	cntr = open_cntr(test, &f, KFI_WAIT_NONE, NULL, &cntr);
	KUNIT_EXPECT_EQ(test, kfi_cntr_add(cntr, 3), 0);
	KUNIT_ASSERT_EQ(test, kfi_poll_open(f.domain, NULL, &set), 0);
	KUNIT_ASSERT_EQ(test, kfi_poll_open(f.domain, NULL, &second), 0);
	KUNIT_EXPECT_EQ(test, kfi_poll_add(set, &cntr->fid, 0), 0);
	KUNIT_EXPECT_EQ(test, kfi_poll_add(second, &cntr->fid, 0), 0);
	/* It had its value before it was added. */
	KUNIT_EXPECT_TRUE(test, none(set));
	KUNIT_EXPECT_EQ(test, kfi_cntr_add(cntr, 1), 0);
	KUNIT_EXPECT_TRUE(test, only(set, &cntr));
	KUNIT_EXPECT_TRUE(test, none(set));
	KUNIT_EXPECT_TRUE(test, only(second, &cntr));
	KUNIT_EXPECT_EQ(test, kfi_cntr_set(cntr, 1), 0);
	KUNIT_EXPECT_TRUE(test, only(set, &cntr));
	KUNIT_EXPECT_EQ(test, kfi_cntr_adderr(cntr, 1), 0);
	KUNIT_EXPECT_TRUE(test, only(set, &cntr));
	KUNIT_EXPECT_EQ(test, kfi_cntr_seterr(cntr, 0), 0);
	KUNIT_EXPECT_TRUE(test, only(set, &cntr));
	KUNIT_EXPECT_TRUE(test, none(set));
	/* To read and to wait for a value is no change. */
	KUNIT_EXPECT_EQ(test, kfi_cntr_read(cntr), 1);
	KUNIT_EXPECT_EQ(test, kfi_cntr_wait(cntr, 1, 0), 0);
	KUNIT_EXPECT_TRUE(test, none(set));
	KUNIT_EXPECT_TRUE(test, only(second, &cntr));
	KUNIT_EXPECT_EQ(test, kfi_poll_del(second, &cntr->fid, 0), 0);
	KUNIT_EXPECT_EQ(test, kfi_poll_del(set, &cntr->fid, 0), 0);
	CLOSE(test, &set->fid, &cntr->fid, &second->fid);
	fixture_close(test, &f);
}

/* Neither a set with members nor a member is closed, and both work on. */
static void a_set_with_members_is_in_use(struct kunit *test)
{
	struct kfi_cq_attr attr = { .format = KFI_CQ_FORMAT_TAGGED };
	struct kfid_cntr *cntr;
	struct kfid_poll *set;
	struct kfid_cq *cq;
	struct fixture f;

	fixture_open(test, &f);
	cntr = open_cntr(test, &f, KFI_WAIT_NONE, NULL, &cntr);
	KUNIT_ASSERT_EQ(test, kfi_cq_open(f.domain, &attr, &cq, NULL, &cq), 0);
	KUNIT_ASSERT_EQ(test, kfi_poll_open(f.domain, NULL, &set), 0);
	KUNIT_EXPECT_EQ(test, kfi_poll_add(set, &cntr->fid, 0), 0);
	KUNIT_EXPECT_EQ(test, kfi_poll_add(set, &cq->fid, 0), 0);
	KUNIT_EXPECT_EQ(test, kfi_close(&set->fid), -KFI_EBUSY);
	KUNIT_EXPECT_EQ(test, kfi_close(&cntr->fid), -KFI_EBUSY);
	KUNIT_EXPECT_EQ(test, kfi_close(&cq->fid), -KFI_EBUSY);
	KUNIT_EXPECT_EQ(test, kfi_close(&f.domain->fid), -KFI_EBUSY);
	KUNIT_EXPECT_EQ(test, kfi_cntr_add(cntr, 1), 0);
	KUNIT_EXPECT_TRUE(test, only(set, &cntr));
	/* Each member alone is enough. */
	KUNIT_EXPECT_EQ(test, kfi_poll_del(set, &cntr->fid, 0), 0);
	KUNIT_EXPECT_EQ(test, kfi_close(&cntr->fid), 0);
	KUNIT_EXPECT_EQ(test, kfi_close(&set->fid), -KFI_EBUSY);
	KUNIT_EXPECT_EQ(test, kfi_poll_del(set, &cq->fid, 0), 0);
	CLOSE(test, &set->fid, &cq->fid);
	fixture_close(test, &f);
}

/* With less room than ready members, calls take turns. */
static void members_take_turns(struct kunit *test)
{
	struct kfid_cntr *cntrs[4];
	void *contexts[4], *seen[4];
	struct kfid_poll *set;
	struct fixture f;
	int i, j;

	fixture_open(test, &f);
	KUNIT_ASSERT_EQ(test, kfi_poll_open(f.domain, NULL, &set), 0);
	for (i = 0; i < 4; i++) {
		cntrs[i] = open_cntr(test, &f, KFI_WAIT_NONE, NULL, &cntrs[i]);
		KUNIT_EXPECT_EQ(test, kfi_poll_add(set, &cntrs[i]->fid, 0), 0);
	}
	/* The first ones are busy: they have changed again at each call. */
	for (i = 0; i < 4; i++)
		kfi_cntr_add(cntrs[i], 1);
	for (i = 0; i < 4; i++) {
		KUNIT_EXPECT_EQ(test, ready(set, contexts, 1), 1);
		KUNIT_EXPECT_NULL(test, contexts[1]);
		seen[i] = contexts[0];
		kfi_cntr_add(cntrs[0], 1);
		for (j = 0; j < i; j++)
			KUNIT_EXPECT_PTR_NE(test, seen[i], seen[j]);
	}
	KUNIT_EXPECT_TRUE(test, only(set, &cntrs[0]));
	KUNIT_EXPECT_EQ(test, kfi_poll(set, NULL, 1), -KFI_EINVAL);
	KUNIT_EXPECT_EQ(test, kfi_poll_del(set, &cntrs[0]->fid, 1), -KFI_EINVAL);
	KUNIT_EXPECT_EQ(test, kfi_poll_del(set, &f.domain->fid, 0), -KFI_EINVAL);
	for (i = 0; i < 4; i++) {
		KUNIT_EXPECT_EQ(test, kfi_poll_del(set, &cntrs[i]->fid, 0), 0);
		KUNIT_EXPECT_EQ(test, kfi_close(&cntrs[i]->fid), 0);
	}
	KUNIT_EXPECT_EQ(test, kfi_close(&set->fid), 0);
	fixture_close(test, &f);
}

CONSUMER("poll sets",
	 KUNIT_CASE(a_queue_is_ready_until_it_is_empty),
	 KUNIT_CASE(a_counter_is_ready_when_it_has_changed),
	 KUNIT_CASE(a_set_with_members_is_in_use),
	 KUNIT_CASE(members_take_turns));
