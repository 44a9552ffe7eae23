// SPDX-License-Identifier: GPL-2.0
//! Unreliable datagrams (UD): each message is one packet, to any QP with the same Q key.
//!
//! Datagrams are not acknowledged. A datagram that cannot be received is dropped without a report
//! to the sender.
//!
//! # The Q key
//!
//! A QP receives only datagrams that carry its Q key. A Q key with the highest bit set is
//! controlled ([`is_controlled`]): only privileged users may set it on a QP, which the caller of
//! [`Qp::modify`] checks. If a work request names a controlled Q key, the QP sends its own Q key
//! instead, so that an unprivileged user cannot use a controlled one.
//!
//! # The GRH
//!
//! The first [`GRH_LEN`] bytes of a receive are reserved for the network header: the received IPv6
//! header ([`grh_ipv6`]), or 20 zeros and the IPv4 header ([`grh_ipv4`]). The payload follows, and
//! the length of a completion includes these bytes.
//!
//! # Lengths
//!
//! - A message longer than the path MTU cannot be sent. The specification completes it as if it
//!   were sent, without a packet (C10-93.1.1); a caller that can refuse the post refuses it.
//! - A message longer than its receive completes that receive with a local length error, and the
//!   part that fits is placed. The QP continues to work, because a datagram of an arbitrary sender
//!   must not end it.
//!
//! Source: InfiniBand specification, volume 1, sections 9.3.4, 9.8.3, 10.2.5, 11.4.2.1; annex A17.

use super::{
    headers::{
        Bth,
        Deth,
        Headers,
        Qpn, //
    },
    icrc::{
        IPV4_LEN,
        IPV6_LEN, //
    },
    mtu::PathMtu,
    opcode::Service,
    packet::Packet,
    psn::Psn,
    state::{
        self,
        Mask,
        Posting,
        State, //
    },
};
use crate::error::{
    Error,
    Result as Answer, //
};
use core::ops::Range;

/// The Q key of QP 1.
pub const GSI_QKEY: u32 = 0x8001_0000;

/// The length in bytes of the GRH part of a receive.
pub const GRH_LEN: usize = 40;

/// Returns whether only privileged users may set this Q key on a QP.
pub const fn is_controlled(qkey: u32) -> bool {
    qkey & 1 << 31 != 0
}

/// Returns the GRH part of a receive for a datagram with this IPv4 header.
pub fn grh_ipv4(ip: &[u8; IPV4_LEN]) -> [u8; GRH_LEN] {
    let mut grh = [0; GRH_LEN];
    if let Some(place) = grh.last_chunk_mut() {
        *place = *ip;
    }
    grh
}

/// Returns the GRH part of a receive for a datagram with this IPv6 header.
pub const fn grh_ipv6(ip: &[u8; IPV6_LEN]) -> [u8; GRH_LEN] {
    *ip
}

/// Attributes of a UD QP.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Attr {
    /// The new state.
    pub state: State,
    /// [`Mask::CUR_STATE`].
    pub cur_state: State,
    /// [`Mask::EN_SQD_ASYNC_NOTIFY`]: report once that the send queue is drained
    /// ([`Qp::take_drained`]).
    pub en_sqd_async_notify: bool,
    /// [`Mask::PKEY_INDEX`]; there is one partition, at index 0.
    pub pkey_index: u16,
    /// [`Mask::PORT`]; there is one, number 1.
    pub port: u8,
    /// [`Mask::QKEY`].
    pub qkey: u32,
    /// [`Mask::SQ_PSN`].
    pub sq_psn: Psn,
}

impl Default for Attr {
    fn default() -> Self {
        Self {
            state: State::Reset,
            cur_state: State::Reset,
            en_sqd_async_notify: false,
            pkey_index: 0,
            port: 1,
            qkey: 0,
            sq_psn: Psn::default(),
        }
    }
}

/// The parameters of a send.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Send {
    /// The destination QP.
    pub dest_qp: Qpn,
    /// The Q key. The QP's own is used if this is a controlled one.
    pub qkey: u32,
    /// The length of the payload in bytes.
    pub len: usize,
    /// Immediate data.
    pub imm: Option<u32>,
    /// Whether the completion at the receiver wakes waiters for solicited completions.
    pub solicited: bool,
}

/// The reason for which no packet is sent.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Unsent {
    /// The state does not allow posting (`Error::Invalid`).
    Refused,
    /// The QP is in SQD: the work request waits until the QP is in RTS again.
    Draining,
    /// The QP is in SQE or ERR: the work request completes as flushed.
    Flushed,
    /// The message is longer than the path MTU.
    TooLong,
}

crate::counted_reasons! {
    /// The reason for which a datagram is dropped.
    Dropped {
        /// The packet is not a UD packet.
        Service = "service",
        /// The state of the QP does not receive.
        State = "state",
        /// The Q key is not the QP's. The caller counts a Q key violation.
        Qkey = "qkey",
        /// The payload is longer than the largest path MTU.
        Length = "length",
        /// No receive is posted.
        NoReceive = "no_receive",
    }
}

/// A datagram that consumes the next receive.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Received {
    /// The source QP.
    pub src_qp: Qpn,
    /// Immediate data.
    pub imm: Option<u32>,
    /// Whether to wake waiters for solicited completions.
    pub solicited: bool,
    /// The range of the payload in the UDP datagram.
    pub payload: Range<usize>,
    /// Whether GRH and payload fit into the receive. If not, the part that fits is placed, and the
    /// receive completes with a local length error.
    pub fits: bool,
}

impl Received {
    /// Returns the length of the completion: GRH and payload.
    pub fn len(&self) -> usize {
        GRH_LEN.saturating_add(self.payload.len())
    }

    /// Returns false: there is always a GRH.
    pub const fn is_empty(&self) -> bool {
        false
    }
}

/// A UD QP.
#[derive(Clone, Debug)]
pub struct Qp {
    qpn: Qpn,
    state: State,
    qkey: u32,
    psn: Psn,
    /// Whether to report that the send queue is drained. False except in SQD.
    notify: bool,
}

impl Qp {
    /// Makes a QP in state RESET.
    pub const fn new(qpn: Qpn) -> Self {
        Self {
            qpn,
            state: State::Reset,
            qkey: 0,
            psn: Psn::new(0),
            notify: false,
        }
    }

    /// Makes QP 1 in state RTS, with `psn` as its first PSN.
    pub const fn gsi(psn: Psn) -> Self {
        Self {
            qpn: Qpn::GSI,
            state: State::Rts,
            qkey: GSI_QKEY,
            psn,
            notify: false,
        }
    }

    /// Returns its number.
    pub const fn qpn(&self) -> Qpn {
        self.qpn
    }

    /// Returns its state.
    pub const fn state(&self) -> State {
        self.state
    }

    /// Returns its Q key.
    pub const fn qkey(&self) -> u32 {
        self.qkey
    }

    /// Moves the QP to state `attr.state` and sets the attributes in `mask`.
    ///
    /// # Errors
    ///
    /// `Error::Invalid`: [`state::check`] refuses the transition; `cur_state` is not the current
    /// state; the port or partition does not exist. The QP is unchanged then.
    pub fn modify(&mut self, attr: &Attr, mask: Mask) -> Answer {
        state::check(Service::Ud, self.state, attr.state, mask)?;
        let bad = |bit: Mask, bad: bool| mask.contains(bit) && bad;
        if bad(Mask::CUR_STATE, attr.cur_state != self.state)
            || bad(Mask::PORT, attr.port != 1)
            || bad(Mask::PKEY_INDEX, attr.pkey_index != 0)
        {
            return Err(Error::Invalid);
        }
        if attr.state == State::Reset {
            *self = Self::new(self.qpn);
            return Ok(());
        }
        self.state = attr.state;
        self.notify &= attr.state == State::Sqd;
        if mask.contains(Mask::EN_SQD_ASYNC_NOTIFY) {
            self.notify = attr.en_sqd_async_notify;
        }
        if mask.contains(Mask::QKEY) {
            self.qkey = attr.qkey;
        }
        if mask.contains(Mask::SQ_PSN) {
            self.psn = attr.sq_psn;
        }
        Ok(())
    }

    /// Returns true once in state SQD, if the transition to SQD requested that
    /// ([`Attr::en_sqd_async_notify`]). A send of a datagram ends when its packet is made, so the
    /// send queue is always drained.
    pub fn take_drained(&mut self) -> bool {
        core::mem::replace(&mut self.notify, false)
    }

    /// Moves the QP to SQE because a send could not be executed: its memory was not accessible.
    /// Receives continue.
    pub fn send_failed(&mut self) {
        if self.state.sends() {
            self.state = State::Sqe;
            self.notify = false;
        }
    }

    /// Makes the packet for a message on a path with this MTU, and uses up a PSN for it.
    ///
    /// # Errors
    ///
    /// See [`Unsent`].
    pub fn send(&mut self, send: &Send, mtu: PathMtu) -> Result<Packet, Unsent> {
        match self.state.post_send() {
            Posting::Refused => return Err(Unsent::Refused),
            Posting::Flushed => return Err(Unsent::Flushed),
            Posting::Queued if !self.state.begins_sends() => return Err(Unsent::Draining),
            Posting::Queued => {}
        }
        if send.len > mtu.bytes() as usize {
            return Err(Unsent::TooLong);
        }
        let qkey = if is_controlled(send.qkey) {
            self.qkey
        } else {
            send.qkey
        };
        let src_qp = self.qpn;
        let bth = Bth {
            solicited: send.solicited,
            ..Bth::new(send.dest_qp, self.psn)
        };
        self.psn = self.psn.next();
        let headers = Headers::Datagram(Deth { qkey, src_qp }, send.imm);
        Ok(Packet::new(bth, headers, send.len))
    }

    /// Checks a packet to this QP. `room` is the length of the next receive, if one is posted. On
    /// success the caller consumes that receive.
    ///
    /// # Errors
    ///
    /// See [`Dropped`].
    pub fn receive(&self, packet: &Packet, room: Option<usize>) -> Result<Received, Dropped> {
        let Headers::Datagram(deth, imm) = packet.headers() else {
            return Err(Dropped::Service);
        };
        if !self.state.executes() {
            return Err(Dropped::State);
        }
        if deth.qkey != self.qkey {
            return Err(Dropped::Qkey);
        }
        if packet.payload_len() > PathMtu::Mtu4096.bytes() as usize {
            return Err(Dropped::Length);
        }
        let room = room.ok_or(Dropped::NoReceive)?;
        let mut received = Received {
            src_qp: deth.src_qp,
            imm,
            solicited: packet.bth.solicited,
            payload: packet.payload(),
            fits: true,
        };
        received.fits = received.len() <= room;
        Ok(received)
    }
}

#[cfg(any(test, kfi_kunit))]
#[cfg_attr(kfi_kunit, kernel::prelude::kunit_tests(kfi_roce_ud))]
mod tests {
    use super::*;

    const QKEY: u32 = 0x1234_5678;
    const MTU: PathMtu = PathMtu::Mtu1024;
    const SEND: Send = Send {
        dest_qp: Qpn::new(0x22),
        qkey: QKEY,
        len: 100,
        imm: None,
        solicited: false,
    };

    /// Makes a QP in `state` with PSN 0xffffff as its first PSN.
    fn qp(number: u32, state: State) -> Qp {
        let mut qp = Qp::new(Qpn::new(number));
        let attr = Attr {
            qkey: QKEY,
            sq_psn: Psn::new(Psn::MASK),
            ..Attr::default()
        };
        let init = Mask::PKEY_INDEX.with(Mask::PORT).with(Mask::QKEY);
        let path: &[(State, Mask)] = match state {
            State::Reset => &[],
            State::Init => &[(State::Init, init)],
            State::Rtr => &[(State::Init, init), (State::Rtr, Mask::NONE)],
            _ => &[
                (State::Init, init),
                (State::Rtr, Mask::NONE),
                (State::Rts, Mask::SQ_PSN),
            ],
        };
        for (state, mask) in path {
            let attr = Attr {
                state: *state,
                ..attr
            };
            assert_eq!(qp.modify(&attr, *mask), Ok(()));
        }
        match state {
            State::Sqe => qp.send_failed(),
            State::Sqd | State::Error => {
                let attr = Attr { state, ..attr };
                assert_eq!(qp.modify(&attr, Mask::NONE), Ok(()));
            }
            _ => {}
        }
        assert_eq!(qp.state(), state);
        qp
    }

    fn packet(send: &Send) -> Packet {
        let packet = qp(0x11, State::Rts).send(send, MTU);
        assert!(packet.is_ok());
        let none = Packet::new(Bth::new(Qpn::GSI, Psn::new(0)), Headers::SendFirst, 0);
        packet.unwrap_or(none)
    }

    #[test]
    fn a_datagram_goes_from_qp_to_qp() {
        for (imm, solicited) in [(None, false), (Some(7), true)] {
            let send = Send {
                imm,
                solicited,
                ..SEND
            };
            let packet = packet(&send);
            assert_eq!(packet.bth.dest_qp, SEND.dest_qp);
            let received = qp(0x22, State::Rtr).receive(&packet, Some(140));
            assert_eq!(
                received,
                Ok(Received {
                    src_qp: Qpn::new(0x11),
                    imm,
                    solicited,
                    payload: packet.payload(),
                    fits: true,
                })
            );
            assert_eq!(received.map(|received| received.len()), Ok(140));
        }
    }

    #[test]
    fn psns_count_datagrams() {
        let mut qp = qp(0x11, State::Rts);
        for psn in [Psn::MASK, 0, 1] {
            let packet = qp.send(&SEND, MTU);
            assert_eq!(packet.map(|packet| packet.bth.psn.get()), Ok(psn));
            let long = Send { len: 1025, ..SEND };
            assert_eq!(qp.send(&long, MTU), Err(Unsent::TooLong));
        }
    }

    #[test]
    fn a_message_is_at_most_the_path_mtu() {
        for mtu in PathMtu::ALL {
            let mut qp = qp(0x11, State::Rts);
            let mut send = Send {
                len: mtu.bytes() as usize,
                ..SEND
            };
            assert!(qp.send(&send, mtu).is_ok());
            send.len += 1;
            assert_eq!(qp.send(&send, mtu), Err(Unsent::TooLong));
            send.len = usize::MAX;
            assert_eq!(qp.send(&send, mtu), Err(Unsent::TooLong));
            send.len = 0;
            assert!(qp.send(&send, mtu).is_ok());
        }
    }

    #[test]
    fn a_receive_holds_grh_and_payload() {
        let packet = packet(&SEND);
        let qp = qp(0x22, State::Rtr);
        for (room, fits) in [
            (0, false),
            (39, false),
            (139, false),
            (140, true),
            (141, true),
        ] {
            let received = qp.receive(&packet, Some(room));
            assert_eq!(received.map(|received| received.fits), Ok(fits));
        }
        assert_eq!(qp.receive(&packet, None), Err(Dropped::NoReceive));
    }

    #[test]
    fn states_permit_sending_and_receiving() {
        let packet = packet(&SEND);
        for (state, send, receive) in [
            (State::Reset, Err(Unsent::Refused), false),
            (State::Init, Err(Unsent::Refused), false),
            (State::Rtr, Err(Unsent::Refused), true),
            (State::Rts, Ok(100), true),
            (State::Sqd, Err(Unsent::Draining), true),
            (State::Sqe, Err(Unsent::Flushed), true),
            (State::Error, Err(Unsent::Flushed), false),
        ] {
            let mut qp = qp(0x22, state);
            let sent = qp.send(&SEND, MTU).map(|packet| packet.payload_len());
            assert_eq!(sent, send);
            let received = qp.receive(&packet, Some(140)).map(|received| received.fits);
            let qkey = state != State::Reset;
            assert_eq!(
                received,
                match receive {
                    true => Ok(true),
                    false => Err(Dropped::State),
                }
            );
            let has_qkey = qp.qkey() == QKEY;
            assert_eq!(has_qkey, qkey);
        }
    }

    #[test]
    fn datagrams_need_the_right_q_key() {
        let mut qp = qp(0x22, State::Rts);
        for (qkey, ok) in [(QKEY, true), (QKEY ^ 1, false), (0, false)] {
            let packet = packet(&Send { qkey, ..SEND });
            let received = qp.receive(&packet, Some(140));
            assert_eq!(received.is_ok(), ok);
            assert!(ok || received == Err(Dropped::Qkey));
        }
        // A controlled Q key is replaced by the sender's own.
        let named = packet(&Send {
            qkey: GSI_QKEY,
            ..SEND
        });
        assert!(qp.receive(&named, Some(140)).is_ok());
        assert!(is_controlled(GSI_QKEY) && !is_controlled(QKEY));
        assert!(is_controlled(1 << 31) && !is_controlled(u32::MAX >> 1));
        // Between management QPs it is their own Q key.
        let mut gsi = Qp::gsi(Psn::new(5));
        let to_gsi = Send {
            dest_qp: Qpn::GSI,
            qkey: GSI_QKEY,
            len: 256,
            ..SEND
        };
        let packet = gsi.send(&to_gsi, MTU);
        let received = packet.map(|packet| gsi.receive(&packet, Some(296)));
        assert!(matches!(received, Ok(Ok(_))));
        assert_eq!(gsi.qpn(), Qpn::GSI);
        // The Q key can be changed while the QP works.
        let attr = Attr {
            state: State::Rts,
            qkey: 5,
            ..Attr::default()
        };
        assert_eq!(qp.modify(&attr, Mask::QKEY), Ok(()));
        assert_eq!(qp.qkey(), 5);
    }

    #[test]
    fn unacceptable_datagrams_are_dropped() {
        let qp = qp(0x22, State::Rts);
        let bth = Bth::new(Qpn::new(0x22), Psn::new(0));
        let rc = Packet::new(bth, Headers::SendMiddle, 100);
        assert_eq!(qp.receive(&rc, Some(140)), Err(Dropped::Service));
        let headers = packet(&SEND).headers();
        for (len, ok) in [(4096, true), (4097, false), (65_000, false)] {
            let received = qp.receive(&Packet::new(bth, headers, len), Some(usize::MAX));
            assert!(received.is_ok() == ok || received == Err(Dropped::Length));
        }
        for (number, kind) in Dropped::ALL.iter().enumerate() {
            assert_eq!(*kind as usize, number);
            assert!(!kind.name().is_empty());
        }
    }

    #[test]
    fn attributes_must_be_right() {
        let good = Attr {
            state: State::Init,
            qkey: 1,
            ..Attr::default()
        };
        let mask = Mask::PKEY_INDEX.with(Mask::PORT).with(Mask::QKEY);
        for bad in [
            Attr { port: 2, ..good },
            Attr {
                pkey_index: 1,
                ..good
            },
            Attr {
                state: State::Rts,
                ..good
            },
        ] {
            let mut qp = Qp::new(Qpn::new(1));
            assert_eq!(qp.modify(&bad, mask), Err(Error::Invalid));
            assert_eq!(qp.modify(&good, Mask::PORT), Err(Error::Invalid));
            assert_eq!((qp.state(), qp.qkey()), (State::Reset, 0));
            assert_eq!(qp.modify(&good, mask), Ok(()));
            // RESET clears all attributes.
            assert_eq!(qp.modify(&Attr::default(), Mask::NONE), Ok(()));
            assert_eq!((qp.state(), qp.qkey()), (State::Reset, 0));
        }
        let mut qp = qp(0x22, State::Rts);
        let attr = Attr {
            state: State::Rts,
            ..good
        };
        assert_eq!(qp.modify(&attr, Mask::CUR_STATE), Err(Error::Invalid));
        let attr = Attr {
            cur_state: State::Rts,
            ..attr
        };
        assert_eq!(qp.modify(&attr, Mask::CUR_STATE), Ok(()));
    }

    #[test]
    fn a_send_queue_recovers() {
        let mut qp = qp(0x22, State::Sqe);
        qp.send_failed();
        assert_eq!(qp.state(), State::Sqe);
        let attr = Attr {
            state: State::Rts,
            ..Attr::default()
        };
        assert_eq!(qp.modify(&attr, Mask::NONE), Ok(()));
        assert!(qp.send(&SEND, MTU).is_ok());
        // A failed send has no effect on a QP that cannot send.
        let mut qp = Qp::new(Qpn::new(1));
        qp.send_failed();
        assert_eq!(qp.state(), State::Reset);
    }

    #[test]
    fn a_drained_queue_is_reported_on_request() {
        let to = |state, en_sqd_async_notify| Attr {
            state,
            en_sqd_async_notify,
            ..Attr::default()
        };
        let mask = Mask::EN_SQD_ASYNC_NOTIFY;
        let mut qp = qp(0x22, State::Rts);
        for (notify, mask, reported) in [
            (true, mask, true),
            (false, mask, false),
            (true, Mask::NONE, false),
        ] {
            assert_eq!(qp.modify(&to(State::Sqd, notify), mask), Ok(()));
            let drained = (qp.take_drained(), qp.take_drained());
            assert_eq!(drained, (reported, false));
            assert_eq!(qp.modify(&to(State::Rts, false), Mask::NONE), Ok(()));
        }
        // Another state ends the request for a report.
        for state in [State::Rts, State::Error, State::Reset] {
            let mut qp = qp.clone();
            assert_eq!(qp.modify(&to(State::Sqd, true), mask), Ok(()));
            assert_eq!(qp.modify(&to(state, false), Mask::NONE), Ok(()));
            assert!(!qp.take_drained());
        }
        assert_eq!(qp.modify(&to(State::Sqd, true), mask), Ok(()));
        qp.send_failed();
        assert!(!qp.take_drained());
    }

    #[test]
    fn a_receive_begins_with_the_network_header() {
        let mut v4 = [0; 20];
        let mut v6 = [0; 40];
        for (byte, place) in (1..).zip(&mut v4) {
            *place = byte;
        }
        for (byte, place) in (1..).zip(&mut v6) {
            *place = byte;
        }
        let grh = grh_ipv4(&v4);
        assert_eq!(grh.split_at(20), (&[0; 20][..], &v4[..]));
        assert_eq!(grh_ipv6(&v6), v6);
    }
}
