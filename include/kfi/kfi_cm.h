/* SPDX-License-Identifier: GPL-2.0 */
/*
 * Addresses of endpoints, connections and multicast groups.
 *
 * Source: fi_cm(3).
 */
#ifndef _KFI_CM_H
#define _KFI_CM_H

#include "kfi_endpoint.h"

struct kfid_mc;

/**
 * struct kfi_ops_cm - addresses and connections
 * @size: sizeof(struct kfi_ops_cm)
 * @setname: see kfi_setname()
 * @getname: see kfi_getname()
 * @getpeer: see kfi_getpeer()
 * @connect: see kfi_connect()
 * @listen: see kfi_listen()
 * @accept: see kfi_accept()
 * @reject: see kfi_reject()
 * @shutdown: see kfi_shutdown()
 * @join: see kfi_join()
 */
struct kfi_ops_cm {
	size_t	size;
	int	(*setname)(kfid_t fid, void *addr, size_t addrlen);
	int	(*getname)(struct kfid *fid, void *addr, size_t *addrlen);
	int	(*getpeer)(struct kfid_ep *ep, void *addr, size_t *addrlen);
	int	(*connect)(struct kfid_ep *ep, const void *addr,
			   const void *param, size_t paramlen);
	int	(*listen)(struct kfid_pep *pep);
	int	(*accept)(struct kfid_ep *ep, const void *param,
			  size_t paramlen);
	int	(*reject)(struct kfid_pep *pep, kfid_t connreq,
			  const void *param, size_t paramlen);
	int	(*shutdown)(struct kfid_ep *ep, u64 flags);
	int	(*join)(struct kfid_ep *ep, const void *addr, u64 flags,
			struct kfid_mc **mc, void *context);
};

/**
 * struct kfid_mc - a multicast group that an endpoint has joined
 * @fid: head
 * @addr: see kfi_mc_addr()
 */
struct kfid_mc {
	struct kfid	fid;
	kfi_addr_t	addr;
};

/**
 * kfi_setname() - set the address of an endpoint
 * @fid: the endpoint, not enabled yet, or the passive endpoint
 * @addr: the address
 * @addrlen: its bytes
 *
 * Return: 0; -KFI_EINVAL; -KFI_EADDRNOTAVAIL; -KFI_EOPBADSTATE.
 */
static inline int kfi_setname(struct kfid *fid, void *addr, size_t addrlen)
{
	struct kfid_ep *ep = container_of(fid, struct kfid_ep, fid);

	return ep->cm->setname(fid, addr, addrlen);
}

/**
 * kfi_getname() - the address of an endpoint
 * @fid: endpoint or passive endpoint
 * @addr: where the address is stored, as much of it as fits
 * @addrlen: in: room in @addr, bytes; out: bytes of the address
 *
 * Return: 0; -KFI_ETOOSMALL; -KFI_EOPBADSTATE it has none yet.
 */
static inline int kfi_getname(struct kfid *fid, void *addr, size_t *addrlen)
{
	struct kfid_ep *ep = container_of(fid, struct kfid_ep, fid);

	return ep->cm->getname(fid, addr, addrlen);
}

/**
 * kfi_getpeer() - the address of the peer
 * @ep: a connected endpoint
 * @addr: where the address is stored, as much of it as fits
 * @addrlen: in: room in @addr, bytes; out: bytes of the address
 *
 * The end that requests the connection has a peer address once the request was
 * accepted, the other end from kfi_accept() on. Both keep it after the connection
 * has ended.
 *
 * Context: Process, may sleep.
 * Return: 0; -KFI_ETOOSMALL; -KFI_ENOTCONN it was never connected;
 *	-KFI_EOPNOTSUPP another type; -KFI_EINVAL no @addrlen.
 */
static inline int kfi_getpeer(struct kfid_ep *ep, void *addr, size_t *addrlen)
{
	return ep->cm->getpeer(ep, addr, addrlen);
}

/**
 * kfi_listen() - accept requests for connections
 * @pep: the passive endpoint, bound to an event queue
 *
 * The event KFI_CONNREQ tells of each request.  Before this call, kfi_control()
 * with KFI_BACKLOG sets how many requests of one peer may wait to be accepted
 * or rejected, 1 to 4,096; half as many again may wait in all, and more are
 * refused.  Other numbers are -KFI_EINVAL, and the command is -KFI_EOPBADSTATE
 * afterwards.
 *
 * Return: 0; -KFI_ENOEQ; -KFI_EADDRINUSE; -KFI_EADDRNOTAVAIL no link has the
 *	address; -KFI_EOPBADSTATE it listens.
 */
static inline int kfi_listen(struct kfid_pep *pep)
{
	return pep->cm->listen(pep);
}

/**
 * kfi_connect() - ask a peer for a connection
 * @ep: the endpoint, bound to an event queue
 * @addr: address of the peer; NULL: that of the endpoint's kfi_info
 * @param: private data for the peer, or NULL
 * @paramlen: their bytes; what is beyond KFI_OPT_CM_DATA_SIZE is cut off
 *
 * Enables the endpoint if it is not.  An event tells the result: KFI_CONNECTED,
 * or an error.
 *
 * Return: 0: begun; -KFI_ENOEQ; -KFI_EINVAL, also without any address;
 *	-KFI_EALREADY; -KFI_EISCONN; -KFI_EOPNOTSUPP another type;
 *	-KFI_EADDRNOTAVAIL the link has lost the endpoint's address;
 *	-KFI_ENETUNREACH no route leaves by the link's interface;
 *	-KFI_EHOSTUNREACH the route is unreachable, prohibited or a blackhole,
 *	or no link has this address of this host; -KFI_EMSGSIZE the route or the
 *	interface carries no path MTU; -KFI_EBUSY too many connections;
 *	-KFI_ENETDOWN the interface is down; -KFI_ENODEV it was removed; what
 *	kfi_enable() returns.
 */
static inline int kfi_connect(struct kfid_ep *ep, const void *addr,
			      const void *param, size_t paramlen)
{
	return ep->cm->connect(ep, addr, param, paramlen);
}

/**
 * kfi_accept() - accept a request
 * @ep: an endpoint that was opened with the request's kfi_info
 * @param: private data for the peer, or NULL
 * @paramlen: their bytes; what is beyond 196 is cut off
 *
 * Return: 0: the event KFI_CONNECTED follows; -KFI_ENOEQ; -KFI_EINVAL;
 *	-KFI_EADDRNOTAVAIL the link has lost the endpoint's address;
 *	-KFI_ENETDOWN the same, and its interface is down; -KFI_ENODEV its
 *	interface was removed; -KFI_ENOENT no such request waits; -KFI_EALREADY;
 *	-KFI_EISCONN; -KFI_EOPNOTSUPP another type; -KFI_ECONNABORTED the peer
 *	has given up; what kfi_enable() returns.
 */
static inline int kfi_accept(struct kfid_ep *ep, const void *param,
			     size_t paramlen)
{
	return ep->cm->accept(ep, param, paramlen);
}

/**
 * kfi_reject() - reject a request
 * @pep: the passive endpoint
 * @connreq: handle of the request's kfi_info, which is not freed
 * @param: private data for the peer, or NULL
 * @paramlen: their bytes; what is beyond 148 is cut off
 *
 * Return: 0; -KFI_EINVAL; -KFI_ENOENT the request was accepted or rejected, or
 *	is one of a passive endpoint that was closed.
 */
static inline int kfi_reject(struct kfid_pep *pep, kfid_t connreq,
			     const void *param, size_t paramlen)
{
	return pep->cm->reject(pep, connreq, param, paramlen);
}

/**
 * kfi_shutdown() - end a connection
 * @ep: the endpoint
 * @flags: 0
 *
 * Return: 0; -KFI_ENOTCONN.
 */
static inline int kfi_shutdown(struct kfid_ep *ep, u64 flags)
{
	return ep->cm->shutdown(ep, flags);
}

/**
 * kfi_join() - join a multicast group
 * @ep: the endpoint
 * @addr: address of the group
 * @flags: KFI_SEND, KFI_RECV or both; 0 is both
 * @mc: where the group is stored
 * @context: the consumer's
 *
 * kfabric.ko has no multicast.
 *
 * Return: 0: the event KFI_JOIN_COMPLETE follows; -KFI_ENOSYS.
 */
static inline int kfi_join(struct kfid_ep *ep, const void *addr, u64 flags,
			   struct kfid_mc **mc, void *context)
{
	return KFI_CHECK_OP(ep->cm, struct kfi_ops_cm, join) ?
		ep->cm->join(ep, addr, flags, mc, context) : -KFI_ENOSYS;
}

/**
 * kfi_mc_addr() - the address of a multicast group, for operations
 * @mc: the group
 *
 * Context: Any.
 * Return: the address.
 */
static inline kfi_addr_t kfi_mc_addr(struct kfid_mc *mc)
{
	return mc->addr;
}

#endif /* _KFI_CM_H */
