// SPDX-License-Identifier: GPL-2.0
/*
 * Regions of kernel memory that are closed while a peer on another host accesses
 * them: when the call has returned, the memory is the consumer's again.
 */

#include <kfi/kfi_atomic.h>
#include <kfi/kfi_rma.h>

#include "two_hosts.h"

#define KEY	7
/* Some packets. */
#define LEN	(3 * PAGE_SIZE)
#define ROUNDS	16
#define REMOTE	(KFI_REMOTE_READ | KFI_REMOTE_WRITE)

/**
 * struct accessor - a thread that writes, reads and changes the memory of the other host
 * @end: its endpoint
 * @mem: its memory, @LEN bytes
 * @regions: how many there have been; it begins again with each
 * @succeeded: accesses that have
 * @refused: accesses whose region was closed
 * @ended: regions whose end it has met; no access is outstanding then
 * @error: the first thing that went wrong
 * @stop: there are no more regions
 * @done: it has ended
 */
struct accessor {
	struct end		*end;
	u64			*mem;
	int			regions;
	atomic_t		succeeded;
	atomic_t		refused;
	atomic_t		ended;
	ssize_t			error;
	bool			stop;
	struct completion	done;
};

static ssize_t access(struct accessor *a, int kind)
{
	struct end *end = a->end;

	switch (kind) {
	case 0:
		return kfi_write(end->ep, a->mem, LEN, NULL, end->peer, 0, KEY, a);
	case 1:
		return kfi_read(end->ep, a->mem, LEN, NULL, end->peer, 0, KEY, a);
	default:
		return kfi_fetch_atomic(end->ep, a->mem, 1, NULL, a->mem + 1, NULL, end->peer,
					LEN - sizeof(u64), KEY, KFI_UINT64, KFI_SUM, a);
	}
}

/* Waits for the end of an access. */
static ssize_t accessed(struct accessor *a, bool *refused)
{
	struct kfi_cq_tagged_entry entry;
	struct kfi_cq_err_entry error = {};
	ssize_t ret = kfi_cq_sread(a->end->cq, &entry, 1, NULL, LONG);

	if (ret == 1) {
		atomic_inc(&a->succeeded);
		return 0;
	}
	if (ret != -KFI_EAVAIL)
		return ret ?: -EIO;
	ret = kfi_cq_readerr(a->end->cq, &error, 0);
	if (ret != 1)
		return ret < 0 ? ret : -EIO;
	*refused = true;
	/* The connection ends with a refused access, and with it the next access. */
	if (error.err == KFI_ECONNRESET)
		return 0;
	atomic_inc(&a->refused);
	return error.err == KFI_EACCES ? 0 : -EBADMSG;
}

/* Two accesses are outstanding at each time, until the region is closed. */
static ssize_t access_region(struct accessor *a, int *kind)
{
	bool refused = false;
	ssize_t error = access(a, ++*kind % 3);

	while (!error && !refused) {
		error = access(a, ++*kind % 3);
		error = error ?: accessed(a, &refused);
	}
	return error ?: accessed(a, &refused);
}

static int access_always(void *arg)
{
	struct accessor *a = arg;
	int kind = 0, region = 0;

	while (!a->error && !READ_ONCE(a->stop)) {
		/* Pairs with the release by the case: the region is there. */
		if (smp_load_acquire(&a->regions) == region) {
			usleep_range(50, 100);
			continue;
		}
		region++;
		a->error = access_region(a, &kind);
		atomic_inc(&a->ended);
	}
	complete(&a->done);
	return 0;
}

/* Few rounds: a user whose accesses are refused often has to wait. */
static void memory_is_the_consumers_after_a_close(struct kunit *test)
{
	struct accessor *a = zeroed(test, sizeof(*a));
	struct fixture f[HOSTS];
	struct end ends[HOSTS];
	struct kfid_mr *mr;
	int round, before;
	u8 *there;

	a->mem = zeroed(test, LEN);
	hosts_pair_open(test, f, KFI_EP_RDM, ends);
	a->end = &ends[0];
	init_completion(&a->done);
	KUNIT_ASSERT_NOT_ERR_OR_NULL(test, kthread_run(access_always, a, "hosts_mr"));
	for (round = 1; round <= ROUNDS; round++) {
		there = kzalloc(LEN, GFP_KERNEL);
		if (!there || kfi_mr_reg(f[1].domain, there, LEN, REMOTE, 0, KEY, 0, &mr, NULL)) {
			KUNIT_FAIL(test, "round %d: no region", round);
			kfree(there);
			break;
		}
		before = atomic_read(&a->succeeded) + 1 + round % 4;
		/* Pairs with the acquire of the thread. */
		smp_store_release(&a->regions, round);
		KUNIT_EXPECT_GE(test, reach(&a->succeeded, before), before);
		udelay(round * 17 % 200);
		KUNIT_EXPECT_EQ(test, kfi_close(&mr->fid), 0);
		/* What arrives from now on finds no region. */
		memset(there, 0x5a, LEN);
		KUNIT_EXPECT_EQ(test, reach(&a->ended, round), round);
		KUNIT_EXPECT_NULL(test, memchr_inv(there, 0x5a, LEN));
		kfree(there);
	}
	WRITE_ONCE(a->stop, true);
	wait_for_completion(&a->done);
	KUNIT_EXPECT_EQ(test, a->error, 0);
	KUNIT_EXPECT_GE(test, atomic_read(&a->refused), ROUNDS);
	kunit_info(test, "%d accesses succeeded, %d found no region\n",
		   atomic_read(&a->succeeded), atomic_read(&a->refused));
	nothing(test, &ends[0]);
	nothing(test, &ends[1]);
	end_close(test, &ends[0]);
	end_close(test, &ends[1]);
	hosts_close(test, f);
}

CONSUMER("regions that are closed while another host accesses them",
	 KUNIT_CASE_SLOW(memory_is_the_consumers_after_a_close));
