/* SPDX-License-Identifier: GPL-2.0 */
/*
 * DMA-BUFs for programs that test devices of verbs. A program defines _GNU_SOURCE before
 * it includes anything, and verbs-ends.h before this.
 */
#ifndef VERBS_DMABUF_H
#define VERBS_DMABUF_H

#include <fcntl.h>
#include <linux/udmabuf.h>
#include <sys/ioctl.h>
#include <sys/mman.h>
#include <unistd.h>

/* The descriptor of a DMA-BUF of @len bytes; its memory is also mapped at @map, unless NULL. */
static inline int make_dma_buf(size_t len, void **map)
{
	int memory = memfd_create("dmabuf", MFD_ALLOW_SEALING);
	int udmabuf = open("/dev/udmabuf", O_RDWR);
	struct udmabuf_create args = { .memfd = memory, .size = len };
	int fd;

	expect(memory >= 0 && udmabuf >= 0, "no memfd or udmabuf: %s", strerror(errno));
	expect(!ftruncate(memory, len) && !fcntl(memory, F_ADD_SEALS, F_SEAL_SHRINK), "memfd");
	fd = ioctl(udmabuf, UDMABUF_CREATE, &args);
	expect(fd >= 0, "no DMA-BUF: %s", strerror(errno));
	if (map) {
		*map = mmap(NULL, len, PROT_READ | PROT_WRITE, MAP_SHARED, memory, 0);
		expect(*map != MAP_FAILED, "mmap: %s", strerror(errno));
	}
	close(memory);
	close(udmabuf);
	return fd;
}

#endif /* VERBS_DMABUF_H */
