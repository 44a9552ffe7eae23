// SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause
/*
 * Completion queues.
 *
 * A CQ whose entries are in mapped memory is polled without a system call: the
 * kernel writes entries and then the tail, the program reads entries and then
 * writes the head, see struct kfabric_ib_cq_ring. If the kernel does not map
 * CQs, each poll is a system call.
 */

#include <endian.h>
#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>

#include "kfabric.h"

static_assert(IBV_WC_SEND == 0 && IBV_WC_RDMA_WRITE == 1 &&
	      IBV_WC_RDMA_READ == 2 && IBV_WC_COMP_SWAP == 3 &&
	      IBV_WC_FETCH_ADD == 4 && IBV_WC_LOCAL_INV == 6 &&
	      IBV_WC_RECV == 128 && IBV_WC_RECV_RDMA_WITH_IMM == 129,
	      "the opcodes are those of the kernel");
static_assert(IBV_WC_WITH_INV == KFABRIC_IB_WC_WITH_INV,
	      "the flags are those of the kernel");
static_assert(sizeof(struct kfabric_ib_cq_ring) == 128 &&
	      sizeof(struct kfabric_ib_cqe) == 64, "the memory of a CQ");

void kf_cq_lock(struct kf_cq *cq)
{
	if (!cq->single)
		pthread_spin_lock(&cq->lock);
}

void kf_cq_unlock(struct kf_cq *cq)
{
	if (!cq->single)
		pthread_spin_unlock(&cq->lock);
}

/*
 * The end of the entries that wait. When the device has gone, its memory may
 * read as zeros; then no entry waits.
 */
static uint64_t kf_ring_tail(const struct kf_cq *cq)
{
	uint64_t tail = __atomic_load_n(&cq->ring->tail, __ATOMIC_ACQUIRE);

	return tail - cq->head <= (uint64_t)cq->mask + 1 ? tail : cq->head;
}

static void kf_ring_set_head(const struct kf_cq *cq)
{
	__atomic_store_n(&cq->ring->head, cq->head, __ATOMIC_RELEASE);
}

static struct kfabric_ib_cqe *kf_ring_entry(const struct kf_cq *cq,
					    uint64_t number)
{
	return &cq->entries[number & cq->mask];
}

static void kf_cq_unmap(struct kf_cq *cq)
{
	if (cq->ring)
		munmap(cq->ring, cq->resp.mmap_size);
	cq->ring = NULL;
}

/*
 * Maps the memory that the kernel has described, if it maps the CQ.
 * Return: 0, or an error number.
 */
static int kf_cq_map(struct kf_cq *cq, int cmd_fd)
{
	const struct kfabric_ib_cq_resp *resp = &cq->resp;
	uint64_t needed = sizeof(struct kfabric_ib_cq_ring) +
			  resp->entries * (uint64_t)sizeof(*cq->entries);
	void *memory;

	if (!resp->mmap_offset)
		return 0;
	if (!resp->entries || (resp->entries & (resp->entries - 1)) ||
	    resp->mmap_size < needed)
		return EPROTO;
	memory = mmap(NULL, resp->mmap_size, PROT_READ | PROT_WRITE,
		      MAP_SHARED, cmd_fd, resp->mmap_offset);
	if (memory == MAP_FAILED)
		return errno;
	cq->ring = memory;
	cq->entries = (struct kfabric_ib_cqe *)(cq->ring + 1);
	cq->mask = resp->entries - 1;
	cq->head = __atomic_load_n(&cq->ring->head, __ATOMIC_RELAXED);
	return 0;
}

/* A kernel that knows nothing of mapped CQs refuses the input. */
static int kf_cq_command(struct ibv_context *context,
			 const struct ibv_cq_init_attr_ex *attr,
			 struct kf_cq *cq)
{
	struct kf_create_cq_cmd_resp resp = {};
	struct kf_create_cq_cmd cmd = {};
	int ret;

	cmd.drv_payload.flags = KFABRIC_IB_CQ_MAPPED;
	ret = kf_cmd_create_cq(context, attr, &cq->vcq, &cmd.ibv_cmd,
			       sizeof(cmd), &resp.ibv_resp, sizeof(resp));
	if (ret == EOPNOTSUPP || ret == EINVAL) {
		memset(&resp, 0, sizeof(resp));
		ret = kf_cmd_create_cq(context, attr, &cq->vcq, &cmd.ibv_cmd,
				       sizeof(cmd.ibv_cmd), &resp.ibv_resp,
				       sizeof(resp.ibv_resp));
	}
	cq->resp = resp.drv_payload;
	return ret;
}

/* Return: the CQ, or NULL with errno. */
struct kf_cq *kf_cq_create(struct ibv_context *context,
			   const struct ibv_cq_init_attr_ex *attr)
{
	struct kf_cq *cq;
	int ret;

	cq = calloc(1, sizeof(*cq));
	if (!cq)
		return NULL;
	pthread_spin_init(&cq->lock, PTHREAD_PROCESS_PRIVATE);
	ret = kf_cq_command(context, attr, cq);
	if (ret)
		goto err_free;
	ret = kf_cq_map(cq, context->cmd_fd);
	if (ret)
		goto err_destroy;
	return cq;

err_destroy:
	ibv_cmd_destroy_cq(&cq->vcq.cq);
err_free:
	pthread_spin_destroy(&cq->lock);
	free(cq);
	errno = ret;
	return NULL;
}

struct ibv_cq *kf_create_cq(struct ibv_context *context, int cqe,
			    struct ibv_comp_channel *channel, int comp_vector)
{
	struct ibv_cq_init_attr_ex attr = {
		.cqe = cqe,
		.channel = channel,
		.comp_vector = comp_vector,
	};
	struct kf_cq *cq = kf_cq_create(context, &attr);

	return cq ? &cq->vcq.cq : NULL;
}

/*
 * The kernel gives the CQ other memory, to which it has moved the entries that
 * wait. The lock keeps other threads from taking entries meanwhile, which would
 * be in the new memory again.
 */
int kf_resize_cq(struct ibv_cq *ibcq, int cqe)
{
	struct kf_resize_cq_cmd_resp resp = {};
	struct kf_resize_cq_cmd cmd = {};
	struct kf_cq *cq = to_kf_cq(ibcq);
	int ret;

	kf_cq_lock(cq);
	ret = ibv_cmd_resize_cq(ibcq, cqe, &cmd.ibv_cmd, sizeof(cmd),
				&resp.ibv_resp, sizeof(resp));
	if (!ret && cq->resp.mmap_offset) {
		kf_cq_unmap(cq);
		cq->resp = resp.drv_payload;
		ret = kf_cq_map(cq, ibcq->context->cmd_fd);
	}
	kf_cq_unlock(cq);
	return ret;
}

int kf_destroy_cq(struct ibv_cq *ibcq)
{
	struct kf_cq *cq = to_kf_cq(ibcq);
	int ret;

	ret = ibv_cmd_destroy_cq(ibcq);
	if (ret)
		return ret;
	kf_cq_unmap(cq);
	pthread_spin_destroy(&cq->lock);
	free(cq);
	return 0;
}

static void kf_wc(const struct kfabric_ib_cqe *entry, struct ibv_wc *wc)
{
	*wc = (struct ibv_wc) {
		.wr_id = entry->wr_id,
		.status = entry->status,
		.opcode = entry->opcode,
		.byte_len = entry->byte_len,
		.qp_num = entry->qp_num,
		.src_qp = entry->src_qp,
		.wc_flags = entry->wc_flags,
	};
	if (wc->wc_flags & IBV_WC_WITH_INV)
		wc->invalidated_rkey = entry->imm_or_key;
	else
		wc->imm_data = htobe32(entry->imm_or_key);
}

/*
 * Takes up to @num entries. The caller holds the lock of a mapped CQ.
 * Return: how many, or -1.
 */
int kf_cq_take(struct kf_cq *cq, int num, struct ibv_wc *wc)
{
	uint64_t tail;
	int done;

	if (!cq->resp.mmap_offset)
		return ibv_cmd_poll_cq(&cq->vcq.cq, num, wc);
	/* A resize has failed to map the memory. */
	if (!cq->ring && kf_cq_map(cq, cq->vcq.cq.context->cmd_fd))
		return -1;
	tail = kf_ring_tail(cq);
	for (done = 0; done < num && cq->head != tail; done++)
		kf_wc(kf_ring_entry(cq, cq->head++), &wc[done]);
	if (done)
		kf_ring_set_head(cq);
	return done;
}

int kf_poll_cq(struct ibv_cq *ibcq, int num, struct ibv_wc *wc)
{
	struct kf_cq *cq = to_kf_cq(ibcq);
	int done;

	if (!cq->resp.mmap_offset)
		return ibv_cmd_poll_cq(ibcq, num, wc);
	kf_cq_lock(cq);
	done = kf_cq_take(cq, num, wc);
	kf_cq_unlock(cq);
	return done;
}

/*
 * Removes the entries of a destroyed QP from a mapped CQ; the kernel writes no
 * more of them. The other entries move towards the tail, and the head follows
 * them. From a CQ that is not mapped, the kernel removes the entries.
 */
void kf_cq_remove(struct ibv_cq *ibcq, uint32_t qp_num)
{
	struct kf_cq *cq;
	uint64_t from, to;

	if (!ibcq)
		return;
	cq = to_kf_cq(ibcq);
	if (!cq->ring)
		return;
	kf_cq_lock(cq);
	from = kf_ring_tail(cq);
	to = from;
	while (from != cq->head) {
		const struct kfabric_ib_cqe *entry = kf_ring_entry(cq, --from);

		if (entry->qp_num != qp_num)
			*kf_ring_entry(cq, --to) = *entry;
	}
	cq->head = to;
	kf_ring_set_head(cq);
	kf_cq_unlock(cq);
}
