// SPDX-License-Identifier: GPL-2.0
//! A model test: all flags of operations against the table of `struct kfabric_op`.

use kfi_core::{
    errno::Errno,
    flags::{
        Caps,
        OpFlags, //
    },
    op::{
        expand_caps,
        reports_success,
        CompletionLevel,
        OpType, //
    }, //
};
use proptest::prelude::*;

const KINDS: [OpType; 9] = [
    OpType::Recv,
    OpType::Send,
    OpType::TRecv,
    OpType::TSend,
    OpType::Read,
    OpType::Write,
    OpType::Atomic,
    OpType::FetchAtomic,
    OpType::CompareAtomic,
];

/// Returns the bits that `struct kfabric_op` allows for a kind.
fn documented(kind: OpType) -> u64 {
    const COMPLETION: u64 = 1 << 24;
    const MORE: u64 = 1 << 18;
    const TRANSMIT: u64 = COMPLETION | MORE | 1 << 26 | 1 << 27 | 1 << 28 | 1 << 21;
    const INJECT: u64 = 1 << 25;
    const TAGGED: u64 = 1 << 3;
    const INJECT_AND_DATA: u64 = INJECT | 1 << 17;
    match kind {
        OpType::Recv => COMPLETION | MORE | 1 << 16,
        OpType::TRecv => COMPLETION | MORE | 1 << 19 | 1 << 59 | 1 << 58,
        OpType::Send | OpType::TSend | OpType::Atomic => TRANSMIT | INJECT_AND_DATA,
        OpType::Write => TRANSMIT | INJECT_AND_DATA | TAGGED,
        OpType::FetchAtomic | OpType::CompareAtomic => TRANSMIT | INJECT,
        OpType::Read => TRANSMIT | TAGGED,
    }
}

/// Returns the bits that have no effect on a kind.
fn without_effect(kind: OpType) -> u64 {
    match kind {
        OpType::FetchAtomic | OpType::CompareAtomic => OpFlags::INJECT.bits(),
        _ => 0,
    }
}

/// Returns some bits, mostly those of operations.
fn flags() -> impl Strategy<Value = u64> {
    let bit = prop_oneof![
        20 => prop::sample::select(vec![3u32, 16, 17, 18, 19, 21, 24, 25, 26, 27, 28, 58, 59]),
        1 => 0u32..64,
    ];
    prop::collection::vec(bit, 0..5)
        .prop_map(|bits| bits.into_iter().fold(0, |flags, bit| flags | 1u64 << bit))
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(20_000))]

    #[test]
    fn flags_are_those_documented(
        kind in prop::sample::select(&KINDS[..]),
        flags in flags(),
        explicit in any::<bool>(),
        defaults in flags(),
    ) {
        let defaults = OpFlags::from_bits_truncate(defaults).without(
            OpFlags::PEEK | OpFlags::CLAIM | OpFlags::DISCARD,
        );
        let (peek, claim, discard) = (flags >> 19 & 1, flags >> 59 & 1, flags >> 58 & 1);
        let search = discard == 0 || peek + claim == 1;
        let good = flags & !documented(kind) == 0 && search;
        let added = if explicit { 0 } else { defaults.bits() & documented(kind) };
        let all = (flags | added) & !without_effect(kind);
        let want = if good { Ok(all) } else { Err(Errno::EINVAL) };
        prop_assert_eq!(kind.flags(flags, explicit, defaults).map(OpFlags::bits), want);
    }

    #[test]
    fn successes_are_reported_as_documented(flags in flags(), selective in any::<bool>()) {
        let flags = OpFlags::from_bits_truncate(flags);
        let asked = flags.contains(OpFlags::COMPLETION) || flags.contains(OpFlags::PEEK);
        let want = asked || !(selective || flags.contains(OpFlags::INJECT));
        prop_assert_eq!(reports_success(flags, selective), want);
    }

    #[test]
    fn levels_grow_with_flags(one in flags(), other in flags()) {
        let levels = OpFlags::INJECT_COMPLETE | OpFlags::TRANSMIT_COMPLETE
            | OpFlags::DELIVERY_COMPLETE;
        let one = OpFlags::from_bits_truncate(one);
        let both = one | OpFlags::from_bits_truncate(other);
        if one.intersects(levels) {
            prop_assert!(CompletionLevel::of(both) >= CompletionLevel::of(one));
        }
    }

    #[test]
    fn completed_capabilities_are_useful(caps in any::<u64>()) {
        let caps = Caps::from_bits_truncate(caps);
        let whole = expand_caps(caps, Caps::ALL);
        prop_assert!(whole.contains(caps));
        prop_assert_eq!(expand_caps(whole, Caps::ALL), whole);
        // The endpoint can initiate an operation, or be a target.
        let useful = KINDS.iter().any(|kind| {
            whole.contains(kind.caps())
                || (matches!(kind, OpType::Read | OpType::Write) && whole.contains(kind.target_caps()))
        });
        // The target of atomics needs only access rights.
        let other = Caps::ATOMIC;
        prop_assert!(useful || whole.intersects(other));
    }

    #[test]
    fn completed_capabilities_stay_within_the_type(caps in any::<u64>(), of in any::<u64>()) {
        let caps = Caps::from_bits_truncate(caps);
        let of = Caps::from_bits_truncate(of);
        let whole = expand_caps(caps, of);
        prop_assert!(whole.contains(caps));
        prop_assert!((caps | of).contains(whole));
    }
}
