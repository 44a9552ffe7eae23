// SPDX-License-Identifier: GPL-2.0
//! One peer, or a thousand: the cost of many connections.
//!
//! Two processes have that number of connections with each other, all reported to one CQ on either
//! side, and use them in turn: each message uses another connection than the one before. The memory
//! is the kernel memory of one end of one connection, beside that of a TCP connection, counted in
//! the same way.

use super::{
    hosts::{self, Host, Hosts},
    msg::{self, Address},
};
use crate::{
    Result,
    count::Clock,
    process::Channel,
    row::{Case, Measurement},
};
use kfi::{Access, Buffer, CompFlags, CqFormat, CqRing, Deadline, Endpoint, Entry, FiAddr, Mr, Op};
use rustix::process::{Resource, Rlimit, setrlimit};
use std::{
    net::{SocketAddr, TcpListener, TcpStream},
    time::{Duration, Instant},
};

/// Messages there and back of a run, some over each connection.
const ROUNDS: u64 = 2000;

/// Receives and transmits that an end has room for.
const DEPTH: u32 = 4;

const SILENCE: Duration = Duration::from_secs(30);

/// One side of many connections.
struct Ends {
    eps: Vec<Endpoint>,
    ring: CqRing,
    clock: Clock,
    mr: Mr,
    /// The growth of the kernel's memory, in bytes.
    memory: u64,
}

/// The bytes of kernel memory for objects that can be many.
fn used() -> Result<u64> {
    let text = std::fs::read_to_string("/proc/meminfo")?;
    let mut sum = 0;
    for name in ["Slab:", "VmallocUsed:", "Percpu:"] {
        let line = text.lines().find_map(|line| line.strip_prefix(name));
        let kib = line.and_then(|line| line.split_whitespace().next());
        let kib = kib.ok_or_else(|| format!("/proc/meminfo: no {name}"))?;
        sum += kib.parse::<u64>()? * 1024;
    }
    Ok(sum)
}

impl Ends {
    /// Opens that number of endpoints, and connects each with one of `peer`'s.
    fn new(
        host: Host,
        peer: Host,
        clock: Clock,
        count: u64,
        channel: &mut Channel,
    ) -> Result<Self> {
        let domain = msg::domain(host)?;
        let cq = domain
            .cq()
            // Posted operations have their room in the CQ.
            .entries(2 * DEPTH * count as u32)
            .format(CqFormat::Msg)
            .wait(msg::wait_of(clock))
            .open()?;
        let buffer = Buffer::new(8)?;
        buffer.fill(7);
        let mr = domain
            .mr(&buffer)
            .access(Access::SEND | Access::RECV)
            .open()?;
        let before = used()?;
        let mut eps = Vec::new();
        for index in 0..count {
            let ep = msg::endpoint(&domain, host, &cq, DEPTH)?;
            for _ in 0..2 {
                ep.post_one(&Op::recv(mr.slice(..)).context(index))?;
            }
            Address {
                qp: ep.qp()?,
                memory: mr.remote(0),
            }
            .put(channel)?;
            let (qp, psn, _) = Address::get(channel, peer)?;
            ep.connect_qp(qp, psn)?;
            eps.push(ep);
        }
        Ok(Self {
            eps,
            ring: cq.ring()?,
            clock,
            mr,
            memory: used()?.saturating_sub(before),
        })
    }

    /// Waits for a message; returns the index of its connection.
    fn receive(&mut self) -> Result<u64> {
        let mut entry = [Entry::default()];
        let until = Deadline::after(SILENCE);
        loop {
            let taken = match self.clock {
                Clock::Time => self.ring.read(&mut entry)?,
                Clock::Instructions => self.ring.sread(&mut entry, until)?,
            };
            if taken == 0 {
                if until.has_passed() {
                    return Err("the peer is silent".into());
                }
                continue;
            }
            if entry[0].flags.contains(CompFlags::RECV) {
                return Ok(entry[0].op_context);
            }
        }
    }

    /// Sends over a connection, and posts the receive that its last message took.
    fn send(&self, index: u64, receive: bool) -> Result<()> {
        let again = Op::recv(self.mr.slice(..)).context(index);
        let ops = [again, Op::inject(FiAddr::UNSPEC, &[7; 8])];
        msg::post(
            &self.eps[index as usize],
            if receive { &ops } else { &ops[1..] },
        )
    }
}

/// The report of two processes with `count` connections.
fn between(
    hosts: &Hosts,
    clock: Clock,
    count: u64,
    near: fn(&mut Ends, u64) -> Result<f64>,
) -> Result<f64> {
    let near = move |channel: &mut Channel| {
        let mut ends = Ends::new(Host::Near, Host::Far, clock, count, channel)?;
        channel.get()?;
        near(&mut ends, count)
    };
    let far = move |channel: &mut Channel| {
        let mut ends = Ends::new(Host::Far, Host::Near, clock, count, channel)?;
        channel.put(0)?;
        loop {
            let index = ends.receive()?;
            ends.send(index, true)?;
        }
    };
    hosts.with_links(|| hosts::between(near, far))
}

/// Nanoseconds one way.
fn turns_of_all(ends: &mut Ends, count: u64) -> Result<f64> {
    let began = Instant::now();
    for round in 0..ROUNDS {
        ends.send(round % count, round >= count)?;
        ends.receive()?;
    }
    Ok(began.elapsed().as_nanos() as f64 / ROUNDS as f64 / 2.0)
}

fn latency<const PEERS: u64>(measurement: &mut Measurement) -> Result<()> {
    let hosts = Hosts::new(1500)?;
    measurement.at_most(super::RUNS);
    let clock = measurement.clock();
    measurement.take(
        &mut || between(&hosts, clock, PEERS, turns_of_all),
        &mut || between(&hosts, clock, 1, turns_of_all),
    )
}

/// Connections whose memory is counted.
const COUNTED: u64 = 1000;

/// Bytes of one end of a TCP connection between processes of this host.
fn tcp_memory() -> Result<f64> {
    // Each end has a descriptor.
    let files = Rlimit {
        current: Some(4 * COUNTED),
        maximum: Some(4 * COUNTED),
    };
    setrlimit(Resource::Nofile, files)?;
    let listener = TcpListener::bind(SocketAddr::from(([127, 0, 0, 1], 0)))?;
    let addr = listener.local_addr()?;
    let mut streams = Vec::with_capacity(2 * COUNTED as usize);
    let before = used()?;
    for _ in 0..COUNTED {
        streams.push(TcpStream::connect(addr)?);
        streams.push(listener.accept()?.0);
    }
    Ok(used()?.saturating_sub(before) as f64 / streams.len() as f64)
}

fn memory(measurement: &mut Measurement) -> Result<()> {
    let hosts = Hosts::new(1500)?;
    measurement.at_most(3);
    let clock = measurement.clock();
    measurement.take(
        // Both ends use the same memory meanwhile.
        &mut || {
            between(&hosts, clock, COUNTED, |ends, count| {
                Ok(ends.memory as f64 / count as f64 / 2.0)
            })
        },
        &mut tcp_memory,
    )
}

/// The rows.
pub(super) fn cases() -> Vec<Case> {
    vec![
        Case::lower(
            "roce/peers_100_lat_8B",
            "ns",
            "1 peer",
            None,
            latency::<100>,
        ),
        Case::lower(
            "roce/peers_1000_lat_8B",
            "ns",
            "1 peer",
            Some(1.3),
            latency::<1000>,
        ),
        Case::lower("roce/peers_1000_memory", "bytes", "TCP", None, memory),
    ]
}
