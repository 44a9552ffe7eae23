// SPDX-License-Identifier: GPL-2.0

//! Adds the statistics of kfi_roce's state machines to the figures.

use super::{
    super::super::stats::{
        PacketCounter,
        Stat, //
    },
    Receiving,
    Sending, //
};

/// Adds the increase since `settled`.
macro_rules! add {
    ($tally:ident, $now:ident, $settled:ident: $($field:ident => $figure:ident,)*) => {
        $(
            let grown = $now.$field.wrapping_sub($settled.$field);
            if grown != 0 {
                $tally.add(Stat::$figure, grown);
            }
        )*
    };
}

/// Adds what the requester has counted since the last call.
pub(super) fn requester(sending: &mut Sending, tally: &PacketCounter<'_>) {
    let now = *sending.requester.stats();
    let settled = core::mem::replace(&mut sending.settled, now);
    add!(tally, now, settled:
        resent => Resent,
        retries => Retries,
        timeouts => Timeouts,
        probes => Probes,
        duplicates => Duplicates,
        strays => Strays,
        responses => AckRx,
        nak_sequence => NakSequenceRx,
        nak_invalid => NakInvalidRx,
        nak_access => NakAccessRx,
        nak_operation => NakOperationRx,
        rnr => RnrRx,
    );
}

/// Adds what the responder has counted since the last call.
pub(super) fn responder(receiving: &mut Receiving, tally: &PacketCounter<'_>) {
    let now = *receiving.responder.stats();
    let settled = core::mem::replace(&mut receiving.settled, now);
    add!(tally, now, settled:
        duplicates => Duplicates,
        out_of_sequence => OutOfSequence,
        too_far => DropPsn,
        unready => DropState,
        acks => AckTx,
        nak_sequence => NakSequenceTx,
        nak_invalid => NakInvalidTx,
        nak_access => NakAccessTx,
        nak_operation => NakOperationTx,
        rnr => RnrTx,
    );
}
