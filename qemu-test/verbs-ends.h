/* SPDX-License-Identifier: GPL-2.0 */
/*
 * Two connected QPs of one verbs device, for the programs verbs-*.c that test what
 * the manual pages of libibverbs and the InfiniBand specification require:
 *
 *	PROGRAM DEVICE GID_INDEX TEST...
 *	PROGRAM --list
 *
 * Each test makes the ends that it needs. It fails with a line that says what was
 * expected. Each of several tests runs in a process of its own; a line "status of
 * TEST: STATUS" follows its output.
 */
#ifndef VERBS_ENDS_H
#define VERBS_ENDS_H

#include <endian.h>
#include <err.h>
#include <errno.h>
#include <infiniband/verbs.h>
#include <linux/types.h>
#include <poll.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#define REGION	(1u << 20)
#define SECONDS	20
#define SGES	6
#define WRS	16

/* An ordinary user, to whom limits and delays apply. */
#define USER	4000

#define ACCESS	(IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_REMOTE_WRITE | \
		 IBV_ACCESS_REMOTE_READ | IBV_ACCESS_REMOTE_ATOMIC)

#define expect(condition, ...) \
	do { if (!(condition)) errx(1, __VA_ARGS__); } while (0)

static struct ibv_context *device;
static int gid_index;
static union ibv_gid own_gid;

/* One of two connected QPs, with its own PD, CQs and memory. */
struct end {
	struct ibv_pd *pd;
	struct ibv_comp_channel *channel;
	struct ibv_cq *sends, *receives;
	struct ibv_mr *mr;
	struct ibv_srq *srq;
	struct ibv_qp *qp;
	__u8 *memory;
};

static struct end a, b;

/* The path MTU of connections. */
static enum ibv_mtu path_mtu __attribute__((unused)) = IBV_MTU_1024;

/* Ends get an SRQ. */
static int with_srq __attribute__((unused));

/* The traffic class of the ends' packets. */
static __u8 traffic_class;

static inline __u8 pattern(__u32 seed, __u32 i)
{
	return seed + i * 7 + (i >> 8) * 13;
}

static inline void fill(struct end *end, __u32 at, __u32 len, __u32 seed)
{
	__u32 i;

	for (i = 0; i < len; i++)
		end->memory[at + i] = pattern(seed, i);
}

static inline void check(struct end *end, __u32 at, __u32 len, __u32 seed)
{
	__u32 i;

	for (i = 0; i < len; i++)
		expect(end->memory[at + i] == pattern(seed, i),
		       "byte %u of %u is not what was sent", i, len);
}

static inline void open_device(const char *name)
{
	struct ibv_device **list = ibv_get_device_list(NULL), **entry;

	for (entry = list; entry && *entry; entry++)
		if (!strcmp(ibv_get_device_name(*entry), name))
			device = ibv_open_device(*entry);
	expect(device, "no device %s", name);
	expect(!ibv_query_gid(device, 1, gid_index, &own_gid), "no GID %d", gid_index);
}

/*
 * From here on the program belongs to that user, who may lock @locked bytes. It opens the device
 * again, because the objects of a context belong to the user who has opened it.
 */
static inline void become_user(rlim_t locked)
{
	const struct rlimit limit = { locked, locked };

	expect(!setrlimit(RLIMIT_MEMLOCK, &limit), "setrlimit: %s", strerror(errno));
	expect(!setgid(USER) && !setuid(USER), "no other user: %s", strerror(errno));
	open_device(ibv_get_device_name(device->device));
}

static inline void make_end(struct end *end, enum ibv_qp_type type, int signal_all)
{
	struct ibv_srq_init_attr shared = {
		.attr = { .max_wr = WRS, .max_sge = SGES },
	};
	struct ibv_qp_init_attr init = {
		.qp_type = type,
		.sq_sig_all = signal_all,
		.cap = {
			.max_send_wr = WRS,
			.max_recv_wr = WRS,
			.max_send_sge = SGES,
			.max_recv_sge = SGES,
			.max_inline_data = 64,
		},
	};

	end->pd = ibv_alloc_pd(device);
	end->channel = ibv_create_comp_channel(device);
	end->sends = ibv_create_cq(device, 2 * WRS, NULL, NULL, 0);
	end->receives = ibv_create_cq(device, 2 * WRS, NULL, end->channel, 0);
	end->memory = aligned_alloc(4096, REGION);
	expect(end->pd && end->channel && end->sends && end->receives && end->memory,
	       "no PD, channel, CQ or memory");
	memset(end->memory, 0, REGION);
	end->mr = ibv_reg_mr(end->pd, end->memory, REGION, ACCESS);
	if (with_srq) {
		end->srq = ibv_create_srq(end->pd, &shared);
		expect(end->srq, "no SRQ: %s", strerror(errno));
		init.srq = end->srq;
	}
	init.send_cq = end->sends;
	init.recv_cq = end->receives;
	end->qp = ibv_create_qp(end->pd, &init);
	expect(end->mr && end->qp, "no region or QP: %s", strerror(errno));
}

/* What a connection must be given for RTR, and for RTS. */
#define RTR_MASK	(IBV_QP_STATE | IBV_QP_AV | IBV_QP_PATH_MTU | IBV_QP_DEST_QPN | \
			 IBV_QP_RQ_PSN | IBV_QP_MAX_DEST_RD_ATOMIC | IBV_QP_MIN_RNR_TIMER)
#define RTS_MASK	(IBV_QP_STATE | IBV_QP_SQ_PSN | IBV_QP_TIMEOUT | IBV_QP_RETRY_CNT | \
			 IBV_QP_RNR_RETRY | IBV_QP_MAX_QP_RD_ATOMIC)

static inline void to_init(struct end *end)
{
	struct ibv_qp_attr attr = {
		.qp_state = IBV_QPS_INIT,
		.port_num = 1,
		.qp_access_flags = ACCESS,
		.qkey = 0x1234,
	};
	int mask = IBV_QP_STATE | IBV_QP_PKEY_INDEX | IBV_QP_PORT;

	mask |= end->qp->qp_type == IBV_QPT_UD ? IBV_QP_QKEY : IBV_QP_ACCESS_FLAGS;
	expect(!ibv_modify_qp(end->qp, &attr, mask), "INIT: %s", strerror(errno));
}

static inline void to_rtr(struct end *end, __u32 dest)
{
	struct ibv_qp_attr attr = {
		.qp_state = IBV_QPS_RTR,
		.path_mtu = path_mtu,
		.dest_qp_num = dest,
		.rq_psn = 0x123456,
		.max_dest_rd_atomic = 4,
		.min_rnr_timer = 12,
		.ah_attr = {
			.is_global = 1,
			.port_num = 1,
			.grh = {
				.dgid = own_gid,
				.sgid_index = gid_index,
				.hop_limit = 64,
				.traffic_class = traffic_class,
			},
		},
	};
	const int mask = end->qp->qp_type == IBV_QPT_RC ? RTR_MASK : IBV_QP_STATE;

	errno = ibv_modify_qp(end->qp, &attr, mask);
	expect(!errno, "RTR: %s", strerror(errno));
}

static inline void to_rts(struct end *end, int rnr_retry)
{
	struct ibv_qp_attr attr = {
		.qp_state = IBV_QPS_RTS,
		.timeout = 14,
		.retry_cnt = 7,
		.rnr_retry = rnr_retry,
		.sq_psn = 0x123456,
		.max_rd_atomic = 4,
	};
	const int mask = end->qp->qp_type == IBV_QPT_RC ? RTS_MASK :
							  IBV_QP_STATE | IBV_QP_SQ_PSN;

	errno = ibv_modify_qp(end->qp, &attr, mask);
	expect(!errno, "RTS: %s", strerror(errno));
}

/* An event reports that the send queue is drained. */
static inline void to_sqd(struct end *end)
{
	struct ibv_qp_attr attr = { .qp_state = IBV_QPS_SQD, .en_sqd_async_notify = 1 };
	int ret = ibv_modify_qp(end->qp, &attr, IBV_QP_STATE | IBV_QP_EN_SQD_ASYNC_NOTIFY);

	expect(!ret, "SQD: %s", strerror(ret));
}

/* Takes both ends to RTR, each with the other one as its peer. */
static inline void ends_to_rtr(void)
{
	to_init(&a);
	to_init(&b);
	to_rtr(&a, b.qp->qp_num);
	to_rtr(&b, a.qp->qp_num);
}

static inline void connect_ends(int rnr_retry)
{
	ends_to_rtr();
	to_rts(&a, rnr_retry);
	to_rts(&b, rnr_retry);
}

static inline void pair(enum ibv_qp_type type)
{
	make_end(&a, type, 0);
	make_end(&b, type, 0);
	connect_ends(7);
}

static inline struct ibv_sge sge(struct end *end, __u32 at, __u32 len)
{
	return (struct ibv_sge) {
		.addr = (__u64)(unsigned long)end->memory + at,
		.length = len,
		.lkey = end->mr->lkey,
	};
}

/* A work request of @end; the caller adds what its opcode needs. */
static inline struct ibv_send_wr
wr(__u64 id, enum ibv_wr_opcode opcode, struct ibv_sge *sges, int count)
{
	return (struct ibv_send_wr) {
		.wr_id = id,
		.opcode = opcode,
		.sg_list = sges,
		.num_sge = count,
		.send_flags = IBV_SEND_SIGNALED,
	};
}

static inline int post(struct end *end, struct ibv_send_wr *first)
{
	struct ibv_send_wr *bad;

	return ibv_post_send(end->qp, first, &bad);
}

static inline void must_post(struct end *end, struct ibv_send_wr *first)
{
	int ret = post(end, first);

	expect(!ret, "post_send: %s", strerror(ret));
}

static inline void remote(struct ibv_send_wr *to, struct end *peer, __u32 at)
{
	to->wr.rdma.remote_addr = (__u64)(unsigned long)peer->memory + at;
	to->wr.rdma.rkey = peer->mr->rkey;
}

static inline int try_receive(struct end *end, __u64 id, struct ibv_sge *sges, int count)
{
	struct ibv_recv_wr receive = { .wr_id = id, .sg_list = sges, .num_sge = count };
	struct ibv_recv_wr *bad;

	return ibv_post_recv(end->qp, &receive, &bad);
}

static inline void receive(struct end *end, __u64 id, __u32 at, __u32 len)
{
	struct ibv_sge one = sge(end, at, len);
	int ret = try_receive(end, id, &one, 1);

	expect(!ret, "post_recv: %s", strerror(ret));
}

static inline long long now(void)
{
	struct timespec time;

	clock_gettime(CLOCK_MONOTONIC, &time);
	return time.tv_sec * 1000ll + time.tv_nsec / 1000000;
}

static inline int poll_for(struct ibv_cq *cq, struct ibv_wc *wc, int ms)
{
	long long end = now() + ms;
	int got;

	do
		got = ibv_poll_cq(cq, 1, wc);
	while (!got && now() < end);
	expect(got >= 0, "poll_cq fails");
	return got;
}

/* The next entry, which has this ID and status. */
static inline struct ibv_wc entry(struct ibv_cq *cq, __u64 id, enum ibv_wc_status status)
{
	struct ibv_wc wc = { 0 };

	expect(poll_for(cq, &wc, SECONDS * 1000), "no entry for %llu", (unsigned long long)id);
	expect(wc.wr_id == id && wc.status == status,
	       "entry %llu %s, not %llu %s", (unsigned long long)wc.wr_id,
	       ibv_wc_status_str(wc.status), (unsigned long long)id, ibv_wc_status_str(status));
	return wc;
}

static inline void no_entry(struct ibv_cq *cq)
{
	struct ibv_wc wc;

	expect(!poll_for(cq, &wc, 200), "an entry %llu %s", (unsigned long long)wc.wr_id,
	       ibv_wc_status_str(wc.status));
}

static inline enum ibv_qp_state state(struct end *end)
{
	struct ibv_qp_init_attr init;
	struct ibv_qp_attr attr;

	expect(!ibv_query_qp(end->qp, &attr, IBV_QP_STATE, &init), "query_qp fails");
	return attr.qp_state;
}

static inline void is_in(struct end *end, enum ibv_qp_state wanted)
{
	long long until = now() + SECONDS * 1000;

	while (state(end) != wanted)
		expect(now() < until, "state %d, not %d", state(end), wanted);
}

static inline int modify(struct end *end, enum ibv_qp_state to)
{
	struct ibv_qp_attr attr = { .qp_state = to };

	return ibv_modify_qp(end->qp, &attr, IBV_QP_STATE);
}

static inline struct ibv_send_wr
atomic(enum ibv_wr_opcode opcode, struct ibv_sge *one, __u32 at, __u64 compare_add, __u64 swap)
{
	struct ibv_send_wr send = wr(at, opcode, one, 1);

	send.wr.atomic.remote_addr = (__u64)(unsigned long)b.memory + at;
	send.wr.atomic.rkey = b.mr->rkey;
	send.wr.atomic.compare_add = compare_add;
	send.wr.atomic.swap = swap;
	return send;
}

/* Three work requests: the middle one cannot be executed. */
static inline void three(struct ibv_sge *bad, enum ibv_wc_status status)
{
	struct ibv_sge good = sge(&a, 0, 64);
	struct ibv_send_wr first = wr(1, IBV_WR_RDMA_WRITE, &good, 1);
	struct ibv_send_wr middle = wr(2, IBV_WR_RDMA_WRITE, bad, 1);
	struct ibv_send_wr last = wr(3, IBV_WR_RDMA_WRITE, &good, 1);

	remote(&first, &b, 0);
	remote(&middle, &b, 0);
	remote(&last, &b, 0);
	last.send_flags = 0;
	first.next = &middle;
	middle.next = &last;
	must_post(&a, &first);
	entry(a.sends, 1, IBV_WC_SUCCESS);
	entry(a.sends, 2, status);
	/* A work request that is not signalled is flushed with an entry, too. */
	entry(a.sends, 3, IBV_WC_WR_FLUSH_ERR);
	is_in(&a, IBV_QPS_ERR);
}

/* The next event of the device, which the caller acknowledges. */
static inline struct ibv_async_event next_event(enum ibv_event_type type)
{
	struct pollfd fd = { .fd = device->async_fd, .events = POLLIN };
	struct ibv_async_event got;

	expect(poll(&fd, 1, SECONDS * 1000) == 1, "no event %s", ibv_event_type_str(type));
	expect(!ibv_get_async_event(device, &got), "no event");
	expect(got.event_type == type, "event %s, not %s", ibv_event_type_str(got.event_type),
	       ibv_event_type_str(type));
	return got;
}

/* The next event, which is acknowledged. */
static inline struct ibv_async_event event(enum ibv_event_type type)
{
	struct ibv_async_event got = next_event(type);

	ibv_ack_async_event(&got);
	return got;
}

static inline void share(struct end *end, __u64 id, __u32 at, __u32 len)
{
	struct ibv_sge one = sge(end, at, len);
	struct ibv_recv_wr receive = { .wr_id = id, .sg_list = &one, .num_sge = 1 };
	struct ibv_recv_wr *bad;

	expect(!ibv_post_srq_recv(end->srq, &receive, &bad), "post_srq_recv");
}

/* An address handle of @end for this GID. */
static inline struct ibv_ah *ah_to(struct end *end, union ibv_gid dgid)
{
	struct ibv_ah_attr attr = {
		.is_global = 1,
		.port_num = 1,
		.grh = {
			.dgid = dgid,
			.sgid_index = gid_index,
			.hop_limit = 64,
			.traffic_class = traffic_class,
		},
	};
	struct ibv_ah *ah = ibv_create_ah(end->pd, &attr);

	expect(ah, "create_ah: %s", strerror(errno));
	return ah;
}

static inline struct ibv_ah *ah_of(struct end *end)
{
	return ah_to(end, own_gid);
}

static inline struct ibv_ah *make_ah(void)
{
	return ah_of(&a);
}

/* Replaces the QP of @end by one with these capacities and this type. */
static inline void other_qp(struct end *end, struct ibv_qp_init_attr init)
{
	if (end->qp)
		expect(!ibv_destroy_qp(end->qp), "destroy_qp");
	init.send_cq = init.send_cq ? init.send_cq : end->sends;
	init.recv_cq = init.recv_cq ? init.recv_cq : end->receives;
	end->qp = ibv_create_qp(end->pd, &init);
	expect(end->qp, "no QP: %s", strerror(errno));
}

static inline struct ibv_qp_init_attr usual(enum ibv_qp_type type)
{
	return (struct ibv_qp_init_attr) {
		.qp_type = type,
		.cap = {
			.max_send_wr = WRS,
			.max_recv_wr = WRS,
			.max_send_sge = SGES,
			.max_recv_sge = SGES,
			.max_inline_data = 64,
		},
	};
}

/* The events that wait, once the last one has come. */
static inline int waiting_events(struct ibv_comp_channel *channel)
{
	struct pollfd fd = { .fd = channel->fd, .events = POLLIN };
	struct ibv_cq *cq;
	void *context;
	int count = 0;

	while (poll(&fd, 1, 200) == 1) {
		expect(!ibv_get_cq_event(channel, &cq, &context), "get_cq_event");
		ibv_ack_cq_events(cq, 1);
		count++;
	}
	return count;
}

static inline void pause_ms(int ms)
{
	struct timespec time = { .tv_sec = ms / 1000, .tv_nsec = ms % 1000 * 1000000l };

	nanosleep(&time, NULL);
}

static inline struct ibv_send_wr datagram(struct ibv_sge *one, struct ibv_ah *ah)
{
	struct ibv_send_wr send = wr(1, IBV_WR_SEND, one, 1);

	send.wr.ud.ah = ah;
	send.wr.ud.remote_qpn = b.qp->qp_num;
	send.wr.ud.remote_qkey = 0x1234;
	return send;
}

/* A test, by its name. */
struct test {
	const char *name;
	void (*run)(void);
};

#define TEST(name) { #name, name }

static inline const struct test *find_test(const struct test *tests, unsigned int count,
					   const char *name)
{
	unsigned int i;

	for (i = 0; i < count; i++)
		if (!strcmp(tests[i].name, name))
			return &tests[i];
	errx(2, "no test %s", name);
}

/*
 * Runs @test in a process of its own, for at most @limit seconds. Returns its status
 * as a shell has it.
 */
static inline int run_child(const struct test *test, const char *name, unsigned int limit)
{
	pid_t child = fork();
	int status;

	if (child < 0)
		err(2, "fork");
	if (!child) {
		alarm(limit);
		open_device(name);
		test->run();
		exit(0);
	}
	/* Ends this process if the child cannot be ended. */
	alarm(limit ? limit + 5 : 0);
	if (waitpid(child, &status, 0) != child)
		err(2, "waitpid");
	alarm(0);
	if (WIFEXITED(status))
		return WEXITSTATUS(status);
	warnx("%s", strsignal(WTERMSIG(status)));
	return 128 + WTERMSIG(status);
}

/* The main function of a program. */
static inline int run_test(int argc, char **argv, const struct test *tests, unsigned int count)
{
	const struct test *test;
	unsigned int limit;
	int i;

	if (argc == 2 && !strcmp(argv[1], "--list")) {
		for (i = 0; i < (int)count; i++)
			puts(tests[i].name);
		return 0;
	}
	if (argc < 4)
		errx(2, "usage: %s DEVICE GID_INDEX TEST...", argv[0]);
	gid_index = atoi(argv[2]);
	if (argc == 4) {
		test = find_test(tests, count, argv[3]);
		open_device(argv[1]);
		test->run();
		return 0;
	}
	/* Each test may take as long as this process was given. */
	limit = alarm(0);
	/* Loads the drivers once. */
	ibv_free_device_list(ibv_get_device_list(NULL));
	for (i = 3; i < argc; i++) {
		test = find_test(tests, count, argv[i]);
		printf("status of %s: %d\n", test->name, run_child(test, argv[1], limit));
		fflush(stdout);
	}
	return 0;
}

#endif /* VERBS_ENDS_H */
