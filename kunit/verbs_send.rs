// SPDX-License-Identifier: GPL-2.0

//! Suite `kfabric_verbs_send`: the send queue of a verbs QP, without a QP.

use super::{
    keys::Rights,
    send::{
        Bytes,
        Done,
        Next,
        Place,
        SendOp,
        SendQueue,
        WorkRequest, //
    },
    sge::Sge, //
};
use crate::{
    kunit::contexts::in_hard_irq,
    mem::{
        payload,
        Inline, //
    }, //
};
use kernel::{
    prelude::*,
    sync::Arc, //
};
use kfi_roce::{
    headers::SendEnd,
    rc::{
        Op,
        Status, //
    },
    state::State, //
};

/// Work requests and SGEs of the queues here, and inline bytes.
const WRS: u32 = 4;
const SGES: u32 = 2;
const INLINE: u32 = 16;

fn request(wr_id: u64) -> WorkRequest {
    WorkRequest {
        wr_id,
        op: SendOp::Rc(Op::Send(SendEnd::Plain)),
        len: 0,
        fence: false,
        solicited: false,
        signaled: true,
    }
}

fn sge(number: u64) -> Sge {
    Sge {
        addr: number,
        length: number as u32,
        lkey: number as u32,
    }
}

fn queue() -> Result<Pin<KBox<SendQueue>>> {
    let queue = KBox::try_pin_init(SendQueue::new(WRS, SGES, INLINE)?, GFP_KERNEL)?;
    queue.set_state(State::Rts);
    Ok(queue)
}

fn post(queue: &SendQueue, wr_id: u64) -> Result {
    queue.post(&request(wr_id), &[sge(wr_id)], None)
}

/// Takes the next work request, which has this ID and one SGE of its own.
fn next(queue: &SendQueue, first: bool, wr_id: u64) -> Option<Place> {
    let Next {
        place,
        request,
        bytes,
    } = queue.next(first)?;
    let own = match bytes {
        Bytes::Sges { sges, count } => count == 1 && sges[0].addr == wr_id,
        Bytes::Inline(_) => false,
    };
    (request.wr_id == wr_id && own).then_some(place)
}

/// The IDs and statuses of the work requests that are done, at most two.
fn done(queue: &SendQueue, first: bool) -> [Option<(u64, Status)>; 2] {
    let mut found = [None; 2];
    let _ = queue.take_done(first, &mut found);
    found.map(|done: Option<Done>| done.map(|done| (done.request.wr_id, done.status)))
}

#[kunit_tests(kfabric_verbs_send)]
mod tests {
    use super::*;

    #[test]
    fn work_requests_leave_in_the_order_of_the_posts() -> Result {
        let queue = queue()?;
        for id in 0..3 {
            post(&queue, id)?;
        }
        let mut places = [None; 3];
        for (id, place) in places.iter_mut().enumerate() {
            *place = next(&queue, id == 0, id as u64);
            queue.issued(place.ok_or(EINVAL)?, None);
        }
        ensure!(queue.next(false).is_none());
        // The last one ends first.
        queue.store(places[2].ok_or(EINVAL)?, Status::Success);
        queue.store(places[1].ok_or(EINVAL)?, Status::Flushed);
        ensure!(done(&queue, true) == [None, None]);
        queue.store(places[0].ok_or(EINVAL)?, Status::Success);
        ensure!(done(&queue, true) == [Some((0, Status::Success)), Some((1, Status::Flushed))]);
        ensure!(done(&queue, false) == [Some((2, Status::Success)), None]);
        ensure!(done(&queue, false) == [None, None]);
        Ok(())
    }

    #[test]
    fn one_task_issues_and_one_reaps() -> Result {
        let queue = queue()?;
        post(&queue, 1)?;
        let place = next(&queue, true, 1).ok_or(EINVAL)?;
        // Another task leaves what it has posted to the first one.
        post(&queue, 2)?;
        ensure!(queue.next(true).is_none());
        queue.issued(place, Some(Status::Success));
        let second = next(&queue, false, 2).ok_or(EINVAL)?;
        queue.issued(second, Some(Status::Success));
        ensure!(queue.next(false).is_none());
        let mut one = [None; 1];
        ensure!(queue.take_done(true, &mut one).count == 1);
        ensure!(queue.take_done(true, &mut one).count == 0);
        ensure!(queue.take_done(false, &mut one).count == 1);
        ensure!(queue.take_done(false, &mut one).count == 0);
        // Both have ended, so another task can be it.
        post(&queue, 3)?;
        let third = next(&queue, true, 3).ok_or(EINVAL)?;
        queue.issued(third, Some(Status::Success));
        ensure!(queue.take_done(true, &mut one).count == 1);
        Ok(())
    }

    #[test]
    fn a_full_queue_refuses_until_the_head_leaves() -> Result {
        let queue = queue()?;
        ensure!(queue.capacity() == WRS);
        // Around the ring several times.
        for round in 0..3 {
            for id in 0..u64::from(WRS) {
                post(&queue, round * 10 + id)?;
            }
            ensure!(post(&queue, 99) == Err(ENOMEM));
            for id in 0..u64::from(WRS) {
                let place = next(&queue, id == 0, round * 10 + id).ok_or(EINVAL)?;
                queue.issued(place, Some(Status::Success));
            }
            ensure!(queue.next(false).is_none());
            // Done, but not reaped.
            ensure!(post(&queue, 99) == Err(ENOMEM));
            let mut found = [None; WRS as usize];
            ensure!(queue.take_done(true, &mut found).count == WRS as usize);
            ensure!(queue.take_done(false, &mut found).count == 0);
        }
        Ok(())
    }

    #[test]
    fn the_state_decides_about_posts() -> Result {
        let queue = queue()?;
        for (state, allowed) in [
            (State::Reset, false),
            (State::Init, false),
            (State::Rtr, false),
            (State::Rts, true),
            (State::Sqd, true),
            (State::Sqe, true),
            (State::Error, true),
        ] {
            queue.set_state(State::Reset);
            queue.set_state(state);
            ensure!(post(&queue, 1).is_ok() == allowed);
        }
        Ok(())
    }

    #[test]
    fn an_error_is_not_lost_in_a_change_of_the_state() -> Result {
        let queue = queue()?;
        // SQD, which the QP refuses then; an error comes meanwhile, or none.
        ensure!(queue.exchange_state(State::Rts, State::Sqd));
        ensure!(queue.exchange_state(State::Sqd, State::Rts));
        ensure!(queue.exchange_state(State::Rts, State::Sqd));
        queue.fail(State::Error);
        ensure!(!queue.exchange_state(State::Sqd, State::Rts));
        ensure!(queue.state() == State::Error);
        // An error of the transport while the QP is being reset.
        queue.set_state(State::Reset);
        queue.fail(State::Error);
        ensure!(queue.state() == State::Reset);
        for (was, sqe, error) in [
            (State::Init, State::Init, State::Error),
            (State::Rtr, State::Sqe, State::Error),
            (State::Rts, State::Sqe, State::Error),
            (State::Sqd, State::Sqe, State::Error),
            (State::Sqe, State::Sqe, State::Error),
            (State::Error, State::Error, State::Error),
        ] {
            queue.set_state(was);
            queue.fail(State::Sqe);
            ensure!(queue.state() == sqe);
            queue.fail(State::Error);
            ensure!(queue.state() == error);
        }
        Ok(())
    }

    #[test]
    fn a_failed_work_request_waits_until_it_is_the_head() -> Result {
        let queue = queue()?;
        for id in 0..3 {
            post(&queue, id)?;
        }
        let first = next(&queue, true, 0).ok_or(EINVAL)?;
        queue.issued(first, None);
        let second = next(&queue, false, 1).ok_or(EINVAL)?;
        queue.failed(second, Status::LocalProtection);
        // Nothing is issued behind it.
        ensure!(queue.next(false).is_none());
        ensure!(queue.next(true).is_none());
        let mut found = [None; 2];
        let reaped = queue.take_done(true, &mut found);
        ensure!(reaped.count == 0 && reaped.failed.is_none());
        queue.store(first, Status::Success);
        ensure!(queue.take_done(true, &mut found).count == 1);
        let reaped = queue.take_done(false, &mut found);
        let (place, status) = reaped.failed.ok_or(EINVAL)?;
        ensure!(place == second && status == Status::LocalProtection);
        queue.store(place, status);
        ensure!(done(&queue, false) == [Some((1, Status::LocalProtection)), None]);
        ensure!(done(&queue, false) == [None, None]);
        ensure!(next(&queue, true, 2).is_some());
        Ok(())
    }

    #[test]
    fn a_result_of_an_earlier_generation_has_no_effect() -> Result {
        let queue = queue()?;
        post(&queue, 1)?;
        let earlier = next(&queue, true, 1).ok_or(EINVAL)?;
        queue.set_state(State::Reset);
        queue.issued(earlier, None);
        ensure!(queue.next(false).is_none());
        queue.set_state(State::Rts);
        post(&queue, 2)?;
        let place = next(&queue, true, 2).ok_or(EINVAL)?;
        queue.issued(place, None);
        queue.store(Place::from_context(earlier.context()), Status::Success);
        queue.failed(earlier, Status::LocalLength);
        ensure!(done(&queue, true) == [None, None]);
        queue.store(Place::from_context(place.context()), Status::Success);
        ensure!(done(&queue, true) == [Some((2, Status::Success)), None]);
        Ok(())
    }

    #[test]
    fn an_invalidation_waits_until_it_is_the_head() -> Result {
        let queue = queue()?;
        let invalidate = WorkRequest {
            op: SendOp::Invalidate { key: 1 },
            ..request(1)
        };
        let register = WorkRequest {
            op: SendOp::Register {
                key: 1,
                base: 0,
                rights: Rights::LOCAL_READ,
            },
            ..request(2)
        };
        let fenced = WorkRequest {
            fence: true,
            wr_id: 3,
            ..register
        };
        post(&queue, 0)?;
        for request in [invalidate, register, fenced] {
            queue.post(&request, &[], None)?;
        }
        let first = next(&queue, true, 0).ok_or(EINVAL)?;
        queue.issued(first, None);
        ensure!(queue.next(false).is_none());
        queue.store(first, Status::Success);
        // It is done, but has not left.
        ensure!(queue.next(true).is_none());
        ensure!(!queue.is_due());
        ensure!(done(&queue, true) == [Some((0, Status::Success)), None]);
        ensure!(queue.is_due());
        ensure!(done(&queue, false) == [None, None]);
        let second = queue.next(true).ok_or(EINVAL)?;
        ensure!(second.request.wr_id == 1);
        queue.issued(second.place, None);
        // A registration does not wait, unless it is fenced.
        let third = queue.next(false).ok_or(EINVAL)?;
        ensure!(third.request.wr_id == 2);
        queue.issued(third.place, Some(Status::Success));
        ensure!(queue.next(false).is_none());
        queue.store(second.place, Status::Success);
        ensure!(done(&queue, true) == [Some((1, Status::Success)), Some((2, Status::Success))]);
        ensure!(queue.is_due());
        let fourth = queue.next(true).ok_or(EINVAL)?;
        ensure!(fourth.request.wr_id == 3);
        queue.issued(fourth.place, Some(Status::Success));
        ensure!(queue.next(false).is_none());
        ensure!(done(&queue, false) == [Some((3, Status::Success)), None]);
        ensure!(!queue.is_due());
        Ok(())
    }

    #[test]
    fn inline_data_are_copied() -> Result {
        let queue = queue()?;
        let inline = Inline::from_slice(b"sixteen bytes...").ok_or(EINVAL)?;
        queue.post(&request(1), &[], Some(&inline))?;
        queue.post(&request(2), &[], Some(&Inline::new()))?;
        let Some(Next {
            place,
            bytes: Bytes::Inline(memory),
            ..
        }) = queue.next(true)
        else {
            return Err(EINVAL);
        };
        let mut found = [0; INLINE as usize];
        payload::peek(&mut found, &memory, 0);
        ensure!(memory.len() == found.len() && &found == b"sixteen bytes...");
        queue.issued(place, None);
        // No bytes are no SGEs.
        let empty = queue.next(false).ok_or(EINVAL)?;
        ensure!(matches!(empty.bytes, Bytes::Sges { count: 0, .. }));
        Ok(())
    }

    #[test]
    fn hard_interrupts_may_post() -> Result {
        let queue = Arc::pin_init(SendQueue::new(WRS, SGES, INLINE)?, GFP_KERNEL)?;
        queue.set_state(State::Rts);
        let posting = queue.clone();
        in_hard_irq(move || {
            let _ = post(&posting, 7);
        })?;
        ensure!(next(&queue, true, 7).is_some());
        Ok(())
    }
}
