/* SPDX-License-Identifier: GPL-2.0 */
/*
 * The interface for kernel modules, as the front end capi uses it, and the C
 * functions that it needs. bindgen generates bindings from this header (see
 * Kbuild), apart from those of shim/bindings.h: both define the constants of
 * kfabric.
 */
#ifndef _KFABRIC_CAPI_BINDINGS_H
#define _KFABRIC_CAPI_BINDINGS_H

#include <kfi/kfi_atomic.h>
#include <kfi/kfi_cm.h>
#include <kfi/kfi_prov.h>
#include <kfi/kfi_rma.h>
#include <kfi/kfi_tagged.h>
#include <kfi/kfi_trigger.h>

/* In Rust, behind the exported functions of capi.c: capi/provider.rs. */
int kfabric_capi_getinfo(u32 version, const char *node, const char *service,
			 u64 flags, struct kfi_info *hints,
			 struct kfi_info **info);
int kfabric_capi_fabric(struct kfi_fabric_attr *attr,
			struct kfid_fabric **fabric, void *context);
int kfabric_capi_provider_register(struct kfi_provider *provider);
int kfabric_capi_provider_deregister(struct kfi_provider *provider);

/**
 * struct kfabric_capi_connreq - what the handle of a request for a connection points to
 * @fid: recognised by its class and its operations
 * @pep: serial number of the passive endpoint
 * @serial: serial number of the request there
 * @number: number of the request there
 *
 * It is in the memory of its entry, and never changes.
 */
struct kfabric_capi_connreq {
	struct kfid	fid;
	u64		pep;
	u64		serial;
	u32		number;
};

/* In Rust, for the entries of kfi_info.c: capi/pep.rs. */
bool kfabric_capi_is_connreq(const struct kfid *fid);

/* In C: shim/capi.c. */
bool kfabric_capi_in_hardirq(void);
bool kfabric_capi_may_lock(void);
bool kfabric_capi_may_sleep(void);
void kfabric_capi_module_get(void);
void kfabric_capi_module_put(void);
void *kfabric_capi_memdup(const void *from, size_t len);
char *kfabric_capi_textdup(const char *from, size_t len);
struct kfi_info *kfabric_capi_add_connreq(struct kfi_info *info,
					  const struct kfabric_capi_connreq *connreq);
void kfabric_capi_provider_init(struct kfi_provider *provider);
void kfabric_capi_provider_put(struct kfi_provider *provider);
void kfabric_capi_provider_wait(struct kfi_provider *provider);

#endif /* _KFABRIC_CAPI_BINDINGS_H */
