/* SPDX-License-Identifier: GPL-2.0 */
/*
 * A failure injected at every allocation of a call, and at every copy from or to the program, for
 * programs that include verbs-ends.h. Needs a kernel with fault injection, and root.
 *
 * For each call the first such place fails, then the second, and so on until the call succeeds
 * without reaching one. A failed call returns ENOMEM, EFAULT, ENOBUFS or ENFILE and leaves nothing:
 * the same call made again without faults succeeds.
 */
#ifndef VERBS_SWEEP_H
#define VERBS_SWEEP_H

#include <fcntl.h>

/* No call has as many places that can fail. A device that is added has about ten thousand. */
#define MOST		400
#define MOST_OF_ALL	1000000

static int fail_nth = -1;

/* The fault of the last call has occurred. */
static int met;

static inline void put(const char *file, const char *value)
{
	char path[96];
	int fd;

	snprintf(path, sizeof(path), "/sys/kernel/debug/%s", file);
	fd = open(path, O_WRONLY);
	expect(fd >= 0 && write(fd, value, strlen(value)) > 0, "%s: %s", path, strerror(errno));
	close(fd);
}

/* Also fails allocations that may wait. */
static inline void prepare(void)
{
	put("failslab/ignore-gfp-wait", "N");
	put("fail_page_alloc/ignore-gfp-wait", "N");
	put("fail_page_alloc/ignore-gfp-highmem", "N");
	put("fail_page_alloc/min-order", "0");
	put("failslab/verbose", "0");
	put("fail_page_alloc/verbose", "0");
	put("fail_usercopy/verbose", "0");
	fail_nth = open("/proc/thread-self/fail-nth", O_RDWR);
	expect(fail_nth >= 0, "fail-nth: %s", strerror(errno));
}

static inline void arm(int nth)
{
	char text[16];

	snprintf(text, sizeof(text), "%d", nth);
	expect(pwrite(fail_nth, text, strlen(text), 0) > 0, "arm");
}

/* Whether the fault has occurred. Reading fail-nth copies, and can meet it, too. */
static int met_now(void)
{
	char left[16] = "";
	ssize_t len = pread(fail_nth, left, sizeof(left) - 1, 0);

	return len > 0 && atoi(left) == 0;
}

/* Notes whether the fault has occurred in the call. */
static inline void disarm(void)
{
	met = met_now();
	while (pwrite(fail_nth, "0", 1, 0) < 0)
		;
}

/*
 * A call. @ready runs before each call, @call returns an error number, and @undo ends what a
 * successful call has made, or what the call leaves of an object that it ends. @ends: the call ends
 * an object, which is gone although the answer could not be copied. @each: each of the first so
 * many places fails, and then ever fewer of the rest; 0: every place.
 */
struct a_case {
	const char *name;
	void (*ready)(void);
	int (*call)(void);
	void (*undo)(void);
	int ends;
	int each;
};

#define CASE(name, ready, call, undo)		{ name, ready, call, undo, 0, 0 }
#define END(name, ready, call)			{ name, ready, call, NULL, 1, 0 }
#define END_THEN(name, ready, call, undo)	{ name, ready, call, undo, 1, 0 }

static inline void sweep_one(const struct a_case *one)
{
	int nth, ret, again, faults = 0, failed = 0;

	for (nth = 1; ; nth += one->each ? 1 + nth / one->each * nth / one->each : 1) {
		expect(nth < (one->each ? MOST_OF_ALL : MOST), "%s: no end at fault %d", one->name,
		       nth);
		if (one->ready)
			one->ready();
		arm(nth);
		ret = one->call();
		disarm();
		if (!ret && !met)
			break;
		faults++;
		if (ret) {
			failed++;
			expect(met, "%s: %s without a fault", one->name, strerror(ret));
			/*
			 * The tables of routes and neighbours fail with ENOBUFS, and a socket that
			 * is opened with ENFILE.
			 */
			expect(ret == ENOMEM || ret == EFAULT || ret == ENOBUFS || ret == ENFILE,
			       "%s, fault %d: %s", one->name, nth, strerror(ret));
			again = one->call();
			expect(!again || (one->ends && ret == EFAULT &&
					  (again == EINVAL || again == ENOENT)),
			       "%s after fault %d (%s): %s", one->name, nth, strerror(ret),
			       strerror(again));
		}
		if (one->undo)
			one->undo();
	}
	if (one->undo)
		one->undo();
	printf("%s: %d faults in turn, %d of them made it fail\n", one->name, faults, failed);
	fflush(stdout);
}

static inline void sweep_all(const struct a_case *cases, unsigned int count)
{
	unsigned int i;

	prepare();
	for (i = 0; i < count; i++)
		sweep_one(&cases[i]);
}

#define sweep(...)								\
	do {									\
		static const struct a_case cases[] = { __VA_ARGS__ };		\
										\
		sweep_all(cases, sizeof(cases) / sizeof(cases[0]));		\
	} while (0)

#endif /* VERBS_SWEEP_H */
