// SPDX-License-Identifier: GPL-2.0
/*
 * Tagged RMA: writes and reads of the memory of posted tagged receives, what
 * the completions of both sides say, and the checks of the calls.
 */

#include <linux/bvec.h>
#include <linux/scatterlist.h>
#include <linux/uio.h>

#include <kfi/kfi_rma.h>

#include "pair.h"

/* The flags that kfilnd compares with. */
#define WRITE_OUT	(KFI_TAGGED | KFI_RMA | KFI_WRITE | KFI_SEND)
#define WRITE_IN	(KFI_TAGGED | KFI_RMA | KFI_WRITE | KFI_RECV)
#define READ_OUT	(KFI_TAGGED | KFI_RMA | KFI_READ | KFI_SEND)
#define READ_IN		(KFI_TAGGED | KFI_RMA | KFI_READ | KFI_RECV)

#define CAPS		(KFI_MSG | KFI_RMA | KFI_TAGGED | KFI_TAGGED_RMA | KFI_DIRECTED_RECV | \
			 KFI_SOURCE)
#define ROOM		(4 * PAGE_SIZE)

/**
 * struct setup - two endpoints, and memory of each
 * @f: their domain
 * @ends: the endpoints
 * @here: memory of the first, which posts RMA
 * @there: memory of the second, which posts receives
 */
struct setup {
	struct fixture	f;
	struct end	ends[2];
	u8		*here;
	u8		*there;
};

static void setup_open(struct kunit *test, struct setup *s)
{
	pair_open_from(test, &s->f, entry_with(test, KFI_EP_RDM, CAPS), s->ends, 0);
	s->here = (u8 *)__get_free_pages(GFP_KERNEL | __GFP_ZERO, 2);
	s->there = (u8 *)__get_free_pages(GFP_KERNEL | __GFP_ZERO, 2);
	KUNIT_ASSERT_NOT_NULL(test, s->here);
	KUNIT_ASSERT_NOT_NULL(test, s->there);
}

static void setup_close(struct kunit *test, struct setup *s)
{
	pair_close(test, &s->f, s->ends);
	free_pages((unsigned long)s->here, 2);
	free_pages((unsigned long)s->there, 2);
}

/* Posts a receive of @len bytes with the context @s->there. */
static void receive(struct kunit *test, struct setup *s, size_t len, u64 tag)
{
	KUNIT_EXPECT_EQ(test, kfi_trecv(s->ends[1].ep, s->there, len, NULL, KFI_ADDR_UNSPEC, tag,
					0, s->there), 0);
}

/**
 * struct access - a write or a read, as kfilnd posts it
 * @iov: the local memory
 * @remote: the memory of the receive: @remote.key is the tag
 * @msg: both
 */
struct access {
	struct kvec		iov;
	struct kfi_rma_iov	remote;
	struct kfi_msg_rma	msg;
};

static void access_init(struct access *a, struct setup *s, size_t len, u64 tag)
{
	*a = (struct access){
		.iov = { s->here, len },
		.remote = { .len = len, .key = tag },
		.msg = {
			.type = KFI_KVEC,
			.msg_iov = &a->iov,
			.iov_count = 1,
			.addr = s->ends[0].peer,
			.rma_iov = &a->remote,
			.rma_iov_count = 1,
			.context = s->here,
		},
	};
}

static ssize_t post(struct setup *s, struct access *a, bool read, u64 flags)
{
	flags |= KFI_TAGGED | KFI_COMPLETION;
	if (read)
		return kfi_readmsg(s->ends[0].ep, &a->msg, flags);
	return kfi_writemsg(s->ends[0].ep, &a->msg, flags);
}

/* Posts a write or a read of @len bytes. */
static void access(struct kunit *test, struct setup *s, bool read, size_t len, u64 tag)
{
	struct access a;

	access_init(&a, s, len, tag);
	KUNIT_EXPECT_EQ(test, post(s, &a, read, 0), 0);
}

/* Every length: inline, copied, of several pages, and none. */
static void receives_are_written_and_read(struct kunit *test)
{
	static const size_t lengths[] = { 0, 1, 256, 257, PAGE_SIZE + 1, ROOM };
	struct kfi_cq_tagged_entry entry;
	struct setup s;
	int i;

	setup_open(test, &s);
	for (i = 0; i < ARRAY_SIZE(lengths); i++) {
		size_t len = lengths[i];
		u64 tag = ~0ULL - i;

		memset(s.here, 'a' + i, ROOM);
		memset(s.there, 0, ROOM);
		receive(test, &s, ROOM, tag);
		access(test, &s, false, len, tag);
		completed(test, &s.ends[0], s.here, WRITE_OUT, 0);
		entry = completed(test, &s.ends[1], s.there, WRITE_IN, len);
		KUNIT_EXPECT_EQ(test, entry.tag, tag);
		KUNIT_EXPECT_MEMEQ(test, s.there, s.here, len);
		KUNIT_EXPECT_TRUE(test, len == ROOM || !s.there[len]);

		memset(s.there, 'A' + i, ROOM);
		receive(test, &s, ROOM, tag);
		access(test, &s, true, len, tag);
		completed(test, &s.ends[0], s.here, READ_OUT, 0);
		entry = completed(test, &s.ends[1], s.there, READ_IN, len);
		KUNIT_EXPECT_EQ(test, entry.tag, tag);
		KUNIT_EXPECT_MEMEQ(test, s.here, s.there, len);
		KUNIT_EXPECT_TRUE(test, len == ROOM || s.here[len] == 'a' + i);
	}
	/* A receive is used up, whatever is left of it. */
	access(test, &s, false, 8, ~0ULL);
	failed(test, &s.ends[0], s.here, KFI_EREMOTEIO);
	/* Each counts as a receive at the target, and not as a send here. */
	KUNIT_EXPECT_EQ(test, kfi_cntr_read(s.ends[1].received), 2 * ARRAY_SIZE(lengths));
	KUNIT_EXPECT_EQ(test, kfi_cntr_read(s.ends[0].sent), 0);
	nothing(test, &s.ends[0]);
	nothing(test, &s.ends[1]);
	setup_close(test, &s);
}

/* The address is an offset in the memory of the receive. */
static void an_offset_selects_a_part(struct kunit *test)
{
	struct access a;
	struct setup s;

	setup_open(test, &s);
	memset(s.here, 'x', 100);
	receive(test, &s, PAGE_SIZE, 1);
	access_init(&a, &s, 100, 1);
	a.remote.addr = PAGE_SIZE - 100;
	KUNIT_EXPECT_EQ(test, post(&s, &a, false, 0), 0);
	completed(test, &s.ends[0], s.here, WRITE_OUT, 0);
	completed(test, &s.ends[1], s.there, WRITE_IN, 100);
	KUNIT_EXPECT_EQ(test, s.there[PAGE_SIZE - 101], 0);
	KUNIT_EXPECT_MEMEQ(test, s.there + PAGE_SIZE - 100, s.here, 100);
	s.there[7] = 'y';
	receive(test, &s, PAGE_SIZE, 1);
	access_init(&a, &s, 1, 1);
	a.remote.addr = 7;
	KUNIT_EXPECT_EQ(test, post(&s, &a, true, 0), 0);
	completed(test, &s.ends[0], s.here, READ_OUT, 0);
	completed(test, &s.ends[1], s.there, READ_IN, 1);
	KUNIT_EXPECT_EQ(test, s.here[0], 'y');
	/* Behind the end there are no bytes. */
	receive(test, &s, PAGE_SIZE, 1);
	a.remote.addr = 1 << 30;
	KUNIT_EXPECT_EQ(test, post(&s, &a, true, 0), 0);
	failed(test, &s.ends[0], s.here, KFI_EMSGSIZE);
	KUNIT_EXPECT_EQ(test, failed(test, &s.ends[1], s.there, KFI_EMSGSIZE).olen, 1);
	setup_close(test, &s);
}

/* Each form of a list, on both sides. */
static void lists_are_gathered_and_scattered(struct kunit *test)
{
	struct kfi_msg_tagged msg = { .iov_count = 2, .addr = KFI_ADDR_UNSPEC };
	struct scatterlist sgl[2], sgl_there[2];
	struct bio_vec biov[2], biov_there[2];
	struct kvec iov[2], iov_there[2];
	struct access a;
	struct setup s;
	int form, i;

	setup_open(test, &s);
	sg_init_table(sgl, 2);
	sg_init_table(sgl_there, 2);
	for (i = 0; i < 2; i++) {
		u8 *part = s.here + 2048 * i, *part_there = s.there + 3000 * i;

		iov[i] = (struct kvec){ part, 700 };
		iov_there[i] = (struct kvec){ part_there, i ? 1000 : 400 };
		bvec_set_virt(&biov[i], part, 700);
		bvec_set_virt(&biov_there[i], part_there, i ? 1000 : 400);
		sg_set_buf(&sgl[i], part, 700);
		sg_set_buf(&sgl_there[i], part_there, i ? 1000 : 400);
	}
	msg.context = s.there;
	for (form = 0; form < 6; form++) {
		bool read = form & 1;

		memset(s.here, read ? 0 : '0' + form, ROOM);
		memset(s.there, read ? '0' + form : 0, ROOM);
		access_init(&a, &s, 1400, 5);
		a.msg.iov_count = 2;
		switch (form / 2) {
		case 0:
			msg.type = KFI_KVEC;
			msg.msg_iov = iov_there;
			a.msg.msg_iov = iov;
			break;
		case 1:
			msg.type = KFI_BVEC;
			msg.msg_biov = biov_there;
			a.msg.msg_biov = biov;
			break;
		default:
			msg.type = KFI_SGL;
			msg.msg_sgl = sgl_there;
			a.msg.msg_sgl = sgl;
		}
		a.msg.type = msg.type;
		msg.tag = 5;
		KUNIT_EXPECT_EQ(test, kfi_trecvmsg(s.ends[1].ep, &msg, KFI_COMPLETION), 0);
		KUNIT_EXPECT_EQ(test, post(&s, &a, read, 0), 0);
		completed(test, &s.ends[0], s.here, read ? READ_OUT : WRITE_OUT, 0);
		completed(test, &s.ends[1], s.there, read ? READ_IN : WRITE_IN, 1400);
		for (i = 0; i < 2; i++)
			KUNIT_EXPECT_MEMEQ(test, s.here + 2048 * i, s.there + 3000 * i, 400);
		KUNIT_EXPECT_EQ(test, s.here[2048 + 699], s.there[3999]);
		/* No byte behind the end of the destination. */
		KUNIT_EXPECT_EQ(test, read ? s.here[2048 + 700] : s.there[4000], 0);
	}
	setup_close(test, &s);
}

static void a_write_brings_data(struct kunit *test)
{
	struct kfi_cq_tagged_entry entry;
	struct access a;
	struct setup s;

	setup_open(test, &s);
	receive(test, &s, 8, 4);
	access_init(&a, &s, 8, 4);
	a.msg.data = 0x1234;
	KUNIT_EXPECT_EQ(test, post(&s, &a, false, KFI_REMOTE_CQ_DATA), 0);
	completed(test, &s.ends[0], s.here, WRITE_OUT, 0);
	entry = completed(test, &s.ends[1], s.there, WRITE_IN | KFI_REMOTE_CQ_DATA, 8);
	KUNIT_EXPECT_EQ(test, entry.data, 0x1234);
	/* Injected bytes may change at once. */
	memset(s.here, 'i', 8);
	receive(test, &s, 8, 4);
	KUNIT_EXPECT_EQ(test, post(&s, &a, false, KFI_INJECT), 0);
	memset(s.here, 0, 8);
	completed(test, &s.ends[0], s.here, WRITE_OUT, 0);
	completed(test, &s.ends[1], s.there, WRITE_IN, 8);
	KUNIT_EXPECT_EQ(test, s.there[7], 'i');
	setup_close(test, &s);
}

static void arguments_are_checked(struct kunit *test)
{
	struct kfi_rma_iov two[2] = { { .len = 4, .key = 1 }, { .len = 4, .key = 1 } };
	struct kfi_msg msg = { .type = KFI_KVEC };
	struct access a;
	struct setup s;
	int read;

	setup_open(test, &s);
	receive(test, &s, 8, 1);
	for (read = 0; read < 2; read++) {
		access_init(&a, &s, 8, 1);
		a.msg.rma_iov = two;
		a.msg.rma_iov_count = 2;
		KUNIT_EXPECT_EQ(test, post(&s, &a, read, 0), -KFI_EINVAL);
		access_init(&a, &s, 8, 1);
		a.remote.len = 9;
		KUNIT_EXPECT_EQ(test, post(&s, &a, read, 0), -KFI_EINVAL);
		a.remote.len = 8;
		a.remote.addr = (1ULL << 30) + 1;
		KUNIT_EXPECT_EQ(test, post(&s, &a, read, 0), -KFI_EINVAL);
		a.remote.addr = 1ULL << 32;
		KUNIT_EXPECT_EQ(test, post(&s, &a, read, 0), -KFI_EINVAL);
		a.remote.addr = 0;
		a.msg.addr = 77;
		KUNIT_EXPECT_EQ(test, post(&s, &a, read, 0), -KFI_ENOENT);
	}
	access_init(&a, &s, 8, 1);
	KUNIT_EXPECT_EQ(test, post(&s, &a, true, KFI_REMOTE_CQ_DATA), -KFI_EINVAL);
	msg.addr = s.ends[0].peer;
	KUNIT_EXPECT_EQ(test, kfi_sendmsg(s.ends[0].ep, &msg, KFI_TAGGED), -KFI_EINVAL);
	nothing(test, &s.ends[0]);
	nothing(test, &s.ends[1]);
	setup_close(test, &s);
}

static int post_both(void *arg)
{
	struct setup *s = arg;
	struct access a;
	int ret;

	access_init(&a, s, PAGE_SIZE, 1);
	ret = post(s, &a, false, 0);
	access_init(&a, s, PAGE_SIZE, 2);
	return ret ?: post(s, &a, true, 0);
}

static void posts_need_not_sleep(struct kunit *test)
{
	struct setup s;

	setup_open(test, &s);
	receive(test, &s, PAGE_SIZE, 1);
	receive(test, &s, PAGE_SIZE, 2);
	KUNIT_EXPECT_EQ(test, call_in_softirq(post_both, &s), 0);
	completed(test, &s.ends[0], s.here, WRITE_OUT, 0);
	completed(test, &s.ends[0], s.here, READ_OUT, 0);
	completed(test, &s.ends[1], s.there, WRITE_IN, PAGE_SIZE);
	completed(test, &s.ends[1], s.there, READ_IN, PAGE_SIZE);
	setup_close(test, &s);
}

CONSUMER("tagged RMA",
	 KUNIT_CASE(receives_are_written_and_read),
	 KUNIT_CASE(an_offset_selects_a_part),
	 KUNIT_CASE(lists_are_gathered_and_scattered),
	 KUNIT_CASE(a_write_brings_data),
	 KUNIT_CASE(arguments_are_checked),
	 KUNIT_CASE(posts_need_not_sleep));
