// SPDX-License-Identifier: GPL-2.0
//! Counters as programs have them: a mapped value, and a descriptor to poll.

use crate::{
    Result,
    process::{self, Second},
    row::{Case, Measurement},
};
use kfi::{Buffer, Cntr, CntrFd, Device, MemoryLocation, Wait};
use rustix::event::{EventfdFlags, PollFd, PollFlags, eventfd, poll};
use std::{
    hint::black_box,
    os::fd::{AsFd, OwnedFd},
    sync::atomic::{AtomicU64, Ordering},
    time::Instant,
};

/// The link on `lo` that the benchmarks use.
pub(crate) const LINK: &str = "bench0";

const LOADS: u32 = 500_000;
const ROUNDS: u64 = 600;

/// The device, with the link.
pub(crate) fn device() -> Result<Device> {
    let device = Device::open()?;
    match device.link_add(LINK, "lo") {
        Err(error) if error.errno() != Some(kfi::Errno::EEXIST) => Err(error.into()),
        _ => Ok(device),
    }
}

/// Nanoseconds per load of `load`.
#[inline]
fn loads(load: impl Fn() -> u64) -> f64 {
    let began = Instant::now();
    for _ in 0..LOADS {
        black_box(load());
    }
    began.elapsed().as_nanos() as f64 / f64::from(LOADS)
}

fn read_mapped(measurement: &mut Measurement) -> Result<()> {
    process::bind()?;
    let domain = device()?.fabric()?.domain(LINK).open()?;
    let cntr = domain.cntr().open()?;
    cntr.add(7)?;
    let mapped = cntr.mapped();
    let private = Box::new(AtomicU64::new(7));
    let private = black_box(&*private);
    measurement.take(&mut || Ok(loads(|| mapped.value())), &mut || {
        Ok(loads(|| private.load(Ordering::Acquire)))
    })
}

/// A completion counter of verbs in memory of the program.
fn read_external(measurement: &mut Measurement) -> Result<()> {
    process::bind()?;
    let domain = device()?.fabric()?.domain(LINK).open()?;
    let memory = Buffer::new(16)?;
    let place = |offset| MemoryLocation::va(&memory, offset);
    let cntr = domain.comp_cntr().external(place(0), place(8)).create()?;
    cntr.inc(7)?;
    let mapped = cntr.mapped().ok_or("a counter that is not mapped")?;
    let private = Box::new(AtomicU64::new(7));
    let private = black_box(&*private);
    measurement.take(&mut || Ok(loads(|| mapped.value())), &mut || {
        Ok(loads(|| private.load(Ordering::Acquire)))
    })
}

fn wait_readable(fd: &impl AsFd) -> Result<()> {
    poll(&mut [PollFd::new(fd, PollFlags::IN)], None)?;
    Ok(())
}

/// Nanoseconds one way, `ROUNDS` rounds: the second process answers each `there` with a `back`.
fn rounds(second: &mut Second, mut round: impl FnMut() -> Result<()>) -> Result<f64> {
    second.channel.put(ROUNDS)?;
    let began = Instant::now();
    for _ in 0..ROUNDS {
        round()?;
    }
    Ok(began.elapsed().as_nanos() as f64 / ROUNDS as f64 / 2.0)
}

/// The second process: answers rounds until the channel ends.
fn answers(mut round: impl FnMut() -> Result<()>) -> impl FnOnce(process::Channel) -> Result<()> {
    move |mut channel| {
        while let Ok(count) = channel.get() {
            for _ in 0..count {
                round()?;
            }
        }
        Ok(())
    }
}

/// Waits until `fd` reports a change of its counter.
fn take_cntr(fd: &CntrFd) -> Result<()> {
    wait_readable(fd)?;
    fd.consume()?;
    Ok(())
}

fn take_eventfd(fd: &OwnedFd) -> Result<()> {
    wait_readable(fd)?;
    rustix::io::read(fd, &mut [0; 8])?;
    Ok(())
}

fn put_eventfd(fd: &OwnedFd) -> Result<()> {
    rustix::io::write(fd, &1u64.to_ne_bytes())?;
    Ok(())
}

fn poll_fd(measurement: &mut Measurement) -> Result<()> {
    let _policy = process::bind_pair(measurement.clock())?;
    // Both processes have the same counters: the second inherits the open file.
    let domain = device()?.fabric()?.domain(LINK).open()?;
    let open = || -> Result<(Cntr, CntrFd)> {
        let cntr = domain.cntr().wait(Wait::Queue).open()?;
        let fd = cntr.wait_fd()?;
        Ok((cntr, fd))
    };
    let ((there, there_fd), (back, back_fd)) = (open()?, open()?);
    let mut ours = Second::new(answers(|| {
        take_cntr(&there_fd)?;
        Ok(back.add(1)?)
    }))?;
    let event = || eventfd(0, EventfdFlags::empty());
    let (there_event, back_event) = (event()?, event()?);
    let mut peer = Second::new(answers(|| {
        take_eventfd(&there_event)?;
        put_eventfd(&back_event)
    }))?;
    measurement.take(
        &mut || {
            rounds(&mut ours, || {
                there.add(1)?;
                take_cntr(&back_fd)
            })
        },
        &mut || {
            rounds(&mut peer, || {
                put_eventfd(&there_event)?;
                take_eventfd(&back_event)
            })
        },
    )
}

/// The rows.
pub(crate) fn cases() -> Vec<Case> {
    vec![
        Case::lower(
            "cntr/read_mapped",
            "ns",
            "load, private memory",
            Some(1.1),
            read_mapped,
        ),
        Case::lower(
            "comp_cntr/read_external",
            "ns",
            "load, private memory",
            Some(1.1),
            read_external,
        ),
        Case::lower(
            "cntr/poll_fd",
            "ns",
            "eventfd ping-pong",
            Some(1.2),
            poll_fd,
        ),
    ]
}
