// SPDX-License-Identifier: GPL-2.0
/*
 * verbs-states: what the pages of libibverbs require of the states of a QP: ibv_modify_qp(3), what
 * a query returns afterwards, what a post does. A test names its page or
 * section, if it has one.
 */

#include "verbs-ends.h"

static int init_errno(struct ibv_qp_attr attr, int mask)
{
	attr.qp_state = IBV_QPS_INIT;
	return ibv_modify_qp(a.qp, &attr, IBV_QP_STATE | mask);
}

/* ibv_modify_qp(3): attributes that are missing, that are too many, bad values. */
static void bad_modify(void)
{
	const int mask = IBV_QP_PKEY_INDEX | IBV_QP_PORT | IBV_QP_ACCESS_FLAGS;
	struct ibv_qp_attr good = { .port_num = 1 }, bad = good, attr;
	struct ibv_qp_init_attr init;
	struct ibv_device_attr dev;
	int bit;

	expect(!ibv_query_device(device, &dev), "query_device");
	make_end(&a, IBV_QPT_RC, 0);
	make_end(&b, IBV_QPT_RC, 0);
	expect(modify(&a, IBV_QPS_RTR) == EINVAL && modify(&a, IBV_QPS_RTS) == EINVAL,
	       "from RESET");
	for (bit = 1; bit < 1 << 8; bit <<= 1)
		if (mask & bit)
			expect(init_errno(good, mask & ~bit) == EINVAL, "INIT without %x", bit);
	expect(init_errno(good, mask | IBV_QP_QKEY) == EINVAL, "INIT with a Q key");
	expect(init_errno(good, mask | IBV_QP_TIMEOUT) == EINVAL, "INIT with a timeout");
	bad.port_num = 2;
	expect(init_errno(bad, mask) == EINVAL, "port 2");
	bad.port_num = 0;
	expect(init_errno(bad, mask) == EINVAL, "port 0");
	bad = good;
	bad.pkey_index = 1;
	expect(init_errno(bad, mask) == EINVAL, "partition 1");
	bad = good;
	bad.qp_access_flags = IBV_ACCESS_REMOTE_READ | 1 << 18;
	expect(init_errno(bad, mask) == EINVAL, "an unknown right");
	bad.qp_access_flags = ~0u;
	expect(init_errno(bad, mask) == EINVAL, "all bits");
	is_in(&a, IBV_QPS_RESET);
	/* rdma-core's own tests give a QP these rights. A query returns them. */
	bad.qp_access_flags = ACCESS | IBV_ACCESS_MW_BIND | IBV_ACCESS_FLUSH_GLOBAL |
		IBV_ACCESS_FLUSH_PERSISTENT | IBV_ACCESS_RELAXED_ORDERING;
	expect(!init_errno(bad, mask), "rights without an effect are refused");
	expect(!ibv_query_qp(a.qp, &attr, IBV_QP_ACCESS_FLAGS, &init) &&
	       attr.qp_access_flags == bad.qp_access_flags, "the rights that were set");
	expect(!modify(&a, IBV_QPS_RESET), "RESET");
	to_init(&a);

	attr = (struct ibv_qp_attr) {
		.qp_state = IBV_QPS_RTR,
		.path_mtu = IBV_MTU_1024,
		.dest_qp_num = b.qp->qp_num,
		.max_dest_rd_atomic = 4,
		.ah_attr = {
			.is_global = 1,
			.port_num = 1,
			.grh = { .dgid = own_gid, .sgid_index = gid_index, .hop_limit = 64 },
		},
	};
	for (bit = 2; bit < 1 << 21; bit <<= 1)
		if (RTR_MASK & bit)
			expect(ibv_modify_qp(a.qp, &attr, RTR_MASK & ~bit) == EINVAL,
			       "RTR without %x", bit);
	expect(ibv_modify_qp(a.qp, &attr, RTR_MASK | IBV_QP_SQ_PSN) == EINVAL,
	       "RTR with a send PSN");
	bad = attr;
	bad.ah_attr.is_global = 0;
	expect(ibv_modify_qp(a.qp, &bad, RTR_MASK), "no GRH");
	bad = attr;
	bad.ah_attr.grh.sgid_index = 255;
	expect(ibv_modify_qp(a.qp, &bad, RTR_MASK), "a GID that there is not");
	bad = attr;
	bad.ah_attr.port_num = 2;
	expect(ibv_modify_qp(a.qp, &bad, RTR_MASK) == EINVAL, "an address of port 2");
	bad = attr;
	bad.path_mtu = 0;
	expect(ibv_modify_qp(a.qp, &bad, RTR_MASK) == EINVAL, "MTU 0");
	bad.path_mtu = 6;
	expect(ibv_modify_qp(a.qp, &bad, RTR_MASK) == EINVAL, "MTU 6");
	bad = attr;
	bad.min_rnr_timer = 32;
	expect(ibv_modify_qp(a.qp, &bad, RTR_MASK) == EINVAL, "RNR timer 32");
	bad = attr;
	bad.max_dest_rd_atomic = dev.max_qp_rd_atom + 1;
	expect(ibv_modify_qp(a.qp, &bad, RTR_MASK) == EINVAL,
	       "READs of the peer above the maximum");
	is_in(&a, IBV_QPS_INIT);
	to_rtr(&a, b.qp->qp_num);

	attr = (struct ibv_qp_attr) {
		.qp_state = IBV_QPS_RTS,
		.timeout = 14,
		.retry_cnt = 7,
		.rnr_retry = 7,
		.max_rd_atomic = 4,
	};
	for (bit = 2; bit < 1 << 21; bit <<= 1)
		if (RTS_MASK & bit)
			expect(ibv_modify_qp(a.qp, &attr, RTS_MASK & ~bit) == EINVAL,
			       "RTS without %x", bit);
	expect(ibv_modify_qp(a.qp, &attr, RTS_MASK | IBV_QP_PORT) == EINVAL, "RTS with a port");
	bad = attr;
	bad.timeout = 32;
	expect(ibv_modify_qp(a.qp, &bad, RTS_MASK) == EINVAL, "timeout 32");
	bad = attr;
	bad.retry_cnt = 8;
	expect(ibv_modify_qp(a.qp, &bad, RTS_MASK) == EINVAL, "8 retries");
	bad = attr;
	bad.rnr_retry = 8;
	expect(ibv_modify_qp(a.qp, &bad, RTS_MASK) == EINVAL, "8 RNR retries");
	bad = attr;
	bad.cur_qp_state = IBV_QPS_RTS;
	expect(ibv_modify_qp(a.qp, &bad, RTS_MASK | IBV_QP_CUR_STATE) == EINVAL,
	       "another current state");
	is_in(&a, IBV_QPS_RTR);
	to_rts(&a, 7);
	expect(modify(&a, IBV_QPS_RTR) == EINVAL && modify(&a, IBV_QPS_INIT) == EINVAL, "back");
	attr = (struct ibv_qp_attr) { .qp_access_flags = IBV_ACCESS_REMOTE_READ };
	expect(!ibv_modify_qp(a.qp, &attr, IBV_QP_ACCESS_FLAGS), "rights, without a state");
	attr.qp_access_flags = ~0u;
	expect(ibv_modify_qp(a.qp, &attr, IBV_QP_ACCESS_FLAGS) == EINVAL, "every right");
	expect(!ibv_query_qp(a.qp, &attr, IBV_QP_ACCESS_FLAGS, &init) &&
	       attr.qp_access_flags == IBV_ACCESS_REMOTE_READ, "rights that were refused");
	is_in(&a, IBV_QPS_RTS);
}

/* max_rd_atomic above the limit of the device is reduced to it, and a query returns the limit. */
static void most_reads(void)
{
	struct ibv_qp_attr attr = {
		.qp_state = IBV_QPS_RTS,
		.timeout = 14,
		.retry_cnt = 7,
		.rnr_retry = 7,
		.max_rd_atomic = 200,
	};
	struct ibv_qp_init_attr init;
	struct ibv_device_attr dev;

	expect(!ibv_query_device(device, &dev), "query_device");
	make_end(&a, IBV_QPT_RC, 0);
	to_init(&a);
	to_rtr(&a, a.qp->qp_num);
	expect(!ibv_modify_qp(a.qp, &attr, RTS_MASK), "RTS");
	expect(!ibv_query_qp(a.qp, &attr, IBV_QP_MAX_QP_RD_ATOMIC, &init), "query_qp");
	expect(attr.max_rd_atomic == dev.max_qp_init_rd_atom,
	       "max_rd_atomic is %u of %d", attr.max_rd_atomic, dev.max_qp_init_rd_atom);
}

/* What a query tells of a; the rights of the QP are those of the ends. */
static void has_kept(enum ibv_qp_state state, __u8 timeout, __u8 retry_cnt)
{
	struct ibv_qp_init_attr init;
	struct ibv_qp_attr attr;

	expect(!ibv_query_qp(a.qp, &attr, IBV_QP_STATE, &init), "query_qp");
	expect(attr.qp_state == state, "state %d, not %d", attr.qp_state, state);
	expect(attr.qp_access_flags == ACCESS && attr.min_rnr_timer == 12, "rights, RNR timer");
	expect(attr.timeout == timeout && attr.retry_cnt == retry_cnt, "timeout %u, %u retries",
	       attr.timeout, attr.retry_cnt);
}

/* ibv_modify_qp(3): if an attribute or the mask is invalid, none of the others is modified. */
static void nothing_of_a_bad_modify(void)
{
	struct pollfd fd = { .fd = device->async_fd, .events = POLLIN };
	struct ibv_qp_attr attr = {
		.qp_access_flags = IBV_ACCESS_REMOTE_READ,
		.min_rnr_timer = 32,
		.timeout = 12,
		.cap = { .max_send_wr = 2 * WRS, .max_send_sge = 1 },
		.rate_limit = 1000,
	};
	struct ibv_device_attr dev;
	struct ibv_send_wr send;
	struct ibv_sge one;

	pair(IBV_QPT_RC);
	expect(ibv_modify_qp(a.qp, &attr, IBV_QP_ACCESS_FLAGS | IBV_QP_MIN_RNR_TIMER) == EINVAL,
	       "RNR timer 32");
	has_kept(IBV_QPS_RTS, 14, 7);
	attr.min_rnr_timer = 5;
	expect(ibv_modify_qp(a.qp, &attr, IBV_QP_ACCESS_FLAGS | IBV_QP_MIN_RNR_TIMER |
			     IBV_QP_TIMEOUT) == EINVAL, "a timeout in RTS");
	has_kept(IBV_QPS_RTS, 14, 7);
	/* The device does not have these. */
	expect(!ibv_query_device(device, &dev) &&
	       !(dev.device_cap_flags & IBV_DEVICE_RESIZE_MAX_WR), "QPs that are resized");
	expect(ibv_modify_qp(a.qp, &attr, IBV_QP_ACCESS_FLAGS | IBV_QP_CAP), "capacities");
	expect(ibv_modify_qp(a.qp, &attr, IBV_QP_ACCESS_FLAGS | IBV_QP_RATE_LIMIT) == EOPNOTSUPP,
	       "a rate");
	has_kept(IBV_QPS_RTS, 14, 7);

	/* An empty mask names no attribute, so there is no invalid one. */
	expect(!ibv_modify_qp(a.qp, &attr, 0), "an empty mask");
	has_kept(IBV_QPS_RTS, 14, 7);

	/* In SQD, without IBV_QP_EN_SQD_ASYNC_NOTIFY. */
	expect(!modify(&a, IBV_QPS_SQD), "SQD");
	expect(!poll(&fd, 1, 200), "an event that nobody asked for");
	attr = (struct ibv_qp_attr) { .timeout = 12, .retry_cnt = 8 };
	expect(ibv_modify_qp(a.qp, &attr, IBV_QP_TIMEOUT | IBV_QP_RETRY_CNT) == EINVAL,
	       "8 retries");
	has_kept(IBV_QPS_SQD, 14, 7);
	attr.qp_state = IBV_QPS_RTS;
	attr.min_rnr_timer = 32;
	expect(ibv_modify_qp(a.qp, &attr, IBV_QP_STATE | IBV_QP_ACCESS_FLAGS |
			     IBV_QP_MIN_RNR_TIMER) == EINVAL, "RTS with RNR timer 32");
	has_kept(IBV_QPS_SQD, 14, 7);
	attr.retry_cnt = 3;
	expect(!ibv_modify_qp(a.qp, &attr, IBV_QP_TIMEOUT | IBV_QP_RETRY_CNT), "both are valid");
	has_kept(IBV_QPS_SQD, 12, 3);
	expect(!modify(&a, IBV_QPS_RTS), "RTS");
	/* The earlier rights still hold for requests of the peer, too. */
	one = sge(&b, 0, 64);
	send = wr(1, IBV_WR_RDMA_WRITE, &one, 1);
	remote(&send, &a, 0);
	must_post(&b, &send);
	entry(b.sends, 1, IBV_WC_SUCCESS);
}

/* What a post does in each state. */
static void states(void)
{
	struct ibv_sge one;
	struct ibv_send_wr send;

	make_end(&a, IBV_QPT_RC, 0);
	make_end(&b, IBV_QPT_RC, 0);
	one = sge(&a, 0, 8);
	send = wr(1, IBV_WR_SEND, &one, 1);
	expect(post(&a, &send) == EINVAL && try_receive(&a, 1, &one, 1) == EINVAL, "RESET");
	to_init(&a);
	to_init(&b);
	expect(post(&a, &send) == EINVAL, "a send in INIT");
	receive(&a, 1, 0, 8);
	to_rtr(&a, b.qp->qp_num);
	to_rtr(&b, a.qp->qp_num);
	expect(post(&a, &send) == EINVAL, "a send in RTR");
	receive(&a, 2, 0, 8);
	to_rts(&b, 7);
	one = sge(&b, 0, 8);
	must_post(&b, &send);
	entry(b.sends, 1, IBV_WC_SUCCESS);
	entry(a.receives, 1, IBV_WC_SUCCESS);
	to_rts(&a, 7);
	/* In SQD requests of the peer are executed. */
	expect(!modify(&a, IBV_QPS_SQD), "SQD");
	must_post(&b, &send);
	entry(b.sends, 1, IBV_WC_SUCCESS);
	entry(a.receives, 2, IBV_WC_SUCCESS);
	receive(&a, 3, 0, 8);
	one = sge(&a, 0, 8);
	must_post(&a, &send);
	no_entry(a.sends);
	/* From there to ERR: work requests that waited are flushed, too. */
	expect(!modify(&a, IBV_QPS_ERR), "ERR");
	entry(a.sends, 1, IBV_WC_WR_FLUSH_ERR);
	entry(a.receives, 3, IBV_WC_WR_FLUSH_ERR);
	expect(modify(&a, IBV_QPS_RTS) == EINVAL && !modify(&a, IBV_QPS_ERR), "from ERR");
	expect(!modify(&a, IBV_QPS_RESET), "RESET");
}

/* ibv_query_qp(3): sq_draining, and attributes that SQD lets change. */
static void change_in_sqd(void)
{
	struct ibv_qp_init_attr init;
	struct ibv_qp_attr attr;
	struct ibv_sge one;
	struct ibv_send_wr send;

	pair(IBV_QPT_RC);
	/* No receive is there, so the send has not ended. */
	one = sge(&a, 0, 64);
	send = wr(1, IBV_WR_SEND, &one, 1);
	must_post(&a, &send);
	pause_ms(100);
	to_sqd(&a);
	expect(!ibv_query_qp(a.qp, &attr, IBV_QP_STATE, &init) && attr.qp_state == IBV_QPS_SQD,
	       "SQD");
	expect(attr.sq_draining, "the send queue is draining");
	expect(modify(&a, IBV_QPS_RTS) == EINVAL, "RTS while it is draining");
	receive(&b, 1, 0, 64);
	event(IBV_EVENT_SQ_DRAINED);
	entry(a.sends, 1, IBV_WC_SUCCESS);
	expect(!ibv_query_qp(a.qp, &attr, IBV_QP_STATE, &init) && !attr.sq_draining, "drained");
	attr = (struct ibv_qp_attr) { .qp_state = IBV_QPS_SQD, .timeout = 12, .retry_cnt = 3 };
	expect(!ibv_modify_qp(a.qp, &attr, IBV_QP_STATE | IBV_QP_TIMEOUT | IBV_QP_RETRY_CNT),
	       "change");
	expect(!ibv_query_qp(a.qp, &attr, IBV_QP_STATE, &init) && attr.timeout == 12 &&
	       attr.retry_cnt == 3, "what was changed");
	expect(!modify(&a, IBV_QPS_RTS), "RTS");
	receive(&b, 2, 0, 64);
	must_post(&a, &send);
	entry(a.sends, 1, IBV_WC_SUCCESS);
}

/* A path MTU above that of the port works: both ends are on one host. */
static void mtu_above_port(void)
{
	struct ibv_port_attr port;
	struct ibv_send_wr send;
	struct ibv_sge one;

	path_mtu = IBV_MTU_4096;
	expect(!ibv_query_port(device, 1, &port) && port.active_mtu < path_mtu, "the port's MTU");
	pair(IBV_QPT_RC);
	one = sge(&a, 0, 10000);
	send = wr(1, IBV_WR_RDMA_WRITE, &one, 1);
	remote(&send, &b, 0);
	must_post(&a, &send);
	entry(a.sends, 1, IBV_WC_SUCCESS);
}

/* A query returns nothing that was set before RESET. */
static void is_forgotten(void)
{
	struct ibv_qp_init_attr init;
	struct ibv_qp_attr attr;

	expect(!modify(&a, IBV_QPS_RESET) && !ibv_query_qp(a.qp, &attr, IBV_QP_STATE, &init),
	       "RESET, query_qp");
	expect(attr.qp_state == IBV_QPS_RESET && !attr.sq_draining, "state");
	expect(!attr.qkey && !attr.pkey_index && !attr.port_num && !attr.sq_psn &&
	       !attr.rq_psn && !attr.qp_access_flags && !attr.path_mtu && !attr.dest_qp_num &&
	       !attr.timeout && !attr.retry_cnt && !attr.rnr_retry && !attr.min_rnr_timer &&
	       !attr.max_rd_atomic && !attr.max_dest_rd_atomic, "an attribute");
	expect(!attr.ah_attr.is_global && !attr.ah_attr.grh.sgid_index, "the address");
	expect(init.cap.max_send_wr >= WRS && init.cap.max_recv_wr >= WRS, "capacities stay");
}

/* A datagram of 64 bytes from a to b with this Q key: whether b gets it. */
static int arrives(struct ibv_ah *ah, __u32 qkey)
{
	struct ibv_sge one = sge(&a, 0, 64);
	struct ibv_send_wr send = datagram(&one, ah);
	struct ibv_wc wc;

	send.wr.ud.remote_qkey = qkey;
	must_post(&a, &send);
	entry(a.sends, 1, IBV_WC_SUCCESS);
	return poll_for(b.receives, &wc, 200);
}

/* ibv_modify_qp(3), ibv_query_qp(3): the attributes of a QP for datagrams, from state to state. */
static void datagram_states(void)
{
	static const int of_connections[] = {
		IBV_QP_ACCESS_FLAGS, IBV_QP_AV, IBV_QP_PATH_MTU, IBV_QP_TIMEOUT,
		IBV_QP_RETRY_CNT, IBV_QP_RNR_RETRY, IBV_QP_RQ_PSN, IBV_QP_MAX_QP_RD_ATOMIC,
		IBV_QP_MIN_RNR_TIMER, IBV_QP_MAX_DEST_RD_ATOMIC, IBV_QP_DEST_QPN,
	};
	const int mask = IBV_QP_PKEY_INDEX | IBV_QP_PORT | IBV_QP_QKEY;
	struct ibv_qp_attr attr = {
		.port_num = 1, .qkey = 0x1234, .path_mtu = IBV_MTU_1024,
		.ah_attr = {
			.is_global = 1, .port_num = 1,
			.grh = { .dgid = own_gid, .sgid_index = gid_index, .hop_limit = 64 },
		},
	};
	struct ibv_qp_init_attr init;
	struct ibv_port_attr port;
	struct ibv_send_wr send;
	struct ibv_sge one;
	struct ibv_ah *ah;
	unsigned int i;
	int bit;

	make_end(&a, IBV_QPT_UD, 0);
	make_end(&b, IBV_QPT_UD, 0);
	for (bit = 1; bit < 1 << 8; bit <<= 1)
		if (mask & bit)
			expect(init_errno(attr, mask & ~bit) == EINVAL, "INIT without %x", bit);
	for (i = 0; i < sizeof(of_connections) / sizeof(of_connections[0]); i++)
		expect(init_errno(attr, mask | of_connections[i]) == EINVAL, "INIT with %x",
		       of_connections[i]);
	is_in(&a, IBV_QPS_RESET);
	expect(!init_errno(attr, mask), "INIT");
	attr.qkey = 0x4321;
	expect(!ibv_modify_qp(a.qp, &attr, IBV_QP_QKEY), "a Q key in INIT");
	expect(!ibv_query_qp(a.qp, &attr, IBV_QP_QKEY, &init) && attr.qp_state == IBV_QPS_INIT &&
	       attr.qkey == 0x4321 && attr.port_num == 1 && !attr.pkey_index, "query in INIT");
	to_rtr(&a, 0);
	attr = (struct ibv_qp_attr) { .qp_state = IBV_QPS_RTS };
	expect(ibv_modify_qp(a.qp, &attr, IBV_QP_STATE) == EINVAL, "RTS without a PSN");
	expect(ibv_modify_qp(a.qp, &attr, IBV_QP_STATE | IBV_QP_SQ_PSN | IBV_QP_TIMEOUT) ==
	       EINVAL, "RTS with a timeout");
	to_rts(&a, 7);
	to_init(&b);
	to_rtr(&b, 0);
	to_rts(&b, 7);

	/* The Q key of the receiver decides, and changes while it runs. */
	ah = make_ah();
	for (i = 0; i < 3; i++)
		receive(&b, i, 256 * i, 200);
	expect(arrives(ah, 0x1234), "a datagram with the Q key");
	attr.qkey = 0x77;
	expect(!ibv_modify_qp(b.qp, &attr, IBV_QP_QKEY), "a Q key in RTS");
	expect(!arrives(ah, 0x1234), "a datagram with the Q key of before");
	/* ibv_query_device(3): without IBV_DEVICE_BAD_QKEY_CNTR the port does not count it. */
	expect(!ibv_query_port(device, 1, &port) && !port.qkey_viol_cntr, "it was counted");
	expect(arrives(ah, 0x77), "a datagram with the new Q key");
	expect(!ibv_query_qp(b.qp, &attr, IBV_QP_QKEY, &init) && attr.qkey == 0x77 &&
	       attr.sq_psn == 0x123456, "query in RTS");
	attr.min_rnr_timer = 5;
	expect(ibv_modify_qp(b.qp, &attr, IBV_QP_MIN_RNR_TIMER) == EINVAL, "a timer in RTS");

	/* A datagram has ended when it was sent, so the queue is drained at once. */
	to_sqd(&a);
	event(IBV_EVENT_SQ_DRAINED);
	attr.qkey = 0x99;
	expect(!ibv_modify_qp(a.qp, &attr, IBV_QP_QKEY), "a Q key in SQD");
	expect(!ibv_query_qp(a.qp, &attr, IBV_QP_QKEY, &init) && attr.qp_state == IBV_QPS_SQD &&
	       attr.qkey == 0x99 && !attr.sq_draining, "query in SQD");
	one = sge(&a, 0, 64);
	send = datagram(&one, ah);
	send.wr.ud.remote_qkey = 0x77;
	must_post(&a, &send);
	no_entry(a.sends);
	expect(!modify(&a, IBV_QPS_RTS), "RTS");
	entry(a.sends, 1, IBV_WC_SUCCESS);
	entry(b.receives, 2, IBV_WC_SUCCESS);
	is_forgotten();

	/* The same of a connection. */
	pair(IBV_QPT_RC);
	is_forgotten();
}

static const struct test tests[] = {
	TEST(bad_modify), TEST(most_reads), TEST(states), TEST(change_in_sqd),
	TEST(mtu_above_port), TEST(datagram_states), TEST(nothing_of_a_bad_modify),
};

int main(int argc, char **argv)
{
	return run_test(argc, argv, tests, sizeof(tests) / sizeof(tests[0]));
}
