/* SPDX-License-Identifier: GPL-2.0 */
/*
 * Memory regions.  kfi_domain.h includes this file.
 *
 * Source: fi_mr(3).
 */
#ifndef _KFI_MR_H
#define _KFI_MR_H

#include "kfi_domain.h"

/**
 * struct kfi_mr_attr - a memory region
 * @type: which list of memory the union has
 * @mr_iov: KFI_KVEC: kernel addresses; the caller keeps the memory
 * @mr_biov: KFI_BVEC: pages
 * @mr_sgl: KFI_SGL
 * @iov_count: elements of the list
 * @access: KFI_SEND, KFI_RECV, KFI_READ, KFI_WRITE, KFI_REMOTE_READ,
 *	KFI_REMOTE_WRITE
 * @offset: 0
 * @requested_key: the key, unless the provider chooses it
 * @context: the consumer's
 * @auth_key_size: bytes of @auth_key: 0, only endpoints have keys
 * @auth_key: key that peers must have too
 */
struct kfi_mr_attr {
	enum kfi_iov_type	type;
	union {
		const struct kvec		*mr_iov;
		const struct bio_vec		*mr_biov;
		const struct scatterlist	*mr_sgl;
	};
	size_t			iov_count;
	u64			access;
	u64			offset;
	u64			requested_key;
	void			*context;
	size_t			auth_key_size;
	u8			*auth_key;
};

/**
 * struct kfi_mr_modify - argument of KFI_REFRESH
 * @flags: 0
 * @attr: the memory whose mapping has changed: @type, the list and @iov_count; the
 *	other members are ignored
 */
struct kfi_mr_modify {
	u64			flags;
	struct kfi_mr_attr	attr;
};

/**
 * struct kfi_mr_raw_attr - argument of KFI_GET_RAW_MR
 * @flags: 0
 * @base_addr: where the address for peers is stored
 * @raw_key: where the key is stored
 * @key_size: in: room in @raw_key, bytes; out: bytes of the key
 */
struct kfi_mr_raw_attr {
	u64	flags;
	u64	*base_addr;
	u8	*raw_key;
	size_t	*key_size;
};

/**
 * struct kfi_mr_map_raw - argument of KFI_MAP_RAW_MR
 * @flags: 0
 * @base_addr: address for peers, as the peer got it
 * @raw_key: the peer's key
 * @key_size: bytes of @raw_key
 * @key: where the key for operations is stored
 */
struct kfi_mr_map_raw {
	u64	flags;
	u64	base_addr;
	u8	*raw_key;
	size_t	key_size;
	u64	*key;
};

/**
 * struct kfi_ops_mr - operations that register memory
 * @size: sizeof(struct kfi_ops_mr)
 * @reg: see kfi_mr_reg()
 * @regv: see kfi_mr_regv()
 * @regbv: see kfi_mr_regbv()
 * @regattr: see kfi_mr_regattr()
 * @regsgl: see kfi_mr_regsgl()
 *
 * @fid is that of the domain.
 */
struct kfi_ops_mr {
	size_t	size;
	int	(*reg)(struct kfid *fid, const void *buf, size_t len, u64 access,
		       u64 offset, u64 requested_key, u64 flags,
		       struct kfid_mr **mr, void *context);
	int	(*regv)(struct kfid *fid, const struct kvec *iov, size_t count,
			u64 access, u64 offset, u64 requested_key, u64 flags,
			struct kfid_mr **mr, void *context);
	int	(*regbv)(struct kfid *fid, const struct bio_vec *biov,
			 size_t count, u64 access, u64 offset,
			 u64 requested_key, u64 flags, struct kfid_mr **mr,
			 void *context);
	int	(*regattr)(struct kfid *fid, const struct kfi_mr_attr *attr,
			   u64 flags, struct kfid_mr **mr);
	int	(*regsgl)(struct kfid *fid, const struct scatterlist *sgl,
			  size_t count, u64 access, u64 offset,
			  u64 requested_key, u64 flags, struct kfid_mr **mr,
			  void *context);
};

/**
 * struct kfid_mr - a memory region
 * @fid: head
 * @mem_desc: see kfi_mr_desc()
 * @key: see kfi_mr_key()
 * @iova: address of its first byte for peers
 */
struct kfid_mr {
	struct kfid	fid;
	void		*mem_desc;
	u64		key;
	u64		iova;
};

/**
 * kfi_mr_reg() - register memory
 * @domain: the domain
 * @buf: kernel address of the memory; the caller keeps it
 * @len: its bytes
 * @access: what the region is for, see struct kfi_mr_attr
 * @offset: 0
 * @requested_key: the key, unless the provider chooses it
 * @flags: KFI_RMA_EVENT or 0
 * @mr: where the region is stored
 * @context: the consumer's
 *
 * With a domain that is bound to an event queue with KFI_REG_MR, the event
 * KFI_MR_COMPLETE follows.  The provider of kfabric.ko stores the region before,
 * and it can be used at once.
 *
 * Context: Process, may sleep.
 * Return: 0; -KFI_EBADFLAGS another flag; -KFI_EINVAL an argument is not valid,
 *	no bytes, more than 1 GiB, or the stack of the caller; -EFAULT an address
 *	is not memory; -KFI_EOPNOTSUPP it is device memory; -KFI_E2BIG more than
 *	262,144 elements; -KFI_ENOKEY the key is in use; -KFI_EKEYREJECTED it has
 *	more than 32 bits; -KFI_ENOMEM.
 */
static inline int kfi_mr_reg(struct kfid_domain *domain, const void *buf,
			     size_t len, u64 access, u64 offset,
			     u64 requested_key, u64 flags, struct kfid_mr **mr,
			     void *context)
{
	return domain->mr->reg(&domain->fid, buf, len, access, offset,
			       requested_key, flags, mr, context);
}

/**
 * kfi_mr_regv() - register a list of kernel addresses
 * @domain: the domain
 * @iov: the list; the region is its bytes in a row
 * @count: its elements
 * @access: as kfi_mr_reg()
 * @offset: 0
 * @requested_key: as kfi_mr_reg()
 * @flags: as kfi_mr_reg()
 * @mr: where the region is stored
 * @context: the consumer's
 *
 * Return: as kfi_mr_reg().
 */
static inline int kfi_mr_regv(struct kfid_domain *domain,
			      const struct kvec *iov, size_t count, u64 access,
			      u64 offset, u64 requested_key, u64 flags,
			      struct kfid_mr **mr, void *context)
{
	return domain->mr->regv(&domain->fid, iov, count, access, offset,
				requested_key, flags, mr, context);
}

/**
 * kfi_mr_regbv() - register a list of pages
 * @domain: the domain
 * @biov: the list; the region is its bytes in a row
 * @count: its elements
 * @access: as kfi_mr_reg()
 * @offset: 0
 * @requested_key: as kfi_mr_reg()
 * @flags: as kfi_mr_reg()
 * @mr: where the region is stored
 * @context: the consumer's
 *
 * Return: as kfi_mr_reg().
 */
static inline int kfi_mr_regbv(struct kfid_domain *domain,
			       const struct bio_vec *biov, size_t count,
			       u64 access, u64 offset, u64 requested_key,
			       u64 flags, struct kfid_mr **mr, void *context)
{
	return domain->mr->regbv(&domain->fid, biov, count, access, offset,
				 requested_key, flags, mr, context);
}

/**
 * kfi_mr_regsgl() - register a scatterlist
 * @domain: the domain
 * @sgl: the list; the region is its bytes in a row
 * @count: its elements
 * @access: as kfi_mr_reg()
 * @offset: 0
 * @requested_key: as kfi_mr_reg()
 * @flags: as kfi_mr_reg()
 * @mr: where the region is stored
 * @context: the consumer's
 *
 * Return: as kfi_mr_reg().
 */
static inline int kfi_mr_regsgl(struct kfid_domain *domain,
				const struct scatterlist *sgl, size_t count,
				u64 access, u64 offset, u64 requested_key,
				u64 flags, struct kfid_mr **mr, void *context)
{
	return domain->mr->regsgl(&domain->fid, sgl, count, access, offset,
				  requested_key, flags, mr, context);
}

/**
 * kfi_mr_regattr() - register memory by its attributes
 * @domain: the domain
 * @attr: the attributes
 * @flags: as kfi_mr_reg()
 * @mr: where the region is stored
 *
 * Return: as kfi_mr_reg().
 */
static inline int kfi_mr_regattr(struct kfid_domain *domain,
				 const struct kfi_mr_attr *attr, u64 flags,
				 struct kfid_mr **mr)
{
	return domain->mr->regattr(&domain->fid, attr, flags, mr);
}

/**
 * kfi_mr_desc() - the descriptor of a region, for @desc of operations
 * @mr: the region
 *
 * Context: Any.
 * Return: the descriptor.
 */
static inline void *kfi_mr_desc(struct kfid_mr *mr)
{
	return mr->mem_desc;
}

/**
 * kfi_mr_key() - the key of a region, for operations of peers
 * @mr: the region
 *
 * Context: Any.
 * Return: the key; KFI_KEY_NOTAVAIL if the region is not enabled yet.
 */
static inline u64 kfi_mr_key(struct kfid_mr *mr)
{
	return mr->key;
}

/**
 * kfi_mr_raw_attr() - the key of a region that is longer than 64 bits
 * @mr: the region
 * @base_addr: where the address for peers is stored
 * @raw_key: where the key is stored
 * @key_size: in: room in @raw_key, bytes; out: bytes of the key
 * @flags: 0
 *
 * A key of kfabric.ko has 8 bytes here, those of kfi_mr_key().
 *
 * Return: 0; -KFI_EBADFLAGS a flag; -KFI_EINVAL nowhere to store the result;
 *	-KFI_ETOOSMALL @key_size is too small, and is the size now; as
 *	kfi_control().
 */
static inline int kfi_mr_raw_attr(struct kfid_mr *mr, u64 *base_addr,
				  u8 *raw_key, size_t *key_size, u64 flags)
{
	struct kfi_mr_raw_attr attr = {
		.flags = flags,
		.base_addr = base_addr,
		.raw_key = raw_key,
		.key_size = key_size,
	};

	return mr->fid.ops->control(&mr->fid, KFI_GET_RAW_MR, &attr);
}

/**
 * kfi_mr_map_raw() - make a key for operations of a peer's long one
 * @domain: the domain
 * @base_addr: address for peers, as the peer got it
 * @raw_key: the peer's key
 * @key_size: bytes of @raw_key
 * @key: where the key for operations is stored
 * @flags: 0
 *
 * Return: 0; -KFI_EBADFLAGS a flag; -KFI_EINVAL not a key; as kfi_control().
 */
static inline int kfi_mr_map_raw(struct kfid_domain *domain, u64 base_addr,
				 u8 *raw_key, size_t key_size, u64 *key,
				 u64 flags)
{
	struct kfi_mr_map_raw map = {
		.flags = flags,
		.base_addr = base_addr,
		.raw_key = raw_key,
		.key_size = key_size,
		.key = key,
	};

	return domain->fid.ops->control(&domain->fid, KFI_MAP_RAW_MR, &map);
}

/**
 * kfi_mr_unmap_key() - give up a key of kfi_mr_map_raw()
 * @domain: the domain
 * @key: the key
 *
 * Return: as kfi_control().
 */
static inline int kfi_mr_unmap_key(struct kfid_domain *domain, u64 key)
{
	return domain->fid.ops->control(&domain->fid, KFI_UNMAP_KEY, &key);
}

/**
 * kfi_mr_bind() - bind a region to a counter or an endpoint
 * @mr: the region
 * @bfid: the counter or endpoint
 * @flags: counter: KFI_REMOTE_READ, KFI_REMOTE_WRITE or both; endpoint: 0
 *
 * A counter and an endpoint that a region is bound to cannot be closed before
 * the region.  One counter can be bound for each kind of access, and one
 * endpoint.
 *
 * Context: Process, may sleep.
 * Return: 0; -KFI_EBADFLAGS another flag; -KFI_EINVAL another class, another
 *	domain, a counter without a flag, or bound already.
 */
static inline int kfi_mr_bind(struct kfid_mr *mr, struct kfid *bfid, u64 flags)
{
	return mr->fid.ops->bind(&mr->fid, bfid, flags);
}

/**
 * kfi_mr_refresh() - tell that the mapping of memory of a region has changed
 * @mr: the region
 * @iov: the memory whose mapping has changed; it is not read
 * @count: elements of @iov; 0 without a list
 * @flags: 0
 *
 * The provider of kfabric.ko has nothing to do: it uses kernel addresses as they
 * are mapped when an operation accesses them, and a region of pages has these
 * pages until it is closed.  So the call changes nothing, and the elements of @iov
 * are not read: they may be outside of the region, too.  KFI_REFRESH of
 * kfi_control() takes pages and scatterlists in the same way.
 *
 * Context: Process, may sleep.
 * Return: 0; -KFI_EBADFLAGS a flag; -KFI_EINVAL elements without a list, or with
 *	KFI_REFRESH an unknown type.
 */
static inline int kfi_mr_refresh(struct kfid_mr *mr, const struct kvec *iov,
				 size_t count, u64 flags)
{
	struct kfi_mr_modify modify = {
		.flags = flags,
		.attr = {
			.type = KFI_KVEC,
			.mr_iov = iov,
			.iov_count = count,
		},
	};

	return mr->fid.ops->control(&mr->fid, KFI_REFRESH, &modify);
}

/**
 * kfi_mr_enable() - make a region usable that was bound
 * @mr: the region
 *
 * A region of kfabric.ko is usable since its registration.
 *
 * Context: Process, may sleep.
 * Return: 0, or as kfi_control().
 */
static inline int kfi_mr_enable(struct kfid_mr *mr)
{
	return mr->fid.ops->control(&mr->fid, KFI_ENABLE, NULL);
}

#endif /* _KFI_MR_H */
