// SPDX-License-Identifier: GPL-2.0
/*
 * verbs-rings: CQs that their program maps, by ioctl: tests of calls that no library makes.
 *
 *	verbs-rings DEVICE GID_INDEX TEST
 *	verbs-rings --list
 */

#define _GNU_SOURCE
#include <pthread.h>

#include "verbs-raw.h"

/* Whether the offset of a CQ still selects its memory. */
static int is_there(const struct mapped_cq *cq)
{
	struct mapped_cq again = { .resp = cq->resp };

	if (map_cq(&again))
		return 0;
	unmap_cq(&again);
	return 1;
}

static volatile int stop;

/* Makes a page writable and read-only by turns. */
static void *protect(void *page)
{
	while (!stop)
		if (mprotect(page, PAGE, PROT_READ) || mprotect(page, PAGE, PROT_READ | PROT_WRITE))
			break;
	return NULL;
}

/*
 * ibv_resize_cq(3): a resize that fails because its answer cannot be stored changes
 * nothing, whenever that is found.
 */
static void a_resize_without_an_answer_changes_nothing(void)
{
	struct kfabric_ib_cq_resp *answer;
	int refused = 0, done = 0, ret;
	long long until = now() + 3000;
	struct mapped_cq cq;
	pthread_t thread;

	answer = mmap(NULL, PAGE, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
	expect(answer != MAP_FAILED, "mmap: %s", strerror(errno));
	must(create_mapped_cq(&cq, 64, -1), 0, "create_cq");
	expect(!pthread_create(&thread, NULL, protect, answer), "pthread_create");
	while (now() < until) {
		ret = resize_cq(&cq, 64 << (refused + done) % 4, answer, sizeof(*answer));
		if (ret) {
			must(ret, EFAULT, "resize_cq");
			refused++;
		} else {
			cq.resp = *answer;
			done++;
		}
		expect(is_there(&cq), "the memory has gone after %d resizes, of which %d failed",
		       refused + done, refused);
	}
	stop = 1;
	pthread_join(thread, NULL);
	expect(refused && done, "%d resizes, %d failed", done, refused);
	must(destroy_cq(cq.handle), 0, "destroy_cq");
}

/* A program that gives no room for the answer could not map its CQ. */
static void an_answer_needs_room(void)
{
	struct kfabric_ib_cq_resp answer;
	struct mapped_cq cq;
	__u32 len;

	must(create_mapped_cq(&cq, 64, -1), 0, "create_cq");
	for (len = 0; len < sizeof(answer); len += 12) {
		must(resize_cq(&cq, 100, &answer, len), EINVAL, "resize_cq");
		expect(is_there(&cq), "the memory has gone");
	}
	must(destroy_cq(cq.handle), 0, "destroy_cq");
}

/* The size that a CQ reports is not above the limit, and a new CQ can have it. */
static void a_size_that_is_reported_can_be_asked_for(void)
{
	static const int less[] = { 0, 1, 65535, 65536, 131071 };
	struct ibv_device_attr dev;
	struct mapped_cq cq;
	unsigned int i;

	expect(!ibv_query_device(device, &dev), "query_device");
	for (i = 0; i < sizeof(less) / sizeof(less[0]); i++) {
		__u32 entries = dev.max_cqe - less[i];

		must(create_mapped_cq(&cq, entries, -1), 0, "create_cq");
		expect(cq.resp.entries >= entries && cq.resp.entries <= (__u32)dev.max_cqe,
		       "%u entries, of %u, for %u", cq.resp.entries, dev.max_cqe, entries);
		must(resize_mapped_cq(&cq, cq.resp.entries), 0, "resize_cq");
		expect(is_there(&cq), "mmap: %s", strerror(errno));
		must(destroy_cq(cq.handle), 0, "destroy_cq");
	}
	must(create_mapped_cq(&cq, dev.max_cqe + 1, -1), EINVAL, "create_cq");
}

/* The files that are open in the whole system. */
static long files(void)
{
	FILE *file = fopen("/proc/sys/fs/file-nr", "r");
	long count = 0;

	expect(file && fscanf(file, "%ld", &count) == 1, "file-nr");
	fclose(file);
	return count;
}

#define RINGS	200

/* GET_CONTEXT by write(2), for a descriptor that has a context. */
static int second_context(void)
{
	struct ib_uverbs_get_context_resp resp;
	struct {
		struct ib_uverbs_cmd_hdr hdr;
		struct ib_uverbs_get_context body;
	} request = {
		.hdr = {
			.command = IB_USER_VERBS_CMD_GET_CONTEXT,
			.in_words = sizeof(request) / 4,
			.out_words = sizeof(resp) / 4,
		},
		.body.response = (unsigned long)&resp,
	};

	return write(device->cmd_fd, &request, sizeof(request)) < 0 ? errno : 0;
}

/* All mappings of a context have one file, and a descriptor has one context. */
static void a_context_has_one_file_for_its_mappings(void)
{
	static struct mapped_cq cqs[RINGS];
	long before = files(), more;
	int i;

	for (i = 0; i < RINGS; i++) {
		must(create_mapped_cq(&cqs[i], 1, -1), 0, "create_cq");
		if (i == RINGS / 2)
			must(second_context(), EINVAL, "a second context");
		must(map_cq(&cqs[i]), 0, "mmap");
	}
	more = files() - before;
	/* Others open and close files, too. */
	expect(more < RINGS / 2, "%d mappings have %ld files", RINGS, more);
	for (i = 0; i < RINGS; i++) {
		unmap_cq(&cqs[i]);
		must(destroy_cq(cqs[i].handle), 0, "destroy_cq");
	}
}

static const struct test tests[] = {
	TEST(a_resize_without_an_answer_changes_nothing),
	TEST(an_answer_needs_room),
	TEST(a_size_that_is_reported_can_be_asked_for),
	TEST(a_context_has_one_file_for_its_mappings),
};

int main(int argc, char **argv)
{
	return run_test(argc, argv, tests, sizeof(tests) / sizeof(tests[0]));
}
