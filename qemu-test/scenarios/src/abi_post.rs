// SPDX-License-Identifier: GPL-2.0
//! Posting: every refusal of an operation, and that a refusal keeps no resources.
//!
//! All endpoints here have a CQ of two entries. After each refusal the endpoint sends itself a
//! message and receives it, which takes both: this would fail if the refused operation had
//! kept a credit, a place in a queue or a message.

mod rig;

pub(crate) use self::rig::{LARGE, OPCODES, Rig, SMALL, is_receive};

use crate::{
    harness::tests,
    raw::{BAD_ADDRS, PAGE, Pages, addr_of, arg, bytes_of, ipv4, refused, with},
};
use kfi::{Errno, abi};

tests![
    invalid_lists_are_refused,
    operations_of_an_invalid_size_are_refused,
    unknown_opcodes_and_reserved_fields_are_refused,
    invalid_flags_of_operations_are_refused => 120,
    an_endpoint_that_is_not_enabled_refuses_operations,
    missing_capabilities_are_refused,
    operations_without_room_in_a_queue_are_refused,
    operations_without_room_for_completions_are_refused,
    injected_messages_without_room_at_the_peer_are_refused,
    unknown_peers_are_refused,
    a_claim_without_a_claimed_message_is_refused,
    operations_before_a_refused_one_are_posted,
    a_post_with_unwritable_results_posts_nothing,
];

fn invalid_lists_are_refused() {
    let rig = Rig::new();
    let ops = [rig.op(abi::KFABRIC_OP_SEND, SMALL)];
    let good = arg!(kfabric_post: ep: rig.ep, ops: addr_of(&ops), count: 1, op_size: 128);
    for count in [0, abi::KFABRIC_MAX_POST + 1, u32::MAX] {
        let mut arg = abi::kfabric_post { count, ..good };
        assert_eq!(rig.file.call_mut(&mut arg), Err(Errno::EINVAL));
        assert_eq!((arg.done, arg.error), (0, Errno::EINVAL.raw() as u32));
        rig.check();
    }
    // The first operation is not there.
    for ops in BAD_ADDRS.into_iter().chain([0, rig.pages.before_hole(64)]) {
        refused(
            rig.file.call(abi::kfabric_post { ops, ..good }),
            Errno::EFAULT,
        );
        rig.check();
    }
    rig.finish();
}

fn operations_of_an_invalid_size_are_refused() {
    let rig = Rig::new();
    let op = rig.op(abi::KFABRIC_OP_RECV, SMALL);
    let list = Pages::new(4);
    let post = |op_size: u32| {
        rig.file
            .call(arg!(kfabric_post: ep: rig.ep, ops: list.addr(), count: 2, op_size))
    };
    for op_size in [0, 1, 64, 127] {
        refused(post(op_size), Errno::EINVAL);
        rig.check();
    }
    const NOW: usize = size_of::<abi::kfabric_op>();
    // The first version, and one in between.
    for op_size in [128, 136, NOW] {
        let mut bytes = bytes_of(&op);
        bytes.resize(op_size, 0);
        list.write(0, &bytes);
        list.write(op_size, &bytes);
        assert_eq!(post(op_size as u32).expect("post").done, 2);
        rig.cancel(op.context);
        rig.cancel(op.context);
        rig.check();
    }
    for op_size in [NOW + 8, NOW + 1, PAGE] {
        let mut bytes = bytes_of(&op);
        bytes.resize(op_size, 0);
        list.write(0, &bytes);
        list.write(op_size, &bytes);
        let posted = post(op_size as u32).expect("longer operations");
        assert_eq!(posted.done, 2);
        rig.cancel(op.context);
        rig.cancel(op.context);
        for wrong in [NOW, op_size - 1] {
            list.write(wrong, &[1]);
            refused(post(op_size as u32), Errno::E2BIG);
            list.write(wrong, &[0]);
            rig.check();
        }
    }
    for op_size in [PAGE as u32 + 1, u32::MAX] {
        refused(post(op_size), Errno::E2BIG);
    }
    rig.finish();
}

fn unknown_opcodes_and_reserved_fields_are_refused() {
    let rig = Rig::new();
    let good = rig.op(abi::KFABRIC_OP_SEND, SMALL);
    for opcode in [9, 10, 255, 1 << 31, u32::MAX] {
        rig.refuse(abi::kfabric_op { opcode, ..good }, Errno::EINVAL);
    }
    rig.check();
    for bit in 1..32 {
        let control = 1 << bit;
        rig.refuse(abi::kfabric_op { control, ..good }, Errno::EINVAL);
    }
    rig.check();
    // Operations that do not exist, and those that are atomics.
    for bit in 0..64 {
        let (compare, result) = (1 << bit, 1 << bit);
        let result_mr = 1u32.checked_shl(bit).unwrap_or(1);
        let datatype = 1u16.checked_shl(bit).unwrap_or(1);
        let (op, compare_iov_count, result_iov_count) = (datatype, datatype, datatype);
        for wrong in [
            with!(good; compare_iov_count),
            with!(good; result_iov_count),
            abi::kfabric_op { compare, ..good },
            abi::kfabric_op { result, ..good },
            abi::kfabric_op { result_mr, ..good },
            abi::kfabric_op { datatype, ..good },
            abi::kfabric_op { op, ..good },
            with!(good; trigger_event: result_mr),
            with!(good; trigger_cntr: result_mr),
            with!(good; threshold: compare),
        ] {
            rig.refuse(wrong, Errno::EINVAL);
        }
    }
    rig.finish();
}

fn invalid_flags_of_operations_are_refused() {
    let rig = Rig::new();
    let transmit = abi::KFI_COMPLETION
        | abi::KFI_INJECT_COMPLETE
        | abi::KFI_TRANSMIT_COMPLETE
        | abi::KFI_DELIVERY_COMPLETE
        | abi::KFI_FENCE
        | abi::KFI_MORE;
    let sends = transmit | abi::KFI_INJECT | abi::KFI_REMOTE_CQ_DATA;
    let receive = abi::KFI_COMPLETION | abi::KFI_MORE;
    for (opcode, known) in [
        (abi::KFABRIC_OP_RECV, receive | abi::KFI_MULTI_RECV),
        (
            abi::KFABRIC_OP_TRECV,
            receive | abi::KFI_PEEK | abi::KFI_CLAIM | abi::KFI_DISCARD,
        ),
        (abi::KFABRIC_OP_SEND, sends),
        (abi::KFABRIC_OP_TSEND, sends),
        (abi::KFABRIC_OP_WRITE, sends),
        (abi::KFABRIC_OP_READ, transmit),
    ] {
        for bit in 0..64 {
            for control in [0, abi::KFABRIC_OP_EXPLICIT] {
                if known & 1 << bit == 0 {
                    let wrong = with!(rig.op(opcode, SMALL); flags: 1 << bit, control);
                    // The endpoint lacks the capability.
                    let is_rma = matches!(opcode, abi::KFABRIC_OP_WRITE | abi::KFABRIC_OP_READ);
                    let errno = match wrong.flags {
                        abi::KFI_TRIGGER => Errno::EOPNOTSUPP,
                        abi::KFI_TAGGED if is_rma => Errno::EOPNOTSUPP,
                        _ => Errno::EINVAL,
                    };
                    rig.refuse(wrong, errno);
                }
            }
        }
        rig.check();
    }
    // Flags that are invalid together, or alone.
    let both = abi::KFI_PEEK | abi::KFI_CLAIM;
    for flags in [abi::KFI_DISCARD, abi::KFI_DISCARD | both] {
        let wrong = with!(rig.op(abi::KFABRIC_OP_TRECV, SMALL); flags);
        rig.refuse(wrong, Errno::EINVAL);
    }
    rig.finish();
}

fn an_endpoint_that_is_not_enabled_refuses_operations() {
    let rig = Rig::new();
    let ep = rig.file.ep(rig.domain);
    rig.file
        .bind(ep, rig.cq, abi::KFI_SEND | abi::KFI_RECV)
        .expect("bind");
    rig.file.bind(ep, rig.av, 0).expect("bind");
    for opcode in OPCODES {
        let result = rig.file.post_one(ep, rig.op(opcode, SMALL));
        refused(result, Errno::KFI_EOPBADSTATE);
    }
    rig.file.close_all(&[ep]);
    let result = rig.file.post_one(ep, rig.op(abi::KFABRIC_OP_SEND, SMALL));
    refused(result, Errno::EBADF);
    rig.finish();
}

fn missing_capabilities_are_refused() {
    let (send, recv) = (abi::KFABRIC_OP_SEND, abi::KFABRIC_OP_RECV);
    let (tsend, trecv) = (abi::KFABRIC_OP_TSEND, abi::KFABRIC_OP_TRECV);
    let (read, write) = (abi::KFABRIC_OP_READ, abi::KFABRIC_OP_WRITE);
    for (caps, can) in [
        (abi::KFI_MSG, vec![send, recv]),
        (abi::KFI_MSG | abi::KFI_SEND, vec![send]),
        (abi::KFI_MSG | abi::KFI_RECV, vec![recv]),
        (abi::KFI_TAGGED, vec![tsend, trecv]),
        (abi::KFI_TAGGED | abi::KFI_SEND, vec![tsend]),
        (abi::KFI_TAGGED | abi::KFI_RECV, vec![trecv]),
        (abi::KFI_RMA, vec![read, write]),
        (abi::KFI_RMA | abi::KFI_READ, vec![read]),
        (abi::KFI_RMA | abi::KFI_WRITE, vec![write]),
        (abi::KFI_RMA | abi::KFI_REMOTE_READ, vec![]),
        (abi::KFI_RMA | abi::KFI_REMOTE_WRITE, vec![]),
    ] {
        let rig = Rig::with(arg!(kfabric_ep_open: caps));
        for opcode in OPCODES {
            if !can.contains(&opcode) {
                for len in [0, SMALL, LARGE] {
                    rig.refuse(rig.op(opcode, len), Errno::EOPNOTSUPP);
                }
            }
        }
        refused(rig.file.cq_read(rig.cq), Errno::EAGAIN);
    }
    // The default does not have this.
    let rig = Rig::new();
    let multi = with!(rig.op(recv, LARGE); flags: abi::KFI_MULTI_RECV);
    rig.refuse(multi, Errno::EOPNOTSUPP);
    // Without its capability a source that a receive names is ignored.
    for (opcode, peer) in [(recv, 77), (trecv, rig.me)] {
        let directed = with!(rig.op(opcode, SMALL); peer);
        rig.post(directed).expect("recv");
        rig.cancel(directed.context);
    }
    rig.finish();
}

fn operations_without_room_in_a_queue_are_refused() {
    let rig = Rig::with(arg!(kfabric_ep_open: tx_size: 1, rx_size: 1));
    for (first, context) in [
        (rig.op(abi::KFABRIC_OP_RECV, SMALL), 1000),
        (rig.op(abi::KFABRIC_OP_TRECV, LARGE), 1002),
        // A message that waits with its sender.
        (rig.op(abi::KFABRIC_OP_TSEND, LARGE), 1003),
    ] {
        rig.post(first).expect("the first");
        for _ in 0..5 {
            rig.refuse(first, Errno::EAGAIN);
        }
        rig.cancel(context);
        rig.check();
    }
    rig.finish();
}

fn operations_without_room_for_completions_are_refused() {
    let rig = Rig::new();
    // Waiting receives have their room already.
    for context in [1, 2] {
        let recv = with!(rig.op(abi::KFABRIC_OP_TRECV, SMALL); context);
        rig.post(recv).expect("recv");
    }
    for opcode in OPCODES {
        for len in [0, SMALL, LARGE] {
            rig.refuse(rig.op(opcode, len), Errno::EAGAIN);
        }
    }
    rig.cancel(1);
    rig.cancel(2);
    rig.check();
    // Entries that were not read take room, too.
    for _ in 0..2 {
        rig.post(rig.op(abi::KFABRIC_OP_WRITE, SMALL))
            .expect("write");
    }
    for opcode in OPCODES {
        rig.refuse(rig.op(opcode, SMALL), Errno::EAGAIN);
    }
    for _ in 0..2 {
        rig.file.cq_read(rig.cq).expect("a completion");
    }
    rig.finish();
}

fn injected_messages_without_room_at_the_peer_are_refused() {
    let rig = Rig::with(arg!(kfabric_ep_open: total_buffered_recv: SMALL));
    let inject = |len| with!(rig.op(abi::KFABRIC_OP_SEND, len); flags: abi::KFI_INJECT);
    rig.refuse(inject(SMALL + 1), Errno::EAGAIN);
    rig.post(inject(SMALL)).expect("there is room for this");
    for _ in 0..5 {
        rig.refuse(inject(SMALL), Errno::EAGAIN);
        rig.refuse(inject(1), Errno::EAGAIN);
    }
    rig.post(rig.op(abi::KFABRIC_OP_RECV, SMALL)).expect("recv");
    rig.file.cq_read(rig.cq).expect("the message");
    rig.check();
    // A fence that would have to wait.
    rig.post(rig.op(abi::KFABRIC_OP_TSEND, LARGE))
        .expect("a send that waits");
    for opcode in [abi::KFABRIC_OP_SEND, abi::KFABRIC_OP_WRITE] {
        let fenced = with!(rig.op(opcode, SMALL); flags: abi::KFI_FENCE);
        rig.refuse(fenced, Errno::EAGAIN);
    }
    rig.cancel(1003);
    rig.finish();
}

fn unknown_peers_are_refused() {
    let rig = Rig::with(arg!(kfabric_ep_open:
        caps: abi::KFI_MSG | abi::KFI_TAGGED | abi::KFI_RMA | abi::KFI_DIRECTED_RECV
    ));
    let nobody = rig
        .file
        .insert(rig.av, ipv4([127, 0, 0, 99], 99))
        .expect("insert");
    for opcode in OPCODES {
        for len in [0, SMALL, LARGE] {
            let to = |peer| with!(rig.op(opcode, len); peer);
            rig.refuse(to(77), Errno::ENOENT);
            if !is_receive(opcode) {
                rig.refuse(to(abi::KFI_ADDR_UNSPEC), Errno::ENOENT);
                rig.refuse(to(nobody), Errno::EHOSTUNREACH);
            }
        }
        rig.check();
    }
    // An endpoint that existed and was closed.
    let (cq, ep) = (rig.file.cq(rig.domain), rig.file.ep(rig.domain));
    rig.file
        .bind(ep, cq, abi::KFI_SEND | abi::KFI_RECV)
        .expect("bind");
    rig.file.bind(ep, rig.av, 0).expect("bind");
    rig.file.enable(ep).expect("enable");
    let name = rig.file.ep_name(ep).expect("name");
    let peer = rig.file.insert(rig.av, name).expect("insert");
    let to_it = with!(rig.op(abi::KFABRIC_OP_SEND, SMALL); peer);
    rig.post(to_it).expect("send");
    rig.file.cq_read(rig.cq).expect("sent");
    rig.file.close_all(&[ep, cq]);
    rig.refuse(to_it, Errno::EHOSTUNREACH);
    // And one that was removed from the AV.
    let gone = [peer];
    rig.file
        .call(arg!(kfabric_av_remove: av: rig.av, fi_addrs: addr_of(&gone), count: 1))
        .expect("remove");
    rig.refuse(to_it, Errno::ENOENT);
    rig.finish();
}

fn a_claim_without_a_claimed_message_is_refused() {
    let rig = Rig::new();
    let claim = |flags| with!(rig.op(abi::KFABRIC_OP_TRECV, SMALL); flags, context: 5);
    // No message has been claimed before.
    rig.refuse(claim(abi::KFI_CLAIM), Errno::ENOMSG);
    rig.refuse(claim(abi::KFI_CLAIM | abi::KFI_DISCARD), Errno::ENOMSG);
    rig.check();
    // A search reports it in its completion.
    rig.post(claim(abi::KFI_PEEK)).expect("peek");
    let error = rig.file.cq_readerr(rig.cq).expect("an answer");
    assert_eq!(
        (error.op_context, error.err),
        (5, Errno::ENOMSG.raw() as u32)
    );
    rig.finish();
}

fn operations_before_a_refused_one_are_posted() {
    let rig = Rig::new();
    let recv = |context| with!(rig.op(abi::KFABRIC_OP_RECV, SMALL); context);
    let bad = with!(recv(3); opcode: 9);
    let (arg, result) = rig.file.post(rig.ep, &[recv(1), recv(2), bad, recv(4)]);
    assert_eq!(result, Ok(()));
    assert_eq!((arg.done, arg.error), (2, Errno::EINVAL.raw() as u32));
    rig.cancel(1);
    rig.cancel(2);
    rig.check();
    // The second of two is not there.
    let list = Pages::new(1);
    list.write(PAGE - 128 - 64, &bytes_of(&recv(1)));
    let mut arg = arg!(kfabric_post:
        ep: rig.ep, ops: list.before_hole(128 + 64), count: 2, op_size: 128
    );
    assert_eq!(rig.file.call_mut(&mut arg), Ok(()));
    assert_eq!((arg.done, arg.error), (1, Errno::EFAULT.raw() as u32));
    rig.cancel(1);
    // All were accepted.
    let (arg, result) = rig.file.post(rig.ep, &[recv(1), recv(2)]);
    assert_eq!((result, arg.done, arg.error), (Ok(()), 2, 0));
    rig.cancel(1);
    rig.cancel(2);
    rig.finish();
}

fn a_post_with_unwritable_results_posts_nothing() {
    let rig = Rig::new();
    let ops = [rig.op(abi::KFABRIC_OP_WRITE, SMALL)];
    let arg = arg!(kfabric_post: ep: rig.ep, ops: addr_of(&ops), count: 1, op_size: 128);
    let page = Pages::new(1);
    page.write(0, &bytes_of(&arg));
    page.protect(true);
    refused(
        rig.file.call_raw(abi::KFABRIC_IOC_POST, page.addr()),
        Errno::EFAULT,
    );
    rig.check();
    rig.finish();
}
