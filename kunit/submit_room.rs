// SPDX-License-Identifier: GPL-2.0

//! Suite `kfabric_submit_room`: started operations that wait for room among the transmits and
//! receives of their endpoint, or in its CQ.

use super::*;
use crate::{
    kunit::helpers::MS,
    shim::sched::now_ns, //
};

#[kunit_tests(kfabric_submit_room)]
mod tests {
    use super::*;

    #[test]
    fn a_queue_without_room_among_transmits_goes_on_later() -> Result {
        let pair = Pair::sized(EpType::Rdm, narrow(2), Sizes::DEFAULT)?;
        start_long(&pair, 6, 2)?;
        a_while();
        ensure!(pair.a.poll().is_none());
        for context in 0..6 {
            receive_long(&pair, context)?;
            ensure_eq!(pair.a.next()?, (context, Ok(())));
            ensure_eq!(pair.b.next()?, (context, Ok(())));
        }
        Ok(())
    }

    #[test]
    fn a_queue_without_room_in_the_cq_goes_on_when_entries_are_read() -> Result {
        let pair = Pair::sized(
            EpType::Rdm,
            Sizes {
                cq: 2,
                ..Sizes::DEFAULT
            },
            Sizes::DEFAULT,
        )?;
        let bytes = receive_bytes(&pair.b, 6)?;
        let batch = Batch::new(&pair.a, 6)?;
        batch.start();
        // Two have room.
        ensure_eq!(pair.b.next()?, (0, Ok(())));
        ensure_eq!(pair.b.next()?, (1, Ok(())));
        a_while();
        ensure!(pair.b.poll().is_none());
        for context in 0..6 {
            ensure_eq!(pair.a.next()?, (context, Ok(())));
        }
        for context in 2..6 {
            ensure_eq!(pair.b.next()?, (context, Ok(())));
        }
        drop(bytes);
        Ok(())
    }

    #[test]
    fn blocked_transmits_do_not_delay_receives() -> Result {
        let pair = Pair::sized(EpType::Rdm, narrow(1), Sizes::DEFAULT)?;
        start_long(&pair, 2, 1)?;
        let mut receive = pair.a.receive(MemRef::buffer(1)?, 7);
        pair.a
            .endpoint
            .admit(&mut receive, Context::MaySleep)?
            .start();
        admit_byte(&pair.b, 8, Context::MaySleep)?.start();
        ensure_eq!(pair.a.next()?, (7, Ok(())));
        ensure_eq!(pair.b.next()?, (8, Ok(())));
        Ok(())
    }

    #[test]
    fn a_queue_that_stays_blocked_is_tried_less_and_less_often() -> Result {
        for side in [Side::Transmit, Side::Receive] {
            let sizes = Sizes { rx: 1, ..narrow(1) };
            let pair = Pair::sized(EpType::Rdm, sizes, Sizes::DEFAULT)?;
            for context in 0..2 {
                let memory = MemRef::buffer(LONG)?;
                let mut op = match side {
                    Side::Transmit => pair.a.send(Source::Mem(memory), context),
                    Side::Receive => pair.a.receive(memory, context),
                };
                let endpoint = &pair.a.endpoint;
                endpoint.admit(&mut op, Context::MaySleep)?.start();
            }
            let (other, delay) = match side {
                Side::Transmit => (Side::Receive, 128 * MS),
                Side::Receive => (Side::Transmit, 128 * MS),
            };
            let submission = &pair.a.endpoint.submission;
            ensure!(eventually(|| submission.delay(side) >= delay));
            ensure!(submission.delay(other) < delay);
        }
        Ok(())
    }

    #[test]
    fn a_completion_makes_a_blocked_queue_go_on() -> Result {
        // The fastest of some, because a loaded machine delays a single one.
        let mut fastest = u64::MAX;
        for _ in 0..10 {
            let pair = Pair::sized(EpType::Rdm, narrow(1), Sizes::DEFAULT)?;
            for context in 0..2 {
                admit_long(&pair.a, context)?.start();
            }
            // The next attempt without a completion is in 256 ms.
            let submission = &pair.a.endpoint.submission;
            ensure!(eventually(|| submission.delay(Side::Transmit) >= 512 * MS));
            let began = now_ns();
            for context in 0..2 {
                receive_long(&pair, context)?;
            }
            ensure_eq!(pair.a.next()?, (0, Ok(())));
            ensure_eq!(pair.a.next()?, (1, Ok(())));
            fastest = fastest.min(now_ns() - began);
            if fastest < 150 * MS {
                break;
            }
        }
        ensure!(fastest < 150 * MS);
        Ok(())
    }

    #[test]
    fn a_small_cq_that_is_read_at_once_does_not_delay_a_queue() -> Result {
        let small = Sizes {
            cq: 4,
            ..Sizes::DEFAULT
        };
        let many = Sizes {
            rx: 256,
            cq: 512,
            ..Sizes::DEFAULT
        };
        let pair = Pair::sized(EpType::Rdm, small, many)?;
        drop(receive_bytes(&pair.b, 200)?);
        let began = now_ns();
        Batch::new(&pair.a, 200)?.start();
        for context in 0..200 {
            ensure_eq!(pair.a.next()?, (context, Ok(())));
        }
        // Fifty pauses of some ms, and not of 512 ms each.
        ensure!(now_ns() - began < 15_000 * MS);
        Ok(())
    }
}
