// SPDX-License-Identifier: GPL-2.0
/*
 * Exports the functions of the front end for verbs, which are in Rust, to
 * kfabric_ib.ko.
 */

#include <linux/export.h>

#include "bindings.h"

#define KFABRIC_VERBS_EXPORT(name) EXPORT_SYMBOL_NS_GPL(name, "KFABRIC_VERBS")

KFABRIC_VERBS_EXPORT(kfabric_verbs_device_add);
KFABRIC_VERBS_EXPORT(kfabric_verbs_device_remove);
KFABRIC_VERBS_EXPORT(kfabric_verbs_device_port);
KFABRIC_VERBS_EXPORT(kfabric_verbs_device_stats);
KFABRIC_VERBS_EXPORT(kfabric_verbs_stat_name);

KFABRIC_VERBS_EXPORT(kfabric_verbs_context_alloc);
KFABRIC_VERBS_EXPORT(kfabric_verbs_context_free);
KFABRIC_VERBS_EXPORT(kfabric_verbs_mmap);

KFABRIC_VERBS_EXPORT(kfabric_verbs_pd_alloc);
KFABRIC_VERBS_EXPORT(kfabric_verbs_pd_free);
KFABRIC_VERBS_EXPORT(kfabric_verbs_pd_charge_ah);
KFABRIC_VERBS_EXPORT(kfabric_verbs_pd_uncharge_ah);

KFABRIC_VERBS_EXPORT(kfabric_verbs_mr_user);
KFABRIC_VERBS_EXPORT(kfabric_verbs_mr_dma_buf);
KFABRIC_VERBS_EXPORT(kfabric_verbs_mr_dma);
KFABRIC_VERBS_EXPORT(kfabric_verbs_mr_fast);
KFABRIC_VERBS_EXPORT(kfabric_verbs_mr_map);
KFABRIC_VERBS_EXPORT(kfabric_verbs_mr_free);

KFABRIC_VERBS_EXPORT(kfabric_verbs_qp_create);
KFABRIC_VERBS_EXPORT(kfabric_verbs_qp_destroy);
KFABRIC_VERBS_EXPORT(kfabric_verbs_qp_number);
KFABRIC_VERBS_EXPORT(kfabric_verbs_qp_state);
KFABRIC_VERBS_EXPORT(kfabric_verbs_qp_modify);
KFABRIC_VERBS_EXPORT(kfabric_verbs_qp_post_send);
KFABRIC_VERBS_EXPORT(kfabric_verbs_qp_post_end);
KFABRIC_VERBS_EXPORT(kfabric_verbs_qp_post_recv);

KFABRIC_VERBS_EXPORT(kfabric_verbs_cq_create);
KFABRIC_VERBS_EXPORT(kfabric_verbs_cq_map);
KFABRIC_VERBS_EXPORT(kfabric_verbs_cq_buf_new);
KFABRIC_VERBS_EXPORT(kfabric_verbs_cq_resize);
KFABRIC_VERBS_EXPORT(kfabric_verbs_cq_buf_free);
KFABRIC_VERBS_EXPORT(kfabric_verbs_cq_poll);
KFABRIC_VERBS_EXPORT(kfabric_verbs_cq_arm);
KFABRIC_VERBS_EXPORT(kfabric_verbs_cq_destroy);

KFABRIC_VERBS_EXPORT(kfabric_verbs_srq_create);
KFABRIC_VERBS_EXPORT(kfabric_verbs_srq_modify);
KFABRIC_VERBS_EXPORT(kfabric_verbs_srq_query);
KFABRIC_VERBS_EXPORT(kfabric_verbs_srq_post);
KFABRIC_VERBS_EXPORT(kfabric_verbs_srq_destroy);

KFABRIC_VERBS_EXPORT(kfabric_verbs_comp_cntr_caps);
KFABRIC_VERBS_EXPORT(kfabric_verbs_comp_cntr_create);
KFABRIC_VERBS_EXPORT(kfabric_verbs_comp_cntr_destroy);
KFABRIC_VERBS_EXPORT(kfabric_verbs_comp_cntr_max);
KFABRIC_VERBS_EXPORT(kfabric_verbs_comp_cntr_offset);
KFABRIC_VERBS_EXPORT(kfabric_verbs_comp_cntr_modify);
KFABRIC_VERBS_EXPORT(kfabric_verbs_comp_cntr_read);
KFABRIC_VERBS_EXPORT(kfabric_verbs_comp_cntr_attach);

KFABRIC_VERBS_EXPORT(kfabric_verbs_counters_create);
KFABRIC_VERBS_EXPORT(kfabric_verbs_counters_destroy);
KFABRIC_VERBS_EXPORT(kfabric_verbs_counters_read);
KFABRIC_VERBS_EXPORT(kfabric_verbs_counters_attach);
KFABRIC_VERBS_EXPORT(kfabric_verbs_flow_create);
KFABRIC_VERBS_EXPORT(kfabric_verbs_flow_destroy);
