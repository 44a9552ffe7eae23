// SPDX-License-Identifier: GPL-2.0
//! An endpoint that has itself as a peer, for refused operations.

use crate::raw::{File, PAGE, Pages, Party, arg, data, refused};
use kfi::{Errno, abi};

/// An endpoint that has itself as a peer.
pub(crate) struct Rig {
    pub(crate) file: File,
    pub(crate) fabric: u32,
    pub(crate) domain: u32,
    pub(crate) ep: u32,
    pub(crate) cq: u32,
    pub(crate) av: u32,
    pub(crate) me: u64,
    pub(crate) mr: u32,
    pub(crate) pages: Pages,
}

pub(crate) const SMALL: u64 = 8;
/// More than can be injected.
pub(crate) const LARGE: u64 = 20_000;

pub(crate) const OPCODES: [u32; 6] = [
    abi::KFABRIC_OP_RECV,
    abi::KFABRIC_OP_SEND,
    abi::KFABRIC_OP_TRECV,
    abi::KFABRIC_OP_TSEND,
    abi::KFABRIC_OP_READ,
    abi::KFABRIC_OP_WRITE,
];

pub(crate) fn is_receive(opcode: u32) -> bool {
    [abi::KFABRIC_OP_RECV, abi::KFABRIC_OP_TRECV].contains(&opcode)
}

impl Rig {
    /// One with the default attributes.
    pub(crate) fn new() -> Self {
        Self::with(arg!(kfabric_ep_open))
    }

    /// An endpoint with these attributes.
    pub(crate) fn with(ep: abi::kfabric_ep_open) -> Self {
        let (file, fabric, domain) = File::open().and_domain();
        let cq = file.make(arg!(kfabric_cq_open:
            domain, entries: 2, format: abi::KFI_CQ_FORMAT_TAGGED
        ));
        let Party { ep, av, me, .. } = file.party_with(domain, cq, ep);
        let pages = Pages::new(8);
        let mr = file
            .reg(domain, pages.addr(), 8 * PAGE as u64, 1)
            .expect("the region of remote accesses");
        Self {
            file,
            fabric,
            domain,
            ep,
            cq,
            av,
            me,
            mr,
            pages,
        }
    }

    /// A valid operation.
    pub(crate) fn op(&self, opcode: u32, len: u64) -> abi::kfabric_op {
        data!(kfabric_op:
            opcode, context: 1000 + u64::from(opcode), buf: self.pages.addr(), len,
            peer: if is_receive(opcode) { abi::KFI_ADDR_UNSPEC } else { self.me },
            rma_key: if opcode >= abi::KFABRIC_OP_READ { 1 } else { 0 }
        )
    }

    /// Posts an operation.
    pub(crate) fn post(&self, op: abi::kfabric_op) -> Result<(), Errno> {
        self.file.post_one(self.ep, op)
    }

    /// The operation must be refused with this error, and without effects.
    #[track_caller]
    pub(crate) fn refuse(&self, op: abi::kfabric_op, errno: Errno) {
        let (arg, result) = self.file.post(self.ep, &[op]);
        assert_eq!(result, Err(errno), "{op:?}");
        assert_eq!((arg.done, arg.error), (0, errno.raw() as u32), "{op:?}");
    }

    /// A message to itself must still arrive.
    #[track_caller]
    pub(crate) fn check(&self) {
        refused(self.file.cq_read(self.cq), Errno::EAGAIN);
        for opcode in [abi::KFABRIC_OP_RECV, abi::KFABRIC_OP_SEND] {
            self.post(self.op(opcode, SMALL)).expect("after refusals");
        }
        for _ in 0..2 {
            let entry = self.file.cq_read(self.cq).expect("a completion");
            assert!([1000, 1001].contains(&entry.op_context), "{entry:?}");
        }
        refused(self.file.cq_read(self.cq), Errno::EAGAIN);
    }

    /// Cancels an operation and takes its error entry.
    #[track_caller]
    pub(crate) fn cancel(&self, context: u64) {
        self.file
            .call(arg!(kfabric_ep_cancel: ep: self.ep, context))
            .expect("cancel");
        self.file.cq_readerr(self.cq).expect("an error entry");
    }

    /// Closes everything, which must succeed.
    pub(crate) fn finish(self) {
        self.check();
        self.file
            .close_all(&[self.ep, self.cq, self.av, self.mr, self.domain, self.fabric]);
    }
}
