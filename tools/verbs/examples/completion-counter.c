// SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause
/*
 * completion-counter DEVICE GID-INDEX: two QPs of one device send messages, and a
 * completion counter, not a completion queue, tells how many have arrived.
 *
 * cc completion-counter.c -libverbs -l:libkfabric.so.1
 */

#include <infiniband/kfdv.h>

#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define MESSAGES	8

static void need(bool succeeded, const char *what)
{
	if (succeeded)
		return;
	perror(what);
	exit(1);
}

static struct ibv_context *open_device(const char *name)
{
	struct ibv_device **list = ibv_get_device_list(NULL);
	struct ibv_context *context = NULL;

	for (int i = 0; list && list[i]; i++) {
		if (!strcmp(ibv_get_device_name(list[i]), name))
			context = ibv_open_device(list[i]);
	}
	need(context, name);
	return context;
}

static struct ibv_qp *create_qp(struct ibv_pd *pd, struct ibv_cq *cq)
{
	struct ibv_qp_init_attr attr = {
		.send_cq = cq,
		.recv_cq = cq,
		.qp_type = IBV_QPT_RC,
		.cap = { .max_send_wr = MESSAGES, .max_recv_wr = MESSAGES,
			 .max_send_sge = 1, .max_recv_sge = 1 },
	};
	struct ibv_qp *qp = ibv_create_qp(pd, &attr);

	need(qp, "ibv_create_qp");
	return qp;
}

/* A counter of these operations of a QP that is not connected yet. */
static struct ibv_comp_cntr *count(struct ibv_qp *qp, uint32_t operations,
				   struct kfdv_comp_cntr *values)
{
	struct ibv_qp_attach_comp_cntr_attr what = { .op_mask = operations };
	struct ibv_comp_cntr_init_attr init = {};
	struct ibv_comp_cntr *counter = ibv_create_comp_cntr(qp->context, &init);

	need(counter, "ibv_create_comp_cntr");
	need(!ibv_qp_attach_comp_cntr(qp, counter, &what),
	     "ibv_qp_attach_comp_cntr");
	/* Where its values are in the memory of this program. */
	need(!kfdv_query_comp_cntr(counter, values, sizeof(*values)),
	     "kfdv_query_comp_cntr");
	return counter;
}

/* From RESET to RTS, with @peer at the address @gid as the other end. */
static void connect_qp(struct ibv_qp *qp, const struct ibv_qp *peer,
		       const union ibv_gid *gid, int index)
{
	struct ibv_qp_attr attr = { .qp_state = IBV_QPS_INIT, .port_num = 1 };

	need(!ibv_modify_qp(qp, &attr, IBV_QP_STATE | IBV_QP_PKEY_INDEX |
			    IBV_QP_PORT | IBV_QP_ACCESS_FLAGS), "INIT");
	attr.qp_state = IBV_QPS_RTR;
	attr.path_mtu = IBV_MTU_1024;
	attr.dest_qp_num = peer->qp_num;
	attr.min_rnr_timer = 12;
	attr.ah_attr.port_num = 1;
	attr.ah_attr.is_global = 1;
	attr.ah_attr.grh.dgid = *gid;
	attr.ah_attr.grh.sgid_index = index;
	attr.ah_attr.grh.hop_limit = 64;
	need(!ibv_modify_qp(qp, &attr, IBV_QP_STATE | IBV_QP_AV |
			    IBV_QP_PATH_MTU | IBV_QP_DEST_QPN | IBV_QP_RQ_PSN |
			    IBV_QP_MAX_DEST_RD_ATOMIC |
			    IBV_QP_MIN_RNR_TIMER), "RTR");
	attr.qp_state = IBV_QPS_RTS;
	attr.timeout = 14;
	attr.retry_cnt = 7;
	attr.rnr_retry = 7;
	need(!ibv_modify_qp(qp, &attr, IBV_QP_STATE | IBV_QP_TIMEOUT |
			    IBV_QP_RETRY_CNT | IBV_QP_RNR_RETRY |
			    IBV_QP_SQ_PSN | IBV_QP_MAX_QP_RD_ATOMIC), "RTS");
}

int main(int argc, char **argv)
{
	static char memory[2 * MESSAGES];
	struct kfdv_comp_cntr arrivals, sends;
	struct ibv_comp_cntr *received, *sent;
	struct ibv_qp *from, *to;
	struct ibv_context *context;
	union ibv_gid gid;
	struct ibv_pd *pd;
	struct ibv_cq *cq;
	struct ibv_mr *mr;
	uint64_t value;
	int index;

	if (argc != 3) {
		fprintf(stderr, "usage: completion-counter DEVICE GID-INDEX\n");
		return 2;
	}
	index = atoi(argv[2]);
	context = open_device(argv[1]);
	need(!ibv_query_gid(context, 1, index, &gid), "ibv_query_gid");
	pd = ibv_alloc_pd(context);
	cq = ibv_create_cq(context, 4 * MESSAGES, NULL, NULL, 0);
	need(pd && cq, "ibv_alloc_pd, ibv_create_cq");
	mr = ibv_reg_mr(pd, memory, sizeof(memory), IBV_ACCESS_LOCAL_WRITE);
	need(mr, "ibv_reg_mr");
	from = create_qp(pd, cq);
	to = create_qp(pd, cq);

	received = count(to, IBV_QP_ATTACH_COMP_CNTR_OP_RECV, &arrivals);
	sent = count(from, IBV_QP_ATTACH_COMP_CNTR_OP_SEND, &sends);

	connect_qp(from, to, &gid, index);
	connect_qp(to, from, &gid, index);
	for (int i = 0; i < MESSAGES; i++) {
		struct ibv_sge in = { (uintptr_t)&memory[MESSAGES + i], 1, mr->lkey };
		struct ibv_sge out = { (uintptr_t)&memory[i], 1, mr->lkey };
		struct ibv_recv_wr *bad_recv, recv = { .sg_list = &in, .num_sge = 1 };
		struct ibv_send_wr *bad_send, send = {
			.sg_list = &out, .num_sge = 1, .opcode = IBV_WR_SEND,
		};

		need(!ibv_post_recv(to, &recv, &bad_recv), "ibv_post_recv");
		need(!ibv_post_send(from, &send, &bad_send), "ibv_post_send");
	}

	/* No call, and no completion queue entry. */
	while (__atomic_load_n(arrivals.comp_count, __ATOMIC_ACQUIRE) < MESSAGES)
		if (__atomic_load_n(sends.err_count, __ATOMIC_RELAXED)) {
			fprintf(stderr, "a message was not sent\n");
			return 1;
		}
	need(!ibv_read_comp_cntr(received, &value), "ibv_read_comp_cntr");
	printf("%llu messages have arrived\n", (unsigned long long)value);

	need(!ibv_destroy_qp(from) && !ibv_destroy_qp(to), "ibv_destroy_qp");
	need(!ibv_destroy_comp_cntr(received) && !ibv_destroy_comp_cntr(sent),
	     "ibv_destroy_comp_cntr");
	need(!ibv_dereg_mr(mr) && !ibv_destroy_cq(cq) && !ibv_dealloc_pd(pd) &&
	     !ibv_close_device(context), "close");
	return 0;
}
