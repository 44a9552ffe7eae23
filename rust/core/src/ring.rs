// SPDX-License-Identifier: GPL-2.0

//! The ring that passes completions to one reader through shared memory.
//!
//! Entries are numbered without limit; number n is in slot n modulo the size, a power of two. The
//! producer owns `tail`, the number of entries ever written; the consumer owns `head`, the number
//! of entries ever taken. `tail - head` entries can be read. The producer writes an entry and then
//! releases the new tail. The consumer acquires the tail, reads the entry, and releases the new
//! head. The producer acquires the head before it overwrites a slot.
//!
//! The consumer is a program that maps the ring, so the head cannot be trusted.
//! [`Producer::observe`] accepts it only between the last accepted head and the tail. An invalid
//! head harms only the program that wrote it, which loses its completions. The program can also
//! overwrite the entries. A read by a call may copy them to that program, but the module never acts
//! on their contents.
//!
//! A consumer that has reported lost completions to its program writes their number to `reported`,
//! as the producer does when it reports them to a reader by call. The number is accepted between
//! the last accepted one and the number of losses; any other value has no effect.
//!
//! The layout of the words is `struct kfabric_cq_ring`. A reader by call ([`Producer::batch`],
//! [`Producer::take`]) moves the same head. The caller ensures that there is one such reader at a
//! time. A program that reads in both ways at the same time may get some entries twice.
//!
//! Each operation takes O(1). Context: the producer under its CQ's lock; the consumer belongs to
//! one thread.

use crate::{
    errno::{
        Errno,
        Result, //
    },
    word::Word,
};

/// The shared words of a ring.
pub struct Words<W> {
    /// The number of entries ever written. Written by the producer.
    pub tail: W,
    /// The number of queued error entries, for the consumer's information. Written by the producer.
    pub errors: W,
    /// The number of lost completions. Written by the producer.
    pub overruns: W,
    /// The number of entries ever taken. Written by the consumer; not trusted.
    pub head: W,
    /// The number of lost completions that were reported to readers. Written by the consumer; not
    /// trusted.
    pub reported: W,
}

/// The head word has an invalid value.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct InvalidHead;

/// Consecutive entries that can be read.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Batch {
    first: u64,
    count: u32,
    mask: u32,
}

impl Batch {
    /// Returns the number of entries.
    pub fn count(&self) -> u32 {
        self.count
    }

    /// Returns the slots of the entries, oldest first.
    pub fn slots(&self) -> impl Iterator<Item = u32> {
        let Batch { first, count, mask } = *self;
        (0..u64::from(count)).map(move |i| slot_of(first.wrapping_add(i), mask))
    }

    /// Returns the number of the entry after the first `n`.
    fn after(&self, n: u32) -> u64 {
        self.first.wrapping_add(u64::from(n.min(self.count)))
    }
}

/// Returns the slot of entry `n`.
#[inline]
fn slot_of(n: u64, mask: u32) -> u32 {
    // The mask leaves at most 32 bits.
    (n & u64::from(mask)) as u32
}

/// The writing end, in the module.
///
/// # Invariants
///
/// `tail - head <= size`, modulo 2^64; `size` is a power of two.
pub struct Producer<W: Word> {
    words: Words<W>,
    size: u32,
    /// The last accepted head.
    head: u64,
    tail: u64,
    head_invalid: bool,
    /// The number of lost completions.
    overruns: u64,
    /// The last accepted number of lost completions that were reported to readers.
    reported: u64,
}

impl<W: Word> Producer<W> {
    /// Makes an empty ring of `size` entries. Writes all words.
    ///
    /// Errors: EINVAL if `size` is not a power of two.
    pub fn new(words: Words<W>, size: u32) -> Result<Self> {
        Self::holding(words, size, 0, 0)
    }

    /// Like [`Self::new`], but the ring has the entries from number `head` to that before `tail`:
    /// those of another ring, which were copied to their slots here. No losses are unreported.
    ///
    /// Errors: EINVAL if `size` is not a power of two, or there are more entries.
    pub fn holding(words: Words<W>, size: u32, head: u64, tail: u64) -> Result<Self> {
        if !size.is_power_of_two() || tail.wrapping_sub(head) > u64::from(size) {
            return Err(Errno::EINVAL);
        }
        words.tail.store(tail);
        words.errors.store(0);
        words.overruns.store(0);
        words.reported.store(0);
        words.head.store(head);
        // INVARIANT: both conditions were checked.
        Ok(Self {
            words,
            size,
            head,
            tail,
            head_invalid: false,
            overruns: 0,
            reported: 0,
        })
    }

    /// Returns the maximum number of entries.
    #[inline]
    pub fn size(&self) -> u32 {
        self.size
    }

    /// Returns the number of entries ever written.
    #[inline]
    pub fn tail(&self) -> u64 {
        self.tail
    }

    /// Returns the number of entries in the ring by the last accepted head: at least those that the
    /// consumer has not taken.
    #[inline]
    pub fn queued(&self) -> u32 {
        // INVARIANT: the difference is at most `size`, a u32.
        self.tail.wrapping_sub(self.head) as u32
    }

    /// Reads the head word. Accepts it if it lies between the last accepted head and the tail.
    /// Otherwise the last head stays valid, and the head is recorded as invalid until a later call
    /// finds a valid head.
    pub fn observe(&mut self) -> Result<u64, InvalidHead> {
        // ORDERING: acquire, pairs with the consumer's release: the consumer has read the entries
        // before this head, so their slots can be overwritten.
        let head = self.words.head.load_acquire();
        if !self.is_valid_head(head) {
            self.head_invalid = true;
            return Err(InvalidHead);
        }
        // INVARIANT: the head was checked.
        self.head = head;
        self.head_invalid = false;
        Ok(head)
    }

    /// Returns whether the last call of [`Self::observe`] found an invalid head.
    pub fn has_invalid_head(&self) -> bool {
        self.head_invalid
    }

    /// Appends an entry, which `write` writes to the slot with the given number. Returns false if
    /// there is no room by the last accepted head; `write` is not called then.
    #[inline]
    pub fn push(&mut self, write: impl FnOnce(u32)) -> bool {
        if self.queued() >= self.size {
            return false;
        }
        write(slot_of(self.tail, self.mask()));
        // INVARIANT: there was room for one.
        self.tail = self.tail.wrapping_add(1);
        // ORDERING: release: a consumer that acquires this tail sees the entry.
        self.words.tail.store_release(self.tail);
        true
    }

    /// Returns the oldest entries, at most `want`, for a reader by call.
    pub fn batch(&self, want: u32) -> Batch {
        Batch {
            first: self.head,
            count: self.queued().min(want),
            mask: self.mask(),
        }
    }

    /// Removes the first `n` entries of `batch`, which a reader by call has read.
    pub fn take(&mut self, batch: &Batch, n: u32) {
        // The program may have moved the head. If it is invalid, the store below repairs it.
        let _ = self.observe();
        let head = batch.after(n);
        if !self.is_valid_head(head) {
            // The program that maps the ring has taken more entries in the meantime.
            return;
        }
        // INVARIANT: the head was checked.
        self.head = head;
        // ORDERING: release, like a consumer's.
        self.words.head.store_release(head);
    }

    /// Returns whether `head` lies between the last accepted head and the tail, by distances modulo
    /// 2^64 from the former.
    #[inline]
    fn is_valid_head(&self, head: u64) -> bool {
        head.wrapping_sub(self.head) <= self.tail.wrapping_sub(self.head)
    }

    /// Passes the consumer the number of queued error entries. Release: a consumer that sees the
    /// number finds the entry by call.
    pub fn publish_errors(&self, errors: u32) {
        self.words.errors.store_release(u64::from(errors));
    }

    /// Counts a lost completion. Release: a consumer that sees the number also sees the earlier
    /// number of errors.
    pub fn count_lost(&mut self) {
        self.overruns = self.overruns.wrapping_add(1);
        self.words.overruns.store_release(self.overruns);
    }

    /// Returns the number of completions that were ever lost.
    pub fn overruns(&self) -> u64 {
        self.overruns
    }

    /// Returns whether there are losses that were not reported to readers. Reads the consumer's
    /// word.
    pub fn lost(&mut self) -> bool {
        if self.reported == self.overruns {
            return false;
        }
        // ORDERING: none needed, because nothing else depends on it.
        let reported = self.words.reported.load();
        let unreported = self.overruns.wrapping_sub(self.reported);
        if reported.wrapping_sub(self.reported) <= unreported {
            self.reported = reported;
        }
        self.reported != self.overruns
    }

    /// Records that all losses were reported to a reader by call.
    pub fn report_lost(&mut self) {
        self.reported = self.overruns;
        self.words.reported.store(self.reported);
    }

    #[inline]
    fn mask(&self) -> u32 {
        // The size is a power of two, so it is not 0.
        self.size.wrapping_sub(1)
    }
}

/// The reading end, in a program. It is in this file so that both ends of the protocol are tested
/// together.
pub struct Consumer<'a, W: Word> {
    tail: &'a W,
    head: &'a W,
    mask: u32,
    next: u64,
}

impl<'a, W: Word> Consumer<'a, W> {
    /// Makes a reader of the ring with these words and `size` entries (a power of two). It
    /// continues where the last reader stopped.
    pub fn new(tail: &'a W, head: &'a W, size: u32) -> Self {
        Self {
            tail,
            head,
            mask: size.wrapping_sub(1),
            next: head.load(),
        }
    }

    /// Returns the entries that can be read.
    pub fn ready(&self) -> Batch {
        // ORDERING: acquire, pairs with the producer's release: the entries before this tail are
        // complete.
        let tail = self.tail.load_acquire();
        Batch {
            first: self.next,
            // The difference is at most the size if the producer is correct.
            count: tail.wrapping_sub(self.next).min(u64::from(u32::MAX)) as u32,
            mask: self.mask,
        }
    }

    /// Removes the oldest `n` entries of [`Self::ready`].
    pub fn release(&mut self, n: u32) {
        self.next = self.next.wrapping_add(u64::from(n));
        // ORDERING: release: the entries were read before their slots are freed.
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
        reported: Plain,
    }

    impl Page {
        fn new() -> Self {
            Self {
                tail: Plain::new(1),
                errors: Plain::new(2),
                overruns: Plain::new(3),
                head: Plain::new(4),
                reported: Plain::new(5),
            }
        }

        fn words(&self) -> Words<&Plain> {
            Words {
                tail: &self.tail,
                errors: &self.errors,
                overruns: &self.overruns,
                head: &self.head,
                reported: &self.reported,
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
    fn a_ring_takes_over_the_entries_of_another() -> Result {
        let page = Page::new();
        for (head, tail) in [(0, 5), (u64::MAX, 4), (1, 0)] {
            let refused = Producer::holding(page.words(), 4, head, tail).map(|_| ());
            assert_eq!(refused, Err(Errno::EINVAL));
        }
        let mut ring = Producer::holding(page.words(), 4, u64::MAX, 2)?;
        let mut consumer = Consumer::new(&page.tail, &page.head, 4);
        assert_eq!((ring.queued(), ring.tail()), (3, 2));
        assert!(ring.push(|slot| assert_eq!(slot, 2)));
        assert!(!ring.push(|_| ()));
        assert_eq!(slots(consumer.ready()), Log::of(&[3, 0, 1, 2]));
        consumer.release(4);
        assert_eq!(ring.observe(), Ok(3));
        Ok(())
    }

    #[test]
    fn entries_wrap_also_at_the_end_of_the_number_range() -> Result {
        let page = Page::new();
        let mut ring = Producer::holding(page.words(), 4, u64::MAX - 1, u64::MAX - 1)?;
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
    fn a_head_is_accepted_between_the_last_one_and_the_tail() -> Result {
        let page = Page::new();
        let mut ring = Producer::holding(page.words(), 8, u64::MAX - 2, u64::MAX - 2)?;
        for _ in 0..6 {
            assert!(ring.push(|_| ()));
        }
        // The entries have the numbers MAX-2 to 3; the tail is 3.
        for bad in [u64::MAX - 3, 4, 5, 1 << 63, (1 << 63) - 1] {
            page.head.store(bad);
            assert_eq!(ring.observe(), Err(InvalidHead));
            assert!(ring.has_invalid_head());
            assert_eq!(ring.queued(), 6);
        }
        for (good, queued) in [(u64::MAX - 2, 6), (u64::MAX, 4), (0, 3), (3, 0)] {
            page.head.store(good);
            assert_eq!(ring.observe(), Ok(good));
            assert!(!ring.has_invalid_head());
            assert_eq!(ring.queued(), queued);
        }
        // The head never moves back.
        page.head.store(2);
        assert_eq!(ring.observe(), Err(InvalidHead));
        Ok(())
    }

    #[test]
    fn a_reader_by_call_takes_only_the_entries_it_read() -> Result {
        let page = Page::new();
        let mut ring = Producer::new(page.words(), 4)?;
        for _ in 0..4 {
            assert!(ring.push(|_| ()));
        }
        let batch = ring.batch(2);
        assert_eq!(slots(batch), Log::of(&[0, 1]));
        ring.take(&batch, 1);
        assert_eq!(page.head.load(), 1);
        // The program reads on through the mapped ring in the meantime.
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
    fn the_words_report_errors_and_losses_to_the_consumer() -> Result {
        let page = Page::new();
        let mut ring = Producer::new(page.words(), 4)?;
        for word in [
            &page.tail,
            &page.head,
            &page.errors,
            &page.overruns,
            &page.reported,
        ] {
            assert_eq!(word.load(), 0);
        }
        ring.publish_errors(5);
        ring.count_lost();
        ring.count_lost();
        assert_eq!(page.errors.load(), 5);
        assert_eq!(page.overruns.load(), 2);
        assert_eq!(ring.overruns(), 2);
        Ok(())
    }

    #[test]
    fn either_side_can_report_losses() -> Result {
        let page = Page::new();
        let mut ring = Producer::new(page.words(), 4)?;
        assert!(!ring.lost());
        for _ in 0..3 {
            ring.count_lost();
        }
        assert!(ring.lost());
        // First a part of the losses, then all.
        page.reported.store(2);
        assert!(ring.lost());
        page.reported.store(3);
        assert!(!ring.lost());
        ring.count_lost();
        // Invalid values: too many, and fewer than before.
        for bad in [5, 2, 0, u64::MAX, 1 << 63] {
            page.reported.store(bad);
            assert!(ring.lost());
        }
        ring.report_lost();
        assert_eq!(page.reported.load(), 4);
        assert!(!ring.lost());
        Ok(())
    }
}
