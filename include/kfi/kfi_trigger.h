/* SPDX-License-Identifier: GPL-2.0 */
/*
 * Triggered operations and deferred work.
 *
 * A triggered operation is an operation with the flag KFI_TRIGGER, whose context
 * points to a struct kfi_triggered_context (or ..._context2).  Deferred work is
 * queued, cancelled and flushed by kfi_control() of a domain with KFI_QUEUE_WORK,
 * KFI_CANCEL_WORK and KFI_FLUSH_WORK.  Either starts when a counter reaches a
 * threshold.
 *
 * If KFI_TRIGGER is a default flag of an endpoint, or of an alias
 * (kfi_ep_alias()), all its operations are triggered, apart from those of calls
 * that take flags, such as kfi_sendmsg(), where the flag decides.  kfi_inject()
 * and its like name no condition: they fail with -KFI_ENOSYS there.
 *
 * Both need process context.  An operation with KFI_TRIGGER fails with
 * -KFI_EOPNOTSUPP where its caller may not sleep.  A kernel without a count of
 * preemption (CONFIG_PREEMPT_COUNT) cannot tell that, so there it always fails;
 * deferred work does not.  The bytes of a send are read when it starts, unless it
 * has KFI_INJECT.
 *
 * Source: fi_trigger(3).
 */
#ifndef _KFI_TRIGGER_H
#define _KFI_TRIGGER_H

#include "kfi_atomic.h"
#include "kfi_endpoint.h"
#include "kfi_rma.h"
#include "kfi_tagged.h"

/**
 * enum kfi_trigger_event - what starts a triggered operation
 * @KFI_TRIGGER_THRESHOLD: a counter that reaches a threshold
 */
enum kfi_trigger_event {
	KFI_TRIGGER_THRESHOLD	= 0,
};

/**
 * enum kfi_op_type - kinds of deferred work
 * @KFI_OP_RECV: receive
 * @KFI_OP_SEND: send
 * @KFI_OP_TRECV: tagged receive
 * @KFI_OP_TSEND: tagged send
 * @KFI_OP_READ: RMA read
 * @KFI_OP_WRITE: RMA write
 * @KFI_OP_ATOMIC: atomic
 * @KFI_OP_FETCH_ATOMIC: fetching atomic
 * @KFI_OP_COMPARE_ATOMIC: comparing atomic
 * @KFI_OP_CNTR_SET: set a counter
 * @KFI_OP_CNTR_ADD: add to a counter
 */
enum kfi_op_type {
	KFI_OP_RECV		= 0,
	KFI_OP_SEND		= 1,
	KFI_OP_TRECV		= 2,
	KFI_OP_TSEND		= 3,
	KFI_OP_READ		= 4,
	KFI_OP_WRITE		= 5,
	KFI_OP_ATOMIC		= 6,
	KFI_OP_FETCH_ATOMIC	= 7,
	KFI_OP_COMPARE_ATOMIC	= 8,
	KFI_OP_CNTR_SET		= 9,
	KFI_OP_CNTR_ADD		= 10,
};

/**
 * struct kfi_trigger_threshold - a counter and its threshold
 * @cntr: the counter
 * @threshold: the value to reach
 */
struct kfi_trigger_threshold {
	struct kfid_cntr	*cntr;
	size_t			threshold;
};

/**
 * struct kfi_triggered_context - context of a triggered operation
 * @event_type: what starts it
 * @trigger: the counter and its threshold
 *
 * Valid until the operation completes; the completion's context points to it.
 */
struct kfi_triggered_context {
	enum kfi_trigger_event	event_type;
	union {
		struct kfi_trigger_threshold	threshold;
		void				*internal[3];
	} trigger;
};

/**
 * struct kfi_triggered_context2 - the same with the mode KFI_CONTEXT2
 * @event_type: what starts it
 * @trigger: the counter and its threshold
 */
struct kfi_triggered_context2 {
	enum kfi_trigger_event	event_type;
	union {
		struct kfi_trigger_threshold	threshold;
		void				*internal[7];
	} trigger;
};

/**
 * struct kfi_op_msg - deferred KFI_OP_SEND, KFI_OP_RECV
 * @ep: the endpoint
 * @msg: as kfi_sendmsg(), kfi_recvmsg()
 * @flags: flags of the operation
 */
struct kfi_op_msg {
	struct kfid_ep	*ep;
	struct kfi_msg	msg;
	u64		flags;
};

/**
 * struct kfi_op_tagged - deferred KFI_OP_TSEND, KFI_OP_TRECV
 * @ep: the endpoint
 * @msg: as kfi_tsendmsg(), kfi_trecvmsg()
 * @flags: flags of the operation
 */
struct kfi_op_tagged {
	struct kfid_ep		*ep;
	struct kfi_msg_tagged	msg;
	u64			flags;
};

/**
 * struct kfi_op_rma - deferred KFI_OP_READ, KFI_OP_WRITE
 * @ep: the endpoint
 * @msg: as kfi_readmsg(), kfi_writemsg()
 * @flags: flags of the operation
 */
struct kfi_op_rma {
	struct kfid_ep		*ep;
	struct kfi_msg_rma	msg;
	u64			flags;
};

/**
 * struct kfi_op_atomic - deferred KFI_OP_ATOMIC
 * @ep: the endpoint
 * @msg: as kfi_atomicmsg()
 * @flags: flags of the operation
 */
struct kfi_op_atomic {
	struct kfid_ep		*ep;
	struct kfi_msg_atomic	msg;
	u64			flags;
};

/**
 * struct kfi_op_fetch_atomic - deferred KFI_OP_FETCH_ATOMIC
 * @ep: the endpoint
 * @msg: as kfi_fetch_atomicmsg()
 * @fetch: where the old values are stored
 * @flags: flags of the operation
 */
struct kfi_op_fetch_atomic {
	struct kfid_ep		*ep;
	struct kfi_msg_atomic	msg;
	struct kfi_msg_fetch	fetch;
	u64			flags;
};

/**
 * struct kfi_op_compare_atomic - deferred KFI_OP_COMPARE_ATOMIC
 * @ep: the endpoint
 * @msg: as kfi_compare_atomicmsg()
 * @fetch: where the old values are stored
 * @compare: what they are compared with
 * @flags: flags of the operation
 */
struct kfi_op_compare_atomic {
	struct kfid_ep		*ep;
	struct kfi_msg_atomic	msg;
	struct kfi_msg_fetch	fetch;
	struct kfi_msg_compare	compare;
	u64			flags;
};

/**
 * struct kfi_op_cntr - deferred KFI_OP_CNTR_SET, KFI_OP_CNTR_ADD
 * @cntr: the counter
 * @value: to set or to add
 */
struct kfi_op_cntr {
	struct kfid_cntr	*cntr;
	u64			value;
};

/**
 * struct kfi_deferred_work - deferred work
 * @context: the provider's
 * @threshold: the value to reach, of successes and errors
 * @triggering_cntr: the counter that starts it
 * @completion_cntr: counts its completion, or NULL
 * @op_type: kind of the operation
 * @op: the operation
 *
 * It stays as it is until the work has completed or is cancelled.  The work may
 * complete before the call that queues it returns, and the structure may be
 * freed then.  KFI_CANCEL_WORK finds the work by @triggering_cntr, @threshold
 * and @context: -KFI_ENOENT for a work that does not wait, also for one that was
 * never queued, if @context was zeroed or the call that queues it has failed.
 *
 * KFI_QUEUE_WORK returns 0; -KFI_EINVAL for an object of another domain or class,
 * a @completion_cntr of a change of a counter, or an argument that is not valid;
 * -KFI_ENOSYS for an operation that the endpoint does not have or that has no
 * single completion (KFI_MULTI_RECV, KFI_PEEK, KFI_CLAIM, KFI_DISCARD), and for
 * one of a shared receive context; -KFI_ENOSPC if 131,072 works and triggered
 * operations wait in the domain; -KFI_EOPBADSTATE if the endpoint is not enabled;
 * -KFI_ENOMEM.  KFI_FLUSH_WORK returns 0, or -KFI_EINVAL for a counter of another
 * domain.
 */
struct kfi_deferred_work {
	struct kfi_context2	context;
	u64			threshold;
	struct kfid_cntr	*triggering_cntr;
	struct kfid_cntr	*completion_cntr;
	enum kfi_op_type	op_type;
	union {
		struct kfi_op_msg		*msg;
		struct kfi_op_tagged		*tagged;
		struct kfi_op_rma		*rma;
		struct kfi_op_atomic		*atomic;
		struct kfi_op_fetch_atomic	*fetch_atomic;
		struct kfi_op_compare_atomic	*compare_atomic;
		struct kfi_op_cntr		*cntr;
	} op;
};

#endif /* _KFI_TRIGGER_H */
