/* SPDX-License-Identifier: GPL-2.0 */
/*
 * Atomics: operations that read and change memory of a peer as one step.
 *
 * Operands are read when the operation starts; memory for results stays as it is
 * until the operation completes.
 *
 * Source: fi_atomic(3).
 */
#ifndef _KFI_ATOMIC_H
#define _KFI_ATOMIC_H

#include "kfi_endpoint.h"

/**
 * struct kfi_atomic_attr - limits of an atomic
 * @count: largest number of elements of one operation
 * @size: bytes of an element
 */
struct kfi_atomic_attr {
	size_t	count;
	size_t	size;
};

/**
 * struct kfi_ioc - a piece of local memory, in elements
 * @addr: kernel address
 * @count: elements
 */
struct kfi_ioc {
	void	*addr;
	size_t	count;
};

/**
 * struct kfi_rma_ioc - a piece of a peer's memory, in elements
 * @addr: address (KFI_MR_VIRT_ADDR) or offset into the region
 * @count: elements
 * @key: key of the region
 */
struct kfi_rma_ioc {
	u64	addr;
	size_t	count;
	u64	key;
};

/**
 * struct kfi_msg_atomic - an atomic
 * @msg_iov: list of operands
 * @desc: array of descriptors, one for each element of @msg_iov, or NULL
 * @iov_count: elements of @msg_iov
 * @addr: the peer
 * @rma_iov: list of remote memory
 * @rma_iov_count: elements of @rma_iov
 * @datatype: type of an operand
 * @op: the operation
 * @context: returned in the completion
 * @data: with KFI_REMOTE_CQ_DATA: data for the peer's completion queue
 */
struct kfi_msg_atomic {
	const struct kfi_ioc		*msg_iov;
	void				**desc;
	size_t				iov_count;
	kfi_addr_t			addr;
	const struct kfi_rma_ioc	*rma_iov;
	size_t				rma_iov_count;
	enum kfi_datatype		datatype;
	enum kfi_op			op;
	void				*context;
	u64				data;
};

/**
 * struct kfi_msg_fetch - memory for the old values of an atomic
 * @msg_iov: list of memory
 * @desc: array of descriptors, one for each element of @msg_iov, or NULL
 * @iov_count: elements of @msg_iov
 */
struct kfi_msg_fetch {
	struct kfi_ioc	*msg_iov;
	void		**desc;
	size_t		iov_count;
};

/**
 * struct kfi_msg_compare - what the old values of an atomic are compared with
 * @msg_iov: list of memory
 * @desc: array of descriptors, one for each element of @msg_iov, or NULL
 * @iov_count: elements of @msg_iov
 */
struct kfi_msg_compare {
	const struct kfi_ioc	*msg_iov;
	void			**desc;
	size_t			iov_count;
};

/**
 * struct kfi_ops_atomic - atomics
 * @size: sizeof(struct kfi_ops_atomic)
 * @write: see kfi_atomic()
 * @writev: see kfi_atomicv()
 * @writemsg: see kfi_atomicmsg()
 * @inject: see kfi_inject_atomic()
 * @readwrite: see kfi_fetch_atomic()
 * @readwritev: see kfi_fetch_atomicv()
 * @readwritemsg: see kfi_fetch_atomicmsg()
 * @compwrite: see kfi_compare_atomic()
 * @compwritev: see kfi_compare_atomicv()
 * @compwritemsg: see kfi_compare_atomicmsg()
 * @writevalid: see kfi_atomicvalid()
 * @readwritevalid: see kfi_fetch_atomicvalid()
 * @compwritevalid: see kfi_compare_atomicvalid()
 */
struct kfi_ops_atomic {
	size_t	size;
	ssize_t	(*write)(struct kfid_ep *ep, const void *buf, size_t count,
			 void *desc, kfi_addr_t dest_addr, u64 addr, u64 key,
			 enum kfi_datatype datatype, enum kfi_op op,
			 void *context);
	ssize_t	(*writev)(struct kfid_ep *ep, const struct kfi_ioc *iov,
			  void **desc, size_t count, kfi_addr_t dest_addr,
			  u64 addr, u64 key, enum kfi_datatype datatype,
			  enum kfi_op op, void *context);
	ssize_t	(*writemsg)(struct kfid_ep *ep,
			    const struct kfi_msg_atomic *msg, u64 flags);
	ssize_t	(*inject)(struct kfid_ep *ep, const void *buf, size_t count,
			  kfi_addr_t dest_addr, u64 addr, u64 key,
			  enum kfi_datatype datatype, enum kfi_op op);
	ssize_t	(*readwrite)(struct kfid_ep *ep, const void *buf, size_t count,
			     void *desc, void *result, void *result_desc,
			     kfi_addr_t dest_addr, u64 addr, u64 key,
			     enum kfi_datatype datatype, enum kfi_op op,
			     void *context);
	ssize_t	(*readwritev)(struct kfid_ep *ep, const struct kfi_ioc *iov,
			      void **desc, size_t count,
			      struct kfi_ioc *resultv, void **result_desc,
			      size_t result_count, kfi_addr_t dest_addr,
			      u64 addr, u64 key, enum kfi_datatype datatype,
			      enum kfi_op op, void *context);
	ssize_t	(*readwritemsg)(struct kfid_ep *ep,
				const struct kfi_msg_atomic *msg,
				struct kfi_ioc *resultv, void **result_desc,
				size_t result_count, u64 flags);
	ssize_t	(*compwrite)(struct kfid_ep *ep, const void *buf, size_t count,
			     void *desc, const void *compare,
			     void *compare_desc, void *result,
			     void *result_desc, kfi_addr_t dest_addr, u64 addr,
			     u64 key, enum kfi_datatype datatype,
			     enum kfi_op op, void *context);
	ssize_t	(*compwritev)(struct kfid_ep *ep, const struct kfi_ioc *iov,
			      void **desc, size_t count,
			      const struct kfi_ioc *comparev,
			      void **compare_desc, size_t compare_count,
			      struct kfi_ioc *resultv, void **result_desc,
			      size_t result_count, kfi_addr_t dest_addr,
			      u64 addr, u64 key, enum kfi_datatype datatype,
			      enum kfi_op op, void *context);
	ssize_t	(*compwritemsg)(struct kfid_ep *ep,
				const struct kfi_msg_atomic *msg,
				const struct kfi_ioc *comparev,
				void **compare_desc, size_t compare_count,
				struct kfi_ioc *resultv, void **result_desc,
				size_t result_count, u64 flags);
	int	(*writevalid)(struct kfid_ep *ep, enum kfi_datatype datatype,
			      enum kfi_op op, size_t *count);
	int	(*readwritevalid)(struct kfid_ep *ep,
				  enum kfi_datatype datatype, enum kfi_op op,
				  size_t *count);
	int	(*compwritevalid)(struct kfid_ep *ep,
				  enum kfi_datatype datatype, enum kfi_op op,
				  size_t *count);
};

/**
 * kfi_atomic() - change values in memory of a peer
 * @ep: the endpoint, or a transmit context
 * @buf: kernel address of the operands
 * @count: elements of @datatype
 * @desc: kfi_mr_desc() of the region with the memory, or NULL
 * @dest_addr: the peer; ignored by connected endpoints
 * @addr: remote address or offset
 * @key: remote key
 * @datatype: type of an operand
 * @op: the operation
 * @context: returned in the completion
 *
 * Context: Process or softirq.
 * Return: 0: accepted, a completion follows; -KFI_EAGAIN no room now;
 *	-KFI_EINVAL an argument is not valid; -KFI_EOPBADSTATE the endpoint is
 *	not enabled; -KFI_EOPNOTSUPP it does not have this atomic; -KFI_EMSGSIZE
 *	too many values; -KFI_E2BIG too many elements of a list; -EFAULT an
 *	address is not memory; -KFI_ENOMEM; -KFI_ENOENT, -KFI_ENOTCONN and the
 *	errors of addresses and routes as kfi_send().
 */
static inline ssize_t kfi_atomic(struct kfid_ep *ep, const void *buf,
				 size_t count, void *desc, kfi_addr_t dest_addr,
				 u64 addr, u64 key, enum kfi_datatype datatype,
				 enum kfi_op op, void *context)
{
	return ep->atomic->write(ep, buf, count, desc, dest_addr, addr, key,
				 datatype, op, context);
}

/**
 * kfi_atomicv() - change values with a list of operands
 * @ep: the endpoint, or a transmit context
 * @iov: list of operands
 * @desc: array of descriptors, one for each element, or NULL
 * @count: elements of the list
 * @dest_addr: the peer; ignored by connected endpoints
 * @addr: remote address or offset
 * @key: remote key
 * @datatype: type of an operand
 * @op: the operation
 * @context: returned in the completion
 *
 * Context: As kfi_atomic().
 * Return: as kfi_atomic().
 */
static inline ssize_t kfi_atomicv(struct kfid_ep *ep, const struct kfi_ioc *iov,
				  void **desc, size_t count,
				  kfi_addr_t dest_addr, u64 addr, u64 key,
				  enum kfi_datatype datatype, enum kfi_op op,
				  void *context)
{
	return ep->atomic->writev(ep, iov, desc, count, dest_addr, addr, key,
				  datatype, op, context);
}

/**
 * kfi_atomicmsg() - change values, with flags and a list of remote memory
 * @ep: the endpoint, or a transmit context
 * @msg: the operation
 * @flags: flags of the operation, instead of the default ones
 *
 * Context: As kfi_atomic().
 * Return: as kfi_atomic().
 */
static inline ssize_t kfi_atomicmsg(struct kfid_ep *ep,
				    const struct kfi_msg_atomic *msg, u64 flags)
{
	return ep->atomic->writemsg(ep, msg, flags);
}

/**
 * kfi_inject_atomic() - change values with a few bytes of operands, without a completion
 * @ep: the endpoint, or a transmit context
 * @buf: kernel address of the operands
 * @count: elements of @datatype
 * @dest_addr: the peer; ignored by connected endpoints
 * @addr: remote address or offset
 * @key: remote key
 * @datatype: type of an operand
 * @op: the operation
 *
 * At most inject_size bytes. It counts as a completion.
 *
 * Context: As kfi_atomic().
 * Return: 0: accepted, the buffer may be reused; -KFI_ENOSYS the operations of
 *	the endpoint are triggered (KFI_TRIGGER); otherwise as kfi_atomic().
 */
static inline ssize_t kfi_inject_atomic(struct kfid_ep *ep, const void *buf,
					size_t count, kfi_addr_t dest_addr,
					u64 addr, u64 key,
					enum kfi_datatype datatype,
					enum kfi_op op)
{
	return ep->atomic->inject(ep, buf, count, dest_addr, addr, key,
				  datatype, op);
}

/**
 * kfi_fetch_atomic() - change values and get the old ones
 * @ep: the endpoint, or a transmit context
 * @buf: kernel address of the operands
 * @count: elements of @datatype
 * @desc: kfi_mr_desc() of the region with the memory, or NULL
 * @result: where the old values are stored
 * @result_desc: kfi_mr_desc() of the region with @result, or NULL
 * @dest_addr: the peer; ignored by connected endpoints
 * @addr: remote address or offset
 * @key: remote key
 * @datatype: type of an operand
 * @op: the operation
 * @context: returned in the completion
 *
 * Context: As kfi_atomic().
 * Return: as kfi_atomic().
 */
static inline ssize_t kfi_fetch_atomic(struct kfid_ep *ep, const void *buf,
				       size_t count, void *desc, void *result,
				       void *result_desc, kfi_addr_t dest_addr,
				       u64 addr, u64 key,
				       enum kfi_datatype datatype,
				       enum kfi_op op, void *context)
{
	return ep->atomic->readwrite(ep, buf, count, desc, result, result_desc,
				     dest_addr, addr, key, datatype, op,
				     context);
}

/**
 * kfi_fetch_atomicv() - change values and get the old ones, with lists
 * @ep: the endpoint, or a transmit context
 * @iov: list of operands
 * @desc: array of descriptors, one for each element, or NULL
 * @count: elements of the list
 * @resultv: list of memory for the old values
 * @result_desc: array of descriptors for @resultv, or NULL
 * @result_count: elements of @resultv
 * @dest_addr: the peer; ignored by connected endpoints
 * @addr: remote address or offset
 * @key: remote key
 * @datatype: type of an operand
 * @op: the operation
 * @context: returned in the completion
 *
 * Context: As kfi_atomic().
 * Return: as kfi_atomic().
 */
static inline ssize_t kfi_fetch_atomicv(struct kfid_ep *ep,
					const struct kfi_ioc *iov, void **desc,
					size_t count, struct kfi_ioc *resultv,
					void **result_desc, size_t result_count,
					kfi_addr_t dest_addr, u64 addr, u64 key,
					enum kfi_datatype datatype,
					enum kfi_op op, void *context)
{
	return ep->atomic->readwritev(ep, iov, desc, count, resultv,
				      result_desc, result_count, dest_addr,
				      addr, key, datatype, op, context);
}

/**
 * kfi_fetch_atomicmsg() - change values and get the old ones, with flags
 * @ep: the endpoint, or a transmit context
 * @msg: the operation
 * @resultv: list of memory for the old values
 * @result_desc: array of descriptors for @resultv, or NULL
 * @result_count: elements of @resultv
 * @flags: flags of the operation, instead of the default ones
 *
 * Context: As kfi_atomic().
 * Return: as kfi_atomic().
 */
static inline ssize_t kfi_fetch_atomicmsg(struct kfid_ep *ep,
					  const struct kfi_msg_atomic *msg,
					  struct kfi_ioc *resultv,
					  void **result_desc,
					  size_t result_count, u64 flags)
{
	return ep->atomic->readwritemsg(ep, msg, resultv, result_desc,
					result_count, flags);
}

/**
 * kfi_compare_atomic() - change values that compare as wanted, and get the old ones
 * @ep: the endpoint, or a transmit context
 * @buf: kernel address of the operands
 * @count: elements of @datatype
 * @desc: kfi_mr_desc() of the region with the memory, or NULL
 * @compare: what the old values are compared with
 * @compare_desc: kfi_mr_desc() of the region with @compare, or NULL
 * @result: where the old values are stored
 * @result_desc: kfi_mr_desc() of the region with @result, or NULL
 * @dest_addr: the peer; ignored by connected endpoints
 * @addr: remote address or offset
 * @key: remote key
 * @datatype: type of an operand
 * @op: the operation
 * @context: returned in the completion
 *
 * Context: As kfi_atomic().
 * Return: as kfi_atomic().
 */
static inline ssize_t kfi_compare_atomic(struct kfid_ep *ep, const void *buf,
					 size_t count, void *desc,
					 const void *compare,
					 void *compare_desc, void *result,
					 void *result_desc,
					 kfi_addr_t dest_addr, u64 addr,
					 u64 key, enum kfi_datatype datatype,
					 enum kfi_op op, void *context)
{
	return ep->atomic->compwrite(ep, buf, count, desc, compare,
				     compare_desc, result, result_desc,
				     dest_addr, addr, key, datatype, op,
				     context);
}

/**
 * kfi_compare_atomicv() - change values that compare as wanted, with lists
 * @ep: the endpoint, or a transmit context
 * @iov: list of operands
 * @desc: array of descriptors, one for each element, or NULL
 * @count: elements of the list
 * @comparev: list of what the old values are compared with
 * @compare_desc: array of descriptors for @comparev, or NULL
 * @compare_count: elements of @comparev
 * @resultv: list of memory for the old values
 * @result_desc: array of descriptors for @resultv, or NULL
 * @result_count: elements of @resultv
 * @dest_addr: the peer; ignored by connected endpoints
 * @addr: remote address or offset
 * @key: remote key
 * @datatype: type of an operand
 * @op: the operation
 * @context: returned in the completion
 *
 * Context: As kfi_atomic().
 * Return: as kfi_atomic().
 */
static inline ssize_t kfi_compare_atomicv(struct kfid_ep *ep,
					  const struct kfi_ioc *iov,
					  void **desc, size_t count,
					  const struct kfi_ioc *comparev,
					  void **compare_desc,
					  size_t compare_count,
					  struct kfi_ioc *resultv,
					  void **result_desc,
					  size_t result_count,
					  kfi_addr_t dest_addr, u64 addr,
					  u64 key, enum kfi_datatype datatype,
					  enum kfi_op op, void *context)
{
	return ep->atomic->compwritev(ep, iov, desc, count, comparev,
				      compare_desc, compare_count, resultv,
				      result_desc, result_count, dest_addr,
				      addr, key, datatype, op, context);
}

/**
 * kfi_compare_atomicmsg() - change values that compare as wanted, with flags
 * @ep: the endpoint, or a transmit context
 * @msg: the operation
 * @comparev: list of what the old values are compared with
 * @compare_desc: array of descriptors for @comparev, or NULL
 * @compare_count: elements of @comparev
 * @resultv: list of memory for the old values
 * @result_desc: array of descriptors for @resultv, or NULL
 * @result_count: elements of @resultv
 * @flags: flags of the operation, instead of the default ones
 *
 * Context: As kfi_atomic().
 * Return: as kfi_atomic().
 */
static inline ssize_t kfi_compare_atomicmsg(struct kfid_ep *ep,
					    const struct kfi_msg_atomic *msg,
					    const struct kfi_ioc *comparev,
					    void **compare_desc,
					    size_t compare_count,
					    struct kfi_ioc *resultv,
					    void **result_desc,
					    size_t result_count, u64 flags)
{
	return ep->atomic->compwritemsg(ep, msg, comparev, compare_desc,
					compare_count, resultv, result_desc,
					result_count, flags);
}

/**
 * kfi_atomicvalid() - whether an endpoint has an atomic without results
 * @ep: the endpoint, or a transmit context
 * @datatype: type of an operand
 * @op: the operation
 * @count: where the largest number of elements of one operation is
 *	stored
 *
 * Context: Any.
 * Return: 0; -KFI_EINVAL unknown type or operation, or no @count;
 *	-KFI_EOPNOTSUPP the endpoint does not have this atomic.
 */
static inline int kfi_atomicvalid(struct kfid_ep *ep,
				  enum kfi_datatype datatype, enum kfi_op op,
				  size_t *count)
{
	return ep->atomic->writevalid(ep, datatype, op, count);
}

/**
 * kfi_fetch_atomicvalid() - whether an endpoint has an atomic that fetches
 * @ep: the endpoint, or a transmit context
 * @datatype: type of an operand
 * @op: the operation
 * @count: where the largest number of elements of one operation is
 *	stored
 *
 * Context: Any.
 * Return: 0; -KFI_EINVAL unknown type or operation, or no @count;
 *	-KFI_EOPNOTSUPP the endpoint does not have this atomic.
 */
static inline int kfi_fetch_atomicvalid(struct kfid_ep *ep,
					enum kfi_datatype datatype,
					enum kfi_op op, size_t *count)
{
	return ep->atomic->readwritevalid(ep, datatype, op, count);
}

/**
 * kfi_compare_atomicvalid() - whether an endpoint has an atomic that compares
 * @ep: the endpoint, or a transmit context
 * @datatype: type of an operand
 * @op: the operation
 * @count: where the largest number of elements of one operation is
 *	stored
 *
 * Context: Any.
 * Return: 0; -KFI_EINVAL unknown type or operation, or no @count;
 *	-KFI_EOPNOTSUPP the endpoint does not have this atomic.
 */
static inline int kfi_compare_atomicvalid(struct kfid_ep *ep,
					  enum kfi_datatype datatype,
					  enum kfi_op op, size_t *count)
{
	return ep->atomic->compwritevalid(ep, datatype, op, count);
}

/**
 * kfi_query_atomic() - whether a domain has an atomic, and its limits
 * @domain: the domain
 * @datatype: type of an operand
 * @op: the operation
 * @attr: where the limits are stored
 * @flags: 0
 *
 * The answer is that for endpoints of the type KFI_EP_RDM, in the form that has
 * the fewest operands and results; kfi_atomicvalid() and its siblings answer for
 * an endpoint and a form.
 *
 * Context: Any.
 * Return: 0; -KFI_EINVAL unknown type or operation, flags, or no @attr;
 *	-KFI_EOPNOTSUPP the domain does not have it; -KFI_ENOSYS a provider of an
 *	older version.
 */
static inline int kfi_query_atomic(struct kfid_domain *domain,
				   enum kfi_datatype datatype, enum kfi_op op,
				   struct kfi_atomic_attr *attr, u64 flags)
{
	return KFI_CHECK_OP(domain->ops, struct kfi_ops_domain, query_atomic) ?
		domain->ops->query_atomic(domain, datatype, op, attr, flags) :
		-KFI_ENOSYS;
}

#endif /* _KFI_ATOMIC_H */
