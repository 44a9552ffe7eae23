// SPDX-License-Identifier: GPL-2.0
/*
 * Memory of all kinds for the KUnit suites: pages, scatterlists, and an
 * exporter of DMA-BUFs with failures on demand.
 * Needs a kernel with CONFIG_DMA_SHARED_BUFFER.
 */

#include "helpers.h"

#include <linux/dma-buf.h>
#include <linux/fcntl.h>
#include <linux/iosys-map.h>
#include <linux/kref.h>
#include <linux/mm.h>
#include <linux/module.h>
#include <linux/scatterlist.h>
#include <linux/slab.h>
#include <linux/vmalloc.h>

/**
 * kfabric_kunit_pages - allocate contiguous zeroed pages
 * @order: the number of pages is 2^order
 * @compound: allocate one folio, so that each page can be referenced
 *
 * Return: the first page, or NULL.
 */
struct page *kfabric_kunit_pages(unsigned int order, bool compound)
{
	return alloc_pages(GFP_KERNEL | __GFP_ZERO | (compound ? __GFP_COMP : 0),
			   order);
}

/** kfabric_kunit_pages_free - free pages of kfabric_kunit_pages() */
void kfabric_kunit_pages_free(struct page *page, unsigned int order)
{
	__free_pages(page, order);
}

/** kfabric_kunit_page_count - the reference count of a page or its folio */
int kfabric_kunit_page_count(struct page *page)
{
	return page_count(page);
}

/** kfabric_kunit_slab_page - the page of an object of kmalloc() */
struct page *kfabric_kunit_slab_page(const void *addr)
{
	return virt_to_page(addr);
}

/** kfabric_kunit_sg_alloc - allocate a scatterlist with @entries entries */
int kfabric_kunit_sg_alloc(struct sg_table *table, unsigned int entries)
{
	return sg_alloc_table(table, entries, GFP_KERNEL);
}

/** kfabric_kunit_sg_set - set an entry; returns the next one, or NULL */
struct scatterlist *kfabric_kunit_sg_set(struct scatterlist *sg,
					 struct page *page,
					 unsigned int offset,
					 unsigned int len)
{
	sg_set_page(sg, page, len, offset);
	return sg_next(sg);
}

/** kfabric_kunit_sg_free - free the list of kfabric_kunit_sg_alloc() */
void kfabric_kunit_sg_free(struct sg_table *table)
{
	sg_free_table(table);
}

/*
 * An exporter of one DMA-BUF. The test and the DMA-BUF have references to it.
 */
struct kfabric_kunit_dma {
	struct kref ref;
	void *memory;
	bool io;
	int begin_error;
	int end_error;
	atomic_t counts[KFABRIC_KUNIT_DMA_RELEASED + 1];
};

static void kfabric_kunit_dma_last(struct kref *ref)
{
	struct kfabric_kunit_dma *dma =
		container_of(ref, struct kfabric_kunit_dma, ref);

	vfree(dma->memory);
	kfree(dma);
}

static struct sg_table *kfabric_kunit_dma_map(struct dma_buf_attachment *attach,
					      enum dma_data_direction dir)
{
	return ERR_PTR(-EOPNOTSUPP);
}

static void kfabric_kunit_dma_unmap(struct dma_buf_attachment *attach,
				    struct sg_table *table,
				    enum dma_data_direction dir)
{
}

static void kfabric_kunit_dma_release(struct dma_buf *dmabuf)
{
	struct kfabric_kunit_dma *dma = dmabuf->priv;

	atomic_inc(&dma->counts[KFABRIC_KUNIT_DMA_RELEASED]);
	kref_put(&dma->ref, kfabric_kunit_dma_last);
}

static int kfabric_kunit_dma_begin(struct dma_buf *dmabuf,
				   enum dma_data_direction dir)
{
	struct kfabric_kunit_dma *dma = dmabuf->priv;

	if (dma->begin_error)
		return dma->begin_error;
	atomic_inc(&dma->counts[KFABRIC_KUNIT_DMA_BEGUN]);
	return 0;
}

static int kfabric_kunit_dma_end(struct dma_buf *dmabuf,
				 enum dma_data_direction dir)
{
	struct kfabric_kunit_dma *dma = dmabuf->priv;

	atomic_inc(&dma->counts[KFABRIC_KUNIT_DMA_ENDED]);
	return dma->end_error;
}

static int kfabric_kunit_dma_vmap(struct dma_buf *dmabuf, struct iosys_map *map)
{
	struct kfabric_kunit_dma *dma = dmabuf->priv;

	if (dma->io)
		iosys_map_set_vaddr_iomem(map, (void __iomem *)dma->memory);
	else
		iosys_map_set_vaddr(map, dma->memory);
	atomic_inc(&dma->counts[KFABRIC_KUNIT_DMA_MAPPED]);
	return 0;
}

static void kfabric_kunit_dma_vunmap(struct dma_buf *dmabuf,
				     struct iosys_map *map)
{
	struct kfabric_kunit_dma *dma = dmabuf->priv;

	atomic_dec(&dma->counts[KFABRIC_KUNIT_DMA_MAPPED]);
}

static const struct dma_buf_ops kfabric_kunit_dma_ops = {
	.map_dma_buf = kfabric_kunit_dma_map,
	.unmap_dma_buf = kfabric_kunit_dma_unmap,
	.release = kfabric_kunit_dma_release,
	.begin_cpu_access = kfabric_kunit_dma_begin,
	.end_cpu_access = kfabric_kunit_dma_end,
	.vmap = kfabric_kunit_dma_vmap,
	.vunmap = kfabric_kunit_dma_vunmap,
};

static const struct dma_buf_ops kfabric_kunit_dma_ops_unmapped = {
	.map_dma_buf = kfabric_kunit_dma_map,
	.unmap_dma_buf = kfabric_kunit_dma_unmap,
	.release = kfabric_kunit_dma_release,
};

/**
 * kfabric_kunit_dma_new - export memory as a DMA-BUF
 * @len: its length in bytes; they are zero
 * @writable: whether it may be written
 * @map: KFABRIC_KUNIT_MAP_*
 * @dmabuf: out: the DMA-BUF, with a reference
 *
 * Return: the exporter, for the functions below, or NULL.
 */
void *kfabric_kunit_dma_new(size_t len, bool writable, unsigned int map,
			    struct dma_buf **dmabuf)
{
	DEFINE_DMA_BUF_EXPORT_INFO(info);
	struct kfabric_kunit_dma *dma = kzalloc(sizeof(*dma), GFP_KERNEL);

	if (!dma)
		return NULL;
	kref_init(&dma->ref);
	dma->io = map == KFABRIC_KUNIT_MAP_IO;
	dma->memory = vzalloc(len);
	if (!dma->memory)
		goto fail;
	info.ops = map == KFABRIC_KUNIT_MAP_NONE ?
			   &kfabric_kunit_dma_ops_unmapped :
			   &kfabric_kunit_dma_ops;
	info.size = len;
	info.flags = writable ? O_RDWR : O_RDONLY;
	info.priv = dma;
	*dmabuf = dma_buf_export(&info);
	if (IS_ERR(*dmabuf))
		goto fail;
	kref_get(&dma->ref);
	return dma;
fail:
	kref_put(&dma->ref, kfabric_kunit_dma_last);
	return NULL;
}

/** kfabric_kunit_dma_memory - the memory of the exporter */
void *kfabric_kunit_dma_memory(void *exporter)
{
	struct kfabric_kunit_dma *dma = exporter;

	return dma->memory;
}

/**
 * kfabric_kunit_dma_fail - set the results of later CPU accesses
 * @exporter: the exporter
 * @begin: the error of beginning an access, or 0
 * @end: the error of ending an access, or 0
 */
void kfabric_kunit_dma_fail(void *exporter, int begin, int end)
{
	struct kfabric_kunit_dma *dma = exporter;

	dma->begin_error = begin;
	dma->end_error = end;
}

/**
 * kfabric_kunit_dma_count - read a count of an exporter
 * @exporter: the exporter
 * @which: KFABRIC_KUNIT_DMA_*
 *
 * Return: the count.
 */
unsigned int kfabric_kunit_dma_count(void *exporter, unsigned int which)
{
	struct kfabric_kunit_dma *dma = exporter;

	return atomic_read(&dma->counts[which]);
}

/**
 * kfabric_kunit_dma_put - put the test's reference to a DMA-BUF
 * @exporter: its exporter, which is not freed
 * @dmabuf: the DMA-BUF
 */
void kfabric_kunit_dma_put(void *exporter, struct dma_buf *dmabuf)
{
	dma_buf_put(dmabuf);
}

/** kfabric_kunit_dma_free - put the test's reference to an exporter */
void kfabric_kunit_dma_free(void *exporter)
{
	struct kfabric_kunit_dma *dma = exporter;

	kref_put(&dma->ref, kfabric_kunit_dma_last);
}
