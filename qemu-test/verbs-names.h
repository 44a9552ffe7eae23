/* SPDX-License-Identifier: GPL-2.0 */
/*
 * The calls of completion counters, counters and flows by the functions that the pages
 * have, with the provider libkfabric. Included by verbs-counting.h.
 */
#ifndef VERBS_NAMES_H
#define VERBS_NAMES_H

/* More than the counters that a device may have. */
#define NAMED	8192

/* The objects, by their numbers. */
static void *named[NAMED];
static __u32 names = 1;

static inline __u32 name_of(void *object)
{
	expect(names < NAMED, "too many objects");
	named[names] = object;
	return names++;
}

/* NULL for the number of no object: it has no pointer that a program could pass. */
static inline void *of_name(__u32 name)
{
	return name < NAMED ? named[name] : NULL;
}

/* A destroy function has returned @ret. */
static inline int destroyed_name(__u32 name, int ret)
{
	if (!ret)
		named[name] = NULL;
	return ret;
}

static inline struct kfdv_memory_location location(const struct buffer *buffer,
						   volatile __u64 *map)
{
	struct kfdv_memory_location location = { 0 };

	if (!buffer)
		return location;
	location.type = buffer->type == BUFFER_VA ? KFDV_MEMORY_LOCATION_VA :
						    KFDV_MEMORY_LOCATION_DMABUF;
	if (buffer->type == BUFFER_VA) {
		location.ptr = (void *)(unsigned long)buffer->addr;
	} else {
		location.ptr = (__u8 *)map;
		location.dmabuf.fd = buffer->fd;
		location.dmabuf.offset = buffer->addr;
	}
	return location;
}

/* Where the values of a counter are. */
static inline struct kfdv_comp_cntr places_of(__u32 cntr)
{
	struct kfdv_comp_cntr places;

	errno = kfdv_query_comp_cntr(of_name(cntr), &places, sizeof(places));
	expect(!errno, "kfdv_query_comp_cntr: %s", strerror(errno));
	return places;
}

static inline int create(struct wanted wanted, __u32 *cntr)
{
	struct ibv_comp_cntr_init_attr init = { .type = wanted.unit ? *wanted.unit : 0 };
	struct kfdv_comp_cntr_init_attr external = {
		.flags = KFDV_COMP_CNTR_INIT_WITH_EXTERNAL_MEM,
		.comp_cntr_ext_mem = location(wanted.comp, wanted.comp_map),
		.err_cntr_ext_mem = location(wanted.err, wanted.err_map),
	};
	struct ibv_comp_cntr *made;
	struct kfdv_comp_cntr places;

	if (wanted.comp || wanted.err)
		made = kfdv_create_comp_cntr(device, &init, &external, sizeof(external));
	else
		made = ibv_create_comp_cntr(device, &init);
	if (!made)
		return errno;
	*cntr = name_of(made);
	expect(made->context == device, "the counter is of another context");
	places = places_of(*cntr);
	if (!wanted.comp)
		expect(places.comp_count && places.err_count == places.comp_count + 1,
		       "the values are not mapped");
	else
		expect((__u8 *)places.comp_count == external.comp_cntr_ext_mem.ptr &&
		       (__u8 *)places.err_count == external.err_cntr_ext_mem.ptr,
		       "the values are not where the program has said");
	expect(places.comp_count_max_value == places.err_count_max_value, "two maxima");
	if (wanted.resp)
		*wanted.resp = (struct kfabric_ib_comp_cntr_resp) {
			.max_value = places.comp_count_max_value,
		};
	return 0;
}

/* The library maps the values. Programs do not get an offset. */
static inline volatile __u64 *map_of(__u64 offset, int prot)
{
	errx(1, "offset %llu, %d: by ioctl only", (unsigned long long)offset, prot);
}

/* A new counter, and its values in mapped memory. */
static inline volatile __u64 *mapped(__u32 *cntr)
{
	int ret = create((struct wanted) { 0 }, cntr);

	expect(!ret, "create: %s", strerror(ret));
	return (volatile __u64 *)places_of(*cntr).comp_count;
}

static inline int destroy(__u32 cntr)
{
	struct ibv_comp_cntr *object = of_name(cntr);

	return object ? destroyed_name(cntr, ibv_destroy_comp_cntr(object)) : ENOENT;
}

static inline int change(__u32 cntr, __u64 entry, __u64 op, __u64 value)
{
	struct ibv_comp_cntr *object = of_name(cntr);

	if (entry == ENTRY_COMP)
		return op == OP_SET ? ibv_set_comp_cntr(object, value) :
				      ibv_inc_comp_cntr(object, value);
	return op == OP_SET ? ibv_set_err_comp_cntr(object, value) :
			      ibv_inc_err_comp_cntr(object, value);
}

/* A read by call returns the value that is at its address, if it has one. */
static inline int try_read(__u32 cntr, __u64 entry, __u64 *value)
{
	struct ibv_comp_cntr *object = of_name(cntr);
	uint64_t got;
	int ret;

	if (!object)
		return ENOENT;
	ret = entry == ENTRY_COMP ? ibv_read_comp_cntr(object, &got) :
				    ibv_read_err_comp_cntr(object, &got);
	*value = got;
	return ret;
}

static inline int attach(struct ibv_qp *qp, __u32 cntr, __u64 ops)
{
	struct ibv_qp_attach_comp_cntr_attr attr = { .op_mask = ops };
	struct ibv_comp_cntr *object = of_name(cntr);

	return object ? ibv_qp_attach_comp_cntr(qp, object, &attr) : ENOENT;
}

static inline int query_caps(__u32 *max_counters, __u64 *max_value, __u32 *ops)
{
	struct ibv_comp_cntr_caps caps;
	int ret = ibv_query_comp_cntr_caps(device, &caps);

	*max_counters = caps.max_counters;
	*max_value = caps.max_value;
	*ops = caps.supported_qp_attach_ops;
	return ret;
}

static inline int create_counters(__u32 *counters)
{
	struct ibv_counters_init_attr init = { 0 };
	struct ibv_counters *made = ibv_create_counters(device, &init);

	if (!made)
		return errno;
	*counters = name_of(made);
	return 0;
}

static inline int destroy_counters(__u32 counters)
{
	struct ibv_counters *object = of_name(counters);

	return object ? destroyed_name(counters, ibv_destroy_counters(object)) : ENOENT;
}

static inline int read_counters(__u32 counters, __u64 *values, __u32 count, __u64 flags)
{
	return ibv_read_counters(of_name(counters), (uint64_t *)values, count, flags);
}

static inline int attach_point(__u32 counters, __u32 flow, __u64 description, __u64 index)
{
	struct ibv_counter_attach_attr attr = { .counter_desc = description, .index = index };
	struct ibv_counters *object = of_name(counters);

	if (!object || (flow != NO_FLOW && !of_name(flow)))
		return ENOENT;
	return ibv_attach_counters_point_flow(object, &attr,
					      flow == NO_FLOW ? NULL : of_name(flow));
}

/* Translates a specification of the kernel into one of libibverbs, at @to. Returns its size. */
static inline __u16 named_spec(const void *from, void *to)
{
	const struct ib_uverbs_flow_spec_action_count *count = from;
	const struct ib_uverbs_flow_spec_tcp_udp *ports = from;
	const struct ib_uverbs_flow_spec_ipv4 *ipv4 = from;
	const struct ib_uverbs_flow_spec_ipv6 *ipv6 = from;
	const struct ib_uverbs_flow_spec_eth *eth = from;
	struct ibv_flow_spec *spec = to;

	spec->hdr.type = count->type;
	switch (spec->hdr.type) {
	case IBV_FLOW_SPEC_ACTION_COUNT:
		spec->flow_count.counters = of_name(count->handle);
		return spec->hdr.size = sizeof(spec->flow_count);
	case IBV_FLOW_SPEC_ACTION_DROP:
		return spec->hdr.size = sizeof(spec->drop);
	case IBV_FLOW_SPEC_UDP:
	case IBV_FLOW_SPEC_TCP:
		memcpy(&spec->tcp_udp.val, &ports->val, sizeof(ports->val));
		memcpy(&spec->tcp_udp.mask, &ports->mask, sizeof(ports->mask));
		return spec->hdr.size = sizeof(spec->tcp_udp);
	case IBV_FLOW_SPEC_ETH:
		memcpy(&spec->eth.val, &eth->val, sizeof(spec->eth.val));
		memcpy(&spec->eth.mask, &eth->mask, sizeof(spec->eth.mask));
		return spec->hdr.size = sizeof(spec->eth);
	case IBV_FLOW_SPEC_IPV4:
		/* IBV_FLOW_SPEC_IPV4 has the two addresses only. */
		if (!ipv4->mask.proto && !ipv4->mask.tos && !ipv4->mask.ttl && !ipv4->mask.flags) {
			memcpy(&spec->ipv4.val, &ipv4->val, sizeof(spec->ipv4.val));
			memcpy(&spec->ipv4.mask, &ipv4->mask, sizeof(spec->ipv4.mask));
			return spec->hdr.size = sizeof(spec->ipv4);
		}
		spec->hdr.type = IBV_FLOW_SPEC_IPV4_EXT;
		memcpy(&spec->ipv4_ext.val, &ipv4->val, sizeof(ipv4->val));
		memcpy(&spec->ipv4_ext.mask, &ipv4->mask, sizeof(ipv4->mask));
		return spec->hdr.size = sizeof(spec->ipv4_ext);
	case IBV_FLOW_SPEC_IPV6:
		memcpy(&spec->ipv6.val, &ipv6->val, sizeof(spec->ipv6.val));
		memcpy(&spec->ipv6.mask, &ipv6->mask, sizeof(spec->ipv6.mask));
		return spec->hdr.size = sizeof(spec->ipv6);
	default:
		errx(1, "a specification %x has no name", spec->hdr.type);
	}
}

static inline int create_flow(const union flow *flow, __u32 *handle)
{
	const struct ib_uverbs_flow_attr *from = &flow->create.flow_attr;
	const __u8 *spec = flow->room + sizeof(flow->create);
	struct ibv_qp *qp = a.qp->handle == flow->create.qp_handle ? a.qp : b.qp;
	union {
		struct ibv_flow_attr attr;
		__u8 room[sizeof(struct ibv_flow_attr) + 4 * sizeof(struct ibv_flow_spec)];
	} named_flow = { .room = { 0 } };
	struct ibv_flow_attr *attr = &named_flow.attr;
	struct ibv_flow *made;
	__u32 i;

	attr->type = from->type;
	attr->size = sizeof(*attr);
	attr->priority = from->priority;
	attr->num_of_specs = from->num_of_specs;
	attr->port = from->port;
	attr->flags = from->flags;
	for (i = 0; i < from->num_of_specs; i++) {
		attr->size += named_spec(spec, named_flow.room + attr->size);
		spec += ((const struct ib_uverbs_flow_spec_action_drop *)spec)->size;
	}
	made = ibv_create_flow(qp, attr);
	if (!made)
		return errno;
	*handle = name_of(made);
	return 0;
}

static inline int destroy_flow(__u32 flow)
{
	struct ibv_flow *object = of_name(flow);

	return object ? destroyed_name(flow, ibv_destroy_flow(object)) : ENOENT;
}

#endif /* VERBS_NAMES_H */
