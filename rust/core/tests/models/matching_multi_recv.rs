// SPDX-License-Identifier: GPL-2.0
//! A model test: a multi-receive buffer against its definition, byte by byte.

use kfi_core::multi_recv::{
    MultiRecv,
    Release, //
};
use proptest::prelude::*;

#[derive(Clone, Debug)]
enum Step {
    Take(u64),
    Finish,
    Cancel,
}

fn step() -> impl Strategy<Value = Step> {
    prop_oneof![
        5 => (0u64..12).prop_map(Step::Take),
        1 => any::<u64>().prop_map(Step::Take),
        4 => Just(Step::Finish),
        1 => Just(Step::Cancel),
    ]
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(1000))]

    #[test]
    fn a_buffer_is_used_up_and_released_once(
        len in 0u64..64,
        min in 0u64..16,
        steps in prop::collection::vec(step(), 0..60),
    ) {
        let mut buffer = MultiRecv::new(len, min);
        let mut written = vec![false; len as usize];
        let mut outstanding = 0u32;
        let mut full = false;
        let mut cancelled = false;
        let mut releases = 0;
        for step in steps {
            let free = written.iter().filter(|byte| !**byte).count() as u64;
            match step {
                Step::Take(msg_len) => match buffer.take(msg_len) {
                    Some(part) => {
                        prop_assert!(!full && !cancelled);
                        let placed = part.placement.len;
                        prop_assert_eq!(placed, msg_len.min(free));
                        prop_assert_eq!(part.placement.olen, msg_len - placed);
                        // The part follows the bytes that were already assigned, and overwrites
                        // none.
                        prop_assert_eq!(part.offset, len - free);
                        for at in part.offset..part.offset + placed {
                            prop_assert!(!std::mem::replace(&mut written[at as usize], true));
                        }
                        outstanding += 1;
                        full = free - placed < min.max(1);
                        prop_assert_eq!(part.closes, full);
                    }
                    None => prop_assert!(full || cancelled),
                },
                Step::Finish => {
                    let before = outstanding;
                    outstanding = outstanding.saturating_sub(1);
                    let last = before == 1 && (full || cancelled);
                    let want = match (last, full) {
                        (false, _) => Release::No,
                        (true, true) => Release::Flag,
                        (true, false) => Release::Cancelled,
                    };
                    prop_assert_eq!(buffer.finish(), want);
                    releases += u32::from(last);
                }
                Step::Cancel => {
                    let now = !full && !cancelled && outstanding == 0;
                    cancelled = cancelled || !full;
                    prop_assert_eq!(buffer.cancel(), now);
                    releases += u32::from(now);
                }
            }
            prop_assert_eq!(buffer.outstanding(), outstanding);
            prop_assert_eq!(buffer.is_closed(), full || cancelled);
            prop_assert!(releases <= 1);
            prop_assert_eq!(releases == 1, (full || cancelled) && outstanding == 0);
        }
    }
}
