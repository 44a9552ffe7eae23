// SPDX-License-Identifier: GPL-2.0
//! Large transfers between two processes.

use crate::{
    Result, counters,
    process::{self, Second},
    row::{Case, Measurement},
};
use kfi::{
    Access, Av, AvKind, Buffer, Caps, CompFlags, Cq, CqBind, CqFormat, Deadline, Endpoint, Entry,
    FiAddr, Mr, Op, Remote, Wait,
};
use std::{
    io::{Read, Write},
    os::unix::net::UnixStream,
    time::Instant,
};

/// Bytes of a transfer, and transfers of a run.
const SIZE: usize = 1 << 20;
const TRANSFERS: u64 = 16;

/// Megabytes per second of a run.
fn rate(began: Instant) -> f64 {
    (SIZE as u64 * TRANSFERS) as f64 / 1e6 / began.elapsed().as_secs_f64()
}

/// An endpoint with a registered buffer.
struct Host {
    cq: Cq,
    mr: Mr,
    ep: Endpoint,
    av: Av,
}

impl Host {
    fn new() -> Result<Self> {
        let domain = counters::device()?
            .fabric()?
            .domain(counters::LINK)
            .open()?;
        let cq = domain
            .cq()
            .entries(64)
            .format(CqFormat::Data)
            .wait(Wait::Queue)
            .open()?;
        let av = domain.av().kind(AvKind::Table).open()?;
        let buffer = Buffer::new(SIZE)?;
        buffer.fill(7);
        let mr = domain
            .mr(&buffer)
            .access(
                Access::SEND
                    | Access::RECV
                    | Access::READ
                    | Access::WRITE
                    | Access::REMOTE_READ
                    | Access::REMOTE_WRITE,
            )
            .open()?;
        let ep = domain.endpoint().caps(Caps::MSG | Caps::RMA).open()?;
        ep.bind_cq(&cq, CqBind::TRANSMIT | CqBind::RECV)?;
        ep.bind_av(&av)?;
        ep.enable()?;
        Ok(Self { cq, mr, ep, av })
    }

    /// Waits for a completion with `wanted` among its flags.
    fn wait(&self, wanted: CompFlags) -> Result<()> {
        loop {
            let entry: Entry = self
                .cq
                .next(Deadline::FOREVER)?
                .ok_or("no completion came")?;
            if entry.flags.contains(wanted) {
                return Ok(());
            }
        }
    }
}

/// A second process with a host, and ours: each has the other's address.
fn second_host(
    serve: impl FnOnce(&Host, FiAddr, &mut process::Channel) -> Result<()>,
) -> Result<(Second, Host, FiAddr)> {
    let mut second = Second::new(|mut channel| {
        let host = Host::new()?;
        channel.put_addr(host.ep.name()?)?;
        let peer = host.av.insert_one(channel.get_addr()?)?;
        serve(&host, peer, &mut channel)
    })?;
    let host = Host::new()?;
    let peer = host.av.insert_one(second.channel.get_addr()?)?;
    second.channel.put_addr(host.ep.name()?)?;
    Ok((second, host, peer))
}

/// Writes into a region of the second process, which does nothing.
fn rma_write(measurement: &mut Measurement) -> Result<()> {
    let _policy = process::bind_pair(measurement.clock())?;
    let (mut ours, host, peer) = second_host(|host, _, channel| {
        let remote = host.mr.remote(0);
        channel.put(remote.addr)?;
        channel.put(remote.key)?;
        channel.get().map(drop)
    })?;
    let remote = Remote::new(ours.channel.get()?, ours.channel.get()?);
    let write = Op::write(peer, host.mr.slice(..), remote);
    let mut ring = host.cq.ring()?;

    let from = vec![7u8; SIZE];
    let mut theirs = Second::new(|mut channel| {
        let mut into = vec![1u8; SIZE];
        channel.put(into.as_mut_ptr().expose_provenance() as u64)?;
        channel.get().map(drop)
    })?;
    let into = theirs.channel.get()? as usize;
    measurement.take(
        &mut || {
            let began = Instant::now();
            for _ in 0..TRANSFERS {
                host.ep.post_one(&write)?;
                if ring.sread(&mut [Entry::default()], Deadline::FOREVER)? != 1 {
                    return Err("no completion came".into());
                }
            }
            Ok(rate(began))
        },
        &mut || {
            let local = libc::iovec {
                iov_base: from.as_ptr().cast_mut().cast(),
                iov_len: SIZE,
            };
            let remote = libc::iovec {
                iov_base: std::ptr::with_exposed_provenance_mut(into),
                iov_len: SIZE,
            };
            let began = Instant::now();
            for _ in 0..TRANSFERS {
                // SAFETY: Reads `from`; what it writes is the other process's.
                let written =
                    unsafe { libc::process_vm_writev(theirs.pid(), &local, 1, &remote, 1, 0) };
                if written != SIZE as isize {
                    return Err(std::io::Error::last_os_error().into());
                }
            }
            Ok(rate(began))
        },
    )
}

/// Messages; each waits at its receive, and the last one is answered.
fn message(measurement: &mut Measurement) -> Result<()> {
    let _policy = process::bind_pair(measurement.clock())?;
    let (mut ours, host, peer) = second_host(|host, peer, channel| {
        let receive = Op::recv(host.mr.slice(..));
        while let Ok(count) = channel.get() {
            for _ in 0..count {
                host.ep.post_one(&receive)?;
                host.wait(CompFlags::RECV)?;
            }
            host.ep.inject(peer, &[7])?;
        }
        Ok(())
    })?;
    let send = Op::send(peer, host.mr.slice(..));
    let answer = Op::recv(host.mr.slice(..1));

    let (mut near, mut far) = UnixStream::pair()?;
    let mut theirs = Second::new(move |mut channel| {
        let mut into = vec![1u8; SIZE];
        while let Ok(count) = channel.get() {
            for _ in 0..count {
                far.read_exact(&mut into)?;
            }
            far.write_all(&[7])?;
        }
        Ok(())
    })?;
    let from = vec![7u8; SIZE];
    measurement.take(
        &mut || {
            host.ep.post_one(&answer)?;
            ours.channel.put(TRANSFERS)?;
            let began = Instant::now();
            for _ in 0..TRANSFERS {
                host.ep.post_one(&send)?;
                host.wait(CompFlags::SEND)?;
            }
            host.wait(CompFlags::RECV)?;
            Ok(rate(began))
        },
        &mut || {
            theirs.channel.put(TRANSFERS)?;
            let began = Instant::now();
            for _ in 0..TRANSFERS {
                near.write_all(&from)?;
            }
            near.read_exact(&mut [0])?;
            Ok(rate(began))
        },
    )
}

/// The rows.
pub(crate) fn cases() -> Vec<Case> {
    vec![
        Case::higher(
            "rdm/local_bw_1MiB",
            "MB/s",
            "process_vm_writev",
            Some(0.9),
            rma_write,
        ),
        Case::higher(
            "rdm/local_bw_1MiB (message)",
            "MB/s",
            "AF_UNIX stream",
            None,
            message,
        ),
    ]
}
