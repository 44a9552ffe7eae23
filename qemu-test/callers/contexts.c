// SPDX-License-Identifier: GPL-2.0
/*
 * Posts where the caller may not sleep: with interrupts off, under a spin lock,
 * in a hard interrupt, and in the handler of a completion.
 */

#define pr_fmt(fmt) KBUILD_MODNAME ": " fmt

#include <linux/irq_work.h>
#include <linux/spinlock.h>

#include "callers.h"

#define ROUNDS	50

static DEFINE_SPINLOCK(lock);

/* Taken by the handlers of entries, too. */
static void then_locked(struct note *note)
{
	unsigned long flags;

	spin_lock_irqsave(&lock, flags);
	spin_unlock_irqrestore(&lock, flags);
}

/* Posts a receive at b and a send at a; any context. */
static int exchange(struct pair *pair, struct note *sent, struct note *received)
{
	struct ib_sge sge = part(&pair->a, pair->a.memory, 500);
	struct ib_send_wr wr = {
		.wr_cqe = &sent->cqe,
		.sg_list = &sge,
		.num_sge = 1,
		.opcode = IB_WR_SEND,
		.send_flags = IB_SEND_SIGNALED,
	};

	return receive(&pair->b, received, pair->b.memory, 500) ?:
	       post(&pair->a, &wr);
}

static int has_exchanged(struct pair *pair, struct note *sent,
			 struct note *received, u8 seed)
{
	CHECK(done_with(sent, IB_WC_SUCCESS));
	CHECK(done_with(received, IB_WC_SUCCESS));
	CHECK(holds(pair->b.memory, 500, seed));
	memset(pair->b.memory, 0, 500);
	return 0;
}

static int irqs_off(struct pair *pair)
{
	struct note *sent, *received;
	unsigned long flags;
	int i, ret;

	for (i = 0; i < ROUNDS; i++) {
		sent = note_of(&pair->a);
		received = note_of(&pair->b);
		fill(pair->a.memory, 500, i);
		local_irq_save(flags);
		ret = exchange(pair, sent, received);
		local_irq_restore(flags);
		CHECK_EQ(ret, 0);
		CHECK(!has_exchanged(pair, sent, received, i));
	}
	return 0;
}

static int spin_locked(struct pair *pair)
{
	struct note *sent, *received;
	int i, ret;

	for (i = 0; i < ROUNDS; i++) {
		sent = note_of(&pair->a);
		received = note_of(&pair->b);
		sent->then = then_locked;
		received->then = then_locked;
		fill(pair->a.memory, 500, i);
		spin_lock_irq(&lock);
		ret = exchange(pair, sent, received);
		spin_unlock_irq(&lock);
		CHECK_EQ(ret, 0);
		CHECK(!has_exchanged(pair, sent, received, i));
	}
	return 0;
}

/**
 * struct interrupt - a post in a hard interrupt
 * @work: the interrupt
 * @pair: the ends
 * @sent: the send
 * @received: the receive
 * @ret: the result
 */
struct interrupt {
	struct irq_work work;
	struct pair *pair;
	struct note *sent;
	struct note *received;
	int ret;
};

static void interrupted(struct irq_work *work)
{
	struct interrupt *irq = container_of(work, struct interrupt, work);

	irq->ret = in_hardirq() ?
		   exchange(irq->pair, irq->sent, irq->received) : -EPERM;
}

static int hard_irq(struct pair *pair)
{
	struct interrupt irq = {
		.work = IRQ_WORK_INIT(interrupted),
		.pair = pair,
	};
	int i;

	for (i = 0; i < ROUNDS; i++) {
		irq.sent = note_of(&pair->a);
		irq.received = note_of(&pair->b);
		fill(pair->a.memory, 500, i);
		CHECK(irq_work_queue(&irq.work));
		irq_work_sync(&irq.work);
		CHECK_EQ(irq.ret, 0);
		CHECK(!has_exchanged(pair, irq.sent, irq.received, i));
	}
	return 0;
}

/* The exchange that handlers go on with. */
static struct {
	struct pair *pair;
	struct completion done;
	int left;
	int ret;
} chain;

static void next_in_handler(struct note *note)
{
	struct note *received, *sent;

	if (note->wc.status != IB_WC_SUCCESS)
		chain.ret = -EIO;
	if (chain.ret || !chain.left--) {
		complete(&chain.done);
		return;
	}
	received = note_of(&chain.pair->b);
	sent = note_of(&chain.pair->a);
	received->then = next_in_handler;
	chain.ret = exchange(chain.pair, sent, received);
	if (chain.ret)
		complete(&chain.done);
}

/* Each receive posts the next receive and the next send. */
static int handlers(struct pair *pair)
{
	struct note *received = note_of(&pair->b), *sent = note_of(&pair->a);

	chain.pair = pair;
	init_completion(&chain.done);
	chain.left = ROUNDS;
	received->then = next_in_handler;
	fill(pair->a.memory, 500, 4);
	CHECK_EQ(exchange(pair, sent, received), 0);
	CHECK(wait_for_completion_timeout(&chain.done, 60 * HZ));
	CHECK_EQ(chain.ret, 0);
	CHECK_EQ(chain.left, -1);
	CHECK(holds(pair->b.memory, 500, 4));
	return 0;
}

/* The calls of the handler of a CQ that a test arms. */
static atomic_t calls;

static void called(struct ib_cq *cq, void *context)
{
	atomic_inc(&calls);
}

/* Arms a CQ. Returns 1 if it has an entry. */
static int arm(struct ib_cq *cq)
{
	return ib_req_notify_cq(cq, IB_CQ_NEXT_COMP |
				IB_CQ_REPORT_MISSED_EVENTS);
}

/* Polling and arming with interrupts off, as some callers do. */
static int polled(struct pair *pair)
{
	struct note *sent = note_of(&pair->a), *received = note_of(&pair->b);
	unsigned long flags, end = jiffies + 30 * HZ;
	int armed, again, count, empty;
	struct ib_cq *cq = pair->b.cq;
	struct ib_wc wc;

	atomic_set(&calls, 0);
	/* The handler of a CQ with IB_POLL_DIRECT warns, because no user arms such a CQ. */
	cq->comp_handler = called;
	local_irq_save(flags);
	armed = arm(cq);
	local_irq_restore(flags);
	CHECK_EQ(armed, 0);
	CHECK_EQ(exchange(pair, sent, received), 0);
	while (!atomic_read(&calls) && time_before(jiffies, end))
		cond_resched();
	CHECK_EQ(atomic_read(&calls), 1);
	local_irq_save(flags);
	armed = arm(cq);
	again = arm(cq);
	count = ib_poll_cq(cq, 1, &wc);
	empty = arm(cq);
	local_irq_restore(flags);
	CHECK_EQ(armed, 1);
	CHECK_EQ(again, 1);
	CHECK_EQ(count, 1);
	CHECK_EQ(empty, 0);
	CHECK(wc.wr_cqe == &received->cqe);
	CHECK_EQ(wc.status, IB_WC_SUCCESS);
	CHECK(done_with(sent, IB_WC_SUCCESS));
	/* An entry that was there is no reason for a call. */
	CHECK_EQ(atomic_read(&calls), 1);
	return 0;
}

const struct test context_tests[] = {
	{ "irqs-off", { .poll = IB_POLL_SOFTIRQ }, irqs_off },
	{ "spin-lock", { .poll = IB_POLL_SOFTIRQ }, spin_locked },
	{ "hard-irq", { .poll = IB_POLL_WORKQUEUE }, hard_irq },
	{ "handler-softirq", { .poll = IB_POLL_SOFTIRQ }, handlers },
	{ "handler-workqueue", { .poll = IB_POLL_WORKQUEUE }, handlers },
	{ "poll", { .poll = IB_POLL_DIRECT }, polled },
	{}
};
