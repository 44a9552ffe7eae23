// SPDX-License-Identifier: GPL-2.0
/*
 * Transfers between two hosts: messages and remote memory of each type of endpoint
 * in memory that is not contiguous; and what hosts_ring does with reliable datagrams,
 * of a connection: lists of memory in each form, and atomics.
 */

#include <linux/bvec.h>
#include <linux/scatterlist.h>
#include <linux/uio.h>
#include <linux/vmalloc.h>

#include <kfi/kfi_atomic.h>
#include <kfi/kfi_rma.h>

#include "two_hosts.h"

#define KEY	7
/* More than the largest packet takes, and than is sent before it is asked for. */
#define ROOM	(96 * 1024)
#define REMOTE	(KFI_REMOTE_READ | KFI_REMOTE_WRITE)

/**
 * struct world - an endpoint on each host, and memory of each
 * @f: domains of the hosts
 * @ends: an endpoint on each
 * @mem: memory of each, @ROOM bytes
 * @mr: a region: all memory of the second
 * @connection: of both, if they are connected
 */
struct world {
	struct fixture		f[HOSTS];
	struct end		ends[HOSTS];
	u8			*mem[HOSTS];
	struct kfid_mr		*mr;
	struct connection	connection;
};

static struct world *world_open(struct kunit *test, enum kfi_ep_type type)
{
	struct world *w = zeroed(test, sizeof(*w));
	int i;

	for (i = 0; i < HOSTS; i++) {
		w->mem[i] = vzalloc(ROOM);
		KUNIT_ASSERT_NOT_NULL(test, w->mem[i]);
	}
	if (type == KFI_EP_MSG)
		hosts_connect(test, w->f, w->ends, &w->connection);
	else
		hosts_pair_open(test, w->f, type, w->ends);
	if (type != KFI_EP_DGRAM)
		KUNIT_ASSERT_EQ(test, kfi_mr_reg(w->f[1].domain, w->mem[1], ROOM, REMOTE, 0, KEY,
						 0, &w->mr, NULL), 0);
	return w;
}

static void world_close(struct kunit *test, struct world *w)
{
	int i;

	if (w->mr)
		KUNIT_EXPECT_EQ(test, kfi_close(&w->mr->fid), 0);
	for (i = 0; i < HOSTS; i++) {
		nothing(test, &w->ends[i]);
		end_close(test, &w->ends[i]);
		vfree(w->mem[i]);
	}
	connection_close(test, &w->connection);
	hosts_close(test, w->f);
}

/* Bytes that tell where they belong. */
static void fill(u8 *mem, size_t len, u8 seed)
{
	size_t i;

	for (i = 0; i < len; i++)
		mem[i] = seed + i * 7 + (i >> 8) * 3;
}

/* Sends @len bytes from a host to the other one. */
static void message(struct kunit *test, struct world *w, int from, size_t len)
{
	struct end *tx = &w->ends[from], *rx = &w->ends[!from];
	u8 *source = w->mem[from], *to = w->mem[!from];

	fill(source, len, len + from);
	memset(to, 0, len);
	KUNIT_EXPECT_EQ(test, kfi_recv(rx->ep, to, ROOM, NULL, KFI_ADDR_UNSPEC, to), 0);
	KUNIT_EXPECT_EQ(test, kfi_send(tx->ep, source, len, NULL, tx->peer, source), 0);
	completed(test, rx, to, KFI_MSG | KFI_RECV, len);
	completed(test, tx, source, KFI_MSG | KFI_SEND, len);
	KUNIT_EXPECT_EQ(test, memcmp(to, source, len), 0);
}

static void messages_both_ways(struct kunit *test, enum kfi_ep_type type)
{
	static const size_t lengths[] = { 0, 8, 256, 257, 1000, 8192, 8193, ROOM };
	/* A datagram is one packet. */
	int count = type == KFI_EP_DGRAM ? 5 : ARRAY_SIZE(lengths);
	struct world *w = world_open(test, type);
	int i, from;

	for (i = 0; i < count; i++)
		for (from = 0; from < HOSTS; from++)
			message(test, w, from, lengths[i]);
	for (i = 0; i < HOSTS; i++) {
		KUNIT_EXPECT_EQ(test, kfi_cntr_wait(w->ends[i].sent, count, LONG), 0);
		KUNIT_EXPECT_EQ(test, kfi_cntr_wait(w->ends[i].received, count, LONG), 0);
	}
	world_close(test, w);
}

static void rdm_messages(struct kunit *test)
{
	messages_both_ways(test, KFI_EP_RDM);
}

static void msg_messages(struct kunit *test)
{
	messages_both_ways(test, KFI_EP_MSG);
}

static void dgram_messages(struct kunit *test)
{
	messages_both_ways(test, KFI_EP_DGRAM);
}

/* Bytes are written to the other host, and read back, from lists of pages too. */
static void remote_memory(struct kunit *test, enum kfi_ep_type type)
{
	static const size_t lengths[] = { 1, 256, 257, 5000, ROOM };
	struct world *w = world_open(test, type);
	struct end *end = &w->ends[0];
	u8 *here = w->mem[0], *there = w->mem[1];
	struct bio_vec pages[2];
	int i;

	for (i = 0; i < ARRAY_SIZE(lengths); i++) {
		size_t len = lengths[i], at = ROOM - len;

		fill(here, len, i);
		KUNIT_EXPECT_EQ(test, kfi_write(end->ep, here, len, NULL, end->peer, at, KEY, w),
				0);
		completed(test, end, w, KFI_RMA | KFI_WRITE, 0);
		KUNIT_EXPECT_EQ(test, memcmp(there + at, here, len), 0);
		memset(here, 0, len);
		KUNIT_EXPECT_EQ(test, kfi_read(end->ep, here, len, NULL, end->peer, at, KEY, w),
				0);
		completed(test, end, w, KFI_RMA | KFI_READ, 0);
		KUNIT_EXPECT_EQ(test, memcmp(there + at, here, len), 0);
	}
	/* The pages in the opposite order. */
	fill(here, 2 * PAGE_SIZE, 99);
	bvec_set_page(&pages[0], vmalloc_to_page(here + PAGE_SIZE), PAGE_SIZE, 0);
	bvec_set_page(&pages[1], vmalloc_to_page(here), PAGE_SIZE, 0);
	KUNIT_EXPECT_EQ(test, kfi_writebv(end->ep, pages, NULL, 2, end->peer, 0, KEY, w), 0);
	completed(test, end, w, KFI_RMA | KFI_WRITE, 0);
	KUNIT_EXPECT_EQ(test, memcmp(there, here + PAGE_SIZE, PAGE_SIZE), 0);
	KUNIT_EXPECT_EQ(test, memcmp(there + PAGE_SIZE, here, PAGE_SIZE), 0);
	nothing(test, &w->ends[1]);
	world_close(test, w);
}

static void rdm_remote_memory(struct kunit *test)
{
	remote_memory(test, KFI_EP_RDM);
}

static void msg_remote_memory(struct kunit *test)
{
	remote_memory(test, KFI_EP_MSG);
}

/* Bytes of each of the two parts of a list. */
#define PIECE	3000

/**
 * struct list - two parts of memory, in each form
 * @iov: as kernel addresses
 * @biov: as pages
 * @sgl: as a scatterlist
 */
struct list {
	struct kvec		iov[2];
	struct bio_vec		biov[2];
	struct scatterlist	sgl[2];
};

/* Where part @i of a list is: the second part lies first. */
static u8 *piece_of(u8 *mem, int i)
{
	return mem + (i ? 0 : 4 * PAGE_SIZE) + 100;
}

static void list_init(struct list *list, u8 *mem)
{
	int i;

	sg_init_table(list->sgl, 2);
	for (i = 0; i < 2; i++) {
		u8 *piece = piece_of(mem, i);

		list->iov[i] = (struct kvec){ piece, PIECE };
		bvec_set_page(&list->biov[i], vmalloc_to_page(piece), PIECE,
			      offset_in_page(piece));
		sg_set_page(&list->sgl[i], vmalloc_to_page(piece), PIECE, offset_in_page(piece));
	}
}

/* The parts of a host's memory are those that the other host has sent. */
static void pieces_are_equal(struct kunit *test, struct world *w)
{
	int i;

	for (i = 0; i < 2; i++)
		KUNIT_EXPECT_EQ(test, memcmp(piece_of(w->mem[0], i), piece_of(w->mem[1], i),
					     PIECE), 0);
}

static ssize_t recv_list(struct end *end, enum kfi_iov_type form, struct list *list, void *context)
{
	switch (form) {
	case KFI_KVEC:
		return kfi_recvv(end->ep, list->iov, NULL, 2, KFI_ADDR_UNSPEC, context);
	case KFI_BVEC:
		return kfi_recvbv(end->ep, list->biov, NULL, 2, KFI_ADDR_UNSPEC, context);
	default:
		return kfi_recvsgl(end->ep, list->sgl, NULL, 2, KFI_ADDR_UNSPEC, context);
	}
}

static ssize_t send_list(struct end *end, enum kfi_iov_type form, struct list *list, void *context)
{
	switch (form) {
	case KFI_KVEC:
		return kfi_sendv(end->ep, list->iov, NULL, 2, end->peer, context);
	case KFI_BVEC:
		return kfi_sendbv(end->ep, list->biov, NULL, 2, end->peer, context);
	default:
		return kfi_sendsgl(end->ep, list->sgl, NULL, 2, end->peer, context);
	}
}

static ssize_t write_list(struct end *end, enum kfi_iov_type form, struct list *list, u64 at,
			  void *context)
{
	switch (form) {
	case KFI_KVEC:
		return kfi_writev(end->ep, list->iov, NULL, 2, end->peer, at, KEY, context);
	case KFI_BVEC:
		return kfi_writebv(end->ep, list->biov, NULL, 2, end->peer, at, KEY, context);
	default:
		return kfi_writesgl(end->ep, list->sgl, NULL, 2, end->peer, at, KEY, context);
	}
}

static ssize_t read_list(struct end *end, enum kfi_iov_type form, struct list *list, u64 at,
			 void *context)
{
	switch (form) {
	case KFI_KVEC:
		return kfi_readv(end->ep, list->iov, NULL, 2, end->peer, at, KEY, context);
	case KFI_BVEC:
		return kfi_readbv(end->ep, list->biov, NULL, 2, end->peer, at, KEY, context);
	default:
		return kfi_readsgl(end->ep, list->sgl, NULL, 2, end->peer, at, KEY, context);
	}
}

/* The list of a form, for the calls that take a message. */
static const struct kvec *list_of(enum kfi_iov_type form, struct list *list)
{
	/* The pointers are members of one union. */
	switch (form) {
	case KFI_KVEC:
		return list->iov;
	case KFI_BVEC:
		return (void *)list->biov;
	default:
		return (void *)list->sgl;
	}
}

/* Messages from list to list, by each call. */
static void msg_lists_of_messages(struct kunit *test)
{
	static const enum kfi_iov_type forms[] = { KFI_KVEC, KFI_BVEC, KFI_SGL };
	struct world *w = world_open(test, KFI_EP_MSG);
	struct end *tx = &w->ends[0], *rx = &w->ends[1];
	u8 *from = w->mem[0], *to = w->mem[1];
	struct list source, target;
	int i, by_msg;

	list_init(&source, from);
	list_init(&target, to);
	for (i = 0; i < ARRAY_SIZE(forms); i++) {
		enum kfi_iov_type form = forms[i];
		struct kfi_msg recv = {
			.type = form, .msg_iov = list_of(form, &target), .iov_count = 2,
			.addr = KFI_ADDR_UNSPEC, .context = to,
		};
		struct kfi_msg send = {
			.type = form, .msg_iov = list_of(form, &source), .iov_count = 2,
			.addr = tx->peer, .context = from,
		};

		for (by_msg = 0; by_msg < 2; by_msg++) {
			fill(from, ROOM, i * 2 + by_msg);
			memset(to, 0, ROOM);
			KUNIT_EXPECT_EQ(test, by_msg ? kfi_recvmsg(rx->ep, &recv, KFI_COMPLETION) :
					recv_list(rx, form, &target, to), 0);
			KUNIT_EXPECT_EQ(test, by_msg ? kfi_sendmsg(tx->ep, &send, KFI_COMPLETION) :
					send_list(tx, form, &source, from), 0);
			completed(test, rx, to, KFI_MSG | KFI_RECV, 2 * PIECE);
			completed(test, tx, from, KFI_MSG | KFI_SEND, 0);
			pieces_are_equal(test, w);
			/* Nothing between the parts. */
			KUNIT_EXPECT_EQ(test, piece_of(to, 1)[PIECE], 0);
		}
	}
	world_close(test, w);
}

/* Lists are written to one piece of the other host, and read from it, by each call. */
static void msg_lists_of_remote_memory(struct kunit *test)
{
	static const enum kfi_iov_type forms[] = { KFI_KVEC, KFI_BVEC, KFI_SGL };
	struct world *w = world_open(test, KFI_EP_MSG);
	struct end *end = &w->ends[0];
	u8 *here = w->mem[0], *there = w->mem[1] + 11;
	struct kfi_rma_iov remote = { .addr = 11, .len = 2 * PIECE, .key = KEY };
	struct list list;
	int i, j, by_msg;

	list_init(&list, here);
	for (i = 0; i < ARRAY_SIZE(forms); i++) {
		struct kfi_msg_rma msg = {
			.type = forms[i], .msg_iov = list_of(forms[i], &list), .iov_count = 2,
			.addr = end->peer, .rma_iov = &remote, .rma_iov_count = 1, .context = w,
		};

		for (by_msg = 0; by_msg < 2; by_msg++) {
			fill(here, ROOM, i * 2 + by_msg);
			memset(w->mem[1], 0, ROOM);
			KUNIT_EXPECT_EQ(test, by_msg ?
					kfi_writemsg(end->ep, &msg, KFI_COMPLETION) :
					write_list(end, forms[i], &list, remote.addr, w), 0);
			completed(test, end, w, KFI_RMA | KFI_WRITE, 0);
			for (j = 0; j < 2; j++)
				KUNIT_EXPECT_EQ(test, memcmp(there + j * PIECE,
							     piece_of(here, j), PIECE), 0);
			KUNIT_EXPECT_EQ(test, there[-1], 0);
			KUNIT_EXPECT_EQ(test, there[2 * PIECE], 0);
			memset(here, 0, ROOM);
			KUNIT_EXPECT_EQ(test, by_msg ?
					kfi_readmsg(end->ep, &msg, KFI_COMPLETION) :
					read_list(end, forms[i], &list, remote.addr, w), 0);
			completed(test, end, w, KFI_RMA | KFI_READ, 0);
			for (j = 0; j < 2; j++)
				KUNIT_EXPECT_EQ(test, memcmp(there + j * PIECE,
							     piece_of(here, j), PIECE), 0);
			KUNIT_EXPECT_EQ(test, piece_of(here, 1)[PIECE], 0);
		}
	}
	world_close(test, w);
}

static void msg_atomics(struct kunit *test)
{
	struct world *w = world_open(test, KFI_EP_MSG);
	struct end *end = &w->ends[0];
	u64 *operand = (u64 *)w->mem[0], *compare = operand + 1, *result = operand + 2;
	u64 *there = (u64 *)w->mem[1];

	*there = 40;
	*operand = 2;
	KUNIT_EXPECT_EQ(test, kfi_atomic(end->ep, operand, 1, NULL, end->peer, 0, KEY, KFI_UINT64,
					 KFI_SUM, w), 0);
	completed(test, end, w, KFI_ATOMIC | KFI_WRITE, 0);
	KUNIT_EXPECT_EQ(test, *there, 42);
	KUNIT_EXPECT_EQ(test, kfi_fetch_atomic(end->ep, operand, 1, NULL, result, NULL, end->peer,
					       0, KEY, KFI_UINT64, KFI_SUM, w), 0);
	completed(test, end, w, KFI_ATOMIC | KFI_READ, 0);
	KUNIT_EXPECT_EQ(test, *result, 42);
	KUNIT_EXPECT_EQ(test, *there, 44);
	*compare = 44;
	*operand = 7;
	KUNIT_EXPECT_EQ(test, kfi_compare_atomic(end->ep, operand, 1, NULL, compare, NULL, result,
						 NULL, end->peer, 0, KEY, KFI_UINT64, KFI_CSWAP,
						 w), 0);
	completed(test, end, w, KFI_ATOMIC | KFI_READ, 0);
	KUNIT_EXPECT_EQ(test, *result, 44);
	KUNIT_EXPECT_EQ(test, *there, 7);
	world_close(test, w);
}

CONSUMER("transfers between two hosts",
	 KUNIT_CASE(rdm_messages),
	 KUNIT_CASE(msg_messages),
	 KUNIT_CASE(dgram_messages),
	 KUNIT_CASE(rdm_remote_memory),
	 KUNIT_CASE(msg_remote_memory),
	 KUNIT_CASE(msg_lists_of_messages),
	 KUNIT_CASE(msg_lists_of_remote_memory),
	 KUNIT_CASE(msg_atomics));
