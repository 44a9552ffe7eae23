// SPDX-License-Identifier: GPL-2.0
/*
 * A provider with the name "two": see foreign.h, and consumer_foreign.
 */

#define FOREIGN_NAME	"two"
#define FOREIGN_VERSION	KFI_VERSION(0, 9)

#include "foreign.h"

MODULE_DESCRIPTION("kfabric: a provider with the name \"two\"");
