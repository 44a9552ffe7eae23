// SPDX-License-Identifier: GPL-2.0
/*
 * Defines the tracepoints of trace.h, and the functions that call them from
 * Rust.
 */
#define CREATE_TRACE_POINTS
#define CREATE_RUST_TRACE_POINTS
#include "trace.h"
