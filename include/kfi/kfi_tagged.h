/* SPDX-License-Identifier: GPL-2.0 */
/*
 * Tagged messages: a receive takes messages whose tag matches.
 *
 * Memory of an operation stays as it is until the operation completes.
 *
 * Source: fi_tagged(3).
 */
#ifndef _KFI_TAGGED_H
#define _KFI_TAGGED_H

#include "kfi_endpoint.h"

/**
 * struct kfi_msg_tagged - a tagged message
 * @type: which list of memory the union has
 * @msg_iov: KFI_KVEC: kernel addresses
 * @msg_biov: KFI_BVEC: pages
 * @msg_sgl: KFI_SGL
 * @desc: array of descriptors, one for each element, or NULL
 * @iov_count: elements of the list
 * @addr: the peer
 * @tag: the tag
 * @ignore: receives: bits of the tag that do not matter
 * @context: returned in the completion
 * @data: with KFI_REMOTE_CQ_DATA: data for the peer's completion queue
 */
struct kfi_msg_tagged {
	enum kfi_iov_type	type;
	union {
		const struct kvec		*msg_iov;
		const struct bio_vec		*msg_biov;
		const struct scatterlist	*msg_sgl;
	};
	void			**desc;
	size_t			iov_count;
	kfi_addr_t		addr;
	u64			tag;
	u64			ignore;
	void			*context;
	u64			data;
};

/**
 * struct kfi_ops_tagged - operations with tagged messages
 * @size: sizeof(struct kfi_ops_tagged)
 * @recv: see kfi_trecv()
 * @recvv: see kfi_trecvv()
 * @recvbv: see kfi_trecvbv()
 * @recvmsg: see kfi_trecvmsg()
 * @send: see kfi_tsend()
 * @sendv: see kfi_tsendv()
 * @sendbv: see kfi_tsendbv()
 * @sendmsg: see kfi_tsendmsg()
 * @inject: see kfi_tinject()
 * @senddata: see kfi_tsenddata()
 * @injectdata: see kfi_tinjectdata()
 * @recvsgl: see kfi_trecvsgl()
 * @sendsgl: see kfi_tsendsgl()
 */
struct kfi_ops_tagged {
	size_t	size;
	ssize_t	(*recv)(struct kfid_ep *ep, void *buf, size_t len, void *desc,
			kfi_addr_t src_addr, u64 tag, u64 ignore,
			void *context);
	ssize_t	(*recvv)(struct kfid_ep *ep, const struct kvec *iov,
			 void **desc, size_t count, kfi_addr_t src_addr,
			 u64 tag, u64 ignore, void *context);
	ssize_t	(*recvbv)(struct kfid_ep *ep, const struct bio_vec *biov,
			  void **desc, size_t count, kfi_addr_t src_addr,
			  u64 tag, u64 ignore, void *context);
	ssize_t	(*recvmsg)(struct kfid_ep *ep, const struct kfi_msg_tagged *msg,
			   u64 flags);
	ssize_t	(*send)(struct kfid_ep *ep, const void *buf, size_t len,
			void *desc, kfi_addr_t dest_addr, u64 tag,
			void *context);
	ssize_t	(*sendv)(struct kfid_ep *ep, const struct kvec *iov,
			 void **desc, size_t count, kfi_addr_t dest_addr,
			 u64 tag, void *context);
	ssize_t	(*sendbv)(struct kfid_ep *ep, const struct bio_vec *biov,
			  void **desc, size_t count, kfi_addr_t dest_addr,
			  u64 tag, void *context);
	ssize_t	(*sendmsg)(struct kfid_ep *ep, const struct kfi_msg_tagged *msg,
			   u64 flags);
	ssize_t	(*inject)(struct kfid_ep *ep, const void *buf, size_t len,
			  kfi_addr_t dest_addr, u64 tag);
	ssize_t	(*senddata)(struct kfid_ep *ep, const void *buf, size_t len,
			    void *desc, u64 data, kfi_addr_t dest_addr, u64 tag,
			    void *context);
	ssize_t	(*injectdata)(struct kfid_ep *ep, const void *buf, size_t len,
			      u64 data, kfi_addr_t dest_addr, u64 tag);
	ssize_t	(*recvsgl)(struct kfid_ep *ep, const struct scatterlist *sgl,
			   void **desc, size_t count, kfi_addr_t src_addr,
			   u64 tag, u64 ignore, void *context);
	ssize_t	(*sendsgl)(struct kfid_ep *ep, const struct scatterlist *sgl,
			   void **desc, size_t count, kfi_addr_t dest_addr,
			   u64 tag, void *context);
};

/**
 * kfi_trecv() - receive a tagged message
 * @ep: the endpoint, or a receive context
 * @buf: kernel address of the buffer
 * @len: its bytes
 * @desc: kfi_mr_desc() of the region with the memory, or NULL
 * @src_addr: with KFI_DIRECTED_RECV, the only peer to receive from, or
 *	KFI_ADDR_UNSPEC; without, it is ignored
 * @tag: receive messages with this tag
 * @ignore: bits of the tag that do not matter
 * @context: returned in the completion
 *
 * Context: Process or softirq.
 * Return: 0: accepted, a completion follows; -KFI_EAGAIN no room now;
 *	-KFI_EINVAL an argument is not valid; -KFI_EOPBADSTATE the endpoint is
 *	not enabled; -KFI_EOPNOTSUPP it does not have the capability;
 *	-KFI_ENOMEM.
 */
static inline ssize_t kfi_trecv(struct kfid_ep *ep, void *buf, size_t len,
				void *desc, kfi_addr_t src_addr, u64 tag,
				u64 ignore, void *context)
{
	return ep->tagged->recv(ep, buf, len, desc, src_addr, tag, ignore,
				context);
}

/**
 * kfi_trecvv() - receive into a list of kernel addresses
 * @ep: the endpoint, or a receive context
 * @iov: list of kernel addresses
 * @desc: array of descriptors, one for each element, or NULL
 * @count: elements of the list
 * @src_addr: with KFI_DIRECTED_RECV, the only peer to receive from, or
 *	KFI_ADDR_UNSPEC; without, it is ignored
 * @tag: receive messages with this tag
 * @ignore: bits of the tag that do not matter
 * @context: returned in the completion
 *
 * Context: As kfi_trecv().
 * Return: as kfi_trecv().
 */
static inline ssize_t kfi_trecvv(struct kfid_ep *ep, const struct kvec *iov,
				 void **desc, size_t count, kfi_addr_t src_addr,
				 u64 tag, u64 ignore, void *context)
{
	return ep->tagged->recvv(ep, iov, desc, count, src_addr, tag, ignore,
				 context);
}

/**
 * kfi_trecvbv() - receive into a list of pages
 * @ep: the endpoint, or a receive context
 * @biov: list of pages
 * @desc: array of descriptors, one for each element, or NULL
 * @count: elements of the list
 * @src_addr: with KFI_DIRECTED_RECV, the only peer to receive from, or
 *	KFI_ADDR_UNSPEC; without, it is ignored
 * @tag: receive messages with this tag
 * @ignore: bits of the tag that do not matter
 * @context: returned in the completion
 *
 * Context: As kfi_trecv().
 * Return: as kfi_trecv().
 */
static inline ssize_t kfi_trecvbv(struct kfid_ep *ep,
				  const struct bio_vec *biov, void **desc,
				  size_t count, kfi_addr_t src_addr, u64 tag,
				  u64 ignore, void *context)
{
	return ep->tagged->recvbv(ep, biov, desc, count, src_addr, tag, ignore,
				  context);
}

/**
 * kfi_trecvsgl() - receive into a scatterlist
 * @ep: the endpoint, or a receive context
 * @sgl: scatterlist
 * @desc: array of descriptors, one for each element, or NULL
 * @count: elements of the list
 * @src_addr: with KFI_DIRECTED_RECV, the only peer to receive from, or
 *	KFI_ADDR_UNSPEC; without, it is ignored
 * @tag: receive messages with this tag
 * @ignore: bits of the tag that do not matter
 * @context: returned in the completion
 *
 * Context: As kfi_trecv().
 * Return: as kfi_trecv().
 */
static inline ssize_t kfi_trecvsgl(struct kfid_ep *ep,
				   const struct scatterlist *sgl, void **desc,
				   size_t count, kfi_addr_t src_addr, u64 tag,
				   u64 ignore, void *context)
{
	return ep->tagged->recvsgl(ep, sgl, desc, count, src_addr, tag, ignore,
				   context);
}

/**
 * kfi_trecvmsg() - receive a tagged message, with flags
 * @ep: the endpoint, or a receive context
 * @msg: the operation
 * @flags: flags of the operation, instead of the default ones
 *
 * With KFI_PEEK, the call looks whether a message is there, whose length and
 * tag the completion has; KFI_CLAIM in addition keeps it for a later receive
 * with KFI_CLAIM, KFI_DISCARD drops it. Without a message, the operation fails
 * with KFI_ENOMSG.
 *
 * KFI_TAGGED_MULTI_RECV is for buffers that take several tagged messages. The
 * provider of kfabric.ko has none: no entry of kfi_getinfo() has this capability,
 * and the call refuses it as a flag, as it does KFI_MULTI_RECV.
 *
 * Context: As kfi_trecv().
 * Return: as kfi_trecv(); -KFI_EINVAL also for a flag that tagged receives do not
 *	have.
 */
static inline ssize_t kfi_trecvmsg(struct kfid_ep *ep,
				   const struct kfi_msg_tagged *msg, u64 flags)
{
	return ep->tagged->recvmsg(ep, msg, flags);
}

/**
 * kfi_tsend() - send a tagged message
 * @ep: the endpoint, or a transmit context
 * @buf: kernel address of the data
 * @len: their bytes
 * @desc: kfi_mr_desc() of the region with the memory, or NULL
 * @dest_addr: the peer; ignored by connected endpoints
 * @tag: tag of the message
 * @context: returned in the completion
 *
 * Context: Process or softirq.
 * Return: 0: accepted, a completion follows; -KFI_EAGAIN no room now;
 *	-KFI_EINVAL an argument is not valid; -KFI_EOPBADSTATE the endpoint is
 *	not enabled; -KFI_EOPNOTSUPP it does not have the capability;
 *	-KFI_ENOMEM; -KFI_EMSGSIZE; -KFI_ENOENT, -KFI_ENOTCONN and the errors of
 *	addresses and routes as kfi_send().
 */
static inline ssize_t kfi_tsend(struct kfid_ep *ep, const void *buf, size_t len,
				void *desc, kfi_addr_t dest_addr, u64 tag,
				void *context)
{
	return ep->tagged->send(ep, buf, len, desc, dest_addr, tag, context);
}

/**
 * kfi_tsendv() - send a list of kernel addresses
 * @ep: the endpoint, or a transmit context
 * @iov: list of kernel addresses
 * @desc: array of descriptors, one for each element, or NULL
 * @count: elements of the list
 * @dest_addr: the peer; ignored by connected endpoints
 * @tag: tag of the message
 * @context: returned in the completion
 *
 * Context: As kfi_tsend().
 * Return: as kfi_tsend().
 */
static inline ssize_t kfi_tsendv(struct kfid_ep *ep, const struct kvec *iov,
				 void **desc, size_t count,
				 kfi_addr_t dest_addr, u64 tag, void *context)
{
	return ep->tagged->sendv(ep, iov, desc, count, dest_addr, tag, context);
}

/**
 * kfi_tsendbv() - send a list of pages
 * @ep: the endpoint, or a transmit context
 * @biov: list of pages
 * @desc: array of descriptors, one for each element, or NULL
 * @count: elements of the list
 * @dest_addr: the peer; ignored by connected endpoints
 * @tag: tag of the message
 * @context: returned in the completion
 *
 * Context: As kfi_tsend().
 * Return: as kfi_tsend().
 */
static inline ssize_t kfi_tsendbv(struct kfid_ep *ep,
				  const struct bio_vec *biov, void **desc,
				  size_t count, kfi_addr_t dest_addr, u64 tag,
				  void *context)
{
	return ep->tagged->sendbv(ep, biov, desc, count, dest_addr, tag,
				  context);
}

/**
 * kfi_tsendsgl() - send a scatterlist
 * @ep: the endpoint, or a transmit context
 * @sgl: scatterlist
 * @desc: array of descriptors, one for each element, or NULL
 * @count: elements of the list
 * @dest_addr: the peer; ignored by connected endpoints
 * @tag: tag of the message
 * @context: returned in the completion
 *
 * Context: As kfi_tsend().
 * Return: as kfi_tsend().
 */
static inline ssize_t kfi_tsendsgl(struct kfid_ep *ep,
				   const struct scatterlist *sgl, void **desc,
				   size_t count, kfi_addr_t dest_addr, u64 tag,
				   void *context)
{
	return ep->tagged->sendsgl(ep, sgl, desc, count, dest_addr, tag,
				   context);
}

/**
 * kfi_tsendmsg() - send a tagged message, with flags
 * @ep: the endpoint, or a transmit context
 * @msg: the operation
 * @flags: flags of the operation, instead of the default ones
 *
 * Context: As kfi_tsend().
 * Return: as kfi_tsend().
 */
static inline ssize_t kfi_tsendmsg(struct kfid_ep *ep,
				   const struct kfi_msg_tagged *msg, u64 flags)
{
	return ep->tagged->sendmsg(ep, msg, flags);
}

/**
 * kfi_tinject() - send a small tagged message without a completion
 * @ep: the endpoint, or a transmit context
 * @buf: kernel address of the data
 * @len: their bytes
 * @dest_addr: the peer; ignored by connected endpoints
 * @tag: tag of the message
 *
 * The message has at most inject_size bytes. It counts as a completion.
 *
 * Context: As kfi_tsend().
 * Return: 0: accepted, the buffer may be reused; -KFI_ENOSYS the operations of
 *	the endpoint are triggered (KFI_TRIGGER); otherwise as kfi_tsend().
 */
static inline ssize_t kfi_tinject(struct kfid_ep *ep, const void *buf,
				  size_t len, kfi_addr_t dest_addr, u64 tag)
{
	return ep->tagged->inject(ep, buf, len, dest_addr, tag);
}

/**
 * kfi_tsenddata() - send a tagged message with data for the peer's completion queue
 * @ep: the endpoint, or a transmit context
 * @buf: kernel address of the data
 * @len: their bytes
 * @desc: kfi_mr_desc() of the region with the memory, or NULL
 * @data: data for the peer's completion queue
 * @dest_addr: the peer; ignored by connected endpoints
 * @tag: tag of the message
 * @context: returned in the completion
 *
 * Context: As kfi_tsend().
 * Return: as kfi_tsend().
 */
static inline ssize_t kfi_tsenddata(struct kfid_ep *ep, const void *buf,
				    size_t len, void *desc, u64 data,
				    kfi_addr_t dest_addr, u64 tag,
				    void *context)
{
	return ep->tagged->senddata(ep, buf, len, desc, data, dest_addr, tag,
				    context);
}

/**
 * kfi_tinjectdata() - inject a tagged message with data for the peer's completion queue
 * @ep: the endpoint, or a transmit context
 * @buf: kernel address of the data
 * @len: their bytes
 * @data: data for the peer's completion queue
 * @dest_addr: the peer; ignored by connected endpoints
 * @tag: tag of the message
 *
 * Context: As kfi_tsend().
 * Return: 0: accepted, the buffer may be reused; -KFI_ENOSYS the operations of
 *	the endpoint are triggered (KFI_TRIGGER); otherwise as kfi_tsend().
 */
static inline ssize_t kfi_tinjectdata(struct kfid_ep *ep, const void *buf,
				      size_t len, u64 data,
				      kfi_addr_t dest_addr, u64 tag)
{
	return ep->tagged->injectdata(ep, buf, len, data, dest_addr, tag);
}

#endif /* _KFI_TAGGED_H */
