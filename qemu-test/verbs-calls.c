// SPDX-License-Identifier: GPL-2.0
/*
 * verbs-calls: what the pages of libibverbs require of calls: creation, queries, limits, error
 * numbers. Each test names its page.
 */

#include <ifaddrs.h>
#include <net/if.h>
#include <netinet/in.h>
#include <rdma/ib_user_verbs.h>

#include "verbs-ends.h"

/* ibv_create_qp(3), ibv_query_qp(3): the query returns the attributes of the creation. */
static void query_init(void)
{
	struct ibv_qp_init_attr init, made = usual(IBV_QPT_RC);
	struct ibv_qp_attr attr;

	make_end(&a, IBV_QPT_RC, 0);
	expect(!ibv_query_qp(a.qp, &attr, IBV_QP_STATE, &init), "query_qp");
	expect(attr.qp_state == IBV_QPS_RESET, "a new QP is in RESET");
	expect(init.qp_type == IBV_QPT_RC && init.send_cq == a.sends &&
	       init.recv_cq == a.receives && !init.srq, "CQs, type");
	expect(init.cap.max_send_wr >= WRS && init.cap.max_recv_wr >= WRS &&
	       init.cap.max_recv_sge >= SGES, "capacities");
	expect(!init.sq_sig_all, "sq_sig_all was 0");
	made.sq_sig_all = 1;
	other_qp(&a, made);
	expect(!ibv_query_qp(a.qp, &attr, IBV_QP_STATE, &init), "query_qp");
	expect(init.sq_sig_all == 1, "sq_sig_all was 1");
}

/* ibv_create_qp(3): with an SRQ, max_recv_wr and max_recv_sge are ignored. */
static void srq_ignores_receives(void)
{
	struct ibv_qp_init_attr init = usual(IBV_QPT_RC);

	with_srq = 1;
	make_end(&a, IBV_QPT_RC, 0);
	init.srq = a.srq;
	init.cap.max_recv_wr = 1u << 30;
	init.cap.max_recv_sge = 1000;
	other_qp(&a, init);
}

static int qp_errno(enum ibv_qp_type type, __u32 wr, __u32 sges, __u32 bytes)
{
	struct ibv_qp_init_attr init = usual(type);
	struct ibv_qp *qp;

	init.send_cq = a.sends;
	init.recv_cq = a.receives;
	init.cap.max_send_wr = wr;
	init.cap.max_send_sge = sges;
	init.cap.max_inline_data = bytes;
	errno = 0;
	qp = ibv_create_qp(a.pd, &init);
	if (!qp)
		return errno;
	expect(init.cap.max_send_wr >= wr && init.cap.max_send_sge >= sges &&
	       init.cap.max_inline_data >= bytes, "less than was asked for");
	ibv_destroy_qp(qp);
	return 0;
}

/* A QP with more than the device has, or of a type that it does not have, is refused. */
static void bad_create(void)
{
	struct ibv_device_attr dev;

	make_end(&a, IBV_QPT_RC, 0);
	expect(!ibv_query_device(device, &dev), "query_device");
	expect(qp_errno(IBV_QPT_UC, 1, 1, 0) == EOPNOTSUPP, "UC: %s", strerror(errno));
	expect(qp_errno(IBV_QPT_RAW_PACKET, 1, 1, 0) == EOPNOTSUPP, "raw: %s", strerror(errno));

	expect(qp_errno(IBV_QPT_DRIVER, 1, 1, 0) == EOPNOTSUPP, "a driver's type: %s",
	       strerror(errno));
	expect(!qp_errno(IBV_QPT_RC, dev.max_qp_wr, 1, 0), "max_qp_wr: %s", strerror(errno));
	expect(!qp_errno(IBV_QPT_RC, 1, dev.max_sge, 0), "max_sge: %s", strerror(errno));
	expect(qp_errno(IBV_QPT_RC, dev.max_qp_wr + 1, 1, 0) == EINVAL, "above max_qp_wr");
	expect(qp_errno(IBV_QPT_RC, 1, dev.max_sge + 1, 0) == EINVAL, "above max_sge");
	expect(qp_errno(IBV_QPT_RC, 1, 1, 1u << 20) == EINVAL, "1 MiB of inline data");
}

/* An XRC QP, which has no CQ for receives, is refused: the device does not have the type. */
static void xrc(void)
{
	make_end(&a, IBV_QPT_RC, 0);
	expect(qp_errno(IBV_QPT_XRC_SEND, 1, 1, 0) == EOPNOTSUPP, "XRC: %s", strerror(errno));
}

/* ibv_query_device(3), ibv_query_port(3). */
static void device_and_port(void)
{
	struct ibv_device_attr dev;
	struct ibv_port_attr port;
	__be16 pkey;

	expect(!ibv_query_device(device, &dev), "query_device");
	expect(dev.phys_port_cnt == 1 && dev.max_qp > 0 && dev.max_qp_wr >= 8192 &&
	       dev.max_sge >= 16 && dev.max_sge_rd > 0 && dev.max_cq > 0 && dev.max_cqe >= 65536 &&
	       dev.max_mr > 0 && dev.max_pd > 0 && dev.max_ah > 0, "counts");
	expect(dev.max_qp_rd_atom >= 1 && dev.max_qp_init_rd_atom >= 1 &&
	       dev.max_res_rd_atom >= dev.max_qp_rd_atom, "READs");
	expect(dev.max_srq > 0 && dev.max_srq_wr > 0 && dev.max_srq_sge > 0, "SRQs");
	expect(dev.device_cap_flags & IBV_DEVICE_SRQ_RESIZE, "SRQs can be resized");
	expect(dev.device_cap_flags & IBV_DEVICE_RC_RNR_NAK_GEN, "RNR NAKs");
	expect(dev.atomic_cap != IBV_ATOMIC_NONE && dev.max_pkeys == 1, "atomics, partitions");
	expect(dev.max_mr_size >= 1ull << 32 && dev.page_size_cap & 4096, "regions");
	expect(dev.node_guid && dev.sys_image_guid &&
	       dev.device_cap_flags & IBV_DEVICE_SYS_IMAGE_GUID, "GUIDs");
	expect(dev.device_cap_flags & IBV_DEVICE_CURR_QP_STATE_MOD, "IBV_QP_CUR_STATE");
	expect(dev.local_ca_ack_delay, "the time to an acknowledgment");
	expect(!dev.max_mcast_grp && !dev.max_mw && !dev.max_raw_ethy_qp, "what there is not");
	expect(!(dev.device_cap_flags & IBV_DEVICE_BAD_QKEY_CNTR), "wrong Q keys are counted");
	expect(!ibv_query_port(device, 1, &port), "query_port");
	expect(port.state == IBV_PORT_ACTIVE && port.phys_state == 5 &&
	       port.link_layer == IBV_LINK_LAYER_ETHERNET, "state");
	expect(port.flags & IBV_QPF_GRH_REQUIRED, "addresses need a GRH");
	expect(port.port_cap_flags & IBV_PORT_IP_BASED_GIDS, "GIDs are IP addresses");
	expect(port.max_mtu >= port.active_mtu && port.active_mtu == IBV_MTU_1024, "MTU");
	expect(port.gid_tbl_len > gid_index && port.pkey_tbl_len == 1, "tables");
	expect(port.max_msg_sz >= 1u << 30 && port.active_width && port.active_speed, "sizes");
	expect(ibv_query_port(device, 0, &port) && ibv_query_port(device, 2, &port), "other ports");
	expect(!ibv_query_pkey(device, 1, 0, &pkey) && be16toh(pkey) == 0xffff, "default key");
	expect(ibv_query_pkey(device, 1, 1, &pkey) == -1, "key 1");
	/* ibv_get_pkey_index(3). */
	expect(!ibv_get_pkey_index(device, 1, htobe16(0xffff)), "the index of the default key");
	expect(ibv_get_pkey_index(device, 1, htobe16(0x8001)) == -1, "the index of another key");
}

/* ibv_query_device_ex(3): what ibv_query_device(3) returns, and none of the further functions. */
static void extended_attributes(void)
{
	struct ibv_query_device_ex_input input = { .comp_mask = 0 };
	struct ibv_device_attr_ex ex;
	struct ibv_device_attr dev;
	int ret;

	memset(&ex, 0xff, sizeof(ex));
	expect(!ibv_query_device(device, &dev), "query_device");
	ret = ibv_query_device_ex(device, &input, &ex);
	expect(!ret, "query_device_ex: %s", strerror(ret));
	expect(ex.orig_attr.max_qp == dev.max_qp && ex.orig_attr.max_cqe == dev.max_cqe &&
	       ex.orig_attr.max_mr_size == dev.max_mr_size &&
	       ex.orig_attr.node_guid == dev.node_guid &&
	       ex.orig_attr.device_cap_flags == dev.device_cap_flags, "other attributes");
	expect(ex.phys_port_cnt_ex == 1, "%u ports", ex.phys_port_cnt_ex);
	expect(!ex.odp_caps.general_caps && !ex.xrc_odp_caps, "on-demand paging");
	expect(!ex.completion_timestamp_mask && !ex.hca_core_clock, "timestamps");
	expect(!ex.tso_caps.max_tso && !ex.rss_caps.supported_qpts && !ex.max_wq_type_rq &&
	       !ex.raw_packet_caps && !ex.packet_pacing_caps.qp_rate_limit_max, "raw packets");
	expect(!ex.tm_caps.max_num_tags && !ex.max_dm_size, "tags, device memory");
	expect(!ex.cq_mod_caps.max_cq_count && !ex.cq_mod_caps.max_cq_period, "moderation");
	input.comp_mask = 1;
	ret = ibv_query_device_ex(device, &input, &ex);
	expect(ret == EINVAL, "an unknown input: %s", strerror(ret));
}

/* The index of the interface that has the address of this GID, which is one of IPv4. */
static unsigned int interface_of(const union ibv_gid *gid)
{
	struct ifaddrs *list, *entry;
	unsigned int index = 0;

	expect(!getifaddrs(&list), "getifaddrs: %s", strerror(errno));
	for (entry = list; entry; entry = entry->ifa_next) {
		struct sockaddr_in *address = (struct sockaddr_in *)entry->ifa_addr;

		if (address && address->sin_family == AF_INET &&
		    !memcmp(&address->sin_addr, gid->raw + 12, 4))
			index = if_nametoindex(entry->ifa_name);
	}
	freeifaddrs(list);
	expect(index, "no interface has the address");
	return index;
}

/* An index of the table at which there is no GID. */
static int index_without_gid(void)
{
	const union ibv_gid none = { .raw = { 0 } };
	union ibv_gid gid;
	int i;

	for (i = 0; !ibv_query_gid(device, 1, i, &gid); i++)
		if (!memcmp(&gid, &none, sizeof(gid)))
			return i;
	errx(1, "the table is full");
}

/* ibv_query_gid_ex(3), ibv_query_gid_table(3): each GID has its place, type and interface. */
static void gid_entries(void)
{
	const unsigned int interface = interface_of(&own_gid);
	const union ibv_gid none = { .raw = { 0 } };
	struct ibv_gid_entry entry, table[256];
	struct ibv_port_attr port;
	union ibv_gid gid;
	int i, ret, count = 0;

	expect(!ibv_query_port(device, 1, &port) && port.gid_tbl_len <= 256, "query_port");
	for (i = 0; i < port.gid_tbl_len; i++) {
		expect(!ibv_query_gid(device, 1, i, &gid), "query_gid %d", i);
		ret = ibv_query_gid_ex(device, 1, i, &entry, 0);
		if (!memcmp(&gid, &none, sizeof(gid))) {
			expect(ret == ENODATA, "%d without a GID: %s", i, strerror(ret));
			continue;
		}
		expect(!ret, "query_gid_ex %d: %s", i, strerror(ret));
		expect(!memcmp(&entry.gid, &gid, sizeof(gid)), "another GID %d", i);
		expect(entry.gid_index == (__u32)i && entry.port_num == 1, "its place");
		expect(entry.gid_type == IBV_GID_TYPE_ROCE_V2, "type %u", entry.gid_type);
		expect(entry.ndev_ifindex == interface, "interface %u, not %u", entry.ndev_ifindex,
		       interface);
		count++;
	}
	ret = ibv_query_gid_table(device, table, 256, 0);
	expect(count && ret == count, "%d entries of %d", ret, count);
	while (ret--) {
		expect(!ibv_query_gid_ex(device, 1, table[ret].gid_index, &entry, 0),
		       "query_gid_ex");
		expect(!memcmp(&entry, &table[ret], sizeof(entry)), "entry %d of the table", ret);
	}
	ret = ibv_query_gid_ex(device, 1, index_without_gid(), &entry, 0);
	expect(ret == ENODATA, "an index without a GID: %s", strerror(ret));
	ret = ibv_query_gid_ex(device, 2, 0, &entry, 0);
	expect(ret == EINVAL, "port 2: %s", strerror(ret));
	ret = ibv_query_gid_ex(device, 1, port.gid_tbl_len, &entry, 0);
	expect(ret == EINVAL, "past the table: %s", strerror(ret));
	ret = ibv_query_gid_ex(device, 1, 0, &entry, 1);
	expect(ret == EINVAL, "a flag: %s", strerror(ret));
}

/* A list of posts ends at the first bad one: those before it are posted. */
static void bad_middle(void)
{
	struct ibv_sge one, many[SGES + 1];
	struct ibv_send_wr sends[3], *bad = NULL;
	struct ibv_recv_wr receives[3], *bad_receive = NULL;
	int i;

	pair(IBV_QPT_RC);
	one = sge(&a, 0, 8);
	for (i = 0; i <= SGES; i++)
		many[i] = one;
	for (i = 0; i < 3; i++) {
		sends[i] = wr(i, IBV_WR_RDMA_WRITE, &one, 1);
		remote(&sends[i], &b, 0);
		sends[i].next = i < 2 ? &sends[i + 1] : NULL;
		receives[i] = (struct ibv_recv_wr) {
			.wr_id = i, .next = i < 2 ? &receives[i + 1] : NULL,
			.sg_list = &one, .num_sge = 1,
		};
	}
	sends[1].sg_list = many;
	sends[1].num_sge = SGES + 1;
	receives[1].sg_list = many;
	receives[1].num_sge = SGES + 1;
	expect(ibv_post_send(a.qp, sends, &bad) == EINVAL && bad == &sends[1], "bad_wr of sends");
	entry(a.sends, 0, IBV_WC_SUCCESS);
	no_entry(a.sends);
	expect(ibv_post_recv(a.qp, receives, &bad_receive) == EINVAL && bad_receive == &receives[1],
	       "bad_wr of receives");
	expect(!modify(&a, IBV_QPS_ERR), "ERR");
	entry(a.receives, 0, IBV_WC_WR_FLUSH_ERR);
	no_entry(a.receives);
}

/* ibv_reg_mr(3). */
static void regions(void)
{
	struct ibv_mr *mr;

	make_end(&a, IBV_QPT_RC, 0);
	errno = 0;
	mr = ibv_reg_mr(a.pd, a.memory, 4096, IBV_ACCESS_REMOTE_WRITE);
	expect(!mr && errno == EINVAL, "REMOTE_WRITE without LOCAL_WRITE: %d", errno);
	mr = ibv_reg_mr(a.pd, a.memory, 4096, IBV_ACCESS_REMOTE_ATOMIC);
	expect(!mr && errno == EINVAL, "REMOTE_ATOMIC without LOCAL_WRITE: %d", errno);
	mr = ibv_reg_mr(a.pd, (void *)4096, 4096, IBV_ACCESS_LOCAL_WRITE);
	expect(!mr && errno == EFAULT, "memory that there is not: %d", errno);
	mr = ibv_reg_mr(a.pd, (void *)"constant", 8, IBV_ACCESS_LOCAL_WRITE);
	expect(!mr && errno == EFAULT, "constant memory to write: %d", errno);
	mr = ibv_reg_mr(a.pd, (void *)"constant", 8, IBV_ACCESS_REMOTE_READ);
	expect(mr && !ibv_dereg_mr(mr), "constant memory to read: %d", errno);
	mr = ibv_reg_mr(a.pd, a.memory, 0, IBV_ACCESS_LOCAL_WRITE);
	expect(!mr && errno == EINVAL, "no bytes: %d", errno);
	mr = ibv_reg_mr(a.pd, a.memory + 1, 3, ACCESS | IBV_ACCESS_RELAXED_ORDERING);
	expect(mr && mr->length == 3 && mr->addr == a.memory + 1 && !ibv_dereg_mr(mr),
	       "three bytes, and an optional right: %d", errno);
}

/* ibv_create_cq(3), ibv_resize_cq(3). */
static void cq_sizes(void)
{
	struct ibv_device_attr dev;
	struct ibv_sge one;
	struct ibv_send_wr send;
	struct ibv_wc wc[8];
	struct ibv_cq *cq;
	int i, ret;

	expect(!ibv_query_device(device, &dev), "query_device");
	errno = 0;
	expect(!ibv_create_cq(device, 0, NULL, NULL, 0) && errno == EINVAL, "no entries");
	expect(!ibv_create_cq(device, dev.max_cqe + 1, NULL, NULL, 0) && errno == EINVAL,
	       "too many");
	expect(!ibv_create_cq(device, 1, NULL, NULL, device->num_comp_vectors) && errno == EINVAL,
	       "a vector that there is not");
	expect(!ibv_create_cq(device, 1, NULL, NULL, -1) && errno == EINVAL, "vector -1");
	expect(!ibv_create_cq(device, -1, NULL, NULL, 0) && errno == EINVAL, "-1 entries");
	cq = ibv_create_cq(device, dev.max_cqe, &dev, NULL, 0);
	expect(cq && cq->cqe >= dev.max_cqe && cq->cq_context == &dev && !ibv_destroy_cq(cq),
	       "as many as there may be");
	pair(IBV_QPT_RC);
	one = sge(&a, 0, 64);
	send = wr(1, IBV_WR_SEND, &one, 1);
	for (i = 0; i < 6; i++) {
		receive(&b, i, 0, 64);
		must_post(&a, &send);
		entry(a.sends, 1, IBV_WC_SUCCESS);
	}
	ret = ibv_resize_cq(b.receives, 5);
	expect(ret == EINVAL, "smaller than what waits: %d", ret);
	ret = ibv_resize_cq(b.receives, dev.max_cqe + 1);
	expect(ret == EINVAL, "larger than there may be: %d", ret);
	expect(b.receives->cqe >= 2 * WRS, "a resize that failed changed it");
	ret = ibv_resize_cq(b.receives, 6);
	expect(!ret && b.receives->cqe >= 6, "resize_cq: %d", ret);
	expect(ibv_poll_cq(b.receives, 2, wc) == 2 && !wc[0].wr_id && wc[1].wr_id == 1, "two");
	ret = ibv_resize_cq(b.receives, 1000);
	expect(!ret && b.receives->cqe >= 1000, "resize_cq: %d", ret);
	expect(ibv_poll_cq(b.receives, 8, wc) == 4 && wc[3].wr_id == 5, "the other four");
	expect(ibv_poll_cq(b.receives, 8, wc) == 0, "no more");
}

/* ibv_create_srq(3), ibv_modify_srq(3), ibv_post_srq_recv(3). */
static void srq_sizes(void)
{
	struct ibv_srq_init_attr init = { .attr = { .max_wr = 4, .max_sge = 2, .srq_limit = 999 } };
	struct ibv_recv_wr list[3], *bad = NULL;
	struct ibv_sge sges[3];
	struct ibv_srq_attr attr;
	struct ibv_device_attr dev;
	struct ibv_srq *srq;
	int i, ret = 0;

	expect(!ibv_query_device(device, &dev), "query_device");
	make_end(&a, IBV_QPT_RC, 0);
	srq = ibv_create_srq(a.pd, &init);
	expect(srq && init.attr.max_wr >= 4 && init.attr.max_sge >= 2, "create_srq");
	expect(!ibv_query_srq(srq, &attr) && attr.max_wr >= 4 && attr.max_sge >= 2 &&
	       !attr.srq_limit, "query_srq: the limit has no meaning when it is created");
	init.attr.max_wr = dev.max_srq_wr + 1;
	errno = 0;
	expect(!ibv_create_srq(a.pd, &init) && errno == EINVAL, "too many receives");
	init.attr = (struct ibv_srq_attr) { .max_wr = 4, .max_sge = dev.max_srq_sge + 1 };
	expect(!ibv_create_srq(a.pd, &init) && errno == EINVAL, "too many SGEs");
	for (i = 0; i < 3; i++)
		sges[i] = sge(&a, 0, 64);
	for (i = 0; i < 3; i++)
		list[i] = (struct ibv_recv_wr) {
			.wr_id = i, .next = i < 2 ? &list[i + 1] : NULL,
			.sg_list = sges, .num_sge = i == 1 ? 3 : 1,
		};
	expect(ibv_post_srq_recv(srq, list, &bad) == EINVAL && bad == &list[1], "bad_wr");
	list[0].next = NULL;
	for (i = 1; i < 1000 && !ret; i++)
		ret = ibv_post_srq_recv(srq, list, &bad);
	expect(ret == ENOMEM && bad == list && i > 4, "full: %d after %d", ret, i);
	attr.max_wr = 2;
	ret = ibv_modify_srq(srq, &attr, IBV_SRQ_MAX_WR);
	expect(ret == EINVAL, "smaller than what waits: %d", ret);
	attr.max_wr = 64;
	expect(!ibv_modify_srq(srq, &attr, IBV_SRQ_MAX_WR), "larger");
	expect(!ibv_query_srq(srq, &attr) && attr.max_wr >= 64, "the size");
	expect(!ibv_post_srq_recv(srq, list, &bad), "room");
	attr.srq_limit = attr.max_wr + 1;
	expect(ibv_modify_srq(srq, &attr, IBV_SRQ_LIMIT) == EINVAL, "a limit above the size");
	attr = (struct ibv_srq_attr) { .max_wr = 128, .srq_limit = 100 };
	expect(!ibv_modify_srq(srq, &attr, IBV_SRQ_LIMIT | IBV_SRQ_MAX_WR), "both");
	attr = (struct ibv_srq_attr) { .max_wr = 1, .srq_limit = 1 };
	ret = ibv_modify_srq(srq, &attr, 0);
	expect(!ret, "an empty mask: %s", strerror(ret));
	expect(!ibv_query_srq(srq, &attr) && attr.max_wr >= 128 && attr.srq_limit == 100, "both");
	expect(!ibv_destroy_srq(srq), "destroy_srq");
}

/* The address is refused, with this error. */
static void no_ah(struct ibv_pd *pd, struct ibv_ah_attr attr, int error, const char *what)
{
	errno = 0;
	expect(!ibv_create_ah(pd, &attr) && errno == error, "%s: %s", what, strerror(errno));
}

/* ibv_create_ah(3): an invalid address is refused, and errno is the reason. */
static void bad_ah(void)
{
	struct ibv_ah_attr good = {
		.is_global = 1, .port_num = 1,
		.grh = { .dgid = own_gid, .sgid_index = gid_index, .hop_limit = 64 },
	}, bad = good;
	struct ibv_pd *pd = ibv_alloc_pd(device);
	struct ibv_port_attr port;
	struct ibv_ah *ah;

	expect(pd && !ibv_query_port(device, 1, &port), "alloc_pd, query_port");
	bad.is_global = 0;
	no_ah(pd, bad, EINVAL, "no GRH");
	bad = good;
	bad.port_num = 0;
	no_ah(pd, bad, EINVAL, "port 0");
	bad.port_num = 2;
	no_ah(pd, bad, EINVAL, "port 2");
	bad = good;
	bad.grh.sgid_index = index_without_gid();
	no_ah(pd, bad, ENODATA, "an index without a GID");
	/* The index has 8 bits, and the table may have as many GIDs. */
	bad.grh.sgid_index = 255;
	no_ah(pd, bad, port.gid_tbl_len > 255 ? ENODATA : EINVAL, "the highest index");
	/* 203.0.113.1, to which the host has no route: nobody on the interface's network has it. */
	bad = good;
	bad.grh.dgid = (union ibv_gid) {
		.raw = { [10] = 0xff, [11] = 0xff, [12] = 203, 0, 113, 1 },
	};
	no_ah(pd, bad, ETIMEDOUT, "no route");

	ah = ibv_create_ah(pd, &good);
	expect(ah && ibv_dealloc_pd(pd) == EBUSY, "create_ah");
	expect(!ibv_destroy_ah(ah) && !ibv_dealloc_pd(pd), "a refused address handle keeps the PD");
}

/* A post of an operation that the device does not have fails, and has no effect. */
static void no_such_operation(void)
{
	static const enum ibv_wr_opcode opcodes[] = {
		IBV_WR_LOCAL_INV, IBV_WR_BIND_MW, IBV_WR_TSO, IBV_WR_FLUSH, IBV_WR_ATOMIC_WRITE,
	};
	struct ibv_sge one;
	struct ibv_send_wr send;
	unsigned int i;

	pair(IBV_QPT_RC);
	one = sge(&a, 0, 8);
	for (i = 0; i < sizeof(opcodes) / sizeof(opcodes[0]); i++) {
		send = wr(1, opcodes[i], &one, 1);
		remote(&send, &b, 0);
		expect(post(&a, &send) == EINVAL, "opcode %d", opcodes[i]);
	}
	send = wr(2, IBV_WR_RDMA_WRITE, &one, 1);
	remote(&send, &b, 0);
	must_post(&a, &send);
	entry(a.sends, 2, IBV_WC_SUCCESS);
}

/* Volume 1, 10.2.2.3: an address handle of another PD is an error. */
static void ah_of_another_pd(void)
{
	struct ibv_ah_attr attr = {
		.is_global = 1, .port_num = 1,
		.grh = { .dgid = own_gid, .sgid_index = gid_index, .hop_limit = 64 },
	};
	struct ibv_sge one;
	struct ibv_send_wr send;

	pair(IBV_QPT_UD);
	receive(&b, 1, 0, 200);
	one = sge(&a, 0, 64);
	send = datagram(&one, ibv_create_ah(b.pd, &attr));
	expect(send.wr.ud.ah, "create_ah");
	expect(post(&a, &send) == EINVAL, "posted with an address handle of another PD");
	no_entry(b.receives);
}

/* The result of a command by write(2), which a library need not pass on to the kernel. */
static int command(__u32 number, size_t size)
{
	struct {
		struct ib_uverbs_cmd_hdr hdr;
		__u64 body[32];
	} request = { .hdr = { .command = number } };

	size = sizeof(request.hdr) + (size + 7) / 8 * 8;
	expect(size <= sizeof(request), "a command of %zu bytes", size);
	request.hdr.in_words = size / 4;
	return write(device->cmd_fd, &request, size) < 0 ? errno : 0;
}

static int ah_errno(const union ibv_gid *to)
{
	struct ibv_ah_attr attr = {
		.is_global = 1, .port_num = 1,
		.grh = { .dgid = *to, .sgid_index = gid_index, .hop_limit = 64 },
	};

	errno = 0;
	return ibv_create_ah(a.pd, &attr) ? 0 : errno;
}

/* Functions of verbs that the device does not have. */
static void left_out(void)
{
	const union ibv_gid groups[] = {
		{ .raw = { [10] = 0xff, [11] = 0xff, [12] = 239, 1, 1, 1 } },
		{ .raw = { 0xff, 0x0e, [15] = 1 } },
	};
	struct ibv_qp_attr attr = {
		.path_mig_state = IBV_MIG_REARM,
		.alt_port_num = 1,
		.alt_ah_attr = {
			.is_global = 1, .port_num = 1,
			.grh = { .dgid = own_gid, .sgid_index = gid_index, .hop_limit = 64 },
		},
	};
	struct ibv_modify_cq_attr moderation = {
		.attr_mask = IBV_CQ_ATTR_MODERATE,
		.moderate = { .cq_count = 4, .cq_period = 10 },
	};
	struct ibv_srq_init_attr_ex tags = {
		.attr = { .max_wr = WRS, .max_sge = 1 },
		.comp_mask = IBV_SRQ_INIT_ATTR_TYPE | IBV_SRQ_INIT_ATTR_PD |
			IBV_SRQ_INIT_ATTR_CQ | IBV_SRQ_INIT_ATTR_TM,
		.srq_type = IBV_SRQT_TM,
		.tm_cap = { .max_num_tags = 8, .max_ops = 8 },
	};
	struct ibv_ece ece = { .vendor_id = 1 };
	unsigned int i;
	int ret;

	/* Calls that the kernel refuses because the device has no function for them. */
	expect(command(IB_USER_VERBS_CMD_ALLOC_MW, sizeof(struct ib_uverbs_alloc_mw)) ==
	       EOPNOTSUPP, "ALLOC_MW: %s", strerror(errno));
	expect(command(IB_USER_VERBS_CMD_REREG_MR, sizeof(struct ib_uverbs_rereg_mr)) ==
	       EOPNOTSUPP, "REREG_MR: %s", strerror(errno));
	expect(command(IB_USER_VERBS_CMD_ATTACH_MCAST, sizeof(struct ib_uverbs_attach_mcast)) ==
	       EOPNOTSUPP, "ATTACH_MCAST: %s", strerror(errno));
	expect(command(IB_USER_VERBS_CMD_OPEN_XRCD, sizeof(struct ib_uverbs_open_xrcd)) ==
	       EOPNOTSUPP, "OPEN_XRCD: %s", strerror(errno));

	/* The same by their functions. */
	make_end(&a, IBV_QPT_UD, 0);
	errno = 0;
	expect(!ibv_alloc_mw(a.pd, IBV_MW_TYPE_1) && errno == EOPNOTSUPP, "alloc_mw: %s",
	       strerror(errno));
	errno = 0;
	ret = ibv_rereg_mr(a.mr, IBV_REREG_MR_CHANGE_ACCESS, NULL, NULL, 0, ACCESS);
	expect(ret && errno == EOPNOTSUPP, "rereg_mr: %d, %s", ret, strerror(errno));
	/* This error says that the region is as it was. */
	ret = ibv_rereg_mr(a.mr, 1 << 20, NULL, NULL, 0, ACCESS);
	expect(ret == IBV_REREG_MR_ERR_INPUT, "rereg_mr: %d", ret);
	errno = 0;
	expect(!ibv_reg_mr(a.pd, a.memory, 4096, IBV_ACCESS_ON_DEMAND) && errno == EOPNOTSUPP,
	       "on-demand paging: %s", strerror(errno));
	ret = ibv_modify_cq(a.receives, &moderation);
	expect(ret == EOPNOTSUPP, "modify_cq: %s", strerror(ret));
	tags.pd = a.pd;
	tags.cq = a.receives;
	errno = 0;
	expect(!ibv_create_srq_ex(device, &tags) && errno == EOPNOTSUPP, "an SRQ with tags: %s",
	       strerror(errno));
	for (i = 0; i < 2; i++) {
		ret = ibv_attach_mcast(a.qp, &groups[i], 0);
		expect(ret == EOPNOTSUPP, "attach_mcast %u: %s", i, strerror(ret));
		ret = ah_errno(&groups[i]);
		expect(ret == EOPNOTSUPP, "an address of group %u: %s", i, strerror(ret));
	}

	/* There are no alternate paths: the RDMA subsystem refuses them over RoCE. */
	pair(IBV_QPT_RC);
	ret = ibv_modify_qp(a.qp, &attr, IBV_QP_ALT_PATH);
	expect(ret == EINVAL, "an alternate path: %s", strerror(ret));
	ret = ibv_modify_qp(a.qp, &attr, IBV_QP_PATH_MIG_STATE);
	expect(ret == EOPNOTSUPP, "path migration: %s", strerror(ret));
	/* Nor is there an enhanced connection establishment. */
	ret = ibv_query_ece(a.qp, &ece);
	expect(ret == EOPNOTSUPP, "query_ece: %s", strerror(ret));
	ret = ibv_set_ece(a.qp, &ece);
	expect(ret == EOPNOTSUPP, "set_ece: %s", strerror(ret));
	is_in(&a, IBV_QPS_RTS);
}

/* A user whose peers refuse too many keys has to wait before the next access. */
static void guessing(void)
{
	struct ibv_sge one;
	struct ibv_send_wr send, message;
	long long until;
	int tries, ret = 0;

	become_user(RLIM_INFINITY);
	make_end(&a, IBV_QPT_RC, 0);
	make_end(&b, IBV_QPT_RC, 0);
	one = sge(&a, 0, 64);
	send = wr(1, IBV_WR_RDMA_WRITE, &one, 1);
	for (tries = 0; tries < 60; tries++) {
		connect_ends(7);
		remote(&send, &b, 0);
		send.wr.rdma.rkey ^= (tries + 1) << 8;
		ret = post(&a, &send);
		if (ret)
			break;
		entry(a.sends, 1, IBV_WC_REM_ACCESS_ERR);
		expect(!modify(&a, IBV_QPS_RESET) && !modify(&b, IBV_QPS_RESET), "RESET");
	}
	expect(ret == EAGAIN && tries > 16, "%s after %d refusals", strerror(ret), tries);
	is_in(&a, IBV_QPS_RTS);
	/* A message accesses no memory by a key of the peer. */
	receive(&b, 2, 0, 64);
	message = wr(2, IBV_WR_SEND, &one, 1);
	must_post(&a, &message);
	entry(a.sends, 2, IBV_WC_SUCCESS);
	entry(b.receives, 2, IBV_WC_SUCCESS);
	/* In the end the right key is accepted. */
	remote(&send, &b, 0);
	for (until = now() + SECONDS * 1000; (ret = post(&a, &send)) == EAGAIN; pause_ms(10))
		expect(now() < until, "still EAGAIN");
	expect(!ret, "post_send: %s", strerror(ret));
	entry(a.sends, 1, IBV_WC_SUCCESS);
}

static const struct test tests[] = {
	TEST(query_init), TEST(srq_ignores_receives), TEST(bad_create), TEST(device_and_port),
	TEST(bad_middle), TEST(regions), TEST(cq_sizes), TEST(bad_ah), TEST(srq_sizes),
	TEST(no_such_operation), TEST(ah_of_another_pd), TEST(xrc), TEST(left_out), TEST(guessing),
	TEST(extended_attributes), TEST(gid_entries),
};

int main(int argc, char **argv)
{
	return run_test(argc, argv, tests, sizeof(tests) / sizeof(tests[0]));
}
