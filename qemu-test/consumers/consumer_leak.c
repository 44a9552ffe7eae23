// SPDX-License-Identifier: GPL-2.0
/*
 * A fabric that is closed too early stays open, and the kernel's log names what
 * keeps it open: here objects of every class (run-guest looks for the line).
 */

#include "sep.h"

/**
 * struct everything - objects of each class that a fabric has
 * @sep: a scalable endpoint with two transmit contexts and a receive context
 * @tx: the transmit contexts
 * @rx: the receive context
 * @cntrs: counters
 * @stx: a shared transmit context
 * @srx: a shared receive context
 * @ep: an endpoint
 * @pep: a passive endpoint
 * @av: an address vector
 * @mr: a memory region
 * @eq: an event queue
 * @cq: a completion queue
 * @wait: a wait set
 * @poll: a poll set
 */
struct everything {
	struct kfid_ep		*sep;
	struct kfid_ep		*tx[2];
	struct kfid_ep		*rx;
	struct kfid_cntr	*cntrs[2];
	struct kfid_stx		*stx;
	struct kfid_ep		*srx;
	struct kfid_ep		*ep;
	struct kfid_pep		*pep;
	struct kfid_av		*av;
	struct kfid_mr		*mr;
	struct kfid_eq		*eq;
	struct kfid_cq		*cq;
	struct kfid_wait	*wait;
	struct kfid_poll	*poll;
};

static void open_everything(struct kunit *test, struct fixture *f, struct everything *all)
{
	struct kfi_info *info = sep_info(test, 2);
	void *memory = zeroed(test, 64);
	int i;

	KUNIT_ASSERT_EQ(test, kfi_scalable_ep(f->domain, info, &all->sep, NULL), 0);
	kfi_freeinfo(info);
	for (i = 0; i < 2; i++) {
		all->cntrs[i] = open_cntr(test, f, KFI_WAIT_UNSPEC, NULL, NULL);
		KUNIT_ASSERT_EQ(test, kfi_tx_context(all->sep, i, NULL, &all->tx[i], NULL), 0);
	}
	KUNIT_ASSERT_EQ(test, kfi_rx_context(all->sep, 0, NULL, &all->rx, NULL), 0);
	KUNIT_ASSERT_EQ(test, kfi_stx_context(f->domain, NULL, &all->stx, NULL), 0);
	KUNIT_ASSERT_EQ(test, kfi_srx_context(f->domain, NULL, &all->srx, NULL), 0);
	info = entry_of(test, KFI_EP_RDM);
	KUNIT_ASSERT_EQ(test, kfi_endpoint(f->domain, info, &all->ep, NULL), 0);
	kfi_freeinfo(info);
	info = entry_of(test, KFI_EP_MSG);
	KUNIT_ASSERT_EQ(test, kfi_passive_ep(f->fabric, info, &all->pep, NULL), 0);
	kfi_freeinfo(info);
	KUNIT_ASSERT_EQ(test, kfi_av_open(f->domain, NULL, &all->av, NULL), 0);
	KUNIT_ASSERT_EQ(test, kfi_mr_reg(f->domain, memory, 64, KFI_REMOTE_READ, 0, 1, 0, &all->mr,
					 NULL), 0);
	KUNIT_ASSERT_EQ(test, kfi_eq_open(f->fabric, NULL, &all->eq, NULL, NULL), 0);
	KUNIT_ASSERT_EQ(test, kfi_cq_open(f->domain, NULL, &all->cq, NULL, NULL), 0);
	KUNIT_ASSERT_EQ(test, kfi_wait_open(f->fabric, NULL, &all->wait), 0);
	KUNIT_ASSERT_EQ(test, kfi_poll_open(f->domain, NULL, &all->poll), 0);
}

/* Closes all of it, contexts before their scalable endpoint. */
static void close_everything(struct kunit *test, struct everything *all)
{
	struct kfid *fids[] = {
		&all->rx->fid, &all->sep->fid, &all->stx->fid, &all->srx->fid, &all->ep->fid,
		&all->pep->fid, &all->av->fid, &all->mr->fid, &all->eq->fid, &all->cq->fid,
		&all->wait->kfid, &all->poll->fid,
	};
	int i;

	for (i = 0; i < 2; i++) {
		KUNIT_EXPECT_EQ(test, kfi_cntr_add(all->cntrs[i], 1), 0);
		CLOSE(test, &all->cntrs[i]->fid, &all->tx[i]->fid);
	}
	for (i = 0; i < ARRAY_SIZE(fids); i++)
		KUNIT_EXPECT_EQ_MSG(test, kfi_close(fids[i]), 0, "object %d", i);
}

/* The line has all that is open, and nothing that was closed before. */
static void a_fabric_in_use_is_not_closed(struct kunit *test)
{
	struct everything all;
	struct kfid_wait *set;
	struct kfid_cq *cq;
	struct fixture f;
	int i;

	fixture_open(test, &f);
	open_everything(test, &f, &all);
	KUNIT_ASSERT_EQ(test, kfi_wait_open(f.fabric, NULL, &set), 0);
	KUNIT_EXPECT_EQ(test, kfi_close(&set->kfid), 0);
	KUNIT_ASSERT_EQ(test, kfi_cq_open(f.domain, NULL, &cq, NULL, NULL), 0);
	KUNIT_EXPECT_EQ(test, kfi_close(&cq->fid), 0);
	KUNIT_EXPECT_EQ(test, kfi_close(&f.domain->fid), -KFI_EBUSY);
	/* The second time says nothing. */
	for (i = 0; i < 2; i++)
		KUNIT_EXPECT_EQ(test, kfi_close(&f.fabric->fid), -KFI_EBUSY);
	/* Nothing has changed. */
	close_everything(test, &all);
	fixture_close(test, &f);
}

CONSUMER("objects that keep a fabric open",
	 KUNIT_CASE(a_fabric_in_use_is_not_closed));
