/* SPDX-License-Identifier: GPL-2.0 */
/*
 * What suites of two hosts share. two_hosts.c makes calls in the network
 * namespace of a host, where that matters: kfi_getinfo() and kfi_fabric(). All
 * other calls may be made anywhere. So a case opens both hosts, and then uses
 * what the other suites use.
 */
#ifndef _CONSUMER_TWO_HOSTS_H
#define _CONSUMER_TWO_HOSTS_H

#include "pair.h"

#define HOSTS	2

int host_call(unsigned int index, int (*call)(void *arg), void *arg);

/**
 * struct opening - the argument of open_here()
 * @f: what is opened
 * @hints: of kfi_getinfo()
 */
struct opening {
	struct fixture	*f;
	struct kfi_info	*hints;
};

/* Opens a domain of the host that calls. Returns 0 or an error. */
static inline int open_here(void *arg)
{
	struct opening *opening = arg;
	struct fixture *f = opening->f;
	int ret = kfi_getinfo(KFI_VERSION(1, 7), NULL, NULL, 0, opening->hints, &f->info);

	if (ret)
		return ret;
	ret = kfi_fabric(f->info->fabric_attr, &f->fabric, f);
	if (ret)
		goto free;
	ret = kfi_domain(f->fabric, f->info, &f->domain, f);
	if (!ret)
		return 0;
	kfi_close(&f->fabric->fid);
free:
	kfi_freeinfo(f->info);
	return ret;
}

/*
 * Opens a domain on each host, from its first entry that fits the hints, which
 * @f[].info keeps. The test ends if that fails. fixture_close() closes each.
 */
static inline void hosts_open_with(struct kunit *test, struct fixture *f, struct kfi_info *hints)
{
	int i;

	for (i = 0; i < HOSTS; i++) {
		struct opening opening = { &f[i], hints };

		KUNIT_ASSERT_EQ_MSG(test, host_call(i, open_here, &opening), 0, "host %d", i);
	}
}

/* The same for endpoints of a type, with IPv4 addresses. */
static inline void hosts_open(struct kunit *test, struct fixture *f, enum kfi_ep_type type)
{
	struct kfi_info *hints = kfi_allocinfo();

	KUNIT_ASSERT_NOT_NULL(test, hints);
	hints->ep_attr->type = type;
	hints->addr_format = KFI_SOCKADDR_IN;
	hosts_open_with(test, f, hints);
	kfi_freeinfo(hints);
}

static inline void hosts_close(struct kunit *test, struct fixture *f)
{
	fixture_close(test, &f[0]);
	fixture_close(test, &f[1]);
}

/* Opens an end of a type on each host, which know each other. */
static inline void hosts_pair_open(struct kunit *test, struct fixture *f, enum kfi_ep_type type,
				   struct end *ends)
{
	int i;

	hosts_open(test, f, type);
	for (i = 0; i < HOSTS; i++)
		end_open_enabled(test, &f[i], f[i].info, &ends[i]);
	for (i = 0; i < HOSTS; i++)
		end_knows(test, &ends[i], &ends[!i]);
}

/**
 * struct connection - what two connected endpoints need besides
 * @pep: a passive endpoint of the second host
 * @eqs: events of each host
 */
struct connection {
	struct kfid_pep	*pep;
	struct kfid_eq	*eqs[HOSTS];
};

/* Waits for an event of a connection. Returns its entry. */
static inline struct kfi_info *connection_event(struct kunit *test, struct kfid_eq *eq, u32 number)
{
	struct {
		struct kfi_eq_cm_entry	head;
		u8			data[256];
	} entry = {};
	u32 got = 0;

	KUNIT_ASSERT_GE(test, kfi_eq_sread(eq, &got, &entry, sizeof(entry), LONG, 0),
			sizeof(entry.head));
	KUNIT_EXPECT_EQ(test, got, number);
	return entry.head.info;
}

/* Opens an end of each host, which are connected. The second host listens. */
static inline void hosts_connect(struct kunit *test, struct fixture *f, struct end *ends,
				 struct connection *connection)
{
	struct kfi_eq_attr attr = { .wait_obj = KFI_WAIT_UNSPEC };
	struct kfid_eq **eqs = connection->eqs;
	struct kfi_info *info;
	struct sockaddr_in addr;
	size_t len = sizeof(addr);
	int i;

	hosts_open(test, f, KFI_EP_MSG);
	for (i = 0; i < HOSTS; i++)
		KUNIT_ASSERT_EQ(test, kfi_eq_open(f[i].fabric, &attr, &eqs[i], NULL, NULL), 0);
	KUNIT_ASSERT_EQ(test, kfi_passive_ep(f[1].fabric, f[1].info, &connection->pep, NULL), 0);
	KUNIT_ASSERT_EQ(test, kfi_pep_bind(connection->pep, &eqs[1]->fid, 0), 0);
	KUNIT_ASSERT_EQ(test, kfi_listen(connection->pep), 0);
	KUNIT_ASSERT_EQ(test, kfi_getname(&connection->pep->fid, &addr, &len), 0);
	for (i = 0; i < HOSTS; i++) {
		/* That of the second host is of the request of the first one. */
		info = i ? connection_event(test, eqs[1], KFI_CONNREQ) : f[0].info;
		KUNIT_ASSERT_NOT_NULL(test, info);
		end_open(test, &f[i], info, &ends[i], 0);
		KUNIT_ASSERT_EQ(test, kfi_ep_bind(ends[i].ep, &eqs[i]->fid, 0), 0);
		KUNIT_ASSERT_EQ(test, kfi_enable(ends[i].ep), 0);
		if (i) {
			KUNIT_ASSERT_EQ(test, kfi_accept(ends[1].ep, NULL, 0), 0);
			kfi_freeinfo(info);
		} else {
			KUNIT_ASSERT_EQ(test, kfi_connect(ends[0].ep, &addr, NULL, 0), 0);
		}
	}
	for (i = 0; i < HOSTS; i++)
		connection_event(test, eqs[i], KFI_CONNECTED);
}

/* Closes it after its ends and before the hosts. Without a connection there is nothing to do. */
static inline void connection_close(struct kunit *test, struct connection *connection)
{
	int i;

	if (!connection->pep)
		return;
	KUNIT_EXPECT_EQ(test, kfi_close(&connection->pep->fid), 0);
	for (i = 0; i < HOSTS; i++)
		KUNIT_EXPECT_EQ(test, kfi_close(&connection->eqs[i]->fid), 0);
}

#endif /* _CONSUMER_TWO_HOSTS_H */
