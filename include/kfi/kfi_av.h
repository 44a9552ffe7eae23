/* SPDX-License-Identifier: GPL-2.0 */
/*
 * Address vectors.  kfi_domain.h includes this file.
 *
 * Source: fi_av(3).
 */
#ifndef _KFI_AV_H
#define _KFI_AV_H

#include "kfi_domain.h"

/**
 * struct kfi_av_attr - an address vector
 * @type: what its addresses are; KFI_AV_UNSPEC is replaced by the choice
 * @rx_ctx_bits: upper bits of an address that select a receive context, see
 *	kfi_rx_addr(); at most 16
 * @count: expected number of addresses; 0 is the default
 * @ep_per_node: expected number of endpoints per node; 0: unknown
 * @name: name of a shared address vector, or NULL
 * @map_addr: where a shared one is mapped, or NULL
 * @flags: KFI_EVENT: insertions report to an event queue; or 0
 */
struct kfi_av_attr {
	enum kfi_av_type	type;
	int			rx_ctx_bits;
	size_t			count;
	size_t			ep_per_node;
	const char		*name;
	void			*map_addr;
	u64			flags;
};

/**
 * struct kfi_ops_av - operations of address vectors
 * @size: sizeof(struct kfi_ops_av)
 * @insert: see kfi_av_insert()
 * @insertsvc: see kfi_av_insertsvc()
 * @insertsym: see kfi_av_insertsym()
 * @remove: see kfi_av_remove()
 * @lookup: see kfi_av_lookup()
 * @straddr: see kfi_av_straddr()
 */
struct kfi_ops_av {
	size_t		size;
	int		(*insert)(struct kfid_av *av, const void *addr,
				  size_t count, kfi_addr_t *kfi_addr, u64 flags,
				  void *context);
	int		(*insertsvc)(struct kfid_av *av, const char *node,
				     const char *service, kfi_addr_t *kfi_addr,
				     u64 flags, void *context);
	int		(*insertsym)(struct kfid_av *av, const char *node,
				     size_t nodecnt, const char *service,
				     size_t svccnt, kfi_addr_t *kfi_addr,
				     u64 flags, void *context);
	int		(*remove)(struct kfid_av *av, kfi_addr_t *kfi_addr,
				  size_t count, u64 flags);
	int		(*lookup)(struct kfid_av *av, kfi_addr_t kfi_addr,
				  void *addr, size_t *addrlen);
	const char	*(*straddr)(struct kfid_av *av, const void *addr,
				    char *buf, size_t *len);
};

/**
 * struct kfid_av - an address vector
 * @fid: head
 * @ops: operations
 */
struct kfid_av {
	struct kfid		fid;
	struct kfi_ops_av	*ops;
};

/**
 * kfi_av_open() - open an address vector
 * @domain: the domain
 * @attr: attributes, or NULL: the default
 * @av: where the address vector is stored
 * @context: the consumer's
 *
 * Return: 0; -KFI_EINVAL an attribute is not valid; -KFI_ENOSYS the provider
 *	has no shared map of address vectors; -KFI_ENOMEM.
 */
static inline int kfi_av_open(struct kfid_domain *domain,
			      struct kfi_av_attr *attr, struct kfid_av **av,
			      void *context)
{
	return domain->ops->av_open(domain, attr, av, context);
}

/**
 * kfi_av_bind() - bind an address vector to an event queue
 * @av: the address vector
 * @fid: the event queue
 * @flags: 0
 *
 * Return: 0; -KFI_EINVAL another class, another fabric, flags, or bound already.
 */
static inline int kfi_av_bind(struct kfid_av *av, struct kfid *fid, u64 flags)
{
	return av->fid.ops->bind(&av->fid, fid, flags);
}

/**
 * kfi_av_insert() - insert addresses
 * @av: the address vector
 * @addr: array of addresses, of the format that kfi_getinfo() gave; each is as
 *	long as its family has it, so behind one of an unknown family all fail
 * @count: their number, 0 or more
 * @kfi_addr: where their kfi_addr_t are stored, KFI_ADDR_NOTAVAIL for an
 *	address that was not inserted; NULL: not wanted (KFI_AV_TABLE only)
 * @flags: KFI_MORE, KFI_SYNC_ERR (@context is an array of int, an error each;
 *	not with events)
 * @context: context of the events: an error event for each address that was
 *	not inserted, with its index, then KFI_AV_COMPLETE with the number of
 *	those that were
 *
 * Return: how many were inserted; 0 if an event tells; -KFI_ENOEQ an event
 *	queue is not bound; -KFI_EINVAL an argument is not valid; the error of
 *	the first address if none was inserted: -KFI_EINVAL, -KFI_ENOSPC,
 *	-KFI_ENOMEM.
 */
static inline int kfi_av_insert(struct kfid_av *av, const void *addr,
				size_t count, kfi_addr_t *kfi_addr, u64 flags,
				void *context)
{
	return av->ops->insert(av, addr, count, kfi_addr, flags, context);
}

/**
 * kfi_av_insertsvc() - insert an address given as text
 * @av: the address vector
 * @node: numeric address
 * @service: port
 * @kfi_addr: as kfi_av_insert()
 * @flags: as kfi_av_insert()
 * @context: as kfi_av_insert()
 *
 * Return: 1; 0 if an event tells; else as kfi_av_insert().
 */
static inline int kfi_av_insertsvc(struct kfid_av *av, const char *node,
				   const char *service, kfi_addr_t *kfi_addr,
				   u64 flags, void *context)
{
	return av->ops->insertsvc(av, node, service, kfi_addr, flags, context);
}

/**
 * kfi_av_insertsym() - insert addresses in a row
 * @av: the address vector
 * @node: the first numeric address
 * @nodecnt: number of addresses
 * @service: the first port
 * @svccnt: number of ports at each address
 * @kfi_addr: as kfi_av_insert()
 * @flags: as kfi_av_insert()
 * @context: as kfi_av_insert()
 *
 * All ports of an address are inserted before the next address, so the results
 * have room for @nodecnt times @svccnt.
 *
 * Return: as kfi_av_insert(); -KFI_EINVAL a number is 0, there are more than
 *	65,536, or the last port or address does not exist: nothing is inserted
 *	then.
 */
static inline int kfi_av_insertsym(struct kfid_av *av, const char *node,
				   size_t nodecnt, const char *service,
				   size_t svccnt, kfi_addr_t *kfi_addr,
				   u64 flags, void *context)
{
	return av->ops->insertsym(av, node, nodecnt, service, svccnt, kfi_addr,
				  flags, context);
}

/**
 * kfi_av_remove() - remove addresses
 * @av: the address vector
 * @kfi_addr: the addresses
 * @count: their number
 * @flags: 0
 *
 * Return: 0; -KFI_ENOENT one is not there, and none was removed; -KFI_EINVAL.
 */
static inline int kfi_av_remove(struct kfid_av *av, kfi_addr_t *kfi_addr,
				size_t count, u64 flags)
{
	return av->ops->remove(av, kfi_addr, count, flags);
}

/**
 * kfi_av_lookup() - the address behind a kfi_addr_t
 * @av: the address vector
 * @kfi_addr: the kfi_addr_t
 * @addr: where the address is stored, as much of it as fits
 * @addrlen: in: room in @addr, bytes; out: bytes of the address
 *
 * Return: 0; -KFI_ENOENT it is not there; -KFI_ETOOSMALL.
 */
static inline int kfi_av_lookup(struct kfid_av *av, kfi_addr_t kfi_addr,
				void *addr, size_t *addrlen)
{
	return av->ops->lookup(av, kfi_addr, addr, addrlen);
}

/**
 * kfi_av_straddr() - an address as text
 * @av: the address vector
 * @addr: the address
 * @buf: where the text is stored, as much of it as fits
 * @len: in: room in @buf, bytes; out: bytes of the whole text with its NUL
 *
 * Return: @buf; the text is empty if the provider cannot have the address.
 */
static inline const char *kfi_av_straddr(struct kfid_av *av, const void *addr,
					 char *buf, size_t *len)
{
	return av->ops->straddr(av, addr, buf, len);
}

/**
 * kfi_rx_addr() - the address of one receive context of a peer
 * @kfi_addr: address of the peer
 * @rx_index: index of the receive context
 * @rx_ctx_bits: that of the address vector
 *
 * The address is for transmits. kfi_av_lookup() and receives that name a source
 * ignore the index, because all contexts of a peer have one address in the
 * address vector; kfi_av_remove() knows @kfi_addr only.
 *
 * Context: Any.
 * Return: the address: the index is in its upper @rx_ctx_bits bits. A transmit
 *	to a context that the peer does not have fails with -KFI_EHOSTUNREACH on
 *	one host, and completes with the error KFI_ECONNREFUSED on another host.
 */
static inline kfi_addr_t kfi_rx_addr(kfi_addr_t kfi_addr, int rx_index,
				     int rx_ctx_bits)
{
	/* A shift by 64 is undefined. */
	if (!rx_ctx_bits)
		return kfi_addr;
	return (u64)rx_index << (64 - rx_ctx_bits) | kfi_addr;
}

#endif /* _KFI_AV_H */
