// SPDX-License-Identifier: GPL-2.0
//! A model test: the slab against a sorted vector.

use kfi_core::slab::{
    Full,
    Id,
    Removed,
    Slab,
    Slot, //
};
use proptest::prelude::*;

#[derive(Clone, Debug)]
enum Step {
    Push,
    Remove(usize),
    RemoveOld(usize),
    PutBack(usize),
    Change(usize),
}

fn step() -> impl Strategy<Value = Step> {
    prop_oneof![
        4 => Just(Step::Push),
        3 => any::<usize>().prop_map(Step::Remove),
        1 => any::<usize>().prop_map(Step::RemoveOld),
        2 => any::<usize>().prop_map(Step::PutBack),
        1 => any::<usize>().prop_map(Step::Change),
    ]
}

fn pick<T>(list: &[T], at: usize) -> Option<usize> {
    at.checked_rem(list.len())
}

proptest! {
    #[test]
    fn a_slab_behaves_like_a_sorted_vector(
        capacity in 0usize..8,
        steps in prop::collection::vec(step(), 0..200),
    ) {
        let slots: Vec<Slot<u64>> = (0..capacity).map(|_| Slot::new()).collect();
        let mut slab = Slab::new(slots);
        // Sequence number, value and id; sorted by the sequence number.
        let mut model: Vec<(u64, u64, Id)> = Vec::new();
        let mut old: Vec<Id> = Vec::new();
        let mut out: Vec<Removed<u64>> = Vec::new();
        let mut pushed = 0u64;
        for step in steps {
            match step {
                Step::Push => match slab.push_back(pushed * 10) {
                    Ok(id) => {
                        prop_assert!(model.len() < capacity);
                        prop_assert!(!old.contains(&id));
                        model.push((pushed, pushed * 10, id));
                        pushed += 1;
                    }
                    Err(Full(value)) => {
                        prop_assert_eq!(model.len(), capacity);
                        prop_assert_eq!(value, pushed * 10);
                    }
                },
                Step::Remove(at) => {
                    if let Some(at) = pick(&model, at) {
                        let (seq, value, id) = model.remove(at);
                        let removed = slab.remove(id);
                        prop_assert_eq!(removed, Some(Removed { seq, value }));
                        old.push(id);
                        out.push(Removed { seq, value });
                    }
                }
                Step::RemoveOld(at) => {
                    if let Some(at) = pick(&old, at) {
                        prop_assert_eq!(slab.remove(old[at]), None);
                        prop_assert_eq!(slab.get(old[at]), None);
                        prop_assert_eq!(slab.next(old[at]), None);
                    }
                }
                Step::PutBack(at) => {
                    if let Some(at) = pick(&out, at) {
                        let removed = out.remove(at);
                        match slab.put_back(removed) {
                            Ok(id) => {
                                let at = model.partition_point(|entry| entry.0 < removed.seq);
                                model.insert(at, (removed.seq, removed.value, id));
                            }
                            Err(Full(back)) => {
                                prop_assert_eq!(model.len(), capacity);
                                prop_assert_eq!(back, removed);
                            }
                        }
                    }
                }
                Step::Change(at) => {
                    if let Some(at) = pick(&model, at) {
                        let entry = &mut model[at];
                        entry.1 += 1;
                        *slab.get_mut(entry.2).unwrap() += 1;
                    }
                }
            }
            prop_assert_eq!(slab.len() as usize, model.len());
            prop_assert_eq!(slab.is_empty(), model.is_empty());
            prop_assert_eq!(slab.is_full(), model.len() == capacity);
            let seen: Vec<(Id, u64)> = slab.iter().map(|(id, value)| (id, *value)).collect();
            let want: Vec<(Id, u64)> = model.iter().map(|entry| (entry.2, entry.1)).collect();
            prop_assert_eq!(&seen, &want);
            let mut walked = Vec::new();
            let mut cursor = slab.front();
            while let Some(id) = cursor {
                walked.push((id, *slab.get(id).unwrap()));
                cursor = slab.next(id);
            }
            prop_assert_eq!(walked, want);
        }
        let mut drained = Vec::new();
        while let Some(removed) = slab.pop_front() {
            drained.push((removed.seq, removed.value));
        }
        let want: Vec<(u64, u64)> = model.iter().map(|entry| (entry.0, entry.1)).collect();
        prop_assert_eq!(drained, want);
        // All slots are free again.
        for value in 0..capacity {
            prop_assert!(slab.push_back(value as u64).is_ok());
        }
        prop_assert_eq!(slab.push_back(99), Err(Full(99)));
    }
}
