/* SPDX-License-Identifier: GPL-2.0 */
/*
 * The functions that the front end for verbs offers to kfabric_ib.ko, which
 * connects them with ib_core.
 *
 * They are in Rust (verbs/), and exported by exports.c. bindgen generates
 * bindings from this header (see Kbuild), so that the definitions are compared
 * with these prototypes. Nothing here is a type of ib_core: kfabric.ko does not
 * depend on it.
 *
 * An object of the front end is a handle. The function that creates it gives
 * the caller a reference, and the function that ends it takes that reference.
 * No other function may be running with the handle then. Errors are negative
 * numbers, or pointers as by ERR_PTR().
 */
#ifndef _KFABRIC_VERBS_BINDINGS_H
#define _KFABRIC_VERBS_BINDINGS_H

#include <linux/types.h>

struct net;

struct kfabric_verbs_context;
struct kfabric_verbs_device;

/**
 * struct kfabric_verbs_port - the port of a device at one moment
 * @path_mtu: the path MTU that the interface allows, as enum ib_mtu; 0: its MTU
 *            is too small
 * @max_message: the longest message, bytes
 * @gone: the interface has gone, or has moved to another namespace
 */
struct kfabric_verbs_port {
	u32	path_mtu;
	u32	max_message;
	bool	gone;
};

/* Devices: device.rs. */
struct kfabric_verbs_device *
kfabric_verbs_device_add(struct net *net, const char *name, const char *ifname,
			 u32 ifindex);
void kfabric_verbs_device_remove(struct kfabric_verbs_device *device);
void kfabric_verbs_device_port(const struct kfabric_verbs_device *device,
			       struct kfabric_verbs_port *port);
u32 kfabric_verbs_device_stats(const struct kfabric_verbs_device *device,
			       u64 *values, u32 count);
const char *kfabric_verbs_stat_name(u32 number);

/* What a program has of a device: context.rs. */
struct kfabric_verbs_context *
kfabric_verbs_context_alloc(struct kfabric_verbs_device *device);
void kfabric_verbs_context_free(struct kfabric_verbs_context *context);

#endif /* _KFABRIC_VERBS_BINDINGS_H */
