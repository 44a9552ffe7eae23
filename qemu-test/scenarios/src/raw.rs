// SPDX-License-Identifier: GPL-2.0
//! The calls without the library: for tests of refusals.
//!
//! The library prevents most of a program's possible mistakes. Here a test can set every field of
//! every structure, handles are numbers, and only the test closes objects (or its end, which closes
//! its open file).

#![allow(unsafe_code, reason = "raw calls")]

mod netdev;
mod pages;

pub(crate) use self::{
    netdev::{Netdev, ip, ip_batch, program, udp_on},
    pages::{PAGE, Pages},
};

use crate::host::{LINK, device};
use kfi::{
    Device, Errno,
    abi::{self, Call},
};
use std::{ffi::c_char, fmt::Debug, os::fd::AsFd};

/// The argument of a call: `arg!(kfabric_cq_open: domain, entries: 4)`. Fields without a name here
/// are 0, and the size is set.
macro_rules! arg {
    ($name:ident $(: $($field:ident $(: $value:expr)?),+)?) => {
        kfi::abi::$name { $($($field $(: $value)?,)+)? ..kfi::abi::Call::sized() }
    };
}

/// Another structure of the interface: `data!(kfabric_op: opcode, len: 8)`.
macro_rules! data {
    ($name:ident: $($field:ident $(: $value:expr)?),+) => {
        kfi::abi::$name { $($field $(: $value)?,)+ ..Default::default() }
    };
}

/// A structure with other values in some fields: `with!(good; flags, len: 8)`.
macro_rules! with {
    (@ $field:ident) => { $field };
    (@ $field:ident $value:expr) => { $value };
    ($good:expr; $($field:ident $(: $value:expr)?),+) => {{
        let mut changed = $good;
        $(changed.$field = with!(@ $field $($value)?);)+
        changed
    }};
}
pub(crate) use {arg, data, with};

/// Addresses that no program can have: the first page, one of the kernel, a non-canonical one, and
/// one near the end of the address space, behind which ranges wrap.
pub(crate) const BAD_ADDRS: [u64; 4] = [
    8,
    0xffff_8880_0000_1000,
    0x8000_0000_0000_0000,
    u64::MAX - 7,
];

/// `result` must be this refusal.
#[track_caller]
pub(crate) fn refused<T: Debug>(result: Result<T, Errno>, errno: Errno) {
    match result {
        Err(e) if e == errno => {}
        other => panic!("{other:?} instead of {}", errno.name().unwrap_or("?")),
    }
}

/// The address of `value`, for a structure.
pub(crate) fn addr_of<T: ?Sized>(value: &T) -> u64 {
    (&raw const *value).cast::<u8>().expose_provenance() as u64
}

/// The address of `value`, to which the kernel will write.
pub(crate) fn addr_of_mut<T: ?Sized>(value: &mut T) -> u64 {
    (&raw mut *value).cast::<u8>().expose_provenance() as u64
}

/// Text in a field.
pub(crate) fn text<const N: usize>(text: &str) -> [c_char; N] {
    let mut field = [0; N];
    assert!(text.len() <= N);
    for (to, from) in field.iter_mut().zip(text.bytes()) {
        *to = from as c_char;
    }
    field
}

/// `a.b.c.d:port` as the interface has it.
pub(crate) fn ipv4(ip: [u8; 4], port: u16) -> abi::kfabric_sockaddr {
    data!(kfabric_sockaddr: family: 2, port: port.to_be(), v4: u32::from_ne_bytes(ip))
}

/// The call that connects `ep` with this QP of this host.
pub(crate) fn to_qp(ep: u32, qp: &abi::kfabric_ep_qp) -> abi::kfabric_ep_connect_qp {
    arg!(kfabric_ep_connect_qp: ep, addr: with!(ipv4([127, 0, 0, 1], 0); qpn: qp.qpn), psn: qp.psn)
}

/// Now, on the clock of deadlines.
pub(crate) fn now() -> u64 {
    let now = rustix::time::clock_gettime(rustix::time::ClockId::Monotonic);
    now.tv_sec as u64 * 1_000_000_000 + now.tv_nsec as u64
}

/// A deadline this number of milliseconds from now.
pub(crate) fn in_ms(ms: u64) -> u64 {
    now() + ms * 1_000_000
}

/// The argument of a call that makes an object.
pub(crate) trait Make: Call {
    /// The returned handle.
    fn handle(&self) -> u32;
}

macro_rules! make {
    ($($arg:ident)*) => {
        $(impl Make for abi::$arg {
            fn handle(&self) -> u32 {
                self.handle
            }
        })*
    };
}
make! {
    kfabric_fabric_open kfabric_domain_open kfabric_eq_open kfabric_av_open kfabric_mr_reg
    kfabric_cq_open kfabric_cntr_open kfabric_wait_open kfabric_poll_open kfabric_ep_open
    kfabric_pep_open kfabric_comp_cntr_create kfabric_counters_open kfabric_flow_open kfabric_ep_alias
    kfabric_stx_open kfabric_srx_open kfabric_sep_open kfabric_sep_context
}

/// An open file of the device.
pub(crate) struct File(Device);

impl AsFd for File {
    fn as_fd(&self) -> std::os::fd::BorrowedFd<'_> {
        self.0.as_fd()
    }
}

/// An enabled endpoint with its CQ and AV, which contains its own address.
pub(crate) struct Party {
    /// The endpoint.
    pub(crate) ep: u32,
    /// CQ of both directions, format TAGGED, wait object QUEUE.
    pub(crate) cq: u32,
    /// A table.
    pub(crate) av: u32,
    /// The endpoint's own `kfi_addr_t`.
    pub(crate) me: u64,
    /// And its address.
    pub(crate) name: abi::kfabric_sockaddr,
}

impl File {
    /// Opens the device; makes the link on `lo` if it is not there yet.
    pub(crate) fn open() -> Self {
        Self(device())
    }

    /// Opens the device only.
    pub(crate) fn open_only() -> Self {
        Self(Device::open().expect("open the device"))
    }

    /// This file, with a fabric and a domain on the link of `lo`.
    pub(crate) fn and_domain(self) -> (Self, u32, u32) {
        let fabric = self.fabric();
        let domain = self.domain(fabric);
        (self, fabric, domain)
    }

    /// Makes a call; returns its structure.
    pub(crate) fn call<C: Call>(&self, mut arg: C) -> Result<C, Errno> {
        self.call_mut(&mut arg).map(|()| arg)
    }

    /// Makes a call that returns values even if it fails.
    pub(crate) fn call_mut<C: Call>(&self, arg: &mut C) -> Result<(), Errno> {
        // SAFETY: the tests give addresses of memory that is theirs, or of nothing.
        unsafe { abi::call(&self.0, arg) }
    }

    /// Makes a call with any argument.
    pub(crate) fn call_raw(&self, request: u32, arg: u64) -> Result<(), Errno> {
        let arg = std::ptr::with_exposed_provenance_mut(arg as usize);
        // SAFETY: as above.
        unsafe { abi::call_raw(&self.0, request, arg) }
    }

    /// Makes an object, which must succeed.
    #[track_caller]
    pub(crate) fn make<M: Make>(&self, arg: M) -> u32 {
        match self.call(arg) {
            Ok(arg) => arg.handle(),
            Err(e) => panic!("{}: {e:?}", M::NAME),
        }
    }

    /// Closes an object.
    pub(crate) fn close(&self, handle: u32) -> Result<(), Errno> {
        let arg = arg!(kfabric_close: handle);
        self.call(arg).map(|_| ())
    }

    /// Closes objects, in this order, each of which must succeed.
    #[track_caller]
    pub(crate) fn close_all(&self, handles: &[u32]) {
        for handle in handles {
            if let Err(e) = self.close(*handle) {
                panic!("close of {handle} (of {handles:?}): {e:?}");
            }
        }
    }

    /// Binds `handle` to `to`.
    pub(crate) fn bind(&self, handle: u32, to: u32, flags: u64) -> Result<(), Errno> {
        let arg = arg!(kfabric_bind: handle, to, flags);
        self.call(arg).map(|_| ())
    }

    /// A fabric.
    pub(crate) fn fabric(&self) -> u32 {
        self.make(arg!(kfabric_fabric_open))
    }

    /// A domain on the link of `lo`.
    pub(crate) fn domain(&self, fabric: u32) -> u32 {
        self.domain_on(fabric, LINK)
    }

    /// A domain on `link`.
    #[track_caller]
    pub(crate) fn domain_on(&self, fabric: u32, link: &str) -> u32 {
        self.make(arg!(kfabric_domain_open: fabric, link: text(link)))
    }

    /// An endpoint for datagrams at 127.0.0.1, not bound.
    pub(crate) fn ep_dgram(&self, domain: u32) -> u32 {
        self.make(arg!(kfabric_ep_open:
            domain, type_: abi::KFI_EP_DGRAM, src_addr: ipv4([127, 0, 0, 1], 0)
        ))
    }

    /// A connected endpoint at this address, any port, with a CQ for both directions and an EQ.
    #[track_caller]
    pub(crate) fn ep_msg(&self, domain: u32, ip: [u8; 4], cq: u32, eq: u32) -> u32 {
        let ep = self.make(arg!(kfabric_ep_open:
            domain, type_: abi::KFI_EP_MSG, src_addr: ipv4(ip, 0)
        ));
        let both = abi::KFI_SEND | abi::KFI_RECV;
        self.bind(ep, cq, both).expect("bind cq");
        self.bind(ep, eq, 0).expect("bind eq");
        ep
    }

    /// Counters of flows, with 16 values.
    pub(crate) fn counters(&self, domain: u32) -> u32 {
        self.make(arg!(kfabric_counters_open: domain))
    }

    /// Attaches a counter point: a static one, if `flow` is 0.
    pub(crate) fn attach(
        &self,
        counters: u32,
        flow: u32,
        description: u32,
        index: u32,
    ) -> Result<(), Errno> {
        let arg = arg!(kfabric_counters_attach: counters, flow, description, index);
        self.call(arg).map(|_| ())
    }

    /// A passive endpoint at 127.0.0.2, any port.
    pub(crate) fn pep(&self, fabric: u32) -> u32 {
        self.make(arg!(kfabric_pep_open: fabric, addr: ipv4([127, 0, 0, 2], 0)))
    }

    /// An EQ with wait object QUEUE that can be written to.
    pub(crate) fn eq(&self, fabric: u32) -> u32 {
        self.make(arg!(kfabric_eq_open:
            fabric, wait_obj: abi::KFI_WAIT_QUEUE, flags: abi::KFI_WRITE
        ))
    }

    /// A CQ with wait object QUEUE, format TAGGED.
    pub(crate) fn cq(&self, domain: u32) -> u32 {
        self.make(arg!(kfabric_cq_open:
            domain, format: abi::KFI_CQ_FORMAT_TAGGED, wait_obj: abi::KFI_WAIT_QUEUE
        ))
    }

    /// A counter with wait object QUEUE.
    pub(crate) fn cntr(&self, domain: u32) -> u32 {
        self.make(arg!(kfabric_cntr_open: domain, wait_obj: abi::KFI_WAIT_QUEUE))
    }

    /// A completion counter of work requests.
    pub(crate) fn comp_cntr(&self, domain: u32) -> u32 {
        self.make(arg!(kfabric_comp_cntr_create: domain))
    }

    /// An AV, a table.
    pub(crate) fn av(&self, domain: u32) -> u32 {
        self.make(arg!(kfabric_av_open: domain, type_: abi::KFI_AV_TABLE))
    }

    /// A wait set.
    pub(crate) fn wait_set(&self, fabric: u32) -> u32 {
        self.make(arg!(kfabric_wait_open: fabric, wait_obj: abi::KFI_WAIT_QUEUE))
    }

    /// An EQ, a CQ and a counter with a wait object.
    pub(crate) fn waitable_objects(
        &self,
        fabric: u32,
        domain: u32,
        wait_obj: u32,
        wait_set: u32,
    ) -> [u32; 3] {
        let eq = self.make(arg!(kfabric_eq_open: fabric, wait_obj, wait_set));
        let cq = self.make(arg!(kfabric_cq_open: domain, wait_obj, wait_set));
        let cntr = self.make(arg!(kfabric_cntr_open: domain, wait_obj, wait_set));
        [eq, cq, cntr]
    }

    /// A poll set.
    pub(crate) fn poll_set(&self, domain: u32) -> u32 {
        self.make(arg!(kfabric_poll_open: domain))
    }

    /// An endpoint that is not bound yet.
    pub(crate) fn ep(&self, domain: u32) -> u32 {
        self.make(arg!(kfabric_ep_open: domain))
    }

    /// Registers memory with all rights.
    pub(crate) fn reg(&self, domain: u32, addr: u64, len: u64, key: u64) -> Result<u32, Errno> {
        let iov = abi::kfabric_iov { addr, len };
        self.call(arg!(kfabric_mr_reg:
            domain, iov: addr_of(&iov), iov_count: 1, access: ALL_ACCESS, requested_key: key
        ))
        .map(|arg| arg.handle)
    }

    /// Enables an endpoint.
    pub(crate) fn enable(&self, ep: u32) -> Result<(), Errno> {
        let arg = arg!(kfabric_ep_enable: ep);
        self.call(arg).map(|_| ())
    }

    /// The address of an endpoint.
    pub(crate) fn ep_name(&self, ep: u32) -> Result<abi::kfabric_sockaddr, Errno> {
        let arg = arg!(kfabric_ep_name: ep);
        self.call(arg).map(|arg| arg.addr)
    }

    /// Inserts one address.
    pub(crate) fn insert(&self, av: u32, addr: abi::kfabric_sockaddr) -> Result<u64, Errno> {
        let mut fi_addr = 0u64;
        self.call(arg!(kfabric_av_insert:
            av, addrs: addr_of(&addr), fi_addrs: addr_of_mut(&mut fi_addr), count: 1
        ))?;
        Ok(fi_addr)
    }

    /// An enabled endpoint on `domain` with the default capabilities and `more`.
    #[track_caller]
    pub(crate) fn party(&self, domain: u32, more: abi::kfabric_ep_open) -> Party {
        self.party_with(domain, self.cq(domain), more)
    }

    /// The same with a CQ that there is.
    #[track_caller]
    pub(crate) fn party_with(&self, domain: u32, cq: u32, more: abi::kfabric_ep_open) -> Party {
        let ep = self.make(with!(more; domain));
        let av = self.av(domain);
        self.bind(ep, cq, abi::KFI_SEND | abi::KFI_RECV)
            .expect("bind cq");
        self.bind(ep, av, 0).expect("bind av");
        self.enable(ep).expect("enable");
        let name = self.ep_name(ep).expect("name");
        let me = self.insert(av, name).expect("insert");
        Party {
            ep,
            cq,
            av,
            me,
            name,
        }
    }

    /// Closes the objects that [`party`](Self::party) made, which must succeed.
    #[track_caller]
    pub(crate) fn part(&self, party: &Party) {
        self.close_all(&[party.ep, party.cq, party.av]);
    }

    /// Posts operations; returns the structure of the call, and its result.
    pub(crate) fn post(
        &self,
        ep: u32,
        ops: &[abi::kfabric_op],
    ) -> (abi::kfabric_post, Result<(), Errno>) {
        let mut arg = arg!(kfabric_post:
            ep, ops: addr_of(ops), count: ops.len() as u32,
            op_size: size_of::<abi::kfabric_op>() as u32
        );
        let result = self.call_mut(&mut arg);
        (arg, result)
    }

    /// Posts one operation.
    pub(crate) fn post_one(&self, ep: u32, op: abi::kfabric_op) -> Result<(), Errno> {
        self.post(ep, &[op]).1
    }

    /// Takes one entry of a CQ, without waiting.
    pub(crate) fn cq_read(&self, cq: u32) -> Result<abi::kfabric_cq_entry, Errno> {
        self.cq_wait(cq, 0)
    }

    /// Takes one entry of a CQ.
    pub(crate) fn cq_wait(&self, cq: u32, deadline: u64) -> Result<abi::kfabric_cq_entry, Errno> {
        let mut entry = abi::kfabric_cq_entry::default();
        self.call(arg!(kfabric_cq_read: cq, buf: addr_of_mut(&mut entry), count: 1, deadline))?;
        Ok(entry)
    }

    /// Takes one error entry of a CQ.
    pub(crate) fn cq_readerr(&self, cq: u32) -> Result<abi::kfabric_cq_readerr, Errno> {
        self.call(arg!(kfabric_cq_readerr: cq))
    }

    /// The values of a counter.
    pub(crate) fn cntr_read(&self, cntr: u32) -> Result<(u64, u64), Errno> {
        self.call(arg!(kfabric_cntr_read: cntr))
            .map(|arg| (arg.value, arg.err))
    }

    /// Changes a counter.
    pub(crate) fn cntr_modify(&self, cntr: u32, what: u32, value: u64) -> Result<(), Errno> {
        let arg = arg!(kfabric_cntr_modify: cntr, what, value);
        self.call(arg).map(|_| ())
    }

    /// Adds to a counter, which must succeed.
    #[track_caller]
    pub(crate) fn cntr_add(&self, cntr: u32, value: u64) {
        self.cntr_modify(cntr, abi::KFABRIC_CNTR_ADD, value)
            .expect("add");
    }

    /// Ids of the live objects of a class that the caller can see, `KFI_CLASS_*`.
    pub(crate) fn stats(&self, object_class: u32) -> Vec<abi::kfabric_stat> {
        let mut found = Vec::new();
        let mut after = 0;
        loop {
            let next = self.call(arg!(kfabric_stat: object_class, after));
            match next {
                Ok(stat) => {
                    after = stat.after;
                    found.push(stat);
                }
                Err(Errno::ENOENT) => return found,
                Err(e) => panic!("stat: {e:?}"),
            }
        }
    }
}

/// All access rights to a region.
pub(crate) const ALL_ACCESS: u64 = abi::KFI_SEND
    | abi::KFI_RECV
    | abi::KFI_READ
    | abi::KFI_WRITE
    | abi::KFI_REMOTE_READ
    | abi::KFI_REMOTE_WRITE;

/// The bytes of a structure of the interface, which has no padding.
pub(crate) fn bytes_of<T: Copy>(value: &T) -> Vec<u8> {
    // SAFETY: the structures of the interface consist of integers, without padding.
    unsafe { std::slice::from_raw_parts((&raw const *value).cast::<u8>(), size_of::<T>()) }.to_vec()
}
