// SPDX-License-Identifier: GPL-2.0
/*
 * Address vectors of the type KFI_AV_TABLE: which value an address gets, and what
 * becomes of it (fi_av(3)).
 */

#include <linux/in6.h>

#include "pair.h"

/* Ports of addresses that nobody has. */
#define FIRST	40000

static struct sockaddr_in address(u16 port)
{
	return (struct sockaddr_in) {
		.sin_family = AF_INET,
		.sin_port = htons(port),
		.sin_addr.s_addr = htonl(0x0a000001),
	};
}

static struct kfid_av *open_table(struct kunit *test, struct fixture *f, int bits)
{
	struct kfi_av_attr attr = { .type = KFI_AV_TABLE, .rx_ctx_bits = bits, .count = 4 };
	struct kfid_av *av;

	KUNIT_ASSERT_EQ(test, kfi_av_open(f->domain, &attr, &av, NULL), 0);
	KUNIT_EXPECT_EQ(test, attr.type, KFI_AV_TABLE);
	return av;
}

/* The port of the address with this value, or the error. */
static int port(struct kfid_av *av, kfi_addr_t addr)
{
	struct sockaddr_in out = {};
	size_t len = sizeof(out);
	int ret = kfi_av_lookup(av, addr, &out, &len);

	return ret ? ret : ntohs(out.sin_port);
}

/* The values are indexes in the order of insertion, across all calls. */
static void values_follow_the_order(struct kunit *test)
{
	struct sockaddr_in in[2] = { address(FIRST), address(FIRST + 1) };
	struct kfid_av *av, *other;
	kfi_addr_t addr[2] = { 77, 77 };
	struct fixture f;
	int i;

	fixture_open(test, &f);
	av = open_table(test, &f, 0);
	KUNIT_EXPECT_EQ(test, port(av, 0), -KFI_ENOENT);
	KUNIT_EXPECT_EQ(test, kfi_av_insert(av, in, 2, addr, 0, NULL), 2);
	KUNIT_EXPECT_EQ(test, addr[0], 0);
	KUNIT_EXPECT_EQ(test, addr[1], 1);
	/* With a hint, and without room for the values. */
	in[0] = address(FIRST + 2);
	KUNIT_EXPECT_EQ(test, kfi_av_insert(av, in, 1, NULL, KFI_MORE, NULL), 1);
	KUNIT_EXPECT_EQ(test, kfi_av_insertsvc(av, "10.0.0.1", "40003", NULL, KFI_MORE, NULL), 1);
	KUNIT_EXPECT_EQ(test, kfi_av_insertsym(av, "10.0.0.1", 1, "40004", 2, NULL, 0, NULL), 2);
	KUNIT_EXPECT_EQ(test, kfi_av_insertsvc(av, "10.0.0.1", "40006", addr, 0, NULL), 1);
	KUNIT_EXPECT_EQ(test, addr[0], 6);
	for (i = 0; i < 7; i++)
		KUNIT_EXPECT_EQ(test, port(av, i), FIRST + i);
	KUNIT_EXPECT_EQ(test, port(av, 7), -KFI_ENOENT);
	/* Another table has its own. */
	other = open_table(test, &f, 8);
	KUNIT_EXPECT_EQ(test, kfi_av_insert(other, in, 1, addr, 0, NULL), 1);
	KUNIT_EXPECT_EQ(test, addr[0], 0);
	KUNIT_EXPECT_EQ(test, port(other, 0), FIRST + 2);
	KUNIT_EXPECT_EQ(test, port(other, KFI_ADDR_NOTAVAIL), -KFI_ENOENT);
	CLOSE(test, &other->fid, &av->fid);
	fixture_close(test, &f);
}

/* No address is a number of addresses, too. */
static void no_address_is_inserted(struct kunit *test)
{
	struct kfi_av_attr attr = { .type = KFI_AV_TABLE, .flags = KFI_EVENT };
	struct kfi_eq_entry entry = {};
	struct sockaddr_in in = address(FIRST);
	struct kfid_av *av;
	kfi_addr_t addr = 77;
	struct fixture f;
	struct kfid_eq *eq;
	u32 event = 0;
	int error = 5;

	fixture_open(test, &f);
	av = open_table(test, &f, 0);
	KUNIT_EXPECT_EQ(test, kfi_av_insert(av, &in, 0, &addr, 0, NULL), 0);
	KUNIT_EXPECT_EQ(test, kfi_av_insert(av, NULL, 0, NULL, KFI_SYNC_ERR, &error), 0);
	KUNIT_EXPECT_EQ(test, kfi_av_insert(av, &in, 0, &addr, KFI_READ, NULL), -KFI_EINVAL);
	KUNIT_EXPECT_EQ(test, kfi_av_insert(av, NULL, 1, &addr, 0, NULL), -KFI_EINVAL);
	KUNIT_EXPECT_EQ(test, addr, 77);
	KUNIT_EXPECT_EQ(test, error, 5);
	KUNIT_EXPECT_EQ(test, port(av, 0), -KFI_ENOENT);
	KUNIT_EXPECT_EQ(test, kfi_close(&av->fid), 0);
	/* Every insertion has one event, also if it inserts nothing. */
	KUNIT_ASSERT_EQ(test, kfi_eq_open(f.fabric, NULL, &eq, NULL, NULL), 0);
	KUNIT_ASSERT_EQ(test, kfi_av_open(f.domain, &attr, &av, NULL), 0);
	KUNIT_EXPECT_EQ(test, kfi_av_bind(av, &eq->fid, 0), 0);
	KUNIT_EXPECT_EQ(test, kfi_av_insert(av, &in, 0, &addr, 0, &in), 0);
	KUNIT_EXPECT_EQ(test, kfi_eq_read(eq, &event, &entry, sizeof(entry), 0), sizeof(entry));
	KUNIT_EXPECT_EQ(test, event, KFI_AV_COMPLETE);
	KUNIT_EXPECT_PTR_EQ(test, entry.context, (void *)&in);
	KUNIT_EXPECT_EQ(test, entry.data, 0);
	/* An event outlives its address vector. */
	KUNIT_EXPECT_EQ(test, kfi_av_insert(av, &in, 1, &addr, 0, &addr), 0);
	KUNIT_EXPECT_EQ(test, addr, 0);
	KUNIT_EXPECT_EQ(test, kfi_close(&av->fid), 0);
	KUNIT_EXPECT_EQ(test, kfi_eq_read(eq, &event, &entry, sizeof(entry), 0), sizeof(entry));
	KUNIT_EXPECT_EQ(test, event, KFI_AV_COMPLETE);
	KUNIT_EXPECT_PTR_EQ(test, entry.context, (void *)&addr);
	KUNIT_EXPECT_EQ(test, entry.data, 1);
	KUNIT_EXPECT_EQ(test, kfi_eq_read(eq, &event, &entry, sizeof(entry), 0), -KFI_EAGAIN);
	KUNIT_EXPECT_EQ(test, kfi_close(&eq->fid), 0);
	fixture_close(test, &f);
}

/* The text of an address of IPv6, and of one that is none. */
static void every_address_has_a_text(struct kunit *test)
{
	struct sockaddr_in6 six = {
		.sin6_family = AF_INET6,
		.sin6_port = htons(4791),
		.sin6_addr.s6_addr = { 0xfd, [15] = 9 },
	};
	struct sockaddr_in none = { .sin_family = AF_UNIX };
	char text[96] = "old";
	struct kfid_av *av;
	struct fixture f;
	size_t len;

	fixture_open(test, &f);
	av = open_table(test, &f, 0);
	len = sizeof(text);
	KUNIT_EXPECT_PTR_EQ(test, kfi_av_straddr(av, &six, text, &len), (const char *)text);
	KUNIT_EXPECT_NOT_NULL(test, strstr(text, "fd00::9"));
	KUNIT_EXPECT_NOT_NULL(test, strstr(text, "4791"));
	KUNIT_EXPECT_EQ(test, len, strlen(text) + 1);
	/* How much room it takes can be asked. */
	len = 0;
	kfi_av_straddr(av, &six, NULL, &len);
	KUNIT_EXPECT_EQ(test, len, strlen(text) + 1);
	len = sizeof(text);
	kfi_av_straddr(av, &none, text, &len);
	KUNIT_EXPECT_STREQ(test, text, "");
	KUNIT_EXPECT_EQ(test, kfi_close(&av->fid), 0);
	fixture_close(test, &f);
}

CONSUMER("tables of addresses",
	 KUNIT_CASE(values_follow_the_order),
	 KUNIT_CASE(no_address_is_inserted),
	 KUNIT_CASE(every_address_has_a_text));
