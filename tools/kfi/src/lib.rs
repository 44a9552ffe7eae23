// SPDX-License-Identifier: GPL-2.0
//! Safe types over `/dev/kfabric`.
//!
//! The kfabric module gives programs message endpoints, remote memory access, completion
//! queues and counters.  This crate has a type for each object of its interface,
//! and uses the terms of kfabric and libfabric.
//!
//! # Objects
//!
//! ```text
//! Device                 an open /dev/kfabric
//!   Fabric               the fabric of the network namespace
//!     Eq, WaitSet        events; waiting on several objects
//!     PassiveEndpoint    listens for connections
//!     Domain             what is on one link
//!       Endpoint         sends and receives
//!       ScalableEndpoint one name, and contexts that send or receive
//!       SharedTx         room for transmits that several endpoints share
//!       SharedRx         receives that several endpoints share
//!       Cq, Cntr         report completions: entries, counts
//!       CompCntr         counts as verbs does it, also in memory of others
//!       Av, Mr, PollSet  peers' addresses; registered memory; polling
//!       Flow, Counters   count the packets that arrive at an endpoint
//! ```
//!
//! [`Work`] is an operation that starts when a counter has reached a threshold, without the
//! program; [`collective`] makes an allreduce of such operations.
//!
//! A value is a reference to its object, cheap to clone.  An object is closed when the last
//! reference is dropped and no other object depends on it any more: each object holds the
//! objects from which it was made and to which it is bound, so a program can drop them in any
//! order.
//!
//! # Memory
//!
//! The kernel reads and writes the memory of operations while the program runs on, so it comes
//! from a [`Buffer`], which gives copies and no references; [`buffer`] explains why this is
//! sound.
//!
//! # Waiting
//!
//! Blocking calls take a [`Deadline`], or a [`Duration`](std::time::Duration) from now.  Every
//! object on which threads can sleep also has a descriptor for poll, epoll and io_uring
//! ([`WaitFd`], [`WaitSetFd`], [`CntrFd`]).  A completion queue can be read ([`CqRing`]) and a
//! counter looked at ([`Cntr::value`]) without a system call.
//!
//! # Errors
//!
//! [`Error`] names the call, the object and the [`Errno`]; [`Error::advice`] says what a user can
//! try.  A `main` that returns [`Result`] prints both.
//!
//! Calls with a list may accept only its first elements.  [`Endpoint::post`] and
//! [`Domain::queue_work`] say so in their results, [`Posted`] and [`QueuedWork`], whose
//! `into_result` makes an error of it; [`Av::insert_all`] inserts all addresses or none.
//!
//! # Example
//!
//! A client that sends a message and waits for the answer:
//!
//! ```no_run
//! use kfi::{AvKind, Buffer, CompFlags, CqBind, CqFormat, Device, Wait};
//! use std::time::Duration;
//!
//! fn main() -> kfi::Result<()> {
//!     let device = Device::open()?;
//!     let link = device.first_link()?;
//!     let domain = device.fabric()?.domain(&link.name).open()?;
//!     let cq = domain.cq().format(CqFormat::Tagged).wait(Wait::Queue).open()?;
//!     let av = domain.av().kind(AvKind::Table).open()?;
//!     let ep = domain.endpoint().open()?;
//!     ep.bind_cq(&cq, CqBind::TRANSMIT | CqBind::RECV)?;
//!     ep.bind_av(&av)?;
//!     ep.enable()?;
//!
//!     let server = av.insert_one(kfi::parse_address("127.0.0.1:7471")?)?;
//!     let question = Buffer::from_bytes(b"ping")?;
//!     let answer = Buffer::new(64)?;
//!     ep.recv(&answer, 1)?;
//!     ep.send(server, &question, 2)?;
//!     while let Some(entry) = cq.next(Duration::from_secs(5))? {
//!         if entry.flags.contains(CompFlags::RECV) {
//!             println!("{:?}", answer.to_vec(..entry.len as usize));
//!             return Ok(());
//!         }
//!     }
//!     println!("no answer in 5 s");
//!     Ok(())
//! }
//! ```
//!
//! `examples/` has programs that run: `atomic`, `counter`, `pingpong`, `ring`, and with deferred
//! work `barrier` and `credits`.

#![deny(unsafe_code)]

#[allow(
    unsafe_code,
    reason = "the calls: ioctl(2) and addresses in structures"
)]
pub mod abi;
mod addr;
mod alias;
mod atomic;
mod auth_key;
mod av;
#[allow(unsafe_code, reason = "memory that the kernel reads and writes")]
pub mod buffer;
mod cntr;
pub mod collective;
mod comp_cntr;
mod counters;
mod cq;
mod deadline;
mod device;
mod domain;
mod enums;
mod ep;
mod eq;
mod errno;
mod error;
mod fabric;
mod flags;
mod flow;
mod info;
mod link;
#[allow(unsafe_code, reason = "mmap(2)")]
mod map;
mod mr;
mod object;
mod op;
mod packets;
mod pep;
mod poll;
mod qp;
#[allow(unsafe_code, reason = "entries where they are mapped")]
mod ring;
mod sep;
mod setters;
mod shared;
mod stat;
mod wait;
#[allow(unsafe_code, reason = "addresses of operations in structures")]
mod work;

pub use addr::{AddressError, FiAddr, interface_index, parse_address};
pub use alias::EndpointAlias;
pub use atomic::{AtomicAttr, AtomicForm, Element};
pub use auth_key::{AuthKey, AuthKeyError};
pub use av::{Av, AvBuilder};
pub use buffer::{Buffer, Slice};
pub use cntr::{Cntr, CntrBuilder, CntrFd, Mapped, Values};
pub use comp_cntr::{CompCntr, CompCntrBuilder, CompCntrCaps, MemoryLocation};
pub use counters::{CounterDescription, Counters, CountersBuilder};
pub use cq::{Cq, CqBuilder, Entry, ErrEntry};
pub use deadline::Deadline;
pub use device::{Device, Query};
pub use domain::{Domain, DomainBuilder};
pub use enums::{
    AddrFormat, AtomicOp, AvKind, CompCntrEntry, CompCntrModifyOp, CompCntrType, CqFormat,
    Datatype, EpType, EventKind, LinkState, Progress, Protocol, QpState, ResourceMgmt, Side,
    Threading, Wait,
};
pub use ep::{Endpoint, EndpointBuilder, Posted};
pub use eq::{Eq, EqBuilder, ErrEvent, Event, EventEntry};
pub use errno::Errno;
pub use error::{Error, Result};
pub use fabric::Fabric;
pub use flags::{
    Access, Caps, CntrBind, CompCntrOps, CompFlags, CqBind, MrMode, MsgOrder, OpFlags,
};
pub use flow::{Flow, FlowBuilder};
pub use info::{Hints, Info, RxAttr, TxAttr, Version};
pub use link::{Link, Links};
pub use mr::{Mr, MrBuilder};
pub use op::{IoVec, Local, Op, Remote, RmaIov};
pub use packets::{PacketCounter, Packets, PacketsOf};
pub use pep::{ConnectionEvent, PassiveEndpoint, PassiveEndpointBuilder};
pub use poll::{PollSet, Pollable};
pub use qp::{PeerAddr, QpAddr, QpInfo, QpOption, ip_of_gid};
pub use ring::CqRing;
pub use sep::{ContextBuilder, ScalableEndpoint, ScalableEndpointBuilder};
pub use shared::{SharedRx, SharedRxBuilder, SharedTx, SharedTxBuilder};
pub use stat::{Stat, StatClass, StatValues, Stats};
pub use wait::{WaitFd, WaitSet, WaitSetFd};
pub use work::{QueuedWork, Work, WorkId};
