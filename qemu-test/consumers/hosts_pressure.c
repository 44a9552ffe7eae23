// SPDX-License-Identifier: GPL-2.0
/*
 * Messages between two hosts while memory is short, posted in the scope of a
 * caller that writes back dirty pages: they arrive.
 */

#include <linux/vmalloc.h>

#include "pressure.h"
#include "two_hosts.h"

#define ROUNDS	50
#define ROOM	(16 * 1024)

/* A message there. */
static int turn(struct end *ends, u8 **mem, int round)
{
	int ret;

	memset(mem[0], round, ROOM);
	ret = kfi_recv(ends[1].ep, mem[1], ROOM, NULL, KFI_ADDR_UNSPEC, NULL);
	ret = ret ?: kfi_send(ends[0].ep, mem[0], ROOM, NULL, ends[0].peer, NULL);
	ret = ret ?: await_completions(&ends[0], 1);
	ret = ret ?: await_completions(&ends[1], 1);
	if (ret)
		return ret;
	return memcmp(mem[0], mem[1], ROOM) ? -EILSEQ : 0;
}

static void messages_arrive(struct kunit *test, enum kfi_ep_type type)
{
	struct connection connection = {};
	struct fixture f[HOSTS];
	struct end ends[HOSTS];
	struct pressure pressure;
	unsigned int flags;
	u8 *mem[HOSTS];
	int i, round = 0, ret;
	bool began;

	if (type == KFI_EP_MSG)
		hosts_connect(test, f, ends, &connection);
	else
		hosts_pair_open(test, f, type, ends);
	for (i = 0; i < HOSTS; i++) {
		mem[i] = vzalloc(ROOM);
		KUNIT_ASSERT_NOT_NULL(test, mem[i]);
	}
	/* A connection of reliable datagrams is there before, too. */
	KUNIT_ASSERT_EQ(test, turn(ends, mem, 0), 0);
	pressure_begin(&pressure, 0);
	began = pressure_lasts();
	flags = memalloc_noreclaim_save();
	do {
		pressure_take(&pressure, 0);
		ret = turn(ends, mem, round);
	} while (!ret && ++round < ROUNDS);
	memalloc_noreclaim_restore(flags);
	pressure_end(&pressure);
	KUNIT_EXPECT_TRUE(test, began);
	KUNIT_EXPECT_EQ_MSG(test, ret, 0, "round %d", round);
	kunit_info(test, "%d rounds\n", round);
	for (i = 0; i < HOSTS; i++) {
		end_close(test, &ends[i]);
		vfree(mem[i]);
	}
	connection_close(test, &connection);
	hosts_close(test, f);
}

static void msg_messages(struct kunit *test)
{
	messages_arrive(test, KFI_EP_MSG);
}

static void rdm_messages(struct kunit *test)
{
	messages_arrive(test, KFI_EP_RDM);
}

CONSUMER("memory of two hosts is short",
	 KUNIT_CASE_SLOW(msg_messages),
	 KUNIT_CASE_SLOW(rdm_messages));
