// SPDX-License-Identifier: GPL-2.0
/*
 * Benchmarks in the kernel: the code that times a waker and its sleepers, and
 * the C code that the module's counters are compared with.
 *
 * All tasks are bound to one CPU, and sleepers preempt the waker as soon as
 * they are woken (SCHED_FIFO). So the time from the wake-up until the sleeper
 * runs is the time of the code (waking, switching, leaving the wait). It
 * includes neither the start of another CPU (in an emulator, of another thread
 * of the host), nor what the waker does afterwards. The same code times both
 * sides, through pointers to functions. Between two rounds it accesses only the
 * sleeper that has just run, because accesses to many others would fill the
 * caches with data that the next wake-up does not use.
 */

#include "bench.h"

#include <linux/atomic.h>
#include <linux/completion.h>
#include <linux/kthread.h>
#include <linux/ktime.h>
#include <linux/mm.h>
#include <linux/sched.h>
#include <linux/slab.h>
#include <linux/sort.h>
#include <linux/wait.h>

struct frame {
	struct kfabric_bench *bench;
	/* When the waker began, and the time that the sleeper measured. */
	u64 began;
	u64 took;
	struct completion ran;
};

struct sleeper {
	struct frame *frame;
	struct task_struct *task;
	/* The rounds that it waits for. */
	u64 first;
	u64 last;
	u64 step;
};

/* Rounds after which each sleeper has slept once and caches are filled. */
static u64 warm_up(struct kfabric_bench *bench)
{
	return (bench->rotate ? bench->sleepers : 0) + 64;
}

/* The last round. In the rounds after the measured ones, sleepers exit. */
static u64 last_round(struct kfabric_bench *bench)
{
	return warm_up(bench) + bench->rounds + bench->sleepers;
}

static void give_turns(struct sleeper *sleeper, u32 number)
{
	struct kfabric_bench *bench = sleeper->frame->bench;
	u64 last = last_round(bench);

	sleeper->step = bench->rotate ? bench->sleepers : 1;
	if (bench->rotate || number == 0) {
		sleeper->first = number + 1;
		sleeper->last = bench->rotate ? last : last - bench->sleepers + 1;
	} else {
		sleeper->first = last - bench->sleepers + number + 1;
		sleeper->last = sleeper->first;
	}
}

static int sleep_in_turn(void *data)
{
	struct sleeper *me = data;
	struct frame *frame = me->frame;
	struct kfabric_bench *bench = frame->bench;
	u64 round;

	for (round = me->first; round <= me->last; round += me->step) {
		bench->wait(bench->data, round);
		frame->took = ktime_get_ns() - frame->began;
		complete(&frame->ran);
	}
	return 0;
}

/* Waits until they are asleep. They preempt the waker, so usually they are. */
static void let_sleep(struct sleeper *sleepers, u32 count)
{
	u32 i;

	for (i = 0; i < count; i++)
		while (READ_ONCE(sleepers[i].task->on_rq))
			schedule_timeout_uninterruptible(1);
}

/* The sleeper that waits for a measured round. */
static struct sleeper *of_round(struct sleeper *sleepers, u64 round)
{
	struct kfabric_bench *bench = sleepers->frame->bench;

	return bench->rotate ? &sleepers[(round - 1) % bench->sleepers] : sleepers;
}

static u64 runs(struct sleeper *sleepers, u32 count)
{
	u64 sum = 0;
	u32 i;

	for (i = 0; i < count; i++)
		sum += sleepers[i].task->nvcsw;
	return sum;
}

static u64 wake_one(struct frame *frame)
{
	struct kfabric_bench *bench = frame->bench;

	frame->began = ktime_get_ns();
	bench->wake(bench->data);
	wait_for_completion(&frame->ran);
	return frame->took;
}

static int compare(const void *a, const void *b)
{
	u64 x = *(const u64 *)a, y = *(const u64 *)b;

	return x < y ? -1 : x > y;
}

/* Measures with @count sleepers, and lets all of them exit. */
static void measure(struct frame *frame, struct sleeper *sleepers, u64 *times)
{
	struct kfabric_bench *bench = frame->bench;
	u32 count = bench->sleepers;
	u64 last = last_round(bench), round, ran = 0;

	let_sleep(sleepers, count);
	for (round = 1; round <= last; round++) {
		u64 measured = round - warm_up(bench);

		if (round > 1 && round <= warm_up(bench) + bench->rounds + 1)
			let_sleep(of_round(sleepers, round - 1), 1);
		if (measured == 1)
			ran = runs(sleepers, count);
		if (measured == bench->rounds + 1)
			bench->woken = runs(sleepers, count) - ran;
		if (round > warm_up(bench) && measured <= bench->rounds)
			times[measured - 1] = wake_one(frame);
		else
			wake_one(frame);
	}
	sort(times, bench->rounds, sizeof(*times), compare, NULL);
	bench->median = times[bench->rounds / 2];
}

/**
 * kfabric_bench_run - measure wake-ups, see struct kfabric_bench
 * @bench: parameters and results
 *
 * The caller is bound to one CPU, and nothing else uses the number that the
 * sleepers wait for.
 *
 * Return: 0, or -ENOMEM; then no sleeper waits and the number is unchanged.
 */
int kfabric_bench_run(struct kfabric_bench *bench)
{
	struct sleeper *sleepers;
	struct frame frame = {
		.bench = bench,
	};
	u64 *times;
	u32 made, i;
	int ret = -ENOMEM;

	init_completion(&frame.ran);
	sleepers = kvcalloc(bench->sleepers, sizeof(*sleepers), GFP_KERNEL);
	times = kvcalloc(bench->rounds, sizeof(*times), GFP_KERNEL);
	if (!sleepers || !times)
		goto out;
	for (made = 0; made < bench->sleepers; made++) {
		struct sleeper *new = &sleepers[made];

		new->frame = &frame;
		give_turns(new, made);
		new->task = kthread_create(sleep_in_turn, new, "kfi-sleep/%u", made);
		if (IS_ERR(new->task))
			break;
		get_task_struct(new->task);
		kthread_bind(new->task, raw_smp_processor_id());
		sched_set_fifo(new->task);
	}
	if (made == bench->sleepers) {
		for (i = 0; i < made; i++)
			wake_up_process(sleepers[i].task);
		measure(&frame, sleepers, times);
		ret = 0;
	}
	/* A sleeper that was never woken ends here without having run. */
	for (i = 0; i < made; i++)
		kthread_stop_put(sleepers[i].task);
out:
	kvfree(times);
	kvfree(sleepers);
	return ret;
}

struct number {
	wait_queue_head_t queue;
	u64 value;
};

static void number_wait(void *data, u64 round)
{
	struct number *number = data;

	wait_event(number->queue, READ_ONCE(number->value) >= round);
}

static void number_wake(void *data)
{
	struct number *number = data;

	WRITE_ONCE(number->value, number->value + 1);
	wake_up(&number->queue);
}

/**
 * kfabric_bench_wait_event - the same with wait_event() and wake_up()
 * @bench: sleepers and rounds; the rest is filled in
 *
 * Return: as kfabric_bench_run().
 */
int kfabric_bench_wait_event(struct kfabric_bench *bench)
{
	struct number number = {};

	init_waitqueue_head(&number.queue);
	bench->data = &number;
	bench->wait = number_wait;
	bench->wake = number_wake;
	return kfabric_bench_run(bench);
}

/**
 * kfabric_bench_atomic - time atomic64_add_return()
 * @count: number of additions
 *
 * Return: nanoseconds for all of them.
 */
u64 kfabric_bench_atomic(u64 count)
{
	atomic64_t *value = kzalloc(sizeof(*value), GFP_KERNEL);
	u64 began = ktime_get_ns(), i;

	if (!value)
		return 0;
	for (i = 0; i < count; i++)
		atomic64_add_return(1, value);
	began = ktime_get_ns() - began;
	kfree(value);
	return began;
}
