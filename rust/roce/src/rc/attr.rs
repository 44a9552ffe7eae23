// SPDX-License-Identifier: GPL-2.0
//! The attributes of an RC QP.
//!
//! A change of state ([`Qp::modify`](super::Qp::modify)) takes an [`Attr`] and a [`Mask`] of the
//! attributes that are valid in it. [`state::check`] checks which attributes a transition requires
//! and allows; [`Attr::check`] checks their values.
//!
//! Source: InfiniBand specification, volume 1, section 11.2.5.2; ibv_modify_qp(3).

use super::super::{
    headers::{
        Qpn,
        RnrTimer, //
    },
    mtu::PathMtu,
    opcode::Service,
    psn::Psn,
    state::{
        self,
        Mask,
        State, //
    },
};
use crate::error::{
    Error,
    Result, //
};

/// The RNR retry count that means retrying without limit.
pub const RNR_FOR_EVER: u8 = 7;

/// The largest `retry_cnt` and `rnr_retry`, which have three bits.
pub const MAX_RETRY: u8 = 7;

/// The local ACK timeout, as a code of 5 bits: 4.096 us * 2^code; 0 means none.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub struct AckTimeout(u8);

impl AckTimeout {
    /// No timeout: the requester waits without limit.
    pub const NONE: Self = Self(0);

    /// Returns the timeout with this code, below 32.
    pub const fn from_code(code: u8) -> Option<Self> {
        if code < 32 {
            Some(Self(code))
        } else {
            None
        }
    }

    /// The longest timeout that a peer can choose for this end: 4.3 s, so that seven retries end
    /// after about half a minute. Linux's RDMA CM asks for 2.1 s or less on a local network.
    pub const PEER_MAX: Self = Self(20);

    /// Returns the timeout for the code that the peer has asked for: at most [`Self::PEER_MAX`],
    /// also if the peer asks for none.
    pub const fn from_peer(code: u8) -> Self {
        match code {
            0 | 21.. => Self::PEER_MAX,
            code => Self(code),
        }
    }

    /// Returns the code.
    pub const fn code(self) -> u8 {
        self.0
    }

    /// Returns the timeout in nanoseconds, 8.192 us to 2.4 hours; `None` if there is none.
    pub const fn ns(self) -> Option<u64> {
        match self.0 {
            0 => None,
            code => Some(4096 << code),
        }
    }
}

/// The operations that a peer may use besides SEND.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub struct Access {
    /// RDMA WRITE.
    pub write: bool,
    /// RDMA READ.
    pub read: bool,
    /// Atomic operations.
    pub atomic: bool,
}

/// Attributes of a QP.
#[derive(Clone, Copy, Debug)]
pub struct Attr {
    /// The new state.
    pub state: State,
    /// [`Mask::CUR_STATE`].
    pub cur_state: State,
    /// [`Mask::EN_SQD_ASYNC_NOTIFY`]: report once that the send queue is drained
    /// ([`Requester::take_drained`](super::Requester::take_drained)).
    pub en_sqd_async_notify: bool,
    /// [`Mask::ACCESS_FLAGS`].
    pub access: Access,
    /// [`Mask::PKEY_INDEX`]; there is one partition, at index 0.
    pub pkey_index: u16,
    /// [`Mask::PORT`]; there is one, number 1.
    pub port: u8,
    /// [`Mask::PATH_MTU`].
    pub path_mtu: PathMtu,
    /// [`Mask::DEST_QPN`].
    pub dest_qpn: Qpn,
    /// [`Mask::RQ_PSN`].
    pub rq_psn: Psn,
    /// [`Mask::SQ_PSN`].
    pub sq_psn: Psn,
    /// [`Mask::MAX_QP_RD_ATOMIC`]: the number of READs and atomics outstanding at the peer. 0: none
    /// may be posted.
    pub max_rd_atomic: u8,
    /// [`Mask::MAX_DEST_RD_ATOMIC`]: the number of READs and atomics of the peer outstanding here.
    pub max_dest_rd_atomic: u8,
    /// [`Mask::MIN_RNR_TIMER`].
    pub min_rnr_timer: RnrTimer,
    /// [`Mask::TIMEOUT`].
    pub timeout: AckTimeout,
    /// [`Mask::RETRY_CNT`]: how often the same packet is retransmitted after a timeout or a NAK for
    /// a wrong PSN: 0 to 7.
    pub retry_cnt: u8,
    /// [`Mask::RNR_RETRY`]: how often a packet is retransmitted after RNR NAKs: 0 to 6, or 7 for
    /// without limit.
    pub rnr_retry: u8,
}

impl Default for Attr {
    fn default() -> Self {
        Self {
            state: State::Reset,
            cur_state: State::Reset,
            en_sqd_async_notify: false,
            access: Access::default(),
            pkey_index: 0,
            port: 1,
            path_mtu: PathMtu::Mtu1024,
            dest_qpn: Qpn::default(),
            rq_psn: Psn::default(),
            sq_psn: Psn::default(),
            max_rd_atomic: 0,
            max_dest_rd_atomic: 0,
            min_rnr_timer: RnrTimer::at_least(0),
            timeout: AckTimeout::NONE,
            retry_cnt: 0,
            rnr_retry: 0,
        }
    }
}

impl Attr {
    /// Checks whether a QP in state `from` can accept the attributes in `mask`. `rd_atomic` is its
    /// room for outstanding READs and atomics, `dest_rd_atomic` its room for those to be replayed.
    ///
    /// # Errors
    ///
    /// `Error::Invalid`: [`state::check`] refuses the transition; `cur_state` is not the current
    /// state; the port or partition does not exist; a retry count is above 7; more READs and
    /// atomics are requested than there is room for.
    pub fn check(
        &self,
        from: State,
        mask: Mask,
        rd_atomic: usize,
        dest_rd_atomic: usize,
    ) -> Result {
        state::check(Service::Rc, from, self.state, mask)?;
        let bad = |bit: Mask, bad: bool| mask.contains(bit) && bad;
        let count = |count: u8| usize::from(count);
        if bad(Mask::CUR_STATE, self.cur_state != from)
            || bad(Mask::PORT, self.port != 1)
            || bad(Mask::PKEY_INDEX, self.pkey_index != 0)
            || bad(Mask::RETRY_CNT, self.retry_cnt > MAX_RETRY)
            || bad(Mask::RNR_RETRY, self.rnr_retry > MAX_RETRY)
            || bad(
                Mask::MAX_QP_RD_ATOMIC,
                count(self.max_rd_atomic) > rd_atomic,
            )
            || bad(
                Mask::MAX_DEST_RD_ATOMIC,
                count(self.max_dest_rd_atomic) > dest_rd_atomic,
            )
        {
            return Err(Error::Invalid);
        }
        Ok(())
    }

    /// Copies the attributes in `mask`, and the state, from `new`.
    pub(super) fn take(&mut self, new: &Self, mask: Mask) {
        self.state = new.state;
        macro_rules! take {
            ($($bit:ident $field:ident),* $(,)?) => {
                $( if mask.contains(Mask::$bit) {
                    self.$field = new.$field;
                } )*
            };
        }
        take!(
            ACCESS_FLAGS access,
            PATH_MTU path_mtu,
            DEST_QPN dest_qpn,
            RQ_PSN rq_psn,
            SQ_PSN sq_psn,
            MAX_QP_RD_ATOMIC max_rd_atomic,
            MAX_DEST_RD_ATOMIC max_dest_rd_atomic,
            MIN_RNR_TIMER min_rnr_timer,
            TIMEOUT timeout,
            RETRY_CNT retry_cnt,
            RNR_RETRY rnr_retry,
        );
    }
}

#[cfg(any(test, kfi_kunit))]
#[cfg_attr(kfi_kunit, kernel::prelude::kunit_tests(kfi_roce_rc_attr))]
mod tests {
    use super::*;

    #[test]
    fn timeout_codes_convert_to_nanoseconds() {
        assert_eq!(AckTimeout::NONE.ns(), None);
        for (code, ns) in [(1, 8_192), (14, 67_108_864), (31, 4096 << 31)] {
            let timeout = AckTimeout::from_code(code);
            assert_eq!(timeout.map(AckTimeout::code), Some(code));
            assert_eq!(timeout.and_then(AckTimeout::ns), Some(ns));
        }
        assert_eq!(AckTimeout::from_code(32), None);
        assert_eq!(AckTimeout::from_code(255), None);
    }

    #[test]
    fn the_ack_timeout_of_a_peer_is_limited() {
        for code in 0..=u8::MAX {
            let timeout = AckTimeout::from_peer(code);
            assert!(timeout.ns().is_some_and(|ns| ns <= 4_300_000_000));
            if (1..=20).contains(&code) {
                assert_eq!(timeout.code(), code);
            }
        }
    }

    #[test]
    fn invalid_values_are_refused() {
        let check = |from, mask, attr: Attr| attr.check(from, mask, 4, 2);
        let init = Mask::RC_TO_INIT;
        let to = |state| Attr {
            state,
            ..Attr::default()
        };
        let good = to(State::Init);
        assert_eq!(check(State::Reset, init, good), Ok(()));
        for bad in [
            Attr { port: 0, ..good },
            Attr { port: 2, ..good },
            Attr {
                pkey_index: 1,
                ..good
            },
        ] {
            assert_eq!(check(State::Reset, init, bad), Err(Error::Invalid));
        }
        assert_eq!(check(State::Rtr, init, good), Err(Error::Invalid));

        let rtr = Mask::RC_TO_RTR;
        for (max_dest_rd_atomic, ok) in [(0, true), (2, true), (3, false), (255, false)] {
            let attr = Attr {
                max_dest_rd_atomic,
                ..to(State::Rtr)
            };
            assert_eq!(check(State::Init, rtr, attr).is_ok(), ok);
        }

        let rts = Mask::RC_TO_RTS.with(Mask::CUR_STATE);
        let good = Attr {
            cur_state: State::Rtr,
            retry_cnt: 7,
            rnr_retry: 7,
            max_rd_atomic: 4,
            ..to(State::Rts)
        };
        assert_eq!(check(State::Rtr, rts, good), Ok(()));
        for bad in [
            Attr {
                retry_cnt: 8,
                ..good
            },
            Attr {
                rnr_retry: 8,
                ..good
            },
            Attr {
                max_rd_atomic: 5,
                ..good
            },
            Attr {
                cur_state: State::Rts,
                ..good
            },
        ] {
            assert_eq!(check(State::Rtr, rts, bad), Err(Error::Invalid));
        }
        // Attributes that are not in the mask are not checked.
        let odd = Attr {
            port: 9,
            retry_cnt: 9,
            ..to(State::Error)
        };
        assert_eq!(check(State::Rts, Mask::NONE, odd), Ok(()));
    }

    #[test]
    fn only_attributes_in_the_mask_are_copied() {
        let new = Attr {
            state: State::Rts,
            retry_cnt: 3,
            rnr_retry: 4,
            access: Access {
                read: true,
                ..Access::default()
            },
            ..Attr::default()
        };
        let mut attr = Attr::default();
        attr.take(&new, Mask::RNR_RETRY);
        assert_eq!(attr.state, State::Rts);
        assert_eq!((attr.retry_cnt, attr.rnr_retry), (0, 4));
        assert_eq!(attr.access, Access::default());
        attr.take(&new, Mask::ACCESS_FLAGS.with(Mask::RETRY_CNT));
        assert_eq!((attr.retry_cnt, attr.rnr_retry), (3, 4));
        assert!(attr.access.read);
    }
}
