/* SPDX-License-Identifier: GPL-2.0 */
/*
 * UDP sockets, routes and addresses as the Rust code of this module sees them.
 *
 * Part of bindings.h; the functions are defined and documented in udp.c and
 * addr.c.
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
 * So many bytes from the UDP header on, if there are so many, lie in the linear
 * part of a packet that is received: room for all headers of RoCE.
 */
#define KFABRIC_SHIM_RX_HEAD	64

/**
 * struct kfabric_shim_udp - the sockets of a network namespace, and their routes
 * @sk4: that for IPv4; NULL when closed
 * @sk6: that for IPv6; NULL when closed, and without IPv6
 * @receive: gets what arrives at either, in softirq and an RCU read-side section;
 *	the packet is its
 * @data: first argument of @receive
 * @lock: of @routes, @closed and the routes' dst
 * @routes: of struct kfabric_shim_route
 * @closed: no route is remembered any more
 */
struct kfabric_shim_udp {
	struct sock *sk4;
	struct sock *sk6;
	void (*receive)(void *data, struct sk_buff *skb);
	void *data;
	/* Of what follows; a leaf, taken in softirq. */
	spinlock_t lock;
	struct list_head routes;
	bool closed;
};

/**
 * struct kfabric_shim_route - the way to a peer, as routing had it last
 * @node: in the list of @udp
 * @udp: the sockets that are sent from
 * @dst: the route, or NULL
 * @cookie: what tells whether @dst holds still
 * @ifindex: the interface to leave by
 * @ipv6: the addresses are IPv6
 * @from: own address, in the order of the wire; 4 or 16 bytes
 * @to: the peer's
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
void kfabric_shim_udp_close(struct kfabric_shim_udp *udp);

void kfabric_shim_route_init(struct kfabric_shim_route *route,
			     struct kfabric_shim_udp *udp);
void kfabric_shim_route_exit(struct kfabric_shim_route *route);
u32 kfabric_shim_route_mtu(struct kfabric_shim_route *route);
int kfabric_shim_route_check(struct kfabric_shim_route *route);
int kfabric_shim_route_send(struct kfabric_shim_route *route,
			    struct sk_buff *skb);

#ifdef KFI_KUNIT
int kfabric_shim_kunit_route_look_up(struct kfabric_shim_route *route);
#endif

/* Addresses of interfaces: addr.c. */
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

#endif /* _KFABRIC_SHIM_UDP_H */
