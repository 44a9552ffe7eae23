/* SPDX-License-Identifier: GPL-2.0 */
/*
 * kfabric 1.7 for kernel modules: objects, attributes, and the search for a
 * provider.
 *
 * A consumer asks kfi_getinfo() what there is, and opens with an entry of the
 * answer a fabric, a domain (kfi_domain.h), queues and counters (kfi_eq.h) and
 * endpoints (kfi_endpoint.h).
 *
 * Every object begins with a struct kfid.  The calls are inline functions that
 * call through the tables of operations of the object, so each provider has
 * its own functions behind them.  A provider fills every slot of every table;
 * what it does not have returns -KFI_ENOSYS.
 *
 * Names, numbers and layouts are those of kfabric 1.7.  A module that was
 * compiled with other headers of that version works without changes.
 *
 * Context: unless a function says otherwise, it is called from process context
 * and may sleep.  "Any" includes hard interrupts.
 */
#ifndef _KFI_KFABRIC_H
#define _KFI_KFABRIC_H

#include <linux/atomic.h>
#include <linux/bvec.h>
#include <linux/completion.h>
#include <linux/scatterlist.h>
#include <linux/stddef.h>
#include <linux/types.h>
#include <linux/uio.h>

#include "kfi_constants.h"
#include "kfi_errno.h"

struct kfi_info;
struct kfi_ops;
struct kfi_ops_fabric;
struct kfid;
struct kfid_cntr;
struct kfid_cq;
struct kfid_domain;
struct kfid_eq;
struct kfid_ep;
struct kfid_fabric;
struct kfid_pep;
struct kfid_poll;
struct kfid_wait;

typedef struct kfid *kfid_t;

/*
 * The address of a peer in an address vector: an index (KFI_AV_TABLE) or a
 * value of the provider's (KFI_AV_MAP).
 */
typedef u64 kfi_addr_t;

/* A type for handles of the consumer's own, which are pointers to nothing. */
#define KFI_DEFINE_HANDLE(name) \
	struct name##_s { int dummy; }; \
	typedef struct name##_s *name

/* Consumers of kfabric use this name; the kernel's is U64_MAX. */
#ifndef UINT64_MAX
#define UINT64_MAX		(~0ULL)
#endif

/*
 * Whether the table @ops, a struct @type, has the operation @op: @size covers
 * its slot, and the slot is filled.
 */
#define KFI_CHECK_OP(ops, type, op) \
	((ops)->size > offsetof(type, op) && (ops)->op)

/**
 * struct kfid - head of every object
 * @fclass: KFI_CLASS_*
 * @context: the consumer's, given when the object was opened
 * @ops: the operations that all objects have
 * @comp: the provider's: completed when @ref_cnt becomes 0
 * @ref_cnt: the provider's: references (kfi_prov.h)
 *
 * A consumer reads @fclass and @context.
 */
struct kfid {
	size_t			fclass;
	void			*context;
	struct kfi_ops		*ops;
	struct completion	comp;
	atomic_t		ref_cnt;
};

/**
 * struct kfi_ops - operations of every object
 * @size: sizeof(struct kfi_ops)
 * @close: see kfi_close()
 * @bind: binds the object to another one, with flags
 * @control: see kfi_control()
 * @ops_open: see kfi_open_ops()
 */
struct kfi_ops {
	size_t	size;
	int	(*close)(struct kfid *fid);
	int	(*bind)(struct kfid *fid, struct kfid *bfid, u64 flags);
	int	(*control)(struct kfid *fid, int command, void *arg);
	int	(*ops_open)(struct kfid *fid, const char *name, u64 flags,
			    void **ops, void *context);
};

/**
 * struct kfi_context - room for the provider in the context of an operation
 * @internal: the provider's
 *
 * With the mode KFI_CONTEXT, the context of each operation points to one, which
 * lives until the operation completes.
 */
struct kfi_context {
	void	*internal[4];
};

/**
 * struct kfi_context2 - the same with the mode KFI_CONTEXT2
 * @internal: the provider's
 */
struct kfi_context2 {
	void	*internal[8];
};

/**
 * struct kfi_alias - argument of KFI_ALIAS
 * @fid: where the alias is stored
 * @flags: default flags of the alias's operations
 */
struct kfi_alias {
	struct kfid	**fid;
	u64		flags;
};

/* ---- Attributes ---------------------------------------------------------- */

/**
 * struct kfi_tx_attr - the transmit side of an endpoint
 * @caps: its capabilities, a subset of those of the endpoint; hints: 0 is all
 * @mode: what the consumer must do (KFI_CONTEXT, ...)
 * @op_flags: flags of operations that have none of their own
 * @msg_order: KFI_ORDER_*: orders towards one peer
 * @comp_order: the same for completions
 * @inject_size: bytes that an injected operation can have
 * @size: operations that can be outstanding; hints: 0 is the default
 * @iov_limit: elements of a local list of memory
 * @rma_iov_limit: elements of a remote list of memory
 * @tclass: traffic class, KFI_TC_*
 */
struct kfi_tx_attr {
	u64	caps;
	u64	mode;
	u64	op_flags;
	u64	msg_order;
	u64	comp_order;
	size_t	inject_size;
	size_t	size;
	size_t	iov_limit;
	size_t	rma_iov_limit;
	u32	tclass;
};

/**
 * struct kfi_rx_attr - the receive side of an endpoint
 * @caps: its capabilities, a subset of those of the endpoint; hints: 0 is all
 * @mode: what the consumer must do
 * @op_flags: flags of receives that have none of their own
 * @msg_order: KFI_ORDER_*: orders from one peer
 * @comp_order: the same for completions
 * @total_buffered_recv: bytes of messages that are kept until they are
 *	received; one peer, or another user of this host, gets four fifths of
 *	it (IPv6: two thirds)
 * @size: receives that can be posted; hints: 0 is the default
 * @iov_limit: elements of a list of memory
 */
struct kfi_rx_attr {
	u64	caps;
	u64	mode;
	u64	op_flags;
	u64	msg_order;
	u64	comp_order;
	size_t	total_buffered_recv;
	size_t	size;
	size_t	iov_limit;
};

/**
 * struct kfi_ep_attr - an endpoint
 * @type: its type
 * @protocol: KFI_PROTO_*
 * @protocol_version: version of @protocol
 * @max_msg_size: bytes of the longest message or RMA operation
 * @msg_prefix_size: bytes before each message with the mode KFI_MSG_PREFIX
 * @max_order_raw_size: bytes up to which a read stays after a write; 0 is none
 * @max_order_war_size: the same for a write after a read
 * @max_order_waw_size: the same for a write after a write
 * @mem_tag_format: which bits of a tag form a field: they alternate
 * @tx_ctx_cnt: transmit contexts; 1 is one inside the endpoint, more are for
 *	kfi_scalable_ep(); or KFI_SHARED_CONTEXT. In hints 0 is one, or, with
 *	KFI_NAMED_RX_CTX in the capabilities, max_ep_tx_ctx
 * @rx_ctx_cnt: the same for receive contexts
 * @auth_key_size: bytes of @auth_key: 4 (KFI_EP_RDM); 0: the key of zeros
 * @auth_key: key that peers must have too, in every version of the API; it is
 *	no secret
 */
struct kfi_ep_attr {
	enum kfi_ep_type	type;
	u32			protocol;
	u32			protocol_version;
	size_t			max_msg_size;
	size_t			msg_prefix_size;
	size_t			max_order_raw_size;
	size_t			max_order_war_size;
	size_t			max_order_waw_size;
	u64			mem_tag_format;
	size_t			tx_ctx_cnt;
	size_t			rx_ctx_cnt;
	size_t			auth_key_size;
	u8			*auth_key;
};

/**
 * struct kfi_domain_attr - a domain
 * @domain: in hints, an open domain or NULL: only entries of its link match, and
 *	none for an address where no domain is open; in an entry, the domain of
 *	the hints
 * @name: its name
 * @threading: which calls may overlap
 * @control_progress: who makes connections, address vectors and events progress
 * @data_progress: who makes data transfers progress
 * @resource_mgmt: whether queues are kept from overrunning
 * @av_type: the best type of address vector
 * @mr_mode: KFI_MR_*: what registered memory requires
 * @mr_key_size: bytes of a key
 * @cq_data_size: bytes of remote CQ data
 * @cq_cnt: completion queues that may be open
 * @ep_cnt: endpoints
 * @tx_ctx_cnt: transmit contexts
 * @rx_ctx_cnt: receive contexts
 * @max_ep_tx_ctx: transmit contexts of one endpoint
 * @max_ep_rx_ctx: receive contexts of one endpoint
 * @max_ep_stx_ctx: endpoints that share one transmit context
 * @max_ep_srx_ctx: endpoints that share one receive context
 * @cntr_cnt: counters
 * @mr_iov_limit: elements of a region's list of memory
 * @caps: KFI_LOCAL_COMM, KFI_REMOTE_COMM, KFI_SHARED_AV
 * @mode: what the consumer must do
 * @auth_key: key of the domain's endpoints and regions
 * @auth_key_size: bytes of @auth_key: 0, only endpoints have keys
 * @max_err_data: bytes of err_data of an error entry
 * @mr_cnt: memory regions
 * @tclass: traffic class of endpoints that have none of their own
 */
struct kfi_domain_attr {
	struct kfid_domain	*domain;
	char			*name;
	enum kfi_threading	threading;
	enum kfi_progress	control_progress;
	enum kfi_progress	data_progress;
	enum kfi_resource_mgmt	resource_mgmt;
	enum kfi_av_type	av_type;
	int			mr_mode;
	size_t			mr_key_size;
	size_t			cq_data_size;
	size_t			cq_cnt;
	size_t			ep_cnt;
	size_t			tx_ctx_cnt;
	size_t			rx_ctx_cnt;
	size_t			max_ep_tx_ctx;
	size_t			max_ep_rx_ctx;
	size_t			max_ep_stx_ctx;
	size_t			max_ep_srx_ctx;
	size_t			cntr_cnt;
	size_t			mr_iov_limit;
	u64			caps;
	u64			mode;
	u8			*auth_key;
	size_t			auth_key_size;
	size_t			max_err_data;
	size_t			mr_cnt;
	u32			tclass;
};

/**
 * struct kfi_fabric_attr - a fabric and its provider
 * @fabric: in hints, an open fabric or NULL: entries are those of its network
 *	namespace, not of the caller's, and there are none for an address where no
 *	fabric is open; in an entry, the fabric of the hints
 * @name: its name
 * @prov_name: name of the provider
 * @prov_version: KFI_VERSION() of the provider
 * @api_version: KFI_VERSION() that the consumer asked for
 */
struct kfi_fabric_attr {
	struct kfid_fabric	*fabric;
	char			*name;
	char			*prov_name;
	u32			prov_version;
	u32			api_version;
};

/**
 * struct kfi_info - an entry of kfi_getinfo(), or its hints
 * @next: the next entry, or NULL
 * @caps: capabilities; hints: those wanted, 0 is any
 * @mode: what the consumer must do; hints: what it is able to do
 * @addr_format: KFI_SOCKADDR_IN, ...
 * @src_addrlen: bytes of @src_addr
 * @dest_addrlen: bytes of @dest_addr
 * @src_addr: address of this side, or NULL
 * @dest_addr: address of the peer, or NULL
 * @handle: a passive endpoint or a connection request, or NULL
 * @tx_attr: attributes of the transmit side
 * @rx_attr: attributes of the receive side
 * @ep_attr: attributes of the endpoint
 * @domain_attr: attributes of the domain
 * @fabric_attr: attributes of the fabric
 *
 * In hints, a NULL or a 0 leaves the choice to the provider.  In entries all
 * attributes are there.  What an entry points to is allocated with kmalloc()
 * and belongs to it: @src_addr, @dest_addr, the attributes, their names and
 * keys.  Objects (@handle, domain, fabric) do not, but for a connection request:
 * it is freed with the entry.
 */
struct kfi_info {
	struct kfi_info		*next;
	u64			caps;
	u64			mode;
	u32			addr_format;
	size_t			src_addrlen;
	size_t			dest_addrlen;
	void			*src_addr;
	void			*dest_addr;
	kfid_t			handle;
	struct kfi_tx_attr	*tx_attr;
	struct kfi_rx_attr	*rx_attr;
	struct kfi_ep_attr	*ep_attr;
	struct kfi_domain_attr	*domain_attr;
	struct kfi_fabric_attr	*fabric_attr;
};

/**
 * struct kfid_fabric - a fabric: what can be reached from one network
 * @fid: head
 * @ops: operations
 * @api_version: KFI_VERSION() that the consumer asked for
 */
struct kfid_fabric {
	struct kfid		fid;
	struct kfi_ops_fabric	*ops;
	u32			api_version;
};

/* ---- Functions of the module --------------------------------------------- */

/**
 * kfi_version() - the version of kfabric
 *
 * Context: Any.
 * Return: KFI_VERSION(1, 7).
 */
u32 kfi_version(void);

/**
 * kfi_getinfo() - what the registered providers offer
 * @version: KFI_VERSION() for which the consumer was written, or 0 for any
 * @node: a numeric address as text, with KFI_SOURCE also the name of a link; or
 *	NULL. An IPv4 address may be one hexadecimal number, as inet_aton(3)
 *	reads it
 * @service: a port as text, or NULL
 * @flags: KFI_SOURCE: @node and @service are the consumer's own, else the
 *	peer's; KFI_NUMERICHOST: @node is numeric, and not the name of a link;
 *	KFI_PROV_ATTR_ONLY: one entry for each provider, with @fabric_attr's
 *	@prov_name and @prov_version only
 * @hints: what is wanted, or NULL
 * @info: where the list of entries is stored; NULL if there is none
 *
 * Asks the providers in the order of their registration, or only the one that
 * @hints name.  The caller frees the list with kfi_freeinfo().
 *
 * Return: 0; -KFI_ENODATA if nothing matches; -KFI_ENOSYS if @version is newer
 *	than that of kfabric; -KFI_EINVAL if @info is NULL; -KFI_EBADFLAGS if
 *	@flags has another flag; -KFI_ENOMEM.
 */
int kfi_getinfo(u32 version, const char *node, const char *service, u64 flags,
		struct kfi_info *hints, struct kfi_info **info);

/**
 * kfi_freeinfo() - free a list of entries, or hints
 * @info: the first entry, or NULL
 *
 * Frees the entries that follow too, and everything that belongs to them.
 */
void kfi_freeinfo(struct kfi_info *info);

/**
 * kfi_allocinfo() - make empty hints
 *
 * Return: an entry with all attributes, which are 0; NULL if there is no memory.
 */
struct kfi_info *kfi_allocinfo(void);

/**
 * kfi_dupinfo() - copy one entry
 * @info: the entry; NULL: as kfi_allocinfo()
 *
 * Copies everything that belongs to the entry, but not the entries that follow.
 * The copy refers to the same objects, and has a handle of its own for the same
 * connection request.
 *
 * Return: the copy; NULL if there is no memory.
 */
struct kfi_info *kfi_dupinfo(const struct kfi_info *info);

/**
 * kfi_fabric() - open a fabric
 * @attr: attributes of an entry of kfi_getinfo(), with the provider's name
 * @fabric: where the fabric is stored
 * @context: the consumer's
 *
 * A provider keeps its module loaded while a fabric is open.
 *
 * Return: 0; -KFI_EINVAL if @attr, its @prov_name or @fabric is NULL;
 *	-KFI_ENODEV if there is no such provider; -KFI_ENOMEM; what the provider
 *	returns.
 */
int kfi_fabric(struct kfi_fabric_attr *attr, struct kfid_fabric **fabric,
	       void *context);

/**
 * enum kfi_type - what kfi_tostr() prints
 * @KFI_TYPE_INFO: struct kfi_info
 * @KFI_TYPE_EP_TYPE: enum kfi_ep_type
 * @KFI_TYPE_CAPS: u64
 * @KFI_TYPE_OP_FLAGS: u64
 * @KFI_TYPE_ADDR_FORMAT: u32
 * @KFI_TYPE_TX_ATTR: struct kfi_tx_attr
 * @KFI_TYPE_RX_ATTR: struct kfi_rx_attr
 * @KFI_TYPE_EP_ATTR: struct kfi_ep_attr
 * @KFI_TYPE_DOMAIN_ATTR: struct kfi_domain_attr
 * @KFI_TYPE_FABRIC_ATTR: struct kfi_fabric_attr
 * @KFI_TYPE_THREADING: enum kfi_threading
 * @KFI_TYPE_PROGRESS: enum kfi_progress
 * @KFI_TYPE_PROTOCOL: u32
 * @KFI_TYPE_MSG_ORDER: u64
 * @KFI_TYPE_MODE: u64
 * @KFI_TYPE_AV_TYPE: enum kfi_av_type
 * @KFI_TYPE_ATOMIC_TYPE: enum kfi_datatype
 * @KFI_TYPE_ATOMIC_OP: enum kfi_op
 * @KFI_TYPE_VERSION: nothing: the version of kfabric
 * @KFI_TYPE_EQ_EVENT: u32
 * @KFI_TYPE_CQ_EVENT_FLAGS: u64
 * @KFI_TYPE_MR_MODE: int
 * @KFI_TYPE_OP_TYPE: enum kfi_op_type
 */
enum kfi_type {
	KFI_TYPE_INFO		= 0,
	KFI_TYPE_EP_TYPE	= 1,
	KFI_TYPE_CAPS		= 2,
	KFI_TYPE_OP_FLAGS	= 3,
	KFI_TYPE_ADDR_FORMAT	= 4,
	KFI_TYPE_TX_ATTR	= 5,
	KFI_TYPE_RX_ATTR	= 6,
	KFI_TYPE_EP_ATTR	= 7,
	KFI_TYPE_DOMAIN_ATTR	= 8,
	KFI_TYPE_FABRIC_ATTR	= 9,
	KFI_TYPE_THREADING	= 10,
	KFI_TYPE_PROGRESS	= 11,
	KFI_TYPE_PROTOCOL	= 12,
	KFI_TYPE_MSG_ORDER	= 13,
	KFI_TYPE_MODE		= 14,
	KFI_TYPE_AV_TYPE	= 15,
	KFI_TYPE_ATOMIC_TYPE	= 16,
	KFI_TYPE_ATOMIC_OP	= 17,
	KFI_TYPE_VERSION	= 18,
	KFI_TYPE_EQ_EVENT	= 19,
	KFI_TYPE_CQ_EVENT_FLAGS	= 20,
	KFI_TYPE_MR_MODE	= 21,
	KFI_TYPE_OP_TYPE	= 22,
};

/**
 * kfi_tostr() - a value as text
 * @data: pointer to the value, of the type that enum kfi_type states
 * @datatype: what it is
 *
 * The text is in one buffer of the module, which the next call overwrites:
 * callers that may overlap must serialize their calls.  A text of 4096 bytes or
 * more is cut off.  KFI_TYPE_VERSION, the version of kfabric, ignores @data.
 *
 * Context: Any but hard interrupts and NMI.
 * Return: the text; NULL if @datatype is unknown, or @data is NULL and
 *	@datatype is not KFI_TYPE_VERSION.
 */
char *kfi_tostr(const void *data, enum kfi_type datatype);

/**
 * enum kfi_param_type - types of a provider's parameters
 * @KFI_PARAM_STRING: text
 * @KFI_PARAM_INT: a number
 * @KFI_PARAM_BOOL: 0 or 1
 */
enum kfi_param_type {
	KFI_PARAM_STRING	= 0,
	KFI_PARAM_INT		= 1,
	KFI_PARAM_BOOL		= 2,
};

/**
 * struct kfi_param - a parameter of a provider
 * @name: its name
 * @type: its type
 * @help_string: what it is for
 * @value: its value as text, or NULL
 *
 * Providers of the kernel have module parameters instead, and no call returns
 * this structure: see kfi_getparams().
 */
struct kfi_param {
	const char		*name;
	enum kfi_param_type	type;
	const char		*help_string;
	const char		*value;
};

/**
 * kfi_getparams() - the parameters of providers
 * @params: where the list is stored: NULL
 * @count: where its length is stored: 0
 *
 * Context: Any.
 * Return: -KFI_ENOSYS: providers of the kernel have module parameters instead.
 */
static inline int kfi_getparams(struct kfi_param **params, int *count)
{
	*params = NULL;
	*count = 0;
	return -KFI_ENOSYS;
}

/**
 * kfi_freeparams() - free a list of kfi_getparams(); there is none
 * @params: NULL
 *
 * Context: Any.
 */
static inline void kfi_freeparams(struct kfi_param *params)
{
}

/* ---- Calls for every object ---------------------------------------------- */

/**
 * kfi_close() - close an object
 * @fid: the object
 *
 * Sleeps until no peer reads or writes memory of the object's operations any more.
 * No signal ends that.  The close of a queue with a handler also waits for a call
 * of the handler that has begun.  The close of a transmit context first waits until
 * no task posts its started operations.
 *
 * The memory of the object is freed.  So no other call with the object may run at
 * the same time, or begin later.  A call that waits on the object gives -KFI_EBUSY
 * here, but a consumer cannot rely on that: the call may be about to return.
 *
 * Return: 0, and the object is gone; -KFI_EBUSY if something that still exists
 *	was made from it or is bound to it, somebody waits on it, or it is a
 *	transmit context with operations that have not completed; nothing has
 *	changed then.
 */
static inline int kfi_close(struct kfid *fid)
{
	return fid->ops->close(fid);
}

/**
 * kfi_control() - a command to an object
 * @fid: the object
 * @command: which one; kfi_constants.h has the types of their arguments
 * @arg: its argument
 *
 * The commands, the objects that have them, and where they are described:
 *
 * - KFI_GETWAIT: counters, queues and wait sets; the address of a wait queue.
 *   -KFI_EINVAL: the object has KFI_WAIT_NONE.
 * - KFI_GETOPSFLAG, KFI_SETOPSFLAG: the default flags of counters, endpoints and
 *   contexts.  For the last two the argument has KFI_TRANSMIT or KFI_RECV; with
 *   KFI_SETOPSFLAG beside the flags of that side, while KFI_GETOPSFLAG stores
 *   these flags alone, as operations take them.  -KFI_EINVAL: neither or both, or
 *   a flag that an operation of that side cannot have.
 * - KFI_ENABLE: kfi_enable(), kfi_mr_enable().  KFI_ALIAS: kfi_alias().
 * - KFI_BACKLOG: kfi_listen().
 * - KFI_QUEUE_WORK, KFI_CANCEL_WORK, KFI_FLUSH_WORK: domains; struct
 *   kfi_deferred_work.
 * - KFI_GET_RAW_MR, KFI_REFRESH: regions; KFI_MAP_RAW_MR, KFI_UNMAP_KEY: domains;
 *   kfi_mr.h.
 *
 * No object of kfabric.ko has KFI_GETFIDFLAG and KFI_SETFIDFLAG.
 *
 * Return: 0; -KFI_ENOSYS if the object does not have the command; -KFI_EINVAL an
 *	argument that is needed is NULL; others of the command.
 */
static inline int kfi_control(struct kfid *fid, int command, void *arg)
{
	return fid->ops->control(fid, command, arg);
}

/**
 * kfi_alias() - make another object with the same resources
 * @fid: the object
 * @alias_fid: where the alias is stored
 * @flags: default flags of the alias's operations
 *
 * Return: as kfi_control().
 */
static inline int kfi_alias(struct kfid *fid, struct kfid **alias_fid, u64 flags)
{
	struct kfi_alias alias = { .fid = alias_fid, .flags = flags };

	return kfi_control(fid, KFI_ALIAS, &alias);
}

/**
 * kfi_open_ops() - a table of operations of the provider's own
 * @fid: the object
 * @name: name of the table
 * @flags: the provider's
 * @ops: where the table is stored
 * @context: the provider's
 *
 * Return: 0; -KFI_ENOSYS if there is no such table.
 */
static inline int kfi_open_ops(struct kfid *fid, const char *name, u64 flags,
			       void **ops, void *context)
{
	return fid->ops->ops_open(fid, name, flags, ops, context);
}

/**
 * kfi_tc_dscp_set() - the traffic class of a DSCP value
 * @dscp: the value, 0..63
 *
 * Context: Any.
 * Return: the traffic class.
 */
static inline u32 kfi_tc_dscp_set(u8 dscp)
{
	return KFI_TC_DSCP | dscp;
}

/**
 * kfi_tc_dscp_get() - the DSCP value of a traffic class
 * @tclass: the traffic class
 *
 * Context: Any.
 * Return: the value; 0 if @tclass is not made of one.
 */
static inline u8 kfi_tc_dscp_get(u32 tclass)
{
	return tclass & KFI_TC_DSCP ? (u8)tclass : 0;
}

#endif /* _KFI_KFABRIC_H */
