// SPDX-License-Identifier: GPL-2.0

//! Anonymous files: the descriptors that `KFI_GETWAIT` returns to programs, and the files of
//! mappings.
//!
//! An object that can be polled implements [`AnonFile`]. [`PendingFd`] creates the descriptor in
//! two steps, so that a call that cannot report the number leaves nothing behind: it reserves the
//! number and creates the file, the call copies the results out, then it installs the descriptor.
//! The open file owns an [`Arc`] of the object and a reference to the module, which therefore
//! cannot be unloaded while the file is open.

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

/// Data can be read.
pub(crate) const EPOLLIN: u32 = bindings::POLLIN;
/// An error can be read.
pub(crate) const EPOLLERR: u32 = bindings::POLLERR;
/// The object is closed.
pub(crate) const EPOLLHUP: u32 = bindings::POLLHUP;
/// Normal data can be read; set together with [`EPOLLIN`].
pub(crate) const EPOLLRDNORM: u32 = bindings::POLLRDNORM;

/// The object of an anonymous file.
pub(crate) trait AnonFile: Send + Sync + 'static {
    /// Class of the file in `/proc/PID/fd`, such as `[kfabric-cq]`.
    const NAME: &'static CStr;

    /// The events that are pending now (`EPOLLIN | EPOLLRDNORM`, ...).
    ///
    /// It must first register with the wait queues of further events, and then check. Process
    /// context.
    fn poll<'a>(&'a self, table: &PollTable<'a>) -> u32;

    /// read(2): writes at most `to.len()` bytes and returns the number of bytes; `nonblock` is
    /// `O_NONBLOCK`. `EINVAL` for files that cannot be read.
    fn read(&self, _to: &mut UserSliceWriter, _nonblock: bool) -> Result<usize> {
        Err(EINVAL)
    }

    /// write(2): reads at most `from.len()` bytes and returns the number of bytes. `EINVAL` for
    /// files that cannot be written.
    fn write(&self, _from: &mut UserSliceReader, _nonblock: bool) -> Result<usize> {
        Err(EINVAL)
    }
}

/// Registers poll(2), epoll and io_uring with wait queues.
///
/// # Invariants
///
/// As long as this value exists, `file` is open and its private data lives for `'a`, and `table` is
/// null or a valid `poll_table`.
pub(crate) struct PollTable<'a> {
    file: *mut bindings::file,
    table: *mut bindings::poll_table,
    /// Invariant in `'a`: it cannot be shortened to the lifetime of an object on the stack.
    _owner: PhantomData<fn(&'a ()) -> &'a ()>,
}

impl<'a> PollTable<'a> {
    /// Registers the caller of poll(2) with `queue`.
    ///
    /// `queue` belongs to the object of the file, directly or through an [`Arc`] that the object
    /// holds unchanged. The lifetime expresses that.
    pub(crate) fn register(&self, queue: &'a WaitQueue) {
        // SAFETY: `file` and `table` are valid by the type invariants. `queue` stays valid while
        // anything polls: it is borrowed for `'a`, and the invariance of this type ties that to the
        // borrow of the file's private data that `poll` was called with. An object that such a
        // reference reaches without a lock stays until that data is dropped, in `release`. Before
        // `release`, poll, epoll and io_uring have left the queue, because each holds the file or,
        // as epoll, is removed when the file is released.
        unsafe { bindings::poll_wait(self.file, queue.as_ptr(), self.table) }
    }
}

/// Opens an anonymous file with these operations and private data. Fails with `ENFILE`, `ENOMEM`.
/// Process context.
///
/// # Safety
///
/// The operations may be called with the private data until the file is released.
unsafe fn open(
    name: &'static CStr,
    operations: &'static bindings::file_operations,
    private: *mut c_void,
) -> Result<ARef<File>> {
    // SAFETY: The name and the operations are static; the rest is the requirement above.
    let file = from_err_ptr(unsafe {
        shim::kfabric_shim_anon_file(name.as_char_ptr(), operations, private)
    })?;
    let file = NonNull::new(file.cast::<File>()).ok_or(ENOMEM)?;
    // SAFETY: The file is new, and its only reference is owned here, so there is no `fdget_pos()`
    // on it. `File` is transparent over `struct file`.
    Ok(unsafe { ARef::from_raw(file) })
}

/// A file that does nothing but keep the module loaded while it is open. Fails with `ENFILE`,
/// `ENOMEM`. Process context.
pub(crate) fn keeper() -> Result<ARef<File>> {
    const OPERATIONS: bindings::file_operations = bindings::file_operations {
        owner: this_module::<LocalModule>().as_ptr(),
        ..pin_init::zeroed()
    };
    // SAFETY: There are no operations.
    unsafe { open(c"[kfabric]", &OPERATIONS, core::ptr::null_mut()) }
}

/// A reserved file descriptor and its file, not yet visible to the process.
///
/// Dropping it undoes both; the [`Arc`] of the file is dropped when the process returns to user
/// space at the latest.
pub(crate) struct PendingFd {
    reservation: FileDescriptorReservation,
    file: ARef<File>,
}

impl PendingFd {
    /// Creates a file for `object` and reserves a descriptor, close-on-exec. Fails with `EMFILE`,
    /// `ENFILE`, `ENOMEM`. Process context.
    pub(crate) fn new<T: AnonFile>(object: Arc<T>) -> Result<Self> {
        let reservation = FileDescriptorReservation::get_unused_fd_flags(flags::O_CLOEXEC)?;
        let private = Arc::into_raw(object);
        // SAFETY: The operations expect the private data to be a `T`.
        let file = unsafe { open(T::NAME, &Operations::<T>::TABLE, private.cast_mut().cast()) }
            .inspect_err(|_| {
                // SAFETY: No file was created, so the reference is still owned here.
                drop(unsafe { Arc::from_raw(private) });
            })?;
        Ok(Self { reservation, file })
    }

    /// The number that the descriptor will have.
    pub(crate) fn fd(&self) -> i32 {
        // CAST: Descriptors are below `INT_MAX`.
        self.reservation.reserved_fd() as i32
    }

    /// Installs the descriptor in the process. Cannot fail.
    pub(crate) fn install(self) {
        self.reservation.fd_install(self.file);
    }
}

/// The file operations of anonymous files of a `T`.
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

    /// The object of a file.
    ///
    /// # Safety
    ///
    /// `file` is open, was created by [`PendingFd::new`] with this `T`, and is not released during
    /// `'a`.
    unsafe fn object<'a>(file: *mut bindings::file) -> &'a T {
        // SAFETY: By the requirements the private data is the result of `Arc::into_raw`, and the
        // file owns that reference until `release`.
        unsafe { &*(*file).private_data.cast::<T>() }
    }

    /// # Safety
    ///
    /// As [`object`](Self::object).
    unsafe fn nonblock(file: *mut bindings::file) -> bool {
        // SAFETY: The file is open by the requirements; this does not depend on its position.
        unsafe { File::from_raw_file(file) }.flags() & flags::O_NONBLOCK != 0
    }

    /// # Safety
    ///
    /// Only the VFS calls this, for a file with these operations.
    #[link_section = ".text.hot"]
    unsafe extern "C" fn poll(
        file: *mut bindings::file,
        table: *mut bindings::poll_table,
    ) -> bindings::__poll_t {
        // SAFETY: The file is open during the call and was created with these operations.
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
        // SAFETY: The file is open during the call and was created with these operations.
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
        // SAFETY: The file is open during the call and was created with these operations.
        let (object, nonblock): (&T, _) = unsafe { (Self::object(file), Self::nonblock(file)) };
        let from = UserPtr::from_ptr(buf.cast_mut().cast());
        let mut from = UserSlice::new(from, len).reader();
        count(object.write(&mut from, nonblock))
    }

    /// # Safety
    ///
    /// As [`poll`](Self::poll); this is the last call for the file.
    unsafe extern "C" fn release(_inode: *mut bindings::inode, file: *mut bindings::file) -> c_int {
        // SAFETY: The private data is the result of `Arc::into_raw` in `PendingFd::new`; the file
        // drops its reference here and is not used again.
        drop(unsafe { Arc::from_raw((*file).private_data.cast::<T>()) });
        0
    }
}

/// Converts a result to the return value of read(2) and write(2).
fn count(result: Result<usize>) -> isize {
    match result {
        // CAST: At most the length of a user buffer, which is below `isize::MAX`.
        Ok(bytes) => bytes as isize,
        // CAST: Error numbers are small.
        Err(error) => error.to_errno() as isize,
    }
}
