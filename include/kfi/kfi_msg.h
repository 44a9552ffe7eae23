/* SPDX-License-Identifier: GPL-2.0 */
/*
 * Messages.  kfi_endpoint.h includes this file.
 *
 * Memory of an operation stays as it is until the operation completes, and is
 * not on a stack.  But sends copy up to 256 bytes at kernel addresses.
 *
 * A caller that may not sleep has an operation accepted that a worker posts:
 * what only posting finds out (-KFI_ENOENT, -KFI_EHOSTUNREACH,
 * -KFI_ENETUNREACH, -KFI_EADDRNOTAVAIL, -KFI_EMSGSIZE, -KFI_ENETDOWN,
 * -KFI_ENODEV) is then an error of the completion.
 * Operations with KFI_TRIGGER need process context (kfi_trigger.h).
 *
 * Source: fi_msg(3).
 */
#ifndef _KFI_MSG_H
#define _KFI_MSG_H

#include "kfi_endpoint.h"

/**
 * struct kfi_msg - a message
 * @type: which list of memory the union has
 * @msg_iov: KFI_KVEC: kernel addresses
 * @msg_biov: KFI_BVEC: pages
 * @msg_sgl: KFI_SGL
 * @desc: array of descriptors, one for each element, or NULL
 * @iov_count: elements of the list
 * @addr: the peer
 * @context: returned in the completion
 * @data: with KFI_REMOTE_CQ_DATA: data for the peer's completion queue
 */
struct kfi_msg {
	enum kfi_iov_type	type;
	union {
		const struct kvec		*msg_iov;
		const struct bio_vec		*msg_biov;
		const struct scatterlist	*msg_sgl;
	};
	void			**desc;
	size_t			iov_count;
	kfi_addr_t		addr;
	void			*context;
	u64			data;
};

/**
 * struct kfi_ops_msg - operations with messages
 * @size: sizeof(struct kfi_ops_msg)
 * @recv: see kfi_recv()
 * @recvv: see kfi_recvv()
 * @recvbv: see kfi_recvbv()
 * @recvmsg: see kfi_recvmsg()
 * @send: see kfi_send()
 * @sendv: see kfi_sendv()
 * @sendbv: see kfi_sendbv()
 * @sendmsg: see kfi_sendmsg()
 * @inject: see kfi_inject()
 * @senddata: see kfi_senddata()
 * @injectdata: see kfi_injectdata()
 * @recvsgl: see kfi_recvsgl()
 * @sendsgl: see kfi_sendsgl()
 */
struct kfi_ops_msg {
	size_t	size;
	ssize_t	(*recv)(struct kfid_ep *ep, void *buf, size_t len, void *desc,
			kfi_addr_t src_addr, void *context);
	ssize_t	(*recvv)(struct kfid_ep *ep, const struct kvec *iov,
			 void **desc, size_t count, kfi_addr_t src_addr,
			 void *context);
	ssize_t	(*recvbv)(struct kfid_ep *ep, const struct bio_vec *biov,
			  void **desc, size_t count, kfi_addr_t src_addr,
			  void *context);
	ssize_t	(*recvmsg)(struct kfid_ep *ep, const struct kfi_msg *msg,
			   u64 flags);
	ssize_t	(*send)(struct kfid_ep *ep, const void *buf, size_t len,
			void *desc, kfi_addr_t dest_addr, void *context);
	ssize_t	(*sendv)(struct kfid_ep *ep, const struct kvec *iov,
			 void **desc, size_t count, kfi_addr_t dest_addr,
			 void *context);
	ssize_t	(*sendbv)(struct kfid_ep *ep, const struct bio_vec *biov,
			  void **desc, size_t count, kfi_addr_t dest_addr,
			  void *context);
	ssize_t	(*sendmsg)(struct kfid_ep *ep, const struct kfi_msg *msg,
			   u64 flags);
	ssize_t	(*inject)(struct kfid_ep *ep, const void *buf, size_t len,
			  kfi_addr_t dest_addr);
	ssize_t	(*senddata)(struct kfid_ep *ep, const void *buf, size_t len,
			    void *desc, u64 data, kfi_addr_t dest_addr,
			    void *context);
	ssize_t	(*injectdata)(struct kfid_ep *ep, const void *buf, size_t len,
			      u64 data, kfi_addr_t dest_addr);
	ssize_t	(*recvsgl)(struct kfid_ep *ep, const struct scatterlist *sgl,
			   void **desc, size_t count, kfi_addr_t src_addr,
			   void *context);
	ssize_t	(*sendsgl)(struct kfid_ep *ep, const struct scatterlist *sgl,
			   void **desc, size_t count, kfi_addr_t dest_addr,
			   void *context);
};

/**
 * kfi_recv() - receive a message
 * @ep: the endpoint, or a receive context
 * @buf: kernel address of the buffer
 * @len: its bytes
 * @desc: kfi_mr_desc() of the region with the memory, or NULL
 * @src_addr: with KFI_DIRECTED_RECV, the only peer to receive from, or
 *	KFI_ADDR_UNSPEC; without, it is ignored
 * @context: returned in the completion
 *
 * Context: Process or softirq.
 * Return: 0: accepted, a completion follows; -KFI_EAGAIN no room now;
 *	-KFI_EINVAL an argument is not valid; -EFAULT an address is not mapped;
 *	-KFI_EMSGSIZE too many bytes; -KFI_ENOENT @src_addr is unknown;
 *	-KFI_EOPBADSTATE the endpoint is not enabled; -KFI_EOPNOTSUPP it does
 *	not have the capability; -KFI_ENOSYS it uses a shared receive context;
 *	-KFI_ENOMEM.
 */
static inline ssize_t kfi_recv(struct kfid_ep *ep, void *buf, size_t len,
			       void *desc, kfi_addr_t src_addr, void *context)
{
	return ep->msg->recv(ep, buf, len, desc, src_addr, context);
}

/**
 * kfi_recvv() - receive into a list of kernel addresses
 * @ep: the endpoint, or a receive context
 * @iov: list of kernel addresses
 * @desc: array of descriptors, one for each element, or NULL
 * @count: elements of the list
 * @src_addr: with KFI_DIRECTED_RECV, the only peer to receive from, or
 *	KFI_ADDR_UNSPEC; without, it is ignored
 * @context: returned in the completion
 *
 * Context: As kfi_recv().
 * Return: as kfi_recv().
 */
static inline ssize_t kfi_recvv(struct kfid_ep *ep, const struct kvec *iov,
				void **desc, size_t count, kfi_addr_t src_addr,
				void *context)
{
	return ep->msg->recvv(ep, iov, desc, count, src_addr, context);
}

/**
 * kfi_recvbv() - receive into a list of pages
 * @ep: the endpoint, or a receive context
 * @biov: list of pages
 * @desc: array of descriptors, one for each element, or NULL
 * @count: elements of the list
 * @src_addr: with KFI_DIRECTED_RECV, the only peer to receive from, or
 *	KFI_ADDR_UNSPEC; without, it is ignored
 * @context: returned in the completion
 *
 * Context: As kfi_recv().
 * Return: as kfi_recv().
 */
static inline ssize_t kfi_recvbv(struct kfid_ep *ep, const struct bio_vec *biov,
				 void **desc, size_t count, kfi_addr_t src_addr,
				 void *context)
{
	return ep->msg->recvbv(ep, biov, desc, count, src_addr, context);
}

/**
 * kfi_recvsgl() - receive into a scatterlist
 * @ep: the endpoint, or a receive context
 * @sgl: scatterlist
 * @desc: array of descriptors, one for each element, or NULL
 * @count: elements of the list
 * @src_addr: with KFI_DIRECTED_RECV, the only peer to receive from, or
 *	KFI_ADDR_UNSPEC; without, it is ignored
 * @context: returned in the completion
 *
 * Context: As kfi_recv().
 * Return: as kfi_recv().
 */
static inline ssize_t kfi_recvsgl(struct kfid_ep *ep,
				  const struct scatterlist *sgl, void **desc,
				  size_t count, kfi_addr_t src_addr,
				  void *context)
{
	return ep->msg->recvsgl(ep, sgl, desc, count, src_addr, context);
}

/**
 * kfi_recvmsg() - receive a message, with flags
 * @ep: the endpoint, or a receive context
 * @msg: the operation
 * @flags: flags of the operation, instead of the default ones
 *
 * KFI_MULTI_RECV makes a buffer that takes one message after the other until
 * less than KFI_OPT_MIN_MULTI_RECV bytes are left; the completion with
 * KFI_MULTI_RECV gives it back.
 *
 * Context: As kfi_recv().
 * Return: as kfi_recv().
 */
static inline ssize_t kfi_recvmsg(struct kfid_ep *ep, const struct kfi_msg *msg,
				  u64 flags)
{
	return ep->msg->recvmsg(ep, msg, flags);
}

/**
 * kfi_send() - send a message
 * @ep: the endpoint, or a transmit context
 * @buf: kernel address of the data
 * @len: their bytes
 * @desc: kfi_mr_desc() of the region with the memory, or NULL
 * @dest_addr: the peer; ignored by connected endpoints
 * @context: returned in the completion
 *
 * Context: Process or softirq.
 * Return: 0: accepted, a completion follows; -KFI_EAGAIN no room now;
 *	-KFI_EINVAL an argument is not valid; -EFAULT an address is not mapped;
 *	-KFI_EMSGSIZE too many bytes, or the path carries no path MTU;
 *	-KFI_ENOENT @dest_addr is unknown; -KFI_EHOSTUNREACH no endpoint has the
 *	address on this host, or (KFI_EP_RDM) no route leads to it, or the route
 *	refuses; -KFI_ENETUNREACH no route leaves by the link's interface (other
 *	types); -KFI_EADDRNOTAVAIL the link has lost the endpoint's address;
 *	-KFI_ENETDOWN the interface is down; -KFI_ENODEV it was removed;
 *	-KFI_ENOTCONN a connected endpoint has no connection, or the peer has
 *	another authorization key; -KFI_EOPBADSTATE the endpoint is not enabled;
 *	-KFI_EOPNOTSUPP it does not have the capability; -KFI_ENOMEM.
 */
static inline ssize_t kfi_send(struct kfid_ep *ep, const void *buf, size_t len,
			       void *desc, kfi_addr_t dest_addr, void *context)
{
	return ep->msg->send(ep, buf, len, desc, dest_addr, context);
}

/**
 * kfi_sendv() - send a list of kernel addresses
 * @ep: the endpoint, or a transmit context
 * @iov: list of kernel addresses
 * @desc: array of descriptors, one for each element, or NULL
 * @count: elements of the list
 * @dest_addr: the peer; ignored by connected endpoints
 * @context: returned in the completion
 *
 * Context: As kfi_send().
 * Return: as kfi_send().
 */
static inline ssize_t kfi_sendv(struct kfid_ep *ep, const struct kvec *iov,
				void **desc, size_t count, kfi_addr_t dest_addr,
				void *context)
{
	return ep->msg->sendv(ep, iov, desc, count, dest_addr, context);
}

/**
 * kfi_sendbv() - send a list of pages
 * @ep: the endpoint, or a transmit context
 * @biov: list of pages
 * @desc: array of descriptors, one for each element, or NULL
 * @count: elements of the list
 * @dest_addr: the peer; ignored by connected endpoints
 * @context: returned in the completion
 *
 * Context: As kfi_send().
 * Return: as kfi_send().
 */
static inline ssize_t kfi_sendbv(struct kfid_ep *ep, const struct bio_vec *biov,
				 void **desc, size_t count,
				 kfi_addr_t dest_addr, void *context)
{
	return ep->msg->sendbv(ep, biov, desc, count, dest_addr, context);
}

/**
 * kfi_sendsgl() - send a scatterlist
 * @ep: the endpoint, or a transmit context
 * @sgl: scatterlist
 * @desc: array of descriptors, one for each element, or NULL
 * @count: elements of the list
 * @dest_addr: the peer; ignored by connected endpoints
 * @context: returned in the completion
 *
 * Context: As kfi_send().
 * Return: as kfi_send().
 */
static inline ssize_t kfi_sendsgl(struct kfid_ep *ep,
				  const struct scatterlist *sgl, void **desc,
				  size_t count, kfi_addr_t dest_addr,
				  void *context)
{
	return ep->msg->sendsgl(ep, sgl, desc, count, dest_addr, context);
}

/**
 * kfi_sendmsg() - send a message, with flags
 * @ep: the endpoint, or a transmit context
 * @msg: the operation
 * @flags: flags of the operation, instead of the default ones
 *
 * With KFI_FENCE, as in other calls with flags, -KFI_EAGAIN can also mean that an
 * earlier message waits at the peer, on this host.  That ends with the completion
 * of the message.
 *
 * Context: As kfi_send().
 * Return: as kfi_send().
 */
static inline ssize_t kfi_sendmsg(struct kfid_ep *ep, const struct kfi_msg *msg,
				  u64 flags)
{
	return ep->msg->sendmsg(ep, msg, flags);
}

/**
 * kfi_inject() - send a small message without a completion
 * @ep: the endpoint, or a transmit context
 * @buf: kernel address of the data
 * @len: their bytes
 * @dest_addr: the peer; ignored by connected endpoints
 *
 * The message has at most inject_size bytes. It counts as a completion.
 *
 * Context: As kfi_send().
 * Return: 0: accepted, the buffer may be reused; -KFI_ENOSYS the operations of
 *	the endpoint are triggered (KFI_TRIGGER); otherwise as kfi_send().
 */
static inline ssize_t kfi_inject(struct kfid_ep *ep, const void *buf,
				 size_t len, kfi_addr_t dest_addr)
{
	return ep->msg->inject(ep, buf, len, dest_addr);
}

/**
 * kfi_senddata() - send a message with data for the peer's completion queue
 * @ep: the endpoint, or a transmit context
 * @buf: kernel address of the data
 * @len: their bytes
 * @desc: kfi_mr_desc() of the region with the memory, or NULL
 * @data: data for the peer's completion queue
 * @dest_addr: the peer; ignored by connected endpoints
 * @context: returned in the completion
 *
 * Context: As kfi_send().
 * Return: as kfi_send().
 */
static inline ssize_t kfi_senddata(struct kfid_ep *ep, const void *buf,
				   size_t len, void *desc, u64 data,
				   kfi_addr_t dest_addr, void *context)
{
	return ep->msg->senddata(ep, buf, len, desc, data, dest_addr, context);
}

/**
 * kfi_injectdata() - inject a message with data for the peer's completion queue
 * @ep: the endpoint, or a transmit context
 * @buf: kernel address of the data
 * @len: their bytes
 * @data: data for the peer's completion queue
 * @dest_addr: the peer; ignored by connected endpoints
 *
 * Context: As kfi_send().
 * Return: 0: accepted, the buffer may be reused; -KFI_ENOSYS the operations of
 *	the endpoint are triggered (KFI_TRIGGER); otherwise as kfi_send().
 */
static inline ssize_t kfi_injectdata(struct kfid_ep *ep, const void *buf,
				     size_t len, u64 data, kfi_addr_t dest_addr)
{
	return ep->msg->injectdata(ep, buf, len, data, dest_addr);
}

#endif /* _KFI_MSG_H */
