// SPDX-License-Identifier: GPL-2.0
/*
 * Requests for connections: their events, their handles, the backlog, and their
 * rejection.
 */

#include "cm.h"

/* The reason of InfiniBand for a rejection by the consumer. */
#define CONSUMER_REJECT	28

static void requests_are_rejected(struct kunit *test)
{
	struct kfi_eq_err_entry error = {};
	struct event event;
	struct kfid_ep *ep;
	struct kfi_info *info;
	struct world w;
	char data[200];
	u32 number;
	int i;

	for (i = 0; i < sizeof(data); i++)
		data[i] = i;
	world_open(test, &w);
	/* Data that do not fit are cut off. */
	KUNIT_ASSERT_EQ(test, kfi_connect(w.client.ep, &w.addr, data, sizeof(data)), 0);
	next(test, w.eq, &event, KFI_CONNREQ, &w.pep->fid, ASKED);
	KUNIT_EXPECT_MEMEQ(test, event.data, data, ASKED);
	info = event.head.info;
	KUNIT_EXPECT_EQ(test, kfi_reject(w.pep, NULL, NULL, 0), -KFI_EINVAL);
	KUNIT_EXPECT_EQ(test, kfi_reject(w.pep, &w.pep->fid, NULL, 0), -KFI_EINVAL);
	KUNIT_EXPECT_EQ(test, kfi_reject(w.pep, info->handle, NULL, 1), -KFI_EINVAL);
	KUNIT_EXPECT_EQ(test, kfi_reject(w.pep, info->handle, data, sizeof(data)), 0);
	KUNIT_EXPECT_EQ(test, kfi_reject(w.pep, info->handle, NULL, 0), -KFI_ENOENT);
	/* Too late for an endpoint. */
	KUNIT_ASSERT_EQ(test, kfi_endpoint(w.f.domain, info, &ep, NULL), 0);
	KUNIT_EXPECT_LT(test, kfi_accept(ep, NULL, 0), 0);
	KUNIT_EXPECT_EQ(test, kfi_close(&ep->fid), 0);
	kfi_freeinfo(info);

	KUNIT_ASSERT_EQ(test, kfi_eq_sread(w.client_eq, &number, &event.head, sizeof(event.head),
					   LONG, 0), -KFI_EAVAIL);
	/*
	 * Every field is written. With an err_data_size of 0, err_data points to
	 * memory of the queue.
	 */
	memset(&error, 0xff, sizeof(error));
	error.err_data_size = 0;
	KUNIT_ASSERT_EQ(test, kfi_eq_readerr(w.client_eq, &error, 0), sizeof(error));
	KUNIT_EXPECT_PTR_EQ(test, error.fid, &w.client.ep->fid);
	KUNIT_EXPECT_EQ(test, error.err, KFI_ECONNREFUSED);
	KUNIT_EXPECT_EQ(test, error.data, 0);
	KUNIT_EXPECT_EQ(test, error.prov_errno, CONSUMER_REJECT);
	KUNIT_EXPECT_PTR_EQ(test, error.context, (void *)&w.client);
	KUNIT_ASSERT_EQ(test, error.err_data_size, REJECTED);
	KUNIT_EXPECT_MEMEQ(test, error.err_data, (void *)data, REJECTED);
	world_close(test, &w);
}

/* Private data are cut to the room that there is for them. */
static void private_data_have_the_room_of_the_reader(struct kunit *test)
{
	static const char asked[24] = "twenty-three characters", answered[200] = "an answer";
	const size_t room = sizeof(asked);
	struct event event;
	struct kfid_eq *eq;
	struct end server;
	struct world w;
	u32 number;

	world_open(test, &w);
	eq = eq_open(test, &w);
	KUNIT_ASSERT_EQ(test, kfi_connect(w.client.ep, &w.addr, asked, sizeof(asked)), 0);
	memset(&event, 'x', sizeof(event));
	/* Not even for the rest of the event. */
	KUNIT_ASSERT_EQ(test, kfi_eq_sread(w.eq, &number, &event.head, sizeof(event.head) - 1,
					   LONG, 0), -KFI_ETOOSMALL);
	KUNIT_ASSERT_EQ(test, kfi_eq_read(w.eq, &number, &event.head, sizeof(event.head),
					  KFI_PEEK), sizeof(event.head));
	KUNIT_EXPECT_EQ(test, event.data[0], 'x');
	KUNIT_ASSERT_EQ(test, kfi_eq_read(w.eq, &number, &event.head, sizeof(event.head) + room,
					  0), sizeof(event.head) + room);
	KUNIT_EXPECT_EQ(test, number, KFI_CONNREQ);
	KUNIT_EXPECT_PTR_EQ(test, event.head.fid, &w.pep->fid);
	KUNIT_EXPECT_MEMEQ(test, event.data, asked, room);
	KUNIT_EXPECT_EQ(test, event.data[room], 'x');
	KUNIT_ASSERT_NOT_NULL(test, event.head.info);
	connected_open(test, &w, event.head.info, &server, eq);
	kfi_freeinfo(event.head.info);
	KUNIT_ASSERT_EQ(test, kfi_accept(server.ep, answered, sizeof(answered)), 0);
	KUNIT_ASSERT_EQ(test, kfi_eq_sread(w.client_eq, &number, &event.head,
					   sizeof(event.head) + 9, LONG, 0),
			sizeof(event.head) + 9);
	KUNIT_EXPECT_EQ(test, number, KFI_CONNECTED);
	KUNIT_EXPECT_MEMEQ(test, event.data, "an answer", 9);
	KUNIT_EXPECT_EQ(test, event.data[9], asked[9]);
	KUNIT_ASSERT_EQ(test, kfi_eq_sread(eq, &number, &event.head, sizeof(event.head), LONG, 0),
			sizeof(event.head));
	KUNIT_EXPECT_EQ(test, number, KFI_CONNECTED);
	end_close(test, &server);
	KUNIT_EXPECT_EQ(test, kfi_close(&eq->fid), 0);
	world_close(test, &w);
}

/* An event that is only looked at has no entry, and stays. */
static void a_request_can_be_peeked_at(struct kunit *test)
{
	struct event event = {};
	struct world w;
	u32 number;

	world_open(test, &w);
	KUNIT_ASSERT_EQ(test, kfi_connect(w.client.ep, &w.addr, NULL, 0), 0);
	KUNIT_ASSERT_EQ(test, kfi_eq_sread(w.eq, &number, &event.head,
					   sizeof(event.head) + sizeof(event.data), LONG, KFI_PEEK),
			sizeof(event.head) + ASKED);
	KUNIT_EXPECT_EQ(test, number, KFI_CONNREQ);
	KUNIT_EXPECT_NULL(test, event.head.info);
	KUNIT_EXPECT_EQ(test, kfi_eq_read(w.eq, &number, &event.head, 4, 0), -KFI_ETOOSMALL);
	next(test, w.eq, &event, KFI_CONNREQ, &w.pep->fid, ASKED);
	kfi_freeinfo(event.head.info);
	/* The request is rejected when the passive endpoint is closed. */
	world_close(test, &w);
}

/* A passive endpoint that is closed has no events. Its requests are rejected. */
static void a_close_removes_requests(struct kunit *test)
{
	struct kfi_eq_err_entry error = {};
	struct event event;
	struct world w;
	u32 number;

	memset(&event, 0xff, sizeof(event));
	world_open(test, &w);
	KUNIT_ASSERT_EQ(test, kfi_connect(w.client.ep, &w.addr, NULL, 0), 0);
	KUNIT_ASSERT_EQ(test, kfi_eq_sread(w.eq, &number, &event.head,
					   sizeof(event.head) + sizeof(event.data), LONG, KFI_PEEK),
			sizeof(event.head) + ASKED);
	KUNIT_EXPECT_PTR_EQ(test, event.head.fid, &w.pep->fid);
	KUNIT_EXPECT_NULL(test, event.head.info);
	KUNIT_EXPECT_EQ(test, kfi_close(&w.pep->fid), 0);
	w.pep = NULL;
	KUNIT_EXPECT_EQ(test, kfi_eq_read(w.eq, &number, &event.head,
					  sizeof(event.head) + sizeof(event.data), 0),
			-KFI_EAGAIN);
	KUNIT_ASSERT_EQ(test, kfi_eq_sread(w.client_eq, &number, &event.head, sizeof(event.head),
					   LONG, 0), -KFI_EAVAIL);
	KUNIT_ASSERT_EQ(test, kfi_eq_readerr(w.client_eq, &error, 0), sizeof(error));
	KUNIT_EXPECT_EQ(test, error.err, KFI_ECONNREFUSED);
	world_close(test, &w);
}

/* The backlog is what may wait: further requests are refused. */
static void a_backlog_limits_requests(struct kunit *test)
{
	static const int bad[] = { 0, -1, INT_MIN, 4097, INT_MAX };
	struct kfi_eq_err_entry error = {};
	struct kfid_eq *eq, *peer_eq;
	struct event event = {};
	struct sockaddr_in addr;
	size_t len = sizeof(addr);
	struct kfi_info *info;
	struct kfid_pep *pep;
	struct end peer;
	struct world w;
	int i, backlog;
	u32 number;

	world_open(test, &w);
	eq = eq_open(test, &w);
	peer_eq = eq_open(test, &w);
	KUNIT_ASSERT_EQ(test, kfi_passive_ep(w.f.fabric, w.info, &pep, NULL), 0);
	KUNIT_EXPECT_EQ(test, kfi_control(&pep->fid, KFI_BACKLOG, NULL), -KFI_EINVAL);
	for (i = 0; i < ARRAY_SIZE(bad); i++) {
		backlog = bad[i];
		KUNIT_EXPECT_EQ(test, kfi_control(&pep->fid, KFI_BACKLOG, &backlog), -KFI_EINVAL);
	}
	for (backlog = 4096; backlog; backlog /= 16)
		KUNIT_EXPECT_EQ(test, kfi_control(&pep->fid, KFI_BACKLOG, &backlog), 0);
	KUNIT_EXPECT_EQ(test, kfi_pep_bind(pep, &eq->fid, 0), 0);
	KUNIT_EXPECT_EQ(test, kfi_listen(pep), 0);
	KUNIT_EXPECT_EQ(test, kfi_getname(&pep->fid, &addr, &len), 0);
	/* One may wait. */
	KUNIT_EXPECT_EQ(test, kfi_connect(w.client.ep, &addr, NULL, 0), 0);
	next(test, eq, &event, KFI_CONNREQ, &pep->fid, ASKED);
	info = event.head.info;
	connected_open(test, &w, w.info, &peer, peer_eq);
	KUNIT_EXPECT_EQ(test, kfi_connect(peer.ep, &addr, NULL, 0), 0);
	KUNIT_EXPECT_EQ(test, kfi_eq_sread(peer_eq, &number, &event.head, sizeof(event.head),
					   LONG, 0), -KFI_EAVAIL);
	KUNIT_ASSERT_EQ(test, kfi_eq_readerr(peer_eq, &error, 0), sizeof(error));
	KUNIT_EXPECT_EQ(test, error.err, KFI_ECONNREFUSED);
	/* The first still stands for its request. */
	KUNIT_EXPECT_EQ(test, kfi_reject(pep, info->handle, NULL, 0), 0);
	kfi_freeinfo(info);
	end_close(test, &peer);
	CLOSE(test, &pep->fid, &eq->fid, &peer_eq->fid);
	world_close(test, &w);
}

/* Passive endpoints that are opened to get the memory of a closed one. */
#define TRIES		64

/* Events that a queue holds. */
#define EVENTS		8

/*
 * Anybody may ask for connections. Requests do not take the room for the events of others that are
 * bound to the same queue, and do not make events of those lost.
 */
static void requests_leave_room_for_other_events(struct kunit *test)
{
	struct kfi_eq_attr attr = { .size = EVENTS, .wait_obj = KFI_WAIT_UNSPEC };
	bool closed = false, overrun = false, refused = false;
	struct kfi_eq_err_entry error;
	struct end *clients, server;
	struct kfid_eq *eq;
	struct kfid_pep *pep;
	struct sockaddr_in addr;
	size_t len = sizeof(addr);
	struct event event;
	struct world w;
	ssize_t ret;
	int i;

	clients = zeroed(test, (EVENTS + 1) * sizeof(*clients));
	world_open(test, &w);
	KUNIT_ASSERT_EQ(test, kfi_eq_open(w.f.fabric, &attr, &eq, NULL, NULL), 0);
	KUNIT_ASSERT_EQ(test, kfi_passive_ep(w.f.fabric, w.info, &pep, NULL), 0);
	KUNIT_ASSERT_EQ(test, kfi_pep_bind(pep, &eq->fid, 0), 0);
	KUNIT_ASSERT_EQ(test, kfi_listen(pep), 0);
	KUNIT_ASSERT_EQ(test, kfi_getname(&pep->fid, &addr, &len), 0);
	/* A connection whose events come to the same queue. */
	KUNIT_ASSERT_EQ(test, kfi_connect(w.client.ep, &addr, NULL, 0), 0);
	next(test, eq, &event, KFI_CONNREQ, &pep->fid, ASKED);
	connected_open(test, &w, event.head.info, &server, eq);
	KUNIT_ASSERT_EQ(test, kfi_accept(server.ep, NULL, 0), 0);
	kfi_freeinfo(event.head.info);
	next(test, eq, &event, KFI_CONNECTED, &server.ep->fid, 0);
	next(test, w.client_eq, &event, KFI_CONNECTED, &w.client.ep->fid, ANSWERED);
	/* Requests that nobody answers. The last one finds no room. */
	for (i = 0; i <= EVENTS; i++) {
		connected_open(test, &w, w.info, &clients[i], w.client_eq);
		KUNIT_ASSERT_EQ(test, kfi_connect(clients[i].ep, &addr, NULL, 0), 0);
	}
	while (!refused) {
		memset(&error, 0, sizeof(error));
		KUNIT_ASSERT_EQ(test, kfi_eq_sread(w.client_eq, &event.number, &event.head,
						   sizeof(event.head) + sizeof(event.data), LONG,
						   0), -KFI_EAVAIL);
		KUNIT_ASSERT_EQ(test, kfi_eq_readerr(w.client_eq, &error, 0), sizeof(error));
		refused = error.fid == &clients[EVENTS].ep->fid;
	}
	KUNIT_EXPECT_EQ(test, kfi_shutdown(w.client.ep, 0), 0);
	do {
		memset(&event, 0, sizeof(event));
		ret = kfi_eq_sread(eq, &event.number, &event.head,
				   sizeof(event.head) + sizeof(event.data), 1000, 0);
		if (ret > 0 && event.number == KFI_CONNREQ)
			kfi_freeinfo(event.head.info);
		closed |= ret > 0 && event.number == KFI_SHUTDOWN;
		overrun |= ret == -KFI_EOVERRUN;
	} while (ret > 0 || ret == -KFI_EOVERRUN);
	KUNIT_EXPECT_TRUE(test, closed);
	KUNIT_EXPECT_FALSE(test, overrun);
	for (i = 0; i <= EVENTS; i++)
		end_close(test, &clients[i]);
	end_close(test, &server);
	CLOSE(test, &pep->fid, &eq->fid);
	world_close(test, &w);
}

/*
 * A passive endpoint at the address in memory of one that was closed gets none of its events.
 */
static void an_event_names_no_later_endpoint(struct kunit *test)
{
	struct kfid_pep **peps, *pep = NULL;
	struct event old = {}, new = {};
	struct kfid_eq *second_eq;
	struct sockaddr_in addr;
	size_t len = sizeof(addr);
	struct end client;
	struct world w;
	void *before;
	u32 number;
	int i;

	peps = zeroed(test, TRIES * sizeof(*peps));
	world_open(test, &w);
	second_eq = eq_open(test, &w);
	connected_open(test, &w, w.info, &client, second_eq);
	KUNIT_ASSERT_EQ(test, kfi_connect(w.client.ep, &w.addr, "old", 4), 0);
	KUNIT_ASSERT_EQ(test, kfi_eq_sread(w.eq, &number, &old.head,
					   sizeof(old.head) + sizeof(old.data), LONG, KFI_PEEK),
			sizeof(old.head) + ASKED);
	before = w.pep;
	KUNIT_EXPECT_EQ(test, kfi_close(&w.pep->fid), 0);
	w.pep = NULL;
	for (i = 0; i < TRIES && !pep; i++) {
		KUNIT_ASSERT_EQ(test, kfi_passive_ep(w.f.fabric, w.info, &peps[i], NULL), 0);
		if (peps[i] == before)
			swap(pep, peps[i]);
	}
	for (i = 0; i < TRIES; i++)
		if (peps[i])
			KUNIT_EXPECT_EQ(test, kfi_close(&peps[i]->fid), 0);
	if (pep) {
		KUNIT_ASSERT_EQ(test, kfi_pep_bind(pep, &w.eq->fid, 0), 0);
		KUNIT_ASSERT_EQ(test, kfi_listen(pep), 0);
		KUNIT_ASSERT_EQ(test, kfi_getname(&pep->fid, &addr, &len), 0);
		KUNIT_ASSERT_EQ(test, kfi_connect(client.ep, &addr, "new", 4), 0);
	}
	if (pep) {
		next(test, w.eq, &new, KFI_CONNREQ, &pep->fid, ASKED);
		KUNIT_EXPECT_STREQ(test, new.data, "new");
		KUNIT_EXPECT_EQ(test, kfi_reject(pep, new.head.info->handle, NULL, 0), 0);
		kfi_freeinfo(new.head.info);
		KUNIT_EXPECT_EQ(test, kfi_close(&pep->fid), 0);
	}
	KUNIT_EXPECT_EQ(test, kfi_eq_read(w.eq, &number, &old.head,
					  sizeof(old.head) + sizeof(old.data), 0), -KFI_EAGAIN);
	end_close(test, &client);
	KUNIT_EXPECT_EQ(test, kfi_close(&second_eq->fid), 0);
	world_close(test, &w);
	if (!pep)
		kunit_skip(test, "no passive endpoint had the address of the first one");
}

/* The handle of a request that was rejected stands for no other request. */
static void a_rejected_request_stays_rejected(struct kunit *test)
{
	struct kfid_eq *second_eq;
	struct event first, second;
	struct end client;
	struct world w;

	world_open(test, &w);
	second_eq = eq_open(test, &w);
	connected_open(test, &w, w.info, &client, second_eq);
	KUNIT_ASSERT_EQ(test, kfi_connect(w.client.ep, &w.addr, "first", 6), 0);
	next(test, w.eq, &first, KFI_CONNREQ, &w.pep->fid, ASKED);
	KUNIT_EXPECT_EQ(test, kfi_reject(w.pep, first.head.info->handle, NULL, 0), 0);
	KUNIT_EXPECT_EQ(test, kfi_reject(w.pep, first.head.info->handle, NULL, 0), -KFI_ENOENT);
	KUNIT_ASSERT_EQ(test, kfi_connect(client.ep, &w.addr, "second", 7), 0);
	next(test, w.eq, &second, KFI_CONNREQ, &w.pep->fid, ASKED);
	KUNIT_EXPECT_STREQ(test, second.data, "second");
	KUNIT_EXPECT_EQ(test, kfi_reject(w.pep, first.head.info->handle, NULL, 0), -KFI_ENOENT);
	KUNIT_EXPECT_EQ(test, kfi_reject(w.pep, second.head.info->handle, NULL, 0), 0);
	kfi_freeinfo(first.head.info);
	kfi_freeinfo(second.head.info);
	end_close(test, &client);
	KUNIT_EXPECT_EQ(test, kfi_close(&second_eq->fid), 0);
	world_close(test, &w);
}

/* An entry and its copy have a handle each, which is freed with them. */
static void a_copied_entry_has_its_own_handle(struct kunit *test)
{
	struct kfid_eq *second_eq;
	struct kfi_info *copy, *shallow;
	struct event first, second;
	struct end client;
	struct world w;

	world_open(test, &w);
	second_eq = eq_open(test, &w);
	connected_open(test, &w, w.info, &client, second_eq);
	KUNIT_ASSERT_EQ(test, kfi_connect(w.client.ep, &w.addr, NULL, 0), 0);
	next(test, w.eq, &first, KFI_CONNREQ, &w.pep->fid, ASKED);
	copy = kfi_dupinfo(first.head.info);
	KUNIT_ASSERT_NOT_NULL(test, copy);
	KUNIT_EXPECT_PTR_NE(test, copy->handle, first.head.info->handle);
	kfi_freeinfo(first.head.info);
	KUNIT_EXPECT_EQ(test, copy->handle->fclass, KFI_CLASS_CONNREQ);
	KUNIT_EXPECT_EQ(test, kfi_reject(w.pep, copy->handle, NULL, 0), 0);
	KUNIT_EXPECT_EQ(test, kfi_reject(w.pep, copy->handle, NULL, 0), -KFI_ENOENT);

	/* The handle of another entry is shared, as other objects are. */
	KUNIT_ASSERT_EQ(test, kfi_connect(client.ep, &w.addr, NULL, 0), 0);
	next(test, w.eq, &second, KFI_CONNREQ, &w.pep->fid, ASKED);
	copy->handle = second.head.info->handle;
	shallow = kfi_dupinfo(copy);
	KUNIT_ASSERT_NOT_NULL(test, shallow);
	KUNIT_EXPECT_PTR_EQ(test, shallow->handle, second.head.info->handle);
	kfi_freeinfo(copy);
	KUNIT_EXPECT_EQ(test, kfi_reject(w.pep, shallow->handle, NULL, 0), 0);
	kfi_freeinfo(shallow);
	kfi_freeinfo(second.head.info);
	end_close(test, &client);
	KUNIT_EXPECT_EQ(test, kfi_close(&second_eq->fid), 0);
	world_close(test, &w);
}

/* A handle can be used after its passive endpoint was closed, and names no request then. */
static void a_handle_outlives_its_endpoint(struct kunit *test)
{
	struct kfid_ep *ep = NULL;
	struct kfid_pep *pep;
	struct event event;
	struct world w;

	world_open(test, &w);
	KUNIT_ASSERT_EQ(test, kfi_connect(w.client.ep, &w.addr, NULL, 0), 0);
	next(test, w.eq, &event, KFI_CONNREQ, &w.pep->fid, ASKED);
	KUNIT_EXPECT_EQ(test, kfi_close(&w.pep->fid), 0);
	w.pep = NULL;
	KUNIT_EXPECT_EQ(test, kfi_endpoint(w.f.domain, event.head.info, &ep, NULL), -KFI_ENOENT);
	KUNIT_ASSERT_EQ(test, kfi_passive_ep(w.f.fabric, w.info, &pep, NULL), 0);
	KUNIT_EXPECT_EQ(test, kfi_reject(pep, event.head.info->handle, NULL, 0), -KFI_ENOENT);
	KUNIT_EXPECT_EQ(test, kfi_close(&pep->fid), 0);
	kfi_freeinfo(event.head.info);
	world_close(test, &w);
}

CONSUMER("requests for connections",
	 KUNIT_CASE(requests_are_rejected),
	 KUNIT_CASE(a_request_can_be_peeked_at),
	 KUNIT_CASE(private_data_have_the_room_of_the_reader),
	 KUNIT_CASE(a_close_removes_requests),
	 KUNIT_CASE(a_backlog_limits_requests),
	 KUNIT_CASE(requests_leave_room_for_other_events),
	 KUNIT_CASE(an_event_names_no_later_endpoint),
	 KUNIT_CASE(a_rejected_request_stays_rejected),
	 KUNIT_CASE(a_copied_entry_has_its_own_handle),
	 KUNIT_CASE(a_handle_outlives_its_endpoint));
