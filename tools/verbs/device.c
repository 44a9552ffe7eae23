// SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause
/*
 * The driver as libibverbs knows it, devices, and contexts.
 */

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>

#include "kfabric.h"

static const struct verbs_device_ops kf_device_ops;

static int kf_query_device(struct ibv_context *context,
			   const struct ibv_query_device_ex_input *input,
			   struct ibv_device_attr_ex *attr, size_t attr_size)
{
	struct ib_uverbs_ex_query_device_resp resp;
	size_t resp_size = sizeof(resp);
	int ret;

	ret = ibv_cmd_query_device_any(context, input, attr, attr_size, &resp,
				       &resp_size);
	if (ret)
		return ret;
	snprintf(attr->orig_attr.fw_ver, sizeof(attr->orig_attr.fw_ver),
		 "%s", "kfabric");
	return 0;
}

static int kf_query_port(struct ibv_context *context, uint8_t port,
			 struct ibv_port_attr *attr)
{
	struct ibv_query_port cmd;

	return ibv_cmd_query_port(context, port, attr, &cmd, sizeof(cmd));
}

static void kf_free_context(struct ibv_context *ibctx)
{
	struct verbs_context *context = verbs_get_ctx(ibctx);

	verbs_uninit_context(context);
	free(context);
}

static const struct verbs_context_ops kf_context_ops = {
	.alloc_parent_domain = kf_alloc_parent_domain,
	.alloc_pd = kf_alloc_pd,
	.alloc_td = kf_alloc_td,
	.attach_counters_point_flow = kf_attach_counters,
	.create_ah = kf_create_ah,
	.create_counters = kf_create_counters,
	.create_cq = kf_create_cq,
	.create_cq_ex = kf_create_cq_ex,
	.create_flow = kf_create_flow,
	.create_qp = kf_create_qp,
	.create_qp_ex = kf_create_qp_ex,
	.create_srq = kf_create_srq,
	.dealloc_pd = kf_dealloc_pd,
	.dealloc_td = kf_dealloc_td,
	.dereg_mr = kf_dereg_mr,
	.destroy_ah = kf_destroy_ah,
	.destroy_counters = kf_destroy_counters,
	.destroy_cq = kf_destroy_cq,
	.destroy_flow = kf_destroy_flow,
	.destroy_qp = kf_destroy_qp,
	.destroy_srq = kf_destroy_srq,
	.free_context = kf_free_context,
	.import_mr = kf_import_mr,
	.import_pd = kf_import_pd,
	.modify_qp = kf_modify_qp,
	.modify_srq = kf_modify_srq,
	.poll_cq = kf_poll_cq,
	.post_recv = kf_post_recv,
	.post_send = kf_post_send,
	.post_srq_recv = kf_post_srq_recv,
	.query_device_ex = kf_query_device,
	.query_port = kf_query_port,
	.query_qp = kf_query_qp,
	.query_srq = kf_query_srq,
	.read_counters = kf_read_counters,
	.reg_dmabuf_mr = kf_reg_dmabuf_mr,
	.reg_mr = kf_reg_mr,
	.req_notify_cq = ibv_cmd_req_notify_cq,
	.resize_cq = kf_resize_cq,
	.unimport_mr = kf_unimport_mr,
	.unimport_pd = kf_unimport_pd,
#if KF_HAVE_COMP_CNTR
	.create_comp_cntr = kf_create_comp_cntr,
	.destroy_comp_cntr = kf_destroy_comp_cntr,
	.inc_comp_cntr = kf_inc_comp_cntr,
	.inc_err_comp_cntr = kf_inc_err_comp_cntr,
	.qp_attach_comp_cntr = kf_qp_attach_comp_cntr,
	.query_comp_cntr_caps = kf_query_comp_cntr_caps,
	.read_comp_cntr = kf_read_comp_cntr,
	.read_err_comp_cntr = kf_read_err_comp_cntr,
	.set_comp_cntr = kf_set_comp_cntr,
	.set_err_comp_cntr = kf_set_err_comp_cntr,
#endif
#if KF_RDMA_CORE >= 65
	.query_port_speed = ibv_cmd_query_port_speed,
#endif
};

static struct verbs_context *
kf_make_context(struct ibv_device *device, int cmd_fd,
		int (*command)(struct verbs_context *context))
{
	/* There is nothing to keep beside what libibverbs keeps. */
	struct {
		struct verbs_context ibctx;
	} *context;
	int ret;

	context = verbs_init_and_alloc_context(device, cmd_fd, context, ibctx,
					       KFABRIC_IB_DRIVER_ID);
	if (!context)
		return NULL;
	ret = command(&context->ibctx);
	if (ret) {
		verbs_uninit_context(&context->ibctx);
		free(context);
		errno = ret;
		return NULL;
	}
	verbs_set_ops(&context->ibctx, &kf_context_ops);
	return &context->ibctx;
}

static struct verbs_context *kf_alloc_context(struct ibv_device *device,
					      int cmd_fd, void *private_data)
{
	return kf_make_context(device, cmd_fd, kf_cmd_get_context);
}

static int kf_cmd_query_context(struct verbs_context *context)
{
	return ibv_cmd_query_context(&context->context, NULL);
}

/* The context of the file exists already. */
static struct verbs_context *kf_import_context(struct ibv_device *device,
					       int cmd_fd)
{
	return kf_make_context(device, cmd_fd, kf_cmd_query_context);
}

static struct verbs_device *kf_alloc_device(struct verbs_sysfs_dev *sysfs_dev)
{
	return calloc(1, sizeof(struct verbs_device));
}

static void kf_uninit_device(struct verbs_device *device)
{
	free(device);
}

/*
 * The kernel tells the number of a device's driver by netlink. The last entry
 * ends the table, without which libibverbs would read a null pointer for the
 * device of any driver.
 */
static const struct verbs_match_ent kf_match_table[] = {
	VERBS_DRIVER_ID(KFABRIC_IB_DRIVER_ID),
	{},
};

static const struct verbs_device_ops kf_device_ops = {
	.name = "kfabric",
	.match_min_abi_version = KFABRIC_IB_ABI_VERSION,
	.match_max_abi_version = KFABRIC_IB_ABI_VERSION,
	.match_table = kf_match_table,
	.alloc_device = kf_alloc_device,
	.uninit_device = kf_uninit_device,
	.alloc_context = kf_alloc_context,
	.import_context = kf_import_context,
};

static __attribute__((constructor)) void kf_register_driver(void)
{
	verbs_register_driver(&kf_device_ops);
}

bool kfdv_is_supported(struct ibv_device *device)
{
	return verbs_get_device(device)->ops == &kf_device_ops;
}
