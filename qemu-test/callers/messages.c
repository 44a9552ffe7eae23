// SPDX-License-Identifier: GPL-2.0
/*
 * Messages, RDMA operations and datagrams of kernel callers.
 */

#define pr_fmt(fmt) KBUILD_MODNAME ": " fmt

#include <linux/spinlock.h>

#include "callers.h"

#define GRH	40

/* One message of two SGEs, received in one. */
static int message(struct end *from, struct end *to, u8 seed)
{
	struct note *sent = note_of(from), *received = note_of(to);
	struct ib_sge sges[] = {
		part(from, from->memory, 1000),
		part(from, from->memory + 1000, 2000),
	};
	struct ib_send_wr wr = {
		.wr_cqe = &sent->cqe,
		.sg_list = sges,
		.num_sge = 2,
		.opcode = IB_WR_SEND,
		.send_flags = IB_SEND_SIGNALED,
	};

	fill(from->memory, 3000, seed);
	memset(to->memory, 0, MEMORY);
	CHECK_EQ(receive(to, received, to->memory, MEMORY), 0);
	CHECK_EQ(post(from, &wr), 0);
	CHECK(done_with(sent, IB_WC_SUCCESS));
	CHECK_EQ(sent->wc.opcode, IB_WC_SEND);
	CHECK(sent->wc.qp == from->qp);
	CHECK(done_with(received, IB_WC_SUCCESS));
	CHECK_EQ(received->wc.opcode, IB_WC_RECV);
	CHECK_EQ(received->wc.byte_len, 3000);
	CHECK(received->wc.qp == to->qp);
	CHECK(holds(to->memory, 3000, seed));
	return 0;
}

static int messages(struct pair *pair)
{
	int i, ret = 0;

	for (i = 0; i < 20 && !ret; i++)
		ret = i % 2 ? message(&pair->a, &pair->b, i) :
		      message(&pair->b, &pair->a, i);
	return ret;
}

/* An RDMA operation of a with the memory of b. */
static int rdma(struct pair *pair, enum ib_wr_opcode opcode, void *local,
		void *remote, u32 length)
{
	struct note *note = note_of(&pair->a);
	struct ib_sge sge = part(&pair->a, local, length);
	struct ib_rdma_wr wr = {
		.wr = {
			.wr_cqe = &note->cqe,
			.sg_list = &sge,
			.num_sge = 1,
			.opcode = opcode,
			.send_flags = IB_SEND_SIGNALED,
			.ex.imm_data = cpu_to_be32(0x12345678),
		},
		.remote_addr = (uintptr_t)remote,
		.rkey = pair->b.pd->unsafe_global_rkey,
	};

	CHECK_EQ(post(&pair->a, &wr.wr), 0);
	CHECK(done_with(note, IB_WC_SUCCESS));
	CHECK_EQ(note->wc.opcode, opcode == IB_WR_RDMA_READ ?
		 IB_WC_RDMA_READ : IB_WC_RDMA_WRITE);
	return 0;
}

static int all_memory(struct pair *pair)
{
	u8 *a = pair->a.memory, *b = pair->b.memory;
	struct note *note = note_of(&pair->b);

	fill(a, MEMORY, 1);
	CHECK(!rdma(pair, IB_WR_RDMA_WRITE, a, b, MEMORY));
	CHECK(holds(b, MEMORY, 1));
	fill(b, MEMORY, 2);
	CHECK(!rdma(pair, IB_WR_RDMA_READ, a, b, MEMORY));
	CHECK(holds(a, MEMORY, 2));
	fill(a, MEMORY, 3);
	CHECK_EQ(receive(&pair->b, note, b, 1), 0);
	CHECK(!rdma(pair, IB_WR_RDMA_WRITE_WITH_IMM, a, b, 5000));
	CHECK(done_with(note, IB_WC_SUCCESS));
	CHECK_EQ(note->wc.opcode, IB_WC_RECV_RDMA_WITH_IMM);
	CHECK_EQ(note->wc.byte_len, 5000);
	CHECK_EQ(be32_to_cpu(note->wc.ex.imm_data), 0x12345678);
	CHECK(note->wc.wc_flags & IB_WC_WITH_IMM);
	CHECK(holds(b, 5000, 3));
	return 0;
}

static int atomic(struct pair *pair, const struct ib_mr *mr,
		  enum ib_wr_opcode opcode, u64 compare_add, u64 swap)
{
	struct note *note = note_of(&pair->a);
	struct ib_sge sge = part(&pair->a, pair->a.memory, 8);
	struct ib_atomic_wr wr = {
		.wr = {
			.wr_cqe = &note->cqe,
			.sg_list = &sge,
			.num_sge = 1,
			.opcode = opcode,
			.send_flags = IB_SEND_SIGNALED,
		},
		.remote_addr = mr->iova,
		.compare_add = compare_add,
		.swap = swap,
		.rkey = mr->rkey,
	};

	CHECK_EQ(post(&pair->a, &wr.wr), 0);
	CHECK(done_with(note, IB_WC_SUCCESS));
	return 0;
}

/* The core gives no right to atomics on all memory. */
static int atomics_with(struct pair *pair, struct region *region)
{
	u64 *a = (u64 *)pair->a.memory, *b = page_address(region->pages[0]);
	struct note *registered = note_of(&pair->b);

	CHECK_EQ(region_map(&pair->b, region, IB_ACCESS_LOCAL_WRITE |
			    IB_ACCESS_REMOTE_ATOMIC), 0);
	region->reg.wr.wr_cqe = &registered->cqe;
	region->reg.wr.send_flags = IB_SEND_SIGNALED;
	CHECK_EQ(post(&pair->b, &region->reg.wr), 0);
	CHECK(done_with(registered, IB_WC_SUCCESS));
	*b = 40;
	CHECK(!atomic(pair, region->mr, IB_WR_ATOMIC_FETCH_AND_ADD, 2, 0));
	CHECK_EQ(*a, 40);
	CHECK_EQ(*b, 42);
	CHECK(!atomic(pair, region->mr, IB_WR_ATOMIC_CMP_AND_SWP, 41, 7));
	CHECK_EQ(*a, 42);
	CHECK_EQ(*b, 42);
	CHECK(!atomic(pair, region->mr, IB_WR_ATOMIC_CMP_AND_SWP, 42, 7));
	CHECK_EQ(*b, 7);
	return 0;
}

static int atomics(struct pair *pair)
{
	struct region region;
	int ret;

	ret = region_open(&pair->b, &region, 1);
	if (!ret)
		ret = atomics_with(pair, &region);
	region_close(&region);
	return ret;
}

/* Inline data may be on the stack, and change as soon as they are posted. */
static int inline_data(struct pair *pair)
{
	struct note *sent = note_of(&pair->a), *received = note_of(&pair->b);
	u8 data[64];
	struct ib_sge sge = { .addr = (uintptr_t)data, .length = sizeof(data) };
	struct ib_send_wr wr = {
		.wr_cqe = &sent->cqe,
		.sg_list = &sge,
		.num_sge = 1,
		.opcode = IB_WR_SEND_WITH_IMM,
		.send_flags = IB_SEND_SIGNALED | IB_SEND_INLINE,
		.ex.imm_data = cpu_to_be32(77),
	};

	fill(data, sizeof(data), 9);
	CHECK_EQ(receive(&pair->b, received, pair->b.memory, MEMORY), 0);
	CHECK_EQ(post(&pair->a, &wr), 0);
	memset(data, 0, sizeof(data));
	CHECK(done_with(received, IB_WC_SUCCESS));
	CHECK_EQ(received->wc.byte_len, sizeof(data));
	CHECK_EQ(be32_to_cpu(received->wc.ex.imm_data), 77);
	CHECK(holds(pair->b.memory, sizeof(data), 9));
	CHECK(done_with(sent, IB_WC_SUCCESS));
	sge.length++;
	CHECK_EQ(post(&pair->a, &wr), -EINVAL);
	return 0;
}

static int datagrams(struct pair *pair)
{
	struct end *a = &pair->a, *b = &pair->b;
	struct ib_sge sge = part(a, a->memory, 1000);
	struct note *sent, *received;
	struct rdma_ah_attr attr;
	struct ib_ud_wr wr;
	static DEFINE_SPINLOCK(lock);
	struct ib_ah *ah;
	int i;

	way_to(a, b, &attr);
	for (i = 0; i < 5; i++) {
		received = note_of(b);
		sent = note_of(a);
		fill(a->memory, 1000, i);
		CHECK_EQ(receive(b, received, b->memory, MEMORY), 0);
		/* As the connection manager does. */
		spin_lock_irq(&lock);
		ah = rdma_create_ah(a->pd, &attr, 0);
		spin_unlock_irq(&lock);
		CHECK(!IS_ERR(ah));
		wr = (struct ib_ud_wr) {
			.wr = {
				.wr_cqe = &sent->cqe,
				.sg_list = &sge,
				.num_sge = 1,
				.opcode = IB_WR_SEND,
				.send_flags = IB_SEND_SIGNALED,
			},
			.ah = ah,
			.remote_qpn = b->qp->qp_num,
			.remote_qkey = 0x11223344,
		};
		CHECK_EQ(post(a, &wr.wr), 0);
		spin_lock_irq(&lock);
		rdma_destroy_ah(ah, 0);
		spin_unlock_irq(&lock);
		CHECK(done_with(sent, IB_WC_SUCCESS));
		CHECK(done_with(received, IB_WC_SUCCESS));
		CHECK_EQ(received->wc.byte_len, GRH + 1000);
		CHECK_EQ(received->wc.src_qp, a->qp->qp_num);
		CHECK(received->wc.wc_flags & IB_WC_GRH);
		CHECK(received->wc.wc_flags & IB_WC_WITH_NETWORK_HDR_TYPE);
		CHECK_EQ(received->wc.network_hdr_type, RDMA_NETWORK_IPV4);
		CHECK(holds(b->memory + GRH, 1000, i));
	}
	return 0;
}

const struct test message_tests[] = {
	{ "direct", { .poll = IB_POLL_DIRECT }, messages },
	{ "softirq", { .poll = IB_POLL_SOFTIRQ }, messages },
	{ "workqueue", { .poll = IB_POLL_WORKQUEUE }, messages },
	{ "unbound", { .poll = IB_POLL_UNBOUND_WORKQUEUE }, messages },
	{ "srq-messages", { .poll = IB_POLL_SOFTIRQ, .with_srq = true },
	  messages },
	{ "all-memory", { .poll = IB_POLL_WORKQUEUE,
			  .pd_flags = IB_PD_UNSAFE_GLOBAL_RKEY }, all_memory },
	{ "atomics", { .poll = IB_POLL_WORKQUEUE }, atomics },
	{ "inline", { .poll = IB_POLL_SOFTIRQ }, inline_data },
	{ "datagrams", { .type = IB_QPT_UD, .poll = IB_POLL_SOFTIRQ },
	  datagrams },
	{}
};
