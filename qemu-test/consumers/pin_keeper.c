// SPDX-License-Identifier: GPL-2.0
/*
 * Keeps a fabric that another module has opened, and closes it when it is removed.
 *
 * It uses no symbol of kfabric.ko, so only the open fabric keeps that loaded
 * (run-guest).
 */

#include <linux/module.h>

#include "pin.h"

static struct kfid_fabric *kept;

void pin_keep(struct kfid_fabric *fabric)
{
	kept = fabric;
}
EXPORT_SYMBOL_GPL(pin_keep);

static int __init pin_keeper_init(void)
{
	return 0;
}
module_init(pin_keeper_init);

static void __exit pin_keeper_exit(void)
{
	int ret = kept ? kfi_close(&kept->fid) : -KFI_ENODEV;

	if (ret)
		pr_err("the fabric is not closed: %d\n", ret);
}
module_exit(pin_keeper_exit);

MODULE_DESCRIPTION("kfabric consumer: keeps the fabric of pin_opener");
MODULE_LICENSE("GPL");
