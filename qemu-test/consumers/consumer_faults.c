// SPDX-License-Identifier: GPL-2.0
/*
 * Each allocation fails in turn: calls that make, bind and connect objects.
 */

#include <linux/bvec.h>
#include <linux/scatterlist.h>
#include <linux/uio.h>

#include <kfi/kfi_prov.h>

#include "faults.h"

#define KEY	7
#define REMOTE	(KFI_REMOTE_READ | KFI_REMOTE_WRITE)

/**
 * struct faults_world - what the calls use
 * @f: a domain
 * @end: an endpoint that is enabled
 * @eq: an event queue
 * @poll: a poll set
 * @page: memory
 * @rdm: an entry
 * @msg: an entry for connected endpoints
 * @addr: the address of @end
 * @made: the object that a call has made
 * @info: the entry that a call has made
 * @fresh: an endpoint for one call
 * @pep: a passive endpoint for one call
 * @asked: the request that @pep got
 * @server: the endpoint that accepts it
 * @eqs: events of @pep, @fresh and @server
 */
struct faults_world {
	struct fixture		f;
	struct end		end;
	struct kfid_eq		*eq;
	struct kfid_poll	*poll;
	u8			*page;
	struct kfi_info		*rdm;
	struct kfi_info		*msg;
	struct sockaddr_in	addr;
	struct kfid		*made;
	struct kfi_info		*info;
	struct end		fresh;
	struct kfid_pep		*pep;
	struct kfi_info		*asked;
	struct end		server;
	struct kfid_eq		*eqs[3];
};

static struct kfid_eq *open_eq(struct kunit *test, struct faults_world *w)
{
	struct kfi_eq_attr attr = { .wait_obj = KFI_WAIT_UNSPEC, .flags = KFI_WRITE };
	struct kfid_eq *eq;

	KUNIT_ASSERT_EQ(test, kfi_eq_open(w->f.fabric, &attr, &eq, NULL, NULL), 0);
	return eq;
}

static void world_open(struct kunit *test, struct faults_world *w)
{
	struct kfi_poll_attr attr = {};
	size_t len = sizeof(w->addr);

	faults_need_injection(test);
	memset(w, 0, sizeof(*w));
	fixture_open(test, &w->f);
	w->rdm = entry_of(test, KFI_EP_RDM);
	w->msg = entry_of(test, KFI_EP_MSG);
	w->eq = open_eq(test, w);
	KUNIT_ASSERT_EQ(test, kfi_poll_open(w->f.domain, &attr, &w->poll), 0);
	end_open_enabled(test, &w->f, w->rdm, &w->end);
	KUNIT_ASSERT_EQ(test, kfi_getname(&w->end.ep->fid, &w->addr, &len), 0);
	w->page = zeroed_page(test);
}

static void world_close(struct kunit *test, struct faults_world *w)
{
	end_close(test, &w->end);
	CLOSE(test, &w->poll->fid, &w->eq->fid);
	kfi_freeinfo(w->rdm);
	kfi_freeinfo(w->msg);
	fixture_close(test, &w->f);
}

/* Closing succeeds, whatever fails. */
static void close_made(struct kunit *test, struct faults_world *w)
{
	int ret;

	faults_begin(1);
	ret = kfi_close(w->made);
	faults_end();
	KUNIT_EXPECT_EQ(test, ret, 0);
}

static void free_made(struct kunit *test, struct faults_world *w)
{
	kfi_freeinfo(w->info);
}

/* Calls with entries */

static int allocinfo(struct faults_world *w)
{
	w->info = kfi_allocinfo();
	return w->info ? 0 : -ENOMEM;
}

static int dupinfo(struct faults_world *w)
{
	w->info = kfi_dupinfo(w->rdm);
	return w->info ? 0 : -ENOMEM;
}

static int getinfo(struct faults_world *w)
{
	return kfi_getinfo(KFI_VERSION(1, 7), NULL, NULL, 0, w->rdm, &w->info);
}

static int getinfo_of_node(struct faults_world *w)
{
	return kfi_getinfo(KFI_VERSION(1, 7), "127.0.0.1", "7475", KFI_SOURCE, NULL, &w->info);
}

/* Calls that make an object, which is stored in @made. */

#define OPENS(name, type, call) \
static int name(struct faults_world *w) \
{ \
	struct type *made; \
	int ret = call; \
	if (!ret) \
		w->made = &made->fid; \
	return ret; \
}

static struct kfi_cq_attr cq_attr = { .wait_obj = KFI_WAIT_UNSPEC };
static struct kfi_cntr_attr cntr_attr = { .wait_obj = KFI_WAIT_QUEUE };
static struct kfi_eq_attr eq_attr = { .wait_obj = KFI_WAIT_QUEUE };
static struct kfi_eq_attr handled_eq_attr = { .wait_obj = KFI_WAIT_NONE };
static struct kfi_wait_attr wait_attr = { .wait_obj = KFI_WAIT_UNSPEC };
static struct kfi_poll_attr poll_attr;
static struct kfi_av_attr av_attr = { .count = 100 };

static void on_completion(struct kfid_cq *cq, void *context)
{
}

static void on_event(struct kfid_eq *eq, void *context)
{
}

OPENS(fabric, kfid_fabric, kfi_fabric(w->f.info->fabric_attr, &made, w))
OPENS(domain, kfid_domain, kfi_domain(w->f.fabric, w->f.info, &made, w))
OPENS(eq_open, kfid_eq, kfi_eq_open(w->f.fabric, &eq_attr, &made, NULL, w))
OPENS(handled_eq, kfid_eq, kfi_eq_open(w->f.fabric, &handled_eq_attr, &made, on_event, w))
OPENS(poll_open, kfid_poll, kfi_poll_open(w->f.domain, &poll_attr, &made))
OPENS(cq_open, kfid_cq, kfi_cq_open(w->f.domain, &cq_attr, &made, NULL, w))
OPENS(handled_cq, kfid_cq, kfi_cq_open(w->f.domain, &cq_attr, &made, on_completion, w))
OPENS(cntr_open, kfid_cntr, kfi_cntr_open(w->f.domain, &cntr_attr, &made, w))
OPENS(av_open, kfid_av, kfi_av_open(w->f.domain, &av_attr, &made, w))
OPENS(endpoint, kfid_ep, kfi_endpoint(w->f.domain, w->rdm, &made, w))
OPENS(msg_endpoint, kfid_ep, kfi_endpoint(w->f.domain, w->msg, &made, w))
OPENS(passive_ep, kfid_pep, kfi_passive_ep(w->f.fabric, w->msg, &made, w))
OPENS(ep_alias, kfid_ep, kfi_ep_alias(w->end.ep, &made, KFI_TRANSMIT))
OPENS(mr_reg, kfid_mr, kfi_mr_reg(w->f.domain, w->page, 100, REMOTE, 0, KEY, 0, &made, w))

static int wait_open(struct faults_world *w)
{
	struct kfid_wait *set;
	int ret = kfi_wait_open(w->f.fabric, &wait_attr, &set);

	if (!ret)
		w->made = &set->kfid;
	return ret;
}

static int mr_regv(struct faults_world *w)
{
	struct kvec iov[2] = { { w->page, 10 }, { w->page + 100, 10 } };
	struct kfid_mr *mr;
	int ret = kfi_mr_regv(w->f.domain, iov, 2, REMOTE, 0, KEY, 0, &mr, w);

	if (!ret)
		w->made = &mr->fid;
	return ret;
}

static int mr_regbv(struct faults_world *w)
{
	struct bio_vec biov[2];
	struct kfid_mr *mr;
	int ret;

	bvec_set_virt(&biov[0], w->page, 10);
	bvec_set_virt(&biov[1], w->page + 100, 10);
	ret = kfi_mr_regbv(w->f.domain, biov, 2, REMOTE, 0, KEY, 0, &mr, w);
	if (!ret)
		w->made = &mr->fid;
	return ret;
}

static int mr_regsgl(struct faults_world *w)
{
	struct scatterlist sg;
	struct kfid_mr *mr;
	int ret;

	sg_init_one(&sg, w->page, 100);
	ret = kfi_mr_regsgl(w->f.domain, &sg, 1, REMOTE, 0, KEY, 0, &mr, w);
	if (!ret)
		w->made = &mr->fid;
	return ret;
}

static int mr_regattr(struct faults_world *w)
{
	struct kvec iov = { w->page, 100 };
	struct kfi_mr_attr attr = {
		.type = KFI_KVEC,
		.mr_iov = &iov,
		.iov_count = 1,
		.access = REMOTE,
		.requested_key = KEY,
	};
	struct kfid_mr *mr;
	int ret = kfi_mr_regattr(w->f.domain, &attr, 0, &mr);

	if (!ret)
		w->made = &mr->fid;
	return ret;
}

/* Calls that change objects */

static void fresh_open(struct kunit *test, struct faults_world *w)
{
	end_open(test, &w->f, w->rdm, &w->fresh, 0);
}

static void fresh_close(struct kunit *test, struct faults_world *w)
{
	end_close(test, &w->fresh);
}

static int enable(struct faults_world *w)
{
	return kfi_enable(w->fresh.ep);
}

static void bare_open(struct kunit *test, struct faults_world *w)
{
	KUNIT_ASSERT_EQ(test, endpoint(w), 0);
}

static int bind_eq(struct faults_world *w)
{
	return kfi_ep_bind(container_of(w->made, struct kfid_ep, fid), &w->eq->fid, 0);
}

static int bind_cq(struct faults_world *w)
{
	return kfi_ep_bind(container_of(w->made, struct kfid_ep, fid), &w->end.cq->fid,
			   KFI_TRANSMIT | KFI_RECV);
}

static int bind_cntr(struct faults_world *w)
{
	return kfi_ep_bind(container_of(w->made, struct kfid_ep, fid), &w->end.sent->fid,
			   KFI_SEND | KFI_WRITE);
}

static int setname(struct faults_world *w)
{
	struct sockaddr_in addr = w->addr;

	addr.sin_port = htons(7476);
	return kfi_setname(w->made, &addr, sizeof(addr));
}

static int av_insert(struct faults_world *w)
{
	return kfi_av_insert(w->end.av, &w->addr, 1, &w->end.peer, 0, NULL) == 1 ? 0 : -ENOMEM;
}

static int av_insertsvc(struct faults_world *w)
{
	return kfi_av_insertsvc(w->end.av, "127.0.0.1", "7477", &w->end.peer, 0, NULL) == 1 ?
		0 : -ENOMEM;
}

static int av_insertsym(struct faults_world *w)
{
	return kfi_av_insertsym(w->end.av, "127.0.0.1", 1, "7477", 1, &w->end.peer, 0, NULL) == 1 ?
		0 : -ENOMEM;
}

static void av_remove(struct kunit *test, struct faults_world *w)
{
	KUNIT_EXPECT_EQ(test, kfi_av_remove(w->end.av, &w->end.peer, 1, 0), 0);
}

/* Calls that bind an event queue, or a region. Each has an object of its own in @made. */

static void bare_av(struct kunit *test, struct faults_world *w)
{
	struct kfi_av_attr attr = { .count = 4, .flags = KFI_EVENT };
	struct kfid_av *av;

	KUNIT_ASSERT_EQ(test, kfi_av_open(w->f.domain, &attr, &av, w), 0);
	w->made = &av->fid;
}

static int av_bind(struct faults_world *w)
{
	return kfi_av_bind(container_of(w->made, struct kfid_av, fid), &w->eq->fid, 0);
}

static void bare_domain(struct kunit *test, struct faults_world *w)
{
	KUNIT_ASSERT_EQ(test, domain(w), 0);
}

static int domain_bind(struct faults_world *w)
{
	return kfi_domain_bind(container_of(w->made, struct kfid_domain, fid), &w->eq->fid,
			       KFI_REG_MR);
}

static void bare_mr(struct kunit *test, struct faults_world *w)
{
	struct kfid_mr *mr;

	KUNIT_ASSERT_EQ(test, kfi_mr_reg(w->f.domain, w->page, 100, REMOTE, 0, KEY, KFI_RMA_EVENT,
					 &mr, w), 0);
	w->made = &mr->fid;
}

static int mr_bind(struct faults_world *w)
{
	return kfi_mr_bind(container_of(w->made, struct kfid_mr, fid), &w->end.received->fid,
			   KFI_REMOTE_WRITE);
}

static int poll_add(struct faults_world *w)
{
	return kfi_poll_add(w->poll, &w->end.cq->fid, 0);
}

static void poll_del(struct kunit *test, struct faults_world *w)
{
	KUNIT_EXPECT_EQ(test, kfi_poll_del(w->poll, &w->end.cq->fid, 0), 0);
}

static int eq_write(struct faults_world *w)
{
	struct kfi_eq_entry entry = { .context = w };
	ssize_t ret = kfi_eq_write(w->eq, KFI_NOTIFY, &entry, sizeof(entry), 0);

	return ret == sizeof(entry) ? 0 : ret;
}

static void eq_read(struct kunit *test, struct faults_world *w)
{
	struct kfi_eq_entry entry;
	u32 event;

	KUNIT_EXPECT_EQ(test, kfi_eq_read(w->eq, &event, &entry, sizeof(entry), 0),
			sizeof(entry));
}

static int second_getinfo(u32 version, const char *node, const char *service, u64 flags,
			  struct kfi_info *hints, struct kfi_info **info)
{
	return -KFI_ENODATA;
}

static int second_fabric(struct kfi_fabric_attr *attr, struct kfid_fabric **fabric,
			 void *context)
{
	return -KFI_ENODATA;
}

static struct kfi_provider second = {
	.version = KFI_VERSION(1, 0),
	.kfi_version = KFI_VERSION(1, 7),
	.name = "faults",
	.kgetinfo = second_getinfo,
	.kfabric = second_fabric,
};

static int provider_register(struct faults_world *w)
{
	return kfi_provider_register(&second);
}

static void provider_deregister(struct kunit *test, struct faults_world *w)
{
	KUNIT_EXPECT_EQ(test, kfi_provider_deregister(&second), 0);
}

/* Calls of connections. Each has endpoints of its own. */

static void pep_open(struct kunit *test, struct faults_world *w)
{
	int i;

	for (i = 0; i < ARRAY_SIZE(w->eqs); i++)
		w->eqs[i] = open_eq(test, w);
	KUNIT_ASSERT_EQ(test, kfi_passive_ep(w->f.fabric, w->msg, &w->pep, NULL), 0);
	KUNIT_ASSERT_EQ(test, kfi_pep_bind(w->pep, &w->eqs[0]->fid, 0), 0);
}

static void pep_close(struct kunit *test, struct faults_world *w)
{
	int i;

	KUNIT_EXPECT_EQ(test, kfi_close(&w->pep->fid), 0);
	for (i = 0; i < ARRAY_SIZE(w->eqs); i++)
		KUNIT_EXPECT_EQ(test, kfi_close(&w->eqs[i]->fid), 0);
}

static int listen(struct faults_world *w)
{
	return kfi_listen(w->pep);
}

static void connected_open(struct kunit *test, struct faults_world *w, struct kfi_info *info,
			   struct end *end, struct kfid_eq *eq)
{
	end_open(test, &w->f, info, end, 0);
	KUNIT_ASSERT_EQ(test, kfi_ep_bind(end->ep, &eq->fid, 0), 0);
	KUNIT_ASSERT_EQ(test, kfi_enable(end->ep), 0);
}

static void listening(struct kunit *test, struct faults_world *w)
{
	pep_open(test, w);
	KUNIT_ASSERT_EQ(test, kfi_listen(w->pep), 0);
	connected_open(test, w, w->msg, &w->fresh, w->eqs[1]);
}

static int connect(struct faults_world *w)
{
	struct sockaddr_in addr;
	size_t len = sizeof(addr);
	int ret = kfi_getname(&w->pep->fid, &addr, &len);

	return ret ?: kfi_connect(w->fresh.ep, &addr, NULL, 0);
}

/* Waits for an event. Returns its entry. */
static ssize_t event(struct kfid_eq *eq, u32 *number, struct kfi_info **info)
{
	struct {
		struct kfi_eq_cm_entry	head;
		u8			data[256];
	} entry = {};
	ssize_t ret = kfi_eq_sread(eq, number, &entry, sizeof(entry), LONG, 0);

	*info = entry.head.info;
	return ret;
}

static int read_request(struct faults_world *w)
{
	u32 number;
	ssize_t ret = event(w->eqs[0], &number, &w->asked);

	return ret < 0 ? ret : number == KFI_CONNREQ ? 0 : -EBADMSG;
}

static void request_done(struct kunit *test, struct faults_world *w)
{
	kfi_freeinfo(w->asked);
	end_close(test, &w->fresh);
	pep_close(test, w);
}

static void connect_done(struct kunit *test, struct faults_world *w)
{
	KUNIT_ASSERT_EQ(test, read_request(w), 0);
	request_done(test, w);
}

static void asked(struct kunit *test, struct faults_world *w)
{
	listening(test, w);
	KUNIT_ASSERT_EQ(test, connect(w), 0);
}

static void request_read(struct kunit *test, struct faults_world *w)
{
	asked(test, w);
	KUNIT_ASSERT_EQ(test, read_request(w), 0);
}

static int reject(struct faults_world *w)
{
	return kfi_reject(w->pep, w->asked->handle, NULL, 0);
}

static int endpoint_of_request(struct faults_world *w)
{
	struct kfid_ep *ep;
	int ret = kfi_endpoint(w->f.domain, w->asked, &ep, NULL);

	return ret ?: kfi_close(&ep->fid);
}

static void accepting(struct kunit *test, struct faults_world *w)
{
	request_read(test, w);
	connected_open(test, w, w->asked, &w->server, w->eqs[2]);
}

static int accept(struct faults_world *w)
{
	return kfi_accept(w->server.ep, NULL, 0);
}

static void accept_done(struct kunit *test, struct faults_world *w)
{
	struct kfi_info *info;
	u32 number = 0;

	KUNIT_EXPECT_GT(test, event(w->eqs[1], &number, &info), 0);
	KUNIT_EXPECT_EQ(test, number, KFI_CONNECTED);
	KUNIT_EXPECT_GT(test, event(w->eqs[2], &number, &info), 0);
	KUNIT_EXPECT_EQ(test, number, KFI_CONNECTED);
	end_close(test, &w->server);
	request_done(test, w);
}

#define SWEEP(list) do { \
	struct faults_world *w = kunit_kzalloc(test, sizeof(*w), GFP_KERNEL); \
	\
	KUNIT_ASSERT_NOT_NULL(test, w); \
	world_open(test, w); \
	faults_of(test, w, list, ARRAY_SIZE(list)); \
	world_close(test, w); \
} while (0)

static void calls_that_make_objects(struct kunit *test)
{
	static const struct faults_call calls[] = {
		{ "kfi_allocinfo", NULL, allocinfo, free_made },
		{ "kfi_dupinfo", NULL, dupinfo, free_made },
		{ "kfi_getinfo", NULL, getinfo, free_made },
		{ "kfi_getinfo of a node", NULL, getinfo_of_node, free_made },
		{ "kfi_fabric", NULL, fabric, close_made },
		{ "kfi_domain", NULL, domain, close_made },
		{ "kfi_eq_open", NULL, eq_open, close_made },
		{ "kfi_eq_open with a handler", NULL, handled_eq, close_made },
		{ "kfi_wait_open", NULL, wait_open, close_made },
		{ "kfi_poll_open", NULL, poll_open, close_made },
		{ "kfi_cq_open", NULL, cq_open, close_made },
		{ "kfi_cq_open with a handler", NULL, handled_cq, close_made },
		{ "kfi_cntr_open", NULL, cntr_open, close_made },
		{ "kfi_av_open", NULL, av_open, close_made },
		{ "kfi_endpoint", NULL, endpoint, close_made },
		{ "kfi_endpoint, connected", NULL, msg_endpoint, close_made },
		{ "kfi_passive_ep", NULL, passive_ep, close_made },
		{ "kfi_ep_alias", NULL, ep_alias, close_made },
		{ "kfi_mr_reg", NULL, mr_reg, close_made },
		{ "kfi_mr_regv", NULL, mr_regv, close_made },
		{ "kfi_mr_regbv", NULL, mr_regbv, close_made },
		{ "kfi_mr_regsgl", NULL, mr_regsgl, close_made },
		{ "kfi_mr_regattr", NULL, mr_regattr, close_made },
		{ "kfi_provider_register", NULL, provider_register, provider_deregister },
	};

	SWEEP(calls);
}

static void calls_that_change_objects(struct kunit *test)
{
	static const struct faults_call calls[] = {
		{ "kfi_ep_bind of an event queue", bare_open, bind_eq, close_made },
		{ "kfi_ep_bind of a completion queue", bare_open, bind_cq, close_made },
		{ "kfi_ep_bind of a counter", bare_open, bind_cntr, close_made },
		{ "kfi_setname", bare_open, setname, close_made },
		{ "kfi_enable", fresh_open, enable, fresh_close },
		{ "kfi_av_insert", NULL, av_insert, av_remove },
		{ "kfi_av_insertsvc", NULL, av_insertsvc, av_remove },
		{ "kfi_av_insertsym", NULL, av_insertsym, av_remove },
		{ "kfi_av_bind", bare_av, av_bind, close_made },
		{ "kfi_domain_bind", bare_domain, domain_bind, close_made },
		{ "kfi_mr_bind", bare_mr, mr_bind, close_made },
		{ "kfi_poll_add", NULL, poll_add, poll_del },
		{ "kfi_eq_write", NULL, eq_write, eq_read },
	};

	SWEEP(calls);
}

static void calls_of_connections(struct kunit *test)
{
	static const struct faults_call calls[] = {
		{ "kfi_listen", pep_open, listen, pep_close },
		{ "kfi_connect", listening, connect, connect_done },
		{ "kfi_eq_sread of a request", asked, read_request, request_done },
		{ "kfi_endpoint of a request", request_read, endpoint_of_request, request_done },
		{ "kfi_reject", request_read, reject, request_done },
		{ "kfi_accept", accepting, accept, accept_done },
	};

	SWEEP(calls);
}

CONSUMER("failing allocations",
	 KUNIT_CASE_SLOW(calls_that_make_objects),
	 KUNIT_CASE_SLOW(calls_that_change_objects),
	 KUNIT_CASE_SLOW(calls_of_connections));
