// SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause
/*
 * The functions of <infiniband/kfdv.h>: those of completion counters, for a
 * device of kfabric only.
 */

#include <errno.h>
#include <string.h>

#include "kfabric.h"

/* Whether the device is one of kfabric. Calls for other devices fail. */
static bool kf_ours(struct ibv_context *context)
{
	return kfdv_is_supported(context->device);
}

struct ibv_comp_cntr *
kfdv_create_comp_cntr(struct ibv_context *context,
		      struct ibv_comp_cntr_init_attr *attr,
		      const struct kfdv_comp_cntr_init_attr *kfdv_attr,
		      uint32_t inlen)
{
	if (!kf_ours(context)) {
		errno = EOPNOTSUPP;
		return NULL;
	}
	if (!kfdv_attr)
		return kf_create_comp_cntr(context, attr);
	if (inlen != sizeof(*kfdv_attr) || kfdv_attr->comp_mask ||
	    kfdv_attr->reserved) {
		errno = EINVAL;
		return NULL;
	}
	switch (kfdv_attr->flags) {
	case 0:
		return kf_create_comp_cntr(context, attr);
	case KFDV_COMP_CNTR_INIT_WITH_EXTERNAL_MEM:
		return kf_create_comp_cntr_in(context, attr, kfdv_attr);
	default:
		errno = EOPNOTSUPP;
		return NULL;
	}
}

int kfdv_query_comp_cntr(struct ibv_comp_cntr *comp_cntr,
			 struct kfdv_comp_cntr *out, uint32_t outlen)
{
	if (!kf_ours(comp_cntr->context))
		return EOPNOTSUPP;
	if (outlen < sizeof(*out))
		return EINVAL;
	memset(out, 0, outlen);
	kf_describe_comp_cntr(comp_cntr, out);
	return 0;
}

int kfdv_query_comp_cntr_caps(struct ibv_context *context,
			      struct ibv_comp_cntr_caps *caps,
			      size_t caps_size)
{
	return kf_ours(context) ?
	       kf_query_comp_cntr_caps(context, caps, caps_size) : EOPNOTSUPP;
}

int kfdv_destroy_comp_cntr(struct ibv_comp_cntr *comp_cntr)
{
	return kf_ours(comp_cntr->context) ?
	       kf_destroy_comp_cntr(comp_cntr) : EOPNOTSUPP;
}

int kfdv_set_comp_cntr(struct ibv_comp_cntr *comp_cntr, uint64_t value)
{
	return kf_ours(comp_cntr->context) ?
	       kf_set_comp_cntr(comp_cntr, value) : EOPNOTSUPP;
}

int kfdv_set_err_comp_cntr(struct ibv_comp_cntr *comp_cntr, uint64_t value)
{
	return kf_ours(comp_cntr->context) ?
	       kf_set_err_comp_cntr(comp_cntr, value) : EOPNOTSUPP;
}

int kfdv_inc_comp_cntr(struct ibv_comp_cntr *comp_cntr, uint64_t amount)
{
	return kf_ours(comp_cntr->context) ?
	       kf_inc_comp_cntr(comp_cntr, amount) : EOPNOTSUPP;
}

int kfdv_inc_err_comp_cntr(struct ibv_comp_cntr *comp_cntr, uint64_t amount)
{
	return kf_ours(comp_cntr->context) ?
	       kf_inc_err_comp_cntr(comp_cntr, amount) : EOPNOTSUPP;
}

int kfdv_read_comp_cntr(struct ibv_comp_cntr *comp_cntr, uint64_t *value)
{
	return kf_ours(comp_cntr->context) ?
	       kf_read_comp_cntr(comp_cntr, value) : EOPNOTSUPP;
}

int kfdv_read_err_comp_cntr(struct ibv_comp_cntr *comp_cntr, uint64_t *value)
{
	return kf_ours(comp_cntr->context) ?
	       kf_read_err_comp_cntr(comp_cntr, value) : EOPNOTSUPP;
}

int kfdv_qp_attach_comp_cntr(struct ibv_qp *qp,
			     struct ibv_comp_cntr *comp_cntr,
			     struct ibv_qp_attach_comp_cntr_attr *attr)
{
	return kf_ours(qp->context) ?
	       kf_qp_attach_comp_cntr(qp, comp_cntr, attr) : EOPNOTSUPP;
}
