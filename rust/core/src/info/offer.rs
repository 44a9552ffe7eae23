// SPDX-License-Identifier: GPL-2.0
//! The offer of a provider, and its comparison with hints.
//!
//! [`info`](super) lists the rules for each attribute. [`Offer::negotiate`] applies them in the
//! order of `struct kfi_info` and stops at the first [`HintMismatch`].

use super::{
    DomainAttr,
    EpAttr,
    FabricAttr,
    Info,
    Kind,
    Name,
    Request,
    RxAttr,
    TxAttr, //
};
use crate::{
    addr::SockAddr,
    enums::{
        AddrFormat,
        AvType,
        Progress,
        ResourceMgmt,
        Threading, //
    },
    errno::Errno,
    flags::{
        self,
        Caps,
        MrMode,
        MsgOrder,
        OpFlags, //
    },
    limits,
    op::{
        expand_caps,
        Side, //
    }, //
};
use core::net::IpAddr;

/// The locality of peers, which every entry contains.
const REACH: Caps = Caps::LOCAL_COMM.union(Caps::REMOTE_COMM);

/// Capabilities that an entry has only if the hints name them. A peer can read the memory of the
/// receives of an endpoint that has `TAGGED_RMA`, so an endpoint whose owner does not know that
/// must not have it.
const ON_REQUEST: Caps = Caps::TAGGED_RMA;

const KINDS: Caps = Caps::MSG
    .union(Caps::RMA)
    .union(Caps::TAGGED)
    .union(Caps::ATOMIC)
    .union(Caps::MULTICAST)
    .union(Caps::TAGGED_RMA);

/// Capabilities of the transmit side.
pub(super) const TX_CAPS: Caps = KINDS
    .union(REACH)
    .union(Caps::NAMED_RX_CTX)
    .union(Caps::SEND)
    .union(Caps::READ)
    .union(Caps::WRITE)
    .union(Caps::TRIGGER)
    .union(Caps::FENCE);

/// Capabilities of the receive side.
pub(super) const RX_CAPS: Caps = KINDS
    .union(REACH)
    .union(Caps::RECV)
    .union(Caps::REMOTE_READ)
    .union(Caps::REMOTE_WRITE)
    .union(Caps::TRIGGER)
    .union(Caps::MULTI_RECV)
    .union(Caps::SOURCE)
    .union(Caps::SOURCE_ERR)
    .union(Caps::DIRECTED_RECV)
    .union(Caps::NAMED_RX_CTX)
    .union(Caps::RMA_EVENT);

/// The first attribute that does not match.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[expect(
    missing_docs,
    reason = "the members of struct kfi_info and its attributes"
)]
pub enum HintMismatch {
    Caps,
    AddrFormat,
    SrcAddr,
    DestAddr,
    TxCaps,
    TxOpFlags,
    TxMsgOrder,
    TxCompOrder,
    TxInjectSize,
    TxSize,
    TxIovLimit,
    TxRmaIovLimit,
    RxCaps,
    RxOpFlags,
    RxMsgOrder,
    RxCompOrder,
    RxTotalBufferedRecv,
    RxSize,
    RxIovLimit,
    EpType,
    Protocol,
    ProtocolVersion,
    MaxMsgSize,
    AuthKeySize,
    DomainName,
    Threading,
    Progress,
    ResourceMgmt,
    AvType,
    MrKeySize,
    CqDataSize,
    CqCnt,
    EpCnt,
    CntrCnt,
    MrCnt,
    MrIovLimit,
    FabricName,
    ProvName,
    ApiVersion,
}

impl From<HintMismatch> for Errno {
    fn from(_: HintMismatch) -> Self {
        Errno::ENODATA
    }
}

/// An offer: one address of one link, for one endpoint type.
#[derive(Clone, Copy, Debug)]
pub struct Offer {
    /// The capabilities and limits of the endpoint type.
    pub kind: Kind,
    /// The address of the link, with port 0.
    pub addr: SockAddr,
    /// The name of the link.
    pub domain_name: Name,
    /// The name of the fabric.
    pub fabric_name: Name,
    /// The name of the provider.
    pub prov_name: Name,
    /// The version of the provider.
    pub prov_version: u32,
}

impl Offer {
    /// Makes an offer for endpoints of a kind at `addr` of the link `domain_name`. The caller sets
    /// the names of the fabric and the provider.
    pub const fn new(kind: Kind, addr: SockAddr, domain_name: Name) -> Self {
        Self {
            kind,
            addr: addr.with_port(0),
            domain_name,
            fabric_name: Name::EMPTY,
            prov_name: Name::EMPTY,
            prov_version: 0,
        }
    }

    /// Returns the entry for `request` with `hints`. See the rules in [`info`](super).
    ///
    /// # Errors
    ///
    /// Returns the first attribute that does not match.
    pub fn negotiate(&self, request: &Request, hints: &Info) -> Result<Info, HintMismatch> {
        let caps = self.caps_for(hints.caps)?;
        let (src_addr, dest_addr) = self.addresses(request, hints)?;
        Ok(Info {
            caps: caps.bits(),
            mode: 0,
            addr_format: self.addr_format(hints.addr_format)?,
            src_addr: Some(src_addr),
            dest_addr,
            tx: self.kind.tx(caps, &hints.tx)?,
            rx: self.kind.rx(caps, &hints.rx)?,
            ep: self.ep(&hints.ep)?,
            domain: self.domain(request, &hints.domain)?,
            fabric: self.fabric(request, &hints.fabric)?,
        })
    }

    fn caps_for(&self, hint: u64) -> Result<Caps, HintMismatch> {
        if hint == 0 {
            return Ok(self.kind.caps.without(ON_REQUEST));
        }
        let hint = Caps::from_bits(hint).map_err(|_| HintMismatch::Caps)?;
        let wanted = expand_caps(hint, self.kind.caps);
        if !self.kind.caps.contains(wanted) {
            return Err(HintMismatch::Caps);
        }
        Ok(wanted | (self.kind.caps & REACH))
    }

    fn addr_format(&self, hint: u32) -> Result<u32, HintMismatch> {
        let format = match self.addr.ip() {
            IpAddr::V4(_) => AddrFormat::SockaddrIn,
            IpAddr::V6(_) => AddrFormat::SockaddrIn6,
        };
        match AddrFormat::try_from(hint) {
            Ok(AddrFormat::Unspec | AddrFormat::Sockaddr) => Ok(format.into()),
            Ok(hint) if hint == format => Ok(format.into()),
            _ => Err(HintMismatch::AddrFormat),
        }
    }

    fn addresses(
        &self,
        request: &Request,
        hints: &Info,
    ) -> Result<(SockAddr, Option<SockAddr>), HintMismatch> {
        let (src, dest) = (request.own_addr(hints), request.peer_addr(hints));
        let own = src.is_none_or(|src| {
            src.family() == self.addr.family()
                && (src.is_unspecified() || src.with_port(0) == self.addr)
        });
        if !own {
            return Err(HintMismatch::SrcAddr);
        }
        if dest.is_some_and(|dest| dest.family() != self.addr.family()) {
            return Err(HintMismatch::DestAddr);
        }
        let port = match request.port {
            Some(port) if request.source => port,
            _ => src.map_or(0, |src| src.port()),
        };
        Ok((self.addr.with_port(port), dest))
    }

    fn ep(&self, hint: &EpAttr) -> Result<EpAttr, HintMismatch> {
        let Kind {
            ep_type,
            protocol,
            protocol_version: version,
            max_msg_size,
            ..
        } = self.kind;
        same_or_0(hint.ep_type, ep_type.into(), HintMismatch::EpType)?;
        same_or_0(hint.protocol, protocol.into(), HintMismatch::Protocol)?;
        same_or_0(
            hint.protocol_version,
            version,
            HintMismatch::ProtocolVersion,
        )?;
        at_most(hint.max_msg_size, max_msg_size, HintMismatch::MaxMsgSize)?;
        let auth_key = hint.key_for(&self.kind)?;
        Ok(EpAttr {
            ep_type: ep_type.into(),
            protocol: protocol.into(),
            protocol_version: version,
            max_msg_size,
            mem_tag_format: given_or(hint.mem_tag_format, limits::TAG_FORMAT_GENERIC),
            auth_key_size: hint.auth_key_size,
            auth_key,
        })
    }

    fn domain(&self, request: &Request, hint: &DomainAttr) -> Result<DomainAttr, HintMismatch> {
        same_name(&request.link, &self.domain_name, HintMismatch::SrcAddr)?;
        let name = same_name(&hint.name, &self.domain_name, HintMismatch::DomainName)?;
        Threading::try_from(hint.threading).map_err(|_| HintMismatch::Threading)?;
        for progress in [hint.control_progress, hint.data_progress] {
            Progress::try_from(progress).map_err(|_| HintMismatch::Progress)?;
        }
        match ResourceMgmt::try_from(hint.resource_mgmt) {
            Ok(ResourceMgmt::Unspec | ResourceMgmt::Disabled) => {}
            // Completions without a posted operation can overrun a CQ.
            Ok(ResourceMgmt::Enabled) | Err(_) => return Err(HintMismatch::ResourceMgmt),
        }
        let av_type = match AvType::try_from(hint.av_type) {
            Ok(AvType::Unspec | AvType::Table) => AvType::Table,
            Ok(AvType::Map) => AvType::Map,
            Err(_) => return Err(HintMismatch::AvType),
        };
        let mr_mode = MrMode::from_bits_truncate(hint.mr_mode);
        let (mr_key_size, cq_data_size) = (limits::MR_KEY_SIZE, self.kind.cq_data_size);
        let (count, mr_iov_limit) = (limits::MAX_OBJECTS, limits::MAX_IOV as u64);
        at_most(hint.mr_key_size, mr_key_size, HintMismatch::MrKeySize)?;
        at_most(hint.cq_data_size, cq_data_size, HintMismatch::CqDataSize)?;
        at_most(hint.cq_cnt, count, HintMismatch::CqCnt)?;
        at_most(hint.ep_cnt, count, HintMismatch::EpCnt)?;
        at_most(hint.cntr_cnt, count, HintMismatch::CntrCnt)?;
        at_most(hint.mr_cnt, count, HintMismatch::MrCnt)?;
        at_most(hint.mr_iov_limit, mr_iov_limit, HintMismatch::MrIovLimit)?;
        Ok(DomainAttr {
            name,
            threading: Threading::Safe.into(),
            control_progress: Progress::Auto.into(),
            data_progress: Progress::Auto.into(),
            resource_mgmt: ResourceMgmt::Disabled.into(),
            av_type: av_type.into(),
            mr_mode: (mr_mode & (MrMode::VIRT_ADDR | MrMode::PROV_KEY)).bits(),
            mr_key_size: given_or(hint.mr_key_size, mr_key_size),
            cq_data_size,
            cq_cnt: count,
            ep_cnt: count,
            cntr_cnt: count,
            mr_cnt: count,
            mr_iov_limit,
        })
    }

    fn fabric(&self, request: &Request, hint: &FabricAttr) -> Result<FabricAttr, HintMismatch> {
        if hint.api_version > limits::API_VERSION {
            return Err(HintMismatch::ApiVersion);
        }
        let api_version = match request.version {
            0 if hint.api_version == 0 => limits::API_VERSION,
            0 => hint.api_version,
            version => version,
        };
        Ok(FabricAttr {
            name: same_name(&hint.name, &self.fabric_name, HintMismatch::FabricName)?,
            prov_name: same_name(&hint.prov_name, &self.prov_name, HintMismatch::ProvName)?,
            prov_version: self.prov_version,
            api_version,
        })
    }
}

impl Kind {
    /// Returns the attributes of the transmit side of an endpoint with `caps`, or of a transmit
    /// context.
    ///
    /// # Errors
    ///
    /// Returns the first attribute of the hint that does not match.
    pub fn tx(&self, caps: Caps, hint: &TxAttr) -> Result<TxAttr, HintMismatch> {
        let (inject_size, iov_limit) = (limits::INJECT_SIZE as u64, limits::MAX_IOV as u64);
        at_most(hint.inject_size, inject_size, HintMismatch::TxInjectSize)?;
        at_most(hint.iov_limit, iov_limit, HintMismatch::TxIovLimit)?;
        let rma_iov_limit = self.rma_iov_limit;
        at_most(
            hint.rma_iov_limit,
            rma_iov_limit,
            HintMismatch::TxRmaIovLimit,
        )?;
        let max = u64::from(limits::MAX_QUEUE);
        at_most(hint.size, max, HintMismatch::TxSize)?;
        // Completions are not ordered: a longer operation is overtaken by shorter ones.
        at_most(
            hint.comp_order,
            flags::KFI_ORDER_NONE,
            HintMismatch::TxCompOrder,
        )?;
        Ok(TxAttr {
            caps: side_caps(hint.caps, caps, TX_CAPS).ok_or(HintMismatch::TxCaps)?,
            op_flags: op_flags(hint.op_flags, Side::Transmit)
                .filter(|flags| self.tx_op_flags.bits() & flags == *flags)
                .ok_or(HintMismatch::TxOpFlags)?,
            msg_order: self.order(hint.msg_order).ok_or(HintMismatch::TxMsgOrder)?,
            comp_order: flags::KFI_ORDER_NONE,
            inject_size,
            size: given_or(hint.size, u64::from(limits::DEFAULT_TX_SIZE)),
            iov_limit,
            rma_iov_limit,
        })
    }

    /// Returns the attributes of the receive side of an endpoint with `caps`, or of a receive
    /// context.
    ///
    /// # Errors
    ///
    /// Returns the first attribute of the hint that does not match.
    pub fn rx(&self, caps: Caps, hint: &RxAttr) -> Result<RxAttr, HintMismatch> {
        let iov_limit = limits::MAX_IOV as u64;
        at_most(hint.iov_limit, iov_limit, HintMismatch::RxIovLimit)?;
        let (default_buffered, max_buffered) = self.buffered;
        let max = u64::from(limits::MAX_QUEUE);
        at_most(hint.size, max, HintMismatch::RxSize)?;
        let buffered = hint.total_buffered_recv;
        at_most(buffered, max_buffered, HintMismatch::RxTotalBufferedRecv)?;
        at_most(
            hint.comp_order,
            flags::KFI_ORDER_NONE,
            HintMismatch::RxCompOrder,
        )?;
        Ok(RxAttr {
            caps: side_caps(hint.caps, caps, RX_CAPS).ok_or(HintMismatch::RxCaps)?,
            op_flags: op_flags(hint.op_flags, Side::Receive).ok_or(HintMismatch::RxOpFlags)?,
            msg_order: self.order(hint.msg_order).ok_or(HintMismatch::RxMsgOrder)?,
            comp_order: flags::KFI_ORDER_NONE,
            total_buffered_recv: given_or(buffered, default_buffered),
            size: given_or(hint.size, u64::from(limits::DEFAULT_RX_SIZE)),
            iov_limit,
        })
    }

    fn order(&self, hint: u64) -> Option<u64> {
        let wanted = MsgOrder::from_bits(hint).ok()?;
        let order = self.msg_order;
        order.contains(wanted).then_some(order.bits())
    }
}

/// Refuses a hint above `max`.
fn at_most(hint: u64, max: u64, mismatch: HintMismatch) -> Result<(), HintMismatch> {
    if hint > max {
        return Err(mismatch);
    }
    Ok(())
}

/// Refuses a hint that is neither 0 nor `value`.
fn same_or_0(hint: u32, value: u32, mismatch: HintMismatch) -> Result<(), HintMismatch> {
    if hint != 0 && hint != value {
        return Err(mismatch);
    }
    Ok(())
}

/// Refuses a given name that differs.
fn same_name(hint: &Name, name: &Name, mismatch: HintMismatch) -> Result<Name, HintMismatch> {
    if !hint.is_empty() && hint != name {
        return Err(mismatch);
    }
    Ok(*name)
}

const fn given_or(hint: u64, default: u64) -> u64 {
    if hint != 0 {
        hint
    } else {
        default
    }
}

/// Returns the capabilities of one side (a subset of `mask`) of an endpoint with `caps`: those in
/// the hint, completed by those of the endpoint.
fn side_caps(hint: u64, caps: Caps, mask: Caps) -> Option<u64> {
    let hint = Caps::from_bits(hint).ok()?;
    let all = caps & mask;
    if hint.is_empty() {
        return Some(all.bits());
    }
    all.contains(hint)
        .then_some((expand_caps(hint, caps) & all).bits())
}

/// Returns the default operation flags of one side.
fn op_flags(hint: u64, side: Side) -> Option<u64> {
    let hint = side.default_flags(hint).ok()?;
    match hint.is_empty() {
        true => Some(OpFlags::COMPLETION.bits()),
        false => Some(hint.bits()),
    }
}

#[cfg(any(test, kfi_kunit))]
mod tests;
