/* SPDX-License-Identifier: GPL-2.0 */
/*
 * For modules that are a provider.
 *
 * A provider registers a struct kfi_provider when its module is loaded and
 * deregisters it before the module is gone.  The callbacks are called in process
 * context with no lock of kfabric held, so they may call kfabric; several calls
 * may run at the same time.
 */
#ifndef _KFI_PROV_H
#define _KFI_PROV_H

#include "kfabric.h"

/**
 * struct kfi_provider - a provider
 * @version: KFI_VERSION() of the provider
 * @kfi_version: KFI_VERSION() of kfabric for which it was written
 * @context: kfabric's
 * @name: its name, for prov_name
 * @kgetinfo: makes the entries of kfi_getinfo() that fit, or returns
 *	-KFI_ENODATA
 * @kfabric: opens a fabric
 * @cleanup: called when the provider is deregistered or replaced and no call of
 *	it is running any more, or NULL
 * @comp: completed when @ref_cnt becomes 0
 * @ref_cnt: references
 *
 * kfi_provider_register() initialises @comp and @ref_cnt.
 */
struct kfi_provider {
	u32			version;
	u32			kfi_version;
	struct kfi_context	context;
	const char		*name;
	int			(*kgetinfo)(u32 version, const char *node,
					    const char *service, u64 flags,
					    struct kfi_info *hints,
					    struct kfi_info **info);
	int			(*kfabric)(struct kfi_fabric_attr *attr,
					   struct kfid_fabric **fabric,
					   void *context);
	void			(*cleanup)(void);
	struct completion	comp;
	atomic_t		ref_cnt;
};

/**
 * kfi_provider_register() - add a provider
 * @provider: the provider, which lives until it is deregistered
 *
 * A newer version of a provider replaces one of the same name: the older one
 * gets no further calls, and is deregistered as before.
 *
 * Return: 0; -KFI_EINVAL without a callback or a name, or a name of more than 63
 *	bytes; -KFI_ENOSYS @kfi_version has another major or a newer minor
 *	number; -EEXIST it is registered already, or one of this name that is
 *	not older, or is that of kfabric itself; -KFI_ENOMEM.
 */
int kfi_provider_register(struct kfi_provider *provider);

/**
 * kfi_provider_deregister() - remove a provider
 * @provider: the provider
 *
 * Waits until no call of the provider is running and all references are gone,
 * which kfi_ref_provider() took.  Must not be called from a callback of the
 * provider.
 *
 * Return: 0; -KFI_EINVAL it is not registered.
 */
int kfi_provider_deregister(struct kfi_provider *provider);

/**
 * kfi_ref_provider() - take a reference to a provider
 * @provider: the provider
 *
 * Context: Any.
 */
static inline void kfi_ref_provider(struct kfi_provider *provider)
{
	atomic_inc(&provider->ref_cnt);
}

/**
 * kfi_deref_provider() - drop a reference to a provider
 * @provider: the provider
 *
 * Context: Any.
 */
static inline void kfi_deref_provider(struct kfi_provider *provider)
{
	if (atomic_dec_and_test(&provider->ref_cnt))
		complete(&provider->comp);
}

/**
 * kfi_init_id() - initialise the references of an object
 * @fid: the object; it has one reference then
 *
 * Context: Any.
 */
static inline void kfi_init_id(struct kfid *fid)
{
	init_completion(&fid->comp);
	atomic_set(&fid->ref_cnt, 1);
}

/**
 * kfi_ref_id() - take a reference to an object
 * @fid: the object
 *
 * Context: Any.
 */
static inline void kfi_ref_id(struct kfid *fid)
{
	atomic_inc(&fid->ref_cnt);
}

/**
 * kfi_deref_id() - drop a reference to an object
 * @fid: the object
 *
 * Context: Any.
 */
static inline void kfi_deref_id(struct kfid *fid)
{
	if (atomic_dec_and_test(&fid->ref_cnt))
		complete(&fid->comp);
}

/**
 * kfi_close_id() - drop the first reference and wait until all are gone
 * @fid: the object
 */
static inline void kfi_close_id(struct kfid *fid)
{
	kfi_deref_id(fid);
	wait_for_completion(&fid->comp);
}

#endif /* _KFI_PROV_H */
