/* SPDX-License-Identifier: GPL-2.0 */
/*
 * A round of a member of a ring (ring.h): operations of every kind to the next
 * member, receives for those of the previous one, and a comparison of all bytes.
 *
 * Messages and remote memory take turns at the forms of memory: one piece, kernel
 * addresses, pages and a scatterlist.
 */
#ifndef _CONSUMER_RING_TURN_H
#define _CONSUMER_RING_TURN_H

#include <linux/bvec.h>
#include <linux/delay.h>
#include <linux/jiffies.h>
#include <linux/kthread.h>
#include <linux/scatterlist.h>
#include <linux/uio.h>

#include <kfi/kfi_atomic.h>
#include <kfi/kfi_rma.h>
#include <kfi/kfi_trigger.h>

#include "pair.h"

#define MEMBERS		16
#define PART		PAGE_SIZE

/*
 * Parts of a member's memory: where bytes arrive, what others read, what is sent,
 * and the region of the previous member's.
 */
enum member_part {
	PLAIN_TO, MULTI_TO, TAGGED_TO, READ_TO, WRITTEN_BY, FETCHED_TO, READ_BY,
	PLAIN_FROM, TAGGED_FROM, WRITE_FROM, SMALL_FROM, RMA_FROM, REGION, PARTS
};

#define ORDER		4

/* Words at the end of a region, which the previous member changes. */
enum word { SUM, SUM_SILENTLY, SWAPPED, INJECTED, INJECTED_DATA, WITH_DATA, DEFERRED, WORDS };

#define WORDS_AT	(PART - WORDS * sizeof(u64))
#define WORD_AT(word)	(WORDS_AT + (word) * sizeof(u64))

/* Small messages: three of them fill a multi-receive buffer. */
#define SMALL		64
#define SMALLS		3

/* Operations of a round, by the contexts of their completions. */
enum op {
	OP_REMOTE, OP_RECV, OP_MULTI, OP_TRECV, OP_READY, OP_WRITTEN, OP_WAS_READ, OP_SEND,
	OP_SENDDATA, OP_TSEND, OP_WRITE, OP_WRITEDATA, OP_ADD, OP_FETCH_ADD, OP_SWAP,
	OP_TAGGED_WRITE, OP_TAGGED_READ, OP_READ, OPS
};

static const u64 flags_of[OPS] = {
	/* A write of the previous member, which has brought data. */
	[OP_REMOTE]		= KFI_RMA | KFI_REMOTE_WRITE | KFI_REMOTE_CQ_DATA,
	[OP_RECV]		= KFI_MSG | KFI_RECV,
	[OP_MULTI]		= KFI_MSG | KFI_RECV,
	[OP_TRECV]		= KFI_TAGGED | KFI_RECV,
	/* The next member has posted its receives of this round. */
	[OP_READY]		= KFI_TAGGED | KFI_RECV | KFI_REMOTE_CQ_DATA,
	[OP_WRITTEN]		= KFI_TAGGED | KFI_RMA | KFI_WRITE | KFI_RECV,
	[OP_WAS_READ]		= KFI_TAGGED | KFI_RMA | KFI_READ | KFI_RECV,
	[OP_SEND]		= KFI_MSG | KFI_SEND,
	[OP_SENDDATA]		= KFI_MSG | KFI_SEND,
	[OP_TSEND]		= KFI_TAGGED | KFI_SEND,
	[OP_WRITE]		= KFI_RMA | KFI_WRITE,
	[OP_WRITEDATA]		= KFI_RMA | KFI_WRITE,
	[OP_ADD]		= KFI_ATOMIC | KFI_WRITE,
	[OP_FETCH_ADD]		= KFI_ATOMIC | KFI_READ,
	[OP_SWAP]		= KFI_ATOMIC | KFI_READ,
	[OP_TAGGED_WRITE]	= KFI_TAGGED | KFI_RMA | KFI_WRITE | KFI_SEND,
	[OP_TAGGED_READ]	= KFI_TAGGED | KFI_RMA | KFI_READ | KFI_SEND,
	[OP_READ]		= KFI_RMA | KFI_READ,
};

/* The context of an operation. */
#define CONTEXT(op)	((void *)(unsigned long)(op))

/* Completions of an operation in a round; those of OP_REMOTE may come early. */
static inline unsigned int times_of(enum op op)
{
	return op == OP_REMOTE ? 2 : op == OP_MULTI ? SMALLS : 1;
}

/* The tag of what one member and the next have for each other in a round. */
#define TAG(op, round)	((u64)(op) << 48 | (round))

#define ALL		(BIT(OPS) - 1)

/**
 * struct member - an endpoint of the ring
 * @end: the endpoint
 * @domain: of the endpoint
 * @previous: the previous member in its address vector
 * @mr: a region for the previous member: the last part of @mem
 * @mem: its memory, in parts
 * @index: its place
 * @until: when it ends, in jiffies
 * @rounds: how many rounds it has made
 * @stop: all members stop after this round
 * @old: results of its last atomics: of the sum, and of the swap
 * @seen: completions of this round
 * @remote: writes with data of the previous member, of all rounds
 * @go: starts deferred work: one more for each round
 * @deferred: counts deferred work
 * @iov: memory of the deferred write
 * @piece: remote memory of the deferred write
 * @write: the deferred write
 * @work: the same
 * @error: the first thing that went wrong
 * @done: the thread has ended
 */
struct member {
	struct end			end;
	struct kfid_domain		*domain;
	kfi_addr_t			previous;
	struct kfid_mr			*mr;
	u8				*mem;
	u64				index;
	unsigned long			until;
	u64				rounds;
	u64				*stop;
	u64				old[2];
	unsigned int			seen[OPS];
	u64				remote;
	struct kfid_cntr		*go;
	struct kfid_cntr		*deferred;
	struct kvec			iov;
	struct kfi_rma_iov		piece;
	struct kfi_op_rma		write;
	struct kfi_deferred_work	work;
	int				error;
	struct completion		done;
};

static inline u64 next_key(const struct member *member)
{
	return (member->index + 1) % MEMBERS + 1;
}

static inline u64 previous_index(const struct member *member)
{
	return (member->index + MEMBERS - 1) % MEMBERS;
}

/* The byte that fills a member's part in a round. */
static inline u8 byte_of(u64 index, enum member_part part, u64 round)
{
	return index * 31 + part * 7 + round;
}

/* Bytes of a member's messages in a round. */
static inline size_t length_of(u64 index, u64 round)
{
	return (index * 977 + round * 331) % (PART + 1);
}

static inline u8 *part_of(struct member *member, enum member_part part)
{
	return member->mem + part * PART;
}

/**
 * enum list_form - how an operation names its memory
 * @PIECE: one piece
 * @KVECS: two kernel addresses
 * @PAGES: two parts of a page
 * @SGL: a scatterlist of two
 * @FORMS: their number
 */
enum list_form { PIECE, KVECS, PAGES, SGL, FORMS };

/* The form that a member uses in a round for @len bytes: two parts need two bytes. */
static inline enum list_form form_of(u64 index, u64 round, size_t len)
{
	return len < 2 ? PIECE : (index + round) % FORMS;
}

/**
 * struct list - two parts of memory, in each form
 * @iov: as kernel addresses
 * @biov: as pages
 * @sgl: as a scatterlist
 */
struct list {
	struct kvec		iov[2];
	struct bio_vec		biov[2];
	struct scatterlist	sgl[2];
};

static inline void list_init(struct list *list, u8 *mem, size_t len)
{
	size_t first = len / 3 ?: 1, lens[2] = { first, len - first };
	int i;

	if (len < 2)
		return;
	sg_init_table(list->sgl, 2);
	for (i = 0; i < 2; i++) {
		list->iov[i] = (struct kvec){ mem, lens[i] };
		bvec_set_virt(&list->biov[i], mem, lens[i]);
		sg_set_buf(&list->sgl[i], mem, lens[i]);
		mem += first;
	}
}

/* The call of the form. */
static inline ssize_t post_recv(struct member *m, enum list_form form, u8 *mem, size_t len)
{
	struct kfid_ep *ep = m->end.ep;
	struct list list;

	list_init(&list, mem, len);
	switch (form) {
	case KVECS:
		return kfi_recvv(ep, list.iov, NULL, 2, KFI_ADDR_UNSPEC, CONTEXT(OP_RECV));
	case PAGES:
		return kfi_recvbv(ep, list.biov, NULL, 2, KFI_ADDR_UNSPEC, CONTEXT(OP_RECV));
	case SGL:
		return kfi_recvsgl(ep, list.sgl, NULL, 2, KFI_ADDR_UNSPEC, CONTEXT(OP_RECV));
	default:
		return kfi_recv(ep, mem, len, NULL, KFI_ADDR_UNSPEC, CONTEXT(OP_RECV));
	}
}

static inline ssize_t post_send(struct member *m, enum list_form form, u8 *mem, size_t len)
{
	struct kfid_ep *ep = m->end.ep;
	struct list list;

	list_init(&list, mem, len);
	switch (form) {
	case KVECS:
		return kfi_sendv(ep, list.iov, NULL, 2, m->end.peer, CONTEXT(OP_SEND));
	case PAGES:
		return kfi_sendbv(ep, list.biov, NULL, 2, m->end.peer, CONTEXT(OP_SEND));
	case SGL:
		return kfi_sendsgl(ep, list.sgl, NULL, 2, m->end.peer, CONTEXT(OP_SEND));
	default:
		return kfi_send(ep, mem, len, NULL, m->end.peer, CONTEXT(OP_SEND));
	}
}

static inline ssize_t post_trecv(struct member *m, enum list_form form, enum op op, u8 *mem,
				 size_t len, u64 tag)
{
	struct kfid_ep *ep = m->end.ep;
	struct list list;

	list_init(&list, mem, len);
	switch (form) {
	case KVECS:
		return kfi_trecvv(ep, list.iov, NULL, 2, KFI_ADDR_UNSPEC, tag, 0, CONTEXT(op));
	case PAGES:
		return kfi_trecvbv(ep, list.biov, NULL, 2, KFI_ADDR_UNSPEC, tag, 0, CONTEXT(op));
	case SGL:
		return kfi_trecvsgl(ep, list.sgl, NULL, 2, KFI_ADDR_UNSPEC, tag, 0, CONTEXT(op));
	default:
		return kfi_trecv(ep, mem, len, NULL, KFI_ADDR_UNSPEC, tag, 0, CONTEXT(op));
	}
}

/* One piece brings data besides. */
static inline ssize_t post_tsend(struct member *m, enum list_form form, u8 *mem, size_t len,
				 u64 round)
{
	u64 tag = TAG(OP_TRECV, round);
	struct kfid_ep *ep = m->end.ep;
	struct list list;

	list_init(&list, mem, len);
	switch (form) {
	case KVECS:
		return kfi_tsendv(ep, list.iov, NULL, 2, m->end.peer, tag, CONTEXT(OP_TSEND));
	case PAGES:
		return kfi_tsendbv(ep, list.biov, NULL, 2, m->end.peer, tag, CONTEXT(OP_TSEND));
	case SGL:
		return kfi_tsendsgl(ep, list.sgl, NULL, 2, m->end.peer, tag, CONTEXT(OP_TSEND));
	default:
		return kfi_tsenddata(ep, mem, len, NULL, round, m->end.peer, tag,
				     CONTEXT(OP_TSEND));
	}
}

static inline ssize_t post_write(struct member *m, enum list_form form, u8 *mem, size_t len)
{
	u64 key = next_key(m);
	struct kfid_ep *ep = m->end.ep;
	struct list list;

	list_init(&list, mem, len);
	switch (form) {
	case KVECS:
		return kfi_writev(ep, list.iov, NULL, 2, m->end.peer, 0, key, CONTEXT(OP_WRITE));
	case PAGES:
		return kfi_writebv(ep, list.biov, NULL, 2, m->end.peer, 0, key, CONTEXT(OP_WRITE));
	case SGL:
		return kfi_writesgl(ep, list.sgl, NULL, 2, m->end.peer, 0, key, CONTEXT(OP_WRITE));
	default:
		return kfi_write(ep, mem, len, NULL, m->end.peer, 0, key, CONTEXT(OP_WRITE));
	}
}

/*
 * A write or a read with flags: with KFI_TAGGED, of the receive with the tag @key,
 * else of the region.
 */
static inline ssize_t post_rma(struct member *m, enum list_form form, enum op op, u8 *mem,
			       size_t len, u64 key, u64 flags)
{
	struct kfi_rma_iov remote = { .len = len, .key = key };
	struct kfi_msg_rma msg = {
		.iov_count = 2,
		.addr = m->end.peer,
		.rma_iov = &remote,
		.rma_iov_count = 1,
		.context = CONTEXT(op),
	};
	struct list list;

	list_init(&list, mem, len);
	switch (form) {
	case PAGES:
		msg.type = KFI_BVEC;
		msg.msg_biov = list.biov;
		break;
	case SGL:
		msg.type = KFI_SGL;
		msg.msg_sgl = list.sgl;
		break;
	default:
		msg.type = KFI_KVEC;
		msg.msg_iov = list.iov;
	}
	if (op == OP_TAGGED_WRITE)
		return kfi_writemsg(m->end.ep, &msg, flags | KFI_COMPLETION);
	return kfi_readmsg(m->end.ep, &msg, flags | KFI_COMPLETION);
}

/* Notes a completion. Returns 0 if it is one that may come now. */
static inline int note(struct member *m, u64 round, const struct kfi_cq_tagged_entry *entry)
{
	unsigned long op = (unsigned long)entry->op_context;
	u64 flags, data = round;
	unsigned int nth;

	if (op >= OPS)
		return -EBADMSG;
	flags = flags_of[op];
	nth = m->seen[op]++;
	switch (op) {
	case OP_REMOTE:
		data = m->remote++ / times_of(op);
		break;
	case OP_MULTI:
		/* kfi_inject(), kfi_injectdata(), kfi_senddata() */
		flags |= nth ? KFI_REMOTE_CQ_DATA : 0;
		flags |= nth == SMALLS - 1 ? KFI_MULTI_RECV : 0;
		if (entry->len != SMALL || entry->buf != part_of(m, MULTI_TO) + SMALL * nth)
			return -EMSGSIZE;
		break;
	case OP_TRECV:
		if (form_of(previous_index(m), round,
			    length_of(previous_index(m), round)) == PIECE)
			flags |= KFI_REMOTE_CQ_DATA;
		break;
	}
	if (entry->flags != flags || (op != OP_REMOTE && nth >= times_of(op)))
		return -EBADMSG;
	return flags & KFI_REMOTE_CQ_DATA && entry->data != data ? -EILSEQ : 0;
}

/* Whether the operations in @wanted have all their completions of a round. */
static inline bool all_seen(const struct member *m, u64 round, unsigned long wanted)
{
	enum op op;

	for (op = OP_RECV; op < OPS; op++)
		if (wanted & BIT(op) && m->seen[op] < times_of(op))
			return false;
	return !(wanted & BIT(OP_REMOTE)) || m->remote >= (round + 1) * times_of(OP_REMOTE);
}

/* Waits until the operations in @wanted have completed. */
static inline int await(struct member *m, u64 round, unsigned long wanted)
{
	struct kfi_cq_tagged_entry entry;
	ssize_t ret;

	while (!all_seen(m, round, wanted)) {
		ret = kfi_cq_sread(m->end.cq, &entry, 1, NULL, LONG);
		if (ret != 1)
			return ret ?: -EIO;
		ret = note(m, round, &entry);
		if (ret)
			return ret;
	}
	return 0;
}

/* Whether a part has @len bytes of another member's part in a round. */
static inline int compare(struct member *m, enum member_part part, u64 index,
			  enum member_part from, u64 round, size_t len)
{
	return memchr_inv(part_of(m, part), byte_of(index, from, round), len) ? -EILSEQ : 0;
}

/* Posts the receives for the previous member, and tells it. */
static inline int receives(struct member *m, u64 round)
{
	enum list_form form = form_of(m->index, round, PART);
	struct kfid_ep *ep = m->end.ep;
	struct kvec room = { part_of(m, MULTI_TO), SMALLS * SMALL };
	struct kfi_msg multi = {
		.type = KFI_KVEC,
		.msg_iov = &room,
		.iov_count = 1,
		.addr = KFI_ADDR_UNSPEC,
		.context = CONTEXT(OP_MULTI),
	};
	ssize_t ret;

	memset(part_of(m, READ_BY), byte_of(m->index, READ_BY, round), PART);
	ret = post_recv(m, form, part_of(m, PLAIN_TO), PART);
	ret = ret ?: kfi_recvmsg(ep, &multi, KFI_MULTI_RECV | KFI_COMPLETION);
	ret = ret ?: post_trecv(m, form, OP_TRECV, part_of(m, TAGGED_TO), PART,
				TAG(OP_TRECV, round));
	ret = ret ?: post_trecv(m, form, OP_WRITTEN, part_of(m, WRITTEN_BY), PART,
				TAG(OP_WRITTEN, round));
	ret = ret ?: post_trecv(m, form, OP_WAS_READ, part_of(m, READ_BY), PART,
				TAG(OP_WAS_READ, round));
	ret = ret ?: kfi_trecv(ep, part_of(m, READ_TO), 0, NULL, KFI_ADDR_UNSPEC,
			       TAG(OP_READY, round), 0, CONTEXT(OP_READY));
	return ret ?: kfi_tinjectdata(ep, part_of(m, SMALL_FROM), 0, round, m->previous,
				      TAG(OP_READY, round));
}

/* Messages to the next member, in the order of its receives. */
static inline int messages(struct member *m, u64 round)
{
	size_t len = length_of(m->index, round);
	enum list_form form = form_of(m->index, round, len);
	u8 *small = part_of(m, SMALL_FROM);
	struct kfid_ep *ep = m->end.ep;
	kfi_addr_t peer = m->end.peer;
	ssize_t ret;

	ret = post_tsend(m, form, part_of(m, TAGGED_FROM), len, round);
	ret = ret ?: post_send(m, form, part_of(m, PLAIN_FROM), len);
	ret = ret ?: kfi_inject(ep, small, SMALL, peer);
	ret = ret ?: kfi_injectdata(ep, small, SMALL, round, peer);
	return ret ?: kfi_senddata(ep, small, SMALL, NULL, round, peer, CONTEXT(OP_SENDDATA));
}

/* Changes of the next member's region. */
static inline int changes(struct member *m, u64 round)
{
	enum list_form form = form_of(m->index, round, WORDS_AT);
	/* The value of words that are written in this round. */
	u64 *value = (u64 *)part_of(m, SMALL_FROM) + SMALL / sizeof(u64);
	u64 key = next_key(m), one = 1;
	struct kfid_ep *ep = m->end.ep;
	kfi_addr_t peer = m->end.peer;
	ssize_t ret;

	*value = round + 1;
	m->work.threshold = round + 1;
	ret = kfi_control(&m->domain->fid, KFI_QUEUE_WORK, &m->work);
	ret = ret ?: post_write(m, form, part_of(m, WRITE_FROM), WORDS_AT);
	ret = ret ?: kfi_inject_write(ep, value, sizeof(*value), peer, WORD_AT(INJECTED), key);
	ret = ret ?: kfi_inject_writedata(ep, value, sizeof(*value), round, peer,
					  WORD_AT(INJECTED_DATA), key);
	ret = ret ?: kfi_writedata(ep, value, sizeof(*value), NULL, round, peer,
				   WORD_AT(WITH_DATA), key, CONTEXT(OP_WRITEDATA));
	ret = ret ?: kfi_atomic(ep, &one, 1, NULL, peer, WORD_AT(SUM_SILENTLY), key, KFI_UINT64,
				KFI_SUM, CONTEXT(OP_ADD));
	ret = ret ?: kfi_inject_atomic(ep, &one, 1, peer, WORD_AT(SUM_SILENTLY), key, KFI_UINT64,
				       KFI_SUM);
	ret = ret ?: kfi_fetch_atomic(ep, &one, 1, NULL, &m->old[0], NULL, peer, WORD_AT(SUM), key,
				      KFI_UINT64, KFI_SUM, CONTEXT(OP_FETCH_ADD));
	ret = ret ?: kfi_compare_atomic(ep, value, 1, NULL, &round, NULL, &m->old[1], NULL, peer,
					WORD_AT(SWAPPED), key, KFI_UINT64, KFI_CSWAP,
					CONTEXT(OP_SWAP));
	return ret ?: kfi_cntr_add(m->go, 1);
}

/* Reads the whole region of the next member, after all changes, and compares it. */
static inline int region_is(struct member *m, u64 round)
{
	enum list_form form = form_of(m->index, round, PART);
	u64 *words = (u64 *)(part_of(m, READ_TO) + WORDS_AT);
	int turn;
	ssize_t ret = kfi_cntr_wait(m->deferred, round + 1, LONG);
	enum word word;

	for (turn = 0; !ret && turn < LONG; turn++) {
		ret = post_rma(m, form, OP_READ, part_of(m, READ_TO), PART, next_key(m),
			       KFI_FENCE);
		if (ret != -KFI_EAGAIN)
			break;
		/* An injected message waits at the peer. */
		usleep_range(500, 1000);
		ret = 0;
	}
	ret = ret ?: await(m, round, ALL);
	ret = ret ?: compare(m, READ_TO, m->index, WRITE_FROM, round, WORDS_AT);
	for (word = 0; !ret && word < WORDS; word++)
		if (words[word] != (word == SUM_SILENTLY ? 2 : 1) * (round + 1))
			ret = -ERANGE;
	return ret;
}

/* A round of a member. Returns 0 or what went wrong. */
static inline int turn(struct member *m, u64 round)
{
	u64 previous = previous_index(m), next = (m->index + 1) % MEMBERS;
	size_t len = length_of(previous, round);
	enum list_form form = form_of(m->index, round, PART);
	enum member_part part;
	int ret;

	memset(m->seen, 0, sizeof(m->seen));
	for (part = PLAIN_FROM; part < REGION; part++)
		memset(part_of(m, part), byte_of(m->index, part, round), PART);
	ret = receives(m, round);
	ret = ret ?: messages(m, round);
	ret = ret ?: changes(m, round);
	ret = ret ?: await(m, round, BIT(OP_READY));
	ret = ret ?: post_rma(m, form, OP_TAGGED_WRITE, part_of(m, RMA_FROM), PART,
			      TAG(OP_WRITTEN, round), KFI_TAGGED);
	ret = ret ?: post_rma(m, form, OP_TAGGED_READ, part_of(m, FETCHED_TO), PART,
			      TAG(OP_WAS_READ, round), KFI_TAGGED);
	ret = ret ?: await(m, round, ALL & ~BIT(OP_READ));
	if (!ret && (m->old[0] != round || m->old[1] != round))
		ret = -ERANGE;
	ret = ret ?: region_is(m, round);
	ret = ret ?: compare(m, PLAIN_TO, previous, PLAIN_FROM, round, len);
	ret = ret ?: compare(m, TAGGED_TO, previous, TAGGED_FROM, round, len);
	ret = ret ?: compare(m, MULTI_TO, previous, SMALL_FROM, round, SMALLS * SMALL);
	ret = ret ?: compare(m, WRITTEN_BY, previous, RMA_FROM, round, PART);
	return ret ?: compare(m, FETCHED_TO, next, READ_BY, round, PART);
}

#endif /* _CONSUMER_RING_TURN_H */
