// SPDX-License-Identifier: GPL-2.0
//! One process of a round: the state that its threads share, and the threads.

#![allow(
    unsafe_code,
    reason = "memory that the kernel and all threads write to"
)]

use super::{calls::Worker, shared, trace};
use crate::{
    dma_buf::Shared,
    raw::{File, PAGE, arg, ipv4, to_qp},
    rng::Rng,
};
use kfi::abi;
use rustix::mm::{MapFlags, MprotectFlags, ProtFlags};
use std::{
    os::fd::{AsFd, OwnedFd},
    os::unix::thread::JoinHandleExt,
    sync::{
        Arc, Mutex, PoisonError, RwLock,
        atomic::{AtomicBool, AtomicU64, Ordering::Relaxed},
    },
    time::{Duration, Instant},
};

/// Ports of the endpoints that have each other's addresses, in both processes.
pub(super) const PORTS: std::ops::Range<u16> = 7000..7008;

/// Ports where endpoints may listen for connections, in both processes.
pub(super) const LISTENERS: std::ops::Range<u16> = 7100..7104;

/// Ports of the receive contexts of scalable endpoints, in both processes.
pub(super) const SEPS: std::ops::Range<u16> = 7200..7206;

/// Ports of the endpoints with shared contexts, in both processes.
pub(super) const MEMBERS: std::ops::Range<u16> = 7300..7304;

/// The kind of object of a handle.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Kind {
    Fabric,
    Domain,
    Eq,
    Av,
    Mr,
    Cq,
    Cntr,
    CompCntr,
    Wait,
    Poll,
    /// An endpoint that needs no connection, or a context of a scalable endpoint.
    Ep,
    /// A scalable endpoint.
    Sep,
    /// A shared transmit context.
    Stx,
    /// A shared receive context.
    Srx,
    /// A connected endpoint, or one to be connected.
    Msg,
    /// A passive one.
    Pep,
    /// An endpoint for datagrams.
    Dgram,
    /// Counters of flows.
    Counters,
    Flow,
}

/// An open file and its recorded objects.
pub(super) struct Desk {
    file: RwLock<Arc<File>>,
    handles: Mutex<Vec<(Kind, u32)>>,
}

impl Desk {
    fn new() -> Self {
        Self {
            file: RwLock::new(Arc::new(File::open())),
            handles: Mutex::new(Vec::new()),
        }
    }

    /// The current open file.
    pub(super) fn file(&self) -> Arc<File> {
        self.file
            .read()
            .unwrap_or_else(PoisonError::into_inner)
            .clone()
    }

    /// Opens another one; the old one is closed when the last call on it has returned.
    pub(super) fn replace(&self) {
        let new = Arc::new(File::open());
        let old = {
            let mut file = self.file.write().unwrap_or_else(PoisonError::into_inner);
            self.handles().clear();
            std::mem::replace(&mut *file, new)
        };
        drop(old);
    }

    fn handles(&self) -> std::sync::MutexGuard<'_, Vec<(Kind, u32)>> {
        self.handles.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// A new object.
    pub(super) fn add(&self, kind: Kind, handle: u32) {
        let mut handles = self.handles();
        if handles.len() < 4096 {
            handles.push((kind, handle));
        }
    }

    /// The object was closed.
    pub(super) fn forget(&self, handle: u32) {
        self.handles().retain(|(_, known)| *known != handle);
    }

    /// A handle of this kind, mostly.
    pub(super) fn handle(&self, kind: Kind, rng: &mut Rng) -> u32 {
        let handles = self.handles();
        match rng.below(24) {
            0 => return rng.edge() as u32,
            1 if !handles.is_empty() => return handles[rng.below(handles.len() as u64) as usize].1,
            _ => {}
        }
        let of_kind: Vec<u32> = handles
            .iter()
            .filter(|(known, _)| *known == kind)
            .map(|(_, handle)| *handle)
            .collect();
        if of_kind.is_empty() {
            0
        } else {
            rng.pick(&of_kind)
        }
    }

    /// Any handle.
    pub(super) fn any(&self, rng: &mut Rng) -> u32 {
        let handles = self.handles();
        if handles.is_empty() {
            return 0;
        }
        handles[rng.below(handles.len() as u64) as usize].1
    }
}

/// Memory for buffers, lists and other arguments of calls. All threads use all of it; other
/// threads and the kernel overwrite the data at any time.
///
/// It is alone in 4 GiB of address space, so that an address of which one half was replaced names
/// this memory or none. The fuzzer gives the kernel no other address of the process, because the
/// kernel would overwrite the fuzzer itself.
pub(super) struct Scratch {
    at: *mut u8,
}

// SAFETY: it is accessed atomically only.
unsafe impl Send for Scratch {}
// SAFETY: as above.
unsafe impl Sync for Scratch {}

impl Scratch {
    /// Number of pages that can be written.
    const WRITABLE: usize = 96;
    /// Number of pages behind them that can be read.
    const READABLE: usize = 2;
    /// Its address: the rest of these 4 GiB is not mapped.
    const START: usize = 0x1000_4000_0000;
    const AREA: usize = 0x1000_0000_0000;

    fn new() -> Self {
        let none = ProtFlags::empty();
        let flags = MapFlags::PRIVATE | MapFlags::NORESERVE | MapFlags::FIXED_NOREPLACE;
        let area = std::ptr::without_provenance_mut(Self::AREA);
        // SAFETY: it replaces nothing.
        let at = unsafe { rustix::mm::mmap_anonymous(area, 1 << 32, none, flags) }
            .expect("mmap")
            .cast::<u8>();
        assert_eq!(at.addr(), Self::AREA);
        // SAFETY: within the mapping.
        let at = unsafe { at.add(Self::START - Self::AREA) };
        for (from, pages, flags) in [
            (
                0,
                Self::WRITABLE,
                MprotectFlags::READ | MprotectFlags::WRITE,
            ),
            (Self::WRITABLE, Self::READABLE, MprotectFlags::READ),
        ] {
            // SAFETY: within the mapping, which nobody has a reference into.
            unsafe { rustix::mm::mprotect(at.add(from * PAGE).cast(), pages * PAGE, flags) }
                .expect("mprotect");
        }
        Self { at }
    }

    /// An address with room for `len` bytes, mostly.
    pub(super) fn addr(&self, len: u64, rng: &mut Rng) -> u64 {
        let start = self.at.expose_provenance() as u64;
        let writable = (Self::WRITABLE * PAGE) as u64;
        match rng.below(32) {
            0 => 0,
            1 => rng.pick(&crate::raw::BAD_ADDRS),
            // Across the end of what can be written, and of what can be read.
            2 => start + writable - rng.below(64),
            3 => start + writable + (Self::READABLE * PAGE) as u64 - rng.below(64),
            4 => start + writable + rng.below(PAGE as u64),
            // Not aligned.
            5 => start + rng.below(writable.saturating_sub(len).max(1)),
            _ => (start + rng.below(writable.saturating_sub(len).max(1))) & !7,
        }
    }

    /// Room for the lists of thread `thread`, which other threads mostly leave alone.
    pub(super) fn corner(&self, thread: u64) -> u64 {
        let start = self.at.expose_provenance() as u64;
        start + ((Self::WRITABLE - 4 * (thread as usize + 1)) * PAGE) as u64
    }

    /// Writes words at an address, as far as they are in what can be written.
    pub(super) fn put(&self, addr: u64, words: &[u64]) {
        let start = self.at.expose_provenance() as u64;
        for (at, word) in (addr..).step_by(8).zip(words) {
            let offset = at.wrapping_sub(start);
            if at % 8 == 0 && offset < (Self::WRITABLE * PAGE) as u64 {
                // SAFETY: within what can be written, and aligned.
                let place = unsafe { AtomicU64::from_ptr(self.at.add(offset as usize).cast()) };
                place.store(*word, Relaxed);
            }
        }
    }
}

/// A mapped ring or page of a counter.
struct Mapped {
    at: *mut u8,
    words: usize,
}

// SAFETY: it is accessed atomically only.
unsafe impl Send for Mapped {}

/// The state that the threads of a process share.
pub(super) struct World {
    /// Two open files; the first has the skeleton.
    pub(super) desks: [Desk; 2],
    /// Memory.
    pub(super) scratch: Scratch,
    /// A page in a DMA-BUF.
    pub(super) dma_buf: OwnedFd,
    /// The number of this process.
    pub(super) process: u64,
    fds: Mutex<Vec<Arc<OwnedFd>>>,
    rings: Mutex<Vec<Mapped>>,
    stop: AtomicBool,
}

impl World {
    /// A descriptor of a wait object.
    pub(super) fn add_fd(&self, fd: OwnedFd) {
        let mut fds = self.fds.lock().unwrap_or_else(PoisonError::into_inner);
        if fds.len() < 64 {
            fds.push(Arc::new(fd));
        }
    }

    /// One of them; with `take` it is removed from the list, and closed when the last call on it
    /// has returned.
    pub(super) fn fd(&self, take: bool, rng: &mut Rng) -> Option<Arc<OwnedFd>> {
        let mut fds = self.fds.lock().unwrap_or_else(PoisonError::into_inner);
        if fds.is_empty() {
            return None;
        }
        let place = rng.below(fds.len() as u64) as usize;
        Some(if take {
            fds.swap_remove(place)
        } else {
            fds[place].clone()
        })
    }

    /// Maps memory of the device; the vandal writes there if the mapping is writable.
    pub(super) fn map(
        &self,
        file: &File,
        offset: u64,
        len: usize,
        prot: ProtFlags,
        flags: MapFlags,
    ) -> rustix::io::Result<()> {
        let mut rings = self.rings.lock().unwrap_or_else(PoisonError::into_inner);
        if rings.len() >= 32 {
            // The oldest is removed, under the lock that the vandal holds while it writes.
            let old = rings.remove(0);
            // SAFETY: mapped below with this length.
            let _ = unsafe { rustix::mm::munmap(old.at.cast(), old.words * 8) };
        }
        // SAFETY: a new mapping at an address of the kernel's choice.
        let at = unsafe {
            rustix::mm::mmap(std::ptr::null_mut(), len, prot, flags, file.as_fd(), offset)
        }?;
        if prot.contains(ProtFlags::WRITE) {
            rings.push(Mapped {
                at: at.cast(),
                words: len / 8,
            });
        } else {
            // SAFETY: mapped just now.
            let _ = unsafe { rustix::mm::munmap(at, len) };
        }
        Ok(())
    }

    /// Whether the threads should end.
    pub(super) fn stopped(&self) -> bool {
        self.stop.load(Relaxed)
    }
}

/// Queues, counters and endpoints that work, and have each other's addresses across the processes.
/// Objects that cannot be made (the other process has the port) are left out.
fn skeleton(desk: &Desk, process: u64) -> Option<()> {
    let file = desk.file();
    macro_rules! make {
        ($kind:ident, $arg:expr) => {{
            let handle = file.call($arg).ok()?.handle;
            desk.add(Kind::$kind, handle);
            handle
        }};
    }
    let fabric = make!(Fabric, arg!(kfabric_fabric_open));
    let domain = make!(
        Domain,
        arg!(kfabric_domain_open: fabric, link: crate::raw::text(crate::host::LINK))
    );
    let av = make!(Av, arg!(kfabric_av_open: domain, type_: abi::KFI_AV_TABLE));
    for port in PORTS {
        let _ = file.insert(av, ipv4([127, 0, 0, 1], port));
    }
    let wait_obj = abi::KFI_WAIT_QUEUE;
    let eq = make!(
        Eq,
        arg!(kfabric_eq_open: fabric, wait_obj, flags: abi::KFI_WRITE)
    );
    let half = PORTS.start + process as u16 * PORTS.len() as u16 / 2;
    for port in half..half + PORTS.len() as u16 / 2 {
        let cq = make!(
            Cq,
            arg!(kfabric_cq_open:
                domain, entries: 32, wait_obj, wait_cond: abi::KFI_CQ_COND_THRESHOLD
            )
        );
        let cntr = make!(Cntr, arg!(kfabric_cntr_open: domain, wait_obj));
        let ep = make!(
            Ep,
            arg!(kfabric_ep_open:
                domain, caps: ALL_CAPS, rx_size: 32, tx_size: 16,
                src_addr: ipv4([127, 0, 0, 1], port)
            )
        );
        file.bind(ep, cq, abi::KFI_SEND | abi::KFI_RECV).ok()?;
        file.bind(
            ep,
            cntr,
            abi::KFI_SEND | abi::KFI_RECV | abi::KFI_REMOTE_WRITE,
        )
        .ok()?;
        file.bind(ep, av, 0).ok()?;
        let comp_cntr = make!(CompCntr, arg!(kfabric_comp_cntr_create: domain));
        let _ = file.call(arg!(kfabric_comp_cntr_attach: ep, comp_cntr, op_mask: 0x3f));
        let _ = file.enable(ep);
    }
    let cq = make!(Cq, arg!(kfabric_cq_open: domain, entries: 64, wait_obj));
    let pep = make!(
        Pep,
        arg!(kfabric_pep_open: fabric, addr: ipv4([127, 0, 0, 1], LISTENERS.start + process as u16))
    );
    file.bind(pep, eq, 0).ok()?;
    let _ = file.call(arg!(kfabric_pep_listen: pep));
    couple(desk, &file, domain, cq, eq)?;
    for _ in 0..4 {
        msg(desk, &file, domain, cq, eq)?;
    }
    shared::skeleton(desk, &file, domain, process)
}

/// An endpoint to be connected.
pub(super) fn msg(desk: &Desk, file: &File, domain: u32, cq: u32, eq: u32) -> Option<u32> {
    let arg = arg!(kfabric_ep_open: domain, type_: abi::KFI_EP_MSG, caps: MSG_CAPS, tx_size: 16);
    let ep = file.call(arg).ok()?.handle;
    desk.add(Kind::Msg, ep);
    file.bind(ep, cq, abi::KFI_SEND | abi::KFI_RECV).ok()?;
    file.bind(ep, eq, 0).ok()?;
    Some(ep)
}

/// Two endpoints that are connected with each other; returns one of them.
pub(super) fn couple(desk: &Desk, file: &File, domain: u32, cq: u32, eq: u32) -> Option<u32> {
    let open = || {
        let ep = msg(desk, file, domain, cq, eq)?;
        file.enable(ep).ok()?;
        let arg = arg!(kfabric_ep_qp: ep);
        file.call(arg).ok()
    };
    let (one, two) = (open()?, open()?);
    for (own, peer) in [(&one, &two), (&two, &one)] {
        file.call(to_qp(own.ep, peer)).ok()?;
    }
    Some(one.ep)
}

/// Every capability of a connected endpoint.
pub(super) const MSG_CAPS: u64 = abi::KFI_MSG | abi::KFI_RMA | abi::KFI_ATOMIC;

/// Every capability of an endpoint that needs no connection.
pub(super) const ALL_CAPS: u64 = abi::KFI_MSG
    | abi::KFI_TAGGED
    | abi::KFI_TAGGED_RMA
    | abi::KFI_RMA
    | abi::KFI_ATOMIC
    | abi::KFI_MULTI_RECV
    | abi::KFI_SOURCE
    | abi::KFI_DIRECTED_RECV;

extern "C" fn ignore(_: libc::c_int) {}

/// Sends signals, which interrupt calls, for ever.
fn handle_kicks() {
    // SAFETY: zeros are valid in this structure.
    let mut action: libc::sigaction = unsafe { std::mem::zeroed() };
    action.sa_sigaction = ignore as extern "C" fn(libc::c_int) as libc::sighandler_t;
    // SAFETY: the handler does nothing.
    unsafe { libc::sigaction(libc::SIGUSR1, &raw const action, std::ptr::null_mut()) };
}

/// Writes into mapped rings until the end: random values, and often a head that is nearly valid.
fn vandal(world: &World, mut rng: Rng) {
    const HEAD: usize = std::mem::offset_of!(abi::kfabric_cq_ring, head) / 8;
    while !world.stopped() {
        {
            let rings = world.rings.lock().unwrap_or_else(PoisonError::into_inner);
            if !rings.is_empty() {
                let ring = &rings[rng.below(rings.len() as u64) as usize];
                let word = |place: usize| {
                    assert!(place < ring.words);
                    // SAFETY: within the mapping, which is unmapped under the lock only.
                    unsafe { AtomicU64::from_ptr(ring.at.cast::<u64>().add(place)) }
                };
                for _ in 0..rng.below(32) {
                    match rng.below(4) {
                        0 => word(rng.below(ring.words as u64) as usize).store(rng.edge(), Relaxed),
                        1 => word(HEAD).store(rng.edge(), Relaxed),
                        // As a reader would, or one too many, or back.
                        _ => {
                            let tail = word(0).load(Relaxed);
                            let near = tail.wrapping_add(2).wrapping_sub(rng.below(6));
                            word(HEAD).store(near, Relaxed);
                        }
                    }
                }
            }
        }
        std::thread::yield_now();
    }
}

/// Runs a process of the round of `seed` for about the time `work`; remaining objects are then
/// closed with the process, or some of them before.
pub(super) fn run(seed: u64, process: u64, work: Duration) {
    handle_kicks();
    let mut rng = Rng::new(seed.wrapping_mul(2).wrapping_add(process));
    let world = Arc::new(World {
        desks: [Desk::new(), Desk::new()],
        scratch: Scratch::new(),
        dma_buf: Shared::new(PAGE).dma_buf,
        process,
        fds: Mutex::default(),
        rings: Mutex::default(),
        stop: AtomicBool::new(false),
    });
    skeleton(&world.desks[0], process);
    let workers: Vec<_> = (0..)
        .zip(trace::create(process))
        .map(|(thread, trace)| {
            let rng = Rng::new(rng.next());
            let mut worker = Worker::new(world.clone(), rng, trace, thread);
            std::thread::spawn(move || worker.run())
        })
        .collect();
    let vandal = {
        let (world, rng) = (world.clone(), Rng::new(rng.next()));
        std::thread::spawn(move || vandal(&world, rng))
    };
    let begin = Instant::now();
    // Signals end waits without a limit, so they continue until all threads have ended.
    while workers.iter().any(|worker| !worker.is_finished()) {
        std::thread::sleep(Duration::from_millis(3));
        if begin.elapsed() > work {
            world.stop.store(true, Relaxed);
        }
        for worker in &workers {
            if !worker.is_finished() {
                // SAFETY: the thread is not joined yet, so its handle is valid.
                unsafe { libc::pthread_kill(worker.as_pthread_t(), libc::SIGUSR1) };
            }
        }
    }
    for worker in workers {
        worker.join().expect("a worker that does not panic");
    }
    vandal.join().expect("a vandal that does not panic");
    if rng.one_in(2) {
        // Descriptors outlive their device.
        world.desks[0].replace();
        world.desks[1].replace();
    }
}
