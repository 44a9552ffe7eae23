/* SPDX-License-Identifier: GPL-2.0 */
/*
 * Endpoints; with them messages (kfi_msg.h).
 *
 * Other transfers are in kfi_tagged.h, kfi_rma.h and kfi_atomic.h, connections
 * in kfi_cm.h.  Source: fi_endpoint(3).
 */
#ifndef _KFI_ENDPOINT_H
#define _KFI_ENDPOINT_H

#include <linux/container_of.h>

#include "kfi_domain.h"

struct kfi_ops_atomic;
struct kfi_ops_cm;
struct kfi_ops_msg;
struct kfi_ops_rma;
struct kfi_ops_tagged;

/* Levels and options of kfi_setopt() and kfi_getopt(). */
enum {
	KFI_OPT_ENDPOINT	= 0,
};

enum {
	KFI_OPT_MIN_MULTI_RECV	= 0,	/* size_t: a smaller rest is released */
	KFI_OPT_CM_DATA_SIZE	= 1,	/* size_t: private data, get only */
};

/**
 * struct kfi_ops_ep - operations of endpoints and contexts
 * @size: sizeof(struct kfi_ops_ep)
 * @cancel: see kfi_cancel()
 * @getopt: see kfi_getopt()
 * @setopt: see kfi_setopt()
 * @tx_ctx: see kfi_tx_context()
 * @rx_ctx: see kfi_rx_context()
 */
struct kfi_ops_ep {
	size_t	size;
	ssize_t	(*cancel)(struct kfid *fid, void *context);
	int	(*getopt)(struct kfid *fid, int level, int optname,
			  void *optval, size_t *optlen);
	int	(*setopt)(struct kfid *fid, int level, int optname,
			  const void *optval, size_t optlen);
	int	(*tx_ctx)(struct kfid_ep *sep, int index,
			  struct kfi_tx_attr *attr, struct kfid_ep **tx_ep,
			  void *context);
	int	(*rx_ctx)(struct kfid_ep *sep, int index,
			  struct kfi_rx_attr *attr, struct kfid_ep **rx_ep,
			  void *context);
};

/**
 * struct kfid_ep - an endpoint, or a context of one
 * @fid: head
 * @ops: operations of endpoints
 * @cm: connections
 * @msg: messages
 * @rma: remote memory access
 * @tagged: tagged messages
 * @atomic: atomics
 */
struct kfid_ep {
	struct kfid		fid;
	struct kfi_ops_ep	*ops;
	struct kfi_ops_cm	*cm;
	struct kfi_ops_msg	*msg;
	struct kfi_ops_rma	*rma;
	struct kfi_ops_tagged	*tagged;
	struct kfi_ops_atomic	*atomic;
};

/**
 * struct kfid_pep - a passive endpoint
 * @fid: head
 * @ops: operations of endpoints
 * @cm: connections
 */
struct kfid_pep {
	struct kfid		fid;
	struct kfi_ops_ep	*ops;
	struct kfi_ops_cm	*cm;
};

/**
 * struct kfid_stx - a transmit context that several endpoints share
 * @fid: head
 * @ops: operations of endpoints
 */
struct kfid_stx {
	struct kfid		fid;
	struct kfi_ops_ep	*ops;
};

/**
 * kfi_passive_ep() - open a passive endpoint
 * @fabric: the fabric
 * @info: an entry of kfi_getinfo(), of type KFI_EP_MSG
 * @pep: where the passive endpoint is stored
 * @context: the consumer's
 *
 * It listens at the address of @info, or at that of kfi_setname().
 *
 * Return: 0; -KFI_EINVAL an attribute of @info is not valid, or there is no
 *	address; -KFI_ENOMEM.
 */
static inline int kfi_passive_ep(struct kfid_fabric *fabric,
				 struct kfi_info *info, struct kfid_pep **pep,
				 void *context)
{
	return fabric->ops->passive_ep(fabric, info, pep, context);
}

/**
 * kfi_endpoint() - open an endpoint
 * @domain: the domain
 * @info: an entry of kfi_getinfo(), or a copy
 * @ep: where the endpoint is stored
 * @context: the consumer's
 *
 * With the @info of a KFI_CONNREQ, the endpoint is for kfi_accept().
 *
 * Return: 0; -KFI_EINVAL an attribute of @info is not valid; -KFI_EOPNOTSUPP a
 *	capability or a default flag that the type does not have;
 *	-KFI_EADDRNOTAVAIL the domain does not have the address; -KFI_ENOENT
 *	@info is of a KFI_CONNREQ, and the passive endpoint was closed;
 *	-KFI_ENOMEM.
 */
static inline int kfi_endpoint(struct kfid_domain *domain,
			       struct kfi_info *info, struct kfid_ep **ep,
			       void *context)
{
	return domain->ops->endpoint(domain, info, ep, context);
}

/**
 * kfi_scalable_ep() - open an endpoint with contexts of its own
 * @domain: the domain
 * @info: an entry of kfi_getinfo(), with the numbers of contexts
 * @sep: where the endpoint is stored
 * @context: the consumer's
 *
 * Return: as kfi_endpoint().
 */
static inline int kfi_scalable_ep(struct kfid_domain *domain,
				  struct kfi_info *info, struct kfid_ep **sep,
				  void *context)
{
	return domain->ops->scalable_ep(domain, info, sep, context);
}

/**
 * kfi_ep_bind() - bind an endpoint or a context
 * @ep: the endpoint, not enabled yet
 * @bfid: address vector, event queue, completion queue, counter, shared context
 * @flags: completion queue: KFI_TRANSMIT, KFI_RECV, KFI_SELECTIVE_COMPLETION;
 *	counter: KFI_SEND, KFI_RECV, KFI_READ, KFI_WRITE, KFI_REMOTE_READ,
 *	KFI_REMOTE_WRITE; else 0
 *
 * Return: 0; -KFI_EINVAL another class, another domain, flags, or bound already;
 *	-KFI_EOPBADSTATE the endpoint is enabled.
 */
static inline int kfi_ep_bind(struct kfid_ep *ep, struct kfid *bfid, u64 flags)
{
	return ep->fid.ops->bind(&ep->fid, bfid, flags);
}

/**
 * kfi_pep_bind() - bind a passive endpoint
 * @pep: the passive endpoint, not listening yet
 * @bfid: event queue
 * @flags: 0
 *
 * Return: as kfi_ep_bind().
 */
static inline int kfi_pep_bind(struct kfid_pep *pep, struct kfid *bfid,
			       u64 flags)
{
	return pep->fid.ops->bind(&pep->fid, bfid, flags);
}

/**
 * kfi_scalable_ep_bind() - bind an endpoint with contexts of its own
 * @sep: the endpoint
 * @bfid: address vector or event queue
 * @flags: 0
 *
 * Return: as kfi_ep_bind().
 */
static inline int kfi_scalable_ep_bind(struct kfid_ep *sep, struct kfid *bfid,
				       u64 flags)
{
	return sep->fid.ops->bind(&sep->fid, bfid, flags);
}

/**
 * kfi_enable() - make an endpoint or a context ready for operations
 * @ep: the endpoint
 *
 * Return: 0; -KFI_ENOAV, -KFI_ENOCQ, -KFI_ENOEQ an object is not bound;
 *	-KFI_EADDRINUSE its address is in use; -KFI_EADDRNOTAVAIL the domain
 *	has lost the address; -KFI_EBUSY too many QPs; -KFI_EOPBADSTATE it is
 *	enabled.
 */
static inline int kfi_enable(struct kfid_ep *ep)
{
	return ep->fid.ops->control(&ep->fid, KFI_ENABLE, NULL);
}

/**
 * kfi_cancel() - cancel an operation
 * @fid: the endpoint or context
 * @context: context of the operation
 *
 * A cancelled operation completes with the error KFI_ECANCELED.
 *
 * Return: 0; -KFI_ENOENT there is no such operation any more; -KFI_EOPBADSTATE
 *	the endpoint is not enabled; -EINTR the task is being killed.
 */
static inline ssize_t kfi_cancel(struct kfid *fid, void *context)
{
	struct kfid_ep *ep = container_of(fid, struct kfid_ep, fid);

	return ep->ops->cancel(fid, context);
}

/**
 * kfi_setopt() - set an option
 * @fid: endpoint, context or passive endpoint
 * @level: KFI_OPT_ENDPOINT
 * @optname: KFI_OPT_*
 * @optval: the value
 * @optlen: bytes of the value
 *
 * Return: 0; -KFI_ENOPROTOOPT there is no such option; -KFI_EINVAL.
 */
static inline int kfi_setopt(struct kfid *fid, int level, int optname,
			     const void *optval, size_t optlen)
{
	struct kfid_ep *ep = container_of(fid, struct kfid_ep, fid);

	return ep->ops->setopt(fid, level, optname, optval, optlen);
}

/**
 * kfi_getopt() - get an option
 * @fid: endpoint, context or passive endpoint
 * @level: KFI_OPT_ENDPOINT
 * @optname: KFI_OPT_*
 * @optval: where the value is stored
 * @optlen: in: room in @optval, bytes; out: bytes of the value
 *
 * Return: 0; -KFI_ENOPROTOOPT there is no such option; -KFI_ETOOSMALL.
 */
static inline int kfi_getopt(struct kfid *fid, int level, int optname,
			     void *optval, size_t *optlen)
{
	struct kfid_ep *ep = container_of(fid, struct kfid_ep, fid);

	return ep->ops->getopt(fid, level, optname, optval, optlen);
}

/**
 * kfi_ep_alias() - make another endpoint with the same resources
 * @ep: the endpoint
 * @alias_ep: where the alias is stored
 * @flags: KFI_TRANSMIT or KFI_RECV, with the default flags of that side; the
 *	other side has those of @ep
 *
 * kfi_control() with KFI_SETOPSFLAG changes the flags of the alias only.
 *
 * Return: as kfi_alias().
 */
static inline int kfi_ep_alias(struct kfid_ep *ep, struct kfid_ep **alias_ep,
			       u64 flags)
{
	struct kfid *fid;
	int ret = kfi_alias(&ep->fid, &fid, flags);

	if (!ret)
		*alias_ep = container_of(fid, struct kfid_ep, fid);
	return ret;
}

/**
 * kfi_tx_context() - open a transmit context of a scalable endpoint
 * @ep: the scalable endpoint
 * @index: which one, 0 ... tx_ctx_cnt - 1
 * @attr: attributes, or NULL: the endpoint's
 * @tx_ep: where the context is stored
 * @context: the consumer's
 *
 * Return: 0; -KFI_EINVAL; -KFI_EBUSY it is open already; -KFI_ENOMEM.
 */
static inline int kfi_tx_context(struct kfid_ep *ep, int index,
				 struct kfi_tx_attr *attr,
				 struct kfid_ep **tx_ep, void *context)
{
	return ep->ops->tx_ctx(ep, index, attr, tx_ep, context);
}

/**
 * kfi_rx_context() - open a receive context of a scalable endpoint
 * @ep: the scalable endpoint
 * @index: which one, 0 ... rx_ctx_cnt - 1
 * @attr: attributes, or NULL: the endpoint's
 * @rx_ep: where the context is stored
 * @context: the consumer's
 *
 * Return: as kfi_tx_context().
 */
static inline int kfi_rx_context(struct kfid_ep *ep, int index,
				 struct kfi_rx_attr *attr,
				 struct kfid_ep **rx_ep, void *context)
{
	return ep->ops->rx_ctx(ep, index, attr, rx_ep, context);
}

/**
 * kfi_stx_context() - open a transmit context for several endpoints
 * @domain: the domain
 * @attr: attributes, or NULL: the default
 * @stx: where the context is stored
 * @context: the consumer's
 *
 * Return: 0; -KFI_EINVAL; -KFI_ENOMEM.
 */
static inline int kfi_stx_context(struct kfid_domain *domain,
				  struct kfi_tx_attr *attr,
				  struct kfid_stx **stx, void *context)
{
	return domain->ops->stx_ctx(domain, attr, stx, context);
}

/**
 * kfi_srx_context() - open a receive context for several endpoints
 * @domain: the domain
 * @attr: attributes, or NULL: the default
 * @rx_ep: where the context is stored
 * @context: the consumer's
 *
 * Return: as kfi_stx_context().
 */
static inline int kfi_srx_context(struct kfid_domain *domain,
				  struct kfi_rx_attr *attr,
				  struct kfid_ep **rx_ep, void *context)
{
	return domain->ops->srx_ctx(domain, attr, rx_ep, context);
}

#include "kfi_msg.h"

#endif /* _KFI_ENDPOINT_H */
