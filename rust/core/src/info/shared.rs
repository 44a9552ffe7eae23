// SPDX-License-Identifier: GPL-2.0
//! The attributes of shared contexts (fi_endpoint(3), "Shared contexts").
//!
//! A shared context is opened without an endpoint type, and endpoints of all types can use it. So
//! it can have what any type has ([`Kind::SHARED`]). The attributes of an endpoint that uses it
//! must be a subset of those of the context. For the capabilities this means those that the side of
//! the endpoint needs for messages: accesses to memory do not go through a shared receive context.

use super::{
    offer::{
        RX_CAPS,
        TX_CAPS, //
    },
    HintMismatch,
    Kind,
    RxAttr,
    TxAttr, //
};
use crate::flags::Caps;

/// Returns the attributes of a shared transmit context that is asked for with `hint`, where 0
/// leaves the choice to the provider.
///
/// # Errors
///
/// The first attribute that does not match.
pub fn shared_tx(hint: &TxAttr) -> Result<TxAttr, HintMismatch> {
    Kind::SHARED.tx(Kind::SHARED.caps, hint)
}

/// Returns the attributes of a shared receive context that is asked for with `hint`.
///
/// # Errors
///
/// The first attribute that does not match.
pub fn shared_rx(hint: &RxAttr) -> Result<RxAttr, HintMismatch> {
    Kind::SHARED.rx(Kind::SHARED.caps, hint)
}

/// Returns the capabilities that an endpoint with `caps` needs of its shared transmit context.
pub fn used_of_tx(caps: Caps) -> Caps {
    caps & TX_CAPS.without(Caps::LOCAL_COMM).without(Caps::REMOTE_COMM)
}

/// Returns the capabilities that an endpoint with `caps` needs of its shared receive context.
pub fn used_of_rx(caps: Caps) -> Caps {
    let messages = Caps::MSG | Caps::TAGGED | Caps::RECV | Caps::MULTI_RECV;
    caps & RX_CAPS & (messages | Caps::SOURCE | Caps::DIRECTED_RECV)
}

#[cfg(any(test, kfi_kunit))]
#[cfg_attr(kfi_kunit, kernel::prelude::kunit_tests(kfi_core_info_shared))]
mod tests {
    use super::{
        super::Info,
        *, //
    };
    use crate::{
        flags::OpFlags,
        limits, //
    };

    #[test]
    fn zero_leaves_the_choice() {
        let rx = shared_rx(&Info::ANY.rx);
        let rx = rx.map(|rx| (rx.size, rx.total_buffered_recv, rx.op_flags));
        let flags = OpFlags::COMPLETION.bits();
        let size = u64::from(limits::DEFAULT_RX_SIZE);
        assert_eq!(rx, Ok((size, limits::DEFAULT_BUFFERED, flags)));
        let tx = shared_tx(&Info::ANY.tx).map(|tx| tx.size);
        assert_eq!(tx, Ok(u64::from(limits::DEFAULT_TX_SIZE)));
    }

    #[test]
    fn a_context_has_what_each_type_needs_of_it() {
        for kind in [Kind::RDM, Kind::MSG, Kind::DGRAM] {
            let (rx, tx) = (used_of_rx(kind.caps), used_of_tx(kind.caps));
            assert!(rx.contains(Caps::RECV) && !rx.contains(Caps::SEND | Caps::REMOTE_WRITE));
            assert!(tx.contains(Caps::SEND) && !tx.contains(Caps::RECV));
            for (hint, needs) in [(0, rx), (rx.bits(), rx)] {
                let hint = RxAttr {
                    caps: hint,
                    ..Info::ANY.rx
                };
                let caps = shared_rx(&hint).map(|rx| rx.caps & needs.bits());
                assert_eq!(caps, Ok(needs.bits()));
            }
            let hint = TxAttr {
                caps: tx.bits(),
                ..Info::ANY.tx
            };
            let caps = shared_tx(&hint).map(|found| found.caps & tx.bits());
            assert_eq!(caps, Ok(tx.bits()));
        }
    }

    #[test]
    fn attributes_that_no_type_has_do_not_match() {
        let max = u64::from(limits::MAX_QUEUE);
        for (hint, error) in [
            (
                RxAttr {
                    caps: Caps::SEND.bits(),
                    ..Info::ANY.rx
                },
                HintMismatch::RxCaps,
            ),
            (
                RxAttr {
                    size: max + 1,
                    ..Info::ANY.rx
                },
                HintMismatch::RxSize,
            ),
            (
                RxAttr {
                    total_buffered_recv: limits::MAX_BUFFERED + 1,
                    ..Info::ANY.rx
                },
                HintMismatch::RxTotalBufferedRecv,
            ),
        ] {
            assert_eq!(shared_rx(&hint), Err(error));
        }
        let large = TxAttr {
            size: max + 1,
            ..Info::ANY.tx
        };
        assert_eq!(shared_tx(&large), Err(HintMismatch::TxSize));
    }
}
