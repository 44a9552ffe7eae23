// SPDX-License-Identifier: GPL-2.0
//! Successes that make an entry: bindings, default flags, an operation's own flags.

use crate::{alone::Alone, harness::tests};
use kfi::{Buffer, CqBind, Entry, Errno, Local, Op, OpFlags, Remote, Side};

tests![
    transmits_report_as_requested,
    receives_report_as_requested,
    failures_are_always_reported,
    each_side_has_its_own_binding,
];

const BOTH: CqBind = CqBind::TRANSMIT.union(CqBind::RECV);
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

fn transmits_report_as_requested() {
    let defaults = [
        NONE,
        OpFlags::COMPLETION,
        OpFlags::INJECT,
        OpFlags::COMPLETION | OpFlags::INJECT,
    ];
    let buffer = Buffer::new(8).expect("buffer");
    for selective in [false, true] {
        let bind = if selective {
            BOTH | CqBind::SELECTIVE
        } else {
            BOTH
        };
        for default in defaults {
            let alone = Alone::with(|cq| cq, |ep| ep.tx_op_flags(default), bind);
            for own in defaults {
                for explicit in [false, true] {
                    let ops = [
                        Op::send(alone.me, &buffer),
                        Op::tsend(alone.me, &buffer, 1),
                        Op::write(alone.me, &buffer, alone.remote()),
                    ];
                    for op in ops {
                        let op = op.flags(own);
                        let op = if explicit { op.explicit() } else { op };
                        alone.ep.post_one(&op).expect("post");
                        assert_eq!(
                            reported(&alone),
                            reports(selective, default, own, explicit),
                            "selective {selective}, default {default:?}, explicit {explicit}: {op:?}"
                        );
                    }
                    // A read cannot be injected; a default that does not apply is left out.
                    if own.contains(OpFlags::INJECT) {
                        continue;
                    }
                    let op = Op::read(alone.me, &buffer, alone.remote()).flags(own);
                    let op = if explicit { op.explicit() } else { op };
                    alone.ep.post_one(&op).expect("post");
                    let default = default.difference(OpFlags::INJECT);
                    assert_eq!(
                        reported(&alone),
                        reports(selective, default, own, explicit),
                        "{op:?}"
                    );
                }
            }
        }
    }
}

fn receives_report_as_requested() {
    let into = Buffer::new(8).expect("buffer");
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

fn failures_are_always_reported() {
    let alone = Alone::with(|cq| cq, |ep| ep, BOTH | CqBind::SELECTIVE);
    let buffer = Buffer::new(8).expect("buffer");
    let error_of = |context| {
        let entry = alone.cq.readerr().expect("readerr").expect("an error");
        assert_eq!(entry.op_context, context);
        entry.err
    };
    let nowhere = Remote::new(0, 77);
    alone
        .ep
        .write(alone.me, &buffer, nowhere, 1)
        .expect("write");
    assert_eq!(error_of(1), Errno::EACCES);
    alone
        .ep
        .post_one(&Op::inject_write(alone.me, b"x", nowhere).context(2))
        .expect("write");
    assert_eq!(error_of(2), Errno::EACCES);
    alone.ep.recv(&buffer, 3).expect("recv");
    alone.ep.cancel(3).expect("cancel");
    assert_eq!(error_of(3), Errno::ECANCELED);
    alone.ep.recv(Local::empty(), 4).expect("recv");
    alone.ep.inject(alone.me, b"x").expect("inject");
    assert_eq!(error_of(4), Errno::KFI_ETRUNC);
    // A search always reports, without KFI_COMPLETION.
    alone
        .ep
        .post_one(&Op::tpeek(1, 0).context(5))
        .expect("peek");
    assert_eq!(error_of(5), Errno::ENOMSG);
    alone.ep.tinject(alone.me, b"x", 1).expect("inject");
    alone
        .ep
        .post_one(&Op::tpeek(1, 0).context(6))
        .expect("peek");
    assert!(reported(&alone));
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
    let buffer = Buffer::new(8).expect("buffer");
    let counts = || [&tx, &rx].map(|cq| cq.read(&mut [Entry::default(); 4]).expect("read"));
    ep.recv(&buffer, 0).expect("recv");
    ep.send(me, &buffer, 0).expect("send");
    assert_eq!(counts(), [0, 1]);
    ep.recv(&buffer, 0).expect("recv");
    ep.post_one(&Op::send(me, &buffer).flags(OpFlags::COMPLETION))
        .expect("send");
    assert_eq!(counts(), [1, 1]);
}
