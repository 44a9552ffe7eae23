// SPDX-License-Identifier: GPL-2.0

//! Memory that programs map with the file of a device.
//!
//! mmap(2) selects an object by its offset. The offsets of a context are numbers of a table, so
//! they say nothing about addresses, and none is given twice: an offset of an object that has ended
//! maps nothing. An object with memory to map has an entry ([`Mapped`]) as long as it lives. The
//! pages stay as long as they are mapped.
//!
//! A mapping outlives its object, the device, and `kfabric_ib.ko`. It keeps `kfabric.ko` loaded
//! ([`SharedPages::map_with_file`]).

use kernel::{
    bindings::vm_area_struct,
    fs::File,
    mm::virt::VmaNew,
    new_spinlock,
    page::PAGE_SHIFT,
    prelude::*,
    rbtree::{
        RBTree,
        RBTreeNodeReservation, //
    },
    sync::{
        aref::ARef,
        Arc,
        SetOnce,
        SpinLock, //
    },
    types::ForeignOwnable, //
};

use super::{
    code,
    context::Context,
    declared,
    raw::kfabric_verbs_context, //
};
use crate::{
    mem::{
        Allowance,
        MapAccess,
        SharedPages, //
    },
    shim::anon_file::keeper, //
};

/// Bytes that are charged for an entry of the table.
const ENTRY_BYTES: usize = 128;

/// The pages of an entry, and how they may be mapped.
pub(super) type Entry = (Arc<SharedPages>, MapAccess);

struct Table {
    /// The last number that was given.
    last: u64,
    entries: RBTree<u64, Entry>,
}

/// What the program of a context can map.
#[pin_data]
pub(super) struct Maps {
    /// The file of all mappings, which keeps `kfabric.ko` loaded. With a file for each mapping,
    /// mappings would use up the files that the whole system may have.
    file: SetOnce<ARef<File>>,
    /// A leaf; process context.
    #[pin]
    table: SpinLock<Table>,
}

impl Maps {
    /// A table without entries.
    pub(super) fn new() -> impl PinInit<Self> {
        let table = Table {
            last: 0,
            entries: RBTree::new(),
        };
        pin_init!(Self {
            file: SetOnce::new(),
            table <- new_spinlock!(table, "verbs::Maps::table"),
        })
    }

    /// The entry with this number. Process context.
    pub(super) fn find(&self, number: u64) -> Option<Entry> {
        self.table.lock().entries.get(&number).cloned()
    }

    /// The file of all mappings. Fails with `ENFILE`, `ENOMEM`. Sleeps.
    fn file(&self) -> Result<ARef<File>> {
        if let Some(file) = self.file.as_ref() {
            return Ok(file.clone());
        }
        let file = keeper()?;
        // If another thread was first, only this mapping has the new file.
        self.file.populate(file.clone());
        Ok(file)
    }

    /// Maps the pages of an entry, from the first on.
    ///
    /// Fails with `EINVAL` if the offset selects no entry; `ENFILE`, `ENOMEM`; otherwise as
    /// [`SharedPages::map_with_file`]. In the `mmap` operation of a file; sleeps.
    fn map(&self, vma: &VmaNew) -> Result {
        // SAFETY: `vma` is a valid area that is being created, and nothing else uses it yet.
        let number = unsafe { (*vma.as_ptr()).vm_pgoff } as u64;
        let (pages, access) = self.find(number).ok_or(EINVAL)?;
        let file = self.file()?;
        pages.map_with_file(vma, access, &file)
    }
}

/// The entry of an object in the table of its context, until it is dropped. Process context.
pub(super) struct Mapped {
    context: Arc<Context>,
    number: u64,
    _memory: Allowance,
}

impl Mapped {
    /// Enters the pages of an object, which the program may map with this access. Fails with
    /// `ENOMEM`, also if the user has no more memory of the kernel (`user_memory`). Sleeps.
    pub(super) fn new(
        context: &Arc<Context>,
        pages: Arc<SharedPages>,
        access: MapAccess,
    ) -> Result<Self> {
        let memory = context.budget().take(ENTRY_BYTES as u64)?;
        let reservation = RBTreeNodeReservation::new(GFP_KERNEL_ACCOUNT)?;
        let mut table = context.maps().table.lock();
        // No overflow: a program would need thousands of years.
        let number = table.last.wrapping_add(1);
        table.last = number;
        let node = reservation.into_node(number, (pages, access));
        let other = table.entries.insert(node);
        drop(table);
        // A new number has no entry.
        drop(other);
        Ok(Self {
            context: context.clone(),
            number,
            _memory: memory,
        })
    }

    /// Its offset in the device's file, bytes; never 0. Any context.
    pub(super) fn offset(&self) -> u64 {
        self.number << PAGE_SHIFT
    }
}

impl Drop for Mapped {
    fn drop(&mut self) {
        let entry = self
            .context
            .maps()
            .table
            .lock()
            .entries
            .remove_node(&self.number);
        // Not under the lock: these may be the last references to the pages.
        drop(entry);
    }
}

declared! {
    kfabric_verbs_mmap: fn(*mut kfabric_verbs_context, *mut vm_area_struct) -> c_int;
}

/// Maps memory of an object of the context. Fails as [`Maps::map`]. Sleeps.
///
/// # Safety
///
/// The handle is valid by the interface; `vma` is being created, in the `mmap` operation of a file.
#[no_mangle]
unsafe extern "C" fn kfabric_verbs_mmap(
    context: *mut kfabric_verbs_context,
    vma: *mut vm_area_struct,
) -> c_int {
    // SAFETY: By the requirement above.
    let (context, vma) = unsafe {
        (
            Arc::<Context>::borrow(context.cast()),
            VmaNew::from_raw(vma),
        )
    };
    code(context.maps().map(vma))
}
