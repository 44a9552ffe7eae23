// SPDX-License-Identifier: GPL-2.0

//! Suite `kfabric_cq_record`: the error entries of operations whose success is silent are queued
//! even in a full CQ, and are charged to the owner of the endpoint.

use super::{
    super::kunit::{
        error,
        queue,
        readerr, //
    },
    *, //
};
use crate::{
    kunit::helpers::user,
    mem::Part, //
};
use kfi_core::cq::Entry;

/// Returns the number of bytes charged to `owner`.
fn charged(owner: &Budget) -> u64 {
    owner.charged(Part::Peers).0
}

#[kunit_tests(kfabric_cq_record)]
mod tests {
    use super::*;

    /// A record is charged until the operation has succeeded, or its error entry has been read.
    #[test]
    fn records_are_charged_until_their_error_is_read() -> Result {
        let owner = Budget::of(user(300), Some(2 * BYTES))?;
        let queue = queue(1)?;
        queue.push(queue.reserve()?, &Entry::default());
        let first = Record::new(&owner, GFP_KERNEL)?;
        let second = Record::new(&owner, GFP_KERNEL)?;
        ensure_eq!(charged(&owner), 2 * BYTES);
        ensure_eq!(Record::new(&owner, GFP_KERNEL).err(), Some(ENOMEM));
        queue.push_err_recorded(first, &error(1));
        ensure_eq!(charged(&owner), 2 * BYTES);
        // This operation succeeds.
        drop(second);
        ensure_eq!(charged(&owner), BYTES);
        ensure_eq!(readerr(&queue), Ok(1));
        ensure_eq!(charged(&owner), 0);
        ensure_eq!(readerr(&queue), Err(EAGAIN));
        Ok(())
    }

    /// If the CQ has room, the error entry uses that, and the record is freed.
    #[test]
    fn a_record_is_freed_when_the_cq_has_room() -> Result {
        let owner = Budget::of(user(301), Some(BYTES))?;
        let queue = queue(1)?;
        queue.push_err_recorded(Record::new(&owner, GFP_KERNEL)?, &error(1));
        ensure_eq!(charged(&owner), 0);
        ensure_eq!(queue.reserve().err(), Some(EAGAIN));
        queue.push_err_recorded(Record::new(&owner, GFP_KERNEL)?, &error(2));
        ensure_eq!(charged(&owner), BYTES);
        ensure_eq!(readerr(&queue), Ok(1));
        ensure_eq!(readerr(&queue), Ok(2));
        ensure_eq!(charged(&owner), 0);
        Ok(())
    }

    /// Error entries are read in the order of their arrival. One that cannot be copied stays.
    #[test]
    fn errors_are_read_in_order() -> Result {
        let owner = Budget::of(user(302), None)?;
        let queue = queue(2)?;
        let credits = (queue.reserve()?, queue.reserve()?);
        for n in 0..100 {
            queue.push_err_recorded(Record::new(&owner, GFP_KERNEL)?, &error(n));
        }
        queue.push_err(credits.0, &error(100));
        queue.push_err_recorded(Record::new(&owner, GFP_KERNEL)?, &error(101));
        queue.push_err(credits.1, &error(102));
        for n in 0..103 {
            let refuse = queue.readerr(|_| Err(EINVAL), || Err(EFAULT));
            ensure_eq!(refuse, Err(EINVAL));
            ensure_eq!(readerr(&queue), Ok(n));
        }
        ensure_eq!(readerr(&queue), Err(EAGAIN));
        ensure_eq!(charged(&owner), 0);
        Ok(())
    }

    /// Unread errors are freed with the CQ.
    #[test]
    fn unread_errors_are_freed_with_the_cq() -> Result {
        let owner = Budget::of(user(303), Some(10 * BYTES))?;
        let queue = queue(1)?;
        let credit = queue.reserve()?;
        for n in 0..10 {
            queue.push_err_recorded(Record::new(&owner, GFP_KERNEL)?, &error(n));
        }
        ensure_eq!(charged(&owner), 10 * BYTES);
        queue.unreserve(credit);
        drop(queue);
        ensure_eq!(charged(&owner), 0);
        Ok(())
    }

    /// A pool returns the records that it keeps. They stay charged, and are freed with the pool.
    #[test]
    fn a_pool_keeps_records_up_to_its_size() -> Result {
        let size = POOL_SIZE as u64;
        let owner = Budget::of(user(304), None)?;
        let pool = KBox::pin_init(RecordPool::new()?, GFP_KERNEL)?;
        for _ in 0..3 {
            pool.put(pool.take(&owner)?);
            ensure_eq!(charged(&owner), BYTES);
        }
        let mut taken = KVec::with_capacity(POOL_SIZE + 2, GFP_KERNEL)?;
        for _ in 0..size + 2 {
            taken.push(pool.take(&owner)?, GFP_KERNEL)?;
        }
        ensure_eq!(charged(&owner), (size + 2) * BYTES);
        taken.into_iter().for_each(|record| pool.put(record));
        ensure_eq!(charged(&owner), size * BYTES);
        drop(pool);
        ensure_eq!(charged(&owner), 0);
        Ok(())
    }

    /// The record of an operation that was refused, or that has succeeded, is used again.
    #[test]
    fn a_record_is_used_again_without_a_charge() -> Result {
        let owner = Budget::of(user(305), Some(BYTES))?;
        let pool = KBox::pin_init(RecordPool::new()?, GFP_KERNEL)?;
        let record = pool.take(&owner)?;
        ensure_eq!(pool.take(&owner).err(), Some(ENOMEM));
        pool.put(record);
        let queue = queue(1)?;
        queue.push(queue.reserve()?, &Entry::default());
        // Its error entry takes the record out of the pool until it has been read.
        queue.push_err_recorded(pool.take(&owner)?, &error(1));
        ensure_eq!(pool.take(&owner).err(), Some(ENOMEM));
        ensure_eq!(readerr(&queue), Ok(1));
        ensure!(pool.take(&owner).is_ok());
        Ok(())
    }

    /// The record of a deferred transfer takes its memory from the pool and gives it back. Without
    /// a CQ it has none.
    #[test]
    fn a_record_of_deferred_work_is_used_again() -> Result {
        let owner = Budget::of(user(306), Some(BYTES))?;
        let pool = KBox::pin_init(RecordPool::new()?, GFP_KERNEL)?;
        let record = pool.take(&owner)?.with(Deferral::new(None, true)?);
        ensure!(record.is_deferred());
        pool.put(record);
        ensure_eq!(charged(&owner), BYTES);
        pool.put(Record::without_memory(Deferral::new(None, true)?));
        let record = pool.take(&owner)?;
        ensure!(!record.is_deferred());
        ensure_eq!(charged(&owner), BYTES);
        // The record without memory is not in the pool.
        ensure_eq!(pool.take(&owner).err(), Some(ENOMEM));
        Ok(())
    }
}
