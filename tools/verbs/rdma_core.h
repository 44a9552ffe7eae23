/* SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause */
/*
 * The versions of rdma-core that the provider is built for, and what differs
 * between them.
 *
 * A provider uses interfaces of libibverbs that change with its private ABI.
 * KF_RDMA_CORE, from the build, is the version of rdma-core; its config.h has the
 * number of the ABI.
 */
#ifndef KF_RDMA_CORE_H
#define KF_RDMA_CORE_H

#include <infiniband/driver.h>
#include <rdma/ib_user_ioctl_cmds.h>
#include <rdma/ib_user_ioctl_verbs.h>

#if KF_RDMA_CORE == 56
static_assert(IBVERBS_PABI_VERSION == 34, "rdma-core 56 has the private ABI 34");
#elif KF_RDMA_CORE == 65
static_assert(IBVERBS_PABI_VERSION == 65, "rdma-core 65 has the private ABI 65");
#else
#error "libkfabric is for rdma-core 56 and 65"
#endif

/* rdma-core 65 has the functions of completion counters. */
#define KF_HAVE_COMP_CNTR	(KF_RDMA_CORE >= 65)

/*
 * An attribute of parent domains that rdma-core 56 does not have. There is
 * nothing to do for it: a device without DMA uses plain memory.
 */
#if KF_RDMA_CORE >= 65
#define KF_UNPROTECTED_ALLOC	IBV_PARENT_DOMAIN_INIT_ATTR_ALLOW_CC_UNPROTECTED_ALLOC
#else
#define KF_UNPROTECTED_ALLOC	0
#endif

/* Of libibverbs: objects of a device that has gone are destroyed without an error. */
extern bool verbs_allow_disassociate_destroy;

static inline int kf_cmd_get_context(struct verbs_context *context)
{
	struct ib_uverbs_get_context_resp resp;
	struct ibv_get_context cmd;

#if KF_RDMA_CORE >= 65
	return ibv_cmd_get_context(context, &cmd, sizeof(cmd), NULL, &resp,
				   sizeof(resp));
#else
	return ibv_cmd_get_context(context, &cmd, sizeof(cmd), &resp,
				   sizeof(resp));
#endif
}

static inline int
kf_cmd_create_cq(struct ibv_context *context,
		 const struct ibv_cq_init_attr_ex *attr, struct verbs_cq *cq,
		 struct ibv_create_cq_ex *cmd, size_t cmd_size,
		 struct ib_uverbs_ex_create_cq_resp *resp, size_t resp_size)
{
#if KF_RDMA_CORE >= 65
	return ibv_cmd_create_cq_ex(context, attr, NULL, cq, cmd, cmd_size,
				    resp, resp_size, 0);
#else
	return ibv_cmd_create_cq_ex(context, attr, cq, cmd, cmd_size, resp,
				    resp_size, 0);
#endif
}

static inline int kf_cmd_create_qp(struct ibv_context *context,
				   struct verbs_qp *qp,
				   struct ibv_qp_init_attr_ex *attr)
{
	struct ib_uverbs_ex_create_qp_resp resp = {};
	struct ibv_create_qp_ex cmd = {};

#if KF_RDMA_CORE >= 65
	return ibv_cmd_create_qp_ex2(context, qp, attr, &cmd, sizeof(cmd),
				     &resp, sizeof(resp), NULL);
#else
	return ibv_cmd_create_qp_ex2(context, qp, attr, &cmd, sizeof(cmd),
				     &resp, sizeof(resp));
#endif
}

/*
 * The kernel's interface for completion counters, which the headers of
 * rdma-core 56 do not have: from rdma/ib_user_ioctl_cmds.h of Linux 7.3.
 */
#if KF_HAVE_COMP_CNTR
#define KF_COMP_CNTR_ABI(name, value)	\
	static_assert((int)(name) == (value), #name)
#else
#define KF_COMP_CNTR_ABI(name, value)	enum { name = (value) }
#endif

KF_COMP_CNTR_ABI(UVERBS_OBJECT_COMP_CNTR, 19);
KF_COMP_CNTR_ABI(UVERBS_METHOD_QUERY_COMP_CNTR_CAPS, 8);
KF_COMP_CNTR_ABI(UVERBS_ATTR_QUERY_COMP_CNTR_CAPS_MAX_COUNTERS, 0);
KF_COMP_CNTR_ABI(UVERBS_ATTR_QUERY_COMP_CNTR_CAPS_MAX_VALUE, 1);
KF_COMP_CNTR_ABI(UVERBS_ATTR_QUERY_COMP_CNTR_CAPS_SUPPORTED_QP_ATTACH_OPS, 2);
KF_COMP_CNTR_ABI(UVERBS_METHOD_COMP_CNTR_CREATE, 0);
KF_COMP_CNTR_ABI(UVERBS_METHOD_COMP_CNTR_DESTROY, 1);
KF_COMP_CNTR_ABI(UVERBS_METHOD_COMP_CNTR_MODIFY, 2);
KF_COMP_CNTR_ABI(UVERBS_METHOD_COMP_CNTR_READ, 3);
KF_COMP_CNTR_ABI(UVERBS_ATTR_CREATE_COMP_CNTR_HANDLE, 0);
KF_COMP_CNTR_ABI(UVERBS_ATTR_DESTROY_COMP_CNTR_HANDLE, 0);
KF_COMP_CNTR_ABI(UVERBS_ATTR_MODIFY_COMP_CNTR_HANDLE, 0);
KF_COMP_CNTR_ABI(UVERBS_ATTR_MODIFY_COMP_CNTR_ENTRY, 1);
KF_COMP_CNTR_ABI(UVERBS_ATTR_MODIFY_COMP_CNTR_OP, 2);
KF_COMP_CNTR_ABI(UVERBS_ATTR_MODIFY_COMP_CNTR_VALUE, 3);
KF_COMP_CNTR_ABI(UVERBS_ATTR_READ_COMP_CNTR_HANDLE, 0);
KF_COMP_CNTR_ABI(UVERBS_ATTR_READ_COMP_CNTR_ENTRY, 1);
KF_COMP_CNTR_ABI(UVERBS_ATTR_READ_COMP_CNTR_RESP_VALUE, 2);
KF_COMP_CNTR_ABI(UVERBS_METHOD_QP_ATTACH_COMP_CNTR, 2);
KF_COMP_CNTR_ABI(UVERBS_ATTR_QP_ATTACH_COMP_CNTR_HANDLE, 0);
KF_COMP_CNTR_ABI(UVERBS_ATTR_QP_ATTACH_COMP_CNTR_CNTR_HANDLE, 1);
KF_COMP_CNTR_ABI(UVERBS_ATTR_QP_ATTACH_COMP_CNTR_OP_MASK, 2);
KF_COMP_CNTR_ABI(IB_UVERBS_COMP_CNTR_ENTRY_COMP, 0);
KF_COMP_CNTR_ABI(IB_UVERBS_COMP_CNTR_ENTRY_ERR, 1);
KF_COMP_CNTR_ABI(IB_UVERBS_COMP_CNTR_MODIFY_OP_SET, 0);
KF_COMP_CNTR_ABI(IB_UVERBS_COMP_CNTR_MODIFY_OP_INC, 1);

#if !KF_HAVE_COMP_CNTR
enum { IB_UVERBS_BUFFER_TYPE_DMABUF, IB_UVERBS_BUFFER_TYPE_VA };

/**
 * struct ib_uverbs_buffer_desc - memory of a program, from
 * rdma/ib_user_ioctl_verbs.h of Linux 7.3
 * @type: a DMA-BUF or an address
 * @fd: of the DMA-BUF
 * @flags: zero
 * @optional_flags: zero
 * @addr: an address, or an offset in the DMA-BUF
 * @length: bytes
 */
struct ib_uverbs_buffer_desc {
	__u32 type;
	__s32 fd;
	__u32 flags;
	__u32 optional_flags;
	__aligned_u64 addr;
	__aligned_u64 length;
};
#endif

#endif /* KF_RDMA_CORE_H */
