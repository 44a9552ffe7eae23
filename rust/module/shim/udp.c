// SPDX-License-Identifier: GPL-2.0
/*
 * The C side of shim/udp.rs: the UDP sockets of a network namespace, and the
 * routes by which packets leave through them.
 *
 * No reference keeps the namespace alive. The functions find it by the sockets,
 * which are closed before it ends: a sender uses them in an RCU read-side
 * section, and closing removes the pointers to them first. A route (a dst)
 * belongs to its namespace too, so cached routes are in a list, and closing
 * releases them.
 */

#include "udp.h"

#include <linux/err.h>
#include <linux/in.h>
#include <linux/in6.h>
#include <linux/ip.h>
#include <linux/ipv6.h>
#include <linux/net.h>
#include <linux/netdevice.h>
#include <linux/rcupdate.h>
#include <linux/sched.h>
#include <linux/skbuff.h>
#include <linux/string.h>
#include <linux/udp.h>
#include <net/dst.h>
#include <net/flow.h>
#include <net/ip.h>
#include <net/ip6_fib.h>
#include <net/ip6_route.h>
#include <net/ipv6.h>
#include <net/route.h>
#include <net/sock.h>
#include <net/udp.h>
#include <net/udp_tunnel.h>
#include <net/xfrm.h>

/* The most routes that are released with bottom halves disabled. */
#define KFABRIC_SHIM_ROUTES 64

/* Callback of the socket: takes over a received datagram. */
static int kfabric_shim_udp_rcv(struct sock *sk, struct sk_buff *skb)
{
	struct kfabric_shim_udp *udp = rcu_dereference_sk_user_data(sk);

	/*
	 * Headers are read more than once, so they must be in the linear part,
	 * which only the packet's owner writes.
	 */
	if (!udp ||
	    !pskb_may_pull(skb, min_t(u32, skb->len, KFABRIC_SHIM_RX_HEAD))) {
		kfree_skb(skb);
		return 0;
	}
	/* It may wait for long, so drop all references to the path it came. */
	skb_orphan(skb);
	skb_dst_drop(skb);
	nf_reset_ct(skb);
	secpath_reset(skb);
	skb->dev = NULL;
	__skb_pull(skb, sizeof(struct udphdr));
	udp->receive(udp->data, skb);
	return 0;
}

static int kfabric_shim_udp_open_one(struct kfabric_shim_udp *udp,
				     struct net *net, u16 port, u8 family,
				     struct sock **sk)
{
	struct udp_port_cfg port_cfg = {
		.family = family,
		.local_udp_port = htons(port),
		/* The peer decides whether to send one; known ones do not. */
		.use_udp6_rx_checksums = 0,
		.ipv6_v6only = 1,
	};
	struct udp_tunnel_sock_cfg sock_cfg = {
		.sk_user_data = udp,
		.encap_type = 1,
		.encap_rcv = kfabric_shim_udp_rcv,
	};
	struct socket *sock;
	int ret = udp_sock_create(net, &port_cfg, &sock);

	if (ret)
		return ret;
	setup_udp_tunnel_sock(net, sock->sk, &sock_cfg);
	/*
	 * Any host can send an ICMP error that lowers the MTU of a route.
	 * Connections use the MTU of the interface instead, and fail if packets
	 * do not get through. For IPv6 see kfabric_shim_send6().
	 */
	ip_sock_set_mtu_discover(sock->sk, IP_PMTUDISC_PROBE);
	rcu_assign_pointer(*sk, sock->sk);
	return 0;
}

/**
 * kfabric_shim_udp_init - initialise sockets that are not open
 * @udp: receive and data are set, all other fields are 0
 *
 * Context: any.
 */
void kfabric_shim_udp_init(struct kfabric_shim_udp *udp)
{
	spin_lock_init(&udp->lock);
	INIT_LIST_HEAD(&udp->routes);
}

/**
 * kfabric_shim_udp_open - open the sockets of a namespace
 * @udp: initialised, and not opened before
 * @net: the namespace, alive during the call
 * @port: the UDP port
 *
 * Without IPv6 in the kernel or the namespace, only the IPv4 socket is opened.
 *
 * Context: process, may sleep; the RTNL may be held.
 * Return: 0, or a negative error number: -EADDRINUSE if the port is in use,
 * -ENOMEM. In any case the caller must call kfabric_shim_udp_close() later.
 */
int kfabric_shim_udp_open(struct kfabric_shim_udp *udp, struct net *net,
			  u16 port)
{
	int ret;

	ret = kfabric_shim_udp_open_one(udp, net, port, AF_INET, &udp->sk4);
	if (ret)
		return ret;
	ret = kfabric_shim_udp_open_one(udp, net, port, AF_INET6, &udp->sk6);
	if (ret == -EAFNOSUPPORT || ret == -EPFNOSUPPORT)
		ret = 0;
	return ret;
}

static void kfabric_shim_udp_close_one(struct sock **sk)
{
	struct sock *old = *sk;

	if (!old)
		return;
	rcu_assign_pointer(*sk, NULL);
	udp_tunnel_sock_release(old);
}

/**
 * kfabric_shim_udp_close - close the sockets and release all routes
 * @udp: the sockets, which may be closed already
 *
 * Context: process, may sleep; the RTNL may be held. Calls must not be
 * concurrent. Does not wait for a grace period. Nothing is sent afterwards.
 * Packets may still be received, so the caller keeps @udp and its data for
 * another grace period.
 */
void kfabric_shim_udp_close(struct kfabric_shim_udp *udp)
{
	struct kfabric_shim_route *route;
	unsigned int left;

	kfabric_shim_udp_close_one(&udp->sk4);
	kfabric_shim_udp_close_one(&udp->sk6);
	/* Only memory limits the number of routes: release some at a time. */
	do {
		left = KFABRIC_SHIM_ROUTES;
		spin_lock_bh(&udp->lock);
		udp->closed = true;
		while (left && !list_empty(&udp->routes)) {
			route = list_first_entry(&udp->routes,
						 struct kfabric_shim_route, node);
			list_del_init(&route->node);
			dst_release(route->dst);
			rcu_assign_pointer(route->dst, NULL);
			left--;
		}
		spin_unlock_bh(&udp->lock);
		cond_resched();
	} while (!left);
}

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

static struct dst_entry *
kfabric_shim_route_find4(const struct kfabric_shim_route *route, struct sock *sk)
{
	struct flowi4 fl4 = {
		.flowi4_oif = route->ifindex,
		.flowi4_proto = IPPROTO_UDP,
	};
	struct rtable *rt;

	memcpy(&fl4.saddr, route->from, 4);
	memcpy(&fl4.daddr, route->to, 4);
	rt = ip_route_output_flow(sock_net(sk), &fl4, sk);
	if (IS_ERR(rt))
		return ERR_CAST(rt);
	/* The interface's subnets determine its broadcast addresses. */
	if (rt->rt_flags & (RTCF_BROADCAST | RTCF_MULTICAST)) {
		dst_release(&rt->dst);
		return ERR_PTR(-EADDRNOTAVAIL);
	}
	return &rt->dst;
}

static struct dst_entry *
kfabric_shim_route_find6(const struct kfabric_shim_route *route, struct sock *sk,
			 u32 *cookie)
{
#if IS_ENABLED(CONFIG_IPV6)
	struct flowi6 fl6 = {
		.flowi6_oif = route->ifindex,
		.flowi6_proto = IPPROTO_UDP,
	};
	struct dst_entry *dst;

	memcpy(&fl6.saddr, route->from, 16);
	memcpy(&fl6.daddr, route->to, 16);
	dst = ip6_dst_lookup_flow(sock_net(sk), sk, &fl6, NULL);
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
	struct dst_entry *dst;
	u32 cookie = 0;

	dst = route->ipv6 ? kfabric_shim_route_find6(route, sk, &cookie) :
			    kfabric_shim_route_find4(route, sk);
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

/**
 * kfabric_shim_route_mtu - the MTU of a route
 * @route: the route
 *
 * Context: process.
 * Return: bytes of IP packets, or 0 if there is no route now.
 */
u32 kfabric_shim_route_mtu(struct kfabric_shim_route *route)
{
	struct dst_entry *dst;
	u32 mtu = 0;

	rcu_read_lock();
	dst = kfabric_shim_route_dst(route, kfabric_shim_route_sk(route));
	if (!IS_ERR(dst))
		mtu = dst_mtu(dst);
	rcu_read_unlock();
	return mtu;
}

/**
 * kfabric_shim_route_check - whether a route leads to a single host
 * @route: the route
 *
 * Context: process.
 * Return: 0, also if there is no route now; -EADDRNOTAVAIL if the address is a
 * broadcast or multicast address.
 */
int kfabric_shim_route_check(struct kfabric_shim_route *route)
{
	struct dst_entry *dst;

	rcu_read_lock();
	dst = kfabric_shim_route_dst(route, kfabric_shim_route_sk(route));
	rcu_read_unlock();
	return dst == ERR_PTR(-EADDRNOTAVAIL) ? -EADDRNOTAVAIL : 0;
}

#ifdef KFI_KUNIT
/**
 * kfabric_kunit_route_look_up - look a route up again, for tests
 * @route: the route
 *
 * Context: process.
 * Return: 0, or a negative error number: -ENETDOWN if the sockets are closed.
 */
int kfabric_kunit_route_look_up(struct kfabric_shim_route *route)
{
	struct dst_entry *dst;
	struct sock *sk;

	rcu_read_lock();
	sk = kfabric_shim_route_sk(route);
	dst = sk ? kfabric_shim_route_look_up(route, sk) : ERR_PTR(-ENETDOWN);
	rcu_read_unlock();
	return PTR_ERR_OR_ZERO(dst);
}
#endif

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
