// SPDX-License-Identifier: GPL-2.0
//! A failure injected at every allocation of every call, and wherever it copies from or to the
//! program.
//!
//! For each call the first such place is made to fail, then the second, and so on until the call
//! gets through without meeting one. A call that failed must say `ENOMEM` or `EFAULT` and have
//! changed nothing: the same call made again without faults must succeed. What was left behind would be
//! found by kmemleak when the guest ends, and what was broken by KASAN and lockdep.
//!
//! Needs a kernel with `CONFIG_FAULT_INJECTION`, `CONFIG_FAILSLAB`, `CONFIG_FAIL_PAGE_ALLOC` and
//! `CONFIG_FAULT_INJECTION_USERCOPY` (the sanitizing one), and root.
//!
//! Reference: Documentation/fault-injection/fault-injection.rst, "systematic faults".

#![allow(unsafe_code, reason = "the raw calls, with addresses in structures")]

use crate::{
    harness::tests,
    host::{Host, LINK, Options, device, pattern},
};
use kfi::{
    Access, Buffer, Cntr, Device, Domain, Eq, Errno, Fabric, FiAddr, Mr, PollSet, Wait, WaitSet,
    abi::{self, Call},
};
use std::{
    ffi::c_char,
    fs::File,
    net::SocketAddr,
    os::fd::{AsFd, FromRawFd, OwnedFd},
    os::unix::fs::FileExt,
};

mod connecting;

use connecting::connecting;

tests![
    making_objects => 600,
    looking_and_changing => 600,
    posting => 600,
    connecting => 600,
    mapping => 300,
];

/// No call here has as many places that can fail.
const MOST: u32 = 200;

/// What a call made and must be undone.
enum Made {
    Nothing,
    Object(u32),
    Fd(i32),
    Link([c_char; 16]),
}

type Case = (&'static str, fn(&World) -> Result<Made, Errno>);

/// Objects to call with.
struct World {
    device: Device,
    fabric: Fabric,
    domain: Domain,
    eq: Eq,
    cntr: Cntr,
    wait_set: WaitSet,
    poll: PollSet,
    mr: Mr,
    buffer: Buffer,
    a: Host,
    to_b: FiAddr,
    b: Host,
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
            ..Options::default()
        };
        let (a, b) = (Host::on(&domain, &options), Host::on(&domain, &options));
        let to_b = a.meet(&b);
        let eq = fabric.eq().wait(Wait::Queue).writable().open().expect("eq");
        let cntr = domain.cntr().wait(Wait::Queue).open().expect("cntr");
        let wait_set = fabric.wait_set().expect("wait set");
        let poll = domain.poll_set().expect("poll set");
        let buffer = Buffer::from_bytes(&pattern(256 * 1024, 1)).expect("buffer");
        let mr = domain
            .mr(&buffer)
            .access(Access::REMOTE_READ | Access::REMOTE_WRITE)
            .requested_key(7)
            .open()
            .expect("mr");
        Self {
            device,
            fabric,
            domain,
            eq,
            cntr,
            wait_set,
            poll,
            mr,
            buffer,
            a,
            to_b,
            b,
        }
    }

    fn call<C: Call>(&self, mut arg: C) -> Result<C, Errno> {
        // SAFETY: addresses in the structures below are of memory that outlives the call.
        unsafe { abi::call(&self.device, &mut arg) }?;
        Ok(arg)
    }

    fn undo(&self, made: Made) {
        match made {
            Made::Nothing => {}
            Made::Object(handle) => {
                let arg = abi::kfabric_close {
                    handle,
                    ..Call::sized()
                };
                // Some cases undo while the fault is still to come: then it is met here, once.
                self.call(arg)
                    .or_else(|_| self.call(arg))
                    .expect("close what was made");
            }
            // SAFETY: the call made it for us.
            Made::Fd(fd) => drop(unsafe { OwnedFd::from_raw_fd(fd) }),
            Made::Link(name) => {
                self.call(abi::kfabric_link_del {
                    name,
                    ..Call::sized()
                })
                .expect("remove the link");
            }
        }
    }
}

/// Lets the next allocations of this thread fail that may wait, too.
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

/// Runs `call` with its `nth` allocation failing; also gives whether that many were made.
fn with_fault<T>(fail_nth: &File, nth: u32, call: impl FnOnce() -> T) -> (T, bool) {
    let text = nth.to_string();
    let mut left = [0u8; 16];
    fail_nth.write_at(text.as_bytes(), 0).expect("arm");
    let result = call();
    // If it was not met, looking copies to the program, and may be what meets it.
    let met = fail_nth
        .read_at(&mut left, 0)
        .is_ok_and(|len| left[..len].trim_ascii() == b"0");
    while fail_nth.write_at(b"0", 0).is_err() {}
    (result, met)
}

fn sweep(cases: &[Case]) {
    let fail_nth = prepare();
    for (name, call) in cases {
        let world = World::new();
        let mut met_any = 0;
        for nth in 1..=MOST {
            let (result, met) = with_fault(&fail_nth, nth, || call(&world));
            match result {
                Ok(made) => {
                    world.undo(made);
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
                    world.undo(again);
                }
            }
            assert!(nth < MOST, "{name}: more than {MOST} faults");
            met_any += 1;
        }
        println!("{name}: {met_any} faults in turn");
    }
}

fn name(text: &str) -> [c_char; 16] {
    let mut field = [0; 16];
    for (to, from) in field.iter_mut().zip(text.bytes()) {
        *to = from as c_char;
    }
    field
}

fn sockaddr(addr: SocketAddr) -> abi::kfabric_sockaddr {
    let SocketAddr::V4(addr) = addr else {
        panic!("the loopback link's first address is IPv4");
    };
    abi::kfabric_sockaddr {
        family: 2,
        port: addr.port().to_be(),
        v4: u32::from_ne_bytes(addr.ip().octets()),
        ..Default::default()
    }
}

fn making_objects() {
    sweep(&[
        ("FABRIC_OPEN", |w| {
            let arg = w.call(abi::kfabric_fabric_open::sized())?;
            Ok(Made::Object(arg.handle))
        }),
        ("DOMAIN_OPEN", |w| {
            let arg = w.call(abi::kfabric_domain_open {
                fabric: w.fabric.handle(),
                link: name(LINK),
                ..Call::sized()
            })?;
            Ok(Made::Object(arg.handle))
        }),
        ("EQ_OPEN", |w| {
            let arg = w.call(abi::kfabric_eq_open {
                fabric: w.fabric.handle(),
                wait_obj: abi::KFI_WAIT_QUEUE,
                ..Call::sized()
            })?;
            Ok(Made::Object(arg.handle))
        }),
        ("AV_OPEN", |w| {
            let arg = w.call(abi::kfabric_av_open {
                domain: w.domain.handle(),
                ..Call::sized()
            })?;
            Ok(Made::Object(arg.handle))
        }),
        ("CQ_OPEN", |w| {
            let arg = w.call(abi::kfabric_cq_open {
                domain: w.domain.handle(),
                wait_obj: abi::KFI_WAIT_QUEUE,
                ..Call::sized()
            })?;
            Ok(Made::Object(arg.handle))
        }),
        ("CNTR_OPEN", |w| {
            let arg = w.call(abi::kfabric_cntr_open {
                domain: w.domain.handle(),
                wait_obj: abi::KFI_WAIT_SET,
                wait_set: w.wait_set.handle(),
                ..Call::sized()
            })?;
            Ok(Made::Object(arg.handle))
        }),
        ("WAIT_OPEN", |w| {
            let arg = w.call(abi::kfabric_wait_open {
                fabric: w.fabric.handle(),
                wait_obj: abi::KFI_WAIT_QUEUE,
                ..Call::sized()
            })?;
            Ok(Made::Object(arg.handle))
        }),
        ("POLL_OPEN", |w| {
            let arg = w.call(abi::kfabric_poll_open {
                domain: w.domain.handle(),
                ..Call::sized()
            })?;
            Ok(Made::Object(arg.handle))
        }),
        ("EP_OPEN", |w| {
            let arg = w.call(abi::kfabric_ep_open {
                domain: w.domain.handle(),
                type_: abi::KFI_EP_RDM,
                ..Call::sized()
            })?;
            Ok(Made::Object(arg.handle))
        }),
        ("MR_REG", |w| {
            let iov = abi::kfabric_iov {
                addr: w.buffer.addr(),
                len: w.buffer.len() as u64,
            };
            let arg = w.call(abi::kfabric_mr_reg {
                domain: w.domain.handle(),
                iov: (&raw const iov).expose_provenance() as u64,
                iov_count: 1,
                access: abi::KFI_SEND,
                requested_key: 1,
                ..Call::sized()
            })?;
            Ok(Made::Object(arg.handle))
        }),
        ("GETWAIT of a counter", |w| {
            let arg = w.call(abi::kfabric_getwait {
                handle: w.cntr.handle(),
                ..Call::sized()
            })?;
            Ok(Made::Fd(arg.fd))
        }),
        ("GETWAIT of a CQ", |w| {
            let arg = w.call(abi::kfabric_getwait {
                handle: w.a.cq.handle(),
                ..Call::sized()
            })?;
            Ok(Made::Fd(arg.fd))
        }),
        ("GETWAIT of an EQ", |w| {
            let arg = w.call(abi::kfabric_getwait {
                handle: w.eq.handle(),
                ..Call::sized()
            })?;
            Ok(Made::Fd(arg.fd))
        }),
        ("GETWAIT of a wait set", |w| {
            let arg = w.call(abi::kfabric_getwait {
                handle: w.wait_set.handle(),
                ..Call::sized()
            })?;
            Ok(Made::Fd(arg.fd))
        }),
        ("LINK_ADD", |w| {
            w.call(abi::kfabric_link_add {
                name: name("faulty"),
                netdev: name("fault0"),
                ..Call::sized()
            })
            .map(|arg| Made::Link(arg.name))
            .or_else(|e| match e {
                // There is no such interface: as far as it gets without one.
                Errno::ENODEV => Ok(Made::Nothing),
                e => Err(e),
            })
        }),
    ]);
}

/// The answer of a call that takes something, where there is nothing.
fn nothing_there(answer: Result<(), Errno>) -> Result<Made, Errno> {
    match answer {
        Err(Errno::EAGAIN) => Ok(Made::Nothing),
        Ok(()) => panic!("something was there"),
        Err(e) => Err(e),
    }
}

fn looking_and_changing() {
    sweep(&[
        ("QUERY", |w| {
            w.call(abi::kfabric_query::sized()).map(|_| Made::Nothing)
        }),
        ("LINK_GET", |w| {
            w.call(abi::kfabric_link_get::sized())
                .map(|_| Made::Nothing)
        }),
        ("GETINFO", |w| {
            w.call(abi::kfabric_getinfo::sized()).map(|_| Made::Nothing)
        }),
        ("STAT", |w| {
            let arg = abi::kfabric_stat {
                object_class: abi::KFI_CLASS_EP,
                ..Call::sized()
            };
            w.call(arg).map(|_| Made::Nothing)
        }),
        ("EQ_WRITE and EQ_READ", |w| {
            let mut data = [1u8; 24];
            let buf = (&raw mut data).expose_provenance() as u64;
            w.call(abi::kfabric_eq_write {
                eq: w.eq.handle(),
                buf,
                len: 24,
                event: 77,
                ..Call::sized()
            })?;
            loop {
                let read = w.call(abi::kfabric_eq_read {
                    eq: w.eq.handle(),
                    buf,
                    len: 24,
                    ..Call::sized()
                });
                match read {
                    // It lost nothing: once more.
                    Err(Errno::ENOMEM | Errno::EFAULT) => {}
                    read => return read.map(|_| Made::Nothing),
                }
            }
        }),
        ("CNTR_WAIT", |w| {
            let wait = w.call(abi::kfabric_cntr_wait {
                cntr: w.cntr.handle(),
                threshold: 5,
                deadline: 1,
                ..Call::sized()
            });
            match wait {
                Err(Errno::ETIMEDOUT) => Ok(Made::Nothing),
                Ok(_) => panic!("nobody added"),
                Err(e) => Err(e),
            }
        }),
        ("WAIT", |w| {
            let wait = w.call(abi::kfabric_wait {
                wait_set: w.wait_set.handle(),
                deadline: 1,
                ..Call::sized()
            });
            match wait {
                Err(Errno::ETIMEDOUT) => Ok(Made::Nothing),
                Ok(_) => panic!("nobody signalled"),
                Err(e) => Err(e),
            }
        }),
        ("POLL_CHANGE", |w| {
            let arg = abi::kfabric_poll_change {
                poll: w.poll.handle(),
                handle: w.cntr.handle(),
                ..Call::sized()
            };
            w.call(arg)?;
            let arg = abi::kfabric_poll_change { remove: 1, ..arg };
            // The fault may be met here, too, but only once.
            w.call(arg).or_else(|_| w.call(arg)).map(|_| Made::Nothing)
        }),
        ("NOP", |w| {
            w.call(abi::kfabric_nop::sized()).map(|_| Made::Nothing)
        }),
        ("OPSFLAG", |w| {
            let arg = abi::kfabric_opsflag {
                handle: w.a.ep.handle(),
                flags: abi::KFI_RECV,
                ..Call::sized()
            };
            w.call(arg).map(|_| Made::Nothing)
        }),
        ("CNTR_READ", |w| {
            let arg = abi::kfabric_cntr_read {
                cntr: w.cntr.handle(),
                ..Call::sized()
            };
            w.call(arg).map(|_| Made::Nothing)
        }),
        ("CNTR_MODIFY", |w| {
            let arg = abi::kfabric_cntr_modify {
                cntr: w.cntr.handle(),
                what: abi::KFABRIC_CNTR_SET,
                value: 1,
                ..Call::sized()
            };
            w.call(arg).map(|_| Made::Nothing)
        }),
        ("EQ_READERR", |w| {
            let arg = abi::kfabric_eq_readerr {
                eq: w.eq.handle(),
                ..Call::sized()
            };
            nothing_there(w.call(arg).map(|_| ()))
        }),
        ("CQ_SIGNAL", |w| {
            let arg = abi::kfabric_cq_signal {
                cq: w.a.cq.handle(),
                ..Call::sized()
            };
            w.call(arg).map(|_| Made::Nothing)
        }),
        ("CQ_STRERROR", |w| {
            let arg = abi::kfabric_cq_strerror {
                cq: w.a.cq.handle(),
                prov_errno: 1,
                ..Call::sized()
            };
            w.call(arg).map(|_| Made::Nothing)
        }),
        ("CQ_READERR", |w| {
            let arg = abi::kfabric_cq_readerr {
                cq: w.a.cq.handle(),
                ..Call::sized()
            };
            nothing_there(w.call(arg).map(|_| ()))
        }),
        ("POLL", |w| {
            let mut context = 0u64;
            let arg = abi::kfabric_poll {
                poll: w.poll.handle(),
                contexts: (&raw mut context).expose_provenance() as u64,
                count: 1,
                ..Call::sized()
            };
            w.call(arg).map(|_| Made::Nothing)
        }),
        ("AV_INSERTSVC, AV_LOOKUP and AV_STRADDR", |w| {
            let mut insert = abi::kfabric_av_insertsvc {
                av: w.a.av.handle(),
                ..Call::sized()
            };
            insert.node[..9].copy_from_slice(&b"127.0.0.1".map(|b| b as c_char));
            insert.service[..1].copy_from_slice(&b"9".map(|b| b as c_char));
            let fi_addr = w.call(insert)?.fi_addr;
            let addr = w
                .call(abi::kfabric_av_lookup {
                    av: w.a.av.handle(),
                    fi_addr,
                    ..Call::sized()
                })?
                .addr;
            w.call(abi::kfabric_av_straddr {
                av: w.a.av.handle(),
                addr,
                ..Call::sized()
            })
            .map(|_| Made::Nothing)
        }),
        ("EP_NAME, EP_OPT and EP_CANCEL", |w| {
            w.call(abi::kfabric_ep_name {
                ep: w.a.ep.handle(),
                ..Call::sized()
            })?;
            w.call(abi::kfabric_ep_opt {
                ep: w.a.ep.handle(),
                ..Call::sized()
            })?;
            let cancel = w.call(abi::kfabric_ep_cancel {
                ep: w.a.ep.handle(),
                context: 12345,
                ..Call::sized()
            });
            match cancel {
                Err(Errno::ENOENT) => Ok(Made::Nothing),
                Ok(_) => panic!("cancelled what was not posted"),
                Err(e) => Err(e),
            }
        }),
        ("AV_INSERT and AV_REMOVE", |w| {
            let open = w.call(abi::kfabric_av_open {
                domain: w.domain.handle(),
                count: 1,
                ..Call::sized()
            })?;
            let addrs = [sockaddr("127.0.0.1:9".parse().expect("address")); 8];
            let mut fi_addrs = [0u64; 8];
            let list = (&raw mut fi_addrs).expose_provenance() as u64;
            let insert = w.call(abi::kfabric_av_insert {
                av: open.handle,
                addrs: (&raw const addrs).expose_provenance() as u64,
                fi_addrs: list,
                count: 8,
                ..Call::sized()
            });
            // Some may have been inserted before the memory ran out.
            let result = match insert {
                Ok(arg) if arg.inserted == 8 => w
                    .call(abi::kfabric_av_remove {
                        av: open.handle,
                        fi_addrs: list,
                        count: 8,
                        ..Call::sized()
                    })
                    .map(|_| ()),
                Ok(_) => Err(Errno::ENOMEM),
                Err(e) => Err(e),
            };
            w.undo(Made::Object(open.handle));
            result.map(|()| Made::Nothing)
        }),
        ("EP_BIND and EP_ENABLE", |w| {
            let cq = w.call(abi::kfabric_cq_open {
                domain: w.domain.handle(),
                ..Call::sized()
            })?;
            let av = w.call(abi::kfabric_av_open {
                domain: w.domain.handle(),
                ..Call::sized()
            });
            let ep = w.call(abi::kfabric_ep_open {
                domain: w.domain.handle(),
                ..Call::sized()
            });
            let result = match (&av, &ep) {
                (Ok(av), Ok(ep)) => [(cq.handle, abi::KFI_SEND | abi::KFI_RECV), (av.handle, 0)]
                    .into_iter()
                    .try_for_each(|(to, flags)| {
                        w.call(abi::kfabric_bind {
                            handle: ep.handle,
                            to,
                            flags,
                            ..Call::sized()
                        })
                        .map(|_| ())
                    })
                    .and_then(|()| {
                        w.call(abi::kfabric_ep_enable {
                            ep: ep.handle,
                            ..Call::sized()
                        })
                        .map(|_| ())
                    }),
                _ => Err(Errno::ENOMEM),
            };
            for handle in [
                ep.ok().map(|a| a.handle),
                av.ok().map(|a| a.handle),
                Some(cq.handle),
            ]
            .into_iter()
            .flatten()
            {
                w.undo(Made::Object(handle));
            }
            result.map(|()| Made::Nothing)
        }),
    ]);
}

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

/// A receive from anybody.
fn receive(w: &World, opcode: u32, len: u64) -> abi::kfabric_op {
    abi::kfabric_op {
        peer: FiAddr::UNSPEC.0,
        ..op(w, opcode, len)
    }
}

/// Takes all completions, so that the next operations find room.
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

fn posting() {
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

fn mapping() {
    sweep(&[
        ("mmap of a counter", |w| map(w, false)),
        ("mmap of a CQ", |w| map(w, true)),
    ]);
}

/// Opens an object, maps it, touches it, and takes both away.
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
