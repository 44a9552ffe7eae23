// SPDX-License-Identifier: GPL-2.0
/*
 * The port of a device: attributes, GIDs, statistics.
 */

#include <linux/ethtool.h>
#include <linux/netdevice.h>
#include <linux/rtnetlink.h>
#include <linux/slab.h>
#include <net/addrconf.h>
#include <rdma/ib_cache.h>
#include <rdma/ib_mad.h>

#include "kfabric_ib.h"

/* Entries of the table of GIDs: one for each address of an interface. */
#define KFIB_GIDS	256

/**
 * kfib_query_port - query the attributes of the port
 * @ibdev: the device
 * @port: its number
 * @attr: out: the attributes; the caller has zeroed them
 *
 * Context: process.
 * Return: 0; -EINVAL for another port, -ENODEV if the interface has gone.
 */
int kfib_query_port(struct ib_device *ibdev, u32 port,
		    struct ib_port_attr *attr)
{
	struct kfabric_verbs_port now;
	struct net_device *ndev;
	int ret;

	if (port != KFIB_PORT)
		return -EINVAL;
	ndev = ib_device_get_netdev(ibdev, port);
	if (!ndev)
		return -ENODEV;
	kfabric_verbs_device_port(to_kfib(ibdev)->device, &now);

	attr->state = ib_get_curr_port_state(ndev);
	if (attr->state == IB_PORT_ACTIVE)
		attr->phys_state = IB_PORT_PHYS_STATE_LINK_UP;
	else if (netif_get_flags(ndev) & IFF_UP)
		attr->phys_state = IB_PORT_PHYS_STATE_POLLING;
	else
		attr->phys_state = IB_PORT_PHYS_STATE_DISABLED;
	attr->max_mtu = IB_MTU_4096;
	attr->active_mtu = now.path_mtu ? now.path_mtu : IB_MTU_256;
	attr->gid_tbl_len = KFIB_GIDS;
	attr->pkey_tbl_len = 1;
	attr->max_msg_sz = now.max_message;
	attr->port_cap_flags = IB_PORT_CM_SUP;
	attr->ip_gids = true;
	attr->max_vl_num = 1;
	ret = ib_get_eth_speed(ibdev, port, &attr->active_speed,
			       &attr->active_width);
	dev_put(ndev);
	return ret;
}

/**
 * kfib_query_port_speed - query the bandwidth of the port
 * @ibdev: the device
 * @port: its number
 * @speed: out: that of the interface, in units of 100 Mb/s; 1 Gb/s if it is
 *         unknown, as for kfib_query_port()
 *
 * Context: process.
 * Return: 0; -EINVAL for another port, -ENODEV if the interface has gone.
 */
int kfib_query_port_speed(struct ib_device *ibdev, u32 port, u64 *speed)
{
	struct ethtool_link_ksettings settings;
	struct net_device *ndev;
	u32 mbps = SPEED_1000;

	if (port != KFIB_PORT)
		return -EINVAL;
	ndev = ib_device_get_netdev(ibdev, port);
	if (!ndev)
		return -ENODEV;
	rtnl_lock();
	if (!__ethtool_get_link_ksettings(ndev, &settings) &&
	    settings.base.speed != (u32)SPEED_UNKNOWN)
		mbps = settings.base.speed;
	rtnl_unlock();
	dev_put(ndev);
	*speed = mbps / 100;
	return 0;
}

/**
 * kfib_query_pkey - query an entry of the table of partition keys
 * @ibdev: the device
 * @port: the port
 * @index: the index of the entry
 * @pkey: out: the default key
 *
 * Context: process.
 * Return: 0; -EINVAL for an index other than 0.
 */
int kfib_query_pkey(struct ib_device *ibdev, u32 port, u16 index, u16 *pkey)
{
	if (index)
		return -EINVAL;
	*pkey = IB_DEFAULT_PKEY_FULL;
	return 0;
}

/**
 * kfib_get_port_immutable - report what never changes of a port
 * @ibdev: the device
 * @port: the port
 * @immutable: out: the attributes
 *
 * Context: process.
 * Return: 0; -EINVAL for another port.
 */
int kfib_get_port_immutable(struct ib_device *ibdev, u32 port,
			    struct ib_port_immutable *immutable)
{
	if (port != KFIB_PORT)
		return -EINVAL;
	immutable->core_cap_flags = RDMA_CORE_PORT_IBA_ROCE_UDP_ENCAP;
	immutable->max_mad_size = IB_MGMT_MAD_SIZE;
	immutable->pkey_tbl_len = 1;
	immutable->gid_tbl_len = KFIB_GIDS;
	return 0;
}

/**
 * kfib_get_link_layer - report Ethernet, as RoCE does for every interface
 * @ibdev: the device
 * @port: the port
 *
 * Context: any.
 * Return: IB_LINK_LAYER_ETHERNET.
 */
enum rdma_link_layer kfib_get_link_layer(struct ib_device *ibdev, u32 port)
{
	return IB_LINK_LAYER_ETHERNET;
}

/*
 * A tentative address counts: no further event tells when it becomes an address
 * of the interface.
 */
static bool kfib_has_ipv6(struct net_device *ndev, const union ib_gid *gid)
{
	const struct in6_addr *addr = (const struct in6_addr *)gid->raw;

	return IS_ENABLED(CONFIG_IPV6) &&
	       ipv6_chk_addr_and_flags(dev_net(ndev), addr, ndev, false, 1, 0);
}

/**
 * kfib_add_gid - decide whether a GID belongs to the device
 * @attr: the GID
 * @context: unused
 *
 * The core offers the addresses of the interface, those of interfaces above it
 * (VLANs), and a link-local address that the interface need not have. A device
 * has the addresses of its interface alone.
 *
 * Context: process.
 * Return: 0; -EOPNOTSUPP for a GID that does not belong to the device.
 */
int kfib_add_gid(const struct ib_gid_attr *attr, void **context)
{
	struct net_device *own, *ndev;
	int ret = -EOPNOTSUPP;

	own = ib_device_get_netdev(attr->device, attr->port_num);
	if (!own)
		return ret;
	rcu_read_lock();
	ndev = rcu_dereference(attr->ndev);
	if (ndev == own && attr->gid_type == IB_GID_TYPE_ROCE_UDP_ENCAP &&
	    (ipv6_addr_v4mapped((struct in6_addr *)attr->gid.raw) ||
	     kfib_has_ipv6(own, &attr->gid)))
		ret = 0;
	rcu_read_unlock();
	dev_put(own);
	return ret;
}

/**
 * kfib_del_gid - do nothing: a GID has no state here
 * @attr: the GID
 * @context: unused
 *
 * Context: process.
 * Return: 0.
 */
int kfib_del_gid(const struct ib_gid_attr *attr, void **context)
{
	return 0;
}

/* The statistics of a link, in the order of their numbers. */
static struct rdma_stat_desc *kfib_stats;
static int kfib_stats_count;

/**
 * kfib_stats_init - read the names of the statistics
 *
 * Context: process.
 * Return: 0, or -ENOMEM.
 */
int kfib_stats_init(void)
{
	int count = 0, i;

	while (kfabric_verbs_stat_name(count))
		count++;
	kfib_stats = kcalloc(count, sizeof(*kfib_stats), GFP_KERNEL);
	if (!kfib_stats)
		return -ENOMEM;
	for (i = 0; i < count; i++)
		kfib_stats[i].name = kfabric_verbs_stat_name(i);
	kfib_stats_count = count;
	return 0;
}

/**
 * kfib_stats_exit - free the names of the statistics
 *
 * Context: process.
 */
void kfib_stats_exit(void)
{
	kfree(kfib_stats);
}

/**
 * kfib_alloc_hw_port_stats - allocate memory for the statistics of the port
 * @ibdev: the device
 * @port: the port
 *
 * Context: process.
 * Return: the memory, or NULL.
 */
struct rdma_hw_stats *kfib_alloc_hw_port_stats(struct ib_device *ibdev,
					       u32 port)
{
	return rdma_alloc_hw_stats_struct(kfib_stats, kfib_stats_count,
					  RDMA_HW_STATS_DEFAULT_LIFESPAN);
}

/**
 * kfib_get_hw_stats - store the statistics of the port
 * @ibdev: the device
 * @stats: out: the statistics
 * @port: the port; 0 means the device, which has no statistics of its own
 * @index: not used; all statistics are stored
 *
 * Context: process.
 * Return: how many were stored; -EINVAL for the device.
 */
int kfib_get_hw_stats(struct ib_device *ibdev, struct rdma_hw_stats *stats,
		      u32 port, int index)
{
	if (!port)
		return -EINVAL;
	return kfabric_verbs_device_stats(to_kfib(ibdev)->device, stats->value,
					  stats->num_counters);
}
