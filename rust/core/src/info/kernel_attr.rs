// SPDX-License-Identifier: GPL-2.0
//! Attributes that only the interface for kernel modules has.
//!
//! `struct kfi_info` has more attributes than [`Info`](super::Info), which programs see too. They
//! are about things that the provider does not have, or has in one way only.
//!
//! | attribute                      | a hint matches if it is        | value in the entry          |
//! |--------------------------------|--------------------------------|-----------------------------|
//! | tclass                         | a label, a DSCP value, or 0    | `KFI_TC_BEST_EFFORT`        |
//! | msg_prefix_size                | anything                       | 0: no prefix is needed      |
//! | max_order_*_size               | 0                              | 0: bytes have no order      |
//! | tx_ctx_cnt, rx_ctx_cnt (ep)    | at most max_ep_tx_ctx or       | the hint; see below         |
//! |                                | max_ep_rx_ctx, or              |                             |
//! |                                | `KFI_SHARED_CONTEXT`           |                             |
//! | auth_key_size (domain)         | 0                              | 0: endpoints have keys      |
//! | tx_ctx_cnt, rx_ctx_cnt (domain) | at most that of the offer     | that of the offer           |
//! | max_ep_tx_ctx, max_ep_rx_ctx   | at most that of the offer      | 64 (RDM), or 1              |
//! | max_ep_stx_ctx, max_ep_srx_ctx | at most that of the offer      | that of the offer: all      |
//! |                                |                                | endpoints can share one     |
//! | caps (domain)                  | a subset of those offered      | those offered               |
//! | max_err_data                   | anything                       | 0: there are no data        |
//!
//! An endpoint has one context of each side inside itself, and so has the entry if the hint of
//! tx_ctx_cnt or rx_ctx_cnt is 0. There is one exception: if the hints have `KFI_NAMED_RX_CTX`, the
//! caller wants a scalable endpoint, and the entry has the largest number. A caller that leaves the
//! number open, as kfilnd does, can then make as many contexts as it needs.

use super::Kind;
use crate::{
    errno::Errno,
    flags::{
        Caps,
        KFI_NAMED_RX_CTX, //
    },
    limits, //
};

/// A traffic class that is a DSCP value.
const TC_DSCP: u32 = 0x100;

/// The traffic class of ordinary traffic, the first label.
const TC_BEST_EFFORT: u32 = 0x200;

/// The last label.
const TC_NETWORK_CTRL: u32 = 0x205;

/// The largest DSCP value.
const DSCP_MAX: u32 = 63;

/// `KFI_SHARED_CONTEXT`: a side of the endpoint uses a shared context.
pub const SHARED_CONTEXT: u64 = u64::MAX;

/// Hints, or attributes of an entry. In hints, 0 leaves the choice to the provider.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[expect(missing_docs, reason = "members of struct kfi_info's attributes")]
pub struct KernelAttr {
    pub tx_tclass: u32,
    pub msg_prefix_size: u64,
    pub max_order_raw_size: u64,
    pub max_order_war_size: u64,
    pub max_order_waw_size: u64,
    pub ep_tx_ctx_cnt: u64,
    pub ep_rx_ctx_cnt: u64,
    pub tx_ctx_cnt: u64,
    pub rx_ctx_cnt: u64,
    pub max_ep_tx_ctx: u64,
    pub max_ep_rx_ctx: u64,
    pub max_ep_stx_ctx: u64,
    pub max_ep_srx_ctx: u64,
    pub domain_caps: u64,
    pub domain_auth_key_size: u64,
    pub max_err_data: u64,
    pub domain_tclass: u32,
}

impl KernelAttr {
    /// Returns the attributes of an entry for endpoints of `kind`. `caps` are the capabilities in
    /// the hints.
    ///
    /// # Errors
    ///
    /// `ENODATA`: a hint does not match.
    pub fn negotiate(&self, kind: &Kind, caps: u64) -> Result<Self, Errno> {
        let is_scalable = caps & KFI_NAMED_RX_CTX != 0;
        let contexts = |hint| match hint {
            0 if is_scalable => Some(kind.max_ctx),
            0 => Some(1),
            hint if hint <= kind.max_ctx || hint == SHARED_CONTEXT => Some(hint),
            _ => None,
        };
        let caps = kind.caps & (Caps::LOCAL_COMM | Caps::REMOTE_COMM);
        let offer = Self {
            tx_tclass: TC_BEST_EFFORT,
            ep_tx_ctx_cnt: contexts(self.ep_tx_ctx_cnt).ok_or(Errno::ENODATA)?,
            ep_rx_ctx_cnt: contexts(self.ep_rx_ctx_cnt).ok_or(Errno::ENODATA)?,
            tx_ctx_cnt: limits::MAX_OBJECTS,
            rx_ctx_cnt: limits::MAX_OBJECTS,
            max_ep_tx_ctx: kind.max_ctx,
            max_ep_rx_ctx: kind.max_ctx,
            max_ep_stx_ctx: limits::MAX_OBJECTS,
            max_ep_srx_ctx: limits::MAX_OBJECTS,
            domain_caps: caps.bits(),
            domain_tclass: TC_BEST_EFFORT,
            ..Self::default()
        };
        let bounds = [
            (self.max_order_raw_size, offer.max_order_raw_size),
            (self.max_order_war_size, offer.max_order_war_size),
            (self.max_order_waw_size, offer.max_order_waw_size),
            (self.tx_ctx_cnt, offer.tx_ctx_cnt),
            (self.rx_ctx_cnt, offer.rx_ctx_cnt),
            (self.max_ep_tx_ctx, offer.max_ep_tx_ctx),
            (self.max_ep_rx_ctx, offer.max_ep_rx_ctx),
            (self.max_ep_stx_ctx, offer.max_ep_stx_ctx),
            (self.max_ep_srx_ctx, offer.max_ep_srx_ctx),
            (self.domain_auth_key_size, offer.domain_auth_key_size),
            // Bits of the hint that are not offered.
            (self.domain_caps & !offer.domain_caps, 0),
        ];
        let classes = [self.tx_tclass, self.domain_tclass];
        if bounds.iter().any(|(hint, max)| hint > max) || !classes.into_iter().all(is_class) {
            return Err(Errno::ENODATA);
        }
        Ok(offer)
    }
}

/// Returns whether a number is a traffic class, or 0.
pub fn is_class(class: u32) -> bool {
    match class {
        0 | TC_BEST_EFFORT..=TC_NETWORK_CTRL => true,
        class => class & !DSCP_MAX == TC_DSCP,
    }
}

#[cfg(any(test, kfi_kunit))]
#[cfg_attr(kfi_kunit, kernel::prelude::kunit_tests(kfi_core_kernel_attr))]
mod tests {
    use super::*;

    const ANY: KernelAttr = KernelAttr {
        tx_tclass: 0,
        msg_prefix_size: 0,
        max_order_raw_size: 0,
        max_order_war_size: 0,
        max_order_waw_size: 0,
        ep_tx_ctx_cnt: 0,
        ep_rx_ctx_cnt: 0,
        tx_ctx_cnt: 0,
        rx_ctx_cnt: 0,
        max_ep_tx_ctx: 0,
        max_ep_rx_ctx: 0,
        max_ep_stx_ctx: 0,
        max_ep_srx_ctx: 0,
        domain_caps: 0,
        domain_auth_key_size: 0,
        max_err_data: 0,
        domain_tclass: 0,
    };

    fn matches(hints: KernelAttr) -> bool {
        hints.negotiate(&Kind::MSG, 0).is_ok()
    }

    #[test]
    fn an_entry_matches_itself() {
        for kind in [Kind::RDM, Kind::MSG, Kind::DGRAM] {
            let entry = ANY.negotiate(&kind, 0);
            assert!(entry.is_ok());
            let Ok(entry) = entry else {
                return;
            };
            assert_eq!(entry.negotiate(&kind, 0), Ok(entry));
            assert_eq!(entry.domain_caps & !kind.caps.bits(), 0);
            assert_eq!((entry.ep_tx_ctx_cnt, entry.ep_rx_ctx_cnt), (1, 1));
        }
    }

    #[test]
    fn one_more_than_the_offer_does_not_match() {
        type Field = fn(&mut KernelAttr) -> &mut u64;
        let entry = ANY.negotiate(&Kind::MSG, 0);
        assert!(entry.is_ok());
        let Ok(entry) = entry else {
            return;
        };
        let more: [(Field, bool); 13] = [
            (|attr| &mut attr.max_order_raw_size, false),
            (|attr| &mut attr.max_order_war_size, false),
            (|attr| &mut attr.max_order_waw_size, false),
            (|attr| &mut attr.ep_tx_ctx_cnt, false),
            (|attr| &mut attr.ep_rx_ctx_cnt, false),
            (|attr| &mut attr.tx_ctx_cnt, false),
            (|attr| &mut attr.rx_ctx_cnt, false),
            (|attr| &mut attr.max_ep_tx_ctx, false),
            (|attr| &mut attr.max_ep_rx_ctx, false),
            (|attr| &mut attr.max_ep_stx_ctx, false),
            (|attr| &mut attr.max_ep_srx_ctx, false),
            (|attr| &mut attr.domain_auth_key_size, false),
            // The consumer has room for more than there is.
            (|attr| &mut attr.max_err_data, true),
        ];
        for (field, fits) in more {
            let mut hints = entry;
            let value = field(&mut hints);
            *value = value.wrapping_add(1);
            assert_eq!(matches(hints), fits);
        }
        assert!(!matches(KernelAttr {
            domain_caps: 1 << 53,
            ..ANY
        }));
    }

    #[test]
    fn each_side_can_use_a_shared_context() {
        for (tx, rx) in [(SHARED_CONTEXT, 0), (0, SHARED_CONTEXT)] {
            let hints = KernelAttr {
                ep_tx_ctx_cnt: tx,
                ep_rx_ctx_cnt: rx,
                ..ANY
            };
            let entry = hints.negotiate(&Kind::MSG, 0);
            let counts = entry.map(|entry| (entry.ep_tx_ctx_cnt, entry.ep_rx_ctx_cnt));
            assert_eq!(counts, Ok((tx.max(1), rx.max(1))));
        }
    }

    #[test]
    fn the_number_of_contexts_is_that_of_the_hint() {
        let counts = |kind: &Kind, caps: u64, tx, rx| {
            let hints = KernelAttr {
                ep_tx_ctx_cnt: tx,
                ep_rx_ctx_cnt: rx,
                ..ANY
            };
            let entry = hints.negotiate(kind, caps);
            entry.map(|entry| (entry.ep_tx_ctx_cnt, entry.ep_rx_ctx_cnt))
        };
        let most = u64::from(limits::MAX_EP_CTX);
        let named = KFI_NAMED_RX_CTX;
        assert_eq!(counts(&Kind::RDM, 0, 0, 0), Ok((1, 1)));
        assert_eq!(counts(&Kind::RDM, 0, 2, most), Ok((2, most)));
        assert_eq!(counts(&Kind::RDM, named, 0, 0), Ok((most, most)));
        assert_eq!(counts(&Kind::RDM, named, 3, 0), Ok((3, most)));
        assert_eq!(counts(&Kind::RDM, 0, most + 1, 0), Err(Errno::ENODATA));
        assert_eq!(counts(&Kind::RDM, named, 0, most + 1), Err(Errno::ENODATA));
        for kind in [&Kind::MSG, &Kind::DGRAM] {
            assert_eq!(counts(kind, 0, 0, 1), Ok((1, 1)));
            assert_eq!(counts(kind, 0, 2, 0), Err(Errno::ENODATA));
            assert_eq!(kind.max_ctx, 1);
        }
        let entry = ANY.negotiate(&Kind::RDM, 0);
        assert_eq!(entry.map(|entry| entry.max_ep_tx_ctx), Ok(most));
        assert_eq!(entry.map(|entry| entry.max_ep_rx_ctx), Ok(most));
    }

    #[test]
    fn traffic_classes_are_labels_and_dscp_values() {
        for (class, fits) in [
            (0, true),
            (1, false),
            (TC_DSCP, true),
            (TC_DSCP | 63, true),
            (TC_DSCP | 64, false),
            (TC_BEST_EFFORT, true),
            (TC_NETWORK_CTRL, true),
            (TC_NETWORK_CTRL + 1, false),
            (u32::MAX, false),
        ] {
            for hints in [
                KernelAttr {
                    tx_tclass: class,
                    ..ANY
                },
                KernelAttr {
                    domain_tclass: class,
                    ..ANY
                },
            ] {
                assert_eq!(matches(hints), fits);
            }
        }
    }
}
