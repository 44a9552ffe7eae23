/* SPDX-License-Identifier: GPL-2.0 */
/*
 * A ring of endpoints, each with a thread: every kind of operation at once, to
 * the next endpoint, and all bytes compared. Of one host, or of two in turn.
 */
#ifndef _CONSUMER_RING_H
#define _CONSUMER_RING_H

#include <linux/completion.h>
#include <linux/gfp.h>

#include "ring_turn.h"

/* What its endpoints have. */
#define RING_CAPS	(KFI_MSG | KFI_TAGGED | KFI_RMA | KFI_ATOMIC | KFI_TAGGED_RMA | \
			 KFI_MULTI_RECV | KFI_TRIGGER | KFI_FENCE)

/*
 * The first member says in which round all stop. A member sends before it waits,
 * so it is at most one round ahead of its neighbours, and nobody is MEMBERS rounds
 * ahead of the first.
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
	size_t least = SMALL;

	member->domain = f->domain;
	end_open_enabled(test, f, info, &member->end);
	KUNIT_ASSERT_EQ(test, kfi_setopt(&member->end.ep->fid, KFI_OPT_ENDPOINT,
					 KFI_OPT_MIN_MULTI_RECV, &least, sizeof(least)), 0);
	member->go = open_cntr(test, f, KFI_WAIT_UNSPEC, NULL, NULL);
	member->deferred = open_cntr(test, f, KFI_WAIT_UNSPEC, NULL, NULL);
	/* One folio, so that each page of it has references. */
	member->mem = (u8 *)__get_free_pages(GFP_KERNEL | __GFP_ZERO | __GFP_COMP, ORDER);
	KUNIT_ASSERT_NOT_NULL(test, member->mem);
	KUNIT_ASSERT_EQ(test, kfi_mr_reg(f->domain, part_of(member, REGION), PART,
					 KFI_REMOTE_READ | KFI_REMOTE_WRITE, 0, member->index + 1,
					 0, &member->mr, NULL), 0);
	init_completion(&member->done);
}

/* Lets a member know its neighbours, and names what its deferred work writes. */
static void member_knows(struct kunit *test, struct member *member, const struct member *next,
			 const struct member *previous)
{
	struct sockaddr_in addr;
	size_t len = sizeof(addr);

	end_knows(test, &member->end, &next->end);
	KUNIT_ASSERT_EQ(test, kfi_getname(&previous->end.ep->fid, &addr, &len), 0);
	KUNIT_ASSERT_EQ(test, kfi_av_insert(member->end.av, &addr, 1, &member->previous, 0, NULL),
			1);
	member->iov = (struct kvec){ part_of(member, SMALL_FROM) + SMALL, sizeof(u64) };
	member->piece = (struct kfi_rma_iov){
		.addr = WORD_AT(DEFERRED), .len = sizeof(u64), .key = next_key(member),
	};
	member->write = (struct kfi_op_rma){
		.ep = member->end.ep,
		.msg = {
			.type = KFI_KVEC, .msg_iov = &member->iov, .iov_count = 1,
			.addr = member->end.peer, .rma_iov = &member->piece, .rma_iov_count = 1,
			.context = CONTEXT(OPS),
		},
	};
	member->work = (struct kfi_deferred_work){
		.op_type = KFI_OP_WRITE,
		.op.rma = &member->write,
		.triggering_cntr = member->go,
		.completion_cntr = member->deferred,
	};
}

static void member_close(struct kunit *test, struct member *member)
{
	KUNIT_EXPECT_EQ(test, kfi_close(&member->mr->fid), 0);
	end_close(test, &member->end);
	CLOSE(test, &member->go->fid, &member->deferred->fid);
	free_pages((unsigned long)member->mem, ORDER);
}

/*
 * Turns a ring of MEMBERS endpoints for some seconds. The endpoints are of @hosts
 * domains in turn, and of an entry for each.
 */
static void ring_turns(struct kunit *test, struct fixture *f, struct kfi_info * const *infos,
		       int hosts, unsigned int seconds)
{
	struct member *members = zeroed(test, MEMBERS * sizeof(*members));
	unsigned long until = jiffies + seconds * HZ;
	struct task_struct *thread;
	u64 stop = U64_MAX;
	int i;

	BUILD_BUG_ON(PARTS > 1 << ORDER);
	for (i = 0; i < MEMBERS; i++) {
		members[i].index = i;
		members[i].until = until;
		members[i].stop = &stop;
		member_open(test, &f[i % hosts], infos[i % hosts], &members[i]);
	}
	for (i = 0; i < MEMBERS; i++)
		member_knows(test, &members[i], &members[(i + 1) % MEMBERS],
			     &members[(i + MEMBERS - 1) % MEMBERS]);
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
		KUNIT_EXPECT_EQ(test, *(u64 *)(part_of(&members[i], REGION) + WORD_AT(SUM)), stop);
		KUNIT_EXPECT_EQ(test, members[i].remote, stop * times_of(OP_REMOTE));
		member_close(test, &members[i]);
	}
}

#endif /* _CONSUMER_RING_H */
