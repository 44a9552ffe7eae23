// SPDX-License-Identifier: GPL-2.0
//! Flows: rules at a datagram endpoint that count the packets that arrive.
//!
//! A rule compares fields of a packet, each with a mask.  A packet belongs to
//! the first flow of its endpoint that it matches, in the order of priorities.
//! Flows do not change what happens to packets.

use std::{net::IpAddr, sync::Arc};

use crate::{
    abi::{self, Call, calls},
    addr::{AF_INET, AF_INET6},
    counters::Counters,
    ep::Endpoint,
    errno::Errno,
    error::{Error, Result},
    object::{Hold, Inner, object},
    setters::setters,
};

/// Bits of a QP number.
const QPN: u32 = 0xff_ffff;

/// Makes a flow; from [`Endpoint::flow`].
///
/// Without any field it matches every packet.
///
/// ```no_run
/// # fn f(domain: kfi::Domain, ep: kfi::Endpoint) -> kfi::Result<()> {
/// use kfi::CounterDescription;
///
/// let counters = domain.counters().open()?;
/// counters.attach(CounterDescription::Packets, 0)?;
/// counters.attach(CounterDescription::Bytes, 1)?;
/// let flow = ep
///     .flow()
///     .src_ip("10.1.0.0".parse().unwrap(), 16)
///     .counters(&counters)
///     .open()?;
/// let values = counters.values()?;
/// println!("{} packets, {} bytes", values[0], values[1]);
/// # Ok(())
/// # }
/// ```
#[derive(Debug)]
#[must_use = "nothing happens before `open`"]
pub struct FlowBuilder {
    ep: Endpoint,
    arg: abi::kfabric_flow_open,
    counters: Option<Counters>,
    two_families: bool,
}

/// An address as a field of 16 bytes, and its first `prefix` bits as a mask.
fn address(ip: IpAddr, prefix: u8) -> ([u8; 16], [u8; 16]) {
    let (bytes, bits) = match ip {
        IpAddr::V4(ip) => (u128::from(ip.to_bits()) << 96, prefix.min(32)),
        IpAddr::V6(ip) => (ip.to_bits(), prefix.min(128)),
    };
    let mask = u128::MAX.checked_shl(128 - u32::from(bits)).unwrap_or(0);
    ((bytes & mask).to_be_bytes(), mask.to_be_bytes())
}

impl FlowBuilder {
    pub(crate) fn new(ep: &Endpoint) -> Self {
        Self {
            ep: ep.clone(),
            arg: Call::sized(),
            counters: None,
            two_families: false,
        }
    }

    fn family(&mut self, is_ipv4: bool) {
        let family = u32::from(if is_ipv4 { AF_INET } else { AF_INET6 });
        self.two_families |= self.arg.family != 0 && self.arg.family != family;
        self.arg.family = family;
    }

    /// Only packets of IPv4.
    pub fn ipv4(mut self) -> Self {
        self.family(true);
        self
    }

    /// Only packets of IPv6.
    pub fn ipv6(mut self) -> Self {
        self.family(false);
        self
    }

    /// Only packets from these addresses: the first `prefix` bits are those of
    /// `ip`.
    pub fn src_ip(mut self, ip: IpAddr, prefix: u8) -> Self {
        self.family(ip.is_ipv4());
        (self.arg.value.src_ip, self.arg.mask.src_ip) = address(ip, prefix);
        self
    }

    /// Only packets to these addresses.
    pub fn dest_ip(mut self, ip: IpAddr, prefix: u8) -> Self {
        self.family(ip.is_ipv4());
        (self.arg.value.dest_ip, self.arg.mask.dest_ip) = address(ip, prefix);
        self
    }

    /// Only packets with this UDP source port, in the bits of `mask`.
    pub fn src_port(mut self, port: u16, mask: u16) -> Self {
        (self.arg.value.src_port, self.arg.mask.src_port) = (port & mask, mask);
        self
    }

    /// Only packets from this QP, in the bits of `mask`; 24 bits.
    pub fn src_qp(mut self, qpn: u32, mask: u32) -> Self {
        let mask = mask & QPN;
        (self.arg.value.src_qp, self.arg.mask.src_qp) = (qpn & mask, mask);
        self
    }

    /// Only packets to this QP, in the bits of `mask`.  All packets of an
    /// endpoint have the number of its own QP.
    pub fn dest_qp(mut self, qpn: u32, mask: u32) -> Self {
        let mask = mask & QPN;
        (self.arg.value.dest_qp, self.arg.mask.dest_qp) = (qpn & mask, mask);
        self
    }

    /// Only packets with this opcode, in the bits of `mask`: 0x64 is a
    /// datagram, 0x65 one with immediate data.
    pub fn opcode(mut self, opcode: u8, mask: u8) -> Self {
        (self.arg.value.opcode, self.arg.mask.opcode) = (opcode & mask, mask);
        self
    }

    /// Flows with a lower number come first; among equal ones, older flows.
    pub fn priority(mut self, priority: u32) -> Self {
        self.arg.priority = priority;
        self
    }

    /// A packet of this flow can belong to later flows, too.
    pub fn dont_trap(mut self) -> Self {
        self.arg.flags |= u64::from(abi::KFABRIC_FLOW_DONT_TRAP);
        self
    }

    setters! {
        /// Counts in the points of this object.
        counters(counters: &Counters) => counters = Some(counters.clone());

        /// A number for the caller's own use.
        context(context: u64) => arg.context = context;
    }

    /// Makes the flow.
    ///
    /// # Errors
    ///
    /// - `EPERM`: needs `CAP_NET_RAW` in the network namespace of the link.
    /// - `EOPNOTSUPP`: an endpoint of another type than
    ///   [`EpType::Dgram`](crate::EpType).
    /// - `EINVAL`: addresses of two versions of IP; the counters are of another
    ///   domain or have no points.
    /// - `ENOSPC`: the endpoint has too many flows
    ///   ([`Query::max_flows`](crate::Query)).
    /// - `ENODEV`: the link was removed; `EMFILE`; `ENOMEM`.
    pub fn open(self) -> Result<Flow> {
        if self.two_families {
            return Err(Error::call(abi::kfabric_flow_open::NAME, Errno::EINVAL));
        }
        let mut arg = self.arg;
        arg.ep = self.ep.handle();
        let mut parents = vec![self.ep.as_hold()];
        if let Some(counters) = &self.counters {
            arg.counters = counters.handle();
            parents.push(counters.as_hold());
        }
        let device = self.ep.device();
        calls::plain(device, &mut arg)?;
        Ok(Flow {
            inner: Inner::new(device, arg.handle, parents),
        })
    }
}

/// A flow.  Closing it ends counting.
#[derive(Clone)]
pub struct Flow {
    inner: Arc<Inner>,
}

object!(Flow);

impl Flow {
    /// Keeps something open until the flow is closed.
    pub(crate) fn hold(&self, what: Hold) {
        self.inner.node.hold(what);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_prefix_is_a_mask() {
        let (value, mask) = address("10.1.2.3".parse().unwrap(), 20);
        assert_eq!(value[..5], [10, 1, 0, 0, 0]);
        assert_eq!(mask[..5], [255, 255, 240, 0, 0]);
        let (value, mask) = address("10.1.2.3".parse().unwrap(), 0);
        assert_eq!((value, mask), ([0; 16], [0; 16]));
        // Longer than the address.
        let (value, mask) = address("10.1.2.3".parse().unwrap(), 200);
        assert_eq!((value[3], mask[3], mask[4]), (3, 255, 0));
        let (value, mask) = address("fd00::1".parse().unwrap(), 128);
        assert_eq!((value[15], mask), (1, [255; 16]));
    }
}
