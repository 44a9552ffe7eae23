// SPDX-License-Identifier: GPL-2.0
//! The fuzz targets, one function each.
//!
//! A target passes arbitrary bytes to a parser or state machine of the core crate and panics if the
//! result is wrong: accepted input must be written and parsed again unchanged, refused input must
//! give a documented errno, and no limit may be exceeded. A panic of the crate itself is a defect
//! too.
//!
//! [`TARGETS`] lists all targets.

#![forbid(unsafe_code)]

#[path = "../../../roce/fuzz/src/bytes.rs"]
mod bytes;
mod rdm;

use bytes::Bytes;
use kfi_core::{
    addr::{
        self,
        SockAddr, //
    },
    auth_key::AuthKey,
    enums::*,
    errno::Errno,
    flags::*,
    flow::{
        for_each_match,
        words_of,
        Family,
        Fields,
        Rule, //
    },
    info::{
        DomainAttr,
        EpAttr,
        FabricAttr,
        Info,
        Kind,
        Name,
        Offer,
        Request,
        RxAttr,
        TxAttr, //
    },
    limits,
    mr::{
        Refusal,
        Region, //
    },
    op::{
        reports_success,
        OpType,
        Side, //
    },
};

pub use rdm::{
    rdm_header,
    rdm_inbound, //
};

/// A fuzz target: accepts any bytes, and panics on a defect.
pub type Target = fn(&[u8]);

/// All targets with their names.
pub const TARGETS: &[(&str, Target)] = &[
    ("addr_text", addr_text),
    ("addr_raw", addr_raw),
    ("getinfo", getinfo),
    ("op", op),
    ("mr", mr),
    ("flow", flow),
    ("rdm_header", rdm_header),
    ("rdm_inbound", rdm_inbound),
];

/// Values of the types of kfi_core.
impl<'a> Bytes<'a> {
    /// Returns flags: up to seven bits.
    fn flags(&mut self) -> u64 {
        let bits = self.byte() & 7;
        (0..bits).fold(0, |flags, _| flags | 1 << (self.byte() & 63))
    }

    /// Returns text: up to 70 bytes, up to a zero byte.
    fn text(&mut self) -> &'a [u8] {
        let end = self.0.iter().position(|byte| *byte == 0);
        let len = end.unwrap_or(self.0.len()).min(70);
        let text = self.take(len);
        self.take(1);
        text
    }

    fn name(&mut self) -> Name {
        let text = self.text();
        let name = Name::new(text);
        assert_eq!(name.is_ok(), text.len() < limits::NAME_MAX);
        let name = name.unwrap_or(Name::EMPTY);
        assert_eq!(Name::from_field(name.field()), Ok(name));
        name
    }

    fn addr(&mut self) -> Option<SockAddr> {
        match self.byte() & 3 {
            0 => SockAddr::from_raw(&self.array()).ok(),
            1 => Some(SockAddr::v4(self.array::<4>().into(), 0)),
            2 => Some(SockAddr::v4([10, 0, 0, 1].into(), 7)),
            _ => None,
        }
    }
}

/// Checks that an accepted address is written and parsed again unchanged.
fn check_addr(addr: &SockAddr) {
    assert_eq!(SockAddr::from_raw(&addr.to_raw()), Ok(*addr));
    let mut text = [0xff; addr::TEXT_MAX];
    let len = addr.straddr(&mut text);
    assert!(len <= addr::TEXT_MAX);
    let text = text[..len].strip_suffix(b"\0").expect("ends with a NUL");
    let text = core::str::from_utf8(text).expect("is text");
    let (node, service) = match text.strip_prefix("fi_sockaddr_in6://[") {
        Some(rest) => rest.rsplit_once("]:").expect("has a port"),
        None => {
            let rest = text.strip_prefix("fi_sockaddr_in://").expect("has a head");
            rest.rsplit_once(':').expect("has a port")
        }
    };
    let Some(qpn) = addr.qpn().filter(|_| addr.is_qp()) else {
        assert_eq!(
            SockAddr::parse(node.as_bytes(), service.as_bytes()),
            Ok(*addr)
        );
        let port = addr.port();
        assert_eq!(addr.with_port(0).with_port(port), *addr);
        return;
    };
    // The text of a QP number is not parsed.
    assert_eq!(service, format!("qp{qpn:06x}"));
    assert_eq!(
        SockAddr::parse(node.as_bytes(), service.as_bytes()),
        Err(Errno::EINVAL)
    );
    let node = SockAddr::parse_node(node.as_bytes());
    assert_eq!(node, Ok(addr.with_port(0)));
    assert_eq!(node.and_then(|node| node.with_qpn(qpn)), Ok(*addr));
}

/// Parses a node and a service as text, separated by a zero byte.
pub fn addr_text(data: &[u8]) {
    let mut bytes = Bytes(data);
    let node = bytes.text();
    let service = bytes.0;
    match SockAddr::parse(node, service) {
        Ok(addr) => {
            check_addr(&addr);
            assert_eq!(SockAddr::parse_node(node), Ok(addr.with_port(0)));
            assert_eq!(addr::parse_service(service), Ok(addr.port()));
            assert!(service.len() <= 10);
        }
        Err(error) => assert_eq!(error, Errno::EINVAL),
    }
}

/// Parses a `struct kfabric_sockaddr`.
pub fn addr_raw(data: &[u8]) {
    let mut bytes = Bytes(data);
    let mut raw: [u8; addr::RAW_LEN] = bytes.array();
    // The next byte says whether to correct the family, because a random one is never valid.
    match bytes.byte() & 3 {
        0 => raw[..2].copy_from_slice(&addr::AF_INET.to_ne_bytes()),
        1 => {
            raw[..2].copy_from_slice(&addr::AF_INET6.to_ne_bytes());
            raw[28..].fill(0);
        }
        2 => {
            raw[..2].copy_from_slice(&addr::AF_INET.to_ne_bytes());
            raw[8..].fill(0);
        }
        _ => {}
    }
    match SockAddr::from_raw(&raw) {
        Ok(addr) => {
            check_addr(&addr);
            assert_eq!(SockAddr::from_raw_or_none(&raw), Ok(Some(addr)));
            let (port, qpn) = (&raw[2..4], &raw[28..]);
            assert!(port == [0; 2] || qpn == [0; 4]);
            assert_eq!(addr.family().to_ne_bytes(), raw[..2]);
            match u32::from_ne_bytes(qpn.try_into().expect("has 4 bytes")) {
                0 => assert_eq!(addr.port().to_be_bytes(), port),
                qpn => assert_eq!(addr.qpn(), Some(qpn)),
            }
        }
        Err(error) => {
            assert_eq!(error, Errno::EINVAL);
            let absent = raw == [0; addr::RAW_LEN];
            let answer = if absent { Ok(None) } else { Err(Errno::EINVAL) };
            assert_eq!(SockAddr::from_raw_or_none(&raw), answer);
        }
    }
}

/// Calls the functions of kfi_getinfo() with arguments and hints.
pub fn getinfo(data: &[u8]) {
    let mut bytes = Bytes(data);
    let version = match bytes.byte() & 3 {
        0 => bytes.u32(),
        version => (u32::from(version) - 1) << 16 | u32::from(bytes.byte() & 15),
    };
    let flags = match bytes.byte() & 3 {
        0 => bytes.flags(),
        1 => 0,
        _ => KFI_SOURCE,
    };
    let (node, service) = (bytes.text(), bytes.text());
    let request = match Request::new(version, flags, node, service) {
        Ok(request) => request,
        Err(error) => {
            assert_eq!(error == Errno::ENOSYS, version > limits::API_VERSION);
            assert!(error == Errno::ENOSYS || error == Errno::EINVAL);
            Request::ANY
        }
    };
    let names = [b"fabric", b"kfabtr"].map(|text| Name::new(text).expect("is short"));
    let kinds = [Kind::RDM, Kind::MSG, Kind::DGRAM, Kind::RDM];
    let kind = kinds[usize::from(bytes.byte() & 3)];
    let mut offer = Offer::new(kind, SockAddr::v4([10, 0, 0, 1].into(), 0), names[0]);
    offer.fabric_name = names[0];
    offer.prov_name = names[1];
    let hints = hints(&mut bytes);
    let Ok(info) = offer.negotiate(&request, &hints) else {
        return;
    };
    check_info(&offer, &hints, &info);
    // An entry used as hints gives the same entry again.
    assert_eq!(
        offer
            .negotiate(&Request::ANY, &info)
            .map(|again| again.caps),
        Ok(info.caps)
    );
    assert_eq!(
        offer.negotiate(&Request::ANY, &info).map(|again| again.tx),
        Ok(info.tx)
    );
    assert_eq!(
        offer.negotiate(&Request::ANY, &info).map(|again| again.rx),
        Ok(info.rx)
    );
    assert_eq!(offer.negotiate(&request, &info), Ok(info));
}

/// Returns hints with some attributes set.
fn hints(bytes: &mut Bytes<'_>) -> Info {
    let mut hints = Info::ANY;
    let given = bytes.u32();
    let is_given = |bit: u32| given >> bit & 1 != 0;
    if is_given(0) {
        hints.caps = bytes.flags();
        hints.mode = bytes.flags();
    }
    if is_given(1) {
        hints.addr_format = bytes.number() as u32;
        hints.src_addr = bytes.addr();
        hints.dest_addr = bytes.addr();
    }
    if is_given(2) {
        hints.tx = TxAttr {
            caps: bytes.flags(),
            op_flags: bytes.flags(),
            msg_order: bytes.flags(),
            ..hints.tx
        };
    }
    if is_given(3) {
        hints.tx = TxAttr {
            comp_order: bytes.number(),
            inject_size: bytes.number(),
            size: bytes.number(),
            iov_limit: bytes.number(),
            rma_iov_limit: bytes.number(),
            ..hints.tx
        };
    }
    if is_given(4) {
        hints.rx = RxAttr {
            caps: bytes.flags(),
            op_flags: bytes.flags(),
            msg_order: bytes.flags(),
            ..hints.rx
        };
    }
    if is_given(5) {
        hints.rx = RxAttr {
            comp_order: bytes.number(),
            total_buffered_recv: bytes.number(),
            size: bytes.number(),
            iov_limit: bytes.number(),
            ..hints.rx
        };
    }
    if is_given(6) {
        hints.ep = EpAttr {
            ep_type: bytes.number() as u32,
            protocol: bytes.number() as u32,
            protocol_version: bytes.number() as u32,
            max_msg_size: bytes.number(),
            mem_tag_format: bytes.number(),
            auth_key_size: bytes.number(),
            auth_key: AuthKey::new(bytes.u32().to_be_bytes()),
        };
    }
    if is_given(7) {
        hints.domain = DomainAttr {
            threading: bytes.number() as u32,
            control_progress: bytes.number() as u32,
            data_progress: bytes.number() as u32,
            resource_mgmt: bytes.number() as u32,
            av_type: bytes.number() as u32,
            mr_mode: bytes.flags() as u32,
            ..hints.domain
        };
    }
    if is_given(8) {
        hints.domain = DomainAttr {
            mr_key_size: bytes.number(),
            cq_data_size: bytes.number(),
            cq_cnt: bytes.number(),
            ep_cnt: bytes.number(),
            cntr_cnt: bytes.number(),
            mr_cnt: bytes.number(),
            mr_iov_limit: bytes.number(),
            ..hints.domain
        };
    }
    if is_given(9) {
        hints.domain.name = bytes.name();
        hints.fabric = FabricAttr {
            name: bytes.name(),
            prov_name: bytes.name(),
            prov_version: bytes.u32(),
            api_version: bytes.number() as u32,
        };
    }
    hints
}

/// Checks an entry against the hints and the offer.
fn check_info(offer: &Offer, hints: &Info, info: &Info) {
    let caps = Caps::from_bits(info.caps).expect("has good capabilities");
    assert!(offer.kind.caps.contains(caps));
    assert_eq!(hints.caps & !info.caps, 0);
    for (side, wanted) in [(info.tx.caps, hints.tx.caps), (info.rx.caps, hints.rx.caps)] {
        assert_eq!(side & !info.caps, 0);
        assert_eq!(wanted & !side, 0);
    }
    assert_eq!(info.mode, 0);
    let key = match info.ep.auth_key_size {
        0 => AuthKey::NONE,
        size => {
            assert_eq!(size, offer.kind.auth_key_size);
            hints.ep.auth_key
        }
    };
    assert_eq!(info.ep.auth_key, key);
    assert_eq!(info.ep.auth_key_size, hints.ep.auth_key_size);
    assert!(AddrFormat::try_from(info.addr_format).is_ok());
    assert_eq!(info.src_addr.map(|addr| addr.ip()), Some(offer.addr.ip()));
    assert!(Side::Transmit.default_flags(info.tx.op_flags).is_ok());
    assert!(Side::Receive.default_flags(info.rx.op_flags).is_ok());
    for (order, wanted) in [
        (info.tx.msg_order, hints.tx.msg_order),
        (info.rx.msg_order, hints.rx.msg_order),
    ] {
        assert!(MsgOrder::from_bits(order).is_ok());
        assert_eq!(wanted & !order, 0);
    }
    let iov = limits::MAX_IOV as u64;
    let queue = u64::from(limits::MAX_QUEUE);
    let objects = limits::MAX_OBJECTS;
    let (tx, rx, domain) = (&info.tx, &info.rx, &info.domain);
    let (hint_tx, hint_rx, hint_domain) = (&hints.tx, &hints.rx, &hints.domain);
    // The value in the entry, the hint, and the maximum.
    for (given, wanted, max) in [
        (
            tx.inject_size,
            hint_tx.inject_size,
            limits::INJECT_SIZE as u64,
        ),
        (tx.size, hint_tx.size, queue),
        (tx.iov_limit, hint_tx.iov_limit, iov),
        (
            tx.rma_iov_limit,
            hint_tx.rma_iov_limit,
            offer.kind.rma_iov_limit,
        ),
        (rx.size, hint_rx.size, queue),
        (rx.iov_limit, hint_rx.iov_limit, iov),
        (
            rx.total_buffered_recv,
            hint_rx.total_buffered_recv,
            offer.kind.buffered.1,
        ),
        (
            info.ep.max_msg_size,
            hints.ep.max_msg_size,
            offer.kind.max_msg_size,
        ),
        (
            domain.mr_key_size,
            hint_domain.mr_key_size,
            limits::MR_KEY_SIZE,
        ),
        (
            domain.cq_data_size,
            hint_domain.cq_data_size,
            offer.kind.cq_data_size,
        ),
        (domain.cq_cnt, hint_domain.cq_cnt, objects),
        (domain.ep_cnt, hint_domain.ep_cnt, objects),
        (domain.cntr_cnt, hint_domain.cntr_cnt, objects),
        (domain.mr_cnt, hint_domain.mr_cnt, objects),
        (domain.mr_iov_limit, hint_domain.mr_iov_limit, iov),
    ] {
        assert!(given >= 1.min(max) && given >= wanted && given <= max);
    }
    assert_eq!(EpType::try_from(info.ep.ep_type), Ok(offer.kind.ep_type));
    assert_eq!(
        Protocol::try_from(info.ep.protocol),
        Ok(offer.kind.protocol)
    );
    assert_eq!(domain.threading, u32::from(Threading::Safe));
    assert_eq!(domain.control_progress, u32::from(Progress::Auto));
    assert_eq!(domain.data_progress, u32::from(Progress::Auto));
    assert_eq!(domain.resource_mgmt, u32::from(ResourceMgmt::Disabled));
    assert!(matches!(
        AvType::try_from(domain.av_type),
        Ok(AvType::Map | AvType::Table)
    ));
    assert_eq!(domain.mr_mode & !hint_domain.mr_mode, 0);
    assert!(MrMode::from_bits(domain.mr_mode).is_ok());
    assert_eq!(domain.name, offer.domain_name);
    assert_eq!(info.fabric.prov_name, offer.prov_name);
    assert!(info.fabric.api_version <= limits::API_VERSION);
}

/// Checks the opcode, flags, defaults, capabilities and length of an operation.
pub fn op(data: &[u8]) {
    let mut bytes = Bytes(data);
    let opcode = bytes.number() as u32;
    let kind = match OpType::try_from(opcode) {
        Ok(kind) => kind,
        Err(error) => {
            assert!(error == Errno::EINVAL && opcode > 8);
            return;
        }
    };
    assert_eq!(kind as u32, opcode);
    let side = kind.side();
    let defaults = side.default_flags(bytes.flags());
    let defaults = defaults.unwrap_or(OpFlags::EMPTY);
    let explicit = bytes.byte() & 1 == 0;
    let wanted = bytes.flags();
    let flags = match kind.flags(wanted, explicit, defaults) {
        Ok(flags) => flags,
        Err(error) => {
            assert_eq!(error, Errno::EINVAL);
            return;
        }
    };
    let fetches = matches!(kind, OpType::FetchAtomic | OpType::CompareAtomic);
    let no_effect = if fetches {
        OpFlags::INJECT
    } else {
        OpFlags::EMPTY
    };
    assert_eq!(wanted & !flags.bits() & !no_effect.bits(), 0);
    assert!(!flags.intersects(no_effect));
    assert!(kind.flags_allowed().contains(flags));
    assert_eq!(kind.flags(flags.bits(), true, OpFlags::EMPTY), Ok(flags));
    let len = bytes.number();
    if kind.check_len(flags, len).is_ok() {
        assert!(len <= limits::MAX_MSG_SIZE);
        assert!(!flags.contains(OpFlags::INJECT) || len <= limits::INJECT_SIZE as u64);
    }
    let caps = Caps::from_bits_truncate(bytes.u64());
    let directed = bytes.byte() & 1 == 0;
    match kind.check_caps(caps, flags, directed) {
        Ok(()) => assert!(caps.contains(kind.caps())),
        Err(error) => assert_eq!(error, Errno::EOPNOTSUPP),
    }
    // Requesting a completion never prevents one.
    let asking = flags | OpFlags::COMPLETION;
    assert!(reports_success(asking, true) && reports_success(asking, false));
    assert!(reports_success(flags, false) || !reports_success(flags, true));
    assert!(CompFlags::from_bits(kind.comp_flags(true).bits()).is_ok());
}

/// Checks a region, and a request for it.
pub fn mr(data: &[u8]) {
    let mut bytes = Bytes(data);
    let (base, len, rights) = (bytes.number(), bytes.number(), bytes.flags());
    let region = match Region::new(base, len, rights) {
        Ok(region) => region,
        Err(error) => {
            assert_eq!(error, Errno::EINVAL);
            return;
        }
    };
    let (addr, want) = (bytes.number(), bytes.number());
    let need = Access::from_bits_truncate(bytes.flags());
    match region.check(addr, want, need) {
        Ok(offset) => {
            assert_eq!(base.checked_add(offset), Some(addr));
            let end = offset.checked_add(want).expect("does not wrap");
            assert!(end <= len);
            assert!(region.access().contains(need));
        }
        Err(refusal) => {
            assert!(refusal == Refusal::Rights || refusal == Refusal::Bounds);
            assert_eq!(refusal.errno(), Errno::EACCES);
        }
    }
}

impl Bytes<'_> {
    /// Returns the fields of a packet or of a rule, mostly near the limits of a field.
    fn fields(&mut self, wide: bool) -> Fields {
        let mut ip = || {
            let mut ip = [0; 16];
            let len = if wide { 16 } else { 4 };
            ip[..len].copy_from_slice(&self.array::<16>()[..len]);
            ip
        };
        Fields {
            src_ip: ip(),
            dest_ip: ip(),
            src_port: self.u32() as u16,
            dest_qp: self.u32() >> (self.byte() & 15),
            src_qp: self.u32() >> (self.byte() & 15),
            opcode: self.byte(),
        }
    }
}

/// Makes a rule of a flow, and compares a packet with it.
pub fn flow(data: &[u8]) {
    let mut bytes = Bytes(data);
    let number = [0, 2, 10, u32::from(bytes.byte())][usize::from(bytes.byte() & 3)];
    let family = match Family::from_number(number) {
        Ok(family) => family,
        Err(error) => {
            assert!(error == Errno::EINVAL && ![0, 2, 10].contains(&number));
            return;
        }
    };
    let wide = bytes.byte() & 3 != 0;
    let mask = match bytes.byte() & 3 {
        0 => Fields::default(),
        _ => bytes.fields(wide),
    };
    let packet = bytes.fields(wide);
    // Mostly the value that this packet has in the bits of the mask.
    let value = match bytes.byte() & 3 {
        0 => bytes.fields(wide),
        _ => Fields {
            src_ip: std::array::from_fn(|i| packet.src_ip[i] & mask.src_ip[i]),
            dest_ip: std::array::from_fn(|i| packet.dest_ip[i] & mask.dest_ip[i]),
            src_port: packet.src_port & mask.src_port,
            dest_qp: packet.dest_qp & mask.dest_qp,
            src_qp: packet.src_qp & mask.src_qp,
            opcode: packet.opcode & mask.opcode,
        },
    };
    let rule = match Rule::new(family, &value, &mask) {
        Ok(rule) => rule,
        Err(error) => {
            assert_eq!(error, Errno::EINVAL);
            // The same with empty masks is always good.
            let none = Fields::default();
            assert!(Rule::new(family, &none, &none).is_ok());
            return;
        }
    };
    assert!(mask.dest_qp < 1 << 24 && mask.src_qp < 1 << 24);
    assert!(family.is_some() || (mask.src_ip, mask.dest_ip) == ([0; 16], [0; 16]));
    let version = family.unwrap_or(Family::V4);
    let address = |ip: [u8; 16]| match version {
        Family::V4 => std::net::IpAddr::from([ip[0], ip[1], ip[2], ip[3]]),
        Family::V6 => std::net::IpAddr::from(ip),
    };
    let words = words_of(address(packet.src_ip), address(packet.dest_ip), &packet);
    let mut seen = 0;
    for_each_match(&[rule, rule], &words, |_| {
        seen += 1;
        std::ops::ControlFlow::Continue(())
    });
    assert_eq!(seen, if rule.matches(&words) { 2 } else { 0 });
}
