// SPDX-License-Identifier: GPL-2.0
/*
 * Values of kfabric as text: kfi_strerror(), kfi_tostr(), kfi_version().
 */

#include <linux/array_size.h>
#include <linux/export.h>
#include <linux/in.h>
#include <linux/in6.h>
#include <linux/kernel.h>
#include <linux/socket.h>
#include <linux/string.h>

#include <kfi/kfi_trigger.h>

/* The longest text of kfi_tostr(): an entry with all its attributes. */
#define TEXT_MAX	4096

static const char *const own_errors[] = {
	[KFI_EOTHER - KFI_ERRNO_OFFSET]		= "unspecified error",
	[KFI_ETOOSMALL - KFI_ERRNO_OFFSET]	= "buffer too small",
	[KFI_EOPBADSTATE - KFI_ERRNO_OFFSET]	= "not possible in this state",
	[KFI_EAVAIL - KFI_ERRNO_OFFSET]		= "an error entry must be read",
	[KFI_EBADFLAGS - KFI_ERRNO_OFFSET]	= "flags not supported",
	[KFI_ENOEQ - KFI_ERRNO_OFFSET]		= "no event queue is bound",
	[KFI_EDOMAIN - KFI_ERRNO_OFFSET]	= "objects of different domains",
	[KFI_ENOCQ - KFI_ERRNO_OFFSET]		= "no completion queue is bound",
	[KFI_ECRC - KFI_ERRNO_OFFSET]		= "wrong checksum",
	[KFI_ETRUNC - KFI_ERRNO_OFFSET]		= "data were cut off",
	[KFI_ENOKEY - KFI_ERRNO_OFFSET]		= "no such key, or key in use",
	[KFI_ENOAV - KFI_ERRNO_OFFSET]		= "no address vector is bound",
	[KFI_EOVERRUN - KFI_ERRNO_OFFSET]	= "queue overrun",
};

static const struct {
	int number;
	const char *text;
} system_errors[] = {
	{ KFI_SUCCESS, "success" },
	{ EPERM, "operation not permitted" },
	{ KFI_ENOENT, "no such entry" },
	{ EINTR, "interrupted by a signal" },
	{ KFI_EIO, "input/output error" },
	{ KFI_E2BIG, "argument list too long" },
	{ KFI_EBADF, "not an open object" },
	{ KFI_EAGAIN, "try again" },
	{ KFI_ENOMEM, "out of memory" },
	{ KFI_EACCES, "permission denied" },
	{ EFAULT, "bad address" },
	{ KFI_EBUSY, "object in use" },
	{ EEXIST, "exists already" },
	{ KFI_ENODEV, "no such device" },
	{ KFI_EINVAL, "invalid argument" },
	{ KFI_EMFILE, "too many open objects" },
	{ KFI_ENOSPC, "no space left" },
	{ KFI_ENOSYS, "call not implemented" },
	{ KFI_ENOMSG, "no such message" },
	{ KFI_ENODATA, "nothing matches" },
	{ EPROTO, "protocol error" },
	{ KFI_EMSGSIZE, "message too long" },
	{ KFI_ENOPROTOOPT, "no such option" },
	{ EPROTONOSUPPORT, "protocol not supported" },
	{ KFI_EOPNOTSUPP, "not supported" },
	{ KFI_EADDRINUSE, "address in use" },
	{ KFI_EADDRNOTAVAIL, "address not available" },
	{ KFI_ENETDOWN, "network is down" },
	{ KFI_ENETUNREACH, "network unreachable" },
	{ KFI_ECONNABORTED, "connection aborted" },
	{ KFI_ECONNRESET, "connection reset" },
	{ KFI_EISCONN, "connected already" },
	{ KFI_ENOTCONN, "not connected" },
	{ KFI_ESHUTDOWN, "connection shut down" },
	{ KFI_ETIMEDOUT, "timed out" },
	{ KFI_ECONNREFUSED, "connection refused" },
	{ KFI_EHOSTUNREACH, "host unreachable" },
	{ KFI_EALREADY, "begun already" },
	{ KFI_EINPROGRESS, "in progress" },
	{ KFI_EREMOTEIO, "the peer failed" },
	{ KFI_ECANCELED, "cancelled" },
	{ KFI_EKEYREJECTED, "key rejected" },
};

const char *kfi_strerror(int errnum)
{
	unsigned int own = errnum - KFI_ERRNO_OFFSET;
	size_t i;

	if (errnum >= KFI_ERRNO_OFFSET && own < ARRAY_SIZE(own_errors))
		return own_errors[own];
	for (i = 0; i < ARRAY_SIZE(system_errors); i++)
		if (system_errors[i].number == errnum)
			return system_errors[i].text;
	return "unknown error";
}
EXPORT_SYMBOL(kfi_strerror);

u32 kfi_version(void)
{
	return KFI_VERSION(KFI_MAJOR_VERSION, KFI_MINOR_VERSION);
}
EXPORT_SYMBOL(kfi_version);

/* ---- kfi_tostr() --------------------------------------------------------- */

struct text {
	char *buf;
	size_t len;
};

struct name {
	u64 value;
	const char *text;
};

#define NAME(x)		{ x, #x }

static __printf(2, 3) void add(struct text *to, const char *format, ...)
{
	va_list args;

	va_start(args, format);
	to->len += vscnprintf(to->buf + to->len, TEXT_MAX - to->len, format,
			      args);
	va_end(args);
}

static void add_name(struct text *to, const struct name *names, u64 value)
{
	for (; names->text; names++) {
		if (names->value == value) {
			add(to, "%s", names->text);
			return;
		}
	}
	add(to, "%llu", value);
}

/* The bits of @value by name; those without a name as a number. */
static void add_bits(struct text *to, const struct name *names, u64 value)
{
	const char *between = "";

	for (; names->text; names++) {
		if (names->value & value) {
			add(to, "%s%s", between, names->text);
			between = " ";
			value &= ~names->value;
		}
	}
	if (value)
		add(to, "%s%#llx", between, value);
}

/* Tables of names end with an entry without a text. */
static const struct name ep_types[] = {
	NAME(KFI_EP_UNSPEC), NAME(KFI_EP_MSG), NAME(KFI_EP_DGRAM),
	NAME(KFI_EP_RDM), NAME(KFI_EP_SOCK_STREAM), NAME(KFI_EP_SOCK_DGRAM),
	{}
};

static const struct name caps[] = {
	NAME(KFI_MSG), NAME(KFI_RMA), NAME(KFI_TAGGED), NAME(KFI_ATOMIC),
	NAME(KFI_MULTICAST), NAME(KFI_TAGGED_RMA), NAME(KFI_READ),
	NAME(KFI_WRITE), NAME(KFI_RECV), NAME(KFI_SEND), NAME(KFI_REMOTE_READ),
	NAME(KFI_REMOTE_WRITE), NAME(KFI_MULTI_RECV), NAME(KFI_TRIGGER),
	NAME(KFI_FENCE), NAME(KFI_RMA_PMEM), NAME(KFI_SOURCE_ERR),
	NAME(KFI_LOCAL_COMM), NAME(KFI_REMOTE_COMM), NAME(KFI_SHARED_AV),
	NAME(KFI_RMA_EVENT), NAME(KFI_SOURCE), NAME(KFI_NAMED_RX_CTX),
	NAME(KFI_DIRECTED_RECV),
	{}
};

static const struct name op_flags[] = {
	NAME(KFI_MSG), NAME(KFI_RMA), NAME(KFI_TAGGED), NAME(KFI_ATOMIC),
	NAME(KFI_READ), NAME(KFI_WRITE), NAME(KFI_RECV), NAME(KFI_SEND),
	NAME(KFI_REMOTE_READ), NAME(KFI_REMOTE_WRITE), NAME(KFI_MULTI_RECV),
	NAME(KFI_REMOTE_CQ_DATA), NAME(KFI_MORE), NAME(KFI_PEEK),
	NAME(KFI_TRIGGER), NAME(KFI_FENCE), NAME(KFI_COMPLETION),
	NAME(KFI_INJECT), NAME(KFI_INJECT_COMPLETE),
	NAME(KFI_TRANSMIT_COMPLETE), NAME(KFI_DELIVERY_COMPLETE),
	NAME(KFI_AFFINITY), NAME(KFI_COMMIT_COMPLETE),
	NAME(KFI_TAGGED_MULTI_RECV), NAME(KFI_DISCARD), NAME(KFI_CLAIM),
	{}
};

static const struct name addr_formats[] = {
	NAME(KFI_FORMAT_UNSPEC), NAME(KFI_SOCKADDR), NAME(KFI_SOCKADDR_IN),
	NAME(KFI_SOCKADDR_IN6), NAME(KFI_SOCKADDR_IB), NAME(KFI_ADDR_GNI),
	NAME(KFI_ADDR_CXI),
	{}
};

static const struct name threadings[] = {
	NAME(KFI_THREAD_UNSPEC), NAME(KFI_THREAD_SAFE), NAME(KFI_THREAD_FID),
	NAME(KFI_THREAD_DOMAIN), NAME(KFI_THREAD_COMPLETION),
	NAME(KFI_THREAD_ENDPOINT),
	{}
};

static const struct name progresses[] = {
	NAME(KFI_PROGRESS_UNSPEC), NAME(KFI_PROGRESS_AUTO),
	NAME(KFI_PROGRESS_MANUAL),
	{}
};

static const struct name managements[] = {
	NAME(KFI_RM_UNSPEC), NAME(KFI_RM_DISABLED), NAME(KFI_RM_ENABLED),
	{}
};

static const struct name protocols[] = {
	NAME(KFI_PROTO_UNSPEC), NAME(KFI_PROTO_RDMA_CM_IB_RC),
	NAME(KFI_PROTO_IWARP), NAME(KFI_PROTO_IB_UD), NAME(KFI_PROTO_UDP),
	NAME(KFI_PROTO_SOCK_TCP), NAME(KFI_PROTO_IWARP_RDM),
	NAME(KFI_PROTO_IB_RDM), NAME(KFI_PROTO_GNI), NAME(KFI_PROTO_CXI),
	{}
};

static const struct name orders[] = {
	NAME(KFI_ORDER_RAR), NAME(KFI_ORDER_RAW), NAME(KFI_ORDER_RAS),
	NAME(KFI_ORDER_WAR), NAME(KFI_ORDER_WAW), NAME(KFI_ORDER_WAS),
	NAME(KFI_ORDER_SAR), NAME(KFI_ORDER_SAW), NAME(KFI_ORDER_SAS),
	NAME(KFI_ORDER_DATA),
	{}
};

static const struct name modes[] = {
	NAME(KFI_CONTEXT), NAME(KFI_CONTEXT2), NAME(KFI_MSG_PREFIX),
	NAME(KFI_ASYNC_IOV), NAME(KFI_RX_CQ_DATA), NAME(KFI_LOCAL_MR),
	NAME(KFI_NOTIFY_FLAGS_ONLY), NAME(KFI_RESTRICTED_COMP),
	{}
};

static const struct name av_types[] = {
	NAME(KFI_AV_UNSPEC), NAME(KFI_AV_MAP), NAME(KFI_AV_TABLE),
	{}
};

static const struct name datatypes[] = {
	NAME(KFI_INT8), NAME(KFI_UINT8), NAME(KFI_INT16), NAME(KFI_UINT16),
	NAME(KFI_INT32), NAME(KFI_UINT32), NAME(KFI_INT64), NAME(KFI_UINT64),
	NAME(KFI_FLOAT), NAME(KFI_DOUBLE), NAME(KFI_FLOAT_COMPLEX),
	NAME(KFI_DOUBLE_COMPLEX), NAME(KFI_LONG_DOUBLE),
	NAME(KFI_LONG_DOUBLE_COMPLEX),
	{}
};

static const struct name ops[] = {
	NAME(KFI_MIN), NAME(KFI_MAX), NAME(KFI_SUM), NAME(KFI_PROD),
	NAME(KFI_LOR), NAME(KFI_LAND), NAME(KFI_BOR), NAME(KFI_BAND),
	NAME(KFI_LXOR), NAME(KFI_BXOR), NAME(KFI_ATOMIC_READ),
	NAME(KFI_ATOMIC_WRITE), NAME(KFI_CSWAP), NAME(KFI_CSWAP_NE),
	NAME(KFI_CSWAP_LE), NAME(KFI_CSWAP_LT), NAME(KFI_CSWAP_GE),
	NAME(KFI_CSWAP_GT), NAME(KFI_MSWAP),
	{}
};

static const struct name events[] = {
	NAME(KFI_NOTIFY), NAME(KFI_CONNREQ), NAME(KFI_CONNECTED),
	NAME(KFI_SHUTDOWN), NAME(KFI_MR_COMPLETE), NAME(KFI_AV_COMPLETE),
	NAME(KFI_JOIN_COMPLETE),
	{}
};

static const struct name mr_modes[] = {
	NAME(KFI_MR_LOCAL), NAME(KFI_MR_RAW), NAME(KFI_MR_VIRT_ADDR),
	NAME(KFI_MR_PROV_KEY), NAME(KFI_MR_RMA_EVENT), NAME(KFI_MR_ENDPOINT),
	{}
};

static const struct name op_types[] = {
	NAME(KFI_OP_RECV), NAME(KFI_OP_SEND), NAME(KFI_OP_TRECV),
	NAME(KFI_OP_TSEND), NAME(KFI_OP_READ), NAME(KFI_OP_WRITE),
	NAME(KFI_OP_ATOMIC), NAME(KFI_OP_FETCH_ATOMIC),
	NAME(KFI_OP_COMPARE_ATOMIC), NAME(KFI_OP_CNTR_SET),
	NAME(KFI_OP_CNTR_ADD),
	{}
};

static void field_name(struct text *to, const char *field,
		       const struct name *names, u64 value)
{
	add(to, "    %s: ", field);
	add_name(to, names, value);
	add(to, "\n");
}

static void field_bits(struct text *to, const char *field,
		       const struct name *names, u64 value)
{
	add(to, "    %s: [ ", field);
	add_bits(to, names, value);
	add(to, " ]\n");
}

static void field_number(struct text *to, const char *field, u64 value)
{
	add(to, "    %s: %llu\n", field, value);
}

static void field_text(struct text *to, const char *field, const char *value)
{
	add(to, "    %s: %s\n", field, value ?: "(none)");
}

static void add_tx_attr(struct text *to, const struct kfi_tx_attr *attr)
{
	add(to, "kfi_tx_attr:\n");
	field_bits(to, "caps", caps, attr->caps);
	field_bits(to, "mode", modes, attr->mode);
	field_bits(to, "op_flags", op_flags, attr->op_flags);
	field_bits(to, "msg_order", orders, attr->msg_order);
	field_bits(to, "comp_order", orders, attr->comp_order);
	field_number(to, "inject_size", attr->inject_size);
	field_number(to, "size", attr->size);
	field_number(to, "iov_limit", attr->iov_limit);
	field_number(to, "rma_iov_limit", attr->rma_iov_limit);
	field_number(to, "tclass", attr->tclass);
}

static void add_rx_attr(struct text *to, const struct kfi_rx_attr *attr)
{
	add(to, "kfi_rx_attr:\n");
	field_bits(to, "caps", caps, attr->caps);
	field_bits(to, "mode", modes, attr->mode);
	field_bits(to, "op_flags", op_flags, attr->op_flags);
	field_bits(to, "msg_order", orders, attr->msg_order);
	field_bits(to, "comp_order", orders, attr->comp_order);
	field_number(to, "total_buffered_recv", attr->total_buffered_recv);
	field_number(to, "size", attr->size);
	field_number(to, "iov_limit", attr->iov_limit);
}

static void add_ep_attr(struct text *to, const struct kfi_ep_attr *attr)
{
	add(to, "kfi_ep_attr:\n");
	field_name(to, "type", ep_types, attr->type);
	field_name(to, "protocol", protocols, attr->protocol);
	field_number(to, "protocol_version", attr->protocol_version);
	field_number(to, "max_msg_size", attr->max_msg_size);
	field_number(to, "msg_prefix_size", attr->msg_prefix_size);
	field_number(to, "max_order_raw_size", attr->max_order_raw_size);
	field_number(to, "max_order_war_size", attr->max_order_war_size);
	field_number(to, "max_order_waw_size", attr->max_order_waw_size);
	field_number(to, "mem_tag_format", attr->mem_tag_format);
	field_number(to, "tx_ctx_cnt", attr->tx_ctx_cnt);
	field_number(to, "rx_ctx_cnt", attr->rx_ctx_cnt);
	field_number(to, "auth_key_size", attr->auth_key_size);
}

static void add_domain_attr(struct text *to, const struct kfi_domain_attr *attr)
{
	add(to, "kfi_domain_attr:\n");
	field_text(to, "name", attr->name);
	field_name(to, "threading", threadings, attr->threading);
	field_name(to, "control_progress", progresses, attr->control_progress);
	field_name(to, "data_progress", progresses, attr->data_progress);
	field_name(to, "resource_mgmt", managements, attr->resource_mgmt);
	field_name(to, "av_type", av_types, attr->av_type);
	field_bits(to, "mr_mode", mr_modes, attr->mr_mode);
	field_number(to, "mr_key_size", attr->mr_key_size);
	field_number(to, "cq_data_size", attr->cq_data_size);
	field_number(to, "cq_cnt", attr->cq_cnt);
	field_number(to, "ep_cnt", attr->ep_cnt);
	field_number(to, "tx_ctx_cnt", attr->tx_ctx_cnt);
	field_number(to, "rx_ctx_cnt", attr->rx_ctx_cnt);
	field_number(to, "max_ep_tx_ctx", attr->max_ep_tx_ctx);
	field_number(to, "max_ep_rx_ctx", attr->max_ep_rx_ctx);
	field_number(to, "max_ep_stx_ctx", attr->max_ep_stx_ctx);
	field_number(to, "max_ep_srx_ctx", attr->max_ep_srx_ctx);
	field_number(to, "cntr_cnt", attr->cntr_cnt);
	field_number(to, "mr_iov_limit", attr->mr_iov_limit);
	field_bits(to, "caps", caps, attr->caps);
	field_bits(to, "mode", modes, attr->mode);
	field_number(to, "auth_key_size", attr->auth_key_size);
	field_number(to, "max_err_data", attr->max_err_data);
	field_number(to, "mr_cnt", attr->mr_cnt);
	field_number(to, "tclass", attr->tclass);
}

static void add_fabric_attr(struct text *to, const struct kfi_fabric_attr *attr)
{
	add(to, "kfi_fabric_attr:\n");
	field_text(to, "name", attr->name);
	field_text(to, "prov_name", attr->prov_name);
	add(to, "    prov_version: %u.%u\n", KFI_MAJOR(attr->prov_version),
	    KFI_MINOR(attr->prov_version));
	add(to, "    api_version: %u.%u\n", KFI_MAJOR(attr->api_version),
	    KFI_MINOR(attr->api_version));
}

/* Whether an address is one that the kernel can print, and is complete. */
static bool is_ip(u32 format, const void *addr, size_t len)
{
	const struct sockaddr *sa = addr;

	if (!addr || len < sizeof(sa->sa_family))
		return false;
	if (format != KFI_SOCKADDR && format != KFI_SOCKADDR_IN &&
	    format != KFI_SOCKADDR_IN6)
		return false;
	switch (sa->sa_family) {
	case AF_INET:
		return len >= sizeof(struct sockaddr_in);
	case AF_INET6:
		return len >= sizeof(struct sockaddr_in6);
	default:
		return false;
	}
}

/* An address that the kernel can print, or only its length. */
static void add_addr(struct text *to, const char *field, u32 format,
		     const void *addr, size_t len)
{
	if (is_ip(format, addr, len))
		add(to, "    %s: %pISpc\n", field, addr);
	else
		add(to, "    %s: %zu bytes\n", field, addr ? len : 0);
}

static void add_info(struct text *to, const struct kfi_info *info)
{
	add(to, "kfi_info:\n");
	field_bits(to, "caps", caps, info->caps);
	field_bits(to, "mode", modes, info->mode);
	field_name(to, "addr_format", addr_formats, info->addr_format);
	add_addr(to, "src_addr", info->addr_format, info->src_addr,
		 info->src_addrlen);
	add_addr(to, "dest_addr", info->addr_format, info->dest_addr,
		 info->dest_addrlen);
	if (info->tx_attr)
		add_tx_attr(to, info->tx_attr);
	if (info->rx_attr)
		add_rx_attr(to, info->rx_attr);
	if (info->ep_attr)
		add_ep_attr(to, info->ep_attr);
	if (info->domain_attr)
		add_domain_attr(to, info->domain_attr);
	if (info->fabric_attr)
		add_fabric_attr(to, info->fabric_attr);
}

char *kfi_tostr(const void *data, enum kfi_type datatype)
{
	static char buf[TEXT_MAX];
	struct text text = { .buf = buf };
	const u64 *number64 = data;
	const u32 *number32 = data;

	buf[0] = '\0';
	if (!data && datatype != KFI_TYPE_VERSION)
		return NULL;
	switch (datatype) {
	case KFI_TYPE_INFO:
		add_info(&text, data);
		break;
	case KFI_TYPE_EP_TYPE:
		add_name(&text, ep_types, *number32);
		break;
	case KFI_TYPE_CAPS:
		add_bits(&text, caps, *number64);
		break;
	case KFI_TYPE_OP_FLAGS:
	case KFI_TYPE_CQ_EVENT_FLAGS:
		add_bits(&text, op_flags, *number64);
		break;
	case KFI_TYPE_ADDR_FORMAT:
		add_name(&text, addr_formats, *number32);
		break;
	case KFI_TYPE_TX_ATTR:
		add_tx_attr(&text, data);
		break;
	case KFI_TYPE_RX_ATTR:
		add_rx_attr(&text, data);
		break;
	case KFI_TYPE_EP_ATTR:
		add_ep_attr(&text, data);
		break;
	case KFI_TYPE_DOMAIN_ATTR:
		add_domain_attr(&text, data);
		break;
	case KFI_TYPE_FABRIC_ATTR:
		add_fabric_attr(&text, data);
		break;
	case KFI_TYPE_THREADING:
		add_name(&text, threadings, *number32);
		break;
	case KFI_TYPE_PROGRESS:
		add_name(&text, progresses, *number32);
		break;
	case KFI_TYPE_PROTOCOL:
		add_name(&text, protocols, *number32);
		break;
	case KFI_TYPE_MSG_ORDER:
		add_bits(&text, orders, *number64);
		break;
	case KFI_TYPE_MODE:
		add_bits(&text, modes, *number64);
		break;
	case KFI_TYPE_AV_TYPE:
		add_name(&text, av_types, *number32);
		break;
	case KFI_TYPE_ATOMIC_TYPE:
		add_name(&text, datatypes, *number32);
		break;
	case KFI_TYPE_ATOMIC_OP:
		add_name(&text, ops, *number32);
		break;
	case KFI_TYPE_VERSION:
		add(&text, "%d.%d", KFI_MAJOR_VERSION, KFI_MINOR_VERSION);
		break;
	case KFI_TYPE_EQ_EVENT:
		add_name(&text, events, *number32);
		break;
	case KFI_TYPE_MR_MODE:
		add_bits(&text, mr_modes, *number32);
		break;
	case KFI_TYPE_OP_TYPE:
		add_name(&text, op_types, *number32);
		break;
	default:
		return NULL;
	}
	return buf;
}
EXPORT_SYMBOL(kfi_tostr);
