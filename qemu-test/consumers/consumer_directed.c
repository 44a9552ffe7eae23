// SPDX-License-Identifier: GPL-2.0
/*
 * Receives that name a source: with KFI_DIRECTED_RECV they take messages of that
 * peer only, and without the capability the address means nothing (fi_getinfo(3),
 * fi_msg(3), fi_tagged(3)).
 */

#include "pair.h"

#define RECEIVED	(KFI_MSG | KFI_RECV)
#define TRECEIVED	(KFI_TAGGED | KFI_RECV)
#define PEERS		2

/**
 * struct world - an endpoint that receives, and peers that send
 * @f: their domain
 * @end: receives
 * @peers: send
 * @addrs: the peers for @end
 * @to: memory of the receives
 */
struct world {
	struct fixture	f;
	struct end	end;
	struct end	peers[PEERS];
	kfi_addr_t	addrs[PEERS];
	u8		*to;
};

/* Opens them. @caps: those of the receiver. */
static void world_open(struct kunit *test, struct world *w, enum kfi_ep_type type, u64 caps)
{
	struct kfi_info *info;
	int i;

	fixture_open(test, &w->f);
	info = entry_with(test, type, caps);
	/* A primary capability is enabled only if the hints have it. */
	KUNIT_EXPECT_EQ(test, info->caps & KFI_DIRECTED_RECV, caps & KFI_DIRECTED_RECV);
	end_open_enabled(test, &w->f, info, &w->end);
	kfi_freeinfo(info);
	info = entry_of(test, type);
	for (i = 0; i < PEERS; i++) {
		end_open_enabled(test, &w->f, info, &w->peers[i]);
		end_knows(test, &w->end, &w->peers[i]);
		w->addrs[i] = w->end.peer;
		end_knows(test, &w->peers[i], &w->end);
	}
	kfi_freeinfo(info);
	w->to = zeroed(test, PAGE_SIZE);
}

static void world_close(struct kunit *test, struct world *w)
{
	int i;

	end_close(test, &w->end);
	for (i = 0; i < PEERS; i++)
		end_close(test, &w->peers[i]);
	fixture_close(test, &w->f);
}

/* Sends one byte from a peer. */
static void from(struct kunit *test, struct world *w, int peer, u8 byte)
{
	KUNIT_EXPECT_EQ(test, kfi_inject(w->peers[peer].ep, &byte, 1, w->peers[peer].peer), 0);
}

static void tagged_from(struct kunit *test, struct world *w, int peer, u8 byte)
{
	KUNIT_EXPECT_EQ(test, kfi_tinject(w->peers[peer].ep, &byte, 1, w->peers[peer].peer, 7), 0);
}

/* Posts a receive for the byte at @index, which is its context too. */
static ssize_t receive(struct world *w, kfi_addr_t source, int index)
{
	return kfi_recv(w->end.ep, w->to + index, 1, NULL, source, w->to + index);
}

static ssize_t tagged_receive(struct world *w, kfi_addr_t source, int index)
{
	return kfi_trecv(w->end.ep, w->to + index, 1, NULL, source, 7, 0, w->to + index);
}

/* The receive for the byte at @index has taken @byte. */
static void took(struct kunit *test, struct world *w, int index, u64 flags, u8 byte)
{
	completed(test, &w->end, w->to + index, flags, 1);
	KUNIT_EXPECT_EQ(test, w->to[index], byte);
}

/* Without the capability, every receive takes the next message. */
static void an_address_means_nothing_without_the_capability(struct kunit *test)
{
	static const enum kfi_ep_type types[] = { KFI_EP_RDM, KFI_EP_DGRAM };
	struct world w;
	int i;

	for (i = 0; i < ARRAY_SIZE(types); i++) {
		world_open(test, &w, types[i], KFI_MSG);
		/* Another peer, one that is not in the address vector, and none. */
		KUNIT_EXPECT_EQ(test, receive(&w, w.addrs[1], 0), 0);
		KUNIT_EXPECT_EQ(test, receive(&w, 1234, 1), 0);
		KUNIT_EXPECT_EQ(test, receive(&w, KFI_ADDR_UNSPEC, 2), 0);
		from(test, &w, 0, 'a');
		took(test, &w, 0, RECEIVED, 'a');
		from(test, &w, 1, 'b');
		took(test, &w, 1, RECEIVED, 'b');
		from(test, &w, 0, 'c');
		took(test, &w, 2, RECEIVED, 'c');
		world_close(test, &w);
	}
	world_open(test, &w, KFI_EP_RDM, KFI_TAGGED);
	KUNIT_EXPECT_EQ(test, tagged_receive(&w, w.addrs[1], 0), 0);
	tagged_from(test, &w, 0, 'd');
	took(test, &w, 0, TRECEIVED, 'd');
	/* A message that waits is taken, too. */
	tagged_from(test, &w, 1, 'e');
	KUNIT_EXPECT_EQ(test, tagged_receive(&w, w.addrs[0], 0), 0);
	took(test, &w, 0, TRECEIVED, 'e');
	world_close(test, &w);
}

/* Of the messages that wait, the oldest one of the peer is taken. */
static void messages_are_passed_over(struct kunit *test)
{
	struct kvec iov;
	struct kfi_msg_tagged msg = { .type = KFI_KVEC, .msg_iov = &iov, .iov_count = 1,
				      .tag = 7 };
	struct world w;

	world_open(test, &w, KFI_EP_RDM, KFI_MSG | KFI_TAGGED | KFI_DIRECTED_RECV);
	from(test, &w, 0, 'a');
	from(test, &w, 1, 'b');
	from(test, &w, 0, 'c');
	from(test, &w, 1, 'd');
	KUNIT_EXPECT_EQ(test, receive(&w, w.addrs[1], 0), 0);
	took(test, &w, 0, RECEIVED, 'b');
	KUNIT_EXPECT_EQ(test, receive(&w, KFI_ADDR_UNSPEC, 0), 0);
	took(test, &w, 0, RECEIVED, 'a');
	KUNIT_EXPECT_EQ(test, receive(&w, w.addrs[1], 0), 0);
	took(test, &w, 0, RECEIVED, 'd');
	KUNIT_EXPECT_EQ(test, receive(&w, w.addrs[0], 0), 0);
	took(test, &w, 0, RECEIVED, 'c');
	/* A search looks at messages of the peer only. */
	tagged_from(test, &w, 0, 'e');
	iov = (struct kvec){ w.to, 1 };
	msg.context = w.to;
	msg.addr = w.addrs[1];
	KUNIT_EXPECT_EQ(test, kfi_trecvmsg(w.end.ep, &msg, KFI_PEEK), 0);
	failed(test, &w.end, w.to, KFI_ENOMSG);
	msg.addr = w.addrs[0];
	KUNIT_EXPECT_EQ(test, kfi_trecvmsg(w.end.ep, &msg, KFI_PEEK), 0);
	completed(test, &w.end, w.to, TRECEIVED, 1);
	KUNIT_EXPECT_EQ(test, tagged_receive(&w, w.addrs[0], 0), 0);
	took(test, &w, 0, TRECEIVED, 'e');
	world_close(test, &w);
}

/* A multi-receive buffer of one peer takes all messages of that one. */
static void a_buffer_is_of_one_peer(struct kunit *test)
{
	struct kvec iov;
	struct kfi_msg msg = { .type = KFI_KVEC, .msg_iov = &iov, .iov_count = 1 };
	struct world w;
	int i;

	world_open(test, &w, KFI_EP_RDM, KFI_MSG | KFI_DIRECTED_RECV | KFI_MULTI_RECV);
	iov = (struct kvec){ w.to, 1024 };
	msg.context = w.to;
	msg.addr = w.addrs[1];
	KUNIT_EXPECT_EQ(test, kfi_recvmsg(w.end.ep, &msg, KFI_MULTI_RECV), 0);
	for (i = 0; i < 3; i++) {
		from(test, &w, 0, 'a' + i);
		from(test, &w, 1, 'A' + i);
	}
	for (i = 0; i < 3; i++)
		completed(test, &w.end, w.to, RECEIVED, 1);
	nothing(test, &w.end);
	KUNIT_EXPECT_EQ(test, memcmp(w.to, "ABC", 4), 0);
	for (i = 0; i < 3; i++) {
		KUNIT_EXPECT_EQ(test, receive(&w, KFI_ADDR_UNSPEC, 100 + i), 0);
		took(test, &w, 100 + i, RECEIVED, 'a' + i);
	}
	world_close(test, &w);
}

CONSUMER("receives that name a source",
	 KUNIT_CASE(an_address_means_nothing_without_the_capability),
	 KUNIT_CASE(messages_are_passed_over),
	 KUNIT_CASE(a_buffer_is_of_one_peer));
