/* SPDX-License-Identifier: GPL-2.0 */
/*
 * What the driver of driver.h does: messages and bulk data, as kfilnd has them.
 *
 * A transaction is one of them on one host. The initiator of bulk data posts a
 * tagged receive of them, and sends a request with the tag. The target reads or
 * writes the memory of that receive, or says with an empty tagged message that it
 * does not.
 */
#ifndef _CONSUMER_DRIVER_FLOW_H
#define _CONSUMER_DRIVER_FLOW_H

#include <kfi/kfi_tagged.h>

#include "driver.h"

/* The completions that kfilnd knows. */
#define MSG_OUT		(KFI_MSG | KFI_SEND)
#define MSG_IN		(KFI_MSG | KFI_RECV)
#define TAG_OUT		(KFI_TAGGED | KFI_SEND)
#define TAG_IN		(KFI_TAGGED | KFI_RECV)
#define READ_OUT	(KFI_TAGGED | KFI_RMA | KFI_READ | KFI_SEND)
#define READ_IN		(KFI_TAGGED | KFI_RMA | KFI_READ | KFI_RECV)
#define WRITE_OUT	(KFI_TAGGED | KFI_RMA | KFI_WRITE | KFI_SEND)
#define WRITE_IN	(KFI_TAGGED | KFI_RMA | KFI_WRITE | KFI_RECV)

/* Bytes of the tag of a receive that are of the transaction; above is the session. */
#define SESSION		(7ULL << 20)

/*
 * The memory of data: pages of their own, memory of kmalloc(), a multi-page
 * allocation without __GFP_COMP. Lustre has them all.
 */
enum memory_kind { SINGLE_PAGES, KMALLOC, PLAIN_PAGES, MEMORY_KINDS };

/**
 * struct transaction - a message, or bulk data, on one host
 * @cpt: the contexts that it uses
 * @msg: the message that it sends, of @len bytes
 * @len: bytes of @msg
 * @to: where it goes
 * @tag: of the receive
 * @fill: the byte that fills the first page of the data; each has one more
 * @kind: of the memory of the data
 * @memory: the data, but for SINGLE_PAGES
 * @pages: of the data
 * @biov: the data
 * @count: elements of @biov
 * @bytes: of the data
 * @post: what a target posts
 * @replay: posts it, again if there was no room
 * @events: completions that are still to come
 * @status: the first error, negative
 * @is_target: nobody waits for it
 * @done: it has ended
 */
struct transaction {
	struct cpt		*cpt;
	struct message		*msg;
	size_t			len;
	kfi_addr_t		to;
	u64			tag;
	u8			fill;
	enum memory_kind	kind;
	u8			*memory;
	struct page		*pages[MAX_IOV];
	struct bio_vec		biov[MAX_IOV];
	unsigned int		count;
	size_t			bytes;
	ssize_t			(*post)(struct transaction *tn);
	struct delayed_work	replay;
	atomic_t		events;
	int			status;
	bool			is_target;
	struct completion	done;
};

/* Allocates @count pages for the data. transaction_free() frees them, also after a failure. */
static bool data_alloc(struct transaction *tn, unsigned int count)
{
	size_t bytes = count * PAGE_SIZE;

	tn->kind = atomic_inc_return(&tn->cpt->driver->kinds) % MEMORY_KINDS;
	if (tn->kind == KMALLOC)
		tn->memory = kmalloc(bytes, GFP_KERNEL | __GFP_NOWARN);
	else if (tn->kind == PLAIN_PAGES)
		tn->memory = (u8 *)__get_free_pages(GFP_KERNEL | __GFP_NOWARN, get_order(bytes));
	/* There need not be so many adjacent pages. */
	if (!tn->memory)
		tn->kind = SINGLE_PAGES;
	for (; tn->count < count; tn->count++) {
		struct page *page = tn->memory ?
			virt_to_page(tn->memory + tn->count * PAGE_SIZE) : alloc_page(GFP_KERNEL);

		if (!page)
			return false;
		tn->pages[tn->count] = page;
	}
	return true;
}

static void transaction_free(struct transaction *tn)
{
	unsigned int i;

	for (i = 0; tn->kind == SINGLE_PAGES && i < tn->count; i++)
		__free_page(tn->pages[i]);
	if (tn->kind == KMALLOC)
		kfree(tn->memory);
	else if (tn->kind == PLAIN_PAGES)
		free_pages((unsigned long)tn->memory, get_order(tn->count * PAGE_SIZE));
	kfree(tn->msg);
	kvfree(tn);
}

static void transaction_replay(struct work_struct *work);

/* A transaction with memory for @bytes of data. Returns NULL if there is no memory. */
static struct transaction *transaction_new(struct cpt *cpt, size_t bytes, u8 fill)
{
	struct transaction *tn = kvzalloc(sizeof(*tn), GFP_KERNEL);
	unsigned int i, count = DIV_ROUND_UP(bytes, PAGE_SIZE);

	if (!tn)
		return NULL;
	tn->cpt = cpt;
	tn->fill = fill;
	tn->bytes = bytes;
	init_completion(&tn->done);
	INIT_DELAYED_WORK(&tn->replay, transaction_replay);
	tn->msg = kzalloc(IMMEDIATE, GFP_KERNEL);
	if (!tn->msg || count > MAX_IOV || (count && !data_alloc(tn, count))) {
		transaction_free(tn);
		return NULL;
	}
	for (i = 0; i < count; i++) {
		size_t part = min(bytes, PAGE_SIZE);

		/* At the end of the page. */
		bvec_set_page(&tn->biov[i], tn->pages[i], part, PAGE_SIZE - part);
		bytes -= part;
	}
	return tn;
}

static void data_fill(struct transaction *tn, u8 fill)
{
	unsigned int i;

	for (i = 0; i < tn->count; i++)
		memset(page_address(tn->pages[i]), fill + i, PAGE_SIZE);
}

/* Whether the data are those that the other host has filled. */
static bool data_fits(const struct transaction *tn)
{
	unsigned int i;

	for (i = 0; i < tn->count; i++) {
		const struct bio_vec *bv = &tn->biov[i];

		if (memchr_inv(page_address(bv->bv_page) + bv->bv_offset, (u8)(tn->fill + i),
			       bv->bv_len))
			return false;
	}
	return true;
}

/* kfilnd_ep_post_send() */
static ssize_t post_send(struct transaction *tn)
{
	return kfi_send(tn->cpt->tx, tn->msg, tn->len, NULL, tn->to, tn);
}

/* kfilnd_ep_post_tagged_recv() */
static ssize_t post_tagged_recv(struct transaction *tn)
{
	struct kfi_msg_tagged msg = {
		.type = KFI_BVEC,
		.msg_biov = tn->biov,
		.iov_count = tn->count,
		.addr = tn->cpt->driver->peer,
		.tag = tn->tag,
		.context = tn,
	};

	return kfi_trecvmsg(tn->cpt->rx, &msg, KFI_COMPLETION);
}

/* kfilnd_ep_post_read(), kfilnd_ep_post_write() */
static ssize_t post_rma(struct transaction *tn, bool read)
{
	struct kfi_rma_iov remote = { .len = tn->bytes, .key = tn->tag };
	struct kfi_msg_rma msg = {
		.type = KFI_BVEC,
		.msg_biov = tn->biov,
		.iov_count = tn->count,
		.addr = tn->to,
		.rma_iov = &remote,
		.rma_iov_count = 1,
		.context = tn,
	};

	if (read)
		return kfi_readmsg(tn->cpt->tx, &msg, KFI_TAGGED | KFI_COMPLETION);
	return kfi_writemsg(tn->cpt->tx, &msg, KFI_TAGGED | KFI_COMPLETION);
}

static ssize_t post_read(struct transaction *tn)
{
	return post_rma(tn, true);
}

static ssize_t post_write(struct transaction *tn)
{
	return post_rma(tn, false);
}

/* kfilnd_ep_post_tagged_send(): tells that the target has no data. */
static ssize_t post_refusal(struct transaction *tn)
{
	u64 data = (__force u64)cpu_to_be64(ENODATA);

	return kfi_tsenddata(tn->cpt->tx, NULL, 0, NULL, data, tn->to, tn->tag, tn);
}

/* One of its completions has come, with an error or 0. The last one ends it. */
static void transaction_event(struct transaction *tn, int status)
{
	struct driver *driver = tn->cpt->driver;
	bool is_read = tn->post == post_read;

	if (status && !tn->status)
		tn->status = status;
	if (!atomic_dec_and_test(&tn->events))
		return;
	if (!tn->is_target) {
		complete(&tn->done);
		return;
	}
	if (is_read && !tn->status && !data_fits(tn))
		bug(driver, "data of %zu bytes were read wrong", tn->bytes);
	if (tn->status)
		WRITE_ONCE(driver->served_status, tn->status);
	if (tn->post != post_send)
		atomic_inc(&driver->served);
	transaction_free(tn);
}

/* Posts what a target posts. */
static void transaction_replay(struct work_struct *work)
{
	struct transaction *tn = container_of(to_delayed_work(work), struct transaction, replay);
	struct driver *driver = tn->cpt->driver;
	ssize_t ret = tn->post(tn);

	if (ret == -KFI_EAGAIN)
		queue_delayed_work(driver->wq, &tn->replay, 1);
	else if (ret)
		transaction_event(tn, ret);
}

/* Begins the transaction of a target. */
static void target_begin(struct transaction *tn, ssize_t (*post)(struct transaction *tn))
{
	tn->is_target = true;
	tn->post = post;
	atomic_set(&tn->events, 1);
	transaction_replay(&tn->replay.work);
}

/* The message of a transaction, without a payload. */
static void message_init(struct transaction *tn, enum message_type type, size_t len)
{
	tn->msg->type = type;
	tn->msg->fill = tn->fill;
	tn->msg->rx = tn->cpt->index;
	tn->msg->len = len;
	tn->msg->tag = tn->tag;
	tn->len = sizeof(*tn->msg);
}

/* A request for bulk data. */
static void serve(struct cpt *cpt, const struct message *msg)
{
	struct driver *driver = cpt->driver;
	bool is_put = msg->type == BULK_PUT;
	struct transaction *tn = transaction_new(cpt, msg->len, msg->fill);

	if (!tn) {
		bug(driver, "there is no memory");
		return;
	}
	tn->tag = msg->tag;
	tn->to = peer_rx(driver, msg->rx);
	if (!is_put)
		data_fill(tn, tn->fill);
	if (READ_ONCE(driver->holds))
		driver->held = tn;
	else if (READ_ONCE(driver->refuses))
		target_begin(tn, post_refusal);
	else
		target_begin(tn, is_put ? post_read : post_write);
}

/* A message has arrived: kfilnd_tn_process_rx_event(). */
static void message_arrived(struct cpt *cpt, const struct message *msg, size_t len)
{
	struct driver *driver = cpt->driver;
	size_t payload = msg->type == IMMEDIATE_MSG ? msg->len : 0;
	struct transaction *tn;

	if (len != sizeof(*msg) + payload) {
		bug(driver, "a message of type %u has %zu bytes", msg->type, len);
		return;
	}
	switch (msg->type) {
	case HELLO_REQ:
		WRITE_ONCE(driver->peer_rx, msg->rx);
		tn = transaction_new(cpt, 0, 0);
		if (!tn)
			return;
		message_init(tn, HELLO_RSP, 0);
		tn->to = peer_rx(driver, msg->rx);
		target_begin(tn, post_send);
		return;
	case HELLO_RSP:
		WRITE_ONCE(driver->peer_rx, msg->rx);
		complete(&driver->greeted);
		return;
	case IMMEDIATE_MSG:
		if (memchr_inv(msg->payload, msg->fill, payload))
			bug(driver, "a message of %zu bytes is wrong", payload);
		atomic_inc(&driver->received);
		return;
	case BULK_PUT:
	case BULK_GET:
		serve(cpt, msg);
		return;
	default:
		bug(driver, "there is a message of type %u", msg->type);
	}
}

/* kfilnd_cq_process_event(): flags are what it compares with. */
static void entry_completed(struct cpt *cpt, const struct kfi_cq_data_entry *entry)
{
	switch (entry->flags) {
	case MSG_IN:
	case MSG_IN | KFI_MULTI_RECV:
		message_arrived(cpt, entry->buf, entry->len);
		buffer_put(entry->op_context);
		/* The buffer has no room for another message. */
		if (entry->flags & KFI_MULTI_RECV)
			buffer_put(entry->op_context);
		return;
	case TAG_IN | KFI_REMOTE_CQ_DATA:
		transaction_event(entry->op_context,
				  -(int)be64_to_cpu((__force __be64)entry->data));
		return;
	case READ_IN:
	case WRITE_IN:
	case TAG_OUT:
	case READ_OUT:
	case WRITE_OUT:
	case MSG_OUT:
		transaction_event(entry->op_context, 0);
		return;
	default:
		bug(cpt->driver, "a completion has the flags %#llx", entry->flags);
	}
}

/* kfilnd_cq_process_error() */
static void entry_failed(struct cpt *cpt, const struct kfi_cq_err_entry *entry)
{
	switch (entry->flags) {
	case MSG_IN:
		if (entry->err != KFI_ECANCELED) {
			bug(cpt->driver, "a message is lost: %d", entry->err);
			return;
		}
		fallthrough;
	case MSG_IN | KFI_MULTI_RECV:
		buffer_put(entry->op_context);
		return;
	case TAG_IN:
	case TAG_IN | KFI_REMOTE_CQ_DATA:
	case READ_IN:
	case WRITE_IN:
	case MSG_OUT:
	case TAG_OUT:
	case READ_OUT:
	case WRITE_OUT:
		transaction_event(entry->op_context, -entry->err);
		return;
	default:
		bug(cpt->driver, "an error has the flags %#llx", entry->flags);
	}
}

/* Posts, and again as long as there is no room. */
static int posted(struct transaction *tn, ssize_t (*post)(struct transaction *tn))
{
	ssize_t ret;
	int turn;

	for (turn = 0; turn < LONG; turn++) {
		ret = post(tn);
		if (ret != -KFI_EAGAIN)
			return ret;
		usleep_range(500, 1000);
	}
	return ret;
}

/* Waits for the end of a transaction. Returns its status. */
static int ended(struct transaction *tn)
{
	if (!wait_for_completion_timeout(&tn->done, msecs_to_jiffies(3 * LONG)))
		return -ETIME;
	return tn->status;
}

/* Frees a transaction that has ended; one that has not is leaked. Returns @ret. */
static int finished(struct transaction *tn, int ret)
{
	if (ret != -ETIME)
		transaction_free(tn);
	return ret;
}

/* Sends a message of @len bytes of payload to a context of the peer. Returns 0 or an error. */
static int immediate(struct driver *driver, int cpt, enum message_type type, size_t len, u8 fill)
{
	struct transaction *tn = transaction_new(&driver->cpts[cpt], 0, fill);
	int ret;

	if (!tn)
		return -ENOMEM;
	message_init(tn, type, len);
	memset(tn->msg->payload, fill, len);
	tn->len += len;
	tn->to = peer_rx(driver, READ_ONCE(driver->peer_rx));
	atomic_set(&tn->events, 1);
	ret = posted(tn, post_send);
	return finished(tn, ret ?: ended(tn));
}

/**
 * bulk_begin() - post a receive for bulk data, and ask the peer for RMA to it
 * @driver: the initiator
 * @cpt: its contexts
 * @put: the peer reads the data; else it writes them
 * @bytes: of the data
 * @fill: the byte that fills the first page
 * @tn: where the transaction is stored
 *
 * Return: 0; else an error, and there is no transaction.
 */
static int bulk_begin(struct driver *driver, int cpt, bool put, size_t bytes, u8 fill,
		      struct transaction **tn)
{
	struct transaction *new = transaction_new(&driver->cpts[cpt], bytes, fill);
	int ret;

	if (!new)
		return -ENOMEM;
	data_fill(new, put ? fill : ~fill);
	new->tag = SESSION | atomic_inc_return(&driver->tags);
	new->to = peer_rx(driver, READ_ONCE(driver->peer_rx));
	message_init(new, put ? BULK_PUT : BULK_GET, bytes);
	atomic_set(&new->events, 2);
	ret = posted(new, post_tagged_recv);
	if (ret) {
		transaction_free(new);
		return ret;
	}
	ret = posted(new, post_send);
	/* What the message would have completed with. */
	if (ret)
		transaction_event(new, ret);
	*tn = new;
	return 0;
}

/* Takes the receive back if the request has failed. Waits for the end, and returns the status. */
static int bulk_end(struct transaction *tn, bool get)
{
	int turn, ret;

	for (turn = 0; turn < 3 * LONG && !completion_done(&tn->done); turn++) {
		if (READ_ONCE(tn->status))
			kfi_cancel(&tn->cpt->rx->fid, tn);
		usleep_range(500, 1000);
	}
	ret = ended(tn);
	if (!ret && get && !data_fits(tn))
		ret = -EBADMSG;
	return finished(tn, ret);
}

/* Bulk data, from beginning to end. Returns 0 or an error. */
static int bulk(struct driver *driver, int cpt, bool put, size_t bytes, u8 fill)
{
	struct transaction *tn;
	int ret = bulk_begin(driver, cpt, put, bytes, fill, &tn);

	return ret ?: bulk_end(tn, !put);
}

#endif /* _CONSUMER_DRIVER_FLOW_H */
