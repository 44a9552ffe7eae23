// SPDX-License-Identifier: GPL-2.0
/*
 * Part of the C side of shim/udp.rs: the routes by which packets leave through
 * the sockets of a network namespace.
 *
 * A route is looked up as for a socket that is bound to the local address and
 * to the link's interface: packets leave by that interface, or stay on this
 * host if the peer's address is one of its own in the same VRF. One thing is
 * different: for such a socket, routing takes a destination without a route as
 * on-link over IPv4; here there is no route then, as over IPv6. Rules see the
 * destination port, which is the same at all peers, and no source port.
 *
 * A route (a dst) is cached as long as the kernel takes it as valid. See udp.c
 * for its lifetime.
 */

#include "udp.h"

#include <linux/err.h>
#include <linux/ip.h>
#include <linux/ipv6.h>
#include <linux/netdevice.h>
#include <linux/rcupdate.h>
#include <linux/skbuff.h>
#include <linux/string.h>
#include <net/arp.h>
#include <net/dst.h>
#include <net/flow.h>
#include <net/ip.h>
#include <net/ip6_fib.h>
#include <net/ip6_route.h>
#include <net/ip_fib.h>
#include <net/ipv6.h>
#include <net/l3mdev.h>
#include <net/ndisc.h>
#include <net/neighbour.h>
#include <net/route.h>
#include <net/sock.h>
#include <net/udp.h>
#include <net/xfrm.h>

/* How often a look-up is repeated because the routes have changed meanwhile. */
#define KFABRIC_SHIM_ROUTE_TRIES 8

/**
 * kfabric_shim_route_init - initialise a route to a peer, without a look-up
 * @route: interface and addresses are set
 * @udp: the sockets, which outlive the route
 */
void kfabric_shim_route_init(struct kfabric_shim_route *route,
			     struct kfabric_shim_udp *udp)
{
	route->udp = udp;
	route->dst = NULL;
	spin_lock_bh(&udp->lock);
	list_add_tail(&route->node, &udp->routes);
	spin_unlock_bh(&udp->lock);
}

/**
 * kfabric_shim_route_exit - release a route to a peer
 * @route: the route; nothing uses it any more
 */
void kfabric_shim_route_exit(struct kfabric_shim_route *route)
{
	spin_lock_bh(&route->udp->lock);
	list_del(&route->node);
	spin_unlock_bh(&route->udp->lock);
	dst_release(route->dst);
}

/*
 * Looks up a flow. If @local, only a destination on this host is wanted.
 *
 * ip_route_output_flow() alone takes a destination without a route as on-link
 * if the flow names an interface, so the tables are asked before. If the routes
 * change between both look-ups, both are repeated.
 * Return: a dst, an ERR_PTR, or NULL if @local and the destination is elsewhere.
 */
static struct dst_entry *kfabric_shim_route_output4(struct sock *sk,
						    const struct flowi4 *flow,
						    bool local)
{
	struct net *net = sock_net(sk);
	struct fib_result res = {};
	unsigned int tries;
	struct flowi4 fl4;
	struct rtable *rt;
	int genid;
	int ret;

	for (tries = 0; tries < KFABRIC_SHIM_ROUTE_TRIES; tries++) {
		genid = rt_genid_ipv4(net);
		fl4 = *flow;
		ret = fib_lookup(net, &fl4, &res, 0);
		/* The subnets of interfaces determine broadcast addresses. */
		if (!ret && (res.type == RTN_BROADCAST ||
			     res.type == RTN_MULTICAST))
			return ERR_PTR(-EADDRNOTAVAIL);
		if (local && (ret || res.type != RTN_LOCAL))
			return NULL;
		if (ret)
			return ERR_PTR(ret);
		fl4 = *flow;
		rt = ip_route_output_flow(net, &fl4, sk);
		if (IS_ERR(rt))
			return ERR_CAST(rt);
		if (genid == rt_genid_ipv4(net))
			return &rt->dst;
		dst_release(&rt->dst);
	}
	/*
	 * The routes change all the time. The caller asks again with its next
	 * packet.
	 */
	return ERR_PTR(-ENETUNREACH);
}

/* @vrf: the index of the VRF of the interface, or 0. In an RCU section. */
static struct dst_entry *
kfabric_shim_route_find4(const struct kfabric_shim_route *route,
			 struct sock *sk, u32 vrf)
{
	struct flowi4 fl4 = {
		.flowi4_oif = vrf,
		.flowi4_iif = LOOPBACK_IFINDEX,
		.flowi4_proto = IPPROTO_UDP,
		.fl4_dport = inet_sk(sk)->inet_sport,
	};
	struct dst_entry *dst;

	memcpy(&fl4.saddr, route->from, 4);
	memcpy(&fl4.daddr, route->to, 4);
	dst = kfabric_shim_route_output4(sk, &fl4, true);
	if (dst)
		return dst;
	fl4.flowi4_oif = route->ifindex;
	return kfabric_shim_route_output4(sk, &fl4, false);
}

#if IS_ENABLED(CONFIG_IPV6)
/* Looks up the route by the interface @oif. Return: a dst, without an error. */
static struct dst_entry *
kfabric_shim_route_output6(const struct kfabric_shim_route *route,
			   struct sock *sk, u32 oif, int flags,
			   struct flowi6 *fl6)
{
	struct dst_entry *dst;
	int ret;

	*fl6 = (struct flowi6) {
		.flowi6_oif = oif,
		.flowi6_proto = IPPROTO_UDP,
		.fl6_dport = inet_sk(sk)->inet_sport,
	};
	memcpy(&fl6->saddr, route->from, 16);
	memcpy(&fl6->daddr, route->to, 16);
	dst = ip6_route_output_flags(sock_net(sk), sk, fl6, flags);
	ret = dst->error;
	if (!ret)
		return dst;
	dst_release(dst);
	return ERR_PTR(ret);
}
#endif

static struct dst_entry *
kfabric_shim_route_find6(const struct kfabric_shim_route *route,
			 struct sock *sk, u32 vrf, u32 *cookie)
{
#if IS_ENABLED(CONFIG_IPV6)
	struct dst_entry *dst = ERR_PTR(-ENETUNREACH);
	struct in6_addr to;
	struct flowi6 fl6;

	memcpy(&to, route->to, sizeof(to));
	/* A link-local address belongs to an interface. */
	if (!(ipv6_addr_type(&to) & IPV6_ADDR_LINKLOCAL)) {
		dst = kfabric_shim_route_output6(route, sk, vrf, 0, &fl6);
		if (!IS_ERR(dst) &&
		    !(dst_rt6_info(dst)->rt6i_flags & RTF_LOCAL)) {
			dst_release(dst);
			dst = ERR_PTR(-ENETUNREACH);
		}
	}
	/*
	 * By the interface only. This look-up passes routes that refuse, whose
	 * interface is another one, so the error of the first one is final.
	 */
	if (dst == ERR_PTR(-ENETUNREACH))
		dst = kfabric_shim_route_output6(route, sk, route->ifindex,
						 RT6_LOOKUP_F_IFACE, &fl6);
	if (!IS_ERR(dst))
		dst = xfrm_lookup_route(sock_net(sk), dst,
					flowi6_to_flowi(&fl6), sk, 0);
	if (!IS_ERR(dst))
		*cookie = rt6_get_cookie(dst_rt6_info(dst));
	return dst;
#else
	return ERR_PTR(-EAFNOSUPPORT);
#endif
}

/*
 * Caches @dst in the route, and takes over the caller's reference to it.
 * Return: false if the sockets are closed; @dst is released then.
 *
 * Routing returns the same dst for the same path.  So a concurrent look-up for
 * this route may have cached @dst already: then there are two references, and
 * one is released here.
 */
static bool kfabric_shim_route_keep(struct kfabric_shim_route *route,
				    struct dst_entry *dst, u32 cookie)
{
	struct kfabric_shim_udp *udp = route->udp;
	struct dst_entry *old = dst;
	bool keep;

	spin_lock_bh(&udp->lock);
	keep = !udp->closed;
	if (keep) {
		old = route->dst;
		WRITE_ONCE(route->cookie, cookie);
		rcu_assign_pointer(route->dst, dst);
	}
	spin_unlock_bh(&udp->lock);
	/*
	 * A dst is freed after a grace period, so one in use may be released.
	 */
	dst_release(old);
	return keep;
}

/*
 * Looks the route up again, and caches it. In an RCU read-side section. Return:
 * as kfabric_shim_route_dst().
 */
static struct dst_entry *
kfabric_shim_route_look_up(struct kfabric_shim_route *route, struct sock *sk)
{
	u32 vrf = l3mdev_master_ifindex_by_index(sock_net(sk), route->ifindex);
	struct dst_entry *dst;
	u32 cookie = 0;

	dst = route->ipv6 ? kfabric_shim_route_find6(route, sk, vrf, &cookie) :
			    kfabric_shim_route_find4(route, sk, vrf);
	if (IS_ERR(dst))
		return dst;
	if (!kfabric_shim_route_keep(route, dst, cookie))
		return ERR_PTR(-ENETDOWN);
	return dst;
}

/*
 * The dst of the route, valid until the end of the caller's RCU read-side
 * section; or an ERR_PTR. @sk is NULL if the sockets are closed.
 */
static struct dst_entry *
kfabric_shim_route_dst(struct kfabric_shim_route *route, struct sock *sk)
{
	struct dst_entry *dst = rcu_dereference(route->dst);

	if (!sk)
		return ERR_PTR(-ENETDOWN);
	if (dst && dst_check(dst, READ_ONCE(route->cookie)))
		return dst;
	return kfabric_shim_route_look_up(route, sk);
}

/*
 * The socket of a route, valid until the end of the read-side section; or NULL.
 */
static struct sock *kfabric_shim_route_sk(const struct kfabric_shim_route *route)
{
	return route->ipv6 ? rcu_dereference(route->udp->sk6) :
			     rcu_dereference(route->udp->sk4);
}

/* Whether packets by @dst stay on this host. */
static bool kfabric_shim_route_is_local(const struct kfabric_shim_route *route,
					const struct dst_entry *dst)
{
#if IS_ENABLED(CONFIG_IPV6)
	if (route->ipv6)
		return dst_rt6_info(dst)->rt6i_flags & RTF_LOCAL;
#endif
	return dst_rtable(dst)->rt_flags & RTCF_LOCAL;
}

/**
 * kfabric_shim_route_is_valid - whether the cached route is valid
 * @route: the route
 *
 * Looks nothing up, and takes no lock. Context: process or softirq.
 *
 * Return: false also if none is cached.
 */
bool kfabric_shim_route_is_valid(struct kfabric_shim_route *route)
{
	struct dst_entry *dst;
	bool valid;

	rcu_read_lock();
	dst = rcu_dereference(route->dst);
	valid = dst && dst_check(dst, READ_ONCE(route->cookie));
	rcu_read_unlock();
	return valid;
}

/*
 * The neighbour that is the next hop of @dst, with a reference; or NULL if there
 * is none. In an RCU read-side section.
 */
static struct neighbour *
kfabric_shim_route_neigh(const struct kfabric_shim_route *route,
			 const struct dst_entry *dst)
{
	struct in6_addr to = {};
	__be32 hop;

	memcpy(&to, route->to, sizeof(route->to));
#ifdef CONFIG_XFRM
	/* The next hop is that of the outermost dst. */
	if (dst->xfrm)
		return dst_neigh_lookup(dst, &to);
#endif
#if IS_ENABLED(CONFIG_IPV6)
	if (route->ipv6)
		return __ipv6_neigh_lookup(dst->dev,
					   rt6_nexthop(dst_rt6_info(dst), &to));
	if (dst_rtable(dst)->rt_gw_family == AF_INET6)
		return __ipv6_neigh_lookup(dst->dev, &dst_rtable(dst)->rt_gw6);
#endif
	hop = rt_nexthop(dst_rtable(dst), to.s6_addr32[0]);
	return __ipv4_neigh_lookup(dst->dev, (__force u32)hop);
}

/* Whether packets by @dst, which leave this host, go to a router first. */
static bool kfabric_shim_route_is_routed(const struct kfabric_shim_route *route,
					 const struct dst_entry *dst)
{
#ifdef CONFIG_XFRM
	if (dst->xfrm)
		return true;
#endif
#if IS_ENABLED(CONFIG_IPV6)
	if (route->ipv6)
		return dst_rt6_info(dst)->rt6i_flags & RTF_GATEWAY;
#endif
	return dst_rtable(dst)->rt_gw_family;
}

/* The state of the next hop of @dst. In an RCU read-side section. */
static u32 kfabric_shim_route_hop(struct kfabric_shim_route *route,
				  struct dst_entry *dst, bool begin)
{
	struct neighbour *neigh;
	u32 state;

	if (dst->dev->flags & IFF_NOARP || !dst->dev->header_ops)
		return KFABRIC_SHIM_HOP_KNOWN;
	neigh = begin ? dst_neigh_lookup(dst, route->to) :
			kfabric_shim_route_neigh(route, dst);
	if (IS_ERR_OR_NULL(neigh))
		return KFABRIC_SHIM_HOP_UNKNOWN;
	state = READ_ONCE(neigh->nud_state);
	/* A stale one can be removed at any moment, unless its timer runs. */
	if (state & NUD_STALE || (begin && !(state & NUD_VALID))) {
		neigh_event_send(neigh, NULL);
		state = READ_ONCE(neigh->nud_state);
	}
	neigh_release(neigh);
	if (state & (NUD_CONNECTED | NUD_DELAY))
		return KFABRIC_SHIM_HOP_KNOWN;
	return state & (NUD_INCOMPLETE | NUD_PROBE) ? KFABRIC_SHIM_HOP_PENDING :
						      KFABRIC_SHIM_HOP_UNKNOWN;
}

/**
 * kfabric_shim_route_next_hop - the state of the hardware address of the next
 * hop
 * @route: the route, looked up again if the cached one is not valid
 * @begin: begin to resolve the address if it is unknown
 *
 * A neighbour that is being probed counts as pending: it may be removed at any
 * moment. A stale one is confirmed, as if a packet were sent to it, so a known
 * address stays known for seconds. Context: process.
 *
 * Return: KFABRIC_SHIM_HOP_KNOWN also if packets stay on this host, or need no
 * such address; KFABRIC_SHIM_HOP_PENDING while it is resolved;
 * KFABRIC_SHIM_HOP_UNKNOWN, also without a route. With KFABRIC_SHIM_HOP_ROUTER
 * if the next hop is a router.
 */
u32 kfabric_shim_route_next_hop(struct kfabric_shim_route *route, bool begin)
{
	u32 hop = KFABRIC_SHIM_HOP_UNKNOWN;
	struct dst_entry *dst;

	rcu_read_lock();
	dst = kfabric_shim_route_dst(route, kfabric_shim_route_sk(route));
	if (IS_ERR(dst))
		goto out;
	hop = KFABRIC_SHIM_HOP_KNOWN;
	if (kfabric_shim_route_is_local(route, dst))
		goto out;
	hop = kfabric_shim_route_hop(route, dst, begin);
	if (kfabric_shim_route_is_routed(route, dst))
		hop |= KFABRIC_SHIM_HOP_ROUTER;
out:
	rcu_read_unlock();
	return hop;
}

/**
 * kfabric_shim_route_find - the route by which packets leave now
 * @route: the route, looked up again if the cached one is not valid
 * @again: look it up even if the cached one is valid. An IPv6 address that is
 * added to this host makes no route to it invalid.
 * @mtu: out: its MTU, bytes of IP packets
 *
 * Context: process.
 * Return: 0 if packets leave by the interface, 1 if they stay on this host; or a
 * negative error number: that of routing (-ENETUNREACH no route, -EHOSTUNREACH
 * unreachable, -EACCES prohibited, -EINVAL a blackhole, and others);
 * -EADDRNOTAVAIL the destination is a broadcast or multicast address; -ENETDOWN
 * the sockets are closed.
 */
int kfabric_shim_route_find(struct kfabric_shim_route *route, bool again,
			    u32 *mtu)
{
	struct dst_entry *dst;
	struct sock *sk;
	int ret;

	rcu_read_lock();
	sk = kfabric_shim_route_sk(route);
	dst = again && sk ? kfabric_shim_route_look_up(route, sk) :
			    kfabric_shim_route_dst(route, sk);
	if (IS_ERR(dst)) {
		ret = PTR_ERR(dst);
	} else {
		*mtu = dst_mtu(dst);
		ret = kfabric_shim_route_is_local(route, dst);
	}
	rcu_read_unlock();
	return ret;
}

static void kfabric_shim_send4(struct dst_entry *dst, struct sk_buff *skb)
{
	memset(IPCB(skb), 0, sizeof(*IPCB(skb)));
	skb_reset_network_header(skb);
	skb_set_transport_header(skb, sizeof(struct iphdr));
	skb->protocol = htons(ETH_P_IP);
	ip_hdr(skb)->ttl = ip4_dst_hoplimit(dst);
}

static void kfabric_shim_send6(struct dst_entry *dst, struct sk_buff *skb)
{
#if IS_ENABLED(CONFIG_IPV6)
	memset(IP6CB(skb), 0, sizeof(*IP6CB(skb)));
	skb_reset_network_header(skb);
	skb_set_transport_header(skb, sizeof(struct ipv6hdr));
	skb->protocol = htons(ETH_P_IPV6);
	ipv6_hdr(skb)->hop_limit = ip6_dst_hoplimit(dst);
	/* If the path MTU has decreased, send fragments. */
	skb->ignore_df = 1;
#endif
}

/**
 * kfabric_shim_route_send - send a packet
 * @route: the route to the peer
 * @skb: the packet, from the IP header on, complete except for TTL and the IPv4
 * checksum; taken over in any case
 *
 * Context: process or softirq.
 * Return: 0, or a negative error number if the local stack did not send it.
 */
int kfabric_shim_route_send(struct kfabric_shim_route *route, struct sk_buff *skb)
{
	struct dst_entry *dst;
	struct sock *sk;
	int ret;

	rcu_read_lock();
	sk = kfabric_shim_route_sk(route);
	dst = kfabric_shim_route_dst(route, sk);
	if (IS_ERR(dst)) {
		ret = PTR_ERR(dst);
		kfree_skb(skb);
		goto out;
	}
	skb_dst_set_noref(skb, dst);
	if (route->ipv6) {
		kfabric_shim_send6(dst, skb);
		ret = ip6_local_out(sock_net(sk), sk, skb);
	} else {
		kfabric_shim_send4(dst, skb);
		ret = ip_local_out(sock_net(sk), sk, skb);
	}
	if (ret > 0)
		ret = net_xmit_errno(ret);
out:
	rcu_read_unlock();
	return ret;
}
