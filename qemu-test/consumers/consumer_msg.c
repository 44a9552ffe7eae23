// SPDX-License-Identifier: GPL-2.0
/*
 * Messages: every form of sends and receives, and what their completions say.
 */

#include <linux/bvec.h>
#include <linux/scatterlist.h>
#include <linux/uio.h>

#include "pair.h"

#define SENT		(KFI_MSG | KFI_SEND)
#define RECEIVED	(KFI_MSG | KFI_RECV)
#define ROOM		PAGE_SIZE
/* More than is copied when it is posted, and less than a page. */
#define LENGTH		1500

/* Both ends of one message of @len bytes have completed. */
static void both_complete(struct kunit *test, struct end *ends, void *to, void *from, size_t len)
{
	completed(test, &ends[1], to, RECEIVED, len);
	completed(test, &ends[0], from, SENT, len);
}

/* A message of a few bytes and a longer one, for each type without connections. */
static void messages_arrive(struct kunit *test)
{
	static const enum kfi_ep_type types[] = { KFI_EP_RDM, KFI_EP_DGRAM };
	static const size_t lengths[] = { 0, 8, LENGTH };
	u8 *from = zeroed_page(test), *to = zeroed_page(test);
	struct fixture f;
	struct end ends[2];
	int i, j;

	for (i = 0; i < ARRAY_SIZE(types); i++) {
		pair_open(test, &f, types[i], ends);
		for (j = 0; j < ARRAY_SIZE(lengths); j++) {
			size_t len = lengths[j];

			memset(from, 'a' + j, len);
			KUNIT_EXPECT_EQ(test, kfi_recv(ends[1].ep, to, ROOM, NULL, 0, to), 0);
			KUNIT_EXPECT_EQ(test, kfi_send(ends[0].ep, from, len, NULL, ends[0].peer,
						       from), 0);
			both_complete(test, ends, to, from, len);
			KUNIT_EXPECT_MEMEQ(test, to, from, len);
		}
		KUNIT_EXPECT_EQ(test, kfi_cntr_wait(ends[0].sent, j, LONG), 0);
		KUNIT_EXPECT_EQ(test, kfi_cntr_wait(ends[1].received, j, LONG), 0);
		KUNIT_EXPECT_EQ(test, kfi_cntr_read(ends[1].sent), 0);
		nothing(test, &ends[0]);
		nothing(test, &ends[1]);
		pair_close(test, &f, ends);
	}
}

/* The same bytes in each form of a list: two elements that are not neighbours. */
static void lists_are_gathered_and_scattered(struct kunit *test)
{
	u8 *from = zeroed_page(test), *to = zeroed_page(test);
	struct kvec iov[2], into[2];
	struct bio_vec biov[2], biov_into[2];
	struct scatterlist sgl[2], sgl_into[2];
	struct kfid_ep *sender, *receiver;
	struct kfi_msg msg = {};
	struct fixture f;
	struct end ends[2];
	int form, i;

	sg_init_table(sgl, 2);
	sg_init_table(sgl_into, 2);
	for (i = 0; i < 2; i++) {
		u8 *part = from + 2048 * i, *part_into = to + 2048 * i;

		memset(part, '0' + i, 700);
		iov[i] = (struct kvec) { part, 700 };
		into[i] = (struct kvec) { part_into, 700 };
		bvec_set_virt(&biov[i], part, 700);
		bvec_set_virt(&biov_into[i], part_into, 700);
		sg_set_buf(&sgl[i], part, 700);
		sg_set_buf(&sgl_into[i], part_into, 700);
	}
	pair_open(test, &f, KFI_EP_RDM, ends);
	sender = ends[0].ep;
	receiver = ends[1].ep;
	for (form = 0; form < 6; form++) {
		memset(to, 0, ROOM);
		msg = (struct kfi_msg) {
			.iov_count = 2,
			.addr = ends[0].peer,
			.context = to,
		};
		switch (form) {
		case 0:
			KUNIT_EXPECT_EQ(test, kfi_recvv(receiver, into, NULL, 2, 0, to), 0);
			KUNIT_EXPECT_EQ(test, kfi_sendv(sender, iov, NULL, 2, msg.addr, from), 0);
			break;
		case 1:
			KUNIT_EXPECT_EQ(test, kfi_recvbv(receiver, biov_into, NULL, 2, 0, to), 0);
			KUNIT_EXPECT_EQ(test, kfi_sendbv(sender, biov, NULL, 2, msg.addr, from), 0);
			break;
		case 2:
			KUNIT_EXPECT_EQ(test, kfi_recvsgl(receiver, sgl_into, NULL, 2, 0, to), 0);
			KUNIT_EXPECT_EQ(test, kfi_sendsgl(sender, sgl, NULL, 2, msg.addr, from), 0);
			break;
		case 3:
			msg.type = KFI_KVEC;
			msg.msg_iov = into;
			KUNIT_EXPECT_EQ(test, kfi_recvmsg(receiver, &msg, KFI_COMPLETION), 0);
			msg.msg_iov = iov;
			break;
		case 4:
			msg.type = KFI_BVEC;
			msg.msg_biov = biov_into;
			KUNIT_EXPECT_EQ(test, kfi_recvmsg(receiver, &msg, KFI_COMPLETION), 0);
			msg.msg_biov = biov;
			break;
		case 5:
			msg.type = KFI_SGL;
			msg.msg_sgl = sgl_into;
			KUNIT_EXPECT_EQ(test, kfi_recvmsg(receiver, &msg, KFI_COMPLETION), 0);
			msg.msg_sgl = sgl;
			break;
		}
		if (form >= 3) {
			msg.context = from;
			KUNIT_EXPECT_EQ(test, kfi_sendmsg(sender, &msg, KFI_COMPLETION), 0);
		}
		both_complete(test, ends, to, from, 1400);
		KUNIT_EXPECT_MEMEQ(test, to, from, 700);
		KUNIT_EXPECT_MEMEQ(test, to + 2048, from + 2048, 700);
		KUNIT_EXPECT_EQ(test, to[700], 0);
	}
	pair_close(test, &f, ends);
}

/* Data for the peer's completion queue. */
static void data_arrives_with_a_message(struct kunit *test)
{
	struct kfi_cq_tagged_entry entry;
	u8 *to = zeroed_page(test);
	u64 value = 42;
	struct fixture f;
	struct end ends[2];

	pair_open(test, &f, KFI_EP_RDM, ends);
	KUNIT_EXPECT_EQ(test, kfi_recv(ends[1].ep, to, ROOM, NULL, 0, to), 0);
	KUNIT_EXPECT_EQ(test, kfi_senddata(ends[0].ep, &value, 8, NULL, 7, ends[0].peer, &f), 0);
	entry = completed(test, &ends[1], to, RECEIVED | KFI_REMOTE_CQ_DATA, 8);
	KUNIT_EXPECT_EQ(test, entry.data, 7);
	completed(test, &ends[0], &f, SENT, 8);
	KUNIT_EXPECT_EQ(test, kfi_recv(ends[1].ep, to, ROOM, NULL, 0, to), 0);
	KUNIT_EXPECT_EQ(test, kfi_injectdata(ends[0].ep, &value, 8, 9, ends[0].peer), 0);
	entry = completed(test, &ends[1], to, RECEIVED | KFI_REMOTE_CQ_DATA, 8);
	KUNIT_EXPECT_EQ(test, entry.data, 9);
	nothing(test, &ends[0]);
	pair_close(test, &f, ends);
}

/* An injected message: its bytes may be on the stack, and it has no completion. */
static void injected_messages_are_silent(struct kunit *test)
{
	u8 *to = zeroed_page(test), *from = zeroed_page(test);
	struct kvec iov = { from, 8 };
	struct kfi_msg msg = { .type = KFI_KVEC, .msg_iov = &iov, .iov_count = 1 };
	char text[] = "on the stack";
	struct fixture f;
	struct end ends[2];

	pair_open(test, &f, KFI_EP_RDM, ends);
	msg.addr = ends[0].peer;
	msg.context = from;
	KUNIT_EXPECT_EQ(test, kfi_recv(ends[1].ep, to, ROOM, NULL, 0, to), 0);
	KUNIT_EXPECT_EQ(test, kfi_inject(ends[0].ep, text, sizeof(text), msg.addr), 0);
	completed(test, &ends[1], to, RECEIVED, sizeof(text));
	KUNIT_EXPECT_STREQ(test, to, text);
	KUNIT_EXPECT_EQ(test, kfi_cntr_wait(ends[0].sent, 1, LONG), 0);
	nothing(test, &ends[0]);
	KUNIT_EXPECT_EQ(test, kfi_inject(ends[0].ep, from, 257, msg.addr), -KFI_EMSGSIZE);
	/* kfi_sendmsg() makes an entry like any other. */
	KUNIT_EXPECT_EQ(test, kfi_recv(ends[1].ep, to, ROOM, NULL, 0, to), 0);
	KUNIT_EXPECT_EQ(test, kfi_sendmsg(ends[0].ep, &msg, KFI_INJECT), 0);
	both_complete(test, ends, to, from, 8);
	pair_close(test, &f, ends);
}

/* With KFI_SELECTIVE_COMPLETION only what asks for an entry makes one. */
static void entries_can_be_selected(struct kunit *test)
{
	u8 *to = zeroed_page(test), *from = zeroed_page(test);
	struct kvec iov = { from, 8 };
	struct kfi_msg msg = { .type = KFI_KVEC, .msg_iov = &iov, .iov_count = 1 };
	u64 silent = KFI_TRANSMIT;
	struct kfid_ep *ep, *alias;
	struct fixture f;
	struct end ends[2];
	int i;

	pair_open_from(test, &f, entry_of(test, KFI_EP_RDM), ends, KFI_SELECTIVE_COMPLETION);
	ep = ends[0].ep;
	msg.addr = ends[0].peer;
	msg.context = from;
	KUNIT_ASSERT_EQ(test, kfi_ep_alias(ep, &alias, KFI_TRANSMIT), 0);
	for (i = 0; i < 7; i++)
		KUNIT_EXPECT_EQ(test, kfi_recv(ends[1].ep, to, ROOM, NULL, 0, to), 0);
	/* The default flags ask for one. */
	KUNIT_EXPECT_EQ(test, kfi_send(ep, from, 8, NULL, msg.addr, from), 0);
	completed(test, &ends[0], from, SENT, 8);
	/* Those of the alias do not. */
	KUNIT_EXPECT_EQ(test, kfi_send(alias, from, 8, NULL, msg.addr, from), 0);
	KUNIT_EXPECT_EQ(test, kfi_sendmsg(ep, &msg, 0), 0);
	KUNIT_EXPECT_EQ(test, kfi_sendmsg(ep, &msg, KFI_INJECT), 0);
	KUNIT_EXPECT_EQ(test, kfi_cntr_wait(ends[0].sent, 4, LONG), 0);
	nothing(test, &ends[0]);
	KUNIT_EXPECT_EQ(test, kfi_sendmsg(alias, &msg, KFI_COMPLETION), 0);
	completed(test, &ends[0], from, SENT, 8);
	KUNIT_EXPECT_EQ(test, kfi_sendmsg(ep, &msg, KFI_INJECT | KFI_COMPLETION), 0);
	completed(test, &ends[0], from, SENT, 8);
	KUNIT_EXPECT_EQ(test, kfi_control(&ep->fid, KFI_SETOPSFLAG, &silent), 0);
	KUNIT_EXPECT_EQ(test, kfi_send(ep, from, 8, NULL, msg.addr, from), 0);
	KUNIT_EXPECT_EQ(test, kfi_cntr_wait(ends[1].received, 7, LONG), 0);
	nothing(test, &ends[0]);
	for (i = 0; i < 7; i++)
		completed(test, &ends[1], to, RECEIVED, 8);
	/* Errors are never silent. */
	msg.context = to;
	KUNIT_EXPECT_EQ(test, kfi_recvmsg(ends[1].ep, &msg, 0), 0);
	KUNIT_EXPECT_EQ(test, kfi_cancel(&ends[1].ep->fid, to), 0);
	failed(test, &ends[1], to, KFI_ECANCELED);
	KUNIT_EXPECT_EQ(test, kfi_close(&alias->fid), 0);
	pair_close(test, &f, ends);
}

/* One buffer takes messages until little room is left. */
static void a_buffer_takes_many_messages(struct kunit *test)
{
	u8 *to = zeroed_page(test), *from = zeroed_page(test);
	struct kvec iov = { to, 4 * 64 + 10 };
	struct kfi_msg msg = { .type = KFI_KVEC, .msg_iov = &iov, .iov_count = 1 };
	struct kfi_cq_tagged_entry entry;
	size_t least = 64;
	struct fixture f;
	struct end ends[2];
	int i;

	pair_open(test, &f, KFI_EP_RDM, ends);
	msg.context = to;
	KUNIT_EXPECT_EQ(test, kfi_setopt(&ends[1].ep->fid, KFI_OPT_ENDPOINT, KFI_OPT_MIN_MULTI_RECV,
					 &least, sizeof(least)), 0);
	KUNIT_EXPECT_EQ(test, kfi_recvmsg(ends[1].ep, &msg, KFI_MULTI_RECV | KFI_COMPLETION), 0);
	for (i = 0; i < 4; i++) {
		memset(from, 'a' + i, 64);
		KUNIT_EXPECT_EQ(test, kfi_send(ends[0].ep, from, 64, NULL, ends[0].peer, from), 0);
		completed(test, &ends[0], from, SENT, 64);
		/* The last one releases the buffer. */
		entry = completed(test, &ends[1], to,
				  RECEIVED | (i == 3 ? KFI_MULTI_RECV : 0), 64);
		KUNIT_EXPECT_PTR_EQ(test, (u8 *)entry.buf, to + 64 * i);
		KUNIT_EXPECT_EQ(test, to[64 * i], 'a' + i);
	}
	nothing(test, &ends[1]);
	pair_close(test, &f, ends);
}

/* What goes wrong with an operation that was accepted. */
static void errors_are_entries(struct kunit *test)
{
	u8 *to = zeroed_page(test), *from = zeroed_page(test);
	struct kfi_cq_err_entry error;
	struct fixture f;
	struct end ends[2];

	pair_open(test, &f, KFI_EP_RDM, ends);
	KUNIT_EXPECT_EQ(test, kfi_recv(ends[1].ep, to, 100, NULL, 0, to), 0);
	KUNIT_EXPECT_EQ(test, kfi_send(ends[0].ep, from, LENGTH, NULL, ends[0].peer, from), 0);
	error = failed(test, &ends[1], to, KFI_ETRUNC);
	KUNIT_EXPECT_EQ(test, error.flags, RECEIVED);
	KUNIT_EXPECT_EQ(test, error.len, 100);
	KUNIT_EXPECT_EQ(test, error.olen, LENGTH - 100);
	KUNIT_EXPECT_EQ(test, kfi_cntr_readerr(ends[1].received), 1);

	KUNIT_EXPECT_EQ(test, kfi_recv(ends[1].ep, to, 100, NULL, 0, from), 0);
	KUNIT_EXPECT_EQ(test, kfi_cancel(&ends[1].ep->fid, to), -KFI_ENOENT);
	KUNIT_EXPECT_EQ(test, kfi_cancel(&ends[1].ep->fid, from), 0);
	failed(test, &ends[1], from, KFI_ECANCELED);
	pair_close(test, &f, ends);
}

/* What no operation can have is refused, and leaves nothing behind. */
static void arguments_are_checked(struct kunit *test)
{
	u8 *buf = zeroed_page(test);
	struct kvec iov = { buf, 8 };
	struct kfi_msg msg = { .type = KFI_KVEC, .msg_iov = &iov, .iov_count = 1 };
	struct kfi_info *info;
	struct fixture f;
	struct end ends[2], other;
	struct kfid_ep *ep;

	pair_open(test, &f, KFI_EP_RDM, ends);
	ep = ends[0].ep;
	msg.addr = ends[0].peer;
	KUNIT_EXPECT_EQ(test, kfi_send(ep, buf, 8, NULL, KFI_ADDR_NOTAVAIL, buf), -KFI_ENOENT);
	KUNIT_EXPECT_EQ(test, kfi_send(ep, NULL, 8, NULL, msg.addr, buf), -EFAULT);
	KUNIT_EXPECT_EQ(test, kfi_recv(ep, NULL, 8, NULL, 0, buf), -EFAULT);
	KUNIT_EXPECT_EQ(test, kfi_recv(ep, (void *)0x1000, 8, NULL, 0, buf), -EFAULT);
	KUNIT_EXPECT_EQ(test, kfi_sendv(ep, NULL, NULL, 1, msg.addr, buf), -KFI_EINVAL);
	KUNIT_EXPECT_EQ(test, kfi_sendbv(ep, NULL, NULL, 1, msg.addr, buf), -KFI_EINVAL);
	KUNIT_EXPECT_EQ(test, kfi_recvsgl(ep, NULL, NULL, 1, 0, buf), -KFI_EINVAL);
	KUNIT_EXPECT_EQ(test, kfi_sendmsg(ep, NULL, 0), -KFI_EINVAL);
	KUNIT_EXPECT_EQ(test, kfi_recvmsg(ep, NULL, 0), -KFI_EINVAL);
	KUNIT_EXPECT_EQ(test, kfi_sendmsg(ep, &msg, KFI_MULTI_RECV), -KFI_EINVAL);
	KUNIT_EXPECT_EQ(test, kfi_sendmsg(ep, &msg, BIT_ULL(62)), -KFI_EINVAL);
	KUNIT_EXPECT_EQ(test, kfi_recvmsg(ep, &msg, KFI_INJECT), -KFI_EINVAL);
	msg.type = 0;
	KUNIT_EXPECT_EQ(test, kfi_sendmsg(ep, &msg, 0), -KFI_EINVAL);
	msg.type = 4;
	KUNIT_EXPECT_EQ(test, kfi_recvmsg(ep, &msg, 0), -KFI_EINVAL);
	nothing(test, &ends[0]);

	info = entry_of(test, KFI_EP_RDM);
	end_open(test, &f, info, &other, 0);
	KUNIT_EXPECT_EQ(test, kfi_recv(other.ep, buf, 8, NULL, 0, buf), -KFI_EOPBADSTATE);
	KUNIT_EXPECT_EQ(test, kfi_inject(other.ep, buf, 8, msg.addr), -KFI_EOPBADSTATE);
	end_close(test, &other);
	kfi_freeinfo(info);
	pair_close(test, &f, ends);
}

CONSUMER("messages",
	 KUNIT_CASE(messages_arrive),
	 KUNIT_CASE(lists_are_gathered_and_scattered),
	 KUNIT_CASE(data_arrives_with_a_message),
	 KUNIT_CASE(injected_messages_are_silent),
	 KUNIT_CASE(entries_can_be_selected),
	 KUNIT_CASE(a_buffer_takes_many_messages),
	 KUNIT_CASE(errors_are_entries),
	 KUNIT_CASE(arguments_are_checked));
