/* SPDX-License-Identifier: GPL-2.0 */
/*
 * Tracepoints: operations and packets, in /sys/kernel/tracing/events/kfabric.
 *
 * While a tracepoint is off, it costs a branch that is not taken. shim/trace.rs
 * has the functions that call the tracepoints.
 */
#undef TRACE_SYSTEM
#define TRACE_SYSTEM kfabric

#if !defined(_KFABRIC_SHIM_TRACE_H) || defined(TRACE_HEADER_MULTI_READ)
#define _KFABRIC_SHIM_TRACE_H

#include <linux/tracepoint.h>

/* An operation was posted to an endpoint. */
TRACE_EVENT(kfabric_post,
	TP_PROTO(u64 ep, u32 opcode, u64 context),
	TP_ARGS(ep, opcode, context),
	TP_STRUCT__entry(
		__field(u64, ep)
		__field(u64, context)
		__field(u32, opcode)
	),
	TP_fast_assign(
		__entry->ep = ep;
		__entry->opcode = opcode;
		__entry->context = context;
	),
	TP_printk("ep=%llu op=%u context=%#llx", __entry->ep,
		  __entry->opcode, __entry->context)
);

/* An operation has completed: @error is 0 or an error number. */
TRACE_EVENT(kfabric_complete,
	TP_PROTO(u64 ep, u64 context, u64 len, u32 error),
	TP_ARGS(ep, context, len, error),
	TP_STRUCT__entry(
		__field(u64, ep)
		__field(u64, context)
		__field(u64, len)
		__field(u32, error)
	),
	TP_fast_assign(
		__entry->ep = ep;
		__entry->context = context;
		__entry->len = len;
		__entry->error = error;
	),
	TP_printk("ep=%llu context=%#llx len=%llu error=%u", __entry->ep,
		  __entry->context, __entry->len, __entry->error)
);

DECLARE_EVENT_CLASS(kfabric_packet,
	TP_PROTO(u32 qpn, u32 opcode, u32 psn, u32 len),
	TP_ARGS(qpn, opcode, psn, len),
	TP_STRUCT__entry(
		__field(u32, qpn)
		__field(u32, opcode)
		__field(u32, psn)
		__field(u32, len)
	),
	TP_fast_assign(
		__entry->qpn = qpn;
		__entry->opcode = opcode;
		__entry->psn = psn;
		__entry->len = len;
	),
	TP_printk("qpn=%#x opcode=%#04x psn=%u len=%u", __entry->qpn,
		  __entry->opcode, __entry->psn, __entry->len)
);

/* A packet to the QP @qpn was built: BTH opcode and PSN, bytes of payload. */
DEFINE_EVENT(kfabric_packet, kfabric_tx,
	TP_PROTO(u32 qpn, u32 opcode, u32 psn, u32 len),
	TP_ARGS(qpn, opcode, psn, len)
);

/* A packet with a valid ICRC has reached the QP @qpn. */
DEFINE_EVENT(kfabric_packet, kfabric_rx,
	TP_PROTO(u32 qpn, u32 opcode, u32 psn, u32 len),
	TP_ARGS(qpn, opcode, psn, len)
);

/* A packet to the QP @qpn (0: unreadable) was dropped; @cause is its statistic. */
TRACE_EVENT(kfabric_drop,
	TP_PROTO(u32 qpn, u32 cause),
	TP_ARGS(qpn, cause),
	TP_STRUCT__entry(
		__field(u32, qpn)
		__field(u32, cause)
	),
	TP_fast_assign(
		__entry->qpn = qpn;
		__entry->cause = cause;
	),
	TP_printk("qpn=%#x cause=%u", __entry->qpn, __entry->cause)
);

#endif /* _KFABRIC_SHIM_TRACE_H */

#undef TRACE_INCLUDE_PATH
#define TRACE_INCLUDE_PATH .
#undef TRACE_INCLUDE_FILE
#define TRACE_INCLUDE_FILE trace
#include <trace/define_trace.h>
