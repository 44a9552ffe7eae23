// SPDX-License-Identifier: GPL-2.0
/*
 * Counters in contexts that must not take the lock of their waiters: softirqs,
 * hard interrupts, with either disabled, and under a spin lock. A value has changed when a call
 * returns; waiters and deferred work follow.
 */

#include <linux/hrtimer.h>
#include <linux/interrupt.h>
#include <linux/wait.h>

#include <kfi/kfi_trigger.h>

#include "fixture.h"

/* Milliseconds that a wait ends after. */
#define SHORT	30
#define ERRORS	20000

/* Where changes are made. LOCKED: under a spin lock, with interrupts on. */
enum where { TIMER, TASKLET, BH_OFF, IRQ_OFF, LOCKED, HARD_IRQ };

/* Those for all changes. Hard interrupts are for adds. */
#define WHERES	HARD_IRQ

/**
 * struct changes - calls of a counter in one of these contexts
 * @test: the test
 * @cntr: the counter
 * @make: makes them
 * @done: they were made
 * @timer: of TIMER
 * @tasklet: of TASKLET
 * @hrtimer: of HARD_IRQ
 * @lock: that the caller holds with BH_OFF, IRQ_OFF and LOCKED
 * @value: the counter's value after them
 * @err: its error value
 * @ret: the first result that is not 0
 * @in_hardirq: they were made in a hard interrupt
 * @in_softirq: in a softirq, or with softirqs disabled
 */
struct changes {
	struct kunit		*test;
	struct kfid_cntr	*cntr;
	void			(*make)(struct changes *changes);
	struct completion	done;
	struct timer_list	timer;
	struct tasklet_struct	tasklet;
	struct hrtimer		hrtimer;
	/* Held by the cases of calls under a spin lock. */
	spinlock_t		lock;
	u64			value;
	u64			err;
	int			ret;
	bool			in_hardirq;
	bool			in_softirq;
};

static void make(struct changes *changes)
{
	changes->in_hardirq = in_hardirq();
	changes->in_softirq = in_softirq();
	changes->make(changes);
	changes->value = kfi_cntr_read(changes->cntr);
	changes->err = kfi_cntr_readerr(changes->cntr);
	complete(&changes->done);
}

static void by_timer(struct timer_list *timer)
{
	make(container_of(timer, struct changes, timer));
}

static void by_tasklet(struct tasklet_struct *tasklet)
{
	make(container_of(tasklet, struct changes, tasklet));
}

static enum hrtimer_restart by_hrtimer(struct hrtimer *timer)
{
	make(container_of(timer, struct changes, hrtimer));
	return HRTIMER_NORESTART;
}

static struct changes *changes_of(struct kunit *test, struct kfid_cntr *cntr)
{
	struct changes *changes = zeroed(test, sizeof(*changes));

	changes->test = test;
	changes->cntr = cntr;
	timer_setup(&changes->timer, by_timer, 0);
	tasklet_setup(&changes->tasklet, by_tasklet);
	hrtimer_setup(&changes->hrtimer, by_hrtimer, CLOCK_MONOTONIC, HRTIMER_MODE_REL_HARD);
	spin_lock_init(&changes->lock);
	return changes;
}

/* Makes changes in a context, and returns when that has ended. */
static void change(struct changes *changes, enum where where, void (*what)(struct changes *))
{
	struct kunit *test = changes->test;
	unsigned long irqs;

	changes->make = what;
	changes->ret = 0;
	init_completion(&changes->done);
	switch (where) {
	case TIMER:
		mod_timer(&changes->timer, jiffies + 1);
		break;
	case TASKLET:
		tasklet_schedule(&changes->tasklet);
		break;
	case BH_OFF:
		spin_lock_bh(&changes->lock);
		make(changes);
		spin_unlock_bh(&changes->lock);
		break;
	case IRQ_OFF:
		spin_lock_irqsave(&changes->lock, irqs);
		make(changes);
		spin_unlock_irqrestore(&changes->lock, irqs);
		break;
	case LOCKED:
		spin_lock(&changes->lock);
		make(changes);
		spin_unlock(&changes->lock);
		break;
	default:
		hrtimer_start(&changes->hrtimer, ms_to_ktime(1), HRTIMER_MODE_REL_HARD);
	}
	wait_for_completion(&changes->done);
	timer_delete_sync(&changes->timer);
	tasklet_kill(&changes->tasklet);
	hrtimer_cancel(&changes->hrtimer);
	KUNIT_EXPECT_EQ(test, changes->ret, 0);
	KUNIT_EXPECT_EQ(test, changes->in_hardirq, where == HARD_IRQ);
	if (where <= BH_OFF)
		KUNIT_EXPECT_TRUE(test, changes->in_softirq);
}

/* Notes a result. Assertions of KUnit are for process context. */
static void expect_0(struct changes *changes, int ret)
{
	if (ret && !changes->ret)
		changes->ret = ret;
}

static void add_1(struct changes *changes)
{
	expect_0(changes, kfi_cntr_add(changes->cntr, 1));
}

static void set_0(struct changes *changes)
{
	expect_0(changes, kfi_cntr_set(changes->cntr, 0));
}

static void set_9(struct changes *changes)
{
	expect_0(changes, kfi_cntr_set(changes->cntr, 9));
}

static void set_9_and_0(struct changes *changes)
{
	set_9(changes);
	set_0(changes);
}

static void adderr_1(struct changes *changes)
{
	expect_0(changes, kfi_cntr_adderr(changes->cntr, 1));
}

static void seterr_0(struct changes *changes)
{
	expect_0(changes, kfi_cntr_seterr(changes->cntr, 0));
}

static void seterr_9_and_0(struct changes *changes)
{
	expect_0(changes, kfi_cntr_seterr(changes->cntr, 9));
	seterr_0(changes);
}

/* No change of the error value. */
static void keep_err(struct changes *changes)
{
	expect_0(changes, kfi_cntr_adderr(changes->cntr, 0));
	expect_0(changes, kfi_cntr_seterr(changes->cntr, kfi_cntr_readerr(changes->cntr)));
}

static void all_calls(struct changes *changes)
{
	expect_0(changes, kfi_cntr_set(changes->cntr, 7));
	add_1(changes);
	expect_0(changes, kfi_cntr_seterr(changes->cntr, 3));
	adderr_1(changes);
}

static void values_have_changed_when_a_call_returns(struct kunit *test)
{
	struct changes *changes;
	struct kfid_cntr *cntr;
	struct fixture f;
	enum where where;

	fixture_open(test, &f);
	cntr = open_cntr(test, &f, KFI_WAIT_UNSPEC, NULL, NULL);
	changes = changes_of(test, cntr);
	for (where = 0; where < WHERES; where++) {
		change(changes, where, all_calls);
		KUNIT_EXPECT_EQ(test, changes->value, 8);
		KUNIT_EXPECT_EQ(test, changes->err, 4);
		KUNIT_EXPECT_EQ(test, kfi_cntr_read(cntr), 8);
		KUNIT_EXPECT_EQ(test, kfi_cntr_readerr(cntr), 4);
		/* What comes after a set counts from its value. */
		change(changes, where, set_0);
		kfi_cntr_add(cntr, 1);
		KUNIT_EXPECT_EQ(test, kfi_cntr_read(cntr), 1);
		KUNIT_EXPECT_EQ(test, kfi_cntr_wait(cntr, 1, -1), 0);
		/* A wait that begins after it does not see the values before. */
		change(changes, where, set_9_and_0);
		KUNIT_EXPECT_EQ(test, kfi_cntr_wait(cntr, 2, SHORT), -KFI_ETIMEDOUT);
		change(changes, where, seterr_9_and_0);
		KUNIT_EXPECT_EQ(test, kfi_cntr_wait(cntr, 2, SHORT), -KFI_ETIMEDOUT);
	}
	KUNIT_EXPECT_EQ(test, kfi_close(&cntr->fid), 0);
	fixture_close(test, &f);
}

static int wait_for_9(void *cntr)
{
	return kfi_cntr_wait(cntr, 9, LONG);
}

static void a_thread_that_waits_is_released(struct kunit *test)
{
	struct call waiter;
	struct changes *changes;
	struct kfid_cntr *cntr;
	struct fixture f;
	enum where where;

	fixture_open(test, &f);
	cntr = open_cntr(test, &f, KFI_WAIT_UNSPEC, NULL, NULL);
	changes = changes_of(test, cntr);
	for (where = 0; where < WHERES; where++) {
		call_sleeps(test, &waiter, wait_for_9, cntr);
		change(changes, where, set_9);
		call_ends(test, &waiter, 0);
		kfi_cntr_set(cntr, 0);
		/* Reached at any moment is reached. */
		call_sleeps(test, &waiter, wait_for_9, cntr);
		change(changes, where, set_9_and_0);
		call_ends(test, &waiter, 0);
		/* By an add before the set. */
		kfi_cntr_set(cntr, 8);
		call_sleeps(test, &waiter, wait_for_9, cntr);
		change(changes, where, add_1);
		change(changes, where, set_0);
		call_ends(test, &waiter, 0);
		/* A change of the error value ends a wait, also one that is taken back. */
		call_sleeps(test, &waiter, wait_for_9, cntr);
		change(changes, where, adderr_1);
		call_ends(test, &waiter, -KFI_EAVAIL);
		call_sleeps(test, &waiter, wait_for_9, cntr);
		change(changes, where, seterr_0);
		call_ends(test, &waiter, -KFI_EAVAIL);
		call_sleeps(test, &waiter, wait_for_9, cntr);
		change(changes, where, seterr_9_and_0);
		call_ends(test, &waiter, -KFI_EAVAIL);
		/* No change, and a value that is not enough. */
		call_sleeps(test, &waiter, wait_for_9, cntr);
		change(changes, where, keep_err);
		change(changes, where, add_1);
		change(changes, where, set_0);
		msleep(SHORT);
		KUNIT_EXPECT_FALSE(test, completion_done(&waiter.done));
		kfi_cntr_set(cntr, 9);
		call_ends(test, &waiter, 0);
		kfi_cntr_set(cntr, 0);
	}
	KUNIT_EXPECT_EQ(test, kfi_close(&cntr->fid), 0);
	fixture_close(test, &f);
}

/* Queues work that adds 1 to a counter when another has come to 9, with its errors. */
static void queue_work_at_9(struct kunit *test, struct fixture *f, struct kfid_cntr *go,
			    struct kfid_cntr *done)
{
	struct kfi_deferred_work *work = zeroed(test, sizeof(*work));
	struct kfi_op_cntr *op = zeroed(test, sizeof(*op));

	op->cntr = done;
	op->value = 1;
	work->op_type = KFI_OP_CNTR_ADD;
	work->op.cntr = op;
	work->triggering_cntr = go;
	work->threshold = 9;
	KUNIT_EXPECT_EQ(test, kfi_control(&f->domain->fid, KFI_QUEUE_WORK, work), 0);
}

static void deferred_work_starts(struct kunit *test)
{
	struct kfid_cntr *go, *done;
	struct changes *changes;
	struct fixture f;
	enum where where;
	u64 count = 0;

	fixture_open(test, &f);
	go = open_cntr(test, &f, KFI_WAIT_UNSPEC, NULL, NULL);
	done = open_cntr(test, &f, KFI_WAIT_UNSPEC, NULL, NULL);
	changes = changes_of(test, go);
	for (where = 0; where < WHERES; where++) {
		queue_work_at_9(test, &f, go, done);
		change(changes, where, set_9);
		KUNIT_EXPECT_EQ(test, kfi_cntr_wait(done, ++count, LONG), 0);
		kfi_cntr_set(go, 0);
		queue_work_at_9(test, &f, go, done);
		change(changes, where, set_9_and_0);
		KUNIT_EXPECT_EQ(test, kfi_cntr_wait(done, ++count, LONG), 0);
		/* It compares with the sum of both values. */
		queue_work_at_9(test, &f, go, done);
		change(changes, where, seterr_9_and_0);
		KUNIT_EXPECT_EQ(test, kfi_cntr_wait(done, ++count, LONG), 0);
		kfi_cntr_set(go, 8);
		queue_work_at_9(test, &f, go, done);
		change(changes, where, adderr_1);
		KUNIT_EXPECT_EQ(test, kfi_cntr_wait(done, ++count, LONG), 0);
		/* The sum falls, and an add reaches it again. */
		change(changes, where, seterr_0);
		queue_work_at_9(test, &f, go, done);
		msleep(SHORT);
		KUNIT_EXPECT_EQ(test, kfi_cntr_read(done), count);
		change(changes, where, add_1);
		KUNIT_EXPECT_EQ(test, kfi_cntr_wait(done, ++count, LONG), 0);
		/* Work that is queued after a change does not see the values before. */
		change(changes, where, set_9_and_0);
		change(changes, where, seterr_9_and_0);
		queue_work_at_9(test, &f, go, done);
		msleep(SHORT);
		KUNIT_EXPECT_EQ(test, kfi_cntr_read(done), count);
		change(changes, where, set_9);
		KUNIT_EXPECT_EQ(test, kfi_cntr_wait(done, ++count, LONG), 0);
		kfi_cntr_set(go, 0);
	}
	CLOSE(test, &done->fid, &go->fid);
	fixture_close(test, &f);
}

/* A thread that sleeps in a wait queue until a value is 9. */
struct sleeper {
	struct kfid_cntr	*cntr;
	wait_queue_head_t	*queue;
	struct call		call;
};

static int sleep_until_9(void *arg)
{
	struct sleeper *it = arg;

	return !wait_event_timeout(*it->queue,
				   kfi_cntr_read(it->cntr) + kfi_cntr_readerr(it->cntr) >= 9,
				   LONG * HZ / 1000);
}

static void the_wait_queue_is_woken(struct kunit *test)
{
	static void (*const ways[])(struct changes *) = { set_9, adderr_1, add_1 };
	struct changes *changes;
	struct kfid_cntr *cntr;
	struct kfid_wait *set;
	struct sleeper it;
	struct fixture f;
	enum where where;
	int i;

	fixture_open(test, &f);
	KUNIT_ASSERT_EQ(test, kfi_wait_open(f.fabric, NULL, &set), 0);
	for (where = 0; where < 2 * WHERES; where++) {
		/* Its own, and that of a wait set. */
		cntr = open_cntr(test, &f, where % 2 ? KFI_WAIT_SET : KFI_WAIT_QUEUE, set, NULL);
		changes = changes_of(test, cntr);
		it.cntr = cntr;
		KUNIT_ASSERT_EQ(test, kfi_control(where % 2 ? &set->kfid : &cntr->fid,
						  KFI_GETWAIT, &it.queue), 0);
		for (i = 0; i < ARRAY_SIZE(ways); i++) {
			kfi_cntr_set(cntr, 8);
			kfi_cntr_seterr(cntr, 0);
			call_sleeps(test, &it.call, sleep_until_9, &it);
			KUNIT_EXPECT_FALSE(test, completion_done(&it.call.done));
			change(changes, where / 2, ways[i]);
			call_ends(test, &it.call, 0);
		}
		KUNIT_EXPECT_EQ(test, kfi_close(&cntr->fid), 0);
	}
	KUNIT_EXPECT_EQ(test, kfi_close(&set->kfid), 0);
	fixture_close(test, &f);
}

/* Threads that add errors to one counter. */
struct adder {
	struct kfid_cntr	*cntr;
	int			index;
	struct call		call;
};

static int add_errors(void *arg)
{
	static DEFINE_SPINLOCK(lock);
	struct adder *adder = arg;
	unsigned long irqs;
	int i;

	for (i = 0; i < ERRORS; i++) {
		switch (adder->index) {
		case 0:
			kfi_cntr_adderr(adder->cntr, 1);
			break;
		case 1:
			local_bh_disable();
			kfi_cntr_adderr(adder->cntr, 1);
			local_bh_enable();
			break;
		default:
			spin_lock_irqsave(&lock, irqs);
			kfi_cntr_adderr(adder->cntr, 1);
			spin_unlock_irqrestore(&lock, irqs);
		}
		cond_resched();
	}
	return 0;
}

static void no_error_of_several_threads_is_lost(struct kunit *test)
{
	struct adder *adders = zeroed(test, 3 * sizeof(*adders));
	struct kfid_cntr *cntr;
	struct fixture f;
	int i;

	fixture_open(test, &f);
	cntr = open_cntr(test, &f, KFI_WAIT_UNSPEC, NULL, NULL);
	for (i = 0; i < 3; i++) {
		adders[i].cntr = cntr;
		adders[i].index = i;
		call_begin(test, &adders[i].call, add_errors, &adders[i]);
	}
	for (i = 0; i < 3; i++)
		wait_for_completion(&adders[i].call.done);
	KUNIT_EXPECT_EQ(test, kfi_cntr_readerr(cntr), 3 * ERRORS);
	KUNIT_EXPECT_EQ(test, kfi_close(&cntr->fid), 0);
	fixture_close(test, &f);
}

/* A counter can be closed at once; nobody waits for the worker. */
static void a_counter_is_closed_after_a_change(struct kunit *test)
{
	struct changes *changes;
	struct kfid_cntr *cntr;
	struct fixture f;
	enum where where;
	int i;

	fixture_open(test, &f);
	for (i = 0; i < 10; i++) {
		for (where = 0; where < WHERES; where++) {
			cntr = open_cntr(test, &f, KFI_WAIT_QUEUE, NULL, NULL);
			changes = changes_of(test, cntr);
			change(changes, where, all_calls);
			KUNIT_EXPECT_EQ(test, kfi_close(&cntr->fid), 0);
		}
	}
	fixture_close(test, &f);
}

static void other_calls(struct changes *changes)
{
	if (kfi_cntr_set(changes->cntr, 7) != -KFI_EOPNOTSUPP ||
	    kfi_cntr_adderr(changes->cntr, 1) != -KFI_EOPNOTSUPP ||
	    kfi_cntr_seterr(changes->cntr, 1) != -KFI_EOPNOTSUPP)
		changes->ret = -EIO;
}

/* Values are read, and 1 is added, in a hard interrupt. The other calls change nothing there. */
static void a_hard_interrupt_adds(struct kunit *test)
{
	struct call waiter;
	struct kfid_cntr *cntr, *done;
	struct changes *changes;
	struct fixture f;

	fixture_open(test, &f);
	cntr = open_cntr(test, &f, KFI_WAIT_UNSPEC, NULL, NULL);
	done = open_cntr(test, &f, KFI_WAIT_UNSPEC, NULL, NULL);
	changes = changes_of(test, cntr);
	kfi_cntr_seterr(cntr, 3);
	kfi_cntr_set(cntr, 5);
	queue_work_at_9(test, &f, cntr, done);
	/* It compares with the sum of both values. */
	change(changes, HARD_IRQ, add_1);
	KUNIT_EXPECT_EQ(test, changes->value, 6);
	KUNIT_EXPECT_EQ(test, changes->err, 3);
	KUNIT_EXPECT_EQ(test, kfi_cntr_wait(done, 1, LONG), 0);
	change(changes, HARD_IRQ, other_calls);
	KUNIT_EXPECT_EQ(test, changes->value, 6);
	KUNIT_EXPECT_EQ(test, changes->err, 3);
	kfi_cntr_set(cntr, 8);
	call_sleeps(test, &waiter, wait_for_9, cntr);
	change(changes, HARD_IRQ, add_1);
	call_ends(test, &waiter, 0);
	CLOSE(test, &done->fid, &cntr->fid);
	fixture_close(test, &f);
}

CONSUMER("counters in interrupts",
	 KUNIT_CASE(values_have_changed_when_a_call_returns),
	 KUNIT_CASE(a_hard_interrupt_adds),
	 KUNIT_CASE(a_thread_that_waits_is_released),
	 KUNIT_CASE(deferred_work_starts),
	 KUNIT_CASE(the_wait_queue_is_woken),
	 KUNIT_CASE(no_error_of_several_threads_is_lost),
	 KUNIT_CASE(a_counter_is_closed_after_a_change));
