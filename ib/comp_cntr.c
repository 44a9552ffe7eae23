// SPDX-License-Identifier: GPL-2.0
/*
 * Completion counters.
 */

#define UVERBS_MODULE_NAME kfabric_ib
#include <rdma/uverbs_named_ioctl.h>
#include <rdma/uverbs_ioctl.h>

#include "kfabric_ib.h"

static_assert(KFABRIC_VERBS_CNTR_COMP == (int)IB_COMP_CNTR_ENTRY_COMP);
static_assert(KFABRIC_VERBS_CNTR_ERR == (int)IB_COMP_CNTR_ENTRY_ERR);
static_assert(KFABRIC_VERBS_CNTR_SET == (int)IB_COMP_CNTR_MODIFY_OP_SET);
static_assert(KFABRIC_VERBS_CNTR_INC == (int)IB_COMP_CNTR_MODIFY_OP_INC);
static_assert(KFABRIC_VERBS_CNTR_SEND ==
	      (int)IB_QP_ATTACH_COMP_CNTR_OP_SEND);
static_assert(KFABRIC_VERBS_CNTR_RECV ==
	      (int)IB_QP_ATTACH_COMP_CNTR_OP_RECV);
static_assert(KFABRIC_VERBS_CNTR_RDMA_READ ==
	      (int)IB_QP_ATTACH_COMP_CNTR_OP_RDMA_READ);
static_assert(KFABRIC_VERBS_CNTR_REMOTE_RDMA_READ ==
	      (int)IB_QP_ATTACH_COMP_CNTR_OP_REMOTE_RDMA_READ);
static_assert(KFABRIC_VERBS_CNTR_RDMA_WRITE ==
	      (int)IB_QP_ATTACH_COMP_CNTR_OP_RDMA_WRITE);
static_assert(KFABRIC_VERBS_CNTR_REMOTE_RDMA_WRITE ==
	      (int)IB_QP_ATTACH_COMP_CNTR_OP_REMOTE_RDMA_WRITE);

/**
 * kfib_query_comp_cntr_caps - report what can be counted
 * @ibdev: the device
 * @caps: out: the capabilities
 * @attrs: the attributes of the call; NULL for a list of resources
 *
 * Context: any.
 * Return: 0.
 */
int kfib_query_comp_cntr_caps(struct ib_device *ibdev,
			      struct ib_comp_cntr_caps *caps,
			      struct uverbs_attr_bundle *attrs)
{
	struct kfabric_verbs_cntr_caps now;

	kfabric_verbs_comp_cntr_caps(&now);
	caps->max_value = now.max_value;
	caps->max_counters = now.max_counters;
	caps->supported_qp_attach_ops = now.ops;
	return 0;
}

/* The word of an attribute, in memory of the program. */
static int kfib_word(struct uverbs_attr_bundle *attrs, u16 attr,
		     struct kfabric_verbs_word *word)
{
	struct ib_uverbs_buffer_desc desc;
	int ret;

	ret = uverbs_get_buffer_desc(attrs, attr, &desc);
	if (ret)
		return ret;
	if (desc.flags || desc.length != sizeof(u64))
		return -EINVAL;
	switch (desc.type) {
	case IB_UVERBS_BUFFER_TYPE_VA:
		word->is_dma_buf = false;
		break;
	case IB_UVERBS_BUFFER_TYPE_DMABUF:
		word->is_dma_buf = true;
		break;
	default:
		return -EINVAL;
	}
	word->addr = desc.addr;
	word->fd = desc.fd;
	return 0;
}

/* The memory of both values, if the program provides it. */
static int kfib_words(struct uverbs_attr_bundle *attrs,
		      struct kfabric_verbs_word *words, bool *given)
{
	bool comp = uverbs_attr_is_valid(attrs,
			KFABRIC_IB_ATTR_CREATE_COMP_CNTR_COMP_BUFFER);
	bool err = uverbs_attr_is_valid(attrs,
			KFABRIC_IB_ATTR_CREATE_COMP_CNTR_ERR_BUFFER);
	int ret;

	*given = comp;
	if (comp != err)
		return -EINVAL;
	if (!comp)
		return 0;
	ret = kfib_word(attrs, KFABRIC_IB_ATTR_CREATE_COMP_CNTR_COMP_BUFFER,
			&words[0]);
	if (ret)
		return ret;
	return kfib_word(attrs, KFABRIC_IB_ATTR_CREATE_COMP_CNTR_ERR_BUFFER,
			 &words[1]);
}

/**
 * kfib_create_comp_cntr - create a completion counter
 * @ibcc: the counter
 * @attrs: the attributes of the call, all optional
 *
 * Context: process.
 * Return: 0; -EINVAL for an unknown unit, for one buffer without the other, and
 * for a buffer that is not one word; the errors of
 * kfabric_verbs_comp_cntr_create().
 */
int kfib_create_comp_cntr(struct ib_comp_cntr *ibcc,
			  struct uverbs_attr_bundle *attrs)
{
	struct kfib_comp_cntr *cc = to_kfib_comp_cntr(ibcc);
	struct kfabric_ib_comp_cntr_resp resp = {};
	struct kfabric_verbs_comp_cntr *cntr;
	struct kfabric_verbs_word words[2];
	bool external;
	u32 unit;
	int ret;

	/* A number of 32 or 64 bits; 0 without the attribute. */
	ret = uverbs_get_flags32(&unit, attrs,
				 KFABRIC_IB_ATTR_CREATE_COMP_CNTR_UNIT,
				 U32_MAX);
	if (ret)
		return ret;
	ret = kfib_words(attrs, words, &external);
	if (ret)
		return ret;
	cntr = kfabric_verbs_comp_cntr_create(kfib_context_of(&attrs->driver_udata),
					      unit, external ? words : NULL);
	if (IS_ERR(cntr))
		return PTR_ERR(cntr);
	if (uverbs_attr_is_valid(attrs, KFABRIC_IB_ATTR_CREATE_COMP_CNTR_RESP)) {
		resp.max_value = kfabric_verbs_comp_cntr_max(cntr);
		resp.mmap_offset = kfabric_verbs_comp_cntr_offset(cntr);
		ret = uverbs_copy_to(attrs,
				     KFABRIC_IB_ATTR_CREATE_COMP_CNTR_RESP,
				     &resp, sizeof(resp));
		if (ret) {
			kfabric_verbs_comp_cntr_destroy(cntr);
			return ret;
		}
	}
	cc->cntr = cntr;
	return 0;
}

/**
 * kfib_destroy_comp_cntr - destroy a completion counter
 * @ibcc: the counter, which the core has found to be in no use
 *
 * Context: process.
 * Return: 0.
 */
int kfib_destroy_comp_cntr(struct ib_comp_cntr *ibcc)
{
	return kfabric_verbs_comp_cntr_destroy(to_kfib_comp_cntr(ibcc)->cntr);
}

/**
 * kfib_modify_comp_cntr - set an entry, or add to it
 * @ibcc: the counter
 * @entry: the completion count or the error count
 * @op: set or add
 * @value: the new value, or what to add
 *
 * Context: process.
 * Return: 0; -EINVAL for an unknown entry or change, and for a value that is
 * too large.
 */
int kfib_modify_comp_cntr(struct ib_comp_cntr *ibcc,
			  enum ib_comp_cntr_entry entry,
			  enum ib_comp_cntr_modify_op op, u64 value)
{
	return kfabric_verbs_comp_cntr_modify(to_kfib_comp_cntr(ibcc)->cntr,
					      entry, op, value);
}

/**
 * kfib_read_comp_cntr - read an entry
 * @ibcc: the counter
 * @entry: the completion count or the error count
 * @value: out: the current value
 *
 * Context: any.
 * Return: 0; -EINVAL for an unknown entry.
 */
int kfib_read_comp_cntr(struct ib_comp_cntr *ibcc,
			enum ib_comp_cntr_entry entry, u64 *value)
{
	return kfabric_verbs_comp_cntr_read(to_kfib_comp_cntr(ibcc)->cntr,
					    entry, value);
}

/**
 * kfib_qp_attach_comp_cntr - count operations of a QP
 * @ibqp: the QP
 * @ibcc: the counter
 * @attr: the operations, none of which has a counter
 *
 * Context: process.
 * Return: 0, or an error of kfabric_verbs_comp_cntr_attach().
 */
int kfib_qp_attach_comp_cntr(struct ib_qp *ibqp, struct ib_comp_cntr *ibcc,
			     struct ib_qp_attach_comp_cntr_attr *attr)
{
	return kfabric_verbs_comp_cntr_attach(to_kfib_qp(ibqp)->qp,
					      to_kfib_comp_cntr(ibcc)->cntr,
					      attr->op_mask);
}

ADD_UVERBS_ATTRIBUTES_SIMPLE(kfib_comp_cntr_create,
			     UVERBS_OBJECT_COMP_CNTR,
			     UVERBS_METHOD_COMP_CNTR_CREATE,
			     UVERBS_ATTR_FLAGS_IN(KFABRIC_IB_ATTR_CREATE_COMP_CNTR_UNIT,
						  enum kfabric_ib_comp_cntr_unit,
						  UA_OPTIONAL),
			     UVERBS_ATTR_UMEM(KFABRIC_IB_ATTR_CREATE_COMP_CNTR_COMP_BUFFER,
					      UA_OPTIONAL),
			     UVERBS_ATTR_UMEM(KFABRIC_IB_ATTR_CREATE_COMP_CNTR_ERR_BUFFER,
					      UA_OPTIONAL),
			     UVERBS_ATTR_PTR_OUT(KFABRIC_IB_ATTR_CREATE_COMP_CNTR_RESP,
						 UVERBS_ATTR_TYPE(struct kfabric_ib_comp_cntr_resp),
						 UA_OPTIONAL));

const struct uapi_definition kfib_comp_cntr_defs[] = {
	UAPI_DEF_CHAIN_OBJ_TREE(UVERBS_OBJECT_COMP_CNTR,
				&kfib_comp_cntr_create),
	{}
};
