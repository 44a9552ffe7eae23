/* SPDX-License-Identifier: GPL-2.0 */
/*
 * What the suites share in which each allocation of a post fails in turn: two
 * endpoints, their memory, and operations of the first.
 */
#ifndef _CONSUMER_FAULT_POSTS_H
#define _CONSUMER_FAULT_POSTS_H

#include <linux/bvec.h>
#include <linux/gfp.h>
#include <linux/scatterlist.h>
#include <linux/uio.h>

#include <kfi/kfi_atomic.h>
#include <kfi/kfi_rma.h>
#include <kfi/kfi_trigger.h>

#include "faults.h"

#define KEY		7
#define TAG		5
/* More than is copied when it is posted, and less than half a page. */
#define LENGTH		1500
/* More than is buffered at the receiver. */
#define WAITING		(3 * PAGE_SIZE)
#define ORDER		2

/**
 * struct faults_world - what the calls use
 * @f: the domain
 * @ends: two endpoints
 * @mr: a region of the second: all of @there
 * @trigger: a counter that starts operations
 * @triggered: how often it has
 * @done: counts deferred work
 * @here: memory of the first
 * @there: memory of the second
 * @iov: two pieces of @here
 * @biov: the same
 * @sgl: the same
 * @ioc: an operand in @here
 * @compare: a value to compare with in @here
 * @result: memory for an old value in @here
 * @remote: two pieces of @there
 * @when: the context of a triggered operation
 * @op: the operation of deferred work
 * @work: deferred work
 */
struct faults_world {
	struct fixture			f;
	struct end			ends[2];
	struct kfid_mr			*mr;
	struct kfid_cntr		*trigger;
	u64				triggered;
	struct kfid_cntr		*done;
	u8				*here;
	u8				*there;
	struct kvec			iov[2];
	struct bio_vec			biov[2];
	struct scatterlist		sgl[2];
	struct kfi_ioc			ioc;
	struct kfi_ioc			compare;
	struct kfi_ioc			result;
	struct kfi_rma_iov		remote[2];
	struct kfi_triggered_context	when;
	union {
		struct kfi_op_msg		msg;
		struct kfi_op_tagged		tagged;
		struct kfi_op_rma		rma;
		struct kfi_op_atomic		atomic;
		struct kfi_op_fetch_atomic	fetch_atomic;
		struct kfi_op_compare_atomic	compare_atomic;
		struct kfi_op_cntr		cntr;
	} op;
	struct kfi_deferred_work	work;
};

static inline struct faults_world *world_open(struct kunit *test)
{
	struct faults_world *w = zeroed(test, sizeof(*w));
	int i;

	faults_need_injection(test);
	pair_open(test, &w->f, KFI_EP_RDM, w->ends);
	w->trigger = open_cntr(test, &w->f, KFI_WAIT_UNSPEC, NULL, NULL);
	w->done = open_cntr(test, &w->f, KFI_WAIT_UNSPEC, NULL, NULL);
	w->here = (u8 *)__get_free_pages(GFP_KERNEL | __GFP_ZERO | __GFP_COMP, ORDER);
	w->there = (u8 *)__get_free_pages(GFP_KERNEL | __GFP_ZERO | __GFP_COMP, ORDER);
	KUNIT_ASSERT_NOT_NULL(test, w->here);
	KUNIT_ASSERT_NOT_NULL(test, w->there);
	KUNIT_ASSERT_EQ(test, kfi_mr_reg(w->f.domain, w->there, PAGE_SIZE << ORDER,
					 KFI_REMOTE_READ | KFI_REMOTE_WRITE, 0, KEY, 0, &w->mr,
					 NULL), 0);
	sg_init_table(w->sgl, 2);
	for (i = 0; i < 2; i++) {
		u8 *part = w->here + i * PAGE_SIZE;

		w->iov[i] = (struct kvec){ part, LENGTH / 2 };
		bvec_set_virt(&w->biov[i], part, LENGTH / 2);
		sg_set_buf(&w->sgl[i], part, LENGTH / 2);
		w->remote[i] = (struct kfi_rma_iov){
			.addr = i * PAGE_SIZE, .len = LENGTH / 2, .key = KEY,
		};
	}
	w->ioc = (struct kfi_ioc){ w->here, 1 };
	w->compare = (struct kfi_ioc){ w->here + 8, 1 };
	w->result = (struct kfi_ioc){ w->here + 16, 1 };
	return w;
}

static inline void world_close(struct kunit *test, struct faults_world *w)
{
	CLOSE(test, &w->mr->fid, &w->trigger->fid, &w->done->fid);
	/* What failed has left no completion. */
	nothing(test, &w->ends[0]);
	nothing(test, &w->ends[1]);
	pair_close(test, &w->f, w->ends);
	free_pages((unsigned long)w->here, ORDER);
	free_pages((unsigned long)w->there, ORDER);
}

static inline void sweep(struct kunit *test, const struct faults_call *calls, size_t count)
{
	struct faults_world *w = world_open(test);

	faults_of(test, w, calls, count);
	world_close(test, w);
}

#define EP(w)	((w)->ends[0].ep)
#define PEER(w)	((w)->ends[0].peer)

static inline struct kfi_msg message_of(struct faults_world *w)
{
	return (struct kfi_msg) {
		.type = KFI_KVEC,
		.msg_iov = w->iov,
		.iov_count = 2,
		.addr = PEER(w),
		.context = w,
	};
}

static inline struct kfi_msg_tagged tagged_of(struct faults_world *w)
{
	return (struct kfi_msg_tagged) {
		.type = KFI_BVEC,
		.msg_biov = w->biov,
		.iov_count = 2,
		.addr = PEER(w),
		.tag = TAG,
		.context = w,
	};
}

static inline struct kfi_msg_rma rma_of(struct faults_world *w)
{
	return (struct kfi_msg_rma) {
		.type = KFI_SGL,
		.msg_sgl = w->sgl,
		.iov_count = 2,
		.addr = PEER(w),
		.rma_iov = w->remote,
		.rma_iov_count = 2,
		.context = w,
	};
}

/* What a call has posted ends: completions with these flags come, here and there. */
static inline void ends_with(struct kunit *test, struct faults_world *w, u64 here, u64 there,
			     size_t len)
{
	if (there)
		completed(test, &w->ends[1], w, there, len);
	if (here)
		completed(test, &w->ends[0], w, here, len);
}

/* The peer has a receive. */
static inline void receive_posted(struct kunit *test, struct faults_world *w)
{
	KUNIT_ASSERT_EQ(test, kfi_recv(w->ends[1].ep, w->there, WAITING, NULL, 0, w), 0);
}

/* A tagged one. */
static inline void tagged_receive_posted(struct kunit *test, struct faults_world *w)
{
	KUNIT_ASSERT_EQ(test, kfi_trecv(w->ends[1].ep, w->there, WAITING, NULL, 0, TAG, 0, w), 0);
}

static const struct kfi_rma_ioc remote_word = { .count = 1, .key = KEY };

static inline struct kfi_msg_atomic atomic_of(struct faults_world *w, enum kfi_op op)
{
	return (struct kfi_msg_atomic) {
		.msg_iov = &w->ioc,
		.iov_count = 1,
		.addr = PEER(w),
		.rma_iov = &remote_word,
		.rma_iov_count = 1,
		.datatype = KFI_UINT64,
		.op = op,
		.context = w,
	};
}

#endif /* _CONSUMER_FAULT_POSTS_H */
