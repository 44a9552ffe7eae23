/* SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause */
/*
 * The provider of rdma-core for the devices of kfabric_ib.ko.
 *
 * All objects are made by the commands of libibverbs. Programs read a CQ from
 * memory that the kernel writes, if the kernel maps CQs, else by system calls.
 * Work requests are posted in batches, with one system call each.
 */
#ifndef KFABRIC_H
#define KFABRIC_H

#include <pthread.h>
#include <stdatomic.h>

#include "rdma_core.h"
#include "infiniband/kfdv.h"

#include <kernel-abi/kfabric-abi.h>
#include <rdma/kfabric-abi.h>

DECLARE_DRV_CMD(kf_create_cq_cmd, IB_USER_VERBS_EX_CMD_CREATE_CQ,
		kfabric_ib_create_cq, kfabric_ib_cq_resp);
DECLARE_DRV_CMD(kf_resize_cq_cmd, IB_USER_VERBS_CMD_RESIZE_CQ, empty,
		kfabric_ib_cq_resp);

/**
 * struct kf_cq - a completion queue
 * @vcq: of libibverbs
 * @lock: held while entries are taken
 * @single: the program calls from one thread at a time; @lock is not used
 * @ring: the mapped memory; NULL for a CQ that is polled by system calls
 * @entries: the slots in @ring
 * @mask: number of slots less one
 * @head: entries that were taken from @ring
 * @resp: the memory, as the kernel has described it
 * @wc: the current entry of an extended CQ
 */
struct kf_cq {
	struct verbs_cq vcq;
	pthread_spinlock_t lock;
	bool single;
	struct kfabric_ib_cq_ring *ring;
	struct kfabric_ib_cqe *entries;
	uint32_t mask;
	uint64_t head;
	struct kfabric_ib_cq_resp resp;
	struct ibv_wc wc;
};

/**
 * struct kf_wrs - work requests that are collected for one call
 * @lock: held from ibv_wr_start() to ibv_wr_complete() or ibv_wr_abort()
 * @wrs: the work requests
 * @sges: their buffers; those of inline data have offsets in @data
 * @data: inline data
 * @num_wrs: work requests in @wrs
 * @num_sges: buffers in @sges
 * @num_data: bytes in @data
 * @room_wrs: work requests that @wrs has room for
 * @room_sges: buffers that @sges has room for
 * @room_data: bytes that @data has room for
 * @error: of the first function that failed, or 0
 */
struct kf_wrs {
	pthread_mutex_t lock;
	struct ib_uverbs_send_wr *wrs;
	struct ibv_sge *sges;
	uint8_t *data;
	size_t num_wrs, num_sges, num_data;
	size_t room_wrs, room_sges, room_data;
	int error;
};

/**
 * struct kf_qp - a queue pair
 * @vqp: of libibverbs
 * @cap: its limits
 * @wrs: of ibv_wr_start()
 */
struct kf_qp {
	struct verbs_qp vqp;
	struct ibv_qp_cap cap;
	struct kf_wrs wrs;
};

static inline struct kf_cq *to_kf_cq(struct ibv_cq *cq)
{
	return container_of(cq, struct kf_cq, vcq.cq);
}

static inline struct kf_cq *to_kf_cq_ex(struct ibv_cq_ex *cq)
{
	return container_of(cq, struct kf_cq, vcq.cq_ex);
}

static inline struct kf_qp *to_kf_qp(struct ibv_qp *qp)
{
	return container_of(qp, struct kf_qp, vqp.qp);
}

static inline struct kf_qp *to_kf_qp_ex(struct ibv_qp_ex *qp)
{
	return container_of(qp, struct kf_qp, vqp.qp_ex);
}

/* domain.c */
struct ibv_pd *kf_alloc_pd(struct ibv_context *context);
int kf_dealloc_pd(struct ibv_pd *pd);
struct ibv_td *kf_alloc_td(struct ibv_context *context,
			   struct ibv_td_init_attr *attr);
int kf_dealloc_td(struct ibv_td *td);
struct ibv_pd *kf_alloc_parent_domain(struct ibv_context *context,
				      struct ibv_parent_domain_init_attr *attr);
int kf_parent_is_single(struct ibv_pd *pd, bool *single);
struct ibv_pd *kf_import_pd(struct ibv_context *context, uint32_t handle);
void kf_unimport_pd(struct ibv_pd *pd);

/* memory.c */
struct ibv_mr *kf_reg_mr(struct ibv_pd *pd, void *addr, size_t length,
			 uint64_t iova, int access);
struct ibv_mr *kf_reg_dmabuf_mr(struct ibv_pd *pd, uint64_t offset,
				size_t length, uint64_t iova, int fd,
				int access);
int kf_dereg_mr(struct verbs_mr *vmr);
struct ibv_mr *kf_import_mr(struct ibv_pd *pd, uint32_t handle);
void kf_unimport_mr(struct ibv_mr *mr);
struct ibv_ah *kf_create_ah(struct ibv_pd *pd, struct ibv_ah_attr *attr);
int kf_destroy_ah(struct ibv_ah *ah);

/* cq.c */
struct ibv_cq *kf_create_cq(struct ibv_context *context, int cqe,
			    struct ibv_comp_channel *channel, int comp_vector);
struct kf_cq *kf_cq_create(struct ibv_context *context,
			   const struct ibv_cq_init_attr_ex *attr);
int kf_resize_cq(struct ibv_cq *ibcq, int cqe);
int kf_destroy_cq(struct ibv_cq *ibcq);
int kf_poll_cq(struct ibv_cq *ibcq, int num, struct ibv_wc *wc);
int kf_cq_take(struct kf_cq *cq, int num, struct ibv_wc *wc);
void kf_cq_remove(struct ibv_cq *ibcq, uint32_t qp_num);
void kf_cq_lock(struct kf_cq *cq);
void kf_cq_unlock(struct kf_cq *cq);

/* cq_ex.c */
struct ibv_cq_ex *kf_create_cq_ex(struct ibv_context *context,
				  struct ibv_cq_init_attr_ex *attr);

/* qp.c */
struct ibv_qp *kf_create_qp(struct ibv_pd *pd, struct ibv_qp_init_attr *attr);
struct ibv_qp *kf_create_qp_ex(struct ibv_context *context,
			       struct ibv_qp_init_attr_ex *attr);
int kf_query_qp(struct ibv_qp *qp, struct ibv_qp_attr *attr, int attr_mask,
		struct ibv_qp_init_attr *init_attr);
int kf_modify_qp(struct ibv_qp *qp, struct ibv_qp_attr *attr, int attr_mask);
int kf_destroy_qp(struct ibv_qp *ibqp);

/* wr.c */
int kf_wrs_init(struct kf_qp *qp, uint64_t send_ops_flags);
void kf_wrs_free(struct kf_qp *qp);

/* post.c */
int kf_post_send(struct ibv_qp *qp, struct ibv_send_wr *wr,
		 struct ibv_send_wr **bad_wr);
int kf_post_recv(struct ibv_qp *qp, struct ibv_recv_wr *wr,
		 struct ibv_recv_wr **bad_wr);
int kf_post_srq_recv(struct ibv_srq *srq, struct ibv_recv_wr *wr,
		     struct ibv_recv_wr **bad_wr);
int kf_post_collected(struct ibv_qp *qp, const struct ib_uverbs_send_wr *wrs,
		      size_t num_wrs, const struct ibv_sge *sges);

/* srq.c */
struct ibv_srq *kf_create_srq(struct ibv_pd *pd,
			      struct ibv_srq_init_attr *attr);
int kf_modify_srq(struct ibv_srq *srq, struct ibv_srq_attr *attr,
		  int attr_mask);
int kf_query_srq(struct ibv_srq *srq, struct ibv_srq_attr *attr);
int kf_destroy_srq(struct ibv_srq *srq);

/* comp_cntr.c */
struct ibv_comp_cntr *kf_create_comp_cntr(struct ibv_context *context,
					  struct ibv_comp_cntr_init_attr *attr);
struct ibv_comp_cntr *
kf_create_comp_cntr_in(struct ibv_context *context,
		       struct ibv_comp_cntr_init_attr *attr,
		       const struct kfdv_comp_cntr_init_attr *kfdv_attr);
void kf_describe_comp_cntr(struct ibv_comp_cntr *ibcc,
			   struct kfdv_comp_cntr *out);
int kf_destroy_comp_cntr(struct ibv_comp_cntr *ibcc);
int kf_query_comp_cntr_caps(struct ibv_context *context,
			    struct ibv_comp_cntr_caps *caps, size_t size);
int kf_set_comp_cntr(struct ibv_comp_cntr *ibcc, uint64_t value);
int kf_set_err_comp_cntr(struct ibv_comp_cntr *ibcc, uint64_t value);
int kf_inc_comp_cntr(struct ibv_comp_cntr *ibcc, uint64_t amount);
int kf_inc_err_comp_cntr(struct ibv_comp_cntr *ibcc, uint64_t amount);
int kf_read_comp_cntr(struct ibv_comp_cntr *ibcc, uint64_t *value);
int kf_read_err_comp_cntr(struct ibv_comp_cntr *ibcc, uint64_t *value);
int kf_qp_attach_comp_cntr(struct ibv_qp *qp, struct ibv_comp_cntr *ibcc,
			   struct ibv_qp_attach_comp_cntr_attr *attr);

/* counters.c */
struct ibv_counters *kf_create_counters(struct ibv_context *context,
					struct ibv_counters_init_attr *attr);
int kf_destroy_counters(struct ibv_counters *counters);
int kf_attach_counters(struct ibv_counters *counters,
		       struct ibv_counter_attach_attr *attr,
		       struct ibv_flow *flow);
int kf_read_counters(struct ibv_counters *counters, uint64_t *values,
		     uint32_t num, uint32_t flags);
struct ibv_flow *kf_create_flow(struct ibv_qp *qp, struct ibv_flow_attr *attr);
int kf_destroy_flow(struct ibv_flow *flow);

#endif /* KFABRIC_H */
