// SPDX-License-Identifier: GPL-2.0
/*
 * The example of Documentation/consumer.md: a thread that waits on a counter.
 */

#include <linux/kthread.h>
#include <linux/module.h>

#include <kfi/kfi_domain.h>

/* What a consumer needs to count. */
static struct kfi_info *info;
static struct kfid_fabric *fabric;
static struct kfid_domain *domain;
static struct kfid_cntr *cntr;

static struct task_struct *thread;

/* Counts ten times a second until it is stopped. */
static int count(void *unused)
{
	while (!kthread_should_stop()) {
		schedule_timeout_interruptible(HZ / 10);
		kfi_cntr_add(cntr, 1);
	}
	return 0;
}

/* Ends what has begun, users before what they use. */
static void close_all(void)
{
	if (!IS_ERR_OR_NULL(thread))
		kthread_stop(thread);
	if (cntr)
		kfi_close(&cntr->fid);
	if (domain)
		kfi_close(&domain->fid);
	if (fabric)
		kfi_close(&fabric->fid);
	kfi_freeinfo(info);
}

static int open_all(void)
{
	struct kfi_cntr_attr attr = {
		.events = KFI_CNTR_EVENTS_COMP,
		.wait_obj = KFI_WAIT_UNSPEC,
	};
	struct kfi_info *hints = kfi_allocinfo();
	int ret;

	if (!hints)
		return -ENOMEM;
	hints->ep_attr->type = KFI_EP_RDM;
	ret = kfi_getinfo(KFI_VERSION(1, 7), NULL, NULL, 0, hints, &info);
	kfi_freeinfo(hints);
	if (ret)
		return ret;
	/* The first entry: an address of a link. The rest stays in the list. */
	ret = kfi_fabric(info->fabric_attr, &fabric, NULL);
	if (ret)
		return ret;
	ret = kfi_domain(fabric, info, &domain, NULL);
	if (ret)
		return ret;
	return kfi_cntr_open(domain, &attr, &cntr, NULL);
}

static int __init consumer_init(void)
{
	int ret = open_all();

	if (!ret) {
		thread = kthread_run(count, NULL, "consumer_example");
		ret = PTR_ERR_OR_ZERO(thread);
	}
	/* Sleeps until three has been reached, for ten seconds at most. */
	if (!ret)
		ret = kfi_cntr_wait(cntr, 3, 10000);
	if (ret) {
		pr_err("no count: %s\n", kfi_strerror(-ret));
		close_all();
		/* Numbers of kfabric's own mean nothing to insmod. */
		return -ret < KFI_ERRNO_OFFSET ? ret : -EIO;
	}
	pr_info("counted to three on %s\n", info->domain_attr->name);
	return 0;
}

static void __exit consumer_exit(void)
{
	close_all();
}

module_init(consumer_init);
module_exit(consumer_exit);
MODULE_DESCRIPTION("kfabric consumer: the example of the documentation");
MODULE_LICENSE("GPL");
