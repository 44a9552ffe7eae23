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
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/mman.h>
#include <unistd.h>

#include <kfabric.h>

/* The meaning of an errno; the C library does not know those above 255. */
static const char *text(int error)
{
	switch (error) {
	case KFI_EOTHER:	return "KFI_EOTHER: unspecified error";
	case KFI_ETOOSMALL:	return "KFI_ETOOSMALL: the buffer is too small";
	case KFI_EOPBADSTATE:	return "KFI_EOPBADSTATE: the state does not allow it";
	case KFI_EAVAIL:	return "KFI_EAVAIL: an error entry must be read first";
	case KFI_EBADFLAGS:	return "KFI_EBADFLAGS: flags that are not supported";
	case KFI_ENOEQ:		return "KFI_ENOEQ: no event queue is bound";
	case KFI_EDOMAIN:	return "KFI_EDOMAIN: objects of different domains";
	case KFI_ENOCQ:		return "KFI_ENOCQ: no completion queue is bound";
	case KFI_ECRC:		return "KFI_ECRC: checksum error";
	case KFI_ETRUNC:	return "KFI_ETRUNC: the message was truncated";
	case KFI_ENOKEY:	return "KFI_ENOKEY: the key is not available";
	case KFI_ENOAV:		return "KFI_ENOAV: no address vector is bound";
	case KFI_EOVERRUN:	return "KFI_EOVERRUN: the queue was overrun";
	default:		return strerror(error);
	}
}

static void call(int fd, unsigned long command, void *argument, const char *what)
{
	if (ioctl(fd, command, argument))
		errx(1, "%s: %s", what, text(errno));
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
