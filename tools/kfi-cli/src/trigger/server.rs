// SPDX-License-Identifier: GPL-2.0
//! `kfi trigger --serve`: the host with every second endpoint.

use std::{
    net::SocketAddr,
    time::{Duration, Instant},
};

use kfi::{
    AuthKey, Domain, Link,
    collective::{Group, Ring},
};
use serde::Serialize;

use super::{
    check,
    control::{FromClient, FromServer, Hello, Prepare, SEEN, VERSION},
    observe::{Observer, nanos},
    open, ring, set_inputs,
};
use crate::{
    args::{MAX_VECTOR, TRIGGER_PORT, Trigger},
    error::{Error, Result},
    link::{self, from_peer},
    out::Out,
    pingpong::control::{Control, Peer},
    text,
};

/// What a server reports at the end, in JSON.
#[derive(Debug, Serialize)]
struct Served {
    event: &'static str,
    role: &'static str,
    link: String,
    peer: SocketAddr,
    endpoints: usize,
    size: usize,
    runs: u64,
}

/// Runs the server.
pub(super) fn run(
    args: &Trigger,
    own: Option<SocketAddr>,
    link: &Link,
    domain: &Domain,
    out: &mut Out,
) -> Result<()> {
    let addr = link::server_addr(link, own, TRIGGER_PORT)?;
    let control = Control::open(domain, Some(addr), AuthKey::NONE)?;
    let addr = control.name()?;
    if out.is_json() {
        out.document(&serde_json::json!({
            "event": "listening", "role": "server", "link": link.name, "address": addr,
        }))?;
    } else {
        out.line(format!(
            "server  at {}, waiting for: kfi trigger {}",
            link::place(addr, &link.name),
            text::for_client(addr)
        ))?;
    }
    loop {
        let hello = match control.receive(None, None)? {
            Some(Ok(FromClient::Hello(hello))) => hello,
            // Not a client, or one that left too late.
            _ => continue,
        };
        let hello = Hello {
            control: from_peer(link, hello.control),
            addresses: { hello.addresses.into_iter() }
                .map(|addr| from_peer(link, addr))
                .collect(),
            ..hello
        };
        let served = control.meet(hello.control).and_then(|peer| {
            let server = Server {
                control: &control,
                peer,
                timeout: args.timeout,
                epoch: Instant::now(),
            };
            let served = server.serve(&hello, link, domain, addr, out);
            let parted = control.part(peer);
            served.and(parted)
        });
        match served {
            Err(error) if args.keep && !error.is_broken_pipe() => error.report(out.is_json()),
            served => served?,
        }
        if !args.keep {
            return Ok(());
        }
    }
}

/// A server and its client.
struct Server<'a> {
    control: &'a Control,
    peer: Peer,
    timeout: Duration,
    /// When its clock began.
    epoch: Instant,
}

impl Server<'_> {
    fn serve(
        &self,
        hello: &Hello,
        link: &Link,
        domain: &Domain,
        addr: SocketAddr,
        out: &mut Out,
    ) -> Result<()> {
        let mut group = match self.group(hello, link, domain, addr) {
            Ok(group) => group,
            Err(why) => return self.refuse(hello, why),
        };
        let addresses = match group.addresses() {
            Ok(addresses) => addresses,
            Err(error) => return self.refuse(hello, error.to_string()),
        };
        self.answer(&FromServer::Welcome { addresses })?;
        let mut runs = 0;
        loop {
            match self.control.receive(Some(self.peer), Some(self.timeout))? {
                Some(Ok(FromClient::Clock)) => {
                    let ns = nanos(self.epoch);
                    self.answer(&FromServer::Clock { ns })?;
                }
                Some(Ok(FromClient::Prepare(prepare))) => {
                    if let Err(why) = self.take_part(&mut group, prepare) {
                        return self.refuse(hello, why);
                    }
                    runs += 1;
                }
                Some(Ok(FromClient::Bye)) => break,
                // Another client has to wait, and gives up; one that cannot be read is none.
                Some(_) => {}
                None => {
                    return Err(Error::with_help(
                        format!("{} has been silent for {:?}", hello.control, self.timeout),
                        "is it still running? --timeout gives it longer",
                    ));
                }
            }
        }
        let served = Served {
            event: "result",
            role: "server",
            link: link.name.clone(),
            peer: hello.control,
            endpoints: group.ranks().count(),
            size: hello.words * 8,
            runs,
        };
        report(&served, out)
    }

    fn answer(&self, message: &FromServer) -> Result<()> {
        self.control.send(self.peer, message)
    }

    /// The endpoints of this host, which know those of the client.
    fn group(
        &self,
        hello: &Hello,
        link: &Link,
        domain: &Domain,
        addr: SocketAddr,
    ) -> Result<Group, String> {
        let ring = accepted(hello)?;
        let text = |error: kfi::Error| error.to_string();
        let mut group = open(domain, link, ring, 1, Some(addr)).map_err(text)?;
        let ours = group.addresses().map_err(text)?;
        let all = in_turn(&hello.addresses, &ours);
        group.meet(&all).map_err(text)?;
        Ok(group)
    }

    /// Takes part in a run; the error is the reason for the client.
    fn take_part(&self, group: &mut Group, prepare: Prepare) -> Result<(), String> {
        let failed = |error: &dyn std::fmt::Display| format!("run {}: {error}", prepare.run);
        set_inputs(group, prepare.run);
        let observer =
            { prepare.observed }.then(|| Observer::start(group, self.epoch, self.timeout));
        group
            .prepare(prepare.by.into())
            .map_err(|error| failed(&error))?;
        let said = |result: Result<()>| result.map_err(|error| failed(&error));
        said(self.answer(&FromServer::Ready))?;
        group.finish(self.timeout).map_err(|error| failed(&error))?;
        check(group, prepare.run).map_err(|error| failed(&error))?;
        let fired = observer.map_or(Vec::new(), Observer::join);
        for fired in fired.chunks(SEEN) {
            let fired = fired.to_vec();
            said(self.answer(&FromServer::Seen { fired }))?;
        }
        said(self.answer(&FromServer::Done))
    }

    /// Tells a client that this is the end, and shows it here.
    fn refuse(&self, hello: &Hello, why: String) -> Result<()> {
        self.answer(&FromServer::No { why: why.clone() })?;
        Err(Error::with_help(
            format!("cannot serve {}: {why}", hello.control),
            "the client was informed",
        ))
    }
}

/// The ring that a client asks for, within the limits of the command's own arguments; or why not.
fn accepted(hello: &Hello) -> Result<Ring, String> {
    if hello.version != VERSION {
        return Err(format!("version {VERSION} here, {} there", hello.version));
    }
    let bytes = (hello.words as u64).checked_mul(8);
    if bytes.is_none_or(|bytes| bytes > MAX_VECTOR) {
        return Err(format!("a vector has at most {}", text::bytes(MAX_VECTOR)));
    }
    let ring = ring(hello.endpoints, hello.words, 2)?;
    let (needed, found) = (ring.ranks_of(0).count(), hello.addresses.len());
    if needed != found {
        return Err(format!("{found} addresses for {needed} endpoints"));
    }
    Ok(ring)
}

fn report(served: &Served, out: &mut Out) -> Result<()> {
    if out.is_json() {
        return out.document(served);
    }
    out.line(format!(
        "server  {} endpoints took part in {} runs with {}, and had the right result",
        served.endpoints, served.runs, served.peer
    ))
}

/// The addresses of all ranks: those of the two hosts in turn.
pub(super) fn in_turn(first: &[SocketAddr], second: &[SocketAddr]) -> Vec<SocketAddr> {
    let mut all = Vec::new();
    for at in 0..first.len().max(second.len()) {
        all.extend(first.get(at));
        all.extend(second.get(at));
    }
    all
}

#[cfg(test)]
pub(crate) mod tests {
    use super::*;

    pub(crate) fn result() -> serde_json::Value {
        serde_json::json!(Served {
            event: "result",
            role: "server",
            link: "roce0".to_owned(),
            peer: "127.0.0.1:9".parse().unwrap(),
            endpoints: 4,
            size: 8,
            runs: 12,
        })
    }

    #[test]
    fn a_server_refuses_what_no_argument_can_say() {
        let addr = SocketAddr::from(([127, 0, 0, 1], 1));
        let good = Hello {
            version: VERSION,
            control: addr,
            endpoints: 256,
            words: MAX_VECTOR as usize / 8,
            addresses: vec![addr; 128],
        };
        assert_eq!(accepted(&good).unwrap().ranks(), 256);
        type Change = fn(&mut Hello);
        let bad: [(Change, &str); 6] = [
            (|hello| hello.version = 9, "9 there"),
            (|hello| hello.words += 1, "at most 16 MiB"),
            (|hello| hello.words = usize::MAX, "at most 16 MiB"),
            (|hello| hello.endpoints = 257, "2 to 256 ranks"),
            (|hello| hello.addresses.clear(), "0 addresses for 128"),
            (
                |hello| hello.addresses.push(hello.control),
                "129 addresses for 128",
            ),
        ];
        for (change, why) in bad {
            let mut hello = good.clone();
            change(&mut hello);
            let refusal = accepted(&hello).unwrap_err();
            assert!(refusal.contains(why), "{refusal}");
        }
    }

    #[test]
    fn ranks_of_two_hosts_are_in_turn() {
        let addr = |port| SocketAddr::from(([127, 0, 0, 1], port));
        let (first, second) = ([addr(1), addr(3), addr(5)], [addr(2), addr(4)]);
        let ports: Vec<u16> = in_turn(&first, &second)
            .iter()
            .map(SocketAddr::port)
            .collect();
        assert_eq!(ports, [1, 2, 3, 4, 5]);
    }
}
