// SPDX-License-Identifier: GPL-2.0
/*
 * Memory regions that are registered with an event, and what is bound to them
 * (fi_mr(3), fi_domain(3)).
 */

#include <kfi/kfi_atomic.h>
#include <kfi/kfi_rma.h>

#include "pair.h"

#define REMOTE		(KFI_REMOTE_READ | KFI_REMOTE_WRITE)
#define REGIONS		20

/**
 * struct told - what a handler has read
 * @mr: where each region is stored; the context of its registration points to it
 * @events: events of regions that were stored before
 * @wrong: all others
 */
struct told {
	struct kfid_mr	*mr[REGIONS];
	atomic_t	events;
	atomic_t	wrong;
};

/* Reads all events, as soon as they are there. */
static void on_event(struct kfid_eq *eq, void *context)
{
	struct told *told = context;
	struct kfi_eq_entry entry;
	u32 event;

	while (kfi_eq_read(eq, &event, &entry, sizeof(entry), 0) == sizeof(entry)) {
		struct kfid_mr *mr = READ_ONCE(*(struct kfid_mr **)entry.context);

		if (event == KFI_MR_COMPLETE && mr && entry.fid == &mr->fid)
			atomic_inc(&told->events);
		else
			atomic_inc(&told->wrong);
	}
}

/* The region is stored before anyone can read its event. */
static void the_region_is_there_before_its_event(struct kunit *test)
{
	struct told *told = zeroed(test, sizeof(*told));
	struct kvec iov = { zeroed(test, PAGE_SIZE), 100 };
	struct kfi_mr_attr attr = {
		.type = KFI_KVEC, .mr_iov = &iov, .iov_count = 1, .access = REMOTE,
	};
	struct fixture f;
	struct kfid_eq *eq;
	int i;

	fixture_open(test, &f);
	KUNIT_ASSERT_EQ(test, kfi_eq_open(f.fabric, NULL, &eq, on_event, told), 0);
	KUNIT_ASSERT_EQ(test, kfi_domain_bind(f.domain, &eq->fid, KFI_REG_MR), 0);
	for (i = 0; i < REGIONS; i++) {
		struct kfid_mr **mr = &told->mr[i];

		attr.requested_key = i;
		attr.context = mr;
		switch (i % 3) {
		case 0:
			KUNIT_EXPECT_EQ(test, kfi_mr_reg(f.domain, iov.iov_base, 8, REMOTE, 0, i,
							 0, mr, mr), 0);
			break;
		case 1:
			KUNIT_EXPECT_EQ(test, kfi_mr_regv(f.domain, &iov, 1, REMOTE, 0, i, 0, mr,
							  mr), 0);
			break;
		default:
			KUNIT_EXPECT_EQ(test, kfi_mr_regattr(f.domain, &attr, 0, mr), 0);
		}
		/* One that fails has none. */
		KUNIT_EXPECT_EQ(test, kfi_mr_reg(f.domain, iov.iov_base, 8, REMOTE, 0, i, 0, mr,
						 NULL), -KFI_ENOKEY);
	}
	for (i = 0; i < LONG / 20 && atomic_read(&told->events) < REGIONS; i++)
		msleep(20);
	msleep(20);
	KUNIT_EXPECT_EQ(test, atomic_read(&told->events), REGIONS);
	KUNIT_EXPECT_EQ(test, atomic_read(&told->wrong), 0);
	for (i = 0; i < REGIONS; i++)
		KUNIT_EXPECT_EQ(test, kfi_close(&told->mr[i]->fid), 0);
	fixture_close_with(test, &f, eq);
}

/* Registrations report only to an event queue that was bound for them. */
static void other_domains_have_no_events(struct kunit *test)
{
	struct kfi_eq_attr small = { .size = 2 };
	struct kfid_mr *mr, *mrs[4];
	struct kfi_eq_entry entry;
	struct fixture f, other;
	u8 *buf = zeroed(test, PAGE_SIZE);
	struct kfid_eq *eq;
	u32 event = 0;
	int i;

	fixture_open(test, &f);
	fixture_open(test, &other);
	KUNIT_ASSERT_EQ(test, kfi_eq_open(f.fabric, &small, &eq, NULL, NULL), 0);
	KUNIT_EXPECT_EQ(test, kfi_domain_bind(other.domain, &eq->fid, KFI_REG_MR), -KFI_EINVAL);
	KUNIT_EXPECT_EQ(test, kfi_domain_bind(f.domain, &eq->fid, 0), 0);
	KUNIT_ASSERT_EQ(test, kfi_mr_reg(f.domain, buf, 8, REMOTE, 0, 1, 0, &mr, NULL), 0);
	KUNIT_EXPECT_EQ(test, kfi_eq_read(eq, &event, &entry, sizeof(entry), 0), -KFI_EAGAIN);
	CLOSE(test, &mr->fid, &f.domain->fid);
	/* More events than the queue holds: the loss of some is reported. */
	KUNIT_ASSERT_EQ(test, kfi_domain(f.fabric, f.info, &f.domain, NULL), 0);
	KUNIT_EXPECT_EQ(test, kfi_domain_bind(f.domain, &eq->fid, KFI_REG_MR), 0);
	for (i = 0; i < 4; i++)
		KUNIT_EXPECT_EQ(test, kfi_mr_reg(f.domain, buf, 8, REMOTE, 0, i, 0, &mrs[i],
						 &mrs[i]), 0);
	for (i = 0; i < 2; i++) {
		KUNIT_EXPECT_EQ(test, kfi_eq_read(eq, &event, &entry, sizeof(entry), 0),
				sizeof(entry));
		KUNIT_EXPECT_PTR_EQ(test, entry.context, (void *)&mrs[i]);
	}
	KUNIT_EXPECT_EQ(test, kfi_eq_read(eq, &event, &entry, sizeof(entry), 0), -KFI_EOVERRUN);
	KUNIT_EXPECT_EQ(test, kfi_eq_read(eq, &event, &entry, sizeof(entry), 0), -KFI_EAGAIN);
	for (i = 0; i < 4; i++)
		KUNIT_EXPECT_EQ(test, kfi_close(&mrs[i]->fid), 0);
	fixture_close_with(test, &f, eq);
	fixture_close(test, &other);
}

/* Accesses of peers count at their region, and at no other one. */
static void a_region_counts_its_accesses(struct kunit *test)
{
	u8 *here = zeroed(test, PAGE_SIZE), *there = zeroed(test, PAGE_SIZE);
	struct kfid_cntr *reads, *writes, *others;
	struct kfid_mr *mr, *other;
	struct end ends[2];
	struct fixture f;
	u64 one = 1;
	int i;

	pair_open(test, &f, KFI_EP_RDM, ends);
	reads = open_cntr(test, &f, KFI_WAIT_UNSPEC, NULL, NULL);
	writes = open_cntr(test, &f, KFI_WAIT_UNSPEC, NULL, NULL);
	others = open_cntr(test, &f, KFI_WAIT_UNSPEC, NULL, NULL);
	/* Of the same bytes: what counts is the key. */
	KUNIT_ASSERT_EQ(test, kfi_mr_reg(f.domain, there, PAGE_SIZE, REMOTE, 0, 1, KFI_RMA_EVENT,
					 &mr, NULL), 0);
	KUNIT_ASSERT_EQ(test, kfi_mr_reg(f.domain, there, PAGE_SIZE, REMOTE, 0, 2, KFI_RMA_EVENT,
					 &other, NULL), 0);
	KUNIT_EXPECT_EQ(test, kfi_mr_bind(mr, &reads->fid, KFI_REMOTE_READ), 0);
	KUNIT_EXPECT_EQ(test, kfi_mr_bind(mr, &writes->fid, KFI_REMOTE_WRITE), 0);
	KUNIT_EXPECT_EQ(test, kfi_mr_bind(other, &others->fid, REMOTE), 0);
	KUNIT_EXPECT_EQ(test, kfi_mr_bind(mr, &ends[1].ep->fid, 0), 0);
	KUNIT_EXPECT_EQ(test, kfi_mr_enable(mr), 0);
	for (i = 0; i < 3; i++) {
		KUNIT_EXPECT_EQ(test, kfi_write(ends[0].ep, here, 8, NULL, ends[0].peer, 0, 1,
						here), 0);
		completed(test, &ends[0], here, KFI_RMA | KFI_WRITE, 0);
	}
	KUNIT_EXPECT_EQ(test, kfi_read(ends[0].ep, here, 8, NULL, ends[0].peer, 0, 1, here), 0);
	completed(test, &ends[0], here, KFI_RMA | KFI_READ, 0);
	KUNIT_EXPECT_EQ(test, kfi_cntr_wait(writes, 3, LONG), 0);
	KUNIT_EXPECT_EQ(test, kfi_cntr_wait(reads, 1, LONG), 0);
	/* A base atomic is a write, a fetching one a read. */
	KUNIT_EXPECT_EQ(test, kfi_atomic(ends[0].ep, &one, 1, NULL, ends[0].peer, 8, 1, KFI_UINT64,
					 KFI_SUM, here), 0);
	completed(test, &ends[0], here, KFI_ATOMIC | KFI_WRITE, 0);
	KUNIT_EXPECT_EQ(test, kfi_fetch_atomic(ends[0].ep, &one, 1, NULL, here, NULL,
					       ends[0].peer, 8, 1, KFI_UINT64, KFI_SUM, here), 0);
	completed(test, &ends[0], here, KFI_ATOMIC | KFI_READ, 0);
	KUNIT_EXPECT_EQ(test, kfi_cntr_wait(writes, 4, LONG), 0);
	KUNIT_EXPECT_EQ(test, kfi_cntr_wait(reads, 2, LONG), 0);
	KUNIT_EXPECT_EQ(test, kfi_cntr_read(others), 0);
	/* Refused accesses are no accesses: too long, and of a region that is closed. */
	KUNIT_EXPECT_EQ(test, kfi_write(ends[0].ep, here, 8, NULL, ends[0].peer, PAGE_SIZE - 4, 1,
					here), 0);
	failed(test, &ends[0], here, KFI_EACCES);
	KUNIT_EXPECT_EQ(test, kfi_close(&other->fid), 0);
	KUNIT_EXPECT_EQ(test, kfi_write(ends[0].ep, here, 8, NULL, ends[0].peer, 0, 2, here), 0);
	failed(test, &ends[0], here, KFI_EACCES);
	KUNIT_EXPECT_EQ(test, kfi_cntr_read(writes), 4);
	KUNIT_EXPECT_EQ(test, kfi_cntr_read(reads), 2);
	KUNIT_EXPECT_EQ(test, kfi_cntr_read(others), 0);
	/* The counters outlive the region. */
	KUNIT_EXPECT_EQ(test, kfi_close(&writes->fid), -KFI_EBUSY);
	KUNIT_EXPECT_EQ(test, kfi_close(&mr->fid), 0);
	KUNIT_EXPECT_EQ(test, kfi_cntr_read(writes), 4);
	CLOSE(test, &writes->fid, &reads->fid, &others->fid);
	pair_close(test, &f, ends);
}

CONSUMER("events and counters of memory regions",
	 KUNIT_CASE(the_region_is_there_before_its_event),
	 KUNIT_CASE(other_domains_have_no_events),
	 KUNIT_CASE(a_region_counts_its_accesses));
