// SPDX-License-Identifier: GPL-2.0
//! Deferred work: what it costs to queue and start it, and what waiting work costs others.
//!
//! - `trigger/add_pending_100k`: an add by call to a counter for which 100,000 works wait, none of
//!   which becomes due. The peer is the same with 10 works. `trigger/add_pending_1k` has 1,000.
//! - `trigger/queue_fire_cntr_add`: a call that queues the add to a counter, which is due at once.
//!   The row `(queue, add)` queues it in one call and makes it due by another; the row `(per 64)`
//!   queues 64 in a call, and makes all of them due by one add. The peer is a system call that does
//!   nothing.
//! - `trigger/deferred_write_8B`: from an add by call until the completion of a write of 8 bytes to
//!   a region, which the add has started, is seen on a mapped counter. The peer posts the same
//!   write, and sees it on the endpoint's counter.
//! - `trigger/pending_bytes`: memory of one such write that waits: the growth of the kernel's slabs
//!   for each of many. The peer is the goal.

use crate::{
    Result, calls,
    counters::{self, LINK},
    process,
    row::{Case, Measurement},
};
use kfi::{
    Access, AvKind, Buffer, Caps, Cntr, CntrBind, Domain, Endpoint, FiAddr, Mr, Op, Remote, Work,
};
use std::time::Instant;

const ADDS: u64 = 2_000;
const WRITES: u64 = 500;
const PENDING: u64 = 20_000;

fn domain() -> Result<Domain> {
    Ok(counters::device()?.fabric()?.domain(LINK).open()?)
}

/// Nanoseconds for each of `count` rounds.
fn each(count: u64, mut round: impl FnMut() -> Result<()>) -> Result<f64> {
    let began = Instant::now();
    for _ in 0..count {
        round()?;
    }
    Ok(began.elapsed().as_nanos() as f64 / count as f64)
}

/// A counter for which `count` works wait, far away.
fn waited_for(domain: &Domain, count: usize) -> Result<Cntr> {
    let (cntr, other) = (domain.cntr().open()?, domain.cntr().open()?);
    let works: Vec<_> = (0..count)
        .map(|n| Work::add(&cntr, 1 << 40 | n as u64, &other, 1))
        .collect();
    for part in works.chunks(4096) {
        if !domain.queue_work(part)?.all() {
            return Err("not all work was queued".into());
        }
    }
    Ok(cntr)
}

/// An add with `count` works that wait, beside one with ten.
fn add_pending(measurement: &mut Measurement, count: usize) -> Result<()> {
    process::bind()?;
    let domain = domain()?;
    let (many, few) = (waited_for(&domain, count)?, waited_for(&domain, 10)?);
    let adds = |cntr: &Cntr| each(ADDS, || Ok(cntr.add(1)?));
    measurement.take(&mut || adds(&many), &mut || adds(&few))?;
    domain.flush_work()?;
    Ok(())
}

fn add_pending_1k(measurement: &mut Measurement) -> Result<()> {
    add_pending(measurement, 1_000)
}

fn add_pending_100k(measurement: &mut Measurement) -> Result<()> {
    add_pending(measurement, 100_000)
}

fn queue_due(measurement: &mut Measurement) -> Result<()> {
    process::bind()?;
    let domain = domain()?;
    let (go, done) = (domain.cntr().open()?, domain.cntr().open()?);
    let work = Work::add(&go, 0, &done, 1);
    let device = counters::device()?;
    measurement.take(
        &mut || {
            each(ADDS, || {
                domain.queue_one(&work).map(drop).map_err(Into::into)
            })
        },
        &mut || calls::empty_call(&device),
    )
}

fn queue_and_add(measurement: &mut Measurement) -> Result<()> {
    process::bind()?;
    let domain = domain()?;
    let (go, done) = (domain.cntr().open()?, domain.cntr().open()?);
    let device = counters::device()?;
    measurement.take(
        &mut || {
            let mut at = go.value();
            let time = each(ADDS, || {
                at += 1;
                domain.queue_one(&Work::add(&go, at, &done, 1))?;
                Ok(go.add(1)?)
            })?;
            if done.value() != at {
                return Err("not all work was done".into());
            }
            Ok(time)
        },
        &mut || calls::empty_call(&device),
    )
}

fn queue_64(measurement: &mut Measurement) -> Result<()> {
    const BATCH: u64 = 64;
    process::bind()?;
    let domain = domain()?;
    let (go, done) = (domain.cntr().open()?, domain.cntr().open()?);
    let device = counters::device()?;
    measurement.take(
        &mut || {
            let mut at = go.value();
            each(ADDS / BATCH, || {
                at += 1;
                let works = [Work::add(&go, at, &done, 1); BATCH as usize];
                domain.queue_work(&works)?.into_result()?;
                Ok(go.add(1)?)
            })
            .map(|time| time / BATCH as f64)
        },
        &mut || calls::empty_call(&device),
    )
}

/// An endpoint that writes to a region of its own domain.
struct Writer {
    domain: Domain,
    ep: Endpoint,
    writes: Cntr,
    me: FiAddr,
    mr: Mr,
}

impl Writer {
    fn new() -> Result<Self> {
        let domain = domain()?;
        let av = domain.av().kind(AvKind::Table).open()?;
        let buffer = Buffer::new(4096)?;
        let mr = domain
            .mr(&buffer)
            .access(Access::WRITE | Access::REMOTE_WRITE)
            .open()?;
        let writes = domain.cntr().open()?;
        let ep = domain.endpoint().caps(Caps::MSG | Caps::RMA).open()?;
        ep.bind_av(&av)?;
        ep.bind_cntr(&writes, CntrBind::SEND | CntrBind::WRITE | CntrBind::READ)?;
        ep.bind_cntr(&domain.cntr().open()?, CntrBind::RECV)?;
        ep.enable()?;
        let me = av.insert_one(ep.name()?)?;
        Ok(Self {
            domain,
            ep,
            writes,
            me,
            mr,
        })
    }

    fn write(&self) -> Op<'_> {
        let remote = Remote::new(self.mr.remote(64).addr, self.mr.key());
        Op::write(self.me, self.mr.slice(..8), remote)
    }
}

fn deferred_write(measurement: &mut Measurement) -> Result<()> {
    process::bind()?;
    let writer = Writer::new()?;
    let (go, done) = (writer.domain.cntr().open()?, writer.domain.cntr().open()?);
    let seen = |cntr: &Cntr, value| {
        while cntr.value() < value {
            std::hint::spin_loop();
        }
    };
    measurement.take(
        &mut || {
            let first = go.value();
            let works: Vec<_> = (1..=WRITES)
                .map(|n| {
                    Work::transfer(&go, first + n, &writer.ep, writer.write()).completion(&done)
                })
                .collect();
            if !writer.domain.queue_work(&works)?.all() {
                return Err("not all work was queued".into());
            }
            let mut at = done.value();
            each(WRITES, || {
                at += 1;
                go.add(1)?;
                seen(&done, at);
                Ok(())
            })
        },
        &mut || {
            let write = writer.write();
            let mut at = writer.writes.value();
            each(WRITES, || {
                at += 1;
                writer.ep.post_one(&write)?;
                seen(&writer.writes, at);
                Ok(())
            })
        },
    )
}

/// Bytes of the kernel's slabs.
fn slabs() -> Result<f64> {
    let text = std::fs::read_to_string("/proc/meminfo")?;
    let line = text.lines().find(|line| line.starts_with("Slab:"));
    let words = line.ok_or("no Slab")?.split_whitespace().nth(1);
    Ok(words.ok_or("no value")?.parse::<f64>()? * 1024.0)
}

fn pending_bytes(measurement: &mut Measurement) -> Result<()> {
    process::bind()?;
    let writer = Writer::new()?;
    let (go, done) = (writer.domain.cntr().open()?, writer.domain.cntr().open()?);
    let works =
        vec![Work::transfer(&go, 1 << 40, &writer.ep, writer.write()).completion(&done); 4000];
    measurement.at_most(3);
    measurement.take(
        &mut || {
            let before = slabs()?;
            for _ in 0..PENDING / 4000 {
                if !writer.domain.queue_work(&works)?.all() {
                    return Err("not all work was queued".into());
                }
            }
            // It stays queued: the allocator would keep its memory for the next run.
            Ok((slabs()? - before) / PENDING as f64)
        },
        &mut || Ok(512.0),
    )
}

/// The rows.
pub(crate) fn cases() -> Vec<Case> {
    vec![
        Case::lower(
            "trigger/add_pending_1k",
            "ns",
            "with 10 pending",
            Some(2.0),
            add_pending_1k,
        ),
        Case::lower(
            "trigger/add_pending_100k",
            "ns",
            "with 10 pending",
            Some(2.0),
            add_pending_100k,
        ),
        Case::lower(
            "trigger/queue_fire_cntr_add",
            "ns",
            "ioctl/empty",
            Some(2.0),
            queue_due,
        ),
        Case::lower(
            "trigger/queue_fire_cntr_add (queue, add)",
            "ns",
            "ioctl/empty",
            None,
            queue_and_add,
        ),
        Case::lower(
            "trigger/queue_fire_cntr_add (per 64)",
            "ns",
            "ioctl/empty",
            None,
            queue_64,
        ),
        Case::lower(
            "trigger/deferred_write_8B",
            "ns",
            "posted directly",
            Some(1.3),
            deferred_write,
        ),
        Case::lower(
            "trigger/pending_bytes",
            "B",
            "the goal",
            Some(1.0),
            pending_bytes,
        ),
    ]
}
