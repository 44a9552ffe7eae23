// SPDX-License-Identifier: GPL-2.0
//! Addresses and routes of another network namespace that come and go as fast as its owner can make
//! them. The namespace has a link, and the addresses are those of the good flow's hosts. The posts of
//! the flow check its own addresses and routes, which do not change.

use super::{
    A, B,
    attacks::Attack,
    evidence::Evidence,
    field::{Attacker, Facts},
    packet,
};
use crate::{abi_threads::NetNs, rng::Rng};
use kfi::Device;
use std::{
    fs::File,
    io::{Read, Write},
    net::Ipv4Addr,
};

/// Changes of a burst.
const BURST: usize = 16;

/// Changes of a phase at least.
const LEAST: u64 = 32;

/// Index of the loopback interface.
const LO: u32 = 1;

/// Bytes of a netlink header.
const HEADER: usize = 16;

/// A namespace whose owner changes its addresses and routes.
pub(super) struct OtherNamespace {
    _netns: NetNs,
    rtnetlink: File,
    changes: u64,
    failure: Option<String>,
}

impl OtherNamespace {
    pub(super) fn new() -> Self {
        let netns = NetNs::new();
        let kind = libc::SOCK_RAW | libc::SOCK_NONBLOCK;
        let socket = netns.run(|| {
            let device = Device::open().expect("device");
            device.link_add("lo0", "lo").expect("link_add");
            packet::socket(libc::AF_NETLINK, kind, libc::NETLINK_ROUTE)
        });
        Self {
            _netns: netns,
            rtnetlink: File::from(socket),
            changes: 0,
            failure: None,
        }
    }

    /// Makes a change. The kernel has made it, and answered, when the write returns.
    fn change(&mut self, message: &[u8]) -> Result<(), String> {
        let socket = &mut self.rtnetlink;
        socket
            .write_all(message)
            .map_err(|why| format!("rtnetlink: {why}"))?;
        let mut answer = [0; 256];
        let len = socket
            .read(&mut answer)
            .map_err(|why| format!("no answer: {why}"))?;
        let error = answer.get(HEADER..HEADER + 4).filter(|_| len >= HEADER + 4);
        let error = error
            .and_then(|bytes| bytes.try_into().ok())
            .map(i32::from_ne_bytes);
        match error {
            Some(0) => Ok(()),
            other => Err(format!("a change of an address or a route: {other:?}")),
        }
    }
}

/// A netlink message with a fixed part and attributes of 4 bytes.
fn message(kind: u16, flags: i32, fixed: &[u8], attributes: &[(u16, [u8; 4])]) -> Vec<u8> {
    let flags = (libc::NLM_F_REQUEST | libc::NLM_F_ACK | flags) as u16;
    let len = HEADER + fixed.len() + 8 * attributes.len();
    let mut bytes = (len as u32).to_ne_bytes().to_vec();
    bytes.extend(kind.to_ne_bytes());
    bytes.extend(flags.to_ne_bytes());
    // The sequence number and the port.
    bytes.extend([0; 8]);
    bytes.extend(fixed);
    for (kind, value) in attributes {
        bytes.extend(8u16.to_ne_bytes());
        bytes.extend(kind.to_ne_bytes());
        bytes.extend(value);
    }
    bytes
}

/// Adds or deletes an address of the loopback interface, with a prefix of 32 bits.
fn address(is_new: bool, ip: Ipv4Addr) -> Vec<u8> {
    let mut fixed = vec![libc::AF_INET as u8, 32, 0, 0];
    fixed.extend(LO.to_ne_bytes());
    let attributes = [libc::IFA_LOCAL, libc::IFA_ADDRESS].map(|kind| (kind, ip.octets()));
    match is_new {
        true => message(libc::RTM_NEWADDR, CREATE, &fixed, &attributes),
        false => message(libc::RTM_DELADDR, 0, &fixed, &attributes),
    }
}

/// Adds or deletes a route to an address by the loopback interface.
fn route(is_new: bool, ip: Ipv4Addr) -> Vec<u8> {
    let fixed = [
        libc::AF_INET as u8,
        32,
        0,
        0,
        libc::RT_TABLE_MAIN,
        libc::RTPROT_STATIC,
        libc::RT_SCOPE_LINK,
        libc::RTN_UNICAST,
        0,
        0,
        0,
        0,
    ];
    let attributes = [
        (libc::RTA_DST, ip.octets()),
        (libc::RTA_OIF, LO.to_ne_bytes()),
    ];
    match is_new {
        true => message(libc::RTM_NEWROUTE, CREATE, &fixed, &attributes),
        false => message(libc::RTM_DELROUTE, 0, &fixed, &attributes),
    }
}

const CREATE: i32 = libc::NLM_F_CREATE | libc::NLM_F_EXCL;

impl Attack for OtherNamespace {
    fn name(&self) -> &'static str {
        "addresses of another namespace"
    }

    fn evidence(&self) -> Option<Evidence> {
        // No packets.
        None
    }

    fn burst(&mut self, attacker: &mut Attacker, _at: &Facts, rng: &mut Rng) {
        for _ in 0..BURST / 2 {
            let ip = rng.pick(&[A, B]);
            let what = if rng.one_in(2) { address } else { route };
            for is_new in [true, false] {
                if let Err(why) = self.change(&what(is_new, ip)) {
                    self.failure.get_or_insert(why);
                    return;
                }
                self.changes += 1;
                attacker.has_sent();
            }
        }
    }

    fn end(&mut self) -> Result<(), String> {
        if let Some(why) = self.failure.take() {
            return Err(why);
        }
        match std::mem::take(&mut self.changes) {
            LEAST.. => Ok(()),
            few => Err(format!("only {few} changes")),
        }
    }
}
