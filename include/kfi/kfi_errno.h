/* SPDX-License-Identifier: GPL-2.0 */
/*
 * Error numbers of kfabric.
 *
 * Calls return 0 or a count on success and a negative error number otherwise.
 * Error entries of queues have positive error numbers.  The numbers below 256
 * are the kernel's, under a name of kfabric; the others are kfabric's own.
 */
#ifndef _KFI_ERRNO_H
#define _KFI_ERRNO_H

#include <linux/errno.h>

#define KFI_SUCCESS		0

#define KFI_ENOENT		ENOENT		/* no such entry */
#define KFI_EIO			EIO		/* input/output error */
#define KFI_E2BIG		E2BIG		/* argument list too long */
#define KFI_EBADF		EBADF		/* not an open object */
#define KFI_EAGAIN		EAGAIN		/* nothing there, or no room: try again */
#define KFI_ENOMEM		ENOMEM		/* out of memory */
#define KFI_EACCES		EACCES		/* access is not allowed */
#define KFI_EBUSY		EBUSY		/* the object is in use */
#define KFI_ENODEV		ENODEV		/* no such device */
#define KFI_EINVAL		EINVAL		/* invalid argument */
#define KFI_EMFILE		EMFILE		/* too many open objects */
#define KFI_ENOSPC		ENOSPC		/* no space left */
#define KFI_ENOSYS		ENOSYS		/* the provider does not have this call */
#define KFI_ENOMSG		ENOMSG		/* no message of this kind */
#define KFI_ENODATA		ENODATA		/* nothing matches */
#define KFI_EMSGSIZE		EMSGSIZE	/* the message is too long */
#define KFI_ENOPROTOOPT		ENOPROTOOPT	/* no such option */
#define KFI_EOPNOTSUPP		EOPNOTSUPP	/* not supported by this object */
#define KFI_EADDRINUSE		EADDRINUSE	/* the address is in use */
#define KFI_EADDRNOTAVAIL	EADDRNOTAVAIL	/* not an address of this host */
#define KFI_ENETDOWN		ENETDOWN	/* the network is down */
#define KFI_ENETUNREACH		ENETUNREACH	/* no route to the network */
#define KFI_ECONNABORTED	ECONNABORTED	/* the connection was given up */
#define KFI_ECONNRESET		ECONNRESET	/* the peer ended the connection */
#define KFI_EISCONN		EISCONN		/* connected already */
#define KFI_ENOTCONN		ENOTCONN	/* not connected */
#define KFI_ESHUTDOWN		ESHUTDOWN	/* the connection was shut down */
#define KFI_ETIMEDOUT		ETIMEDOUT	/* the time is over */
#define KFI_ECONNREFUSED	ECONNREFUSED	/* the peer refused */
#define KFI_EHOSTUNREACH	EHOSTUNREACH	/* no route to the host */
#define KFI_EALREADY		EALREADY	/* begun already */
#define KFI_EINPROGRESS		EINPROGRESS	/* begun, not finished */
#define KFI_EREMOTEIO		EREMOTEIO	/* the peer could not do it */
#define KFI_ECANCELED		ECANCELED	/* the operation was cancelled */
#define KFI_EKEYREJECTED	EKEYREJECTED	/* the key cannot be used */

/* The first of kfabric's own numbers. */
#define KFI_ERRNO_OFFSET	256

/*
 * kfabric's own numbers.  KFI_ERRNO_MAX is the first that is not used, not an
 * error; FI_ERRNO_MAX is the name that other headers of version 1.7 have for
 * it.
 */
enum {
	KFI_EOTHER	= KFI_ERRNO_OFFSET,	/* an error without a number */
	KFI_ETOOSMALL	= 257,	/* the buffer is too small */
	KFI_EOPBADSTATE	= 258,	/* not in this state of the object */
	KFI_EAVAIL	= 259,	/* an error entry must be read first */
	KFI_EBADFLAGS	= 260,	/* flags that are not supported */
	KFI_ENOEQ	= 261,	/* no event queue is bound */
	KFI_EDOMAIN	= 262,	/* objects of different domains */
	KFI_ENOCQ	= 263,	/* no completion queue is bound */
	KFI_ECRC	= 264,	/* a checksum is wrong */
	KFI_ETRUNC	= 265,	/* data were cut off */
	KFI_ENOKEY	= 266,	/* no such key, or a key that is in use */
	KFI_ENOAV	= 267,	/* no address vector is bound */
	KFI_EOVERRUN	= 268,	/* completions were lost for want of room */
	KFI_ERRNO_MAX	= 269,
};

#define FI_ERRNO_MAX		KFI_ERRNO_MAX

/**
 * kfi_strerror() - the meaning of an error number
 * @errnum: a positive error number: of kfabric, or the kernel's
 *
 * Context: Any.
 * Return: A text that is never freed; for a number that has no meaning, a text
 *	that says so.
 */
const char *kfi_strerror(int errnum);

#endif /* _KFI_ERRNO_H */
