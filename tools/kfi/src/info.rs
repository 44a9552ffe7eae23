// SPDX-License-Identifier: GPL-2.0
//! `kfi_getinfo`: the available endpoints, with hints and entries.

use std::{fmt, net::SocketAddr};

use crate::{
    abi::{self, Call, calls},
    auth_key::AuthKey,
    device::Device,
    enums::{AddrFormat, AvKind, EpType, Progress, Protocol, ResourceMgmt, Threading},
    error::Result,
    flags::{Caps, MrMode, MsgOrder, OpFlags},
    setters::setters,
};

/// A version of the interface: major and minor number.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Version {
    /// Major number.
    pub major: u16,
    /// Minor number.
    pub minor: u16,
}

impl Version {
    /// From `KFI_VERSION(major, minor)`.
    pub const fn from_raw(raw: u32) -> Self {
        Self {
            major: (raw >> 16) as u16,
            minor: raw as u16,
        }
    }

    /// `KFI_VERSION(major, minor)`.
    pub const fn raw(self) -> u32 {
        (self.major as u32) << 16 | self.minor as u32
    }
}

impl fmt::Display for Version {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}.{}", self.major, self.minor)
    }
}

/// Hints of [`Device::getinfo`].  The provider chooses all values that are not
/// given.
///
/// ```no_run
/// use kfi::{Caps, Device, EpType, Hints};
///
/// let device = Device::open()?;
/// let hints = Hints::new().caps(Caps::MSG | Caps::TAGGED).ep_type(EpType::Rdm);
/// for info in device.getinfo(&hints)? {
///     println!("{} {}", info.domain_name, info.ep_type);
/// }
/// # Ok::<(), kfi::Error>(())
/// ```
#[derive(Clone, Debug, Default)]
#[must_use]
pub struct Hints {
    version: u32,
    source: bool,
    node: String,
    service: String,
    domain_name: String,
    fabric_name: String,
    prov_name: String,
    raw: abi::kfabric_info,
}

impl Hints {
    /// Anything.
    pub fn new() -> Self {
        Self::default()
    }

    setters! {
        /// Version of the API, 1.7 at most.
        version(version: Version) => version = version.raw();

        /// Numeric address, of the peer unless [`source`](Hints::source). That of this side can
        /// also be the name of a link.
        node(node: &str) => node = node.to_owned();

        /// Port number, of the peer unless [`source`](Hints::source).
        service(service: &str) => service = service.to_owned();
    }

    /// Node and service name this side.
    pub fn source(mut self) -> Self {
        self.source = true;
        self
    }

    setters! {
        /// Capabilities.
        caps(caps: Caps) => raw.caps = caps.bits();

        /// Type of endpoint.
        ep_type(ep_type: EpType) => raw.ep_type = ep_type.raw();

        /// Format of addresses.
        addr_format(format: AddrFormat) => raw.addr_format = format.raw();

        /// Address of this side.
        src_addr(addr: SocketAddr) => raw.src_addr = addr.into();

        /// Address of the peer.
        dest_addr(addr: SocketAddr) => raw.dest_addr = addr.into();

        /// Registration modes that the program supports.
        mr_mode(mode: MrMode) => raw.mr_mode = mode.bits();

        /// Name of the domain: of the link.
        domain_name(name: &str) => domain_name = name.to_owned();

        /// Name of the fabric.
        fabric_name(name: &str) => fabric_name = name.to_owned();

        /// Name of the provider.
        prov_name(name: &str) => prov_name = name.to_owned();
    }

    /// Authorization key of the endpoint.  Only entries for reliable datagrams match.
    pub fn auth_key(mut self, key: AuthKey) -> Self {
        self.raw.auth_key_size = abi::KFABRIC_AUTH_KEY_SIZE;
        self.raw.auth_key = key.bytes();
        self
    }

    /// Sets any other member of the structure; names are taken from the methods.
    pub fn with_raw(mut self, change: impl FnOnce(&mut abi::kfabric_info)) -> Self {
        change(&mut self.raw);
        self
    }

    pub(crate) fn getinfo(&self, device: &Device) -> Result<Vec<Info>> {
        let mut hints = self.raw;
        hints.domain_name = calls::chars("domain", &self.domain_name)?;
        hints.fabric_name = calls::chars("fabric", &self.fabric_name)?;
        hints.prov_name = calls::chars("provider", &self.prov_name)?;
        let arg = abi::kfabric_getinfo {
            version: self.version,
            flags: if self.source { abi::KFI_SOURCE } else { 0 },
            info_size: size_of::<abi::kfabric_info>() as u32,
            node: calls::chars("node", &self.node)?,
            service: calls::chars("service", &self.service)?,
            ..Call::sized()
        };
        // Links come and go: ask again until all entries fit.
        let mut infos = vec![abi::kfabric_info::default(); 16];
        loop {
            let count = calls::getinfo(device, arg, Some(&hints), &mut infos)?;
            if count <= infos.len() {
                infos.truncate(count);
                return Ok(infos.iter().map(Info::from).collect());
            }
            infos.resize(count + 8, abi::kfabric_info::default());
        }
    }
}

/// An available kind of endpoint on a link.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Info {
    /// Capabilities.
    pub caps: Caps,
    /// Type of endpoint.
    pub ep_type: EpType,
    /// Format of addresses.
    pub addr_format: AddrFormat,
    /// Address of this side.
    pub src_addr: Option<SocketAddr>,
    /// Address of the peer.
    pub dest_addr: Option<SocketAddr>,
    /// Name of the domain: of the link.
    pub domain_name: String,
    /// Name of the fabric.
    pub fabric_name: String,
    /// Name of the provider.
    pub prov_name: String,
    /// Version of the provider.
    pub prov_version: Version,
    /// Version of the API.
    pub api_version: Version,
    /// Transmits.
    pub tx: TxAttr,
    /// Receives.
    pub rx: RxAttr,
    /// Protocol on the wire.
    pub protocol: Protocol,
    /// Its version.
    pub protocol_version: u32,
    /// Bytes of one operation.
    pub max_msg_size: u64,
    /// Significant bits of a tag.
    pub mem_tag_format: u64,
    /// Authorization key; `None` if the hints have none.
    pub auth_key: Option<AuthKey>,
    /// Number of threads that may use an object at the same time.
    pub threading: Threading,
    /// The side that makes control operations progress.
    pub control_progress: Progress,
    /// The side that makes transfers progress.
    pub data_progress: Progress,
    /// The side that keeps queues from overflowing.
    pub resource_mgmt: ResourceMgmt,
    /// Type of address vector.
    pub av_type: AvKind,
    /// Registration modes.
    pub mr_mode: MrMode,
    /// Bytes of a key.
    pub mr_key_size: u64,
    /// Bytes of remote CQ data.
    pub cq_data_size: u64,
    /// Recommended number of CQs.
    pub cq_cnt: u64,
    /// Recommended number of endpoints.
    pub ep_cnt: u64,
    /// Recommended number of counters.
    pub cntr_cnt: u64,
    /// Recommended number of memory regions.
    pub mr_cnt: u64,
    /// Largest number of pieces of a memory region.
    pub mr_iov_limit: u64,
}

/// Attributes of an endpoint's transmits.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct TxAttr {
    /// Capabilities.
    pub caps: Caps,
    /// Default flags of operations.
    pub op_flags: OpFlags,
    /// Pairs of messages that stay in order.
    pub msg_order: MsgOrder,
    /// Pairs of completions that stay in order.
    pub comp_order: u64,
    /// Bytes of an injected operation.
    pub inject_size: u64,
    /// Transmits under way.
    pub size: u64,
    /// Pieces of local memory.
    pub iov_limit: u64,
    /// Pieces of remote memory.
    pub rma_iov_limit: u64,
}

/// Attributes of an endpoint's receives.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct RxAttr {
    /// Capabilities.
    pub caps: Caps,
    /// Default flags of operations.
    pub op_flags: OpFlags,
    /// Pairs of messages that stay in order.
    pub msg_order: MsgOrder,
    /// Pairs of completions that stay in order.
    pub comp_order: u64,
    /// Bytes of unexpected messages that are kept.
    pub total_buffered_recv: u64,
    /// Receives posted.
    pub size: u64,
    /// Pieces of local memory.
    pub iov_limit: u64,
}

impl From<&abi::kfabric_info> for Info {
    fn from(raw: &abi::kfabric_info) -> Self {
        Self {
            caps: Caps::from_bits_retain(raw.caps),
            ep_type: EpType::from_raw(raw.ep_type),
            addr_format: AddrFormat::from_raw(raw.addr_format),
            src_addr: raw.src_addr.to_std(),
            dest_addr: raw.dest_addr.to_std(),
            domain_name: calls::text(&raw.domain_name),
            fabric_name: calls::text(&raw.fabric_name),
            prov_name: calls::text(&raw.prov_name),
            prov_version: Version::from_raw(raw.prov_version),
            api_version: Version::from_raw(raw.api_version),
            tx: TxAttr {
                caps: Caps::from_bits_retain(raw.tx_caps),
                op_flags: OpFlags::from_bits_retain(raw.tx_op_flags),
                msg_order: MsgOrder::from_bits_retain(raw.tx_msg_order),
                comp_order: raw.tx_comp_order,
                inject_size: raw.tx_inject_size,
                size: raw.tx_size,
                iov_limit: raw.tx_iov_limit,
                rma_iov_limit: raw.tx_rma_iov_limit,
            },
            rx: RxAttr {
                caps: Caps::from_bits_retain(raw.rx_caps),
                op_flags: OpFlags::from_bits_retain(raw.rx_op_flags),
                msg_order: MsgOrder::from_bits_retain(raw.rx_msg_order),
                comp_order: raw.rx_comp_order,
                total_buffered_recv: raw.rx_total_buffered_recv,
                size: raw.rx_size,
                iov_limit: raw.rx_iov_limit,
            },
            protocol: Protocol::from_raw(raw.protocol),
            protocol_version: raw.protocol_version,
            max_msg_size: raw.max_msg_size,
            mem_tag_format: raw.mem_tag_format,
            auth_key: (raw.auth_key_size != 0).then(|| AuthKey::new(raw.auth_key)),
            threading: Threading::from_raw(raw.threading),
            control_progress: Progress::from_raw(raw.control_progress),
            data_progress: Progress::from_raw(raw.data_progress),
            resource_mgmt: ResourceMgmt::from_raw(raw.resource_mgmt),
            av_type: AvKind::from_raw(raw.av_type),
            mr_mode: MrMode::from_bits_retain(raw.mr_mode),
            mr_key_size: raw.mr_key_size,
            cq_data_size: raw.cq_data_size,
            cq_cnt: raw.cq_cnt,
            ep_cnt: raw.ep_cnt,
            cntr_cnt: raw.cntr_cnt,
            mr_cnt: raw.mr_cnt,
            mr_iov_limit: raw.mr_iov_limit,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn versions() {
        let version = Version { major: 1, minor: 7 };
        assert_eq!(version.raw(), 0x1_0007);
        assert_eq!(Version::from_raw(0x1_0007), version);
        assert_eq!(version.to_string(), "1.7");
        assert!(version > Version { major: 1, minor: 1 });
    }

    #[test]
    fn from_the_interface() {
        let raw = abi::kfabric_info {
            caps: abi::KFI_MSG | abi::KFI_RMA,
            ep_type: abi::KFI_EP_RDM,
            src_addr: "10.0.0.1:1".parse::<SocketAddr>().unwrap().into(),
            tx_size: 128,
            rx_size: 64,
            mr_mode: abi::KFI_MR_VIRT_ADDR,
            domain_name: calls::chars("", "roce0").unwrap(),
            prov_version: 0x2_0003,
            ..Default::default()
        };
        let info = Info::from(&raw);
        assert_eq!(info.caps, Caps::MSG | Caps::RMA);
        assert_eq!(info.ep_type, EpType::Rdm);
        assert_eq!(info.src_addr, "10.0.0.1:1".parse().ok());
        assert_eq!(info.dest_addr, None);
        assert_eq!((info.tx.size, info.rx.size), (128, 64));
        assert_eq!(info.mr_mode, MrMode::VIRT_ADDR);
        assert_eq!(info.domain_name, "roce0");
        assert_eq!(info.prov_version.to_string(), "2.3");
        assert_eq!(info.auth_key, None);
        let key = AuthKey::new([1, 2, 3, 4]);
        let with_key = Info::from(&Hints::new().auth_key(key).raw);
        assert_eq!(with_key.auth_key, Some(key));
    }
}
