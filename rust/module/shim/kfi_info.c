// SPDX-License-Identifier: GPL-2.0
/*
 * Entries of kfi_getinfo(): memory, and the functions that consumers call for
 * it.
 *
 * An entry owns what it points to, except objects: see struct kfi_info.  The
 * handle of a request for a connection is in the memory of its entry.  All
 * functions may sleep.
 */

#include <linux/export.h>
#include <linux/slab.h>
#include <linux/string.h>

#include "../capi/bindings.h"

/* An entry for an endpoint that accepts a request. */
struct connreq_info {
	struct kfi_info		info;
	struct kfabric_capi_connreq	connreq;
};

/* Frees one entry.  It may be incomplete. */
static void free_entry(struct kfi_info *info)
{
	kfree(info->src_addr);
	kfree(info->dest_addr);
	kfree(info->tx_attr);
	kfree(info->rx_attr);
	if (info->ep_attr)
		kfree(info->ep_attr->auth_key);
	kfree(info->ep_attr);
	if (info->domain_attr) {
		kfree(info->domain_attr->name);
		kfree(info->domain_attr->auth_key);
	}
	kfree(info->domain_attr);
	if (info->fabric_attr) {
		kfree(info->fabric_attr->name);
		kfree(info->fabric_attr->prov_name);
	}
	kfree(info->fabric_attr);
	kfree(info);
}

void kfi_freeinfo(struct kfi_info *info)
{
	struct kfi_info *next;

	for (; info; info = next) {
		next = info->next;
		free_entry(info);
	}
}
EXPORT_SYMBOL(kfi_freeinfo);

struct kfi_info *kfi_allocinfo(void)
{
	struct kfi_info *info = kzalloc_obj(*info);

	if (!info)
		return NULL;
	info->tx_attr = kzalloc_obj(*info->tx_attr);
	info->rx_attr = kzalloc_obj(*info->rx_attr);
	info->ep_attr = kzalloc_obj(*info->ep_attr);
	info->domain_attr = kzalloc_obj(*info->domain_attr);
	info->fabric_attr = kzalloc_obj(*info->fabric_attr);
	if (info->tx_attr && info->rx_attr && info->ep_attr &&
	    info->domain_attr && info->fabric_attr)
		return info;
	free_entry(info);
	return NULL;
}
EXPORT_SYMBOL(kfi_allocinfo);

/* Replaces a pointer of a copied entry by one to a copy of what it points to. */
static bool copy(void **to, size_t len)
{
	const void *from = *to;

	*to = from && len ? kmemdup(from, len, GFP_KERNEL) : NULL;
	return !from || !len || *to;
}

static bool copy_text(char **to)
{
	const char *from = *to;

	*to = kstrdup(from, GFP_KERNEL);
	return !from || *to;
}

/*
 * Copies what an entry points to.  Every pointer is replaced, whether or not a
 * copy before has failed: the entry must not share memory when it is freed.
 */
static bool copy_contents(struct kfi_info *info)
{
	bool done = true;

	done &= copy(&info->src_addr, info->src_addrlen);
	done &= copy(&info->dest_addr, info->dest_addrlen);
	done &= copy((void **)&info->tx_attr, sizeof(*info->tx_attr));
	done &= copy((void **)&info->rx_attr, sizeof(*info->rx_attr));
	done &= copy((void **)&info->ep_attr, sizeof(*info->ep_attr));
	if (info->ep_attr)
		done &= copy((void **)&info->ep_attr->auth_key,
			     info->ep_attr->auth_key_size);
	done &= copy((void **)&info->domain_attr, sizeof(*info->domain_attr));
	if (info->domain_attr) {
		done &= copy_text(&info->domain_attr->name);
		done &= copy((void **)&info->domain_attr->auth_key,
			     info->domain_attr->auth_key_size);
	}
	done &= copy((void **)&info->fabric_attr, sizeof(*info->fabric_attr));
	if (info->fabric_attr) {
		done &= copy_text(&info->fabric_attr->name);
		done &= copy_text(&info->fabric_attr->prov_name);
	}
	return done;
}

static struct kfid *own_handle(const struct kfi_info *info)
{
	return &container_of(info, struct connreq_info, info)->connreq.fid;
}

/* Whether the handle is in the memory of the entry, which is longer then. */
static bool has_own_handle(const struct kfi_info *info)
{
	return info->handle == own_handle(info) && kfabric_capi_is_connreq(info->handle);
}

/**
 * kfabric_capi_add_connreq - give an entry the handle of a request
 * @info: the entry, which is moved
 * @connreq: the handle, which is copied
 *
 * Return: the entry, in other memory; NULL if there is none, and @info is as before.
 */
struct kfi_info *kfabric_capi_add_connreq(struct kfi_info *info,
					  const struct kfabric_capi_connreq *connreq)
{
	struct connreq_info *whole = krealloc(info, sizeof(*whole), GFP_KERNEL);

	if (!whole)
		return NULL;
	whole->connreq = *connreq;
	whole->info.handle = &whole->connreq.fid;
	return &whole->info;
}

struct kfi_info *kfi_dupinfo(const struct kfi_info *info)
{
	struct kfi_info *copy;
	bool own;

	if (!info)
		return kfi_allocinfo();
	own = has_own_handle(info);
	copy = kmemdup(info, own ? sizeof(struct connreq_info) : sizeof(*info), GFP_KERNEL);
	if (!copy)
		return NULL;
	if (own)
		copy->handle = own_handle(copy);
	copy->next = NULL;
	if (copy_contents(copy))
		return copy;
	free_entry(copy);
	return NULL;
}
EXPORT_SYMBOL(kfi_dupinfo);
