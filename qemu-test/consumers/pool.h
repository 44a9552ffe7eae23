/* SPDX-License-Identifier: GPL-2.0 */
/*
 * A pool: a shared receive context and endpoints that use it, and an endpoint
 * of its own that sends to them.
 */
#ifndef _CONSUMER_POOL_H
#define _CONSUMER_POOL_H

#include "pair.h"

#define MEMBERS		3
/* Receives of any source. */
#define ANY		KFI_ADDR_UNSPEC

/**
 * struct member - an endpoint that uses the shared receive context
 * @ep: the endpoint
 * @received: counts its receives
 * @addr: the member in the address vector of the sender
 */
struct member {
	struct kfid_ep		*ep;
	struct kfid_cntr	*received;
	kfi_addr_t		addr;
};

/**
 * struct pool - the context, its endpoints and what they have in common
 * @f: the domain
 * @info: an entry for the members
 * @srx: the shared receive context
 * @all: the end of all members: address vector, completion queue; its @ep is
 *	the context
 * @members: the endpoints
 * @sender: sends to the members
 */
struct pool {
	struct fixture		f;
	struct kfi_info		*info;
	struct kfid_ep		*srx;
	struct end		all;
	struct member		members[MEMBERS];
	struct end		sender;
};

/* Opens a member and binds what it needs. It is not enabled. */
static inline void member_open(struct kunit *test, struct pool *pool, struct member *member)
{
	KUNIT_ASSERT_EQ(test, kfi_endpoint(pool->f.domain, pool->info, &member->ep, member), 0);
	member->received = open_cntr(test, &pool->f, KFI_WAIT_UNSPEC, NULL, NULL);
	KUNIT_ASSERT_EQ(test, kfi_ep_bind(member->ep, &pool->srx->fid, 0), 0);
	KUNIT_ASSERT_EQ(test, kfi_ep_bind(member->ep, &pool->all.av->fid, 0), 0);
	KUNIT_ASSERT_EQ(test, kfi_ep_bind(member->ep, &pool->all.cq->fid,
					  KFI_TRANSMIT | KFI_RECV), 0);
	KUNIT_ASSERT_EQ(test, kfi_ep_bind(member->ep, &member->received->fid, KFI_RECV), 0);
}

/* Enables a member and lets the sender know its address. */
static inline void member_enable(struct kunit *test, struct pool *pool, struct member *member)
{
	struct sockaddr_in addr;
	size_t len = sizeof(addr);

	KUNIT_ASSERT_EQ(test, kfi_enable(member->ep), 0);
	KUNIT_ASSERT_EQ(test, kfi_getname(&member->ep->fid, &addr, &len), 0);
	KUNIT_ASSERT_EQ(test, kfi_av_insert(pool->sender.av, &addr, 1, &member->addr, 0, NULL), 1);
}

static inline void member_close(struct kunit *test, struct member *member)
{
	CLOSE(test, &member->ep->fid, &member->received->fid);
}

/*
 * Opens a pool without members, with a completion queue of @entries, a context
 * with @attr, and a sender of @type.
 */
static inline void pool_open(struct kunit *test, struct pool *pool, enum kfi_ep_type type,
			     struct kfi_rx_attr *attr, size_t entries)
{
	struct kfi_cq_attr cq = {
		.format = KFI_CQ_FORMAT_TAGGED,
		.wait_obj = KFI_WAIT_UNSPEC,
		.size = entries,
	};

	fixture_open(test, &pool->f);
	pool->info = entry_of(test, type);
	end_open_enabled(test, &pool->f, pool->info, &pool->sender);
	pool->info->ep_attr->rx_ctx_cnt = KFI_SHARED_CONTEXT;
	KUNIT_ASSERT_EQ(test, kfi_srx_context(pool->f.domain, attr, &pool->srx, pool), 0);
	pool->all.ep = pool->srx;
	KUNIT_ASSERT_EQ(test, kfi_av_open(pool->f.domain, NULL, &pool->all.av, NULL), 0);
	KUNIT_ASSERT_EQ(test, kfi_cq_open(pool->f.domain, &cq, &pool->all.cq, NULL, NULL), 0);
}

/* Closes a pool whose members are closed. */
static inline void pool_close(struct kunit *test, struct pool *pool)
{
	CLOSE(test, &pool->all.cq->fid, &pool->all.av->fid, &pool->srx->fid);
	end_close(test, &pool->sender);
	kfi_freeinfo(pool->info);
	fixture_close(test, &pool->f);
}

/* A pool whose members are enabled. */
static inline void pool_open_whole(struct kunit *test, struct pool *pool)
{
	int i;

	pool_open(test, pool, KFI_EP_RDM, NULL, 0);
	for (i = 0; i < MEMBERS; i++) {
		member_open(test, pool, &pool->members[i]);
		member_enable(test, pool, &pool->members[i]);
	}
}

static inline void pool_close_whole(struct kunit *test, struct pool *pool)
{
	int i;

	for (i = 0; i < MEMBERS; i++)
		member_close(test, &pool->members[i]);
	pool_close(test, pool);
}

#endif /* _CONSUMER_POOL_H */
