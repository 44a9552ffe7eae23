/* SPDX-License-Identifier: GPL-2.0 */
/*
 * kfabric_ib.ko: devices of the RDMA subsystem on the links of kfabric.ko.
 *
 * Each operation of ib_core is translated into a call of kfabric.ko, which has
 * the objects: see rust/module/verbs/. An object of ib_core has the handle of
 * its object there.
 */
#ifndef _KFABRIC_IB_H
#define _KFABRIC_IB_H

#include <rdma/ib_verbs.h>

#include "../rust/module/verbs/bindings.h"

/* The only port of a device. */
#define KFIB_PORT	1

/**
 * struct kfib_device - a device
 * @ibdev: of ib_core
 * @device: of kfabric.ko; NULL if it could not be added
 */
struct kfib_device {
	struct ib_device ibdev;
	struct kfabric_verbs_device *device;
};

/**
 * struct kfib_ucontext - what a program has of a device
 * @ibucontext: of ib_core
 * @context: of kfabric.ko
 */
struct kfib_ucontext {
	struct ib_ucontext ibucontext;
	struct kfabric_verbs_context *context;
};

static inline struct kfib_device *to_kfib(struct ib_device *ibdev)
{
	return container_of(ibdev, struct kfib_device, ibdev);
}

static inline struct kfib_ucontext *
to_kfib_ucontext(struct ib_ucontext *ibucontext)
{
	return container_of(ibucontext, struct kfib_ucontext, ibucontext);
}

/* device.c */
int kfib_device_init(void);
void kfib_device_exit(void);
struct ib_device *kfib_device_add(const char *name, struct net_device *ndev);
struct ib_device *kfib_device_on(struct net_device *ndev);
void kfib_device_remove_all(void);

/* port.c */
int kfib_query_port(struct ib_device *ibdev, u32 port,
		    struct ib_port_attr *attr);
int kfib_query_pkey(struct ib_device *ibdev, u32 port, u16 index, u16 *pkey);
int kfib_get_port_immutable(struct ib_device *ibdev, u32 port,
			    struct ib_port_immutable *immutable);
enum rdma_link_layer kfib_get_link_layer(struct ib_device *ibdev, u32 port);
int kfib_add_gid(const struct ib_gid_attr *attr, void **context);
int kfib_del_gid(const struct ib_gid_attr *attr, void **context);
struct rdma_hw_stats *kfib_alloc_hw_port_stats(struct ib_device *ibdev,
					       u32 port);
int kfib_get_hw_stats(struct ib_device *ibdev, struct rdma_hw_stats *stats,
		      u32 port, int index);
int kfib_stats_init(void);
void kfib_stats_exit(void);

/* context.c */
int kfib_alloc_ucontext(struct ib_ucontext *ibucontext,
			struct ib_udata *udata);
void kfib_dealloc_ucontext(struct ib_ucontext *ibucontext);
void kfib_disassociate_ucontext(struct ib_ucontext *ibucontext);

#endif /* _KFABRIC_IB_H */
