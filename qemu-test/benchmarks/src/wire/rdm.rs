// SPDX-License-Identifier: GPL-2.0
//! Reliable datagrams between two hosts, beside sockets on the same cable: UDP and TCP.
//!
//! A waiting process sleeps, on either side, in a read of the CQ or of the socket. These rows have
//! no goal. `rdm/atomic_8B` is the time of a fetching add of a word of the peer, beside that of a
//! read of the same word.

use super::{
    hosts::{self, Host, Hosts},
    msg::{self, SILENCE},
};
use crate::{
    Result,
    process::Channel,
    row::{Better, Case, Measurement},
};
use kfi::{
    Access, AtomicOp, Av, Buffer, Caps, CompFlags, Cq, CqBind, CqFormat, Datatype, Endpoint, Entry,
    FiAddr, Mr, Op, OpFlags, Remote, Wait,
};
use std::{
    io::{Read, Write},
    net::{SocketAddr, TcpListener, TcpStream, UdpSocket},
    time::Instant,
};

/// Messages there and back of a run; bytes of a short one.
const ROUNDS: u64 = 500;
const SHORT: usize = 8;

/// Bytes of a long message, number of messages of a run, and number under way.
const LONG: usize = 1 << 20;
const TRANSFERS: u64 = 32;
const AHEAD: u64 = 4;

/// An endpoint that has the address of its peer.
struct End {
    ep: Endpoint,
    cq: Cq,
    mr: Mr,
    peer: FiAddr,
    _av: Av,
}

impl End {
    fn new(host: Host, size: usize, channel: &mut Channel) -> Result<Self> {
        let domain = msg::domain(host)?;
        let cq = domain
            .cq()
            .entries(64)
            .format(CqFormat::Msg)
            .wait(Wait::Queue)
            .open()?;
        let buffer = Buffer::new(size)?;
        buffer.fill(7);
        let mr = domain
            .mr(&buffer)
            .access(Access::SEND | Access::RECV)
            .open()?;
        let ep = domain
            .endpoint()
            .caps(Caps::MSG)
            .addr(SocketAddr::new(host.ip(), 0))
            .open()?;
        let av = domain.av().open()?;
        ep.bind_cq(&cq, CqBind::TRANSMIT | CqBind::SELECTIVE)?;
        ep.bind_cq(&cq, CqBind::RECV)?;
        ep.bind_av(&av)?;
        ep.enable()?;
        for _ in 0..AHEAD {
            ep.post_one(&Op::recv(mr.slice(..)))?;
        }
        channel.put_addr(ep.name()?)?;
        let peer = av.insert_one(channel.get_addr()?)?;
        Ok(Self {
            ep,
            cq,
            mr,
            peer,
            _av: av,
        })
    }

    /// Sleeps until there is a completion of `kind`, the only expected kind.
    fn wait(&self, kind: CompFlags) -> Result<()> {
        let mut entry = [Entry::default()];
        if self.cq.sread(&mut entry, SILENCE)? == 0 {
            return Err("the peer is silent".into());
        }
        if entry[0].flags.contains(kind) {
            Ok(())
        } else {
            Err(format!("an unexpected completion: {:?}", entry[0].flags).into())
        }
    }
}

/// Runs `far` and `near` between the hosts; returns the result of `near`.
fn between(
    hosts: &Hosts,
    size: usize,
    near: fn(&End) -> Result<f64>,
    far: fn(&End) -> Result<()>,
) -> Result<f64> {
    let near = move |channel: &mut Channel| near(&End::new(Host::Near, size, channel)?);
    let far = move |channel: &mut Channel| {
        let end = End::new(Host::Far, size, channel)?;
        far(&end)?;
        channel.get().map(drop)
    };
    hosts.with_links(|| hosts::between(near, far))
}

/// Rounds before the measurement: the first message makes the connection.
const BEFORE: u64 = 10;

fn ping(end: &End) -> Result<f64> {
    let message = [7; SHORT];
    let round = [Op::recv(end.mr.slice(..)), Op::inject(end.peer, &message)];
    let mut began = Instant::now();
    for turn in 0..BEFORE + ROUNDS {
        if turn == BEFORE {
            began = Instant::now();
        }
        msg::post(&end.ep, &round[1..])?;
        end.wait(CompFlags::RECV)?;
        msg::post(&end.ep, &round[..1])?;
    }
    Ok(began.elapsed().as_nanos() as f64 / ROUNDS as f64 / 2.0)
}

fn pong(end: &End) -> Result<()> {
    let message = [7; SHORT];
    let round = [Op::recv(end.mr.slice(..)), Op::inject(end.peer, &message)];
    for _ in 0..BEFORE + ROUNDS {
        end.wait(CompFlags::RECV)?;
        msg::post(&end.ep, &round)?;
    }
    Ok(())
}

fn megabytes_per_second(began: Instant) -> f64 {
    (LONG as u64 * TRANSFERS) as f64 / 1e6 / began.elapsed().as_secs_f64()
}

fn send(end: &End) -> Result<f64> {
    let send = Op::send(end.peer, end.mr.slice(..)).flags(OpFlags::COMPLETION);
    let mut began = Instant::now();
    for turn in 0..AHEAD + TRANSFERS {
        if turn >= AHEAD {
            end.wait(CompFlags::SEND)?;
        }
        // The messages before made the connection; as many are under way at the end.
        if turn == AHEAD {
            began = Instant::now();
        }
        msg::post(&end.ep, &[send])?;
    }
    let value = megabytes_per_second(began);
    for _ in 0..AHEAD {
        end.wait(CompFlags::SEND)?;
    }
    Ok(value)
}

fn receive(end: &End) -> Result<()> {
    for _ in 0..AHEAD + TRANSFERS {
        end.wait(CompFlags::RECV)?;
        msg::post(&end.ep, &[Op::recv(end.mr.slice(..))])?;
    }
    Ok(())
}

// The same with sockets.

fn udp_ping(channel: &mut Channel) -> Result<f64> {
    let socket = UdpSocket::bind(SocketAddr::new(Host::Near.ip(), 0))?;
    socket.connect(channel.get_addr()?)?;
    let mut message = [7; SHORT];
    let mut began = Instant::now();
    for turn in 0..BEFORE + ROUNDS {
        if turn == BEFORE {
            began = Instant::now();
        }
        socket.send(&message)?;
        socket.recv(&mut message)?;
    }
    Ok(began.elapsed().as_nanos() as f64 / ROUNDS as f64 / 2.0)
}

fn udp_pong(channel: &mut Channel) -> Result<()> {
    let socket = UdpSocket::bind(SocketAddr::new(Host::Far.ip(), 0))?;
    channel.put_addr(socket.local_addr()?)?;
    let mut message = [0; SHORT];
    for _ in 0..BEFORE + ROUNDS {
        let (_, peer) = socket.recv_from(&mut message)?;
        socket.send_to(&message, peer)?;
    }
    channel.get().map(drop)
}

fn tcp_send(channel: &mut Channel) -> Result<f64> {
    let mut stream = TcpStream::connect(channel.get_addr()?)?;
    let message = vec![7; LONG];
    let began = Instant::now();
    for _ in 0..TRANSFERS {
        stream.write_all(&message)?;
    }
    // All messages have arrived.
    stream.read_exact(&mut [0])?;
    Ok(megabytes_per_second(began))
}

fn tcp_receive(channel: &mut Channel) -> Result<()> {
    let listener = TcpListener::bind(SocketAddr::new(Host::Far.ip(), 0))?;
    channel.put_addr(listener.local_addr()?)?;
    let (mut stream, _) = listener.accept()?;
    let mut message = vec![0; LONG];
    for _ in 0..TRANSFERS {
        stream.read_exact(&mut message)?;
    }
    stream.write_all(&[7])?;
    channel.get().map(drop)
}

fn latency<const MTU: u32>(measurement: &mut Measurement) -> Result<()> {
    let hosts = Hosts::new(MTU)?;
    measurement.at_most(super::RUNS);
    measurement.take(&mut || between(&hosts, SHORT, ping, pong), &mut || {
        hosts::between(udp_ping, udp_pong)
    })
}

fn bandwidth<const MTU: u32>(measurement: &mut Measurement) -> Result<()> {
    let hosts = Hosts::new(MTU)?;
    measurement.at_most(super::RUNS);
    measurement.take(&mut || between(&hosts, LONG, send, receive), &mut || {
        hosts::between(tcp_send, tcp_receive)
    })
}

// Reads and atomics of a word of the peer.

/// Operations of a run of words.
const WORDS: u64 = 500;

/// An endpoint that reads and changes a word of its peer, which has registered it.
struct WordEnd {
    ep: Endpoint,
    cq: Cq,
    mr: Mr,
    peer: FiAddr,
    _av: Av,
}

/// The key of the word at the far host.
const WORD_KEY: u64 = 1;

impl WordEnd {
    fn new(host: Host, channel: &mut Channel) -> Result<Self> {
        let domain = msg::domain(host)?;
        let cq = domain.cq().entries(64).wait(Wait::Queue).open()?;
        let mr = domain
            .mr(&Buffer::new(2 * SHORT)?)
            .access(Access::REMOTE_READ | Access::REMOTE_WRITE | Access::READ | Access::WRITE)
            .requested_key(WORD_KEY)
            .open()?;
        let ep = domain
            .endpoint()
            .caps(Caps::MSG | Caps::RMA | Caps::ATOMIC)
            .addr(SocketAddr::new(host.ip(), 0))
            .open()?;
        let av = domain.av().open()?;
        ep.bind_cq(&cq, CqBind::TRANSMIT | CqBind::RECV)?;
        ep.bind_av(&av)?;
        ep.enable()?;
        channel.put_addr(ep.name()?)?;
        let peer = av.insert_one(channel.get_addr()?)?;
        Ok(Self {
            ep,
            cq,
            mr,
            peer,
            _av: av,
        })
    }

    /// The time of one operation at a time, in ns.
    fn time(&self, op: &Op<'_>) -> Result<f64> {
        let mut began = Instant::now();
        let mut entry = [Entry::default()];
        for turn in 0..BEFORE + WORDS {
            if turn == BEFORE {
                began = Instant::now();
            }
            msg::post(&self.ep, &[*op])?;
            if self.cq.sread(&mut entry, SILENCE)? == 0 {
                return Err("the peer is silent".into());
            }
        }
        Ok(began.elapsed().as_nanos() as f64 / WORDS as f64)
    }

    /// The peer's word.
    fn word(&self) -> Remote {
        Remote::new(0, WORD_KEY)
    }

    fn fetch_add(&self) -> Result<f64> {
        let (operand, result) = (self.mr.slice(..SHORT), self.mr.slice(SHORT..));
        let (uint64, sum) = (Datatype::Uint64, AtomicOp::Sum);
        self.time(&Op::fetch_atomic(
            self.peer,
            operand,
            result,
            self.word(),
            uint64,
            sum,
        ))
    }

    fn read(&self) -> Result<f64> {
        self.time(&Op::read(self.peer, self.mr.slice(SHORT..), self.word()))
    }
}

/// A fetching add beside a read of the same word.
fn atomic(measurement: &mut Measurement) -> Result<()> {
    fn run(hosts: &Hosts, work: fn(&WordEnd) -> Result<f64>) -> Result<f64> {
        let near = move |channel: &mut Channel| work(&WordEnd::new(Host::Near, channel)?);
        let far = move |channel: &mut Channel| {
            let _end = WordEnd::new(Host::Far, channel)?;
            channel.get().map(drop)
        };
        hosts.with_links(|| hosts::between(near, far))
    }
    let hosts = Hosts::new(1500)?;
    measurement.at_most(super::RUNS);
    measurement.take(&mut || run(&hosts, WordEnd::fetch_add), &mut || {
        run(&hosts, WordEnd::read)
    })
}

/// The rows.
pub(super) fn cases() -> Vec<Case> {
    let row = |name, unit, peer, better, measure| Case {
        name,
        unit,
        peer,
        better,
        goal: None,
        measure,
    };
    let (lower, higher) = (Better::Lower, Better::Higher);
    vec![
        row("rdm/wire_lat_8B", "ns", "UDP", lower, latency::<1500>),
        row("rdm/wire_bw_1M", "MB/s", "TCP", higher, bandwidth::<1500>),
        row(
            "rdm/wire_lat_8B_mtu9000",
            "ns",
            "UDP",
            lower,
            latency::<9000>,
        ),
        row(
            "rdm/wire_bw_1M_mtu9000",
            "MB/s",
            "TCP",
            higher,
            bandwidth::<9000>,
        ),
        Case {
            goal: Some(1.1),
            ..row("rdm/atomic_8B", "ns", "read of 8 B", lower, atomic)
        },
    ]
}
