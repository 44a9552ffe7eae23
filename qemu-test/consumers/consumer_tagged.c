// SPDX-License-Identifier: GPL-2.0
/*
 * Tagged messages: matching by tag, every form, and searches.
 */

#include <linux/bvec.h>
#include <linux/scatterlist.h>
#include <linux/uio.h>

#include "pair.h"

#define SENT		(KFI_TAGGED | KFI_SEND)
#define RECEIVED	(KFI_TAGGED | KFI_RECV)
#define ROOM		PAGE_SIZE

/* A receive takes the first message whose tag fits. */
static void tags_select_messages(struct kunit *test)
{
	u8 *to = zeroed_page(test), *from = zeroed_page(test);
	struct kfi_cq_tagged_entry entry;
	struct fixture f;
	struct end ends[2];
	u64 tag;

	pair_open(test, &f, KFI_EP_RDM, ends);
	/* Two receives: one for the tag 2, one for 0x10 to 0x1f. */
	KUNIT_EXPECT_EQ(test, kfi_trecv(ends[1].ep, to, 8, NULL, 0, 2, 0, &ends[0]), 0);
	KUNIT_EXPECT_EQ(test, kfi_trecv(ends[1].ep, to + 8, 8, NULL, 0, 0x10, 0xf, &ends[1]), 0);
	/* A plain receive takes no tagged message. */
	KUNIT_EXPECT_EQ(test, kfi_recv(ends[1].ep, to + 16, 8, NULL, 0, &f), 0);
	for (tag = 1; tag <= 0x17; tag += 0x16) {
		memset(from, tag, 8);
		KUNIT_EXPECT_EQ(test, kfi_tsend(ends[0].ep, from, 8, NULL, ends[0].peer, tag, from),
				0);
		completed(test, &ends[0], from, SENT, 8);
	}
	entry = completed(test, &ends[1], &ends[1], RECEIVED, 8);
	KUNIT_EXPECT_EQ(test, entry.tag, 0x17);
	KUNIT_EXPECT_EQ(test, to[8], 0x17);
	nothing(test, &ends[1]);
	/* The message with the tag 1 has waited for this one. */
	KUNIT_EXPECT_EQ(test, kfi_trecv(ends[1].ep, to, 8, NULL, 0, 1, 0, to), 0);
	entry = completed(test, &ends[1], to, RECEIVED, 8);
	KUNIT_EXPECT_EQ(test, entry.tag, 1);
	KUNIT_EXPECT_EQ(test, to[0], 1);
	KUNIT_EXPECT_EQ(test, kfi_cancel(&ends[1].ep->fid, &ends[0]), 0);
	failed(test, &ends[1], &ends[0], KFI_ECANCELED);
	pair_close(test, &f, ends);
}

/* Each form of a list, with a tag. */
static void lists_have_tags(struct kunit *test)
{
	u8 *to = zeroed_page(test), *from = zeroed_page(test);
	struct kvec iov = { from, 1000 }, into = { to, 1000 };
	struct bio_vec biov, biov_into;
	struct scatterlist sgl, sgl_into;
	struct kfid_ep *tx, *rx;
	struct kfi_msg_tagged msg = { .iov_count = 1 };
	struct kfi_cq_tagged_entry entry;
	struct fixture f;
	struct end ends[2];
	kfi_addr_t peer;
	int side;
	u64 tag;

	bvec_set_virt(&biov, from, 1000);
	bvec_set_virt(&biov_into, to, 1000);
	sg_init_one(&sgl, from, 1000);
	sg_init_one(&sgl_into, to, 1000);
	memset(from, 'x', 1000);
	pair_open(test, &f, KFI_EP_RDM, ends);
	tx = ends[0].ep;
	rx = ends[1].ep;
	peer = ends[0].peer;
	msg.addr = peer;
	for (tag = 0; tag < 6; tag++) {
		memset(to, 0, ROOM);
		msg.tag = tag;
		switch (tag) {
		case 0:
			KUNIT_EXPECT_EQ(test, kfi_trecvv(rx, &into, NULL, 1, 0, tag, 0, to), 0);
			KUNIT_EXPECT_EQ(test, kfi_tsendv(tx, &iov, NULL, 1, peer, tag, from), 0);
			break;
		case 1:
			KUNIT_EXPECT_EQ(test, kfi_trecvbv(rx, &biov_into, NULL, 1, 0, tag, 0, to),
					0);
			KUNIT_EXPECT_EQ(test, kfi_tsendbv(tx, &biov, NULL, 1, peer, tag, from), 0);
			break;
		case 2:
			KUNIT_EXPECT_EQ(test, kfi_trecvsgl(rx, &sgl_into, NULL, 1, 0, tag, 0, to),
					0);
			KUNIT_EXPECT_EQ(test, kfi_tsendsgl(tx, &sgl, NULL, 1, peer, tag, from), 0);
			break;
		default:
			/* The same lists, by the calls that take a message. */
			msg.type = tag == 3 ? KFI_KVEC : tag == 4 ? KFI_BVEC : KFI_SGL;
			for (side = 0; side < 2; side++) {
				msg.context = side ? from : to;
				if (tag == 3)
					msg.msg_iov = side ? &iov : &into;
				else if (tag == 4)
					msg.msg_biov = side ? &biov : &biov_into;
				else
					msg.msg_sgl = side ? &sgl : &sgl_into;
				KUNIT_EXPECT_EQ(test, side ? kfi_tsendmsg(tx, &msg, 0) :
						kfi_trecvmsg(rx, &msg, 0), 0);
			}
		}
		entry = completed(test, &ends[1], to, RECEIVED, 1000);
		KUNIT_EXPECT_EQ(test, entry.tag, tag);
		completed(test, &ends[0], from, SENT, 1000);
		KUNIT_EXPECT_MEMEQ(test, to, from, 1000);
	}
	pair_close(test, &f, ends);
}

/* Injected messages, and messages without bytes that carry data. */
static void data_and_injected_messages_have_tags(struct kunit *test)
{
	u8 *to = zeroed_page(test);
	struct kfi_cq_tagged_entry entry;
	char text[] = "on the stack";
	struct fixture f;
	struct end ends[2];
	int i;

	pair_open(test, &f, KFI_EP_RDM, ends);
	for (i = 1; i <= 3; i++)
		KUNIT_EXPECT_EQ(test, kfi_trecv(ends[1].ep, to, ROOM, NULL, 0, i, 0, to), 0);
	KUNIT_EXPECT_EQ(test, kfi_tinject(ends[0].ep, text, sizeof(text), ends[0].peer, 1), 0);
	entry = completed(test, &ends[1], to, RECEIVED, sizeof(text));
	KUNIT_EXPECT_EQ(test, entry.tag, 1);
	KUNIT_EXPECT_STREQ(test, to, text);
	KUNIT_EXPECT_EQ(test, kfi_tinjectdata(ends[0].ep, text, 2, 77, ends[0].peer, 2), 0);
	entry = completed(test, &ends[1], to, RECEIVED | KFI_REMOTE_CQ_DATA, 2);
	KUNIT_EXPECT_EQ(test, entry.data, 77);
	KUNIT_EXPECT_EQ(test, kfi_cntr_wait(ends[0].sent, 2, LONG), 0);
	nothing(test, &ends[0]);
	KUNIT_EXPECT_EQ(test, kfi_tsenddata(ends[0].ep, NULL, 0, NULL, 88, ends[0].peer, 3, &f), 0);
	entry = completed(test, &ends[1], to, RECEIVED | KFI_REMOTE_CQ_DATA, 0);
	KUNIT_EXPECT_EQ(test, entry.data, 88);
	completed(test, &ends[0], &f, SENT, 0);
	pair_close(test, &f, ends);
}

/* A message is looked at, claimed, and received or dropped. */
static void messages_can_be_searched_for(struct kunit *test)
{
	u8 *to = zeroed_page(test), *from = zeroed_page(test);
	struct kfi_cq_tagged_entry entry;
	struct kvec iov = { to, ROOM };
	struct kfi_msg_tagged msg = { .tag = 5, .context = to };
	struct kfi_msg_tagged claim = {
		.type = KFI_KVEC, .msg_iov = &iov, .iov_count = 1, .tag = 5, .context = to,
	};
	struct kfid_ep *ep;
	struct fixture f;
	struct end ends[2];

	pair_open(test, &f, KFI_EP_RDM, ends);
	ep = ends[1].ep;
	msg.type = KFI_KVEC;
	KUNIT_EXPECT_EQ(test, kfi_trecvmsg(ep, &msg, KFI_PEEK), 0);
	failed(test, &ends[1], to, KFI_ENOMSG);
	KUNIT_EXPECT_EQ(test, kfi_trecvmsg(ep, &msg, KFI_DISCARD), -KFI_EINVAL);
	memset(from, 'm', 100);
	KUNIT_EXPECT_EQ(test, kfi_tsend(ends[0].ep, from, 100, NULL, ends[0].peer, 5, from), 0);
	completed(test, &ends[0], from, SENT, 100);
	KUNIT_EXPECT_EQ(test, kfi_trecvmsg(ep, &msg, KFI_PEEK), 0);
	entry = completed(test, &ends[1], to, RECEIVED, 100);
	KUNIT_EXPECT_EQ(test, entry.tag, 5);
	KUNIT_EXPECT_EQ(test, kfi_trecvmsg(ep, &msg, KFI_PEEK | KFI_CLAIM), 0);
	completed(test, &ends[1], to, RECEIVED, 100);
	/* A claimed message is found by its claim only. */
	KUNIT_EXPECT_EQ(test, kfi_trecvmsg(ep, &msg, KFI_PEEK), 0);
	failed(test, &ends[1], to, KFI_ENOMSG);
	KUNIT_EXPECT_EQ(test, kfi_trecvmsg(ep, &claim, KFI_CLAIM), 0);
	completed(test, &ends[1], to, RECEIVED, 100);
	KUNIT_EXPECT_MEMEQ(test, to, from, 100);
	KUNIT_EXPECT_EQ(test, kfi_cntr_wait(ends[1].received, 1, LONG), 0);
	/* Another one is dropped. */
	KUNIT_EXPECT_EQ(test, kfi_tsend(ends[0].ep, from, 100, NULL, ends[0].peer, 5, from), 0);
	completed(test, &ends[0], from, SENT, 100);
	KUNIT_EXPECT_EQ(test, kfi_trecvmsg(ep, &msg, KFI_PEEK | KFI_DISCARD), 0);
	completed(test, &ends[1], to, RECEIVED, 100);
	KUNIT_EXPECT_EQ(test, kfi_trecvmsg(ep, &msg, KFI_PEEK), 0);
	failed(test, &ends[1], to, KFI_ENOMSG);
	pair_close(test, &f, ends);
}

/* A tagged receive takes one message: there are no multi-receive buffers with a tag. */
static void tagged_receives_take_one_message(struct kunit *test)
{
	static const u64 refused[] = { KFI_TAGGED_MULTI_RECV, KFI_MULTI_RECV };
	u8 *to = zeroed_page(test);
	struct kvec iov = { to, ROOM };
	struct kfi_msg_tagged msg = {
		.type = KFI_KVEC, .msg_iov = &iov, .iov_count = 1, .tag = 5, .context = to,
	};
	struct kfi_info *hints = kfi_allocinfo(), *info;
	struct fixture f;
	struct end ends[2];
	u64 flags;
	int i;

	KUNIT_ASSERT_NOT_NULL(test, hints);
	hints->caps = KFI_TAGGED | KFI_TAGGED_MULTI_RECV;
	KUNIT_EXPECT_EQ(test, kfi_getinfo(0, NULL, NULL, 0, hints, &info), -KFI_ENODATA);
	kfi_freeinfo(hints);
	pair_open(test, &f, KFI_EP_RDM, ends);
	for (i = 0; i < ARRAY_SIZE(refused); i++) {
		KUNIT_EXPECT_EQ(test, kfi_trecvmsg(ends[1].ep, &msg, refused[i]), -KFI_EINVAL);
		KUNIT_EXPECT_EQ(test, kfi_trecvmsg(ends[1].ep, &msg, refused[i] | KFI_COMPLETION),
				-KFI_EINVAL);
	}
	/* The one is no default flag either; as a default the other is for messages without tag. */
	flags = KFI_RECV | KFI_TAGGED_MULTI_RECV;
	KUNIT_EXPECT_EQ(test, kfi_control(&ends[1].ep->fid, KFI_SETOPSFLAG, &flags), -KFI_EINVAL);
	flags = KFI_RECV | KFI_COMPLETION | KFI_MULTI_RECV;
	KUNIT_EXPECT_EQ(test, kfi_control(&ends[1].ep->fid, KFI_SETOPSFLAG, &flags), 0);
	/* Nothing was posted by the calls that failed. */
	KUNIT_EXPECT_EQ(test, kfi_cancel(&ends[1].ep->fid, to), -KFI_ENOENT);
	KUNIT_EXPECT_EQ(test, kfi_trecv(ends[1].ep, to, ROOM, NULL, 0, 5, 0, to), 0);
	KUNIT_EXPECT_EQ(test, kfi_tinject(ends[0].ep, "one", 4, ends[0].peer, 5), 0);
	completed(test, &ends[1], to, RECEIVED, 4);
	KUNIT_EXPECT_EQ(test, kfi_cancel(&ends[1].ep->fid, to), -KFI_ENOENT);
	pair_close(test, &f, ends);
}

/* With KFI_DIRECTED_RECV a receive may name its source. */
static void a_receive_may_name_its_source(struct kunit *test)
{
	u8 *to = zeroed_page(test);
	struct kfi_info *info;
	struct fixture f;
	struct end ends[2], third;
	kfi_addr_t addr;

	pair_open(test, &f, KFI_EP_RDM, ends);
	info = entry_of(test, KFI_EP_RDM);
	KUNIT_EXPECT_TRUE(test, info->caps & KFI_DIRECTED_RECV);
	end_open_enabled(test, &f, info, &third);
	end_knows(test, &third, &ends[1]);
	addr = ends[1].peer;
	KUNIT_EXPECT_EQ(test, kfi_trecv(ends[1].ep, to, ROOM, NULL, addr, 1, 0, to), 0);
	KUNIT_EXPECT_EQ(test, kfi_tinject(third.ep, "no", 3, third.peer, 1), 0);
	KUNIT_EXPECT_EQ(test, kfi_cntr_wait(third.sent, 1, LONG), 0);
	nothing(test, &ends[1]);
	KUNIT_EXPECT_EQ(test, kfi_tinject(ends[0].ep, "yes", 4, ends[0].peer, 1), 0);
	completed(test, &ends[1], to, RECEIVED, 4);
	KUNIT_EXPECT_STREQ(test, to, "yes");
	end_close(test, &third);
	kfi_freeinfo(info);
	pair_close(test, &f, ends);
}

/* Datagrams have no tags. */
static void not_every_type_has_tags(struct kunit *test)
{
	u8 *to = zeroed_page(test);
	struct fixture f;
	struct end ends[2];

	pair_open(test, &f, KFI_EP_DGRAM, ends);
	KUNIT_EXPECT_EQ(test, kfi_trecv(ends[1].ep, to, 8, NULL, 0, 1, 0, to), -KFI_EOPNOTSUPP);
	KUNIT_EXPECT_EQ(test, kfi_tinject(ends[0].ep, to, 8, ends[0].peer, 1), -KFI_EOPNOTSUPP);
	pair_close(test, &f, ends);
}

CONSUMER("tagged messages",
	 KUNIT_CASE(tags_select_messages),
	 KUNIT_CASE(lists_have_tags),
	 KUNIT_CASE(data_and_injected_messages_have_tags),
	 KUNIT_CASE(messages_can_be_searched_for),
	 KUNIT_CASE(tagged_receives_take_one_message),
	 KUNIT_CASE(a_receive_may_name_its_source),
	 KUNIT_CASE(not_every_type_has_tags));
