// SPDX-License-Identifier: GPL-2.0

//! Tagged RMA to peers on other hosts.
//!
//! The initiator sends an envelope, in the order of its messages. The peer takes a posted receive
//! or none, reads the bytes of a write, like those of a long message, or sends those of a read,
//! like the old values of an atomic. See [`kfi_core::rdm`].

use kernel::rbtree::RBTreeNodeReservation;

use kfi_core::rdm::ops::Outgoing;

use super::{
    super::{
        super::prelude::*,
        rma::Rma,
        tagged::access, //
    },
    op::Transmit,
    session::{
        NewSend,
        Session, //
    },
    store::slot, //
};

impl Endpoint {
    /// READ and WRITE with KFI_TAGGED, into or from `memory`. Returns the session as a SEND does.
    /// Fails with `EAGAIN`, `ENOMEM` as for a SEND. Sleeps.
    #[inline(never)]
    pub(in crate::provider::ep::rdm) fn tagged_remote(
        self: &Arc<Self>,
        bound: &Bound,
        session: Arc<Session>,
        rma: &Rma<'_>,
        memory: &mut MemRef,
        spare: &mut Option<Record>,
    ) -> Result<Arc<Session>> {
        self.try_tagged(bound, &session, rma, memory, spare)
            .inspect_err(|_| session.free_if_unused())
    }

    fn try_tagged(
        self: &Arc<Self>,
        bound: &Bound,
        session: &Arc<Session>,
        rma: &Rma<'_>,
        memory: &mut MemRef,
        spare: &mut Option<Record>,
    ) -> Result<Arc<Session>> {
        let (tag, access) = access(rma.kind, rma.remote)?;
        let data = rma.flags.contains(OpFlags::REMOTE_CQ_DATA);
        let outgoing = Outgoing {
            tag: Some(tag),
            data: data.then_some(rma.data),
            // At most 2^30; the length was checked.
            len: memory.len() as u32,
            atomic: None,
            rma: Some(access),
            delivery: false,
            fence: rma.flags.contains(OpFlags::FENCE),
        };
        let slot = slot(())?;
        let (mut grant, mut result) = (None, None);
        if access.read {
            result = Some(RBTreeNodeReservation::new(GFP_KERNEL_ACCOUNT)?);
        } else {
            grant = Some(RBTreeNodeReservation::new(GFP_KERNEL_ACCOUNT)?);
        }
        memory.charge_lists(&self.ident.budget)?;
        let (flags, context, len) = (rma.flags, rma.context, memory.len() as u64);
        let ticket = self.remote_ticket(bound, rma.kind, flags, context, len, spare)?;
        let memory = memory.take();
        let new = NewSend {
            result: result.map(|node| (node, memory.clone())),
            transmit: Transmit {
                ticket,
                memory,
                target: None,
                grant: None,
                result: None,
                charge: None,
            },
            slot,
            grant,
        };
        let post = |to: &Arc<Session>, new| to.send(outgoing, new);
        self.hand_over(bound, session, new, post, |new| new.transmit, spare)
    }
}
