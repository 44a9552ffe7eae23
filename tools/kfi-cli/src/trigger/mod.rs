// SPDX-License-Identifier: GPL-2.0
//! `kfi trigger`: an allreduce on a ring that runs by itself.
//!
//! All operations of all endpoints are queued as deferred work; one addition to a counter starts
//! them, and the program sleeps on one counter until all is done. Then it checks the result.
//! [`kfi::collective`] has the plan and carries it out. Runs with and without an observer:
//!
//! - *measured*: nobody looks until the last counter has reached its end;
//! - *observed*: [`observe`] has a thread that reads the counters all the time, and notes when it
//!   found them changed; [`timeline`] and [`svg`] draw that;
//! - with `--compare` also *driven*: the program itself reads completions and posts the operations
//!   of the same plan; and once more without operations for the sums, which it does by itself.
//!
//! With `--serve` the command is the other of two hosts, which has every second endpoint;
//! [`control`] has the messages between the two commands, and [`client`] and [`server`] are their
//! roles.

mod client;
mod control;
mod hosts;
mod observe;
mod plan;
mod server;
mod svg;
mod timeline;

use std::time::Duration;

use kfi::{
    Domain, Link,
    collective::{Group, Ring},
};

use crate::{
    args::{TRIGGER_PORT, Trigger},
    error::{Doing, Error, Result},
    link,
    out::Out,
    pingpong::player,
    text,
};

/// Runs `kfi trigger`.
pub(crate) fn run(args: &Trigger, out: &mut Out) -> Result<()> {
    let hosts = if args.server.is_some() { 2 } else { 1 };
    let ring = ring(args.endpoints, args.size as usize / 8, hosts)
        .map_err(|error| Error::with_help(error, "--endpoints and --size choose them"))?;
    if args.show_plan {
        return plan::show(ring, out);
    }
    let device = link::open()?;
    let server_addr = { args.server.as_ref() }
        .map(|place| place.or_port(TRIGGER_PORT))
        .transpose()?;
    // Only a server has a port that others know.
    let port = if args.serve { TRIGGER_PORT } else { 0 };
    let own = { args.bind.as_ref() }
        .map(|place| place.or_port(port))
        .transpose()?;
    let link = link::choose(&device, args.link.as_deref(), own, server_addr)?;
    let domain =
        player::domain(&device, &link.name).doing(format!("open a domain on {}", link.name))?;
    let server_addr = server_addr.map(|server| link::on(&link, server));
    if args.serve {
        return server::run(args, own, &link, &domain, out);
    }
    let own = match server_addr {
        Some(server) => Some(link::client_addr(&device, &link, own, server)?),
        None => own.map(|own| link::on(&link, own)),
    };
    client::run(args, ring, (own, server_addr), &link, &domain, out)
}

/// The ring, or why there is none.
fn ring(endpoints: usize, words: usize, hosts: usize) -> Result<Ring, String> {
    Ring::new(endpoints, words)
        .and_then(|ring| ring.hosts(hosts))
        .map_err(|error| error.to_string())
}

/// Opens the endpoints of a host.
fn open(
    domain: &Domain,
    link: &Link,
    ring: Ring,
    host: usize,
    addr: Option<std::net::SocketAddr>,
) -> kfi::Result<Group> {
    let addr = addr.or(link.addr());
    Group::open(domain, ring, host, addr)
}

/// Word `word` of the input of a rank; every run has another one.
fn input(run: u64, rank: usize, word: usize) -> u64 {
    // Any function without a pattern will do: this one is the finalizer of MurmurHash3.
    let mut value = run << 48 ^ (rank as u64) << 32 ^ word as u64;
    for factor in [0xff51_afd7_ed55_8ccd, 0xc4ce_b9fe_1a85_ec53] {
        value ^= value >> 33;
        value = value.wrapping_mul(factor);
    }
    value ^ value >> 33
}

/// Sets the inputs of the ranks here.
fn set_inputs(group: &Group, run: u64) {
    group.clear();
    for rank in group.ranks() {
        group.set_input(rank, |word| input(run, rank, word));
    }
}

/// Compares the outputs of the ranks here with the sum; the error names the first wrong word.
fn check(group: &Group, run: u64) -> Result<(), String> {
    let ring = group.ring();
    let sum = |word| {
        let inputs = (0..ring.ranks()).map(|rank| input(run, rank, word));
        inputs.fold(0, u64::wrapping_add)
    };
    let expected: Vec<u64> = (0..ring.words()).map(sum).collect();
    for rank in group.ranks() {
        let output = group.output(rank);
        if let Some(word) = (0..ring.words()).find(|word| output.get(*word) != expected.get(*word))
        {
            return Err(format!(
                "word {word} of the result of endpoint {rank} is wrong"
            ));
        }
    }
    Ok(())
}

/// A time in microseconds.
fn micros(time: Duration) -> f64 {
    text::rounded(time.as_secs_f64() * 1e6)
}

/// A host of the ring, as people name it.
fn host_name(host: usize) -> char {
    char::from(b'a' + (host % 26) as u8)
}

#[cfg(test)]
pub(crate) mod tests {
    use super::*;
    use serde_json::Value;

    pub(crate) fn documents() -> Vec<Value> {
        let mut documents = plan::tests::documents();
        documents.push(client::tests::result());
        documents.push(server::tests::result());
        documents.extend(observe::tests::documents());
        documents
    }

    #[test]
    fn inputs_are_different() {
        let mut inputs: Vec<u64> = Vec::new();
        for run in 0..3 {
            for rank in 0..4 {
                inputs.extend((0..5).map(|word| input(run, rank, word)));
            }
        }
        inputs.sort_unstable();
        inputs.dedup();
        assert_eq!(inputs.len(), 60);
    }

    #[test]
    fn what_is_no_ring_is_said() {
        assert!(ring(1, 1, 1).unwrap_err().contains("2 to 256 ranks"));
        assert!(ring(2, 0, 1).unwrap_err().contains("one word"));
        assert_eq!(ring(3, 9, 2).unwrap().ranks(), 3);
    }
}
