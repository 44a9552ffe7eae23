// SPDX-License-Identifier: GPL-2.0
/*
 * Errors of fast registration.
 */

#define pr_fmt(fmt) KBUILD_MODNAME ": " fmt

#include <linux/sched.h>

#include "callers.h"

#define PAGES	4
#define RIGHTS	(IB_ACCESS_LOCAL_WRITE | IB_ACCESS_REMOTE_READ | \
		 IB_ACCESS_REMOTE_WRITE)

/* Runs a test with a region of a. */
static int with_region(struct pair *pair,
		       int (*run)(struct pair *pair, struct region *region))
{
	struct region region;
	int ret;

	ret = region_open(&pair->a, &region, PAGES);
	if (!ret)
		ret = run(pair, &region);
	region_close(&region);
	return ret;
}

/* Registers the region's memory. */
static int registered(struct pair *pair, struct region *region, int access)
{
	struct note *note = note_of(&pair->a);

	CHECK_EQ(region_map(&pair->a, region, access), 0);
	region->reg.wr.wr_cqe = &note->cqe;
	region->reg.wr.send_flags = IB_SEND_SIGNALED;
	CHECK_EQ(post(&pair->a, &region->reg.wr), 0);
	CHECK(done_with(note, IB_WC_SUCCESS));
	return 0;
}

static int unsuitable(struct pair *pair)
{
	struct ib_pd *pd = pair->a.pd;
	struct ib_mr *mr;
	int i;
	static const struct {
		enum ib_mr_type type;
		u32 count;
		int error;
	} wrong[] = {
		{ IB_MR_TYPE_MEM_REG, 0, -EINVAL },
		{ IB_MR_TYPE_MEM_REG, 513, -EINVAL },
		{ IB_MR_TYPE_SG_GAPS, 8, -EOPNOTSUPP },
	};

	CHECK(pair->a.dev->attrs.device_cap_flags &
	      IB_DEVICE_MEM_MGT_EXTENSIONS);
	for (i = 0; i < ARRAY_SIZE(wrong); i++) {
		mr = ib_alloc_mr(pd, wrong[i].type, wrong[i].count);
		CHECK_EQ(PTR_ERR_OR_ZERO(mr), wrong[i].error);
	}
	return 0;
}

/* Posts that fail at once. */
static int posts_of(struct pair *pair, struct region *region)
{
	struct ib_sge sge = part(&pair->a, pair->a.memory, 8);
	struct ib_reg_wr wr;
	struct ib_mr other;

	CHECK_EQ(region_map(&pair->a, region, RIGHTS), 0);
	region->reg.wr.wr_cqe = &note_of(&pair->a)->cqe;

	wr = region->reg;
	wr.key ^= 0x100;
	CHECK_EQ(post(&pair->a, &wr.wr), -EINVAL);

	/* A region of another PD. */
	wr = region->reg;
	CHECK_EQ(post(&pair->b, &wr.wr), -EINVAL);

	/* One of another kind. */
	other = *region->mr;
	other.type = IB_MR_TYPE_DMA;
	wr.mr = &other;
	CHECK_EQ(post(&pair->a, &wr.wr), -EINVAL);

	/* Rights that no region has, alone or together. */
	wr = region->reg;
	wr.access = IB_ACCESS_MW_BIND;
	CHECK_EQ(post(&pair->a, &wr.wr), -EINVAL);
	wr.access = IB_ACCESS_REMOTE_WRITE;
	CHECK_EQ(post(&pair->a, &wr.wr), -EINVAL);

	wr = region->reg;
	wr.wr.sg_list = &sge;
	wr.wr.num_sge = 1;
	wr.wr.send_flags = IB_SEND_INLINE;
	CHECK_EQ(post(&pair->a, &wr.wr), -EINVAL);
	region->inv.send_flags = IB_SEND_INLINE;
	CHECK_EQ(post(&pair->a, &region->inv), -EINVAL);

	/* The optional ones are ignored. */
	CHECK_EQ(registered(pair, region, RIGHTS | IB_ACCESS_RELAXED_ORDERING),
		 0);
	return 0;
}

static int posts(struct pair *pair)
{
	return with_region(pair, posts_of);
}

static int datagram_posts_of(struct pair *pair, struct region *region)
{
	CHECK_EQ(region_map(&pair->a, region, RIGHTS), 0);
	CHECK(post(&pair->a, &region->reg.wr) == -EINVAL);
	CHECK(post(&pair->a, &region->inv) == -EINVAL);
	return 0;
}

static int datagram_posts(struct pair *pair)
{
	return with_region(pair, datagram_posts_of);
}

/* The work request fails, and those behind it are flushed, in order. */
static int fails_last(struct pair *pair, struct ib_send_wr *wr)
{
	struct note *before = note_of(&pair->a), *note = note_of(&pair->a),
		    *after = note_of(&pair->a), *received = note_of(&pair->b);
	struct ib_send_wr first = {
		.wr_cqe = &before->cqe,
		.next = wr,
		.opcode = IB_WR_SEND,
		.send_flags = IB_SEND_SIGNALED,
	};
	struct ib_send_wr last = {
		.wr_cqe = &after->cqe,
		.opcode = IB_WR_SEND,
	};
	int number = atomic_read(&pair->a.count);

	CHECK_EQ(receive(&pair->b, received, pair->b.memory, 8), 0);
	wr->wr_cqe = &note->cqe;
	wr->send_flags = 0;
	wr->next = &last;
	CHECK_EQ(post(&pair->a, &first), 0);
	CHECK(done_with(before, IB_WC_SUCCESS));
	CHECK(done_with(note, IB_WC_LOC_QP_OP_ERR));
	CHECK(done_with(after, IB_WC_WR_FLUSH_ERR));
	CHECK_EQ(before->number, number + 1);
	CHECK_EQ(note->number, number + 2);
	CHECK_EQ(after->number, number + 3);
	CHECK(done_with(received, IB_WC_SUCCESS));
	return 0;
}

static int twice_of(struct pair *pair, struct region *region)
{
	CHECK_EQ(registered(pair, region, RIGHTS), 0);
	CHECK_EQ(region_map(&pair->a, region, RIGHTS), 0);
	return fails_last(pair, &region->reg.wr);
}

static int twice(struct pair *pair)
{
	return with_region(pair, twice_of);
}

static int nothing_mapped_of(struct pair *pair, struct region *region)
{
	region->reg = (struct ib_reg_wr) {
		.wr.opcode = IB_WR_REG_MR,
		.mr = region->mr,
		.key = region->mr->rkey,
		.access = RIGHTS,
	};
	return fails_last(pair, &region->reg.wr);
}

static int nothing_mapped(struct pair *pair)
{
	return with_region(pair, nothing_mapped_of);
}

/* A map that fails while the region grants memory, which is then invalidated. */
static int failed_map_of(struct pair *pair, struct region *region)
{
	struct note *note = note_of(&pair->a);

	CHECK_EQ(registered(pair, region, RIGHTS), 0);
	CHECK_EQ(ib_map_mr_sg(region->mr, region->sg, PAGES, NULL, 3000),
		 -EINVAL);
	region->inv.ex.invalidate_rkey = region->mr->rkey;
	region->inv.wr_cqe = &note->cqe;
	region->inv.send_flags = IB_SEND_SIGNALED;
	CHECK_EQ(post(&pair->a, &region->inv), 0);
	CHECK(done_with(note, IB_WC_SUCCESS));
	return fails_last(pair, &region->reg.wr);
}

static int failed_map(struct pair *pair)
{
	return with_region(pair, failed_map_of);
}

static int wrong_key_of(struct pair *pair, struct region *region)
{
	CHECK_EQ(registered(pair, region, RIGHTS), 0);
	/* That of the registration before. */
	return fails_last(pair, &region->inv);
}

static int wrong_key(struct pair *pair)
{
	return with_region(pair, wrong_key_of);
}

/* The key of all memory is not one of fast registration. */
static int key_of_all_memory(struct pair *pair)
{
	struct ib_send_wr inv = {
		.opcode = IB_WR_LOCAL_INV,
		.ex.invalidate_rkey = pair->a.pd->local_dma_lkey,
	};

	return fails_last(pair, &inv);
}

/* A message of b that invalidates a key of a, which refuses that. */
static int peer_is_refused(struct pair *pair, u32 key)
{
	struct note *sent = note_of(&pair->b), *received = note_of(&pair->a);
	struct ib_send_wr wr = {
		.wr_cqe = &sent->cqe,
		.opcode = IB_WR_SEND_WITH_INV,
		.ex.invalidate_rkey = key,
	};

	CHECK_EQ(receive(&pair->a, received, pair->a.memory, 8), 0);
	CHECK_EQ(post(&pair->b, &wr), 0);
	CHECK(done_with(sent, IB_WC_REM_ACCESS_ERR));
	CHECK(wc_of(received));
	CHECK(received->wc.status != IB_WC_SUCCESS);
	return 0;
}

static int peer_without_right_of(struct pair *pair, struct region *region)
{
	CHECK_EQ(registered(pair, region, IB_ACCESS_LOCAL_WRITE), 0);
	return peer_is_refused(pair, region->mr->rkey);
}

static int peer_without_right(struct pair *pair)
{
	return with_region(pair, peer_without_right_of);
}

static int peer_with_other_key_of(struct pair *pair, struct region *region)
{
	CHECK_EQ(registered(pair, region, RIGHTS), 0);
	return peer_is_refused(pair, ib_inc_rkey(region->mr->rkey));
}

static int peer_with_other_key(struct pair *pair)
{
	return with_region(pair, peer_with_other_key_of);
}

static int peer_with_all_memory(struct pair *pair)
{
	return peer_is_refused(pair, pair->a.pd->unsafe_global_rkey);
}

/* A READ of a key that was invalidated, or that allows only to write. */
static int read_is_refused(struct pair *pair, u64 addr, u32 key)
{
	struct note *note = note_of(&pair->b);
	struct ib_sge sge = part(&pair->b, pair->b.memory, 8);
	struct ib_rdma_wr wr = {
		.wr = {
			.wr_cqe = &note->cqe,
			.sg_list = &sge,
			.num_sge = 1,
			.opcode = IB_WR_RDMA_READ,
		},
		.remote_addr = addr,
		.rkey = key,
	};

	CHECK_EQ(post(&pair->b, &wr.wr), 0);
	CHECK(done_with(note, IB_WC_REM_ACCESS_ERR));
	return 0;
}

static int invalidated_of(struct pair *pair, struct region *region)
{
	struct note *note = note_of(&pair->a);

	CHECK_EQ(registered(pair, region, RIGHTS), 0);
	region->inv.ex.invalidate_rkey = region->mr->rkey;
	region->inv.wr_cqe = &note->cqe;
	region->inv.send_flags = IB_SEND_SIGNALED;
	CHECK_EQ(post(&pair->a, &region->inv), 0);
	CHECK(done_with(note, IB_WC_SUCCESS));
	return read_is_refused(pair, region->mr->iova, region->mr->rkey);
}

static int invalidated(struct pair *pair)
{
	return with_region(pair, invalidated_of);
}

static int write_only_of(struct pair *pair, struct region *region)
{
	CHECK_EQ(registered(pair, region, IB_ACCESS_LOCAL_WRITE |
			    IB_ACCESS_REMOTE_WRITE), 0);
	return read_is_refused(pair, region->mr->iova, region->mr->rkey);
}

static int write_only(struct pair *pair)
{
	return with_region(pair, write_only_of);
}

/* In ERR, both are flushed. */
static int flushed_of(struct pair *pair, struct region *region)
{
	struct note *first = note_of(&pair->a), *second = note_of(&pair->a);
	struct ib_qp_attr attr = { .qp_state = IB_QPS_ERR };

	CHECK_EQ(ib_modify_qp(pair->a.qp, &attr, IB_QP_STATE), 0);
	CHECK_EQ(region_map(&pair->a, region, RIGHTS), 0);
	region->reg.wr.wr_cqe = &first->cqe;
	region->inv.wr_cqe = &second->cqe;
	region->reg.wr.next = &region->inv;
	CHECK_EQ(post(&pair->a, &region->reg.wr), 0);
	CHECK(done_with(first, IB_WC_WR_FLUSH_ERR));
	CHECK(done_with(second, IB_WC_WR_FLUSH_ERR));
	CHECK(second->number > first->number);
	return 0;
}

static int flushed(struct pair *pair)
{
	return with_region(pair, flushed_of);
}

/* Mappings that the region has no room for, and others that are not pages. */
static int mappings_of(struct pair *pair, struct region *region)
{
	struct ib_mr *mr = region->mr;
	struct scatterlist *sg = region->sg;
	struct note *note = note_of(&pair->a);
	unsigned int offset = 100;

	CHECK_EQ(region_map(&pair->a, region, RIGHTS), 0);
	CHECK_EQ(ib_map_mr_sg(mr, sg, PAGES, NULL, 3000), -EINVAL);
	CHECK_EQ(ib_map_mr_sg(mr, sg, PAGES, NULL, 0), -EINVAL);
	CHECK_EQ(ib_map_mr_sg(mr, sg, 0, NULL, PAGE_SIZE), -EINVAL);
	/* So many pages are a part of the memory. */
	CHECK_EQ(ib_map_mr_sg(mr, sg, PAGES, NULL, PAGE_SIZE / 2), PAGES / 2);
	CHECK_EQ(mr->length, PAGES / 2 * PAGE_SIZE);
	CHECK_EQ(ib_map_mr_sg(mr, sg, PAGES, &offset, PAGE_SIZE), PAGES);
	CHECK_EQ(mr->length, PAGES * PAGE_SIZE - 100);
	/* A part of the first element is mapped, too: ib_srp goes on behind it. */
	CHECK_EQ(ib_map_mr_sg(mr, sg, PAGES, &offset, PAGE_SIZE / 16), 0);
	CHECK_EQ(mr->length, offset);
	CHECK(offset >= PAGE_SIZE / 8);
	region->reg.wr.wr_cqe = &note->cqe;
	region->reg.wr.send_flags = IB_SEND_SIGNALED;
	CHECK_EQ(post(&pair->a, &region->reg.wr), 0);
	CHECK(done_with(note, IB_WC_SUCCESS));
	return 0;
}

static int mappings(struct pair *pair)
{
	return with_region(pair, mappings_of);
}

/* Each allocation of a new region fails in turn. */
static int no_memory(struct pair *pair)
{
#ifdef CONFIG_FAULT_INJECTION
	struct ib_mr *mr;
	int n;

	for (n = 1; n < 100; n++) {
		current->fail_nth = n;
		mr = ib_alloc_mr(pair->a.pd, IB_MR_TYPE_MEM_REG, 256);
		if (!IS_ERR(mr))
			ib_dereg_mr(mr);
		if (current->fail_nth) {
			/* There are fewer. */
			current->fail_nth = 0;
			CHECK(!IS_ERR(mr));
			CHECK(n > 5);
			return 0;
		}
		if (IS_ERR(mr))
			CHECK_EQ(PTR_ERR(mr), -ENOMEM);
	}
	return -EPROTO;
#else
	return 0;
#endif
}

const struct test fast_error_tests[] = {
	{ "no-such-region", { .poll = IB_POLL_SOFTIRQ }, unsuitable },
	{ "wrong-posts", { .poll = IB_POLL_SOFTIRQ }, posts },
	{ "wrong-posts-of-datagrams",
	  { .type = IB_QPT_UD, .poll = IB_POLL_SOFTIRQ }, datagram_posts },
	{ "wrong-mappings", { .poll = IB_POLL_SOFTIRQ }, mappings },
	{ "registered-twice", { .poll = IB_POLL_SOFTIRQ }, twice },
	{ "nothing-mapped", { .poll = IB_POLL_SOFTIRQ }, nothing_mapped },
	{ "failed-map", { .poll = IB_POLL_SOFTIRQ }, failed_map },
	{ "wrong-key", { .poll = IB_POLL_SOFTIRQ }, wrong_key },
	{ "key-of-all-memory", { .poll = IB_POLL_SOFTIRQ }, key_of_all_memory },
	{ "peer-without-right", { .poll = IB_POLL_SOFTIRQ },
	  peer_without_right },
	{ "peer-with-other-key", { .poll = IB_POLL_SOFTIRQ },
	  peer_with_other_key },
	{ "peer-with-all-memory", { .poll = IB_POLL_SOFTIRQ,
	  .pd_flags = IB_PD_UNSAFE_GLOBAL_RKEY }, peer_with_all_memory },
	{ "invalidated-key", { .poll = IB_POLL_SOFTIRQ }, invalidated },
	{ "write-only", { .poll = IB_POLL_SOFTIRQ }, write_only },
	{ "flush", { .poll = IB_POLL_SOFTIRQ }, flushed },
	{ "no-memory", { .poll = IB_POLL_SOFTIRQ }, no_memory },
	{}
};
