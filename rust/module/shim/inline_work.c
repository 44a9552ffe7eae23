// SPDX-License-Identifier: GPL-2.0
/*
 * The C side of shim/inline_work.rs: softirqs held back, and what they see of the task
 * on top of which they run then.
 */

#include "inline_work.h"

#include <linux/bottom_half.h>
#include <linux/kconfig.h>
#include <linux/percpu.h>
#include <linux/preempt.h>

/* Of the task that is enabling softirqs on this CPU; or NULL. */
static DEFINE_PER_CPU(void *, kfabric_shim_inline_here);

/**
 * kfabric_shim_bh_disable - hold back softirqs of this CPU
 *
 * What is sent meanwhile to a peer on this host arrives there together.
 */
void kfabric_shim_bh_disable(void)
{
	local_bh_disable();
}

/** kfabric_shim_bh_enable - undo kfabric_shim_bh_disable() */
void kfabric_shim_bh_enable(void)
{
	local_bh_enable();
}

/**
 * kfabric_shim_bh_enable_with - the same, with something for those held back
 * @list: what kfabric_shim_inline_list() gives to softirqs that run now
 *
 * The task stays on this CPU meanwhile, and does not touch @list itself.
 * Where softirqs are threads (PREEMPT_RT) they see nothing.
 */
void kfabric_shim_bh_enable_with(void *list)
{
	if (IS_ENABLED(CONFIG_PREEMPT_RT)) {
		local_bh_enable();
		return;
	}
	preempt_disable();
	__this_cpu_write(kfabric_shim_inline_here, list);
	local_bh_enable();
	__this_cpu_write(kfabric_shim_inline_here, NULL);
	preempt_enable();
}

/**
 * kfabric_shim_inline_list - what the task below has for a softirq
 *
 * Context: any. Return: what was given to kfabric_shim_bh_enable_with(), good until
 * this softirq is over; NULL if there is nothing, and in any other context, where
 * the task could be using it or another CPU's could be read.
 */
void *kfabric_shim_inline_list(void)
{
	if (in_hardirq() || in_nmi() || !in_serving_softirq())
		return NULL;
	return __this_cpu_read(kfabric_shim_inline_here);
}

#ifdef KFI_KUNIT
/**
 * kfabric_shim_kunit_inline_begin - show something to softirqs of this CPU
 * @list: what it is
 *
 * The task stays on this CPU until kfabric_shim_kunit_inline_end().
 */
void kfabric_shim_kunit_inline_begin(void *list)
{
	preempt_disable();
	__this_cpu_write(kfabric_shim_inline_here, list);
}

/** kfabric_shim_kunit_inline_end - undo kfabric_shim_kunit_inline_begin() */
void kfabric_shim_kunit_inline_end(void)
{
	__this_cpu_write(kfabric_shim_inline_here, NULL);
	preempt_enable();
}
#endif
