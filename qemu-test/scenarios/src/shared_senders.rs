// SPDX-License-Identifier: GPL-2.0
//! Endpoints that send only take no receives of the shared context that they are bound to, whatever
//! their peers send.

use crate::{
    connected::connect_qps,
    harness::tests,
    host::{Host, Options, buffer, domain, fails, holding},
};
use kfi::{Buffer, Caps, CompFlags, Endpoint, EpType, Errno, FiAddr, SharedRx};
use std::time::Duration;

tests![
    a_connection_that_only_sends_takes_no_receive,
    a_datagram_endpoint_that_only_sends_takes_no_receive,
];

/// The time in which a message arrives.
const ARRIVED: Duration = Duration::from_millis(100);

/// A host whose shared receive context has one receive.
struct Target {
    host: Host,
    srx: SharedRx,
    into: Buffer,
}

impl Target {
    fn new() -> Self {
        let (_, domain) = domain();
        let host = Host::on(&domain, &Options::of(EpType::Rdm, Caps::MSG));
        let srx = domain.srx().open().expect("srx");
        let into = buffer(64);
        srx.recv(&into, 7).expect("recv");
        Self { host, srx, into }
    }

    /// An endpoint that uses the context.
    fn member(&self, ep_type: EpType, caps: Caps) -> Endpoint {
        self.host.sharing(&self.srx, ep_type, caps)
    }

    /// The receive was not taken, while an endpoint is there that reports it.
    fn is_untouched(&self, _member: &Endpoint) {
        std::thread::sleep(ARRIVED);
        self.host.expect_nothing();
        assert_eq!(self.into.to_vec(..), [0; 64]);
        self.srx.cancel(7).expect("cancel");
        fails(&self.host.cq, 7, Errno::ECANCELED);
        self.srx.recv(&self.into, 7).expect("recv");
    }
}

fn a_connection_that_only_sends_takes_no_receive() {
    let target = Target::new();
    let sender = Host::with(&Options::of(EpType::Msg, Caps::MSG));
    let member = target.member(EpType::Msg, Caps::MSG | Caps::SEND);
    connect_qps(&sender.ep, &member);
    let from = holding(&[9; 8]);
    sender.ep.send(FiAddr::UNSPEC, &from, 1).expect("send");
    target.is_untouched(&member);
    drop(member);
    // One that receives.
    let sender = Host::with(&Options::of(EpType::Msg, Caps::MSG));
    let member = target.member(EpType::Msg, Caps::MSG);
    connect_qps(&sender.ep, &member);
    sender.ep.send(FiAddr::UNSPEC, &from, 1).expect("send");
    target.host.expect(CompFlags::MSG | CompFlags::RECV, 7);
}

fn a_datagram_endpoint_that_only_sends_takes_no_receive() {
    let target = Target::new();
    let sender = Host::with(&Options::of(EpType::Dgram, Caps::MSG));
    let from = holding(&[9; 8]);
    let send = |member: &Endpoint| {
        let name = member.name().expect("name");
        let peer = sender.av.insert_one(name).expect("insert");
        sender.ep.send(peer, &from, 1).expect("send");
        sender.expect(CompFlags::MSG | CompFlags::SEND, 1);
    };
    let member = target.member(EpType::Dgram, Caps::MSG | Caps::SEND);
    send(&member);
    target.is_untouched(&member);
    drop(member);
    let member = target.member(EpType::Dgram, Caps::MSG);
    send(&member);
    target.host.expect(CompFlags::MSG | CompFlags::RECV, 7);
}
