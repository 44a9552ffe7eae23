// SPDX-License-Identifier: GPL-2.0
/*
 * Kernel addresses and pages; memory of kernel consumers; DMA-BUFs.
 *
 * The functions for addresses, pages and scatterlists can be called in any
 * context but NMIs; those for DMA-BUFs need process context.
 */

#include "bindings.h"

#include <linux/dma-buf.h>
#include <linux/fs.h>
#include <linux/iosys-map.h>
#include <linux/mm.h>
#include <linux/module.h>
#include <linux/pagemap.h>
#include <linux/scatterlist.h>
#include <linux/sched/task_stack.h>
#include <linux/vmalloc.h>

MODULE_IMPORT_NS("DMA_BUF");

/**
 * kfabric_shim_is_memory - whether memory is mapped at a kernel address
 * @addr: any address
 *
 * Return: true in the direct map, the kernel's image, and mappings of vmalloc()
 * and of the module loader; false elsewhere, and for device memory.
 */
bool kfabric_shim_is_memory(unsigned long addr)
{
	const void *at = (const void *)addr;
	struct page *page;

	if (addr < TASK_SIZE_MAX)
		return false;
	if (!is_vmalloc_or_module_addr(at))
		return virt_addr_valid(at);
	page = vmalloc_to_page(at);
	return page && pfn_valid(page_to_pfn(page));
}

/**
 * kfabric_shim_on_stack - whether a range begins or ends on the current task's
 * stack
 * @first: the first byte of the range
 * @last: the last byte of the range
 *
 * Return: true if it does.
 */
bool kfabric_shim_on_stack(unsigned long first, unsigned long last)
{
	return object_is_on_stack((const void *)first) ||
	       object_is_on_stack((const void *)last);
}

/**
 * kfabric_shim_page_address - the address of a page in the direct map
 * @page: the page
 *
 * Return: the address.
 */
void *kfabric_shim_page_address(struct page *page)
{
	return page_address(page);
}

/**
 * kfabric_shim_mark_dirty - mark the folio of a page dirty
 * @page: the page, which the caller has pinned for writing
 *
 * Waits for the lock of the folio if it is not dirty yet.
 *
 * Context: process; sleeps.
 * Return: 0, or -EINTR if the task is being killed.
 */
int kfabric_shim_mark_dirty(struct page *page)
{
	struct folio *folio = page_folio(page);

	if (folio_test_dirty(folio))
		return 0;
	if (folio_lock_killable(folio))
		return -EINTR;
	folio_mark_dirty(folio);
	folio_unlock(folio);
	return 0;
}

/**
 * kfabric_shim_unpin - unpin adjacent pages
 * @page: the first page
 * @count: the number of pages
 * @written: they were pinned for writing
 *
 * The kernel cleans a pinned page only for MADV_FREE. Such a page is anonymous,
 * and it is marked dirty again here, which needs no lock.
 *
 * Context: process.
 */
void kfabric_shim_unpin(struct page *page, unsigned long count, bool written)
{
	unsigned long i;

	for (i = 0; written && i < count; i++) {
		struct folio *folio = page_folio(page + i);

		if (folio_test_anon(folio) && !folio_test_dirty(folio))
			folio_set_dirty(folio);
	}
	unpin_user_page_range_dirty_lock(page, count, false);
}

/**
 * kfabric_shim_virt_to_page - the page at an address of the direct map
 * @addr: the address
 *
 * Return: the page.
 */
struct page *kfabric_shim_virt_to_page(void *addr)
{
	return virt_to_page(addr);
}

/**
 * kfabric_shim_page_check - whether there is a page that the CPU can copy from
 * @addr: an address of the direct map, in the page
 *
 * Return: 0; -EINVAL if there is no page; -EOPNOTSUPP if it is device memory.
 */
int kfabric_shim_page_check(void *addr)
{
	if (!virt_addr_valid(addr))
		return -EINVAL;
	return is_zone_device_page(virt_to_page(addr)) ? -EOPNOTSUPP : 0;
}

/**
 * kfabric_shim_page_get - take a reference to a page
 * @addr: an address of the direct map, in a page that
 * kfabric_shim_page_check() accepts
 *
 * Pages of kmalloc() have no reference count, nor have those of a multi-page
 * allocation without __GFP_COMP, but for the first.
 *
 * Return: false if the page has no reference count.
 */
bool kfabric_shim_page_get(void *addr)
{
	struct folio *folio = page_folio(virt_to_page(addr));

	return !folio_test_slab(folio) && !folio_test_large_kmalloc(folio) &&
	       folio_try_get(folio);
}

/**
 * kfabric_shim_page_put - put a reference of kfabric_shim_page_get()
 * @addr: the address passed to it
 */
void kfabric_shim_page_put(void *addr)
{
	put_page(virt_to_page(addr));
}

/**
 * kfabric_shim_sg - read an entry of a scatterlist
 * @sg: the entry
 * @page: out: its first page
 * @offset: out: its first byte, as an offset in that page
 * @len: out: its length in bytes
 *
 * Return: the next entry, or NULL.
 */
struct scatterlist *kfabric_shim_sg(struct scatterlist *sg, struct page **page,
				    size_t *offset, size_t *len)
{
	*page = sg_page(sg);
	*offset = sg->offset;
	*len = sg->length;
	return sg_next(sg);
}

#ifdef CONFIG_DMA_SHARED_BUFFER

/**
 * kfabric_shim_dma_buf_get - take a reference to the DMA-BUF of a descriptor
 * @fd: a descriptor of the current process
 * @dmabuf: out: the DMA-BUF
 * @size: out: its size
 *
 * Return: 0; -EBADF if the descriptor is not open; -EINVAL if it is none of a
 * DMA-BUF; -EOPNOTSUPP if the kernel has no DMA-BUFs.
 */
int kfabric_shim_dma_buf_get(int fd, struct dma_buf **dmabuf, size_t *size)
{
	struct dma_buf *got = dma_buf_get(fd);

	if (IS_ERR(got))
		return PTR_ERR(got);
	*dmabuf = got;
	*size = got->size;
	return 0;
}

/**
 * kfabric_shim_dma_buf_put - put a reference of kfabric_shim_dma_buf_get()
 * @dmabuf: the DMA-BUF
 */
void kfabric_shim_dma_buf_put(struct dma_buf *dmabuf)
{
	dma_buf_put(dmabuf);
}

static enum dma_data_direction kfabric_shim_direction(bool write)
{
	return write ? DMA_BIDIRECTIONAL : DMA_FROM_DEVICE;
}

/**
 * kfabric_shim_dma_buf_map - take a reference to a DMA-BUF and map it
 * @dmabuf: the DMA-BUF
 * @end: its minimum size
 * @write: whether it will be written
 * @addr: out: the address of the mapping, never NULL
 * @size: out: the size of the mapping, which is that of the DMA-BUF
 *
 * If the exporter fails, for lack of memory for example, dma_buf_vmap() warns
 * (WARN_ON_ONCE). Its counting of mappings leaves importers no other way.
 *
 * Return: 0; -EINVAL if it is smaller; -EACCES if it may not be written;
 * -EOPNOTSUPP if its exporter cannot map it, if it is I/O memory, or if the
 * kernel has no DMA-BUFs; or an error of the exporter.
 */
int kfabric_shim_dma_buf_map(struct dma_buf *dmabuf, size_t end, bool write,
			     void **addr, size_t *size)
{
	struct iosys_map map;
	int ret;

	if (end > dmabuf->size)
		return -EINVAL;
	if (write && !(dmabuf->file->f_mode & FMODE_WRITE))
		return -EACCES;
	if (!dmabuf->ops->vmap)
		return -EOPNOTSUPP;
	get_dma_buf(dmabuf);
	ret = dma_buf_vmap_unlocked(dmabuf, &map);
	if (ret)
		goto put;
	if (map.is_iomem) {
		ret = -EOPNOTSUPP;
		dma_buf_vunmap_unlocked(dmabuf, &map);
		goto put;
	}
	*addr = map.vaddr;
	*size = dmabuf->size;
	return 0;
put:
	dma_buf_put(dmabuf);
	return ret;
}

/**
 * kfabric_shim_dma_buf_unmap - undo kfabric_shim_dma_buf_map()
 * @dmabuf: the DMA-BUF
 * @addr: the address of the mapping
 */
void kfabric_shim_dma_buf_unmap(struct dma_buf *dmabuf, void *addr)
{
	struct iosys_map map = IOSYS_MAP_INIT_VADDR(addr);

	dma_buf_vunmap_unlocked(dmabuf, &map);
	dma_buf_put(dmabuf);
}

/**
 * kfabric_shim_dma_buf_begin - begin CPU access to a mapped DMA-BUF
 * @dmabuf: the DMA-BUF
 * @write: whether it may be written, or only read
 *
 * Return: 0, or an error of the exporter.
 */
int kfabric_shim_dma_buf_begin(struct dma_buf *dmabuf, bool write)
{
	return dma_buf_begin_cpu_access(dmabuf, kfabric_shim_direction(write));
}

/**
 * kfabric_shim_dma_buf_end - end CPU access to a DMA-BUF
 * @dmabuf: the DMA-BUF
 * @write: as passed to kfabric_shim_dma_buf_begin()
 *
 * Return: 0, or an error of the exporter.
 */
int kfabric_shim_dma_buf_end(struct dma_buf *dmabuf, bool write)
{
	return dma_buf_end_cpu_access(dmabuf, kfabric_shim_direction(write));
}

#else /* !CONFIG_DMA_SHARED_BUFFER */

int kfabric_shim_dma_buf_get(int fd, struct dma_buf **dmabuf, size_t *size)
{
	return -EOPNOTSUPP;
}

void kfabric_shim_dma_buf_put(struct dma_buf *dmabuf)
{
}

int kfabric_shim_dma_buf_map(struct dma_buf *dmabuf, size_t end, bool write,
			     void **addr, size_t *size)
{
	return -EOPNOTSUPP;
}

void kfabric_shim_dma_buf_unmap(struct dma_buf *dmabuf, void *addr)
{
}

int kfabric_shim_dma_buf_begin(struct dma_buf *dmabuf, bool write)
{
	return -EOPNOTSUPP;
}

int kfabric_shim_dma_buf_end(struct dma_buf *dmabuf, bool write)
{
	return -EOPNOTSUPP;
}

#endif /* CONFIG_DMA_SHARED_BUFFER */
