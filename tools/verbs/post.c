// SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause
/*
 * Posting: a batch of work requests, in the kernel's format, is one system
 * call.
 *
 * The command of libibverbs for it has the batch on the stack, and at most
 * 64 KiB of it. Here a batch is on the heap if it is large, and has as much as
 * the kernel takes at once: 256 KiB, which are thousands of work requests.
 */

#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "kfabric.h"

/* Bytes of a command: their number is counted in 16 bits of 32-bit words. */
#define KF_MAX_COMMAND	(UINT16_MAX * 4)

/* Bytes of a batch that is built on the stack. */
#define KF_SMALL	4096

/* The commands for sends and for receives are equal but for their names. */
static_assert(sizeof(struct ib_uverbs_post_send) ==
	      sizeof(struct ib_uverbs_post_recv) &&
	      sizeof(struct ib_uverbs_post_send) ==
	      sizeof(struct ib_uverbs_post_srq_recv) &&
	      offsetof(struct ib_uverbs_post_send, qp_handle) ==
	      offsetof(struct ib_uverbs_post_srq_recv, srq_handle) &&
	      sizeof(struct ib_uverbs_post_send_resp) ==
	      sizeof(struct ib_uverbs_post_srq_recv_resp),
	      "one format for all posts");
static_assert(sizeof(struct ibv_sge) == sizeof(struct ib_uverbs_sge) &&
	      offsetof(struct ibv_sge, length) ==
	      offsetof(struct ib_uverbs_sge, length) &&
	      offsetof(struct ibv_sge, lkey) ==
	      offsetof(struct ib_uverbs_sge, lkey),
	      "an SGE is that of the kernel");

/**
 * union kf_wr - a work request of a list to send or to receive
 * @send: one to send
 * @recv: one to receive; its members begin one to send, too
 */
union kf_wr {
	struct ibv_send_wr send;
	struct ibv_recv_wr recv;
};

static_assert(offsetof(struct ibv_send_wr, next) ==
	      offsetof(struct ibv_recv_wr, next) &&
	      offsetof(struct ibv_send_wr, sg_list) ==
	      offsetof(struct ibv_recv_wr, sg_list) &&
	      offsetof(struct ibv_send_wr, num_sge) ==
	      offsetof(struct ibv_recv_wr, num_sge),
	      "one list for all posts");

/**
 * struct kf_command - a batch: this head, then the work requests, then all SGEs
 * @hdr: which command, and its size
 * @post: for which queue, and how many of each
 */
struct kf_command {
	struct ib_uverbs_cmd_hdr hdr;
	struct ib_uverbs_post_send post;
} __attribute__((packed));

static_assert(sizeof(struct kf_command) ==
	      sizeof(struct ib_uverbs_cmd_hdr) +
	      sizeof(struct ib_uverbs_post_send), "no gap");

/**
 * struct kf_queue - where a batch goes
 * @context: the device
 * @qp: the QP of work requests to send; NULL for receives
 * @method: which command
 * @handle: the queue
 * @wqe_size: bytes of a work request in the kernel's format
 */
struct kf_queue {
	struct ibv_context *context;
	const struct ibv_qp *qp;
	uint32_t method;
	uint32_t handle;
	uint32_t wqe_size;
};

/**
 * struct kf_batch - a batch that is being built
 * @command: the command
 * @small: room for a small one
 */
struct kf_batch {
	struct kf_command *command;
	uint8_t small[KF_SMALL] __attribute__((aligned(8)));
};

/* Begins a batch of these numbers. Return: 0, or ENOMEM. */
static int kf_batch_init(struct kf_batch *batch, const struct kf_queue *queue,
			 size_t num_wrs, size_t num_sges)
{
	size_t size = sizeof(*batch->command) + num_wrs * queue->wqe_size +
		      num_sges * sizeof(struct ibv_sge);

	batch->command = size <= sizeof(batch->small) ?
			 (struct kf_command *)batch->small : malloc(size);
	if (!batch->command)
		return ENOMEM;
	batch->command->hdr = (struct ib_uverbs_cmd_hdr) {
		.command = queue->method,
		.in_words = size / 4,
		.out_words = sizeof(struct ib_uverbs_post_send_resp) / 4,
	};
	batch->command->post = (struct ib_uverbs_post_send) {
		.qp_handle = queue->handle,
		.wr_count = num_wrs,
		.sge_count = num_sges,
		.wqe_size = queue->wqe_size,
	};
	return 0;
}

static void *kf_batch_wrs(struct kf_batch *batch)
{
	return batch->command + 1;
}

static struct ibv_sge *kf_batch_sges(struct kf_batch *batch)
{
	return kf_batch_wrs(batch) + (size_t)batch->command->post.wr_count *
				     batch->command->post.wqe_size;
}

/*
 * Makes the call, and frees the batch. @posted is the number of work requests
 * that the kernel has taken.
 * Return: 0, or an error number.
 */
static int kf_batch_post(struct kf_batch *batch, const struct kf_queue *queue,
			 size_t *posted)
{
	struct ib_uverbs_post_send_resp resp = {};
	struct kf_command *command = batch->command;
	size_t size = command->hdr.in_words * 4;
	int ret = 0;

	command->post.response = (uintptr_t)&resp;
	*posted = command->post.wr_count;
	if (write(queue->context->cmd_fd, command, size) != (ssize_t)size) {
		ret = errno;
		*posted = resp.bad_wr ? resp.bad_wr - 1 : 0;
	}
	if (command != (struct kf_command *)batch->small)
		free(command);
	return ret;
}

/*
 * Whether a batch fits into a command: @num_wrs work requests, with @num_sges
 * SGEs before the last one, and @last_sges of the last one. A negative number
 * of SGEs counts as one that is too large.
 */
static bool kf_batch_fits(const struct kf_queue *queue, size_t num_wrs,
			  size_t num_sges, size_t last_sges)
{
	return num_wrs <= KF_MAX_COMMAND && last_sges <= KF_MAX_COMMAND &&
	       sizeof(struct kf_command) + num_wrs * queue->wqe_size +
	       (num_sges + last_sges) * sizeof(struct ibv_sge) <=
	       KF_MAX_COMMAND;
}

/* Translates a work request. Members that its opcode does not use stay 0. */
static void kf_send_wr(const struct ibv_qp *qp, const struct ibv_send_wr *wr,
		       struct ib_uverbs_send_wr *to)
{
	*to = (struct ib_uverbs_send_wr) {
		.wr_id = wr->wr_id,
		.num_sge = wr->num_sge,
		.opcode = wr->opcode,
		.send_flags = wr->send_flags,
		/* Or a key: the same member of a union. */
		.ex.imm_data = wr->imm_data,
	};
	if (qp->qp_type == IBV_QPT_UD) {
		to->wr.ud.ah = wr->wr.ud.ah->handle;
		to->wr.ud.remote_qpn = wr->wr.ud.remote_qpn;
		to->wr.ud.remote_qkey = wr->wr.ud.remote_qkey;
		return;
	}
	switch (wr->opcode) {
	case IBV_WR_RDMA_WRITE:
	case IBV_WR_RDMA_WRITE_WITH_IMM:
	case IBV_WR_RDMA_READ:
		to->wr.rdma.remote_addr = wr->wr.rdma.remote_addr;
		to->wr.rdma.rkey = wr->wr.rdma.rkey;
		break;
	case IBV_WR_ATOMIC_CMP_AND_SWP:
	case IBV_WR_ATOMIC_FETCH_AND_ADD:
		to->wr.atomic.remote_addr = wr->wr.atomic.remote_addr;
		to->wr.atomic.compare_add = wr->wr.atomic.compare_add;
		to->wr.atomic.swap = wr->wr.atomic.swap;
		to->wr.atomic.rkey = wr->wr.atomic.rkey;
		break;
	default:
		break;
	}
}

static void kf_translate(const struct kf_queue *queue, const union kf_wr *wr,
			 void *to)
{
	if (queue->qp) {
		kf_send_wr(queue->qp, &wr->send, to);
		return;
	}
	*(struct ib_uverbs_recv_wr *)to = (struct ib_uverbs_recv_wr) {
		.wr_id = wr->recv.wr_id,
		.num_sge = wr->recv.num_sge,
	};
}

/*
 * Whether the kernel can read the work request: a QP of this type has the
 * operation, and a datagram has an address handle. Otherwise the kernel refuses
 * the whole list, and does not tell which work request it was.
 */
static bool kf_is_postable(const struct kf_queue *queue,
			   const union kf_wr *wr)
{
	if (!queue->qp)
		return true;
	switch (wr->send.opcode) {
	case IBV_WR_SEND:
	case IBV_WR_SEND_WITH_IMM:
		return queue->qp->qp_type != IBV_QPT_UD || wr->send.wr.ud.ah;
	case IBV_WR_SEND_WITH_INV:
	case IBV_WR_RDMA_WRITE:
	case IBV_WR_RDMA_WRITE_WITH_IMM:
	case IBV_WR_RDMA_READ:
	case IBV_WR_ATOMIC_CMP_AND_SWP:
	case IBV_WR_ATOMIC_FETCH_AND_ADD:
		return queue->qp->qp_type != IBV_QPT_UD;
	default:
		return false;
	}
}

static union kf_wr *kf_next(const union kf_wr *wr)
{
	return (union kf_wr *)wr->recv.next;
}

/* Fills a batch with the first work requests of a list. */
static void kf_batch_fill(struct kf_batch *batch, const struct kf_queue *queue,
			  const union kf_wr *wr)
{
	uint32_t num_wrs = batch->command->post.wr_count;
	struct ibv_sge *sges = kf_batch_sges(batch);
	uint8_t *to = kf_batch_wrs(batch);

	for (; num_wrs; num_wrs--, wr = kf_next(wr)) {
		kf_translate(queue, wr, to);
		to += queue->wqe_size;
		if (wr->recv.num_sge)
			memcpy(sges, wr->recv.sg_list,
			       wr->recv.num_sge * sizeof(*sges));
		sges += wr->recv.num_sge;
	}
}

/*
 * Posts a list, by as many calls as it takes. After an error @first is the work
 * request that is refused; those before it are posted.
 * Return: 0, or an error number.
 */
static int kf_post(const struct kf_queue *queue, union kf_wr **first)
{
	union kf_wr *wr = *first;
	int ret = 0;

	while (wr && !ret) {
		size_t num_wrs = 0, num_sges = 0, posted = 0;
		struct kf_batch batch;
		union kf_wr *i;

		for (i = wr; i && kf_is_postable(queue, i) &&
		     kf_batch_fits(queue, num_wrs + 1, num_sges,
				   i->recv.num_sge);
		     i = kf_next(i)) {
			num_wrs++;
			num_sges += i->recv.num_sge;
		}
		ret = num_wrs ? kf_batch_init(&batch, queue, num_wrs,
					      num_sges) : EINVAL;
		if (ret)
			break;
		kf_batch_fill(&batch, queue, wr);
		ret = kf_batch_post(&batch, queue, &posted);
		while (posted--)
			wr = kf_next(wr);
	}
	*first = wr;
	return ret;
}

static struct kf_queue kf_send_queue(struct ibv_qp *qp)
{
	return (struct kf_queue) {
		.context = qp->context,
		.qp = qp,
		.method = IB_USER_VERBS_CMD_POST_SEND,
		.handle = qp->handle,
		.wqe_size = sizeof(struct ib_uverbs_send_wr),
	};
}

int kf_post_send(struct ibv_qp *qp, struct ibv_send_wr *wr,
		 struct ibv_send_wr **bad_wr)
{
	const struct kf_queue queue = kf_send_queue(qp);
	union kf_wr *first = (union kf_wr *)wr;
	int ret = kf_post(&queue, &first);

	if (ret)
		*bad_wr = &first->send;
	return ret;
}

static int kf_post_recvs(const struct kf_queue *queue, struct ibv_recv_wr *wr,
			 struct ibv_recv_wr **bad_wr)
{
	union kf_wr *first = (union kf_wr *)wr;
	int ret = kf_post(queue, &first);

	if (ret)
		*bad_wr = &first->recv;
	return ret;
}

int kf_post_recv(struct ibv_qp *qp, struct ibv_recv_wr *wr,
		 struct ibv_recv_wr **bad_wr)
{
	const struct kf_queue queue = {
		.context = qp->context,
		.method = IB_USER_VERBS_CMD_POST_RECV,
		.handle = qp->handle,
		.wqe_size = sizeof(struct ib_uverbs_recv_wr),
	};

	return kf_post_recvs(&queue, wr, bad_wr);
}

int kf_post_srq_recv(struct ibv_srq *srq, struct ibv_recv_wr *wr,
		     struct ibv_recv_wr **bad_wr)
{
	const struct kf_queue queue = {
		.context = srq->context,
		.method = IB_USER_VERBS_CMD_POST_SRQ_RECV,
		.handle = srq->handle,
		.wqe_size = sizeof(struct ib_uverbs_recv_wr),
	};

	return kf_post_recvs(&queue, wr, bad_wr);
}

/*
 * Posts what the functions of ibv_wr_start() have collected, already in the
 * kernel's format. After an error the first work requests may have been posted:
 * the batch may take several calls, and the kernel may refuse one in the
 * middle.
 */
int kf_post_collected(struct ibv_qp *qp, const struct ib_uverbs_send_wr *wrs,
		      size_t num_wrs, const struct ibv_sge *sges)
{
	const struct kf_queue queue = kf_send_queue(qp);
	struct kf_batch batch;
	int ret = 0;

	while (num_wrs && !ret) {
		size_t num = 0, num_sges = 0, posted;

		while (num < num_wrs &&
		       kf_batch_fits(&queue, num + 1, num_sges,
				     wrs[num].num_sge))
			num_sges += wrs[num++].num_sge;
		ret = num ? kf_batch_init(&batch, &queue, num, num_sges) :
			    EINVAL;
		if (ret)
			break;
		memcpy(kf_batch_wrs(&batch), wrs, num * sizeof(*wrs));
		if (num_sges)
			memcpy(kf_batch_sges(&batch), sges,
			       num_sges * sizeof(*sges));
		ret = kf_batch_post(&batch, &queue, &posted);
		wrs += num;
		sges += num_sges;
		num_wrs -= num;
	}
	return ret;
}
