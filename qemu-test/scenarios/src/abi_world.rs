// SPDX-License-Identifier: GPL-2.0
//! One of every object, with data to be read from each: the objects with which the calls of the
//! [table](crate::abi_table) are made.
//!
//! A world has an open file of its own. After its calls a test ends it with [`World::finish`],
//! which closes every object: if a refused call had left a reference behind, a close would fail.

use crate::raw::{File, PAGE, Pages, addr_of, addr_of_mut, arg, bytes_of, data, in_ms, to_qp};
use kfi::{Errno, abi};
use std::cell::Cell;

/// Classes of objects.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Class {
    Fabric,
    Domain,
    Ep,
    Pep,
    Av,
    Mr,
    Eq,
    Cq,
    Cntr,
    Wait,
    Poll,
    Counters,
    Flow,
    CompCntr,
    Sep,
}

impl Class {
    pub(crate) const ALL: [Self; 15] = [
        Self::Fabric,
        Self::Domain,
        Self::Ep,
        Self::Pep,
        Self::Av,
        Self::Mr,
        Self::Eq,
        Self::Cq,
        Self::Cntr,
        Self::Wait,
        Self::Poll,
        Self::Counters,
        Self::Flow,
        Self::CompCntr,
        Self::Sep,
    ];
}

/// One of everything.
pub(crate) struct World {
    pub(crate) file: File,
    pub(crate) memory: Pages,
    pub(crate) fabric: u32,
    pub(crate) spare: u32,
    pub(crate) domain: u32,
    /// With an event to read.
    pub(crate) eq: u32,
    /// With an error event to read.
    pub(crate) eq_err: u32,
    /// A table with one address.
    pub(crate) av: u32,
    pub(crate) av_err: u32,
    pub(crate) mr: u32,
    /// With an entry to read.
    pub(crate) cq: u32,
    /// With an error entry to read.
    pub(crate) cq_err: u32,
    pub(crate) cntr: u32,
    /// Has signalled the wait set.
    pub(crate) cntr_set: u32,
    pub(crate) comp_cntr: u32,
    pub(crate) wait: u32,
    /// With a counter that has changed.
    pub(crate) poll: u32,
    /// Enabled, with a receive posted.
    pub(crate) ep: u32,
    /// Bound and not enabled.
    pub(crate) ep_new: u32,
    /// Scalable: bound and not enabled.
    pub(crate) sep: u32,
    /// Not bound.
    pub(crate) pep: u32,
    /// For datagrams; not bound.
    pub(crate) ep_dgram: u32,
    /// Has a static point, and is bound to nothing.
    pub(crate) counters: u32,
    /// Of `ep_dgram`, without points.
    pub(crate) flow: u32,
    /// The last one that [`World::ep_msg`] made, or 0.
    msg: Cell<u32>,
    /// The last one that [`World::meeting`] made.
    met: Cell<Option<Meeting>>,
}

/// A passive endpoint with a request for a connection, and the endpoints that can answer it.
#[derive(Clone, Copy)]
pub(crate) struct Meeting {
    /// Listens.
    pub(crate) pep: u32,
    /// The number of the request.
    pub(crate) connreq: u32,
    /// Bound to an EQ and a CQ, not enabled; can accept, or connect.
    pub(crate) ep: u32,
    /// Bound to an EQ, does not listen.
    pub(crate) silent: u32,
    asker: u32,
    eq: u32,
}

/// Offsets in the memory of a world.
pub(crate) const IOV: usize = 0;
pub(crate) const ADDRS: usize = 64;
pub(crate) const FI_ADDRS: usize = 128;
pub(crate) const EVENT: usize = 192;
pub(crate) const OPS: usize = 256;
pub(crate) const WORKS: usize = 512;
pub(crate) const HINTS: usize = PAGE;
pub(crate) const INFOS: usize = 2 * PAGE;
pub(crate) const OUT: usize = 3 * PAGE;
const DATA: usize = 4 * PAGE;

/// The context of the receive that is posted.
pub(crate) const POSTED: u64 = 77;

impl World {
    pub(crate) fn new() -> Self {
        let file = File::open();
        let memory = Pages::new(6);
        let fabric = file.fabric();
        let domain = file.domain(fabric);
        let (eq, eq_err) = (file.eq(fabric), file.eq(fabric));
        let (cq, cq_err) = (file.cq(domain), file.cq(domain));
        let wait = file.wait_set(fabric);
        let cntr_set = file.make(arg!(kfabric_cntr_open:
            domain, wait_obj: abi::KFI_WAIT_SET, wait_set: wait
        ));
        let (cntr, poll) = (file.cntr(domain), file.poll_set(domain));
        let (av, av_err) = (
            file.av(domain),
            file.make(arg!(kfabric_av_open:
                domain, type_: abi::KFI_AV_TABLE, flags: abi::KFI_EVENT
            )),
        );
        let mr = file
            .reg(domain, memory.addr() + DATA as u64, PAGE as u64, 1)
            .expect("mr");
        let (ep, ep_new) = (file.ep(domain), file.ep(domain));
        for ep in [ep, ep_new] {
            file.bind(ep, cq, abi::KFI_SEND).expect("bind");
            file.bind(ep, cq_err, abi::KFI_RECV).expect("bind");
            file.bind(ep, av, 0).expect("bind");
        }
        file.enable(ep).expect("enable");
        let name = file.ep_name(ep).expect("name");
        let sep = file.make(arg!(kfabric_sep_open: domain, tx_ctx_cnt: 2, rx_ctx_cnt: 2));
        file.bind(sep, av, 0).expect("bind");
        let pep = file.pep(fabric);
        let ep_dgram = file.ep_dgram(domain);
        let counters = file.counters(domain);
        file.attach(counters, 0, abi::KFABRIC_COUNTER_PACKETS, 0)
            .expect("attach");
        let flow = file.make(arg!(kfabric_flow_open: ep: ep_dgram));
        let comp_cntr = file.comp_cntr(domain);
        let world = Self {
            spare: file.fabric(),
            file,
            memory,
            fabric,
            domain,
            eq,
            eq_err,
            av,
            av_err,
            mr,
            cq,
            cq_err,
            cntr,
            cntr_set,
            comp_cntr,
            wait,
            poll,
            ep,
            ep_new,
            sep,
            pep,
            ep_dgram,
            counters,
            flow,
            msg: Cell::new(0),
            met: Cell::new(None),
        };
        world.fill(name);
        world
    }

    /// Puts data to be read into each object.
    fn fill(&self, name: abi::kfabric_sockaddr) {
        let (file, memory) = (&self.file, &self.memory);
        let data = memory.addr() + DATA as u64;
        let iov = abi::kfabric_iov {
            addr: data,
            len: PAGE as u64,
        };
        let op = |opcode, context| {
            data!(kfabric_op:
                opcode, context, buf: data + PAGE as u64, len: 8
            )
        };
        memory.write(IOV, &bytes_of(&iov));
        memory.write(ADDRS, &bytes_of(&name));
        memory.write(FI_ADDRS, &0u64.to_ne_bytes());
        memory.write(OPS, &bytes_of(&op(abi::KFABRIC_OP_SEND, 1)));

        assert_eq!(file.insert(self.av, name), Ok(0));
        for (opcode, context) in [
            (abi::KFABRIC_OP_TRECV, POSTED),
            (abi::KFABRIC_OP_TRECV, 78),
            (abi::KFABRIC_OP_SEND, 1),
        ] {
            let mut op = op(opcode, context);
            if opcode == abi::KFABRIC_OP_TRECV {
                op.peer = abi::KFI_ADDR_UNSPEC;
            }
            file.post_one(self.ep, op).expect("post");
        }
        file.call(arg!(kfabric_ep_cancel: ep: self.ep, context: 78))
            .expect("cancel");
        file.call(arg!(kfabric_eq_write:
            eq: self.eq, buf: memory.addr() + EVENT as u64, len: 24, event: 5
        ))
        .expect("eq write");
        file.bind(self.av_err, self.eq_err, 0).expect("bind");
        let nobody = data!(kfabric_sockaddr: family: 99);
        let mut fi_addr = 0u64;
        file.call(arg!(kfabric_av_insert:
            av: self.av_err, addrs: addr_of(&nobody), fi_addrs: addr_of_mut(&mut fi_addr), count: 1
        ))
        .expect("av insert with events");
        file.call(arg!(kfabric_poll_change: poll: self.poll, handle: self.cntr))
            .expect("poll add");
        for cntr in [self.cntr, self.cntr_set] {
            file.cntr_add(cntr, 1);
        }
    }

    /// Queues work, and returns the argument that cancels it.
    pub(crate) fn work(&self) -> abi::kfabric_cancel_work {
        let mut work = data!(kfabric_work:
            threshold: 100, triggering_cntr: self.cntr, op_type: abi::KFABRIC_OP_CNTR_ADD,
            object: self.cntr
        );
        let queued = self.file.call(arg!(kfabric_queue_work:
            domain: self.domain, works: addr_of_mut(&mut work), count: 1,
            work_size: size_of::<abi::kfabric_work>() as u32
        ));
        queued.expect("queue_work");
        arg!(kfabric_cancel_work: triggering_cntr: self.cntr, threshold: 100, id: work.id)
    }

    /// A connected endpoint, enabled and not connected, instead of the last one.
    pub(crate) fn ep_msg(&self) -> u32 {
        let file = &self.file;
        self.close_msg();
        let ep = file.make(arg!(kfabric_ep_open: domain: self.domain, type_: abi::KFI_EP_MSG));
        file.bind(ep, self.cq, abi::KFI_SEND | abi::KFI_RECV)
            .expect("bind");
        file.enable(ep).expect("enable");
        self.msg.set(ep);
        ep
    }

    fn close_msg(&self) {
        match self.msg.take() {
            0 => {}
            ep => self.file.close_all(&[ep]),
        }
    }

    /// The call that connects `ep` with itself.
    pub(crate) fn to_itself(&self, ep: u32) -> abi::kfabric_ep_connect_qp {
        let qp = self.file.call(arg!(kfabric_ep_qp: ep)).expect("qp");
        to_qp(ep, &qp)
    }

    /// A connected endpoint that is its own peer, instead of the last one.
    pub(crate) fn ep_connected(&self) -> u32 {
        let ep = self.ep_msg();
        self.file.call(self.to_itself(ep)).expect("connect_qp");
        ep
    }

    /// A request that waits, instead of the last one.
    pub(crate) fn meeting(&self) -> Meeting {
        let file = &self.file;
        self.close_meeting();
        let eq = file.eq(self.fabric);
        let ep = |ip| file.ep_msg(self.domain, ip, self.cq, eq);
        let (asker, ep) = (ep([127, 0, 0, 1]), ep([127, 0, 0, 2]));
        let (pep, silent) = (file.pep(self.fabric), file.pep(self.fabric));
        for pep in [pep, silent] {
            file.bind(pep, eq, 0).expect("bind");
        }
        let listen = arg!(kfabric_pep_listen: pep);
        file.call(listen).expect("listen");
        file.call(arg!(kfabric_ep_connect: ep: asker, addr: file.ep_name(pep).expect("name")))
            .expect("connect");
        let mut event = [0u8; abi::KFABRIC_MAX_EVENT as usize];
        let read = file
            .call(arg!(kfabric_eq_read:
                eq, deadline: in_ms(20_000), buf: addr_of_mut(&mut event),
                len: abi::KFABRIC_MAX_EVENT
            ))
            .expect("a request");
        assert_eq!(read.event, abi::KFI_CONNREQ);
        let met = Meeting {
            pep,
            connreq: u32::from_ne_bytes(event[4..8].try_into().unwrap()),
            ep,
            silent,
            asker,
            eq,
        };
        self.met.set(Some(met));
        met
    }

    fn close_meeting(&self) {
        if let Some(met) = self.met.take() {
            self.file
                .close_all(&[met.ep, met.asker, met.pep, met.silent, met.eq]);
        }
    }

    /// An object of `class`.
    pub(crate) fn of(&self, class: Class) -> u32 {
        match class {
            Class::Fabric => self.fabric,
            Class::Domain => self.domain,
            Class::Ep => self.ep,
            Class::Pep => self.pep,
            Class::Av => self.av,
            Class::Mr => self.mr,
            Class::Eq => self.eq,
            Class::Cq => self.cq,
            Class::Cntr => self.cntr,
            Class::Wait => self.wait,
            Class::Poll => self.poll,
            Class::Counters => self.counters,
            Class::Flow => self.flow,
            Class::CompCntr => self.comp_cntr,
            Class::Sep => self.sep,
        }
    }

    /// The address of `offset` in the memory.
    pub(crate) fn at(&self, offset: usize) -> u64 {
        self.memory.addr() + offset as u64
    }

    /// Closes everything, which must succeed: no call has left a reference.
    #[track_caller]
    pub(crate) fn finish(self) {
        let file = &self.file;
        self.close_msg();
        self.close_meeting();
        file.close_all(&[
            self.pep,
            self.flow,
            self.ep_dgram,
            self.counters,
            self.ep,
            self.ep_new,
            self.sep,
            self.mr,
            self.av,
            self.av_err,
            self.poll,
            self.cq,
            self.cq_err,
            self.cntr,
            self.cntr_set,
            self.comp_cntr,
            self.domain,
            self.eq,
            self.eq_err,
            self.wait,
            self.fabric,
        ]);
        // The one that CLOSE closes.
        assert!(matches!(file.close(self.spare), Ok(()) | Err(Errno::EBADF)));
    }
}
