// SPDX-License-Identifier: GPL-2.0
//! Posting atomics: every refusal, and that a refusal keeps no resources.
//!
//! The endpoint is connected with itself and has a CQ of two entries. After refusals it does two
//! atomics, which take both: they would fail if a refused one had kept a credit or a place in a
//! queue.

use crate::{
    harness::tests,
    raw::{ALL_ACCESS, BAD_ADDRS, File, Pages, addr_of, arg, data, in_ms, refused, to_qp, with},
};
use kfi::{Errno, abi};

tests![
    unknown_datatypes_and_ops_are_refused,
    datatypes_and_ops_that_rc_lacks_are_refused,
    atomics_take_one_word,
    fields_of_other_opcodes_are_refused,
    invalid_flags_of_atomics_are_refused,
    invalid_remote_words_are_refused,
    unmapped_operands_and_results_are_refused,
    regions_without_the_access_are_refused,
    missing_capabilities_are_refused,
    endpoints_without_atomics_refuse_them,
    atomics_need_a_connection,
    atomics_without_room_are_refused,
];

const ATOMIC: u32 = abi::KFABRIC_OP_ATOMIC;
const FETCH: u32 = abi::KFABRIC_OP_FETCH_ATOMIC;
const COMPARE: u32 = abi::KFABRIC_OP_COMPARE_ATOMIC;
const OPCODES: [u32; 3] = [ATOMIC, FETCH, COMPARE];

/// Offsets in the memory.
const OPERAND: u64 = 0;
const COMPARED: u64 = 512;
const RESULT: u64 = 1024;
const WORD: u64 = 2048;

/// An endpoint that is its own peer.
struct Rig {
    file: File,
    fabric: u32,
    domain: u32,
    ep: u32,
    cq: u32,
    mr: u32,
    pages: Pages,
}

impl Rig {
    /// A connected one.
    fn new() -> Self {
        Self::connected(abi::KFI_MSG | abi::KFI_ATOMIC)
    }

    fn connected(caps: u64) -> Self {
        let rig = Self::open(arg!(kfabric_ep_open: caps));
        rig.connect();
        rig
    }

    /// One that is not connected.
    fn open(ep: abi::kfabric_ep_open) -> Self {
        let (file, fabric, domain) = File::open().and_domain();
        let cq = file.make(arg!(kfabric_cq_open:
            domain, entries: 2, format: abi::KFI_CQ_FORMAT_TAGGED, wait_obj: abi::KFI_WAIT_UNSPEC
        ));
        let ep = file.make(with!(ep; domain, type_: abi::KFI_EP_MSG));
        file.bind(ep, cq, abi::KFI_SEND | abi::KFI_RECV)
            .expect("bind");
        file.enable(ep).expect("enable");
        let pages = Pages::new(1);
        let mr = file.reg(domain, pages.addr(), 4096, 1).expect("mr");
        Self {
            file,
            fabric,
            domain,
            ep,
            cq,
            mr,
            pages,
        }
    }

    fn connect(&self) {
        let ep = self.ep;
        let qp = arg!(kfabric_ep_qp: ep);
        let qp = self.file.call(qp).expect("qp");
        self.file.call(to_qp(ep, &qp)).expect("connect_qp");
    }

    /// A valid operation.
    fn op(&self, opcode: u32) -> abi::kfabric_op {
        let at = self.pages.addr();
        let (compares, fetches) = (opcode == COMPARE, opcode != ATOMIC);
        let op = if compares {
            abi::KFI_CSWAP
        } else {
            abi::KFI_SUM
        };
        data!(kfabric_op:
            opcode, context: u64::from(opcode), buf: at + OPERAND, len: 8, rma_addr: WORD,
            rma_key: 1, datatype: abi::KFI_UINT64 as u16, op: op as u16,
            compare: if compares { at + COMPARED } else { 0 },
            result: if fetches { at + RESULT } else { 0 }
        )
    }

    /// The operation must be refused with this error.
    #[track_caller]
    fn refuse(&self, op: abi::kfabric_op, errno: Errno) {
        let (arg, result) = self.file.post(self.ep, &[op]);
        assert_eq!(result, Err(errno), "{op:?}");
        assert_eq!((arg.done, arg.error), (0, errno.raw() as u32), "{op:?}");
    }

    #[track_caller]
    fn completion(&self) -> abi::kfabric_cq_entry {
        self.file
            .cq_wait(self.cq, in_ms(20_000))
            .expect("a completion")
    }

    /// Two atomics must still succeed.
    #[track_caller]
    fn check(&self) {
        refused(self.file.cq_read(self.cq), Errno::EAGAIN);
        for opcode in [FETCH, COMPARE] {
            let posted = self.file.post_one(self.ep, self.op(opcode));
            posted.expect("after refusals");
        }
        for opcode in [FETCH, COMPARE] {
            assert_eq!(self.completion().op_context, u64::from(opcode));
        }
    }

    /// Closes everything, which must succeed.
    fn finish(self) {
        self.check();
        self.file
            .close_all(&[self.ep, self.cq, self.mr, self.domain, self.fabric]);
    }
}

fn unknown_datatypes_and_ops_are_refused() {
    let rig = Rig::new();
    for opcode in OPCODES {
        let good = rig.op(opcode);
        for datatype in [14, 255, 256 + 7, u16::MAX] {
            rig.refuse(abi::kfabric_op { datatype, ..good }, Errno::EINVAL);
        }
        for op in [19, 255, 256 + 2, u16::MAX] {
            rig.refuse(abi::kfabric_op { op, ..good }, Errno::EINVAL);
        }
    }
    rig.finish();
}

fn datatypes_and_ops_that_rc_lacks_are_refused() {
    let rig = Rig::new();
    for opcode in OPCODES {
        let good = rig.op(opcode);
        for datatype in 0..14 {
            for op in 0..19 {
                let is_word = [good.datatype, abi::KFI_INT64 as u16].contains(&datatype);
                if !is_word || op != good.op {
                    let wrong = with!(good; datatype, op);
                    rig.refuse(wrong, Errno::EOPNOTSUPP);
                }
            }
        }
        rig.check();
    }
    rig.finish();
}

fn atomics_take_one_word() {
    let rig = Rig::new();
    for opcode in OPCODES {
        let good = rig.op(opcode);
        for len in [0, 1, 4, 7, 9, 15] {
            rig.refuse(abi::kfabric_op { len, ..good }, Errno::EINVAL);
        }
        for len in [16, 24, 512, 1 << 30, u64::MAX - 7] {
            rig.refuse(abi::kfabric_op { len, ..good }, Errno::EMSGSIZE);
        }
        let piece = |len| abi::kfabric_iov {
            addr: good.buf,
            len,
        };
        for (iov, errno) in [
            ([piece(4), piece(3)], Errno::EINVAL),
            ([piece(8), piece(8)], Errno::EMSGSIZE),
        ] {
            let list = with!(good; buf: addr_of(&iov), iov_count: 2);
            rig.refuse(list, errno);
        }
    }
    rig.finish();
}

fn fields_of_other_opcodes_are_refused() {
    let rig = Rig::new();
    let base = rig.op(ATOMIC);
    for bit in 0..64 {
        for opcode in [ATOMIC, FETCH] {
            let compare = 1 << bit;
            let wrong = with!(rig.op(opcode); compare);
            rig.refuse(wrong, Errno::EINVAL);
        }
        let result = 1 << bit;
        rig.refuse(abi::kfabric_op { result, ..base }, Errno::EINVAL);
    }
    for bit in 0..32 {
        let result_mr = 1 << bit;
        rig.refuse(abi::kfabric_op { result_mr, ..base }, Errno::EINVAL);
    }
    for bit in 0..16 {
        for opcode in [ATOMIC, FETCH] {
            let compare_iov_count = 1 << bit;
            let wrong = with!(rig.op(opcode); compare_iov_count);
            rig.refuse(wrong, Errno::EINVAL);
        }
        let result_iov_count = 1 << bit;
        let wrong = with!(base; result_iov_count);
        rig.refuse(wrong, Errno::EINVAL);
    }
    rig.finish();
}

fn invalid_flags_of_atomics_are_refused() {
    let rig = Rig::new();
    let known = abi::KFI_COMPLETION
        | abi::KFI_INJECT
        | abi::KFI_INJECT_COMPLETE
        | abi::KFI_TRANSMIT_COMPLETE
        | abi::KFI_DELIVERY_COMPLETE
        | abi::KFI_FENCE
        | abi::KFI_MORE;
    for opcode in OPCODES {
        for bit in 0..64 {
            let flags = 1 << bit;
            if opcode == ATOMIC && flags == abi::KFI_REMOTE_CQ_DATA {
                // An atomic of RC has no room for data.
                let wrong = with!(rig.op(opcode); flags);
                rig.refuse(wrong, Errno::EOPNOTSUPP);
            } else if known & flags == 0 {
                let wrong = with!(rig.op(opcode); flags);
                // The endpoint lacks the capability KFI_TRIGGER.
                let errno = match flags {
                    abi::KFI_TRIGGER => Errno::EOPNOTSUPP,
                    _ => Errno::EINVAL,
                };
                rig.refuse(wrong, errno);
            }
        }
        let all = with!(rig.op(opcode); flags: known);
        rig.file.post_one(rig.ep, all).expect("all flags");
        assert_eq!(rig.completion().op_context, u64::from(opcode));
    }
    rig.finish();
}

fn invalid_remote_words_are_refused() {
    let rig = Rig::new();
    for opcode in OPCODES {
        let good = rig.op(opcode);
        for beside in 1..8 {
            let wrong = with!(good; rma_addr: WORD + beside);
            rig.refuse(wrong, Errno::EINVAL);
        }
        for rma_key in [1 << 32, u64::MAX] {
            rig.refuse(abi::kfabric_op { rma_key, ..good }, Errno::EKEYREJECTED);
        }
        let list = |rma: &[abi::kfabric_rma_iov]| {
            with!(good;
                rma_addr: addr_of(rma), rma_iov_count: rma.len() as u32
            )
        };
        let piece = |len| abi::kfabric_rma_iov {
            addr: WORD,
            len,
            key: 1,
        };
        rig.refuse(list(&[piece(4), piece(4)]), Errno::EINVAL);
        rig.refuse(list(&[piece(16)]), Errno::EINVAL);
        rig.refuse(list(&[piece(8); 257]), Errno::EINVAL);
        let nowhere = with!(good; rma_addr: BAD_ADDRS[0], rma_iov_count: 1);
        rig.refuse(nowhere, Errno::EFAULT);
        rig.file
            .post_one(rig.ep, list(&[piece(8)]))
            .expect("a list of one");
        rig.completion();
    }
    rig.finish();
}

fn unmapped_operands_and_results_are_refused() {
    let rig = Rig::new();
    let read_only = Pages::new(1);
    read_only.protect(true);
    let gone = [
        BAD_ADDRS[0],
        BAD_ADDRS[1],
        BAD_ADDRS[2],
        rig.pages.hole(),
        rig.pages.before_hole(4),
    ];
    for addr in gone {
        for opcode in OPCODES {
            let good = rig.op(opcode);
            rig.refuse(abi::kfabric_op { buf: addr, ..good }, Errno::EFAULT);
            if opcode != ATOMIC {
                let wrong = with!(good; result: addr);
                rig.refuse(wrong, Errno::EFAULT);
            }
        }
        let wrong = with!(rig.op(COMPARE); compare: addr);
        rig.refuse(wrong, Errno::EFAULT);
    }
    for opcode in [FETCH, COMPARE] {
        let wrong = with!(rig.op(opcode); result: read_only.addr());
        rig.refuse(wrong, Errno::EFAULT);
    }
    rig.finish();
}

fn regions_without_the_access_are_refused() {
    let rig = Rig::new();
    let at = rig.pages.addr();
    let reg = |access| {
        let iov = abi::kfabric_iov {
            addr: at,
            len: RESULT + 8,
        };
        rig.file.make(arg!(kfabric_mr_reg:
            domain: rig.domain, iov: addr_of(&iov), iov_count: 1, access, requested_key: 2
        ))
    };
    for opcode in OPCODES {
        let good = rig.op(opcode);
        for mr in [60_000, rig.cq, u32::MAX] {
            rig.refuse(abi::kfabric_op { mr, ..good }, Errno::EBADF);
        }
        let mr = reg(ALL_ACCESS & !abi::KFI_WRITE);
        rig.refuse(abi::kfabric_op { mr, ..good }, Errno::EACCES);
        rig.file.close_all(&[mr]);
        let mr = reg(abi::KFI_WRITE);
        for buf in [at - 8, at + RESULT + 1] {
            rig.refuse(abi::kfabric_op { mr, buf, ..good }, Errno::EINVAL);
        }
        let allowed = abi::kfabric_op { mr, ..good };
        rig.file.post_one(rig.ep, allowed).expect("in the region");
        rig.completion();
        rig.file.close_all(&[mr]);
    }
    for opcode in [FETCH, COMPARE] {
        let good = rig.op(opcode);
        for result_mr in [60_000, rig.cq, u32::MAX] {
            rig.refuse(abi::kfabric_op { result_mr, ..good }, Errno::EBADF);
        }
        let result_mr = reg(ALL_ACCESS & !abi::KFI_READ);
        rig.refuse(abi::kfabric_op { result_mr, ..good }, Errno::EACCES);
        rig.file.close_all(&[result_mr]);
        let result_mr = reg(abi::KFI_READ);
        let good = abi::kfabric_op { result_mr, ..good };
        for result in [at - 8, at + RESULT + 1] {
            rig.refuse(abi::kfabric_op { result, ..good }, Errno::EINVAL);
        }
        rig.file.post_one(rig.ep, good).expect("in the region");
        rig.completion();
        rig.file.close_all(&[result_mr]);
    }
    rig.finish();
}

fn missing_capabilities_are_refused() {
    let atomic = abi::KFI_ATOMIC;
    for (caps, can) in [
        (abi::KFI_MSG | abi::KFI_RMA, vec![]),
        // The attributes of an endpoint without requests of its own.
        (0, vec![]),
        (atomic | abi::KFI_REMOTE_READ, vec![]),
        (atomic | abi::KFI_REMOTE_WRITE, vec![]),
        (atomic | abi::KFI_READ, vec![FETCH, COMPARE]),
        (atomic | abi::KFI_WRITE, vec![ATOMIC]),
        (atomic, OPCODES.to_vec()),
    ] {
        let rig = Rig::connected(caps);
        for opcode in OPCODES {
            if can.contains(&opcode) {
                // It is its own target, whose access rights are its capabilities.
                let posted = rig.file.post_one(rig.ep, rig.op(opcode));
                posted.expect("it can");
                if caps == atomic {
                    rig.completion();
                } else {
                    let wait = rig.file.cq_wait(rig.cq, in_ms(20_000));
                    refused(wait, Errno::KFI_EAVAIL);
                    break;
                }
            } else {
                rig.refuse(rig.op(opcode), Errno::EOPNOTSUPP);
            }
        }
    }
    let rig = Rig::open(arg!(kfabric_ep_open: caps: abi::KFI_MSG | atomic));
    rig.file
        .call(arg!(kfabric_ep_opt:
            ep: rig.ep, set: 1, level: abi::KFABRIC_OPT_QP, name: abi::KFABRIC_OPT_RD_ATOMIC
        ))
        .expect("opt");
    rig.connect();
    for opcode in OPCODES {
        rig.refuse(rig.op(opcode), Errno::EOPNOTSUPP);
    }
}

fn endpoints_without_atomics_refuse_them() {
    let rig = Rig::new();
    for type_ in [abi::KFI_EP_RDM, abi::KFI_EP_DGRAM] {
        let open = |caps| arg!(kfabric_ep_open: domain: rig.domain, type_, caps);
        if type_ == abi::KFI_EP_DGRAM {
            refused(rig.file.call(open(abi::KFI_ATOMIC)), Errno::EOPNOTSUPP);
        }
        let party = rig.file.party(rig.domain, open(0));
        for opcode in OPCODES {
            let op = with!(rig.op(opcode); peer: party.me);
            refused(rig.file.post_one(party.ep, op), Errno::EOPNOTSUPP);
        }
        rig.file.part(&party);
    }
    rig.finish();
}

fn atomics_need_a_connection() {
    let rig = Rig::open(arg!(kfabric_ep_open: caps: abi::KFI_ATOMIC));
    let disabled = rig.file.make(arg!(kfabric_ep_open:
        domain: rig.domain, type_: abi::KFI_EP_MSG, caps: abi::KFI_ATOMIC
    ));
    for opcode in OPCODES {
        let result = rig.file.post_one(disabled, rig.op(opcode));
        refused(result, Errno::KFI_EOPBADSTATE);
        rig.refuse(rig.op(opcode), Errno::ENOTCONN);
    }
    rig.connect();
    rig.check();
    rig.file
        .call(arg!(kfabric_ep_shutdown: ep: rig.ep))
        .expect("shutdown");
    for opcode in OPCODES {
        rig.refuse(rig.op(opcode), Errno::ESHUTDOWN);
    }
}

fn atomics_without_room_are_refused() {
    let rig = Rig::new();
    // In the CQ: entries that were not read fill it.
    for opcode in [FETCH, COMPARE] {
        rig.file.post_one(rig.ep, rig.op(opcode)).expect("post");
    }
    for opcode in OPCODES {
        rig.refuse(rig.op(opcode), Errno::EAGAIN);
    }
    rig.completion();
    rig.completion();
    rig.finish();
    // In the transmit queue: a message waits there for its receive.
    let rig = Rig::open(arg!(kfabric_ep_open: caps: abi::KFI_MSG | abi::KFI_ATOMIC, tx_size: 1));
    rig.connect();
    let message = |opcode| data!(kfabric_op: opcode, buf: rig.pages.addr(), len: 8);
    let post = |opcode| rig.file.post_one(rig.ep, message(opcode));
    post(abi::KFABRIC_OP_SEND).expect("send");
    for opcode in OPCODES {
        rig.refuse(rig.op(opcode), Errno::EAGAIN);
    }
    post(abi::KFABRIC_OP_RECV).expect("recv");
    rig.completion();
    rig.completion();
    for opcode in OPCODES {
        rig.file.post_one(rig.ep, rig.op(opcode)).expect("post");
        rig.completion();
    }
}
