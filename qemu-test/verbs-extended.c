// SPDX-License-Identifier: GPL-2.0
/*
 * verbs-extended: QPs of ibv_create_qp_ex(3): attributes and operations that the device does
 * not have, and the flags of work requests by ibv_wr_start(3). Each test names its page.
 *
 *	verbs-extended DEVICE GID_INDEX TEST...
 *	verbs-extended --list
 *
 * With RDMA_CORE_65 also functions that rdma-core 56 does not have.
 */

#include "verbs-ends.h"
#include "verbs-wr.h"

#define LENGTH	65536

/* The attributes of an extended QP of a, which is valid. */
static struct ibv_qp_init_attr_ex extended(enum ibv_qp_type type)
{
	return (struct ibv_qp_init_attr_ex) {
		.qp_type = type,
		.send_cq = a.sends,
		.recv_cq = a.receives,
		.pd = a.pd,
		.cap = usual(type).cap,
		.comp_mask = IBV_QP_INIT_ATTR_PD | IBV_QP_INIT_ATTR_SEND_OPS_FLAGS,
		.send_ops_flags = all_operations(type),
	};
}

/* a has no QP. */
static void end_without_qp(enum ibv_qp_type type)
{
	make_end(&a, type, 0);
	expect(!ibv_destroy_qp(a.qp), "destroy_qp");
	a.qp = NULL;
}

/* Connected ends, that of a extended. */
static struct ibv_qp_ex *extended_pair(enum ibv_qp_type type)
{
	struct ibv_qp_init_attr_ex init;

	end_without_qp(type);
	make_end(&b, type, 0);
	init = extended(type);
	a.qp = ibv_create_qp_ex(device, &init);
	expect(a.qp, "no extended QP: %s", strerror(errno));
	connect_ends(7);
	return ibv_qp_to_qp_ex(a.qp);
}

/* No QP has these attributes. @error is 0 if uverbs may refuse them before the device (EINVAL). */
static void no_qp(struct ibv_qp_init_attr_ex init, int error, const char *what, __u64 value)
{
	struct ibv_qp *qp;

	errno = 0;
	qp = ibv_create_qp_ex(device, &init);
	expect(!qp, "%s %#llx: a QP", what, (unsigned long long)value);
	expect(error ? errno == error : errno == EINVAL || errno == EOPNOTSUPP, "%s %#llx: %s",
	       what, (unsigned long long)value, strerror(errno));
}

/* A QP that was refused uses nothing of a, and one without the bad attribute is made. */
static void nothing_is_left(void)
{
	struct ibv_qp_init_attr_ex init = extended(IBV_QPT_RC);
	struct ibv_qp *qp = ibv_create_qp_ex(device, &init);

	expect(qp && !ibv_destroy_qp(qp), "a QP: %s", strerror(errno));
	expect(!ibv_destroy_cq(a.sends) && !ibv_destroy_cq(a.receives), "the CQs are in use");
	expect(!ibv_dereg_mr(a.mr) && !ibv_dealloc_pd(a.pd), "the PD is in use");
}

/* ibv_create_qp_ex(3): flags of the creation, none of which the device has. */
static void creation_flags_are_refused(void)
{
	static const __u32 flags[] = {
		IBV_QP_CREATE_BLOCK_SELF_MCAST_LB, IBV_QP_CREATE_SCATTER_FCS,
		IBV_QP_CREATE_CVLAN_STRIPPING, IBV_QP_CREATE_SOURCE_QPN,
		IBV_QP_CREATE_PCI_WRITE_END_PADDING, 1u << 0, 1u << 20, 1u << 31, ~0u,
	};
	struct ibv_qp_init_attr_ex init;
	unsigned int i, type;
	struct ibv_qp *qp;

	end_without_qp(IBV_QPT_RC);
	for (i = 0; i < sizeof(flags) / sizeof(flags[0]); i++) {
		for (type = 0; type < 4; type++) {
			init = extended(type & 1 ? IBV_QPT_RC : IBV_QPT_UD);
			init.comp_mask |= IBV_QP_INIT_ATTR_CREATE_FLAGS;
			if (type & 2) {
				init.comp_mask &= ~IBV_QP_INIT_ATTR_SEND_OPS_FLAGS;
				init.send_ops_flags = 0;
			}
			init.create_flags = flags[i];
			init.source_qpn = 0x123456;
			no_qp(init, 0, "creation flags", flags[i]);
		}
	}
	/* One that uverbs passes on to the device. */
	init = extended(IBV_QPT_UD);
	init.comp_mask |= IBV_QP_INIT_ATTR_CREATE_FLAGS;
	init.create_flags = IBV_QP_CREATE_BLOCK_SELF_MCAST_LB;
	no_qp(init, EOPNOTSUPP, "creation flags", init.create_flags);
	/* A field that comp_mask does not name is not valid, and does not count. */
	init = extended(IBV_QPT_RC);
	init.create_flags = IBV_QP_CREATE_SCATTER_FCS;
	init.max_tso_header = 64;
	init.source_qpn = 0x123456;
	qp = ibv_create_qp_ex(device, &init);
	expect(qp && qp->qp_num != 0x123456 && !ibv_destroy_qp(qp), "fields without a bit: %s",
	       strerror(errno));
	nothing_is_left();
}

/* ibv_create_qp_ex(3): attributes of segmentation, of hashing and of XRC, and unknown ones. */
static void other_attributes_are_refused(void)
{
	static __u8 key[40] = { 1 };
	struct ibv_rwq_ind_table table = { .context = device };
	struct ibv_qp_init_attr_ex init, good;
	__u32 bit;

	end_without_qp(IBV_QPT_UD);
	good = extended(IBV_QPT_UD);
	init = good;
	init.comp_mask |= IBV_QP_INIT_ATTR_MAX_TSO_HEADER;
	init.max_tso_header = 64;
	no_qp(init, EOPNOTSUPP, "a TSO header of", init.max_tso_header);
	init = good;
	init.comp_mask |= IBV_QP_INIT_ATTR_RX_HASH;
	init.rx_hash_conf = (struct ibv_rx_hash_conf) {
		.rx_hash_function = IBV_RX_HASH_FUNC_TOEPLITZ,
		.rx_hash_key_len = sizeof(key),
		.rx_hash_key = key,
		.rx_hash_fields_mask = IBV_RX_HASH_SRC_IPV4 | IBV_RX_HASH_DST_IPV4,
	};
	no_qp(init, EOPNOTSUPP, "a hash of", init.rx_hash_conf.rx_hash_fields_mask);
	init.comp_mask |= IBV_QP_INIT_ATTR_IND_TABLE;
	init.rwq_ind_tbl = &table;
	no_qp(init, EOPNOTSUPP, "a hash and a table", 0);
	init = good;
	init.comp_mask |= IBV_QP_INIT_ATTR_IND_TABLE;
	init.rwq_ind_tbl = &table;
	no_qp(init, EOPNOTSUPP, "a table", 0);
	init = good;
	init.comp_mask |= IBV_QP_INIT_ATTR_XRCD;
	no_qp(init, EOPNOTSUPP, "an XRC domain", 0);
	for (bit = IBV_QP_INIT_ATTR_SEND_OPS_FLAGS << 1; bit; bit <<= 1) {
		init = good;
		init.comp_mask |= bit;
		no_qp(init, EOPNOTSUPP, "an attribute", bit);
	}
	/* The PD is an attribute, too, and no QP is without it. */
	init = good;
	init.comp_mask &= ~IBV_QP_INIT_ATTR_PD;
	no_qp(init, EINVAL, "no PD", 0);
	nothing_is_left();
}

/* ibv_wr_post(3): a QP that does not have all operations that are wanted is not created. */
static void operations_that_a_qp_lacks_are_refused(void)
{
	static const enum ibv_qp_type types[] = { IBV_QPT_RC, IBV_QPT_UD };
	struct ibv_qp_init_attr_ex init;
	struct ibv_qp *qp;
	unsigned int i;
	__u64 bit;

	end_without_qp(IBV_QPT_RC);
	for (i = 0; i < 2; i++) {
		for (bit = 1; bit; bit <<= 1) {
			init = extended(types[i]);
			if (!(all_operations(types[i]) & bit)) {
				init.send_ops_flags |= bit;
				no_qp(init, EOPNOTSUPP, types[i] == IBV_QPT_UD ? "UD" : "RC", bit);
				continue;
			}
			init.send_ops_flags = bit;
			qp = ibv_create_qp_ex(device, &init);
			expect(qp && !ibv_destroy_qp(qp), "type %d, operation %#llx: %s", types[i],
			       (unsigned long long)bit, strerror(errno));
		}
	}
	nothing_is_left();
}

/* A message for which b takes a receive, of each kind that its type has. */
static void message(struct ibv_qp_ex *qp, int kind, struct ibv_ah *ah, unsigned int flags)
{
	ibv_wr_start(qp);
	next(qp, kind, flags);
	if (kind == 0)
		ibv_wr_send(qp);
	else if (kind == 1)
		ibv_wr_send_imm(qp, htobe32(kind));
	else
		ibv_wr_rdma_write_imm(qp, b.mr->rkey, at(&b, 4096), htobe32(kind));
	if (ah)
		ibv_wr_set_ud_addr(qp, ah, b.qp->qp_num, 0x1234);
	ibv_wr_set_sge(qp, a.mr->lkey, at(&a, 0), 64);
	complete(qp);
	entry(a.sends, kind, IBV_WC_SUCCESS);
}

static void solicited_messages(enum ibv_qp_type type, int kinds)
{
	struct ibv_qp_ex *qp = extended_pair(type);
	struct ibv_ah *ah = type == IBV_QPT_UD ? make_ah() : NULL;
	int kind, events;

	for (kind = 0; kind < kinds; kind++) {
		receive(&b, 1, 0, 200);
		receive(&b, 2, 0, 200);
		expect(!ibv_req_notify_cq(b.receives, 1), "req_notify_cq");
		message(qp, kind, ah, 0);
		entry(b.receives, 1, IBV_WC_SUCCESS);
		events = waiting_events(b.channel);
		expect(!events, "type %d, message %d: not solicited, %d events", type, kind,
		       events);
		message(qp, kind, ah, IBV_SEND_SOLICITED);
		entry(b.receives, 2, IBV_WC_SUCCESS);
		events = waiting_events(b.channel);
		expect(events == 1, "type %d, message %d: solicited, %d events", type, kind,
		       events);
	}
}

/* ibv_wr_post(3): IBV_SEND_SOLICITED lets the other side generate an event. */
static void wr_flags_solicit_an_event(void)
{
	solicited_messages(IBV_QPT_RC, 3);
	solicited_messages(IBV_QPT_UD, 2);
}

/* ibv_wr_post(3): IBV_SEND_FENCE starts a work request when those before it have completed. */
static void wr_flags_fence_a_work_request(void)
{
	struct ibv_qp_ex *qp = extended_pair(IBV_QPT_RC);
	__u64 *value = (__u64 *)(b.memory + 3 * LENGTH);
	__u64 *sent = (__u64 *)(b.memory + 4 * LENGTH);
	int i;

	*value = 100;
	for (i = 0; i < 20; i++) {
		fill(&b, 0, LENGTH, i);
		receive(&b, 1, LENGTH, LENGTH);
		receive(&b, 2, 4 * LENGTH, 8);
		/* The bytes of the READ, and the value of before the atomic, are sent back. */
		ibv_wr_start(qp);
		next(qp, 1, 0);
		ibv_wr_rdma_read(qp, b.mr->rkey, at(&b, 0));
		ibv_wr_set_sge(qp, a.mr->lkey, at(&a, 0), LENGTH);
		next(qp, 2, IBV_SEND_FENCE);
		ibv_wr_send(qp);
		ibv_wr_set_sge(qp, a.mr->lkey, at(&a, 0), LENGTH);
		next(qp, 3, 0);
		ibv_wr_atomic_fetch_add(qp, b.mr->rkey, at(&b, 3 * LENGTH), 1);
		ibv_wr_set_sge(qp, a.mr->lkey, at(&a, LENGTH), 8);
		next(qp, 4, IBV_SEND_FENCE);
		ibv_wr_send(qp);
		ibv_wr_set_sge(qp, a.mr->lkey, at(&a, LENGTH), 8);
		complete(qp);
		entry(a.sends, 1, IBV_WC_SUCCESS);
		entry(a.sends, 2, IBV_WC_SUCCESS);
		entry(a.sends, 3, IBV_WC_SUCCESS);
		entry(a.sends, 4, IBV_WC_SUCCESS);
		entry(b.receives, 1, IBV_WC_SUCCESS);
		entry(b.receives, 2, IBV_WC_SUCCESS);
		check(&b, LENGTH, LENGTH, i);
		expect(*sent == 100ull + i && *value == 101ull + i,
		       "round %d: %llu was sent, and then there is %llu", i, *sent, *value);
	}
}

/* A batch of one work request, which is refused and has no effect. */
static void refused(struct ibv_qp_ex *qp, void (*build)(struct ibv_qp_ex *qp), unsigned int flags,
		    int error, const char *what)
{
	int ret;

	ibv_wr_start(qp);
	next(qp, 1, flags);
	build(qp);
	ret = ibv_wr_complete(qp);
	expect(ret == error, "%s: %s", what, ret ? strerror(ret) : "success");
	no_entry(a.sends);
}

static void inline_read(struct ibv_qp_ex *qp)
{
	ibv_wr_rdma_read(qp, b.mr->rkey, at(&b, 64));
	ibv_wr_set_inline_data(qp, a.memory + 64, 8);
}

static void inline_add(struct ibv_qp_ex *qp)
{
	ibv_wr_atomic_fetch_add(qp, b.mr->rkey, at(&b, 64), 1);
	ibv_wr_set_inline_data(qp, a.memory + 64, 8);
}

static void inline_swap(struct ibv_qp_ex *qp)
{
	const struct ibv_data_buf data = { .addr = a.memory + 64, .length = 8 };

	ibv_wr_atomic_cmp_swp(qp, b.mr->rkey, at(&b, 64), 5, 6);
	ibv_wr_set_inline_data_list(qp, 1, &data);
}

static void message_without_address(struct ibv_qp_ex *qp)
{
	ibv_wr_send(qp);
	ibv_wr_set_sge(qp, a.mr->lkey, at(&a, 0), 64);
}

static void message_to_nobody(struct ibv_qp_ex *qp)
{
	ibv_wr_send(qp);
	ibv_wr_set_ud_addr(qp, NULL, b.qp->qp_num, 0x1234);
	ibv_wr_set_sge(qp, a.mr->lkey, at(&a, 0), 64);
}

/*
 * ibv_wr_post(3): inline data are valid for SEND and RDMA WRITE only, and ibv_post_send(3): a
 * checksum for devices that compute it.
 */
static void wr_flags_and_data_that_are_not_valid(void)
{
	struct ibv_qp_ex *qp = extended_pair(IBV_QPT_RC);
	__u64 *here = (__u64 *)(a.memory + 64), *there = (__u64 *)(b.memory + 64);

	*here = 3;
	*there = 5;
	receive(&b, 1, 4096, 200);
	refused(qp, inline_read, 0, EINVAL, "an inline READ");
	refused(qp, inline_add, 0, EINVAL, "an inline FETCH_AND_ADD");
	refused(qp, inline_swap, 0, EINVAL, "an inline CMP_AND_SWP");
	expect(*here == 3 && *there == 5, "memory has %llu and %llu", *here, *there);
	refused(qp, message_without_address, IBV_SEND_IP_CSUM, EINVAL, "a checksum");
	no_entry(b.receives);
	message(qp, 0, NULL, 0);
	entry(b.receives, 1, IBV_WC_SUCCESS);
}

/* ibv_wr_post(3): the setter of a datagram's address must be called. */
static void a_batch_needs_the_address_setter(void)
{
	struct ibv_qp_ex *qp = extended_pair(IBV_QPT_UD);

	receive(&b, 1, 0, 200);
	refused(qp, message_without_address, 0, ENOENT, "no setter of the address");
	refused(qp, message_to_nobody, 0, EINVAL, "no address handle");
	no_entry(b.receives);
	message(qp, 0, make_ah(), 0);
	entry(b.receives, 1, IBV_WC_SUCCESS);
}

/* ibv_post_send(3): a datagram has an address handle; without one it is refused. */
static void a_list_needs_address_handles(void)
{
	struct ibv_send_wr list[2], *bad = NULL;
	struct ibv_sge one;
	int ret;

	pair(IBV_QPT_UD);
	receive(&b, 1, 0, 200);
	receive(&b, 2, 0, 200);
	one = sge(&a, 0, 64);
	list[0] = datagram(&one, make_ah());
	list[1] = datagram(&one, NULL);
	list[0].next = &list[1];
	ret = ibv_post_send(a.qp, list, &bad);
	expect(ret == EINVAL && bad == &list[1], "no address handle: %s",
	       ret ? strerror(ret) : "success");
	entry(a.sends, 1, IBV_WC_SUCCESS);
	entry(b.receives, 1, IBV_WC_SUCCESS);
	no_entry(a.sends);
	no_entry(b.receives);
}

#ifdef RDMA_CORE_65
/* ibv_query_port_speed(3): in units of 100 Mb/s. That of a veth pair is 10 Gb/s. */
static void the_speed_of_a_port(void)
{
	uint64_t speed = 0;
	int ret = ibv_query_port_speed(device, 1, &speed);

	expect(!ret && speed == 100, "%llu: %s", (unsigned long long)speed, strerror(ret));
	expect(ibv_query_port_speed(device, 2, &speed) == EINVAL, "another port");
}

/* ibv_reg_mr_ex(3): a region by its attributes. */
static void regions_by_attributes(void)
{
	struct ibv_mr_init_attr init = {
		.length = REGION,
		.access = ACCESS,
		.comp_mask = IBV_REG_MR_MASK_ADDR | IBV_REG_MR_MASK_IOVA,
		.iova = 0x1000,
	};
	struct ibv_send_wr send;
	struct ibv_sge one;
	struct ibv_mr *mr;

	pair(IBV_QPT_RC);
	init.addr = b.memory;
	mr = ibv_reg_mr_ex(b.pd, &init);
	expect(mr, "reg_mr_ex: %s", strerror(errno));
	fill(&a, 0, 64, 3);
	one = sge(&a, 0, 64);
	send = wr(1, IBV_WR_RDMA_WRITE, &one, 1);
	send.wr.rdma.remote_addr = 0x1000 + 128;
	send.wr.rdma.rkey = mr->rkey;
	must_post(&a, &send);
	entry(a.sends, 1, IBV_WC_SUCCESS);
	check(&b, 128, 64, 3);
	expect(!ibv_dereg_mr(mr), "dereg_mr");
	/* Hints for the steering of DMA need a handle, which a device without DMA cannot have. */
	init.comp_mask |= IBV_REG_MR_MASK_DMAH;
	errno = 0;
	expect(!ibv_reg_mr_ex(b.pd, &init) && errno == EOPNOTSUPP, "a DMA handle: %s",
	       strerror(errno));
}

/* ibv_alloc_buf(3), ibv_alloc_parent_domain(3): buffers are plain memory. */
static void buffers_of_a_parent_domain(void)
{
	struct ibv_pd *pd = ibv_alloc_pd(device), *parent;
	struct ibv_parent_domain_init_attr attr = {
		.pd = pd,
		.comp_mask = IBV_PARENT_DOMAIN_INIT_ATTR_ALLOW_CC_UNPROTECTED_ALLOC,
	};
	struct ibv_buf *buf;
	struct ibv_mr *mr;
	void *memory;

	parent = ibv_alloc_parent_domain(device, &attr);
	expect(parent, "alloc_parent_domain: %s", strerror(errno));
	memory = ibv_alloc_buf(parent, 8192, &buf);
	expect(memory, "alloc_buf: %s", strerror(errno));
	errno = 0;
	expect(!ibv_reg_buf_mr(pd, buf, memory, 8192, ACCESS) && errno == EINVAL,
	       "another PD: %s", strerror(errno));
	mr = ibv_reg_buf_mr(parent, buf, memory, 8192, ACCESS);
	expect(mr && mr->length == 8192, "reg_buf_mr: %s", strerror(errno));
	expect(!ibv_dereg_mr(mr), "dereg_mr");
	ibv_free_buf(buf);
	expect(!ibv_dealloc_pd(parent) && !ibv_dealloc_pd(pd), "dealloc_pd");
}
#endif

static const struct test tests[] = {
	TEST(creation_flags_are_refused), TEST(other_attributes_are_refused),
	TEST(operations_that_a_qp_lacks_are_refused), TEST(wr_flags_solicit_an_event),
	TEST(wr_flags_fence_a_work_request), TEST(wr_flags_and_data_that_are_not_valid),
	TEST(a_batch_needs_the_address_setter), TEST(a_list_needs_address_handles),
#ifdef RDMA_CORE_65
	TEST(the_speed_of_a_port), TEST(regions_by_attributes), TEST(buffers_of_a_parent_domain),
#endif
};

int main(int argc, char **argv)
{
	return run_test(argc, argv, tests, sizeof(tests) / sizeof(tests[0]));
}
