// SPDX-License-Identifier: GPL-2.0
/*
 * The C side of shim/net.rs: namespaces, interfaces, addresses, per-CPU figures.
 *
 * Here because they are macros and inline functions, or headers that the kernel
 * crate does not bind.  No decisions are taken here, and no state is kept.
 */

#include "net.h"

#include <linux/capability.h>
#include <linux/inetdevice.h>
#include <linux/netdevice.h>
#include <linux/nsproxy.h>
#include <linux/percpu.h>
#include <linux/preempt.h>
#include <linux/rtnetlink.h>
#include <linux/sched.h>
#include <linux/string.h>
#include <net/addrconf.h>
#include <net/if_inet6.h>
#include <net/ipv6.h>
#include <net/net_namespace.h>

static_assert(KFABRIC_SHIM_IFNAMSIZ == IFNAMSIZ);

/**
 * kfabric_shim_net_get_current - current's network namespace
 *
 * Context: process. Return: the namespace with a reference added, or NULL for a
 * task that is past its namespaces (a file's last release in an exiting task).
 */
struct net *kfabric_shim_net_get_current(void)
{
	struct nsproxy *nsproxy = current->nsproxy;

	return nsproxy ? get_net(nsproxy->net_ns) : NULL;
}

/**
 * kfabric_shim_net_put - a reference given back
 * @net: the namespace
 *
 * Context: any; the work of the last reference is deferred.
 */
void kfabric_shim_net_put(struct net *net)
{
	put_net(net);
}

/**
 * kfabric_shim_net_cookie - the number of a namespace
 * @net: the namespace
 *
 * Return: its cookie: not 0, and never given to another.
 */
u64 kfabric_shim_net_cookie(const struct net *net)
{
	return net->net_cookie;
}

/**
 * kfabric_shim_net_current_cookie - the number of current's network namespace
 *
 * Context: process. Return: its cookie; 0 where kfabric_shim_net_get_current()
 * gives NULL.
 */
u64 kfabric_shim_net_current_cookie(void)
{
	struct nsproxy *nsproxy = current->nsproxy;

	return nsproxy ? nsproxy->net_ns->net_cookie : 0;
}

/**
 * kfabric_shim_net_admin - may current administer a namespace?
 * @net: a namespace to which the caller has a reference
 *
 * Context: process. Return: whether current has CAP_NET_ADMIN in the user
 * namespace that owns @net.
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
 * kfabric_shim_rtnl_unlock - give the RTNL back
 *
 * Finishes the removal of interfaces that went meanwhile, so it may sleep.
 */
void kfabric_shim_rtnl_unlock(void)
{
	rtnl_unlock();
}

static void kfabric_shim_netdev_describe(const struct net_device *dev,
					 struct kfabric_shim_netdev *to)
{
	to->netns = dev_net(dev)->net_cookie;
	to->ifindex = dev->ifindex;
	to->mtu = READ_ONCE(dev->mtu);
	to->up = dev->flags & IFF_UP;
	strscpy_pad(to->name, dev->name);
}

/**
 * kfabric_shim_netdev_find - an interface by its name
 * @net: its namespace
 * @name: its name or one of its alternative names
 * @to: out
 *
 * Context: process, RTNL held. Return: whether there is one.
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
 * kfabric_shim_netdev_notifier_register - be told what happens to interfaces
 * @nb: the notifier
 *
 * Tells at once of all that there are. Context: process, RTNL not held.
 */
int kfabric_shim_netdev_notifier_register(struct notifier_block *nb)
{
	return register_netdevice_notifier(nb);
}

/**
 * kfabric_shim_netdev_notifier_unregister - be told no more
 * @nb: the notifier
 *
 * First tells that all there are have gone. No call is in flight afterwards.
 * Context: process, RTNL not held.
 */
void kfabric_shim_netdev_notifier_unregister(struct notifier_block *nb)
{
	unregister_netdevice_notifier(nb);
}

/**
 * kfabric_shim_netdev_event - what a notifier was told, in short
 * @event: its argument (NETDEV_*)
 * @info: its argument
 * @to: out: the interface, unless the result is %KFABRIC_SHIM_NETDEV_OTHER
 *
 * Context: in a netdevice notifier.
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
		kfabric_shim_netdev_describe(netdev_notifier_info_to_dev(info), to);
		/* Also told of interfaces that are up, by unregistration. */
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

/*
 * The interface with @ifindex in the namespace with the cookie @netns, as long as
 * the caller stays in its RCU read-side section; or NULL.
 *
 * A namespace that is seen here still has its tables of interfaces: current's own
 * cannot end meanwhile, and when another ends, a grace period lies between its
 * leaving the list and the end of its tables.
 */
static struct net_device *kfabric_shim_netdev_rcu(u64 netns, u32 ifindex)
{
	struct net *net;

	/* Nearly always the caller's own: no need to look through all. */
	if (in_task() && current->nsproxy) {
		net = current->nsproxy->net_ns;
		if (net->net_cookie == netns)
			return dev_get_by_index_rcu(net, ifindex);
	}
	for_each_net_rcu(net) {
		if (net->net_cookie == netns)
			return dev_get_by_index_rcu(net, ifindex);
	}
	return NULL;
}

/**
 * kfabric_shim_netdev_first_ipv4 - the first IPv4 address of an interface
 * @netns: cookie of its namespace
 * @ifindex: its index
 * @addr: out: the address, in the order of the wire
 *
 * Context: process or softirq. Return: whether there is one.
 */
bool kfabric_shim_netdev_first_ipv4(u64 netns, u32 ifindex, u8 addr[4])
{
	const struct in_ifaddr *ifa = NULL;
	const struct net_device *dev;
	struct in_device *in_dev;

	rcu_read_lock();
	dev = kfabric_shim_netdev_rcu(netns, ifindex);
	in_dev = dev ? __in_dev_get_rcu(dev) : NULL;
	if (in_dev)
		ifa = rcu_dereference(in_dev->ifa_list);
	if (ifa)
		memcpy(addr, &ifa->ifa_local, 4);
	rcu_read_unlock();
	return ifa;
}

/**
 * kfabric_shim_netdev_has_ipv4 - is an IPv4 address this interface's?
 * @netns: cookie of the interface's namespace
 * @ifindex: its index
 * @addr: the address, in the order of the wire
 *
 * On a loopback interface every address in the subnet of a configured one is its
 * own, as IPv4 routing has it: 127.0.0.0/8, as a rule.
 *
 * Context: process or softirq.
 */
bool kfabric_shim_netdev_has_ipv4(u64 netns, u32 ifindex, const u8 addr[4])
{
	const struct in_ifaddr *ifa;
	const struct net_device *dev;
	struct in_device *in_dev;
	bool has = false;
	__be32 want;

	memcpy(&want, addr, 4);
	rcu_read_lock();
	dev = kfabric_shim_netdev_rcu(netns, ifindex);
	in_dev = dev ? __in_dev_get_rcu(dev) : NULL;
	if (in_dev) {
		in_dev_for_each_ifa_rcu(ifa, in_dev) {
			has = want == ifa->ifa_local ||
			      ((dev->flags & IFF_LOOPBACK) &&
			       inet_ifa_match(want, ifa));
			if (has)
				break;
		}
	}
	rcu_read_unlock();
	return has;
}

#if IS_ENABLED(CONFIG_IPV6)
/* An address that duplicate address detection has not admitted is not there yet. */
static bool kfabric_shim_ipv6_usable(const struct inet6_ifaddr *ifa)
{
	u32 flags = READ_ONCE(ifa->flags);

	if (flags & IFA_F_DADFAILED)
		return false;
	return !(flags & IFA_F_TENTATIVE) || (flags & IFA_F_OPTIMISTIC);
}
#endif

/**
 * kfabric_shim_netdev_first_ipv6 - the first IPv6 address of an interface
 * @netns: cookie of its namespace
 * @ifindex: its index
 * @addr: out: the address
 *
 * The kernel keeps them by scope, so a global one comes before a link-local one.
 *
 * Context: process or softirq. Return: whether there is one.
 */
bool kfabric_shim_netdev_first_ipv6(u64 netns, u32 ifindex, u8 addr[16])
{
	bool found = false;
#if IS_ENABLED(CONFIG_IPV6)
	const struct inet6_ifaddr *ifa;
	const struct net_device *dev;
	struct inet6_dev *idev;

	rcu_read_lock();
	dev = kfabric_shim_netdev_rcu(netns, ifindex);
	idev = dev ? __in6_dev_get(dev) : NULL;
	if (idev) {
		list_for_each_entry_rcu(ifa, &idev->addr_list, if_list) {
			found = kfabric_shim_ipv6_usable(ifa);
			if (found) {
				memcpy(addr, &ifa->addr, 16);
				break;
			}
		}
	}
	rcu_read_unlock();
#endif
	return found;
}

/**
 * kfabric_shim_netdev_has_ipv6 - is an IPv6 address this interface's?
 * @netns: cookie of the interface's namespace
 * @ifindex: its index
 * @addr: the address
 *
 * Context: process or softirq.
 */
bool kfabric_shim_netdev_has_ipv6(u64 netns, u32 ifindex, const u8 addr[16])
{
	bool has = false;
#if IS_ENABLED(CONFIG_IPV6)
	const struct inet6_ifaddr *ifa;
	const struct net_device *dev;
	struct inet6_dev *idev;
	struct in6_addr want;

	memcpy(&want, addr, 16);
	rcu_read_lock();
	dev = kfabric_shim_netdev_rcu(netns, ifindex);
	idev = dev ? __in6_dev_get(dev) : NULL;
	if (idev) {
		list_for_each_entry_rcu(ifa, &idev->addr_list, if_list) {
			has = ipv6_addr_equal(&want, &ifa->addr) &&
			      kfabric_shim_ipv6_usable(ifa);
			if (has)
				break;
		}
	}
	rcu_read_unlock();
#endif
	return has;
}

/* Cast through an integer: see kfabric_shim_figures_percpu(). */
static struct kfabric_shim_traffic __percpu *
kfabric_shim_traffic_percpu(const struct kfabric_shim_traffic *traffic)
{
	return (struct kfabric_shim_traffic __percpu __force *)(unsigned long)traffic;
}

/**
 * kfabric_shim_traffic_alloc - per-CPU figures, all 0
 *
 * Context: process, may sleep. Return: the figures, to be used with the functions
 * below only; NULL if there is no memory.
 */
struct kfabric_shim_traffic *kfabric_shim_traffic_alloc(void)
{
	return (struct kfabric_shim_traffic *)(__force unsigned long)
		alloc_percpu_gfp(struct kfabric_shim_traffic, GFP_KERNEL_ACCOUNT);
}

/**
 * kfabric_shim_traffic_free - the figures given back
 * @traffic: what kfabric_shim_traffic_alloc() gave
 *
 * Context: any.
 */
void kfabric_shim_traffic_free(struct kfabric_shim_traffic *traffic)
{
	free_percpu(kfabric_shim_traffic_percpu(traffic));
}

/**
 * kfabric_shim_traffic_tx - count an operation that was sent
 * @traffic: what kfabric_shim_traffic_alloc() gave
 * @bytes: its bytes
 *
 * Context: any.
 */
void kfabric_shim_traffic_tx(struct kfabric_shim_traffic *traffic, u64 bytes)
{
	struct kfabric_shim_traffic __percpu *t = kfabric_shim_traffic_percpu(traffic);

	this_cpu_inc(t->tx_ops);
	this_cpu_add(t->tx_bytes, bytes);
}

/**
 * kfabric_shim_traffic_rx - count an operation that arrived
 * @traffic: what kfabric_shim_traffic_alloc() gave
 * @bytes: its bytes
 *
 * Context: any.
 */
void kfabric_shim_traffic_rx(struct kfabric_shim_traffic *traffic, u64 bytes)
{
	struct kfabric_shim_traffic __percpu *t = kfabric_shim_traffic_percpu(traffic);

	this_cpu_inc(t->rx_ops);
	this_cpu_add(t->rx_bytes, bytes);
}

/**
 * kfabric_shim_traffic_sum - the figures of all CPUs together
 * @traffic: what kfabric_shim_traffic_alloc() gave
 * @sum: out: each figure is right for some moment during the call
 *
 * Context: any.
 */
void kfabric_shim_traffic_sum(const struct kfabric_shim_traffic *traffic,
			      struct kfabric_shim_traffic *sum)
{
	const struct kfabric_shim_traffic *one;
	int cpu;

	memset(sum, 0, sizeof(*sum));
	for_each_possible_cpu(cpu) {
		one = per_cpu_ptr(kfabric_shim_traffic_percpu(traffic), cpu);
		sum->tx_ops += READ_ONCE(one->tx_ops);
		sum->tx_bytes += READ_ONCE(one->tx_bytes);
		sum->rx_ops += READ_ONCE(one->rx_ops);
		sum->rx_bytes += READ_ONCE(one->rx_bytes);
	}
}
