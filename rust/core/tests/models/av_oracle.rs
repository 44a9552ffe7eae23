// SPDX-License-Identifier: GPL-2.0
//! A model test: the address vector against a list of its contents.

use core::net::Ipv4Addr;
use kfi_core::{
    addr::SockAddr,
    av::{
        index_len,
        Av,
        AvSlot,
        IndexSlot, //
    },
    enums::AvType,
    errno::Errno,
    flags::KFI_ADDR_NOTAVAIL, //
};
use proptest::prelude::*;

#[derive(Clone, Debug)]
enum Step {
    Insert(u16),
    Remove(usize),
    RemoveOld(usize),
    /// Removes all or none, using marks: entries of the list, and possibly a value that was removed
    /// before.
    RemoveAll(Vec<usize>, Option<usize>),
    Lookup(u64),
    Grow(usize),
}

fn step() -> impl Strategy<Value = Step> {
    prop_oneof![
        6 => (0u16..12).prop_map(Step::Insert),
        4 => any::<usize>().prop_map(Step::Remove),
        1 => any::<usize>().prop_map(Step::RemoveOld),
        2 => (prop::collection::vec(any::<usize>(), 1..4), prop::option::of(any::<usize>()))
            .prop_map(|(at, old)| Step::RemoveAll(at, old)),
        1 => any::<u64>().prop_map(Step::Lookup),
        1 => (0usize..6).prop_map(Step::Grow),
    ]
}

fn addr(port: u16) -> SockAddr {
    SockAddr::v4(Ipv4Addr::new(10, 0, 0, 1), port)
}

type Lists = Av<Vec<AvSlot>, Vec<IndexSlot>>;

/// Removes all or none, like the module.
fn remove_all(av: &mut Lists, values: &[u64]) -> Result<(), Errno> {
    for (marked, value) in values.iter().enumerate() {
        if let Err(error) = av.mark(*value) {
            for value in &values[..marked] {
                av.unmark(*value);
            }
            return Err(error);
        }
    }
    for value in values {
        av.remove(*value)?;
    }
    Ok(())
}

fn storage(len: usize) -> (Vec<AvSlot>, Vec<IndexSlot>) {
    let index = (0..index_len(len)).map(|_| IndexSlot::new()).collect();
    ((0..len).map(|_| AvSlot::new()).collect(), index)
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(1000))]

    #[test]
    fn an_av_behaves_like_a_list(
        map in any::<bool>(),
        seed in any::<u64>(),
        capacity in 0usize..10,
        steps in prop::collection::vec(step(), 0..150),
    ) {
        let kind = if map { AvType::Map } else { AvType::Table };
        let (slots, index) = storage(capacity);
        let mut capacity = capacity;
        let mut av = Av::new(kind, slots, index, seed).unwrap();
        // The values and ports in the order of insertion, and the removed values.
        let mut model: Vec<(u64, u16)> = Vec::new();
        let mut old: Vec<u64> = Vec::new();
        for step in steps {
            match step {
                Step::Insert(port) => match av.insert(addr(port)) {
                    Ok(value) => {
                        prop_assert!(model.len() < capacity);
                        prop_assert!(model.iter().all(|entry| entry.0 != value));
                        if map {
                            prop_assert!(!old.contains(&value));
                            prop_assert!(value < 1 << 48);
                        } else {
                            let lowest = (0u64..).find(|n| model.iter().all(|e| e.0 != *n));
                            prop_assert_eq!(Some(value), lowest);
                        }
                        model.push((value, port));
                    }
                    Err(error) => {
                        prop_assert_eq!(error, Errno::ENOSPC);
                        prop_assert_eq!(model.len(), capacity);
                    }
                },
                Step::Remove(at) => {
                    if let Some(at) = at.checked_rem(model.len()) {
                        let (value, port) = model.remove(at);
                        prop_assert_eq!(av.remove(value), Ok(addr(port)));
                        prop_assert_eq!(av.remove(value), Err(Errno::ENOENT));
                        old.push(value);
                    }
                }
                Step::RemoveOld(at) => {
                    if let Some(at) = at.checked_rem(old.len()) {
                        if map {
                            prop_assert_eq!(av.remove(old[at]), Err(Errno::ENOENT));
                        }
                    }
                }
                Step::RemoveAll(at, bad) => {
                    let pick = |at: &usize| Some(model[at.checked_rem(model.len())?].0);
                    let mut values: Vec<u64> = at.iter().filter_map(pick).collect();
                    if let Some(at) = bad.and_then(|at| at.checked_rem(old.len())) {
                        values.push(old[at]);
                    }
                    // Each value is in the list, and occurs once.
                    let good = values.iter().enumerate().all(|(at, value)| {
                        model.iter().any(|entry| entry.0 == *value) && !values[..at].contains(value)
                    });
                    if good {
                        prop_assert_eq!(remove_all(&mut av, &values), Ok(()));
                        model.retain(|entry| !values.contains(&entry.0));
                        old.extend(&values);
                    } else {
                        prop_assert_eq!(remove_all(&mut av, &values), Err(Errno::ENOENT));
                        // No mark is left.
                        for (value, _) in &model {
                            prop_assert_eq!(av.mark(*value), Ok(()));
                            av.unmark(*value);
                        }
                    }
                }
                Step::Lookup(value) => {
                    let known = model.iter().find(|entry| entry.0 == value);
                    let want = known.map(|entry| addr(entry.1)).ok_or(Errno::ENOENT);
                    prop_assert_eq!(av.lookup(value), want);
                }
                Step::Grow(by) => {
                    capacity += by;
                    let (slots, index) = storage(capacity);
                    prop_assert!(av.grow(slots, index).is_ok());
                }
            }
            prop_assert_eq!(av.len() as usize, model.len());
            prop_assert_eq!(av.capacity(), capacity);
            prop_assert_eq!(av.is_full(), model.len() == capacity);
            for (value, port) in &model {
                prop_assert_eq!(av.lookup(*value), Ok(addr(*port)));
            }
            for port in 0..12 {
                let first = model.iter().find(|entry| entry.1 == port).map(|entry| entry.0);
                prop_assert_eq!(av.reverse(&addr(port)), first);
                prop_assert_eq!(av.source(&addr(port)), first.unwrap_or(KFI_ADDR_NOTAVAIL));
            }
            let mut seen: Vec<_> = av.iter().collect();
            let mut want: Vec<_> = model.iter().map(|entry| (entry.0, addr(entry.1))).collect();
            let index = |entry: &(u64, SockAddr)| entry.0 & 0xf_ffff;
            prop_assert!(seen.windows(2).all(|pair| index(&pair[0]) < index(&pair[1])));
            seen.sort();
            want.sort();
            prop_assert_eq!(seen, want);
        }
    }
}

/// Inserting and removing one address 10,000 times costs no more than doing so with 10,000
/// addresses.
#[test]
fn equal_addresses_do_not_slow_down() {
    let (slots, index) = storage(10_000);
    let mut av = Av::new(AvType::Map, slots, index, 1).unwrap();
    let values: Vec<u64> = (0..10_000).map(|_| av.insert(addr(1)).unwrap()).collect();
    assert_eq!(av.reverse(&addr(1)), Some(values[0]));
    for pair in values.windows(2) {
        assert_eq!(av.remove(pair[0]), Ok(addr(1)));
        assert_eq!(av.reverse(&addr(1)), Some(pair[1]));
    }
}

/// Of many addresses half are removed: every remaining one is found.
#[test]
fn all_addresses_of_a_full_av_are_found() {
    let (slots, index) = storage(60_000);
    let mut av = Av::new(AvType::Table, slots, index, 0xfeed).unwrap();
    for port in 0..60_000 {
        assert_eq!(av.insert(addr(port)), Ok(u64::from(port)));
    }
    assert_eq!(av.insert(addr(60_000)), Err(Errno::ENOSPC));
    for port in (0..60_000).step_by(2) {
        assert_eq!(av.remove(u64::from(port)), Ok(addr(port)));
    }
    for port in 0..60_000 {
        let want = (port % 2 == 1).then_some(u64::from(port));
        assert_eq!(av.reverse(&addr(port)), want);
    }
}
