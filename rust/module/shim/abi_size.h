/* SPDX-License-Identifier: GPL-2.0 */
/*
 * Every structure of the ABI, laid out here so that shim.c can have the
 * compiler refuse padding in it (-Wpadded), and a multiple of 8 bytes long, so
 * that 32-bit programs see the same.
 */
#ifndef _KFABRIC_SHIM_ABI_SIZE_H
#define _KFABRIC_SHIM_ABI_SIZE_H

#include <linux/build_bug.h>

#define KFABRIC_ABI(name) static_assert(!(sizeof(struct kfabric_##name) % 8))

KFABRIC_ABI(sockaddr);
KFABRIC_ABI(iov);
KFABRIC_ABI(rma_iov);
KFABRIC_ABI(query);
KFABRIC_ABI(nop);
KFABRIC_ABI(link_add);
KFABRIC_ABI(link_del);
KFABRIC_ABI(link_get);
KFABRIC_ABI(info);
KFABRIC_ABI(getinfo);
KFABRIC_ABI(close);
KFABRIC_ABI(getwait);
KFABRIC_ABI(opsflag);
KFABRIC_ABI(bind);
KFABRIC_ABI(fabric_open);
KFABRIC_ABI(domain_open);
KFABRIC_ABI(eq_open);
KFABRIC_ABI(eq_entry);
KFABRIC_ABI(eq_cm_entry);
KFABRIC_ABI(eq_read);
KFABRIC_ABI(eq_readerr);
KFABRIC_ABI(eq_write);
KFABRIC_ABI(av_open);
KFABRIC_ABI(av_insert);
KFABRIC_ABI(av_insertsvc);
KFABRIC_ABI(av_remove);
KFABRIC_ABI(av_lookup);
KFABRIC_ABI(av_straddr);
KFABRIC_ABI(mr_reg);
KFABRIC_ABI(cq_open);
KFABRIC_ABI(cq_entry);
KFABRIC_ABI(cq_ring);
KFABRIC_ABI(cq_read);
KFABRIC_ABI(cq_readerr);
KFABRIC_ABI(cq_signal);
KFABRIC_ABI(cq_strerror);
KFABRIC_ABI(cntr_values);
KFABRIC_ABI(cntr_open);
KFABRIC_ABI(cntr_read);
KFABRIC_ABI(cntr_modify);
KFABRIC_ABI(cntr_wait);
KFABRIC_ABI(wait_open);
KFABRIC_ABI(wait);
KFABRIC_ABI(poll_open);
KFABRIC_ABI(poll_change);
KFABRIC_ABI(poll);
KFABRIC_ABI(ep_open);
KFABRIC_ABI(ep_enable);
KFABRIC_ABI(ep_name);
KFABRIC_ABI(ep_cancel);
KFABRIC_ABI(ep_opt);
KFABRIC_ABI(ep_qp);
KFABRIC_ABI(ep_connect_qp);
KFABRIC_ABI(pep_open);
KFABRIC_ABI(pep_listen);
KFABRIC_ABI(pep_reject);
KFABRIC_ABI(ep_connect);
KFABRIC_ABI(ep_accept);
KFABRIC_ABI(ep_shutdown);
KFABRIC_ABI(ep_peer);
KFABRIC_ABI(op);
KFABRIC_ABI(post);
KFABRIC_ABI(stat);
KFABRIC_ABI(figures);

#undef KFABRIC_ABI

#endif /* _KFABRIC_SHIM_ABI_SIZE_H */
