/* SPDX-License-Identifier: GPL-2.0 */
/*
 * Memory of kernel consumers: declarations for the Rust code of this module.
 *
 * Part of bindings.h; the functions are documented in memory.c.
 */
#ifndef _KFABRIC_SHIM_MEMORY_H
#define _KFABRIC_SHIM_MEMORY_H

#include <linux/types.h>

struct dma_buf;
struct page;
struct scatterlist;

/* Kernel virtual addresses and pages: mem/consumer.rs. */
bool kfabric_shim_is_memory(unsigned long addr);
bool kfabric_shim_on_stack(unsigned long first, unsigned long last);
int kfabric_shim_page_get(void *addr);
void kfabric_shim_page_put(void *addr);
struct scatterlist *kfabric_shim_sg(struct scatterlist *sg, struct page **page,
				    size_t *offset, size_t *len);

/* DMA-BUFs: mem/dma_buf.rs. */
int kfabric_shim_dma_buf_map(struct dma_buf *dmabuf, size_t end, bool write,
			     void **addr);
void kfabric_shim_dma_buf_unmap(struct dma_buf *dmabuf, void *addr);
int kfabric_shim_dma_buf_begin(struct dma_buf *dmabuf, bool write);
int kfabric_shim_dma_buf_end(struct dma_buf *dmabuf, bool write);

#endif /* _KFABRIC_SHIM_MEMORY_H */
