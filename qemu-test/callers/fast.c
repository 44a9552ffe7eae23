// SPDX-License-Identifier: GPL-2.0
/*
 * Fast registration, in the ways in which the storage drivers of the kernel use
 * it.
 */

#define pr_fmt(fmt) KBUILD_MODNAME ": " fmt

#include <linux/slab.h>
#include <linux/spinlock.h>

#include "callers.h"

/* Pages of most regions. */
#define PAGES	16
#define LENGTH	(PAGES * PAGE_SIZE)

static u8 *page_of(const struct region *region, int number)
{
	return page_address(region->pages[number]);
}

/**
 * region_open - a region for fast registration, and memory for it
 * @end: its end
 * @region: the region
 * @count: its pages
 *
 * Return: 0 or an error; region_close() follows in any case.
 */
int region_open(struct end *end, struct region *region, int count)
{
	int i;

	*region = (struct region) { .count = count };
	region->pages = kcalloc(count, sizeof(*region->pages), GFP_KERNEL);
	region->sg = kcalloc(count, sizeof(*region->sg), GFP_KERNEL);
	if (!region->pages || !region->sg)
		return -ENOMEM;
	for (i = 0; i < count; i++) {
		region->pages[i] = alloc_page(GFP_KERNEL | __GFP_ZERO);
		if (!region->pages[i])
			return -ENOMEM;
	}
	region->mr = ib_alloc_mr(end->pd, IB_MR_TYPE_MEM_REG, count);
	return PTR_ERR_OR_ZERO(region->mr);
}

/** region_close - ends a region */
void region_close(struct region *region)
{
	int i;

	if (!IS_ERR_OR_NULL(region->mr))
		ib_dereg_mr(region->mr);
	for (i = 0; region->pages && i < region->count; i++)
		if (region->pages[i])
			__free_page(region->pages[i]);
	kfree(region->sg);
	kfree(region->pages);
}

/**
 * region_map - maps the pages of a region, and prepares its work requests
 * @end: its end
 * @region: the region
 * @access: the rights
 *
 * They are mapped with interrupts off, as in the queue_rq() of a block driver.
 * Each call takes another key.
 *
 * Return: 0 or an error.
 */
int region_map(struct end *end, struct region *region, int access)
{
	struct ib_mr *mr = region->mr;
	unsigned long flags;
	int i, ret;

	region->inv = (struct ib_send_wr) {
		.opcode = IB_WR_LOCAL_INV,
		.ex.invalidate_rkey = mr->rkey,
	};
	sg_init_table(region->sg, region->count);
	for (i = 0; i < region->count; i++)
		sg_set_page(&region->sg[i], region->pages[i], PAGE_SIZE, 0);
	if (ib_dma_map_sg(end->dev, region->sg, region->count,
			  DMA_BIDIRECTIONAL) != region->count)
		return -EIO;
	local_irq_save(flags);
	ret = ib_map_mr_sg(mr, region->sg, region->count, NULL, PAGE_SIZE);
	local_irq_restore(flags);
	if (ret != region->count)
		return ret < 0 ? ret : -EIO;
	ib_update_fast_reg_key(mr, ib_inc_rkey(mr->rkey));
	region->reg = (struct ib_reg_wr) {
		.wr.opcode = IB_WR_REG_MR,
		.mr = mr,
		.key = mr->rkey,
		.access = access,
	};
	return 0;
}

/** region_fill - fills the memory of a region */
void region_fill(struct region *region, size_t length, u8 seed)
{
	size_t at;

	for (at = 0; at < length; at += PAGE_SIZE)
		fill(page_of(region, at / PAGE_SIZE),
		     min(length - at, PAGE_SIZE), seed + at / PAGE_SIZE);
}

/** region_holds - whether the memory of a region has the bytes of region_fill() */
bool region_holds(const struct region *region, size_t length, u8 seed)
{
	size_t at;

	for (at = 0; at < length; at += PAGE_SIZE)
		if (!holds(page_of(region, at / PAGE_SIZE),
			   min(length - at, PAGE_SIZE), seed + at / PAGE_SIZE))
			return false;
	return true;
}

/* What an initiator sends: where its memory is. */
struct command {
	u64 addr;
	u32 rkey;
	u32 length;
};

/*
 * An initiator (a) sends a command that names a region; the target (b) reads or
 * writes it and answers, with the key of the region to be invalidated.
 */
static int command(struct pair *pair, struct region *region,
		   struct region *target, bool reads, bool by_peer, u8 seed)
{
	struct end *a = &pair->a, *b = &pair->b;
	struct note *sent = note_of(a), *got = note_of(b), *moved = note_of(b),
		    *answered = note_of(b), *answer = note_of(a),
		    *registered = note_of(a), *invalidated = note_of(a);
	struct command *command = (void *)a->memory;
	struct command *arrived = (void *)b->memory;
	struct ib_sge own = part(a, command, sizeof(*command));
	struct ib_send_wr wr = {
		.wr_cqe = &sent->cqe,
		.sg_list = &own,
		.num_sge = 1,
		.opcode = IB_WR_SEND,
		.send_flags = IB_SEND_SIGNALED,
	};
	struct ib_send_wr reply = {
		.wr_cqe = &answered->cqe,
		.opcode = by_peer ? IB_WR_SEND_WITH_INV : IB_WR_SEND,
		/* The owner may use its memory when it gets the answer. */
		.send_flags = IB_SEND_SIGNALED | IB_SEND_FENCE,
	};
	struct ib_sge sges[4];
	struct ib_rdma_wr move = {
		.wr = {
			.wr_cqe = &moved->cqe,
			.sg_list = sges,
			.num_sge = 4,
			.opcode = reads ? IB_WR_RDMA_READ : IB_WR_RDMA_WRITE,
			.send_flags = IB_SEND_SIGNALED,
		},
	};
	int i;

	CHECK_EQ(receive(a, answer, a->memory + 100, 100), 0);
	CHECK_EQ(receive(b, got, b->memory, sizeof(*arrived)), 0);
	region_fill(reads ? region : target, 4 * PAGE_SIZE, seed);

	/* The registration and the command in one list, as nvme does. */
	CHECK_EQ(region_map(a, region, IB_ACCESS_LOCAL_WRITE |
			    IB_ACCESS_REMOTE_READ | IB_ACCESS_REMOTE_WRITE), 0);
	*command = (struct command) {
		.addr = region->mr->iova,
		.rkey = region->mr->rkey,
		.length = region->mr->length,
	};
	region->reg.wr.wr_cqe = &registered->cqe;
	region->reg.wr.next = &wr;
	CHECK_EQ(post(a, &region->reg.wr), 0);

	CHECK(done_with(got, IB_WC_SUCCESS));
	CHECK_EQ(arrived->length, region->count * PAGE_SIZE);
	for (i = 0; i < 4; i++)
		sges[i] = part(b, page_of(target, i), PAGE_SIZE);
	move.remote_addr = arrived->addr;
	move.rkey = arrived->rkey;
	reply.ex.invalidate_rkey = arrived->rkey;
	move.wr.next = &reply;
	CHECK_EQ(post(b, &move.wr), 0);

	CHECK(done_with(answer, IB_WC_SUCCESS));
	CHECK_EQ(!!(answer->wc.wc_flags & IB_WC_WITH_INVALIDATE), by_peer);
	if (by_peer) {
		CHECK_EQ(answer->wc.ex.invalidate_rkey, region->mr->rkey);
	} else {
		region->inv.ex.invalidate_rkey = region->mr->rkey;
		region->inv.wr_cqe = &invalidated->cqe;
		region->inv.send_flags = IB_SEND_SIGNALED;
		CHECK_EQ(post(a, &region->inv), 0);
		CHECK(done_with(invalidated, IB_WC_SUCCESS));
		CHECK_EQ(invalidated->wc.opcode, IB_WC_LOCAL_INV);
	}
	CHECK(region_holds(reads ? target : region, 4 * PAGE_SIZE, seed));
	CHECK(done_with(sent, IB_WC_SUCCESS));
	CHECK(done_with(moved, IB_WC_SUCCESS));
	CHECK(done_with(answered, IB_WC_SUCCESS));
	/* Not signalled. */
	CHECK(!completion_done(&registered->done));
	return 0;
}

static int commands(struct pair *pair, bool by_peer)
{
	struct region region, target = {};
	int i, ret;

	ret = region_open(&pair->a, &region, PAGES);
	if (!ret)
		ret = region_open(&pair->b, &target, PAGES);
	for (i = 0; i < 20 && !ret; i++)
		ret = command(pair, &region, &target, i % 2, by_peer, i);
	region_close(&region);
	region_close(&target);
	return ret;
}

static int invalidated_by_owner(struct pair *pair)
{
	return commands(pair, false);
}

static int invalidated_by_peer(struct pair *pair)
{
	return commands(pair, true);
}

/* Pages of another region of all memory, for the local side of b. */
static struct ib_rdma_wr move_region(struct region *region, struct ib_sge *sge,
				     struct note *note, enum ib_wr_opcode opcode)
{
	*sge = (struct ib_sge) {
		.addr = region->mr->iova,
		.length = region->mr->length,
		.lkey = region->mr->lkey,
	};
	return (struct ib_rdma_wr) {
		.wr = {
			.wr_cqe = &note->cqe,
			.sg_list = sge,
			.num_sge = 1,
			.opcode = opcode,
			.send_flags = IB_SEND_SIGNALED,
		},
	};
}

/*
 * The local side is a region that is registered for each operation, in one list
 * with the invalidation of the last one, as drivers/infiniband/core/rw.c posts
 * it. The peer's memory is one buffer, of which the key is for all memory.
 */
static int rw_round(struct pair *pair, struct region *region, u8 *remote,
		    bool reads, bool first, u8 seed)
{
	struct note *note = note_of(&pair->a), *invalidated = note_of(&pair->a);
	struct ib_rdma_wr wr;
	struct ib_sge sge;
	size_t at;

	if (reads) {
		for (at = 0; at < LENGTH; at += PAGE_SIZE)
			fill(remote + at, PAGE_SIZE, seed + at / PAGE_SIZE);
	} else {
		region_fill(region, LENGTH, seed);
	}
	CHECK_EQ(region_map(&pair->a, region, IB_ACCESS_LOCAL_WRITE), 0);
	wr = move_region(region, &sge, note,
			 reads ? IB_WR_RDMA_READ : IB_WR_RDMA_WRITE);
	wr.remote_addr = (uintptr_t)remote;
	wr.rkey = pair->b.pd->unsafe_global_rkey;
	region->inv.wr_cqe = &invalidated->cqe;
	region->inv.next = &region->reg.wr;
	region->reg.wr.next = &wr.wr;
	CHECK_EQ(post(&pair->a, first ? &region->reg.wr : &region->inv), 0);
	CHECK(done_with(note, IB_WC_SUCCESS));
	if (reads) {
		CHECK(region_holds(region, LENGTH, seed));
	} else {
		for (at = 0; at < LENGTH; at += PAGE_SIZE)
			CHECK(holds(remote + at, PAGE_SIZE,
				    seed + at / PAGE_SIZE));
	}
	return 0;
}

static int rw(struct pair *pair)
{
	struct region region;
	u8 *remote = kzalloc(LENGTH, GFP_KERNEL);
	int i, ret;

	ret = region_open(&pair->a, &region, PAGES);
	if (!remote)
		ret = -ENOMEM;
	for (i = 0; i < 20 && !ret; i++)
		ret = rw_round(pair, &region, remote, i % 2, !i, i);
	region_close(&region);
	kfree(remote);
	return ret;
}

/*
 * One list reads into a region, invalidates it, registers other pages with it,
 * and reads again. The invalidation waits for the first READ.
 */
static int ordered(struct pair *pair)
{
	struct note *notes[5];
	struct ib_rdma_wr wrs[2];
	struct region one, other = {};
	struct ib_reg_wr first;
	struct ib_sge sges[2];
	u8 *remote;
	int i, ret;

	for (i = 0; i < 5; i++)
		notes[i] = note_of(&pair->a);
	remote = kzalloc(LENGTH, GFP_KERNEL);
	ret = region_open(&pair->a, &one, PAGES);
	if (!ret)
		ret = region_open(&pair->a, &other, PAGES);
	if (!ret && !remote)
		ret = -ENOMEM;
	if (ret)
		goto out;
	for (i = 0; i < PAGES; i++)
		fill(remote + i * PAGE_SIZE, PAGE_SIZE, 3 + i);

	ret = region_map(&pair->a, &one, IB_ACCESS_LOCAL_WRITE);
	if (ret)
		goto out;
	first = one.reg;
	wrs[0] = move_region(&one, &sges[0], notes[1], IB_WR_RDMA_READ);
	wrs[1] = move_region(&other, &sges[1], notes[4], IB_WR_RDMA_READ);
	for (i = 0; i < 2; i++) {
		wrs[i].remote_addr = (uintptr_t)remote;
		wrs[i].rkey = pair->b.pd->unsafe_global_rkey;
	}
	ret = region_map(&pair->a, &other, IB_ACCESS_LOCAL_WRITE);
	if (ret)
		goto out;
	sges[1].addr = other.mr->iova;
	sges[1].length = other.mr->length;
	sges[1].lkey = other.mr->lkey;

	first.wr.wr_cqe = &notes[0]->cqe;
	first.wr.send_flags = IB_SEND_SIGNALED;
	first.wr.next = &wrs[0].wr;
	one.inv = (struct ib_send_wr) {
		.wr_cqe = &notes[2]->cqe,
		.opcode = IB_WR_LOCAL_INV,
		.send_flags = IB_SEND_SIGNALED,
		.ex.invalidate_rkey = one.mr->rkey,
	};
	wrs[0].wr.next = &one.inv;
	one.inv.next = &other.reg.wr;
	other.reg.wr.wr_cqe = &notes[3]->cqe;
	other.reg.wr.send_flags = IB_SEND_SIGNALED;
	other.reg.wr.next = &wrs[1].wr;
	ret = post(&pair->a, &first.wr);
	for (i = 0; i < 5 && !ret; i++)
		if (!done_with(notes[i], IB_WC_SUCCESS) ||
		    notes[i]->number != i + 1)
			ret = -EPROTO;
	if (!ret && (!region_holds(&one, LENGTH, 3) ||
		     !region_holds(&other, LENGTH, 3) ||
		     notes[0]->wc.opcode != IB_WC_REG_MR))
		ret = -EPROTO;
out:
	region_close(&one);
	region_close(&other);
	kfree(remote);
	return ret;
}

/* A WRITE of the peer to a region of as many pages as there can be. */
static int largest_region(struct pair *pair, struct region *region,
			  struct region *source)
{
	struct note *registered = note_of(&pair->a);
	struct note *notes[4];
	struct ib_sge sge;
	struct ib_rdma_wr wr;
	int i, number;

	region_fill(source, source->count * PAGE_SIZE, 7);
	CHECK_EQ(region_map(&pair->a, region, IB_ACCESS_LOCAL_WRITE |
			    IB_ACCESS_REMOTE_WRITE), 0);
	CHECK_EQ(region->mr->length, region->count * PAGE_SIZE);
	/* Callers choose the address of the first byte, within its page. */
	region->mr->iova = 0xabcdef000000;
	region->reg.wr.wr_cqe = &registered->cqe;
	region->reg.wr.send_flags = IB_SEND_SIGNALED;
	CHECK_EQ(post(&pair->a, &region->reg.wr), 0);
	CHECK(done_with(registered, IB_WC_SUCCESS));
	CHECK_EQ(registered->wc.opcode, IB_WC_REG_MR);
	for (number = 0; number < region->count; number += 4) {
		for (i = 0; i < 4; i++) {
			notes[i] = note_of(&pair->b);
			sge = part(&pair->b, page_of(source, number + i),
				   PAGE_SIZE);
			wr = (struct ib_rdma_wr) {
				.wr = {
					.wr_cqe = &notes[i]->cqe,
					.sg_list = &sge,
					.num_sge = 1,
					.opcode = IB_WR_RDMA_WRITE,
					.send_flags = IB_SEND_SIGNALED,
				},
				.remote_addr = 0xabcdef000000 +
					       (number + i) * PAGE_SIZE,
				.rkey = region->mr->rkey,
			};
			CHECK_EQ(post(&pair->b, &wr.wr), 0);
		}
		for (i = 0; i < 4; i++)
			CHECK(done_with(notes[i], IB_WC_SUCCESS));
	}
	CHECK(region_holds(region, region->count * PAGE_SIZE, 7));
	return 0;
}

static int largest(struct pair *pair)
{
	int count = pair->a.dev->attrs.max_fast_reg_page_list_len;
	struct region region, source = {};
	int ret;

	CHECK_EQ(count, 512);
	ret = region_open(&pair->a, &region, count);
	if (!ret)
		ret = region_open(&pair->b, &source, count);
	if (!ret)
		ret = largest_region(pair, &region, &source);
	region_close(&region);
	region_close(&source);
	return ret;
}

const struct test fast_tests[] = {
	{ "invalidated-by-owner", { .poll = IB_POLL_SOFTIRQ },
	  invalidated_by_owner },
	{ "invalidated-by-peer", { .poll = IB_POLL_WORKQUEUE },
	  invalidated_by_peer },
	{ "rw", { .poll = IB_POLL_WORKQUEUE,
		  .pd_flags = IB_PD_UNSAFE_GLOBAL_RKEY }, rw },
	{ "order", { .poll = IB_POLL_SOFTIRQ,
		     .pd_flags = IB_PD_UNSAFE_GLOBAL_RKEY }, ordered },
	{ "largest", { .poll = IB_POLL_WORKQUEUE }, largest },
	{}
};
