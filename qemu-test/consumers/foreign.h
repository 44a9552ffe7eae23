/* SPDX-License-Identifier: GPL-2.0 */
/*
 * A provider in a module of its own, which has fabrics and nothing else. A file
 * that includes this one defines FOREIGN_NAME and FOREIGN_VERSION first.
 *
 * An open fabric keeps the module loaded, as kfi_fabric() demands.
 */
#ifndef _FOREIGN_H
#define _FOREIGN_H

#include <linux/module.h>
#include <linux/slab.h>
#include <linux/string.h>

#include <kfi/kfi_enosys.h>
#include <kfi/kfi_eq.h>

static int foreign_getinfo(u32 version, const char *node, const char *service, u64 flags,
			   struct kfi_info *hints, struct kfi_info **info)
{
	*info = kfi_allocinfo();
	if (!*info)
		return -KFI_ENOMEM;
	(*info)->fabric_attr->prov_name = kstrdup(FOREIGN_NAME, GFP_KERNEL);
	(*info)->fabric_attr->prov_version = FOREIGN_VERSION;
	return 0;
}

static int foreign_close(struct kfid *fid)
{
	kfree(fid);
	module_put(THIS_MODULE);
	return 0;
}

static struct kfi_ops foreign_fid_ops = {
	.size = sizeof(struct kfi_ops),
	.close = foreign_close,
	.bind = kfi_no_bind,
	.control = kfi_no_control,
	.ops_open = kfi_no_ops_open,
};

static struct kfi_ops_fabric foreign_ops = {
	.size = sizeof(struct kfi_ops_fabric),
	.domain = kfi_no_domain,
	.passive_ep = kfi_no_passive_ep,
	.eq_open = kfi_no_eq_open,
	.wait_open = kfi_no_wait_open,
};

static int foreign_fabric(struct kfi_fabric_attr *attr, struct kfid_fabric **fabric,
			  void *context)
{
	struct kfid_fabric *opened;

	if (!try_module_get(THIS_MODULE))
		return -KFI_ENODEV;
	opened = kzalloc_obj(*opened);
	if (!opened) {
		module_put(THIS_MODULE);
		return -KFI_ENOMEM;
	}
	opened->fid.fclass = KFI_CLASS_FABRIC;
	opened->fid.context = context;
	opened->fid.ops = &foreign_fid_ops;
	opened->ops = &foreign_ops;
	*fabric = opened;
	return 0;
}

static struct kfi_provider foreign = {
	.version = FOREIGN_VERSION,
	.kfi_version = KFI_VERSION(1, 7),
	.name = FOREIGN_NAME,
	.kgetinfo = foreign_getinfo,
	.kfabric = foreign_fabric,
};

static int __init foreign_init(void)
{
	return kfi_provider_register(&foreign);
}
module_init(foreign_init);

static void __exit foreign_exit(void)
{
	kfi_provider_deregister(&foreign);
}
module_exit(foreign_exit);

MODULE_LICENSE("GPL");

#endif /* _FOREIGN_H */
