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
    shim::aids::{
        eventually,
        user, //
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
}
