// SPDX-License-Identifier: GPL-2.0
/*
 * Loading and unloading; "rdma link add"; the events of interfaces.
 *
 * "rdma link delete" is the core's own work, since IBK_ALLOW_USER_UNREG is set.
 * Each way in which a device ends (that command, the end of its interface or of
 * the interface's namespace, unloading) goes through the core's unregistration,
 * which ends the objects of all programs and then calls dealloc_driver().
 */

#include <linux/module.h>
#include <linux/netdevice.h>
#include <linux/rtnetlink.h>
#include <rdma/rdma_netlink.h>

#include "kfabric_ib.h"

/*
 * Detaches a device from @netdev, which is being removed. The unregistration of
 * the device waits for calls of programs, which may never end; the removal of
 * the interface must not wait for them. Context: process, with or without RTNL.
 */
static void kfib_give_up(struct ib_device *ibdev, struct net_device *netdev)
{
	ib_device_set_netdev(ibdev, NULL, KFIB_PORT);
	/* The core drops these itself only for Ethernet interfaces. */
	roce_del_all_netdev_gids(ibdev, KFIB_PORT, netdev);
}

/*
 * "rdma link add NAME type kfabric netdev NDEV". The core holds a reference to
 * the interface, and no lock that keeps it from going.
 */
static int kfib_newlink(const char *name, struct net_device *ndev)
{
	struct kfabric_verbs_port port;
	struct ib_device *ibdev;
	int ret;

	ret = PTR_ERR_OR_ZERO(kfib_device_add(name, ndev));
	if (ret)
		return ret;

	/*
	 * If the interface went before the device was registered, its notifier
	 * did not find the device. When the RTNL is free, the notifiers of both
	 * modules have been called, or neither of them.
	 */
	ibdev = kfib_device_on(ndev);
	if (!ibdev)
		return -ENODEV;
	rtnl_lock();
	kfabric_verbs_device_port(to_kfib(ibdev)->device, &port);
	rtnl_unlock();
	if (!port.gone) {
		ib_device_put(ibdev);
		return 0;
	}
	ib_unregister_device_queued(ibdev);
	kfib_give_up(ibdev, ndev);
	ib_device_put(ibdev);
	return -ENODEV;
}

static struct rdma_link_ops kfib_link_ops = {
	.type = "kfabric",
	.newlink = kfib_newlink,
};

/*
 * State, MTU, name and addresses are read when they are asked for, and the core
 * reports the port's state. So only the end of an interface matters here. Its
 * move to another namespace is such an end, because the device's link does not
 * move with it.
 */
static int kfib_netdev_event(struct notifier_block *nb, unsigned long event,
			     void *info)
{
	struct net_device *netdev = netdev_notifier_info_to_dev(info);
	struct ib_device *ibdev;

	if (event != NETDEV_UNREGISTER)
		return NOTIFY_DONE;
	ibdev = kfib_device_on(netdev);
	if (ibdev) {
		/* The RTNL is held here, so unregistration is queued. */
		ib_unregister_device_queued(ibdev);
		kfib_give_up(ibdev, netdev);
		ib_device_put(ibdev);
	}
	return NOTIFY_DONE;
}

static struct notifier_block kfib_netdev_notifier = {
	.notifier_call = kfib_netdev_event,
};

static int __init kfib_init(void)
{
	int ret;

	ret = kfib_device_init();
	if (ret)
		return ret;
	ret = register_netdevice_notifier(&kfib_netdev_notifier);
	if (ret) {
		kfib_device_exit();
		return ret;
	}
	rdma_link_register(&kfib_link_ops);
	return 0;
}

static void __exit kfib_exit(void)
{
	rdma_link_unregister(&kfib_link_ops);
	unregister_netdevice_notifier(&kfib_netdev_notifier);
	kfib_device_remove_all();
	kfib_device_exit();
}

module_init(kfib_init);
module_exit(kfib_exit);

MODULE_AUTHOR("The kfabric authors");
MODULE_DESCRIPTION("kfabric: devices of the RDMA subsystem");
MODULE_LICENSE("GPL");
MODULE_IMPORT_NS("KFABRIC_VERBS");
MODULE_ALIAS_RDMA_LINK("kfabric");
/* Programs need these modules, too, and nothing else loads them. */
MODULE_SOFTDEP("post: ib_uverbs rdma_ucm");
