// SPDX-License-Identifier: GPL-2.0
//! Messages between two processes: latency and rate.
//!
//! Both sides use the interface as fast programs do: they inject small messages, so that the module
//! pins no pages and reports no completion to the sender. The messages arrive in multi-receive
//! buffers inside a registered region, posted once for many thousand messages.
//!
//! - `rdm/local_lat_8B`: half a round of a ping-pong of two processes on one CPU, both of which
//!   sleep whenever they wait. They wait for a counter of received messages, which is the fastest
//!   way to sleep here; rows with CQ in their names sleep in a read of the CQ instead.
//! - `rdm/local_rate_8B`: messages in batches of 64 a call, from one process to another on the same
//!   CPU. It reads an entry for each from its mapped ring, answers each window of 1024, and sleeps
//!   until a window is there (`KFI_CQ_COND_THRESHOLD`). The peer sends 64 a call with sendmmsg()
//!   and receives up to 64 a call with recvmmsg(); its sender sleeps when the socket is full. The
//!   row `(CQ by call)` reads the CQ by calls, up to 64 entries each.

use crate::{
    Result,
    counters::{self, LINK},
    process::{self, Second},
    row::{Case, Measurement, Side},
};
use kfi::{
    Access, Av, AvKind, Buffer, Caps, Cntr, CntrBind, CompFlags, Cq, CqBind, CqFormat, Deadline,
    Device, Endpoint, Entry, FiAddr, Mr, Op, Wait,
};
use rustix::net::{AddressFamily, RecvFlags, SendFlags, SocketFlags, SocketType, recv, send};
use std::{
    net::SocketAddr,
    os::fd::{AsRawFd, OwnedFd},
    time::{Duration, Instant},
};

/// Bytes of a message.
pub(crate) const SIZE: usize = 8;

/// Longest time without room for an operation.
const SILENCE: Duration = Duration::from_secs(30);

/// Duration of a sleep then.
const A_MOMENT: Duration = Duration::from_micros(10);

/// Entries of a CQ: more than are ever queued.
const ENTRIES: u32 = 4096;

/// Bytes of a multi-receive buffer, and number of buffers posted at a time.
const BUFFER: usize = 256 * 1024;
const BUFFERS: usize = 2;

/// An endpoint and the objects it needs.
pub(crate) struct Host {
    pub(crate) cq: Cq,
    pub(crate) mr: Mr,
    pub(crate) ep: Endpoint,
    av: Av,
    received: Cntr,
}

/// Report of received messages.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum Reports {
    /// An entry in the CQ for each message.
    Entry,
    /// A counter counts them; only the release of a buffer makes an entry.
    Counter,
}

impl Host {
    /// An enabled endpoint; successes of transmits are silent.
    pub(crate) fn new(device: &Device, reports: Reports) -> Result<Self> {
        let domain = device.fabric()?.domain(LINK).open()?;
        let cq = domain
            .cq()
            .entries(ENTRIES)
            .format(CqFormat::Data)
            .wait(Wait::Queue)
            .threshold_cond()
            .open()?;
        let av = domain.av().kind(AvKind::Table).open()?;
        let buffer = Buffer::new(BUFFER * BUFFERS)?;
        let mr = domain
            .mr(&buffer)
            .access(Access::SEND | Access::RECV)
            .open()?;
        let ep = domain
            .endpoint()
            .caps(Caps::MSG | Caps::MULTI_RECV)
            .open()?;
        ep.bind_cq(&cq, CqBind::TRANSMIT | CqBind::SELECTIVE)?;
        let received = domain.cntr().wait(Wait::Queue).open()?;
        match reports {
            Reports::Entry => ep.bind_cq(&cq, CqBind::RECV)?,
            Reports::Counter => {
                ep.bind_cq(&cq, CqBind::RECV | CqBind::SELECTIVE)?;
                ep.bind_cntr(&received, CntrBind::RECV)?;
            }
        }
        ep.bind_av(&av)?;
        ep.enable()?;
        Ok(Self {
            cq,
            mr,
            ep,
            av,
            received,
        })
    }

    /// Adds the address of the endpoint at `addr`.
    pub(crate) fn meet(&self, addr: SocketAddr) -> Result<FiAddr> {
        Ok(self.av.insert_one(addr)?)
    }

    /// Posts all multi-receive buffers.
    pub(crate) fn post_buffers(&self) -> Result<()> {
        for _ in 0..BUFFERS {
            self.post_buffer()?;
        }
        Ok(())
    }

    /// Posts one; any of them, as the bytes are not read.
    pub(crate) fn post_buffer(&self) -> Result<()> {
        Ok(self.ep.post_one(&Op::multi_recv(self.mr.slice(..BUFFER)))?)
    }

    /// Whether `entry` is the last of a multi-receive buffer.
    pub(crate) fn releases(entry: &Entry) -> bool {
        entry.flags.contains(CompFlags::MULTI_RECV)
    }

    /// Posts `ops`, 64 in a call; while there is no room, sleeps repeatedly so that the receiver
    /// can run.
    pub(crate) fn post_all(&self, mut ops: &[Op<'_>]) -> Result<()> {
        let mut refused = None;
        while !ops.is_empty() {
            match self.ep.post(&ops[..ops.len().min(BATCH)]) {
                Ok(posted) => {
                    ops = &ops[posted.done..];
                    refused = None;
                }
                Err(error) if error.errno() != Some(kfi::Errno::EAGAIN) => return Err(error.into()),
                Err(error) => {
                    if refused.get_or_insert_with(Instant::now).elapsed() > SILENCE {
                        return Err(error.into());
                    }
                    std::thread::sleep(A_MOMENT);
                }
            }
        }
        Ok(())
    }

    /// Sleeps until `count` messages were received; posts the released buffers repeatedly.
    fn wait_for(&self, count: u64) -> Result<()> {
        self.received.wait(count, Deadline::FOREVER)?;
        if count.is_multiple_of(1024) {
            let mut entry = [Entry::default()];
            while self.cq.read(&mut entry)? != 0 {
                self.post_buffer()?;
            }
        }
        Ok(())
    }

    /// Takes `count` entries that are queued, and posts the buffers that they release.
    pub(crate) fn drain(&self, count: u32) -> Result<()> {
        let mut entries = [Entry::default(); 64];
        let mut left = count as usize;
        while left != 0 {
            let room = left.min(entries.len());
            let taken = self.take(&mut entries[..room], 1)?;
            left -= taken;
        }
        Ok(())
    }

    /// Sleeps until `wanted` entries are queued or `entries` is full, takes them, and posts the
    /// buffers that they release.
    fn take(&self, entries: &mut [Entry], wanted: u32) -> Result<usize> {
        let taken = self.cq.sread_cond(entries, wanted, Deadline::FOREVER)?;
        for entry in &entries[..taken] {
            if Self::releases(entry) {
                self.post_buffer()?;
            }
        }
        Ok(taken)
    }
}

/// A connected pair of sockets.
pub(crate) fn seqpacket() -> Result<(OwnedFd, OwnedFd)> {
    Ok(rustix::net::socketpair(
        AddressFamily::UNIX,
        SocketType::SEQPACKET,
        SocketFlags::empty(),
        None,
    )?)
}

/// Rounds of a ping-pong.
const ROUNDS: u64 = 600;

/// Nanoseconds one way; the second process answers each round.
fn rounds(second: &mut Second, mut round: impl FnMut() -> Result<()>) -> Result<f64> {
    second.channel.put(ROUNDS)?;
    let began = Instant::now();
    for _ in 0..ROUNDS {
        round()?;
    }
    Ok(began.elapsed().as_nanos() as f64 / ROUNDS as f64 / 2.0)
}

/// A second process that makes its host, sends its address, receives ours, and runs `serve`.
fn second_host(
    reports: Reports,
    serve: impl FnOnce(&Host, FiAddr, &mut process::Channel) -> Result<()>,
) -> Result<Second> {
    Second::new(|mut channel| {
        let host = Host::new(&counters::device()?, reports)?;
        channel.put_addr(host.ep.name()?)?;
        let peer = host.meet(channel.get_addr()?)?;
        serve(&host, peer, &mut channel)
    })
}

/// Adds the addresses of this process's host and of the second one to each other's AV.
fn meet(second: &mut Second, reports: Reports) -> Result<(Host, FiAddr)> {
    let host = Host::new(&counters::device()?, reports)?;
    let peer = host.meet(second.channel.get_addr()?)?;
    second.channel.put_addr(host.ep.name()?)?;
    Ok((host, peer))
}

/// The peer of both kinds of ping-pong.
fn socket_server(socket: OwnedFd) -> Result<Second> {
    Second::new(move |mut channel| {
        while let Ok(count) = channel.get() {
            for _ in 0..count {
                recv(&socket, &mut [0u8; SIZE][..], RecvFlags::empty())?;
                send(&socket, &[7; SIZE], SendFlags::empty())?;
            }
        }
        Ok(())
    })
}

fn socket_rounds(second: &mut Second, socket: &OwnedFd) -> Result<f64> {
    rounds(second, || {
        send(socket, &[7; SIZE], SendFlags::empty())?;
        recv(socket, &mut [0u8; SIZE][..], RecvFlags::empty())?;
        Ok(())
    })
}

/// A ping-pong, beside one of sockets.
fn beside_sockets(measurement: &mut Measurement, ours: Side<'_>) -> Result<()> {
    let (near, far) = seqpacket()?;
    let mut theirs = socket_server(far)?;
    measurement.take(ours, &mut || socket_rounds(&mut theirs, &near))
}

/// Multi-receive buffers: one POST of an inject and one read of the CQ each way.
fn latency(measurement: &mut Measurement) -> Result<()> {
    let _policy = process::bind_pair(measurement.clock())?;
    let bytes = [7; SIZE];
    let mut ours = second_host(Reports::Entry, |host, peer, channel| {
        let answer = Op::inject(peer, &bytes);
        host.post_buffers()?;
        let mut entry = [Entry::default()];
        while let Ok(count) = channel.get() {
            for _ in 0..count {
                host.take(&mut entry, 1)?;
                host.ep.post_one(&answer)?;
            }
        }
        Ok(())
    })?;
    let (host, peer) = meet(&mut ours, Reports::Entry)?;
    host.post_buffers()?;
    let message = Op::inject(peer, &bytes);
    beside_sockets(measurement, &mut || {
        let mut entry = [Entry::default()];
        rounds(&mut ours, || {
            host.ep.post_one(&message)?;
            host.take(&mut entry, 1).map(drop)
        })
    })
}

/// A receive for each message, posted in one call with the answer.
fn latency_recv(measurement: &mut Measurement) -> Result<()> {
    let _policy = process::bind_pair(measurement.clock())?;
    let bytes = [7; SIZE];
    let mut ours = second_host(Reports::Entry, |host, peer, channel| {
        let receive = Op::recv(host.mr.slice(..SIZE));
        let answer = Op::inject(peer, &bytes);
        host.ep.post_one(&receive)?;
        let mut entry = [Entry::default()];
        while let Ok(count) = channel.get() {
            for _ in 0..count {
                host.take(&mut entry, 1)?;
                host.ep.post(&[receive, answer])?.into_result()?;
            }
        }
        Ok(())
    })?;
    let (host, peer) = meet(&mut ours, Reports::Entry)?;
    let receive = Op::recv(host.mr.slice(..SIZE));
    let message = Op::inject(peer, &bytes);
    beside_sockets(measurement, &mut || {
        let mut entry = [Entry::default()];
        rounds(&mut ours, || {
            host.ep.post(&[receive, message])?.into_result()?;
            host.take(&mut entry, 1).map(drop)
        })
    })
}

/// As `latency`, but a waiting process sleeps until a counter of received messages changes; only
/// the release of a buffer makes an entry in the CQ.
fn latency_cntr(measurement: &mut Measurement) -> Result<()> {
    let _policy = process::bind_pair(measurement.clock())?;
    let bytes = [7; SIZE];
    let mut ours = second_host(Reports::Counter, |host, peer, channel| {
        let answer = Op::inject(peer, &bytes);
        host.post_buffers()?;
        let mut seen = 0;
        while let Ok(count) = channel.get() {
            for _ in 0..count {
                seen += 1;
                host.wait_for(seen)?;
                host.ep.post_one(&answer)?;
            }
        }
        Ok(())
    })?;
    let (host, peer) = meet(&mut ours, Reports::Counter)?;
    host.post_buffers()?;
    let message = Op::inject(peer, &bytes);
    let mut seen = 0;
    beside_sockets(measurement, &mut || {
        rounds(&mut ours, || {
            host.ep.post_one(&message)?;
            seen += 1;
            host.wait_for(seen)
        })
    })
}

/// Messages of a run, and messages between two confirmations of the receiver.
const MESSAGES: u64 = 16 * 1024;
const WINDOW: u64 = 1024;

/// Messages per call.
const BATCH: usize = 64;

/// The arguments of sendmmsg and recvmmsg for `BATCH` messages.
pub(crate) struct Batch {
    bytes: Box<[[u8; SIZE]; BATCH]>,
    iovs: Box<[libc::iovec; BATCH]>,
    headers: Box<[libc::mmsghdr; BATCH]>,
}

impl Batch {
    /// Messages of some bytes.
    pub(crate) fn new() -> Self {
        let mut bytes = Box::new([[7; SIZE]; BATCH]);
        let mut iovs = Box::new(std::array::from_fn(|i| libc::iovec {
            iov_base: bytes[i].as_mut_ptr().cast(),
            iov_len: SIZE,
        }));
        let headers = Box::new(std::array::from_fn(|i| {
            // SAFETY: All zero is a header with nothing in it.
            let mut header: libc::mmsghdr = unsafe { std::mem::zeroed() };
            header.msg_hdr.msg_iov = &raw mut iovs[i];
            header.msg_hdr.msg_iovlen = 1;
            header
        }));
        Self {
            bytes,
            iovs,
            headers,
        }
    }

    /// Sends all of them.
    pub(crate) fn send(&mut self, socket: &OwnedFd) -> Result<()> {
        let mut done = 0;
        while done < BATCH {
            let rest = &mut self.headers[done..];
            // SAFETY: The headers name `iovs`, and those `bytes`, which live in this value.
            let sent = unsafe {
                libc::sendmmsg(
                    socket.as_raw_fd(),
                    rest.as_mut_ptr(),
                    rest.len() as libc::c_uint,
                    0,
                )
            };
            done += usize::try_from(sent).map_err(|_| std::io::Error::last_os_error())?;
        }
        Ok(())
    }

    /// Receives at least one message, and all others that are queued.
    fn receive(&mut self, socket: &OwnedFd) -> Result<usize> {
        // SAFETY: As in `send`; nobody looks at `bytes` meanwhile.
        let received = unsafe {
            libc::recvmmsg(
                socket.as_raw_fd(),
                self.headers.as_mut_ptr(),
                BATCH as libc::c_uint,
                libc::MSG_WAITFORONE as _,
                std::ptr::null_mut(),
            )
        };
        debug_assert!(self.iovs.len() == BATCH && self.bytes.len() == BATCH);
        Ok(usize::try_from(received).map_err(|_| std::io::Error::last_os_error())?)
    }
}

/// Messages per second.
fn per_second(began: Instant) -> f64 {
    MESSAGES as f64 / began.elapsed().as_secs_f64()
}

/// The receiver's way of reading completions.
enum Reader<'a> {
    /// From the mapped ring.
    Ring(kfi::CqRing, &'a Host),
    /// By calls that return up to `BATCH` entries.
    Call(&'a Host),
}

impl Reader<'_> {
    /// Takes some of `wanted` entries, which are all that will come; sleeps until there are some.
    fn take(&mut self, entries: &mut [Entry], wanted: u64) -> Result<usize> {
        let wanted = u32::try_from(wanted)?;
        let (ring, host) = match self {
            Self::Call(host) => return host.take(entries, wanted),
            Self::Ring(ring, host) => (ring, host),
        };
        if ring.is_empty() {
            ring.cq().wait_cond(wanted, Deadline::FOREVER)?;
        }
        let taken = ring.read(entries)?;
        for entry in &entries[..taken] {
            if Host::releases(entry) {
                host.post_buffer()?;
            }
        }
        Ok(taken)
    }
}

fn rate(measurement: &mut Measurement) -> Result<()> {
    rate_with(measurement, |host| Ok(Reader::Ring(host.cq.ring()?, host)))
}

fn rate_by_call(measurement: &mut Measurement) -> Result<()> {
    rate_with(measurement, |host| Ok(Reader::Call(host)))
}

fn rate_with(measurement: &mut Measurement, reader: fn(&Host) -> Result<Reader<'_>>) -> Result<()> {
    let _policy = process::bind_pair(measurement.clock())?;
    let bytes = [7; SIZE];
    let mut ours = second_host(Reports::Entry, |host, peer, channel| {
        let credit = Op::inject(peer, &bytes);
        host.post_buffers()?;
        let mut reader = reader(host)?;
        let mut entries = [Entry::default(); BATCH];
        while let Ok(count) = channel.get() {
            let mut acknowledged = 0;
            let mut seen = 0;
            while seen < count {
                seen += reader.take(&mut entries, WINDOW - (seen - acknowledged))? as u64;
                while seen - acknowledged >= WINDOW {
                    acknowledged += WINDOW;
                    host.ep.post_one(&credit)?;
                }
            }
        }
        Ok(())
    })?;
    let (host, peer) = meet(&mut ours, Reports::Entry)?;
    host.post_buffers()?;
    let batch = [Op::inject(peer, &bytes); BATCH];
    let (near, far) = seqpacket()?;
    let mut theirs = Second::new(move |mut channel| {
        let mut batch = Batch::new();
        while let Ok(count) = channel.get() {
            let mut seen = 0;
            while seen < count {
                seen += batch.receive(&far)? as u64;
            }
            send(&far, &[7; SIZE], SendFlags::empty())?;
        }
        Ok(())
    })?;
    let mut socket_batch = Batch::new();
    measurement.take(
        &mut || {
            let mut entry = [Entry::default()];
            ours.channel.put(MESSAGES)?;
            let began = Instant::now();
            let mut open = 0;
            for _ in 0..MESSAGES / BATCH as u64 {
                host.post_all(&batch)?;
                open += BATCH as u64;
                // Two windows may be under way.
                if open == 2 * WINDOW {
                    host.take(&mut entry, 1)?;
                    open -= WINDOW;
                }
            }
            while open != 0 {
                host.take(&mut entry, 1)?;
                open -= WINDOW;
            }
            Ok(per_second(began))
        },
        &mut || {
            theirs.channel.put(MESSAGES)?;
            let began = Instant::now();
            for _ in 0..MESSAGES / BATCH as u64 {
                socket_batch.send(&near)?;
            }
            recv(&near, &mut [0u8; SIZE][..], RecvFlags::empty())?;
            Ok(per_second(began))
        },
    )
}

/// The rows.
pub(crate) fn cases() -> Vec<Case> {
    vec![
        Case::lower(
            "rdm/local_lat_8B",
            "ns",
            "AF_UNIX seqpacket",
            Some(1.0),
            latency_cntr,
        ),
        Case::lower(
            "rdm/local_lat_8B (CQ)",
            "ns",
            "AF_UNIX seqpacket",
            None,
            latency,
        ),
        Case::lower(
            "rdm/local_lat_8B (CQ, recv)",
            "ns",
            "AF_UNIX seqpacket",
            None,
            latency_recv,
        ),
        Case::higher(
            "rdm/local_rate_8B",
            "1/s",
            "AF_UNIX sendmmsg",
            Some(2.0),
            rate,
        ),
        Case::higher(
            "rdm/local_rate_8B (CQ by call)",
            "1/s",
            "AF_UNIX sendmmsg",
            None,
            rate_by_call,
        ),
    ]
}
