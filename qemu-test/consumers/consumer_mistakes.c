// SPDX-License-Identifier: GPL-2.0
/*
 * Mistakes of a consumer, and calls at unexpected moments: each has a defined result.
 */

#include <linux/bits.h>
#include <linux/preempt.h>
#include <linux/sched/signal.h>
#include <linux/string.h>
#include <linux/uio.h>
#include <linux/vmalloc.h>
#include <linux/wait.h>

#include <kfi/kfi_trigger.h>

#include "pair.h"

/*
 * A work that was never queued, because the call that should have queued it failed, cannot be
 * cancelled. No other work is.
 */
static void only_a_queued_work_is_cancelled(struct kunit *test)
{
	struct kfi_op_cntr add = { .value = 1 };
	struct kfi_deferred_work queued = {}, refused = {};
	struct kfid_cntr *trigger;
	struct kfid *domain;
	struct fixture f;

	fixture_open(test, &f);
	domain = &f.domain->fid;
	trigger = open_cntr(test, &f, KFI_WAIT_UNSPEC, NULL, NULL);
	add.cntr = trigger;
	queued.op_type = KFI_OP_CNTR_ADD;
	queued.op.cntr = &add;
	queued.triggering_cntr = trigger;
	queued.threshold = 5;
	refused = queued;
	refused.op.cntr = NULL;
	KUNIT_EXPECT_EQ(test, kfi_control(domain, KFI_QUEUE_WORK, &queued), 0);
	KUNIT_EXPECT_EQ(test, kfi_control(domain, KFI_QUEUE_WORK, &refused), -KFI_EINVAL);
	KUNIT_EXPECT_EQ(test, kfi_control(domain, KFI_CANCEL_WORK, &refused), -KFI_ENOENT);
	KUNIT_EXPECT_EQ(test, kfi_control(domain, KFI_CANCEL_WORK, &queued), 0);
	KUNIT_EXPECT_EQ(test, kfi_close(&trigger->fid), 0);
	fixture_close(test, &f);
}

/**
 * struct release - what reuses the memory of a work when it has completed
 * @entry: told of the counter that the work changes
 * @work: the work
 * @done: it has completed
 */
struct release {
	struct wait_queue_entry		entry;
	struct kfi_deferred_work	*work;
	bool				done;
};

static int release_work(struct wait_queue_entry *entry, unsigned int mode, int flags, void *key)
{
	struct release *release = container_of(entry, struct release, entry);

	/* In place of kfree(). */
	memset(release->work, 'f', sizeof(*release->work));
	release->done = true;
	return 0;
}

/* The memory of a work is the consumer's again when the work has completed. */
static void a_work_may_be_freed_when_it_completes(struct kunit *test)
{
	struct kfi_op_cntr add = { .value = 1 };
	struct kfi_deferred_work work = {};
	struct release release = { .work = &work };
	struct kfid_cntr *trigger, *changed;
	wait_queue_head_t *queue;
	struct fixture f;

	fixture_open(test, &f);
	trigger = open_cntr(test, &f, KFI_WAIT_UNSPEC, NULL, NULL);
	changed = open_cntr(test, &f, KFI_WAIT_QUEUE, NULL, NULL);
	KUNIT_ASSERT_EQ(test, kfi_control(&changed->fid, KFI_GETWAIT, &queue), 0);
	init_waitqueue_func_entry(&release.entry, release_work);
	add_wait_queue(queue, &release.entry);
	add.cntr = changed;
	work.op_type = KFI_OP_CNTR_ADD;
	work.op.cntr = &add;
	work.triggering_cntr = trigger;
	/* Due at once. */
	work.threshold = 0;
	KUNIT_EXPECT_EQ(test, kfi_control(&f.domain->fid, KFI_QUEUE_WORK, &work), 0);
	KUNIT_EXPECT_TRUE(test, release.done);
	KUNIT_EXPECT_NULL(test, memchr_inv(&work, 'f', sizeof(work)));
	remove_wait_queue(queue, &release.entry);
	CLOSE(test, &trigger->fid, &changed->fid);
	fixture_close(test, &f);
}

/* Posts where the caller may not sleep, until that fails or 20 times @room were accepted. */
static ssize_t post_many(struct end *end, bool receives, size_t room, u64 *word)
{
	size_t posted, i;
	ssize_t ret = 0;

	for (posted = 0; !ret && posted < 20 * room; posted += i) {
		preempt_disable();
		for (i = 0; !ret && i < 256; i++) {
			if (receives)
				ret = kfi_recv(end->ep, word, sizeof(*word), NULL, 0, NULL);
			else
				ret = kfi_send(end->ep, word, sizeof(*word), NULL, end->peer, NULL);
		}
		preempt_enable();
	}
	return ret;
}

/*
 * Where the caller may not sleep, too, a peer that takes nothing ends in -KFI_EAGAIN, and not in
 * memory without bound. So does a peer that sends nothing. An entry says how many operations may be
 * outstanding.
 */
static void posts_that_may_not_sleep_are_bounded(struct kunit *test)
{
	struct kfi_info *info = entry_of(test, KFI_EP_RDM);
	u64 *word = zeroed(test, sizeof(*word));
	struct fixture f;
	struct end ends[2];

	KUNIT_EXPECT_GT(test, info->tx_attr->size, 0);
	KUNIT_EXPECT_GT(test, info->rx_attr->size, 0);
	pair_open(test, &f, KFI_EP_RDM, ends);
	KUNIT_EXPECT_EQ(test, post_many(&ends[0], false, info->tx_attr->size, word), -KFI_EAGAIN);
	KUNIT_EXPECT_EQ(test, post_many(&ends[0], true, info->rx_attr->size, word), -KFI_EAGAIN);
	pair_close(test, &f, ends);
	kfi_freeinfo(info);
}

/* Elements of a list: the most, and the most where the caller may not sleep. */
#define ELEMENTS	BIT(18)
#define FEW_ELEMENTS	256

/* A list that is too long is refused, whatever its elements are, before they are read. */
static void long_lists_are_refused(struct kunit *test)
{
	struct kvec *list = vzalloc(array_size(ELEMENTS + 1, sizeof(*list)));
	struct fixture f;
	struct end ends[2];
	ssize_t ret, late;
	u64 word = 0;

	KUNIT_ASSERT_NOT_NULL(test, list);
	pair_open(test, &f, KFI_EP_RDM, ends);
	list[0] = (struct kvec) { &word, sizeof(word) };
	ret = kfi_sendv(ends[0].ep, list, NULL, ELEMENTS + 1, ends[0].peer, NULL);
	preempt_disable();
	late = kfi_sendv(ends[0].ep, list, NULL, FEW_ELEMENTS + 1, ends[0].peer, NULL);
	preempt_enable();
	KUNIT_EXPECT_EQ(test, ret, -KFI_E2BIG);
	KUNIT_EXPECT_EQ(test, late, -KFI_E2BIG);
	list[0].iov_len = 0;
	ret = kfi_recvv(ends[1].ep, list, NULL, ELEMENTS + 1, 0, NULL);
	KUNIT_EXPECT_EQ(test, ret, -KFI_E2BIG);
	pair_close(test, &f, ends);
	vfree(list);
}

/* Bytes of a message whose copy takes a while. */
#define LARGE		(64UL << 20)

/* Attempts to close an endpoint while such a message is copied to its memory. */
#define ATTEMPTS	20

/**
 * struct copy - a large message on its way, and a task that closes its destination
 * @ends: the first sends to the second
 * @from: the bytes
 * @to: the memory of the receive
 * @ret: result of the send
 * @close: result of the close
 * @beside: the copy had begun and was not over when the close began
 * @ready: the closing task waits for the first byte
 * @sent: the send has returned
 * @closed: the close has returned
 */
struct copy {
	struct end		ends[2];
	u8			*from;
	u8			*to;
	ssize_t			ret;
	int			close;
	bool			beside;
	struct completion	ready;
	struct completion	sent;
	struct completion	closed;
};

static int send_large(void *arg)
{
	struct copy *copy = arg;

	copy->ret = kfi_send(copy->ends[0].ep, copy->from, LARGE, NULL, copy->ends[0].peer, NULL);
	complete(&copy->sent);
	return 0;
}

/* A task that is being killed, as a process that runs rmmod may be. */
static int close_killed(void *arg)
{
	struct copy *copy = arg;

	allow_signal(SIGKILL);
	send_sig(SIGKILL, current, 1);
	complete(&copy->ready);
	while (!READ_ONCE(copy->to[0]) && !completion_done(&copy->sent)) {
		cpu_relax();
		cond_resched();
	}
	copy->beside = !READ_ONCE(copy->to[LARGE - 1]);
	copy->close = kfi_close(&copy->ends[1].ep->fid);
	complete(&copy->closed);
	return 0;
}

/* One attempt. Returns whether the close began during the copy. */
static bool close_during_copy(struct kunit *test, struct copy *copy)
{
	struct task_struct *closer, *sender;
	struct fixture f;
	u8 last;

	memset(copy->to, 0, LARGE);
	init_completion(&copy->ready);
	init_completion(&copy->sent);
	init_completion(&copy->closed);
	pair_open(test, &f, KFI_EP_RDM, copy->ends);
	KUNIT_EXPECT_EQ(test, kfi_recv(copy->ends[1].ep, copy->to, LARGE, NULL, 0, NULL), 0);
	closer = kthread_create(close_killed, copy, "closer");
	sender = kthread_create(send_large, copy, "sender");
	KUNIT_ASSERT_FALSE(test, IS_ERR(closer));
	KUNIT_ASSERT_FALSE(test, IS_ERR(sender));
	/* On one CPU, the closing task would run when the copy is over. */
	kthread_bind(closer, cpumask_first(cpu_online_mask));
	kthread_bind(sender, cpumask_last(cpu_online_mask));
	wake_up_process(closer);
	wait_for_completion(&copy->ready);
	wake_up_process(sender);
	wait_for_completion(&copy->closed);
	last = READ_ONCE(copy->to[LARGE - 1]);
	KUNIT_EXPECT_EQ(test, copy->close, 0);
	wait_for_completion(&copy->sent);
	KUNIT_EXPECT_EQ(test, copy->ret, 0);
	/* Nothing is placed after the close. */
	KUNIT_EXPECT_EQ(test, last, copy->to[LARGE - 1]);
	if (copy->close)
		KUNIT_EXPECT_EQ(test, kfi_close(&copy->ends[1].ep->fid), 0);
	CLOSE(test, &copy->ends[1].av->fid, &copy->ends[1].cq->fid, &copy->ends[1].sent->fid,
	      &copy->ends[1].received->fid);
	end_close(test, &copy->ends[0]);
	fixture_close(test, &f);
	return copy->beside;
}

/*
 * kfi_close() returns 0 or -KFI_EBUSY, also to a task that is being killed. The memory of the
 * endpoint's receives is the consumer's when it has returned.
 */
static void a_killed_task_closes(struct kunit *test)
{
	struct copy *copy = zeroed(test, sizeof(*copy));
	bool beside = false;
	int i;

	if (num_online_cpus() < 2)
		kunit_skip(test, "the close runs beside the copy, on another CPU");
	copy->to = vmalloc(LARGE);
	copy->from = vmalloc(LARGE);
	KUNIT_ASSERT_NOT_NULL(test, copy->to);
	KUNIT_ASSERT_NOT_NULL(test, copy->from);
	memset(copy->from, 'c', LARGE);
	for (i = 0; i < ATTEMPTS && !beside; i++)
		beside = close_during_copy(test, copy);
	KUNIT_EXPECT_TRUE_MSG(test, beside, "no close began during a copy");
	vfree(copy->to);
	vfree(copy->from);
}

/**
 * struct both - two ways to wait for a wait set at the same time
 * @entry: in the wait queue of the set
 * @set: the set
 * @told: how often the queue was woken
 * @call: kfi_wait()
 */
struct both {
	struct wait_queue_entry	entry;
	struct kfid_wait	*set;
	int			told;
	struct call		call;
};

static int tell(struct wait_queue_entry *entry, unsigned int mode, int flags, void *key)
{
	container_of(entry, struct both, entry)->told++;
	return 0;
}

static int wait_for_set(void *set)
{
	return kfi_wait(set, LONG);
}

/* A task in kfi_wait() takes no wake-up from those that sleep in the queue of the wait set. */
static void a_queue_is_told_beside_a_call(struct kunit *test)
{
	struct both *both = zeroed(test, sizeof(*both));
	struct kfid_cntr *cntr;
	wait_queue_head_t *queue;
	struct fixture f;

	fixture_open(test, &f);
	KUNIT_ASSERT_EQ(test, kfi_wait_open(f.fabric, NULL, &both->set), 0);
	cntr = open_cntr(test, &f, KFI_WAIT_SET, both->set, NULL);
	KUNIT_ASSERT_EQ(test, kfi_control(&both->set->kfid, KFI_GETWAIT, &queue), 0);
	init_waitqueue_func_entry(&both->entry, tell);
	add_wait_queue(queue, &both->entry);
	call_sleeps(test, &both->call, wait_for_set, both->set);
	msleep(30);
	kfi_cntr_add(cntr, 1);
	call_ends(test, &both->call, 0);
	/* It waits for a condition of its own, such as the value of the counter. */
	KUNIT_EXPECT_EQ(test, both->told, 1);
	remove_wait_queue(queue, &both->entry);
	CLOSE(test, &cntr->fid, &both->set->kfid);
	fixture_close(test, &f);
}

/**
 * struct link - passes an add on to another counter
 * @entry: in the wait queue of a counter
 * @next: the other counter
 */
struct link {
	struct wait_queue_entry	entry;
	struct kfid_cntr	*next;
};

static int pass_on(struct wait_queue_entry *entry, unsigned int mode, int flags, void *key)
{
	struct link *link = container_of(entry, struct link, entry);

	if (link->next)
		kfi_cntr_add(link->next, 1);
	return 0;
}

/*
 * kfi_cntr_add() can be called in any context and under spin locks, so also by what the wait queue
 * of a counter calls, with the lock of that queue held (fails with lockdep; for the same counter it
 * would wait for ever).
 */
static void a_wake_function_adds(struct kunit *test)
{
	struct link *links = zeroed(test, 2 * sizeof(*links));
	struct kfid_cntr *cntrs[2];
	wait_queue_head_t *queues[2];
	struct fixture f;
	int i;

	fixture_open(test, &f);
	for (i = 0; i < 2; i++) {
		cntrs[i] = open_cntr(test, &f, KFI_WAIT_QUEUE, NULL, NULL);
		KUNIT_ASSERT_EQ(test, kfi_control(&cntrs[i]->fid, KFI_GETWAIT, &queues[i]), 0);
		init_waitqueue_func_entry(&links[i].entry, pass_on);
		add_wait_queue(queues[i], &links[i].entry);
	}
	links[0].next = cntrs[1];
	kfi_cntr_add(cntrs[0], 1);
	KUNIT_EXPECT_EQ(test, kfi_cntr_wait(cntrs[1], 1, LONG), 0);
	for (i = 0; i < 2; i++) {
		remove_wait_queue(queues[i], &links[i].entry);
		KUNIT_EXPECT_EQ(test, kfi_close(&cntrs[i]->fid), 0);
	}
	fixture_close(test, &f);
}

CONSUMER("mistakes and unexpected moments",
	 KUNIT_CASE(only_a_queued_work_is_cancelled),
	 KUNIT_CASE(a_work_may_be_freed_when_it_completes),
	 KUNIT_CASE(posts_that_may_not_sleep_are_bounded),
	 KUNIT_CASE(long_lists_are_refused),
	 KUNIT_CASE(a_killed_task_closes),
	 KUNIT_CASE(a_queue_is_told_beside_a_call),
	 KUNIT_CASE(a_wake_function_adds));
