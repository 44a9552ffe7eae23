// SPDX-License-Identifier: GPL-2.0
/*
 * Event queues: events that the consumer writes itself, waiting for them, several
 * readers, and the event handler.
 */

#include <linux/bitmap.h>
#include <linux/jiffies.h>
#include <linux/ktime.h>
#include <linux/preempt.h>
#include <linux/smp.h>
#include <linux/wait.h>

#include "fixture.h"

/* An event of the consumer's own. */
#define MINE	1000

static struct kfid_eq *open_eq(struct kunit *test, struct fixture *f,
			       enum kfi_wait_obj wait_obj)
{
	struct kfi_eq_attr attr = {
		.size = 2,
		.flags = KFI_WRITE,
		.wait_obj = wait_obj,
	};
	struct kfid_eq *eq;

	KUNIT_ASSERT_EQ(test, kfi_eq_open(f->fabric, &attr, &eq, NULL, f), 0);
	return eq;
}

static void attributes_are_checked(struct kunit *test)
{
	struct kfi_eq_attr attr = {};
	struct kfid_eq *eq = NULL;
	struct fixture f;
	u32 event;

	fixture_open(test, &f);
#define REFUSED() \
	KUNIT_EXPECT_EQ(test, kfi_eq_open(f.fabric, &attr, &eq, NULL, NULL), -KFI_EINVAL)
	attr.flags = KFI_READ;
	REFUSED();
	attr.flags = 0;
	attr.size = SIZE_MAX;
	REFUSED();
	attr.size = 0;
	attr.wait_obj = KFI_WAIT_QUEUE + 1;
	REFUSED();
	attr.wait_obj = KFI_WAIT_SET;
	REFUSED();
	KUNIT_EXPECT_NULL(test, eq);
	/* A CPU that does not exist is ignored. */
	attr = (struct kfi_eq_attr){ .flags = KFI_AFFINITY, .signaling_vector = -1 };
	KUNIT_ASSERT_EQ(test, kfi_eq_open(f.fabric, &attr, &eq, NULL, NULL), 0);
	/* A timeout of 0 is a read. */
	KUNIT_EXPECT_EQ(test, kfi_eq_sread(eq, &event, NULL, 0, 0, 0), -KFI_EAGAIN);
	KUNIT_EXPECT_EQ(test, kfi_close(&eq->fid), 0);
	/* Without attributes, calls can wait, and the consumer does not write. */
	KUNIT_ASSERT_EQ(test, kfi_eq_open(f.fabric, NULL, &eq, NULL, &f), 0);
	KUNIT_EXPECT_EQ(test, eq->fid.fclass, KFI_CLASS_EQ);
	KUNIT_EXPECT_PTR_EQ(test, eq->fid.context, (void *)&f);
	KUNIT_EXPECT_EQ(test, eq->ops->size, sizeof(*eq->ops));
	KUNIT_EXPECT_EQ(test, kfi_eq_sread(eq, &event, NULL, 0, 1, 0), -KFI_ETIMEDOUT);
	KUNIT_EXPECT_EQ(test, kfi_eq_write(eq, MINE, &event, sizeof(event), 0), -KFI_EINVAL);
	KUNIT_EXPECT_EQ(test, kfi_close(&f.domain->fid), 0);
	KUNIT_EXPECT_EQ(test, kfi_close(&f.fabric->fid), -KFI_EBUSY);
	CLOSE(test, &eq->fid, &f.fabric->fid);
	kfi_freeinfo(f.info);
}

static void events_are_written_and_read(struct kunit *test)
{
	struct kfi_eq_err_entry error = {};
	struct kfid_eq *eq;
	char data[8] = {};
	struct fixture f;
	u32 event = 0;

	fixture_open(test, &f);
	eq = open_eq(test, &f, KFI_WAIT_NONE);
	KUNIT_EXPECT_EQ(test, kfi_eq_read(eq, &event, data, sizeof(data), 0), -KFI_EAGAIN);
	KUNIT_EXPECT_EQ(test, kfi_eq_readerr(eq, &error, 0), -KFI_EAGAIN);
	KUNIT_EXPECT_EQ(test, kfi_eq_readerr(eq, &error, KFI_READ), -KFI_EINVAL);
	KUNIT_EXPECT_EQ(test, kfi_eq_write(eq, MINE, "abc", 3, 1), -KFI_EINVAL);
	KUNIT_EXPECT_EQ(test, kfi_eq_write(eq, MINE, NULL, 3, 0), -KFI_EINVAL);
	KUNIT_EXPECT_EQ(test, kfi_eq_write(eq, MINE, "abc", SIZE_MAX, 0), -KFI_EINVAL);
	KUNIT_EXPECT_EQ(test, kfi_eq_write(eq, MINE, "abc", 3, 0), 3);
	/* What looks like an event of the provider is the consumer's as well. */
	KUNIT_EXPECT_EQ(test, kfi_eq_write(eq, KFI_CONNECTED, NULL, 0, 0), 0);
	KUNIT_EXPECT_EQ(test, kfi_eq_write(eq, MINE, "d", 1, 0), -KFI_EAGAIN);
	KUNIT_EXPECT_EQ(test, kfi_eq_read(eq, NULL, data, sizeof(data), 0), -KFI_EINVAL);
	KUNIT_EXPECT_EQ(test, kfi_eq_read(eq, &event, NULL, 3, 0), -KFI_EINVAL);
	KUNIT_EXPECT_EQ(test, kfi_eq_read(eq, &event, data, 3, KFI_READ), -KFI_EINVAL);
	/* Neither a look nor a short buffer takes it. */
	KUNIT_EXPECT_EQ(test, kfi_eq_read(eq, &event, data, sizeof(data), KFI_PEEK), 3);
	KUNIT_EXPECT_EQ(test, kfi_eq_read(eq, &event, data, 2, 0), -KFI_ETOOSMALL);
	KUNIT_EXPECT_EQ(test, kfi_eq_read(eq, &event, data, 3, 0), 3);
	KUNIT_EXPECT_EQ(test, event, MINE);
	KUNIT_EXPECT_STREQ(test, data, "abc");
	KUNIT_EXPECT_EQ(test, kfi_eq_read(eq, &event, NULL, 0, 0), 0);
	KUNIT_EXPECT_EQ(test, event, KFI_CONNECTED);
	KUNIT_EXPECT_EQ(test, kfi_eq_read(eq, &event, data, 3, KFI_PEEK), -KFI_EAGAIN);
	/* KFI_WAIT_NONE: it can be asked, not waited on. */
	KUNIT_EXPECT_EQ(test, kfi_eq_sread(eq, &event, data, 3, 0, 0), -KFI_EAGAIN);
	KUNIT_EXPECT_EQ(test, kfi_eq_sread(eq, &event, data, 3, 1, 0), -KFI_EINVAL);
	KUNIT_EXPECT_STREQ(test, kfi_eq_strerror(eq, 28, NULL, data, sizeof(data)),
			   "consumer reject");
	KUNIT_EXPECT_STREQ(test, data, "consume");
	KUNIT_EXPECT_EQ(test, kfi_close(&eq->fid), 0);
	fixture_close(test, &f);
}

/* A thread that waits for an event. */
struct waiter {
	struct kfid_eq		*eq;
	wait_queue_head_t	*queue;
	u32			event;
	struct call		call;
};

/* Reading may sleep, so it is no condition of wait_event(). */
static ssize_t wait_in_queue(struct waiter *it, void *data, size_t len)
{
	DEFINE_WAIT_FUNC(wait, woken_wake_function);
	long left = LONG * HZ / 1000;
	ssize_t ret;

	add_wait_queue(it->queue, &wait);
	for (;;) {
		ret = kfi_eq_read(it->eq, &it->event, data, len, 0);
		if (ret >= 0 || !left)
			break;
		left = wait_woken(&wait, TASK_UNINTERRUPTIBLE, left);
	}
	remove_wait_queue(it->queue, &wait);
	return ret;
}

static int wait_for_event(void *arg)
{
	struct waiter *it = arg;
	char data[8];

	if (it->queue)
		return wait_in_queue(it, data, sizeof(data));
	return kfi_eq_sread(it->eq, &it->event, data, sizeof(data), LONG, 0);
}

static void a_waiter_gets_an_event(struct kunit *test, struct waiter *it)
{
	call_sleeps(test, &it->call, wait_for_event, it);
	KUNIT_EXPECT_FALSE(test, completion_done(&it->call.done));
	KUNIT_EXPECT_EQ(test, kfi_eq_write(it->eq, MINE, "abc", 3, 0), 3);
	call_ends(test, &it->call, 3);
	KUNIT_EXPECT_EQ(test, it->event, MINE);
}

static void waiters_are_woken(struct kunit *test)
{
	struct kfi_eq_attr attr = { .flags = KFI_WRITE, .wait_obj = KFI_WAIT_SET };
	struct waiter it = {};
	struct fixture f;
	ktime_t begin;
	u32 event;

	fixture_open(test, &f);
	it.eq = open_eq(test, &f, KFI_WAIT_QUEUE);
	begin = ktime_get();
	KUNIT_EXPECT_EQ(test, kfi_eq_sread(it.eq, &event, NULL, 0, 50, 0), -KFI_ETIMEDOUT);
	KUNIT_EXPECT_GE(test, ktime_ms_delta(ktime_get(), begin), 50);
	a_waiter_gets_an_event(test, &it);
	KUNIT_ASSERT_EQ(test, kfi_control(&it.eq->fid, KFI_GETWAIT, &it.queue), 0);
	a_waiter_gets_an_event(test, &it);
	KUNIT_EXPECT_EQ(test, kfi_close(&it.eq->fid), 0);

	KUNIT_ASSERT_EQ(test, kfi_wait_open(f.fabric, NULL, &attr.wait_set), 0);
	KUNIT_ASSERT_EQ(test, kfi_eq_open(f.fabric, &attr, &it.eq, NULL, NULL), 0);
	KUNIT_EXPECT_EQ(test, kfi_wait(attr.wait_set, 1), -KFI_ETIMEDOUT);
	KUNIT_EXPECT_EQ(test, kfi_eq_write(it.eq, MINE, NULL, 0, 0), 0);
	KUNIT_EXPECT_EQ(test, kfi_wait(attr.wait_set, LONG), 0);
	KUNIT_EXPECT_EQ(test, kfi_eq_sread(it.eq, &event, NULL, 0, 1, 0), -KFI_EINVAL);
	CLOSE(test, &it.eq->fid, &attr.wait_set->kfid);
	fixture_close(test, &f);
}

/* What a handler was called for. */
struct told {
	int		cpu;
	bool		drains;
	atomic_t	calls;
	atomic_t	wrong;
	atomic_t	events;
	int		closed;
};

static void on_event(struct kfid_eq *eq, void *context)
{
	struct told *told = context;
	u32 event;

	might_sleep();
	if (in_interrupt() || raw_smp_processor_id() != told->cpu)
		atomic_inc(&told->wrong);
	/* A handler cannot close its own queue. */
	told->closed = kfi_close(&eq->fid);
	msleep(20);
	while (told->drains && kfi_eq_read(eq, &event, NULL, 0, 0) >= 0)
		atomic_inc(&told->events);
	atomic_inc(&told->calls);
}

/* Waits for calls, and for those that should not come. */
static int calls(struct told *told, int wanted)
{
	int i;

	for (i = 0; i < LONG / 20 && atomic_read(&told->calls) < wanted; i++)
		msleep(20);
	msleep(50);
	return atomic_read(&told->calls);
}

static void a_handler_is_told_of_events(struct kunit *test)
{
	struct kfi_eq_attr attr = { .flags = KFI_WRITE | KFI_AFFINITY };
	struct told told = {};
	struct kfid_eq *eq;
	struct fixture f;
	u32 event;
	int i;

	fixture_open(test, &f);
	told.cpu = cpumask_last(cpu_online_mask);
	attr.signaling_vector = told.cpu;
	KUNIT_ASSERT_EQ(test, kfi_eq_open(f.fabric, &attr, &eq, on_event, &told), 0);
	KUNIT_EXPECT_PTR_EQ(test, (void *)eq->event_handler, (void *)on_event);
	KUNIT_EXPECT_EQ(test, calls(&told, 0), 0);
	/* Armed when it is opened, disarmed when it is called. */
	for (i = 0; i < 3; i++) {
		KUNIT_EXPECT_EQ(test, kfi_eq_write(eq, MINE, NULL, 0, 0), 0);
		KUNIT_EXPECT_EQ(test, calls(&told, 1), 1);
	}
	for (i = 0; i < 3; i++)
		KUNIT_EXPECT_EQ(test, kfi_eq_read(eq, &event, NULL, 0, 0), 0);
	KUNIT_EXPECT_EQ(test, kfi_eq_write(eq, MINE, NULL, 0, 0), 0);
	KUNIT_EXPECT_EQ(test, calls(&told, 1), 1);
	/* Armed again by a read that finds nothing. */
	KUNIT_EXPECT_EQ(test, kfi_eq_read(eq, &event, NULL, 0, 0), 0);
	KUNIT_EXPECT_EQ(test, kfi_eq_read(eq, &event, NULL, 0, 0), -KFI_EAGAIN);
	KUNIT_EXPECT_EQ(test, kfi_eq_write(eq, MINE, NULL, 0, 0), 0);
	KUNIT_EXPECT_EQ(test, calls(&told, 2), 2);
	KUNIT_EXPECT_EQ(test, told.closed, -KFI_EBUSY);
	/* A handler that reads all events is called for each later one. */
	told.drains = true;
	KUNIT_EXPECT_EQ(test, kfi_eq_read(eq, &event, NULL, 0, 0), 0);
	KUNIT_EXPECT_EQ(test, kfi_eq_read(eq, &event, NULL, 0, 0), -KFI_EAGAIN);
	for (i = 0; i < 100; i++) {
		if (kfi_eq_write(eq, MINE, NULL, 0, 0) < 0) {
			i--;
			msleep(20);
		}
	}
	for (i = 0; i < LONG / 20 && atomic_read(&told.events) < 100; i++)
		msleep(20);
	KUNIT_EXPECT_EQ(test, atomic_read(&told.events), 100);
	/* The close waits for a call. */
	KUNIT_EXPECT_EQ(test, kfi_eq_write(eq, MINE, NULL, 0, 0), 0);
	KUNIT_EXPECT_EQ(test, kfi_close(&eq->fid), 0);
	i = atomic_read(&told.calls);
	KUNIT_EXPECT_EQ(test, calls(&told, i), i);
	KUNIT_EXPECT_EQ(test, atomic_read(&told.wrong), 0);
	fixture_close(test, &f);
}

/* On each CPU in turn, of events that another one writes. */
static void a_handler_runs_on_its_cpu(struct kunit *test)
{
	struct kfi_eq_attr attr = { .flags = KFI_WRITE | KFI_AFFINITY };
	struct told told = { .drains = true };
	struct kfid_eq *eq;
	struct fixture f;
	int i, cpu;

	fixture_open(test, &f);
	for_each_online_cpu(cpu) {
		run_elsewhere(test, cpu);
		told.cpu = cpu;
		attr.signaling_vector = cpu;
		atomic_set(&told.calls, 0);
		KUNIT_ASSERT_EQ(test, kfi_eq_open(f.fabric, &attr, &eq, on_event, &told), 0);
		for (i = 1; i <= 3; i++) {
			KUNIT_EXPECT_EQ(test, kfi_eq_write(eq, MINE, NULL, 0, 0), 0);
			KUNIT_EXPECT_EQ(test, calls(&told, i), i);
		}
		KUNIT_EXPECT_EQ_MSG(test, atomic_read(&told.wrong), 0, "CPU %d", cpu);
		KUNIT_EXPECT_EQ(test, kfi_close(&eq->fid), 0);
	}
	fixture_close(test, &f);
}

/* Events of a test with many, and threads that write or read them. */
#define MANY	2000
#define THREADS	4

/**
 * struct crowd - threads of one queue
 * @eq: the queue
 * @numbers: events that were read
 * @read: how many
 * @inside: calls of the handler that go on
 * @wrong: events that were read twice, and calls that were not alone
 * @next: the next writer's place
 * @done: counts threads that have ended
 */
struct crowd {
	struct kfid_eq		*eq;
	DECLARE_BITMAP(numbers, MANY);
	atomic_t		read;
	atomic_t		inside;
	atomic_t		wrong;
	atomic_t		next;
	struct completion	done;
};

/* Reads events until there are none. */
static void read_all(struct crowd *crowd)
{
	u32 number, event;

	while (kfi_eq_read(crowd->eq, &event, &number, sizeof(number), 0) == sizeof(number)) {
		if (event != MINE || number >= MANY || test_and_set_bit(number, crowd->numbers))
			atomic_inc(&crowd->wrong);
		atomic_inc(&crowd->read);
	}
}

static int read_until_all(void *arg)
{
	struct crowd *crowd = arg;
	unsigned long end = jiffies + LONG * HZ / 1000;

	while (atomic_read(&crowd->read) < MANY && time_before(jiffies, end)) {
		read_all(crowd);
		cond_resched();
	}
	complete(&crowd->done);
	return 0;
}

/* Writes its part of the events. */
static int write_part(void *arg)
{
	struct crowd *crowd = arg;
	unsigned long end = jiffies + LONG * HZ / 1000;
	u32 number = atomic_inc_return(&crowd->next) - 1;

	while (number < MANY && time_before(jiffies, end)) {
		if (kfi_eq_write(crowd->eq, MINE, &number, sizeof(number), 0) == -KFI_EAGAIN)
			usleep_range(50, 100);
		else
			number += THREADS / 2;
	}
	complete(&crowd->done);
	return 0;
}

/* Starts half of the threads, on CPUs in turn. */
static void start_half(struct kunit *test, struct crowd *crowd, int (*run)(void *arg))
{
	struct task_struct *task;
	int i;

	for (i = 0; i < THREADS / 2; i++) {
		task = kthread_create(run, crowd, "consumer_eq/%d", i);
		KUNIT_ASSERT_FALSE(test, IS_ERR(task));
		kthread_bind(task, cpumask_nth(i % num_online_cpus(), cpu_online_mask));
		wake_up_process(task);
	}
}

/* All events were read, each once. */
static void crowd_is_done(struct kunit *test, struct crowd *crowd, int threads)
{
	int i;

	while (threads--)
		wait_for_completion(&crowd->done);
	for (i = 0; i < LONG / 20 && atomic_read(&crowd->read) < MANY; i++)
		msleep(20);
	KUNIT_EXPECT_EQ(test, atomic_read(&crowd->read), MANY);
	KUNIT_EXPECT_TRUE(test, bitmap_full(crowd->numbers, MANY));
	KUNIT_EXPECT_EQ(test, atomic_read(&crowd->wrong), 0);
	KUNIT_EXPECT_EQ(test, kfi_close(&crowd->eq->fid), 0);
}

/* Threads read one queue while others write: each event is read once. */
static void readers_share_a_queue(struct kunit *test)
{
	struct kfi_eq_attr attr = { .size = 64, .flags = KFI_WRITE };
	struct crowd *crowd = zeroed(test, sizeof(*crowd));
	struct fixture f;

	init_completion(&crowd->done);
	fixture_open(test, &f);
	KUNIT_ASSERT_EQ(test, kfi_eq_open(f.fabric, &attr, &crowd->eq, NULL, NULL), 0);
	start_half(test, crowd, read_until_all);
	start_half(test, crowd, write_part);
	crowd_is_done(test, crowd, THREADS);
	fixture_close(test, &f);
}

static void alone(struct kfid_eq *eq, void *context)
{
	struct crowd *crowd = context;

	if (atomic_inc_return(&crowd->inside) != 1)
		atomic_inc(&crowd->wrong);
	/* Armed again by the last read: the next call could come now. */
	read_all(crowd);
	usleep_range(50, 100);
	atomic_dec(&crowd->inside);
}

/* Without KFI_AFFINITY, events of several CPUs call the handler, and not at the same time. */
static void a_handler_without_a_cpu_runs_alone(struct kunit *test)
{
	struct kfi_eq_attr attr = { .size = 64, .flags = KFI_WRITE };
	struct crowd *crowd = zeroed(test, sizeof(*crowd));
	struct fixture f;

	init_completion(&crowd->done);
	fixture_open(test, &f);
	KUNIT_ASSERT_EQ(test, kfi_eq_open(f.fabric, &attr, &crowd->eq, alone, crowd), 0);
	start_half(test, crowd, write_part);
	crowd_is_done(test, crowd, THREADS / 2);
	fixture_close(test, &f);
}

CONSUMER("event queues",
	 KUNIT_CASE(attributes_are_checked),
	 KUNIT_CASE(events_are_written_and_read),
	 KUNIT_CASE(waiters_are_woken),
	 KUNIT_CASE(a_handler_is_told_of_events),
	 KUNIT_CASE(a_handler_runs_on_its_cpu),
	 KUNIT_CASE(readers_share_a_queue),
	 KUNIT_CASE(a_handler_without_a_cpu_runs_alone));
