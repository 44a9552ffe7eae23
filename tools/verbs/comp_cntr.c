// SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause
/*
 * Completion counters.
 *
 * libibverbs 65 calls these functions as those of the device; with libibverbs 56
 * programs call them by <infiniband/kfdv.h>. The kernel's calls are made here,
 * because libibverbs 56 does not have them.
 */

#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include "kfabric.h"

static_assert(IBV_COMP_CNTR_TYPE_WRS == (int)KFABRIC_IB_COMP_CNTR_UNIT_WRS &&
	      IBV_COMP_CNTR_TYPE_BYTES ==
	      (int)KFABRIC_IB_COMP_CNTR_UNIT_BYTES, "units");

/**
 * struct kf_comp_cntr - a completion counter
 * @ibcc: of libibverbs
 * @lock: held for a call on the counter: the kernel refuses one that comes while
 *        another one changes the counter (EBUSY)
 * @page: the mapped page with both values; NULL for memory of the program
 * @comp_count: the count of completions; NULL if its address is not known
 * @err_count: the count of errors, in the same way
 * @max_value: the largest value
 */
struct kf_comp_cntr {
	struct ibv_comp_cntr ibcc;
	pthread_mutex_t lock;
	void *page;
	const uint64_t *comp_count;
	const uint64_t *err_count;
	uint64_t max_value;
};

static struct kf_comp_cntr *to_kf_cc(struct ibv_comp_cntr *ibcc)
{
	return container_of(ibcc, struct kf_comp_cntr, ibcc);
}

/* Makes a call on the counter, one thread at a time. */
static int kf_cc_call(struct ibv_comp_cntr *ibcc,
		      struct ibv_command_buffer *cmd)
{
	struct kf_comp_cntr *cc = to_kf_cc(ibcc);
	int ret;

	pthread_mutex_lock(&cc->lock);
	ret = execute_ioctl(ibcc->context, cmd);
	pthread_mutex_unlock(&cc->lock);
	return ret;
}

/*
 * Translates a description of memory for the kernel. Return: 0, or EINVAL if it
 * is invalid.
 */
static int kf_describe(const struct kfdv_memory_location *location,
		       struct ib_uverbs_buffer_desc *desc)
{
	static const uint8_t zeros[sizeof(location->reserved)];

	*desc = (struct ib_uverbs_buffer_desc) { .length = sizeof(uint64_t) };
	if (location->dmabuf.reserved ||
	    memcmp(location->reserved, zeros, sizeof(zeros)))
		return EINVAL;
	switch (location->type) {
	case KFDV_MEMORY_LOCATION_VA:
		desc->type = IB_UVERBS_BUFFER_TYPE_VA;
		desc->addr = (uintptr_t)location->ptr;
		return location->ptr ? 0 : EINVAL;
	case KFDV_MEMORY_LOCATION_DMABUF:
		desc->type = IB_UVERBS_BUFFER_TYPE_DMABUF;
		desc->fd = location->dmabuf.fd;
		desc->addr = location->dmabuf.offset;
		return 0;
	default:
		return EINVAL;
	}
}

/*
 * Maps the values of a counter that has no memory of the program. If that
 * fails, they are read by system calls.
 */
static void kf_cc_map(struct kf_comp_cntr *cc, uint64_t offset)
{
	size_t size = sysconf(_SC_PAGESIZE);
	void *page;

	if (!offset)
		return;
	page = mmap(NULL, size, PROT_READ, MAP_SHARED,
		    cc->ibcc.context->cmd_fd, offset);
	if (page == MAP_FAILED)
		return;
	cc->page = page;
	cc->comp_count = page;
	cc->err_count = cc->comp_count + 1;
}

static int kf_cc_create(struct ibv_context *context,
			struct ibv_comp_cntr_init_attr *attr,
			const struct kfdv_comp_cntr_init_attr *kfdv_attr,
			struct kf_comp_cntr *cc)
{
	DECLARE_COMMAND_BUFFER(cmd, UVERBS_OBJECT_COMP_CNTR,
			       UVERBS_METHOD_COMP_CNTR_CREATE, 5);
	struct ib_uverbs_buffer_desc comp_desc, err_desc;
	struct kfabric_ib_comp_cntr_resp resp = {};
	struct ib_uverbs_attr *handle;
	int ret;

	if (kfdv_attr) {
		ret = kf_describe(&kfdv_attr->comp_cntr_ext_mem, &comp_desc);
		if (!ret)
			ret = kf_describe(&kfdv_attr->err_cntr_ext_mem,
					  &err_desc);
		if (ret)
			return ret;
		fill_attr_in_ptr(cmd,
				 KFABRIC_IB_ATTR_CREATE_COMP_CNTR_COMP_BUFFER,
				 &comp_desc);
		fill_attr_in_ptr(cmd,
				 KFABRIC_IB_ATTR_CREATE_COMP_CNTR_ERR_BUFFER,
				 &err_desc);
		cc->comp_count = (void *)kfdv_attr->comp_cntr_ext_mem.ptr;
		cc->err_count = (void *)kfdv_attr->err_cntr_ext_mem.ptr;
	}
	fill_attr_const_in(cmd, KFABRIC_IB_ATTR_CREATE_COMP_CNTR_UNIT,
			   attr->type);
	fill_attr_out_ptr(cmd, KFABRIC_IB_ATTR_CREATE_COMP_CNTR_RESP, &resp);
	handle = fill_attr_out_obj(cmd, UVERBS_ATTR_CREATE_COMP_CNTR_HANDLE);
	ret = execute_ioctl(context, cmd);
	if (ret)
		return ret;
	cc->ibcc.context = context;
	cc->ibcc.handle = read_attr_obj(UVERBS_ATTR_CREATE_COMP_CNTR_HANDLE,
					handle);
	cc->max_value = resp.max_value;
	kf_cc_map(cc, resp.mmap_offset);
	return 0;
}

/*
 * Creates a counter. Its values are in the memory of the program that
 * @kfdv_attr describes or, if that is NULL, in memory of the kernel.
 * Return: the counter, or NULL with errno.
 */
struct ibv_comp_cntr *
kf_create_comp_cntr_in(struct ibv_context *context,
		       struct ibv_comp_cntr_init_attr *attr,
		       const struct kfdv_comp_cntr_init_attr *kfdv_attr)
{
	struct kf_comp_cntr *cc;
	int ret;

	if (attr->comp_mask || attr->flags ||
	    (attr->type != IBV_COMP_CNTR_TYPE_WRS &&
	     attr->type != IBV_COMP_CNTR_TYPE_BYTES)) {
		errno = EOPNOTSUPP;
		return NULL;
	}
	cc = calloc(1, sizeof(*cc));
	if (!cc)
		return NULL;
	pthread_mutex_init(&cc->lock, NULL);
	ret = kf_cc_create(context, attr, kfdv_attr, cc);
	if (ret) {
		pthread_mutex_destroy(&cc->lock);
		free(cc);
		/* The kernel has no such objects, or the device has none. */
		errno = ret == EPROTONOSUPPORT ? EOPNOTSUPP : ret;
		return NULL;
	}
	return &cc->ibcc;
}

struct ibv_comp_cntr *kf_create_comp_cntr(struct ibv_context *context,
					  struct ibv_comp_cntr_init_attr *attr)
{
	return kf_create_comp_cntr_in(context, attr, NULL);
}

int kf_destroy_comp_cntr(struct ibv_comp_cntr *ibcc)
{
	DECLARE_COMMAND_BUFFER(cmd, UVERBS_OBJECT_COMP_CNTR,
			       UVERBS_METHOD_COMP_CNTR_DESTROY, 1);
	struct kf_comp_cntr *cc = to_kf_cc(ibcc);
	int ret;

	fill_attr_in_obj(cmd, UVERBS_ATTR_DESTROY_COMP_CNTR_HANDLE,
			 ibcc->handle);
	ret = execute_ioctl(ibcc->context, cmd);
	/* If the device has gone, so have its objects. */
	if (ret && !(ret == EIO && verbs_allow_disassociate_destroy))
		return ret;
	if (cc->page)
		munmap(cc->page, sysconf(_SC_PAGESIZE));
	pthread_mutex_destroy(&cc->lock);
	free(cc);
	return 0;
}

int kf_query_comp_cntr_caps(struct ibv_context *context,
			    struct ibv_comp_cntr_caps *caps, size_t size)
{
	DECLARE_COMMAND_BUFFER(cmd, UVERBS_OBJECT_DEVICE,
			       UVERBS_METHOD_QUERY_COMP_CNTR_CAPS, 3);
	int ret;

	if (size < sizeof(*caps))
		return EINVAL;
	memset(caps, 0, size);
	fill_attr_out_ptr(cmd, UVERBS_ATTR_QUERY_COMP_CNTR_CAPS_MAX_COUNTERS,
			  &caps->max_counters);
	fill_attr_out_ptr(cmd, UVERBS_ATTR_QUERY_COMP_CNTR_CAPS_MAX_VALUE,
			  &caps->max_value);
	/* The values of both enums are the same. */
	fill_attr_out_ptr(cmd,
			  UVERBS_ATTR_QUERY_COMP_CNTR_CAPS_SUPPORTED_QP_ATTACH_OPS,
			  &caps->supported_qp_attach_ops);
	ret = execute_ioctl(context, cmd);
	return ret == EPROTONOSUPPORT ? EOPNOTSUPP : ret;
}

static int kf_modify(struct ibv_comp_cntr *ibcc, uint8_t entry, uint8_t op,
		     uint64_t value)
{
	DECLARE_COMMAND_BUFFER(cmd, UVERBS_OBJECT_COMP_CNTR,
			       UVERBS_METHOD_COMP_CNTR_MODIFY, 4);

	fill_attr_in_obj(cmd, UVERBS_ATTR_MODIFY_COMP_CNTR_HANDLE,
			 ibcc->handle);
	fill_attr_const_in(cmd, UVERBS_ATTR_MODIFY_COMP_CNTR_ENTRY, entry);
	fill_attr_const_in(cmd, UVERBS_ATTR_MODIFY_COMP_CNTR_OP, op);
	fill_attr_in_uint64(cmd, UVERBS_ATTR_MODIFY_COMP_CNTR_VALUE, value);
	return kf_cc_call(ibcc, cmd);
}

int kf_set_comp_cntr(struct ibv_comp_cntr *ibcc, uint64_t value)
{
	return kf_modify(ibcc, IB_UVERBS_COMP_CNTR_ENTRY_COMP,
			 IB_UVERBS_COMP_CNTR_MODIFY_OP_SET, value);
}

int kf_set_err_comp_cntr(struct ibv_comp_cntr *ibcc, uint64_t value)
{
	return kf_modify(ibcc, IB_UVERBS_COMP_CNTR_ENTRY_ERR,
			 IB_UVERBS_COMP_CNTR_MODIFY_OP_SET, value);
}

int kf_inc_comp_cntr(struct ibv_comp_cntr *ibcc, uint64_t amount)
{
	return kf_modify(ibcc, IB_UVERBS_COMP_CNTR_ENTRY_COMP,
			 IB_UVERBS_COMP_CNTR_MODIFY_OP_INC, amount);
}

int kf_inc_err_comp_cntr(struct ibv_comp_cntr *ibcc, uint64_t amount)
{
	return kf_modify(ibcc, IB_UVERBS_COMP_CNTR_ENTRY_ERR,
			 IB_UVERBS_COMP_CNTR_MODIFY_OP_INC, amount);
}

static int kf_read(struct ibv_comp_cntr *ibcc, uint8_t entry, uint64_t *value)
{
	DECLARE_COMMAND_BUFFER(cmd, UVERBS_OBJECT_COMP_CNTR,
			       UVERBS_METHOD_COMP_CNTR_READ, 3);

	fill_attr_in_obj(cmd, UVERBS_ATTR_READ_COMP_CNTR_HANDLE, ibcc->handle);
	fill_attr_const_in(cmd, UVERBS_ATTR_READ_COMP_CNTR_ENTRY, entry);
	fill_attr_out_ptr(cmd, UVERBS_ATTR_READ_COMP_CNTR_RESP_VALUE, value);
	return kf_cc_call(ibcc, cmd);
}

int kf_read_comp_cntr(struct ibv_comp_cntr *ibcc, uint64_t *value)
{
	const struct kf_comp_cntr *cc = to_kf_cc(ibcc);

	if (!cc->page)
		return kf_read(ibcc, IB_UVERBS_COMP_CNTR_ENTRY_COMP, value);
	*value = __atomic_load_n(cc->comp_count, __ATOMIC_ACQUIRE);
	return 0;
}

int kf_read_err_comp_cntr(struct ibv_comp_cntr *ibcc, uint64_t *value)
{
	const struct kf_comp_cntr *cc = to_kf_cc(ibcc);

	if (!cc->page)
		return kf_read(ibcc, IB_UVERBS_COMP_CNTR_ENTRY_ERR, value);
	*value = __atomic_load_n(cc->err_count, __ATOMIC_ACQUIRE);
	return 0;
}

int kf_qp_attach_comp_cntr(struct ibv_qp *qp, struct ibv_comp_cntr *ibcc,
			   struct ibv_qp_attach_comp_cntr_attr *attr)
{
	DECLARE_COMMAND_BUFFER(cmd, UVERBS_OBJECT_QP,
			       UVERBS_METHOD_QP_ATTACH_COMP_CNTR, 3);

	/* Its number would be that of another QP there. */
	if (qp->context != ibcc->context)
		return EINVAL;
	if (attr->comp_mask)
		return EOPNOTSUPP;
	fill_attr_in_obj(cmd, UVERBS_ATTR_QP_ATTACH_COMP_CNTR_HANDLE,
			 qp->handle);
	fill_attr_in_obj(cmd, UVERBS_ATTR_QP_ATTACH_COMP_CNTR_CNTR_HANDLE,
			 ibcc->handle);
	fill_attr_in_uint32(cmd, UVERBS_ATTR_QP_ATTACH_COMP_CNTR_OP_MASK,
			    attr->op_mask);
	return kf_cc_call(ibcc, cmd);
}

void kf_describe_comp_cntr(struct ibv_comp_cntr *ibcc,
			   struct kfdv_comp_cntr *out)
{
	const struct kf_comp_cntr *cc = to_kf_cc(ibcc);

	out->comp_count = cc->comp_count;
	out->err_count = cc->err_count;
	out->comp_count_max_value = cc->max_value;
	out->err_count_max_value = cc->max_value;
}
