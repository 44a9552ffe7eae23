// SPDX-License-Identifier: GPL-2.0
/*
 * What workers do for consumers of two hosts that write back dirty pages: they
 * connect, send, answer and keep messages. Memory is short, and what they
 * allocate does not wait for I/O.
 */

#include <kfi/kfi_atomic.h>
#include <kfi/kfi_rma.h>

#include "reclaim.h"
#include "two_hosts.h"

#define KEY	7
/* Endpoints that are connected at once. */
#define PEERS	24
/* Bytes of a write and of a read. */
#define LONG_LEN	(64 * 1024)
#define ROUNDS	20
/* A page of values of atomics follows the bytes. */
#define ROOM	(2 * LONG_LEN + PAGE_SIZE)
#define ORDER	get_order(ROOM)

/**
 * struct world - an endpoint on each host, and memory of each
 * @f: the hosts' domains
 * @ends: the endpoints
 * @connection: what they need if they are connected
 * @mem: memory of each: bytes to send or write, bytes to read, values of atomics
 * @mr: a region: the memory of the second
 */
struct world {
	struct fixture		f[HOSTS];
	struct end		ends[HOSTS];
	struct connection	connection;
	u8			*mem[HOSTS];
	struct kfid_mr		*mr;
};

static struct world *world_new(struct kunit *test)
{
	struct world *w = zeroed(test, sizeof(*w));
	int i;

	for (i = 0; i < HOSTS; i++) {
		w->mem[i] = (u8 *)__get_free_pages(GFP_KERNEL | __GFP_ZERO | __GFP_COMP, ORDER);
		KUNIT_ASSERT_NOT_NULL(test, w->mem[i]);
	}
	return w;
}

static void open_ends(struct kunit *test, struct world *w, enum kfi_ep_type type)
{
	int i;

	if (type == KFI_EP_MSG) {
		hosts_connect(test, w->f, w->ends, &w->connection);
	} else {
		hosts_open(test, w->f, type);
		for (i = 0; i < HOSTS; i++) {
			reclaim_sizes(w->f[i].info);
			end_open_enabled(test, &w->f[i], w->f[i].info, &w->ends[i]);
		}
		for (i = 0; i < HOSTS; i++)
			end_knows(test, &w->ends[i], &w->ends[!i]);
	}
	KUNIT_ASSERT_EQ(test, kfi_mr_reg(w->f[1].domain, w->mem[1], ROOM,
					 KFI_REMOTE_READ | KFI_REMOTE_WRITE, 0, KEY, 0, &w->mr,
					 NULL), 0);
}

static void world_close(struct kunit *test, struct world *w)
{
	int i;

	KUNIT_EXPECT_EQ(test, kfi_close(&w->mr->fid), 0);
	for (i = 0; i < HOSTS; i++) {
		end_close(test, &w->ends[i]);
		free_pages((unsigned long)w->mem[i], ORDER);
	}
	connection_close(test, &w->connection);
	hosts_close(test, w->f);
}

/* A message there, to a receive. */
static int message(struct world *w)
{
	int ret = kfi_recv(w->ends[1].ep, w->mem[1], LEN, NULL, KFI_ADDR_UNSPEC, NULL);

	ret = ret ?: kfi_send(w->ends[0].ep, w->mem[0], LEN, NULL, w->ends[0].peer, NULL);
	ret = ret ?: await_completions(&w->ends[0], 1);
	ret = ret ?: await_completions(&w->ends[1], 1);
	if (ret)
		return ret;
	return memcmp(w->mem[0], w->mem[1], LEN) ? -EILSEQ : 0;
}

/* A write, a read of the same bytes, an atomic. */
static int remote_memory(void *arg)
{
	struct world *w = arg;
	struct kfid_ep *ep = w->ends[0].ep;
	kfi_addr_t peer = w->ends[0].peer;
	u64 *values = (u64 *)(w->mem[0] + 2 * LONG_LEN);
	int ret;

	ret = kfi_write(ep, w->mem[0], LONG_LEN, NULL, peer, 0, KEY, NULL);
	ret = ret ?: kfi_read(ep, w->mem[0] + LONG_LEN, LONG_LEN, NULL, peer, 0, KEY, NULL);
	return ret ?: kfi_fetch_atomic(ep, &values[0], 1, NULL, &values[1], NULL, peer,
				       2 * LONG_LEN, KEY, KFI_UINT64, KFI_SUM, NULL);
}

/* Makes the rounds, in process context or in softirqs. */
static int rounds(struct world *w, bool softirq)
{
	u64 *values = (u64 *)(w->mem[0] + 2 * LONG_LEN);
	int round, ret = 0;

	values[0] = 1;
	for (round = 0; round < ROUNDS && !ret; round++) {
		memset(w->mem[0], round, LONG_LEN);
		ret = softirq ? call_in_softirq(remote_memory, w) : remote_memory(w);
		ret = ret ?: await_completions(&w->ends[0], 3);
		if (!ret && (memcmp(w->mem[0], w->mem[1], LONG_LEN) || values[1] != round))
			ret = -EILSEQ;
	}
	return ret;
}

static void remote_memory_of(struct kunit *test, enum kfi_ep_type type)
{
	struct world *w = world_new(test);
	struct reclaim *r;
	unsigned int flags;
	int i, ret = 0;

	open_ends(test, w, type);
	/* A connection of reliable datagrams is there before, too. */
	KUNIT_ASSERT_EQ(test, message(w), 0);
	r = reclaim_begin(test);
	flags = memalloc_noio_save();
	for (i = 0; i < 2 && !ret; i++) {
		memset(w->mem[1] + 2 * LONG_LEN, 0, 8);
		ret = rounds(w, i);
	}
	memalloc_noio_restore(flags);
	/* The first task that reclaims frees memory for all. */
	reclaim_end(test, r, 0);
	KUNIT_EXPECT_EQ_MSG(test, ret, 0, "%s", i > 1 ? "softirq" : "process");
	world_close(test, w);
}

static void msg_remote_memory_is_accessed_without_io(struct kunit *test)
{
	remote_memory_of(test, KFI_EP_MSG);
}

static void rdm_remote_memory_is_accessed_without_io(struct kunit *test)
{
	remote_memory_of(test, KFI_EP_RDM);
}

static int send_all(void *arg)
{
	struct world *w = arg;
	int i, ret = 0;

	for (i = 0; i < COUNT && !ret; i++)
		ret = kfi_send(w->ends[0].ep, w->mem[0], LEN, NULL, w->ends[0].peer, NULL);
	return ret;
}

/* No receive waits for them: workers of the receiver keep them. */
static void messages_are_kept(struct kunit *test)
{
	struct world *w = world_new(test);
	struct reclaim *r;
	unsigned int flags;
	int i, ret;

	open_ends(test, w, KFI_EP_RDM);
	memset(w->mem[0], 0x5a, LEN);
	KUNIT_ASSERT_EQ(test, message(w), 0);
	r = reclaim_begin(test);
	flags = memalloc_noio_save();
	ret = call_in_softirq(send_all, w);
	ret = ret ?: await_completions(&w->ends[0], COUNT);
	for (i = 0; i < COUNT && !ret; i++) {
		memset(w->mem[1], 0, LEN);
		ret = kfi_recv(w->ends[1].ep, w->mem[1], LEN, NULL, KFI_ADDR_UNSPEC, NULL);
		ret = ret ?: await_completions(&w->ends[1], 1);
		if (!ret && memcmp(w->mem[0], w->mem[1], LEN))
			ret = -EILSEQ;
	}
	memalloc_noio_restore(flags);
	reclaim_end(test, r, 1);
	KUNIT_EXPECT_EQ(test, ret, 0);
	world_close(test, w);
}

/*
 * The first message to an endpoint connects. So does one after a while without
 * any. There are so many connections that workers must reclaim memory for them.
 */
static void datagrams_connect(struct kunit *test)
{
	struct world *w = world_new(test);
	struct end *peers = zeroed(test, PEERS * sizeof(*peers));
	struct reclaim *r;
	unsigned int flags;
	int i, ret = 0;

	open_ends(test, w, KFI_EP_RDM);
	for (i = 0; i < PEERS; i++)
		end_open_enabled(test, &w->f[1], w->f[1].info, &peers[i]);
	memset(w->mem[0], 0x5a, LEN);
	r = reclaim_begin(test);
	flags = memalloc_noio_save();
	for (i = 0; i < PEERS && !ret; i++) {
		ret = kfi_recv(peers[i].ep, w->mem[1], LEN, NULL, KFI_ADDR_UNSPEC, NULL);
		end_knows(test, &w->ends[0], &peers[i]);
		/* What end_knows() has reclaimed may be enough for the workers, too. */
		if (!atomic_read(&r->asked))
			reclaim_take(r);
		ret = ret ?: kfi_send(w->ends[0].ep, w->mem[0], LEN, NULL, w->ends[0].peer, NULL);
	}
	ret = ret ?: await_completions(&w->ends[0], PEERS);
	for (i = 0; i < PEERS; i++)
		ret = ret ?: await_completions(&peers[i], 1);
	memalloc_noio_restore(flags);
	reclaim_end(test, r, 1);
	KUNIT_EXPECT_EQ(test, ret, 0);
	KUNIT_EXPECT_MEMEQ(test, w->mem[0], w->mem[1], LEN);
	for (i = 0; i < PEERS; i++)
		end_close(test, &peers[i]);
	world_close(test, w);
}

/* All objects are opened meanwhile, too. */
static void endpoints_connect(struct kunit *test)
{
	struct world *w = world_new(test);
	struct reclaim *r;
	unsigned int flags;
	int ret;

	memset(w->mem[0], 0x5a, LEN);
	r = reclaim_begin(test);
	flags = memalloc_noio_save();
	open_ends(test, w, KFI_EP_MSG);
	ret = message(w);
	memalloc_noio_restore(flags);
	reclaim_end(test, r, 0);
	KUNIT_EXPECT_EQ(test, ret, 0);
	world_close(test, w);
}

CONSUMER("workers of two hosts reclaim memory",
	 KUNIT_CASE_SLOW(msg_remote_memory_is_accessed_without_io),
	 KUNIT_CASE_SLOW(rdm_remote_memory_is_accessed_without_io),
	 KUNIT_CASE_SLOW(messages_are_kept),
	 KUNIT_CASE_SLOW(datagrams_connect),
	 KUNIT_CASE_SLOW(endpoints_connect));
