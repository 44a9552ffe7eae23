// SPDX-License-Identifier: GPL-2.0
/*
 * verbs-transfers: what the pages of libibverbs require of work requests: lengths, flags,
 * retries, several QPs and threads. Each test names its page.
 */

#define _GNU_SOURCE
#include <sys/mman.h>
#include <unistd.h>

#include "verbs-ends.h"

/* A QP that sends nothing, and one that receives nothing. */
static void one_way(void)
{
	struct ibv_qp_init_attr init = usual(IBV_QPT_UD);

	make_end(&a, IBV_QPT_UD, 0);
	init.cap.max_send_wr = 0;
	init.cap.max_send_sge = 0;
	init.cap.max_inline_data = 0;
	other_qp(&a, init);
	init = usual(IBV_QPT_UD);
	init.cap.max_recv_wr = 0;
	init.cap.max_recv_sge = 0;
	other_qp(&a, init);
}

/* Volume 1, 9.4.5: an atomic that is not aligned is an invalid request. */
static void unaligned_atomic(void)
{
	struct ibv_sge one;
	struct ibv_send_wr send;

	pair(IBV_QPT_RC);
	one = sge(&a, 0, 8);
	send = atomic(IBV_WR_ATOMIC_FETCH_AND_ADD, &one, 68, 1, 0);
	must_post(&a, &send);
	entry(a.sends, 68, IBV_WC_REM_INV_REQ_ERR);
	is_in(&b, IBV_QPS_ERR);
	/* The responder has no entry. */
	event(IBV_EVENT_QP_FATAL);
}

/* ibv_modify_qp(3): qp_access_flags are the operations that the QP accepts. */
static void qp_without_rights(void)
{
	struct ibv_qp_attr attr = { .qp_access_flags = 0 };
	struct ibv_sge one;
	struct ibv_send_wr send;

	pair(IBV_QPT_RC);
	expect(!ibv_modify_qp(b.qp, &attr, IBV_QP_ACCESS_FLAGS), "no rights");
	one = sge(&a, 0, 64);
	send = wr(1, IBV_WR_RDMA_WRITE, &one, 1);
	remote(&send, &b, 0);
	must_post(&a, &send);
	entry(a.sends, 1, IBV_WC_REM_INV_REQ_ERR);
}

/* READs and atomics beyond max_rd_atomic wait, and all end in order. */
static void many_reads(void)
{
	struct ibv_sge one[WRS];
	struct ibv_send_wr send[WRS];
	int i;

	pair(IBV_QPT_RC);
	fill(&b, 0, WRS * 20000, 3);
	for (i = 0; i < WRS; i++) {
		one[i] = sge(&a, i * 20000, 20000);
		send[i] = wr(i, IBV_WR_RDMA_READ, &one[i], 1);
		remote(&send[i], &b, i * 20000);
		send[i].next = i + 1 < WRS ? &send[i + 1] : NULL;
	}
	must_post(&a, send);
	for (i = 0; i < WRS; i++)
		entry(a.sends, i, IBV_WC_SUCCESS);
	check(&a, 0, WRS * 20000, 3);
}

/* max_rd_atomic 0: a READ ends in error. */
static void no_reads(void)
{
	struct ibv_qp_attr attr = {
		.qp_state = IBV_QPS_RTS, .timeout = 14, .retry_cnt = 7, .rnr_retry = 7,
		.sq_psn = 0x123456,
	};
	struct ibv_sge one;
	struct ibv_send_wr send;

	make_end(&a, IBV_QPT_RC, 0);
	make_end(&b, IBV_QPT_RC, 0);
	ends_to_rtr();
	expect(!ibv_modify_qp(a.qp, &attr, RTS_MASK),
	       "RTS");
	to_rts(&b, 7);
	one = sge(&a, 0, 64);
	send = wr(1, IBV_WR_RDMA_READ, &one, 1);
	remote(&send, &b, 0);
	must_post(&a, &send);
	entry(a.sends, 1, IBV_WC_LOC_QP_OP_ERR);
}

/* As entry(), for a work request that takes minutes on a slow machine. */
static struct ibv_wc late_entry(struct ibv_cq *cq, __u64 id)
{
	struct ibv_wc wc = { 0 };

	expect(poll_for(cq, &wc, 15 * SECONDS * 1000), "no entry for %llu", (unsigned long long)id);
	expect(wc.wr_id == id && !wc.status, "entry %llu %s", (unsigned long long)wc.wr_id,
	       ibv_wc_status_str(wc.status));
	return wc;
}

/*
 * Sends @len bytes from @from to @to by WRITE, back by READ, and again by SEND. The first @piece
 * bytes are compared.
 */
static void each_way(__u8 *from, __u8 *to, size_t len, size_t piece)
{
	struct ibv_sge one = { .addr = (__u64)(unsigned long)from, .length = len };
	struct ibv_sge other = { .addr = (__u64)(unsigned long)to, .length = len };
	struct ibv_send_wr send;
	struct ibv_mr *fm, *tm;
	size_t i;

	for (i = 0; i < piece; i++)
		from[i] = i * 11 + (i >> 12);
	memset(to, 0, piece);
	pair(IBV_QPT_RC);
	fm = ibv_reg_mr(a.pd, from, len, ACCESS);
	tm = ibv_reg_mr(b.pd, to, len, ACCESS);
	expect(fm && tm, "regions: %s", strerror(errno));
	one.lkey = fm->lkey;
	other.lkey = tm->lkey;
	send = wr(1, IBV_WR_RDMA_WRITE, &one, 1);
	send.wr.rdma.remote_addr = other.addr;
	send.wr.rdma.rkey = tm->rkey;
	must_post(&a, &send);
	late_entry(a.sends, 1);
	expect(!memcmp(from, to, piece), "WRITE");
	memset(from, 0, piece);
	send.opcode = IBV_WR_RDMA_READ;
	must_post(&a, &send);
	late_entry(a.sends, 1);
	expect(!memcmp(from, to, piece), "READ");
	memset(to, 0, piece);
	expect(!try_receive(&b, 2, &other, 1), "post_recv");
	send.opcode = IBV_WR_SEND;
	must_post(&a, &send);
	late_entry(a.sends, 1);
	expect(late_entry(b.receives, 2).byte_len == len, "length");
	expect(!memcmp(from, to, piece), "SEND");
}

static void bytes_in_one_message(size_t len)
{
	__u8 *from = aligned_alloc(4096, len), *to = aligned_alloc(4096, len);

	expect(from && to, "memory");
	each_way(from, to, len, len);
}

static void large(void)
{
	bytes_in_one_message(4u << 20);
}

static void largest(void)
{
	bytes_in_one_message(16u << 20);
}

/* Address space of @len bytes with the same few pages again and again. */
static __u8 *repeated(size_t len, size_t piece)
{
	__u8 *memory = mmap(NULL, len, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
	int file = memfd_create("repeated", 0);
	size_t at;

	expect(memory != MAP_FAILED && file >= 0 && !ftruncate(file, piece), "memory: %s",
	       strerror(errno));
	for (at = 0; at < len; at += piece)
		expect(mmap(memory + at, piece, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_FIXED,
			    file, 0) == memory + at, "mmap: %s", strerror(errno));
	close(file);
	return memory;
}

/* ibv_query_port(3): a message may have max_msg_sz bytes, which are 2 GiB. Takes minutes. */
static void largest_of_all(void)
{
	const size_t len = 1ul << 31, piece = 8ul << 20;
	struct ibv_port_attr port;

	expect(!ibv_query_port(device, 1, &port) && port.max_msg_sz == len, "max_msg_sz");
	path_mtu = port.active_mtu;
	each_way(repeated(len, piece), repeated(len, piece), len, piece);
}

/* As many SGEs as the device has, of odd lengths. */
static void most_sges(void)
{
	struct ibv_qp_init_attr init = usual(IBV_QPT_RC);
	struct ibv_sge from[16], to[16];
	struct ibv_send_wr send;
	__u32 i, at = 0;

	make_end(&a, IBV_QPT_RC, 0);
	make_end(&b, IBV_QPT_RC, 0);
	init.cap.max_send_sge = 16;
	init.cap.max_recv_sge = 16;
	init.cap.max_send_wr = 4;
	init.cap.max_recv_wr = 4;
	other_qp(&a, init);
	other_qp(&b, init);
	connect_ends(7);
	for (i = 0; i < 16; i++) {
		from[i] = sge(&a, at, 1001 + 2 * i);
		to[15 - i] = sge(&b, 500000 - at, 1001 + 2 * i);
		at += 1001 + 2 * i;
	}
	/* The pieces of the receive lie one behind the other, too, from the last one backwards. */
	for (i = 0, at = 100000; i < 16; i++) {
		to[i].addr = (__u64)(unsigned long)b.memory + at;
		at += to[i].length;
	}
	fill(&a, 0, at - 100000, 17);
	expect(!try_receive(&b, 1, to, 16), "post_recv");
	send = wr(2, IBV_WR_SEND, from, 16);
	must_post(&a, &send);
	entry(a.sends, 2, IBV_WC_SUCCESS);
	expect(entry(b.receives, 1, IBV_WC_SUCCESS).byte_len == at - 100000, "length");
	check(&b, 100000, at - 100000, 17);
}

/* The receiver is not ready at first, and is later. */
static void ready_later(void)
{
	struct ibv_sge one;
	struct ibv_send_wr send;

	pair(IBV_QPT_RC);
	fill(&a, 0, 5000, 7);
	one = sge(&a, 0, 5000);
	send = wr(1, IBV_WR_SEND, &one, 1);
	must_post(&a, &send);
	pause_ms(300);
	expect(!ibv_poll_cq(a.sends, 1, &(struct ibv_wc){ 0 }), "done without a receive");
	receive(&b, 2, 0, 5000);
	entry(a.sends, 1, IBV_WC_SUCCESS);
	entry(b.receives, 2, IBV_WC_SUCCESS);
	check(&b, 0, 5000, 7);
}

/* The peer's QP is destroyed: the retries end. */
static void peer_is_gone(void)
{
	struct ibv_sge one;
	struct ibv_send_wr send, second;

	pair(IBV_QPT_RC);
	expect(!ibv_destroy_qp(b.qp), "destroy_qp");
	one = sge(&a, 0, 64);
	second = wr(2, IBV_WR_SEND, &one, 1);
	second.send_flags = 0;
	send = wr(1, IBV_WR_SEND, &one, 1);
	send.next = &second;
	must_post(&a, &send);
	entry(a.sends, 1, IBV_WC_RETRY_EXC_ERR);
	entry(a.sends, 2, IBV_WC_WR_FLUSH_ERR);
	is_in(&a, IBV_QPS_ERR);
}

/* Two QPs take receives of one SRQ; one of them fails, and the other goes on. */
static void two_users(void)
{
	struct ibv_qp_init_attr init = usual(IBV_QPT_RC);
	struct end c = { 0 }, d = { 0 };
	struct ibv_sge one;
	struct ibv_send_wr send;
	struct ibv_wc wc;
	int i;

	with_srq = 1;
	pair(IBV_QPT_RC);
	make_end(&c, IBV_QPT_RC, 0);
	d = b;
	d.qp = NULL;
	init.srq = b.srq;
	other_qp(&d, init);
	to_init(&c);
	to_init(&d);
	to_rtr(&c, d.qp->qp_num);
	to_rtr(&d, c.qp->qp_num);
	to_rts(&c, 7);
	to_rts(&d, 7);
	for (i = 0; i < 6; i++)
		share(&b, i, 4096 * i, 4096);
	for (i = 0; i < 4; i++) {
		struct end *from = i & 1 ? &c : &a;

		one = sge(from, 0, 64);
		send = wr(i, IBV_WR_SEND, &one, 1);
		must_post(from, &send);
		entry(from->sends, i, IBV_WC_SUCCESS);
		wc = entry(b.receives, i, IBV_WC_SUCCESS);
		expect(wc.qp_num == (i & 1 ? d.qp : b.qp)->qp_num, "the number of its QP");
	}
	expect(!modify(&d, IBV_QPS_ERR), "ERR");
	event(IBV_EVENT_QP_LAST_WQE_REACHED);
	no_entry(b.receives);
	one = sge(&a, 0, 64);
	send = wr(9, IBV_WR_SEND, &one, 1);
	must_post(&a, &send);
	entry(a.sends, 9, IBV_WC_SUCCESS);
	entry(b.receives, 4, IBV_WC_SUCCESS);
}

/* An answer to the address in the 40 bytes and the entry. */
static void answer(void)
{
	struct ibv_sge one;
	struct ibv_send_wr send;
	struct ibv_ah *ah;
	struct ibv_wc wc;

	pair(IBV_QPT_UD);
	receive(&b, 1, 0, 200);
	receive(&a, 2, 0, 200);
	one = sge(&a, 1000, 64);
	send = datagram(&one, make_ah());
	must_post(&a, &send);
	entry(a.sends, 1, IBV_WC_SUCCESS);
	wc = entry(b.receives, 1, IBV_WC_SUCCESS);
	ah = ibv_create_ah_from_wc(b.pd, &wc, (struct ibv_grh *)b.memory, 1);
	expect(ah, "create_ah_from_wc: %s", strerror(errno));
	one = sge(&b, 1000, 64);
	send = datagram(&one, ah);
	send.wr.ud.remote_qpn = wc.src_qp;
	must_post(&b, &send);
	entry(b.sends, 1, IBV_WC_SUCCESS);
	entry(a.receives, 2, IBV_WC_SUCCESS);
}

/* SEND_WITH_INV of a key that no memory window has is an error of both QPs. */
static void invalidate(void)
{
	struct ibv_sge one;
	struct ibv_send_wr send;
	struct ibv_wc wc = { 0 };

	pair(IBV_QPT_RC);
	receive(&b, 1, 0, 64);
	one = sge(&a, 0, 64);
	send = wr(1, IBV_WR_SEND_WITH_INV, &one, 1);
	send.invalidate_rkey = b.mr->rkey;
	must_post(&a, &send);
	entry(a.sends, 1, IBV_WC_REM_ACCESS_ERR);
	expect(poll_for(b.receives, &wc, SECONDS * 1000) && wc.status != IBV_WC_SUCCESS,
	       "receive: %s", ibv_wc_status_str(wc.status));
	is_in(&b, IBV_QPS_ERR);
}

/* Unsignalled requests leave the queue without a poll; it does not fill up. */
static void unsignalled(void)
{
	struct ibv_sge one;
	struct ibv_send_wr send;
	int i;

	pair(IBV_QPT_RC);
	one = sge(&a, 0, 64);
	for (i = 1; i <= 20 * WRS; i++) {
		send = wr(i, IBV_WR_RDMA_WRITE, &one, 1);
		remote(&send, &b, 0);
		if (i % WRS)
			send.send_flags = 0;
		must_post(&a, &send);
		if (i % WRS == 0)
			entry(a.sends, i, IBV_WC_SUCCESS);
	}
}

/* A WRITE, then a SEND: at the receive's entry the WRITE's bytes are there. */
static void write_then_send(void)
{
	struct ibv_sge one, none;
	struct ibv_send_wr first, second;
	int i;

	pair(IBV_QPT_RC);
	for (i = 0; i < 200; i++) {
		receive(&b, i, REGION - 64, 64);
		fill(&a, 0, 30000, i);
		one = sge(&a, 0, 30000);
		none = sge(&a, REGION - 64, 1);
		first = wr(1, IBV_WR_RDMA_WRITE, &one, 1);
		remote(&first, &b, 0);
		first.send_flags = 0;
		second = wr(2, IBV_WR_SEND, &none, 1);
		first.next = &second;
		must_post(&a, &first);
		entry(b.receives, i, IBV_WC_SUCCESS);
		check(&b, 0, 30000, i);
		entry(a.sends, 2, IBV_WC_SUCCESS);
	}
}

/* A QP that sends to itself, with one CQ for both queues. */
static void to_itself(void)
{
	struct ibv_qp_init_attr init = usual(IBV_QPT_RC);
	struct ibv_sge one;
	struct ibv_send_wr send;
	struct ibv_wc wc[2] = { { 0 }, { 0 } };

	make_end(&a, IBV_QPT_RC, 0);
	init.recv_cq = a.sends;
	other_qp(&a, init);
	to_init(&a);
	to_rtr(&a, a.qp->qp_num);
	to_rts(&a, 7);
	receive(&a, 1, 4096, 64);
	fill(&a, 0, 64, 5);
	one = sge(&a, 0, 64);
	send = wr(2, IBV_WR_SEND, &one, 1);
	must_post(&a, &send);
	expect(poll_for(a.sends, &wc[0], 5000) && poll_for(a.sends, &wc[1], 5000), "two entries");
	expect(wc[0].wr_id + wc[1].wr_id == 3 && !wc[0].status && !wc[1].status, "both");
	check(&a, 4096, 64, 5);
}

/* Inline data of a datagram and of a WRITE. */
static void inline_others(void)
{
	__u8 bytes[33];
	struct ibv_sge one = { .addr = (__u64)(unsigned long)bytes, .length = sizeof(bytes) };
	struct ibv_send_wr send;
	__u32 i;

	pair(IBV_QPT_UD);
	for (i = 0; i < sizeof(bytes); i++)
		bytes[i] = pattern(4, i);
	receive(&b, 1, 0, 200);
	send = datagram(&one, make_ah());
	send.send_flags |= IBV_SEND_INLINE;
	must_post(&a, &send);
	memset(bytes, 0, sizeof(bytes));
	entry(a.sends, 1, IBV_WC_SUCCESS);
	entry(b.receives, 1, IBV_WC_SUCCESS);
	check(&b, 40, sizeof(bytes), 4);

	pair(IBV_QPT_RC);
	for (i = 0; i < sizeof(bytes); i++)
		bytes[i] = pattern(5, i);
	send = wr(2, IBV_WR_RDMA_WRITE, &one, 1);
	send.send_flags |= IBV_SEND_INLINE;
	remote(&send, &b, 100);
	must_post(&a, &send);
	memset(bytes, 0, sizeof(bytes));
	entry(a.sends, 2, IBV_WC_SUCCESS);
	check(&b, 100, sizeof(bytes), 5);
}

/* A list whose second work request is refused: the first one is executed alone. */
static void refused_post(struct ibv_send_wr good, struct ibv_send_wr bad, const char *what)
{
	struct ibv_send_wr last = good, *refused = NULL;
	int ret;

	good.wr_id = 1;
	good.next = &bad;
	bad.wr_id = 2;
	bad.next = &last;
	last.wr_id = 3;
	ret = ibv_post_send(a.qp, &good, &refused);
	expect(ret == EINVAL, "%s: %s", what, ret ? strerror(ret) : "success");
	expect(refused == &bad, "%s: bad_wr", what);
	entry(a.sends, 1, IBV_WC_SUCCESS);
	no_entry(a.sends);
}

/* ibv_post_send(3): inline data are for SEND and RDMA WRITE only. */
static void inline_is_for_what_sends_data(void)
{
	__u64 *here, *there;
	struct ibv_sge one;
	struct ibv_send_wr good, bad;

	pair(IBV_QPT_RC);
	here = (__u64 *)(a.memory + 64);
	there = (__u64 *)(b.memory + 64);
	*here = 3;
	*there = 5;
	one = sge(&a, 64, 8);
	good = wr(1, IBV_WR_RDMA_WRITE, &one, 1);
	remote(&good, &b, 4096);
	bad = wr(2, IBV_WR_RDMA_READ, &one, 1);
	remote(&bad, &b, 64);
	bad.send_flags |= IBV_SEND_INLINE;
	refused_post(good, bad, "READ");
	bad = atomic(IBV_WR_ATOMIC_FETCH_AND_ADD, &one, 64, 1, 0);
	bad.send_flags |= IBV_SEND_INLINE;
	refused_post(good, bad, "FETCH_AND_ADD");
	bad = atomic(IBV_WR_ATOMIC_CMP_AND_SWP, &one, 64, 5, 6);
	bad.send_flags |= IBV_SEND_INLINE;
	refused_post(good, bad, "CMP_AND_SWP");
	expect(*here == 3 && *there == 5, "memory has %llu and %llu", *here, *there);
	bad.send_flags = IBV_SEND_SIGNALED;
	must_post(&a, &bad);
	entry(a.sends, 64, IBV_WC_SUCCESS);
	expect(*here == 5 && *there == 6, "the atomic itself: %llu and %llu", *here, *there);
}

/* A message that asks for a checksum is refused. */
static void refused_checksum(enum ibv_qp_type type, const char *what)
{
	struct ibv_send_wr good, bad;
	struct ibv_sge one;

	pair(type);
	one = sge(&a, 0, 64);
	good = type == IBV_QPT_UD ? datagram(&one, make_ah()) : wr(1, IBV_WR_SEND, &one, 1);
	bad = good;
	bad.send_flags |= IBV_SEND_IP_CSUM;
	receive(&b, 1, 0, 200);
	receive(&b, 2, 0, 200);
	refused_post(good, bad, what);
	entry(b.receives, 1, IBV_WC_SUCCESS);
	no_entry(b.receives);
}

/* ibv_post_send(3): IBV_SEND_IP_CSUM is valid only if the device has checksum offload. */
static void no_checksum_offload(void)
{
	struct ibv_device_attr dev;

	expect(!ibv_query_device(device, &dev) &&
	       !(dev.device_cap_flags & (IBV_DEVICE_UD_IP_CSUM | IBV_DEVICE_RC_IP_CSUM)),
	       "checksum offload");
	refused_checksum(IBV_QPT_RC, "RC");
	refused_checksum(IBV_QPT_UD, "UD");
}

/* A QP that fails by itself takes no more receives of its SRQ, and reports that. */
static void refused_with_srq(void)
{
	struct pollfd fd = { .fd = device->async_fd, .events = POLLIN };
	struct ibv_async_event got;
	struct ibv_sge one;
	struct ibv_send_wr send;
	int last = 0;

	with_srq = 1;
	pair(IBV_QPT_RC);
	share(&b, 1, 0, 4096);
	one = sge(&a, 0, 64);
	send = wr(1, IBV_WR_RDMA_WRITE, &one, 1);
	remote(&send, &b, 0);
	send.wr.rdma.rkey ^= 0x10000;
	must_post(&a, &send);
	entry(a.sends, 1, IBV_WC_REM_ACCESS_ERR);
	while (poll(&fd, 1, 500) == 1) {
		expect(!ibv_get_async_event(device, &got), "get_async_event");
		if (got.event_type == IBV_EVENT_QP_LAST_WQE_REACHED) {
			struct ibv_qp *own = got.element.qp;

			last += own == b.qp;
			expect(own == a.qp || own == b.qp, "the event's QP");
		}
		ibv_ack_async_event(&got);
	}
	expect(last == 1, "%d events, not 1", last);
	no_entry(b.receives);
}

/* Immediate data of a WRITE, solicited: a receive of the SRQ, whose memory is not used. */
static void srq_immediate(void)
{
	struct ibv_sge one;
	struct ibv_send_wr send;
	struct ibv_wc wc;

	with_srq = 1;
	pair(IBV_QPT_RC);
	share(&b, 1, 65536, 8);
	expect(!ibv_req_notify_cq(b.receives, 1), "req_notify_cq");
	fill(&a, 0, 5000, 9);
	one = sge(&a, 0, 5000);
	send = wr(2, IBV_WR_RDMA_WRITE_WITH_IMM, &one, 1);
	send.send_flags |= IBV_SEND_SOLICITED;
	send.imm_data = htobe32(0x99aabbcc);
	remote(&send, &b, 0);
	must_post(&a, &send);
	entry(a.sends, 2, IBV_WC_SUCCESS);
	wc = entry(b.receives, 1, IBV_WC_SUCCESS);
	expect(wc.opcode == IBV_WC_RECV_RDMA_WITH_IMM && wc.byte_len == 5000 &&
	       be32toh(wc.imm_data) == 0x99aabbcc, "the entry");
	check(&b, 0, 5000, 9);
	expect(!b.memory[65536] && waiting_events(b.channel) == 1, "a solicited event");
}

/* Messages of two threads, which two others take. */
#define MESSAGES	500

/* How often each work request and each receive had an entry, and how many entries there were. */
static int sent[MESSAGES], received[MESSAGES], taken;

/* Posts every second message, whose bytes are its number. */
static void *post_messages(void *first)
{
	__u32 i;
	int ret;

	for (i = (unsigned long)first; i < MESSAGES; i += 2) {
		struct ibv_sge one = sge(&a, 4 * i, 4);
		struct ibv_send_wr send = wr(i, IBV_WR_SEND, &one, 1);

		/* The queue has room again when work requests have completed. */
		while ((ret = post(&a, &send)) == ENOMEM)
			;
		expect(!ret, "post_send: %s", strerror(ret));
	}
	return NULL;
}

static void take_entries(struct ibv_cq *cq, int *times)
{
	struct ibv_wc wc[3];
	int i, got = ibv_poll_cq(cq, 3, wc);

	expect(got >= 0, "poll_cq: %d", got);
	for (i = 0; i < got; i++) {
		expect(wc[i].status == IBV_WC_SUCCESS && wc[i].wr_id < MESSAGES, "entry %llu %s",
		       (unsigned long long)wc[i].wr_id, ibv_wc_status_str(wc[i].status));
		__atomic_fetch_add(&times[wc[i].wr_id], 1, __ATOMIC_RELAXED);
		__atomic_fetch_add(&taken, 1, __ATOMIC_RELAXED);
	}
}

static void *poll_both(void *unused)
{
	/* The sanitizing kernel needs more than the usual time. */
	const long long until = now() + 4 * SECONDS * 1000;

	(void)unused;
	while (__atomic_load_n(&taken, __ATOMIC_RELAXED) < 2 * MESSAGES) {
		expect(now() < until, "%d entries of %d", taken, 2 * MESSAGES);
		take_entries(a.sends, sent);
		take_entries(b.receives, received);
	}
	return NULL;
}

/*
 * ibv_post_send(3), ibv_poll_cq(3): two threads post to one QP while two others poll the CQs. Each
 * message arrives once, and each entry is taken once.
 */
static void two_threads_post_and_two_poll(void)
{
	struct ibv_qp_init_attr init = usual(IBV_QPT_RC);
	pthread_t threads[4];
	__u32 i, *bytes, *seen;

	make_end(&a, IBV_QPT_RC, 0);
	make_end(&b, IBV_QPT_RC, 0);
	a.sends = ibv_create_cq(device, MESSAGES, NULL, NULL, 0);
	b.receives = ibv_create_cq(device, MESSAGES, NULL, NULL, 0);
	seen = calloc(MESSAGES, sizeof(*seen));
	expect(a.sends && b.receives && seen, "no CQs: %s", strerror(errno));
	other_qp(&a, init);
	init.cap.max_recv_wr = MESSAGES;
	other_qp(&b, init);
	connect_ends(7);
	bytes = (__u32 *)a.memory;
	for (i = 0; i < MESSAGES; i++) {
		bytes[i] = i;
		receive(&b, i, 4 * i, 4);
	}
	for (i = 0; i < 4; i++)
		expect(!pthread_create(&threads[i], NULL, i < 2 ? post_messages : poll_both,
				       (void *)(unsigned long)i), "pthread_create");
	for (i = 0; i < 4; i++)
		expect(!pthread_join(threads[i], NULL), "pthread_join");
	bytes = (__u32 *)b.memory;
	for (i = 0; i < MESSAGES; i++) {
		expect(sent[i] == 1 && received[i] == 1, "%u: %d entries here, %d there",
		       i, sent[i], received[i]);
		expect(bytes[i] < MESSAGES && !seen[bytes[i]]++, "message %u has come twice",
		       bytes[i]);
	}
	no_entry(a.sends);
	no_entry(b.receives);
}

static const struct test tests[] = {
	TEST(inline_is_for_what_sends_data), TEST(unaligned_atomic), TEST(qp_without_rights),
	TEST(many_reads), TEST(no_reads), TEST(large), TEST(most_sges), TEST(ready_later),
	TEST(peer_is_gone), TEST(two_users), TEST(answer), TEST(no_checksum_offload),
	TEST(unsignalled), TEST(invalidate), TEST(to_itself), TEST(write_then_send),
	TEST(inline_others), TEST(one_way), TEST(srq_immediate), TEST(refused_with_srq),
	TEST(largest), TEST(largest_of_all), TEST(two_threads_post_and_two_poll),
};

int main(int argc, char **argv)
{
	return run_test(argc, argv, tests, sizeof(tests) / sizeof(tests[0]));
}
