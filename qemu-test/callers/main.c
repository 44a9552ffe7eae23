// SPDX-License-Identifier: GPL-2.0
/*
 * A module that uses two devices of the RDMA subsystem as kernel modules do.
 *
 * Its initialisation runs one test, and fails if the test fails; the kernel's
 * log has the reason. The first network namespace need not have the devices.
 */

#define pr_fmt(fmt) KBUILD_MODNAME ": " fmt

#include <linux/module.h>

#include "callers.h"

static char *test = "";
module_param(test, charp, 0);
MODULE_PARM_DESC(test, "The name of the test");

static char *a = "kf0";
module_param(a, charp, 0);
MODULE_PARM_DESC(a, "The device of the first end");

static char *b = "kf1";
module_param(b, charp, 0);
MODULE_PARM_DESC(b, "The device of the second end");

static struct pair pair;

static int found(struct ib_device *dev)
{
	if (!strcmp(dev_name(&dev->dev), a))
		pair.a.dev = dev;
	if (!strcmp(dev_name(&dev->dev), b))
		pair.b.dev = dev;
	return 0;
}

static struct ib_client client = {
	.name = KBUILD_MODNAME,
	.add = found,
};

static const struct test *find(void)
{
	const struct test *const lists[] = {
		message_tests, queue_tests, context_tests, fast_tests,
		fast_error_tests,
	};
	const struct test *next;
	int i;

	for (i = 0; i < ARRAY_SIZE(lists); i++)
		for (next = lists[i]; next->name; next++)
			if (!strcmp(next->name, test))
				return next;
	return NULL;
}

static int run(const struct test *test)
{
	int ret;

	if (!pair.a.dev || !pair.b.dev) {
		pr_info("there is no device %s or %s\n", a, b);
		return -ENODEV;
	}
	ret = pair_open(&pair, &test->setup);
	if (ret)
		pr_info("the ends are not made: %d\n", ret);
	else
		ret = test->run(&pair);
	pair_close(&pair);
	return ret;
}

static int __init callers_init(void)
{
	const struct test *test = find();
	int ret;

	if (!test)
		return -ENOENT;
	ret = ib_register_client(&client);
	if (ret)
		return ret;
	ret = run(test);
	ib_unregister_client(&client);
	return ret;
}
module_init(callers_init);

static void __exit callers_exit(void)
{
}
module_exit(callers_exit);

MODULE_DESCRIPTION("A kernel caller of RDMA devices, for tests");
MODULE_LICENSE("GPL");
