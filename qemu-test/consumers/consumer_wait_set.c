// SPDX-License-Identifier: GPL-2.0
/*
 * Wait sets of queues: what signals them, and who may wait (fi_poll(3)).
 */

#include <linux/sched/signal.h>
#include <linux/wait.h>

#include "pair.h"

/* An event of the consumer's own. */
#define MINE		1000
#define RECEIVED	(KFI_MSG | KFI_RECV)

/**
 * struct members - a wait set and an object of each kind that uses it
 * @f: the domain
 * @set: the wait set
 * @cq: completions of @ends[1]
 * @eq: holds events of the consumer
 * @cntr: counts what the consumer adds
 * @alone: an event queue that does not use it
 * @ends: two endpoints; the CQ of the first does not use it, the second has @cq
 */
struct members {
	struct fixture		f;
	struct kfid_wait	*set;
	struct kfid_cq		*cq;
	struct kfid_eq		*eq;
	struct kfid_cntr	*cntr;
	struct kfid_eq		*alone;
	struct end		ends[2];
};

static void members_open(struct kunit *test, struct members *m, enum kfi_wait_obj wait_obj)
{
	struct kfi_wait_attr attr = { .wait_obj = wait_obj };
	struct kfi_cq_attr cq = { .format = KFI_CQ_FORMAT_TAGGED, .wait_obj = KFI_WAIT_SET };
	struct kfi_eq_attr eq = { .flags = KFI_WRITE, .wait_obj = KFI_WAIT_SET };
	struct kfi_info *info;
	struct end *end;

	fixture_open(test, &m->f);
	KUNIT_ASSERT_EQ(test, kfi_wait_open(m->f.fabric, &attr, &m->set), 0);
	cq.wait_set = m->set;
	eq.wait_set = m->set;
	KUNIT_ASSERT_EQ(test, kfi_cq_open(m->f.domain, &cq, &m->cq, NULL, NULL), 0);
	KUNIT_ASSERT_EQ(test, kfi_eq_open(m->f.fabric, &eq, &m->eq, NULL, NULL), 0);
	eq.wait_obj = KFI_WAIT_UNSPEC;
	KUNIT_ASSERT_EQ(test, kfi_eq_open(m->f.fabric, &eq, &m->alone, NULL, NULL), 0);
	m->cntr = open_cntr(test, &m->f, KFI_WAIT_SET, m->set, NULL);
	info = entry_of(test, KFI_EP_RDM);
	end_open_enabled(test, &m->f, info, &m->ends[0]);
	end = &m->ends[1];
	KUNIT_ASSERT_EQ(test, kfi_endpoint(m->f.domain, info, &end->ep, NULL), 0);
	KUNIT_ASSERT_EQ(test, kfi_av_open(m->f.domain, NULL, &end->av, NULL), 0);
	KUNIT_ASSERT_EQ(test, kfi_ep_bind(end->ep, &end->av->fid, 0), 0);
	KUNIT_ASSERT_EQ(test, kfi_ep_bind(end->ep, &m->cq->fid, KFI_TRANSMIT | KFI_RECV), 0);
	KUNIT_ASSERT_EQ(test, kfi_enable(end->ep), 0);
	kfi_freeinfo(info);
	end_knows(test, &m->ends[0], end);
}

static void members_close(struct kunit *test, struct members *m)
{
	end_close(test, &m->ends[0]);
	CLOSE(test, &m->ends[1].ep->fid, &m->ends[1].av->fid, &m->cq->fid);
	KUNIT_EXPECT_EQ(test, kfi_close(&m->set->kfid), -KFI_EBUSY);
	CLOSE(test, &m->eq->fid, &m->alone->fid, &m->cntr->fid, &m->set->kfid);
	fixture_close(test, &m->f);
}

/* A completion, an error, an event, a value and an error value, each by itself. */
static void each_kind_of_member_signals(struct kunit *test)
{
	u8 *to = zeroed(test, 8);
	struct kfi_cq_err_entry error = {};
	struct kfi_cq_tagged_entry entry = {};
	struct members m;
	u32 event = 0;

	members_open(test, &m, KFI_WAIT_UNSPEC);
	KUNIT_EXPECT_EQ(test, kfi_wait(m.set, 0), -KFI_ETIMEDOUT);
	KUNIT_EXPECT_EQ(test, kfi_recv(m.ends[1].ep, to, 8, NULL, KFI_ADDR_UNSPEC, to), 0);
	/* To post an operation is no event. */
	KUNIT_EXPECT_EQ(test, kfi_wait(m.set, 1), -KFI_ETIMEDOUT);
	KUNIT_EXPECT_EQ(test, kfi_inject(m.ends[0].ep, "wake", 5, m.ends[0].peer), 0);
	KUNIT_EXPECT_EQ(test, kfi_wait(m.set, LONG), 0);
	KUNIT_EXPECT_EQ(test, kfi_cq_read(m.cq, &entry, 1), 1);
	KUNIT_EXPECT_PTR_EQ(test, entry.op_context, (void *)to);
	KUNIT_EXPECT_EQ(test, entry.flags, RECEIVED);
	KUNIT_EXPECT_EQ(test, kfi_wait(m.set, 0), -KFI_ETIMEDOUT);
	KUNIT_EXPECT_EQ(test, kfi_recv(m.ends[1].ep, to, 8, NULL, KFI_ADDR_UNSPEC, to), 0);
	KUNIT_EXPECT_EQ(test, kfi_cancel(&m.ends[1].ep->fid, to), 0);
	KUNIT_EXPECT_EQ(test, kfi_wait(m.set, LONG), 0);
	KUNIT_EXPECT_EQ(test, kfi_cq_read(m.cq, &entry, 1), -KFI_EAVAIL);
	KUNIT_EXPECT_EQ(test, kfi_cq_readerr(m.cq, &error, 0), 1);
	KUNIT_EXPECT_EQ(test, error.err, KFI_ECANCELED);
	KUNIT_EXPECT_EQ(test, kfi_wait(m.set, 0), -KFI_ETIMEDOUT);
	KUNIT_EXPECT_EQ(test, kfi_eq_write(m.eq, MINE, NULL, 0, 0), 0);
	KUNIT_EXPECT_EQ(test, kfi_wait(m.set, LONG), 0);
	KUNIT_EXPECT_EQ(test, kfi_eq_read(m.eq, &event, NULL, 0, 0), 0);
	KUNIT_EXPECT_EQ(test, event, MINE);
	KUNIT_EXPECT_EQ(test, kfi_cntr_add(m.cntr, 1), 0);
	KUNIT_EXPECT_EQ(test, kfi_wait(m.set, LONG), 0);
	KUNIT_EXPECT_EQ(test, kfi_cntr_adderr(m.cntr, 1), 0);
	KUNIT_EXPECT_EQ(test, kfi_wait(m.set, LONG), 0);
	KUNIT_EXPECT_EQ(test, kfi_wait(m.set, 0), -KFI_ETIMEDOUT);
	members_close(test, &m);
}

/* Calls that wait. */

static int wait_for_set(struct members *m, int timeout)
{
	return kfi_wait(m->set, timeout);
}

static int wait_for_entry(struct members *m, int timeout)
{
	struct kfi_cq_tagged_entry entry;

	return kfi_cq_sread(m->ends[0].cq, &entry, 1, NULL, timeout);
}

static int wait_for_event(struct members *m, int timeout)
{
	u32 event;

	return kfi_eq_sread(m->alone, &event, NULL, 0, timeout, 0);
}

/**
 * struct waiter - a thread inside of a call that waits
 * @m: what it waits for
 * @wait: the call
 * @timeout: its timeout, milliseconds
 * @call: of the thread
 */
struct waiter {
	struct members		*m;
	int			(*wait)(struct members *m, int timeout);
	int			timeout;
	struct call		call;
};

static int wait_in_call(void *data)
{
	struct waiter *it = data;
	int ret;

	allow_signal(SIGUSR1);
	ret = it->wait(it->m, it->timeout);
	flush_signals(current);
	return ret;
}

/* Two threads wait: each event is for one of them, and none is lost. */
static void each_waiter_takes_a_signal(struct kunit *test)
{
	struct waiter *both = zeroed(test, 2 * sizeof(*both));
	struct members m;
	int i, rest;

	members_open(test, &m, KFI_WAIT_QUEUE);
	for (i = 0; i < 2; i++) {
		both[i].m = &m;
		both[i].wait = wait_for_set;
		both[i].timeout = LONG;
		call_begin(test, &both[i].call, wait_in_call, &both[i]);
	}
	msleep(20);
	/* A set that is waited on is in use. */
	KUNIT_EXPECT_EQ(test, kfi_close(&m.set->kfid), -KFI_EBUSY);
	KUNIT_EXPECT_EQ(test, kfi_cntr_add(m.cntr, 1), 0);
	for (i = 0; i < LONG / 20; i++) {
		if (completion_done(&both[0].call.done) || completion_done(&both[1].call.done))
			break;
		msleep(20);
	}
	msleep(20);
	rest = completion_done(&both[0].call.done);
	KUNIT_EXPECT_FALSE(test, completion_done(&both[rest].call.done));
	KUNIT_EXPECT_EQ(test, kfi_eq_write(m.eq, MINE, NULL, 0, 0), 0);
	call_ends(test, &both[0].call, 0);
	call_ends(test, &both[1].call, 0);
	members_close(test, &m);
}

/* A wait ends with a signal to the task, and with its time. */
static void waits_end(struct kunit *test)
{
	static int (* const calls[])(struct members *m, int timeout) = {
		wait_for_set, wait_for_entry, wait_for_event,
	};
	/* fi_cq(3) says so of fi_cq_sread(). */
	static const int late[] = { -KFI_ETIMEDOUT, -KFI_EAGAIN, -KFI_ETIMEDOUT };
	struct waiter *it = zeroed(test, sizeof(*it));
	struct task_struct *task;
	struct members m;
	int i;

	members_open(test, &m, KFI_WAIT_UNSPEC);
	it->m = &m;
	for (i = 0; i < ARRAY_SIZE(calls); i++) {
		it->wait = calls[i];
		it->timeout = -1;
		task = call_begin(test, &it->call, wait_in_call, it);
		msleep(20);
		KUNIT_EXPECT_FALSE(test, completion_done(&it->call.done));
		send_sig(SIGUSR1, task, 1);
		call_ends(test, &it->call, -EINTR);
		it->timeout = 30;
		call_begin(test, &it->call, wait_in_call, it);
		call_ends(test, &it->call, late[i]);
	}
	/* What comes afterwards is for the next one. */
	KUNIT_EXPECT_EQ(test, kfi_cntr_add(m.cntr, 1), 0);
	KUNIT_EXPECT_EQ(test, kfi_wait(m.set, -1), 0);
	members_close(test, &m);
}

/* A message that is sent where the sender may not sleep. */
struct later {
	struct timer_list	timer;
	struct end		*from;
	ssize_t			result;
};

static void send_later(struct timer_list *timer)
{
	struct later *later = container_of(timer, struct later, timer);

	later->result = kfi_inject(later->from->ep, "late", 5, later->from->peer);
}

/* The wait queue of a set is woken for conditions of the consumer's own. */
static void the_queue_of_a_set_is_woken(struct kunit *test)
{
	struct later *later = zeroed(test, sizeof(*later));
	u8 *to = zeroed(test, 8);
	struct kfi_cq_tagged_entry entry;
	wait_queue_head_t *queue = NULL;
	struct members m;
	int i;

	members_open(test, &m, KFI_WAIT_QUEUE);
	KUNIT_ASSERT_EQ(test, kfi_control(&m.set->kfid, KFI_GETWAIT, &queue), 0);
	later->from = &m.ends[0];
	timer_setup(&later->timer, send_later, 0);
	for (i = 0; i < 10; i++) {
		KUNIT_EXPECT_EQ(test, kfi_recv(m.ends[1].ep, to, 8, NULL, KFI_ADDR_UNSPEC, to),
				0);
		later->result = 1;
		mod_timer(&later->timer, jiffies + 1);
		KUNIT_EXPECT_NE(test, wait_event_timeout(*queue,
							 kfi_cq_read(m.cq, &entry, 1) == 1,
							 msecs_to_jiffies(LONG)), 0);
		KUNIT_EXPECT_EQ(test, later->result, 0);
	}
	timer_delete_sync(&later->timer);
	members_close(test, &m);
}

CONSUMER("wait sets of queues",
	 KUNIT_CASE(each_kind_of_member_signals),
	 KUNIT_CASE(each_waiter_takes_a_signal),
	 KUNIT_CASE(waits_end),
	 KUNIT_CASE(the_queue_of_a_set_is_woken));
