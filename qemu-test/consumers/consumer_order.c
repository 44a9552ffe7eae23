// SPDX-License-Identifier: GPL-2.0
/*
 * Flags of operations that concern those before and after: KFI_FENCE and KFI_MORE
 * (fi_msg(3), fi_tagged(3), fi_rma(3)).
 */

#include <linux/bottom_half.h>

#include <kfi/kfi_rma.h>

#include "pair.h"

#define SENT		(KFI_MSG | KFI_SEND)
#define RECEIVED	(KFI_MSG | KFI_RECV)
#define CAPS		(KFI_MSG | KFI_TAGGED | KFI_RMA)
/* More bytes than are buffered at the receiver. */
#define LONG_MESSAGE	(16 << 10)
#define KEY		7
#define TAG		5

/**
 * struct world - two endpoints, and operations of the first
 * @f: their domain
 * @ends: the endpoints
 * @mr: a region of the second: all of @there
 * @here: memory of the first
 * @there: memory of the second
 * @iov: 8 bytes of @here
 * @piece: the first 8 bytes of @there
 * @msg: a message
 * @tagged: a tagged message
 * @rma: a write
 */
struct world {
	struct fixture		f;
	struct end		ends[2];
	struct kfid_mr		*mr;
	u8			*here;
	u8			*there;
	struct kvec		iov;
	struct kfi_rma_iov	piece;
	struct kfi_msg		msg;
	struct kfi_msg_tagged	tagged;
	struct kfi_msg_rma	rma;
};

static struct world *world_open(struct kunit *test, u64 caps)
{
	struct world *w = zeroed(test, sizeof(*w));

	pair_open_from(test, &w->f, entry_with(test, KFI_EP_RDM, caps), w->ends, 0);
	w->here = zeroed(test, LONG_MESSAGE);
	w->there = zeroed(test, LONG_MESSAGE);
	KUNIT_ASSERT_EQ(test, kfi_mr_reg(w->f.domain, w->there, LONG_MESSAGE, KFI_REMOTE_WRITE, 0,
					 KEY, 0, &w->mr, NULL), 0);
	w->iov = (struct kvec){ w->here, 8 };
	w->piece = (struct kfi_rma_iov){ .len = 8, .key = KEY };
	w->msg = (struct kfi_msg){
		.type = KFI_KVEC, .msg_iov = &w->iov, .iov_count = 1,
		.addr = w->ends[0].peer, .context = &w->msg,
	};
	w->tagged = (struct kfi_msg_tagged){
		.type = KFI_KVEC, .msg_iov = &w->iov, .iov_count = 1,
		.addr = w->ends[0].peer, .tag = TAG, .context = &w->tagged,
	};
	w->rma = (struct kfi_msg_rma){
		.type = KFI_KVEC, .msg_iov = &w->iov, .iov_count = 1,
		.addr = w->ends[0].peer, .rma_iov = &w->piece, .rma_iov_count = 1,
		.context = &w->rma,
	};
	return w;
}

static void world_close(struct kunit *test, struct world *w)
{
	KUNIT_EXPECT_EQ(test, kfi_close(&w->mr->fid), 0);
	pair_close(test, &w->f, w->ends);
}

/* Posts a receive for the messages of @w->msg. */
static void receive(struct kunit *test, struct world *w)
{
	KUNIT_EXPECT_EQ(test, kfi_recv(w->ends[1].ep, w->there, 8, NULL, KFI_ADDR_UNSPEC,
				       w->there), 0);
}

/*
 * A fence is refused while an earlier message waits at the peer on this host, so
 * that what is posted afterwards is in the consumer's hands.
 */
static void a_fence_is_refused_while_a_message_waits(struct kunit *test)
{
	struct world *w = world_open(test, CAPS | KFI_FENCE);
	struct kfid_ep *ep = w->ends[0].ep;

	/* It waits for a receive. */
	KUNIT_EXPECT_EQ(test, kfi_tsend(ep, w->here, LONG_MESSAGE, NULL, w->ends[0].peer, 1, w),
			0);
	/* Without a fence, others go past it. */
	receive(test, w);
	KUNIT_EXPECT_EQ(test, kfi_sendmsg(ep, &w->msg, 0), 0);
	completed(test, &w->ends[0], &w->msg, SENT, 0);
	completed(test, &w->ends[1], w->there, RECEIVED, 8);
	w->here[0] = 'f';
	KUNIT_EXPECT_EQ(test, kfi_writemsg(ep, &w->rma, KFI_FENCE), -KFI_EAGAIN);
	KUNIT_EXPECT_EQ(test, kfi_sendmsg(ep, &w->msg, KFI_FENCE), -KFI_EAGAIN);
	KUNIT_EXPECT_EQ(test, kfi_tsendmsg(ep, &w->tagged, KFI_FENCE), -KFI_EAGAIN);
	nothing(test, &w->ends[0]);
	nothing(test, &w->ends[1]);
	KUNIT_EXPECT_EQ(test, w->there[0], 0);
	KUNIT_EXPECT_EQ(test, kfi_trecv(w->ends[1].ep, w->there, LONG_MESSAGE, NULL,
					KFI_ADDR_UNSPEC, 1, 0, w), 0);
	completed(test, &w->ends[0], w, KFI_TAGGED | KFI_SEND, 0);
	completed(test, &w->ends[1], w, KFI_TAGGED | KFI_RECV, LONG_MESSAGE);
	w->there[0] = 0;
	KUNIT_EXPECT_EQ(test, kfi_writemsg(ep, &w->rma, KFI_FENCE), 0);
	completed(test, &w->ends[0], &w->rma, KFI_RMA | KFI_WRITE, 0);
	KUNIT_EXPECT_EQ(test, w->there[0], 'f');
	/* A receive has nothing to wait for. */
	KUNIT_EXPECT_EQ(test, kfi_recvmsg(w->ends[1].ep, &w->msg, KFI_FENCE), -KFI_EINVAL);
	world_close(test, w);
}

/* Posted where the caller may not sleep, the fenced operation waits in the queue. */
static void a_fence_waits_in_a_softirq(struct kunit *test)
{
	struct world *w = world_open(test, CAPS | KFI_FENCE);
	struct kfid_ep *ep = w->ends[0].ep;
	ssize_t fenced, later;

	KUNIT_EXPECT_EQ(test, kfi_tsend(ep, w->here, LONG_MESSAGE, NULL, w->ends[0].peer, 1, w),
			0);
	receive(test, w);
	w->here[0] = 'f';
	local_bh_disable();
	fenced = kfi_writemsg(ep, &w->rma, KFI_FENCE);
	later = kfi_sendmsg(ep, &w->msg, 0);
	local_bh_enable();
	KUNIT_EXPECT_EQ(test, fenced, 0);
	KUNIT_EXPECT_EQ(test, later, 0);
	msleep(50);
	nothing(test, &w->ends[0]);
	nothing(test, &w->ends[1]);
	KUNIT_EXPECT_EQ(test, w->there[0], 0);
	/* To cancel the message is an end of it, too. */
	KUNIT_EXPECT_EQ(test, kfi_cancel(&ep->fid, w), 0);
	failed(test, &w->ends[0], w, KFI_ECANCELED);
	completed(test, &w->ends[0], &w->rma, KFI_RMA | KFI_WRITE, 0);
	completed(test, &w->ends[0], &w->msg, SENT, 0);
	completed(test, &w->ends[1], w->there, RECEIVED, 8);
	KUNIT_EXPECT_EQ(test, w->there[0], 'f');
	world_close(test, w);
}

/* Operations with KFI_MORE are those without, and so is the last one. */
static void more_changes_nothing(struct kunit *test)
{
	struct world *w = world_open(test, CAPS);
	struct kfi_msg into = w->msg;
	struct kvec iov;
	int i;

	into.msg_iov = &iov;
	into.addr = KFI_ADDR_UNSPEC;
	for (i = 0; i < 4; i++) {
		iov = (struct kvec){ w->there + 8 * i, 8 };
		into.context = w->there + 8 * i;
		KUNIT_EXPECT_EQ(test, kfi_recvmsg(w->ends[1].ep, &into, i < 3 ? KFI_MORE : 0), 0);
	}
	for (i = 0; i < 4; i++) {
		w->here[0] = 'a' + i;
		w->msg.context = w->here + i;
		KUNIT_EXPECT_EQ(test, kfi_sendmsg(w->ends[0].ep, &w->msg, KFI_MORE | KFI_INJECT),
				0);
	}
	w->piece.addr = 64;
	KUNIT_EXPECT_EQ(test, kfi_writemsg(w->ends[0].ep, &w->rma, KFI_MORE), 0);
	for (i = 0; i < 4; i++) {
		completed(test, &w->ends[1], w->there + 8 * i, RECEIVED, 8);
		KUNIT_EXPECT_EQ(test, w->there[8 * i], 'a' + i);
		completed(test, &w->ends[0], w->here + i, SENT, 0);
	}
	completed(test, &w->ends[0], &w->rma, KFI_RMA | KFI_WRITE, 0);
	KUNIT_EXPECT_EQ(test, w->there[64], 'd');
	nothing(test, &w->ends[0]);
	nothing(test, &w->ends[1]);
	world_close(test, w);
}

CONSUMER("fences, and operations with more behind them",
	 KUNIT_CASE(a_fence_is_refused_while_a_message_waits),
	 KUNIT_CASE(a_fence_waits_in_a_softirq),
	 KUNIT_CASE(more_changes_nothing));
