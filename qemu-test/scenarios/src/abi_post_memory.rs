// SPDX-License-Identifier: GPL-2.0
//! The memory that operations name, here and at the peer: every refusal, and that a refusal keeps
//! no resources (see [`abi_post`](crate::abi_post)).

use crate::{
    abi_post::{LARGE, OPCODES, Rig, SMALL, is_receive},
    harness::tests,
    raw::{ALL_ACCESS, BAD_ADDRS, PAGE, Pages, addr_of, arg, with},
};
use kfi::{Errno, abi};

tests![
    messages_that_are_too_long_are_refused,
    unmapped_buffers_are_refused,
    invalid_lists_of_buffers_are_refused,
    remote_and_local_lengths_must_be_equal,
    regions_without_the_access_are_refused,
];

fn messages_that_are_too_long_are_refused() {
    let rig = Rig::new();
    let most = abi::KFABRIC_MAX_MSG_SIZE;
    for opcode in OPCODES {
        for len in [most + 1, 1 << 40, u64::MAX] {
            rig.refuse(rig.op(opcode, len), Errno::EMSGSIZE);
        }
        let halves = [abi::kfabric_iov {
            addr: rig.pages.addr(),
            len: most / 2 + 1,
        }; 2];
        let list = with!(rig.op(opcode, 0); buf: addr_of(&halves), iov_count: 2);
        rig.refuse(list, Errno::EMSGSIZE);
    }
    rig.check();
    for opcode in [
        abi::KFABRIC_OP_SEND,
        abi::KFABRIC_OP_TSEND,
        abi::KFABRIC_OP_WRITE,
    ] {
        for len in [257, LARGE] {
            let inject = with!(rig.op(opcode, len); flags: abi::KFI_INJECT);
            rig.refuse(inject, Errno::EMSGSIZE);
        }
    }
    rig.check();
    rig.finish();
    // The endpoint's default injects.
    let rig = Rig::with(arg!(kfabric_ep_open: tx_op_flags: abi::KFI_INJECT | abi::KFI_COMPLETION));
    rig.refuse(rig.op(abi::KFABRIC_OP_SEND, LARGE), Errno::EMSGSIZE);
    // Explicit flags replace the defaults.
    let explicit = with!(rig.op(abi::KFABRIC_OP_TSEND, LARGE); control: abi::KFABRIC_OP_EXPLICIT);
    rig.post(explicit).expect("not injected");
    rig.cancel(1003);
    rig.finish();
}

fn unmapped_buffers_are_refused() {
    let rig = Rig::new();
    let read_only = Pages::new(8);
    read_only.protect(true);
    let hidden = Pages::new(8);
    hidden.protect(false);
    let gone = [
        BAD_ADDRS[0],
        BAD_ADDRS[1],
        BAD_ADDRS[2],
        rig.pages.hole(),
        rig.pages.before_hole(4),
        hidden.addr(),
    ];
    for opcode in OPCODES {
        for len in [SMALL, LARGE] {
            for buf in gone {
                let wrong = with!(rig.op(opcode, len); buf);
                rig.refuse(wrong, Errno::EFAULT);
            }
            if is_receive(opcode) || opcode == abi::KFABRIC_OP_READ {
                let wrong = with!(rig.op(opcode, len); buf: read_only.addr());
                rig.refuse(wrong, Errno::EFAULT);
            }
        }
        // A range that wraps, where its pages are pinned.
        let wrong = with!(rig.op(opcode, LARGE); buf: u64::MAX - 4095);
        rig.refuse(wrong, Errno::EINVAL);
        rig.check();
    }
    // An operation without bytes has no buffer.
    let nothing = with!(rig.op(abi::KFABRIC_OP_WRITE, 0); buf: BAD_ADDRS[1]);
    rig.post(nothing).expect("no bytes");
    rig.file.cq_read(rig.cq).expect("written");
    rig.finish();
}

fn invalid_lists_of_buffers_are_refused() {
    let rig = Rig::new();
    let at = rig.pages.addr();
    let piece = |addr, len| abi::kfabric_iov { addr, len };
    for opcode in OPCODES {
        let list = |iov: &[abi::kfabric_iov], iov_count: usize| {
            with!(rig.op(opcode, 0);
                buf: addr_of(iov), iov_count: iov_count as u32
            )
        };
        let good = vec![piece(at, 1); 257];
        rig.refuse(list(&good, 257), Errno::EINVAL);
        rig.refuse(list(&good, u32::MAX as usize), Errno::EINVAL);
        // Lengths whose sum wraps.
        let wraps = [piece(at, u64::MAX), piece(at, 2)];
        rig.refuse(list(&wraps, 2), Errno::EINVAL);
        // The list, or the memory of an element, is not mapped.
        for buf in BAD_ADDRS.into_iter().chain([rig.pages.before_hole(24)]) {
            let wrong = with!(rig.op(opcode, 0); buf, iov_count: 2);
            rig.refuse(wrong, Errno::EFAULT);
        }
        for len in [4, 5000] {
            for addr in [8, rig.pages.hole()] {
                rig.refuse(list(&[piece(at, 4), piece(addr, len)], 2), Errno::EFAULT);
            }
        }
        rig.check();
    }
    rig.finish();
}

fn remote_and_local_lengths_must_be_equal() {
    let rig = Rig::new();
    for opcode in [abi::KFABRIC_OP_READ, abi::KFABRIC_OP_WRITE] {
        for len in [SMALL, LARGE] {
            let list = |rma: &[abi::kfabric_rma_iov], rma_iov_count: usize| {
                with!(rig.op(opcode, len);
                    rma_addr: addr_of(rma), rma_iov_count: rma_iov_count as u32
                )
            };
            let piece = |len| abi::kfabric_rma_iov {
                addr: 0,
                len,
                key: 1,
            };
            let good = vec![piece(1); 257];
            rig.refuse(list(&good, 257), Errno::EINVAL);
            rig.refuse(list(&good, u32::MAX as usize), Errno::EINVAL);
            // The lengths here and there are equal.
            rig.refuse(list(&[piece(len - 1)], 1), Errno::EINVAL);
            rig.refuse(list(&[piece(len), piece(1)], 2), Errno::EINVAL);
            rig.refuse(list(&[piece(u64::MAX), piece(len + 1)], 2), Errno::EINVAL);
            for rma_addr in BAD_ADDRS.into_iter().chain([rig.pages.before_hole(36)]) {
                let wrong = with!(rig.op(opcode, len); rma_addr, rma_iov_count: 2);
                rig.refuse(wrong, Errno::EFAULT);
            }
            rig.check();
        }
    }
    rig.finish();
}

fn regions_without_the_access_are_refused() {
    let rig = Rig::new();
    let at = rig.pages.addr();
    for (opcode, needs) in [
        (abi::KFABRIC_OP_RECV, abi::KFI_RECV),
        (abi::KFABRIC_OP_TRECV, abi::KFI_RECV),
        (abi::KFABRIC_OP_SEND, abi::KFI_SEND),
        (abi::KFABRIC_OP_TSEND, abi::KFI_SEND),
        (abi::KFABRIC_OP_READ, abi::KFI_READ),
        (abi::KFABRIC_OP_WRITE, abi::KFI_WRITE),
    ] {
        for len in [SMALL, LARGE] {
            let with = |mr, buf| with!(rig.op(opcode, len); mr, buf);
            let iov = abi::kfabric_iov { addr: at, len };
            let reg = |access| {
                rig.file
                    .call(arg!(kfabric_mr_reg:
                        domain: rig.domain, iov: addr_of(&iov), iov_count: 1, access,
                        requested_key: 2
                    ))
                    .expect("mr")
                    .handle
            };
            // No such region, or something else.
            for wrong in [60_000, rig.cq, u32::MAX] {
                rig.refuse(with(wrong, at), Errno::EBADF);
            }
            let mr = reg(ALL_ACCESS & !needs);
            rig.refuse(with(mr, at), Errno::EACCES);
            let list = [iov];
            let listed = with!(with(mr, at); buf: addr_of(&list), iov_count: 1);
            rig.refuse(listed, Errno::EACCES);
            rig.file.close_all(&[mr]);
            rig.refuse(with(mr, at), Errno::EBADF);
            // Bytes that are partly outside it.
            let mr = reg(needs);
            for buf in [at + 1, at - 1, at + 100 * PAGE as u64, 0] {
                rig.refuse(with(mr, buf), Errno::EINVAL);
            }
            rig.file.close_all(&[mr]);
        }
        rig.check();
    }
    rig.finish();
}
