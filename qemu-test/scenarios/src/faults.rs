// SPDX-License-Identifier: GPL-2.0
//! A failure injected at every allocation of every call, and at every copy from or to the program.
//!
//! For each call the first such place fails, then the second, and so on until the call succeeds
//! without reaching one. A failed call must return `ENOMEM` or `EFAULT` and have changed nothing:
//! the same call made again without faults must succeed. kmemleak reports memory that was left
//! behind when the guest ends; KASAN and lockdep report corruption.
//!
//! Needs a kernel with `CONFIG_FAULT_INJECTION`, `CONFIG_FAILSLAB`, `CONFIG_FAIL_PAGE_ALLOC` and
//! `CONFIG_FAULT_INJECTION_USERCOPY` (the sanitizing one), and root.
//!
//! Reference: Documentation/fault-injection/fault-injection.rst, "systematic faults".

#![allow(unsafe_code, reason = "the raw calls, with addresses in structures")]

use crate::{
    dma_buf::{DmaBuf, Exporter},
    harness::tests,
    host::{Host, LINK, Options, device, pattern},
    raw::{Make, arg},
};
use kfi::{
    Access, Buffer, Caps, Cntr, CompCntr, CounterDescription, Counters, Device, Domain, Endpoint,
    EpType, Eq, Errno, Fabric, FiAddr, Flow, MemoryLocation, Mr, PollSet, Wait, WaitSet,
    abi::{self, Call},
};
use std::{
    ffi::c_char,
    fs::File,
    os::fd::{AsFd, FromRawFd, OwnedFd},
    os::unix::fs::FileExt,
};

mod changing;
mod connecting;
mod making;
mod posting;
mod starting;

use changing::looking_and_changing;
use connecting::connecting;
use making::making_objects;
use posting::{mapping, posting, posting_between_hosts};
use starting::{starting_work, starting_work_between_hosts, starting_work_of_a_connection};

tests![
    making_objects => 600,
    looking_and_changing => 600,
    posting => 600,
    posting_between_hosts => 600,
    starting_work => 300,
    starting_work_between_hosts => 300,
    starting_work_of_a_connection => 300,
    connecting => 600,
    mapping => 300,
];

/// No call here has as many places that can fail.
const MOST: u32 = 200;

/// The results of a call, which must be undone.
enum Made {
    Nothing,
    Object(u32),
    Fd(i32),
    Link([c_char; 16]),
}

/// A name, and calls with the objects of a world.
type Case<W = World> = (&'static str, fn(&W) -> Result<Made, Errno>);

/// Objects for the calls.
struct World {
    device: Device,
    fabric: Fabric,
    domain: Domain,
    eq: Eq,
    cntr: Cntr,
    comp_cntr: CompCntr,
    dma_buf: DmaBuf,
    /// Keeps the DMA-BUF mapped. The kernel warns when its exporter cannot map it.
    _mapped: CompCntr,
    wait_set: WaitSet,
    poll: PollSet,
    mr: Mr,
    buffer: Buffer,
    a: Host,
    to_b: FiAddr,
    b: Host,
    /// Of `dgram`, without points.
    flow: Flow,
    dgram: Endpoint,
    /// With a static point, bound to nothing.
    counters: Counters,
    /// Without points.
    dynamic: Counters,
}

impl World {
    fn new() -> Self {
        let device = device();
        let fabric = device.fabric().expect("fabric");
        let domain = fabric.domain(LINK).open().expect("domain");
        let options = Options {
            cq_entries: 4096,
            rx_size: 1024,
            tx_size: 1024,
            caps: Options::default().caps | Caps::ATOMIC,
            ..Options::default()
        };
        let (a, b) = (Host::on(&domain, &options), Host::on(&domain, &options));
        let to_b = a.meet(&b);
        let eq = fabric.eq().wait(Wait::Queue).writable().open().expect("eq");
        let cntr = domain.cntr().wait(Wait::Queue).open().expect("cntr");
        let comp_cntr = domain.comp_cntr().create().expect("completion counter");
        let dma_buf = Exporter::SystemHeap.make(1);
        let [comp, err] = [16, 24].map(|at| MemoryLocation::dma_buf(dma_buf.fd.as_fd(), at));
        let mapped = domain.comp_cntr().external(comp, err).create();
        let mapped = mapped.expect("completion counter in a DMA-BUF");
        let wait_set = fabric.wait_set().expect("wait set");
        let poll = domain.poll_set().expect("poll set");
        let buffer = Buffer::from_bytes(&pattern(256 * 1024, 1)).expect("buffer");
        let mr = domain
            .mr(&buffer)
            .access(Access::REMOTE_READ | Access::REMOTE_WRITE)
            .requested_key(7)
            .open()
            .expect("mr");
        let dgram = domain.endpoint().ep_type(EpType::Dgram).caps(Caps::MSG);
        let dgram = dgram.open().expect("endpoint");
        let flow = dgram.flow().open().expect("flow");
        let counters = domain.counters().open().expect("counters");
        counters
            .attach(CounterDescription::Packets, 0)
            .expect("attach");
        let dynamic = domain.counters().open().expect("counters");
        Self {
            device,
            fabric,
            domain,
            eq,
            cntr,
            comp_cntr,
            dma_buf,
            _mapped: mapped,
            wait_set,
            poll,
            mr,
            buffer,
            a,
            to_b,
            b,
            flow,
            dgram,
            counters,
            dynamic,
        }
    }

    fn call<C: Call>(&self, mut arg: C) -> Result<C, Errno> {
        // SAFETY: addresses in the structures below are of memory that outlives the call.
        unsafe { abi::call(&self.device, &mut arg) }?;
        Ok(arg)
    }

    /// Makes a call that makes an object.
    fn makes<M: Make>(&self, arg: M) -> Result<Made, Errno> {
        Ok(Made::Object(self.call(arg)?.handle()))
    }

    /// Makes a call that needs no undoing.
    fn does<C: Call>(&self, arg: C) -> Result<Made, Errno> {
        self.call(arg).map(|_| Made::Nothing)
    }

    fn undo(&self, made: Made) {
        match made {
            Made::Nothing => {}
            Made::Object(handle) => {
                let arg = arg!(kfabric_close: handle);
                // Some cases undo while the fault is still pending: then it occurs here, once.
                self.call(arg)
                    .or_else(|_| self.call(arg))
                    .expect("close what was made");
            }
            // SAFETY: the call made it for us.
            Made::Fd(fd) => drop(unsafe { OwnedFd::from_raw_fd(fd) }),
            Made::Link(name) => {
                self.call(arg!(kfabric_link_del: name))
                    .expect("remove the link");
            }
        }
    }
}

/// Also fails allocations of this thread that may wait.
fn prepare() -> File {
    for (file, value) in [
        ("failslab/ignore-gfp-wait", "N"),
        ("fail_page_alloc/ignore-gfp-wait", "N"),
        ("fail_page_alloc/ignore-gfp-highmem", "N"),
        ("fail_page_alloc/min-order", "0"),
        ("failslab/verbose", "0"),
        ("fail_page_alloc/verbose", "0"),
    ] {
        let path = format!("/sys/kernel/debug/{file}");
        std::fs::write(&path, value).unwrap_or_else(|e| panic!("{path}: {e}"));
    }
    File::options()
        .read(true)
        .write(true)
        .open("/proc/thread-self/fail-nth")
        .expect("/proc/thread-self/fail-nth")
}

/// Runs `call` with its `nth` allocation failing; also returns whether there were that many.
fn with_fault<T>(fail_nth: &File, nth: u32, call: impl FnOnce() -> T) -> (T, bool) {
    let text = nth.to_string();
    let mut left = [0u8; 16];
    fail_nth.write_at(text.as_bytes(), 0).expect("arm");
    let result = call();
    // If the fault did not occur in the call, reading its state copies to the program, and may
    // cause it.
    let met = fail_nth
        .read_at(&mut left, 0)
        .is_ok_and(|len| left[..len].trim_ascii() == b"0");
    while fail_nth.write_at(b"0", 0).is_err() {}
    (result, met)
}

fn sweep(cases: &[Case]) {
    sweep_of(World::new, World::undo, cases);
}

/// Makes each fault of each case in turn. `make` makes the objects for a case, and `undo` ends what
/// a successful call has made of them.
fn sweep_of<W>(make: impl Fn() -> W, undo: impl Fn(&W, Made), cases: &[Case<W>]) {
    let fail_nth = prepare();
    for (name, call) in cases {
        let world = make();
        let mut met_any = 0;
        for nth in 1..=MOST {
            let (result, met) = with_fault(&fail_nth, nth, || call(&world));
            match result {
                Ok(made) => {
                    undo(&world, made);
                    if !met {
                        break;
                    }
                    // An allocation that the kernel can do without.
                }
                Err(errno) => {
                    assert!(met, "{name}: {errno} without a fault");
                    // An allocation, or copying from or to the program, failed.
                    assert!(
                        errno == Errno::ENOMEM || errno == Errno::EFAULT,
                        "{name}, fault {nth}: {errno}"
                    );
                    let again =
                        call(&world).unwrap_or_else(|e| panic!("{name} after fault {nth}: {e}"));
                    undo(&world, again);
                }
            }
            assert!(nth < MOST, "{name}: more than {MOST} faults");
            met_any += 1;
        }
        println!("{name}: {met_any} faults in turn");
    }
}
