/* SPDX-License-Identifier: GPL-2.0 */
/*
 * Two endpoints of one domain that know each other's addresses.
 */
#ifndef _CONSUMER_PAIR_H
#define _CONSUMER_PAIR_H

#include <linux/in.h>

#include <kfi/kfi_cm.h>
#include <kfi/kfi_tagged.h>

#include "fixture.h"

/**
 * struct end - an endpoint and what is bound to it
 * @ep: the endpoint
 * @av: its address vector, with the peer only
 * @peer: the other end in it
 * @cq: completions of both sides, in the format KFI_CQ_FORMAT_TAGGED
 * @sent: counts its transmits
 * @received: counts its receives
 */
struct end {
	struct kfid_ep		*ep;
	struct kfid_av		*av;
	kfi_addr_t		peer;
	struct kfid_cq		*cq;
	struct kfid_cntr	*sent;
	struct kfid_cntr	*received;
};

/*
 * An entry for endpoints of a type with capabilities; 0: the usual ones. The
 * test ends if there is none.
 */
static inline struct kfi_info *entry_with(struct kunit *test, enum kfi_ep_type type, u64 caps)
{
	struct kfi_info *hints = kfi_allocinfo(), *info = NULL;

	KUNIT_ASSERT_NOT_NULL(test, hints);
	hints->ep_attr->type = type;
	hints->caps = caps;
	hints->addr_format = KFI_SOCKADDR_IN;
	KUNIT_EXPECT_EQ(test, kfi_getinfo(0, NULL, NULL, 0, hints, &info), 0);
	kfi_freeinfo(hints);
	KUNIT_ASSERT_NOT_NULL(test, info);
	return info;
}

/* An entry for endpoints of a type. The test ends if there is none. */
static inline struct kfi_info *entry_of(struct kunit *test, enum kfi_ep_type type)
{
	return entry_with(test, type, 0);
}

/*
 * Opens an end and binds what it needs, the completion queue with @flags
 * besides the sides. The queue has the attributes, the handler and its context.
 * The test ends if that fails.
 */
static inline void end_open_with(struct kunit *test, struct fixture *f, struct kfi_info *info,
				 struct end *end, u64 flags, struct kfi_cq_attr *attr,
				 kfi_comp_handler handler, void *context)
{
	KUNIT_ASSERT_EQ(test, kfi_endpoint(f->domain, info, &end->ep, end), 0);
	KUNIT_ASSERT_EQ(test, kfi_av_open(f->domain, NULL, &end->av, NULL), 0);
	KUNIT_ASSERT_EQ(test, kfi_cq_open(f->domain, attr, &end->cq, handler, context), 0);
	end->sent = open_cntr(test, f, KFI_WAIT_UNSPEC, NULL, NULL);
	end->received = open_cntr(test, f, KFI_WAIT_UNSPEC, NULL, NULL);
	KUNIT_ASSERT_EQ(test, kfi_ep_bind(end->ep, &end->av->fid, 0), 0);
	flags |= KFI_TRANSMIT | KFI_RECV;
	KUNIT_ASSERT_EQ(test, kfi_ep_bind(end->ep, &end->cq->fid, flags), 0);
	KUNIT_ASSERT_EQ(test, kfi_ep_bind(end->ep, &end->sent->fid, KFI_SEND), 0);
	KUNIT_ASSERT_EQ(test, kfi_ep_bind(end->ep, &end->received->fid, KFI_RECV), 0);
}

/*
 * Opens an end and binds what it needs, the completion queue with @flags
 * besides the sides. The test ends if that fails.
 */
static inline void end_open(struct kunit *test, struct fixture *f, struct kfi_info *info,
			    struct end *end, u64 flags)
{
	struct kfi_cq_attr attr = {
		.format = KFI_CQ_FORMAT_TAGGED,
		.wait_obj = KFI_WAIT_UNSPEC,
	};

	end_open_with(test, f, info, end, flags, &attr, NULL, NULL);
}

/* The same, and enables it. */
static inline void end_open_enabled(struct kunit *test, struct fixture *f, struct kfi_info *info,
				    struct end *end)
{
	end_open(test, f, info, end, 0);
	KUNIT_ASSERT_EQ(test, kfi_enable(end->ep), 0);
}

/* Closes an end. */
static inline void end_close(struct kunit *test, struct end *end)
{
	CLOSE(test, &end->ep->fid, &end->av->fid, &end->cq->fid, &end->sent->fid,
	      &end->received->fid);
}

/* Waits until a count is at least @wanted, for LONG ms at most. Returns the count. */
static inline int reach(atomic_t *count, int wanted)
{
	int i;

	for (i = 0; i < LONG / 20 && atomic_read(count) < wanted; i++)
		msleep(20);
	return atomic_read(count);
}

/* Lets an end know the address of another one. Both are enabled. */
static inline void end_knows(struct kunit *test, struct end *end, const struct end *other)
{
	struct sockaddr_in addr;
	size_t len = sizeof(addr);

	KUNIT_ASSERT_EQ(test, kfi_getname(&other->ep->fid, &addr, &len), 0);
	KUNIT_ASSERT_EQ(test, kfi_av_insert(end->av, &addr, 1, &end->peer, 0, NULL), 1);
}

/* Opens two ends of an entry, which know each other, and frees it. @flags: see end_open(). */
static inline void pair_open_from(struct kunit *test, struct fixture *f, struct kfi_info *info,
				  struct end *ends, u64 flags)
{
	int i;

	fixture_open(test, f);
	for (i = 0; i < 2; i++) {
		end_open(test, f, info, &ends[i], flags);
		KUNIT_ASSERT_EQ(test, kfi_enable(ends[i].ep), 0);
	}
	kfi_freeinfo(info);
	for (i = 0; i < 2; i++)
		end_knows(test, &ends[i], &ends[!i]);
}

/* Opens two ends of a type, which know each other. */
static inline void pair_open(struct kunit *test, struct fixture *f, enum kfi_ep_type type,
			     struct end *ends)
{
	pair_open_from(test, f, entry_of(test, type), ends, 0);
}

/* Closes them. */
static inline void pair_close(struct kunit *test, struct fixture *f, struct end *ends)
{
	end_close(test, &ends[0]);
	end_close(test, &ends[1]);
	fixture_close(test, f);
}

/*
 * Takes up to @count completions of an end, until none comes for @timeout ms.
 * Returns the number that is missing, or an error.
 */
static inline int take_completions(struct end *end, int count, int timeout)
{
	struct kfi_cq_tagged_entry entry;
	ssize_t ret;

	for (; count; count--) {
		ret = kfi_cq_sread(end->cq, &entry, 1, NULL, timeout);
		if (ret == -KFI_EAGAIN)
			break;
		if (ret != 1)
			return ret ?: -EIO;
	}
	return count;
}

/* Waits for so many completions of an end. */
static inline int await_completions(struct end *end, int count)
{
	int ret = take_completions(end, count, LONG);

	return ret > 0 ? -KFI_ETIMEDOUT : ret;
}

/* Waits for the next completion of an end, and compares it. */
static inline struct kfi_cq_tagged_entry completed(struct kunit *test, struct end *end,
						   void *context, u64 flags, size_t len)
{
	struct kfi_cq_tagged_entry entry = {};

	KUNIT_ASSERT_EQ(test, kfi_cq_sread(end->cq, &entry, 1, NULL, LONG), 1);
	KUNIT_EXPECT_PTR_EQ(test, entry.op_context, context);
	KUNIT_EXPECT_EQ(test, entry.flags, flags);
	if (flags & KFI_RECV)
		KUNIT_EXPECT_EQ(test, entry.len, len);
	return entry;
}

/* Waits for the next completion of an end, which is an error. */
static inline struct kfi_cq_err_entry failed(struct kunit *test, struct end *end, void *context,
					     int err)
{
	struct kfi_cq_tagged_entry none;
	struct kfi_cq_err_entry entry;

	KUNIT_ASSERT_EQ(test, kfi_cq_sread(end->cq, &none, 1, NULL, LONG), -KFI_EAVAIL);
	/* Every member is written. */
	memset(&entry, 0xff, sizeof(entry));
	entry.err_data_size = 0;
	KUNIT_ASSERT_EQ(test, kfi_cq_readerr(end->cq, &entry, 0), 1);
	KUNIT_EXPECT_NULL(test, entry.err_data);
	KUNIT_EXPECT_EQ(test, entry.err_data_size, 0);
	KUNIT_EXPECT_PTR_EQ(test, entry.op_context, context);
	KUNIT_EXPECT_EQ(test, entry.err, err);
	return entry;
}

/* There is no completion of an end. */
static inline void nothing(struct kunit *test, struct end *end)
{
	struct kfi_cq_tagged_entry none;

	KUNIT_EXPECT_EQ(test, kfi_cq_read(end->cq, &none, 1), -KFI_EAGAIN);
}

#endif /* _CONSUMER_PAIR_H */
