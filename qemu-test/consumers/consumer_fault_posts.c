// SPDX-License-Identifier: GPL-2.0
/*
 * Each allocation fails in turn: calls that post operations, from where they may
 * sleep and from where they may not.
 */

#include <linux/spinlock.h>

#include "fault_posts.h"

/* A function that makes a call, whose world is @w. */
#define POSTS(name, call) \
static int name(struct faults_world *w) \
{ \
	return call; \
}

/* A function by which what a call has posted ends: see ends_with(). */
#define ENDS(name, here, there, len) \
static void name(struct kunit *test, struct faults_world *w) \
{ \
	ends_with(test, w, here, there, len); \
}

/* Messages. The peer has a receive. */

static int sendmsg(struct faults_world *w)
{
	struct kfi_msg msg = message_of(w);

	return kfi_sendmsg(EP(w), &msg, KFI_COMPLETION);
}

static int send_under_a_lock(struct faults_world *w)
{
	static DEFINE_SPINLOCK(lock);
	int ret;

	spin_lock(&lock);
	ret = kfi_send(EP(w), w->here, LENGTH, NULL, PEER(w), w);
	spin_unlock(&lock);
	return ret;
}

POSTS(send, kfi_send(EP(w), w->here, LENGTH, NULL, PEER(w), w))
POSTS(sendv, kfi_sendv(EP(w), w->iov, NULL, 2, PEER(w), w))
POSTS(sendbv, kfi_sendbv(EP(w), w->biov, NULL, 2, PEER(w), w))
POSTS(sendsgl, kfi_sendsgl(EP(w), w->sgl, NULL, 2, PEER(w), w))
POSTS(senddata, kfi_senddata(EP(w), w->here, LENGTH, NULL, 9, PEER(w), w))
POSTS(inject, kfi_inject(EP(w), w->here, 8, PEER(w)))
POSTS(injectdata, kfi_injectdata(EP(w), w->here, 8, 9, PEER(w)))
POSTS(send_of_three_pages, kfi_send(EP(w), w->here, WAITING, NULL, PEER(w), w))

ENDS(message_sent, KFI_MSG | KFI_SEND, KFI_MSG | KFI_RECV, LENGTH)
ENDS(data_sent, KFI_MSG | KFI_SEND, KFI_MSG | KFI_RECV | KFI_REMOTE_CQ_DATA, LENGTH)
ENDS(injected, 0, KFI_MSG | KFI_RECV, 8)
ENDS(data_injected, 0, KFI_MSG | KFI_RECV | KFI_REMOTE_CQ_DATA, 8)

/* The receive is posted after the message. */
static void taken_later(struct kunit *test, struct faults_world *w)
{
	receive_posted(test, w);
	message_sent(test, w);
}

static void three_pages_taken_later(struct kunit *test, struct faults_world *w)
{
	receive_posted(test, w);
	ends_with(test, w, KFI_MSG | KFI_SEND, KFI_MSG | KFI_RECV, WAITING);
}

static void sending(struct kunit *test)
{
	static const struct faults_call calls[] = {
		{ "kfi_send", receive_posted, send, message_sent },
		{ "kfi_sendv", receive_posted, sendv, message_sent },
		{ "kfi_sendbv", receive_posted, sendbv, message_sent },
		{ "kfi_sendsgl", receive_posted, sendsgl, message_sent },
		{ "kfi_sendmsg", receive_posted, sendmsg, message_sent },
		{ "kfi_senddata", receive_posted, senddata, data_sent },
		{ "kfi_inject", receive_posted, inject, injected },
		{ "kfi_injectdata", receive_posted, injectdata, data_injected },
		{ "kfi_send under a spin lock", receive_posted, send_under_a_lock, message_sent },
		{ "kfi_send before its receive", NULL, send, taken_later },
		{ "kfi_send of three pages before", NULL, send_of_three_pages,
		  three_pages_taken_later },
	};

	sweep(test, calls, ARRAY_SIZE(calls));
}

/* Tagged messages */

static int tsendmsg(struct faults_world *w)
{
	struct kfi_msg_tagged msg = tagged_of(w);

	return kfi_tsendmsg(EP(w), &msg, KFI_COMPLETION);
}

POSTS(tsend, kfi_tsend(EP(w), w->here, LENGTH, NULL, PEER(w), TAG, w))
POSTS(tsendv, kfi_tsendv(EP(w), w->iov, NULL, 2, PEER(w), TAG, w))
POSTS(tsendbv, kfi_tsendbv(EP(w), w->biov, NULL, 2, PEER(w), TAG, w))
POSTS(tsendsgl, kfi_tsendsgl(EP(w), w->sgl, NULL, 2, PEER(w), TAG, w))
POSTS(tsenddata, kfi_tsenddata(EP(w), w->here, LENGTH, NULL, 9, PEER(w), TAG, w))
POSTS(tinject, kfi_tinject(EP(w), w->here, 8, PEER(w), TAG))
POSTS(tinjectdata, kfi_tinjectdata(EP(w), w->here, 8, 9, PEER(w), TAG))

ENDS(tagged_sent, KFI_TAGGED | KFI_SEND, KFI_TAGGED | KFI_RECV, LENGTH)
ENDS(tagged_data_sent, KFI_TAGGED | KFI_SEND, KFI_TAGGED | KFI_RECV | KFI_REMOTE_CQ_DATA, LENGTH)
ENDS(tagged_injected, 0, KFI_TAGGED | KFI_RECV, 8)
ENDS(tagged_data_injected, 0, KFI_TAGGED | KFI_RECV | KFI_REMOTE_CQ_DATA, 8)

static void sending_with_tags(struct kunit *test)
{
	static const struct faults_call calls[] = {
		{ "kfi_tsend", tagged_receive_posted, tsend, tagged_sent },
		{ "kfi_tsendv", tagged_receive_posted, tsendv, tagged_sent },
		{ "kfi_tsendbv", tagged_receive_posted, tsendbv, tagged_sent },
		{ "kfi_tsendsgl", tagged_receive_posted, tsendsgl, tagged_sent },
		{ "kfi_tsendmsg", tagged_receive_posted, tsendmsg, tagged_sent },
		{ "kfi_tsenddata", tagged_receive_posted, tsenddata, tagged_data_sent },
		{ "kfi_tinject", tagged_receive_posted, tinject, tagged_injected },
		{ "kfi_tinjectdata", tagged_receive_posted, tinjectdata, tagged_data_injected },
	};

	sweep(test, calls, ARRAY_SIZE(calls));
}

/* Receives, by the first endpoint. A message for each follows. */

static int recvmsg(struct faults_world *w)
{
	struct kfi_msg msg = message_of(w);

	msg.addr = KFI_ADDR_UNSPEC;
	return kfi_recvmsg(EP(w), &msg, KFI_COMPLETION);
}

static int trecvmsg(struct faults_world *w)
{
	struct kfi_msg_tagged msg = tagged_of(w);

	msg.addr = KFI_ADDR_UNSPEC;
	return kfi_trecvmsg(EP(w), &msg, KFI_COMPLETION);
}

POSTS(recv, kfi_recv(EP(w), w->here, LENGTH, NULL, 0, w))
POSTS(recvv, kfi_recvv(EP(w), w->iov, NULL, 2, 0, w))
POSTS(recvbv, kfi_recvbv(EP(w), w->biov, NULL, 2, 0, w))
POSTS(recvsgl, kfi_recvsgl(EP(w), w->sgl, NULL, 2, 0, w))
POSTS(trecv, kfi_trecv(EP(w), w->here, LENGTH, NULL, 0, TAG, 0, w))
POSTS(trecvv, kfi_trecvv(EP(w), w->iov, NULL, 2, 0, TAG, 0, w))
POSTS(trecvbv, kfi_trecvbv(EP(w), w->biov, NULL, 2, 0, TAG, 0, w))
POSTS(trecvsgl, kfi_trecvsgl(EP(w), w->sgl, NULL, 2, 0, TAG, 0, w))

static void received(struct kunit *test, struct faults_world *w)
{
	KUNIT_ASSERT_EQ(test, kfi_inject(w->ends[1].ep, "bytes", 6, w->ends[1].peer), 0);
	completed(test, &w->ends[0], w, KFI_MSG | KFI_RECV, 6);
}

static void tagged_received(struct kunit *test, struct faults_world *w)
{
	KUNIT_ASSERT_EQ(test, kfi_tinject(w->ends[1].ep, "bytes", 6, w->ends[1].peer, TAG), 0);
	completed(test, &w->ends[0], w, KFI_TAGGED | KFI_RECV, 6);
}

static void receiving(struct kunit *test)
{
	static const struct faults_call calls[] = {
		{ "kfi_recv", NULL, recv, received },
		{ "kfi_recvv", NULL, recvv, received },
		{ "kfi_recvbv", NULL, recvbv, received },
		{ "kfi_recvsgl", NULL, recvsgl, received },
		{ "kfi_recvmsg", NULL, recvmsg, received },
		{ "kfi_trecv", NULL, trecv, tagged_received },
		{ "kfi_trecvv", NULL, trecvv, tagged_received },
		{ "kfi_trecvbv", NULL, trecvbv, tagged_received },
		{ "kfi_trecvsgl", NULL, trecvsgl, tagged_received },
		{ "kfi_trecvmsg", NULL, trecvmsg, tagged_received },
	};

	sweep(test, calls, ARRAY_SIZE(calls));
}

/* Remote memory */

static int rma_msg(struct faults_world *w,
		   ssize_t (*post)(struct kfid_ep *ep, const struct kfi_msg_rma *msg, u64 flags))
{
	struct kfi_msg_rma msg = rma_of(w);

	return post(EP(w), &msg, KFI_COMPLETION);
}

POSTS(write, kfi_write(EP(w), w->here, LENGTH, NULL, PEER(w), 0, KEY, w))
POSTS(writev, kfi_writev(EP(w), w->iov, NULL, 2, PEER(w), 0, KEY, w))
POSTS(writebv, kfi_writebv(EP(w), w->biov, NULL, 2, PEER(w), 0, KEY, w))
POSTS(writesgl, kfi_writesgl(EP(w), w->sgl, NULL, 2, PEER(w), 0, KEY, w))
POSTS(writemsg, rma_msg(w, kfi_writemsg))
POSTS(writedata, kfi_writedata(EP(w), w->here, LENGTH, NULL, 9, PEER(w), 0, KEY, w))
POSTS(inject_write, kfi_inject_write(EP(w), w->here, 8, PEER(w), 0, KEY))
POSTS(inject_writedata, kfi_inject_writedata(EP(w), w->here, 8, 9, PEER(w), 0, KEY))
POSTS(read, kfi_read(EP(w), w->here, LENGTH, NULL, PEER(w), 0, KEY, w))
POSTS(readv, kfi_readv(EP(w), w->iov, NULL, 2, PEER(w), 0, KEY, w))
POSTS(readbv, kfi_readbv(EP(w), w->biov, NULL, 2, PEER(w), 0, KEY, w))
POSTS(readsgl, kfi_readsgl(EP(w), w->sgl, NULL, 2, PEER(w), 0, KEY, w))
POSTS(readmsg, rma_msg(w, kfi_readmsg))

ENDS(written, KFI_RMA | KFI_WRITE, 0, 0)

static void data_arrived(struct kunit *test, struct faults_world *w)
{
	completed(test, &w->ends[1], NULL, KFI_RMA | KFI_REMOTE_WRITE | KFI_REMOTE_CQ_DATA, 0);
}

static void data_written(struct kunit *test, struct faults_world *w)
{
	data_arrived(test, w);
	written(test, w);
}

static void silent(struct kunit *test, struct faults_world *w)
{
}

ENDS(bytes_read, KFI_RMA | KFI_READ, 0, 0)

static void remote_memory(struct kunit *test)
{
	static const struct faults_call calls[] = {
		{ "kfi_write", NULL, write, written },
		{ "kfi_writev", NULL, writev, written },
		{ "kfi_writebv", NULL, writebv, written },
		{ "kfi_writesgl", NULL, writesgl, written },
		{ "kfi_writemsg", NULL, writemsg, written },
		{ "kfi_writedata", NULL, writedata, data_written },
		{ "kfi_inject_write", NULL, inject_write, silent },
		{ "kfi_inject_writedata", NULL, inject_writedata, data_arrived },
		{ "kfi_read", NULL, read, bytes_read },
		{ "kfi_readv", NULL, readv, bytes_read },
		{ "kfi_readbv", NULL, readbv, bytes_read },
		{ "kfi_readsgl", NULL, readsgl, bytes_read },
		{ "kfi_readmsg", NULL, readmsg, bytes_read },
	};

	sweep(test, calls, ARRAY_SIZE(calls));
}

/* Atomics */

static int atomicmsg(struct faults_world *w)
{
	struct kfi_msg_atomic msg = atomic_of(w, KFI_SUM);

	return kfi_atomicmsg(EP(w), &msg, KFI_COMPLETION);
}

static int fetch_atomicmsg(struct faults_world *w)
{
	struct kfi_msg_atomic msg = atomic_of(w, KFI_SUM);

	return kfi_fetch_atomicmsg(EP(w), &msg, &w->result, NULL, 1, KFI_COMPLETION);
}

static int compare_atomicmsg(struct faults_world *w)
{
	struct kfi_msg_atomic msg = atomic_of(w, KFI_CSWAP);

	return kfi_compare_atomicmsg(EP(w), &msg, &w->compare, NULL, 1, &w->result, NULL, 1,
				     KFI_COMPLETION);
}

/* The last arguments of the plain forms and those of lists. */
#define SUM	PEER(w), 0, KEY, KFI_UINT64, KFI_SUM
#define SWAP	PEER(w), 0, KEY, KFI_UINT64, KFI_CSWAP

POSTS(atomic, kfi_atomic(EP(w), w->here, 100, NULL, SUM, w))
POSTS(atomicv, kfi_atomicv(EP(w), &w->ioc, NULL, 1, SUM, w))
POSTS(inject_atomic, kfi_inject_atomic(EP(w), w->here, 1, SUM))
POSTS(fetch_atomic, kfi_fetch_atomic(EP(w), w->here, 100, NULL, w->here + 2048, NULL, SUM, w))
POSTS(fetch_atomicv, kfi_fetch_atomicv(EP(w), &w->ioc, NULL, 1, &w->result, NULL, 1, SUM, w))
POSTS(compare_atomic, kfi_compare_atomic(EP(w), w->here, 1, NULL, w->here + 8, NULL,
					 w->here + 16, NULL, SWAP, w))
POSTS(compare_atomicv, kfi_compare_atomicv(EP(w), &w->ioc, NULL, 1, &w->compare, NULL, 1,
					   &w->result, NULL, 1, SWAP, w))

ENDS(changed, KFI_ATOMIC | KFI_WRITE, 0, 0)
ENDS(fetched, KFI_ATOMIC | KFI_READ, 0, 0)

static void atomics(struct kunit *test)
{
	static const struct faults_call calls[] = {
		{ "kfi_atomic", NULL, atomic, changed },
		{ "kfi_atomicv", NULL, atomicv, changed },
		{ "kfi_atomicmsg", NULL, atomicmsg, changed },
		{ "kfi_inject_atomic", NULL, inject_atomic, silent },
		{ "kfi_fetch_atomic", NULL, fetch_atomic, fetched },
		{ "kfi_fetch_atomicv", NULL, fetch_atomicv, fetched },
		{ "kfi_fetch_atomicmsg", NULL, fetch_atomicmsg, fetched },
		{ "kfi_compare_atomic", NULL, compare_atomic, fetched },
		{ "kfi_compare_atomicv", NULL, compare_atomicv, fetched },
		{ "kfi_compare_atomicmsg", NULL, compare_atomicmsg, fetched },
	};

	sweep(test, calls, ARRAY_SIZE(calls));
}

CONSUMER("failing allocations of posts",
	 KUNIT_CASE_SLOW(sending),
	 KUNIT_CASE_SLOW(sending_with_tags),
	 KUNIT_CASE_SLOW(receiving),
	 KUNIT_CASE_SLOW(remote_memory),
	 KUNIT_CASE_SLOW(atomics));
