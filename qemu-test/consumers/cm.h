/* SPDX-License-Identifier: GPL-2.0 */
/*
 * A passive endpoint, an endpoint that may ask it for a connection, and their events.
 */
#ifndef _CONSUMER_CM_H
#define _CONSUMER_CM_H

#include <linux/inet.h>

#include "pair.h"

/* Private data of a request, and of its answer, with what fills them up. */
#define ASKED		56
#define ANSWERED	196
#define REJECTED	148

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

/* Opens an event queue. */
static inline struct kfid_eq *eq_open(struct kunit *test, struct world *w)
{
	struct kfi_eq_attr attr = { .wait_obj = KFI_WAIT_UNSPEC };
	struct kfid_eq *eq;

	KUNIT_ASSERT_EQ(test, kfi_eq_open(w->f.fabric, &attr, &eq, NULL, NULL), 0);
	return eq;
}

/* Opens a connected endpoint with an event queue. */
static inline void connected_open(struct kunit *test, struct world *w, struct kfi_info *info,
				  struct end *end, struct kfid_eq *eq)
{
	end_open(test, &w->f, info, end, 0);
	KUNIT_ASSERT_EQ(test, kfi_ep_bind(end->ep, &eq->fid, 0), 0);
	KUNIT_ASSERT_EQ(test, kfi_enable(end->ep), 0);
}

/* A passive endpoint that listens, and an endpoint that may ask it. */
static inline void world_open(struct kunit *test, struct world *w)
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

/* Closes everything. @w->pep is NULL if it is closed. */
static inline void world_close(struct kunit *test, struct world *w)
{
	end_close(test, &w->client);
	if (w->pep)
		KUNIT_EXPECT_EQ(test, kfi_close(&w->pep->fid), 0);
	CLOSE(test, &w->eq->fid, &w->client_eq->fid);
	kfi_freeinfo(w->info);
	fixture_close(test, &w->f);
}

/* Waits for the next event of a queue, and compares it. */
static inline void next(struct kunit *test, struct kfid_eq *eq, struct event *event, u32 number,
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

/*
 * The client asks for a connection, and an endpoint that reports to @eq accepts. Their
 * events are not read.
 */
static inline void accept_client(struct kunit *test, struct world *w, struct end *server,
				 struct kfid_eq *eq)
{
	struct event event;

	KUNIT_ASSERT_EQ(test, kfi_connect(w->client.ep, &w->addr, NULL, 0), 0);
	next(test, w->eq, &event, KFI_CONNREQ, &w->pep->fid, ASKED);
	connected_open(test, w, event.head.info, server, eq);
	KUNIT_ASSERT_EQ(test, kfi_accept(server->ep, NULL, 0), 0);
	kfi_freeinfo(event.head.info);
}

/* The same; both are told. */
static inline void connect_client(struct kunit *test, struct world *w, struct end *server,
				  struct kfid_eq *eq)
{
	struct event event;

	accept_client(test, w, server, eq);
	next(test, w->client_eq, &event, KFI_CONNECTED, &w->client.ep->fid, ANSWERED);
	next(test, eq, &event, KFI_CONNECTED, &server->ep->fid, 0);
}

#endif /* _CONSUMER_CM_H */
