/* SPDX-License-Identifier: GPL-2.0 */
/*
 * Scalable endpoints with contexts, each with a completion queue of its own.
 */
#ifndef _CONSUMER_SEP_H
#define _CONSUMER_SEP_H

#include "pair.h"

/* Contexts of each side, and the bits of an address that select one. */
#define CONTEXTS	3
#define BITS		8

/* What a context's completions say. */
#define SENT		(KFI_MSG | KFI_SEND)
#define RECEIVED	(KFI_MSG | KFI_RECV)

/**
 * struct sep - a scalable endpoint and what is bound to it
 * @ep: the scalable endpoint
 * @tx: its transmit contexts
 * @rx: its receive contexts
 * @tx_cq: completions of each transmit context
 * @rx_cq: those of each receive context
 * @av: its address vector
 * @name: its name, when it is enabled
 */
struct sep {
	struct kfid_ep		*ep;
	struct kfid_ep		*tx[CONTEXTS];
	struct kfid_ep		*rx[CONTEXTS];
	struct kfid_cq		*tx_cq[CONTEXTS];
	struct kfid_cq		*rx_cq[CONTEXTS];
	struct kfid_av		*av;
	struct sockaddr_in	name;
};

/* An entry for scalable endpoints. The test ends if there is none. */
static inline struct kfi_info *sep_info(struct kunit *test, size_t contexts)
{
	struct kfi_info *hints = kfi_allocinfo(), *info = NULL;

	KUNIT_ASSERT_NOT_NULL(test, hints);
	hints->caps = KFI_MSG | KFI_TAGGED | KFI_RMA | KFI_ATOMIC | KFI_SOURCE |
		      KFI_NAMED_RX_CTX | KFI_DIRECTED_RECV | KFI_MULTI_RECV | KFI_REMOTE_COMM |
		      KFI_TRIGGER;
	hints->addr_format = KFI_SOCKADDR_IN;
	hints->ep_attr->tx_ctx_cnt = contexts;
	hints->ep_attr->rx_ctx_cnt = contexts;
	KUNIT_EXPECT_EQ(test, kfi_getinfo(0, NULL, NULL, KFI_SOURCE, hints, &info), 0);
	kfi_freeinfo(hints);
	KUNIT_ASSERT_NOT_NULL(test, info);
	return info;
}

/* An address vector whose addresses have BITS for contexts. */
static inline struct kfid_av *sep_av(struct kunit *test, struct fixture *f)
{
	struct kfi_av_attr attr = { .rx_ctx_bits = BITS };
	struct kfid_av *av;

	KUNIT_ASSERT_EQ(test, kfi_av_open(f->domain, &attr, &av, NULL), 0);
	return av;
}

/* Opens a scalable endpoint with all of its contexts, enabled. @port: 0 is any. */
static inline void sep_open_at(struct kunit *test, struct fixture *f, struct sep *s, int port)
{
	struct kfi_cq_attr attr = {
		.format = KFI_CQ_FORMAT_TAGGED,
		.wait_obj = KFI_WAIT_UNSPEC,
	};
	struct kfi_info *info = sep_info(test, CONTEXTS);
	size_t len = sizeof(s->name);
	int i;

	((struct sockaddr_in *)info->src_addr)->sin_port = htons(port);
	KUNIT_ASSERT_EQ(test, kfi_scalable_ep(f->domain, info, &s->ep, s), 0);
	kfi_freeinfo(info);
	s->av = sep_av(test, f);
	KUNIT_ASSERT_EQ(test, kfi_scalable_ep_bind(s->ep, &s->av->fid, 0), 0);
	KUNIT_ASSERT_EQ(test, kfi_enable(s->ep), 0);
	KUNIT_ASSERT_EQ(test, kfi_getname(&s->ep->fid, &s->name, &len), 0);
	for (i = 0; i < CONTEXTS; i++) {
		KUNIT_ASSERT_EQ(test, kfi_cq_open(f->domain, &attr, &s->tx_cq[i], NULL, NULL), 0);
		KUNIT_ASSERT_EQ(test, kfi_cq_open(f->domain, &attr, &s->rx_cq[i], NULL, NULL), 0);
		KUNIT_ASSERT_EQ(test, kfi_tx_context(s->ep, i, NULL, &s->tx[i], s), 0);
		KUNIT_ASSERT_EQ(test, kfi_rx_context(s->ep, i, NULL, &s->rx[i], s), 0);
		KUNIT_ASSERT_EQ(test, kfi_ep_bind(s->tx[i], &s->tx_cq[i]->fid, 0), 0);
		KUNIT_ASSERT_EQ(test, kfi_ep_bind(s->rx[i], &s->rx_cq[i]->fid, KFI_RECV), 0);
		KUNIT_ASSERT_EQ(test, kfi_enable(s->rx[i]), 0);
		KUNIT_ASSERT_EQ(test, kfi_enable(s->tx[i]), 0);
	}
}

/* Opens a scalable endpoint with all of its contexts, enabled. */
static inline void sep_open(struct kunit *test, struct fixture *f, struct sep *s)
{
	sep_open_at(test, f, s, 0);
}

/* Closes it, and its contexts. */
static inline void sep_close(struct kunit *test, struct sep *s)
{
	int i;

	for (i = 0; i < CONTEXTS; i++)
		CLOSE(test, &s->tx[i]->fid, &s->rx[i]->fid, &s->tx_cq[i]->fid, &s->rx_cq[i]->fid);
	CLOSE(test, &s->ep->fid, &s->av->fid);
}

/* The address of @other for @s. */
static inline kfi_addr_t sep_knows(struct kunit *test, struct sep *s, const struct sep *other)
{
	kfi_addr_t addr;

	KUNIT_ASSERT_EQ(test, kfi_av_insert(s->av, &other->name, 1, &addr, 0, NULL), 1);
	return addr;
}

/* Waits for the next completion of a context. */
static inline struct kfi_cq_tagged_entry next_of(struct kunit *test, struct kfid_cq *cq,
						 void *context, u64 flags)
{
	struct kfi_cq_tagged_entry entry = {};

	KUNIT_ASSERT_EQ(test, kfi_cq_sread(cq, &entry, 1, NULL, LONG), 1);
	KUNIT_EXPECT_PTR_EQ(test, entry.op_context, context);
	KUNIT_EXPECT_EQ(test, entry.flags, flags);
	return entry;
}

#endif /* _CONSUMER_SEP_H */
