// SPDX-License-Identifier: GPL-2.0

//! What is counted: packets, bytes, and what went wrong with them.
//!
//! The same figures are kept of each QP, each link and the sockets of each namespace. Those of
//! sockets are packets for which no QP was found, and connection management; each of the others is
//! counted once with the QP and once with its link. A figure never falls.
//!
//! Many QPs share a link, so the figures of links are kept per CPU. Who works on a QP counts its
//! packets in a [`Tally`] and adds that up at the end of a run; so a packet touches no memory that
//! another QP's packets touch.

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

macro_rules! figures {
    ($($(#[$doc:meta])* $figure:ident = $number:ident $name:literal,)*) => {
        /// Something that is counted, with the number of `KFABRIC_FIGURE_*`.
        #[derive(Clone, Copy, PartialEq, Eq, Debug)]
        #[repr(u8)]
        pub(crate) enum Figure {
            $($(#[$doc])* $figure = bindings::$number as u8,)*
        }

        impl Figure {
            /// All of them; each stands at its number.
            pub(crate) const ALL: &'static [Self] = &[$(Self::$figure,)*];

            /// Its name in listings.
            pub(crate) const fn name(self) -> &'static str {
                match self {
                    $(Self::$figure => $name,)*
                }
            }
        }
    };
}

figures! {
    /// Packets that arrived and were in order: a QP took them.
    RxPackets = KFABRIC_FIGURE_RX_PACKETS "rx_packets",
    /// Bytes of these, from the BTH to the ICRC.
    RxBytes = KFABRIC_FIGURE_RX_BYTES "rx_bytes",
    /// Packets that were sent.
    TxPackets = KFABRIC_FIGURE_TX_PACKETS "tx_packets",
    /// Bytes of these, from the BTH to the ICRC.
    TxBytes = KFABRIC_FIGURE_TX_BYTES "tx_bytes",
    /// Packets that this host's stack did not send, or for which there was no memory: lost ones.
    TxNotSent = KFABRIC_FIGURE_TX_NOT_SENT "tx_not_sent",
    /// Dropped: ends before its headers do.
    DropShort = KFABRIC_FIGURE_DROP_SHORT "drop_short",
    /// Dropped: length not a multiple of 4.
    DropLength = KFABRIC_FIGURE_DROP_LENGTH "drop_length",
    /// Dropped: transport version.
    DropVersion = KFABRIC_FIGURE_DROP_VERSION "drop_version",
    /// Dropped: opcode reserved, or of a service that is not spoken.
    DropOpcode = KFABRIC_FIGURE_DROP_OPCODE "drop_opcode",
    /// Dropped: P_Key.
    DropPkey = KFABRIC_FIGURE_DROP_PKEY "drop_pkey",
    /// Dropped: more pad than payload.
    DropPad = KFABRIC_FIGURE_DROP_PAD "drop_pad",
    /// Dropped: a payload where there can be none.
    DropPayload = KFABRIC_FIGURE_DROP_PAYLOAD "drop_payload",
    /// Dropped: AETH syndrome.
    DropSyndrome = KFABRIC_FIGURE_DROP_SYNDROME "drop_syndrome",
    /// Dropped: options or extension headers of IP.
    DropIpOptions = KFABRIC_FIGURE_DROP_IP_OPTIONS "drop_ip_options",
    /// Dropped: a payload longer than the largest path MTU.
    DropTooLong = KFABRIC_FIGURE_DROP_TOO_LONG "drop_too_long",
    /// Dropped: no such QP.
    DropNoQp = KFABRIC_FIGURE_DROP_NO_QP "drop_no_qp",
    /// Dropped: the QP speaks another transport service.
    DropService = KFABRIC_FIGURE_DROP_SERVICE "drop_service",
    /// Dropped: not sent to the QP's own address.
    DropDestination = KFABRIC_FIGURE_DROP_DESTINATION "drop_destination",
    /// Dropped: not sent by the peer that the QP is connected to.
    DropSource = KFABRIC_FIGURE_DROP_SOURCE "drop_source",
    /// Dropped: the QP is not connected, or in a state in which it takes no packets.
    DropState = KFABRIC_FIGURE_DROP_STATE "drop_state",
    /// Dropped: so much waits for the QP's worker already.
    DropInboxFull = KFABRIC_FIGURE_DROP_INBOX_FULL "drop_inbox_full",
    /// Dropped: the ICRC is wrong.
    DropIcrc = KFABRIC_FIGURE_DROP_ICRC "drop_icrc",
    /// Dropped: not the QP's Q key.
    DropQkey = KFABRIC_FIGURE_DROP_QKEY "drop_qkey",
    /// Dropped: a datagram for which nobody waits.
    DropNoReceive = KFABRIC_FIGURE_DROP_NO_RECEIVE "drop_no_receive",
    /// Packets that were sent again.
    Resent = KFABRIC_FIGURE_RESENT "resent",
    /// Times that sending went back because the peer said that something was lost.
    Retries = KFABRIC_FIGURE_RETRIES "retries",
    /// Times that no answer came in time.
    Timeouts = KFABRIC_FIGURE_TIMEOUTS "timeouts",
    /// Packets that were sent again before that, in case that the last one was lost.
    Probes = KFABRIC_FIGURE_PROBES "probes",
    /// Requests and responses that had been received already.
    Duplicates = KFABRIC_FIGURE_DUPLICATES "duplicates",
    /// Responses to what was never sent, or of a kind that does not answer it.
    Strays = KFABRIC_FIGURE_STRAYS "strays",
    /// Requests behind a missing one, dropped.
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
    /// Dropped: a datagram to QP 1 that is no message of connection management, means nothing here,
    /// or asks a listener that has not handled the requests before it.
    DropCm = KFABRIC_FIGURE_DROP_CM "drop_cm",
    /// Messages of connection management that had been heard before.
    CmDuplicates = KFABRIC_FIGURE_CM_DUPLICATES "cm_duplicates",
    /// Messages of connection management that were not answered in time.
    CmResent = KFABRIC_FIGURE_CM_RESENT "cm_resent",
    /// Requests for a connection that were refused: nobody listens.
    CmNoListener = KFABRIC_FIGURE_CM_NO_LISTENER "cm_no_listener",
    /// Requests for a connection that were refused: too many wait, or no memory.
    CmNoRoom = KFABRIC_FIGURE_CM_NO_ROOM "cm_no_room",
    /// Accesses of peers to memory that were refused, within the host and over the wire: no such key, no
    /// right, or bytes outside the region. Links only.
    MrRefused = KFABRIC_FIGURE_MR_REFUSED "mr_refused",
    /// Dropped: requests further ahead than any requester's window reaches.
    DropPsn = KFABRIC_FIGURE_DROP_PSN "drop_psn",
    /// Dropped: packets that wait for the QPs of the QP's owner take all that they may of the
    /// owner's budget of kernel memory.
    DropBudget = KFABRIC_FIGURE_DROP_BUDGET "drop_budget",
    /// Of `RxPackets`: those that were processed by the task or worker of this host that sent them, run
    /// to completion.
    RxInline = KFABRIC_FIGURE_RX_INLINE "rx_inline",
}

/// How many there are.
pub(crate) const FIGURES: usize = Figure::ALL.len();

/// All figures of something, each at its number.
pub(crate) type Values = [u64; FIGURES];

kernel::static_assert!(FIGURES <= bindings::KFABRIC_MAX_FIGURES as usize);

// Each stands at its number.
const _: () = {
    let mut number = 0;
    while number < FIGURES {
        assert!(Figure::ALL[number] as usize == number);
        number += 1;
    }
};

impl From<Malformed> for Figure {
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
pub(crate) struct Figures(PerCpu<FIGURES>);

impl Figures {
    /// All 0. `ENOMEM`. Sleeps.
    pub(super) fn new() -> Result<Self> {
        Ok(Self(PerCpu::new()?))
    }

    /// Adds `n` to a figure. Any context; touches memory of this CPU only.
    pub(super) fn add(&self, figure: Figure, n: u64) {
        self.0.add(figure as usize, n);
    }

    /// A figure, as it is at some moment of the call. Any context.
    #[cfg(kfi_kunit)]
    pub(crate) fn get(&self, figure: Figure) -> u64 {
        self.0.sum(figure as usize)
    }

    /// All of them, each as it is at some moment of the call. Any context.
    pub(crate) fn values(&self) -> Values {
        core::array::from_fn(|number| self.0.sum(number))
    }
}

/// Figures of a QP, or of all QPs of an endpoint.
///
/// Added to by who has the QP's lock, mostly, and in softirq where packets are dropped.
pub(crate) struct QpFigures([Atomic<u64>; FIGURES]);

impl QpFigures {
    /// All 0.
    pub(super) const fn new() -> Self {
        Self([const { Atomic::new(0) }; FIGURES])
    }

    /// All 0, for several QPs. `ENOMEM`. Sleeps.
    pub(crate) fn shared() -> Result<Arc<Self>> {
        Ok(Arc::new(Self::new(), GFP_KERNEL_ACCOUNT)?)
    }

    /// Adds `n` to a figure. Any context.
    pub(super) fn add(&self, figure: Figure, n: u64) {
        if let Some(value) = self.0.get(figure as usize) {
            value.add(n, Relaxed);
        }
    }

    /// A figure. Any context.
    #[cfg(kfi_kunit)]
    pub(crate) fn get(&self, figure: Figure) -> u64 {
        self.0
            .get(figure as usize)
            .map_or(0, |value| value.load(Relaxed))
    }

    /// All of them, each as it is at some moment of the call. Any context.
    pub(crate) fn values(&self) -> Values {
        self.0.each_ref().map(|value| value.load(Relaxed))
    }
}

/// Whose figures a QP counts in.
#[expect(clippy::large_enum_variant, reason = "most QPs have their own")]
pub(super) enum Holder {
    /// Its own: they lie beside what else its packets touch.
    Qp(QpFigures),
    /// Those of its owner, as other QPs do.
    Owner(Arc<QpFigures>),
}

impl Deref for Holder {
    type Target = QpFigures;

    fn deref(&self) -> &QpFigures {
        match self {
            Self::Qp(figures) => figures,
            Self::Owner(figures) => figures,
        }
    }
}

/// Counts with a QP and with its link. Packets and their bytes, of which there are many, are added up
/// when this is dropped.
pub(super) struct Tally<'a> {
    qp: &'a QpFigures,
    link: &'a Figures,
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

impl<'a> Tally<'a> {
    /// For the figures of a QP and of its link.
    pub(super) fn new(qp: &'a QpFigures, link: &'a Figures) -> Self {
        Self {
            qp,
            link,
            rx: Packets::default(),
            tx: Packets::default(),
            inline: false,
        }
    }

    /// Counts received packets as [`Figure::RxInline`] as well if `inline`.
    pub(super) fn set_inline(&mut self, inline: bool) {
        self.inline = inline;
    }

    /// Adds `n` to a figure.
    pub(super) fn add(&self, figure: Figure, n: u64) {
        self.qp.add(figure, n);
        self.link.add(figure, n);
    }

    /// Adds 1 to a figure.
    pub(super) fn count(&self, figure: Figure) {
        self.add(figure, 1);
    }

    /// Counts a packet of `len` bytes that arrived.
    pub(super) fn received(&mut self, len: usize) {
        self.rx.add(len);
    }

    /// Counts a packet of `len` bytes that was sent.
    pub(super) fn sent(&mut self, len: usize) {
        self.tx.add(len);
    }
}

impl Drop for Tally<'_> {
    fn drop(&mut self) {
        let Self { rx, tx, .. } = *self;
        if rx.count != 0 {
            self.add(Figure::RxPackets, rx.count);
            self.add(Figure::RxBytes, rx.bytes);
            if self.inline {
                self.add(Figure::RxInline, rx.count);
            }
        }
        if tx.count != 0 {
            self.add(Figure::TxPackets, tx.count);
            self.add(Figure::TxBytes, tx.bytes);
        }
    }
}
