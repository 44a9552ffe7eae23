/* SPDX-License-Identifier: GPL-2.0 */
/*
 * Domains and what is opened from them: completion queues, counters, poll sets;
 * with them memory regions (kfi_mr.h) and address vectors (kfi_av.h).
 *
 * Sources: fi_domain(3), kfi_cntr(3), fi_cq(3), fi_poll(3).
 */
#ifndef _KFI_DOMAIN_H
#define _KFI_DOMAIN_H

#include "kfi_eq.h"

struct kfi_atomic_attr;
struct kfi_av_attr;
struct kfi_ops_mr;
struct kfid_av;
struct kfid_mr;
struct kfid_stx;

/**
 * struct kfi_ops_domain - operations of domains
 * @size: sizeof(struct kfi_ops_domain)
 * @av_open: see kfi_av_open()
 * @cq_open: see kfi_cq_open()
 * @endpoint: see kfi_endpoint()
 * @scalable_ep: see kfi_scalable_ep()
 * @cntr_open: see kfi_cntr_open()
 * @poll_open: see kfi_poll_open()
 * @stx_ctx: see kfi_stx_context()
 * @srx_ctx: see kfi_srx_context()
 * @query_atomic: see kfi_query_atomic()
 */
struct kfi_ops_domain {
	size_t	size;
	int	(*av_open)(struct kfid_domain *domain, struct kfi_av_attr *attr,
			   struct kfid_av **av, void *context);
	int	(*cq_open)(struct kfid_domain *domain, struct kfi_cq_attr *attr,
			   struct kfid_cq **cq, kfi_comp_handler comp_handler,
			   void *context);
	int	(*endpoint)(struct kfid_domain *domain, struct kfi_info *info,
			    struct kfid_ep **ep, void *context);
	int	(*scalable_ep)(struct kfid_domain *domain, struct kfi_info *info,
			       struct kfid_ep **sep, void *context);
	int	(*cntr_open)(struct kfid_domain *domain,
			     struct kfi_cntr_attr *attr,
			     struct kfid_cntr **cntr, void *context);
	int	(*poll_open)(struct kfid_domain *domain,
			     struct kfi_poll_attr *attr,
			     struct kfid_poll **pollset);
	int	(*stx_ctx)(struct kfid_domain *domain, struct kfi_tx_attr *attr,
			   struct kfid_stx **stx, void *context);
	int	(*srx_ctx)(struct kfid_domain *domain, struct kfi_rx_attr *attr,
			   struct kfid_ep **rx_ep, void *context);
	int	(*query_atomic)(struct kfid_domain *domain,
				enum kfi_datatype datatype, enum kfi_op op,
				struct kfi_atomic_attr *attr, u64 flags);
};

/**
 * struct kfid_domain - a domain: the objects on one device
 * @fid: head
 * @ops: operations
 * @mr: operations that register memory
 */
struct kfid_domain {
	struct kfid		fid;
	struct kfi_ops_domain	*ops;
	struct kfi_ops_mr	*mr;
};

/**
 * kfi_domain() - open a domain
 * @fabric: the fabric
 * @info: an entry of kfi_getinfo(), or a copy
 * @domain: where the domain is stored
 * @context: the consumer's
 *
 * Return: 0; -KFI_EINVAL an attribute of @info is not valid; -KFI_ENODEV its
 *	device is gone; -KFI_ENOMEM.
 */
static inline int kfi_domain(struct kfid_fabric *fabric, struct kfi_info *info,
			     struct kfid_domain **domain, void *context)
{
	return fabric->ops->domain(fabric, info, domain, context);
}

/**
 * kfi_domain_bind() - bind a domain to an event queue
 * @domain: the domain
 * @fid: the event queue
 * @flags: KFI_REG_MR: registration of memory is asynchronous; or 0
 *
 * Return: 0; -KFI_EINVAL another class, another fabric, flags, or bound already.
 */
static inline int kfi_domain_bind(struct kfid_domain *domain, struct kfid *fid,
				  u64 flags)
{
	return domain->fid.ops->bind(&domain->fid, fid, flags);
}

/**
 * kfi_cq_open() - open a completion queue
 * @domain: the domain
 * @attr: attributes, or NULL: the default
 * @cq: where the queue is stored
 * @comp_handler: told about completions, or NULL
 * @context: the consumer's
 *
 * Return: 0; -KFI_EINVAL an attribute is not valid; -KFI_ENOMEM.
 */
static inline int kfi_cq_open(struct kfid_domain *domain,
			      struct kfi_cq_attr *attr, struct kfid_cq **cq,
			      kfi_comp_handler comp_handler, void *context)
{
	return domain->ops->cq_open(domain, attr, cq, comp_handler, context);
}

/**
 * kfi_cntr_open() - open a counter
 * @domain: the domain
 * @attr: attributes, or NULL: the default
 * @cntr: where the counter is stored
 * @context: the consumer's
 *
 * Both values of a new counter are 0.
 *
 * Return: 0; -KFI_EINVAL unknown events or wait object, flags, or KFI_WAIT_SET
 *	without a wait set of this fabric; -KFI_ENOMEM.
 */
static inline int kfi_cntr_open(struct kfid_domain *domain,
				struct kfi_cntr_attr *attr,
				struct kfid_cntr **cntr, void *context)
{
	return domain->ops->cntr_open(domain, attr, cntr, context);
}

/**
 * kfi_wait_open() - open a wait set
 * @fabric: the fabric
 * @attr: attributes, or NULL: the default
 * @waitset: where the wait set is stored
 *
 * Return: 0; -KFI_EINVAL flags, or a wait object other than KFI_WAIT_UNSPEC and
 *	KFI_WAIT_QUEUE; -KFI_ENOMEM.
 */
static inline int kfi_wait_open(struct kfid_fabric *fabric,
				struct kfi_wait_attr *attr,
				struct kfid_wait **waitset)
{
	return fabric->ops->wait_open(fabric, attr, waitset);
}

/**
 * kfi_poll_open() - open a poll set
 * @domain: the domain
 * @attr: attributes, or NULL: the default
 * @pollset: where the poll set is stored
 *
 * Return: 0; -KFI_EINVAL flags; -KFI_ENOMEM.
 */
static inline int kfi_poll_open(struct kfid_domain *domain,
				struct kfi_poll_attr *attr,
				struct kfid_poll **pollset)
{
	return domain->ops->poll_open(domain, attr, pollset);
}

#include "kfi_av.h"
#include "kfi_mr.h"

#endif /* _KFI_DOMAIN_H */
