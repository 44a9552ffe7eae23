// SPDX-License-Identifier: GPL-2.0
/*
 * Transmits and connection requests to a peer without a route fail at once, and leave
 * nothing behind.
 */

#include <linux/in.h>

#include "pair.h"

static const struct sockaddr_in nowhere = {
	.sin_family = AF_INET,
	.sin_port = htons(7471),
	.sin_addr.s_addr = htonl(0x0a090807),
};

/* The error of a post of @type to an address that no route of the link leads to. */
static void post_is_refused(struct kunit *test, enum kfi_ep_type type, int error)
{
	struct kfi_cq_tagged_entry entry;
	struct end ends[2];
	struct fixture f;
	kfi_addr_t to;
	int i;

	pair_open(test, &f, type, ends);
	KUNIT_ASSERT_EQ(test, kfi_av_insert(ends[0].av, &nowhere, 1, &to, 0, NULL), 1);
	KUNIT_EXPECT_EQ(test, kfi_inject(ends[0].ep, "x", 1, to), error);
	/* Neither an entry nor a count. The endpoint goes on. */
	KUNIT_EXPECT_EQ(test, kfi_cq_read(ends[0].cq, &entry, 1), -KFI_EAGAIN);
	KUNIT_EXPECT_EQ(test, kfi_cntr_read(ends[0].sent), 0);
	KUNIT_EXPECT_EQ(test, kfi_cntr_readerr(ends[0].sent), 0);
	KUNIT_EXPECT_EQ(test, kfi_inject(ends[0].ep, "x", 1, ends[0].peer), 0);
	for (i = 0; i < 2; i++)
		end_close(test, &ends[i]);
	fixture_close(test, &f);
}

static void posts_are_refused(struct kunit *test)
{
	post_is_refused(test, KFI_EP_RDM, -KFI_EHOSTUNREACH);
	post_is_refused(test, KFI_EP_DGRAM, -KFI_ENETUNREACH);
}

static void requests_are_refused(struct kunit *test)
{
	struct kfi_eq_attr attr = { .wait_obj = KFI_WAIT_UNSPEC };
	struct kfi_info *info = entry_of(test, KFI_EP_MSG);
	struct kfi_eq_cm_entry entry;
	struct kfid_eq *eq;
	struct fixture f;
	struct end end;
	u32 event;

	fixture_open(test, &f);
	KUNIT_ASSERT_EQ(test, kfi_eq_open(f.fabric, &attr, &eq, NULL, NULL), 0);
	end_open(test, &f, info, &end, 0);
	KUNIT_ASSERT_EQ(test, kfi_ep_bind(end.ep, &eq->fid, 0), 0);
	KUNIT_EXPECT_EQ(test, kfi_connect(end.ep, (void *)&nowhere, NULL, 0), -KFI_ENETUNREACH);
	KUNIT_EXPECT_EQ(test, kfi_eq_read(eq, &event, &entry, sizeof(entry), 0), -KFI_EAGAIN);
	kfi_freeinfo(info);
	end_close(test, &end);
	fixture_close_with(test, &f, eq);
}

CONSUMER("routes",
	 KUNIT_CASE(posts_are_refused),
	 KUNIT_CASE(requests_are_refused));
