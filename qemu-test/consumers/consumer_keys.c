// SPDX-License-Identifier: GPL-2.0
/*
 * Authorization keys: endpoints of one host communicate with those that have the
 * same key.
 */

#include "pair.h"

/* The key of an endpoint that has none. */
static const u8 no_key[4];
static const u8 one[4] = { 0, 0, 0, 1 };
static const u8 other[4] = { 1, 0, 0, 0 };

/* How kfi_getinfo() ends for endpoints of a type with a key of @len bytes. */
static int info_with(enum kfi_ep_type type, const u8 *key, size_t len, struct kfi_info **info)
{
	struct kfi_info *hints = kfi_allocinfo();
	int ret;

	if (!hints)
		return -ENOMEM;
	hints->ep_attr->type = type;
	hints->addr_format = KFI_SOCKADDR_IN;
	hints->ep_attr->auth_key = (u8 *)key;
	hints->ep_attr->auth_key_size = len;
	ret = kfi_getinfo(0, NULL, NULL, 0, hints, info);
	hints->ep_attr->auth_key = NULL;
	kfi_freeinfo(hints);
	return ret;
}

static void an_entry_has_the_key_of_its_hints(struct kunit *test)
{
	struct kfi_info *info, *hints;
	size_t len;

	for (len = 1; len < 10; len++) {
		u8 key[10] = "authorize";

		if (len != sizeof(one)) {
			KUNIT_EXPECT_EQ(test, info_with(KFI_EP_RDM, key, len, &info),
					-KFI_ENODATA);
			KUNIT_EXPECT_NULL(test, info);
		}
	}
	KUNIT_EXPECT_EQ(test, info_with(KFI_EP_RDM, NULL, sizeof(one), &info), -KFI_ENODATA);
	KUNIT_EXPECT_EQ(test, info_with(KFI_EP_MSG, one, sizeof(one), &info), -KFI_ENODATA);
	KUNIT_EXPECT_EQ(test, info_with(KFI_EP_DGRAM, one, sizeof(one), &info), -KFI_ENODATA);

	KUNIT_ASSERT_EQ(test, info_with(KFI_EP_UNSPEC, one, sizeof(one), &info), 0);
	KUNIT_EXPECT_EQ(test, info->ep_attr->type, KFI_EP_RDM);
	KUNIT_EXPECT_EQ(test, info->ep_attr->auth_key_size, sizeof(one));
	KUNIT_EXPECT_MEMEQ(test, info->ep_attr->auth_key, one, sizeof(one));
	KUNIT_EXPECT_EQ(test, info->domain_attr->auth_key_size, 0);
	hints = info;
	KUNIT_ASSERT_EQ(test, kfi_getinfo(0, NULL, NULL, 0, hints, &info), 0);
	KUNIT_EXPECT_MEMEQ(test, info->ep_attr->auth_key, one, sizeof(one));
	KUNIT_EXPECT_PTR_NE(test, info->ep_attr->auth_key, hints->ep_attr->auth_key);
	kfi_freeinfo(hints);
	kfi_freeinfo(info);

	KUNIT_ASSERT_EQ(test, info_with(KFI_EP_RDM, NULL, 0, &info), 0);
	KUNIT_EXPECT_EQ(test, info->ep_attr->auth_key_size, 0);
	KUNIT_EXPECT_NULL(test, info->ep_attr->auth_key);
	kfi_freeinfo(info);
}

/* Opens two ends with these keys; NULL: none. */
static void keys_open(struct kunit *test, struct fixture *f, struct end *ends, const u8 *first,
		      const u8 *second)
{
	const u8 *keys[] = { first, second };
	struct kfi_info *info;
	int i;

	fixture_open(test, f);
	for (i = 0; i < 2; i++) {
		KUNIT_ASSERT_EQ(test, info_with(KFI_EP_RDM, keys[i], keys[i] ? sizeof(one) : 0,
						&info), 0);
		end_open(test, f, info, &ends[i], 0);
		kfi_freeinfo(info);
		KUNIT_ASSERT_EQ(test, kfi_enable(ends[i].ep), 0);
	}
	for (i = 0; i < 2; i++)
		end_knows(test, &ends[i], &ends[!i]);
}

static void only_equal_keys_communicate(struct kunit *test)
{
	static const struct {
		const u8	*first;
		const u8	*second;
		ssize_t		ret;
	} rows[] = {
		{ one, one, 0 },
		/* Without a key is with the key of zeros. */
		{ no_key, no_key, 0 }, { no_key, NULL, 0 }, { NULL, no_key, 0 },
		{ one, other, -KFI_ENOTCONN }, { NULL, one, -KFI_ENOTCONN },
		{ one, NULL, -KFI_ENOTCONN },
	};
	u8 *word = zeroed(test, 8);
	struct end ends[2];
	struct fixture f;
	int i;

	for (i = 0; i < ARRAY_SIZE(rows); i++) {
		keys_open(test, &f, ends, rows[i].first, rows[i].second);
		KUNIT_EXPECT_EQ(test, kfi_recv(ends[1].ep, word, 8, NULL, 0, word), 0);
		KUNIT_EXPECT_EQ(test, kfi_inject(ends[0].ep, &i, sizeof(i), ends[0].peer),
				rows[i].ret);
		if (!rows[i].ret)
			completed(test, &ends[1], word, KFI_MSG | KFI_RECV, sizeof(i));
		nothing(test, &ends[0]);
		nothing(test, &ends[1]);
		pair_close(test, &f, ends);
	}
}

static void an_endpoint_needs_a_key_that_it_can_have(struct kunit *test)
{
	struct kfid_ep *ep = NULL;
	struct kfi_info *info;
	struct fixture f;

	fixture_open(test, &f);
	KUNIT_ASSERT_EQ(test, info_with(KFI_EP_RDM, one, sizeof(one), &info), 0);
	info->ep_attr->auth_key_size = 3;
	KUNIT_EXPECT_EQ(test, kfi_endpoint(f.domain, info, &ep, NULL), -KFI_EINVAL);
	info->ep_attr->auth_key_size = sizeof(one);
	info->ep_attr->type = KFI_EP_MSG;
	KUNIT_EXPECT_EQ(test, kfi_endpoint(f.domain, info, &ep, NULL), -KFI_EINVAL);
	info->ep_attr->type = KFI_EP_RDM;
	info->domain_attr->auth_key_size = sizeof(one);
	KUNIT_EXPECT_EQ(test, kfi_endpoint(f.domain, info, &ep, NULL), -KFI_EINVAL);
	info->domain_attr->auth_key_size = 0;
	KUNIT_EXPECT_NULL(test, ep);
	kfi_freeinfo(info);
	fixture_close(test, &f);
}

CONSUMER("authorization keys",
	 KUNIT_CASE(an_entry_has_the_key_of_its_hints),
	 KUNIT_CASE(only_equal_keys_communicate),
	 KUNIT_CASE(an_endpoint_needs_a_key_that_it_can_have));
