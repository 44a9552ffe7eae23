// SPDX-License-Identifier: GPL-2.0
//! Measures one call, and reading a CQ without a call.
//!
//! Rows whose names have a second part in brackets have no goal; they explain the time of the
//! `rdm` rows.

use crate::{
    Result,
    counters::device,
    messages::{Host, Reports, SIZE, seqpacket},
    process,
    row::{Case, Measurement},
};
use kfi::{Device, Entry, Op};
use rustix::net::{RecvFlags, SendFlags, recv, send};
use std::{hint::black_box, os::fd::OwnedFd, time::Instant};

const CALLS: u32 = 5_000;

/// Nanoseconds per call of `call`, called `count` times.
fn each(count: u32, mut call: impl FnMut() -> Result<()>) -> Result<f64> {
    let began = Instant::now();
    for _ in 0..count {
        call()?;
    }
    Ok(began.elapsed().as_nanos() as f64 / f64::from(count))
}

/// Nanoseconds of an ioctl that does nothing.
pub(crate) fn empty_call(device: &Device) -> Result<f64> {
    each(CALLS, || Ok(device.nop()?))
}

fn empty(measurement: &mut Measurement) -> Result<()> {
    process::bind()?;
    let device = Device::open()?;
    measurement.take(&mut || empty_call(&device), &mut || {
        each(CALLS, || {
            black_box(rustix::process::getppid());
            Ok(())
        })
    })
}

/// Number of entries made at a time, and number of times per run.
const ENTRIES: u32 = 1024;
const FILLS: u32 = 4;

/// Two endpoints of this process, and the objects they need to send to each other.
struct Loop {
    from: Host,
    to: Host,
    peer: kfi::FiAddr,
}

impl Loop {
    fn new() -> Result<Self> {
        process::bind()?;
        let device = device()?;
        let (from, to) = (
            Host::new(&device, Reports::Entry)?,
            Host::new(&device, Reports::Entry)?,
        );
        let peer = from.meet(to.ep.name()?)?;
        Ok(Self { from, to, peer })
    }

    /// Receives `count` messages, so that as many entries are in the CQ.
    fn fill(&self, count: u32) -> Result<()> {
        let bytes = [7; SIZE];
        let ops = vec![Op::inject(self.peer, &bytes); count as usize];
        self.from.post_all(&ops)
    }
}

fn ring_read(measurement: &mut Measurement) -> Result<()> {
    let pair = Loop::new()?;
    pair.to.post_buffers()?;
    let mut ring = pair.to.cq.ring()?;
    let mut uring = io_uring::IoUring::new(ENTRIES)?;
    measurement.take(
        &mut || {
            let mut sum = 0.0;
            for _ in 0..FILLS {
                pair.fill(ENTRIES)?;
                let mut released = 0;
                let began = Instant::now();
                let count = ring.drain(usize::MAX, |entry| {
                    black_box((entry.op_context, entry.len));
                    released += u32::from(Host::releases(entry));
                })?;
                sum += began.elapsed().as_nanos() as f64;
                expect(count, ENTRIES)?;
                for _ in 0..released {
                    pair.to.post_buffer()?;
                }
            }
            Ok(sum / f64::from(FILLS * ENTRIES))
        },
        &mut || {
            let mut sum = 0.0;
            for _ in 0..FILLS {
                for number in 0..ENTRIES {
                    let nop = io_uring::opcode::Nop::new()
                        .build()
                        .user_data(number.into());
                    // SAFETY: A NOP has no memory.
                    unsafe { uring.submission().push(&nop) }?;
                }
                uring.submit_and_wait(ENTRIES as usize)?;
                let mut count = 0;
                let mut failed = 0;
                let began = Instant::now();
                for entry in uring.completion() {
                    black_box((entry.user_data(), entry.result()));
                    failed += u32::from(entry.result() != 0);
                    count += 1;
                }
                sum += began.elapsed().as_nanos() as f64;
                expect(count - failed as usize, ENTRIES)?;
            }
            Ok(sum / f64::from(FILLS * ENTRIES))
        },
    )
}

fn expect(count: usize, wanted: u32) -> Result<()> {
    if count == wanted as usize {
        Ok(())
    } else {
        Err(format!("{count} entries instead of {wanted}").into())
    }
}

/// Number of queued messages when calls are timed; a socket takes somewhat more.
const WAITING: u32 = 128;

fn send_all(socket: &OwnedFd) -> Result<f64> {
    each(WAITING, || {
        send(socket, &[7; SIZE], SendFlags::empty())?;
        Ok(())
    })
}

fn recv_all(socket: &OwnedFd) -> Result<f64> {
    each(WAITING, || {
        recv(socket, &mut [0u8; SIZE][..], RecvFlags::empty())?;
        Ok(())
    })
}

/// One POST of one inject, which arrives in a multi-receive buffer.
fn post_inject(measurement: &mut Measurement) -> Result<()> {
    let pair = Loop::new()?;
    pair.to.post_buffers()?;
    let bytes = [7; SIZE];
    let op = Op::inject(pair.peer, &bytes);
    let (from, to) = seqpacket()?;
    measurement.take(
        &mut || {
            let time = each(WAITING, || Ok(pair.from.ep.post_one(&op)?))?;
            pair.to.drain(WAITING)?;
            Ok(time)
        },
        &mut || {
            let time = send_all(&from)?;
            recv_all(&to)?;
            Ok(time)
        },
    )
}

/// One POST of a receive and an inject, as in a ping-pong.
fn post_pair(measurement: &mut Measurement) -> Result<()> {
    let pair = Loop::new()?;
    let bytes = [7; SIZE];
    let receive = Op::recv(pair.to.mr.slice(0..SIZE));
    let (from, to) = seqpacket()?;
    // A POST names one endpoint, so it sends to itself.
    let myself = pair.to.meet(pair.to.ep.name()?)?;
    let to_myself = Op::inject(myself, &bytes);
    measurement.take(
        &mut || {
            let time = each(WAITING, || {
                pair.to.ep.post(&[receive, to_myself])?.into_result()?;
                Ok(())
            })?;
            pair.to.drain(WAITING)?;
            Ok(time)
        },
        &mut || {
            let time = send_all(&from)?;
            recv_all(&to)?;
            Ok(time)
        },
    )
}

/// Reads one entry by a call.
fn cq_read(measurement: &mut Measurement) -> Result<()> {
    let pair = Loop::new()?;
    pair.to.post_buffers()?;
    let (from, to) = seqpacket()?;
    measurement.take(
        &mut || {
            pair.fill(WAITING)?;
            let mut released = 0;
            let time = each(WAITING, || {
                let mut entry = [Entry::default()];
                pair.to.cq.read(&mut entry)?;
                released += u32::from(Host::releases(&entry[0]));
                Ok(())
            })?;
            for _ in 0..released {
                pair.to.post_buffer()?;
            }
            Ok(time)
        },
        &mut || {
            send_all(&from)?;
            recv_all(&to)
        },
    )
}

/// Messages per POST, and 64 of them, without a sleeping process.
fn post_64(measurement: &mut Measurement) -> Result<()> {
    let pair = Loop::new()?;
    pair.to.post_buffers()?;
    let bytes = [7; SIZE];
    let ops = vec![Op::inject(pair.peer, &bytes); 64];
    let (from, to) = seqpacket()?;
    let mut batch = crate::messages::Batch::new();
    measurement.take(
        &mut || {
            let began = Instant::now();
            pair.from.post_all(&ops)?;
            pair.from.post_all(&ops)?;
            let time = began.elapsed().as_nanos() as f64 / 128.0;
            pair.to.drain(128)?;
            Ok(time)
        },
        &mut || {
            let began = Instant::now();
            batch.send(&from)?;
            batch.send(&from)?;
            let time = began.elapsed().as_nanos() as f64 / 128.0;
            recv_all(&to)?;
            Ok(time)
        },
    )
}

/// The rows.
pub(crate) fn cases() -> Vec<Case> {
    let part = |name, peer, measure| Case::lower(name, "ns", peer, None, measure);
    vec![
        Case::lower("cq/ring_read", "ns", "io_uring CQE", Some(1.5), ring_read),
        Case::lower("ioctl/empty", "ns", "getppid", Some(3.0), empty),
        part("call/post (inject)", "send, seqpacket", post_inject),
        part("call/post (recv + inject)", "send, seqpacket", post_pair),
        part("call/post (per 64 injects)", "sendmmsg, seqpacket", post_64),
        part("call/cq_read (1 entry)", "recv, seqpacket", cq_read),
    ]
}
