// SPDX-License-Identifier: GPL-2.0
/*
 * message [LINK]: sends a message through /dev/kfabric, in C, with nothing but
 * the header.
 *
 *	cc -Wall message.c -o ~/message && ~/message lo
 *
 * LINK is the name of a link (kfi link show), by default lo. The endpoint sends
 * to itself; a peer elsewhere has another address, and the rest is the same.
 */
#include <err.h>
#include <errno.h>
#include <fcntl.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>

#include <kfabric.h>

/* The meaning of an errno; the C library does not know those above 255. */
static const char *text(int error)
{
	switch (error) {
	case KFI_EOTHER:	return "KFI_EOTHER: unspecified error";
	case KFI_ETOOSMALL:	return "KFI_ETOOSMALL: the buffer is too small";
	case KFI_EOPBADSTATE:	return "KFI_EOPBADSTATE: the state does not allow it";
	case KFI_EAVAIL:	return "KFI_EAVAIL: an error entry must be read first";
	case KFI_EBADFLAGS:	return "KFI_EBADFLAGS: flags that are not supported";
	case KFI_ENOEQ:		return "KFI_ENOEQ: no event queue is bound";
	case KFI_EDOMAIN:	return "KFI_EDOMAIN: objects of different domains";
	case KFI_ENOCQ:		return "KFI_ENOCQ: no completion queue is bound";
	case KFI_ECRC:		return "KFI_ECRC: checksum error";
	case KFI_ETRUNC:	return "KFI_ETRUNC: the message was truncated";
	case KFI_ENOKEY:	return "KFI_ENOKEY: the key is not available";
	case KFI_ENOAV:		return "KFI_ENOAV: no address vector is bound";
	case KFI_EOVERRUN:	return "KFI_EOVERRUN: the queue was overrun";
	default:		return strerror(error);
	}
}

static void call(int fd, unsigned long command, void *argument, const char *what)
{
	if (ioctl(fd, command, argument))
		errx(1, "%s: %s", what, text(errno));
}

static __u64 pointer(const void *at)
{
	return (uintptr_t)at;
}

static void bind_to(int fd, __u32 ep, __u32 object, __u64 flags)
{
	struct kfabric_bind bind = {
		.size = sizeof(bind), .handle = ep, .to = object, .flags = flags,
	};

	call(fd, KFABRIC_IOC_BIND, &bind, "bind");
}

int main(int argc, char **argv)
{
	struct kfabric_fabric_open fabric = { .size = sizeof(fabric) };
	struct kfabric_domain_open domain = { .size = sizeof(domain) };
	struct kfabric_cq_open cq = {
		.size = sizeof(cq), .format = KFI_CQ_FORMAT_MSG, .wait_obj = KFI_WAIT_QUEUE,
	};
	struct kfabric_av_open av = { .size = sizeof(av), .type = KFI_AV_TABLE };
	struct kfabric_ep_open ep = { .size = sizeof(ep), .type = KFI_EP_RDM, .caps = KFI_MSG };
	struct kfabric_ep_enable enable = { .size = sizeof(enable) };
	struct kfabric_ep_name name = { .size = sizeof(name) };
	__u64 peer = KFI_ADDR_NOTAVAIL;
	struct kfabric_av_insert insert = {
		.size = sizeof(insert), .addrs = pointer(&name.addr), .fi_addrs = pointer(&peer),
		.count = 1,
	};
	char message[] = "hello, world", room[64];
	const char *link = argc > 1 ? argv[1] : "lo";
	int received = 0, sent = 0;
	int fd = open(KFABRIC_DEVICE, O_RDWR | O_CLOEXEC);

	if (fd < 0)
		err(1, "%s", KFABRIC_DEVICE);
	if (strlen(link) >= sizeof(domain.link))
		errx(1, "the name of a link has at most %zu characters", sizeof(domain.link) - 1);

	/* The objects, and an endpoint that is bound to them. */
	call(fd, KFABRIC_IOC_FABRIC_OPEN, &fabric, "fabric");
	domain.fabric = fabric.handle;
	memcpy(domain.link, link, strlen(link) + 1);
	call(fd, KFABRIC_IOC_DOMAIN_OPEN, &domain, link);
	cq.domain = domain.handle;
	av.domain = domain.handle;
	ep.domain = domain.handle;
	call(fd, KFABRIC_IOC_CQ_OPEN, &cq, "completion queue");
	call(fd, KFABRIC_IOC_AV_OPEN, &av, "address vector");
	call(fd, KFABRIC_IOC_EP_OPEN, &ep, "endpoint");
	bind_to(fd, ep.handle, cq.handle, KFI_TRANSMIT | KFI_RECV);
	bind_to(fd, ep.handle, av.handle, 0);
	enable.ep = ep.handle;
	name.ep = ep.handle;
	call(fd, KFABRIC_IOC_EP_ENABLE, &enable, "enable the endpoint");

	/* Its own address is that of the peer. */
	call(fd, KFABRIC_IOC_EP_NAME, &name, "address of the endpoint");
	insert.av = av.handle;
	call(fd, KFABRIC_IOC_AV_INSERT, &insert, "insert the peer");

	/* A receive and a send, in one call. */
	struct kfabric_op ops[] = {
		{ .opcode = KFABRIC_OP_RECV, .buf = pointer(room), .len = sizeof(room),
		  .peer = KFI_ADDR_UNSPEC, .context = 1 },
		{ .opcode = KFABRIC_OP_SEND, .buf = pointer(message), .len = sizeof(message),
		  .peer = peer, .context = 2 },
	};
	struct kfabric_post post = {
		.size = sizeof(post), .ep = ep.handle, .ops = pointer(ops), .count = 2,
		.op_size = sizeof(ops[0]),
	};

	call(fd, KFABRIC_IOC_POST, &post, "post");
	/* The call fails only if not even the first operation was accepted. */
	if (post.done < post.count)
		errx(1, "operation %u: %s", post.done, text(post.error));

	while (!received || !sent) {
		struct { __u64 context, flags, len; } entry;
		struct kfabric_cq_read read = {
			.size = sizeof(read), .cq = cq.handle, .buf = pointer(&entry), .count = 1,
			.cond = 1, .deadline = KFABRIC_FOREVER,
		};

		if (ioctl(fd, KFABRIC_IOC_CQ_READ, &read)) {
			struct kfabric_cq_readerr failed = {
				.size = sizeof(failed), .cq = cq.handle,
			};

			if (errno != KFI_EAVAIL)
				errx(1, "read: %s", text(errno));
			call(fd, KFABRIC_IOC_CQ_READERR, &failed, "read the error");
			errx(1, "operation with context %llu: %s",
			     (unsigned long long)failed.op_context, text(failed.err));
		}
		if (entry.context == 1) {
			printf("received %llu bytes: %s\n", (unsigned long long)entry.len, room);
			received = 1;
		} else {
			sent = 1;
		}
	}
	return 0;
}
