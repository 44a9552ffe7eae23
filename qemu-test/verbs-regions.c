// SPDX-License-Identifier: GPL-2.0
/*
 * verbs-regions: what the pages of libibverbs require of work requests and the regions that
 * they name: rights, addresses, DMA-BUFs, regions that are deregistered meanwhile. The
 * comment of a test names its page, if one page has the rule.
 */

#define _GNU_SOURCE

#include "verbs-raw.h"

/* A region that is deregistered while receives and sends name it. */
static void dereg_while_posted(void)
{
	struct ibv_sge one;
	struct ibv_send_wr send;

	pair(IBV_QPT_RC);
	receive(&b, 1, 0, 64);
	receive(&b, 2, 0, 64);
	expect(!ibv_dereg_mr(b.mr), "dereg_mr");
	one = sge(&a, 0, 64);
	send = wr(1, IBV_WR_SEND, &one, 1);
	must_post(&a, &send);
	entry(b.receives, 1, IBV_WC_LOC_PROT_ERR);
	entry(b.receives, 2, IBV_WC_WR_FLUSH_ERR);
	entry(a.sends, 1, IBV_WC_REM_OP_ERR);
	is_in(&a, IBV_QPS_ERR);
	is_in(&b, IBV_QPS_ERR);
}

/* A pair whose QP a is in SQD, with an empty send queue. */
static void pair_in_sqd(enum ibv_qp_type type)
{
	pair(type);
	to_sqd(&a);
	event(IBV_EVENT_SQ_DRAINED);
	fill(&a, 0, 64, 3);
}

/* A region is deregistered while this work request, which names it, waits in SQD. */
static void dereg_while_it_waits(struct ibv_send_wr *send)
{
	must_post(&a, send);
	expect(!ibv_dereg_mr(a.mr), "dereg_mr");
	no_entry(a.sends);
	expect(!modify(&a, IBV_QPS_RTS), "RTS");
}

/*
 * ibv_dereg_mr(3), and volume 1, 10.6.2: the keys name nothing afterwards. The keys of a
 * connection's work request have been looked up at the post, also in SQD; those of a datagram are
 * looked up when it is sent.
 */
static void dereg_in_sqd(void)
{
	struct ibv_send_wr send;
	struct ibv_sge one;

	pair_in_sqd(IBV_QPT_RC);
	one = sge(&a, 0, 64);
	send = wr(1, IBV_WR_RDMA_WRITE, &one, 1);
	remote(&send, &b, 0);
	dereg_while_it_waits(&send);
	entry(a.sends, 1, IBV_WC_SUCCESS);
	check(&b, 0, 64, 3);
	/* The next one finds nothing. */
	must_post(&a, &send);
	entry(a.sends, 1, IBV_WC_LOC_PROT_ERR);
	is_in(&a, IBV_QPS_ERR);

	pair_in_sqd(IBV_QPT_UD);
	receive(&b, 2, 0, 200);
	one = sge(&a, 0, 64);
	send = datagram(&one, make_ah());
	dereg_while_it_waits(&send);
	entry(a.sends, 1, IBV_WC_LOC_PROT_ERR);
	is_in(&a, IBV_QPS_SQE);
	no_entry(b.receives);
}

/* A READ or an atomic writes to memory here. */
static void read_needs_local_write(void)
{
	struct ibv_sge one;
	struct ibv_send_wr send;

	pair(IBV_QPT_RC);
	ibv_dereg_mr(a.mr);
	a.mr = ibv_reg_mr(a.pd, a.memory, REGION, 0);
	expect(a.mr, "reg_mr to read");
	one = sge(&a, 0, 64);
	send = wr(1, IBV_WR_RDMA_WRITE, &one, 1);
	remote(&send, &b, 0);
	must_post(&a, &send);
	entry(a.sends, 1, IBV_WC_SUCCESS);
	send = wr(2, IBV_WR_RDMA_READ, &one, 1);
	remote(&send, &b, 0);
	must_post(&a, &send);
	entry(a.sends, 2, IBV_WC_LOC_PROT_ERR);
	is_in(&a, IBV_QPS_ERR);
}

/* A receive needs the right to write locally, too. */
static void receive_needs_local_write(void)
{
	struct ibv_sge one;
	struct ibv_send_wr send;

	pair(IBV_QPT_RC);
	ibv_dereg_mr(b.mr);
	b.mr = ibv_reg_mr(b.pd, b.memory, REGION, 0);
	receive(&b, 1, 0, 64);
	one = sge(&a, 0, 64);
	send = wr(1, IBV_WR_SEND, &one, 1);
	must_post(&a, &send);
	entry(b.receives, 1, IBV_WC_LOC_PROT_ERR);
	entry(a.sends, 1, IBV_WC_REM_OP_ERR);
}

/* ibv_reg_dmabuf_mr(3): the keys of a region, or an error number. */
static int dma_buf_with_rights(struct end *end, int fd, __u64 offset, __u64 len, __u64 iova,
			       int access, struct ibv_mr *keys)
{
	struct ibv_mr *mr = ibv_reg_dmabuf_mr(end->pd, offset, len, iova, fd, access);

	if (mr)
		*keys = *mr;
	if (mr || errno != EOPNOTSUPP)
		return mr ? 0 : errno;
	/* libipathverbs does not have the function. */
	return register_part(end->pd->handle, fd, offset, len, iova, access, &keys->handle,
			     &keys->lkey, &keys->rkey);
}

static int part_of_dma_buf(struct end *end, int fd, __u64 offset, __u64 len, __u64 iova,
			   struct ibv_mr *keys)
{
	return dma_buf_with_rights(end, fd, offset, len, iova, ACCESS, keys);
}

/* The keys of a region of a DMA-BUF of @len bytes, and its memory. */
static __u8 *region_of_dma_buf(struct end *end, size_t len, struct ibv_mr *keys)
{
	void *map;
	int fd = make_dma_buf(len, &map);

	must(part_of_dma_buf(end, fd, 0, len, 0, keys), 0, "reg_dmabuf_mr");
	/* The region keeps the DMA-BUF. */
	close(fd);
	return map;
}

/* Work requests access a region of a DMA-BUF as one of memory, also at their own end. */
static void region_in_a_dma_buf(void)
{
	const __u32 len = 50001, at = 4096 + 100;
	struct ibv_mr keys;
	struct ibv_sge one, room;
	struct ibv_send_wr send;
	__u8 *there;
	__u32 i;

	pair(IBV_QPT_RC);
	there = region_of_dma_buf(&b, 64 << 10, &keys);
	fill(&a, 0, len, 21);
	one = sge(&a, 0, len);
	send = wr(1, IBV_WR_RDMA_WRITE, &one, 1);
	send.wr.rdma.remote_addr = at;
	send.wr.rdma.rkey = keys.rkey;
	must_post(&a, &send);
	entry(a.sends, 1, IBV_WC_SUCCESS);
	expect(!memcmp(there + at, a.memory, len), "WRITE: the bytes");
	expect(!there[at - 1] && !there[at + len], "WRITE: bytes beside them");
	for (i = 0; i < len; i++)
		there[at + i] = pattern(22, i);
	send.opcode = IBV_WR_RDMA_READ;
	must_post(&a, &send);
	entry(a.sends, 1, IBV_WC_SUCCESS);
	check(&a, 0, len, 22);

	room = (struct ibv_sge) { .addr = 8, .length = len, .lkey = keys.lkey };
	expect(!try_receive(&b, 2, &room, 1), "post_recv");
	fill(&a, 0, len, 23);
	send.opcode = IBV_WR_SEND;
	must_post(&a, &send);
	entry(a.sends, 1, IBV_WC_SUCCESS);
	entry(b.receives, 2, IBV_WC_SUCCESS);
	expect(!memcmp(there + 8, a.memory, len), "SEND: the bytes");

	send.opcode = IBV_WR_RDMA_READ;
	send.wr.rdma.remote_addr = (64 << 10) - len + 1;
	must_post(&a, &send);
	entry(a.sends, 1, IBV_WC_REM_ACCESS_ERR);
}

/*
 * ibv_reg_mr(3): a region of a DMA-BUF starts at an offset, and its addresses at another
 * one, which has the same place in its page.
 */
static void part_of_a_dma_buf(void)
{
	const __u64 offset = 3 * 4096 + 100, iova = (1ull << 44) + 100, size = 64 << 10;
	const __u32 room = 20000, len = 5000;
	struct ibv_mr keys, none;
	struct ibv_send_wr send;
	struct ibv_sge one;
	void *map;
	__u8 *there;
	int fd = make_dma_buf(size, &map), closed;

	pair(IBV_QPT_RC);
	closed = dup(fd);
	close(closed);
	must(part_of_dma_buf(&b, fd, offset, room, iova + 1, &none), EINVAL, "another place");
	must(part_of_dma_buf(&b, fd, offset, 0, iova, &none), EINVAL, "no bytes");
	must(part_of_dma_buf(&b, fd, size - 4096, 4097, 0, &none), EINVAL, "behind the end");
	must(part_of_dma_buf(&b, device->cmd_fd, 0, 4096, 0, &none), EINVAL, "no DMA-BUF");
	must(part_of_dma_buf(&b, closed, 0, 4096, 0, &none), EBADF, "no file");
	must(part_of_dma_buf(&b, fd, offset, room, iova, &keys), 0, "reg_dmabuf_mr");
	close(fd);
	there = (__u8 *)map + offset;

	fill(&a, 0, len, 24);
	one = sge(&a, 0, len);
	send = wr(1, IBV_WR_RDMA_WRITE, &one, 1);
	send.wr.rdma.remote_addr = iova + 50;
	send.wr.rdma.rkey = keys.rkey;
	must_post(&a, &send);
	entry(a.sends, 1, IBV_WC_SUCCESS);
	expect(!memcmp(there + 50, a.memory, len), "WRITE: the bytes");
	expect(!there[49] && !there[50 + len], "WRITE: bytes beside them");
	memset(a.memory, 0, len);
	send.opcode = IBV_WR_RDMA_READ;
	must_post(&a, &send);
	entry(a.sends, 1, IBV_WC_SUCCESS);
	check(&a, 0, len, 24);
	/* The last bytes, and one more. */
	send.wr.rdma.remote_addr = iova + room - len;
	must_post(&a, &send);
	entry(a.sends, 1, IBV_WC_SUCCESS);
	send.wr.rdma.remote_addr++;
	must_post(&a, &send);
	entry(a.sends, 1, IBV_WC_REM_ACCESS_ERR);
}

/*
 * ibv_reg_dmabuf_mr(3): access is as for ibv_reg_mr(), but that fewer flags are supported. What
 * the peer may do is what the flags say.
 */
static void rights_of_a_dma_buf(void)
{
	static const int good[] = {
		0, IBV_ACCESS_REMOTE_READ, IBV_ACCESS_LOCAL_WRITE,
		ACCESS | IBV_ACCESS_RELAXED_ORDERING,
	};
	static const int bad[] = {
		IBV_ACCESS_REMOTE_WRITE, IBV_ACCESS_REMOTE_ATOMIC,
		IBV_ACCESS_REMOTE_WRITE | IBV_ACCESS_REMOTE_READ,
		ACCESS | IBV_ACCESS_MW_BIND, ACCESS | IBV_ACCESS_ZERO_BASED,
		ACCESS | IBV_ACCESS_ON_DEMAND, ACCESS | IBV_ACCESS_HUGETLB,
		ACCESS | IBV_ACCESS_FLUSH_GLOBAL, ACCESS | IBV_ACCESS_FLUSH_PERSISTENT,
		ACCESS | 1 << 19, ACCESS | 1 << 30,
	};
	struct ibv_send_wr send;
	struct ibv_mr keys;
	struct ibv_sge one;
	unsigned int i;
	void *map;
	__u8 *there;
	int fd = make_dma_buf(4096, &map), ret;

	pair(IBV_QPT_RC);
	for (i = 0; i < sizeof(bad) / sizeof(bad[0]); i++) {
		ret = dma_buf_with_rights(&b, fd, 0, 4096, 0, bad[i], &keys);
		expect(ret == EINVAL, "flags %#x: %s", bad[i], strerror(ret));
	}
	for (i = 0; i < sizeof(good) / sizeof(good[0]); i++) {
		ret = dma_buf_with_rights(&b, fd, 0, 4096, 0, good[i], &keys);
		expect(!ret, "flags %#x: %s", good[i], strerror(ret));
	}

	must(dma_buf_with_rights(&b, fd, 0, 4096, 0, IBV_ACCESS_REMOTE_READ, &keys), 0, "to read");
	there = map;
	for (i = 0; i < 100; i++)
		there[i] = pattern(25, i);
	one = sge(&a, 0, 100);
	send = wr(1, IBV_WR_RDMA_READ, &one, 1);
	send.wr.rdma.remote_addr = 0;
	send.wr.rdma.rkey = keys.rkey;
	must_post(&a, &send);
	entry(a.sends, 1, IBV_WC_SUCCESS);
	check(&a, 0, 100, 25);
	a.memory[0] = ~there[0];
	send.opcode = IBV_WR_RDMA_WRITE;
	must_post(&a, &send);
	entry(a.sends, 1, IBV_WC_REM_ACCESS_ERR);
	expect(there[0] == pattern(25, 0), "it was written");
}

/* Regions whose addresses begin at @base, at both ends; that of b leaves out a page. */
static void memory_at(__u64 base)
{
	const __u32 len = 5001, at = 8192 + 77;
	struct ibv_mr *from, *to;
	struct ibv_sge one, room;
	struct ibv_send_wr send;

	pair(IBV_QPT_RC);
	from = ibv_reg_mr_iova(a.pd, a.memory, REGION, base, ACCESS);
	to = ibv_reg_mr_iova(b.pd, b.memory + 4096, REGION - 4096, base, ACCESS);
	expect(from && to, "reg_mr_iova: %s", strerror(errno));
	fill(&a, at, len, 31);
	one = (struct ibv_sge) { .addr = base + at, .length = len, .lkey = from->lkey };
	send = wr(1, IBV_WR_RDMA_WRITE, &one, 1);
	send.wr.rdma.remote_addr = base + 100;
	send.wr.rdma.rkey = to->rkey;
	must_post(&a, &send);
	entry(a.sends, 1, IBV_WC_SUCCESS);
	check(&b, 4096 + 100, len, 31);
	fill(&b, 4096 + 100, len, 32);
	send.opcode = IBV_WR_RDMA_READ;
	must_post(&a, &send);
	entry(a.sends, 1, IBV_WC_SUCCESS);
	check(&a, at, len, 32);
	room = (struct ibv_sge) { .addr = base + 7, .length = len, .lkey = to->lkey };
	expect(!try_receive(&b, 2, &room, 1), "post_recv");
	fill(&a, at, len, 33);
	send.opcode = IBV_WR_SEND;
	must_post(&a, &send);
	entry(a.sends, 1, IBV_WC_SUCCESS);
	entry(b.receives, 2, IBV_WC_SUCCESS);
	check(&b, 4096 + 7, len, 33);
	/* The address of the memory itself is none of the region. */
	send.opcode = IBV_WR_RDMA_WRITE;
	send.wr.rdma.remote_addr = (__u64)(unsigned long)b.memory + 4096;
	must_post(&a, &send);
	entry(a.sends, 1, IBV_WC_REM_ACCESS_ERR);
}

/* ibv_reg_mr(3): ibv_reg_mr_iova() gives the address by which both keys name the memory. */
static void addresses_of_a_region(void)
{
	memory_at(1ull << 60);
	memory_at(0);
}

/*
 * ibv_fork_init(3): with IBV_FORK_UNNEEDED, the memory of a region stays that of its process when
 * the process forks and writes to it. The child keeps a copy.
 */
static void a_fork_leaves_regions_alone(void)
{
	struct ibv_send_wr send;
	int there[2], status;
	struct ibv_sge one;
	char byte = 0;
	pid_t child;

	expect(ibv_is_fork_initialized() == IBV_FORK_UNNEEDED, "fork_init is needed");
	pair(IBV_QPT_RC);
	fill(&a, 0, 64, 3);
	expect(!pipe(there), "pipe");
	child = fork();
	expect(child >= 0, "fork: %s", strerror(errno));
	if (!child) {
		close(there[1]);
		expect(read(there[0], &byte, 1) == 1, "read");
		expect(!b.memory[0] && !b.memory[63], "the child has bytes of the peer");
		_exit(0);
	}
	/* The parent writes to the page first, and so does the peer. */
	b.memory[100] = 1;
	one = sge(&a, 0, 64);
	send = wr(1, IBV_WR_RDMA_WRITE, &one, 1);
	remote(&send, &b, 0);
	must_post(&a, &send);
	entry(a.sends, 1, IBV_WC_SUCCESS);
	check(&b, 0, 64, 3);
	expect(write(there[1], &byte, 1) == 1, "write");
	expect(waitpid(child, &status, 0) == child && !status, "the child: %d", status);
}

static const struct test tests[] = {
	TEST(region_in_a_dma_buf), TEST(dereg_while_posted), TEST(rights_of_a_dma_buf),
	TEST(receive_needs_local_write), TEST(addresses_of_a_region), TEST(part_of_a_dma_buf),
	TEST(read_needs_local_write), TEST(dereg_in_sqd),
	TEST(a_fork_leaves_regions_alone),
};

int main(int argc, char **argv)
{
	return run_test(argc, argv, tests, sizeof(tests) / sizeof(tests[0]));
}
