// SPDX-License-Identifier: GPL-2.0
//! Ours against ours: connected endpoints, used as the programs of perftest use QPs.
//!
//! Both ends poll their mapped ring and never sleep. Small messages are injected, large ones are in
//! registered memory, and as many are under way as with perftest. With [`Clock::Instructions`] the
//! ends sleep whenever their ring is empty.

use super::hosts::{self, Host, Hosts};
use crate::{Result, count::Clock, process::Channel};
use kfi::{
    Access, Buffer, Caps, CompFlags, Cq, CqBind, CqFormat, CqRing, Device, Domain, Endpoint, Entry,
    EpType, FiAddr, Mr, Op, OpFlags, QpAddr, QpInfo, QpOption, Remote, Wait,
};
use std::{
    cell::{Cell, RefCell},
    hint,
    net::SocketAddr,
    thread,
    time::{Duration, Instant},
};

/// A connected endpoint has one peer, and needs no address of it.
const PEER: FiAddr = FiAddr::UNSPEC;

/// Operations that may be under way: `--tx-depth` and `--rx-depth` of perftest.
pub(super) const DEPTH: usize = 128;

/// Operations in one call.
const BATCH: usize = 32;

/// Longest time without a completion.
pub(super) const SILENCE: Duration = Duration::from_secs(30);

/// One end of a connection.
pub(super) struct End {
    pub(super) ep: Endpoint,
    pub(super) mr: Mr,
    ring: RefCell<CqRing>,
    clock: Clock,
    /// Completions that were taken before they were needed.
    ahead: Cell<u64>,
    remote: Remote,
}

/// The message of an end to the other.
pub(super) struct Address {
    pub(super) qp: QpInfo,
    pub(super) memory: Remote,
}

impl Address {
    pub(super) fn put(&self, channel: &mut Channel) -> Result<()> {
        channel.put(self.qp.qpn.into())?;
        channel.put(self.qp.psn.into())?;
        channel.put(self.memory.addr)?;
        channel.put(self.memory.key)
    }

    /// The message of a process on `host`.
    pub(super) fn get(channel: &mut Channel, host: Host) -> Result<(QpAddr, u32, Remote)> {
        let qp = QpAddr {
            host: SocketAddr::new(host.ip(), 0),
            qpn: u32::try_from(channel.get()?)?,
        };
        let psn = u32::try_from(channel.get()?)?;
        Ok((qp, psn, Remote::new(channel.get()?, channel.get()?)))
    }
}

/// The domain of a process that has entered `host`.
pub(super) fn domain(host: Host) -> Result<Domain> {
    Ok(Device::open()?.fabric()?.domain(host.netdev()).open()?)
}

/// The wait object of a CQ's reader: with a clock that measures time the reader never sleeps.
pub(super) fn wait_of(clock: Clock) -> Wait {
    match clock {
        Clock::Time => Wait::Unspec,
        Clock::Instructions => Wait::Queue,
    }
}

/// An endpoint on `host` that reports to `cq`, with queues of `depth`, not yet connected.
pub(super) fn endpoint(domain: &Domain, host: Host, cq: &Cq, depth: u32) -> Result<Endpoint> {
    let ep = domain
        .endpoint()
        .ep_type(EpType::Msg)
        .caps(Caps::MSG | Caps::RMA)
        .tx_size(depth)
        .rx_size(depth)
        .addr(SocketAddr::new(host.ip(), 0))
        .open()?;
    ep.bind_cq(cq, CqBind::TRANSMIT | CqBind::SELECTIVE)?;
    ep.bind_cq(cq, CqBind::RECV)?;
    for option in [QpOption::RdAtomic, QpOption::DestRdAtomic] {
        ep.set_qp_option(option, 16)?;
    }
    ep.enable()?;
    Ok(ep)
}

impl End {
    /// Opens an end for `game`, and connects it.
    fn new(host: Host, peer: Host, game: Game, channel: &mut Channel) -> Result<Self> {
        let domain = domain(host)?;
        let cq = domain
            .cq()
            .entries(4 * DEPTH as u32)
            .format(CqFormat::Msg)
            .wait(wait_of(game.clock))
            .open()?;
        let buffer = Buffer::new(game.size)?;
        buffer.fill(0);
        let all = Access::SEND | Access::RECV | Access::READ | Access::WRITE;
        let mr = domain
            .mr(&buffer)
            .access(all | Access::REMOTE_READ | Access::REMOTE_WRITE)
            .open()?;
        let ep = endpoint(&domain, host, &cq, DEPTH as u32)?;
        // Receives are posted before the peer can send.
        for _ in 0..DEPTH / BATCH {
            post(&ep, &[Op::recv(mr.slice(..)); BATCH])?;
        }
        let own = Address {
            qp: ep.qp()?,
            memory: mr.remote(0),
        };
        own.put(channel)?;
        let (qp, psn, remote) = Address::get(channel, peer)?;
        ep.connect_qp(qp, psn)?;
        Ok(Self {
            ring: RefCell::new(cq.ring()?),
            clock: game.clock,
            ahead: Cell::new(0),
            ep,
            mr,
            remote,
        })
    }

    /// Waits until there are some completions; returns how many of them are of `kind`.
    fn take(&self, kind: CompFlags, entries: &mut [Entry]) -> Result<usize> {
        let taken = match self.clock {
            Clock::Time => self.look(entries)?,
            Clock::Instructions => self.ring.borrow_mut().sread(entries, SILENCE)?,
        };
        if taken == 0 {
            return Err("the peer is silent".into());
        }
        let of_kind = |entry: &&Entry| entry.flags.contains(kind);
        Ok(entries[..taken].iter().filter(of_kind).count())
    }

    /// Polls until there are some completions, and takes them; 0: the peer is silent.
    fn look(&self, entries: &mut [Entry]) -> Result<usize> {
        let mut looks = 0u32;
        let mut began = None;
        loop {
            let taken = self.ring.borrow_mut().read(entries)?;
            if taken != 0 {
                return Ok(taken);
            }
            looks = looks.wrapping_add(1);
            // Reading the clock costs more than polling.
            if looks.is_multiple_of(1 << 16)
                && began.get_or_insert_with(Instant::now).elapsed() > SILENCE
            {
                return Ok(0);
            }
            hint::spin_loop();
        }
    }

    /// Takes `count` completions of `kind`, the only kind that a game expects at this end.
    fn take_all(&self, kind: CompFlags, count: u64) -> Result<()> {
        let mut entries = [Entry::default(); BATCH];
        let mut taken = self.ahead.take();
        while taken < count {
            taken += self.take(kind, &mut entries)? as u64;
        }
        self.ahead.set(taken - count);
        Ok(())
    }
}

/// The functions of both ends of a measurement.
#[derive(Clone, Copy)]
pub(super) struct Game {
    /// Bytes of an operation, and number of operations.
    pub(super) size: usize,
    pub(super) count: u64,
    /// Whether the ends may poll, or sleep until completions arrive.
    pub(super) clock: Clock,
    /// On the near host; returns the value.
    pub(super) near: fn(&End, Game) -> Result<f64>,
    /// On the far host.
    pub(super) far: fn(&End, Game) -> Result<()>,
}

impl Game {
    /// Runs it between two processes, one on each host.
    pub(super) fn play(self, hosts: &Hosts) -> Result<f64> {
        let Self { near, far, .. } = self;
        let near = move |channel: &mut Channel| {
            let end = End::new(Host::Near, Host::Far, self, channel)?;
            // The near end sends first; a packet that arrives at an end that is not connected yet
            // is lost.
            channel.get()?;
            near(&end, self)
        };
        let far = move |channel: &mut Channel| {
            let end = End::new(Host::Far, Host::Near, self, channel)?;
            channel.put(0)?;
            far(&end, self)?;
            channel.get().map(drop)
        };
        hosts.with_links(|| hosts::between(near, far))
    }

    fn per_second(self, began: Instant) -> f64 {
        self.count as f64 / began.elapsed().as_secs_f64()
    }

    fn megabytes_per_second(self, began: Instant) -> f64 {
        self.per_second(began) * self.size as f64 / 1e6
    }

    fn one_way(self, began: Instant) -> f64 {
        began.elapsed().as_nanos() as f64 / self.count as f64 / 2.0
    }
}

/// Posts `ops`; waits for room where there is none.
pub(super) fn post(ep: &Endpoint, mut ops: &[Op<'_>]) -> Result<()> {
    let began = Instant::now();
    while !ops.is_empty() {
        match ep.post(ops) {
            Ok(posted) => ops = &ops[posted.done..],
            Err(error) if error.errno() != Some(kfi::Errno::EAGAIN) => return Err(error.into()),
            Err(error) if began.elapsed() > SILENCE => return Err(error.into()),
            // The worker that frees room may need this CPU.
            Err(_) => thread::yield_now(),
        }
    }
    Ok(())
}

/// Messages in turn, each answered by one.
pub(super) fn ping(end: &End, game: Game) -> Result<f64> {
    let message = vec![7; game.size];
    let round = [Op::recv(end.mr.slice(..)), Op::inject(PEER, &message)];
    let began = Instant::now();
    post(&end.ep, &round[1..])?;
    for _ in 1..game.count {
        end.take_all(CompFlags::RECV, 1)?;
        post(&end.ep, &round)?;
    }
    end.take_all(CompFlags::RECV, 1)?;
    Ok(game.one_way(began))
}

/// Answers [`ping`].
pub(super) fn pong(end: &End, game: Game) -> Result<()> {
    let message = vec![7; game.size];
    let round = [Op::recv(end.mr.slice(..)), Op::inject(PEER, &message)];
    for _ in 0..game.count {
        end.take_all(CompFlags::RECV, 1)?;
        post(&end.ep, &round)?;
    }
    Ok(())
}

/// A number at the beginning of an end's memory, which the peer writes.
fn written(end: &End) -> u64 {
    let cell = end.mr.buffer().as_ptr().cast::<u64>();
    // SAFETY: The buffer begins with a page and has 8 bytes at least; the peer's writes are what is
    // looked for.
    unsafe { cell.read_volatile() }
}

/// Writes a number into the peer's memory.
fn write(end: &End, number: u64) -> Result<()> {
    post(
        &end.ep,
        &[Op::inject_write(PEER, &number.to_ne_bytes(), end.remote)],
    )
}

/// Polls until the peer has written `number`.
fn wait_written(end: &End, number: u64) {
    while written(end) != number {
        hint::spin_loop();
    }
}

/// Writes in turn, each found in the memory.
pub(super) fn write_ping(end: &End, game: Game) -> Result<f64> {
    let began = Instant::now();
    for number in 1..=game.count {
        write(end, number)?;
        wait_written(end, number);
    }
    Ok(game.one_way(began))
}

/// Answers [`write_ping`].
pub(super) fn write_pong(end: &End, game: Game) -> Result<()> {
    for number in 1..=game.count {
        wait_written(end, number);
        write(end, number)?;
    }
    Ok(())
}

/// Posts `op` repeatedly, a full queue under way; the last one of each call is reported.
fn stream(end: &End, game: Game, op: Op<'_>, flags: OpFlags, kind: CompFlags) -> Result<()> {
    let mut ops = [op.flags(flags); BATCH];
    ops[BATCH - 1] = op.flags(flags | OpFlags::COMPLETION);
    let calls = game.count / BATCH as u64;
    let ahead = (DEPTH / BATCH) as u64;
    for call in 0..calls {
        if call >= ahead {
            end.take_all(kind, 1)?;
        }
        post(&end.ep, &ops)?;
    }
    end.take_all(kind, calls.min(ahead))
}

/// Sends from memory; megabytes per second.
pub(super) fn send(end: &End, game: Game) -> Result<f64> {
    let began = Instant::now();
    let op = Op::send(PEER, end.mr.slice(..));
    stream(end, game, op, OpFlags::empty(), CompFlags::SEND)?;
    Ok(game.megabytes_per_second(began))
}

/// Sends small messages; messages per second.
pub(super) fn send_many(end: &End, game: Game) -> Result<f64> {
    let began = Instant::now();
    let op = Op::send(PEER, end.mr.slice(..));
    stream(end, game, op, OpFlags::INJECT, CompFlags::SEND)?;
    Ok(game.per_second(began))
}

/// Receives what [`send`] and [`send_many`] send.
pub(super) fn receive(end: &End, game: Game) -> Result<()> {
    let receives = [Op::recv(end.mr.slice(..)); BATCH];
    for _ in 0..game.count / BATCH as u64 {
        end.take_all(CompFlags::RECV, BATCH as u64)?;
        post(&end.ep, &receives)?;
    }
    Ok(())
}

/// Writes into the peer's memory; megabytes per second.
pub(super) fn rma_write(end: &End, game: Game) -> Result<f64> {
    let began = Instant::now();
    let op = Op::write(PEER, end.mr.slice(..), end.remote);
    stream(end, game, op, OpFlags::empty(), CompFlags::WRITE)?;
    Ok(game.megabytes_per_second(began))
}

/// Reads from the peer's memory; megabytes per second.
pub(super) fn rma_read(end: &End, game: Game) -> Result<f64> {
    let began = Instant::now();
    let op = Op::read(PEER, end.mr.slice(..), end.remote);
    stream(end, game, op, OpFlags::empty(), CompFlags::READ)?;
    Ok(game.megabytes_per_second(began))
}

/// The peer of RMA, which stays idle.
pub(super) fn nothing(_: &End, _: Game) -> Result<()> {
    Ok(())
}
