// SPDX-License-Identifier: GPL-2.0
//! Processes that are killed while they have or make connections.

use super::{CONSUMER, End, GAVE_UP, PEER, Server, event, failure, queue, refused, wire::across};
use crate::{
    harness::tests,
    host::{SOON, buffer, domain_on, until},
    networks::Wire,
    process::{Process, line},
};
use kfi::{Buffer, Device, Errno, Error, EventKind, StatClass};
use std::{
    net::SocketAddr,
    time::{Duration, Instant},
};

tests![
    killed_in_each_state => 120,
    killed_while_it_exchanges_messages => 120,
];

/// The roles in which a test starts this program as another process.
pub(crate) const ROLES: &[(&str, fn())] = &[("connector", connector), ("talker", talker)];

/// Contexts of a talk's operations.
const RECEIVE: u64 = 1;
const SEND: u64 = 2;

/// A process that connects up to a given step, and stays there.
fn connector() {
    let words = line();
    let (state, addr) = words.split_once(' ').expect("two words");
    let addr: SocketAddr = addr.parse().expect("an address");
    let mut server = None;
    let mut ends = Vec::new();
    match state {
        "listening" => server = Some(Server::at(&addr.to_string(), 0)),
        "asked" => {
            let listens = Server::at(&addr.to_string(), 0);
            println!("listens");
            listens.asked();
            server = Some(listens);
        }
        "accepting" => {
            let listens = Server::at(&addr.to_string(), 0);
            println!("listens");
            ends.push(listens.accept(&listens.asked(), b""));
            server = Some(listens);
        }
        "asking" | "connected" => {
            let end = End::new(0);
            end.ep.connect(addr, b"").expect("connect");
            if state == "connected" {
                event(&end.eq, EventKind::Connected);
            }
            ends.push(end);
        }
        other => panic!("{other}"),
    }
    println!("there");
    std::thread::sleep(Duration::from_secs(600));
    drop((server, ends));
}

/// A process that sends and receives, and leaves operations of both kinds under way.
fn talker() {
    let addr = line();
    let (fabric, domain) = domain_on("roce0");
    let end = End::on(&domain, &queue(&fabric), None, 0);
    let addr = addr.parse().expect("an address");
    end.ep.connect(addr, b"").expect("connect");
    event(&end.eq, EventKind::Connected);
    println!("there");
    let mut talk = Talk::new();
    loop {
        talk.go_on(&end);
    }
}

/// The state of one end of a talk: its sends and receives, and their results.
struct Talk {
    buffers: Vec<Buffer>,
    begun: u64,
    ended: u64,
}

impl Talk {
    fn new() -> Self {
        let sizes = (0..8).map(|index| 8 << (2 * index));
        Self {
            buffers: sizes.map(buffer).collect(),
            begun: 0,
            ended: 0,
        }
    }

    /// Sends and receives once more; any result is accepted.
    fn go_on(&mut self, end: &End) {
        let sent = &self.buffers[self.begun as usize % self.buffers.len()];
        let longest = self.buffers.last().expect("a buffer");
        // An operation is refused if there is no room, or no connection any more.
        self.begun += u64::from(end.ep.recv(longest, RECEIVE).is_ok());
        self.begun += u64::from(end.ep.send(PEER, sent, SEND).is_ok());
        self.look(end, Duration::from_millis(1));
    }

    /// Takes completions, or gives up after `time`.
    fn look(&mut self, end: &End, time: Duration) -> bool {
        let context = match end.cq.next(time) {
            Ok(None) => return false,
            Ok(Some(entry)) => entry.op_context,
            Err(Error::Completion(entry)) => entry.op_context,
            Err(error) => panic!("{error}"),
        };
        assert!(context == RECEIVE || context == SEND);
        self.ended += 1;
        true
    }
}

/// A process in this role, whose first lines are these words.
fn process(role: &str, words: &str) -> Process {
    let mut process = Process::in_role(role);
    process.tell(words);
    process
}

/// A [`connector`].
fn in_state(state: &str, addr: SocketAddr) -> Process {
    process("connector", &format!("{state} {addr}"))
}

fn kill(mut process: Process) {
    process.kill();
    process.wait();
}

fn killed_in_each_state() {
    let addr: SocketAddr = "127.0.0.2:7500".parse().unwrap();
    for _ in 0..5 {
        // The listener is killed: the port is free.
        let mut victim = in_state("listening", addr);
        assert_eq!(victim.read_line(), "there");
        kill(victim);
        // With a waiting request: that is rejected.
        let mut victim = in_state("asked", addr);
        assert_eq!(victim.read_line(), "listens");
        let a = End::new(0);
        a.ep.connect(addr, b"").expect("connect");
        assert_eq!(victim.read_line(), "there");
        kill(victim);
        failure(&a.eq, Errno::ECONNREFUSED, CONSUMER);
        // With an accepted connection: that ends.
        let mut victim = in_state("accepting", addr);
        assert_eq!(victim.read_line(), "listens");
        let a = End::new(0);
        a.ep.connect(addr, b"").expect("connect");
        assert_eq!(victim.read_line(), "there");
        event(&a.eq, EventKind::Connected);
        kill(victim);
        event(&a.eq, EventKind::Shutdown);
        // The connecting process is killed: its request cannot be accepted.
        let server = Server::new();
        let mut victim = in_state("asking", server.addr());
        assert_eq!(victim.read_line(), "there");
        let asked = server.asked();
        kill(victim);
        let b = server.end_for(&asked);
        match b.ep.accept(&server.pep, asked.connreq, b"") {
            Err(error) => assert_eq!(error.errno(), Some(Errno::ECONNABORTED)),
            // The REJ is still under way.
            Ok(()) => drop(failure(&b.eq, Errno::ECONNREFUSED, GAVE_UP)),
        }
        // A connected process is killed.
        let mut victim = in_state("connected", server.addr());
        let b = server.accept(&server.asked(), b"");
        assert_eq!(victim.read_line(), "there");
        event(&b.eq, EventKind::Connected);
        kill(victim);
        event(&b.eq, EventKind::Shutdown);
    }
}

fn killed_while_it_exchanges_messages() {
    let wire = Wire::new();
    let (server, _) = across(&wire, "192.0.2.2:0");
    for round in 0..20 {
        let addr = server.addr().to_string();
        let mut victim = wire.a.run(|| process("talker", &addr));
        let b = server.accept(&server.asked(), b"");
        event(&b.eq, EventKind::Connected);
        assert_eq!(victim.read_line(), "there");
        let mut talk = Talk::new();
        let end = Instant::now() + Duration::from_millis(7 * round);
        while Instant::now() < end {
            talk.go_on(&b);
        }
        kill(victim);
        event(&b.eq, EventKind::Shutdown);
        // Each operation under way ends once.
        while talk.ended < talk.begun {
            let (ended, begun) = (talk.ended, talk.begun);
            assert!(talk.look(&b, SOON), "{ended} of {begun} have ended");
        }
        assert!(!talk.look(&b, Duration::ZERO));
        refused(b.ep.send(PEER, &talk.buffers[0], SEND), Errno::ESHUTDOWN);
    }
    wire.a.run(|| {
        let device = Device::open().expect("device");
        until("endpoints of killed processes gone", || {
            device.stats(StatClass::Endpoint).count() == 0
        });
    });
}
