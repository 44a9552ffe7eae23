// SPDX-License-Identifier: GPL-2.0
/*
 * Endpoints: opening, binding, enabling, options, default flags, aliases, names,
 * and what keeps them from being closed.
 */

#include "pair.h"

/* Every type that kfi_getinfo() offers can be opened and enabled. */
static void all_entries_can_be_opened(struct kunit *test)
{
	struct kfi_info *entry;
	struct end end;
	struct fixture f;
	int count = 0;

	fixture_open(test, &f);
	for (entry = f.info; entry; entry = entry->next) {
		struct sockaddr_storage addr;
		size_t len = sizeof(addr);

		end_open(test, &f, entry, &end, 0);
		KUNIT_EXPECT_EQ(test, end.ep->fid.fclass, KFI_CLASS_EP);
		KUNIT_EXPECT_PTR_EQ(test, end.ep->fid.context, (void *)&end);
		KUNIT_EXPECT_EQ(test, end.ep->fid.ops->size, sizeof(struct kfi_ops));
		KUNIT_EXPECT_EQ(test, end.ep->ops->size, sizeof(struct kfi_ops_ep));
		KUNIT_EXPECT_EQ(test, end.ep->cm->size, sizeof(struct kfi_ops_cm));
		KUNIT_EXPECT_EQ(test, end.ep->msg->size, sizeof(struct kfi_ops_msg));
		KUNIT_EXPECT_EQ(test, end.ep->tagged->size, sizeof(struct kfi_ops_tagged));
		KUNIT_EXPECT_EQ(test, kfi_getname(&end.ep->fid, &addr, &len),
				-KFI_EOPBADSTATE);
		KUNIT_EXPECT_EQ(test, kfi_enable(end.ep), 0);
		KUNIT_EXPECT_EQ(test, kfi_enable(end.ep), -KFI_EOPBADSTATE);
		KUNIT_EXPECT_EQ(test, kfi_getname(&end.ep->fid, &addr, &len), 0);
		KUNIT_EXPECT_EQ(test, len, entry->src_addrlen);
		KUNIT_EXPECT_EQ(test, kfi_close(&f.domain->fid), -KFI_EBUSY);
		end_close(test, &end);
		count++;
	}
	KUNIT_EXPECT_EQ(test, count, 6);
	fixture_close(test, &f);
}

/* How kfi_endpoint() ends with @info. */
static int try(struct fixture *f, struct kfi_info *info)
{
	struct kfid_ep *ep = NULL;
	int ret = kfi_endpoint(f->domain, info, &ep, NULL);

	if (ret)
		return ep ? -EBADMSG : ret;
	return kfi_close(&ep->fid);
}

static void attributes_are_checked(struct kunit *test)
{
	struct kfid_domain *domain;
	struct kfi_info *info;
	struct fixture f;

	fixture_open(test, &f);
	info = entry_of(test, KFI_EP_RDM);
	KUNIT_EXPECT_EQ(test, try(&f, info), 0);
	KUNIT_EXPECT_EQ(test, try(&f, NULL), -KFI_EINVAL);
	info->ep_attr->type = 77;
	KUNIT_EXPECT_EQ(test, try(&f, info), -KFI_EINVAL);
	info->ep_attr->type = KFI_EP_DGRAM;
	/* Datagrams have no contexts, and no tags. */
	KUNIT_EXPECT_EQ(test, try(&f, info), -KFI_EINVAL);
	info->domain_attr->max_ep_tx_ctx = 0;
	info->domain_attr->max_ep_rx_ctx = 0;
	KUNIT_EXPECT_EQ(test, try(&f, info), -KFI_EOPNOTSUPP);
	info->ep_attr->type = KFI_EP_RDM;
	info->ep_attr->tx_ctx_cnt = 2;
	KUNIT_EXPECT_EQ(test, try(&f, info), -KFI_EINVAL);
	/* A shared context is bound later. */
	info->ep_attr->tx_ctx_cnt = KFI_SHARED_CONTEXT;
	KUNIT_EXPECT_EQ(test, try(&f, info), 0);
	info->ep_attr->tx_ctx_cnt = 0;
	info->tx_attr->size = SIZE_MAX;
	KUNIT_EXPECT_EQ(test, try(&f, info), -KFI_EINVAL);
	info->tx_attr->size = 0;
	info->tx_attr->op_flags = KFI_MULTI_RECV;
	KUNIT_EXPECT_EQ(test, try(&f, info), -KFI_EINVAL);
	info->tx_attr->op_flags = 0;
	/* There are no keys that peers would need. */
	info->ep_attr->auth_key_size = 1;
	KUNIT_EXPECT_EQ(test, try(&f, info), -KFI_EINVAL);
	info->ep_attr->auth_key_size = 0;
	info->domain_attr->auth_key_size = 1;
	KUNIT_EXPECT_EQ(test, kfi_domain(f.fabric, info, &domain, NULL), -KFI_EINVAL);
	info->domain_attr->auth_key_size = 0;
	info->caps |= KFI_MULTICAST;
	KUNIT_EXPECT_NE(test, try(&f, info), 0);
	info->caps &= ~KFI_MULTICAST;
	KUNIT_EXPECT_EQ(test, try(&f, info), 0);
	((struct sockaddr_in *)info->src_addr)->sin_addr.s_addr = htonl(0x0a090807);
	KUNIT_EXPECT_EQ(test, try(&f, info), -KFI_EADDRNOTAVAIL);
	kfi_freeinfo(info);
	fixture_close(test, &f);
}

/* A binding is checked, and uses its object until the endpoint is closed. */
static void bindings_are_checked(struct kunit *test)
{
	struct kfi_info *info;
	struct kfid_cntr *cntr, *alien;
	struct fixture f, other;
	struct kfid_av *av;
	struct kfid_cq *cq;
	struct kfid_ep *ep;

	fixture_open(test, &f);
	fixture_open(test, &other);
	info = entry_of(test, KFI_EP_RDM);
	KUNIT_ASSERT_EQ(test, kfi_endpoint(f.domain, info, &ep, NULL), 0);
	KUNIT_ASSERT_EQ(test, kfi_av_open(f.domain, NULL, &av, NULL), 0);
	KUNIT_ASSERT_EQ(test, kfi_cq_open(f.domain, NULL, &cq, NULL, NULL), 0);
	cntr = open_cntr(test, &f, KFI_WAIT_NONE, NULL, NULL);
	alien = open_cntr(test, &other, KFI_WAIT_NONE, NULL, NULL);

	KUNIT_EXPECT_EQ(test, kfi_ep_bind(ep, NULL, 0), -KFI_EINVAL);
	KUNIT_EXPECT_EQ(test, kfi_ep_bind(ep, &f.domain->fid, 0), -KFI_EINVAL);
	KUNIT_EXPECT_EQ(test, kfi_ep_bind(ep, &av->fid, KFI_RECV), -KFI_EINVAL);
	KUNIT_EXPECT_EQ(test, kfi_ep_bind(ep, &cntr->fid, KFI_FENCE), -KFI_EINVAL);
	KUNIT_EXPECT_EQ(test, kfi_ep_bind(ep, &alien->fid, KFI_SEND), -KFI_EINVAL);
	KUNIT_EXPECT_EQ(test, kfi_ep_bind(ep, &cq->fid, 0), -KFI_EINVAL);
	KUNIT_EXPECT_EQ(test, kfi_ep_bind(ep, &cq->fid, KFI_SELECTIVE_COMPLETION), -KFI_EINVAL);
	KUNIT_EXPECT_EQ(test, kfi_ep_bind(ep, &cq->fid, KFI_RECV | KFI_READ), -KFI_EINVAL);
	KUNIT_EXPECT_EQ(test, kfi_ep_bind(ep, &cq->fid, KFI_RECV), 0);
	KUNIT_EXPECT_EQ(test, kfi_ep_bind(ep, &cq->fid, KFI_TRANSMIT | KFI_RECV), -KFI_EINVAL);
	KUNIT_EXPECT_EQ(test, kfi_enable(ep), -KFI_ENOCQ);
	KUNIT_EXPECT_EQ(test, kfi_ep_bind(ep, &cntr->fid, KFI_SEND | KFI_READ | KFI_WRITE), 0);
	KUNIT_EXPECT_EQ(test, kfi_ep_bind(ep, &cntr->fid, KFI_READ), -KFI_EINVAL);
	/* All kinds, of which some have a counter. */
	KUNIT_EXPECT_EQ(test, kfi_ep_bind(ep, &cntr->fid, 0), -KFI_EINVAL);
	KUNIT_EXPECT_EQ(test, kfi_ep_bind(ep, &cntr->fid,
					  KFI_RECV | KFI_REMOTE_READ | KFI_REMOTE_WRITE), 0);
	KUNIT_EXPECT_EQ(test, kfi_enable(ep), -KFI_ENOAV);
	KUNIT_EXPECT_EQ(test, kfi_ep_bind(ep, &av->fid, 0), 0);
	KUNIT_EXPECT_EQ(test, kfi_ep_bind(ep, &av->fid, 0), -KFI_EINVAL);
	KUNIT_EXPECT_EQ(test, kfi_enable(ep), 0);
	KUNIT_EXPECT_EQ(test, kfi_ep_bind(ep, &av->fid, 0), -KFI_EOPBADSTATE);
	KUNIT_EXPECT_EQ(test, kfi_close(&av->fid), -KFI_EBUSY);
	KUNIT_EXPECT_EQ(test, kfi_close(&cntr->fid), -KFI_EBUSY);
	KUNIT_EXPECT_EQ(test, kfi_close(&cq->fid), -KFI_EBUSY);
	CLOSE(test, &ep->fid, &cq->fid, &av->fid, &cntr->fid, &alien->fid);
	kfi_freeinfo(info);
	fixture_close(test, &other);
	fixture_close(test, &f);
}

static void options_are_kept(struct kunit *test)
{
	const int level = KFI_OPT_ENDPOINT, least = KFI_OPT_MIN_MULTI_RECV;
	const int data = KFI_OPT_CM_DATA_SIZE;
	struct kfid *fid;
	struct fixture f;
	struct end ends[2];
	size_t value = 100, len = 4;

	pair_open(test, &f, KFI_EP_RDM, ends);
	fid = &ends[0].ep->fid;
	KUNIT_EXPECT_EQ(test, kfi_getopt(fid, level, least, &value, &len), -KFI_ETOOSMALL);
	KUNIT_EXPECT_EQ(test, len, sizeof(value));
	KUNIT_EXPECT_EQ(test, value, 100);
	KUNIT_EXPECT_EQ(test, kfi_setopt(fid, level, least, &value, 4), -KFI_ETOOSMALL);
	KUNIT_EXPECT_EQ(test, kfi_setopt(fid, level, least, &value, 0), -KFI_ETOOSMALL);
	KUNIT_EXPECT_EQ(test, kfi_setopt(fid, level, least, &value, 9), -KFI_EINVAL);
	KUNIT_EXPECT_EQ(test, kfi_setopt(fid, level, least, NULL, 8), -KFI_EINVAL);
	KUNIT_EXPECT_EQ(test, kfi_setopt(fid, level, least, &value, 8), 0);
	value = 0;
	KUNIT_EXPECT_EQ(test, kfi_getopt(fid, level, least, &value, &len), 0);
	KUNIT_EXPECT_EQ(test, value, 100);
	KUNIT_EXPECT_EQ(test, kfi_setopt(fid, level, data, &value, 8), -KFI_ENOPROTOOPT);
	KUNIT_EXPECT_EQ(test, kfi_getopt(fid, level, data, &value, &len), 0);
	KUNIT_EXPECT_EQ(test, value, 56);
	KUNIT_EXPECT_EQ(test, kfi_getopt(fid, level, 77, &value, &len), -KFI_ENOPROTOOPT);
	KUNIT_EXPECT_EQ(test, kfi_getopt(fid, 77, least, &value, &len), -KFI_ENOPROTOOPT);
	KUNIT_EXPECT_EQ(test, kfi_getopt(fid, level, least, NULL, &len), -KFI_EINVAL);
	pair_close(test, &f, ends);
}

/* The default flags of a side of an endpoint, without the side. */
static u64 op_flags(struct kunit *test, struct kfid_ep *ep, u64 side)
{
	u64 flags = side;

	KUNIT_EXPECT_EQ(test, kfi_control(&ep->fid, KFI_GETOPSFLAG, &flags), 0);
	return flags;
}

static int set_op_flags(struct kfid_ep *ep, u64 flags)
{
	return kfi_control(&ep->fid, KFI_SETOPSFLAG, &flags);
}

/* An alias has default flags of its own, and keeps its endpoint open. */
static void aliases_have_flags_of_their_own(struct kunit *test)
{
	struct kfid_ep *ep, *alias = NULL, *second;
	struct fixture f;
	struct end ends[2];
	u64 both = KFI_TRANSMIT | KFI_RECV;
	struct kfi_msg msg = { .type = KFI_KVEC, .addr = KFI_ADDR_UNSPEC };

	pair_open(test, &f, KFI_EP_RDM, ends);
	ep = ends[0].ep;
	KUNIT_EXPECT_EQ(test, op_flags(test, ep, KFI_TRANSMIT), KFI_COMPLETION);
	/* They are flags of operations. */
	KUNIT_EXPECT_EQ(test, kfi_recvmsg(ep, &msg, op_flags(test, ep, KFI_RECV)), 0);
	KUNIT_EXPECT_EQ(test, set_op_flags(ep, KFI_TRANSMIT | KFI_INJECT_COMPLETE), 0);
	KUNIT_EXPECT_EQ(test, set_op_flags(ep, KFI_RECV | KFI_INJECT), -KFI_EINVAL);
	KUNIT_EXPECT_EQ(test, set_op_flags(ep, KFI_COMPLETION), -KFI_EINVAL);
	KUNIT_EXPECT_EQ(test, kfi_control(&ep->fid, KFI_GETOPSFLAG, &both), -KFI_EINVAL);
	KUNIT_EXPECT_EQ(test, kfi_control(&ep->fid, KFI_GETOPSFLAG, NULL), -KFI_EINVAL);
	KUNIT_EXPECT_EQ(test, kfi_control(&ep->fid, KFI_BACKLOG, NULL), -KFI_ENOSYS);

	KUNIT_EXPECT_EQ(test, kfi_ep_alias(ep, &alias, KFI_COMPLETION), -KFI_EINVAL);
	KUNIT_EXPECT_EQ(test, kfi_ep_alias(ep, &alias, KFI_RECV | KFI_INJECT), -KFI_EINVAL);
	KUNIT_EXPECT_NULL(test, alias);
	KUNIT_ASSERT_EQ(test, kfi_ep_alias(ep, &alias, KFI_RECV), 0);
	KUNIT_EXPECT_EQ(test, op_flags(test, alias, KFI_TRANSMIT), KFI_INJECT_COMPLETE);
	KUNIT_EXPECT_EQ(test, op_flags(test, alias, KFI_RECV), 0);
	KUNIT_EXPECT_EQ(test, op_flags(test, ep, KFI_RECV), KFI_COMPLETION);
	KUNIT_EXPECT_EQ(test, set_op_flags(alias, KFI_TRANSMIT | KFI_INJECT), 0);
	KUNIT_EXPECT_EQ(test, op_flags(test, ep, KFI_TRANSMIT), KFI_INJECT_COMPLETE);
	KUNIT_ASSERT_EQ(test, kfi_ep_alias(alias, &second, KFI_RECV | KFI_COMPLETION), 0);
	KUNIT_EXPECT_EQ(test, op_flags(test, second, KFI_TRANSMIT), KFI_INJECT);
	KUNIT_EXPECT_EQ(test, kfi_close(&alias->fid), 0);
	KUNIT_EXPECT_EQ(test, kfi_close(&ep->fid), -KFI_EBUSY);
	KUNIT_EXPECT_EQ(test, kfi_close(&second->fid), 0);
	pair_close(test, &f, ends);
}

static void names_are_set_and_told(struct kunit *test)
{
	struct sockaddr_in addr, found;
	struct kfi_info *info;
	struct fixture f;
	struct end end;
	size_t len = 4;

	fixture_open(test, &f);
	info = entry_of(test, KFI_EP_RDM);
	end_open(test, &f, info, &end, 0);
	memcpy(&addr, info->src_addr, sizeof(addr));
	KUNIT_EXPECT_EQ(test, kfi_setname(&end.ep->fid, &addr, 4), -KFI_EINVAL);
	KUNIT_EXPECT_EQ(test, kfi_setname(&end.ep->fid, NULL, sizeof(addr)), -KFI_EINVAL);
	addr.sin_addr.s_addr = htonl(0x0a090807);
	KUNIT_EXPECT_EQ(test, kfi_setname(&end.ep->fid, &addr, sizeof(addr)),
			-KFI_EADDRNOTAVAIL);
	memcpy(&addr, info->src_addr, sizeof(addr));
	addr.sin_port = htons(7471);
	KUNIT_EXPECT_EQ(test, kfi_setname(&end.ep->fid, &addr, sizeof(addr)), 0);
	KUNIT_EXPECT_EQ(test, kfi_enable(end.ep), 0);
	KUNIT_EXPECT_EQ(test, kfi_setname(&end.ep->fid, &addr, sizeof(addr)),
			-KFI_EOPBADSTATE);
	memset(&found, 0xff, sizeof(found));
	KUNIT_EXPECT_EQ(test, kfi_getname(&end.ep->fid, &found, &len), -KFI_ETOOSMALL);
	KUNIT_EXPECT_EQ(test, len, sizeof(found));
	KUNIT_EXPECT_EQ(test, found.sin_port, htons(7471));
	KUNIT_EXPECT_EQ(test, found.sin_addr.s_addr, 0xffffffff);
	KUNIT_EXPECT_EQ(test, kfi_getname(&end.ep->fid, &found, &len), 0);
	KUNIT_EXPECT_MEMEQ(test, &found, &addr, sizeof(found));
	KUNIT_EXPECT_EQ(test, kfi_getname(&end.ep->fid, &found, NULL), -KFI_EINVAL);
	/* No connections without the type for them. */
	KUNIT_EXPECT_EQ(test, kfi_getpeer(end.ep, &found, &len), -KFI_EOPNOTSUPP);
	KUNIT_EXPECT_EQ(test, kfi_connect(end.ep, &addr, NULL, 0), -KFI_EOPNOTSUPP);
	KUNIT_EXPECT_EQ(test, kfi_shutdown(end.ep, 0), -KFI_EOPNOTSUPP);
	KUNIT_EXPECT_EQ(test, kfi_shutdown(end.ep, 1), -KFI_EINVAL);
	end_close(test, &end);
	kfi_freeinfo(info);
	fixture_close(test, &f);
}

CONSUMER("endpoints",
	 KUNIT_CASE(all_entries_can_be_opened),
	 KUNIT_CASE(attributes_are_checked),
	 KUNIT_CASE(bindings_are_checked),
	 KUNIT_CASE(options_are_kept),
	 KUNIT_CASE(aliases_have_flags_of_their_own),
	 KUNIT_CASE(names_are_set_and_told));
