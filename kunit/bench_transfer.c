// SPDX-License-Identifier: GPL-2.0
/*
 * Benchmarks of transfers between two endpoints of kernel consumers on one host,
 * beside the same with two sockets of AF_UNIX, and beside memcpy().
 *
 * All tasks are bound to one CPU, so that they measure code and not the start of
 * another CPU.
 */

#include "bench.h"

#include <linux/completion.h>
#include <linux/err.h>
#include <linux/jiffies.h>
#include <linux/kthread.h>
#include <linux/ktime.h>
#include <linux/mm.h>
#include <linux/net.h>
#include <linux/sched.h>
#include <linux/slab.h>
#include <linux/socket.h>
#include <net/net_namespace.h>
#include <net/sock.h>

#include <kfi/kfi_cm.h>
#include <kfi/kfi_endpoint.h>
#include <kfi/kfi_msg.h>
#include <kfi/kfi_rma.h>

#define SMALL	8
#define LARGE	KFABRIC_BENCH_LARGE
#define BATCH	KFABRIC_BENCH_BATCH
#define KEY	1
/* How long a side waits for the other one, in milliseconds: then the run fails. */
#define PATIENCE	20000

/**
 * struct two - two endpoints, or two sockets
 * @ep: endpoints
 * @cq: their completion queues
 * @av: their address vectors, with the other endpoint only
 * @peer: the other endpoint there
 * @mr: a region: the memory of the second
 * @sock: sockets
 * @mem: memory of each side
 * @rounds: how many are measured
 */
struct two {
	struct kfid_ep		*ep[2];
	struct kfid_cq		*cq[2];
	struct kfid_av		*av[2];
	kfi_addr_t		peer[2];
	struct kfid_mr		*mr;
	struct socket		*sock[2];
	u8			*mem[2];
	u64			rounds;
};

static int end_open(struct kfid_domain *domain, struct kfi_info *info, struct two *two, int i)
{
	struct kfi_cq_attr attr = {
		.format = KFI_CQ_FORMAT_CONTEXT,
		.wait_obj = KFI_WAIT_UNSPEC,
	};
	int ret;

	ret = kfi_endpoint(domain, info, &two->ep[i], NULL);
	ret = ret ?: kfi_cq_open(domain, &attr, &two->cq[i], NULL, NULL);
	ret = ret ?: kfi_av_open(domain, NULL, &two->av[i], NULL);
	ret = ret ?: kfi_ep_bind(two->ep[i], &two->cq[i]->fid, KFI_TRANSMIT | KFI_RECV);
	ret = ret ?: kfi_ep_bind(two->ep[i], &two->av[i]->fid, 0);
	return ret ?: kfi_enable(two->ep[i]);
}

static int end_knows(struct two *two, int i)
{
	struct sockaddr_storage addr;
	size_t len = sizeof(addr);
	int ret = kfi_getname(&two->ep[!i]->fid, &addr, &len);

	if (ret)
		return ret;
	return kfi_av_insert(two->av[i], &addr, 1, &two->peer[i], 0, NULL) == 1 ? 0 : -EIO;
}

static void ends_close(struct two *two)
{
	int i;

	if (two->mr)
		kfi_close(&two->mr->fid);
	for (i = 0; i < 2; i++) {
		if (two->ep[i])
			kfi_close(&two->ep[i]->fid);
		if (two->cq[i])
			kfi_close(&two->cq[i]->fid);
		if (two->av[i])
			kfi_close(&two->av[i]->fid);
	}
}

static int ends_open(struct kfid_domain *domain, struct kfi_info *info, struct two *two)
{
	int ret;

	ret = end_open(domain, info, two, 0);
	ret = ret ?: end_open(domain, info, two, 1);
	ret = ret ?: end_knows(two, 0);
	ret = ret ?: end_knows(two, 1);
	return ret ?: kfi_mr_reg(domain, two->mem[1], LARGE, KFI_REMOTE_WRITE, 0, KEY, 0,
				 &two->mr, NULL);
}

/* One completion of an endpoint, for which it sleeps. */
static int completed(struct two *two, int i)
{
	struct kfi_cq_entry entry;
	ssize_t got = kfi_cq_sread(two->cq[i], &entry, 1, NULL, PATIENCE);

	return got == 1 ? 0 : got ?: -EIO;
}

static int receive(struct two *two, int i)
{
	return kfi_recv(two->ep[i], two->mem[i], SMALL, NULL, KFI_ADDR_UNSPEC, NULL);
}

/* Bytes on the stack, as a consumer has them. */
static int send(struct two *two, int i, u64 value)
{
	return kfi_inject(two->ep[i], &value, sizeof(value), two->peer[i]);
}

static int ep_ping(struct two *two, u64 round)
{
	int ret = receive(two, 0);

	ret = ret ?: send(two, 0, round);
	return ret ?: completed(two, 0);
}

static int ep_pong(struct two *two, u64 round)
{
	int ret = completed(two, 1);

	/* The receive for the next round, and the answer to this one. */
	ret = ret ?: receive(two, 1);
	return ret ?: send(two, 1, round);
}

static int sock_send(struct two *two, int i, void *from, size_t len)
{
	struct kvec vec = { from, len };
	struct msghdr msg = {};
	int ret = kernel_sendmsg(two->sock[i], &msg, &vec, 1, len);

	return ret < 0 ? ret : ret == len ? 0 : -EIO;
}

/* Until all bytes are there: a stream may give them in parts. */
static int sock_receive(struct two *two, int i, void *to, size_t len)
{
	while (len) {
		struct kvec vec = { to, len };
		struct msghdr msg = {};
		int ret = kernel_recvmsg(two->sock[i], &msg, &vec, 1, len, 0);

		if (ret <= 0)
			return ret ?: -EIO;
		to += ret;
		len -= ret;
	}
	return 0;
}

static int sock_ping(struct two *two, u64 round)
{
	int ret = sock_send(two, 0, &round, sizeof(round));

	return ret ?: sock_receive(two, 0, two->mem[0], SMALL);
}

static int sock_pong(struct two *two, u64 round)
{
	int ret = sock_receive(two, 1, two->mem[1], SMALL);

	return ret ?: sock_send(two, 1, &round, sizeof(round));
}

static int ep_batch(struct two *two, u64 round)
{
	struct kfi_cq_entry entries[BATCH / 4];
	ssize_t got;
	int i, ret = 0;

	for (i = 0; i < BATCH && !ret; i++)
		ret = receive(two, 1);
	for (i = 0; i < BATCH && !ret; i++)
		ret = send(two, 0, round);
	for (i = 0; i < BATCH && !ret; i += got) {
		got = kfi_cq_read(two->cq[1], entries, ARRAY_SIZE(entries));
		if (got <= 0)
			return got ?: -EIO;
	}
	return ret;
}

static int sock_batch(struct two *two, u64 round)
{
	int i, ret = 0;

	for (i = 0; i < BATCH && !ret; i++)
		ret = sock_send(two, 0, &round, sizeof(round));
	for (i = 0; i < BATCH && !ret; i++)
		ret = sock_receive(two, 1, two->mem[1], SMALL);
	return ret;
}

static int ep_large(struct two *two, u64 round)
{
	int ret = kfi_write(two->ep[0], two->mem[0], LARGE, NULL, two->peer[0], 0, KEY, NULL);

	return ret ?: completed(two, 0);
}

static int sock_large(struct two *two, u64 round)
{
	int ret = sock_send(two, 0, two->mem[0], LARGE);

	return ret ?: sock_receive(two, 1, two->mem[1], LARGE);
}

static int memcpy_large(struct two *two, u64 round)
{
	memcpy(two->mem[1], two->mem[0], LARGE);
	barrier_data(two->mem[1]);
	return 0;
}

/**
 * struct side - what is measured
 * @ours: a round of the first player
 * @theirs: a round of the second one; NULL: there is none
 * @sock: type of the sockets; 0: none
 * @endpoints: whether there are endpoints
 */
struct side {
	int (*ours)(struct two *two, u64 round);
	int (*theirs)(struct two *two, u64 round);
	int sock;
	bool endpoints;
};

static const struct side sides[] = {
	[KFABRIC_BENCH_LATENCY]		= { ep_ping, ep_pong, 0, true },
	[KFABRIC_BENCH_UNIX_LATENCY]	= { sock_ping, sock_pong, SOCK_SEQPACKET },
	[KFABRIC_BENCH_RATE]		= { ep_batch, NULL, 0, true },
	[KFABRIC_BENCH_UNIX_RATE]	= { sock_batch, NULL, SOCK_SEQPACKET },
	[KFABRIC_BENCH_WRITE]		= { ep_large, NULL, 0, true },
	[KFABRIC_BENCH_UNIX_LARGE]	= { sock_large, NULL, SOCK_STREAM },
	[KFABRIC_BENCH_MEMCPY]		= { memcpy_large },
};

/**
 * struct player - a thread of a game
 * @two: the endpoints or sockets
 * @turn: its part of a round
 * @took: nanoseconds of all rounds but the first
 * @error: the first thing that went wrong
 * @done: the thread has ended
 */
struct player {
	struct two		*two;
	int			(*turn)(struct two *two, u64 round);
	u64			took;
	int			error;
	struct completion	done;
};

static int player_thread(void *arg)
{
	struct player *me = arg;
	u64 began, round;

	/* The first round fills caches and makes what is used again. */
	me->error = me->turn(me->two, 0);
	began = ktime_get_ns();
	for (round = 1; round <= me->two->rounds && !me->error; round++)
		me->error = me->turn(me->two, round);
	me->took = ktime_get_ns() - began;
	complete(&me->done);
	return 0;
}

/* Starts a player on this CPU. None preempts the other: each runs until it sleeps. */
static int player_start(struct player *player)
{
	struct task_struct *task = kthread_create(player_thread, player, "kfi-bench");

	if (IS_ERR(task))
		return PTR_ERR(task);
	init_completion(&player->done);
	kthread_bind(task, raw_smp_processor_id());
	sched_set_fifo(task);
	wake_up_process(task);
	return 0;
}

static u64 play(struct two *two, const struct side *side)
{
	struct player players[2] = { { two, side->ours }, { two, side->theirs } };
	int count = side->theirs ? 2 : 1, started = 0, error, i;

	/* The first message of endpoints finds its receive. */
	error = side->theirs && side->endpoints ? receive(two, 1) : 0;
	/* The second player first: it waits for the other one. */
	for (i = count - 1; i >= 0 && !error; i--) {
		error = player_start(&players[i]);
		started += !error;
	}
	for (i = count - started; i < count; i++) {
		wait_for_completion(&players[i].done);
		error = error ?: players[i].error;
	}
	return error ? 0 : players[0].took;
}

static u64 play_endpoints(struct two *two, const struct side *side)
{
	struct kfi_info *hints = kfi_allocinfo(), *info = NULL;
	struct kfid_fabric *fabric;
	struct kfid_domain *domain;
	u64 took = 0;

	if (!hints)
		return 0;
	hints->ep_attr->type = KFI_EP_RDM;
	if (kfi_getinfo(KFI_VERSION(1, 7), NULL, NULL, 0, hints, &info))
		goto free;
	if (kfi_fabric(info->fabric_attr, &fabric, NULL))
		goto free;
	if (!kfi_domain(fabric, info, &domain, NULL)) {
		if (!ends_open(domain, info, two))
			took = play(two, side);
		ends_close(two);
		kfi_close(&domain->fid);
	}
	kfi_close(&fabric->fid);
free:
	kfi_freeinfo(info);
	kfi_freeinfo(hints);
	return took;
}

static u64 play_sockets(struct two *two, const struct side *side)
{
	u64 took = 0;

	if (sock_create_kern(&init_net, AF_UNIX, side->sock, 0, &two->sock[0]))
		return 0;
	if (sock_create_kern(&init_net, AF_UNIX, side->sock, 0, &two->sock[1]))
		goto release;
	two->sock[0]->sk->sk_rcvtimeo = msecs_to_jiffies(PATIENCE);
	two->sock[1]->sk->sk_rcvtimeo = msecs_to_jiffies(PATIENCE);
	if (!two->sock[0]->ops->socketpair(two->sock[0], two->sock[1]))
		took = play(two, side);
	sock_release(two->sock[1]);
release:
	sock_release(two->sock[0]);
	return took;
}

/**
 * kfabric_bench_transfer - time transfers
 * @which: what is transferred, and how
 * @rounds: how often, and once more
 *
 * The caller is bound to one CPU. A round is a message there and one back, a
 * batch of KFABRIC_BENCH_BATCH messages, or KFABRIC_BENCH_LARGE bytes.
 *
 * Return: nanoseconds of @rounds rounds; 0 if something failed.
 */
u64 kfabric_bench_transfer(enum kfabric_bench_transfer which, u64 rounds)
{
	const struct side *side = &sides[which];
	struct two two = { .rounds = rounds };
	u64 took = 0;
	int i;

	for (i = 0; i < 2; i++) {
		two.mem[i] = kzalloc(LARGE, GFP_KERNEL);
		if (!two.mem[i])
			goto free;
	}
	if (side->endpoints)
		took = play_endpoints(&two, side);
	else if (side->sock)
		took = play_sockets(&two, side);
	else
		took = play(&two, side);
free:
	kfree(two.mem[0]);
	kfree(two.mem[1]);
	return took;
}
