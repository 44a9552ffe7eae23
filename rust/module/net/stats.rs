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
    c_str,
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
    ($($stat:ident = $number:ident $name:literal,)*) => {
        /// A statistic, with the number of `KFABRIC_FIGURE_*`.
        #[derive(Clone, Copy, PartialEq, Eq, Debug)]
        #[repr(u8)]
        pub(crate) enum Stat {
            $($stat = bindings::$number as u8,)*
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

            /// Its [`name`](Self::name), with a NUL at its end.
            pub(crate) const fn c_name(self) -> &'static CStr {
                match self {
                    $(Self::$stat => c_str!($name),)*
                }
            }
        }
    };
}

// include/uapi/kfabric.h describes each.
statistics! {
    RxPackets = KFABRIC_FIGURE_RX_PACKETS "rx_packets",
    RxBytes = KFABRIC_FIGURE_RX_BYTES "rx_bytes",
    TxPackets = KFABRIC_FIGURE_TX_PACKETS "tx_packets",
    TxBytes = KFABRIC_FIGURE_TX_BYTES "tx_bytes",
    TxNotSent = KFABRIC_FIGURE_TX_NOT_SENT "tx_not_sent",
    DropShort = KFABRIC_FIGURE_DROP_SHORT "drop_short",
    DropLength = KFABRIC_FIGURE_DROP_LENGTH "drop_length",
    DropVersion = KFABRIC_FIGURE_DROP_VERSION "drop_version",
    DropOpcode = KFABRIC_FIGURE_DROP_OPCODE "drop_opcode",
    DropPkey = KFABRIC_FIGURE_DROP_PKEY "drop_pkey",
    DropPad = KFABRIC_FIGURE_DROP_PAD "drop_pad",
    DropPayload = KFABRIC_FIGURE_DROP_PAYLOAD "drop_payload",
    DropSyndrome = KFABRIC_FIGURE_DROP_SYNDROME "drop_syndrome",
    DropIpOptions = KFABRIC_FIGURE_DROP_IP_OPTIONS "drop_ip_options",
    DropTooLong = KFABRIC_FIGURE_DROP_TOO_LONG "drop_too_long",
    DropNoQp = KFABRIC_FIGURE_DROP_NO_QP "drop_no_qp",
    DropService = KFABRIC_FIGURE_DROP_SERVICE "drop_service",
    DropDestination = KFABRIC_FIGURE_DROP_DESTINATION "drop_destination",
    DropSource = KFABRIC_FIGURE_DROP_SOURCE "drop_source",
    DropState = KFABRIC_FIGURE_DROP_STATE "drop_state",
    DropInboxFull = KFABRIC_FIGURE_DROP_INBOX_FULL "drop_inbox_full",
    DropIcrc = KFABRIC_FIGURE_DROP_ICRC "drop_icrc",
    DropQkey = KFABRIC_FIGURE_DROP_QKEY "drop_qkey",
    DropNoReceive = KFABRIC_FIGURE_DROP_NO_RECEIVE "drop_no_receive",
    Resent = KFABRIC_FIGURE_RESENT "resent",
    Retries = KFABRIC_FIGURE_RETRIES "retries",
    Timeouts = KFABRIC_FIGURE_TIMEOUTS "timeouts",
    Probes = KFABRIC_FIGURE_PROBES "probes",
    Duplicates = KFABRIC_FIGURE_DUPLICATES "duplicates",
    Strays = KFABRIC_FIGURE_STRAYS "strays",
    OutOfSequence = KFABRIC_FIGURE_OUT_OF_SEQUENCE "out_of_sequence",
    AckTx = KFABRIC_FIGURE_ACK_TX "ack_tx",
    AckRx = KFABRIC_FIGURE_ACK_RX "ack_rx",
    NakSequenceTx = KFABRIC_FIGURE_NAK_SEQUENCE_TX "nak_sequence_tx",
    NakSequenceRx = KFABRIC_FIGURE_NAK_SEQUENCE_RX "nak_sequence_rx",
    NakInvalidTx = KFABRIC_FIGURE_NAK_INVALID_TX "nak_invalid_tx",
    NakInvalidRx = KFABRIC_FIGURE_NAK_INVALID_RX "nak_invalid_rx",
    NakAccessTx = KFABRIC_FIGURE_NAK_ACCESS_TX "nak_access_tx",
    NakAccessRx = KFABRIC_FIGURE_NAK_ACCESS_RX "nak_access_rx",
    NakOperationTx = KFABRIC_FIGURE_NAK_OPERATION_TX "nak_operation_tx",
    NakOperationRx = KFABRIC_FIGURE_NAK_OPERATION_RX "nak_operation_rx",
    RnrTx = KFABRIC_FIGURE_RNR_TX "rnr_tx",
    RnrRx = KFABRIC_FIGURE_RNR_RX "rnr_rx",
    DropCm = KFABRIC_FIGURE_DROP_CM "drop_cm",
    CmDuplicates = KFABRIC_FIGURE_CM_DUPLICATES "cm_duplicates",
    CmResent = KFABRIC_FIGURE_CM_RESENT "cm_resent",
    CmNoListener = KFABRIC_FIGURE_CM_NO_LISTENER "cm_no_listener",
    CmNoRoom = KFABRIC_FIGURE_CM_NO_ROOM "cm_no_room",
    MrRefused = KFABRIC_FIGURE_MR_REFUSED "mr_refused",
    DropPsn = KFABRIC_FIGURE_DROP_PSN "drop_psn",
    DropBudget = KFABRIC_FIGURE_DROP_BUDGET "drop_budget",
    RxInline = KFABRIC_FIGURE_RX_INLINE "rx_inline",
    CmUnproven = KFABRIC_FIGURE_CM_UNPROVEN "cm_unproven",
    CmKey = KFABRIC_FIGURE_CM_KEY "cm_key",
    CmDelayed = KFABRIC_FIGURE_CM_DELAYED "cm_delayed",
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

/// Statistics of a link, or of the sockets of a namespace.
pub(crate) struct LinkStats(PerCpu<STATS>);

impl LinkStats {
    /// Statistics that are all 0. Fails with `ENOMEM`. Sleeps.
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

/// Statistics of a QP, or of all QPs of an endpoint.
///
/// Mostly updated by the task that runs the QP, and in softirq when packets are dropped.
pub(crate) struct QpStats([Atomic<u64>; STATS]);

impl QpStats {
    /// Statistics that are all 0.
    pub(super) const fn new() -> Self {
        Self([const { Atomic::new(0) }; STATS])
    }

    /// Statistics that are all 0, to be shared by several QPs. Fails with `ENOMEM`. Sleeps.
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
