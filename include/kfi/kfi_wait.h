/* SPDX-License-Identifier: GPL-2.0 */
/*
 * Wait objects, wait sets and poll sets.  kfi_eq.h includes this file.
 *
 * Timeouts are in milliseconds.  0 does not wait, a negative one is infinite.
 * A signal of the task ends a wait with -EINTR.  A wait may take longer than
 * its timeout, and never ends earlier without a cause.
 *
 * Sources: fi_poll(3), kfi_cntr(3).
 */
#ifndef _KFI_WAIT_H
#define _KFI_WAIT_H

#include "kfabric.h"

/**
 * enum kfi_wait_obj - how waiters of an object are told
 * @KFI_WAIT_NONE: nobody waits
 * @KFI_WAIT_UNSPEC: by the calls of kfabric only
 * @KFI_WAIT_SET: by a wait set
 * @KFI_WAIT_QUEUE: by a wait_queue_head_t, which KFI_GETWAIT returns
 */
enum kfi_wait_obj {
	KFI_WAIT_NONE	= 0,
	KFI_WAIT_UNSPEC	= 1,
	KFI_WAIT_SET	= 2,
	KFI_WAIT_QUEUE	= 3,
};

/* ---- Wait sets ----------------------------------------------------------- */

/**
 * struct kfi_wait_attr - a wait set
 * @wait_obj: KFI_WAIT_UNSPEC or KFI_WAIT_QUEUE
 * @flags: 0
 */
struct kfi_wait_attr {
	enum kfi_wait_obj	wait_obj;
	u64			flags;
};

/**
 * struct kfi_ops_wait - operations of wait sets
 * @size: sizeof(struct kfi_ops_wait)
 * @wait: see kfi_wait()
 */
struct kfi_ops_wait {
	size_t	size;
	int	(*wait)(struct kfid_wait *waitset, int timeout);
};

/**
 * struct kfid_wait - a wait set: one wait object for several queues and counters
 * @kfid: head
 * @ops: operations
 */
struct kfid_wait {
	struct kfid		kfid;
	struct kfi_ops_wait	*ops;
};

/**
 * kfi_wait() - wait until a member of a wait set signals
 * @waitset: the wait set
 * @timeout: milliseconds
 *
 * A queue signals when an entry or an error arrives, a counter when one of its
 * values changes.  One waiter takes a signal; it then looks at all members.
 *
 * Return: 0; -KFI_ETIMEDOUT; -EINTR.
 */
static inline int kfi_wait(struct kfid_wait *waitset, int timeout)
{
	return waitset->ops->wait(waitset, timeout);
}

/* ---- Poll sets ----------------------------------------------------------- */

/**
 * struct kfi_poll_attr - a poll set
 * @flags: 0
 */
struct kfi_poll_attr {
	u64	flags;
};

/**
 * struct kfi_ops_poll - operations of poll sets
 * @size: sizeof(struct kfi_ops_poll)
 * @poll: see kfi_poll()
 * @poll_add: see kfi_poll_add()
 * @poll_del: see kfi_poll_del()
 */
struct kfi_ops_poll {
	size_t	size;
	int	(*poll)(struct kfid_poll *pollset, void **context, int count);
	int	(*poll_add)(struct kfid_poll *pollset, struct kfid *event_kfid,
			    u64 flags);
	int	(*poll_del)(struct kfid_poll *pollset, struct kfid *event_kfid,
			    u64 flags);
};

/**
 * struct kfid_poll - a poll set: queues and counters that are polled by one call
 * @fid: head
 * @ops: operations
 *
 * kfi_close() of a poll set with members, and of a member, returns -KFI_EBUSY:
 * the members are removed first.
 */
struct kfid_poll {
	struct kfid		fid;
	struct kfi_ops_poll	*ops;
};

/**
 * kfi_poll() - the members of a poll set that are ready
 * @pollset: the poll set
 * @context: where the contexts of the ready members are stored
 * @count: room in @context
 *
 * A completion queue is ready with an entry or an error entry, a counter with
 * values other than at the last poll.
 *
 * Return: the number of contexts; -KFI_EINVAL if @count is not positive.
 */
static inline int kfi_poll(struct kfid_poll *pollset, void **context, int count)
{
	return pollset->ops->poll(pollset, context, count);
}

/**
 * kfi_poll_add() - add a completion queue or a counter to a poll set
 * @pollset: the poll set
 * @event_kfid: the object, of the same domain
 * @flags: 0
 *
 * Return: 0; -KFI_EINVAL another class, another domain, or flags; -EEXIST it is
 *	a member; -KFI_ENOSPC; -KFI_ENOMEM.
 */
static inline int kfi_poll_add(struct kfid_poll *pollset,
			       struct kfid *event_kfid, u64 flags)
{
	return pollset->ops->poll_add(pollset, event_kfid, flags);
}

/**
 * kfi_poll_del() - remove an object from a poll set
 * @pollset: the poll set
 * @event_kfid: the object
 * @flags: 0
 *
 * Return: 0; -KFI_ENOENT it is not a member; -KFI_EINVAL flags.
 */
static inline int kfi_poll_del(struct kfid_poll *pollset,
			       struct kfid *event_kfid, u64 flags)
{
	return pollset->ops->poll_del(pollset, event_kfid, flags);
}

#endif /* _KFI_WAIT_H */
