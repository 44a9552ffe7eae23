// SPDX-License-Identifier: GPL-2.0
/*
 * Part of the C side of shim/udp.rs: tells the receiver of a network namespace
 * that an address of the namespace has changed.
 *
 * The kernel reports the changes of all namespaces to its notifiers. Open sockets
 * are in a hash table by namespace, so that a change reaches only those of its own
 * namespace. Changes are reported in any context, so they read the table under
 * RCU.
 */

#include "udp.h"

#include <linux/hashtable.h>
#include <linux/inetdevice.h>
#include <linux/netdevice.h>
#include <linux/notifier.h>
#include <linux/rcupdate.h>
#include <linux/rculist.h>
#include <linux/spinlock.h>
#include <net/addrconf.h>
#include <net/if_inet6.h>

static DEFINE_HASHTABLE(kfabric_shim_watched, 8);
/* Protects changes of the table. A leaf; process context only. */
static DEFINE_SPINLOCK(kfabric_shim_watched_lock);

/**
 * kfabric_shim_addr_watch - report changes of addresses from now on
 * @udp: sockets that are being opened
 * @net: their namespace, which does not end before the sockets are closed
 *
 * Context: process.
 */
void kfabric_shim_addr_watch(struct kfabric_shim_udp *udp, struct net *net)
{
	udp->net = net;
	spin_lock(&kfabric_shim_watched_lock);
	hash_add_rcu(kfabric_shim_watched, &udp->watched, (unsigned long)net);
	spin_unlock(&kfabric_shim_watched_lock);
}

/**
 * kfabric_shim_addr_unwatch - report no more changes of addresses
 * @udp: initialised sockets
 *
 * A report may be running until a grace period has passed. Context: process.
 */
void kfabric_shim_addr_unwatch(struct kfabric_shim_udp *udp)
{
	spin_lock(&kfabric_shim_watched_lock);
	hash_del_rcu(&udp->watched);
	spin_unlock(&kfabric_shim_watched_lock);
}

static void kfabric_shim_addr_changed(const struct net_device *dev)
{
	const struct net *net = dev_net(dev);
	struct kfabric_shim_udp *udp;

	rcu_read_lock();
	hash_for_each_possible_rcu(kfabric_shim_watched, udp, watched,
				   (unsigned long)net) {
		if (udp->net == net)
			udp->addrs_changed(udp->data);
	}
	rcu_read_unlock();
}

static int kfabric_shim_inetaddr_event(struct notifier_block *nb,
				       unsigned long event, void *addr)
{
	const struct in_ifaddr *ifa = addr;

	kfabric_shim_addr_changed(ifa->ifa_dev->dev);
	return NOTIFY_DONE;
}

static struct notifier_block kfabric_shim_inetaddr_notifier = {
	.notifier_call = kfabric_shim_inetaddr_event,
};

#if IS_ENABLED(CONFIG_IPV6)
static int kfabric_shim_inet6addr_event(struct notifier_block *nb,
					unsigned long event, void *addr)
{
	const struct inet6_ifaddr *ifa = addr;

	kfabric_shim_addr_changed(ifa->idev->dev);
	return NOTIFY_DONE;
}

static struct notifier_block kfabric_shim_inet6addr_notifier = {
	.notifier_call = kfabric_shim_inet6addr_event,
};
#endif

/**
 * kfabric_shim_addr_notifiers_register - begin to report changes of addresses
 *
 * Context: process, may sleep; RTNL not held.
 * Return: 0, or a negative error number: -EEXIST if they are registered already.
 */
int kfabric_shim_addr_notifiers_register(void)
{
	int ret = register_inetaddr_notifier(&kfabric_shim_inetaddr_notifier);

#if IS_ENABLED(CONFIG_IPV6)
	if (ret)
		return ret;
	ret = register_inet6addr_notifier(&kfabric_shim_inet6addr_notifier);
	if (ret)
		unregister_inetaddr_notifier(&kfabric_shim_inetaddr_notifier);
#endif
	return ret;
}

/**
 * kfabric_shim_addr_notifiers_unregister - end the reports of changes
 *
 * No report is running afterwards. Context: process, may sleep; RTNL not held.
 */
void kfabric_shim_addr_notifiers_unregister(void)
{
#if IS_ENABLED(CONFIG_IPV6)
	unregister_inet6addr_notifier(&kfabric_shim_inet6addr_notifier);
#endif
	unregister_inetaddr_notifier(&kfabric_shim_inetaddr_notifier);
}
