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
