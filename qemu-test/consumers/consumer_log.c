// SPDX-License-Identifier: GPL-2.0
/*
 * Messages of a consumer in the kernel's log, by the macros of kfi_log.h: each has
 * its level, and begins with the name that the consumer has given itself
 * (run-guest looks for the lines).
 */

/* Without this, or dynamic debug, LOG_DEBUG() prints nothing. */
#define DEBUG

#include <linux/module.h>
#include <kunit/test.h>

#include <kfi/kfabric.h>

#define MODULE_NAME	"a consumer"
#include <kfi/kfi_log.h>
#include <kfi/kfi_debug.h>

MODULE_PARAM(lines, lines, int, 1, "how often it logs");

static void messages_have_levels(struct kunit *test)
{
	const char *text = kfi_strerror(KFI_ENOENT);
	int level;

	/* Each macro is a single statement: it may stand between if and else. */
	for (level = 0; level < 7; level++)
		if (level == 0)
			LOG_EMERG("%s %d", text, level);
		else if (level == 1)
			LOG_ALERT("%s %d", text, level);
		else if (level == 2)
			LOG_CRIT("%s %d", text, level);
		else if (level == 3)
			LOG_ERR("%s %d", text, level);
		else if (level == 4)
			LOG_WARN("%s %d", text, level);
		else if (level == 5)
			LOG_NOTICE("%s %d", text, level);
		else
			LOG_INFO("%s %d", text, level);
	/* Also without arguments. */
	LOG_DEBUG("no such entry 7");
	LOG_ERR_RL("%s 8", text);
	LOG_DEFAULT("%s 9", text);
	/* The older macros. */
	set_debug_level(DEBUG_LEVEL_HI);
	update_debug_level(DEBUG_TRACE);
	print_info("%d line\n", lines);
	print_err("%s\n", text);
	print_msg("%s\n", text);
	dprint(DEBUG_NEXT, "%s\n", text);
	print_dbg("%s\n", text);
	print_trace("%s\n", text);
	/* run-guest compares the lines with this text. */
	KUNIT_EXPECT_STREQ(test, text, "no such entry");
}

static struct kunit_case cases[] = {
	KUNIT_CASE(messages_have_levels),
	{}
};

static struct kunit_suite suite = {
	.name = "consumer_log",
	.test_cases = cases,
};

kunit_test_suite(suite);

MODULE_DESCRIPTION("kfabric consumer: messages in the log");
MODULE_LICENSE("GPL");
