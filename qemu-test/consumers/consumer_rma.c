// SPDX-License-Identifier: GPL-2.0
/*
 * Remote memory access: every form of reads and writes, what their completions
 * say, refused accesses, refreshes of a region, posts from a softirq, and a region
 * that is closed while a peer writes to it.
 */

#include <linux/bvec.h>
#include <linux/scatterlist.h>
#include <linux/uio.h>

#include <kfi/kfi_rma.h>

#include "pair.h"

#define WRITTEN	(KFI_RMA | KFI_WRITE)
#define READ_	(KFI_RMA | KFI_READ)
#define REMOTE	(KFI_REMOTE_READ | KFI_REMOTE_WRITE)
#define KEY	7
#define ROOM	PAGE_SIZE

/**
 * struct target - two endpoints, and a region of the second for the first
 * @f: their domain
 * @ends: the endpoints
 * @mr: the region: all of @there
 * @here: memory of the first
 * @there: memory of the second
 */
struct target {
	struct fixture	f;
	struct end	ends[2];
	struct kfid_mr	*mr;
	u8		*here;
	u8		*there;
};

static void target_open(struct kunit *test, struct target *t, u64 access)
{
	pair_open(test, &t->f, KFI_EP_RDM, t->ends);
	t->here = zeroed_page(test);
	t->there = zeroed_page(test);
	KUNIT_ASSERT_EQ(test, kfi_mr_reg(t->f.domain, t->there, ROOM, access, 0, KEY, 0, &t->mr,
					 NULL), 0);
}

static void target_close(struct kunit *test, struct target *t)
{
	KUNIT_EXPECT_EQ(test, kfi_close(&t->mr->fid), 0);
	pair_close(test, &t->f, t->ends);
}

static void bytes_are_written_and_read(struct kunit *test)
{
	static const size_t lengths[] = { 1, 8, 256, 257, ROOM };
	struct kfid_ep *ep;
	struct target t;
	int i;

	target_open(test, &t, REMOTE);
	ep = t.ends[0].ep;
	for (i = 0; i < ARRAY_SIZE(lengths); i++) {
		size_t len = lengths[i], at = ROOM - len;
		void *desc = kfi_mr_desc(t.mr);

		memset(t.here, 'a' + i, ROOM);
		KUNIT_EXPECT_EQ(test, kfi_write(ep, t.here, len, desc, t.ends[0].peer, at, KEY, &i),
				0);
		completed(test, &t.ends[0], &i, WRITTEN, 0);
		KUNIT_EXPECT_MEMEQ(test, t.there + at, t.here, len);
		memset(t.here, 0, ROOM);
		KUNIT_EXPECT_EQ(test, kfi_read(ep, t.here, len, NULL, t.ends[0].peer, at, KEY, &i),
				0);
		completed(test, &t.ends[0], &i, READ_, 0);
		KUNIT_EXPECT_MEMEQ(test, t.here, t.there + at, len);
	}
	nothing(test, &t.ends[0]);
	nothing(test, &t.ends[1]);
	target_close(test, &t);
}

/* Posts a write and a read with one form of a list. */
static void post_form(struct kunit *test, struct target *t, int form, struct kvec *iov,
		      struct bio_vec *biov, struct scatterlist *sgl)
{
	struct kfid_ep *ep = t->ends[0].ep;
	kfi_addr_t peer = t->ends[0].peer;
	struct kfi_rma_iov remote[] = {
		{ .addr = 0, .len = 1000, .key = KEY },
		{ .addr = 2000, .len = 400, .key = KEY },
	};
	struct kfi_msg_rma msg = {
		.iov_count = 2,
		.addr = peer,
		.rma_iov = remote,
		.rma_iov_count = 2,
		.context = t,
	};
	ssize_t (*post)(struct kfid_ep *ep, const struct kfi_msg_rma *msg, u64 flags);
	bool read = form & 1;

	switch (form / 2) {
	case 0:
		KUNIT_EXPECT_EQ(test, read ? kfi_readv(ep, iov, NULL, 2, peer, 0, KEY, t) :
				kfi_writev(ep, iov, NULL, 2, peer, 0, KEY, t), 0);
		return;
	case 1:
		KUNIT_EXPECT_EQ(test, read ? kfi_readbv(ep, biov, NULL, 2, peer, 0, KEY, t) :
				kfi_writebv(ep, biov, NULL, 2, peer, 0, KEY, t), 0);
		return;
	case 2:
		KUNIT_EXPECT_EQ(test, read ? kfi_readsgl(ep, sgl, NULL, 2, peer, 0, KEY, t) :
				kfi_writesgl(ep, sgl, NULL, 2, peer, 0, KEY, t), 0);
		return;
	case 3:
		msg.type = KFI_KVEC;
		msg.msg_iov = iov;
		break;
	case 4:
		msg.type = KFI_BVEC;
		msg.msg_biov = biov;
		break;
	default:
		msg.type = KFI_SGL;
		msg.msg_sgl = sgl;
	}
	post = read ? kfi_readmsg : kfi_writemsg;
	KUNIT_EXPECT_EQ(test, post(ep, &msg, KFI_COMPLETION), 0);
}

/* The bytes of two elements that are not neighbours, in each form of a list. */
static void lists_are_gathered_and_scattered(struct kunit *test)
{
	struct scatterlist sgl[2];
	struct bio_vec biov[2];
	struct kvec iov[2];
	struct target t;
	int form, i;

	target_open(test, &t, REMOTE);
	sg_init_table(sgl, 2);
	for (i = 0; i < 2; i++) {
		u8 *part = t.here + 2048 * i;

		iov[i] = (struct kvec){ part, 700 };
		bvec_set_virt(&biov[i], part, 700);
		sg_set_buf(&sgl[i], part, 700);
	}
	for (form = 0; form < 12; form++) {
		/* Where the second half is. With a msg form, the peer's memory is a list, too. */
		u8 *half = t.there + 700, *rest;

		if (form & 1) {
			memset(t.here, 0, ROOM);
		} else {
			memset(t.there, 0, ROOM);
			memset(t.here, '0' + form, 700);
			memset(t.here + 2048, 'a' + form, 700);
		}
		post_form(test, &t, form, iov, biov, sgl);
		completed(test, &t.ends[0], &t, form & 1 ? READ_ : WRITTEN, 0);
		KUNIT_EXPECT_MEMEQ(test, t.here, t.there, 700);
		KUNIT_EXPECT_MEMEQ(test, t.here + 2048, half, 300);
		rest = form < 6 ? half + 300 : t.there + 2000;
		KUNIT_EXPECT_MEMEQ(test, t.here + 2048 + 300, rest, 400);
		KUNIT_EXPECT_EQ(test, t.here[0], '0' + (form & ~1));
	}
	target_close(test, &t);
}

static void data_and_injected_bytes_arrive(struct kunit *test)
{
	struct kfi_cq_tagged_entry entry;
	struct kfid_cntr *cntr;
	struct kfid_ep *ep;
	kfi_addr_t peer;
	struct target t;
	u8 text[8] = "injected";

	target_open(test, &t, REMOTE);
	ep = t.ends[0].ep;
	peer = t.ends[0].peer;
	cntr = open_cntr(test, &t.f, KFI_WAIT_UNSPEC, NULL, NULL);
	KUNIT_ASSERT_EQ(test, kfi_mr_bind(t.mr, &cntr->fid, KFI_REMOTE_WRITE), 0);
	memset(t.here, 'x', 100);
	KUNIT_EXPECT_EQ(test, kfi_writedata(ep, t.here, 100, NULL, 0x1234, peer, 0, KEY, &t), 0);
	completed(test, &t.ends[0], &t, WRITTEN, 0);
	entry = completed(test, &t.ends[1], NULL, KFI_RMA | KFI_REMOTE_WRITE | KFI_REMOTE_CQ_DATA,
			  0);
	KUNIT_EXPECT_EQ(test, entry.data, 0x1234);
	/* Injected bytes may change at once. There is no completion of its own. */
	KUNIT_EXPECT_EQ(test, kfi_inject_write(ep, text, sizeof(text), peer, 200, KEY), 0);
	memset(text, 0, sizeof(text));
	KUNIT_EXPECT_EQ(test, kfi_inject_writedata(ep, "data", 4, 5, peer, 300, KEY), 0);
	entry = completed(test, &t.ends[1], NULL, KFI_RMA | KFI_REMOTE_WRITE | KFI_REMOTE_CQ_DATA,
			  0);
	KUNIT_EXPECT_EQ(test, entry.data, 5);
	KUNIT_EXPECT_EQ(test, kfi_cntr_wait(cntr, 3, LONG), 0);
	KUNIT_EXPECT_MEMEQ(test, t.there + 200, "injected", 8);
	KUNIT_EXPECT_MEMEQ(test, t.there + 300, "data", 4);
	KUNIT_EXPECT_EQ(test, kfi_inject_write(ep, t.here, 257, peer, 0, KEY), -KFI_EMSGSIZE);
	nothing(test, &t.ends[0]);
	nothing(test, &t.ends[1]);
	CLOSE(test, &t.mr->fid, &cntr->fid);
	KUNIT_ASSERT_EQ(test, kfi_mr_reg(t.f.domain, t.there, ROOM, REMOTE, 0, KEY, 0, &t.mr,
					 NULL), 0);
	target_close(test, &t);
}

static void refused_accesses_fail(struct kunit *test)
{
	struct kfid_ep *ep;
	kfi_addr_t peer;
	struct target t;

	target_open(test, &t, KFI_REMOTE_WRITE);
	ep = t.ends[0].ep;
	peer = t.ends[0].peer;
#define FAILS(call) do { \
	KUNIT_EXPECT_EQ(test, call, 0); \
	failed(test, &t.ends[0], &t, KFI_EACCES); \
} while (0)
	/* No right, no such key, bytes behind the end. */
	FAILS(kfi_read(ep, t.here, 8, NULL, peer, 0, KEY, &t));
	FAILS(kfi_write(ep, t.here, 8, NULL, peer, 0, KEY + 1, &t));
	FAILS(kfi_write(ep, t.here, 8, NULL, peer, ROOM - 7, KEY, &t));
	FAILS(kfi_write(ep, t.here, 8, NULL, peer, 0, KEY | 1ULL << 32, &t));
	KUNIT_EXPECT_EQ(test, t.there[ROOM - 1], 0);
	target_close(test, &t);
}

/* Whatever memory a refresh names, peers access the memory that was registered. */
static void a_refresh_changes_no_region(struct kunit *test)
{
	struct kfi_mr_modify modify = { .attr = { .type = KFI_BVEC, .iov_count = 1 } };
	struct scatterlist sgl;
	struct bio_vec biov;
	struct target t;
	struct kvec iov;
	int turn;

	target_open(test, &t, KFI_REMOTE_WRITE);
	iov = (struct kvec){ t.there, ROOM };
	bvec_set_virt(&biov, t.here, ROOM);
	sg_init_one(&sgl, t.here, ROOM);
	for (turn = 0; turn < 5; turn++) {
		switch (turn) {
		case 0:
			KUNIT_EXPECT_EQ(test, kfi_mr_refresh(t.mr, &iov, 1, 0), 0);
			break;
		case 1:
			/* All of it is somewhere else. */
			iov.iov_base = t.here;
			KUNIT_EXPECT_EQ(test, kfi_mr_refresh(t.mr, &iov, 1, 0), 0);
			break;
		case 2:
			KUNIT_EXPECT_EQ(test, kfi_mr_refresh(t.mr, NULL, 0, 0), 0);
			break;
		case 3:
			modify.attr.mr_biov = &biov;
			KUNIT_EXPECT_EQ(test, kfi_control(&t.mr->fid, KFI_REFRESH, &modify), 0);
			break;
		default:
			modify.attr.type = KFI_SGL;
			modify.attr.mr_sgl = &sgl;
			KUNIT_EXPECT_EQ(test, kfi_control(&t.mr->fid, KFI_REFRESH, &modify), 0);
		}
		KUNIT_EXPECT_EQ(test, kfi_mr_key(t.mr), KEY);
		memset(t.here, 'a' + turn, ROOM);
		KUNIT_EXPECT_EQ(test, kfi_write(t.ends[0].ep, t.here, ROOM, NULL, t.ends[0].peer, 0,
						KEY, &t), 0);
		completed(test, &t.ends[0], &t, WRITTEN, 0);
		KUNIT_EXPECT_MEMEQ(test, t.there, t.here, ROOM);
	}
	modify.attr.type = KFI_SGL + 1;
	KUNIT_EXPECT_EQ(test, kfi_control(&t.mr->fid, KFI_REFRESH, &modify), -KFI_EINVAL);
	KUNIT_EXPECT_EQ(test, kfi_control(&t.mr->fid, KFI_REFRESH, NULL), -KFI_EINVAL);
	/* The access of the region has not changed either. */
	KUNIT_EXPECT_EQ(test, kfi_read(t.ends[0].ep, t.here, 8, NULL, t.ends[0].peer, 0, KEY, &t),
			0);
	failed(test, &t.ends[0], &t, KFI_EACCES);
	target_close(test, &t);
}

static void arguments_are_checked(struct kunit *test)
{
	struct kfi_rma_iov remote = { .len = 8, .key = KEY };
	struct kvec iov = {};
	struct kfi_msg_rma msg = {
		.type = KFI_KVEC,
		.msg_iov = &iov,
		.iov_count = 1,
		.rma_iov = &remote,
		.rma_iov_count = 1,
	};
	struct kfid_ep *ep;
	kfi_addr_t peer;
	struct target t;
	u8 stack[300];

	target_open(test, &t, REMOTE);
	ep = t.ends[0].ep;
	peer = t.ends[0].peer;
	msg.addr = peer;
	iov = (struct kvec){ t.here, 8 };
#define REFUSED(call, error) KUNIT_EXPECT_EQ(test, call, error)
	REFUSED(kfi_writemsg(ep, NULL, 0), -KFI_EINVAL);
	REFUSED(kfi_readmsg(ep, &msg, KFI_INJECT), -KFI_EINVAL);
	REFUSED(kfi_writemsg(ep, &msg, KFI_RECV), -KFI_EINVAL);
	/* The endpoint did not ask for KFI_TAGGED_RMA. */
	REFUSED(kfi_writemsg(ep, &msg, KFI_TAGGED), -KFI_EOPNOTSUPP);
	REFUSED(kfi_readmsg(ep, &msg, KFI_TAGGED | KFI_COMPLETION), -KFI_EOPNOTSUPP);
	remote.len = 7;
	REFUSED(kfi_writemsg(ep, &msg, 0), -KFI_EINVAL);
	remote.len = 8;
	msg.rma_iov_count = 257;
	REFUSED(kfi_writemsg(ep, &msg, 0), -KFI_E2BIG);
	msg.rma_iov_count = 0;
	REFUSED(kfi_writemsg(ep, &msg, 0), -KFI_EINVAL);
	msg.rma_iov_count = 1;
	msg.rma_iov = NULL;
	REFUSED(kfi_writemsg(ep, &msg, 0), -KFI_EINVAL);
	msg.rma_iov = &remote;
	msg.type = KFI_SGL + 1;
	REFUSED(kfi_writemsg(ep, &msg, 0), -KFI_EINVAL);
	REFUSED(kfi_writev(ep, NULL, NULL, 1, peer, 0, KEY, NULL), -KFI_EINVAL);
	REFUSED(kfi_read(ep, NULL, 8, NULL, peer, 0, KEY, NULL), -EFAULT);
	REFUSED(kfi_write(ep, (void *)4096, 300, NULL, peer, 0, KEY, NULL), -EFAULT);
	/* The stack of the caller, unless the bytes are copied by the call. */
	REFUSED(kfi_write(ep, stack, sizeof(stack), NULL, peer, 0, KEY, NULL), -KFI_EINVAL);
	REFUSED(kfi_read(ep, stack, 8, NULL, peer, 0, KEY, NULL), -KFI_EINVAL);
	nothing(test, &t.ends[0]);
	target_close(test, &t);
}

/**
 * struct softirq - what is posted in a softirq
 * @t: the endpoints
 * @local: a region of @t->here, whose descriptor the operations have
 * @biov: pages of @t->here
 * @descs: the descriptor of each
 * @too_long: the error of a list that is too long there
 */
struct softirq {
	struct target		*t;
	struct kfid_mr		*local;
	struct bio_vec		biov[257];
	void			*descs[257];
	ssize_t			too_long;
};

static int post_in_softirq(void *arg)
{
	struct softirq *s = arg;
	struct kfi_rma_iov remote[] = {
		{ .addr = 0, .len = 2, .key = KEY },
		{ .addr = 2, .len = 254, .key = KEY },
	};
	struct kfi_msg_rma msg = {
		.type = KFI_BVEC,
		.msg_biov = s->biov,
		.desc = s->descs,
		.iov_count = 256,
		.addr = s->t->ends[0].peer,
		.rma_iov = remote,
		.rma_iov_count = 2,
		.context = s,
	};
	int i, ret;

	for (i = 0; i < ARRAY_SIZE(s->descs); i++)
		s->descs[i] = kfi_mr_desc(s->local);
	ret = kfi_writemsg(s->t->ends[0].ep, &msg, KFI_COMPLETION);
	msg.iov_count = 257;
	s->too_long = kfi_writemsg(s->t->ends[0].ep, &msg, KFI_COMPLETION);
	return ret ?: kfi_read(s->t->ends[0].ep, s->t->here + 1000, 1000, kfi_mr_desc(s->local),
			       msg.addr, 0, KEY, s);
}

static void posts_need_not_sleep(struct kunit *test)
{
	struct softirq *s = zeroed(test, sizeof(*s));
	struct target t;
	int i, before;

	target_open(test, &t, REMOTE);
	s->t = &t;
	for (i = 0; i < ARRAY_SIZE(s->biov); i++)
		bvec_set_virt(&s->biov[i], t.here + i, 1);
	memset(t.here, 's', 257);
	KUNIT_ASSERT_EQ(test, kfi_mr_reg(t.f.domain, t.here, ROOM, KFI_READ | KFI_WRITE, 0,
					 KEY + 1, 0, &s->local, NULL), 0);
	before = page_count(virt_to_page(t.here));
	KUNIT_EXPECT_EQ(test, call_in_softirq(post_in_softirq, s), 0);
	KUNIT_EXPECT_EQ(test, s->too_long, -KFI_E2BIG);
	completed(test, &t.ends[0], s, WRITTEN, 0);
	completed(test, &t.ends[0], s, READ_, 0);
	KUNIT_EXPECT_MEMEQ(test, t.there, t.here, 256);
	KUNIT_EXPECT_EQ(test, t.there[256], 0);
	KUNIT_EXPECT_MEMEQ(test, t.here + 1000, t.there, 1000);
	/* A worker has posted, and drops its references soon after. */
	for (i = 0; i < LONG && page_count(virt_to_page(t.here)) != before; i++)
		usleep_range(1000, 2000);
	KUNIT_EXPECT_EQ(test, page_count(virt_to_page(t.here)), before);
	KUNIT_EXPECT_EQ(test, kfi_close(&s->local->fid), 0);
	target_close(test, &t);
}

/**
 * struct writer - a thread that writes all the time
 * @t: from the first endpoint to the region of the second
 * @written: writes that succeeded
 * @refused: writes that failed because the region was closed
 * @error: the first thing that went wrong
 */
struct writer {
	struct target	*t;
	unsigned long	written;
	unsigned long	refused;
	ssize_t		error;
};

static void write_once(struct writer *writer)
{
	struct end *end = &writer->t->ends[0];
	struct kfi_cq_tagged_entry entry;
	struct kfi_cq_err_entry failure;
	ssize_t ret;

	ret = kfi_write(end->ep, writer->t->here, ROOM, NULL, end->peer, 0, KEY, NULL);
	if (!ret)
		ret = kfi_cq_sread(end->cq, &entry, 1, NULL, LONG);
	if (ret == 1) {
		WRITE_ONCE(writer->written, writer->written + 1);
		return;
	}
	if (ret == -KFI_EAVAIL && kfi_cq_readerr(end->cq, &failure, 0) == 1 &&
	    failure.err == KFI_EACCES) {
		WRITE_ONCE(writer->refused, writer->refused + 1);
		return;
	}
	if (!writer->error)
		writer->error = ret ?: -EIO;
}

static int write_always(void *arg)
{
	while (!kthread_should_stop()) {
		write_once(arg);
		cond_resched();
	}
	return 0;
}

/* After a close, no peer writes to the region. */
static void a_region_is_closed_while_a_peer_writes(struct kunit *test)
{
	struct target t;
	struct writer writer = { .t = &t };
	struct task_struct *thread;
	unsigned long before;
	int round, i, waited;

	target_open(test, &t, REMOTE);
	memset(t.here, 'w', ROOM);
	thread = kthread_run(write_always, &writer, "writer");
	KUNIT_ASSERT_FALSE(test, IS_ERR(thread));
	for (round = 0; round < 100; round++) {
		before = READ_ONCE(writer.written);
		for (waited = 0; waited < LONG && READ_ONCE(writer.written) == before; waited++)
			usleep_range(100, 1000);
		KUNIT_EXPECT_EQ(test, kfi_close(&t.mr->fid), 0);
		memset(t.there, 0, ROOM);
		before = READ_ONCE(writer.refused);
		for (waited = 0; waited < LONG && READ_ONCE(writer.refused) == before; waited++)
			usleep_range(100, 1000);
		for (i = 0; i < ROOM && !t.there[i]; i++)
			;
		KUNIT_EXPECT_EQ(test, i, ROOM);
		KUNIT_ASSERT_EQ(test, kfi_mr_reg(t.f.domain, t.there, ROOM, REMOTE, 0, KEY, 0,
						 &t.mr, NULL), 0);
	}
	kthread_stop(thread);
	KUNIT_EXPECT_EQ(test, writer.error, 0);
	KUNIT_EXPECT_GE(test, writer.refused, 100);
	target_close(test, &t);
}

CONSUMER("remote memory access",
	 KUNIT_CASE(bytes_are_written_and_read),
	 KUNIT_CASE(lists_are_gathered_and_scattered),
	 KUNIT_CASE(data_and_injected_bytes_arrive),
	 KUNIT_CASE(refused_accesses_fail),
	 KUNIT_CASE(a_refresh_changes_no_region),
	 KUNIT_CASE(arguments_are_checked),
	 KUNIT_CASE(posts_need_not_sleep),
	 KUNIT_CASE(a_region_is_closed_while_a_peer_writes));
