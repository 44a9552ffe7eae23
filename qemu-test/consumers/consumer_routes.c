// SPDX-License-Identifier: GPL-2.0
/*
 * Transmits and connection requests to a peer that no route leads to, or from an
 * address that the link has lost, fail at once, and leave nothing behind. Over
 * IPv4 and IPv6.
 *
 * The suite changes addresses and routes by ip(8), in the namespace of the link.
 */

#include <linux/inet.h>
#include <linux/umh.h>
#include <kfi/kfi_atomic.h>
#include <kfi/kfi_rma.h>

#include "pair.h"

#define FAMILIES	2

/* An address of the loopback interface in each family, and one that comes and goes. */
static const char * const loopback[FAMILIES] = { "127.0.0.1", "::1" };
static const char * const moving[FAMILIES] = { "198.51.100.9", "2001:db8:9::9" };

/**
 * struct situation - where a peer is
 * @what: its name in messages
 * @to: the peer's address in each family
 * @rdm: the error of reliable datagrams
 * @other: the error of datagrams and of requests for connections
 */
struct situation {
	const char	*what;
	const char	*to[FAMILIES];
	int		rdm;
	int		other;
};

static const struct situation situations[] = {
	{ "no route", { "10.9.8.7", "2001:db8:ffff::1" }, -KFI_EHOSTUNREACH, -KFI_ENETUNREACH },
	{ "unreachable", { "198.18.1.1", "2001:db8:1::1" }, -KFI_EHOSTUNREACH, -KFI_EHOSTUNREACH },
	{ "prohibited", { "198.18.2.1", "2001:db8:2::1" }, -KFI_EHOSTUNREACH, -KFI_EHOSTUNREACH },
	{ "a blackhole", { "198.18.3.1", "2001:db8:3::1" }, -KFI_EHOSTUNREACH, -KFI_EHOSTUNREACH },
	{ "by another interface", { "198.18.4.2", "2001:db8:4::2" },
	  -KFI_EHOSTUNREACH, -KFI_ENETUNREACH },
	{ "an own address without a link", { "198.18.4.1", "2001:db8:4::1" },
	  -KFI_EHOSTUNREACH, -KFI_EHOSTUNREACH },
};

/* Runs a script of sh(1) with one argument. Returns 0 if it succeeds. */
static int run(const char *script, const char *arg)
{
	const char *argv[6] = { "/bin/sh", "-c", script, "sh", arg, NULL };
	const char *envp[2] = { "PATH=/sbin:/bin:/usr/sbin:/usr/bin", NULL };

	return call_usermodehelper(argv[0], (char **)argv, (char **)envp, UMH_WAIT_PROC);
}

/* Runs commands of ip(8), each ended by a newline. Returns 0 if all succeed. */
static int run_ip(const char *lines)
{
	return run("exec 2>/dev/null >&2; printf \"$1\" | ip -force -batch -", lines);
}

/*
 * Waits for the local route of an IPv6 address, which the kernel adds after the address. Gives up
 * after 20 s.
 */
static void until_local(struct kunit *test, const char *addr)
{
	KUNIT_ASSERT_EQ(test, run("for i in $(seq 200); do\n"
				  "ip -6 route show table local | grep -q \"^local $1 \" && exit\n"
				  "sleep 0.1\n"
				  "done; exit 1", addr), 0);
}

static void routes_del(void *unused)
{
	run_ip("link del other\n"
	       "route del 198.18.1.0/24\n"
	       "route del 198.18.2.0/24\n"
	       "route del 198.18.3.0/24\n"
	       "route del 2001:db8:1::/64\n"
	       "route del 2001:db8:2::/64\n"
	       "route del 2001:db8:3::/64\n");
}

/* Adds the routes of the situations until the test ends. */
static void routes_add(struct kunit *test)
{
	KUNIT_ASSERT_EQ(test, kunit_add_action_or_reset(test, routes_del, NULL), 0);
	KUNIT_ASSERT_EQ(test, run_ip("link add other type dummy\n"
				     "link set other up\n"
				     "address add 198.18.4.1/24 dev other\n"
				     "address add 2001:db8:4::1/64 dev other nodad\n"
				     "route add unreachable 198.18.1.0/24\n"
				     "route add prohibit 198.18.2.0/24\n"
				     "route add blackhole 198.18.3.0/24\n"
				     "route add unreachable 2001:db8:1::/64\n"
				     "route add prohibit 2001:db8:2::/64\n"
				     "route add blackhole 2001:db8:3::/64\n"), 0);
	until_local(test, "2001:db8:4::1");
}

static void moving_del(void *unused)
{
	run_ip("address del 198.51.100.9/32 dev lo\n"
	       "address del 2001:db8:9::9/128 dev lo\n");
}

/* Adds the moving addresses to the link. */
static void moving_add(struct kunit *test)
{
	KUNIT_ASSERT_EQ(test, run_ip("address add 198.51.100.9/32 dev lo\n"
				     "address add 2001:db8:9::9/128 dev lo nodad\n"), 0);
	until_local(test, moving[1]);
}

/* The same until the test ends. */
static void moving_add_until_end(struct kunit *test)
{
	KUNIT_ASSERT_EQ(test, kunit_add_action_or_reset(test, moving_del, NULL), 0);
	moving_add(test);
}

/* Parses an address; its port is 7471. */
static struct sockaddr_storage address(struct kunit *test, const char *text)
{
	struct sockaddr_storage addr = {};

	KUNIT_ASSERT_EQ(test, inet_pton_with_scope(&init_net, AF_UNSPEC, text, "7471", &addr), 0);
	return addr;
}

/* An entry for endpoints of a type at an address of this host. */
static struct kfi_info *entry_at(struct kunit *test, enum kfi_ep_type type, const char *node)
{
	struct kfi_info *hints = kfi_allocinfo(), *info = NULL;

	KUNIT_ASSERT_NOT_NULL(test, hints);
	hints->ep_attr->type = type;
	if (type != KFI_EP_DGRAM)
		hints->caps = KFI_MSG | KFI_RMA | KFI_ATOMIC;
	KUNIT_EXPECT_EQ(test, kfi_getinfo(0, node, "0", KFI_SOURCE, hints, &info), 0);
	kfi_freeinfo(hints);
	KUNIT_ASSERT_NOT_NULL(test, info);
	return info;
}

/* Opens two ends of a type at @node. The first one knows the other. */
static void ends_open(struct kunit *test, struct fixture *f, enum kfi_ep_type type,
		      const char *node, struct end *ends)
{
	struct kfi_info *info = entry_at(test, type, node);
	struct sockaddr_storage addr;
	size_t len = sizeof(addr);
	int i;

	fixture_open(test, f);
	for (i = 0; i < 2; i++)
		end_open_enabled(test, f, info, &ends[i]);
	kfi_freeinfo(info);
	KUNIT_ASSERT_EQ(test, kfi_getname(&ends[1].ep->fid, &addr, &len), 0);
	KUNIT_ASSERT_EQ(test, kfi_av_insert(ends[0].av, &addr, 1, &ends[0].peer, 0, NULL), 1);
}

/* An end has no completion, has counted @sent transmits, and no error. */
static void is_untouched(struct kunit *test, struct end *end, u64 sent)
{
	nothing(test, end);
	KUNIT_EXPECT_EQ(test, kfi_cntr_read(end->sent), sent);
	KUNIT_EXPECT_EQ(test, kfi_cntr_readerr(end->sent), 0);
}

/* Waits until an end has counted so many transmits. */
static void has_sent(struct kunit *test, struct end *end, u64 sent)
{
	KUNIT_EXPECT_EQ(test, kfi_cntr_wait(end->sent, sent, LONG), 0);
}

/* The errors of posts of @type. */
static void posts_of_type_are_refused(struct kunit *test, enum kfi_ep_type type, int family)
{
	struct end ends[2];
	struct fixture f;
	int i;

	ends_open(test, &f, type, loopback[family], ends);
	for (i = 0; i < ARRAY_SIZE(situations); i++) {
		const struct situation *s = &situations[i];
		struct sockaddr_storage addr = address(test, s->to[family]);
		int error = type == KFI_EP_RDM ? s->rdm : s->other;
		kfi_addr_t to;

		KUNIT_ASSERT_EQ(test, kfi_av_insert(ends[0].av, &addr, 1, &to, 0, NULL), 1);
		KUNIT_EXPECT_EQ_MSG(test, kfi_inject(ends[0].ep, "x", 1, to), error,
				    "%s, IPv%d", s->what, family ? 6 : 4);
		is_untouched(test, &ends[0], i);
		/* The endpoint goes on. */
		KUNIT_EXPECT_EQ(test, kfi_inject(ends[0].ep, "x", 1, ends[0].peer), 0);
		has_sent(test, &ends[0], i + 1);
	}
	for (i = 0; i < 2; i++)
		end_close(test, &ends[i]);
	fixture_close(test, &f);
}

static void posts_are_refused(struct kunit *test)
{
	int family;

	routes_add(test);
	for (family = 0; family < FAMILIES; family++) {
		posts_of_type_are_refused(test, KFI_EP_RDM, family);
		posts_of_type_are_refused(test, KFI_EP_DGRAM, family);
	}
}

/**
 * struct caller - an endpoint that asks for connections
 * @f: its domain
 * @info: the entry of its address
 * @eq: the events of the endpoint and of passive ones
 * @end: the endpoint
 */
struct caller {
	struct fixture	f;
	struct kfi_info	*info;
	struct kfid_eq	*eq;
	struct end	end;
};

static void caller_open(struct kunit *test, struct caller *c, const char *node)
{
	struct kfi_eq_attr attr = { .wait_obj = KFI_WAIT_UNSPEC };

	fixture_open(test, &c->f);
	c->info = entry_at(test, KFI_EP_MSG, node);
	KUNIT_ASSERT_EQ(test, kfi_eq_open(c->f.fabric, &attr, &c->eq, NULL, NULL), 0);
	end_open(test, &c->f, c->info, &c->end, 0);
	KUNIT_ASSERT_EQ(test, kfi_ep_bind(c->end.ep, &c->eq->fid, 0), 0);
}

static void caller_close(struct kunit *test, struct caller *c)
{
	kfi_freeinfo(c->info);
	end_close(test, &c->end);
	fixture_close_with(test, &c->f, c->eq);
}

/* Waits for event @number. Returns its info. */
static struct kfi_info *next_event(struct kunit *test, struct caller *c, u32 number)
{
	struct {
		struct kfi_eq_cm_entry	head;
		u8			data[256];
	} entry = {};
	u32 got = 0;

	KUNIT_ASSERT_GE(test, kfi_eq_sread(c->eq, &got, &entry, sizeof(entry), LONG, 0),
			sizeof(entry.head));
	KUNIT_EXPECT_EQ(test, got, number);
	return entry.head.info;
}

static void no_event(struct kunit *test, struct caller *c)
{
	struct kfi_eq_cm_entry entry;
	u32 event;

	KUNIT_EXPECT_EQ(test, kfi_eq_read(c->eq, &event, &entry, sizeof(entry), 0), -KFI_EAGAIN);
}

static void requests_are_refused(struct kunit *test)
{
	struct caller c;
	int family, i;

	routes_add(test);
	for (family = 0; family < FAMILIES; family++) {
		caller_open(test, &c, loopback[family]);
		for (i = 0; i < ARRAY_SIZE(situations); i++) {
			const struct situation *s = &situations[i];
			struct sockaddr_storage addr = address(test, s->to[family]);

			KUNIT_EXPECT_EQ_MSG(test, kfi_connect(c.end.ep, &addr, NULL, 0), s->other,
					    "%s, IPv%d", s->what, family ? 6 : 4);
			no_event(test, &c);
		}
		caller_close(test, &c);
	}
}

/* Every transmit of an end whose address the link has lost is refused. */
static void transmits_are_refused(struct kunit *test, enum kfi_ep_type type, struct end *end)
{
	const int gone = -KFI_EADDRNOTAVAIL;
	u64 *word = zeroed(test, sizeof(*word));
	struct kfid_ep *ep = end->ep;
	kfi_addr_t to = end->peer;

	KUNIT_EXPECT_EQ(test, kfi_inject(ep, "x", 1, to), gone);
	KUNIT_EXPECT_EQ(test, kfi_send(ep, word, 8, NULL, to, word), gone);
	if (type == KFI_EP_RDM) {
		KUNIT_EXPECT_EQ(test, kfi_write(ep, word, 8, NULL, to, 0, 1, word), gone);
		KUNIT_EXPECT_EQ(test, kfi_read(ep, word, 8, NULL, to, 0, 1, word), gone);
		KUNIT_EXPECT_EQ(test, kfi_atomic(ep, word, 1, NULL, to, 0, 1, KFI_UINT64, KFI_SUM,
						 word), gone);
	}
	is_untouched(test, end, 0);
}

/* Posts fail while the link has lost the address, and succeed when it is back. */
static void posts_need_the_own_address(struct kunit *test)
{
	static const enum kfi_ep_type types[] = { KFI_EP_RDM, KFI_EP_RDM, KFI_EP_DGRAM,
						  KFI_EP_DGRAM };
	struct end (*ends)[2] = zeroed(test, ARRAY_SIZE(types) * sizeof(*ends));
	struct fixture f[ARRAY_SIZE(types)];
	int i;

	moving_add_until_end(test);
	for (i = 0; i < ARRAY_SIZE(types); i++)
		ends_open(test, &f[i], types[i], moving[i % FAMILIES], ends[i]);
	moving_del(NULL);
	for (i = 0; i < ARRAY_SIZE(types); i++)
		transmits_are_refused(test, types[i], &ends[i][0]);
	moving_add(test);
	for (i = 0; i < ARRAY_SIZE(types); i++) {
		KUNIT_EXPECT_EQ(test, kfi_inject(ends[i][0].ep, "x", 1, ends[i][0].peer), 0);
		has_sent(test, &ends[i][0], 1);
		end_close(test, &ends[i][0]);
		end_close(test, &ends[i][1]);
		fixture_close(test, &f[i]);
	}
}

/**
 * struct service - what is at the moving address of a family
 * @c: requests connections
 * @pep: listens
 * @silent: a passive endpoint that listens later
 * @addr: the address of @pep
 * @asked: the info of the request
 * @answer: an endpoint for the request
 */
struct service {
	struct caller		c;
	struct kfid_pep		*pep;
	struct kfid_pep		*silent;
	struct sockaddr_storage	addr;
	struct kfi_info		*asked;
	struct end		answer;
};

static void service_open(struct kunit *test, struct service *s, const char *node)
{
	size_t len = sizeof(s->addr);

	caller_open(test, &s->c, node);
	KUNIT_ASSERT_EQ(test, kfi_enable(s->c.end.ep), 0);
	KUNIT_ASSERT_EQ(test, kfi_passive_ep(s->c.f.fabric, s->c.info, &s->pep, NULL), 0);
	KUNIT_ASSERT_EQ(test, kfi_pep_bind(s->pep, &s->c.eq->fid, 0), 0);
	KUNIT_ASSERT_EQ(test, kfi_listen(s->pep), 0);
	KUNIT_ASSERT_EQ(test, kfi_getname(&s->pep->fid, &s->addr, &len), 0);
	KUNIT_ASSERT_EQ(test, kfi_passive_ep(s->c.f.fabric, s->c.info, &s->silent, NULL), 0);
	KUNIT_ASSERT_EQ(test, kfi_pep_bind(s->silent, &s->c.eq->fid, 0), 0);
}

static void service_close(struct kunit *test, struct service *s)
{
	end_close(test, &s->answer);
	CLOSE(test, &s->silent->fid, &s->pep->fid);
	caller_close(test, &s->c);
}

/* Requests a connection, and opens an endpoint for the request. */
static void service_is_asked(struct kunit *test, struct service *s)
{
	KUNIT_ASSERT_EQ(test, kfi_connect(s->c.end.ep, &s->addr, NULL, 0), 0);
	s->asked = next_event(test, &s->c, KFI_CONNREQ);
	KUNIT_ASSERT_NOT_NULL(test, s->asked);
	end_open(test, &s->c.f, s->asked, &s->answer, 0);
	KUNIT_ASSERT_EQ(test, kfi_ep_bind(s->answer.ep, &s->c.eq->fid, 0), 0);
	KUNIT_ASSERT_EQ(test, kfi_enable(s->answer.ep), 0);
}

/* Accepts it. */
static void service_answers(struct kunit *test, struct service *s)
{
	KUNIT_EXPECT_EQ(test, kfi_accept(s->answer.ep, NULL, 0), 0);
	next_event(test, &s->c, KFI_CONNECTED);
	next_event(test, &s->c, KFI_CONNECTED);
	kfi_freeinfo(s->asked);
}

/* Listening, requests, answers and transmits fail without the address. */
static void connections_need_the_own_address(struct kunit *test)
{
	struct service *services = zeroed(test, FAMILIES * sizeof(*services));
	struct service *end = services + FAMILIES, *s;
	const int gone = -KFI_EADDRNOTAVAIL;
	int i;

	moving_add_until_end(test);
	for (i = 0; i < FAMILIES; i++)
		service_open(test, &services[i], moving[i]);
	moving_del(NULL);
	for (s = services; s < end; s++) {
		KUNIT_EXPECT_EQ(test, kfi_connect(s->c.end.ep, &s->addr, NULL, 0), gone);
		KUNIT_EXPECT_EQ(test, kfi_listen(s->silent), gone);
		no_event(test, &s->c);
	}
	moving_add(test);
	for (s = services; s < end; s++) {
		KUNIT_EXPECT_EQ(test, kfi_listen(s->silent), 0);
		service_is_asked(test, s);
	}
	moving_del(NULL);
	for (s = services; s < end; s++)
		KUNIT_EXPECT_EQ(test, kfi_accept(s->answer.ep, NULL, 0), gone);
	moving_add(test);
	/* The refused answer has not taken the request. */
	for (s = services; s < end; s++)
		service_answers(test, s);
	moving_del(NULL);
	for (s = services; s < end; s++) {
		KUNIT_EXPECT_EQ(test, kfi_inject(s->c.end.ep, "x", 1, KFI_ADDR_UNSPEC), gone);
		is_untouched(test, &s->c.end, 0);
		service_close(test, s);
	}
}

CONSUMER("routes",
	 KUNIT_CASE(posts_are_refused),
	 KUNIT_CASE(requests_are_refused),
	 KUNIT_CASE(posts_need_the_own_address),
	 KUNIT_CASE(connections_need_the_own_address));
