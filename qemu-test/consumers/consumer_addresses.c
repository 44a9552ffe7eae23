// SPDX-License-Identifier: GPL-2.0
/*
 * Addresses and versions of kfi_getinfo(): those of the call, of the hints and of the
 * entry.
 */

#include <linux/in.h>
#include <linux/in6.h>
#include <linux/string.h>

#include "fixture.h"

/* What @hints are answered with, or NULL. */
static struct kfi_info *answer(const char *node, const char *service, u64 flags,
			       struct kfi_info *hints)
{
	struct kfi_info *info;

	return kfi_getinfo(0, node, service, flags, hints, &info) ? NULL : info;
}

/* Compares an address with an IPv4 address and a port. */
static void is_at(struct kunit *test, const void *addr, size_t len, u32 ip, u16 port)
{
	const struct sockaddr_in *in = addr;

	KUNIT_ASSERT_NOT_NULL(test, in);
	KUNIT_EXPECT_EQ(test, len, sizeof(*in));
	KUNIT_EXPECT_EQ(test, in->sin_family, AF_INET);
	KUNIT_EXPECT_EQ(test, ntohl(in->sin_addr.s_addr), ip);
	KUNIT_EXPECT_EQ(test, ntohs(in->sin_port), port);
}

/* The source is an address of the link, the destination any of the same family. */
static void addresses_of_hints(struct kunit *test)
{
	struct sockaddr_in here = { .sin_family = AF_INET, .sin_port = htons(7471) };
	struct sockaddr_in there = { .sin_family = AF_INET, .sin_port = htons(7472) };
	struct sockaddr_in6 far = { .sin6_family = AF_INET6, .sin6_port = htons(7473) };
	struct kfi_info *hints = kfi_allocinfo(), *info;
	size_t len;

	KUNIT_ASSERT_NOT_NULL(test, hints);
	here.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
	there.sin_addr.s_addr = htonl(0x0a090807);
	far.sin6_addr.s6_addr[15] = 9;
	hints->src_addr = &here;
	hints->src_addrlen = sizeof(here);
	info = answer(NULL, NULL, 0, hints);
	KUNIT_ASSERT_NOT_NULL(test, info);
	is_at(test, info->src_addr, info->src_addrlen, INADDR_LOOPBACK, 7471);
	KUNIT_EXPECT_NULL(test, info->dest_addr);
	KUNIT_EXPECT_EQ(test, info->dest_addrlen, 0);
	kfi_freeinfo(info);
	/* A length that is too short for the family; a longer one. */
	for (len = 0; len < sizeof(here); len++) {
		hints->src_addrlen = len;
		KUNIT_EXPECT_NULL_MSG(test, answer(NULL, NULL, 0, hints), "%zu bytes", len);
	}
	hints->src_addrlen = sizeof(struct sockaddr_in6) + 1;
	hints->src_addr = zeroed(test, hints->src_addrlen);
	memcpy(hints->src_addr, &here, sizeof(here));
	info = answer(NULL, NULL, 0, hints);
	KUNIT_ASSERT_NOT_NULL(test, info);
	is_at(test, info->src_addr, info->src_addrlen, INADDR_LOOPBACK, 7471);
	kfi_freeinfo(info);

	/* Both. The source is not that of this host, and the destination may be. */
	hints->src_addr = &here;
	hints->src_addrlen = sizeof(here);
	hints->dest_addr = &there;
	hints->dest_addrlen = sizeof(there);
	info = answer(NULL, NULL, 0, hints);
	KUNIT_ASSERT_NOT_NULL(test, info);
	is_at(test, info->src_addr, info->src_addrlen, INADDR_LOOPBACK, 7471);
	is_at(test, info->dest_addr, info->dest_addrlen, 0x0a090807, 7472);
	kfi_freeinfo(info);
	hints->dest_addrlen--;
	KUNIT_EXPECT_NULL(test, answer(NULL, NULL, 0, hints));
	hints->dest_addrlen++;
	hints->src_addr = &there;
	hints->dest_addr = &here;
	KUNIT_EXPECT_NULL(test, answer(NULL, NULL, 0, hints));
	/* Of two families. */
	hints->src_addr = &here;
	hints->dest_addr = &far;
	hints->dest_addrlen = sizeof(far);
	KUNIT_EXPECT_NULL(test, answer(NULL, NULL, 0, hints));
	/* Without a source the family of the destination decides. */
	hints->src_addr = NULL;
	info = answer(NULL, NULL, 0, hints);
	KUNIT_ASSERT_NOT_NULL(test, info);
	KUNIT_EXPECT_EQ(test, info->addr_format, KFI_SOCKADDR_IN6);
	KUNIT_EXPECT_EQ(test, info->src_addrlen, sizeof(far));
	KUNIT_EXPECT_EQ(test, info->dest_addrlen, sizeof(far));
	KUNIT_EXPECT_MEMEQ(test, info->dest_addr, &far, sizeof(far));
	kfi_freeinfo(info);
	hints->addr_format = KFI_SOCKADDR_IN;
	KUNIT_EXPECT_NULL(test, answer(NULL, NULL, 0, hints));
	hints->addr_format = KFI_FORMAT_UNSPEC;
	hints->dest_addrlen--;
	KUNIT_EXPECT_NULL(test, answer(NULL, NULL, 0, hints));
	hints->dest_addr = NULL;
	kfi_freeinfo(hints);
}

/* A node and a service come before the address of the hints that they replace. */
static void addresses_of_a_node(struct kunit *test)
{
	struct sockaddr_in there = { .sin_family = AF_INET, .sin_port = htons(7472) };
	struct kfi_info *hints = kfi_allocinfo(), *info;

	KUNIT_ASSERT_NOT_NULL(test, hints);
	there.sin_addr.s_addr = htonl(0x0a090807);
	hints->dest_addr = &there;
	hints->dest_addrlen = sizeof(there);
	info = answer("127.0.0.1", "65535", KFI_SOURCE, hints);
	KUNIT_ASSERT_NOT_NULL(test, info);
	is_at(test, info->src_addr, info->src_addrlen, INADDR_LOOPBACK, 65535);
	is_at(test, info->dest_addr, info->dest_addrlen, 0x0a090807, 7472);
	kfi_freeinfo(info);
	info = answer("10.9.8.6", "0", 0, hints);
	KUNIT_ASSERT_NOT_NULL(test, info);
	is_at(test, info->src_addr, info->src_addrlen, INADDR_LOOPBACK, 0);
	is_at(test, info->dest_addr, info->dest_addrlen, 0x0a090806, 0);
	kfi_freeinfo(info);
	hints->dest_addr = NULL;
	/* A service alone is a port of this side. */
	info = answer(NULL, "7471", KFI_SOURCE, hints);
	KUNIT_ASSERT_NOT_NULL(test, info);
	is_at(test, info->src_addr, info->src_addrlen, INADDR_LOOPBACK, 7471);
	kfi_freeinfo(info);
	KUNIT_EXPECT_NULL(test, answer(NULL, "7471", 0, hints));
	info = answer("::1", "7471", KFI_SOURCE, hints);
	KUNIT_ASSERT_NOT_NULL(test, info);
	KUNIT_EXPECT_EQ(test, info->src_addrlen, sizeof(struct sockaddr_in6));
	KUNIT_EXPECT_EQ(test, ntohs(((struct sockaddr_in6 *)info->src_addr)->sin6_port), 7471);
	kfi_freeinfo(info);
	KUNIT_EXPECT_NULL(test, answer("127.0.0.1", "65536", KFI_SOURCE, hints));
	KUNIT_EXPECT_NULL(test, answer("127.0.0.1", "-1", KFI_SOURCE, hints));
	KUNIT_EXPECT_NULL(test, answer("127.0.0.256", NULL, 0, hints));
	kfi_freeinfo(hints);
}

/* The version of the call comes before that of the hints. */
static void the_version_is_that_of_the_call(struct kunit *test)
{
	struct kfi_info *hints = kfi_allocinfo(), *info;

	KUNIT_ASSERT_NOT_NULL(test, hints);
	KUNIT_ASSERT_EQ(test, kfi_getinfo(KFI_VERSION(1, 5), NULL, NULL, 0, NULL, &info), 0);
	KUNIT_EXPECT_EQ(test, info->fabric_attr->api_version, KFI_VERSION(1, 5));
	kfi_freeinfo(info);
	hints->fabric_attr->api_version = KFI_VERSION(1, 6);
	KUNIT_ASSERT_EQ(test, kfi_getinfo(KFI_VERSION(1, 5), NULL, NULL, 0, hints, &info), 0);
	KUNIT_EXPECT_EQ(test, info->fabric_attr->api_version, KFI_VERSION(1, 5));
	kfi_freeinfo(info);
	KUNIT_ASSERT_EQ(test, kfi_getinfo(0, NULL, NULL, 0, hints, &info), 0);
	KUNIT_EXPECT_EQ(test, info->fabric_attr->api_version, KFI_VERSION(1, 6));
	kfi_freeinfo(info);
	hints->fabric_attr->api_version = KFI_VERSION(1, 7) + 1;
	KUNIT_EXPECT_EQ(test, kfi_getinfo(0, NULL, NULL, 0, hints, &info), -KFI_ENODATA);
	kfi_freeinfo(hints);
}

CONSUMER("addresses of getinfo",
	 KUNIT_CASE(addresses_of_hints),
	 KUNIT_CASE(addresses_of_a_node),
	 KUNIT_CASE(the_version_is_that_of_the_call));
