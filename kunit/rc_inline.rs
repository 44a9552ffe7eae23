// SPDX-License-Identifier: GPL-2.0

//! Suite `kfabric_rc_inline`: which packets of this host the sender's task processes, and which the
//! worker of the QP that receives them.

use crate::{
    mem::Budget,
    net::{
        kunit_rc_pair::{
            plain,
            wish,
            Pair,
            SEND, //
        },
        kunit_wire_pair::{
            buffer,
            ONE,
            TWO, //
        },
        Figure, //
    },
    shim::{
        aids::{
            eventually,
            thread,
            user,
            Count, //
        },
        work, //
    }, //
};
use kernel::prelude::*;

#[kunit_tests(kfabric_rc_inline)]
mod tests {
    use super::*;

    #[test]
    fn packets_to_another_users_qp_are_processed_by_its_worker() -> Result {
        let pair = Pair::of(ONE, TWO, &wish(), &Budget::of(user(34), None)?)?;
        let (a, b) = (&pair.a, &pair.b);
        let payload = buffer(8)?;
        for round in 0..100 {
            a.qp.queue(&plain(SEND), &[], payload.clone(), round)?;
            a.qp.push();
            assert!(eventually(|| a.peer.ended() as u64 == round + 1));
        }
        assert_eq!(b.peer.received(), 100);
        assert!(b.figure(Figure::RxPackets) >= 100);
        // Its worker runs for that user, and processes no packets to the first one's QP either.
        assert_eq!((a.figure(Figure::RxInline), b.figure(Figure::RxInline)), (0, 0));
        Ok(())
    }

    /// The task that has the turn may not be scheduled for a while. The workers of other QPs run
    /// meanwhile, however many do that.
    #[test]
    fn a_worker_does_not_wait_for_a_task() -> Result {
        let pair = Pair::default()?;
        let (a, b) = (&pair.a, &pair.b);
        let payload = buffer(8)?;
        let flushed = Count::new()?;
        let turn = b.qp.turn.lock();
        a.post(SEND, &payload)?;
        let flusher = {
            let (qp, flushed) = (b.qp.clone(), flushed.clone());
            thread(move || {
                work::flush(&qp.work);
                flushed.add(1);
            })?
        };
        let worker_is_free = eventually(|| flushed.get() == 1);
        let received = b.peer.received();
        drop(turn);
        // What the holder of a turn does afterwards.
        if b.qp.missed() {
            b.qp.wake();
        }
        drop(flusher);
        assert!(worker_is_free);
        assert_eq!(received, 0);
        assert!(eventually(|| a.peer.ended() == 1));
        Ok(())
    }
}
