// SPDX-License-Identifier: GPL-2.0
/*
 * Providers in C beside the module's own.
 */

#include <linux/string.h>

#include <kfi/kfi_prov.h>

#include "fixture.h"
#include "who.h"

/* What the callbacks saw, and do. */
static struct {
	u32			version;
	u64			flags;
	int			asked;
	int			fails;
	int			cleaned;
	struct completion	*begun;
	struct completion	*may_end;
} seen;

static struct kfid_fabric own_fabric;

static int getinfo_of(const char *name, struct kfi_info **info)
{
	*info = kfi_allocinfo();
	if (!*info)
		return -KFI_ENOMEM;
	(*info)->fabric_attr->prov_name = kstrdup(name, GFP_KERNEL);
	return 0;
}

static int getinfo(u32 version, const char *node, const char *service, u64 flags,
		   struct kfi_info *hints, struct kfi_info **info)
{
	seen.asked++;
	seen.version = version;
	seen.flags = flags;
	if (seen.begun) {
		complete(seen.begun);
		wait_for_completion(seen.may_end);
	}
	if (seen.fails)
		return seen.fails;
	return getinfo_of("second", info);
}

static int getinfo_newer(u32 version, const char *node, const char *service, u64 flags,
			 struct kfi_info *hints, struct kfi_info **info)
{
	return getinfo_of("newer", info);
}

static int fabric(struct kfi_fabric_attr *attr, struct kfid_fabric **fabric, void *context)
{
	own_fabric.fid.context = context;
	*fabric = &own_fabric;
	return 0;
}

static void cleanup(void)
{
	seen.cleaned++;
}

static struct kfi_provider second = {
	.version = KFI_VERSION(1, 0),
	.kfi_version = KFI_VERSION(1, 7),
	.name = "second",
	.kgetinfo = getinfo,
	.kfabric = fabric,
	.cleanup = cleanup,
};

static struct kfi_provider newer = {
	.version = KFI_VERSION(1, 1),
	.kfi_version = KFI_VERSION(1, 0),
	.name = "second",
	.kgetinfo = getinfo_newer,
	.kfabric = fabric,
};

static void bad_providers_are_refused(struct kunit *test)
{
	struct kfi_provider bad = second;

	memset(&seen, 0, sizeof(seen));
	KUNIT_EXPECT_EQ(test, kfi_provider_register(NULL), -KFI_EINVAL);
	KUNIT_EXPECT_EQ(test, kfi_provider_deregister(&bad), -KFI_EINVAL);
	bad.kfi_version = KFI_VERSION(1, 8);
	KUNIT_EXPECT_EQ(test, kfi_provider_register(&bad), -KFI_ENOSYS);
	bad.kfi_version = KFI_VERSION(2, 0);
	KUNIT_EXPECT_EQ(test, kfi_provider_register(&bad), -KFI_ENOSYS);
	bad.kfi_version = KFI_VERSION(0, 9);
	KUNIT_EXPECT_EQ(test, kfi_provider_register(&bad), -KFI_ENOSYS);
	bad.kfi_version = KFI_VERSION(1, 7);
	bad.name = NULL;
	KUNIT_EXPECT_EQ(test, kfi_provider_register(&bad), -KFI_EINVAL);
	bad.name = "";
	KUNIT_EXPECT_EQ(test, kfi_provider_register(&bad), -KFI_EINVAL);
	bad.name = "a name of more than 63 bytes is one that no hint can have, so it is refused";
	KUNIT_EXPECT_EQ(test, kfi_provider_register(&bad), -KFI_EINVAL);
	/* The module's own stays, whatever the version. */
	bad.name = "kfabric";
	bad.version = KFI_VERSION(9, 0);
	KUNIT_EXPECT_EQ(test, kfi_provider_register(&bad), -EEXIST);
	bad.name = "second";
	bad.kgetinfo = NULL;
	KUNIT_EXPECT_EQ(test, kfi_provider_register(&bad), -KFI_EINVAL);
	KUNIT_EXPECT_STREQ(test, who(0, NULL), "kfabric ");
}

static void two_coexist(struct kunit *test)
{
	struct kfi_info *info, *hints = kfi_allocinfo();
	struct kfid_fabric *opened = NULL;
	struct fixture f;

	memset(&seen, 0, sizeof(seen));
	KUNIT_ASSERT_NOT_NULL(test, hints);
	KUNIT_ASSERT_EQ(test, kfi_provider_register(&second), 0);
	KUNIT_EXPECT_EQ(test, kfi_provider_register(&second), -EEXIST);
	KUNIT_EXPECT_STREQ(test, who(0, NULL), "kfabric second ");
	KUNIT_EXPECT_STREQ(test, who(0, hints), "kfabric second ");
	hints->fabric_attr->prov_name = kstrdup("second", GFP_KERNEL);
	KUNIT_EXPECT_STREQ(test, who(0, hints), "second ");
	KUNIT_EXPECT_EQ(test, seen.asked, 3);
	strscpy(hints->fabric_attr->prov_name, "nobody", 7);
	KUNIT_EXPECT_STREQ(test, who(0, hints), "nobody");
	KUNIT_EXPECT_EQ(test, seen.asked, 3);

	/* Arguments arrive. */
	KUNIT_ASSERT_EQ(test, 0, kfi_getinfo(KFI_VERSION(1, 5), NULL, NULL, KFI_SOURCE, NULL,
					     &info));
	KUNIT_EXPECT_EQ(test, seen.version, KFI_VERSION(1, 5));
	KUNIT_EXPECT_EQ(test, seen.flags, KFI_SOURCE);
	kfi_freeinfo(info);

	/* Each opens fabrics of its own. */
	strscpy(hints->fabric_attr->prov_name, "second", 7);
	KUNIT_EXPECT_EQ(test, kfi_fabric(hints->fabric_attr, &opened, test), 0);
	KUNIT_EXPECT_PTR_EQ(test, opened, &own_fabric);
	KUNIT_EXPECT_PTR_EQ(test, own_fabric.fid.context, (void *)test);

	/* One leaves while the other is used. */
	fixture_open(test, &f);
	KUNIT_EXPECT_EQ(test, kfi_provider_deregister(&second), 0);
	KUNIT_EXPECT_EQ(test, seen.cleaned, 1);
	KUNIT_EXPECT_EQ(test, kfi_provider_deregister(&second), -KFI_EINVAL);
	KUNIT_EXPECT_EQ(test, kfi_fabric(hints->fabric_attr, &opened, test), -KFI_ENODEV);
	KUNIT_EXPECT_STREQ(test, who(0, NULL), "kfabric ");
	fixture_close(test, &f);
	kfi_freeinfo(hints);
}

static void errors_of_one_are_its_own(struct kunit *test)
{
	struct kfi_info *hints = kfi_allocinfo();

	memset(&seen, 0, sizeof(seen));
	KUNIT_ASSERT_NOT_NULL(test, hints);
	KUNIT_ASSERT_EQ(test, kfi_provider_register(&second), 0);
	seen.fails = -KFI_ENODATA;
	KUNIT_EXPECT_STREQ(test, who(0, NULL), "kfabric ");
	seen.fails = -KFI_EIO;
	KUNIT_EXPECT_STREQ(test, who(0, NULL), "kfabric ");
	seen.fails = 0;
	/* The first has nothing, the second has. */
	hints->caps = KFI_MULTICAST;
	KUNIT_EXPECT_STREQ(test, who(0, hints), "second ");
	kfi_freeinfo(hints);
	KUNIT_EXPECT_EQ(test, kfi_provider_deregister(&second), 0);
}

static void a_newer_version_replaces(struct kunit *test)
{
	memset(&seen, 0, sizeof(seen));
	KUNIT_ASSERT_EQ(test, kfi_provider_register(&second), 0);
	KUNIT_ASSERT_EQ(test, kfi_provider_register(&newer), 0);
	KUNIT_EXPECT_STREQ(test, who(0, NULL), "kfabric newer ");
	/* Its module is unloaded before or after. */
	KUNIT_EXPECT_EQ(test, kfi_provider_deregister(&second), 0);
	KUNIT_EXPECT_EQ(test, seen.cleaned, 1);
	KUNIT_EXPECT_STREQ(test, who(0, NULL), "kfabric newer ");
	KUNIT_EXPECT_EQ(test, kfi_provider_register(&second), -EEXIST);
	KUNIT_EXPECT_EQ(test, kfi_provider_deregister(&newer), 0);
	KUNIT_EXPECT_STREQ(test, who(0, NULL), "kfabric ");
}

static int ask(void *unused)
{
	who(0, NULL);
	return 0;
}

static int deregister(void *provider)
{
	return kfi_provider_deregister(provider);
}

static void deregistering_waits_for_callbacks(struct kunit *test)
{
	DECLARE_COMPLETION_ONSTACK(begun);
	DECLARE_COMPLETION_ONSTACK(may_end);
	struct call asked, left;

	memset(&seen, 0, sizeof(seen));
	KUNIT_ASSERT_EQ(test, kfi_provider_register(&second), 0);
	seen.begun = &begun;
	seen.may_end = &may_end;
	call_begin(test, &asked, ask, NULL);
	wait_for_completion(&begun);
	call_begin(test, &left, deregister, &second);
	msleep(50);
	KUNIT_EXPECT_FALSE(test, completion_done(&left.done));
	KUNIT_EXPECT_EQ(test, seen.cleaned, 0);
	/* It is not found any more, and nothing else waits for it. */
	KUNIT_EXPECT_STREQ(test, who(0, NULL), "kfabric ");
	complete(&may_end);
	call_ends(test, &left, 0);
	call_ends(test, &asked, 0);
	KUNIT_EXPECT_EQ(test, seen.cleaned, 1);
}

CONSUMER("providers",
	 KUNIT_CASE(bad_providers_are_refused),
	 KUNIT_CASE(two_coexist),
	 KUNIT_CASE(errors_of_one_are_its_own),
	 KUNIT_CASE(a_newer_version_replaces),
	 KUNIT_CASE(deregistering_waits_for_callbacks));
