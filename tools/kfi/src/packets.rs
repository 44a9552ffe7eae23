// SPDX-License-Identifier: GPL-2.0
//! Packet statistics of a link, an endpoint, or a network namespace.

use crate::{
    abi::{self, Call, calls},
    device::Device,
    error::Result,
};

macro_rules! values {
    ($($(#[$doc:meta])* $counter:ident $number:ident $name:literal,)*) => {
        /// A counter of packets.
        #[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
        #[non_exhaustive]
        pub enum PacketCounter {
            $($(#[$doc])* $counter,)*
        }

        impl PacketCounter {
            /// All of them.
            pub const ALL: &[Self] = &[$(Self::$counter),*];

            fn number(self) -> usize {
                let number = match self {
                    $(Self::$counter => abi::$number,)*
                };
                number as usize
            }

            /// Its name.
            pub const fn name(self) -> &'static str {
                match self {
                    $(Self::$counter => $name,)*
                }
            }
        }
    };
}

values! {
    /// Packets that arrived and were in order: a QP took them.
    RxPackets KFABRIC_FIGURE_RX_PACKETS "rx_packets",
    /// Bytes of these, from the BTH to the ICRC.
    RxBytes KFABRIC_FIGURE_RX_BYTES "rx_bytes",
    /// Packets that were sent.
    TxPackets KFABRIC_FIGURE_TX_PACKETS "tx_packets",
    /// Bytes of these, from the BTH to the ICRC.
    TxBytes KFABRIC_FIGURE_TX_BYTES "tx_bytes",
    /// Packets that this host's stack did not send, or for which there was no memory: lost ones.
    TxNotSent KFABRIC_FIGURE_TX_NOT_SENT "tx_not_sent",
    /// Dropped: ends before its headers do.
    DropShort KFABRIC_FIGURE_DROP_SHORT "drop_short",
    /// Dropped: length not a multiple of 4.
    DropLength KFABRIC_FIGURE_DROP_LENGTH "drop_length",
    /// Dropped: transport version.
    DropVersion KFABRIC_FIGURE_DROP_VERSION "drop_version",
    /// Dropped: opcode reserved, or of a service that is not supported.
    DropOpcode KFABRIC_FIGURE_DROP_OPCODE "drop_opcode",
    /// Dropped: P_Key.
    DropPkey KFABRIC_FIGURE_DROP_PKEY "drop_pkey",
    /// Dropped: more pad than payload.
    DropPad KFABRIC_FIGURE_DROP_PAD "drop_pad",
    /// Dropped: a payload where there can be none.
    DropPayload KFABRIC_FIGURE_DROP_PAYLOAD "drop_payload",
    /// Dropped: AETH syndrome.
    DropSyndrome KFABRIC_FIGURE_DROP_SYNDROME "drop_syndrome",
    /// Dropped: options or extension headers of IP.
    DropIpOptions KFABRIC_FIGURE_DROP_IP_OPTIONS "drop_ip_options",
    /// Dropped: a payload longer than the largest path MTU.
    DropTooLong KFABRIC_FIGURE_DROP_TOO_LONG "drop_too_long",
    /// Dropped: no such QP.
    DropNoQp KFABRIC_FIGURE_DROP_NO_QP "drop_no_qp",
    /// Dropped: the QP has another transport service.
    DropService KFABRIC_FIGURE_DROP_SERVICE "drop_service",
    /// Dropped: not sent to the QP's own address, or a request for an address that the link has
    /// lost.
    DropDestination KFABRIC_FIGURE_DROP_DESTINATION "drop_destination",
    /// Dropped: not sent by the peer to which the QP is connected.
    DropSource KFABRIC_FIGURE_DROP_SOURCE "drop_source",
    /// Dropped: the QP is not connected, or in a state in which it takes no packets.
    DropState KFABRIC_FIGURE_DROP_STATE "drop_state",
    /// Dropped: too many packets wait for the QP's worker.
    DropInboxFull KFABRIC_FIGURE_DROP_INBOX_FULL "drop_inbox_full",
    /// Dropped: the ICRC is wrong.
    DropIcrc KFABRIC_FIGURE_DROP_ICRC "drop_icrc",
    /// Dropped: not the QP's Q key.
    DropQkey KFABRIC_FIGURE_DROP_QKEY "drop_qkey",
    /// Dropped: a datagram for which no receive is posted.
    DropNoReceive KFABRIC_FIGURE_DROP_NO_RECEIVE "drop_no_receive",
    /// Packets that were sent again.
    Resent KFABRIC_FIGURE_RESENT "resent",
    /// Times that sending went back because the peer reported a loss.
    Retries KFABRIC_FIGURE_RETRIES "retries",
    /// Times that no answer came in time.
    Timeouts KFABRIC_FIGURE_TIMEOUTS "timeouts",
    /// Packets that were sent again earlier, in case the last one was lost.
    Probes KFABRIC_FIGURE_PROBES "probes",
    /// Requests and responses that had been received already.
    Duplicates KFABRIC_FIGURE_DUPLICATES "duplicates",
    /// Responses to no request, or of a kind that does not answer the request.
    Strays KFABRIC_FIGURE_STRAYS "strays",
    /// Requests behind a missing one, dropped.
    OutOfSequence KFABRIC_FIGURE_OUT_OF_SEQUENCE "out_of_sequence",
    /// Acknowledgements sent.
    AckTx KFABRIC_FIGURE_ACK_TX "ack_tx",
    /// Responses received.
    AckRx KFABRIC_FIGURE_ACK_RX "ack_rx",
    /// NAK "PSN sequence error" sent.
    NakSequenceTx KFABRIC_FIGURE_NAK_SEQUENCE_TX "nak_sequence_tx",
    /// NAK "PSN sequence error" received.
    NakSequenceRx KFABRIC_FIGURE_NAK_SEQUENCE_RX "nak_sequence_rx",
    /// NAK "invalid request" sent.
    NakInvalidTx KFABRIC_FIGURE_NAK_INVALID_TX "nak_invalid_tx",
    /// NAK "invalid request" received.
    NakInvalidRx KFABRIC_FIGURE_NAK_INVALID_RX "nak_invalid_rx",
    /// NAK "remote access error" sent.
    NakAccessTx KFABRIC_FIGURE_NAK_ACCESS_TX "nak_access_tx",
    /// NAK "remote access error" received.
    NakAccessRx KFABRIC_FIGURE_NAK_ACCESS_RX "nak_access_rx",
    /// NAK "remote operational error" sent.
    NakOperationTx KFABRIC_FIGURE_NAK_OPERATION_TX "nak_operation_tx",
    /// NAK "remote operational error" received.
    NakOperationRx KFABRIC_FIGURE_NAK_OPERATION_RX "nak_operation_rx",
    /// RNR NAK sent.
    RnrTx KFABRIC_FIGURE_RNR_TX "rnr_tx",
    /// RNR NAK received.
    RnrRx KFABRIC_FIGURE_RNR_RX "rnr_rx",
    /// Dropped: a datagram to QP 1 that is no message of connection management or has no meaning
    /// here, or a request to a listener that has not handled the requests before it.
    DropCm KFABRIC_FIGURE_DROP_CM "drop_cm",
    /// Messages of connection management that had been received before.
    CmDuplicates KFABRIC_FIGURE_CM_DUPLICATES "cm_duplicates",
    /// Messages of connection management that were not answered in time.
    CmResent KFABRIC_FIGURE_CM_RESENT "cm_resent",
    /// Requests for a connection that were refused: no listener.
    CmNoListener KFABRIC_FIGURE_CM_NO_LISTENER "cm_no_listener",
    /// Requests for a connection that were refused: too many wait, or no memory.
    CmNoRoom KFABRIC_FIGURE_CM_NO_ROOM "cm_no_room",
    /// Accesses of peers to memory that were refused, within the host and over the wire: unknown
    /// key, access not allowed, or bytes outside the region. Of links only.
    MrRefused KFABRIC_FIGURE_MR_REFUSED "mr_refused",
    /// Dropped: requests further ahead than any requester's window reaches.
    DropPsn KFABRIC_FIGURE_DROP_PSN "drop_psn",
    /// Dropped: packets that wait for the QPs of the QP's owner use up their share of the
    /// owner's budget of kernel memory.
    DropBudget KFABRIC_FIGURE_DROP_BUDGET "drop_budget",
    /// Of `RxPackets`: those that a task or worker of the QP's own user, user namespace, memory
    /// cgroup and kind of owner processed while it was sending packets on this host, instead of the
    /// QP's worker (run to completion).
    RxInline KFABRIC_FIGURE_RX_INLINE "rx_inline",
    /// Requests for a connection that were refused: too many that may have a forged source address.
    /// Their senders repeat them with a cookie.
    CmUnproven KFABRIC_FIGURE_CM_UNPROVEN "cm_unproven",
    /// Requests for a connection that were refused: the endpoint that they name has another
    /// authorization key.
    CmKey KFABRIC_FIGURE_CM_KEY "cm_key",
    /// Requests for a connection that were ignored, because accesses of their sender to memory were
    /// refused too often. The sender repeats them.
    CmDelayed KFABRIC_FIGURE_CM_DELAYED "cm_delayed",
}

/// The packets that are counted.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum PacketsOf {
    /// Those that no QP of this network namespace took, and those of connection
    /// management.
    Netns,
    /// Those of a link's QPs: [`Link::id`](crate::Link::id).
    Link(u32),
    /// Those of an endpoint's QPs: [`Stat::id`](crate::Stat::id).
    Endpoint(u64),
}

/// Packet statistics.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Packets {
    values: [u64; abi::KFABRIC_MAX_FIGURES as usize],
}

impl Packets {
    /// The value of a counter; 0 if the module does not know it.
    pub fn get(&self, counter: PacketCounter) -> u64 {
        self.values.get(counter.number()).copied().unwrap_or(0)
    }

    /// All counters with their values.
    pub fn iter(&self) -> impl Iterator<Item = (PacketCounter, u64)> {
        PacketCounter::ALL
            .iter()
            .map(|counter| (*counter, self.get(*counter)))
    }

    /// Packets that were dropped, for whatever cause.
    pub fn dropped(&self) -> u64 {
        self.iter()
            .filter(|(counter, _)| counter.name().starts_with("drop_"))
            .map(|(_, value)| value)
            .sum()
    }
}

impl Default for Packets {
    fn default() -> Self {
        Self {
            values: [0; abi::KFABRIC_MAX_FIGURES as usize],
        }
    }
}

impl Device {
    /// Packet statistics.
    ///
    /// # Errors
    ///
    /// `ENOENT`: there is no such link or endpoint in this network namespace,
    /// or it is another user's; of [`PacketsOf::Netns`], there is no link.
    pub fn packets(&self, of: PacketsOf) -> Result<Packets> {
        let (of, id) = match of {
            PacketsOf::Netns => (abi::KFABRIC_FIGURES_NETNS, 0),
            PacketsOf::Link(id) => (abi::KFABRIC_FIGURES_LINK, id.into()),
            PacketsOf::Endpoint(id) => (abi::KFABRIC_FIGURES_EP, id),
        };
        let mut arg = abi::kfabric_figures {
            of,
            id,
            ..Call::sized()
        };
        calls::plain(self, &mut arg)?;
        Ok(Packets { values: arg.values })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_counter_has_its_own_number() {
        let mut packets = Packets::default();
        for (number, counter) in PacketCounter::ALL.iter().enumerate() {
            assert_eq!(counter.number(), number, "{counter:?}");
            packets.values[number] = 1 << number;
            assert_eq!(packets.get(*counter), 1 << number);
        }
        assert_eq!(PacketCounter::RxPackets.name(), "rx_packets");
        let names = PacketCounter::ALL
            .iter()
            .filter(|counter| counter.name().starts_with("drop_"));
        assert_eq!(packets.dropped().count_ones() as usize, names.count());
    }
}
