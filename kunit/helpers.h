/* SPDX-License-Identifier: GPL-2.0 */
/*
 * Functions for the KUnit suites.
 *
 * Part of the bindings in a build with the suites; the functions are documented
 * in helpers.c and memory.c.
 */
#ifndef _KFABRIC_KUNIT_HELPERS_H
#define _KFABRIC_KUNIT_HELPERS_H

#include <linux/types.h>

struct dma_buf;
struct page;
struct scatterlist;
struct sg_table;
struct sk_buff;
struct task_struct;

/* Reports, user memory, threads, files, packets: helpers.c. */
void kfabric_kunit_failed(const char *file, unsigned int line,
			  const char *condition);
long kfabric_kunit_map(size_t len, bool writable);
void kfabric_kunit_unmap(unsigned long addr, size_t len);
struct page *kfabric_kunit_page_lock(unsigned long addr, bool *dirty);
void kfabric_kunit_page_unlock(struct page *page);
long kfabric_kunit_pinned(void);
struct task_struct *kfabric_kunit_thread(int (*fn)(void *data), void *data);
void kfabric_kunit_join(struct task_struct *task);
void kfabric_kunit_allow_kill(void);
void kfabric_kunit_kill(struct task_struct *task);
u32 kfabric_kunit_poll(unsigned int fd);
long kfabric_kunit_io(unsigned int fd, bool write, bool nonblock,
		      unsigned long addr, size_t len);
int kfabric_kunit_close(unsigned int fd);
bool kfabric_kunit_may_sleep(void);
int kfabric_kunit_irq(void);
int kfabric_kunit_nice(void);
struct sk_buff *kfabric_kunit_skb(const u8 *packet, u32 len, u32 ip_len,
				  u32 linear, u32 piece);

/* Memory of all kinds: memory.c. */
struct page *kfabric_kunit_pages(unsigned int order, bool compound);
void kfabric_kunit_pages_free(struct page *page, unsigned int order);
int kfabric_kunit_page_count(struct page *page);
struct page *kfabric_kunit_slab_page(const void *addr);
int kfabric_kunit_sg_alloc(struct sg_table *table, unsigned int entries);
struct scatterlist *kfabric_kunit_sg_set(struct scatterlist *sg,
					 struct page *page,
					 unsigned int offset,
					 unsigned int len);
void kfabric_kunit_sg_free(struct sg_table *table);

/* The mapping that the exporter of a test offers. */
#define KFABRIC_KUNIT_MAP_MEMORY	0
#define KFABRIC_KUNIT_MAP_NONE		1
#define KFABRIC_KUNIT_MAP_IO		2

/* The counts of the exporter of a test. */
#define KFABRIC_KUNIT_DMA_BEGUN		0
#define KFABRIC_KUNIT_DMA_ENDED		1
#define KFABRIC_KUNIT_DMA_MAPPED	2
#define KFABRIC_KUNIT_DMA_RELEASED	3

void *kfabric_kunit_dma_new(size_t len, bool writable, unsigned int map,
			    struct dma_buf **dmabuf);
void *kfabric_kunit_dma_memory(void *exporter);
void kfabric_kunit_dma_fail(void *exporter, int begin, int end);
unsigned int kfabric_kunit_dma_count(void *exporter, unsigned int which);
void kfabric_kunit_dma_put(void *exporter, struct dma_buf *dmabuf);
void kfabric_kunit_dma_free(void *exporter);

#endif /* _KFABRIC_KUNIT_HELPERS_H */
