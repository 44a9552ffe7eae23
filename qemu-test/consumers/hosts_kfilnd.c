// SPDX-License-Identifier: GPL-2.0
/*
 * A network driver on each of two hosts that works as Lustre's kfilnd does: its
 * messages, its bulk data, its errors, its end, and counters of all that.
 */

#include <linux/sizes.h>

#include "driver_flow.h"

#define SERVICE		"4700"	/* first of the ports of a driver's receive contexts */
#define KEY		255	/* the default of kfilnd */
#define LARGEST		(IMMEDIATE - sizeof(struct message))

/* A driver on each host, which know each other. They have not met. */
static struct driver *drivers_open(struct kunit *test, u32 key, u32 other_key)
{
	struct driver *drivers = zeroed(test, HOSTS * sizeof(*drivers));
	int i;

	for (i = 0; i < HOSTS; i++)
		driver_open(test, &drivers[i], i, SERVICE, i ? other_key : key);
	for (i = 0; i < HOSTS; i++)
		driver_knows(test, &drivers[i], &drivers[!i]);
	return drivers;
}

/* A driver greets its peer, and gets an answer. */
static void greet(struct kunit *test, struct driver *driver)
{
	reinit_completion(&driver->greeted);
	KUNIT_ASSERT_EQ(test, immediate(driver, 0, HELLO_REQ, 0, 0), 0);
	KUNIT_ASSERT_NE(test, wait_for_completion_timeout(&driver->greeted,
							  msecs_to_jiffies(LONG)), 0);
}

/* Drivers that have met. The first one has greeted. */
static struct driver *drivers_meet(struct kunit *test)
{
	struct driver *drivers = drivers_open(test, KEY, KEY);

	greet(test, &drivers[0]);
	return drivers;
}

static void drivers_close(struct kunit *test, struct driver *drivers)
{
	int i;

	for (i = 0; i < HOSTS; i++)
		driver_close(test, &drivers[i]);
}

/* Waits until a number has a value. */
static int reaches(atomic_t *number, int wanted)
{
	int turn;

	for (turn = 0; turn < LONG && atomic_read(number) != wanted; turn++)
		usleep_range(500, 1000);
	return atomic_read(number);
}

/* Messages of any length, to and from each context, through buffers that are used up many times. */
static void messages_arrive(struct kunit *test)
{
	struct driver *drivers = drivers_meet(test);
	int i, rx, host, ret;

	for (host = 0; host < HOSTS; host++) {
		for (i = 0; i < 160; i++) {
			size_t len = i < 20 ? i * 17 : LARGEST - i;

			rx = i / 2 % CPTS;
			drivers[host].peer_rx = rx;
			ret = immediate(&drivers[host], i % CPTS, IMMEDIATE_MSG, len, i);
			KUNIT_EXPECT_EQ_MSG(test, ret, 0, "host %d, message %d", host, i);
		}
		KUNIT_EXPECT_EQ(test, immediate(&drivers[host], 0, IMMEDIATE_MSG, LARGEST, 1), 0);
		KUNIT_EXPECT_EQ(test, reaches(&drivers[!host].received, 161), 161);
	}
	/* And a greeting, or the answer to it. */
	for (host = 0; host < HOSTS; host++) {
		KUNIT_EXPECT_EQ(test, counted(&drivers[host], true, 162), 162);
		KUNIT_EXPECT_EQ(test, counted(&drivers[host], false, 162), 162);
	}
	drivers_close(test, drivers);
}

/* Bulk data to and from the peer, of every size that kfilnd can have. */
static void bulk_data_arrive(struct kunit *test)
{
	static const size_t sizes[] = {
		1, 255, PAGE_SIZE - 1, PAGE_SIZE, PAGE_SIZE + 1, 5 * PAGE_SIZE + 7, SZ_1M,
	};
	struct driver *drivers = drivers_meet(test);
	int i, host, put, ret, served = 0;

	for (i = 0; i < ARRAY_SIZE(sizes); i++) {
		for (host = 0; host < HOSTS; host++) {
			for (put = 0; put < 2; put++) {
				ret = bulk(&drivers[host], i % CPTS, put, sizes[i], i * 3 + put);
				KUNIT_EXPECT_EQ_MSG(test, ret, 0, "host %d, put %d, %zu bytes",
						    host, put, sizes[i]);
			}
		}
		served += 2;
	}
	for (host = 0; host < HOSTS; host++) {
		KUNIT_EXPECT_EQ(test, reaches(&drivers[host].served, served), served);
		KUNIT_EXPECT_EQ(test, drivers[host].served_status, 0);
		/* As initiator a request and a tagged receive, as target a message and an RMA. */
		KUNIT_EXPECT_EQ(test, counted(&drivers[host], true, 2 * served + 1),
				2 * served + 1);
		KUNIT_EXPECT_EQ(test, counted(&drivers[host], false, 2 * served + 1),
				2 * served + 1);
	}
	drivers_close(test, drivers);
}

/**
 * struct runner - a thread that uses a driver
 * @driver: the driver
 * @cpt: its contexts
 * @rounds: how many
 * @ret: how the first round that failed ended
 * @done: it has ended
 */
struct runner {
	struct driver		*driver;
	int			cpt;
	int			rounds;
	int			ret;
	struct completion	done;
};

static int runs(void *arg)
{
	struct runner *runner = arg;
	int round, ret = 0;

	for (round = 0; round < runner->rounds && !ret; round++) {
		size_t bytes = 1 + (round * 7919UL + runner->cpt * 104729UL) % (SZ_1M / 4);

		ret = immediate(runner->driver, runner->cpt, IMMEDIATE_MSG, round * 61 % LARGEST,
				round);
		ret = ret ?: bulk(runner->driver, runner->cpt, true, bytes, round);
		ret = ret ?: bulk(runner->driver, runner->cpt, false, bytes, ~round);
	}
	runner->ret = ret;
	kthread_complete_and_exit(&runner->done, 0);
}

/* All contexts of both hosts at once. */
static void all_is_done_at_once(struct kunit *test)
{
	struct driver *drivers = drivers_meet(test);
	struct runner runners[HOSTS * CPTS];
	const int rounds = 30;
	int i;

	for (i = 0; i < ARRAY_SIZE(runners); i++) {
		runners[i] = (struct runner){ &drivers[i % HOSTS], i / HOSTS, rounds };
		init_completion(&runners[i].done);
	}
	for (i = 0; i < ARRAY_SIZE(runners); i++)
		KUNIT_ASSERT_FALSE(test, IS_ERR(kthread_run(runs, &runners[i], "runs%d", i)));
	for (i = 0; i < ARRAY_SIZE(runners); i++) {
		wait_for_completion(&runners[i].done);
		KUNIT_EXPECT_EQ_MSG(test, runners[i].ret, 0, "runner %d", i);
	}
	for (i = 0; i < HOSTS; i++) {
		KUNIT_EXPECT_EQ(test, reaches(&drivers[i].received, CPTS * rounds), CPTS * rounds);
		KUNIT_EXPECT_EQ(test, reaches(&drivers[i].served, 2 * CPTS * rounds),
				2 * CPTS * rounds);
	}
	drivers_close(test, drivers);
}

/* A target without data says so, by an empty tagged message with data of 8 bytes. */
static void a_target_can_refuse(struct kunit *test)
{
	struct driver *drivers = drivers_meet(test);
	int put;

	drivers[1].refuses = true;
	for (put = 0; put < 2; put++)
		KUNIT_EXPECT_EQ(test, bulk(&drivers[0], put, put, 3 * PAGE_SIZE, 1), -ENODATA);
	KUNIT_EXPECT_EQ(test, reaches(&drivers[1].served, 2), 2);
	drivers[1].refuses = false;
	KUNIT_EXPECT_EQ(test, bulk(&drivers[0], 0, true, 3 * PAGE_SIZE, 1), 0);
	drivers_close(test, drivers);
}

/* Bulk data that come too late: the receive was taken back, and the target learns that. */
static void late_bulk_data_are_lost(struct kunit *test)
{
	struct driver *drivers = drivers_meet(test);
	struct transaction *tn, *held;
	int put, turn;

	for (put = 0; put < 2; put++) {
		drivers[1].held = NULL;
		drivers[1].served_status = 0;
		WRITE_ONCE(drivers[1].holds, true);
		KUNIT_ASSERT_EQ(test, bulk_begin(&drivers[0], 1, put, PAGE_SIZE, 5, &tn), 0);
		for (turn = 0; turn < LONG && !READ_ONCE(drivers[1].held); turn++)
			usleep_range(500, 1000);
		held = READ_ONCE(drivers[1].held);
		KUNIT_ASSERT_NOT_NULL(test, held);
		KUNIT_EXPECT_EQ(test, kfi_cancel(&drivers[0].cpts[1].rx->fid, tn), 0);
		KUNIT_EXPECT_EQ(test, ended(tn), -ECANCELED);
		KUNIT_EXPECT_EQ(test, kfi_cancel(&drivers[0].cpts[1].rx->fid, tn), -ENOENT);
		transaction_free(tn);
		WRITE_ONCE(drivers[1].holds, false);
		target_begin(held, put ? post_read : post_write);
		KUNIT_EXPECT_EQ(test, reaches(&drivers[1].served, put + 1), put + 1);
		KUNIT_EXPECT_EQ(test, READ_ONCE(drivers[1].served_status), -EREMOTEIO);
	}
	KUNIT_EXPECT_EQ(test, bulk(&drivers[0], 1, true, PAGE_SIZE, 1), 0);
	drivers_close(test, drivers);
}

/*
 * Whether a transaction has failed because there is no driver on the other host:
 * it has refused a connection, or has ended the one that there was.
 */
static bool is_gone(int ret)
{
	if (ret != -ECONNREFUSED && ret != -ECONNRESET)
		LOG_ERR("%s: %d", __func__, ret);
	return ret == -ECONNREFUSED || ret == -ECONNRESET;
}

/* Nothing waits for a peer that has gone; when it is there again, transfers succeed. */
static void a_peer_that_is_gone_is_found_again(struct kunit *test)
{
	struct driver *drivers = drivers_meet(test);
	struct transaction *tn;
	int turn, put;

	/* Its answer is outstanding. */
	WRITE_ONCE(drivers[1].holds, true);
	KUNIT_ASSERT_EQ(test, bulk_begin(&drivers[0], 0, true, PAGE_SIZE, 1, &tn), 0);
	for (turn = 0; turn < LONG && !READ_ONCE(drivers[1].held); turn++)
		usleep_range(500, 1000);
	KUNIT_ASSERT_NOT_NULL(test, drivers[1].held);
	transaction_free(drivers[1].held);
	driver_close(test, &drivers[1]);
	KUNIT_EXPECT_TRUE(test, is_gone(immediate(&drivers[0], 0, IMMEDIATE_MSG, 1000, 1)));
	for (put = 0; put < 2; put++) {
		KUNIT_EXPECT_TRUE(test, is_gone(bulk(&drivers[0], 0, put, PAGE_SIZE, 1)));
		KUNIT_EXPECT_TRUE(test, is_gone(bulk(&drivers[0], 1, put, PAGE_SIZE, 1)));
	}
	/* The receive is there until it is taken back. */
	KUNIT_EXPECT_FALSE(test, completion_done(&tn->done));
	KUNIT_EXPECT_EQ(test, kfi_cancel(&drivers[0].cpts[0].rx->fid, tn), 0);
	KUNIT_EXPECT_EQ(test, ended(tn), -ECANCELED);
	transaction_free(tn);

	driver_open(test, &drivers[1], 1, SERVICE, KEY);
	driver_knows(test, &drivers[1], &drivers[0]);
	greet(test, &drivers[1]);
	greet(test, &drivers[0]);
	for (put = 0; put < 2; put++) {
		KUNIT_EXPECT_EQ(test, bulk(&drivers[put], 1, put, PAGE_SIZE, 1), 0);
		KUNIT_EXPECT_EQ(test, bulk(&drivers[put], 1, !put, SZ_1M, 2), 0);
	}
	drivers_close(test, drivers);
}

/* Drivers whose keys differ do not meet. */
static void another_key_is_refused(struct kunit *test)
{
	struct driver *drivers = drivers_open(test, KEY, KEY + 1);
	int host;

	for (host = 0; host < HOSTS; host++) {
		KUNIT_EXPECT_EQ(test, immediate(&drivers[host], 0, HELLO_REQ, 0, 0), -ENOTCONN);
		KUNIT_EXPECT_EQ(test, bulk(&drivers[host], 1, true, PAGE_SIZE, 1), -ENOTCONN);
	}
	drivers_close(test, drivers);
}

CONSUMER("drivers that work as kfilnd, on two hosts",
	 KUNIT_CASE(messages_arrive),
	 KUNIT_CASE(bulk_data_arrive),
	 KUNIT_CASE_SLOW(all_is_done_at_once),
	 KUNIT_CASE(a_target_can_refuse),
	 KUNIT_CASE(late_bulk_data_are_lost),
	 KUNIT_CASE_SLOW(a_peer_that_is_gone_is_found_again),
	 KUNIT_CASE(another_key_is_refused));
