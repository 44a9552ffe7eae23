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
	for (i = 0; i < HOSTS; i++) {
		end_open(test, &f[i], f[i].info, &ends[i], 0);
		KUNIT_ASSERT_EQ(test, kfi_enable(ends[i].ep), 0);
	}
	for (i = 0; i < HOSTS; i++)
		end_knows(test, &ends[i], &ends[!i]);
}

static inline void hosts_pair_close(struct kunit *test, struct fixture *f, struct end *ends)
{
	end_close(test, &ends[0]);
	end_close(test, &ends[1]);
	hosts_close(test, f);
}

#endif /* _CONSUMER_TWO_HOSTS_H */
