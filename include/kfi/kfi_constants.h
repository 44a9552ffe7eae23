/* SPDX-License-Identifier: GPL-2.0 */
/*
 * Capabilities, flags and enumerators of kfabric 1.7.
 *
 * kfabric.h includes this file; consumers need not.  The numbers are part of
 * the binary interface between modules.  scripts/check-layout compares them
 * with those of version 1.7 and of the ioctl interface.
 *
 * Not every provider supports every capability and flag: kfi_getinfo() tells
 * what there is.
 */
#ifndef _KFI_CONSTANTS_H
#define _KFI_CONSTANTS_H

#include <linux/bits.h>
#include <linux/types.h>

/* ---- Versions ------------------------------------------------------------ */

#define KFI_MAJOR_VERSION	1
#define KFI_MINOR_VERSION	7

/* A version as one number, as kfi_version() and @version arguments have it. */
#define KFI_VERSION(major, minor)	((u32)(major) << 16 | (u32)(minor))
#define KFI_MAJOR(version)		((u32)(version) >> 16)
#define KFI_MINOR(version)		((u32)(version) & 0xffff)
#define KFI_VERSION_GE(v1, v2)		((u32)(v1) >= (u32)(v2))
#define KFI_VERSION_LT(v1, v2)		((u32)(v1) < (u32)(v2))

/* ---- Capabilities and kinds of operations -------------------------------- */

#define KFI_MSG			BIT_ULL(1)	/* messages */
#define KFI_RMA			BIT_ULL(2)	/* remote memory access */
#define KFI_TAGGED		BIT_ULL(3)	/* tagged messages */
#define KFI_ATOMIC		BIT_ULL(4)	/* atomics */
#define KFI_ATOMICS		KFI_ATOMIC
#define KFI_MULTICAST		BIT_ULL(5)
#define KFI_TAGGED_RMA		BIT_ULL(6)	/* RMA to tagged receives: see kfi_rma.h */
/* Directions.  Without one, a kind has all of its directions. */
#define KFI_READ		BIT_ULL(8)
#define KFI_WRITE		BIT_ULL(9)
#define KFI_RECV		BIT_ULL(10)
#define KFI_SEND		BIT_ULL(11)
#define KFI_TRANSMIT		KFI_SEND
#define KFI_REMOTE_READ		BIT_ULL(12)
#define KFI_REMOTE_WRITE	BIT_ULL(13)

/* ---- Flags of operations and completions --------------------------------- */

#define KFI_MULTI_RECV		BIT_ULL(16)	/* a buffer for many messages */
#define KFI_REMOTE_CQ_DATA	BIT_ULL(17)	/* carries data for the peer's CQ */
#define KFI_MORE		BIT_ULL(18)	/* more operations follow at once */
#define KFI_PEEK		BIT_ULL(19)	/* look, do not take */
#define KFI_TRIGGER		BIT_ULL(20)	/* starts when a counter is ready */
#define KFI_FENCE		BIT_ULL(21)	/* after all earlier operations */
#define KFI_COMPLETION		BIT_ULL(24)	/* make a CQ entry */
#define KFI_EVENT		KFI_COMPLETION
#define KFI_INJECT		BIT_ULL(25)	/* the buffer may be reused at once */
#define KFI_INJECT_COMPLETE	BIT_ULL(26)	/* complete: buffer may be reused */
#define KFI_TRANSMIT_COMPLETE	BIT_ULL(27)	/* complete: it does not get lost */
#define KFI_DELIVERY_COMPLETE	BIT_ULL(28)	/* complete: it is at its target */
#define KFI_AFFINITY		BIT_ULL(29)	/* signaling_vector is valid */
#define KFI_COMMIT_COMPLETE	BIT_ULL(30)	/* complete: it is persistent */
#define KFI_TAGGED_MULTI_RECV	BIT_ULL(31)	/* a tagged multi-receive buffer */

/*
 * Flags of objects and calls, from the high end.  A bit may mean different
 * things to different calls.
 */
#define KFI_RMA_PMEM		BIT_ULL(49)	/* RMA to persistent memory */
#define KFI_SOURCE_ERR		BIT_ULL(50)	/* unknown sources are errors */
#define KFI_LOCAL_COMM		BIT_ULL(51)	/* peers on the same host */
#define KFI_REMOTE_COMM		BIT_ULL(52)	/* peers on other hosts */
#define KFI_CONTEXT2		BIT_ULL(52)	/* mode: struct kfi_context2 */
#define KFI_SHARED_AV		BIT_ULL(53)
#define KFI_RESTRICTED_COMP	BIT_ULL(53)	/* mode */
#define KFI_PROV_ATTR_ONLY	BIT_ULL(54)	/* getinfo: only providers */
#define KFI_NOTIFY_FLAGS_ONLY	BIT_ULL(54)	/* mode */
#define KFI_NUMERICHOST		BIT_ULL(55)	/* getinfo: node is a number */
#define KFI_LOCAL_MR		BIT_ULL(55)	/* mode */
#define KFI_RMA_EVENT		BIT_ULL(56)	/* remote accesses are counted */
#define KFI_RX_CQ_DATA		BIT_ULL(56)	/* mode: CQ data use a receive */
#define KFI_SOURCE		BIT_ULL(57)	/* getinfo: node is one's own */
#define KFI_ASYNC_IOV		BIT_ULL(57)	/* mode */
#define KFI_NAMED_RX_CTX	BIT_ULL(58)	/* RX contexts have addresses */
#define KFI_DISCARD		BIT_ULL(58)	/* drop the claimed message */
#define KFI_SYNC_ERR		BIT_ULL(58)	/* av_insert: an error each */
#define KFI_MSG_PREFIX		BIT_ULL(58)	/* mode */
#define KFI_DIRECTED_RECV	BIT_ULL(59)	/* receives name their source */
#define KFI_CLAIM		BIT_ULL(59)	/* keep the message peeked at */
#define KFI_CONTEXT		BIT_ULL(59)	/* mode: struct kfi_context */
#define KFI_REG_MR		BIT_ULL(59)	/* domain bind: async registration */
#define KFI_SELECTIVE_COMPLETION BIT_ULL(59)	/* CQ bind: entries on request */
#define KFI_SYMMETRIC		BIT_ULL(59)	/* AV: the same at all peers */

/* Values of all ones. */
#define KFI_ADDR_UNSPEC		(~0ULL)	/* any source */
#define KFI_ADDR_NOTAVAIL	(~0ULL)	/* the source is unknown */
#define KFI_KEY_NOTAVAIL	(~0ULL)	/* the region is not enabled */
#define KFI_SHARED_CONTEXT	(~0ULL)	/* tx_ctx_cnt, rx_ctx_cnt: shared */

/* Enumerators and commands of a provider's own have this bit. */
#define KFI_PROV_SPECIFIC	BIT(31)

/* Memory registration modes (mr_mode). */
#define KFI_MR_LOCAL		BIT(1)	/* local buffers must be registered */
#define KFI_MR_RAW		BIT(2)	/* keys are longer than 64 bits */
#define KFI_MR_VIRT_ADDR	BIT(3)	/* peers use virtual addresses */
#define KFI_MR_PROV_KEY		BIT(4)	/* the provider chooses keys */
#define KFI_MR_RMA_EVENT	BIT(5)	/* counted regions are enabled */
#define KFI_MR_ENDPOINT		BIT(6)	/* regions are bound to endpoints */

/*
 * Orders towards one peer (msg_order): a pair "later after earlier" of R(ead),
 * W(rite), S(end) that stays in order.
 */
#define KFI_ORDER_NONE		0
#define KFI_ORDER_RAR		BIT(0)
#define KFI_ORDER_RAW		BIT(1)
#define KFI_ORDER_RAS		BIT(2)
#define KFI_ORDER_WAR		BIT(3)
#define KFI_ORDER_WAW		BIT(4)
#define KFI_ORDER_WAS		BIT(5)
#define KFI_ORDER_SAR		BIT(6)
#define KFI_ORDER_SAW		BIT(7)
#define KFI_ORDER_SAS		BIT(8)
#define KFI_ORDER_STRICT	0x1FF
#define KFI_ORDER_DATA		BIT(16)

/* Lengths of texts, with their NUL. */
enum {
	KFI_PATH_MAX	= 256,
	KFI_NAME_MAX	= 64,
	KFI_VERSION_MAX	= 64,
};

/* ---- Enumerators of attributes ------------------------------------------- */

/* Address formats (addr_format). */
enum {
	KFI_FORMAT_UNSPEC	= 0,
	KFI_SOCKADDR		= 1,	/* struct sockaddr: IPv4 or IPv6 */
	KFI_SOCKADDR_IN		= 2,	/* struct sockaddr_in */
	KFI_SOCKADDR_IN6	= 3,	/* struct sockaddr_in6 */
	KFI_SOCKADDR_IB		= 4,
	KFI_ADDR_GNI		= 5,
	KFI_ADDR_CXI		= 6,
};

/**
 * enum kfi_ep_type - types of endpoints
 * @KFI_EP_UNSPEC: hints: any
 * @KFI_EP_MSG: connected, reliable
 * @KFI_EP_DGRAM: datagrams
 * @KFI_EP_RDM: reliable datagrams
 * @KFI_EP_SOCK_STREAM: byte stream
 * @KFI_EP_SOCK_DGRAM: datagrams of a socket
 */
enum kfi_ep_type {
	KFI_EP_UNSPEC		= 0,
	KFI_EP_MSG		= 1,
	KFI_EP_DGRAM		= 2,
	KFI_EP_RDM		= 3,
	KFI_EP_SOCK_STREAM	= 4,
	KFI_EP_SOCK_DGRAM	= 5,
};

/* Wire protocols (protocol of struct kfi_ep_attr). */
enum {
	KFI_PROTO_UNSPEC	= 0,
	KFI_PROTO_RDMA_CM_IB_RC	= 1,
	KFI_PROTO_IWARP		= 2,
	KFI_PROTO_IB_UD		= 3,
	KFI_PROTO_UDP		= 4,
	KFI_PROTO_SOCK_TCP	= 5,
	KFI_PROTO_IWARP_RDM	= 6,
	KFI_PROTO_IB_RDM	= 7,
	KFI_PROTO_GNI		= 8,
	KFI_PROTO_CXI		= 9,
};

/* Traffic classes (tclass): a DSCP value with KFI_TC_DSCP, or a label. */
enum {
	KFI_TC_UNSPEC		= 0,
	KFI_TC_DSCP		= 0x100,
	KFI_TC_LABEL		= 0x200,
	KFI_TC_BEST_EFFORT	= KFI_TC_LABEL,
	KFI_TC_LOW_LATENCY	= 0x201,
	KFI_TC_DEDICATED_ACCESS	= 0x202,
	KFI_TC_BULK_DATA	= 0x203,
	KFI_TC_SCAVENGER	= 0x204,
	KFI_TC_NETWORK_CTRL	= 0x205,
};

/**
 * enum kfi_av_type - what an address vector's addresses are
 * @KFI_AV_UNSPEC: the provider chooses
 * @KFI_AV_MAP: values that the provider chooses
 * @KFI_AV_TABLE: 0, 1, 2, ... in the order of insertion
 */
enum kfi_av_type {
	KFI_AV_UNSPEC	= 0,
	KFI_AV_MAP	= 1,
	KFI_AV_TABLE	= 2,
};

/**
 * enum kfi_threading - which calls of a consumer may overlap
 * @KFI_THREAD_UNSPEC: the provider chooses
 * @KFI_THREAD_SAFE: all
 * @KFI_THREAD_FID: those for different objects
 * @KFI_THREAD_DOMAIN: those for different domains
 * @KFI_THREAD_COMPLETION: those for different completion queues and counters
 * @KFI_THREAD_ENDPOINT: those for different endpoints
 */
enum kfi_threading {
	KFI_THREAD_UNSPEC	= 0,
	KFI_THREAD_SAFE		= 1,
	KFI_THREAD_FID		= 2,
	KFI_THREAD_DOMAIN	= 3,
	KFI_THREAD_COMPLETION	= 4,
	KFI_THREAD_ENDPOINT	= 5,
};

/**
 * enum kfi_progress - who makes operations progress
 * @KFI_PROGRESS_UNSPEC: the provider chooses
 * @KFI_PROGRESS_AUTO: the provider
 * @KFI_PROGRESS_MANUAL: calls of the consumer
 */
enum kfi_progress {
	KFI_PROGRESS_UNSPEC	= 0,
	KFI_PROGRESS_AUTO	= 1,
	KFI_PROGRESS_MANUAL	= 2,
};

/**
 * enum kfi_resource_mgmt - whether the provider keeps queues from overrunning
 * @KFI_RM_UNSPEC: the provider chooses
 * @KFI_RM_DISABLED: it does not
 * @KFI_RM_ENABLED: it does
 */
enum kfi_resource_mgmt {
	KFI_RM_UNSPEC	= 0,
	KFI_RM_DISABLED	= 1,
	KFI_RM_ENABLED	= 2,
};

/**
 * enum kfi_iov_type - which list of memory a union has
 * @KFI_KVEC: struct kvec: kernel virtual addresses
 * @KFI_BVEC: struct bio_vec: pages
 * @KFI_SGL: struct scatterlist
 */
enum kfi_iov_type {
	KFI_KVEC	= 1,
	KFI_BVEC	= 2,
	KFI_SGL		= 3,
};

/* ---- Atomics ------------------------------------------------------------- */

/**
 * enum kfi_datatype - types of what atomics work on
 * @KFI_INT8: signed, 8 bits
 * @KFI_UINT8: unsigned, 8 bits
 * @KFI_INT16: signed, 16 bits
 * @KFI_UINT16: unsigned, 16 bits
 * @KFI_INT32: signed, 32 bits
 * @KFI_UINT32: unsigned, 32 bits
 * @KFI_INT64: signed, 64 bits
 * @KFI_UINT64: unsigned, 64 bits
 * @KFI_FLOAT: float
 * @KFI_DOUBLE: double
 * @KFI_FLOAT_COMPLEX: two floats
 * @KFI_DOUBLE_COMPLEX: two doubles
 * @KFI_LONG_DOUBLE: long double
 * @KFI_LONG_DOUBLE_COMPLEX: two long doubles
 * @KFI_DATATYPE_LAST: their number, not a type
 */
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
	KFI_DATATYPE_LAST	= 14,
};

/**
 * enum kfi_op - operations of atomics
 * @KFI_MIN: the smaller
 * @KFI_MAX: the larger
 * @KFI_SUM: the sum
 * @KFI_PROD: the product
 * @KFI_LOR: logical or
 * @KFI_LAND: logical and
 * @KFI_BOR: bitwise or
 * @KFI_BAND: bitwise and
 * @KFI_LXOR: logical exclusive or
 * @KFI_BXOR: bitwise exclusive or
 * @KFI_ATOMIC_READ: the old value, unchanged
 * @KFI_ATOMIC_WRITE: the operand
 * @KFI_CSWAP: the operand, if the old value equals the compared one
 * @KFI_CSWAP_NE: the operand, if the compared value is not equal to the old
 * @KFI_CSWAP_LE: the operand, if the compared value is at most the old
 * @KFI_CSWAP_LT: the operand, if the compared value is below the old
 * @KFI_CSWAP_GE: the operand, if the compared value is at least the old
 * @KFI_CSWAP_GT: the operand, if the compared value is above the old
 * @KFI_MSWAP: the operand where the compared value has ones, else the old value
 * @KFI_ATOMIC_OP_LAST: their number, not an operation
 */
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
	KFI_ATOMIC_OP_LAST	= 19,
};

/* ---- Objects ------------------------------------------------------------- */

/* Classes of objects (fclass of struct kfid). */
enum {
	KFI_CLASS_UNSPEC	= 0,
	KFI_CLASS_FABRIC	= 1,
	KFI_CLASS_DOMAIN	= 2,
	KFI_CLASS_EP		= 3,
	KFI_CLASS_SEP		= 4,	/* scalable endpoint */
	KFI_CLASS_RX_CTX	= 5,
	KFI_CLASS_SRX_CTX	= 6,	/* shared receive context */
	KFI_CLASS_TX_CTX	= 7,
	KFI_CLASS_STX_CTX	= 8,	/* shared transmit context */
	KFI_CLASS_PEP		= 9,	/* passive endpoint */
	KFI_CLASS_INTERFACE	= 10,
	KFI_CLASS_AV		= 11,
	KFI_CLASS_MR		= 12,
	KFI_CLASS_EQ		= 13,
	KFI_CLASS_CQ		= 14,
	KFI_CLASS_CNTR		= 15,
	KFI_CLASS_WAIT		= 16,
	KFI_CLASS_POLL		= 17,
	KFI_CLASS_CONNREQ	= 18,	/* a request for a connection */
};

/* Commands of kfi_control(), with the type of its argument. */
enum {
	KFI_GETFIDFLAG	= 0,	/* u64 * */
	KFI_SETFIDFLAG	= 1,	/* u64 * */
	KFI_GETOPSFLAG	= 2,	/* u64 * */
	KFI_SETOPSFLAG	= 3,	/* u64 * */
	KFI_ALIAS	= 4,	/* struct kfi_alias * */
	KFI_GETWAIT	= 5,	/* void **: the wait_queue_head_t */
	KFI_ENABLE	= 6,	/* NULL */
	KFI_BACKLOG	= 7,	/* int *: see kfi_listen() */
	KFI_GET_RAW_MR	= 8,	/* struct kfi_mr_raw_attr * */
	KFI_MAP_RAW_MR	= 9,	/* struct kfi_mr_map_raw * */
	KFI_UNMAP_KEY	= 10,	/* u64 * */
	KFI_QUEUE_WORK	= 11,	/* struct kfi_deferred_work * */
	KFI_CANCEL_WORK	= 12,	/* struct kfi_deferred_work * */
	KFI_FLUSH_WORK	= 13,	/* struct kfid_cntr *, or NULL */
	KFI_REFRESH	= 14,	/* struct kfi_mr_modify * */
};

#endif /* _KFI_CONSTANTS_H */
