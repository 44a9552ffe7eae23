/* SPDX-License-Identifier: GPL-2.0 */
/*
 * The functions that the front end for verbs offers to kfabric_ib.ko, which
 * connects them with ib_core.
 *
 * They are in Rust (verbs/), and exported by exports.c. bindgen generates
 * bindings from this header (see Kbuild), so that the definitions are compared
 * with these prototypes. Nothing here is a type of ib_core: kfabric.ko does not
 * depend on it.
 *
 * An object of the front end is a handle. The function that creates it gives
 * the caller a reference, and the function that ends it takes that reference.
 * No other function may be running with the handle then. Errors are negative
 * numbers, or pointers as by ERR_PTR().
 */
#ifndef _KFABRIC_VERBS_BINDINGS_H
#define _KFABRIC_VERBS_BINDINGS_H

#include <linux/types.h>
#include <uapi/rdma/kfabric-abi.h>

struct net;
struct vm_area_struct;

struct kfabric_verbs_comp_cntr;
struct kfabric_verbs_context;
struct kfabric_verbs_counters;
struct kfabric_verbs_cq;
struct kfabric_verbs_cq_buf;
struct kfabric_verbs_device;
struct kfabric_verbs_flow;
struct kfabric_verbs_mr;
struct kfabric_verbs_pd;
struct kfabric_verbs_qp;
struct kfabric_verbs_srq;

/**
 * struct kfabric_verbs_port - the port of a device at one moment
 * @path_mtu: the path MTU that the interface allows, as enum ib_mtu; 0: its MTU
 *            is too small
 * @max_message: the longest message, bytes
 * @gone: the interface has gone, or has moved to another namespace
 */
struct kfabric_verbs_port {
	u32	path_mtu;
	u32	max_message;
	bool	gone;
};

/**
 * struct kfabric_verbs_callbacks - the functions that objects of a device call
 * @comp: a CQ calls its completion handler
 * @cq_error: a CQ was full when an entry came
 * @srq_event: an SRQ has an event
 * @qp_event: a QP has an event
 *
 * The first argument is the cookie of the object, and @event a number of enum
 * ib_event_type. None may sleep. No spin lock is held; the limit event of an
 * SRQ is called with a mutex of a QP held. The callbacks of one CQ do not
 * overlap.
 */
struct kfabric_verbs_callbacks {
	void (*comp)(void *cq);
	void (*cq_error)(void *cq);
	void (*srq_event)(void *srq, u32 event);
	void (*qp_event)(void *qp, u32 event);
};

/**
 * struct kfabric_verbs_sge - a part of memory, as struct ib_sge
 * @addr: the address
 * @length: bytes
 * @lkey: the key of the region in which they are
 */
struct kfabric_verbs_sge {
	u64	addr;
	u32	length;
	u32	lkey;
};

/**
 * struct kfabric_verbs_wc - an entry of a CQ, as struct ib_wc
 * @wr_id: of the work request
 * @qp: the cookie of the QP
 * @qpn: the number of the QP
 * @status: KFABRIC_VERBS_WC_...
 * @opcode: KFABRIC_VERBS_OP_...
 * @vendor_err: what the status does not say
 * @byte_len: of a receive
 * @imm_or_key: immediate data in the byte order of the host, or a key that was
 *              invalidated
 * @src_qp: of a datagram
 * @flags: enum ib_wc_flags
 * @network_hdr_type: enum rdma_network_type
 */
struct kfabric_verbs_wc {
	u64	wr_id;
	void	*qp;
	u32	qpn;
	u32	status;
	u32	opcode;
	u32	vendor_err;
	u32	byte_len;
	u32	imm_or_key;
	u32	src_qp;
	u32	flags;
	u8	network_hdr_type;
};

/* Values of enum ib_wc_status that kfi_roce has */
#define KFABRIC_VERBS_WC_SUCCESS		0
#define KFABRIC_VERBS_WC_LOC_LEN_ERR		1
#define KFABRIC_VERBS_WC_LOC_QP_OP_ERR		2
#define KFABRIC_VERBS_WC_LOC_PROT_ERR		4
#define KFABRIC_VERBS_WC_WR_FLUSH_ERR		5
#define KFABRIC_VERBS_WC_BAD_RESP_ERR		7
#define KFABRIC_VERBS_WC_LOC_ACCESS_ERR		8
#define KFABRIC_VERBS_WC_REM_INV_REQ_ERR	9
#define KFABRIC_VERBS_WC_REM_ACCESS_ERR		10
#define KFABRIC_VERBS_WC_REM_OP_ERR		11
#define KFABRIC_VERBS_WC_RETRY_EXC_ERR		12
#define KFABRIC_VERBS_WC_RNR_RETRY_EXC_ERR	13

/* enum ib_wc_opcode */
#define KFABRIC_VERBS_OP_SEND			0
#define KFABRIC_VERBS_OP_RDMA_WRITE		1
#define KFABRIC_VERBS_OP_RDMA_READ		2
#define KFABRIC_VERBS_OP_COMP_SWAP		3
#define KFABRIC_VERBS_OP_FETCH_ADD		4
#define KFABRIC_VERBS_OP_LOCAL_INV		6
#define KFABRIC_VERBS_OP_REG_MR			10
#define KFABRIC_VERBS_OP_RECV			128
#define KFABRIC_VERBS_OP_RECV_RDMA_WITH_IMM	129

/* enum ib_cq_notify_flags */
#define KFABRIC_VERBS_ARM_SOLICITED		1
#define KFABRIC_VERBS_ARM_NEXT			2
#define KFABRIC_VERBS_ARM_REPORT_MISSED		4

/* enum ib_event_type */
#define KFABRIC_VERBS_EVENT_SRQ_LIMIT		15

/* enum ib_srq_attr_mask */
#define KFABRIC_VERBS_SRQ_MAX_WR		1
#define KFABRIC_VERBS_SRQ_LIMIT			2

/* enum ib_wc_flags */
#define KFABRIC_VERBS_WC_GRH			1
#define KFABRIC_VERBS_WC_WITH_IMM		2
#define KFABRIC_VERBS_WC_WITH_INVALIDATE	4
#define KFABRIC_VERBS_WC_NETWORK_HDR_TYPE	64

/* enum rdma_network_type */
#define KFABRIC_VERBS_NETWORK_IPV4		2
#define KFABRIC_VERBS_NETWORK_IPV6		3

/* What a memory region allows besides reading by its owner, as IB_ACCESS_*. */
enum kfabric_verbs_access {
	KFABRIC_VERBS_LOCAL_WRITE = 1,
	KFABRIC_VERBS_REMOTE_WRITE = 2,
	KFABRIC_VERBS_REMOTE_READ = 4,
	KFABRIC_VERBS_REMOTE_ATOMIC = 8,
};

/* The most memory regions of a PD, and bytes of one of a program. */
#define KFABRIC_VERBS_MAX_MR			1048576
#define KFABRIC_VERBS_MAX_MR_SIZE		0x10000000000ULL

/* The most pages of a memory region for fast registration. */
#define KFABRIC_VERBS_MAX_PAGES			512

/*
 * The most entries of a CQ (a power of two, as the size of a mapped CQ), the
 * most receives of a receive queue, and the most SGEs of a receive or work
 * request.
 */
#define KFABRIC_VERBS_MAX_CQE			131072
#define KFABRIC_VERBS_MAX_RECV_WR		16384
#define KFABRIC_VERBS_MAX_SGE			16

/* The most READs and atomics that a QP, or its peer, may have outstanding. */
#define KFABRIC_VERBS_MAX_RD_ATOMIC		16

/**
 * struct kfabric_verbs_srq_attr - the attributes of an SRQ
 * @max_wr: the most receives
 * @max_sge: the most SGEs of each
 * @limit: the event comes when fewer receives are left; 0: not armed
 */
struct kfabric_verbs_srq_attr {
	u32	max_wr;
	u32	max_sge;
	u32	limit;
};

/* Devices: device.rs. */
struct kfabric_verbs_device *
kfabric_verbs_device_add(struct net *net, const char *name, const char *ifname,
			 u32 ifindex,
			 const struct kfabric_verbs_callbacks *callbacks);
void kfabric_verbs_device_remove(struct kfabric_verbs_device *device);
void kfabric_verbs_device_port(const struct kfabric_verbs_device *device,
			       struct kfabric_verbs_port *port);
u32 kfabric_verbs_device_stats(const struct kfabric_verbs_device *device,
			       u64 *values, u32 count);
const char *kfabric_verbs_stat_name(u32 number);

/* Contexts of programs: context.rs. */
struct kfabric_verbs_context *
kfabric_verbs_context_alloc(struct kfabric_verbs_device *device);
void kfabric_verbs_context_free(struct kfabric_verbs_context *context);

/*
 * Mappings of the file of a context: map.rs. The pages stay while they are
 * mapped.
 */
int kfabric_verbs_mmap(struct kfabric_verbs_context *context,
		       struct vm_area_struct *vma);

/* Numbers of enum ib_wr_opcode. */
#define KFABRIC_VERBS_WR_WRITE		0
#define KFABRIC_VERBS_WR_WRITE_IMM	1
#define KFABRIC_VERBS_WR_SEND		2
#define KFABRIC_VERBS_WR_SEND_IMM	3
#define KFABRIC_VERBS_WR_READ		4
#define KFABRIC_VERBS_WR_COMPARE_SWAP	5
#define KFABRIC_VERBS_WR_FETCH_ADD	6
#define KFABRIC_VERBS_WR_LOCAL_INV	7
#define KFABRIC_VERBS_WR_SEND_INV	9
#define KFABRIC_VERBS_WR_REG_MR		32

/* enum ib_send_flags. */
#define KFABRIC_VERBS_SEND_FENCE	1
#define KFABRIC_VERBS_SEND_SIGNALED	2
#define KFABRIC_VERBS_SEND_SOLICITED	4
#define KFABRIC_VERBS_SEND_INLINE	8

/* Events of a QP, of enum ib_event_type. */
#define KFABRIC_VERBS_EVENT_QP_FATAL	1
#define KFABRIC_VERBS_EVENT_ACCESS_ERR	3
#define KFABRIC_VERBS_EVENT_COMM_EST	4
#define KFABRIC_VERBS_EVENT_SQ_DRAINED	5
#define KFABRIC_VERBS_EVENT_LAST_WQE	16

/* The bit of enum ib_qp_attr_mask that is no attribute here. */
#define KFABRIC_VERBS_QP_STATE		1

/**
 * struct kfabric_verbs_av - an address vector
 * @sgid: the address that packets come from; IPv4 as an IPv4-mapped address
 * @dgid: the address that they go to
 * @traffic_class: that of the packets; over IPv4 their type of service
 */
struct kfabric_verbs_av {
	u8	sgid[16];
	u8	dgid[16];
	u8	traffic_class;
};

/* Types of QPs, numbers of enum ib_qp_type. */
#define KFABRIC_VERBS_QP_GSI		1
#define KFABRIC_VERBS_QP_RC		2
#define KFABRIC_VERBS_QP_UD		4

/**
 * struct kfabric_verbs_qp_init - what a QP is to be
 * @send_cq: where its work requests complete
 * @recv_cq: where its receives complete
 * @srq: where its receives come from, or NULL
 * @cookie: the name of the QP in callbacks and entries
 * @type: KFABRIC_VERBS_QP_...
 * @signal_all: all work requests are signalled
 * @max_send_wr: work requests; rounded up by the call
 * @max_recv_wr: receives; 0 with an SRQ after the call
 * @max_send_sge: SGEs of a work request
 * @max_recv_sge: SGEs of a receive; 0 with an SRQ after the call
 * @max_inline: inline bytes of a work request
 */
struct kfabric_verbs_qp_init {
	struct kfabric_verbs_cq		*send_cq;
	struct kfabric_verbs_cq		*recv_cq;
	struct kfabric_verbs_srq	*srq;
	void				*cookie;
	u32				type;
	bool				signal_all;
	u32				max_send_wr;
	u32				max_recv_wr;
	u32				max_send_sge;
	u32				max_recv_sge;
	u32				max_inline;
};

/**
 * struct kfabric_verbs_qp_attr - attributes of a QP, as struct ib_qp_attr
 * @state: the new state
 * @cur_state: as in struct ib_qp_attr
 * @path_mtu: as in struct ib_qp_attr
 * @qkey: as in struct ib_qp_attr
 * @rq_psn: as in struct ib_qp_attr
 * @sq_psn: as in struct ib_qp_attr
 * @dest_qpn: as in struct ib_qp_attr
 * @access: operations that the peer may use, as enum ib_access_flags
 * @pkey_index: as in struct ib_qp_attr
 * @port: as in struct ib_qp_attr
 * @drain_event: report that the send queue is drained
 * @max_rd_atomic: as in struct ib_qp_attr
 * @max_dest_rd_atomic: as in struct ib_qp_attr
 * @min_rnr_timer: as in struct ib_qp_attr
 * @timeout: as in struct ib_qp_attr
 * @retry_cnt: as in struct ib_qp_attr
 * @rnr_retry: as in struct ib_qp_attr
 * @av: the address vector of the peer
 */
struct kfabric_verbs_qp_attr {
	u32	state;
	u32	cur_state;
	u32	path_mtu;
	u32	qkey;
	u32	rq_psn;
	u32	sq_psn;
	u32	dest_qpn;
	u32	access;
	u16	pkey_index;
	u8	port;
	u8	drain_event;
	u8	max_rd_atomic;
	u8	max_dest_rd_atomic;
	u8	min_rnr_timer;
	u8	timeout;
	u8	retry_cnt;
	u8	rnr_retry;
	struct kfabric_verbs_av av;
};

/**
 * struct kfabric_verbs_send - a work request
 * @wr_id: the poster's ID of it
 * @remote_addr: memory of the peer, or the first address of a region to
 *               register
 * @compare_add: the value to compare with, or to add
 * @swap: the value to swap in
 * @sges: its memory; with inline data, addresses of the poster
 * @av: the address vector of the peer, for a datagram
 * @num_sge: how many SGEs
 * @opcode: KFABRIC_VERBS_WR_*
 * @flags: KFABRIC_VERBS_SEND_*
 * @imm_or_key: immediate data in the byte order of the host, or the key to
 *              invalidate
 * @rkey: the key of the peer's memory, or that of a region to register
 * @remote_qpn: the peer's QP, for a datagram
 * @remote_qkey: its Q key
 * @access: the rights of a region to register, of enum kfabric_verbs_access
 */
struct kfabric_verbs_send {
	u64				wr_id;
	u64				remote_addr;
	u64				compare_add;
	u64				swap;
	const struct kfabric_verbs_sge	*sges;
	const struct kfabric_verbs_av	*av;
	u32				num_sge;
	u32				opcode;
	u32				flags;
	u32				imm_or_key;
	u32				rkey;
	u32				remote_qpn;
	u32				remote_qkey;
	u32				access;
};

/* Queue pairs: qp.rs, modify.rs, post.rs. */
struct kfabric_verbs_qp *
kfabric_verbs_qp_create(struct kfabric_verbs_pd *pd,
			struct kfabric_verbs_qp_init *init);
void kfabric_verbs_qp_destroy(struct kfabric_verbs_qp *qp);
u32 kfabric_verbs_qp_number(const struct kfabric_verbs_qp *qp);
u32 kfabric_verbs_qp_state(const struct kfabric_verbs_qp *qp, bool *draining);
int kfabric_verbs_qp_modify(struct kfabric_verbs_qp *qp,
			    const struct kfabric_verbs_qp_attr *attr, u32 mask);
int kfabric_verbs_qp_post_send(struct kfabric_verbs_qp *qp,
			       const struct kfabric_verbs_send *send);
void kfabric_verbs_qp_post_end(struct kfabric_verbs_qp *qp);
int kfabric_verbs_qp_post_recv(struct kfabric_verbs_qp *qp, u64 wr_id,
			       const struct kfabric_verbs_sge *sges,
			       u32 num_sge);

/* PDs: pd.rs. A PD without a context is that of the device's kernel callers. */
struct kfabric_verbs_pd *
kfabric_verbs_pd_alloc(struct kfabric_verbs_device *device,
		       struct kfabric_verbs_context *context);
void kfabric_verbs_pd_free(struct kfabric_verbs_pd *pd);
int kfabric_verbs_pd_charge_ah(struct kfabric_verbs_pd *pd);
void kfabric_verbs_pd_uncharge_ah(struct kfabric_verbs_pd *pd);

/*
 * Memory regions: mr.rs, fast_mr.rs. The key, local and remote, is stored at
 * @key. @access is of enum kfabric_verbs_access.
 */
struct kfabric_verbs_mr *
kfabric_verbs_mr_user(struct kfabric_verbs_pd *pd, u64 start, u64 len,
		      u64 iova, u32 access, u32 *key);
struct kfabric_verbs_mr *
kfabric_verbs_mr_dma_buf(struct kfabric_verbs_pd *pd, int fd, u64 offset,
			 u64 len, u64 iova, u32 access, u32 *key);
struct kfabric_verbs_mr *
kfabric_verbs_mr_dma(struct kfabric_verbs_pd *pd, u32 access, u32 *key);
struct kfabric_verbs_mr *
kfabric_verbs_mr_fast(struct kfabric_verbs_pd *pd, u32 max_pages, u32 *key);
int kfabric_verbs_mr_map(struct kfabric_verbs_mr *mr, const u64 *pages,
			 u32 count, u32 page_size, u32 offset, u64 len);
void kfabric_verbs_mr_free(struct kfabric_verbs_mr *mr);

/**
 * struct kfabric_verbs_word - a word of a program's memory
 * @addr: its address, or its offset in the DMA-BUF
 * @fd: the DMA-BUF, if @is_dma_buf
 * @is_dma_buf: it is in a DMA-BUF
 */
struct kfabric_verbs_word {
	u64	addr;
	s32	fd;
	bool	is_dma_buf;
};

/**
 * struct kfabric_verbs_cntr_caps - completion counters of a program
 * @max_value: the largest value; the next one is 0
 * @max_counters: how many there may be
 * @ops: the operations that can be counted, enum ib_qp_attach_comp_cntr_op
 */
struct kfabric_verbs_cntr_caps {
	u64	max_value;
	u32	max_counters;
	u32	ops;
};

/* Entries of a completion counter, of enum ib_comp_cntr_entry. */
#define KFABRIC_VERBS_CNTR_COMP		0
#define KFABRIC_VERBS_CNTR_ERR		1

/* Changes of an entry, of enum ib_comp_cntr_modify_op. */
#define KFABRIC_VERBS_CNTR_SET		0
#define KFABRIC_VERBS_CNTR_INC		1

/* Operations that are counted, of enum ib_qp_attach_comp_cntr_op. */
#define KFABRIC_VERBS_CNTR_SEND			1
#define KFABRIC_VERBS_CNTR_RECV			2
#define KFABRIC_VERBS_CNTR_RDMA_READ		4
#define KFABRIC_VERBS_CNTR_REMOTE_RDMA_READ	8
#define KFABRIC_VERBS_CNTR_RDMA_WRITE		16
#define KFABRIC_VERBS_CNTR_REMOTE_RDMA_WRITE	32

/*
 * Completion counters: comp_cntr.rs. @words, if not NULL, are two: for the
 * completion count and for the error count. Then there is nothing to map, and
 * the offset is 0.
 */
void kfabric_verbs_comp_cntr_caps(struct kfabric_verbs_cntr_caps *caps);
struct kfabric_verbs_comp_cntr *
kfabric_verbs_comp_cntr_create(struct kfabric_verbs_context *context, u32 unit,
			       const struct kfabric_verbs_word *words);
int kfabric_verbs_comp_cntr_destroy(struct kfabric_verbs_comp_cntr *cntr);
u64 kfabric_verbs_comp_cntr_max(const struct kfabric_verbs_comp_cntr *cntr);
u64 kfabric_verbs_comp_cntr_offset(const struct kfabric_verbs_comp_cntr *cntr);
int kfabric_verbs_comp_cntr_modify(struct kfabric_verbs_comp_cntr *cntr,
				   u32 entry, u32 op, u64 value);
int kfabric_verbs_comp_cntr_read(const struct kfabric_verbs_comp_cntr *cntr,
				 u32 entry, u64 *value);
int kfabric_verbs_comp_cntr_attach(struct kfabric_verbs_qp *qp,
				   struct kfabric_verbs_comp_cntr *cntr,
				   u32 ops);

/* The most counter points of a flow, static and dynamic ones. */
#define KFABRIC_VERBS_MAX_POINTS	16

/**
 * struct kfabric_verbs_match - the values or the masks of a rule
 * @src_ip: where it comes from; an IPv4 address has 4 bytes
 * @dest_ip: where it goes to
 * @src_port: its UDP source port, in the byte order of the host
 */
struct kfabric_verbs_match {
	u8	src_ip[16];
	u8	dest_ip[16];
	u16	src_port;
};

/**
 * struct kfabric_verbs_rule - which packets belong to a flow
 * @value: the values
 * @mask: which bits are compared
 * @family: AF_INET, AF_INET6, or 0 for both
 * @priority: a packet is compared with rules of lower numbers first
 * @dont_trap: a packet of the flow can belong to later flows, too
 */
struct kfabric_verbs_rule {
	struct kfabric_verbs_match	value;
	struct kfabric_verbs_match	mask;
	u32				family;
	u32				priority;
	bool				dont_trap;
};

/* Counters and flows: flow.rs. */
struct kfabric_verbs_counters *
kfabric_verbs_counters_create(struct kfabric_verbs_context *context);
int kfabric_verbs_counters_destroy(struct kfabric_verbs_counters *counters);
int kfabric_verbs_counters_read(const struct kfabric_verbs_counters *counters,
				u64 *values, u32 count);
int kfabric_verbs_counters_attach(struct kfabric_verbs_counters *counters,
				  struct kfabric_verbs_flow *flow,
				  u32 description, u32 index);
struct kfabric_verbs_flow *
kfabric_verbs_flow_create(struct kfabric_verbs_qp *qp,
			  struct kfabric_verbs_counters *counters,
			  const struct kfabric_verbs_rule *rule);
int kfabric_verbs_flow_destroy(struct kfabric_verbs_flow *flow);

/**
 * struct kfabric_verbs_map - the memory of a CQ that its program maps
 * @offset: in the file of the device; 0: there is none
 * @size: bytes
 * @entries: for which there is room
 */
struct kfabric_verbs_map {
	u64	offset;
	u32	size;
	u32	entries;
};

/*
 * Completion queues: cq.rs. A mapped CQ has no entries to poll. A resize takes
 * two steps, between which a program is told what to map: memory for another
 * number of entries, and its exchange for that of the CQ, which takes it in any
 * case.
 */
struct kfabric_verbs_cq *
kfabric_verbs_cq_create(struct kfabric_verbs_device *device,
			struct kfabric_verbs_context *context, u32 entries,
			bool mapped, void *cookie);
void kfabric_verbs_cq_map(const struct kfabric_verbs_cq *cq,
			  struct kfabric_verbs_map *map);
struct kfabric_verbs_cq_buf *
kfabric_verbs_cq_buf_new(const struct kfabric_verbs_cq *cq, u32 entries,
			 struct kfabric_verbs_map *map);
int kfabric_verbs_cq_resize(struct kfabric_verbs_cq *cq,
			    struct kfabric_verbs_cq_buf *buf);
void kfabric_verbs_cq_buf_free(struct kfabric_verbs_cq_buf *buf);
u32 kfabric_verbs_cq_poll(struct kfabric_verbs_cq *cq, u32 count,
			  struct kfabric_verbs_wc *wc);
int kfabric_verbs_cq_arm(struct kfabric_verbs_cq *cq, u32 flags);
void kfabric_verbs_cq_destroy(struct kfabric_verbs_cq *cq);

/* Shared receive queues: srq.rs. */
struct kfabric_verbs_srq *
kfabric_verbs_srq_create(struct kfabric_verbs_pd *pd, u32 max_wr, u32 max_sge,
			 void *cookie);
int kfabric_verbs_srq_modify(struct kfabric_verbs_srq *srq, u32 mask,
			     u32 max_wr, u32 limit);
void kfabric_verbs_srq_query(struct kfabric_verbs_srq *srq,
			     struct kfabric_verbs_srq_attr *attr);
int kfabric_verbs_srq_post(struct kfabric_verbs_srq *srq, u64 wr_id,
			   const struct kfabric_verbs_sge *sges, u32 count);
void kfabric_verbs_srq_destroy(struct kfabric_verbs_srq *srq);

#endif /* _KFABRIC_VERBS_BINDINGS_H */
