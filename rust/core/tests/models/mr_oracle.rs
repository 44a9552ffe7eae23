// SPDX-License-Identifier: GPL-2.0
//! A model test: the bounds and rights of a region against arithmetic that cannot wrap.

use kfi_core::{
    flags::Access,
    limits::MAX_MSG_SIZE,
    mr::{
        Refusal,
        Region, //
    }, //
};
use proptest::prelude::*;

fn address() -> impl Strategy<Value = u64> {
    prop_oneof![0u64..32, any::<u64>(), u64::MAX - 32..=u64::MAX]
}

fn length() -> impl Strategy<Value = u64> {
    prop_oneof![0u64..32, 0u64..=MAX_MSG_SIZE + 2, any::<u64>()]
}

fn access() -> impl Strategy<Value = u64> {
    prop_oneof![
        4 => (0u64..64).prop_map(|bits| bits << 8),
        1 => (0u64..64).prop_map(|bit| 1 << bit),
    ]
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(20_000))]

    #[test]
    fn a_region_allows_its_bytes(
        base in address(),
        len in length(),
        rights in access(),
        near in prop::option::of(0u64..40),
        addr in address(),
        want in length(),
        need in (0u64..64).prop_map(|bits| bits << 8),
    ) {
        let end = u128::from(base) + u128::from(len);
        let good = rights != 0
            && rights & !Access::ALL.bits() == 0
            && (1..=MAX_MSG_SIZE).contains(&len)
            && end <= u128::from(u64::MAX);
        let region = Region::new(base, len, rights);
        prop_assert_eq!(region.is_ok(), good);
        let Ok(region) = region else { return Ok(()) };

        let addr = near.map_or(addr, |near| base.wrapping_add(near).wrapping_sub(4));
        let need = Access::from_bits(need).unwrap();
        let answer = region.check(addr, want, need);
        if need.bits() & !rights != 0 {
            prop_assert_eq!(answer, Err(Refusal::Rights));
        } else if addr >= base && u128::from(addr) + u128::from(want) <= end {
            prop_assert_eq!(answer, Ok(addr - base));
        } else {
            prop_assert_eq!(answer, Err(Refusal::Bounds));
        }
    }
}
