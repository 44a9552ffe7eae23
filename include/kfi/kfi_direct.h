/* SPDX-License-Identifier: GPL-2.0 */
/*
 * Calls of one provider without its tables of operations (KFABRIC_DIRECT): a
 * consumer that is built for them includes this header in place of the others.
 *
 * kfabric.ko has no such calls, because other providers may be there too.  So this
 * header has the ordinary ones, and defines neither KFABRIC_DIRECT nor names for
 * what a provider would have fixed at compile time.
 */
#ifndef _KFI_DIRECT_H
#define _KFI_DIRECT_H

#include "kfi_atomic.h"
#include "kfi_cm.h"
#include "kfi_domain.h"
#include "kfi_endpoint.h"
#include "kfi_rma.h"
#include "kfi_tagged.h"
#include "kfi_trigger.h"

#endif /* _KFI_DIRECT_H */
