/* SPDX-License-Identifier: GPL-2.0 */
/*
 * A network driver in small. It makes the calls of kfilnd, the network driver of
 * Lustre, with the same arguments and in the same order:
 *
 * - a scalable endpoint, with a transmit and a receive context for each CPU;
 * - messages into multi-receive buffers;
 * - bulk data by tagged RMA, to or from a receive whose tag a message has told;
 * - completion queues whose handler has them read by several CPUs.
 *
 * Besides, a counter of each context counts what its queue tells.
 *
 * driver_flow.h has what it does with them.
 */
#ifndef _CONSUMER_DRIVER_H
#define _CONSUMER_DRIVER_H

#include <linux/bvec.h>
#include <linux/delay.h>
#include <linux/gfp.h>
#include <linux/mm.h>
#include <linux/sizes.h>
#include <linux/slab.h>
#include <linux/spinlock.h>
#include <linux/workqueue.h>

#include <kfi/kfi_log.h>
#include <kfi/kfi_rma.h>

#include "two_hosts.h"

#define CPTS		2	/* contexts of each side, and CPUs that read a queue */
#define BITS		8	/* of an address that select a receive context */
#define IMMEDIATE	4096	/* most bytes of a message */
#define CREDITS		16	/* messages of one peer at the same time */
#define BUFFERS		2	/* multi-receive buffers of a receive context */
#define BUFFER_ORDER	get_order(CREDITS * IMMEDIATE)
#define MAX_IOV		256	/* pages of bulk data */

/**
 * struct message - a message as it is sent
 * @type: enum message_type
 * @fill: the byte that fills the payload or the first page of bulk data
 * @rx: the receive context of the sender that answers go to
 * @len: bytes of payload or of bulk data
 * @tag: of the receive for bulk data
 * @payload: of an immediate message
 */
struct message {
	u8	type;
	u8	fill;
	u16	rx;
	u32	len;
	u64	tag;
	u8	payload[];
} __packed;

enum message_type { HELLO_REQ, HELLO_RSP, IMMEDIATE_MSG, BULK_PUT, BULK_GET };

struct driver;
struct cpt;

/**
 * struct buffer - a multi-receive buffer
 * @cpt: its context
 * @mem: its bytes
 * @refs: one while it is posted, and one for each message that is being handled
 * @no_repost: the driver closes
 * @repost: posts it again when there is room
 */
struct buffer {
	struct cpt		*cpt;
	void			*mem;
	atomic_t		refs;
	bool			no_repost;
	struct delayed_work	repost;
};

/**
 * struct queue - a completion queue and those who read it, and the counter beside it
 * @cq: the queue
 * @cntr: counts the operations of the same context
 * @entries: completed operations that were read; a released buffer is none
 * @errors: failed operations that were read
 * @cpt: the context that it is of
 * @lock: protects @closed; and of a queue with messages, one reader at a time
 *	takes an entry and the reference to its buffer
 * @closed: nothing reads it any more
 * @readers: one for each CPU
 */
struct queue {
	struct kfid_cq		*cq;
	struct kfid_cntr	*cntr;
	atomic_t		entries;
	atomic_t		errors;
	struct cpt		*cpt;
	spinlock_t		lock;	/* see above */
	bool			closed;
	struct reader {
		struct queue		*queue;
		struct work_struct	work;
	} readers[CPTS];
};

/**
 * struct cpt - what is there for each CPU
 * @driver: the driver
 * @index: of its contexts
 * @tx: its transmit context
 * @rx: its receive context
 * @tx_queue: completions of @tx
 * @rx_queue: completions of @rx
 * @buffers: posted to @rx
 */
struct cpt {
	struct driver	*driver;
	int		index;
	struct kfid_ep	*tx;
	struct kfid_ep	*rx;
	struct queue	tx_queue;
	struct queue	rx_queue;
	struct buffer	buffers[BUFFERS];
};

/**
 * struct driver - the driver on one host
 * @service: the port, as text
 * @key: its authorization key
 * @fabric: the host
 * @domain: the link
 * @info: the entry, until the endpoint is open
 * @av: with the peer
 * @sep: the scalable endpoint
 * @nic: its address, as a number of the host
 * @cpts: one for each CPU
 * @wq: reads queues, and does what must be done again
 * @peer: the peer in @av
 * @peer_rx: receive context of the peer for messages
 * @tags: of receives that it has posted
 * @kinds: of the memory of data that it has allocated, one after the other
 * @greeted: the peer has answered a greeting
 * @received: immediate messages
 * @served: requests for bulk data that have ended
 * @served_status: how the last one that failed did
 * @bugs: what kfilnd would have taken for a bug of the provider
 * @refuses: answers requests for bulk data with an error
 * @holds: keeps one request for bulk data in @held instead of serving it
 * @held: the request
 */
struct driver {
	const char		*service;
	u32			key;
	struct kfid_fabric	*fabric;
	struct kfid_domain	*domain;
	struct kfi_info		*info;
	struct kfid_av		*av;
	struct kfid_ep		*sep;
	u32			nic;
	struct cpt		cpts[CPTS];
	struct workqueue_struct	*wq;
	kfi_addr_t		peer;
	u16			peer_rx;
	atomic_t		tags;
	atomic_t		kinds;
	struct completion	greeted;
	atomic_t		received;
	atomic_t		served;
	int			served_status;
	atomic_t		bugs;
	bool			refuses;
	bool			holds;
	struct transaction	*held;
};

/* Notes a bug of the provider, and what it is. */
#define bug(driver, ...) do {					\
	atomic_inc(&(driver)->bugs);				\
	LOG_ERR(__VA_ARGS__);					\
} while (0)

static void entry_completed(struct cpt *cpt, const struct kfi_cq_data_entry *entry);
static void entry_failed(struct cpt *cpt, const struct kfi_cq_err_entry *entry);

/* Reads a queue until it is empty: kfilnd_cq_process_completion(). */
static void read_queue(struct work_struct *work)
{
	struct queue *queue = container_of(work, struct reader, work)->queue;
	struct kfi_cq_data_entry entry;
	struct kfi_cq_err_entry error;
	ssize_t ret;

	for (;;) {
		spin_lock(&queue->lock);
		ret = kfi_cq_read(queue->cq, &entry, 1);
		if (ret == 1 && entry.flags & KFI_RECV && entry.flags & KFI_MSG)
			atomic_inc(&((struct buffer *)entry.op_context)->refs);
		spin_unlock(&queue->lock);
		if (ret == 1) {
			atomic_inc(&queue->entries);
			entry_completed(queue->cpt, &entry);
		} else if (ret == -KFI_EAVAIL) {
			/* The caller's memory may have any content. */
			memset(&error, 0xa5, sizeof(error));
			while (kfi_cq_readerr(queue->cq, &error, 0) == 1) {
				atomic_inc(&queue->errors);
				entry_failed(queue->cpt, &error);
			}
		} else {
			if (ret != -KFI_EAGAIN)
				bug(queue->cpt->driver, "a read fails with %zd", ret);
			return;
		}
	}
}

/* The handler: kfilnd_cq_completion(). */
static void queue_has_entries(struct kfid_cq *cq, void *context)
{
	struct queue *queue = context;
	int i;

	if (cq != queue->cq)
		bug(queue->cpt->driver, "the handler is called for another queue");
	spin_lock(&queue->lock);
	for (i = 0; i < CPTS && !queue->closed; i++)
		queue_work_on(cpumask_nth(i % num_online_cpus(), cpu_online_mask),
			      queue->cpt->driver->wq, &queue->readers[i].work);
	spin_unlock(&queue->lock);
}

static void queue_open(struct kunit *test, struct cpt *cpt, struct queue *queue, size_t size)
{
	struct kfi_cq_attr attr = {
		.size = size,
		.flags = KFI_AFFINITY,
		.format = KFI_CQ_FORMAT_DATA,
		.wait_obj = KFI_WAIT_NONE,
		.wait_cond = KFI_CQ_COND_NONE,
		.signaling_vector = cpumask_nth(cpt->index % num_online_cpus(), cpu_online_mask),
	};
	struct kfi_cntr_attr cntr_attr = { .wait_obj = KFI_WAIT_NONE };
	int i;

	queue->cpt = cpt;
	atomic_set(&queue->entries, 0);
	atomic_set(&queue->errors, 0);
	spin_lock_init(&queue->lock);
	queue->closed = false;
	for (i = 0; i < CPTS; i++) {
		queue->readers[i].queue = queue;
		INIT_WORK(&queue->readers[i].work, read_queue);
	}
	KUNIT_ASSERT_EQ(test, kfi_cq_open(cpt->driver->domain, &attr, &queue->cq,
					  queue_has_entries, queue), 0);
	KUNIT_ASSERT_EQ(test, kfi_cntr_open(cpt->driver->domain, &cntr_attr, &queue->cntr, queue),
			0);
}

static void queue_close(struct kunit *test, struct queue *queue)
{
	spin_lock(&queue->lock);
	queue->closed = true;
	spin_unlock(&queue->lock);
	flush_workqueue(queue->cpt->driver->wq);
	KUNIT_EXPECT_EQ(test, kfi_cntr_read(queue->cntr), atomic_read(&queue->entries));
	KUNIT_EXPECT_EQ(test, kfi_cntr_readerr(queue->cntr), atomic_read(&queue->errors));
	CLOSE(test, &queue->cntr->fid, &queue->cq->fid);
}

/* Posts a buffer. Returns an error or 0. */
static int buffer_post(struct buffer *buffer)
{
	int ret;

	if (READ_ONCE(buffer->no_repost))
		return 0;
	atomic_inc(&buffer->refs);
	ret = kfi_recv(buffer->cpt->rx, buffer->mem, PAGE_SIZE << BUFFER_ORDER, NULL,
		       KFI_ADDR_UNSPEC, buffer);
	if (ret)
		atomic_dec(&buffer->refs);
	return ret;
}

static void buffer_repost(struct work_struct *work)
{
	struct buffer *buffer = container_of(to_delayed_work(work), struct buffer, repost);
	int ret = buffer_post(buffer);

	if (ret == -KFI_EAGAIN)
		queue_delayed_work(buffer->cpt->driver->wq, &buffer->repost, 1);
	else if (ret)
		bug(buffer->cpt->driver, "a buffer is posted with %d", ret);
}

/* Drops a reference to a buffer. The last one posts it again. */
static void buffer_put(struct buffer *buffer)
{
	if (atomic_dec_and_test(&buffer->refs))
		buffer_repost(&buffer->repost.work);
}

/* Opens the contexts of a CPU: kfilnd_ep_alloc(). */
static void cpt_open(struct kunit *test, struct driver *driver, int index)
{
	struct cpt *cpt = &driver->cpts[index];
	struct kfi_rx_attr rx_attr = {
		.op_flags = KFI_COMPLETION | KFI_MULTI_RECV,
		.msg_order = KFI_ORDER_NONE,
		.comp_order = KFI_ORDER_NONE,
		.size = CREDITS + BUFFERS,
		.iov_limit = MAX_IOV,
	};
	struct kfi_tx_attr tx_attr = {
		.op_flags = KFI_COMPLETION | KFI_TRANSMIT_COMPLETE,
		.msg_order = KFI_ORDER_NONE,
		.comp_order = KFI_ORDER_NONE,
		.size = CREDITS * 2,
		.iov_limit = MAX_IOV,
		.rma_iov_limit = MAX_IOV,
		.tclass = KFI_TC_BEST_EFFORT,
	};
	size_t least = IMMEDIATE;
	int i;

	cpt->driver = driver;
	cpt->index = index;
	queue_open(test, cpt, &cpt->rx_queue, CREDITS * 10);
	queue_open(test, cpt, &cpt->tx_queue, CREDITS * 10);
	KUNIT_ASSERT_EQ(test, kfi_rx_context(driver->sep, index, &rx_attr, &cpt->rx, cpt), 0);
	KUNIT_ASSERT_EQ(test, kfi_setopt(&cpt->rx->fid, KFI_OPT_ENDPOINT, KFI_OPT_MIN_MULTI_RECV,
					 &least, sizeof(least)), 0);
	KUNIT_ASSERT_EQ(test, kfi_tx_context(driver->sep, index, &tx_attr, &cpt->tx, cpt), 0);
	KUNIT_ASSERT_EQ(test, kfi_ep_bind(cpt->rx, &cpt->rx_queue.cq->fid, 0), 0);
	KUNIT_ASSERT_EQ(test, kfi_ep_bind(cpt->tx, &cpt->tx_queue.cq->fid, 0), 0);
	KUNIT_ASSERT_EQ(test, kfi_ep_bind(cpt->rx, &cpt->rx_queue.cntr->fid, KFI_RECV), 0);
	KUNIT_ASSERT_EQ(test, kfi_ep_bind(cpt->tx, &cpt->tx_queue.cntr->fid,
					  KFI_SEND | KFI_READ | KFI_WRITE), 0);
	KUNIT_ASSERT_EQ(test, kfi_enable(cpt->rx), 0);
	KUNIT_ASSERT_EQ(test, kfi_enable(cpt->tx), 0);
	for (i = 0; i < BUFFERS; i++) {
		struct buffer *buffer = &cpt->buffers[i];

		/* As kfilnd allocates them, so the pages have no references of their own. */
		buffer->mem = (void *)__get_free_pages(GFP_KERNEL, BUFFER_ORDER);
		KUNIT_ASSERT_NOT_NULL(test, buffer->mem);
		buffer->cpt = cpt;
		buffer->no_repost = false;
		atomic_set(&buffer->refs, 0);
		INIT_DELAYED_WORK(&buffer->repost, buffer_repost);
	}
}

/* Closes them, when all transactions have ended: kfilnd_ep_free(). */
static void cpt_close(struct kunit *test, struct cpt *cpt)
{
	int i, turn;

	for (i = 0; i < BUFFERS; i++) {
		struct buffer *buffer = &cpt->buffers[i];

		WRITE_ONCE(buffer->no_repost, true);
		while (kfi_cancel(&cpt->rx->fid, buffer) == -KFI_EAGAIN)
			schedule();
	}
	for (i = 0; i < BUFFERS; i++) {
		struct buffer *buffer = &cpt->buffers[i];

		/* One that was being posted again is cancelled when it is. */
		for (turn = 0; turn < LONG && atomic_read(&buffer->refs); turn++) {
			kfi_cancel(&cpt->rx->fid, buffer);
			usleep_range(500, 1000);
		}
		KUNIT_EXPECT_EQ(test, atomic_read(&buffer->refs), 0);
		cancel_delayed_work_sync(&buffer->repost);
	}
	CLOSE(test, &cpt->tx->fid, &cpt->rx->fid);
	for (i = 0; i < BUFFERS; i++)
		free_pages((unsigned long)cpt->buffers[i].mem, BUFFER_ORDER);
	queue_close(test, &cpt->tx_queue);
	queue_close(test, &cpt->rx_queue);
}

/* The hints: kfilnd_dom_get(). Free them with driver_hints_free(). */
static struct kfi_info *driver_hints(u32 *key)
{
	struct kfi_info *hints = kfi_allocinfo();

	if (!hints)
		return NULL;
	hints->caps = KFI_MSG | KFI_RMA | KFI_SEND | KFI_RECV | KFI_READ | KFI_WRITE |
		      KFI_REMOTE_READ | KFI_REMOTE_WRITE | KFI_MULTI_RECV | KFI_REMOTE_COMM |
		      KFI_NAMED_RX_CTX | KFI_TAGGED | KFI_TAGGED_RMA | KFI_DIRECTED_RECV;
	hints->fabric_attr->prov_version = KFI_VERSION(1, 1);
	hints->domain_attr->mr_iov_limit = MAX_IOV;
	hints->domain_attr->mr_key_size = sizeof(int);
	hints->domain_attr->resource_mgmt = KFI_RM_DISABLED;
	hints->domain_attr->tclass = KFI_TC_BEST_EFFORT;
	hints->ep_attr->max_msg_size = SZ_1M;
	hints->rx_attr->op_flags = KFI_COMPLETION | KFI_MULTI_RECV;
	hints->rx_attr->iov_limit = MAX_IOV;
	hints->tx_attr->op_flags = KFI_COMPLETION;
	hints->tx_attr->iov_limit = MAX_IOV;
	hints->tx_attr->rma_iov_limit = MAX_IOV;
	hints->tx_attr->tclass = KFI_TC_BEST_EFFORT;
	/* The key is the caller's. */
	hints->ep_attr->auth_key = (u8 *)key;
	hints->ep_attr->auth_key_size = sizeof(*key);
	return hints;
}

static void driver_hints_free(struct kfi_info *hints)
{
	hints->ep_attr->auth_key = NULL;
	hints->ep_attr->auth_key_size = 0;
	kfi_freeinfo(hints);
}

/* What a host's process does: kfilnd_dom_get(). Returns 0 or an error. */
static int driver_find(void *arg)
{
	struct driver *driver = arg;
	struct kfi_info *hints = driver_hints(&driver->key), *copy, *info = NULL;
	void *ops;
	int ret;

	if (!hints)
		return -ENOMEM;
	/* Ask with a copy, and look for operations that only another provider has. */
	copy = kfi_dupinfo(hints);
	ret = copy ? kfi_getinfo(0, "kfi0", driver->service, KFI_SOURCE, copy, &info) : -ENOMEM;
	kfi_freeinfo(copy);
	if (ret)
		goto free;
	ret = kfi_fabric(info->fabric_attr, &driver->fabric, driver);
	if (ret)
		goto free;
	if (!kfi_open_ops(&driver->fabric->fid, "cxi_fab_ops_v1", 0, &ops, NULL))
		bug(driver, "there are operations of another provider");
	ret = kfi_getinfo(0, "kfi0", driver->service, KFI_SOURCE, hints, &driver->info);
	if (!ret)
		ret = kfi_domain(driver->fabric, driver->info, &driver->domain, driver);
	/* Both can be used again, if an entry is of them. */
	kfi_freeinfo(info);
	info = NULL;
	hints->fabric_attr->fabric = driver->fabric;
	hints->domain_attr->domain = driver->domain;
	if (!ret)
		ret = kfi_getinfo(0, "kfi0", driver->service, KFI_SOURCE, hints, &info);
free:
	kfi_freeinfo(info);
	driver_hints_free(hints);
	return ret;
}

/* Opens the driver on a host, without a peer: kfilnd_dev_alloc(). */
static void driver_open(struct kunit *test, struct driver *driver, int host, const char *service,
			u32 key)
{
	struct kfi_av_attr attr = { .type = KFI_AV_UNSPEC, .rx_ctx_bits = BITS };
	struct sockaddr_in *addr;
	int i, j;

	memset(driver, 0, sizeof(*driver));
	driver->service = service;
	driver->key = key;
	init_completion(&driver->greeted);
	driver->wq = alloc_workqueue("consumer_driver", WQ_MEM_RECLAIM | WQ_PERCPU, 0);
	KUNIT_ASSERT_NOT_NULL(test, driver->wq);
	KUNIT_ASSERT_EQ(test, host_call(host, driver_find, driver), 0);
	KUNIT_EXPECT_EQ(test, driver->info->ep_attr->auth_key_size, sizeof(key));
	KUNIT_EXPECT_MEMEQ(test, driver->info->ep_attr->auth_key, (u8 *)&key, sizeof(key));
	KUNIT_ASSERT_EQ(test, driver->info->src_addrlen, sizeof(*addr));
	addr = driver->info->src_addr;
	driver->nic = ntohl(addr->sin_addr.s_addr);
	KUNIT_ASSERT_EQ(test, kfi_av_open(driver->domain, &attr, &driver->av, driver), 0);
	KUNIT_ASSERT_EQ(test, kfi_scalable_ep(driver->domain, driver->info, &driver->sep, driver),
			0);
	kfi_freeinfo(driver->info);
	driver->info = NULL;
	KUNIT_ASSERT_EQ(test, kfi_scalable_ep_bind(driver->sep, &driver->av->fid, 0), 0);
	KUNIT_ASSERT_EQ(test, kfi_enable(driver->sep), 0);
	for (i = 0; i < CPTS; i++)
		cpt_open(test, driver, i);
	for (i = 0; i < CPTS; i++)
		for (j = 0; j < BUFFERS; j++)
			KUNIT_ASSERT_EQ(test, buffer_post(&driver->cpts[i].buffers[j]), 0);
}

/* Closes it: kfilnd_dev_free(). */
static void driver_close(struct kunit *test, struct driver *driver)
{
	int i;

	for (i = 0; i < CPTS; i++)
		cpt_close(test, &driver->cpts[i]);
	KUNIT_EXPECT_EQ(test, kfi_av_remove(driver->av, &driver->peer, 1, 0), 0);
	CLOSE(test, &driver->sep->fid, &driver->av->fid, &driver->domain->fid,
	      &driver->fabric->fid);
	destroy_workqueue(driver->wq);
	KUNIT_EXPECT_EQ(test, atomic_read(&driver->bugs), 0);
}

/* Waits until the counters of one side of a driver have this sum. Returns the sum. */
static u64 counted(struct driver *driver, bool tx, u64 wanted)
{
	u64 sum = 0;
	int i, turn;

	for (turn = 0; turn < LONG && (!turn || sum < wanted); turn++) {
		if (turn)
			usleep_range(500, 1000);
		for (sum = 0, i = 0; i < CPTS; i++) {
			struct cpt *cpt = &driver->cpts[i];

			sum += kfi_cntr_read(tx ? cpt->tx_queue.cntr : cpt->rx_queue.cntr);
		}
	}
	return sum;
}

/* Lets a driver know its peer, by a number as node: kfilnd_peer_get(). */
static void driver_knows(struct kunit *test, struct driver *driver, const struct driver *peer)
{
	char node[16];

	snprintf(node, sizeof(node), "%#x", peer->nic);
	KUNIT_ASSERT_EQ(test, kfi_av_insertsvc(driver->av, node, peer->service, &driver->peer, 0,
					       driver), 1);
}

/* The address of a receive context of the peer. */
static kfi_addr_t peer_rx(struct driver *driver, int rx)
{
	kfi_addr_t base = driver->peer & ((1ULL << (64 - BITS)) - 1);

	return kfi_rx_addr(base, rx, BITS);
}

#endif /* _CONSUMER_DRIVER_H */
