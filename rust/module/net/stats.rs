// SPDX-License-Identifier: GPL-2.0

//! Statistics: packets, bytes, and errors.
//!
//! Each QP, each link and the sockets of each namespace have the same statistics. Those of the
//! sockets count packets for which no QP was found, and connection management. Everything else is
//! counted twice, at the QP and at its link. A statistic never decreases.
//!
//! Many QPs share a link, so the statistics of links are per CPU. The task that runs a QP counts
//! its packets in a [`PacketCounter`] and adds the sums to the statistics at the end of a run. So a
//! packet accesses no memory that packets of other QPs access.

use crate::shim::{
    bindings,
    percpu::PerCpu, //
};
use core::ops::Deref;
use kernel::{
    prelude::*,
    sync::{
        atomic::{
            Atomic,
            Relaxed, //
        },
        Arc, //
    }, //
};
use kfi_roce::packet::Malformed;

macro_rules! statistics {
    ($($(#[$doc:meta])* $stat:ident = $number:ident $name:literal,)*) => {
        /// A statistic, with the number of `KFABRIC_FIGURE_*`.
        #[derive(Clone, Copy, PartialEq, Eq, Debug)]
        #[repr(u8)]
        pub(crate) enum Stat {
            $($(#[$doc])* $stat = bindings::$number as u8,)*
        }

        impl Stat {
            /// All statistics, each at the index of its number.
            pub(crate) const ALL: &'static [Self] = &[$(Self::$stat,)*];

            /// Its name in listings.
            pub(crate) const fn name(self) -> &'static str {
                match self {
                    $(Self::$stat => $name,)*
                }
            }
        }
    };
}

statistics! {
    /// Packets that arrived with a valid ICRC and were processed by a QP.
    RxPackets = KFABRIC_FIGURE_RX_PACKETS "rx_packets",
    /// Bytes of these, from the BTH to the ICRC.
    RxBytes = KFABRIC_FIGURE_RX_BYTES "rx_bytes",
    /// Packets that were sent.
    TxPackets = KFABRIC_FIGURE_TX_PACKETS "tx_packets",
    /// Bytes of these, from the BTH to the ICRC.
    TxBytes = KFABRIC_FIGURE_TX_BYTES "tx_bytes",
    /// Packets that this host's stack did not send, or for which there was no memory: they are
    /// lost.
    TxNotSent = KFABRIC_FIGURE_TX_NOT_SENT "tx_not_sent",
    /// Dropped: shorter than its headers.
    DropShort = KFABRIC_FIGURE_DROP_SHORT "drop_short",
    /// Dropped: the length is not a multiple of 4.
    DropLength = KFABRIC_FIGURE_DROP_LENGTH "drop_length",
    /// Dropped: wrong transport version.
    DropVersion = KFABRIC_FIGURE_DROP_VERSION "drop_version",
    /// Dropped: the opcode is reserved, or belongs to an unsupported service.
    DropOpcode = KFABRIC_FIGURE_DROP_OPCODE "drop_opcode",
    /// Dropped: wrong P_Key.
    DropPkey = KFABRIC_FIGURE_DROP_PKEY "drop_pkey",
    /// Dropped: the pad count exceeds the payload.
    DropPad = KFABRIC_FIGURE_DROP_PAD "drop_pad",
    /// Dropped: a payload with an opcode that has none.
    DropPayload = KFABRIC_FIGURE_DROP_PAYLOAD "drop_payload",
    /// Dropped: invalid AETH syndrome.
    DropSyndrome = KFABRIC_FIGURE_DROP_SYNDROME "drop_syndrome",
    /// Dropped: IP options or extension headers.
    DropIpOptions = KFABRIC_FIGURE_DROP_IP_OPTIONS "drop_ip_options",
    /// Dropped: a payload longer than the largest path MTU.
    DropTooLong = KFABRIC_FIGURE_DROP_TOO_LONG "drop_too_long",
    /// Dropped: no such QP.
    DropNoQp = KFABRIC_FIGURE_DROP_NO_QP "drop_no_qp",
    /// Dropped: the QP uses another transport service.
    DropService = KFABRIC_FIGURE_DROP_SERVICE "drop_service",
    /// Dropped: not sent to the QP's address.
    DropDestination = KFABRIC_FIGURE_DROP_DESTINATION "drop_destination",
    /// Dropped: not sent by the peer that the QP is connected to.
    DropSource = KFABRIC_FIGURE_DROP_SOURCE "drop_source",
    /// Dropped: the QP is not connected, or in a state in which it takes no packets.
    DropState = KFABRIC_FIGURE_DROP_STATE "drop_state",
    /// Dropped: the QP's inbox is full.
    DropInboxFull = KFABRIC_FIGURE_DROP_INBOX_FULL "drop_inbox_full",
    /// Dropped: the ICRC is wrong.
    DropIcrc = KFABRIC_FIGURE_DROP_ICRC "drop_icrc",
    /// Dropped: not the QP's Q key.
    DropQkey = KFABRIC_FIGURE_DROP_QKEY "drop_qkey",
    /// Dropped: there is no receive for the datagram.
    DropNoReceive = KFABRIC_FIGURE_DROP_NO_RECEIVE "drop_no_receive",
    /// Packets that were sent again.
    Resent = KFABRIC_FIGURE_RESENT "resent",
    /// Times that the requester went back because a NAK or a response showed a loss.
    Retries = KFABRIC_FIGURE_RETRIES "retries",
    /// Times that the ACK timeout expired.
    Timeouts = KFABRIC_FIGURE_TIMEOUTS "timeouts",
    /// Packets that were sent again before the ACK timeout, in case the last one was lost.
    Probes = KFABRIC_FIGURE_PROBES "probes",
    /// Requests and responses that had been received already.
    Duplicates = KFABRIC_FIGURE_DUPLICATES "duplicates",
    /// Responses to a PSN that was not sent, or of a kind that does not answer the request.
    Strays = KFABRIC_FIGURE_STRAYS "strays",
    /// Dropped: requests that came after a missing one.
    OutOfSequence = KFABRIC_FIGURE_OUT_OF_SEQUENCE "out_of_sequence",
    /// Acknowledgements sent.
    AckTx = KFABRIC_FIGURE_ACK_TX "ack_tx",
    /// Responses received.
    AckRx = KFABRIC_FIGURE_ACK_RX "ack_rx",
    /// NAK "PSN sequence error" sent.
    NakSequenceTx = KFABRIC_FIGURE_NAK_SEQUENCE_TX "nak_sequence_tx",
    /// NAK "PSN sequence error" received.
    NakSequenceRx = KFABRIC_FIGURE_NAK_SEQUENCE_RX "nak_sequence_rx",
    /// NAK "invalid request" sent.
    NakInvalidTx = KFABRIC_FIGURE_NAK_INVALID_TX "nak_invalid_tx",
    /// NAK "invalid request" received.
    NakInvalidRx = KFABRIC_FIGURE_NAK_INVALID_RX "nak_invalid_rx",
    /// NAK "remote access error" sent.
    NakAccessTx = KFABRIC_FIGURE_NAK_ACCESS_TX "nak_access_tx",
    /// NAK "remote access error" received.
    NakAccessRx = KFABRIC_FIGURE_NAK_ACCESS_RX "nak_access_rx",
    /// NAK "remote operational error" sent.
    NakOperationTx = KFABRIC_FIGURE_NAK_OPERATION_TX "nak_operation_tx",
    /// NAK "remote operational error" received.
    NakOperationRx = KFABRIC_FIGURE_NAK_OPERATION_RX "nak_operation_rx",
    /// RNR NAK sent.
    RnrTx = KFABRIC_FIGURE_RNR_TX "rnr_tx",
    /// RNR NAK received.
    RnrRx = KFABRIC_FIGURE_RNR_RX "rnr_rx",
    /// Dropped: a datagram to QP 1 that is not a valid message of connection management, has no
    /// effect, or requests a connection from a listener with too many undelivered requests.
    DropCm = KFABRIC_FIGURE_DROP_CM "drop_cm",
    /// Messages of connection management that had been received before.
    CmDuplicates = KFABRIC_FIGURE_CM_DUPLICATES "cm_duplicates",
    /// Messages of connection management that were sent again after a timeout.
    CmResent = KFABRIC_FIGURE_CM_RESENT "cm_resent",
    /// Requests for a connection that were rejected: no listener.
    CmNoListener = KFABRIC_FIGURE_CM_NO_LISTENER "cm_no_listener",
    /// Requests for a connection that were rejected: too many requests, or no memory.
    CmNoRoom = KFABRIC_FIGURE_CM_NO_ROOM "cm_no_room",
    /// Accesses of peers to memory that were refused, within the host and over the wire: no such
    /// key, no right, or bytes outside the region. Links only.
    MrRefused = KFABRIC_FIGURE_MR_REFUSED "mr_refused",
    /// Dropped: requests whose PSN is beyond the window of any requester.
    DropPsn = KFABRIC_FIGURE_DROP_PSN "drop_psn",
    /// Dropped: packets in the inboxes of the owner's QPs use their whole part of the owner's
    /// budget of kernel memory.
    DropBudget = KFABRIC_FIGURE_DROP_BUDGET "drop_budget",
    /// Of `RxPackets`: packets that the sending task or worker of this host processed itself (run
    /// to completion).
    RxInline = KFABRIC_FIGURE_RX_INLINE "rx_inline",
    /// Requests for a connection that were rejected with a cookie: too many whose source addresses
    /// may be forged.
    CmUnproven = KFABRIC_FIGURE_CM_UNPROVEN "cm_unproven",
}

/// Number of statistics.
pub(crate) const STATS: usize = Stat::ALL.len();

/// The values of all statistics, by number.
pub(crate) type Values = [u64; STATS];

kernel::static_assert!(STATS <= bindings::KFABRIC_MAX_FIGURES as usize);

// Each statistic is at the index of its number.
const _: () = {
    let mut number = 0;
    while number < STATS {
        assert!(Stat::ALL[number] as usize == number);
        number += 1;
    }
};

impl From<Malformed> for Stat {
    fn from(malformed: Malformed) -> Self {
        match malformed {
            Malformed::Short => Self::DropShort,
            Malformed::Length => Self::DropLength,
            Malformed::Version => Self::DropVersion,
            Malformed::Opcode => Self::DropOpcode,
            Malformed::Pkey => Self::DropPkey,
            Malformed::Pad => Self::DropPad,
            Malformed::Payload => Self::DropPayload,
            Malformed::Syndrome => Self::DropSyndrome,
        }
    }
}

/// Figures of a link, or of the sockets of a namespace.
pub(crate) struct LinkStats(PerCpu<STATS>);

impl LinkStats {
    /// Figures that are all 0. Fails with `ENOMEM`. Sleeps.
    pub(super) fn new() -> Result<Self> {
        Ok(Self(PerCpu::new()?))
    }

    /// Adds `n` to a statistic. Any context; accesses memory of this CPU only.
    pub(super) fn add(&self, stat: Stat, n: u64) {
        self.0.add(stat as usize, n);
    }

    /// A statistic, as it is at some moment of the call. Any context.
    #[cfg(kfi_kunit)]
    pub(crate) fn get(&self, stat: Stat) -> u64 {
        self.0.sum(stat as usize)
    }

    /// The values of all statistics, each as it is at some moment of the call. Any context.
    pub(crate) fn values(&self) -> Values {
        core::array::from_fn(|number| self.0.sum(number))
    }
}

/// Figures of a QP, or of all QPs of an endpoint.
///
/// Mostly updated by the task that runs the QP, and in softirq when packets are dropped.
pub(crate) struct QpStats([Atomic<u64>; STATS]);

impl QpStats {
    /// Figures that are all 0.
    pub(super) const fn new() -> Self {
        Self([const { Atomic::new(0) }; STATS])
    }

    /// Figures that are all 0, to be shared by several QPs. Fails with `ENOMEM`. Sleeps.
    pub(crate) fn shared() -> Result<Arc<Self>> {
        Ok(Arc::new(Self::new(), GFP_KERNEL_ACCOUNT)?)
    }

    /// Adds `n` to a statistic. Any context.
    pub(super) fn add(&self, stat: Stat, n: u64) {
        if let Some(value) = self.0.get(stat as usize) {
            value.add(n, Relaxed);
        }
    }

    /// A statistic. Any context.
    #[cfg(kfi_kunit)]
    pub(crate) fn get(&self, stat: Stat) -> u64 {
        self.0
            .get(stat as usize)
            .map_or(0, |value| value.load(Relaxed))
    }

    /// The values of all statistics, each as it is at some moment of the call. Any context.
    pub(crate) fn values(&self) -> Values {
        self.0.each_ref().map(|value| value.load(Relaxed))
    }
}

/// The statistics in which a QP counts.
#[expect(clippy::large_enum_variant, reason = "most QPs have their own")]
pub(super) enum StatsRef {
    /// Its own: they are near the other memory that its packets access.
    Qp(QpStats),
    /// Those of its owner, which other QPs share.
    Owner(Arc<QpStats>),
}

impl Deref for StatsRef {
    type Target = QpStats;

    fn deref(&self) -> &QpStats {
        match self {
            Self::Qp(stats) => stats,
            Self::Owner(stats) => stats,
        }
    }
}

/// Counts at a QP and at its link. Packets and their bytes are frequent, so they are summed up here
/// and added to the statistics when this is dropped.
pub(super) struct PacketCounter<'a> {
    qp: &'a QpStats,
    link: &'a LinkStats,
    rx: Packets,
    tx: Packets,
    /// Whether the task that sent the received packets processes them.
    inline: bool,
}

/// Packets, and their bytes.
#[derive(Clone, Copy, Default)]
struct Packets {
    count: u64,
    bytes: u64,
}

impl Packets {
    fn add(&mut self, len: usize) {
        self.count = self.count.wrapping_add(1);
        self.bytes = self.bytes.wrapping_add(len as u64);
    }
}

impl<'a> PacketCounter<'a> {
    /// Counts in the statistics of a QP and of its link.
    pub(super) fn new(qp: &'a QpStats, link: &'a LinkStats) -> Self {
        Self {
            qp,
            link,
            rx: Packets::default(),
            tx: Packets::default(),
            inline: false,
        }
    }

    /// Counts received packets as [`Stat::RxInline`] as well if `inline`.
    pub(super) fn set_inline(&mut self, inline: bool) {
        self.inline = inline;
    }

    /// Adds `n` to a statistic.
    pub(super) fn add(&self, stat: Stat, n: u64) {
        self.qp.add(stat, n);
        self.link.add(stat, n);
    }

    /// Adds 1 to a statistic.
    pub(super) fn count(&self, stat: Stat) {
        self.add(stat, 1);
    }

    /// Counts a received packet of `len` bytes.
    pub(super) fn received(&mut self, len: usize) {
        self.rx.add(len);
    }

    /// Counts a sent packet of `len` bytes.
    pub(super) fn sent(&mut self, len: usize) {
        self.tx.add(len);
    }
}

impl Drop for PacketCounter<'_> {
    fn drop(&mut self) {
        let Self { rx, tx, .. } = *self;
        if rx.count != 0 {
            self.add(Stat::RxPackets, rx.count);
            self.add(Stat::RxBytes, rx.bytes);
            if self.inline {
                self.add(Stat::RxInline, rx.count);
            }
        }
        if tx.count != 0 {
            self.add(Stat::TxPackets, tx.count);
            self.add(Stat::TxBytes, tx.bytes);
        }
    }
}
