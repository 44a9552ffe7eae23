/* SPDX-License-Identifier: GPL-2.0 */
/*
 * Failures of allocations, in turn: for each call of the interface the first
 * allocation that it makes fails, then the second, and so on until the call
 * succeeds without having reached one.
 *
 * A call that fails must return -ENOMEM and leave nothing behind: the same call
 * is made again at once, without failures, and must succeed. kmemleak finds
 * memory that is lost. To close what was made must succeed whatever fails.
 *
 * Needs a kernel with CONFIG_FAULT_INJECTION (the sanitizing one), and the
 * settings of run-guest. Reference: Documentation/fault-injection of the kernel,
 * "systematic faults".
 */
#ifndef _CONSUMER_FAULTS_H
#define _CONSUMER_FAULTS_H

#include <linux/compiler.h>
#include <linux/sched.h>

#include "pair.h"

/* No call makes as many allocations. */
#define MOST	400

struct faults_world;

/**
 * struct faults_call - a call of the interface
 * @name: its name
 * @prepare: makes what the call needs each time; or NULL
 * @make: makes the call, which returns 0 or an error
 * @undo: ends what @prepare and the call have made
 */
struct faults_call {
	const char	*name;
	void		(*prepare)(struct kunit *test, struct faults_world *w);
	int		(*make)(struct faults_world *w);
	void		(*undo)(struct kunit *test, struct faults_world *w);
};

#ifdef CONFIG_FAULT_INJECTION
/* The nth allocation of this thread from now on fails. */
static inline void faults_begin(unsigned int nth)
{
	WRITE_ONCE(current->fail_nth, nth);
}

/* No more failures. Returns whether there was one. */
static inline bool faults_end(void)
{
	bool met = !READ_ONCE(current->fail_nth);

	WRITE_ONCE(current->fail_nth, 0);
	return met;
}
#else
static inline void faults_begin(unsigned int nth) {}

static inline bool faults_end(void)
{
	return false;
}
#endif

/* Makes each failure of a call in turn. Returns how many there were. */
static inline int faults_sweep(struct kunit *test, struct faults_world *w,
			       const struct faults_call *call)
{
	unsigned int nth;
	bool met;
	int ret;

	for (nth = 1; nth <= MOST; nth++) {
		if (call->prepare)
			call->prepare(test, w);
		faults_begin(nth);
		ret = call->make(w);
		met = faults_end();
		if (ret) {
			KUNIT_EXPECT_TRUE_MSG(test, met, "%s: %d without a failure", call->name,
					      ret);
			KUNIT_EXPECT_EQ_MSG(test, ret, -ENOMEM, "%s, failure %u", call->name, nth);
			ret = call->make(w);
			KUNIT_ASSERT_EQ_MSG(test, ret, 0, "%s after failure %u", call->name, nth);
		}
		call->undo(test, w);
		/* A call that succeeds although one fails can do without that allocation. */
		if (!met)
			break;
	}
	KUNIT_EXPECT_LE_MSG(test, nth, MOST, "%s", call->name);
	kunit_info(test, "%s: %u failures in turn\n", call->name, nth - 1);
	return nth - 1;
}

/* All of a list. The test fails if none of them has met a failure. */
static inline void faults_of(struct kunit *test, struct faults_world *w,
			     const struct faults_call *calls, size_t count)
{
	int met = 0;
	size_t i;

	for (i = 0; i < count; i++)
		met += faults_sweep(test, w, &calls[i]);
	KUNIT_EXPECT_GT(test, met, 0);
}

/* The compiler must not leave out the rest, by which the module is linked to kfabric.ko. */
static inline void faults_need_injection(struct kunit *test)
{
	bool there = IS_ENABLED(CONFIG_FAULT_INJECTION);

	OPTIMIZER_HIDE_VAR(there);
	if (!there)
		kunit_skip(test, "the kernel injects no failures");
}

#endif /* _CONSUMER_FAULTS_H */
