// SPDX-License-Identifier: GPL-2.0
/*
 * Transfers between the contexts of scalable endpoints: each context by its
 * address, sources, receives that name one, memory, and many threads.
 */

#include <kfi/kfi_atomic.h>
#include <kfi/kfi_mr.h>
#include <kfi/kfi_rma.h>

#include "sep.h"

#define ROOM	PAGE_SIZE
/* Messages of each thread. */
#define COUNT	2000

/* Opens two scalable endpoints. @peer: the second one, for the first one. */
static void seps_open(struct kunit *test, struct fixture *f, struct sep *seps, kfi_addr_t *peer)
{
	fixture_open(test, f);
	sep_open(test, f, &seps[0]);
	sep_open(test, f, &seps[1]);
	*peer = sep_knows(test, &seps[0], &seps[1]);
}

static void seps_close(struct kunit *test, struct fixture *f, struct sep *seps)
{
	sep_close(test, &seps[0]);
	sep_close(test, &seps[1]);
	fixture_close(test, f);
}

/* From each transmit context to each receive context. */
static void a_message_goes_to_its_context(struct kunit *test)
{
	u8 *to = zeroed(test, ROOM), *from = zeroed(test, ROOM);
	kfi_addr_t peer, back, src;
	struct kfi_cq_tagged_entry entry;
	struct sep seps[2];
	struct fixture f;
	int i, j, k;

	seps_open(test, &f, seps, &peer);
	back = sep_knows(test, &seps[1], &seps[0]);
	for (i = 0; i < CONTEXTS; i++) {
		for (j = 0; j < CONTEXTS; j++) {
			for (k = 0; k < CONTEXTS; k++)
				KUNIT_ASSERT_EQ(test, kfi_recv(seps[1].rx[k], to + 100 * k, 100,
							       NULL, KFI_ADDR_UNSPEC, to + k), 0);
			memset(from, 1 + i * CONTEXTS + j, 100);
			KUNIT_EXPECT_EQ(test, kfi_send(seps[0].tx[i], from, 100, NULL,
						       kfi_rx_addr(peer, j, BITS), from), 0);
			KUNIT_ASSERT_EQ(test, kfi_cq_sreadfrom(seps[1].rx_cq[j], &entry, 1, &src,
							       NULL, LONG), 1);
			/* The source is the scalable endpoint, whichever context has sent. */
			KUNIT_EXPECT_EQ(test, src, back);
			KUNIT_EXPECT_PTR_EQ(test, entry.op_context, (void *)(to + j));
			KUNIT_EXPECT_EQ(test, entry.flags, RECEIVED);
			KUNIT_EXPECT_MEMEQ(test, to + 100 * j, from, 100);
			next_of(test, seps[0].tx_cq[i], from, SENT);
			/* The receives of the others are still posted. */
			for (k = 0; k < CONTEXTS; k++) {
				struct kfi_cq_err_entry error = {};

				KUNIT_EXPECT_EQ(test, kfi_cq_read(seps[1].rx_cq[k], &entry, 1),
						-KFI_EAGAIN);
				KUNIT_EXPECT_EQ(test, kfi_cancel(&seps[1].rx[k]->fid, to + k),
						k == j ? -ENOENT : 0);
				KUNIT_EXPECT_EQ(test, kfi_cq_readerr(seps[1].rx_cq[k], &error, 0),
						k == j ? -KFI_EAGAIN : 1);
			}
		}
	}
	seps_close(test, &f, seps);
}

/* A context has the operations of its side only. */
static void a_context_has_one_side(struct kunit *test)
{
	struct sep seps[2];
	kfi_addr_t peer;
	struct fixture f;
	u8 *to = zeroed(test, ROOM);
	size_t count;

	seps_open(test, &f, seps, &peer);
	KUNIT_EXPECT_EQ(test, kfi_recv(seps[0].tx[0], to, 1, NULL, KFI_ADDR_UNSPEC, to),
			-KFI_EOPNOTSUPP);
	KUNIT_EXPECT_EQ(test, kfi_trecv(seps[0].tx[0], to, 1, NULL, KFI_ADDR_UNSPEC, 0, 0, to),
			-KFI_EOPNOTSUPP);
	KUNIT_EXPECT_EQ(test, kfi_send(seps[0].rx[0], to, 1, NULL, peer, to), -KFI_EOPNOTSUPP);
	KUNIT_EXPECT_EQ(test, kfi_tinject(seps[0].rx[0], to, 1, peer, 0), -KFI_EOPNOTSUPP);
	KUNIT_EXPECT_EQ(test, kfi_write(seps[0].rx[0], to, 1, NULL, peer, 0, 7, to),
			-KFI_EOPNOTSUPP);
	KUNIT_EXPECT_EQ(test, kfi_atomicvalid(seps[0].tx[0], KFI_UINT64, KFI_SUM, &count), 0);
	seps_close(test, &f, seps);
}

/* Addresses of contexts that do not exist, or are not open. */
static void other_contexts_are_not_reached(struct kunit *test)
{
	struct sockaddr_in out, plain;
	kfi_addr_t peer, third, direct;
	size_t len = sizeof(out);
	struct kfi_info *info;
	struct sep seps[2];
	struct fixture f;
	struct end end;
	u8 *to = zeroed(test, ROOM);
	int i;

	fixture_open(test, &f);
	sep_open(test, &f, &seps[0]);
	sep_open_at(test, &f, &seps[1], 7100);
	peer = sep_knows(test, &seps[0], &seps[1]);
	KUNIT_EXPECT_EQ(test, kfi_inject(seps[0].tx[0], to, 1,
					 kfi_rx_addr(peer, CONTEXTS, BITS)), -KFI_EHOSTUNREACH);
	KUNIT_EXPECT_EQ(test, kfi_inject(seps[0].tx[0], to, 1, kfi_rx_addr(peer, 255, BITS)),
			-KFI_EHOSTUNREACH);
	/* An endpoint at the next port is no context. */
	info = entry_of(test, KFI_EP_RDM);
	end_open(test, &f, info, &end, 0);
	plain = seps[1].name;
	plain.sin_port = htons(ntohs(plain.sin_port) + CONTEXTS);
	KUNIT_ASSERT_EQ(test, kfi_setname(&end.ep->fid, &plain, sizeof(plain)), 0);
	KUNIT_ASSERT_EQ(test, kfi_enable(end.ep), 0);
	KUNIT_EXPECT_EQ(test, kfi_inject(seps[0].tx[0], to, 1,
					 kfi_rx_addr(peer, CONTEXTS, BITS)), -KFI_EHOSTUNREACH);
	KUNIT_ASSERT_EQ(test, kfi_av_insert(seps[0].av, &plain, 1, &third, 0, NULL), 1);
	KUNIT_EXPECT_EQ(test, kfi_inject(seps[0].tx[0], to, 1, third), 0);
	KUNIT_EXPECT_EQ(test, kfi_inject(seps[0].tx[0], to, 1, kfi_rx_addr(third, 1, BITS)),
			-KFI_EHOSTUNREACH);
	/* A context has no other address than that of the whole with its index. */
	plain.sin_port = htons(ntohs(seps[1].name.sin_port) + 1);
	KUNIT_ASSERT_EQ(test, kfi_av_insert(seps[0].av, &plain, 1, &direct, 0, NULL), 1);
	KUNIT_EXPECT_EQ(test, kfi_inject(seps[0].tx[0], to, 1, direct), -KFI_EHOSTUNREACH);
	/* The ports that follow those of the receive contexts may be of transmit contexts. */
	direct = sep_knows(test, &seps[0], &seps[0]);
	for (i = CONTEXTS; i < 3 * CONTEXTS; i++)
		KUNIT_EXPECT_EQ(test, kfi_inject(seps[0].tx[0], to, 1,
						 kfi_rx_addr(direct, i, BITS)),
				-KFI_EHOSTUNREACH);
	/* One that is closed, and one that is not enabled. */
	KUNIT_EXPECT_EQ(test, kfi_inject(seps[0].tx[0], to, 1, kfi_rx_addr(peer, 2, BITS)), 0);
	KUNIT_EXPECT_EQ(test, kfi_close(&seps[1].rx[2]->fid), 0);
	KUNIT_EXPECT_EQ(test, kfi_inject(seps[0].tx[0], to, 1, kfi_rx_addr(peer, 2, BITS)),
			-KFI_EHOSTUNREACH);
	KUNIT_ASSERT_EQ(test, kfi_rx_context(seps[1].ep, 2, NULL, &seps[1].rx[2], NULL), 0);
	KUNIT_EXPECT_EQ(test, kfi_inject(seps[0].tx[0], to, 1, kfi_rx_addr(peer, 2, BITS)),
			-KFI_EHOSTUNREACH);
	KUNIT_EXPECT_EQ(test, kfi_ep_bind(seps[1].rx[2], &seps[1].rx_cq[2]->fid, 0), 0);
	KUNIT_EXPECT_EQ(test, kfi_enable(seps[1].rx[2]), 0);
	KUNIT_EXPECT_EQ(test, kfi_inject(seps[0].tx[0], to, 1, kfi_rx_addr(peer, 2, BITS)), 0);
	/* The AV has one address for all contexts. */
	KUNIT_EXPECT_EQ(test, kfi_av_lookup(seps[0].av, kfi_rx_addr(peer, 2, BITS), &out, &len),
			0);
	KUNIT_EXPECT_MEMEQ(test, &out, &seps[1].name, 8);
	third = kfi_rx_addr(peer, 1, BITS);
	KUNIT_EXPECT_EQ(test, kfi_av_remove(seps[0].av, &third, 1, 0), -ENOENT);
	KUNIT_EXPECT_EQ(test, kfi_av_remove(seps[0].av, &peer, 1, 0), 0);
	KUNIT_EXPECT_EQ(test, kfi_inject(seps[0].tx[0], to, 1, kfi_rx_addr(peer, 1, BITS)),
			-ENOENT);
	end_close(test, &end);
	kfi_freeinfo(info);
	seps_close(test, &f, seps);
}

/* A receive may name a scalable endpoint: it takes messages of all its contexts. */
static void a_receive_names_a_scalable_endpoint(struct kunit *test)
{
	struct kfi_cq_tagged_entry entry;
	kfi_addr_t peer, want, to_second;
	struct sep seps[2], other;
	struct fixture f;
	u8 *to = zeroed(test, ROOM);

	seps_open(test, &f, seps, &peer);
	sep_open(test, &f, &other);
	want = sep_knows(test, &seps[1], &seps[0]);
	to_second = kfi_rx_addr(sep_knows(test, &other, &seps[1]), 1, BITS);
	peer = kfi_rx_addr(peer, 1, BITS);
	KUNIT_EXPECT_EQ(test, kfi_recv(seps[1].rx[1], to, ROOM, NULL, want, to), 0);
	KUNIT_EXPECT_EQ(test, kfi_trecv(seps[1].rx[1], to, ROOM, NULL, want, 5, 0, to), 0);
	KUNIT_EXPECT_EQ(test, kfi_inject(other.tx[2], "no", 3, to_second), 0);
	KUNIT_EXPECT_EQ(test, kfi_tinject(other.tx[2], "no", 3, to_second, 5), 0);
	KUNIT_EXPECT_EQ(test, kfi_cq_read(seps[1].rx_cq[1], &entry, 1), -KFI_EAGAIN);
	KUNIT_EXPECT_EQ(test, kfi_inject(seps[0].tx[2], "yes", 4, peer), 0);
	next_of(test, seps[1].rx_cq[1], to, RECEIVED);
	KUNIT_EXPECT_STREQ(test, to, "yes");
	KUNIT_EXPECT_EQ(test, kfi_tinject(seps[0].tx[1], "too", 4, peer, 5), 0);
	next_of(test, seps[1].rx_cq[1], to, KFI_TAGGED | KFI_RECV);
	KUNIT_EXPECT_STREQ(test, to, "too");
	/* The other messages are still there. */
	KUNIT_EXPECT_EQ(test, kfi_recv(seps[1].rx[1], to, ROOM, NULL, KFI_ADDR_UNSPEC, to), 0);
	next_of(test, seps[1].rx_cq[1], to, RECEIVED);
	KUNIT_EXPECT_STREQ(test, to, "no");
	/* An unknown source. */
	KUNIT_EXPECT_EQ(test, kfi_recv(seps[1].rx[1], to, ROOM, NULL, want + 9, to), -ENOENT);
	sep_close(test, &other);
	seps_close(test, &f, seps);
}

/* Memory of a domain is accessed through any of its receive contexts. */
static void memory_is_accessed_through_contexts(struct kunit *test)
{
	u8 *here = zeroed(test, ROOM), *there = zeroed(test, ROOM);
	struct kfid_mr *mr;
	struct sep seps[2];
	kfi_addr_t peer;
	struct fixture f;
	u64 one = 1;
	int i;

	seps_open(test, &f, seps, &peer);
	KUNIT_ASSERT_EQ(test, kfi_mr_reg(f.domain, there, ROOM,
					 KFI_REMOTE_READ | KFI_REMOTE_WRITE, 0, 7, 0, &mr,
					 NULL), 0);
	for (i = 0; i < CONTEXTS; i++) {
		kfi_addr_t at = kfi_rx_addr(peer, i, BITS);

		memset(here, i + 1, 64);
		KUNIT_EXPECT_EQ(test, kfi_write(seps[0].tx[i], here, 64, NULL, at, 128 * i, 7,
						here), 0);
		next_of(test, seps[0].tx_cq[i], here, KFI_RMA | KFI_WRITE);
		KUNIT_EXPECT_MEMEQ(test, there + 128 * i, here, 64);
		memset(there + 64, 0x55, 64);
		KUNIT_EXPECT_EQ(test, kfi_read(seps[0].tx[i], here, 64, NULL, at, 64, 7, here), 0);
		next_of(test, seps[0].tx_cq[i], here, KFI_RMA | KFI_READ);
		KUNIT_EXPECT_MEMEQ(test, here, there + 64, 64);
		KUNIT_EXPECT_EQ(test, kfi_atomic(seps[0].tx[i], &one, 1, NULL, at, 1024, 7,
						 KFI_UINT64, KFI_SUM, here), 0);
		next_of(test, seps[0].tx_cq[i], here, KFI_ATOMIC | KFI_WRITE);
	}
	KUNIT_EXPECT_EQ(test, *(u64 *)(there + 1024), CONTEXTS);
	KUNIT_EXPECT_EQ(test, kfi_write(seps[0].tx[0], here, 64, NULL,
					kfi_rx_addr(peer, CONTEXTS, BITS), 0, 7, here),
			-KFI_EHOSTUNREACH);
	KUNIT_EXPECT_EQ(test, kfi_close(&mr->fid), 0);
	seps_close(test, &f, seps);
}

/**
 * struct pipe - a transmit context and a receive context with a thread each
 * @tx: the transmit context
 * @rx: the receive context
 * @tx_cq: completions of @tx
 * @rx_cq: completions of @rx
 * @peer: the address of @rx
 * @from: memory of the sender
 * @to: memory of the receiver
 * @errors: what went wrong at each end
 * @done: one completion for each thread
 */
struct pipe {
	struct kfid_ep		*tx;
	struct kfid_ep		*rx;
	struct kfid_cq		*tx_cq;
	struct kfid_cq		*rx_cq;
	kfi_addr_t		peer;
	u64			*from;
	u64			*to;
	int			errors[2];
	struct completion	done[2];
};

/* Waits for one completion of a queue. */
static int one(struct kfid_cq *cq, u64 flags)
{
	struct kfi_cq_tagged_entry entry;
	ssize_t ret = kfi_cq_sread(cq, &entry, 1, NULL, LONG);

	if (ret != 1)
		return ret < 0 ? ret : -EIO;
	return entry.flags == flags ? 0 : -EBADMSG;
}

static int send_all(void *data)
{
	struct pipe *pipe = data;
	int i, ret = 0;

	for (i = 0; i < COUNT && !ret; i++) {
		*pipe->from = i;
		do {
			ret = kfi_send(pipe->tx, pipe->from, sizeof(u64), NULL, pipe->peer, NULL);
			cond_resched();
		} while (ret == -KFI_EAGAIN);
		if (!ret)
			ret = one(pipe->tx_cq, SENT);
	}
	pipe->errors[0] = ret;
	complete(&pipe->done[0]);
	return 0;
}

static int receive_all(void *data)
{
	struct pipe *pipe = data;
	int i, ret = 0;

	for (i = 0; i < COUNT && !ret; i++) {
		ret = kfi_recv(pipe->rx, pipe->to, sizeof(u64), NULL, KFI_ADDR_UNSPEC, NULL);
		if (!ret)
			ret = one(pipe->rx_cq, RECEIVED);
		if (!ret && *pipe->to != i)
			ret = -EBADMSG;
	}
	pipe->errors[1] = ret;
	complete(&pipe->done[1]);
	return 0;
}

/* Each context has a thread, at both ends and in both directions. */
static void contexts_have_threads(struct kunit *test)
{
	struct pipe *pipes;
	kfi_addr_t peers[2];
	struct sep seps[2];
	struct fixture f;
	int i;

	pipes = zeroed(test, 2 * CONTEXTS * sizeof(*pipes));
	seps_open(test, &f, seps, &peers[0]);
	peers[1] = sep_knows(test, &seps[1], &seps[0]);
	for (i = 0; i < 2 * CONTEXTS; i++) {
		struct sep *from = &seps[i % 2], *to = &seps[!(i % 2)];
		struct pipe *pipe = &pipes[i];
		int at = i / 2;

		pipe->tx = from->tx[at];
		pipe->tx_cq = from->tx_cq[at];
		pipe->rx = to->rx[(at + 1) % CONTEXTS];
		pipe->rx_cq = to->rx_cq[(at + 1) % CONTEXTS];
		pipe->peer = kfi_rx_addr(peers[i % 2], (at + 1) % CONTEXTS, BITS);
		pipe->from = zeroed(test, ROOM);
		pipe->to = zeroed(test, ROOM);
		init_completion(&pipe->done[0]);
		init_completion(&pipe->done[1]);
	}
	for (i = 0; i < 2 * CONTEXTS; i++) {
		KUNIT_ASSERT_FALSE(test, IS_ERR(kthread_run(receive_all, &pipes[i], "receive")));
		KUNIT_ASSERT_FALSE(test, IS_ERR(kthread_run(send_all, &pipes[i], "send")));
	}
	for (i = 0; i < 2 * CONTEXTS; i++) {
		wait_for_completion(&pipes[i].done[0]);
		wait_for_completion(&pipes[i].done[1]);
		KUNIT_EXPECT_EQ(test, pipes[i].errors[0], 0);
		KUNIT_EXPECT_EQ(test, pipes[i].errors[1], 0);
	}
	seps_close(test, &f, seps);
}

CONSUMER("transfers between contexts",
	 KUNIT_CASE(a_message_goes_to_its_context),
	 KUNIT_CASE(a_context_has_one_side),
	 KUNIT_CASE(other_contexts_are_not_reached),
	 KUNIT_CASE(a_receive_names_a_scalable_endpoint),
	 KUNIT_CASE(memory_is_accessed_through_contexts),
	 KUNIT_CASE(contexts_have_threads));
