// SPDX-License-Identifier: GPL-2.0

//! Helpers of the suites of all layers: threads, waiting with a time limit, users, memory and
//! descriptors of a program, packets.
//!
//! The suites run in kernel threads without an mm. The C functions are in `helpers.c`.

use core::ptr::NonNull;
use kernel::{
    bindings,
    error::from_err_ptr,
    prelude::*,
    sync::{
        atomic::{
            Acquire,
            Atomic,
            Full, //
        },
        Arc,
        Completion, //
    },
    task::Kuid,
    time::{
        delay::fsleep,
        Delta, //
    },
    uaccess::{
        UserPtr,
        UserSlice, //
    }, //
};

use kfi_core::{
    limits::LINK_NAME_MAX,
    refusals,
    wait::Deadline, //
};

use crate::{
    mem::{
        Budget,
        PeerPlace,
        PeerWork,
        PeerWorker,
        Place,
        WaitingWork, //
    },
    shim::{
        bindings as shim,
        cred::Owner,
        sched::now_ns,
        skb::RxSkb, //
    }, //
};

/// Nanoseconds in a millisecond.
pub(crate) const MS: u64 = 1_000_000;

/// A time in ns after which an event that has not happened never will: at least ten times what it
/// takes on a sanitizing kernel without other load, because a loaded host stops a guest for
/// seconds. Only a case that fails waits so long.
///
/// It is less than the 120 s after which the kernel reports a task as hung, and than the 300 s
/// after which KUnit ends a case.
pub(crate) const LONG: u64 = 60_000 * MS;

/// Refusals after which a peer is delayed for a minute.
pub(crate) const REFUSALS: u64 = refusals::FREE + 60_000_000_000 / refusals::PENALTY;

/// Returns `name` in the form of the ABI.
pub(crate) fn raw_name(name: &[u8]) -> [u8; LINK_NAME_MAX] {
    core::array::from_fn(|index| name.get(index).copied().unwrap_or_default())
}

/// Sleeps until `holds` returns true. Returns false if it does not within [`LONG`].
pub(crate) fn eventually(mut holds: impl FnMut() -> bool) -> bool {
    let end = now_ns() + LONG;
    while !holds() {
        if now_ns() > end {
            return false;
        }
        fsleep(Delta::from_micros(200));
    }
    true
}

/// Waits until `next` returns a value. Fails with `ETIMEDOUT` if it does not within [`LONG`].
pub(crate) fn wait_for<T>(mut next: impl FnMut() -> Option<T>) -> Result<T> {
    let mut found = None;
    eventually(|| {
        found = next();
        found.is_some()
    });
    found.ok_or(ETIMEDOUT)
}

/// Sleeps for a short time, in which unwanted events would happen.
pub(crate) fn a_while() {
    fsleep(Delta::from_millis(20));
}

/// A counter for threads.
pub(crate) struct Count(Atomic<u32>);

impl Count {
    pub(crate) fn new() -> Result<Arc<Self>> {
        Ok(Arc::new(Self(Atomic::new(0)), GFP_KERNEL)?)
    }

    pub(crate) fn add(&self, n: u32) {
        self.0.fetch_add(n, Full);
    }

    pub(crate) fn get(&self) -> u32 {
        self.0.load(Acquire)
    }
}

/// Work that counts how often it is queued.
pub(crate) struct CountedWork {
    pub(crate) queued: Arc<Count>,
    pub(crate) peer_place: PeerPlace,
    pub(crate) place: Place,
}

impl CountedWork {
    pub(crate) fn new() -> Result<Arc<Self>> {
        let work = Self {
            queued: Count::new()?,
            peer_place: PeerPlace::new(),
            place: Place::new(),
        };
        Ok(Arc::new(work, GFP_KERNEL)?)
    }
}

impl PeerWork for CountedWork {
    fn queue(self: Arc<Self>) {
        self.queued.add(1);
    }

    fn place(&self) -> &PeerPlace {
        &self.peer_place
    }
}

impl WaitingWork for CountedWork {
    fn queue(self: Arc<Self>) {
        self.queued.add(1);
    }

    fn place(&self) -> &Place {
        &self.place
    }
}

/// Takes all workers for peers of a user.
pub(crate) fn take_peer_workers<'a>(
    budget: &'a Budget,
    owner: &Owner,
) -> Result<KVec<PeerWorker<'a>>> {
    let (mut workers, waits) = (KVec::new(), CountedWork::new()?);
    // The last call gets no worker, and `waits` waits for one.
    while let Some(worker) = budget.enter_peer_worker(owner, waits.clone()) {
        workers.push(worker, GFP_KERNEL)?;
    }
    Ok(workers)
}

/// Takes all that is left of a limit. `take` takes this many bytes, or fails.
pub(crate) fn take_rest<T>(take: impl Fn(u64) -> Result<T>) -> Result<KVec<T>> {
    let mut taken = KVec::new();
    for bit in (0..u64::BITS - 1).rev() {
        if let Ok(some) = take(1 << bit) {
            taken.push(some, GFP_KERNEL)?;
        }
    }
    Ok(taken)
}

/// Runs `run` in a kernel thread, and adds 1 to `count` if it returns true.
pub(crate) fn count_if(
    count: &Arc<Count>,
    run: impl FnOnce() -> bool + Send + 'static,
) -> Result<Join> {
    let count = count.clone();
    thread(move || count.add(run().into()))
}

/// Returns a deadline this many milliseconds from now.
pub(crate) fn within(ms: u64) -> Deadline {
    Deadline::At(now_ns() + ms * MS)
}

/// Returns a deadline that expires only if a wake-up was lost.
pub(crate) fn soon() -> Deadline {
    Deadline::At(now_ns() + LONG)
}

/// Returns a user that no task has. Suites use different numbers.
pub(crate) fn user(n: u32) -> Kuid {
    Kuid::from_raw(bindings::kuid_t {
        val: 0xf00d_0000 + n,
    })
}

/// A thread that runs a closure once.
///
/// Dropping it waits for the thread to end.
pub(crate) struct Join {
    done: Arc<Completion>,
    task: NonNull<bindings::task_struct>,
}

/// The argument of the thread of a [`Join`].
struct Start<F> {
    run: F,
    done: Arc<Completion>,
}

/// Runs `run` in a kernel thread. Fails with `ENOMEM`. Process context.
pub(crate) fn thread<F: FnOnce() + Send + 'static>(run: F) -> Result<Join> {
    let done = Arc::pin_init(Completion::new(), GFP_KERNEL)?;
    let start = KBox::new(
        Start {
            run,
            done: done.clone(),
        },
        GFP_KERNEL,
    )?;
    let start = KBox::into_raw(start);
    // SAFETY: `thread_main::<F>` expects `start` and takes it over.
    let task =
        from_err_ptr(unsafe { shim::kfabric_kunit_thread(Some(thread_main::<F>), start.cast()) })
            .inspect_err(|_| {
            // SAFETY: No thread was created, so `start` is still owned here.
            drop(unsafe { KBox::from_raw(start) });
        })?;
    Ok(Join {
        done,
        task: NonNull::new(task).ok_or(ENOMEM)?,
    })
}

/// # Safety
///
/// `data` is a `Start<F>` that `thread` has created and passes on.
unsafe extern "C" fn thread_main<F: FnOnce() + Send + 'static>(data: *mut c_void) -> c_int {
    // SAFETY: By the requirements.
    let start = KBox::into_inner(unsafe { KBox::from_raw(data.cast::<Start<F>>()) });
    (start.run)();
    start.done.complete_all();
    0
}

/// Allows the current thread, which [`thread`] created, to be [killed](Join::kill).
pub(crate) fn allow_kill() {
    // SAFETY: Changes the signal handling of the current task; process context.
    unsafe { shim::kfabric_kunit_allow_kill() }
}

impl Join {
    /// Sends a fatal signal to the thread, which has called [`allow_kill`]. It ends the thread's
    /// killable waits.
    pub(crate) fn kill(&self) {
        // SAFETY: The task is valid, as `kfabric_kunit_thread` took a reference.
        unsafe { shim::kfabric_kunit_kill(self.task.as_ptr()) }
    }

    /// Waits for the thread to end.
    pub(crate) fn join(self) {}
}

impl Drop for Join {
    fn drop(&mut self) {
        self.done.wait_for_completion();
        // SAFETY: The task is valid, as `kfabric_kunit_thread` took a reference, which this
        // puts. The closure has run, so the thread ends by itself or has ended; afterwards it runs
        // no code of this module.
        unsafe { shim::kfabric_kunit_join(self.task.as_ptr()) };
    }
}

/// Anonymous memory of the current test's thread, unmapped when dropped.
pub(crate) struct UserMemory {
    addr: usize,
    len: usize,
}

impl UserMemory {
    /// Maps `len` zero bytes.
    pub(crate) fn map(len: usize, writable: bool) -> Result<Self> {
        // SAFETY: Called in the thread of a test; no other requirements.
        let addr = unsafe { shim::kfabric_kunit_map(len, writable) };
        if addr < 0 {
            // CAST: Error numbers are small.
            return Err(Error::from_errno(addr as i32));
        }
        Ok(Self {
            // CAST: Not negative.
            addr: addr as usize,
            len,
        })
    }

    /// The address of the first byte.
    pub(crate) fn addr(&self) -> usize {
        self.addr
    }

    /// The address of byte `offset`, for functions that take user pointers.
    pub(crate) fn ptr(&self, offset: usize) -> UserPtr {
        UserPtr::from_addr(self.addr.wrapping_add(offset))
    }

    /// Writes `bytes`, like a write of the program.
    pub(crate) fn write(&self, offset: usize, bytes: &[u8]) -> Result {
        UserSlice::new(self.ptr(offset), bytes.len())
            .writer()
            .write_slice(bytes)
    }

    /// Reads to `bytes`, like a read of the program.
    pub(crate) fn read(&self, offset: usize, bytes: &mut [u8]) -> Result {
        UserSlice::new(self.ptr(offset), bytes.len())
            .reader()
            .read_slice(bytes)
    }

    /// Pages that are charged to the current thread's mm.
    pub(crate) fn charged() -> isize {
        // SAFETY: Only reads the current task.
        unsafe { shim::kfabric_kunit_pinned() }
    }
}

impl Drop for UserMemory {
    fn drop(&mut self) {
        // SAFETY: This thread has mapped it, and there is no slice of it.
        unsafe { shim::kfabric_kunit_unmap(self.addr, self.len) }
    }
}

/// A page of the current test's thread that is locked until this is dropped.
pub(crate) struct LockedPage {
    page: NonNull<bindings::page>,
    dirty: bool,
}

impl LockedPage {
    /// Locks the first page of `memory`, and marks it clean as MADV_FREE does. Fails with `EFAULT`
    /// if there is none.
    pub(crate) fn new(memory: &UserMemory) -> Result<Self> {
        let mut dirty = false;
        // SAFETY: Called in the thread of a test; `dirty` is valid for the call.
        let page = unsafe { shim::kfabric_kunit_page_lock(memory.addr(), &raw mut dirty) };
        let page = NonNull::new(page).ok_or(EFAULT)?;
        Ok(Self { page, dirty })
    }

    /// Whether the page was marked dirty before.
    pub(crate) fn is_dirty(&self) -> bool {
        self.dirty
    }
}

impl Drop for LockedPage {
    fn drop(&mut self) {
        // SAFETY: `new` has locked the page and taken a reference to it.
        unsafe { shim::kfabric_kunit_page_unlock(self.page.as_ptr()) }
    }
}

/// A file descriptor of the current test's thread, closed when dropped.
pub(crate) struct UserFd(u32);

impl UserFd {
    /// Takes over an installed descriptor.
    pub(crate) fn new(fd: i32) -> Self {
        Self(fd.unsigned_abs())
    }

    /// The events that poll(2) finds, without waiting.
    pub(crate) fn poll(&self) -> u32 {
        // SAFETY: Any number is allowed.
        unsafe { shim::kfabric_kunit_poll(self.0) }
    }

    /// read(2) of at most `len` bytes to the beginning of `memory`.
    pub(crate) fn read(&self, memory: &UserMemory, len: usize, nonblock: bool) -> Result<usize> {
        self.io(false, memory, len, nonblock)
    }

    /// write(2) of `len` bytes from the beginning of `memory`.
    pub(crate) fn write(&self, memory: &UserMemory, len: usize, nonblock: bool) -> Result<usize> {
        self.io(true, memory, len, nonblock)
    }

    fn io(&self, write: bool, memory: &UserMemory, len: usize, nonblock: bool) -> Result<usize> {
        // SAFETY: The descriptor is that of an anonymous file, which has both operations.
        let ret = unsafe { shim::kfabric_kunit_io(self.0, write, nonblock, memory.addr(), len) };
        // CAST: Error numbers are small.
        usize::try_from(ret).map_err(|_| Error::from_errno(ret as i32))
    }
}

impl Drop for UserFd {
    fn drop(&mut self) {
        // SAFETY: Any number is allowed.
        unsafe { shim::kfabric_kunit_close(self.0) };
    }
}

/// Whether the caller may sleep, as far as the kernel configuration counts what forbids it.
pub(crate) fn may_sleep() -> bool {
    // SAFETY: Only reads the state of this CPU and task.
    unsafe { shim::kfabric_kunit_may_sleep() }
}

/// The kind of interrupt that the caller is in.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Irq {
    /// None: a task.
    None,
    /// A softirq.
    Soft,
    /// A hard interrupt.
    Hard,
}

impl Irq {
    /// The one that the caller is in.
    pub(crate) fn current() -> Self {
        // SAFETY: Only reads the state of this CPU and task.
        match unsafe { shim::kfabric_kunit_irq() } {
            0 => Self::None,
            1 => Self::Soft,
            _ => Self::Hard,
        }
    }
}

/// Returns a packet as if it was received: `packet` begins with an IP header of `ip_len` bytes. All
/// bytes but the headers and `linear` bytes after them are in fragments of `piece` bytes.
pub(crate) fn rx_skb(packet: &[u8], ip_len: usize, linear: usize, piece: usize) -> Result<RxSkb> {
    if packet.len() < ip_len.saturating_add(8) || piece == 0 || piece > 4000 {
        return Err(EINVAL);
    }
    // SAFETY: The slice is valid, and long enough for the headers.
    let skb = unsafe {
        shim::kfabric_kunit_skb(
            packet.as_ptr(),
            u32::try_from(packet.len())?,
            u32::try_from(ip_len)?,
            u32::try_from(linear)?,
            u32::try_from(piece)?,
        )
    };
    // SAFETY: The packet is as the type's invariant says, and owned here.
    Ok(unsafe { RxSkb::from_raw(NonNull::new(skb).ok_or(ENOMEM)?) })
}
