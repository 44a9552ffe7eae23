// SPDX-License-Identifier: GPL-2.0
/*
 * The inline functions of include/kfi/, called in user space by check-layout.
 *
 * check-layout puts in the functions that only call an operation.  The cases
 * here are of those that do more.
 */
#include <stdio.h>
#include <string.h>

#include <kfi/kfabric.h>
/* Includes the headers of endpoints, connections, messages, RMA, atomics and triggers. */
#include <kfi/kfi_direct.h>
#include <kfi/kfi_enosys.h>
#include <kfi/kfi_prov.h>

/* CALLS */

#define EXPECT(condition) \
	do { \
		if (!(condition)) { \
			printf("not so: %s\n", #condition); \
			failed = 1; \
		} \
	} while (0)

static struct kfid *controlled;
static struct kfi_alias alias;
static struct kfi_mr_raw_attr raw;
static struct kfi_mr_map_raw map;
static struct kfi_mr_modify modify;
static u64 unmapped;
static int enabled;

/* Notes a command's argument, which lives only during the call. */
static int note(struct kfid *fid, int command, void *arg)
{
	controlled = fid;
	switch (command) {
	case KFI_ALIAS:
		alias = *(struct kfi_alias *)arg;
		if (alias.flags == 99)
			return -KFI_ENOSYS;
		*alias.fid = &object_kfid_ep.fid;
		break;
	case KFI_GET_RAW_MR:
		raw = *(struct kfi_mr_raw_attr *)arg;
		break;
	case KFI_MAP_RAW_MR:
		map = *(struct kfi_mr_map_raw *)arg;
		break;
	case KFI_UNMAP_KEY:
		unmapped = *(u64 *)arg;
		break;
	case KFI_REFRESH:
		modify = *(struct kfi_mr_modify *)arg;
		break;
	case KFI_ENABLE:
		enabled += !arg;
		break;
	default:
		return -KFI_EINVAL;
	}
	return 5;
}

static void commands(void)
{
	struct kfi_ops ops = { .size = sizeof(ops), .control = note };
	struct kfid_domain domain = { .fid.ops = &ops };
	struct kfid_mr mr = { .fid.ops = &ops, .mem_desc = &mr, .key = 6 };
	struct kfid_ep ep = { .fid.ops = &ops }, *other = NULL;
	struct kfid_cntr cntr = { .fid.ops = &ops };
	struct kfi_param *params = (struct kfi_param *)&ops;
	int count = 7;
	struct kvec *iov = (struct kvec *)0x1000;
	struct kfid *fid = NULL;
	size_t size = 8;
	u64 addr, key = 12;
	u8 raw_key[8];

	EXPECT(kfi_alias(&ep.fid, &fid, 3) == 5 && controlled == &ep.fid);
	EXPECT(alias.flags == 3 && fid == &object_kfid_ep.fid);
	ops.control = kfi_ops_control;
	EXPECT(kfi_ep_alias(&ep, &other, 4) == 77 && !other);
	ops.control = note;
	EXPECT(kfi_ep_alias(&ep, &other, 99) == -KFI_ENOSYS && !other);

	EXPECT(kfi_mr_raw_attr(&mr, &addr, raw_key, &size, 1) == 5 && controlled == &mr.fid);
	EXPECT(raw.flags == 1 && raw.base_addr == &addr && raw.raw_key == raw_key);
	EXPECT(raw.key_size == &size);
	EXPECT(kfi_mr_map_raw(&domain, 2, raw_key, 8, &key, 3) == 5);
	EXPECT(controlled == &domain.fid && map.flags == 3 && map.base_addr == 2);
	EXPECT(map.raw_key == raw_key && map.key_size == 8 && map.key == &key);
	EXPECT(kfi_mr_unmap_key(&domain, 9) == 5 && unmapped == 9);
	EXPECT(kfi_mr_refresh(&mr, iov, 7, 1) == 5 && modify.flags == 1);
	EXPECT(modify.attr.type == KFI_KVEC && modify.attr.mr_iov == iov);
	EXPECT(modify.attr.iov_count == 7);
	EXPECT(kfi_mr_enable(&mr) == 5 && kfi_enable(&ep) == 5 && enabled == 2);
	EXPECT(controlled == &ep.fid);
	EXPECT(kfi_cntr_control(&cntr, KFI_ENABLE, NULL) == 5 && enabled == 3);
	EXPECT(controlled == &cntr.fid);
	EXPECT(kfi_cntr_control(&cntr, KFI_UNMAP_KEY, &key) == 5 && unmapped == key);
	EXPECT(kfi_getparams(&params, &count) == -KFI_ENOSYS && !params && !count);
	kfi_freeparams(params);
	EXPECT(kfi_mr_desc(&mr) == &mr && kfi_mr_key(&mr) == 6);
}

/* Each operation of kfi_enosys.h has the type of its slot. */
static const struct kfi_ops no_ops = {
	.bind = kfi_no_bind, .control = kfi_no_control, .ops_open = kfi_no_ops_open,
};

static const struct kfi_ops_fabric no_ops_fabric = {
	.domain = kfi_no_domain, .passive_ep = kfi_no_passive_ep, .eq_open = kfi_no_eq_open,
	.wait_open = kfi_no_wait_open,
};

static const struct kfi_ops_domain no_ops_domain = {
	.cq_open = kfi_no_cq_open, .endpoint = kfi_no_endpoint, .cntr_open = kfi_no_cntr_open,
	.poll_open = kfi_no_poll_open, .stx_ctx = kfi_no_stx_ctx, .srx_ctx = kfi_no_srx_ctx,
	.query_atomic = kfi_no_query_atomic,
};

static const struct kfi_ops_av no_ops_av = {
	.insert = kfi_no_av_insert, .insertsvc = kfi_no_av_insertsvc,
	.insertsym = kfi_no_av_insertsym,
};

static const struct kfi_ops_mr no_ops_mr = {
	.reg = kfi_no_mr_reg, .regv = kfi_no_mr_regv, .regbv = kfi_no_mr_regbv,
	.regsgl = kfi_no_mr_regsgl, .regattr = kfi_no_mr_regattr,
};

static const struct kfi_ops_ep no_ops_ep = {
	.cancel = kfi_no_cancel, .getopt = kfi_no_getopt, .setopt = kfi_no_setopt,
	.tx_ctx = kfi_no_tx_ctx, .rx_ctx = kfi_no_rx_ctx,
};

static const struct kfi_ops_cm no_ops_cm = {
	.setname = kfi_no_setname, .getname = kfi_no_getname, .getpeer = kfi_no_getpeer,
	.connect = kfi_no_connect, .listen = kfi_no_listen, .accept = kfi_no_accept,
	.reject = kfi_no_reject, .shutdown = kfi_no_shutdown, .join = kfi_no_join,
};

static const struct kfi_ops_msg no_ops_msg = {
	.recv = kfi_no_msg_recv, .recvv = kfi_no_msg_recvv, .recvbv = kfi_no_msg_recvbv,
	.recvsgl = kfi_no_msg_recvsgl, .recvmsg = kfi_no_msg_recvmsg, .send = kfi_no_msg_send,
	.sendv = kfi_no_msg_sendv, .sendbv = kfi_no_msg_sendbv, .sendsgl = kfi_no_msg_sendsgl,
	.sendmsg = kfi_no_msg_sendmsg, .inject = kfi_no_msg_inject,
	.senddata = kfi_no_msg_senddata, .injectdata = kfi_no_msg_injectdata,
};

static const struct kfi_ops_tagged no_ops_tagged = {
	.recv = kfi_no_tagged_recv, .recvv = kfi_no_tagged_recvv,
	.recvbv = kfi_no_tagged_recvbv, .recvsgl = kfi_no_tagged_recvsgl,
	.recvmsg = kfi_no_tagged_recvmsg, .send = kfi_no_tagged_send,
	.sendv = kfi_no_tagged_sendv, .sendbv = kfi_no_tagged_sendbv,
	.sendsgl = kfi_no_tagged_sendsgl, .sendmsg = kfi_no_tagged_sendmsg,
	.inject = kfi_no_tagged_inject, .senddata = kfi_no_tagged_senddata,
	.injectdata = kfi_no_tagged_injectdata,
};

static const struct kfi_ops_rma no_ops_rma = {
	.read = kfi_no_rma_read, .readv = kfi_no_rma_readv, .readbv = kfi_no_rma_readbv,
	.readsgl = kfi_no_rma_readsgl, .readmsg = kfi_no_rma_readmsg,
	.write = kfi_no_rma_write, .writev = kfi_no_rma_writev, .writebv = kfi_no_rma_writebv,
	.writesgl = kfi_no_rma_writesgl, .writemsg = kfi_no_rma_writemsg,
	.inject = kfi_no_rma_inject, .writedata = kfi_no_rma_writedata,
	.injectdata = kfi_no_rma_injectdata,
};

static const struct kfi_ops_atomic no_ops_atomic = {
	.write = kfi_no_atomic_write, .writev = kfi_no_atomic_writev,
	.writemsg = kfi_no_atomic_writemsg, .inject = kfi_no_atomic_inject,
	.readwrite = kfi_no_atomic_readwrite, .readwritev = kfi_no_atomic_readwritev,
	.readwritemsg = kfi_no_atomic_readwritemsg, .compwrite = kfi_no_atomic_compwrite,
	.compwritev = kfi_no_atomic_compwritev, .compwritemsg = kfi_no_atomic_compwritemsg,
	.writevalid = kfi_no_atomic_writevalid, .readwritevalid = kfi_no_atomic_readwritevalid,
	.compwritevalid = kfi_no_atomic_compwritevalid,
};

static const struct kfi_ops_eq no_ops_eq = {
	.write = kfi_no_eq_write, .sread = kfi_no_eq_sread,
};

static const struct kfi_ops_cq no_ops_cq = {
	.readfrom = kfi_no_cq_readfrom, .sread = kfi_no_cq_sread,
	.sreadfrom = kfi_no_cq_sreadfrom, .signal = kfi_no_cq_signal,
};

/* A provider's operations that are not there. */
static void no_operations(void)
{
	struct kfi_ops_cm cm_ops = kfi_ops_cm;
	struct kfid_ep ep = { .cm = &cm_ops };
	size_t len = 5;

	cm_ops.getname = kfi_no_getname;
	EXPECT(kfi_getname(&ep.fid, &cm_ops, &len) == -KFI_ENOSYS && len == 5);
}

/* Tables of an older version end before the operation, or have no function. */
static void older_tables(void)
{
	struct kfi_ops_cntr cntr_ops = kfi_ops_cntr;
	struct kfi_ops_cm cm_ops = kfi_ops_cm;
	struct kfi_ops_domain domain_ops = kfi_ops_domain;
	struct kfid_cntr cntr = { .ops = &cntr_ops };
	struct kfid_ep ep = { .cm = &cm_ops };
	struct kfid_domain domain = { .ops = &domain_ops };

	cntr_ops.size = offsetof(struct kfi_ops_cntr, adderr);
	cm_ops.join = NULL;
	domain_ops.size = offsetof(struct kfi_ops_domain, query_atomic);
	EXPECT(kfi_cntr_adderr(&cntr, 1) == -KFI_ENOSYS);
	EXPECT(kfi_cntr_seterr(&cntr, 1) == -KFI_ENOSYS);
	EXPECT(kfi_join(&ep, NULL, 0, NULL, NULL) == -KFI_ENOSYS);
	EXPECT(kfi_query_atomic(&domain, KFI_UINT64, KFI_SUM, NULL, 0) == -KFI_ENOSYS);
}

static void references(void)
{
	struct kfi_provider provider = { .ref_cnt = { 1 } };
	struct kfid fid;

	kfi_ref_provider(&provider);
	kfi_deref_provider(&provider);
	EXPECT(provider.comp.done == 0);
	kfi_deref_provider(&provider);
	EXPECT(provider.comp.done == 1);

	kfi_init_id(&fid);
	kfi_ref_id(&fid);
	kfi_deref_id(&fid);
	EXPECT(fid.comp.done == 0);
	/* The wait of the stand-in takes 10. */
	kfi_close_id(&fid);
	EXPECT(fid.comp.done == (unsigned int)(1 - 10));
}

static void values(void)
{
	struct kfid_mc mc = { .addr = 8 };

	EXPECT(kfi_mc_addr(&mc) == 8);
	EXPECT(kfi_rx_addr(5, 3, 8) == (3ULL << 56 | 5));
	EXPECT(kfi_rx_addr(5, 1, 1) == (1ULL << 63 | 5));
	EXPECT(kfi_rx_addr(5, 2, 0) == 5);
	EXPECT(kfi_tc_dscp_set(46) == (KFI_TC_DSCP | 46));
	EXPECT(kfi_tc_dscp_get(KFI_TC_DSCP | 46) == 46);
	EXPECT(kfi_tc_dscp_get(KFI_TC_LOW_LATENCY) == 0);
	EXPECT(KFI_VERSION(1, 7) == 0x10007 && KFI_MAJOR(0x10007) == 1);
	EXPECT(KFI_MINOR(0x10007) == 7 && KFI_VERSION_GE(0x10007, 0x10007));
	EXPECT(!KFI_VERSION_LT(0x10007, 0x10007) && KFI_VERSION_LT(0x10006, 0x10007));
}

int main(void)
{
	calls();
	commands();
	no_operations();
	older_tables();
	references();
	values();
	return failed;
}
