// SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause
/*
 * Counters, and the flows that they count.
 */

#include <errno.h>
#include <stdlib.h>

#include "kfabric.h"

static_assert(IBV_COUNTER_PACKETS == (int)KFABRIC_IB_COUNTER_PACKETS &&
	      IBV_COUNTER_BYTES == (int)KFABRIC_IB_COUNTER_BYTES,
	      "what a counter counts");

static struct verbs_counters *to_vcounters(struct ibv_counters *counters)
{
	return container_of(counters, struct verbs_counters, counters);
}

struct ibv_counters *kf_create_counters(struct ibv_context *context,
					struct ibv_counters_init_attr *attr)
{
	struct verbs_counters *vcounters;
	int ret;

	vcounters = calloc(1, sizeof(*vcounters));
	if (!vcounters)
		return NULL;
	ret = ibv_cmd_create_counters(context, attr, vcounters, NULL);
	if (ret) {
		free(vcounters);
		errno = ret == EPROTONOSUPPORT ? EOPNOTSUPP : ret;
		return NULL;
	}
	return &vcounters->counters;
}

int kf_destroy_counters(struct ibv_counters *counters)
{
	int ret = ibv_cmd_destroy_counters(to_vcounters(counters));

	if (!ret)
		free(to_vcounters(counters));
	return ret;
}

/*
 * Attaches to a flow that exists, or, without one, to the flows that are created
 * with these counters.
 */
int kf_attach_counters(struct ibv_counters *counters,
		       struct ibv_counter_attach_attr *attr,
		       struct ibv_flow *flow)
{
	DECLARE_COMMAND_BUFFER(cmd, UVERBS_OBJECT_COUNTERS,
			       KFABRIC_IB_METHOD_COUNTERS_ATTACH, 4);
	int ret;

	/* Its number would be that of another flow there. */
	if (flow && flow->context != counters->context)
		return EINVAL;
	if (attr->comp_mask)
		return EOPNOTSUPP;
	fill_attr_in_obj(cmd, KFABRIC_IB_ATTR_COUNTERS_ATTACH_COUNTERS,
			 to_vcounters(counters)->handle);
	if (flow)
		fill_attr_in_obj(cmd, KFABRIC_IB_ATTR_COUNTERS_ATTACH_FLOW,
				 flow->handle);
	fill_attr_const_in(cmd, KFABRIC_IB_ATTR_COUNTERS_ATTACH_DESCRIPTION,
			   attr->counter_desc);
	fill_attr_in_uint32(cmd, KFABRIC_IB_ATTR_COUNTERS_ATTACH_INDEX,
			    attr->index);
	ret = execute_ioctl(counters->context, cmd);
	return ret == EPROTONOSUPPORT ? EOPNOTSUPP : ret;
}

int kf_read_counters(struct ibv_counters *counters, uint64_t *values,
		     uint32_t num, uint32_t flags)
{
	return ibv_cmd_read_counters(to_vcounters(counters), values, num,
				     flags, NULL);
}

struct ibv_flow *kf_create_flow(struct ibv_qp *qp, struct ibv_flow_attr *attr)
{
	struct ibv_flow *flow;
	int ret;

	flow = calloc(1, sizeof(*flow));
	if (!flow)
		return NULL;
	ret = ibv_cmd_create_flow(qp, flow, attr, NULL, 0);
	if (ret) {
		free(flow);
		errno = ret;
		return NULL;
	}
	return flow;
}

int kf_destroy_flow(struct ibv_flow *flow)
{
	int ret = ibv_cmd_destroy_flow(flow);

	if (!ret)
		free(flow);
	return ret;
}
