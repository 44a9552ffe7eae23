// SPDX-License-Identifier: GPL-2.0
/*
 * Texts: kfi_tostr() of every type, kfi_strerror() of every number.
 */

#include <linux/in.h>
#include <linux/in6.h>
#include <linux/string.h>

#include <kfi/kfi_eq.h>
#include <kfi/kfi_trigger.h>

#include "fixture.h"

/* The longest text, without its NUL. */
#define LONGEST	4095

/* A value whose text is its name. */
struct name {
	enum kfi_type	type;
	u64		value;
	const char	*text;
};

#define NAME(type, value)	{ KFI_TYPE_##type, value, #value }

static const struct name names[] = {
	NAME(EP_TYPE, KFI_EP_UNSPEC), NAME(EP_TYPE, KFI_EP_MSG), NAME(EP_TYPE, KFI_EP_DGRAM),
	NAME(EP_TYPE, KFI_EP_RDM), NAME(EP_TYPE, KFI_EP_SOCK_STREAM),
	NAME(EP_TYPE, KFI_EP_SOCK_DGRAM),

	NAME(CAPS, KFI_MSG), NAME(CAPS, KFI_RMA), NAME(CAPS, KFI_TAGGED), NAME(CAPS, KFI_ATOMIC),
	NAME(CAPS, KFI_MULTICAST), NAME(CAPS, KFI_TAGGED_RMA), NAME(CAPS, KFI_READ),
	NAME(CAPS, KFI_WRITE), NAME(CAPS, KFI_RECV), NAME(CAPS, KFI_SEND),
	NAME(CAPS, KFI_REMOTE_READ), NAME(CAPS, KFI_REMOTE_WRITE), NAME(CAPS, KFI_MULTI_RECV),
	NAME(CAPS, KFI_TRIGGER), NAME(CAPS, KFI_FENCE), NAME(CAPS, KFI_RMA_PMEM),
	NAME(CAPS, KFI_SOURCE_ERR), NAME(CAPS, KFI_LOCAL_COMM), NAME(CAPS, KFI_REMOTE_COMM),
	NAME(CAPS, KFI_SHARED_AV), NAME(CAPS, KFI_RMA_EVENT), NAME(CAPS, KFI_SOURCE),
	NAME(CAPS, KFI_NAMED_RX_CTX), NAME(CAPS, KFI_DIRECTED_RECV),

	NAME(OP_FLAGS, KFI_MSG), NAME(OP_FLAGS, KFI_MULTI_RECV),
	NAME(OP_FLAGS, KFI_REMOTE_CQ_DATA), NAME(OP_FLAGS, KFI_MORE), NAME(OP_FLAGS, KFI_PEEK),
	NAME(OP_FLAGS, KFI_TRIGGER), NAME(OP_FLAGS, KFI_FENCE), NAME(OP_FLAGS, KFI_COMPLETION),
	NAME(OP_FLAGS, KFI_INJECT), NAME(OP_FLAGS, KFI_INJECT_COMPLETE),
	NAME(OP_FLAGS, KFI_TRANSMIT_COMPLETE), NAME(OP_FLAGS, KFI_DELIVERY_COMPLETE),
	NAME(OP_FLAGS, KFI_AFFINITY), NAME(OP_FLAGS, KFI_COMMIT_COMPLETE),
	NAME(OP_FLAGS, KFI_TAGGED_MULTI_RECV), NAME(OP_FLAGS, KFI_DISCARD),
	NAME(OP_FLAGS, KFI_CLAIM),

	NAME(CQ_EVENT_FLAGS, KFI_SEND), NAME(CQ_EVENT_FLAGS, KFI_RECV),
	NAME(CQ_EVENT_FLAGS, KFI_RMA), NAME(CQ_EVENT_FLAGS, KFI_ATOMIC),
	NAME(CQ_EVENT_FLAGS, KFI_MSG), NAME(CQ_EVENT_FLAGS, KFI_TAGGED),
	NAME(CQ_EVENT_FLAGS, KFI_READ), NAME(CQ_EVENT_FLAGS, KFI_WRITE),
	NAME(CQ_EVENT_FLAGS, KFI_REMOTE_READ), NAME(CQ_EVENT_FLAGS, KFI_REMOTE_WRITE),
	NAME(CQ_EVENT_FLAGS, KFI_REMOTE_CQ_DATA), NAME(CQ_EVENT_FLAGS, KFI_MULTI_RECV),

	NAME(ADDR_FORMAT, KFI_FORMAT_UNSPEC), NAME(ADDR_FORMAT, KFI_SOCKADDR),
	NAME(ADDR_FORMAT, KFI_SOCKADDR_IN), NAME(ADDR_FORMAT, KFI_SOCKADDR_IN6),
	NAME(ADDR_FORMAT, KFI_SOCKADDR_IB), NAME(ADDR_FORMAT, KFI_ADDR_GNI),
	NAME(ADDR_FORMAT, KFI_ADDR_CXI),

	NAME(THREADING, KFI_THREAD_UNSPEC), NAME(THREADING, KFI_THREAD_SAFE),
	NAME(THREADING, KFI_THREAD_FID), NAME(THREADING, KFI_THREAD_DOMAIN),
	NAME(THREADING, KFI_THREAD_COMPLETION), NAME(THREADING, KFI_THREAD_ENDPOINT),

	NAME(PROGRESS, KFI_PROGRESS_UNSPEC), NAME(PROGRESS, KFI_PROGRESS_AUTO),
	NAME(PROGRESS, KFI_PROGRESS_MANUAL),

	NAME(PROTOCOL, KFI_PROTO_UNSPEC), NAME(PROTOCOL, KFI_PROTO_RDMA_CM_IB_RC),
	NAME(PROTOCOL, KFI_PROTO_IWARP), NAME(PROTOCOL, KFI_PROTO_IB_UD),
	NAME(PROTOCOL, KFI_PROTO_UDP), NAME(PROTOCOL, KFI_PROTO_SOCK_TCP),
	NAME(PROTOCOL, KFI_PROTO_IWARP_RDM), NAME(PROTOCOL, KFI_PROTO_IB_RDM),
	NAME(PROTOCOL, KFI_PROTO_GNI), NAME(PROTOCOL, KFI_PROTO_CXI),

	NAME(MSG_ORDER, KFI_ORDER_RAR), NAME(MSG_ORDER, KFI_ORDER_RAW),
	NAME(MSG_ORDER, KFI_ORDER_RAS), NAME(MSG_ORDER, KFI_ORDER_WAR),
	NAME(MSG_ORDER, KFI_ORDER_WAW), NAME(MSG_ORDER, KFI_ORDER_WAS),
	NAME(MSG_ORDER, KFI_ORDER_SAR), NAME(MSG_ORDER, KFI_ORDER_SAW),
	NAME(MSG_ORDER, KFI_ORDER_SAS), NAME(MSG_ORDER, KFI_ORDER_DATA),

	NAME(MODE, KFI_CONTEXT), NAME(MODE, KFI_CONTEXT2), NAME(MODE, KFI_MSG_PREFIX),
	NAME(MODE, KFI_ASYNC_IOV), NAME(MODE, KFI_RX_CQ_DATA), NAME(MODE, KFI_LOCAL_MR),
	NAME(MODE, KFI_NOTIFY_FLAGS_ONLY), NAME(MODE, KFI_RESTRICTED_COMP),

	NAME(AV_TYPE, KFI_AV_UNSPEC), NAME(AV_TYPE, KFI_AV_MAP), NAME(AV_TYPE, KFI_AV_TABLE),

	NAME(ATOMIC_TYPE, KFI_INT8), NAME(ATOMIC_TYPE, KFI_UINT8), NAME(ATOMIC_TYPE, KFI_INT16),
	NAME(ATOMIC_TYPE, KFI_UINT16), NAME(ATOMIC_TYPE, KFI_INT32),
	NAME(ATOMIC_TYPE, KFI_UINT32), NAME(ATOMIC_TYPE, KFI_INT64),
	NAME(ATOMIC_TYPE, KFI_UINT64), NAME(ATOMIC_TYPE, KFI_FLOAT),
	NAME(ATOMIC_TYPE, KFI_DOUBLE), NAME(ATOMIC_TYPE, KFI_FLOAT_COMPLEX),
	NAME(ATOMIC_TYPE, KFI_DOUBLE_COMPLEX), NAME(ATOMIC_TYPE, KFI_LONG_DOUBLE),
	NAME(ATOMIC_TYPE, KFI_LONG_DOUBLE_COMPLEX),

	NAME(ATOMIC_OP, KFI_MIN), NAME(ATOMIC_OP, KFI_MAX), NAME(ATOMIC_OP, KFI_SUM),
	NAME(ATOMIC_OP, KFI_PROD), NAME(ATOMIC_OP, KFI_LOR), NAME(ATOMIC_OP, KFI_LAND),
	NAME(ATOMIC_OP, KFI_BOR), NAME(ATOMIC_OP, KFI_BAND), NAME(ATOMIC_OP, KFI_LXOR),
	NAME(ATOMIC_OP, KFI_BXOR), NAME(ATOMIC_OP, KFI_ATOMIC_READ),
	NAME(ATOMIC_OP, KFI_ATOMIC_WRITE), NAME(ATOMIC_OP, KFI_CSWAP),
	NAME(ATOMIC_OP, KFI_CSWAP_NE), NAME(ATOMIC_OP, KFI_CSWAP_LE),
	NAME(ATOMIC_OP, KFI_CSWAP_LT), NAME(ATOMIC_OP, KFI_CSWAP_GE),
	NAME(ATOMIC_OP, KFI_CSWAP_GT), NAME(ATOMIC_OP, KFI_MSWAP),

	NAME(EQ_EVENT, KFI_NOTIFY), NAME(EQ_EVENT, KFI_CONNREQ), NAME(EQ_EVENT, KFI_CONNECTED),
	NAME(EQ_EVENT, KFI_SHUTDOWN), NAME(EQ_EVENT, KFI_MR_COMPLETE),
	NAME(EQ_EVENT, KFI_AV_COMPLETE), NAME(EQ_EVENT, KFI_JOIN_COMPLETE),

	NAME(MR_MODE, KFI_MR_LOCAL), NAME(MR_MODE, KFI_MR_RAW), NAME(MR_MODE, KFI_MR_VIRT_ADDR),
	NAME(MR_MODE, KFI_MR_PROV_KEY), NAME(MR_MODE, KFI_MR_RMA_EVENT),
	NAME(MR_MODE, KFI_MR_ENDPOINT),

	NAME(OP_TYPE, KFI_OP_RECV), NAME(OP_TYPE, KFI_OP_SEND), NAME(OP_TYPE, KFI_OP_TRECV),
	NAME(OP_TYPE, KFI_OP_TSEND), NAME(OP_TYPE, KFI_OP_READ), NAME(OP_TYPE, KFI_OP_WRITE),
	NAME(OP_TYPE, KFI_OP_ATOMIC), NAME(OP_TYPE, KFI_OP_FETCH_ATOMIC),
	NAME(OP_TYPE, KFI_OP_COMPARE_ATOMIC), NAME(OP_TYPE, KFI_OP_CNTR_SET),
	NAME(OP_TYPE, KFI_OP_CNTR_ADD),
};

/* Bits without a name, several bits, none; enumerators without a name. */
static const struct name others[] = {
	{ KFI_TYPE_CAPS, 0, "" },
	{ KFI_TYPE_CAPS, BIT_ULL(62), "0x4000000000000000" },
	{ KFI_TYPE_CAPS, KFI_SEND | KFI_MSG, "KFI_MSG KFI_SEND" },
	{ KFI_TYPE_CAPS, BIT_ULL(63) | BIT_ULL(62) | KFI_RMA, "KFI_RMA 0xc000000000000000" },
	{ KFI_TYPE_OP_FLAGS, 0, "" },
	{ KFI_TYPE_OP_FLAGS, KFI_INJECT | KFI_COMPLETION | BIT_ULL(0),
	  "KFI_COMPLETION KFI_INJECT 0x1" },
	{ KFI_TYPE_CQ_EVENT_FLAGS, KFI_MSG | KFI_RECV | KFI_MULTI_RECV,
	  "KFI_MSG KFI_RECV KFI_MULTI_RECV" },
	{ KFI_TYPE_CQ_EVENT_FLAGS, BIT_ULL(63), "0x8000000000000000" },
	{ KFI_TYPE_MSG_ORDER, KFI_ORDER_NONE, "" },
	{ KFI_TYPE_MSG_ORDER, KFI_ORDER_SAS | KFI_ORDER_RAR | BIT(20),
	  "KFI_ORDER_RAR KFI_ORDER_SAS 0x100000" },
	{ KFI_TYPE_MODE, KFI_CONTEXT2 | KFI_CONTEXT | 1, "KFI_CONTEXT KFI_CONTEXT2 0x1" },
	{ KFI_TYPE_MR_MODE, KFI_MR_LOCAL | KFI_MR_ENDPOINT | BIT(31),
	  "KFI_MR_LOCAL KFI_MR_ENDPOINT 0x80000000" },
	{ KFI_TYPE_EP_TYPE, KFI_EP_SOCK_DGRAM + 1, "6" },
	{ KFI_TYPE_ADDR_FORMAT, KFI_ADDR_CXI + 1, "7" },
	{ KFI_TYPE_THREADING, KFI_THREAD_ENDPOINT + 1, "6" },
	{ KFI_TYPE_PROGRESS, KFI_PROGRESS_MANUAL + 1, "3" },
	{ KFI_TYPE_PROTOCOL, KFI_PROV_SPECIFIC, "2147483648" },
	{ KFI_TYPE_AV_TYPE, 3, "3" },
	{ KFI_TYPE_ATOMIC_TYPE, KFI_DATATYPE_LAST, "14" },
	{ KFI_TYPE_ATOMIC_OP, KFI_ATOMIC_OP_LAST, "19" },
	{ KFI_TYPE_EQ_EVENT, 99, "99" },
	{ KFI_TYPE_OP_TYPE, 11, "11" },
};

static void print(struct kunit *test, const struct name *list, size_t count)
{
	size_t i;

	for (i = 0; i < count; i++) {
		/* Behind a value of 32 bits there is something else. */
		u64 value[2] = { list[i].value, ~0ULL };
		const char *text = kfi_tostr(value, list[i].type);

		KUNIT_ASSERT_NOT_NULL_MSG(test, text, "type %d", list[i].type);
		KUNIT_EXPECT_STREQ(test, text, list[i].text);
	}
}

static void each_value_has_its_name(struct kunit *test)
{
	print(test, names, ARRAY_SIZE(names));
	print(test, others, ARRAY_SIZE(others));
}

/* A type of 32 bits is read as one. */
static void values_have_their_width(struct kunit *test)
{
	static const enum kfi_type types[] = {
		KFI_TYPE_EP_TYPE, KFI_TYPE_ADDR_FORMAT, KFI_TYPE_THREADING, KFI_TYPE_PROGRESS,
		KFI_TYPE_PROTOCOL, KFI_TYPE_AV_TYPE, KFI_TYPE_ATOMIC_TYPE, KFI_TYPE_ATOMIC_OP,
		KFI_TYPE_EQ_EVENT, KFI_TYPE_MR_MODE, KFI_TYPE_OP_TYPE,
	};
	u32 value[2];
	char text[64];
	int i;

	for (i = 0; i < ARRAY_SIZE(types); i++) {
		value[0] = 1;
		value[1] = 0;
		strscpy(text, kfi_tostr(value, types[i]), sizeof(text));
		value[1] = ~0;
		KUNIT_EXPECT_STREQ(test, kfi_tostr(value, types[i]), text);
	}
	KUNIT_EXPECT_STREQ(test, kfi_tostr(NULL, KFI_TYPE_VERSION), "1.7");
	KUNIT_EXPECT_STREQ(test, kfi_tostr(value, KFI_TYPE_VERSION), "1.7");
	for (i = KFI_TYPE_INFO; i <= KFI_TYPE_OP_TYPE; i++)
		if (i != KFI_TYPE_VERSION)
			KUNIT_EXPECT_NULL_MSG(test, kfi_tostr(NULL, i), "type %d", i);
	KUNIT_EXPECT_NULL(test, kfi_tostr(value, KFI_TYPE_OP_TYPE + 1));
	KUNIT_EXPECT_NULL(test, kfi_tostr(value, -1));
}

#define TX_TEXT \
	"kfi_tx_attr:\n" \
	"    caps: [ KFI_MSG KFI_SEND ]\n" \
	"    mode: [ KFI_CONTEXT ]\n" \
	"    op_flags: [ KFI_COMPLETION ]\n" \
	"    msg_order: [ KFI_ORDER_SAS ]\n" \
	"    comp_order: [ KFI_ORDER_RAR ]\n" \
	"    inject_size: 1\n" \
	"    size: 2\n" \
	"    iov_limit: 3\n" \
	"    rma_iov_limit: 4\n" \
	"    tclass: 512\n"
#define RX_TEXT \
	"kfi_rx_attr:\n" \
	"    caps: [ KFI_MSG KFI_RECV ]\n" \
	"    mode: [ KFI_RX_CQ_DATA ]\n" \
	"    op_flags: [ KFI_MULTI_RECV ]\n" \
	"    msg_order: [ KFI_ORDER_WAW ]\n" \
	"    comp_order: [  ]\n" \
	"    total_buffered_recv: 5\n" \
	"    size: 6\n" \
	"    iov_limit: 7\n"
#define EP_TEXT \
	"kfi_ep_attr:\n" \
	"    type: KFI_EP_RDM\n" \
	"    protocol: KFI_PROTO_IB_RDM\n" \
	"    protocol_version: 8\n" \
	"    max_msg_size: 9\n" \
	"    msg_prefix_size: 10\n" \
	"    max_order_raw_size: 11\n" \
	"    max_order_war_size: 12\n" \
	"    max_order_waw_size: 13\n" \
	"    mem_tag_format: 14\n" \
	"    tx_ctx_cnt: 15\n" \
	"    rx_ctx_cnt: 16\n" \
	"    auth_key_size: 17\n"
#define DOMAIN_TEXT \
	"kfi_domain_attr:\n" \
	"    name: kfi7\n" \
	"    threading: KFI_THREAD_SAFE\n" \
	"    control_progress: KFI_PROGRESS_AUTO\n" \
	"    data_progress: KFI_PROGRESS_MANUAL\n" \
	"    resource_mgmt: KFI_RM_ENABLED\n" \
	"    av_type: KFI_AV_TABLE\n" \
	"    mr_mode: [ KFI_MR_LOCAL ]\n" \
	"    mr_key_size: 18\n" \
	"    cq_data_size: 19\n" \
	"    cq_cnt: 20\n" \
	"    ep_cnt: 21\n" \
	"    tx_ctx_cnt: 22\n" \
	"    rx_ctx_cnt: 23\n" \
	"    max_ep_tx_ctx: 24\n" \
	"    max_ep_rx_ctx: 25\n" \
	"    max_ep_stx_ctx: 26\n" \
	"    max_ep_srx_ctx: 27\n" \
	"    cntr_cnt: 28\n" \
	"    mr_iov_limit: 29\n" \
	"    caps: [ KFI_LOCAL_COMM ]\n" \
	"    mode: [ KFI_RESTRICTED_COMP ]\n" \
	"    auth_key_size: 30\n" \
	"    max_err_data: 31\n" \
	"    mr_cnt: 32\n" \
	"    tclass: 256\n"
#define FABRIC_TEXT \
	"kfi_fabric_attr:\n" \
	"    name: (none)\n" \
	"    prov_name: mine\n" \
	"    prov_version: 3.4\n" \
	"    api_version: 1.5\n"
#define INFO_TEXT \
	"kfi_info:\n" \
	"    caps: [ KFI_MSG KFI_RMA ]\n" \
	"    mode: [ KFI_CONTEXT2 ]\n" \
	"    addr_format: KFI_SOCKADDR_IN\n"

/* Each member of each structure has its own value. */
static struct kfi_tx_attr tx_attr = {
	.caps = KFI_MSG | KFI_SEND, .mode = KFI_CONTEXT, .op_flags = KFI_COMPLETION,
	.msg_order = KFI_ORDER_SAS, .comp_order = KFI_ORDER_RAR, .inject_size = 1, .size = 2,
	.iov_limit = 3, .rma_iov_limit = 4, .tclass = 512,
};

static struct kfi_rx_attr rx_attr = {
	.caps = KFI_MSG | KFI_RECV, .mode = KFI_RX_CQ_DATA, .op_flags = KFI_MULTI_RECV,
	.msg_order = KFI_ORDER_WAW, .total_buffered_recv = 5, .size = 6, .iov_limit = 7,
};

static struct kfi_ep_attr ep_attr = {
	.type = KFI_EP_RDM, .protocol = KFI_PROTO_IB_RDM, .protocol_version = 8,
	.max_msg_size = 9, .msg_prefix_size = 10, .max_order_raw_size = 11,
	.max_order_war_size = 12, .max_order_waw_size = 13, .mem_tag_format = 14,
	.tx_ctx_cnt = 15, .rx_ctx_cnt = 16, .auth_key_size = 17,
};

static struct kfi_domain_attr domain_attr = {
	.name = "kfi7", .threading = KFI_THREAD_SAFE, .control_progress = KFI_PROGRESS_AUTO,
	.data_progress = KFI_PROGRESS_MANUAL, .resource_mgmt = KFI_RM_ENABLED,
	.av_type = KFI_AV_TABLE, .mr_mode = KFI_MR_LOCAL, .mr_key_size = 18, .cq_data_size = 19,
	.cq_cnt = 20, .ep_cnt = 21, .tx_ctx_cnt = 22, .rx_ctx_cnt = 23, .max_ep_tx_ctx = 24,
	.max_ep_rx_ctx = 25, .max_ep_stx_ctx = 26, .max_ep_srx_ctx = 27, .cntr_cnt = 28,
	.mr_iov_limit = 29, .caps = KFI_LOCAL_COMM, .mode = KFI_RESTRICTED_COMP,
	.auth_key_size = 30, .max_err_data = 31, .mr_cnt = 32, .tclass = 256,
};

static struct kfi_fabric_attr fabric_attr = {
	.prov_name = "mine", .prov_version = KFI_VERSION(3, 4), .api_version = KFI_VERSION(1, 5),
};

static void each_structure_has_its_members(struct kunit *test)
{
	struct sockaddr_in src = { .sin_family = AF_INET, .sin_port = htons(7471) };
	struct sockaddr_in6 dest = { .sin6_family = AF_INET6, .sin6_port = htons(80) };
	struct kfi_info info = {
		.caps = KFI_MSG | KFI_RMA, .mode = KFI_CONTEXT2, .addr_format = KFI_SOCKADDR_IN,
	};

	KUNIT_EXPECT_STREQ(test, kfi_tostr(&tx_attr, KFI_TYPE_TX_ATTR), TX_TEXT);
	KUNIT_EXPECT_STREQ(test, kfi_tostr(&rx_attr, KFI_TYPE_RX_ATTR), RX_TEXT);
	KUNIT_EXPECT_STREQ(test, kfi_tostr(&ep_attr, KFI_TYPE_EP_ATTR), EP_TEXT);
	KUNIT_EXPECT_STREQ(test, kfi_tostr(&domain_attr, KFI_TYPE_DOMAIN_ATTR), DOMAIN_TEXT);
	KUNIT_EXPECT_STREQ(test, kfi_tostr(&fabric_attr, KFI_TYPE_FABRIC_ATTR), FABRIC_TEXT);
	/* Absent attributes are left out. */
	KUNIT_EXPECT_STREQ(test, kfi_tostr(&info, KFI_TYPE_INFO),
			   INFO_TEXT "    src_addr: 0 bytes\n    dest_addr: 0 bytes\n");
	src.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
	info.src_addr = &src;
	info.src_addrlen = sizeof(src);
	info.tx_attr = &tx_attr;
	info.rx_attr = &rx_attr;
	info.ep_attr = &ep_attr;
	info.domain_attr = &domain_attr;
	info.fabric_attr = &fabric_attr;
	KUNIT_EXPECT_STREQ(test, kfi_tostr(&info, KFI_TYPE_INFO),
			   INFO_TEXT "    src_addr: 127.0.0.1:7471\n    dest_addr: 0 bytes\n"
			   TX_TEXT RX_TEXT EP_TEXT DOMAIN_TEXT FABRIC_TEXT);
	/* Addresses of the other family, and one that is cut off. */
	dest.sin6_addr.s6_addr[15] = 1;
	info = (struct kfi_info) { .addr_format = KFI_SOCKADDR_IN6, .dest_addr = &dest,
				   .dest_addrlen = sizeof(dest), .src_addr = &dest,
				   .src_addrlen = 16 };
	KUNIT_EXPECT_NOT_NULL(test, strstr(kfi_tostr(&info, KFI_TYPE_INFO),
					   "    dest_addr: [::1]:80\n"));
	KUNIT_EXPECT_NOT_NULL(test, strstr(kfi_tostr(&info, KFI_TYPE_INFO),
					   "    src_addr: 16 bytes\n"));
	info.addr_format = KFI_ADDR_CXI;
	KUNIT_EXPECT_NOT_NULL(test, strstr(kfi_tostr(&info, KFI_TYPE_INFO),
					   "    dest_addr: 28 bytes\n"));
}

/* A text that is too long is cut off. */
static void long_texts_are_cut_off(struct kunit *test)
{
	struct kfi_fabric_attr attr = fabric_attr;
	char *name = kunit_kmalloc(test, 2 * LONGEST, GFP_KERNEL);
	u64 all = ~0ULL;

	KUNIT_ASSERT_NOT_NULL(test, name);
	memset(name, 'x', 2 * LONGEST);
	name[2 * LONGEST - 1] = '\0';
	attr.name = name;
	KUNIT_EXPECT_EQ(test, strlen(kfi_tostr(&attr, KFI_TYPE_FABRIC_ATTR)), LONGEST);
	KUNIT_EXPECT_STREQ(test, kfi_tostr(&fabric_attr, KFI_TYPE_FABRIC_ATTR), FABRIC_TEXT);
	/* All bits, named or not. */
	KUNIT_EXPECT_NOT_NULL(test, strstr(kfi_tostr(&all, KFI_TYPE_CAPS), "KFI_DIRECTED_RECV 0x"));
}

#define ERROR(name)	{ KFI_##name, #name }

/* All numbers of kfi_errno.h. */
static const struct {
	int		number;
	const char	*name;
} errors[] = {
	ERROR(SUCCESS), ERROR(ENOENT), ERROR(EIO), ERROR(E2BIG), ERROR(EBADF), ERROR(EAGAIN),
	ERROR(ENOMEM), ERROR(EACCES), ERROR(EBUSY), ERROR(ENODEV), ERROR(EINVAL), ERROR(EMFILE),
	ERROR(ENOSPC), ERROR(ENOSYS), ERROR(ENOMSG), ERROR(ENODATA), ERROR(EMSGSIZE),
	ERROR(ENOPROTOOPT), ERROR(EOPNOTSUPP), ERROR(EADDRINUSE), ERROR(EADDRNOTAVAIL),
	ERROR(ENETDOWN), ERROR(ENETUNREACH), ERROR(ECONNABORTED), ERROR(ECONNRESET),
	ERROR(EISCONN), ERROR(ENOTCONN), ERROR(ESHUTDOWN), ERROR(ETIMEDOUT),
	ERROR(ECONNREFUSED), ERROR(EHOSTUNREACH), ERROR(EALREADY), ERROR(EINPROGRESS),
	ERROR(EREMOTEIO), ERROR(ECANCELED), ERROR(EKEYREJECTED), ERROR(EOTHER),
	ERROR(ETOOSMALL), ERROR(EOPBADSTATE), ERROR(EAVAIL), ERROR(EBADFLAGS), ERROR(ENOEQ),
	ERROR(EDOMAIN), ERROR(ENOCQ), ERROR(ECRC), ERROR(ETRUNC), ERROR(ENOKEY), ERROR(ENOAV),
	ERROR(EOVERRUN),
};

static void each_error_has_its_text(struct kunit *test)
{
	int i, j;

	for (i = 0; i < ARRAY_SIZE(errors); i++) {
		const char *text = kfi_strerror(errors[i].number);

		KUNIT_ASSERT_NOT_NULL(test, text);
		KUNIT_EXPECT_STRNEQ(test, text, "unknown error");
		KUNIT_EXPECT_STRNEQ(test, text, "");
		for (j = 0; j < i; j++)
			KUNIT_EXPECT_NE_MSG(test, strcmp(text, kfi_strerror(errors[j].number)), 0,
					    "%s and %s", errors[i].name, errors[j].name);
	}
	/* A few by their texts: the numbers at both ends of both kinds. */
	KUNIT_EXPECT_STREQ(test, kfi_strerror(0), "success");
	KUNIT_EXPECT_STREQ(test, kfi_strerror(KFI_ENOENT), "no such entry");
	KUNIT_EXPECT_STREQ(test, kfi_strerror(KFI_EINVAL), "invalid argument");
	KUNIT_EXPECT_STREQ(test, kfi_strerror(KFI_EKEYREJECTED), "key rejected");
	KUNIT_EXPECT_STREQ(test, kfi_strerror(KFI_EOTHER), "unspecified error");
	KUNIT_EXPECT_STREQ(test, kfi_strerror(KFI_EAVAIL), "an error entry must be read");
	KUNIT_EXPECT_STREQ(test, kfi_strerror(KFI_EOVERRUN), "queue overrun");
}

/* Every other number has one text. */
static void no_other_number_has_a_text(struct kunit *test)
{
	static const int more[] = { INT_MIN, -KFI_EOVERRUN, -1, INT_MAX };
	/* These have no name of kfabric's own. */
	static const struct {
		int		number;
		const char	*text;
	} unnamed[] = {
		{ EPERM, "operation not permitted" },
		{ EINTR, "interrupted by a signal" },
		{ EFAULT, "bad address" },
		{ EEXIST, "exists already" },
		{ EPROTO, "protocol error" },
		{ EPROTONOSUPPORT, "protocol not supported" },
	};
	int number, i, known = 0;

	for (number = 0; number < 1024; number++)
		known += strcmp(kfi_strerror(number), "unknown error") != 0;
	KUNIT_EXPECT_EQ(test, known, ARRAY_SIZE(errors) + ARRAY_SIZE(unnamed));
	for (i = 0; i < ARRAY_SIZE(unnamed); i++)
		KUNIT_EXPECT_STREQ(test, kfi_strerror(unnamed[i].number), unnamed[i].text);
	KUNIT_EXPECT_STREQ(test, kfi_strerror(KFI_ERRNO_MAX), "unknown error");
	for (i = 0; i < ARRAY_SIZE(more); i++)
		KUNIT_EXPECT_STREQ(test, kfi_strerror(more[i]), "unknown error");
}

CONSUMER("texts",
	 KUNIT_CASE(each_value_has_its_name),
	 KUNIT_CASE(values_have_their_width),
	 KUNIT_CASE(each_structure_has_its_members),
	 KUNIT_CASE(long_texts_are_cut_off),
	 KUNIT_CASE(each_error_has_its_text),
	 KUNIT_CASE(no_other_number_has_a_text));
