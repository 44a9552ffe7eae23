// SPDX-License-Identifier: GPL-2.0
/*
 * The C side of shim/net.rs: namespaces, interfaces, per-CPU statistics.
 *
 * The functions wrap macros and inline functions, or use headers that the
 * kernel crate does not bind. They keep no state.
 */

#include "net.h"

#include <linux/capability.h>
#include <linux/netdevice.h>
#include <linux/nsproxy.h>
#include <linux/rtnetlink.h>
#include <linux/sched.h>
#include <linux/string.h>
#include <net/l3mdev.h>
#include <net/net_namespace.h>

static_assert(KFABRIC_SHIM_IFNAMSIZ == IFNAMSIZ);

/**
 * kfabric_shim_net_get_current - take the current task's network namespace
 *
 * Context: process.
 * Return: the namespace with a reference added, or NULL if the task has no
 * namespaces any more (the last release of a file in an exiting task).
 */
struct net *kfabric_shim_net_get_current(void)
{
	struct nsproxy *nsproxy = current->nsproxy;

	return nsproxy ? get_net(nsproxy->net_ns) : NULL;
}

/**
 * kfabric_shim_net_get - take another reference to a namespace
 * @net: the namespace, which the caller keeps alive
 *
 * Context: any.
 */
void kfabric_shim_net_get(struct net *net)
{
	get_net(net);
}

/**
 * kfabric_shim_net_put - put a reference to a namespace
 * @net: the namespace
 *
 * Context: any; the cleanup after the last reference is deferred.
 */
void kfabric_shim_net_put(struct net *net)
{
	put_net(net);
}

/**
 * kfabric_shim_net_cookie - the number of a namespace
 * @net: the namespace
 *
 * Return: its cookie, which is not 0 and never reused.
 */
u64 kfabric_shim_net_cookie(const struct net *net)
{
	return net->net_cookie;
}

/**
 * kfabric_shim_net_current_cookie - the number of the current task's namespace
 *
 * Context: process.
 * Return: its cookie; 0 if kfabric_shim_net_get_current() returns NULL.
 */
u64 kfabric_shim_net_current_cookie(void)
{
	struct nsproxy *nsproxy = current->nsproxy;

	return nsproxy ? nsproxy->net_ns->net_cookie : 0;
}

/**
 * kfabric_shim_net_admin - whether the current task may administer a namespace
 * @net: a namespace to which the caller has a reference
 *
 * Context: process.
 * Return: whether it has CAP_NET_ADMIN in the user namespace that owns @net.
 */
bool kfabric_shim_net_admin(const struct net *net)
{
	return ns_capable(net->user_ns, CAP_NET_ADMIN);
}

/** kfabric_shim_rtnl_lock - take the RTNL, a mutex */
void kfabric_shim_rtnl_lock(void)
{
	rtnl_lock();
}

/**
 * kfabric_shim_rtnl_unlock - release the RTNL
 *
 * Finishes the removal of interfaces that went in the meantime, so it may
 * sleep.
 */
void kfabric_shim_rtnl_unlock(void)
{
	rtnl_unlock();
}

static void kfabric_shim_netdev_describe(struct net_device *dev,
					 struct kfabric_shim_netdev *to)
{
	to->netns = dev_net(dev)->net_cookie;
	to->ifindex = dev->ifindex;
	to->mtu = READ_ONCE(dev->mtu);
	to->up = dev->flags & IFF_UP;
	to->vrf = l3mdev_master_ifindex(dev);
	strscpy_pad(to->name, dev->name);
}

/**
 * kfabric_shim_netdev_find - find an interface by name
 * @net: its namespace
 * @name: its name or one of its alternative names
 * @to: out: the interface
 *
 * Context: process, RTNL held.
 * Return: whether there is one.
 */
bool kfabric_shim_netdev_find(struct net *net, const char *name,
			      struct kfabric_shim_netdev *to)
{
	struct net_device *dev;

	ASSERT_RTNL();
	dev = __dev_get_by_name(net, name);
	if (!dev)
		return false;
	kfabric_shim_netdev_describe(dev, to);
	return true;
}

/**
 * kfabric_shim_netdev_notifier_register - register for events of interfaces
 * @nb: the notifier
 *
 * Calls the notifier for all existing interfaces. Context: process, RTNL not
 * held.
 *
 * Return: 0, or a negative error number.
 */
int kfabric_shim_netdev_notifier_register(struct notifier_block *nb)
{
	return register_netdevice_notifier(nb);
}

/**
 * kfabric_shim_netdev_notifier_unregister - unregister from events of
 * interfaces
 * @nb: the notifier
 *
 * The notifier is called for all existing interfaces as if they were removed.
 * No call is running afterwards. Context: process, RTNL not held.
 */
void kfabric_shim_netdev_notifier_unregister(struct notifier_block *nb)
{
	unregister_netdevice_notifier(nb);
}

/**
 * kfabric_shim_netdev_event - classify an event of a notifier
 * @event: argument of the notifier (NETDEV_*)
 * @info: argument of the notifier
 * @to: out: the interface, unless the result is %KFABRIC_SHIM_NETDEV_OTHER
 *
 * Context: in a netdevice notifier.
 * Return: the kind of the event.
 */
enum kfabric_shim_netdev_event
kfabric_shim_netdev_event(unsigned long event, void *info,
			  struct kfabric_shim_netdev *to)
{
	switch (event) {
	case NETDEV_UP:
	case NETDEV_DOWN:
	case NETDEV_CHANGEMTU:
	case NETDEV_CHANGENAME:
	/* It was put under another interface, a VRF for example, or released. */
	case NETDEV_CHANGEUPPER:
		kfabric_shim_netdev_describe(netdev_notifier_info_to_dev(info), to);
		/* Unregistration also sends this for interfaces that are up. */
		if (event == NETDEV_DOWN)
			to->up = false;
		return KFABRIC_SHIM_NETDEV_CHANGED;
	case NETDEV_UNREGISTER:
		/* Removed, or about to move to another namespace. */
		kfabric_shim_netdev_describe(netdev_notifier_info_to_dev(info), to);
		return KFABRIC_SHIM_NETDEV_GONE;
	default:
		return KFABRIC_SHIM_NETDEV_OTHER;
	}
}
