// SPDX-License-Identifier: GPL-2.0
/*
 * An alias of an endpoint, by which operations are triggered, beside the endpoint
 * (fi_trigger(3)). consumer_alias has every transfer of an alias.
 */

#include <kfi/kfi_atomic.h>
#include <kfi/kfi_rma.h>
#include <kfi/kfi_trigger.h>

#include "pair.h"

#define SENT		(KFI_MSG | KFI_SEND)
#define RECEIVED	(KFI_MSG | KFI_RECV)
#define COUNT		3

/**
 * struct world - two endpoints, a counter, and operations of the first
 * @f: their domain
 * @ends: the endpoints
 * @go: the counter of the conditions
 * @from: memory of the first: one byte for each operation
 * @to: memory of the second
 * @when: the conditions of the operations
 * @iov: the bytes
 * @msg: the operations
 */
struct world {
	struct fixture			f;
	struct end			ends[2];
	struct kfid_cntr		*go;
	u8				*from;
	u8				*to;
	struct kfi_triggered_context	when[COUNT];
	struct kvec			iov[COUNT];
	struct kfi_msg			msg[COUNT];
};

/* Opens it: operation i sends the letter 'a' + i, and as many receives are posted. */
static struct world *world_open(struct kunit *test)
{
	struct world *w = zeroed(test, sizeof(*w));
	int i;

	pair_open(test, &w->f, KFI_EP_RDM, w->ends);
	w->go = open_cntr(test, &w->f, KFI_WAIT_UNSPEC, NULL, NULL);
	w->from = zeroed_page(test);
	w->to = zeroed_page(test);
	for (i = 0; i < COUNT; i++) {
		w->from[i] = 'a' + i;
		w->iov[i] = (struct kvec){ w->from + i, 1 };
		w->when[i].event_type = KFI_TRIGGER_THRESHOLD;
		w->when[i].trigger.threshold.cntr = w->go;
		w->msg[i] = (struct kfi_msg){
			.type = KFI_KVEC, .msg_iov = &w->iov[i], .iov_count = 1,
			.addr = w->ends[0].peer, .context = &w->when[i],
		};
		KUNIT_EXPECT_EQ(test, kfi_recv(w->ends[1].ep, w->to + i, 1, NULL, KFI_ADDR_UNSPEC,
					       w->to + i), 0);
	}
	return w;
}

static void world_close(struct kunit *test, struct world *w)
{
	KUNIT_EXPECT_EQ(test, kfi_close(&w->go->fid), 0);
	pair_close(test, &w->f, w->ends);
}

/* The letters arrive in this order. */
static void arrive(struct kunit *test, struct world *w, const char *letters)
{
	int i;

	for (i = 0; letters[i]; i++)
		completed(test, &w->ends[1], w->to + i, RECEIVED, 1);
	nothing(test, &w->ends[1]);
	KUNIT_EXPECT_STREQ(test, w->to, letters);
}

/* An alias is what triggers, and its endpoint is as before. */
static void an_alias_defers(struct kunit *test)
{
	struct world *w = world_open(test);
	kfi_addr_t peer = w->ends[0].peer;
	struct kfid_ep *alias;

	KUNIT_ASSERT_EQ(test, kfi_ep_alias(w->ends[0].ep, &alias, KFI_TRANSMIT | KFI_TRIGGER), 0);
	w->when[0].trigger.threshold.threshold = 1;
	KUNIT_EXPECT_EQ(test, kfi_send(alias, w->from, 1, NULL, peer, &w->when[0]), 0);
	/* Every transfer of the alias needs a condition. */
	KUNIT_EXPECT_EQ(test, kfi_send(alias, w->from, 1, NULL, peer, NULL), -KFI_EINVAL);
	/* An injected one cannot have one. */
	KUNIT_EXPECT_EQ(test, kfi_inject(alias, w->from, 1, peer), -KFI_ENOSYS);
	KUNIT_EXPECT_EQ(test, kfi_injectdata(alias, w->from, 1, 7, peer), -KFI_ENOSYS);
	KUNIT_EXPECT_EQ(test, kfi_tinject(alias, w->from, 1, peer, 7), -KFI_ENOSYS);
	KUNIT_EXPECT_EQ(test, kfi_tinjectdata(alias, w->from, 1, 7, peer, 7), -KFI_ENOSYS);
	KUNIT_EXPECT_EQ(test, kfi_inject_write(alias, w->from, 1, peer, 0, 0), -KFI_ENOSYS);
	KUNIT_EXPECT_EQ(test, kfi_inject_writedata(alias, w->from, 1, 7, peer, 0, 0),
			-KFI_ENOSYS);
	KUNIT_EXPECT_EQ(test, kfi_inject_atomic(alias, w->from, 1, peer, 0, 0, KFI_UINT8, KFI_SUM),
			-KFI_ENOSYS);
	KUNIT_EXPECT_EQ(test, kfi_send(w->ends[0].ep, w->from + 1, 1, NULL, peer, w), 0);
	completed(test, &w->ends[0], w, SENT, 0);
	/* A call that takes flags has these only. */
	KUNIT_EXPECT_EQ(test, kfi_sendmsg(alias, &w->msg[2], 0), 0);
	completed(test, &w->ends[0], &w->when[2], SENT, 0);
	/* The structure was copied. */
	memset(&w->when[0], 0xff, sizeof(w->when[0]));
	KUNIT_EXPECT_EQ(test, kfi_cntr_add(w->go, 1), 0);
	completed(test, &w->ends[0], &w->when[0], SENT, 0);
	arrive(test, w, "bca");
	KUNIT_EXPECT_EQ(test, kfi_close(&alias->fid), 0);
	world_close(test, w);
}

CONSUMER("an alias whose operations are triggered",
	 KUNIT_CASE(an_alias_defers));
