// SPDX-License-Identifier: GPL-2.0
/*
 * Completions: the completion handler, readers on several CPUs and in softirqs,
 * the formats, errors, and the other ways to wait for them.
 */

#include <linux/bitmap.h>
#include <linux/hrtimer.h>
#include <linux/smp.h>

#include "pair.h"

#define RECEIVED	(KFI_MSG | KFI_RECV)

/* Receives that are posted at the same time. */
#define DEPTH		16

/* Messages of a test with many. */
#define MANY		2000

/*
 * Opens a sender and a receiver. The sender's successes are silent. The receiver's
 * queue has the attributes and the handler.
 */
static void ends_open(struct kunit *test, struct fixture *f, struct end *ends,
		      struct kfi_cq_attr *attr, kfi_comp_handler handler, void *context)
{
	struct kfi_info *info;
	int i;

	fixture_open(test, f);
	info = entry_of(test, KFI_EP_RDM);
	info->tx_attr->op_flags = 0;
	end_open(test, f, info, &ends[0], KFI_SELECTIVE_COMPLETION);
	end_open_with(test, f, info, &ends[1], 0, attr, handler, context);
	for (i = 0; i < 2; i++)
		KUNIT_ASSERT_EQ(test, kfi_enable(ends[i].ep), 0);
	kfi_freeinfo(info);
	for (i = 0; i < 2; i++)
		end_knows(test, &ends[i], &ends[!i]);
}

/* Sends a number to the receiver, which has posted a receive or will. */
static void send(struct kunit *test, struct end *ends, u64 number)
{
	int i, ret = -KFI_EAGAIN;

	for (i = 0; i < LONG && ret == -KFI_EAGAIN; i++) {
		ret = kfi_inject(ends[0].ep, &number, sizeof(number), ends[0].peer);
		if (ret == -KFI_EAGAIN)
			usleep_range(500, 1000);
	}
	KUNIT_EXPECT_EQ(test, ret, 0);
}

/* What a handler or a reader has found. */
struct found {
	struct kfid_ep	*ep;
	u64		buffers[DEPTH];
	bool		repost;
	bool		drains;
	int		cpu;
	atomic_t	inside;
	atomic_t	calls;
	atomic_t	wrong;
	atomic_t	number;
	DECLARE_BITMAP(numbers, MANY);
};

static void wrong_if(struct found *found, bool wrong)
{
	if (wrong)
		atomic_inc(&found->wrong);
}

/* Notes a completion, and posts its buffer again. */
static void note(struct found *found, const struct kfi_cq_tagged_entry *entry)
{
	u64 *buffer = entry->op_context, number = READ_ONCE(*buffer);

	wrong_if(found, entry->flags != RECEIVED || entry->len != sizeof(number));
	wrong_if(found, number >= MANY || test_and_set_bit(number, found->numbers));
	if (found->repost)
		wrong_if(found, kfi_recv(found->ep, buffer, sizeof(*buffer), NULL, 0, buffer));
	atomic_inc(&found->number);
}

static void post_all(struct kunit *test, struct found *found)
{
	int i;

	for (i = 0; i < DEPTH; i++)
		KUNIT_ASSERT_EQ(test, kfi_recv(found->ep, &found->buffers[i], sizeof(u64), NULL, 0,
					       &found->buffers[i]), 0);
}

static void on_completion(struct kfid_cq *cq, void *context)
{
	struct found *found = context;
	struct kfi_cq_tagged_entry entry;

	might_sleep();
	wrong_if(found, atomic_inc_return(&found->inside) != 1 || in_interrupt());
	wrong_if(found, found->cpu >= 0 && raw_smp_processor_id() != found->cpu);
	/* A handler cannot close its own queue. */
	wrong_if(found, kfi_close(&cq->fid) != -KFI_EBUSY);
	while (found->drains && kfi_cq_read(cq, &entry, 1) == 1)
		note(found, &entry);
	atomic_dec(&found->inside);
	atomic_inc(&found->calls);
}

/* The attributes that kfilnd uses, besides the format. */
static struct kfi_cq_attr with_affinity(struct found *found)
{
	found->cpu = cpumask_last(cpu_online_mask);
	return (struct kfi_cq_attr) {
		.flags = KFI_AFFINITY,
		.signaling_vector = found->cpu,
		.format = KFI_CQ_FORMAT_TAGGED,
		.wait_obj = KFI_WAIT_NONE,
	};
}

static struct found *found_new(struct kunit *test)
{
	struct found *found = zeroed(test, sizeof(*found));

	return found;
}

/* There have been as many calls, and there are no more. */
static void calls_are(struct kunit *test, struct found *found, int wanted)
{
	KUNIT_EXPECT_EQ(test, reach(&found->calls, wanted), wanted);
	msleep(50);
	KUNIT_EXPECT_EQ(test, atomic_read(&found->calls), wanted);
}

static void a_handler_is_armed_by_a_read(struct kunit *test)
{
	struct found *found = found_new(test);
	struct kfi_cq_attr attr = with_affinity(found);
	struct kfi_cq_tagged_entry entry[2];
	struct fixture f;
	struct end ends[2];

	ends_open(test, &f, ends, &attr, on_completion, found);
	found->ep = ends[1].ep;
	post_all(test, found);
	calls_are(test, found, 0);
	/* It was armed when the queue was opened. */
	send(test, ends, 1);
	calls_are(test, found, 1);
	send(test, ends, 2);
	calls_are(test, found, 1);
	/* These reads take all, and do not find the queue empty. */
	KUNIT_EXPECT_EQ(test, kfi_cq_read(ends[1].cq, entry, 1), 1);
	KUNIT_EXPECT_EQ(test, kfi_cq_read(ends[1].cq, entry, 1), 1);
	send(test, ends, 3);
	calls_are(test, found, 1);
	/* A short read does. */
	KUNIT_EXPECT_EQ(test, kfi_cq_read(ends[1].cq, entry, 2), 1);
	send(test, ends, 4);
	calls_are(test, found, 2);
	KUNIT_EXPECT_EQ(test, kfi_cq_read(ends[1].cq, entry, 1), 1);
	KUNIT_EXPECT_EQ(test, kfi_cq_read(ends[1].cq, entry, 1), -KFI_EAGAIN);
	send(test, ends, 5);
	calls_are(test, found, 3);
	KUNIT_EXPECT_EQ(test, atomic_read(&found->wrong), 0);
	pair_close(test, &f, ends);
	/* The close was the last time that the handler could run. */
	calls_are(test, found, 3);
}

/* On each CPU in turn, of completions that another one makes. */
static void a_handler_runs_on_its_cpu(struct kunit *test)
{
	struct found *found = found_new(test);
	struct kfi_cq_attr attr = with_affinity(found);
	struct fixture f;
	struct end ends[2];
	int i, cpu;

	found->drains = true;
	found->repost = true;
	for_each_online_cpu(cpu) {
		run_elsewhere(test, cpu);
		found->cpu = cpu;
		attr.signaling_vector = cpu;
		atomic_set(&found->calls, 0);
		ends_open(test, &f, ends, &attr, on_completion, found);
		found->ep = ends[1].ep;
		post_all(test, found);
		for (i = 1; i <= 10; i++) {
			send(test, ends, atomic_read(&found->number));
			KUNIT_EXPECT_EQ(test, reach(&found->calls, i), i);
		}
		KUNIT_EXPECT_EQ_MSG(test, atomic_read(&found->wrong), 0, "CPU %d", cpu);
		pair_close(test, &f, ends);
	}
}

/* If no such CPU is online, the handler runs on any CPU. */
static void an_affinity_is_only_a_hint(struct kunit *test)
{
	static const int vectors[] = { -1, INT_MAX };
	struct found *found = found_new(test);
	struct kfi_cq_attr attr = with_affinity(found);
	struct fixture f;
	struct end ends[2];
	int i;

	found->drains = true;
	found->cpu = -1;
	for (i = 0; i < ARRAY_SIZE(vectors); i++) {
		attr.signaling_vector = vectors[i];
		ends_open(test, &f, ends, &attr, on_completion, found);
		found->ep = ends[1].ep;
		post_all(test, found);
		send(test, ends, i);
		KUNIT_EXPECT_EQ(test, reach(&found->number, i + 1), i + 1);
		pair_close(test, &f, ends);
	}
	KUNIT_EXPECT_EQ(test, atomic_read(&found->wrong), 0);
}

static void a_handler_takes_all_completions(struct kunit *test)
{
	struct found *found = found_new(test);
	struct kfi_cq_attr attr = with_affinity(found);
	struct fixture f;
	struct end ends[2];
	int i;

	found->drains = true;
	found->repost = true;
	ends_open(test, &f, ends, &attr, on_completion, found);
	found->ep = ends[1].ep;
	post_all(test, found);
	for (i = 0; i < MANY; i++)
		send(test, ends, i);
	KUNIT_EXPECT_EQ(test, reach(&found->number, MANY), MANY);
	KUNIT_EXPECT_TRUE(test, bitmap_full(found->numbers, MANY));
	KUNIT_EXPECT_EQ(test, atomic_read(&found->wrong), 0);
	pair_close(test, &f, ends);
}

/**
 * struct sender - a thread that sends every other number
 * @ends: a sender and a receiver
 * @number: its next one
 * @error: the first thing that went wrong
 * @done: it has ended
 */
struct sender {
	struct end		*ends;
	u64			number;
	ssize_t			error;
	struct completion	done;
};

static int send_half(void *arg)
{
	struct sender *sender = arg;
	struct end *end = &sender->ends[0];
	int left = LONG;

	while (sender->number < MANY && !sender->error) {
		sender->error = kfi_inject(end->ep, &sender->number, sizeof(u64), end->peer);
		if (!sender->error) {
			sender->number += 2;
		} else if (sender->error == -KFI_EAGAIN && left--) {
			sender->error = 0;
			usleep_range(500, 1000);
		}
	}
	complete(&sender->done);
	return 0;
}

/*
 * Without KFI_AFFINITY the handler runs on the CPU of the completion. Completions
 * of several CPUs do not call it twice at the same time.
 */
static void a_handler_without_a_cpu_runs_alone(struct kunit *test)
{
	struct kfi_cq_attr attr = {
		.format = KFI_CQ_FORMAT_TAGGED,
		.wait_obj = KFI_WAIT_NONE,
	};
	struct found *found = found_new(test);
	struct task_struct *task;
	struct sender senders[2];
	struct fixture f;
	struct end ends[2];
	int i;

	found->cpu = -1;
	found->drains = true;
	found->repost = true;
	ends_open(test, &f, ends, &attr, on_completion, found);
	found->ep = ends[1].ep;
	post_all(test, found);
	for (i = 0; i < 2; i++) {
		senders[i] = (struct sender){ .ends = ends, .number = i };
		init_completion(&senders[i].done);
		task = kthread_create(send_half, &senders[i], "consumer_handler/%d", i);
		KUNIT_ASSERT_FALSE(test, IS_ERR(task));
		kthread_bind(task, cpumask_nth(i % num_online_cpus(), cpu_online_mask));
		wake_up_process(task);
	}
	for (i = 0; i < 2; i++) {
		wait_for_completion(&senders[i].done);
		KUNIT_EXPECT_EQ(test, senders[i].error, 0);
	}
	KUNIT_EXPECT_EQ(test, reach(&found->number, MANY), MANY);
	KUNIT_EXPECT_TRUE(test, bitmap_full(found->numbers, MANY));
	KUNIT_EXPECT_EQ(test, atomic_read(&found->wrong), 0);
	pair_close(test, &f, ends);
}

/* A reader that competes with others. */
struct reader {
	struct kfid_cq		*cq;
	struct found		*found;
	struct hrtimer		timer;
	struct completion	done;
};

static int read_until_all(void *arg)
{
	struct reader *reader = arg;
	struct kfi_cq_tagged_entry entry[3];
	ssize_t i, got;

	while (atomic_read(&reader->found->number) < MANY && !kthread_should_stop()) {
		got = kfi_cq_read(reader->cq, entry, ARRAY_SIZE(entry));
		for (i = 0; i < got; i++)
			note(reader->found, &entry[i]);
		if (got < 0)
			usleep_range(50, 100);
	}
	complete(&reader->done);
	return 0;
}

static enum hrtimer_restart read_in_softirq(struct hrtimer *timer)
{
	struct reader *reader = container_of(timer, struct reader, timer);
	struct kfi_cq_tagged_entry entry;

	wrong_if(reader->found, !in_serving_softirq());
	if (kfi_cq_read(reader->cq, &entry, 1) == 1) {
		u64 *buffer = entry.op_context;

		/* The threads post; this receive is not posted again. */
		wrong_if(reader->found, *buffer >= MANY ||
			 test_and_set_bit(*buffer, reader->found->numbers));
		atomic_inc(&reader->found->number);
	}
	if (atomic_read(&reader->found->number) >= MANY)
		return HRTIMER_NORESTART;
	hrtimer_forward_now(timer, us_to_ktime(100));
	return HRTIMER_RESTART;
}

/* Threads on all CPUs and a softirq take entries of one queue: each is taken once. */
static void readers_share_a_queue(struct kunit *test)
{
	struct kfi_cq_attr attr = {
		.size = 4096,
		.format = KFI_CQ_FORMAT_TAGGED,
	};
	struct found *found = found_new(test);
	struct reader readers[4];
	struct fixture f;
	struct end ends[2];
	u64 *buffers;
	int i;

	buffers = zeroed(test, MANY * sizeof(*buffers));
	ends_open(test, &f, ends, &attr, NULL, NULL);
	for (i = 0; i < ARRAY_SIZE(readers); i++) {
		readers[i].cq = ends[1].cq;
		readers[i].found = found;
		init_completion(&readers[i].done);
	}
	for (i = 1; i < ARRAY_SIZE(readers); i++)
		KUNIT_ASSERT_NOT_ERR_OR_NULL(test, kthread_run(read_until_all, &readers[i],
							       "consumer_handler/%d", i));
	hrtimer_setup_on_stack(&readers[0].timer, read_in_softirq, CLOCK_MONOTONIC,
			       HRTIMER_MODE_REL_SOFT);
	hrtimer_start(&readers[0].timer, us_to_ktime(100), HRTIMER_MODE_REL_SOFT);
	for (i = 0; i < MANY; i++) {
		/* Each message has a receive of its own. */
		while (kfi_recv(ends[1].ep, &buffers[i], sizeof(u64), NULL, 0, &buffers[i]) ==
		       -KFI_EAGAIN)
			usleep_range(500, 1000);
		send(test, ends, i);
	}
	KUNIT_EXPECT_EQ(test, reach(&found->number, MANY), MANY);
	atomic_add(MANY, &found->number);
	for (i = 1; i < ARRAY_SIZE(readers); i++)
		wait_for_completion(&readers[i].done);
	hrtimer_cancel(&readers[0].timer);
	destroy_hrtimer_on_stack(&readers[0].timer);
	KUNIT_EXPECT_TRUE(test, bitmap_full(found->numbers, MANY));
	KUNIT_EXPECT_EQ(test, atomic_read(&found->wrong), 0);
	pair_close(test, &f, ends);
}

/* Each format has its fields, and nothing behind them is written. */
static void formats_have_their_fields(struct kunit *test)
{
	static const size_t sizes[] = {
		[KFI_CQ_FORMAT_CONTEXT] = sizeof(struct kfi_cq_entry),
		[KFI_CQ_FORMAT_MSG] = sizeof(struct kfi_cq_msg_entry),
		[KFI_CQ_FORMAT_DATA] = sizeof(struct kfi_cq_data_entry),
		[KFI_CQ_FORMAT_TAGGED] = sizeof(struct kfi_cq_tagged_entry),
	};
	struct kfi_cq_tagged_entry entry[2];
	u64 *to = zeroed(test, sizeof(*to));
	u64 data = 0x0102030405060708;
	struct kfi_cq_attr attr = {};
	kfi_addr_t source[2];
	struct fixture f;
	struct end ends[2];
	ssize_t got;
	int i, tries;

	for (i = KFI_CQ_FORMAT_CONTEXT; i <= KFI_CQ_FORMAT_TAGGED; i++) {
		attr.format = i;
		ends_open(test, &f, ends, &attr, NULL, NULL);
		memset(entry, 0xff, sizeof(entry));
		source[1] = 77;
		KUNIT_EXPECT_EQ(test, kfi_recv(ends[1].ep, to, 8, NULL, 0, to), 0);
		KUNIT_EXPECT_EQ(test, kfi_injectdata(ends[0].ep, &data, 8, data, ends[0].peer), 0);
		tries = LONG;
		do {
			usleep_range(500, 1000);
			got = kfi_cq_readfrom(ends[1].cq, entry, 2, source);
		} while (got == -KFI_EAGAIN && tries--);
		KUNIT_EXPECT_EQ(test, got, 1);
		KUNIT_EXPECT_EQ(test, source[0], ends[1].peer);
		KUNIT_EXPECT_EQ(test, source[1], 77);
		KUNIT_EXPECT_NULL(test, memchr_inv((u8 *)entry + sizes[i], 0xff,
						   sizeof(entry) - sizes[i]));
		KUNIT_EXPECT_PTR_EQ(test, entry[0].op_context, (void *)to);
		if (i >= KFI_CQ_FORMAT_MSG) {
			KUNIT_EXPECT_EQ(test, entry[0].flags, RECEIVED | KFI_REMOTE_CQ_DATA);
			KUNIT_EXPECT_EQ(test, entry[0].len, 8);
		}
		if (i >= KFI_CQ_FORMAT_DATA)
			KUNIT_EXPECT_EQ(test, entry[0].data, data);
		if (i >= KFI_CQ_FORMAT_TAGGED)
			KUNIT_EXPECT_EQ(test, entry[0].tag, 0);
		pair_close(test, &f, ends);
	}
}

/* A message that is too long is an error at the receiver, for which the handler is called. */
static void errors_come_first(struct kunit *test)
{
	struct found *found = found_new(test);
	struct kfi_cq_attr attr = with_affinity(found);
	struct kfi_cq_tagged_entry entry[2];
	char room[4], text[64];
	struct kfi_cq_err_entry error = {
		.err_data = room,
		.err_data_size = sizeof(room),
	};
	struct fixture f;
	struct end ends[2];
	u32 *small = (u32 *)&found->buffers[1];

	ends_open(test, &f, ends, &attr, on_completion, found);
	found->ep = ends[1].ep;
	KUNIT_EXPECT_EQ(test, kfi_recv(found->ep, small, sizeof(*small), NULL, 0, small), 0);
	send(test, ends, 7);
	KUNIT_EXPECT_EQ(test, reach(&found->calls, 1), 1);
	KUNIT_EXPECT_EQ(test, kfi_cq_read(ends[1].cq, entry, 2), -KFI_EAVAIL);
	KUNIT_EXPECT_EQ(test, kfi_cq_read(ends[1].cq, entry, 2), -KFI_EAVAIL);
	KUNIT_EXPECT_EQ(test, kfi_cq_readerr(ends[1].cq, &error, 0), 1);
	KUNIT_EXPECT_PTR_EQ(test, error.op_context, (void *)small);
	KUNIT_EXPECT_EQ(test, error.flags, RECEIVED);
	KUNIT_EXPECT_EQ(test, error.err, KFI_ETRUNC);
	KUNIT_EXPECT_EQ(test, error.olen, sizeof(u64) - sizeof(*small));
	KUNIT_EXPECT_PTR_EQ(test, error.err_data, (void *)room);
	KUNIT_EXPECT_EQ(test, error.err_data_size, 0);
	KUNIT_EXPECT_NOT_NULL(test, kfi_cq_strerror(ends[1].cq, error.prov_errno, error.err_data,
						    text, sizeof(text)));
	KUNIT_EXPECT_EQ(test, kfi_cq_readerr(ends[1].cq, &error, 0), -KFI_EAGAIN);
	/* That did not arm the handler. */
	KUNIT_EXPECT_EQ(test, kfi_recv(found->ep, &found->buffers[0], 8, NULL, 0,
				       &found->buffers[0]), 0);
	send(test, ends, 8);
	msleep(50);
	KUNIT_EXPECT_EQ(test, atomic_read(&found->calls), 1);
	KUNIT_EXPECT_EQ(test, kfi_cq_read(ends[1].cq, entry, 2), 1);
	KUNIT_EXPECT_EQ(test, kfi_cq_read(ends[1].cq, entry, 2), -KFI_EAGAIN);
	KUNIT_EXPECT_EQ(test, atomic_read(&found->wrong), 0);
	pair_close(test, &f, ends);
}

/* A thread waits for as many entries as it asks for; a wait set and a poll set are signaled. */
static void waits_have_a_condition(struct kunit *test)
{
	struct kfi_cq_attr attr = {
		.format = KFI_CQ_FORMAT_TAGGED,
		.wait_obj = KFI_WAIT_QUEUE,
		.wait_cond = KFI_CQ_COND_THRESHOLD,
	};
	struct found *found = found_new(test);
	struct kfi_cq_tagged_entry entry[DEPTH];
	wait_queue_head_t *queue;
	struct kfid_poll *set;
	struct fixture f;
	struct end ends[2];
	size_t wanted = 3;
	void *context;
	int i;

	ends_open(test, &f, ends, &attr, NULL, found);
	found->ep = ends[1].ep;
	post_all(test, found);
	KUNIT_ASSERT_EQ(test, kfi_poll_open(f.domain, NULL, &set), 0);
	KUNIT_ASSERT_EQ(test, kfi_poll_add(set, &ends[1].cq->fid, 0), 0);
	KUNIT_EXPECT_EQ(test, kfi_poll(set, &context, 1), 0);
	for (i = 0; i < 2; i++)
		send(test, ends, i);
	/* Two are too few, and the end of the time takes them. */
	KUNIT_EXPECT_EQ(test, kfi_cq_sread(ends[1].cq, entry, DEPTH, &wanted, 100), 2);
	for (i = 2; i < 5; i++)
		send(test, ends, i);
	KUNIT_EXPECT_EQ(test, kfi_cq_sread(ends[1].cq, entry, DEPTH, &wanted, LONG), 3);
	send(test, ends, 5);
	KUNIT_ASSERT_EQ(test, kfi_control(&ends[1].cq->fid, KFI_GETWAIT, &queue), 0);
	KUNIT_EXPECT_NE(test, wait_event_timeout(*queue, kfi_cq_read(ends[1].cq, entry, 1) == 1,
						 LONG * HZ / 1000), 0);
	send(test, ends, 6);
	for (i = 0; i < LONG / 20 && kfi_poll(set, &context, 1) == 0; i++)
		msleep(20);
	KUNIT_EXPECT_PTR_EQ(test, context, (void *)found);
	KUNIT_EXPECT_EQ(test, kfi_poll(set, &context, 1), 1);
	KUNIT_EXPECT_EQ(test, kfi_cq_read(ends[1].cq, entry, DEPTH), 1);
	KUNIT_EXPECT_EQ(test, kfi_poll(set, &context, 1), 0);
	KUNIT_EXPECT_EQ(test, kfi_poll_del(set, &ends[1].cq->fid, 0), 0);
	KUNIT_EXPECT_EQ(test, kfi_close(&set->fid), 0);
	pair_close(test, &f, ends);
}

CONSUMER("completions and their handlers",
	 KUNIT_CASE(a_handler_is_armed_by_a_read),
	 KUNIT_CASE(a_handler_runs_on_its_cpu),
	 KUNIT_CASE(an_affinity_is_only_a_hint),
	 KUNIT_CASE(a_handler_takes_all_completions),
	 KUNIT_CASE(a_handler_without_a_cpu_runs_alone),
	 KUNIT_CASE(readers_share_a_queue),
	 KUNIT_CASE(formats_have_their_fields),
	 KUNIT_CASE(errors_come_first),
	 KUNIT_CASE(waits_have_a_condition));
