// SPDX-License-Identifier: GPL-2.0
//! Tests the ring against a model of the kernel's side, in memory with the
//! layout of the interface.

use std::{collections::VecDeque, sync::atomic::Ordering::Relaxed};

use proptest::prelude::*;

use super::*;
use crate::flags::CompFlags;

const HEAD: usize = size_of::<abi::kfabric_cq_ring>();

/// Memory of a ring, aligned as a mapping would be for our purposes.
struct Memory {
    words: Box<[u64]>,
}

impl Memory {
    fn new(size: u32, offset: usize, start: u64) -> Self {
        let bytes = offset + size as usize * size_of::<Entry>();
        let mut words = vec![0u64; bytes / 8].into_boxed_slice();
        let head = abi::kfabric_cq_ring {
            tail: start,
            head: start,
            entries: size,
            entry_offset: offset as u32,
            ..Default::default()
        };
        // SAFETY: the memory is long enough, and no other code has it yet.
        unsafe {
            words
                .as_mut_ptr()
                .cast::<abi::kfabric_cq_ring>()
                .write(head)
        };
        Self { words }
    }

    fn len(&self) -> usize {
        self.words.len() * 8
    }

    fn start(&mut self) -> NonNull<u8> {
        NonNull::new(self.words.as_mut_ptr()).unwrap().cast()
    }

    fn ring(&mut self) -> Result<RawRing> {
        let len = self.len();
        // SAFETY: the tests keep the memory while they use the ring.
        unsafe { RawRing::from_memory(self.start(), len) }
    }
}

/// The kernel's side, over the same memory.
struct Producer {
    ring: RawRing,
}

impl Producer {
    fn word(&self, offset: usize) -> &AtomicU64 {
        self.ring.word(offset)
    }

    fn queued(&self) -> u64 {
        self.ring.tail().wrapping_sub(
            self.word(offset_of!(abi::kfabric_cq_ring, head))
                .load(Acquire),
        )
    }

    fn push(&self, entry: Entry) -> bool {
        if self.queued() == self.ring.size {
            return false;
        }
        let tail = self.ring.tail();
        let place = (tail & (self.ring.size - 1)) as usize;
        // SAFETY: the place is in the memory and not with the consumer.
        unsafe { self.ring.entries.add(place).write(entry) };
        self.word(offset_of!(abi::kfabric_cq_ring, tail))
            .store(tail.wrapping_add(1), Release);
        true
    }

    fn set_errors(&self, errors: u64) {
        self.word(offset_of!(abi::kfabric_cq_ring, errors))
            .store(errors, Relaxed);
    }

    fn set_overruns(&self, overruns: u64) {
        self.word(offset_of!(abi::kfabric_cq_ring, overruns))
            .store(overruns, Relaxed);
    }

    fn set_tail(&self, tail: u64) {
        self.word(offset_of!(abi::kfabric_cq_ring, tail))
            .store(tail, Release);
    }
}

fn entry(context: u64) -> Entry {
    let mut entry = Entry::default();
    entry.op_context = context;
    entry.flags = CompFlags::MSG | CompFlags::RECV;
    entry.len = context.wrapping_mul(3);
    entry.tag = !context;
    entry
}

fn both(memory: &mut Memory) -> (Producer, Consumer<RawRing>) {
    let producer = Producer {
        ring: memory.ring().unwrap(),
    };
    let ring = memory.ring().unwrap();
    let size = ring.size;
    (producer, Consumer::new(ring, size))
}

fn read(consumer: &mut Consumer<RawRing>, max: usize) -> Result<Vec<Entry>> {
    let mut out = Vec::new();
    let count = consumer.drain(max, |entry| out.push(*entry))?;
    assert_eq!(count, out.len());
    Ok(out)
}

#[test]
fn an_empty_ring_gives_no_entries() {
    let mut memory = Memory::new(4, HEAD, 0);
    let (_, mut consumer) = both(&mut memory);
    assert_eq!(read(&mut consumer, 9).unwrap(), []);
    assert_eq!(consumer.queued().unwrap().1, 0);
}

#[test]
fn whole_entries_come_through() {
    let mut memory = Memory::new(4, 512, 0);
    let (producer, mut consumer) = both(&mut memory);
    let sent = Entry::from_raw_words([1, 2, 3, 4, 5, 6, 7, 8]);
    assert!(producer.push(sent));
    assert_eq!(read(&mut consumer, 9).unwrap(), [sent]);
}

#[test]
fn full_and_past_the_end_of_the_count() {
    let mut memory = Memory::new(4, HEAD, u64::MAX - 1);
    let (producer, mut consumer) = both(&mut memory);
    for context in 0..4 {
        assert!(producer.push(entry(context)));
    }
    assert!(!producer.push(entry(4)));
    assert_eq!(consumer.queued().unwrap().1, 4);
    assert_eq!(read(&mut consumer, 3).unwrap(), [0, 1, 2].map(entry));
    assert!(producer.push(entry(4)));
    assert_eq!(read(&mut consumer, 9).unwrap(), [3, 4].map(entry));
}

#[test]
fn a_read_of_zero_entries_takes_none() {
    let mut memory = Memory::new(4, HEAD, 0);
    let (producer, mut consumer) = both(&mut memory);
    producer.push(entry(0));
    assert_eq!(read(&mut consumer, 0).unwrap(), []);
    assert_eq!(consumer.queued().unwrap().1, 1);
}

#[test]
fn errors_go_first() {
    let mut memory = Memory::new(4, HEAD, 0);
    let (producer, mut consumer) = both(&mut memory);
    producer.push(entry(0));
    producer.set_errors(1);
    assert!(read(&mut consumer, 9).unwrap_err().is_eavail());
    producer.set_errors(0);
    assert_eq!(read(&mut consumer, 9).unwrap(), [entry(0)]);
}

#[test]
fn overruns_are_reported_once_after_all_entries() {
    let mut memory = Memory::new(4, HEAD, 0);
    let (producer, mut consumer) = both(&mut memory);
    producer.push(entry(0));
    producer.set_overruns(2);
    assert_eq!(read(&mut consumer, 9).unwrap(), [entry(0)]);
    let error = read(&mut consumer, 9).unwrap_err();
    assert!(error.is(Errno::KFI_EOVERRUN), "{error}");
    assert_eq!(read(&mut consumer, 9).unwrap(), []);
    producer.set_overruns(3);
    assert!(read(&mut consumer, 9).is_err());
}

#[test]
fn reported_overruns_are_acknowledged_in_the_ring() {
    let mut memory = Memory::new(4, HEAD, 0);
    let (producer, mut consumer) = both(&mut memory);
    producer.set_overruns(2);
    assert_eq!(producer.ring.reported(), 0);
    assert!(read(&mut consumer, 9).is_err());
    assert_eq!(
        producer.ring.reported(),
        2,
        "the kernel does not tell it again"
    );
    // A loss that the kernel reported to a reader by call is not reported again
    // here.
    producer.set_overruns(5);
    producer.ring.set_told(5);
    assert_eq!(read(&mut consumer, 9).unwrap(), []);
}

#[test]
fn overruns_from_before_the_mapping_are_reported() {
    let mut memory = Memory::new(4, HEAD, 0);
    let (producer, _) = both(&mut memory);
    producer.set_overruns(2);
    let ring = memory.ring().unwrap();
    let error = read(&mut Consumer::new(ring, 4), 9).unwrap_err();
    assert!(error.is(Errno::KFI_EOVERRUN), "{error}");
    // Reported once, to either kind of reader.
    let ring = memory.ring().unwrap();
    assert_eq!(read(&mut Consumer::new(ring, 4), 9).unwrap(), []);
}

/// Memory in which an error, and then a completion, come while the consumer
/// looks at the words: between any two of its loads.
struct Changing<'a> {
    ring: &'a RawRing,
    loads: std::cell::Cell<u32>,
    at: u32,
    change: &'a dyn Fn(),
}

impl Changing<'_> {
    fn step(&self) {
        if self.loads.replace(self.loads.get() + 1) == self.at {
            (self.change)();
        }
    }
}

impl RingMem for Changing<'_> {
    fn tail(&self) -> u64 {
        self.step();
        self.ring.tail()
    }

    fn errors(&self) -> u64 {
        self.step();
        self.ring.errors()
    }

    fn overruns(&self) -> u64 {
        self.step();
        self.ring.overruns()
    }

    fn reported(&self) -> u64 {
        self.ring.reported()
    }

    fn set_told(&self, overruns: u64) {
        self.ring.set_told(overruns);
    }

    fn head(&self) -> u64 {
        self.ring.head()
    }

    fn set_head(&self, head: u64) {
        self.ring.set_head(head);
    }

    fn entry<R>(&self, place: u64, look: impl FnOnce(&Entry) -> R) -> R {
        self.ring.entry(place, look)
    }
}

#[test]
fn no_success_overtakes_an_earlier_error() {
    for at in 0..4 {
        let mut memory = Memory::new(4, HEAD, 0);
        let (producer, _) = both(&mut memory);
        let ring = memory.ring().unwrap();
        let change = || {
            producer.set_errors(1);
            assert!(producer.push(entry(1)));
        };
        let mut consumer = Consumer::new(
            Changing {
                ring: &ring,
                loads: std::cell::Cell::new(0),
                at,
                change: &change,
            },
            4,
        );
        let mut shown = 0;
        match consumer.drain(9, |_| shown += 1) {
            Ok(_) => assert_eq!(shown, 0, "before load {at}"),
            Err(error) => assert!(error.is_eavail(), "{error}"),
        }
    }
}

#[test]
fn an_impossible_tail_is_an_error() {
    let mut memory = Memory::new(4, HEAD, 0);
    let (producer, mut consumer) = both(&mut memory);
    for tail in [5, u64::MAX, u64::MAX / 2] {
        producer.set_tail(tail);
        assert!(
            matches!(read(&mut consumer, 9), Err(Error::Nonsense(_))),
            "{tail}"
        );
    }
    producer.set_tail(4);
    assert_eq!(read(&mut consumer, 9).unwrap().len(), 4);
}

#[test]
fn entries_shown_before_a_panic_are_taken() {
    let mut memory = Memory::new(4, HEAD, 0);
    let (producer, mut consumer) = both(&mut memory);
    for context in 0..3 {
        producer.push(entry(context));
    }
    let panic = std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| {
        let _ = consumer.drain(9, |entry| assert_ne!(entry.op_context, 1));
    }));
    assert!(panic.is_err());
    assert_eq!(read(&mut consumer, 9).unwrap(), [entry(2)]);
}

#[test]
fn ring_heads_with_impossible_values_are_refused() {
    let good = || Memory::new(4, HEAD, 0);
    assert!(good().ring().is_ok());
    let with = |change: fn(&mut abi::kfabric_cq_ring)| {
        let mut memory = good();
        // SAFETY: the memory begins with a head, and no other code has it yet.
        change(unsafe { memory.start().cast::<abi::kfabric_cq_ring>().as_mut() });
        memory.ring().is_err()
    };
    assert!(with(|head| head.entries = 0));
    assert!(with(|head| head.entries = 3));
    assert!(with(|head| head.entries = 8), "longer than the memory");
    assert!(with(|head| head.entries = 1 << 31));
    assert!(with(|head| head.entry_offset = 0), "over the head");
    assert!(
        with(|head| head.entry_offset = HEAD as u32 + 8),
        "past the end"
    );
    assert!(with(|head| head.entry_offset = u32::MAX));
    assert!(!with(|head| head.entries = 2));
    assert!(with(|head| {
        head.entries = 2;
        head.entry_offset += 4;
    }));
    let mut memory = good();
    // SAFETY: shorter than the memory is.
    assert!(unsafe { RawRing::from_memory(memory.start(), HEAD - 8) }.is_err());
    // SAFETY: inside the memory.
    let crooked = unsafe { RawRing::from_memory(memory.start().add(4), memory.len() - 4) };
    assert!(crooked.is_err());
}

#[test]
fn a_mapping_is_a_ring() {
    let fd = rustix::fs::memfd_create("kfi-ring", rustix::fs::MemfdFlags::CLOEXEC).unwrap();
    let memory = Memory::new(2, HEAD, 0);
    let bytes: Vec<u8> = memory
        .words
        .iter()
        .flat_map(|word| word.to_ne_bytes())
        .collect();
    assert_eq!(rustix::io::write(&fd, &bytes).unwrap(), bytes.len());
    let map = || Mapping::new(&fd, 0, bytes.len(), true).unwrap();
    let producer = Producer {
        ring: RawRing::new(map()).unwrap(),
    };
    let mut consumer = Consumer::new(RawRing::new(map()).unwrap(), 2);
    producer.push(entry(7));
    assert_eq!(read(&mut consumer, 9).unwrap(), [entry(7)]);
    assert_eq!(producer.queued(), 0);
}

#[test]
fn a_reader_thread_gets_every_entry_of_a_writer_thread() {
    const COUNT: u64 = 100_000;
    let mut memory = Memory::new(64, HEAD, u64::MAX - 1000);
    let (producer, mut consumer) = both(&mut memory);
    std::thread::scope(|scope| {
        scope.spawn(move || {
            for context in 0..COUNT {
                while !producer.push(entry(context)) {
                    std::thread::yield_now();
                }
            }
        });
        let mut next = 0;
        while next < COUNT {
            let taken = consumer
                .drain(16, |got| {
                    assert_eq!(*got, entry(next));
                    next += 1;
                })
                .unwrap();
            if taken == 0 {
                std::thread::yield_now();
            }
        }
    });
}

#[derive(Clone, Debug)]
enum Step {
    Push,
    Read(usize),
    Errors(u64),
}

fn step() -> impl Strategy<Value = Step> {
    prop_oneof![
        4 => Just(Step::Push),
        3 => (0usize..20).prop_map(Step::Read),
        1 => (0u64..2).prop_map(Step::Errors),
    ]
}

proptest! {
    /// Compares with a queue.
    #[test]
    fn the_ring_behaves_as_a_queue(
        bits in 0u32..5,
        start in prop_oneof![Just(0), Just(u64::MAX - 5), any::<u64>()],
        steps in prop::collection::vec(step(), 0..200),
    ) {
        let mut memory = Memory::new(1 << bits, HEAD, start);
        let (producer, mut consumer) = both(&mut memory);
        let (mut model, mut next, mut errors) = (VecDeque::new(), 0, 0);
        for step in steps {
            match step {
                Step::Push => {
                    let fits = model.len() < 1 << bits;
                    prop_assert_eq!(producer.push(entry(next)), fits);
                    if fits {
                        model.push_back(entry(next));
                    }
                    next += 1;
                }
                Step::Read(_) if errors != 0 => {
                    prop_assert!(read(&mut consumer, 1).unwrap_err().is_eavail());
                }
                Step::Read(max) => {
                    let want: Vec<Entry> = model.drain(..max.min(model.len())).collect();
                    prop_assert_eq!(read(&mut consumer, max).unwrap(), want);
                }
                Step::Errors(count) => {
                    errors = count;
                    producer.set_errors(count);
                }
            }
            prop_assert_eq!(consumer.queued().unwrap().1, model.len() as u64);
        }
    }
}
