// SPDX-License-Identifier: GPL-2.0
/*
 * Atomics: every form, what an endpoint has, and posts under a spin lock.
 */

#include <linux/spinlock.h>

#include <kfi/kfi_atomic.h>

#include "pair.h"

#define CHANGED	(KFI_ATOMIC | KFI_WRITE)
#define FETCHED	(KFI_ATOMIC | KFI_READ)
#define KEY	7

/**
 * struct target - two endpoints, and a region of the second for the first
 * @f: their domain
 * @ends: the endpoints
 * @mr: the region: all of @there
 * @there: values of the second
 * @operand: values of the first
 * @compare: values of the first
 * @result: values of the first
 */
struct target {
	struct fixture	f;
	struct end	ends[2];
	struct kfid_mr	*mr;
	u64		there[4];
	u64		operand[4];
	u64		compare[4];
	u64		result[4];
};

static struct target *target_open(struct kunit *test)
{
	struct target *t = zeroed(test, sizeof(*t));
	int i;

	pair_open(test, &t->f, KFI_EP_RDM, t->ends);
	KUNIT_ASSERT_EQ(test, kfi_mr_reg(t->f.domain, t->there, sizeof(t->there),
					 KFI_REMOTE_READ | KFI_REMOTE_WRITE, 0, KEY, 0, &t->mr,
					 NULL), 0);
	for (i = 0; i < 4; i++) {
		t->there[i] = 10 * (i + 1);
		t->operand[i] = i + 1;
		t->compare[i] = 10 * (i + 1);
	}
	return t;
}

static void target_close(struct kunit *test, struct target *t)
{
	KUNIT_EXPECT_EQ(test, kfi_close(&t->mr->fid), 0);
	pair_close(test, &t->f, t->ends);
}

static void values_are(struct kunit *test, const u64 *values, u64 a, u64 b, u64 c, u64 d)
{
	u64 wanted[] = { a, b, c, d };

	KUNIT_EXPECT_MEMEQ(test, values, wanted, sizeof(wanted));
}

/* An operation was accepted, and completes. */
#define COMPLETES(call, flags) do { \
	KUNIT_EXPECT_EQ(test, call, 0); \
	completed(test, &t->ends[0], t, flags, 0); \
} while (0)

static void values_are_changed(struct kunit *test)
{
	struct target *t = target_open(test);
	struct kfid_ep *ep = t->ends[0].ep;
	kfi_addr_t peer = t->ends[0].peer;

	COMPLETES(kfi_atomic(ep, t->operand, 4, NULL, peer, 0, KEY, KFI_UINT64, KFI_SUM, t),
		  CHANGED);
	values_are(test, t->there, 11, 22, 33, 44);
	COMPLETES(kfi_fetch_atomic(ep, t->operand, 2, NULL, t->result, NULL, peer, 16, KEY,
				   KFI_UINT64, KFI_ATOMIC_WRITE, t), FETCHED);
	values_are(test, t->there, 11, 22, 1, 2);
	values_are(test, t->result, 33, 44, 0, 0);
	/* A read has no operands. */
	COMPLETES(kfi_fetch_atomic(ep, NULL, 4, NULL, t->result, NULL, peer, 0, KEY, KFI_UINT64,
				   KFI_ATOMIC_READ, t), FETCHED);
	values_are(test, t->result, 11, 22, 1, 2);
	t->compare[0] = 11;
	COMPLETES(kfi_compare_atomic(ep, t->operand, 2, NULL, t->compare, NULL, t->result, NULL,
				     peer, 0, KEY, KFI_UINT64, KFI_CSWAP, t), FETCHED);
	/* The first is what was expected, the second is not. */
	values_are(test, t->there, 1, 22, 1, 2);
	values_are(test, t->result, 11, 22, 1, 2);
	/* Injected operands are copied. */
	t->operand[0] = 100;
	KUNIT_EXPECT_EQ(test, kfi_inject_atomic(ep, t->operand, 1, peer, 0, KEY, KFI_UINT64,
						KFI_SUM), 0);
	t->operand[0] = 0;
	COMPLETES(kfi_fetch_atomic(ep, NULL, 1, NULL, t->result, NULL, peer, 0, KEY, KFI_UINT64,
				   KFI_ATOMIC_READ, t), FETCHED);
	KUNIT_EXPECT_EQ(test, t->result[0], 101);
	nothing(test, &t->ends[0]);
	target_close(test, t);
}

static void lists_are_gathered_and_scattered(struct kunit *test)
{
	struct target *t = target_open(test);
	struct kfid_ep *ep = t->ends[0].ep;
	kfi_addr_t peer = t->ends[0].peer;
	/* Values 0 and 2, 1 and 3. */
	struct kfi_ioc operand[] = { { &t->operand[0], 1 }, { &t->operand[2], 1 } };
	struct kfi_ioc compare[] = { { &t->compare[0], 1 }, { &t->compare[2], 1 } };
	struct kfi_ioc result[] = { { &t->result[1], 1 }, { &t->result[3], 1 } };
	struct kfi_rma_ioc remote[] = {
		{ .addr = 0, .count = 1, .key = KEY },
		{ .addr = 16, .count = 1, .key = KEY },
	};
	struct kfi_msg_atomic msg = {
		.msg_iov = operand,
		.iov_count = 2,
		.addr = peer,
		.rma_iov = remote,
		.rma_iov_count = 2,
		.datatype = KFI_UINT64,
		.op = KFI_SUM,
		.context = t,
		.data = 77,
	};
	struct kfi_cq_tagged_entry entry;

	COMPLETES(kfi_atomicv(ep, operand, NULL, 2, peer, 0, KEY, KFI_UINT64, KFI_SUM, t),
		  CHANGED);
	values_are(test, t->there, 11, 23, 30, 40);
	COMPLETES(kfi_fetch_atomicv(ep, operand, NULL, 2, result, NULL, 2, peer, 16, KEY,
				    KFI_UINT64, KFI_SUM, t), FETCHED);
	values_are(test, t->there, 11, 23, 31, 43);
	values_are(test, t->result, 0, 30, 0, 40);
	COMPLETES(kfi_compare_atomicv(ep, operand, NULL, 2, compare, NULL, 2, result, NULL, 2,
				      peer, 0, KEY, KFI_UINT64, KFI_CSWAP_LE, t), FETCHED);
	/* 10 <= 11, and 30 is more than 23. */
	values_are(test, t->there, 1, 23, 31, 43);
	values_are(test, t->result, 0, 11, 0, 23);
	COMPLETES(kfi_atomicmsg(ep, &msg, KFI_COMPLETION | KFI_REMOTE_CQ_DATA), CHANGED);
	values_are(test, t->there, 2, 23, 34, 43);
	entry = completed(test, &t->ends[1], NULL,
			  KFI_ATOMIC | KFI_REMOTE_WRITE | KFI_REMOTE_CQ_DATA, 0);
	KUNIT_EXPECT_EQ(test, entry.data, 77);
	COMPLETES(kfi_fetch_atomicmsg(ep, &msg, result, NULL, 2, KFI_COMPLETION), FETCHED);
	values_are(test, t->there, 3, 23, 37, 43);
	values_are(test, t->result, 0, 2, 0, 34);
	msg.op = KFI_MSWAP;
	COMPLETES(kfi_compare_atomicmsg(ep, &msg, compare, NULL, 2, result, NULL, 2,
					KFI_COMPLETION), FETCHED);
	/* The operand gives the bits that the compare value has: 10 in 3, and 30 in 37. */
	values_are(test, t->there, 1, 23, 35, 43);
	values_are(test, t->result, 0, 3, 0, 37);
	nothing(test, &t->ends[0]);
	target_close(test, t);
}

static void an_endpoint_tells_its_atomics(struct kunit *test)
{
	struct target *t = target_open(test);
	struct kfid_ep *ep = t->ends[0].ep;
	struct kfi_atomic_attr attr;
	size_t count = 0;

	memset(&attr, 0xff, sizeof(attr));
	KUNIT_EXPECT_EQ(test, kfi_atomicvalid(ep, KFI_UINT64, KFI_SUM, &count), 0);
	KUNIT_EXPECT_EQ(test, kfi_query_atomic(t->f.domain, KFI_UINT64, KFI_SUM, &attr, 0), 0);
	KUNIT_EXPECT_EQ(test, count, attr.count);
	KUNIT_EXPECT_EQ(test, attr.size, sizeof(u64));
	KUNIT_EXPECT_EQ(test, kfi_fetch_atomicvalid(ep, KFI_UINT8, KFI_ATOMIC_READ, &count), 0);
	KUNIT_EXPECT_EQ(test, kfi_compare_atomicvalid(ep, KFI_INT32, KFI_CSWAP, &count), 0);
	count = 5;
	KUNIT_EXPECT_EQ(test, kfi_atomicvalid(ep, KFI_UINT64, KFI_ATOMIC_READ, &count),
			-KFI_EOPNOTSUPP);
	KUNIT_EXPECT_EQ(test, kfi_fetch_atomicvalid(ep, KFI_UINT64, KFI_CSWAP, &count),
			-KFI_EOPNOTSUPP);
	KUNIT_EXPECT_EQ(test, kfi_compare_atomicvalid(ep, KFI_UINT64, KFI_SUM, &count),
			-KFI_EOPNOTSUPP);
	KUNIT_EXPECT_EQ(test, kfi_atomicvalid(ep, KFI_DATATYPE_LAST, KFI_SUM, &count),
			-KFI_EINVAL);
	KUNIT_EXPECT_EQ(test, kfi_atomicvalid(ep, KFI_UINT64, KFI_ATOMIC_OP_LAST, &count),
			-KFI_EINVAL);
	KUNIT_EXPECT_EQ(test, kfi_atomicvalid(ep, KFI_UINT64, KFI_SUM, NULL), -KFI_EINVAL);
	KUNIT_EXPECT_EQ(test, count, 5);
	target_close(test, t);
}

static void arguments_are_checked(struct kunit *test)
{
	struct target *t = target_open(test);
	struct kfid_ep *ep = t->ends[0].ep;
	kfi_addr_t peer = t->ends[0].peer;
	struct kfi_ioc list = { t->operand, 1 };
	struct kfi_rma_ioc remote = { .count = 2, .key = KEY };
	struct kfi_msg_atomic msg = {
		.msg_iov = &list,
		.iov_count = 1,
		.addr = peer,
		.rma_iov = &remote,
		.rma_iov_count = 1,
		.datatype = KFI_UINT64,
		.op = KFI_SUM,
	};
	size_t most = 0;

#define REFUSED(error, call) KUNIT_EXPECT_EQ(test, call, error)
#define SUM_OF(buf, count, addr, datatype, op) \
	kfi_atomic(ep, buf, count, NULL, peer, addr, KEY, datatype, op, t)
	REFUSED(-KFI_EOPNOTSUPP, SUM_OF(t->operand, 1, 0, KFI_UINT64, KFI_CSWAP));
	REFUSED(-KFI_EINVAL, SUM_OF(t->operand, 1, 0, KFI_DATATYPE_LAST, KFI_SUM));
	REFUSED(-KFI_EINVAL, SUM_OF(t->operand, 0, 0, KFI_UINT64, KFI_SUM));
	REFUSED(-KFI_EINVAL, SUM_OF(t->operand, SIZE_MAX, 0, KFI_UINT64, KFI_SUM));
	REFUSED(-KFI_EINVAL, SUM_OF(t->operand, 1, 4, KFI_UINT64, KFI_SUM));
	/* A few operands are copied, and must be there. */
	REFUSED(-EFAULT, SUM_OF(NULL, 1, 0, KFI_UINT64, KFI_SUM));
	KUNIT_EXPECT_EQ(test, kfi_atomicvalid(ep, KFI_UINT64, KFI_SUM, &most), 0);
	REFUSED(-KFI_EMSGSIZE, SUM_OF(t->operand, most + 1, 0, KFI_UINT64, KFI_SUM));
	REFUSED(-KFI_EINVAL, kfi_atomicmsg(ep, NULL, 0));
	/* One operand, two remote values. */
	REFUSED(-KFI_EINVAL, kfi_atomicmsg(ep, &msg, 0));
	remote.count = 1;
	REFUSED(-KFI_EINVAL, kfi_atomicmsg(ep, &msg, KFI_RECV));
	REFUSED(-KFI_EINVAL, kfi_fetch_atomicmsg(ep, &msg, NULL, NULL, 1, 0));
	REFUSED(-KFI_EINVAL, kfi_fetch_atomicmsg(ep, &msg, &list, NULL, 0, 0));
	REFUSED(-KFI_E2BIG, kfi_fetch_atomicmsg(ep, &msg, &list, NULL, 257, 0));
	REFUSED(-KFI_EOPNOTSUPP, kfi_compare_atomicmsg(ep, &msg, &list, NULL, 1, &list, NULL, 1,
						       0));
	msg.op = KFI_CSWAP;
	REFUSED(-KFI_EINVAL, kfi_compare_atomicmsg(ep, &msg, NULL, NULL, 1, &list, NULL, 1, 0));
	msg.op = KFI_SUM;
	remote.count = SIZE_MAX / 4;
	REFUSED(-KFI_EINVAL, kfi_atomicmsg(ep, &msg, 0));
	values_are(test, t->there, 10, 20, 30, 40);
	nothing(test, &t->ends[0]);
	target_close(test, t);
}

/* The lists are converted where the caller may not sleep. */
static void posts_need_not_sleep(struct kunit *test)
{
	struct target *t = target_open(test);
	struct kfid_ep *ep = t->ends[0].ep;
	kfi_addr_t peer = t->ends[0].peer;
	struct kfi_ioc operand[] = { { &t->operand[0], 1 }, { &t->operand[2], 1 } };
	struct kfi_ioc result[] = { { &t->result[1], 1 }, { &t->result[3], 1 } };
	static DEFINE_SPINLOCK(lock);
	unsigned long flags;
	ssize_t first, second, refused;

	spin_lock_irqsave(&lock, flags);
	first = kfi_atomic(ep, t->operand, 4, NULL, peer, 0, KEY, KFI_UINT64, KFI_SUM, t);
	second = kfi_fetch_atomicv(ep, operand, NULL, 2, result, NULL, 2, peer, 16, KEY,
				   KFI_UINT64, KFI_SUM, t);
	refused = kfi_fetch_atomicv(ep, operand, NULL, 2, result, NULL, 1, peer, 16, KEY,
				    KFI_UINT64, KFI_SUM, t);
	spin_unlock_irqrestore(&lock, flags);
	KUNIT_EXPECT_EQ(test, first, 0);
	KUNIT_EXPECT_EQ(test, second, 0);
	KUNIT_EXPECT_EQ(test, refused, -KFI_EINVAL);
	completed(test, &t->ends[0], t, CHANGED, 0);
	completed(test, &t->ends[0], t, FETCHED, 0);
	values_are(test, t->there, 11, 22, 34, 47);
	values_are(test, t->result, 0, 33, 0, 44);
	nothing(test, &t->ends[0]);
	target_close(test, t);
}

CONSUMER("atomics",
	 KUNIT_CASE(values_are_changed),
	 KUNIT_CASE(lists_are_gathered_and_scattered),
	 KUNIT_CASE(an_endpoint_tells_its_atomics),
	 KUNIT_CASE(arguments_are_checked),
	 KUNIT_CASE(posts_need_not_sleep));
