/* SPDX-License-Identifier: GPL-2.0 */
/*
 * Completion queues.  kfi_eq.h includes this file; kfi_domain.h has
 * kfi_cq_open().
 *
 * Timeouts are those of kfi_wait.h.  Source: fi_cq(3).
 */
#ifndef _KFI_CQ_H
#define _KFI_CQ_H

#include "kfi_wait.h"

/**
 * enum kfi_cq_format - the entries of a completion queue
 * @KFI_CQ_FORMAT_UNSPEC: the provider chooses, and stores its choice
 * @KFI_CQ_FORMAT_CONTEXT: struct kfi_cq_entry
 * @KFI_CQ_FORMAT_MSG: struct kfi_cq_msg_entry
 * @KFI_CQ_FORMAT_DATA: struct kfi_cq_data_entry
 * @KFI_CQ_FORMAT_TAGGED: struct kfi_cq_tagged_entry
 */
enum kfi_cq_format {
	KFI_CQ_FORMAT_UNSPEC	= 0,
	KFI_CQ_FORMAT_CONTEXT	= 1,
	KFI_CQ_FORMAT_MSG	= 2,
	KFI_CQ_FORMAT_DATA	= 3,
	KFI_CQ_FORMAT_TAGGED	= 4,
};

/**
 * enum kfi_cq_wait_cond - what ends a wait on a completion queue
 * @KFI_CQ_COND_NONE: an entry
 * @KFI_CQ_COND_THRESHOLD: as many entries as the call's condition says
 */
enum kfi_cq_wait_cond {
	KFI_CQ_COND_NONE	= 0,
	KFI_CQ_COND_THRESHOLD	= 1,
};

/**
 * struct kfi_cq_entry - a completion: the context
 * @op_context: context of the operation
 */
struct kfi_cq_entry {
	void	*op_context;
};

/**
 * struct kfi_cq_msg_entry - a completion: with its kind and length
 * @op_context: context of the operation
 * @flags: KFI_SEND, KFI_RECV, ... KFI_MSG, KFI_RMA, ...
 * @len: receives: bytes that arrived
 */
struct kfi_cq_msg_entry {
	void	*op_context;
	u64	flags;
	size_t	len;
};

/**
 * struct kfi_cq_data_entry - a completion: with remote data
 * @op_context: context of the operation
 * @flags: as in struct kfi_cq_msg_entry
 * @len: receives: bytes that arrived
 * @buf: multi-receive: where they are
 * @data: the peer's data, with KFI_REMOTE_CQ_DATA
 */
struct kfi_cq_data_entry {
	void	*op_context;
	u64	flags;
	size_t	len;
	void	*buf;
	u64	data;
};

/**
 * struct kfi_cq_tagged_entry - a completion: with the tag
 * @op_context: context of the operation
 * @flags: as in struct kfi_cq_msg_entry
 * @len: receives: bytes that arrived
 * @buf: multi-receive: where they are
 * @data: the peer's data, with KFI_REMOTE_CQ_DATA
 * @tag: tagged receives: tag of the message
 */
struct kfi_cq_tagged_entry {
	void	*op_context;
	u64	flags;
	size_t	len;
	void	*buf;
	u64	data;
	u64	tag;
};

/**
 * struct kfi_cq_err_entry - an operation that failed
 * @op_context: context of the operation
 * @flags: its kind
 * @len: bytes that were placed
 * @buf: multi-receive: where
 * @data: the peer's data, with KFI_REMOTE_CQ_DATA
 * @tag: tagged receives: tag of the message
 * @olen: bytes of the message that did not fit
 * @err: positive error number
 * @prov_errno: the provider's number, see kfi_cq_strerror()
 * @err_data: data of the provider's; in: buffer for it
 * @err_data_size: bytes of @err_data; in: room in the buffer, or 0: @err_data
 *	points to the provider's memory until the next read.  kfabric.ko has no
 *	data: 0, and @err_data is NULL, or the buffer if there is one
 */
struct kfi_cq_err_entry {
	void	*op_context;
	u64	flags;
	size_t	len;
	void	*buf;
	u64	data;
	u64	tag;
	size_t	olen;
	int	err;
	int	prov_errno;
	void	*err_data;
	size_t	err_data_size;
};

/*
 * Told that a completion queue has entries.  Called in process context, never
 * twice at the same time for one queue; may sleep, read and post.  It is called
 * once after the queue was opened, or after a read of entries that left it
 * empty and took fewer than asked for; a call without an entry is possible.  It
 * must not close the queue, which fails with -KFI_EBUSY there.  Handlers of two
 * queues must not close each other's queue: each close waits for the other handler,
 * for ever.
 */
typedef void (*kfi_comp_handler)(struct kfid_cq *cq, void *context);

/**
 * struct kfi_cq_attr - a completion queue
 * @size: completions it holds, at most 65,536, rounded up to a power of two; 0
 *	selects 1,024
 * @flags: KFI_AFFINITY or 0
 * @format: format of entries; KFI_CQ_FORMAT_UNSPEC is replaced by the choice
 * @wait_obj: how waiters are told
 * @signaling_vector: with KFI_AFFINITY, the CPU of the completion handler if it
 *	is online; otherwise the handler runs on the CPU of the completion
 * @wait_cond: what ends a wait
 * @wait_set: the wait set, with KFI_WAIT_SET
 */
struct kfi_cq_attr {
	size_t			size;
	u64			flags;
	enum kfi_cq_format	format;
	enum kfi_wait_obj	wait_obj;
	int			signaling_vector;
	enum kfi_cq_wait_cond	wait_cond;
	struct kfid_wait	*wait_set;
};

/**
 * struct kfi_ops_cq - operations of completion queues
 * @size: sizeof(struct kfi_ops_cq)
 * @read: see kfi_cq_read()
 * @readfrom: see kfi_cq_readfrom()
 * @readerr: see kfi_cq_readerr()
 * @sread: see kfi_cq_sread()
 * @sreadfrom: see kfi_cq_sreadfrom()
 * @signal: see kfi_cq_signal()
 * @strerror: see kfi_cq_strerror()
 */
struct kfi_ops_cq {
	size_t		size;
	ssize_t		(*read)(struct kfid_cq *cq, void *buf, size_t count);
	ssize_t		(*readfrom)(struct kfid_cq *cq, void *buf, size_t count,
				    kfi_addr_t *src_addr);
	ssize_t		(*readerr)(struct kfid_cq *cq,
				   struct kfi_cq_err_entry *buf, u64 flags);
	ssize_t		(*sread)(struct kfid_cq *cq, void *buf, size_t count,
				 const void *cond, int timeout);
	ssize_t		(*sreadfrom)(struct kfid_cq *cq, void *buf, size_t count,
				     kfi_addr_t *src_addr, const void *cond,
				     int timeout);
	int		(*signal)(struct kfid_cq *cq);
	const char	*(*strerror)(struct kfid_cq *cq, int prov_errno,
				     const void *err_data, char *buf, size_t len);
};

/**
 * struct kfid_cq - a completion queue
 * @fid: head
 * @ops: operations
 * @comp_handler: the consumer's, or NULL
 */
struct kfid_cq {
	struct kfid		fid;
	struct kfi_ops_cq	*ops;
	kfi_comp_handler	comp_handler;
};

/**
 * kfi_cq_read() - take completions
 * @cq: the queue
 * @buf: array of entries of the queue's format
 * @count: room in @buf, entries
 *
 * Several CPUs may read one queue; each entry goes to one of them.
 *
 * A post reserves room for its completion; without room it returns -KFI_EAGAIN.
 * Two kinds of completions have no post: those of a peer's writes with data, and
 * those of the parts of a multi-receive buffer. Without room they are lost, and a
 * read reports the loss once with -KFI_EOVERRUN, after the entries that precede
 * it. Connected endpoints lose none.
 *
 * Context: Process or softirq.
 * Return: entries taken; -KFI_EAGAIN there is none; -KFI_EAVAIL an error entry
 *	must be read first; -KFI_EOVERRUN completions were lost (told once);
 *	-KFI_EINVAL no @buf.
 */
static inline ssize_t kfi_cq_read(struct kfid_cq *cq, void *buf, size_t count)
{
	return cq->ops->read(cq, buf, count);
}

/**
 * kfi_cq_readfrom() - take completions with their sources
 * @cq: the queue
 * @buf: array of entries of the queue's format
 * @count: room in @buf and @src_addr, entries
 * @src_addr: where the sources are stored; KFI_ADDR_NOTAVAIL if unknown
 *
 * Context: Process or softirq.
 * Return: as kfi_cq_read().
 */
static inline ssize_t kfi_cq_readfrom(struct kfid_cq *cq, void *buf,
				      size_t count, kfi_addr_t *src_addr)
{
	return cq->ops->readfrom(cq, buf, count, src_addr);
}

/**
 * kfi_cq_readerr() - take the next error entry
 * @cq: the queue
 * @buf: where it is stored
 * @flags: 0
 *
 * It does not arm the completion handler.
 *
 * Context: Process or softirq.
 * Return: 1; -KFI_EAGAIN there is none; -KFI_EINVAL flags, or no @buf.
 */
static inline ssize_t kfi_cq_readerr(struct kfid_cq *cq,
				     struct kfi_cq_err_entry *buf, u64 flags)
{
	return cq->ops->readerr(cq, buf, flags);
}

/**
 * kfi_cq_sread() - wait for completions and take them
 * @cq: the queue
 * @buf: array of entries of the queue's format
 * @count: room in @buf, entries
 * @cond: KFI_CQ_COND_THRESHOLD: pointer to a size_t, the entries to wait for;
 *	else ignored
 * @timeout: milliseconds; negative: without limit; 0: the call does not wait
 *
 * Return: as kfi_cq_read(): -KFI_EAGAIN no entry came before the timeout, or
 *	kfi_cq_signal() ended the wait; -EINTR; -KFI_EINVAL the queue has
 *	KFI_WAIT_NONE or KFI_WAIT_SET, whatever @timeout is; -KFI_ENOSPC 1,024
 *	tasks sleep in such calls.
 */
static inline ssize_t kfi_cq_sread(struct kfid_cq *cq, void *buf, size_t count,
				   const void *cond, int timeout)
{
	return cq->ops->sread(cq, buf, count, cond, timeout);
}

/**
 * kfi_cq_sreadfrom() - wait for completions and take them with their sources
 * @cq: the queue
 * @buf: array of entries of the queue's format
 * @count: room in @buf and @src_addr, entries
 * @src_addr: where the sources are stored; KFI_ADDR_NOTAVAIL if unknown
 * @cond: as kfi_cq_sread()
 * @timeout: as kfi_cq_sread()
 *
 * Return: as kfi_cq_sread().
 */
static inline ssize_t kfi_cq_sreadfrom(struct kfid_cq *cq, void *buf,
				       size_t count, kfi_addr_t *src_addr,
				       const void *cond, int timeout)
{
	return cq->ops->sreadfrom(cq, buf, count, src_addr, cond, timeout);
}

/**
 * kfi_cq_signal() - end the waits of a completion queue
 * @cq: the queue
 *
 * Return: 0; -KFI_EINVAL the queue has KFI_WAIT_NONE.
 */
static inline int kfi_cq_signal(struct kfid_cq *cq)
{
	return cq->ops->signal(cq);
}

/**
 * kfi_cq_strerror() - the meaning of a provider's error number
 * @cq: the queue
 * @prov_errno: prov_errno of the error entry
 * @err_data: err_data of the error entry
 * @buf: where the text is stored too, or NULL
 * @len: room in @buf, bytes
 *
 * Context: Any.
 * Return: the text, which is never freed.
 */
static inline const char *kfi_cq_strerror(struct kfid_cq *cq, int prov_errno,
					  const void *err_data, char *buf,
					  size_t len)
{
	return cq->ops->strerror(cq, prov_errno, err_data, buf, len);
}

#endif /* _KFI_CQ_H */
