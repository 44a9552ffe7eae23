/* SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause */
/*
 * What programs can do with a device of kfabric beyond libibverbs: completion
 * counters in memory of the program, and reading a counter without a call.
 *
 * With rdma-core 56, whose <infiniband/verbs.h> has no completion counters, this
 * header also has the types and functions of rdma-core 65 for them, by the same
 * names: ibv_create_comp_cntr() and so on. A program links to libkfabric and to
 * libibverbs. KFDV_HAVE_IBV_COMP_CNTR, if a program defines it, says with 1 or 0
 * whether <infiniband/verbs.h> has them; else the header finds out.
 *
 * All functions return 0 or an error number, unless they say otherwise; for a
 * device of another driver they return EOPNOTSUPP.
 */
#ifndef INFINIBAND_KFDV_H
#define INFINIBAND_KFDV_H

#include <errno.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include <infiniband/verbs.h>

#ifdef __cplusplus
extern "C" {
#endif

#ifndef KFDV_HAVE_IBV_COMP_CNTR
/* A macro that came with rdma-core 65, too: its functions are not macros. */
#ifdef IBV_DEVICE_CC_DMA_BOUNCE
#define KFDV_HAVE_IBV_COMP_CNTR	1
#else
#define KFDV_HAVE_IBV_COMP_CNTR	0
#endif
#endif

#if !KFDV_HAVE_IBV_COMP_CNTR
enum ibv_qp_attach_comp_cntr_op {
	IBV_QP_ATTACH_COMP_CNTR_OP_SEND			= 1 << 0,
	IBV_QP_ATTACH_COMP_CNTR_OP_RECV			= 1 << 1,
	IBV_QP_ATTACH_COMP_CNTR_OP_RDMA_READ		= 1 << 2,
	IBV_QP_ATTACH_COMP_CNTR_OP_REMOTE_RDMA_READ	= 1 << 3,
	IBV_QP_ATTACH_COMP_CNTR_OP_RDMA_WRITE		= 1 << 4,
	IBV_QP_ATTACH_COMP_CNTR_OP_REMOTE_RDMA_WRITE	= 1 << 5,
};

struct ibv_comp_cntr_caps {
	uint64_t max_value;
	uint32_t max_counters;
	uint32_t supported_qp_attach_ops;
};

struct ibv_comp_cntr {
	struct ibv_context *context;
	uint32_t handle;
};

enum ibv_comp_cntr_type {
	IBV_COMP_CNTR_TYPE_WRS,
	IBV_COMP_CNTR_TYPE_BYTES,
};

struct ibv_comp_cntr_init_attr {
	uint32_t comp_mask;
	enum ibv_comp_cntr_type type;
	uint32_t flags;
};

struct ibv_qp_attach_comp_cntr_attr {
	uint32_t comp_mask;
	uint32_t op_mask;
};
#endif

/**
 * enum kfdv_memory_location_type - what memory a value is in
 * @KFDV_MEMORY_LOCATION_VA: memory of the program, at @ptr
 * @KFDV_MEMORY_LOCATION_DMABUF: a DMA-BUF
 */
enum kfdv_memory_location_type {
	KFDV_MEMORY_LOCATION_VA,
	KFDV_MEMORY_LOCATION_DMABUF,
};

/**
 * struct kfdv_memory_location - memory of the program for one value
 * @ptr: its address, aligned to 8 bytes; for a DMA-BUF where the program has
 *       mapped the value, or NULL
 * @dmabuf: the DMA-BUF
 * @dmabuf.offset: of the value in it, a multiple of 8
 * @dmabuf.fd: its file
 * @dmabuf.reserved: zero
 * @type: enum kfdv_memory_location_type
 * @reserved: zero
 */
struct kfdv_memory_location {
	uint8_t *ptr;
	struct {
		uint64_t offset;
		int32_t fd;
		uint32_t reserved;
	} dmabuf;
	uint8_t type;
	uint8_t reserved[7];
};

/* The values of a counter are in memory of the program: both of them. */
#define KFDV_COMP_CNTR_INIT_WITH_EXTERNAL_MEM	(1U << 0)

/**
 * struct kfdv_comp_cntr_init_attr - what ibv_comp_cntr_init_attr does not have
 * @comp_mask: zero
 * @flags: KFDV_COMP_CNTR_INIT_WITH_EXTERNAL_MEM
 * @reserved: zero
 * @comp_cntr_ext_mem: memory for the count of completions
 * @err_cntr_ext_mem: memory for the count of errors
 */
struct kfdv_comp_cntr_init_attr {
	uint64_t comp_mask;
	uint32_t flags;
	uint32_t reserved;
	struct kfdv_memory_location comp_cntr_ext_mem;
	struct kfdv_memory_location err_cntr_ext_mem;
};

/**
 * struct kfdv_comp_cntr - where the values of a counter are
 * @comp_count: the count of completions, to be read only; NULL if the program has
 *              no address of it
 * @err_count: the count of errors, in the same way
 * @comp_count_max_value: the largest count; the next completion makes it 0
 * @err_count_max_value: the same of errors
 */
struct kfdv_comp_cntr {
	const uint64_t *comp_count;
	const uint64_t *err_count;
	uint64_t comp_count_max_value;
	uint64_t err_count_max_value;
};

/* Is it a device of kfabric, which this library drives? */
bool kfdv_is_supported(struct ibv_device *device);

/*
 * ibv_create_comp_cntr() with more attributes. @kfdv_attr may be NULL; @inlen is
 * its size. NULL with errno for an error.
 */
struct ibv_comp_cntr *
kfdv_create_comp_cntr(struct ibv_context *context,
		      struct ibv_comp_cntr_init_attr *attr,
		      const struct kfdv_comp_cntr_init_attr *kfdv_attr,
		      uint32_t inlen);

/* Where the values are. @outlen is the size of @out. */
int kfdv_query_comp_cntr(struct ibv_comp_cntr *comp_cntr,
			 struct kfdv_comp_cntr *out, uint32_t outlen);

/* The functions of libibverbs 65, for a device of kfabric. */
int kfdv_query_comp_cntr_caps(struct ibv_context *context,
			      struct ibv_comp_cntr_caps *caps,
			      size_t caps_size);
int kfdv_destroy_comp_cntr(struct ibv_comp_cntr *comp_cntr);
int kfdv_set_comp_cntr(struct ibv_comp_cntr *comp_cntr, uint64_t value);
int kfdv_set_err_comp_cntr(struct ibv_comp_cntr *comp_cntr, uint64_t value);
int kfdv_inc_comp_cntr(struct ibv_comp_cntr *comp_cntr, uint64_t amount);
int kfdv_inc_err_comp_cntr(struct ibv_comp_cntr *comp_cntr, uint64_t amount);
int kfdv_read_comp_cntr(struct ibv_comp_cntr *comp_cntr, uint64_t *value);
int kfdv_read_err_comp_cntr(struct ibv_comp_cntr *comp_cntr, uint64_t *value);
int kfdv_qp_attach_comp_cntr(struct ibv_qp *qp,
			     struct ibv_comp_cntr *comp_cntr,
			     struct ibv_qp_attach_comp_cntr_attr *attr);

#if !KFDV_HAVE_IBV_COMP_CNTR
static inline int ibv_query_comp_cntr_caps(struct ibv_context *context,
					   struct ibv_comp_cntr_caps *caps)
{
	return kfdv_query_comp_cntr_caps(context, caps, sizeof(*caps));
}

static inline struct ibv_comp_cntr *
ibv_create_comp_cntr(struct ibv_context *context,
		     struct ibv_comp_cntr_init_attr *cc_attr)
{
	return kfdv_create_comp_cntr(context, cc_attr, NULL, 0);
}

static inline int ibv_destroy_comp_cntr(struct ibv_comp_cntr *comp_cntr)
{
	return kfdv_destroy_comp_cntr(comp_cntr);
}

static inline int ibv_set_comp_cntr(struct ibv_comp_cntr *comp_cntr,
				    uint64_t value)
{
	return kfdv_set_comp_cntr(comp_cntr, value);
}

static inline int ibv_set_err_comp_cntr(struct ibv_comp_cntr *comp_cntr,
					uint64_t value)
{
	return kfdv_set_err_comp_cntr(comp_cntr, value);
}

static inline int ibv_inc_comp_cntr(struct ibv_comp_cntr *comp_cntr,
				    uint64_t amount)
{
	return kfdv_inc_comp_cntr(comp_cntr, amount);
}

static inline int ibv_inc_err_comp_cntr(struct ibv_comp_cntr *comp_cntr,
					uint64_t amount)
{
	return kfdv_inc_err_comp_cntr(comp_cntr, amount);
}

static inline int ibv_read_comp_cntr(struct ibv_comp_cntr *comp_cntr,
				     uint64_t *value)
{
	return kfdv_read_comp_cntr(comp_cntr, value);
}

static inline int ibv_read_err_comp_cntr(struct ibv_comp_cntr *comp_cntr,
					 uint64_t *value)
{
	return kfdv_read_err_comp_cntr(comp_cntr, value);
}

static inline int
ibv_qp_attach_comp_cntr(struct ibv_qp *qp, struct ibv_comp_cntr *comp_cntr,
			struct ibv_qp_attach_comp_cntr_attr *attr)
{
	return kfdv_qp_attach_comp_cntr(qp, comp_cntr, attr);
}
#endif

#ifdef __cplusplus
}
#endif

#endif /* INFINIBAND_KFDV_H */
