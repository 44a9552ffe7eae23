// SPDX-License-Identifier: GPL-2.0
/*
 * What a provider in C may do: calls of kfabric from its callbacks, references to
 * itself, several names. consumer_provider has registration.
 */

#include <linux/string.h>

#include <kfi/kfi_prov.h>

#include "fixture.h"

#define OURS	"kfabric"

/* The results of the calls that a callback makes; 1 is none. */
struct results {
	int	getinfo;
	int	fabric;
	int	add;
	int	remove;
};

/* What the callbacks of the provider that is tested do. */
static struct {
	int		asked;
	int		opened;
	int		cleaned;
	bool		calls;
	struct results	results;
} seen;

static struct kfid_fabric own_fabric;

static int entry_with_name(const char *name, struct kfi_info **info)
{
	*info = kfi_allocinfo();
	if (!*info)
		return -KFI_ENOMEM;
	(*info)->fabric_attr->prov_name = kstrdup(name, GFP_KERNEL);
	return 0;
}

static int getinfo_inner(u32 version, const char *node, const char *service, u64 flags,
			 struct kfi_info *hints, struct kfi_info **info)
{
	return entry_with_name("inner", info);
}

static int fabric_own(struct kfi_fabric_attr *attr, struct kfid_fabric **fabric, void *context)
{
	*fabric = &own_fabric;
	return 0;
}

/* A provider that another one registers and deregisters. */
static struct kfi_provider inner = {
	.version = KFI_VERSION(2, 0),
	.kfi_version = KFI_VERSION(1, 7),
	.name = "inner",
	.kgetinfo = getinfo_inner,
	.kfabric = fabric_own,
};

/* Calls everything that has a provider behind it: not itself, which would not end. */
static struct results make_calls(void)
{
	struct results results = { 1, 1, 1, 1 };
	struct kfi_info *hints = kfi_allocinfo(), *info = NULL;
	struct kfid_fabric *fabric;

	if (!hints)
		return results;
	results.add = kfi_provider_register(&inner);
	hints->fabric_attr->prov_name = kstrdup("inner", GFP_KERNEL);
	results.getinfo = kfi_getinfo(0, NULL, NULL, 0, hints, &info);
	kfi_freeinfo(info);
	kfi_freeinfo(hints);
	hints = kfi_allocinfo();
	if (!hints)
		return results;
	hints->fabric_attr->prov_name = kstrdup(OURS, GFP_KERNEL);
	results.getinfo |= kfi_getinfo(0, NULL, NULL, 0, hints, &info);
	results.fabric = info ? kfi_fabric(info->fabric_attr, &fabric, NULL) : -KFI_ENODATA;
	kfi_freeinfo(info);
	kfi_freeinfo(hints);
	if (!results.fabric)
		results.fabric = kfi_close(&fabric->fid);
	results.remove = kfi_provider_deregister(&inner);
	return results;
}

static int getinfo(u32 version, const char *node, const char *service, u64 flags,
		   struct kfi_info *hints, struct kfi_info **info)
{
	seen.asked++;
	if (seen.calls)
		seen.results = make_calls();
	return entry_with_name("outer", info);
}

static int fabric(struct kfi_fabric_attr *attr, struct kfid_fabric **fabric, void *context)
{
	seen.opened++;
	if (seen.calls)
		seen.results = make_calls();
	*fabric = &own_fabric;
	return 0;
}

static void cleanup(void)
{
	seen.cleaned++;
	if (seen.calls)
		seen.results = make_calls();
}

static struct kfi_provider outer = {
	.version = KFI_VERSION(1, 4),
	.kfi_version = KFI_VERSION(1, 7),
	.name = "outer",
	.kgetinfo = getinfo,
	.kfabric = fabric,
	.cleanup = cleanup,
};

/* Nothing of the last test, and no calls made. */
static void begin(bool calls)
{
	memset(&seen, 0, sizeof(seen));
	seen.calls = calls;
	seen.results = (struct results) { 1, 1, 1, 1 };
}

/* The calls were made and succeeded. */
static void all_succeeded(struct kunit *test)
{
	KUNIT_EXPECT_EQ(test, seen.results.getinfo, 0);
	KUNIT_EXPECT_EQ(test, seen.results.fabric, 0);
	KUNIT_EXPECT_EQ(test, seen.results.add, 0);
	KUNIT_EXPECT_EQ(test, seen.results.remove, 0);
	seen.results = (struct results) { 1, 1, 1, 1 };
}

static void each_callback_may_call_kfabric(struct kunit *test)
{
	struct kfi_fabric_attr attr = { .prov_name = "outer" };
	struct kfid_fabric *fabric = NULL;
	struct kfi_info *info;

	begin(true);
	KUNIT_ASSERT_EQ(test, kfi_provider_register(&outer), 0);
	KUNIT_ASSERT_EQ(test, kfi_getinfo(0, NULL, NULL, 0, NULL, &info), 0);
	kfi_freeinfo(info);
	KUNIT_EXPECT_EQ(test, seen.asked, 1);
	all_succeeded(test);
	KUNIT_EXPECT_EQ(test, kfi_fabric(&attr, &fabric, NULL), 0);
	KUNIT_EXPECT_PTR_EQ(test, fabric, &own_fabric);
	KUNIT_EXPECT_EQ(test, seen.opened, 1);
	all_succeeded(test);
	KUNIT_EXPECT_EQ(test, kfi_provider_deregister(&outer), 0);
	KUNIT_EXPECT_EQ(test, seen.cleaned, 1);
	all_succeeded(test);
}

/* Registering and deregistering by a callback change who is asked next. */
static void a_callback_changes_the_list(struct kunit *test)
{
	struct kfi_info *info, *entry;
	int others = 0;

	begin(false);
	KUNIT_ASSERT_EQ(test, kfi_provider_register(&outer), 0);
	KUNIT_ASSERT_EQ(test, kfi_provider_register(&inner), 0);
	/* The callback cannot register what is there, and removes it. */
	seen.calls = true;
	KUNIT_ASSERT_EQ(test, kfi_getinfo(0, NULL, NULL, 0, NULL, &info), 0);
	for (entry = info; entry; entry = entry->next)
		others += !strcmp(entry->fabric_attr->prov_name, "inner");
	kfi_freeinfo(info);
	KUNIT_EXPECT_EQ(test, others, 0);
	KUNIT_EXPECT_EQ(test, seen.results.add, -EEXIST);
	KUNIT_EXPECT_EQ(test, seen.results.getinfo, 0);
	KUNIT_EXPECT_EQ(test, seen.results.remove, 0);
	KUNIT_EXPECT_EQ(test, kfi_provider_deregister(&inner), -KFI_EINVAL);
	seen.calls = false;
	KUNIT_EXPECT_EQ(test, kfi_provider_deregister(&outer), 0);
}

/* KFI_PROV_ATTR_ONLY: names and versions of all, or of the one that hints name. */
static void names_and_versions_only(struct kunit *test)
{
	struct kfi_info *info, *hints = kfi_allocinfo();

	begin(false);
	KUNIT_ASSERT_NOT_NULL(test, hints);
	KUNIT_ASSERT_EQ(test, kfi_provider_register(&outer), 0);
	KUNIT_ASSERT_EQ(test, kfi_provider_register(&inner), 0);
	KUNIT_ASSERT_EQ(test, kfi_getinfo(0, NULL, NULL, KFI_PROV_ATTR_ONLY, NULL, &info), 0);
	KUNIT_EXPECT_STREQ(test, info->fabric_attr->prov_name, OURS);
	KUNIT_ASSERT_NOT_NULL(test, info->next);
	KUNIT_EXPECT_STREQ(test, info->next->fabric_attr->prov_name, "outer");
	KUNIT_EXPECT_EQ(test, info->next->fabric_attr->prov_version, KFI_VERSION(1, 4));
	KUNIT_EXPECT_NULL(test, info->next->fabric_attr->name);
	KUNIT_EXPECT_NULL(test, info->next->domain_attr->name);
	KUNIT_ASSERT_NOT_NULL(test, info->next->next);
	KUNIT_EXPECT_STREQ(test, info->next->next->fabric_attr->prov_name, "inner");
	KUNIT_EXPECT_EQ(test, info->next->next->fabric_attr->prov_version, KFI_VERSION(2, 0));
	KUNIT_EXPECT_NULL(test, info->next->next->next);
	kfi_freeinfo(info);

	hints->fabric_attr->prov_name = kstrdup("outer", GFP_KERNEL);
	KUNIT_ASSERT_EQ(test, kfi_getinfo(0, NULL, NULL, KFI_PROV_ATTR_ONLY, hints, &info), 0);
	KUNIT_EXPECT_STREQ(test, info->fabric_attr->prov_name, "outer");
	KUNIT_EXPECT_NULL(test, info->next);
	kfi_freeinfo(info);
	strscpy(hints->fabric_attr->prov_name, "oute", 5);
	KUNIT_EXPECT_EQ(test, kfi_getinfo(0, NULL, NULL, KFI_PROV_ATTR_ONLY, hints, &info),
			-KFI_ENODATA);
	KUNIT_EXPECT_NULL(test, info);
	/* The providers were not asked. */
	KUNIT_EXPECT_EQ(test, seen.asked, 0);
	kfi_freeinfo(hints);
	KUNIT_EXPECT_EQ(test, kfi_provider_deregister(&inner), 0);
	KUNIT_EXPECT_EQ(test, kfi_provider_deregister(&outer), 0);
}

static int leave(void *provider)
{
	return kfi_provider_deregister(provider);
}

/* kfi_provider_deregister() waits for references that the provider has taken. */
static void references_are_waited_for(struct kunit *test)
{
	struct call left;
	int i;

	begin(false);
	KUNIT_ASSERT_EQ(test, kfi_provider_register(&outer), 0);
	kfi_ref_provider(&outer);
	kfi_ref_provider(&outer);
	call_begin(test, &left, leave, &outer);
	for (i = 0; i < 2; i++) {
		msleep(50);
		KUNIT_EXPECT_FALSE(test, completion_done(&left.done));
		KUNIT_EXPECT_EQ(test, seen.cleaned, 0);
		kfi_deref_provider(&outer);
	}
	call_ends(test, &left, 0);
	KUNIT_EXPECT_EQ(test, seen.cleaned, 1);
	/* It can be registered again, with one reference. */
	KUNIT_ASSERT_EQ(test, kfi_provider_register(&outer), 0);
	KUNIT_EXPECT_EQ(test, atomic_read(&outer.ref_cnt), 1);
	KUNIT_EXPECT_EQ(test, kfi_provider_deregister(&outer), 0);
	KUNIT_EXPECT_EQ(test, seen.cleaned, 2);
}

/* The references of an object, which a provider counts by the same header. */
static void references_of_an_object(struct kunit *test)
{
	struct kfid fid = {};

	kfi_init_id(&fid);
	KUNIT_EXPECT_EQ(test, atomic_read(&fid.ref_cnt), 1);
	kfi_ref_id(&fid);
	KUNIT_EXPECT_EQ(test, atomic_read(&fid.ref_cnt), 2);
	kfi_deref_id(&fid);
	KUNIT_EXPECT_FALSE(test, completion_done(&fid.comp));
	kfi_close_id(&fid);
	KUNIT_EXPECT_EQ(test, atomic_read(&fid.ref_cnt), 0);
}

CONSUMER("what providers may do",
	 KUNIT_CASE(each_callback_may_call_kfabric),
	 KUNIT_CASE(a_callback_changes_the_list),
	 KUNIT_CASE(names_and_versions_only),
	 KUNIT_CASE(references_are_waited_for),
	 KUNIT_CASE(references_of_an_object));
