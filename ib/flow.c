// SPDX-License-Identifier: GPL-2.0
/*
 * Flows: rules of a QP for datagrams, which count the packets that match.
 */

#include <linux/in.h>
#include <linux/slab.h>
#include <linux/socket.h>
#include <rdma/ib_pack.h>
#include <rdma/uverbs_ioctl.h>

#include "kfabric_ib.h"

/*
 * The specifications of a flow, translated. Each kind comes once at most. A
 * field that is not compared by kfabric.ko, and not the same in all packets of
 * RoCE v2, must have an empty mask.
 */
struct kfib_specs {
	struct kfabric_verbs_rule rule;
	struct kfabric_verbs_counters *counters;
	bool has_eth;
	bool has_udp;
};

/* Whether a rule matches a field that has the same value in all packets. */
static bool kfib_always(u32 known, u32 val, u32 mask)
{
	return (known & mask) == val && !(val & ~mask);
}

static int kfib_spec_eth(const struct ib_flow_spec_eth *spec,
			 struct kfib_specs *specs)
{
	if (specs->has_eth || memchr_inv(&spec->mask, 0, sizeof(spec->mask)) ||
	    memchr_inv(&spec->val, 0, sizeof(spec->val)))
		return -EINVAL;
	specs->has_eth = true;
	return 0;
}

static void kfib_ipv4_addrs(const struct ib_flow_ipv4_filter *from,
			    struct kfabric_verbs_match *to)
{
	memcpy(to->src_ip, &from->src_ip, sizeof(from->src_ip));
	memcpy(to->dest_ip, &from->dst_ip, sizeof(from->dst_ip));
}

static int kfib_spec_ipv4(const struct ib_flow_spec_ipv4 *spec,
			  struct kfib_specs *specs)
{
	const struct ib_flow_ipv4_filter *val = &spec->val, *mask = &spec->mask;

	if (specs->rule.family ||
	    !kfib_always(IPPROTO_UDP, val->proto, mask->proto) ||
	    mask->tos || mask->ttl || mask->flags ||
	    val->tos || val->ttl || val->flags)
		return -EINVAL;
	specs->rule.family = AF_INET;
	kfib_ipv4_addrs(val, &specs->rule.value);
	kfib_ipv4_addrs(mask, &specs->rule.mask);
	return 0;
}

static void kfib_ipv6_addrs(const struct ib_flow_ipv6_filter *from,
			    struct kfabric_verbs_match *to)
{
	memcpy(to->src_ip, from->src_ip, sizeof(from->src_ip));
	memcpy(to->dest_ip, from->dst_ip, sizeof(from->dst_ip));
}

static int kfib_spec_ipv6(const struct ib_flow_spec_ipv6 *spec,
			  struct kfib_specs *specs)
{
	const struct ib_flow_ipv6_filter *val = &spec->val, *mask = &spec->mask;

	if (specs->rule.family ||
	    !kfib_always(IPPROTO_UDP, val->next_hdr, mask->next_hdr) ||
	    mask->flow_label || mask->traffic_class || mask->hop_limit ||
	    val->flow_label || val->traffic_class || val->hop_limit)
		return -EINVAL;
	specs->rule.family = AF_INET6;
	kfib_ipv6_addrs(val, &specs->rule.value);
	kfib_ipv6_addrs(mask, &specs->rule.mask);
	return 0;
}

static int kfib_spec_udp(const struct ib_flow_spec_tcp_udp *spec,
			 struct kfib_specs *specs)
{
	const struct ib_flow_tcp_udp_filter *val = &spec->val;
	const struct ib_flow_tcp_udp_filter *mask = &spec->mask;

	if (specs->has_udp ||
	    !kfib_always(ROCE_V2_UDP_DPORT, be16_to_cpu(val->dst_port),
			 be16_to_cpu(mask->dst_port)))
		return -EINVAL;
	specs->has_udp = true;
	specs->rule.value.src_port = be16_to_cpu(val->src_port);
	specs->rule.mask.src_port = be16_to_cpu(mask->src_port);
	return 0;
}

static int kfib_spec(const union ib_flow_spec *spec, struct kfib_specs *specs)
{
	switch (spec->type) {
	case IB_FLOW_SPEC_ETH:
		return kfib_spec_eth(&spec->eth, specs);
	case IB_FLOW_SPEC_IPV4:
		return kfib_spec_ipv4(&spec->ipv4, specs);
	case IB_FLOW_SPEC_IPV6:
		return kfib_spec_ipv6(&spec->ipv6, specs);
	case IB_FLOW_SPEC_UDP:
		return kfib_spec_udp(&spec->tcp_udp, specs);
	case IB_FLOW_SPEC_ACTION_COUNT:
		if (specs->counters)
			return -EINVAL;
		specs->counters =
			to_kfib_counters(spec->flow_count.counters)->counters;
		return 0;
	default:
		return -EINVAL;
	}
}

/* Added to the priority of a default rule, which is compared after all others. */
#define KFIB_PRIORITY_DEFAULT	(U16_MAX + 1U)

/* Translates the attributes of a flow. Fails with -EINVAL. */
static int kfib_specs(const struct ib_flow_attr *attr, struct kfib_specs *specs)
{
	const void *spec = attr->flows;
	unsigned int i;
	int ret;

	if (attr->type != IB_FLOW_ATTR_NORMAL &&
	    attr->type != IB_FLOW_ATTR_ALL_DEFAULT)
		return -EINVAL;
	if (attr->flags & ~IB_FLOW_ATTR_FLAGS_DONT_TRAP)
		return -EINVAL;
	specs->rule.priority = attr->priority;
	specs->rule.dont_trap = attr->flags & IB_FLOW_ATTR_FLAGS_DONT_TRAP;
	for (i = 0; i < attr->num_of_specs; i++) {
		ret = kfib_spec(spec, specs);
		if (ret)
			return ret;
		spec += ((const union ib_flow_spec *)spec)->size;
	}
	if (attr->type != IB_FLOW_ATTR_ALL_DEFAULT)
		return 0;
	specs->rule.priority += KFIB_PRIORITY_DEFAULT;
	/* It has packets of all kinds. */
	return specs->rule.family || specs->has_udp || specs->has_eth ?
	       -EINVAL : 0;
}

/**
 * kfib_create_flow - create a flow
 * @ibqp: the QP, which the core keeps
 * @attr: the rule, and static counters
 * @udata: no driver data
 *
 * The core has checked that the program may create flows, and keeps the
 * counters.
 *
 * Context: process.
 * Return: the flow; -EINVAL for a rule that cannot be compared, -ENOMEM, and
 * the errors of kfabric_verbs_flow_create().
 */
struct ib_flow *kfib_create_flow(struct ib_qp *ibqp, struct ib_flow_attr *attr,
				 struct ib_udata *udata)
{
	struct kfib_specs specs = {};
	struct kfib_flow *flow;
	int ret;

	ret = ib_no_udata_io(udata);
	if (ret)
		return ERR_PTR(ret);
	ret = kfib_specs(attr, &specs);
	if (ret)
		return ERR_PTR(ret);
	flow = kzalloc_obj(*flow, GFP_KERNEL_ACCOUNT);
	if (!flow)
		return ERR_PTR(-ENOMEM);
	mutex_init(&flow->lock);
	flow->flow = kfabric_verbs_flow_create(to_kfib_qp(ibqp)->qp,
					       specs.counters, &specs.rule);
	if (IS_ERR(flow->flow)) {
		ret = PTR_ERR(flow->flow);
		mutex_destroy(&flow->lock);
		kfree(flow);
		return ERR_PTR(ret);
	}
	return &flow->ibflow;
}

/**
 * kfib_destroy_flow - destroy a flow
 * @ibflow: the flow
 *
 * Context: process.
 * Return: 0.
 */
int kfib_destroy_flow(struct ib_flow *ibflow)
{
	struct kfib_flow *flow = to_kfib_flow(ibflow);
	unsigned int i;
	int ret;

	ret = kfabric_verbs_flow_destroy(flow->flow);
	if (ret)
		return ret;
	for (i = 0; i < flow->num_used; i++)
		atomic_dec(&flow->used[i]->usecnt);
	mutex_destroy(&flow->lock);
	kfree(flow);
	return 0;
}
