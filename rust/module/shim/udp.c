// SPDX-License-Identifier: GPL-2.0
/*
 * Part of the C side of shim/udp.rs: the UDP sockets of a network namespace.
 * Routes are in route.c, addresses in addr.c, their changes in addr_change.c.
 *
 * No reference keeps the namespace alive. The functions find it by the sockets,
 * which are closed before it ends: a sender uses them in an RCU read-side
 * section, and closing removes the pointers to them first. A route (a dst)
 * belongs to its namespace too, so cached routes are in a list, and closing
 * releases them.
 *
 * A socket that is not bound to an interface receives no packets of interfaces
 * in a VRF (unless net.ipv4.udp_l3mdev_accept is set). So each VRF with a link
 * has sockets of its own, which are bound to the VRF's device and only receive.
 */

#include "udp.h"

#include <linux/in.h>
#include <linux/in6.h>
#include <linux/net.h>
#include <linux/rcupdate.h>
#include <linux/sched.h>
#include <linux/skbuff.h>
#include <linux/slab.h>
#include <linux/udp.h>
#include <net/dst.h>
#include <net/ip.h>
#include <net/ipv6.h>
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
	/* From here on: PACKET_LOOPBACK if the loopback interface carried it. */
	skb->pkt_type = skb->dev->flags & IFF_LOOPBACK ? PACKET_LOOPBACK :
							 PACKET_HOST;
	skb->dev = NULL;
	/* From here on: the VRF that it came from, or 0. */
	skb->skb_iif = READ_ONCE(sk->sk_bound_dev_if);
	__skb_pull(skb, sizeof(struct udphdr));
	udp->receive(udp->data, skb);
	return 0;
}

/* Makes a socket, which is bound already, receive for @udp. */
static void kfabric_shim_udp_start(struct kfabric_shim_udp *udp,
				   struct net *net, struct sock *sk)
{
	struct udp_tunnel_sock_cfg sock_cfg = {
		.sk_user_data = udp,
		.encap_type = 1,
		.encap_rcv = kfabric_shim_udp_rcv,
	};

	setup_udp_tunnel_sock(net, sk, &sock_cfg);
	/*
	 * Any host can send an ICMP error that lowers the MTU of a route.
	 * Connections use the MTU of the interface instead, and fail if packets
	 * do not get through. For IPv6 see kfabric_shim_send6().
	 */
	ip_sock_set_mtu_discover(sk, IP_PMTUDISC_PROBE);
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
	struct socket *sock;
	int ret = udp_sock_create(net, &port_cfg, &sock);

	if (ret)
		return ret;
	kfabric_shim_udp_start(udp, net, sock->sk);
	rcu_assign_pointer(*sk, sock->sk);
	return 0;
}

/**
 * kfabric_shim_udp_init - initialise sockets that are not open
 * @udp: receive, addrs_changed and data are set, all other fields are 0
 *
 * Context: any.
 */
void kfabric_shim_udp_init(struct kfabric_shim_udp *udp)
{
	spin_lock_init(&udp->lock);
	INIT_LIST_HEAD(&udp->routes);
	INIT_LIST_HEAD(&udp->vrfs);
	INIT_HLIST_NODE(&udp->watched);
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
	if (!ret)
		kfabric_shim_addr_watch(udp, net);
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

/* The sockets of a VRF. */
struct kfabric_shim_vrf {
	/* Entry in the list of the namespace's sockets. */
	struct list_head node;
	/* The index of its device. */
	u32 ifindex;
	struct sock *sk4;
	struct sock *sk6;
};

static struct kfabric_shim_vrf *
kfabric_shim_vrf_find(const struct kfabric_shim_udp *udp, u32 ifindex)
{
	struct kfabric_shim_vrf *vrf;

	list_for_each_entry(vrf, &udp->vrfs, node) {
		if (vrf->ifindex == ifindex)
			return vrf;
	}
	return NULL;
}

static void kfabric_shim_vrf_free(struct kfabric_shim_vrf *vrf)
{
	list_del(&vrf->node);
	kfabric_shim_udp_close_one(&vrf->sk4);
	kfabric_shim_udp_close_one(&vrf->sk6);
	kfree(vrf);
}

/* Binds @sock to all addresses of its family, at the port of @unbound. */
static int kfabric_shim_vrf_bind_port(struct socket *sock, struct sock *unbound)
{
	struct sockaddr_in in = {
		.sin_family = AF_INET,
		.sin_port = inet_sk(unbound)->inet_sport,
	};
	struct sockaddr_in6 in6 = {
		.sin6_family = AF_INET6,
		.sin6_port = inet_sk(unbound)->inet_sport,
	};

	if (unbound->sk_family == AF_INET)
		return kernel_bind(sock, (struct sockaddr_unsized *)&in,
				   sizeof(in));
	return kernel_bind(sock, (struct sockaddr_unsized *)&in6, sizeof(in6));
}

static void kfabric_shim_sock_reuseport(struct sock *sk, bool reuseport)
{
	lock_sock(sk);
	sk->sk_reuseport = reuseport;
	release_sock(sk);
}

/*
 * Opens a socket beside @unbound, of the same family and port, that is bound to
 * the interface @ifindex.
 *
 * Both would be in each other's way at bind(), which ignores the interface if
 * one of two sockets has none. So they share the port for that moment, which
 * only sockets of the same user can do.
 */
static int kfabric_shim_vrf_open_one(struct kfabric_shim_udp *udp,
				     struct sock *unbound, u32 ifindex,
				     struct sock **sk)
{
	struct net *net = sock_net(unbound);
	struct socket *sock;
	int ret;

	ret = sock_create_kern(net, unbound->sk_family, SOCK_DGRAM, 0, &sock);
	if (ret)
		return ret;
	sock->sk->sk_no_check_tx = 1;
#if IS_ENABLED(CONFIG_IPV6)
	if (unbound->sk_family == AF_INET6) {
		ip6_sock_set_v6only(sock->sk);
		udp_set_no_check6_tx(sock->sk, true);
		udp_set_no_check6_rx(sock->sk, true);
	}
#endif
	ret = sock_bindtoindex(sock->sk, ifindex, true);
	if (ret)
		goto release;
	WRITE_ONCE(sock->sk->sk_uid, sk_uid(unbound));
	kfabric_shim_sock_reuseport(sock->sk, true);
	kfabric_shim_sock_reuseport(unbound, true);
	ret = kfabric_shim_vrf_bind_port(sock, unbound);
	kfabric_shim_sock_reuseport(unbound, false);
	kfabric_shim_sock_reuseport(sock->sk, false);
	if (ret)
		goto release;
	kfabric_shim_udp_start(udp, net, sock->sk);
	rcu_assign_pointer(*sk, sock->sk);
	return 0;

release:
	sock_release(sock);
	return ret;
}

/**
 * kfabric_shim_udp_open_vrf - open the sockets of a VRF
 * @udp: open sockets of the namespace
 * @ifindex: the index of the VRF's device
 *
 * Does nothing if they are open. Context: process, may sleep; RTNL held.
 *
 * Return: 0, or a negative error number: -EADDRINUSE if another socket has the
 * port in this VRF, -ENOMEM, -ENODEV if @udp is closed.
 */
int kfabric_shim_udp_open_vrf(struct kfabric_shim_udp *udp, u32 ifindex)
{
	struct kfabric_shim_vrf *vrf;
	int ret;

	if (!udp->sk4)
		return -ENODEV;
	if (kfabric_shim_vrf_find(udp, ifindex))
		return 0;
	vrf = kzalloc_obj(*vrf, GFP_KERNEL_ACCOUNT);
	if (!vrf)
		return -ENOMEM;
	vrf->ifindex = ifindex;
	list_add_tail(&vrf->node, &udp->vrfs);
	ret = kfabric_shim_vrf_open_one(udp, udp->sk4, ifindex, &vrf->sk4);
	if (!ret && udp->sk6)
		ret = kfabric_shim_vrf_open_one(udp, udp->sk6, ifindex,
						&vrf->sk6);
	if (ret)
		kfabric_shim_vrf_free(vrf);
	return ret;
}

/**
 * kfabric_shim_udp_close_vrf - close the sockets of a VRF
 * @udp: the sockets of the namespace
 * @ifindex: the index of the VRF's device
 *
 * Does nothing if they are closed. Packets may still be received until a grace
 * period has passed. Context: process, may sleep; RTNL held.
 */
void kfabric_shim_udp_close_vrf(struct kfabric_shim_udp *udp, u32 ifindex)
{
	struct kfabric_shim_vrf *vrf = kfabric_shim_vrf_find(udp, ifindex);

	if (vrf)
		kfabric_shim_vrf_free(vrf);
}

/**
 * kfabric_shim_udp_close - close the sockets and release all routes
 * @udp: the sockets, which may be closed already
 *
 * Context: process, may sleep; the RTNL may be held. Calls must not be
 * concurrent. Does not wait for a grace period. Nothing is sent afterwards.
 * Packets may still be received, and changes of addresses reported, so the caller
 * keeps @udp and its data for another grace period.
 */
void kfabric_shim_udp_close(struct kfabric_shim_udp *udp)
{
	struct kfabric_shim_vrf *vrf, *next;
	struct kfabric_shim_route *route;
	unsigned int left;

	kfabric_shim_addr_unwatch(udp);
	list_for_each_entry_safe(vrf, next, &udp->vrfs, node)
		kfabric_shim_vrf_free(vrf);
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
