// SPDX-License-Identifier: GPL-2.0
//! Endpoints that send only take no receives of the shared context that they are bound to, whatever
//! their peers send.

use crate::{
    connected::connect_qps,
    harness::tests,
    host::{Host, Options, domain, failure},
};
use kfi::{Buffer, Caps, CompFlags, CqBind, Endpoint, EpType, Errno, FiAddr, SharedRx};
use std::time::Duration;

tests![
    a_connection_that_only_sends_takes_no_receive,
    a_datagram_endpoint_that_only_sends_takes_no_receive,
];

const BOTH: CqBind = CqBind::TRANSMIT.union(CqBind::RECV);

/// The time in which a message arrives.
const ARRIVED: Duration = Duration::from_millis(100);

fn options(ep_type: EpType) -> Options {
    Options {
        ep_type,
        caps: Caps::MSG,
        ..Options::default()
    }
}

/// A host whose shared receive context has one receive.
struct Target {
    host: Host,
    srx: SharedRx,
    into: Buffer,
}

impl Target {
    fn new() -> Self {
        let (_, domain) = domain();
        let host = Host::on(&domain, &options(EpType::Rdm));
        let srx = domain.srx().open().expect("srx");
        let into = Buffer::new(64).expect("buffer");
        srx.recv(&into, 7).expect("recv");
        Self { host, srx, into }
    }

    /// An endpoint that uses the context.
    fn member(&self, ep_type: EpType, caps: Caps) -> Endpoint {
        let ep = self.host.domain.endpoint().ep_type(ep_type).caps(caps);
        let ep = ep.shared_rx().open().expect("endpoint");
        ep.bind_srx(&self.srx).expect("bind srx");
        ep.bind_cq(&self.host.cq, BOTH).expect("bind cq");
        if ep_type != EpType::Msg {
            ep.bind_av(&self.host.av).expect("bind av");
        }
        ep.enable().expect("enable");
        ep
    }

    /// The receive was not taken, while an endpoint is there that reports it.
    fn is_untouched(&self, _member: &Endpoint) {
        std::thread::sleep(ARRIVED);
        self.host.expect_nothing();
        assert_eq!(self.into.to_vec(..), [0; 64]);
        self.srx.cancel(7).expect("cancel");
        let entry = failure(&self.host.cq);
        assert_eq!((entry.err, entry.op_context), (Errno::ECANCELED, 7));
        self.srx.recv(&self.into, 7).expect("recv");
    }
}

fn a_connection_that_only_sends_takes_no_receive() {
    let target = Target::new();
    let sender = Host::with(&options(EpType::Msg));
    let member = target.member(EpType::Msg, Caps::MSG | Caps::SEND);
    connect_qps(&sender.ep, &member);
    let from = Buffer::from_bytes(&[9; 8]).expect("buffer");
    sender.ep.send(FiAddr::UNSPEC, &from, 1).expect("send");
    target.is_untouched(&member);
    drop(member);
    // One that receives.
    let sender = Host::with(&options(EpType::Msg));
    let member = target.member(EpType::Msg, Caps::MSG);
    connect_qps(&sender.ep, &member);
    sender.ep.send(FiAddr::UNSPEC, &from, 1).expect("send");
    target.host.expect(CompFlags::MSG | CompFlags::RECV, 7);
}

fn a_datagram_endpoint_that_only_sends_takes_no_receive() {
    let target = Target::new();
    let sender = Host::with(&options(EpType::Dgram));
    let from = Buffer::from_bytes(&[9; 8]).expect("buffer");
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
