// SPDX-License-Identifier: GPL-2.0
/*
 * Two providers in modules of their own (foreign_one.ko, foreign_two.ko) beside the
 * module's: each comes and leaves by itself, and stays while a fabric of it is open.
 *
 * The suite loads and removes the modules by programs of the guest.
 */

#include <linux/umh.h>

#include "fixture.h"
#include "who.h"

/* A provider that leaves cannot be removed while it is in use: delete_module(2). */
#define IN_USE	"2>&1 | grep -q 'Resource temporarily unavailable'"

/* How a command of the shell ends: 0, or not. A helper has no descriptors at first. */
static int run(const char *command)
{
	char line[160];
	const char *argv[4] = { "/bin/sh", "-c", line, NULL };
	const char *envp[2] = { "PATH=/sbin:/bin:/usr/sbin:/usr/bin", NULL };

	scnprintf(line, sizeof(line), "exec </dev/null >/dev/null 2>&1; %s", command);
	return call_usermodehelper(argv[0], (char **)argv, (char **)envp, UMH_WAIT_PROC);
}

/* How a fabric of a provider is opened. */
static int open_of(char *name, struct kfid_fabric **fabric)
{
	struct kfi_fabric_attr attr = { .prov_name = name };

	return kfi_fabric(&attr, fabric, fabric);
}

/* One leaves while a fabric of the other and one of the module's own are open. */
static void one_leaves_while_others_are_used(struct kunit *test)
{
	struct kfid_fabric *fabric = NULL, *none = NULL;
	struct kfid_cntr *cntr;
	struct fixture f;

	KUNIT_ASSERT_EQ(test, run("insmod /foreign_one.ko"), 0);
	KUNIT_ASSERT_EQ(test, run("insmod /foreign_two.ko"), 0);
	KUNIT_EXPECT_STREQ(test, who(0, NULL), "kfabric one two ");
	fixture_open(test, &f);
	cntr = open_cntr(test, &f, KFI_WAIT_UNSPEC, NULL, NULL);
	KUNIT_ASSERT_EQ(test, open_of("two", &fabric), 0);
	KUNIT_EXPECT_PTR_EQ(test, fabric->fid.context, (void *)&fabric);

	KUNIT_EXPECT_EQ(test, run("rmmod foreign_one"), 0);
	KUNIT_EXPECT_STREQ(test, who(0, NULL), "kfabric two ");
	KUNIT_EXPECT_EQ(test, open_of("one", &none), -KFI_ENODEV);
	KUNIT_EXPECT_NULL(test, none);
	/* The others go on: what is open, and what is opened. */
	KUNIT_EXPECT_EQ(test, kfi_cntr_add(cntr, 1), 0);
	KUNIT_EXPECT_EQ(test, kfi_cntr_wait(cntr, 1, 0), 0);
	KUNIT_EXPECT_EQ(test, kfi_control(&fabric->fid, KFI_GETWAIT, NULL), -KFI_ENOSYS);
	KUNIT_EXPECT_EQ(test, open_of("two", &none), 0);
	KUNIT_EXPECT_EQ(test, kfi_close(&none->fid), 0);

	KUNIT_EXPECT_EQ(test, kfi_close(&fabric->fid), 0);
	KUNIT_EXPECT_EQ(test, run("rmmod foreign_two"), 0);
	KUNIT_EXPECT_STREQ(test, who(0, NULL), "kfabric ");
	KUNIT_EXPECT_EQ(test, kfi_close(&cntr->fid), 0);
	fixture_close(test, &f);
}

/* A module whose fabric is open is not removed, and its provider is still there. */
static void one_with_an_open_fabric_stays(struct kunit *test)
{
	struct kfid_fabric *first = NULL, *second = NULL;

	KUNIT_ASSERT_EQ(test, run("insmod /foreign_one.ko"), 0);
	KUNIT_ASSERT_EQ(test, open_of("one", &first), 0);
	KUNIT_EXPECT_EQ(test, run("rmmod foreign_one " IN_USE), 0);
	KUNIT_EXPECT_STREQ(test, who(0, NULL), "kfabric one ");
	KUNIT_ASSERT_EQ(test, open_of("one", &second), 0);
	KUNIT_EXPECT_EQ(test, kfi_close(&first->fid), 0);
	KUNIT_EXPECT_EQ(test, run("rmmod foreign_one " IN_USE), 0);
	KUNIT_EXPECT_EQ(test, kfi_close(&second->fid), 0);
	KUNIT_EXPECT_EQ(test, run("rmmod foreign_one"), 0);
	KUNIT_EXPECT_STREQ(test, who(0, NULL), "kfabric ");
}

/* A provider that has left can come back. The order is that of registration. */
static void the_order_is_that_of_registration(struct kunit *test)
{
	KUNIT_ASSERT_EQ(test, run("insmod /foreign_two.ko && insmod /foreign_one.ko"), 0);
	KUNIT_EXPECT_STREQ(test, who(0, NULL), "kfabric two one ");
	KUNIT_EXPECT_STREQ(test, who(KFI_PROV_ATTR_ONLY, NULL), "kfabric two one ");
	KUNIT_ASSERT_EQ(test, run("rmmod foreign_two && insmod /foreign_two.ko"), 0);
	KUNIT_EXPECT_STREQ(test, who(0, NULL), "kfabric one two ");
	KUNIT_EXPECT_STREQ(test, who(KFI_PROV_ATTR_ONLY, NULL), "kfabric one two ");
	KUNIT_EXPECT_EQ(test, run("rmmod foreign_one && rmmod foreign_two"), 0);
	KUNIT_EXPECT_STREQ(test, who(KFI_PROV_ATTR_ONLY, NULL), "kfabric ");
}

CONSUMER("providers in modules of their own",
	 KUNIT_CASE(one_leaves_while_others_are_used),
	 KUNIT_CASE(one_with_an_open_fabric_stays),
	 KUNIT_CASE(the_order_is_that_of_registration));
