// SPDX-License-Identifier: GPL-2.0

//! Suite `kfabric_fence`: operations with KFI_FENCE, and cancelling, while a message waits at a
//! peer on this host, and while the peer copies it; and a message that ends before its sender has
//! entered it.

use super::*;
use crate::{
    kunit::ep_pair::Pair,
    mem::Inline,
    provider::ep::op::Flags, //
};
use kfi_core::enums::EpType;

/// A pair, and the send of a message of the first end that waits at the second, with context 1.
fn waiting_pair() -> Result<(Pair, Arc<WaitingSend>)> {
    let pair = Pair::new(EpType::Rdm)?;
    let long = MemRef::buffer(1 << 17)?;
    pair.a.post(pair.a.send(Source::Mem(long), 1))?;
    let send = pair.a.endpoint.tx.find(|_| true).ok_or(ENOENT)?;
    Ok((pair, send))
}

/// Posts a message of a byte with KFI_FENCE.
fn post_fenced(pair: &Pair, context: u64) -> Result {
    let byte = Inline::from_slice(b"f").ok_or(EINVAL)?;
    let mut op = pair.a.send(Source::Inline(&byte), context);
    op.set_flags(Flags {
        own: OpFlags::FENCE | OpFlags::COMPLETION,
        explicit: true,
    });
    pair.a.post(op)
}

#[kunit_tests(kfabric_fence)]
mod tests {
    use super::*;

    #[test]
    fn a_fence_waits_until_a_message_is_copied() -> Result {
        let (pair, send) = waiting_pair()?;
        ensure_eq!(post_fenced(&pair, 2), Err(EAGAIN));
        let mut during = Ok(());
        ensure!(send.deliver(|_| during = post_fenced(&pair, 2)));
        ensure_eq!(during, Err(EAGAIN));
        ensure_eq!(pair.a.next()?, (1, Ok(())));
        ensure_eq!(post_fenced(&pair, 2), Ok(()));
        ensure_eq!(pair.a.next()?, (2, Ok(())));
        Ok(())
    }

    #[test]
    fn a_message_that_is_copied_is_not_cancelled() -> Result {
        let (pair, send) = waiting_pair()?;
        let mut during = Ok(());
        ensure!(send.deliver(|_| during = pair.a.endpoint.cancel(1)));
        ensure_eq!(during, Err(ENOENT));
        ensure_eq!(pair.a.next()?, (1, Ok(())));
        ensure_eq!(pair.a.endpoint.tx.waiting(), 0);
        Ok(())
    }

    /// A peer may receive a message before the task that sends it has entered it. A program that
    /// reads its completion finds its room free.
    #[test]
    fn a_message_ends_before_it_is_entered() -> Result {
        let pair = Pair::new(EpType::Rdm)?;
        let endpoint = &pair.a.endpoint;
        let (_inside, bound) = endpoint.enter().ok_or(EBADF)?;
        let slot = endpoint.tx.reserve()?;
        let kind = OpType::Send;
        let ticket = endpoint.ticket(bound, kind, OpFlags::COMPLETION, 1, 8, &mut None)?;
        let from = MemRef::buffer(8)?;
        let pending = PendingOp { from, ticket };
        let send = WaitingSend::new(endpoint, &pair.b.endpoint, 1, slot.number, pending)
            .map_err(|(error, _)| error)?;
        ensure!(send.deliver(|_| ()));
        ensure_eq!(pair.a.next()?, (1, Ok(())));
        ensure_eq!(endpoint.tx.waiting(), 0);
        ensure!(!endpoint.tx.enter(slot, &send));
        ensure_eq!(endpoint.tx.waiting(), 0);
        Ok(())
    }

    #[test]
    fn the_end_of_a_message_ends_the_wait_of_a_fence() -> Result {
        for (cancel, error) in [(true, ECANCELED), (false, EHOSTUNREACH)] {
            let (pair, send) = waiting_pair()?;
            ensure_eq!(post_fenced(&pair, 2), Err(EAGAIN));
            if cancel {
                pair.a.endpoint.cancel(1)?;
            } else {
                // As the close of the peer does.
                send.fail(Errno::EHOSTUNREACH);
            }
            ensure_eq!(pair.a.next()?, (1, Err(error)));
            ensure_eq!(post_fenced(&pair, 2), Ok(()));
        }
        Ok(())
    }
}
