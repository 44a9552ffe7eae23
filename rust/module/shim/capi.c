// SPDX-License-Identifier: GPL-2.0
/*
 * The C functions of the front end for kernel modules, and the exports of the
 * functions that it has in Rust.
 */

#include <linux/export.h>
#include <linux/irqflags.h>
#include <linux/module.h>
#include <linux/preempt.h>
#include <linux/rcupdate.h>
#include <linux/slab.h>
#include <linux/string.h>

#include "../capi/bindings.h"

int kfi_getinfo(u32 version, const char *node, const char *service, u64 flags,
		struct kfi_info *hints, struct kfi_info **info)
{
	return kfabric_capi_getinfo(version, node, service, flags, hints, info);
}
EXPORT_SYMBOL(kfi_getinfo);

int kfi_fabric(struct kfi_fabric_attr *attr, struct kfid_fabric **fabric,
	       void *context)
{
	return kfabric_capi_fabric(attr, fabric, context);
}
EXPORT_SYMBOL(kfi_fabric);

int kfi_provider_register(struct kfi_provider *provider)
{
	return kfabric_capi_provider_register(provider);
}
EXPORT_SYMBOL(kfi_provider_register);

int kfi_provider_deregister(struct kfi_provider *provider)
{
	return kfabric_capi_provider_deregister(provider);
}
EXPORT_SYMBOL(kfi_provider_deregister);

/**
 * kfabric_capi_in_hardirq - whether the caller is a hard interrupt
 *
 * Return: true if it is one. With PREEMPT_RT most handlers are threads.
 */
bool kfabric_capi_in_hardirq(void)
{
	return in_hardirq();
}

/**
 * kfabric_capi_may_lock - whether the caller may take locks of process context
 *
 * Such a lock is taken with interrupts and softirqs enabled. A caller that has
 * disabled either may hold a lock that an interrupt takes, and the interrupt
 * may come while the other lock is held.
 *
 * Return: true if it may.
 */
bool kfabric_capi_may_lock(void)
{
	return in_task() && !in_softirq() && !irqs_disabled();
}

/**
 * kfabric_capi_may_sleep - whether the caller may sleep
 *
 * A kernel that does not count preemption cannot tell, so no caller may there.
 *
 * Return: true if it may.
 */
bool kfabric_capi_may_sleep(void)
{
	return preemptible() && !rcu_preempt_depth();
}

/** kfabric_capi_module_get - keep this module loaded; a consumer calls, so it is */
void kfabric_capi_module_get(void)
{
	__module_get(THIS_MODULE);
}

/** kfabric_capi_module_put - the end of that */
void kfabric_capi_module_put(void)
{
	module_put(THIS_MODULE);
}

/** kfabric_capi_memdup - a copy for kfi_freeinfo(), or NULL */
void *kfabric_capi_memdup(const void *from, size_t len)
{
	return kmemdup(from, len, GFP_KERNEL);
}

/** kfabric_capi_textdup - a copy of a text with a NUL, or NULL */
char *kfabric_capi_textdup(const char *from, size_t len)
{
	return kmemdup_nul(from, len, GFP_KERNEL);
}

/** kfabric_capi_provider_init - give a provider its first reference */
void kfabric_capi_provider_init(struct kfi_provider *provider)
{
	init_completion(&provider->comp);
	atomic_set(&provider->ref_cnt, 1);
}

/** kfabric_capi_provider_put - drop a reference */
void kfabric_capi_provider_put(struct kfi_provider *provider)
{
	kfi_deref_provider(provider);
}

/** kfabric_capi_provider_wait - wait until all references are gone */
void kfabric_capi_provider_wait(struct kfi_provider *provider)
{
	wait_for_completion(&provider->comp);
}
