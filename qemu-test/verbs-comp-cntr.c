// SPDX-License-Identifier: GPL-2.0
/*
 * verbs-comp-cntr: the nanoseconds of one operation, for the rows verbs/comp_cntr_*
 * of qemu-test/bench.
 *
 *	verbs-comp-cntr DEVICE SIDE
 *
 *	read	ibv_read_comp_cntr()
 *	call	getppid(), a system call
 *	mapped	a load of the counter's value, where kfdv_query_comp_cntr() says
 *	private	a load of memory of this process
 */

#include <err.h>
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#include <infiniband/verbs.h>
#include <infiniband/kfdv.h>

/* Operations of a run. */
#define LOADS	500000u
#define READS	100000u
#define CALLS	20000u

/* The value of the counter: a run fails if it is not what was read. */
#define VALUE	7u

static double now(void)
{
	struct timespec time;

	if (clock_gettime(CLOCK_MONOTONIC, &time))
		err(1, "clock_gettime");
	return time.tv_sec * 1e9 + time.tv_nsec;
}

/* Both sides of a row of loads run this code. */
static __attribute__((noinline)) double loads(const uint64_t *at)
{
	double began = now(), ended;
	uint64_t sum = 0;
	unsigned int i;

	for (i = 0; i < LOADS; i++)
		sum += __atomic_load_n(at, __ATOMIC_ACQUIRE);
	ended = now();
	if (sum != (uint64_t)LOADS * VALUE)
		errx(1, "the loads give another value");
	return (ended - began) / LOADS;
}

static double reads(struct ibv_comp_cntr *cntr)
{
	double began = now(), ended;
	uint64_t value = 0, sum = 0;
	unsigned int i;

	for (i = 0; i < READS; i++) {
		if (ibv_read_comp_cntr(cntr, &value))
			errx(1, "ibv_read_comp_cntr fails");
		sum += value;
	}
	ended = now();
	if (sum != (uint64_t)READS * VALUE)
		errx(1, "ibv_read_comp_cntr gives another value");
	return (ended - began) / READS;
}

static double calls(void)
{
	double began = now();
	unsigned int i;

	for (i = 0; i < CALLS; i++)
		getppid();
	return (now() - began) / CALLS;
}

static struct ibv_context *open_device(const char *name)
{
	struct ibv_device **list = ibv_get_device_list(NULL);
	struct ibv_context *context = NULL;
	int i;

	for (i = 0; list && list[i]; i++)
		if (!strcmp(ibv_get_device_name(list[i]), name))
			context = ibv_open_device(list[i]);
	if (!context)
		errx(1, "no device %s", name);
	ibv_free_device_list(list);
	return context;
}

int main(int argc, char **argv)
{
	struct ibv_comp_cntr_init_attr init = { .type = IBV_COMP_CNTR_TYPE_WRS };
	struct kfdv_comp_cntr places;
	struct ibv_context *context;
	struct ibv_comp_cntr *cntr;
	uint64_t *memory;
	double ns;

	if (argc != 3)
		errx(2, "usage: verbs-comp-cntr DEVICE read|call|mapped|private");
	context = open_device(argv[1]);
	cntr = ibv_create_comp_cntr(context, &init);
	if (!cntr)
		err(1, "ibv_create_comp_cntr");
	errno = ibv_inc_comp_cntr(cntr, VALUE);
	if (errno)
		err(1, "ibv_inc_comp_cntr");
	errno = kfdv_query_comp_cntr(cntr, &places, sizeof(places));
	if (errno)
		err(1, "kfdv_query_comp_cntr");
	if (!places.comp_count)
		errx(1, "the counter is not mapped");
	memory = malloc(sizeof(*memory));
	if (!memory)
		err(1, "malloc");
	*memory = VALUE;

	if (!strcmp(argv[2], "read"))
		ns = reads(cntr);
	else if (!strcmp(argv[2], "call"))
		ns = calls();
	else if (!strcmp(argv[2], "mapped"))
		ns = loads(places.comp_count);
	else if (!strcmp(argv[2], "private"))
		ns = loads(memory);
	else
		errx(2, "no side %s", argv[2]);
	printf("%f\n", ns);

	free(memory);
	errno = ibv_destroy_comp_cntr(cntr);
	if (errno || ibv_close_device(context))
		err(1, "the end");
	return 0;
}
