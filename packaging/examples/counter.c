// SPDX-License-Identifier: GPL-2.0
/*
 * counter [LINK]: a counter of /dev/kfabric in C, with nothing but the header.
 *
 *	cc -Wall counter.c -o ~/counter && ~/counter lo
 *
 * LINK is the name of a link (kfi link show), by default lo. The value is read
 * from memory that the kernel module shares, without a system call.
 */
#include <err.h>
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/mman.h>
#include <unistd.h>

#include <kfabric.h>

static void call(int fd, unsigned long command, void *argument, const char *what)
{
	if (ioctl(fd, command, argument))
		err(1, "%s", what);	/* an errno above 255 is one of KFI_E* */
}

int main(int argc, char **argv)
{
	struct kfabric_fabric_open fabric = { .size = sizeof(fabric) };
	struct kfabric_domain_open domain = { .size = sizeof(domain) };
	struct kfabric_cntr_open cntr = { .size = sizeof(cntr), .wait_obj = KFI_WAIT_QUEUE };
	struct kfabric_cntr_modify add = { .size = sizeof(add), .what = KFABRIC_CNTR_ADD };
	struct kfabric_cntr_wait wait = { .size = sizeof(wait) };
	const struct kfabric_cntr_values *values;
	const char *link = argc > 1 ? argv[1] : "lo";
	int fd = open(KFABRIC_DEVICE, O_RDWR | O_CLOEXEC);

	if (fd < 0)
		err(1, "%s", KFABRIC_DEVICE);
	if (strlen(link) >= sizeof(domain.link))
		errx(1, "the name of a link has at most %zu characters", sizeof(domain.link) - 1);

	call(fd, KFABRIC_IOC_FABRIC_OPEN, &fabric, "fabric");
	domain.fabric = fabric.handle;
	memcpy(domain.link, link, strlen(link) + 1);
	call(fd, KFABRIC_IOC_DOMAIN_OPEN, &domain, link);
	cntr.domain = domain.handle;
	call(fd, KFABRIC_IOC_CNTR_OPEN, &cntr, "counter");
	values = mmap(NULL, sysconf(_SC_PAGESIZE), PROT_READ, MAP_SHARED, fd, cntr.page_offset);
	if (values == MAP_FAILED)
		err(1, "mmap");

	add.cntr = cntr.handle;
	add.value = 3;
	call(fd, KFABRIC_IOC_CNTR_MODIFY, &add, "add");

	wait.cntr = cntr.handle;
	wait.threshold = 3;
	wait.deadline = KFABRIC_FOREVER;
	call(fd, KFABRIC_IOC_CNTR_WAIT, &wait, "wait");

	printf("the counter is at %llu\n",
	       (unsigned long long)__atomic_load_n(&values->value, __ATOMIC_ACQUIRE));
	return 0;
}
