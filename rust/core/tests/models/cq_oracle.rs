// SPDX-License-Identifier: GPL-2.0

//! A model test: the CQ against a simple model. Entries are numbered, and each must be read once
//! and in order, by call or through the mapped ring. The test covers credits, error entries (those
//! of silent operations included), overruns, threads inside blocking reads and their signals as
//! specified in fi_cq(3), callbacks, and a head that the program makes invalid.

use crate::support::{
    HostWord,
    TreeMap, //
};
use kfi_core::{
    cq::{
        Armed,
        BlockingRead,
        CallbackCondition,
        CompletionQueue,
        Credit,
        ErrEntry,
        Push,
        Records,
        Woken, //
    },
    due::Key,
    errno::Errno,
    ring::{
        Batch,
        Words, //
    },
    word::Word, //
};
use proptest::{
    prelude::*,
    sample::Index, //
};
use std::{
    cell::RefCell,
    collections::VecDeque, //
};

/// A number larger than that of all entries of a test.
const FAR: u64 = 1 << 40;

#[derive(Clone, Debug)]
enum Op {
    Reserve,
    Release(Index),
    Push(Index),
    PushErr(Index),
    PushUncredited,
    PushErrUncredited,
    /// A silent operation fails, with a record or without one.
    PushErrRecorded(bool),
    /// Peeks at up to this many entries.
    Peek(u32),
    /// Continues with the next entries.
    More(u32),
    /// Takes this many of the entries peeked at last.
    Take(u32),
    ReadErr,
    /// The program takes this many entries through the mapped ring.
    Mapped(u32),
    /// The program reports this many more lost completions, or writes an invalid number.
    Acknowledge(u64, bool),
    /// The program writes a head far above the tail, or this much below the head; neither can ever
    /// become valid.
    InvalidateHead(u64, bool),
    /// The program writes a valid head again.
    RepairHead,
    /// A thread enters a blocking read.
    Enter,
    /// An awake thread inside leaves, and may enter again.
    Leave(Index, bool),
    /// An awake thread inside would sleep for this many entries.
    Arm(Index, u64),
    Disarm(Index),
    /// A callback is armed for this number of entries, or for the next completion.
    ArmCallback(Option<u64>),
    /// A callback is disarmed.
    DisarmCallback(Index),
    Signal,
    /// Reads the head of the program.
    ReadHead,
}

fn op() -> impl Strategy<Value = Op> {
    let index = any::<Index>;
    prop_oneof![
        4 => Just(Op::Reserve),
        1 => index().prop_map(Op::Release),
        5 => index().prop_map(Op::Push),
        1 => index().prop_map(Op::PushErr),
        4 => Just(Op::PushUncredited),
        1 => Just(Op::PushErrUncredited),
        3 => prop::bool::weighted(0.8).prop_map(Op::PushErrRecorded),
        4 => (0..10_u32).prop_map(Op::Peek),
        1 => (0..10_u32).prop_map(Op::More),
        4 => (0..10_u32).prop_map(Op::Take),
        2 => Just(Op::ReadErr),
        3 => (0..4_u32).prop_map(Op::Mapped),
        2 => (1..4_u64, any::<bool>()).prop_map(|(by, sound)| Op::Acknowledge(by, sound)),
        1 => (1..4_u64, any::<bool>()).prop_map(|(by, up)| Op::InvalidateHead(by, up)),
        2 => Just(Op::RepairHead),
        3 => Just(Op::Enter),
        1 => (index(), any::<bool>()).prop_map(|(which, again)| Op::Leave(which, again)),
        4 => (index(), prop_oneof![0..6_u64, any::<u64>()])
            .prop_map(|(which, want)| Op::Arm(which, want)),
        1 => index().prop_map(Op::Disarm),
        3 => prop::option::of(prop_oneof![0..6_u64, any::<u64>()]).prop_map(Op::ArmCallback),
        1 => index().prop_map(Op::DisarmCallback),
        1 => Just(Op::Signal),
        2 => Just(Op::ReadHead),
    ]
}

/// Error entries in records; a record is a name.
#[derive(Default)]
struct Recorded(VecDeque<(u64, ErrEntry, u32)>);

impl Records for Recorded {
    type Record = u32;
    type Spent = u32;

    fn insert(&mut self, number: u64, entry: ErrEntry, record: u32) {
        assert!(self.0.back().is_none_or(|(last, ..)| *last < number));
        self.0.push_back((number, entry, record));
    }

    fn first(&self) -> Option<(u64, &ErrEntry)> {
        self.0.front().map(|(number, entry, _)| (*number, entry))
    }

    fn pop_first(&mut self) -> Option<u32> {
        self.0.pop_front().map(|(.., record)| record)
    }
}

struct Model {
    size: u64,
    head: u64,
    tail: u64,
    head_invalid: bool,
    /// The names of the error entries, and whether they are in a record of the same name instead of
    /// in the room.
    errors: VecDeque<(u32, bool)>,
    credits: Vec<Credit>,
    overruns: u64,
    /// The number of losses that were reported to readers.
    reported: u64,
    /// A signal came when no thread was inside.
    kept: bool,
    threads: Vec<Thread>,
    /// The armed callbacks: the number of entries wanted, 0 for the next completion.
    callbacks: Vec<Asleep>,
}

/// A waiter: the number of entries wanted, the name, and the key.
type Asleep = (u64, u32, Key);

/// A thread inside a blocking read.
struct Thread {
    inside: BlockingRead,
    /// A signal came since the thread entered.
    signalled: bool,
    asleep: Option<Asleep>,
}

impl Model {
    /// Picks a thread that is inside, awake or asleep.
    fn pick(&self, index: &Index, asleep: bool) -> Option<usize> {
        let all: Vec<usize> = (0..self.threads.len())
            .filter(|&at| self.threads[at].asleep.is_some() == asleep)
            .collect();
        (!all.is_empty()).then(|| *index.get(&all))
    }

    fn queued(&self) -> u64 {
        self.tail - self.head
    }

    fn room(&self) -> bool {
        let errors = self.errors.iter().filter(|(_, recorded)| !recorded);
        let others = errors.count() + self.credits.len();
        self.queued() + others as u64 != self.size
    }

    fn lost(&self) -> bool {
        self.reported != self.overruns
    }

    fn holds(&self, want: u64) -> bool {
        self.head_invalid || !self.errors.is_empty() || self.lost() || self.queued() >= want
    }

    /// Returns the error of a read that finds no entry.
    fn refusal(&self) -> Option<Errno> {
        if self.head_invalid {
            Some(Errno::EIO)
        } else if !self.errors.is_empty() {
            Some(Errno::KFI_EAVAIL)
        } else if self.queued() > 0 {
            None
        } else if self.lost() {
            Some(Errno::KFI_EOVERRUN)
        } else {
            Some(Errno::EAGAIN)
        }
    }
}

fn run(size: u32, ops: Vec<Op>) -> Result<(), TestCaseError> {
    let [tail, errors, overruns, head, reported] = std::array::from_fn(|_| HostWord::new());
    let words = Words {
        tail: &tail,
        errors: &errors,
        overruns: &overruns,
        head: &head,
        reported: &reported,
    };
    let mut error_slots = vec![ErrEntry::default(); size as usize];
    let mut cq = CompletionQueue::new(
        words,
        size,
        &mut error_slots[..],
        Recorded::default(),
        TreeMap::default(),
    )
    .unwrap();
    let memory = RefCell::new(vec![u64::MAX; size as usize]);
    let mut peeked_at: Option<(Batch, u64)> = None;
    let mut model = Model {
        size: size.into(),
        head: 0,
        tail: 0,
        head_invalid: false,
        errors: VecDeque::new(),
        credits: Vec::new(),
        overruns: 0,
        reported: 0,
        kept: false,
        threads: Vec::new(),
        callbacks: Vec::new(),
    };
    // The slots of a batch have the entries that were written there.
    let check = |batch: Batch, first: u64, count: u64| {
        prop_assert_eq!(u64::from(batch.count()), count);
        let found: Vec<u64> = batch
            .slots()
            .map(|slot| memory.borrow()[slot as usize])
            .collect();
        prop_assert_eq!(found, (first..first + count).collect::<Vec<_>>());
        Ok(())
    };

    for (name, op) in (0..).zip(ops) {
        let mut woken: Vec<(u32, Woken)> = Vec::new();
        let wake = |name, why| woken.push((name, why));
        let number = model.tail;
        let write = |slot: u32| memory.borrow_mut()[slot as usize] = number;
        let err = ErrEntry {
            err: name,
            ..ErrEntry::default()
        };
        // The sleepers to be woken: those that want at most this many entries, or all, for this
        // reason.
        let mut ready_at = None;
        let mut all = None;
        match op {
            Op::Reserve => match cq.reserve() {
                Ok(credit) => {
                    prop_assert!(model.room());
                    model.credits.push(credit);
                }
                Err(errno) => {
                    prop_assert_eq!(errno, Errno::EAGAIN);
                    prop_assert!(!model.room());
                }
            },
            Op::Release(index) | Op::Push(index) | Op::PushErr(index)
                if !model.credits.is_empty() =>
            {
                let credit = model.credits.remove(index.index(model.credits.len()));
                match op {
                    Op::Release(_) => cq.release(credit),
                    Op::Push(_) => {
                        cq.push(credit, write, wake);
                        model.tail += 1;
                        ready_at = Some(model.queued());
                    }
                    _ => {
                        cq.push_err(credit, err, wake);
                        model.errors.push_back((name, false));
                        all = Some(Woken::Ready);
                    }
                }
            }
            Op::Release(_) | Op::Push(_) | Op::PushErr(_) => {}
            Op::PushUncredited | Op::PushErrUncredited => {
                let room = model.room();
                let entry = matches!(op, Op::PushUncredited);
                let push = if entry {
                    cq.push_uncredited(write, wake)
                } else {
                    cq.push_err_uncredited(err, wake)
                };
                prop_assert_eq!(push, if room { Push::Queued } else { Push::Overrun });
                if !room {
                    model.overruns += 1;
                    all = Some(Woken::Ready);
                } else if entry {
                    model.tail += 1;
                    ready_at = Some(model.queued());
                } else {
                    model.errors.push_back((name, false));
                    all = Some(Woken::Ready);
                }
            }
            Op::PushErrRecorded(with_record) => {
                let (room, mut record) = (model.room(), with_record.then_some(name));
                let queued = cq.push_err_recorded(&mut record, err, wake);
                prop_assert_eq!(queued, room || with_record);
                // The record is consumed only if there is no room.
                prop_assert_eq!(record, (with_record && room).then_some(name));
                if queued {
                    model.errors.push_back((name, !room));
                    all = Some(Woken::Ready);
                }
            }
            Op::Peek(want) => {
                let peeked = cq.peek(want);
                match model.refusal() {
                    Some(errno) => {
                        prop_assert_eq!(peeked, Err(errno));
                        if errno == Errno::KFI_EOVERRUN {
                            model.reported = model.overruns;
                            prop_assert_eq!(reported.load(), model.reported);
                        }
                    }
                    None => {
                        let batch = peeked.unwrap();
                        check(batch, model.head, model.queued().min(want.into()))?;
                        peeked_at = Some((batch, model.head));
                    }
                }
            }
            Op::More(want) => {
                let batch = cq.more(want);
                let count = match model.refusal() {
                    Some(_) => 0,
                    None => model.queued().min(want.into()),
                };
                check(batch, model.head, count)?;
                peeked_at = Some((batch, model.head));
            }
            Op::Take(n) => {
                if let Some((batch, first)) = peeked_at.take() {
                    cq.take(&batch, n);
                    let end = first + u64::from(n.min(batch.count()));
                    if end >= model.head {
                        model.head = end;
                        // The module wrote a valid head.
                        model.head_invalid = false;
                    }
                }
            }
            Op::ReadErr => {
                let expected = model.errors.pop_front().ok_or(Errno::EAGAIN);
                let peeked = cq.peek_err().map(|entry| entry.err);
                prop_assert_eq!(peeked, expected.map(|(name, _)| name));
                let read = cq.read_err().map(|(entry, spent)| (entry.err, spent));
                let expected = expected.map(|(name, recorded)| (name, recorded.then_some(name)));
                prop_assert_eq!(read, expected);
            }
            Op::Mapped(n) => {
                if !model.head_invalid {
                    model.head += model.queued().min(n.into());
                    head.store(model.head);
                }
            }
            Op::Acknowledge(by, sound) => {
                // The program records some losses as reported, or writes an invalid number.
                let (number, unreported) = (model.reported, model.overruns - model.reported);
                if sound {
                    model.reported += unreported.min(by);
                    reported.store(model.reported);
                } else {
                    // The CQ has read the earlier number of the program.
                    cq.ready();
                    reported.store(number.wrapping_add(unreported).wrapping_add(by));
                    prop_assert_eq!(cq.ready(), model.holds(1));
                    reported.store(number);
                }
            }
            Op::InvalidateHead(by, up) => {
                // The CQ has read the earlier head of the program.
                cq.ready();
                head.store(if up {
                    model.tail + FAR + by
                } else {
                    model.head.wrapping_sub(by)
                });
                model.head_invalid = true;
            }
            Op::RepairHead => {
                head.store(model.head);
                model.head_invalid = false;
            }
            Op::Enter => {
                model.threads.push(Thread {
                    inside: cq.enter(),
                    signalled: false,
                    asleep: None,
                });
            }
            Op::Leave(index, again) => {
                if let Some(at) = model.pick(&index, false) {
                    let thread = model.threads.remove(at);
                    let number = thread.inside.number();
                    prop_assert_ne!(number, 0);
                    cq.leave(thread.inside);
                    if again {
                        // After a signal of the system the first entry counts.
                        model.threads.push(Thread {
                            inside: cq.enter_again(number),
                            ..thread
                        });
                    }
                }
            }
            Op::Arm(index, want) => {
                let Some(at) = model.pick(&index, false) else {
                    continue;
                };
                let want = want.clamp(1, model.size);
                let due = model.holds(want);
                let (kept, thread) = (model.kept, &mut model.threads[at]);
                match cq.arm(&thread.inside, want, name) {
                    Armed::Ready(_) => prop_assert!(due),
                    Armed::Signalled(_) => {
                        prop_assert!(!due && (thread.signalled || kept));
                        model.kept = false;
                    }
                    Armed::Waiting(key) => {
                        prop_assert!(!due && !thread.signalled && !kept);
                        thread.asleep = Some((want, name, key));
                    }
                }
            }
            Op::Disarm(index) => {
                if let Some(at) = model.pick(&index, true) {
                    let (_, sleeper, key) = model.threads[at].asleep.take().unwrap();
                    prop_assert_eq!(cq.disarm(&key), Some(sleeper));
                    prop_assert_eq!(cq.disarm(&key), None);
                }
            }
            Op::ArmCallback(want) => {
                let (cond, wanted) = match want {
                    Some(want) => (CallbackCondition::Ready(want), want.clamp(1, model.size)),
                    None => (CallbackCondition::Next, 0),
                };
                let due = want.is_some() && model.holds(wanted);
                match cq.arm_callback(cond, name) {
                    Armed::Ready(_) => prop_assert!(due),
                    Armed::Signalled(_) => prop_assert!(false, "a callback is not signalled"),
                    Armed::Waiting(key) => {
                        prop_assert!(!due);
                        model.callbacks.push((wanted, name, key));
                    }
                }
            }
            Op::DisarmCallback(index) => {
                if !model.callbacks.is_empty() {
                    let at = index.index(model.callbacks.len());
                    let (_, callback, key) = model.callbacks.remove(at);
                    prop_assert_eq!(cq.disarm(&key), Some(callback));
                    prop_assert_eq!(cq.disarm(&key), None);
                }
            }
            Op::Signal => {
                cq.signal(wake);
                model.kept |= model.threads.is_empty();
                for thread in &mut model.threads {
                    thread.signalled = true;
                }
                all = Some(Woken::Signalled);
            }
            // No other operation of the test reads the head, so the CQ is tested to read it where
            // necessary.
            Op::ReadHead => {
                prop_assert_eq!(cq.ready(), model.holds(1));
                prop_assert_eq!(u64::from(cq.queued()), model.queued());
            }
        }

        let mut expected = Vec::new();
        if ready_at.is_some() || all.is_some() {
            let due = |wanted: u64| all.is_some() || Some(wanted) <= ready_at;
            let callbacks = core::mem::take(&mut model.callbacks);
            let (ready, armed): (Vec<_>, _) = callbacks.into_iter().partition(|c| due(c.0));
            expected.extend(ready);
            model.callbacks = armed;
            for thread in &mut model.threads {
                if thread.asleep.is_some_and(|(wanted, ..)| due(wanted)) {
                    expected.extend(thread.asleep.take());
                }
            }
            // By the number wanted, then in the order of arrival, which names count.
            expected.sort_by_key(|&(wanted, sleeper, _)| (wanted, sleeper));
        }
        let expected: Vec<_> = expected
            .into_iter()
            .map(|(_, sleeper, _)| (sleeper, all.unwrap_or(Woken::Ready)))
            .collect();
        prop_assert_eq!(woken, expected);

        prop_assert_eq!(cq.errors() as usize, model.errors.len());
        prop_assert_eq!(cq.reserved() as usize, model.credits.len());
        prop_assert_eq!(cq.entries_ever(), model.tail);
        prop_assert_eq!(cq.overruns(), model.overruns);
        let asleep = model
            .threads
            .iter()
            .filter(|thread| thread.asleep.is_some());
        let waiters = asleep.count() + model.callbacks.len();
        prop_assert_eq!(cq.sleepers() as usize, waiters);
        prop_assert_eq!(tail.load(), model.tail);
        prop_assert_eq!(errors.load(), model.errors.len() as u64);
        prop_assert_eq!(overruns.load(), model.overruns);
    }
    Ok(())
}

proptest! {
    #![proptest_config(ProptestConfig {
        cases: 5000,
        failure_persistence: None,
        ..ProptestConfig::default()
    })]

    #[test]
    fn every_completion_is_read_once(
        size in prop::sample::select(vec![1_u32, 2, 4, 8]),
        ops in prop::collection::vec(op(), 0..100),
    ) {
        run(size, ops)?;
    }
}
