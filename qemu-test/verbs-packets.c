// SPDX-License-Identifier: GPL-2.0
/*
 * verbs-packets: what the pages of libibverbs and the specification require of datagrams, address
 * handles and QP 1, and of the packets that leave. A test names its page or section, if it has
 * one.
 */

#define _GNU_SOURCE
#include <arpa/inet.h>
#include <linux/if_ether.h>
#include <sys/socket.h>
#include <unistd.h>

#include "verbs-ends.h"

/* A Q key with the highest bit: that of the QP is sent (volume 1, 10.2.5). */
static void own_qkey(void)
{
	struct ibv_sge one;
	struct ibv_send_wr send;

	pair(IBV_QPT_UD);
	receive(&b, 1, 0, 200);
	one = sge(&a, 1000, 64);
	send = datagram(&one, make_ah());
	send.wr.ud.remote_qkey = 0x80000000;
	must_post(&a, &send);
	entry(a.sends, 1, IBV_WC_SUCCESS);
	entry(b.receives, 1, IBV_WC_SUCCESS);
}

/* IB_QP1_QKEY of the kernel. */
#define QP1_QKEY	0x80010000

/* Two QPs for datagrams; a has the Q key of QP 1. */
static void pair_for_qp1(void)
{
	struct ibv_qp_attr attr = { .qkey = QP1_QKEY };
	int ret;

	pair(IBV_QPT_UD);
	ret = ibv_modify_qp(a.qp, &attr, IBV_QP_QKEY);
	expect(!ret, "Q key: %s", strerror(ret));
}

static void send_to_qp1(struct ibv_ah *ah, __u32 len)
{
	struct ibv_sge one = sge(&a, 0, len);
	struct ibv_send_wr send = datagram(&one, ah);

	send.wr.ud.remote_qpn = 1;
	send.wr.ud.remote_qkey = QP1_QKEY;
	must_post(&a, &send);
	entry(a.sends, 1, IBV_WC_SUCCESS);
}

/*
 * Sends QP 1 more datagrams than it has receives. None is a whole MAD. The next connection by
 * rdma_cm shows that QP 1 still has its receives.
 */
static void datagrams_to_qp1(void)
{
	struct ibv_ah *ah;
	int i;

	pair_for_qp1();
	ah = make_ah();
	for (i = 0; i < 1200; i++)
		send_to_qp1(ah, i % 8 ? 257 : 255);
}

/*
 * Sends @count messages of connection management to QP 1 of host b (192.0.2.2), each about another
 * connection that b does not know.
 */
static void messages_to_qp1(__u8 attribute, int count)
{
	const union ibv_gid host_b = {
		.raw = { [10] = 0xff, [11] = 0xff, [12] = 192, [14] = 2, [15] = 2 },
	};
	struct ibv_ah *ah;
	__u8 *mad;
	int i;

	pair_for_qp1();
	ah = ah_to(&a, host_b);
	mad = a.memory;
	memset(mad, 0, 256);
	/* Base version, class, class version, method; the attribute is at byte 16. */
	memcpy(mad, (__u8[]) { 1, 7, 2, 3 }, 4);
	mad[17] = attribute;
	for (i = 0; i < count; i++) {
		/* The transaction, and the connection of the sender. */
		mad[15] = i;
		mad[27] = i + 1;
		send_to_qp1(ah, 256);
	}
}

/*
 * DREQs, from an address whose hardware address b does not know. The next connection by rdma_cm
 * shows whether b waits for it.
 */
static void requests_to_qp1(void)
{
	messages_to_qp1(0x15, 200);
}

/* An RTU, which has no answer. */
static void rtu_to_qp1(void)
{
	messages_to_qp1(0x14, 1);
}

/* A datagram without payload, and a solicited one. */
static void datagram_without_bytes(void)
{
	struct ibv_send_wr send;
	struct ibv_wc wc;

	pair(IBV_QPT_UD);
	receive(&b, 1, 0, 40);
	send = datagram(NULL, make_ah());
	send.num_sge = 0;
	send.send_flags |= IBV_SEND_SOLICITED;
	expect(!ibv_req_notify_cq(b.receives, 1), "req_notify_cq");
	must_post(&a, &send);
	entry(a.sends, 1, IBV_WC_SUCCESS);
	wc = entry(b.receives, 1, IBV_WC_SUCCESS);
	expect(wc.byte_len == 40, "%u bytes", wc.byte_len);
	expect(waiting_events(b.channel) == 1, "a solicited event");
}

/*
 * InfiniBand C10-93.1.1: a datagram that is longer than the MTU of the port is not sent, which is
 * no error.
 */
static void datagram_beyond_mtu(void)
{
	struct ibv_port_attr port;
	struct ibv_send_wr send;
	struct ibv_sge one;
	struct ibv_ah *ah;
	__u32 mtu;

	pair(IBV_QPT_UD);
	expect(!ibv_query_port(device, 1, &port), "query_port");
	mtu = 128u << port.active_mtu;
	receive(&b, 1, 0, 40 + 2 * mtu);
	ah = make_ah();
	one = sge(&a, 0, mtu + 1);
	send = datagram(&one, ah);
	must_post(&a, &send);
	entry(a.sends, 1, IBV_WC_SUCCESS);
	/* Its memory is not looked at, if no path can carry it. */
	one = sge(&a, 0, 4097);
	one.lkey ^= 0x100;
	must_post(&a, &send);
	entry(a.sends, 1, IBV_WC_SUCCESS);
	no_entry(b.receives);
	one = sge(&a, 0, mtu);
	fill(&a, 0, mtu, 5);
	must_post(&a, &send);
	entry(a.sends, 1, IBV_WC_SUCCESS);
	expect(entry(b.receives, 1, IBV_WC_SUCCESS).byte_len == 40 + mtu, "length");
	check(&b, 40, mtu, 5);
}

/*
 * ibv_post_send(3): a datagram to the broadcast address of the interface's network, which is
 * 192.0.2.0/24. No QP can have the address, so it is an error of the work request.
 */
static void datagram_to_a_broadcast_address(void)
{
	union ibv_gid broadcast = own_gid;
	struct ibv_send_wr send;
	struct ibv_sge one;

	pair(IBV_QPT_UD);
	receive(&b, 1, 0, 200);
	broadcast.raw[15] = 255;
	one = sge(&a, 0, 64);
	send = datagram(&one, ah_to(&a, broadcast));
	must_post(&a, &send);
	entry(a.sends, 1, IBV_WC_LOC_QP_OP_ERR);
	is_in(&a, IBV_QPS_SQE);
	no_entry(b.receives);
	expect(!modify(&a, IBV_QPS_RTS), "RTS");
	send.wr.ud.ah = make_ah();
	must_post(&a, &send);
	entry(a.sends, 1, IBV_WC_SUCCESS);
	entry(b.receives, 1, IBV_WC_SUCCESS);
}

/* A socket that gets all packets of IPv4 of the host. */
static int all_packets(void)
{
	int fd = socket(AF_PACKET, SOCK_DGRAM, htons(ETH_P_IP));

	expect(fd >= 0, "AF_PACKET: %s", strerror(errno));
	return fd;
}

/* The headers of a RoCEv2 packet over IPv4: IP, UDP and BTH. */
#define HEADERS	(20 + 8 + 12)

/* Reads the next RoCEv2 packet that has arrived, up to its BTH. Returns 0 if there is none. */
static int next_packet(int fd, __u8 packet[HEADERS])
{
	ssize_t len;

	while ((len = recv(fd, packet, HEADERS, MSG_DONTWAIT)) >= 0)
		/* UDP, port 4791. */
		if (len == HEADERS && packet[0] == 0x45 && packet[9] == 17 && packet[22] == 0x12 &&
		    packet[23] == 0xb7)
			return 1;
	return 0;
}

/* All packets of RoCEv2 that have come must have this type of service. Returns their number. */
static int have_class(int fd, __u8 class)
{
	__u8 packet[HEADERS];
	int count = 0;

	pause_ms(100);
	while (next_packet(fd, packet)) {
		expect(packet[1] == class, "type of service %#x, not %#x", packet[1], class);
		count++;
	}
	return count;
}

/*
 * The packets of RoCEv2 with this opcode that have come must have the bit of a solicited event in
 * their BTH if they are @solicited, and must not have it otherwise. Returns their number.
 */
static int count_solicited(int fd, __u8 opcode, int solicited)
{
	__u8 packet[HEADERS];
	int count = 0;

	pause_ms(100);
	while (next_packet(fd, packet)) {
		if (packet[28] != opcode)
			continue;
		expect(!(packet[29] & 0x80) == !solicited, "opcode %#x: solicited event %d", opcode,
		       !solicited);
		count++;
	}
	return count;
}

/*
 * ibv_post_send(3): IBV_SEND_SOLICITED is valid for SEND and RDMA WRITE with immediate data only.
 * The packets of other operations do not have the bit (volume 1, 9.2.3).
 */
static void a_plain_write_is_not_solicited(void)
{
	static const struct {
		enum ibv_wr_opcode opcode;
		__u8 bth_opcode;
		int solicited;
	} rows[] = {
		{ IBV_WR_RDMA_WRITE, 0x0a, 0 },
		{ IBV_WR_RDMA_READ, 0x0c, 0 },
		{ IBV_WR_SEND, 0x04, 1 },
		{ IBV_WR_RDMA_WRITE_WITH_IMM, 0x0b, 1 },
	};
	struct ibv_send_wr send;
	struct ibv_sge one;
	unsigned int i;
	int fd, seen;

	pair(IBV_QPT_RC);
	one = sge(&a, 0, 64);
	receive(&b, 1, 4096, 64);
	receive(&b, 2, 4096, 64);
	for (i = 0; i < sizeof(rows) / sizeof(rows[0]); i++) {
		fd = all_packets();
		send = wr(1, rows[i].opcode, &one, 1);
		send.send_flags |= IBV_SEND_SOLICITED;
		remote(&send, &b, 0);
		must_post(&a, &send);
		entry(a.sends, 1, IBV_WC_SUCCESS);
		seen = count_solicited(fd, rows[i].bth_opcode, rows[i].solicited);
		expect(seen >= 1, "no packet of opcode %#x", rows[i].bth_opcode);
		close(fd);
	}
}

/*
 * ibv_modify_qp(3), ibv_create_ah(3): the traffic class of an address vector is that
 * of the packets. Over IPv4 it is the type of service, which is in the GRH, too.
 */
static void packets_have_the_traffic_class(void)
{
	static const __u8 classes[] = { 0, 0xb8, 0x6a, 0 };
	struct ibv_ah *handles[4];
	struct ibv_send_wr send;
	struct ibv_sge one;
	int fd = all_packets();
	int i, seen;

	traffic_class = 0x68;
	pair(IBV_QPT_RC);
	one = sge(&a, 0, 4000);
	receive(&b, 1, 0, 4000);
	send = wr(1, IBV_WR_SEND, &one, 1);
	must_post(&a, &send);
	entry(a.sends, 1, IBV_WC_SUCCESS);
	entry(b.receives, 1, IBV_WC_SUCCESS);
	seen = have_class(fd, 0x68);
	/* Four of a, and an answer of b. */
	expect(seen >= 5, "%d packets", seen);

	pair(IBV_QPT_UD);
	for (i = 0; i < 4; i++) {
		traffic_class = classes[i];
		handles[i] = make_ah();
	}
	one = sge(&a, 0, 64);
	for (i = 0; i < 8; i++) {
		receive(&b, 1, 0, 200);
		send = datagram(&one, handles[i % 4]);
		must_post(&a, &send);
		entry(a.sends, 1, IBV_WC_SUCCESS);
		entry(b.receives, 1, IBV_WC_SUCCESS);
		expect(b.memory[21] == classes[i % 4], "GRH: %#x", b.memory[21]);
		expect(have_class(fd, classes[i % 4]) == 1, "not one packet");
	}
	close(fd);
}

/* SQE: posts are flushed, receives go on; ERR flushes them, too. */
static void datagrams_in_sqe(void)
{
	struct ibv_sge one, good;
	struct ibv_send_wr send, back;

	pair(IBV_QPT_UD);
	receive(&a, 7, 0, 200);
	receive(&a, 8, 0, 200);
	one = sge(&a, 0, 64);
	one.lkey ^= 0x100;
	send = datagram(&one, make_ah());
	must_post(&a, &send);
	entry(a.sends, 1, IBV_WC_LOC_PROT_ERR);
	is_in(&a, IBV_QPS_SQE);
	good = sge(&a, 0, 64);
	send.sg_list = &good;
	send.wr_id = 2;
	must_post(&a, &send);
	entry(a.sends, 2, IBV_WC_WR_FLUSH_ERR);
	good = sge(&b, 0, 64);
	back = send;
	back.wr.ud.ah = ah_of(&b);
	back.wr.ud.remote_qpn = a.qp->qp_num;
	must_post(&b, &back);
	entry(b.sends, 2, IBV_WC_SUCCESS);
	entry(a.receives, 7, IBV_WC_SUCCESS);
	expect(!modify(&a, IBV_QPS_ERR), "ERR");
	entry(a.receives, 8, IBV_WC_WR_FLUSH_ERR);
}

/* ibv_post_send(3): a datagram whose address handle does not exist is refused. */
static void an_unknown_address_handle_is_refused(void)
{
	struct ibv_send_wr send, *refused = NULL;
	struct ibv_ah *ah, none;
	struct ibv_sge one;
	int ret;

	pair(IBV_QPT_UD);
	receive(&b, 1, 0, 200);
	ah = make_ah();
	none = *ah;
	none.handle += 1000;
	one = sge(&a, 0, 64);
	send = datagram(&one, &none);
	ret = ibv_post_send(a.qp, &send, &refused);
	expect(ret == ENOENT && refused == &send, "post_send: %s",
	       ret ? strerror(ret) : "success");
	no_entry(a.sends);
	no_entry(b.receives);
	send.wr.ud.ah = ah;
	must_post(&a, &send);
	entry(a.sends, 1, IBV_WC_SUCCESS);
	entry(b.receives, 1, IBV_WC_SUCCESS);
}

/* Changes the traffic class of a connection in SQD. */
static void change_class(struct end *end, __u8 class)
{
	struct ibv_qp_attr attr = {
		.ah_attr = {
			.is_global = 1, .port_num = 1,
			.grh = {
				.dgid = own_gid, .sgid_index = gid_index, .hop_limit = 64,
				.traffic_class = class,
			},
		},
	};
	struct ibv_qp_init_attr init;
	int ret;

	to_sqd(end);
	event(IBV_EVENT_SQ_DRAINED);
	ret = ibv_modify_qp(end->qp, &attr, IBV_QP_AV);
	expect(!ret, "an address vector in SQD: %s", strerror(ret));
	expect(!ibv_query_qp(end->qp, &attr, IBV_QP_AV, &init) &&
	       attr.ah_attr.grh.traffic_class == class, "query_qp");
	expect(!modify(end, IBV_QPS_RTS), "RTS");
}

/* ibv_modify_qp(3): SQD lets IBV_QP_AV change, and the packets have the new traffic class. */
static void address_changes_in_sqd(void)
{
	struct ibv_send_wr send;
	struct ibv_sge one;
	int i, fd, seen;

	pair(IBV_QPT_RC);
	one = sge(&a, 0, 4000);
	for (i = 0; i < 2; i++) {
		fd = all_packets();
		receive(&b, 1, 0, 4000);
		send = wr(1, IBV_WR_SEND, &one, 1);
		must_post(&a, &send);
		entry(a.sends, 1, IBV_WC_SUCCESS);
		entry(b.receives, 1, IBV_WC_SUCCESS);
		seen = have_class(fd, i ? 0x68 : 0);
		expect(seen >= 5, "%d packets", seen);
		close(fd);
		if (!i) {
			change_class(&a, 0x68);
			change_class(&b, 0x68);
		}
	}
}

static const struct test tests[] = {
	TEST(own_qkey), TEST(datagrams_to_qp1), TEST(requests_to_qp1), TEST(rtu_to_qp1),
	TEST(datagram_without_bytes), TEST(datagram_beyond_mtu),
	TEST(datagram_to_a_broadcast_address), TEST(packets_have_the_traffic_class),
	TEST(datagrams_in_sqe), TEST(an_unknown_address_handle_is_refused),
	TEST(address_changes_in_sqd), TEST(a_plain_write_is_not_solicited),
};

int main(int argc, char **argv)
{
	return run_test(argc, argv, tests, sizeof(tests) / sizeof(tests[0]));
}
