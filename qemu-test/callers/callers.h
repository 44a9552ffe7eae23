/* SPDX-License-Identifier: GPL-2.0 */
/*
 * verbs_callers.ko: what its tests have in common.
 */
#ifndef _VERBS_CALLERS_H
#define _VERBS_CALLERS_H

#include <linux/completion.h>
#include <rdma/ib_verbs.h>

/* Bytes of the memory of an end, and the notes of one. */
#define MEMORY	(4 * PAGE_SIZE)
#define NOTES	128

/* Rights for the peer. */
#define REMOTE	(IB_ACCESS_REMOTE_READ | IB_ACCESS_REMOTE_WRITE | \
		 IB_ACCESS_REMOTE_ATOMIC)

/* Ends the test with an error if the condition does not hold. */
#define CHECK(condition) do { \
	if (!(condition)) { \
		pr_info("%s:%d: not: %s\n", __func__, __LINE__, #condition); \
		return -EPROTO; \
	} \
} while (0)

/* The same with two numbers. */
#define CHECK_EQ(a, b) do { \
	long long _a = (a), _b = (b); \
	if (_a != _b) { \
		pr_info("%s:%d: %s is %lld, not %lld\n", __func__, __LINE__, \
			#a, _a, _b); \
		return -EPROTO; \
	} \
} while (0)

/**
 * struct note - what became of a work request
 * @cqe: what the work request names
 * @end: where it was posted
 * @done: completed with the work request
 * @wc: its entry
 * @number: of its entry among those of the CQ
 * @then: called with the entry, where the CQ is polled
 */
struct note {
	struct ib_cqe cqe;
	struct end *end;
	struct completion done;
	struct ib_wc wc;
	int number;
	void (*then)(struct note *note);
};

/**
 * struct end - one of two ends
 * @dev: its device
 * @gid: the address of the device
 * @gid_index: that of the address
 * @pd: its PD
 * @cq: its CQ
 * @srq: its SRQ, or NULL
 * @qp: its QP
 * @poll: how the CQ is polled
 * @memory: of the kernel
 * @notes: of work requests
 * @used: how many of them are
 * @count: entries of the CQ
 * @events: a bit for each number of an event of the QP or the SRQ
 */
struct end {
	struct ib_device *dev;
	union ib_gid gid;
	int gid_index;
	struct ib_pd *pd;
	struct ib_cq *cq;
	struct ib_srq *srq;
	struct ib_qp *qp;
	enum ib_poll_context poll;
	u8 *memory;
	struct note *notes;
	int used;
	atomic_t count;
	unsigned long events;
};

/**
 * struct pair - both ends
 * @a: the one that most tests begin with
 * @b: the other one
 */
struct pair {
	struct end a;
	struct end b;
};

/**
 * struct setup - what ends have
 * @type: of the QPs; RC without
 * @poll: how the CQs are polled
 * @pd_flags: of the PDs
 * @with_srq: end @b has an SRQ
 * @signal_all: all work requests are signalled
 * @in_rtr: the QP of end @b is not in RTS, but in RTR
 */
struct setup {
	enum ib_qp_type type;
	enum ib_poll_context poll;
	unsigned int pd_flags;
	bool with_srq;
	bool signal_all;
	bool in_rtr;
};

/* ends.c */
int pair_open(struct pair *pair, const struct setup *setup);
void pair_close(struct pair *pair);
void way_to(const struct end *end, const struct end *peer,
	    struct rdma_ah_attr *attr);
struct note *note_of(struct end *end);
const struct ib_wc *wc_of(struct note *note);
bool done_with(struct note *note, enum ib_wc_status status);
bool has_event(struct end *end, enum ib_event_type event);
int post(struct end *end, const struct ib_send_wr *wr);
int receive(struct end *end, struct note *note, void *addr, u32 length);
struct ib_sge part(const struct end *end, void *addr, u32 length);
void fill(u8 *memory, size_t length, u8 seed);
bool holds(const u8 *memory, size_t length, u8 seed);

/**
 * struct test - a test
 * @name: by which it is asked for
 * @setup: of the ends
 * @run: 0 if it passes
 */
struct test {
	const char *name;
	struct setup setup;
	int (*run)(struct pair *pair);
};

/* The tests of each file; the last one has no name. */
extern const struct test message_tests[];
extern const struct test queue_tests[];
extern const struct test context_tests[];
extern const struct test fast_tests[];
extern const struct test fast_error_tests[];

/* fast.c */

/**
 * struct region - a region for fast registration, and memory for it
 * @mr: the region
 * @pages: single pages
 * @sg: these
 * @count: how many
 * @reg: a work request that registers them
 * @inv: one that ends that
 */
struct region {
	struct ib_mr *mr;
	struct page **pages;
	struct scatterlist *sg;
	int count;
	struct ib_reg_wr reg;
	struct ib_send_wr inv;
};

int region_open(struct end *end, struct region *region, int count);
void region_close(struct region *region);
int region_map(struct end *end, struct region *region, int access);
bool region_holds(const struct region *region, size_t length, u8 seed);
void region_fill(struct region *region, size_t length, u8 seed);

#endif /* _VERBS_CALLERS_H */
