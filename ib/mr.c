// SPDX-License-Identifier: GPL-2.0
/*
 * Memory regions.
 */

#include <linux/log2.h>
#include <linux/slab.h>
#include <rdma/uverbs_ioctl.h>

#include "kfabric_ib.h"

static_assert((int)KFABRIC_VERBS_LOCAL_WRITE == (int)IB_ACCESS_LOCAL_WRITE);
static_assert((int)KFABRIC_VERBS_REMOTE_WRITE == (int)IB_ACCESS_REMOTE_WRITE);
static_assert((int)KFABRIC_VERBS_REMOTE_READ == (int)IB_ACCESS_REMOTE_READ);
static_assert((int)KFABRIC_VERBS_REMOTE_ATOMIC == (int)IB_ACCESS_REMOTE_ATOMIC);

static struct kfib_mr *kfib_mr_alloc(u64 length, u64 iova)
{
	struct kfib_mr *mr = kzalloc_flex(*mr, pages, 0, GFP_KERNEL_ACCOUNT);

	if (mr) {
		mr->ibmr.length = length;
		mr->ibmr.iova = iova;
	}
	return mr;
}

/* Completes a region for ib_core. @region is its handle or an error. */
static struct ib_mr *kfib_mr_registered(struct kfib_mr *mr,
					struct kfabric_verbs_mr *region,
					u32 key)
{
	if (IS_ERR(region)) {
		kfree(mr);
		return ERR_CAST(region);
	}
	mr->mr = region;
	mr->ibmr.lkey = key;
	mr->ibmr.rkey = key;
	return &mr->ibmr;
}

/**
 * kfib_reg_user_mr - register memory of the current process
 * @ibpd: its PD
 * @start: the first address
 * @length: bytes
 * @iova: the first address by which work requests and peers name the memory
 * @access: the rights
 * @dmah: hints for DMA, which the device does not have
 * @udata: no driver data
 *
 * Context: process.
 * Return: the region, or an error: -EOPNOTSUPP for other rights than those to
 * access memory, and those of kfabric_verbs_mr_user().
 */
struct ib_mr *kfib_reg_user_mr(struct ib_pd *ibpd, u64 start, u64 length,
			       u64 iova, int access, struct ib_dmah *dmah,
			       struct ib_udata *udata)
{
	struct kfabric_verbs_mr *region;
	struct kfib_mr *mr;
	u32 key = 0;
	int ret;

	if (dmah)
		return ERR_PTR(-EOPNOTSUPP);
	ret = ib_no_udata_io(udata);
	if (ret)
		return ERR_PTR(ret);
	mr = kfib_mr_alloc(length, iova);
	if (!mr)
		return ERR_PTR(-ENOMEM);
	region = kfabric_verbs_mr_user(to_kfib_pd(ibpd)->pd, start, length,
				       iova, kfib_access(access), &key);
	return kfib_mr_registered(mr, region, key);
}

/**
 * kfib_reg_user_mr_dmabuf - register memory of a DMA-BUF
 * @ibpd: its PD
 * @offset: the first byte of the DMA-BUF
 * @length: bytes
 * @iova: the first address by which work requests and peers name the memory
 * @fd: the descriptor of the DMA-BUF
 * @access: the rights
 * @dmah: hints for DMA, which the device does not have
 * @attrs: no driver data
 *
 * Context: process.
 * Return: the region, or an error: -EOPNOTSUPP for other rights than those to
 * access memory, and those of kfabric_verbs_mr_dma_buf().
 */
struct ib_mr *kfib_reg_user_mr_dmabuf(struct ib_pd *ibpd, u64 offset,
				      u64 length, u64 iova, int fd, int access,
				      struct ib_dmah *dmah,
				      struct uverbs_attr_bundle *attrs)
{
	struct kfabric_verbs_mr *region;
	struct kfib_mr *mr;
	u32 key = 0;

	if (dmah)
		return ERR_PTR(-EOPNOTSUPP);
	mr = kfib_mr_alloc(length, iova);
	if (!mr)
		return ERR_PTR(-ENOMEM);
	region = kfabric_verbs_mr_dma_buf(to_kfib_pd(ibpd)->pd, fd, offset,
					  length, iova, kfib_access(access),
					  &key);
	return kfib_mr_registered(mr, region, key);
}

/**
 * kfib_get_dma_mr - register all memory of the kernel
 * @ibpd: its PD, of a kernel caller
 * @access: the rights
 *
 * Context: process.
 * Return: the region, or an error of kfabric_verbs_mr_dma().
 */
struct ib_mr *kfib_get_dma_mr(struct ib_pd *ibpd, int access)
{
	struct kfib_mr *mr = kfib_mr_alloc(0, 0);
	struct kfabric_verbs_mr *region;
	u32 key = 0;

	if (!mr)
		return ERR_PTR(-ENOMEM);
	region = kfabric_verbs_mr_dma(to_kfib_pd(ibpd)->pd, kfib_access(access),
				      &key);
	return kfib_mr_registered(mr, region, key);
}

/**
 * kfib_alloc_mr - allocate a region for fast registration
 * @ibpd: its PD, of a kernel caller
 * @type: IB_MR_TYPE_MEM_REG
 * @max_num_sg: the most pages
 *
 * Context: process.
 * Return: the region, which grants nothing yet, or an error: -EOPNOTSUPP for
 * another type, and those of kfabric_verbs_mr_fast().
 */
struct ib_mr *kfib_alloc_mr(struct ib_pd *ibpd, enum ib_mr_type type,
			    u32 max_num_sg)
{
	struct kfabric_verbs_mr *region;
	struct kfib_mr *mr;
	u32 key = 0;

	if (type != IB_MR_TYPE_MEM_REG)
		return ERR_PTR(-EOPNOTSUPP);
	if (!max_num_sg || max_num_sg > KFABRIC_VERBS_MAX_PAGES)
		return ERR_PTR(-EINVAL);
	mr = kzalloc_flex(*mr, pages, max_num_sg);
	if (!mr)
		return ERR_PTR(-ENOMEM);
	mr->max_pages = max_num_sg;
	region = kfabric_verbs_mr_fast(to_kfib_pd(ibpd)->pd, max_num_sg, &key);
	return kfib_mr_registered(mr, region, key);
}

static int kfib_set_page(struct ib_mr *ibmr, u64 addr)
{
	struct kfib_mr *mr = to_kfib_mr(ibmr);

	if (mr->num_pages >= mr->max_pages)
		return -ENOMEM;
	mr->pages[mr->num_pages++] = addr;
	return 0;
}

/*
 * Passes the pages of @mr to kfabric.ko, which maps them to the region. Without
 * pages, those that were mapped before are not mapped any more.
 */
static int kfib_map_pages(struct kfib_mr *mr)
{
	struct ib_mr *ibmr = &mr->ibmr;

	return kfabric_verbs_mr_map(mr->mr, mr->pages, mr->num_pages,
				    ibmr->page_size,
				    ibmr->iova & (ibmr->page_size - 1),
				    ibmr->length);
}

/**
 * kfib_map_mr_sg - map memory to a region for fast registration
 * @ibmr: the region
 * @sg: the memory, which the caller keeps while it is registered
 * @count: elements of @sg
 * @offset: the first byte of the first element; out: see ib_sg_to_pages()
 *
 * The next IB_WR_REG_MR registers the memory; if this function fails, it has
 * none to register. Until then the region grants what it has granted.
 *
 * Context: any but NMIs.
 * Return: how many elements were mapped as a whole, also if the region has room
 * for a part of the first one only; or -EINVAL.
 */
int kfib_map_mr_sg(struct ib_mr *ibmr, struct scatterlist *sg, int count,
		   unsigned int *offset)
{
	struct kfib_mr *mr = to_kfib_mr(ibmr);
	int mapped = -EINVAL, ret;

	if (!mr->max_pages)
		return -EINVAL;
	mr->num_pages = 0;
	if (is_power_of_2(ibmr->page_size))
		mapped = ib_sg_to_pages(ibmr, sg, count, offset, kfib_set_page);
	if (mapped < 0)
		mr->num_pages = 0;
	ret = kfib_map_pages(mr);
	return mapped < 0 || !ret ? mapped : ret;
}

/**
 * kfib_dereg_mr - deregister a region
 * @ibmr: the region
 * @udata: no driver data
 *
 * Waits until accesses of peers that have begun are over. Work requests that
 * name the memory keep it until they have completed.
 *
 * Context: process.
 * Return: 0.
 */
int kfib_dereg_mr(struct ib_mr *ibmr, struct ib_udata *udata)
{
	struct kfib_mr *mr = to_kfib_mr(ibmr);

	kfabric_verbs_mr_free(mr->mr);
	kfree(mr);
	return 0;
}
