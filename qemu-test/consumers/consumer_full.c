// SPDX-License-Identifier: GPL-2.0
/*
 * Full completion queues: posts are refused, completions without a post are lost
 * and reported as -KFI_EOVERRUN, and failures are not lost.
 */

#include <linux/delay.h>
#include <linux/gfp.h>
#include <linux/uio.h>

#include <kfi/kfi_rma.h>

#include "pair.h"

/* The completions that the queue holds. */
#define SIZE		4

#define SENT		(KFI_MSG | KFI_SEND)
#define RECEIVED	(KFI_MSG | KFI_RECV)
#define WRITTEN		(KFI_RMA | KFI_WRITE)
#define DATA		(KFI_RMA | KFI_REMOTE_WRITE | KFI_REMOTE_CQ_DATA)
#define KEY		7

/**
 * struct full - two ends, of which the second one has a small queue
 * @f: their domain
 * @ends: the ends
 * @small: the second one
 * @mrs: a region of each end: all of its @bufs, for writes of the other one
 * @bufs: a page of each end
 * @calls: calls of the handler of the small queue
 */
struct full {
	struct fixture	f;
	struct end	ends[2];
	struct end	*small;
	struct kfid_mr	*mrs[2];
	u8		*bufs[2];
	atomic_t	calls;
};

static void on_completion(struct kfid_cq *cq, void *context)
{
	struct full *full = context;

	atomic_inc(&full->calls);
}

/* Opens the ends. With @silent, only failures of the small queue's transmits are entries. */
static void full_open(struct kunit *test, struct full *full, bool silent)
{
	struct kfi_cq_attr attr = {
		.size = SIZE,
		.format = KFI_CQ_FORMAT_TAGGED,
		.wait_obj = KFI_WAIT_UNSPEC,
	};
	struct kfi_info *info;
	int i;

	full->small = &full->ends[1];
	fixture_open(test, &full->f);
	info = entry_of(test, KFI_EP_RDM);
	end_open(test, &full->f, info, &full->ends[0], 0);
	if (silent)
		info->tx_attr->op_flags = 0;
	end_open_with(test, &full->f, info, full->small, silent ? KFI_SELECTIVE_COMPLETION : 0,
		      &attr, on_completion, full);
	kfi_freeinfo(info);
	for (i = 0; i < 2; i++) {
		KUNIT_ASSERT_EQ(test, kfi_enable(full->ends[i].ep), 0);
		full->bufs[i] = (u8 *)get_zeroed_page(GFP_KERNEL);
		KUNIT_ASSERT_NOT_NULL(test, full->bufs[i]);
		KUNIT_ASSERT_EQ(test, kfi_mr_reg(full->f.domain, full->bufs[i], PAGE_SIZE,
						 KFI_REMOTE_WRITE, 0, KEY + i, 0, &full->mrs[i],
						 NULL), 0);
	}
	for (i = 0; i < 2; i++)
		end_knows(test, &full->ends[i], &full->ends[!i]);
}

static void full_close(struct kunit *test, struct full *full)
{
	int i;

	for (i = 0; i < 2; i++)
		KUNIT_EXPECT_EQ(test, kfi_close(&full->mrs[i]->fid), 0);
	pair_close(test, &full->f, full->ends);
	for (i = 0; i < 2; i++)
		free_page((unsigned long)full->bufs[i]);
}

/* Posts a receive of 8 bytes to the small queue's endpoint. */
static ssize_t post(struct full *full, int number)
{
	u8 *buf = full->bufs[1] + 8 * number;

	return kfi_recv(full->small->ep, buf, 8, NULL, 0, buf);
}

/* Fills the small queue with receives; one more is refused. */
static void fill(struct kunit *test, struct full *full)
{
	int i;

	for (i = 0; i < SIZE; i++)
		KUNIT_EXPECT_EQ(test, post(full, i), 0);
	KUNIT_EXPECT_EQ(test, post(full, SIZE), -KFI_EAGAIN);
}

/* Writes with data to the small queue's end, and waits until that has succeeded. */
static void write_data(struct kunit *test, struct full *full, u64 data)
{
	struct end *end = &full->ends[0];

	KUNIT_EXPECT_EQ(test, kfi_writedata(end->ep, full->bufs[0], 8, NULL, data, end->peer, 0,
					    KEY + 1, full), 0);
	completed(test, end, full, WRITTEN, 0);
}

/* The handler has been called @wanted times, and is not called again. */
static void calls_are(struct kunit *test, struct full *full, int wanted)
{
	KUNIT_EXPECT_EQ(test, reach(&full->calls, wanted), wanted);
	msleep(50);
	KUNIT_EXPECT_EQ(test, atomic_read(&full->calls), wanted);
}

/* Operations that are under way and entries that are not read take room. */
static void posts_without_room_are_refused(struct kunit *test)
{
	struct full *full = kunit_kzalloc(test, sizeof(*full), GFP_KERNEL);
	struct kfid_ep *ep;
	int i;

	KUNIT_ASSERT_NOT_NULL(test, full);
	full_open(test, full, false);
	ep = full->small->ep;
	fill(test, full);
	/* Both sides have the queue. An operation without an entry needs no room. */
	KUNIT_EXPECT_EQ(test, kfi_send(ep, full->bufs[1], 8, NULL, full->small->peer, full),
			-KFI_EAGAIN);
	KUNIT_EXPECT_EQ(test, kfi_recv(full->ends[0].ep, full->bufs[0], 8, NULL, 0, full), 0);
	KUNIT_EXPECT_EQ(test, kfi_inject(ep, "silent", 7, full->small->peer), 0);
	completed(test, &full->ends[0], full, RECEIVED, 7);
	/* An error entry has the room of its operation. */
	KUNIT_EXPECT_EQ(test, kfi_cancel(&ep->fid, full->bufs[1]), 0);
	KUNIT_EXPECT_EQ(test, post(full, SIZE), -KFI_EAGAIN);
	failed(test, full->small, full->bufs[1], KFI_ECANCELED);
	KUNIT_EXPECT_EQ(test, post(full, SIZE), 0);
	/* So does an entry. */
	for (i = 0; i < SIZE; i++)
		KUNIT_EXPECT_EQ(test, kfi_inject(full->ends[0].ep, "8 bytes", 8,
						 full->ends[0].peer), 0);
	KUNIT_EXPECT_EQ(test, kfi_cntr_wait(full->small->received, SIZE, LONG), 0);
	KUNIT_EXPECT_EQ(test, post(full, 0), -KFI_EAGAIN);
	completed(test, full->small, full->bufs[1] + 8, RECEIVED, 8);
	KUNIT_EXPECT_EQ(test, post(full, 0), 0);
	KUNIT_EXPECT_EQ(test, post(full, 1), -KFI_EAGAIN);
	/* Nothing was lost. */
	for (i = 2; i <= SIZE; i++)
		completed(test, full->small, full->bufs[1] + 8 * i, RECEIVED, 8);
	nothing(test, full->small);
	full_close(test, full);
}

/* What peers report is lost if there is no room. The next read behind the entries says that. */
static void lost_completions_are_told_once(struct kunit *test)
{
	struct full *full = kunit_kzalloc(test, sizeof(*full), GFP_KERNEL);
	struct kfi_cq_tagged_entry entries[SIZE + 2];
	struct kfi_cq_err_entry error = {};
	struct kfid_cntr *cntr;
	struct kfid_cq *cq;
	int i;

	KUNIT_ASSERT_NOT_NULL(test, full);
	full_open(test, full, false);
	cq = full->small->cq;
	cntr = open_cntr(test, &full->f, KFI_WAIT_UNSPEC, NULL, NULL);
	KUNIT_ASSERT_EQ(test, kfi_mr_bind(full->mrs[1], &cntr->fid, KFI_REMOTE_WRITE), 0);
	/* A read finds the queue empty before the loss. */
	nothing(test, full->small);
	for (i = 0; i < SIZE + 2; i++)
		write_data(test, full, i);
	/* The writes have arrived and are counted. */
	KUNIT_EXPECT_EQ(test, kfi_cntr_wait(cntr, SIZE + 2, LONG), 0);
	KUNIT_EXPECT_EQ(test, kfi_cq_readerr(cq, &error, 0), -KFI_EAGAIN);
	KUNIT_EXPECT_EQ(test, kfi_cq_read(cq, entries, SIZE + 2), SIZE);
	for (i = 0; i < SIZE; i++) {
		KUNIT_EXPECT_EQ(test, entries[i].flags, DATA);
		KUNIT_EXPECT_EQ(test, entries[i].data, i);
	}
	KUNIT_EXPECT_EQ(test, kfi_cq_read(cq, entries, SIZE + 2), -KFI_EOVERRUN);
	nothing(test, full->small);
	KUNIT_EXPECT_EQ(test, kfi_cq_readerr(cq, &error, 0), -KFI_EAGAIN);
	/* There is room again, for this and for operations. */
	write_data(test, full, 77);
	KUNIT_EXPECT_EQ(test, kfi_cq_read(cq, entries, SIZE + 2), 1);
	KUNIT_EXPECT_EQ(test, entries[0].data, 77);
	nothing(test, full->small);
	fill(test, full);
	/* A second loss is reported, too, here by a call that waits. */
	write_data(test, full, 88);
	KUNIT_EXPECT_EQ(test, kfi_cq_sread(cq, entries, 1, NULL, LONG), -KFI_EOVERRUN);
	KUNIT_EXPECT_EQ(test, kfi_cq_sread(cq, entries, 1, NULL, 1), -KFI_ETIMEDOUT);
	/* The region keeps the counter open. full_close() closes a region. */
	CLOSE(test, &full->mrs[1]->fid, &cntr->fid);
	KUNIT_ASSERT_EQ(test, kfi_mr_reg(full->f.domain, full->bufs[1], 8, KFI_REMOTE_WRITE, 0,
					 KEY + 1, 0, &full->mrs[1], NULL), 0);
	full_close(test, full);
}

/* A loss calls the handler, although there is no entry. Posted operations complete. */
static void a_loss_calls_the_handler(struct kunit *test)
{
	struct full *full = kunit_kzalloc(test, sizeof(*full), GFP_KERNEL);
	struct kfi_cq_tagged_entry entry[2];
	struct kfid_cq *cq;

	KUNIT_ASSERT_NOT_NULL(test, full);
	full_open(test, full, false);
	cq = full->small->cq;
	fill(test, full);
	calls_are(test, full, 0);
	write_data(test, full, 1);
	calls_are(test, full, 1);
	write_data(test, full, 2);
	calls_are(test, full, 1);
	KUNIT_EXPECT_EQ(test, kfi_cq_read(cq, entry, 2), -KFI_EOVERRUN);
	KUNIT_EXPECT_EQ(test, kfi_cq_read(cq, entry, 2), -KFI_EAGAIN);
	KUNIT_EXPECT_EQ(test, kfi_inject(full->ends[0].ep, "8 bytes", 8, full->ends[0].peer), 0);
	calls_are(test, full, 2);
	KUNIT_EXPECT_EQ(test, kfi_cq_read(cq, entry, 2), 1);
	KUNIT_EXPECT_PTR_EQ(test, entry[0].op_context, full->bufs[1]);
	full_close(test, full);
}

/* Of a multi-receive buffer, the release has room. Lost parts are in the buffer all the same. */
static void the_release_of_a_buffer_is_not_lost(struct kunit *test)
{
	struct full *full = kunit_kzalloc(test, sizeof(*full), GFP_KERNEL);
	struct kvec iov = { .iov_len = 8 * (SIZE + 1) };
	struct kfi_msg msg = { .type = KFI_KVEC, .msg_iov = &iov, .iov_count = 1 };
	struct kfi_cq_tagged_entry entry;
	size_t least = 8;
	u64 number;
	u8 *part;

	KUNIT_ASSERT_NOT_NULL(test, full);
	full_open(test, full, false);
	iov.iov_base = full->bufs[1];
	msg.context = full;
	KUNIT_EXPECT_EQ(test, kfi_setopt(&full->small->ep->fid, KFI_OPT_ENDPOINT,
					 KFI_OPT_MIN_MULTI_RECV, &least, sizeof(least)), 0);
	KUNIT_EXPECT_EQ(test, kfi_recvmsg(full->small->ep, &msg, KFI_MULTI_RECV | KFI_COMPLETION),
			0);
	for (number = 0; number <= SIZE; number++) {
		memcpy(full->bufs[0], &number, 8);
		KUNIT_EXPECT_EQ(test, kfi_send(full->ends[0].ep, full->bufs[0], 8, NULL,
					       full->ends[0].peer, full), 0);
		completed(test, &full->ends[0], full, SENT, 8);
	}
	for (number = 0; number <= SIZE; number++) {
		part = full->bufs[1] + 8 * number;
		KUNIT_EXPECT_MEMEQ(test, part, &number, 8);
		/* The last but one is lost. */
		if (number == SIZE - 1)
			continue;
		entry = completed(test, full->small, full,
				  RECEIVED | (number == SIZE ? KFI_MULTI_RECV : 0), 8);
		KUNIT_EXPECT_PTR_EQ(test, (u8 *)entry.buf, part);
	}
	KUNIT_EXPECT_EQ(test, kfi_cq_read(full->small->cq, &entry, 1), -KFI_EOVERRUN);
	nothing(test, full->small);
	full_close(test, full);
}

/* An operation whose success is silent needs no room, but its failure is an entry. */
static void a_silent_operation_that_fails_is_told(struct kunit *test)
{
	struct full *full = kunit_kzalloc(test, sizeof(*full), GFP_KERNEL);
	struct kfid_ep *ep;
	int i, contexts[3];

	KUNIT_ASSERT_NOT_NULL(test, full);
	full_open(test, full, true);
	ep = full->small->ep;
	fill(test, full);
	KUNIT_EXPECT_EQ(test, kfi_write(ep, full->bufs[1], 8, NULL, full->small->peer, 0, KEY,
					full), 0);
	nothing(test, full->small);
	for (i = 0; i < ARRAY_SIZE(contexts); i++)
		KUNIT_EXPECT_EQ(test, kfi_write(ep, full->bufs[1], 8, NULL, full->small->peer, 0,
						KEY + 2, &contexts[i]), 0);
	for (i = 0; i < ARRAY_SIZE(contexts); i++)
		failed(test, full->small, &contexts[i], KFI_EACCES);
	nothing(test, full->small);
	KUNIT_EXPECT_EQ(test, post(full, SIZE), -KFI_EAGAIN);
	full_close(test, full);
}

CONSUMER("completion queues that are full",
	 KUNIT_CASE(posts_without_room_are_refused),
	 KUNIT_CASE(lost_completions_are_told_once),
	 KUNIT_CASE(a_loss_calls_the_handler),
	 KUNIT_CASE(the_release_of_a_buffer_is_not_lost),
	 KUNIT_CASE(a_silent_operation_that_fails_is_told));
