// SPDX-License-Identifier: GPL-2.0

//! The table of handles: numbers, publication, limits, and use by several threads.

use kernel::{
    prelude::*,
    sync::Arc, //
};

use super::handles::Table;
use crate::{
    kunit::helpers::{
        thread,
        user, //
    },
    mem::{
        Budget,
        Part, //
    }, //
};

/// More than the initial size of a table, so that it grows.
const LIMIT: u32 = 1000;

fn table() -> Result<Arc<Table<Arc<u32>>>> {
    Arc::pin_init(Table::new(LIMIT, Budget::of_program()?), GFP_KERNEL)
}

fn entry(value: u32) -> Result<Arc<u32>> {
    Ok(Arc::new(value, GFP_KERNEL)?)
}

/// Makes a handle of `value`.
fn put(table: &Table<Arc<u32>>, value: u32) -> Result<u32> {
    let reserved = table.reserve()?;
    let number = reserved.number();
    reserved.publish(entry(value)?);
    Ok(number)
}

fn value(table: &Table<Arc<u32>>, number: u32) -> Option<u32> {
    table.get(number).map(|entry| *entry)
}

#[kunit_tests(kfabric_uapi_handles)]
mod tests {
    use super::*;

    #[test]
    fn a_published_handle_finds_its_object() -> Result {
        let table = table()?;
        let reserved = table.reserve()?;
        let number = reserved.number();
        ensure!(number > 0);
        ensure!(table.get(number).is_none());
        reserved.publish(entry(7)?);
        ensure_eq!(value(&table, number), Some(7));
        Ok(())
    }

    #[test]
    fn a_dropped_reservation_frees_its_number() -> Result {
        let table = table()?;
        let number = table.reserve()?.number();
        ensure!(table.get(number).is_none());
        // All numbers are still available.
        for _ in 0..LIMIT {
            let _ = put(&table, 0)?;
        }
        Ok(())
    }

    #[test]
    fn a_table_is_charged_while_it_exists() -> Result {
        let budget = Budget::of(user(41), Some(64 << 10))?;
        let charged = || budget.charged(Part::Peers).0;
        let table: Arc<Table<Arc<u32>>> =
            Arc::pin_init(Table::new(1 << 16, budget.clone()), GFP_KERNEL)?;
        let empty = charged();
        ensure!(empty >= size_of::<Table<Arc<u32>>>() as u64);
        // An entry is a pointer. A table that is full refuses handles.
        let mut handles = 0u64;
        let error = loop {
            match put(&table, 7) {
                Ok(_) => handles += 1,
                Err(error) => break error,
            }
        };
        ensure_eq!(error, ENOMEM);
        ensure!(handles > 0 && charged() <= 64 << 10);
        ensure!(charged() - empty >= handles * size_of::<usize>() as u64);
        // Handles that were freed are there again, without another chunk.
        let full = charged();
        table.remove(1);
        ensure!(put(&table, 8).is_ok());
        ensure_eq!(charged(), full);
        drop(table);
        ensure_eq!(charged(), 0);
        Ok(())
    }

    #[test]
    fn removing_drops_the_reference() -> Result {
        let table = table()?;
        let object = entry(7)?;
        let reserved = table.reserve()?;
        let number = reserved.number();
        reserved.publish(object.clone());
        table.remove(number);
        // Only the last owner can get exclusive access.
        ensure!(Arc::into_unique_or_drop(object).is_some());
        Ok(())
    }

    #[test]
    fn threads_insert_find_and_remove_concurrently() -> Result {
        const ROUNDS: u32 = 1000;

        fn worker(table: Arc<Table<Arc<u32>>>, failures: Arc<Table<Arc<u32>>>, own: u32) {
            for _ in 0..ROUNDS {
                let good = put(&table, own).is_ok_and(|number| {
                    let good = value(&table, number) == Some(own);
                    table.remove(number);
                    good
                });
                if !good {
                    let _ = put(&failures, own);
                }
            }
        }

        let table = table()?;
        let failures = super::table()?;
        let mut threads = KVec::new();
        for own in 1..=3 {
            let (table, failures) = (table.clone(), failures.clone());
            let thread = thread(move || worker(table, failures, own))?;
            threads.push(thread, GFP_KERNEL)?;
        }
        // An entry found in the meantime is a complete one of another thread.
        let mut wrong = 0;
        for _ in 0..ROUNDS {
            for number in 1..=16 {
                if value(&table, number).is_some_and(|own| !(1..=3).contains(&own)) {
                    wrong += 1;
                }
            }
        }
        for thread in threads {
            thread.join();
        }
        ensure_eq!(wrong, 0);
        ensure!((1..=failures.bound()).all(|number| failures.get(number).is_none()));
        ensure!((1..=table.bound()).all(|number| table.get(number).is_none()));
        Ok(())
    }
}
