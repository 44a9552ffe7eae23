// SPDX-License-Identifier: GPL-2.0
/*
 * Connected endpoints and datagram endpoints that share receives.
 */

#include "pool.h"

#define SENT		(KFI_MSG | KFI_SEND)
#define RECEIVED	(KFI_MSG | KFI_RECV)
#define ROOM		PAGE_SIZE
#define CLIENTS		3

/**
 * struct world - a server whose connections share receives, and its clients
 * @pool: the context and what the endpoints of the server have in common
 * @info: an entry for the clients
 * @pep: listens
 * @addr: where
 * @eq: events of the server
 * @servers: endpoints of the server
 * @clients: the clients; @peer is not used
 * @client_eq: their events
 */
struct world {
	struct pool		pool;
	struct kfi_info		*info;
	struct kfid_pep		*pep;
	struct sockaddr_in	addr;
	struct kfid_eq		*eq;
	struct kfid_ep		*servers[CLIENTS];
	struct end		clients[CLIENTS];
	struct kfid_eq		*client_eq;
};

static void next(struct kunit *test, struct kfid_eq *eq, u32 wanted, struct kfi_eq_cm_entry *entry)
{
	struct {
		struct kfi_eq_cm_entry	head;
		char			data[256];
	} event = {};
	u32 number;

	KUNIT_ASSERT_GE(test, kfi_eq_sread(eq, &number, &event, sizeof(event), LONG, 0),
			(ssize_t)sizeof(event.head));
	KUNIT_ASSERT_EQ(test, number, wanted);
	*entry = event.head;
}

static void world_open(struct kunit *test, struct world *w, struct kfi_rx_attr *attr)
{
	struct kfi_eq_attr eq = { .wait_obj = KFI_WAIT_UNSPEC };
	size_t len = sizeof(w->addr);
	int i;

	/* The sender of the pool is not needed; it is not connected. */
	pool_open(test, &w->pool, KFI_EP_MSG, attr, 0);
	w->info = entry_of(test, KFI_EP_MSG);
	KUNIT_ASSERT_EQ(test, kfi_eq_open(w->pool.f.fabric, &eq, &w->eq, NULL, NULL), 0);
	KUNIT_ASSERT_EQ(test, kfi_eq_open(w->pool.f.fabric, &eq, &w->client_eq, NULL, NULL), 0);
	KUNIT_ASSERT_EQ(test, kfi_passive_ep(w->pool.f.fabric, w->info, &w->pep, w), 0);
	KUNIT_ASSERT_EQ(test, kfi_pep_bind(w->pep, &w->eq->fid, 0), 0);
	KUNIT_ASSERT_EQ(test, kfi_listen(w->pep), 0);
	KUNIT_ASSERT_EQ(test, kfi_getname(&w->pep->fid, &w->addr, &len), 0);
	for (i = 0; i < CLIENTS; i++) {
		end_open(test, &w->pool.f, w->info, &w->clients[i], 0);
		KUNIT_ASSERT_EQ(test, kfi_ep_bind(w->clients[i].ep, &w->client_eq->fid, 0), 0);
		KUNIT_ASSERT_EQ(test, kfi_enable(w->clients[i].ep), 0);
	}
}

/* Connects a client with an endpoint of the server that uses the context. */
static void connect(struct kunit *test, struct world *w, int i)
{
	struct kfi_eq_cm_entry entry;
	struct kfid_ep *server;

	KUNIT_ASSERT_EQ(test, kfi_connect(w->clients[i].ep, &w->addr, NULL, 0), 0);
	next(test, w->eq, KFI_CONNREQ, &entry);
	entry.info->ep_attr->rx_ctx_cnt = KFI_SHARED_CONTEXT;
	KUNIT_ASSERT_EQ(test, kfi_endpoint(w->pool.f.domain, entry.info, &server, NULL), 0);
	kfi_freeinfo(entry.info);
	KUNIT_ASSERT_EQ(test, kfi_ep_bind(server, &w->pool.srx->fid, 0), 0);
	KUNIT_ASSERT_EQ(test, kfi_ep_bind(server, &w->eq->fid, 0), 0);
	KUNIT_ASSERT_EQ(test, kfi_ep_bind(server, &w->pool.all.cq->fid, KFI_TRANSMIT | KFI_RECV),
			0);
	KUNIT_ASSERT_EQ(test, kfi_enable(server), 0);
	KUNIT_ASSERT_EQ(test, kfi_accept(server, NULL, 0), 0);
	next(test, w->client_eq, KFI_CONNECTED, &entry);
	next(test, w->eq, KFI_CONNECTED, &entry);
	w->servers[i] = server;
}

static void world_close(struct kunit *test, struct world *w)
{
	int i;

	for (i = 0; i < CLIENTS; i++) {
		end_close(test, &w->clients[i]);
		if (w->servers[i])
			KUNIT_EXPECT_EQ(test, kfi_close(&w->servers[i]->fid), 0);
	}
	CLOSE(test, &w->pep->fid, &w->eq->fid, &w->client_eq->fid);
	kfi_freeinfo(w->info);
	pool_close(test, &w->pool);
}

/* Messages of many connections take the receives in the order of posting. */
static void connections_share_receives(struct kunit *test)
{
	u8 *to = zeroed(test, ROOM), *from = zeroed(test, ROOM);
	struct world *w = zeroed(test, sizeof(*w));
	struct kfi_eq_cm_entry entry;
	struct end *client;
	int i;

	world_open(test, w, NULL);
	/* Before there is any connection. */
	for (i = 0; i < CLIENTS + 2; i++)
		KUNIT_EXPECT_EQ(test, kfi_recv(w->pool.srx, to + 64 * i, 64, NULL, ANY, to + i), 0);
	for (i = 0; i < CLIENTS; i++)
		connect(test, w, i);
	KUNIT_EXPECT_EQ(test, kfi_recv(w->servers[0], to, 1, NULL, 0, NULL), -KFI_ENOSYS);
	for (i = 0; i < CLIENTS; i++) {
		client = &w->clients[CLIENTS - 1 - i];
		from[i] = 'a' + i;
		KUNIT_EXPECT_EQ(test, kfi_send(client->ep, from + i, 10 + i, NULL, 0, from), 0);
		completed(test, client, from, SENT, 0);
		completed(test, &w->pool.all, to + i, RECEIVED, 10 + i);
		KUNIT_EXPECT_EQ(test, to[64 * i], 'a' + i);
	}
	/* The end of a connection leaves the receives to the others. */
	KUNIT_EXPECT_EQ(test, kfi_shutdown(w->clients[0].ep, 0), 0);
	next(test, w->eq, KFI_SHUTDOWN, &entry);
	KUNIT_EXPECT_PTR_EQ(test, entry.fid, &w->servers[0]->fid);
	nothing(test, &w->pool.all);
	KUNIT_EXPECT_EQ(test, kfi_close(&w->servers[0]->fid), 0);
	w->servers[0] = NULL;
	KUNIT_EXPECT_EQ(test, kfi_send(w->clients[1].ep, from, 5, NULL, 0, from), 0);
	completed(test, &w->clients[1], from, SENT, 0);
	completed(test, &w->pool.all, to + CLIENTS, RECEIVED, 5);
	/* A message that is too long fails its receive, and its connection. */
	KUNIT_EXPECT_EQ(test, kfi_send(w->clients[1].ep, from, 65, NULL, 0, from), 0);
	failed(test, &w->clients[1], from, KFI_EREMOTEIO);
	failed(test, &w->pool.all, to + CLIENTS + 1, KFI_ETRUNC);
	world_close(test, w);
}

/* Datagrams take the receives, and buffers too; without one they are dropped. */
static void datagram_endpoints_share_receives(struct kunit *test)
{
	u8 *to = zeroed(test, ROOM), *from = zeroed(test, ROOM);
	struct kvec iov = { to + 128, 64 };
	struct kfi_msg msg = { .type = KFI_KVEC, .msg_iov = &iov, .iov_count = 1, .addr = ANY,
			       .context = from };
	struct kfi_cq_tagged_entry entry;
	struct pool pool;
	int i;

	pool_open(test, &pool, KFI_EP_DGRAM, NULL, 0);
	KUNIT_EXPECT_EQ(test, kfi_recv(pool.srx, to, 64, NULL, ANY, to), 0);
	KUNIT_EXPECT_EQ(test, kfi_recv(pool.srx, to + 64, 64, NULL, ANY, to + 1), 0);
	KUNIT_EXPECT_EQ(test, kfi_recvmsg(pool.srx, &msg, KFI_MULTI_RECV), 0);
	for (i = 0; i < MEMBERS; i++) {
		member_open(test, &pool, &pool.members[i]);
		member_enable(test, &pool, &pool.members[i]);
	}
	for (i = 0; i < MEMBERS; i++) {
		from[i] = 'a' + i;
		KUNIT_EXPECT_EQ(test, kfi_send(pool.sender.ep, from + i, 64, NULL,
					       pool.members[i].addr, from), 0);
		completed(test, &pool.sender, from, SENT, 0);
		entry = completed(test, &pool.all, i < 2 ? to + i : from,
				  RECEIVED | (i < 2 ? 0 : KFI_MULTI_RECV), 64);
		KUNIT_EXPECT_EQ(test, to[64 * i], 'a' + i);
	}
	KUNIT_EXPECT_PTR_EQ(test, (u8 *)entry.buf, to + 128);
	for (i = 0; i < MEMBERS; i++)
		KUNIT_EXPECT_EQ(test, kfi_cntr_read(pool.members[i].received), 1);
	pool_close_whole(test, &pool);
}

CONSUMER("shared receive contexts of connections and datagrams",
	 KUNIT_CASE(connections_share_receives),
	 KUNIT_CASE(datagram_endpoints_share_receives));
