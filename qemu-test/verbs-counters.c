// SPDX-License-Identifier: GPL-2.0
/*
 * verbs-counters: completion counters of verbs, as ibv_create_comp_cntr(3) has them:
 * one test for each sentence. What they count: verbs-counted.c.
 *
 *	verbs-counters DEVICE GID_INDEX TEST
 *	verbs-counters --list
 *	verbs-counters DEVICE GID_INDEX hold
 */

#define _GNU_SOURCE
#include <signal.h>
#include <sys/wait.h>

#include "verbs-counting.h"
#include "verbs-dmabuf.h"

#define ANY	(~0ull)

static struct buffer va(void *at)
{
	return (struct buffer) {
		.type = BUFFER_VA,
		.addr = (__u64)(unsigned long)at,
		.length = 8,
	};
}

static void a_new_counter_is_of_the_context_and_zero(void)
{
	__u32 cntr, other;
	volatile __u64 *values = mapped(&cntr);

	expect(!values[0] && !values[1], "the values are not 0");
	counts(cntr, 0, 0);
	other = usual_cntr();
	expect(cntr != other, "two counters have one handle");
}

static void a_counter_is_destroyed(void)
{
	__u32 cntr;
	volatile __u64 *values = mapped(&cntr);
	__u64 now;

	must(change(cntr, ENTRY_COMP, OP_SET, 5), 0, "set");
	must(destroy(cntr), 0, "destroy");
	must(try_read(cntr, ENTRY_COMP, &now), ENOENT, "read of what was destroyed");
	must(destroy(cntr), ENOENT, "destroy of what was destroyed");
	/* The page stays until it is unmapped. */
	expect(values[0] == 5, "the page has gone");
	expect(!munmap((void *)values, PAGE), "munmap");
}

static void an_attached_counter_is_busy_by_verbs(void)
{
	__u32 cntr = usual_cntr();

	ends(IBV_QPT_RC);
	must_attach(&a, cntr, OP_SEND);
	must_attach(&b, cntr, OP_RECV);
	must(destroy(cntr), EBUSY, "destroy");
	expect(!ibv_destroy_qp(a.qp), "destroy_qp");
	must(destroy(cntr), EBUSY, "destroy with one QP");
	expect(!ibv_destroy_qp(b.qp), "destroy_qp");
	must(destroy(cntr), 0, "destroy without a QP");
}

static void each_count_is_set_and_incremented_by_verbs(void)
{
	__u32 cntr = usual_cntr();

	must(change(cntr, ENTRY_COMP, OP_SET, 10), 0, "set");
	must(change(cntr, ENTRY_ERR, OP_SET, 20), 0, "set_err");
	counts(cntr, 10, 20);
	must(change(cntr, ENTRY_COMP, OP_INC, 3), 0, "inc");
	must(change(cntr, ENTRY_ERR, OP_INC, 4), 0, "inc_err");
	counts(cntr, 13, 24);
}

static void the_memory_is_internal_and_mapped_read_only(void)
{
	struct kfabric_ib_comp_cntr_resp resp, other;
	__u32 cntr = make((struct wanted) { .resp = &resp });
	volatile __u64 *values = map_of(resp.mmap_offset, PROT_READ);

	make((struct wanted) { .resp = &other });
	expect(values, "mmap: %s", strerror(errno));
	must(change(cntr, ENTRY_COMP, OP_SET, 3), 0, "set");
	must(change(cntr, ENTRY_ERR, OP_SET, 4), 0, "set_err");
	expect(values[0] == 3 && values[1] == 4, "the values are not in the page");
	expect(resp.mmap_offset && !(resp.mmap_offset % PAGE), "the offset");
	expect(resp.mmap_offset != other.mmap_offset, "two counters have one offset");
	expect(!map_of(resp.mmap_offset, PROT_READ | PROT_WRITE) && errno == EACCES,
	       "a writable mapping");
	expect(!map_of(resp.mmap_offset, PROT_READ | PROT_EXEC) && errno == EACCES,
	       "an executable mapping");
	expect(mprotect((void *)values, PAGE, PROT_READ | PROT_WRITE) && errno == EACCES,
	       "a mapping that becomes writable");
	expect(mmap(NULL, 2 * PAGE, PROT_READ, MAP_SHARED, device->cmd_fd, resp.mmap_offset) ==
	       MAP_FAILED && errno == EINVAL, "two pages");
	expect(!map_of(0, PROT_READ) && errno == EINVAL, "offset 0");
	expect(!map_of(1ull << 40, PROT_READ) && errno == EINVAL, "an unknown offset");
	must(destroy(cntr), 0, "destroy");
	expect(!map_of(resp.mmap_offset, PROT_READ) && errno == EINVAL,
	       "the offset of what was destroyed");
}

static void a_child_has_the_mapping(void)
{
	__u32 cntr;
	volatile __u64 *values = mapped(&cntr);
	int status;
	pid_t child;

	must(change(cntr, ENTRY_COMP, OP_SET, 9), 0, "set");
	child = fork();
	if (!child)
		_exit(values[0] != 9);
	expect(waitpid(child, &status, 0) == child && !status, "the child does not see it");
	must(change(cntr, ENTRY_COMP, OP_SET, 10), 0, "set");
	expect(values[0] == 10, "the mapping of the parent");
}

static void memory_of_the_program_has_the_counts(void)
{
	__u64 *words = aligned_alloc(PAGE, PAGE);
	struct buffer comp = va(words + 3), err = va(words + 9);
	struct kfabric_ib_comp_cntr_resp resp;
	__u32 cntr, i;

	memset(words, 0xff, PAGE);
	cntr = make((struct wanted) { .comp = &comp, .err = &err, .resp = &resp });
	expect(!words[3] && !words[9], "the counts do not begin at 0");
	expect(!resp.mmap_offset, "there is something to map");
	ends(IBV_QPT_RC);
	must_attach(&a, cntr, OP_RDMA_WRITE);
	connect_ends(7);
	send_one(IBV_WR_RDMA_WRITE, 64, 0);
	counts(cntr, 1, 0);
	must(change(cntr, ENTRY_ERR, OP_SET, 8), 0, "set_err");
	expect(*(volatile __u64 *)&words[3] == 1 && *(volatile __u64 *)&words[9] == 8,
	       "the memory does not have them");
	for (i = 0; i < 16; i++)
		expect(i == 3 || i == 9 || words[i] == ANY, "word %u was written", i);
}

static void what_a_program_writes_changes_no_value(void)
{
	__u64 *words = aligned_alloc(PAGE, PAGE);
	struct buffer comp = va(words), err = va(words + 1);
	__u32 cntr = make((struct wanted) { .comp = &comp, .err = &err });

	words[0] = 77;
	counts(cntr, 0, 0);
	must(change(cntr, ENTRY_COMP, OP_INC, 1), 0, "inc");
	expect(*(volatile __u64 *)words == 1, "the copy is not the value");
	/* Memory that the program has freed does not change the values either. */
	free(words);
	must(change(cntr, ENTRY_COMP, OP_INC, 1), 0, "inc");
	counts(cntr, 2, 0);
}

/* The descriptor of a DMA-BUF of one page, whose memory is mapped at @map. */
static int dma_buf(volatile __u64 **map)
{
	void *memory;
	int fd = make_dma_buf(PAGE, &memory);

	*map = memory;
	return fd;
}

/* Another process: it maps the DMA-BUF, and ends when both values have come. */
static pid_t observe(int fd, __u64 comp, __u64 err)
{
	long long until = now() + SECONDS * 1000;
	const volatile __u64 *words;
	pid_t child = fork();

	if (child)
		return child;
	words = mmap(NULL, PAGE, PROT_READ, MAP_SHARED, fd, 0);
	if (words == MAP_FAILED)
		_exit(2);
	while (words[8] != comp || words[16] != err)
		if (now() > until)
			_exit(1);
	_exit(0);
}

static void a_dma_buf_has_the_counts(void)
{
	volatile __u64 *map;
	struct buffer comp = { .type = BUFFER_DMABUF, .addr = 64, .length = 8 };
	struct buffer err = { .type = BUFFER_DMABUF, .addr = 128, .length = 8 };
	__u32 cntr, unmapped;
	int status;
	pid_t child;

	comp.fd = dma_buf(&map);
	err.fd = comp.fd;
	map[8] = ANY;
	/* By name: the pointers are those that the program passes. */
	cntr = make((struct wanted) {
		.comp = &comp, .err = &err, .comp_map = map + 8, .err_map = map + 16,
	});
	expect(!map[8], "the count does not begin at 0");
	child = observe(comp.fd, 5, 6);
	/* Without pointers, the values are read by calls. */
	comp.addr = 256;
	err.addr = 320;
	unmapped = make((struct wanted) { .comp = &comp, .err = &err });
	/* Each value has a place of its own, and the descriptor need not stay. */
	close(comp.fd);
	must(change(cntr, ENTRY_COMP, OP_SET, 5), 0, "set");
	must(change(cntr, ENTRY_ERR, OP_INC, 6), 0, "inc_err");
	expect(map[8] == 5 && map[16] == 6, "the DMA-BUF does not have them");
	must(change(unmapped, ENTRY_COMP, OP_INC, 7), 0, "inc");
	counts(unmapped, 7, 0);
	expect(map[32] == 7 && !map[40], "the DMA-BUF does not have those of the other one");
	expect(waitpid(child, &status, 0) == child && !status,
	       "the other process does not see them: %x", status);
	must(destroy(cntr), 0, "destroy");
	must(destroy(unmapped), 0, "destroy");
}

static void each_value_has_a_location_of_its_own(void)
{
	__u64 *words = aligned_alloc(PAGE, PAGE);
	volatile __u64 *map;
	struct buffer first = { .type = BUFFER_DMABUF, .addr = 0, .length = 8 };
	struct buffer second = va(words);
	__u32 cntr;

	memset(words, 0xff, PAGE);
	first.fd = dma_buf(&map);
	cntr = make((struct wanted) { .comp = &first, .err = &second, .comp_map = map });
	must(change(cntr, ENTRY_COMP, OP_SET, 5), 0, "set");
	must(change(cntr, ENTRY_ERR, OP_SET, 6), 0, "set_err");
	expect(map[0] == 5 && *(volatile __u64 *)words == 6, "a DMA-BUF, then memory");
	must(destroy(cntr), 0, "destroy");
	cntr = make((struct wanted) { .comp = &second, .err = &first, .err_map = map });
	must(change(cntr, ENTRY_COMP, OP_SET, 7), 0, "set");
	must(change(cntr, ENTRY_ERR, OP_SET, 8), 0, "set_err");
	expect(map[0] == 8 && *(volatile __u64 *)words == 7, "memory, then a DMA-BUF");
	expect(words[1] == ANY && !map[1], "words beside them");
}

static void external_memory_is_locked_memory_of_the_user(void)
{
	__u64 *words = aligned_alloc(PAGE, PAGE);
	struct buffer comp = va(words), err = va(words + 1);
	const struct wanted wanted = { .comp = &comp, .err = &err };
	const struct rlimit one_page = { PAGE, PAGE };
	__u32 cntr, other, i;

	memset(words, 0, PAGE);
	/* Each value locks its page. */
	become_user(2 * PAGE);
	for (i = 0; i < 3; i++) {
		must(create(wanted, &cntr), 0, "create");
		must(create(wanted, &other), ENOMEM, "one more");
		/* Memory of the kernel does not count as locked memory of the user. */
		must(destroy(usual_cntr()), 0, "destroy");
		must(change(cntr, ENTRY_COMP, OP_INC, 1), 0, "inc");
		counts(cntr, 1, 0);
		must(destroy(cntr), 0, "destroy");
	}
	expect(!setrlimit(RLIMIT_MEMLOCK, &one_page), "setrlimit");
	must(create(wanted, &cntr), ENOMEM, "one page for two values");
}

/* What two threads do while a third one sets a counter. */
#define INCREMENTS	1000

static __u32 raced;

/* By ioctl, the RDMA subsystem refuses a call while another one changes the counter. */
static int is_due(int ret)
{
#ifdef BY_NAME
	(void)ret;
	return 0;
#else
	return ret == EBUSY;
#endif
}

static void must_change(__u64 op, __u64 to)
{
	int ret;

	do
		ret = change(raced, ENTRY_COMP, op, to);
	while (is_due(ret));
	must(ret, 0, op == OP_SET ? "set" : "inc");
}

static __u64 raced_value(void)
{
	__u64 got;
	int ret;

	do
		ret = try_read(raced, ENTRY_COMP, &got);
	while (is_due(ret));
	must(ret, 0, "read");
	return got;
}

static void *increment(void *unused)
{
	int i;

	(void)unused;
	for (i = 0; i < INCREMENTS; i++)
		must_change(OP_INC, 1);
	return NULL;
}

static void a_set_loses_no_increment_of_other_threads(void)
{
	__u64 *words = aligned_alloc(PAGE, PAGE), last = 0, end;
	struct buffer comp = va(words), err = va(words + 1);
	const volatile __u64 *seen = words;
	pthread_t threads[2];
	int i;

	memset(words, 0, PAGE);
	raced = make((struct wanted) { .comp = &comp, .err = &err });
	for (i = 0; i < 2; i++)
		expect(!pthread_create(&threads[i], NULL, increment, NULL), "pthread_create");
	for (i = 0; i < INCREMENTS / 2; i++) {
		last += 1000000;
		must_change(OP_SET, last);
		end = raced_value();
		expect(end >= last && end <= last + 2 * INCREMENTS, "%llu after a set of %llu",
		       (unsigned long long)end, (unsigned long long)last);
	}
	for (i = 0; i < 2; i++)
		pthread_join(threads[i], NULL);
	end = raced_value();
	expect(end >= last && end <= last + 2 * INCREMENTS, "%llu in the end",
	       (unsigned long long)end);
	expect(seen[0] == end && !seen[1], "the memory has %llu and %llu",
	       (unsigned long long)seen[0], (unsigned long long)seen[1]);
	/* When nothing else changes the counter, it has the value that was set. */
	must_change(OP_SET, 3);
	counts(raced, 3, 0);
	for (i = 0; i < 2; i++)
		expect(!pthread_create(&threads[i], NULL, increment, NULL), "pthread_create");
	for (i = 0; i < 2; i++)
		pthread_join(threads[i], NULL);
	counts(raced, 3 + 2 * INCREMENTS, 0);
	expect(seen[0] == 3 + 2 * INCREMENTS, "the memory has not the last value");
}

static void memory_that_cannot_be_meant_is_refused(void)
{
	__u64 *words = aligned_alloc(PAGE, PAGE);
	volatile __u64 *map;
	struct buffer good = va(words), other = va(words + 1), bad;
	int fd = dma_buf(&map);
	const struct {
		struct buffer bad;
		int error;
	} rows[] = {
		{ va((char *)words + 12), EINVAL },
		{ va(words), EINVAL },
		{ va(NULL), EINVAL },
		{ va((void *)(8ul << 40)), EFAULT },
		{ { .type = BUFFER_VA, .addr = other.addr, .length = 4 }, EINVAL },
		{ { .type = BUFFER_VA, .addr = other.addr, .length = 8, .flags = 1 }, EINVAL },
		{ { .type = 2, .addr = other.addr, .length = 8 }, EINVAL },
		{ { .type = BUFFER_DMABUF, .fd = -1, .length = 8 }, EBADF },
		{ { .type = BUFFER_DMABUF, .fd = device->cmd_fd, .length = 8 }, EINVAL },
		{ { .type = BUFFER_DMABUF, .fd = fd, .addr = 4, .length = 8 }, EINVAL },
		{ { .type = BUFFER_DMABUF, .fd = fd, .addr = PAGE, .length = 8 }, EINVAL },
		{ { .type = BUFFER_DMABUF, .fd = fd, .addr = -8ull, .length = 8 }, EINVAL },
	};
	__u32 cntr, i;

	must(create((struct wanted) { .comp = &good }, &cntr), EINVAL, "one alone");
	must(create((struct wanted) { .err = &good }, &cntr), EINVAL, "the other alone");
	for (i = 0; i < sizeof(rows) / sizeof(rows[0]); i++) {
		int ret;

		bad = rows[i].bad;
		ret = create((struct wanted) { .comp = &good, .err = &bad }, &cntr);
		expect(ret == rows[i].error, "row %u: %s, not %s", i, strerror(ret),
		       strerror(rows[i].error));
	}
	must(create((struct wanted) { .comp = &good, .err = &other }, &cntr), 0, "two words");
}

static void the_largest_value_is_reported(void)
{
	struct kfabric_ib_comp_cntr_resp resp;
	__u32 max_counters, ops;
	__u64 max_value;

	make((struct wanted) { .resp = &resp });
	must(query_caps(&max_counters, &max_value, &ops), 0, "query_comp_cntr_caps");
	expect(max_counters == 4096 && ops == OP_ALL, "%u counters, operations %x",
	       max_counters, ops);
	expect(max_value == resp.max_value && max_value == ANY, "max_value");
}

static void an_increment_beyond_the_largest_value_wraps(void)
{
	__u32 cntr = usual_cntr();

	must(change(cntr, ENTRY_COMP, OP_SET, ANY), 0, "set");
	must(change(cntr, ENTRY_ERR, OP_SET, ANY), 0, "set_err");
	counts(cntr, ANY, ANY);
	must(change(cntr, ENTRY_COMP, OP_INC, 1), 0, "inc");
	must(change(cntr, ENTRY_ERR, OP_INC, 1), 0, "inc_err");
	counts(cntr, 0, 0);
}

static void so_many_counters_and_no_more(void)
{
	__u32 cntr, last = 0, i;

	for (i = 0; i < 4096; i++)
		last = usual_cntr();
	must(create((struct wanted) { 0 }, &cntr), ENOMEM, "one more");
	must(destroy(last), 0, "destroy");
	usual_cntr();
}

static void arguments_that_are_not_known_are_refused(void)
{
	const __u32 unit = 2;
	__u32 cntr = usual_cntr(), other;
	__u64 now;

	must(create((struct wanted) { .unit = &unit }, &other), EINVAL, "a unit");
	must(change(cntr, 2, OP_SET, 0), EINVAL, "an entry");
	must(change(cntr, ENTRY_COMP, 2, 0), EINVAL, "a change");
	must(try_read(cntr, 2, &now), EINVAL, "an entry to read");
	counts(cntr, 0, 0);
}

static void a_response_that_cannot_be_stored_leaves_nothing(void)
{
	struct wanted wanted = { .resp = (void *)(8ul << 40) };
	__u32 cntr;

	must(create(wanted, &cntr), EFAULT, "create");
	usual_cntr();
}

static void an_offset_is_of_one_context(void)
{
	struct kfabric_ib_comp_cntr_resp resp;
	struct ibv_context *first = device;

	make((struct wanted) { .resp = &resp });
	device = ibv_open_device(first->device);
	expect(device, "open_device");
	expect(!map_of(resp.mmap_offset, PROT_READ) && errno == EINVAL, "a mapping");
	expect(!ibv_close_device(device), "close_device");
	device = first;
	expect(map_of(resp.mmap_offset, PROT_READ), "mmap: %s", strerror(errno));
}

static void *use_counters(void *seed)
{
	unsigned int state = (unsigned long)seed;
	long long until = now() + 2000;

	while (now() < until) {
		struct kfabric_ib_comp_cntr_resp resp;
		__u32 handle = rand_r(&state) % 16, cntr;
		volatile __u64 *values;
		struct ibv_qp qp = { .handle = rand_r(&state) % 4 };
		__u64 got;
		int ret;

		ret = create((struct wanted) { .resp = &resp }, &cntr);
		if (ret)
			continue;
		values = map_of(resp.mmap_offset, PROT_READ);
		/* Handles of other threads, and handles of no object. */
		change(handle, ENTRY_COMP, OP_INC, 1);
		attach(&qp, handle, rand_r(&state) % 64);
		try_read(handle, ENTRY_ERR, &got);
		destroy(handle);
		if (values) {
			got = values[0];
			munmap((void *)values, PAGE);
		}
		destroy(cntr);
	}
	return NULL;
}

static void threads_use_counters_at_once(void)
{
	pthread_t threads[4];
	unsigned long i;

	ends(IBV_QPT_RC);
	for (i = 0; i < 4; i++)
		expect(!pthread_create(&threads[i], NULL, use_counters, (void *)(i + 1)),
		       "pthread_create");
	for (i = 0; i < 4; i++)
		pthread_join(threads[i], NULL);
	connect_ends(7);
	send_one(IBV_WR_RDMA_WRITE, 64, IBV_SEND_SIGNALED);
	entry(a.sends, 1, IBV_WC_SUCCESS);
}

static void unmap(int number)
{
	(void)number;
}

/* This is no sentence of the page: a mapping outlives the device. */
static void hold(void)
{
	struct sigaction action = { .sa_handler = unmap };
	__u32 cntr;
	volatile __u64 *values = mapped(&cntr);

	sigaction(SIGUSR1, &action, NULL);
	must(change(cntr, ENTRY_COMP, OP_SET, 5), 0, "set");
	ends(IBV_QPT_RC);
	must_attach(&a, cntr, OP_ALL);
	puts("held");
	fflush(stdout);
	pause();
	expect(values[0] == 5, "the values have gone");
	expect(!map_of(PAGE, PROT_READ), "a mapping without a device");
	expect(!munmap((void *)values, PAGE), "munmap");
	puts("released");
	fflush(stdout);
	pause();
}

static const struct test tests[] = {
	TEST(a_new_counter_is_of_the_context_and_zero),
	TEST(a_counter_is_destroyed),
	TEST(an_attached_counter_is_busy_by_verbs),
	TEST(each_count_is_set_and_incremented_by_verbs),
	TEST(the_memory_is_internal_and_mapped_read_only),
	TEST(a_child_has_the_mapping),
	TEST(memory_of_the_program_has_the_counts),
	TEST(what_a_program_writes_changes_no_value),
	TEST(a_dma_buf_has_the_counts),
	TEST(each_value_has_a_location_of_its_own),
	TEST(external_memory_is_locked_memory_of_the_user),
	TEST(a_set_loses_no_increment_of_other_threads),
	TEST(memory_that_cannot_be_meant_is_refused),
	TEST(the_largest_value_is_reported),
	TEST(an_increment_beyond_the_largest_value_wraps),
	TEST(so_many_counters_and_no_more),
	TEST(arguments_that_are_not_known_are_refused),
	TEST(a_response_that_cannot_be_stored_leaves_nothing),
	TEST(an_offset_is_of_one_context),
	TEST(threads_use_counters_at_once),
};

int main(int argc, char **argv)
{
	static const struct test held[] = { TEST(hold) };

	if (argc == 4 && !strcmp(argv[3], "hold"))
		return run_test(argc, argv, held, 1);
	return run_test(argc, argv, tests, sizeof(tests) / sizeof(tests[0]));
}
