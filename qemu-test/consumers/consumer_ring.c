// SPDX-License-Identifier: GPL-2.0
/*
 * A ring of endpoints of one host: every kind of operation at once.
 *
 * insmod consumer_ring.ko [seconds=N]: how long it turns.
 */

#include "ring.h"

static unsigned int seconds = 3;
module_param(seconds, uint, 0444);
MODULE_PARM_DESC(seconds, "how long the ring turns");

static void every_operation_at_once(struct kunit *test)
{
	struct fixture f;
	struct kfi_info *info;

	fixture_open(test, &f);
	info = entry_with(test, KFI_EP_RDM, RING_CAPS);
	ring_turns(test, &f, &info, 1, seconds);
	kfi_freeinfo(info);
	fixture_close(test, &f);
}

CONSUMER("a ring of endpoints",
	 KUNIT_CASE_SLOW(every_operation_at_once));
