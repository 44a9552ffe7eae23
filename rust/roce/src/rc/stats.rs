// SPDX-License-Identifier: GPL-2.0
//! Statistics of a QP.
//!
//! The counters only grow, from the creation of the QP on, and wrap at 2^64.

/// Adds to a counter.
#[inline]
pub(super) fn add(counter: &mut u64, n: u64) {
    *counter = counter.wrapping_add(n);
}

/// Counters of a requester.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct RequesterStats {
    /// Packets returned for sending, retransmissions included.
    pub packets: u64,
    /// Bytes of payload in them.
    pub bytes: u64,
    /// Retransmitted packets.
    pub resent: u64,
    /// Accepted responses.
    pub responses: u64,
    /// Bytes of payload in them.
    pub response_bytes: u64,
    /// How often sending went back because of a NAK or a gap in the responses.
    pub retries: u64,
    /// Local ACK timeouts.
    pub timeouts: u64,
    /// Packets retransmitted by the probe timer.
    pub probes: u64,
    /// Timeouts and probes that were unnecessary, because the response was on its way.
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
    /// Responses that imply the loss of an earlier one.
    pub implied_naks: u64,
    /// Responses to requests that were already answered.
    pub duplicates: u64,
    /// Responses to PSNs that were never sent, or of a kind that does not answer the request.
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
    /// Requests that were executed before.
    pub duplicates: u64,
    /// Duplicate RDMA READs and atomics answered again.
    pub replays: u64,
    /// Duplicate RDMA READs and atomics that were not remembered.
    pub forgotten: u64,
    /// Requests that arrived behind a missing one.
    pub out_of_sequence: u64,
    /// Requests further ahead than any requester's window.
    pub too_far: u64,
    /// Requests that arrived in a state that accepts none.
    pub unready: u64,
    /// ACKs returned for sending.
    pub acks: u64,
    /// Requests answered by the ACK of a later one.
    pub coalesced: u64,
    /// Packets of READ responses returned for sending.
    pub read_responses: u64,
    /// Bytes of payload in them.
    pub read_bytes: u64,
    /// Atomics answered.
    pub atomic_responses: u64,
    /// NAKs for a wrong PSN returned for sending.
    pub nak_sequence: u64,
    /// NAKs for an invalid request returned for sending.
    pub nak_invalid: u64,
    /// NAKs for an access error returned for sending.
    pub nak_access: u64,
    /// NAKs for an operational error returned for sending.
    pub nak_operation: u64,
    /// RNR NAKs returned for sending.
    pub rnr: u64,
    /// Packets that the local stack refused.
    pub not_sent: u64,
}
