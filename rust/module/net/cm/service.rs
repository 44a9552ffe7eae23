// SPDX-License-Identifier: GPL-2.0

//! Cm: connection management of a network namespace.
//!
//! Datagrams to QP 1 come by that QP's worker; the service has a work item of its own for what time
//! brings, and for links that have gone. Both hold `news` while they do their work. One timer is set
//! to the earliest deadline of all connections, and to none if there is none.
//!
//! A namespace's service stands in its socket's [`Slot`]: none until somebody wants one, and none any
//! more when the socket is closed, which happens under locks that nobody can be called under. So the
//! end is the work item's: it tells all consumers and listeners, closes QP 1, and goes.

use super::{
    super::{
        link::Link,
        path::Path,
        qp::{
            ud::{
                self,
                Datagram,
                Destination, //
            },
            Qp,
            Ud, //
        },
        socket::{
            Socket,
            Way, //
        },
        stats::Figure,
        table as links, //
    },
    conn::{
        Conn,
        Consumer, //
    },
    listen::Door,
    request::{
        Params,
        Request, //
    },
    table::{
        Entry,
        Step,
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
        random::random_u64,
        sched::{
            cond_resched,
            now_ns, //
        },
        work, //
    }, //
};
use core::net::IpAddr;
use kernel::{
    new_mutex,
    prelude::*,
    sync::{
        atomic::{
            Acquire,
            Atomic,
            Full,
            Release, //
        },
        Arc,
        Mutex,
        SetOnce, //
    },
    time::hrtimer::HrTimer,
    workqueue::{
        impl_has_work,
        new_work,
        Work,
        WorkItem, //
    }, //
};
use kfi_core::roce::{
    cm::{
        Body,
        CommId,
        Connection,
        Device,
        Event,
        Ignored,
        Mad,
        Message,
        Reason,
        Refusal,
        Req,
        Route,
        State,
        Timing,
        MAD_LEN, //
    },
    headers::Qpn,
    mtu::PathMtu,
    ud::GSI_QKEY, //
};

/// The place of a namespace's service, at its socket.
#[pin_data]
pub(crate) struct Slot {
    /// Above no lock but those of memory and of the table of QPs. Taken with the links' lock held.
    #[pin]
    state: Mutex<Stage>,
}

enum Stage {
    /// Nobody has wanted it.
    Idle,
    Running(Arc<Cm>),
    /// The socket is closed.
    Closed,
}

impl Slot {
    pub(in crate::net) fn new() -> impl PinInit<Self> {
        pin_init!(Self {
            state <- new_mutex!(Stage::Idle, "cm::Slot"),
        })
    }

    /// A link has gone, or, if `closed`, the last one and the socket. The links' lock may be held.
    pub(in crate::net) fn link_gone(&self, closed: bool) {
        let mut stage = self.state.lock();
        let Stage::Running(cm) = &*stage else {
            if closed {
                *stage = Stage::Closed;
            }
            return;
        };
        let cm = cm.clone();
        // Release pairs with the acquire in `work`, where what has gone is looked for.
        if closed {
            *stage = Stage::Closed;
            cm.ended.store(true, Release);
        }
        drop(stage);
        cm.swept.store(false, Release);
        cm.wake();
    }
}

/// What is under the lock of the table.
pub(super) struct Inner {
    table: Table,
    /// None can be entered any more.
    closed: bool,
    alarm: Alarm<Cm>,
}

/// See the module's story.
#[pin_data]
pub(super) struct Cm {
    socket: Arc<Socket>,
    /// The GUID of the device that peers see: random, so that a service that begins anew is another.
    guid: u64,
    /// QP 1. Set before anybody has the service.
    gsi: SetOnce<Arc<Qp<Ud>>>,
    /// Held by who brings news. Above all locks of consumers.
    #[pin]
    news: Mutex<()>,
    /// Below all locks of consumers; nobody is called and nothing is sent while it is held, but
    /// memory is allocated.
    #[pin]
    inner: Mutex<Inner>,
    /// The socket is closed.
    ended: Atomic<bool>,
    /// No link has gone since the last look.
    swept: Atomic<bool>,
    due: Due,
    #[pin]
    timer: HrTimer<Self>,
    #[pin]
    work: Work<Self>,
}

impl_has_work! {
    impl HasWork<Self> for Cm { self.work }
}

impl WorkItem for Cm {
    type Pointer = Arc<Self>;

    fn run(this: Arc<Self>) {
        this.work();
    }
}

impl_alarm! {
    impl Alarm for Cm {
        timer: self.timer, due: self.due, rings: Self::wake
    }
}

/// What is heard at QP 1 is for the service.
struct Ear(Arc<Cm>);

impl ud::Consumer for Ear {
    fn datagram(&self, datagram: &Datagram<'_>) -> bool {
        if self.0.datagram(datagram).is_none() {
            self.0.count(Figure::DropCm);
        }
        // It is counted already if it was of no use.
        true
    }
}

/// The peer's QP 1.
const PEER: Destination = Destination {
    qp: Qpn::GSI,
    qkey: GSI_QKEY,
    imm: None,
    solicited: false,
};

/// The beginning and the end.
impl Cm {
    /// The service of the namespace of `socket`, which is begun if need be. `ENODEV` the socket is
    /// closed; `EBUSY` somebody else has QP 1; `ENOMEM`. Sleeps.
    pub(super) fn of(socket: &Arc<Socket>) -> Result<Arc<Self>> {
        let mut stage = socket.receiver().cm().state.lock();
        match &*stage {
            Stage::Idle => {}
            Stage::Running(cm) => return Ok(cm.clone()),
            Stage::Closed => return Err(ENODEV),
        }
        let cm = Self::begin(socket)?;
        *stage = Stage::Running(cm.clone());
        Ok(cm)
    }

    fn begin(socket: &Arc<Socket>) -> Result<Arc<Self>> {
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
                news <- new_mutex!((), "Cm::news"),
                inner <- new_mutex!(inner, "Cm::inner"),
                ended: Atomic::new(false),
                swept: Atomic::new(true),
                due: Due::never(),
                timer <- HrTimer::new(),
                work <- new_work!("kfabric::Cm"),
            }),
            GFP_KERNEL_ACCOUNT,
        )?;
        let ear = Arc::new(Ear(cm.clone()), GFP_KERNEL_ACCOUNT)?;
        // Its consumer has the service: until it is closed, they keep each other.
        let gsi = Qp::gsi(socket, ear)?;
        cm.gsi.populate(gsi);
        Ok(cm)
    }

    /// Has the work item run soon. Any context.
    fn wake(self: &Arc<Self>) {
        // Refused if it is due already.
        let _ = work::slow_queue().enqueue(self.clone());
    }

    /// What time and links have brought. The work item.
    fn work(self: &Arc<Self>) {
        // Acquire pairs with the release in `Slot::link_gone`.
        let ended = self.ended.load(Acquire);
        let news = self.news.lock();
        if ended {
            self.inner.lock().closed = true;
        }
        if !self.swept.xchg(true, Full) {
            self.sweep();
        }
        self.expire();
        if ended {
            self.dismiss();
            drop(news);
            // Waits for the QP's worker, which may be waiting for news.
            if let Some(gsi) = self.gsi.as_ref() {
                gsi.close();
            }
        }
    }

    /// Ends the connections whose link has gone.
    fn sweep(self: &Arc<Self>) {
        let mut after = CommId(0);
        loop {
            let Some(left) = self.inner.lock().table.remove_gone(after) else {
                return;
            };
            let (id, entry) = left.to_key_value();
            after = id;
            entry.gone();
            cond_resched();
        }
    }

    /// The end of listeners and timer.
    fn dismiss(&self) {
        loop {
            let Some(door) = self.inner.lock().table.remove_listener() else {
                break;
            };
            door.listener().gone();
        }
        let alarm = core::mem::replace(&mut self.inner.lock().alarm, Alarm::new());
        // Waits for the callback, which takes no lock.
        drop(alarm);
    }

    /// Has those connections do something whose time has come.
    fn expire(self: &Arc<Self>) {
        loop {
            let now = now_ns();
            let due = {
                let mut inner = self.inner.lock();
                let due = inner.table.deadline().filter(|(at, _)| *at <= now);
                if due.is_none() {
                    self.set_alarm(&mut inner, now);
                }
                due
            };
            let Some((_, id)) = due else {
                return;
            };
            let step = self.step(id, |entry| entry.machine.expired(now));
            if let Some(step) = step {
                match step.result {
                    Some(event) => self.tell(&step.conn, &event),
                    None => self.count(Figure::CmResent),
                }
            }
            cond_resched();
        }
    }

    /// Has the timer ring when a connection wants to be looked at.
    fn set_alarm(self: &Arc<Self>, inner: &mut Inner, now: u64) {
        if let (Some((at, _)), false) = (inner.table.deadline(), inner.closed) {
            inner.alarm.set(self, &self.due, now, at);
        }
    }

    fn count(&self, figure: Figure) {
        self.socket.receiver().figures().add(figure, 1);
    }
}

/// For connections and listeners.
impl Cm {
    /// The device, as the peer at the end of a way from `ip` sees it.
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

    /// Enters a connection that `make` makes under a new ID, and has it say what it has to say.
    /// `EBUSY` there are too many; `ENODEV` its link has gone; `ENOMEM`. Sleeps.
    pub(super) fn enter(
        self: &Arc<Self>,
        path: Arc<Path>,
        context: u64,
        consumer: Arc<dyn Consumer>,
        make: impl FnOnce(CommId) -> Connection,
    ) -> Result<Arc<Conn>> {
        let conn = {
            let mut inner = self.inner.lock();
            if inner.closed {
                return Err(ENODEV);
            }
            let id = inner.table.new_id(None).map_err(|_| EBUSY)?;
            let conn = Conn::new(self, id, path, context)?;
            inner.table.enter(&conn, make(id), Some(consumer))?;
            conn
        };
        // Who looks for what has gone has seen it, or it is seen here that it has gone.
        if conn.is_gone() {
            conn.forget();
            return Err(ENODEV);
        }
        let _ = self.act(conn.id(), |_| ());
        Ok(conn)
    }

    /// Has a connection do something, sends what it has to say, and sets the timer; `None` if there is
    /// none. Sleeps.
    fn step<R>(self: &Arc<Self>, id: CommId, act: impl FnOnce(&mut Entry) -> R) -> Option<Step<R>> {
        let step = {
            let mut inner = self.inner.lock();
            let step = inner.table.step(id, act)?;
            self.set_alarm(&mut inner, now_ns());
            step
        };
        if let Some(mad) = &step.mad {
            self.send(step.conn.path(), mad);
        }
        Some(step)
    }

    /// Has a connection do something for its consumer; `None` if there is none. Sleeps.
    pub(super) fn act<R>(
        self: &Arc<Self>,
        id: CommId,
        act: impl FnOnce(&mut Entry) -> R,
    ) -> Option<R> {
        self.step(id, act).map(|step| step.result)
    }

    /// The state of a connection; `None` if there is none. Sleeps.
    pub(super) fn state(&self, id: CommId) -> Option<State> {
        self.inner.lock().table.state(id)
    }

    /// Forgets a connection. Sleeps.
    pub(super) fn remove(&self, id: CommId) {
        let left = self.inner.lock().table.remove(id);
        drop(left);
    }

    /// See [`Table::listen`]; also `ENODEV`. Sleeps.
    pub(super) fn listen(&self, door: &Arc<Door>) -> Result {
        let mut inner = self.inner.lock();
        if inner.closed {
            return Err(ENODEV);
        }
        inner.table.listen(door)
    }

    /// See [`Table::unlisten`]. Sleeps.
    pub(super) fn unlisten(&self, door: &Arc<Door>) {
        let left = self.inner.lock().table.unlisten(door);
        drop(left);
    }

    /// Sends a message. What is not sent is lost, and said again.
    fn send(&self, path: &Path, mad: &Mad) {
        if let (Some(gsi), Some(payload)) = (self.gsi.as_ref(), Inline::from_slice(mad)) {
            let _ = gsi.send(path, &PEER, &Source::Inline(&payload));
        }
    }
}

/// What comes from the wire; with `news` held.
impl Cm {
    /// A datagram has arrived. `None` it is of no use.
    fn datagram(self: &Arc<Self>, datagram: &Datagram<'_>) -> Option<()> {
        let way = datagram.way()?;
        let mut mad: Mad = [0; MAD_LEN];
        let payload = datagram.payload();
        if datagram.source_qp() != Qpn::GSI
            || payload.len() != MAD_LEN
            || !payload.copy_to_slice(&mut mad)
        {
            return None;
        }
        let message = Message::parse(&mad).ok()?;
        let _news = self.news.lock();
        let found = {
            let inner = self.inner.lock();
            match message.route() {
                Route::Request { ca_guid, remote_id } | Route::Remote { ca_guid, remote_id } => {
                    inner.table.by_peer(ca_guid, remote_id)
                }
                Route::Local(id) => Some(id).filter(|id| inner.table.has(*id)),
            }
        };
        match (found, &message.body) {
            (Some(id), _) => self.heard(id, &way, &message),
            (None, Body::Req(req)) => self.asked(&way, message.tid, req),
            (None, _) => {
                let answer = message.unknown()?;
                let (_, path) = self.back(&way)?;
                self.send(&path, &answer);
                Some(())
            }
        }
    }

    /// The link that a datagram came to, and the way back.
    fn back(&self, way: &Way) -> Option<(Arc<Link>, Arc<Path>)> {
        let link = links::link_at(&self.socket, way.to)?;
        let path = Path::new(&link, way.to, way.from).ok()?;
        Some((link, path))
    }

    /// A connection has heard something. `None` it means nothing to it.
    fn heard(self: &Arc<Self>, id: CommId, way: &Way, message: &Message<'_>) -> Option<()> {
        let step = self.step(id, |entry| {
            if entry.local() != way.to {
                return Err(Ignored::Source);
            }
            entry.machine.receive(now_ns(), way.from, message)
        })?;
        let event = match step.result {
            Ok(Some(event)) => event,
            Ok(None) => return Some(()),
            Err(Ignored::Duplicate) => {
                self.count(Figure::CmDuplicates);
                return Some(());
            }
            Err(_) => return None,
        };
        if let (Event::Reply(reply), Body::Rep(rep)) = (&event, &message.body) {
            if self.forgotten(rep.ca_guid, reply.qpn, way.from) {
                // It is not known which of the two the peer means.
                let rejected = step.conn.reject_stale();
                if let Some(consumer) = rejected {
                    consumer.event(&step.conn, &STALE);
                }
                return Some(());
            }
        }
        self.tell(&step.conn, &event);
        Some(())
    }

    /// The peer at `from` asks for a connection of its QP, or has agreed to one: if that QP had another
    /// one, the peer has forgotten that, and it is over. Returns whether it is so.
    fn forgotten(self: &Arc<Self>, guid: u64, qpn: Qpn, from: IpAddr) -> bool {
        let Some(id) = self.inner.lock().table.by_peer_qp(guid, qpn, from) else {
            return false;
        };
        let step = self.step(id, |entry| entry.machine.stale(now_ns()));
        if let Some(step) = step {
            if let Some(event) = step.result {
                self.tell(&step.conn, &event);
            }
        }
        true
    }

    /// A peer asks for a connection. `None` it cannot be answered.
    fn asked(self: &Arc<Self>, way: &Way, tid: u64, req: &Req<'_>) -> Option<()> {
        let (link, path) = self.back(way)?;
        match self.request(way, &link, &path, tid, req) {
            Ok((door, request)) => door.listener().request(request),
            Err(refusal) => self.send(&path, &refusal.message(tid, req.local_id)),
        }
        Some(())
    }

    /// Makes the passive end, and the request for the listener; or says why not.
    fn request(
        self: &Arc<Self>,
        way: &Way,
        link: &Arc<Link>,
        path: &Arc<Path>,
        tid: u64,
        req: &Req<'_>,
    ) -> core::result::Result<(Arc<Door>, Request), Refusal> {
        if self.forgotten(req.ca_guid, req.qpn, way.from) {
            return Err(Refusal::new(Reason::STALE_CONN));
        }
        let no_room = || {
            self.count(Figure::CmNoRoom);
            Refusal::new(Reason::NO_RESOURCES)
        };
        let mut inner = self.inner.lock();
        if inner.closed {
            return Err(no_room());
        }
        let Some(door) = inner.table.listener(req.service_id, way.to) else {
            self.count(Figure::CmNoListener);
            return Err(Refusal::new(Reason::INVALID_SERVICE_ID));
        };
        let waiting = door.room().ok_or_else(no_room)?;
        let id = inner.table.new_id(Some(way.from)).map_err(|_| no_room())?;
        let conn = Conn::new(self, id, path.clone(), 0).map_err(|_| no_room())?;
        let mtu = PathMtu::of_interface(link.mtu()).ok_or_else(no_room)?;
        let device = self.device(way.to, mtu);
        let (machine, asked) = Connection::request(&device, id, way.from, tid, req)?;
        inner
            .table
            .enter(&conn, machine, None)
            .map_err(|_| no_room())?;
        let params = Params::new(&asked);
        let request = Request::new(conn, req.service_id, params, *asked.private, waiting);
        Ok((door, request))
    }

    /// Tells a consumer what has happened.
    fn tell(&self, conn: &Arc<Conn>, event: &Event<'_>) {
        let last = !matches!(event, Event::Reply(_) | Event::Established(_));
        let consumer = self.inner.lock().table.consumer(conn.id(), last);
        if let Some(consumer) = consumer {
            consumer.event(conn, event);
        }
    }
}

/// What the consumer of a connection hears whose peer has two of them with one QP.
const STALE: Event<'static> = Event::Rejected {
    reason: Reason::STALE_CONN,
    info: &[],
    private: &[],
};
