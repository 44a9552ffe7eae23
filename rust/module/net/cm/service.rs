// SPDX-License-Identifier: GPL-2.0

//! Cm: the connection management service of a network namespace.
//!
//! The work item of QP 1 processes datagrams ([`receive`](super::receive)). The service's own work
//! item processes timeouts, and links that have gone. Both change the table under its lock and send
//! messages. The work items of connections and listeners deliver events and requests, so the first
//! two wait for no consumer. One timer is set to the earliest deadline of all connections, if there
//! is one.
//!
//! The service of a namespace is in the [`CmSlot`] of its socket while the socket is open. The
//! socket is closed with the RTNL held, under which consumers cannot be called. So work items end
//! the service: one ends all connections and listeners, another closes QP 1.

use super::{
    super::{
        path::Path,
        qp::{
            ud::Destination,
            Qp,
            Ud, //
        },
        socket::Socket,
        stats::Stat, //
    },
    conn::{
        Conn,
        Consumer, //
    },
    entry::{
        Entry,
        Quota,
        Reservation, //
    },
    listen::ListenerEntry,
    receive::CmConsumer,
    table::{
        ListenerNode,
        Step,
        SweepResult,
        Table, //
    }, //
};
use crate::{
    mem::{
        Inline,
        Source, //
    },
    net::qp::rc::MAX_RD_ATOMIC,
    shim::{
        alarm::{
            impl_alarm,
            Alarm,
            Due, //
        },
        random::{
            random_u32,
            random_u64, //
        },
        reclaim::NoIo,
        sched::{
            cond_resched,
            now_ns, //
        },
        work::{
            self,
            impl_work, //
        }, //
    }, //
};
use core::net::IpAddr;
use kernel::{
    new_spinlock,
    prelude::*,
    sync::{
        atomic::{
            Acquire,
            Atomic,
            Full,
            Release, //
        },
        Arc,
        SetOnce,
        SpinLock, //
    },
    time::hrtimer::HrTimer,
    workqueue::{
        new_work,
        Work, //
    }, //
};
use kfi_roce::{
    cm::{
        CommId,
        Connection,
        Device,
        Mad,
        State,
        Timing, //
    },
    headers::Qpn,
    mtu::PathMtu,
    ud::GSI_QKEY, //
};

/// The reference of a socket to the service of its namespace.
#[pin_data]
pub(crate) struct CmSlot {
    /// `None` before the service starts, and after the socket is closed. A leaf lock.
    #[pin]
    cm: SpinLock<Option<Arc<Cm>>>,
}

impl CmSlot {
    pub(in crate::net) fn new() -> impl PinInit<Self> {
        pin_init!(Self {
            cm <- new_spinlock!(None, "CmSlot::cm"),
        })
    }

    /// Has a work item end the connections of a link that has gone. `closed`: it was the last link
    /// and the socket is closed, so the service ends. Does not sleep; the RTNL may be held.
    pub(in crate::net) fn link_gone(&self, closed: bool) {
        let cm = {
            let mut cm = self.cm.lock();
            if closed {
                cm.take()
            } else {
                cm.clone()
            }
        };
        let Some(cm) = cm else {
            return;
        };
        // Release pairs with the acquire in `work`, which reads the state of the links after that.
        if closed {
            cm.ended.store(true, Release);
        }
        cm.swept.store(false, Release);
        cm.wake();
    }
}

/// Starts the service of the namespace of `socket`, which was just opened. It ends with
/// [`CmSlot::link_gone`]. Fails with `ENOMEM`. Sleeps; the RTNL may be held.
pub(in crate::net) fn begin(socket: &Arc<Socket>) -> Result {
    let cm = Cm::new(socket)?;
    *socket.receiver().cm().cm.lock() = Some(cm);
    Ok(())
}

/// The data that the lock of the service protects.
pub(super) struct Inner {
    table: Table,
    /// The service has ended: no connection or listener can be inserted any more.
    closed: bool,
    alarm: Alarm<Cm>,
}

/// The service, see the module documentation.
#[pin_data]
pub(super) struct Cm {
    socket: Arc<Socket>,
    /// The GUID of the device, as peers see it. It is random, so each service of a namespace has a
    /// different one.
    guid: u64,
    /// QP 1. Set before `new` returns.
    gsi: SetOnce<Arc<Qp<Ud>>>,
    /// Below all locks of consumers and above those of connections. No callback is called, nothing
    /// is sent and no memory is allocated while it is held. Process context only. It is a spin
    /// lock, so that its holder is not preempted.
    #[pin]
    inner: SpinLock<Inner>,
    /// The socket is closed, so the service must end.
    ended: Atomic<bool>,
    /// No link has gone since the last sweep.
    swept: Atomic<bool>,
    due: Due,
    #[pin]
    timer: HrTimer<Self>,
    #[pin]
    work: Work<Self>,
    #[pin]
    end: Work<Self, END>,
}

/// The ID of the work item that closes QP 1.
const END: u64 = 1;

impl_work! {
    impl Work for Cm { self.work, run: Self::work }
    impl Work<END> for Cm { self.end, run: Self::close_gsi }
}

impl_alarm! {
    impl Alarm for Cm { timer: self.timer, due: self.due, expired: Self::wake }
}

/// QP 1 of the peer, to which messages are sent.
pub(in crate::net) const PEER: Destination = Destination {
    qp: Qpn::GSI,
    qkey: GSI_QKEY,
    imm: None,
    solicited: false,
};

/// The number of random IDs that are tried for a connection. Almost certainly one of them is free.
const ID_TRIES: usize = 16;

/// The start and the end of the service, and its timer.
impl Cm {
    /// The service of the namespace of `socket`. Fails with `ENODEV` if the socket is closed. Does
    /// not sleep.
    pub(super) fn of(socket: &Arc<Socket>) -> Result<Arc<Self>> {
        socket.receiver().cm().cm.lock().clone().ok_or(ENODEV)
    }

    fn new(socket: &Arc<Socket>) -> Result<Arc<Self>> {
        let inner = Inner {
            table: Table::new(),
            closed: false,
            alarm: Alarm::new(),
        };
        let cm = Arc::pin_init(
            pin_init!(Self {
                socket: socket.clone(),
                guid: random_u64(),
                gsi: SetOnce::new(),
                inner <- new_spinlock!(inner, "Cm::inner"),
                ended: Atomic::new(false),
                swept: Atomic::new(true),
                due: Due::never(),
                timer <- HrTimer::new(),
                work <- new_work!("kfabric::Cm"),
                end <- new_work!("kfabric::Cm::end"),
            }),
            GFP_KERNEL_ACCOUNT,
        )?;
        let consumer = Arc::new(CmConsumer(cm.clone()), GFP_KERNEL_ACCOUNT)?;
        // The consumer of QP 1 has a reference to the service, and the service to QP 1, until QP 1
        // is closed.
        let gsi = Qp::gsi(socket, consumer)?;
        cm.gsi.populate(gsi);
        Ok(cm)
    }

    /// Queues the work item. Any context.
    fn wake(self: &Arc<Self>) {
        // The queue refuses an item that is queued already.
        let _ = work::control_queue().enqueue::<_, 0>(self.clone());
    }

    /// Processes timeouts and links that have gone. Called by the work item.
    fn work(self: &Arc<Self>) {
        let _no_io = NoIo::enter();
        // Acquire pairs with the release in `CmSlot::link_gone`.
        let ended = self.ended.load(Acquire);
        // Only the first run ends the service: the queues may not exist any more when a later one
        // ends.
        let first = ended && !core::mem::replace(&mut self.inner.lock().closed, true);
        if !self.swept.xchg(true, Full) {
            self.sweep();
        }
        self.expire();
        if first {
            self.remove_listeners();
            // Closing the QP waits for its worker.
            let _ = work::slow_queue().enqueue::<_, END>(self.clone());
        }
    }

    /// Closes QP 1. Called by the work item `end`. Sleeps.
    fn close_gsi(self: &Arc<Self>) {
        if let Some(gsi) = self.gsi.as_ref() {
            gsi.close();
        }
    }

    /// Removes and ends the connections whose link has gone.
    fn sweep(&self) {
        let mut after = CommId(0);
        loop {
            let swept = self.with(|table| table.sweep(after));
            match swept {
                SweepResult::Gone(removed) => {
                    let (id, entry) = removed.to_key_value();
                    after = id;
                    entry.gone();
                }
                SweepResult::UpTo(id) => after = id,
                SweepResult::Done => return,
            }
            cond_resched();
        }
    }

    /// Removes all listeners, and stops the timer. Sleeps.
    fn remove_listeners(&self) {
        while let Some(listener) = self.with(Table::remove_listener) {
            listener.gone();
        }
        let alarm = core::mem::replace(&mut self.inner.lock().alarm, Alarm::new());
        // Waits for the callback, which takes no lock.
        drop(alarm);
    }

    /// Handles the timeouts that are due.
    fn expire(self: &Arc<Self>) {
        loop {
            let now = now_ns();
            let step = self.with_deadlines(|table| {
                let (_, id) = table.deadline().filter(|(at, _)| *at <= now)?;
                table.step(id, |entry| entry.expired(now))
            });
            let Some(step) = step else {
                return;
            };
            if !self.finish(step) {
                self.count(Stat::CmResent);
            }
            cond_resched();
        }
    }

    /// Sets the timer to the next timeout. `now` in ns.
    fn set_alarm(self: &Arc<Self>, inner: &mut Inner, now: u64) {
        if let (Some((at, _)), false) = (inner.table.deadline(), inner.closed) {
            inner.alarm.set(self, &self.due, now, at);
        }
    }

    /// Counts an event in the statistics of the namespace.
    pub(super) fn count(&self, stat: Stat) {
        self.socket.receiver().stats().add(stat, 1);
    }
}

/// Access to the table.
impl Cm {
    /// Calls `act` with the table, under its lock: `act` must not sleep. Does not sleep.
    pub(super) fn with<R>(&self, act: impl FnOnce(&mut Table) -> R) -> R {
        act(&mut self.inner.lock().table)
    }

    /// As [`with`](Self::with), and sets the timer to the next timeout. Does not sleep.
    pub(super) fn with_deadlines<R>(self: &Arc<Self>, act: impl FnOnce(&mut Table) -> R) -> R {
        let mut inner = self.inner.lock();
        let result = act(&mut inner.table);
        self.set_alarm(&mut inner, now_ns());
        result
    }

    /// Inserts a connection that counts against `quota`. Fails with `EBUSY` if a limit is reached,
    /// `EEXIST` if another one has this ID, `ENODEV` if the service has ended. Does not sleep.
    pub(super) fn insert(
        self: &Arc<Self>,
        conn: &Arc<Conn>,
        machine: Connection,
        quota: Quota,
        reservation: &mut Reservation,
    ) -> Result {
        let mut inner = self.inner.lock();
        if inner.closed {
            return Err(ENODEV);
        }
        inner.table.insert(conn, machine, quota, reservation)?;
        self.set_alarm(&mut inner, now_ns());
        Ok(())
    }

    /// Sends the message of a step, and queues the delivery of its event. Sleeps.
    pub(super) fn finish<R>(&self, step: Step<R>) -> R {
        if let Some(mad) = &step.mad {
            self.send(step.conn.path(), mad);
        }
        if step.event_queued {
            step.conn.wake();
        }
        step.result
    }

    /// Sends a message. A message that cannot be sent counts as lost, and is repeated like a lost
    /// one. Sleeps.
    pub(super) fn send(&self, path: &Path, mad: &Mad) {
        if let (Some(gsi), Some(payload)) = (self.gsi.as_ref(), Inline::from_slice(mad)) {
            let _ = gsi.send(path, &PEER, &Source::Inline(&payload));
        }
    }
}

/// Returns a random communication ID.
pub(super) fn random_id() -> CommId {
    // 0 means that there is no ID.
    CommId(random_u32().max(1))
}

/// Functions for connections and listeners.
impl Cm {
    /// QP 1. Does not fail after `new`; else with `ENODEV`.
    pub(super) fn gsi(&self) -> Result<&Arc<Qp<Ud>>> {
        self.gsi.as_ref().ok_or(ENODEV)
    }

    /// The socket of the namespace.
    pub(super) fn socket(&self) -> &Arc<Socket> {
        &self.socket
    }

    /// The device parameters of a connection from `ip`.
    pub(super) fn device(&self, ip: IpAddr, mtu: PathMtu) -> Device {
        Device {
            ca_guid: self.guid,
            ip,
            mtu,
            responder_resources: MAX_RD_ATOMIC,
            initiator_depth: MAX_RD_ATOMIC,
            timing: Timing::DEFAULT,
        }
    }

    /// Inserts a connection, which `make` creates with a new ID, and sends its first message. Fails
    /// with `EBUSY` if a limit is reached, `ENODEV` if its link has gone, `ENOMEM`. Sleeps.
    pub(super) fn connect(
        self: &Arc<Self>,
        path: &Arc<Path>,
        context: u64,
        consumer: &Arc<dyn Consumer>,
        make: impl Fn(CommId) -> Connection,
    ) -> Result<Arc<Conn>> {
        let mut reservation = Reservation::new(None)?;
        for _ in 0..ID_TRIES {
            let id = random_id();
            let (kind, consumer) = (consumer.owner_kind(), Some(consumer.clone()));
            let conn = Conn::new(self, id, path.clone(), kind, context, consumer)?;
            match self.insert(&conn, make(id), Quota::None, &mut reservation) {
                Err(error) if error == EEXIST => continue,
                inserted => inserted?,
            }
            // If the link goes now, either `sweep` finds the connection, or this check finds that
            // the link has gone.
            if conn.is_gone() {
                conn.forget();
                return Err(ENODEV);
            }
            let _ = self.act(&conn, |_| ());
            return Ok(conn);
        }
        Err(EBUSY)
    }

    /// Calls `act` with the entry of a connection, under the lock of the table. Then sends the
    /// resulting message, queues the delivery of the event, and sets the timer. `None` if the
    /// connection is not in the table. Sleeps.
    pub(super) fn act<R>(
        self: &Arc<Self>,
        conn: &Conn,
        act: impl FnOnce(&mut Entry) -> R,
    ) -> Option<R> {
        let step = self.with_deadlines(|table| {
            // Another connection may have its ID by now.
            table
                .contains(conn)
                .then(|| table.step(conn.id(), act))
                .flatten()
        })?;
        Some(self.finish(step))
    }

    /// The state of a connection; `None` if it is not in the table. Does not sleep.
    pub(super) fn state(&self, conn: &Conn) -> Option<State> {
        self.with(|table| {
            table
                .contains(conn)
                .then(|| table.state(conn.id()))
                .flatten()
        })
    }

    /// Removes a connection from the table. Sleeps.
    pub(super) fn remove(&self, conn: &Conn) {
        let removed = self.with(|table| {
            table
                .contains(conn)
                .then(|| table.remove(conn.id()))
                .flatten()
        });
        drop(removed);
    }

    /// See [`Table::listen`]. Also fails with `ENODEV` and `ENOMEM`. Sleeps.
    pub(super) fn listen(&self, listener: &Arc<ListenerEntry>) -> Result {
        let node = ListenerNode::new(GFP_KERNEL_ACCOUNT)?;
        let mut inner = self.inner.lock();
        if inner.closed {
            return Err(ENODEV);
        }
        inner.table.listen(listener, node)
    }

    /// See [`Table::unlisten`]. Sleeps.
    pub(super) fn unlisten(&self, listener: &Arc<ListenerEntry>) {
        let removed = self.with(|table| table.unlisten(listener));
        drop(removed);
    }
}
