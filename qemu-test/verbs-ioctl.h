/* SPDX-License-Identifier: GPL-2.0 */
/*
 * The calls of completion counters, counters and flows by ioctl, for programs on a
 * system whose rdma-core does not have them. The numbers are those of
 * include/uapi/rdma/ib_user_ioctl_cmds.h of Linux 7.3.
 *
 * A call returns 0 or an error number.
 */
#ifndef VERBS_IOCTL_H
#define VERBS_IOCTL_H

#include <rdma/ib_user_ioctl_cmds.h>
#include <rdma/ib_user_ioctl_verbs.h>
#include <rdma/ib_user_verbs.h>
#include <rdma/rdma_user_ioctl_cmds.h>
#include <sys/ioctl.h>

#include "../include/uapi/rdma/kfabric-abi.h"
#include "verbs-ends.h"

enum {
	OBJECT_COMP_CNTR = 19,

	DEVICE_QUERY_COMP_CNTR_CAPS = 8,
	QP_ATTACH_COMP_CNTR = 2,

	COMP_CNTR_CREATE = 0,
	COMP_CNTR_DESTROY,
	COMP_CNTR_MODIFY,
	COMP_CNTR_READ,
};

enum { ENTRY_COMP, ENTRY_ERR };
enum { OP_SET, OP_INC };
enum {
	OP_SEND = 1,
	OP_RECV = 2,
	OP_RDMA_READ = 4,
	OP_REMOTE_RDMA_READ = 8,
	OP_RDMA_WRITE = 16,
	OP_REMOTE_RDMA_WRITE = 32,
	OP_ALL = 63,
};

/* struct ib_uverbs_buffer_desc. */
struct buffer {
	__u32 type;
	__s32 fd;
	__u32 flags;
	__u32 optional_flags;
	__aligned_u64 addr;
	__aligned_u64 length;
};

enum { BUFFER_DMABUF, BUFFER_VA };

#define ATTRS	8

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

	/* The kernel reads what is so short from the attribute. */
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

/* What a new completion counter is to be; nothing is usual. */
struct wanted {
	const __u32 *unit;
	const struct buffer *comp, *err;
	struct kfabric_ib_comp_cntr_resp *resp;
};

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

#define NO_FLOW	(~0u)

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

/* A flow with its specifications. */
union flow {
	struct ib_uverbs_create_flow create;
	__u8 room[sizeof(struct ib_uverbs_create_flow) +
		  4 * sizeof(struct ib_uverbs_flow_spec_ipv6)];
};

static inline union flow flow_of(struct ibv_qp *qp)
{
	union flow flow = { .room = { 0 } };

	flow.create.qp_handle = qp->handle;
	flow.create.flow_attr.type = IBV_FLOW_ATTR_NORMAL;
	flow.create.flow_attr.port = 1;
	return flow;
}

static inline void spec(union flow *flow, const void *spec, __u32 size)
{
	struct ib_uverbs_flow_attr *at = &flow->create.flow_attr;
	__u32 used = sizeof(flow->create) + at->size;

	expect(used + size <= sizeof(flow->room), "too many specifications");
	memcpy(flow->room + used, spec, size);
	at->size += size;
	at->num_of_specs++;
}

static inline void count_into(union flow *flow, __u32 counters)
{
	struct ib_uverbs_flow_spec_action_count count = {
		.type = IBV_FLOW_SPEC_ACTION_COUNT,
		.size = sizeof(count),
		.handle = counters,
	};

	spec(flow, &count, sizeof(count));
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

static inline void must(int ret, int wanted, const char *what)
{
	expect(ret == wanted, "%s: %s, not %s", what, ret ? strerror(ret) : "success",
	       wanted ? strerror(wanted) : "success");
}

static inline __u32 make(struct wanted wanted)
{
	__u32 cntr;

	must(create(wanted, &cntr), 0, "create");
	return cntr;
}

static inline __u32 usual_cntr(void)
{
	return make((struct wanted) { 0 });
}

static inline __u64 value(__u32 cntr, __u32 entry)
{
	__u64 now;

	must(try_read(cntr, entry, &now), 0, "read");
	return now;
}

/* The counter has these values in the end. */
static inline void counts(__u32 cntr, __u64 comp, __u64 err)
{
	long long until = now() + SECONDS * 1000;

	while (value(cntr, ENTRY_COMP) != comp || value(cntr, ENTRY_ERR) != err)
		expect(now() < until, "values %llu and %llu, not %llu and %llu",
		       (unsigned long long)value(cntr, ENTRY_COMP),
		       (unsigned long long)value(cntr, ENTRY_ERR), (unsigned long long)comp,
		       (unsigned long long)err);
	/* And no others. */
	pause_ms(50);
	expect(value(cntr, ENTRY_COMP) == comp && value(cntr, ENTRY_ERR) == err,
	       "the values change once more");
}

static inline void must_attach(struct end *end, __u32 cntr, __u64 ops)
{
	must(attach(end->qp, cntr, ops), 0, "attach");
}

/* Both ends, which are not connected yet. */
static inline void ends(enum ibv_qp_type type)
{
	make_end(&a, type, 0);
	make_end(&b, type, 0);
}

/* A work request of a for b, with @len bytes. */
static inline void send_one(enum ibv_wr_opcode opcode, __u32 len, int flags)
{
	struct ibv_sge one = sge(&a, 0, len);
	struct ibv_send_wr send = wr(1, opcode, &one, 1);

	remote(&send, &b, 0);
	send.imm_data = htobe32(7);
	send.send_flags = flags;
	must_post(&a, &send);
}

#endif /* VERBS_IOCTL_H */
