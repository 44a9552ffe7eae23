// SPDX-License-Identifier: GPL-2.0
/*
 * verbs-faults-device: a failure injected while a device is added and deleted, by netlink as
 * rdma(8) does. A device that is not added leaves no link.
 *
 *	verbs-faults-device DEVICE GID_INDEX TEST
 *	verbs-faults-device --list
 *
 * verbs-sweep.h says what a test does with a call. The device of the arguments is not used.
 */

#define _GNU_SOURCE
#include <linux/netlink.h>
#include <net/if.h>
#include <rdma/rdma_netlink.h>
#include <sched.h>
#include <sys/socket.h>

#include "../include/uapi/kfabric.h"
#include "verbs-raw.h"
#include "verbs-sweep.h"

/* A device that comes and goes, on the loopback interface of a namespace of its own. */
#define OTHER	"kf-faults"

static int netlink = -1, kfabric = -1;

/* A request to the RDMA subsystem. */
struct request {
	struct nlmsghdr hdr;
	__u8 room[256];
};

static struct request request_for(int command, int how)
{
	return (struct request) {
		.hdr = {
			.nlmsg_len = NLMSG_HDRLEN,
			.nlmsg_type = RDMA_NL_GET_TYPE(RDMA_NL_NLDEV, command),
			.nlmsg_flags = NLM_F_REQUEST | how,
		},
	};
}

static void put_attr(struct request *request, __u16 type, const void *value, __u16 len)
{
	struct nlattr attr = { .nla_len = NLA_HDRLEN + len, .nla_type = type };
	__u8 *at = (__u8 *)request + NLMSG_ALIGN(request->hdr.nlmsg_len);

	expect(at + NLA_ALIGN(attr.nla_len) <= (__u8 *)(request + 1), "a long request");
	memcpy(at, &attr, sizeof(attr));
	memcpy(at + NLA_HDRLEN, value, len);
	request->hdr.nlmsg_len = at + NLA_ALIGN(attr.nla_len) - (__u8 *)request;
}

static void put_name(struct request *request, __u16 type, const char *name)
{
	put_attr(request, type, name, strlen(name) + 1);
}

/* The attribute of a message, or NULL. */
static const void *attr_of(const struct nlmsghdr *hdr, __u16 type)
{
	const __u8 *at = (const __u8 *)hdr + NLMSG_HDRLEN;
	const __u8 *end = (const __u8 *)hdr + hdr->nlmsg_len;
	struct nlattr attr;

	for (; at + NLA_HDRLEN <= end; at += NLA_ALIGN(attr.nla_len)) {
		memcpy(&attr, at, sizeof(attr));
		expect(attr.nla_len >= NLA_HDRLEN, "a broken answer");
		if (attr.nla_type == type)
			return at + NLA_HDRLEN;
	}
	return NULL;
}

/* The index of that device, or -1 if there is none. No fault is injected. */
static int other_index(void)
{
	struct request request = request_for(RDMA_NLDEV_CMD_GET, NLM_F_DUMP);
	static __u8 answer[32768] __attribute__((aligned(8)));
	int index = -1, ended = 0;
	const struct nlmsghdr *hdr;
	const void *name, *number;
	ssize_t left;

	expect(send(netlink, &request, request.hdr.nlmsg_len, 0) > 0, "send: %s", strerror(errno));
	while (!ended) {
		left = recv(netlink, answer, sizeof(answer), 0);
		expect(left > 0, "recv: %s", strerror(errno));
		for (hdr = (void *)answer; NLMSG_OK(hdr, left); hdr = NLMSG_NEXT(hdr, left)) {
			ended |= hdr->nlmsg_type == NLMSG_DONE;
			expect(hdr->nlmsg_type != NLMSG_ERROR, "the devices are not listed");
			if (hdr->nlmsg_type == NLMSG_DONE)
				break;
			name = attr_of(hdr, RDMA_NLDEV_ATTR_DEV_NAME);
			number = attr_of(hdr, RDMA_NLDEV_ATTR_DEV_INDEX);
			if (name && number && !strcmp(name, OTHER))
				memcpy(&index, number, sizeof(index));
		}
	}
	return index;
}

/* Whether the namespace has a link of kfabric. */
static int has_link(void)
{
	struct kfabric_link_get get = { .size = sizeof(get) };

	if (!ioctl(kfabric, KFABRIC_IOC_LINK_GET, &get))
		return 1;
	expect(errno == ENOENT, "LINK_GET: %s", strerror(errno));
	return 0;
}

/*
 * Makes the request, after which there is a device or none (@there). The answer can be lost by a
 * fault; then the request has succeeded, because there is one fault only.
 */
static int ask(const struct request *request, int there)
{
	struct {
		struct nlmsghdr hdr;
		struct nlmsgerr err;
		__u8 room[256];
	} answer;

	if (send(netlink, request, request->hdr.nlmsg_len, 0) < 0)
		return errno;
	if (recv(netlink, &answer, sizeof(answer), 0) >= (ssize_t)NLMSG_LENGTH(sizeof(answer.err)))
		return -answer.err.error;
	expect(met_now() && (other_index() >= 0) == there, "no answer: %s", strerror(errno));
	return 0;
}

static int add_device(void)
{
	struct request request = request_for(RDMA_NLDEV_CMD_NEWLINK, NLM_F_ACK);
	int ret;

	put_name(&request, RDMA_NLDEV_ATTR_DEV_NAME, OTHER);
	put_name(&request, RDMA_NLDEV_ATTR_LINK_TYPE, "kfabric");
	put_name(&request, RDMA_NLDEV_ATTR_NDEV_NAME, "lo");
	ret = ask(&request, 1);
	/* The fault has occurred, so it is not injected here. */
	expect(!ret || (other_index() < 0 && !has_link()),
	       "a device that is not added (%s) leaves %s", strerror(ret),
	       has_link() ? "a link" : "a device");
	return ret;
}

static int index_of_device;

static int delete_device(void)
{
	struct request request = request_for(RDMA_NLDEV_CMD_DELLINK, NLM_F_ACK);

	put_attr(&request, RDMA_NLDEV_ATTR_DEV_INDEX, &index_of_device, sizeof(index_of_device));
	return ask(&request, 0);
}

static void ready_device(void)
{
	must(add_device(), 0, "NEWLINK");
	index_of_device = other_index();
	expect(index_of_device >= 0 && has_link(), "no device or no link");
}

static void no_device(void)
{
	expect(other_index() < 0, "a deleted device is there");
	expect(!has_link(), "the link of a deleted device is there");
}

static void undo_device(void)
{
	index_of_device = other_index();
	expect(index_of_device >= 0 && has_link(), "no device or no link");
	must(delete_device(), 0, "DELLINK");
	no_device();
}

static void devices(void)
{
	struct ifreq lo = { .ifr_name = "lo", .ifr_flags = IFF_UP };
	int any;

	expect(!unshare(CLONE_NEWNET), "unshare: %s", strerror(errno));
	any = socket(AF_INET, SOCK_DGRAM, 0);
	expect(any >= 0 && !ioctl(any, SIOCSIFFLAGS, &lo), "lo: %s", strerror(errno));
	close(any);
	kfabric = open("/dev/kfabric", O_RDWR);
	netlink = socket(AF_NETLINK, SOCK_RAW, NETLINK_RDMA);
	expect(kfabric >= 0 && netlink >= 0, "no /dev/kfabric or netlink: %s", strerror(errno));
	no_device();
	/*
	 * A request takes seconds under KASAN, and most of its thousands of allocations are those
	 * of the RDMA subsystem. So only some of them fail.
	 */
	sweep({ "a device is added", no_device, add_device, undo_device, 0, 20 },
	      { "a device is deleted", ready_device, delete_device, no_device, 1, 8 });
}

static const struct test tests[] = {
	TEST(devices),
};

int main(int argc, char **argv)
{
	return run_test(argc, argv, tests, sizeof(tests) / sizeof(tests[0]));
}
