// SPDX-License-Identifier: GPL-2.0

//! Tests of the address vector through its public interface.

#[cfg_attr(kfi_kunit, kernel::prelude::kunit_tests(kfi_core_av))]
mod suite {
    use super::super::*;
    use core::net::Ipv4Addr;

    type Lent<'a> = Av<&'a mut [AvSlot], &'a mut [IndexSlot]>;

    const SEED: u64 = 0x0123_4567_89ab_cdef;

    fn addr(port: u16) -> SockAddr {
        SockAddr::v4(Ipv4Addr::new(10, 0, 0, 1), port)
    }

    /// Runs `test` with an empty AV of four slots.
    fn with_av(kind: AvType, test: impl FnOnce(Lent<'_>)) {
        let mut slots = [AvSlot::new(); 4];
        let mut index = [IndexSlot::new(); 8];
        let av = Av::new(kind, &mut slots[..], &mut index[..], SEED);
        assert!(av.is_ok());
        if let Ok(av) = av {
            test(av);
        }
    }

    #[test]
    fn storage_must_fit() {
        let mut slots = [AvSlot::new(); 4];
        for len in [0, 4, 7, 9] {
            let mut index = [IndexSlot::new(); 9];
            let index = index.get_mut(..len).unwrap_or_default();
            assert!(Av::new(AvType::Map, &mut slots[..], index, SEED).is_err());
        }
    }

    #[test]
    fn a_table_takes_the_lowest_free_index() {
        with_av(AvType::Table, |mut av| {
            for n in 0..4 {
                assert_eq!(av.insert(addr(n)), Ok(u64::from(n)));
            }
            assert!(av.is_full());
            assert_eq!(av.insert(addr(9)), Err(Errno::ENOSPC));
            assert_eq!(av.remove(2), Ok(addr(2)));
            assert_eq!(av.remove(1), Ok(addr(1)));
            assert_eq!(av.lookup(1), Err(Errno::ENOENT));
            assert_eq!(av.insert(addr(5)), Ok(1));
            assert_eq!(av.insert(addr(6)), Ok(2));
            assert_eq!(av.lookup(2), Ok(addr(6)));
            assert_eq!(av.len(), 4);
        });
    }

    #[test]
    fn an_unspecified_type_is_a_table() {
        with_av(AvType::Unspec, |mut av| {
            assert_eq!(av.kind(), AvType::Table);
            assert_eq!(av.insert(addr(1)), Ok(0));
            assert_eq!(av.remove(0), Ok(addr(1)));
            assert_eq!(av.insert(addr(1)), Ok(0));
        });
    }

    #[test]
    fn an_old_map_value_names_nothing() {
        with_av(AvType::Map, |mut av| {
            let old = av.insert(addr(1));
            assert!(old.is_ok());
            let Ok(old) = old else {
                return;
            };
            assert_eq!(av.remove(old), Ok(addr(1)));
            let new = av.insert(addr(2));
            assert!(new != Ok(old));
            assert_eq!(av.lookup(old), Err(Errno::ENOENT));
            assert_eq!(av.remove(old), Err(Errno::ENOENT));
            assert_eq!(new.and_then(|new| av.lookup(new)), Ok(addr(2)));
            assert_eq!(new.map(|new| new >> 48), Ok(0));
        });
    }

    #[test]
    fn unknown_values_are_not_found() {
        for kind in [AvType::Table, AvType::Map] {
            with_av(kind, |mut av| {
                assert!(av.insert(addr(1)).is_ok());
                for value in [1, 4, 1 << 20, 1 << 32, 1 << 48, flags::KFI_ADDR_UNSPEC] {
                    assert_eq!(av.lookup(value), Err(Errno::ENOENT));
                    assert_eq!(av.remove(value), Err(Errno::ENOENT));
                }
                assert_eq!(av.len(), 1);
            });
        }
    }

    #[test]
    fn generations_wrap_within_their_bits() {
        with_av(AvType::Map, |mut av| {
            if let Some(slot) = av.slot_mut(0) {
                slot.generation = GENERATION_MASK;
            }
            let last = av.insert(addr(1));
            assert_eq!(last, Ok((1 << 48) - (1 << 20)));
            assert_eq!(last.and_then(|last| av.remove(last)), Ok(addr(1)));
            assert_eq!(av.insert(addr(1)), Ok(0));
        });
    }

    #[test]
    fn the_first_of_equal_addresses_is_the_source() {
        with_av(AvType::Table, |mut av| {
            for n in [7, 8, 7, 7] {
                assert!(av.insert(addr(n)).is_ok());
            }
            assert_eq!(av.reverse(&addr(7)), Some(0));
            assert_eq!(av.remove(2), Ok(addr(7)));
            assert_eq!(av.reverse(&addr(7)), Some(0));
            assert_eq!(av.remove(0), Ok(addr(7)));
            assert_eq!(av.reverse(&addr(7)), Some(3));
            // The new entry has a lower index, but was inserted later.
            assert_eq!(av.insert(addr(7)), Ok(0));
            assert_eq!(av.reverse(&addr(7)), Some(3));
            assert_eq!(av.remove(3), Ok(addr(7)));
            assert_eq!(av.reverse(&addr(7)), Some(0));
            assert_eq!(av.remove(0), Ok(addr(7)));
            assert_eq!(av.reverse(&addr(7)), None);
            assert_eq!(av.source(&addr(7)), flags::KFI_ADDR_NOTAVAIL);
            assert_eq!(av.source(&addr(8)), 1);
        });
    }

    #[test]
    fn an_address_is_marked_once_and_loses_the_mark_on_removal() {
        for kind in [AvType::Table, AvType::Map] {
            with_av(kind, |mut av| {
                let value = av.insert(addr(1));
                assert!(value.is_ok());
                let Ok(value) = value else {
                    return;
                };
                assert_eq!(av.mark(value), Ok(()));
                assert_eq!(av.mark(value), Err(Errno::ENOENT));
                assert_eq!(av.lookup(value), Ok(addr(1)));
                assert_eq!(av.reverse(&addr(1)), Some(value));
                av.unmark(value);
                av.unmark(value);
                assert_eq!(av.mark(value), Ok(()));
                assert_eq!(av.remove(value), Ok(addr(1)));
                assert_eq!(av.mark(value), Err(Errno::ENOENT));
                // The entry is in use again, and is not marked.
                let next = av.insert(addr(2));
                assert_eq!(next.and_then(|next| av.mark(next)), Ok(()));
                assert_eq!(next.and_then(|next| av.remove(next)), Ok(addr(2)));
            });
        }
    }

    #[test]
    fn unknown_values_cannot_be_marked() {
        for kind in [AvType::Table, AvType::Map] {
            with_av(kind, |mut av| {
                assert!(av.insert(addr(1)).is_ok());
                for value in [1, 4, 1 << 20, 1 << 32, 1 << 48, flags::KFI_ADDR_UNSPEC] {
                    assert_eq!(av.mark(value), Err(Errno::ENOENT));
                    av.unmark(value);
                }
                assert_eq!(av.mark(0), Ok(()));
            });
        }
    }

    #[test]
    fn an_old_map_value_marks_nothing() {
        with_av(AvType::Map, |mut av| {
            let old = av.insert(addr(1));
            assert_eq!(old.and_then(|old| av.remove(old)), Ok(addr(1)));
            let new = av.insert(addr(2));
            assert_eq!(old.and_then(|old| av.mark(old)), Err(Errno::ENOENT));
            assert_eq!(new.and_then(|new| av.mark(new)), Ok(()));
            if let Ok(old) = old {
                av.unmark(old);
            }
            // The mark of the new value is still there.
            assert_eq!(new.and_then(|new| av.mark(new)), Err(Errno::ENOENT));
        });
    }

    #[test]
    fn growing_keeps_values() -> Result<(), Errno> {
        let (mut slots, mut index) = ([AvSlot::new(); 4], [IndexSlot::new(); 8]);
        let (mut more_slots, mut more_index) = ([AvSlot::new(); 6], [IndexSlot::new(); 16]);
        let (mut few_slots, mut few_index) = ([AvSlot::new(); 5], [IndexSlot::new(); 16]);
        let mut av = Av::new(AvType::Map, &mut slots[..], &mut index[..], SEED)
            .map_err(|_| Errno::EINVAL)?;
        let gone = av.insert(addr(1));
        assert_eq!(gone.and_then(|gone| av.remove(gone)), Ok(addr(1)));
        let values = [1, 2, 2].map(|n| av.insert(addr(n)));
        let [marked, ..] = values;
        assert_eq!(marked.and_then(|marked| av.mark(marked)), Ok(()));
        assert!(av.grow(&mut more_slots[..], &mut more_index[..]).is_ok());
        assert_eq!(av.capacity(), 6);
        assert_eq!(
            marked.and_then(|marked| av.mark(marked)),
            Err(Errno::ENOENT)
        );
        assert_eq!(av.len(), 3);
        for (value, n) in values.iter().zip([1, 2, 2]) {
            assert_eq!(value.and_then(|value| av.lookup(value)), Ok(addr(n)));
        }
        assert_eq!(gone.and_then(|gone| av.lookup(gone)), Err(Errno::ENOENT));
        let [_, second, _] = values;
        assert_eq!(av.reverse(&addr(2)).ok_or(Errno::ENOENT), second);
        for n in 3..6 {
            assert!(av.insert(addr(n)).is_ok());
        }
        assert_eq!(av.insert(addr(6)), Err(Errno::ENOSPC));
        assert!(av.grow(&mut few_slots[..], &mut few_index[..]).is_err());
        assert_eq!(av.len(), 6);
        Ok(())
    }

    #[test]
    fn the_key_changes_the_hash() {
        assert!(hash(1, &addr(1)) != hash(2, &addr(1)));
        assert!(hash(1, &addr(1)) != hash(1, &addr(2)));
    }
}
