// SPDX-License-Identifier: GPL-2.0
//! The states of a QP and the transitions between them.
//!
//! ```text
//!  RESET --> INIT --> RTR --> RTS <--> SQD          any but RESET --> ERR
//!                              ^                    any           --> RESET
//!                              '----- SQE  (UD: a send failed)
//! ```
//!
//! | state | send posts | receive posts | incoming requests | sends transmitted |
//! |---|---|---|---|---|
//! | RESET | refused | refused | dropped | no |
//! | INIT | refused | queued | dropped | no |
//! | RTR | refused | queued | executed | no |
//! | RTS | queued | queued | executed | yes |
//! | SQD | queued | queued | executed | those that have begun |
//! | SQE | flushed | queued | executed | no |
//! | ERR | flushed | flushed | dropped | no |
//!
//! Flushed means completed in error, each once and in order.
//!
//! A transition takes attributes. It requires some and allows others; with a required one missing,
//! or one that is not allowed, it fails with `Error::Invalid` and changes nothing ([`check`]). Only
//! a UD QP can be in state SQE: an RC QP whose send fails goes to ERR.
//!
//! # Draining
//!
//! A QP that enters SQD finishes the sends that have begun. The send queue is drained when all of
//! them have ended. Until then the QP can only go to ERR or RESET; attributes can change, and
//! sending can continue, when the queue is drained. In-tree rxe has the same rule. With
//! [`Mask::EN_SQD_ASYNC_NOTIFY`] the QP reports once that its send queue is drained.
//!
//! # Reset
//!
//! RESET is possible from every state. The QP has no attributes, no work requests and no timers
//! then, and is like a new one: only its number and its statistics remain.
//!
//! Source: InfiniBand specification, volume 1, section 10.3.1 and table 91 (modify queue pair);
//! ibv_modify_qp(3).

use super::opcode::Service;
use crate::error::{
    Error,
    Result, //
};

/// A state of a QP (`enum ibv_qp_state`).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
#[repr(u8)]
pub enum State {
    /// New or reset: queues are empty and no packet is handled.
    #[default]
    Reset = 0,
    /// Initialised: receives can be posted.
    Init = 1,
    /// Ready to receive.
    Rtr = 2,
    /// Ready to send.
    Rts = 3,
    /// Send queue drained, or being drained: no new send begins.
    Sqd = 4,
    /// Send queue error: a send of a UD QP failed.
    Sqe = 5,
    /// Error: all work requests are flushed.
    Error = 6,
}

/// The effect of posting a work request.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Posting {
    /// The post fails with `Error::Invalid`.
    Refused,
    /// The work request is queued.
    Queued,
    /// The work request is queued and completes in error.
    Flushed,
}

impl State {
    /// All states.
    pub const ALL: [Self; 7] = [
        Self::Reset,
        Self::Init,
        Self::Rtr,
        Self::Rts,
        Self::Sqd,
        Self::Sqe,
        Self::Error,
    ];

    /// Returns the effect of a post to the send queue.
    pub const fn post_send(self) -> Posting {
        match self {
            Self::Reset | Self::Init | Self::Rtr => Posting::Refused,
            Self::Rts | Self::Sqd => Posting::Queued,
            Self::Sqe | Self::Error => Posting::Flushed,
        }
    }

    /// Returns whether requests of the peer are executed. Otherwise they are dropped without an
    /// answer.
    pub const fn executes(self) -> bool {
        matches!(self, Self::Rtr | Self::Rts | Self::Sqd | Self::Sqe)
    }

    /// Returns whether sends that have begun continue, and responses are handled.
    pub const fn sends(self) -> bool {
        matches!(self, Self::Rts | Self::Sqd)
    }

    /// Returns whether new sends begin.
    pub const fn begins_sends(self) -> bool {
        matches!(self, Self::Rts)
    }
}

/// A set of attributes of a QP, one bit each.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub struct Mask(u32);

macro_rules! bits {
    ($( $(#[$doc:meta])* $name:ident = $bit:literal; )*) => {
        impl Mask {
            $( $(#[$doc])* pub const $name: Self = Self(1 << $bit); )*

            /// All attributes that a QP has.
            const EVERY: Self = Self::all(&[$( Self::$name ),*]);
        }
    };
}

bits! {
    /// The state in which the caller expects the QP to be.
    CUR_STATE = 1;
    /// Report the event that the send queue is drained.
    EN_SQD_ASYNC_NOTIFY = 2;
    /// The operations that the peer may use.
    ACCESS_FLAGS = 3;
    /// The index of the partition.
    PKEY_INDEX = 4;
    /// The port.
    PORT = 5;
    /// The Q key.
    QKEY = 6;
    /// The address of the peer.
    AV = 7;
    /// The path MTU.
    PATH_MTU = 8;
    /// The local ACK timeout.
    TIMEOUT = 9;
    /// The retry count.
    RETRY_CNT = 10;
    /// The retry count after RNR NAKs.
    RNR_RETRY = 11;
    /// The first PSN that the responder expects.
    RQ_PSN = 12;
    /// The number of READs and atomics that may be outstanding.
    MAX_QP_RD_ATOMIC = 13;
    /// The timer in RNR NAKs.
    MIN_RNR_TIMER = 15;
    /// The first PSN that the requester sends.
    SQ_PSN = 16;
    /// The number of READs and atomics that the peer may have outstanding.
    MAX_DEST_RD_ATOMIC = 17;
    /// The QP number of the peer.
    DEST_QPN = 20;
}

impl Mask {
    /// No attribute.
    pub const NONE: Self = Self(0);

    /// Returns the set with the bits of `enum ibv_qp_attr_mask`, without that of the state: every
    /// transition has a state. `None` if a QP does not have one of the attributes: there are no
    /// alternate paths and no path migration, and the capacities of a QP are fixed.
    pub const fn from_bits(bits: u32) -> Option<Self> {
        let mask = Self(bits);
        if Self::EVERY.contains(mask) {
            Some(mask)
        } else {
            None
        }
    }

    /// Returns the union of both sets.
    #[must_use]
    pub const fn with(self, other: Self) -> Self {
        Self(self.0 | other.0)
    }

    /// Returns whether all attributes of `other` are in this set.
    pub const fn contains(self, other: Self) -> bool {
        other.0 & !self.0 == 0
    }

    /// The attributes that an RC QP requires for the transition from RESET to INIT.
    pub const RC_TO_INIT: Self = Self::all(&[Self::PKEY_INDEX, Self::PORT, Self::ACCESS_FLAGS]);

    /// The attributes that an RC QP requires for the transition from INIT to RTR.
    pub const RC_TO_RTR: Self = Self::all(&[
        Self::AV,
        Self::PATH_MTU,
        Self::DEST_QPN,
        Self::RQ_PSN,
        Self::MAX_DEST_RD_ATOMIC,
        Self::MIN_RNR_TIMER,
    ]);

    /// The attributes that an RC QP requires for the transition from RTR to RTS.
    pub const RC_TO_RTS: Self = Self::all(&[
        Self::TIMEOUT,
        Self::RETRY_CNT,
        Self::RNR_RETRY,
        Self::SQ_PSN,
        Self::MAX_QP_RD_ATOMIC,
    ]);

    /// Returns the union of several sets.
    const fn all(mut sets: &[Self]) -> Self {
        let mut all = Self::NONE;
        while let [first, rest @ ..] = sets {
            all = all.with(*first);
            sets = rest;
        }
        all
    }
}

/// Returns the attributes that a transition requires, and those that it allows in addition. `None`
/// if there is no such transition.
pub const fn attributes(service: Service, from: State, to: State) -> Option<(Mask, Mask)> {
    use State::*;
    let rc = matches!(service, Service::Rc);
    // The attributes for initialising a QP of each service.
    let initial = if rc {
        Mask::RC_TO_INIT
    } else {
        Mask::all(&[Mask::PKEY_INDEX, Mask::PORT, Mask::QKEY])
    };
    // The attributes that may change in the operational states and between them.
    let running = if rc {
        Mask::all(&[Mask::CUR_STATE, Mask::ACCESS_FLAGS, Mask::MIN_RNR_TIMER])
    } else {
        Mask::all(&[Mask::CUR_STATE, Mask::QKEY])
    };
    Some(match (from, to) {
        (_, Reset) => (Mask::NONE, Mask::NONE),
        (Init | Rtr | Rts | Sqd | Sqe | Error, Error) => (Mask::NONE, Mask::NONE),
        (Reset, Init) => (initial, Mask::NONE),
        (Init, Init) => (Mask::NONE, initial),
        (Init, Rtr) if rc => (
            Mask::RC_TO_RTR,
            Mask::all(&[Mask::ACCESS_FLAGS, Mask::PKEY_INDEX]),
        ),
        (Init, Rtr) => (Mask::NONE, Mask::all(&[Mask::PKEY_INDEX, Mask::QKEY])),
        (Rtr, Rts) if rc => (Mask::RC_TO_RTS, running),
        (Rtr, Rts) => (Mask::SQ_PSN, running),
        (Rts | Sqd, Rts) => (Mask::NONE, running),
        (Sqe, Rts) if !rc => (Mask::NONE, running),
        (Rts, Sqd) => (Mask::NONE, Mask::EN_SQD_ASYNC_NOTIFY),
        (Sqd, Sqd) if rc => (
            Mask::NONE,
            Mask::all(&[
                Mask::PORT,
                Mask::AV,
                Mask::TIMEOUT,
                Mask::RETRY_CNT,
                Mask::RNR_RETRY,
                Mask::MAX_QP_RD_ATOMIC,
                Mask::MAX_DEST_RD_ATOMIC,
                Mask::ACCESS_FLAGS,
                Mask::PKEY_INDEX,
                Mask::MIN_RNR_TIMER,
            ]),
        ),
        (Sqd, Sqd) => (Mask::NONE, Mask::all(&[Mask::PKEY_INDEX, Mask::QKEY])),
        _ => return None,
    })
}

/// Checks whether a QP in state `from` may go to `to` with the attributes `given`.
///
/// # Errors
///
/// `Error::Invalid`: there is no such transition, a required attribute is missing, or an attribute
/// is given that the transition does not allow.
pub fn check(service: Service, from: State, to: State, given: Mask) -> Result {
    let (required, allowed) = attributes(service, from, to).ok_or(Error::Invalid)?;
    if !given.contains(required) || !required.with(allowed).contains(given) {
        return Err(Error::Invalid);
    }
    Ok(())
}

#[cfg(any(test, kfi_kunit))]
#[cfg_attr(kfi_kunit, kernel::prelude::kunit_tests(kfi_roce_state))]
mod tests {
    use super::{
        State::*,
        *, //
    };
    use crate::error::Error;

    const BITS: [Mask; 17] = [
        Mask::CUR_STATE,
        Mask::EN_SQD_ASYNC_NOTIFY,
        Mask::ACCESS_FLAGS,
        Mask::PKEY_INDEX,
        Mask::PORT,
        Mask::QKEY,
        Mask::AV,
        Mask::PATH_MTU,
        Mask::TIMEOUT,
        Mask::RETRY_CNT,
        Mask::RNR_RETRY,
        Mask::RQ_PSN,
        Mask::MAX_QP_RD_ATOMIC,
        Mask::MIN_RNR_TIMER,
        Mask::SQ_PSN,
        Mask::MAX_DEST_RD_ATOMIC,
        Mask::DEST_QPN,
    ];

    #[test]
    fn each_state_has_its_successors() {
        // One row for each state in order, with an `x` for each state that may follow.
        for (service, table) in [
            (
                Service::Rc,
                [
                    "xx.....", "xxx...x", "x..x..x", "x..xx.x", "x..xx.x", "x.....x", "x.....x",
                ],
            ),
            (
                Service::Ud,
                [
                    "xx.....", "xxx...x", "x..x..x", "x..xx.x", "x..xx.x", "x..x..x", "x.....x",
                ],
            ),
        ] {
            for (from, row) in State::ALL.iter().zip(table) {
                for (to, mark) in State::ALL.iter().zip(row.bytes()) {
                    let valid = attributes(service, *from, *to).is_some();
                    assert_eq!(valid, mark == b'x');
                }
            }
        }
    }

    #[test]
    fn one_attribute_too_few_or_too_many_is_refused() {
        for service in [Service::Rc, Service::Ud] {
            for (from, to) in State::ALL
                .iter()
                .flat_map(|from| State::ALL.iter().map(move |to| (*from, *to)))
            {
                let Some((required, allowed)) = attributes(service, from, to) else {
                    assert_eq!(check(service, from, to, Mask::NONE), Err(Error::Invalid));
                    continue;
                };
                let all = required.with(allowed);
                assert_eq!(check(service, from, to, required), Ok(()));
                assert_eq!(check(service, from, to, all), Ok(()));
                for bit in BITS {
                    let without = Mask(all.0 & !bit.0);
                    let ok = !required.contains(bit);
                    assert_eq!(check(service, from, to, without).is_ok(), ok);
                    let ok = all.contains(bit);
                    assert_eq!(check(service, from, to, all.with(bit)).is_ok(), ok);
                }
            }
        }
    }

    /// The table of the specification in the bits of `enum ibv_qp_attr_mask`: the transition, the
    /// required and the allowed attributes, without those of alternate paths.
    #[test]
    fn the_table_of_the_specification() {
        const PKEY: u32 = 1 << 4;
        const PORT: u32 = 1 << 5;
        const QKEY: u32 = 1 << 6;
        const ACCESS: u32 = 1 << 3;
        const CUR: u32 = 1 << 1;
        const RNR_TIMER: u32 = 1 << 15;
        const RC: [(State, State, u32, u32); 11] = [
            (Reset, Init, PKEY | PORT | ACCESS, 0),
            (Init, Init, 0, PKEY | PORT | ACCESS),
            // AV, PATH_MTU, DEST_QPN, RQ_PSN, MAX_DEST_RD_ATOMIC, MIN_RNR_TIMER.
            (Init, Rtr, 0x0012_9180, PKEY | ACCESS),
            // TIMEOUT, RETRY_CNT, RNR_RETRY, SQ_PSN, MAX_QP_RD_ATOMIC.
            (Rtr, Rts, 0x0001_2e00, CUR | ACCESS | RNR_TIMER),
            (Rts, Rts, 0, CUR | ACCESS | RNR_TIMER),
            // EN_SQD_ASYNC_NOTIFY.
            (Rts, Sqd, 0, 1 << 2),
            // PORT, AV, TIMEOUT, RETRY_CNT, RNR_RETRY, both MAX_RD_ATOMIC, ACCESS, PKEY, the timer.
            (Sqd, Sqd, 0, 0x0002_aeb8),
            (Sqd, Rts, 0, CUR | ACCESS | RNR_TIMER),
            (Init, Error, 0, 0),
            (Sqd, Error, 0, 0),
            (Error, Reset, 0, 0),
        ];
        const UD: [(State, State, u32, u32); 10] = [
            (Reset, Init, PKEY | PORT | QKEY, 0),
            (Init, Init, 0, PKEY | PORT | QKEY),
            (Init, Rtr, 0, PKEY | QKEY),
            (Rtr, Rts, 1 << 16, CUR | QKEY),
            (Rts, Rts, 0, CUR | QKEY),
            (Rts, Sqd, 0, 1 << 2),
            (Sqd, Sqd, 0, PKEY | QKEY),
            (Sqd, Rts, 0, CUR | QKEY),
            (Sqe, Rts, 0, CUR | QKEY),
            (Sqe, Error, 0, 0),
        ];
        for (service, table) in [(Service::Rc, &RC[..]), (Service::Ud, &UD[..])] {
            for (from, to, required, allowed) in table {
                let expected = Some((Mask(*required), Mask(*allowed)));
                assert_eq!(attributes(service, *from, *to), expected);
            }
        }
    }

    #[test]
    fn a_mask_has_only_attributes_of_a_qp() {
        for bit in 0..32 {
            let one = 1 << bit;
            let known = BITS.contains(&Mask(one));
            assert_eq!(Mask::from_bits(one), known.then_some(Mask(one)));
        }
        assert_eq!(Mask::from_bits(0), Some(Mask::NONE));
        let init = 1 << 3 | 1 << 4 | 1 << 5;
        assert_eq!(Mask::from_bits(init), Some(Mask::RC_TO_INIT));
        // The alternate path cannot be given with valid attributes either.
        assert_eq!(Mask::from_bits(init | 1 << 14), None);
    }

    #[test]
    fn the_attributes_that_a_connection_requires() {
        let rtr = Mask::all(&[
            Mask::AV,
            Mask::PATH_MTU,
            Mask::DEST_QPN,
            Mask::RQ_PSN,
            Mask::MAX_DEST_RD_ATOMIC,
            Mask::MIN_RNR_TIMER,
        ]);
        assert_eq!(check(Service::Rc, Init, Rtr, rtr), Ok(()));
        assert_eq!(check(Service::Ud, Init, Rtr, Mask::NONE), Ok(()));
        assert_eq!(check(Service::Ud, Rtr, Rts, Mask::SQ_PSN), Ok(()));
        assert!(check(Service::Ud, Init, Rtr, rtr).is_err());
        assert!(check(Service::Rc, Rtr, Rts, Mask::SQ_PSN).is_err());
        assert_eq!(check(Service::Rc, Rts, Error, Mask::NONE), Ok(()));
    }

    #[test]
    fn the_work_that_each_state_permits() {
        use Posting::*;
        for (state, send, executes, sends, begins) in [
            (Reset, Refused, false, false, false),
            (Init, Refused, false, false, false),
            (Rtr, Refused, true, false, false),
            (Rts, Queued, true, true, true),
            (Sqd, Queued, true, true, false),
            (Sqe, Flushed, true, false, false),
            (Error, Flushed, false, false, false),
        ] {
            assert_eq!(state.post_send(), send);
            assert_eq!(state.executes(), executes);
            assert_eq!(state.sends(), sends);
            assert_eq!(state.begins_sends(), begins);
        }
    }
}
