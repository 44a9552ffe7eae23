// SPDX-License-Identifier: GPL-2.0
/*
 * A ring of endpoints of two hosts in turn: every kind of operation at once, all
 * of them over the wire.
 *
 * insmod hosts_ring.ko [seconds=N]: how long it turns.
 */

#include "ring.h"
#include "two_hosts.h"

static unsigned int seconds = 3;
module_param(seconds, uint, 0444);
MODULE_PARM_DESC(seconds, "how long the ring turns");

static void every_operation_at_once(struct kunit *test)
{
	struct fixture f[HOSTS];
	struct kfi_info *hints = kfi_allocinfo(), *infos[HOSTS];

	KUNIT_ASSERT_NOT_NULL(test, hints);
	hints->ep_attr->type = KFI_EP_RDM;
	hints->addr_format = KFI_SOCKADDR_IN;
	hints->caps = RING_CAPS;
	hosts_open_with(test, f, hints);
	kfi_freeinfo(hints);
	infos[0] = f[0].info;
	infos[1] = f[1].info;
	ring_turns(test, f, infos, HOSTS, seconds);
	hosts_close(test, f);
}

CONSUMER("a ring of endpoints of two hosts",
	 KUNIT_CASE_SLOW(every_operation_at_once));
