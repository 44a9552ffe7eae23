// SPDX-License-Identifier: GPL-2.0

//! A model test: the EQ against two lists.

use crate::support::TreeMap;
use kfi_core::{
    due::Key,
    eq::{
        Armed,
        ErrEvent,
        Event,
        EventQueue,
        Mode,
        Push,
        Read,
        MAX_EVENT, //
    },
    errno::Errno, //
};
use proptest::{
    prelude::*,
    sample::Index, //
};
use std::collections::VecDeque;

/// The objects of events.
const SOURCES: std::ops::Range<u64> = 0..3;

#[derive(Clone, Debug)]
enum Op {
    /// An event about an object.
    Push(u64, Vec<u8>),
    PushRequest(u64, Vec<u8>),
    Write(Vec<u8>),
    PushErr(u64),
    /// The object is closed.
    RemoveEventsOf(u64),
    /// Reads with room for this many bytes.
    Read(usize, bool),
    ReadErr(bool),
    Arm,
    Disarm(Index),
}

fn data() -> impl Strategy<Value = Vec<u8>> {
    prop_oneof![
        4 => prop::collection::vec(any::<u8>(), 0..6),
        1 => prop::collection::vec(any::<u8>(), MAX_EVENT - 1..MAX_EVENT + 3),
    ]
}

fn op() -> impl Strategy<Value = Op> {
    prop_oneof![
        3 => (SOURCES, data()).prop_map(|(source, data)| Op::Push(source, data)),
        3 => (SOURCES, data()).prop_map(|(source, data)| Op::PushRequest(source, data)),
        3 => data().prop_map(Op::Write),
        2 => SOURCES.prop_map(Op::PushErr),
        1 => SOURCES.prop_map(Op::RemoveEventsOf),
        6 => (prop_oneof![3 => Just(MAX_EVENT), 1 => 0..6_usize], any::<bool>())
            .prop_map(|(room, peek)| Op::Read(room, peek)),
        3 => any::<bool>().prop_map(Op::ReadErr),
        3 => Just(Op::Arm),
        1 => any::<Index>().prop_map(Op::Disarm),
    ]
}

fn mode(peek: bool) -> Mode {
    if peek {
        Mode::Peek
    } else {
        Mode::Take
    }
}

fn run(slots: usize, error_slots: usize, ops: Vec<Op>) -> Result<(), TestCaseError> {
    let mut events = vec![Event::EMPTY; slots];
    let mut errors = vec![ErrEvent::default(); error_slots];
    let mut eq = EventQueue::new(&mut events[..], &mut errors[..], TreeMap::default());
    // With the object, unless it was written.
    let mut model_events: VecDeque<(Option<u64>, u32, Vec<u8>)> = VecDeque::new();
    let mut model_errors: VecDeque<(u64, u32)> = VecDeque::new();
    let mut sleepers: Vec<(u32, Key)> = Vec::new();
    let (mut overruns, mut to_report) = (0, false);
    prop_assert_eq!(eq.capacity(), slots);

    for (name, op) in (0..).zip(ops) {
        let mut woken = Vec::new();
        let wake = |name| woken.push(name);
        let mut wakes = false;
        match op {
            Op::Push(source, data) => {
                let expected = if data.len() > MAX_EVENT {
                    Err(Errno::EINVAL)
                } else if model_events.len() < slots {
                    model_events.push_back((Some(source), name, data.clone()));
                    wakes = true;
                    Ok(Push::Queued)
                } else {
                    (overruns, to_report, wakes) = (overruns + 1, true, true);
                    Ok(Push::Overrun)
                };
                prop_assert_eq!(eq.push(name, source, &data, wake), expected);
            }
            Op::PushRequest(source, data) => {
                let expected = if data.len() > MAX_EVENT {
                    Err(Errno::EINVAL)
                } else if 2 * model_events.len() < slots {
                    model_events.push_back((Some(source), name, data.clone()));
                    wakes = true;
                    Ok(())
                } else {
                    Err(Errno::EAGAIN)
                };
                prop_assert_eq!(eq.push_request(name, source, &data, wake), expected);
            }
            Op::Write(data) => {
                let expected = if data.len() > MAX_EVENT {
                    Err(Errno::EINVAL)
                } else if model_events.len() < slots {
                    model_events.push_back((None, name, data.clone()));
                    wakes = true;
                    Ok(())
                } else {
                    Err(Errno::EAGAIN)
                };
                prop_assert_eq!(eq.write(name, &data, wake), expected);
            }
            Op::RemoveEventsOf(source) => {
                model_events.retain(|(about, ..)| *about != Some(source));
                model_errors.retain(|(about, _)| *about != source);
                eq.remove_events_of(source);
            }
            Op::PushErr(source) => {
                wakes = true;
                let expected = if model_errors.len() < error_slots {
                    model_errors.push_back((source, name));
                    Push::Queued
                } else {
                    (overruns, to_report) = (overruns + 1, true);
                    Push::Overrun
                };
                let error = ErrEvent {
                    fid: source,
                    err: name,
                    ..ErrEvent::default()
                };
                prop_assert_eq!(eq.push_err(error, wake), expected);
            }
            Op::Read(room, peek) => {
                let mut buf = [0xee; MAX_EVENT];
                let read = eq.read(&mut buf[..room], mode(peek));
                if !model_errors.is_empty() {
                    prop_assert_eq!(read, Err(Errno::KFI_EAVAIL));
                } else if let Some((_, event, data)) = model_events.front() {
                    if data.len() > room {
                        prop_assert_eq!(read, Err(Errno::KFI_ETOOSMALL));
                        prop_assert!(buf.iter().all(|byte| *byte == 0xee));
                    } else {
                        let (event, len) = (*event, data.len());
                        prop_assert_eq!(read, Ok(Read { event, len }));
                        prop_assert_eq!(&buf[..len], &data[..]);
                        prop_assert!(buf[len..].iter().all(|byte| *byte == 0xee));
                        if !peek {
                            model_events.pop_front();
                        }
                    }
                } else if to_report {
                    prop_assert_eq!(read, Err(Errno::KFI_EOVERRUN));
                    to_report = peek;
                } else {
                    prop_assert_eq!(read, Err(Errno::EAGAIN));
                }
            }
            Op::ReadErr(peek) => {
                let expected = model_errors.front().copied().ok_or(Errno::EAGAIN);
                let read = eq.read_err(mode(peek)).map(|error| (error.fid, error.err));
                prop_assert_eq!(read, expected);
                if !peek {
                    model_errors.pop_front();
                }
            }
            Op::Arm => match eq.arm(name) {
                Armed::Ready(_) => prop_assert!(eq.ready()),
                Armed::Waiting(key) => {
                    prop_assert!(!eq.ready());
                    sleepers.push((name, key));
                }
            },
            Op::Disarm(index) => {
                if !sleepers.is_empty() {
                    let (sleeper, key) = sleepers.remove(index.index(sleepers.len()));
                    prop_assert_eq!(eq.disarm(&key), Some(sleeper));
                }
            }
        }
        let expected: Vec<u32> = if wakes {
            sleepers.drain(..).map(|(sleeper, _)| sleeper).collect()
        } else {
            Vec::new()
        };
        prop_assert_eq!(woken, expected);

        let ready = !model_errors.is_empty() || !model_events.is_empty() || to_report;
        prop_assert_eq!(eq.ready(), ready);
        prop_assert_eq!(eq.events(), model_events.len());
        prop_assert_eq!(eq.errors(), model_errors.len());
        prop_assert_eq!(eq.overruns(), overruns);
        prop_assert_eq!(eq.sleepers() as usize, sleepers.len());
    }
    Ok(())
}

proptest! {
    #![proptest_config(ProptestConfig {
        cases: 3000,
        failure_persistence: None,
        ..ProptestConfig::default()
    })]

    #[test]
    fn events_errors_and_sleepers(
        slots in 0..5_usize,
        error_slots in 0..4_usize,
        ops in prop::collection::vec(op(), 0..60),
    ) {
        run(slots, error_slots, ops)?;
    }
}
