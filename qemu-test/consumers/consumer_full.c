// SPDX-License-Identifier: GPL-2.0
/*
 * Full completion queues: completions without a post are lost, which -KFI_EOVERRUN and
 * the handler tell; the release of a buffer is not.
 */

#include <linux/uio.h>

#include <kfi/kfi_rma.h>

#include "pair.h"

/* The completions that the queue holds. */
#define SIZE		4

#define SENT		(KFI_MSG | KFI_SEND)
#define RECEIVED	(KFI_MSG | KFI_RECV)
#define WRITTEN		(KFI_RMA | KFI_WRITE)
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

static void full_open(struct kunit *test, struct full *full)
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
	end_open_with(test, &full->f, info, full->small, 0, &attr, on_completion, full);
	kfi_freeinfo(info);
	for (i = 0; i < 2; i++) {
		KUNIT_ASSERT_EQ(test, kfi_enable(full->ends[i].ep), 0);
		full->bufs[i] = zeroed_page(test);
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

/* A loss calls the handler, although there is no entry. Posted operations complete. */
static void a_loss_calls_the_handler(struct kunit *test)
{
	struct full *full = zeroed(test, sizeof(*full));
	struct kfi_cq_tagged_entry entry[2];
	struct kfid_cq *cq;

	full_open(test, full);
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
	/* Another loss is told to a call that waits, once. */
	KUNIT_EXPECT_EQ(test, post(full, 0), 0);
	write_data(test, full, 3);
	KUNIT_EXPECT_EQ(test, kfi_cq_sread(cq, entry, 1, NULL, LONG), -KFI_EOVERRUN);
	KUNIT_EXPECT_EQ(test, kfi_cq_sread(cq, entry, 1, NULL, 1), -KFI_EAGAIN);
	full_close(test, full);
}

/* Of a multi-receive buffer, the release has room. Lost parts are in the buffer all the same. */
static void the_release_of_a_buffer_is_not_lost(struct kunit *test)
{
	struct full *full = zeroed(test, sizeof(*full));
	struct kvec iov = { .iov_len = 8 * (SIZE + 1) };
	struct kfi_msg msg = { .type = KFI_KVEC, .msg_iov = &iov, .iov_count = 1 };
	struct kfi_cq_tagged_entry entry;
	size_t least = 8;
	u64 number;
	u8 *part;

	full_open(test, full);
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

CONSUMER("completion queues that are full",
	 KUNIT_CASE(a_loss_calls_the_handler),
	 KUNIT_CASE(the_release_of_a_buffer_is_not_lost));
