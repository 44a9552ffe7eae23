// SPDX-License-Identifier: GPL-2.0

//! Benchmarks of counters and of posting in the kernel: debugfs `kfabric-bench/`.
//!
//! Reading a file runs one benchmark once and returns two numbers: nanoseconds per operation, and
//! how often a sleeper ran per operation (0 without sleepers). Most benchmarks measure the
//! functions that every user of a counter calls, [`Cntr::add`] and [`Cntr::wait`], and the
//! operations in C to which they are compared. Two measure operations that are admitted and
//! started, in process context and in a softirq. `qemu-test/bench` reads the files in turn.
//!
//! The code that measures is C (`bench.c`), so that the same code times C and Rust. The reader
//! should be bound to one CPU.

use kernel::{
    debugfs::{
        Dir,
        File, //
    },
    error::to_result,
    fmt,
    prelude::*,
    sync::Arc, //
};

use kfi_core::{
    enums,
    flags::CqBind,
    wait::Deadline, //
};

use super::{
    bench_consumer,
    contexts::in_softirq,
    ep_pair::{
        Pair,
        Sizes, //
    },
    fixture::{
        soon,
        TestDomain, //
    },
    helpers::thread, //
};
use crate::{
    mem::{
        Inline,
        MemRef,
        Source, //
    },
    provider::{
        cntr::Cntr,
        ep::admit::{
            Admitted,
            Context, //
        },
        object::force_close,
        work::Change, //
    },
    shim::{
        bindings::{
            self,
            kfabric_bench, //
        },
        sched::now_ns, //
    }, //
};

/// The number of adds that are timed together.
const ADDS: u64 = 200_000;

/// The number of wake-ups, each timed separately.
const WAKES: u32 = 400;

/// The number of sleepers of which one is woken.
const CROWD: u32 = 1_000;

/// The links of a chain of deferred work, and how often it runs.
const CHAIN: usize = 1_000;
const CHAIN_ROUNDS: u64 = 50;

/// The number of messages that are admitted and started together, and how often.
const POSTS: u32 = 256;
const POST_ROUNDS: u32 = 20;

/// The results of a run.
pub(super) struct Measurement {
    /// Picoseconds per operation, because an add takes only few nanoseconds.
    ps: u64,
    /// How often sleepers ran, per thousand operations.
    ran: u64,
}

impl Measurement {
    /// A result without sleepers.
    pub(super) fn of(ps: u64) -> Self {
        Self { ps, ran: 0 }
    }

    /// The results of `bench`, which has run.
    fn woken(bench: &kfabric_bench) -> Self {
        Self {
            ps: bench.median.saturating_mul(1000),
            ran: per(bench.woken.saturating_mul(1000), u64::from(bench.rounds)),
        }
    }
}

pub(super) fn per(sum: u64, count: u64) -> u64 {
    sum.checked_div(count).unwrap_or(0)
}

/// One benchmark.
struct Run(fn() -> Result<Measurement>);

fn show(run: &Run, f: &mut fmt::Formatter<'_>) -> fmt::Result {
    match (run.0)() {
        Ok(Measurement { ps, ran }) => writeln!(
            f,
            "{}.{:03} {}.{:03}",
            per(ps, 1000),
            ps % 1000,
            per(ran, 1000),
            ran % 1000
        ),
        Err(error) => writeln!(f, "error {}", error.to_errno()),
    }
}

/// The files, in a directory of their own; dropping this removes them.
#[pin_data]
pub(crate) struct Bench {
    dir: Dir,
    #[pin]
    add_idle: File<Run>,
    #[pin]
    atomic64_add_return: File<Run>,
    #[pin]
    wake: File<Run>,
    #[pin]
    wait_event: File<Run>,
    #[pin]
    wake_1_of_1000: File<Run>,
    #[pin]
    wake_the_same_of_1000: File<Run>,
    #[pin]
    wait_event_1000: File<Run>,
    #[pin]
    chain_1000: File<Run>,
    #[pin]
    admit_start: File<Run>,
    #[pin]
    from_softirq: File<Run>,
    #[pin]
    indirect_call: File<Run>,
    #[pin]
    consumer_cq_read: File<Run>,
    #[pin]
    consumer_cntr_read: File<Run>,
    #[pin]
    consumer_cntr_add: File<Run>,
    #[pin]
    consumer_handler: File<Run>,
    #[pin]
    queue_work: File<Run>,
    #[pin]
    consumer_lat: File<Run>,
    #[pin]
    unix_lat: File<Run>,
    #[pin]
    consumer_message: File<Run>,
    #[pin]
    unix_message: File<Run>,
    #[pin]
    consumer_write_64k: File<Run>,
    #[pin]
    unix_64k: File<Run>,
    #[pin]
    memcpy_64k: File<Run>,
}

impl Bench {
    /// Creates the files.
    pub(crate) fn new() -> impl PinInit<Self> {
        pin_init!(Self {
            dir: Dir::new(c"kfabric-bench"),
            add_idle <- dir.read_callback_file(c"add_idle", Run(adds), &show),
            atomic64_add_return <- dir.read_callback_file(
                c"atomic64_add_return",
                Run(atomic_adds),
                &show,
            ),
            wake <- dir.read_callback_file(c"wake", Run(|| wakes(1, false)), &show),
            wait_event <- dir.read_callback_file(
                c"wait_event",
                Run(|| queue_wakes(1)),
                &show,
            ),
            wake_1_of_1000 <- dir.read_callback_file(
                c"wake_1_of_1000",
                Run(|| wakes(CROWD, true)),
                &show,
            ),
            wake_the_same_of_1000 <- dir.read_callback_file(
                c"wake_the_same_of_1000",
                Run(|| wakes(CROWD, false)),
                &show,
            ),
            wait_event_1000 <- dir.read_callback_file(
                c"wait_event_1000",
                Run(|| queue_wakes(CROWD)),
                &show,
            ),
            chain_1000 <- dir.read_callback_file(c"chain_1000", Run(chains), &show),
            admit_start <- dir.read_callback_file(
                c"admit_start",
                Run(|| starts(start_here)),
                &show,
            ),
            from_softirq <- dir.read_callback_file(
                c"from_softirq",
                Run(|| starts(start_in_softirq)),
                &show,
            ),
            indirect_call <- dir.read_callback_file(
                c"indirect_call",
                Run(bench_consumer::indirect),
                &show,
            ),
            consumer_cq_read <- dir.read_callback_file(
                c"consumer_cq_read",
                Run(bench_consumer::cq_read),
                &show,
            ),
            consumer_cntr_read <- dir.read_callback_file(
                c"consumer_cntr_read",
                Run(bench_consumer::cntr_read),
                &show,
            ),
            consumer_cntr_add <- dir.read_callback_file(
                c"consumer_cntr_add",
                Run(bench_consumer::cntr_add),
                &show,
            ),
            consumer_handler <- dir.read_callback_file(
                c"consumer_handler",
                Run(bench_consumer::handler),
                &show,
            ),
            queue_work <- dir.read_callback_file(
                c"queue_work",
                Run(bench_consumer::queue_work),
                &show,
            ),
            consumer_lat <- dir.read_callback_file(
                c"consumer_lat",
                Run(bench_consumer::latency),
                &show,
            ),
            unix_lat <- dir.read_callback_file(
                c"unix_lat",
                Run(bench_consumer::unix_latency),
                &show,
            ),
            consumer_message <- dir.read_callback_file(
                c"consumer_message",
                Run(bench_consumer::message),
                &show,
            ),
            unix_message <- dir.read_callback_file(
                c"unix_message",
                Run(bench_consumer::unix_message),
                &show,
            ),
            consumer_write_64k <- dir.read_callback_file(
                c"consumer_write_64k",
                Run(bench_consumer::write_64k),
                &show,
            ),
            unix_64k <- dir.read_callback_file(
                c"unix_64k",
                Run(bench_consumer::unix_64k),
                &show,
            ),
            memcpy_64k <- dir.read_callback_file(
                c"memcpy_64k",
                Run(bench_consumer::memcpy_64k),
                &show,
            ),
        })
    }
}

/// A counter of a domain on a link, with both.
struct OnLink {
    cntr: Arc<Cntr>,
    _test: TestDomain,
}

impl OnLink {
    fn open() -> Result<Self> {
        let test = TestDomain::open()?;
        Ok(Self {
            cntr: test.cntr(enums::WaitObj::Queue, 3)?,
            _test: test,
        })
    }
}

impl Drop for OnLink {
    fn drop(&mut self) {
        force_close(&*self.cntr);
    }
}

/// Sleeps until the counter has reached `round`.
///
/// # Safety
///
/// `data` is a valid `Arc<Cntr>`.
unsafe extern "C" fn wait_for(data: *mut c_void, round: u64) {
    // SAFETY: By the requirements.
    let cntr = unsafe { &*data.cast::<Arc<Cntr>>() };
    // The counter is neither closed nor signalled, so only the threshold can end this wait.
    let _ = cntr.wait(round, Deadline::Forever, &mut 0);
}

/// Adds 1 to the counter.
///
/// # Safety
///
/// `data` is a valid `Arc<Cntr>`.
unsafe extern "C" fn wake_one(data: *mut c_void) {
    // SAFETY: By the requirements.
    unsafe { &*data.cast::<Arc<Cntr>>() }.add(1);
}

/// Measures adds while a waiter has a threshold far above.
fn adds() -> Result<Measurement> {
    let counter = OnLink::open()?;
    let far = counter.cntr.clone();
    let waiter = thread(move || {
        let _ = far.wait(u64::MAX, Deadline::Forever, &mut 0);
    })?;
    let began = now_ns();
    for _ in 0..ADDS {
        counter.cntr.add(1);
    }
    let took = now_ns().saturating_sub(began);
    drop(counter);
    waiter.join();
    Ok(Measurement {
        ps: per(took.saturating_mul(1000), ADDS),
        ran: 0,
    })
}

/// Measures adds that each wake one of `sleepers`: a different one each time if they `rotate`,
/// otherwise the same.
fn wakes(sleepers: u32, rotate: bool) -> Result<Measurement> {
    let counter = OnLink::open()?;
    let mut bench = kfabric_bench {
        data: core::ptr::from_ref(&counter.cntr).cast_mut().cast(),
        wait: Some(wait_for),
        wake: Some(wake_one),
        sleepers,
        rotate,
        rounds: WAKES,
        ..Default::default()
    };
    // SAFETY: `data` is what the two functions expect, and the call returns when all tasks have
    // left them.
    to_result(unsafe { bindings::kfabric_bench_run(&mut bench) })?;
    Ok(Measurement::woken(&bench))
}

/// Measures a chain of deferred adds: each makes the next one due.
fn chains() -> Result<Measurement> {
    let test = TestDomain::open()?;
    let mut cntrs = KVec::with_capacity(CHAIN + 1, GFP_KERNEL)?;
    for _ in 0..=CHAIN {
        cntrs.push(test.cntr(enums::WaitObj::Queue, 3)?, GFP_KERNEL)?;
    }
    let (Some(first), Some(last)) = (cntrs.first(), cntrs.last()) else {
        return Err(EINVAL);
    };
    let mut took = 0;
    for round in 1..=CHAIN_ROUNDS {
        for pair in cntrs.windows(2) {
            if let [from, to] = pair {
                from.queue_change(round, to, Change::Add(1))?;
            }
        }
        let began = now_ns();
        first.add_here(1);
        took += now_ns().saturating_sub(began);
        if last.read() != round {
            return Err(EIO);
        }
    }
    for cntr in &cntrs {
        force_close(&**cntr);
    }
    Ok(Measurement {
        ps: per(took.saturating_mul(1000), CHAIN as u64 * CHAIN_ROUNDS),
        ran: 0,
    })
}

/// Measures the operation to which `adds` is compared.
fn atomic_adds() -> Result<Measurement> {
    // SAFETY: No requirements; process context.
    let ns = unsafe { bindings::kfabric_bench_atomic(ADDS) };
    Ok(Measurement {
        ps: per(ns.saturating_mul(1000), ADDS),
        ran: 0,
    })
}

/// Measures the operation to which `wakes` is compared: all `sleepers` on one wait queue.
fn queue_wakes(sleepers: u32) -> Result<Measurement> {
    let mut bench = kfabric_bench {
        sleepers,
        rounds: WAKES,
        ..Default::default()
    };
    // SAFETY: The function fills in the rest of `bench`.
    to_result(unsafe { bindings::kfabric_bench_wait_event(&mut bench) })?;
    Ok(Measurement::woken(&bench))
}

/// Admits a SEND of 8 bytes and passes it to `start`.
fn admit(pair: &Pair, context: Context, start: impl Fn(Admitted)) -> Result {
    let inline = Inline::from_slice(&[0; 8]).ok_or(EINVAL)?;
    let mut op = pair.a.send(Source::Inline(&inline), 0);
    start(pair.a.endpoint.admit(&mut op, context)?);
    Ok(())
}

fn start_here(pair: &Arc<Pair>) -> Result {
    for _ in 0..POSTS {
        admit(pair, Context::MaySleep, |op| {
            op.start_here(&pair.a.endpoint, usize::MAX)
        })?;
    }
    Ok(())
}

fn start_in_softirq(pair: &Arc<Pair>) -> Result {
    let pair = pair.clone();
    in_softirq(move || {
        for _ in 0..POSTS {
            // A message that is missing ends the wait for it with an error.
            let _ = admit(&pair, Context::Atomic, Admitted::start);
        }
    })
}

/// Measures messages that `start` admits and starts, until they have arrived.
fn starts(start: fn(&Arc<Pair>) -> Result) -> Result<Measurement> {
    let sizes = Sizes {
        tx: POSTS as usize,
        rx: POSTS as usize,
        cq: POSTS,
        bind: CqBind::SELECTIVE_COMPLETION,
        ..Sizes::DEFAULT
    };
    let reporting = Sizes {
        bind: CqBind::EMPTY,
        ..sizes
    };
    let pair = Arc::new(
        Pair::sized(enums::EpType::Rdm, sizes, reporting)?,
        GFP_KERNEL,
    )?;
    let memory = MemRef::buffer(8)?;
    let mut took = 0;
    for _ in 0..POST_ROUNDS {
        for _ in 0..POSTS {
            pair.b.post(pair.b.receive(memory.clone(), 0))?;
        }
        let began = now_ns();
        start(&pair)?;
        let all = POSTS as usize;
        let ignore = |_: &[u64], _: u64| Ok(());
        let read = pair.b.cq.sread(all, POSTS, soon(), &mut 0, ignore)?;
        took += now_ns().saturating_sub(began);
        if read != all {
            return Err(EIO);
        }
    }
    let count = u64::from(POSTS) * u64::from(POST_ROUNDS);
    Ok(Measurement {
        ps: per(took.saturating_mul(1000), count),
        ran: 0,
    })
}
