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
 * The functions may be called by any thread, also by several for one object; while
 * a thread destroys an object, no other one may use it. No signal handler may call
 * them. Unless their comments say otherwise, they return 0 or an error number. All
 * have these errors besides their own:
 *
 *   EOPNOTSUPP  the device is of another driver
 *   EIO         the device has gone
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
 * struct kfdv_memory_location - memory of the program for one value, of 8 bytes
 * @ptr: its address, aligned to 8 bytes; for a DMA-BUF where the program has
 *       mapped the value, or NULL
 * @dmabuf: the DMA-BUF; not used for an address
 * @dmabuf.offset: of the value in it, in bytes, a multiple of 8
 * @dmabuf.fd: its file, which may be closed when the counter is created
 * @dmabuf.reserved: must be zero, also for an address
 * @type: enum kfdv_memory_location_type
 * @reserved: must be zero
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

/* Copies of both values of a counter are in memory of the program. */
#define KFDV_COMP_CNTR_INIT_WITH_EXTERNAL_MEM	(1U << 0)

/**
 * struct kfdv_comp_cntr_init_attr - what ibv_comp_cntr_init_attr does not have
 * @comp_mask: must be zero
 * @flags: KFDV_COMP_CNTR_INIT_WITH_EXTERNAL_MEM, or 0
 * @reserved: must be zero
 * @comp_cntr_ext_mem: memory for the count of completions; not used without the
 *                     flag
 * @err_cntr_ext_mem: memory for the count of errors, another word; not used without
 *                    the flag
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
 * @comp_count: the count of completions, in the unit of the counter (work requests
 *              or bytes), to be read only; NULL if the program has no address of it
 * @err_count: the count of work requests that have failed, in the same way
 * @comp_count_max_value: the largest count; an increment beyond it wraps to 0
 * @err_count_max_value: the same of errors
 *
 * A value is read by an atomic load with acquire semantics. Addresses of memory of
 * the kernel are valid until the counter is destroyed; those of memory of the
 * program are what it has passed.
 */
struct kfdv_comp_cntr {
	const uint64_t *comp_count;
	const uint64_t *err_count;
	uint64_t comp_count_max_value;
	uint64_t err_count_max_value;
};

/**
 * kfdv_is_supported() - whether this library drives a device
 * @device: of any driver
 *
 * Context: any thread; makes no system call.
 * Return: true for a device of kfabric.
 */
bool kfdv_is_supported(struct ibv_device *device);

/**
 * kfdv_create_comp_cntr() - ibv_create_comp_cntr() with more attributes
 * @context: the device
 * @attr: the unit, IBV_COMP_CNTR_TYPE_WRS or IBV_COMP_CNTR_TYPE_BYTES; all else
 *        must be zero
 * @kfdv_attr: more attributes, or NULL
 * @inlen: bytes of @kfdv_attr
 *
 * Context: any thread; makes a system call.
 * Return: the counter, both of whose values are 0, or NULL with errno:
 *
 * * EINVAL: @inlen is not the size of the structure; comp_mask or a reserved member is
 *   not zero; memory without an address, of an unknown type, that is not aligned,
 *   outside of its DMA-BUF, or the same for both values
 * * EOPNOTSUPP: an unknown flag of @kfdv_attr; @attr has a unit that is not known,
 *   flags, or a comp_mask; a DMA-BUF that its exporter does not map for the CPU; a
 *   kernel without completion counters
 * * EFAULT: an address that may not be written
 * * EBADF: the file of a DMA-BUF is not open
 * * EACCES: a DMA-BUF that may not be written
 * * ENOMEM: too many counters; RLIMIT_MEMLOCK or the user's limit of memory would be
 *   exceeded; no memory
 * * ENODEV: the interface of the device has gone
 */
struct ibv_comp_cntr *
kfdv_create_comp_cntr(struct ibv_context *context,
		      struct ibv_comp_cntr_init_attr *attr,
		      const struct kfdv_comp_cntr_init_attr *kfdv_attr,
		      uint32_t inlen);

/**
 * kfdv_query_comp_cntr() - where the values of a counter are
 * @comp_cntr: the counter
 * @out: out: the description; bytes behind it are zeroed
 * @outlen: bytes of @out
 *
 * Context: any thread; makes no system call.
 * Return: 0, or EINVAL if @outlen is less than the size of the structure.
 */
int kfdv_query_comp_cntr(struct ibv_comp_cntr *comp_cntr,
			 struct kfdv_comp_cntr *out, uint32_t outlen);

/* The functions of libibverbs 65, for a device of kfabric. */

/**
 * kfdv_query_comp_cntr_caps() - what counters of a device can do
 * @context: the device
 * @caps: out: the capabilities; bytes behind them are zeroed
 * @caps_size: bytes of @caps
 *
 * Context: any thread; makes a system call.
 * Return: 0; EINVAL if @caps_size is less than the size of the structure; EOPNOTSUPP
 * for a kernel without completion counters.
 */
int kfdv_query_comp_cntr_caps(struct ibv_context *context,
			      struct ibv_comp_cntr_caps *caps,
			      size_t caps_size);

/**
 * kfdv_destroy_comp_cntr() - end a counter
 * @comp_cntr: the counter
 *
 * With RDMAV_ALLOW_DISASSOC_DESTROY in the environment it is no error that the device
 * has gone.
 *
 * Context: any thread; makes a system call.
 * Return: 0, or EBUSY while it is attached to a QP; the counter stays after an error.
 */
int kfdv_destroy_comp_cntr(struct ibv_comp_cntr *comp_cntr);

/**
 * kfdv_set_comp_cntr() - set the count of completions
 * @comp_cntr: the counter
 * @value: the new count, in the unit of the counter
 *
 * Context: any thread; makes a system call.
 * Return: 0, or EINVAL for a value above the largest one.
 */
int kfdv_set_comp_cntr(struct ibv_comp_cntr *comp_cntr, uint64_t value);

/**
 * kfdv_set_err_comp_cntr() - set the count of errors
 * @comp_cntr: the counter
 * @value: the new count, in work requests
 *
 * Context: any thread; makes a system call.
 * Return: 0, or EINVAL for a value above the largest one.
 */
int kfdv_set_err_comp_cntr(struct ibv_comp_cntr *comp_cntr, uint64_t value);

/**
 * kfdv_inc_comp_cntr() - add to the count of completions
 * @comp_cntr: the counter
 * @amount: what to add, in the unit of the counter
 *
 * Context: any thread; makes a system call.
 * Return: 0, or EINVAL for an amount above the largest value.
 */
int kfdv_inc_comp_cntr(struct ibv_comp_cntr *comp_cntr, uint64_t amount);

/**
 * kfdv_inc_err_comp_cntr() - add to the count of errors
 * @comp_cntr: the counter
 * @amount: what to add, in work requests
 *
 * Context: any thread; makes a system call.
 * Return: 0, or EINVAL for an amount above the largest value.
 */
int kfdv_inc_err_comp_cntr(struct ibv_comp_cntr *comp_cntr, uint64_t amount);

/**
 * kfdv_read_comp_cntr() - read the count of completions
 * @comp_cntr: the counter
 * @value: out: the count, in the unit of the counter
 *
 * Context: any thread; makes a system call if the values are in memory of the program.
 * Return: 0.
 */
int kfdv_read_comp_cntr(struct ibv_comp_cntr *comp_cntr, uint64_t *value);

/**
 * kfdv_read_err_comp_cntr() - read the count of errors
 * @comp_cntr: the counter
 * @value: out: the count, in work requests
 *
 * Context: any thread; makes a system call if the values are in memory of the program.
 * Return: 0.
 */
int kfdv_read_err_comp_cntr(struct ibv_comp_cntr *comp_cntr, uint64_t *value);

/**
 * kfdv_qp_attach_comp_cntr() - count operations of a QP
 * @qp: the QP, in RESET or INIT
 * @comp_cntr: the counter, of the same context
 * @attr: the operations (enum ibv_qp_attach_comp_cntr_op); comp_mask must be zero
 *
 * Context: any thread; makes a system call.
 * Return: 0, or after an error, with which nothing is attached:
 *
 * * EINVAL: no operation, or one that is not known; the QP is in another state; a counter
 *   of another context
 * * EBUSY: an operation of the QP has a counter
 * * EOPNOTSUPP: an operation that a QP of its type does not have; a comp_mask
 * * ENOMEM: the user's limit of memory would be exceeded; no memory
 */
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
