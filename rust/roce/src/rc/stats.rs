// SPDX-License-Identifier: GPL-2.0
//! Statistics of a QP.
//!
//! All numbers only grow, from the making of the QP on, and wrap at 2^64.

/// Adds to a counter.
#[inline]
pub(super) fn add(counter: &mut u64, n: u64) {
    *counter = counter.wrapping_add(n);
}

/// Counters of a requester.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct RequesterStats {
    /// Packets handed out, those sent again included.
    pub packets: u64,
    /// Bytes of payload in them.
    pub bytes: u64,
    /// Packets handed out again.
    pub resent: u64,
    /// Responses taken in.
    pub responses: u64,
    /// Bytes of payload in them.
    pub response_bytes: u64,
    /// Times that sending went back because of a NAK or a gap in the responses.
    pub retries: u64,
    /// Local ACK timeouts.
    pub timeouts: u64,
    /// Packets sent again before the timeout, in case that the last one was lost.
    pub probes: u64,
    /// Timeouts and probes that were wrong: the answer was on its way.
    pub spurious: u64,
    /// NAKs for a wrong PSN.
    pub nak_sequence: u64,
    /// NAKs for an invalid request.
    pub nak_invalid: u64,
    /// NAKs for an access error.
    pub nak_access: u64,
    /// NAKs for an operational error.
    pub nak_operation: u64,
    /// RNR NAKs.
    pub rnr: u64,
    /// Responses that imply that an earlier one was lost.
    pub implied_naks: u64,
    /// Responses to what is answered already.
    pub duplicates: u64,
    /// Responses to what was never sent, or of a kind that does not answer it.
    pub strays: u64,
    /// Packets that the local stack refused.
    pub not_sent: u64,
}

/// Counters of a responder.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct ResponderStats {
    /// Requests executed, packet by packet.
    pub packets: u64,
    /// Bytes of payload in them.
    pub bytes: u64,
    /// Requests that had been executed before.
    pub duplicates: u64,
    /// Duplicate RDMA READs and atomics answered again.
    pub replays: u64,
    /// Duplicate RDMA READs and atomics that are not remembered.
    pub forgotten: u64,
    /// Requests behind a missing one.
    pub out_of_sequence: u64,
    /// Requests further ahead than any requester's window reaches.
    pub too_far: u64,
    /// Requests that came in a state that takes none.
    pub unready: u64,
    /// ACKs handed out.
    pub acks: u64,
    /// Requests that an ACK answered together with a later one.
    pub coalesced: u64,
    /// Packets of READ responses handed out.
    pub read_responses: u64,
    /// Bytes of payload in them.
    pub read_bytes: u64,
    /// Atomics answered.
    pub atomic_responses: u64,
    /// NAKs for a wrong PSN handed out.
    pub nak_sequence: u64,
    /// NAKs for an invalid request handed out.
    pub nak_invalid: u64,
    /// NAKs for an access error handed out.
    pub nak_access: u64,
    /// NAKs for an operational error handed out.
    pub nak_operation: u64,
    /// RNR NAKs handed out.
    pub rnr: u64,
    /// Packets that the local stack refused.
    pub not_sent: u64,
}
