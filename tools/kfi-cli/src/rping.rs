// SPDX-License-Identifier: GPL-2.0
//! `kfi rping`: exchanges data as rdma-core's rping does, with it, or with this
//! command, as the peer.
//!
//! The two connect by connection management, and the client offers memory.
//!
//! ```text
//!   client                                    server
//!   fills a buffer
//!   SEND key, address, length ------------->  READs the buffer
//!                             <-------------  SEND: go on
//!   SEND those of another one ------------->  WRITEs what it has read there
//!                             <-------------  SEND: done
//!   compares the two
//! ```
//!
//! A SEND has 16 bytes in network order: address (8), key (4), length (4); those
//! of the server have no meaning. The text begins with its number; the server
//! writes it back up to its NUL, which is the last byte.

use std::{
    net::SocketAddr,
    time::{Duration, Instant},
};

use kfi::{
    Access, Buffer, Caps, CompFlags, ConnectionEvent, Cq, CqBind, CqFormat, Device, Domain,
    Endpoint, EpType, Errno, EventKind, Fabric, FiAddr, Link, Mr, MrMode, Remote, Wait,
};
use serde::Serialize;

use crate::{
    args::Rping,
    error::{Doing, Error, Result},
    link::{self, with_port},
    out::Out,
    text,
};

/// The port of rping.
pub(crate) const PORT: u16 = 7174;

/// Length of the shortest text: it has room for its number.
pub(crate) const MIN_SIZE: u64 = 26;

/// Length of the longest text of rping.
pub(crate) const MAX_SIZE: u64 = 65_535;

/// Bytes of a SEND.
const INFO: usize = 16;

/// Contexts of operations.
const RECV: u64 = 1;
const SEND: u64 = 2;
const RMA: u64 = 3;

/// A piece of memory, as one side describes it to the other.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Info {
    addr: u64,
    key: u32,
    len: u32,
}

impl Info {
    fn to_bytes(self) -> [u8; INFO] {
        let mut bytes = [0; INFO];
        bytes[..8].copy_from_slice(&self.addr.to_be_bytes());
        bytes[8..12].copy_from_slice(&self.key.to_be_bytes());
        bytes[12..].copy_from_slice(&self.len.to_be_bytes());
        bytes
    }

    fn from_bytes(bytes: &[u8; INFO]) -> Self {
        let word = |at: usize| u32::from_be_bytes([0, 1, 2, 3].map(|n| bytes[at + n]));
        Self {
            addr: u64::from(word(0)) << 32 | u64::from(word(4)),
            key: word(8),
            len: word(12),
        }
    }
}

/// The text of a ping: its number, and letters, which begin with another one in
/// each ping.
fn words(ping: u64, size: usize) -> Vec<u8> {
    const FIRST: u8 = b'A';
    const COUNT: u64 = (b'z' - FIRST) as u64 + 1;
    let mut text = format!("rdma-ping-{ping}: ").into_bytes();
    let begin = text.len() as u64;
    let letter = |at: u64| FIRST + ((ping + at - begin) % COUNT) as u8;
    text.extend((begin..size as u64).map(letter));
    text.truncate(size.saturating_sub(1));
    text.push(0);
    text
}

/// The result, in JSON.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub(crate) struct ResultJson {
    event: &'static str,
    role: &'static str,
    link: String,
    peer: SocketAddr,
    size: u64,
    iterations: u64,
    seconds: f64,
}

/// Where the command plays.
struct Ends<'a> {
    device: &'a Device,
    link: &'a Link,
    fabric: &'a Fabric,
    domain: &'a Domain,
    /// The own address of the command line.
    own: Option<SocketAddr>,
}

fn open_domain(fabric: &Fabric, link: &str) -> Result<Domain> {
    fabric
        .domain(link)
        .mr_mode(MrMode::VIRT_ADDR | MrMode::PROV_KEY)
        .open()
        .doing(format!("open a domain on {link}"))
}

/// Runs `kfi rping`.
pub(crate) fn run(args: &Rping, out: &mut Out) -> Result<()> {
    let device = link::open()?;
    let server_addr = { args.server.as_ref() }
        .map(|place| place.or_port(PORT))
        .transpose()?;
    // A client has any port of its own.
    let port = if server_addr.is_some() { 0 } else { PORT };
    let own = { args.bind.as_ref() }
        .map(|place| place.or_port(port))
        .transpose()?;
    let link = link::choose(&device, args.link.as_deref(), own, server_addr)?;
    let fabric = device.fabric().doing("open the fabric")?;
    let ends = Ends {
        device: &device,
        link: &link,
        fabric: &fabric,
        domain: &open_domain(&fabric, &link.name)?,
        own,
    };
    match server_addr {
        Some(server) => client(args, link::on(&link, server), &ends, out),
        None => server(args, &ends, out),
    }
}

/// One end: an endpoint, and memory for the game.
struct End {
    timeout: Duration,
    eq: kfi::Eq,
    cq: Cq,
    ep: Endpoint,
    /// The buffers for the peer's SENDs, and for those of this side.
    inbox: Buffer,
    outbox: Buffer,
    /// Received, but not handled yet.
    arrived: u32,
}

impl End {
    fn open(timeout: Duration, fabric: &Fabric, domain: &Domain, addr: SocketAddr) -> Result<Self> {
        Self::try_open(timeout, fabric, domain, addr).doing("set up the endpoint")
    }

    fn try_open(
        timeout: Duration,
        fabric: &Fabric,
        domain: &Domain,
        addr: SocketAddr,
    ) -> kfi::Result<Self> {
        let eq = fabric.eq().wait(Wait::Unspec).open()?;
        let cq = domain
            .cq()
            .format(CqFormat::Msg)
            .wait(Wait::Unspec)
            .open()?;
        let ep = domain
            .endpoint()
            .ep_type(EpType::Msg)
            .caps(Caps::MSG | Caps::RMA)
            .addr(addr)
            .open()?;
        ep.bind_cq(&cq, CqBind::TRANSMIT | CqBind::RECV)?;
        ep.bind_eq(&eq)?;
        ep.enable()?;
        let end = Self {
            timeout,
            eq,
            cq,
            ep,
            inbox: Buffer::new(INFO)?,
            outbox: Buffer::new(INFO)?,
            arrived: 0,
        };
        end.ep.recv(&end.inbox, RECV)?;
        Ok(end)
    }

    /// Waits until it is connected.
    fn connected(&self, peer: SocketAddr) -> Result<()> {
        match self.eq.read(self.timeout) {
            Ok(Some(event)) if event.kind == EventKind::Connected => Ok(()),
            Ok(Some(event)) => Err(Error::with_help(
                format!("{peer} has gone: {}", event.kind.name()),
                "check its output",
            )),
            Ok(None) => Err(silent(self.timeout)),
            Err(error) if error.is(Errno::KFI_EAVAIL) => Err(self.refused(peer)),
            Err(error) => Err(error).doing("wait for the connection"),
        }
    }

    fn refused(&self, peer: SocketAddr) -> Error {
        match self.eq.readerr() {
            Ok(Some(error)) => Error::with_help(
                format!("{peer} cannot be connected with: {}", error.err),
                match error.prov_errno {
                    8 => "no listener at that port: is the server running there?",
                    _ => "is it reachable, and does it run rping or kfi rping?",
                },
            ),
            Ok(None) => silent(self.timeout),
            Err(source) => Error::Kfi {
                doing: "read why there is no connection".into(),
                source: Box::new(source),
                help: None,
            },
        }
    }

    /// Waits for the end of an operation; `None`: the connection is over.
    fn ends(&mut self, context: u64) -> Result<Option<()>> {
        loop {
            if context == RECV && self.arrived > 0 {
                self.arrived -= 1;
                return Ok(Some(()));
            }
            let entry = match self.cq.next(self.timeout) {
                Ok(Some(entry)) => entry,
                Ok(None) => return Err(silent(self.timeout)),
                Err(kfi::Error::Completion(entry)) if entry.err == Errno::ECANCELED => {
                    return Ok(None);
                }
                Err(error) => return Err(error).doing("play"),
            };
            if entry.flags.contains(CompFlags::RECV) {
                if entry.len as usize != INFO {
                    return Err(Error::with_help(
                        format!("the peer sent {} bytes instead of {INFO}", entry.len),
                        "is it rping or kfi rping?",
                    ));
                }
                self.arrived += 1;
            } else if entry.op_context == context {
                return Ok(Some(()));
            }
        }
    }

    /// Sends, after the last SEND is complete.
    fn say(&mut self, info: Info) -> Result<Option<()>> {
        self.outbox.write_at(0, &info.to_bytes());
        match self.ep.send(FiAddr::UNSPEC, &self.outbox, SEND) {
            Err(error) if error.is(Errno::ESHUTDOWN) => return Ok(None),
            sent => sent.doing("send")?,
        }
        self.ends(SEND)
    }

    /// Waits for the peer's SEND.
    fn receive(&mut self) -> Result<Option<Info>> {
        if self.ends(RECV)?.is_none() {
            return Ok(None);
        }
        let mut bytes = [0; INFO];
        self.inbox.read_at(0, &mut bytes);
        match self.ep.recv(&self.inbox, RECV) {
            // A SEND that arrived earlier is still handled.
            Err(error) if error.is(Errno::ESHUTDOWN) => {}
            posted => posted.doing("post a receive")?,
        }
        Ok(Some(Info::from_bytes(&bytes)))
    }
}

fn silent(timeout: Duration) -> Error {
    Error::with_help(
        format!("the peer has been silent for {timeout:?}"),
        "give it more time with --timeout, or check its output",
    )
}

/// The end of a connection in the middle of the game.
fn gone() -> Error {
    Error::with_help(
        "the peer has ended the connection in the middle of a ping",
        "check its output",
    )
}

fn region(domain: &Domain, size: usize) -> Result<Mr> {
    let open = || {
        let buffer = Buffer::new(size)?;
        domain
            .mr(&buffer)
            .access(Access::REMOTE_READ | Access::REMOTE_WRITE)
            .open()
    };
    open().doing("register memory")
}

fn info(mr: &Mr, size: usize) -> Info {
    Info {
        addr: mr.buffer().addr(),
        // Keys have 32 bits.
        key: mr.key() as u32,
        len: size as u32,
    }
}

fn client(args: &Rping, server: SocketAddr, ends: &Ends<'_>, out: &mut Out) -> Result<()> {
    let (link, domain) = (ends.link, ends.domain);
    let local = link::client_addr(ends.device, link, ends.own, server)?;
    let mut end = End::open(args.timeout, ends.fabric, domain, local)?;
    let size = args.size as usize;
    let (from, to) = (region(domain, size)?, region(domain, size)?);
    end.ep
        .connect(server, b"")
        .doing(format!("connect with {server}"))?;
    end.connected(server)?;
    let begin = Instant::now();
    for ping in 0..args.iterations {
        let text = words(ping, size);
        from.buffer().write_at(0, &text);
        to.buffer().fill(0);
        for offered in [info(&from, size), info(&to, size)] {
            end.say(offered)?.ok_or_else(gone)?;
            end.receive()?.ok_or_else(gone)?;
        }
        if to.buffer().to_vec(..size) != text {
            return Err(Error::with_help(
                format!("ping {ping} came back with wrong bytes"),
                "that is a defect, here or at the peer",
            ));
        }
        show(args, "ping", &text, out)?;
    }
    let time = begin.elapsed();
    match end.ep.shutdown() {
        Err(error) if error.is(Errno::ENOTCONN) => {}
        over => over.doing("disconnect")?,
    }
    report(args, "client", link, server, args.iterations, time, out)
}

fn server(args: &Rping, ends: &Ends<'_>, out: &mut Out) -> Result<()> {
    let (link, fabric) = (ends.link, ends.fabric);
    let at = link::server_addr(link, ends.own, PORT)?;
    let listen = || {
        let eq = fabric.eq().wait(Wait::Unspec).open()?;
        let pep = fabric.passive_endpoint(at).open()?;
        pep.bind_eq(&eq)?;
        pep.listen()?;
        kfi::Result::Ok((eq, pep))
    };
    let (eq, pep) = listen().doing(format!("listen at {at}"))?;
    if out.is_json() {
        out.document(&serde_json::json!({
            "event": "listening", "role": "server", "link": link.name, "address": at,
        }))?;
    } else {
        out.line(format!(
            "server  at {at}, waiting for: rping -c -a {}",
            text::for_client(with_port(at, 0)).trim_end_matches(":0")
        ))?;
    }
    loop {
        let served = match eq.read(kfi::Deadline::FOREVER) {
            Ok(event) => match event.and_then(|event| event.connection()) {
                Some(asked) => serve(args, &pep, &asked, ends, out),
                None => continue,
            },
            // An event of a client that has failed.
            Err(error) if error.is_eavail() => match eq.readerr().doing("read an error event")? {
                Some(event) => Err(Error::with_help(
                    format!("a request for a connection has failed: {}", event.err),
                    "the client may have gone",
                )),
                None => continue,
            },
            Err(error) => return Err(error).doing("wait for a client"),
        };
        match served {
            Err(error) if args.keep && !error.is_broken_pipe() => error.report(out.is_json()),
            served => served?,
        }
        if !args.keep {
            return Ok(());
        }
    }
}

/// Accepts a request, on the link at which it came; else the client is told that it was rejected.
fn accept(
    args: &Rping,
    pep: &kfi::PassiveEndpoint,
    asked: &ConnectionEvent,
    ends: &Ends<'_>,
) -> Result<End> {
    let accept = || {
        let other;
        let domain = match asked.link == ends.link.name {
            true => ends.domain,
            false => {
                other = open_domain(ends.fabric, &asked.link)?;
                &other
            }
        };
        let here = with_port(asked.local, 0);
        let end = End::open(args.timeout, ends.fabric, domain, here)?;
        end.ep
            .accept(pep, asked.connreq, b"")
            .doing(format!("accept {}", asked.peer))?;
        Ok(end)
    };
    accept().inspect_err(|_| {
        // The client may have given up; nothing is left to tell it then.
        let _ = pep.reject(asked.connreq, b"");
    })
}

fn serve(
    args: &Rping,
    pep: &kfi::PassiveEndpoint,
    asked: &ConnectionEvent,
    ends: &Ends<'_>,
    out: &mut Out,
) -> Result<()> {
    let mut end = accept(args, pep, asked, ends)?;
    end.connected(asked.peer)?;
    let mirror = Buffer::new(MAX_SIZE as usize).doing("get memory")?;
    let nothing = Info {
        addr: 0,
        key: 0,
        len: 0,
    };
    let begin = Instant::now();
    let mut pings = 0;
    let mut longest = 0;
    // The client may end the connection between two pings.
    while let Some(source) = end.receive()? {
        let size = source.len as usize;
        if !(1..=mirror.len()).contains(&size) {
            return Err(Error::with_help(
                format!("the client offers {size} bytes, and there are 1 to {MAX_SIZE}"),
                "is it rping or kfi rping?",
            ));
        }
        longest = longest.max(size as u64);
        let from = Remote::new(source.addr, source.key.into());
        end.ep
            .read(FiAddr::UNSPEC, mirror.slice(..size), from, RMA)
            .doing("read the client's memory")?;
        end.ends(RMA)?.ok_or_else(gone)?;
        let text = mirror.to_vec(..size);
        show(args, "server ping", &text, out)?;
        end.say(nothing)?.ok_or_else(gone)?;
        let target = end.receive()?.ok_or_else(gone)?;
        // Up to the NUL, inclusive.
        let len = text.iter().position(|byte| *byte == 0);
        let len = len.map_or(size, |end| end + 1).min(target.len as usize);
        let to = Remote::new(target.addr, target.key.into());
        end.ep
            .write(FiAddr::UNSPEC, mirror.slice(..len), to, RMA)
            .doing("write to the client's memory")?;
        end.ends(RMA)?.ok_or_else(gone)?;
        pings += 1;
        // The client may have all the pings it wants.
        if end.say(nothing)?.is_none() {
            break;
        }
    }
    let time = begin.elapsed();
    let sized = Rping {
        size: longest,
        ..args.clone()
    };
    report(&sized, "server", ends.link, asked.peer, pings, time, out)
}

/// Shows the text of a ping, if requested.
fn show(args: &Rping, what: &str, text: &[u8], out: &mut Out) -> Result<()> {
    if !args.verbose || out.is_json() {
        return Ok(());
    }
    let end = text.iter().position(|byte| *byte == 0);
    let text = String::from_utf8_lossy(&text[..end.unwrap_or(text.len())]);
    out.line(format!("{what} data: {text}"))
}

fn report(
    args: &Rping,
    role: &'static str,
    link: &Link,
    peer: SocketAddr,
    iterations: u64,
    time: Duration,
    out: &mut Out,
) -> Result<()> {
    let result = ResultJson {
        event: "result",
        role,
        link: link.name.clone(),
        peer,
        size: args.size,
        iterations,
        seconds: time.as_secs_f64(),
    };
    if out.is_json() {
        out.document(&result)
    } else {
        out.line(text::wrapped(&summary(&result), 8))
    }
}

fn summary(result: &ResultJson) -> String {
    format!(
        "{}  with {} on {}: {} pings of {} read, written back and compared, in {:.3} s",
        result.role,
        result.peer,
        result.link,
        result.iterations,
        text::bytes(result.size),
        result.seconds,
    )
}

#[cfg(test)]
pub(crate) mod tests {
    use super::*;

    pub(crate) fn result() -> ResultJson {
        ResultJson {
            event: "result",
            role: "client",
            link: "roce0".into(),
            peer: "192.0.2.2:7174".parse().unwrap(),
            size: 64,
            iterations: 10,
            seconds: 0.25,
        }
    }

    #[test]
    fn a_send_has_address_key_and_length_in_network_order() {
        let info = Info {
            addr: 0x1122_3344_5566_7788,
            key: 0x99aa_bbcc,
            len: 64,
        };
        let bytes = info.to_bytes();
        assert_eq!(
            bytes,
            [
                0x11, 0x22, 0x33, 0x44, 0x55, 0x66, 0x77, 0x88, 0x99, 0xaa, 0xbb, 0xcc, 0, 0, 0, 64
            ]
        );
        assert_eq!(Info::from_bytes(&bytes), info);
    }

    /// The format that rping prints.
    #[test]
    fn ping_texts_equal_those_of_rping() {
        assert_eq!(words(0, 30), b"rdma-ping-0: ABCDEFGHIJKLMNOP\0");
        assert_eq!(words(1, 30), b"rdma-ping-1: BCDEFGHIJKLMNOPQ\0");
        assert_eq!(words(58, 30), words(0, 30).replace_number());
        let long = words(3, 65_535);
        assert_eq!((long.len(), long[65_534]), (65_535, 0));
        assert!(long[..65_534].iter().all(|byte| *byte != 0));
        assert_eq!(words(2_147_483_647, 26).len(), 26);
    }

    trait Renumber {
        fn replace_number(self) -> Vec<u8>;
    }

    impl Renumber for Vec<u8> {
        /// Ping 58 has the letters of ping 0, shifted by one.
        fn replace_number(self) -> Vec<u8> {
            let mut text = b"rdma-ping-58: ".to_vec();
            text.extend(&self[13..28]);
            text.push(0);
            text
        }
    }

    #[test]
    fn as_text() {
        assert_eq!(
            summary(&result()),
            "client  with 192.0.2.2:7174 on roce0: 10 pings of 64 B read, written back and compared, \
             in 0.250 s"
        );
    }
}
