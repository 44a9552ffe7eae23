// SPDX-License-Identifier: GPL-2.0
/*
 * Scalable endpoints and their contexts: opening, attributes, names, bindings,
 * and what keeps them from being closed. consumer_sep_ops has their transfers.
 */

#include <kfi/kfi_atomic.h>
#include <kfi/kfi_mr.h>
#include <kfi/kfi_rma.h>

#include "sep.h"

/* A message that is too long to be buffered at its receiver. */
#define LENGTH	(16 << 10)

/* How kfi_scalable_ep() ends with @info. */
static int try(struct fixture *f, struct kfi_info *info)
{
	struct kfid_ep *ep = NULL;
	int ret = kfi_scalable_ep(f->domain, info, &ep, NULL);

	if (ret)
		return ep ? -EBADMSG : ret;
	return kfi_close(&ep->fid);
}

/* How many contexts an entry has if the hint is @contexts. */
static size_t offered(struct kunit *test, size_t contexts)
{
	struct kfi_info *info = sep_info(test, contexts);
	size_t count = info->ep_attr->tx_ctx_cnt;

	KUNIT_EXPECT_EQ(test, info->ep_attr->rx_ctx_cnt, count);
	KUNIT_EXPECT_LE(test, count, info->domain_attr->max_ep_tx_ctx);
	KUNIT_EXPECT_LE(test, count, info->domain_attr->max_ep_rx_ctx);
	KUNIT_EXPECT_EQ(test, info->caps & KFI_NAMED_RX_CTX, KFI_NAMED_RX_CTX);
	KUNIT_EXPECT_EQ(test, info->caps & KFI_REMOTE_COMM, KFI_REMOTE_COMM);
	kfi_freeinfo(info);
	return count;
}

static void attributes_are_checked(struct kunit *test)
{
	struct kfi_info *info, *other;
	struct fixture f;
	size_t most;

	fixture_open(test, &f);
	most = f.info->domain_attr->max_ep_tx_ctx;
	KUNIT_EXPECT_EQ(test, most, 64);
	KUNIT_EXPECT_EQ(test, offered(test, 2), 2);
	KUNIT_EXPECT_EQ(test, offered(test, most), most);
	/* A consumer that leaves the number open may make as many as there can be. */
	KUNIT_EXPECT_EQ(test, offered(test, 0), most);
	info = sep_info(test, CONTEXTS);
	KUNIT_EXPECT_EQ(test, try(&f, info), 0);
	KUNIT_EXPECT_EQ(test, try(&f, NULL), -KFI_EINVAL);
	info->ep_attr->tx_ctx_cnt = most + 1;
	KUNIT_EXPECT_EQ(test, try(&f, info), -KFI_EINVAL);
	info->ep_attr->tx_ctx_cnt = 1;
	info->ep_attr->rx_ctx_cnt = KFI_SHARED_CONTEXT;
	KUNIT_EXPECT_EQ(test, try(&f, info), -KFI_EINVAL);
	info->ep_attr->rx_ctx_cnt = most;
	KUNIT_EXPECT_EQ(test, try(&f, info), 0);
	info->caps |= KFI_MULTICAST;
	KUNIT_EXPECT_NE(test, try(&f, info), 0);
	info->caps &= ~KFI_MULTICAST;
	((struct sockaddr_in *)info->src_addr)->sin_addr.s_addr = htonl(0x0a090807);
	KUNIT_EXPECT_EQ(test, try(&f, info), -KFI_EADDRNOTAVAIL);
	kfi_freeinfo(info);
	/* The other types have no contexts. */
	for (other = f.info; other; other = other->next)
		KUNIT_EXPECT_EQ(test, try(&f, other),
				other->ep_attr->type == KFI_EP_RDM ? 0 : -KFI_EOPNOTSUPP);
	fixture_close(test, &f);
}

/* The AV and the name are set before the scalable endpoint is enabled. */
static void a_scalable_endpoint_is_set_up(struct kunit *test)
{
	struct kfi_info *info = sep_info(test, CONTEXTS);
	struct sockaddr_in name, far = { .sin_family = AF_INET };
	struct kfid_av *av, *second, *alien;
	struct fixture f, other;
	size_t len = sizeof(name);
	struct kfid_ep *ep;
	struct kfid_cq *cq;

	fixture_open(test, &f);
	fixture_open(test, &other);
	/* Of more contexts than one, it is no other endpoint. */
	KUNIT_EXPECT_EQ(test, kfi_endpoint(f.domain, info, &ep, NULL), -KFI_EINVAL);
	KUNIT_ASSERT_EQ(test, kfi_scalable_ep(f.domain, info, &ep, &f), 0);
	KUNIT_EXPECT_PTR_EQ(test, ep->fid.context, (void *)&f);
	av = sep_av(test, &f);
	second = sep_av(test, &f);
	alien = sep_av(test, &other);
	KUNIT_ASSERT_EQ(test, kfi_cq_open(f.domain, NULL, &cq, NULL, NULL), 0);
	KUNIT_EXPECT_EQ(test, kfi_getname(&ep->fid, &name, &len), -KFI_EOPBADSTATE);
	KUNIT_EXPECT_EQ(test, kfi_enable(ep), -KFI_ENOAV);
	KUNIT_EXPECT_EQ(test, kfi_scalable_ep_bind(ep, NULL, 0), -KFI_EINVAL);
	KUNIT_EXPECT_EQ(test, kfi_scalable_ep_bind(ep, &cq->fid, 0), -KFI_EINVAL);
	KUNIT_EXPECT_EQ(test, kfi_scalable_ep_bind(ep, &av->fid, KFI_RECV), -KFI_EINVAL);
	KUNIT_EXPECT_EQ(test, kfi_scalable_ep_bind(ep, &alien->fid, 0), -KFI_EINVAL);
	KUNIT_EXPECT_EQ(test, kfi_scalable_ep_bind(ep, &av->fid, 0), 0);
	KUNIT_EXPECT_EQ(test, kfi_scalable_ep_bind(ep, &second->fid, 0), -KFI_EINVAL);
	KUNIT_EXPECT_EQ(test, kfi_close(&av->fid), -KFI_EBUSY);
	far.sin_addr.s_addr = htonl(0x0a090807);
	KUNIT_EXPECT_EQ(test, kfi_setname(&ep->fid, &far, sizeof(far)), -KFI_EADDRNOTAVAIL);
	KUNIT_EXPECT_EQ(test, kfi_setname(&ep->fid, NULL, sizeof(far)), -KFI_EINVAL);
	KUNIT_EXPECT_EQ(test, kfi_setname(&ep->fid, &far, 3), -KFI_EINVAL);
	/* The contexts would be at ports that do not exist. */
	name = *(struct sockaddr_in *)info->src_addr;
	name.sin_port = htons(65535);
	KUNIT_EXPECT_EQ(test, kfi_setname(&ep->fid, &name, sizeof(name)), 0);
	KUNIT_EXPECT_EQ(test, kfi_enable(ep), -KFI_EADDRINUSE);
	name.sin_port = htons(7000);
	KUNIT_EXPECT_EQ(test, kfi_setname(&ep->fid, &name, sizeof(name)), 0);
	KUNIT_EXPECT_EQ(test, kfi_enable(ep), 0);
	memset(&name, 0, sizeof(name));
	KUNIT_EXPECT_EQ(test, kfi_getname(&ep->fid, &name, &len), 0);
	KUNIT_EXPECT_EQ(test, len, sizeof(name));
	KUNIT_EXPECT_EQ(test, ntohs(name.sin_port), 7000);
	len = 1;
	KUNIT_EXPECT_EQ(test, kfi_getname(&ep->fid, &name, &len), -KFI_ETOOSMALL);
	KUNIT_EXPECT_EQ(test, kfi_enable(ep), -KFI_EOPBADSTATE);
	KUNIT_EXPECT_EQ(test, kfi_setname(&ep->fid, &name, sizeof(name)), -KFI_EOPBADSTATE);
	KUNIT_EXPECT_EQ(test, kfi_scalable_ep_bind(ep, &second->fid, 0), -KFI_EOPBADSTATE);
	KUNIT_EXPECT_EQ(test, kfi_close(&f.domain->fid), -KFI_EBUSY);
	CLOSE(test, &ep->fid, &av->fid, &second->fid, &alien->fid, &cq->fid);
	kfi_freeinfo(info);
	fixture_close(test, &other);
	fixture_close(test, &f);
}

/* Tries to enable an endpoint at a port. */
static int enable_at(struct kunit *test, struct end *end, struct sockaddr_in name, int port)
{
	name.sin_port = htons(port);
	KUNIT_EXPECT_EQ(test, kfi_setname(&end->ep->fid, &name, sizeof(name)), 0);
	return kfi_enable(end->ep);
}

/* A scalable endpoint has a port for each receive context, until it closes. */
static void ports_are_reserved(struct kunit *test)
{
	struct kfi_info *info;
	struct sep s, again;
	struct fixture f;
	struct end end;
	int port;

	fixture_open(test, &f);
	sep_open(test, &f, &s);
	info = entry_of(test, KFI_EP_RDM);
	end_open(test, &f, info, &end, 0);
	port = ntohs(s.name.sin_port);
	KUNIT_EXPECT_EQ(test, enable_at(test, &end, s.name, port), -KFI_EADDRINUSE);
	KUNIT_EXPECT_EQ(test, enable_at(test, &end, s.name, port + CONTEXTS - 1),
			-KFI_EADDRINUSE);
	/* Closing a context does not give its port away. */
	KUNIT_EXPECT_EQ(test, kfi_close(&s.rx[1]->fid), 0);
	KUNIT_EXPECT_EQ(test, enable_at(test, &end, s.name, port + 1), -KFI_EADDRINUSE);
	KUNIT_ASSERT_EQ(test, kfi_rx_context(s.ep, 1, NULL, &s.rx[1], NULL), 0);
	KUNIT_EXPECT_EQ(test, kfi_ep_bind(s.rx[1], &s.rx_cq[1]->fid, 0), 0);
	KUNIT_EXPECT_EQ(test, kfi_enable(s.rx[1]), 0);
	/* An endpoint among the ports that are needed. */
	sep_close(test, &s);
	KUNIT_EXPECT_EQ(test, enable_at(test, &end, s.name, port + 2), 0);
	KUNIT_ASSERT_EQ(test, kfi_scalable_ep(f.domain, info, &again.ep, NULL), 0);
	KUNIT_EXPECT_EQ(test, kfi_close(&again.ep->fid), 0);
	kfi_freeinfo(info);
	info = sep_info(test, CONTEXTS);
	((struct sockaddr_in *)info->src_addr)->sin_port = htons(port);
	KUNIT_ASSERT_EQ(test, kfi_scalable_ep(f.domain, info, &again.ep, NULL), 0);
	again.av = sep_av(test, &f);
	KUNIT_EXPECT_EQ(test, kfi_scalable_ep_bind(again.ep, &again.av->fid, 0), 0);
	KUNIT_EXPECT_EQ(test, kfi_enable(again.ep), -KFI_EADDRINUSE);
	end_close(test, &end);
	KUNIT_EXPECT_EQ(test, kfi_enable(again.ep), 0);
	CLOSE(test, &again.ep->fid, &again.av->fid);
	kfi_freeinfo(info);
	fixture_close(test, &f);
}

/* Contexts are opened by their index, with attributes of their own. */
static void contexts_have_attributes(struct kunit *test)
{
	struct kfi_info *info = sep_info(test, CONTEXTS);
	struct kfi_tx_attr tx = {}, all_tx = {};
	struct kfi_rx_attr rx = {};
	struct kfid_ep *ep, *a, *b;
	size_t value, len = sizeof(value);
	struct fixture f;
	u64 flags;

	fixture_open(test, &f);
	info->tx_attr->op_flags = KFI_DELIVERY_COMPLETE;
	info->tx_attr->size = 17;
	info->rx_attr->size = 18;
	KUNIT_ASSERT_EQ(test, kfi_scalable_ep(f.domain, info, &ep, NULL), 0);
	KUNIT_EXPECT_EQ(test, kfi_tx_context(ep, -1, NULL, &a, NULL), -KFI_EINVAL);
	KUNIT_EXPECT_EQ(test, kfi_tx_context(ep, CONTEXTS, NULL, &a, NULL), -KFI_EINVAL);
	KUNIT_EXPECT_EQ(test, kfi_rx_context(ep, CONTEXTS, NULL, &a, NULL), -KFI_EINVAL);
	KUNIT_EXPECT_EQ(test, kfi_rx_context(ep, 65536, NULL, &a, NULL), -KFI_EINVAL);
	/* An attribute that is not named is that of the scalable endpoint. */
	KUNIT_ASSERT_EQ(test, kfi_tx_context(ep, 0, &all_tx, &a, &tx), 0);
	KUNIT_EXPECT_EQ(test, a->fid.fclass, KFI_CLASS_TX_CTX);
	KUNIT_EXPECT_PTR_EQ(test, a->fid.context, (void *)&tx);
	KUNIT_EXPECT_EQ(test, all_tx.caps & KFI_SEND, KFI_SEND);
	KUNIT_EXPECT_EQ(test, all_tx.caps & (KFI_RECV | KFI_REMOTE_READ), 0);
	KUNIT_EXPECT_EQ(test, all_tx.op_flags, KFI_DELIVERY_COMPLETE);
	KUNIT_EXPECT_EQ(test, all_tx.size, 17);
	KUNIT_EXPECT_EQ(test, all_tx.iov_limit, 256);
	KUNIT_EXPECT_EQ(test, all_tx.rma_iov_limit, 256);
	KUNIT_EXPECT_EQ(test, all_tx.tclass, KFI_TC_BEST_EFFORT);
	KUNIT_EXPECT_EQ(test, kfi_tx_context(ep, 0, NULL, &b, NULL), -KFI_EBUSY);
	/* The attributes of kfilnd. */
	rx.op_flags = KFI_COMPLETION | KFI_MULTI_RECV;
	rx.size = 100;
	rx.iov_limit = 256;
	KUNIT_ASSERT_EQ(test, kfi_rx_context(ep, 2, &rx, &b, NULL), 0);
	KUNIT_EXPECT_EQ(test, b->fid.fclass, KFI_CLASS_RX_CTX);
	KUNIT_EXPECT_EQ(test, rx.caps & KFI_NAMED_RX_CTX, KFI_NAMED_RX_CTX);
	KUNIT_EXPECT_EQ(test, rx.caps & (KFI_SEND | KFI_WRITE), 0);
	KUNIT_EXPECT_EQ(test, rx.op_flags, KFI_COMPLETION | KFI_MULTI_RECV);
	KUNIT_EXPECT_EQ(test, rx.size, 100);
	KUNIT_EXPECT_GT(test, rx.total_buffered_recv, 0);
	KUNIT_EXPECT_EQ(test, kfi_close(&b->fid), 0);
	tx.op_flags = KFI_COMPLETION | KFI_TRANSMIT_COMPLETE;
	tx.caps = KFI_NAMED_RX_CTX | KFI_MSG;
	tx.iov_limit = 256;
	tx.rma_iov_limit = 256;
	tx.tclass = KFI_TC_LOW_LATENCY;
	KUNIT_ASSERT_EQ(test, kfi_tx_context(ep, 1, &tx, &b, NULL), 0);
	KUNIT_EXPECT_EQ(test, tx.caps, KFI_NAMED_RX_CTX | KFI_MSG | KFI_SEND);
	KUNIT_EXPECT_EQ(test, kfi_close(&b->fid), 0);
	/* Attributes that it cannot have. */
	tx.caps = KFI_RECV;
	KUNIT_EXPECT_EQ(test, kfi_tx_context(ep, 1, &tx, &b, NULL), -KFI_EINVAL);
	tx.caps = 0;
	tx.tclass = 1;
	KUNIT_EXPECT_EQ(test, kfi_tx_context(ep, 1, &tx, &b, NULL), -KFI_EINVAL);
	tx.tclass = 0;
	tx.size = 16385;
	KUNIT_EXPECT_EQ(test, kfi_tx_context(ep, 1, &tx, &b, NULL), -KFI_EINVAL);
	rx.caps = KFI_TAGGED | KFI_WRITE;
	KUNIT_EXPECT_EQ(test, kfi_rx_context(ep, 1, &rx, &b, NULL), -KFI_EINVAL);
	rx.caps = 0;
	rx.iov_limit = 257;
	KUNIT_EXPECT_EQ(test, kfi_rx_context(ep, 1, &rx, &b, NULL), -KFI_EINVAL);
	/* The options and default flags of later contexts. */
	value = 4096;
	KUNIT_EXPECT_EQ(test, kfi_setopt(&ep->fid, KFI_OPT_ENDPOINT, KFI_OPT_MIN_MULTI_RECV,
					 &value, sizeof(value)), 0);
	KUNIT_EXPECT_EQ(test, kfi_setopt(&ep->fid, KFI_OPT_ENDPOINT, KFI_OPT_MIN_MULTI_RECV,
					 &value, 1), -KFI_ETOOSMALL);
	KUNIT_EXPECT_EQ(test, kfi_setopt(&ep->fid, KFI_OPT_ENDPOINT, KFI_OPT_CM_DATA_SIZE,
					 &value, sizeof(value)), -ENOPROTOOPT);
	flags = KFI_RECV | KFI_MULTI_RECV;
	KUNIT_EXPECT_EQ(test, kfi_control(&ep->fid, KFI_SETOPSFLAG, &flags), 0);
	flags = KFI_RECV | KFI_INJECT;
	KUNIT_EXPECT_EQ(test, kfi_control(&ep->fid, KFI_SETOPSFLAG, &flags), -KFI_EINVAL);
	KUNIT_EXPECT_EQ(test, kfi_control(&ep->fid, KFI_SETOPSFLAG, NULL), -KFI_EINVAL);
	flags = KFI_RECV;
	KUNIT_EXPECT_EQ(test, kfi_control(&ep->fid, KFI_GETOPSFLAG, &flags), 0);
	KUNIT_EXPECT_EQ(test, flags, KFI_MULTI_RECV);
	KUNIT_ASSERT_EQ(test, kfi_rx_context(ep, 1, NULL, &b, NULL), 0);
	value = 0;
	KUNIT_EXPECT_EQ(test, kfi_getopt(&b->fid, KFI_OPT_ENDPOINT, KFI_OPT_MIN_MULTI_RECV,
					 &value, &len), 0);
	KUNIT_EXPECT_EQ(test, value, 4096);
	flags = KFI_RECV;
	KUNIT_EXPECT_EQ(test, kfi_control(&b->fid, KFI_GETOPSFLAG, &flags), 0);
	KUNIT_EXPECT_EQ(test, flags, KFI_MULTI_RECV);
	value = 8192;
	KUNIT_EXPECT_EQ(test, kfi_setopt(&b->fid, KFI_OPT_ENDPOINT, KFI_OPT_MIN_MULTI_RECV,
					 &value, sizeof(value)), 0);
	value = 0;
	KUNIT_EXPECT_EQ(test, kfi_getopt(&ep->fid, KFI_OPT_ENDPOINT, KFI_OPT_MIN_MULTI_RECV,
					 &value, &len), 0);
	KUNIT_EXPECT_EQ(test, value, 4096);
	CLOSE(test, &b->fid, &a->fid, &ep->fid);
	/* One that only sends has no receive contexts. */
	info->caps = KFI_MSG | KFI_SEND;
	KUNIT_ASSERT_EQ(test, kfi_scalable_ep(f.domain, info, &ep, NULL), 0);
	KUNIT_EXPECT_EQ(test, kfi_rx_context(ep, 0, NULL, &b, NULL), -KFI_EOPNOTSUPP);
	KUNIT_EXPECT_EQ(test, kfi_close(&ep->fid), 0);
	kfi_freeinfo(info);
	fixture_close(test, &f);
}

/* A context is bound to queues of its side, and has AV and name of the whole. */
static void contexts_are_bound(struct kunit *test)
{
	struct kfi_info *info = sep_info(test, CONTEXTS);
	struct sockaddr_in name, own;
	struct kfid_ep *ep, *tx, *rx;
	size_t len = sizeof(name);
	struct kfid_cntr *cntr;
	struct fixture f;
	struct kfid_cq *cq;
	struct kfid_av *av;

	fixture_open(test, &f);
	KUNIT_ASSERT_EQ(test, kfi_scalable_ep(f.domain, info, &ep, NULL), 0);
	KUNIT_ASSERT_EQ(test, kfi_tx_context(ep, 2, NULL, &tx, NULL), 0);
	KUNIT_ASSERT_EQ(test, kfi_rx_context(ep, 1, NULL, &rx, NULL), 0);
	KUNIT_ASSERT_EQ(test, kfi_cq_open(f.domain, NULL, &cq, NULL, NULL), 0);
	cntr = open_cntr(test, &f, KFI_WAIT_NONE, NULL, NULL);
	av = sep_av(test, &f);
	KUNIT_EXPECT_EQ(test, kfi_ep_bind(tx, &av->fid, 0), -KFI_EINVAL);
	KUNIT_EXPECT_EQ(test, kfi_ep_bind(tx, &cq->fid, KFI_RECV), -KFI_EINVAL);
	KUNIT_EXPECT_EQ(test, kfi_ep_bind(rx, &cq->fid, KFI_TRANSMIT), -KFI_EINVAL);
	KUNIT_EXPECT_EQ(test, kfi_ep_bind(rx, &cq->fid, KFI_TRANSMIT | KFI_RECV), -KFI_EINVAL);
	KUNIT_EXPECT_EQ(test, kfi_ep_bind(tx, &cntr->fid, KFI_SEND | KFI_RECV), -KFI_EINVAL);
	KUNIT_EXPECT_EQ(test, kfi_ep_bind(rx, &cntr->fid, KFI_WRITE), -KFI_EINVAL);
	KUNIT_EXPECT_EQ(test, kfi_ep_bind(tx, &cntr->fid, KFI_SEND | KFI_READ | KFI_WRITE), 0);
	KUNIT_EXPECT_EQ(test, kfi_ep_bind(rx, &cntr->fid, KFI_REMOTE_READ | KFI_REMOTE_WRITE), 0);
	KUNIT_EXPECT_EQ(test, kfi_enable(rx), -KFI_ENOCQ);
	KUNIT_EXPECT_EQ(test, kfi_ep_bind(rx, &cq->fid, 0), 0);
	KUNIT_EXPECT_EQ(test, kfi_ep_bind(rx, &cq->fid, 0), -KFI_EINVAL);
	KUNIT_EXPECT_EQ(test, kfi_ep_bind(tx, &cq->fid, KFI_TRANSMIT), 0);
	/* The AV is that of the scalable endpoint. */
	KUNIT_EXPECT_EQ(test, kfi_enable(rx), -KFI_ENOAV);
	KUNIT_EXPECT_EQ(test, kfi_scalable_ep_bind(ep, &av->fid, 0), 0);
	KUNIT_EXPECT_EQ(test, kfi_setname(&rx->fid, info->src_addr, info->src_addrlen),
			-KFI_EINVAL);
	KUNIT_EXPECT_EQ(test, kfi_getname(&rx->fid, &own, &len), -KFI_EOPBADSTATE);
	/* A context may be enabled first. It settles the name. */
	KUNIT_EXPECT_EQ(test, kfi_enable(rx), 0);
	KUNIT_EXPECT_EQ(test, kfi_enable(rx), -KFI_EOPBADSTATE);
	len = sizeof(name);
	KUNIT_EXPECT_EQ(test, kfi_getname(&ep->fid, &name, &len), 0);
	KUNIT_EXPECT_EQ(test, kfi_enable(ep), 0);
	KUNIT_EXPECT_EQ(test, kfi_enable(tx), 0);
	KUNIT_EXPECT_EQ(test, kfi_getname(&rx->fid, &own, &len), 0);
	KUNIT_EXPECT_MEMEQ(test, &own, &name, 8);
	KUNIT_EXPECT_EQ(test, kfi_getname(&tx->fid, &own, &len), 0);
	KUNIT_EXPECT_MEMEQ(test, &own, &name, 8);
	CLOSE(test, &tx->fid, &rx->fid, &ep->fid, &av->fid, &cq->fid, &cntr->fid);
	kfi_freeinfo(info);
	fixture_close(test, &f);
}

/* An object in use is not closed, and nothing changes then. */
static void objects_in_use_stay_open(struct kunit *test)
{
	struct kfi_cq_err_entry error = {};
	struct kfi_cq_tagged_entry entry;
	struct kfid_ep *alias;
	struct kfid_mr *mr;
	struct fixture f;
	kfi_addr_t addr;
	struct sep s;
	u8 *buf;

	fixture_open(test, &f);
	sep_open(test, &f, &s);
	addr = sep_knows(test, &s, &s);
	buf = zeroed(test, LENGTH);
	KUNIT_EXPECT_EQ(test, kfi_close(&s.ep->fid), -KFI_EBUSY);
	KUNIT_EXPECT_EQ(test, kfi_close(&s.av->fid), -KFI_EBUSY);
	KUNIT_EXPECT_EQ(test, kfi_close(&s.tx_cq[0]->fid), -KFI_EBUSY);
	KUNIT_EXPECT_EQ(test, kfi_close(&s.rx_cq[0]->fid), -KFI_EBUSY);
	KUNIT_EXPECT_EQ(test, kfi_close(&f.domain->fid), -KFI_EBUSY);
	/* A transmit context with a message that is too long to be buffered. */
	KUNIT_EXPECT_EQ(test, kfi_tsend(s.tx[0], buf, LENGTH, NULL, addr, 1, buf), 0);
	KUNIT_EXPECT_EQ(test, kfi_close(&s.tx[0]->fid), -KFI_EBUSY);
	KUNIT_EXPECT_EQ(test, kfi_close(&s.tx[0]->fid), -KFI_EBUSY);
	/* It is cancelled, which is its end. */
	KUNIT_EXPECT_EQ(test, kfi_cancel(&s.tx[0]->fid, &f), -ENOENT);
	KUNIT_EXPECT_EQ(test, kfi_cancel(&s.tx[0]->fid, buf), 0);
	KUNIT_ASSERT_EQ(test, kfi_cq_sread(s.tx_cq[0], &entry, 1, NULL, LONG), -KFI_EAVAIL);
	KUNIT_EXPECT_EQ(test, kfi_cq_readerr(s.tx_cq[0], &error, 0), 1);
	KUNIT_EXPECT_EQ(test, error.err, ECANCELED);
	KUNIT_EXPECT_EQ(test, kfi_close(&s.tx[0]->fid), 0);
	KUNIT_ASSERT_EQ(test, kfi_tx_context(s.ep, 0, NULL, &s.tx[0], NULL), 0);
	/* An alias is of the class of its context, and a use of it. */
	KUNIT_ASSERT_EQ(test, kfi_ep_alias(s.tx[1], &alias, KFI_TRANSMIT | KFI_INJECT), 0);
	KUNIT_EXPECT_EQ(test, alias->fid.fclass, KFI_CLASS_TX_CTX);
	KUNIT_EXPECT_EQ(test, kfi_close(&s.tx[1]->fid), -KFI_EBUSY);
	KUNIT_EXPECT_EQ(test, kfi_close(&alias->fid), 0);
	/* A receive context with a region that is bound to it. */
	KUNIT_ASSERT_EQ(test, kfi_mr_reg(f.domain, buf, LENGTH, KFI_REMOTE_WRITE, 0, 7,
					 KFI_RMA_EVENT, &mr, NULL), 0);
	KUNIT_EXPECT_EQ(test, kfi_mr_bind(mr, &s.ep->fid, 0), -KFI_EINVAL);
	KUNIT_EXPECT_EQ(test, kfi_mr_bind(mr, &s.rx[0]->fid, 0), 0);
	KUNIT_EXPECT_EQ(test, kfi_close(&s.rx[0]->fid), -KFI_EBUSY);
	KUNIT_EXPECT_EQ(test, kfi_close(&mr->fid), 0);
	/* Posted receives are dropped silently. */
	KUNIT_EXPECT_EQ(test, kfi_recv(s.rx[0], buf, LENGTH, NULL, KFI_ADDR_UNSPEC, buf), 0);
	KUNIT_EXPECT_EQ(test, kfi_trecv(s.rx[0], buf, LENGTH, NULL, KFI_ADDR_UNSPEC, 1, 0, buf),
			0);
	KUNIT_EXPECT_EQ(test, kfi_close(&s.rx[0]->fid), 0);
	KUNIT_EXPECT_EQ(test, kfi_cq_read(s.rx_cq[0], &entry, 1), -KFI_EAGAIN);
	KUNIT_ASSERT_EQ(test, kfi_rx_context(s.ep, 0, NULL, &s.rx[0], NULL), 0);
	sep_close(test, &s);
	fixture_close(test, &f);
}

CONSUMER("scalable endpoints",
	 KUNIT_CASE(attributes_are_checked),
	 KUNIT_CASE(a_scalable_endpoint_is_set_up),
	 KUNIT_CASE(ports_are_reserved),
	 KUNIT_CASE(contexts_have_attributes),
	 KUNIT_CASE(contexts_are_bound),
	 KUNIT_CASE(objects_in_use_stay_open));
