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
mod tests;
