// SPDX-License-Identifier: GPL-2.0
/*
 * Part of the C side of shim/udp.rs: the current addresses of the interfaces of
 * a network namespace, and the rights of the current task there.
 *
 * The functions find the namespace by its sockets, so they search no list of
 * namespaces. If the sockets are open in an RCU read-side section, the tables
 * of interfaces and addresses are valid until the end of that section: the
 * sockets are closed when the namespace's interfaces go. The table of local
 * IPv4 addresses may go before that, but fib_free_table() frees it after a
 * grace period.
 */

#include "udp.h"

#include <linux/capability.h>
#include <linux/inetdevice.h>
#include <linux/netdevice.h>
#include <linux/rcupdate.h>
#include <linux/string.h>
#include <linux/user_namespace.h>
#include <net/addrconf.h>
#include <net/if_inet6.h>
#include <net/ipv6.h>
#include <net/sock.h>

/* The namespace of the sockets; NULL when closed. Context: RCU read side. */
static struct net *kfabric_shim_udp_net(const struct kfabric_shim_udp *udp)
{
	struct sock *sk = rcu_dereference(udp->sk4);

	return sk ? sock_net(sk) : NULL;
}

static struct net_device *
kfabric_shim_udp_netdev(const struct kfabric_shim_udp *udp, u32 ifindex)
{
	struct net *net = kfabric_shim_udp_net(udp);

	return net ? dev_get_by_index_rcu(net, ifindex) : NULL;
}

/*
 * Whether the current task has a capability in the user namespace that owns the
 * network namespace: 1 or 0; -ENODEV if the sockets are closed.
 */
static int kfabric_shim_udp_capable(const struct kfabric_shim_udp *udp, int cap)
{
	struct user_namespace *user_ns = NULL;
	const struct net *net;
	bool capable;

	rcu_read_lock();
	net = kfabric_shim_udp_net(udp);
	/* The namespace has a reference to it, so its count is not 0. */
	if (net)
		user_ns = get_user_ns(net->user_ns);
	rcu_read_unlock();
	if (!user_ns)
		return -ENODEV;
	capable = ns_capable(user_ns, cap);
	put_user_ns(user_ns);
	return capable;
}

/**
 * kfabric_shim_udp_net_raw - whether the current task may see raw packets
 * @udp: the sockets of a namespace
 *
 * Context: process.
 * Return: 1 if it has CAP_NET_RAW in the user namespace that owns the network
 * namespace, 0 if not; -ENODEV if the sockets are closed.
 */
int kfabric_shim_udp_net_raw(const struct kfabric_shim_udp *udp)
{
	return kfabric_shim_udp_capable(udp, CAP_NET_RAW);
}

/**
 * kfabric_shim_udp_may_bind - whether the current task may use a port
 * @udp: the sockets of a namespace
 * @port: the port of a service
 *
 * Context: process.
 * Return: 1 if the port is not privileged (PROT_SOCK), or the task has
 * CAP_NET_BIND_SERVICE in the user namespace that owns the network namespace;
 * 0 if not; -ENODEV if the sockets are closed.
 */
int kfabric_shim_udp_may_bind(const struct kfabric_shim_udp *udp, u16 port)
{
	if (!port || port >= PROT_SOCK)
		return 1;
	return kfabric_shim_udp_capable(udp, CAP_NET_BIND_SERVICE);
}

/**
 * kfabric_shim_udp_first_ipv4 - the first IPv4 address of an interface
 * @udp: the sockets of its namespace
 * @ifindex: its index
 * @addr: out: the address, in network byte order
 *
 * Context: process or softirq.
 * Return: whether there is one.
 */
bool kfabric_shim_udp_first_ipv4(const struct kfabric_shim_udp *udp, u32 ifindex,
				 u8 addr[4])
{
	const struct in_ifaddr *ifa = NULL;
	const struct net_device *dev;
	struct in_device *in_dev;

	rcu_read_lock();
	dev = kfabric_shim_udp_netdev(udp, ifindex);
	in_dev = dev ? __in_dev_get_rcu(dev) : NULL;
	if (in_dev)
		ifa = rcu_dereference(in_dev->ifa_list);
	if (ifa)
		memcpy(addr, &ifa->ifa_local, 4);
	rcu_read_unlock();
	return ifa;
}

/**
 * kfabric_shim_udp_has_ipv4 - whether an interface has an IPv4 address
 * @udp: the sockets of the interface's namespace
 * @ifindex: its index
 * @addr: the address, in network byte order
 *
 * A loopback interface has every address in the subnets of its configured
 * addresses (usually 127.0.0.0/8), as in IPv4 routing.
 *
 * Context: process or softirq.
 * Return: whether it has @addr.
 */
bool kfabric_shim_udp_has_ipv4(const struct kfabric_shim_udp *udp, u32 ifindex,
			       const u8 addr[4])
{
	const struct in_ifaddr *ifa;
	const struct net_device *dev;
	struct in_device *in_dev;
	bool has = false;
	__be32 want;

	memcpy(&want, addr, 4);
	rcu_read_lock();
	dev = kfabric_shim_udp_netdev(udp, ifindex);
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

/**
 * kfabric_shim_udp_find_ipv4 - an interface that has an IPv4 address
 * @udp: the sockets of a namespace
 * @addr: the address, in network byte order
 *
 * This is the kernel's own look-up, which takes no lock and whose time does not
 * depend on the number of interfaces. If several interfaces have the address,
 * it finds one of them. It may find an interface that has the address by a
 * route only.
 *
 * Context: process or softirq.
 * Return: its index, or 0.
 */
u32 kfabric_shim_udp_find_ipv4(const struct kfabric_shim_udp *udp,
			       const u8 addr[4])
{
	const struct net_device *dev = NULL;
	u32 ifindex = 0;
	struct net *net;
	__be32 want;

	memcpy(&want, addr, 4);
	rcu_read_lock();
	net = kfabric_shim_udp_net(udp);
	if (net)
		dev = __ip_dev_find(net, want, false);
	if (dev)
		ifindex = dev->ifindex;
	rcu_read_unlock();
	return ifindex;
}

#if IS_ENABLED(CONFIG_IPV6)
/* Whether duplicate address detection allows the use of an address. */
static bool kfabric_shim_ipv6_usable(const struct inet6_ifaddr *ifa)
{
	u32 flags = READ_ONCE(ifa->flags);

	if (flags & IFA_F_DADFAILED)
		return false;
	return !(flags & IFA_F_TENTATIVE) || (flags & IFA_F_OPTIMISTIC);
}
#endif

/**
 * kfabric_shim_udp_first_ipv6 - the first IPv6 address of an interface
 * @udp: the sockets of its namespace
 * @ifindex: its index
 * @addr: out: the address
 *
 * The kernel sorts the addresses by scope: a global one comes before a
 * link-local one.
 *
 * Context: process or softirq.
 * Return: whether there is one.
 */
bool kfabric_shim_udp_first_ipv6(const struct kfabric_shim_udp *udp, u32 ifindex,
				 u8 addr[16])
{
	bool found = false;
#if IS_ENABLED(CONFIG_IPV6)
	const struct inet6_ifaddr *ifa;
	const struct net_device *dev;
	struct inet6_dev *idev;

	rcu_read_lock();
	dev = kfabric_shim_udp_netdev(udp, ifindex);
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
 * kfabric_shim_udp_has_ipv6 - whether an interface has a usable IPv6 address
 * @udp: the sockets of the interface's namespace
 * @ifindex: its index
 * @addr: the address
 *
 * Context: process or softirq.
 * Return: whether it has @addr.
 */
bool kfabric_shim_udp_has_ipv6(const struct kfabric_shim_udp *udp, u32 ifindex,
			       const u8 addr[16])
{
	bool has = false;
#if IS_ENABLED(CONFIG_IPV6)
	const struct inet6_ifaddr *ifa;
	const struct net_device *dev;
	struct inet6_dev *idev;
	struct in6_addr want;

	memcpy(&want, addr, 16);
	rcu_read_lock();
	dev = kfabric_shim_udp_netdev(udp, ifindex);
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

/**
 * kfabric_shim_udp_find_ipv6 - an interface that has an IPv6 address
 * @udp: the sockets of a namespace
 * @addr: the address
 *
 * As kfabric_shim_udp_find_ipv4(), but finds no interface that is in a VRF.
 *
 * Context: process or softirq.
 * Return: its index, or 0.
 */
u32 kfabric_shim_udp_find_ipv6(const struct kfabric_shim_udp *udp,
			       const u8 addr[16])
{
	u32 ifindex = 0;
#if IS_ENABLED(CONFIG_IPV6)
	const struct net_device *dev = NULL;
	struct in6_addr want;
	struct sock *sk;

	memcpy(&want, addr, 16);
	rcu_read_lock();
	/*
	 * Use the IPv6 socket, because a kernel that was booted with
	 * ipv6.disable=1 has no table of IPv6 addresses, and no such socket.
	 */
	sk = rcu_dereference(udp->sk6);
	if (sk)
		dev = ipv6_dev_find(sock_net(sk), &want, NULL);
	if (dev)
		ifindex = dev->ifindex;
	rcu_read_unlock();
#endif
	return ifindex;
}
