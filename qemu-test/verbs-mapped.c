// SPDX-License-Identifier: GPL-2.0
/*
 * verbs-mapped: CQs whose entries libkfabric reads from mapped memory, parent domains,
 * and objects that are imported.
 *
 *	verbs-mapped DEVICE GID_INDEX TEST
 *	verbs-mapped --list
 */

#define _GNU_SOURCE
#include <linux/filter.h>
#include <linux/seccomp.h>
#include <sched.h>
#include <sys/ioctl.h>
#include <sys/prctl.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include "verbs-ends.h"
#include "verbs-wr.h"

#include <infiniband/kfdv.h>

/* The most polls for an entry: a clock would need a system call. */
#define TURNS	(1ul << 31)

/* From here on the program may only read, write and exit. */
static void no_calls(void)
{
	fflush(stderr);
	expect(!prctl(PR_SET_SECCOMP, SECCOMP_MODE_STRICT), "seccomp: %s", strerror(errno));
}

static void __attribute__((noreturn)) leave(const char *failure)
{
	if (failure && write(2, failure, strlen(failure)) < 0)
		failure = "";
	syscall(SYS_exit, !!failure);
	__builtin_unreachable();
}

static void send_of_a(__u64 id)
{
	struct ibv_sge one = sge(&a, 0, 64);
	struct ibv_send_wr send = wr(id, IBV_WR_SEND, &one, 1);

	must_post(&a, &send);
}

/* ibv_poll_cq(3): polling makes no system call, not even for an empty CQ. */
static void polling_makes_no_call(void)
{
	struct ibv_wc wc[4];
	unsigned long turns;
	__u64 sends = 0, receives = 0;
	int i, got;

	pair(IBV_QPT_RC);
	for (i = 0; i < 10; i++)
		receive(&b, i, 0, 64);
	for (i = 0; i < 10; i++)
		send_of_a(i);
	no_calls();
	for (turns = 0; (sends < 10 || receives < 10) && turns < TURNS; turns++) {
		got = ibv_poll_cq(a.sends, 4, wc);
		for (i = 0; i < got; i++)
			if (wc[i].wr_id != sends++ || wc[i].status != IBV_WC_SUCCESS)
				leave("a wrong entry of a send\n");
		got = ibv_poll_cq(b.receives, 4, wc);
		for (i = 0; i < got; i++)
			if (wc[i].wr_id != receives++ || wc[i].byte_len != 64)
				leave("a wrong entry of a receive\n");
	}
	if (ibv_poll_cq(a.sends, 1, wc))
		leave("one more entry\n");
	leave(sends == 10 && receives == 10 ? NULL : "not all entries came\n");
}

/* ibv_read_comp_cntr() of rdma-core 65, and the value itself, without a call. */
static void reading_a_counter_makes_no_call(void)
{
	struct ibv_comp_cntr_init_attr init = { .type = IBV_COMP_CNTR_TYPE_BYTES };
	struct ibv_qp_attach_comp_cntr_attr attr = {
		.op_mask = IBV_QP_ATTACH_COMP_CNTR_OP_SEND,
	};
	struct ibv_comp_cntr *cntr = ibv_create_comp_cntr(device, &init);
	struct kfdv_comp_cntr places;
	unsigned long turns;
	uint64_t got = 0;
	int i;

	make_end(&a, IBV_QPT_RC, 0);
	make_end(&b, IBV_QPT_RC, 0);
	expect(cntr && !kfdv_query_comp_cntr(cntr, &places, sizeof(places)), "no counter");
	expect(!ibv_qp_attach_comp_cntr(a.qp, cntr, &attr), "attach");
	connect_ends(7);
	for (i = 0; i < 10; i++)
		receive(&b, i, 0, 64);
	for (i = 0; i < 10; i++)
		send_of_a(i);
	no_calls();
	for (turns = 0; got != 640 && turns < TURNS; turns++)
		if (ibv_read_comp_cntr(cntr, &got))
			leave("read_comp_cntr fails\n");
	if (*(const volatile uint64_t *)places.comp_count != 640)
		leave("the mapped value is another\n");
	if (ibv_read_err_comp_cntr(cntr, &got) || got)
		leave("errors were counted\n");
	leave(NULL);
}

/* The system calls of the thread that has called count_calls(): another one lets each pass. */
static volatile int listener = -1;
static volatile int calls, last_call;

static void *let_pass(void *unused)
{
	struct seccomp_notif_resp answer;
	struct seccomp_notif call;

	(void)unused;
	while (listener < 0)
		sched_yield();
	for (;;) {
		memset(&call, 0, sizeof(call));
		if (ioctl(listener, SECCOMP_IOCTL_NOTIF_RECV, &call))
			continue;
		last_call = call.data.nr;
		calls++;
		answer = (struct seccomp_notif_resp) {
			.id = call.id,
			.flags = SECCOMP_USER_NOTIF_FLAG_CONTINUE,
		};
		ioctl(listener, SECCOMP_IOCTL_NOTIF_SEND, &answer);
	}
	return NULL;
}

static void count_calls(void)
{
	struct sock_filter all = BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_USER_NOTIF);
	struct sock_fprog filter = { .len = 1, .filter = &all };
	pthread_t thread;

	expect(!pthread_create(&thread, NULL, let_pass, NULL), "pthread_create");
	expect(!prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0), "no_new_privs");
	listener = syscall(SYS_seccomp, SECCOMP_SET_MODE_FILTER, SECCOMP_FILTER_FLAG_NEW_LISTENER,
			   &filter);
	expect(listener >= 0, "seccomp: %s", strerror(errno));
}

/* Sixteen WRITEs by ibv_wr_start(3). */
static void batch(struct ibv_qp_ex *qp)
{
	int i, ret;

	ibv_wr_start(qp);
	for (i = 0; i < WRS; i++) {
		qp->wr_id = i;
		qp->wr_flags = IBV_SEND_SIGNALED;
		ibv_wr_rdma_write(qp, b.mr->rkey, (__u64)(unsigned long)b.memory + 64 * i);
		ibv_wr_set_sge(qp, a.mr->lkey, (__u64)(unsigned long)a.memory + 64 * i, 64);
	}
	ret = ibv_wr_complete(qp);
	expect(!ret, "wr_complete: %s", strerror(ret));
}

static void took_one_call(int before, const char *what)
{
	int made = calls - before, i;

	expect(made == 1, "%s: %d calls, the last one %d", what, made, last_call);
	for (i = 0; i < WRS; i++)
		entry(a.sends, i, IBV_WC_SUCCESS);
}

/* ibv_wr_post(3), ibv_post_send(3): a batch, and a list, are posted by one system call. */
static void a_batch_of_work_requests_is_one_call(void)
{
	struct ibv_qp_init_attr_ex init = {
		.qp_type = IBV_QPT_RC,
		.cap = { .max_send_wr = WRS, .max_recv_wr = WRS, .max_send_sge = 1,
			 .max_recv_sge = 1 },
		.send_ops_flags = IBV_QP_EX_WITH_RDMA_WRITE,
	};
	struct ibv_send_wr list[WRS];
	struct ibv_qp_ex *qp;
	struct ibv_sge one;
	int i, before;

	make_end(&a, IBV_QPT_RC, 0);
	make_end(&b, IBV_QPT_RC, 0);
	qp = extend(&a, init);
	expect(qp, "no extended QP: %s", strerror(errno));
	connect_ends(7);
	one = sge(&a, 0, 64);
	for (i = 0; i < WRS; i++) {
		list[i] = wr(i, IBV_WR_RDMA_WRITE, &one, 1);
		remote(&list[i], &b, 64 * i);
		list[i].next = i < WRS - 1 ? &list[i + 1] : NULL;
	}
	count_calls();
	before = calls;
	getppid();
	expect(calls == before + 1, "a call is not counted");
	/* The first batch and the first list allocate memory. */
	batch(qp);
	for (i = 0; i < WRS; i++)
		entry(a.sends, i, IBV_WC_SUCCESS);
	fill(&a, 0, 64 * WRS, 3);
	before = calls;
	batch(qp);
	took_one_call(before, "a batch");
	check(&b, 0, 64 * WRS, 3);
	must_post(&a, list);
	for (i = 0; i < WRS; i++)
		entry(a.sends, i, IBV_WC_SUCCESS);
	before = calls;
	must_post(&a, list);
	took_one_call(before, "a list");
}

/* Ten entries in a.receives, which are in order. */
static void ten_entries(void)
{
	int i;

	make_end(&a, IBV_QPT_RC, 0);
	to_init(&a);
	for (i = 0; i < 10; i++)
		receive(&a, i, 0, 64);
	expect(!modify(&a, IBV_QPS_ERR), "ERR");
	/* All have come when the last one has. */
	pause_ms(200);
}

/* ibv_resize_cq(3): entries that wait stay. */
static void entries_that_wait_survive_a_resize(void)
{
	int i;

	ten_entries();
	for (i = 0; i < 3; i++)
		entry(a.receives, i, IBV_WC_WR_FLUSH_ERR);
	expect(!ibv_resize_cq(a.receives, 1000) && a.receives->cqe >= 1000, "a larger one");
	for (; i < 5; i++)
		entry(a.receives, i, IBV_WC_WR_FLUSH_ERR);
	expect(!ibv_resize_cq(a.receives, 5) && a.receives->cqe < 1000, "a smaller one");
	for (; i < 10; i++)
		entry(a.receives, i, IBV_WC_WR_FLUSH_ERR);
	/* Later entries are in the new memory. */
	receive(&a, 50, 0, 64);
	entry(a.receives, 50, IBV_WC_WR_FLUSH_ERR);
	no_entry(a.receives);
}

/* ibv_resize_cq(3): a size that has no room for the entries that wait is refused. */
static void a_resize_below_the_entries_is_refused(void)
{
	int i, ret;

	ten_entries();
	ret = ibv_resize_cq(a.receives, 1);
	expect(ret == EINVAL, "resize: %s", strerror(ret));
	for (i = 0; i < 10; i++)
		entry(a.receives, i, IBV_WC_WR_FLUSH_ERR);
}

/* Entries that take() has taken. */
static int taken;

static void *take(void *unused)
{
	struct ibv_wc wc;
	int i;

	for (i = 0; i < 2000; i++) {
		expect(poll_for(b.receives, &wc, SECONDS * 1000), "no entry %d", i);
		expect(wc.wr_id == (__u64)i, "entry %llu, not %d", (unsigned long long)wc.wr_id, i);
		__atomic_store_n(&taken, i + 1, __ATOMIC_RELAXED);
	}
	return unused;
}

/* ibv_resize_cq(3): entries survive also while they come and another thread takes them. */
static void a_cq_is_resized_while_it_is_polled(void)
{
	pthread_t thread;
	int i;

	pair(IBV_QPT_RC);
	expect(!pthread_create(&thread, NULL, take, NULL), "pthread_create");
	for (i = 0; i < 2000; i++) {
		receive(&b, i, 0, 64);
		send_of_a(i);
		entry(a.sends, i, IBV_WC_SUCCESS);
		if (!(i % 20))
			expect(!ibv_resize_cq(b.receives, 4 * WRS << (i / 20 % 4)), "resize");
		/* The smallest size has room for the entries that wait. */
		while (i - __atomic_load_n(&taken, __ATOMIC_RELAXED) > 2 * WRS)
			sched_yield();
	}
	expect(!pthread_join(thread, NULL), "pthread_join");
}

/* ibv_create_cq(3), ibv_get_async_event(3): an overrun has an event. */
static void an_overrun_has_its_event(void)
{
	struct ibv_qp_init_attr init = usual(IBV_QPT_RC);
	struct ibv_cq *small = ibv_create_cq(device, 2, NULL, NULL, 0);
	int i;

	expect(small && small->cqe < WRS, "a small CQ has %d entries", small ? small->cqe : 0);
	make_end(&a, IBV_QPT_RC, 0);
	init.recv_cq = small;
	other_qp(&a, init);
	to_init(&a);
	for (i = 0; i <= small->cqe; i++)
		receive(&a, i, 0, 64);
	expect(!modify(&a, IBV_QPS_ERR), "ERR");
	expect(event(IBV_EVENT_CQ_ERR).element.cq == small, "the event's CQ");
	for (i = 0; i < small->cqe; i++)
		entry(small, i, IBV_WC_WR_FLUSH_ERR);
}

/* ibv_req_notify_cq(3): one event for a CQ that was armed, for entries that are mapped. */
static void an_armed_cq_has_one_event(void)
{
	int i;

	pair(IBV_QPT_RC);
	expect(!ibv_req_notify_cq(b.receives, 0), "req_notify_cq");
	for (i = 0; i < 4; i++)
		receive(&b, i, 0, 64);
	for (i = 0; i < 2; i++)
		send_of_a(i);
	expect(waiting_events(b.channel) == 1, "not one event for two entries");
	entry(b.receives, 0, IBV_WC_SUCCESS);
	entry(b.receives, 1, IBV_WC_SUCCESS);
	send_of_a(2);
	entry(b.receives, 2, IBV_WC_SUCCESS);
	expect(!waiting_events(b.channel), "an event of a CQ that is not armed");
	/* ibv_resize_cq(3): it stays armed. */
	expect(!ibv_req_notify_cq(b.receives, 0), "req_notify_cq");
	expect(!ibv_resize_cq(b.receives, 8 * WRS), "resize_cq");
	send_of_a(3);
	expect(waiting_events(b.channel) == 1, "no event");
	entry(b.receives, 3, IBV_WC_SUCCESS);
}

/* The other process: it opens the device itself. */
static int go_on(void)
{
	const char *name = ibv_get_device_name(device->device);
	int i;

	open_device(name);
	pair(IBV_QPT_RC);
	for (i = 0; i < 3000; i++) {
		receive(&b, i, 0, 64);
		send_of_a(i);
		entry(a.sends, i, IBV_WC_SUCCESS);
		entry(b.receives, i, IBV_WC_SUCCESS);
	}
	return 0;
}

/* The rings of this process, as the kernel lists them: they have a file of kfabric.ko. */
static int rings(unsigned long (*list)[2], int room)
{
	FILE *maps = fopen("/proc/self/maps", "r");
	char line[512];
	int found = 0;

	expect(maps, "no maps");
	while (fgets(line, sizeof(line), maps))
		if (strstr(line, "rw-s") && strstr(line, "anon_inode") && found < room &&
		    sscanf(line, "%lx-%lx", &list[found][0], &list[found][1]) == 2)
			found++;
	fclose(maps);
	return found;
}

/* Invalid values in the head and the entries harm the program alone. */
static void nonsense_harms_nobody_else(void)
{
	unsigned long list[8][2], i;
	long long until;
	unsigned int seed = 7;
	struct ibv_wc wc[8];
	int status, count;
	pid_t child;

	child = fork();
	if (!child)
		_exit(go_on());
	pair(IBV_QPT_RC);
	count = rings(list, 8);
	expect(count == 4, "%d rings", count);
	for (until = now() + 3000; now() < until;) {
		struct ibv_sge one = sge(&a, 0, 64);
		struct ibv_send_wr send = wr(1, IBV_WR_SEND, &one, 1);
		struct ibv_recv_wr receive = { .sg_list = &one, .num_sge = 1 }, *bad;

		ibv_post_recv(b.qp, &receive, &bad);
		post(&a, &send);
		for (i = 0; i < 64; i++) {
			unsigned long *ring = list[rand_r(&seed) % count];
			unsigned long at = rand_r(&seed) % 4 ? 64 : rand_r(&seed) % 2048 * 8;

			if (at < ring[1] - ring[0])
				*(volatile __u64 *)(ring[0] + at) = rand_r(&seed) % 2 ?
					(__u64)rand_r(&seed) : ~0ull << rand_r(&seed) % 64;
		}
		ibv_poll_cq(a.sends, 8, wc);
		ibv_poll_cq(b.receives, 8, wc);
		ibv_resize_cq(a.sends, 32 << rand_r(&seed) % 3);
		count = rings(list, 8);
	}
	expect(!ibv_destroy_qp(a.qp) && !ibv_destroy_qp(b.qp), "destroy_qp");
	expect(!ibv_destroy_cq(a.sends) && !ibv_destroy_cq(b.receives), "destroy_cq");
	expect(waitpid(child, &status, 0) == child && !status, "the other process fails");
}

/* ibv_alloc_td(3), ibv_alloc_parent_domain(3). */
static void a_parent_domain_stands_for_its_pd(void)
{
	struct ibv_td_init_attr init = { 0 }, unknown = { .comp_mask = 1 };
	struct ibv_parent_domain_init_attr attr = { 0 };
	struct ibv_pd *pd = ibv_alloc_pd(device), *parent;
	struct ibv_td *td = ibv_alloc_td(device, &init);
	struct ibv_cq_init_attr_ex cq = {
		.cqe = 2 * WRS,
		.comp_mask = IBV_CQ_INIT_ATTR_MASK_PD,
	};
	struct ibv_qp_init_attr qp = usual(IBV_QPT_RC);
	struct ibv_cq_ex *single;
	struct ibv_mr *mr;

	expect(pd && td, "no PD or thread domain");
	expect(!ibv_alloc_td(device, &unknown) && errno == EOPNOTSUPP, "an unknown attribute");
	expect(!ibv_alloc_parent_domain(device, &attr) && errno == EINVAL, "without a PD");
	attr.pd = pd;
	attr.td = td;
	attr.comp_mask = 1 << 20;
	expect(!ibv_alloc_parent_domain(device, &attr) && errno == EOPNOTSUPP, "a mask");
	attr.comp_mask = 0;
	parent = ibv_alloc_parent_domain(device, &attr);
	expect(parent && parent->handle == pd->handle, "no parent domain: %s", strerror(errno));
	expect(ibv_dealloc_td(td) == EBUSY && ibv_dealloc_pd(pd) == EBUSY, "what it has");

	cq.parent_domain = pd;
	expect(!ibv_create_cq_ex(device, &cq) && errno == EINVAL, "a CQ with a plain PD");
	cq.parent_domain = parent;
	single = ibv_create_cq_ex(device, &cq);
	expect(single, "no CQ: %s", strerror(errno));
	make_end(&a, IBV_QPT_RC, 0);
	make_end(&b, IBV_QPT_RC, 0);
	a.pd = parent;
	qp.send_cq = ibv_cq_ex_to_cq(single);
	other_qp(&a, qp);
	mr = ibv_reg_mr(parent, a.memory, REGION, ACCESS);
	expect(mr && mr->pd == parent, "no region");
	connect_ends(7);
	a.mr = mr;
	receive(&b, 1, 0, 64);
	send_of_a(1);
	entry(qp.send_cq, 1, IBV_WC_SUCCESS);
	entry(b.receives, 1, IBV_WC_SUCCESS);

	expect(!ibv_destroy_qp(a.qp) && !ibv_dereg_mr(mr) && !ibv_destroy_cq(qp.send_cq),
	       "objects of the parent domain");
	expect(!ibv_dealloc_pd(parent), "dealloc_pd of a parent domain");
	expect(!ibv_dealloc_td(td) && !ibv_dealloc_pd(pd), "what it had");
}

/* ibv_import_device(3), ibv_import_pd(3), ibv_import_mr(3). */
static void objects_are_imported(void)
{
	struct ibv_context *first = device;
	struct ibv_qp_init_attr qp = usual(IBV_QPT_RC);
	struct ibv_pd *pd, *own;
	struct ibv_mr *mr, *given;

	make_end(&a, IBV_QPT_RC, 0);
	make_end(&b, IBV_QPT_RC, 0);
	own = a.pd;
	given = a.mr;
	expect(!ibv_destroy_qp(a.qp), "destroy_qp");
	device = ibv_import_device(dup(first->cmd_fd));
	expect(device, "import_device: %s", strerror(errno));
	expect(device->num_comp_vectors == first->num_comp_vectors, "num_comp_vectors");
	pd = ibv_import_pd(device, own->handle);
	expect(pd, "import_pd: %s", strerror(errno));
	errno = 0;
	expect(!ibv_import_mr(pd, given->handle + 1000) && errno == ENOENT, "no region: %s",
	       strerror(errno));
	mr = ibv_import_mr(pd, given->handle);
	expect(mr && mr->lkey == given->lkey && mr->rkey == given->rkey &&
	       mr->length == given->length && !mr->addr, "import_mr");
	a.pd = pd;
	a.mr = mr;
	a.sends = ibv_create_cq(device, WRS, NULL, NULL, 0);
	a.receives = ibv_create_cq(device, WRS, NULL, NULL, 0);
	expect(a.sends && a.receives, "no CQ of an imported device: %s", strerror(errno));
	a.qp = NULL;
	other_qp(&a, qp);
	connect_ends(7);
	receive(&b, 1, 0, 64);
	send_of_a(1);
	entry(a.sends, 1, IBV_WC_SUCCESS);
	expect(!ibv_destroy_qp(a.qp) && !ibv_destroy_cq(a.sends) &&
	       !ibv_destroy_cq(a.receives), "destroy");
	ibv_unimport_mr(mr);
	ibv_unimport_pd(pd);
	expect(!ibv_close_device(device), "close_device");
	/* The objects of the first context are still there. */
	device = first;
	expect(!ibv_dereg_mr(given), "dereg_mr");
}

static const struct test tests[] = {
	TEST(polling_makes_no_call),
	TEST(reading_a_counter_makes_no_call),
	TEST(a_batch_of_work_requests_is_one_call),
	TEST(entries_that_wait_survive_a_resize),
	TEST(a_resize_below_the_entries_is_refused),
	TEST(a_cq_is_resized_while_it_is_polled),
	TEST(an_overrun_has_its_event),
	TEST(an_armed_cq_has_one_event),
	TEST(nonsense_harms_nobody_else),
	TEST(a_parent_domain_stands_for_its_pd),
	TEST(objects_are_imported),
};

int main(int argc, char **argv)
{
	return run_test(argc, argv, tests, sizeof(tests) / sizeof(tests[0]));
}
