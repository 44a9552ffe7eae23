// SPDX-License-Identifier: GPL-2.0
/*
 * Two hosts for suites: a process in the network namespace of each, which makes
 * the calls that suites ask for.
 *
 * kfi_getinfo() lists the links of the calling process's namespace, and a fabric
 * is of the namespace in which it was opened. KUnit runs cases in kernel
 * threads, which are in the first namespace. So a process of each host writes to
 * its file:
 *
 *	ip netns exec a sh -c 'echo >DEBUGFS/two_hosts/0' &
 *	ip netns exec b sh -c 'echo >DEBUGFS/two_hosts/1' &
 *
 * It stays in that call, and makes the calls of host_call(), until it is killed.
 */

#include <linux/debugfs.h>
#include <linux/fs.h>
#include <linux/jiffies.h>
#include <linux/module.h>
#include <linux/mutex.h>
#include <linux/spinlock.h>
#include <linux/wait.h>

#include "two_hosts.h"

/* How long a call waits for the process of its host, in jiffies. */
#define PATIENCE	(20 * HZ)

/**
 * struct host - the process of a host, and what it is asked for
 * @callers: one call at a time
 * @queue: of the process and of callers that wait for it
 * @lock: protects @serving and @call
 * @serving: there is a process
 * @call: what it is to call; NULL when it has begun
 * @arg: argument of @call
 * @result: what @call has returned
 * @done: @result is there
 */
struct host {
	struct mutex		callers;	/* one call at a time */
	wait_queue_head_t	queue;
	spinlock_t		lock;		/* see above */
	bool			serving;
	int			(*call)(void *arg);
	void			*arg;
	int			result;
	struct completion	done;
};

static struct host hosts[HOSTS];
static struct dentry *directory;

/**
 * host_call() - have the process of a host call a function
 * @index: the host
 * @call: the function
 * @arg: its argument
 *
 * Context: Process context, sleeps. KUnit's assertions must not be used in
 * @call, because it does not run in the thread of the case.
 *
 * Return: what @call returns; -ENOTCONN if there is no such process.
 */
int host_call(unsigned int index, int (*call)(void *arg), void *arg)
{
	struct host *host = &hosts[index];
	int ret = -ENOTCONN;

	mutex_lock(&host->callers);
	wait_event_timeout(host->queue, READ_ONCE(host->serving), PATIENCE);
	spin_lock(&host->lock);
	if (host->serving) {
		host->arg = arg;
		host->call = call;
		ret = 0;
	}
	spin_unlock(&host->lock);
	if (!ret) {
		wake_up(&host->queue);
		wait_for_completion(&host->done);
		ret = host->result;
	}
	mutex_unlock(&host->callers);
	return ret;
}
EXPORT_SYMBOL_GPL(host_call);

static ssize_t serve(struct file *file, const char __user *buf, size_t len, loff_t *pos)
{
	struct host *host = file->private_data;
	int (*call)(void *arg);

	spin_lock(&host->lock);
	if (host->serving) {
		spin_unlock(&host->lock);
		return -EBUSY;
	}
	host->serving = true;
	spin_unlock(&host->lock);
	wake_up(&host->queue);
	do {
		/* Returns without a call if there is a signal. */
		(void)wait_event_interruptible(host->queue, READ_ONCE(host->call));
		spin_lock(&host->lock);
		call = host->call;
		host->call = NULL;
		host->serving = call;
		spin_unlock(&host->lock);
		if (call) {
			host->result = call(host->arg);
			complete(&host->done);
		}
	} while (call);
	return -EINTR;
}

static const struct file_operations serve_fops = {
	.owner = THIS_MODULE,
	.open = simple_open,
	.write = serve,
};

static int __init two_hosts_init(void)
{
	static const char * const names[HOSTS] = { "0", "1" };
	int i;

	directory = debugfs_create_dir("two_hosts", NULL);
	for (i = 0; i < HOSTS; i++) {
		mutex_init(&hosts[i].callers);
		init_waitqueue_head(&hosts[i].queue);
		spin_lock_init(&hosts[i].lock);
		init_completion(&hosts[i].done);
		debugfs_create_file(names[i], 0200, directory, &hosts[i], &serve_fops);
	}
	return 0;
}

static void __exit two_hosts_exit(void)
{
	debugfs_remove(directory);
}

module_init(two_hosts_init);
module_exit(two_hosts_exit);
MODULE_DESCRIPTION("Two hosts for suites of kfabric consumers");
MODULE_LICENSE("GPL");
