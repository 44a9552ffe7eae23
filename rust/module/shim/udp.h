/* SPDX-License-Identifier: GPL-2.0 */
/*
 * UDP sockets, routes and addresses: declarations for the Rust code of this
 * module.
 *
 * Part of bindings.h; the functions are documented in udp.c, route.c, addr.c and
 * addr_change.c.
 */
#ifndef _KFABRIC_SHIM_UDP_H
#define _KFABRIC_SHIM_UDP_H

#include <linux/list.h>
#include <linux/spinlock.h>
#include <linux/types.h>

struct dst_entry;
struct net;
struct sk_buff;
struct sock;

/*
 * Number of bytes, from the UDP header on, that are in the linear part of a
 * received packet, if it has that many. All headers of RoCE fit.
 */
#define KFABRIC_SHIM_RX_HEAD	64

/**
 * struct kfabric_shim_udp - the sockets of a network namespace, and their routes
 * @sk4: the IPv4 socket, bound to no interface; NULL when closed
 * @sk6: the IPv6 socket; NULL when closed, and without IPv6
 * @receive: called with each packet received by either, in softirq and an RCU
 * read-side section; it takes over the packet
 * @addrs_changed: called after an address of the namespace has changed, in any
 * context and an RCU read-side section
 * @data: first argument of both
 * @watched: entry in the table of addr_change.c
 * @net: the namespace; compared, but never dereferenced
 * @lock: protects @routes, @closed and the routes' dst
 * @vrfs: list of struct kfabric_shim_vrf, protected by the RTNL
 * @routes: list of struct kfabric_shim_route
 * @closed: no route is cached any more
 */
struct kfabric_shim_udp {
	struct sock *sk4;
	struct sock *sk6;
	void (*receive)(void *data, struct sk_buff *skb);
	void (*addrs_changed)(void *data);
	void *data;
	struct hlist_node watched;
	const struct net *net;
	struct list_head vrfs;
	/* Protects the following fields; a leaf, taken in softirq. */
	spinlock_t lock;
	struct list_head routes;
	bool closed;
};

/**
 * struct kfabric_shim_route - a route to a peer, cached
 * @node: entry in the list of @udp
 * @udp: the sockets that send
 * @dst: the cached route, or NULL
 * @cookie: validates @dst
 * @ifindex: the outgoing interface
 * @ipv6: whether the addresses are IPv6
 * @from: the local address, in network byte order; 4 or 16 bytes
 * @to: the peer's address
 */
struct kfabric_shim_route {
	struct list_head node;
	struct kfabric_shim_udp *udp;
	struct dst_entry *dst;
	u32 cookie;
	u32 ifindex;
	bool ipv6;
	u8 from[16];
	u8 to[16];
};

void kfabric_shim_udp_init(struct kfabric_shim_udp *udp);
int kfabric_shim_udp_open(struct kfabric_shim_udp *udp, struct net *net,
			  u16 port);
int kfabric_shim_udp_open_vrf(struct kfabric_shim_udp *udp, u32 ifindex);
void kfabric_shim_udp_close_vrf(struct kfabric_shim_udp *udp, u32 ifindex);
void kfabric_shim_udp_close(struct kfabric_shim_udp *udp);

void kfabric_shim_route_init(struct kfabric_shim_route *route,
			     struct kfabric_shim_udp *udp);
void kfabric_shim_route_exit(struct kfabric_shim_route *route);
bool kfabric_shim_route_is_valid(struct kfabric_shim_route *route);

/* The state of the hardware address of a next hop, and a flag. */
#define KFABRIC_SHIM_HOP_UNKNOWN	0
#define KFABRIC_SHIM_HOP_PENDING	1
#define KFABRIC_SHIM_HOP_KNOWN		2
#define KFABRIC_SHIM_HOP_ROUTER		4

u32 kfabric_shim_route_next_hop(struct kfabric_shim_route *route, bool begin);
int kfabric_shim_route_find(struct kfabric_shim_route *route, bool again,
			    u32 *mtu);
int kfabric_shim_route_send(struct kfabric_shim_route *route,
			    struct sk_buff *skb);

/* Addresses of interfaces, and rights in the namespace: addr.c. */
int kfabric_shim_udp_net_raw(const struct kfabric_shim_udp *udp);
int kfabric_shim_udp_may_bind(const struct kfabric_shim_udp *udp, u16 port);
bool kfabric_shim_udp_first_ipv4(const struct kfabric_shim_udp *udp, u32 ifindex,
				 u8 addr[4]);
bool kfabric_shim_udp_has_ipv4(const struct kfabric_shim_udp *udp, u32 ifindex,
			       const u8 addr[4]);
u32 kfabric_shim_udp_find_ipv4(const struct kfabric_shim_udp *udp,
			       const u8 addr[4]);
bool kfabric_shim_udp_first_ipv6(const struct kfabric_shim_udp *udp, u32 ifindex,
				 u8 addr[16]);
bool kfabric_shim_udp_has_ipv6(const struct kfabric_shim_udp *udp, u32 ifindex,
			       const u8 addr[16]);
u32 kfabric_shim_udp_find_ipv6(const struct kfabric_shim_udp *udp,
			       const u8 addr[16]);

/* Changes of addresses: addr_change.c. */
void kfabric_shim_addr_watch(struct kfabric_shim_udp *udp, struct net *net);
void kfabric_shim_addr_unwatch(struct kfabric_shim_udp *udp);
int kfabric_shim_addr_notifiers_register(void);
void kfabric_shim_addr_notifiers_unregister(void);

#endif /* _KFABRIC_SHIM_UDP_H */
