/* SPDX-License-Identifier: GPL-2.0 */
/*
 * Messages of kfabric consumers and providers in the kernel's log.
 *
 * Each macro takes a format as printk() does, without a newline, and its
 * arguments.  The line begins with MODULE_NAME, which a file defines before it
 * includes this header; without that it is the name of the module.
 *
 * Context: Any.
 */
#ifndef _KFI_LOG_H
#define _KFI_LOG_H

#include <linux/printk.h>

#ifndef MODULE_NAME
#define MODULE_NAME		KBUILD_MODNAME
#endif

#define LOG_EMERG(fmt, ...)	printk(KERN_EMERG "%s: " fmt "\n", MODULE_NAME, ##__VA_ARGS__)
#define LOG_ALERT(fmt, ...)	printk(KERN_ALERT "%s: " fmt "\n", MODULE_NAME, ##__VA_ARGS__)
#define LOG_CRIT(fmt, ...)	printk(KERN_CRIT "%s: " fmt "\n", MODULE_NAME, ##__VA_ARGS__)
#define LOG_ERR(fmt, ...)	printk(KERN_ERR "%s: " fmt "\n", MODULE_NAME, ##__VA_ARGS__)
/* At most 10 lines in 5 seconds from each place. */
#define LOG_ERR_RL(fmt, ...)	\
	printk_ratelimited(KERN_ERR "%s: " fmt "\n", MODULE_NAME, ##__VA_ARGS__)
#define LOG_WARN(fmt, ...)	printk(KERN_WARNING "%s: " fmt "\n", MODULE_NAME, ##__VA_ARGS__)
#define LOG_NOTICE(fmt, ...)	printk(KERN_NOTICE "%s: " fmt "\n", MODULE_NAME, ##__VA_ARGS__)
#define LOG_INFO(fmt, ...)	printk(KERN_INFO "%s: " fmt "\n", MODULE_NAME, ##__VA_ARGS__)
/* At the kernel's default level. */
#define LOG_DEFAULT(fmt, ...)	printk(KERN_DEFAULT "%s: " fmt "\n", MODULE_NAME, ##__VA_ARGS__)
/* Off unless dynamic debug or DEBUG enables it. */
#define LOG_DEBUG(fmt, ...)	pr_debug("%s: " fmt "\n", MODULE_NAME, ##__VA_ARGS__)

#endif /* _KFI_LOG_H */
