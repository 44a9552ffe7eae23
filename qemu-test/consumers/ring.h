/* SPDX-License-Identifier: GPL-2.0 */
/*
 * A ring of endpoints, each with a thread: every kind of operation at once, to
 * the next endpoint, and all bytes compared. Of one host, or of two in turn.
 */
#ifndef _CONSUMER_RING_H
#define _CONSUMER_RING_H

#include <linux/completion.h>
#include <linux/gfp.h>
#include <linux/jiffies.h>
#include <linux/kthread.h>

#include <kfi/kfi_atomic.h>
#include <kfi/kfi_rma.h>

#include "pair.h"

#define MEMBERS		16
#define PART		PAGE_SIZE
/* Parts of a member's memory. The region of the previous member's is the last. */
enum part { PLAIN_TO, TAGGED_TO, PLAIN_FROM, TAGGED_FROM, WRITE_FROM, READ_TO, REGION, PARTS };
#define ORDER		3
/* The word of a region that the previous member adds to. */
#define WORD_AT		(PART - sizeof(u64))

/* Operations of a round, by the contexts of their completions. */
enum op { OP_RECV, OP_TRECV, OP_SEND, OP_TSEND, OP_WRITE, OP_READ, OP_ADD, OPS };

static const u64 flags_of[OPS] = {
	[OP_RECV]	= KFI_MSG | KFI_RECV,
	[OP_TRECV]	= KFI_TAGGED | KFI_RECV,
	[OP_SEND]	= KFI_MSG | KFI_SEND,
	[OP_TSEND]	= KFI_TAGGED | KFI_SEND,
	[OP_WRITE]	= KFI_RMA | KFI_WRITE,
	[OP_READ]	= KFI_RMA | KFI_READ,
	[OP_ADD]	= KFI_ATOMIC | KFI_READ,
};

/**
 * struct member - an endpoint of the ring
 * @end: the endpoint
 * @mr: a region for the previous member: the last part of @mem
 * @mem: its memory, in parts
 * @index: its place
 * @until: when it ends, in jiffies
 * @rounds: how many rounds it has made
 * @stop: all members stop after this round
 * @old: result of its last atomic
 * @error: the first thing that went wrong
 * @done: the thread has ended
 */
struct member {
	struct end		end;
	struct kfid_mr		*mr;
	u8			*mem;
	u64			index;
	unsigned long		until;
	u64			rounds;
	u64			*stop;
	u64			old;
	int			error;
	struct completion	done;
};

/* The byte that fills a member's part in a round. */
static u8 byte_of(u64 index, enum part part, u64 round)
{
	return index * 31 + part * 7 + round;
}

/* Bytes of a member's messages in a round. */
static size_t length_of(u64 index, u64 round)
{
	return (index * 977 + round * 331) % (PART + 1);
}

static u8 *part_of(struct member *member, enum part part)
{
	return member->mem + part * PART;
}

/* Waits until the operations in @wanted have completed. */
static int await(struct member *member, unsigned long *completed, unsigned long wanted)
{
	struct kfi_cq_tagged_entry entry;
	unsigned long op;
	ssize_t ret;

	while ((*completed & wanted) != wanted) {
		ret = kfi_cq_sread(member->end.cq, &entry, 1, NULL, LONG);
		if (ret != 1)
			return ret ?: -EIO;
		op = (unsigned long)entry.op_context;
		if (op >= OPS || *completed & BIT(op) || entry.flags != flags_of[op])
			return -EBADMSG;
		*completed |= BIT(op);
	}
	return 0;
}

/* Whether a part has @len bytes of another member's part in a round. */
static int compare(struct member *member, enum part part, u64 index, enum part from, u64 round,
		   size_t len)
{
	return memchr_inv(part_of(member, part), byte_of(index, from, round), len) ? -EILSEQ : 0;
}

/* The context of an operation. */
#define CONTEXT(op)	((void *)(unsigned long)(op))

static int turn(struct member *member, u64 round)
{
	u64 previous = (member->index + MEMBERS - 1) % MEMBERS;
	u64 key = (member->index + 1) % MEMBERS + 1;
	size_t len = length_of(member->index, round), sent = length_of(previous, round);
	struct kfid_ep *ep = member->end.ep;
	kfi_addr_t peer = member->end.peer;
	unsigned long completed = 0;
	u64 one = 1;
	int part, ret;

	ret = kfi_recv(ep, part_of(member, PLAIN_TO), PART, NULL, KFI_ADDR_UNSPEC,
		       CONTEXT(OP_RECV));
	ret = ret ?: kfi_trecv(ep, part_of(member, TAGGED_TO), PART, NULL, KFI_ADDR_UNSPEC, round,
			       0, CONTEXT(OP_TRECV));
	for (part = PLAIN_FROM; part <= WRITE_FROM; part++)
		memset(part_of(member, part), byte_of(member->index, part, round), PART);
	ret = ret ?: kfi_tsend(ep, part_of(member, TAGGED_FROM), len, NULL, peer, round,
			       CONTEXT(OP_TSEND));
	ret = ret ?: kfi_send(ep, part_of(member, PLAIN_FROM), len, NULL, peer, CONTEXT(OP_SEND));
	ret = ret ?: kfi_write(ep, part_of(member, WRITE_FROM), WORD_AT, NULL, peer, 0, key,
			       CONTEXT(OP_WRITE));
	ret = ret ?: kfi_fetch_atomic(ep, &one, 1, NULL, &member->old, NULL, peer, WORD_AT, key,
				      KFI_UINT64, KFI_SUM, CONTEXT(OP_ADD));
	ret = ret ?: await(member, &completed, BIT(OP_WRITE) | BIT(OP_ADD));
	if (!ret && member->old != round)
		return -ERANGE;
	ret = ret ?: kfi_read(ep, part_of(member, READ_TO), WORD_AT, NULL, peer, 0, key,
			      CONTEXT(OP_READ));
	ret = ret ?: await(member, &completed, BIT(OPS) - 1);
	ret = ret ?: compare(member, PLAIN_TO, previous, PLAIN_FROM, round, sent);
	ret = ret ?: compare(member, TAGGED_TO, previous, TAGGED_FROM, round, sent);
	return ret ?: compare(member, READ_TO, member->index, WRITE_FROM, round, WORD_AT);
}

/*
 * The first member says in which round all stop. A member sends before it waits,
 * so it is at most one round ahead of the previous one, and nobody is MEMBERS
 * rounds ahead of the first.
 */
static int ring_thread(void *arg)
{
	struct member *member = arg;
	u64 round = 0;

	do {
		if (!member->index && *member->stop == U64_MAX &&
		    time_after(jiffies, member->until))
			WRITE_ONCE(*member->stop, round + MEMBERS);
		member->error = turn(member, round);
	} while (!member->error && ++round < READ_ONCE(*member->stop));
	member->rounds = round;
	complete(&member->done);
	return 0;
}

static void member_open(struct kunit *test, struct fixture *f, struct kfi_info *info,
			struct member *member)
{
	end_open(test, f, info, &member->end, 0);
	KUNIT_ASSERT_EQ(test, kfi_enable(member->end.ep), 0);
	member->mem = (u8 *)__get_free_pages(GFP_KERNEL | __GFP_ZERO, ORDER);
	KUNIT_ASSERT_NOT_NULL(test, member->mem);
	KUNIT_ASSERT_EQ(test, kfi_mr_reg(f->domain, part_of(member, REGION), PART,
					 KFI_REMOTE_READ | KFI_REMOTE_WRITE, 0, member->index + 1,
					 0, &member->mr, NULL), 0);
	init_completion(&member->done);
}

/*
 * Turns a ring of MEMBERS endpoints for some seconds. The endpoints are of @hosts
 * domains in turn, and of an entry for each.
 */
static void ring_turns(struct kunit *test, struct fixture *f, struct kfi_info * const *infos,
		       int hosts, unsigned int seconds)
{
	struct member *members = kunit_kcalloc(test, MEMBERS, sizeof(*members), GFP_KERNEL);
	unsigned long until = jiffies + seconds * HZ;
	struct task_struct *thread;
	u64 stop = U64_MAX;
	int i;

	BUILD_BUG_ON(PARTS > 1 << ORDER);
	KUNIT_ASSERT_NOT_NULL(test, members);
	for (i = 0; i < MEMBERS; i++) {
		members[i].index = i;
		members[i].until = until;
		members[i].stop = &stop;
		member_open(test, &f[i % hosts], infos[i % hosts], &members[i]);
	}
	for (i = 0; i < MEMBERS; i++)
		end_knows(test, &members[i].end, &members[(i + 1) % MEMBERS].end);
	for (i = 0; i < MEMBERS; i++) {
		thread = kthread_run(ring_thread, &members[i], "ring%d", i);
		KUNIT_ASSERT_FALSE(test, IS_ERR(thread));
	}
	for (i = 0; i < MEMBERS; i++) {
		wait_for_completion(&members[i].done);
		KUNIT_EXPECT_EQ_MSG(test, members[i].error, 0, "member %d, round %llu", i,
				    members[i].rounds);
		KUNIT_EXPECT_EQ(test, members[i].rounds, stop);
	}
	kunit_info(test, "%llu rounds of %d members\n", members[0].rounds, MEMBERS);
	for (i = 0; i < MEMBERS; i++) {
		nothing(test, &members[i].end);
		KUNIT_EXPECT_EQ(test, *(u64 *)(part_of(&members[i], REGION) + WORD_AT), stop);
		KUNIT_EXPECT_EQ(test, kfi_close(&members[i].mr->fid), 0);
		end_close(test, &members[i].end);
		free_pages((unsigned long)members[i].mem, ORDER);
	}
}

#endif /* _CONSUMER_RING_H */
