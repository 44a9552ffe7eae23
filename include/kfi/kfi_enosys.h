/* SPDX-License-Identifier: GPL-2.0 */
/*
 * For modules that are a provider: operations that return -KFI_ENOSYS, for the
 * slots of the tables of operations that the provider does not have.
 *
 *	static struct kfi_ops_cm ops = {
 *		.size = sizeof(ops),
 *		.getname = my_getname,
 *		.setname = kfi_no_setname,
 *		...
 *	};
 *
 * Each has the name of its slot behind kfi_no_, with av_, mr_, msg_, tagged_,
 * rma_, atomic_, eq_ or cq_ before it where several tables have such a slot.
 * Slots that are missing here are those that every provider fills.
 *
 * Context: Any.
 */
#ifndef _KFI_ENOSYS_H
#define _KFI_ENOSYS_H

#include "kfi_atomic.h"
#include "kfi_cm.h"
#include "kfi_domain.h"
#include "kfi_endpoint.h"
#include "kfi_prov.h"
#include "kfi_rma.h"
#include "kfi_tagged.h"

#define KFI_NO_OP(type, name, ...)				\
	static inline type kfi_no_##name(__VA_ARGS__)		\
	{							\
		return -KFI_ENOSYS;				\
	}

/* Of struct kfi_ops: all objects. */
KFI_NO_OP(int, bind, struct kfid *fid, struct kfid *bfid, u64 flags)
KFI_NO_OP(int, control, struct kfid *fid, int command, void *arg)
KFI_NO_OP(int, ops_open, struct kfid *fid, const char *name, u64 flags,
	  void **ops, void *context)

/* Of struct kfi_ops_fabric: fabrics. */
KFI_NO_OP(int, domain, struct kfid_fabric *fabric, struct kfi_info *info,
	  struct kfid_domain **domain, void *context)
KFI_NO_OP(int, passive_ep, struct kfid_fabric *fabric, struct kfi_info *info,
	  struct kfid_pep **pep, void *context)
KFI_NO_OP(int, eq_open, struct kfid_fabric *fabric, struct kfi_eq_attr *attr,
	  struct kfid_eq **eq, kfi_event_handler event_handler, void *context)
KFI_NO_OP(int, wait_open, struct kfid_fabric *fabric,
	  struct kfi_wait_attr *attr, struct kfid_wait **waitset)

/* Of struct kfi_ops_domain: domains. */
KFI_NO_OP(int, cq_open, struct kfid_domain *domain, struct kfi_cq_attr *attr,
	  struct kfid_cq **cq, kfi_comp_handler comp_handler, void *context)
KFI_NO_OP(int, endpoint, struct kfid_domain *domain, struct kfi_info *info,
	  struct kfid_ep **ep, void *context)
KFI_NO_OP(int, cntr_open, struct kfid_domain *domain,
	  struct kfi_cntr_attr *attr, struct kfid_cntr **cntr, void *context)
KFI_NO_OP(int, poll_open, struct kfid_domain *domain,
	  struct kfi_poll_attr *attr, struct kfid_poll **pollset)
KFI_NO_OP(int, stx_ctx, struct kfid_domain *domain, struct kfi_tx_attr *attr,
	  struct kfid_stx **stx, void *context)
KFI_NO_OP(int, srx_ctx, struct kfid_domain *domain, struct kfi_rx_attr *attr,
	  struct kfid_ep **rx_ep, void *context)
KFI_NO_OP(int, query_atomic, struct kfid_domain *domain,
	  enum kfi_datatype datatype, enum kfi_op op,
	  struct kfi_atomic_attr *attr, u64 flags)

/* Of struct kfi_ops_av: address vectors. */
KFI_NO_OP(int, av_insert, struct kfid_av *av, const void *addr, size_t count,
	  kfi_addr_t *kfi_addr, u64 flags, void *context)
KFI_NO_OP(int, av_insertsvc, struct kfid_av *av, const char *node,
	  const char *service, kfi_addr_t *kfi_addr, u64 flags, void *context)
KFI_NO_OP(int, av_insertsym, struct kfid_av *av, const char *node,
	  size_t nodecnt, const char *service, size_t svccnt,
	  kfi_addr_t *kfi_addr, u64 flags, void *context)

/* Of struct kfi_ops_mr: registration. */
KFI_NO_OP(int, mr_reg, struct kfid *fid, const void *buf, size_t len,
	  u64 access, u64 offset, u64 requested_key, u64 flags,
	  struct kfid_mr **mr, void *context)
KFI_NO_OP(int, mr_regv, struct kfid *fid, const struct kvec *iov, size_t count,
	  u64 access, u64 offset, u64 requested_key, u64 flags,
	  struct kfid_mr **mr, void *context)
KFI_NO_OP(int, mr_regbv, struct kfid *fid, const struct bio_vec *biov,
	  size_t count, u64 access, u64 offset, u64 requested_key, u64 flags,
	  struct kfid_mr **mr, void *context)
KFI_NO_OP(int, mr_regsgl, struct kfid *fid, const struct scatterlist *sgl,
	  size_t count, u64 access, u64 offset, u64 requested_key, u64 flags,
	  struct kfid_mr **mr, void *context)
KFI_NO_OP(int, mr_regattr, struct kfid *fid, const struct kfi_mr_attr *attr,
	  u64 flags, struct kfid_mr **mr)

/* Of struct kfi_ops_ep: endpoints. */
KFI_NO_OP(ssize_t, cancel, struct kfid *fid, void *context)
KFI_NO_OP(int, getopt, struct kfid *fid, int level, int optname, void *optval,
	  size_t *optlen)
KFI_NO_OP(int, setopt, struct kfid *fid, int level, int optname,
	  const void *optval, size_t optlen)
KFI_NO_OP(int, tx_ctx, struct kfid_ep *sep, int index, struct kfi_tx_attr *attr,
	  struct kfid_ep **tx_ep, void *context)
KFI_NO_OP(int, rx_ctx, struct kfid_ep *sep, int index, struct kfi_rx_attr *attr,
	  struct kfid_ep **rx_ep, void *context)

/* Of struct kfi_ops_cm: connections. */
KFI_NO_OP(int, setname, kfid_t fid, void *addr, size_t addrlen)
KFI_NO_OP(int, getname, struct kfid *fid, void *addr, size_t *addrlen)
KFI_NO_OP(int, getpeer, struct kfid_ep *ep, void *addr, size_t *addrlen)
KFI_NO_OP(int, connect, struct kfid_ep *ep, const void *addr, const void *param,
	  size_t paramlen)
KFI_NO_OP(int, listen, struct kfid_pep *pep)
KFI_NO_OP(int, accept, struct kfid_ep *ep, const void *param, size_t paramlen)
KFI_NO_OP(int, reject, struct kfid_pep *pep, kfid_t connreq, const void *param,
	  size_t paramlen)
KFI_NO_OP(int, shutdown, struct kfid_ep *ep, u64 flags)
KFI_NO_OP(int, join, struct kfid_ep *ep, const void *addr, u64 flags,
	  struct kfid_mc **mc, void *context)

/* Of struct kfi_ops_msg: messages. */
KFI_NO_OP(ssize_t, msg_recv, struct kfid_ep *ep, void *buf, size_t len,
	  void *desc, kfi_addr_t src_addr, void *context)
KFI_NO_OP(ssize_t, msg_recvv, struct kfid_ep *ep, const struct kvec *iov,
	  void **desc, size_t count, kfi_addr_t src_addr, void *context)
KFI_NO_OP(ssize_t, msg_recvbv, struct kfid_ep *ep, const struct bio_vec *biov,
	  void **desc, size_t count, kfi_addr_t src_addr, void *context)
KFI_NO_OP(ssize_t, msg_recvsgl, struct kfid_ep *ep,
	  const struct scatterlist *sgl, void **desc, size_t count,
	  kfi_addr_t src_addr, void *context)
KFI_NO_OP(ssize_t, msg_recvmsg, struct kfid_ep *ep, const struct kfi_msg *msg,
	  u64 flags)
KFI_NO_OP(ssize_t, msg_send, struct kfid_ep *ep, const void *buf, size_t len,
	  void *desc, kfi_addr_t dest_addr, void *context)
KFI_NO_OP(ssize_t, msg_sendv, struct kfid_ep *ep, const struct kvec *iov,
	  void **desc, size_t count, kfi_addr_t dest_addr, void *context)
KFI_NO_OP(ssize_t, msg_sendbv, struct kfid_ep *ep, const struct bio_vec *biov,
	  void **desc, size_t count, kfi_addr_t dest_addr, void *context)
KFI_NO_OP(ssize_t, msg_sendsgl, struct kfid_ep *ep,
	  const struct scatterlist *sgl, void **desc, size_t count,
	  kfi_addr_t dest_addr, void *context)
KFI_NO_OP(ssize_t, msg_sendmsg, struct kfid_ep *ep, const struct kfi_msg *msg,
	  u64 flags)
KFI_NO_OP(ssize_t, msg_inject, struct kfid_ep *ep, const void *buf, size_t len,
	  kfi_addr_t dest_addr)
KFI_NO_OP(ssize_t, msg_senddata, struct kfid_ep *ep, const void *buf,
	  size_t len, void *desc, u64 data, kfi_addr_t dest_addr, void *context)
KFI_NO_OP(ssize_t, msg_injectdata, struct kfid_ep *ep, const void *buf,
	  size_t len, u64 data, kfi_addr_t dest_addr)

/* Of struct kfi_ops_tagged: tagged messages. */
KFI_NO_OP(ssize_t, tagged_recv, struct kfid_ep *ep, void *buf, size_t len,
	  void *desc, kfi_addr_t src_addr, u64 tag, u64 ignore, void *context)
KFI_NO_OP(ssize_t, tagged_recvv, struct kfid_ep *ep, const struct kvec *iov,
	  void **desc, size_t count, kfi_addr_t src_addr, u64 tag, u64 ignore,
	  void *context)
KFI_NO_OP(ssize_t, tagged_recvbv, struct kfid_ep *ep,
	  const struct bio_vec *biov, void **desc, size_t count,
	  kfi_addr_t src_addr, u64 tag, u64 ignore, void *context)
KFI_NO_OP(ssize_t, tagged_recvsgl, struct kfid_ep *ep,
	  const struct scatterlist *sgl, void **desc, size_t count,
	  kfi_addr_t src_addr, u64 tag, u64 ignore, void *context)
KFI_NO_OP(ssize_t, tagged_recvmsg, struct kfid_ep *ep,
	  const struct kfi_msg_tagged *msg, u64 flags)
KFI_NO_OP(ssize_t, tagged_send, struct kfid_ep *ep, const void *buf, size_t len,
	  void *desc, kfi_addr_t dest_addr, u64 tag, void *context)
KFI_NO_OP(ssize_t, tagged_sendv, struct kfid_ep *ep, const struct kvec *iov,
	  void **desc, size_t count, kfi_addr_t dest_addr, u64 tag,
	  void *context)
KFI_NO_OP(ssize_t, tagged_sendbv, struct kfid_ep *ep,
	  const struct bio_vec *biov, void **desc, size_t count,
	  kfi_addr_t dest_addr, u64 tag, void *context)
KFI_NO_OP(ssize_t, tagged_sendsgl, struct kfid_ep *ep,
	  const struct scatterlist *sgl, void **desc, size_t count,
	  kfi_addr_t dest_addr, u64 tag, void *context)
KFI_NO_OP(ssize_t, tagged_sendmsg, struct kfid_ep *ep,
	  const struct kfi_msg_tagged *msg, u64 flags)
KFI_NO_OP(ssize_t, tagged_inject, struct kfid_ep *ep, const void *buf,
	  size_t len, kfi_addr_t dest_addr, u64 tag)
KFI_NO_OP(ssize_t, tagged_senddata, struct kfid_ep *ep, const void *buf,
	  size_t len, void *desc, u64 data, kfi_addr_t dest_addr, u64 tag,
	  void *context)
KFI_NO_OP(ssize_t, tagged_injectdata, struct kfid_ep *ep, const void *buf,
	  size_t len, u64 data, kfi_addr_t dest_addr, u64 tag)

/* Of struct kfi_ops_rma: remote memory access. */
KFI_NO_OP(ssize_t, rma_read, struct kfid_ep *ep, void *buf, size_t len,
	  void *desc, kfi_addr_t src_addr, u64 addr, u64 key, void *context)
KFI_NO_OP(ssize_t, rma_readv, struct kfid_ep *ep, const struct kvec *iov,
	  void **desc, size_t count, kfi_addr_t src_addr, u64 addr, u64 key,
	  void *context)
KFI_NO_OP(ssize_t, rma_readbv, struct kfid_ep *ep, const struct bio_vec *biov,
	  void **desc, size_t count, kfi_addr_t src_addr, u64 addr, u64 key,
	  void *context)
KFI_NO_OP(ssize_t, rma_readsgl, struct kfid_ep *ep,
	  const struct scatterlist *sgl, void **desc, size_t count,
	  kfi_addr_t src_addr, u64 addr, u64 key, void *context)
KFI_NO_OP(ssize_t, rma_readmsg, struct kfid_ep *ep,
	  const struct kfi_msg_rma *msg, u64 flags)
KFI_NO_OP(ssize_t, rma_write, struct kfid_ep *ep, const void *buf, size_t len,
	  void *desc, kfi_addr_t dest_addr, u64 addr, u64 key, void *context)
KFI_NO_OP(ssize_t, rma_writev, struct kfid_ep *ep, const struct kvec *iov,
	  void **desc, size_t count, kfi_addr_t dest_addr, u64 addr, u64 key,
	  void *context)
KFI_NO_OP(ssize_t, rma_writebv, struct kfid_ep *ep, const struct bio_vec *biov,
	  void **desc, size_t count, kfi_addr_t dest_addr, u64 addr, u64 key,
	  void *context)
KFI_NO_OP(ssize_t, rma_writesgl, struct kfid_ep *ep,
	  const struct scatterlist *sgl, void **desc, size_t count,
	  kfi_addr_t dest_addr, u64 addr, u64 key, void *context)
KFI_NO_OP(ssize_t, rma_writemsg, struct kfid_ep *ep,
	  const struct kfi_msg_rma *msg, u64 flags)
KFI_NO_OP(ssize_t, rma_inject, struct kfid_ep *ep, const void *buf, size_t len,
	  kfi_addr_t dest_addr, u64 addr, u64 key)
KFI_NO_OP(ssize_t, rma_writedata, struct kfid_ep *ep, const void *buf,
	  size_t len, void *desc, u64 data, kfi_addr_t dest_addr, u64 addr,
	  u64 key, void *context)
KFI_NO_OP(ssize_t, rma_injectdata, struct kfid_ep *ep, const void *buf,
	  size_t len, u64 data, kfi_addr_t dest_addr, u64 addr, u64 key)

/* Of struct kfi_ops_atomic: atomics. */
KFI_NO_OP(ssize_t, atomic_write, struct kfid_ep *ep, const void *buf,
	  size_t count, void *desc, kfi_addr_t dest_addr, u64 addr, u64 key,
	  enum kfi_datatype datatype, enum kfi_op op, void *context)
KFI_NO_OP(ssize_t, atomic_writev, struct kfid_ep *ep, const struct kfi_ioc *iov,
	  void **desc, size_t count, kfi_addr_t dest_addr, u64 addr, u64 key,
	  enum kfi_datatype datatype, enum kfi_op op, void *context)
KFI_NO_OP(ssize_t, atomic_writemsg, struct kfid_ep *ep,
	  const struct kfi_msg_atomic *msg, u64 flags)
KFI_NO_OP(ssize_t, atomic_inject, struct kfid_ep *ep, const void *buf,
	  size_t count, kfi_addr_t dest_addr, u64 addr, u64 key,
	  enum kfi_datatype datatype, enum kfi_op op)
KFI_NO_OP(ssize_t, atomic_readwrite, struct kfid_ep *ep, const void *buf,
	  size_t count, void *desc, void *result, void *result_desc,
	  kfi_addr_t dest_addr, u64 addr, u64 key, enum kfi_datatype datatype,
	  enum kfi_op op, void *context)
KFI_NO_OP(ssize_t, atomic_readwritev, struct kfid_ep *ep,
	  const struct kfi_ioc *iov, void **desc, size_t count,
	  struct kfi_ioc *resultv, void **result_desc, size_t result_count,
	  kfi_addr_t dest_addr, u64 addr, u64 key, enum kfi_datatype datatype,
	  enum kfi_op op, void *context)
KFI_NO_OP(ssize_t, atomic_readwritemsg, struct kfid_ep *ep,
	  const struct kfi_msg_atomic *msg, struct kfi_ioc *resultv,
	  void **result_desc, size_t result_count, u64 flags)
KFI_NO_OP(ssize_t, atomic_compwrite, struct kfid_ep *ep, const void *buf,
	  size_t count, void *desc, const void *compare, void *compare_desc,
	  void *result, void *result_desc, kfi_addr_t dest_addr, u64 addr,
	  u64 key, enum kfi_datatype datatype, enum kfi_op op, void *context)
KFI_NO_OP(ssize_t, atomic_compwritev, struct kfid_ep *ep,
	  const struct kfi_ioc *iov, void **desc, size_t count,
	  const struct kfi_ioc *comparev, void **compare_desc,
	  size_t compare_count, struct kfi_ioc *resultv, void **result_desc,
	  size_t result_count, kfi_addr_t dest_addr, u64 addr, u64 key,
	  enum kfi_datatype datatype, enum kfi_op op, void *context)
KFI_NO_OP(ssize_t, atomic_compwritemsg, struct kfid_ep *ep,
	  const struct kfi_msg_atomic *msg, const struct kfi_ioc *comparev,
	  void **compare_desc, size_t compare_count, struct kfi_ioc *resultv,
	  void **result_desc, size_t result_count, u64 flags)
KFI_NO_OP(int, atomic_writevalid, struct kfid_ep *ep,
	  enum kfi_datatype datatype, enum kfi_op op, size_t *count)
KFI_NO_OP(int, atomic_readwritevalid, struct kfid_ep *ep,
	  enum kfi_datatype datatype, enum kfi_op op, size_t *count)
KFI_NO_OP(int, atomic_compwritevalid, struct kfid_ep *ep,
	  enum kfi_datatype datatype, enum kfi_op op, size_t *count)

/* Of struct kfi_ops_eq: event queues. */
KFI_NO_OP(ssize_t, eq_write, struct kfid_eq *eq, u32 event, const void *buf,
	  size_t len, u64 flags)
KFI_NO_OP(ssize_t, eq_sread, struct kfid_eq *eq, u32 *event, void *buf,
	  size_t len, int timeout, u64 flags)

/* Of struct kfi_ops_cq: completion queues. */
KFI_NO_OP(ssize_t, cq_readfrom, struct kfid_cq *cq, void *buf, size_t count,
	  kfi_addr_t *src_addr)
KFI_NO_OP(ssize_t, cq_sread, struct kfid_cq *cq, void *buf, size_t count,
	  const void *cond, int timeout)
KFI_NO_OP(ssize_t, cq_sreadfrom, struct kfid_cq *cq, void *buf, size_t count,
	  kfi_addr_t *src_addr, const void *cond, int timeout)
KFI_NO_OP(int, cq_signal, struct kfid_cq *cq)

#undef KFI_NO_OP

#endif /* _KFI_ENOSYS_H */
