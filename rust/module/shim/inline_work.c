// SPDX-License-Identifier: GPL-2.0
/*
 * The C side of shim/inline_work.rs: delays softirqs, and passes the list of
 * the interrupted task to them when they run.
 */

#include "bindings.h"

#include <linux/bottom_half.h>
#include <linux/kconfig.h>
#include <linux/percpu.h>
#include <linux/preempt.h>

/* The list of the task that is enabling softirqs on this CPU, or NULL. */
static DEFINE_PER_CPU(void *, kfabric_shim_inline_here);

/**
 * kfabric_shim_bh_disable - delay the softirqs of this CPU
 *
 * Packets that are sent meanwhile to peers on this host arrive together, when
 * softirqs run again.
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
 * kfabric_shim_bh_enable_with - the same, with a list for the delayed softirqs
 * @list: the result of kfabric_shim_inline_list() in softirqs that run now
 *
 * The task stays on this CPU during the call, and does not access @list itself.
 * If softirqs run in threads (PREEMPT_RT) they get no list.
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
 * kfabric_shim_inline_list - the list of the interrupted task, for a softirq
 *
 * Context: any.
 * Return: the argument of kfabric_shim_bh_enable_with(), valid until this
 * softirq ends; NULL if there is none. NULL in any other context, because there
 * the task could be using the list, or another CPU's could be read.
 */
void *kfabric_shim_inline_list(void)
{
	if (in_hardirq() || in_nmi() || !in_serving_softirq())
		return NULL;
	return __this_cpu_read(kfabric_shim_inline_here);
}

#ifdef KFI_KUNIT
/**
 * kfabric_kunit_inline_begin - set the list for softirqs of this CPU
 * @list: the list
 *
 * The task stays on this CPU until kfabric_kunit_inline_end().
 */
void kfabric_kunit_inline_begin(void *list)
{
	preempt_disable();
	__this_cpu_write(kfabric_shim_inline_here, list);
}

/** kfabric_kunit_inline_end - undo kfabric_kunit_inline_begin() */
void kfabric_kunit_inline_end(void)
{
	__this_cpu_write(kfabric_shim_inline_here, NULL);
	preempt_enable();
}
#endif
