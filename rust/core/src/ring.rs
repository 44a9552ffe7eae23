// SPDX-License-Identifier: GPL-2.0

//! The ring: completions passed to one reader through shared memory.
//!
//! Entries are numbered for ever; number n stands in slot n modulo the size, a
//! power of two. Two numbers say it all: `tail`, entries ever written, is the
//! producer's; `head`, entries ever taken, the consumer's. `tail - head` are
//! there to be read. The producer writes an entry and then releases the new
//! tail; the consumer acquires the tail, reads the entry, and releases the new
//! head; the producer acquires the head before it writes over what was there.
//!
//! The consumer is a program that maps the ring, so the head is a number that
//! anybody may have written. [`Producer::observe`] believes it between the last
//! head believed and the tail, and nothing else: a spoilt head costs its writer
//! its completions and nobody anything else. Entries in shared memory are the
//! program's to spoil too: a reader by call may copy them out to that program, but
//! nothing in the module acts on what they say.
//!
//! A consumer that has told its program of lost completions says so in `told`, as the
//! producer does when it tells a reader by call. It is believed between the last number
//! believed and the losses; any other value changes nothing.
//!
//! The words are laid out as `struct kfabric_cq_ring`. Who reads by call instead
//! ([`Producer::batch`], [`Producer::take`]) moves the same head. One such reader
//! at a time: the caller sees to that. A program that reads both ways at once gets
//! what it asked for: some entries twice.
//!
//! Everything is O(1). Context: the producer under its CQ's lock; the consumer
//! belongs to one thread.

use crate::{
    errno::{
        Errno,
        Result, //
    },
    word::Word,
};

/// The shared words of a ring.
pub struct Words<W> {
    /// Entries ever written. The producer's.
    pub tail: W,
    /// Error entries waiting, for the consumer's information. The producer's.
    pub errors: W,
    /// Completions lost, likewise.
    pub overruns: W,
    /// Entries ever taken. The consumer's; not to be trusted.
    pub head: W,
    /// How many of the lost completions readers were told of. The consumer's; not to be
    /// trusted.
    pub told: W,
}

/// The head word holds a number that cannot be a head.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Spoilt;

/// Consecutive entries that are there to be read.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Batch {
    first: u64,
    count: u32,
    mask: u32,
}

impl Batch {
    /// How many entries it is.
    pub fn count(&self) -> u32 {
        self.count
    }

    /// Their slots, oldest first.
    pub fn slots(&self) -> impl Iterator<Item = u32> {
        let Batch { first, count, mask } = *self;
        (0..u64::from(count)).map(move |i| slot_of(first.wrapping_add(i), mask))
    }

    /// The number of the entry behind the first `n`.
    fn after(&self, n: u32) -> u64 {
        self.first.wrapping_add(u64::from(n.min(self.count)))
    }
}

/// The slot of entry `n`.
#[inline]
fn slot_of(n: u64, mask: u32) -> u32 {
    // The mask leaves 32 bits.
    (n & u64::from(mask)) as u32
}

/// The end that writes: the module's.
///
/// # Invariants
///
/// `tail - head <= size`, modulo 2^64; `size` is a power of two.
pub struct Producer<W: Word> {
    words: Words<W>,
    size: u32,
    /// The last head believed.
    head: u64,
    tail: u64,
    spoilt: bool,
    /// Completions lost.
    overruns: u64,
    /// How many of these readers were told of, as last believed.
    told: u64,
}

impl<W: Word> Producer<W> {
    /// An empty ring of `size` entries. Writes all words.
    ///
    /// Errors: EINVAL `size` is not a power of two.
    pub fn new(words: Words<W>, size: u32) -> Result<Self> {
        Self::starting_at(words, size, 0)
    }

    /// [`Self::new`] whose first entry has the number `first`.
    fn starting_at(words: Words<W>, size: u32, first: u64) -> Result<Self> {
        if !size.is_power_of_two() {
            return Err(Errno::EINVAL);
        }
        words.tail.store(first);
        words.errors.store(0);
        words.overruns.store(0);
        words.told.store(0);
        words.head.store(first);
        // INVARIANT: the numbers are equal; `size` was checked.
        Ok(Self {
            words,
            size,
            head: first,
            tail: first,
            spoilt: false,
            overruns: 0,
            told: 0,
        })
    }

    /// Entries the ring has room for.
    #[inline]
    pub fn size(&self) -> u32 {
        self.size
    }

    /// Entries ever written.
    #[inline]
    pub fn tail(&self) -> u64 {
        self.tail
    }

    /// Entries in the ring, by the last head believed: at least those that the
    /// consumer has not taken.
    #[inline]
    pub fn queued(&self) -> u32 {
        // INVARIANT: at most `size`, a u32.
        self.tail.wrapping_sub(self.head) as u32
    }

    /// Looks where the consumer is. Believes the head word if it lies between
    /// the last head believed and the tail; if not, the last one stands, and
    /// the ring is spoilt until a later look finds a good one.
    pub fn observe(&mut self) -> Result<u64, Spoilt> {
        // ORDERING: acquire, with the consumer's release: it is done with the
        // entries before this head, their slots may be written over.
        let head = self.words.head.load_acquire();
        if !self.believable(head) {
            self.spoilt = true;
            return Err(Spoilt);
        }
        // INVARIANT: believable.
        self.head = head;
        self.spoilt = false;
        Ok(head)
    }

    /// Whether the last look found a bad head.
    pub fn spoilt(&self) -> bool {
        self.spoilt
    }

    /// Appends an entry, which `write` writes to the slot it is given. False:
    /// there is no room by the last head believed, and `write` was not called.
    #[inline]
    pub fn push(&mut self, write: impl FnOnce(u32)) -> bool {
        if self.queued() >= self.size {
            return false;
        }
        write(slot_of(self.tail, self.mask()));
        // INVARIANT: there was room for one.
        self.tail = self.tail.wrapping_add(1);
        // ORDERING: release: the entry is seen by who acquires this tail.
        self.words.tail.store_release(self.tail);
        true
    }

    /// The oldest entries, at most `want`, for a reader by call.
    pub fn batch(&self, want: u32) -> Batch {
        Batch {
            first: self.head,
            count: self.queued().min(want),
            mask: self.mask(),
        }
    }

    /// The reader by call is done with the first `n` entries of `batch`.
    pub fn take(&mut self, batch: &Batch, n: u32) {
        // Where the program is by now; if that is spoilt, what follows mends it.
        let _ = self.observe();
        let head = batch.after(n);
        if !self.believable(head) {
            // The program that maps the ring has taken more meanwhile.
            return;
        }
        // INVARIANT: believable.
        self.head = head;
        // ORDERING: release, as a consumer's would be.
        self.words.head.store_release(head);
    }

    /// Whether this can be a head: between the last one and the tail. Distances
    /// modulo 2^64 from the last one; nothing else compares.
    #[inline]
    fn believable(&self, head: u64) -> bool {
        head.wrapping_sub(self.head) <= self.tail.wrapping_sub(self.head)
    }

    /// Tells the consumer how many error entries wait. Release: who sees the
    /// number finds the entry by call.
    pub fn tell_errors(&self, errors: u32) {
        self.words.errors.store_release(u64::from(errors));
    }

    /// A completion is lost. Release: who sees the number sees the errors of before.
    pub fn lose(&mut self) {
        self.overruns = self.overruns.wrapping_add(1);
        self.words.overruns.store_release(self.overruns);
    }

    /// Completions ever lost.
    pub fn overruns(&self) -> u64 {
        self.overruns
    }

    /// Whether there are losses that readers were not told of. Looks what the consumer
    /// has told.
    pub fn lost(&mut self) -> bool {
        if self.told == self.overruns {
            return false;
        }
        // ORDERING: none needed, nothing else depends on it.
        let told = self.words.told.load();
        let untold = self.overruns.wrapping_sub(self.told);
        if told.wrapping_sub(self.told) <= untold {
            self.told = told;
        }
        self.told != self.overruns
    }

    /// A reader by call is told of all losses.
    pub fn tell_lost(&mut self) {
        self.told = self.overruns;
        self.words.told.store(self.told);
    }

    #[inline]
    fn mask(&self) -> u32 {
        // A power of two: not 0.
        self.size.wrapping_sub(1)
    }
}

/// The end that reads: a program's. Here so that both ends of the protocol
/// stand in one place and are tested together.
pub struct Consumer<'a, W: Word> {
    tail: &'a W,
    head: &'a W,
    mask: u32,
    next: u64,
}

impl<'a, W: Word> Consumer<'a, W> {
    /// A reader of the ring with these words and `size` (a power of two)
    /// entries, from where the last reader stopped.
    pub fn new(tail: &'a W, head: &'a W, size: u32) -> Self {
        Self {
            tail,
            head,
            mask: size.wrapping_sub(1),
            next: head.load(),
        }
    }

    /// The entries that are there to be read.
    pub fn ready(&self) -> Batch {
        // ORDERING: acquire, with the producer's release: the entries before
        // this tail are whole.
        let tail = self.tail.load_acquire();
        Batch {
            first: self.next,
            // At most the size, if the producer is sound.
            count: tail.wrapping_sub(self.next).min(u64::from(u32::MAX)) as u32,
            mask: self.mask,
        }
    }

    /// Done with the oldest `n` of [`Self::ready`].
    pub fn release(&mut self, n: u32) {
        self.next = self.next.wrapping_add(u64::from(n));
        // ORDERING: release: the entries were read before their slots are
        // given back.
        self.head.store_release(self.next);
    }
}

#[cfg(any(test, kfi_kunit))]
#[cfg_attr(kfi_kunit, kernel::prelude::kunit_tests(kfi_core_ring))]
mod tests {
    use super::*;
    use crate::testing::{
        Log,
        Plain, //
    };

    struct Page {
        tail: Plain,
        errors: Plain,
        overruns: Plain,
        head: Plain,
        told: Plain,
    }

    impl Page {
        fn new() -> Self {
            Self {
                tail: Plain::new(1),
                errors: Plain::new(2),
                overruns: Plain::new(3),
                head: Plain::new(4),
                told: Plain::new(5),
            }
        }

        fn words(&self) -> Words<&Plain> {
            Words {
                tail: &self.tail,
                errors: &self.errors,
                overruns: &self.overruns,
                head: &self.head,
                told: &self.told,
            }
        }
    }

    fn slots(batch: Batch) -> Log<u32> {
        let mut log = Log::new();
        for slot in batch.slots() {
            log.push(slot);
        }
        log
    }

    #[test]
    fn sizes_are_powers_of_two() {
        let page = Page::new();
        for size in [0, 3, 6, u32::MAX] {
            assert_eq!(
                Producer::new(page.words(), size).map(|_| ()),
                Err(Errno::EINVAL)
            );
        }
        for size in [1, 2, 65536, 1 << 31] {
            assert!(Producer::new(page.words(), size).is_ok());
        }
    }

    #[test]
    fn entries_go_round_also_past_the_end_of_numbers() -> Result {
        let page = Page::new();
        let mut ring = Producer::starting_at(page.words(), 4, u64::MAX - 1)?;
        let mut consumer = Consumer::new(&page.tail, &page.head, 4);
        for round in 0..3 {
            for i in 0..4 {
                assert!(ring.push(|slot| assert_eq!(slot, (round * 4 + i + 2) % 4)));
            }
            assert!(!ring.push(|_| ()));
            assert_eq!(ring.queued(), 4);
            assert_eq!(slots(consumer.ready()), Log::of(&[2, 3, 0, 1]));
            consumer.release(1);
            assert_eq!(slots(consumer.ready()), Log::of(&[3, 0, 1]));
            assert_eq!(ring.queued(), 4);
            assert!(ring.observe().is_ok());
            assert_eq!(ring.queued(), 3);
            consumer.release(3);
            assert_eq!(consumer.ready().count(), 0);
            assert!(ring.observe().is_ok());
        }
        assert_eq!(ring.tail(), 10);
        Ok(())
    }

    #[test]
    fn a_head_is_believed_between_the_last_one_and_the_tail() -> Result {
        let page = Page::new();
        let mut ring = Producer::starting_at(page.words(), 8, u64::MAX - 2)?;
        for _ in 0..6 {
            assert!(ring.push(|_| ()));
        }
        // Entries MAX-2 .. 3; the tail is 3.
        for bad in [u64::MAX - 3, 4, 5, 1 << 63, (1 << 63) - 1] {
            page.head.store(bad);
            assert_eq!(ring.observe(), Err(Spoilt));
            assert!(ring.spoilt());
            assert_eq!(ring.queued(), 6);
        }
        for (good, queued) in [(u64::MAX - 2, 6), (u64::MAX, 4), (0, 3), (3, 0)] {
            page.head.store(good);
            assert_eq!(ring.observe(), Ok(good));
            assert!(!ring.spoilt());
            assert_eq!(ring.queued(), queued);
        }
        // Never back.
        page.head.store(2);
        assert_eq!(ring.observe(), Err(Spoilt));
        Ok(())
    }

    #[test]
    fn a_reader_by_call_takes_what_it_read_and_no_more() -> Result {
        let page = Page::new();
        let mut ring = Producer::new(page.words(), 4)?;
        for _ in 0..4 {
            assert!(ring.push(|_| ()));
        }
        let batch = ring.batch(2);
        assert_eq!(slots(batch), Log::of(&[0, 1]));
        ring.take(&batch, 1);
        assert_eq!(page.head.load(), 1);
        // The program reads on through the mapped ring meanwhile.
        let batch = ring.batch(9);
        assert_eq!(slots(batch), Log::of(&[1, 2, 3]));
        page.head.store(3);
        assert_eq!(ring.observe(), Ok(3));
        ring.take(&batch, 1);
        assert_eq!(page.head.load(), 3);
        assert_eq!(ring.queued(), 1);
        ring.take(&batch, 9);
        assert_eq!(ring.queued(), 0);
        assert_eq!(page.head.load(), 4);
        Ok(())
    }

    #[test]
    fn the_consumer_is_told() -> Result {
        let page = Page::new();
        let mut ring = Producer::new(page.words(), 4)?;
        for word in [
            &page.tail,
            &page.head,
            &page.errors,
            &page.overruns,
            &page.told,
        ] {
            assert_eq!(word.load(), 0);
        }
        ring.tell_errors(5);
        ring.lose();
        ring.lose();
        assert_eq!(page.errors.load(), 5);
        assert_eq!(page.overruns.load(), 2);
        assert_eq!(ring.overruns(), 2);
        Ok(())
    }

    #[test]
    fn losses_are_told_by_either_side() -> Result {
        let page = Page::new();
        let mut ring = Producer::new(page.words(), 4)?;
        assert!(!ring.lost());
        for _ in 0..3 {
            ring.lose();
        }
        assert!(ring.lost());
        // Not all of them, then all.
        page.told.store(2);
        assert!(ring.lost());
        page.told.store(3);
        assert!(!ring.lost());
        ring.lose();
        // What cannot be true: too many, and fewer than before.
        for bad in [5, 2, 0, u64::MAX, 1 << 63] {
            page.told.store(bad);
            assert!(ring.lost());
        }
        ring.tell_lost();
        assert_eq!(page.told.load(), 4);
        assert!(!ring.lost());
        Ok(())
    }
}
