// SPDX-License-Identifier: GPL-2.0
/*
 * Opens a fabric for pin_keeper.ko. It can be removed while that is open.
 */

#include <linux/module.h>

#include "pin.h"

static int __init pin_opener_init(void)
{
	struct kfi_fabric_attr attr = { .prov_name = "kfabric" };
	struct kfid_fabric *fabric;
	int ret = kfi_fabric(&attr, &fabric, NULL);

	if (!ret)
		pin_keep(fabric);
	return ret;
}
module_init(pin_opener_init);

static void __exit pin_opener_exit(void)
{
}
module_exit(pin_opener_exit);

MODULE_DESCRIPTION("kfabric consumer: opens a fabric and leaves");
MODULE_LICENSE("GPL");
