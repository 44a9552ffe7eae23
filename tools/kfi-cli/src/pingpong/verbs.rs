// SPDX-License-Identifier: GPL-2.0
//! `kfi pingpong --verbs`: exchanges messages as `ibv_rc_pingpong` and `ibv_ud_pingpong` do, with
//! one of them, or with this command, as the peer.
//!
//! The two programs exchange the attributes of their QPs over TCP, connect them, and send messages
//! in turn, the client first. Both need the same number of iterations. Those programs do not
//! define the bytes, but they send the bytes that they have received last, so that the client can
//! compare them.
//!
//! ```text
//!   client                          server
//!   lid:qpn:psn:gid  ------------->  connects its QP
//!                    <-------------  lid:qpn:psn:gid
//!   connects its QP
//!   done             ------------->  begins
//! ```

use std::{
    fmt,
    io::{self, ErrorKind, Read as _, Write as _},
    net::{IpAddr, SocketAddr, TcpListener, TcpStream},
    str::FromStr,
    time::{Duration, Instant},
};

use kfi::{
    Buffer, Caps, CompFlags, Cq, CqBind, CqFormat, Domain, Endpoint, EpType, FiAddr, Link, Op,
    OpFlags, QpAddr, QpInfo, QpOption, Wait,
};
use serde::Serialize;

use crate::{
    args::{Pingpong, Verbs},
    error::{Doing, Error, Result},
    link::{self, from_peer, with_port},
    out::Out,
    pingpong::{Ends, latency::Latency},
    text,
};

/// The TCP port of those programs.
pub(super) const PORT: u16 = 18515;

/// The Q key of ibv_ud_pingpong.
const QKEY: u32 = 0x1111_1111;

/// The path MTU of ibv_rc_pingpong.
const MTU: u32 = 1024;

/// Number of receives that are posted ahead: the peer's next message may come before this side has
/// read the last one.
const AHEAD: usize = 2;

/// Length of the attributes of a QP as text, with a NUL behind.
const WORDS: usize = 52;

/// Adds the action to an error of TCP.
trait DoingTcp<T> {
    /// `doing` completes "cannot ...".
    fn doing_tcp(self, doing: &str) -> Result<T>;
}

impl<T> DoingTcp<T> for io::Result<T> {
    fn doing_tcp(self, doing: &str) -> Result<T> {
        self.map_err(|error| {
            let help = help_tcp(error.kind());
            Error::with_help(format!("cannot {doing}: {error}"), help)
        })
    }
}

/// The advice for an error of TCP, whose cause need not be the peer.
fn help_tcp(kind: ErrorKind) -> &'static str {
    match kind {
        ErrorKind::AddrInUse => {
            "another program listens at that TCP port: ss -tlnp shows it, --bind chooses another port"
        }
        ErrorKind::AddrNotAvailable => {
            "this host does not have the address: ip address lists those that it has"
        }
        ErrorKind::HostUnreachable | ErrorKind::NetworkUnreachable | ErrorKind::NetworkDown => {
            "ip route get ADDRESS shows the route to the peer"
        }
        ErrorKind::PermissionDenied => "ports below 1024 need CAP_NET_BIND_SERVICE: run as root",
        _ => "is ibv_rc_pingpong, ibv_ud_pingpong or kfi pingpong --verbs there?",
    }
}

/// Attributes of a QP that its peer needs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Dest {
    lid: u16,
    qpn: u32,
    psn: u32,
    gid: [u8; 16],
}

impl Dest {
    fn of(qp: &QpInfo) -> Self {
        Self {
            lid: 0,
            qpn: qp.qpn,
            psn: qp.psn,
            gid: qp.gid,
        }
    }

    /// The QP's address; a GID has no scope.
    fn addr(&self) -> Result<QpAddr> {
        if self.gid == [0; 16] {
            return Err(Error::with_help(
                "the peer has no GID",
                "give it the index of one: ibv_rc_pingpong -g 1",
            ));
        }
        let ip: IpAddr = kfi::ip_of_gid(self.gid);
        Ok(QpAddr {
            host: SocketAddr::new(ip, 0),
            qpn: self.qpn,
        })
    }

    /// The text that is sent.
    fn words(&self) -> [u8; WORDS] {
        let mut words = [0; WORDS];
        let text = self.to_string();
        words[..text.len()].copy_from_slice(text.as_bytes());
        words
    }

    /// Reads the peer's text.
    fn receive(stream: &mut TcpStream) -> Result<Self> {
        let mut words = [0; WORDS];
        stream
            .read_exact(&mut words)
            .doing_tcp("receive the attributes of the peer's QP")?;
        let end = words.iter().position(|byte| *byte == 0).unwrap_or(WORDS);
        let text = String::from_utf8_lossy(&words[..end]);
        text.parse().map_err(|()| {
            Error::with_help(
                format!("the peer sent {text:?}, which does not describe a QP"),
                "is it ibv_rc_pingpong, ibv_ud_pingpong or kfi pingpong --verbs?",
            )
        })
    }
}

impl fmt::Display for Dest {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:04x}:{:06x}:{:06x}:", self.lid, self.qpn, self.psn)?;
        self.gid.iter().try_for_each(|byte| write!(f, "{byte:02x}"))
    }
}

impl FromStr for Dest {
    type Err = ();

    fn from_str(text: &str) -> Result<Self, ()> {
        let mut parts = text.split(':');
        let mut number = |digits: usize| {
            let part = parts.next().filter(|part| part.len() == digits).ok_or(())?;
            u128::from_str_radix(part, 16).map_err(drop)
        };
        let dest = Self {
            lid: number(4)? as u16,
            qpn: number(6)? as u32,
            psn: number(6)? as u32,
            gid: number(32)?.to_be_bytes(),
        };
        match parts.next() {
            None => Ok(dest),
            Some(_) => Err(()),
        }
    }
}

/// The result of a game, in JSON.
#[derive(Debug, Serialize)]
struct ResultJson {
    event: &'static str,
    role: &'static str,
    verbs: Verbs,
    link: String,
    peer: SocketAddr,
    size: u64,
    iterations: u64,
    seconds: f64,
    /// Of one way; only the client knows it.
    latency_us: Option<Latency>,
    /// Of both ways together.
    bytes_per_second: f64,
}

/// A game on these ends.
struct Play<'a> {
    args: &'a Pingpong,
    verbs: Verbs,
    size: u64,
    ends: &'a Ends<'a>,
}

/// Plays with the parameters of `args`.
pub(super) fn run(args: &Pingpong, verbs: Verbs, ends: &Ends<'_>, out: &mut Out) -> Result<()> {
    let [size] = args.size.0[..] else {
        return Err(Error::with_help(
            "the peer of --verbs has one size",
            "give --size one number",
        ));
    };
    let play = Play {
        args,
        verbs,
        size,
        ends,
    };
    match ends.server {
        Some(server) => play.client(server, out),
        None => play.server(out),
    }
}

/// What the peer has to be, with these parameters.
fn peer_command(verbs: Verbs, size: u64, args: &Pingpong, addr: SocketAddr) -> String {
    let port = match addr.port() {
        PORT => String::new(),
        port => format!(" -p {port}"),
    };
    let mtu = match verbs {
        Verbs::Rc => format!(" -m {}", args.mtu.unwrap_or(MTU)),
        Verbs::Ud => String::new(),
    };
    format!(
        "ibv_{verbs}_pingpong -g INDEX -s {size} -n {}{mtu}{port} {}",
        args.iterations,
        match addr {
            SocketAddr::V6(v6) if v6.scope_id() != 0 => format!("{}%INTERFACE", v6.ip()),
            other => other.ip().to_string(),
        }
    )
}

impl Play<'_> {
    fn client(&self, server: SocketAddr, out: &mut Out) -> Result<()> {
        let args = self.args;
        let mut stream = TcpStream::connect_timeout(&server, args.timeout)
            .doing_tcp("reach the server over TCP")?;
        prepare(&stream, args)?;
        let mut side = self.side(self.ends.client_addr(server)?)?;
        stream
            .write_all(&side.dest()?.words())
            .doing_tcp("send the attributes of the QP to the server")?;
        let dest = Dest::receive(&mut stream)?;
        side.connect(&dest, self.ends.link)?;
        stream
            .write_all(b"done\0")
            .doing_tcp("tell the server to begin")?;
        let (time, trips) = side.play(true)?;
        side.report("client", self.ends.link, server, time, Some(trips), out)
    }

    fn server(&self, out: &mut Out) -> Result<()> {
        let (args, link, verbs) = (self.args, self.ends.link, self.verbs);
        let host = link::server_addr(link, self.ends.own, PORT)?;
        let listener = TcpListener::bind(host).doing_tcp("listen for clients over TCP")?;
        let addr = listener.local_addr().doing_tcp("get the own address")?;
        if out.is_json() {
            out.document(&serde_json::json!({
                "event": "listening", "role": "server", "verbs": verbs, "link": link.name,
                "address": addr,
            }))?;
        } else {
            out.line(text::wrapped(
                &format!(
                    "server  at {addr}, waiting for: {}",
                    peer_command(verbs, self.size, args, addr)
                ),
                8,
            ))?;
        }
        loop {
            let accepted = listener.accept();
            let served = match accepted.doing_tcp("wait for a client over TCP") {
                Ok((stream, peer)) => self.serve_one(stream, peer, out),
                Err(error) => {
                    // It may be a lack of descriptors, which ends with time.
                    std::thread::sleep(Duration::from_millis(100));
                    Err(error)
                }
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

    fn serve_one(&self, mut stream: TcpStream, peer: SocketAddr, out: &mut Out) -> Result<()> {
        prepare(&stream, self.args)?;
        let own = stream.local_addr().doing_tcp("get the own address")?;
        let mut side = self.side(own)?;
        let dest = Dest::receive(&mut stream)?;
        side.connect(&dest, self.ends.link)?;
        stream
            .write_all(&side.dest()?.words())
            .doing_tcp("send the attributes of the QP to the client")?;
        // The contents of this answer do not matter.
        stream
            .read_exact(&mut [0; 5])
            .doing_tcp("wait for the start of the client")?;
        let (time, _) = side.play(false)?;
        side.report("server", self.ends.link, peer, time, None, out)
    }

    /// One side, at the IP address of `own`.
    fn side(&self, own: SocketAddr) -> Result<Side> {
        Side::open(self.ends.domain, self, own)
    }
}

fn prepare(stream: &TcpStream, args: &Pingpong) -> Result<()> {
    stream
        .set_read_timeout(Some(args.timeout))
        .and_then(|()| stream.set_nodelay(true))
        .doing_tcp("set the TCP connection up")
}

/// One side of a game.
struct Side {
    verbs: Verbs,
    iterations: u64,
    timeout: Duration,
    ep: Endpoint,
    cq: Cq,
    av: kfi::Av,
    peer: FiAddr,
    out: Buffer,
    inboxes: [Buffer; AHEAD],
    size: usize,
}

impl Side {
    /// A side with receives posted, at the IP address of `host`.
    fn open(domain: &Domain, play: &Play<'_>, host: SocketAddr) -> Result<Self> {
        Self::try_open(domain, play, host).doing("set up the endpoint")
    }

    fn try_open(domain: &Domain, play: &Play<'_>, host: SocketAddr) -> kfi::Result<Self> {
        let (args, verbs) = (play.args, play.verbs);
        let size = play.size as usize;
        let buffer = || Buffer::new(size.max(1));
        let ep_type = match verbs {
            Verbs::Rc => EpType::Msg,
            Verbs::Ud => EpType::Dgram,
        };
        let ep = domain
            .endpoint()
            .ep_type(ep_type)
            .caps(Caps::MSG)
            .addr(with_port(host, 0))
            .open()?;
        let cq = domain
            .cq()
            .format(CqFormat::Msg)
            .wait(Wait::Unspec)
            .open()?;
        let av = domain.av().open()?;
        ep.bind_cq(&cq, CqBind::TRANSMIT | CqBind::SELECTIVE)?;
        ep.bind_cq(&cq, CqBind::RECV)?;
        match verbs {
            Verbs::Rc => ep.set_qp_option(QpOption::PathMtu, args.mtu.unwrap_or(MTU).into())?,
            Verbs::Ud => {
                ep.bind_av(&av)?;
                ep.set_qkey(QKEY)?;
            }
        }
        ep.enable()?;
        let side = Self {
            verbs,
            iterations: args.iterations,
            timeout: args.timeout,
            ep,
            cq,
            av,
            peer: FiAddr::UNSPEC,
            out: buffer()?,
            inboxes: [buffer()?, buffer()?],
            size,
        };
        for inbox in 0..AHEAD {
            side.receive(inbox)?;
        }
        Ok(side)
    }

    fn receive(&self, inbox: usize) -> kfi::Result<()> {
        let buffer = &self.inboxes[inbox];
        self.ep.recv(buffer.slice(0..self.size), inbox as u64)
    }

    fn dest(&self) -> Result<Dest> {
        let qp = self
            .ep
            .qp()
            .doing("get the attributes of the endpoint's QP")?;
        Ok(Dest::of(&qp))
    }

    /// Connects with the peer's QP; that of a link-local address is on the link's interface.
    fn connect(&mut self, dest: &Dest, link: &Link) -> Result<()> {
        let mut addr = dest.addr()?;
        addr.host = from_peer(link, addr.host);
        match self.verbs {
            Verbs::Rc => self.ep.connect_qp(addr, dest.psn),
            Verbs::Ud => self.av.insert_qp(addr).map(|peer| self.peer = peer),
        }
        .doing(format!(
            "connect with QP {:#08x} at {}",
            addr.qpn,
            text::host(addr.host)
        ))
    }

    /// Sends and receives in turn; returns the time and the number of round trips.
    fn play(&mut self, first: bool) -> Result<(Duration, Vec<Duration>)> {
        let start = Instant::now();
        let mut trips = Vec::with_capacity(self.iterations as usize);
        for turn in 0..self.iterations {
            let begin = Instant::now();
            if first {
                self.send(turn)?;
            }
            self.arrive(turn, first)?;
            if !first {
                self.send(turn)?;
            }
            trips.push(begin.elapsed());
        }
        if !first {
            self.last_has_gone()?;
        }
        Ok((start.elapsed(), trips))
    }

    fn send(&self, turn: u64) -> Result<()> {
        mark(&self.out, self.size, turn);
        let mut op = Op::send(self.peer, self.out.slice(0..self.size)).context(u64::MAX);
        if turn + 1 == self.iterations {
            op = op.flags(OpFlags::COMPLETION);
        }
        self.ep.post_one(&op).doing("send")
    }

    /// Waits until the last message was sent: the endpoint must not be closed before.
    fn last_has_gone(&self) -> Result<()> {
        match self.cq.next(self.timeout).doing("send")? {
            Some(_) => Ok(()),
            None => Err(Error::with_help(
                format!("the last message has not gone within {:?}", self.timeout),
                "does the peer still receive?",
            )),
        }
    }

    /// Waits for the next message. Its bytes are those that were sent last, except for the first
    /// message of a server. A client that is this command sends the bytes that the server is going
    /// to send.
    fn arrive(&self, turn: u64, first: bool) -> Result<()> {
        let entry = loop {
            match self.cq.next(self.timeout).doing("receive")? {
                // Waits until the client's last message was sent.
                Some(entry) if !entry.flags.contains(CompFlags::RECV) => {}
                Some(entry) => break entry,
                None => {
                    return Err(Error::with_help(
                        format!("the peer has been silent for {:?}", self.timeout),
                        "does it have the same number of iterations? a datagram may have been lost",
                    ));
                }
            }
        };
        let inbox = entry.op_context as usize % AHEAD;
        let is = |turn| is_marked(&self.inboxes[inbox], self.size, turn);
        let right = is(turn) || (!first && turn.checked_sub(1).is_none_or(is));
        if entry.len as usize != self.size || !right {
            return Err(Error::with_help(
                format!(
                    "message {turn} came back with {} bytes of {}, or with wrong ones",
                    entry.len, self.size
                ),
                "do both have the same size? otherwise it is a defect",
            ));
        }
        self.receive(inbox).doing("post a receive")
    }

    fn report(
        &self,
        role: &'static str,
        link: &Link,
        peer: SocketAddr,
        time: Duration,
        trips: Option<Vec<Duration>>,
        out: &mut Out,
    ) -> Result<()> {
        let bytes = 2.0 * self.size as f64 * self.iterations as f64;
        let result = ResultJson {
            event: "result",
            role,
            verbs: self.verbs,
            link: link.name.clone(),
            peer,
            size: self.size as u64,
            iterations: self.iterations,
            seconds: time.as_secs_f64(),
            latency_us: trips.and_then(Latency::of_round_trips),
            bytes_per_second: text::rounded(bytes / time.as_secs_f64().max(1e-9)),
        };
        if out.is_json() {
            return out.document(&result);
        }
        let mut line = format!(
            "{role:<8}{} messages of {} each way with {} ({}) in {:.3} s",
            self.iterations,
            text::bytes(result.size),
            text::host(peer),
            self.verbs,
            result.seconds,
        );
        if let Some(latency) = &result.latency_us {
            line.push_str(&format!(
                "\n{role:<8}one way: median {:.1} us; {}",
                latency.median,
                text::bytes_per_second(result.bytes_per_second)
            ));
        }
        out.line(line)
    }
}

/// The bytes of a message: its number, counted on, repeatedly.
fn pattern(size: usize, turn: u64) -> impl Iterator<Item = u8> {
    (0..size).map(move |at| (turn as usize).wrapping_mul(31).wrapping_add((at / 7) ^ at) as u8)
}

fn mark(buffer: &Buffer, size: usize, turn: u64) {
    buffer.write_at(0, &pattern(size, turn).collect::<Vec<_>>());
}

fn is_marked(buffer: &Buffer, size: usize, turn: u64) -> bool {
    let mut found = vec![0; size];
    buffer.read_at(0, &mut found);
    pattern(size, turn).eq(found)
}

#[cfg(test)]
pub(crate) mod tests {
    use super::*;

    pub(crate) fn result() -> impl Serialize {
        ResultJson {
            event: "result",
            role: "client",
            verbs: Verbs::Rc,
            link: "roce0".to_owned(),
            peer: "192.0.2.2:18515".parse().unwrap(),
            size: 8,
            iterations: 10,
            seconds: 0.05,
            latency_us: Latency::of_round_trips(vec![Duration::from_micros(50)]),
            bytes_per_second: 3200.0,
        }
    }

    /// The format that ibv_rc_pingpong prints and sends.
    const TEXT: &str = "0000:000011:0a1b2c:00000000000000000000ffffc0000201";

    #[test]
    fn qp_attributes_survive_encoding() {
        let dest: Dest = TEXT.parse().unwrap();
        assert_eq!((dest.lid, dest.qpn, dest.psn), (0, 0x11, 0x0a_1b2c));
        assert_eq!(dest.addr().unwrap().host, "192.0.2.1:0".parse().unwrap());
        assert_eq!(dest.to_string(), TEXT);
        let words = dest.words();
        assert_eq!((words.len(), words[51]), (52, 0));
        let none = Dest {
            gid: [0; 16],
            ..dest
        };
        assert!(none.addr().is_err());
    }

    #[test]
    fn the_advice_names_the_peer_only_where_it_can_be_the_cause() {
        let refused: io::Result<()> = Err(ErrorKind::ConnectionRefused.into());
        let refused = refused.doing_tcp("reach the server over TCP").unwrap_err();
        assert!(refused.render(false).contains("ibv_rc_pingpong"));
        let in_use: io::Result<()> = Err(ErrorKind::AddrInUse.into());
        let in_use = in_use.doing_tcp("listen").unwrap_err().render(false);
        assert!(
            !in_use.contains("ibv_") && in_use.contains("--bind"),
            "{in_use}"
        );
    }

    /// Everything that both ends must have in common.
    #[test]
    fn the_hint_for_the_peer_names_what_both_ends_need() {
        use crate::args::{Args, Command};
        let line = "kfi pingpong --verbs rc -s 2K -i 20";
        let Command::Pingpong(args) = Args::of(line.split(' ')).unwrap().command else {
            panic!("not pingpong");
        };
        let at = |addr: &str| addr.parse().unwrap();
        assert_eq!(
            peer_command(Verbs::Rc, 2048, &args, at("192.0.2.2:18515")),
            "ibv_rc_pingpong -g INDEX -s 2048 -n 20 -m 1024 192.0.2.2"
        );
        assert_eq!(
            peer_command(Verbs::Ud, 2048, &args, at("[fe80::1%3]:99")),
            "ibv_ud_pingpong -g INDEX -s 2048 -n 20 -p 99 fe80::1%INTERFACE"
        );
    }

    #[test]
    fn malformed_qp_attributes_are_refused() {
        for text in [
            "",
            "done",
            "0000:000011:0a1b2c",
            "0000:000011:0a1b2c:00",
            "0000:00011:0a1b2c:00000000000000000000ffffc0000201",
            "0000:00001g:0a1b2c:00000000000000000000ffffc0000201",
            "0000:000011:0a1b2c:00000000000000000000ffffc0000201:0",
        ] {
            assert_eq!(text.parse::<Dest>(), Err(()), "{text}");
        }
    }

    #[test]
    fn patterns_distinguish_messages() {
        let buffer = Buffer::new(100).unwrap();
        mark(&buffer, 100, 3);
        assert!(is_marked(&buffer, 100, 3));
        assert!(!is_marked(&buffer, 100, 4));
        buffer.write_at(99, b"?");
        assert!(!is_marked(&buffer, 100, 3));
        assert!(is_marked(&buffer, 0, 5));
    }
}
