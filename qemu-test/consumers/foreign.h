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

#include <kfi/kfi_eq.h>
#include <kfi/kfi_prov.h>

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

static int foreign_bind(struct kfid *fid, struct kfid *bfid, u64 flags)
{
	return -KFI_ENOSYS;
}

static int foreign_control(struct kfid *fid, int command, void *arg)
{
	return -KFI_ENOSYS;
}

static int foreign_open_ops(struct kfid *fid, const char *name, u64 flags, void **ops,
			    void *context)
{
	return -KFI_ENOSYS;
}

static int foreign_domain(struct kfid_fabric *fabric, struct kfi_info *info,
			  struct kfid_domain **domain, void *context)
{
	return -KFI_ENOSYS;
}

static int foreign_passive_ep(struct kfid_fabric *fabric, struct kfi_info *info,
			      struct kfid_pep **pep, void *context)
{
	return -KFI_ENOSYS;
}

static int foreign_eq_open(struct kfid_fabric *fabric, struct kfi_eq_attr *attr,
			   struct kfid_eq **eq, kfi_event_handler event_handler, void *context)
{
	return -KFI_ENOSYS;
}

static int foreign_wait_open(struct kfid_fabric *fabric, struct kfi_wait_attr *attr,
			     struct kfid_wait **waitset)
{
	return -KFI_ENOSYS;
}

static struct kfi_ops foreign_fid_ops = {
	.size = sizeof(struct kfi_ops),
	.close = foreign_close,
	.bind = foreign_bind,
	.control = foreign_control,
	.ops_open = foreign_open_ops,
};

static struct kfi_ops_fabric foreign_ops = {
	.size = sizeof(struct kfi_ops_fabric),
	.domain = foreign_domain,
	.passive_ep = foreign_passive_ep,
	.eq_open = foreign_eq_open,
	.wait_open = foreign_wait_open,
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
