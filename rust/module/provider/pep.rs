// SPDX-License-Identifier: GPL-2.0

//! Passive endpoint: listens for connection requests, as specified by fi_endpoint(3) and fi_cm(3).
//!
//! ```text
//!   open --bind--> EQ --listen--> a peer's request: KFI_CONNREQ on the EQ, with a number
//!                                   |
//!                                   +--> an endpoint accepts it (`Endpoint::accept`)
//!                                   +--> reject
//!                                   '--> the passive endpoint closes: rejected
//! ```
//!
//! A passive endpoint is made from a fabric, so it may listen on several links: at an address of
//! one of them or, with the unspecified address, at all addresses of a family. Its service ID is a
//! port of the RDMA CM's TCP port space, so its peers can be programs that use the RDMA CM.
//!
//! A request waits here until the program accepts or rejects it by its [`RequestId`]. The backlog
//! limits their count: one source has at most as many, and all have half as many again
//! ([`cm::room`]). Their memory is allocated when the passive endpoint is opened.
//! Connection management refuses further requests. A request is also refused if the EQ has no room
//! for its event, because the program would never learn of it. That takes no room from events of
//! others: see [`kfi_core::eq`].
//!
//! # Locks
//!
//! `Pep::state` is a mutex. The locks of connection management are taken under it. `Pep::requests`
//! is a spin lock, so that no task is preempted while it holds it. The locks that an EQ takes to
//! report an event are taken under it. Requests are answered and dropped outside it.

use core::net::IpAddr;

use kfi_core::{
    enums::EqEvent,
    limits,
    word::Word, //
};
use kfi_roce::cm::{
    IpHeader,
    Reason,
    ServiceId, //
};

use super::{
    directory::{
        DYNAMIC_PORTS,
        PORT_BYTES, //
    },
    eq::{
        Connection,
        Eq, //
    },
    fabric::Fabric,
    prelude::*, //
};
use crate::{
    mem::Budget,
    net::{
        self,
        cm::{
            self,
            Listener,
            Listening,
            Request, //
        }, //
    },
    shim::{
        cred::Owner,
        random::random_u32,
        reclaim::OwnerKind,
        word::AtomicWord, //
    }, //
};

/// The attributes of a passive endpoint. The front end has checked them.
pub(crate) struct PepAttr {
    /// The address to listen at.
    pub(crate) addr: SockAddr,
    /// The most requests of one source that wait; 0: the default.
    pub(crate) backlog: u32,
}

/// The state of a passive endpoint.
struct State {
    /// The address that it listens at, or will.
    addr: SockAddr,
    listening: Option<Listening>,
    closed: bool,
    /// Of the waiting requests, and of what they become.
    _memory: Allowance,
}

/// The waiting requests, and the EQ that reports them.
struct Requests {
    /// `None`: not bound, or closed.
    eq: Option<UseRef<Eq>>,
    waiting: WaitingRequests,
}

/// The requests without an answer, each in the slot of its number. All functions take constant
/// time, because they run under a spin lock.
///
/// # Invariants
///
/// The number of slot `n` is `n + 1` plus a multiple of the number of slots. So the numbers of two
/// slots differ, and none is 0. `free` has room for as many numbers as there are slots.
struct WaitingRequests {
    slots: KVVec<Slot>,
    /// Slots without a request.
    free: KVVec<u32>,
    /// The serial number of the next request.
    next_serial: u64,
}

struct Slot {
    /// The number of the request, or of the next one.
    number: u32,
    /// The serial number of the request.
    serial: u64,
    request: Option<Request>,
}

/// A request that was reported.
#[derive(Clone, Copy)]
pub(crate) struct RequestId {
    /// The number in its event. A much later request may have it, too.
    pub(crate) number: u32,
    /// The serial number, which no other request of the passive endpoint ever has. `None`: the
    /// request that has the number now.
    pub(crate) serial: Option<u64>,
}

impl From<u32> for RequestId {
    fn from(number: u32) -> Self {
        Self {
            number,
            serial: None,
        }
    }
}

impl WaitingRequests {
    /// Makes room for the requests of a backlog. Fails with `ENOMEM`. Sleeps.
    fn new(backlog: u32) -> Result<Self> {
        // At most one and a half times MAX_BACKLOG.
        let room = cm::room(backlog as usize) as u32;
        let mut slots = KVVec::with_capacity(room as usize, GFP_KERNEL_ACCOUNT)?;
        let mut free = KVVec::with_capacity(room as usize, GFP_KERNEL_ACCOUNT)?;
        for index in 0..room {
            let slot = Slot {
                number: index.saturating_add(1),
                serial: 0,
                request: None,
            };
            slots.push(slot, GFP_KERNEL_ACCOUNT)?;
            // The first slot is taken first.
            free.push(room.wrapping_sub(index).wrapping_sub(1), GFP_KERNEL_ACCOUNT)?;
        }
        Ok(Self {
            slots,
            free,
            next_serial: 0,
        })
    }

    /// Bytes of the room for one request.
    const fn bytes() -> usize {
        size_of::<Slot>() + size_of::<u32>()
    }

    /// The number of the next request. `None`: there is no room.
    fn next(&self) -> Option<u32> {
        let index = *self.free.last()?;
        Some(self.slots.get(index as usize)?.number)
    }

    /// Stores `request` under the number that [`next`](Self::next) returned. Returns it if there is
    /// no room.
    fn put(&mut self, request: Request) -> Option<Request> {
        let index = self.free.pop();
        match index.and_then(|index| self.slots.get_mut(index as usize)) {
            Some(slot) => {
                slot.serial = self.next_serial;
                self.next_serial = self.next_serial.wrapping_add(1);
                slot.request = Some(request);
                None
            }
            None => Some(request),
        }
    }

    /// The slot of a request.
    fn slot(&mut self, id: RequestId) -> Option<(u32, &mut Slot)> {
        let index = id
            .number
            .checked_sub(1)?
            .checked_rem(self.slots.len() as u32)?;
        let slot = self.slots.get_mut(index as usize)?;
        let is_it = slot.number == id.number && id.serial.is_none_or(|it| it == slot.serial);
        (is_it && slot.request.is_some()).then_some((index, slot))
    }

    /// A request.
    fn get(&mut self, id: RequestId) -> Option<&Request> {
        self.slot(id)?.1.request.as_ref()
    }

    /// Removes a request.
    fn take(&mut self, id: RequestId) -> Option<Request> {
        let room = self.slots.len() as u32;
        let (index, slot) = self.slot(id)?;
        let request = slot.request.take();
        // INVARIANT: The next number of this slot, or its first again.
        slot.number = id.number.checked_add(room).unwrap_or(index.wrapping_add(1));
        // There is room for each slot.
        let _ = self.free.push_within_capacity(index);
        request
    }
}

/// A passive endpoint of a fabric.
#[pin_data]
pub(crate) struct Pep {
    ident: Ident,
    fabric: UseRef<Fabric>,
    uses: UseCount,
    /// Changes under `state`, while it does not listen.
    backlog: Atomic<u32>,
    serial: u64,
    #[pin]
    state: Mutex<State>,
    #[pin]
    requests: SpinLock<Requests>,
}

/// The serial number of the next passive endpoint.
static NEXT_SERIAL: AtomicWord = AtomicWord::new(0);

impl Pep {
    /// Opens a passive endpoint of `fabric` (kfi_passive_ep). Fails with `EINVAL` for a backlog of
    /// more than `KFABRIC_MAX_BACKLOG`; `EBADF` if the fabric is closed; `ENOMEM`. Sleeps.
    pub(crate) fn open(fabric: &Arc<Fabric>, attr: PepAttr, ident: Ident) -> Result<Arc<Self>> {
        let backlog = match attr.backlog {
            0 => limits::DEFAULT_BACKLOG,
            backlog if backlog <= limits::MAX_BACKLOG => backlog,
            _ => return Err(EINVAL),
        };
        let memory = ident.budget.take_for::<Self>(Self::bytes_of(backlog))?;
        let requests = Requests {
            eq: None,
            waiting: WaitingRequests::new(backlog)?,
        };
        let state = State {
            addr: attr.addr,
            listening: None,
            closed: false,
            _memory: memory,
        };
        let fabric = UseRef::new(fabric.clone())?;
        Arc::pin_init(
            pin_init!(Self {
                ident,
                fabric,
                uses: UseCount::new(),
                backlog: Atomic::new(backlog),
                serial: NEXT_SERIAL.fetch_add(1),
                state <- new_mutex!(state, "Pep::state"),
                requests <- new_spinlock!(requests, "Pep::requests"),
            }),
            GFP_KERNEL_ACCOUNT,
        )
    }

    /// Bytes that it is charged for besides its own size: the memory that a backlog takes, and its
    /// port.
    fn bytes_of(backlog: u32) -> usize {
        let of_one = WaitingRequests::bytes() + cm::CONNECTION_BYTES;
        let bytes = cm::room(backlog as usize) * of_one + PORT_BYTES;
        bytes.saturating_add(cm::listening_bytes(backlog as usize))
    }

    /// The most requests of one source that wait.
    pub(crate) fn backlog(&self) -> u32 {
        self.backlog.load(Relaxed)
    }

    /// Changes the most requests that wait (KFI_BACKLOG). Fails with `EINVAL` for none or more than
    /// `KFABRIC_MAX_BACKLOG`; `KFI_EOPBADSTATE` if it listens; `EBADF` if it is closed; `ENOMEM`.
    /// Sleeps.
    pub(crate) fn set_backlog(&self, backlog: u32) -> Result {
        if backlog == 0 || backlog > limits::MAX_BACKLOG {
            return Err(EINVAL);
        }
        let memory = self
            .ident
            .budget
            .take_for::<Self>(Self::bytes_of(backlog))?;
        let waiting = WaitingRequests::new(backlog)?;
        self.set_up(|state| {
            // No request waits before it listens.
            let before = core::mem::replace(&mut self.requests.lock().waiting, waiting);
            drop(before);
            self.backlog.store(backlog, Relaxed);
            state._memory = memory;
            Ok(())
        })
    }

    /// The number that no other passive endpoint ever has.
    pub(crate) fn serial(&self) -> u64 {
        self.serial
    }

    /// The request with this number, with its serial number. `None`: no such request waits. Does
    /// not sleep.
    pub(crate) fn request(&self, number: u32) -> Option<RequestId> {
        let mut requests = self.requests.lock();
        let (_, slot) = requests.waiting.slot(number.into())?;
        let serial = Some(slot.serial);
        Some(RequestId { number, serial })
    }

    /// Calls `change` with the state before it listens. Fails with `KFI_EOPBADSTATE` if it listens,
    /// `EBADF` if it is closed. Sleeps.
    fn set_up(&self, change: impl FnOnce(&mut State) -> Result) -> Result {
        let mut state = self.state.lock();
        if state.closed {
            return Err(EBADF);
        }
        if state.listening.is_some() {
            return Err(to_error(Errno::KFI_EOPBADSTATE));
        }
        change(&mut state)
    }

    /// Binds it to an EQ. Fails with `EINVAL` if the EQ belongs to another fabric, or an EQ is
    /// bound; `KFI_EOPBADSTATE` if it listens; `EBADF` if it or the EQ is closed. Sleeps.
    pub(crate) fn bind_eq(&self, eq: &Arc<Eq>) -> Result {
        if !Arc::ptr_eq(eq.fabric(), self.fabric.arc()) {
            return Err(EINVAL);
        }
        self.set_up(|_| {
            // Taken before the lock, so that it is dropped after the lock if an EQ is bound
            // already.
            let used = UseRef::new(eq.clone())?;
            let mut requests = self.requests.lock();
            if requests.eq.is_some() {
                return Err(EINVAL);
            }
            requests.eq = Some(used);
            Ok(())
        })
    }

    /// Sets the address to listen at (kfi_setname). Fails with `KFI_EOPBADSTATE` if it listens,
    /// `EBADF`. Sleeps.
    pub(crate) fn set_name(&self, addr: SockAddr) -> Result {
        self.set_up(|state| {
            state.addr = addr;
            Ok(())
        })
    }

    /// The address that it listens at, or will (kfi_getname). Sleeps.
    pub(crate) fn name(&self) -> SockAddr {
        self.state.lock().addr
    }

    /// Begins to listen (kfi_listen). Requests are reported from now on.
    ///
    /// Fails with `KFI_ENOEQ` if no EQ is bound; `EADDRNOTAVAIL` if no link of the namespace has
    /// the address; `EACCES` if a program may not use the port (see
    /// [`check_port`](crate::shim::udp::UdpSockets::check_port)); `ENODEV` if the namespace has no
    /// link; `EADDRINUSE` if the port, or with port 0 every port, is in use; `KFI_EOPBADSTATE` if
    /// it listens; `EBADF`; `ENOMEM`. Sleeps.
    pub(crate) fn listen(self: &Arc<Self>) -> Result {
        self.set_up(|state| {
            if self.requests.lock().eq.is_none() {
                return Err(to_error(Errno::KFI_ENOEQ));
            }
            let addr = state.addr;
            let socket = net::socket(self.fabric.netns()).map_err(|_| ENODEV)?;
            if !addr.ip().is_unspecified() && !net::has_address(&socket, &addr) {
                return Err(EADDRNOTAVAIL);
            }
            if self.ident.owner.kind() == OwnerKind::Program {
                socket.check_port(addr.port())?;
            }
            let listen = |port| {
                let service = ServiceId::tcp(port);
                cm::listen(&socket, addr.ip(), service, self.backlog(), self.clone())
            };
            let (port, listening) = match addr.port() {
                0 => at_any_port(listen)?,
                port => (port, listen(port)?),
            };
            state.addr = addr.with_port(port);
            state.listening = Some(listening);
            Ok(())
        })
    }

    /// Removes a request, to be accepted or rejected. Fails with `ENOENT` if no
    /// such request waits; the error of `check`, after which the request still waits. `check` is
    /// called under the spin lock and must not sleep. Does not sleep.
    pub(crate) fn take(
        &self,
        id: RequestId,
        check: impl FnOnce(&Request) -> Result,
    ) -> Result<Request> {
        let mut requests = self.requests.lock();
        check(requests.waiting.get(id).ok_or(ENOENT)?)?;
        requests.waiting.take(id).ok_or(ENOENT)
    }

    /// The address of the requesting peer, with the port in its request. `None`: the link was
    /// removed.
    pub(crate) fn peer(request: &Request) -> Option<SockAddr> {
        addresses(request).map(|(_, peer)| peer)
    }

    /// Rejects a request (kfi_reject), with private data. Fails with `ENOENT` if no such request
    /// waits. Sleeps.
    pub(crate) fn reject(&self, id: RequestId, private: &[u8]) -> Result {
        let request = self.take(id, |_| Ok(()))?;
        request.reject(Reason::CONSUMER_DEFINED, private);
        Ok(())
    }

    /// Stores a request and reports it. Returns it if there is no room for either.
    fn store(&self, request: Request) -> Option<Request> {
        let Some((local, peer)) = addresses(&request) else {
            return Some(request);
        };
        let mut guard = self.requests.lock();
        let requests = &mut *guard;
        let Some(eq) = &requests.eq else {
            return Some(request);
        };
        let waiting = &mut requests.waiting;
        let Some(connreq) = waiting.next() else {
            return Some(request);
        };
        // The request is stored before the program can learn of it.
        if let Some(request) = waiting.put(request) {
            return Some(request);
        }
        let reported = waiting.get(connreq.into()).is_some_and(|request| {
            let what = Connection {
                connreq,
                pep: Some(self.serial),
                local,
                peer,
                link: request.link().name(),
                private: private(request),
            };
            eq.connection(EqEvent::ConnReq, &self.ident, &what)
        });
        if reported {
            None
        } else {
            waiting.take(connreq.into())
        }
    }
}

/// The private data of the program: those after the header of the RDMA CM.
fn private(request: &Request) -> &[u8] {
    IpHeader::parse(request.private()).map_or(&[], |(_, private)| private)
}

/// The addresses of both ends of a request: this end's and the peer's. The request names the ports;
/// the IP addresses are those of its packet. `None`: it has no header of the RDMA CM, or the link
/// was removed.
fn addresses(request: &Request) -> Option<(SockAddr, SockAddr)> {
    let (header, _) = IpHeader::parse(request.private()).ok()?;
    let port = request.service_id().tcp_port()?;
    let local = request.link().peer(request.local())?;
    let peer = request.link().peer(request.remote())?;
    Some((local.with_port(port), peer.with_port(header.src_port)))
}

/// Listens at a free port. Fails with `EADDRINUSE` if no port is free, an error of `listen`.
fn at_any_port(listen: impl Fn(u16) -> Result<Listening>) -> Result<(u16, Listening)> {
    let begin = random_u32() as usize % DYNAMIC_PORTS.len();
    for port in DYNAMIC_PORTS.cycle().skip(begin).take(DYNAMIC_PORTS.len()) {
        match listen(port) {
            Err(error) if error == EADDRINUSE => cond_resched(),
            listening => return Ok((port, listening?)),
        }
    }
    Err(EADDRINUSE)
}

impl Listener for Pep {
    fn request(&self, request: Request) {
        if let Some(request) = self.store(request) {
            let reason = match IpHeader::parse(request.private()) {
                Ok(_) => Reason::NO_RESOURCES,
                Err(_) => Reason::UNSUPPORTED,
            };
            request.refuse(reason, &[]);
        }
    }

    fn is_delayed(&self, from: IpAddr) -> bool {
        self.ident.budget.is_delayed_peer(from)
    }

    /// Reports to the EQ that the last link was removed and no more requests will come.
    fn gone(&self) {
        if let Some(eq) = &self.requests.lock().eq {
            eq.not_connected(&self.ident, Errno::ENODEV, 0, &[]);
        }
    }

    fn owner_kind(&self) -> OwnerKind {
        self.ident.owner.kind()
    }

    fn owner(&self) -> Option<(&Owner, &Budget)> {
        Some((&self.ident.owner, &self.ident.budget))
    }
}

impl Object for Pep {
    fn uses(&self) -> &UseCount {
        &self.uses
    }

    /// Rejects the waiting requests.
    fn teardown(&self) {
        let listening = {
            let mut state = self.state.lock();
            state.closed = true;
            state.listening.take()
        };
        drop(listening);
        let (eq, waiting) = {
            let mut requests = self.requests.lock();
            (
                requests.eq.take(),
                core::mem::take(&mut requests.waiting.slots),
            )
        };
        drop(waiting);
        if let Some(eq) = eq {
            eq.remove_events_of(&self.ident);
        }
        self.fabric.release();
    }
}
