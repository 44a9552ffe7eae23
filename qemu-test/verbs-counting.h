/* SPDX-License-Identifier: GPL-2.0 */
/*
 * Completion counters, counters and flows, for programs that test each sentence of
 * ibv_create_comp_cntr(3) and ibv_attach_counters_point_flow(3). The programs are
 * compiled twice: to make the calls by ioctl, and with BY_NAME by the functions of the
 * pages, which are those of libibverbs and libkfabric. Objects have numbers, as those of
 * the kernel.
 *
 * A call returns 0 or an error number.
 */
#ifndef VERBS_COUNTING_H
#define VERBS_COUNTING_H

#include <rdma/ib_user_ioctl_cmds.h>
#include <rdma/ib_user_ioctl_verbs.h>
#include <rdma/ib_user_verbs.h>
#include <sys/ioctl.h>
#include <sys/mman.h>

#ifdef BY_NAME
#include "../tools/verbs/infiniband/kfdv.h"
#endif
#include "../include/uapi/rdma/kfabric-abi.h"
#include "verbs-ends.h"

#define PAGE	4096

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

/*
 * The attributes of a new completion counter; zeros are the usual ones. @comp_map and @err_map:
 * where the program has mapped values in a DMA-BUF. Only the functions of the pages take them.
 */
struct wanted {
	const __u32 *unit;
	const struct buffer *comp, *err;
	volatile __u64 *comp_map, *err_map;
	struct kfabric_ib_comp_cntr_resp *resp;
};

#define NO_FLOW	(~0u)

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

#ifdef BY_NAME
#include "verbs-names.h"
#else
#include "verbs-ioctl.h"
#endif

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
	/* The counter gets no other values. */
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

#endif /* VERBS_COUNTING_H */
