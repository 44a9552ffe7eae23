/* SPDX-License-Identifier: GPL-2.0 */
/*
 * kfabric_ib.ko: devices of the RDMA subsystem on the links of kfabric.ko.
 *
 * Each operation of ib_core is translated into a call of kfabric.ko, which has
 * the objects: see rust/module/verbs/. An object of ib_core has the handle of
 * its object there.
 */
#ifndef _KFABRIC_IB_H
#define _KFABRIC_IB_H

#include <rdma/ib_verbs.h>
#include <rdma/uverbs_ioctl.h>
#include <uapi/rdma/kfabric-abi.h>

#include "../rust/module/verbs/bindings.h"

/* The only port of a device. */
#define KFIB_PORT	1

/**
 * struct kfib_device - a device
 * @ibdev: the object of ib_core
 * @device: the handle of kfabric.ko; NULL if it could not be added
 */
struct kfib_device {
	struct ib_device ibdev;
	struct kfabric_verbs_device *device;
};

/**
 * struct kfib_ucontext - the context of a program
 * @ibucontext: the object of ib_core
 * @context: the handle of kfabric.ko
 */
struct kfib_ucontext {
	struct ib_ucontext ibucontext;
	struct kfabric_verbs_context *context;
};

/**
 * struct kfib_ah - an address handle
 * @ibah: the object of ib_core
 * @av: its addresses
 */
struct kfib_ah {
	struct ib_ah ibah;
	struct kfabric_verbs_av av;
};

/**
 * struct kfib_qp - a queue pair
 * @ibqp: the object of ib_core
 * @qp: the handle of kfabric.ko
 * @lock: held during a change of the state
 * @attr_lock: for @attr, which tasks of other users read, too
 * @attr: the attributes as they were set, for queries
 * @sig_type: which work requests are signalled, for queries
 */
struct kfib_qp {
	struct ib_qp ibqp;
	struct kfabric_verbs_qp *qp;
	struct mutex lock; /* Changes of the state. */
	spinlock_t attr_lock; /* @attr. */
	struct ib_qp_attr attr;
	enum ib_sig_type sig_type;
};

/**
 * struct kfib_pd - a protection domain
 * @ibpd: the object of ib_core
 * @pd: the handle of kfabric.ko
 */
struct kfib_pd {
	struct ib_pd ibpd;
	struct kfabric_verbs_pd *pd;
};

/**
 * struct kfib_mr - a memory region
 * @ibmr: the object of ib_core
 * @mr: the handle of kfabric.ko
 * @max_pages: the most pages that are mapped at once, for fast registration
 * @num_pages: the pages that kfib_map_mr_sg() has so far
 * @pages: their addresses
 */
struct kfib_mr {
	struct ib_mr ibmr;
	struct kfabric_verbs_mr *mr;
	u32 max_pages;
	u32 num_pages;
	u64 pages[] __counted_by(max_pages);
};

/**
 * struct kfib_cq - a completion queue
 * @ibcq: the object of ib_core
 * @cq: the handle of kfabric.ko
 * @is_mapped: its program reads the entries from memory that it maps
 */
struct kfib_cq {
	struct ib_cq ibcq;
	struct kfabric_verbs_cq *cq;
	bool is_mapped;
};

/**
 * struct kfib_srq - a shared receive queue
 * @ibsrq: the object of ib_core
 * @srq: the handle of kfabric.ko
 */
struct kfib_srq {
	struct ib_srq ibsrq;
	struct kfabric_verbs_srq *srq;
};

/**
 * struct kfib_comp_cntr - a completion counter
 * @ibcc: the object of ib_core
 * @cntr: the handle of kfabric.ko
 */
struct kfib_comp_cntr {
	struct ib_comp_cntr ibcc;
	struct kfabric_verbs_comp_cntr *cntr;
};

/**
 * struct kfib_counters - counters of packets
 * @ibcounters: the object of ib_core
 * @counters: the handle of kfabric.ko
 */
struct kfib_counters {
	struct ib_counters ibcounters;
	struct kfabric_verbs_counters *counters;
};

/**
 * struct kfib_flow - a flow
 * @ibflow: the object of ib_core
 * @flow: the handle of kfabric.ko
 * @lock: held while a point is attached
 * @used: the counters of the dynamic points, each of which is a use
 * @num_used: the number of @used
 */
struct kfib_flow {
	struct ib_flow ibflow;
	struct kfabric_verbs_flow *flow;
	struct mutex lock; /* Attaching a point. */
	struct ib_counters *used[KFABRIC_VERBS_MAX_POINTS];
	unsigned int num_used;
};

static inline struct kfib_device *to_kfib(struct ib_device *ibdev)
{
	return container_of(ibdev, struct kfib_device, ibdev);
}

static inline struct kfib_ucontext *
to_kfib_ucontext(struct ib_ucontext *ibucontext)
{
	return container_of(ibucontext, struct kfib_ucontext, ibucontext);
}

static inline struct kfib_ah *to_kfib_ah(struct ib_ah *ibah)
{
	return container_of(ibah, struct kfib_ah, ibah);
}

static inline struct kfib_qp *to_kfib_qp(struct ib_qp *ibqp)
{
	return container_of(ibqp, struct kfib_qp, ibqp);
}

static inline struct kfib_pd *to_kfib_pd(struct ib_pd *ibpd)
{
	return container_of(ibpd, struct kfib_pd, ibpd);
}

static inline struct kfib_mr *to_kfib_mr(struct ib_mr *ibmr)
{
	return container_of(ibmr, struct kfib_mr, ibmr);
}

static inline struct kfib_cq *to_kfib_cq(struct ib_cq *ibcq)
{
	return container_of(ibcq, struct kfib_cq, ibcq);
}

static inline struct kfib_srq *to_kfib_srq(struct ib_srq *ibsrq)
{
	return container_of(ibsrq, struct kfib_srq, ibsrq);
}

static inline struct kfib_comp_cntr *
to_kfib_comp_cntr(struct ib_comp_cntr *ibcc)
{
	return container_of(ibcc, struct kfib_comp_cntr, ibcc);
}

static inline struct kfib_counters *
to_kfib_counters(struct ib_counters *ibcounters)
{
	return container_of(ibcounters, struct kfib_counters, ibcounters);
}

static inline struct kfib_flow *to_kfib_flow(struct ib_flow *ibflow)
{
	return container_of(ibflow, struct kfib_flow, ibflow);
}

/* An SGE list for kfabric.ko. struct ib_sge has the same layout: see post.c. */
static inline const struct kfabric_verbs_sge *
kfib_sges(const struct ib_sge *sg_list)
{
	return (const struct kfabric_verbs_sge *)sg_list;
}

/* The rights of a region. A device may ignore the optional ones. */
static inline u32 kfib_access(int access)
{
	return access & ~IB_ACCESS_OPTIONAL;
}

/* device.c */
int kfib_device_init(void);
void kfib_device_exit(void);
struct ib_device *kfib_device_add(const char *name, struct net_device *ndev);
struct ib_device *kfib_device_on(struct net_device *ndev);
void kfib_device_remove_all(void);

/* port.c */
int kfib_query_port_speed(struct ib_device *ibdev, u32 port, u64 *speed);
int kfib_query_port(struct ib_device *ibdev, u32 port,
		    struct ib_port_attr *attr);
int kfib_query_pkey(struct ib_device *ibdev, u32 port, u16 index, u16 *pkey);
int kfib_get_port_immutable(struct ib_device *ibdev, u32 port,
			    struct ib_port_immutable *immutable);
enum rdma_link_layer kfib_get_link_layer(struct ib_device *ibdev, u32 port);
int kfib_add_gid(const struct ib_gid_attr *attr, void **context);
int kfib_del_gid(const struct ib_gid_attr *attr, void **context);
struct rdma_hw_stats *kfib_alloc_hw_port_stats(struct ib_device *ibdev,
					       u32 port);
int kfib_get_hw_stats(struct ib_device *ibdev, struct rdma_hw_stats *stats,
		      u32 port, int index);
int kfib_stats_init(void);
void kfib_stats_exit(void);

/* context.c */
int kfib_alloc_ucontext(struct ib_ucontext *ibucontext,
			struct ib_udata *udata);
int kfib_query_ucontext(struct ib_ucontext *ibucontext,
			struct uverbs_attr_bundle *attrs);
void kfib_dealloc_ucontext(struct ib_ucontext *ibucontext);
void kfib_disassociate_ucontext(struct ib_ucontext *ibucontext);
struct kfabric_verbs_context *kfib_context_of(struct ib_udata *udata);
int kfib_mmap(struct ib_ucontext *ibucontext, struct vm_area_struct *vma);
int kfib_alloc_pd(struct ib_pd *ibpd, struct ib_udata *udata);
int kfib_dealloc_pd(struct ib_pd *ibpd, struct ib_udata *udata);

/* cq.c */
void kfib_cq_comp(void *cookie);
void kfib_cq_error(void *cookie);
int kfib_create_cq(struct ib_cq *ibcq, const struct ib_cq_init_attr *attr,
		   struct uverbs_attr_bundle *attrs);
int kfib_resize_user_cq(struct ib_cq *ibcq, unsigned int cqe,
			struct ib_udata *udata);
int kfib_destroy_cq(struct ib_cq *ibcq, struct ib_udata *udata);
int kfib_poll_cq(struct ib_cq *ibcq, int count, struct ib_wc *wc);
int kfib_req_notify_cq(struct ib_cq *ibcq, enum ib_cq_notify_flags flags);

/* srq.c */
void kfib_srq_event(void *cookie, u32 number);
int kfib_create_srq(struct ib_srq *ibsrq, struct ib_srq_init_attr *init,
		    struct ib_udata *udata);
int kfib_modify_srq(struct ib_srq *ibsrq, struct ib_srq_attr *attr,
		    enum ib_srq_attr_mask mask, struct ib_udata *udata);
int kfib_query_srq(struct ib_srq *ibsrq, struct ib_srq_attr *attr);
int kfib_destroy_srq(struct ib_srq *ibsrq, struct ib_udata *udata);

/* mr.c */
struct ib_mr *kfib_reg_user_mr(struct ib_pd *ibpd, u64 start, u64 length,
			       u64 iova, int access, struct ib_dmah *dmah,
			       struct ib_udata *udata);
struct ib_mr *kfib_reg_user_mr_dmabuf(struct ib_pd *ibpd, u64 offset,
				      u64 length, u64 iova, int fd, int access,
				      struct ib_dmah *dmah,
				      struct uverbs_attr_bundle *attrs);
struct ib_mr *kfib_get_dma_mr(struct ib_pd *ibpd, int access);
struct ib_mr *kfib_alloc_mr(struct ib_pd *ibpd, enum ib_mr_type type,
			    u32 max_num_sg);
int kfib_map_mr_sg(struct ib_mr *ibmr, struct scatterlist *sg, int count,
		   unsigned int *offset);
int kfib_dereg_mr(struct ib_mr *ibmr, struct ib_udata *udata);

/* qp.c */
int kfib_create_ah(struct ib_ah *ibah, struct rdma_ah_init_attr *init_attr,
		   struct ib_udata *udata);
int kfib_destroy_ah(struct ib_ah *ibah, u32 flags);
int kfib_create_qp(struct ib_qp *ibqp, struct ib_qp_init_attr *attr,
		   struct ib_udata *udata);
int kfib_destroy_qp(struct ib_qp *ibqp, struct ib_udata *udata);
int kfib_modify_qp(struct ib_qp *ibqp, struct ib_qp_attr *attr, int mask,
		   struct ib_udata *udata);
int kfib_query_qp(struct ib_qp *ibqp, struct ib_qp_attr *attr, int mask,
		  struct ib_qp_init_attr *init_attr);
void kfib_qp_event(void *cookie, u32 event);

/* post.c */
int kfib_post_send(struct ib_qp *ibqp, const struct ib_send_wr *wr,
		   const struct ib_send_wr **bad_wr);
int kfib_post_recv(struct ib_qp *ibqp, const struct ib_recv_wr *wr,
		   const struct ib_recv_wr **bad_wr);
int kfib_post_srq_recv(struct ib_srq *ibsrq, const struct ib_recv_wr *wr,
		       const struct ib_recv_wr **bad_wr);

/* comp_cntr.c */
int kfib_query_comp_cntr_caps(struct ib_device *ibdev,
			      struct ib_comp_cntr_caps *caps,
			      struct uverbs_attr_bundle *attrs);
int kfib_create_comp_cntr(struct ib_comp_cntr *ibcc,
			  struct uverbs_attr_bundle *attrs);
int kfib_destroy_comp_cntr(struct ib_comp_cntr *ibcc);
int kfib_modify_comp_cntr(struct ib_comp_cntr *ibcc,
			  enum ib_comp_cntr_entry entry,
			  enum ib_comp_cntr_modify_op op, u64 value);
int kfib_read_comp_cntr(struct ib_comp_cntr *ibcc,
			enum ib_comp_cntr_entry entry, u64 *value);
int kfib_qp_attach_comp_cntr(struct ib_qp *ibqp, struct ib_comp_cntr *ibcc,
			     struct ib_qp_attach_comp_cntr_attr *attr);
extern const struct uapi_definition kfib_comp_cntr_defs[];

/* counters.c */
int kfib_create_counters(struct ib_counters *ibcounters,
			 struct uverbs_attr_bundle *attrs);
int kfib_destroy_counters(struct ib_counters *ibcounters);
int kfib_read_counters(struct ib_counters *ibcounters,
		       struct ib_counters_read_attr *attr,
		       struct uverbs_attr_bundle *attrs);
extern const struct uapi_definition kfib_counters_defs[];

/* flow.c */
struct ib_flow *kfib_create_flow(struct ib_qp *ibqp, struct ib_flow_attr *attr,
				 struct ib_udata *udata);
int kfib_destroy_flow(struct ib_flow *ibflow);

#endif /* _KFABRIC_IB_H */
