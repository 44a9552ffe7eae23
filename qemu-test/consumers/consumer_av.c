// SPDX-License-Identifier: GPL-2.0
/*
 * Address vectors: inserting, looking up, removing, and the text of an address.
 */

#include <linux/in.h>
#include <linux/inet.h>

#include "fixture.h"

static struct sockaddr_in address(u32 ip, u16 port)
{
	return (struct sockaddr_in) {
		.sin_family = AF_INET,
		.sin_port = htons(port),
		.sin_addr.s_addr = htonl(ip),
	};
}

static struct kfid_av *open_av(struct kunit *test, struct fixture *f,
			       enum kfi_av_type type)
{
	struct kfi_av_attr attr = { .type = type };
	struct kfid_av *av;

	KUNIT_ASSERT_EQ(test, kfi_av_open(f->domain, &attr, &av, f), 0);
	KUNIT_EXPECT_NE(test, attr.type, KFI_AV_UNSPEC);
	KUNIT_EXPECT_EQ(test, av->fid.fclass, KFI_CLASS_AV);
	KUNIT_EXPECT_PTR_EQ(test, av->fid.context, (void *)f);
	KUNIT_EXPECT_EQ(test, av->ops->size, sizeof(struct kfi_ops_av));
	return av;
}

/* Addresses go in, are found, and go. */
static void addresses_are_inserted_and_removed(struct kunit *test)
{
	struct sockaddr_in in[2] = { address(0x0a000001, 7), address(0x0a000002, 8) };
	struct sockaddr_in out;
	size_t len = sizeof(out);
	kfi_addr_t addr[2];
	struct kfid_av *av;
	struct fixture f;

	fixture_open(test, &f);
	av = open_av(test, &f, KFI_AV_UNSPEC);
	KUNIT_EXPECT_EQ(test, kfi_close(&f.domain->fid), -EBUSY);
	KUNIT_ASSERT_EQ(test, kfi_av_insert(av, in, 2, addr, 0, NULL), 2);
	KUNIT_EXPECT_NE(test, addr[0], addr[1]);
	memset(&out, 0xff, sizeof(out));
	KUNIT_EXPECT_EQ(test, kfi_av_lookup(av, addr[1], &out, &len), 0);
	KUNIT_EXPECT_EQ(test, len, sizeof(out));
	KUNIT_EXPECT_MEMEQ(test, &out, &in[1], sizeof(out));
	len = 4;
	memset(&out, 0xff, sizeof(out));
	KUNIT_EXPECT_EQ(test, kfi_av_lookup(av, addr[1], &out, &len),
			-KFI_ETOOSMALL);
	KUNIT_EXPECT_EQ(test, len, sizeof(out));
	KUNIT_EXPECT_EQ(test, out.sin_port, htons(8));
	KUNIT_EXPECT_EQ(test, out.sin_addr.s_addr, 0xffffffff);
	KUNIT_EXPECT_EQ(test, kfi_av_remove(av, addr, 2, 1), -EINVAL);
	KUNIT_EXPECT_EQ(test, kfi_av_remove(av, addr, 0, 0), -EINVAL);
	KUNIT_EXPECT_EQ(test, kfi_av_remove(av, addr, 2, 0), 0);
	KUNIT_EXPECT_EQ(test, kfi_av_remove(av, addr, 1, 0), -ENOENT);
	KUNIT_EXPECT_EQ(test, kfi_av_lookup(av, addr[0], &out, &len), -ENOENT);
	KUNIT_EXPECT_EQ(test, kfi_close(&av->fid), 0);
	fixture_close(test, &f);
}

/* A bad address among good ones has an error of its own. */
static void each_address_has_its_result(struct kunit *test)
{
	struct sockaddr_in in[2] = { address(0x0a000001, 7), address(0x0a000002, 8) };
	kfi_addr_t addr[2];
	int errors[2] = { -1, -1 };
	struct kfid_av *av;
	struct fixture f;

	fixture_open(test, &f);
	av = open_av(test, &f, KFI_AV_MAP);
	in[1].sin_family = AF_UNIX;
	KUNIT_EXPECT_EQ(test, kfi_av_insert(av, in, 2, addr, KFI_SYNC_ERR, errors), 1);
	KUNIT_EXPECT_EQ(test, errors[0], 0);
	KUNIT_EXPECT_EQ(test, errors[1], EINVAL);
	KUNIT_EXPECT_EQ(test, addr[1], KFI_ADDR_NOTAVAIL);
	KUNIT_EXPECT_EQ(test, kfi_av_insert(av, &in[1], 1, addr, 0, NULL), -EINVAL);
	KUNIT_EXPECT_EQ(test, kfi_av_insert(av, in, 1, addr, KFI_SYNC_ERR, NULL), -EINVAL);
	KUNIT_EXPECT_EQ(test, kfi_av_insert(av, in, 1, NULL, 0, NULL), -EINVAL);
	KUNIT_EXPECT_EQ(test, kfi_av_insert(av, NULL, 1, addr, 0, NULL), -EINVAL);
	KUNIT_EXPECT_EQ(test, kfi_av_insert(av, in, 1, addr, KFI_READ, NULL), -EINVAL);
	KUNIT_EXPECT_EQ(test, kfi_close(&av->fid), 0);
	fixture_close(test, &f);
}

/* Addresses as text, in and out. */
static void addresses_have_a_text(struct kunit *test)
{
	struct sockaddr_in want = address(0x0a000003, 9);
	struct sockaddr_in out;
	size_t len = sizeof(out);
	char text[128], part[4];
	struct kfid_av *av;
	kfi_addr_t addr;
	struct fixture f;

	fixture_open(test, &f);
	av = open_av(test, &f, KFI_AV_TABLE);
	KUNIT_ASSERT_EQ(test, kfi_av_insertsvc(av, "10.0.0.3", "9", &addr, 0, NULL), 1);
	KUNIT_EXPECT_EQ(test, kfi_av_lookup(av, addr, &out, &len), 0);
	KUNIT_EXPECT_MEMEQ(test, &out, &want, len);
	KUNIT_EXPECT_LT(test, kfi_av_insertsvc(av, "no address", "9", &addr, 0, NULL), 0);
	KUNIT_EXPECT_EQ(test, addr, KFI_ADDR_NOTAVAIL);
	len = sizeof(text);
	KUNIT_EXPECT_PTR_EQ(test, kfi_av_straddr(av, &want, text, &len),
			    (const char *)text);
	KUNIT_EXPECT_EQ(test, len, strlen(text) + 1);
	KUNIT_EXPECT_NOT_NULL(test, strstr(text, "10.0.0.3"));
	len = sizeof(part);
	kfi_av_straddr(av, &want, part, &len);
	KUNIT_EXPECT_EQ(test, len, strlen(text) + 1);
	KUNIT_EXPECT_EQ(test, strlen(part), sizeof(part) - 1);
	KUNIT_EXPECT_EQ(test, kfi_close(&av->fid), 0);
	fixture_close(test, &f);
}

/* Consecutive nodes, with consecutive services each. */
static void rows_are_inserted(struct kunit *test)
{
	static const char * const first = "10.0.0.255";
	struct sockaddr_in out;
	size_t len = sizeof(out);
	kfi_addr_t addr[6];
	int errors[6], i;
	struct kfid_av *av;
	struct fixture f;

	fixture_open(test, &f);
	av = open_av(test, &f, KFI_AV_MAP);
	memset(errors, 0xff, sizeof(errors));
	KUNIT_EXPECT_EQ(test, kfi_av_insertsym(av, first, 2, "5000", 3, addr, KFI_SYNC_ERR, errors),
			6);
	for (i = 0; i < 6; i++) {
		struct sockaddr_in want = address(0x0a0000ff + i / 3, 5000 + i % 3);

		KUNIT_EXPECT_EQ(test, errors[i], 0);
		KUNIT_EXPECT_EQ(test, kfi_av_lookup(av, addr[i], &out, &len), 0);
		KUNIT_EXPECT_MEMEQ(test, &out, &want, sizeof(want));
	}
	addr[0] = 77;
#define REFUSED(node, nodes, service, services) \
	KUNIT_EXPECT_EQ(test, kfi_av_insertsym(av, node, nodes, service, services, addr, 0, \
					       NULL), -KFI_EINVAL)
	/* No node, a name, the end of the ports, of the addresses, of the table. */
	REFUSED(NULL, 1, "1", 1);
	REFUSED("host10", 1, "1", 1);
	REFUSED(first, 1, "http", 1);
	REFUSED(first, 0, "1", 1);
	REFUSED(first, 1, "1", 0);
	REFUSED(first, 1, "65535", 2);
	REFUSED("255.255.255.255", 2, "1", 1);
	REFUSED(first, 65537, "1", 1);
	REFUSED(first, SIZE_MAX, "1", 2);
	KUNIT_EXPECT_EQ(test, kfi_av_insertsym(av, first, 1, "1", 1, NULL, 0, NULL), -KFI_EINVAL);
	KUNIT_EXPECT_EQ(test, kfi_av_insertsym(av, first, 1, "1", 1, addr, KFI_SYNC_ERR, NULL),
			-KFI_EINVAL);
	KUNIT_EXPECT_EQ(test, addr[0], 77);
	KUNIT_EXPECT_EQ(test, kfi_close(&av->fid), 0);
	/* The values of a table follow from the order. */
	av = open_av(test, &f, KFI_AV_TABLE);
	KUNIT_EXPECT_EQ(test, kfi_av_insertsym(av, "fd00::1", 300, "9", 2, NULL, 0, NULL), 600);
	KUNIT_EXPECT_EQ(test, kfi_av_lookup(av, 600, &out, &len), -KFI_ENOENT);
	KUNIT_EXPECT_EQ(test, kfi_close(&av->fid), 0);
	fixture_close(test, &f);
}

/* The upper bits name a receive context: the first is the peer itself. */
static void contexts_have_addresses(struct kunit *test)
{
	struct kfi_av_attr attr = { .rx_ctx_bits = 8 };
	struct sockaddr_in in = address(0x0a000001, 7), out;
	enum kfi_av_type type;
	kfi_addr_t addr, other;
	struct kfid_av *av;
	struct fixture f;
	size_t len;

	fixture_open(test, &f);
	for (type = KFI_AV_MAP; type <= KFI_AV_TABLE; type++) {
		attr.type = type;
		KUNIT_ASSERT_EQ(test, kfi_av_open(f.domain, &attr, &av, NULL), 0);
		KUNIT_ASSERT_EQ(test, kfi_av_insert(av, &in, 1, &addr, 0, NULL), 1);
		len = sizeof(out);
		KUNIT_EXPECT_EQ(test, kfi_rx_addr(addr, 0, 8), addr);
		KUNIT_EXPECT_EQ(test, kfi_av_lookup(av, kfi_rx_addr(addr, 0, 8), &out, &len), 0);
		/* All contexts of a peer have the address that was inserted. */
		KUNIT_EXPECT_EQ(test, kfi_av_lookup(av, kfi_rx_addr(addr, 255, 8), &out, &len), 0);
		KUNIT_EXPECT_MEMEQ(test, &out, &in, 8);
		other = kfi_rx_addr(addr, 1, 8);
		KUNIT_EXPECT_EQ(test, kfi_av_remove(av, &other, 1, 0), -ENOENT);
		KUNIT_EXPECT_EQ(test, kfi_av_lookup(av, kfi_rx_addr(addr + 1, 1, 8), &out, &len),
				-ENOENT);
		KUNIT_EXPECT_EQ(test, kfi_close(&av->fid), 0);
	}
	fixture_close(test, &f);
}

/* The results of insertions are events. */
static void insertions_are_reported(struct kunit *test)
{
	struct sockaddr_in in[2] = { address(0x0a000001, 7), address(0x0a000002, 8) };
	struct kfi_av_attr attr = { .flags = KFI_EVENT };
	struct kfi_eq_err_entry error = {};
	struct kfi_eq_entry entry = {};
	kfi_addr_t addr[2];
	int errors[2];
	struct kfid_eq *eq, *alien;
	struct fixture f, other;
	struct kfid_av *av;
	u32 event = 0;

	fixture_open(test, &f);
	fixture_open(test, &other);
	KUNIT_ASSERT_EQ(test, kfi_eq_open(f.fabric, NULL, &eq, NULL, NULL), 0);
	KUNIT_ASSERT_EQ(test, kfi_eq_open(other.fabric, NULL, &alien, NULL, NULL), 0);
	KUNIT_ASSERT_EQ(test, kfi_av_open(f.domain, &attr, &av, NULL), 0);
	KUNIT_EXPECT_EQ(test, kfi_av_insert(av, in, 1, addr, 0, NULL), -KFI_ENOEQ);
	KUNIT_EXPECT_EQ(test, kfi_av_bind(av, NULL, 0), -EINVAL);
	KUNIT_EXPECT_EQ(test, kfi_av_bind(av, &f.domain->fid, 0), -EINVAL);
	KUNIT_EXPECT_EQ(test, kfi_av_bind(av, &alien->fid, 0), -EINVAL);
	KUNIT_EXPECT_EQ(test, kfi_av_bind(av, &eq->fid, 1), -EINVAL);
	KUNIT_EXPECT_EQ(test, kfi_av_bind(av, &eq->fid, 0), 0);
	KUNIT_EXPECT_EQ(test, kfi_av_bind(av, &eq->fid, 0), -EINVAL);
	KUNIT_EXPECT_EQ(test, kfi_close(&eq->fid), -EBUSY);
	/* An array of errors is for insertions without events. */
	KUNIT_EXPECT_EQ(test, kfi_av_insert(av, in, 1, addr, KFI_SYNC_ERR, errors), -EINVAL);

	in[1].sin_family = AF_UNIX;
	KUNIT_EXPECT_EQ(test, kfi_av_insert(av, in, 2, addr, 0, &in), 0);
	KUNIT_EXPECT_EQ(test, addr[1], KFI_ADDR_NOTAVAIL);
	KUNIT_EXPECT_EQ(test, kfi_eq_read(eq, &event, &entry, sizeof(entry), 0), -KFI_EAVAIL);
	KUNIT_EXPECT_EQ(test, kfi_eq_readerr(eq, &error, KFI_PEEK), sizeof(error));
	memset(&error, 0xff, sizeof(error));
	error.err_data_size = 0;
	KUNIT_EXPECT_EQ(test, kfi_eq_readerr(eq, &error, 0), sizeof(error));
	KUNIT_EXPECT_PTR_EQ(test, error.fid, &av->fid);
	KUNIT_EXPECT_PTR_EQ(test, error.context, (void *)&in);
	KUNIT_EXPECT_EQ(test, error.data, 1);
	KUNIT_EXPECT_EQ(test, error.err, EINVAL);
	KUNIT_EXPECT_NULL(test, error.err_data);
	KUNIT_EXPECT_EQ(test, kfi_eq_readerr(eq, &error, 0), -KFI_EAGAIN);
	KUNIT_EXPECT_EQ(test, kfi_eq_read(eq, &event, &entry, sizeof(entry) - 1, 0),
			-KFI_ETOOSMALL);
	KUNIT_EXPECT_EQ(test, kfi_eq_read(eq, &event, &entry, sizeof(entry), 0), sizeof(entry));
	KUNIT_EXPECT_EQ(test, event, KFI_AV_COMPLETE);
	KUNIT_EXPECT_PTR_EQ(test, entry.fid, &av->fid);
	KUNIT_EXPECT_PTR_EQ(test, entry.context, (void *)&in);
	KUNIT_EXPECT_EQ(test, entry.data, 1);

	KUNIT_EXPECT_EQ(test, kfi_av_insertsvc(av, "10.0.0.3", "9", addr, 0, &f), 0);
	KUNIT_EXPECT_EQ(test, kfi_eq_read(eq, &event, &entry, sizeof(entry), 0), sizeof(entry));
	KUNIT_EXPECT_PTR_EQ(test, entry.context, (void *)&f);
	KUNIT_EXPECT_EQ(test, entry.data, 1);
	KUNIT_EXPECT_EQ(test, kfi_av_insertsym(av, "10.0.0.3", 2, "9", 1, addr, 0, &f), 0);
	KUNIT_EXPECT_EQ(test, kfi_eq_read(eq, &event, &entry, sizeof(entry), 0), sizeof(entry));
	KUNIT_EXPECT_EQ(test, entry.data, 2);
	CLOSE(test, &av->fid, &eq->fid, &alien->fid);
	fixture_close(test, &other);
	fixture_close(test, &f);
}

/* What an address vector cannot have is refused. */
static void attributes_are_checked(struct kunit *test)
{
	struct kfi_av_attr contexts = { .rx_ctx_bits = 17 };
	struct kfi_av_attr named = { .name = "shared" };
	struct kfi_av_attr mapped = { .map_addr = &named };
	struct kfi_av_attr flags = { .flags = KFI_READ };
	struct kfi_av_attr many = { .count = SIZE_MAX };
	struct kfi_av_attr type = { .type = 77 };
	struct kfid_av *av;
	struct fixture f;

	fixture_open(test, &f);
	KUNIT_EXPECT_EQ(test, kfi_av_open(f.domain, &contexts, &av, NULL), -EINVAL);
	/* There are no shared ones. */
	KUNIT_EXPECT_EQ(test, kfi_av_open(f.domain, &named, &av, NULL), -KFI_ENOSYS);
	KUNIT_EXPECT_EQ(test, kfi_av_open(f.domain, &mapped, &av, NULL), -KFI_ENOSYS);
	KUNIT_EXPECT_EQ(test, kfi_av_open(f.domain, &flags, &av, NULL), -EINVAL);
	KUNIT_EXPECT_EQ(test, kfi_av_open(f.domain, &many, &av, NULL), -EINVAL);
	KUNIT_EXPECT_EQ(test, kfi_av_open(f.domain, &type, &av, NULL), -EINVAL);
	KUNIT_ASSERT_EQ(test, kfi_av_open(f.domain, NULL, &av, NULL), 0);
	KUNIT_EXPECT_EQ(test, kfi_av_bind(av, &f.domain->fid, 0), -EINVAL);
	KUNIT_EXPECT_EQ(test, kfi_close(&av->fid), 0);
	fixture_close(test, &f);
}

CONSUMER("address vectors",
	 KUNIT_CASE(addresses_are_inserted_and_removed),
	 KUNIT_CASE(each_address_has_its_result),
	 KUNIT_CASE(addresses_have_a_text),
	 KUNIT_CASE(rows_are_inserted),
	 KUNIT_CASE(contexts_have_addresses),
	 KUNIT_CASE(insertions_are_reported),
	 KUNIT_CASE(attributes_are_checked));
