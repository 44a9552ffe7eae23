// SPDX-License-Identifier: GPL-2.0
//! The other host, as the client sees it.

use std::{
    net::SocketAddr,
    time::{Duration, Instant},
};

use kfi::{AuthKey, Domain, collective::Ring};

use super::{
    control::{FromClient, FromServer, Hello, Prepare, VERSION},
    observe::{Fired, nanos},
};
use crate::{
    error::{Error, Result},
    pingpong::control::{Control, Peer},
    text,
};

/// Questions for the time of the other host; the fastest answer counts.
const CLOCKS: usize = 16;

/// The other host.
pub(super) struct OtherHost {
    ring: Ring,
    control: Control,
    peer: Peer,
    server: SocketAddr,
    timeout: Duration,
}

/// How the clock of the other host differs from ours.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct ClockOffset {
    /// Nanoseconds by which it is ahead.
    ahead: i128,
    /// Half the round trip of the question: the error is not larger.
    pub(super) error: Duration,
}

impl ClockOffset {
    /// From the time of a question and that of its answer, and the time in the answer, all in
    /// nanoseconds.
    fn new(asked: u64, answered: u64, theirs: u64) -> Self {
        let half = answered.saturating_sub(asked) / 2;
        Self {
            ahead: i128::from(theirs) - i128::from(asked + half),
            error: Duration::from_nanos(half),
        }
    }

    /// A time of the other host in our time.
    fn ours(self, theirs: u64) -> u64 {
        let ours = i128::from(theirs) - self.ahead;
        u64::try_from(ours.max(0)).unwrap_or(u64::MAX)
    }
}

impl OtherHost {
    /// Finds the server; gives also the addresses of its endpoints.
    pub(super) fn meet(
        domain: &Domain,
        own: Option<SocketAddr>,
        server: SocketAddr,
        timeout: Duration,
        ring: Ring,
        addresses: Vec<SocketAddr>,
    ) -> Result<(Self, Vec<SocketAddr>)> {
        let control = Control::open(domain, own, AuthKey::NONE)?;
        let peer = control.meet(server)?;
        let hello = Hello {
            version: VERSION,
            control: control.name()?,
            endpoints: ring.ranks(),
            words: ring.words(),
            addresses,
        };
        let this = Self {
            ring,
            control,
            peer,
            server,
            timeout,
        };
        this.send(&FromClient::Hello(hello))?;
        match this.receive()? {
            FromServer::Welcome { addresses } if addresses.len() == ring.ranks_of(1).count() => {
                Ok((this, addresses))
            }
            other => Err(this.unexpected(&other)),
        }
    }

    fn send(&self, message: &FromClient) -> Result<()> {
        self.control.send(self.peer, message)
    }

    /// The next message, unless it is a refusal.
    fn receive(&self) -> Result<FromServer> {
        match self.control.receive(Some(self.peer), Some(self.timeout))? {
            Some(Ok(FromServer::No { why })) => Err(Error::with_help(
                format!("the server ends: {}", text::of_peer(&why)),
                "look at the server's output",
            )),
            Some(Ok(message)) => Ok(message),
            Some(Err(why)) => Err(Error::with_help(
                format!("the answer of {} cannot be read: {why}", self.server),
                "is that a kfi trigger of the same version?",
            )),
            None => Err(Error::with_help(
                format!("no answer from {} in {:?}", self.server, self.timeout),
                "is a kfi trigger --serve there that is not busy with another client?",
            )),
        }
    }

    fn unexpected(&self, message: &FromServer) -> Error {
        Error::with_help(
            format!(
                "{} sent an answer that does not fit: {}",
                self.server,
                text::of_peer(&format!("{message:?}"))
            ),
            "is that a kfi trigger of the same version?",
        )
    }

    /// Compares the clocks; ours counts since `epoch`.
    pub(super) fn compare_clocks(&self, epoch: Instant) -> Result<ClockOffset> {
        let mut best: Option<ClockOffset> = None;
        for _ in 0..CLOCKS {
            let asked = nanos(epoch);
            self.send(&FromClient::Clock)?;
            let theirs = match self.receive()? {
                FromServer::Clock { ns } => ns,
                other => return Err(self.unexpected(&other)),
            };
            let found = ClockOffset::new(asked, nanos(epoch), theirs);
            if best.is_none_or(|best| found.error < best.error) {
                best = Some(found);
            }
        }
        Ok(best.unwrap_or(ClockOffset::new(0, 0, 0)))
    }

    /// Lets the server prepare its part of a run, and waits until it has.
    pub(super) fn prepare(&self, prepare: Prepare) -> Result<()> {
        self.send(&FromClient::Prepare(prepare))?;
        match self.receive()? {
            FromServer::Ready => Ok(()),
            other => Err(self.unexpected(&other)),
        }
    }

    /// Waits until the server's part has ended; gives its observations, in our time.
    pub(super) fn finish(&self, offset: ClockOffset) -> Result<Vec<Fired>> {
        let mut all = Vec::new();
        loop {
            match self.receive()? {
                FromServer::Done => return Ok(all),
                FromServer::Seen { fired } if fits(self.ring, &all, &fired) => {
                    all.extend(fired.into_iter().map(|fired| Fired {
                        ns: offset.ours(fired.ns),
                        ..fired
                    }));
                }
                other => return Err(self.unexpected(&other)),
            }
        }
    }

    /// Lets the server end.
    pub(super) fn bye(&self) -> Result<()> {
        self.send(&FromClient::Bye)
    }
}

/// Whether these can be observations of the other host, beside those that came before.
fn fits(ring: Ring, before: &[Fired], fired: &[Fired]) -> bool {
    // Each chunk of each rank changes its state three times at most.
    let most = 3 * ring.ranks() * ring.chunks();
    let possible = |fired: &Fired| {
        fired.rank < ring.ranks() && ring.host_of(fired.rank) == 1 && fired.chunk < ring.chunks()
    };
    before.len() + fired.len() <= most && fired.iter().all(possible)
}

/// The offset without another host.
pub(super) const SAME_CLOCK: ClockOffset = ClockOffset {
    ahead: 0,
    error: Duration::ZERO,
};

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn impossible_observations_are_refused() {
        use super::super::observe::What;
        let ring = Ring::new(4, 8).unwrap().hosts(2).unwrap();
        let seen = |rank, chunk| Fired {
            rank,
            chunk,
            what: What::Output,
            ns: 0,
        };
        let last = ring.chunks() - 1;
        assert!(fits(ring, &[], &[seen(1, 0), seen(3, last)]));
        // Of this host, of no rank, of no chunk.
        for bad in [
            seen(0, 0),
            seen(5, 0),
            seen(usize::MAX, 0),
            seen(1, last + 1),
        ] {
            assert!(!fits(ring, &[], &[seen(1, 0), bad]));
        }
        let many = vec![seen(1, 0); 3 * 4 * ring.chunks()];
        assert!(!fits(ring, &many, &[seen(1, 0)]));
    }

    #[test]
    fn times_of_another_clock_are_converted() {
        // Asked at 1000, answered at 1400 in our time: theirs was 51,200 at 1200.
        let offset = ClockOffset::new(1000, 1400, 51_200);
        assert_eq!(offset.error, Duration::from_nanos(200));
        assert_eq!(offset.ours(51_200), 1200);
        assert_eq!(offset.ours(60_000), 10_000);
        // Their clock is behind.
        let offset = ClockOffset::new(1000, 1400, 200);
        assert_eq!(offset.ours(200), 1200);
        assert_eq!(offset.ours(0), 1000);
        // Before our epoch.
        assert_eq!(ClockOffset::new(0, 0, 500).ours(100), 0);
        assert_eq!(SAME_CLOCK.ours(77), 77);
    }
}
