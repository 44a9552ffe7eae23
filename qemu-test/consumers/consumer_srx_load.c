// SPDX-License-Identifier: GPL-2.0
/*
 * Threads that send to the endpoints of one shared receive context, and threads
 * that receive: every message arrives once, unchanged. Endpoints come and go
 * meanwhile.
 */

#include "pool.h"

#define SENDERS		4
#define RECEIVERS	2
#define POSTED		32
#define LENGTH		12000

static unsigned int messages = 2000;
module_param(messages, uint, 0444);
MODULE_PARM_DESC(messages, "messages of each sender");

/* The beginning of a message. */
struct head {
	u32	sender;
	u32	number;
};

/**
 * struct load - what the threads share
 * @pool: the context and its endpoints
 * @ends: the senders
 * @addrs: the endpoints of the context, as each sender knows them
 * @buffers: the receives
 * @left: messages that have not come
 * @lock: serialises changes of @seen
 * @seen: how often each message of each sender has come
 * @error: the first thing that went wrong
 * @done: a thread has ended
 */
struct load {
	struct pool		pool;
	struct end		ends[SENDERS];
	kfi_addr_t		addrs[SENDERS][MEMBERS];
	u8			*buffers[POSTED];
	atomic_t		left;
	spinlock_t		lock;	/* of @seen */
	u8			*seen;
	int			error;
	struct completion	done;
};

/* A sender, by its number, or another thread. */
struct thread {
	struct load	*load;
	u32		index;
};

static void note(struct load *load, int error)
{
	cmpxchg(&load->error, 0, error);
}

/* Bytes of a message; some are buffered, some wait with their sender. */
static size_t length_of(u32 sender, u32 number)
{
	return sizeof(struct head) + (sender * 977 + number * 331) % (LENGTH - sizeof(struct head));
}

static int send_all(void *arg)
{
	struct thread *self = arg;
	struct load *load = self->load;
	struct end *end = &load->ends[self->index];
	u8 *buf = (u8 *)__get_free_pages(GFP_KERNEL, get_order(LENGTH));
	struct head *head = (struct head *)buf;
	struct kfi_cq_tagged_entry entry;
	size_t len;
	ssize_t ret = buf ? 0 : -ENOMEM;
	u32 i;

	for (i = 0; !ret && i < messages && !READ_ONCE(load->error); i++) {
		len = length_of(self->index, i);
		memset(buf, i + self->index, len);
		*head = (struct head) { self->index, i };
		do {
			ret = kfi_send(end->ep, buf, len, NULL,
				       load->addrs[self->index][i % MEMBERS], buf);
			cond_resched();
		} while (ret == -KFI_EAGAIN && !READ_ONCE(load->error));
		if (!ret)
			ret = kfi_cq_sread(end->cq, &entry, 1, NULL, LONG) == 1 ? 0 : -EIO;
	}
	if (ret)
		note(load, ret);
	free_pages((unsigned long)buf, get_order(LENGTH));
	complete(&load->done);
	return 0;
}

/* Checks a message that came into a buffer. */
static int check(struct load *load, u8 *buf, size_t len)
{
	struct head *head = (struct head *)buf;
	u8 byte;
	u8 *seen;
	int ret = 0;

	if (len < sizeof(*head) || head->sender >= SENDERS || head->number >= messages)
		return -EBADMSG;
	if (len != length_of(head->sender, head->number))
		return -EMSGSIZE;
	byte = head->number + head->sender;
	if (memchr_inv(buf + sizeof(*head), byte, len - sizeof(*head)))
		return -EILSEQ;
	spin_lock(&load->lock);
	seen = &load->seen[head->sender * messages + head->number];
	if ((*seen)++)
		ret = -EEXIST;
	spin_unlock(&load->lock);
	return ret;
}

static int receive_all(void *arg)
{
	struct load *load = ((struct thread *)arg)->load;
	struct kfi_cq_tagged_entry entry;
	ssize_t ret = 0;
	u8 *buf;

	while (!ret && atomic_read(&load->left) > 0 && !READ_ONCE(load->error)) {
		ret = kfi_cq_sread(load->pool.all.cq, &entry, 1, NULL, 100);
		if (ret == -KFI_EAGAIN) {
			ret = 0;
			continue;
		}
		if (ret != 1)
			break;
		buf = entry.op_context;
		ret = check(load, buf, entry.len);
		atomic_dec(&load->left);
		/* Another receiver may have read the place that it needs. */
		while (!ret) {
			ret = kfi_recv(load->pool.srx, buf, LENGTH, NULL, ANY, buf);
			if (ret != -KFI_EAGAIN)
				break;
			ret = 0;
			cond_resched();
		}
	}
	if (ret)
		note(load, ret);
	complete(&load->done);
	return 0;
}

/* Opens and closes another endpoint of the context, again and again. */
static int come_and_go(void *arg)
{
	struct load *load = ((struct thread *)arg)->load;
	struct pool *pool = &load->pool;
	struct kfid_ep *ep;
	int ret = 0;

	while (!ret && atomic_read(&load->left) > 0 && !READ_ONCE(load->error)) {
		ret = kfi_endpoint(pool->f.domain, pool->info, &ep, NULL);
		if (ret)
			break;
		ret = kfi_ep_bind(ep, &pool->srx->fid, 0);
		ret = ret ?: kfi_ep_bind(ep, &pool->all.av->fid, 0);
		ret = ret ?: kfi_ep_bind(ep, &pool->all.cq->fid, KFI_TRANSMIT | KFI_RECV);
		ret = ret ?: kfi_enable(ep);
		ret = kfi_close(&ep->fid) ?: ret;
		cond_resched();
	}
	if (ret)
		note(load, ret);
	complete(&load->done);
	return 0;
}

static void start(struct kunit *test, int (*run)(void *), struct thread *thread)
{
	struct task_struct *task = kthread_run(run, thread, "srx_load");

	KUNIT_ASSERT_FALSE(test, IS_ERR(task));
}

static void every_message_arrives_once(struct kunit *test)
{
	struct load *load = zeroed(test, sizeof(*load));
	struct thread threads[SENDERS + RECEIVERS + 1];
	struct pool *pool;
	struct kfi_info *info;
	u64 received = 0;
	int i, j;

	load->seen = zeroed(test, SENDERS * messages);
	pool = &load->pool;
	spin_lock_init(&load->lock);
	init_completion(&load->done);
	atomic_set(&load->left, SENDERS * messages);
	pool_open_whole(test, pool);
	info = entry_of(test, KFI_EP_RDM);
	for (i = 0; i < SENDERS; i++) {
		end_open_enabled(test, &pool->f, info, &load->ends[i]);
		for (j = 0; j < MEMBERS; j++) {
			struct end member = { .ep = pool->members[j].ep };

			end_knows(test, &load->ends[i], &member);
			load->addrs[i][j] = load->ends[i].peer;
		}
	}
	kfi_freeinfo(info);
	for (i = 0; i < POSTED; i++) {
		load->buffers[i] = kunit_kzalloc(test, LENGTH, GFP_KERNEL);
		KUNIT_ASSERT_NOT_NULL(test, load->buffers[i]);
		KUNIT_ASSERT_EQ(test, kfi_recv(pool->srx, load->buffers[i], LENGTH, NULL, ANY,
					       load->buffers[i]), 0);
	}
	for (i = 0; i < ARRAY_SIZE(threads); i++) {
		threads[i] = (struct thread) { load, i };
		start(test, i < SENDERS ? send_all :
			    i < SENDERS + RECEIVERS ? receive_all : come_and_go, &threads[i]);
	}
	for (i = 0; i < ARRAY_SIZE(threads); i++)
		wait_for_completion(&load->done);
	KUNIT_EXPECT_EQ(test, load->error, 0);
	KUNIT_EXPECT_EQ(test, atomic_read(&load->left), 0);
	for (i = 0; i < SENDERS * messages; i++)
		KUNIT_EXPECT_EQ(test, load->seen[i], 1);
	for (i = 0; i < MEMBERS; i++)
		received += kfi_cntr_read(pool->members[i].received);
	KUNIT_EXPECT_EQ(test, received, SENDERS * messages);
	/* All receives are posted again. */
	for (i = 0; i < POSTED; i++) {
		KUNIT_EXPECT_EQ(test, kfi_cancel(&pool->srx->fid, load->buffers[i]), 0);
		failed(test, &pool->all, load->buffers[i], KFI_ECANCELED);
	}
	for (i = 0; i < SENDERS; i++)
		end_close(test, &load->ends[i]);
	nothing(test, &pool->all);
	pool_close_whole(test, pool);
}

CONSUMER("a shared receive context under load",
	 KUNIT_CASE_SLOW(every_message_arrives_once));
