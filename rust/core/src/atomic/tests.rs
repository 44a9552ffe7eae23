// SPDX-License-Identifier: GPL-2.0
//! Tests of the functions of atomics.

#[cfg_attr(kfi_kunit, kernel::prelude::kunit_tests(kfi_core_atomic))]
mod suite {
    use super::super::{
        contended::{
            Contended,
            Contention,
            Rounds,
            BURST,
            ROUNDS, //
        },
        *, //
    };

    const FORMS: [OpType; 3] = [
        OpType::Atomic,
        OpType::FetchAtomic,
        OpType::CompareAtomic, //
    ];

    fn datatypes() -> impl Iterator<Item = Datatype> {
        (0..14).flat_map(Datatype::try_from)
    }

    fn ops() -> impl Iterator<Item = AtomicOp> {
        (0..19).flat_map(AtomicOp::try_from)
    }

    /// All functions.
    fn functions() -> impl Iterator<Item = Function> {
        FORMS.into_iter().flat_map(|kind| {
            ops().flat_map(move |op| {
                datatypes().flat_map(move |datatype| Function::new(kind, op, datatype))
            })
        })
    }

    #[test]
    fn each_form_has_its_operations() {
        let count = |kind: OpType, datatype: Datatype| {
            ops()
                .filter(|op| Function::new(kind, *op, datatype).is_ok())
                .count()
        };
        for (datatype, expected) in [
            (Datatype::Int8, [11, 12, 7]),
            (Datatype::Uint64, [11, 12, 7]),
            (Datatype::Float, [8, 9, 6]),
            (Datatype::Double, [8, 9, 6]),
            (Datatype::FloatComplex, [6, 7, 2]),
            (Datatype::DoubleComplex, [6, 7, 2]),
            (Datatype::LongDouble, [0, 0, 0]),
            (Datatype::LongDoubleComplex, [0, 0, 0]),
        ] {
            assert_eq!(FORMS.map(|kind| count(kind, datatype)), expected);
        }
        let new = |kind, op| Function::new(kind, op, Datatype::Int32).err();
        let unsupported = Some(Errno::EOPNOTSUPP);
        assert_eq!(new(OpType::Atomic, AtomicOp::AtomicRead), unsupported);
        assert_eq!(new(OpType::Atomic, AtomicOp::Cswap), unsupported);
        assert_eq!(new(OpType::CompareAtomic, AtomicOp::Sum), unsupported);
        assert_eq!(new(OpType::Write, AtomicOp::Sum), Some(Errno::EINVAL));
    }

    #[test]
    fn connected_endpoints_have_the_atomics_of_rc() {
        for function in functions() {
            let max = function.max_count(EpType::Msg, true);
            let is_word = matches!(function.datatype(), Datatype::Int64 | Datatype::Uint64);
            let expected = match function.op() {
                AtomicOp::Sum | AtomicOp::Cswap if is_word => Ok(1),
                _ => Err(Errno::EOPNOTSUPP),
            };
            assert_eq!(max, expected);
            let none = function.max_count(EpType::Dgram, true);
            assert_eq!(none, Err(Errno::EOPNOTSUPP));
        }
    }

    #[test]
    fn reliable_datagrams_have_all_that_the_host_computes() {
        for function in functions() {
            let size = function.datatype().size();
            // A division that may panic would end the function for objtool.
            let count = limits::MAX_ATOMIC_SIZE.checked_div(size).unwrap_or(0);
            for ep_type in [EpType::Rdm, EpType::Unspec] {
                assert_eq!(function.max_count(ep_type, true), Ok(count));
                let without = match function.datatype().class() {
                    Class::Integer => Ok(count),
                    _ => Err(Errno::EOPNOTSUPP),
                };
                assert_eq!(function.max_count(ep_type, false), without);
            }
        }
    }

    #[test]
    fn lengths_are_whole_elements_up_to_the_maximum() {
        for function in functions() {
            let size = function.datatype().size() as u64;
            let check = |len| function.check(EpType::Rdm, true, len);
            assert_eq!(check(0), Err(Errno::EINVAL));
            assert_eq!(check(size), Ok(()));
            assert_eq!(check(4096), Ok(()));
            assert_eq!(check(4096 + size), Err(Errno::EMSGSIZE));
            if size > 1 {
                assert_eq!(check(size - 1), Err(Errno::EINVAL));
                assert_eq!(check(4097), Err(Errno::EINVAL));
            }
            if function.rc().is_some() {
                let check = |len| function.check(EpType::Msg, true, len);
                let results = [0, 7, 8, 9, 16].map(check);
                let (invalid, long) = (Err(Errno::EINVAL), Err(Errno::EMSGSIZE));
                assert_eq!(results, [invalid, invalid, Ok(()), invalid, long]);
            }
        }
    }

    #[test]
    fn pieces_are_aligned_and_whole() {
        for function in functions() {
            let datatype = function.datatype();
            let (size, align) = (datatype.size() as u64, datatype.align() as u64);
            assert_eq!(align, size.min(8));
            assert_eq!(function.check_piece(0, size), Ok(()));
            assert_eq!(function.check_piece(align, 3 * size), Ok(()));
            assert_eq!(function.check_piece(align, 0), Ok(()));
            if align > 1 {
                assert_eq!(function.check_piece(align / 2, size), Err(Errno::EINVAL));
                assert_eq!(function.check_piece(0, size / 2), Err(Errno::EINVAL));
            }
        }
    }

    #[test]
    fn accesses_depend_on_the_form() {
        let (read, write) = (Access::REMOTE_READ, Access::REMOTE_WRITE);
        for function in functions() {
            let expected = match (function.kind(), function.op()) {
                (_, AtomicOp::AtomicRead) => read,
                (OpType::Atomic, _) => write,
                _ => read | write,
            };
            assert_eq!(function.target_access(), expected);
            let caps = function.target_caps();
            assert!(caps.contains(Caps::ATOMIC));
            assert_eq!(caps.contains(Caps::REMOTE_READ), expected.contains(read));
            assert_eq!(caps.contains(Caps::REMOTE_WRITE), expected.contains(write));
            let input = match (function.op(), function.kind()) {
                (AtomicOp::AtomicRead, _) => 0,
                (_, OpType::CompareAtomic) => 32,
                _ => 16,
            };
            assert_eq!(function.input_len(16), input);
        }
    }

    #[test]
    fn bits_outside_an_element_do_not_matter() {
        for function in functions() {
            let (datatype, bits) = (function.datatype(), 8 * function.datatype().size() as u32);
            let outside = u64::MAX.checked_shl(bits).unwrap_or(0);
            let value = integer::apply(&function, 3, 5, 3);
            assert_eq!(value.is_some(), datatype.class() == Class::Integer);
            let other = integer::apply(&function, 3 | outside, 5 | outside, 3 | outside);
            assert_eq!(other, value);
            assert_eq!(value.unwrap_or(0) & outside, 0);
        }
    }

    /// An element that others change: `fails` rounds of it fail.
    struct Element {
        at_once: bool,
        fails: u32,
        rounds: u32,
        pauses: u32,
        /// The longest burst.
        longest: u32,
    }

    impl Element {
        fn failing(fails: u32) -> Self {
            Self {
                at_once: false,
                fails,
                rounds: 0,
                pauses: 0,
                longest: 0,
            }
        }
    }

    impl Contended for Element {
        fn change_at_once(&mut self) -> Option<u64> {
            self.at_once.then_some(7)
        }

        fn burst(&mut self, rounds: &mut u32) -> Option<u64> {
            self.longest = self.longest.max(*rounds);
            while *rounds > 0 {
                self.rounds += 1;
                if self.rounds > self.fails {
                    return Some(8);
                }
                if self.rounds > ROUNDS {
                    // Without a bound the test would not end.
                    return Some(9);
                }
                *rounds -= 1;
            }
            None
        }

        fn pause(&mut self) {
            self.pauses += 1;
        }
    }

    #[test]
    fn a_contended_element_is_tried_again() {
        for (fails, pauses) in [(0, 0), (1, 0), (63, 0), (64, 1), (65, 1), (6400, 100)] {
            let mut element = Element::failing(fails);
            assert_eq!(Rounds::new().change(&mut element), Ok(8));
            assert_eq!((element.rounds, element.pauses), (fails + 1, pauses));
            assert!(element.longest <= BURST);
        }
    }

    #[test]
    fn an_instruction_needs_no_rounds() {
        let mut element = Element::failing(u32::MAX);
        element.at_once = true;
        assert_eq!(Rounds::new().change(&mut element), Ok(7));
        assert_eq!((element.rounds, element.pauses), (0, 0));
    }

    #[test]
    fn rounds_are_bounded() {
        let mut element = Element::failing(u32::MAX);
        assert_eq!(Rounds::new().change(&mut element), Err(Contention));
        assert_eq!((element.rounds, element.pauses), (ROUNDS, ROUNDS / BURST));
        // The last round that there is.
        let mut element = Element::failing(ROUNDS - 1);
        assert_eq!(Rounds::new().change(&mut element), Ok(8));
    }

    /// The elements of an operation have one bound together, and one pause for each 64 rounds.
    #[test]
    fn elements_of_an_operation_share_its_rounds() {
        let mut rounds = Rounds::new();
        let (mut all, mut pauses) = (0, 0);
        loop {
            let mut element = Element::failing(48);
            let changed = rounds.change(&mut element);
            pauses += element.pauses;
            if changed.is_err() {
                all += element.rounds;
                break;
            }
            all += 48;
        }
        assert_eq!((all, pauses), (ROUNDS, ROUNDS / BURST));
        // An element that nobody else changes any more is not tried: the operation has failed.
        let mut last = Element::failing(0);
        assert_eq!(rounds.change(&mut last), Err(Contention));
        assert_eq!(last.rounds, 0);
    }
}
