/* SPDX-License-Identifier: GPL-2.0 */
/*
 * Remote memory access.
 *
 * Memory of an operation stays as it is until the operation completes.  A call
 * that cannot sleep takes at most 256 elements of a list.  An access that the
 * peer refuses fails with KFI_EACCES in the completion.
 *
 * Tagged RMA: with KFI_TAGGED, kfi_readmsg() and kfi_writemsg() access the memory
 * of a tagged receive that the peer has posted, instead of a region.  The list of
 * remote memory has one piece: its key is the tag, and its address is an offset in
 * that memory.  The receive is matched by tag and source, as by a message, and
 * completes, whatever the length.  Both endpoints need KFI_TAGGED_RMA, KFI_TAGGED
 * and KFI_RMA, which the peer's has only if its consumer has asked for
 * KFI_TAGGED_RMA.
 *
 * ==================================  ===========================  ===========================
 * the result                          completion here              completion of the receive
 * ==================================  ===========================  ===========================
 * all bytes                           success                      success
 * the receive is too short            KFI_EMSGSIZE                 KFI_EMSGSIZE; len, olen
 * no receive matches, or the peer     KFI_EREMOTEIO                none
 * does not have the capability
 * cancelled before the peer took it   KFI_ECANCELED                none
 * the connection to the peer ended    KFI_ECONNRESET and the like  KFI_ECONNRESET
 * ==================================  ===========================  ===========================
 *
 * The operation waits for no receive: the peer answers when it arrives.  What fits
 * into a receive that is too short is transferred.  The flags of the completion
 * are KFI_TAGGED, KFI_RMA, KFI_READ or KFI_WRITE, and KFI_SEND; those of the
 * receive have KFI_RECV instead of KFI_SEND, and KFI_REMOTE_CQ_DATA if a write
 * brought data.  It counts as a read or a write here, and as a receive there.
 *
 * Source: fi_rma(3); tagged RMA: the provider.
 */
#ifndef _KFI_RMA_H
#define _KFI_RMA_H

#include "kfi_endpoint.h"

/**
 * struct kfi_rma_iov - a piece of a peer's memory
 * @addr: address (KFI_MR_VIRT_ADDR) or offset into the region
 * @len: bytes
 * @key: key of the region
 */
struct kfi_rma_iov {
	u64	addr;
	size_t	len;
	u64	key;
};

/**
 * struct kfi_msg_rma - a read or a write of remote memory
 * @type: which list of memory the union has
 * @msg_iov: KFI_KVEC: kernel addresses
 * @msg_biov: KFI_BVEC: pages
 * @msg_sgl: KFI_SGL
 * @desc: array of descriptors, one for each element, or NULL
 * @iov_count: elements of the list
 * @addr: the peer
 * @rma_iov: list of remote memory, as many bytes as the local list
 * @rma_iov_count: elements of @rma_iov
 * @context: returned in the completion
 * @data: with KFI_REMOTE_CQ_DATA: data for the peer's completion queue
 */
struct kfi_msg_rma {
	enum kfi_iov_type	type;
	union {
		const struct kvec		*msg_iov;
		const struct bio_vec		*msg_biov;
		const struct scatterlist	*msg_sgl;
	};
	void			**desc;
	size_t			iov_count;
	kfi_addr_t		addr;
	const struct kfi_rma_iov	*rma_iov;
	size_t			rma_iov_count;
	void			*context;
	u64			data;
};

/**
 * struct kfi_ops_rma - remote memory access
 * @size: sizeof(struct kfi_ops_rma)
 * @read: see kfi_read()
 * @readv: see kfi_readv()
 * @readbv: see kfi_readbv()
 * @readmsg: see kfi_readmsg()
 * @write: see kfi_write()
 * @writev: see kfi_writev()
 * @writebv: see kfi_writebv()
 * @writemsg: see kfi_writemsg()
 * @inject: see kfi_inject_write()
 * @writedata: see kfi_writedata()
 * @injectdata: see kfi_inject_writedata()
 * @readsgl: see kfi_readsgl()
 * @writesgl: see kfi_writesgl()
 */
struct kfi_ops_rma {
	size_t	size;
	ssize_t	(*read)(struct kfid_ep *ep, void *buf, size_t len, void *desc,
			kfi_addr_t src_addr, u64 addr, u64 key, void *context);
	ssize_t	(*readv)(struct kfid_ep *ep, const struct kvec *iov,
			 void **desc, size_t count, kfi_addr_t src_addr,
			 u64 addr, u64 key, void *context);
	ssize_t	(*readbv)(struct kfid_ep *ep, const struct bio_vec *biov,
			  void **desc, size_t count, kfi_addr_t src_addr,
			  u64 addr, u64 key, void *context);
	ssize_t	(*readmsg)(struct kfid_ep *ep, const struct kfi_msg_rma *msg,
			   u64 flags);
	ssize_t	(*write)(struct kfid_ep *ep, const void *buf, size_t len,
			 void *desc, kfi_addr_t dest_addr, u64 addr, u64 key,
			 void *context);
	ssize_t	(*writev)(struct kfid_ep *ep, const struct kvec *iov,
			  void **desc, size_t count, kfi_addr_t dest_addr,
			  u64 addr, u64 key, void *context);
	ssize_t	(*writebv)(struct kfid_ep *ep, const struct bio_vec *biov,
			   void **desc, size_t count, kfi_addr_t dest_addr,
			   u64 addr, u64 key, void *context);
	ssize_t	(*writemsg)(struct kfid_ep *ep, const struct kfi_msg_rma *msg,
			    u64 flags);
	ssize_t	(*inject)(struct kfid_ep *ep, const void *buf, size_t len,
			  kfi_addr_t dest_addr, u64 addr, u64 key);
	ssize_t	(*writedata)(struct kfid_ep *ep, const void *buf, size_t len,
			     void *desc, u64 data, kfi_addr_t dest_addr,
			     u64 addr, u64 key, void *context);
	ssize_t	(*injectdata)(struct kfid_ep *ep, const void *buf, size_t len,
			      u64 data, kfi_addr_t dest_addr, u64 addr,
			      u64 key);
	ssize_t	(*readsgl)(struct kfid_ep *ep, const struct scatterlist *sgl,
			   void **desc, size_t count, kfi_addr_t src_addr,
			   u64 addr, u64 key, void *context);
	ssize_t	(*writesgl)(struct kfid_ep *ep, const struct scatterlist *sgl,
			    void **desc, size_t count, kfi_addr_t dest_addr,
			    u64 addr, u64 key, void *context);
};

/**
 * kfi_read() - read memory of a peer
 * @ep: the endpoint, or a transmit context
 * @buf: kernel address of the buffer
 * @len: its bytes
 * @desc: kfi_mr_desc() of the region with the memory, or NULL
 * @src_addr: the peer; ignored by connected endpoints
 * @addr: remote address or offset
 * @key: remote key
 * @context: returned in the completion
 *
 * Context: Process or softirq.
 * Return: 0: accepted, a completion follows; -KFI_EAGAIN no room now;
 *	-KFI_EINVAL an argument is not valid; -KFI_EOPBADSTATE the endpoint is
 *	not enabled; -KFI_EOPNOTSUPP it does not have the capability;
 *	-KFI_EMSGSIZE too many bytes; -KFI_E2BIG too many elements; -EFAULT an
 *	address is not memory; -KFI_ENOMEM; -KFI_ENOENT, -KFI_ENOTCONN and the
 *	errors of addresses and routes as kfi_send().
 */
static inline ssize_t kfi_read(struct kfid_ep *ep, void *buf, size_t len,
			       void *desc, kfi_addr_t src_addr, u64 addr,
			       u64 key, void *context)
{
	return ep->rma->read(ep, buf, len, desc, src_addr, addr, key, context);
}

/**
 * kfi_readv() - read into a list of kernel addresses
 * @ep: the endpoint, or a transmit context
 * @iov: list of kernel addresses
 * @desc: array of descriptors, one for each element, or NULL
 * @count: elements of the list
 * @src_addr: the peer; ignored by connected endpoints
 * @addr: remote address or offset
 * @key: remote key
 * @context: returned in the completion
 *
 * Context: As kfi_read().
 * Return: as kfi_read().
 */
static inline ssize_t kfi_readv(struct kfid_ep *ep, const struct kvec *iov,
				void **desc, size_t count, kfi_addr_t src_addr,
				u64 addr, u64 key, void *context)
{
	return ep->rma->readv(ep, iov, desc, count, src_addr, addr, key,
			      context);
}

/**
 * kfi_readbv() - read into a list of pages
 * @ep: the endpoint, or a transmit context
 * @biov: list of pages
 * @desc: array of descriptors, one for each element, or NULL
 * @count: elements of the list
 * @src_addr: the peer; ignored by connected endpoints
 * @addr: remote address or offset
 * @key: remote key
 * @context: returned in the completion
 *
 * Context: As kfi_read().
 * Return: as kfi_read().
 */
static inline ssize_t kfi_readbv(struct kfid_ep *ep, const struct bio_vec *biov,
				 void **desc, size_t count, kfi_addr_t src_addr,
				 u64 addr, u64 key, void *context)
{
	return ep->rma->readbv(ep, biov, desc, count, src_addr, addr, key,
			       context);
}

/**
 * kfi_readsgl() - read into a scatterlist
 * @ep: the endpoint, or a transmit context
 * @sgl: scatterlist
 * @desc: array of descriptors, one for each element, or NULL
 * @count: elements of the list
 * @src_addr: the peer; ignored by connected endpoints
 * @addr: remote address or offset
 * @key: remote key
 * @context: returned in the completion
 *
 * Context: As kfi_read().
 * Return: as kfi_read().
 */
static inline ssize_t kfi_readsgl(struct kfid_ep *ep,
				  const struct scatterlist *sgl, void **desc,
				  size_t count, kfi_addr_t src_addr, u64 addr,
				  u64 key, void *context)
{
	return ep->rma->readsgl(ep, sgl, desc, count, src_addr, addr, key,
				context);
}

/**
 * kfi_readmsg() - read memory of a peer, with flags and a list of remote memory
 * @ep: the endpoint, or a transmit context
 * @msg: the operation
 * @flags: flags of the operation, instead of the default ones
 *
 * Both lists have the same number of bytes, the remote one at most 256 pieces,
 * with KFI_TAGGED one, whose address is at most 2^30.
 *
 * Context: As kfi_read().
 * Return: as kfi_read(); -KFI_E2BIG too many pieces; -KFI_EOPNOTSUPP the endpoint
 *	does not have KFI_TAGGED_RMA.
 */
static inline ssize_t kfi_readmsg(struct kfid_ep *ep,
				  const struct kfi_msg_rma *msg, u64 flags)
{
	return ep->rma->readmsg(ep, msg, flags);
}

/**
 * kfi_write() - write memory of a peer
 * @ep: the endpoint, or a transmit context
 * @buf: kernel address of the data
 * @len: their bytes
 * @desc: kfi_mr_desc() of the region with the memory, or NULL
 * @dest_addr: the peer; ignored by connected endpoints
 * @addr: remote address or offset
 * @key: remote key
 * @context: returned in the completion
 *
 * Context: Process or softirq.
 * Return: 0: accepted, a completion follows; -KFI_EAGAIN no room now;
 *	-KFI_EINVAL an argument is not valid; -KFI_EOPBADSTATE the endpoint is
 *	not enabled; -KFI_EOPNOTSUPP it does not have the capability;
 *	-KFI_EMSGSIZE too many bytes; -KFI_E2BIG too many elements; -EFAULT an
 *	address is not memory; -KFI_ENOMEM; -KFI_ENOENT, -KFI_ENOTCONN and the
 *	errors of addresses and routes as kfi_send().
 */
static inline ssize_t kfi_write(struct kfid_ep *ep, const void *buf, size_t len,
				void *desc, kfi_addr_t dest_addr, u64 addr,
				u64 key, void *context)
{
	return ep->rma->write(ep, buf, len, desc, dest_addr, addr, key,
			      context);
}

/**
 * kfi_writev() - write from a list of kernel addresses
 * @ep: the endpoint, or a transmit context
 * @iov: list of kernel addresses
 * @desc: array of descriptors, one for each element, or NULL
 * @count: elements of the list
 * @dest_addr: the peer; ignored by connected endpoints
 * @addr: remote address or offset
 * @key: remote key
 * @context: returned in the completion
 *
 * Context: As kfi_write().
 * Return: as kfi_write().
 */
static inline ssize_t kfi_writev(struct kfid_ep *ep, const struct kvec *iov,
				 void **desc, size_t count,
				 kfi_addr_t dest_addr, u64 addr, u64 key,
				 void *context)
{
	return ep->rma->writev(ep, iov, desc, count, dest_addr, addr, key,
			       context);
}

/**
 * kfi_writebv() - write from a list of pages
 * @ep: the endpoint, or a transmit context
 * @biov: list of pages
 * @desc: array of descriptors, one for each element, or NULL
 * @count: elements of the list
 * @dest_addr: the peer; ignored by connected endpoints
 * @addr: remote address or offset
 * @key: remote key
 * @context: returned in the completion
 *
 * Context: As kfi_write().
 * Return: as kfi_write().
 */
static inline ssize_t kfi_writebv(struct kfid_ep *ep,
				  const struct bio_vec *biov, void **desc,
				  size_t count, kfi_addr_t dest_addr, u64 addr,
				  u64 key, void *context)
{
	return ep->rma->writebv(ep, biov, desc, count, dest_addr, addr, key,
				context);
}

/**
 * kfi_writesgl() - write from a scatterlist
 * @ep: the endpoint, or a transmit context
 * @sgl: scatterlist
 * @desc: array of descriptors, one for each element, or NULL
 * @count: elements of the list
 * @dest_addr: the peer; ignored by connected endpoints
 * @addr: remote address or offset
 * @key: remote key
 * @context: returned in the completion
 *
 * Context: As kfi_write().
 * Return: as kfi_write().
 */
static inline ssize_t kfi_writesgl(struct kfid_ep *ep,
				   const struct scatterlist *sgl, void **desc,
				   size_t count, kfi_addr_t dest_addr, u64 addr,
				   u64 key, void *context)
{
	return ep->rma->writesgl(ep, sgl, desc, count, dest_addr, addr, key,
				 context);
}

/**
 * kfi_writemsg() - write memory of a peer, with flags and a list of remote memory
 * @ep: the endpoint, or a transmit context
 * @msg: the operation
 * @flags: flags of the operation, instead of the default ones
 *
 * Both lists have the same number of bytes, the remote one at most 256 pieces,
 * with KFI_TAGGED one, whose address is at most 2^30.
 *
 * Context: As kfi_write().
 * Return: as kfi_write(); -KFI_E2BIG too many pieces; -KFI_EOPNOTSUPP the endpoint
 *	does not have KFI_TAGGED_RMA.
 */
static inline ssize_t kfi_writemsg(struct kfid_ep *ep,
				   const struct kfi_msg_rma *msg, u64 flags)
{
	return ep->rma->writemsg(ep, msg, flags);
}

/**
 * kfi_inject_write() - write a few bytes without a completion
 * @ep: the endpoint, or a transmit context
 * @buf: kernel address of the data
 * @len: their bytes
 * @dest_addr: the peer; ignored by connected endpoints
 * @addr: remote address or offset
 * @key: remote key
 *
 * At most inject_size bytes. It counts as a completion.
 *
 * Context: As kfi_write().
 * Return: 0: accepted, the buffer may be reused; -KFI_ENOSYS the operations of
 *	the endpoint are triggered (KFI_TRIGGER); otherwise as kfi_write().
 */
static inline ssize_t kfi_inject_write(struct kfid_ep *ep, const void *buf,
				       size_t len, kfi_addr_t dest_addr,
				       u64 addr, u64 key)
{
	return ep->rma->inject(ep, buf, len, dest_addr, addr, key);
}

/**
 * kfi_writedata() - write with data for the peer's completion queue
 * @ep: the endpoint, or a transmit context
 * @buf: kernel address of the data
 * @len: their bytes
 * @desc: kfi_mr_desc() of the region with the memory, or NULL
 * @data: data for the peer's completion queue
 * @dest_addr: the peer; ignored by connected endpoints
 * @addr: remote address or offset
 * @key: remote key
 * @context: returned in the completion
 *
 * Context: As kfi_write().
 * Return: as kfi_write().
 */
static inline ssize_t kfi_writedata(struct kfid_ep *ep, const void *buf,
				    size_t len, void *desc, u64 data,
				    kfi_addr_t dest_addr, u64 addr, u64 key,
				    void *context)
{
	return ep->rma->writedata(ep, buf, len, desc, data, dest_addr, addr,
				  key, context);
}

/**
 * kfi_inject_writedata() - inject a write with data for the peer's completion queue
 * @ep: the endpoint, or a transmit context
 * @buf: kernel address of the data
 * @len: their bytes
 * @data: data for the peer's completion queue
 * @dest_addr: the peer; ignored by connected endpoints
 * @addr: remote address or offset
 * @key: remote key
 *
 * Context: As kfi_write().
 * Return: 0: accepted, the buffer may be reused; -KFI_ENOSYS the operations of
 *	the endpoint are triggered (KFI_TRIGGER); otherwise as kfi_write().
 */
static inline ssize_t kfi_inject_writedata(struct kfid_ep *ep, const void *buf,
					   size_t len, u64 data,
					   kfi_addr_t dest_addr, u64 addr,
					   u64 key)
{
	return ep->rma->injectdata(ep, buf, len, data, dest_addr, addr, key);
}

#endif /* _KFI_RMA_H */
