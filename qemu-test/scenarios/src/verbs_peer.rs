// SPDX-License-Identifier: GPL-2.0
//! A connected endpoint and `qemu-test/verbs-peer.c`, which has an RC QP of another device,
//! exchange all operations of RC.
//!
//! `qemu-test/interop` runs `kfi-scenarios --verbs-peer HOST WHAT`, in a namespace with the link
//! `roce0`. Each end checks its own memory, byte for byte.

use crate::host::{Host, Options};
use kfi::{
    Access, AtomicOp, Buffer, Caps, CompFlags, Datatype, Device, EpType, Errno, FiAddr, Mr, Op,
    OpFlags, QpAddr, QpOption, QpState, Remote,
};
use std::{
    io::{BufRead, BufReader, Write},
    net::{SocketAddr, TcpStream},
    process::ExitCode,
};

/// The TCP port of the peer.
const PORT: u16 = 18515;

/// The link.
const LINK: &str = "roce0";

/// Bytes of either's memory.
const REGION: usize = 4 << 20;

/// Lengths of transfers.
const LENGTHS: [usize; 11] = [
    1,
    3,
    8,
    255,
    256,
    1024,
    1025,
    4096,
    65_537,
    1 << 20,
    3 << 20,
];

/// Ignored by connected endpoints.
const PEER: FiAddr = FiAddr::UNSPEC;

const SENT: CompFlags = CompFlags::MSG.union(CompFlags::SEND);
const RECEIVED: CompFlags = CompFlags::MSG.union(CompFlags::RECV);
const WROTE: CompFlags = CompFlags::RMA.union(CompFlags::WRITE);
const READ: CompFlags = CompFlags::RMA.union(CompFlags::READ);
const ADDED: CompFlags = CompFlags::ATOMIC.union(CompFlags::WRITE);
const FETCHED: CompFlags = CompFlags::ATOMIC.union(CompFlags::READ);

type Test = (&'static str, fn(&mut Peer));

const TESTS: &[Test] = &[
    ("send", send),
    ("write", write),
    ("write-imm", write_imm),
    ("read", read),
    ("fetch-add", fetch_add),
    ("fetch-add-there", fetch_add_there),
    ("compare-swap", compare_swap),
    ("compare-swap-there", compare_swap_there),
    ("refused-here", refused_here),
    ("refused-there", refused_there),
];

/// Runs a test if the command line has its option.
pub(crate) fn main() -> Option<ExitCode> {
    let args: Vec<String> = std::env::args().skip(1).collect();
    let [flag, host, what] = args.as_slice() else {
        return None;
    };
    if flag != "--verbs-peer" {
        return None;
    }
    let Some((_, test)) = TESTS.iter().find(|(name, _)| name == what) else {
        eprintln!("no test {what}");
        return Some(ExitCode::from(2));
    };
    let host = host.parse().expect("an IP address");
    test(&mut Peer::connect(SocketAddr::new(host, PORT)));
    Some(ExitCode::SUCCESS)
}

/// The byte at `i` of a pattern, as `pattern()` of verbs-peer.c computes it.
fn byte(seed: u32, i: usize) -> u8 {
    let i = i as u32;
    seed.wrapping_add(i.wrapping_mul(7))
        .wrapping_add((i >> 8).wrapping_mul(13)) as u8
}

/// `len` bytes of the pattern, which repeats.
fn bytes(seed: u32, len: usize) -> Vec<u8> {
    const PERIOD: usize = 1 << 16;
    let mut bytes: Vec<u8> = (0..len.min(PERIOD)).map(|i| byte(seed, i)).collect();
    while bytes.len() < len {
        bytes.extend_from_within(..PERIOD.min(len - bytes.len()));
    }
    bytes
}

/// Both ends.
struct Peer {
    lines: BufReader<TcpStream>,
    host: Host,
    /// The own memory.
    memory: Buffer,
    _mr: Mr,
    /// The peer's memory.
    addr: u64,
    key: u64,
}

impl Peer {
    fn connect(at: SocketAddr) -> Self {
        let stream = TcpStream::connect(at).expect("the peer");
        stream.set_nodelay(true).expect("nodelay");
        let fabric = Device::open().expect("device").fabric().expect("fabric");
        let domain = fabric.domain(LINK).open().expect("domain");
        let host = Host::on(
            &domain,
            &Options {
                ep_type: EpType::Msg,
                caps: Caps::MSG | Caps::RMA | Caps::ATOMIC,
                ..Options::default()
            },
        );
        let memory = Buffer::new(REGION).expect("buffer");
        let mr = domain
            .mr(&memory)
            .access(Access::REMOTE_READ | Access::REMOTE_WRITE)
            .requested_key(0x7d2f_0001)
            .open()
            .expect("mr");
        let mut lines = BufReader::new(stream);
        let qp = host.ep.qp().expect("qp");
        let gid: String = qp.gid.iter().map(|byte| format!("{byte:02x}")).collect();
        let own = format!(
            "{:x} {:x} {gid} {:x} {:x}\n",
            qp.qpn,
            qp.psn,
            mr.iova(),
            mr.key()
        );
        lines.get_mut().write_all(own.as_bytes()).expect("tell");
        let mut line = String::new();
        lines.read_line(&mut line).expect("hear");
        let words: Vec<&str> = line.split_whitespace().collect();
        let [qpn, psn, gid, addr, key] = words.as_slice() else {
            panic!("no QP: {line:?}");
        };
        let hex = |word: &str| u64::from_str_radix(word, 16).expect("a number");
        let gid = u128::from_str_radix(gid, 16).expect("a GID").to_be_bytes();
        let to = QpAddr {
            host: SocketAddr::new(kfi::ip_of_gid(gid), 0),
            qpn: hex(qpn) as u32,
        };
        host.ep
            .set_qp_option(QpOption::PathMtu, 1024)
            .expect("path MTU");
        host.ep.connect_qp(to, hex(psn) as u32).expect("connect_qp");
        Self {
            lines,
            addr: hex(addr),
            key: hex(key),
            host,
            memory,
            _mr: mr,
        }
    }

    /// Sends the peer a command, and returns its answer.
    fn ask(&mut self, command: &str) -> String {
        let stream = self.lines.get_mut();
        stream
            .write_all(format!("{command}\n").as_bytes())
            .expect("tell");
        let mut line = String::new();
        self.lines.read_line(&mut line).expect("hear");
        line.trim().to_owned()
    }

    /// The same for a command that must succeed; returns the text behind "ok".
    #[track_caller]
    fn must(&mut self, command: &str) -> String {
        let answer = self.ask(command);
        match answer.strip_prefix("ok") {
            Some(rest) => rest.trim().to_owned(),
            None => panic!("{command}: {answer:?}"),
        }
    }

    /// The peer's memory.
    fn remote(&self, at: usize) -> Remote {
        Remote::new(self.addr + at as u64, self.key)
    }

    /// The own memory must have the pattern.
    #[track_caller]
    fn check(&self, at: usize, len: usize, seed: u32) {
        let found = self.memory.to_vec(at..at + len);
        let wrong = found
            .iter()
            .enumerate()
            .find(|(i, found)| **found != byte(seed, *i));
        assert_eq!(wrong, None, "of {len} bytes");
    }

    fn word(&self, at: usize) -> u64 {
        let bytes = self.memory.to_vec(at..at + 8);
        u64::from_ne_bytes(bytes.try_into().expect("8 bytes"))
    }
}

/// Offsets in the memory that are not at page boundaries.
const AT: usize = 4099;

fn send(peer: &mut Peer) {
    for (seed, len) in (1..).zip(LENGTHS) {
        // From here.
        peer.must(&format!("recv {AT:x} {len:x}"));
        peer.memory.write_at(7, &bytes(seed, len));
        let from = peer.memory.slice(7..7 + len);
        peer.host.ep.send(PEER, from, 1).expect("send");
        assert_eq!(peer.must("wait"), format!("{len:x}"));
        peer.must(&format!("check {AT:x} {len:x} {seed:x}"));
        peer.host.expect(SENT, 1);
        // And back, with immediate data.
        let into = peer.memory.slice(AT..AT + len);
        peer.host.ep.recv(into, 2).expect("recv");
        let seed = seed + 100;
        peer.must(&format!("fill 5 {len:x} {seed:x}"));
        peer.must(&format!("sendimm 5 {len:x} fe00cafe"));
        let entry = peer.host.expect(RECEIVED | CompFlags::REMOTE_CQ_DATA, 2);
        assert_eq!((entry.len as usize, entry.data), (len, 0xfe00_cafe));
        peer.check(AT, len, seed);
    }
    // No bytes, and immediate data from this end.
    peer.must("recv 0 10");
    let empty = peer.memory.slice(0..0);
    peer.host
        .ep
        .senddata(PEER, empty, 0x1234_5678, 3)
        .expect("senddata");
    assert_eq!(peer.must("wait"), "0 12345678");
    peer.host.expect(SENT, 3);
    peer.host.ep.recv(&peer.memory, 4).expect("recv");
    peer.must("send 0 0");
    assert_eq!(peer.host.expect(RECEIVED, 4).len, 0);
}

fn write(peer: &mut Peer) {
    for (seed, len) in (1..).zip(LENGTHS) {
        peer.memory.write_at(1, &bytes(seed, len));
        let from = peer.memory.slice(1..1 + len);
        let to = peer.remote(AT);
        peer.host.ep.write(PEER, from, to, 1).expect("write");
        peer.host.expect(WROTE, 1);
        peer.must(&format!("check {AT:x} {len:x} {seed:x}"));

        let seed = seed + 100;
        peer.must(&format!("fill 3 {len:x} {seed:x}"));
        peer.memory.fill(0xee);
        peer.must(&format!("write 3 {AT:x} {len:x}"));
        peer.check(AT, len, seed);
        let around = [
            peer.memory.to_vec(AT - 1..AT),
            peer.memory.to_vec(AT + len..AT + len + 1),
        ];
        assert_eq!(around, [[0xee], [0xee]]);
    }
    peer.host.expect_nothing();
}

fn write_imm(peer: &mut Peer) {
    for (seed, len) in (1..).zip(LENGTHS) {
        // It takes a receive of verbs, but none of its bytes.
        peer.must("recv 0 0");
        peer.memory.write_at(1, &bytes(seed, len));
        let from = peer.memory.slice(1..1 + len);
        let op = Op::write(PEER, from, peer.remote(AT))
            .flags(OpFlags::REMOTE_CQ_DATA)
            .data(0x8000_0000 + len as u64)
            .context(1);
        peer.host.ep.post_one(&op).expect("writedata");
        assert_eq!(
            peer.must("wait"),
            format!("{len:x} {:x}", 0x8000_0000 + len)
        );
        peer.host.expect(WROTE, 1);
        peer.must(&format!("check {AT:x} {len:x} {seed:x}"));

        let seed = seed + 100;
        peer.must(&format!("fill 3 {len:x} {seed:x}"));
        peer.must(&format!("writeimm 3 {AT:x} {len:x} {:x}", 0xc0de_0000u32));
        let entry = peer.host.completion();
        let flags = CompFlags::RMA | CompFlags::REMOTE_WRITE | CompFlags::REMOTE_CQ_DATA;
        // fi_cq(3): the length is for receives.
        assert_eq!(
            (entry.flags, entry.data, entry.len),
            (flags, 0xc0de_0000, 0)
        );
        peer.check(AT, len, seed);
    }
}

fn read(peer: &mut Peer) {
    for (seed, len) in (1..).zip(LENGTHS) {
        peer.must(&format!("fill {AT:x} {len:x} {seed:x}"));
        peer.memory.fill(0);
        let into = peer.memory.slice(9..9 + len);
        let from = peer.remote(AT);
        peer.host.ep.read(PEER, into, from, 1).expect("read");
        peer.host.expect(READ, 1);
        peer.check(9, len, seed);

        let seed = seed + 100;
        peer.memory.write_at(AT, &bytes(seed, len));
        peer.must(&format!("read 3 {AT:x} {len:x}"));
        peer.must(&format!("check 3 {len:x} {seed:x}"));
    }
    // As many as may be under way, and more.
    peer.must("fill 0 40000 1");
    for number in 0..64 {
        let into = peer.memory.slice(number * 4096..(number + 1) * 4096);
        let from = peer.remote(number * 4096);
        let context = number as u64;
        peer.host.ep.read(PEER, into, from, context).expect("read");
    }
    for number in 0..64 {
        peer.host.expect(READ, number);
    }
    peer.check(0, 64 * 4096, 1);
}

fn fetch_add(peer: &mut Peer) {
    let at = 64;
    let mut value = u64::MAX - 5;
    peer.memory.write_at(at, &value.to_ne_bytes());
    for add in [1, 0x1234_5678_9abc_def0, 5, u64::MAX, 0] {
        let found = peer.must(&format!("add 0 {at:x} {add:x}"));
        assert_eq!(found, format!("{value:x}"));
        value = value.wrapping_add(add);
        assert_eq!(peer.word(at), value);
    }
    // The bytes beside it are unchanged.
    assert_eq!(peer.memory.to_vec(at - 8..at), [0; 8]);
    assert_eq!(peer.memory.to_vec(at + 8..at + 16), [0; 8]);
}

fn compare_swap(peer: &mut Peer) {
    let at = 4096 - 8;
    let mut value = 7u64;
    peer.memory.write_at(at, &value.to_ne_bytes());
    for (compare, swap) in [(7, 9), (7, 11), (9, u64::MAX), (u64::MAX, 0), (1, 2)] {
        let found = peer.must(&format!("swap 0 {at:x} {compare:x} {swap:x}"));
        assert_eq!(found, format!("{value:x}"));
        if value == compare {
            value = swap;
        }
        assert_eq!(peer.word(at), value);
    }
    assert_eq!(peer.memory.to_vec(at + 8..at + 16), [0; 8]);
}

/// Sums in the peer's memory.
fn fetch_add_there(peer: &mut Peer) {
    let (at, uint64, sum) = (64, Datatype::Uint64, AtomicOp::Sum);
    let word = peer.remote(at);
    let mut value = u64::MAX - 5;
    peer.must(&format!("put {at:x} {value:x}"));
    for add in [1, 0x1234_5678_9abc_def0u64, 5, u64::MAX, 0] {
        peer.memory.write_at(0, &add.to_ne_bytes());
        let (operand, before) = (peer.memory.slice(0..8), peer.memory.slice(8..16));
        peer.host
            .ep
            .fetch_atomic(PEER, operand, before, word, uint64, sum, 1)
            .expect("fetch_atomic");
        peer.host.expect(FETCHED, 1);
        assert_eq!(peer.word(8), value);
        value = value.wrapping_add(add);
        assert_eq!(peer.must(&format!("get {at:x}")), format!("{value:x}"));
        // And without reading the old value.
        peer.host
            .ep
            .atomic(PEER, peer.memory.slice(0..8), word, uint64, sum, 2)
            .expect("atomic");
        peer.host.expect(ADDED, 2);
        value = value.wrapping_add(add);
        assert_eq!(peer.must(&format!("get {at:x}")), format!("{value:x}"));
    }
    assert_eq!(peer.must(&format!("get {:x}", at - 8)), "0");
    assert_eq!(peer.must(&format!("get {:x}", at + 8)), "0");
    // As many as may be under way, and more.
    peer.must(&format!("put {at:x} 0"));
    peer.memory.write_at(0, &1u64.to_ne_bytes());
    for number in 0..64 {
        let place = 4096 + number * 8;
        let (operand, before) = (peer.memory.slice(0..8), peer.memory.slice(place..place + 8));
        peer.host
            .ep
            .fetch_atomic(PEER, operand, before, word, uint64, sum, number as u64)
            .expect("fetch_atomic");
    }
    for number in 0..64 {
        peer.host.expect(FETCHED, number);
        assert_eq!(peer.word(4096 + number as usize * 8), number);
    }
    assert_eq!(peer.must(&format!("get {at:x}")), "40");
}

/// Swaps in the peer's memory.
fn compare_swap_there(peer: &mut Peer) {
    let (at, uint64, cswap) = (4096 - 8, Datatype::Uint64, AtomicOp::Cswap);
    let word = peer.remote(at);
    let mut value = 7u64;
    peer.must(&format!("put {at:x} {value:x}"));
    for (compare, swap) in [(7, 9), (7, 11), (9, u64::MAX), (u64::MAX, 0), (1, 2)] {
        peer.memory.write_at(0, &swap.to_ne_bytes());
        peer.memory.write_at(8, &compare.to_ne_bytes());
        let (operand, compared) = (peer.memory.slice(0..8), peer.memory.slice(8..16));
        let before = peer.memory.slice(16..24);
        peer.host
            .ep
            .compare_atomic(PEER, operand, compared, before, word, uint64, cswap, 1)
            .expect("compare_atomic");
        peer.host.expect(FETCHED, 1);
        assert_eq!(peer.word(16), value);
        if value == compare {
            value = swap;
        }
        assert_eq!(peer.must(&format!("get {at:x}")), format!("{value:x}"));
    }
    assert_eq!(peer.must(&format!("get {:x}", at + 8)), "0");
}

/// Accesses that the peer must not make.
fn refused_here(peer: &mut Peer) {
    peer.memory.fill(0xaa);
    // IBV_WC_REM_ACCESS_ERR.
    let answer = peer.ask(&format!("write 0 {:x} 2", REGION - 1));
    assert!(answer.starts_with("status 10 "), "{answer}");
    assert_eq!(peer.memory.to_vec(REGION - 1..), [0xaa]);
}

/// Accesses that this end must not make.
fn refused_there(peer: &mut Peer) {
    let from = peer.memory.slice(0..8);
    let to = Remote::new(peer.addr, peer.key ^ 1);
    peer.host.ep.write(PEER, from, to, 1).expect("write");
    let entry = peer.host.failure();
    assert_eq!((entry.err, entry.op_context), (Errno::EACCES, 1));
    let state = peer.host.ep.qp().expect("qp").state;
    assert_eq!(state, QpState::Error);
}
