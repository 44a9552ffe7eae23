// SPDX-License-Identifier: GPL-2.0
//! Failures injected while operations are posted, and while rings and counters are mapped.

use super::{Made, World, sweep, sweep_of};
use crate::{
    connected::open_region,
    host::{Host, Options, buffer, errno},
    raw::{addr_of, addr_of_mut, arg, data, with},
    ways::Way,
};
use kfi::{AtomicOp, Buffer, Caps, Datatype, Errno, FiAddr, Mr, Op, Remote, RmaIov, abi};
use std::os::fd::AsFd;

/// Posts one operation on `host`; its buffer is the world's, which outlives it.
fn post(w: &World, host: &Host, op: abi::kfabric_op) -> Result<Made, Errno> {
    w.call(arg!(kfabric_post:
        ep: host.ep.handle(), ops: addr_of(&op), count: 1,
        op_size: size_of::<abi::kfabric_op>() as u32
    ))?;
    Ok(Made::Nothing)
}

fn op(w: &World, opcode: u32, len: u64) -> abi::kfabric_op {
    data!(kfabric_op: opcode, buf: w.buffer.addr(), len, peer: w.to_b.0)
}

/// A receive from any sender.
fn receive(w: &World, opcode: u32, len: u64) -> abi::kfabric_op {
    with!(op(w, opcode, len); peer: FiAddr::UNSPEC.0)
}

/// Takes all completions, so that there is room for the next operations.
fn drain(host: &Host) {
    loop {
        let mut entries = [kfi::Entry::default(); 16];
        match host.cq.read(&mut entries) {
            Ok(0) => return,
            Ok(_) => {}
            Err(_) => {
                let _ = host.cq.readerr();
            }
        }
    }
}

pub(super) fn posting() {
    sweep(&[
        ("RECV", |w| {
            post(w, &w.b, receive(w, abi::KFABRIC_OP_RECV, 4096))
        }),
        ("SEND, inline, to nobody waiting", |w| {
            post(w, &w.a, op(w, abi::KFABRIC_OP_SEND, 8)).inspect(|_| drain(&w.a))
        }),
        ("SEND, buffered", |w| {
            post(w, &w.a, op(w, abi::KFABRIC_OP_SEND, 8000)).inspect(|_| drain(&w.a))
        }),
        ("SEND, waiting", |w| {
            post(w, &w.a, op(w, abi::KFABRIC_OP_SEND, 100_000))
        }),
        ("TSEND and TRECV", |w| {
            post(w, &w.a, op(w, abi::KFABRIC_OP_TSEND, 100_000))?;
            loop {
                match post(w, &w.b, receive(w, abi::KFABRIC_OP_TRECV, 100_000)) {
                    Err(Errno::ENOMEM | Errno::EFAULT) => {}
                    other => {
                        drain(&w.a);
                        drain(&w.b);
                        return other;
                    }
                }
            }
        }),
        ("RECV, multi", |w| {
            let mut op = receive(w, abi::KFABRIC_OP_RECV, 65536);
            op.flags = abi::KFI_MULTI_RECV;
            post(w, &w.b, op)
        }),
        ("CQ_READ loses no entry", |w| {
            // Without a receive, a message for which there is no memory waits at its sender.
            loop {
                match post(w, &w.b, receive(w, abi::KFABRIC_OP_RECV, 8)) {
                    Err(Errno::ENOMEM | Errno::EFAULT) => {}
                    Err(errno) => return Err(errno),
                    Ok(_) => break,
                }
            }
            post(w, &w.a, op(w, abi::KFABRIC_OP_SEND, 8))?;
            drain(&w.b);
            let mut entry = abi::kfabric_cq_entry::default();
            let mut src = 0u64;
            let arg = arg!(kfabric_cq_read:
                cq: w.a.cq.handle(), buf: addr_of_mut(&mut entry),
                src_addrs: addr_of_mut(&mut src), count: 1
            );
            w.call(arg).or_else(|_| w.call(arg)).map(|_| Made::Nothing)
        }),
        ("WRITE", |w| {
            let mut op = op(w, abi::KFABRIC_OP_WRITE, 65536);
            op.rma_key = w.mr.key();
            post(w, &w.a, op).inspect(|_| drain(&w.a))
        }),
        ("READ into a list of pieces", |w| {
            let local = [
                abi::kfabric_iov {
                    addr: w.buffer.addr(),
                    len: 10_000,
                },
                abi::kfabric_iov {
                    addr: w.buffer.addr() + 20_000,
                    len: 10_000,
                },
            ];
            let remote = [
                abi::kfabric_rma_iov {
                    addr: 50_000,
                    len: 15_000,
                    key: w.mr.key(),
                },
                abi::kfabric_rma_iov {
                    addr: 0,
                    len: 5_000,
                    key: w.mr.key(),
                },
            ];
            let mut op = op(w, abi::KFABRIC_OP_READ, 0);
            op.buf = addr_of(&local);
            op.iov_count = 2;
            op.rma_addr = addr_of(&remote);
            op.rma_iov_count = 2;
            post(w, &w.a, op).inspect(|_| drain(&w.a))
        }),
        ("ATOMIC", |w| {
            atomics(w, abi::KFABRIC_OP_ATOMIC, abi::KFI_SUM)
        }),
        ("FETCH_ATOMIC", |w| {
            atomics(w, abi::KFABRIC_OP_FETCH_ATOMIC, abi::KFI_PROD)
        }),
        ("COMPARE_ATOMIC", |w| {
            atomics(w, abi::KFABRIC_OP_COMPARE_ATOMIC, abi::KFI_CSWAP_NE)
        }),
        ("QUEUE_WORK and FLUSH_WORK", |w| {
            let op = op(w, abi::KFABRIC_OP_SEND, 8);
            let transfer = data!(kfabric_work:
                threshold: u64::MAX, triggering_cntr: w.cntr.handle(),
                completion_cntr: w.cntr.handle(), op_type: op.opcode, object: w.a.ep.handle(),
                op: addr_of(&op)
            );
            queue(w, transfer)
        }),
        ("QUEUE_WORK of an addition, and CANCEL_WORK", |w| {
            let addition = data!(kfabric_work:
                threshold: u64::MAX, triggering_cntr: w.cntr.handle(),
                op_type: abi::KFABRIC_OP_CNTR_ADD, object: w.cntr.handle(), value: 1
            );
            queue(w, addition)
        }),
        ("STX_OPEN", |w| {
            w.makes(arg!(kfabric_stx_open: domain: w.domain.handle()))
        }),
        ("SRX_OPEN", |w| {
            w.makes(arg!(kfabric_srx_open: domain: w.domain.handle()))
        }),
        ("EP_ALIAS", |w| {
            w.makes(arg!(kfabric_ep_alias: ep: w.a.ep.handle()))
        }),
    ]);
}

/// Queues a request, and cancels it: a transfer with all others, another one by its identity.
fn queue(w: &World, mut work: abi::kfabric_work) -> Result<Made, Errno> {
    let queued = w.call(arg!(kfabric_queue_work:
        domain: w.domain.handle(), works: addr_of_mut(&mut work), count: 1,
        work_size: size_of::<abi::kfabric_work>() as u32,
        op_size: size_of::<abi::kfabric_op>() as u32
    ))?;
    match queued.error {
        0 => assert_eq!(queued.done, 1),
        errno => return Err(Errno::from_raw(errno as i32)),
    }
    // A call that fails for want of memory has cancelled nothing.
    let mut tries = 0;
    loop {
        tries += 1;
        let cancelled = if work.op == 0 {
            let arg = arg!(kfabric_cancel_work:
                triggering_cntr: work.triggering_cntr, threshold: work.threshold, id: work.id
            );
            w.call(arg).map(|_| 1)
        } else {
            let arg = arg!(kfabric_flush_work: domain: w.domain.handle());
            w.call(arg).map(|arg| arg.flushed)
        };
        match cancelled {
            Err(Errno::ENOMEM | Errno::EFAULT) if tries == 1 => {}
            other => {
                assert_eq!(other, Ok(1));
                return Ok(Made::Nothing);
            }
        }
    }
}

/// An atomic on 64 words of the world's memory.
fn atomic(w: &World, opcode: u32, function: u32) -> abi::kfabric_op {
    with!(op(w, opcode, 512);
        rma_addr: 4096, rma_key: w.mr.key(), datatype: abi::KFI_UINT64 as u16, op: function as u16,
        compare: w.buffer.addr() + 8192, result: w.buffer.addr() + 16384
    )
}

/// An atomic that succeeds, and one whose values are in lists of pieces.
fn atomics(w: &World, opcode: u32, function: u32) -> Result<Made, Errno> {
    let mut op = atomic(w, opcode, function);
    if opcode == abi::KFABRIC_OP_ATOMIC {
        op.result = 0;
    }
    if opcode != abi::KFABRIC_OP_COMPARE_ATOMIC {
        op.compare = 0;
    }
    post(w, &w.a, op)?;
    drain(&w.a);
    let halves = |at: u64| {
        [at, at + 256].map(|at| abi::kfabric_iov {
            addr: w.buffer.addr() + at,
            len: 256,
        })
    };
    let (operands, compares, results) = (halves(0), halves(8192), halves(16384));
    let remote = [4096, 4608].map(|addr| abi::kfabric_rma_iov {
        addr,
        len: 256,
        key: w.mr.key(),
    });
    let at = |list: &[abi::kfabric_iov; 2]| (&raw const *list).expose_provenance() as u64;
    (op.buf, op.iov_count) = (at(&operands), 2);
    op.rma_addr = addr_of(&remote);
    op.rma_iov_count = 2;
    if op.compare != 0 {
        (op.compare, op.compare_iov_count) = (at(&compares), 2);
    }
    if op.result != 0 {
        (op.result, op.result_iov_count) = (at(&results), 2);
    }
    loop {
        match post(w, &w.a, op) {
            // The first one is not posted again.
            Err(Errno::ENOMEM | Errno::EFAULT) => {}
            other => return other.inspect(|_| drain(&w.a)),
        }
    }
}

/// Two hosts, and memory of the second one.
struct Far {
    a: Host,
    to_b: FiAddr,
    _b: Host,
    mr: Mr,
    _memory: Buffer,
}

impl Far {
    fn new() -> Self {
        let options = Options {
            caps: Caps::MSG | Caps::RMA | Caps::ATOMIC,
            ..Options::default()
        };
        let (a, to_b, b) = Way::TwoHosts.pair_with(&options);
        let memory = buffer(4096);
        let mr = open_region(&b, &memory, 7);
        let far = Self {
            a,
            to_b,
            _b: b,
            mr,
            _memory: memory,
        };
        // The first one makes the connection.
        let one = buffer(8);
        far.post(|at| Op::atomic(far.to_b, &one, at, Datatype::Uint64, AtomicOp::Sum))
            .expect("an atomic without faults");
        far
    }

    /// Posts an operation. If that succeeds, so does the operation.
    fn post<'a>(&self, op: impl FnOnce(Remote) -> Op<'a>) -> Result<Made, Errno> {
        match errno(self.a.ep.post_one(&op(self.mr.remote(0)))) {
            Some(errno) => Err(errno),
            None => {
                self.a.completion();
                Ok(Made::Nothing)
            }
        }
    }
}

pub(super) fn posting_between_hosts() {
    let undo = |_: &Far, _| ();
    sweep_of(
        Far::new,
        undo,
        &[
            ("ATOMIC in a SEND", |far| {
                let one = buffer(8);
                let (uint64, sum) = (Datatype::Uint64, AtomicOp::Sum);
                far.post(|at| Op::atomic(far.to_b, &one, at, uint64, sum))
            }),
            ("FETCH_ATOMIC of RC", |far| {
                let (one, before) = (buffer(8), buffer(8));
                let (uint64, sum) = (Datatype::Uint64, AtomicOp::Sum);
                far.post(|at| Op::fetch_atomic(far.to_b, &one, &before, at, uint64, sum))
            }),
            ("COMPARE_ATOMIC in a SEND, of two pieces", |far| {
                let [one, compare, before] = [(); 3].map(|()| buffer(4096));
                let pieces = [0, 2048].map(|at| RmaIov::new(far.mr.remote(at), 2048));
                let (uint8, swap) = (Datatype::Uint8, AtomicOp::CswapNe);
                far.post(|at| {
                    Op::compare_atomic(far.to_b, &one, &compare, &before, at, uint8, swap)
                        .remote_iov(&pieces)
                })
            }),
        ],
    );
}

pub(super) fn mapping() {
    sweep(&[
        ("mmap of a counter", |w| map(w, false)),
        ("mmap of a CQ", |w| map(w, true)),
    ]);
}

/// Opens an object, maps it, accesses the mapping, and removes both.
fn map(w: &World, cq: bool) -> Result<Made, Errno> {
    use rustix::mm::{MapFlags, ProtFlags, mmap, munmap};
    let (handle, offset, len, prot) = if cq {
        let arg = w.call(arg!(kfabric_cq_open: domain: w.domain.handle()))?;
        let prot = ProtFlags::READ | ProtFlags::WRITE;
        (arg.handle, arg.ring_offset, arg.ring_size as usize, prot)
    } else {
        let arg = w.call(arg!(kfabric_cntr_open: domain: w.domain.handle()))?;
        (arg.handle, arg.page_offset, 4096, ProtFlags::READ)
    };
    // SAFETY: a new mapping at an address of the kernel's choice.
    let mapped = unsafe {
        mmap(
            std::ptr::null_mut(),
            len,
            prot,
            MapFlags::SHARED,
            w.device.as_fd(),
            offset,
        )
    };
    let result = match mapped {
        Ok(at) => {
            // SAFETY: just mapped, readable, and `len` bytes long.
            unsafe {
                let _ = at.cast::<u64>().read_volatile();
                munmap(at, len).expect("munmap");
            }
            Ok(Made::Nothing)
        }
        Err(e) => {
            assert_eq!(e, rustix::io::Errno::NOMEM, "mmap");
            Err(Errno::ENOMEM)
        }
    };
    w.undo(Made::Object(handle));
    result
}
