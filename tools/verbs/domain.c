// SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause
/*
 * Protection domains, thread domains and parent domains.
 *
 * The kernel has protection domains only. A parent domain stands for one, whose
 * handle it has; its thread domain says that a CQ made with it needs no lock. Its
 * allocators are not called, because the memory of all queues is the kernel's.
 */

#include <errno.h>
#include <stdlib.h>

#include "kfabric.h"

/**
 * struct kf_td - a thread domain
 * @ibtd: of libibverbs
 * @users: parent domains that have it
 */
struct kf_td {
	struct ibv_td ibtd;
	atomic_uint users;
};

/**
 * struct kf_pd - a protection domain or a parent domain
 * @ibpd: of libibverbs
 * @contained: the protection domain of a parent domain; else NULL
 * @td: the thread domain of a parent domain, or NULL
 * @users: parent domains that have it
 */
struct kf_pd {
	struct ibv_pd ibpd;
	struct kf_pd *contained;
	struct kf_td *td;
	atomic_uint users;
};

static struct kf_pd *to_kf_pd(struct ibv_pd *pd)
{
	return container_of(pd, struct kf_pd, ibpd);
}

static struct kf_td *to_kf_td(struct ibv_td *td)
{
	return container_of(td, struct kf_td, ibtd);
}

struct ibv_pd *kf_alloc_pd(struct ibv_context *context)
{
	struct ib_uverbs_alloc_pd_resp resp;
	struct ibv_alloc_pd cmd;
	struct kf_pd *pd;
	int ret;

	pd = calloc(1, sizeof(*pd));
	if (!pd)
		return NULL;
	ret = ibv_cmd_alloc_pd(context, &pd->ibpd, &cmd, sizeof(cmd), &resp,
			       sizeof(resp));
	if (ret) {
		free(pd);
		errno = ret;
		return NULL;
	}
	return &pd->ibpd;
}

int kf_dealloc_pd(struct ibv_pd *ibpd)
{
	struct kf_pd *pd = to_kf_pd(ibpd);
	int ret;

	if (atomic_load(&pd->users))
		return EBUSY;
	if (pd->contained) {
		atomic_fetch_sub(&pd->contained->users, 1);
		if (pd->td)
			atomic_fetch_sub(&pd->td->users, 1);
	} else {
		ret = ibv_cmd_dealloc_pd(ibpd);
		if (ret)
			return ret;
	}
	free(pd);
	return 0;
}

struct ibv_td *kf_alloc_td(struct ibv_context *context,
			   struct ibv_td_init_attr *attr)
{
	struct kf_td *td;

	if (attr->comp_mask) {
		errno = EOPNOTSUPP;
		return NULL;
	}
	td = calloc(1, sizeof(*td));
	if (!td)
		return NULL;
	td->ibtd.context = context;
	return &td->ibtd;
}

int kf_dealloc_td(struct ibv_td *ibtd)
{
	struct kf_td *td = to_kf_td(ibtd);

	if (atomic_load(&td->users))
		return EBUSY;
	free(td);
	return 0;
}

struct ibv_pd *kf_alloc_parent_domain(struct ibv_context *context,
				      struct ibv_parent_domain_init_attr *attr)
{
	struct kf_pd *parent;

	if (ibv_check_alloc_parent_domain(attr))
		return NULL;
	if (!check_comp_mask(attr->comp_mask,
			     IBV_PARENT_DOMAIN_INIT_ATTR_ALLOCATORS |
			     IBV_PARENT_DOMAIN_INIT_ATTR_PD_CONTEXT |
			     KF_UNPROTECTED_ALLOC)) {
		errno = EOPNOTSUPP;
		return NULL;
	}
	if (attr->pd->context != context ||
	    (attr->td && attr->td->context != context)) {
		errno = EINVAL;
		return NULL;
	}
	parent = calloc(1, sizeof(*parent));
	if (!parent)
		return NULL;
	ibv_initialize_parent_domain(&parent->ibpd, attr->pd);
	parent->contained = to_kf_pd(attr->pd);
	atomic_fetch_add(&parent->contained->users, 1);
	if (attr->td) {
		parent->td = to_kf_td(attr->td);
		atomic_fetch_add(&parent->td->users, 1);
	}
	return &parent->ibpd;
}

/*
 * Stores in @single whether a CQ that is created with this parent domain needs
 * no lock.
 * Return: 0, or EINVAL if it is not a parent domain.
 */
int kf_parent_is_single(struct ibv_pd *ibpd, bool *single)
{
	struct kf_pd *pd;

	if (!ibpd)
		return EINVAL;
	pd = to_kf_pd(ibpd);
	if (!pd->contained)
		return EINVAL;
	*single = pd->td;
	return 0;
}

/* A protection domain of another context of the same file. */
struct ibv_pd *kf_import_pd(struct ibv_context *context, uint32_t handle)
{
	struct kf_pd *pd = calloc(1, sizeof(*pd));

	if (!pd)
		return NULL;
	pd->ibpd.context = context;
	pd->ibpd.handle = handle;
	return &pd->ibpd;
}

void kf_unimport_pd(struct ibv_pd *pd)
{
	free(to_kf_pd(pd));
}
