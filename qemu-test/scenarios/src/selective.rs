// SPDX-License-Identifier: GPL-2.0
//! Successes that make an entry: bindings, default flags, an operation's own flags. Transmits are in
//! [`posting`](crate::posting).

use crate::{
    alone::Alone,
    harness::tests,
    host::{BOTH, buffer},
};
use kfi::{CqBind, Entry, Errno, Local, Op, OpFlags, Side};

tests![
    receives_report_as_requested,
    searches_are_always_reported,
    each_side_has_its_own_binding,
];

const NONE: OpFlags = OpFlags::empty();

/// Whether an operation made an entry.
fn reported(alone: &Alone) -> bool {
    let mut entries = [Entry::default(); 4];
    let count = alone.cq.read(&mut entries).expect("read");
    assert!(count <= 1, "{count} entries for one operation");
    count == 1
}

/// fi_cq(3) and fi_endpoint(3): an injected or selective operation reports on request.
fn reports(selective: bool, default: OpFlags, own: OpFlags, explicit: bool) -> bool {
    let flags = if explicit { own } else { own | default };
    flags.contains(OpFlags::COMPLETION) || !(selective || flags.contains(OpFlags::INJECT))
}

fn receives_report_as_requested() {
    let into = buffer(8);
    for selective in [false, true] {
        let bind = if selective {
            BOTH | CqBind::SELECTIVE
        } else {
            BOTH
        };
        for default in [NONE, OpFlags::COMPLETION] {
            let alone = Alone::with(|cq| cq, |ep| ep.rx_op_flags(default), bind);
            for own in [NONE, OpFlags::COMPLETION] {
                for explicit in [false, true] {
                    for tagged in [false, true] {
                        let op = if tagged {
                            Op::trecv(&into, 5, 0)
                        } else {
                            Op::recv(&into)
                        };
                        let op = op.flags(own);
                        let op = if explicit { op.explicit() } else { op };
                        alone.ep.post_one(&op).expect("recv");
                        if tagged {
                            alone.ep.tinject(alone.me, b"x", 5).expect("inject");
                        } else {
                            alone.ep.inject(alone.me, b"x").expect("inject");
                        }
                        assert_eq!(
                            reported(&alone),
                            reports(selective, default, own, explicit),
                            "selective {selective}, default {default:?}: {op:?}"
                        );
                    }
                }
            }
            // The default can change while the endpoint lives.
            for default in [OpFlags::COMPLETION, NONE] {
                alone
                    .ep
                    .set_op_flags(Side::Recv, default)
                    .expect("set_op_flags");
                alone.ep.recv(&into, 0).expect("recv");
                alone.ep.inject(alone.me, b"x").expect("inject");
                assert_eq!(reported(&alone), reports(selective, default, NONE, false));
            }
        }
    }
}

/// Also without KFI_COMPLETION. (`failures` has the failures of all operations.)
fn searches_are_always_reported() {
    let alone = Alone::with(|cq| cq, |ep| ep, BOTH | CqBind::SELECTIVE);
    let error_of = |context| {
        let entry = alone.cq.readerr().expect("readerr").expect("an error");
        assert_eq!(entry.op_context, context);
        entry.err
    };
    let search = |context| alone.ep.post_one(&Op::tpeek(1, 0).context(context));
    search(5).expect("peek");
    assert_eq!(error_of(5), Errno::ENOMSG);
    alone.ep.tinject(alone.me, b"x", 1).expect("inject");
    search(6).expect("peek");
    assert!(reported(&alone));
    // A receive of no bytes fails like others.
    alone.ep.recv(Local::empty(), 4).expect("recv");
    alone.ep.inject(alone.me, b"x").expect("inject");
    assert_eq!(error_of(4), Errno::KFI_ETRUNC);
}

fn each_side_has_its_own_binding() {
    // Transmits are selective, receives are not.
    let (_, domain) = crate::host::domain();
    let (tx, rx) = (
        domain.cq().open().expect("cq"),
        domain.cq().open().expect("cq"),
    );
    let av = domain.av().open().expect("av");
    let ep = domain.endpoint().open().expect("endpoint");
    ep.bind_cq(&tx, CqBind::TRANSMIT | CqBind::SELECTIVE)
        .expect("bind");
    ep.bind_cq(&rx, CqBind::RECV).expect("bind");
    ep.bind_av(&av).expect("bind");
    ep.enable().expect("enable");
    let me = av.insert_one(ep.name().expect("name")).expect("insert");
    let bytes = buffer(8);
    let counts = || [&tx, &rx].map(|cq| cq.read(&mut [Entry::default(); 4]).expect("read"));
    ep.recv(&bytes, 0).expect("recv");
    ep.send(me, &bytes, 0).expect("send");
    assert_eq!(counts(), [0, 1]);
    ep.recv(&bytes, 0).expect("recv");
    ep.post_one(&Op::send(me, &bytes).flags(OpFlags::COMPLETION))
        .expect("send");
    assert_eq!(counts(), [1, 1]);
}
