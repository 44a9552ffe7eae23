/* SPDX-License-Identifier: GPL-2.0 */
/*
 * Messages of modules that were written for the first kfabric; newer ones use
 * kfi_log.h.
 *
 * Each macro takes a format as printk() does, with its newline.  A line begins
 * with DRV_PFX, which a file defines before it includes this header; without that
 * it is the name of the module.  Debug messages are those of dynamic debug, so
 * there is no level to set.
 *
 * Context: Any.
 */
#ifndef _KFI_DEBUG_H
#define _KFI_DEBUG_H

#include <linux/moduleparam.h>
#include <linux/printk.h>

#ifndef DRV_PFX
#define DRV_PFX			KBUILD_MODNAME ": "
#endif

/* Kinds of debug messages. */
enum {
	DEBUG_NONE		= 0,
	DEBUG_LOW		= 1,
	DEBUG_MED		= 2,
	DEBUG_HIGH		= 4,
	DEBUG_TRACE		= 8,
	DEBUG_NEXT		= 16,	/* the first of a module's own */
	DEBUG_LEVEL_LOW		= DEBUG_LOW,
	DEBUG_LEVEL_MED		= DEBUG_LOW | DEBUG_MED,
	DEBUG_LEVEL_HI		= DEBUG_LOW | DEBUG_MED | DEBUG_HIGH,
};

#define set_debug_level(level)		((void)(level))
#define update_debug_level(level)	((void)(level))

/* A variable that is a parameter of the module. */
#ifndef MODULE_PARAM
#define MODULE_PARAM(name, var, type, value, desc)	\
	static type var = value;			\
	module_param_named(name, var, type, 0644);	\
	MODULE_PARM_DESC(name, desc)
#endif

#define print_info(fmt, ...)	pr_info(fmt, ##__VA_ARGS__)
#define print_err(fmt, ...)	\
	printk(KERN_ERR DRV_PFX "%s(%d) " fmt, __func__, __LINE__, ##__VA_ARGS__)
#define print_msg(fmt, ...)	print_err(fmt, ##__VA_ARGS__)
#define dprint(mask, fmt, ...)	\
	do {								\
		(void)(mask);						\
		pr_debug(DRV_PFX "%s(%d) " fmt, __func__, __LINE__,	\
			 ##__VA_ARGS__);				\
	} while (0)
#define print_dbg(fmt, ...)	dprint(DEBUG_LOW, fmt, ##__VA_ARGS__)
#define print_trace(fmt, ...)	dprint(DEBUG_TRACE, fmt, ##__VA_ARGS__)

#endif /* _KFI_DEBUG_H */
