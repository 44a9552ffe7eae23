/* SPDX-License-Identifier: GPL-2.0 */
/*
 * Event queues; with them everything that reports: wait sets and poll sets
 * (kfi_wait.h), completion queues (kfi_cq.h) and counters (kfi_cntr.h).
 *
 * Timeouts are those of kfi_wait.h.  Source: fi_eq(3).
 */
#ifndef _KFI_EQ_H
#define _KFI_EQ_H

#include "kfi_cntr.h"
#include "kfi_cq.h"
#include "kfi_wait.h"

/* Events of an event queue. */
enum {
	KFI_NOTIFY		= 0,	/* of the consumer's own */
	KFI_CONNREQ		= 1,	/* struct kfi_eq_cm_entry */
	KFI_CONNECTED		= 2,	/* struct kfi_eq_cm_entry */
	KFI_SHUTDOWN		= 3,	/* struct kfi_eq_cm_entry */
	KFI_MR_COMPLETE		= 4,	/* struct kfi_eq_entry */
	KFI_AV_COMPLETE		= 5,	/* struct kfi_eq_entry */
	KFI_JOIN_COMPLETE	= 6,	/* struct kfi_eq_entry */
};

/*
 * Told that an event queue has events.  Called in process context, never twice
 * at the same time for one queue; may sleep.  It is called once after the queue
 * was opened or found empty by a read of events; a call without an event is
 * possible.  It must not close the queue, which fails with -KFI_EBUSY there.
 * Handlers of two queues must not close each other's queue: each close waits for
 * the other handler, for ever.
 */
typedef void (*kfi_event_handler)(struct kfid_eq *eq, void *context);

/**
 * struct kfi_eq_attr - an event queue
 * @size: events it holds; 0 is the default
 * @flags: KFI_WRITE: kfi_eq_write() is allowed; KFI_AFFINITY
 * @wait_obj: how waiters are told
 * @signaling_vector: with KFI_AFFINITY, the CPU of the event handler if it
 *	is online; otherwise the handler runs on the CPU of the event
 * @wait_set: the wait set, with KFI_WAIT_SET
 */
struct kfi_eq_attr {
	size_t			size;
	u64			flags;
	enum kfi_wait_obj	wait_obj;
	int			signaling_vector;
	struct kfid_wait	*wait_set;
};

/**
 * struct kfi_eq_entry - an event about an object
 * @fid: the object
 * @context: context of the object or of the call
 * @data: KFI_AV_COMPLETE: number of addresses that were inserted
 */
struct kfi_eq_entry {
	struct kfid	*fid;
	void		*context;
	u64		data;
};

/**
 * struct kfi_eq_err_entry - an error event
 * @fid: the object
 * @context: context of the object or of the call
 * @data: KFI_AV_COMPLETE: index of the address that failed
 * @err: positive error number
 * @prov_errno: the provider's number, see kfi_eq_strerror()
 * @err_data: data of the provider's or the peer's; in: buffer for it
 * @err_data_size: bytes of @err_data; in: room in the buffer, or 0: @err_data
 *	points to the provider's memory until the next read
 */
struct kfi_eq_err_entry {
	struct kfid	*fid;
	void		*context;
	u64		data;
	int		err;
	int		prov_errno;
	void		*err_data;
	size_t		err_data_size;
};

/**
 * struct kfi_eq_cm_entry - an event about a connection
 * @fid: the endpoint; KFI_CONNREQ: the passive endpoint
 * @info: KFI_CONNREQ: for the endpoint that accepts; kfi_freeinfo() frees it.
 *	NULL with KFI_PEEK, and if the link was removed or the request has
 *	ended
 * @data: the peer's private data
 */
struct kfi_eq_cm_entry {
	struct kfid	*fid;
	struct kfi_info	*info;
	u8		data[];
};

/**
 * struct kfi_ops_eq - operations of event queues
 * @size: sizeof(struct kfi_ops_eq)
 * @read: see kfi_eq_read()
 * @readerr: see kfi_eq_readerr()
 * @write: see kfi_eq_write()
 * @sread: see kfi_eq_sread()
 * @strerror: see kfi_eq_strerror()
 */
struct kfi_ops_eq {
	size_t		size;
	ssize_t		(*read)(struct kfid_eq *eq, u32 *event, void *buf,
				size_t len, u64 flags);
	ssize_t		(*readerr)(struct kfid_eq *eq,
				   struct kfi_eq_err_entry *buf, u64 flags);
	ssize_t		(*write)(struct kfid_eq *eq, u32 event, const void *buf,
				 size_t len, u64 flags);
	ssize_t		(*sread)(struct kfid_eq *eq, u32 *event, void *buf,
				 size_t len, int timeout, u64 flags);
	const char	*(*strerror)(struct kfid_eq *eq, int prov_errno,
				     const void *err_data, char *buf, size_t len);
};

/**
 * struct kfid_eq - an event queue
 * @fid: head
 * @ops: operations
 * @event_handler: the consumer's, or NULL
 */
struct kfid_eq {
	struct kfid		fid;
	struct kfi_ops_eq	*ops;
	kfi_event_handler	event_handler;
};

/**
 * struct kfi_ops_fabric - operations of fabrics
 * @size: sizeof(struct kfi_ops_fabric)
 * @domain: see kfi_domain()
 * @passive_ep: see kfi_passive_ep()
 * @eq_open: see kfi_eq_open()
 * @wait_open: see kfi_wait_open()
 */
struct kfi_ops_fabric {
	size_t	size;
	int	(*domain)(struct kfid_fabric *fabric, struct kfi_info *info,
			  struct kfid_domain **domain, void *context);
	int	(*passive_ep)(struct kfid_fabric *fabric, struct kfi_info *info,
			      struct kfid_pep **pep, void *context);
	int	(*eq_open)(struct kfid_fabric *fabric, struct kfi_eq_attr *attr,
			   struct kfid_eq **eq, kfi_event_handler event_handler,
			   void *context);
	int	(*wait_open)(struct kfid_fabric *fabric,
			     struct kfi_wait_attr *attr,
			     struct kfid_wait **waitset);
};

/**
 * kfi_eq_open() - open an event queue
 * @fabric: the fabric
 * @attr: attributes, or NULL: the default
 * @eq: where the queue is stored
 * @event_handler: told about events, or NULL
 * @context: the consumer's
 *
 * Return: 0; -KFI_EINVAL an attribute is not valid; -KFI_ENOMEM.
 */
static inline int kfi_eq_open(struct kfid_fabric *fabric,
			      struct kfi_eq_attr *attr, struct kfid_eq **eq,
			      kfi_event_handler event_handler, void *context)
{
	return fabric->ops->eq_open(fabric, attr, eq, event_handler, context);
}

/**
 * kfi_eq_read() - take the next event
 * @eq: the queue
 * @event: where the event's number is stored
 * @buf: where its data are stored
 * @len: room in @buf, bytes
 * @flags: KFI_PEEK: leave the event; or 0
 *
 * The endpoint, the passive endpoint or the region of an event is open:
 * kfi_close() removes its events and errors that were not read, apart from those
 * that kfi_eq_write() has put there.  Those of an address vector stay.
 *
 * Context: Process, may sleep; so it is no condition of wait_event(), but of
 *	wait_woken().
 * The private data of a connection, behind struct kfi_eq_cm_entry, are cut to
 * the room in @buf.  They are padded with zeros to the length that the protocol
 * has for them: 56 bytes with KFI_CONNREQ, 196 with KFI_CONNECTED at the end that
 * asked.
 *
 * Return: bytes of the data in @buf; -KFI_EAGAIN no event; -KFI_EAVAIL an error
 *	event must be read first; -KFI_ETOOSMALL other data do not fit, the event
 *	stays; -KFI_EOVERRUN events were lost (told once).
 */
static inline ssize_t kfi_eq_read(struct kfid_eq *eq, u32 *event, void *buf,
				  size_t len, u64 flags)
{
	return eq->ops->read(eq, event, buf, len, flags);
}

/**
 * kfi_eq_readerr() - take the next error event
 * @eq: the queue
 * @buf: where it is stored
 * @flags: KFI_PEEK or 0
 *
 * Return: bytes of @buf; -KFI_EAGAIN there is none.
 */
static inline ssize_t kfi_eq_readerr(struct kfid_eq *eq,
				     struct kfi_eq_err_entry *buf, u64 flags)
{
	return eq->ops->readerr(eq, buf, flags);
}

/**
 * kfi_eq_write() - put an event into a queue that has KFI_WRITE
 * @eq: the queue
 * @event: its number
 * @buf: its data
 * @len: bytes of the data
 * @flags: 0
 *
 * Return: @len; -KFI_EINVAL no KFI_WRITE, or too long; -KFI_EAGAIN no room.
 */
static inline ssize_t kfi_eq_write(struct kfid_eq *eq, u32 event,
				   const void *buf, size_t len, u64 flags)
{
	return eq->ops->write(eq, event, buf, len, flags);
}

/**
 * kfi_eq_sread() - wait for an event and take it
 * @eq: the queue
 * @event: where the event's number is stored
 * @buf: where its data are stored
 * @len: room in @buf, bytes
 * @timeout: milliseconds; negative: without limit; 0: as kfi_eq_read(), also
 *	with KFI_WAIT_NONE and KFI_WAIT_SET
 * @flags: KFI_PEEK or 0
 *
 * Return: as kfi_eq_read(), -KFI_EAGAIN only if @timeout is 0;
 *	-KFI_ETIMEDOUT; -EINTR; -KFI_EINVAL a wait with KFI_WAIT_NONE or
 *	KFI_WAIT_SET; -KFI_ENOSPC 1,024 tasks sleep in such calls.
 */
static inline ssize_t kfi_eq_sread(struct kfid_eq *eq, u32 *event, void *buf,
				   size_t len, int timeout, u64 flags)
{
	return eq->ops->sread(eq, event, buf, len, timeout, flags);
}

/**
 * kfi_eq_strerror() - the meaning of a provider's error number
 * @eq: the queue
 * @prov_errno: prov_errno of the error event
 * @err_data: err_data of the error event
 * @buf: where the text is stored too, or NULL
 * @len: room in @buf, bytes
 *
 * Context: Any.
 * Return: the text, which is never freed.
 */
static inline const char *kfi_eq_strerror(struct kfid_eq *eq, int prov_errno,
					  const void *err_data, char *buf,
					  size_t len)
{
	return eq->ops->strerror(eq, prov_errno, err_data, buf, len);
}

#endif /* _KFI_EQ_H */
