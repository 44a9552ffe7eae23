// SPDX-License-Identifier: GPL-2.0
/*
 * verbs-queues: completion queues and shared receive queues of a device, and the memory of its
 * objects.
 *
 *	verbs-queues DEVICE TEST
 *
 * A test that fails prints the condition that does not hold, and exits with 1.
 */

#include "verbs-counting.h"

/* The limits that the device has. */
#define MAX_CQE		131072
#define MAX_SRQ_WR	16384
#define MAX_QP_WR	16384
#define MAX_SGE		16

#define holds(condition) \
	do { \
		if (!(condition)) \
			errx(1, "line %d: not true: %s", __LINE__, #condition); \
	} while (0)

/* The call returns null and sets this error. */
#define refused(call, error) \
	do { \
		errno = 0; \
		if ((call) || errno != (error)) \
			err(1, "line %d: %s", __LINE__, #call); \
	} while (0)

static void limits(void)
{
	struct ibv_device_attr attr;

	holds(!ibv_query_device(device, &attr));
	holds(attr.max_cqe == MAX_CQE && attr.max_cq > 0);
	holds(attr.max_srq > 0 && attr.max_srq_wr == MAX_SRQ_WR);
	holds(attr.max_srq_sge == MAX_SGE);
	holds(attr.max_qp_wr == MAX_QP_WR);
	holds(attr.device_cap_flags & IBV_DEVICE_SRQ_RESIZE);
}

static void cq_sizes(void)
{
	struct ibv_cq *cq;

	refused(ibv_create_cq(device, 0, NULL, NULL, 0), EINVAL);
	refused(ibv_create_cq(device, MAX_CQE + 1, NULL, NULL, 0), EINVAL);
	refused(ibv_create_cq(device, 1, NULL, NULL, device->num_comp_vectors),
		EINVAL);
	cq = ibv_create_cq(device, 1, NULL, NULL, 0);
	holds(cq && cq->cqe >= 1);
	holds(!ibv_destroy_cq(cq));
	cq = ibv_create_cq(device, MAX_CQE, NULL, NULL,
			   device->num_comp_vectors - 1);
	holds(cq && cq->cqe == MAX_CQE);
	holds(!ibv_destroy_cq(cq));
	/* The number of entries that a CQ reports is not above the limit. */
	cq = ibv_create_cq(device, MAX_CQE - 1, NULL, NULL, 0);
	holds(cq && cq->cqe >= MAX_CQE - 1 && cq->cqe <= MAX_CQE);
	holds(!ibv_resize_cq(cq, cq->cqe));
	holds(!ibv_destroy_cq(cq));
}

static void cq_resize(void)
{
	struct ibv_cq *cq = ibv_create_cq(device, 10, NULL, NULL, 0);

	holds(cq);
	holds(!ibv_resize_cq(cq, 1000) && cq->cqe >= 1000);
	holds(!ibv_resize_cq(cq, 3) && cq->cqe >= 3);
	holds(ibv_resize_cq(cq, 0) == EINVAL);
	holds(ibv_resize_cq(cq, MAX_CQE + 1) == EINVAL);
	holds(cq->cqe >= 3);
	holds(!ibv_resize_cq(cq, MAX_CQE) && cq->cqe >= MAX_CQE);
	holds(!ibv_destroy_cq(cq));
}

/* Nothing comes, whatever the CQ is armed for. */
static void cq_channel(void)
{
	struct ibv_comp_channel *channel = ibv_create_comp_channel(device);
	struct pollfd fd = { .events = POLLIN };
	struct ibv_wc wc[32];
	struct ibv_cq *cq;

	holds(channel);
	cq = ibv_create_cq(device, 16, &wc, channel, 0);
	holds(cq);
	holds(ibv_poll_cq(cq, 1, wc) == 0);
	holds(ibv_poll_cq(cq, 32, wc) == 0);
	holds(!ibv_req_notify_cq(cq, 0));
	holds(!ibv_req_notify_cq(cq, 1));
	fd.fd = channel->fd;
	holds(poll(&fd, 1, 100) == 0);
	holds(ibv_poll_cq(cq, 32, wc) == 0);
	/* A channel with a CQ is not destroyed. */
	holds(ibv_destroy_comp_channel(channel) == EBUSY);
	holds(!ibv_destroy_cq(cq));
	holds(!ibv_destroy_comp_channel(channel));
}

static struct ibv_srq *create_srq(struct ibv_pd *pd, __u32 max_wr,
				  __u32 max_sge, __u32 limit)
{
	struct ibv_srq_init_attr init = {
		.attr = {
			.max_wr = max_wr,
			.max_sge = max_sge,
			.srq_limit = limit,
		},
	};

	return ibv_create_srq(pd, &init);
}

static struct ibv_pd *alloc_pd(void)
{
	struct ibv_pd *pd = ibv_alloc_pd(device);

	if (!pd)
		err(1, "no PD");
	return pd;
}

static void srq_sizes(void)
{
	struct ibv_pd *pd = alloc_pd();
	struct ibv_srq *srq;

	refused(create_srq(pd, 0, 1, 0), EINVAL);
	refused(create_srq(pd, MAX_SRQ_WR + 1, 1, 0), EINVAL);
	refused(create_srq(pd, 1, MAX_SGE + 1, 0), EINVAL);
	srq = create_srq(pd, MAX_SRQ_WR, MAX_SGE, 0);
	holds(srq);
	holds(!ibv_destroy_srq(srq));
	srq = create_srq(pd, 1, 0, 0);
	holds(srq);
	/* A PD with an SRQ is not deallocated. */
	holds(ibv_dealloc_pd(pd) == EBUSY);
	holds(!ibv_destroy_srq(srq));
	holds(!ibv_dealloc_pd(pd));
}

static int modify_srq(struct ibv_srq *srq, int mask, __u32 max_wr, __u32 limit)
{
	struct ibv_srq_attr attr = { .max_wr = max_wr, .srq_limit = limit };

	return ibv_modify_srq(srq, &attr, mask);
}

static void is(struct ibv_srq *srq, __u32 max_wr, __u32 max_sge,
	       __u32 limit)
{
	struct ibv_srq_attr attr;

	memset(&attr, 0xff, sizeof(attr));
	holds(!ibv_query_srq(srq, &attr));
	holds(attr.max_wr == max_wr && attr.max_sge == max_sge);
	holds(attr.srq_limit == limit);
}

static void srq_attributes(void)
{
	struct ibv_pd *pd = alloc_pd();
	/* The limit has no meaning here: ibv_create_srq(3). */
	struct ibv_srq *srq = create_srq(pd, 100, 3, 7);

	holds(srq);
	is(srq, 100, 3, 0);
	holds(!modify_srq(srq, IBV_SRQ_LIMIT, 0, 100));
	is(srq, 100, 3, 100);
	holds(modify_srq(srq, IBV_SRQ_LIMIT, 0, 101) == EINVAL);
	holds(modify_srq(srq, IBV_SRQ_MAX_WR, 99, 0) == EINVAL);
	holds(!modify_srq(srq, IBV_SRQ_MAX_WR, 200, 0));
	is(srq, 200, 3, 100);
	/* If one of both is invalid, neither is modified. */
	holds(modify_srq(srq, IBV_SRQ_MAX_WR | IBV_SRQ_LIMIT, 300, 301) == EINVAL);
	is(srq, 200, 3, 100);
	holds(modify_srq(srq, IBV_SRQ_MAX_WR | IBV_SRQ_LIMIT, MAX_SRQ_WR + 1, 5) ==
	      EINVAL);
	is(srq, 200, 3, 100);
	holds(!modify_srq(srq, IBV_SRQ_MAX_WR | IBV_SRQ_LIMIT, 50, 20));
	is(srq, 50, 3, 20);
	holds(modify_srq(srq, IBV_SRQ_MAX_WR, 0, 0) == EINVAL);
	holds(modify_srq(srq, IBV_SRQ_MAX_WR, MAX_SRQ_WR + 1, 0) == EINVAL);
	holds(modify_srq(srq, 4, 0, 0) == EOPNOTSUPP);
	/* An empty mask modifies nothing. */
	holds(!modify_srq(srq, 0, 1, 1));
	is(srq, 50, 3, 20);
	holds(!modify_srq(srq, IBV_SRQ_LIMIT, 0, 0));
	is(srq, 50, 3, 0);
	holds(!ibv_destroy_srq(srq));
	holds(!ibv_dealloc_pd(pd));
}

static void srq_post(void)
{
	struct ibv_pd *pd = alloc_pd();
	struct ibv_srq *srq = create_srq(pd, 4, 2, 0);
	struct ibv_sge sges[3] = { { .length = 1 }, { .length = 2 } };
	struct ibv_recv_wr wr[6], *bad;
	int i;

	holds(srq);
	for (i = 0; i < 6; i++)
		wr[i] = (struct ibv_recv_wr) {
			.wr_id = i,
			.next = i < 5 ? &wr[i + 1] : NULL,
			.sg_list = sges,
			.num_sge = i % 3,
		};
	/* The third one has too many SGEs: the two before it are posted. */
	wr[2].num_sge = 3;
	bad = NULL;
	holds(ibv_post_srq_recv(srq, wr, &bad) == EINVAL && bad == &wr[2]);
	wr[2].num_sge = 2;
	/* There is room for two more. */
	bad = NULL;
	holds(ibv_post_srq_recv(srq, &wr[1], &bad) == ENOMEM && bad == &wr[3]);
	bad = NULL;
	holds(ibv_post_srq_recv(srq, wr, &bad) == ENOMEM && bad == wr);
	/* Receives that wait keep their room. */
	holds(modify_srq(srq, IBV_SRQ_MAX_WR, 3, 0) == EINVAL);
	holds(!modify_srq(srq, IBV_SRQ_MAX_WR, 5, 0));
	wr[0].next = NULL;
	holds(!ibv_post_srq_recv(srq, wr, &bad));
	holds(ibv_post_srq_recv(srq, wr, &bad) == ENOMEM);
	/* The SRQ is destroyed with receives in it. */
	holds(!ibv_destroy_srq(srq));
	holds(!ibv_dealloc_pd(pd));
}

/* An ordinary user gets as many CQs and SRQs as user_memory allows. */
static void many(void)
{
	struct ibv_pd *pd = alloc_pd();
	int count = 0;

	/* Each has 6 MiB, of 256 MiB. */
	while (ibv_create_cq(device, MAX_CQE, NULL, NULL, 0))
		holds(++count < 48);
	holds(count > 0 && errno == ENOMEM);
	refused(create_srq(pd, MAX_SRQ_WR, MAX_SGE, 0) &&
		create_srq(pd, MAX_SRQ_WR, MAX_SGE, 0), ENOMEM);
	/* The end of the program frees all. */
}

/*
 * The tests cgroup-* run in a memory cgroup with 32 MiB, in which the kernel may end no process to
 * get memory, so a call fails. Calls with much memory fail before there is too little for the
 * program itself.
 */
static void cgroup_cqs(void)
{
	int count = 0;

	/* Each has 6 MiB. */
	while (ibv_create_cq(device, MAX_CQE, NULL, NULL, 0))
		holds(++count < 6);
	holds(count > 2 && errno == ENOMEM);
}

static void cgroup_srqs(void)
{
	struct ibv_pd *pd = alloc_pd();
	int count = 0;

	/* Each has more than 4 MiB. */
	while (create_srq(pd, MAX_SRQ_WR, MAX_SGE, 0))
		holds(++count < 8);
	holds(count > 4 && errno == ENOMEM);
}

static void cgroup_qps(void)
{
	struct ibv_pd *pd = alloc_pd();
	struct ibv_qp_init_attr init = {
		.qp_type = IBV_QPT_RC,
		.cap = {
			.max_send_wr = MAX_QP_WR,
			.max_recv_wr = 1,
			.max_send_sge = 1,
			.max_recv_sge = 1,
		},
	};
	int count = 0;

	init.send_cq = ibv_create_cq(device, 1, NULL, NULL, 0);
	init.recv_cq = init.send_cq;
	holds(init.send_cq);
	/* Each has more than 1 MiB for its work requests. */
	while (ibv_create_qp(pd, &init))
		holds(++count < 32);
	holds(count > 2 && errno == ENOMEM);
}

/* A context has at most 4,096 completion counters, so the program opens several. */
static void cgroup_counters(void)
{
	enum { CONTEXTS = 3, MOST = 4096 };
	struct ibv_context *contexts[CONTEXTS];
	int i, count, ret = 0;
	__u32 cntr;

	for (i = 0; i < CONTEXTS; i++) {
		contexts[i] = ibv_open_device(device->device);
		holds(contexts[i]);
	}
	/* The counters leave no memory for a page of the program. */
	holds(!mlockall(MCL_CURRENT));
	for (i = 0; i < CONTEXTS && !ret; i++) {
		device = contexts[i];
		for (count = 0; count < MOST && !ret; count++)
			ret = create((struct wanted) { 0 }, &cntr);
		/* Each has a page. */
		holds(ret || i < CONTEXTS - 1);
	}
	holds(i > 1 || count > 1000);
	holds(ret == ENOMEM);
}

/* The program exits with its objects, and none of them stays. */
static void left(void)
{
	struct ibv_pd *pd = alloc_pd();
	int i;

	for (i = 1; i < 200; i++) {
		holds(ibv_create_cq(device, i, NULL, NULL, 0));
		holds(create_srq(pd, i, 1, 0));
	}
}

static const struct {
	const char *name;
	void (*run)(void);
} tests[] = {
	{ "limits", limits },
	{ "cq-sizes", cq_sizes },
	{ "cq-resize", cq_resize },
	{ "cq-channel", cq_channel },
	{ "srq-sizes", srq_sizes },
	{ "srq-attributes", srq_attributes },
	{ "srq-post", srq_post },
	{ "many", many },
	{ "cgroup-cqs", cgroup_cqs },
	{ "cgroup-srqs", cgroup_srqs },
	{ "cgroup-qps", cgroup_qps },
	{ "cgroup-counters", cgroup_counters },
	{ "left", left },
};

int main(int argc, char **argv)
{
	size_t i;

	if (argc != 3)
		errx(1, "usage: verbs-queues DEVICE TEST");
	if (!strcmp(argv[2], "many") && (setgid(USER) || setuid(USER)))
		err(1, "no other user");
	open_device(argv[1]);
	for (i = 0; i < sizeof(tests) / sizeof(*tests); i++) {
		if (strcmp(tests[i].name, argv[2]))
			continue;
		tests[i].run();
		return 0;
	}
	errx(1, "no test %s", argv[2]);
}
