// SPDX-License-Identifier: GPL-2.0
/*
 * Counters of packets, into which flows count.
 */

#include <rdma/uverbs_std_types.h>
#define UVERBS_MODULE_NAME kfabric_ib
#include <rdma/uverbs_named_ioctl.h>
#include <rdma/uverbs_ioctl.h>

#include "kfabric_ib.h"

static_assert(KFABRIC_IB_COUNTER_PACKETS == (int)IB_COUNTER_PACKETS);
static_assert(KFABRIC_IB_COUNTER_BYTES == (int)IB_COUNTER_BYTES);

/**
 * kfib_create_counters - create counters
 * @ibcounters: the counters
 * @attrs: the attributes of the call
 *
 * Context: process.
 * Return: 0, or an error of kfabric_verbs_counters_create().
 */
int kfib_create_counters(struct ib_counters *ibcounters,
			 struct uverbs_attr_bundle *attrs)
{
	struct kfabric_verbs_context *context =
		kfib_context_of(&attrs->driver_udata);
	struct kfabric_verbs_counters *counters;

	counters = kfabric_verbs_counters_create(context);
	if (IS_ERR(counters))
		return PTR_ERR(counters);
	to_kfib_counters(ibcounters)->counters = counters;
	return 0;
}

/**
 * kfib_destroy_counters - destroy counters
 * @ibcounters: the counters, which the core has found to be in no use
 *
 * Context: process.
 * Return: 0.
 */
int kfib_destroy_counters(struct ib_counters *ibcounters)
{
	return kfabric_verbs_counters_destroy(to_kfib_counters(ibcounters)->counters);
}

/**
 * kfib_read_counters - read the first counters
 * @ibcounters: the counters
 * @attr: how many, and out: their values. The values are always the current
 *        ones, even if the program accepts cached ones
 * @attrs: the attributes of the call
 *
 * Context: process.
 * Return: 0; -EINVAL for none, or more than there are.
 */
int kfib_read_counters(struct ib_counters *ibcounters,
		       struct ib_counters_read_attr *attr,
		       struct uverbs_attr_bundle *attrs)
{
	return kfabric_verbs_counters_read(to_kfib_counters(ibcounters)->counters,
					   attr->counters_buff,
					   attr->ncounters);
}

/*
 * Attaches a point to a live flow, which uses the counters until it ends. The
 * core counts that use for static points only, so this function counts it.
 */
static int kfib_attach_to_flow(struct kfib_flow *flow,
			       struct ib_counters *ibcounters, u32 description,
			       u32 index)
{
	int ret;

	mutex_lock(&flow->lock);
	ret = kfabric_verbs_counters_attach(to_kfib_counters(ibcounters)->counters,
					    flow->flow, description, index);
	/* There is room: a flow has no more points. */
	if (!ret && !WARN_ON_ONCE(flow->num_used == ARRAY_SIZE(flow->used))) {
		atomic_inc(&ibcounters->usecnt);
		flow->used[flow->num_used++] = ibcounters;
	}
	mutex_unlock(&flow->lock);
	return ret;
}

static int
UVERBS_HANDLER(KFABRIC_IB_METHOD_COUNTERS_ATTACH)(struct uverbs_attr_bundle *attrs)
{
	struct ib_counters *ibcounters =
		uverbs_attr_get_obj(attrs,
				    KFABRIC_IB_ATTR_COUNTERS_ATTACH_COUNTERS);
	u32 description, index;
	struct ib_flow *ibflow;
	int ret;

	/* Numbers of 32 or 64 bits. */
	ret = uverbs_get_flags32(&description, attrs,
				 KFABRIC_IB_ATTR_COUNTERS_ATTACH_DESCRIPTION,
				 U32_MAX);
	if (ret)
		return ret;
	ret = uverbs_get_flags32(&index, attrs,
				 KFABRIC_IB_ATTR_COUNTERS_ATTACH_INDEX,
				 U32_MAX);
	if (ret)
		return ret;
	if (!uverbs_attr_is_valid(attrs, KFABRIC_IB_ATTR_COUNTERS_ATTACH_FLOW))
		return kfabric_verbs_counters_attach(to_kfib_counters(ibcounters)->counters,
						     NULL, description, index);
	ibflow = uverbs_attr_get_obj(attrs,
				     KFABRIC_IB_ATTR_COUNTERS_ATTACH_FLOW);
	return kfib_attach_to_flow(to_kfib_flow(ibflow), ibcounters,
				   description, index);
}

DECLARE_UVERBS_NAMED_METHOD(KFABRIC_IB_METHOD_COUNTERS_ATTACH,
			    UVERBS_ATTR_IDR(KFABRIC_IB_ATTR_COUNTERS_ATTACH_COUNTERS,
					    UVERBS_OBJECT_COUNTERS,
					    UVERBS_ACCESS_READ,
					    UA_MANDATORY),
			    UVERBS_ATTR_IDR(KFABRIC_IB_ATTR_COUNTERS_ATTACH_FLOW,
					    UVERBS_OBJECT_FLOW,
					    UVERBS_ACCESS_READ,
					    UA_OPTIONAL),
			    UVERBS_ATTR_FLAGS_IN(KFABRIC_IB_ATTR_COUNTERS_ATTACH_DESCRIPTION,
						 enum kfabric_ib_counter_description,
						 UA_MANDATORY),
			    UVERBS_ATTR_FLAGS_IN(KFABRIC_IB_ATTR_COUNTERS_ATTACH_INDEX,
						 u32,
						 UA_MANDATORY));

ADD_UVERBS_METHODS(kfib_counters_methods,
		   UVERBS_OBJECT_COUNTERS,
		   &UVERBS_METHOD(KFABRIC_IB_METHOD_COUNTERS_ATTACH));

const struct uapi_definition kfib_counters_defs[] = {
	UAPI_DEF_CHAIN_OBJ_TREE(UVERBS_OBJECT_COUNTERS,
				&kfib_counters_methods),
	{}
};
