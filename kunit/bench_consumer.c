// SPDX-License-Identifier: GPL-2.0
/*
 * Benchmarks of the interface for kernel modules: what a consumer's calls cost
 * beside a call through a pointer, and how soon its handler is called beside a
 * work item.
 */

#include "bench.h"

#include <linux/completion.h>
#include <linux/compiler.h>
#include <linux/ktime.h>
#include <linux/mm.h>
#include <linux/sort.h>
#include <linux/workqueue.h>

#include <kfi/kfi_domain.h>

/* An object with a table of operations, as each object of kfabric is. */
struct object;

struct object_ops {
	ssize_t (*call)(struct object *object, void *buf, size_t count);
};

struct object {
	const struct object_ops *ops;
};

static noinline ssize_t nothing(struct object *object, void *buf, size_t count)
{
	return -EAGAIN;
}

static const struct object_ops nothing_ops = { .call = nothing };

/* Nanoseconds of @count evaluations of an expression. */
#define TIME(count, expression) ({			\
	u64 __began = ktime_get_ns(), __i;		\
							\
	for (__i = 0; __i < (count); __i++) {		\
		(void)(expression);			\
		barrier();				\
	}						\
	ktime_get_ns() - __began;			\
})

/**
 * kfabric_bench_indirect - time calls through a table of operations
 * @count: number of calls
 *
 * Return: nanoseconds for all of them.
 */
u64 kfabric_bench_indirect(u64 count)
{
	struct object object = { .ops = &nothing_ops };
	struct object *it = &object;

	OPTIMIZER_HIDE_VAR(it);
	return TIME(count, it->ops->call(it, NULL, 1));
}

static u64 time_calls(struct kfid_domain *domain, enum kfabric_bench_call call,
		      u64 count)
{
	struct kfi_cq_attr attr = { .wait_obj = KFI_WAIT_NONE };
	struct kfi_cntr_attr cntr_attr = { .wait_obj = KFI_WAIT_NONE };
	struct kfi_cq_entry entry;
	struct kfid_cntr *cntr;
	struct kfid_cq *cq;
	u64 took = 0;

	if (kfi_cq_open(domain, &attr, &cq, NULL, NULL))
		return 0;
	if (kfi_cntr_open(domain, &cntr_attr, &cntr, NULL))
		goto close_cq;
	switch (call) {
	case KFABRIC_BENCH_CQ_READ:
		took = TIME(count, kfi_cq_read(cq, &entry, 1));
		break;
	case KFABRIC_BENCH_CNTR_READ:
		took = TIME(count, kfi_cntr_read(cntr));
		break;
	case KFABRIC_BENCH_CNTR_ADD:
		took = TIME(count, kfi_cntr_add(cntr, 1));
		break;
	}
	kfi_close(&cntr->fid);
close_cq:
	kfi_close(&cq->fid);
	return took;
}

/**
 * kfabric_bench_consumer - time a call of a consumer, on the first link
 * @call: the call
 * @count: how often
 *
 * Return: nanoseconds for all of them; 0 if an object could not be opened.
 */
u64 kfabric_bench_consumer(enum kfabric_bench_call call, u64 count)
{
	struct kfid_fabric *fabric;
	struct kfid_domain *domain;
	struct kfi_info *info;
	u64 took = 0;

	if (kfi_getinfo(0, NULL, NULL, 0, NULL, &info))
		return 0;
	if (kfi_fabric(info->fabric_attr, &fabric, NULL))
		goto free;
	if (!kfi_domain(fabric, info, &domain, NULL)) {
		took = time_calls(domain, call, count);
		kfi_close(&domain->fid);
	}
	kfi_close(&fabric->fid);
free:
	kfi_freeinfo(info);
	return took;
}

/* One call of a function: when it was asked for, and how long that took. */
struct kfabric_bench_round {
	u64 began;
	u64 took;
	struct completion ran;
};

/**
 * kfabric_bench_called - note that the function of a round runs
 * @round: the round
 */
void kfabric_bench_called(struct kfabric_bench_round *round)
{
	round->took = ktime_get_ns() - round->began;
	complete(&round->ran);
}

static int compare(const void *a, const void *b)
{
	u64 x = *(const u64 *)a, y = *(const u64 *)b;

	return (x > y) - (x < y);
}

/**
 * kfabric_bench_calls_run - time from asking for a call to its beginning
 * @bench: see struct kfabric_bench_calls
 *
 * The caller is bound to one CPU, on which the function is called too.
 *
 * Return: 0, or -ENOMEM.
 */
int kfabric_bench_calls_run(struct kfabric_bench_calls *bench)
{
	struct kfabric_bench_round round;
	u64 *times;
	u32 i;

	times = kvcalloc(bench->rounds, sizeof(*times), GFP_KERNEL);
	if (!times)
		return -ENOMEM;
	init_completion(&round.ran);
	for (i = 0; i < bench->rounds; i++) {
		bench->prepare(bench->data, &round);
		round.began = ktime_get_ns();
		bench->fire(bench->data);
		wait_for_completion(&round.ran);
		times[i] = round.took;
	}
	sort(times, bench->rounds, sizeof(*times), compare, NULL);
	bench->median = times[bench->rounds / 2];
	kvfree(times);
	return 0;
}

struct item {
	struct work_struct work;
	struct kfabric_bench_round *round;
};

static void item_runs(struct work_struct *work)
{
	kfabric_bench_called(container_of(work, struct item, work)->round);
}

static void item_prepare(void *data, struct kfabric_bench_round *round)
{
	struct item *item = data;

	item->round = round;
}

static void item_fire(void *data)
{
	struct item *item = data;

	queue_work(system_percpu_wq, &item->work);
}

/**
 * kfabric_bench_queue_work - the same with queue_work()
 * @bench: rounds; the rest is filled in
 *
 * Return: as kfabric_bench_calls_run().
 */
int kfabric_bench_queue_work(struct kfabric_bench_calls *bench)
{
	struct item item;
	int ret;

	INIT_WORK_ONSTACK(&item.work, item_runs);
	bench->data = &item;
	bench->prepare = item_prepare;
	bench->fire = item_fire;
	ret = kfabric_bench_calls_run(bench);
	flush_work(&item.work);
	destroy_work_on_stack(&item.work);
	return ret;
}
