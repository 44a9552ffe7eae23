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
//!
//! Any program can send to the endpoint of a server. A message that is too long or
//! cannot be read is reported to the caller as such, and a send to a peer that has
//! left fails for this peer only ([`Peer`]): neither is an error of the endpoint.

use std::{
    cell::{Cell, RefCell},
    collections::{HashMap, VecDeque},
    net::SocketAddr,
    time::{Duration, Instant},
};

use kfi::{
    AuthKey, Av, AvKind, Buffer, Cntr, CntrBind, CompFlags, Cq, CqBind, CqFormat, Deadline, Domain,
    Endpoint, Errno, FiAddr, Wait,
};
use serde::{Deserialize, Serialize, de::DeserializeOwned};

use crate::{
    args::{Completion, MAX_COUNT, MAX_WINDOW, Mode, WaitBy},
    error::{Doing, Error, Result},
    text,
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

/// Messages that are kept until somebody asks for them; more are dropped, as if they were lost.
const KEPT: usize = 64;

/// Version of this exchange.
pub(crate) const VERSION: u32 = 2;

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
    /// Those of the warm-up, which come first.
    #[serde(default)]
    pub(crate) warmup: u64,
    /// Messages under way at a time, all of them from the client; `None`: in turn.
    #[serde(default)]
    pub(crate) window: Option<u32>,
    /// The client has another game after this one.
    #[serde(default)]
    pub(crate) more: bool,
    /// Show everything.
    pub(crate) trace: bool,
}

impl Hello {
    /// Why a server whose messages have at most `max_size` bytes refuses it. A client of this
    /// program asks only for what its own arguments can say.
    pub(crate) fn refusal(&self, max_size: u64) -> Option<String> {
        let why = if self.version != VERSION {
            format!("version {VERSION} here, {} there", self.version)
        } else if self.size > max_size {
            format!(
                "messages of {} are longer than {}, which --max-size at the server allows",
                text::bytes(self.size),
                text::bytes(max_size)
            )
        } else if self.count == 0 || self.warmup >= self.count || self.count > 2 * MAX_COUNT {
            format!("{} messages and {} before them", self.count, self.warmup)
        } else if self
            .window
            .is_some_and(|window| !(1..=MAX_WINDOW).contains(&window))
        {
            format!("there are 1 to {MAX_WINDOW} messages under way")
        } else if self.mode == Mode::Rma && (self.size == 0 || self.region.is_none()) {
            "a write needs bytes, and memory of the client".to_owned()
        } else {
            return None;
        };
        Some(why)
    }
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

/// A peer of a control endpoint.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Peer {
    addr: FiAddr,
    /// Its number, which no other peer of the endpoint has or had: the context of sends to it.
    number: u64,
}

/// Context of receives.
const RECEIVE: u64 = 0;

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
    /// Number of the next peer.
    next: Cell<u64>,
    sorted: RefCell<Sorted>,
}

/// What has arrived at the queue, and was not asked for yet.
#[derive(Debug, Default)]
struct Sorted {
    /// Messages; the error is the reason why one is none.
    arrived: VecDeque<Result<Vec<u8>, String>>,
    /// The failed sends of peers that are known, by their numbers; of each peer the first.
    failed: HashMap<u64, Option<kfi::Error>>,
}

impl Sorted {
    fn arrive(&mut self, message: Result<Vec<u8>, String>) {
        if self.arrived.len() < KEPT {
            self.arrived.push_back(message);
        }
    }

    /// A send has failed; that of a peer that has left meanwhile is of no interest.
    fn fail(&mut self, number: u64, error: kfi::Error) {
        if let Some(failed) = self.failed.get_mut(&number) {
            failed.get_or_insert(error);
        }
    }
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
        ep.recv(&inbox, RECEIVE)?;
        Ok(Self {
            cq,
            av,
            ep,
            inbox,
            outbox,
            posted: Cell::new(0),
            ended,
            next: Cell::new(RECEIVE + 1),
            sorted: RefCell::default(),
        })
    }

    /// Its address.
    pub(crate) fn name(&self) -> Result<SocketAddr> {
        self.ep.name().doing("get the endpoint's address")
    }

    /// Adds a peer.
    pub(crate) fn meet(&self, peer: SocketAddr) -> Result<Peer> {
        let addr = self
            .av
            .insert_one(peer)
            .doing(format!("insert {peer} into the address vector"))?;
        let number = self.next.get();
        self.next.set(number + 1);
        self.sorted.borrow_mut().failed.insert(number, None);
        Ok(Peer { addr, number })
    }

    /// Removes a peer.
    pub(crate) fn part(&self, peer: Peer) -> Result<()> {
        self.sorted.borrow_mut().failed.remove(&peer.number);
        self.av
            .remove(&[peer.addr])
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
    pub(crate) fn send(&self, peer: Peer, message: &impl Serialize) -> Result<()> {
        let text = serde_json::to_vec(message).map_err(|error| Error::output(error.into()))?;
        self.wait_for_outbox()
            .doing("wait until the last message was sent")?;
        self.outbox.write_at(0, &text);
        self.ep
            .send(peer.addr, self.outbox.slice(..text.len()), peer.number)
            .doing(self.sending(peer))?;
        self.posted.set(self.posted.get() + 1);
        Ok(())
    }

    /// Waits until the last message was sent; the error is that of a send to `peer`.
    pub(crate) fn sent(&self, peer: Peer) -> Result<()> {
        self.wait_for_outbox()
            .doing("wait until the last message was sent")?;
        // Others may send all the time; what arrives later is no failure of this message.
        for _ in 0..KEPT {
            if !self.sort(Deadline::POLL)? {
                break;
            }
        }
        self.failure(peer)
    }

    fn sending(&self, peer: Peer) -> String {
        match self.av.lookup(peer.addr) {
            Ok(addr) => format!("send to {addr}"),
            Err(_) => "send".to_owned(),
        }
    }

    /// The failure of a send to a peer.
    fn failure(&self, peer: Peer) -> Result<()> {
        let failed = self
            .sorted
            .borrow_mut()
            .failed
            .get_mut(&peer.number)
            .and_then(Option::take);
        match failed {
            None => Ok(()),
            Some(error) => Err(error).doing(self.sending(peer)),
        }
    }

    /// Takes one entry of the queue, and puts it where it belongs; false: there was none.
    fn sort(&self, deadline: Deadline) -> Result<bool> {
        let message = match self.cq.next(deadline) {
            Ok(None) => return Ok(false),
            Ok(Some(entry)) if entry.flags.contains(CompFlags::RECV) => {
                Ok(self.inbox.to_vec(..ROOM.min(entry.len as usize)))
            }
            Ok(Some(_)) => return Ok(true),
            Err(kfi::Error::Completion(entry)) if entry.op_context == RECEIVE => Err(format!(
                "it has {} bytes: {}",
                entry.len + entry.olen,
                entry.err
            )),
            Err(kfi::Error::Completion(entry)) => {
                let number = entry.op_context;
                let error = kfi::Error::Completion(entry);
                self.sorted.borrow_mut().fail(number, error);
                return Ok(true);
            }
            Err(error) => return Err(error).doing("receive"),
        };
        self.ep.recv(&self.inbox, RECEIVE).doing("post a receive")?;
        self.sorted.borrow_mut().arrive(message);
        Ok(true)
    }

    /// The next message; `None`: none arrived in this time. The inner error is the reason why a
    /// message cannot be understood. A send to `peer` that has failed is an error.
    pub(crate) fn receive<T: DeserializeOwned>(
        &self,
        peer: Option<Peer>,
        limit: Option<Duration>,
    ) -> Result<Option<Result<T, String>>> {
        let deadline = Deadline::from(limit);
        loop {
            if let Some(peer) = peer {
                self.failure(peer)?;
            }
            let message = self.sorted.borrow_mut().arrived.pop_front();
            if let Some(message) = message {
                return Ok(Some(message.and_then(|text| {
                    serde_json::from_slice(&text).map_err(|error| error.to_string())
                })));
            }
            if !self.sort(deadline)? {
                return Ok(None);
            }
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
            warmup: u64::MAX,
            window: Some(u32::MAX),
            more: false,
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
    fn a_server_refuses_what_no_argument_can_say() {
        let good = Hello {
            version: VERSION,
            control: "10.0.0.1:1".parse().unwrap(),
            data: "10.0.0.1:2".parse().unwrap(),
            region: Some(Region { addr: 0, key: 0 }),
            mode: Mode::Rma,
            completion: Completion::Cq,
            wait: WaitBy::Sread,
            size: 4096,
            count: 2 * MAX_COUNT,
            warmup: MAX_COUNT,
            window: Some(MAX_WINDOW),
            more: true,
            trace: false,
        };
        assert_eq!(good.refusal(4096), None);
        type Change = fn(&mut Hello);
        let bad: [(Change, &str); 9] = [
            (|hello| hello.version = 1, "version 2 here, 1 there"),
            (|hello| hello.size = 4097, "--max-size"),
            (|hello| hello.size = 8 << 30, "8 GiB"),
            (|hello| hello.count = 0, "0 messages"),
            (|hello| hello.count = 2 * MAX_COUNT + 1, "20000001 messages"),
            (|hello| hello.warmup = hello.count, "before them"),
            (|hello| hello.window = Some(MAX_WINDOW + 1), "1 to 256"),
            (|hello| hello.window = Some(0), "1 to 256"),
            (|hello| hello.region = None, "memory of the client"),
        ];
        for (change, why) in bad {
            let mut hello = good.clone();
            change(&mut hello);
            let refusal = hello.refusal(4096).expect(why);
            assert!(refusal.contains(why), "{refusal}");
        }
        let mut nothing = good;
        nothing.size = 0;
        assert!(nothing.refusal(4096).is_some());
        nothing.mode = Mode::Msg;
        assert_eq!(nothing.refusal(4096), None);
    }

    /// That of version 1 has fewer members; the answer has to name the version.
    #[test]
    fn a_request_of_an_older_version_can_be_read() {
        let old = r#"{"hello":{"version":1,"control":"10.0.0.1:1","data":"10.0.0.1:2","#.to_owned()
            + r#""region":null,"mode":"msg","completion":"cq","wait":"sread","size":8589934592,"#
            + r#""count":1,"trace":false}}"#;
        let FromClient::Hello(hello) = serde_json::from_str(&old).unwrap() else {
            panic!("not a request");
        };
        assert!(hello.refusal(u64::MAX).unwrap().contains("1 there"));
    }

    #[test]
    fn stray_messages_fill_no_memory_and_failures_belong_to_a_peer() {
        let mut sorted = Sorted::default();
        for _ in 0..3 * KEPT {
            sorted.arrive(Err("too long".to_owned()));
        }
        assert_eq!(sorted.arrived.len(), KEPT);
        sorted.failed.insert(5, None);
        for number in [4, 5, 5, 6] {
            sorted.fail(number, kfi::Error::RingTaken);
        }
        assert_eq!(sorted.failed.len(), 1, "peers that have left are forgotten");
        assert!(sorted.failed[&5].is_some());
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
