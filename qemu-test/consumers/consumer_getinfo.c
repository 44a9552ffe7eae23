// SPDX-License-Identifier: GPL-2.0
/*
 * kfi_getinfo() and its entries, fabrics and domains.
 */

#include <linux/in.h>
#include <linux/in6.h>
#include <linux/socket.h>
#include <linux/string.h>

#include <kfi/kfi_endpoint.h>

#include "fixture.h"

static void all_attributes_are_there(struct kunit *test)
{
	struct kfi_info *info, *entry;
	const char *text;
	int count = 0;

	KUNIT_ASSERT_EQ(test, kfi_getinfo(KFI_VERSION(1, 7), NULL, NULL, 0, NULL, &info), 0);
	for (entry = info; entry; entry = entry->next) {
		count++;
		KUNIT_ASSERT_NOT_NULL(test, entry->tx_attr);
		KUNIT_ASSERT_NOT_NULL(test, entry->rx_attr);
		KUNIT_ASSERT_NOT_NULL(test, entry->ep_attr);
		KUNIT_ASSERT_NOT_NULL(test, entry->domain_attr);
		KUNIT_ASSERT_NOT_NULL(test, entry->fabric_attr);
		KUNIT_EXPECT_STREQ(test, entry->fabric_attr->prov_name, "kfabric");
		KUNIT_EXPECT_STREQ(test, entry->domain_attr->name, "kfi0");
		KUNIT_EXPECT_EQ(test, entry->fabric_attr->api_version, KFI_VERSION(1, 7));
		KUNIT_EXPECT_EQ(test, entry->domain_attr->threading, KFI_THREAD_SAFE);
		KUNIT_EXPECT_EQ(test, entry->ep_attr->tx_ctx_cnt, 1);
		KUNIT_EXPECT_EQ(test, entry->tx_attr->tclass, KFI_TC_BEST_EFFORT);
		KUNIT_EXPECT_EQ(test, entry->tx_attr->caps & ~entry->caps, 0);
		KUNIT_EXPECT_EQ(test, entry->domain_attr->caps & ~entry->caps, 0);
		text = kfi_tostr(entry, KFI_TYPE_INFO);
		KUNIT_EXPECT_NOT_NULL(test, strstr(text, "    name: kfi0\n"));
		if (entry->addr_format == KFI_SOCKADDR_IN) {
			KUNIT_EXPECT_EQ(test, entry->src_addrlen, sizeof(struct sockaddr_in));
			KUNIT_EXPECT_EQ(test, *(unsigned short *)entry->src_addr, AF_INET);
		} else {
			KUNIT_EXPECT_EQ(test, entry->addr_format, KFI_SOCKADDR_IN6);
			KUNIT_EXPECT_EQ(test, entry->src_addrlen, sizeof(struct sockaddr_in6));
			KUNIT_EXPECT_EQ(test, *(unsigned short *)entry->src_addr, AF_INET6);
		}
	}
	/* Three types at an IPv4 and an IPv6 address of the loopback interface. */
	KUNIT_EXPECT_EQ(test, count, 6);
	kfi_freeinfo(info);
}

/* How kfi_getinfo() ends with @hints; an answer is freed. */
static int ask(u32 version, const char *node, const char *service, u64 flags,
	       struct kfi_info *hints)
{
	struct kfi_info *info = ERR_PTR(-1);
	int ret = kfi_getinfo(version, node, service, flags, hints, &info);

	if (ret && info)
		return -EBADMSG;
	kfi_freeinfo(ret ? NULL : info);
	return ret;
}

KFI_DEFINE_HANDLE(handle);

static void arguments(struct kunit *test)
{
	handle params_handle = NULL;
	struct kfi_param *params = (struct kfi_param *)test;
	int count = 7;

	KUNIT_EXPECT_NULL(test, params_handle);
	KUNIT_EXPECT_EQ(test, kfi_version(), KFI_VERSION(1, 7));
	KUNIT_EXPECT_EQ(test, kfi_getparams(&params, &count), -KFI_ENOSYS);
	KUNIT_EXPECT_NULL(test, params);
	KUNIT_EXPECT_EQ(test, count, 0);
	kfi_freeparams(params);
	KUNIT_EXPECT_EQ(test, UINT64_MAX, KFI_ADDR_UNSPEC);
	KUNIT_EXPECT_EQ(test, kfi_getinfo(0, NULL, NULL, 0, NULL, NULL), -KFI_EINVAL);
	KUNIT_EXPECT_EQ(test, ask(0, NULL, NULL, 0, NULL), 0);
	KUNIT_EXPECT_EQ(test, ask(KFI_VERSION(1, 0), NULL, NULL, 0, NULL), 0);
	KUNIT_EXPECT_EQ(test, ask(KFI_VERSION(1, 8), NULL, NULL, 0, NULL), -KFI_ENOSYS);
	KUNIT_EXPECT_EQ(test, ask(KFI_VERSION(2, 0), NULL, NULL, 0, NULL), -KFI_ENOSYS);
	KUNIT_EXPECT_EQ(test, ask(0, NULL, NULL, KFI_FENCE, NULL), -KFI_EBADFLAGS);
	KUNIT_EXPECT_EQ(test, ask(0, "127.0.0.1", "7471", KFI_SOURCE, NULL), 0);
	KUNIT_EXPECT_EQ(test, ask(0, "127.0.0.1", "7471", KFI_NUMERICHOST, NULL), 0);
	KUNIT_EXPECT_EQ(test, ask(0, "10.9.8.7", NULL, KFI_SOURCE, NULL), -KFI_ENODATA);
	KUNIT_EXPECT_EQ(test, ask(0, "host.name", NULL, 0, NULL), -KFI_ENODATA);
	KUNIT_EXPECT_EQ(test, ask(0, "host.name", NULL, KFI_SOURCE, NULL), -KFI_ENODATA);
	KUNIT_EXPECT_EQ(test, ask(0, "127.0.0.1", "http", 0, NULL), -KFI_ENODATA);
}

/* An IPv4 address as one number, and the name of a link in place of its address. */
static void a_node_has_other_forms(struct kunit *test)
{
	static const char * const nodes[] = { "127.0.0.1", "0x7f000001", "0X7F000001", "kfi0" };
	struct kfi_info *info;
	struct sockaddr_in *addr;
	int i;

	for (i = 0; i < ARRAY_SIZE(nodes); i++) {
		KUNIT_ASSERT_EQ(test, kfi_getinfo(0, nodes[i], "7471", KFI_SOURCE, NULL, &info), 0);
		addr = info->src_addr;
		KUNIT_EXPECT_EQ(test, ntohs(addr->sin_port), 7471);
		KUNIT_EXPECT_EQ(test, ntohl(addr->sin_addr.s_addr), INADDR_LOOPBACK);
		KUNIT_EXPECT_STREQ(test, info->domain_attr->name, "kfi0");
		KUNIT_EXPECT_NULL(test, info->dest_addr);
		kfi_freeinfo(info);
	}
	KUNIT_EXPECT_EQ(test, ask(0, "0x7f000001", "7471", KFI_SOURCE | KFI_NUMERICHOST, NULL), 0);
	KUNIT_EXPECT_EQ(test, ask(0, "0x7f000001", "7471", 0, NULL), 0);
	KUNIT_EXPECT_EQ(test, ask(0, "0x0a090807", NULL, KFI_SOURCE, NULL), -KFI_ENODATA);
	KUNIT_EXPECT_EQ(test, ask(0, "0x7f0000010", NULL, KFI_SOURCE, NULL), -KFI_ENODATA);
	KUNIT_EXPECT_EQ(test, ask(0, "kfi0", "7471", KFI_SOURCE | KFI_NUMERICHOST, NULL),
			-KFI_ENODATA);
	KUNIT_EXPECT_EQ(test, ask(0, "kfi0", "7471", 0, NULL), -KFI_ENODATA);
	KUNIT_EXPECT_EQ(test, ask(0, "kfi", "7471", KFI_SOURCE, NULL), -KFI_ENODATA);
	KUNIT_EXPECT_EQ(test, ask(0, "kfi01", "7471", KFI_SOURCE, NULL), -KFI_ENODATA);
}

struct kunit_hints {
	struct kunit	*test;
	struct kfi_info	*hints;
};

/* Whether an entry matches the hints with one field of @size bytes changed. */
static void hint(const struct kunit_hints *with, void *field, size_t size,
		 u64 value, int want)
{
	u64 before = 0;

	memcpy(&before, field, size);
	memcpy(field, &value, size);
	KUNIT_EXPECT_EQ_MSG(with->test, ask(0, NULL, NULL, 0, with->hints), want,
			    "value %#llx", value);
	memcpy(field, &before, size);
}

/* A field that is an enumerator or another u32. */
static void hint32(const struct kunit_hints *with, void *field, u32 value, int want)
{
	hint(with, field, sizeof(value), value, want);
}

static void hint64(const struct kunit_hints *with, void *field, u64 value, int want)
{
	hint(with, field, sizeof(value), value, want);
}

static void hint_ptr(const struct kunit_hints *with, void *field, const void *value,
		     int want)
{
	hint(with, field, sizeof(value), (uintptr_t)value, want);
}

/* Pointers, strings, and values besides those of consumer_hints. */
static void each_hint_is_matched(struct kunit *test)
{
	struct kfi_info *hints = kfi_allocinfo();
	const struct kunit_hints with = { test, hints };
	struct sockaddr_in addr = { .sin_family = AF_UNIX };

	KUNIT_ASSERT_NOT_NULL(test, hints);
	hints->src_addr = &addr;
	hint64(&with, &hints->src_addrlen, sizeof(addr), -KFI_ENODATA);
	hints->src_addr = NULL;
	hint_ptr(&with, &hints->handle, hints, -KFI_ENODATA);
	hint64(&with, &hints->caps, KFI_MSG, 0);
	hint32(&with, &hints->addr_format, KFI_ADDR_CXI, -KFI_ENODATA);
	hint64(&with, &hints->tx_attr->op_flags, KFI_COMMIT_COMPLETE, -KFI_ENODATA);
	hint64(&with, &hints->tx_attr->msg_order, KFI_ORDER_SAS, 0);
	hint64(&with, &hints->tx_attr->msg_order, KFI_ORDER_DATA, -KFI_ENODATA);
	hint64(&with, &hints->tx_attr->comp_order, KFI_ORDER_STRICT, -KFI_ENODATA);
	/* Of one of several types. */
	hint32(&with, &hints->ep_attr->type, KFI_EP_MSG, 0);
	hint32(&with, &hints->ep_attr->type, KFI_EP_SOCK_STREAM, -KFI_ENODATA);
	hint32(&with, &hints->ep_attr->protocol, KFI_PROTO_IB_UD, 0);
	hint64(&with, &hints->ep_attr->rx_ctx_cnt, KFI_SHARED_CONTEXT, 0);
	hint32(&with, &hints->domain_attr->threading, KFI_THREAD_DOMAIN, 0);
	hint32(&with, &hints->domain_attr->mr_mode, ~0, 0);
	hint64(&with, &hints->domain_attr->max_ep_stx_ctx, SIZE_MAX, -KFI_ENODATA);
	hint_ptr(&with, &hints->domain_attr->name, "kfi0", 0);
	hint_ptr(&with, &hints->domain_attr->name, "kfi1", -KFI_ENODATA);
	hint_ptr(&with, &hints->fabric_attr->name, "kfabric", 0);
	hint_ptr(&with, &hints->fabric_attr->name, "other", -KFI_ENODATA);
	hint_ptr(&with, &hints->fabric_attr->prov_name, "kfabric", 0);
	hint_ptr(&with, &hints->fabric_attr->prov_name, "kfabri", -KFI_ENODATA);
	hint_ptr(&with, &hints->fabric_attr->prov_name, "", 0);
	kfi_freeinfo(hints);
}

static void only_providers(struct kunit *test)
{
	struct kfi_info *info, *hints = kfi_allocinfo();

	KUNIT_ASSERT_NOT_NULL(test, hints);
	/* No entry has this, but the provider is there. */
	hints->caps = KFI_MULTICAST;
	KUNIT_ASSERT_EQ(test, kfi_getinfo(0, NULL, NULL, KFI_PROV_ATTR_ONLY, hints, &info), 0);
	KUNIT_EXPECT_STREQ(test, info->fabric_attr->prov_name, "kfabric");
	KUNIT_EXPECT_EQ(test, info->fabric_attr->prov_version, KFI_VERSION(1, 0));
	KUNIT_EXPECT_EQ(test, info->caps, 0);
	KUNIT_EXPECT_NULL(test, info->next);
	kfi_freeinfo(info);
	kfi_freeinfo(hints);
}

static void a_copy_is_deep(struct kunit *test)
{
	struct kfi_info *info, *copy, *empty = kfi_dupinfo(NULL);

	KUNIT_ASSERT_NOT_NULL(test, empty);
	KUNIT_EXPECT_NOT_NULL(test, empty->fabric_attr);
	kfi_freeinfo(empty);

	KUNIT_ASSERT_EQ(test, kfi_getinfo(0, NULL, NULL, 0, NULL, &info), 0);
	info->ep_attr->auth_key = kmemdup("secret", 7, GFP_KERNEL);
	info->ep_attr->auth_key_size = 7;
	copy = kfi_dupinfo(info);
	KUNIT_ASSERT_NOT_NULL(test, copy);
	KUNIT_EXPECT_NULL(test, copy->next);
	KUNIT_EXPECT_PTR_NE(test, copy->src_addr, info->src_addr);
	KUNIT_EXPECT_MEMEQ(test, copy->src_addr, info->src_addr, info->src_addrlen);
	KUNIT_EXPECT_PTR_NE(test, copy->domain_attr->name, info->domain_attr->name);
	KUNIT_EXPECT_STREQ(test, copy->domain_attr->name, info->domain_attr->name);
	KUNIT_EXPECT_PTR_NE(test, copy->ep_attr->auth_key, info->ep_attr->auth_key);
	KUNIT_EXPECT_STREQ(test, copy->ep_attr->auth_key, "secret");
	KUNIT_EXPECT_EQ(test, copy->tx_attr->inject_size, info->tx_attr->inject_size);
	kfi_freeinfo(info);
	/* Nothing of the copy belonged to the list. */
	KUNIT_EXPECT_STREQ(test, copy->fabric_attr->prov_name, "kfabric");
	kfi_freeinfo(copy);
	kfi_freeinfo(NULL);
}

static void fabrics_and_domains(struct kunit *test)
{
	struct kfi_fabric_attr attr = {};
	struct kfid_fabric *fabric = NULL;
	struct kfid_domain *domain = NULL;
	struct fixture f;
	char *name;

	KUNIT_EXPECT_EQ(test, kfi_fabric(NULL, &fabric, NULL), -KFI_EINVAL);
	KUNIT_EXPECT_EQ(test, kfi_fabric(&attr, &fabric, NULL), -KFI_EINVAL);
	attr.prov_name = "nobody";
	KUNIT_EXPECT_EQ(test, kfi_fabric(&attr, &fabric, NULL), -KFI_ENODEV);
	attr.prov_name = "kfabric";
	attr.name = "elsewhere";
	KUNIT_EXPECT_EQ(test, kfi_fabric(&attr, &fabric, NULL), -KFI_EINVAL);
	KUNIT_EXPECT_NULL(test, fabric);

	fixture_open(test, &f);
	KUNIT_EXPECT_EQ(test, f.fabric->fid.fclass, KFI_CLASS_FABRIC);
	KUNIT_EXPECT_PTR_EQ(test, f.fabric->fid.context, (void *)&f);
	KUNIT_EXPECT_EQ(test, f.fabric->api_version, KFI_VERSION(1, 7));
	KUNIT_EXPECT_EQ(test, f.domain->fid.fclass, KFI_CLASS_DOMAIN);
	KUNIT_EXPECT_EQ(test, f.domain->ops->size, sizeof(*f.domain->ops));
	KUNIT_EXPECT_EQ(test, kfi_close(&f.fabric->fid), -KFI_EBUSY);

	KUNIT_EXPECT_EQ(test, kfi_domain(f.fabric, NULL, &domain, NULL), -KFI_EINVAL);
	f.info->domain_attr->mr_mode = KFI_MR_RAW;
	KUNIT_EXPECT_EQ(test, kfi_domain(f.fabric, f.info, &domain, NULL), -KFI_EINVAL);
	f.info->domain_attr->mr_mode = 0;
	name = f.info->domain_attr->name;
	f.info->domain_attr->name = "kfi9";
	KUNIT_EXPECT_EQ(test, kfi_domain(f.fabric, f.info, &domain, NULL), -KFI_ENODEV);
	f.info->domain_attr->name = "a_name_that_is_longer_than_a_link's";
	KUNIT_EXPECT_EQ(test, kfi_domain(f.fabric, f.info, &domain, NULL), -KFI_ENODEV);
	f.info->domain_attr->name = name;
	KUNIT_EXPECT_NULL(test, domain);

	/* Calls that are not there yet say so. */
	KUNIT_EXPECT_EQ(test, kfi_domain_bind(f.domain, &f.fabric->fid, 0), -KFI_EINVAL);
	KUNIT_EXPECT_EQ(test, kfi_control(&f.domain->fid, KFI_GETWAIT, NULL), -KFI_ENOSYS);
	KUNIT_EXPECT_EQ(test, kfi_open_ops(&f.domain->fid, "x", 0, NULL, NULL), -KFI_ENOSYS);

	fixture_close(test, &f);
}

/* Whether the first entry that fits refers to these objects. */
static bool refers_to(struct kunit *test, struct kfi_info *hints, struct kfid_fabric *fabric,
		      struct kfid_domain *domain)
{
	struct kfi_info *info, *copy;
	bool refers;

	KUNIT_ASSERT_EQ(test, kfi_getinfo(0, NULL, NULL, 0, hints, &info), 0);
	copy = kfi_dupinfo(info);
	KUNIT_ASSERT_NOT_NULL(test, copy);
	refers = info->fabric_attr->fabric == fabric && info->domain_attr->domain == domain &&
		 copy->fabric_attr->fabric == fabric && copy->domain_attr->domain == domain;
	kfi_freeinfo(copy);
	kfi_freeinfo(info);
	return refers;
}

/* An open fabric and an open domain in the hints. */
static void entries_refer_to_open_objects(struct kunit *test)
{
	struct kfi_info *hints = kfi_allocinfo();
	struct kfid_fabric *other;
	struct fixture f;

	KUNIT_ASSERT_NOT_NULL(test, hints);
	fixture_open(test, &f);
	KUNIT_ASSERT_EQ(test, kfi_fabric(f.info->fabric_attr, &other, NULL), 0);
	KUNIT_EXPECT_TRUE(test, refers_to(test, hints, NULL, NULL));
	hints->domain_attr->domain = f.domain;
	KUNIT_EXPECT_TRUE(test, refers_to(test, hints, NULL, f.domain));
	hints->fabric_attr->fabric = f.fabric;
	KUNIT_EXPECT_TRUE(test, refers_to(test, hints, f.fabric, f.domain));
	hints->domain_attr->domain = NULL;
	KUNIT_EXPECT_TRUE(test, refers_to(test, hints, f.fabric, NULL));
	/* The domain is of another fabric. */
	hints->fabric_attr->fabric = other;
	hints->domain_attr->domain = f.domain;
	KUNIT_EXPECT_EQ(test, ask(0, NULL, NULL, 0, hints), -KFI_ENODATA);
	/* Objects of other classes. */
	hints->fabric_attr->fabric = (struct kfid_fabric *)f.domain;
	hints->domain_attr->domain = NULL;
	KUNIT_EXPECT_EQ(test, ask(0, NULL, NULL, 0, hints), -KFI_ENODATA);
	hints->fabric_attr->fabric = NULL;
	hints->domain_attr->domain = (struct kfid_domain *)f.fabric;
	KUNIT_EXPECT_EQ(test, ask(0, NULL, NULL, 0, hints), -KFI_ENODATA);
	KUNIT_EXPECT_EQ(test, kfi_close(&other->fid), 0);
	kfi_freeinfo(hints);
	fixture_close(test, &f);
}

/* Addresses in hints and entries that are not those of open objects. None is read. */
static void other_addresses_match_nothing(struct kunit *test)
{
	struct kfi_info *hints = kfi_allocinfo();
	struct kfid_ep *ep = NULL;
	struct kfid_pep *pep = NULL;
	struct fixture f, closed;
	void *addrs[6];
	int i;

	KUNIT_ASSERT_NOT_NULL(test, hints);
	fixture_open(test, &f);
	fixture_open(test, &closed);
	addrs[0] = (void *)8;
	addrs[1] = (void *)(1UL << 62);
	addrs[2] = ERR_PTR(-KFI_EINVAL);
	addrs[3] = f.info;
	addrs[4] = closed.fabric;
	addrs[5] = closed.domain;
	fixture_close(test, &closed);
	for (i = 0; i < ARRAY_SIZE(addrs); i++) {
		hints->fabric_attr->fabric = addrs[i];
		KUNIT_EXPECT_EQ(test, ask(0, NULL, NULL, 0, hints), -KFI_ENODATA);
		hints->domain_attr->domain = addrs[i];
		KUNIT_EXPECT_EQ(test, ask(0, NULL, NULL, 0, hints), -KFI_ENODATA);
		hints->fabric_attr->fabric = NULL;
		KUNIT_EXPECT_EQ(test, ask(0, NULL, NULL, 0, hints), -KFI_ENODATA);
		hints->domain_attr->domain = NULL;
		f.info->domain_attr->domain = addrs[i];
		KUNIT_EXPECT_EQ(test, kfi_endpoint(f.domain, f.info, &ep, NULL), -KFI_EINVAL);
		KUNIT_EXPECT_EQ(test, kfi_passive_ep(f.fabric, f.info, &pep, NULL), -KFI_EINVAL);
	}
	KUNIT_EXPECT_EQ(test, ask(0, NULL, NULL, 0, hints), 0);
	KUNIT_EXPECT_NULL(test, ep);
	KUNIT_EXPECT_NULL(test, pep);
	kfi_freeinfo(hints);
	fixture_close(test, &f);
}

CONSUMER("getinfo",
	 KUNIT_CASE(all_attributes_are_there),
	 KUNIT_CASE(arguments),
	 KUNIT_CASE(a_node_has_other_forms),
	 KUNIT_CASE(each_hint_is_matched),
	 KUNIT_CASE(only_providers),
	 KUNIT_CASE(a_copy_is_deep),
	 KUNIT_CASE(fabrics_and_domains),
	 KUNIT_CASE(entries_refer_to_open_objects),
	 KUNIT_CASE(other_addresses_match_nothing));
