/* SPDX-License-Identifier: GPL-2.0 */
/*
 * The calls of completion counters, counters and flows by ioctl, without a provider
 * that has them. The numbers are those of include/uapi/rdma/ib_user_ioctl_cmds.h of
 * Linux 7.3. Included by verbs-counting.h.
 */
#ifndef VERBS_IOCTL_H
#define VERBS_IOCTL_H

#include <rdma/rdma_user_ioctl_cmds.h>

enum {
	OBJECT_COMP_CNTR = 19,

	DEVICE_QUERY_COMP_CNTR_CAPS = 8,
	QP_ATTACH_COMP_CNTR = 2,

	COMP_CNTR_CREATE = 0,
	COMP_CNTR_DESTROY,
	COMP_CNTR_MODIFY,
	COMP_CNTR_READ,
};

#define ATTRS	12

union call {
	struct ib_uverbs_ioctl_hdr hdr;
	__u8 room[sizeof(struct ib_uverbs_ioctl_hdr) + ATTRS * sizeof(struct ib_uverbs_attr)];
};

static inline union call begin(__u16 object, __u16 method)
{
	union call call = { .room = { 0 } };

	call.hdr.object_id = object;
	call.hdr.method_id = method;
	/* With ipath=1. */
	call.hdr.driver_id = RDMA_DRIVER_QIB;
	return call;
}

static inline void attr(union call *call, __u16 id, __u16 len, __u64 data)
{
	expect(call->hdr.num_attrs < ATTRS, "too many attributes");
	call->hdr.attrs[call->hdr.num_attrs++] = (struct ib_uverbs_attr) {
		.attr_id = id,
		.len = len,
		.flags = UVERBS_ATTR_F_MANDATORY,
		.data = data,
	};
}

static inline void memory_attr(union call *call, __u16 id, __u16 len, const void *memory)
{
	__u64 data = (__u64)(unsigned long)memory;

	/* The kernel reads up to 8 bytes from the attribute itself. */
	if (len <= 8)
		memcpy(&data, memory, len);
	attr(call, id, len, data);
}

static inline void out_attr(union call *call, __u16 id, __u16 len, void *memory)
{
	attr(call, id, len, (__u64)(unsigned long)memory);
}

static inline int run(union call *call)
{
	call->hdr.length = sizeof(call->hdr) + call->hdr.num_attrs * sizeof(call->hdr.attrs[0]);
	return ioctl(device->cmd_fd, RDMA_VERBS_IOCTL, &call->hdr) ? errno : 0;
}

static inline int create(struct wanted wanted, __u32 *cntr)
{
	union call call = begin(OBJECT_COMP_CNTR, COMP_CNTR_CREATE);
	int ret;

	attr(&call, 0, 0, 0);
	if (wanted.unit)
		attr(&call, KFABRIC_IB_ATTR_CREATE_COMP_CNTR_UNIT, 8, *wanted.unit);
	if (wanted.comp)
		memory_attr(&call, KFABRIC_IB_ATTR_CREATE_COMP_CNTR_COMP_BUFFER,
			    sizeof(*wanted.comp), wanted.comp);
	if (wanted.err)
		memory_attr(&call, KFABRIC_IB_ATTR_CREATE_COMP_CNTR_ERR_BUFFER,
			    sizeof(*wanted.err), wanted.err);
	if (wanted.resp)
		out_attr(&call, KFABRIC_IB_ATTR_CREATE_COMP_CNTR_RESP, sizeof(*wanted.resp),
			 wanted.resp);
	ret = run(&call);
	*cntr = call.hdr.attrs[0].data;
	return ret;
}

/* Maps the values of a counter. */
static inline volatile __u64 *map_of(__u64 offset, int prot)
{
	void *map = mmap(NULL, PAGE, prot, MAP_SHARED, device->cmd_fd, offset);

	return map == MAP_FAILED ? NULL : map;
}

/* A new counter, and its values in mapped memory. */
static inline volatile __u64 *mapped(__u32 *cntr)
{
	struct kfabric_ib_comp_cntr_resp resp;
	int ret = create((struct wanted) { .resp = &resp }, cntr);
	volatile __u64 *values;

	expect(!ret, "create: %s", strerror(ret));
	values = map_of(resp.mmap_offset, PROT_READ);
	expect(values, "mmap: %s", strerror(errno));
	return values;
}

static inline int destroy(__u32 cntr)
{
	union call call = begin(OBJECT_COMP_CNTR, COMP_CNTR_DESTROY);

	attr(&call, 0, 0, cntr);
	return run(&call);
}

static inline int change(__u32 cntr, __u64 entry, __u64 op, __u64 value)
{
	union call call = begin(OBJECT_COMP_CNTR, COMP_CNTR_MODIFY);

	attr(&call, 0, 0, cntr);
	attr(&call, 1, 8, entry);
	attr(&call, 2, 8, op);
	attr(&call, 3, 8, value);
	return run(&call);
}

static inline int try_read(__u32 cntr, __u64 entry, __u64 *value)
{
	union call call = begin(OBJECT_COMP_CNTR, COMP_CNTR_READ);

	attr(&call, 0, 0, cntr);
	attr(&call, 1, 8, entry);
	out_attr(&call, 2, sizeof(*value), value);
	return run(&call);
}

static inline int attach(struct ibv_qp *qp, __u32 cntr, __u64 ops)
{
	union call call = begin(UVERBS_OBJECT_QP, QP_ATTACH_COMP_CNTR);

	attr(&call, 0, 0, qp->handle);
	attr(&call, 1, 0, cntr);
	attr(&call, 2, 8, ops);
	return run(&call);
}

static inline int query_caps(__u32 *max_counters, __u64 *max_value, __u32 *ops)
{
	union call call = begin(UVERBS_OBJECT_DEVICE, DEVICE_QUERY_COMP_CNTR_CAPS);

	out_attr(&call, 0, sizeof(*max_counters), max_counters);
	out_attr(&call, 1, sizeof(*max_value), max_value);
	out_attr(&call, 2, sizeof(*ops), ops);
	return run(&call);
}

static inline int create_counters(__u32 *counters)
{
	union call call = begin(UVERBS_OBJECT_COUNTERS, UVERBS_METHOD_COUNTERS_CREATE);
	int ret;

	attr(&call, UVERBS_ATTR_CREATE_COUNTERS_HANDLE, 0, 0);
	ret = run(&call);
	*counters = call.hdr.attrs[0].data;
	return ret;
}

static inline int destroy_counters(__u32 counters)
{
	union call call = begin(UVERBS_OBJECT_COUNTERS, UVERBS_METHOD_COUNTERS_DESTROY);

	attr(&call, UVERBS_ATTR_DESTROY_COUNTERS_HANDLE, 0, counters);
	return run(&call);
}

static inline int read_counters(__u32 counters, __u64 *values, __u32 count, __u64 flags)
{
	union call call = begin(UVERBS_OBJECT_COUNTERS, UVERBS_METHOD_COUNTERS_READ);

	attr(&call, UVERBS_ATTR_READ_COUNTERS_HANDLE, 0, counters);
	out_attr(&call, UVERBS_ATTR_READ_COUNTERS_BUFF, count * sizeof(*values), values);
	attr(&call, UVERBS_ATTR_READ_COUNTERS_FLAGS, 8, flags);
	return run(&call);
}

static inline int attach_point(__u32 counters, __u32 flow, __u64 description, __u64 index)
{
	union call call = begin(UVERBS_OBJECT_COUNTERS, KFABRIC_IB_METHOD_COUNTERS_ATTACH);

	attr(&call, KFABRIC_IB_ATTR_COUNTERS_ATTACH_COUNTERS, 0, counters);
	if (flow != NO_FLOW)
		attr(&call, KFABRIC_IB_ATTR_COUNTERS_ATTACH_FLOW, 0, flow);
	attr(&call, KFABRIC_IB_ATTR_COUNTERS_ATTACH_DESCRIPTION, 8, description);
	attr(&call, KFABRIC_IB_ATTR_COUNTERS_ATTACH_INDEX, 8, index);
	return run(&call);
}

static inline int create_flow(const union flow *flow, __u32 *handle)
{
	union call call = begin(UVERBS_OBJECT_DEVICE, UVERBS_METHOD_INVOKE_WRITE);
	struct ib_uverbs_create_flow_resp resp = { 0 };
	int ret;

	memory_attr(&call, UVERBS_ATTR_CORE_IN,
		    sizeof(flow->create) + flow->create.flow_attr.size, flow);
	out_attr(&call, UVERBS_ATTR_CORE_OUT, sizeof(resp), &resp);
	attr(&call, UVERBS_ATTR_WRITE_CMD, 8,
	     IB_USER_VERBS_EX_CMD_CREATE_FLOW | IB_USER_VERBS_CMD_FLAG_EXTENDED);
	ret = run(&call);
	*handle = resp.flow_handle;
	return ret;
}

static inline int destroy_flow(__u32 flow)
{
	union call call = begin(UVERBS_OBJECT_FLOW, UVERBS_METHOD_FLOW_DESTROY);

	attr(&call, UVERBS_ATTR_DESTROY_FLOW_HANDLE, 0, flow);
	return run(&call);
}

#endif /* VERBS_IOCTL_H */
