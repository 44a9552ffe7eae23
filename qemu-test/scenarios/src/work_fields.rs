// SPDX-License-Identifier: GPL-2.0
//! The fields of triggered operations and of deferred work, set by calls without the library:
//! default flags, and every refusal.

use crate::{
    deferred::{QUIET, cntr},
    harness::tests,
    host::{Host, Options, buffer, errno, until},
    raw::{File, addr_of, addr_of_mut, arg, data, in_ms, refused, with},
    ways::Way,
};
use kfi::{AtomicOp, Caps, Datatype, Errno, Op, OpFlags, Remote, Side, Work, abi};

tests![
    default_flags_defer_operations_without_the_flag,
    fields_of_a_trigger_are_checked,
    fields_of_work_are_checked,
    unsupported_work_is_refused,
];

/// "All data transfer operations on a trigger-able endpoint are deferred": by the default flags of
/// an alias, or those that the endpoint was opened with. The operations do not have the flag, which
/// `Op::trigger` would set.
fn default_flags_defer_operations_without_the_flag() {
    let file = File::open();
    let domain = file.domain(file.fabric());
    let caps = abi::KFI_MSG | abi::KFI_TRIGGER;
    let trigger = abi::KFI_TRIGGER;
    let plain = arg!(kfabric_ep_open: caps);
    let opened = with!(plain; tx_op_flags: trigger, rx_op_flags: trigger);
    for by_alias in [true, false] {
        let party = file.party(domain, if by_alias { plain } else { opened });
        let through = if by_alias {
            file.make(arg!(kfabric_ep_alias:
                ep: party.ep, tx_op_flags: trigger, rx_op_flags: trigger
            ))
        } else {
            party.ep
        };
        let (go, ready) = (file.cntr(domain), file.cntr(domain));
        let (byte, mut into) = (7u8, 0u8);
        let send = data!(kfabric_op:
            opcode: abi::KFABRIC_OP_SEND, flags: abi::KFI_COMPLETION, context: 2,
            buf: addr_of(&byte), len: 1, peer: party.me, trigger_cntr: go, threshold: 1
        );
        let receive = data!(kfabric_op:
            opcode: abi::KFABRIC_OP_RECV, context: 1, buf: addr_of_mut(&mut into), len: 1,
            peer: u64::MAX, trigger_cntr: ready, threshold: 1
        );
        // No operation starts at once: without a counter it is refused.
        for op in [send, receive] {
            let nowhere = with!(op; trigger_cntr: 0);
            refused(file.post_one(through, nowhere), Errno::EBADF);
        }
        file.post_one(through, receive).expect("recv");
        file.post_one(through, send).expect("send");
        file.cntr_add(go, 1);
        // The message has come, and its receive still waits: nothing is received.
        std::thread::sleep(QUIET);
        while let Ok(entry) = file.cq_read(party.cq) {
            assert_eq!(entry.op_context, 2, "by alias: {by_alias}");
        }
        file.cntr_add(ready, 1);
        loop {
            let entry = file.cq_wait(party.cq, in_ms(20_000)).expect("the receive");
            if entry.op_context == 1 {
                break;
            }
        }
        // With exactly its own flags an operation takes no trigger, and starts at once.
        let explicit = with!(receive;
            control: abi::KFABRIC_OP_EXPLICIT, trigger_cntr: 0, threshold: 0
        );
        file.post_one(through, explicit).expect("recv");
        if by_alias {
            // The endpoint itself has none of the alias's flags.
            file.post_one(party.ep, with!(receive; trigger_cntr: 0, threshold: 0))
                .expect("recv");
            refused(file.post_one(party.ep, receive), Errno::EINVAL);
            file.close(through).expect("close");
        }
        file.part(&party);
        file.close_all(&[go, ready]);
    }
}

/// Each errno of a trigger in `struct kfabric_post`.
fn fields_of_a_trigger_are_checked() {
    let file = File::open();
    let domain = file.domain(file.fabric());
    let caps = abi::KFI_MSG | abi::KFI_TRIGGER;
    let party = file.party(domain, arg!(kfabric_ep_open: caps));
    let go = file.cntr(domain);
    let byte = 7u8;
    let good = data!(kfabric_op:
        opcode: abi::KFABRIC_OP_SEND, flags: abi::KFI_INJECT | abi::KFI_TRIGGER,
        buf: addr_of(&byte), len: 1, peer: party.me, trigger_cntr: go, threshold: 1
    );
    for trigger_event in [1, 2, 1 << 31, u32::MAX] {
        let wrong = with!(good; trigger_event);
        refused(file.post_one(party.ep, wrong), Errno::EINVAL);
    }
    for trigger_cntr in [0, party.ep, party.cq, domain, 60_000, u32::MAX] {
        let wrong = with!(good; trigger_cntr);
        refused(file.post_one(party.ep, wrong), Errno::EBADF);
    }
    // Fields without the flag.
    let flags = abi::KFI_INJECT;
    for wrong in [
        abi::kfabric_op { flags, ..good },
        with!(good; flags, threshold: 0),
        with!(good; flags, trigger_cntr: 0),
    ] {
        refused(file.post_one(party.ep, wrong), Errno::EINVAL);
    }
    // An endpoint that is not enabled.
    let ep = file.make(arg!(kfabric_ep_open: domain, caps));
    refused(file.post_one(ep, good), Errno::KFI_EOPBADSTATE);
    // A peer that is not there is a completion, and not an error of the post.
    let nobody = with!(good; peer: 77, context: 5);
    file.post_one(party.ep, nobody).expect("post");
    file.cntr_add(go, 1);
    refused(file.cq_wait(party.cq, in_ms(20_000)), Errno::KFI_EAVAIL);
    file.cq_readerr(party.cq).expect("the failure");
    // Nothing waits any more.
    file.close_all(&[ep, go]);
    file.part(&party);
}

/// The fields of `struct kfabric_work`, and of the operation that it points to. Deferred work has
/// its own condition: that an endpoint triggers by default makes no difference.
fn fields_of_work_are_checked() {
    let file = File::open();
    let domain = file.domain(file.fabric());
    let party = file.party(
        domain,
        arg!(kfabric_ep_open: caps: abi::KFI_MSG | abi::KFI_TRIGGER, tx_op_flags: abi::KFI_TRIGGER),
    );
    let (go, done) = (file.cntr(domain), file.cntr(domain));
    let (byte, mut into) = (7u8, 0u8);
    let receive = data!(kfabric_op:
        opcode: abi::KFABRIC_OP_RECV, buf: addr_of_mut(&mut into), len: 1, peer: u64::MAX
    );
    let send = data!(kfabric_op:
        opcode: abi::KFABRIC_OP_SEND, context: 3, buf: addr_of(&byte), len: 1, peer: party.me
    );
    let op_size = size_of::<abi::kfabric_op>() as u32;
    let work_size = size_of::<abi::kfabric_work>() as u32;
    let call = |work: &mut abi::kfabric_work, work_size, op_size, domain| {
        let mut arg = arg!(kfabric_queue_work:
            domain, works: addr_of_mut(work), count: 1, work_size, op_size
        );
        let result = file.call_mut(&mut arg);
        assert_eq!(arg.done, u32::from(result.is_ok()));
        result
    };
    let queue = |mut work: abi::kfabric_work| call(&mut work, work_size, op_size, domain);
    let transfer = data!(kfabric_work:
        threshold: 1, triggering_cntr: go, completion_cntr: done, op_type: abi::KFABRIC_OP_SEND,
        object: party.ep, op: addr_of(&send)
    );
    let add = data!(kfabric_work:
        threshold: 1, triggering_cntr: go, op_type: abi::KFABRIC_OP_CNTR_ADD, object: done,
        value: 1
    );
    for op_type in [11, 99, u32::MAX] {
        refused(queue(with!(transfer; op_type)), Errno::EINVAL);
    }
    // The opcode is another one; fields that this kind does not have.
    let (op, completion_cntr) = (transfer.op, done);
    for wrong in [
        with!(transfer; op: addr_of(&receive)),
        with!(transfer; value: 1),
        abi::kfabric_work { op, ..add },
        with!(add; completion_cntr),
    ] {
        refused(queue(wrong), Errno::EINVAL);
    }
    for wrong in [
        with!(send; flags: abi::KFI_TRIGGER),
        with!(send; trigger_event: 1),
        with!(send; trigger_cntr: go),
        with!(send; threshold: 1),
    ] {
        let op = addr_of(&wrong);
        refused(queue(abi::kfabric_work { op, ..transfer }), Errno::EINVAL);
    }
    for handle in [domain, party.cq, 60_000, u32::MAX] {
        for good in [transfer, add] {
            let wrong = with!(good; triggering_cntr: handle);
            refused(queue(wrong), Errno::EBADF);
            refused(queue(with!(good; object: handle)), Errno::EBADF);
        }
        let wrong = with!(transfer; completion_cntr: handle);
        refused(queue(wrong), Errno::EBADF);
    }
    refused(queue(with!(transfer; object: done)), Errno::EBADF);
    refused(queue(with!(add; object: party.ep)), Errno::EBADF);
    refused(call(&mut { add }, work_size, 0, party.ep), Errno::EBADF);
    for size in [0, 1, 47] {
        refused(call(&mut { add }, size, op_size, domain), Errno::EINVAL);
        refused(
            call(&mut { transfer }, work_size, size, domain),
            Errno::EINVAL,
        );
    }
    // A counter operation needs no size of operations.
    call(&mut { with!(add; threshold: 9) }, work_size, 0, domain).expect("add");
    // The transfer waits for its own counter, although the endpoint triggers. Its structures are
    // not used any more.
    let mut operation = send;
    let mut work = with!(transfer; op: addr_of(&operation));
    call(&mut work, work_size, op_size, domain).expect("send");
    operation.buf = 0;
    operation.len = u64::MAX;
    work = abi::kfabric_work::default();
    std::hint::black_box((&operation, &work));
    // It is not one of the endpoint's operations before it starts.
    let cancelled = file.call(arg!(kfabric_ep_cancel: ep: party.ep, context: 3));
    assert_eq!(cancelled.map(drop), Err(Errno::ENOENT));
    file.post_one(party.ep, receive).expect("recv");
    file.cntr_add(go, 1);
    file.cq_wait(party.cq, in_ms(20_000)).expect("the message");
    until("the send", || file.cntr_read(done) == Ok((1, 0)));
    file.call(arg!(kfabric_flush_work: domain)).expect("flush");
    file.close_all(&[go, done]);
    file.part(&party);
}

/// "If a specific request is not supported by the provider, it will fail the operation with
/// -FI_ENOSYS."
fn unsupported_work_is_refused() {
    const UNSUPPORTED: Errno = Errno::ENOSYS;
    let (word, at) = (buffer(8), Remote::new(0, 1));
    let unsupported = |host: &Host, ops: &[Op<'_>]| {
        let go = cntr(&host.domain);
        for op in ops {
            let work = Work::transfer(&go, 1, &host.ep, *op);
            assert_eq!(
                errno(host.domain.queue_one(&work)),
                Some(UNSUPPORTED),
                "{op:?}"
            );
        }
        // Nothing was queued.
        go.close().expect("close");
    };
    let datagrams = Host::with(&Way::Datagrams.options(&Options::default()));
    let peer = datagrams.meet(&datagrams);
    unsupported(
        &datagrams,
        &[
            Op::read(peer, &word, at),
            Op::write(peer, &word, at),
            Op::tsend(peer, &word, 7),
            Op::trecv(&word, 7, 0),
            Op::atomic(peer, &word, at, Datatype::Uint64, AtomicOp::Sum),
            Op::send(peer, &word).flags(OpFlags::DELIVERY_COMPLETE),
        ],
    );
    let reliable = Host::with(&Options {
        caps: Options::default().caps | Caps::ATOMIC,
        ..Options::default()
    });
    let peer = reliable.meet(&reliable);
    let (compare, old) = (buffer(8), buffer(8));
    unsupported(
        &reliable,
        &[
            // Operations on bits of floating point.
            Op::atomic(peer, &word, at, Datatype::Double, AtomicOp::Bor),
            Op::compare_atomic(
                peer,
                &word,
                &compare,
                &old,
                at,
                Datatype::Double,
                AtomicOp::Mswap,
            ),
            // Operations with more than one completion, or none.
            Op::multi_recv(&word),
            Op::tpeek(1, 0),
            Op::trecv(&word, 1, 0).flags(OpFlags::CLAIM),
            Op::trecv(&word, 1, 0).flags(OpFlags::PEEK | OpFlags::DISCARD),
        ],
    );
    // A default flag that no deferred receive can have.
    let whole = Host::with(&Options::default());
    whole
        .ep
        .set_op_flags(Side::Recv, OpFlags::MULTI_RECV)
        .expect("opsflag");
    unsupported(&whole, &[Op::recv(&word)]);
    let go = cntr(&whole.domain);
    let explicit = Work::transfer(&go, 1, &whole.ep, Op::recv(&word).explicit());
    whole
        .domain
        .queue_one(&explicit)
        .expect("with its own flags");
    assert_eq!(whole.domain.flush_work().expect("flush"), 1);
}
