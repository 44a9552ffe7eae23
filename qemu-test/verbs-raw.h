/* SPDX-License-Identifier: GPL-2.0 */
/*
 * Calls that no library of a distribution makes: CQs in mapped memory, and memory of
 * a DMA-BUF. For programs on a device of a module that is loaded with ipath=1.
 */
#ifndef VERBS_RAW_H
#define VERBS_RAW_H

#include "verbs-counting.h"
#include "verbs-dmabuf.h"

/* A CQ that its program maps. */
struct mapped_cq {
	__u32 handle;
	struct kfabric_ib_cq_resp resp;
	struct kfabric_ib_cq_ring *ring;
};

static inline int map_cq(struct mapped_cq *cq)
{
	void *ring = mmap(NULL, cq->resp.mmap_size, PROT_READ | PROT_WRITE, MAP_SHARED,
			  device->cmd_fd, cq->resp.mmap_offset);

	if (ring == MAP_FAILED)
		return errno;
	cq->ring = ring;
	return 0;
}

static inline void unmap_cq(struct mapped_cq *cq)
{
	if (cq->ring)
		expect(!munmap(cq->ring, cq->resp.mmap_size), "munmap");
	cq->ring = NULL;
}

/* Makes a CQ; @channel: its events, or -1. */
static inline int create_mapped_cq(struct mapped_cq *cq, __u32 entries, int channel)
{
	union call call = begin(UVERBS_OBJECT_CQ, UVERBS_METHOD_CQ_CREATE);
	struct kfabric_ib_create_cq mapped = { .flags = KFABRIC_IB_CQ_MAPPED };
	__u32 got = 0;
	int ret;

	memset(cq, 0, sizeof(*cq));
	attr(&call, UVERBS_ATTR_CREATE_CQ_HANDLE, 0, 0);
	attr(&call, UVERBS_ATTR_CREATE_CQ_CQE, 4, entries);
	attr(&call, UVERBS_ATTR_CREATE_CQ_USER_HANDLE, 8, 0);
	attr(&call, UVERBS_ATTR_CREATE_CQ_COMP_VECTOR, 4, 0);
	out_attr(&call, UVERBS_ATTR_CREATE_CQ_RESP_CQE, 4, &got);
	memory_attr(&call, UVERBS_ATTR_UHW_IN, sizeof(mapped), &mapped);
	out_attr(&call, UVERBS_ATTR_UHW_OUT, sizeof(cq->resp), &cq->resp);
	if (channel >= 0)
		attr(&call, UVERBS_ATTR_CREATE_CQ_COMP_CHANNEL, 0, channel);
	ret = run(&call);
	cq->handle = call.hdr.attrs[0].data;
	return ret;
}

static inline int destroy_cq(__u32 handle)
{
	union call call = begin(UVERBS_OBJECT_CQ, UVERBS_METHOD_CQ_DESTROY);
	struct ib_uverbs_destroy_cq_resp resp;

	attr(&call, UVERBS_ATTR_DESTROY_CQ_HANDLE, 0, handle);
	out_attr(&call, UVERBS_ATTR_DESTROY_CQ_RESP, sizeof(resp), &resp);
	return run(&call);
}

/* The call that resizes a CQ, with @len bytes for the driver's answer. */
static inline int resize_cq(const struct mapped_cq *cq, __u32 entries,
			    struct kfabric_ib_cq_resp *answer, __u32 len)
{
	union call call = begin(UVERBS_OBJECT_DEVICE, UVERBS_METHOD_INVOKE_WRITE);
	struct ib_uverbs_resize_cq resize = { .cq_handle = cq->handle, .cqe = entries };
	struct ib_uverbs_resize_cq_resp resp;

	memory_attr(&call, UVERBS_ATTR_CORE_IN, sizeof(resize), &resize);
	out_attr(&call, UVERBS_ATTR_CORE_OUT, sizeof(resp), &resp);
	attr(&call, UVERBS_ATTR_WRITE_CMD, 8, IB_USER_VERBS_CMD_RESIZE_CQ);
	if (len)
		out_attr(&call, UVERBS_ATTR_UHW_OUT, len, answer);
	return run(&call);
}

/* Resizes a CQ. The caller maps its new memory. */
static inline int resize_mapped_cq(struct mapped_cq *cq, __u32 entries)
{
	struct kfabric_ib_cq_resp now = { 0 };
	int ret = resize_cq(cq, entries, &now, sizeof(now));

	if (ret)
		return ret;
	unmap_cq(cq);
	cq->resp = now;
	return 0;
}

/* The descriptor of a DMA-BUF of one page. */
static inline int one_page(void)
{
	return make_dma_buf(PAGE, NULL);
}

/* Registers @len bytes of a DMA-BUF from @offset on; addresses begin at @iova. */
static inline int register_part(__u32 pd, int fd, __u64 offset, __u64 len, __u64 iova, int access,
				__u32 *mr, __u32 *lkey, __u32 *rkey)
{
	union call call = begin(UVERBS_OBJECT_MR, UVERBS_METHOD_REG_DMABUF_MR);
	int ret;

	attr(&call, UVERBS_ATTR_REG_DMABUF_MR_HANDLE, 0, 0);
	attr(&call, UVERBS_ATTR_REG_DMABUF_MR_PD_HANDLE, 0, pd);
	attr(&call, UVERBS_ATTR_REG_DMABUF_MR_OFFSET, 8, offset);
	attr(&call, UVERBS_ATTR_REG_DMABUF_MR_LENGTH, 8, len);
	attr(&call, UVERBS_ATTR_REG_DMABUF_MR_IOVA, 8, iova);
	attr(&call, UVERBS_ATTR_REG_DMABUF_MR_FD, 4, fd);
	attr(&call, UVERBS_ATTR_REG_DMABUF_MR_ACCESS_FLAGS, 8, (__u32)access);
	out_attr(&call, UVERBS_ATTR_REG_DMABUF_MR_RESP_LKEY, sizeof(*lkey), lkey);
	out_attr(&call, UVERBS_ATTR_REG_DMABUF_MR_RESP_RKEY, sizeof(*rkey), rkey);
	ret = run(&call);
	*mr = call.hdr.attrs[0].data;
	return ret;
}

/* Registers the page of a DMA-BUF. */
static inline int register_page(__u32 pd, int fd, __u32 *mr)
{
	__u32 lkey, rkey;

	return register_part(pd, fd, 0, PAGE, 0, ACCESS, mr, &lkey, &rkey);
}

static inline int destroy_mr(__u32 mr)
{
	union call call = begin(UVERBS_OBJECT_MR, UVERBS_METHOD_MR_DESTROY);

	attr(&call, UVERBS_ATTR_DESTROY_MR_HANDLE, 0, mr);
	return run(&call);
}

/* The file of the device, for one more open. */
static inline void device_path(char *path, size_t size)
{
	char link[64];
	ssize_t len;

	snprintf(link, sizeof(link), "/proc/self/fd/%d", device->cmd_fd);
	len = readlink(link, path, size - 1);
	expect(len > 0, "readlink: %s", strerror(errno));
	path[len] = 0;
}

/* Opens the device once more, and gives the file a context. */
static inline int open_again(const char *path, int *fd)
{
	union call call = begin(UVERBS_OBJECT_DEVICE, UVERBS_METHOD_GET_CONTEXT);
	__u32 vectors;
	int ret;

	*fd = open(path, O_RDWR | O_CLOEXEC);
	if (*fd < 0)
		return errno;
	out_attr(&call, UVERBS_ATTR_GET_CONTEXT_NUM_COMP_VECTORS, sizeof(vectors), &vectors);
	call.hdr.length = sizeof(call.hdr) + sizeof(call.hdr.attrs[0]);
	ret = ioctl(*fd, RDMA_VERBS_IOCTL, &call.hdr) ? errno : 0;
	if (ret)
		close(*fd);
	return ret;
}

#endif /* VERBS_RAW_H */
