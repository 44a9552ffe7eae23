// SPDX-License-Identifier: GPL-2.0
/*
 * verbs-fuzz: seeded sequences of uverbs calls, some valid and some not, from several
 * threads at once, while another one writes into the mapped memory.
 *
 *	verbs-fuzz DEVICE GID_INDEX SECONDS SEED
 *
 * Each round prints its seed before it begins. A round is one process: two connected QPs,
 * a QP for datagrams, and then calls with the handles that are known, by write() and by
 * ioctl(), in which bytes, lengths and attributes are changed. Some rounds are killed in
 * the middle. A round fails if its process does not end, or if the kernel's log has a
 * fault. The seed of the next round follows from it: SEED=<that of a round> begins there.
 * The seed does not determine how threads meet. The module is loaded with ipath=1.
 */

#define _GNU_SOURCE
#include <signal.h>
#include <sys/wait.h>

#include "verbs-raw.h"

#define CALLERS		3
#define ROUND_MS	700
#define PATIENCE_MS	60000
#define KNOWN		64

static __thread __u64 rng;

static __u64 next_seed(__u64 seed)
{
	seed += 0x9e3779b97f4a7c15ull;
	seed = (seed ^ (seed >> 30)) * 0xbf58476d1ce4e5b9ull;
	seed = (seed ^ (seed >> 27)) * 0x94d049bb133111ebull;
	return seed ^ (seed >> 31);
}

static __u64 any(void)
{
	return rng = next_seed(rng);
}

static __u32 below(__u32 bound)
{
	return (any() >> 11) % bound;
}

static int one_in(__u32 count)
{
	return !below(count);
}

static __u64 edge(void)
{
	static const __u64 edges[] = {
		0, 1, 2, 3, 7, 8, 15, 16, 17, 31, 63, 64, 255, 256, 1000, 4095, 4096, 4097,
		65535, 65536, 1 << 20, 0x7fffffff, 0x80000000u, 0xffffffff, 1ull << 32,
		~0ull >> 1, ~0ull,
	};

	return one_in(8) ? any() : edges[below(sizeof(edges) / sizeof(edges[0]))];
}

/* A size, which is usually not too large. */
static __u32 size(__u32 usual)
{
	return one_in(8) ? edge() : below(usual) + 1;
}

/* Handles and keys that calls have returned. */
enum kind { PD, MR, CQ, SRQ, QP, AH, CNTR, COUNTERS, FLOW, KEY, QPN, KINDS };

static struct {
	__u32 values[KNOWN];
	__u32 count;
} known[KINDS];

static void learn(enum kind kind, __u32 value)
{
	__u32 at = __atomic_fetch_add(&known[kind].count, 1, __ATOMIC_RELAXED);

	__atomic_store_n(&known[kind].values[at % KNOWN], value, __ATOMIC_RELAXED);
}

static __u32 some(enum kind kind)
{
	__u32 count = __atomic_load_n(&known[kind].count, __ATOMIC_RELAXED);

	if (!count || one_in(32))
		return edge();
	/* The first ones work together. */
	return known[kind].values[one_in(2) ? below(count < 4 ? count : 4) :
				  below(count < KNOWN ? count : KNOWN)];
}

/* The mappings that overwrite() writes to. */
static struct {
	volatile __u64 *memory;
	__u32 bytes;
} maps[16];
static __u32 maps_count;

static __u8 *arena;
#define ARENA	(1u << 20)

static __u64 address(void)
{
	return one_in(16) ? edge() : (__u64)(unsigned long)arena + below(ARENA);
}

/* Changes a few fields of a call. */
static void mutate(void *body, __u32 len)
{
	__u32 count = one_in(4) ? 1 + below(3) : 0, at, value;

	while (len >= 4 && count--) {
		at = below(len / 4) * 4;
		value = one_in(3) ? below(KNOWN) : (__u32)edge();
		memcpy((__u8 *)body + at, &value, 4);
	}
}

/*
 * A call of the old kind: the body has the address of the answer first, if it has one.
 * Returns whether it succeeded.
 */
static int command(__u32 number, void *body, __u32 len, void *answer, __u32 answer_len)
{
	union call call = begin(UVERBS_OBJECT_DEVICE, UVERBS_METHOD_INVOKE_WRITE);
	__u64 address = (__u64)(unsigned long)answer;
	struct {
		struct ib_uverbs_cmd_hdr hdr;
		__u8 body[2048];
	} whole;

	mutate(body, len);
	if (one_in(32))
		len = below(len + 16) & ~3;
	if (one_in(32))
		answer_len = below(answer_len + 16) & ~3;
	if (one_in(2)) {
		memory_attr(&call, UVERBS_ATTR_CORE_IN, len, body);
		if (answer_len)
			out_attr(&call, UVERBS_ATTR_CORE_OUT, answer_len, answer);
		attr(&call, UVERBS_ATTR_WRITE_CMD, 8, number);
		if (one_in(8))
			out_attr(&call, UVERBS_ATTR_UHW_OUT, below(64), arena);
		if (one_in(16))
			memory_attr(&call, UVERBS_ATTR_UHW_IN, 8 + below(64), arena);
		return !run(&call);
	}
	if (len > sizeof(whole.body))
		len = sizeof(whole.body);
	memcpy(whole.body, body, len);
	if (answer_len && len >= 8)
		memcpy(whole.body, &address, 8);
	whole.hdr.command = number;
	whole.hdr.in_words = (sizeof(whole.hdr) + len) / 4;
	whole.hdr.out_words = answer_len / 4;
	return write(device->cmd_fd, &whole, sizeof(whole.hdr) + len) > 0;
}

#define COMMAND(name, body, answer)						\
	command(IB_USER_VERBS_CMD_##name, &(body), sizeof(body), &(answer), sizeof(answer))

static __u8 nothing[64];
static int dma_buf;

static void pds(void)
{
	struct ib_uverbs_alloc_pd in = { 0 };
	struct ib_uverbs_alloc_pd_resp out = { 0 };
	struct ib_uverbs_dealloc_pd end = { .pd_handle = some(PD) };

	if (one_in(4))
		command(IB_USER_VERBS_CMD_DEALLOC_PD, &end, sizeof(end), nothing, 0);
	else if (COMMAND(ALLOC_PD, in, out))
		learn(PD, out.pd_handle);
}

static void regions(void)
{
	__u64 start = address() & (one_in(2) ? ~0ull : ~4095ull);
	struct ib_uverbs_reg_mr in = {
		.start = start,
		.length = one_in(4) ? edge() : below(ARENA / 2),
		.hca_va = start,
		.pd_handle = some(PD),
		.access_flags = one_in(4) ? (__u32)edge() : ACCESS,
	};
	struct ib_uverbs_reg_mr_resp out = { 0 };
	struct ib_uverbs_dereg_mr end = { .mr_handle = some(MR) };

	if (one_in(6)) {
		if (!register_page(some(PD), one_in(4) ? (int)below(16) : dma_buf, &out.mr_handle))
			learn(MR, out.mr_handle);
	} else if (one_in(2)) {
		command(IB_USER_VERBS_CMD_DEREG_MR, &end, sizeof(end), nothing, 0);
	} else if (COMMAND(REG_MR, in, out)) {
		learn(MR, out.mr_handle);
		learn(KEY, out.lkey);
	}
}

static void make_mapped(void)
{
	struct mapped_cq cq;
	__u32 at;

	if (create_mapped_cq(&cq, size(300), a.channel->fd))
		return;
	learn(CQ, cq.handle);
	if (map_cq(&cq))
		return;
	at = __atomic_fetch_add(&maps_count, 1, __ATOMIC_RELAXED);
	if (at < 16) {
		maps[at].bytes = cq.resp.mmap_size;
		__atomic_store_n(&maps[at].memory, (volatile __u64 *)cq.ring, __ATOMIC_RELEASE);
	} else if (one_in(2)) {
		unmap_cq(&cq);
	}
}

/*
 * Room for all entries of the largest CQ: a poll stores as many as it is asked for, however long
 * the answer may be.
 */
static __u8 polled[sizeof(struct ib_uverbs_poll_cq_resp) + 131072 * sizeof(struct ib_uverbs_wc)];

static void cqs(void)
{
	struct ib_uverbs_create_cq in = {
		.cqe = size(300),
		.comp_channel = one_in(2) ? a.channel->fd : -1,
	};
	struct ib_uverbs_create_cq_resp out = { 0 };
	struct ib_uverbs_resize_cq resize = { .cq_handle = some(CQ), .cqe = size(300) };
	struct ib_uverbs_resize_cq_resp resized;
	struct ib_uverbs_poll_cq poll = { .cq_handle = some(CQ), .ne = size(16) };
	struct ib_uverbs_req_notify_cq notify = {
		.cq_handle = some(CQ),
		.solicited_only = below(2),
	};
	struct ib_uverbs_destroy_cq end = { .cq_handle = some(CQ) };

	switch (below(12)) {
	case 0:
		make_mapped();
		break;
	case 1:
		if (COMMAND(CREATE_CQ, in, out))
			learn(CQ, out.cq_handle);
		break;
	case 2:
		COMMAND(DESTROY_CQ, end, nothing);
		break;
	case 3 ... 5:
		COMMAND(RESIZE_CQ, resize, resized);
		break;
	case 6 ... 8:
		command(IB_USER_VERBS_CMD_REQ_NOTIFY_CQ, &notify, sizeof(notify), nothing, 0);
		break;
	default:
		command(IB_USER_VERBS_CMD_POLL_CQ, &poll, sizeof(poll), polled, 1024);
	}
}

static void srqs(void)
{
	struct ib_uverbs_create_srq in = {
		.pd_handle = some(PD),
		.max_wr = size(100),
		.max_sge = size(SGES),
	};
	struct ib_uverbs_create_srq_resp out = { 0 };
	struct ib_uverbs_modify_srq modify = {
		.srq_handle = some(SRQ),
		.attr_mask = one_in(8) ? (__u32)edge() : 1 + below(3),
		.max_wr = size(100),
		.srq_limit = size(20),
	};
	struct ib_uverbs_query_srq query = { .srq_handle = some(SRQ) };
	struct ib_uverbs_destroy_srq end = { .srq_handle = some(SRQ) };

	switch (below(8)) {
	case 0:
		COMMAND(DESTROY_SRQ, end, nothing);
		break;
	case 1 ... 2:
		if (COMMAND(CREATE_SRQ, in, out))
			learn(SRQ, out.srq_handle);
		break;
	case 3:
		COMMAND(QUERY_SRQ, query, nothing);
		break;
	default:
		command(IB_USER_VERBS_CMD_MODIFY_SRQ, &modify, sizeof(modify), nothing, 0);
	}
}

static void make_qp(void)
{
	struct ib_uverbs_create_qp in = {
		.pd_handle = some(PD),
		.send_cq_handle = some(CQ),
		.recv_cq_handle = some(CQ),
		.srq_handle = some(SRQ),
		.max_send_wr = size(40),
		.max_recv_wr = size(40),
		.max_send_sge = size(16),
		.max_recv_sge = size(16),
		.max_inline_data = size(200),
		.sq_sig_all = below(2),
		.qp_type = one_in(8) ? below(16) : one_in(2) ? IBV_QPT_RC : IBV_QPT_UD,
		.is_srq = one_in(3),
	};
	struct ib_uverbs_create_qp_resp out = { 0 };

	if (COMMAND(CREATE_QP, in, out)) {
		learn(QP, out.qp_handle);
		learn(QPN, out.qpn);
	}
}

static void change_qp(void)
{
	static const __u8 to[] = { IBV_QPS_RESET, IBV_QPS_INIT, IBV_QPS_RTR, IBV_QPS_RTS,
				   IBV_QPS_SQD, IBV_QPS_RTS, IBV_QPS_ERR };
	static const __u32 masks[] = {
		IBV_QP_STATE,
		IBV_QP_STATE | IBV_QP_PKEY_INDEX | IBV_QP_PORT | IBV_QP_ACCESS_FLAGS,
		IBV_QP_STATE | IBV_QP_AV | IBV_QP_PATH_MTU | IBV_QP_DEST_QPN | IBV_QP_RQ_PSN |
			IBV_QP_MAX_DEST_RD_ATOMIC | IBV_QP_MIN_RNR_TIMER,
		IBV_QP_STATE | IBV_QP_SQ_PSN | IBV_QP_TIMEOUT | IBV_QP_RETRY_CNT |
			IBV_QP_RNR_RETRY | IBV_QP_MAX_QP_RD_ATOMIC,
		IBV_QP_STATE | IBV_QP_EN_SQD_ASYNC_NOTIFY,
		IBV_QP_STATE, IBV_QP_STATE,
	};
	__u32 which = below(7);
	struct ib_uverbs_modify_qp in = {
		.qp_handle = some(QP),
		.attr_mask = one_in(6) ? (__u32)edge() : masks[which],
		.qkey = 0x1234,
		.rq_psn = one_in(4) ? any() : 0x123456,
		.sq_psn = one_in(4) ? any() : 0x123456,
		.dest_qp_num = some(QPN),
		.qp_access_flags = ACCESS,
		.qp_state = to[which],
		.cur_qp_state = below(8),
		.path_mtu = size(5),
		.en_sqd_async_notify = below(2),
		.max_rd_atomic = size(16),
		.max_dest_rd_atomic = size(16),
		.min_rnr_timer = below(40),
		.port_num = 1,
		.timeout = below(40),
		.retry_cnt = below(9),
		.rnr_retry = below(9),
	};

	if (to[which] == IBV_QPS_INIT && one_in(2))
		in.attr_mask = IBV_QP_STATE | IBV_QP_PKEY_INDEX | IBV_QP_PORT | IBV_QP_QKEY;
	memcpy(in.dest.dgid, &own_gid, 16);
	in.dest.sgid_index = gid_index;
	in.dest.is_global = 1;
	in.dest.port_num = 1;
	in.dest.hop_limit = 64;
	if (one_in(16))
		memset(in.dest.dgid, edge(), 16);
	command(IB_USER_VERBS_CMD_MODIFY_QP, &in, sizeof(in), nothing, 0);
}

static void qps(void)
{
	struct ib_uverbs_query_qp query = { .qp_handle = some(QP), .attr_mask = edge() };
	struct ib_uverbs_destroy_qp end = { .qp_handle = some(QP) };
	__u8 answer[256];

	switch (below(10)) {
	case 0:
		COMMAND(DESTROY_QP, end, nothing);
		break;
	case 1:
		COMMAND(QUERY_QP, query, answer);
		break;
	case 2 ... 3:
		make_qp();
		break;
	default:
		change_qp();
	}
}

static void ahs(void)
{
	struct ib_uverbs_create_ah in = {
		.pd_handle = some(PD),
		.attr = {
			.is_global = 1,
			.port_num = 1,
			.grh = { .sgid_index = gid_index, .hop_limit = 64 },
		},
	};
	struct ib_uverbs_create_ah_resp out = { 0 };
	struct ib_uverbs_destroy_ah end = { .ah_handle = some(AH) };

	memcpy(in.attr.grh.dgid, &own_gid, 16);
	if (one_in(3))
		command(IB_USER_VERBS_CMD_DESTROY_AH, &end, sizeof(end), nothing, 0);
	else if (COMMAND(CREATE_AH, in, out))
		learn(AH, out.ah_handle);
}

static void some_sges(struct ib_uverbs_sge *sges, __u32 count)
{
	while (count--)
		sges[count] = (struct ib_uverbs_sge) {
			.addr = address(),
			.length = one_in(8) ? (__u32)edge() : below(5000),
			.lkey = some(KEY),
		};
}

static void sends(void)
{
	struct {
		__aligned_u64 head[sizeof(struct ib_uverbs_post_send) / 8];
		struct ib_uverbs_send_wr wrs[4];
		struct ib_uverbs_sge sges[20];
	} in = { 0 };
	__u32 count = 1 + below(4), all = 0, i, parts;
	struct ib_uverbs_post_send *head = (void *)in.head;
	struct ib_uverbs_post_send_resp out;
	__u8 *to = (__u8 *)&in.wrs[count];

	for (i = 0; i < count; i++) {
		struct ib_uverbs_send_wr *wr = &in.wrs[i];

		parts = one_in(4) ? below(6) : 1;
		*wr = (struct ib_uverbs_send_wr) {
			.wr_id = any(),
			.num_sge = parts,
			.opcode = one_in(12) ? below(16) : below(7),
			.send_flags = one_in(16) ? (__u32)edge() : below(16),
			.ex.imm_data = any(),
		};
		if (one_in(3)) {
			wr->wr.ud.ah = some(AH);
			wr->wr.ud.remote_qpn = some(QPN);
			wr->wr.ud.remote_qkey = 0x1234;
		} else {
			wr->wr.atomic.remote_addr = address() & (one_in(4) ? ~0ull : ~7ull);
			wr->wr.rdma.rkey = some(KEY);
			if (wr->opcode == IBV_WR_ATOMIC_CMP_AND_SWP ||
			    wr->opcode == IBV_WR_ATOMIC_FETCH_AND_ADD)
				wr->wr.atomic.rkey = some(KEY);
		}
		all += parts;
	}
	some_sges((struct ib_uverbs_sge *)to, all);
	head->qp_handle = some(QP);
	head->wr_count = count;
	head->sge_count = all;
	head->wqe_size = sizeof(in.wrs[0]);
	command(IB_USER_VERBS_CMD_POST_SEND, &in,
		to - (__u8 *)&in + all * sizeof(in.sges[0]), &out, sizeof(out));
}

static void receives(void)
{
	struct {
		__aligned_u64 head[sizeof(struct ib_uverbs_post_recv) / 8];
		struct ib_uverbs_recv_wr wrs[4];
		struct ib_uverbs_sge sges[20];
	} in = { 0 };
	__u32 count = 1 + below(4), all = 0, i;
	struct ib_uverbs_post_recv *head = (void *)in.head;
	struct ib_uverbs_post_recv_resp out;
	__u8 *to = (__u8 *)&in.wrs[count];
	int shared = one_in(3);

	for (i = 0; i < count; i++) {
		in.wrs[i].wr_id = any();
		in.wrs[i].num_sge = one_in(4) ? below(6) : 1;
		all += in.wrs[i].num_sge;
	}
	some_sges((struct ib_uverbs_sge *)to, all);
	head->qp_handle = shared ? some(SRQ) : some(QP);
	head->wr_count = count;
	head->sge_count = all;
	head->wqe_size = sizeof(in.wrs[0]);
	command(shared ? IB_USER_VERBS_CMD_POST_SRQ_RECV : IB_USER_VERBS_CMD_POST_RECV, &in,
		to - (__u8 *)&in + all * sizeof(in.sges[0]), &out, sizeof(out));
}

static void cntrs(void)
{
	struct buffer comp = { .type = below(3), .fd = below(16), .addr = address() & ~7ull,
			       .length = one_in(8) ? edge() : 8 };
	struct buffer err = comp;
	struct kfabric_ib_comp_cntr_resp resp;
	struct ibv_qp fake = { .handle = some(QP) };
	__u32 unit = below(3), cntr;
	struct wanted internal = { .unit = &unit, .resp = &resp };
	struct wanted external = { .comp = &comp, .err = &err };
	__u64 value;
	void *map;

	err.addr += 8;
	switch (below(8)) {
	case 0:
		if (!create(internal, &cntr)) {
			learn(CNTR, cntr);
			map = mmap(NULL, PAGE, PROT_READ, MAP_SHARED, device->cmd_fd,
				   resp.mmap_offset);
			if (map != MAP_FAILED)
				munmap(map, PAGE);
		}
		break;
	case 1:
		if (!create(external, &cntr))
			learn(CNTR, cntr);
		break;
	case 2:
		destroy(some(CNTR));
		break;
	case 3:
		change(some(CNTR), below(3), below(3), edge());
		break;
	case 4:
		try_read(some(CNTR), below(3), &value);
		break;
	default:
		attach(&fake, some(CNTR), one_in(4) ? edge() : 1 << below(6));
	}
}

static void flows(void)
{
	struct ibv_qp fake = { .handle = some(QP) };
	union flow flow = flow_of(&fake);
	__u8 rule[40];
	__u64 values[8];
	__u32 handle;

	switch (below(8)) {
	case 0:
		if (!create_counters(&handle))
			learn(COUNTERS, handle);
		break;
	case 1:
		destroy_counters(some(COUNTERS));
		break;
	case 2:
		read_counters(some(COUNTERS), values, below(9), below(4));
		break;
	case 3:
		attach_point(some(COUNTERS), NO_FLOW, below(4), size(8));
		break;
	case 4:
		attach_point(some(COUNTERS), some(FLOW), below(4), size(8));
		break;
	case 5:
		destroy_flow(some(FLOW));
		break;
	default:
		if (one_in(2)) {
			struct ib_uverbs_flow_spec_ipv4 *ipv4 = (void *)rule;

			memset(rule, 0, sizeof(rule));
			ipv4->type = one_in(8) ? below(0x60) : IBV_FLOW_SPEC_IPV4;
			ipv4->size = one_in(8) ? below(80) : sizeof(*ipv4);
			ipv4->mask.src_ip = any();
			ipv4->val.src_ip = ipv4->mask.src_ip;
			ipv4->mask.ttl = one_in(8);
			spec(&flow, rule, sizeof(*ipv4));
		}
		if (one_in(2))
			count_into(&flow, some(COUNTERS));
		flow.create.flow_attr.priority = any();
		mutate(&flow, sizeof(flow.create) + flow.create.flow_attr.size);
		flow.create.flow_attr.size %= sizeof(flow) - sizeof(flow.create) + 1;
		if (!create_flow(&flow, &handle))
			learn(FLOW, handle);
	}
}

/* Any object, any method, any attributes. */
static void attributes(void)
{
	union call call = begin(one_in(8) ? edge() : below(24), below(8));
	__u32 count = below(ATTRS), len;

	if (one_in(4))
		call.hdr.method_id |= 1 << UVERBS_ID_NS_SHIFT;
	while (count--) {
		len = one_in(3) ? 0 : one_in(2) ? 8 : below(128);
		attr(&call, below(12) | (one_in(5) ? 1 << UVERBS_ID_NS_SHIFT : 0), len,
		     one_in(2) ? some(below(KINDS)) : address());
		if (one_in(4))
			call.hdr.attrs[call.hdr.num_attrs - 1].flags = below(4);
	}
	if (one_in(32))
		call.hdr.driver_id = edge();
	call.hdr.length = sizeof(call.hdr) + call.hdr.num_attrs * sizeof(call.hdr.attrs[0]);
	if (one_in(32))
		call.hdr.length = edge();
	/* At a second call of this, the core of Linux 7.3 leaks a reference to the task. */
	if (call.hdr.object_id == UVERBS_OBJECT_DEVICE &&
	    call.hdr.method_id == UVERBS_METHOD_GET_CONTEXT)
		return;
	ioctl(device->cmd_fd, RDMA_VERBS_IOCTL, &call.hdr);
}

static void mappings(void)
{
	void *map = mmap(NULL, PAGE << below(4), 1 + below(7), one_in(8) ? MAP_PRIVATE : MAP_SHARED,
			 device->cmd_fd, one_in(8) ? edge() & ~4095ull : (__u64)below(64) << 12);

	if (map != MAP_FAILED) {
		*(volatile __u8 *)map;
		munmap(map, PAGE);
	}
}

static void again(void)
{
	char path[64];
	int fd;

	device_path(path, sizeof(path));
	if (!open_again(path, &fd))
		close(fd);
}

static int over;
static __u32 called;

static void *caller(void *seed)
{
	static void (*const calls[])(void) = {
		pds, regions, cqs, cqs, srqs, qps, qps, ahs, sends, sends, sends, receives,
		receives, cntrs, flows, attributes, mappings,
	};

	rng = (__u64)(unsigned long)seed;
	while (!__atomic_load_n(&over, __ATOMIC_RELAXED)) {
		__atomic_fetch_add(&called, 1, __ATOMIC_RELAXED);
		calls[below(sizeof(calls) / sizeof(calls[0]))]();
		if (one_in(200))
			again();
	}
	return NULL;
}

/* Writes into mapped memory. Its reads of what the kernel writes cannot fail. */
static void *overwrite(void *seed)
{
	rng = (__u64)(unsigned long)seed;
	while (!__atomic_load_n(&over, __ATOMIC_RELAXED)) {
		__u32 at = below(16);
		volatile __u64 *memory = __atomic_load_n(&maps[at].memory, __ATOMIC_ACQUIRE);

		if (memory)
			memory[one_in(2) ? 8 : one_in(4) ? 0 : below(maps[at].bytes / 8)] =
				one_in(2) ? memory[0] - below(4) : edge();
		else
			sched_yield();
	}
	return NULL;
}

/* Makes valid objects, with which the calls of a round begin. */
static void valid_objects(void)
{
	struct end *both[] = { &a, &b };
	int i;

	pair(IBV_QPT_RC);
	arena = a.memory;
	dma_buf = one_page();
	for (i = 0; i < 2; i++) {
		learn(PD, both[i]->pd->handle);
		learn(CQ, both[i]->sends->handle);
		learn(CQ, both[i]->receives->handle);
		learn(QP, both[i]->qp->handle);
		learn(QPN, both[i]->qp->qp_num);
		learn(KEY, both[i]->mr->lkey);
	}
	for (i = 0; i < 3; i++) {
		make_mapped();
		srqs();
		cntrs();
		flows();
		ahs();
	}
}

static void round_of(__u64 seed)
{
	pthread_t threads[CALLERS + 1];
	__u64 i;

	rng = seed;
	valid_objects();
	for (i = 0; i <= CALLERS; i++)
		expect(!pthread_create(&threads[i], NULL, i < CALLERS ? caller : overwrite,
				       (void *)(unsigned long)(seed ^ (i + 1))), "a thread");
	pause_ms(ROUND_MS);
	__atomic_store_n(&over, 1, __ATOMIC_RELAXED);
	printf("  %u calls; made", called);
	for (i = 0; i < KINDS; i++)
		printf(" %u", known[i].count);
	puts("");
	fflush(stdout);
	/* Some processes exit while their threads make calls. */
	for (i = 0; i <= CALLERS && seed & 1; i++)
		pthread_join(threads[i], NULL);
	_exit(0);
}

/* Whether the kernel has reported a fault since the last look. */
static int kernel_fault(int log)
{
	static const char * const faults[] = { "BUG: ", "WARNING: ", "KASAN: ", "UBSAN: ", "Oops",
		"general protection", "refcount_t: ", "possible recursive", "possible circular",
		"inconsistent lock", "blocked for more" };
	char record[4096];
	unsigned int i;
	ssize_t len;

	while ((len = read(log, record, sizeof(record) - 1)) > 0 || (len < 0 && errno == EPIPE)) {
		if (len < 0)
			continue;
		record[len] = 0;
		for (i = 0; i < sizeof(faults) / sizeof(faults[0]); i++) {
			if (strstr(record, faults[i])) {
				puts(record);
				return 1;
			}
		}
	}
	return 0;
}

static const char *play(const char *name, __u64 seed, int log)
{
	long long until = now() + PATIENCE_MS;
	int kills, status, ms;
	pid_t child;

	fflush(stdout);
	child = fork();
	if (!child) {
		/* A message about a wrong handle is not a fault. */
		open_device(name);
		round_of(seed);
	}
	expect(child > 0, "fork");
	rng = seed;
	kills = one_in(3);
	ms = below(ROUND_MS);
	if (kills) {
		pause_ms(ms);
		kill(child, SIGKILL);
	}
	while (waitpid(child, &status, WNOHANG) != child) {
		if (now() > until)
			return "its process does not end";
		pause_ms(2);
	}
	if (!(WIFSIGNALED(status) && WTERMSIG(status) == SIGKILL) && status)
		return "its process ended by itself";
	return kernel_fault(log) ? "the kernel has reported a fault" : NULL;
}

int main(int argc, char **argv)
{
	int log = open("/dev/kmsg", O_RDONLY | O_NONBLOCK);
	const char *why = NULL;
	unsigned int rounds;
	long long until;
	__u64 seed;

	if (argc != 5)
		errx(2, "usage: %s DEVICE GID_INDEX SECONDS SEED", argv[0]);
	expect(log >= 0 && lseek(log, 0, SEEK_END) >= 0, "/dev/kmsg: %s", strerror(errno));
	gid_index = atoi(argv[2]);
	until = now() + atoi(argv[3]) * 1000ll;
	seed = strtoull(argv[4], NULL, 0);
	for (rounds = 0; !why && now() < until; rounds++) {
		printf("round %u SEED=%#llx of verbs\n", rounds, (unsigned long long)seed);
		why = play(argv[1], seed, log);
		if (!why)
			seed = next_seed(seed);
	}
	if (why)
		printf("# fuzz: failed: verbs, SEED=%#llx: %s\n", (unsigned long long)seed, why);
	else
		printf("# fuzz: %u rounds of verbs, nothing found\n", rounds);
	return why ? 1 : 0;
}
