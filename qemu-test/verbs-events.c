// SPDX-License-Identifier: GPL-2.0
/*
 * verbs-events: what the pages of libibverbs say of events of CQs and of the device, of full
 * CQs and of flushed work requests, also while another thread changes the QP. The comment
 * of a test names its page, if one page has the rule.
 */

#include "verbs-ends.h"

/* A QP in INIT, too, flushes its receives. */
static void flush_in_init(void)
{
	make_end(&a, IBV_QPT_RC, 0);
	to_init(&a);
	receive(&a, 1, 0, 8);
	expect(!modify(&a, IBV_QPS_ERR), "ERR");
	entry(a.receives, 1, IBV_WC_WR_FLUSH_ERR);
}

/* ibv_req_notify_cq(3): one event, for an entry that comes afterwards. */
static void one_event(void)
{
	struct ibv_sge one;
	struct ibv_send_wr send;
	int i;

	pair(IBV_QPT_RC);
	one = sge(&a, 0, 64);
	send = wr(1, IBV_WR_SEND, &one, 1);
	for (i = 0; i < 8; i++)
		receive(&b, i, 0, 64);
	must_post(&a, &send);
	entry(a.sends, 1, IBV_WC_SUCCESS);
	expect(!waiting_events(b.channel), "an event that nobody asked for");
	expect(!ibv_req_notify_cq(b.receives, 0), "req_notify_cq");
	expect(!waiting_events(b.channel), "an event for an earlier entry");
	for (i = 0; i < 3; i++) {
		must_post(&a, &send);
		entry(a.sends, 1, IBV_WC_SUCCESS);
	}
	i = waiting_events(b.channel);
	expect(i == 1, "%d events, not 1", i);
	/* Solicited, then any: any. */
	expect(!ibv_req_notify_cq(b.receives, 0) && !ibv_req_notify_cq(b.receives, 1),
	       "req_notify");
	must_post(&a, &send);
	entry(a.sends, 1, IBV_WC_SUCCESS);
	i = waiting_events(b.channel);
	expect(i == 1, "%d events, not 1", i);
	/* An entry in error counts as solicited. */
	expect(!ibv_req_notify_cq(b.receives, 1), "req_notify_cq");
	expect(!modify(&b, IBV_QPS_ERR), "ERR");
	i = waiting_events(b.channel);
	expect(i == 1, "%d events, not 1", i);
	for (i = 0; i < 8; i++)
		entry(b.receives, i, i < 5 ? IBV_WC_SUCCESS : IBV_WC_WR_FLUSH_ERR);
	no_entry(b.receives);
}

/* Connected ends; the receives of b complete in a CQ of one entry, or a few more. */
static struct ibv_cq *ends_with_small_cq(enum ibv_qp_type type)
{
	struct ibv_qp_init_attr init = usual(type);

	make_end(&a, type, 0);
	make_end(&b, type, 0);
	init.recv_cq = ibv_create_cq(device, 1, NULL, NULL, 0);
	other_qp(&b, init);
	connect_ends(7);
	return init.recv_cq;
}

/* Sends one message more than the CQ has room for. */
static void fill_up(struct ibv_cq *cq, enum ibv_qp_type type)
{
	struct ibv_sge one = sge(&a, 0, 64);
	struct ibv_send_wr send = wr(1, IBV_WR_SEND, &one, 1);
	int i;

	if (type == IBV_QPT_UD)
		send = datagram(&one, make_ah());
	for (i = 0; i <= cq->cqe; i++) {
		expect(i < WRS, "a CQ of %d entries", cq->cqe);
		receive(&b, i, 0, 128);
	}
	for (i = 0; i <= cq->cqe; i++)
		must_post(&a, &send);
}

/* A CQ that is full: its error, and that of its QP. */
static void overrun(struct ibv_cq *cq, enum ibv_qp_type type)
{
	fill_up(cq, type);
	/* ibv_get_async_event(3): element.cq is the CQ of the event. */
	expect(event(IBV_EVENT_CQ_ERR).element.cq == cq, "the event's CQ");
	is_in(&b, IBV_QPS_ERR);
}

static void full_cq(void)
{
	overrun(ends_with_small_cq(IBV_QPT_RC), IBV_QPT_RC);
}

static void full_cq_of_datagrams(void)
{
	overrun(ends_with_small_cq(IBV_QPT_UD), IBV_QPT_UD);
}

/*
 * A CQ with an overrun takes entries again when there is room. A second overrun sets the QP to ERR,
 * but has no event: the program knows of the first.
 */
static void full_cq_again(void)
{
	struct ibv_cq *cq = ends_with_small_cq(IBV_QPT_RC);
	struct pollfd fd = { .fd = device->async_fd, .events = POLLIN };
	struct ibv_wc wc;

	overrun(cq, IBV_QPT_RC);
	expect(!modify(&a, IBV_QPS_RESET) && !modify(&b, IBV_QPS_RESET), "RESET");
	while (ibv_poll_cq(cq, 1, &wc) == 1 || ibv_poll_cq(a.sends, 1, &wc) == 1)
		;
	connect_ends(7);
	fill_up(cq, IBV_QPT_RC);
	is_in(&b, IBV_QPS_ERR);
	entry(cq, 0, IBV_WC_SUCCESS);
	while (poll(&fd, 1, 300) == 1) {
		struct ibv_async_event got;

		expect(!ibv_get_async_event(device, &got), "get_async_event");
		expect(got.event_type == IBV_EVENT_QP_FATAL && got.element.qp == b.qp, "event %s",
		       ibv_event_type_str(got.event_type));
		ibv_ack_async_event(&got);
	}
}

/* A QP that is in SQE goes to ERR, too, and flushes its receives then. */
static void full_cq_in_sqe(void)
{
	struct ibv_cq *cq = ends_with_small_cq(IBV_QPT_UD);
	struct ibv_sge one = sge(&b, 0, 64);
	struct ibv_send_wr send;
	struct ibv_wc wc;

	one.lkey ^= 0x100;
	send = datagram(&one, ah_of(&b));
	must_post(&b, &send);
	entry(b.sends, 1, IBV_WC_LOC_PROT_ERR);
	is_in(&b, IBV_QPS_SQE);
	overrun(cq, IBV_QPT_UD);
	while (ibv_poll_cq(cq, 1, &wc) == 1)
		;
	receive(&b, 99, 0, 128);
	entry(cq, 99, IBV_WC_WR_FLUSH_ERR);
}

/* The CQ of sends is full: the QP fails, and nothing else. */
static void full_cq_of_sends(void)
{
	struct ibv_qp_init_attr init = usual(IBV_QPT_RC);
	struct ibv_sge one;
	struct ibv_send_wr send;

	make_end(&a, IBV_QPT_RC, 0);
	make_end(&b, IBV_QPT_RC, 0);
	init.send_cq = ibv_create_cq(device, 1, NULL, NULL, 0);
	other_qp(&a, init);
	connect_ends(7);
	one = sge(&a, 0, 64);
	send = wr(1, IBV_WR_RDMA_WRITE, &one, 1);
	remote(&send, &b, 0);
	must_post(&a, &send);
	must_post(&a, &send);
	expect(event(IBV_EVENT_CQ_ERR).element.cq == init.send_cq, "the event's CQ");
	is_in(&a, IBV_QPS_ERR);
	entry(init.send_cq, 1, IBV_WC_SUCCESS);
}

/* ibv_get_async_event(3): QP_ACCESS_ERR for a refused access, at the responder. */
static void access_event(void)
{
	struct ibv_sge one;
	struct ibv_send_wr send;

	pair(IBV_QPT_RC);
	one = sge(&a, 0, 64);
	send = wr(1, IBV_WR_RDMA_WRITE, &one, 1);
	remote(&send, &b, 0);
	send.wr.rdma.rkey ^= 0x10000;
	must_post(&a, &send);
	entry(a.sends, 1, IBV_WC_REM_ACCESS_ERR);
	expect(event(IBV_EVENT_QP_ACCESS_ERR).element.qp == b.qp, "the event's QP");
}

/* An error that an entry reports has no event. */
static void no_event_with_entry(void)
{
	struct pollfd fd = { .fd = device->async_fd, .events = POLLIN };
	struct ibv_sge bad;

	pair(IBV_QPT_RC);
	bad = sge(&a, 0, 64);
	bad.lkey ^= 0x100;
	three(&bad, IBV_WC_LOC_PROT_ERR);
	expect(!poll(&fd, 1, 300), "an event besides the entry");
}

/* A WRITE establishes the communication, too: the first packet does. */
static void established_by_write(void)
{
	struct ibv_sge one;
	struct ibv_send_wr send;

	make_end(&a, IBV_QPT_RC, 0);
	make_end(&b, IBV_QPT_RC, 0);
	ends_to_rtr();
	to_rts(&a, 7);
	one = sge(&a, 0, 64);
	send = wr(1, IBV_WR_RDMA_WRITE, &one, 1);
	remote(&send, &b, 0);
	must_post(&a, &send);
	entry(a.sends, 1, IBV_WC_SUCCESS);
	expect(event(IBV_EVENT_COMM_EST).element.qp == b.qp, "the event's QP");
}

/* ibv_poll_cq(3): as many entries as there are, at most those that were asked for. */
static void poll_many(void)
{
	struct ibv_qp_init_attr init = usual(IBV_QPT_RC);
	struct ibv_wc wc[64];
	int i;

	make_end(&a, IBV_QPT_RC, 0);
	init.cap.max_recv_wr = 100;
	init.recv_cq = ibv_create_cq(device, 100, NULL, NULL, 0);
	other_qp(&a, init);
	to_init(&a);
	for (i = 0; i < 100; i++)
		receive(&a, i, 0, 8);
	expect(!modify(&a, IBV_QPS_ERR), "ERR");
	pause_ms(500);
	expect(ibv_poll_cq(init.recv_cq, 0, wc) == 0, "none");
	expect(ibv_poll_cq(init.recv_cq, 64, wc) == 64 && wc[63].wr_id == 63, "64 entries");
	expect(wc[63].qp_num == a.qp->qp_num && wc[63].status == IBV_WC_WR_FLUSH_ERR, "an entry");
	expect(ibv_poll_cq(init.recv_cq, 64, wc) == 36 && wc[35].wr_id == 99, "36 entries");
	expect(ibv_poll_cq(init.recv_cq, 64, wc) == 0, "no more");
}

/* Posts that succeed have an entry each, also while another thread changes the state. */
static int posted;
static volatile int posting;

static void *post_receives(void *unused)
{
	struct ibv_sge one = sge(&a, 0, 8);

	(void)unused;
	posting = 1;
	for (posted = 0; posted < WRS && !try_receive(&a, posted, &one, 1); posted++)
		;
	return NULL;
}

static void flush_race(void)
{
	struct ibv_wc wc;
	pthread_t thread;
	int i, got;

	make_end(&a, IBV_QPT_RC, 0);
	for (i = 0; i < 300; i++) {
		volatile int spin = i * 37 % 5000;

		to_init(&a);
		posting = 0;
		expect(!pthread_create(&thread, NULL, post_receives, NULL), "thread");
		while (!posting)
			;
		while (spin--)
			;
		expect(!modify(&a, IBV_QPS_ERR), "ERR");
		pthread_join(thread, NULL);
		for (got = 0; got < posted && poll_for(a.receives, &wc, 2000); got++)
			;
		expect(got == posted, "round %d: %d entries of %d receives", i, got, posted);
		expect(!modify(&a, IBV_QPS_RESET), "RESET");
	}
}

/* A QP that fails while a call changes an attribute is in ERR, and flushes what comes. */
static volatile int modifying;

static void *change_rights(void *unused)
{
	struct ibv_qp_attr attr = { .qp_access_flags = ACCESS };

	(void)unused;
	while (modifying)
		if (ibv_modify_qp(b.qp, &attr, IBV_QP_ACCESS_FLAGS))
			break;
	return NULL;
}

static void modify_race(void)
{
	struct ibv_sge one;
	struct ibv_send_wr send;
	struct ibv_wc wc;
	pthread_t thread;
	int i;

	make_end(&a, IBV_QPT_RC, 0);
	make_end(&b, IBV_QPT_RC, 0);
	one = sge(&a, 0, 8);
	for (i = 0; i < 200; i++) {
		connect_ends(7);
		modifying = 1;
		expect(!pthread_create(&thread, NULL, change_rights, NULL), "thread");
		send = wr(1, IBV_WR_RDMA_WRITE, &one, 1);
		remote(&send, &b, 0);
		send.wr.rdma.rkey ^= 0x10000;
		must_post(&a, &send);
		entry(a.sends, 1, IBV_WC_REM_ACCESS_ERR);
		is_in(&b, IBV_QPS_ERR);
		modifying = 0;
		pthread_join(thread, NULL);
		receive(&b, 5, 0, 8);
		expect(poll_for(b.receives, &wc, 3000), "round %d: the receive is not flushed", i);
		send = wr(6, IBV_WR_SEND, &one, 1);
		must_post(&b, &send);
		expect(poll_for(b.sends, &wc, 3000), "round %d: the send is not flushed", i);
		expect(!modify(&a, IBV_QPS_RESET) && !modify(&b, IBV_QPS_RESET), "RESET");
	}
}

/* The result of the call that destroys an object; -1 while the call waits. */
static int destroyed;

static void *destroy_cq(void *cq)
{
	int ret = ibv_destroy_cq(cq);

	__atomic_store_n(&destroyed, ret, __ATOMIC_RELEASE);
	return NULL;
}

static void *destroy_qp(void *qp)
{
	int ret = ibv_destroy_qp(qp);

	__atomic_store_n(&destroyed, ret, __ATOMIC_RELEASE);
	return NULL;
}

/* Starts a thread that destroys @object. The call must wait for the acknowledgment. */
static pthread_t destroyer(void *(*destroy)(void *), void *object)
{
	pthread_t thread;
	int ret;

	destroyed = -1;
	expect(!pthread_create(&thread, NULL, destroy, object), "pthread_create");
	pause_ms(300);
	ret = __atomic_load_n(&destroyed, __ATOMIC_ACQUIRE);
	expect(ret == -1, "the call returns %d before the event is acknowledged", ret);
	return thread;
}

/* ibv_get_cq_event(3): destroying a CQ waits until all its events are acknowledged. */
static void destroying_a_cq_waits_for_acks(void)
{
	struct ibv_cq *cq;
	pthread_t thread;
	void *context;

	make_end(&a, IBV_QPT_RC, 0);
	to_init(&a);
	receive(&a, 1, 0, 8);
	expect(!ibv_req_notify_cq(a.receives, 0), "req_notify_cq");
	expect(!modify(&a, IBV_QPS_ERR), "ERR");
	expect(!ibv_get_cq_event(a.channel, &cq, &context) && cq == a.receives, "get_cq_event");
	expect(!ibv_destroy_qp(a.qp), "destroy_qp");
	thread = destroyer(destroy_cq, cq);
	ibv_ack_cq_events(cq, 1);
	pthread_join(thread, NULL);
	expect(!destroyed, "destroy_cq: %s", strerror(destroyed));
	expect(!ibv_destroy_comp_channel(a.channel), "destroy_comp_channel");
}

/* ibv_get_async_event(3): destroying a QP waits until all its events are acknowledged. */
static void destroying_a_qp_waits_for_acks(void)
{
	struct ibv_async_event got;
	pthread_t thread;

	pair(IBV_QPT_RC);
	to_sqd(&a);
	got = next_event(IBV_EVENT_SQ_DRAINED);
	expect(got.element.qp == a.qp, "the event's QP");
	thread = destroyer(destroy_qp, a.qp);
	ibv_ack_async_event(&got);
	pthread_join(thread, NULL);
	expect(!destroyed, "destroy_qp: %s", strerror(destroyed));
}

/* A message without bytes. */
static void send_nothing(struct end *end)
{
	struct ibv_send_wr send = wr(1, IBV_WR_SEND, NULL, 0);

	must_post(end, &send);
}

static void *destroy_srq(void *srq)
{
	int ret = ibv_destroy_srq(srq);

	__atomic_store_n(&destroyed, ret, __ATOMIC_RELEASE);
	return NULL;
}

/* ibv_get_async_event(3): destroying an SRQ waits until all its events are acknowledged. */
static void destroying_an_srq_waits_for_acks(void)
{
	struct ibv_srq_attr limit = { .srq_limit = 2 };
	struct ibv_recv_wr recv[2] = { { .wr_id = 0 }, { .wr_id = 1 } }, *bad;
	struct ibv_async_event got;
	struct ibv_srq *srq;
	pthread_t thread;
	int i;

	with_srq = 1;
	pair(IBV_QPT_RC);
	for (i = 0; i < 2; i++)
		expect(!ibv_post_srq_recv(b.srq, &recv[i], &bad), "post_srq_recv");
	expect(!ibv_modify_srq(b.srq, &limit, IBV_SRQ_LIMIT), "modify_srq");
	send_nothing(&a);
	got = next_event(IBV_EVENT_SRQ_LIMIT_REACHED);
	srq = b.srq;
	expect(got.element.srq == srq, "the event's SRQ");
	expect(!ibv_destroy_qp(b.qp), "destroy_qp");
	thread = destroyer(destroy_srq, srq);
	ibv_ack_async_event(&got);
	pthread_join(thread, NULL);
	expect(!destroyed, "destroy_srq: %s", strerror(destroyed));
}

/* The next event of the channel of @end is that of its own CQ, with the CQ's context. */
static void own_event(struct end *end)
{
	struct ibv_cq *cq;
	void *context;

	expect(!ibv_get_cq_event(end->channel, &cq, &context), "get_cq_event");
	expect(cq == end->qp->recv_cq && context == end, "the event of another CQ");
	ibv_ack_cq_events(cq, 1);
	expect(!waiting_events(end->channel), "another event");
}

/* ibv_create_comp_channel(3), ibv_get_cq_event(3): each CQ has its channel and its context. */
static void each_channel_has_its_events(void)
{
	struct end *ends[] = { &a, &b };
	struct ibv_qp_init_attr init;
	int i;

	for (i = 0; i < 2; i++) {
		make_end(ends[i], IBV_QPT_RC, 0);
		init = usual(IBV_QPT_RC);
		init.recv_cq = ibv_create_cq(device, WRS, ends[i], ends[i]->channel, 0);
		expect(init.recv_cq && !ibv_req_notify_cq(init.recv_cq, 0), "req_notify_cq");
		other_qp(ends[i], init);
	}
	connect_ends(7);
	for (i = 0; i < 2; i++) {
		receive(ends[i], 1, 0, 8);
		send_nothing(ends[!i]);
	}
	own_event(&b);
	own_event(&a);
}

static const struct test tests[] = {
	TEST(one_event), TEST(flush_in_init), TEST(poll_many), TEST(access_event),
	TEST(established_by_write), TEST(no_event_with_entry), TEST(full_cq),
	TEST(full_cq_again), TEST(full_cq_of_datagrams), TEST(full_cq_in_sqe),
	TEST(full_cq_of_sends),
	TEST(flush_race), TEST(modify_race), TEST(destroying_a_cq_waits_for_acks),
	TEST(destroying_a_qp_waits_for_acks), TEST(destroying_an_srq_waits_for_acks),
	TEST(each_channel_has_its_events),
};

int main(int argc, char **argv)
{
	return run_test(argc, argv, tests, sizeof(tests) / sizeof(tests[0]));
}
