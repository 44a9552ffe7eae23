// SPDX-License-Identifier: GPL-2.0
/*
 * Each allocation fails in turn: calls of scalable endpoints, of shared contexts
 * and of tagged RMA, and registration with an event.
 */

#include <linux/spinlock.h>
#include <linux/uio.h>

#include <kfi/kfi_rma.h>

#include "sep.h"

#include "faults.h"

#define KEY	7
#define TAG	5
/* More than is copied when it is posted. */
#define LENGTH	1500
#define CAPS	(KFI_MSG | KFI_RMA | KFI_TAGGED | KFI_TAGGED_RMA)
#define ANY	KFI_ADDR_UNSPEC

/**
 * struct faults_world - what the calls use
 * @f: the domain
 * @sep: a scalable endpoint, to itself
 * @self: the address of its second receive context
 * @bare: a scalable endpoint without contexts, not enabled
 * @info: the entry of both
 * @shared: an entry for endpoints with shared contexts
 * @stx: a shared transmit context
 * @srx: a shared receive context
 * @member: an endpoint that uses both
 * @sender: an endpoint that sends to @member, and does tagged RMA with itself
 * @to_member: the address of @member for @sender
 * @to_self: the address of @sender for itself
 * @eq: events of registrations
 * @made: the object that a call has made
 * @page: memory
 * @remote: the receive that tagged RMA takes
 * @iov: the memory of it
 */
struct faults_world {
	struct fixture		f;
	struct sep		sep;
	kfi_addr_t		self;
	struct kfid_ep		*bare;
	struct kfi_info		*info;
	struct kfi_info		*shared;
	struct kfid_stx		*stx;
	struct kfid_ep		*srx;
	struct end		member;
	struct end		sender;
	kfi_addr_t		to_member;
	kfi_addr_t		to_self;
	struct kfid_eq		*eq;
	struct kfid		*made;
	u8			*page;
	struct kfi_rma_iov	remote;
	struct kvec		iov;
};

static void member_open(struct kunit *test, struct faults_world *w, struct end *end)
{
	end_open(test, &w->f, w->shared, end, 0);
	KUNIT_ASSERT_EQ(test, kfi_ep_bind(end->ep, &w->stx->fid, 0), 0);
	KUNIT_ASSERT_EQ(test, kfi_ep_bind(end->ep, &w->srx->fid, 0), 0);
}

static struct faults_world *world_open(struct kunit *test)
{
	struct faults_world *w = zeroed(test, sizeof(*w));
	struct kfi_rx_attr rx = { .caps = KFI_MSG | KFI_TAGGED };
	struct kfi_info *info;

	faults_need_injection(test);
	fixture_open(test, &w->f);
	KUNIT_ASSERT_EQ(test, kfi_eq_open(w->f.fabric, NULL, &w->eq, NULL, NULL), 0);
	KUNIT_ASSERT_EQ(test, kfi_domain_bind(w->f.domain, &w->eq->fid, KFI_REG_MR), 0);
	sep_open(test, &w->f, &w->sep);
	w->self = kfi_rx_addr(sep_knows(test, &w->sep, &w->sep), 1, BITS);
	w->info = sep_info(test, CONTEXTS);
	KUNIT_ASSERT_EQ(test, kfi_scalable_ep(w->f.domain, w->info, &w->bare, NULL), 0);
	KUNIT_ASSERT_EQ(test, kfi_scalable_ep_bind(w->bare, &w->sep.av->fid, 0), 0);
	w->shared = entry_with(test, KFI_EP_RDM, KFI_MSG | KFI_TAGGED);
	w->shared->ep_attr->tx_ctx_cnt = KFI_SHARED_CONTEXT;
	w->shared->ep_attr->rx_ctx_cnt = KFI_SHARED_CONTEXT;
	KUNIT_ASSERT_EQ(test, kfi_stx_context(w->f.domain, NULL, &w->stx, NULL), 0);
	KUNIT_ASSERT_EQ(test, kfi_srx_context(w->f.domain, &rx, &w->srx, NULL), 0);
	member_open(test, w, &w->member);
	KUNIT_ASSERT_EQ(test, kfi_enable(w->member.ep), 0);
	info = entry_with(test, KFI_EP_RDM, CAPS);
	end_open(test, &w->f, info, &w->sender, 0);
	kfi_freeinfo(info);
	KUNIT_ASSERT_EQ(test, kfi_enable(w->sender.ep), 0);
	end_knows(test, &w->sender, &w->sender);
	w->to_self = w->sender.peer;
	end_knows(test, &w->sender, &w->member);
	w->to_member = w->sender.peer;
	w->page = zeroed_page(test);
	w->iov = (struct kvec){ w->page, LENGTH };
	w->remote = (struct kfi_rma_iov){ .len = LENGTH, .key = TAG };
	return w;
}

static void world_close(struct kunit *test, struct faults_world *w)
{
	/* What failed has left no completion. */
	nothing(test, &w->member);
	nothing(test, &w->sender);
	end_close(test, &w->member);
	end_close(test, &w->sender);
	CLOSE(test, &w->srx->fid, &w->stx->fid, &w->bare->fid);
	sep_close(test, &w->sep);
	kfi_freeinfo(w->info);
	kfi_freeinfo(w->shared);
	fixture_close_with(test, &w->f, w->eq);
}

static void sweep(struct kunit *test, const struct faults_call *calls, size_t count)
{
	struct faults_world *w = world_open(test);

	faults_of(test, w, calls, count);
	world_close(test, w);
}

/* Closing succeeds, whatever fails. */
static void close_made(struct kunit *test, struct faults_world *w)
{
	int ret;

	faults_begin(1);
	ret = kfi_close(w->made);
	faults_end();
	KUNIT_EXPECT_EQ(test, ret, 0);
}

/* Calls that make an object, which is stored in @made. */

#define OPENS(name, type, call) \
static int name(struct faults_world *w) \
{ \
	struct type *made; \
	int ret = call; \
\
	if (!ret) \
		w->made = &made->fid; \
	return ret; \
}

OPENS(scalable_ep, kfid_ep, kfi_scalable_ep(w->f.domain, w->info, &made, NULL))
OPENS(tx_context, kfid_ep, kfi_tx_context(w->bare, 1, NULL, &made, NULL))
OPENS(rx_context, kfid_ep, kfi_rx_context(w->bare, 1, NULL, &made, NULL))
OPENS(stx_context, kfid_stx, kfi_stx_context(w->f.domain, NULL, &made, NULL))
OPENS(srx_context, kfid_ep, kfi_srx_context(w->f.domain, NULL, &made, NULL))
OPENS(alias_of_context, kfid_ep, kfi_ep_alias(w->sep.tx[0], &made, KFI_TRANSMIT))
OPENS(alias_of_shared, kfid_ep, kfi_ep_alias(w->srx, &made, KFI_RECV))
OPENS(mr_reg, kfid_mr, kfi_mr_reg(w->f.domain, w->page, PAGE_SIZE, KFI_REMOTE_READ, 0, KEY, 0,
				  &made, w))

/* A region that was registered has its event, and only that. */
static void close_registered(struct kunit *test, struct faults_world *w)
{
	struct kfi_eq_entry entry = {};
	u32 event = 0;

	KUNIT_EXPECT_EQ(test, kfi_eq_read(w->eq, &event, &entry, sizeof(entry), 0), sizeof(entry));
	KUNIT_EXPECT_EQ(test, event, KFI_MR_COMPLETE);
	KUNIT_EXPECT_PTR_EQ(test, entry.fid, w->made);
	KUNIT_EXPECT_EQ(test, kfi_eq_read(w->eq, &event, &entry, sizeof(entry), 0), -KFI_EAGAIN);
	close_made(test, w);
}

/* Calls that change an object. */

static void bare_open(struct kunit *test, struct faults_world *w)
{
	struct kfid_ep *ep;

	KUNIT_ASSERT_EQ(test, kfi_scalable_ep(w->f.domain, w->info, &ep, NULL), 0);
	KUNIT_ASSERT_EQ(test, kfi_scalable_ep_bind(ep, &w->sep.av->fid, 0), 0);
	w->made = &ep->fid;
}

static int enable_bare(struct faults_world *w)
{
	return kfi_enable(container_of(w->made, struct kfid_ep, fid));
}

/* Replaces a context of the scalable endpoint by one that is not enabled. */
static void tx_fresh(struct kunit *test, struct faults_world *w)
{
	KUNIT_ASSERT_EQ(test, kfi_close(&w->sep.tx[2]->fid), 0);
	KUNIT_ASSERT_EQ(test, kfi_tx_context(w->sep.ep, 2, NULL, &w->sep.tx[2], NULL), 0);
	KUNIT_ASSERT_EQ(test, kfi_ep_bind(w->sep.tx[2], &w->sep.tx_cq[2]->fid, 0), 0);
}

static int enable_tx(struct faults_world *w)
{
	return kfi_enable(w->sep.tx[2]);
}

static void rx_fresh(struct kunit *test, struct faults_world *w)
{
	KUNIT_ASSERT_EQ(test, kfi_close(&w->sep.rx[2]->fid), 0);
	KUNIT_ASSERT_EQ(test, kfi_rx_context(w->sep.ep, 2, NULL, &w->sep.rx[2], NULL), 0);
	KUNIT_ASSERT_EQ(test, kfi_ep_bind(w->sep.rx[2], &w->sep.rx_cq[2]->fid, 0), 0);
}

static int enable_rx(struct faults_world *w)
{
	return kfi_enable(w->sep.rx[2]);
}

/* It is closed when it is replaced. */
static void stays(struct kunit *test, struct faults_world *w) {}

static void endpoint_open(struct kunit *test, struct faults_world *w)
{
	struct kfid_ep *ep;

	KUNIT_ASSERT_EQ(test, kfi_endpoint(w->f.domain, w->shared, &ep, NULL), 0);
	w->made = &ep->fid;
}

static int bind_stx(struct faults_world *w)
{
	return kfi_ep_bind(container_of(w->made, struct kfid_ep, fid), &w->stx->fid, 0);
}

static int bind_srx(struct faults_world *w)
{
	return kfi_ep_bind(container_of(w->made, struct kfid_ep, fid), &w->srx->fid, 0);
}

/* A second member, beside the one that is enabled. */
static void second_open(struct kunit *test, struct faults_world *w)
{
	struct kfid_ep *ep;

	endpoint_open(test, w);
	ep = container_of(w->made, struct kfid_ep, fid);
	KUNIT_ASSERT_EQ(test, bind_stx(w), 0);
	KUNIT_ASSERT_EQ(test, bind_srx(w), 0);
	KUNIT_ASSERT_EQ(test, kfi_ep_bind(ep, &w->member.av->fid, 0), 0);
	KUNIT_ASSERT_EQ(test, kfi_ep_bind(ep, &w->member.cq->fid, KFI_TRANSMIT | KFI_RECV), 0);
}

/* Calls that post. */

static int post_shared(struct faults_world *w)
{
	return kfi_recv(w->srx, w->page, LENGTH, NULL, ANY, w);
}

static int post_shared_tagged(struct faults_world *w)
{
	return kfi_trecv(w->srx, w->page, LENGTH, NULL, ANY, TAG, 0, w);
}

static int post_shared_under_a_lock(struct faults_world *w)
{
	static DEFINE_SPINLOCK(lock);
	int ret;

	spin_lock(&lock);
	ret = kfi_recv(w->srx, w->page, LENGTH, NULL, ANY, w);
	spin_unlock(&lock);
	return ret;
}

/* The receive takes a message. */
static void message_comes(struct kunit *test, struct faults_world *w)
{
	KUNIT_EXPECT_EQ(test, kfi_inject(w->sender.ep, w->page, 8, w->to_member), 0);
	completed(test, &w->member, w, RECEIVED, 8);
}

static void tagged_message_comes(struct kunit *test, struct faults_world *w)
{
	KUNIT_EXPECT_EQ(test, kfi_tinject(w->sender.ep, w->page, 8, w->to_member, TAG), 0);
	completed(test, &w->member, w, KFI_TAGGED | KFI_RECV, 8);
}

static int post_at_context(struct faults_world *w)
{
	return kfi_recv(w->sep.rx[1], w->page, LENGTH, NULL, ANY, w);
}

static void context_receives(struct kunit *test, struct faults_world *w)
{
	KUNIT_EXPECT_EQ(test, kfi_inject(w->sep.tx[0], w->page, 8, w->self), 0);
	next_of(test, w->sep.rx_cq[1], w, RECEIVED);
}

static void context_waits(struct kunit *test, struct faults_world *w)
{
	KUNIT_ASSERT_EQ(test, post_at_context(w), 0);
}

static int send_from_context(struct faults_world *w)
{
	return kfi_send(w->sep.tx[1], w->page, LENGTH, NULL, w->self, w);
}

static void context_has_sent(struct kunit *test, struct faults_world *w)
{
	next_of(test, w->sep.rx_cq[1], w, RECEIVED);
	next_of(test, w->sep.tx_cq[1], w, SENT);
}

static void tagged_receive(struct kunit *test, struct faults_world *w)
{
	KUNIT_ASSERT_EQ(test, kfi_trecv(w->sender.ep, w->page, LENGTH, NULL, ANY, TAG, 0, w), 0);
}

static struct kfi_msg_rma access_of(struct faults_world *w)
{
	return (struct kfi_msg_rma) {
		.type = KFI_KVEC, .msg_iov = &w->iov, .iov_count = 1, .addr = w->to_self,
		.rma_iov = &w->remote, .rma_iov_count = 1, .context = w,
	};
}

static int tagged_write(struct faults_world *w)
{
	struct kfi_msg_rma msg = access_of(w);

	return kfi_writemsg(w->sender.ep, &msg, KFI_TAGGED | KFI_COMPLETION);
}

static int tagged_read(struct faults_world *w)
{
	struct kfi_msg_rma msg = access_of(w);

	return kfi_readmsg(w->sender.ep, &msg, KFI_TAGGED | KFI_COMPLETION);
}

/* Both ends complete, in either order. */
static void accessed(struct kunit *test, struct faults_world *w)
{
	struct kfi_cq_tagged_entry entry;
	u64 flags = 0;
	int i;

	for (i = 0; i < 2; i++) {
		KUNIT_ASSERT_EQ(test, kfi_cq_sread(w->sender.cq, &entry, 1, NULL, LONG), 1);
		flags ^= entry.flags;
	}
	KUNIT_EXPECT_EQ(test, flags, KFI_SEND | KFI_RECV);
}

static void making(struct kunit *test)
{
	static const struct faults_call calls[] = {
		{ "kfi_scalable_ep", NULL, scalable_ep, close_made },
		{ "kfi_tx_context", NULL, tx_context, close_made },
		{ "kfi_rx_context", NULL, rx_context, close_made },
		{ "kfi_stx_context", NULL, stx_context, close_made },
		{ "kfi_srx_context", NULL, srx_context, close_made },
		{ "kfi_ep_alias of a context", NULL, alias_of_context, close_made },
		{ "kfi_ep_alias of a shared context", NULL, alias_of_shared, close_made },
		{ "kfi_mr_reg with an event", NULL, mr_reg, close_registered },
	};

	sweep(test, calls, ARRAY_SIZE(calls));
}

static void changing(struct kunit *test)
{
	static const struct faults_call calls[] = {
		{ "kfi_enable of a scalable endpoint", bare_open, enable_bare, close_made },
		{ "kfi_enable of a transmit context", tx_fresh, enable_tx, stays },
		{ "kfi_enable of a receive context", rx_fresh, enable_rx, stays },
		{ "kfi_ep_bind of a transmit context", endpoint_open, bind_stx, close_made },
		{ "kfi_ep_bind of a receive context", endpoint_open, bind_srx, close_made },
		{ "kfi_enable with shared contexts", second_open, enable_bare, close_made },
	};

	sweep(test, calls, ARRAY_SIZE(calls));
}

static void posting(struct kunit *test)
{
	static const struct faults_call calls[] = {
		{ "kfi_recv, shared", NULL, post_shared, message_comes },
		{ "kfi_trecv, shared", NULL, post_shared_tagged, tagged_message_comes },
		{ "kfi_recv, shared, under a lock", NULL, post_shared_under_a_lock,
		  message_comes },
		{ "kfi_recv of a context", NULL, post_at_context, context_receives },
		{ "kfi_send of a context", context_waits, send_from_context, context_has_sent },
		{ "kfi_writemsg, tagged", tagged_receive, tagged_write, accessed },
		{ "kfi_readmsg, tagged", tagged_receive, tagged_read, accessed },
	};

	sweep(test, calls, ARRAY_SIZE(calls));
}

CONSUMER("failing allocations of contexts and tagged RMA",
	 KUNIT_CASE_SLOW(making),
	 KUNIT_CASE_SLOW(changing),
	 KUNIT_CASE_SLOW(posting));
