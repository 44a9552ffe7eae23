// SPDX-License-Identifier: GPL-2.0
/*
 * verbs-faults: a failure injected at every allocation of every call of verbs, and at
 * every copy from or to the program.
 *
 *	verbs-faults DEVICE GID_INDEX TEST
 *	verbs-faults --list
 *
 * verbs-sweep.h says what a test does with a call. The module is loaded with ipath=1.
 */

#define _GNU_SOURCE
#include "verbs-raw.h"
#include "verbs-sweep.h"

/* REG_MR of Linux 7.3, which the headers of the root do not have. */
enum {
	METHOD_REG_MR = 5,

	REG_MR_HANDLE = 0,
	REG_MR_PD = 1,
	REG_MR_IOVA = 3,
	REG_MR_ADDR,
	REG_MR_LENGTH,
	REG_MR_ACCESS,
	REG_MR_LKEY = 9,
	REG_MR_RKEY,
};

/* The objects that a case has made. */
static struct ibv_pd *pd;
static struct ibv_comp_channel *channel;
static struct ibv_cq *cq;
static struct ibv_srq *srq;
static struct ibv_ah *ah;
static struct ibv_mr *mr;
static struct ibv_qp *qp;
static struct mapped_cq mapped_ring;
static __u32 cntr, counters, flow_handle;
static int fd = -1, buf = -1;
static char path[64];

static int error_of(const void *object)
{
	return object ? 0 : errno;
}

static int open_context(void) { return open_again(path, &fd); }
static void close_context(void) { close(fd); }

static int make_pd(void) { return error_of(pd = ibv_alloc_pd(device)); }
static int end_pd(void) { return ibv_dealloc_pd(pd); }
static void undo_pd(void) { expect(!end_pd(), "dealloc_pd"); }
static void ready_pd(void) { must(make_pd(), 0, "alloc_pd"); }

static int make_channel(void) { return error_of(channel = ibv_create_comp_channel(device)); }
static void undo_channel(void) { expect(!ibv_destroy_comp_channel(channel), "channel"); }

static int try_ah(void)
{
	struct ibv_ah_attr attr = {
		.is_global = 1,
		.port_num = 1,
		.grh = { .dgid = own_gid, .sgid_index = gid_index, .hop_limit = 64 },
	};

	return error_of(ah = ibv_create_ah(a.pd, &attr));
}

static int end_ah(void) { return ibv_destroy_ah(ah); }
static void undo_ah(void) { expect(!end_ah(), "destroy_ah"); }
static void ready_ah(void) { must(try_ah(), 0, "create_ah"); }

static int is_ipv6(const union ibv_gid *gid)
{
	static const __u8 mapped[12] = { [10] = 0xff, 0xff }, none[16];

	return memcmp(gid->raw, mapped, sizeof(mapped)) && memcmp(gid->raw, none, sizeof(none)) &&
	       gid->raw[0] != 0xfe;
}

/* From here on address vectors have an IPv6 address of the interface, whose GID comes later. */
static void use_ipv6(void)
{
	long long until = now() + SECONDS * 1000;

	for (gid_index = 0; ; gid_index = (gid_index + 1) % 16) {
		if (!ibv_query_gid(device, 1, gid_index, &own_gid) && is_ipv6(&own_gid))
			return;
		expect(now() < until, "no GID for IPv6");
	}
}

static int query_port(void)
{
	struct ibv_port_attr attr;

	return ibv_query_port(device, 1, &attr);
}

static int query_device(void)
{
	struct ibv_device_attr attr;

	return ibv_query_device(device, &attr);
}

static int query_device_ex(void)
{
	struct ibv_device_attr_ex attr;

	return ibv_query_device_ex(device, NULL, &attr);
}

static int alloc_async_event(void)
{
	union call call = begin(UVERBS_OBJECT_ASYNC_EVENT, UVERBS_METHOD_ASYNC_EVENT_ALLOC);
	int ret;

	attr(&call, UVERBS_ATTR_ASYNC_EVENT_ALLOC_FD_HANDLE, 0, 0);
	ret = run(&call);
	fd = call.hdr.attrs[0].data;
	return ret;
}

static int info_handles(void)
{
	union call call = begin(UVERBS_OBJECT_DEVICE, UVERBS_METHOD_INFO_HANDLES);
	__u32 total, handles[16];
	int ret;

	attr(&call, UVERBS_ATTR_INFO_OBJECT_ID, 8, UVERBS_OBJECT_CQ);
	out_attr(&call, UVERBS_ATTR_INFO_TOTAL_HANDLES, sizeof(total), &total);
	out_attr(&call, UVERBS_ATTR_INFO_HANDLES_LIST, sizeof(handles), handles);
	ret = run(&call);
	expect(ret || total == 2, "%u CQs", total);
	return ret;
}

static int query_port_ioctl(void)
{
	union call call = begin(UVERBS_OBJECT_DEVICE, UVERBS_METHOD_QUERY_PORT);
	struct ib_uverbs_query_port_resp_ex resp;

	attr(&call, UVERBS_ATTR_QUERY_PORT_PORT_NUM, 8, 1);
	out_attr(&call, UVERBS_ATTR_QUERY_PORT_RESP, sizeof(resp), &resp);
	return run(&call);
}

static int query_context(void)
{
	union call call = begin(UVERBS_OBJECT_DEVICE, UVERBS_METHOD_QUERY_CONTEXT);
	__u64 support;
	__u32 vectors;

	out_attr(&call, UVERBS_ATTR_QUERY_CONTEXT_NUM_COMP_VECTORS, sizeof(vectors), &vectors);
	out_attr(&call, UVERBS_ATTR_QUERY_CONTEXT_CORE_SUPPORT, sizeof(support), &support);
	return run(&call);
}

static int query_gid_table(void)
{
	union call call = begin(UVERBS_OBJECT_DEVICE, UVERBS_METHOD_QUERY_GID_TABLE);
	static struct ib_uverbs_gid_entry entries[256];
	__u64 count;

	attr(&call, UVERBS_ATTR_QUERY_GID_TABLE_ENTRY_SIZE, 8, sizeof(entries[0]));
	out_attr(&call, UVERBS_ATTR_QUERY_GID_TABLE_RESP_ENTRIES, sizeof(entries), entries);
	out_attr(&call, UVERBS_ATTR_QUERY_GID_TABLE_RESP_NUM_ENTRIES, sizeof(count), &count);
	return run(&call);
}

static int query_gid_entry(void)
{
	union call call = begin(UVERBS_OBJECT_DEVICE, UVERBS_METHOD_QUERY_GID_ENTRY);
	struct ib_uverbs_gid_entry entry;

	attr(&call, UVERBS_ATTR_QUERY_GID_ENTRY_PORT, 8, 1);
	attr(&call, UVERBS_ATTR_QUERY_GID_ENTRY_GID_INDEX, 8, gid_index);
	attr(&call, UVERBS_ATTR_QUERY_GID_ENTRY_FLAGS, 8, 0);
	out_attr(&call, UVERBS_ATTR_QUERY_GID_ENTRY_RESP_ENTRY, sizeof(entry), &entry);
	return run(&call);
}

static void objects(void)
{
	device_path(path, sizeof(path));
	make_end(&a, IBV_QPT_RC, 0);
	sweep(CASE("context", NULL, open_context, close_context),
	      CASE("query_device", NULL, query_device, NULL),
	      CASE("query_device_ex", NULL, query_device_ex, NULL),
	      CASE("query_port", NULL, query_port, NULL),
	      CASE("QUERY_PORT", NULL, query_port_ioctl, NULL),
	      CASE("QUERY_CONTEXT", NULL, query_context, NULL),
	      CASE("QUERY_GID_TABLE", NULL, query_gid_table, NULL),
	      CASE("QUERY_GID_ENTRY", NULL, query_gid_entry, NULL),
	      CASE("INFO_HANDLES", NULL, info_handles, NULL),
	      CASE("ASYNC_EVENT_ALLOC", NULL, alloc_async_event, close_context),
	      CASE("alloc_pd", NULL, make_pd, undo_pd),
	      END("dealloc_pd", ready_pd, end_pd),
	      CASE("create_comp_channel", NULL, make_channel, undo_channel),
	      CASE("create_ah", NULL, try_ah, undo_ah),
	      END("destroy_ah", ready_ah, end_ah));
	use_ipv6();
	sweep(CASE("create_ah, IPv6", NULL, try_ah, undo_ah),
	      END("destroy_ah, IPv6", ready_ah, end_ah));
}

static int make_mr(void) { return error_of(mr = ibv_reg_mr(a.pd, a.memory, REGION, ACCESS)); }
static int end_mr(void) { return ibv_dereg_mr(mr); }
static void undo_mr(void) { expect(!end_mr(), "dereg_mr"); }
static void ready_mr(void) { must(make_mr(), 0, "reg_mr"); }

static __u32 page_mr;

static int make_page_mr(void) { return register_page(a.pd->handle, buf, &page_mr); }
static int end_page_mr(void) { return destroy_mr(page_mr); }
static void undo_page_mr(void) { must(end_page_mr(), 0, "dereg_mr"); }
static void ready_page_mr(void) { must(make_page_mr(), 0, "reg_dmabuf_mr"); }

static int make_mr_ioctl(void)
{
	union call call = begin(UVERBS_OBJECT_MR, METHOD_REG_MR);
	__u64 at = (__u64)(unsigned long)a.memory;
	__u32 lkey, rkey;
	int ret;

	attr(&call, REG_MR_HANDLE, 0, 0);
	attr(&call, REG_MR_PD, 0, a.pd->handle);
	attr(&call, REG_MR_IOVA, 8, at);
	attr(&call, REG_MR_ADDR, 8, at);
	attr(&call, REG_MR_LENGTH, 8, REGION);
	attr(&call, REG_MR_ACCESS, 8, ACCESS);
	out_attr(&call, REG_MR_LKEY, sizeof(lkey), &lkey);
	out_attr(&call, REG_MR_RKEY, sizeof(rkey), &rkey);
	ret = run(&call);
	page_mr = call.hdr.attrs[0].data;
	return ret;
}

static int query_mr(void)
{
	union call call = begin(UVERBS_OBJECT_MR, UVERBS_METHOD_QUERY_MR);
	__u64 length, iova;
	__u32 lkey, rkey;

	attr(&call, UVERBS_ATTR_QUERY_MR_HANDLE, 0, a.mr->handle);
	out_attr(&call, UVERBS_ATTR_QUERY_MR_RESP_LKEY, sizeof(lkey), &lkey);
	out_attr(&call, UVERBS_ATTR_QUERY_MR_RESP_RKEY, sizeof(rkey), &rkey);
	out_attr(&call, UVERBS_ATTR_QUERY_MR_RESP_LENGTH, sizeof(length), &length);
	out_attr(&call, UVERBS_ATTR_QUERY_MR_RESP_IOVA, sizeof(iova), &iova);
	return run(&call);
}

/* A page that stays mapped: the kernel warns when its exporter cannot map it. */
static void mapped_page(void)
{
	buf = one_page();
	must(make_page_mr(), 0, "reg_dmabuf_mr");
}

static void memory(void)
{
	make_end(&a, IBV_QPT_RC, 0);
	mapped_page();
	sweep(CASE("reg_mr", NULL, make_mr, undo_mr),
	      END("dereg_mr", ready_mr, end_mr),
	      CASE("REG_MR", NULL, make_mr_ioctl, undo_page_mr),
	      CASE("QUERY_MR", NULL, query_mr, NULL),
	      CASE("reg_dmabuf_mr", NULL, make_page_mr, undo_page_mr),
	      END("dereg_mr of a DMA-BUF", ready_page_mr, end_page_mr));
}

static int make_cq(void) { return error_of(cq = ibv_create_cq(device, 1000, NULL, NULL, 0)); }

static int make_cq_events(void)
{
	return error_of(cq = ibv_create_cq(device, 10, NULL, a.channel, 0));
}

static int end_cq(void) { return ibv_destroy_cq(cq); }
static void undo_cq(void) { expect(!end_cq(), "destroy_cq"); }
static void ready_cq(void) { must(make_cq(), 0, "create_cq"); }
static int enlarge_cq(void) { return ibv_resize_cq(a.sends, 3000); }
static void undo_enlarge_cq(void) { expect(!ibv_resize_cq(a.sends, 2 * WRS), "resize_cq"); }
static int notify_cq(void) { return ibv_req_notify_cq(a.receives, 0); }

static int poll_of(struct ibv_cq *of)
{
	struct ibv_wc wc[4];
	int got = ibv_poll_cq(of, 4, wc);

	return got < 0 ? (errno ? errno : EINVAL) : 0;
}

static int poll_empty(void) { return poll_of(a.sends); }
static int poll_entries(void) { return poll_of(a.receives); }

/* Waits for the entry of a QP in ERR. */
static void ready_entry(void)
{
	struct ibv_cq *of;
	struct ibv_wc wc;
	void *context;

	while (ibv_poll_cq(a.receives, 1, &wc) > 0)
		;
	expect(!ibv_req_notify_cq(a.receives, 0), "req_notify_cq");
	receive(&a, 1, 0, 64);
	expect(!ibv_get_cq_event(a.channel, &of, &context), "get_cq_event");
	ibv_ack_cq_events(of, 1);
}

static int make_mapped(void) { return create_mapped_cq(&mapped_ring, 1000, a.channel->fd); }
static void undo_mapped(void)
{
	unmap_cq(&mapped_ring);
	must(destroy_cq(mapped_ring.handle), 0, "destroy_cq");
}

static void ready_mapped(void) { must(make_mapped(), 0, "create_cq"); }
static int map_mapped(void) { return map_cq(&mapped_ring); }
static int enlarge_mapped(void) { return resize_mapped_cq(&mapped_ring, 5000); }
static int end_mapped(void) { return destroy_cq(mapped_ring.handle); }
static void undo_map(void) { unmap_cq(&mapped_ring); }
static void ready_map(void)
{
	ready_mapped();
	must(map_mapped(), 0, "mmap");
}

static int make_srq(void)
{
	struct ibv_srq_init_attr init = { .attr = { .max_wr = 500, .max_sge = SGES } };

	return error_of(srq = ibv_create_srq(a.pd, &init));
}

static int end_srq(void) { return ibv_destroy_srq(srq); }
static void undo_srq(void) { expect(!end_srq(), "destroy_srq"); }
static void ready_srq(void) { must(make_srq(), 0, "create_srq"); }

static int change_srq(__u32 max_wr)
{
	struct ibv_srq_attr attr = { .max_wr = max_wr, .srq_limit = 3 };

	return ibv_modify_srq(srq, &attr, IBV_SRQ_MAX_WR | IBV_SRQ_LIMIT);
}

static int enlarge_srq(void) { return change_srq(2000); }
static int query_srq(void)
{
	struct ibv_srq_attr attr;

	return ibv_query_srq(srq, &attr);
}

static void ready_share(void)
{
	if (!srq)
		ready_srq();
}

static int post_srq(void)
{
	struct ibv_sge sges[SGES] = { sge(&a, 0, 64), sge(&a, 64, 64) };
	struct ibv_recv_wr receive = { .wr_id = 1, .sg_list = sges, .num_sge = 2 };
	struct ibv_recv_wr *bad;

	return ibv_post_srq_recv(srq, &receive, &bad);
}

static void queues(void)
{
	make_end(&a, IBV_QPT_RC, 0);
	to_init(&a);
	expect(!modify(&a, IBV_QPS_ERR), "ERR");
	sweep(CASE("create_cq", NULL, make_cq, undo_cq),
	      CASE("create_cq with a channel", NULL, make_cq_events, undo_cq),
	      END("destroy_cq", ready_cq, end_cq),
	      CASE("resize_cq", NULL, enlarge_cq, undo_enlarge_cq),
	      CASE("req_notify_cq", NULL, notify_cq, NULL),
	      CASE("poll_cq", NULL, poll_empty, NULL),
	      CASE("poll_cq with an entry", ready_entry, poll_entries, NULL),
	      CASE("create_cq, mapped", NULL, make_mapped, undo_mapped),
	      CASE("mmap of a CQ", ready_mapped, map_mapped, undo_mapped),
	      CASE("resize_cq, mapped", ready_map, enlarge_mapped, undo_mapped),
	      END("destroy_cq, not mapped yet", ready_mapped, end_mapped),
	      END_THEN("destroy_cq, mapped", ready_map, end_mapped, undo_map),
	      CASE("create_srq", NULL, make_srq, undo_srq),
	      END("destroy_srq", ready_srq, end_srq),
	      CASE("modify_srq", ready_srq, enlarge_srq, undo_srq),
	      CASE("query_srq", ready_srq, query_srq, undo_srq),
	      CASE("post_srq_recv", ready_srq, post_srq, undo_srq));
}

static enum ibv_qp_type type;
static int shares;

static int make_qp(void)
{
	struct ibv_qp_init_attr init = usual(type);

	init.send_cq = a.sends;
	init.recv_cq = a.receives;
	init.srq = shares ? srq : NULL;
	return error_of(qp = ibv_create_qp(a.pd, &init));
}

static int end_qp(void) { return ibv_destroy_qp(qp); }
static void undo_qp(void) { expect(!end_qp(), "destroy_qp"); }
static void ready_qp(void) { must(make_qp(), 0, "create_qp"); }

static int set_state(enum ibv_qp_state to)
{
	struct ibv_qp_attr attr = {
		.qp_state = to,
		.port_num = 1,
		.qp_access_flags = ACCESS,
		.qkey = 0x1234,
		.path_mtu = IBV_MTU_1024,
		.dest_qp_num = 77,
		.rq_psn = 0x123456,
		.sq_psn = 0x123456,
		.max_dest_rd_atomic = 4,
		.max_rd_atomic = 4,
		.min_rnr_timer = 12,
		.timeout = 14,
		.retry_cnt = 7,
		.rnr_retry = 7,
		.ah_attr = {
			.is_global = 1,
			.port_num = 1,
			.grh = { .dgid = own_gid, .sgid_index = gid_index, .hop_limit = 64 },
		},
	};
	int mask = IBV_QP_STATE, is_rc = type == IBV_QPT_RC;

	switch (to) {
	case IBV_QPS_INIT:
		mask |= IBV_QP_PKEY_INDEX | IBV_QP_PORT |
			(is_rc ? IBV_QP_ACCESS_FLAGS : IBV_QP_QKEY);
		break;
	case IBV_QPS_RTR:
		if (is_rc)
			mask |= IBV_QP_AV | IBV_QP_PATH_MTU | IBV_QP_DEST_QPN | IBV_QP_RQ_PSN |
				IBV_QP_MAX_DEST_RD_ATOMIC | IBV_QP_MIN_RNR_TIMER;
		break;
	case IBV_QPS_RTS:
		mask |= IBV_QP_SQ_PSN;
		if (is_rc)
			mask |= IBV_QP_TIMEOUT | IBV_QP_RETRY_CNT | IBV_QP_RNR_RETRY |
				IBV_QP_MAX_QP_RD_ATOMIC;
		break;
	default:
		break;
	}
	return ibv_modify_qp(qp, &attr, mask);
}

static int init_qp(void) { return set_state(IBV_QPS_INIT); }
static int rtr_qp(void) { return set_state(IBV_QPS_RTR); }
static int rts_qp(void) { return set_state(IBV_QPS_RTS); }
static int sqd_qp(void) { return set_state(IBV_QPS_SQD); }
static int err_qp(void) { return set_state(IBV_QPS_ERR); }
static int reset_qp(void) { return set_state(IBV_QPS_RESET); }

static void ready_init(void) { ready_qp(); must(init_qp(), 0, "INIT"); }
static void ready_rtr(void) { ready_init(); must(rtr_qp(), 0, "RTR"); }
static void ready_rts(void)
{
	ready_rtr();
	must(rts_qp(), 0, "RTS");
}

static void ready_sqd(void)
{
	ready_rts();
	must(sqd_qp(), 0, "SQD");
}

static int resume_qp(void)
{
	struct ibv_qp_attr attr = { .qp_state = IBV_QPS_RTS };

	return ibv_modify_qp(qp, &attr, IBV_QP_STATE);
}

/* Sets attributes that can change in RTS, and leaves the state as it is. */
static int change_attributes(void)
{
	struct ibv_qp_attr attr = {
		.qkey = 0x4321,
		.qp_access_flags = IBV_ACCESS_REMOTE_READ,
		.min_rnr_timer = 5,
	};

	return ibv_modify_qp(qp, &attr, type == IBV_QPT_UD ? IBV_QP_QKEY :
			     IBV_QP_ACCESS_FLAGS | IBV_QP_MIN_RNR_TIMER);
}

/* Sets the path of a connection in SQD. */
static int change_path(void)
{
	struct ibv_qp_attr attr = {
		.qp_state = IBV_QPS_SQD,
		.timeout = 15,
		.ah_attr = {
			.is_global = 1,
			.port_num = 1,
			.grh = { .dgid = own_gid, .sgid_index = gid_index, .hop_limit = 64,
				 .traffic_class = 8 },
		},
	};

	return ibv_modify_qp(qp, &attr, IBV_QP_STATE | IBV_QP_AV | IBV_QP_TIMEOUT);
}

static int query_qp(void)
{
	struct ibv_qp_init_attr init;
	struct ibv_qp_attr attr;

	return ibv_query_qp(qp, &attr, IBV_QP_STATE, &init);
}

static int post_receive(void)
{
	struct ibv_sge sges[SGES] = { sge(&a, 0, 64), sge(&a, 64, 64) };
	struct ibv_recv_wr receive = { .wr_id = 1, .sg_list = sges, .num_sge = 2 };
	struct ibv_recv_wr *bad;

	return ibv_post_recv(qp, &receive, &bad);
}

static void qps_of(void)
{
	sweep(CASE("create_qp", NULL, make_qp, undo_qp),
	      END("destroy_qp", ready_qp, end_qp),
	      CASE("INIT", ready_qp, init_qp, undo_qp),
	      CASE("RTR", ready_init, rtr_qp, undo_qp),
	      CASE("RTS", ready_rtr, rts_qp, undo_qp),
	      CASE("SQD", ready_rts, sqd_qp, undo_qp),
	      CASE("SQD to RTS", ready_sqd, resume_qp, undo_qp),
	      CASE("attributes in RTS", ready_rts, change_attributes, undo_qp),
	      CASE("ERR", ready_rts, err_qp, undo_qp),
	      CASE("RESET", ready_rts, reset_qp, undo_qp),
	      CASE("query_qp", ready_rts, query_qp, undo_qp),
	      END("destroy_qp in RTS", ready_rts, end_qp));
}

static void qps_rc(void)
{
	type = IBV_QPT_RC;
	make_end(&a, type, 0);
	qps_of();
	sweep(CASE("attributes in SQD", ready_sqd, change_path, undo_qp),
	      CASE("post_recv", ready_init, post_receive, undo_qp));
	use_ipv6();
	sweep(CASE("RTR, IPv6", ready_init, rtr_qp, undo_qp),
	      CASE("attributes in SQD, IPv6", ready_sqd, change_path, undo_qp));
}

static void qps_ud(void)
{
	type = IBV_QPT_UD;
	make_end(&a, type, 0);
	qps_of();
	sweep(CASE("post_recv", ready_init, post_receive, undo_qp));
}

static void qps_with_srq(void)
{
	type = IBV_QPT_RC;
	shares = 1;
	make_end(&a, type, 0);
	ready_share();
	sweep(CASE("create_qp with an SRQ", NULL, make_qp, undo_qp),
	      END("destroy_qp with an SRQ", ready_qp, end_qp));
}

/* Posting: the number of the work request, how it is sent, and how it ends. */
static __u64 number;
static enum ibv_wr_opcode opcode;
static int parts, flags;
static __u32 bytes;
static enum ibv_wc_status outcome;

static void connect_again(void)
{
	struct ibv_wc wc;

	expect(!modify(&a, IBV_QPS_RESET) && !modify(&b, IBV_QPS_RESET), "RESET");
	while (ibv_poll_cq(a.sends, 1, &wc) > 0 || ibv_poll_cq(b.receives, 1, &wc) > 0)
		;
	connect_ends(7);
}

static int takes_a_receive(void)
{
	switch (opcode) {
	case IBV_WR_SEND:
	case IBV_WR_SEND_WITH_IMM:
	case IBV_WR_SEND_WITH_INV:
	case IBV_WR_RDMA_WRITE_WITH_IMM:
		return 1;
	default:
		return 0;
	}
}

/* Takes the entries, and fills the receive queue. */
static void ready_post(void)
{
	struct ibv_wc wc;

	/* The last one has moved both QPs to ERR. */
	if (outcome != IBV_WC_SUCCESS)
		connect_again();
	while (ibv_poll_cq(b.receives, 1, &wc) > 0)
		;
	if (takes_a_receive()) {
		struct ibv_sge one = sge(&b, 0, 8192);

		while (!try_receive(&b, 1, &one, 1))
			;
	}
}

static int post_one(void)
{
	struct ibv_sge sges[16];
	struct ibv_send_wr send;
	int i;

	for (i = 0; i < parts; i++)
		sges[i] = sge(&a, i * bytes, bytes);
	send = type == IBV_QPT_UD ? datagram(sges, ah) : wr(0, opcode, sges, 1);
	send.opcode = opcode;
	send.num_sge = parts;
	send.wr_id = ++number;
	send.send_flags |= flags;
	/* The key to invalidate is in the same place. */
	send.imm_data = b.mr->rkey;
	if (opcode == IBV_WR_ATOMIC_FETCH_AND_ADD || opcode == IBV_WR_ATOMIC_CMP_AND_SWP) {
		send.wr.atomic.remote_addr = (__u64)(unsigned long)b.memory;
		send.wr.atomic.compare_add = 1;
		send.wr.atomic.swap = 2;
		send.wr.atomic.rkey = b.mr->rkey;
	} else if (type == IBV_QPT_RC) {
		remote(&send, &b, 0);
	}
	return post(&a, &send);
}

/* Waits for the end of the work request. A fault may have made it fail, and its QP with it. */
static void wait_for_it(void)
{
	struct ibv_wc wc;

	do {
		expect(poll_for(a.sends, &wc, SECONDS * 1000), "no entry for %llu",
		       (unsigned long long)number);
		if (wc.status == outcome)
			continue;
		expect(met, "%s without a fault", ibv_wc_status_str(wc.status));
		printf("request %llu: %s\n", (unsigned long long)wc.wr_id,
		       ibv_wc_status_str(wc.status));
		connect_again();
		ready_post();
		met = 0;
		must(post_one(), 0, "post_send after a failed one");
		wc.wr_id = 0;
	} while (wc.wr_id != number);
}

static void posting(const char *name, enum ibv_wr_opcode op, int count, __u32 len, int how)
{
	struct a_case one = CASE(name, ready_post, post_one, wait_for_it);

	opcode = op;
	parts = count;
	bytes = len;
	flags = how;
	sweep_one(&one);
}

static void many_parts(struct end *end)
{
	struct ibv_qp_init_attr init = usual(type);

	init.cap.max_send_sge = 16;
	other_qp(end, init);
}

static void posting_rc(void)
{
	type = IBV_QPT_RC;
	make_end(&a, type, 0);
	make_end(&b, type, 0);
	many_parts(&a);
	connect_ends(7);
	prepare();
	posting("SEND", IBV_WR_SEND, 1, 4000, 0);
	posting("SEND of 16 parts", IBV_WR_SEND, 16, 100, 0);
	posting("SEND, inline", IBV_WR_SEND, 1, 60, IBV_SEND_INLINE);
	posting("SEND, inline, of 16 parts", IBV_WR_SEND, 16, 4, IBV_SEND_INLINE);
	posting("SEND_WITH_IMM", IBV_WR_SEND_WITH_IMM, 1, 4000, 0);
	posting("WRITE", IBV_WR_RDMA_WRITE, 1, 60000, 0);
	posting("WRITE_WITH_IMM", IBV_WR_RDMA_WRITE_WITH_IMM, 1, 4000, 0);
	posting("READ of 16 parts", IBV_WR_RDMA_READ, 16, 1000, 0);
	posting("FETCH_ADD", IBV_WR_ATOMIC_FETCH_AND_ADD, 1, 8, 0);
	posting("CMP_SWP", IBV_WR_ATOMIC_CMP_AND_SWP, 1, 8, 0);
	/* The QP of a program refuses to invalidate. The QPs are connected again before each. */
	outcome = IBV_WC_REM_ACCESS_ERR;
	posting("SEND_WITH_INV", IBV_WR_SEND_WITH_INV, 1, 4000, 0);
}

static void posting_ud(void)
{
	type = IBV_QPT_UD;
	make_end(&a, type, 0);
	make_end(&b, type, 0);
	many_parts(&a);
	connect_ends(7);
	must(try_ah(), 0, "create_ah");
	prepare();
	posting("datagram", IBV_WR_SEND, 1, 1000, 0);
	posting("datagram of 16 parts", IBV_WR_SEND, 16, 60, 0);
	posting("datagram, inline", IBV_WR_SEND, 1, 60, IBV_SEND_INLINE);
	posting("datagram, inline, of 16 parts", IBV_WR_SEND, 16, 4, IBV_SEND_INLINE);
	posting("datagram with immediate data", IBV_WR_SEND_WITH_IMM, 1, 1000, 0);
	undo_ah();
	use_ipv6();
	must(try_ah(), 0, "create_ah, IPv6");
	posting("datagram over IPv6", IBV_WR_SEND, 1, 1000, 0);
}

static struct kfabric_ib_comp_cntr_resp cntr_resp;
static __u64 *words;

static int make_cntr(void) { return create((struct wanted) { .resp = &cntr_resp }, &cntr); }

static int make_external(void)
{
	struct buffer comp = { .type = BUFFER_VA, .addr = (__u64)(unsigned long)words,
			       .length = 8 };
	struct buffer err = { .type = BUFFER_DMABUF, .fd = buf, .addr = 64, .length = 8 };

	return create((struct wanted) { .comp = &comp, .err = &err }, &cntr);
}

static int end_cntr(void) { return destroy(cntr); }
static void undo_cntr(void) { must(end_cntr(), 0, "destroy"); }
static void ready_cntr(void) { must(make_cntr(), 0, "create"); }
static int set_cntr(void) { return change(cntr, ENTRY_COMP, OP_SET, 5); }

static int inc_cntr(void) { return change(cntr, ENTRY_COMP, OP_INC, 5); }
static int set_err_cntr(void) { return change(cntr, ENTRY_ERR, OP_SET, 5); }
static int inc_err_cntr(void) { return change(cntr, ENTRY_ERR, OP_INC, 5); }

static int read_cntr(void)
{
	__u64 now;

	return try_read(cntr, ENTRY_COMP, &now);
}

static int read_err_cntr(void)
{
	__u64 now;

	return try_read(cntr, ENTRY_ERR, &now);
}

static void *page = MAP_FAILED;
static int map_cntr(void)
{
	page = mmap(NULL, PAGE, PROT_READ, MAP_SHARED, device->cmd_fd, cntr_resp.mmap_offset);
	return page == MAP_FAILED ? errno : 0;
}

static void undo_map_cntr(void)
{
	expect(!munmap(page, PAGE), "munmap");
	undo_cntr();
}

static void ready_attach(void)
{
	type = IBV_QPT_RC;
	ready_cntr();
	ready_qp();
}

static int attach_cntr(void) { return attach(qp, cntr, OP_ALL); }
static void undo_attach(void)
{
	undo_qp();
	undo_cntr();
}

static int caps(void)
{
	__u32 most, ops;
	__u64 max;

	return query_caps(&most, &max, &ops);
}

static void comp_counters(void)
{
	make_end(&a, IBV_QPT_RC, 0);
	words = aligned_alloc(PAGE, PAGE);
	memset(words, 0, PAGE);
	mapped_page();
	sweep(CASE("query_comp_cntr_caps", NULL, caps, NULL),
	      CASE("create_comp_cntr", NULL, make_cntr, undo_cntr),
	      CASE("create_comp_cntr, external", NULL, make_external, undo_cntr),
	      END("destroy_comp_cntr", ready_cntr, end_cntr),
	      CASE("mmap of a counter", ready_cntr, map_cntr, undo_map_cntr),
	      CASE("attach_comp_cntr", ready_attach, attach_cntr, undo_attach));
	ready_cntr();
	sweep(CASE("set_comp_cntr", NULL, set_cntr, NULL),
	      CASE("inc_comp_cntr", NULL, inc_cntr, NULL),
	      CASE("set_err_comp_cntr", NULL, set_err_cntr, NULL),
	      CASE("inc_err_comp_cntr", NULL, inc_err_cntr, NULL),
	      CASE("read_comp_cntr", NULL, read_cntr, NULL),
	      CASE("read_err_comp_cntr", NULL, read_err_cntr, NULL));
}

static int make_counters(void) { return create_counters(&counters); }
static int end_counters(void) { return destroy_counters(counters); }
static void undo_counters(void) { must(end_counters(), 0, "destroy_counters"); }
static void ready_counters(void) { must(make_counters(), 0, "create_counters"); }
static int static_point(void) { return attach_point(counters, NO_FLOW, 0, 0); }

static int make_flow(void)
{
	union flow flow = flow_of(qp);
	struct ib_uverbs_flow_spec_ipv4 ipv4 = {
		.type = IBV_FLOW_SPEC_IPV4,
		.size = sizeof(ipv4),
		.val = { .src_ip = htobe32(0xc0000202) },
		.mask = { .src_ip = ~0u },
	};

	spec(&flow, &ipv4, sizeof(ipv4));
	count_into(&flow, counters);
	return create_flow(&flow, &flow_handle);
}

static int make_bare_flow(void)
{
	union flow flow = flow_of(qp);

	return create_flow(&flow, &flow_handle);
}

static int end_flow(void) { return destroy_flow(flow_handle); }
static void ready_flow(void) { must(make_flow(), 0, "create_flow"); }
static void undo_flow(void) { must(end_flow(), 0, "destroy_flow"); }

static void ready_dynamic(void)
{
	ready_counters();
	must(make_bare_flow(), 0, "create_flow");
}

static int dynamic_point(void) { return attach_point(counters, flow_handle, 1, 2); }
static void undo_dynamic(void)
{
	undo_flow();
	undo_counters();
}

static int read_values(void)
{
	__u64 values[2];

	return read_counters(counters, values, 2, 0);
}

static void counters_and_flows(void)
{
	type = IBV_QPT_UD;
	make_end(&a, type, 0);
	ready_qp();
	sweep(CASE("create_counters", NULL, make_counters, undo_counters),
	      END("destroy_counters", ready_counters, end_counters),
	      CASE("a static point", ready_counters, static_point, undo_counters),
	      CASE("a flow without counters", NULL, make_bare_flow, undo_flow),
	      CASE("a dynamic point", ready_dynamic, dynamic_point, undo_dynamic));
	ready_counters();
	must(static_point(), 0, "attach");
	sweep(CASE("a flow", NULL, make_flow, undo_flow),
	      END("destroy_flow", ready_flow, end_flow));
	ready_flow();
	sweep(CASE("read_counters", NULL, read_values, NULL));
}

static const struct test tests[] = {
	TEST(objects),
	TEST(memory),
	TEST(queues),
	TEST(qps_rc),
	TEST(qps_ud),
	TEST(qps_with_srq),
	TEST(posting_rc),
	TEST(posting_ud),
	TEST(comp_counters),
	TEST(counters_and_flows),
};

int main(int argc, char **argv)
{
	return run_test(argc, argv, tests, sizeof(tests) / sizeof(tests[0]));
}
