// SPDX-License-Identifier: GPL-2.0
/*
 * Triggered operations and deferred work.
 */

#include <linux/spinlock.h>
#include <linux/uio.h>

#include <kfi/kfi_trigger.h>

#include "pair.h"

#define SENT		(KFI_MSG | KFI_SEND)
#define RECEIVED	(KFI_MSG | KFI_RECV)
#define ROOM		PAGE_SIZE

/**
 * struct world - what the tests of this file share
 * @f: the domain
 * @ends: two endpoints
 * @trigger: the counter that starts operations
 * @from: a page to send
 * @to: a page to receive into
 */
struct world {
	struct fixture		f;
	struct end		ends[2];
	struct kfid_cntr	*trigger;
	u8			*from;
	u8			*to;
};

static void world_open(struct kunit *test, struct world *w)
{
	pair_open(test, &w->f, KFI_EP_RDM, w->ends);
	w->trigger = open_cntr(test, &w->f, KFI_WAIT_UNSPEC, NULL, NULL);
	w->from = zeroed_page(test);
	w->to = zeroed_page(test);
}

static void world_close(struct kunit *test, struct world *w)
{
	KUNIT_EXPECT_EQ(test, kfi_close(&w->trigger->fid), 0);
	pair_close(test, &w->f, w->ends);
}

/* A send waits for its counter, and its bytes are those of then. */
static void a_triggered_send_waits(struct kunit *test)
{
	struct kfi_triggered_context when = { .event_type = KFI_TRIGGER_THRESHOLD };
	struct kvec iov;
	struct kfi_msg msg = { .type = KFI_KVEC, .msg_iov = &iov, .iov_count = 1 };
	u64 defaults = KFI_TRANSMIT | KFI_TRIGGER | KFI_COMPLETION;
	struct world w;

	world_open(test, &w);
	iov = (struct kvec) { w.from, 8 };
	msg.addr = w.ends[0].peer;
	msg.context = &when;
	when.trigger.threshold.cntr = w.trigger;
	when.trigger.threshold.threshold = 2;
	KUNIT_EXPECT_EQ(test, kfi_recv(w.ends[1].ep, w.to, ROOM, NULL, 0, w.to), 0);
	KUNIT_EXPECT_EQ(test, kfi_sendmsg(w.ends[0].ep, &msg, KFI_TRIGGER | KFI_COMPLETION), 0);
	KUNIT_EXPECT_EQ(test, kfi_close(&w.trigger->fid), -KFI_EBUSY);
	kfi_cntr_add(w.trigger, 1);
	nothing(test, &w.ends[0]);
	memset(w.from, 'n', 8);
	kfi_cntr_add(w.trigger, 1);
	completed(test, &w.ends[1], w.to, RECEIVED, 8);
	completed(test, &w.ends[0], &when, SENT, 8);
	KUNIT_EXPECT_EQ(test, w.to[0], 'n');
	/* By the default flags, and cancelled. */
	when.trigger.threshold.threshold = 3;
	KUNIT_EXPECT_EQ(test, kfi_control(&w.ends[0].ep->fid, KFI_SETOPSFLAG, &defaults), 0);
	KUNIT_EXPECT_EQ(test, kfi_send(w.ends[0].ep, w.from, 8, NULL, msg.addr, &when), 0);
	KUNIT_EXPECT_EQ(test, kfi_cancel(&w.ends[0].ep->fid, &when), 0);
	failed(test, &w.ends[0], &when, KFI_ECANCELED);
	nothing(test, &w.ends[1]);
	world_close(test, &w);
}

/*
 * A consumer that always has the larger structure uses it in place of the smaller one. No
 * entry has the mode KFI_CONTEXT2, and nothing is stored in the structure.
 */
static void a_larger_context_triggers(struct kunit *test)
{
	struct kfi_triggered_context2 when = { .event_type = KFI_TRIGGER_THRESHOLD };
	struct kfi_triggered_context2 before;
	struct kfi_info *hints = kfi_allocinfo(), *info;
	struct kvec iov;
	struct kfi_msg msg = { .type = KFI_KVEC, .msg_iov = &iov, .iov_count = 1 };
	struct world w;

	KUNIT_ASSERT_NOT_NULL(test, hints);
	hints->mode = KFI_CONTEXT | KFI_CONTEXT2;
	hints->caps = KFI_TRIGGER | KFI_MSG;
	KUNIT_ASSERT_EQ(test, kfi_getinfo(0, NULL, NULL, 0, hints, &info), 0);
	KUNIT_EXPECT_EQ(test, info->mode, 0);
	KUNIT_EXPECT_EQ(test, info->tx_attr->mode, 0);
	KUNIT_EXPECT_EQ(test, info->rx_attr->mode, 0);
	kfi_freeinfo(info);
	kfi_freeinfo(hints);

	world_open(test, &w);
	memset(&when.trigger, 0x5a, sizeof(when.trigger));
	when.trigger.threshold.cntr = w.trigger;
	when.trigger.threshold.threshold = 1;
	memcpy(&before, &when, sizeof(when));
	iov = (struct kvec) { w.from, 8 };
	msg.addr = w.ends[0].peer;
	msg.context = &when;
	KUNIT_EXPECT_EQ(test, kfi_recv(w.ends[1].ep, w.to, ROOM, NULL, 0, w.to), 0);
	KUNIT_EXPECT_EQ(test, kfi_sendmsg(w.ends[0].ep, &msg, KFI_TRIGGER | KFI_COMPLETION), 0);
	nothing(test, &w.ends[0]);
	kfi_cntr_add(w.trigger, 1);
	completed(test, &w.ends[1], w.to, RECEIVED, 8);
	completed(test, &w.ends[0], &when, SENT, 8);
	/* The condition is met already. */
	KUNIT_EXPECT_EQ(test, kfi_recv(w.ends[1].ep, w.to, ROOM, NULL, 0, w.to), 0);
	KUNIT_EXPECT_EQ(test, kfi_sendmsg(w.ends[0].ep, &msg, KFI_TRIGGER | KFI_COMPLETION), 0);
	completed(test, &w.ends[1], w.to, RECEIVED, 8);
	completed(test, &w.ends[0], &when, SENT, 8);
	KUNIT_EXPECT_MEMEQ(test, &when, &before, sizeof(when));
	world_close(test, &w);
}

static void triggers_are_checked(struct kunit *test)
{
	struct kfi_triggered_context when = { .event_type = KFI_TRIGGER_THRESHOLD };
	struct kvec iov;
	struct kfi_msg msg = { .type = KFI_KVEC, .msg_iov = &iov, .iov_count = 1 };
	struct kfid_cntr *alien;
	static DEFINE_SPINLOCK(lock);
	struct fixture other;
	struct world w;
	ssize_t ret;

	world_open(test, &w);
	fixture_open(test, &other);
	alien = open_cntr(test, &other, KFI_WAIT_NONE, NULL, NULL);
	iov = (struct kvec) { w.from, 8 };
	msg.addr = w.ends[0].peer;
	KUNIT_EXPECT_EQ(test, kfi_sendmsg(w.ends[0].ep, &msg, KFI_TRIGGER), -KFI_EINVAL);
	msg.context = &when;
	KUNIT_EXPECT_EQ(test, kfi_sendmsg(w.ends[0].ep, &msg, KFI_TRIGGER), -KFI_EINVAL);
	when.trigger.threshold.cntr = alien;
	KUNIT_EXPECT_EQ(test, kfi_sendmsg(w.ends[0].ep, &msg, KFI_TRIGGER), -KFI_EINVAL);
	when.trigger.threshold.cntr = w.trigger;
	when.event_type = 1;
	KUNIT_EXPECT_EQ(test, kfi_sendmsg(w.ends[0].ep, &msg, KFI_TRIGGER), -KFI_EINVAL);
	when.event_type = KFI_TRIGGER_THRESHOLD;
	spin_lock(&lock);
	ret = kfi_sendmsg(w.ends[0].ep, &msg, KFI_TRIGGER);
	spin_unlock(&lock);
	KUNIT_EXPECT_EQ(test, ret, -KFI_EOPNOTSUPP);
	KUNIT_EXPECT_EQ(test, kfi_close(&alien->fid), 0);
	fixture_close(test, &other);
	world_close(test, &w);
}

static int queue(struct world *w, struct kfi_deferred_work *work)
{
	return kfi_control(&w->f.domain->fid, KFI_QUEUE_WORK, work);
}

/* A receive of the right counter starts a send, which starts a change of a counter. */
static void deferred_work_is_chained(struct kunit *test)
{
	struct kfid_cntr *done, *last;
	struct kvec iov, into;
	struct kfi_op_msg send = { .flags = 0 };
	struct kfi_op_tagged receive = { .flags = 0 };
	struct kfi_op_cntr set = { .value = 77 };
	struct kfi_deferred_work works[3] = {};
	struct kfi_deferred_work *work;
	struct world w;

	world_open(test, &w);
	done = open_cntr(test, &w.f, KFI_WAIT_UNSPEC, NULL, NULL);
	last = open_cntr(test, &w.f, KFI_WAIT_UNSPEC, NULL, NULL);
	iov = (struct kvec) { w.from, 300 };
	into = (struct kvec) { w.to, ROOM };
	memset(w.from, 'd', 300);

	work = &works[0];
	receive.ep = w.ends[1].ep;
	receive.msg = (struct kfi_msg_tagged) {
		.type = KFI_KVEC, .msg_iov = &into, .iov_count = 1, .tag = 5,
		.addr = KFI_ADDR_UNSPEC,
	};
	work->op_type = KFI_OP_TRECV;
	work->op.tagged = &receive;
	work->triggering_cntr = w.trigger;
	work->threshold = 1;
	work->completion_cntr = done;
	KUNIT_EXPECT_EQ(test, queue(&w, work), 0);

	work = &works[1];
	send.ep = w.ends[0].ep;
	send.msg = (struct kfi_msg) {
		.type = KFI_KVEC, .msg_iov = &iov, .iov_count = 1, .addr = w.ends[0].peer,
	};
	work->op_type = KFI_OP_SEND;
	work->op.msg = &send;
	work->triggering_cntr = done;
	work->threshold = 1;
	work->completion_cntr = done;
	KUNIT_EXPECT_EQ(test, queue(&w, work), 0);

	work = &works[2];
	set.cntr = last;
	work->op_type = KFI_OP_CNTR_SET;
	work->op.cntr = &set;
	work->triggering_cntr = done;
	work->threshold = 2;
	KUNIT_EXPECT_EQ(test, queue(&w, work), 0);

	KUNIT_EXPECT_EQ(test, kfi_recv(w.ends[1].ep, w.to + 2048, 2048, NULL, 0, &w), 0);
	kfi_cntr_add(w.trigger, 1);
	KUNIT_EXPECT_EQ(test, kfi_tinject(w.ends[0].ep, "start", 6, w.ends[0].peer, 5), 0);
	completed(test, &w.ends[1], &w, RECEIVED, 300);
	KUNIT_EXPECT_EQ(test, kfi_cntr_wait(last, 77, LONG), 0);
	KUNIT_EXPECT_EQ(test, kfi_cntr_read(done), 2);
	KUNIT_EXPECT_STREQ(test, w.to, "start");
	KUNIT_EXPECT_MEMEQ(test, w.to + 2048, w.from, 300);
	nothing(test, &w.ends[0]);
	nothing(test, &w.ends[1]);
	CLOSE(test, &done->fid, &last->fid);
	world_close(test, &w);
}

static void deferred_work_is_cancelled_and_flushed(struct kunit *test)
{
	struct kfi_op_cntr add = { .value = 1 };
	struct kfi_deferred_work works[3] = {};
	struct kfid_cntr *changed, *other, *alien;
	struct fixture of_alien;
	struct kfid *domain;
	struct world w;
	int i;

	world_open(test, &w);
	fixture_open(test, &of_alien);
	domain = &w.f.domain->fid;
	changed = open_cntr(test, &w.f, KFI_WAIT_UNSPEC, NULL, NULL);
	other = open_cntr(test, &w.f, KFI_WAIT_UNSPEC, NULL, NULL);
	alien = open_cntr(test, &of_alien, KFI_WAIT_UNSPEC, NULL, NULL);
	add.cntr = changed;
	for (i = 0; i < 3; i++) {
		works[i].op_type = KFI_OP_CNTR_ADD;
		works[i].op.cntr = &add;
		works[i].triggering_cntr = w.trigger;
		works[i].threshold = 1;
		KUNIT_EXPECT_EQ(test, queue(&w, &works[i]), 0);
	}
	KUNIT_EXPECT_EQ(test, kfi_control(domain, KFI_CANCEL_WORK, &works[1]), 0);
	KUNIT_EXPECT_EQ(test, kfi_control(domain, KFI_CANCEL_WORK, &works[1]), -KFI_ENOENT);
	kfi_cntr_add(w.trigger, 1);
	KUNIT_EXPECT_EQ(test, kfi_cntr_wait(changed, 2, LONG), 0);
	KUNIT_EXPECT_EQ(test, kfi_cntr_read(changed), 2);
	/* A flush of one counter ends what waits for it, and only that. */
	works[2].triggering_cntr = other;
	for (i = 0; i < 3; i++) {
		works[i].threshold = 9;
		KUNIT_EXPECT_EQ(test, queue(&w, &works[i]), 0);
	}
	KUNIT_EXPECT_EQ(test, kfi_close(&changed->fid), -KFI_EBUSY);
	KUNIT_EXPECT_EQ(test, kfi_control(domain, KFI_FLUSH_WORK, alien), -KFI_EINVAL);
	KUNIT_EXPECT_EQ(test, kfi_control(domain, KFI_FLUSH_WORK, changed), 0);
	KUNIT_EXPECT_EQ(test, kfi_control(domain, KFI_FLUSH_WORK, w.trigger), 0);
	KUNIT_EXPECT_EQ(test, kfi_control(domain, KFI_CANCEL_WORK, &works[0]), -KFI_ENOENT);
	KUNIT_EXPECT_EQ(test, kfi_close(&w.trigger->fid), 0);
	KUNIT_EXPECT_EQ(test, kfi_cntr_read(changed), 2);
	KUNIT_EXPECT_EQ(test, kfi_close(&changed->fid), -KFI_EBUSY);
	kfi_cntr_add(other, 9);
	KUNIT_EXPECT_EQ(test, kfi_cntr_wait(changed, 3, LONG), 0);
	/* A flush of the domain ends the rest. */
	w.trigger = open_cntr(test, &w.f, KFI_WAIT_UNSPEC, NULL, NULL);
	works[0].triggering_cntr = w.trigger;
	works[1].triggering_cntr = other;
	works[1].threshold = 10;
	KUNIT_EXPECT_EQ(test, queue(&w, &works[0]), 0);
	KUNIT_EXPECT_EQ(test, queue(&w, &works[1]), 0);
	KUNIT_EXPECT_EQ(test, kfi_control(domain, KFI_FLUSH_WORK, NULL), 0);
	KUNIT_EXPECT_EQ(test, kfi_cntr_read(changed), 3);
	CLOSE(test, &changed->fid, &other->fid, &alien->fid);
	fixture_close(test, &of_alien);
	world_close(test, &w);
}

static void deferred_work_is_checked(struct kunit *test)
{
	struct kfi_op_cntr add = {};
	struct kfi_op_msg send = {};
	struct kfi_deferred_work work = {};
	struct world w;

	world_open(test, &w);
	add.cntr = w.trigger;
	KUNIT_EXPECT_EQ(test, queue(&w, NULL), -KFI_EINVAL);
	work.op_type = KFI_OP_CNTR_ADD;
	work.op.cntr = &add;
	KUNIT_EXPECT_EQ(test, queue(&w, &work), -KFI_EINVAL);
	work.triggering_cntr = w.trigger;
	work.completion_cntr = w.trigger;
	KUNIT_EXPECT_EQ(test, queue(&w, &work), -KFI_EINVAL);
	work.completion_cntr = NULL;
	work.op.cntr = NULL;
	KUNIT_EXPECT_EQ(test, queue(&w, &work), -KFI_EINVAL);
	work.op_type = 77;
	KUNIT_EXPECT_EQ(test, queue(&w, &work), -KFI_EINVAL);
	work.op_type = KFI_OP_SEND;
	KUNIT_EXPECT_EQ(test, queue(&w, &work), -KFI_EINVAL);
	work.op.msg = &send;
	KUNIT_EXPECT_EQ(test, queue(&w, &work), -KFI_EINVAL);
	send.ep = w.ends[0].ep;
	/* No type of list. */
	KUNIT_EXPECT_EQ(test, queue(&w, &work), -KFI_EINVAL);
	send.msg.type = KFI_KVEC;
	send.flags = KFI_TRIGGER;
	KUNIT_EXPECT_EQ(test, queue(&w, &work), -KFI_EINVAL);
	send.flags = KFI_MULTI_RECV;
	work.op_type = KFI_OP_RECV;
	KUNIT_EXPECT_EQ(test, queue(&w, &work), -KFI_ENOSYS);
	KUNIT_EXPECT_EQ(test, kfi_control(&w.f.domain->fid, KFI_CANCEL_WORK, NULL), -KFI_EINVAL);
	world_close(test, &w);
}

CONSUMER("triggered operations and deferred work",
	 KUNIT_CASE(a_triggered_send_waits),
	 KUNIT_CASE(a_larger_context_triggers),
	 KUNIT_CASE(triggers_are_checked),
	 KUNIT_CASE(deferred_work_is_chained),
	 KUNIT_CASE(deferred_work_is_cancelled_and_flushed),
	 KUNIT_CASE(deferred_work_is_checked));
