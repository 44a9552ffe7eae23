// SPDX-License-Identifier: GPL-2.0
/*
 * A device: its operations and its attributes, adding and removing it.
 */

#include <linux/etherdevice.h>
#include <linux/module.h>
#include <linux/netdevice.h>
#include <linux/rtnetlink.h>
#include <net/addrconf.h>
#include <net/net_namespace.h>
#include <rdma/uverbs_ioctl.h>

#include "kfabric_ib.h"

/*
 * The driver, as the core and rdma-core know it. It is not in enum
 * rdma_driver_id, as no number is given to a driver outside the kernel. It is
 * never RDMA_DRIVER_UNKNOWN, which stands for the devices of all drivers in the
 * core's look-ups.
 */
#define KFIB_DRIVER_ID	((enum rdma_driver_id)KFABRIC_IB_DRIVER_ID)

/*
 * The driver and version that libipathverbs of rdma-core 56 looks for. It uses
 * a device by system calls alone. The kernel has no such driver any more.
 */
#define KFIB_IPATH_DRIVER_ID	RDMA_DRIVER_QIB
#define KFIB_IPATH_ABI_VERSION	1

/*
 * The objects of each kind that are reported as possible. What a user really
 * can have is limited by the memory that is charged for each.
 */
#define KFIB_MAX_OBJECTS	65536

/*
 * The time from a request to its acknowledgment is 4.096 us * 2^15 = 134 ms at
 * most, if the worker of a QP runs. Connection management adds it to timeouts.
 */
#define KFIB_ACK_DELAY	15

static bool ipath;
module_param(ipath, bool, 0444);
MODULE_PARM_DESC(ipath,
		 "Let programs of Debian 13 use the devices without a library of kfabric, by libipathverbs");

static int kfib_query_device(struct ib_device *ibdev,
			     struct ib_device_attr *attr,
			     struct ib_udata *udata)
{
	int ret;

	ret = ib_no_udata_io(udata);
	if (ret)
		return ret;
	*attr = (struct ib_device_attr) {
		.sys_image_guid = ibdev->node_guid,
		.max_mr_size = KFABRIC_VERBS_MAX_MR_SIZE,
		.page_size_cap = PAGE_SIZE,
		.vendor_id = 0xffffff,
		.device_cap_flags = IB_DEVICE_CURR_QP_STATE_MOD |
				    IB_DEVICE_MEM_MGT_EXTENSIONS |
				    IB_DEVICE_PORT_ACTIVE_EVENT |
				    IB_DEVICE_RC_RNR_NAK_GEN |
				    IB_DEVICE_SRQ_RESIZE |
				    IB_DEVICE_SYS_IMAGE_GUID,
		.kernel_cap_flags = IBK_ALLOW_USER_UNREG,
		.max_qp = KFIB_MAX_OBJECTS,
		.max_qp_wr = KFABRIC_VERBS_MAX_RECV_WR,
		.max_send_sge = KFABRIC_VERBS_MAX_SGE,
		.max_recv_sge = KFABRIC_VERBS_MAX_SGE,
		.max_sge_rd = KFABRIC_VERBS_MAX_SGE,
		.max_cq = KFIB_MAX_OBJECTS,
		.max_cqe = KFABRIC_VERBS_MAX_CQE,
		.max_mr = KFABRIC_VERBS_MAX_MR,
		.max_fast_reg_page_list_len = KFABRIC_VERBS_MAX_PAGES,
		.max_pd = KFIB_MAX_OBJECTS,
		.max_qp_rd_atom = KFABRIC_VERBS_MAX_RD_ATOMIC,
		.max_res_rd_atom = KFIB_MAX_OBJECTS * KFABRIC_VERBS_MAX_RD_ATOMIC,
		.max_qp_init_rd_atom = KFABRIC_VERBS_MAX_RD_ATOMIC,
		/* Instructions of the CPU. */
		.atomic_cap = IB_ATOMIC_GLOB,
		.max_ah = KFIB_MAX_OBJECTS,
		.max_srq = KFIB_MAX_OBJECTS,
		.max_srq_wr = KFABRIC_VERBS_MAX_RECV_WR,
		.max_srq_sge = KFABRIC_VERBS_MAX_SGE,
		.max_pkeys = 1,
		.local_ca_ack_delay = KFIB_ACK_DELAY,
	};
	return 0;
}

static void kfib_get_dev_fw_str(struct ib_device *ibdev, char *str)
{
	strscpy(str, "kfabric", IB_FW_VERSION_NAME_MAX);
}

static void kfib_dealloc_driver(struct ib_device *ibdev)
{
	struct kfabric_verbs_device *device = to_kfib(ibdev)->device;

	if (device)
		kfabric_verbs_device_remove(device);
}

/* The driver of the devices: one of these two, and the operations below. */
static const struct ib_device_ops kfib_own_ops = {
	.owner = THIS_MODULE,
	.driver_id = KFIB_DRIVER_ID,
	.uverbs_abi_ver = KFABRIC_IB_ABI_VERSION,
};

static const struct ib_device_ops kfib_ipath_ops = {
	.owner = THIS_MODULE,
	.driver_id = KFIB_IPATH_DRIVER_ID,
	.uverbs_abi_ver = KFIB_IPATH_ABI_VERSION,
};

static const struct ib_device_ops kfib_device_ops = {
	.add_gid = kfib_add_gid,
	.alloc_hw_port_stats = kfib_alloc_hw_port_stats,
	.alloc_mr = kfib_alloc_mr,
	.alloc_pd = kfib_alloc_pd,
	.alloc_ucontext = kfib_alloc_ucontext,
	.create_ah = kfib_create_ah,
	.create_comp_cntr = kfib_create_comp_cntr,
	.create_counters = kfib_create_counters,
	.create_cq = kfib_create_cq,
	.create_flow = kfib_create_flow,
	.create_qp = kfib_create_qp,
	.create_srq = kfib_create_srq,
	.create_user_ah = kfib_create_ah,
	.dealloc_driver = kfib_dealloc_driver,
	.dealloc_pd = kfib_dealloc_pd,
	.dealloc_ucontext = kfib_dealloc_ucontext,
	.del_gid = kfib_del_gid,
	.dereg_mr = kfib_dereg_mr,
	.destroy_ah = kfib_destroy_ah,
	.destroy_comp_cntr = kfib_destroy_comp_cntr,
	.destroy_counters = kfib_destroy_counters,
	.destroy_cq = kfib_destroy_cq,
	.destroy_flow = kfib_destroy_flow,
	.destroy_qp = kfib_destroy_qp,
	.destroy_srq = kfib_destroy_srq,
	.disassociate_ucontext = kfib_disassociate_ucontext,
	.get_dev_fw_str = kfib_get_dev_fw_str,
	.get_dma_mr = kfib_get_dma_mr,
	.get_hw_stats = kfib_get_hw_stats,
	.get_link_layer = kfib_get_link_layer,
	.get_port_immutable = kfib_get_port_immutable,
	.map_mr_sg = kfib_map_mr_sg,
	.mmap = kfib_mmap,
	.modify_comp_cntr = kfib_modify_comp_cntr,
	.modify_qp = kfib_modify_qp,
	.modify_srq = kfib_modify_srq,
	.poll_cq = kfib_poll_cq,
	.post_recv = kfib_post_recv,
	.post_send = kfib_post_send,
	.post_srq_recv = kfib_post_srq_recv,
	.qp_attach_comp_cntr = kfib_qp_attach_comp_cntr,
	.query_comp_cntr_caps = kfib_query_comp_cntr_caps,
	.query_device = kfib_query_device,
	.query_pkey = kfib_query_pkey,
	.query_port = kfib_query_port,
	.query_port_speed = kfib_query_port_speed,
	.query_qp = kfib_query_qp,
	.query_srq = kfib_query_srq,
	.query_ucontext = kfib_query_ucontext,
	.read_comp_cntr = kfib_read_comp_cntr,
	.read_counters = kfib_read_counters,
	.reg_user_mr = kfib_reg_user_mr,
	.reg_user_mr_dmabuf = kfib_reg_user_mr_dmabuf,
	.req_notify_cq = kfib_req_notify_cq,
	.resize_user_cq = kfib_resize_user_cq,

	INIT_RDMA_OBJ_SIZE(ib_ah, kfib_ah, ibah),
	INIT_RDMA_OBJ_SIZE(ib_comp_cntr, kfib_comp_cntr, ibcc),
	INIT_RDMA_OBJ_SIZE(ib_counters, kfib_counters, ibcounters),
	INIT_RDMA_OBJ_SIZE(ib_cq, kfib_cq, ibcq),
	INIT_RDMA_OBJ_SIZE(ib_pd, kfib_pd, ibpd),
	INIT_RDMA_OBJ_SIZE(ib_qp, kfib_qp, ibqp),
	INIT_RDMA_OBJ_SIZE(ib_srq, kfib_srq, ibsrq),
	INIT_RDMA_OBJ_SIZE(ib_ucontext, kfib_ucontext, ibucontext),
};

/* The attributes and methods of kfabric-abi.h. */
static const struct uapi_definition kfib_defs[] = {
	UAPI_DEF_CHAIN(kfib_comp_cntr_defs),
	UAPI_DEF_CHAIN(kfib_counters_defs),
	{}
};

/* The functions that the objects of kfabric.ko call. */
static const struct kfabric_verbs_callbacks kfib_callbacks = {
	.comp = kfib_cq_comp,
	.cq_error = kfib_cq_error,
	.srq_event = kfib_srq_event,
	.qp_event = kfib_qp_event,
};

static const struct ib_device_ops *kfib_driver_ops(void)
{
	return ipath ? &kfib_ipath_ops : &kfib_own_ops;
}

/* The GUID of a device: of the interface's address, or random without one. */
static __be64 kfib_guid(const struct net_device *ndev)
{
	u8 addr[ETH_ALEN];
	__be64 guid;

	if (ndev->addr_len == ETH_ALEN && !is_zero_ether_addr(ndev->dev_addr))
		ether_addr_copy(addr, ndev->dev_addr);
	else
		eth_random_addr(addr);
	addrconf_addr_eui48((u8 *)&guid, addr);
	return guid;
}

/**
 * struct kfib_place - where an interface is
 * @net: its namespace, with a reference
 * @ifindex: its index there
 * @name: its name there
 */
struct kfib_place {
	struct net *net;
	u32 ifindex;
	char name[IFNAMSIZ];
};

/* Where the interface is now, unless it is going. */
static int kfib_place_of(const struct net_device *ndev,
			 struct kfib_place *place)
{
	int ret = -ENODEV;

	rtnl_lock();
	place->net = ndev->reg_state == NETREG_REGISTERED ?
		     maybe_get_net(dev_net(ndev)) : NULL;
	if (place->net) {
		place->ifindex = ndev->ifindex;
		strscpy(place->name, ndev->name);
		ret = 0;
	}
	rtnl_unlock();
	return ret;
}

static int kfib_device_register(struct ib_device *ibdev, const char *name,
				struct net_device *ndev)
{
	int ret;

	strscpy(ibdev->node_desc, "kfabric", sizeof(ibdev->node_desc));
	ibdev->node_type = RDMA_NODE_IB_CA;
	ibdev->driver_def = kfib_defs;
	ibdev->node_guid = kfib_guid(ndev);
	ibdev->phys_port_cnt = 1;
	ibdev->num_comp_vectors = num_possible_cpus();
	ibdev->uverbs_cmd_mask |= BIT_ULL(IB_USER_VERBS_CMD_POST_SEND) |
				  BIT_ULL(IB_USER_VERBS_CMD_POST_RECV) |
				  BIT_ULL(IB_USER_VERBS_CMD_POLL_CQ) |
				  BIT_ULL(IB_USER_VERBS_CMD_REQ_NOTIFY_CQ) |
				  BIT_ULL(IB_USER_VERBS_CMD_POST_SRQ_RECV);
	ib_mark_name_assigned_by_user(ibdev);
	ret = ib_device_set_netdev(ibdev, ndev, KFIB_PORT);
	if (ret)
		return ret;
	ret = ib_register_device(ibdev, name, NULL);
	/* ib_core found the name at a device whose link has another name. */
	return ret == -ENFILE ? -EEXIST : ret;
}

/**
 * kfib_device_add - add a device
 * @name: its name
 * @ndev: its interface, to which the caller has a reference
 *
 * Context: process; takes the RTNL.
 * Return: the device, which may have gone already, or an error: -EEXIST if the
 * interface has a device of kfabric or the name is in use, -ENODEV if the
 * interface is going, and those of kfabric_verbs_device_add().
 */
struct ib_device *kfib_device_add(const char *name, struct net_device *ndev)
{
	struct kfabric_verbs_device *device;
	struct kfib_place place;
	struct kfib_device *kfib;
	int ret;

	ret = kfib_place_of(ndev, &place);
	if (ret)
		return ERR_PTR(ret);
	ret = -ENOMEM;
	kfib = ib_alloc_device_with_net(kfib_device, ibdev, place.net);
	if (!kfib)
		goto err_net;
	ib_set_device_ops(&kfib->ibdev, kfib_driver_ops());
	ib_set_device_ops(&kfib->ibdev, &kfib_device_ops);

	device = kfabric_verbs_device_add(place.net, name, place.name,
					  place.ifindex, &kfib_callbacks);
	if (IS_ERR(device)) {
		ret = PTR_ERR(device);
		goto err_device;
	}
	kfib->device = device;
	ret = kfib_device_register(&kfib->ibdev, name, ndev);
	if (ret)
		goto err_device;
	put_net(place.net);
	return &kfib->ibdev;

err_device:
	ib_dealloc_device(&kfib->ibdev);
err_net:
	put_net(place.net);
	return ERR_PTR(ret);
}

/**
 * kfib_device_on - find the device on an interface
 * @ndev: the interface
 *
 * Context: any but NMIs.
 * Return: the device with a reference, for ib_device_put(), or NULL.
 */
struct ib_device *kfib_device_on(struct net_device *ndev)
{
	return ib_device_get_by_netdev(ndev, kfib_driver_ops()->driver_id);
}

/**
 * kfib_device_remove_all - remove all devices
 *
 * Returns when all have gone, also those that another task removes. The caller
 * makes sure that none is added.
 *
 * Context: process.
 */
void kfib_device_remove_all(void)
{
	ib_unregister_driver(kfib_driver_ops()->driver_id);
}

/**
 * kfib_device_init - set up what all devices need
 *
 * Context: process.
 * Return: 0, or -ENOMEM.
 */
int __init kfib_device_init(void)
{
	return kfib_stats_init();
}

/**
 * kfib_device_exit - free what all devices needed; no device is left
 *
 * Context: process.
 */
void kfib_device_exit(void)
{
	kfib_stats_exit();
}
