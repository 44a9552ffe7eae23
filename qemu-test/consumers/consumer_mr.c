// SPDX-License-Identifier: GPL-2.0
/*
 * Memory regions: kinds of memory, keys, what they are bound to, registration
 * with an event, and the atomics that a domain has.
 */

#include <linux/bvec.h>
#include <linux/scatterlist.h>

#include <kfi/kfi_atomic.h>
#include <kfi/kfi_rma.h>

#include "pair.h"

#define REMOTE	(KFI_REMOTE_READ | KFI_REMOTE_WRITE)
#define WRITTEN	(KFI_RMA | KFI_WRITE)
#define KEY	3

static void a_region_has_a_key_and_a_descriptor(struct kunit *test)
{
	void *buf = zeroed(test, 100);
	struct kfid_mr *mr, *other = NULL;
	struct fixture f;

	fixture_open(test, &f);
	KUNIT_ASSERT_EQ(test, kfi_mr_reg(f.domain, buf, 100, REMOTE, 0, 7, 0, &mr, test), 0);
	KUNIT_EXPECT_EQ(test, mr->fid.fclass, KFI_CLASS_MR);
	KUNIT_EXPECT_PTR_EQ(test, mr->fid.context, (void *)test);
	KUNIT_EXPECT_EQ(test, kfi_mr_key(mr), 7);
	KUNIT_EXPECT_EQ(test, mr->iova, 0);
	KUNIT_EXPECT_NOT_NULL(test, kfi_mr_desc(mr));
	/* A key names one region, and has 32 bits. */
	KUNIT_EXPECT_EQ(test, kfi_mr_reg(f.domain, buf, 1, REMOTE, 0, 7, 0, &other, NULL),
			-KFI_ENOKEY);
	KUNIT_EXPECT_EQ(test, kfi_mr_reg(f.domain, buf, 1, REMOTE, 0, 1ULL << 32, 0, &other, NULL),
			-KFI_EKEYREJECTED);
	KUNIT_EXPECT_NULL(test, other);
	KUNIT_EXPECT_EQ(test, kfi_close(&f.domain->fid), -KFI_EBUSY);
	KUNIT_EXPECT_EQ(test, kfi_close(&mr->fid), 0);
	/* The key is free again. Counted or not makes no difference. */
	KUNIT_ASSERT_EQ(test, kfi_mr_reg(f.domain, buf, 1, KFI_SEND, 0, 7, KFI_RMA_EVENT, &mr,
					 NULL), 0);
	KUNIT_EXPECT_EQ(test, kfi_close(&mr->fid), 0);
	fixture_close(test, &f);
}

static void arguments_are_checked(struct kunit *test)
{
	struct kfi_mr_attr attr = { .iov_count = 1, .access = KFI_SEND };
	void *buf = zeroed(test, 100);
	struct kfid_mr *mr = NULL;
	struct fixture f;
	char stack[8];

	fixture_open(test, &f);
#define REFUSED(buf, len, access, offset, flags, error) \
	KUNIT_EXPECT_EQ(test, kfi_mr_reg(f.domain, buf, len, access, offset, 0, flags, &mr, NULL), \
			error)
	REFUSED(buf, 100, 0, 0, 0, -KFI_EINVAL);
	REFUSED(buf, 100, KFI_SEND | KFI_MSG, 0, 0, -KFI_EINVAL);
	REFUSED(buf, 100, KFI_SEND, 1, 0, -KFI_EINVAL);
	REFUSED(buf, 100, KFI_SEND, 0, KFI_COMPLETION, -KFI_EBADFLAGS);
	REFUSED(buf, 0, KFI_SEND, 0, 0, -KFI_EINVAL);
	REFUSED(buf, SIZE_MAX, KFI_SEND, 0, 0, -KFI_EINVAL);
	REFUSED(NULL, 8, KFI_SEND, 0, 0, -EFAULT);
	REFUSED((void *)4096, 8, KFI_SEND, 0, 0, -EFAULT);
	REFUSED(stack, sizeof(stack), KFI_SEND, 0, 0, -KFI_EINVAL);
	KUNIT_EXPECT_EQ(test, kfi_mr_regv(f.domain, NULL, 1, KFI_SEND, 0, 0, 0, &mr, NULL),
			-KFI_EINVAL);
	KUNIT_EXPECT_EQ(test, kfi_mr_regv(f.domain, NULL, 0, KFI_SEND, 0, 0, 0, &mr, NULL),
			-KFI_EINVAL);
	KUNIT_EXPECT_EQ(test, kfi_mr_regattr(f.domain, &attr, 0, &mr), -KFI_EINVAL);
	attr.mr_iov = &(struct kvec){ buf, 8 };
	attr.type = KFI_SGL + 1;
	KUNIT_EXPECT_EQ(test, kfi_mr_regattr(f.domain, &attr, 0, &mr), -KFI_EINVAL);
	attr.type = KFI_KVEC;
	attr.auth_key_size = 1;
	KUNIT_EXPECT_EQ(test, kfi_mr_regattr(f.domain, &attr, 0, &mr), -KFI_EINVAL);
	KUNIT_EXPECT_NULL(test, mr);
	fixture_close(test, &f);
}

static void all_kinds_of_memory_are_registered(struct kunit *test)
{
	struct page *page = alloc_page(GFP_KERNEL);
	struct kfi_mr_attr attr = {
		.type = KFI_KVEC,
		.iov_count = 2,
		.access = REMOTE,
		.requested_key = 3,
		.context = test,
	};
	struct scatterlist sgl[2];
	struct bio_vec biov[2];
	struct kvec iov[2];
	struct kfid_mr *mr;
	struct fixture f;
	int before;

	KUNIT_ASSERT_NOT_NULL(test, page);
	iov[0] = (struct kvec){ page_address(page), 10 };
	iov[1] = (struct kvec){ page_address(page) + 100, 20 };
	bvec_set_page(&biov[0], page, 10, 0);
	bvec_set_page(&biov[1], page, 20, 100);
	sg_init_table(sgl, 2);
	sg_set_page(&sgl[0], page, 10, 0);
	sg_set_page(&sgl[1], page, 20, 100);
	before = page_count(page);
	fixture_open(test, &f);
#define MADE(result) do { \
	KUNIT_ASSERT_EQ(test, result, 0); \
	KUNIT_EXPECT_EQ(test, kfi_close(&mr->fid), 0); \
} while (0)
	MADE(kfi_mr_regv(f.domain, iov, 2, REMOTE, 0, 3, 0, &mr, NULL));
	MADE(kfi_mr_regbv(f.domain, biov, 2, REMOTE, 0, 3, 0, &mr, NULL));
	KUNIT_EXPECT_EQ(test, page_count(page), before);
	MADE(kfi_mr_regsgl(f.domain, sgl, 2, REMOTE, 0, 3, 0, &mr, NULL));
	attr.mr_iov = iov;
	MADE(kfi_mr_regattr(f.domain, &attr, 0, &mr));
	attr.type = KFI_BVEC;
	attr.mr_biov = biov;
	KUNIT_ASSERT_EQ(test, kfi_mr_regattr(f.domain, &attr, 0, &mr), 0);
	/* A region of pages holds a reference to each. */
	KUNIT_EXPECT_EQ(test, page_count(page), before + 2);
	KUNIT_EXPECT_PTR_EQ(test, mr->fid.context, (void *)test);
	KUNIT_EXPECT_EQ(test, kfi_close(&mr->fid), 0);
	attr.type = KFI_SGL;
	attr.mr_sgl = sgl;
	MADE(kfi_mr_regattr(f.domain, &attr, 0, &mr));
	/* Memory of kmalloc() has no page with a reference count. */
	bvec_set_virt(&biov[1], zeroed(test, PAGE_SIZE), PAGE_SIZE);
	KUNIT_ASSERT_EQ(test, kfi_mr_regbv(f.domain, biov, 2, REMOTE, 0, 3, 0, &mr, NULL), 0);
	KUNIT_EXPECT_EQ(test, page_count(page), before);
	KUNIT_EXPECT_EQ(test, kfi_close(&mr->fid), 0);
	KUNIT_EXPECT_EQ(test, page_count(page), before);
	fixture_close(test, &f);
	__free_page(page);
}

/* A peer writes to 10 bytes at the start of a page and to 20 further on, and to no others. */
static void pieces_are_written(struct kunit *test, struct end *end, u8 *page, u8 *from,
			       struct kfid_mr *mr)
{
	memset(page, 0, PAGE_SIZE);
	KUNIT_EXPECT_EQ(test, kfi_write(end->ep, from, 30, NULL, end->peer, 0, KEY, from), 0);
	completed(test, end, from, WRITTEN, 0);
	KUNIT_EXPECT_MEMEQ(test, page, from, 10);
	KUNIT_EXPECT_NULL(test, memchr_inv(page + 10, 0, 90));
	KUNIT_EXPECT_MEMEQ(test, page + 100, from + 10, 20);
	KUNIT_EXPECT_NULL(test, memchr_inv(page + 120, 0, PAGE_SIZE - 120));
	/* An offset goes on from one piece to the next, and ends at the last. */
	KUNIT_EXPECT_EQ(test, kfi_write(end->ep, from, 4, NULL, end->peer, 8, KEY, from), 0);
	completed(test, end, from, WRITTEN, 0);
	KUNIT_EXPECT_MEMEQ(test, page + 8, from, 2);
	KUNIT_EXPECT_MEMEQ(test, page + 100, from + 2, 2);
	KUNIT_EXPECT_EQ(test, kfi_write(end->ep, from, 2, NULL, end->peer, 29, KEY, from), 0);
	failed(test, end, from, KFI_EACCES);
	KUNIT_EXPECT_MEMEQ(test, page + 119, from + 29, 1);
	KUNIT_EXPECT_EQ(test, kfi_close(&mr->fid), 0);
}

static void pieces_of_memory_are_one_region(struct kunit *test)
{
	struct kfi_mr_attr attr = { .iov_count = 2, .access = REMOTE, .requested_key = KEY };
	struct page *page = alloc_page(GFP_KERNEL);
	u8 *from = zeroed(test, 30), *there;
	struct scatterlist sgl[2];
	struct bio_vec biov[2];
	struct kvec iov[2];
	struct end ends[2];
	struct kfid_mr *mr;
	struct fixture f;
	int i;

	KUNIT_ASSERT_NOT_NULL(test, page);
	there = page_address(page);
	for (i = 0; i < 30; i++)
		from[i] = 'A' + i;
	iov[0] = (struct kvec){ there, 10 };
	iov[1] = (struct kvec){ there + 100, 20 };
	bvec_set_page(&biov[0], page, 10, 0);
	bvec_set_page(&biov[1], page, 20, 100);
	sg_init_table(sgl, 2);
	sg_set_page(&sgl[0], page, 10, 0);
	sg_set_page(&sgl[1], page, 20, 100);
	pair_open(test, &f, KFI_EP_RDM, ends);
#define WRITTEN_TO(result) do { \
	KUNIT_ASSERT_EQ(test, result, 0); \
	pieces_are_written(test, &ends[0], there, from, mr); \
} while (0)
	WRITTEN_TO(kfi_mr_regv(f.domain, iov, 2, REMOTE, 0, KEY, 0, &mr, NULL));
	WRITTEN_TO(kfi_mr_regbv(f.domain, biov, 2, REMOTE, 0, KEY, 0, &mr, NULL));
	WRITTEN_TO(kfi_mr_regsgl(f.domain, sgl, 2, REMOTE, 0, KEY, 0, &mr, NULL));
	attr.type = KFI_KVEC;
	attr.mr_iov = iov;
	WRITTEN_TO(kfi_mr_regattr(f.domain, &attr, 0, &mr));
	attr.type = KFI_BVEC;
	attr.mr_biov = biov;
	WRITTEN_TO(kfi_mr_regattr(f.domain, &attr, 0, &mr));
	attr.type = KFI_SGL;
	attr.mr_sgl = sgl;
	WRITTEN_TO(kfi_mr_regattr(f.domain, &attr, 0, &mr));
	pair_close(test, &f, ends);
	__free_page(page);
}

static void the_mr_mode_gives_keys_and_addresses(struct kunit *test)
{
	struct page *page = alloc_page(GFP_KERNEL);
	void *buf = zeroed(test, 100);
	struct kfid_domain *domain;
	struct kfid_mr *mrs[2], *of_page;
	struct bio_vec biov;
	struct fixture f;

	KUNIT_ASSERT_NOT_NULL(test, page);
	bvec_set_page(&biov, page, 10, 0);
	fixture_open(test, &f);
	f.info->domain_attr->mr_mode = KFI_MR_VIRT_ADDR | KFI_MR_PROV_KEY;
	KUNIT_ASSERT_EQ(test, kfi_domain(f.fabric, f.info, &domain, NULL), 0);
	/* The requested key is not looked at. */
	KUNIT_ASSERT_EQ(test, kfi_mr_reg(domain, buf, 100, REMOTE, 0, ~0ULL, 0, &mrs[0], NULL), 0);
	KUNIT_ASSERT_EQ(test, kfi_mr_reg(domain, buf, 100, REMOTE, 0, ~0ULL, 0, &mrs[1], NULL), 0);
	KUNIT_ASSERT_EQ(test, kfi_mr_regbv(domain, &biov, 1, REMOTE, 0, 0, 0, &of_page, NULL), 0);
	KUNIT_EXPECT_EQ(test, mrs[0]->iova, (u64)buf);
	KUNIT_EXPECT_EQ(test, mrs[1]->iova, (u64)buf);
	KUNIT_EXPECT_EQ(test, of_page->iova, 0);
	KUNIT_EXPECT_NE(test, kfi_mr_key(mrs[0]), kfi_mr_key(mrs[1]));
	KUNIT_EXPECT_LE(test, kfi_mr_key(mrs[0]), U32_MAX);
	CLOSE(test, &mrs[0]->fid, &mrs[1]->fid, &of_page->fid, &domain->fid);
	fixture_close(test, &f);
	__free_page(page);
}

static void a_region_is_bound_to_counters_and_an_endpoint(struct kunit *test)
{
	void *buf = zeroed(test, 100);
	struct kfid_cntr *cntr;
	struct kfid_mr *mr;
	struct end ends[2];
	struct fixture f;

	pair_open(test, &f, KFI_EP_RDM, ends);
	cntr = open_cntr(test, &f, KFI_WAIT_UNSPEC, NULL, NULL);
	KUNIT_ASSERT_EQ(test, kfi_mr_reg(f.domain, buf, 100, REMOTE, 0, 7, 0, &mr, NULL), 0);
	KUNIT_EXPECT_EQ(test, kfi_mr_bind(mr, &cntr->fid, 0), -KFI_EINVAL);
	KUNIT_EXPECT_EQ(test, kfi_mr_bind(mr, &cntr->fid, KFI_REMOTE_READ | KFI_SEND),
			-KFI_EBADFLAGS);
	KUNIT_EXPECT_EQ(test, kfi_mr_bind(mr, &cntr->fid, KFI_REMOTE_READ), 0);
	KUNIT_EXPECT_EQ(test, kfi_mr_bind(mr, &cntr->fid, REMOTE), -KFI_EINVAL);
	KUNIT_EXPECT_EQ(test, kfi_mr_bind(mr, &cntr->fid, KFI_REMOTE_WRITE), 0);
	KUNIT_EXPECT_EQ(test, kfi_mr_bind(mr, &ends[0].ep->fid, KFI_SEND), -KFI_EBADFLAGS);
	KUNIT_EXPECT_EQ(test, kfi_mr_bind(mr, &ends[0].ep->fid, 0), 0);
	KUNIT_EXPECT_EQ(test, kfi_mr_bind(mr, &ends[1].ep->fid, 0), -KFI_EINVAL);
	KUNIT_EXPECT_EQ(test, kfi_mr_bind(mr, &ends[0].av->fid, 0), -KFI_EINVAL);
	KUNIT_EXPECT_EQ(test, kfi_mr_bind(mr, NULL, 0), -KFI_EINVAL);
	KUNIT_EXPECT_EQ(test, kfi_mr_enable(mr), 0);
	KUNIT_EXPECT_EQ(test, kfi_mr_key(mr), 7);
	KUNIT_EXPECT_EQ(test, kfi_close(&cntr->fid), -KFI_EBUSY);
	KUNIT_EXPECT_EQ(test, kfi_close(&ends[0].ep->fid), -KFI_EBUSY);
	CLOSE(test, &mr->fid, &cntr->fid);
	pair_close(test, &f, ends);
}

static void registration_is_told_to_an_event_queue(struct kunit *test)
{
	struct kfi_eq_attr attr = { .wait_obj = KFI_WAIT_UNSPEC };
	struct kfi_eq_entry entry;
	void *buf = zeroed(test, 100);
	struct kfid_mr *mr;
	struct kfid_eq *eq;
	struct fixture f;
	u32 event = 0;

	fixture_open(test, &f);
	KUNIT_ASSERT_EQ(test, kfi_eq_open(f.fabric, &attr, &eq, NULL, NULL), 0);
	KUNIT_EXPECT_EQ(test, kfi_domain_bind(f.domain, &eq->fid, KFI_SEND), -KFI_EINVAL);
	KUNIT_EXPECT_EQ(test, kfi_domain_bind(f.domain, &f.fabric->fid, KFI_REG_MR), -KFI_EINVAL);
	KUNIT_EXPECT_EQ(test, kfi_domain_bind(f.domain, NULL, 0), -KFI_EINVAL);
	KUNIT_ASSERT_EQ(test, kfi_domain_bind(f.domain, &eq->fid, KFI_REG_MR), 0);
	KUNIT_EXPECT_EQ(test, kfi_domain_bind(f.domain, &eq->fid, 0), -KFI_EINVAL);
	KUNIT_EXPECT_EQ(test, kfi_close(&eq->fid), -KFI_EBUSY);
	/* A registration that fails has no event. */
	KUNIT_EXPECT_EQ(test, kfi_mr_reg(f.domain, buf, 0, REMOTE, 0, 7, 0, &mr, NULL),
			-KFI_EINVAL);
	KUNIT_ASSERT_EQ(test, kfi_mr_reg(f.domain, buf, 100, REMOTE, 0, 7, 0, &mr, test), 0);
	KUNIT_EXPECT_EQ(test, kfi_eq_sread(eq, &event, &entry, sizeof(entry), LONG, 0),
			(ssize_t)sizeof(entry));
	KUNIT_EXPECT_EQ(test, event, KFI_MR_COMPLETE);
	KUNIT_EXPECT_PTR_EQ(test, entry.fid, &mr->fid);
	KUNIT_EXPECT_PTR_EQ(test, entry.context, (void *)test);
	KUNIT_EXPECT_EQ(test, kfi_eq_read(eq, &event, &entry, sizeof(entry), 0), -KFI_EAGAIN);
	KUNIT_EXPECT_EQ(test, kfi_close(&mr->fid), 0);
	fixture_close_with(test, &f, eq);
}

static void a_region_has_commands(struct kunit *test)
{
	void *buf = zeroed(test, 100);
	u64 base = 1, key = 0;
	struct kvec iov = { buf, 8 };
	struct kfid_mr *mr;
	struct fixture f;
	size_t len = 7;
	u8 raw[8];

	fixture_open(test, &f);
	KUNIT_ASSERT_EQ(test, kfi_mr_reg(f.domain, buf, 100, REMOTE, 0, 7, 0, &mr, NULL), 0);
	KUNIT_EXPECT_EQ(test, kfi_mr_refresh(mr, &iov, 1, 0), 0);
	KUNIT_EXPECT_EQ(test, kfi_mr_refresh(mr, &iov, 1, KFI_MORE), -KFI_EBADFLAGS);
	KUNIT_EXPECT_EQ(test, kfi_mr_refresh(mr, NULL, 1, 0), -KFI_EINVAL);
	/* A key as bytes is the key. */
	KUNIT_EXPECT_EQ(test, kfi_mr_raw_attr(mr, &base, raw, &len, 0), -KFI_ETOOSMALL);
	KUNIT_EXPECT_EQ(test, len, sizeof(raw));
	KUNIT_EXPECT_EQ(test, kfi_mr_raw_attr(mr, &base, raw, &len, KFI_MORE),
			-KFI_EBADFLAGS);
	KUNIT_EXPECT_EQ(test, kfi_mr_raw_attr(mr, NULL, raw, &len, 0), -KFI_EINVAL);
	KUNIT_EXPECT_EQ(test, kfi_mr_raw_attr(mr, &base, NULL, &len, 0), -KFI_EINVAL);
	KUNIT_EXPECT_EQ(test, kfi_mr_raw_attr(mr, &base, raw, &len, 0), 0);
	KUNIT_EXPECT_EQ(test, base, 0);
	KUNIT_EXPECT_EQ(test, kfi_mr_map_raw(f.domain, base, raw, len - 1, &key, 0), -KFI_EINVAL);
	KUNIT_EXPECT_EQ(test, kfi_mr_map_raw(f.domain, base, raw, len, &key, KFI_MORE),
			-KFI_EBADFLAGS);
	KUNIT_EXPECT_EQ(test, kfi_mr_map_raw(f.domain, base, raw, len, &key, 0), 0);
	KUNIT_EXPECT_EQ(test, key, 7);
	KUNIT_EXPECT_EQ(test, kfi_mr_unmap_key(f.domain, key), 0);
	KUNIT_EXPECT_EQ(test, kfi_control(&mr->fid, KFI_GETWAIT, &base), -KFI_ENOSYS);
	KUNIT_EXPECT_EQ(test, kfi_control(&f.domain->fid, KFI_GETWAIT, &base), -KFI_ENOSYS);
	KUNIT_EXPECT_EQ(test, kfi_close(&mr->fid), 0);
	fixture_close(test, &f);
}

static void a_domain_tells_its_atomics(struct kunit *test)
{
	struct kfi_atomic_attr attr = {};
	struct fixture f;

	fixture_open(test, &f);
#define HAS(datatype, op, bytes) do { \
	KUNIT_EXPECT_EQ(test, kfi_query_atomic(f.domain, datatype, op, &attr, 0), 0); \
	KUNIT_EXPECT_EQ(test, attr.size, bytes); \
	KUNIT_EXPECT_GE(test, attr.count, 1); \
} while (0)
	HAS(KFI_UINT8, KFI_SUM, 1);
	HAS(KFI_UINT64, KFI_SUM, 8);
	HAS(KFI_INT32, KFI_ATOMIC_READ, 4);
	HAS(KFI_UINT16, KFI_ATOMIC_WRITE, 2);
	HAS(KFI_UINT64, KFI_CSWAP, 8);
	HAS(KFI_UINT64, KFI_MSWAP, 8);
#define REFUSED_ATOMIC(datatype, op, attr, flags, error) \
	KUNIT_EXPECT_EQ(test, kfi_query_atomic(f.domain, datatype, op, attr, flags), error)
	attr.count = 5;
	REFUSED_ATOMIC(KFI_FLOAT, KFI_BOR, &attr, 0, -KFI_EOPNOTSUPP);
	REFUSED_ATOMIC(KFI_DATATYPE_LAST, KFI_SUM, &attr, 0, -KFI_EINVAL);
	REFUSED_ATOMIC(KFI_UINT8, KFI_ATOMIC_OP_LAST, &attr, 0, -KFI_EINVAL);
	REFUSED_ATOMIC(KFI_UINT8, KFI_SUM, &attr, KFI_MORE, -KFI_EINVAL);
	REFUSED_ATOMIC(KFI_UINT8, KFI_SUM, NULL, 0, -KFI_EINVAL);
	KUNIT_EXPECT_EQ(test, attr.count, 5);
	fixture_close(test, &f);
}

CONSUMER("memory regions",
	 KUNIT_CASE(a_region_has_a_key_and_a_descriptor),
	 KUNIT_CASE(arguments_are_checked),
	 KUNIT_CASE(all_kinds_of_memory_are_registered),
	 KUNIT_CASE(pieces_of_memory_are_one_region),
	 KUNIT_CASE(the_mr_mode_gives_keys_and_addresses),
	 KUNIT_CASE(a_region_is_bound_to_counters_and_an_endpoint),
	 KUNIT_CASE(registration_is_told_to_an_event_queue),
	 KUNIT_CASE(a_region_has_commands),
	 KUNIT_CASE(a_domain_tells_its_atomics));
