// SPDX-License-Identifier: GPL-2.0

//! Suite `kfabric_sep`: the ports of scalable endpoints, and their closing by force.

use super::*;
use crate::{
    kunit::{
        fixture::{
            ep_attr,
            eventually,
            ident,
            ident_of,
            TestDomain,
            MS, //
        },
        helpers::user, //
    },
    mem::{
        Budget,
        Part, //
    },
    provider::{
        cq::Cq,
        directory::DYNAMIC_PORTS,
        object::{
            close,
            force_close, //
        },
        pep::{
            Pep,
            PepAttr, //
        }, //
    },
    shim::sched::now_ns, //
};
use core::net::Ipv4Addr;
use kfi_core::{
    enums::WaitObj,
    flags::CqBind, //
};

/// Returns the address of the loopback interface with this port.
fn at(port: u16) -> SockAddr {
    SockAddr::v4(Ipv4Addr::LOCALHOST, port)
}

/// A scalable endpoint with two contexts of each side, and what its contexts need.
struct Test {
    sep: Arc<ScalableEp>,
    av: Arc<Av>,
    cq: Arc<Cq>,
    domain: TestDomain,
}

impl Test {
    fn open(port: u16) -> Result<Self> {
        let domain = TestDomain::open()?;
        let attr = EpAttr {
            tx_size: 4,
            rx_size: 4,
            total_buffered_recv: 1 << 16,
            src_addr: Some(at(port)),
            ..ep_attr(EpType::Rdm, Caps::MSG | Caps::SEND | Caps::RECV)
        };
        let counts = ContextCounts::new(2, 2)?;
        let test = Self {
            sep: ScalableEp::open(&domain.domain, attr, counts, ident(5, 5)?)?,
            av: domain.av(ident(4, 4)?)?,
            cq: domain.cq(8, WaitObj::None, 3)?,
            domain,
        };
        test.sep.bind_av(&test.av)?;
        Ok(test)
    }

    /// Opens a receive context and binds it.
    fn rx(&self, index: u64) -> Result<Arc<Endpoint>> {
        let (context, _) = self
            .sep
            .rx_context(index, &RxAttr::default(), ident(6, 6)?)?;
        context.bind_cq(&self.cq, CqBind::EMPTY)?;
        Ok(context)
    }

    /// Opens a transmit context and binds it.
    fn tx(&self, index: u64) -> Result<Arc<Endpoint>> {
        let (context, _) = self
            .sep
            .tx_context(index, &TxAttr::default(), ident(7, 7)?)?;
        context.bind_cq(&self.cq, CqBind::EMPTY)?;
        Ok(context)
    }

    /// Returns whether a port is free.
    fn is_free(&self, port: u16) -> bool {
        let directory = self.domain.domain.directory();
        let taken = directory.reserve(at(port), 1);
        if taken.is_ok() {
            directory.release(at(port), 1);
        }
        taken.is_ok()
    }
}

impl Drop for Test {
    fn drop(&mut self) {
        force_close(&*self.sep);
        force_close(&*self.av);
        force_close(&*self.cq);
    }
}

#[kunit_tests(kfabric_sep)]
mod tests {
    use super::*;

    #[test]
    fn no_number_of_contexts_means_one() -> Result {
        let counts = |tx, rx| ContextCounts::new(tx, rx).map(|counts| (counts.tx, counts.rx));
        ensure_eq!(counts(0, 0), Ok((1, 1)));
        ensure_eq!(counts(64, 0), Ok((64, 1)));
        Ok(())
    }

    #[test]
    fn all_ports_are_reserved_or_none() -> Result {
        let test = Test::open(0)?;
        let directory = test.domain.domain.directory();
        ensure_eq!(directory.reserve(at(9000), 3), Ok(at(9000)));
        ensure_eq!(directory.reserve(at(8999), 2), Err(EADDRINUSE));
        ensure_eq!(directory.reserve(at(9002), 2), Err(EADDRINUSE));
        ensure!(test.is_free(8999) && test.is_free(9003));
        ensure!(directory.find(&at(9001)).is_none());
        ensure_eq!(directory.reserve(at(65535), 2), Err(EADDRINUSE));
        ensure!(test.is_free(65535));
        // The directory chooses ports that follow each other.
        let first = directory.reserve(at(0), 64)?;
        let next = directory.reserve(at(0), 64)?;
        let (a, b) = (first.port(), next.port());
        ensure!(a != 0 && a.abs_diff(b) >= 64);
        ensure!(!test.is_free(a) && !test.is_free(a + 63));
        for (addr, count) in [(first, 64), (next, 64), (at(9000), 3)] {
            directory.release(addr, count);
        }
        ensure!(test.is_free(9000) && test.is_free(9002) && test.is_free(a + 63));
        Ok(())
    }

    /// However the ports are divided, each is looked at about once.
    #[test]
    fn a_row_of_ports_is_found_soon() -> Result {
        const APART: usize = 63;
        let test = Test::open(0)?;
        let directory = test.domain.domain.directory();
        for port in DYNAMIC_PORTS.step_by(APART) {
            directory.reserve(at(port), 1)?;
        }
        // The fastest of some, because a loaded machine delays a single one.
        let mut fastest = u64::MAX;
        for _ in 0..10 {
            let begin = now_ns();
            let none = directory.reserve(at(0), 64);
            fastest = fastest.min(now_ns().saturating_sub(begin));
            ensure_eq!(none, Err(EADDRINUSE));
        }
        ensure!(fastest < 100 * MS);
        // The only row.
        let hole = DYNAMIC_PORTS.start() + 5 * APART as u16;
        directory.release(at(hole), 1);
        for count in [64, 100, 125] {
            for _ in 0..3 {
                let row = directory.reserve(at(0), count)?;
                let end = row.port() + count;
                ensure!(row.port() + 63 > hole && end <= hole + 63);
                directory.release(row, count);
            }
        }
        ensure_eq!(directory.reserve(at(0), 126), Err(EADDRINUSE));
        for port in DYNAMIC_PORTS.step_by(APART) {
            directory.release(at(port), 1);
        }
        // No row crosses the last port.
        let most = DYNAMIC_PORTS.len() as u16;
        for _ in 0..2 {
            let all = directory.reserve(at(0), most)?;
            ensure_eq!(all.port(), *DYNAMIC_PORTS.start());
            directory.release(all, most);
        }
        ensure!(test.is_free(hole) && test.is_free(u16::MAX));
        Ok(())
    }

    /// A user with a limit cannot have most of the ports, which all users share.
    #[test]
    fn ports_are_charged_to_their_user() -> Result {
        const LIMIT: u64 = 256 << 20;
        let domain = TestDomain::open()?;
        let owner = Budget::of(user(140), Some(LIMIT))?;
        let charged = || owner.charged(Part::Peers).0;
        let attr = || ep_attr(EpType::Rdm, Caps::MSG | Caps::SEND | Caps::RECV);
        let open = |tx, rx| {
            let ident = ident_of(&owner, 5)?;
            ScalableEp::open(&domain.domain, attr(), ContextCounts::new(tx, rx)?, ident)
        };
        let before = charged();
        let few = open(64, 1)?;
        let one = charged() - before;
        let many = open(1, 64)?;
        let all = charged() - before - one;
        ensure_eq!(all - one, 63 * PORT_BYTES as u64);
        // A transmit context has a port of its own.
        let before = charged();
        let (tx, _) = few.tx_context(0, &TxAttr::default(), ident_of(&owner, 6)?)?;
        ensure!(charged() - before > PORT_BYTES as u64);
        // A passive endpoint has one, too.
        let before = charged();
        let attr = PepAttr {
            addr: at(9030),
            backlog: 1,
        };
        let pep = Pep::open(&domain.fabric.0, attr, ident_of(&owner, 7)?)?;
        ensure!(charged() - before > PORT_BYTES as u64);
        close(&*pep)?;
        drop(pep);
        let most = DYNAMIC_PORTS.len() as u64 * PORT_BYTES as u64;
        ensure!(most >= 2 * LIMIT);
        close(&*tx)?;
        close(&*few)?;
        close(&*many)?;
        drop((tx, few, many));
        ensure!(eventually(|| charged() == 0));
        Ok(())
    }

    #[test]
    fn a_context_takes_its_place_and_leaves_it() -> Result {
        let test = Test::open(9010)?;
        let directory = test.domain.domain.directory();
        let (tx, rx) = (test.tx(0)?, test.rx(1)?);
        ensure!(test.is_free(9010));
        rx.enable()?;
        tx.enable()?;
        ensure!(!test.is_free(9010) && !test.is_free(9011));
        let found = directory.find(&at(9011));
        ensure!(found.is_some_and(|found| Arc::ptr_eq(&found, &rx)));
        // The other context is not enabled, and no peer finds a transmit context.
        ensure!(directory.find(&at(9010)).is_none());
        let own = tx.addr().ok_or(EINVAL)?;
        ensure!(own.port() != 0 && directory.find(&own).is_none());
        ensure_eq!((rx.name()?, tx.name()?), (at(9010), at(9010)));
        ensure!(test.tx(0).is_err_and(|error| error == EBUSY));
        ensure!(test.rx(2).is_err_and(|error| error == EINVAL));
        close(&*rx)?;
        ensure!(directory.find(&at(9011)).is_none() && !test.is_free(9011));
        let again = test.rx(1)?;
        again.enable()?;
        ensure_eq!(close(&*test.sep), Err(EBUSY));
        close(&*again)?;
        close(&*tx)?;
        close(&*test.sep)?;
        ensure!(test.is_free(9010) && test.is_free(9011) && test.is_free(own.port()));
        Ok(())
    }

    #[test]
    fn a_scalable_endpoint_may_be_closed_by_force_first() -> Result {
        let test = Test::open(9020)?;
        let (tx, rx, late) = (test.tx(1)?, test.rx(1)?, test.rx(0)?);
        rx.enable()?;
        tx.enable()?;
        force_close(&*test.sep);
        ensure!(test.is_free(9020) && test.is_free(9021));
        ensure_eq!(late.enable(), Err(EBADF));
        ensure!(test.tx(0).is_err_and(|error| error == EBADF));
        // Another endpoint has the port before the context closes.
        let directory = test.domain.domain.directory();
        directory.enter(at(9021), &late)?;
        for context in [&late, &rx, &tx] {
            force_close(&**context);
        }
        ensure!(directory.find(&at(9021)).is_some());
        directory.leave(&at(9021));
        // Nothing keeps it.
        for context in [late, rx, tx] {
            ensure!(Arc::into_unique_or_drop(context).is_some());
        }
        ensure_eq!(test.sep.uses.count(), 0);
        Ok(())
    }
}
