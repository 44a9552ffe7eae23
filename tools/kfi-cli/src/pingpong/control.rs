// SPDX-License-Identifier: GPL-2.0
//! The exchange by which two ping-pong programs find each other.
//!
//! Each program has an endpoint for this exchange only. The client sends
//! [`Hello`] from it to the server's address: its own two addresses, which the
//! server cannot know otherwise, and the parameters of the game. The server
//! makes an endpoint with them and answers [`Welcome`]; then the game runs
//! between the other two endpoints. At the end the client sends [`Bye`], so
//! that the server stays until all messages have arrived. The messages are
//! JSON, which is readable in a trace, and which a program of another version
//! can partly understand.

use std::{
    cell::Cell,
    net::SocketAddr,
    time::{Duration, Instant},
};

use kfi::{
    AuthKey, Av, AvKind, Buffer, Cntr, CntrBind, CompFlags, Cq, CqBind, CqFormat, Deadline, Domain,
    Endpoint, Errno, FiAddr, Wait,
};
use serde::{Deserialize, Serialize, de::DeserializeOwned};

use crate::{
    args::{Completion, Mode, WaitBy},
    error::{Doing, Error, Result},
};

/// Longest message, bytes.
pub(crate) const ROOM: usize = 8192;

/// Longest wait for the end of a send. If the peer does not answer, the send fails earlier.
const SENT_WITHIN: Duration = Duration::from_secs(20);

/// Time after which the counter of sends is read again, because an error may have been missed.
const LOOK_AGAIN: Duration = Duration::from_millis(10);

/// A client's message to a server.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub(crate) enum FromClient {
    /// The client wants to play.
    Hello(Hello),
    /// The client has received everything.
    Bye(Bye),
}

/// Version of this exchange.
pub(crate) const VERSION: u32 = 1;

/// Memory of a peer that can be written to.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Region {
    /// Address of the first byte, as peers name it.
    pub(crate) addr: u64,
    /// Its key.
    pub(crate) key: u64,
}

/// The client's request.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub(crate) struct Hello {
    /// [`VERSION`].
    pub(crate) version: u32,
    /// Address for the answer.
    pub(crate) control: SocketAddr,
    /// Address for the messages of the game.
    pub(crate) data: SocketAddr,
    /// Memory for writes.
    pub(crate) region: Option<Region>,
    /// Kind of messages.
    pub(crate) mode: Mode,
    /// Report of arrivals.
    pub(crate) completion: Completion,
    /// Way of waiting.
    pub(crate) wait: WaitBy,
    /// Bytes of a message.
    pub(crate) size: u64,
    /// Messages each way, warm-up among them.
    pub(crate) count: u64,
    /// Show everything.
    pub(crate) trace: bool,
}

/// The server's answer.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub(crate) enum Welcome {
    /// Begin.
    Play {
        /// Address for the messages of the game.
        data: SocketAddr,
        /// Memory for writes.
        region: Option<Region>,
    },
    /// The server refuses.
    No {
        /// Why not.
        why: String,
    },
}

/// The client has received everything.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub(crate) struct Bye {
    /// Answers that arrived.
    pub(crate) answers: u64,
}

/// An endpoint for such messages.
pub(crate) struct Control {
    cq: Cq,
    av: Av,
    ep: Endpoint,
    inbox: Buffer,
    outbox: Buffer,
    /// Number of sends that were posted.
    posted: Cell<u64>,
    /// Counts the sends that have ended, successes and errors.
    ended: Cntr,
}

impl Control {
    /// At this address, or at any of the link's addresses.
    pub(crate) fn open(
        domain: &Domain,
        addr: Option<SocketAddr>,
        auth_key: AuthKey,
    ) -> Result<Self> {
        let doing = match addr {
            Some(addr) => format!("open an endpoint at {addr}"),
            None => "open an endpoint".to_owned(),
        };
        Self::objects(domain, addr, auth_key).doing(doing)
    }

    fn objects(domain: &Domain, addr: Option<SocketAddr>, auth_key: AuthKey) -> kfi::Result<Self> {
        let cq = domain.cq().format(CqFormat::Msg).wait(Wait::Queue).open()?;
        let av = domain.av().kind(AvKind::Table).open()?;
        let mut ep = domain.endpoint().auth_key(auth_key);
        if let Some(addr) = addr {
            ep = ep.addr(addr);
        }
        let ep = ep.open()?;
        // Only failed sends are of interest.
        ep.bind_cq(&cq, CqBind::TRANSMIT | CqBind::SELECTIVE)?;
        ep.bind_cq(&cq, CqBind::RECV)?;
        ep.bind_av(&av)?;
        let ended = domain.cntr().wait(Wait::Queue).open()?;
        ep.bind_cntr(&ended, CntrBind::SEND)?;
        ep.enable()?;
        let (inbox, outbox) = (Buffer::new(ROOM)?, Buffer::new(ROOM)?);
        ep.recv(&inbox, 0)?;
        Ok(Self {
            cq,
            av,
            ep,
            inbox,
            outbox,
            posted: Cell::new(0),
            ended,
        })
    }

    /// Its address.
    pub(crate) fn name(&self) -> Result<SocketAddr> {
        self.ep.name().doing("get the endpoint's address")
    }

    /// Adds a peer.
    pub(crate) fn meet(&self, peer: SocketAddr) -> Result<FiAddr> {
        self.av
            .insert_one(peer)
            .doing(format!("insert {peer} into the address vector"))
    }

    /// Removes a peer.
    pub(crate) fn part(&self, peer: FiAddr) -> Result<()> {
        self.av
            .remove(&[peer])
            .doing("remove the client from the address vector")
    }

    /// Waits until the last send has ended. Until then the module may read the buffer.
    fn wait_for_outbox(&self) -> kfi::Result<()> {
        let begin = Instant::now();
        loop {
            let successes = self.posted.get().saturating_sub(self.ended.err());
            match self.ended.wait(successes, LOOK_AGAIN) {
                Ok(_) => return Ok(()),
                Err(error) if begin.elapsed() > SENT_WITHIN => return Err(error),
                Err(error)
                    if matches!(
                        error.errno(),
                        Some(Errno::ETIMEDOUT | Errno::KFI_EAVAIL | Errno::EINTR)
                    ) => {}
                Err(error) => return Err(error),
            }
        }
    }

    /// Sends a message, after the last one has been sent.
    pub(crate) fn send(&self, peer: FiAddr, message: &impl Serialize) -> Result<()> {
        let text = serde_json::to_vec(message).map_err(|error| Error::output(error.into()))?;
        self.wait_for_outbox()
            .doing("wait until the last message was sent")?;
        self.outbox.write_at(0, &text);
        let place = || match self.av.lookup(peer) {
            Ok(addr) => format!("send to {addr}"),
            Err(_) => "send".to_owned(),
        };
        self.ep
            .send(peer, self.outbox.slice(..text.len()), 0)
            .doing(place())?;
        self.posted.set(self.posted.get() + 1);
        Ok(())
    }

    /// The next message; `None`: none arrived in this time. The inner error is
    /// a message that cannot be understood.
    pub(crate) fn receive<T: DeserializeOwned>(
        &self,
        limit: Option<Duration>,
    ) -> Result<Option<Result<T, String>>> {
        let deadline = Deadline::from(limit);
        loop {
            let Some(entry) = self.cq.next(deadline).doing("receive")? else {
                return Ok(None);
            };
            if !entry.flags.contains(CompFlags::RECV) {
                continue;
            }
            let text = self.inbox.to_vec(..ROOM.min(entry.len as usize));
            self.ep.recv(&self.inbox, 0).doing("post a receive")?;
            return Ok(Some(
                serde_json::from_slice(&text).map_err(|error| error.to_string()),
            ));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn messages_survive_encoding_and_fit_the_buffer() {
        let longest = Hello {
            version: VERSION,
            control: "[ffff:ffff:ffff:ffff:ffff:ffff:ffff:ffff]:65535"
                .parse()
                .unwrap(),
            data: "[ffff:ffff:ffff:ffff:ffff:ffff:ffff:ffff]:65535"
                .parse()
                .unwrap(),
            region: Some(Region {
                addr: u64::MAX,
                key: u64::MAX,
            }),
            mode: Mode::Tagged,
            completion: Completion::Cntr,
            wait: WaitBy::Sread,
            size: u64::MAX,
            count: u64::MAX,
            trace: false,
        };
        let longest = FromClient::Hello(longest);
        let text = serde_json::to_vec(&longest).unwrap();
        assert!(text.len() < ROOM, "{}", text.len());
        assert_eq!(
            serde_json::from_slice::<FromClient>(&text).unwrap(),
            longest
        );
    }

    #[test]
    fn answers_are_json() {
        let play = Welcome::Play {
            data: "127.0.0.1:9".parse().unwrap(),
            region: None,
        };
        assert_eq!(
            serde_json::to_string(&play).unwrap(),
            r#"{"play":{"data":"127.0.0.1:9","region":null}}"#
        );
        assert!(serde_json::from_str::<Welcome>("{}").is_err());
    }
}
