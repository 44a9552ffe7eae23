// SPDX-License-Identifier: GPL-2.0
//! One side of a game: an endpoint, the queue or counter that reports on it,
//! and its two buffers.
//!
//! A side throws (posts the receive for the answer and the message, in one
//! call) and catches (waits until the other side's message has arrived). An
//! entry of the CQ or the value of a counter reports an arrival, and a side can
//! wait for either in three ways. Sends that succeed are silent unless
//! everything is to be shown; a send that fails makes an error entry, which the
//! next catch finds.
//!
//! [`stream`] is the game without answers.

mod stream;

use std::{
    net::SocketAddr,
    time::{Duration, Instant},
};

use kfi::{
    Access, AuthKey, Av, AvKind, Buffer, Caps, Cntr, CntrBind, CntrFd, CompFlags, Cq, CqBind,
    CqFormat, CqRing, Deadline, Domain, Endpoint, Entry, FiAddr, Local, Mr, MrMode, Op, Remote,
    Wait, WaitFd,
};

use crate::{
    args::{Completion, Mode, WaitBy},
    link::with_port,
    pingpong::{control::Region, trace::Trace},
};

/// Parameters of a game.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Game {
    /// Kind of messages.
    pub(crate) mode: Mode,
    /// Report of arrivals.
    pub(crate) completion: Completion,
    /// Way of waiting.
    pub(crate) wait: WaitBy,
    /// Bytes of a message.
    pub(crate) size: usize,
    /// Messages under way, all of them from the client; `None`: in turn.
    pub(crate) window: Option<u32>,
    /// Longest silence of the other side.
    pub(crate) timeout: Duration,
    /// Show everything.
    pub(crate) trace: bool,
    /// Authorization key of the endpoint.
    pub(crate) auth_key: AuthKey,
}

/// Reason why a game ended.
#[derive(Debug, thiserror::Error)]
pub(crate) enum Foul {
    /// An error of the library.
    #[error(transparent)]
    Kfi(#[from] kfi::Error),
    /// Silence.
    #[error("the peer has been silent for {0:?}")]
    Silent(Duration),
    /// A message other than the expected one.
    #[error("message {0} arrived with wrong bytes or a wrong length")]
    Wrong(u64),
    /// The output.
    #[error("{0}")]
    Output(Box<crate::error::Error>),
}

/// The objects that report arrivals.
enum Arrival {
    CqSpin(CqRing),
    CqSread,
    CqFd(WaitFd),
    CntrSpin,
    CntrSread,
    CntrFd(CntrFd),
}

/// One side.
pub(crate) struct Player {
    game: Game,
    server: bool,
    ep: Endpoint,
    cq: Cq,
    av: Av,
    counters: Vec<(&'static str, CntrBind, Cntr)>,
    arrival: Arrival,
    out: Buffer,
    inbox: Buffer,
    mr: Option<Mr>,
    peer: FiAddr,
    remote: Remote,
    /// Number of messages that have arrived.
    pub(crate) caught: u64,
}

/// Capabilities of an endpoint; a trace needs the source of messages, too.
fn caps(source: bool) -> Caps {
    let caps = Caps::MSG | Caps::TAGGED | Caps::RMA;
    if source { caps | Caps::SOURCE } else { caps }
}

/// The domain for players and their control endpoints.
pub(crate) fn domain(device: &kfi::Device, link: &str) -> kfi::Result<Domain> {
    let mode = MrMode::VIRT_ADDR | MrMode::PROV_KEY;
    device.fabric()?.domain(link).mr_mode(mode).open()
}

impl Player {
    /// A side of `game`.
    pub(crate) fn open(
        domain: &Domain,
        game: Game,
        server: bool,
        host: Option<SocketAddr>,
    ) -> kfi::Result<Self> {
        let mut cq = domain.cq().format(CqFormat::Tagged).wait(Wait::Queue);
        let av = domain.av().kind(AvKind::Table).open()?;
        let mut ep = domain
            .endpoint()
            .caps(caps(game.trace))
            .auth_key(game.auth_key);
        if let Some(window) = game.window {
            let depth = window.max(16);
            cq = cq.entries(2 * depth);
            ep = ep.tx_size(depth).rx_size(depth);
        }
        let cq = cq.open()?;
        if let Some(host) = host {
            ep = ep.addr(with_port(host, 0));
        }
        let ep = ep.open()?;
        let quiet = |wanted: bool| {
            if wanted {
                CqBind::empty()
            } else {
                CqBind::SELECTIVE
            }
        };
        ep.bind_cq(&cq, CqBind::TRANSMIT | quiet(game.trace))?;
        let entries = game.trace || game.completion == Completion::Cq;
        ep.bind_cq(&cq, CqBind::RECV | quiet(entries))?;
        ep.bind_av(&av)?;

        // The waiting side looks first at the object that reports arrivals.
        let kinds = match game.mode {
            Mode::Msg | Mode::Tagged => [("recv", CntrBind::RECV), ("send", CntrBind::SEND)],
            Mode::Rma => [
                ("remote write", CntrBind::REMOTE_WRITE),
                ("write", CntrBind::WRITE),
            ],
        };
        let wanted = match (game.trace, game.completion) {
            (true, _) => kinds.len(),
            (false, Completion::Cntr) => 1,
            (false, Completion::Cq) => 0,
        };
        let mut counters = Vec::new();
        for (name, kind) in &kinds[..wanted] {
            let cntr = domain.cntr().wait(Wait::Queue).open()?;
            ep.bind_cntr(&cntr, *kind)?;
            counters.push((*name, *kind, cntr));
        }
        let cntr = counters.first().map(|(_, _, cntr)| cntr);
        let arrival = match (game.completion, game.wait, cntr) {
            (Completion::Cntr, WaitBy::Spin, _) => Arrival::CntrSpin,
            (Completion::Cntr, WaitBy::Fd, Some(cntr)) => Arrival::CntrFd(cntr.wait_fd()?),
            (Completion::Cntr, ..) => Arrival::CntrSread,
            (Completion::Cq, WaitBy::Spin, _) => Arrival::CqSpin(cq.ring()?),
            (Completion::Cq, WaitBy::Sread, _) => Arrival::CqSread,
            (Completion::Cq, WaitBy::Fd, _) => Arrival::CqFd(cq.wait_fd()?),
        };

        let (out, inbox) = (
            Buffer::new(game.size.max(1))?,
            Buffer::new(game.size.max(1))?,
        );
        out.fill(b'.');
        let mr = match game.mode {
            Mode::Rma => Some(domain.mr(&inbox).access(Access::REMOTE_WRITE).open()?),
            Mode::Msg | Mode::Tagged => None,
        };
        ep.enable()?;
        Ok(Self {
            game,
            server,
            ep,
            cq,
            av,
            counters,
            arrival,
            out,
            inbox,
            mr,
            peer: FiAddr::UNSPEC,
            remote: Remote::new(0, 0),
            caught: 0,
        })
    }

    /// Its address.
    pub(crate) fn name(&self) -> kfi::Result<SocketAddr> {
        self.ep.name()
    }

    /// Its memory for the peer.
    pub(crate) fn region(&self) -> Option<Region> {
        self.mr.as_ref().map(|mr| Region {
            addr: mr.iova(),
            key: mr.key(),
        })
    }

    /// Adds the peer's address.
    pub(crate) fn meet(&mut self, peer: SocketAddr, region: Option<Region>) -> kfi::Result<()> {
        self.peer = self.av.insert_one(peer)?;
        if let Some(region) = region {
            self.remote = Remote::new(region.addr, region.key);
        }
        Ok(())
    }

    /// Posts the first receive of the side that does not begin.
    pub(crate) fn prepare(&mut self, trace: &mut Trace) -> Result<(), Foul> {
        trace.posts_receive(&self.game, self.next_tag())?;
        match self.game.mode {
            Mode::Msg => self.ep.recv(self.room(), self.next_tag())?,
            Mode::Tagged => self
                .ep
                .trecv(self.room(), self.next_tag(), 0, self.next_tag())?,
            Mode::Rma => {}
        }
        Ok(())
    }

    fn room(&self) -> Local<'_> {
        self.inbox.slice(..self.game.size).into()
    }

    /// Number of the next message from the other side, counting those of both
    /// sides: the client's are even.
    fn next_tag(&self) -> u64 {
        2 * self.caught + u64::from(!self.server)
    }

    /// Sends message `number` of this side, after posting the receive for the
    /// answer if there will be one.
    pub(crate) fn throw(&mut self, number: u64, last: bool, trace: &mut Trace) -> Result<(), Foul> {
        let serial = 2 * number + u64::from(self.server);
        write_stamp(&self.out, self.game.size, serial);
        let answer = self.next_tag();
        trace.posts_send(&self.game, serial, (!last).then_some(answer), self.remote)?;
        let message: Local<'_> = self.out.slice(..self.game.size).into();
        let (receive, send) = match self.game.mode {
            Mode::Msg => (Some(Op::recv(self.room())), Op::send(self.peer, message)),
            Mode::Tagged => (
                Some(Op::trecv(self.room(), answer, 0)),
                Op::tsend(self.peer, message, serial),
            ),
            Mode::Rma => {
                let write = Op::write(self.peer, message, self.remote);
                // With remote CQ data the peer's CQ reports the write.
                let tells = self.game.trace || self.game.completion == Completion::Cq;
                (None, if tells { write.data(serial) } else { write })
            }
        };
        let send = send.context(serial);
        match receive.filter(|_| !last) {
            Some(receive) => {
                let posted = self.ep.post(&[receive.context(answer), send])?;
                if posted.done < 2 {
                    // Says why the second was refused.
                    self.ep.post_one(&send)?;
                }
            }
            None => self.ep.post_one(&send)?,
        }
        Ok(())
    }

    /// Waits for the other side's next message.
    pub(crate) fn catch(&mut self, trace: &mut Trace) -> Result<(), Foul> {
        let due = self.next_tag();
        let deadline = Deadline::after(self.game.timeout);
        let counted = self.caught + 1;
        match &mut self.arrival {
            Arrival::CqSpin(ring) => loop {
                let mut entry = [Entry::default()];
                spin(self.game.timeout, || {
                    read_ring(ring, &self.cq, &mut entry).map(|count| count > 0)
                })?;
                if seen(&self.game, &self.av, &entry[0], &self.inbox, trace)? {
                    break;
                }
            },
            Arrival::CqSread => loop {
                let entry = self
                    .cq
                    .next(deadline)?
                    .ok_or(Foul::Silent(self.game.timeout))?;
                if seen(&self.game, &self.av, &entry, &self.inbox, trace)? {
                    break;
                }
            },
            Arrival::CqFd(fd) => loop {
                if !fd.wait(deadline)? {
                    return Err(Foul::Silent(self.game.timeout));
                }
                let Some(entry) = self.cq.next(Deadline::POLL)? else {
                    continue;
                };
                if seen(&self.game, &self.av, &entry, &self.inbox, trace)? {
                    break;
                }
            },
            Arrival::CntrSpin => {
                let cntr = &self.counters[0].2;
                let mapped = cntr.mapped();
                spin(self.game.timeout, || {
                    if mapped.err() != 0 {
                        return Err(failure(&self.cq));
                    }
                    Ok(mapped.value() >= counted)
                })?;
            }
            Arrival::CntrSread => match self.counters[0].2.wait(counted, deadline) {
                Ok(_) => {}
                Err(error) if error.is_timeout() => return Err(Foul::Silent(self.game.timeout)),
                Err(error) if error.is_eavail() => return Err(failure(&self.cq)),
                Err(error) => return Err(error.into()),
            },
            Arrival::CntrFd(fd) => {
                let cntr = &self.counters[0].2;
                fd.arm(counted)?;
                while cntr.value() < counted {
                    if !fd.wait(deadline)? {
                        return Err(Foul::Silent(self.game.timeout));
                    }
                    if cntr.err() != 0 {
                        return Err(failure(&self.cq));
                    }
                }
            }
        }
        if self.game.completion == Completion::Cntr {
            let (name, _, cntr) = &self.counters[0];
            trace.counter_reached(name, cntr.value(), &self.inbox, self.game.size)?;
            self.leftover(trace)?;
        }
        if !stamp_is(&self.inbox, self.game.size, due) {
            return Err(Foul::Wrong(due));
        }
        self.caught += 1;
        Ok(())
    }

    /// Shows at the end the entries not shown yet, and the counters.
    pub(crate) fn finish(&mut self, trace: &mut Trace) -> Result<(), Foul> {
        if !self.game.trace {
            return Ok(());
        }
        // Waits for the completion of the last send.
        std::thread::sleep(Duration::from_millis(20));
        self.leftover(trace)?;
        for (name, kind, cntr) in &self.counters {
            trace.counter(name, *kind, cntr.values())?;
        }
        Ok(())
    }

    /// Shows the queued entries, if everything is to be shown.
    fn leftover(&mut self, trace: &mut Trace) -> Result<(), Foul> {
        if !self.game.trace {
            return Ok(());
        }
        loop {
            let mut entry = [Entry::default()];
            let count = match &mut self.arrival {
                Arrival::CqSpin(ring) => read_ring(ring, &self.cq, &mut entry)?,
                _ => match self.cq.next(Deadline::POLL)? {
                    Some(next) => {
                        entry[0] = next;
                        1
                    }
                    None => 0,
                },
            };
            if count == 0 {
                return Ok(());
            }
            seen(&self.game, &self.av, &entry[0], &self.inbox, trace)?;
        }
    }

    /// Objects that a benchmark uses directly.
    pub(crate) fn parts(&self) -> (&Endpoint, &Cq, FiAddr) {
        (&self.ep, &self.cq, self.peer)
    }
}

/// Shows an entry; returns whether it is an arrival.
fn seen(
    game: &Game,
    av: &Av,
    entry: &Entry,
    inbox: &Buffer,
    trace: &mut Trace,
) -> Result<bool, Foul> {
    let arrival = match game.mode {
        Mode::Msg | Mode::Tagged => CompFlags::RECV,
        Mode::Rma => CompFlags::REMOTE_WRITE,
    };
    let arrived = entry.flags.contains(arrival);
    // Where a counter reports arrivals, another may have arrived meanwhile.
    let there = arrived && game.completion == Completion::Cq;
    let name = |peer| av.lookup(peer).ok();
    trace.entry(entry, name, arrived, there.then_some((inbox, game.size)))?;
    Ok(arrived)
}

/// An entry from the ring, or the error entry before it.
fn read_ring(ring: &mut CqRing, cq: &Cq, entry: &mut [Entry; 1]) -> Result<usize, Foul> {
    ring.read(entry).map_err(|error| {
        if error.is_eavail() {
            failure(cq)
        } else {
            error.into()
        }
    })
}

/// The operation that failed.
fn failure(cq: &Cq) -> Foul {
    match cq.readerr() {
        Ok(Some(entry)) => kfi::Error::Completion(Box::new(entry)).into(),
        Ok(None) => Foul::Kfi(kfi::Error::Nonsense(
            "an error counted without an error entry",
        )),
        Err(error) => error.into(),
    }
}

/// Checks repeatedly, and checks the time now and then.
fn spin(timeout: Duration, mut done: impl FnMut() -> Result<bool, Foul>) -> Result<(), Foul> {
    let start = Instant::now();
    for look in 1u32.. {
        if done()? {
            return Ok(());
        }
        std::hint::spin_loop();
        if look % 1024 == 0 {
            if start.elapsed() > timeout {
                return Err(Foul::Silent(timeout));
            }
            // The peer may need this CPU.
            std::thread::yield_now();
        }
    }
    Ok(())
}

/// Length of the mark that distinguishes messages.
const STAMP: usize = 8;

/// `ping` or `pong` and the last four digits of the message's number.
fn stamp(serial: u64) -> [u8; STAMP] {
    let mut text = if serial.is_multiple_of(2) {
        *b"ping0000"
    } else {
        *b"pong0000"
    };
    let mut left = serial / 2 % 10_000;
    for digit in text[4..].iter_mut().rev() {
        *digit = b'0' + (left % 10) as u8;
        left /= 10;
    }
    text
}

/// Marks a message at both ends, as far as there is room.
fn write_stamp(buffer: &Buffer, size: usize, serial: u64) {
    let stamp = stamp(serial);
    buffer.write_at(0, &stamp[..size.min(STAMP)]);
    if size >= 2 * STAMP {
        buffer.write_at(size - STAMP, &stamp);
    }
}

/// Whether the message has these marks.
fn stamp_is(buffer: &Buffer, size: usize, serial: u64) -> bool {
    let stamp = stamp(serial);
    let mut found = [0; STAMP];
    let first = size.min(STAMP);
    buffer.read_at(0, &mut found[..first]);
    let mut good = found[..first] == stamp[..first];
    if size >= 2 * STAMP {
        buffer.read_at(size - STAMP, &mut found);
        good &= found == stamp;
    }
    good
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn marks_distinguish_messages() {
        assert_eq!(&stamp(0), b"ping0000");
        assert_eq!(&stamp(3), b"pong0001");
        assert_eq!(&stamp(2 * 12345), b"ping2345");
        for size in [0usize, 1, 7, 8, 15, 16, 100] {
            let buffer = Buffer::new(size.max(1)).unwrap();
            write_stamp(&buffer, size, 10);
            assert!(stamp_is(&buffer, size, 10), "{size}");
            assert_eq!(stamp_is(&buffer, size, 12), size < 8, "{size}");
        }
    }

    #[test]
    fn marks_at_the_end_of_a_long_message_are_checked() {
        let buffer = Buffer::new(100).unwrap();
        write_stamp(&buffer, 100, 1);
        buffer.write_at(99, b"?");
        assert!(!stamp_is(&buffer, 100, 1));
    }

    #[test]
    fn spinning_ends() {
        let timeout = Duration::from_millis(5);
        assert!(matches!(spin(timeout, || Ok(false)), Err(Foul::Silent(_))));
        assert!(spin(timeout, || Ok(true)).is_ok());
    }
}
