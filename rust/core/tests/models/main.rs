// SPDX-License-Identifier: GPL-2.0
//! Models of the state machines: each file drives one together with a plain model, with random
//! operations. One program, because each one takes time to link.

#[path = "../support/mod.rs"]
mod support;

mod addr_forms;
mod atomic_oracle;
mod av_oracle;
mod cntr_oracle;
mod comp_cntr_oracle;
mod cq_oracle;
mod due_oracle;
mod eq_oracle;
mod flow_oracle;
mod matching_endpoint;
mod matching_multi_recv;
mod matching_slab;
mod mr_oracle;
mod op_oracle;
mod work_oracle;
