// SPDX-License-Identifier: GPL-2.0
/*
 * A provider with the name "one": see foreign.h, and consumer_foreign.
 */

#define FOREIGN_NAME	"one"
#define FOREIGN_VERSION	KFI_VERSION(3, 1)

#include "foreign.h"

MODULE_DESCRIPTION("kfabric: a provider with the name \"one\"");
