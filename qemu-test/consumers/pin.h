/* SPDX-License-Identifier: GPL-2.0 */
/*
 * What pin_keeper.ko has for pin_opener.ko.
 */
#ifndef _PIN_H
#define _PIN_H

#include <kfi/kfabric.h>

/**
 * pin_keep() - give an open fabric away
 * @fabric: the fabric, which is closed when pin_keeper.ko is removed
 */
void pin_keep(struct kfid_fabric *fabric);

#endif /* _PIN_H */
