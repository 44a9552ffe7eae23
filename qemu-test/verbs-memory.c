// SPDX-License-Identifier: GPL-2.0
/*
 * verbs-memory: protection domains and memory regions of a verbs device.
 *
 *	verbs-memory DEVICE TEST
 *
 * Exits with 0 if the test succeeds; else it prints what is wrong.
 */

#define _GNU_SOURCE

#include <err.h>
#include <errno.h>
#include <infiniband/verbs.h>
#include <linux/types.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

#define PAGE	4096ul
#define NOBODY	65534

#define expect(what) \
	do { \
		if (!(what)) \
			errx(1, "%s:%d: %s: %m", __func__, __LINE__, #what); \
	} while (0)

static const char *name;
static struct ibv_context *device;
static struct ibv_pd *pd;

static const int everything = IBV_ACCESS_LOCAL_WRITE |
			      IBV_ACCESS_REMOTE_WRITE |
			      IBV_ACCESS_REMOTE_READ |
			      IBV_ACCESS_REMOTE_ATOMIC;

static void open_device(void)
{
	struct ibv_device **list = ibv_get_device_list(NULL), **entry;

	device = NULL;
	for (entry = list; entry && *entry; entry++)
		if (!strcmp(ibv_get_device_name(*entry), name))
			device = ibv_open_device(*entry);
	expect(device);
	pd = ibv_alloc_pd(device);
	expect(pd);
}

static void *map(size_t len, int prot)
{
	void *memory = mmap(NULL, len, prot, MAP_PRIVATE | MAP_ANONYMOUS, -1,
			    0);

	expect(memory != MAP_FAILED);
	return memory;
}

/* The error of a registration; 0 if there is none. */
static int registering(void *addr, size_t len, int access)
{
	struct ibv_mr *mr = ibv_reg_mr(pd, addr, len, access);

	if (!mr)
		return errno;
	expect(mr->lkey == mr->rkey);
	expect(!ibv_dereg_mr(mr));
	return 0;
}

/* Kilobytes that this process has pinned. */
static long pinned(void)
{
	FILE *status = fopen("/proc/self/status", "r");
	char line[256];
	long kib = -1;

	expect(status);
	while (fgets(line, sizeof(line), status))
		if (sscanf(line, "VmPin: %ld", &kib) == 1)
			break;
	fclose(status);
	return kib;
}

static void access_rights(void)
{
	const int changes = IBV_ACCESS_REMOTE_WRITE | IBV_ACCESS_REMOTE_ATOMIC;
	void *memory = map(PAGE, PROT_READ | PROT_WRITE);
	int access, expected;

	for (access = 0; access <= everything; access++) {
		expected = 0;
		if (access & changes && !(access & IBV_ACCESS_LOCAL_WRITE))
			expected = EINVAL;
		expect(registering(memory, PAGE, access) == expected);
		expect(registering(memory, 1, access |
				   IBV_ACCESS_RELAXED_ORDERING) == expected);
	}
}

static void refused(void)
{
	static const int unknown[] = {
		IBV_ACCESS_MW_BIND, IBV_ACCESS_ZERO_BASED,
		IBV_ACCESS_ON_DEMAND, IBV_ACCESS_HUGETLB,
		IBV_ACCESS_FLUSH_GLOBAL, IBV_ACCESS_FLUSH_PERSISTENT,
	};
	char *memory = map(2 * PAGE, PROT_READ | PROT_WRITE);
	char *constant = map(PAGE, PROT_READ);
	size_t i;

	expect(!munmap(memory + PAGE, PAGE));
	expect(registering(memory, 2 * PAGE, everything) == EFAULT);
	expect(registering(memory + PAGE, 1, 0) == EFAULT);
	expect(registering(memory, PAGE, everything) == 0);
	expect(registering(constant, PAGE, IBV_ACCESS_LOCAL_WRITE) == EFAULT);
	expect(registering(constant, PAGE, IBV_ACCESS_REMOTE_READ) == 0);
	expect(registering(memory, 0, everything) == EINVAL);
	expect(registering((void *)-PAGE, 2 * PAGE, everything) == EINVAL);
	expect(registering((void *)-PAGE, PAGE, everything) == EINVAL);
	expect(registering(memory, (1ul << 40) + 1, everything) == EINVAL);
	expect(registering(memory, -PAGE, everything) == EINVAL);
	for (i = 0; i < sizeof(unknown) / sizeof(*unknown); i++)
		expect(registering(memory, PAGE, everything | unknown[i]) ==
		       EOPNOTSUPP);
	expect(pinned() == 0);
}

static void other_address(void)
{
	char *memory = map(2 * PAGE, PROT_READ | PROT_WRITE);
	struct ibv_mr *mr;

	mr = ibv_reg_mr_iova(pd, memory + 10, PAGE, 0x7000 + 10, everything);
	expect(mr);
	expect(!ibv_dereg_mr(mr));
	mr = ibv_reg_mr_iova(pd, memory, PAGE, 0, everything);
	expect(mr);
	expect(!ibv_dereg_mr(mr));
	/* The offset in the page is the same. */
	mr = ibv_reg_mr_iova(pd, memory, PAGE, 8, everything);
	expect(!mr && errno == EINVAL);
	mr = ibv_reg_mr_iova(pd, memory, 2 * PAGE, -PAGE, everything);
	expect(!mr && errno == EINVAL);
}

static void attributes(void)
{
	struct ibv_device_attr attr;

	expect(!ibv_query_device(device, &attr));
	expect(attr.max_mr_size == 1ull << 40);
	expect(attr.max_mr >= 1 << 20);
	expect(attr.max_pd >= 1 << 16);
}

static void in_use(void)
{
	void *memory = map(PAGE, PROT_READ | PROT_WRITE);
	struct ibv_pd *other = ibv_alloc_pd(device);
	struct ibv_mr *mr;

	expect(other);
	mr = ibv_reg_mr(other, memory, PAGE, everything);
	expect(mr);
	expect(ibv_dealloc_pd(other) == EBUSY);
	expect(!ibv_dereg_mr(mr));
	expect(!ibv_dealloc_pd(other));
}

static void many_times(void)
{
	char *memory = map(64 * PAGE, PROT_READ | PROT_WRITE);
	struct ibv_mr *mr[100];
	int i;

	for (i = 0; i < 1000; i++)
		expect(registering(memory + i, 1 + 7 * i, everything) == 0);
	expect(pinned() == 0);
	for (i = 0; i < 100; i++) {
		mr[i] = ibv_reg_mr(pd, memory, 64 * PAGE, everything);
		expect(mr[i]);
	}
	expect(pinned() == 100 * 64 * (long)PAGE / 1024);
	for (i = 0; i < 100; i++)
		expect(!ibv_dereg_mr(mr[i]));
	expect(pinned() == 0);
}

/* A region longer than a message of kfabric. */
static void long_region(void)
{
	const size_t piece = 8ul << 20, len = (1ul << 30) + piece;
	char *memory = map(len, PROT_NONE);
	int file = memfd_create("verbs-memory", 0);
	struct ibv_mr *mr;
	size_t at;

	/* The same pages, many times. */
	expect(file >= 0 && !ftruncate(file, piece));
	for (at = 0; at < len; at += piece)
		expect(mmap(memory + at, piece, PROT_READ | PROT_WRITE,
			    MAP_SHARED | MAP_FIXED, file, 0) == memory + at);
	mr = ibv_reg_mr(pd, memory, len, everything);
	expect(mr && mr->length == len);
	expect(pinned() == (long)len / 1024);
	expect(!ibv_dereg_mr(mr));
	expect(pinned() == 0);
}

static void locked_memory(void)
{
	const struct rlimit limit = { 16 * PAGE, 16 * PAGE };
	char *memory = map(17 * PAGE, PROT_READ | PROT_WRITE);
	struct ibv_mr *mr;
	int i;

	expect(!setrlimit(RLIMIT_MEMLOCK, &limit));
	expect(!setuid(NOBODY));
	expect(registering(memory, 17 * PAGE, everything) == ENOMEM);
	expect(registering(memory + 1, 16 * PAGE, everything) == ENOMEM);
	for (i = 0; i < 100; i++)
		expect(registering(memory, 16 * PAGE, everything) == 0);
	mr = ibv_reg_mr(pd, memory, 10 * PAGE, everything);
	expect(mr);
	expect(registering(memory, 7 * PAGE, everything) == ENOMEM);
	expect(registering(memory, 6 * PAGE, everything) == 0);
	expect(!ibv_dereg_mr(mr));
}

/* A program that is killed, and one that forks. */
static void killed(void)
{
	char *memory = map(64 * PAGE, PROT_READ | PROT_WRITE);
	struct ibv_mr *mr = ibv_reg_mr(pd, memory, 64 * PAGE, everything);
	int status, to_parent[2], i;
	char byte = 0;
	pid_t child;

	expect(mr && !pipe(to_parent));
	child = fork();
	expect(child >= 0);
	if (!child) {
		open_device();
		for (i = 0; i < 100; i++)
			expect(ibv_reg_mr(pd, memory, 64 * PAGE, everything));
		expect(write(to_parent[1], &byte, 1) == 1);
		for (;;)
			pause();
	}
	close(to_parent[1]);
	expect(read(to_parent[0], &byte, 1) == 1);
	expect(!kill(child, SIGKILL));
	expect(waitpid(child, &status, 0) == child);
	expect(WIFSIGNALED(status) && WTERMSIG(status) == SIGKILL);
	expect(pinned() == 64 * (long)PAGE / 1024);
	expect(!ibv_dereg_mr(mr));
	expect(!ibv_dealloc_pd(pd));
	expect(!ibv_close_device(device));
	open_device();
	expect(registering(memory, 64 * PAGE, everything) == 0);
}

static const struct {
	const char *name;
	void (*run)(void);
} tests[] = {
	{ "access", access_rights },
	{ "refused", refused },
	{ "iova", other_address },
	{ "attributes", attributes },
	{ "busy", in_use },
	{ "many", many_times },
	{ "long", long_region },
	{ "limit", locked_memory },
	{ "killed", killed },
};

int main(int argc, char **argv)
{
	size_t i;

	if (argc != 3)
		errx(2, "usage: verbs-memory DEVICE TEST");
	name = argv[1];
	open_device();
	for (i = 0; i < sizeof(tests) / sizeof(*tests); i++) {
		if (strcmp(argv[2], tests[i].name))
			continue;
		tests[i].run();
		return 0;
	}
	errx(2, "no test %s", argv[2]);
}
