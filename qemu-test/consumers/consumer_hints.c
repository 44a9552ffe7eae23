// SPDX-License-Identifier: GPL-2.0
/*
 * Hints of kfi_getinfo(): each member of each structure is the one that its name
 * says. A value within the offer matches, one above it does not, and a value that the
 * entry takes changes no other member of the entry. consumer_addresses has addresses.
 */

#include <linux/string.h>

#include "fixture.h"

/* Values of a row: what the entry without the hint has, one more, and no value. */
#define OFFER	0xfee1000000000001ULL
#define MORE	0xfee1000000000002ULL
#define NONE	0xfee1000000000003ULL

/**
 * struct row - a member of struct kfi_info or of an attribute structure
 * @name: its name
 * @pointer: offset of the pointer to the structure, SIZE_MAX: struct kfi_info itself
 * @offset: offset in the structure
 * @size: bytes of the member
 * @good: a hint that matches
 * @bad: a hint that does not match, or NONE
 * @taken: the entry has @good then; else it has what it has without a hint
 */
struct row {
	const char	*name;
	size_t		pointer;
	size_t		offset;
	size_t		size;
	u64		good;
	u64		bad;
	bool		taken;
};

#define ROW(type, attr, member, good, bad, taken) \
	{ #attr "->" #member, offsetof(struct kfi_info, attr), offsetof(type, member), \
	  sizeof_field(type, member), good, bad, taken }
#define INFO(member, good, bad) \
	{ #member, SIZE_MAX, offsetof(struct kfi_info, member), \
	  sizeof_field(struct kfi_info, member), good, bad, false }

/* A member is checked, or stored in the entry too. */
#define TX(member, good, bad)	ROW(struct kfi_tx_attr, tx_attr, member, good, bad, false)
#define RX(member, good, bad)	ROW(struct kfi_rx_attr, rx_attr, member, good, bad, false)
#define EP(member, good, bad)	ROW(struct kfi_ep_attr, ep_attr, member, good, bad, false)
#define DOMAIN(member, good, bad) \
	ROW(struct kfi_domain_attr, domain_attr, member, good, bad, false)
#define FABRIC(member, good, bad) \
	ROW(struct kfi_fabric_attr, fabric_attr, member, good, bad, false)
#define TAKEN(type, member, good, bad) \
	ROW(struct kfi_##type, type, member, good, bad, true)

/* Of every type of endpoint. */
static const struct row rows[] = {
	INFO(caps, 0, KFI_MULTICAST),
	INFO(mode, ~0ULL, NONE),
	INFO(addr_format, KFI_SOCKADDR, KFI_SOCKADDR_IB),
	TX(caps, OFFER, KFI_RECV),
	TX(mode, ~0ULL, NONE),
	TAKEN(tx_attr, op_flags, KFI_INJECT_COMPLETE, KFI_MULTI_RECV),
	TX(msg_order, OFFER, KFI_ORDER_SAR),
	TX(comp_order, OFFER, KFI_ORDER_RAR),
	TX(inject_size, OFFER, MORE),
	TAKEN(tx_attr, size, 16384, 16385),
	TX(iov_limit, OFFER, MORE),
	TX(rma_iov_limit, OFFER, MORE),
	TX(tclass, KFI_TC_NETWORK_CTRL, KFI_TC_NETWORK_CTRL + 1),
	RX(caps, OFFER, KFI_SEND),
	RX(mode, ~0ULL, NONE),
	TAKEN(rx_attr, op_flags, KFI_MULTI_RECV, KFI_INJECT_COMPLETE),
	RX(msg_order, OFFER, KFI_ORDER_SAR),
	RX(comp_order, OFFER, KFI_ORDER_RAR),
	TAKEN(rx_attr, size, 16384, 16385),
	RX(iov_limit, OFFER, MORE),
	EP(type, OFFER, KFI_EP_SOCK_DGRAM),
	EP(protocol, OFFER, KFI_PROTO_CXI),
	EP(protocol_version, OFFER, MORE),
	EP(max_msg_size, OFFER, MORE),
	EP(msg_prefix_size, 64, NONE),
	EP(max_order_raw_size, OFFER, MORE),
	EP(max_order_war_size, OFFER, MORE),
	EP(max_order_waw_size, OFFER, MORE),
	TAKEN(ep_attr, mem_tag_format, 0xff00, NONE),
	TAKEN(ep_attr, tx_ctx_cnt, KFI_SHARED_CONTEXT, KFI_SHARED_CONTEXT - 1),
	TAKEN(ep_attr, rx_ctx_cnt, KFI_SHARED_CONTEXT, KFI_SHARED_CONTEXT - 1),
	EP(auth_key_size, OFFER, 5),
	DOMAIN(threading, KFI_THREAD_ENDPOINT, KFI_THREAD_ENDPOINT + 1),
	DOMAIN(control_progress, KFI_PROGRESS_MANUAL, KFI_PROGRESS_MANUAL + 1),
	DOMAIN(data_progress, KFI_PROGRESS_MANUAL, KFI_PROGRESS_MANUAL + 1),
	DOMAIN(resource_mgmt, KFI_RM_DISABLED, KFI_RM_ENABLED),
	TAKEN(domain_attr, av_type, KFI_AV_MAP, KFI_AV_TABLE + 1),
	TAKEN(domain_attr, mr_mode, KFI_MR_VIRT_ADDR | KFI_MR_PROV_KEY, NONE),
	TAKEN(domain_attr, mr_key_size, 3, 5),
	DOMAIN(cq_data_size, OFFER, MORE),
	DOMAIN(cq_cnt, OFFER, MORE),
	DOMAIN(ep_cnt, OFFER, MORE),
	DOMAIN(tx_ctx_cnt, OFFER, MORE),
	DOMAIN(rx_ctx_cnt, OFFER, MORE),
	DOMAIN(max_ep_tx_ctx, OFFER, MORE),
	DOMAIN(max_ep_rx_ctx, OFFER, MORE),
	DOMAIN(max_ep_stx_ctx, OFFER, MORE),
	DOMAIN(max_ep_srx_ctx, OFFER, MORE),
	DOMAIN(cntr_cnt, OFFER, MORE),
	DOMAIN(mr_iov_limit, OFFER, MORE),
	DOMAIN(caps, OFFER, KFI_SHARED_AV),
	DOMAIN(mode, ~0ULL, NONE),
	DOMAIN(auth_key_size, OFFER, MORE),
	DOMAIN(max_err_data, 64, NONE),
	DOMAIN(mr_cnt, OFFER, MORE),
	DOMAIN(tclass, KFI_TC_DSCP | 63, KFI_TC_DSCP | 64),
	FABRIC(prov_version, 0x7777, NONE),
	TAKEN(fabric_attr, api_version, KFI_VERSION(1, 5), KFI_VERSION(1, 8)),
};

/* Of reliable datagrams, and of the others. */
static const struct row rdm_rows[] = {
	TAKEN(rx_attr, total_buffered_recv, 64 << 20, (64 << 20) + 1),
	TAKEN(ep_attr, tx_ctx_cnt, 64, 65),
	TAKEN(ep_attr, rx_ctx_cnt, 64, 65),
};

static const struct row other_rows[] = {
	RX(total_buffered_recv, OFFER, MORE),
	TAKEN(ep_attr, tx_ctx_cnt, 1, 2),
	TAKEN(ep_attr, rx_ctx_cnt, 1, 2),
	EP(auth_key_size, OFFER, 4),
};

static void *member(const struct row *row, const struct kfi_info *info)
{
	const void *structure = info;

	if (row->pointer != SIZE_MAX)
		structure = *(void **)((char *)info + row->pointer);
	return (char *)structure + row->offset;
}

static u64 get(const struct row *row, const struct kfi_info *info)
{
	u64 value = 0;

	memcpy(&value, member(row, info), row->size);
	return value;
}

static void put(const struct row *row, struct kfi_info *info, u64 value)
{
	memcpy(member(row, info), &value, row->size);
}

/* How kfi_getinfo() ends with the hint of a row. */
static int ask(const struct row *row, struct kfi_info *hints, u64 value, struct kfi_info **info)
{
	u64 before = get(row, hints);
	int ret;

	put(row, hints, value);
	ret = kfi_getinfo(0, NULL, NULL, 0, hints, info);
	put(row, hints, before);
	return ret;
}

/* Compares all members of an entry with those of the entry without the hint. */
static void compare(struct kunit *test, const struct row *hint, u64 value,
		    const struct kfi_info *info, const struct kfi_info *base)
{
	int i;

	for (i = 0; i < ARRAY_SIZE(rows); i++) {
		const struct row *row = &rows[i];
		u64 want = get(row, base);

		if (hint->taken && hint->pointer == row->pointer && hint->offset == row->offset)
			want = value;
		KUNIT_EXPECT_EQ_MSG(test, get(row, info), want, "%s with a hint of %s",
				    row->name, hint->name);
	}
	KUNIT_EXPECT_EQ_MSG(test, info->rx_attr->total_buffered_recv,
			    hint->offset == offsetof(struct kfi_rx_attr, total_buffered_recv) &&
			    hint->pointer == offsetof(struct kfi_info, rx_attr) ? value :
			    base->rx_attr->total_buffered_recv, "with a hint of %s", hint->name);
}

static void try(struct kunit *test, const struct row *list, size_t count,
		struct kfi_info *hints, const struct kfi_info *base)
{
	size_t i;

	for (i = 0; i < count; i++) {
		const struct row *row = &list[i];
		u64 offer = get(row, base);
		u64 good = row->good == OFFER ? offer : row->good;
		u64 bad = row->bad == MORE ? offer + 1 : row->bad;
		struct kfi_info *info = NULL;

		KUNIT_ASSERT_EQ_MSG(test, ask(row, hints, good, &info), 0, "%s = %#llx",
				    row->name, good);
		compare(test, row, good, info, base);
		kfi_freeinfo(info);
		if (bad == NONE)
			continue;
		KUNIT_ASSERT_EQ_MSG(test, ask(row, hints, bad, &info), -KFI_ENODATA, "%s = %#llx",
				    row->name, bad);
		KUNIT_EXPECT_NULL(test, info);
	}
}

static void each_member_is_matched(struct kunit *test)
{
	static const enum kfi_ep_type types[] = { KFI_EP_RDM, KFI_EP_MSG, KFI_EP_DGRAM };
	struct kfi_info *hints, *base;
	int i;

	for (i = 0; i < ARRAY_SIZE(types); i++) {
		hints = kfi_allocinfo();
		KUNIT_ASSERT_NOT_NULL(test, hints);
		hints->ep_attr->type = types[i];
		hints->addr_format = KFI_SOCKADDR_IN;
		KUNIT_ASSERT_EQ(test, kfi_getinfo(0, NULL, NULL, 0, hints, &base), 0);
		KUNIT_EXPECT_EQ(test, base->ep_attr->type, types[i]);
		try(test, rows, ARRAY_SIZE(rows), hints, base);
		if (types[i] == KFI_EP_RDM)
			try(test, rdm_rows, ARRAY_SIZE(rdm_rows), hints, base);
		else
			try(test, other_rows, ARRAY_SIZE(other_rows), hints, base);
		kfi_freeinfo(base);
		kfi_freeinfo(hints);
	}
}

/* Offers of reliable datagrams. */
static void offers_are_these(struct kunit *test)
{
	struct kfi_info *info;

	KUNIT_ASSERT_EQ(test, kfi_getinfo(0, NULL, NULL, 0, NULL, &info), 0);
	KUNIT_EXPECT_EQ(test, info->ep_attr->type, KFI_EP_RDM);
	KUNIT_EXPECT_EQ(test, info->ep_attr->protocol, KFI_PROTO_IB_RDM);
	KUNIT_EXPECT_EQ(test, info->ep_attr->max_msg_size, 1 << 30);
	KUNIT_EXPECT_EQ(test, info->ep_attr->mem_tag_format, 0xaaaaaaaaaaaaaaaaULL);
	KUNIT_EXPECT_EQ(test, info->tx_attr->inject_size, 256);
	KUNIT_EXPECT_EQ(test, info->tx_attr->iov_limit, 256);
	KUNIT_EXPECT_EQ(test, info->tx_attr->rma_iov_limit, 256);
	KUNIT_EXPECT_EQ(test, info->tx_attr->op_flags, KFI_COMPLETION);
	KUNIT_EXPECT_EQ(test, info->rx_attr->iov_limit, 256);
	KUNIT_EXPECT_EQ(test, info->rx_attr->op_flags, KFI_COMPLETION);
	KUNIT_EXPECT_EQ(test, info->rx_attr->total_buffered_recv, 1 << 20);
	KUNIT_EXPECT_EQ(test, info->domain_attr->mr_key_size, 4);
	KUNIT_EXPECT_EQ(test, info->domain_attr->cq_data_size, 8);
	KUNIT_EXPECT_EQ(test, info->domain_attr->mr_iov_limit, 256);
	KUNIT_EXPECT_EQ(test, info->domain_attr->max_ep_tx_ctx, 64);
	KUNIT_EXPECT_EQ(test, info->domain_attr->max_ep_rx_ctx, 64);
	KUNIT_EXPECT_EQ(test, info->domain_attr->control_progress, KFI_PROGRESS_AUTO);
	KUNIT_EXPECT_EQ(test, info->domain_attr->data_progress, KFI_PROGRESS_AUTO);
	KUNIT_EXPECT_EQ(test, info->domain_attr->resource_mgmt, KFI_RM_DISABLED);
	KUNIT_EXPECT_EQ(test, info->domain_attr->av_type, KFI_AV_TABLE);
	KUNIT_EXPECT_EQ(test, info->domain_attr->caps, KFI_LOCAL_COMM | KFI_REMOTE_COMM);
	kfi_freeinfo(info);
}

static void defined_traffic_classes_match(struct kunit *test)
{
	struct kfi_info *hints = kfi_allocinfo(), *info;
	u32 *places[2], class;
	int i;

	KUNIT_ASSERT_NOT_NULL(test, hints);
	places[0] = &hints->tx_attr->tclass;
	places[1] = &hints->domain_attr->tclass;
	for (i = 0; i < 2; i++) {
		for (class = 0; class < 0x300; class++) {
			bool dscp = class >= 0x100 && class < 0x140;
			bool label = class >= 0x200 && class <= 0x205;
			int want = !class || dscp || label ? 0 : -KFI_ENODATA;

			*places[i] = class;
			KUNIT_EXPECT_EQ_MSG(test, kfi_getinfo(0, NULL, NULL, 0, hints, &info), want,
					    "class %#x, place %d", class, i);
			kfi_freeinfo(info);
		}
		*places[i] = 0;
	}
	kfi_freeinfo(hints);
}

static void keys_have_a_length(struct kunit *test)
{
	struct kfi_info *hints = kfi_allocinfo(), *info;

	KUNIT_ASSERT_NOT_NULL(test, hints);
	hints->ep_attr->auth_key_size = 4;
	KUNIT_EXPECT_EQ(test, kfi_getinfo(0, NULL, NULL, 0, hints, &info), -KFI_ENODATA);
	hints->ep_attr->auth_key = kmemdup("\x01\x02\x03\x04\x05", 5, GFP_KERNEL);
	KUNIT_ASSERT_EQ(test, kfi_getinfo(0, NULL, NULL, 0, hints, &info), 0);
	KUNIT_EXPECT_EQ(test, info->ep_attr->auth_key_size, 4);
	KUNIT_EXPECT_PTR_NE(test, info->ep_attr->auth_key, hints->ep_attr->auth_key);
	KUNIT_EXPECT_MEMEQ(test, info->ep_attr->auth_key, "\x01\x02\x03\x04", 4);
	kfi_freeinfo(info);
	hints->ep_attr->type = KFI_EP_MSG;
	KUNIT_EXPECT_EQ(test, kfi_getinfo(0, NULL, NULL, 0, hints, &info), -KFI_ENODATA);
	hints->ep_attr->type = KFI_EP_UNSPEC;
	hints->ep_attr->auth_key_size = 3;
	KUNIT_EXPECT_EQ(test, kfi_getinfo(0, NULL, NULL, 0, hints, &info), -KFI_ENODATA);
	hints->ep_attr->auth_key_size = 5;
	KUNIT_EXPECT_EQ(test, kfi_getinfo(0, NULL, NULL, 0, hints, &info), -KFI_ENODATA);
	kfi_freeinfo(hints);
}

/* Capabilities of the hints, of their sides, and of the entry. */
static void capabilities_have_sides(struct kunit *test)
{
	const u64 reach = KFI_LOCAL_COMM | KFI_REMOTE_COMM;
	struct kfi_info *hints = kfi_allocinfo(), *info;

	KUNIT_ASSERT_NOT_NULL(test, hints);
	hints->caps = KFI_MSG | KFI_SEND | KFI_RECV | KFI_RMA | KFI_READ | KFI_REMOTE_WRITE;
	KUNIT_ASSERT_EQ(test, kfi_getinfo(0, NULL, NULL, 0, hints, &info), 0);
	KUNIT_EXPECT_EQ(test, info->caps, hints->caps | reach);
	KUNIT_EXPECT_EQ(test, info->tx_attr->caps, KFI_MSG | KFI_SEND | KFI_RMA | KFI_READ | reach);
	KUNIT_EXPECT_EQ(test, info->rx_attr->caps,
			KFI_MSG | KFI_RECV | KFI_RMA | KFI_REMOTE_WRITE | reach);
	kfi_freeinfo(info);
	hints->tx_attr->caps = KFI_RMA | KFI_READ;
	hints->rx_attr->caps = KFI_MSG | KFI_RECV;
	KUNIT_ASSERT_EQ(test, kfi_getinfo(0, NULL, NULL, 0, hints, &info), 0);
	KUNIT_EXPECT_EQ(test, info->tx_attr->caps, KFI_RMA | KFI_READ);
	KUNIT_EXPECT_EQ(test, info->rx_attr->caps, KFI_MSG | KFI_RECV);
	kfi_freeinfo(info);
	/* A side has what the endpoint has. */
	hints->tx_attr->caps = KFI_WRITE;
	KUNIT_EXPECT_EQ(test, kfi_getinfo(0, NULL, NULL, 0, hints, &info), -KFI_ENODATA);
	kfi_freeinfo(hints);
}

CONSUMER("hints of getinfo",
	 KUNIT_CASE(each_member_is_matched),
	 KUNIT_CASE(offers_are_these),
	 KUNIT_CASE(capabilities_have_sides),
	 KUNIT_CASE(defined_traffic_classes_match),
	 KUNIT_CASE(keys_have_a_length));
