// SPDX-License-Identifier: GPL-2.0
/*
 * verbs-held: a program with every kind of object of verbs, in use, until it is killed or
 * a request fails.
 *
 *	verbs-held DEVICE GID_INDEX [leave|hang]
 *
 * It prints "held" when it has them, and then writes from one QP to the other, with a
 * mapped CQ that is armed all the time. After SIGUSR1 it prints "works" when a hundred more
 * requests have succeeded and been counted. With "leave" it opens the device, and makes the
 * objects in the first network namespace. With "hang" it prints "held" and makes a call that
 * does not end, because it waits for memory that nobody provides. The module is loaded with
 * ipath=1.
 */

#define _GNU_SOURCE
#include <linux/userfaultfd.h>
#include <sched.h>
#include <signal.h>
#include <sys/syscall.h>

#include "verbs-raw.h"

static struct mapped_cq cq;
static __u64 *words;
/* The counter of the requests, mapped. */
static volatile __u64 *counter;
static volatile sig_atomic_t asked;

/* The sends of a go to a mapped CQ. */
static void connected(void)
{
	static struct ibv_cq mapped;
	struct ibv_qp_init_attr init = usual(IBV_QPT_RC);

	with_srq = 1;
	make_end(&a, IBV_QPT_RC, 0);
	make_end(&b, IBV_QPT_RC, 0);
	must(create_mapped_cq(&cq, 64, a.channel->fd), 0, "create_cq");
	must(map_cq(&cq), 0, "mmap");
	must(resize_mapped_cq(&cq, 256), 0, "resize_cq");
	must(map_cq(&cq), 0, "mmap");
	mapped.context = device;
	mapped.handle = cq.handle;
	init.send_cq = &mapped;
	init.srq = a.srq;
	other_qp(&a, init);
}

static void counted(void)
{
	struct kfabric_ib_comp_cntr_resp resp;
	struct buffer comp = { .type = BUFFER_VA, .length = 8 };
	struct buffer err = { .type = BUFFER_DMABUF, .fd = one_page(), .addr = 64, .length = 8 };
	__u32 mr;

	words = aligned_alloc(PAGE, PAGE);
	memset(words, 0, PAGE);
	comp.addr = (__u64)(unsigned long)words;
	must_attach(&a, make((struct wanted) { .resp = &resp }), OP_ALL);
	counter = map_of(resp.mmap_offset, PROT_READ);
	expect(counter, "mmap of a counter");
	must_attach(&b, make((struct wanted) { .comp = &comp, .err = &err }), OP_ALL);
	must(register_page(a.pd->handle, err.fd, &mr), 0, "reg_dmabuf_mr");
}

static void datagrams(void)
{
	struct ibv_qp_init_attr init = usual(IBV_QPT_UD);
	__u32 counters, live, handle;
	struct ibv_qp *qp;
	union flow flow;

	init.send_cq = a.sends;
	init.recv_cq = a.receives;
	qp = ibv_create_qp(a.pd, &init);
	expect(qp, "no QP for datagrams");
	expect(make_ah(), "no address handle");
	must(create_counters(&counters), 0, "create_counters");
	must(attach_point(counters, NO_FLOW, 0, 0), 0, "attach");
	must(create_counters(&live), 0, "create_counters");
	flow = flow_of(qp);
	count_into(&flow, counters);
	must(create_flow(&flow, &handle), 0, "create_flow");
	flow = flow_of(qp);
	must(create_flow(&flow, &handle), 0, "create_flow");
	must(attach_point(live, handle, 1, 1), 0, "attach");
}

static void arm_cq(void)
{
	union call call = begin(UVERBS_OBJECT_DEVICE, UVERBS_METHOD_INVOKE_WRITE);
	struct ib_uverbs_req_notify_cq notify = { .cq_handle = cq.handle };

	memory_attr(&call, UVERBS_ATTR_CORE_IN, sizeof(notify), &notify);
	attr(&call, UVERBS_ATTR_WRITE_CMD, 8, IB_USER_VERBS_CMD_REQ_NOTIFY_CQ);
	must(run(&call), 0, "req_notify_cq");
}

static void ask(int number)
{
	asked = number;
}

/* The requests up to number @tail have completed; those up to @done were checked before. */
static void see(__u64 done, __u64 tail)
{
	const struct kfabric_ib_cqe *entries = (const void *)(cq.ring + 1);
	__u32 status;

	for (; done < tail; done++) {
		status = entries[done & (cq.resp.entries - 1)].status;
		expect(!status, "a request failed: %s", ibv_wc_status_str(status));
	}
}

/* Eight requests at a time. */
static void write_on(void)
{
	struct kfabric_ib_cq_ring *ring = cq.ring;
	struct ibv_sge one = sge(&a, 0, REGION / 8);
	struct ibv_send_wr send = wr(1, IBV_WR_RDMA_WRITE, &one, 1);
	__u64 posted = 0, done = 0, tail, until = 0;

	remote(&send, &b, 0);
	for (;;) {
		while (posted < done + 8) {
			must_post(&a, &send);
			posted++;
		}
		arm_cq();
		tail = __atomic_load_n(&ring->tail, __ATOMIC_ACQUIRE);
		see(done, tail);
		done = tail;
		__atomic_store_n(&ring->head, done, __ATOMIC_RELEASE);
		if (asked) {
			asked = 0;
			until = done + 100;
		}
		if (until && done >= until) {
			expect(*counter >= done, "%llu requests are counted of %llu",
			       (unsigned long long)*counter, (unsigned long long)done);
			until = 0;
			puts("works");
			fflush(stdout);
		}
	}
}

static void leave(void)
{
	int fd = open("/proc/1/ns/net", O_RDONLY | O_CLOEXEC);

	expect(fd >= 0 && !setns(fd, CLONE_NEWNET), "setns: %s", strerror(errno));
	close(fd);
}

/* Registers memory whose page the program itself would have to provide. */
static void hang(void)
{
	struct uffdio_api api = { .api = UFFD_API };
	struct uffdio_register range = { .mode = UFFDIO_REGISTER_MODE_MISSING };
	struct ibv_pd *pd = ibv_alloc_pd(device);
	int fd = syscall(SYS_userfaultfd, O_CLOEXEC);
	void *page = mmap(NULL, PAGE, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);

	range.range.start = (__u64)(unsigned long)page;
	range.range.len = PAGE;
	expect(pd && page != MAP_FAILED && fd >= 0 && !ioctl(fd, UFFDIO_API, &api) &&
	       !ioctl(fd, UFFDIO_REGISTER, &range), "userfaultfd: %s", strerror(errno));
	puts("held");
	fflush(stdout);
	ibv_reg_mr(pd, page, PAGE, IBV_ACCESS_LOCAL_WRITE);
	errx(1, "the call has ended: %s", strerror(errno));
}

int main(int argc, char **argv)
{
	struct sigaction action = { .sa_handler = ask, .sa_flags = SA_RESTART };
	const char *how = argc == 4 ? argv[3] : "";
	char path[64];
	int fd;

	if (argc != 3 && strcmp(how, "leave") && strcmp(how, "hang"))
		errx(2, "usage: %s DEVICE GID_INDEX [leave|hang]", argv[0]);
	gid_index = atoi(argv[2]);
	expect(!sigaction(SIGUSR1, &action, NULL), "sigaction");
	open_device(argv[1]);
	device_path(path, sizeof(path));
	must(open_again(path, &fd), 0, "a second context");
	if (!strcmp(how, "hang"))
		hang();
	if (!strcmp(how, "leave"))
		leave();
	connected();
	counted();
	connect_ends(7);
	datagrams();
	puts("held");
	fflush(stdout);
	write_on();
}
