// SPDX-License-Identifier: GPL-2.0
//! Flows: what rules cost an endpoint that receives datagrams.
//!
//! - `flow/rules_64`: datagrams of 8 bytes from one endpoint to another of the same process, 64 in
//!   a call, through the network stack of this host. The receiver has 64 flows, each with counters
//!   of packets and bytes. Every packet is compared with all of them, and belongs to the last one.
//!   The peer is the same without flows. The process sleeps until a window has arrived.

use crate::{
    Result,
    counters::{self, LINK},
    process,
    row::{Case, Measurement},
};
use kfi::{
    Access, AvKind, Buffer, Caps, Cntr, CntrBind, CounterDescription, CqBind, Domain, Endpoint,
    EpType, FiAddr, Flow, Mr, Op, Wait,
};
use std::time::{Duration, Instant};

/// Datagrams of a call, and calls of a run.
const WINDOW: u64 = 64;
const WINDOWS: u64 = 128;

/// Bytes of a datagram.
const SIZE: usize = 8;

/// Rules of the receiver.
const RULES: u32 = 64;

/// Longest time until a window has arrived.
const SILENCE: Duration = Duration::from_secs(30);

/// Two endpoints.
struct Pair {
    domain: Domain,
    sender: Endpoint,
    to: FiAddr,
    receiver: Endpoint,
    received: Cntr,
    /// The memory of a window.
    mr: Mr,
    expected: u64,
}

/// An enabled datagram endpoint, which reports to a counter.
fn endpoint(domain: &Domain, received: &Cntr) -> Result<Endpoint> {
    let ep = domain.endpoint().ep_type(EpType::Dgram);
    let ep = ep.caps(Caps::MSG).open()?;
    let cq = domain.cq().open()?;
    ep.bind_cq(&cq, CqBind::TRANSMIT | CqBind::SELECTIVE)?;
    ep.bind_cntr(received, CntrBind::RECV)?;
    Ok(ep)
}

impl Pair {
    fn new() -> Result<Self> {
        process::bind()?;
        let domain = counters::device()?.fabric()?.domain(LINK).open()?;
        let received = domain.cntr().wait(Wait::Queue).open()?;
        let av = domain.av().kind(AvKind::Table).open()?;
        let sender = endpoint(&domain, &domain.cntr().open()?)?;
        let receiver = endpoint(&domain, &received)?;
        for ep in [&sender, &receiver] {
            ep.bind_av(&av)?;
            ep.enable()?;
        }
        let buffer = Buffer::new(SIZE * WINDOW as usize)?;
        let mr = domain.mr(&buffer).access(Access::RECV).open()?;
        Ok(Self {
            domain,
            to: av.insert_one(receiver.name()?)?,
            sender,
            receiver,
            received,
            mr,
            expected: 0,
        })
    }

    /// The flows of the receiver.
    fn flows(&self) -> Result<Vec<Flow>> {
        let own = self.sender.qp()?.qpn;
        (0..RULES)
            .map(|number| {
                let counters = self.domain.counters().count(2).open()?;
                counters.attach(CounterDescription::Packets, 0)?;
                counters.attach(CounterDescription::Bytes, 1)?;
                // All but the last one differ from the packets in one bit of the sender's QP.
                let qp = match number + 1 {
                    RULES => own,
                    number => own ^ (1 << (number % 16)),
                };
                let flow = self.receiver.flow().src_qp(qp, 0xff_ffff);
                Ok(flow.counters(&counters).open()?)
            })
            .collect()
    }

    /// Datagrams per second.
    fn run(&mut self) -> Result<f64> {
        let message = [7; SIZE];
        let ops = vec![Op::inject(self.to, &message); WINDOW as usize];
        let receives: Vec<Op<'_>> = (0..WINDOW as usize)
            .map(|number| Op::recv(self.mr.slice(number * SIZE..(number + 1) * SIZE)))
            .collect();
        let began = Instant::now();
        for _ in 0..WINDOWS {
            post(&self.receiver, &receives)?;
            post(&self.sender, &ops)?;
            self.expected += WINDOW;
            self.received.wait(self.expected, SILENCE)?;
        }
        Ok((WINDOW * WINDOWS) as f64 / began.elapsed().as_secs_f64())
    }
}

/// Posts all operations, for which there is room.
fn post(ep: &Endpoint, ops: &[Op<'_>]) -> Result<()> {
    let posted = ep.post(ops)?;
    match posted.done == ops.len() {
        true => Ok(()),
        false => Err(format!("{} of {} operations posted", posted.done, ops.len()).into()),
    }
}

fn rules(measurement: &mut Measurement) -> Result<()> {
    let (mut with, mut without) = (Pair::new()?, Pair::new()?);
    let flows = with.flows()?;
    measurement.take(&mut || with.run(), &mut || without.run())?;
    drop(flows);
    Ok(())
}

/// The rows.
pub(crate) fn cases() -> Vec<Case> {
    vec![Case::higher(
        "flow/rules_64",
        "1/s",
        "without rules",
        Some(0.9),
        rules,
    )]
}
