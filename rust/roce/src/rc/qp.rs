// SPDX-License-Identifier: GPL-2.0
//! A QP: a requester and a responder that share a state.
//!
//! [`Qp`] is for callers that hold one lock over both halves. A caller with a lock for each half
//! uses [`Requester`] and [`Responder`] directly and does the same: it changes the state of both
//! with both locks held, and moves one to ERR when the other fails.

use super::{
    super::{
        packet::Packet,
        state::{
            Mask,
            State, //
        },
    },
    attr::Attr,
    outstanding::Slot,
    queue::Wqe,
    requester::{
        Received,
        Requester, //
    },
    responder::{
        Replay,
        RequestResult,
        Responder, //
    },
    target::Target, //
};
use crate::error::Result;
use core::ops::DerefMut;

/// An RC QP. [`Requester`] and [`Responder`] describe `Q`, `R` and `P`.
pub struct Qp<Q, R, P> {
    /// The requester half.
    pub requester: Requester<Q, R>,
    /// The responder half.
    pub responder: Responder<P>,
}

/// The result of a received packet.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Event {
    /// The packet was a response.
    Response(Received),
    /// The packet was a request.
    Request(RequestResult),
}

impl<Q, R, P> Qp<Q, R, P>
where
    Q: DerefMut<Target = [Wqe]>,
    R: DerefMut<Target = [Slot]>,
    P: DerefMut<Target = [Replay]>,
{
    /// Makes a QP from two halves in state RESET.
    pub const fn new(requester: Requester<Q, R>, responder: Responder<P>) -> Self {
        Self {
            requester,
            responder,
        }
    }

    /// Returns the state.
    pub fn state(&self) -> State {
        self.responder.state()
    }

    /// Moves the QP to state `attr.state` and sets the attributes in `mask`.
    ///
    /// # Errors
    ///
    /// The errors of [`Requester::check`] and [`Responder::check`]; the QP is unchanged then.
    pub fn modify<T: Target>(&mut self, attr: &Attr, mask: Mask, target: &mut T) -> Result {
        self.responder.check(attr, mask)?;
        self.requester.modify(attr, mask)?;
        self.responder.modify(attr, mask, target)
    }

    /// Handles a packet that arrived at `now`; `target` has its payload.
    pub fn receive<T: Target>(&mut self, now: u64, packet: &Packet, target: &mut T) -> Event {
        let event = if packet.opcode().is_response() {
            Event::Response(self.requester.receive(now, packet))
        } else {
            Event::Request(self.responder.receive(now, packet, target))
        };
        self.follow(target);
        event
    }

    /// Handles the timers that have expired at `now`.
    pub fn expired<T: Target>(&mut self, now: u64, target: &mut T) {
        self.requester.expired(now);
        self.follow(target);
    }

    /// Returns the time at which to call [`Self::expired`] and to poll both halves, unless another
    /// call comes first.
    pub fn deadline(&self) -> Option<u64> {
        [self.requester.deadline(), self.responder.deadline()]
            .into_iter()
            .flatten()
            .min()
    }

    /// Moves one half to ERR if the other is in ERR. The caller calls this after it has moved one
    /// half to ERR.
    pub fn follow<T: Target>(&mut self, target: &mut T) {
        if self.requester.state() == State::Error {
            self.responder.error(target);
        } else if self.responder.state() == State::Error {
            self.requester.error();
        }
    }
}

#[cfg(any(test, kfi_kunit))]
#[cfg_attr(kfi_kunit, kernel::prelude::kunit_tests(kfi_roce_rc_qp))]
mod tests {
    use super::{
        super::{
            super::{
                headers::{
                    Aeth,
                    Bth,
                    Headers,
                    Nak,
                    Qpn,
                    SendEnd,
                    Syndrome, //
                },
                psn::Psn, //
            },
            queue::{
                Op,
                Status,
                WorkRequest, //
            },
            responder::{
                tests::{
                    start_attr,
                    Call,
                    RecordingTarget, //
                },
                AckPolicy, //
            },
            Refusal,
        },
        *,
    };
    use crate::{
        error::Error,
        testing::Log, //
    };

    type Lent<'a> = Qp<&'a mut [Wqe], &'a mut [Slot], &'a mut [Replay]>;

    /// Runs `test` with a QP in RTS that has two SENDs posted.
    fn with(test: impl FnOnce(&mut Lent<'_>, &mut RecordingTarget) -> Result) -> Result {
        let mut wqes = [Wqe::EMPTY; 4];
        let mut slots = [Slot::default(); 2];
        let mut replays = [Replay::EMPTY; 2];
        let mut qp = Qp::new(
            Requester::new(&mut wqes[..], &mut slots[..], 64),
            Responder::new(&mut replays[..], AckPolicy::AT_ONCE),
        );
        let mut target = RecordingTarget::new();
        for (attr, mask) in start_attr() {
            qp.modify(&attr, mask, &mut target)?;
            assert_eq!(qp.state(), attr.state);
            assert_eq!(qp.requester.state(), attr.state);
        }
        for wr_id in 0..2 {
            qp.requester.post(&WorkRequest {
                wr_id,
                op: Op::Send(SendEnd::Plain),
                len: 0,
                fence: false,
                solicited: false,
                signaled: true,
            })?;
        }
        test(&mut qp, &mut target)
    }

    fn packet(psn: Psn, headers: Headers, len: usize) -> Packet {
        Packet::new(Bth::new(Qpn::new(1), psn), headers, len)
    }

    fn taken(qp: &mut Lent<'_>) -> Log<(u64, Status)> {
        let mut log = Log::new();
        while let Some(completion) = qp.requester.take() {
            log.push((completion.request.wr_id, completion.status));
        }
        log
    }

    #[test]
    fn packets_reach_the_right_half() -> Result {
        with(|qp, target| {
            let sent = qp.requester.poll(0).map(|outgoing| outgoing.packet);
            let Some(sent) = sent else {
                return Err(Error::Invalid);
            };
            let mut first = sent;
            first.bth.psn = qp.responder.expected();
            let event = qp.receive(0, &first, target);
            assert_eq!(event, Event::Request(RequestResult::Executed));
            let aeth = Aeth {
                syndrome: Syndrome::ACK,
                msn: Psn::new(1),
            };
            let ack = packet(sent.bth.psn, Headers::Acknowledge(aeth), 0);
            let event = qp.receive(0, &ack, target);
            assert_eq!(event, Event::Response(Received::Nothing));
            assert_eq!(taken(qp), Log::of(&[(0, Status::Success)]));
            Ok(())
        })
    }

    #[test]
    fn a_refused_request_flushes_what_is_posted() -> Result {
        with(|qp, target| {
            target.refuses = Some((Call::Place(0), Refusal::Operation));
            let send = Headers::SendOnly(SendEnd::Plain);
            let send = packet(qp.responder.expected(), send, 1);
            let event = qp.receive(0, &send, target);
            let refused = RequestResult::Refused(Nak::RemoteOperation);
            assert_eq!(event, Event::Request(refused));
            assert_eq!(qp.state(), State::Error);
            let flushed = [(0, Status::Flushed), (1, Status::Flushed)];
            assert_eq!(taken(qp), Log::of(&flushed));
            // The NAK is still sent.
            assert!(qp.responder.poll(0).is_some());
            assert_eq!(qp.responder.poll(0), None);
            assert_eq!(qp.requester.poll(0), None);
            assert_eq!(qp.deadline(), None);
            Ok(())
        })
    }

    #[test]
    fn a_failed_request_aborts_the_receive_in_progress() -> Result {
        with(|qp, target| {
            let first = packet(qp.responder.expected(), Headers::SendFirst, 256);
            qp.receive(0, &first, target);
            qp.requester.poll(0);
            target.taken();
            // The QP has no retries.
            let Some(deadline) = qp.deadline() else {
                return Err(Error::Invalid);
            };
            qp.expired(deadline, target);
            assert_eq!(qp.state(), State::Error);
            assert_eq!(target.taken(), Log::of(&[Call::Abort(None)]));
            let failed = [(0, Status::RetryExceeded), (1, Status::Flushed)];
            assert_eq!(taken(qp), Log::of(&failed));
            assert_eq!(qp.responder.poll(0), None);
            Ok(())
        })
    }

    #[test]
    fn a_transition_changes_both_halves_or_neither() -> Result {
        with(|qp, target| {
            let sqd = Attr {
                state: State::Sqd,
                ..Attr::default()
            };
            let bad = Attr {
                max_dest_rd_atomic: 3,
                ..sqd
            };
            qp.modify(&sqd, Mask::NONE, target)?;
            assert!(qp.requester.is_drained());
            for bad in [
                bad,
                Attr {
                    max_rd_atomic: 3,
                    ..sqd
                },
            ] {
                let both = Mask::MAX_DEST_RD_ATOMIC.with(Mask::MAX_QP_RD_ATOMIC);
                assert_eq!(qp.modify(&bad, both, target), Err(Error::Invalid));
            }
            assert_eq!(qp.requester.attr().max_rd_atomic, 2);
            assert_eq!(qp.responder.attr().max_dest_rd_atomic, 2);
            qp.modify(&Attr::default(), Mask::NONE, target)?;
            assert_eq!(qp.state(), State::Reset);
            assert_eq!(qp.requester.state(), State::Reset);
            assert_eq!(taken(qp), Log::new());
            Ok(())
        })
    }

    #[test]
    fn a_draining_qp_accepts_only_error_and_reset() -> Result {
        for end in [State::Error, State::Reset] {
            with(|qp, target| {
                let to = |state| Attr {
                    state,
                    en_sqd_async_notify: true,
                    ..Attr::default()
                };
                let sqd = to(State::Sqd);
                assert!(qp.requester.poll(0).is_some());
                qp.modify(&sqd, Mask::EN_SQD_ASYNC_NOTIFY, target)?;
                // Not even without attributes, and for neither half.
                for (attr, mask) in [
                    (sqd, Mask::NONE),
                    (sqd, Mask::MIN_RNR_TIMER),
                    (to(State::Rts), Mask::NONE),
                ] {
                    assert_eq!(qp.modify(&attr, mask, target), Err(Error::Invalid));
                    assert_eq!(qp.requester.check(&attr, mask), Err(Error::Invalid));
                    assert_eq!(qp.state(), State::Sqd);
                    assert_eq!(qp.requester.state(), State::Sqd);
                }
                qp.modify(&to(end), Mask::NONE, target)?;
                // The queue was not drained, it was flushed.
                assert!(!qp.requester.take_drained());
                Ok(())
            })?;
        }
        Ok(())
    }

    #[test]
    fn a_qp_is_used_again_after_reset() -> Result {
        with(|qp, target| {
            // A message under way in both directions, a gap, and a timer.
            assert!(qp.requester.poll(0).is_some());
            let first = packet(qp.responder.expected(), Headers::SendFirst, 256);
            qp.receive(0, &first, target);
            let mut later = first;
            later.bth.psn = first.bth.psn.add(7);
            qp.receive(0, &later, target);
            assert!(qp.deadline().is_some());
            target.taken();

            qp.modify(&Attr::default(), Mask::NONE, target)?;
            assert_eq!(target.taken(), Log::of(&[Call::Abort(None)]));
            assert_eq!(qp.deadline(), None);
            assert_eq!(taken(qp), Log::new());
            assert!(qp.requester.is_empty() && qp.requester.in_flight() == 0);
            assert_eq!(qp.requester.attr().retry_cnt, 0);
            assert_eq!(qp.responder.attr().dest_qpn, Qpn::default());
            // A QP in RESET ignores the packets of its last connection.
            let late = qp.receive(0, &later, target);
            assert_eq!(late, Event::Request(RequestResult::Dropped));

            for (attr, mask) in start_attr() {
                let attr = Attr {
                    sq_psn: Psn::new(77),
                    rq_psn: Psn::new(99),
                    ..attr
                };
                qp.modify(&attr, mask, target)?;
            }
            // Nothing of the first connection is answered or sent.
            assert_eq!(qp.responder.poll(0), None);
            assert_eq!(qp.requester.poll(0), None);
            qp.requester.post(&WorkRequest {
                wr_id: 5,
                op: Op::Send(SendEnd::Plain),
                len: 0,
                fence: false,
                solicited: false,
                signaled: true,
            })?;
            let sent = qp.requester.poll(0).map(|outgoing| outgoing.packet.bth.psn);
            assert_eq!(sent, Some(Psn::new(77)));
            let only = packet(Psn::new(99), Headers::SendOnly(SendEnd::Plain), 1);
            let event = qp.receive(0, &only, target);
            assert_eq!(event, Event::Request(RequestResult::Executed));
            let aeth = Aeth {
                syndrome: Syndrome::ACK,
                msn: Psn::new(1),
            };
            qp.receive(
                0,
                &packet(Psn::new(77), Headers::Acknowledge(aeth), 0),
                target,
            );
            assert_eq!(taken(qp), Log::of(&[(5, Status::Success)]));
            Ok(())
        })
    }
}
