// SPDX-License-Identifier: GPL-2.0
/*
 * kfi_getinfo() with open objects in its hints: entries are those of the network
 * namespace of the objects, wherever the call is made, and refer to the objects.
 */

#include <linux/in.h>
#include <linux/inet.h>

#include "two_hosts.h"

/* Whether all entries that fit have this address and refer to the objects of the hints. */
static bool all_of(struct kunit *test, struct kfi_info *hints, const char *addr)
{
	struct kfi_info *info, *entry;
	bool all = true;

	KUNIT_ASSERT_EQ(test, kfi_getinfo(0, NULL, NULL, 0, hints, &info), 0);
	for (entry = info; entry; entry = entry->next) {
		struct sockaddr_in *src = entry->src_addr;

		all = all && src && src->sin_addr.s_addr == in_aton(addr) &&
		      entry->fabric_attr->fabric == hints->fabric_attr->fabric &&
		      entry->domain_attr->domain == hints->domain_attr->domain;
	}
	kfi_freeinfo(info);
	return all;
}

static void entries_are_of_the_open_objects(struct kunit *test)
{
	static const char *const addrs[] = { "192.0.2.1", "192.0.2.2" };
	struct kfi_info *hints = kfi_allocinfo(), *info = NULL;
	struct kfid_domain *domain;
	struct fixture f[HOSTS];
	int i;

	KUNIT_ASSERT_NOT_NULL(test, hints);
	hosts_open(test, f, KFI_EP_RDM);
	hints->addr_format = KFI_SOCKADDR_IN;
	for (i = 0; i < HOSTS; i++) {
		hints->fabric_attr->fabric = f[i].fabric;
		KUNIT_EXPECT_TRUE(test, all_of(test, hints, addrs[i]));
		hints->domain_attr->domain = f[i].domain;
		KUNIT_EXPECT_TRUE(test, all_of(test, hints, addrs[i]));
		hints->fabric_attr->fabric = NULL;
		KUNIT_EXPECT_TRUE(test, all_of(test, hints, addrs[i]));
		hints->domain_attr->domain = NULL;
	}
	/* A domain of another fabric: both links have the same name. */
	hints->fabric_attr->fabric = f[0].fabric;
	hints->domain_attr->domain = f[1].domain;
	KUNIT_EXPECT_EQ(test, kfi_getinfo(0, NULL, NULL, 0, hints, &info), -KFI_ENODATA);
	KUNIT_EXPECT_NULL(test, info);
	/* An entry opens a domain of the fabric to which it refers. */
	hints->domain_attr->domain = NULL;
	KUNIT_ASSERT_EQ(test, kfi_getinfo(0, NULL, NULL, 0, hints, &info), 0);
	KUNIT_ASSERT_EQ(test, kfi_domain(info->fabric_attr->fabric, info, &domain, NULL), 0);
	KUNIT_EXPECT_EQ(test, kfi_close(&domain->fid), 0);
	kfi_freeinfo(info);
	kfi_freeinfo(hints);
	hosts_close(test, f);
}

CONSUMER("getinfo with open objects of another network namespace",
	 KUNIT_CASE(entries_are_of_the_open_objects));
