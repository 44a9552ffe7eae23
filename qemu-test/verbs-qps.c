// SPDX-License-Identifier: GPL-2.0
/*
 * verbs-qps: what the pages of libibverbs require of QPs: order, gather lists,
 * inline data, each error, states and events. The functions of verbs and the
 * InfiniBand specification (volume 1, chapters 10 and 11) are the source.
 */

#include "verbs-ends.h"

/* Only signalled work requests have entries, in the order of the posts. */
static void order(void)
{
	struct ibv_sge one;
	struct ibv_send_wr send;
	int i;

	pair(IBV_QPT_RC);
	for (i = 0; i < 8; i++)
		receive(&b, 100 + i, 4096 * i, 4096);
	for (i = 0; i < 8; i++) {
		fill(&a, 4096 * i, 3000, i);
		one = sge(&a, 4096 * i, 3000);
		send = wr(i, IBV_WR_SEND, &one, 1);
		send.send_flags = i & 1 ? IBV_SEND_SIGNALED : 0;
		must_post(&a, &send);
	}
	for (i = 1; i < 8; i += 2)
		expect(entry(a.sends, i, IBV_WC_SUCCESS).opcode == IBV_WC_SEND, "opcode");
	no_entry(a.sends);
	for (i = 0; i < 8; i++) {
		struct ibv_wc wc = entry(b.receives, 100 + i, IBV_WC_SUCCESS);

		expect(wc.opcode == IBV_WC_RECV && wc.byte_len == 3000 && !wc.wc_flags &&
		       wc.qp_num == b.qp->qp_num, "a receive of %u bytes", wc.byte_len);
		check(&b, 4096 * i, 3000, i);
	}
}

/* With sq_sig_all all work requests are signalled. */
static void all_signaled(void)
{
	struct ibv_sge one;
	struct ibv_send_wr send;

	make_end(&a, IBV_QPT_RC, 1);
	make_end(&b, IBV_QPT_RC, 1);
	connect_ends(7);
	receive(&b, 1, 0, 64);
	one = sge(&a, 0, 64);
	send = wr(7, IBV_WR_SEND, &one, 1);
	send.send_flags = 0;
	must_post(&a, &send);
	entry(a.sends, 7, IBV_WC_SUCCESS);
}

/* A message is gathered from several SGEs, and scattered to several. */
static void gather(void)
{
	static const __u32 from[SGES] = { 1, 4095, 0, 1000, 7, 2000 };
	static const __u32 to[SGES] = { 3000, 1, 2, 4000, 90, 10 };
	struct ibv_sge sges[SGES], room[SGES];
	struct ibv_send_wr send;
	__u32 i, at = 0, sum = 0;

	pair(IBV_QPT_RC);
	fill(&a, 0, 7103, 5);
	/* The pieces lie apart, in the opposite order. */
	for (i = 0; i < SGES; i++) {
		memcpy(a.memory + 65536 * (SGES - i), a.memory + at, from[i]);
		sges[i] = sge(&a, 65536 * (SGES - i), from[i]);
		at += from[i];
	}
	for (i = 0; i < SGES; i++) {
		room[i] = sge(&b, 65536 * (SGES - i), to[i]);
		sum += to[i];
	}
	expect(at == 7103 && sum == 7103, "the test's own lengths");
	expect(!try_receive(&b, 1, room, SGES), "post_recv");
	send = wr(2, IBV_WR_SEND, sges, SGES);
	must_post(&a, &send);
	entry(a.sends, 2, IBV_WC_SUCCESS);
	expect(entry(b.receives, 1, IBV_WC_SUCCESS).byte_len == 7103, "length");
	for (i = 0, at = 0; i < SGES; i++) {
		memcpy(b.memory + at, b.memory + 65536 * (SGES - i), to[i]);
		at += to[i];
	}
	check(&b, 0, 7103, 5);

	/* A WRITE gathers, a READ scatters. */
	send = wr(3, IBV_WR_RDMA_WRITE, sges, SGES);
	remote(&send, &b, 8192);
	must_post(&a, &send);
	entry(a.sends, 3, IBV_WC_SUCCESS);
	check(&b, 8192, 7103, 5);
	for (i = 0; i < SGES; i++)
		memset(a.memory + 65536 * (SGES - i), 0, from[i]);
	send = wr(4, IBV_WR_RDMA_READ, sges, SGES);
	remote(&send, &b, 8192);
	must_post(&a, &send);
	expect(entry(a.sends, 4, IBV_WC_SUCCESS).byte_len == 7103, "length of a READ");
	for (i = 0, at = 0; i < SGES; i++) {
		memcpy(a.memory + at, a.memory + 65536 * (SGES - i), from[i]);
		at += from[i];
	}
	check(&a, 0, 7103, 5);
}

/* Inline data are copied by the post, need no region, and may be on the stack. */
static void inline_data(void)
{
	__u8 bytes[64];
	struct ibv_sge sges[2] = {
		{ .addr = (__u64)(unsigned long)bytes, .length = 40, .lkey = 0xdead },
		{ .addr = (__u64)(unsigned long)bytes + 40, .length = 24, .lkey = 0xbeef },
	};
	struct ibv_send_wr send = wr(1, IBV_WR_SEND, sges, 2);
	__u32 i;

	pair(IBV_QPT_RC);
	for (i = 0; i < sizeof(bytes); i++)
		bytes[i] = pattern(9, i);
	send.send_flags |= IBV_SEND_INLINE;
	must_post(&a, &send);
	memset(bytes, 0, sizeof(bytes));
	receive(&b, 2, 0, 64);
	entry(a.sends, 1, IBV_WC_SUCCESS);
	expect(entry(b.receives, 2, IBV_WC_SUCCESS).byte_len == 64, "length");
	check(&b, 0, 64, 9);

	sges[1].length = 4096;
	expect(post(&a, &send) == EINVAL, "more inline data than the QP has");
	sges[1] = (struct ibv_sge) { .addr = 4096, .length = 1 };
	expect(post(&a, &send) == EFAULT, "inline data that cannot be read");
	send = wr(1, IBV_WR_RDMA_READ, sges, 1);
	send.send_flags |= IBV_SEND_INLINE;
	expect(post(&a, &send) == EINVAL, "an inline READ");
}

/* Immediate data of SENDs and WRITEs. */
static void immediate(void)
{
	struct ibv_sge one;
	struct ibv_send_wr send;
	struct ibv_wc wc;

	pair(IBV_QPT_RC);
	one = sge(&a, 0, 100);
	receive(&b, 1, 0, 100);
	receive(&b, 2, 0, 0);
	send = wr(1, IBV_WR_SEND_WITH_IMM, &one, 1);
	send.imm_data = htobe32(0x11223344);
	must_post(&a, &send);
	entry(a.sends, 1, IBV_WC_SUCCESS);
	wc = entry(b.receives, 1, IBV_WC_SUCCESS);
	expect(wc.wc_flags == IBV_WC_WITH_IMM && be32toh(wc.imm_data) == 0x11223344,
	       "immediate data of a SEND");
	fill(&a, 0, 100, 3);
	send = wr(2, IBV_WR_RDMA_WRITE_WITH_IMM, &one, 1);
	send.imm_data = htobe32(0x55667788);
	remote(&send, &b, 5000);
	must_post(&a, &send);
	expect(entry(a.sends, 2, IBV_WC_SUCCESS).opcode == IBV_WC_RDMA_WRITE, "opcode");
	wc = entry(b.receives, 2, IBV_WC_SUCCESS);
	expect(wc.opcode == IBV_WC_RECV_RDMA_WITH_IMM && wc.byte_len == 100 &&
	       wc.wc_flags == IBV_WC_WITH_IMM && be32toh(wc.imm_data) == 0x55667788,
	       "immediate data of a WRITE");
	check(&b, 5000, 100, 3);
}

/* Operations on no bytes; the key of an access to no bytes is not checked. */
static void no_bytes(void)
{
	struct ibv_send_wr send;

	pair(IBV_QPT_RC);
	expect(!try_receive(&b, 1, NULL, 0), "a receive without SGEs");
	send = wr(1, IBV_WR_SEND, NULL, 0);
	must_post(&a, &send);
	entry(a.sends, 1, IBV_WC_SUCCESS);
	expect(!entry(b.receives, 1, IBV_WC_SUCCESS).byte_len, "length");
	send = wr(2, IBV_WR_RDMA_WRITE, NULL, 0);
	must_post(&a, &send);
	entry(a.sends, 2, IBV_WC_SUCCESS);
	send = wr(3, IBV_WR_RDMA_READ, NULL, 0);
	must_post(&a, &send);
	entry(a.sends, 3, IBV_WC_SUCCESS);
}

/* Atomics return what was there. */
static void atomics(void)
{
	struct ibv_sge one;
	struct ibv_send_wr send;
	__u64 *there, *result;

	pair(IBV_QPT_RC);
	there = (__u64 *)(b.memory + 64);
	result = (__u64 *)a.memory;
	one = sge(&a, 0, 8);
	*there = 40;
	send = atomic(IBV_WR_ATOMIC_FETCH_AND_ADD, &one, 64, 2, 0);
	must_post(&a, &send);
	expect(entry(a.sends, 64, IBV_WC_SUCCESS).opcode == IBV_WC_FETCH_ADD, "opcode");
	expect(*result == 40 && *there == 42, "fetch and add");
	send = atomic(IBV_WR_ATOMIC_CMP_AND_SWP, &one, 64, 41, 7);
	must_post(&a, &send);
	expect(entry(a.sends, 64, IBV_WC_SUCCESS).opcode == IBV_WC_COMP_SWAP, "opcode");
	expect(*result == 42 && *there == 42, "compare, not equal");
	send = atomic(IBV_WR_ATOMIC_CMP_AND_SWP, &one, 64, 42, 7);
	must_post(&a, &send);
	entry(a.sends, 64, IBV_WC_SUCCESS);
	expect(*result == 42 && *there == 7, "compare and swap");

	one.length = 4;
	expect(post(&a, &send) == EINVAL, "an atomic of 4 bytes");
	one.length = 8;
	send.num_sge = 0;
	expect(post(&a, &send) == EINVAL, "an atomic without an SGE");
}

/* A READ, and a fenced SEND behind it. */
static void fence(void)
{
	struct ibv_sge from, to;
	struct ibv_send_wr send, read;

	pair(IBV_QPT_RC);
	fill(&b, 0, 65536, 4);
	receive(&b, 1, 131072, 65536);
	to = sge(&a, 0, 65536);
	from = to;
	read = wr(1, IBV_WR_RDMA_READ, &to, 1);
	remote(&read, &b, 0);
	send = wr(2, IBV_WR_SEND, &from, 1);
	send.send_flags |= IBV_SEND_FENCE;
	read.next = &send;
	must_post(&a, &read);
	entry(a.sends, 1, IBV_WC_SUCCESS);
	entry(a.sends, 2, IBV_WC_SUCCESS);
	entry(b.receives, 1, IBV_WC_SUCCESS);
	check(&b, 131072, 65536, 4);
}

/* The local memory is not accessible: work requests before that one succeed. */
static void bad_local_key(void)
{
	struct ibv_sge bad;

	pair(IBV_QPT_RC);
	bad = sge(&a, 0, 64);
	bad.lkey ^= 0x100;
	three(&bad, IBV_WC_LOC_PROT_ERR);
}

static void out_of_region(void)
{
	struct ibv_sge bad;

	pair(IBV_QPT_RC);
	bad = sge(&a, REGION - 63, 64);
	three(&bad, IBV_WC_LOC_PROT_ERR);
}

static void key_of_another_pd(void)
{
	struct ibv_sge bad;

	pair(IBV_QPT_RC);
	bad = sge(&a, 0, 64);
	bad.lkey = b.mr->lkey;
	bad.addr = (__u64)(unsigned long)b.memory;
	three(&bad, IBV_WC_LOC_PROT_ERR);
}

/* The peer refuses: its key, its range, its rights. */
static void refused(enum ibv_wr_opcode opcode, __u32 at, __u32 key, int access)
{
	struct ibv_sge one;
	struct ibv_send_wr send;

	pair(IBV_QPT_RC);
	if (access >= 0) {
		ibv_dereg_mr(b.mr);
		b.mr = ibv_reg_mr(b.pd, b.memory, REGION, access);
	}
	one = sge(&a, 0, 64);
	send = wr(1, opcode, &one, 1);
	remote(&send, &b, at);
	send.wr.rdma.rkey ^= key;
	must_post(&a, &send);
	entry(a.sends, 1, IBV_WC_REM_ACCESS_ERR);
	is_in(&a, IBV_QPS_ERR);
	is_in(&b, IBV_QPS_ERR);
}

static void bad_remote_key(void)
{
	refused(IBV_WR_RDMA_WRITE, 0, 0x10000, -1);
}

static void bad_remote_range(void)
{
	refused(IBV_WR_RDMA_READ, REGION - 63, 0, -1);
}

static void no_right_to_write(void)
{
	refused(IBV_WR_RDMA_WRITE, 0, 0, IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_REMOTE_READ);
}

static void no_right_to_read(void)
{
	refused(IBV_WR_RDMA_READ, 0, 0, IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_REMOTE_WRITE);
}

/* A receive that is too short ends both QPs. */
static void too_long(void)
{
	struct ibv_sge one;
	struct ibv_send_wr send;

	pair(IBV_QPT_RC);
	receive(&b, 1, 0, 3000);
	receive(&b, 2, 0, 3000);
	one = sge(&a, 0, 3001);
	send = wr(3, IBV_WR_SEND, &one, 1);
	must_post(&a, &send);
	entry(a.sends, 3, IBV_WC_REM_INV_REQ_ERR);
	entry(b.receives, 1, IBV_WC_LOC_LEN_ERR);
	entry(b.receives, 2, IBV_WC_WR_FLUSH_ERR);
}

/* The memory of a receive is not accessible. */
static void bad_receive_key(void)
{
	struct ibv_sge one, bad;
	struct ibv_send_wr send;

	pair(IBV_QPT_RC);
	bad = sge(&b, 0, 64);
	bad.lkey ^= 0x100;
	expect(!try_receive(&b, 1, &bad, 1), "post_recv");
	one = sge(&a, 0, 64);
	send = wr(3, IBV_WR_SEND, &one, 1);
	must_post(&a, &send);
	entry(b.receives, 1, IBV_WC_LOC_PROT_ERR);
	entry(a.sends, 3, IBV_WC_REM_OP_ERR);
}

/* No receive is posted, and the QP does not retry. */
static void not_ready(void)
{
	struct ibv_sge one;
	struct ibv_send_wr send;

	make_end(&a, IBV_QPT_RC, 0);
	make_end(&b, IBV_QPT_RC, 0);
	connect_ends(0);
	one = sge(&a, 0, 64);
	send = wr(3, IBV_WR_SEND, &one, 1);
	must_post(&a, &send);
	entry(a.sends, 3, IBV_WC_RNR_RETRY_EXC_ERR);
}

/* In ERR every work request is flushed, also one that is posted afterwards. */
static void flush(void)
{
	struct ibv_sge one;
	struct ibv_send_wr send;
	int i;

	pair(IBV_QPT_RC);
	for (i = 0; i < 4; i++)
		receive(&a, 10 + i, 0, 64);
	expect(!modify(&a, IBV_QPS_ERR), "ERR");
	for (i = 0; i < 4; i++)
		entry(a.receives, 10 + i, IBV_WC_WR_FLUSH_ERR);
	receive(&a, 20, 0, 64);
	entry(a.receives, 20, IBV_WC_WR_FLUSH_ERR);
	one = sge(&a, 0, 64);
	send = wr(1, IBV_WR_SEND, &one, 1);
	must_post(&a, &send);
	entry(a.sends, 1, IBV_WC_WR_FLUSH_ERR);
}

/* A QP that was reset keeps no work request or attribute, and can be connected again. */
static void reset(void)
{
	struct ibv_sge one;
	struct ibv_send_wr send;

	pair(IBV_QPT_RC);
	receive(&a, 1, 0, 64);
	one = sge(&a, 0, 64);
	send = wr(2, IBV_WR_SEND, &one, 1);
	must_post(&a, &send);
	expect(!modify(&a, IBV_QPS_RESET) && !modify(&b, IBV_QPS_RESET), "RESET");
	is_in(&a, IBV_QPS_RESET);
	no_entry(a.sends);
	no_entry(a.receives);
	expect(post(&a, &send) == EINVAL, "a post in RESET");
	expect(try_receive(&a, 1, &one, 1) == EINVAL, "a receive in RESET");
	connect_ends(7);
	receive(&b, 5, 0, 64);
	must_post(&a, &send);
	entry(a.sends, 2, IBV_WC_SUCCESS);
	entry(b.receives, 5, IBV_WC_SUCCESS);
}

/* A refused post has no effect. */
static void bad_posts(void)
{
	struct ibv_sge sges[SGES + 1];
	struct ibv_send_wr send;
	int i, ret = 0;

	make_end(&a, IBV_QPT_RC, 0);
	make_end(&b, IBV_QPT_RC, 0);
	for (i = 0; i <= SGES; i++)
		sges[i] = sge(&a, 0, 8);
	send = wr(1, IBV_WR_SEND, sges, 1);
	to_init(&a);
	expect(post(&a, &send) == EINVAL, "a post in INIT");
	to_init(&b);
	to_rtr(&a, b.qp->qp_num);
	to_rtr(&b, a.qp->qp_num);
	to_rts(&a, 7);
	to_rts(&b, 7);
	send.num_sge = SGES + 1;
	expect(post(&a, &send) == EINVAL, "too many SGEs");
	expect(try_receive(&a, 1, sges, SGES + 1) == EINVAL, "a receive with too many SGEs");
	send.num_sge = 1;
	send.send_flags |= 1 << 20;
	expect(post(&a, &send) == EINVAL, "an unknown flag");
	send.send_flags = 0;
	send.opcode = IBV_WR_TSO;
	expect(post(&a, &send) == EINVAL, "an operation that there is not");
	send.opcode = IBV_WR_SEND;
	sges[0].length = 1u << 31;
	sges[1].length = 1;
	send.num_sge = 2;
	expect(post(&a, &send) == EINVAL, "a message that is too long");
	sges[0].length = 8;
	send.num_sge = 1;
	/* Without a receive of the peer none of them ends. */
	for (i = 0; i < 4 * WRS && !ret; i++)
		ret = post(&a, &send);
	expect(ret == ENOMEM && i > WRS, "%d posts, then %d", i, ret);
	for (i = 0, ret = 0; i < 4 * WRS && !ret; i++)
		ret = try_receive(&a, 1, sges, 1);
	expect(ret == ENOMEM && i > WRS, "%d receives, then %d", i, ret);
	no_entry(a.sends);
}

/* A query returns the attributes that were set. */
static void query(void)
{
	struct ibv_qp_init_attr init;
	struct ibv_qp_attr attr;

	traffic_class = 0x68;
	pair(IBV_QPT_RC);
	expect(!ibv_query_qp(a.qp, &attr, IBV_QP_STATE | IBV_QP_CAP, &init), "query_qp");
	expect(attr.qp_state == IBV_QPS_RTS && attr.cur_qp_state == IBV_QPS_RTS, "state");
	expect(attr.dest_qp_num == b.qp->qp_num && attr.rq_psn == 0x123456 &&
	       attr.sq_psn == 0x123456 && attr.path_mtu == IBV_MTU_1024, "peer");
	expect(attr.max_rd_atomic == 4 && attr.max_dest_rd_atomic == 4 && attr.timeout == 14 &&
	       attr.retry_cnt == 7 && attr.rnr_retry == 7 && attr.min_rnr_timer == 12, "counts");
	expect(attr.qp_access_flags == ACCESS && attr.port_num == 1, "access");
	expect(attr.ah_attr.is_global && attr.ah_attr.grh.sgid_index == gid_index &&
	       attr.ah_attr.grh.traffic_class == 0x68 && attr.ah_attr.port_num == 1 &&
	       !memcmp(&attr.ah_attr.grh.dgid, &own_gid, sizeof(own_gid)), "address");
	expect(!attr.pkey_index && attr.path_mig_state == IBV_MIG_MIGRATED, "partition, path");
	expect(init.cap.max_send_wr >= WRS && init.cap.max_recv_wr >= WRS &&
	       init.cap.max_send_sge >= SGES && init.cap.max_inline_data >= 64 &&
	       init.qp_type == IBV_QPT_RC, "capacities");
}

/* The first message in RTR establishes the communication. */
static void established(void)
{
	struct ibv_sge one;
	struct ibv_send_wr send;

	make_end(&a, IBV_QPT_RC, 0);
	make_end(&b, IBV_QPT_RC, 0);
	ends_to_rtr();
	to_rts(&a, 7);
	receive(&b, 1, 0, 64);
	one = sge(&a, 0, 64);
	send = wr(1, IBV_WR_SEND, &one, 1);
	must_post(&a, &send);
	/* ibv_get_async_event(3): element is the object of the event. */
	expect(event(IBV_EVENT_COMM_EST).element.qp == b.qp, "the event's QP");
	entry(b.receives, 1, IBV_WC_SUCCESS);
	to_rts(&b, 7);
}

/* In SQD work requests that have begun end, and those that are posted wait. */
static void drained(void)
{
	struct ibv_sge one;
	struct ibv_send_wr send;

	pair(IBV_QPT_RC);
	receive(&b, 1, 0, 64);
	one = sge(&a, 0, 64);
	send = wr(1, IBV_WR_SEND, &one, 1);
	must_post(&a, &send);
	to_sqd(&a);
	expect(event(IBV_EVENT_SQ_DRAINED).element.qp == a.qp, "the event's QP");
	entry(a.sends, 1, IBV_WC_SUCCESS);
	receive(&b, 2, 0, 64);
	send.wr_id = 2;
	must_post(&a, &send);
	no_entry(a.sends);
	expect(!modify(&a, IBV_QPS_RTS), "RTS");
	entry(a.sends, 2, IBV_WC_SUCCESS);
}

/* A CQ that waits for solicited entries is not woken by others. */
static void solicited(void)
{
	struct pollfd fd;
	struct ibv_sge one;
	struct ibv_send_wr send;
	struct ibv_cq *cq;
	void *context;

	pair(IBV_QPT_RC);
	fd = (struct pollfd) { .fd = b.channel->fd, .events = POLLIN };
	receive(&b, 1, 0, 64);
	receive(&b, 2, 0, 64);
	one = sge(&a, 0, 64);
	expect(!ibv_req_notify_cq(b.receives, 1), "req_notify_cq");
	send = wr(1, IBV_WR_SEND, &one, 1);
	must_post(&a, &send);
	entry(a.sends, 1, IBV_WC_SUCCESS);
	expect(!poll(&fd, 1, 200), "woken by an entry that is not solicited");
	send.send_flags |= IBV_SEND_SOLICITED;
	must_post(&a, &send);
	expect(poll(&fd, 1, SECONDS * 1000) == 1, "not woken by a solicited entry");
	expect(!ibv_get_cq_event(b.channel, &cq, &context) && cq == b.receives, "its CQ");
	ibv_ack_cq_events(cq, 1);
	entry(b.receives, 1, IBV_WC_SUCCESS);
	entry(b.receives, 2, IBV_WC_SUCCESS);
}

/* A QP is destroyed with its posted work requests and its entries. */
static void destroyed(void)
{
	struct ibv_sge one;
	struct ibv_send_wr send;
	struct ibv_wc wc;

	pair(IBV_QPT_RC);
	receive(&b, 1, 0, 64);
	receive(&b, 2, 0, 64);
	one = sge(&a, 0, 64);
	send = wr(1, IBV_WR_SEND, &one, 1);
	must_post(&a, &send);
	entry(b.receives, 1, IBV_WC_SUCCESS);
	must_post(&a, &send);
	must_post(&a, &send);
	expect(!ibv_destroy_qp(a.qp), "destroy_qp");
	expect(!ibv_poll_cq(a.sends, 1, &wc), "an entry of a QP that is not there");
	expect(ibv_dealloc_pd(a.pd) == EBUSY, "a PD with a region");
	expect(!ibv_dereg_mr(a.mr) && !ibv_dealloc_pd(a.pd), "dereg_mr, dealloc_pd");
	expect(!ibv_destroy_cq(a.sends), "destroy_cq");
	expect(ibv_destroy_cq(b.receives) == EBUSY, "a CQ with a QP");
}

/* Receives of an SRQ, its limit, and its QP in ERR, which takes none of them. */
static void shared_receives(void)
{
	struct ibv_srq_attr limit = { .srq_limit = 2 };
	struct ibv_sge one;
	struct ibv_send_wr send;
	int i;

	with_srq = 1;
	pair(IBV_QPT_RC);
	for (i = 0; i < 3; i++)
		share(&b, 10 + i, 4096 * i, 4096);
	one = sge(&a, 0, 64);
	expect(try_receive(&b, 1, &one, 1) == EINVAL, "a receive of a QP with an SRQ");
	expect(!ibv_modify_srq(b.srq, &limit, IBV_SRQ_LIMIT), "modify_srq");
	expect(!ibv_query_srq(b.srq, &limit) && limit.srq_limit == 2, "query_srq");
	fill(&a, 0, 4096, 8);
	one = sge(&a, 0, 4096);
	send = wr(1, IBV_WR_SEND, &one, 1);
	must_post(&a, &send);
	entry(a.sends, 1, IBV_WC_SUCCESS);
	entry(b.receives, 10, IBV_WC_SUCCESS);
	check(&b, 0, 4096, 8);
	/* As many as the limit are not below it. */
	expect(!ibv_query_srq(b.srq, &limit) && limit.srq_limit == 2, "the limit is disarmed");
	must_post(&a, &send);
	entry(b.receives, 11, IBV_WC_SUCCESS);
	expect(event(IBV_EVENT_SRQ_LIMIT_REACHED).element.srq == b.srq, "the event's SRQ");
	expect(!ibv_query_srq(b.srq, &limit) && !limit.srq_limit, "the limit stays armed");
	expect(!modify(&b, IBV_QPS_ERR), "ERR");
	expect(event(IBV_EVENT_QP_LAST_WQE_REACHED).element.qp == b.qp, "the event's QP");
	no_entry(b.receives);
	expect(ibv_destroy_srq(b.srq) == EBUSY, "an SRQ with a QP");
	expect(!ibv_destroy_qp(b.qp) && !ibv_destroy_srq(b.srq), "destroy_srq");
}

/* Datagrams: 40 bytes before the payload, the sender's QP, lengths, Q keys. */
static void datagrams(void)
{
	struct ibv_sge one, two[2], bad;
	struct ibv_send_wr send;
	struct ibv_wc wc;

	pair(IBV_QPT_UD);
	fill(&a, 0, 1024, 6);
	one = sge(&a, 0, 1024);
	receive(&b, 1, 0, 40 + 1024);
	send = wr(1, IBV_WR_SEND_WITH_IMM, &one, 1);
	send.imm_data = htobe32(99);
	send.wr.ud.ah = make_ah();
	send.wr.ud.remote_qpn = b.qp->qp_num;
	send.wr.ud.remote_qkey = 0x1234;
	must_post(&a, &send);
	entry(a.sends, 1, IBV_WC_SUCCESS);
	wc = entry(b.receives, 1, IBV_WC_SUCCESS);
	expect(wc.byte_len == 40 + 1024 && wc.src_qp == a.qp->qp_num &&
	       be32toh(wc.imm_data) == 99 &&
	       wc.wc_flags == (IBV_WC_GRH | IBV_WC_WITH_IMM), "flags %x", wc.wc_flags);
	check(&b, 40, 1024, 6);

	/* The receive has two pieces. */
	two[0] = sge(&b, 4096, 45);
	two[1] = sge(&b, 8192, 1019);
	expect(!try_receive(&b, 2, two, 2), "post_recv");
	must_post(&a, &send);
	entry(a.sends, 1, IBV_WC_SUCCESS);
	entry(b.receives, 2, IBV_WC_SUCCESS);
	memcpy(b.memory + 8192 - 5, b.memory + 4096 + 40, 5);
	check(&b, 8192 - 5, 1024, 6);

	/* Too short: an error of this receive alone. */
	receive(&b, 3, 0, 40 + 1023);
	receive(&b, 4, 0, 40 + 1024);
	must_post(&a, &send);
	entry(b.receives, 3, IBV_WC_LOC_LEN_ERR);
	entry(a.sends, 1, IBV_WC_SUCCESS);
	/* With another Q key, and longer than a packet: nothing arrives. */
	send.wr.ud.remote_qkey = 0x1235;
	must_post(&a, &send);
	entry(a.sends, 1, IBV_WC_SUCCESS);
	send.wr.ud.remote_qkey = 0x1234;
	one.length = 1025;
	must_post(&a, &send);
	entry(a.sends, 1, IBV_WC_SUCCESS);
	no_entry(b.receives);
	one.length = 1024;
	/* ibv_post_send(3): IBV_SEND_FENCE is valid for RC only. It has no effect here. */
	send.send_flags |= IBV_SEND_FENCE;
	must_post(&a, &send);
	entry(a.sends, 1, IBV_WC_SUCCESS);
	entry(b.receives, 4, IBV_WC_SUCCESS);
	/* A receive whose memory is not accessible: an error of this receive alone, too. */
	bad = sge(&b, 0, 40 + 1024);
	bad.lkey ^= 0x100;
	expect(!try_receive(&b, 5, &bad, 1), "post_recv");
	receive(&b, 6, 0, 40 + 1024);
	must_post(&a, &send);
	must_post(&a, &send);
	entry(b.receives, 5, IBV_WC_LOC_PROT_ERR);
	entry(b.receives, 6, IBV_WC_SUCCESS);
	is_in(&b, IBV_QPS_RTS);

	send.opcode = IBV_WR_RDMA_WRITE;
	expect(post(&a, &send) == EINVAL, "a WRITE of datagrams");
}

/* A datagram whose memory is not accessible: SQE, and RTS again. */
static void datagram_error(void)
{
	const int mask = IBV_QP_STATE | IBV_QP_CUR_STATE;
	struct ibv_qp_attr attr = { .qp_state = IBV_QPS_RTS, .cur_qp_state = IBV_QPS_SQD };
	struct ibv_sge one;
	struct ibv_send_wr send, second;

	pair(IBV_QPT_UD);
	one = sge(&a, 0, 64);
	one.lkey ^= 0x100;
	send = wr(1, IBV_WR_SEND, &one, 1);
	send.wr.ud.ah = make_ah();
	send.wr.ud.remote_qpn = b.qp->qp_num;
	send.wr.ud.remote_qkey = 0x1234;
	second = send;
	second.wr_id = 2;
	send.next = &second;
	must_post(&a, &send);
	entry(a.sends, 1, IBV_WC_LOC_PROT_ERR);
	entry(a.sends, 2, IBV_WC_WR_FLUSH_ERR);
	is_in(&a, IBV_QPS_SQE);
	/* ibv_modify_qp(3): cur_qp_state is what the program takes for the current state. */
	expect(ibv_modify_qp(a.qp, &attr, mask) == EINVAL, "RTS, as if from SQD");
	is_in(&a, IBV_QPS_SQE);
	attr.cur_qp_state = IBV_QPS_SQE;
	expect(!ibv_modify_qp(a.qp, &attr, mask), "RTS");
	is_in(&a, IBV_QPS_RTS);
	one = sge(&a, 0, 64);
	send.next = NULL;
	receive(&b, 3, 0, 104);
	must_post(&a, &send);
	entry(a.sends, 1, IBV_WC_SUCCESS);
	entry(b.receives, 3, IBV_WC_SUCCESS);
}

/* The operations of a peer, and the right that each needs. */
static const struct {
	int right;
	enum ibv_wr_opcode opcode;
} accesses[] = {
	{ IBV_ACCESS_REMOTE_WRITE, IBV_WR_RDMA_WRITE },
	{ IBV_ACCESS_REMOTE_READ, IBV_WR_RDMA_READ },
	{ IBV_ACCESS_REMOTE_ATOMIC, IBV_WR_ATOMIC_FETCH_AND_ADD },
	{ IBV_ACCESS_REMOTE_ATOMIC, IBV_WR_ATOMIC_CMP_AND_SWP },
};

#define ACCESSES	(sizeof(accesses) / sizeof(accesses[0]))

/* Each operation of a on 8 bytes of b: all but those with this right are refused so. */
static void only_these(int right, int qp_rights, enum ibv_wc_status refusal)
{
	struct ibv_qp_attr attr = { .qp_access_flags = qp_rights };
	enum ibv_wc_status wanted;
	struct ibv_send_wr send;
	struct ibv_sge one;
	unsigned int i;

	for (i = 0; i < ACCESSES; i++) {
		struct ibv_wc wc = { 0 };

		connect_ends(7);
		expect(!ibv_modify_qp(b.qp, &attr, IBV_QP_ACCESS_FLAGS), "rights of the QP");
		one = sge(&a, 0, 8);
		send = atomic(accesses[i].opcode, &one, 64, 1, 2);
		if (accesses[i].right != IBV_ACCESS_REMOTE_ATOMIC)
			remote(&send, &b, 64);
		must_post(&a, &send);
		expect(poll_for(a.sends, &wc, SECONDS * 1000), "no entry");
		wanted = accesses[i].right == right ? IBV_WC_SUCCESS : refusal;
		expect(wc.status == wanted, "right %x, opcode %d: %s, not %s", right,
		       accesses[i].opcode, ibv_wc_status_str(wc.status),
		       ibv_wc_status_str(wanted));
		expect(!modify(&a, IBV_QPS_RESET) && !modify(&b, IBV_QPS_RESET), "RESET");
	}
}

/*
 * ibv_reg_mr(3), ibv_modify_qp(3): each right of a region, and each one of a QP, allows its
 * operations and no others.
 */
static void each_right_is_for_its_operations(void)
{
	unsigned int i;

	make_end(&a, IBV_QPT_RC, 0);
	make_end(&b, IBV_QPT_RC, 0);
	for (i = 0; i < ACCESSES; i++)
		only_these(accesses[i].right, accesses[i].right, IBV_WC_REM_INV_REQ_ERR);
	for (i = 0; i < ACCESSES; i++) {
		expect(!ibv_dereg_mr(b.mr), "dereg_mr");
		b.mr = ibv_reg_mr(b.pd, b.memory, REGION,
				  IBV_ACCESS_LOCAL_WRITE | accesses[i].right);
		expect(b.mr, "reg_mr: %s", strerror(errno));
		only_these(accesses[i].right, ACCESS, IBV_WC_REM_ACCESS_ERR);
	}
}

/*
 * ibv_req_notify_cq(3): a send that succeeds is not solicited, also with the flag for the
 * peer; one that fails is. ibv_get_cq_event(3): the CQ, and its context.
 */
static void sends_are_not_solicited(void)
{
	struct ibv_qp_init_attr init = usual(IBV_QPT_RC);
	struct ibv_cq *cq = NULL;
	struct ibv_send_wr send;
	void *context = NULL;
	struct ibv_sge one;
	struct pollfd fd;

	make_end(&a, IBV_QPT_RC, 0);
	make_end(&b, IBV_QPT_RC, 0);
	init.send_cq = ibv_create_cq(device, 2 * WRS, &init, a.channel, 0);
	expect(init.send_cq, "create_cq: %s", strerror(errno));
	other_qp(&a, init);
	connect_ends(7);
	fd = (struct pollfd) { .fd = a.channel->fd, .events = POLLIN };
	expect(!ibv_req_notify_cq(init.send_cq, 1), "req_notify_cq");
	receive(&b, 1, 0, 64);
	one = sge(&a, 0, 64);
	send = wr(1, IBV_WR_SEND, &one, 1);
	send.send_flags |= IBV_SEND_SOLICITED;
	must_post(&a, &send);
	entry(init.send_cq, 1, IBV_WC_SUCCESS);
	entry(b.receives, 1, IBV_WC_SUCCESS);
	expect(!poll(&fd, 1, 200), "woken by a send that succeeded");
	one.lkey ^= 0x100;
	must_post(&a, &send);
	expect(poll(&fd, 1, SECONDS * 1000) == 1, "not woken by a send that failed");
	expect(!ibv_get_cq_event(a.channel, &cq, &context) && cq == init.send_cq &&
	       context == &init, "the CQ and its context");
	ibv_ack_cq_events(cq, 1);
	entry(init.send_cq, 1, IBV_WC_LOC_PROT_ERR);
}

/*
 * ibv_create_qp(3), ibv_post_srq_recv(3): a QP for datagrams with an SRQ. Its receives have
 * 40 bytes before the payload, too, and one that is too short is an error of its own.
 */
static void datagrams_of_a_shared_queue(void)
{
	struct ibv_send_wr send;
	struct ibv_sge one;
	struct ibv_wc wc;

	with_srq = 1;
	pair(IBV_QPT_UD);
	fill(&a, 0, 100, 4);
	one = sge(&b, 0, 200);
	expect(try_receive(&b, 1, &one, 1) == EINVAL, "a receive of a QP with an SRQ");
	share(&b, 7, 0, 40 + 100);
	share(&b, 8, 4096, 40 + 99);
	one = sge(&a, 0, 100);
	send = datagram(&one, make_ah());
	must_post(&a, &send);
	entry(a.sends, 1, IBV_WC_SUCCESS);
	wc = entry(b.receives, 7, IBV_WC_SUCCESS);
	expect(wc.byte_len == 40 + 100 && wc.qp_num == b.qp->qp_num &&
	       wc.src_qp == a.qp->qp_num && wc.wc_flags == IBV_WC_GRH, "the entry");
	check(&b, 40, 100, 4);
	must_post(&a, &send);
	entry(a.sends, 1, IBV_WC_SUCCESS);
	entry(b.receives, 8, IBV_WC_LOC_LEN_ERR);
	/* There is no receive: the datagram is lost. */
	must_post(&a, &send);
	entry(a.sends, 1, IBV_WC_SUCCESS);
	no_entry(b.receives);
	is_in(&b, IBV_QPS_RTS);
	share(&b, 9, 8192, 200);
	must_post(&a, &send);
	entry(a.sends, 1, IBV_WC_SUCCESS);
	entry(b.receives, 9, IBV_WC_SUCCESS);
	check(&b, 8192 + 40, 100, 4);
	expect(ibv_destroy_srq(b.srq) == EBUSY, "an SRQ with a QP");
}

/*
 * ibv_create_srq(3), ibv_create_qp(3): an SRQ has a PD of its own. Its receives have keys of this
 * PD, also if the PD of the QP is another one.
 */
static void an_srq_has_keys_of_its_own_pd(void)
{
	struct ibv_qp_init_attr init = usual(IBV_QPT_RC);
	struct ibv_send_wr send;
	struct ibv_sge one;

	with_srq = 1;
	make_end(&a, IBV_QPT_RC, 0);
	make_end(&b, IBV_QPT_RC, 0);
	init.srq = a.srq;
	other_qp(&b, init);
	connect_ends(7);
	share(&a, 1, 4096, 64);
	fill(&a, 0, 64, 5);
	one = sge(&a, 0, 64);
	send = wr(1, IBV_WR_SEND, &one, 1);
	must_post(&a, &send);
	entry(a.sends, 1, IBV_WC_SUCCESS);
	expect(entry(b.receives, 1, IBV_WC_SUCCESS).qp_num == b.qp->qp_num, "its QP");
	check(&a, 4096, 64, 5);
	/* A key of the QP's PD names nothing there. */
	b.srq = a.srq;
	share(&b, 2, 0, 64);
	must_post(&a, &send);
	entry(b.receives, 2, IBV_WC_LOC_PROT_ERR);
	entry(a.sends, 1, IBV_WC_REM_OP_ERR);
	expect(!b.memory[0], "it was written");
}

static const struct test tests[] = {
	TEST(order), TEST(all_signaled), TEST(gather), TEST(inline_data), TEST(immediate),
	TEST(no_bytes), TEST(atomics), TEST(fence), TEST(bad_local_key), TEST(out_of_region),
	TEST(key_of_another_pd), TEST(bad_remote_key), TEST(bad_remote_range),
	TEST(no_right_to_write), TEST(no_right_to_read), TEST(too_long), TEST(bad_receive_key),
	TEST(not_ready), TEST(flush), TEST(reset), TEST(bad_posts), TEST(query),
	TEST(established), TEST(shared_receives), TEST(drained), TEST(solicited),
	TEST(destroyed), TEST(datagrams), TEST(datagram_error),
	TEST(each_right_is_for_its_operations), TEST(sends_are_not_solicited),
	TEST(datagrams_of_a_shared_queue), TEST(an_srq_has_keys_of_its_own_pd),
};

int main(int argc, char **argv)
{
	return run_test(argc, argv, tests, sizeof(tests) / sizeof(tests[0]));
}
