/* SPDX-License-Identifier: GPL-2.0 */
/*
 * Memory of all kinds for the KUnit suites.
 *
 * Part of bindings.h; the functions are documented in kunit_memory.c.
 */
#ifndef _KFABRIC_SHIM_KUNIT_MEMORY_H
#define _KFABRIC_SHIM_KUNIT_MEMORY_H

#include <linux/types.h>

struct dma_buf;
struct page;
struct scatterlist;
struct sg_table;

struct page *kfabric_shim_kunit_pages(unsigned int order, bool compound);
void kfabric_shim_kunit_pages_free(struct page *page, unsigned int order);
int kfabric_shim_kunit_page_count(struct page *page);
struct page *kfabric_shim_kunit_slab_page(const void *addr);
int kfabric_shim_kunit_sg_alloc(struct sg_table *table, unsigned int entries);
struct scatterlist *kfabric_shim_kunit_sg_set(struct scatterlist *sg,
					      struct page *page,
					      unsigned int offset,
					      unsigned int len);
void kfabric_shim_kunit_sg_free(struct sg_table *table);

/* The mapping that the exporter of a test offers. */
#define KFABRIC_KUNIT_MAP_MEMORY	0
#define KFABRIC_KUNIT_MAP_NONE		1
#define KFABRIC_KUNIT_MAP_IO		2

/* The counts of the exporter of a test. */
#define KFABRIC_KUNIT_DMA_BEGUN		0
#define KFABRIC_KUNIT_DMA_ENDED		1
#define KFABRIC_KUNIT_DMA_MAPPED	2
#define KFABRIC_KUNIT_DMA_RELEASED	3

void *kfabric_shim_kunit_dma_new(size_t len, bool writable, unsigned int map,
				 struct dma_buf **dmabuf);
void *kfabric_shim_kunit_dma_memory(void *exporter);
void kfabric_shim_kunit_dma_fail(void *exporter, int begin, int end);
unsigned int kfabric_shim_kunit_dma_count(void *exporter, unsigned int which);
void kfabric_shim_kunit_dma_put(void *exporter, struct dma_buf *dmabuf);
void kfabric_shim_kunit_dma_free(void *exporter);

#endif /* _KFABRIC_SHIM_KUNIT_MEMORY_H */
