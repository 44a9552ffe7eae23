// SPDX-License-Identifier: GPL-2.0
/*
 * Events of endpoints and regions that are closed: an event queue has none of them afterwards,
 * because the consumer may have freed what their contexts and objects stand for.
 * consumer_requests has the requests of passive endpoints, consumer_av_table the events of address
 * vectors, which stay.
 */

#include "cm.h"

/* Waits until there is an event, which stays. Returns its number. */
static u32 wait_for_event(struct kunit *test, struct kfid_eq *eq)
{
	struct event event;
	u32 number = 0;

	KUNIT_ASSERT_GT(test, kfi_eq_sread(eq, &number, &event.head,
					   sizeof(event.head) + sizeof(event.data), LONG, KFI_PEEK),
			0);
	return number;
}

/* The queue has neither an event nor an error. */
static void expect_empty(struct kunit *test, struct kfid_eq *eq)
{
	struct kfi_eq_err_entry error = {};
	struct event event;
	u32 number;

	KUNIT_EXPECT_EQ(test, kfi_eq_readerr(eq, &error, 0), -KFI_EAGAIN);
	KUNIT_EXPECT_EQ(test, kfi_eq_read(eq, &number, &event.head,
					  sizeof(event.head) + sizeof(event.data), 0),
			-KFI_EAGAIN);
}

/* KFI_CONNECTED of an endpoint. The other end learns of the close. */
static void a_close_removes_connection_events(struct kunit *test)
{
	struct event event;
	struct kfid_eq *eq;
	struct end server;
	struct world w;

	world_open(test, &w);
	eq = eq_open(test, &w);
	accept_client(test, &w, &server, eq);
	KUNIT_EXPECT_EQ(test, wait_for_event(test, eq), KFI_CONNECTED);
	end_close(test, &server);
	expect_empty(test, eq);
	next(test, w.client_eq, &event, KFI_CONNECTED, &w.client.ep->fid, ANSWERED);
	next(test, w.client_eq, &event, KFI_SHUTDOWN, &w.client.ep->fid, 0);
	KUNIT_EXPECT_EQ(test, kfi_close(&eq->fid), 0);
	world_close(test, &w);
}

static void a_close_removes_a_shutdown(struct kunit *test)
{
	struct kfid_eq *eq;
	struct end server;
	struct world w;

	world_open(test, &w);
	eq = eq_open(test, &w);
	connect_client(test, &w, &server, eq);
	KUNIT_EXPECT_EQ(test, kfi_shutdown(w.client.ep, 0), 0);
	KUNIT_EXPECT_EQ(test, wait_for_event(test, eq), KFI_SHUTDOWN);
	end_close(test, &server);
	expect_empty(test, eq);
	KUNIT_EXPECT_EQ(test, kfi_close(&eq->fid), 0);
	world_close(test, &w);
}

/* The error of a request that was rejected. */
static void a_close_removes_errors(struct kunit *test)
{
	struct event event;
	struct kfid_eq *eq;
	struct end client;
	struct world w;
	u32 number;

	world_open(test, &w);
	eq = eq_open(test, &w);
	connected_open(test, &w, w.info, &client, eq);
	KUNIT_ASSERT_EQ(test, kfi_connect(client.ep, &w.addr, NULL, 0), 0);
	next(test, w.eq, &event, KFI_CONNREQ, &w.pep->fid, ASKED);
	KUNIT_EXPECT_EQ(test, kfi_reject(w.pep, event.head.info->handle, NULL, 0), 0);
	kfi_freeinfo(event.head.info);
	KUNIT_EXPECT_EQ(test, kfi_eq_sread(eq, &number, &event.head, sizeof(event.head), LONG, 0),
			-KFI_EAVAIL);
	end_close(test, &client);
	expect_empty(test, eq);
	KUNIT_EXPECT_EQ(test, kfi_close(&eq->fid), 0);
	world_close(test, &w);
}

/* KFI_MR_COMPLETE; that of another region, and an event that the consumer has written, stay. */
static void a_close_removes_registrations(struct kunit *test)
{
	struct kfi_eq_attr attr = { .wait_obj = KFI_WAIT_UNSPEC, .flags = KFI_WRITE };
	struct kfi_eq_entry entry = {};
	struct kfid_mr *mrs[2];
	struct kfid_eq *eq;
	struct fixture f;
	u64 *word;
	u32 number;
	int i;

	word = zeroed(test, sizeof(*word));
	fixture_open(test, &f);
	KUNIT_ASSERT_EQ(test, kfi_eq_open(f.fabric, &attr, &eq, NULL, NULL), 0);
	KUNIT_ASSERT_EQ(test, kfi_domain_bind(f.domain, &eq->fid, KFI_REG_MR), 0);
	for (i = 0; i < 2; i++)
		KUNIT_ASSERT_EQ(test, kfi_mr_reg(f.domain, word, sizeof(*word), KFI_REMOTE_WRITE,
						 0, i, 0, &mrs[i], NULL), 0);
	entry.fid = &mrs[0]->fid;
	KUNIT_EXPECT_EQ(test, kfi_eq_write(eq, KFI_NOTIFY, &entry, sizeof(entry), 0),
			sizeof(entry));
	KUNIT_EXPECT_EQ(test, kfi_close(&mrs[0]->fid), 0);
	KUNIT_EXPECT_EQ(test, kfi_eq_read(eq, &number, &entry, sizeof(entry), 0), sizeof(entry));
	KUNIT_EXPECT_EQ(test, number, KFI_MR_COMPLETE);
	KUNIT_EXPECT_PTR_EQ(test, entry.fid, &mrs[1]->fid);
	KUNIT_EXPECT_EQ(test, kfi_eq_read(eq, &number, &entry, sizeof(entry), 0), sizeof(entry));
	KUNIT_EXPECT_EQ(test, number, KFI_NOTIFY);
	expect_empty(test, eq);
	KUNIT_EXPECT_EQ(test, kfi_close(&mrs[1]->fid), 0);
	expect_empty(test, eq);
	fixture_close_with(test, &f, eq);
}

CONSUMER("events of closed objects",
	 KUNIT_CASE(a_close_removes_connection_events),
	 KUNIT_CASE(a_close_removes_a_shutdown),
	 KUNIT_CASE(a_close_removes_errors),
	 KUNIT_CASE(a_close_removes_registrations));
