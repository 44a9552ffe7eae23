// SPDX-License-Identifier: GPL-2.0
/*
 * Tables of operations: every slot of every object is filled, and the size is that
 * of the table. An operation that an object does not have returns -KFI_ENOSYS.
 */

#include <kfi/kfi_atomic.h>
#include <kfi/kfi_rma.h>

#include "cm.h"
#include "sep.h"

#define REMOTE	(KFI_REMOTE_READ | KFI_REMOTE_WRITE)

/* Looks at a table: its size in bytes, and pointers to functions. */
static void look_at(struct kunit *test, const char *name, const void *ops, size_t size)
{
	const size_t *slots = ops;
	size_t i;

	KUNIT_ASSERT_NOT_NULL_MSG(test, ops, "%s", name);
	KUNIT_ASSERT_EQ_MSG(test, slots[0], size, "%s", name);
	for (i = 1; i < size / sizeof(*slots); i++)
		KUNIT_EXPECT_NE_MSG(test, slots[i], 0, "%s, slot %zu", name, i);
}

#define TABLE(test, ops)	look_at(test, #ops, ops, sizeof(*(ops)))

/* Looks at what all objects have. */
static void look_at_head(struct kunit *test, struct kfid *fid, size_t fclass)
{
	void *ops = NULL;

	KUNIT_EXPECT_EQ(test, fid->fclass, fclass);
	TABLE(test, fid->ops);
	KUNIT_EXPECT_EQ_MSG(test, kfi_open_ops(fid, "mine", 0, &ops, NULL), -KFI_ENOSYS,
			    "class %zu", fclass);
	KUNIT_EXPECT_EQ_MSG(test, kfi_control(fid, -1, NULL), -KFI_ENOSYS, "class %zu", fclass);
	KUNIT_EXPECT_EQ_MSG(test, kfi_control(fid, KFI_GETFIDFLAG, &ops), -KFI_ENOSYS,
			    "class %zu", fclass);
	KUNIT_EXPECT_NULL(test, ops);
}

/* An object that is bound to nothing. @other: any object. */
static void binds_nothing(struct kunit *test, struct kfid *fid, struct kfid *other)
{
	KUNIT_EXPECT_EQ_MSG(test, fid->ops->bind(fid, other, 0), -KFI_ENOSYS,
			    "class %zu", fid->fclass);
}

/* Looks at an endpoint or a context. */
static void look_at_ep(struct kunit *test, struct kfid_ep *ep, size_t fclass)
{
	look_at_head(test, &ep->fid, fclass);
	TABLE(test, ep->ops);
	TABLE(test, ep->cm);
	TABLE(test, ep->msg);
	TABLE(test, ep->rma);
	TABLE(test, ep->tagged);
	TABLE(test, ep->atomic);
}

/* An endpoint without contexts, and without requests of peers. */
static void has_no_contexts(struct kunit *test, struct kfid_ep *ep)
{
	struct kfid_ep *other = NULL;
	struct kfid_mc *mc = NULL;

	KUNIT_EXPECT_EQ(test, kfi_tx_context(ep, 0, NULL, &other, NULL), -KFI_ENOSYS);
	KUNIT_EXPECT_EQ(test, kfi_rx_context(ep, 0, NULL, &other, NULL), -KFI_ENOSYS);
	KUNIT_EXPECT_EQ(test, kfi_join(ep, NULL, 0, &mc, NULL), -KFI_ENOSYS);
	KUNIT_EXPECT_EQ(test, ep->cm->listen((struct kfid_pep *)ep), -KFI_ENOSYS);
	KUNIT_EXPECT_EQ(test, ep->cm->reject((struct kfid_pep *)ep, NULL, NULL, 0), -KFI_ENOSYS);
	KUNIT_EXPECT_EQ(test, kfi_control(&ep->fid, KFI_BACKLOG, NULL), -KFI_ENOSYS);
	KUNIT_EXPECT_NULL(test, other);
	KUNIT_EXPECT_NULL(test, mc);
}

static void tables_of_fabrics_and_domains_are_full(struct kunit *test)
{
	struct kfi_poll_attr attr = {};
	struct kfid_poll *poll;
	struct kfid_wait *set;
	struct fixture f;
	void *queue = NULL;

	fixture_open(test, &f);
	look_at_head(test, &f.fabric->fid, KFI_CLASS_FABRIC);
	TABLE(test, f.fabric->ops);
	binds_nothing(test, &f.fabric->fid, &f.domain->fid);
	KUNIT_EXPECT_EQ(test, kfi_control(&f.fabric->fid, KFI_GETWAIT, &queue), -KFI_ENOSYS);

	look_at_head(test, &f.domain->fid, KFI_CLASS_DOMAIN);
	TABLE(test, f.domain->ops);
	TABLE(test, f.domain->mr);
	KUNIT_EXPECT_EQ(test, kfi_control(&f.domain->fid, KFI_GETWAIT, &queue), -KFI_ENOSYS);
	KUNIT_EXPECT_EQ(test, kfi_control(&f.domain->fid, KFI_ENABLE, NULL), -KFI_ENOSYS);

	KUNIT_ASSERT_EQ(test, kfi_wait_open(f.fabric, NULL, &set), 0);
	look_at_head(test, &set->kfid, KFI_CLASS_WAIT);
	TABLE(test, set->ops);
	binds_nothing(test, &set->kfid, &f.domain->fid);
	KUNIT_EXPECT_EQ(test, kfi_control(&set->kfid, KFI_ENABLE, NULL), -KFI_ENOSYS);
	KUNIT_EXPECT_EQ(test, kfi_close(&set->kfid), 0);

	KUNIT_ASSERT_EQ(test, kfi_poll_open(f.domain, &attr, &poll), 0);
	look_at_head(test, &poll->fid, KFI_CLASS_POLL);
	TABLE(test, poll->ops);
	binds_nothing(test, &poll->fid, &f.domain->fid);
	KUNIT_EXPECT_EQ(test, kfi_control(&poll->fid, KFI_GETWAIT, &queue), -KFI_ENOSYS);
	KUNIT_EXPECT_EQ(test, kfi_close(&poll->fid), 0);
	KUNIT_EXPECT_NULL(test, queue);
	fixture_close(test, &f);
}

static void tables_of_queues_counters_and_regions_are_full(struct kunit *test)
{
	u8 *buf = zeroed(test, 8);
	struct kfid_cntr *cntr;
	struct kfid_av *av;
	struct kfid_cq *cq;
	struct kfid_eq *eq;
	struct kfid_mr *mr;
	struct fixture f;
	u64 flags = 0;

	fixture_open(test, &f);
	KUNIT_ASSERT_EQ(test, kfi_av_open(f.domain, NULL, &av, NULL), 0);
	look_at_head(test, &av->fid, KFI_CLASS_AV);
	TABLE(test, av->ops);
	KUNIT_EXPECT_EQ(test, kfi_control(&av->fid, KFI_GETWAIT, &buf), -KFI_ENOSYS);
	KUNIT_EXPECT_EQ(test, kfi_close(&av->fid), 0);

	KUNIT_ASSERT_EQ(test, kfi_cq_open(f.domain, NULL, &cq, NULL, NULL), 0);
	look_at_head(test, &cq->fid, KFI_CLASS_CQ);
	TABLE(test, cq->ops);
	binds_nothing(test, &cq->fid, &f.domain->fid);
	KUNIT_EXPECT_EQ(test, kfi_control(&cq->fid, KFI_GETOPSFLAG, &flags), -KFI_ENOSYS);
	KUNIT_EXPECT_EQ(test, kfi_close(&cq->fid), 0);

	KUNIT_ASSERT_EQ(test, kfi_eq_open(f.fabric, NULL, &eq, NULL, NULL), 0);
	look_at_head(test, &eq->fid, KFI_CLASS_EQ);
	TABLE(test, eq->ops);
	binds_nothing(test, &eq->fid, &f.domain->fid);
	KUNIT_EXPECT_EQ(test, kfi_control(&eq->fid, KFI_GETOPSFLAG, &flags), -KFI_ENOSYS);
	KUNIT_EXPECT_EQ(test, kfi_close(&eq->fid), 0);

	cntr = open_cntr(test, &f, KFI_WAIT_UNSPEC, NULL, NULL);
	look_at_head(test, &cntr->fid, KFI_CLASS_CNTR);
	TABLE(test, cntr->ops);
	binds_nothing(test, &cntr->fid, &f.domain->fid);
	KUNIT_EXPECT_EQ(test, kfi_control(&cntr->fid, KFI_ENABLE, NULL), -KFI_ENOSYS);
	KUNIT_EXPECT_EQ(test, kfi_close(&cntr->fid), 0);

	/* A region has no table of its own. */
	KUNIT_ASSERT_EQ(test, kfi_mr_reg(f.domain, buf, 8, REMOTE, 0, 1, 0, &mr, NULL), 0);
	look_at_head(test, &mr->fid, KFI_CLASS_MR);
	KUNIT_EXPECT_EQ(test, kfi_control(&mr->fid, KFI_GETWAIT, &buf), -KFI_ENOSYS);
	KUNIT_EXPECT_EQ(test, kfi_close(&mr->fid), 0);
	fixture_close(test, &f);
}

static void tables_of_endpoints_are_full(struct kunit *test)
{
	static const enum kfi_ep_type types[] = { KFI_EP_RDM, KFI_EP_DGRAM, KFI_EP_MSG };
	struct kfid_ep *ep, *alias;
	struct kfi_info *info;
	struct fixture f;
	int i;

	fixture_open(test, &f);
	for (i = 0; i < ARRAY_SIZE(types); i++) {
		info = entry_of(test, types[i]);
		KUNIT_ASSERT_EQ(test, kfi_endpoint(f.domain, info, &ep, NULL), 0);
		look_at_ep(test, ep, KFI_CLASS_EP);
		has_no_contexts(test, ep);
		KUNIT_ASSERT_EQ(test, kfi_ep_alias(ep, &alias, KFI_TRANSMIT), 0);
		look_at_ep(test, alias, KFI_CLASS_EP);
		has_no_contexts(test, alias);
		CLOSE(test, &alias->fid, &ep->fid);
		kfi_freeinfo(info);
	}
	fixture_close(test, &f);
}

static void tables_of_shared_contexts_are_full(struct kunit *test)
{
	struct kfid_ep *srx, *other = NULL;
	size_t len = sizeof(len), value = 0;
	struct kfid_stx *stx;
	struct fixture f;

	fixture_open(test, &f);
	KUNIT_ASSERT_EQ(test, kfi_srx_context(f.domain, NULL, &srx, NULL), 0);
	look_at_ep(test, srx, KFI_CLASS_SRX_CTX);
	has_no_contexts(test, srx);
	binds_nothing(test, &srx->fid, &f.domain->fid);
	KUNIT_EXPECT_EQ(test, kfi_close(&srx->fid), 0);

	KUNIT_ASSERT_EQ(test, kfi_stx_context(f.domain, NULL, &stx, NULL), 0);
	look_at_head(test, &stx->fid, KFI_CLASS_STX_CTX);
	TABLE(test, stx->ops);
	binds_nothing(test, &stx->fid, &f.domain->fid);
	KUNIT_EXPECT_EQ(test, kfi_control(&stx->fid, KFI_ENABLE, NULL), -KFI_ENOSYS);
	KUNIT_EXPECT_EQ(test, kfi_cancel(&stx->fid, NULL), -KFI_ENOSYS);
	KUNIT_EXPECT_EQ(test, kfi_setopt(&stx->fid, KFI_OPT_ENDPOINT, KFI_OPT_MIN_MULTI_RECV,
					 &value, len), -KFI_ENOSYS);
	KUNIT_EXPECT_EQ(test, kfi_getopt(&stx->fid, KFI_OPT_ENDPOINT, KFI_OPT_MIN_MULTI_RECV,
					 &value, &len), -KFI_ENOSYS);
	KUNIT_EXPECT_EQ(test, stx->ops->tx_ctx((struct kfid_ep *)stx, 0, NULL, &other, NULL),
			-KFI_ENOSYS);
	KUNIT_EXPECT_EQ(test, stx->ops->rx_ctx((struct kfid_ep *)stx, 0, NULL, &other, NULL),
			-KFI_ENOSYS);
	KUNIT_EXPECT_NULL(test, other);
	KUNIT_EXPECT_EQ(test, kfi_close(&stx->fid), 0);
	fixture_close(test, &f);
}

/* Those of a passive endpoint, and of the handle of a request. */
static void tables_of_passive_endpoints_are_full(struct kunit *test)
{
	struct kfid_ep *ep, *other = NULL;
	struct sockaddr_in addr;
	struct kfid_mc *mc = NULL;
	size_t len = sizeof(addr);
	struct kfid *handle;
	struct event event;
	struct world w;

	world_open(test, &w);
	look_at_head(test, &w.pep->fid, KFI_CLASS_PEP);
	TABLE(test, w.pep->ops);
	TABLE(test, w.pep->cm);
	KUNIT_EXPECT_EQ(test, kfi_control(&w.pep->fid, KFI_ENABLE, NULL), -KFI_ENOSYS);
	KUNIT_EXPECT_EQ(test, kfi_cancel(&w.pep->fid, NULL), -KFI_ENOSYS);
	ep = (struct kfid_ep *)w.pep;
	KUNIT_EXPECT_EQ(test, w.pep->ops->tx_ctx(ep, 0, NULL, &other, NULL), -KFI_ENOSYS);
	KUNIT_EXPECT_EQ(test, w.pep->ops->rx_ctx(ep, 0, NULL, &other, NULL), -KFI_ENOSYS);
	KUNIT_EXPECT_EQ(test, w.pep->cm->getpeer(ep, &addr, &len), -KFI_ENOSYS);
	KUNIT_EXPECT_EQ(test, w.pep->cm->connect(ep, &w.addr, NULL, 0), -KFI_ENOSYS);
	KUNIT_EXPECT_EQ(test, w.pep->cm->accept(ep, NULL, 0), -KFI_ENOSYS);
	KUNIT_EXPECT_EQ(test, w.pep->cm->shutdown(ep, 0), -KFI_ENOSYS);
	KUNIT_EXPECT_EQ(test, w.pep->cm->join(ep, NULL, 0, &mc, NULL), -KFI_ENOSYS);
	KUNIT_EXPECT_NULL(test, other);

	KUNIT_ASSERT_EQ(test, kfi_connect(w.client.ep, &w.addr, NULL, 0), 0);
	next(test, w.eq, &event, KFI_CONNREQ, &w.pep->fid, ASKED);
	handle = event.head.info->handle;
	KUNIT_ASSERT_NOT_NULL(test, handle);
	look_at_head(test, handle, KFI_CLASS_CONNREQ);
	binds_nothing(test, handle, &w.pep->fid);
	KUNIT_EXPECT_EQ(test, kfi_close(handle), -KFI_ENOSYS);
	KUNIT_EXPECT_EQ(test, kfi_reject(w.pep, handle, NULL, 0), 0);
	kfi_freeinfo(event.head.info);
	world_close(test, &w);
}

/* Calls of a table with memory of one object, for which no provider looks at it. */
static void has_no_messages(struct kunit *test, struct kfid_ep *ep)
{
	struct scatterlist *sgl = NULL;
	struct bio_vec *bvec = NULL;
	struct kvec *iov = NULL;

	KUNIT_EXPECT_EQ(test, kfi_recv(ep, NULL, 0, NULL, 0, NULL), -KFI_ENOSYS);
	KUNIT_EXPECT_EQ(test, kfi_recvv(ep, iov, NULL, 0, 0, NULL), -KFI_ENOSYS);
	KUNIT_EXPECT_EQ(test, kfi_recvbv(ep, bvec, NULL, 0, 0, NULL), -KFI_ENOSYS);
	KUNIT_EXPECT_EQ(test, kfi_recvsgl(ep, sgl, NULL, 0, 0, NULL), -KFI_ENOSYS);
	KUNIT_EXPECT_EQ(test, kfi_recvmsg(ep, NULL, 0), -KFI_ENOSYS);
	KUNIT_EXPECT_EQ(test, kfi_send(ep, NULL, 0, NULL, 0, NULL), -KFI_ENOSYS);
	KUNIT_EXPECT_EQ(test, kfi_sendv(ep, iov, NULL, 0, 0, NULL), -KFI_ENOSYS);
	KUNIT_EXPECT_EQ(test, kfi_sendbv(ep, bvec, NULL, 0, 0, NULL), -KFI_ENOSYS);
	KUNIT_EXPECT_EQ(test, kfi_sendsgl(ep, sgl, NULL, 0, 0, NULL), -KFI_ENOSYS);
	KUNIT_EXPECT_EQ(test, kfi_sendmsg(ep, NULL, 0), -KFI_ENOSYS);
	KUNIT_EXPECT_EQ(test, kfi_inject(ep, NULL, 0, 0), -KFI_ENOSYS);
	KUNIT_EXPECT_EQ(test, kfi_senddata(ep, NULL, 0, NULL, 0, 0, NULL), -KFI_ENOSYS);
	KUNIT_EXPECT_EQ(test, kfi_injectdata(ep, NULL, 0, 0, 0), -KFI_ENOSYS);

	KUNIT_EXPECT_EQ(test, kfi_trecv(ep, NULL, 0, NULL, 0, 0, 0, NULL), -KFI_ENOSYS);
	KUNIT_EXPECT_EQ(test, kfi_trecvv(ep, iov, NULL, 0, 0, 0, 0, NULL), -KFI_ENOSYS);
	KUNIT_EXPECT_EQ(test, kfi_trecvbv(ep, bvec, NULL, 0, 0, 0, 0, NULL), -KFI_ENOSYS);
	KUNIT_EXPECT_EQ(test, kfi_trecvsgl(ep, sgl, NULL, 0, 0, 0, 0, NULL), -KFI_ENOSYS);
	KUNIT_EXPECT_EQ(test, kfi_trecvmsg(ep, NULL, 0), -KFI_ENOSYS);
	KUNIT_EXPECT_EQ(test, kfi_tsend(ep, NULL, 0, NULL, 0, 0, NULL), -KFI_ENOSYS);
	KUNIT_EXPECT_EQ(test, kfi_tsendv(ep, iov, NULL, 0, 0, 0, NULL), -KFI_ENOSYS);
	KUNIT_EXPECT_EQ(test, kfi_tsendbv(ep, bvec, NULL, 0, 0, 0, NULL), -KFI_ENOSYS);
	KUNIT_EXPECT_EQ(test, kfi_tsendsgl(ep, sgl, NULL, 0, 0, 0, NULL), -KFI_ENOSYS);
	KUNIT_EXPECT_EQ(test, kfi_tsendmsg(ep, NULL, 0), -KFI_ENOSYS);
	KUNIT_EXPECT_EQ(test, kfi_tinject(ep, NULL, 0, 0, 0), -KFI_ENOSYS);
	KUNIT_EXPECT_EQ(test, kfi_tsenddata(ep, NULL, 0, NULL, 0, 0, 0, NULL), -KFI_ENOSYS);
	KUNIT_EXPECT_EQ(test, kfi_tinjectdata(ep, NULL, 0, 0, 0, 0), -KFI_ENOSYS);
}

static void has_no_rma(struct kunit *test, struct kfid_ep *ep)
{
	struct scatterlist *sgl = NULL;
	struct bio_vec *bvec = NULL;
	struct kvec *iov = NULL;

	KUNIT_EXPECT_EQ(test, kfi_read(ep, NULL, 0, NULL, 0, 0, 0, NULL), -KFI_ENOSYS);
	KUNIT_EXPECT_EQ(test, kfi_readv(ep, iov, NULL, 0, 0, 0, 0, NULL), -KFI_ENOSYS);
	KUNIT_EXPECT_EQ(test, kfi_readbv(ep, bvec, NULL, 0, 0, 0, 0, NULL), -KFI_ENOSYS);
	KUNIT_EXPECT_EQ(test, kfi_readsgl(ep, sgl, NULL, 0, 0, 0, 0, NULL), -KFI_ENOSYS);
	KUNIT_EXPECT_EQ(test, kfi_readmsg(ep, NULL, 0), -KFI_ENOSYS);
	KUNIT_EXPECT_EQ(test, kfi_write(ep, NULL, 0, NULL, 0, 0, 0, NULL), -KFI_ENOSYS);
	KUNIT_EXPECT_EQ(test, kfi_writev(ep, iov, NULL, 0, 0, 0, 0, NULL), -KFI_ENOSYS);
	KUNIT_EXPECT_EQ(test, kfi_writebv(ep, bvec, NULL, 0, 0, 0, 0, NULL), -KFI_ENOSYS);
	KUNIT_EXPECT_EQ(test, kfi_writesgl(ep, sgl, NULL, 0, 0, 0, 0, NULL), -KFI_ENOSYS);
	KUNIT_EXPECT_EQ(test, kfi_writemsg(ep, NULL, 0), -KFI_ENOSYS);
	KUNIT_EXPECT_EQ(test, kfi_inject_write(ep, NULL, 0, 0, 0, 0), -KFI_ENOSYS);
	KUNIT_EXPECT_EQ(test, kfi_writedata(ep, NULL, 0, NULL, 0, 0, 0, 0, NULL), -KFI_ENOSYS);
	KUNIT_EXPECT_EQ(test, kfi_inject_writedata(ep, NULL, 0, 0, 0, 0, 0), -KFI_ENOSYS);
}

static void has_no_atomics(struct kunit *test, struct kfid_ep *ep)
{
	const enum kfi_datatype type = KFI_UINT64;
	size_t count = 7;

	KUNIT_EXPECT_EQ(test, kfi_atomic(ep, NULL, 0, NULL, 0, 0, 0, type, KFI_SUM, NULL),
			-KFI_ENOSYS);
	KUNIT_EXPECT_EQ(test, kfi_atomicv(ep, NULL, NULL, 0, 0, 0, 0, type, KFI_SUM, NULL),
			-KFI_ENOSYS);
	KUNIT_EXPECT_EQ(test, kfi_atomicmsg(ep, NULL, 0), -KFI_ENOSYS);
	KUNIT_EXPECT_EQ(test, kfi_inject_atomic(ep, NULL, 0, 0, 0, 0, type, KFI_SUM), -KFI_ENOSYS);
	KUNIT_EXPECT_EQ(test, kfi_fetch_atomic(ep, NULL, 0, NULL, NULL, NULL, 0, 0, 0, type,
					       KFI_SUM, NULL), -KFI_ENOSYS);
	KUNIT_EXPECT_EQ(test, kfi_fetch_atomicv(ep, NULL, NULL, 0, NULL, NULL, 0, 0, 0, 0, type,
						KFI_SUM, NULL), -KFI_ENOSYS);
	KUNIT_EXPECT_EQ(test, kfi_fetch_atomicmsg(ep, NULL, NULL, NULL, 0, 0), -KFI_ENOSYS);
	KUNIT_EXPECT_EQ(test, kfi_compare_atomic(ep, NULL, 0, NULL, NULL, NULL, NULL, NULL, 0, 0,
						 0, type, KFI_CSWAP, NULL), -KFI_ENOSYS);
	KUNIT_EXPECT_EQ(test, kfi_compare_atomicv(ep, NULL, NULL, 0, NULL, NULL, 0, NULL, NULL, 0,
						  0, 0, 0, type, KFI_CSWAP, NULL), -KFI_ENOSYS);
	KUNIT_EXPECT_EQ(test, kfi_compare_atomicmsg(ep, NULL, NULL, NULL, 0, NULL, NULL, 0, 0),
			-KFI_ENOSYS);
	KUNIT_EXPECT_EQ(test, kfi_atomicvalid(ep, type, KFI_SUM, &count), -KFI_ENOSYS);
	KUNIT_EXPECT_EQ(test, kfi_fetch_atomicvalid(ep, type, KFI_SUM, &count), -KFI_ENOSYS);
	KUNIT_EXPECT_EQ(test, kfi_compare_atomicvalid(ep, type, KFI_CSWAP, &count), -KFI_ENOSYS);
	KUNIT_EXPECT_EQ(test, count, 7);
}

static void tables_of_scalable_endpoints_are_full(struct kunit *test)
{
	struct kfid *alias = NULL;
	struct kfid_mc *mc = NULL;
	struct kfid_pep *pep;
	struct fixture f;
	struct sep s;
	size_t len = 0;
	int i;

	fixture_open(test, &f);
	sep_open(test, &f, &s);
	look_at_ep(test, s.ep, KFI_CLASS_SEP);
	has_no_messages(test, s.ep);
	has_no_rma(test, s.ep);
	has_no_atomics(test, s.ep);
	pep = (struct kfid_pep *)s.ep;
	KUNIT_EXPECT_EQ(test, kfi_cancel(&s.ep->fid, NULL), -KFI_ENOSYS);
	KUNIT_EXPECT_EQ(test, kfi_alias(&s.ep->fid, &alias, KFI_TRANSMIT), -KFI_ENOSYS);
	KUNIT_EXPECT_EQ(test, kfi_getpeer(s.ep, NULL, &len), -KFI_ENOSYS);
	KUNIT_EXPECT_EQ(test, kfi_connect(s.ep, &s.name, NULL, 0), -KFI_ENOSYS);
	KUNIT_EXPECT_EQ(test, s.ep->cm->listen(pep), -KFI_ENOSYS);
	KUNIT_EXPECT_EQ(test, kfi_accept(s.ep, NULL, 0), -KFI_ENOSYS);
	KUNIT_EXPECT_EQ(test, s.ep->cm->reject(pep, NULL, NULL, 0), -KFI_ENOSYS);
	KUNIT_EXPECT_EQ(test, kfi_shutdown(s.ep, 0), -KFI_ENOSYS);
	KUNIT_EXPECT_EQ(test, kfi_join(s.ep, NULL, 0, &mc, NULL), -KFI_ENOSYS);
	KUNIT_EXPECT_NULL(test, alias);
	for (i = 0; i < CONTEXTS; i++) {
		look_at_ep(test, s.tx[i], KFI_CLASS_TX_CTX);
		has_no_contexts(test, s.tx[i]);
		look_at_ep(test, s.rx[i], KFI_CLASS_RX_CTX);
		has_no_contexts(test, s.rx[i]);
	}
	sep_close(test, &s);
	fixture_close(test, &f);
}

CONSUMER("tables of operations",
	 KUNIT_CASE(tables_of_fabrics_and_domains_are_full),
	 KUNIT_CASE(tables_of_queues_counters_and_regions_are_full),
	 KUNIT_CASE(tables_of_endpoints_are_full),
	 KUNIT_CASE(tables_of_shared_contexts_are_full),
	 KUNIT_CASE(tables_of_passive_endpoints_are_full),
	 KUNIT_CASE(tables_of_scalable_endpoints_are_full));
