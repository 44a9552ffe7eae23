// SPDX-License-Identifier: GPL-2.0
//! RoCEv2: InfiniBand's transport in UDP datagrams.
//!
//! | file | what |
//! |---|---|
//! | [`psn`] | packet sequence numbers: 24 bits that wrap |
//! | [`mtu`] | the path MTU, and how messages are cut |

pub mod mtu;
pub mod psn;
