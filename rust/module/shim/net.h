/* SPDX-License-Identifier: GPL-2.0 */
/*
 * The kernel's networking: declarations for the Rust code of this module.
 *
 * Part of bindings.h; the functions are documented in net.c. An interface is
 * identified by the cookie of its network namespace and its index, so nothing
 * here keeps an interface or a namespace alive.
 */
#ifndef _KFABRIC_SHIM_NET_H
#define _KFABRIC_SHIM_NET_H

#include <linux/types.h>

struct net;
struct notifier_block;

#define KFABRIC_SHIM_IFNAMSIZ	16

/**
 * struct kfabric_shim_netdev - the properties of an interface
 * @netns: cookie of its network namespace
 * @ifindex: index in that namespace
 * @mtu: MTU, bytes
 * @vrf: index of its VRF (its L3 master device, which may be itself), or 0
 * @up: it is administratively up
 * @name: NUL-terminated
 */
struct kfabric_shim_netdev {
	u64 netns;
	u32 ifindex;
	u32 mtu;
	u32 vrf;
	bool up;
	char name[KFABRIC_SHIM_IFNAMSIZ];
};

/* The kind of an event of a notifier. */
enum kfabric_shim_netdev_event {
	KFABRIC_SHIM_NETDEV_OTHER,
	KFABRIC_SHIM_NETDEV_CHANGED,
	KFABRIC_SHIM_NETDEV_GONE,
};

/* Network namespaces. */
struct net *kfabric_shim_net_get_current(void);
void kfabric_shim_net_get(struct net *net);
void kfabric_shim_net_put(struct net *net);
u64 kfabric_shim_net_cookie(const struct net *net);
u64 kfabric_shim_net_current_cookie(void);
bool kfabric_shim_net_admin(const struct net *net);

/* Interfaces. */
void kfabric_shim_rtnl_lock(void);
void kfabric_shim_rtnl_unlock(void);
bool kfabric_shim_netdev_find(struct net *net, const char *name,
			      struct kfabric_shim_netdev *to);
int kfabric_shim_netdev_notifier_register(struct notifier_block *nb);
void kfabric_shim_netdev_notifier_unregister(struct notifier_block *nb);
enum kfabric_shim_netdev_event
kfabric_shim_netdev_event(unsigned long event, void *info,
			  struct kfabric_shim_netdev *to);

#endif /* _KFABRIC_SHIM_NET_H */
