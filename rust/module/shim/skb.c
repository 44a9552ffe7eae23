// SPDX-License-Identifier: GPL-2.0
/*
 * The C side of shim/skb.rs: socket buffers.
 *
 * Most functions wrap a macro or an inline function, or use headers that the
 * kernel crate does not bind.
 */

#include "skb.h"

#include <linux/crc32.h>
#include <linux/minmax.h>
#include <linux/netdevice.h>
#include <linux/skbuff.h>

/**
 * kfabric_shim_skb_len - length of a received packet
 * @skb: the packet
 *
 * Return: bytes after the UDP header.
 */
u32 kfabric_shim_skb_len(const struct sk_buff *skb)
{
	return skb->len;
}

/**
 * kfabric_shim_skb_truesize - memory that a received packet uses
 * @skb: the packet
 *
 * Return: bytes of the packet, its buffers and the structures that describe
 * them.
 */
u32 kfabric_shim_skb_truesize(const struct sk_buff *skb)
{
	return skb->truesize;
}

/**
 * kfabric_shim_skb_vrf - the VRF that a received packet came from
 * @skb: the packet
 *
 * Return: the index of the VRF's device, or 0; see kfabric_shim_udp_rcv().
 */
u32 kfabric_shim_skb_vrf(const struct sk_buff *skb)
{
	return skb->skb_iif;
}

/**
 * kfabric_shim_skb_from_this_host - whether the loopback interface has carried
 * a packet
 * @skb: a received packet
 *
 * Return: false also for a packet of this host in a VRF, which comes from the
 * VRF's device as those of other hosts do (vrf_ip_rcv()). Set by
 * kfabric_shim_udp_rcv().
 */
bool kfabric_shim_skb_from_this_host(const struct sk_buff *skb)
{
	return skb->pkt_type == PACKET_LOOPBACK;
}

/**
 * kfabric_shim_skb_ip - the IP header of a packet, with options or extensions
 * @skb: a received packet
 * @len: out: its bytes
 *
 * Return: its address; the header is contiguous.
 */
const u8 *kfabric_shim_skb_ip(const struct sk_buff *skb, u32 *len)
{
	*len = skb_network_header_len(skb);
	return skb_network_header(skb);
}

/**
 * kfabric_shim_skb_udp - the UDP header of a packet
 * @skb: a received packet
 *
 * Return: the address of its eight bytes.
 */
const u8 *kfabric_shim_skb_udp(const struct sk_buff *skb)
{
	return skb_transport_header(skb);
}

/**
 * kfabric_shim_skb_head - the first bytes of a packet, contiguous
 * @skb: a received packet
 * @len: number of bytes
 * @buf: room for them, used if they are not contiguous
 *
 * Return: their address, or NULL if the packet has fewer.
 */
const u8 *kfabric_shim_skb_head(const struct sk_buff *skb, u32 len, u8 *buf)
{
	return skb_header_pointer(skb, 0, len, buf);
}

/**
 * kfabric_shim_skb_crc32 - CRC-32 over a part of a packet, in any fragments
 * @skb: a received packet
 * @offset: offset of the part
 * @len: its length; the part is within the packet
 * @crc: CRC of the bytes before it
 *
 * Context: any.
 * Return: the CRC, not inverted.
 */
u32 kfabric_shim_skb_crc32(struct sk_buff *skb, u32 offset, u32 len, u32 crc)
{
	struct skb_seq_state state;
	unsigned int done = 0, piece;
	const u8 *data;

	if (offset + len <= skb_headlen(skb))
		return crc32(crc, skb->data + offset, len);
	skb_prepare_seq_read(skb, offset, offset + len, &state);
	while ((piece = skb_seq_read(done, &data, &state)) != 0) {
		/* A fragment may extend beyond the part. */
		piece = min(piece, len - done);
		crc = crc32(crc, data, piece);
		done += piece;
	}
	/* The sequence was read to its end, so it holds no page. */
	return crc;
}

/**
 * kfabric_shim_skb_copy - copy a part of a packet, in any fragments
 * @skb: a received packet
 * @offset: offset of the part
 * @to: the destination, which user space may change at the same time
 * @len: length of the part
 *
 * Context: any.
 * Return: whether the packet has such a part.
 */
bool kfabric_shim_skb_copy(const struct sk_buff *skb, u32 offset, void *to,
			   u32 len)
{
	return !skb_copy_bits(skb, offset, to, len);
}

/**
 * kfabric_shim_skb_next - detach the first packet of a chain
 * @skb: the packet, from kfabric_shim_inbox_take() or this function
 *
 * Return: the second, or NULL.
 */
struct sk_buff *kfabric_shim_skb_next(struct sk_buff *skb)
{
	struct sk_buff *next = skb->next;

	skb_mark_not_on_list(skb);
	return next;
}

/**
 * kfabric_shim_skb_chain - append a packet to a chain
 * @last: the last packet of the chain
 * @skb: the packet, on no list
 */
void kfabric_shim_skb_chain(struct sk_buff *last, struct sk_buff *skb)
{
	last->next = skb;
}

/**
 * kfabric_shim_skb_consume - free a packet that was processed
 * @skb: not on a list
 *
 * Context: any but hard irq.
 */
void kfabric_shim_skb_consume(struct sk_buff *skb)
{
	consume_skb(skb);
}

/**
 * kfabric_shim_skb_drop - free a packet that was dropped
 * @skb: not on a list
 *
 * Context: any but hard irq.
 */
void kfabric_shim_skb_drop(struct sk_buff *skb)
{
	kfree_skb(skb);
}

/**
 * kfabric_shim_inbox_init - initialise an inbox, open and empty
 * @inbox: the inbox
 * @reserve: bytes of memory that its packets may always use
 */
void kfabric_shim_inbox_init(struct kfabric_shim_inbox *inbox, u32 reserve)
{
	skb_queue_head_init(&inbox->list);
	inbox->bytes = 0;
	inbox->room = reserve;
	inbox->reserve = reserve;
	inbox->closed = false;
}

/**
 * kfabric_shim_inbox_push - append a packet to an inbox
 * @inbox: the inbox
 * @skb: the packet; taken over unless the result is negative
 * @max: the limits of the inbox, however much room there is
 * @more: bytes by which the room grows, unless the result is negative
 *
 * If @more is the packet's truesize or larger, the result is never -EDQUOT.
 *
 * Context: process or softirq.
 * Return: 1 if it is the first packet, 0 if others wait already, -ENOBUFS if a
 * limit is reached, -EDQUOT if there is not enough room, -ESHUTDOWN if the
 * inbox is closed.
 */
int kfabric_shim_inbox_push(struct kfabric_shim_inbox *inbox,
			    struct sk_buff *skb,
			    const struct kfabric_shim_inbox_limits *max,
			    u32 more)
{
	int ret;

	spin_lock_bh(&inbox->list.lock);
	if (inbox->closed) {
		ret = -ESHUTDOWN;
	} else if (inbox->bytes >= max->bytes ||
		   skb_queue_len(&inbox->list) >= max->packets) {
		ret = -ENOBUFS;
	} else if ((u64)inbox->bytes + skb->truesize > (u64)inbox->room + more) {
		ret = -EDQUOT;
	} else {
		ret = skb_queue_empty(&inbox->list);
		WRITE_ONCE(inbox->room, inbox->room + more);
		inbox->bytes += skb->truesize;
		__skb_queue_tail(&inbox->list, skb);
	}
	spin_unlock_bh(&inbox->list.lock);
	return ret;
}

/**
 * kfabric_shim_inbox_borrowed - room beyond the reserve
 * @inbox: the inbox
 *
 * Context: any.
 * Return: bytes, at some moment of the call.
 */
u32 kfabric_shim_inbox_borrowed(const struct kfabric_shim_inbox *inbox)
{
	return READ_ONCE(inbox->room) - inbox->reserve;
}

/* Removes unneeded room beyond the reserve. Returns the number of bytes. */
static u32 kfabric_shim_inbox_shrink(struct kfabric_shim_inbox *inbox)
{
	u32 needed = max(inbox->bytes, inbox->reserve);
	u32 surplus = inbox->room - needed;

	WRITE_ONCE(inbox->room, needed);
	return surplus;
}

/* Takes all packets of an inbox as a chain; NULL if there are none. */
static struct sk_buff *kfabric_shim_inbox_chain(struct kfabric_shim_inbox *inbox)
{
	struct sk_buff *first = skb_peek(&inbox->list);

	if (first)
		inbox->list.prev->next = NULL;
	__skb_queue_head_init(&inbox->list);
	inbox->bytes = 0;
	return first;
}

/* Takes the first @max packets of an inbox that has more, as a chain. */
static struct sk_buff *kfabric_shim_inbox_some(struct kfabric_shim_inbox *inbox,
					       u32 max)
{
	struct sk_buff *first = NULL, **end = &first;

	for (; max; max--) {
		*end = __skb_dequeue(&inbox->list);
		inbox->bytes -= (*end)->truesize;
		end = &(*end)->next;
	}
	return first;
}

/**
 * kfabric_shim_inbox_take - take waiting packets
 * @inbox: the inbox
 * @max: the most packets to take
 * @surplus: out: bytes by which the room has become smaller
 *
 * Context: process.
 * Return: the first, for kfabric_shim_skb_next(); or NULL.
 */
struct sk_buff *kfabric_shim_inbox_take(struct kfabric_shim_inbox *inbox,
					u32 max, u32 *surplus)
{
	struct sk_buff *first;

	*surplus = 0;
	/* There is room beyond the reserve only while packets wait. */
	if (skb_queue_empty_lockless(&inbox->list))
		return NULL;
	spin_lock_bh(&inbox->list.lock);
	if (skb_queue_len(&inbox->list) <= max)
		first = kfabric_shim_inbox_chain(inbox);
	else
		first = kfabric_shim_inbox_some(inbox, max);
	*surplus = kfabric_shim_inbox_shrink(inbox);
	spin_unlock_bh(&inbox->list.lock);
	return first;
}

/**
 * kfabric_shim_inbox_is_empty - whether no packet waits
 * @inbox: the inbox
 *
 * Context: any.
 * Return: the answer at some moment of the call.
 */
bool kfabric_shim_inbox_is_empty(const struct kfabric_shim_inbox *inbox)
{
	return skb_queue_empty_lockless(&inbox->list);
}

/**
 * kfabric_shim_inbox_close - close an inbox and take its packets
 * @inbox: the inbox
 * @surplus: out: bytes by which the room has become smaller; 0 if it was closed
 *
 * Context: process.
 * Return: as kfabric_shim_inbox_take().
 */
struct sk_buff *kfabric_shim_inbox_close(struct kfabric_shim_inbox *inbox,
					 u32 *surplus)
{
	struct sk_buff *first;

	spin_lock_bh(&inbox->list.lock);
	inbox->closed = true;
	first = kfabric_shim_inbox_chain(inbox);
	*surplus = kfabric_shim_inbox_shrink(inbox);
	spin_unlock_bh(&inbox->list.lock);
	return first;
}

/**
 * kfabric_shim_skb_alloc - allocate a packet to send
 * @len: its bytes, from the IP header to the end
 * @data: out: their address; they are contiguous, and the caller writes all of
 * them
 *
 * Context: process. It does not wait for memory, because sending packets is
 * what frees memory.
 * Return: the packet, or NULL.
 */
struct sk_buff *kfabric_shim_skb_alloc(u32 len, u8 **data)
{
	struct sk_buff *skb = alloc_skb(MAX_HEADER + len,
					GFP_ATOMIC | __GFP_NOWARN);

	if (!skb)
		return NULL;
	skb_reserve(skb, MAX_HEADER);
	*data = skb_put(skb, len);
	return skb;
}

/**
 * kfabric_shim_crc32 - CRC-32 over bytes
 * @crc: CRC of the bytes before @data
 * @data: the bytes
 * @len: number of bytes
 *
 * Context: any.
 * Return: the CRC, not inverted.
 */
u32 kfabric_shim_crc32(u32 crc, const void *data, size_t len)
{
	return crc32(crc, data, len);
}
