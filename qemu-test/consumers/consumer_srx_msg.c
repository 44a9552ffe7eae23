// SPDX-License-Identifier: GPL-2.0
/*
 * Connected endpoints and datagram endpoints that share receives.
 */

#include "cm.h"
#include "pool.h"

#define SENT		(KFI_MSG | KFI_SEND)
#define RECEIVED	(KFI_MSG | KFI_RECV)
#define ROOM		PAGE_SIZE
#define CLIENTS		3

/* Connects a client with an endpoint that uses @srx and @cq. Returns the endpoint. */
static struct kfid_ep *connect(struct kunit *test, struct world *w, struct end *client,
			       struct kfid_ep *srx, struct kfid_cq *cq)
{
	struct kfid_ep *server;
	struct event event;

	KUNIT_ASSERT_EQ(test, kfi_connect(client->ep, &w->addr, NULL, 0), 0);
	next(test, w->eq, &event, KFI_CONNREQ, &w->pep->fid, ASKED);
	event.head.info->ep_attr->rx_ctx_cnt = KFI_SHARED_CONTEXT;
	KUNIT_ASSERT_EQ(test, kfi_endpoint(w->f.domain, event.head.info, &server, NULL), 0);
	kfi_freeinfo(event.head.info);
	KUNIT_ASSERT_EQ(test, kfi_ep_bind(server, &srx->fid, 0), 0);
	KUNIT_ASSERT_EQ(test, kfi_ep_bind(server, &w->eq->fid, 0), 0);
	KUNIT_ASSERT_EQ(test, kfi_ep_bind(server, &cq->fid, KFI_TRANSMIT | KFI_RECV), 0);
	KUNIT_ASSERT_EQ(test, kfi_enable(server), 0);
	KUNIT_ASSERT_EQ(test, kfi_accept(server, NULL, 0), 0);
	next(test, w->client_eq, &event, KFI_CONNECTED, &client->ep->fid, ANSWERED);
	next(test, w->eq, &event, KFI_CONNECTED, &server->fid, 0);
	return server;
}

/* Messages of many connections take the receives in the order of posting. */
static void connections_share_receives(struct kunit *test)
{
	struct kfi_cq_attr attr = { .format = KFI_CQ_FORMAT_TAGGED, .wait_obj = KFI_WAIT_UNSPEC };
	u8 *to = zeroed(test, ROOM), *from = zeroed(test, ROOM);
	struct end clients[CLIENTS], all = {}, *client;
	struct kfid_ep *srx, *servers[CLIENTS];
	struct event event;
	struct world w;
	int i;

	world_open(test, &w);
	KUNIT_ASSERT_EQ(test, kfi_srx_context(w.f.domain, NULL, &srx, NULL), 0);
	KUNIT_ASSERT_EQ(test, kfi_cq_open(w.f.domain, &attr, &all.cq, NULL, NULL), 0);
	/* Before there is any connection. */
	for (i = 0; i < CLIENTS + 2; i++)
		KUNIT_EXPECT_EQ(test, kfi_recv(srx, to + 64 * i, 64, NULL, ANY, to + i), 0);
	for (i = 0; i < CLIENTS; i++) {
		connected_open(test, &w, w.info, &clients[i], w.client_eq);
		servers[i] = connect(test, &w, &clients[i], srx, all.cq);
	}
	KUNIT_EXPECT_EQ(test, kfi_recv(servers[0], to, 1, NULL, 0, NULL), -KFI_ENOSYS);
	for (i = 0; i < CLIENTS; i++) {
		client = &clients[CLIENTS - 1 - i];
		from[i] = 'a' + i;
		KUNIT_EXPECT_EQ(test, kfi_send(client->ep, from + i, 10 + i, NULL, 0, from), 0);
		completed(test, client, from, SENT, 0);
		completed(test, &all, to + i, RECEIVED, 10 + i);
		KUNIT_EXPECT_EQ(test, to[64 * i], 'a' + i);
	}
	/* The end of a connection leaves the receives to the others. */
	KUNIT_EXPECT_EQ(test, kfi_shutdown(clients[0].ep, 0), 0);
	next(test, w.eq, &event, KFI_SHUTDOWN, &servers[0]->fid, 0);
	nothing(test, &all);
	KUNIT_EXPECT_EQ(test, kfi_close(&servers[0]->fid), 0);
	KUNIT_EXPECT_EQ(test, kfi_send(clients[1].ep, from, 5, NULL, 0, from), 0);
	completed(test, &clients[1], from, SENT, 0);
	completed(test, &all, to + CLIENTS, RECEIVED, 5);
	/* A message that is too long fails its receive, and its connection. */
	KUNIT_EXPECT_EQ(test, kfi_send(clients[1].ep, from, 65, NULL, 0, from), 0);
	failed(test, &clients[1], from, KFI_EREMOTEIO);
	failed(test, &all, to + CLIENTS + 1, KFI_ETRUNC);
	for (i = 0; i < CLIENTS; i++)
		end_close(test, &clients[i]);
	CLOSE(test, &servers[1]->fid, &servers[2]->fid, &all.cq->fid, &srx->fid);
	world_close(test, &w);
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
