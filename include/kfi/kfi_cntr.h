/* SPDX-License-Identifier: GPL-2.0 */
/*
 * Counters.  kfi_eq.h includes this file; kfi_domain.h has kfi_cntr_open().
 *
 * A counter has two values of 64 bits: the operations that succeeded, and those
 * that failed.  Timeouts are those of kfi_wait.h.  Source: kfi_cntr(3).
 */
#ifndef _KFI_CNTR_H
#define _KFI_CNTR_H

#include "kfi_wait.h"

/**
 * enum kfi_cntr_events - what a counter counts
 * @KFI_CNTR_EVENTS_COMP: completions of the objects to which it is bound
 */
enum kfi_cntr_events {
	KFI_CNTR_EVENTS_COMP	= 0,
};

/**
 * struct kfi_cntr_attr - a counter
 * @events: what it counts
 * @wait_obj: how waiters are told
 * @wait_set: the wait set, with KFI_WAIT_SET; else ignored
 * @flags: 0
 */
struct kfi_cntr_attr {
	enum kfi_cntr_events	events;
	enum kfi_wait_obj	wait_obj;
	struct kfid_wait	*wait_set;
	u64			flags;
};

/**
 * struct kfi_ops_cntr - operations of counters
 * @size: sizeof(struct kfi_ops_cntr)
 * @read: see kfi_cntr_read()
 * @readerr: see kfi_cntr_readerr()
 * @add: see kfi_cntr_add()
 * @set: see kfi_cntr_set()
 * @wait: see kfi_cntr_wait()
 * @adderr: see kfi_cntr_adderr()
 * @seterr: see kfi_cntr_seterr()
 */
struct kfi_ops_cntr {
	size_t	size;
	u64	(*read)(struct kfid_cntr *cntr);
	u64	(*readerr)(struct kfid_cntr *cntr);
	int	(*add)(struct kfid_cntr *cntr, u64 value);
	int	(*set)(struct kfid_cntr *cntr, u64 value);
	int	(*wait)(struct kfid_cntr *cntr, u64 threshold, int timeout);
	int	(*adderr)(struct kfid_cntr *cntr, u64 value);
	int	(*seterr)(struct kfid_cntr *cntr, u64 value);
};

/**
 * struct kfid_cntr - a counter
 * @fid: head
 * @ops: operations
 */
struct kfid_cntr {
	struct kfid		fid;
	struct kfi_ops_cntr	*ops;
};

/**
 * kfi_cntr_control() - a command to a counter
 * @cntr: the counter
 * @command: KFI_GETWAIT, KFI_GETOPSFLAG or KFI_SETOPSFLAG
 * @arg: its argument, see kfi_control()
 *
 * Context: Process, may sleep.
 * Return: as kfi_control().
 */
static inline int kfi_cntr_control(struct kfid_cntr *cntr, int command,
				   void *arg)
{
	return cntr->fid.ops->control(&cntr->fid, command, arg);
}

/**
 * kfi_cntr_read() - the number of operations that succeeded
 * @cntr: the counter
 *
 * Context: Any.
 * Return: the value.
 */
static inline u64 kfi_cntr_read(struct kfid_cntr *cntr)
{
	return cntr->ops->read(cntr);
}

/**
 * kfi_cntr_readerr() - the number of operations that failed
 * @cntr: the counter
 *
 * Context: Any.
 * Return: the value.
 */
static inline u64 kfi_cntr_readerr(struct kfid_cntr *cntr)
{
	return cntr->ops->readerr(cntr);
}

/**
 * kfi_cntr_add() - add to the value
 * @cntr: the counter
 * @value: what is added; the sum wraps at 2^64
 *
 * The value has changed when the call returns.
 *
 * Context: Any but NMIs; a waiter that is due is woken as by kfi_cntr_adderr().
 * Return: 0.
 */
static inline int kfi_cntr_add(struct kfid_cntr *cntr, u64 value)
{
	return cntr->ops->add(cntr, value);
}

/**
 * kfi_cntr_adderr() - add to the error value
 * @cntr: the counter
 * @value: what is added; 0 is no change of the value
 *
 * The value has changed when the call returns.  A change ends all waits of
 * kfi_cntr_wait().
 *
 * Context: Any but hard interrupts and NMIs, also with interrupts disabled.
 *	Where the lock of the waiters must not be taken (in softirqs, and with
 *	these or interrupts disabled) a worker wakes the waiters and starts the
 *	deferred work soon after.
 * Return: 0; -KFI_EOPNOTSUPP a hard interrupt; -KFI_ENOSYS a provider of an
 *	older version.
 */
static inline int kfi_cntr_adderr(struct kfid_cntr *cntr, u64 value)
{
	return KFI_CHECK_OP(cntr->ops, struct kfi_ops_cntr, adderr) ?
		cntr->ops->adderr(cntr, value) : -KFI_ENOSYS;
}

/**
 * kfi_cntr_set() - set the value
 * @cntr: the counter
 * @value: the new value
 *
 * The value has changed when the call returns.  Waiters and deferred work whose
 * threshold was reached before or by it are released, also if the new value is
 * lower; those that come later are not.
 *
 * Context: As kfi_cntr_adderr().
 * Return: 0; -KFI_EOPNOTSUPP a hard interrupt.
 */
static inline int kfi_cntr_set(struct kfid_cntr *cntr, u64 value)
{
	return cntr->ops->set(cntr, value);
}

/**
 * kfi_cntr_seterr() - set the error value
 * @cntr: the counter
 * @value: the new value
 *
 * The value has changed when the call returns.  A change ends all waits of
 * kfi_cntr_wait().
 *
 * Context: Any but hard interrupts and NMIs, also with interrupts disabled.
 *	Where the lock of the waiters must not be taken (in softirqs, and with
 *	these or interrupts disabled) a worker wakes the waiters and starts the
 *	deferred work soon after.
 * Return: 0; -KFI_EOPNOTSUPP a hard interrupt; -KFI_ENOSYS a provider of an
 *	older version.
 */
static inline int kfi_cntr_seterr(struct kfid_cntr *cntr, u64 value)
{
	return KFI_CHECK_OP(cntr->ops, struct kfi_ops_cntr, seterr) ?
		cntr->ops->seterr(cntr, value) : -KFI_ENOSYS;
}

/**
 * kfi_cntr_wait() - wait until the value reaches a threshold
 * @cntr: the counter
 * @threshold: the value to reach
 * @timeout: milliseconds; 0: do not wait; negative: without limit
 *
 * A change of the error value ends the wait; errors that were there before do
 * not.
 *
 * Return: 0: the threshold was reached; -KFI_EAVAIL the error value changed;
 *	-KFI_ETIMEDOUT; -EINTR; -KFI_EINVAL a wait with KFI_WAIT_NONE;
 *	-KFI_ENOSPC 1,024 tasks wait for the counter.
 */
static inline int kfi_cntr_wait(struct kfid_cntr *cntr, u64 threshold,
				int timeout)
{
	return cntr->ops->wait(cntr, threshold, timeout);
}

#endif /* _KFI_CNTR_H */
