// SPDX-License-Identifier: GPL-2.0
/*
 * verbs-flows: counters and flows of verbs, as ibv_attach_counters_point_flow(3) has
 * them: one test for each sentence.
 *
 *	verbs-flows DEVICE GID_INDEX TEST
 *	verbs-flows --list
 */

#define _GNU_SOURCE
#include <arpa/inet.h>
#include <linux/capability.h>
#include <netinet/in.h>
#include <sys/prctl.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "verbs-counting.h"

#define PACKETS	KFABRIC_IB_COUNTER_PACKETS
#define BYTES	KFABRIC_IB_COUNTER_BYTES

/* Values of a new counters object, and points of a flow. */
#define VALUES	16
#define POINTS	16

/* A datagram of 100 bytes, from the BTH to the ICRC. */
#define LENGTH	(12 + 8 + 100 + 4)

static __u32 make_counters(void)
{
	__u32 counters;

	must(create_counters(&counters), 0, "create_counters");
	return counters;
}

static __u32 make_flow(union flow *flow)
{
	__u32 handle;

	must(create_flow(flow, &handle), 0, "create_flow");
	return handle;
}

/* A flow of all packets of b, with static counters. */
static __u32 counted_flow(__u32 counters)
{
	union flow flow = flow_of(b.qp);

	count_into(&flow, counters);
	return make_flow(&flow);
}

/* A flow of all packets of b. */
static __u32 plain_flow(void)
{
	union flow flow = flow_of(b.qp);

	return make_flow(&flow);
}

static void must_point(__u32 counters, __u32 flow, __u64 description, __u64 index)
{
	must(attach_point(counters, flow, description, index), 0, "attach_counters_point");
}

static __u64 value_at(__u32 counters, __u32 index)
{
	__u64 values[VALUES];

	must(read_counters(counters, values, index + 1, 0), 0, "read_counters");
	return values[index];
}

static void is(__u32 counters, __u32 index, __u64 wanted)
{
	__u64 got = value_at(counters, index);

	expect(got == wanted, "value %u is %llu, not %llu", index, (unsigned long long)got,
	       (unsigned long long)wanted);
}

/* Sends @count datagrams of 100 bytes from a to b, and waits until they have arrived. */
static void datagrams(__u32 count)
{
	struct ibv_sge one = sge(&a, 0, 100);
	static struct ibv_ah *ah;
	struct ibv_send_wr send;

	if (!ah)
		ah = make_ah();
	while (count--) {
		receive(&b, 1, 0, 256);
		send = datagram(&one, ah);
		must_post(&a, &send);
		entry(a.sends, 1, IBV_WC_SUCCESS);
		entry(b.receives, 1, IBV_WC_SUCCESS);
	}
}

static void a_static_point_counts_with_a_flow(void)
{
	__u32 counters = make_counters(), flow;
	__u64 values[1];

	pair(IBV_QPT_UD);
	must_point(counters, NO_FLOW, PACKETS, 2);
	must_point(counters, NO_FLOW, BYTES, 5);
	datagrams(1);
	/* The RDMA subsystem reads only counters that are bound. */
	must(read_counters(counters, values, 1, 0), EINVAL, "a read without a flow");
	flow = counted_flow(counters);
	is(counters, 2, 0);
	datagrams(3);
	is(counters, 2, 3);
	is(counters, 5, 3 * LENGTH);
	is(counters, 0, 0);
	must(destroy_flow(flow), 0, "destroy_flow");
}

static void a_dynamic_point_counts_on_a_live_flow(void)
{
	__u32 counters = make_counters(), flow;

	pair(IBV_QPT_UD);
	flow = plain_flow();
	datagrams(2);
	must_point(counters, flow, PACKETS, 0);
	is(counters, 0, 0);
	datagrams(3);
	is(counters, 0, 3);
	must_point(counters, flow, BYTES, 1);
	datagrams(1);
	is(counters, 0, 4);
	is(counters, 1, LENGTH);
}

static void nothing_is_attached_while_a_flow_is_bound_statically(void)
{
	__u32 counters = make_counters(), first, second, plain;

	pair(IBV_QPT_UD);
	must_point(counters, NO_FLOW, PACKETS, 0);
	plain = plain_flow();
	first = counted_flow(counters);
	second = counted_flow(counters);
	must(attach_point(counters, NO_FLOW, BYTES, 1), EBUSY, "a static point");
	must(attach_point(counters, plain, BYTES, 1), EBUSY, "a dynamic point");
	must(destroy_flow(first), 0, "destroy_flow");
	must(attach_point(counters, NO_FLOW, BYTES, 1), EBUSY, "with one flow");
	must(destroy_flow(second), 0, "destroy_flow");
	must_point(counters, NO_FLOW, BYTES, 1);
}

/*
 * A static binding lasts until the counters are bound to no flow at all. Until then the
 * dynamic points count on.
 */
static void a_static_binding_lasts_until_the_last_one_ends(void)
{
	__u32 counters = make_counters(), first, second, fixed;
	union flow flow;

	pair(IBV_QPT_UD);
	/* Both have each packet. */
	flow = flow_of(b.qp);
	flow.create.flow_attr.flags = IBV_FLOW_ATTR_FLAGS_DONT_TRAP;
	first = make_flow(&flow);
	second = make_flow(&flow);
	must_point(counters, first, PACKETS, 1);
	must_point(counters, second, PACKETS, 1);
	datagrams(2);
	is(counters, 1, 4);
	must_point(counters, NO_FLOW, PACKETS, 0);
	fixed = counted_flow(counters);
	must(attach_point(counters, first, BYTES, 2), EBUSY, "a dynamic point");
	datagrams(1);
	is(counters, 0, 1);
	is(counters, 1, 6);
	must(destroy_flow(fixed), 0, "destroy_flow");
	must(attach_point(counters, NO_FLOW, BYTES, 2), EBUSY, "a static point with two flows");
	must(destroy_flow(first), 0, "destroy_flow");
	must(attach_point(counters, second, BYTES, 2), EBUSY, "a dynamic point with one flow");
	datagrams(1);
	is(counters, 0, 1);
	is(counters, 1, 7);
	must(destroy_flow(second), 0, "destroy_flow");
	must_point(counters, NO_FLOW, BYTES, 2);
}

static void a_description_is_supported_or_not(void)
{
	__u32 counters = make_counters(), flow;

	pair(IBV_QPT_UD);
	flow = plain_flow();
	must_point(counters, NO_FLOW, PACKETS, 0);
	must_point(counters, NO_FLOW, BYTES, 0);
	must(attach_point(counters, NO_FLOW, 2, 0), EOPNOTSUPP, "a static point");
	must(attach_point(counters, flow, 2, 0), EOPNOTSUPP, "a dynamic point");
}

static void flows_add_up_in_one_index(void)
{
	__u32 counters = make_counters(), first, second;
	union flow of_a;

	pair(IBV_QPT_UD);
	must_point(counters, NO_FLOW, PACKETS, 0);
	of_a = flow_of(a.qp);
	count_into(&of_a, counters);
	first = make_flow(&of_a);
	second = counted_flow(counters);
	datagrams(2);
	is(counters, 0, 2);
	/* Packets that arrive at a count, too, even a datagram for which no receive is posted. */
	{
		struct ibv_sge one = sge(&b, 0, 100);
		struct ibv_send_wr send = datagram(&one, ah_of(&b));
		long long until = now() + SECONDS * 1000;

		send.wr.ud.remote_qpn = a.qp->qp_num;
		must_post(&b, &send);
		entry(b.sends, 1, IBV_WC_SUCCESS);
		while (value_at(counters, 0) != 3)
			expect(now() < until, "the packet is not counted");
	}
	must(destroy_flow(first), 0, "destroy_flow");
	must(destroy_flow(second), 0, "destroy_flow");
}

static void points_add_up_in_one_index(void)
{
	__u32 counters = make_counters();

	pair(IBV_QPT_UD);
	must_point(counters, NO_FLOW, PACKETS, 0);
	must_point(counters, NO_FLOW, PACKETS, 0);
	must_point(counters, NO_FLOW, BYTES, 0);
	counted_flow(counters);
	datagrams(2);
	is(counters, 0, 2 * (2 + LENGTH));
}

static void counters_are_read_while_they_count(void)
{
	__u64 values[VALUES + 1];
	__u32 counters = make_counters(), i;

	pair(IBV_QPT_UD);
	must_point(counters, NO_FLOW, PACKETS, 0);
	counted_flow(counters);
	for (i = 1; i <= 5; i++) {
		datagrams(1);
		is(counters, 0, i);
	}
	must(read_counters(counters, values, VALUES, IB_UVERBS_READ_COUNTERS_PREFER_CACHED), 0,
	     "all values");
	expect(values[0] == 5 && !values[VALUES - 1], "the values");
	must(read_counters(counters, values, VALUES + 1, 0), EINVAL, "more than there are");
	must(read_counters(counters, values, 0, 0), EINVAL, "none");
	must(read_counters(counters, values, 1, 2), EINVAL, "an unknown flag");
}

static void invalid_points_are_refused(void)
{
	__u32 counters = make_counters(), flow;

	pair(IBV_QPT_UD);
	flow = plain_flow();
	must(attach_point(counters, NO_FLOW, PACKETS, VALUES), EINVAL, "an index");
	must(attach_point(counters, flow, PACKETS, VALUES), EINVAL, "an index of a flow");
#ifndef BY_NAME
	must(attach_point(counters, NO_FLOW, PACKETS, 1ull << 32), EINVAL, "64 bits");
#endif
	must(attach_point(counters, flow + 1000, PACKETS, 0), ENOENT, "no flow");
	must(attach_point(counters + 1000, NO_FLOW, PACKETS, 0), ENOENT, "no counters");
	must_point(counters, NO_FLOW, PACKETS, VALUES - 1);
}

static void a_flow_with_counters_without_points_is_refused(void)
{
	__u32 counters = make_counters(), handle;
	union flow flow;

	pair(IBV_QPT_UD);
	flow = flow_of(b.qp);
	count_into(&flow, counters);
	must(create_flow(&flow, &handle), EINVAL, "create_flow");
	/* The flow that was refused leaves no use of the counters. */
	must(destroy_counters(counters), 0, "destroy_counters");
}

static void a_flow_has_so_many_points(void)
{
	__u32 counters = make_counters(), other = make_counters(), flow, i;

	pair(IBV_QPT_UD);
	for (i = 0; i < POINTS; i++)
		must_point(counters, NO_FLOW, PACKETS, 0);
	must(attach_point(counters, NO_FLOW, PACKETS, 0), ENOSPC, "one more static point");
	flow = plain_flow();
	for (i = 0; i < POINTS; i++)
		must_point(other, flow, PACKETS, 0);
	must(attach_point(other, flow, PACKETS, 0), ENOSPC, "one more dynamic point");
	datagrams(1);
	is(other, 0, POINTS);
	must(destroy_flow(flow), 0, "destroy_flow");
	must(destroy_counters(other), 0, "destroy_counters");
}

static void a_qp_has_so_many_flows(void)
{
	union flow flow;
	__u32 handle, i;

	pair(IBV_QPT_UD);
	for (i = 0; i < 64; i++)
		plain_flow();
	flow = flow_of(b.qp);
	must(create_flow(&flow, &handle), ENOSPC, "one more");
}

static void the_values_begin_at_0_and_only_grow(void)
{
	__u32 counters = make_counters(), flow, i;

	pair(IBV_QPT_UD);
	must_point(counters, NO_FLOW, PACKETS, 0);
	flow = counted_flow(counters);
	for (i = 0; i < VALUES; i++)
		is(counters, i, 0);
	datagrams(2);
	must(destroy_flow(flow), 0, "destroy_flow");
	must_point(counters, NO_FLOW, PACKETS, 0);
	counted_flow(counters);
	is(counters, 0, 2);
	datagrams(1);
	is(counters, 0, 4);
}

static void counters_and_qps_of_flows_are_busy(void)
{
	__u32 fixed = make_counters(), other = make_counters(), first, second;

	pair(IBV_QPT_UD);
	must_point(fixed, NO_FLOW, PACKETS, 0);
	first = counted_flow(fixed);
	second = plain_flow();
	must_point(other, second, PACKETS, 0);
	must(destroy_counters(fixed), EBUSY, "static counters");
	must(destroy_counters(other), EBUSY, "dynamic counters");
	must(ibv_destroy_qp(b.qp), EBUSY, "the QP");
	must(destroy_flow(first), 0, "destroy_flow");
	must(destroy_counters(fixed), 0, "static counters");
	must(destroy_flow(second), 0, "destroy_flow");
	must(destroy_counters(other), 0, "dynamic counters");
	must(ibv_destroy_qp(b.qp), 0, "the QP");
}

static struct ib_uverbs_flow_spec_ipv4 from(const char *address)
{
	struct ib_uverbs_flow_spec_ipv4 spec = {
		.type = IBV_FLOW_SPEC_IPV4,
		.size = sizeof(spec),
		.val = { .src_ip = inet_addr(address), .proto = IPPROTO_UDP },
		.mask = { .src_ip = 0xffffffff, .proto = 0xff },
	};

	return spec;
}

static void a_flow_has_the_packets_of_its_rule(void)
{
	struct ib_uverbs_flow_spec_ipv4 own = from("192.0.2.1"), foreign = from("192.0.2.77");
	struct ib_uverbs_flow_spec_tcp_udp udp = {
		.type = IBV_FLOW_SPEC_UDP,
		.size = sizeof(udp),
		.val = { .dst_port = htons(4791) },
		.mask = { .dst_port = 0xffff },
	};
	__u32 matching = make_counters(), other = make_counters();
	union flow flow;

	pair(IBV_QPT_UD);
	must_point(matching, NO_FLOW, PACKETS, 0);
	must_point(other, NO_FLOW, PACKETS, 0);
	flow = flow_of(b.qp);
	spec(&flow, &foreign, sizeof(foreign));
	count_into(&flow, other);
	make_flow(&flow);
	flow = flow_of(b.qp);
	spec(&flow, &own, sizeof(own));
	spec(&flow, &udp, sizeof(udp));
	count_into(&flow, matching);
	make_flow(&flow);
	datagrams(2);
	is(matching, 0, 2);
	is(other, 0, 0);
}

/* New counters of a flow of b with this specification. Other flows see its packets, too. */
static __u32 counters_of(const void *rule, __u32 size)
{
	__u32 counters = make_counters();
	union flow flow = flow_of(b.qp);

	must_point(counters, NO_FLOW, PACKETS, 0);
	flow.create.flow_attr.flags = IBV_FLOW_ATTR_FLAGS_DONT_TRAP;
	spec(&flow, rule, size);
	count_into(&flow, counters);
	make_flow(&flow);
	return counters;
}

static __u32 counters_to(const char *address, const char *mask)
{
	struct ib_uverbs_flow_spec_ipv4 rule = {
		.type = IBV_FLOW_SPEC_IPV4,
		.size = sizeof(rule),
		.val = { .dst_ip = inet_addr(address) },
		.mask = { .dst_ip = inet_addr(mask) },
	};

	return counters_of(&rule, sizeof(rule));
}

static __u32 counters_from_port(__u16 port, __u16 mask)
{
	struct ib_uverbs_flow_spec_tcp_udp rule = {
		.type = IBV_FLOW_SPEC_UDP,
		.size = sizeof(rule),
		.val = { .src_port = htons(port) },
		.mask = { .src_port = htons(mask) },
	};

	return counters_of(&rule, sizeof(rule));
}

/* ibv_create_flow(3): a bit that the mask has is compared, and no other. */
static void bits_of_the_mask_are_compared(void)
{
	__u32 own, other, network, range, below, with[14], without[14], bit;

	pair(IBV_QPT_UD);
	own = counters_to("192.0.2.1", "255.255.255.255");
	other = counters_to("192.0.2.77", "255.255.255.255");
	network = counters_to("192.0.2.0", "255.255.255.0");
	/* The port is one for the QP, and that of a packet of RoCE v2: 49152 or above. */
	range = counters_from_port(0xc000, 0xc000);
	below = counters_from_port(0x8000, 0xc000);
	for (bit = 0; bit < 14; bit++) {
		with[bit] = counters_from_port(1 << bit, 1 << bit);
		without[bit] = counters_from_port(0, 1 << bit);
	}
	datagrams(2);
	is(own, 0, 2);
	is(other, 0, 0);
	is(network, 0, 2);
	is(range, 0, 2);
	is(below, 0, 0);
	for (bit = 0; bit < 14; bit++) {
		__u64 ones = value_at(with[bit], 0);

		expect(ones == 0 || ones == 2, "bit %u: %llu packets", bit,
		       (unsigned long long)ones);
		is(without[bit], 0, 2 - ones);
	}
}

/* From here on ends have a global IPv6 address of the interface. */
static void use_ipv6(void)
{
	long long until = now() + SECONDS * 1000;
	union ibv_gid gid;
	int i;

	for (; now() < until; pause_ms(100)) {
		for (i = 0; !ibv_query_gid(device, 1, i, &gid); i++) {
			if (gid.raw[0] >> 5 != 1)
				continue;
			own_gid = gid;
			gid_index = i;
			return;
		}
	}
	errx(1, "no global IPv6 address");
}

static void flows_of_ipv6_are_compared(void)
{
	struct ib_uverbs_flow_spec_ipv6 none = {
		.type = IBV_FLOW_SPEC_IPV6,
		.size = sizeof(none),
		.val = { .next_hdr = IPPROTO_UDP },
		.mask = { .next_hdr = 0xff },
	}, rule = none;
	__u32 all, source, dest, other_source, other_dest, ipv4, handle;
	union flow flow;

	use_ipv6();
	pair(IBV_QPT_UD);
	all = counters_of(&none, sizeof(none));
	memcpy(rule.val.src_ip, own_gid.raw, sizeof(rule.val.src_ip));
	memset(rule.mask.src_ip, 0xff, sizeof(rule.mask.src_ip));
	source = counters_of(&rule, sizeof(rule));
	rule.val.src_ip[15] ^= 0x80;
	other_source = counters_of(&rule, sizeof(rule));
	rule = none;
	memcpy(rule.val.dst_ip, own_gid.raw, sizeof(rule.val.dst_ip));
	memset(rule.mask.dst_ip, 0xff, sizeof(rule.mask.dst_ip));
	dest = counters_of(&rule, sizeof(rule));
	rule.val.dst_ip[0] ^= 0x01;
	other_dest = counters_of(&rule, sizeof(rule));
	ipv4 = counters_to("0.0.0.0", "0.0.0.0");
	datagrams(2);
	is(all, 0, 2);
	is(source, 0, 2);
	is(other_source, 0, 0);
	is(dest, 0, 2);
	is(other_dest, 0, 0);
	is(ipv4, 0, 0);

	rule = none;
	rule.mask.hop_limit = 1;
	flow = flow_of(b.qp);
	spec(&flow, &rule, sizeof(rule));
	must(create_flow(&flow, &handle), EINVAL, "a hop limit");
	rule = none;
	rule.val.next_hdr = IPPROTO_TCP;
	flow = flow_of(b.qp);
	spec(&flow, &rule, sizeof(rule));
	must(create_flow(&flow, &handle), EINVAL, "another protocol");
}

static void priorities_and_dont_trap_are_those_of_verbs(void)
{
	__u32 first = make_counters(), second = make_counters(), last = make_counters();
	union flow flow;

	pair(IBV_QPT_UD);
	must_point(first, NO_FLOW, PACKETS, 0);
	must_point(second, NO_FLOW, PACKETS, 0);
	must_point(last, NO_FLOW, PACKETS, 0);
	flow = flow_of(b.qp);
	flow.create.flow_attr.priority = 2;
	count_into(&flow, last);
	make_flow(&flow);
	flow.create.flow_attr.priority = 0;
	flow.create.flow_attr.flags = IBV_FLOW_ATTR_FLAGS_DONT_TRAP;
	flow.create.flow_attr.size = 0;
	flow.create.flow_attr.num_of_specs = 0;
	count_into(&flow, first);
	make_flow(&flow);
	flow = flow_of(b.qp);
	flow.create.flow_attr.priority = 1;
	count_into(&flow, second);
	make_flow(&flow);
	datagrams(2);
	is(first, 0, 2);
	is(second, 0, 2);
	is(last, 0, 0);
}

/* ibv_create_flow(3): a default rule has what no other one has, whatever the priorities. */
static void a_default_rule_has_the_rest(void)
{
	struct ib_uverbs_flow_spec_ipv4 own = from("192.0.2.1");
	__u32 rest = make_counters(), some = make_counters(), handle;
	union flow flow;

	pair(IBV_QPT_UD);
	must_point(rest, NO_FLOW, PACKETS, 0);
	must_point(some, NO_FLOW, PACKETS, 0);
	flow = flow_of(b.qp);
	flow.create.flow_attr.type = IBV_FLOW_ATTR_ALL_DEFAULT;
	count_into(&flow, rest);
	make_flow(&flow);
	flow = flow_of(b.qp);
	flow.create.flow_attr.priority = 0xffff;
	spec(&flow, &own, sizeof(own));
	count_into(&flow, some);
	handle = make_flow(&flow);
	datagrams(2);
	is(some, 0, 2);
	is(rest, 0, 0);
	must(destroy_flow(handle), 0, "destroy_flow");
	datagrams(1);
	is(rest, 0, 1);
}

static void rules_that_cannot_be_compared_are_refused(void)
{
	struct ib_uverbs_flow_spec_ipv4 ipv4 = from("192.0.2.1");
	struct ib_uverbs_flow_spec_tcp_udp udp = {
		.type = IBV_FLOW_SPEC_UDP,
		.size = sizeof(udp),
		.mask = { .dst_port = 0xffff },
	};
	struct ib_uverbs_flow_spec_eth eth = {
		.type = IBV_FLOW_SPEC_ETH,
		.size = sizeof(eth),
	};
	struct ib_uverbs_flow_spec_action_drop drop = {
		.type = IBV_FLOW_SPEC_ACTION_DROP,
		.size = sizeof(drop),
	};
	__u32 counters = make_counters(), handle;
	union flow flow, none;

	pair(IBV_QPT_UD);
	none = flow_of(b.qp);

	flow = none;
	spec(&flow, &udp, sizeof(udp));
	must(create_flow(&flow, &handle), EINVAL, "another UDP port");
	udp.type = IBV_FLOW_SPEC_TCP;
	flow = none;
	spec(&flow, &udp, sizeof(udp));
	must(create_flow(&flow, &handle), EINVAL, "TCP");
	flow = none;
	spec(&flow, &drop, sizeof(drop));
	must(create_flow(&flow, &handle), EINVAL, "a drop");
	eth.mask.ether_type = 0xffff;
	flow = none;
	spec(&flow, &eth, sizeof(eth));
	must(create_flow(&flow, &handle), EINVAL, "a mask of Ethernet");
	eth.mask.ether_type = 0;
	flow = none;
	spec(&flow, &eth, sizeof(eth));
	make_flow(&flow);
	flow = none;
	spec(&flow, &ipv4, sizeof(ipv4));
	spec(&flow, &ipv4, sizeof(ipv4));
	must(create_flow(&flow, &handle), EINVAL, "IPv4 twice");
	ipv4.mask.ttl = 1;
	flow = none;
	spec(&flow, &ipv4, sizeof(ipv4));
	must(create_flow(&flow, &handle), EINVAL, "a TTL");
	ipv4 = from("192.0.2.1");
	ipv4.val.proto = IPPROTO_TCP;
	flow = none;
	spec(&flow, &ipv4, sizeof(ipv4));
	must(create_flow(&flow, &handle), EINVAL, "another protocol");
	ipv4 = from("192.0.2.1");
	ipv4.mask.src_ip = 0xffff;
	flow = none;
	spec(&flow, &ipv4, sizeof(ipv4));
	must(create_flow(&flow, &handle), EINVAL, "a value outside its mask");
	/* named_spec() translates a specification without a protocol to IBV_FLOW_SPEC_IPV4. */
	ipv4.val.proto = 0;
	ipv4.mask.proto = 0;
	flow = none;
	spec(&flow, &ipv4, sizeof(ipv4));
	must(create_flow(&flow, &handle), EINVAL, "an address outside its mask");
	flow = none;
	flow.create.flow_attr.type = IBV_FLOW_ATTR_SNIFFER;
	must(create_flow(&flow, &handle), EINVAL, "a sniffer");
	flow = none;
	flow.create.flow_attr.flags = 4;
	must(create_flow(&flow, &handle), EINVAL, "an egress flow");
	flow = none;
	flow.create.flow_attr.type = IBV_FLOW_ATTR_ALL_DEFAULT;
	flow.create.flow_attr.flags = IBV_FLOW_ATTR_FLAGS_DONT_TRAP;
	must(create_flow(&flow, &handle), EINVAL, "DONT_TRAP of a default rule");
	flow = none;
	flow.create.flow_attr.port = 2;
	must(create_flow(&flow, &handle), EINVAL, "another port");
	must_point(counters, NO_FLOW, PACKETS, 0);
	flow = none;
	count_into(&flow, counters);
	count_into(&flow, counters);
	must(create_flow(&flow, &handle), EINVAL, "counters twice");
	must(destroy_counters(counters), 0, "destroy_counters");
}

static void a_connection_has_no_flows(void)
{
	union flow flow;
	__u32 handle;

	pair(IBV_QPT_RC);
	flow = flow_of(b.qp);
	must(create_flow(&flow, &handle), EINVAL, "create_flow");
}

static void a_flow_needs_cap_net_raw(void)
{
	union flow flow;
	__u32 handle;

	pair(IBV_QPT_UD);
	flow = flow_of(b.qp);
	expect(!seteuid(65534), "seteuid");
	must(create_flow(&flow, &handle), EPERM, "create_flow");
	expect(!seteuid(0), "seteuid");
	make_flow(&flow);
}

static void *use_flows(void *seed)
{
	unsigned int state = (unsigned long)seed;
	long long until = now() + 2000;

	while (now() < until) {
		__u32 handle = rand_r(&state) % 16, counters = rand_r(&state) % 16, own;
		union flow flow = flow_of(b.qp);
		__u64 values[VALUES];

		/* Handles of other threads, and handles of no object. */
		if (!create_counters(&own))
			counters = own;
		attach_point(counters, NO_FLOW, PACKETS, 0);
		attach_point(rand_r(&state) % 16, handle, BYTES, 1);
		count_into(&flow, counters);
		if (rand_r(&state) % 2) {
			flow.create.flow_attr.num_of_specs = 0;
			flow.create.flow_attr.size = 0;
		}
		create_flow(&flow, &own);
		attach_point(counters, own, PACKETS, 2);
		read_counters(counters, values, VALUES, 0);
		destroy_flow(rand_r(&state) % 2 ? own : handle);
		destroy_counters(counters);
		destroy_counters(handle);
	}
	return NULL;
}

static void threads_use_flows_at_once(void)
{
	pthread_t threads[4];
	unsigned long i;

	pair(IBV_QPT_UD);
	for (i = 0; i < 4; i++)
		expect(!pthread_create(&threads[i], NULL, use_flows, (void *)(i + 1)),
		       "pthread_create");
	datagrams(50);
	for (i = 0; i < 4; i++)
		pthread_join(threads[i], NULL);
}

/* An object that has a number and no address. */
static void *numbered(int ret, __u32 number)
{
	errno = ret;
	return ret ? NULL : (void *)(number + 1ul);
}

static __u32 number_of(const void *object)
{
	return (unsigned long)object - 1;
}

static void *new_cq(void) { return ibv_create_cq(device, 100, NULL, NULL, 0); }
static int end_cq(void *cq) { return ibv_destroy_cq(cq); }

static void *new_srq(void)
{
	struct ibv_srq_init_attr init = { .attr = { .max_wr = 50, .max_sge = 2 } };

	return ibv_create_srq(b.pd, &init);
}

static int end_srq(void *srq) { return ibv_destroy_srq(srq); }

static void *new_qp(void)
{
	struct ibv_qp_init_attr init = usual(IBV_QPT_RC);

	init.send_cq = b.sends;
	init.recv_cq = b.receives;
	return ibv_create_qp(b.pd, &init);
}

static int end_qp(void *qp) { return ibv_destroy_qp(qp); }
static void *new_pd(void) { return ibv_alloc_pd(device); }
static int end_pd(void *pd) { return ibv_dealloc_pd(pd); }

static void *new_ah(void)
{
	struct ibv_ah_attr attr = {
		.is_global = 1, .port_num = 1,
		.grh = { .dgid = own_gid, .sgid_index = gid_index, .hop_limit = 64 },
	};

	return ibv_create_ah(b.pd, &attr);
}

static int end_ah(void *ah) { return ibv_destroy_ah(ah); }
static void *new_mr(void) { return ibv_reg_mr(b.pd, b.memory, PAGE, ACCESS); }
static int end_mr(void *mr) { return ibv_dereg_mr(mr); }

static void *new_cntr(void)
{
	__u32 cntr = 0;

	return numbered(create((struct wanted) { 0 }, &cntr), cntr);
}

static int end_cntr(void *cntr) { return destroy(number_of(cntr)); }

static void *new_counters(void)
{
	__u32 counters = 0;

	return numbered(create_counters(&counters), counters);
}

static int end_counters(void *counters) { return destroy_counters(number_of(counters)); }

static void *new_flow(void)
{
	union flow flow = flow_of(b.qp);
	__u32 handle = 0;

	return numbered(create_flow(&flow, &handle), handle);
}

static int end_flow(void *flow) { return destroy_flow(number_of(flow)); }

/* More than the user has memory for. */
#define MOST	1000

/* Uses the memory that the user may have, but for a tenth of a megabyte. */
static void use_memory(void)
{
	struct ibv_cq *spare = ibv_create_cq(device, 2047, NULL, NULL, 0);
	int entries, count = 0;

	expect(spare, "create_cq: %s", strerror(errno));
	for (entries = 131071; entries > 15; entries /= 2)
		for (; ibv_create_cq(device, entries, NULL, NULL, 0); count++)
			expect(count < 200, "a user has no limit");
	expect(errno == ENOMEM, "create_cq: %s", strerror(errno));
	expect(!ibv_destroy_cq(spare), "destroy_cq");
}

/*
 * An ordinary user is refused objects of each kind at some number, and can create as many again
 * after destroying them.
 */
static void an_ordinary_user_has_so_many_objects(void)
{
	static const struct {
		const char *name;
		void *(*make)(void);
		int (*end)(void *object);
		int error;
	} kinds[] = {
		{ "CQ", new_cq, end_cq, ENOMEM },
		{ "SRQ", new_srq, end_srq, ENOMEM },
		{ "QP", new_qp, end_qp, ENOMEM },
		{ "PD", new_pd, end_pd, ENOMEM },
		{ "AH", new_ah, end_ah, ENOMEM },
		{ "MR", new_mr, end_mr, ENOMEM },
		{ "completion counter", new_cntr, end_cntr, ENOMEM },
		{ "counters", new_counters, end_counters, ENOMEM },
		{ "flow", new_flow, end_flow, ENOMEM },
	}, *kind;
	struct __user_cap_header_struct header = { .version = _LINUX_CAPABILITY_VERSION_3 };
	struct __user_cap_data_struct caps[2] = { { 0 } };
	static void *objects[MOST];
	int first, count, i;

	/* Flows need this capability, and it raises no limit. */
	expect(!prctl(PR_SET_KEEPCAPS, 1), "keepcaps");
	become_user(RLIM_INFINITY);
	caps[0].effective = 1 << CAP_NET_RAW;
	caps[0].permitted = caps[0].effective;
	expect(!syscall(SYS_capset, &header, caps), "capset: %s", strerror(errno));

	ends(IBV_QPT_UD);
	/* The domain of the counters, which stays. */
	must(destroy(usual_cntr()), 0, "destroy");
	use_memory();
	for (kind = kinds; kind < kinds + sizeof(kinds) / sizeof(kinds[0]); kind++) {
		long long until = now() + 5000;

		for (first = 0; first < MOST; first++) {
			objects[first] = kind->make();
			if (!objects[first])
				break;
		}
		expect(first && first < MOST && errno == kind->error, "%s: %d, then %s",
		       kind->name, first, strerror(errno));
		for (i = 0; i < first; i++)
			must(kind->end(objects[i]), 0, kind->name);
		/* Some memory returns a little later. */
		for (count = 0; count < first; ) {
			objects[count] = kind->make();
			if (objects[count])
				count++;
			else
				expect(now() < until, "%s: %d, then %d", kind->name, first, count);
		}
		for (i = 0; i < count; i++)
			must(kind->end(objects[i]), 0, kind->name);
		printf("%s: %d\n", kind->name, first);
	}
}

static const struct test tests[] = {
	TEST(a_static_point_counts_with_a_flow),
	TEST(a_dynamic_point_counts_on_a_live_flow),
	TEST(nothing_is_attached_while_a_flow_is_bound_statically),
	TEST(a_static_binding_lasts_until_the_last_one_ends),
	TEST(a_description_is_supported_or_not),
	TEST(flows_add_up_in_one_index),
	TEST(points_add_up_in_one_index),
	TEST(counters_are_read_while_they_count),
	TEST(invalid_points_are_refused),
	TEST(a_flow_with_counters_without_points_is_refused),
	TEST(a_flow_has_so_many_points),
	TEST(a_qp_has_so_many_flows),
	TEST(the_values_begin_at_0_and_only_grow),
	TEST(counters_and_qps_of_flows_are_busy),
	TEST(a_flow_has_the_packets_of_its_rule),
	TEST(bits_of_the_mask_are_compared),
	TEST(flows_of_ipv6_are_compared),
	TEST(priorities_and_dont_trap_are_those_of_verbs),
	TEST(a_default_rule_has_the_rest),
	TEST(rules_that_cannot_be_compared_are_refused),
	TEST(a_connection_has_no_flows),
	TEST(a_flow_needs_cap_net_raw),
	TEST(threads_use_flows_at_once),
	TEST(an_ordinary_user_has_so_many_objects),
};

int main(int argc, char **argv)
{
	return run_test(argc, argv, tests, sizeof(tests) / sizeof(tests[0]));
}
