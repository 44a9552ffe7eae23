// SPDX-License-Identifier: GPL-2.0
//! Failures injected while operations are posted, and while rings and counters are mapped.

use super::{Made, World, sweep};
use crate::host::Host;
use kfi::{
    Errno, FiAddr,
    abi::{self, Call},
};
use std::os::fd::AsFd;

/// Posts one operation on `host`; its buffer is the world's, which outlives it.
fn post(w: &World, host: &Host, op: abi::kfabric_op) -> Result<Made, Errno> {
    w.call(abi::kfabric_post {
        ep: host.ep.handle(),
        ops: (&raw const op).expose_provenance() as u64,
        count: 1,
        op_size: size_of::<abi::kfabric_op>() as u32,
        ..Call::sized()
    })?;
    Ok(Made::Nothing)
}

fn op(w: &World, opcode: u32, len: u64) -> abi::kfabric_op {
    abi::kfabric_op {
        opcode,
        buf: w.buffer.addr(),
        len,
        peer: w.to_b.0,
        ..Default::default()
    }
}

/// A receive from any sender.
fn receive(w: &World, opcode: u32, len: u64) -> abi::kfabric_op {
    abi::kfabric_op {
        peer: FiAddr::UNSPEC.0,
        ..op(w, opcode, len)
    }
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
            post(w, &w.a, op(w, abi::KFABRIC_OP_SEND, 8))?;
            let mut entry = abi::kfabric_cq_entry::default();
            let mut src = 0u64;
            let arg = abi::kfabric_cq_read {
                cq: w.a.cq.handle(),
                buf: (&raw mut entry).expose_provenance() as u64,
                src_addrs: (&raw mut src).expose_provenance() as u64,
                count: 1,
                ..Call::sized()
            };
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
            op.buf = (&raw const local).expose_provenance() as u64;
            op.iov_count = 2;
            op.rma_addr = (&raw const remote).expose_provenance() as u64;
            op.rma_iov_count = 2;
            post(w, &w.a, op).inspect(|_| drain(&w.a))
        }),
    ]);
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
        let arg = w.call(abi::kfabric_cq_open {
            domain: w.domain.handle(),
            ..Call::sized()
        })?;
        let prot = ProtFlags::READ | ProtFlags::WRITE;
        (arg.handle, arg.ring_offset, arg.ring_size as usize, prot)
    } else {
        let arg = w.call(abi::kfabric_cntr_open {
            domain: w.domain.handle(),
            ..Call::sized()
        })?;
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
