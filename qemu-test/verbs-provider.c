// SPDX-License-Identifier: GPL-2.0
/*
 * verbs-provider: the functions of libkfabric that the other programs do not test: batches of work
 * requests by ibv_wr_start(3), the extended CQ of ibv_create_cq_ex(3), long lists, and the
 * functions of <infiniband/kfdv.h>. Each test names its page.
 */

#include <sched.h>

#include "verbs-ends.h"
#include "verbs-wr.h"

#include <infiniband/kfdv.h>

/* Work requests of long lists: more than one call can take. */
#define MANY	5000

/* The attributes of a QP with these operations, and so many work requests and SGEs. */
static struct ibv_qp_init_attr_ex with(enum ibv_qp_type type, __u64 ops, __u32 wrs, __u32 sges)
{
	return (struct ibv_qp_init_attr_ex) {
		.qp_type = type,
		.cap = {
			.max_send_wr = wrs,
			.max_recv_wr = WRS,
			.max_send_sge = sges,
			.max_recv_sge = SGES,
			.max_inline_data = 64,
		},
		.send_ops_flags = ops,
	};
}

static struct ibv_qp_ex *pair_with(__u32 wrs, __u32 sges)
{
	struct ibv_qp_ex *qp;

	make_end(&a, IBV_QPT_RC, 0);
	make_end(&b, IBV_QPT_RC, 0);
	qp = extend(&a, with(IBV_QPT_RC, all_operations(IBV_QPT_RC), wrs, sges));
	expect(qp, "no extended QP: %s", strerror(errno));
	connect_ends(7);
	return qp;
}

static struct ibv_qp_ex *extended_pair(__u32 wrs)
{
	return pair_with(wrs, SGES);
}

/* ibv_wr_post(3): every operation of a connection, in one batch. */
static void wr_operations(void)
{
	struct ibv_qp_ex *qp = extended_pair(WRS);
	struct ibv_sge list[2];
	struct ibv_wc wc;
	__u64 *values;

	fill(&a, 0, 8192, 1);
	fill(&b, 65536, 4096, 2);
	values = (__u64 *)(b.memory + 128 * 1024);
	values[0] = 7;
	values[1] = 30;
	receive(&b, 100, 0, 4096);
	receive(&b, 101, 4096, 4096);
	receive(&b, 102, 0, 0);

	ibv_wr_start(qp);
	next(qp, 1, 0);
	ibv_wr_send(qp);
	ibv_wr_set_sge(qp, a.mr->lkey, at(&a, 0), 4096);
	next(qp, 2, 0);
	ibv_wr_send_imm(qp, htobe32(0x11223344));
	list[0] = sge(&a, 4096, 1000);
	list[1] = sge(&a, 5096, 3096);
	ibv_wr_set_sge_list(qp, 2, list);
	next(qp, 3, 0);
	ibv_wr_rdma_write(qp, b.mr->rkey, at(&b, 16384));
	ibv_wr_set_sge(qp, a.mr->lkey, at(&a, 0), 8192);
	next(qp, 4, 0);
	ibv_wr_rdma_write_imm(qp, b.mr->rkey, at(&b, 32768), htobe32(5));
	ibv_wr_set_sge(qp, a.mr->lkey, at(&a, 0), 100);
	next(qp, 5, 0);
	ibv_wr_rdma_read(qp, b.mr->rkey, at(&b, 65536));
	ibv_wr_set_sge(qp, a.mr->lkey, at(&a, 65536), 4096);
	next(qp, 6, 0);
	ibv_wr_atomic_cmp_swp(qp, b.mr->rkey, at(&b, 128 * 1024), 7, 8);
	ibv_wr_set_sge(qp, a.mr->lkey, at(&a, 131072), 8);
	next(qp, 7, 0);
	ibv_wr_atomic_fetch_add(qp, b.mr->rkey, at(&b, 128 * 1024 + 8), 12);
	ibv_wr_set_sge(qp, a.mr->lkey, at(&a, 131080), 8);
	complete(qp);

	expect(entry(a.sends, 1, IBV_WC_SUCCESS).opcode == IBV_WC_SEND, "opcode of SEND");
	entry(a.sends, 2, IBV_WC_SUCCESS);
	expect(entry(a.sends, 3, IBV_WC_SUCCESS).opcode == IBV_WC_RDMA_WRITE, "of WRITE");
	entry(a.sends, 4, IBV_WC_SUCCESS);
	expect(entry(a.sends, 5, IBV_WC_SUCCESS).opcode == IBV_WC_RDMA_READ, "of READ");
	expect(entry(a.sends, 6, IBV_WC_SUCCESS).opcode == IBV_WC_COMP_SWAP, "of CMP_SWP");
	expect(entry(a.sends, 7, IBV_WC_SUCCESS).opcode == IBV_WC_FETCH_ADD, "of FETCH_ADD");
	expect(entry(b.receives, 100, IBV_WC_SUCCESS).byte_len == 4096, "length of SEND");
	wc = entry(b.receives, 101, IBV_WC_SUCCESS);
	expect(wc.wc_flags & IBV_WC_WITH_IMM && wc.imm_data == htobe32(0x11223344), "immediate");
	wc = entry(b.receives, 102, IBV_WC_SUCCESS);
	expect(wc.opcode == IBV_WC_RECV_RDMA_WITH_IMM && wc.imm_data == htobe32(5) &&
	       wc.byte_len == 100, "WRITE with immediate");
	check(&b, 0, 8192, 1);
	check(&b, 16384, 8192, 1);
	check(&b, 32768, 100, 1);
	check(&a, 65536, 4096, 2);
	expect(values[0] == 8 && values[1] == 42, "atomics");
	values = (__u64 *)(a.memory + 131072);
	expect(values[0] == 7 && values[1] == 30, "values before the atomics");
}

/* ibv_wr_post(3): SEND_WITH_INV carries its key, which a QP of kfabric refuses. */
static void wr_send_inv(void)
{
	struct ibv_qp_ex *qp = extended_pair(WRS);

	receive(&b, 1, 0, 64);
	ibv_wr_start(qp);
	next(qp, 2, 0);
	ibv_wr_send_inv(qp, b.mr->rkey);
	ibv_wr_set_sge(qp, a.mr->lkey, at(&a, 0), 64);
	complete(qp);
	entry(a.sends, 2, IBV_WC_REM_ACCESS_ERR);
}

/* ibv_wr_post(3): inline data is copied at once; the program reuses its buffer. */
static void wr_inline(void)
{
	struct ibv_qp_ex *qp = extended_pair(WRS);
	struct ibv_data_buf list[2];
	__u8 buffer[64];
	int i, j;

	ibv_wr_start(qp);
	for (i = 0; i < WRS - 1; i++) {
		memset(buffer, i + 1, sizeof(buffer));
		next(qp, i, 0);
		ibv_wr_rdma_write(qp, b.mr->rkey, at(&b, 64 * i));
		ibv_wr_set_inline_data(qp, buffer, 64);
	}
	memset(buffer, 0xaa, sizeof(buffer));
	memset(a.memory, 0xbb, 32);
	list[0].addr = buffer;
	list[0].length = 16;
	list[1].addr = a.memory;
	list[1].length = 32;
	next(qp, i, 0);
	ibv_wr_rdma_write(qp, b.mr->rkey, at(&b, 64 * i));
	ibv_wr_set_inline_data_list(qp, 2, list);
	memset(buffer, 0, sizeof(buffer));
	memset(a.memory, 0, 32);
	complete(qp);
	for (i = 0; i < WRS; i++)
		entry(a.sends, i, IBV_WC_SUCCESS);
	for (i = 0; i < WRS - 1; i++)
		for (j = 0; j < 64; j++)
			expect(b.memory[64 * i + j] == i + 1, "byte %d of %d", j, i);
	for (j = 0; j < 48; j++)
		expect(b.memory[64 * i + j] == (j < 16 ? 0xaa : 0xbb), "byte %d of a list", j);
	expect(!b.memory[64 * i + 48], "a byte past the list");
}

/* A WRITE of eight buffers of one byte by a QP that has this many SGEs. */
static void eight_buffers(__u32 sges)
{
	struct ibv_qp_ex *qp = pair_with(WRS, sges);
	struct ibv_data_buf list[8];
	__u8 buffer[16];
	__u32 i;

	for (i = 0; i < 8; i++) {
		buffer[2 * i] = pattern(sges, i);
		list[i].addr = buffer + 2 * i;
		list[i].length = 1;
	}
	ibv_wr_start(qp);
	next(qp, 1, 0);
	ibv_wr_rdma_write(qp, b.mr->rkey, at(&b, 0));
	ibv_wr_set_inline_data_list(qp, 8, list);
	complete(qp);
	entry(a.sends, 1, IBV_WC_SUCCESS);
	check(&b, 0, 8, sges);
	expect(!b.memory[8], "a byte past the list");
}

/*
 * ibv_wr_post(3): the buffers of ibv_wr_set_inline_data_list() are no SGEs: max_inline_data bounds
 * their bytes, and max_send_sge of ibv_create_qp(3) does not bound their number.
 */
static void wr_inline_needs_no_sges(void)
{
	eight_buffers(0);
	eight_buffers(SGES);
}

/* ibv_wr_post(3): a batch that is more than one call takes is executed in order. */
static void wr_many(void)
{
	struct ibv_qp_ex *qp = extended_pair(MANY);
	__u64 *values = (__u64 *)a.memory;
	__u32 i;

	ibv_wr_start(qp);
	for (i = 0; i < MANY; i++) {
		values[i] = i;
		next(qp, i, 0);
		qp->wr_flags = i == MANY - 1 ? IBV_SEND_SIGNALED : 0;
		ibv_wr_rdma_write(qp, b.mr->rkey, at(&b, i % 2 ? 8 : 8 * i));
		ibv_wr_set_sge(qp, a.mr->lkey, at(&a, 8 * i), 8);
	}
	complete(qp);
	entry(a.sends, MANY - 1, IBV_WC_SUCCESS);
	values = (__u64 *)b.memory;
	for (i = 2; i < MANY; i += 2)
		expect(values[i] == i, "value %u", i);
	expect(values[1] == MANY - 1, "the last one of the others is %llu", values[1]);
}

/* ibv_wr_post(3): ibv_wr_abort() discards what was prepared. */
static void wr_abort(void)
{
	struct ibv_qp_ex *qp = extended_pair(WRS);

	a.memory[0] = 1;
	ibv_wr_start(qp);
	next(qp, 1, 0);
	ibv_wr_rdma_write(qp, b.mr->rkey, at(&b, 0));
	ibv_wr_set_sge(qp, a.mr->lkey, at(&a, 0), 1);
	ibv_wr_abort(qp);
	no_entry(a.sends);
	expect(!b.memory[0], "it was written");
	ibv_wr_start(qp);
	complete(qp);
	ibv_wr_start(qp);
	next(qp, 2, 0);
	ibv_wr_rdma_write(qp, b.mr->rkey, at(&b, 0));
	ibv_wr_set_sge(qp, a.mr->lkey, at(&a, 0), 1);
	complete(qp);
	entry(a.sends, 2, IBV_WC_SUCCESS);
}

/* A batch whose second work request is wrong is refused as a whole. */
static void refused(struct ibv_qp_ex *qp, int error, void (*wrong)(struct ibv_qp_ex *qp))
{
	int ret;

	ibv_wr_start(qp);
	next(qp, 1, 0);
	ibv_wr_rdma_write(qp, b.mr->rkey, at(&b, 0));
	ibv_wr_set_sge(qp, a.mr->lkey, at(&a, 0), 1);
	wrong(qp);
	ret = ibv_wr_complete(qp);
	expect(ret == error, "%s, not %s", strerror(ret), strerror(error));
	no_entry(a.sends);
}

static void too_many_sges(struct ibv_qp_ex *qp)
{
	struct ibv_sge list[64] = { { 0 } };

	ibv_wr_send(qp);
	ibv_wr_set_sge_list(qp, 64, list);
}

static void too_much_inline(struct ibv_qp_ex *qp)
{
	ibv_wr_send(qp);
	ibv_wr_set_inline_data(qp, a.memory, REGION);
}

static void data_twice(struct ibv_qp_ex *qp)
{
	ibv_wr_send(qp);
	ibv_wr_set_sge(qp, a.mr->lkey, at(&a, 0), 1);
	ibv_wr_set_sge(qp, a.mr->lkey, at(&a, 0), 1);
}

static void too_many_wrs(struct ibv_qp_ex *qp)
{
	int i;

	for (i = 0; i < WRS; i++)
		ibv_wr_send(qp);
}

/* ibv_wr_post(3): an error of any function is that of ibv_wr_complete(). */
static void wr_errors(void)
{
	struct ibv_qp_ex *qp = extended_pair(WRS);
	int ret;

	refused(qp, EINVAL, too_many_sges);
	refused(qp, EINVAL, too_much_inline);
	refused(qp, EINVAL, data_twice);
	refused(qp, ENOMEM, too_many_wrs);
	/* What the kernel finds out leaves those before it posted, unlike the page. */
	ibv_wr_start(qp);
	next(qp, 1, 0);
	ibv_wr_rdma_write(qp, b.mr->rkey, at(&b, 0));
	ibv_wr_set_sge(qp, a.mr->lkey, at(&a, 0), 1);
	next(qp, 2, 0);
	qp->wr_flags |= 1u << 20;
	ibv_wr_send(qp);
	next(qp, 3, 0);
	ibv_wr_send(qp);
	ret = ibv_wr_complete(qp);
	expect(ret == EINVAL, "an unknown flag: %s", strerror(ret));
	entry(a.sends, 1, IBV_WC_SUCCESS);
	no_entry(a.sends);
	errno = 0;
	expect(!extend(&a, with(IBV_QPT_RC, all_operations(IBV_QPT_RC) | IBV_QP_EX_WITH_BIND_MW,
				WRS, SGES)) && errno == EOPNOTSUPP,
	       "memory windows: %s", strerror(errno));
	expect(!extend(&a, with(IBV_QPT_UD, IBV_QP_EX_WITH_RDMA_WRITE, WRS, SGES)) &&
	       errno == EOPNOTSUPP, "a WRITE on UD: %s", strerror(errno));
}

/* Two threads post so many batches each, of so many WRITEs. */
#define BATCHES	50
#define BATCH	4

static struct ibv_qp_ex *shared_qp;

static void *post_batches(void *first)
{
	__u64 id = (unsigned long)first;
	int i, j;

	for (i = 0; i < BATCHES; i++) {
		ibv_wr_start(shared_qp);
		for (j = 0; j < BATCH; j++) {
			next(shared_qp, id++, 0);
			/* The other thread may come here, and has to wait. */
			sched_yield();
			ibv_wr_rdma_write(shared_qp, b.mr->rkey, at(&b, 0));
			sched_yield();
			ibv_wr_set_sge(shared_qp, a.mr->lkey, at(&a, 0), 8);
		}
		complete(shared_qp);
	}
	return NULL;
}

/* ibv_wr_post(3): from ibv_wr_start() to ibv_wr_complete() no other thread enters. */
static void wr_threads(void)
{
	static const unsigned long firsts[2] = { 0, BATCHES * BATCH };
	__u64 next_ids[2] = { firsts[0], firsts[1] };
	pthread_t threads[2];
	struct ibv_wc wc;
	int i, j, thread;

	shared_qp = extended_pair(2 * BATCHES * BATCH);
	expect(!ibv_resize_cq(a.sends, 2 * BATCHES * BATCH), "resize_cq");
	for (i = 0; i < 2; i++)
		expect(!pthread_create(&threads[i], NULL, post_batches, (void *)firsts[i]),
		       "pthread_create");
	for (i = 0; i < 2; i++)
		pthread_join(threads[i], NULL);
	for (i = 0; i < 2 * BATCHES; i++) {
		thread = -1;
		for (j = 0; j < BATCH; j++) {
			expect(poll_for(a.sends, &wc, SECONDS * 1000), "%d batches", i);
			if (thread < 0)
				thread = wc.wr_id >= firsts[1];
			expect(wc.wr_id == next_ids[thread]++ && wc.status == IBV_WC_SUCCESS,
			       "entry %llu, %s", (unsigned long long)wc.wr_id,
			       ibv_wc_status_str(wc.status));
		}
	}
	no_entry(a.sends);
}

/* ibv_wr_post(3): datagrams get their address by ibv_wr_set_ud_addr(). */
static void wr_datagrams(void)
{
	struct ibv_qp_ex *qp;
	struct ibv_wc wc;
	struct ibv_ah *ah;
	__u32 i;

	make_end(&a, IBV_QPT_UD, 0);
	make_end(&b, IBV_QPT_UD, 0);
	qp = extend(&a, with(IBV_QPT_UD, all_operations(IBV_QPT_UD), WRS, SGES));
	expect(qp, "no extended QP: %s", strerror(errno));
	connect_ends(7);
	ah = make_ah();
	fill(&a, 0, 200, 3);
	for (i = 0; i < 2; i++)
		receive(&b, i, 512 * i, 512);
	ibv_wr_start(qp);
	next(qp, 0, 0);
	ibv_wr_send(qp);
	ibv_wr_set_ud_addr(qp, ah, b.qp->qp_num, 0x1234);
	ibv_wr_set_sge(qp, a.mr->lkey, at(&a, 0), 100);
	next(qp, 1, 0);
	ibv_wr_send_imm(qp, htobe32(9));
	ibv_wr_set_ud_addr(qp, ah, b.qp->qp_num, 0x1234);
	ibv_wr_set_inline_data(qp, a.memory, 50);
	complete(qp);
	wc = entry(b.receives, 0, IBV_WC_SUCCESS);
	expect(wc.src_qp == a.qp->qp_num && wc.byte_len == 140 && wc.wc_flags & IBV_WC_GRH,
	       "a datagram");
	wc = entry(b.receives, 1, IBV_WC_SUCCESS);
	expect(wc.imm_data == htobe32(9) && wc.byte_len == 90, "with immediate");
	check(&b, 40, 100, 3);
	check(&b, 552, 50, 3);
}

/* ibv_post_send(3): a list that is more than one call takes; the first that is refused. */
static void post_many(void)
{
	static struct ibv_send_wr list[MANY + 1];
	struct ibv_qp_init_attr init = usual(IBV_QPT_RC);
	struct ibv_sge one;
	struct ibv_send_wr *bad;
	int ret, i;

	make_end(&a, IBV_QPT_RC, 0);
	make_end(&b, IBV_QPT_RC, 0);
	init.cap.max_send_wr = MANY;
	other_qp(&a, init);
	connect_ends(7);
	one = sge(&a, 0, 8);
	for (i = 0; i <= MANY; i++) {
		list[i] = wr(i, IBV_WR_RDMA_WRITE, &one, 1);
		remote(&list[i], &b, 8 * i);
		list[i].send_flags = i == MANY - 1 ? IBV_SEND_SIGNALED : 0;
		list[i].next = i < MANY - 1 ? &list[i + 1] : NULL;
	}
	fill(&a, 0, 8, 4);
	must_post(&a, list);
	entry(a.sends, MANY - 1, IBV_WC_SUCCESS);
	for (i = 0; i < MANY; i++)
		check(&b, 8 * i, 8, 4);

	/* The last but one is wrong: those before it are executed. */
	list[MANY - 3].send_flags = IBV_SEND_SIGNALED;
	list[MANY - 2].send_flags = 1u << 20;
	bad = NULL;
	ret = ibv_post_send(a.qp, list, &bad);
	expect(ret && bad == &list[MANY - 2], "work request %ld is refused", (long)(bad - list));
	entry(a.sends, MANY - 3, IBV_WC_SUCCESS);
	no_entry(a.sends);

	list[0].num_sge = -1;
	list[0].next = NULL;
	ret = ibv_post_send(a.qp, list, &bad);
	expect(ret == EINVAL && bad == list, "-1 SGEs: %s", strerror(ret));
}

static void post_unknown(enum ibv_qp_type type, enum ibv_wr_opcode opcode)
{
	struct ibv_send_wr list[3], *bad = NULL;
	struct ibv_ah *ah = NULL;
	struct ibv_sge one;
	int ret, i;

	pair(type);
	if (type == IBV_QPT_UD)
		ah = make_ah();
	one = sge(&a, 0, 64);
	for (i = 0; i < 3; i++) {
		receive(&b, i, 256 * i, 200);
		list[i] = ah ? datagram(&one, ah) : wr(i, IBV_WR_SEND, &one, 1);
		list[i].wr_id = i;
		list[i].next = i < 2 ? &list[i + 1] : NULL;
	}
	list[1].opcode = opcode;
	ret = ibv_post_send(a.qp, list, &bad);
	expect(ret == EINVAL && bad == &list[1], "opcode %d: %s, work request %ld", opcode,
	       strerror(ret), (long)(bad - list));
	entry(a.sends, 0, IBV_WC_SUCCESS);
	entry(b.receives, 0, IBV_WC_SUCCESS);
	no_entry(a.sends);
}

/* ibv_post_send(3): the list ends at an operation that a QP of the type does not have. */
static void post_unknown_operations(void)
{
	post_unknown(IBV_QPT_RC, IBV_WR_LOCAL_INV);
	post_unknown(IBV_QPT_RC, IBV_WR_TSO);
	post_unknown(IBV_QPT_UD, IBV_WR_RDMA_WRITE);
	post_unknown(IBV_QPT_UD, IBV_WR_SEND_WITH_INV);
}

/* ibv_post_srq_recv(3): the same for receives, the last of which finds no room. */
static void post_many_receives(void)
{
	static struct ibv_recv_wr list[MANY];
	struct ibv_srq_init_attr init = { .attr = { .max_wr = MANY - 1, .max_sge = 4 } };
	struct ibv_srq_attr attr;
	struct ibv_sge sges[4];
	struct ibv_recv_wr *bad = NULL;
	struct ibv_srq *srq;
	int ret, i;

	make_end(&a, IBV_QPT_RC, 0);
	srq = ibv_create_srq(a.pd, &init);
	expect(srq, "no SRQ: %s", strerror(errno));
	expect(!ibv_query_srq(srq, &attr), "query_srq");
	for (i = 0; i < 4; i++)
		sges[i] = sge(&a, 8 * i, 8);
	for (i = 0; i < MANY; i++) {
		list[i].wr_id = i;
		list[i].sg_list = sges;
		list[i].num_sge = 4;
		list[i].next = i < MANY - 1 ? &list[i + 1] : NULL;
	}
	ret = ibv_post_srq_recv(srq, list, &bad);
	expect(attr.max_wr == MANY - 1, "max_wr %u", attr.max_wr);
	expect(ret == ENOMEM && bad == &list[MANY - 1], "receive %ld: %s", (long)(bad - list),
	       strerror(ret));
}

static struct ibv_cq_ex *extended_cq(__u64 wc_flags, __u32 flags)
{
	struct ibv_cq_init_attr_ex init = {
		.cqe = 2 * WRS,
		.channel = NULL,
		.wc_flags = wc_flags,
		.comp_mask = flags ? IBV_CQ_INIT_ATTR_MASK_FLAGS : 0,
		.flags = flags,
	};

	return ibv_create_cq_ex(device, &init);
}

/* ibv_create_cq_ex(3): entries are taken one by one, and read by functions. */
static void extended_entries(__u32 flags)
{
	struct ibv_qp_init_attr init = usual(IBV_QPT_RC);
	struct ibv_poll_cq_attr none = { 0 };
	struct ibv_sge one;
	struct ibv_send_wr send;
	struct ibv_cq_ex *cq;
	long long until;
	int ret, i;

	make_end(&a, IBV_QPT_RC, 0);
	make_end(&b, IBV_QPT_RC, 0);
	cq = extended_cq(IBV_WC_STANDARD_FLAGS, flags);
	expect(cq, "no extended CQ: %s", strerror(errno));
	expect(ibv_start_poll(cq, &none) == ENOENT, "an entry in a new CQ");
	init.recv_cq = ibv_cq_ex_to_cq(cq);
	other_qp(&b, init);
	connect_ends(7);
	one = sge(&a, 0, 100);
	for (i = 0; i < 5; i++) {
		receive(&b, 50 + i, 0, 128);
		send = wr(i, IBV_WR_SEND_WITH_IMM, &one, 1);
		send.imm_data = htobe32(i);
		must_post(&a, &send);
		entry(a.sends, i, IBV_WC_SUCCESS);
	}
	for (until = now() + 1000 * SECONDS; (ret = ibv_start_poll(cq, &none)) == ENOENT;)
		expect(now() < until, "no entry");
	expect(!ret, "start_poll: %s", strerror(ret));
	for (i = 0; i < 5; i++) {
		expect(cq->wr_id == 50u + i && cq->status == IBV_WC_SUCCESS, "entry %d", i);
		expect(ibv_wc_read_opcode(cq) == IBV_WC_RECV &&
		       ibv_wc_read_byte_len(cq) == 100 &&
		       ibv_wc_read_imm_data(cq) == htobe32(i) &&
		       ibv_wc_read_qp_num(cq) == b.qp->qp_num &&
		       ibv_wc_read_wc_flags(cq) == IBV_WC_WITH_IMM &&
		       !ibv_wc_read_vendor_err(cq) && !ibv_wc_read_slid(cq) &&
		       !ibv_wc_read_sl(cq) && !ibv_wc_read_dlid_path_bits(cq), "what it has");
		ret = ibv_next_poll(cq);
		expect(ret == (i < 4 ? 0 : ENOENT), "next_poll: %s", strerror(ret));
	}
	ibv_end_poll(cq);
	expect(ibv_start_poll(cq, &none) == ENOENT, "an entry twice");

	/* The other way to poll takes from the same queue. */
	receive(&b, 60, 0, 128);
	send = wr(9, IBV_WR_SEND, &one, 1);
	must_post(&a, &send);
	entry(ibv_cq_ex_to_cq(cq), 60, IBV_WC_SUCCESS);
}

static void cq_extended(void)
{
	extended_entries(0);
}

static void cq_single_threaded(void)
{
	extended_entries(IBV_CREATE_CQ_ATTR_SINGLE_THREADED);
}

/* The next entry of an extended CQ, which has this ID and status; the caller ends the poll. */
static void extended_entry(struct ibv_cq_ex *cq, __u64 id, enum ibv_wc_status status)
{
	struct ibv_poll_cq_attr none = { 0 };
	long long until = now() + 1000 * SECONDS;
	int ret;

	while ((ret = ibv_start_poll(cq, &none)) == ENOENT)
		expect(now() < until, "no entry");
	expect(!ret, "start_poll: %s", strerror(ret));
	expect(cq->wr_id == id && cq->status == status, "entry %llu %s",
	       (unsigned long long)cq->wr_id, ibv_wc_status_str(cq->status));
}

/*
 * ibv_create_cq_ex(3): the channel and the context of its events; what an entry of a
 * datagram has, and one in error.
 */
static void cq_extended_of_datagrams(void)
{
	struct ibv_qp_init_attr init = usual(IBV_QPT_UD);
	struct ibv_cq_init_attr_ex attr = {
		.cqe = 2 * WRS,
		.cq_context = &init,
		.wc_flags = IBV_WC_STANDARD_FLAGS,
	};
	struct ibv_cq *got = NULL;
	struct ibv_send_wr send;
	void *context = NULL;
	struct ibv_cq_ex *cq;
	struct ibv_sge one;
	struct pollfd fd;

	make_end(&a, IBV_QPT_UD, 0);
	make_end(&b, IBV_QPT_UD, 0);
	attr.channel = b.channel;
	cq = ibv_create_cq_ex(device, &attr);
	expect(cq && ibv_cq_ex_to_cq(cq)->cqe >= 2 * WRS, "no extended CQ: %s", strerror(errno));
	init.recv_cq = ibv_cq_ex_to_cq(cq);
	other_qp(&b, init);
	connect_ends(7);
	fd = (struct pollfd) { .fd = b.channel->fd, .events = POLLIN };
	expect(!ibv_req_notify_cq(init.recv_cq, 0), "req_notify_cq");
	receive(&b, 1, 0, 40 + 100);
	receive(&b, 2, 4096, 40 + 99);
	one = sge(&a, 0, 100);
	send = datagram(&one, make_ah());
	send.opcode = IBV_WR_SEND_WITH_IMM;
	send.imm_data = htobe32(0x01020304);
	must_post(&a, &send);
	entry(a.sends, 1, IBV_WC_SUCCESS);
	expect(poll(&fd, 1, SECONDS * 1000) == 1, "no event");
	expect(!ibv_get_cq_event(b.channel, &got, &context) && got == init.recv_cq &&
	       context == &init, "the CQ and its context");
	ibv_ack_cq_events(got, 1);
	extended_entry(cq, 1, IBV_WC_SUCCESS);
	expect(ibv_wc_read_opcode(cq) == IBV_WC_RECV &&
	       ibv_wc_read_byte_len(cq) == 40 + 100 &&
	       ibv_wc_read_src_qp(cq) == a.qp->qp_num &&
	       ibv_wc_read_qp_num(cq) == b.qp->qp_num &&
	       ibv_wc_read_imm_data(cq) == htobe32(0x01020304) &&
	       ibv_wc_read_wc_flags(cq) == (IBV_WC_GRH | IBV_WC_WITH_IMM), "a datagram");
	expect(ibv_next_poll(cq) == ENOENT, "one more entry");
	ibv_end_poll(cq);
	must_post(&a, &send);
	entry(a.sends, 1, IBV_WC_SUCCESS);
	extended_entry(cq, 2, IBV_WC_LOC_LEN_ERR);
	expect(ibv_wc_read_qp_num(cq) == b.qp->qp_num && !ibv_wc_read_vendor_err(cq), "an error");
	ibv_end_poll(cq);
}

/* ibv_create_cq_ex(3): attributes that the device does not have are refused. */
static void cq_refused(void)
{
	struct ibv_poll_cq_attr unknown = { .comp_mask = 1 };
	struct ibv_cq_ex *cq;

	errno = 0;
	expect(!extended_cq(IBV_WC_EX_WITH_COMPLETION_TIMESTAMP, 0) && errno == EOPNOTSUPP,
	       "timestamps: %s", strerror(errno));
	expect(!extended_cq(IBV_WC_STANDARD_FLAGS, IBV_CREATE_CQ_ATTR_IGNORE_OVERRUN) &&
	       errno == EOPNOTSUPP, "overruns: %s", strerror(errno));
	cq = extended_cq(0, 0);
	expect(cq && ibv_start_poll(cq, &unknown) == EINVAL, "an unknown attribute");
}

/* ibv_destroy_qp(3): all entries leave the CQ, also if more than 1,024 wait there. */
static void many_entries_of_a_destroyed_qp_are_gone(void)
{
	struct ibv_qp_init_attr init = usual(IBV_QPT_RC);
	struct ibv_wc wc;
	int i;

	make_end(&b, IBV_QPT_RC, 0);
	init.cap.max_recv_wr = 2000;
	init.recv_cq = ibv_create_cq(device, 4096, NULL, NULL, 0);
	expect(init.recv_cq, "no CQ: %s", strerror(errno));
	other_qp(&b, init);
	to_init(&b);
	for (i = 0; i < 2000; i++)
		receive(&b, i, 0, 8);
	expect(!modify(&b, IBV_QPS_ERR), "ERR");
	entry(init.recv_cq, 0, IBV_WC_WR_FLUSH_ERR);
	pause_ms(500);
	expect(!ibv_destroy_qp(b.qp), "destroy_qp");
	expect(!ibv_poll_cq(init.recv_cq, 1, &wc), "entry %llu of a QP that is not there",
	       (unsigned long long)wc.wr_id);
}

/* ibv_destroy_qp(3): its entries leave the CQ, those of another QP stay in order. */
static void entries_of_a_destroyed_qp_are_gone(void)
{
	struct ibv_qp_init_attr init = usual(IBV_QPT_RC);
	struct ibv_qp *other;
	struct ibv_recv_wr *bad;
	struct ibv_qp_attr attr = { .port_num = 1 };
	struct ibv_wc wc;
	int i;

	make_end(&a, IBV_QPT_RC, 0);
	init.send_cq = a.receives;
	init.recv_cq = a.receives;
	other = ibv_create_qp(a.pd, &init);
	expect(other, "no QP");
	to_init(&a);
	attr.qp_state = IBV_QPS_INIT;
	expect(!ibv_modify_qp(other, &attr, IBV_QP_STATE | IBV_QP_PKEY_INDEX | IBV_QP_PORT |
			      IBV_QP_ACCESS_FLAGS), "INIT");
	for (i = 0; i < 10; i++) {
		struct ibv_sge one = sge(&a, 0, 8);
		struct ibv_recv_wr receive = { .wr_id = i, .sg_list = &one, .num_sge = 1 };

		expect(!ibv_post_recv(i % 3 ? other : a.qp, &receive, &bad), "post_recv");
	}
	attr.qp_state = IBV_QPS_ERR;
	expect(!ibv_modify_qp(other, &attr, IBV_QP_STATE) && !modify(&a, IBV_QPS_ERR), "ERR");
	pause_ms(200);
	expect(!ibv_destroy_qp(other), "destroy_qp");
	for (i = 0; i < 10; i += 3)
		entry(a.receives, i, IBV_WC_WR_FLUSH_ERR);
	expect(!ibv_poll_cq(a.receives, 1, &wc), "an entry of the QP that is destroyed");
}

/* ibv_create_counters(3), ibv_attach_counters_point_flow(3): unknown attributes are refused. */
static void counters_have_no_other_attributes(void)
{
	struct ibv_counters_init_attr init = { 0 }, unknown = { .comp_mask = 1 };
	struct ibv_counter_attach_attr point = { .comp_mask = 1 };
	struct ibv_counters *counters = ibv_create_counters(device, &init);

	expect(counters, "no counters: %s", strerror(errno));
	errno = 0;
	expect(!ibv_create_counters(device, &unknown) && errno == EOPNOTSUPP, "a mask: %s",
	       strerror(errno));
	expect(ibv_attach_counters_point_flow(counters, &point, NULL) == EOPNOTSUPP,
	       "a mask of a point");
	expect(!ibv_destroy_counters(counters), "destroy_counters");
}

/*
 * ibv_qp_attach_comp_cntr(3), ibv_attach_counters_point_flow(3): objects of two contexts,
 * with the same numbers in both.
 */
static void objects_of_another_context_are_refused(void)
{
	struct ibv_qp_attach_comp_cntr_attr attach = {
		.op_mask = IBV_QP_ATTACH_COMP_CNTR_OP_SEND,
	};
	struct ibv_flow_attr rule = { .size = sizeof(rule), .port = 1 };
	struct ibv_comp_cntr_init_attr init = { 0 };
	struct ibv_counters_init_attr none = { 0 };
	struct ibv_counter_attach_attr point = { 0 };
	struct ibv_counters *counters;
	struct ibv_comp_cntr *cntr;
	struct ibv_flow *first, *second;

	make_end(&a, IBV_QPT_UD, 0);
	first = ibv_create_flow(a.qp, &rule);
	device = ibv_open_device(device->device);
	expect(device, "open_device");
	make_end(&b, IBV_QPT_UD, 0);
	second = ibv_create_flow(b.qp, &rule);
	expect(first && second && first->handle == second->handle &&
	       a.qp->handle == b.qp->handle, "the test's own numbers");
	cntr = ibv_create_comp_cntr(device, &init);
	counters = ibv_create_counters(device, &none);
	expect(cntr && counters, "no counters: %s", strerror(errno));
	expect(ibv_qp_attach_comp_cntr(a.qp, cntr, &attach) == EINVAL, "a QP");
	expect(ibv_attach_counters_point_flow(counters, &point, first) == EINVAL, "a flow");
	/* Nothing has them. */
	expect(!ibv_destroy_comp_cntr(cntr) && !ibv_destroy_counters(counters), "in use");
}

/* Memory of the program that the library or the kernel refuses. */
static void external(struct kfdv_memory_location bad, int error, const char *what)
{
	static __u64 word;
	struct ibv_comp_cntr_init_attr init = { 0 };
	struct kfdv_comp_cntr_init_attr attr = {
		.flags = KFDV_COMP_CNTR_INIT_WITH_EXTERNAL_MEM,
		.comp_cntr_ext_mem = { .ptr = (__u8 *)&word },
		.err_cntr_ext_mem = bad,
	};

	errno = 0;
	expect(!kfdv_create_comp_cntr(device, &init, &attr, sizeof(attr)) && errno == error,
	       "%s: %s, not %s", what, strerror(errno), strerror(error));
}

/* ibv_create_comp_cntr(3) and kfdv.h: arguments that are wrong or not known. */
static void arguments_of_counters_are_checked_by_name(void)
{
	static __u64 words[2];
	struct ibv_comp_cntr_init_attr init = { .type = IBV_COMP_CNTR_TYPE_BYTES };
	struct ibv_comp_cntr_init_attr unknown[] = { { .flags = 1 }, { .comp_mask = 1 },
						     { .type = 2 } };
	struct kfdv_comp_cntr_init_attr kfdv = { .flags = 2 };
	struct kfdv_comp_cntr places;
	struct ibv_qp_attach_comp_cntr_attr attach = { .comp_mask = 1 };
	struct ibv_comp_cntr_caps caps;
	struct ibv_comp_cntr *cntr;
	__u32 i;

	expect(kfdv_is_supported(device->device), "a device of kfabric");
	for (i = 0; i < sizeof(unknown) / sizeof(unknown[0]); i++) {
		errno = 0;
		expect(!ibv_create_comp_cntr(device, &unknown[i]) && errno == EOPNOTSUPP,
		       "attribute %u: %s", i, strerror(errno));
	}
	expect(!kfdv_create_comp_cntr(device, &init, &kfdv, sizeof(kfdv)) &&
	       errno == EOPNOTSUPP, "a flag of kfdv.h");
	kfdv.flags = 0;
	expect(!kfdv_create_comp_cntr(device, &init, &kfdv, 8) && errno == EINVAL, "a size");
	kfdv.comp_mask = 1;
	expect(!kfdv_create_comp_cntr(device, &init, &kfdv, sizeof(kfdv)) && errno == EINVAL,
	       "a mask of kfdv.h");
	kfdv = (struct kfdv_comp_cntr_init_attr) { .reserved = 1 };
	expect(!kfdv_create_comp_cntr(device, &init, &kfdv, sizeof(kfdv)) && errno == EINVAL,
	       "a reserved member");
	external((struct kfdv_memory_location) { 0 }, EINVAL, "no address");
	external((struct kfdv_memory_location) { .ptr = (__u8 *)words + 12 }, EINVAL, "4 bytes");
	external((struct kfdv_memory_location) { .ptr = (void *)(8ul << 40) }, EFAULT,
		 "what is not mapped");
	external((struct kfdv_memory_location) { .ptr = (__u8 *)words, .type = 2 }, EINVAL,
		 "a type");
	external((struct kfdv_memory_location) { .ptr = (__u8 *)words, .reserved[6] = 1 }, EINVAL,
		 "a reserved byte");
	external((struct kfdv_memory_location) { .ptr = (__u8 *)words, .dmabuf.reserved = 1 },
		 EINVAL, "a reserved member of a DMA-BUF");
	external((struct kfdv_memory_location) {
			.type = KFDV_MEMORY_LOCATION_DMABUF, .dmabuf.fd = -1 }, EBADF, "no file");

	cntr = ibv_create_comp_cntr(device, &init);
	expect(cntr && cntr->context == device, "no counter: %s", strerror(errno));
	expect(kfdv_query_comp_cntr(cntr, &places, 8) == EINVAL, "a size of what is queried");
	expect(kfdv_query_comp_cntr_caps(device, &caps, 8) == EINVAL, "a size of capabilities");
	make_end(&a, IBV_QPT_RC, 0);
	expect(ibv_qp_attach_comp_cntr(a.qp, cntr, &attach) == EOPNOTSUPP, "a mask of attach");
	expect(!ibv_destroy_comp_cntr(cntr), "destroy_comp_cntr");
}

/* The functions of kfdv.h with the device of another driver. */
static void foreign(void)
{
	struct ibv_comp_cntr_init_attr init = { 0 };
	struct ibv_comp_cntr_caps caps;

	expect(!kfdv_is_supported(device->device), "no device of kfabric");
	errno = 0;
	expect(!ibv_create_comp_cntr(device, &init) && errno == EOPNOTSUPP, "a counter: %s",
	       strerror(errno));
	expect(ibv_query_comp_cntr_caps(device, &caps) == EOPNOTSUPP, "capabilities");
}

static const struct test tests[] = {
	TEST(wr_operations), TEST(wr_send_inv), TEST(wr_inline), TEST(wr_many), TEST(wr_abort),
	TEST(wr_errors), TEST(wr_datagrams), TEST(post_many), TEST(post_many_receives),
	TEST(cq_extended), TEST(cq_single_threaded), TEST(cq_refused), TEST(foreign),
	TEST(entries_of_a_destroyed_qp_are_gone),
	TEST(many_entries_of_a_destroyed_qp_are_gone),
	TEST(counters_have_no_other_attributes),
	TEST(arguments_of_counters_are_checked_by_name),
	TEST(wr_threads), TEST(cq_extended_of_datagrams), TEST(post_unknown_operations),
	TEST(objects_of_another_context_are_refused), TEST(wr_inline_needs_no_sges),
};

int main(int argc, char **argv)
{
	return run_test(argc, argv, tests, sizeof(tests) / sizeof(tests[0]));
}
