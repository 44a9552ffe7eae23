// SPDX-License-Identifier: GPL-2.0
/*
 * verbs-counted: what completion counters of verbs count, as ibv_create_comp_cntr(3)
 * and ibv_qp_attach_comp_cntr(3) have it: one test for each sentence.
 *
 *	verbs-counted DEVICE GID_INDEX TEST
 *	verbs-counted --list
 */

#include "verbs-counting.h"

static const __u32 bytes = KFABRIC_IB_COMP_CNTR_UNIT_BYTES;
static const __u32 wrs = KFABRIC_IB_COMP_CNTR_UNIT_WRS;

static void work_requests_count_without_entries(void)
{
	__u32 sends, receives, i;

	ends(IBV_QPT_RC);
	sends = usual_cntr();
	receives = make((struct wanted) { .unit = &wrs });
	must_attach(&a, sends, OP_SEND);
	must_attach(&b, receives, OP_RECV);
	connect_ends(7);
	for (i = 0; i < 5; i++) {
		receive(&b, i, 0, 64);
		send_one(IBV_WR_SEND, 64, 0);
	}
	counts(sends, 5, 0);
	counts(receives, 5, 0);
	no_entry(a.sends);
}

static void a_counter_extends_a_cq(void)
{
	__u32 cntr = usual_cntr();

	ends(IBV_QPT_RC);
	must_attach(&a, cntr, OP_SEND);
	connect_ends(7);
	receive(&b, 1, 0, 64);
	send_one(IBV_WR_SEND, 64, IBV_SEND_SIGNALED);
	entry(a.sends, 1, IBV_WC_SUCCESS);
	/* A work request that has an entry is counted. */
	expect(value(cntr, ENTRY_COMP) == 1, "not counted yet");
	entry(b.receives, 1, IBV_WC_SUCCESS);
}

static void errors_count_in_the_error_count(void)
{
	__u32 cntr = make((struct wanted) { .unit = &bytes });
	struct ibv_sge one;
	struct ibv_send_wr send;

	ends(IBV_QPT_RC);
	must_attach(&a, cntr, OP_RDMA_WRITE);
	connect_ends(7);
	send_one(IBV_WR_RDMA_WRITE, 64, 0);
	counts(cntr, 64, 0);
	one = sge(&a, 0, 64);
	send = wr(2, IBV_WR_RDMA_WRITE, &one, 1);
	remote(&send, &b, 0);
	send.wr.rdma.rkey ^= 0x5a5a00;
	must_post(&a, &send);
	entry(a.sends, 2, IBV_WC_REM_ACCESS_ERR);
	/* An error counts as one, also for a counter of bytes. */
	counts(cntr, 64, 1);
}

static void flushed_requests_and_receives_count_as_errors(void)
{
	__u32 sends = usual_cntr(), receives = usual_cntr();

	ends(IBV_QPT_RC);
	must_attach(&a, sends, OP_SEND | OP_RDMA_READ);
	must_attach(&a, receives, OP_RECV);
	connect_ends(7);
	receive(&a, 1, 0, 64);
	receive(&a, 2, 0, 64);
	expect(!modify(&a, IBV_QPS_ERR), "ERR");
	send_one(IBV_WR_SEND, 64, 0);
	send_one(IBV_WR_RDMA_READ, 64, 0);
	send_one(IBV_WR_RDMA_WRITE, 64, 0);
	counts(sends, 0, 2);
	counts(receives, 0, 2);
}

static void a_request_that_fails_locally_counts(void)
{
	__u32 cntr = usual_cntr();
	struct ibv_sge bad;

	ends(IBV_QPT_RC);
	must_attach(&a, cntr, OP_RDMA_WRITE);
	connect_ends(7);
	bad = sge(&a, 0, 64);
	bad.lkey ^= 0x5a5a00;
	/* One succeeds, one fails, one is flushed. */
	three(&bad, IBV_WC_LOC_PROT_ERR);
	counts(cntr, 1, 2);
}

static void a_receive_that_fails_counts(void)
{
	__u32 sends = usual_cntr(), receives = usual_cntr();

	ends(IBV_QPT_RC);
	must_attach(&a, sends, OP_SEND);
	must_attach(&b, receives, OP_RECV);
	connect_ends(7);
	receive(&b, 1, 0, 16);
	send_one(IBV_WR_SEND, 64, 0);
	entry(b.receives, 1, IBV_WC_LOC_LEN_ERR);
	counts(receives, 0, 1);
	counts(sends, 0, 1);
}

/* What a has is counted in the unit @of_a, what b has in @of_b; NULL: the usual one. */
static void each_operation_counts(const __u32 *of_a, const __u32 *of_b)
{
	static const struct {
		enum ibv_wr_opcode opcode;
		__u64 initiator, target;
		int receives;
	} rows[] = {
		{ IBV_WR_SEND, OP_SEND, OP_RECV, 1 },
		{ IBV_WR_SEND_WITH_IMM, OP_SEND, OP_RECV, 1 },
		{ IBV_WR_RDMA_READ, OP_RDMA_READ, OP_REMOTE_RDMA_READ, 0 },
		{ IBV_WR_RDMA_WRITE, OP_RDMA_WRITE, OP_REMOTE_RDMA_WRITE, 0 },
	};
	const __u64 more_a = of_a == &bytes ? 100 : 1, more_b = of_b == &bytes ? 100 : 1;
	__u32 at_a[6], at_b[6], i, bit;

	ends(IBV_QPT_RC);
	for (bit = 0; bit < 6; bit++) {
		at_a[bit] = make((struct wanted) { .unit = of_a });
		at_b[bit] = make((struct wanted) { .unit = of_b });
		must_attach(&a, at_a[bit], 1 << bit);
		must_attach(&b, at_b[bit], 1 << bit);
	}
	connect_ends(7);
	for (i = 0; i < sizeof(rows) / sizeof(rows[0]); i++) {
		__u64 before[2][6];

		for (bit = 0; bit < 6; bit++) {
			before[0][bit] = value(at_a[bit], ENTRY_COMP);
			before[1][bit] = value(at_b[bit], ENTRY_COMP);
		}
		if (rows[i].receives)
			receive(&b, 1, 0, 256);
		send_one(rows[i].opcode, 100, IBV_SEND_SIGNALED);
		entry(a.sends, 1, IBV_WC_SUCCESS);
		if (rows[i].receives)
			entry(b.receives, 1, IBV_WC_SUCCESS);
		for (bit = 0; bit < 6; bit++) {
			counts(at_a[bit], before[0][bit] +
			       (rows[i].initiator == 1u << bit ? more_a : 0), 0);
			counts(at_b[bit], before[1][bit] +
			       (rows[i].target == 1u << bit ? more_b : 0), 0);
		}
	}
}

static void each_operation_counts_at_its_initiator_and_its_target(void)
{
	each_operation_counts(NULL, &bytes);
}

static void each_operation_counts_in_the_other_unit_too(void)
{
	each_operation_counts(&bytes, &wrs);
}

/* A completion that would exceed the largest value, in each unit, and an error. */
static void completions_wrap_at_the_largest_value(void)
{
	__u32 requests = usual_cntr(), sent = make((struct wanted) { .unit = &bytes });

	ends(IBV_QPT_RC);
	must_attach(&a, requests, OP_SEND);
	must_attach(&a, sent, OP_RDMA_WRITE);
	connect_ends(7);
	must(change(requests, ENTRY_COMP, OP_SET, ~0ull), 0, "set");
	must(change(requests, ENTRY_ERR, OP_SET, ~0ull), 0, "set_err");
	must(change(sent, ENTRY_COMP, OP_SET, -10ull), 0, "set");
	receive(&b, 1, 0, 64);
	send_one(IBV_WR_SEND, 64, 0);
	send_one(IBV_WR_RDMA_WRITE, 64, 0);
	counts(requests, 0, ~0ull);
	counts(sent, 54, 0);
	expect(!modify(&a, IBV_QPS_ERR), "ERR");
	send_one(IBV_WR_SEND, 64, 0);
	counts(requests, 0, 0);
}

static void immediate_data_count_as_a_write_and_a_receive(void)
{
	__u32 receives = usual_cntr(), writes = usual_cntr();
	__u32 other = make((struct wanted) { .unit = &bytes });

	ends(IBV_QPT_RC);
	must_attach(&a, other, OP_RDMA_WRITE);
	must_attach(&b, receives, OP_RECV);
	must_attach(&b, writes, OP_REMOTE_RDMA_WRITE);
	connect_ends(7);
	receive(&b, 1, 0, 0);
	send_one(IBV_WR_RDMA_WRITE_WITH_IMM, 3000, IBV_SEND_SIGNALED);
	entry(a.sends, 1, IBV_WC_SUCCESS);
	counts(receives, 1, 0);
	counts(writes, 1, 0);
	counts(other, 3000, 0);
}

static void a_receive_of_immediate_data_has_no_bytes(void)
{
	__u32 receives = make((struct wanted) { .unit = &bytes });

	ends(IBV_QPT_RC);
	must_attach(&b, receives, OP_RECV);
	connect_ends(7);
	receive(&b, 1, 0, 0);
	send_one(IBV_WR_RDMA_WRITE_WITH_IMM, 3000, IBV_SEND_SIGNALED);
	entry(a.sends, 1, IBV_WC_SUCCESS);
	entry(b.receives, 1, IBV_WC_SUCCESS);
	counts(receives, 0, 0);
	receive(&b, 2, 0, 64);
	send_one(IBV_WR_SEND, 50, IBV_SEND_SIGNALED);
	entry(b.receives, 2, IBV_WC_SUCCESS);
	counts(receives, 50, 0);
}

static void what_the_target_refuses_counts_nothing_there(void)
{
	__u32 cntr = usual_cntr();
	struct ibv_sge one;
	struct ibv_send_wr send;

	ends(IBV_QPT_RC);
	must_attach(&b, cntr, OP_ALL);
	connect_ends(7);
	one = sge(&a, 0, 64);
	send = wr(1, IBV_WR_RDMA_READ, &one, 1);
	remote(&send, &b, 0);
	send.wr.rdma.rkey ^= 0x5a5a00;
	must_post(&a, &send);
	entry(a.sends, 1, IBV_WC_REM_ACCESS_ERR);
	counts(cntr, 0, 0);
}

static void atomics_count_nowhere_by_verbs(void)
{
	__u32 at_a = usual_cntr(), at_b = usual_cntr();
	struct ibv_sge one;
	struct ibv_send_wr send;

	ends(IBV_QPT_RC);
	must_attach(&a, at_a, OP_ALL);
	must_attach(&b, at_b, OP_ALL);
	connect_ends(7);
	one = sge(&a, 0, 8);
	send = atomic(IBV_WR_ATOMIC_FETCH_AND_ADD, &one, 8, 1, 0);
	must_post(&a, &send);
	entry(a.sends, 8, IBV_WC_SUCCESS);
	counts(at_a, 0, 0);
	counts(at_b, 0, 0);
}

static void datagrams_count(void)
{
	__u32 sends = make((struct wanted) { .unit = &bytes });
	__u32 receives = make((struct wanted) { .unit = &bytes });
	struct ibv_sge one;
	struct ibv_send_wr send;

	ends(IBV_QPT_UD);
	must_attach(&a, sends, OP_SEND);
	must_attach(&b, receives, OP_RECV);
	connect_ends(7);
	receive(&b, 1, 0, 512);
	one = sge(&a, 0, 100);
	send = datagram(&one, make_ah());
	must_post(&a, &send);
	entry(a.sends, 1, IBV_WC_SUCCESS);
	expect(entry(b.receives, 1, IBV_WC_SUCCESS).byte_len == 140, "byte_len");
	counts(sends, 100, 0);
	/* The bytes of the GRH count, too, as in the entry. */
	counts(receives, 140, 0);
}

static void attaching_is_checked_by_verbs(void)
{
	__u32 cntr = usual_cntr();

	ends(IBV_QPT_RC);
	must(attach(a.qp, cntr, 0), EINVAL, "no operation");
	must(attach(a.qp, cntr, 64), EINVAL, "an unknown operation");
	must(attach(a.qp, cntr + 1000, OP_SEND), ENOENT, "no counter");
	must_attach(&a, cntr, OP_SEND);
	must(attach(a.qp, cntr, OP_SEND | OP_RECV), EBUSY, "an operation that has a counter");
	must_attach(&a, cntr, OP_RECV);
}

static void a_qp_attaches_in_reset_and_init_only(void)
{
	__u32 cntr = usual_cntr();

	ends(IBV_QPT_RC);
	must_attach(&a, cntr, OP_SEND);
	to_init(&a);
	must_attach(&a, cntr, OP_RECV);
	to_init(&b);
	to_rtr(&a, b.qp->qp_num);
	must(attach(a.qp, cntr, OP_RDMA_READ), EINVAL, "RTR");
	to_rts(&a, 7);
	must(attach(a.qp, cntr, OP_RDMA_READ), EINVAL, "RTS");
	expect(!modify(&a, IBV_QPS_ERR), "ERR");
	must(attach(a.qp, cntr, OP_RDMA_READ), EINVAL, "ERR");
}

static void a_qp_that_is_reset_keeps_its_counters(void)
{
	__u32 cntr = usual_cntr();

	ends(IBV_QPT_RC);
	must_attach(&a, cntr, OP_SEND);
	connect_ends(7);
	receive(&b, 1, 0, 64);
	send_one(IBV_WR_SEND, 64, 0);
	counts(cntr, 1, 0);
	expect(!modify(&a, IBV_QPS_RESET) && !modify(&b, IBV_QPS_RESET), "RESET");
	must(attach(a.qp, cntr, OP_SEND), EBUSY, "attach again");
	must_attach(&a, cntr, OP_RDMA_WRITE);
	connect_ends(7);
	receive(&b, 2, 0, 64);
	send_one(IBV_WR_SEND, 64, 0);
	send_one(IBV_WR_RDMA_WRITE, 64, 0);
	counts(cntr, 3, 0);
}

static void datagrams_have_no_rdma_to_count(void)
{
	__u32 cntr = usual_cntr();

	ends(IBV_QPT_UD);
	must(attach(a.qp, cntr, OP_RDMA_WRITE), EOPNOTSUPP, "RDMA_WRITE");
	must(attach(a.qp, cntr, OP_SEND | OP_REMOTE_RDMA_READ), EOPNOTSUPP, "among others");
	must_attach(&a, cntr, OP_SEND | OP_RECV);
}

static void one_counter_counts_for_several_qps(void)
{
	__u32 cntr = usual_cntr();

	ends(IBV_QPT_RC);
	must_attach(&a, cntr, OP_ALL);
	must_attach(&b, cntr, OP_ALL);
	connect_ends(7);
	receive(&b, 1, 0, 64);
	send_one(IBV_WR_SEND, 64, 0);
	send_one(IBV_WR_RDMA_WRITE, 64, 0);
	counts(cntr, 4, 0);
}

/* A READ is one request, although its target answers it in several pieces. */
static void a_long_read_counts_once_at_its_target(void)
{
	const __u32 len = 500000;
	__u32 reads = usual_cntr(), read_bytes = make((struct wanted) { .unit = &bytes });
	__u32 served = usual_cntr(), served_bytes = make((struct wanted) { .unit = &bytes });
	struct end c = { 0 }, d = { 0 };

	ends(IBV_QPT_RC);
	must_attach(&a, reads, OP_RDMA_READ);
	must_attach(&b, served, OP_REMOTE_RDMA_READ);
	connect_ends(7);
	fill(&b, 0, len, 3);
	send_one(IBV_WR_RDMA_READ, len, IBV_SEND_SIGNALED);
	entry(a.sends, 1, IBV_WC_SUCCESS);
	check(&a, 0, len, 3);
	counts(reads, 1, 0);
	counts(served, 1, 0);
	send_one(IBV_WR_RDMA_READ, 64, IBV_SEND_SIGNALED | IBV_SEND_SOLICITED);
	entry(a.sends, 1, IBV_WC_SUCCESS);
	counts(reads, 2, 0);
	counts(served, 2, 0);

	/* The same in bytes, with other QPs: an operation of a QP has one counter. */
	c = a;
	d = b;
	ends(IBV_QPT_RC);
	must_attach(&a, read_bytes, OP_RDMA_READ);
	must_attach(&b, served_bytes, OP_REMOTE_RDMA_READ);
	connect_ends(7);
	send_one(IBV_WR_RDMA_READ, len, IBV_SEND_SIGNALED);
	entry(a.sends, 1, IBV_WC_SUCCESS);
	counts(read_bytes, len, 0);
	counts(served_bytes, len, 0);
	expect(!ibv_destroy_qp(c.qp) && !ibv_destroy_qp(d.qp), "destroy_qp");
	counts(reads, 2, 0);
}

static const struct test tests[] = {
	TEST(work_requests_count_without_entries),
	TEST(a_counter_extends_a_cq),
	TEST(errors_count_in_the_error_count),
	TEST(flushed_requests_and_receives_count_as_errors),
	TEST(a_request_that_fails_locally_counts),
	TEST(a_receive_that_fails_counts),
	TEST(each_operation_counts_at_its_initiator_and_its_target),
	TEST(immediate_data_count_as_a_write_and_a_receive),
	TEST(a_receive_of_immediate_data_has_no_bytes),
	TEST(what_the_target_refuses_counts_nothing_there),
	TEST(atomics_count_nowhere_by_verbs),
	TEST(datagrams_count),
	TEST(attaching_is_checked_by_verbs),
	TEST(a_qp_attaches_in_reset_and_init_only),
	TEST(a_qp_that_is_reset_keeps_its_counters),
	TEST(datagrams_have_no_rdma_to_count),
	TEST(one_counter_counts_for_several_qps),
	TEST(each_operation_counts_in_the_other_unit_too),
	TEST(completions_wrap_at_the_largest_value),
	TEST(a_long_read_counts_once_at_its_target),
};

int main(int argc, char **argv)
{
	return run_test(argc, argv, tests, sizeof(tests) / sizeof(tests[0]));
}
