// SPDX-License-Identifier: GPL-2.0

//! File descriptors without a name: `KFI_GETWAIT` for programs.
//!
//! An object that can be polled implements [`AnonFile`].  [`PendingFd`] makes the
//! descriptor in two steps, so that a call which cannot tell its caller the
//! number leaves nothing behind: reserve and make the file, copy the results out,
//! then install. The open file owns an [`Arc`] of the object, and a reference to
//! the module, which therefore cannot be unloaded while the file is open.

use crate::{
    shim::{
        bindings as shim,
        wait::WaitQueue, //
    },
    LocalModule,
};
use core::{
    marker::PhantomData,
    ptr::NonNull, //
};
use kernel::{
    bindings,
    error::from_err_ptr,
    fs::{
        file::{
            flags,
            FileDescriptorReservation, //
        },
        File, //
    },
    module::this_module,
    prelude::*,
    sync::{
        aref::ARef,
        Arc, //
    },
    uaccess::{
        UserPtr,
        UserSlice,
        UserSliceReader,
        UserSliceWriter, //
    }, //
};

#[cfg(kfi_kunit)]
#[path = "../../../kunit/anon_file.rs"]
mod kunit;

/// There is something to read.
pub(crate) const EPOLLIN: u32 = 0x1;
/// An error is to be read.
pub(crate) const EPOLLERR: u32 = 0x8;
/// The object is gone.
pub(crate) const EPOLLHUP: u32 = 0x10;
/// Normal data to read; goes with [`EPOLLIN`].
pub(crate) const EPOLLRDNORM: u32 = 0x40;

/// What is behind a file descriptor.
pub(crate) trait AnonFile: Send + Sync + 'static {
    /// Class of the file, as `/proc/PID/fd` shows it: `[kfabric-cq]`.
    const NAME: &'static CStr;

    /// The events that hold now (`EPOLLIN | EPOLLRDNORM`, ...).
    ///
    /// First registers with the wait queues that will be woken when more do, and
    /// then looks. Process context.
    fn poll<'a>(&'a self, table: &PollTable<'a>) -> u32;

    /// read(2): writes at most `to.len()` bytes and returns how many; `nonblock`
    /// is `O_NONBLOCK`. `EINVAL` where nothing can be read.
    fn read(&self, _to: &mut UserSliceWriter, _nonblock: bool) -> Result<usize> {
        Err(EINVAL)
    }

    /// write(2): takes at most `from.len()` bytes and returns how many. `EINVAL`
    /// where nothing can be written.
    fn write(&self, _from: &mut UserSliceReader, _nonblock: bool) -> Result<usize> {
        Err(EINVAL)
    }
}

/// Where poll(2), epoll and io_uring note what to wait on.
///
/// # Invariants
///
/// `file` is open, and its private data is what lives for `'a`; `table` is null
/// or a valid `poll_table`; both for as long as this value exists.
pub(crate) struct PollTable<'a> {
    file: *mut bindings::file,
    table: *mut bindings::poll_table,
    /// Invariant in `'a`: nobody can shorten it to the life of something on the
    /// stack.
    _owner: PhantomData<fn(&'a ()) -> &'a ()>,
}

impl<'a> PollTable<'a> {
    /// Notes that the caller of poll(2) waits on `queue`.
    ///
    /// `queue` belongs to the object behind the file, directly or through an
    /// [`Arc`] that it holds unchanged: that is what its lifetime says.
    pub(crate) fn register(&self, queue: &'a WaitQueue) {
        // SAFETY: `file` and `table` are valid by the type invariants. `queue` stays valid while
        // anybody polls: it is borrowed for `'a`, which this type's invariance ties to the borrow
        // of the file's private data that `poll` was called with. What such a reference reaches
        // without a lock stays until that data is dropped, in `release`; and before `release`,
        // poll, epoll and io_uring have left the queue, because each holds the file or, as epoll,
        // is cleared when the file goes.
        unsafe { bindings::poll_wait(self.file, queue.as_ptr(), self.table) }
    }
}

/// A file descriptor that is reserved, with its file, and not yet known to the
/// process.
///
/// Dropping it undoes both; the file's [`Arc`] is then dropped, at the latest
/// when the process returns to user space.
pub(crate) struct PendingFd {
    reservation: FileDescriptorReservation,
    file: ARef<File>,
}

impl PendingFd {
    /// Makes a file for `object` and reserves a descriptor, close-on-exec.
    ///
    /// Process context.
    ///
    /// # Errors
    ///
    /// `EMFILE`, `ENFILE`, `ENOMEM`.
    pub(crate) fn new<T: AnonFile>(object: Arc<T>) -> Result<Self> {
        let reservation = FileDescriptorReservation::get_unused_fd_flags(flags::O_CLOEXEC)?;
        let private = Arc::into_raw(object);
        // SAFETY: The name and the operations are static; the operations expect what `private` is.
        let file = from_err_ptr(unsafe {
            shim::kfabric_shim_anon_file(
                T::NAME.as_char_ptr(),
                &Operations::<T>::TABLE,
                private.cast_mut().cast(),
            )
        })
        .inspect_err(|_| {
            // SAFETY: No file was made, so the reference is still ours.
            drop(unsafe { Arc::from_raw(private) });
        })?;
        let file = NonNull::new(file.cast::<File>()).ok_or(ENOMEM)?;
        Ok(Self {
            reservation,
            // SAFETY: The file is new and its one reference is ours; nobody else knows it, so
            // there is no `fdget_pos()` on it. `File` is transparent over `struct file`.
            file: unsafe { ARef::from_raw(file) },
        })
    }

    /// The number that the descriptor will have.
    pub(crate) fn fd(&self) -> i32 {
        // CAST: Descriptors are below `INT_MAX`.
        self.reservation.reserved_fd() as i32
    }

    /// Gives the descriptor to the process. Cannot fail.
    pub(crate) fn install(self) {
        self.reservation.fd_install(self.file);
    }
}

/// The file operations of a `T`.
struct Operations<T>(PhantomData<T>);

impl<T: AnonFile> Operations<T> {
    const TABLE: bindings::file_operations = bindings::file_operations {
        owner: this_module::<LocalModule>().as_ptr(),
        poll: Some(Self::poll),
        read: Some(Self::read),
        write: Some(Self::write),
        release: Some(Self::release),
        llseek: Some(bindings::noop_llseek),
        ..pin_init::zeroed()
    };

    /// The object behind a file.
    ///
    /// # Safety
    ///
    /// `file` is open, was made by [`PendingFd::new`] with this `T`, and is not
    /// released during `'a`.
    unsafe fn object<'a>(file: *mut bindings::file) -> &'a T {
        // SAFETY: By the requirements the private data is what `Arc::into_raw` gave, and its
        // reference is the file's until `release`.
        unsafe { &*(*file).private_data.cast::<T>() }
    }

    /// # Safety
    ///
    /// As [`object`](Self::object).
    unsafe fn nonblock(file: *mut bindings::file) -> bool {
        // SAFETY: The file is open by the requirements; nothing here depends on its position.
        unsafe { File::from_raw_file(file) }.flags() & flags::O_NONBLOCK != 0
    }

    /// # Safety
    ///
    /// Called by the file system layer, on a file made with these operations.
    #[link_section = ".text.hot"]
    unsafe extern "C" fn poll(
        file: *mut bindings::file,
        table: *mut bindings::poll_table,
    ) -> bindings::__poll_t {
        // SAFETY: The file is open during the call and made with these operations.
        let object: &T = unsafe { Self::object(file) };
        // INVARIANT: Both are valid during the call; `object` is the file's private data.
        let table = PollTable {
            file,
            table,
            _owner: PhantomData,
        };
        object.poll(&table)
    }

    /// # Safety
    ///
    /// As [`poll`](Self::poll).
    #[link_section = ".text.hot"]
    unsafe extern "C" fn read(
        file: *mut bindings::file,
        buf: *mut c_char,
        len: usize,
        _pos: *mut bindings::loff_t,
    ) -> isize {
        // SAFETY: The file is open during the call and made with these operations.
        let (object, nonblock): (&T, _) = unsafe { (Self::object(file), Self::nonblock(file)) };
        let mut to = UserSlice::new(UserPtr::from_ptr(buf.cast()), len).writer();
        count(object.read(&mut to, nonblock))
    }

    /// # Safety
    ///
    /// As [`poll`](Self::poll).
    unsafe extern "C" fn write(
        file: *mut bindings::file,
        buf: *const c_char,
        len: usize,
        _pos: *mut bindings::loff_t,
    ) -> isize {
        // SAFETY: The file is open during the call and made with these operations.
        let (object, nonblock): (&T, _) = unsafe { (Self::object(file), Self::nonblock(file)) };
        let from = UserPtr::from_ptr(buf.cast_mut().cast());
        let mut from = UserSlice::new(from, len).reader();
        count(object.write(&mut from, nonblock))
    }

    /// # Safety
    ///
    /// As [`poll`](Self::poll), for the last time.
    unsafe extern "C" fn release(_inode: *mut bindings::inode, file: *mut bindings::file) -> c_int {
        // SAFETY: The private data is what `Arc::into_raw` gave in `PendingFd::new`; the file
        // gives its reference back here and is not used again.
        drop(unsafe { Arc::from_raw((*file).private_data.cast::<T>()) });
        0
    }
}

/// What read(2) and write(2) return for a result.
fn count(result: Result<usize>) -> isize {
    match result {
        // CAST: No longer than a user buffer, which is below `isize::MAX`.
        Ok(bytes) => bytes as isize,
        // CAST: Error numbers are small.
        Err(error) => error.to_errno() as isize,
    }
}
