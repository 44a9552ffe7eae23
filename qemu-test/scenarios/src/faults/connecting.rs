// SPDX-License-Identifier: GPL-2.0
//! Failures injected while passive endpoints listen, and endpoints connect, are accepted, are
//! connected by hand, and end a connection.

use super::{Made, World, sweep};
use crate::raw::{addr_of, addr_of_mut, arg, in_ms, ipv4, with};
use kfi::{Errno, abi};

/// Objects of a case, closed when it ends: the last one first.
struct Opened<'a>(&'a World, Vec<u32>);

impl Opened<'_> {
    fn add(&mut self, handle: u32) -> u32 {
        self.1.push(handle);
        handle
    }

    fn bind(&self, handle: u32, to: u32, flags: u64) -> Result<(), Errno> {
        let arg = arg!(kfabric_bind: handle, to, flags);
        self.0.call(arg).map(drop)
    }

    /// A connected endpoint at `ip` with a CQ, bound to the world's event queue.
    fn ep(&mut self, ip: [u8; 4]) -> Result<u32, Errno> {
        let (w, domain) = (self.0, self.0.domain.handle());
        let cq = self.add(w.call(arg!(kfabric_cq_open: domain))?.handle);
        let ep = self.add(
            w.call(arg!(kfabric_ep_open:
                domain, type_: abi::KFI_EP_MSG, src_addr: ipv4(ip, 0), tx_size: 1, rx_size: 1
            ))?
            .handle,
        );
        self.bind(ep, cq, abi::KFI_SEND | abi::KFI_RECV)?;
        self.bind(ep, w.eq.handle(), 0)?;
        Ok(ep)
    }

    /// An endpoint whose QP is connected to itself by hand.
    fn self_connected(&mut self) -> Result<u32, Errno> {
        let ep = self.ep([127, 0, 0, 1])?;
        self.0.call(arg!(kfabric_ep_enable: ep))?;
        let qp = self.0.call(arg!(kfabric_ep_qp: ep))?;
        self.0.call(arg!(kfabric_ep_connect_qp:
            ep, addr: with!(ipv4([127, 0, 0, 1], 0); qpn: qp.qpn), psn: qp.psn
        ))?;
        Ok(ep)
    }

    /// A passive endpoint that listens; returns its address too.
    fn pep(&mut self) -> Result<(u32, abi::kfabric_sockaddr), Errno> {
        let w = self.0;
        let pep = self.add(
            w.call(arg!(kfabric_pep_open:
                fabric: w.fabric.handle(), backlog: 1, addr: ipv4([127, 0, 0, 2], 0)
            ))?
            .handle,
        );
        self.bind(pep, w.eq.handle(), 0)?;
        w.call(arg!(kfabric_pep_listen: pep))?;
        let name = w.call(arg!(kfabric_ep_name: ep: pep))?;
        Ok((pep, name.addr))
    }

    fn connect(&self, ep: u32, addr: abi::kfabric_sockaddr) -> Result<(), Errno> {
        let private = [5u8; 8];
        let arg = arg!(kfabric_ep_connect: ep, addr, param: addr_of(&private), param_len: 8);
        self.0.call(arg).map(drop)
    }

    /// A request that waits: the passive endpoint and its number.
    fn request(&mut self) -> Result<(u32, u32), Errno> {
        let (pep, addr) = self.pep()?;
        let ep = self.ep([127, 0, 0, 1])?;
        self.connect(ep, addr)?;
        loop {
            let mut event = [0u8; abi::KFABRIC_MAX_EVENT as usize];
            let read = self.0.call(arg!(kfabric_eq_read:
                eq: self.0.eq.handle(), deadline: in_ms(20_000), buf: addr_of_mut(&mut event),
                len: abi::KFABRIC_MAX_EVENT
            ));
            let number = |at| u32::from_ne_bytes([0, 1, 2, 3].map(|n: usize| event[at + n]));
            match read {
                // Leftovers of earlier attempts are not for this one.
                Ok(read) if read.event == abi::KFI_CONNREQ && number(0) == pep => {
                    return Ok((pep, number(4)));
                }
                Ok(_) => {}
                Err(Errno::KFI_EAVAIL) => drop(self.0.eq.readerr().map_err(|_| Errno::EFAULT)?),
                Err(Errno::KFI_EOVERRUN) => {}
                Err(errno) => return Err(errno),
            }
        }
    }
}

impl Drop for Opened<'_> {
    fn drop(&mut self) {
        while let Some(handle) = self.1.pop() {
            self.0.undo(Made::Object(handle));
        }
    }
}

pub(super) fn connecting() {
    sweep(&[
        ("PEP_LISTEN", |w| {
            Opened(w, Vec::new()).pep()?;
            Ok(Made::Nothing)
        }),
        ("EP_CONNECT", |w| {
            let mut opened = Opened(w, Vec::new());
            let ep = opened.ep([127, 0, 0, 1])?;
            opened.connect(ep, ipv4([127, 0, 0, 2], 5))?;
            Ok(Made::Nothing)
        }),
        ("EP_QP and EP_CONNECT_QP", |w| {
            Opened(w, Vec::new()).self_connected()?;
            Ok(Made::Nothing)
        }),
        ("EP_PEER", |w| {
            let mut opened = Opened(w, Vec::new());
            let ep = opened.self_connected()?;
            w.call(arg!(kfabric_ep_peer: ep))?;
            Ok(Made::Nothing)
        }),
        ("EP_SHUTDOWN", |w| {
            let mut opened = Opened(w, Vec::new());
            let ep = opened.self_connected()?;
            let shutdown = arg!(kfabric_ep_shutdown: ep);
            w.call(shutdown).inspect_err(|_| {
                // The failed call left the connection, if it came so far.
                w.call(shutdown).expect("shut it down again");
            })?;
            Ok(Made::Nothing)
        }),
        ("EP_ACCEPT", |w| {
            let mut opened = Opened(w, Vec::new());
            let (pep, connreq) = opened.request()?;
            let ep = opened.ep([127, 0, 0, 2])?;
            let private = [6u8; 8];
            w.call(arg!(kfabric_ep_accept:
                ep, pep, connreq, param: addr_of(&private), param_len: 8
            ))?;
            Ok(Made::Nothing)
        }),
        ("PEP_REJECT", |w| {
            let mut opened = Opened(w, Vec::new());
            let (pep, connreq) = opened.request()?;
            let private = [7u8; 8];
            w.call(arg!(kfabric_pep_reject: pep, connreq, param: addr_of(&private), param_len: 8))?;
            Ok(Made::Nothing)
        }),
    ]);
}
