/* SPDX-License-Identifier: GPL-2.0 */
/*
 * Benchmarks in the kernel: the time of wake-ups, and the same in C for
 * comparison. Part of the bindings in a build with the suites.
 */
#ifndef _KFABRIC_KUNIT_BENCH_H
#define _KFABRIC_KUNIT_BENCH_H

#include <linux/types.h>

/**
 * struct kfabric_bench - sleepers that are woken one after another
 * @data: argument of @wait and @wake
 * @wait: sleeps until a number that begins at 0 has reached @round
 * @wake: adds 1 to that number
 * @sleepers: number of tasks
 * @rotate: the first sleeper waits for 1, the second for 2, and so on, and each
 * then for its last number plus @sleepers; otherwise the first waits for every
 * number, and each other sleeper for one number after the measured ones
 * @rounds: number of wake-ups that are measured
 * @median: out: nanoseconds from before @wake until @wait has returned in the
 * task whose turn it was; the median of all rounds
 * @woken: out: how often any of the tasks ran during these rounds
 */
struct kfabric_bench {
	void *data;
	void (*wait)(void *data, u64 round);
	void (*wake)(void *data);
	u32 sleepers;
	bool rotate;
	u32 rounds;
	u64 median;
	u64 woken;
};

int kfabric_bench_run(struct kfabric_bench *bench);
int kfabric_bench_wait_event(struct kfabric_bench *bench);
u64 kfabric_bench_atomic(u64 count);

/**
 * enum kfabric_bench_call - calls of kernel consumers
 * @KFABRIC_BENCH_CQ_READ: kfi_cq_read() of an empty queue
 * @KFABRIC_BENCH_CNTR_READ: kfi_cntr_read()
 * @KFABRIC_BENCH_CNTR_ADD: kfi_cntr_add() with no waiter
 */
enum kfabric_bench_call {
	KFABRIC_BENCH_CQ_READ,
	KFABRIC_BENCH_CNTR_READ,
	KFABRIC_BENCH_CNTR_ADD,
};

struct kfabric_bench_round;

/**
 * struct kfabric_bench_calls - functions that are called when that is asked for
 * @data: argument of @prepare and @fire
 * @prepare: before a round: the function will call kfabric_bench_called() for it
 * @fire: asks for the call
 * @rounds: number of calls
 * @median: out: nanoseconds from before @fire to the beginning of the call
 */
struct kfabric_bench_calls {
	void *data;
	void (*prepare)(void *data, struct kfabric_bench_round *round);
	void (*fire)(void *data);
	u32 rounds;
	u64 median;
};

/**
 * enum kfabric_bench_transfer - transfers of kernel consumers, and their peers
 * @KFABRIC_BENCH_LATENCY: a message of 8 bytes, and one back
 * @KFABRIC_BENCH_UNIX_LATENCY: the same with sockets (AF_UNIX, SOCK_SEQPACKET)
 * @KFABRIC_BENCH_RATE: KFABRIC_BENCH_BATCH messages of 8 bytes
 * @KFABRIC_BENCH_UNIX_RATE: the same with sockets
 * @KFABRIC_BENCH_WRITE: kfi_write() of KFABRIC_BENCH_LARGE bytes
 * @KFABRIC_BENCH_UNIX_LARGE: as many bytes through a stream (AF_UNIX)
 * @KFABRIC_BENCH_MEMCPY: as many bytes copied
 */
enum kfabric_bench_transfer {
	KFABRIC_BENCH_LATENCY,
	KFABRIC_BENCH_UNIX_LATENCY,
	KFABRIC_BENCH_RATE,
	KFABRIC_BENCH_UNIX_RATE,
	KFABRIC_BENCH_WRITE,
	KFABRIC_BENCH_UNIX_LARGE,
	KFABRIC_BENCH_MEMCPY,
};

#define KFABRIC_BENCH_BATCH	64
#define KFABRIC_BENCH_LARGE	65536

u64 kfabric_bench_transfer(enum kfabric_bench_transfer which, u64 rounds);
u64 kfabric_bench_indirect(u64 count);
u64 kfabric_bench_consumer(enum kfabric_bench_call call, u64 count);
void kfabric_bench_called(struct kfabric_bench_round *round);
int kfabric_bench_calls_run(struct kfabric_bench_calls *bench);
int kfabric_bench_queue_work(struct kfabric_bench_calls *bench);
#endif
