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
 * @ops: operations of endpoints; all of them return -KFI_ENOSYS
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
 * @info: an entry of kfi_getinfo(); ep_attr has the numbers of contexts, tx_attr
 *	and rx_attr what the contexts have unless they are opened with others
 * @sep: where the endpoint is stored
 * @context: the consumer's
 *
 * The endpoint has a name (kfi_setname(), kfi_getname()), which all contexts
 * share, and an address vector. It transfers nothing itself: its calls of
 * kfi_msg.h, kfi_tagged.h, kfi_rma.h and kfi_atomic.h, kfi_cancel() and
 * kfi_ep_alias() return -KFI_ENOSYS. kfi_setopt() and the default flags of
 * kfi_control() are those of contexts that are opened later. It cannot be closed
 * before its contexts: -KFI_EBUSY.
 *
 * Context: Process, may sleep.
 * Return: as kfi_endpoint(); -KFI_EINVAL more contexts than max_ep_tx_ctx or
 *	max_ep_rx_ctx; -KFI_EOPNOTSUPP a type without contexts (ours: all but
 *	KFI_EP_RDM).
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
 * @flags: completion queue: KFI_TRANSMIT, KFI_RECV, KFI_SELECTIVE_COMPLETION
 *	(of a context, which has one side, neither of the first two need be
 *	named); counter: KFI_SEND, KFI_RECV, KFI_READ, KFI_WRITE, KFI_REMOTE_READ,
 *	KFI_REMOTE_WRITE, or 0 for all that the endpoint or the context has; else
 *	0
 *
 * Return: 0; -KFI_EINVAL another class, another domain, flags, or bound already,
 *	or a shared context for a side that was not opened with
 *	KFI_SHARED_CONTEXT or has more capabilities than the context;
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
 * @sep: the endpoint, not named yet: neither it nor a context is enabled
 * @bfid: address vector, which its contexts use too
 * @flags: 0
 *
 * Context: Process, may sleep.
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
 *	has lost the address; -KFI_ENODEV the link's interface was removed;
 *	-KFI_EBUSY too many QPs; -KFI_EOPBADSTATE it is enabled, or a shared
 *	context is not bound.  With a shared receive context also -KFI_EINVAL,
 *	-KFI_EAGAIN: see kfi_srx_context().
 */
static inline int kfi_enable(struct kfid_ep *ep)
{
	return ep->fid.ops->control(&ep->fid, KFI_ENABLE, NULL);
}

/**
 * kfi_cancel() - cancel an operation
 * @fid: the endpoint or context
 * @context: context of the operation. NULL names operations without a context,
 *	such as injected ones
 *
 * A cancelled operation completes with the error KFI_ECANCELED. A peer on another
 * host is asked to give a message back. If it does not answer, all operations to
 * it fail with KFI_ETIMEDOUT, mostly after 60 s. A transmit that has begun and
 * cannot be cancelled (-KFI_ENOENT) ends in a limited time after the call.  A
 * receive that has begun ends with its message, or when the endpoint is closed.
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
 * Return: 0; -KFI_ENOPROTOOPT there is no such option; -KFI_ETOOSMALL @optlen is
 *	less than the bytes of its type; -KFI_EINVAL.
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
 * Return: 0; -KFI_ENOPROTOOPT there is no such option; -KFI_EINVAL a pointer is
 *	NULL; -KFI_ETOOSMALL.
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
 * @attr: attributes, or NULL: the endpoint's; 0 in a member is the endpoint's;
 *	out: as they are
 * @tx_ep: where the context is stored
 * @context: the consumer's
 *
 * A context is bound, enabled, used and closed as an endpoint, of its own class
 * KFI_CLASS_TX_CTX. It has neither an address vector nor a name of its own: to
 * bind one or to set one is -KFI_EINVAL. kfi_close() of a transmit context first
 * waits until no task posts its started operations. It is -KFI_EBUSY if operations
 * have not completed. After kfi_cancel() of each of them the context can be closed
 * in a limited time, whatever peers on other hosts do. A peer on this host that
 * copies keeps it open until it has finished.
 *
 * Context: Process, may sleep.
 * Return: 0; -KFI_EINVAL there is no such context, or an attribute that cannot
 *	be; -KFI_EBUSY it is open; -KFI_EOPNOTSUPP the endpoint has no
 *	capabilities of this side; -KFI_ENOMEM; -KFI_ENOSYS not a scalable
 *	endpoint.
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
 * @attr: attributes, or NULL: the endpoint's; 0 in a member is the endpoint's;
 *	out: as they are
 * @rx_ep: where the context is stored
 * @context: the consumer's
 *
 * As kfi_tx_context(), with the class KFI_CLASS_RX_CTX. Peers send to it and
 * access memory through it at kfi_rx_addr() of the endpoint's address. kfi_close()
 * drops posted receives without completions; it is -KFI_EBUSY while a memory
 * region is bound.
 *
 * Context: Process, may sleep.
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
 * @attr: in: attributes, 0 leaves the choice to the provider; out: those that
 *	the context has.  NULL: the default
 * @stx: where the context is stored
 * @context: the consumer's
 *
 * Endpoints of any type, opened with ep_attr->tx_ctx_cnt = KFI_SHARED_CONTEXT,
 * are bound to it by kfi_ep_bind() before they are enabled.  Their operations
 * are posted to them, and complete in their own completion queues and counters.
 * Together they have room for @attr->size operations that have not completed;
 * the size of each endpoint limits it, too.  Without room a call returns
 * -KFI_EAGAIN.  The capabilities of an endpoint's transmit side must be a subset
 * of those of the context.
 *
 * kfi_close() returns -KFI_EBUSY while endpoints are bound to it.
 *
 * Context: Process, may sleep.
 * Return: 0; -KFI_EINVAL an attribute that no endpoint can have; -KFI_ENOMEM.
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
 * @attr: in: attributes, 0 leaves the choice to the provider; out: those that
 *	the context has.  NULL: the default
 * @rx_ep: where the context is stored
 * @context: the consumer's
 *
 * Endpoints of any type, opened with ep_attr->rx_ctx_cnt = KFI_SHARED_CONTEXT,
 * are bound to it by kfi_ep_bind() before they are enabled.  Receives are posted
 * to @rx_ep, plain and tagged ones and multi-receive buffers, at any time, also
 * before there are endpoints; those on an endpoint return -KFI_ENOSYS.  A message
 * to any of the endpoints takes the oldest receive that matches, and a receive
 * the oldest message.  kfi_cancel(), kfi_setopt(), kfi_getopt(), kfi_ep_alias()
 * and the default flags work on @rx_ep as on an endpoint; operations of deferred
 * work return -KFI_ENOSYS, other operations -KFI_EOPNOTSUPP.  Connected
 * endpoints pass multi-receive buffers over.
 *
 * A receive completes in the completion queue and the counter that are bound to
 * the endpoint whose message it took.  So that there is room for its completion
 * when it is posted, all endpoints that are enabled at the same time have the
 * same completion queue for receives, with the same flags, and the same address
 * vector; kfi_enable() returns -KFI_EINVAL otherwise, and -KFI_EAGAIN if the
 * queue has no room for the receives that were posted before the first endpoint
 * is enabled.  A receive that is cancelled completes there too; while no endpoint
 * is enabled, it completes nowhere.  A receive from one source returns
 * -KFI_ENOAV then, and KFI_PEEK -KFI_ENOCQ.
 *
 * An endpoint that closes fails a receive that was taking one of its messages
 * (KFI_ECANCELED); its messages without a receive are dropped.  kfi_close() of
 * the context returns -KFI_EBUSY while endpoints are bound to it, and drops its
 * receives otherwise.
 *
 * Context: Process, may sleep.  Receives are posted from process context and
 * softirqs, as on an endpoint.
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
