/* SPDX-License-Identifier: GPL-2.0 */
/*
 * Socket buffers: declarations for the Rust code of this module.
 *
 * Part of bindings.h; the functions are documented in skb.c. The data of a
 * received packet begins after its UDP header; that of a packet to send begins
 * at its IP header.
 */
#ifndef _KFABRIC_SHIM_SKB_H
#define _KFABRIC_SHIM_SKB_H

#include <linux/skbuff.h>
#include <linux/types.h>

/**
 * struct kfabric_shim_inbox - packets that wait for their QP
 * @list: the packets, and the lock of all of this
 * @bytes: bytes of memory that they use (truesize); at most @room
 * @room: bytes of memory that they may use; at least @reserve
 * @reserve: bytes of memory that they may always use
 * @closed: no packet can be appended
 */
struct kfabric_shim_inbox {
	struct sk_buff_head list;
	u32 bytes;
	u32 room;
	u32 reserve;
	bool closed;
};

/**
 * struct kfabric_shim_inbox_limits - the limits of an inbox
 * @packets: the most packets that may wait
 * @bytes: when waiting packets use this many bytes of memory, no more may wait;
 * the packet that reaches the limit may exceed it
 */
struct kfabric_shim_inbox_limits {
	u32 packets;
	u32 bytes;
};

/* Received packets. */
u32 kfabric_shim_skb_len(const struct sk_buff *skb);
u32 kfabric_shim_skb_truesize(const struct sk_buff *skb);
u32 kfabric_shim_skb_vrf(const struct sk_buff *skb);
bool kfabric_shim_skb_from_this_host(const struct sk_buff *skb);
const u8 *kfabric_shim_skb_ip(const struct sk_buff *skb, u32 *len);
const u8 *kfabric_shim_skb_udp(const struct sk_buff *skb);
const u8 *kfabric_shim_skb_head(const struct sk_buff *skb, u32 len, u8 *buf);
u32 kfabric_shim_skb_crc32(struct sk_buff *skb, u32 offset, u32 len, u32 crc);
bool kfabric_shim_skb_copy(const struct sk_buff *skb, u32 offset, void *to,
			   u32 len);
struct sk_buff *kfabric_shim_skb_next(struct sk_buff *skb);
void kfabric_shim_skb_chain(struct sk_buff *last, struct sk_buff *skb);
void kfabric_shim_skb_consume(struct sk_buff *skb);
void kfabric_shim_skb_drop(struct sk_buff *skb);

/* Inboxes. */
void kfabric_shim_inbox_init(struct kfabric_shim_inbox *inbox, u32 reserve);
int kfabric_shim_inbox_push(struct kfabric_shim_inbox *inbox,
			    struct sk_buff *skb,
			    const struct kfabric_shim_inbox_limits *max,
			    u32 more);
u32 kfabric_shim_inbox_borrowed(const struct kfabric_shim_inbox *inbox);
struct sk_buff *kfabric_shim_inbox_take(struct kfabric_shim_inbox *inbox,
					u32 max, u32 *surplus);
bool kfabric_shim_inbox_is_empty(const struct kfabric_shim_inbox *inbox);
struct sk_buff *kfabric_shim_inbox_close(struct kfabric_shim_inbox *inbox,
					 u32 *surplus);

/* Packets to send. */
struct sk_buff *kfabric_shim_skb_alloc(u32 len, u8 **data);

/* CRC-32, as for the ICRC. */
u32 kfabric_shim_crc32(u32 crc, const void *data, size_t len);

#endif /* _KFABRIC_SHIM_SKB_H */
