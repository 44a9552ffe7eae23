// SPDX-License-Identifier: GPL-2.0
/*
 * Connections: messages of connected endpoints, and the checks of the calls.
 * consumer_requests has the requests for connections.
 */

#include <linux/string.h>

#include "cm.h"

#define PORT		7474
#define ROOM		PAGE_SIZE

static void connections_carry_messages(struct kunit *test)
{
	u8 *to = zeroed_page(test), *from = zeroed_page(test);
	struct sockaddr_in peer;
	size_t len = sizeof(peer);
	struct kfid_eq *eq;
	struct kfi_info *info;
	struct event event;
	struct end server;
	struct world w;
	int i;

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
}

/* The peer of an end is @wanted, also if there is room for a part of the address only. */
static void peer_is(struct kunit *test, struct kfid_ep *ep, const struct sockaddr_in *wanted)
{
	const size_t whole = sizeof(*wanted), part = offsetof(struct sockaddr_in, sin_addr);
	u8 addr[2 * sizeof(*wanted)];
	size_t len = sizeof(addr);

	memset(addr, 0xff, sizeof(addr));
	KUNIT_EXPECT_EQ(test, kfi_getpeer(ep, addr, &len), 0);
	KUNIT_EXPECT_EQ(test, len, whole);
	KUNIT_EXPECT_MEMEQ(test, addr, wanted, whole);
	KUNIT_EXPECT_NULL(test, memchr_inv(addr + whole, 0xff, sizeof(addr) - whole));
	memset(addr, 0xff, sizeof(addr));
	len = part;
	KUNIT_EXPECT_EQ(test, kfi_getpeer(ep, addr, &len), -KFI_ETOOSMALL);
	KUNIT_EXPECT_EQ(test, len, whole);
	KUNIT_EXPECT_MEMEQ(test, addr, wanted, part);
	KUNIT_EXPECT_NULL(test, memchr_inv(addr + part, 0xff, sizeof(addr) - part));
	len = 0;
	KUNIT_EXPECT_EQ(test, kfi_getpeer(ep, NULL, &len), -KFI_ETOOSMALL);
	KUNIT_EXPECT_EQ(test, len, whole);
	KUNIT_EXPECT_EQ(test, kfi_getpeer(ep, addr, NULL), -KFI_EINVAL);
}

/* kfi_getpeer() gives each end the address of the other one. */
static void both_ends_have_a_peer(struct kunit *test)
{
	struct sockaddr_in addr, none;
	size_t len = sizeof(addr);
	struct kfid_eq *eq, *client_eq;
	struct end server, client;
	struct kfi_info *info;
	struct event event;
	struct kfid_ep *ep;
	struct world w;

	world_open(test, &w);
	client_eq = eq_open(test, &w);
	info = entry_of(test, KFI_EP_MSG);
	((struct sockaddr_in *)info->src_addr)->sin_port = htons(PORT + 1);
	info->dest_addr = kmemdup(&w.addr, sizeof(w.addr), GFP_KERNEL);
	KUNIT_ASSERT_NOT_NULL(test, info->dest_addr);
	info->dest_addrlen = sizeof(w.addr);
	connected_open(test, &w, info, &client, client_eq);
	kfi_freeinfo(info);
	KUNIT_ASSERT_EQ(test, kfi_getname(&client.ep->fid, &addr, &len), 0);
	KUNIT_EXPECT_EQ(test, addr.sin_port, htons(PORT + 1));
	KUNIT_EXPECT_EQ(test, kfi_getpeer(client.ep, &none, &len), -KFI_ENOTCONN);
	/* The peer of its entry. */
	KUNIT_ASSERT_EQ(test, kfi_connect(client.ep, NULL, NULL, 0), 0);
	/* The request is not accepted yet. */
	KUNIT_EXPECT_EQ(test, kfi_getpeer(client.ep, &none, &len), -KFI_ENOTCONN);
	next(test, w.eq, &event, KFI_CONNREQ, &w.pep->fid, ASKED);
	info = event.head.info;
	KUNIT_ASSERT_EQ(test, info->dest_addrlen, sizeof(addr));
	KUNIT_EXPECT_MEMEQ(test, info->dest_addr, &addr, sizeof(addr));
	eq = eq_open(test, &w);
	connected_open(test, &w, info, &server, eq);
	KUNIT_EXPECT_EQ(test, kfi_getpeer(server.ep, &none, &len), -KFI_ENOTCONN);
	KUNIT_ASSERT_EQ(test, kfi_accept(server.ep, NULL, 0), 0);
	peer_is(test, server.ep, &addr);
	kfi_freeinfo(info);
	next(test, client_eq, &event, KFI_CONNECTED, &client.ep->fid, ANSWERED);
	next(test, eq, &event, KFI_CONNECTED, &server.ep->fid, 0);
	peer_is(test, client.ep, &w.addr);
	peer_is(test, server.ep, &addr);
	/* They keep it after the end of the connection. */
	KUNIT_EXPECT_EQ(test, kfi_shutdown(client.ep, 0), 0);
	next(test, eq, &event, KFI_SHUTDOWN, &server.ep->fid, 0);
	peer_is(test, client.ep, &w.addr);
	peer_is(test, server.ep, &addr);
	end_close(test, &server);
	end_close(test, &client);
	CLOSE(test, &eq->fid, &client_eq->fid);
	/* Other endpoints have no peer. */
	info = entry_of(test, KFI_EP_RDM);
	KUNIT_ASSERT_EQ(test, kfi_endpoint(w.f.domain, info, &ep, NULL), 0);
	kfi_freeinfo(info);
	KUNIT_EXPECT_EQ(test, kfi_getpeer(ep, &none, &len), -KFI_EOPNOTSUPP);
	KUNIT_EXPECT_EQ(test, kfi_close(&ep->fid), 0);
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
	KUNIT_EXPECT_EQ(test, kfi_setopt(&pep->fid, KFI_OPT_ENDPOINT, KFI_OPT_CM_DATA_SIZE, &value,
					 4), -KFI_ETOOSMALL);
	KUNIT_EXPECT_EQ(test, kfi_cancel(&pep->fid, NULL), -KFI_ENOSYS);
	KUNIT_EXPECT_EQ(test, kfi_close(&pep->fid), 0);

	/* Its entry has no peer. */
	KUNIT_EXPECT_EQ(test, kfi_connect(w.client.ep, NULL, NULL, 0), -KFI_EINVAL);
	KUNIT_EXPECT_EQ(test, kfi_connect(w.client.ep, &w.addr, NULL, 1), -KFI_EINVAL);
	KUNIT_EXPECT_EQ(test, kfi_accept(w.client.ep, NULL, 0), -KFI_EINVAL);
	w.info->handle = &w.pep->fid;
	KUNIT_EXPECT_EQ(test, kfi_endpoint(w.f.domain, w.info, &ep, NULL), -KFI_EINVAL);
	w.info->handle = NULL;
	world_close(test, &w);
}

CONSUMER("connections",
	 KUNIT_CASE(connections_carry_messages),
	 KUNIT_CASE(both_ends_have_a_peer),
	 KUNIT_CASE(calls_are_checked));
