// SPDX-License-Identifier: GPL-2.0
//! Changes a peer's numbers atomically: `atomic [LINK]`.
//!
//! Two endpoints on one link. One has a table of numbers in a region; the other
//! adds to them, takes a maximum, and swaps one by comparing it. The same calls
//! reach a peer on another host.

use std::{env, time::Duration};

use kfi::{
    Access, AtomicForm, AtomicOp, AvKind, Buffer, Caps, CqBind, Device, Domain, Element, Endpoint,
    EpType, Op, Wait,
};

fn endpoint(domain: &Domain) -> kfi::Result<(Endpoint, kfi::Cq, kfi::Av)> {
    let cq = domain.cq().wait(Wait::Queue).open()?;
    let av = domain.av().kind(AvKind::Table).open()?;
    let ep = domain.endpoint().caps(Caps::ATOMIC).open()?;
    ep.bind_cq(&cq, CqBind::TRANSMIT | CqBind::RECV)?;
    ep.bind_av(&av)?;
    ep.enable()?;
    Ok((ep, cq, av))
}

fn main() -> kfi::Result<()> {
    let device = Device::open()?;
    let link = match env::args().nth(1) {
        Some(name) => name,
        None => device.first_link()?.name,
    };
    let domain = device.fabric()?.domain(&link).open()?;
    let (sum, max, cswap) = (AtomicOp::Sum, AtomicOp::Max, AtomicOp::Cswap);
    let double = f64::DATATYPE;
    let attr = domain.query_atomic(EpType::Rdm, AtomicForm::Fetch, double, sum)?;
    println!("an atomic changes up to {} numbers", attr.count);

    let (target, _cq, _av) = endpoint(&domain)?;
    let table = Buffer::of(&[1.0, 2.0, 3.0])?;
    let region = domain
        .mr(&table)
        .access(Access::REMOTE_READ | Access::REMOTE_WRITE)
        .requested_key(1)
        .open()?;

    let (ep, cq, av) = endpoint(&domain)?;
    let peer = av.insert_one(target.name()?)?;
    let done = |op: Op<'_>| -> kfi::Result<()> {
        ep.post_one(&op)?;
        cq.next(Duration::from_secs(5))?;
        Ok(())
    };
    let halves = Buffer::of(&[0.5; 3])?;
    let before = Buffer::of(&[0.0; 3])?;
    let remote = region.remote(0);
    done(Op::fetch_atomic(
        peer, &halves, &before, remote, double, sum,
    ))?;
    println!("it was {:?}", before.elements::<f64>());
    done(Op::atomic(
        peer,
        &Buffer::of(&[2.0; 3])?,
        remote,
        double,
        max,
    ))?;
    let (new, old, was) = (
        Buffer::of(&[9.0])?,
        Buffer::of(&[3.5])?,
        Buffer::of(&[0.0])?,
    );
    let last = region.remote(16);
    done(Op::compare_atomic(
        peer, &new, &old, &was, last, double, cswap,
    ))?;
    println!("now it is {:?}", table.elements::<f64>());
    assert_eq!(table.elements::<f64>(), [2.0, 2.5, 9.0]);
    Ok(())
}
