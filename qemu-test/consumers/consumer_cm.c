// SPDX-License-Identifier: GPL-2.0
/*
 * Connections: passive endpoints, requests, and messages of connected endpoints.
 */

#include <linux/gfp.h>
#include <linux/inet.h>
#include <linux/module.h>

#include "pair.h"

#define PORT		7474
/* Private data of a request, and of its answer, with what fills them up. */
#define ASKED		56
#define ANSWERED	196
#define ROOM		PAGE_SIZE

/**
 * struct event - an event of a connection
 * @number: KFI_CONNREQ, ...
 * @head: what it concerns
 * @data: private data
 */
struct event {
	u32			number;
	struct kfi_eq_cm_entry	head;
	char			data[256];
};

/**
 * struct world - what the tests of this file share
 * @f: the domain
 * @info: an entry for connected endpoints
 * @addr: where the passive endpoint listens
 * @pep: the passive endpoint
 * @eq: its events
 * @client: the end that asks
 * @client_eq: its events
 */
struct world {
	struct fixture		f;
	struct kfi_info		*info;
	struct sockaddr_in	addr;
	struct kfid_pep		*pep;
	struct kfid_eq		*eq;
	struct end		client;
	struct kfid_eq		*client_eq;
};

static struct kfid_eq *eq_open(struct kunit *test, struct world *w)
{
	struct kfi_eq_attr attr = { .wait_obj = KFI_WAIT_UNSPEC };
	struct kfid_eq *eq;

	KUNIT_ASSERT_EQ(test, kfi_eq_open(w->f.fabric, &attr, &eq, NULL, NULL), 0);
	return eq;
}

/* Opens a connected endpoint with an event queue. */
static void connected_open(struct kunit *test, struct world *w, struct kfi_info *info,
			   struct end *end, struct kfid_eq *eq)
{
	end_open(test, &w->f, info, end, 0);
	KUNIT_ASSERT_EQ(test, kfi_ep_bind(end->ep, &eq->fid, 0), 0);
	KUNIT_ASSERT_EQ(test, kfi_enable(end->ep), 0);
}

/* A passive endpoint that listens, and an endpoint that may ask it. */
static void world_open(struct kunit *test, struct world *w)
{
	size_t len = sizeof(w->addr);

	fixture_open(test, &w->f);
	w->info = entry_of(test, KFI_EP_MSG);
	w->eq = eq_open(test, w);
	w->client_eq = eq_open(test, w);
	KUNIT_ASSERT_EQ(test, kfi_passive_ep(w->f.fabric, w->info, &w->pep, w), 0);
	KUNIT_EXPECT_EQ(test, w->pep->fid.fclass, KFI_CLASS_PEP);
	KUNIT_EXPECT_EQ(test, w->pep->ops->size, sizeof(struct kfi_ops_ep));
	KUNIT_EXPECT_EQ(test, w->pep->cm->size, sizeof(struct kfi_ops_cm));
	KUNIT_ASSERT_EQ(test, kfi_pep_bind(w->pep, &w->eq->fid, 0), 0);
	KUNIT_ASSERT_EQ(test, kfi_listen(w->pep), 0);
	KUNIT_ASSERT_EQ(test, kfi_getname(&w->pep->fid, &w->addr, &len), 0);
	KUNIT_EXPECT_NE(test, w->addr.sin_port, 0);
	connected_open(test, w, w->info, &w->client, w->client_eq);
}

static void world_close(struct kunit *test, struct world *w)
{
	end_close(test, &w->client);
	if (w->pep)
		KUNIT_EXPECT_EQ(test, kfi_close(&w->pep->fid), 0);
	KUNIT_EXPECT_EQ(test, kfi_close(&w->eq->fid), 0);
	KUNIT_EXPECT_EQ(test, kfi_close(&w->client_eq->fid), 0);
	kfi_freeinfo(w->info);
	fixture_close(test, &w->f);
}

/* Waits for the next event of a queue, and compares it. */
static void next(struct kunit *test, struct kfid_eq *eq, struct event *event, u32 number,
		 struct kfid *fid, size_t data)
{
	memset(event, 0, sizeof(*event));
	KUNIT_ASSERT_EQ(test, kfi_eq_sread(eq, &event->number, &event->head,
					   sizeof(event->head) + sizeof(event->data), LONG, 0),
			sizeof(event->head) + data);
	KUNIT_EXPECT_EQ(test, event->number, number);
	KUNIT_EXPECT_PTR_EQ(test, event->head.fid, fid);
	if (number == KFI_CONNREQ)
		KUNIT_ASSERT_NOT_NULL(test, event->head.info);
	else
		KUNIT_EXPECT_NULL(test, event->head.info);
}

static void connections_carry_messages(struct kunit *test)
{
	u8 *to = (u8 *)get_zeroed_page(GFP_KERNEL), *from = (u8 *)get_zeroed_page(GFP_KERNEL);
	struct sockaddr_in peer;
	size_t len = sizeof(peer);
	struct kfid_eq *eq;
	struct kfi_info *info;
	struct event event;
	struct end server;
	struct world w;
	int i;

	KUNIT_ASSERT_NOT_NULL(test, to);
	KUNIT_ASSERT_NOT_NULL(test, from);
	world_open(test, &w);
	KUNIT_EXPECT_EQ(test, kfi_getpeer(w.client.ep, &peer, &len), -KFI_ENOTCONN);
	KUNIT_EXPECT_EQ(test, kfi_shutdown(w.client.ep, 0), -KFI_ENOTCONN);
	KUNIT_ASSERT_EQ(test, kfi_connect(w.client.ep, &w.addr, "hello", 6), 0);

	next(test, w.eq, &event, KFI_CONNREQ, &w.pep->fid, ASKED);
	KUNIT_EXPECT_STREQ(test, event.data, "hello");
	info = event.head.info;
	KUNIT_EXPECT_EQ(test, info->ep_attr->type, KFI_EP_MSG);
	KUNIT_EXPECT_STREQ(test, info->domain_attr->name, "kfi0");
	KUNIT_ASSERT_NOT_NULL(test, info->handle);
	KUNIT_EXPECT_EQ(test, info->handle->fclass, KFI_CLASS_CONNREQ);
	KUNIT_EXPECT_EQ(test, kfi_close(info->handle), -KFI_ENOSYS);
	KUNIT_ASSERT_NOT_NULL(test, info->dest_addr);
	eq = eq_open(test, &w);
	connected_open(test, &w, info, &server, eq);
	KUNIT_EXPECT_EQ(test, kfi_recv(server.ep, to, ROOM, NULL, 0, to), 0);
	KUNIT_ASSERT_EQ(test, kfi_accept(server.ep, "welcome", 8), 0);
	kfi_freeinfo(info);

	next(test, w.client_eq, &event, KFI_CONNECTED, &w.client.ep->fid, ANSWERED);
	KUNIT_EXPECT_STREQ(test, event.data, "welcome");
	next(test, eq, &event, KFI_CONNECTED, &server.ep->fid, 0);
	KUNIT_EXPECT_EQ(test, kfi_getpeer(w.client.ep, &peer, &len), 0);
	KUNIT_EXPECT_EQ(test, peer.sin_addr.s_addr, w.addr.sin_addr.s_addr);
	KUNIT_EXPECT_EQ(test, kfi_connect(w.client.ep, &w.addr, NULL, 0), -KFI_EISCONN);

	for (i = 0; i < 3; i++) {
		size_t bytes = i * 1000;

		memset(from, 'a' + i, ROOM);
		KUNIT_EXPECT_EQ(test, kfi_send(w.client.ep, from, bytes, NULL, 0, from), 0);
		completed(test, &server, to, KFI_MSG | KFI_RECV, bytes);
		completed(test, &w.client, from, KFI_MSG | KFI_SEND, bytes);
		KUNIT_EXPECT_MEMEQ(test, to, from, bytes);
		KUNIT_EXPECT_EQ(test, kfi_recv(server.ep, to, ROOM, NULL, 0, to), 0);
	}
	/* The end of it: what is posted is flushed. */
	KUNIT_EXPECT_EQ(test, kfi_shutdown(w.client.ep, 0), 0);
	KUNIT_EXPECT_EQ(test, kfi_shutdown(w.client.ep, 0), -KFI_ENOTCONN);
	next(test, eq, &event, KFI_SHUTDOWN, &server.ep->fid, 0);
	failed(test, &server, to, KFI_ECANCELED);
	end_close(test, &server);
	KUNIT_EXPECT_EQ(test, kfi_close(&eq->fid), 0);
	world_close(test, &w);
	free_page((unsigned long)from);
	free_page((unsigned long)to);
}

static void requests_are_rejected(struct kunit *test)
{
	struct kfi_eq_err_entry error = {};
	struct event event;
	struct kfid_ep *ep;
	struct kfi_info *info;
	struct world w;
	u32 number;

	world_open(test, &w);
	KUNIT_ASSERT_EQ(test, kfi_connect(w.client.ep, &w.addr, NULL, 0), 0);
	next(test, w.eq, &event, KFI_CONNREQ, &w.pep->fid, ASKED);
	info = event.head.info;
	KUNIT_EXPECT_EQ(test, kfi_reject(w.pep, NULL, NULL, 0), -KFI_EINVAL);
	KUNIT_EXPECT_EQ(test, kfi_reject(w.pep, &w.pep->fid, NULL, 0), -KFI_EINVAL);
	KUNIT_EXPECT_EQ(test, kfi_reject(w.pep, info->handle, event.data, 149), -KFI_EINVAL);
	KUNIT_EXPECT_EQ(test, kfi_reject(w.pep, info->handle, "go away", 8), 0);
	KUNIT_EXPECT_EQ(test, kfi_reject(w.pep, info->handle, NULL, 0), -KFI_ENOENT);
	/* Too late for an endpoint. */
	KUNIT_ASSERT_EQ(test, kfi_endpoint(w.f.domain, info, &ep, NULL), 0);
	KUNIT_EXPECT_LT(test, kfi_accept(ep, NULL, 0), 0);
	KUNIT_EXPECT_EQ(test, kfi_close(&ep->fid), 0);
	kfi_freeinfo(info);

	KUNIT_ASSERT_EQ(test, kfi_eq_sread(w.client_eq, &number, &event.head, sizeof(event.head),
					   LONG, 0), -KFI_EAVAIL);
	KUNIT_ASSERT_EQ(test, kfi_eq_readerr(w.client_eq, &error, 0), sizeof(error));
	KUNIT_EXPECT_PTR_EQ(test, error.fid, &w.client.ep->fid);
	KUNIT_EXPECT_EQ(test, error.err, KFI_ECONNREFUSED);
	KUNIT_ASSERT_GE(test, error.err_data_size, 8);
	KUNIT_EXPECT_STREQ(test, (char *)error.err_data, "go away");
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

/* The event of a passive endpoint that is closed comes without an entry. */
static void an_event_survives_its_endpoint(struct kunit *test)
{
	struct kfi_eq_err_entry error = {};
	struct event event = {};
	struct world w;
	u32 number;

	world_open(test, &w);
	KUNIT_ASSERT_EQ(test, kfi_connect(w.client.ep, &w.addr, NULL, 0), 0);
	KUNIT_ASSERT_EQ(test, kfi_eq_sread(w.eq, &number, &event.head,
					   sizeof(event.head) + sizeof(event.data), LONG, KFI_PEEK),
			sizeof(event.head) + ASKED);
	KUNIT_EXPECT_EQ(test, kfi_close(&w.pep->fid), 0);
	w.pep = NULL;
	KUNIT_ASSERT_EQ(test, kfi_eq_read(w.eq, &number, &event.head,
					  sizeof(event.head) + sizeof(event.data), 0),
			sizeof(event.head) + ASKED);
	KUNIT_EXPECT_NULL(test, event.head.info);
	KUNIT_EXPECT_NULL(test, event.head.fid);
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
	KUNIT_EXPECT_EQ(test, kfi_close(&pep->fid), 0);
	KUNIT_EXPECT_EQ(test, kfi_close(&eq->fid), 0);
	KUNIT_EXPECT_EQ(test, kfi_close(&peer_eq->fid), 0);
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

	clients = kunit_kcalloc(test, EVENTS + 1, sizeof(*clients), GFP_KERNEL);
	KUNIT_ASSERT_NOT_NULL(test, clients);
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
	KUNIT_EXPECT_EQ(test, kfi_close(&pep->fid), 0);
	KUNIT_EXPECT_EQ(test, kfi_close(&eq->fid), 0);
	world_close(test, &w);
}

/*
 * The event of a passive endpoint that is closed comes without an entry, also if another passive
 * endpoint has the same address in memory meanwhile.
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

	peps = kunit_kcalloc(test, TRIES, sizeof(*peps), GFP_KERNEL);
	KUNIT_ASSERT_NOT_NULL(test, peps);
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
	KUNIT_ASSERT_EQ(test, kfi_eq_read(w.eq, &number, &old.head,
					  sizeof(old.head) + sizeof(old.data), 0),
			sizeof(old.head) + ASKED);
	KUNIT_EXPECT_STREQ(test, old.data, "old");
	KUNIT_EXPECT_NULL(test, old.head.info);
	KUNIT_EXPECT_NULL(test, old.head.fid);
	if (pep) {
		next(test, w.eq, &new, KFI_CONNREQ, &pep->fid, ASKED);
		KUNIT_EXPECT_STREQ(test, new.data, "new");
		/* What the entry of the old request rejects is the new one. */
		if (old.head.info)
			KUNIT_EXPECT_NE(test, kfi_reject(pep, old.head.info->handle, NULL, 0), 0);
		KUNIT_EXPECT_EQ(test, kfi_reject(pep, new.head.info->handle, NULL, 0), 0);
		kfi_freeinfo(new.head.info);
		KUNIT_EXPECT_EQ(test, kfi_close(&pep->fid), 0);
	}
	kfi_freeinfo(old.head.info);
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

static void calls_are_checked(struct kunit *test)
{
	struct sockaddr_in addr;
	struct kfid_pep *pep = NULL;
	struct kfi_info *info;
	struct kfid_ep *ep;
	size_t len = sizeof(addr), value;
	struct world w;
	int backlog = 5;
	char data[64] = {};

	world_open(test, &w);
	info = entry_of(test, KFI_EP_RDM);
	KUNIT_EXPECT_EQ(test, kfi_passive_ep(w.f.fabric, NULL, &pep, NULL), -KFI_EINVAL);
	KUNIT_EXPECT_EQ(test, kfi_passive_ep(w.f.fabric, info, &pep, NULL), -KFI_EINVAL);
	kfi_freeinfo(info);
	KUNIT_EXPECT_NULL(test, pep);
	KUNIT_ASSERT_EQ(test, kfi_passive_ep(w.f.fabric, w.info, &pep, NULL), 0);
	KUNIT_EXPECT_EQ(test, kfi_listen(pep), -KFI_ENOEQ);
	KUNIT_EXPECT_EQ(test, kfi_pep_bind(pep, &w.f.domain->fid, 0), -KFI_EINVAL);
	KUNIT_EXPECT_EQ(test, kfi_pep_bind(pep, &w.eq->fid, 1), -KFI_EINVAL);
	KUNIT_EXPECT_EQ(test, kfi_pep_bind(pep, &w.eq->fid, 0), 0);
	KUNIT_EXPECT_EQ(test, kfi_pep_bind(pep, &w.eq->fid, 0), -KFI_EINVAL);
	KUNIT_EXPECT_EQ(test, kfi_close(&w.eq->fid), -KFI_EBUSY);
	KUNIT_EXPECT_EQ(test, kfi_setname(&pep->fid, &w.addr, 3), -KFI_EINVAL);
	KUNIT_EXPECT_EQ(test, kfi_setname(&pep->fid, &w.addr, sizeof(w.addr)), 0);
	KUNIT_EXPECT_EQ(test, kfi_listen(pep), -KFI_EADDRINUSE);
	addr = w.addr;
	addr.sin_port = htons(PORT);
	KUNIT_EXPECT_EQ(test, kfi_setname(&pep->fid, &addr, sizeof(addr)), 0);
	KUNIT_EXPECT_EQ(test, kfi_listen(pep), 0);
	KUNIT_EXPECT_EQ(test, kfi_listen(pep), -KFI_EOPBADSTATE);
	KUNIT_EXPECT_EQ(test, kfi_getname(&pep->fid, &addr, &len), 0);
	KUNIT_EXPECT_EQ(test, addr.sin_port, htons(PORT));
	KUNIT_EXPECT_EQ(test, kfi_control(&pep->fid, KFI_BACKLOG, &backlog), -KFI_EOPBADSTATE);
	KUNIT_EXPECT_EQ(test, kfi_control(&pep->fid, KFI_ENABLE, NULL), -KFI_ENOSYS);
	len = sizeof(value);
	KUNIT_EXPECT_EQ(test, kfi_getopt(&pep->fid, KFI_OPT_ENDPOINT, KFI_OPT_CM_DATA_SIZE, &value,
					 &len), 0);
	KUNIT_EXPECT_EQ(test, value, ASKED);
	KUNIT_EXPECT_EQ(test, kfi_getopt(&pep->fid, KFI_OPT_ENDPOINT, KFI_OPT_MIN_MULTI_RECV,
					 &value, &len), -KFI_ENOPROTOOPT);
	KUNIT_EXPECT_EQ(test, kfi_setopt(&pep->fid, KFI_OPT_ENDPOINT, KFI_OPT_CM_DATA_SIZE, &value,
					 len), -KFI_ENOPROTOOPT);
	KUNIT_EXPECT_EQ(test, kfi_cancel(&pep->fid, NULL), -KFI_ENOSYS);
	KUNIT_EXPECT_EQ(test, kfi_close(&pep->fid), 0);

	KUNIT_EXPECT_EQ(test, kfi_connect(w.client.ep, NULL, NULL, 0), -KFI_EINVAL);
	KUNIT_EXPECT_EQ(test, kfi_connect(w.client.ep, &w.addr, data, 57), -KFI_EINVAL);
	KUNIT_EXPECT_EQ(test, kfi_connect(w.client.ep, &w.addr, NULL, 1), -KFI_EINVAL);
	KUNIT_EXPECT_EQ(test, kfi_accept(w.client.ep, NULL, 0), -KFI_EINVAL);
	w.info->handle = &w.pep->fid;
	KUNIT_EXPECT_EQ(test, kfi_endpoint(w.f.domain, w.info, &ep, NULL), -KFI_EINVAL);
	w.info->handle = NULL;
	world_close(test, &w);
}

static struct kunit_case cases[] = {
	KUNIT_CASE(connections_carry_messages),
	KUNIT_CASE(requests_are_rejected),
	KUNIT_CASE(a_request_can_be_peeked_at),
	KUNIT_CASE(an_event_survives_its_endpoint),
	KUNIT_CASE(a_backlog_limits_requests),
	KUNIT_CASE(requests_leave_room_for_other_events),
	KUNIT_CASE(an_event_names_no_later_endpoint),
	KUNIT_CASE(a_rejected_request_stays_rejected),
	KUNIT_CASE(a_copied_entry_has_its_own_handle),
	KUNIT_CASE(a_handle_outlives_its_endpoint),
	KUNIT_CASE(calls_are_checked),
	{}
};

static struct kunit_suite suite = {
	.name = "consumer_cm",
	.test_cases = cases,
};

kunit_test_suite(suite);

MODULE_DESCRIPTION("kfabric consumer: connections");
MODULE_LICENSE("GPL");
