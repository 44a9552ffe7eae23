/* SPDX-License-Identifier: (GPL-2.0 WITH Linux-syscall-note) OR BSD-2-Clause */
/*
 * What a provider for rdma-core and kfabric_ib.ko exchange, besides what every
 * device of the RDMA subsystem has.
 */
#ifndef _UAPI_RDMA_KFABRIC_ABI_H
#define _UAPI_RDMA_KFABRIC_ABI_H

#include <linux/types.h>
#include <rdma/ib_user_ioctl_cmds.h>

/* The driver; not in enum rdma_driver_id. */
#define KFABRIC_IB_DRIVER_ID	0x6b66

/* The version of this interface, as /sys/class/infiniband_verbs has it. */
#define KFABRIC_IB_ABI_VERSION	1

/**
 * struct kfabric_ib_create_cq - how to create a CQ
 * @flags: KFABRIC_IB_CQ_MAPPED: its entries are read from mapped memory; else by
 *         calls
 * @reserved: must be zero
 *
 * A call without input means zeros.
 */
struct kfabric_ib_create_cq {
	__u32	flags;
	__u32	reserved;
};

#define KFABRIC_IB_CQ_MAPPED	(1U << 0)

/**
 * struct kfabric_ib_cq_resp - the memory of a CQ that was created or resized
 * @mmap_offset: for mmap(2) with the file of the device, read and write, shared;
 *               0 for a CQ that is not mapped
 * @mmap_size: bytes to map
 * @entries: size of the ring, a power of two
 */
struct kfabric_ib_cq_resp {
	__aligned_u64	mmap_offset;
	__u32		mmap_size;
	__u32		entries;
};

/**
 * struct kfabric_ib_cq_ring - head of the memory of a mapped CQ
 * @tail: entries that were ever written; written by the kernel with release
 *        semantics
 * @reserved: not used
 * @head: entries that were ever taken; written by the program with release
 *        semantics, and not before it has read the entries
 * @reserved2: not used
 *
 * Entry n is in slot n modulo the size of the ring. The slots follow this head.
 * A value of @head that is below the last one or above @tail has no effect.
 */
struct kfabric_ib_cq_ring {
	__aligned_u64	tail;
	__aligned_u64	reserved[7];
	__aligned_u64	head;
	__aligned_u64	reserved2[7];
};

/**
 * struct kfabric_ib_cqe - an entry of a mapped CQ
 * @wr_id: of the work request
 * @status: enum ib_uverbs_wc_status, the values of enum ibv_wc_status
 * @opcode: enum ib_uverbs_wc_opcode; a receive has 128 or more
 * @qp_num: the QP of the work request
 * @src_qp: the QP that a datagram came from
 * @byte_len: bytes that were received, or read
 * @imm_or_key: immediate data in the byte order of the host, or the key of the
 *              region that was invalidated
 * @wc_flags: enum ibv_wc_flags
 * @reserved: not used
 * @reserved2: not used
 */
struct kfabric_ib_cqe {
	__aligned_u64	wr_id;
	__u32		status;
	__u32		opcode;
	__u32		qp_num;
	__u32		src_qp;
	__u32		byte_len;
	__u32		imm_or_key;
	__u32		wc_flags;
	__u32		reserved;
	__aligned_u64	reserved2[3];
};

/* IBV_WC_WITH_INV of <infiniband/verbs.h>, for @wc_flags; the kernel's differs. */
#define KFABRIC_IB_WC_WITH_INV	(1U << 3)

/* What a completion counter counts. */
enum kfabric_ib_comp_cntr_unit {
	KFABRIC_IB_COMP_CNTR_UNIT_WRS,
	KFABRIC_IB_COMP_CNTR_UNIT_BYTES,
};

/*
 * Attributes of UVERBS_METHOD_COMP_CNTR_CREATE. All are optional. The unit is a
 * number of 32 or 64 bits. A counter has memory of the program if both buffers
 * are given, each a struct ib_uverbs_buffer_desc for 8 bytes that are aligned to
 * 8; one alone is refused.
 */
enum kfabric_ib_comp_cntr_create_attrs {
	KFABRIC_IB_ATTR_CREATE_COMP_CNTR_UNIT = (1U << UVERBS_ID_NS_SHIFT),
	KFABRIC_IB_ATTR_CREATE_COMP_CNTR_COMP_BUFFER,
	KFABRIC_IB_ATTR_CREATE_COMP_CNTR_ERR_BUFFER,
	KFABRIC_IB_ATTR_CREATE_COMP_CNTR_RESP,
};

/**
 * struct kfabric_ib_comp_cntr_resp - a completion counter that was created
 * @max_value: the largest value; the next increment wraps to zero
 * @mmap_offset: for mmap(2) with the file of the device, read only, of one page:
 *               the completion count and the error count, 8 bytes each; 0 for a counter
 *               with memory of the program
 */
struct kfabric_ib_comp_cntr_resp {
	__aligned_u64	max_value;
	__aligned_u64	mmap_offset;
};

/* A method of UVERBS_OBJECT_COUNTERS. */
enum kfabric_ib_counters_methods {
	KFABRIC_IB_METHOD_COUNTERS_ATTACH = (1U << UVERBS_ID_NS_SHIFT),
};

/* What a counter of counters counts: the values of enum ibv_counter_description. */
enum kfabric_ib_counter_description {
	KFABRIC_IB_COUNTER_PACKETS,
	KFABRIC_IB_COUNTER_BYTES,
};

/*
 * Attributes of KFABRIC_IB_METHOD_COUNTERS_ATTACH: the counters; a flow of the
 * program, for a dynamic attach to a live flow, or none for a static one; enum
 * kfabric_ib_counter_description; the index in the array that a read returns.
 * Both numbers have 32 or 64 bits.
 */
enum kfabric_ib_counters_attach_attrs {
	KFABRIC_IB_ATTR_COUNTERS_ATTACH_COUNTERS = (1U << UVERBS_ID_NS_SHIFT),
	KFABRIC_IB_ATTR_COUNTERS_ATTACH_FLOW,
	KFABRIC_IB_ATTR_COUNTERS_ATTACH_DESCRIPTION,
	KFABRIC_IB_ATTR_COUNTERS_ATTACH_INDEX,
};

#endif /* _UAPI_RDMA_KFABRIC_ABI_H */
