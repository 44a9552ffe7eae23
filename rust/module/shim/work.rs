// SPDX-License-Identifier: GPL-2.0

//! The module's workqueues.
//!
//! - [`packet_queue`]: received packets, and for kernel consumers the waiters of counters that
//!   interrupts change. Its items may wait for memory, and for locks of their owner.
//! - [`queue`]: drops after a grace period, and last references that interrupts drop. They may wait
//!   for memory.
//! - [`control_queue`]: messages, timeouts and link removals of connection management. They may
//!   wait for memory.
//! - [`submit_queue`]: started operations of endpoints, which are posted. They may wait for memory,
//!   and for locks of calls.
//! - [`peer_queue`]: sessions, connections, listeners. They may wait for memory, for the locks of
//!   their owner's QPs, and for items of [`packet_queue`], but not for the lock of a session.
//! - [`slow_queue`]: callbacks, links that go, ends of services of connection management. They may
//!   wait for anything, including items of the others.
//! - [`call_handler`]: handlers of kernel consumers for completions and events. They may wait for
//!   anything but items of [`peer_queue`] and [`slow_queue`].
//!
//! Kernel consumers and programs share no queue for packets, operations and peers. Packets of
//! programs are in [`queue`]; their operations and peers are in a queue of their own and in the
//! slow queue. Packets of kernel consumers are in one queue, their operations and peers in another.
//!
//! What an item does may be what frees memory, because a kernel consumer writes back dirty pages
//! with it. So the queues of kernel consumers have a rescuer thread, which runs items when there is
//! no memory for another worker. Their items allocate nothing that waits for I/O
//! ([`NoIo`](super::reclaim::NoIo)), and wait for no lock of a program: its holder may wait for
//! I/O, or not be scheduled. There is one exception: an item that completes a receive of a program
//! on this host releases the program's memory, and may wait for the exporter of a DMA-BUF. Handlers
//! of kernel consumers are the consumers' own functions, which choose their scopes themselves.
//! [`control_queue`] serves both. [`queue`] has a rescuer too, because it frees memory of both.
//!
//! [`WorkQueues`] owns the queues; `net` keeps it from its start to its end. Items run in process
//! context; one item never runs twice at the same time. Those for packets run on the CPU that
//! queued them, with the priority of ordinary tasks: see `kfabric_shim_workqueue_alloc`.

#[cfg(kfi_kunit)]
#[path = "../../../kunit/work.rs"]
mod kunit;

use crate::shim::{
    bindings as shim,
    cpu::Cpu,
    reclaim::OwnerKind, //
};
use core::ptr::NonNull;
use kernel::{
    bindings,
    prelude::*,
    sync::{
        atomic::{
            Acquire,
            Atomic,
            Release, //
        },
        rcu,
        Arc, //
    },
    workqueue::{
        HasWork,
        Queue,
        RawWorkItem,
        Work,
        WorkItem, //
    }, //
};

/// The address of [`queue`], or 0.
static QUEUE: Atomic<usize> = Atomic::new(0);

/// The address of [`control_queue`], or 0.
static CONTROL: Atomic<usize> = Atomic::new(0);

/// The address of the queue for packets of kernel consumers, or 0.
static CONSUMER_PACKETS: Atomic<usize> = Atomic::new(0);

/// The address of the queue for operations and peers of kernel consumers, or 0.
static CONSUMERS: Atomic<usize> = Atomic::new(0);

/// The address of the queue for started operations of programs, or 0.
static SUBMIT: Atomic<usize> = Atomic::new(0);

/// The address of [`slow_queue`], or 0.
static SLOW: Atomic<usize> = Atomic::new(0);

/// The address of [`queue`], for C functions. Any context.
///
/// Without a [`WorkQueues`] it is the system's queue; no owner of work exists then.
pub(super) fn raw_queue() -> *mut bindings::workqueue_struct {
    raw(&QUEUE)
}

fn raw(address: &Atomic<usize>) -> *mut bindings::workqueue_struct {
    match address.load(Acquire) {
        0 => {
            // Should not happen: unloading the module does not wait for items of the system's
            // queue.
            kernel::warn_on!(true);
            // SAFETY: Reads a variable of the kernel that never changes after boot.
            unsafe { bindings::system_dfl_wq }
        }
        queue => queue as *mut bindings::workqueue_struct,
    }
}

/// The queue for values that are dropped after a grace period, or by a worker, and for received
/// packets of programs. Any context.
pub(crate) fn queue() -> &'static Queue {
    // SAFETY: Only owners of work items call this, and each queue exists as long as any of them.
    unsafe { Queue::from_raw(raw_queue()) }
}

/// The queue for items that process received packets of an owner, and for those of counters that
/// interrupts have changed. Any context.
pub(crate) fn packet_queue(kind: OwnerKind) -> &'static Queue {
    match kind {
        OwnerKind::Program => queue(),
        // SAFETY: As above.
        OwnerKind::Consumer => unsafe { Queue::from_raw(raw(&CONSUMER_PACKETS)) },
    }
}

/// The queue of connection management's own work items. Any context.
pub(crate) fn control_queue() -> &'static Queue {
    // SAFETY: As above.
    unsafe { Queue::from_raw(raw(&CONTROL)) }
}

/// The queue for items that post started operations on behalf of an owner. Any context.
pub(crate) fn submit_queue(kind: OwnerKind) -> &'static Queue {
    let address = match kind {
        OwnerKind::Program => &SUBMIT,
        OwnerKind::Consumer => &CONSUMERS,
    };
    // SAFETY: As above.
    unsafe { Queue::from_raw(raw(address)) }
}

/// The queue for items that handle what peers of an owner's objects do: sessions, connections and
/// listeners. They may wait for items of [`packet_queue`]. Any context.
pub(crate) fn peer_queue(kind: OwnerKind) -> &'static Queue {
    match kind {
        OwnerKind::Program => slow_queue(),
        // SAFETY: As above.
        OwnerKind::Consumer => unsafe { Queue::from_raw(raw(&CONSUMERS)) },
    }
}

/// The queue for callbacks, for sessions, connections and listeners of programs, and for items that
/// wait for items of the other queues. Any context.
pub(crate) fn slow_queue() -> &'static Queue {
    // SAFETY: As above.
    unsafe { Queue::from_raw(raw(&SLOW)) }
}

/// The address of the queue of [`call_handler`], or 0.
static HANDLERS: Atomic<usize> = Atomic::new(0);

/// Queues the item of a handler, to run on `cpu` while that is online, or else on the current one.
/// Nothing happens if the item is queued already. Any context but NMIs; the reference is not the
/// last one.
pub(crate) fn call_handler<T>(item: Arc<T>, cpu: Option<Cpu>)
where
    Arc<T>: RawWorkItem<0> + Send + 'static,
{
    let cpu = match cpu {
        // CAST: Numbers of CPUs are small.
        Some(cpu) => cpu.number() as u32,
        None => bindings::wq_misc_consts_WORK_CPU_UNBOUND,
    };
    // SAFETY: `queue_work_on()` returns false if the item is queued already. The item is `Send` and
    // has no lifetime.
    let _ = unsafe {
        // SAFETY: The queue exists as long as any owner of work items. The CPU is one that was
        // online, or any.
        item.__enqueue(|work| bindings::queue_work_on(cpu as c_int, raw(&HANDLERS), work))
    };
}

/// Makes a field of a type a work item: names the field, and the function that the item runs. The
/// function takes `&Arc<Self>`, in process context. A type with several items gives all but one of
/// them an ID.
macro_rules! impl_work {
    ($(
        impl$({$($generics:tt)*})? Work$(<$id:tt>)? for $self:ty {
            self.$field:ident, run: $run:path $(,)?
        }
    )*) => {$(
        ::kernel::workqueue::impl_has_work! {
            impl$({$($generics)*})? HasWork<Self$(, $id)?> for $self { self.$field }
        }

        impl$(<$($generics)*>)? ::kernel::workqueue::WorkItem$(<$id>)? for $self {
            type Pointer = ::kernel::sync::Arc<Self>;

            fn run(this: ::kernel::sync::Arc<Self>) {
                $run(&this);
            }
        }
    )*};
}
pub(crate) use impl_work;

/// Waits until a work item is neither queued nor running. Must not be called from the item itself,
/// nor from an item of [`packet_queue`]. Sleeps.
pub(crate) fn flush<T, const ID: u64>(work: &Work<T, ID>) {
    // SAFETY: The item is initialised, like every `Work`, and lives during the call.
    unsafe { bindings::flush_work(Work::raw_get(work)) };
}

/// Takes a work item from its queue, or waits until a run that has begun is over. Must not be
/// called from the item itself. Sleeps.
pub(crate) fn cancel<T, const ID: u64>(item: &Arc<T>)
where
    T: HasWork<T, ID> + WorkItem<ID, Pointer = Arc<T>>,
{
    let pointer = Arc::as_ptr(item).cast_mut();
    // SAFETY: The item is alive, and its work is initialised, like every `Work`.
    let was_queued = unsafe {
        let work = Work::raw_get(T::raw_get_work(pointer));
        bindings::cancel_work_sync(work)
    };
    if was_queued {
        // SAFETY: The queue had a reference to the item, which it has given to nobody.
        drop(unsafe { Arc::from_raw(pointer) });
    }
}

/// Where a workqueue runs its items, see `kfabric_shim_workqueue_alloc`.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Place {
    /// On one CPU; with a rescuer.
    PerCpu,
    /// On any CPU; with a rescuer.
    Rescued,
    /// On any CPU; without memory for a worker an item waits.
    Unbound,
}

/// A workqueue. Dropping it waits until all queued items have run, including those that its own
/// items queue meanwhile; nothing else may queue items then.
///
/// # Invariants
///
/// The pointer is that of a workqueue that this value owns, and `address` has its address.
struct WorkQueue {
    queue: NonNull<bindings::workqueue_struct>,
    address: &'static Atomic<usize>,
}

// SAFETY: Any task may destroy a workqueue.
unsafe impl Send for WorkQueue {}
// SAFETY: A shared reference has no methods.
unsafe impl Sync for WorkQueue {}

impl WorkQueue {
    fn new(name: &'static CStr, place: Place, address: &'static Atomic<usize>) -> Result<Self> {
        let (percpu, rescuer) = (place == Place::PerCpu, place != Place::Unbound);
        // SAFETY: The name is static; process context.
        let queue =
            unsafe { shim::kfabric_shim_workqueue_alloc(name.as_char_ptr(), percpu, rescuer) };
        let queue = NonNull::new(queue).ok_or(ENOMEM)?;
        // Release pairs with the acquire in `raw`.
        address.store(queue.as_ptr() as usize, Release);
        // INVARIANT: Just allocated.
        Ok(Self { queue, address })
    }
}

impl Drop for WorkQueue {
    fn drop(&mut self) {
        // Drain before clearing `address`: items that its items queue must come to this queue, and
        // not to the system's queue, which this drop does not wait for. SAFETY: By the type
        // invariant the queue is owned here.
        unsafe { bindings::drain_workqueue(self.queue.as_ptr()) };
        self.address.store(0, Release);
        // SAFETY: As above; nothing finds the queue any more.
        unsafe { bindings::destroy_workqueue(self.queue.as_ptr()) };
    }
}

/// Dropping it waits until closed sockets receive no packet any more, and then until the items that
/// are in the queue at that time have run.
struct Flush(&'static Atomic<usize>);

impl Drop for Flush {
    fn drop(&mut self) {
        rcu::synchronize_rcu();
        // SAFETY: The queue exists: `WorkQueues` drops this value before the queue.
        unsafe { shim::kfabric_shim_workqueue_flush(raw(self.0)) };
    }
}

/// Dropping it waits for the grace periods of `queue_rcu_work()`: after that the items are in
/// [`queue`].
struct Barrier;

impl Drop for Barrier {
    fn drop(&mut self) {
        rcu::rcu_barrier();
    }
}

/// Owns the queues. Dropping it waits until all items have run, including those that wait for a
/// grace period. Only items themselves may queue items then.
///
/// A value that is dropped after a grace period may queue another one for a grace period: the last
/// QP or link of a namespace queues the sockets. So the drop waits for two rounds of grace periods.
pub(crate) struct WorkQueues {
    // Fields are dropped in this order.
    // Items of counters that interrupts changed. They may start work of a domain that is closed.
    _waiters: Flush,
    // No kernel consumer is left, so nothing queues a handler.
    _handlers: WorkQueue,
    // Items that post operations of closed endpoints, and free the endpoints.
    _submit: WorkQueue,
    // A service of connection management ends in the control queue, which queues the ends of
    // connections and the closing of QP 1.
    _ended: Flush,
    _consumers: WorkQueue,
    _slow: WorkQueue,
    // QP 1 is closed, so packets do not wake the service.
    _control: WorkQueue,
    // All QPs are closed. A softirq that has found one may wake it until a grace period has passed.
    _received: Flush,
    _consumer_packets: WorkQueue,
    _first: (Barrier, Flush),
    _second: Barrier,
    _queue: WorkQueue,
}

impl WorkQueues {
    /// Creates the queues. Fails with `ENOMEM`. At most one value may exist at a time. Sleeps.
    pub(crate) fn new() -> Result<Self> {
        let queue = WorkQueue::new(c"kfabric", Place::PerCpu, &QUEUE)?;
        let packets = WorkQueue::new(
            c"kfabric_consumer_packets",
            Place::PerCpu,
            &CONSUMER_PACKETS,
        )?;
        let control = WorkQueue::new(c"kfabric_cm", Place::Rescued, &CONTROL)?;
        Ok(Self {
            _waiters: Flush(&CONSUMER_PACKETS),
            _handlers: WorkQueue::new(c"kfabric_handlers", Place::PerCpu, &HANDLERS)?,
            _submit: WorkQueue::new(c"kfabric_submit", Place::Unbound, &SUBMIT)?,
            _ended: Flush(&CONTROL),
            _consumers: WorkQueue::new(c"kfabric_consumers", Place::Rescued, &CONSUMERS)?,
            _slow: WorkQueue::new(c"kfabric_slow", Place::Unbound, &SLOW)?,
            _control: control,
            _received: Flush(&CONSUMER_PACKETS),
            _consumer_packets: packets,
            _first: (Barrier, Flush(&QUEUE)),
            _second: Barrier,
            _queue: queue,
        })
    }
}
