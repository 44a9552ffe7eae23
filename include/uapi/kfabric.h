/* SPDX-License-Identifier: GPL-2.0 WITH Linux-syscall-note */
/*
 * /dev/kfabric: the ioctl interface of the kfabric module.
 *
 * This header is the only definition of the interface: the module and every
 * user-space binding are generated from it or include it.  Documentation/abi.md
 * describes how a program uses the interface; this file states the arguments,
 * results and errors of each call.
 *
 * Shape of a call
 *   - Every argument structure begins with @size, its size as the caller knows
 *     it.  The kernel extends a shorter structure with zeros.  It accepts a
 *     longer one if all bytes that it does not know are zero (-E2BIG
 *     otherwise).  The kernel recognises a command by its type and number; it
 *     ignores the size that is encoded in the command.
 *   - All fields have a fixed width and natural alignment, the same on 32 and
 *     64 bits.  Pointers are passed as __u64; the comment of such a field has
 *     "pointer to".  Reserved fields and padding must be 0.
 *   - A call returns 0, or -1 with errno.  The kernel writes results back to
 *     the argument structure.  It does so only if the call succeeds, unless the
 *     description of the call says otherwise.
 *   - Handles name objects.  A handle is a positive number that belongs to the
 *     open file in which the object was made.  Closing the file closes its
 *     objects.  0 is "no object".
 *   - Times are absolute, CLOCK_MONOTONIC, in nanoseconds.  0 (or any time that
 *     has passed) polls; %KFABRIC_FOREVER waits without limit.  A signal ends a
 *     wait with -EINTR, or restarts it (SA_RESTART).
 *   - Flags, enumerators and error numbers above 255 are defined by kfabric
 *     (KFI_*).
 *
 * Errors that any call can give
 *   -EFAULT  a pointer does not point to accessible memory
 *   -E2BIG   @size is larger than known and the rest is not zero, or larger
 *            than 4096
 *   -EINVAL  @size is smaller than the first version of the structure; an
 *            unknown flag; a reserved field that is not zero
 *   -EBADF   a handle names nothing, or an object of another class
 *   -ENOMEM  no memory; an object: more than one user's objects may take
 *            (module parameter user_memory; CAP_SYS_RESOURCE lifts it)
 *   -ENOTTY  no such call
 * Calls that make an object can also return -EMFILE (%KFABRIC_MAX_HANDLES). The
 * description of each call lists its own errors.
 */
#ifndef _UAPI_KFABRIC_H
#define _UAPI_KFABRIC_H

#include <linux/ioctl.h>
#include <linux/types.h>

#define KFABRIC_ABI_VERSION	1
#define KFABRIC_DEVICE		"/dev/kfabric"

/* Not registered in ioctl-number.rst; free there at the time of writing. */
#define KFABRIC_IOC_TYPE	0xBB

#define KFABRIC_FOREVER		0xffffffffffffffffULL

/* Limits.  The module's parameters can lower some; KFABRIC_IOC_QUERY tells. */
#define KFABRIC_MAX_HANDLES	65535	/* objects of one open file */
#define KFABRIC_MAX_MSG_SIZE	(1ULL << 30)
#define KFABRIC_MAX_IOV		256	/* elements of an iov or RMA iov list */
#define KFABRIC_INJECT_SIZE	256	/* bytes that KFI_INJECT can carry */
#define KFABRIC_MAX_ATOMIC_SIZE	4096	/* bytes of an atomic's elements */
#define KFABRIC_MAX_QUEUE	16384	/* tx_size, rx_size of an endpoint */
#define KFABRIC_MAX_CQ		65536	/* entries of a CQ */
#define KFABRIC_MAX_EQ		4096	/* events of an EQ */
#define KFABRIC_MAX_AV		65536	/* addresses in an AV */
#define KFABRIC_MAX_EVENT	320	/* bytes of an event's data */
#define KFABRIC_MAX_POST	4096	/* operations in one KFABRIC_IOC_POST */
#define KFABRIC_MAX_WAITERS	1024	/* of a counter (descriptors, too), CQ or EQ */
#define KFABRIC_MAX_EP_CTX	64	/* contexts of a scalable endpoint, of each side */
#define KFABRIC_MAX_WORK	131072	/* queued and triggered work of a domain */
#define KFABRIC_MAX_BUFFERED	(64ULL << 20) /* total_buffered_recv */
#define KFABRIC_MAX_COMP_CNTR	4096	/* completion counters of a domain */
/* Private data of a connection, bytes: what the RDMA CM leaves to its users. */
#define KFABRIC_MAX_CONNECT_DATA	56
#define KFABRIC_MAX_ACCEPT_DATA	196
#define KFABRIC_MAX_REJECT_DATA	148
/* requests of one peer that wait at a passive endpoint */
#define KFABRIC_MAX_BACKLOG	4096
#define KFABRIC_MAX_FLOWS	64	/* flows of an endpoint */
#define KFABRIC_MAX_FLOW_POINTS	16	/* counter points of a flow */
#define KFABRIC_MAX_COUNTERS	256	/* values of a counters object */
#define KFABRIC_NAME_MAX	64
#define KFABRIC_LINK_NAME_MAX	16
#define KFABRIC_STRADDR_MAX	80	/* text of an address, with its NUL */
#define KFABRIC_AUTH_KEY_SIZE	4	/* bytes of an authorization key */

/* ---- Constants: capabilities, flags, enumerators ------------------------ */

/* Capabilities and operation kinds. */
#define KFI_MSG			(1ULL << 1)
#define KFI_RMA			(1ULL << 2)
#define KFI_TAGGED		(1ULL << 3)
#define KFI_ATOMIC		(1ULL << 4)
#define KFI_MULTICAST		(1ULL << 5)
#define KFI_TAGGED_RMA		(1ULL << 6)
#define KFI_READ		(1ULL << 8)
#define KFI_WRITE		(1ULL << 9)
#define KFI_RECV		(1ULL << 10)
#define KFI_SEND		(1ULL << 11)
#define KFI_TRANSMIT		KFI_SEND
#define KFI_REMOTE_READ		(1ULL << 12)
#define KFI_REMOTE_WRITE	(1ULL << 13)

/* Flags of operations and completions. */
#define KFI_MULTI_RECV		(1ULL << 16)
#define KFI_REMOTE_CQ_DATA	(1ULL << 17)
#define KFI_MORE		(1ULL << 18)
#define KFI_PEEK		(1ULL << 19)
#define KFI_TRIGGER		(1ULL << 20)
#define KFI_FENCE		(1ULL << 21)
#define KFI_COMPLETION		(1ULL << 24)
#define KFI_EVENT		KFI_COMPLETION
#define KFI_INJECT		(1ULL << 25)
#define KFI_INJECT_COMPLETE	(1ULL << 26)
#define KFI_TRANSMIT_COMPLETE	(1ULL << 27)
#define KFI_DELIVERY_COMPLETE	(1ULL << 28)
#define KFI_AFFINITY		(1ULL << 29)
#define KFI_COMMIT_COMPLETE	(1ULL << 30)

/* Flags of objects; the high bits mean different things to different calls. */
#define KFI_SOURCE_ERR		(1ULL << 50)
#define KFI_LOCAL_COMM		(1ULL << 51)
#define KFI_REMOTE_COMM		(1ULL << 52)
#define KFI_RMA_EVENT		(1ULL << 56)
#define KFI_SOURCE		(1ULL << 57)
#define KFI_NAMED_RX_CTX	(1ULL << 58)
#define KFI_DISCARD		(1ULL << 58)
#define KFI_SYNC_ERR		(1ULL << 58)
#define KFI_CLAIM		(1ULL << 59)
#define KFI_DIRECTED_RECV	(1ULL << 59)
#define KFI_REG_MR		(1ULL << 59)
#define KFI_SELECTIVE_COMPLETION (1ULL << 59)

#define KFI_ADDR_UNSPEC		0xffffffffffffffffULL
#define KFI_ADDR_NOTAVAIL	0xffffffffffffffffULL
#define KFI_KEY_NOTAVAIL	0xffffffffffffffffULL

/* Memory registration modes (mr_mode). */
#define KFI_MR_LOCAL		(1 << 1)
#define KFI_MR_VIRT_ADDR	(1 << 3)
#define KFI_MR_PROV_KEY		(1 << 4)
#define KFI_MR_RMA_EVENT	(1 << 5)

/* Message orders (msg_order): pairs that stay in order towards one peer. */
#define KFI_ORDER_NONE		0
#define KFI_ORDER_RAR		(1 << 0)
#define KFI_ORDER_RAW		(1 << 1)
#define KFI_ORDER_RAS		(1 << 2)
#define KFI_ORDER_WAR		(1 << 3)
#define KFI_ORDER_WAW		(1 << 4)
#define KFI_ORDER_WAS		(1 << 5)
#define KFI_ORDER_SAR		(1 << 6)
#define KFI_ORDER_SAW		(1 << 7)
#define KFI_ORDER_SAS		(1 << 8)
#define KFI_ORDER_STRICT	0x1ff
#define KFI_ORDER_DATA		(1 << 16)

enum kfi_ep_type {
	KFI_EP_UNSPEC	= 0,
	KFI_EP_MSG	= 1,
	KFI_EP_DGRAM	= 2,
	KFI_EP_RDM	= 3,
};

enum kfi_av_type {
	KFI_AV_UNSPEC	= 0,
	KFI_AV_MAP	= 1,
	KFI_AV_TABLE	= 2,
};

enum kfi_cntr_events {
	KFI_CNTR_EVENTS_COMP	= 0,
};

enum kfi_wait_obj {
	KFI_WAIT_NONE	= 0,
	KFI_WAIT_UNSPEC	= 1,
	KFI_WAIT_SET	= 2,
	KFI_WAIT_QUEUE	= 3,
};

enum kfi_cq_format {
	KFI_CQ_FORMAT_UNSPEC	= 0,
	KFI_CQ_FORMAT_CONTEXT	= 1,
	KFI_CQ_FORMAT_MSG	= 2,
	KFI_CQ_FORMAT_DATA	= 3,
	KFI_CQ_FORMAT_TAGGED	= 4,
};

enum kfi_cq_wait_cond {
	KFI_CQ_COND_NONE	= 0,
	KFI_CQ_COND_THRESHOLD	= 1,
};

enum kfi_threading {
	KFI_THREAD_UNSPEC	= 0,
	KFI_THREAD_SAFE		= 1,
};

enum kfi_progress {
	KFI_PROGRESS_UNSPEC	= 0,
	KFI_PROGRESS_AUTO	= 1,
	KFI_PROGRESS_MANUAL	= 2,
};

enum kfi_resource_mgmt {
	KFI_RM_UNSPEC	= 0,
	KFI_RM_DISABLED	= 1,
	KFI_RM_ENABLED	= 2,
};

/* Address formats. */
enum {
	KFI_FORMAT_UNSPEC	= 0,
	KFI_SOCKADDR		= 1,
	KFI_SOCKADDR_IN		= 2,
	KFI_SOCKADDR_IN6	= 3,
};

/* Wire protocols (ep_attr.protocol). */
enum {
	KFI_PROTO_UNSPEC	= 0,
	KFI_PROTO_RDMA_CM_IB_RC	= 1,
	KFI_PROTO_IB_UD		= 3,
	KFI_PROTO_IB_RDM	= 7,
};

/* Object classes, as KFABRIC_IOC_STAT uses them. */
enum {
	KFI_CLASS_UNSPEC	= 0,
	KFI_CLASS_FABRIC	= 1,
	KFI_CLASS_DOMAIN	= 2,
	KFI_CLASS_EP		= 3,
	KFI_CLASS_PEP		= 9,
	KFI_CLASS_AV		= 11,
	KFI_CLASS_MR		= 12,
	KFI_CLASS_EQ		= 13,
	KFI_CLASS_CQ		= 14,
	KFI_CLASS_CNTR		= 15,
	KFI_CLASS_WAIT		= 16,
	KFI_CLASS_POLL		= 17,
	/* Objects of verbs, which kfabric does not have. */
	KFABRIC_CLASS_COMP_CNTR	= 256,
	KFABRIC_CLASS_COUNTERS	= 257,
	KFABRIC_CLASS_FLOW	= 258,
};

/* EQ events. */
enum {
	KFI_NOTIFY		= 0,
	KFI_CONNREQ		= 1,
	KFI_CONNECTED		= 2,
	KFI_SHUTDOWN		= 3,
	KFI_MR_COMPLETE		= 4,
	KFI_AV_COMPLETE		= 5,
	KFI_JOIN_COMPLETE	= 6,
};

/* Endpoint options (level KFI_OPT_ENDPOINT). */
enum {
	KFI_OPT_MIN_MULTI_RECV	= 0,
	KFI_OPT_CM_DATA_SIZE	= 1,
};

#define KFI_OPT_ENDPOINT	0

/*
 * Options of the QP under an endpoint (level KFABRIC_OPT_QP).  Their meaning is
 * that of InfiniBand, see ibv_modify_qp(3).  While the peer does not answer,
 * the timeout grows to four times its value, as InfiniBand allows: the QP gives
 * up a silent peer after 1 + 2 + 4 + 4 ... timeouts, RETRY_CNT + 1 in number.
 */
#define KFABRIC_OPT_QP		0x4b51

enum {
	KFABRIC_OPT_QKEY	= 0,	/* DGRAM */
	KFABRIC_OPT_PATH_MTU	= 1,	/* MSG: 0, 256, 512, ... 4096 bytes */
	KFABRIC_OPT_TIMEOUT	= 2,	/* MSG: 0..31: 4.096 us * 2^n, 0: none */
	KFABRIC_OPT_RETRY_CNT	= 3,	/* MSG: 0..7 */
	KFABRIC_OPT_RNR_RETRY	= 4,	/* MSG: 0..7, 7: for ever */
	KFABRIC_OPT_MIN_RNR_TIMER = 5,	/* MSG: 0..31, a code of InfiniBand's */
	KFABRIC_OPT_RD_ATOMIC	= 6,	/* MSG: 0..16 READs and atomics here */
	KFABRIC_OPT_DEST_RD_ATOMIC = 7,	/* MSG: 0..16 of the peer's */
};

/* Types of what atomics work on. */
enum kfi_datatype {
	KFI_INT8		= 0,
	KFI_UINT8		= 1,
	KFI_INT16		= 2,
	KFI_UINT16		= 3,
	KFI_INT32		= 4,
	KFI_UINT32		= 5,
	KFI_INT64		= 6,
	KFI_UINT64		= 7,
	KFI_FLOAT		= 8,
	KFI_DOUBLE		= 9,
	KFI_FLOAT_COMPLEX	= 10,
	KFI_DOUBLE_COMPLEX	= 11,
	KFI_LONG_DOUBLE		= 12,
	KFI_LONG_DOUBLE_COMPLEX	= 13,
};

/* Operations of atomics. */
enum kfi_op {
	KFI_MIN			= 0,
	KFI_MAX			= 1,
	KFI_SUM			= 2,
	KFI_PROD		= 3,
	KFI_LOR			= 4,
	KFI_LAND		= 5,
	KFI_BOR			= 6,
	KFI_BAND		= 7,
	KFI_LXOR		= 8,
	KFI_BXOR		= 9,
	KFI_ATOMIC_READ		= 10,
	KFI_ATOMIC_WRITE	= 11,
	KFI_CSWAP		= 12,
	KFI_CSWAP_NE		= 13,
	KFI_CSWAP_LE		= 14,
	KFI_CSWAP_LT		= 15,
	KFI_CSWAP_GE		= 16,
	KFI_CSWAP_GT		= 17,
	KFI_MSWAP		= 18,
};

/* Conditions of triggered operations. */
enum kfi_trigger_event {
	KFI_TRIGGER_THRESHOLD	= 0,
};

/* Error numbers of kfabric above the system's. */
enum {
	KFI_EOTHER		= 256,
	KFI_ETOOSMALL		= 257,
	KFI_EOPBADSTATE		= 258,
	KFI_EAVAIL		= 259,
	KFI_EBADFLAGS		= 260,
	KFI_ENOEQ		= 261,
	KFI_EDOMAIN		= 262,
	KFI_ENOCQ		= 263,
	KFI_ECRC		= 264,
	KFI_ETRUNC		= 265,
	KFI_ENOKEY		= 266,
	KFI_ENOAV		= 267,
	KFI_EOVERRUN		= 268,
};

/* ---- Parts that several calls share ------------------------------------- */

/**
 * struct kfabric_sockaddr - a socket address, IPv4 or IPv6
 * @family: AF_INET or AF_INET6
 * @port: service number, big endian
 * @v4: IPv4 address, big endian (the flow information of an IPv6 address)
 * @v6: IPv6 address; zero for IPv4
 * @scope_id: scope of an IPv6 address (interface index), else 0
 * @qpn: 0; or, with @port 0, the number of a QP, below 2^24.  It names a peer
 *	of datagram endpoints that does not use kfabric, and no other peer; the
 *	65535 numbers from KFABRIC_DGRAM_QPN + 1 on are the ports
 *
 * The layout is that of struct sockaddr_in or struct sockaddr_in6, with room
 * behind.
 */
struct kfabric_sockaddr {
	__u16	family;
	__be16	port;
	__be32	v4;
	__u8	v6[16];
	__u32	scope_id;
	__u32	qpn;
};

/* The QP of a datagram endpoint is this number and its port. */
#define KFABRIC_DGRAM_QPN	0x020000

/**
 * struct kfabric_iov - a piece of local memory
 * @addr: address in the calling process
 * @len: bytes
 */
struct kfabric_iov {
	__u64	addr;
	__u64	len;
};

/**
 * struct kfabric_rma_iov - a piece of a peer's memory
 * @addr: virtual address (KFI_MR_VIRT_ADDR) or offset into the region
 * @len: bytes
 * @key: key of the region
 */
struct kfabric_rma_iov {
	__u64	addr;
	__u64	len;
	__u64	key;
};

/* ---- The device and its links ------------------------------------------- */

/**
 * struct kfabric_query - version and limits of the module
 * @size: sizeof(struct kfabric_query)
 * @abi_version: KFABRIC_ABI_VERSION of the module
 * @module_version: version of the module, as KFI_VERSION(major, minor)
 * @page_size: page size: the unit of mappings
 * @caps: capabilities (KFI_MSG, ...) that some endpoint type has
 * @max_msg_size: bytes in a message or RMA operation
 * @inject_size: bytes that KFI_INJECT can carry
 * @max_iov: elements of an iov list
 * @max_handles: objects of one open file
 * @max_queue: largest tx_size and rx_size
 * @max_cq: largest CQ
 * @max_eq: largest EQ
 * @max_av: largest AV
 * @max_post: operations in one post
 * @max_buffered: largest total_buffered_recv
 * @max_flows: flows of an endpoint
 * @max_flow_points: counter points of a flow
 * @max_counters: values of a counters object
 * @max_comp_cntr: completion counters of one domain
 * @max_work: deferred work and triggered operations that wait in one domain
 * @max_ep_ctx: transmit contexts, and receive contexts, of a scalable endpoint
 */
struct kfabric_query {
	__u32	size;
	__u32	abi_version;
	__u32	module_version;
	__u32	page_size;
	__u64	caps;
	__u64	max_msg_size;
	__u32	inject_size;
	__u32	max_iov;
	__u32	max_handles;
	__u32	max_queue;
	__u32	max_cq;
	__u32	max_eq;
	__u32	max_av;
	__u32	max_post;
	__u64	max_buffered;
	__u32	max_flows;
	__u32	max_flow_points;
	__u32	max_counters;
	__u32	max_comp_cntr;
	__u32	max_work;
	__u32	max_ep_ctx;
};

/**
 * struct kfabric_nop - a call that does nothing, to measure what a call costs
 * @size: sizeof(struct kfabric_nop)
 * @reserved: 0
 */
struct kfabric_nop {
	__u32	size;
	__u32	reserved;
};

/**
 * struct kfabric_link_add - make a link: the software device on an interface
 * @size: sizeof(struct kfabric_link_add)
 * @flags: 0
 * @name: name of the link, unique in the network namespace; NUL-terminated,
 *	printable, no '/' and no blank, not "." and not ".."
 * @netdev: name of the network interface in the caller's network namespace
 *
 * Needs CAP_NET_ADMIN in the user namespace of the caller's network namespace.
 * The first link of a network namespace, on whatever interface, opens UDP port
 * 4791 there, for IPv4 and IPv6 and at all addresses; the last one closes it.
 * The first link in a VRF opens it in that VRF, too. A link whose interface was
 * removed (KFABRIC_LINK_GONE) counts as a link until the last domain open on it
 * is closed; its name is free.
 *
 * Errors: -EPERM; -EINVAL a name is empty, not terminated or has bad
 * characters, or is "." or ".."; -EEXIST a link has the name, or the interface
 * has a link (those that have gone do not count); -ENODEV no such interface;
 * -ENOSPC too many links in this network namespace (module parameter max_links,
 * per namespace); -EADDRINUSE another socket of this network namespace uses UDP
 * port 4791, in any VRF or in none (that of in-tree rxe, for example).
 */
struct kfabric_link_add {
	__u32	size;
	__u32	flags;
	char	name[KFABRIC_LINK_NAME_MAX];
	char	netdev[KFABRIC_LINK_NAME_MAX];
};

/**
 * struct kfabric_link_del - remove a link
 * @size: sizeof(struct kfabric_link_del)
 * @flags: 0
 * @name: name of the link
 *
 * Errors: -EPERM; -EINVAL as above; -ENODEV no such link, or it has gone;
 * -EBUSY a domain is open on it.
 */
struct kfabric_link_del {
	__u32	size;
	__u32	flags;
	char	name[KFABRIC_LINK_NAME_MAX];
};

/* State of a link. */
enum {
	KFABRIC_LINK_DOWN	= 0,	/* interface down, or no socket in its VRF */
	KFABRIC_LINK_UP		= 1,
	KFABRIC_LINK_GONE	= 2,	/* interface removed; domains still open */
};

/**
 * struct kfabric_link_get - the next link of the caller's network namespace
 * @size: sizeof(struct kfabric_link_get)
 * @after: id of the last link seen, 0 to begin; out: id of this link
 * @name: out: name of the link
 * @netdev: out: name of its interface
 * @state: out: KFABRIC_LINK_*
 * @mtu: out: MTU of the interface, bytes
 * @ipv4: out: first IPv4 address, family 0 if there is none
 * @ipv6: out: first IPv6 address, family 0 if there is none
 * @domains: out: domains open on it
 * @endpoints: out: endpoints enabled on it
 * @tx_ops: out: operations that endpoints on it sent
 * @tx_bytes: out: their bytes
 * @rx_ops: out: operations that arrived for endpoints on it
 * @rx_bytes: out: their bytes
 *
 * Errors: -ENOENT no link after @after.
 */
struct kfabric_link_get {
	__u32	size;
	__u32	after;
	char	name[KFABRIC_LINK_NAME_MAX];
	char	netdev[KFABRIC_LINK_NAME_MAX];
	__u32	state;
	__u32	mtu;
	struct kfabric_sockaddr ipv4;
	struct kfabric_sockaddr ipv6;
	__u32	domains;
	__u32	endpoints;
	__u64	tx_ops;
	__u64	tx_bytes;
	__u64	rx_ops;
	__u64	rx_bytes;
};

/**
 * struct kfabric_info - one entry of KFABRIC_IOC_GETINFO, and its hints
 * @caps: capabilities, KFI_MSG, ...
 * @mode: what the program must do: 0
 * @addr_format: KFI_SOCKADDR_IN, KFI_SOCKADDR_IN6
 * @ep_type: KFI_EP_*
 * @src_addr: address of this side
 * @dest_addr: address of the peer
 * @tx_caps: capabilities of the transmit side
 * @tx_op_flags: default flags of transmits
 * @tx_msg_order: orders of messages that the transmit side keeps, KFI_ORDER_*
 * @tx_comp_order: orders of its completions
 * @tx_inject_size: bytes that KFI_INJECT can carry
 * @tx_size: transmits that can be outstanding
 * @tx_iov_limit: elements of an iov list of a transmit
 * @tx_rma_iov_limit: pieces of remote memory of one operation
 * @rx_caps: capabilities of the receive side
 * @rx_op_flags: default flags of receives
 * @rx_msg_order: orders of messages that the receive side keeps
 * @rx_comp_order: orders of its completions
 * @rx_total_buffered_recv: bytes of unexpected messages that are kept; one
 *	peer, or another user of this host, gets four fifths of it (IPv6: two
 *	thirds)
 * @rx_size: receives that can be posted
 * @rx_iov_limit: elements of an iov list of a receive
 * @protocol: KFI_PROTO_*
 * @protocol_version: its version
 * @max_msg_size: bytes of a message or an RMA operation
 * @mem_tag_format: fields of the tag, as bits of alternating values
 * @threading: KFI_THREAD_*: which calls may overlap
 * @control_progress: KFI_PROGRESS_*: who makes connections and events progress
 * @data_progress: KFI_PROGRESS_*: who makes data transfers progress
 * @resource_mgmt: KFI_RM_*: whether queues are kept from overrunning
 * @av_type: KFI_AV_*: the best type of AV
 * @mr_mode: KFI_MR_*: what registered memory requires
 * @mr_key_size: bytes of a key
 * @cq_data_size: bytes of remote CQ data
 * @cq_cnt: CQs that can be open
 * @ep_cnt: endpoints that can be open
 * @cntr_cnt: counters that can be open
 * @mr_cnt: memory regions that can be open
 * @mr_iov_limit: elements of a region's list of memory
 * @domain_name: the link
 * @fabric_name: the fabric
 * @prov_name: the provider
 * @prov_version: version of the provider, as KFI_VERSION(major, minor)
 * @api_version: version of the API, as KFI_VERSION(major, minor)
 * @auth_key_size: bytes of an authorization key: 0 without one, otherwise
 *	KFABRIC_AUTH_KEY_SIZE, and only KFI_EP_RDM has keys
 * @auth_key: the key, 0 without one; see struct kfabric_ep_open
 *
 * The members of struct kfi_info and its attributes in one structure.  In
 * hints, a zero (or an empty name) leaves the choice to the provider.  The first
 * version of the structure ends with @api_version.
 */
struct kfabric_info {
	__u64	caps;
	__u64	mode;
	__u32	addr_format;
	__u32	ep_type;
	struct kfabric_sockaddr src_addr;
	struct kfabric_sockaddr dest_addr;

	__u64	tx_caps;
	__u64	tx_op_flags;
	__u64	tx_msg_order;
	__u64	tx_comp_order;
	__u64	tx_inject_size;
	__u64	tx_size;
	__u64	tx_iov_limit;
	__u64	tx_rma_iov_limit;

	__u64	rx_caps;
	__u64	rx_op_flags;
	__u64	rx_msg_order;
	__u64	rx_comp_order;
	__u64	rx_total_buffered_recv;
	__u64	rx_size;
	__u64	rx_iov_limit;

	__u32	protocol;
	__u32	protocol_version;
	__u64	max_msg_size;
	__u64	mem_tag_format;

	__u32	threading;
	__u32	control_progress;
	__u32	data_progress;
	__u32	resource_mgmt;
	__u32	av_type;
	__u32	mr_mode;
	__u64	mr_key_size;
	__u64	cq_data_size;
	__u64	cq_cnt;
	__u64	ep_cnt;
	__u64	cntr_cnt;
	__u64	mr_cnt;
	__u64	mr_iov_limit;

	char	domain_name[KFABRIC_NAME_MAX];
	char	fabric_name[KFABRIC_NAME_MAX];
	char	prov_name[KFABRIC_NAME_MAX];
	__u32	prov_version;
	__u32	api_version;

	__u32	auth_key_size;
	__u8	auth_key[KFABRIC_AUTH_KEY_SIZE];
};

/**
 * struct kfabric_getinfo - the available endpoints, as kfi_getinfo()
 * @size: sizeof(struct kfabric_getinfo)
 * @version: API version asked for, KFI_VERSION(1, 7) or older; 0 is any
 * @flags: KFI_SOURCE (@node and @service are the caller's own), or 0
 * @hints: pointer to a struct kfabric_info, or 0
 * @infos: pointer to an array of struct kfabric_info
 * @count: in: room in @infos; out: number of entries (may be more than fit)
 * @info_size: bytes of a struct kfabric_info, of the hints and of each entry, as
 *	the caller knows it; 0: those of its first version
 * @node: numeric address, with KFI_SOURCE also the name of a link,
 *	NUL-terminated; empty: not given
 * @service: port number, NUL-terminated; empty: not given
 *
 * An IPv4 address may be one hexadecimal number (0x7f000001), as inet_aton(3)
 * reads it.
 *
 * Errors: -KFI_ENODATA nothing matches the hints; -ENOSYS @version is newer
 * than 1.7; -EINVAL @service, or without KFI_SOURCE @node, cannot be read as a
 * number; @info_size is less than that of the first version; hints have bytes in
 * auth_key without auth_key_size; -E2BIG hints, as for @size; @info_size above
 * the size of a page.
 */
struct kfabric_getinfo {
	__u32	size;
	__u32	version;
	__u64	flags;
	__u64	hints;
	__u64	infos;
	__u32	count;
	__u32	info_size;
	char	node[KFABRIC_NAME_MAX];
	char	service[KFABRIC_NAME_MAX];
};

/* ---- All objects -------------------------------------------------------- */

/**
 * struct kfabric_close - close an object
 * @size: sizeof(struct kfabric_close)
 * @handle: the object
 *
 * An endpoint's posted receives are dropped without completions.  The events
 * and errors of an endpoint, a passive one or a region that were not read leave
 * its EQ; those of an AV stay (fi_av(3)).  The call waits until peers no longer
 * read or write memory through the object.  For a transmit context it first
 * waits until no task posts operations that a counter started.  A peer that is
 * copying may take long, if its process is not scheduled; only a signal that
 * kills the caller ends the wait.  When the file goes, nothing is waited for:
 * such a copy ends later, in pages that stay pinned and charged so long.
 *
 * Errors: -EBUSY something that still exists was made from it or is bound to
 * it, somebody waits on it, or it is a transmit context with operations that
 * have not completed; nothing has changed then.  -EINTR the caller is being
 * killed: a transmit context whose operations were still being posted is
 * unchanged; otherwise the object can only be closed once more, by another
 * process that has the file.
 */
struct kfabric_close {
	__u32	size;
	__u32	handle;
};

/**
 * struct kfabric_getwait - the wait object as a file descriptor (KFI_GETWAIT)
 * @size: sizeof(struct kfabric_getwait)
 * @handle: a wait set, or a counter, CQ or EQ whose wait object is not
 *	KFI_WAIT_NONE; with KFI_WAIT_SET the descriptor is the wait set's
 * @flags: 0
 * @fd: out: the descriptor, close-on-exec
 *
 * It becomes readable (POLLIN) for poll, select, epoll and io_uring:
 *   CQ, EQ    while an entry, an event or an error is to be read;
 *   wait set  while a signal of a member is pending; read(2) of 8 bytes or more
 *             takes it and gives a __u64 1, and then all members are looked at;
 *   counter   once the value has reached the armed threshold or the error
 *             value has changed since; read(2) gives struct kfabric_cntr_values
 *             and arms for the next change of either; write(2) of a __u64 arms
 *             for that threshold.  A new descriptor is armed for the next
 *             change.  read(2) waits, or gives -EAGAIN with O_NONBLOCK.
 * The descriptor counts as a use of the object: close gives -EBUSY while it is
 * open.
 *
 * Errors: -EINVAL the object has KFI_WAIT_NONE; -EMFILE, -ENFILE; -ENOSPC a counter
 * has %KFABRIC_MAX_WAITERS waits under way and descriptors.
 */
struct kfabric_getwait {
	__u32	size;
	__u32	handle;
	__u32	flags;
	__s32	fd;
};

/**
 * struct kfabric_opsflag - default flags (KFI_GETOPSFLAG, KFI_SETOPSFLAG)
 * @size: sizeof(struct kfabric_opsflag)
 * @handle: an endpoint or a counter
 * @set: 0: get; 1: set
 * @reserved: 0
 * @flags: endpoint: KFI_TRANSMIT or KFI_RECV (exactly one, it selects the side)
 *	with that side's default flags; counter: operation flags, 0 at first; no
 *	operation of a counter uses them
 *
 * Errors: -EINVAL neither or both sides, or flags that are not operation
 * flags (of that side); -EOPNOTSUPP KFI_DELIVERY_COMPLETE of KFI_EP_DGRAM.
 */
struct kfabric_opsflag {
	__u32	size;
	__u32	handle;
	__u32	set;
	__u32	reserved;
	__u64	flags;
};

/**
 * struct kfabric_bind - bind one object to another
 * @size: sizeof(struct kfabric_bind)
 * @handle: the object that is bound: domain, endpoint, passive endpoint, AV or
 *	MR
 * @to: the object to which it is bound
 * @reserved: 0
 * @flags: see below
 *
 *   domain   to EQ       KFI_REG_MR (asynchronous registration), or 0
 *   AV       to EQ       0
 *   endpoint to AV, EQ   0
 *   passive  to EQ       0
 *   endpoint to CQ       KFI_TRANSMIT, KFI_RECV or both, and
 *                        KFI_SELECTIVE_COMPLETION
 *   endpoint to counter  any of KFI_SEND, KFI_RECV, KFI_READ, KFI_WRITE,
 *                        KFI_REMOTE_READ, KFI_REMOTE_WRITE; 0 is all of them
 *   MR       to counter  KFI_REMOTE_READ, KFI_REMOTE_WRITE or both
 *
 * Errors: -EINVAL a pair or a flag that is not in the table, another domain,
 * a counter or CQ already bound for one of @flags, a second AV or EQ;
 * -KFI_EOPBADSTATE the endpoint is enabled, the passive endpoint listens.
 */
struct kfabric_bind {
	__u32	size;
	__u32	handle;
	__u32	to;
	__u32	reserved;
	__u64	flags;
};

/* ---- Fabric and domain -------------------------------------------------- */

/**
 * struct kfabric_fabric_open - the fabric of the caller's network namespace
 * @size: sizeof(struct kfabric_fabric_open)
 * @handle: out
 * @context: the caller's, returned in events
 */
struct kfabric_fabric_open {
	__u32	size;
	__u32	handle;
	__u64	context;
};

/**
 * struct kfabric_domain_open - open a domain: the objects on one link
 * @size: sizeof(struct kfabric_domain_open)
 * @fabric: fabric handle
 * @link: name of the link
 * @mr_mode: KFI_MR_VIRT_ADDR, KFI_MR_PROV_KEY or both: virtual addresses
 *	instead of offsets, keys by the provider instead of by the caller
 * @handle: out
 * @context: the caller's
 *
 * Errors: -EINVAL unknown mr_mode; -ENODEV no such link, or its interface is
 * gone.
 */
struct kfabric_domain_open {
	__u32	size;
	__u32	fabric;
	char	link[KFABRIC_LINK_NAME_MAX];
	__u32	mr_mode;
	__u32	handle;
	__u64	context;
};

/**
 * struct kfabric_query_atomic - whether endpoints have an atomic (kfi_query_atomic,
 *	kfi_atomicvalid, kfi_fetch_atomicvalid, kfi_compare_atomicvalid)
 * @size: sizeof(struct kfabric_query_atomic)
 * @domain: domain handle
 * @ep_type: enum kfi_ep_type; KFI_EP_UNSPEC: KFI_EP_RDM
 * @opcode: KFABRIC_OP_ATOMIC, KFABRIC_OP_FETCH_ATOMIC or
 *	KFABRIC_OP_COMPARE_ATOMIC
 * @datatype: enum kfi_datatype
 * @op: enum kfi_op
 * @flags: 0
 * @count: out: the most elements of one operation
 * @elem_size: out: bytes of an element
 *
 * The answer depends on the kernel: without floating point in the kernel
 * (CONFIG_ARCH_HAS_KERNEL_FPU_SUPPORT) there are only integers.
 *
 * Errors: -EINVAL unknown type, opcode, datatype, op or flag; -EBADF @domain;
 * -EOPNOTSUPP endpoints of this type do not have the operation.
 */
struct kfabric_query_atomic {
	__u32	size;
	__u32	domain;
	__u32	ep_type;
	__u32	opcode;
	__u32	datatype;
	__u32	op;
	__u64	flags;
	__u64	count;
	__u64	elem_size;
};

/* ---- Event queue -------------------------------------------------------- */

/**
 * struct kfabric_eq_open - open an event queue
 * @size: sizeof(struct kfabric_eq_open)
 * @fabric: fabric handle
 * @entries: events it holds, 0: default; out: as made
 * @wait_obj: enum kfi_wait_obj
 * @wait_set: wait set, with KFI_WAIT_SET; else ignored
 * @handle: out
 * @flags: KFI_WRITE (KFABRIC_IOC_EQ_WRITE is allowed), KFI_AFFINITY (ignored)
 * @context: the caller's
 *
 * Errors: -EINVAL unknown wait_obj, KFI_WAIT_SET without a wait set or with one
 * of another fabric, more than KFABRIC_MAX_EQ entries.
 */
struct kfabric_eq_open {
	__u32	size;
	__u32	fabric;
	__u32	entries;
	__u32	wait_obj;
	__u32	wait_set;
	__u32	handle;
	__u64	flags;
	__u64	context;
};

/**
 * struct kfabric_eq_entry - head of an event that the module makes
 * @handle: the object that the event concerns
 * @reserved: 0
 * @context: context of the object (KFI_MR_COMPLETE) or of the call
 *	(KFI_AV_COMPLETE)
 * @data: KFI_AV_COMPLETE: number of addresses that were inserted
 */
struct kfabric_eq_entry {
	__u32	handle;
	__u32	reserved;
	__u64	context;
	__u64	data;
};

/**
 * struct kfabric_eq_cm_entry - head of an event of a connection
 * @handle: KFI_CONNREQ: the passive endpoint; KFI_CONNECTED, KFI_SHUTDOWN: the
 *	endpoint
 * @connreq: KFI_CONNREQ: number of the request at its passive endpoint, for
 *	KFABRIC_IOC_EP_ACCEPT and KFABRIC_IOC_PEP_REJECT; else 0
 * @context: context of the object
 * @src_addr: address of this end; KFI_CONNREQ: the address that an endpoint
 *	must have to accept
 * @dest_addr: address of the peer
 * @link: name of the link; KFI_CONNREQ: an endpoint must be on it to accept
 *
 * Private data follow: KFABRIC_MAX_CONNECT_DATA bytes with KFI_CONNREQ; with
 * KFI_CONNECTED, KFABRIC_MAX_ACCEPT_DATA bytes at the end that asked and none
 * at the other end.  The messages do not carry the number of bytes that the
 * peer gave: zeros fill up the rest.
 */
struct kfabric_eq_cm_entry {
	__u32	handle;
	__u32	connreq;
	__u64	context;
	struct kfabric_sockaddr src_addr;
	struct kfabric_sockaddr dest_addr;
	char	link[KFABRIC_LINK_NAME_MAX];
};

/**
 * struct kfabric_eq_read - take the next event (kfi_eq_read, kfi_eq_sread)
 * @size: sizeof(struct kfabric_eq_read)
 * @eq: event queue
 * @deadline: 0: do not wait
 * @flags: KFI_PEEK (leave the event), or 0
 * @buf: pointer to where the event's data goes: struct kfabric_eq_entry, struct
 *	kfabric_eq_cm_entry and private data, or what KFABRIC_IOC_EQ_WRITE wrote
 * @len: in: room; out: bytes of the event
 * @event: out: KFI_NOTIFY, KFI_MR_COMPLETE, ...
 *
 * Errors: -EAGAIN no event (@deadline 0); -ETIMEDOUT; -KFI_EAVAIL an error
 * event must be read first; -KFI_ETOOSMALL (@len gives the size needed, the
 * event stays); -KFI_EOVERRUN events were lost (reported once); -EINVAL a wait
 * (@deadline does not poll) on an EQ with KFI_WAIT_NONE or KFI_WAIT_SET;
 * -ENOSPC %KFABRIC_MAX_WAITERS threads sleep in such calls; -EINTR.
 */
struct kfabric_eq_read {
	__u32	size;
	__u32	eq;
	__u64	deadline;
	__u64	flags;
	__u64	buf;
	__u32	len;
	__u32	event;
};

/**
 * struct kfabric_eq_readerr - take the next error event
 * @size: sizeof(struct kfabric_eq_readerr)
 * @eq: event queue
 * @flags: KFI_PEEK, or 0
 * @handle: out: the object
 * @err: out: positive error number.  An endpoint that is not connected:
 *	ECONNREFUSED the peer refused, ETIMEDOUT it did not answer, ECONNRESET
 *	it left before it was ready, ENODEV the interface was removed, EIO the
 *	QP failed. A passive endpoint: ENODEV the network namespace has no link
 *	any more
 * @prov_errno: out: ECONNREFUSED: the reason, as InfiniBand numbers them (28:
 *	the consumer refused, 8: no listener, 3: no room, 10: stale); else 0
 * @reserved: 0
 * @context: out: context of the call that failed
 * @data: out: KFI_AV_COMPLETE: index of the address that failed
 * @err_data: pointer to where private data goes that came with a rejection, or 0
 * @err_data_size: in: room there; out: bytes of private data, of which the
 *	module stored as many as fit; at most KFABRIC_MAX_REJECT_DATA
 * @reserved2: 0
 *
 * Errors: -EAGAIN there is none.
 */
struct kfabric_eq_readerr {
	__u32	size;
	__u32	eq;
	__u64	flags;
	__u32	handle;
	__u32	err;
	__u32	prov_errno;
	__u32	reserved;
	__u64	context;
	__u64	data;
	__u64	err_data;
	__u32	err_data_size;
	__u32	reserved2;
};

/**
 * struct kfabric_eq_write - put an event into an EQ
 * @size: sizeof(struct kfabric_eq_write)
 * @eq: event queue, opened with KFI_WRITE
 * @flags: 0
 * @buf: pointer to the data of the event
 * @len: its bytes, at most KFABRIC_MAX_EVENT
 * @event: event number
 *
 * Errors: -EINVAL not opened with KFI_WRITE, @len too long; -EAGAIN the queue
 * is full.
 */
struct kfabric_eq_write {
	__u32	size;
	__u32	eq;
	__u64	flags;
	__u64	buf;
	__u32	len;
	__u32	event;
};

/* ---- Address vector ----------------------------------------------------- */

/**
 * struct kfabric_av_open - open an address vector
 * @size: sizeof(struct kfabric_av_open)
 * @domain: domain handle
 * @type: enum kfi_av_type; out: as chosen.  TABLE gives 0, 1, 2, ...; MAP gives
 *	values that the module chooses
 * @count: expected number of addresses, 0: default; the AV grows up to
 *	KFABRIC_MAX_AV
 * @flags: KFI_EVENT (an insertion reports to the EQ to which the AV is bound)
 * @handle: out
 * @rx_ctx_bits: upper bits of a kfi_addr_t that select a receive context of a
 *	scalable endpoint, at most 16.  Context i of a peer is at the kfi_addr_t
 *	of the peer | i << (64 - @rx_ctx_bits).  Transmits take such an address;
 *	receives and KFABRIC_IOC_AV_LOOKUP ignore i, KFABRIC_IOC_AV_REMOVE does not
 *	know the address
 * @context: the caller's
 *
 * Errors: -EINVAL unknown type, @count above KFABRIC_MAX_AV, @rx_ctx_bits.
 */
struct kfabric_av_open {
	__u32	size;
	__u32	domain;
	__u32	type;
	__u32	count;
	__u64	flags;
	__u32	handle;
	__u32	rx_ctx_bits;
	__u64	context;
};

/**
 * struct kfabric_av_insert - insert addresses
 * @size: sizeof(struct kfabric_av_insert)
 * @av: address vector
 * @flags: KFI_SYNC_ERR (with @errors), KFI_MORE (ignored)
 * @addrs: pointer to @count struct kfabric_sockaddr
 * @fi_addrs: pointer to @count __u64 for the kfi_addr_t; KFI_ADDR_NOTAVAIL is
 *	stored for an address that could not be inserted; 0: not wanted
 *	(TABLE only)
 * @errors: with KFI_SYNC_ERR: pointer to @count __s32, 0 or a positive error
 *	number each; else 0
 * @context: context of the events, with KFI_EVENT
 * @count: number of addresses
 * @inserted: out: number of addresses inserted; 0 with KFI_EVENT, where the
 *	event has the number
 *
 * Errors: -EINVAL @count 0 or above KFABRIC_MAX_AV, or a family that is not
 * IPv4 or IPv6 where no address could be inserted; -KFI_ENOEQ opened with
 * KFI_EVENT, not bound to an EQ; -ENOSPC the AV is full where no address could
 * be inserted.
 */
struct kfabric_av_insert {
	__u32	size;
	__u32	av;
	__u64	flags;
	__u64	addrs;
	__u64	fi_addrs;
	__u64	errors;
	__u64	context;
	__u32	count;
	__u32	inserted;
};

/**
 * struct kfabric_av_insertsvc - insert one address given as text
 * @size: sizeof(struct kfabric_av_insertsvc)
 * @av: address vector
 * @flags: as KFABRIC_IOC_AV_INSERT
 * @context: context of the event, with KFI_EVENT
 * @fi_addr: out: kfi_addr_t
 * @node: numeric IPv4 or IPv6 address, as KFABRIC_IOC_GETINFO reads it,
 *	NUL-terminated
 * @service: port number, decimal, NUL-terminated
 *
 * Errors: -EINVAL text that is not an address or a port; -KFI_ENOEQ; -ENOSPC.
 */
struct kfabric_av_insertsvc {
	__u32	size;
	__u32	av;
	__u64	flags;
	__u64	context;
	__u64	fi_addr;
	char	node[KFABRIC_NAME_MAX];
	char	service[KFABRIC_NAME_MAX];
};

/**
 * struct kfabric_av_remove - remove addresses
 * @size: sizeof(struct kfabric_av_remove)
 * @av: address vector
 * @flags: 0
 * @fi_addrs: pointer to @count __u64
 * @count: how many
 * @reserved: 0
 *
 * All or nothing.
 *
 * Errors: -EINVAL @count 0 or above KFABRIC_MAX_AV; -ENOENT one of them is not
 * in the AV, or stands there twice.
 */
struct kfabric_av_remove {
	__u32	size;
	__u32	av;
	__u64	flags;
	__u64	fi_addrs;
	__u32	count;
	__u32	reserved;
};

/**
 * struct kfabric_av_lookup - the socket address of a kfi_addr_t
 * @size: sizeof(struct kfabric_av_lookup)
 * @av: address vector
 * @fi_addr: kfi_addr_t
 * @addr: out
 *
 * Errors: -ENOENT not in the AV.
 */
struct kfabric_av_lookup {
	__u32	size;
	__u32	av;
	__u64	fi_addr;
	struct kfabric_sockaddr addr;
};

/**
 * struct kfabric_av_straddr - a socket address as text
 * @size: sizeof(struct kfabric_av_straddr)
 * @av: address vector
 * @addr: the address
 * @text: out: "fi_sockaddr_in://10.0.0.1:7471" and the like, NUL-terminated
 *
 * Errors: -EINVAL a family that is not IPv4 or IPv6.
 */
struct kfabric_av_straddr {
	__u32	size;
	__u32	av;
	struct kfabric_sockaddr addr;
	char	text[KFABRIC_STRADDR_MAX];
};

/* ---- Memory region ------------------------------------------------------ */

/**
 * struct kfabric_mr_reg - register memory
 * @size: sizeof(struct kfabric_mr_reg)
 * @domain: domain handle
 * @iov: pointer to @iov_count struct kfabric_iov; the region is their bytes in
 *	a row
 * @iov_count: 1..KFABRIC_MAX_IOV
 * @handle: out
 * @access: one or more of KFI_SEND, KFI_RECV, KFI_READ, KFI_WRITE,
 *	KFI_REMOTE_READ, KFI_REMOTE_WRITE
 * @offset: 0 (reserved by kfi_mr)
 * @requested_key: the key, unless the domain has KFI_MR_PROV_KEY
 * @flags: KFI_RMA_EVENT (counters may be bound; ignored, they always may)
 * @context: the caller's
 * @key: out: the key
 * @iova: out: address of the first byte for peers: that of the first element
 *	with KFI_MR_VIRT_ADDR, else 0
 *
 * The pages are pinned and charged to RLIMIT_MEMLOCK until the region closes.
 * Access that allows a write to the memory (KFI_RECV, KFI_READ,
 * KFI_REMOTE_WRITE) requires that the caller may write to it.
 *
 * Errors: -EINVAL @access or @iov_count 0, an unknown access bit, @offset,
 * length 0, longer than KFABRIC_MAX_MSG_SIZE or wrapping; -KFI_ENOKEY the key
 * is in use; -EKEYREJECTED the key does not fit in 4 bytes (keys are RKEYs on
 * the wire); -ENOMEM also: over RLIMIT_MEMLOCK; -EFAULT memory that is not
 * there or not writable.
 */
struct kfabric_mr_reg {
	__u32	size;
	__u32	domain;
	__u64	iov;
	__u32	iov_count;
	__u32	handle;
	__u64	access;
	__u64	offset;
	__u64	requested_key;
	__u64	flags;
	__u64	context;
	__u64	key;
	__u64	iova;
};

/* ---- Completion queue --------------------------------------------------- */

/**
 * struct kfabric_cq_open - open a completion queue
 * @size: sizeof(struct kfabric_cq_open)
 * @domain: domain handle
 * @entries: how many completions it holds, 0: default; rounded up to a power
 *	of two; out: as made
 * @format: enum kfi_cq_format; out: as chosen for KFI_CQ_FORMAT_UNSPEC
 * @wait_obj: enum kfi_wait_obj
 * @wait_cond: enum kfi_cq_wait_cond; ignored with KFI_WAIT_NONE
 * @wait_set: wait set, with KFI_WAIT_SET; else ignored
 * @signaling_vector: CPU, with KFI_AFFINITY: a hint, ignored
 * @flags: KFI_AFFINITY, or 0
 * @context: the caller's
 * @handle: out
 * @reserved: 0
 * @ring_offset: out: offset for mmap(2) of the ring
 * @ring_size: out: bytes to map
 *
 * Errors: -EINVAL unknown format, wait_obj or wait_cond, KFI_WAIT_SET without a
 * wait set or with one of another fabric, more than KFABRIC_MAX_CQ entries.
 */
struct kfabric_cq_open {
	__u32	size;
	__u32	domain;
	__u32	entries;
	__u32	format;
	__u32	wait_obj;
	__u32	wait_cond;
	__u32	wait_set;
	__s32	signaling_vector;
	__u64	flags;
	__u64	context;
	__u32	handle;
	__u32	reserved;
	__u64	ring_offset;
	__u64	ring_size;
};

/**
 * struct kfabric_cq_entry - one completion, as it stands in the ring
 * @op_context: context of the operation
 * @flags: completion flags
 * @len: receive: bytes placed; else 0
 * @buf: multi-receive: where they were placed
 * @data: remote CQ data, with KFI_REMOTE_CQ_DATA
 * @tag: tagged receive: the message's tag
 * @src_addr: receive: kfi_addr_t of the sender, KFI_ADDR_NOTAVAIL if unknown:
 *	the sender is not in the AV, or the endpoint does not have KFI_SOURCE
 * @reserved: 0
 *
 * KFABRIC_IOC_CQ_READ copies the first 8 (CONTEXT), 24 (MSG), 40 (DATA) or 48
 * bytes (TAGGED) of each entry, as the format defines; the ring has all fields.
 */
struct kfabric_cq_entry {
	__u64	op_context;
	__u64	flags;
	__u64	len;
	__u64	buf;
	__u64	data;
	__u64	tag;
	__u64	src_addr;
	__u64	reserved;
};

/**
 * struct kfabric_cq_ring - head of a mapped CQ
 * @tail: completions ever written; written by the module, with release
 * @errors: error entries waiting for KFABRIC_IOC_CQ_READERR
 * @overruns: completions that were lost for want of room
 * @entries: size of the ring, a power of two
 * @entry_offset: where the array of struct kfabric_cq_entry begins, in bytes
 *	from the start of the mapping
 * @pad: room, so that @head has a cache line of its own
 * @head: completions ever taken; written by the program, with release
 * @overruns_told: number of @overruns that the program has seen; written by the
 *	program, and by the module when KFABRIC_IOC_CQ_READ gives -KFI_EOVERRUN
 * @pad2: room
 *
 * Entry n is at index n & (@entries - 1).  A program reads @tail with acquire
 * and the entries @head .. @tail, and then stores the new @head.  If @errors,
 * read after @tail, is not 0, it should take the error entries first.  If there
 * is nothing else and @overruns differs from @overruns_told, completions were
 * lost: the program stores that number of @overruns in @overruns_told, and
 * until the next loss the CQ is not ready for that reason any more and does not
 * report it.
 *
 * KFABRIC_IOC_CQ_READ takes from the same ring and advances @head too, so a
 * program reads one way at a time.  Of this memory the module believes @head and
 * @overruns_told only: @head between the last head it saw and the tail (any other
 * value counts as the last head seen, and reading by call then gives -EIO),
 * @overruns_told between the last number it saw and @overruns (any other value
 * changes nothing).
 */
struct kfabric_cq_ring {
	__u64	tail;
	__u64	errors;
	__u64	overruns;
	__u32	entries;
	__u32	entry_offset;
	__u64	pad[12];
	__u64	head;
	__u64	overruns_told;
	__u64	pad2[14];
};

/**
 * struct kfabric_cq_read - take completions (kfi_cq_read .. kfi_cq_sreadfrom)
 * @size: sizeof(struct kfabric_cq_read)
 * @cq: completion queue
 * @buf: pointer to an array for @count entries of the CQ's format
 * @src_addrs: array of @count __u64 for the senders' kfi_addr_t, as @src_addr
 *	of struct kfabric_cq_entry, or 0
 * @count: in: room, 0: take nothing, only wait; out: entries taken
 * @cond: KFI_CQ_COND_THRESHOLD: entries to wait for; else ignored
 * @deadline: 0: do not wait
 * @began: 0.  If a signal interrupts the wait, the module stores a number here,
 *	with which the restarted call (SA_RESTART) continues: it does not miss a
 *	KFABRIC_IOC_CQ_SIGNAL during the signal's handler.  It is 0 again when
 *	the wait has ended.  A caller that does not have this field begins a new
 *	wait with each restart.
 *
 * Errors: -EAGAIN nothing there, also at the @deadline and after
 * KFABRIC_IOC_CQ_SIGNAL; -KFI_EAVAIL an error entry must be read first;
 * -KFI_EOVERRUN completions without a posted operation were lost (reported
 * once); -EINVAL a wait (@deadline does not poll) on a CQ with KFI_WAIT_NONE or
 * KFI_WAIT_SET; -ENOSPC %KFABRIC_MAX_WAITERS threads sleep in such calls; -EIO
 * the program stored an invalid @head; -EINTR.
 */
struct kfabric_cq_read {
	__u32	size;
	__u32	cq;
	__u64	buf;
	__u64	src_addrs;
	__u32	count;
	__u32	cond;
	__u64	deadline;
	__u64	began;
};

/**
 * struct kfabric_cq_readerr - take an error entry
 * @size: sizeof(struct kfabric_cq_readerr)
 * @cq: completion queue
 * @flags: 0
 * @op_context: out: as the rest, see struct kfi_cq_err_entry
 * @comp_flags: out: completion flags of the operation
 * @len: out: bytes placed
 * @buf: out: where, for multi-receive
 * @data: out: remote CQ data
 * @tag: out: tag
 * @olen: out: bytes of the message that did not fit
 * @src_addr: out: kfi_addr_t of the peer, or KFI_ADDR_NOTAVAIL
 * @err: out: positive error number
 * @prov_errno: out: the module's own number, see KFABRIC_IOC_CQ_STRERROR
 *
 * Errors: -EAGAIN there is none.
 */
struct kfabric_cq_readerr {
	__u32	size;
	__u32	cq;
	__u64	flags;
	__u64	op_context;
	__u64	comp_flags;
	__u64	len;
	__u64	buf;
	__u64	data;
	__u64	tag;
	__u64	olen;
	__u64	src_addr;
	__u32	err;
	__u32	prov_errno;
};

/**
 * struct kfabric_cq_signal - release the waiters of KFABRIC_IOC_CQ_READ
 * @size: sizeof(struct kfabric_cq_signal)
 * @cq: completion queue
 *
 * Every thread that is inside KFABRIC_IOC_CQ_READ with a @deadline, asleep or
 * about to sleep, returns with the completions that are there, or -EAGAIN.  If
 * there is no such thread, the signal is kept, one at most, for the next thread
 * that would sleep.
 *
 * Errors: -EINVAL the CQ has KFI_WAIT_NONE.
 */
struct kfabric_cq_signal {
	__u32	size;
	__u32	cq;
};

/**
 * struct kfabric_cq_strerror - the meaning of a prov_errno
 * @size: sizeof(struct kfabric_cq_strerror)
 * @cq: completion queue
 * @prov_errno: the number
 * @reserved: 0
 * @text: out: NUL-terminated
 */
struct kfabric_cq_strerror {
	__u32	size;
	__u32	cq;
	__u32	prov_errno;
	__u32	reserved;
	char	text[KFABRIC_NAME_MAX];
};

/* ---- Counter ------------------------------------------------------------ */

/**
 * struct kfabric_cntr_values - the two values of a counter
 * @value: successes
 * @err: errors
 *
 * Also the beginning of the page that can be mapped, read-only; each of the
 * two is always whole.
 */
struct kfabric_cntr_values {
	__u64	value;
	__u64	err;
};

/**
 * struct kfabric_cntr_open - open a counter
 * @size: sizeof(struct kfabric_cntr_open)
 * @domain: domain handle
 * @events: KFI_CNTR_EVENTS_COMP
 * @wait_obj: enum kfi_wait_obj
 * @wait_set: wait set, with KFI_WAIT_SET; else ignored
 * @handle: out
 * @flags: 0
 * @max_value: largest value; the next one is 0.  0: 2^64 - 1
 * @context: the caller's
 * @page_offset: out: offset for mmap(2) of one page, struct
 *	kfabric_cntr_values, PROT_READ
 *
 * Errors: -EINVAL unknown events or wait_obj, KFI_WAIT_SET without a wait set or
 * with one of another fabric.
 */
struct kfabric_cntr_open {
	__u32	size;
	__u32	domain;
	__u32	events;
	__u32	wait_obj;
	__u32	wait_set;
	__u32	handle;
	__u64	flags;
	__u64	max_value;
	__u64	context;
	__u64	page_offset;
};

/**
 * struct kfabric_cntr_read - read both values
 * @size: sizeof(struct kfabric_cntr_read)
 * @cntr: counter
 * @value: out
 * @err: out
 */
struct kfabric_cntr_read {
	__u32	size;
	__u32	cntr;
	__u64	value;
	__u64	err;
};

/* Operations of KFABRIC_IOC_CNTR_MODIFY. */
enum {
	KFABRIC_CNTR_ADD	= 0,
	KFABRIC_CNTR_SET	= 1,
	KFABRIC_CNTR_ADDERR	= 2,
	KFABRIC_CNTR_SETERR	= 3,
};

/**
 * struct kfabric_cntr_modify - kfi_cntr_add, _set, _adderr, _seterr
 * @size: sizeof(struct kfabric_cntr_modify)
 * @cntr: counter
 * @what: KFABRIC_CNTR_*
 * @reserved: 0
 * @value: to add or to set
 *
 * Errors: -EINVAL unknown @what, a value to set above the counter's max_value.
 */
struct kfabric_cntr_modify {
	__u32	size;
	__u32	cntr;
	__u32	what;
	__u32	reserved;
	__u64	value;
};

/**
 * struct kfabric_cntr_wait - wait until a counter reaches a threshold
 * @size: sizeof(struct kfabric_cntr_wait)
 * @cntr: counter
 * @threshold: the value to reach
 * @deadline: see the top
 * @value: out, also with -KFI_EAVAIL and -ETIMEDOUT
 * @err: out, as @value
 * @began: 0.  If a signal interrupts the wait, the module stores a number here,
 *	with which the restarted call (SA_RESTART) continues: it does not miss a
 *	change of the error value during the signal's handler.  It is 0 again
 *	when the wait has ended.  A caller that does not have this field begins
 *	a new wait with each restart.
 *
 * Errors: -KFI_EAVAIL the error value changed since the call began (adding 0 to
 * it or setting it to its present value is no change); -ETIMEDOUT; -EINVAL a
 * wait (@deadline does not poll) on a counter with KFI_WAIT_NONE; -ENOSPC the
 * threshold is not reached, and %KFABRIC_MAX_WAITERS waits are under way and
 * descriptors open; -EINTR.
 */
struct kfabric_cntr_wait {
	__u32	size;
	__u32	cntr;
	__u64	threshold;
	__u64	deadline;
	__u64	value;
	__u64	err;
	__u64	began;
};

/* ---- Wait set and poll set ---------------------------------------------- */

/**
 * struct kfabric_wait_open - open a wait set
 * @size: sizeof(struct kfabric_wait_open)
 * @fabric: fabric handle
 * @wait_obj: KFI_WAIT_UNSPEC or KFI_WAIT_QUEUE
 * @handle: out
 * @flags: 0
 *
 * Errors: -EINVAL another wait_obj.
 */
struct kfabric_wait_open {
	__u32	size;
	__u32	fabric;
	__u32	wait_obj;
	__u32	handle;
	__u64	flags;
};

/**
 * struct kfabric_wait - wait until a member of a wait set is signalled
 * @size: sizeof(struct kfabric_wait)
 * @wait_set: wait set
 * @deadline: see the top
 *
 * A CQ or EQ signals when an entry, event or error arrives; a counter, when
 * either value changes.  One waiter takes a signal.
 *
 * Errors: -ETIMEDOUT; -EINTR.
 */
struct kfabric_wait {
	__u32	size;
	__u32	wait_set;
	__u64	deadline;
};

/**
 * struct kfabric_poll_open - open a poll set
 * @size: sizeof(struct kfabric_poll_open)
 * @domain: domain handle
 * @flags: 0
 * @handle: out
 * @reserved: 0
 *
 * KFABRIC_IOC_CLOSE of a poll set removes its members.
 */
struct kfabric_poll_open {
	__u32	size;
	__u32	domain;
	__u64	flags;
	__u32	handle;
	__u32	reserved;
};

/**
 * struct kfabric_poll_change - add to a poll set or take from it
 * @size: sizeof(struct kfabric_poll_change)
 * @poll: poll set
 * @handle: CQ or counter of the same domain
 * @remove: 0: add; 1: remove
 * @flags: 0
 *
 * Errors: -EINVAL another class or domain, @remove above 1; -EEXIST it is
 * there; -ENOENT it is not; -ENOSPC 1024 members.
 */
struct kfabric_poll_change {
	__u32	size;
	__u32	poll;
	__u32	handle;
	__u32	remove;
	__u64	flags;
};

/**
 * struct kfabric_poll - the members of a poll set that are ready
 * @size: sizeof(struct kfabric_poll)
 * @poll: poll set
 * @contexts: pointer to @count __u64: the contexts of the ready members
 * @count: in: room; out: number of contexts stored
 * @reserved: 0
 *
 * A CQ is ready with an entry or error queued, a counter with values other than
 * at the last poll.
 *
 * Errors: -EINVAL @count 0.
 */
struct kfabric_poll {
	__u32	size;
	__u32	poll;
	__u64	contexts;
	__u32	count;
	__u32	reserved;
};

/* ---- Endpoint ----------------------------------------------------------- */

/* Sides of an endpoint that use a shared context (KFI_SHARED_CONTEXT). */
#define KFABRIC_SHARED_TX	(1U << 0)
#define KFABRIC_SHARED_RX	(1U << 1)

/**
 * struct kfabric_ep_open - open an endpoint
 * @size: sizeof(struct kfabric_ep_open)
 * @domain: domain handle
 * @type: enum kfi_ep_type; KFI_EP_UNSPEC is KFI_EP_RDM
 * @handle: out
 * @caps: capabilities wanted, 0: those of KFI_MSG, KFI_TAGGED and KFI_RMA that
 *	the type has, both ways.  Kinds without a direction get both.
 *	KFI_ATOMIC (KFI_EP_MSG, KFI_EP_RDM), KFI_SOURCE, KFI_DIRECTED_RECV,
 *	KFI_MULTI_RECV, KFI_TRIGGER, KFI_TAGGED_RMA (KFI_EP_RDM) as in kfi_getinfo;
 *	KFI_NAMED_RX_CTX has no effect here
 * @tx_op_flags: default flags of transmits: KFI_COMPLETION, KFI_INJECT,
 *	KFI_INJECT_COMPLETE, KFI_TRANSMIT_COMPLETE, KFI_DELIVERY_COMPLETE,
 *	KFI_TRIGGER
 * @rx_op_flags: default flags of receives: KFI_COMPLETION, KFI_MULTI_RECV,
 *	KFI_TRIGGER
 * @tx_size: transmits that can be under way, 0: default
 * @rx_size: receives that can be posted, 0: default
 * @total_buffered_recv: bytes of unexpected messages kept here, 0: default
 *	(KFI_EP_RDM; other types keep none, and accept 0 only); one peer, or
 *	another user of this host, gets four fifths of it (IPv6: two thirds)
 * @src_addr: address and port to have; family 0: any address of the link;
 *	port 0: the module chooses one when the endpoint is enabled
 * @context: the caller's
 * @shared: KFABRIC_SHARED_*: sides that use a shared context, which is bound
 *	before the endpoint is enabled
 * @auth_key: authorization key (KFI_EP_RDM), 0: none; peers must have the same
 *
 * KFI_EP_MSG is one RC QP, connected to one peer.  KFI_EP_DGRAM is one UD QP: a
 * message is at most a path MTU, and may be lost.  A received message has no
 * GRH in front of it (no KFI_MSG_PREFIX); KFI_SOURCE gives its source.  Remote
 * CQ data of both have 32 bits.
 *
 * KFI_EP_RDM endpoints communicate with those that have the same @auth_key, of
 * programs and of kernel modules.  Operations to others fail with ENOTCONN: the
 * post on one host, and the completion between hosts.  An endpoint without a key
 * has the key of zeros.  A key separates users of a network who trust each other.
 * It is no secret: it is sent in plain text.
 *
 * Errors: -EINVAL unknown type, flags or capabilities, sizes above
 * KFABRIC_MAX_QUEUE or KFABRIC_MAX_BUFFERED; -EOPNOTSUPP a capability, a default
 * flag, @total_buffered_recv or @auth_key that the type does not have;
 * -EADDRNOTAVAIL an address that the link does not have.
 */
struct kfabric_ep_open {
	__u32	size;
	__u32	domain;
	__u32	type;
	__u32	handle;
	__u64	caps;
	__u64	tx_op_flags;
	__u64	rx_op_flags;
	__u32	tx_size;
	__u32	rx_size;
	__u64	total_buffered_recv;
	struct kfabric_sockaddr src_addr;
	__u64	context;
	__u32	shared;
	__u8	auth_key[KFABRIC_AUTH_KEY_SIZE];
};

/**
 * struct kfabric_ep_enable - enable an endpoint
 * @size: sizeof(struct kfabric_ep_enable)
 * @ep: endpoint
 *
 * A KFI_EP_MSG endpoint has its QP from now on, and receives can be posted.
 * Transmits can be posted when it is connected.
 *
 * Each direction that its capabilities have needs something that reports its
 * operations: a CQ, or a counter (KFI_SEND, KFI_READ or KFI_WRITE for transmits,
 * KFI_RECV for receives).  Without a CQ an operation that fails changes the error
 * value of its counter and nothing else, and the data of a peer's write are
 * dropped.
 *
 * Errors: -KFI_ENOCQ a direction that its capabilities have has neither;
 * -KFI_ENOAV no AV (KFI_EP_MSG needs none); -EADDRINUSE the port is taken (of
 * KFI_EP_DGRAM: by any such endpoint of the network namespace); -EADDRNOTAVAIL
 * the link has no address, or not the one wanted; -ENODEV its interface is
 * gone; -EBUSY the network namespace has reached its limit of QPs;
 * -KFI_EOPBADSTATE enabled already.
 */
struct kfabric_ep_enable {
	__u32	size;
	__u32	ep;
};

/**
 * struct kfabric_ep_name - get or set the address (kfi_getname, kfi_setname)
 * @size: sizeof(struct kfabric_ep_name)
 * @ep: endpoint, or passive endpoint
 * @set: 0: get; 1: set
 * @reserved: 0
 * @addr: the address
 *
 * Errors: -EINVAL @set above 1, family; -EADDRNOTAVAIL not the link's (set);
 * -KFI_EOPBADSTATE set after enable, get before; passive: set after listen.
 */
struct kfabric_ep_name {
	__u32	size;
	__u32	ep;
	__u32	set;
	__u32	reserved;
	struct kfabric_sockaddr addr;
};

/**
 * struct kfabric_ep_cancel - cancel one operation by its context
 * @size: sizeof(struct kfabric_ep_cancel)
 * @ep: endpoint
 * @context: context of the operation; 0 names those without one
 *
 * The oldest receive, else the oldest waiting transmit, with that context
 * completes with the error ECANCELED; else an operation with KFI_TRIGGER that
 * waits for its counter.
 *
 * As with fi_cancel(3) there is no guarantee that an operation is cancelled.  One
 * whose counter has reached its threshold, and that is about to start, is not:
 * the call fails with -ENOENT, and the operation starts afterwards.  Deferred
 * work is not found before it has started (KFABRIC_IOC_CANCEL_WORK).  A peer on
 * another host is asked to give a message back.  If it does not answer, all
 * operations to it fail with ETIMEDOUT, mostly after 60 s.  A transmit that has
 * begun and cannot be cancelled (-ENOENT) ends in a limited time after the call.
 *
 * Errors: -ENOENT there is no such operation that can still be cancelled;
 * -KFI_EOPBADSTATE not enabled.
 */
struct kfabric_ep_cancel {
	__u32	size;
	__u32	ep;
	__u64	context;
};

/**
 * struct kfabric_ep_opt - get or set an option (kfi_getopt, kfi_setopt)
 * @size: sizeof(struct kfabric_ep_opt)
 * @ep: endpoint
 * @set: 0: get; 1: set
 * @level: KFI_OPT_ENDPOINT or KFABRIC_OPT_QP
 * @name: KFI_OPT_MIN_MULTI_RECV: a multi-receive buffer with less room than
 *	this many bytes is released; KFI_OPT_CM_DATA_SIZE: get only;
 *	KFABRIC_OPT_QKEY, ...: of the QP
 * @reserved: 0
 * @value: the value
 *
 * A datagram endpoint sends with its own Q key, and receives packets with the
 * same Q key only; the default is the RDMA CM's, 0x01234567.  The default of
 * KFABRIC_OPT_PATH_MTU is 0: as much as the path to the peer allows.
 *
 * Errors: -EINVAL @set above 1, a value out of its range; -ENOPROTOOPT unknown
 * level or name, one that cannot be set, or one that the type of the endpoint
 * does not have; -EPERM a Q key with the highest bit set; -KFI_EOPBADSTATE set
 * the Q key after enable, another option of the QP after it was connected.
 */
struct kfabric_ep_opt {
	__u32	size;
	__u32	ep;
	__u32	set;
	__u32	level;
	__u32	name;
	__u32	reserved;
	__u64	value;
};

/* ---- The QP under an endpoint ------------------------------------------- */

/* State of a QP, as enum ibv_qp_state. */
enum {
	KFABRIC_QP_RESET	= 0,
	KFABRIC_QP_INIT		= 1,
	KFABRIC_QP_RTR		= 2,
	KFABRIC_QP_RTS		= 3,
	KFABRIC_QP_SQD		= 4,
	KFABRIC_QP_SQE		= 5,
	KFABRIC_QP_ERR		= 6,
};

/**
 * struct kfabric_ep_qp - attributes of a QP that its peer needs, and its state
 * @size: sizeof(struct kfabric_ep_qp)
 * @ep: endpoint, KFI_EP_MSG or KFI_EP_DGRAM
 * @qpn: out: its number
 * @psn: out: KFI_EP_MSG: PSN of the first packet that it sends; else 0
 * @gid: out: its IPv6 address, or its IPv4 address mapped into one
 * @dest_qpn: out: the peer's number; 0: none
 * @state: out: KFABRIC_QP_*
 * @path_mtu: out: bytes.  KFI_EP_MSG: towards its peer, 0: no peer yet;
 *	KFI_EP_DGRAM: the longest message that its link allows
 * @reserved: 0
 *
 * Errors: -EOPNOTSUPP another type; -KFI_EOPBADSTATE not enabled.
 */
struct kfabric_ep_qp {
	__u32	size;
	__u32	ep;
	__u32	qpn;
	__u32	psn;
	__u8	gid[16];
	__u32	dest_qpn;
	__u32	state;
	__u32	path_mtu;
	__u32	reserved;
};

/**
 * struct kfabric_ep_connect_qp - connect an endpoint's QP by hand
 * @size: sizeof(struct kfabric_ep_connect_qp)
 * @ep: endpoint, KFI_EP_MSG; it is enabled if it is not yet
 * @addr: IP address and QP number of the peer; port 0
 * @psn: PSN of the first packet that the peer sends
 * @reserved: 0
 *
 * For peers that exchange the result of KFABRIC_IOC_EP_QP by other means, as
 * verbs programs do.  The endpoint is connected when the call returns, and
 * there is no event.
 *
 * Errors: those of enable but -KFI_EOPBADSTATE; -EOPNOTSUPP another type;
 * -EINVAL @addr has a port, no QP number or another family than the endpoint's
 * address, or belongs to no host; @psn has more than 24 bits; -EISCONN it is
 * connected, or was; -EADDRNOTAVAIL, -ENETUNREACH, -EHOSTUNREACH, -EMSGSIZE,
 * -ENETDOWN, -EINVAL for a chosen path MTU as KFABRIC_IOC_EP_CONNECT.
 */
struct kfabric_ep_connect_qp {
	__u32	size;
	__u32	ep;
	struct kfabric_sockaddr addr;
	__u32	psn;
	__u32	reserved;
};

/**
 * struct kfabric_pep_open - open a passive endpoint (kfi_passive_ep)
 * @size: sizeof(struct kfabric_pep_open)
 * @fabric: fabric handle
 * @backlog: requests of one peer that may wait for an answer, 0: default; half
 *	as many again may wait in all; out: as made
 * @handle: out
 * @addr: address to listen at: an address of a link, or 0.0.0.0 or :: for all
 *	addresses of the family; port 0: the module chooses one
 * @context: the caller's
 *
 * Peers ask it for connections with KFI_EP_MSG endpoints, by the messages of the
 * RDMA CM; the port is one of the RDMA CM's TCP port space.
 *
 * Errors: -EINVAL the family, or @backlog above KFABRIC_MAX_BACKLOG.
 */
struct kfabric_pep_open {
	__u32	size;
	__u32	fabric;
	__u32	backlog;
	__u32	handle;
	struct kfabric_sockaddr addr;
	__u64	context;
};

/**
 * struct kfabric_pep_listen - listen (kfi_listen)
 * @size: sizeof(struct kfabric_pep_listen)
 * @pep: passive endpoint, bound to an EQ
 *
 * Each request is a KFI_CONNREQ event, and waits to be accepted or rejected;
 * the peer gives up after some 30 s.  The module refuses a request for which
 * there is no room, here or in the EQ, of which requests may take half.  In a
 * burst it ignores a request that cannot be queued for the passive endpoint, and
 * the peer repeats it.  Closing the passive endpoint rejects the waiting
 * requests; accepted connections stay.
 *
 * A port below 1,024 needs CAP_NET_BIND_SERVICE in the user namespace of the
 * network namespace.
 *
 * Errors: -KFI_ENOEQ not bound to an EQ; -EADDRNOTAVAIL no link has the address;
 * -EACCES the port needs a capability; -ENODEV the network namespace has no
 * link; -EADDRINUSE another endpoint listens there; -KFI_EOPBADSTATE it listens
 * already.
 */
struct kfabric_pep_listen {
	__u32	size;
	__u32	pep;
};

/**
 * struct kfabric_pep_reject - reject a request (kfi_reject)
 * @size: sizeof(struct kfabric_pep_reject)
 * @pep: passive endpoint
 * @connreq: number of the request
 * @param_len: bytes of private data, at most KFABRIC_MAX_REJECT_DATA
 * @param: pointer to private data, given to the peer with its error event
 *
 * Errors: -EINVAL @param_len; -ENOENT no such request waits.
 */
struct kfabric_pep_reject {
	__u32	size;
	__u32	pep;
	__u32	connreq;
	__u32	param_len;
	__u64	param;
};

/**
 * struct kfabric_ep_connect - ask a peer for a connection (kfi_connect)
 * @size: sizeof(struct kfabric_ep_connect)
 * @ep: endpoint, KFI_EP_MSG, bound to an EQ; it is enabled if it is not yet
 * @addr: address and port of the peer
 * @param: pointer to private data, given to the peer with its KFI_CONNREQ
 * @param_len: its bytes, at most KFABRIC_MAX_CONNECT_DATA
 * @reserved: 0
 *
 * An event of the EQ reports the result: KFI_CONNECTED, or an error.  The
 * module gives up a peer that does not answer after some 10 s.  KFI_SHUTDOWN
 * reports the end of a connection, unless KFABRIC_IOC_EP_SHUTDOWN ended it. An
 * endpoint connects once: after a refusal it cannot be used again.
 *
 * The peer may be a user of the RDMA CM.  The number of READs under way at
 * either end, retries and timeouts are the lesser of what both ends support
 * (KFABRIC_OPT_*); the path MTU is KFABRIC_OPT_PATH_MTU or what the interfaces
 * of both ends carry.  A peer that does not support the chosen path MTU refuses
 * (KFI_ECONNREFUSED, prov_errno 26).
 *
 * An endpoint whose own port is below 1,024 needs CAP_NET_BIND_SERVICE, as
 * KFABRIC_IOC_PEP_LISTEN does.
 *
 * Errors: those of enable but -KFI_EOPBADSTATE; -EOPNOTSUPP another type;
 * -EACCES the endpoint's own port needs a capability; -EINVAL @param_len, @addr
 * is a QP or of another family than the endpoint's address, or belongs to no
 * host, or a path MTU was chosen that the path does not carry; -KFI_ENOEQ no
 * EQ; -EADDRNOTAVAIL the link does not have the endpoint's address any more;
 * -ENETUNREACH no route to @addr leaves by the link's interface; -EHOSTUNREACH
 * the route is unreachable, prohibited or a blackhole, or @addr is an address
 * of this host that no link has; -EMSGSIZE the route or the interface carries
 * no path MTU; -EALREADY it is being connected; -EISCONN it is connected, or
 * was; -EBUSY too many connections in the network namespace; -ENODEV its
 * interface was removed; -ENETDOWN it is down.
 */
struct kfabric_ep_connect {
	__u32	size;
	__u32	ep;
	struct kfabric_sockaddr addr;
	__u64	param;
	__u32	param_len;
	__u32	reserved;
};

/**
 * struct kfabric_ep_accept - accept a request (kfi_accept)
 * @size: sizeof(struct kfabric_ep_accept)
 * @ep: endpoint, KFI_EP_MSG, bound to an EQ; it is enabled if it is not yet
 * @pep: passive endpoint
 * @connreq: number of the request
 * @param: pointer to private data, given to the peer with its KFI_CONNECTED
 * @param_len: its bytes, at most KFABRIC_MAX_ACCEPT_DATA
 * @reserved: 0
 *
 * The endpoint must be on the link and have the address of the KFI_CONNREQ.
 * Receives may be posted before.  The event KFI_CONNECTED reports that the peer
 * is ready, an error event that it has left.
 *
 * Errors: those of enable but -KFI_EOPBADSTATE; -EOPNOTSUPP another type;
 * -EINVAL @param_len, another link or address, or a path MTU was chosen that is
 * not the peer's; -KFI_ENOEQ no EQ; -ENOENT no such request waits; -EALREADY,
 * -EISCONN, -EADDRNOTAVAIL as above; -ENETDOWN the same, and the interface is
 * down; -ENODEV it was removed; -ECONNABORTED the peer has given up meanwhile:
 * the request no longer exists, and the endpoint cannot be used
 * again.
 */
struct kfabric_ep_accept {
	__u32	size;
	__u32	ep;
	__u32	pep;
	__u32	connreq;
	__u64	param;
	__u32	param_len;
	__u32	reserved;
};

/**
 * struct kfabric_ep_shutdown - end the connection (kfi_shutdown)
 * @size: sizeof(struct kfabric_ep_shutdown)
 * @ep: endpoint, KFI_EP_MSG
 * @flags: 0
 *
 * The module completes transmits under way and posted receives with the error
 * ECANCELED.  It informs the peer (KFI_SHUTDOWN), unless the endpoints were
 * connected by hand.  Closing the endpoint ends the connection too, without
 * completions.
 *
 * Errors: -EOPNOTSUPP another type; -ENOTCONN it is not connected, or not any
 * more.
 */
struct kfabric_ep_shutdown {
	__u32	size;
	__u32	ep;
	__u64	flags;
};

/**
 * struct kfabric_ep_peer - the address of the peer (kfi_getpeer)
 * @size: sizeof(struct kfabric_ep_peer)
 * @ep: endpoint, KFI_EP_MSG
 * @addr: out; with a QP number instead of a port if connected by hand
 *
 * Errors: -EOPNOTSUPP another type; -ENOTCONN it was never connected.
 */
struct kfabric_ep_peer {
	__u32	size;
	__u32	ep;
	struct kfabric_sockaddr addr;
};

/* ---- Operations --------------------------------------------------------- */

/* Kinds of operations. */
enum kfabric_op_code {
	KFABRIC_OP_RECV		= 0,
	KFABRIC_OP_SEND		= 1,
	KFABRIC_OP_TRECV	= 2,
	KFABRIC_OP_TSEND	= 3,
	KFABRIC_OP_READ		= 4,
	KFABRIC_OP_WRITE	= 5,
	KFABRIC_OP_ATOMIC	= 6,
	KFABRIC_OP_FETCH_ATOMIC	= 7,
	KFABRIC_OP_COMPARE_ATOMIC = 8,
	/* Deferred work only. */
	KFABRIC_OP_CNTR_SET	= 9,
	KFABRIC_OP_CNTR_ADD	= 10,
};

/* The flags are all there is; the endpoint's default flags are not added. */
#define KFABRIC_OP_EXPLICIT	(1U << 0)

/**
 * struct kfabric_op - one operation
 * @opcode: enum kfabric_op_code
 * @control: KFABRIC_OP_EXPLICIT (as kfi_sendmsg and the like) or 0 (as
 *	kfi_send: @flags are added to the endpoint's defaults)
 * @flags: transmits: KFI_COMPLETION, KFI_INJECT, KFI_INJECT_COMPLETE,
 *	KFI_TRANSMIT_COMPLETE, KFI_DELIVERY_COMPLETE, KFI_FENCE, KFI_MORE and,
 *	on SEND, TSEND, WRITE and ATOMIC, KFI_REMOTE_CQ_DATA; READ cannot have
 *	KFI_INJECT, and on FETCH_ATOMIC and COMPARE_ATOMIC it has no effect.
 *	READ, WRITE: KFI_TAGGED (tagged RMA, below)
 *	receives: KFI_COMPLETION, KFI_MORE, KFI_MULTI_RECV (RECV);
 *	KFI_PEEK, KFI_CLAIM, KFI_DISCARD (TRECV)
 *	all, on an endpoint that is capable of it: KFI_TRIGGER
 * @context: returned in the completion
 * @buf: address of the buffer, or of an array of struct kfabric_iov; atomics:
 *	of the operands, one for each element; KFI_ATOMIC_READ does not read it
 * @len: bytes in the buffer; atomics: of all elements
 * @iov_count: 0: @buf is the buffer; else elements of the array
 * @mr: local memory region that holds the buffer, so that its pages are not
 *	pinned again; 0: none.  The buffer is still given by its address
 * @peer: transmits: destination; receives: with KFI_DIRECTED_RECV the source
 *	to receive from, KFI_ADDR_UNSPEC: any; ignored without, and by KFI_EP_MSG
 * @data: with KFI_REMOTE_CQ_DATA
 * @tag: TSEND, TRECV
 * @ignore: TRECV: bits of @tag that do not matter
 * @rma_addr: READ, WRITE: remote address or offset, or address of an array of
 *	struct kfabric_rma_iov; atomics too
 * @rma_key: READ, WRITE, atomics: remote key; KFI_TAGGED: the tag
 * @rma_iov_count: 0: @rma_addr, @rma_key; else elements of the array
 * @datatype: atomics: enum kfi_datatype; else 0
 * @op: atomics: enum kfi_op; else 0
 * @compare: COMPARE_ATOMIC: address of the values to compare with, as many bytes
 *	as @buf, or of an array of struct kfabric_iov; else 0
 * @result: FETCH_ATOMIC, COMPARE_ATOMIC: address of the buffer for the old
 *	values at the peer, as many bytes as @buf, or of an array of struct
 *	kfabric_iov; else 0
 * @result_mr: FETCH_ATOMIC, COMPARE_ATOMIC: as @mr, for @result; else 0
 * @compare_iov_count: COMPARE_ATOMIC: 0: @compare is the buffer; else elements
 *	of the array; else 0
 * @result_iov_count: FETCH_ATOMIC, COMPARE_ATOMIC: 0: @result is the buffer;
 *	else elements of the array; else 0
 * @trigger_event: KFI_TRIGGER: enum kfi_trigger_event; else 0
 * @trigger_cntr: KFI_TRIGGER: counter of the endpoint's domain; else 0
 * @threshold: KFI_TRIGGER: success value of @trigger_cntr at which the
 *	operation starts; else 0
 *
 * An operation with KFI_TRIGGER is accepted and checked when it is posted, and
 * waits until @trigger_cntr has reached @threshold.  Then it starts, and
 * completes as any other.  If the counter has reached it already, it starts at
 * once, though never ahead of earlier work of the same counter that is due.  Work
 * of a counter starts in the order of thresholds, then of submission, also if one
 * add passes several; work of different counters starts in no particular order.
 * KFABRIC_IOC_EP_CANCEL cancels an operation that waits, as any other.  Its
 * flags are those at the time of the post.  Local buffers are pinned at the post.
 * With KFI_INJECT the bytes of a transmit and the operands of an ATOMIC are read
 * at the post.  Otherwise the bytes of a transmit, operands and values to compare
 * with are read after the operation has started, however few they are.  While it
 * waits, @trigger_cntr and the endpoint are in use, and it takes no room in a
 * queue or a CQ.  When it has started and finds none, it waits for room, as
 * deferred work does (struct kfabric_queue_work).
 *
 * Tagged RMA: a READ or WRITE with KFI_TAGGED accesses the memory of a TRECV that
 * the peer has posted.  It has one piece of remote memory: the key is the tag, the
 * address an offset in that memory, at most KFABRIC_MAX_MSG_SIZE.  The receive is
 * matched by tag and source, as by a message, and completes.  Both endpoints need
 * KFI_TAGGED_RMA.  It waits for no receive: without one it fails with EREMOTEIO,
 * and so it does if the peer's endpoint has no KFI_TAGGED_RMA, or no
 * KFI_REMOTE_READ or KFI_REMOTE_WRITE.  If the receive is too short, what fits is
 * transferred, and both completions are errors with EMSGSIZE.  A completion has
 * KFI_TAGGED, KFI_RMA, KFI_READ or KFI_WRITE, and KFI_SEND; that of the receive has
 * KFI_RECV instead of KFI_SEND, and KFI_REMOTE_CQ_DATA if there are data.  It
 * counts as a read or a write here, and as a receive there.
 *
 * Atomics change elements of the peer's memory: ATOMIC and FETCH_ATOMIC have
 * KFI_MIN to KFI_BXOR and KFI_ATOMIC_WRITE, FETCH_ATOMIC also KFI_ATOMIC_READ,
 * COMPARE_ATOMIC has KFI_CSWAP to KFI_MSWAP.  FETCH_ATOMIC and COMPARE_ATOMIC
 * return the old values.  KFI_CSWAP_LE and the like store the operand if the
 * value to compare with is less than (...) the old one; KFI_MSWAP stores the
 * bits of the operand that are set in the value to compare with.
 *
 * KFI_EP_RDM has all of them on the integer types, on KFI_FLOAT and KFI_DOUBLE
 * without operations on bits, and on KFI_FLOAT_COMPLEX and KFI_DOUBLE_COMPLEX
 * without those that need an order, too; on up to KFABRIC_MAX_ATOMIC_SIZE bytes
 * of elements.  KFI_EP_MSG has the atomics of InfiniBand: KFI_SUM and KFI_CSWAP
 * of one KFI_INT64 or KFI_UINT64.  KFABRIC_IOC_QUERY_ATOMIC tells.
 *
 * Integers wrap.  KFI_LOR, KFI_LAND and KFI_LXOR store 1 or 0.  Floating point
 * is that of IEEE 754, rounded to nearest in each step; a comparison with a NaN
 * does not hold, so KFI_MIN and KFI_MAX keep the old value then, and -0 equals
 * +0.
 *
 * A remote address, and each piece's, is a multiple of the element's size (of 8
 * for KFI_DOUBLE_COMPLEX); each host has elements in its own byte order.  An
 * element of up to 8 bytes is changed by one atomic access of its size: atomic
 * with respect to all other atomics, of whatever endpoints and hosts, and to
 * atomic instructions of programs.  A KFI_DOUBLE_COMPLEX is changed under a lock:
 * atomic with respect to other atomics of this type only.  Elements are changed
 * one by one.
 *
 * The peer's region and its endpoint need KFI_REMOTE_WRITE for ATOMIC,
 * KFI_REMOTE_READ for KFI_ATOMIC_READ, else both; the endpoint of KFI_EP_RDM
 * KFI_ATOMIC, too.  A completion has KFI_ATOMIC, and KFI_WRITE (ATOMIC) or
 * KFI_READ, and is counted so; the target counts KFI_REMOTE_WRITE (ATOMIC) or
 * KFI_REMOTE_READ.  With KFI_EP_MSG an ATOMIC fetches, too, and discards the old
 * value: it needs both rights, and the target counts KFI_REMOTE_READ.  An ATOMIC
 * with KFI_REMOTE_CQ_DATA (KFI_EP_RDM) makes an entry at the target, with
 * KFI_ATOMIC, KFI_REMOTE_WRITE and KFI_REMOTE_CQ_DATA.
 *
 * Operands and values to compare with of up to KFABRIC_INJECT_SIZE bytes are
 * read when the operation is posted.  Longer ones are read until it completes.
 * Those of an operation that waits for a counter (KFI_TRIGGER, deferred work) are
 * read as described above.
 */
struct kfabric_op {
	__u32	opcode;
	__u32	control;
	__u64	flags;
	__u64	context;
	__u64	buf;
	__u64	len;
	__u32	iov_count;
	__u32	mr;
	__u64	peer;
	__u64	data;
	__u64	tag;
	__u64	ignore;
	__u64	rma_addr;
	__u64	rma_key;
	__u32	rma_iov_count;
	__u16	datatype;
	__u16	op;
	__u64	compare;
	__u64	result;
	__u32	result_mr;
	__u16	compare_iov_count;
	__u16	result_iov_count;
	__u32	trigger_event;
	__u32	trigger_cntr;
	__u64	threshold;
};

/**
 * struct kfabric_post - post operations on an endpoint, in order
 * @size: sizeof(struct kfabric_post)
 * @ep: endpoint
 * @ops: pointer to @count struct kfabric_op
 * @count: 1..KFABRIC_MAX_POST
 * @op_size: sizeof(struct kfabric_op) as the caller knows it
 * @flags: 0
 * @done: out: operations that were accepted, also if the call fails
 * @error: out: reason why the next one was not, a positive error number; 0: all
 *	were accepted
 *
 * Returns 0 if at least one operation was accepted; else the error of the
 * first.  Each accepted operation completes exactly once: on the counters, and
 * as an entry on the CQ, or as an error entry.  A success makes no entry if the
 * operation has KFI_INJECT, or the CQ is bound with KFI_SELECTIVE_COMPLETION,
 * unless KFI_COMPLETION is among its flags; a failure always makes one.  An
 * operation whose success makes no entry needs no room in the CQ: a full CQ does
 * not refuse it, and its failure makes an error entry beyond the CQ's size.
 * Without a CQ there are no entries.
 *
 * Errors, of the call or in @error: -EINVAL @count or @op_size, unknown opcode,
 * flag, datatype or op, a field that the opcode does not have, too many
 * elements (of remote memory: KFI_EP_MSG and KFI_TAGGED take one), lengths that
 * wrap, an offset of tagged RMA above KFABRIC_MAX_MSG_SIZE, a
 * buffer that is not within @mr or @result_mr, remote memory that is not as
 * long as the buffer, @data of more than 32 bits (KFI_EP_MSG, KFI_EP_DGRAM), an
 * atomic on no whole number of elements, or with a piece that has no whole number
 * of them, at a remote address that is not aligned, or with @compare or @result
 * of another length; -KFI_EOPBADSTATE the endpoint is not enabled; -EOPNOTSUPP
 * the endpoint does not have the capability; a read or an atomic of an endpoint
 * that may have none under way (KFABRIC_OPT_RD_ATOMIC here, or
 * KFABRIC_OPT_DEST_RD_ATOMIC at the peer, is 0); KFI_DELIVERY_COMPLETE of
 * KFI_EP_DGRAM; an atomic that the type of the endpoint does not have; an atomic
 * with KFI_REMOTE_CQ_DATA of KFI_EP_MSG;
 * -ENOTCONN a transmit of an endpoint that is not connected yet, or to a peer
 * on this host with another authorization key (KFI_EP_RDM); -ESHUTDOWN its
 * connection is over; -EAGAIN no room in the transmit or receive queue, in the
 * CQ for an entry, or at the peer for an injected message, KFI_FENCE while an
 * earlier message waits there for its receive, or started operations of the
 * endpoint wait for room: try again after reading completions; -EMSGSIZE longer
 * than KFABRIC_MAX_MSG_SIZE, than KFABRIC_INJECT_SIZE with KFI_INJECT, or than
 * the path MTU of a datagram; the route or the interface carries no path MTU;
 * an atomic on too many elements; -EKEYREJECTED a key of more than 32 bits
 * (KFI_EP_MSG); -ENOENT @peer is not in the AV; -EADDRNOTAVAIL a transmit while
 * the link does not have the endpoint's address; -EHOSTUNREACH no endpoint has
 * that address of this host, or no route leads to another host (KFI_EP_RDM);
 * the route is unreachable, prohibited or a blackhole, or no link has that
 * address of this host (all types); -ENETUNREACH no route leaves by the link's
 * interface (other types); -ENETDOWN the link's interface is down; -ENODEV it
 * was removed; -EFAULT, -ENOMEM the buffer, as with KFABRIC_IOC_MR_REG; -ENOMEM
 * no memory, or none left of the user's limit, for the error entry of an
 * operation whose success makes no entry, or for the lists of pieces and
 * segments of an operation that does not end in its call; -EACCES @mr or
 * @result_mr does not allow it; -EINTR a signal came during the delay after
 * refused accesses, or the caller is being killed; -EAGAIN that delay is too
 * long, or this call has waited for one already; -ENOMSG KFI_CLAIM of a message
 * that was not claimed (KFI_PEEK never: its answer is a completion). With
 * KFI_TRIGGER: -EINVAL an unknown @trigger_event, or a counter of another
 * domain; -EBADF @trigger_cntr; -EOPNOTSUPP the endpoint does not have the
 * capability KFI_TRIGGER; -ENOSPC KFABRIC_MAX_WORK; -ENOMEM the user's limit.
 * What can be known only when the operation has started is its completion.
 */
struct kfabric_post {
	__u32	size;
	__u32	ep;
	__u64	ops;
	__u32	count;
	__u32	op_size;
	__u64	flags;
	__u32	done;
	__u32	error;
};

/* ---- Flows and their counters ------------------------------------------- */

/*
 * A flow is a rule at a datagram endpoint (KFI_EP_DGRAM).  It counts the
 * packets that arrive and match the rule, in the values of counters objects.  It
 * does not change what happens to them.
 *
 * A packet is counted when it arrives at the endpoint: its destination is the
 * endpoint's QP and address, and its ICRC is valid.  Whether there is a receive,
 * whether it has the endpoint's Q key, and whether this host has memory for it,
 * does not matter.  Datagrams within the host are packets, too.  Bytes of a
 * packet are from the BTH to the ICRC, as those of struct kfabric_figures.
 */

/* What a counter point adds for each packet. */
enum {
	KFABRIC_COUNTER_PACKETS	= 0,
	KFABRIC_COUNTER_BYTES	= 1,
};

/* Flags of KFABRIC_IOC_COUNTERS_READ. */
#define KFABRIC_COUNTERS_PREFER_CACHED	(1ULL << 0)

/* Flags of KFABRIC_IOC_FLOW_OPEN. */
#define KFABRIC_FLOW_DONT_TRAP	(1ULL << 0)

/**
 * struct kfabric_counters_open - make a counters object: an array of values
 * @size: sizeof(struct kfabric_counters_open)
 * @domain: domain handle
 * @context: the caller's
 * @flags: 0
 * @count: number of values, 1..KFABRIC_MAX_COUNTERS; 0: 16; out: the number
 * @handle: out
 *
 * The values have the indices 0 to @count - 1.  They are 0, and only grow.
 *
 * Errors: -EINVAL @count.
 */
struct kfabric_counters_open {
	__u32	size;
	__u32	domain;
	__u64	context;
	__u64	flags;
	__u32	count;
	__u32	handle;
};

/**
 * struct kfabric_counters_attach - attach a counter point
 * @size: sizeof(struct kfabric_counters_attach)
 * @counters: counters object
 * @flow: flow of an endpoint of the same domain; 0: a static point
 * @description: KFABRIC_COUNTER_*: what a packet adds
 * @index: the value that it is added to
 * @comp_mask: 0
 *
 * A static point takes effect when a flow is made with the counters object:
 * that flow and each later one that is made with it count into all of its
 * static points.  A dynamic point (@flow is not 0) counts packets of that flow
 * from now on.  Points of one index add up, whatever their descriptions are, and
 * so do several flows.  There is no detach: the points of a flow end with the
 * flow, static points with the counters object.
 *
 * Once a flow was made with the counters object, nothing is attached to it
 * until it is bound to no flow any more, neither in this way nor by a dynamic
 * point.
 *
 * Errors, checked in this order: -EBADF; -EINVAL @comp_mask; -EOPNOTSUPP unknown
 * @description; -EINVAL the counters object has no value @index, or @flow is of
 * another domain; -EBUSY a flow was made with the counters object, see above;
 * -ENOSPC the counters object has KFABRIC_MAX_FLOW_POINTS static points, or the
 * flow has as many points of any kind.
 */
struct kfabric_counters_attach {
	__u32	size;
	__u32	counters;
	__u32	flow;
	__u32	description;
	__u32	index;
	__u32	comp_mask;
};

/**
 * struct kfabric_counters_read - read values
 * @size: sizeof(struct kfabric_counters_read)
 * @counters: counters object
 * @values: pointer to @count __u64: the values from index 0 on
 * @flags: KFABRIC_COUNTERS_PREFER_CACHED: the values may be older than the
 *	call.  This device needs no cache: they never are
 * @count: 1 to the number of values
 * @reserved: 0
 *
 * Each value is exact, but they are not read at one instant.
 *
 * Errors: -EINVAL unknown flag, or @count.
 */
struct kfabric_counters_read {
	__u32	size;
	__u32	counters;
	__u64	values;
	__u64	flags;
	__u32	count;
	__u32	reserved;
};

/**
 * struct kfabric_flow_match - fields of a packet: their values, or their masks
 * @src_ip: source IP address; IPv4: 4 bytes, the others are 0
 * @dest_ip: destination IP address
 * @dest_qp: destination QP, 24 bits
 * @src_qp: source QP, 24 bits
 * @src_port: UDP source port
 * @opcode: opcode of the BTH: 0x64 a datagram, 0x65 one with immediate data
 * @reserved: 0
 *
 * Addresses are big endian, numbers are in the byte order of the host.
 */
struct kfabric_flow_match {
	__u8	src_ip[16];
	__u8	dest_ip[16];
	__u32	dest_qp;
	__u32	src_qp;
	__u16	src_port;
	__u8	opcode;
	__u8	reserved[5];
};

/**
 * struct kfabric_flow_open - make a flow
 * @size: sizeof(struct kfabric_flow_open)
 * @ep: endpoint of type KFI_EP_DGRAM, enabled or not
 * @context: the caller's
 * @flags: KFABRIC_FLOW_DONT_TRAP: a packet of this flow can belong to later
 *	flows, too
 * @counters: counters object of the same domain, whose static points count the
 *	flow's packets; 0: none
 * @handle: out
 * @priority: flows with a lower number come first
 * @family: AF_INET or AF_INET6: only packets of this version of IP; 0: of both,
 *	with no mask for addresses
 * @value: the values of the fields; 0 outside @mask
 * @mask: the bits of the fields that are compared
 *
 * A packet is compared with the endpoint's flows in ascending order of
 * @priority; among flows of the same @priority the oldest one comes first.  It
 * belongs to the first flow that it matches, and to later ones only if that one
 * has KFABRIC_FLOW_DONT_TRAP, and so on.
 *
 * KFABRIC_IOC_CLOSE destroys the flow.  It does not wait for packets that are
 * being received: one that arrives during the call may be counted after it.
 * An endpoint or a counters object that a flow refers to cannot be closed
 * (-EBUSY).
 *
 * Needs CAP_NET_RAW in the user namespace of the link's network namespace.
 *
 * Errors, checked in this order: -EBADF; -EINVAL unknown flag or family, a
 * value with a bit outside its mask, a mask with a bit that the field does not
 * have, or of an address without @family; -EOPNOTSUPP an endpoint of another
 * type; -EPERM; -ENODEV the link was removed; -EINVAL @counters is of another
 * domain or has no static points; -ENOSPC the endpoint has KFABRIC_MAX_FLOWS.
 */
struct kfabric_flow_open {
	__u32	size;
	__u32	ep;
	__u64	context;
	__u64	flags;
	__u32	counters;
	__u32	handle;
	__u32	priority;
	__u32	family;
	struct kfabric_flow_match value;
	struct kfabric_flow_match mask;
};

/* ---- Completion counters of verbs --------------------------------------- */

/*
 * Completion counters are those of ibv_create_comp_cntr(3).  A counter has a
 * completion count and an error count.  It is attached to endpoints, each for a
 * set of operations, before these are enabled; KFABRIC_IOC_CLOSE destroys it.
 *
 * The success of an operation adds 1 to the completion count of a counter of
 * work requests (KFABRIC_COMP_CNTR_TYPE_WRS), and the operation's bytes to that
 * of a counter of bytes.  A failure adds 1 to the error count of either, and so
 * does an operation that is cancelled or flushed.  Whether success makes a CQ
 * entry does not matter.
 */

/* Operations that a completion counter counts. */
#define KFABRIC_COMP_CNTR_OP_SEND	(1 << 0) /* bytes: of the message */
#define KFABRIC_COMP_CNTR_OP_RECV	(1 << 1) /* bytes: those placed */
#define KFABRIC_COMP_CNTR_OP_RDMA_READ	(1 << 2) /* bytes: of the read */
#define KFABRIC_COMP_CNTR_OP_REMOTE_RDMA_READ	(1 << 3) /* a peer's read */
#define KFABRIC_COMP_CNTR_OP_RDMA_WRITE	(1 << 4) /* bytes: of the write */
#define KFABRIC_COMP_CNTR_OP_REMOTE_RDMA_WRITE	(1 << 5) /* a peer's write */

/* Flags of KFABRIC_IOC_COMP_CNTR_CREATE. */
#define KFABRIC_COMP_CNTR_INIT_WITH_EXTERNAL_MEM	(1 << 0)

/* What a completion counter counts. */
enum kfabric_comp_cntr_type {
	KFABRIC_COMP_CNTR_TYPE_WRS	= 0,
	KFABRIC_COMP_CNTR_TYPE_BYTES	= 1,
};

/* The two values of a completion counter. */
enum kfabric_comp_cntr_entry {
	KFABRIC_COMP_CNTR_ENTRY_COMP	= 0,
	KFABRIC_COMP_CNTR_ENTRY_ERR	= 1,
};

/* Changes of a value. */
enum kfabric_comp_cntr_modify_op {
	KFABRIC_COMP_CNTR_MODIFY_SET	= 0,
	KFABRIC_COMP_CNTR_MODIFY_INC	= 1,
};

/* Kinds of external memory. */
enum kfabric_memory_location_type {
	KFABRIC_MEMORY_LOCATION_VA	= 0,
	KFABRIC_MEMORY_LOCATION_DMABUF	= 1,
};

/**
 * struct kfabric_comp_cntr_caps - capabilities of completion counters
 * @size: sizeof(struct kfabric_comp_cntr_caps)
 * @domain: domain handle
 * @max_value: out: largest value; the next one is 0 (module parameter
 *	comp_cntr_max_value; 2^64 - 1 if it is 0)
 * @max_counters: out: counters that the domain may have
 * @supported_qp_attach_ops: out: KFABRIC_COMP_CNTR_OP_* that can be counted.
 *	KFI_EP_DGRAM has _SEND and _RECV only
 */
struct kfabric_comp_cntr_caps {
	__u32	size;
	__u32	domain;
	__u64	max_value;
	__u32	max_counters;
	__u32	supported_qp_attach_ops;
};

/**
 * struct kfabric_memory_location - where a copy of a value goes
 * @ptr: KFABRIC_MEMORY_LOCATION_VA: its address, a multiple of 8 and not 0;
 *	KFABRIC_MEMORY_LOCATION_DMABUF: 0, or the address at which the caller has
 *	mapped the memory, a multiple of 8.  The module does not use the latter
 * @offset: KFABRIC_MEMORY_LOCATION_DMABUF: byte in the DMA-BUF, a multiple of 8
 * @fd: KFABRIC_MEMORY_LOCATION_DMABUF: its descriptor, which may be closed
 *	after the call
 * @type: enum kfabric_memory_location_type
 *
 * The copy is 8 bytes long.
 */
struct kfabric_memory_location {
	__u64	ptr;
	__u64	offset;
	__s32	fd;
	__u32	type;
};

/**
 * struct kfabric_comp_cntr_create - create a completion counter
 * @size: sizeof(struct kfabric_comp_cntr_create)
 * @domain: domain handle
 * @comp_mask: 0: no field is optional
 * @flags: KFABRIC_COMP_CNTR_INIT_WITH_EXTERNAL_MEM, or 0
 * @type: enum kfabric_comp_cntr_type
 * @handle: out
 * @context: the caller's
 * @comp_cntr_ext_mem: with KFABRIC_COMP_CNTR_INIT_WITH_EXTERNAL_MEM: where the
 *	completion count is copied to, as a pointer to memory or a part of a
 *	DMA-BUF; ignored otherwise
 * @err_cntr_ext_mem: the same for the error count
 * @page_offset: out: offset for mmap(2) of one page, struct
 *	kfabric_cntr_values, PROT_READ: the completion count and the error count
 * @comp_count_max_value: out: largest completion count; the next one is 0
 * @err_count_max_value: out: largest error count; the next one is 0
 *
 * Both values are 0.  External memory is written when they change, until the
 * counter is destroyed, and never read: what a program writes there changes no
 * value.  The memory stays valid for that even if the program unmaps it or
 * ends.  Each copy with KFABRIC_MEMORY_LOCATION_VA pins a page, which counts
 * against RLIMIT_MEMLOCK.
 *
 * Errors: -ENOMEM the domain has KFABRIC_MAX_COMP_CNTR counters, or
 * RLIMIT_MEMLOCK is used up; -EINVAL another @type, or a memory location: an
 * unknown type, an address that is 0 or unaligned, an offset that is unaligned
 * or outside the DMA-BUF, a descriptor of something else, both copies in the
 * same place; -EFAULT an address that is not mapped writable; -EBADF a
 * descriptor that is not open; -EACCES a DMA-BUF that may not be written;
 * -EOPNOTSUPP a DMA-BUF that the CPU cannot access; an error of the DMA-BUF's
 * exporter; -EINTR the process is being killed.
 */
struct kfabric_comp_cntr_create {
	__u32	size;
	__u32	domain;
	__u32	comp_mask;
	__u32	flags;
	__u32	type;
	__u32	handle;
	__u64	context;
	struct kfabric_memory_location comp_cntr_ext_mem;
	struct kfabric_memory_location err_cntr_ext_mem;
	__u64	page_offset;
	__u64	comp_count_max_value;
	__u64	err_count_max_value;
};

/**
 * struct kfabric_comp_cntr_modify - set or increment a value
 * @size: sizeof(struct kfabric_comp_cntr_modify)
 * @comp_cntr: completion counter
 * @entry: enum kfabric_comp_cntr_entry
 * @op: enum kfabric_comp_cntr_modify_op
 * @value: to set or to add, at most the largest value.  A sum is modulo the
 *	largest value + 1
 *
 * Errors: -EINVAL another @entry or @op, @value above the largest value.
 */
struct kfabric_comp_cntr_modify {
	__u32	size;
	__u32	comp_cntr;
	__u32	entry;
	__u32	op;
	__u64	value;
};

/**
 * struct kfabric_comp_cntr_read - read a value
 * @size: sizeof(struct kfabric_comp_cntr_read)
 * @comp_cntr: completion counter
 * @entry: enum kfabric_comp_cntr_entry
 * @reserved: 0
 * @value: out
 *
 * Errors: -EINVAL another @entry.
 */
struct kfabric_comp_cntr_read {
	__u32	size;
	__u32	comp_cntr;
	__u32	entry;
	__u32	reserved;
	__u64	value;
};

/**
 * struct kfabric_comp_cntr_attach - attach a completion counter to an endpoint
 * @size: sizeof(struct kfabric_comp_cntr_attach)
 * @ep: endpoint that is not enabled, of the counter's domain
 * @comp_cntr: completion counter
 * @op_mask: operations to count, KFABRIC_COMP_CNTR_OP_*
 * @comp_mask: 0: no field is optional
 * @reserved: 0
 *
 * The counter stays attached until the endpoint is closed, and cannot be
 * destroyed before (-EBUSY).  A counter can be attached to several endpoints,
 * and several counters to an endpoint for different operations.  A counter of
 * KFABRIC_COMP_CNTR_OP_RECV reports receives as a CQ does, and one of the other
 * operations of the endpoint itself its transmits: KFABRIC_IOC_EP_ENABLE needs
 * no CQ then.
 *
 * Errors, with which nothing is attached: -EINVAL no operation or an unknown
 * one, an operation of the other side of a context (a transmit context has SEND,
 * RDMA_READ and RDMA_WRITE, a receive context the others), an endpoint that is
 * enabled, a counter of another domain; -EBUSY another
 * counter counts one of the operations; -EOPNOTSUPP an operation that the
 * endpoint's type does not have.
 */
struct kfabric_comp_cntr_attach {
	__u32	size;
	__u32	ep;
	__u32	comp_cntr;
	__u32	op_mask;
	__u32	comp_mask;
	__u32	reserved;
};

/* ---- Deferred work, and aliases of endpoints ---------------------------- */

/**
 * struct kfabric_work - one request of the deferred work queue
 * @threshold: the work is due when the success value plus the error value of
 *	@triggering_cntr has reached this
 * @triggering_cntr: counter of the domain
 * @completion_cntr: transfers: counter of the domain whose success value is
 *	incremented when the operation has completed, and whose error value when
 *	it has failed; 0: none.  Counter operations: 0
 * @op_type: enum kfabric_op_code
 * @object: transfers: endpoint of the domain; CNTR_SET, CNTR_ADD: counter of
 *	the domain that is changed
 * @op: transfers: pointer to one struct kfabric_op, whose opcode is @op_type;
 *	counter operations: 0
 * @value: CNTR_SET, CNTR_ADD: the operand; transfers: 0
 * @id: out: identity of the request, for KFABRIC_IOC_CANCEL_WORK; unique among
 *	the requests of @triggering_cntr
 */
struct kfabric_work {
	__u64	threshold;
	__u32	triggering_cntr;
	__u32	completion_cntr;
	__u32	op_type;
	__u32	object;
	__u64	op;
	__u64	value;
	__u64	id;
};

/**
 * struct kfabric_queue_work - queue deferred work (KFI_QUEUE_WORK)
 * @size: sizeof(struct kfabric_queue_work)
 * @domain: domain
 * @works: pointer to @count struct kfabric_work; the kernel writes their @id
 * @count: 1..KFABRIC_MAX_POST
 * @work_size: sizeof(struct kfabric_work) as the caller knows it
 * @op_size: sizeof(struct kfabric_op) as the caller knows it; 0 if there is no
 *	transfer
 * @reserved: 0
 * @flags: 0
 * @done: out: requests that were queued, also if the call fails
 * @error: out: reason why the next one was not, a positive error number; 0: all
 *	were queued
 *
 * Work is checked and copied when it is queued.  Work of a counter that is due
 * starts in the order of thresholds, then of submission, also if one change of
 * the counter passes several; a threshold that was reached at any moment counts.
 * If it is reached already, the work starts at once, though never ahead of earlier
 * work of the same counter that is due.  KFI_TRIGGER operations on the same
 * counter take part in that order.  Work of different counters starts in no
 * particular order.
 *
 * A transfer makes no entry in its endpoint's CQ, and moves no counter of the
 * endpoint and no completion counter of verbs that is attached to it, unless its
 * flags have KFI_COMPLETION; the endpoint's default flags do not count for that.
 * A counter that is bound to the endpoint can be the completion counter, too:
 * with KFI_COMPLETION it is incremented for both, so by two.
 * A transfer that fails, also one that cannot start, increments the error value
 * of @completion_cntr, and makes an error entry in the CQ.  The target counts it
 * as any operation.  Buffers are treated as those of an operation with
 * KFI_TRIGGER (struct kfabric_op).
 *
 * Work that waits takes no room in a queue or a CQ.  A transfer that has started
 * and finds no room waits for it, and so do later ones of its side of the
 * endpoint, also those that KFABRIC_IOC_POST would post (-EAGAIN).
 *
 * The other default flags of the endpoint do count.  KFI_TRIGGER among them has no
 * effect, because the work has a condition of its own.  With KFI_MULTI_RECV among
 * them every deferred RECV is refused, unless it has KFABRIC_OP_EXPLICIT.
 *
 * While work is queued its triggering counter, the counter that it changes and
 * its endpoint are in use, and its completion counter until the transfer has
 * completed: closing them gives -EBUSY.
 *
 * Returns 0 if at least one request was queued; else the error of the first.
 *
 * Errors, of the call or in @error: -EINVAL @count, @work_size, @op_size; an
 * unknown @op_type; an object of another domain; a @completion_cntr of a
 * counter operation; CNTR_SET above the counter's maximum; an opcode that is
 * not @op_type; KFI_TRIGGER among the flags of a transfer; a field that the type
 * does not have; -ENOSYS a transfer with KFI_MULTI_RECV, KFI_PEEK, KFI_CLAIM or
 * KFI_DISCARD, or one that KFABRIC_IOC_POST refuses with -EOPNOTSUPP; -EBADF a
 * handle; -ENOSPC KFABRIC_MAX_WORK requests wait in the domain; -ENOMEM no memory,
 * or none left of the user's limit; transfers: the other errors of
 * KFABRIC_IOC_POST that depend neither on the peer, nor on the connection, nor on
 * room.  Those that depend on the peer or the connection are reported when the
 * transfer has started.
 */
struct kfabric_queue_work {
	__u32	size;
	__u32	domain;
	__u64	works;
	__u32	count;
	__u32	work_size;
	__u32	op_size;
	__u32	reserved;
	__u64	flags;
	__u32	done;
	__u32	error;
};

/**
 * struct kfabric_cancel_work - cancel deferred work (KFI_CANCEL_WORK)
 * @size: sizeof(struct kfabric_cancel_work)
 * @triggering_cntr: as in its struct kfabric_work
 * @threshold: as in its struct kfabric_work
 * @id: identity of the request
 *
 * Cancelled work has no completion and changes no counter.  When the call has
 * returned, its buffers are not used any more.
 *
 * Errors: -ENOENT no such work waits: it was never queued, has been cancelled,
 * or has started or is about to start.
 */
struct kfabric_cancel_work {
	__u32	size;
	__u32	triggering_cntr;
	__u64	threshold;
	__u64	id;
};

/**
 * struct kfabric_flush_work - cancel all deferred work (KFI_FLUSH_WORK)
 * @size: sizeof(struct kfabric_flush_work)
 * @domain: domain
 * @triggering_cntr: cancels the work that waits for this counter of the domain;
 *	0: all work of the domain
 * @reserved: 0
 * @flushed: out: requests that were cancelled
 *
 * As KFABRIC_IOC_CANCEL_WORK for each.  Work whose threshold is reached, but that
 * is not about to start because much other work is due, is cancelled too, and
 * counted in @flushed.  Operations with KFI_TRIGGER are not
 * deferred work, and stay.
 *
 * Errors: -EINVAL a counter of another domain.
 */
struct kfabric_flush_work {
	__u32	size;
	__u32	domain;
	__u32	triggering_cntr;
	__u32	reserved;
	__u64	flushed;
};

/**
 * struct kfabric_ep_alias - open an alias of an endpoint (kfi_ep_alias)
 * @size: sizeof(struct kfabric_ep_alias)
 * @ep: endpoint
 * @tx_op_flags: default flags of transmits that are posted through the alias, as
 *	in struct kfabric_ep_open
 * @rx_op_flags: default flags of receives
 * @context: a number for the caller's own use
 * @handle: out: the alias
 * @reserved: 0
 *
 * KFABRIC_IOC_POST takes the alias in place of the endpoint; no other call but
 * KFABRIC_IOC_CLOSE does.  The alias has no queues of its own: its operations
 * are those of the endpoint.  The endpoint is in use while it has aliases.
 * Default flags, also KFI_TRIGGER, do not apply to KFABRIC_OP_EXPLICIT.
 *
 * Errors: -EINVAL flags that cannot be defaults of their side; -EOPNOTSUPP
 * KFI_TRIGGER of an endpoint without that capability, or a flag that the type
 * does not have.
 */
struct kfabric_ep_alias {
	__u32	size;
	__u32	ep;
	__u64	tx_op_flags;
	__u64	rx_op_flags;
	__u64	context;
	__u32	handle;
	__u32	reserved;
};

/**
 * struct kfabric_stx_open - open a shared transmit context (kfi_stx_context)
 * @size: sizeof(struct kfabric_stx_open)
 * @domain: domain handle
 * @caps: in: capabilities of the transmit side, 0: all; out: those that the
 *	context has
 * @tx_size: in: transmits that can be under way, 0: default; out: that number
 * @handle: out
 * @context: the caller's
 *
 * Endpoints of any type that were opened with KFABRIC_SHARED_TX are bound to it.
 * Together they have room for @tx_size transmits, in addition to the tx_size of
 * each; without room a post gives -EAGAIN.  The transmit capabilities of an
 * endpoint must be a subset of @caps.  Its CQ and counters report its transmits.
 *
 * Errors: -EINVAL @caps that no endpoint has for transmits, @tx_size above
 * KFABRIC_MAX_QUEUE.
 */
struct kfabric_stx_open {
	__u32	size;
	__u32	domain;
	__u64	caps;
	__u32	tx_size;
	__u32	handle;
	__u64	context;
};

/**
 * struct kfabric_srx_open - open a shared receive context (kfi_srx_context)
 * @size: sizeof(struct kfabric_srx_open)
 * @domain: domain handle
 * @caps: in: capabilities of the receive side, 0: all; out: those that the
 *	context has
 * @rx_op_flags: default flags of receives, as in struct kfabric_ep_open
 * @rx_size: in: receives of each kind that can be posted, 0: default; out: that
 *	number
 * @handle: out
 * @total_buffered_recv: in: bytes of unexpected messages kept here, 0: default;
 *	out: that number; one peer, or another user of this host, gets four
 *	fifths of it (IPv6: two thirds)
 * @context: the caller's
 *
 * Endpoints of any type that were opened with KFABRIC_SHARED_RX are bound to it.
 * KFABRIC_IOC_POST takes the context in place of an endpoint and posts receives,
 * also before there are endpoints; so do KFABRIC_IOC_EP_CANCEL, KFABRIC_IOC_EP_OPT,
 * KFABRIC_IOC_OPSFLAG and KFABRIC_IOC_EP_ALIAS.  A post of a receive to an
 * endpoint that uses a context gives -ENOSYS.  A message to any of the endpoints
 * takes the oldest receive that matches.  KFI_EP_MSG endpoints pass multi-receive
 * buffers over.
 *
 * A receive completes in the CQ and the counter of the endpoint whose message it
 * took.  All endpoints that are enabled at the same time have the same CQ for
 * receives, bound with the same flags, and the same AV.  KFABRIC_IOC_EP_ENABLE
 * gives -EINVAL otherwise, and -EAGAIN if the CQ has no room for the receives that
 * were posted before the first endpoint is enabled.  A receive that is cancelled
 * while no endpoint is enabled completes nowhere; a receive from one source gives
 * -KFI_ENOAV then, and a search (KFI_PEEK) -KFI_ENOCQ.
 *
 * Errors: -EINVAL @caps that no endpoint has for receives, unknown flags, @rx_size
 * above KFABRIC_MAX_QUEUE, @total_buffered_recv above KFABRIC_MAX_BUFFERED.
 */
struct kfabric_srx_open {
	__u32	size;
	__u32	domain;
	__u64	caps;
	__u64	rx_op_flags;
	__u32	rx_size;
	__u32	handle;
	__u64	total_buffered_recv;
	__u64	context;
};

/* ---- Scalable endpoint -------------------------------------------------- */

/**
 * struct kfabric_sep_open - open a scalable endpoint (kfi_scalable_ep)
 * @size: sizeof(struct kfabric_sep_open)
 * @domain: domain handle
 * @caps: as in struct kfabric_ep_open; what its contexts have, each those of its
 *	side, unless they are opened with fewer
 * @tx_op_flags: default flags of its transmit contexts
 * @rx_op_flags: default flags of its receive contexts
 * @tx_size: tx_size of its transmit contexts, 0: default
 * @rx_size: rx_size of its receive contexts, 0: default
 * @total_buffered_recv: that of each of its receive contexts, 0: default; one
 *	peer, or another user of this host, gets four fifths of it (IPv6: two
 *	thirds)
 * @src_addr: name to have: address and first port; family 0: any address of the
 *	link; port 0: the module chooses
 * @context: the caller's
 * @tx_ctx_cnt: number of transmit contexts, 0: one
 * @rx_ctx_cnt: number of receive contexts, 0: one
 * @handle: out
 * @auth_key: authorization key of its contexts, 0: none; as in struct
 *	kfabric_ep_open
 *
 * A scalable endpoint of type KFI_EP_RDM has one name and an AV, which its
 * contexts share.  KFABRIC_IOC_BIND (an AV), KFABRIC_IOC_EP_ENABLE,
 * KFABRIC_IOC_EP_NAME, KFABRIC_IOC_EP_OPT (KFI_OPT_MIN_MULTI_RECV) and
 * KFABRIC_IOC_OPSFLAG take its handle; the latter two are for contexts that are
 * opened later.  No other call but KFABRIC_IOC_CLOSE takes it.
 *
 * Receive context i is at the port of the name plus i; peers send to it by the
 * name and i (rx_ctx_bits of struct kfabric_av_open).  All these ports are
 * reserved when the scalable endpoint or its first context is enabled.  The
 * source of messages is the name, whichever transmit context has sent them.
 *
 * Errors: as KFABRIC_IOC_EP_OPEN; -EINVAL more contexts than KFABRIC_MAX_EP_CTX;
 * -ENOMEM also if the ports, 32 KiB each, exceed the user's limit.
 */
struct kfabric_sep_open {
	__u32	size;
	__u32	domain;
	__u64	caps;
	__u64	tx_op_flags;
	__u64	rx_op_flags;
	__u32	tx_size;
	__u32	rx_size;
	__u64	total_buffered_recv;
	struct kfabric_sockaddr src_addr;
	__u64	context;
	__u32	tx_ctx_cnt;
	__u32	rx_ctx_cnt;
	__u32	handle;
	__u8	auth_key[KFABRIC_AUTH_KEY_SIZE];
};

/**
 * struct kfabric_sep_context - open a context (kfi_tx_context, kfi_rx_context)
 * @size: sizeof(struct kfabric_sep_context)
 * @sep: scalable endpoint
 * @receive: 0: a transmit context; 1: a receive context
 * @index: which one, from 0 on
 * @caps: in: capabilities wanted, 0: all of this side that @sep has; out: those
 *	that it has
 * @op_flags: in: default flags, 0: those of @sep; out: those that it has
 * @queue_size: in: transmits that can be under way, or receives that can be
 *	posted, 0: that of @sep; out: that number
 * @handle: out
 * @total_buffered_recv: receive: in: bytes of unexpected messages kept here, 0:
 *	that of @sep; out: that number.  One peer, or another user of this
 *	host, gets four fifths of it (IPv6: two thirds).  transmit: 0
 * @context: the caller's
 *
 * A context is an endpoint with one side, and its handle that of an endpoint.  It
 * is bound to CQs and counters, also without KFI_TRANSMIT and KFI_RECV, and
 * enabled.  It has the AV and the name of @sep: to bind an AV or to set a name is
 * -EINVAL.  A transmit context with operations that have not completed is not
 * closed: -EBUSY.  @sep is in use while it has contexts.
 *
 * Errors: -EINVAL @receive above 1, no such context, an attribute that it cannot
 * have; -EBUSY it is open; -EOPNOTSUPP @sep has no capabilities of this side.
 */
struct kfabric_sep_context {
	__u32	size;
	__u32	sep;
	__u32	receive;
	__u32	index;
	__u64	caps;
	__u64	op_flags;
	__u32	queue_size;
	__u32	handle;
	__u64	total_buffered_recv;
	__u64	context;
};

/* ---- Statistics --------------------------------------------------------- */

/**
 * struct kfabric_stat - statistics of the next object of a class
 * @size: sizeof(struct kfabric_stat)
 * @object_class: KFI_CLASS_EP, KFI_CLASS_CQ, KFI_CLASS_CNTR,
 *	KFABRIC_CLASS_COMP_CNTR, KFABRIC_CLASS_COUNTERS or KFABRIC_CLASS_FLOW
 * @after: id of the last object seen, 0 to begin; out: its id
 * @pid: out: process that opened the device, in the caller's PID namespace
 * @handle: out: its handle there
 * @link: out: name of the link
 * @addr: out: endpoint: its address; flow: that of its endpoint
 * @v: out: endpoint: transmits, bytes sent, receives, bytes received, transmits
 *	under way, receives posted, unexpected messages, bytes of those;
 *	CQ: size, entries queued, errors queued, entries ever, overruns,
 *	reserved, waiters, 0; counter: value, error value, waiters, lowest
 *	threshold waited for (KFABRIC_FOREVER: none), work that waits for it,
 *	lowest threshold of that (KFABRIC_FOREVER: none), work that has become
 *	due ever, 0; completion counter: completion count, error count, largest
 *	value, attachments to endpoints, enum kfabric_comp_cntr_type, 1 with
 *	external memory, 0, 0; counters object: number of values, static points,
 *	bindings (one for each flow made with it, one for each dynamic point),
 *	0, 0, 0, 0, 0; flow: packets, bytes of these, priority, counter points,
 *	handle of its endpoint, 0, 0, 0
 *
 * Shows objects on links of the caller's network namespace: all of them with
 * CAP_NET_ADMIN there, else those of the caller's user.
 *
 * Errors: -EINVAL another class; -ENOENT no object after @after.
 */
struct kfabric_stat {
	__u32	size;
	__u32	object_class;
	__u64	after;
	__s32	pid;
	__u32	handle;
	char	link[KFABRIC_LINK_NAME_MAX];
	struct kfabric_sockaddr addr;
	__u64	v[8];
};

/* ---- Packets ------------------------------------------------------------ */

/*
 * Packet statistics.  Bytes are from the BTH to the ICRC.  A counter never
 * decreases.  New counters are added at the end.
 */
enum {
	/* packets with a valid ICRC that a QP processed */
	KFABRIC_FIGURE_RX_PACKETS = 0,
	/* bytes of these, from the BTH to the ICRC */
	KFABRIC_FIGURE_RX_BYTES = 1,
	/* packets that were sent */
	KFABRIC_FIGURE_TX_PACKETS = 2,
	/* bytes of these, from the BTH to the ICRC */
	KFABRIC_FIGURE_TX_BYTES = 3,
	/* packets that this host's stack did not send, or had no memory for */
	KFABRIC_FIGURE_TX_NOT_SENT = 4,
	/* dropped: ends before its headers do */
	KFABRIC_FIGURE_DROP_SHORT = 5,
	/* dropped: length not a multiple of 4 */
	KFABRIC_FIGURE_DROP_LENGTH = 6,
	/* dropped: transport version */
	KFABRIC_FIGURE_DROP_VERSION = 7,
	/* dropped: opcode reserved, or of a service that is not supported */
	KFABRIC_FIGURE_DROP_OPCODE = 8,
	/* dropped: P_Key */
	KFABRIC_FIGURE_DROP_PKEY = 9,
	/* dropped: more bytes of padding than of payload */
	KFABRIC_FIGURE_DROP_PAD = 10,
	/* dropped: a payload where there can be none */
	KFABRIC_FIGURE_DROP_PAYLOAD = 11,
	/* dropped: AETH syndrome */
	KFABRIC_FIGURE_DROP_SYNDROME = 12,
	/* dropped: options or extension headers of IP */
	KFABRIC_FIGURE_DROP_IP_OPTIONS = 13,
	/* dropped: a payload longer than the largest path MTU */
	KFABRIC_FIGURE_DROP_TOO_LONG = 14,
	/* dropped: no such QP */
	KFABRIC_FIGURE_DROP_NO_QP = 15,
	/* dropped: the QP speaks another transport service */
	KFABRIC_FIGURE_DROP_SERVICE = 16,
	/*
	 * dropped: not sent to the QP's own address, or a request or datagram for
	 * an address that the link has lost
	 */
	KFABRIC_FIGURE_DROP_DESTINATION = 17,
	/* dropped: not sent by the peer to which the QP is connected */
	KFABRIC_FIGURE_DROP_SOURCE = 18,
	/* dropped: the QP is not connected, or its state takes no packets */
	KFABRIC_FIGURE_DROP_STATE = 19,
	/* dropped: too many packets wait for the QP's worker */
	KFABRIC_FIGURE_DROP_INBOX_FULL = 20,
	/* dropped: the ICRC is wrong */
	KFABRIC_FIGURE_DROP_ICRC = 21,
	/* dropped: not the QP's Q key */
	KFABRIC_FIGURE_DROP_QKEY = 22,
	/* dropped: a datagram for which no receive is posted */
	KFABRIC_FIGURE_DROP_NO_RECEIVE = 23,
	/* packets that were sent again */
	KFABRIC_FIGURE_RESENT = 24,
	/* times that sending went back because the peer reported a loss */
	KFABRIC_FIGURE_RETRIES = 25,
	/* timeouts: no response came in time */
	KFABRIC_FIGURE_TIMEOUTS = 26,
	/* packets sent again earlier, in case the last one was lost */
	KFABRIC_FIGURE_PROBES = 27,
	/* requests and responses that had been received already */
	KFABRIC_FIGURE_DUPLICATES = 28,
	/* responses to what was never sent */
	KFABRIC_FIGURE_STRAYS = 29,
	/* requests behind a missing one, dropped */
	KFABRIC_FIGURE_OUT_OF_SEQUENCE = 30,
	/* acknowledgements sent */
	KFABRIC_FIGURE_ACK_TX = 31,
	/* responses received */
	KFABRIC_FIGURE_ACK_RX = 32,
	/* NAK "PSN sequence error" sent */
	KFABRIC_FIGURE_NAK_SEQUENCE_TX = 33,
	/* NAK "PSN sequence error" received */
	KFABRIC_FIGURE_NAK_SEQUENCE_RX = 34,
	/* NAK "invalid request" sent */
	KFABRIC_FIGURE_NAK_INVALID_TX = 35,
	/* NAK "invalid request" received */
	KFABRIC_FIGURE_NAK_INVALID_RX = 36,
	/* NAK "remote access error" sent */
	KFABRIC_FIGURE_NAK_ACCESS_TX = 37,
	/* NAK "remote access error" received */
	KFABRIC_FIGURE_NAK_ACCESS_RX = 38,
	/* NAK "remote operational error" sent */
	KFABRIC_FIGURE_NAK_OPERATION_TX = 39,
	/* NAK "remote operational error" received */
	KFABRIC_FIGURE_NAK_OPERATION_RX = 40,
	/* RNR NAK sent */
	KFABRIC_FIGURE_RNR_TX = 41,
	/* RNR NAK received */
	KFABRIC_FIGURE_RNR_RX = 42,
	/*
	 * dropped: a datagram to QP 1 that has no meaning here, or that a verbs
	 * device cannot take now, or a request to a listener that has not
	 * handled the requests before it
	 */
	KFABRIC_FIGURE_DROP_CM = 43,
	/* messages of connection management that had been received before */
	KFABRIC_FIGURE_CM_DUPLICATES = 44,
	/* messages of connection management that were not answered in time */
	KFABRIC_FIGURE_CM_RESENT = 45,
	/* requests for a connection that were refused: no listener */
	KFABRIC_FIGURE_CM_NO_LISTENER = 46,
	/* requests for a connection that were refused: too many wait, or no memory */
	KFABRIC_FIGURE_CM_NO_ROOM = 47,
	/*
	 * accesses of peers to memory that were refused, within the host and
	 * over the wire: unknown key, access not allowed, or bytes outside the
	 * region; of links only
	 */
	KFABRIC_FIGURE_MR_REFUSED = 48,
	/* dropped: requests further ahead than any requester's window reaches */
	KFABRIC_FIGURE_DROP_PSN = 49,
	/*
	 * dropped: packets that wait for the QPs of the QP's owner use up their
	 * share of the owner's budget of kernel memory
	 */
	KFABRIC_FIGURE_DROP_BUDGET = 50,
	/*
	 * of the received packets: those that a task or worker of the QP's
	 * own user, user namespace, memory cgroup and kind of owner processed
	 * while it was sending packets on this host, instead of the QP's worker
	 * (run to completion)
	 */
	KFABRIC_FIGURE_RX_INLINE = 51,
	/*
	 * requests for a connection that were refused: too many that may have
	 * a forged source address; their senders repeat them with a cookie
	 */
	KFABRIC_FIGURE_CM_UNPROVEN = 52,
	/*
	 * requests for a connection that were refused: the endpoint that they
	 * name has another authorization key
	 */
	KFABRIC_FIGURE_CM_KEY = 53,
	/*
	 * requests for a connection that were ignored, because accesses of
	 * their sender to memory were refused too often; it repeats them
	 */
	KFABRIC_FIGURE_CM_DELAYED = 54,
};

#define KFABRIC_MAX_FIGURES	64

/* Subjects of packet statistics. */
enum {
	KFABRIC_FIGURES_NETNS	= 0,
	KFABRIC_FIGURES_LINK	= 1,
	KFABRIC_FIGURES_EP	= 2,
};

/**
 * struct kfabric_figures - packet statistics
 * @size: sizeof(struct kfabric_figures)
 * @of: KFABRIC_FIGURES_LINK: of all QPs on a link; KFABRIC_FIGURES_EP: of the
 *	QPs of an endpoint; KFABRIC_FIGURES_NETNS: of packets that arrived for
 *	no QP in the caller's network namespace, and of connection management
 * @id: of the link (@after of struct kfabric_link_get), of the endpoint (@after
 *	of struct kfabric_stat), or 0
 * @count: out: number of counters
 * @reserved: 0
 * @values: out: by KFABRIC_FIGURE_*; 0 behind the last
 *
 * The call shows an endpoint to the same callers as KFABRIC_IOC_STAT.
 *
 * Errors: -EINVAL another @of, or an @id with KFABRIC_FIGURES_NETNS; -ENOENT no
 * such link or endpoint in the caller's network namespace, or no link at all.
 */
struct kfabric_figures {
	__u32	size;
	__u32	of;
	__u64	id;
	__u32	count;
	__u32	reserved;
	__u64	values[KFABRIC_MAX_FIGURES];
};

/* ---- The calls ---------------------------------------------------------- */

#define KFABRIC_IO(nr, type)	_IOWR(KFABRIC_IOC_TYPE, nr, type)

#define KFABRIC_IOC_QUERY	KFABRIC_IO(0x00, struct kfabric_query)
#define KFABRIC_IOC_NOP		KFABRIC_IO(0x01, struct kfabric_nop)
#define KFABRIC_IOC_LINK_ADD	KFABRIC_IO(0x02, struct kfabric_link_add)
#define KFABRIC_IOC_LINK_DEL	KFABRIC_IO(0x03, struct kfabric_link_del)
#define KFABRIC_IOC_LINK_GET	KFABRIC_IO(0x04, struct kfabric_link_get)
#define KFABRIC_IOC_GETINFO	KFABRIC_IO(0x05, struct kfabric_getinfo)
#define KFABRIC_IOC_STAT	KFABRIC_IO(0x06, struct kfabric_stat)
#define KFABRIC_IOC_FIGURES	KFABRIC_IO(0x07, struct kfabric_figures)

#define KFABRIC_IOC_CLOSE	KFABRIC_IO(0x08, struct kfabric_close)
#define KFABRIC_IOC_GETWAIT	KFABRIC_IO(0x09, struct kfabric_getwait)
#define KFABRIC_IOC_OPSFLAG	KFABRIC_IO(0x0a, struct kfabric_opsflag)
#define KFABRIC_IOC_BIND	KFABRIC_IO(0x0b, struct kfabric_bind)

#define KFABRIC_IOC_FABRIC_OPEN	KFABRIC_IO(0x10, struct kfabric_fabric_open)
#define KFABRIC_IOC_DOMAIN_OPEN	KFABRIC_IO(0x11, struct kfabric_domain_open)
#define KFABRIC_IOC_QUERY_ATOMIC KFABRIC_IO(0x12, struct kfabric_query_atomic)

#define KFABRIC_IOC_EQ_OPEN	KFABRIC_IO(0x18, struct kfabric_eq_open)
#define KFABRIC_IOC_EQ_READ	KFABRIC_IO(0x19, struct kfabric_eq_read)
#define KFABRIC_IOC_EQ_READERR	KFABRIC_IO(0x1a, struct kfabric_eq_readerr)
#define KFABRIC_IOC_EQ_WRITE	KFABRIC_IO(0x1b, struct kfabric_eq_write)

#define KFABRIC_IOC_AV_OPEN	KFABRIC_IO(0x20, struct kfabric_av_open)
#define KFABRIC_IOC_AV_INSERT	KFABRIC_IO(0x21, struct kfabric_av_insert)
#define KFABRIC_IOC_AV_INSERTSVC KFABRIC_IO(0x22, struct kfabric_av_insertsvc)
#define KFABRIC_IOC_AV_REMOVE	KFABRIC_IO(0x23, struct kfabric_av_remove)
#define KFABRIC_IOC_AV_LOOKUP	KFABRIC_IO(0x24, struct kfabric_av_lookup)
#define KFABRIC_IOC_AV_STRADDR	KFABRIC_IO(0x25, struct kfabric_av_straddr)

#define KFABRIC_IOC_MR_REG	KFABRIC_IO(0x28, struct kfabric_mr_reg)

#define KFABRIC_IOC_CQ_OPEN	KFABRIC_IO(0x30, struct kfabric_cq_open)
#define KFABRIC_IOC_CQ_READ	KFABRIC_IO(0x31, struct kfabric_cq_read)
#define KFABRIC_IOC_CQ_READERR	KFABRIC_IO(0x32, struct kfabric_cq_readerr)
#define KFABRIC_IOC_CQ_SIGNAL	KFABRIC_IO(0x33, struct kfabric_cq_signal)
#define KFABRIC_IOC_CQ_STRERROR	KFABRIC_IO(0x34, struct kfabric_cq_strerror)

#define KFABRIC_IOC_CNTR_OPEN	KFABRIC_IO(0x38, struct kfabric_cntr_open)
#define KFABRIC_IOC_CNTR_READ	KFABRIC_IO(0x39, struct kfabric_cntr_read)
#define KFABRIC_IOC_CNTR_MODIFY	KFABRIC_IO(0x3a, struct kfabric_cntr_modify)
#define KFABRIC_IOC_CNTR_WAIT	KFABRIC_IO(0x3b, struct kfabric_cntr_wait)

#define KFABRIC_IOC_WAIT_OPEN	KFABRIC_IO(0x40, struct kfabric_wait_open)
#define KFABRIC_IOC_WAIT	KFABRIC_IO(0x41, struct kfabric_wait)
#define KFABRIC_IOC_POLL_OPEN	KFABRIC_IO(0x44, struct kfabric_poll_open)
#define KFABRIC_IOC_POLL_CHANGE	KFABRIC_IO(0x45, struct kfabric_poll_change)
#define KFABRIC_IOC_POLL	KFABRIC_IO(0x46, struct kfabric_poll)

#define KFABRIC_IOC_EP_OPEN	KFABRIC_IO(0x48, struct kfabric_ep_open)
#define KFABRIC_IOC_EP_ENABLE	KFABRIC_IO(0x49, struct kfabric_ep_enable)
#define KFABRIC_IOC_EP_NAME	KFABRIC_IO(0x4a, struct kfabric_ep_name)
#define KFABRIC_IOC_EP_CANCEL	KFABRIC_IO(0x4b, struct kfabric_ep_cancel)
#define KFABRIC_IOC_EP_OPT	KFABRIC_IO(0x4c, struct kfabric_ep_opt)

#define KFABRIC_IOC_EP_QP	KFABRIC_IO(0x4d, struct kfabric_ep_qp)
#define KFABRIC_IOC_EP_CONNECT_QP KFABRIC_IO(0x4e, struct kfabric_ep_connect_qp)

#define KFABRIC_IOC_POST	KFABRIC_IO(0x50, struct kfabric_post)
#define KFABRIC_IOC_QUEUE_WORK	KFABRIC_IO(0x51, struct kfabric_queue_work)
#define KFABRIC_IOC_CANCEL_WORK	KFABRIC_IO(0x52, struct kfabric_cancel_work)
#define KFABRIC_IOC_FLUSH_WORK	KFABRIC_IO(0x53, struct kfabric_flush_work)
#define KFABRIC_IOC_EP_ALIAS	KFABRIC_IO(0x54, struct kfabric_ep_alias)
#define KFABRIC_IOC_STX_OPEN	KFABRIC_IO(0x55, struct kfabric_stx_open)
#define KFABRIC_IOC_SRX_OPEN	KFABRIC_IO(0x56, struct kfabric_srx_open)

#define KFABRIC_IOC_PEP_OPEN	KFABRIC_IO(0x58, struct kfabric_pep_open)
#define KFABRIC_IOC_PEP_LISTEN	KFABRIC_IO(0x59, struct kfabric_pep_listen)
#define KFABRIC_IOC_PEP_REJECT	KFABRIC_IO(0x5a, struct kfabric_pep_reject)
#define KFABRIC_IOC_EP_CONNECT	KFABRIC_IO(0x5b, struct kfabric_ep_connect)
#define KFABRIC_IOC_EP_ACCEPT	KFABRIC_IO(0x5c, struct kfabric_ep_accept)
#define KFABRIC_IOC_EP_SHUTDOWN	KFABRIC_IO(0x5d, struct kfabric_ep_shutdown)
#define KFABRIC_IOC_EP_PEER	KFABRIC_IO(0x5e, struct kfabric_ep_peer)

#define KFABRIC_IOC_COMP_CNTR_CAPS KFABRIC_IO(0x60, struct kfabric_comp_cntr_caps)
#define KFABRIC_IOC_COMP_CNTR_CREATE KFABRIC_IO(0x61, struct kfabric_comp_cntr_create)
#define KFABRIC_IOC_COMP_CNTR_MODIFY KFABRIC_IO(0x62, struct kfabric_comp_cntr_modify)
#define KFABRIC_IOC_COMP_CNTR_READ KFABRIC_IO(0x63, struct kfabric_comp_cntr_read)
#define KFABRIC_IOC_COMP_CNTR_ATTACH KFABRIC_IO(0x64, struct kfabric_comp_cntr_attach)
#define KFABRIC_IOC_SEP_OPEN	KFABRIC_IO(0x68, struct kfabric_sep_open)
#define KFABRIC_IOC_SEP_CONTEXT	KFABRIC_IO(0x69, struct kfabric_sep_context)

#define KFABRIC_IOC_COUNTERS_OPEN KFABRIC_IO(0x70, struct kfabric_counters_open)
#define KFABRIC_IOC_COUNTERS_ATTACH KFABRIC_IO(0x71, struct kfabric_counters_attach)
#define KFABRIC_IOC_COUNTERS_READ KFABRIC_IO(0x72, struct kfabric_counters_read)
#define KFABRIC_IOC_FLOW_OPEN	KFABRIC_IO(0x73, struct kfabric_flow_open)

#endif /* _UAPI_KFABRIC_H */
