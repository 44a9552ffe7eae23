// SPDX-License-Identifier: GPL-2.0
//! kfi_getinfo(): matching the caller's hints with the offers of the provider.
//!
//! A provider makes an [`Offer`] for each combination of link, address and endpoint type. The
//! caller's arguments become a [`Request`]; its hints are an [`Info`] in which 0 leaves the choice
//! to the provider. [`Offer::negotiate`] returns the entry for the caller, or the first attribute
//! that does not match ([`HintMismatch`]). If no offer matches completely, the call returns
//! `KFI_ENODATA`.
//!
//! | attribute              | a hint matches if it is             | value in the entry              |
//! |------------------------|-------------------------------------|---------------------------------|
//! | caps                   | a subset of those offered           | the hint, completed, and `*_COMM`; without a hint all but `TAGGED_RMA` |
//! | mode                   | anything                            | 0: nothing is required          |
//! | addr_format            | unspecified, sockaddr or the family | that of the family              |
//! | ep_type, protocol      | unspecified, or that of the offer   | that of the offer               |
//! | src_addr               | the address of the link, or any     | that of the link, with the port of the hint |
//! | node, if it is a name  | the name of the link                | (the domain has it)             |
//! | dest_addr              | of the same family                  | the hint                        |
//! | tx_caps, rx_caps       | a subset of caps, of that side      | the hint, completed, or all     |
//! | op_flags               | valid defaults of that side         | the hint, or `KFI_COMPLETION`   |
//! | msg_order, comp_order  | a subset of those offered           | that of the offer               |
//! | sizes (queues, buffer) | at most the limit                   | the hint, or the default        |
//! | limits, counts         | at most that of the offer           | that of the offer               |
//! | threading              | anything                            | `KFI_THREAD_SAFE`               |
//! | progress               | anything                            | `KFI_PROGRESS_AUTO`             |
//! | resource_mgmt          | not `KFI_RM_ENABLED`                | `KFI_RM_DISABLED`               |
//! | av_type                | anything                            | the hint, or `KFI_AV_TABLE`     |
//! | mr_mode                | anything                            | its `VIRT_ADDR` and `PROV_KEY`  |
//! | mr_key_size            | at most that of the offer           | the hint, or that of the offer  |
//! | mem_tag_format         | anything                            | the hint, or one field per bit  |
//! | auth_key_size, auth_key | 0; for RDM also 4                  | the hint                        |
//! | names                  | empty, or the same                  | those of the offer              |
//! | api_version            | at most 1.7                         | the requested one, or 1.7       |
//!
//! An unknown enumerator matches nothing. [`KernelAttr`] has the attributes that only kernel
//! modules see.
//!
//! The hints of the consumer kfilnd (RMA to tagged buffers, named receive contexts, peers on other
//! hosts) match [`Kind::RDM`].

mod kernel_attr;
mod kind;
mod offer;
mod shared;

pub use self::{
    kernel_attr::{
        is_class,
        KernelAttr,
        SHARED_CONTEXT, //
    },
    kind::Kind,
    offer::{
        HintMismatch,
        Offer, //
    },
    shared::{
        shared_rx,
        shared_tx,
        used_of_rx,
        used_of_tx, //
    }, //
};

use crate::{
    addr::{
        self,
        SockAddr, //
    },
    auth_key::AuthKey,
    errno::Errno,
    flags,
    limits, //
};

/// A name of a domain, a fabric or a provider, or a node or service. Empty if it is not given.
///
/// # Invariants
///
/// `len` is less than the size of `bytes`. The bytes before `len` are not 0; all others are 0.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Name {
    bytes: [u8; limits::NAME_MAX],
    len: usize,
}

impl Name {
    /// No name.
    pub const EMPTY: Self = Self {
        bytes: [0; limits::NAME_MAX],
        len: 0,
    };

    /// Makes a name from text without a NUL.
    ///
    /// # Errors
    ///
    /// `EINVAL`: the text is longer than [`NAME_MAX`](limits::NAME_MAX) - 1 bytes, or contains a
    /// NUL.
    pub fn new(text: &[u8]) -> Result<Self, Errno> {
        let mut name = Self::EMPTY;
        let len = text.len();
        if len >= limits::NAME_MAX || text.contains(&0) {
            return Err(Errno::EINVAL);
        }
        for (to, from) in name.bytes.iter_mut().zip(text) {
            *to = *from;
        }
        name.len = len;
        Ok(name)
    }

    /// Makes a name from a field of a structure. The name ends at the first NUL.
    ///
    /// # Errors
    ///
    /// `EINVAL`: there is no NUL, or the name is too long.
    pub fn from_field(field: &[u8]) -> Result<Self, Errno> {
        let len = field
            .iter()
            .position(|byte| *byte == 0)
            .ok_or(Errno::EINVAL)?;
        Self::new(field.get(..len).ok_or(Errno::EINVAL)?)
    }

    /// Returns the name without its NUL.
    pub fn as_bytes(&self) -> &[u8] {
        self.bytes.get(..self.len).unwrap_or_default()
    }

    /// Returns the name, padded with at least one zero.
    pub const fn field(&self) -> &[u8; limits::NAME_MAX] {
        &self.bytes
    }

    /// Returns whether the name is empty.
    pub const fn is_empty(&self) -> bool {
        self.len == 0
    }
}

/// Attributes of the transmit side (`struct kfi_tx_attr`).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[expect(missing_docs, reason = "the members of struct kfi_tx_attr")]
pub struct TxAttr {
    pub caps: u64,
    pub op_flags: u64,
    pub msg_order: u64,
    pub comp_order: u64,
    pub inject_size: u64,
    pub size: u64,
    pub iov_limit: u64,
    pub rma_iov_limit: u64,
}

/// Attributes of the receive side (`struct kfi_rx_attr`).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[expect(missing_docs, reason = "the members of struct kfi_rx_attr")]
pub struct RxAttr {
    pub caps: u64,
    pub op_flags: u64,
    pub msg_order: u64,
    pub comp_order: u64,
    pub total_buffered_recv: u64,
    pub size: u64,
    pub iov_limit: u64,
}

/// Attributes of the endpoint (`struct kfi_ep_attr`).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[expect(missing_docs, reason = "the members of struct kfi_ep_attr")]
pub struct EpAttr {
    pub ep_type: u32,
    pub protocol: u32,
    pub protocol_version: u32,
    pub max_msg_size: u64,
    pub mem_tag_format: u64,
    pub auth_key_size: u64,
    pub auth_key: AuthKey,
}

impl EpAttr {
    /// Returns the authorization key of an endpoint of `kind` with these attributes;
    /// [`AuthKey::NONE`] if they have none (`auth_key_size` 0).
    ///
    /// # Errors
    ///
    /// `AuthKeySize`: keys of endpoints of the kind have another length, or there are none.
    pub fn key_for(&self, kind: &Kind) -> Result<AuthKey, HintMismatch> {
        match self.auth_key_size {
            0 => Ok(AuthKey::NONE),
            size if size == kind.auth_key_size => Ok(self.auth_key),
            _ => Err(HintMismatch::AuthKeySize),
        }
    }
}

/// Attributes of the domain (`struct kfi_domain_attr`).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[expect(missing_docs, reason = "the members of struct kfi_domain_attr")]
pub struct DomainAttr {
    pub name: Name,
    pub threading: u32,
    pub control_progress: u32,
    pub data_progress: u32,
    pub resource_mgmt: u32,
    pub av_type: u32,
    pub mr_mode: u32,
    pub mr_key_size: u64,
    pub cq_data_size: u64,
    pub cq_cnt: u64,
    pub ep_cnt: u64,
    pub cntr_cnt: u64,
    pub mr_cnt: u64,
    pub mr_iov_limit: u64,
}

/// Attributes of the fabric (`struct kfi_fabric_attr`).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[expect(missing_docs, reason = "the members of struct kfi_fabric_attr")]
pub struct FabricAttr {
    pub name: Name,
    pub prov_name: Name,
    pub prov_version: u32,
    pub api_version: u32,
}

/// Hints, or an entry of the result (`struct kfi_info`, `struct kfabric_info`).
///
/// In hints the numbers are those of the caller and are unchecked; an invalid number matches
/// nothing. In an entry that [`Offer::negotiate`] returned they are valid.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[expect(missing_docs, reason = "the members of struct kfi_info")]
pub struct Info {
    pub caps: u64,
    pub mode: u64,
    pub addr_format: u32,
    pub src_addr: Option<SockAddr>,
    pub dest_addr: Option<SockAddr>,
    pub tx: TxAttr,
    pub rx: RxAttr,
    pub ep: EpAttr,
    pub domain: DomainAttr,
    pub fabric: FabricAttr,
}

impl Info {
    /// Hints that leave everything to the provider.
    pub const ANY: Self = Self {
        caps: 0,
        mode: 0,
        addr_format: 0,
        src_addr: None,
        dest_addr: None,
        tx: TxAttr {
            caps: 0,
            op_flags: 0,
            msg_order: 0,
            comp_order: 0,
            inject_size: 0,
            size: 0,
            iov_limit: 0,
            rma_iov_limit: 0,
        },
        rx: RxAttr {
            caps: 0,
            op_flags: 0,
            msg_order: 0,
            comp_order: 0,
            total_buffered_recv: 0,
            size: 0,
            iov_limit: 0,
        },
        ep: EpAttr {
            ep_type: 0,
            protocol: 0,
            protocol_version: 0,
            max_msg_size: 0,
            mem_tag_format: 0,
            auth_key_size: 0,
            auth_key: AuthKey::NONE,
        },
        domain: DomainAttr {
            name: Name::EMPTY,
            threading: 0,
            control_progress: 0,
            data_progress: 0,
            resource_mgmt: 0,
            av_type: 0,
            mr_mode: 0,
            mr_key_size: 0,
            cq_data_size: 0,
            cq_cnt: 0,
            ep_cnt: 0,
            cntr_cnt: 0,
            mr_cnt: 0,
            mr_iov_limit: 0,
        },
        fabric: FabricAttr {
            name: Name::EMPTY,
            prov_name: Name::EMPTY,
            prov_version: 0,
            api_version: 0,
        },
    };
}

/// The arguments of kfi_getinfo() besides the hints.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Request {
    /// The requested API version; 0 for any.
    version: u32,
    /// The address is the caller's own (`KFI_SOURCE`).
    source: bool,
    /// The address of `node`, with the port of `service`, if `node` was given.
    addr: Option<SockAddr>,
    /// The port of `service`.
    port: Option<u16>,
    /// The link that `node` names instead of an address; empty if it does not.
    link: Name,
}

impl Request {
    /// A request without restrictions.
    pub const ANY: Self = Self {
        version: 0,
        source: false,
        addr: None,
        port: None,
        link: Name::EMPTY,
    };

    /// Makes a request from the arguments. `node` and `service` have no NUL; they are empty if not
    /// given. With `KFI_SOURCE`, a `node` that is no address is the name of a link: the caller's
    /// own address is then one of those of that link.
    ///
    /// # Errors
    ///
    /// `ENOSYS`: `version` is newer than 1.7. `EINVAL`: a flag is unknown; `node` is not a numeric
    /// address and cannot be a link's name; `service` is not a port; or `service` is given without
    /// `node` and without `KFI_SOURCE`, so its address is unknown.
    pub fn new(version: u32, flags: u64, node: &[u8], service: &[u8]) -> Result<Self, Errno> {
        if version > limits::API_VERSION {
            return Err(Errno::ENOSYS);
        }
        if flags & !flags::KFI_SOURCE != 0 {
            return Err(Errno::EINVAL);
        }
        let source = flags & flags::KFI_SOURCE != 0;
        let port = match service {
            [] => None,
            text => Some(addr::parse_service(text)?),
        };
        let (addr, link) = match (node, SockAddr::parse_node(node)) {
            ([], _) => (None, Name::EMPTY),
            (_, Ok(addr)) => (Some(addr.with_port(port.unwrap_or(0))), Name::EMPTY),
            (name, Err(_)) if source => (None, Name::new(name)?),
            (_, Err(error)) => return Err(error),
        };
        if addr.is_none() && port.is_some() && !source {
            return Err(Errno::EINVAL);
        }
        Ok(Self {
            version,
            source,
            addr,
            port,
            link,
        })
    }

    /// Returns whether `node` is the name of a link, and not a numeric address.
    pub const fn names_link(&self) -> bool {
        !self.link.is_empty()
    }

    /// Returns the address that the caller gives as its own: `node` with `KFI_SOURCE`, otherwise
    /// that of the hints.
    pub fn own_addr(&self, hints: &Info) -> Option<SockAddr> {
        let node = if self.source { self.addr } else { None };
        node.or(hints.src_addr)
    }

    /// Returns the address that the caller wants to reach: `node` without `KFI_SOURCE`, otherwise
    /// that of the hints.
    pub fn peer_addr(&self, hints: &Info) -> Option<SockAddr> {
        let node = if self.source { None } else { self.addr };
        node.or(hints.dest_addr)
    }
}

#[cfg(any(test, kfi_kunit))]
#[cfg_attr(kfi_kunit, kernel::prelude::kunit_tests(kfi_core_info))]
mod tests {
    use super::*;

    #[test]
    fn names_have_a_maximum_length_and_no_nul() {
        let longest = [b'x'; limits::NAME_MAX - 1];
        assert_eq!(
            Name::new(&longest).as_ref().map(Name::as_bytes),
            Ok(&longest[..])
        );
        assert_eq!(Name::new(&[b'x'; limits::NAME_MAX]), Err(Errno::EINVAL));
        assert_eq!(Name::new(b"a\0b"), Err(Errno::EINVAL));
        assert_eq!(Name::new(b""), Ok(Name::EMPTY));
        assert_eq!(Name::from_field(b"ab\0cd"), Name::new(b"ab"));
        assert_eq!(Name::from_field(b"ab"), Err(Errno::EINVAL));
        assert_eq!(Name::from_field(b"\0"), Ok(Name::EMPTY));
        let mut field = [b'x'; limits::NAME_MAX + 1];
        if let Some(last) = field.last_mut() {
            *last = 0;
        }
        assert_eq!(Name::from_field(&field), Err(Errno::EINVAL));
        assert_eq!(Name::EMPTY.field(), &[0; limits::NAME_MAX]);
        assert!(Name::EMPTY.is_empty());
    }

    #[test]
    fn newer_api_versions_are_refused() {
        for version in [0, 1, 1 << 16, (1 << 16) | 7] {
            assert!(Request::new(version, 0, b"", b"").is_ok());
        }
        for version in [(1 << 16) | 8, 2 << 16, u32::MAX] {
            assert_eq!(Request::new(version, 0, b"", b""), Err(Errno::ENOSYS));
        }
    }

    #[test]
    fn invalid_flags_and_texts_are_refused() {
        let einval = Err(Errno::EINVAL);
        let source = flags::KFI_SOURCE;
        assert_eq!(Request::new(0, 0, b"", b""), Ok(Request::ANY));
        assert!(Request::new(0, source, b"::1", b"80").is_ok());
        assert!(Request::new(0, source, b"", b"80").is_ok());
        assert!(Request::new(0, 0, b"::1", b"").is_ok());
        assert_eq!(Request::new(0, source | 1, b"", b""), einval);
        assert_eq!(Request::new(0, 1 << 54, b"", b""), einval);
        assert_eq!(Request::new(0, 0, b"", b"80"), einval);
        assert_eq!(Request::new(0, 0, b"host", b""), einval);
        assert_eq!(Request::new(0, source, &[b'x'; 64], b""), einval);
        assert_eq!(Request::new(0, 0, b"::1", b"http"), einval);
    }

    #[test]
    fn a_node_of_the_caller_can_be_a_link() {
        let source = flags::KFI_SOURCE;
        let link = Request::new(0, source, b"roce0", b"80");
        assert_eq!(link.map(|link| link.names_link()), Ok(true));
        assert_eq!(link.map(|link| link.own_addr(&Info::ANY)), Ok(None));
        for addr in [&b"10.0.0.1"[..], b"0x0a000001", b"::1", b""] {
            let request = Request::new(0, source, addr, b"80");
            assert_eq!(request.map(|request| request.names_link()), Ok(false));
        }
    }

    #[test]
    fn an_address_is_the_callers_or_the_peers() {
        let at = |node: &[u8]| SockAddr::parse(node, b"80").ok();
        let mut hints = Info::ANY;
        hints.src_addr = at(b"10.0.0.1");
        hints.dest_addr = at(b"10.0.0.2");
        let ask = |flags, node| {
            let request = Request::new(0, flags, node, b"80").unwrap_or(Request::ANY);
            (request.own_addr(&hints), request.peer_addr(&hints))
        };
        let source = flags::KFI_SOURCE;
        assert_eq!(ask(source, b"::1"), (at(b"::1"), at(b"10.0.0.2")));
        assert_eq!(ask(0, b"::1"), (at(b"10.0.0.1"), at(b"::1")));
        assert_eq!(ask(source, b""), (at(b"10.0.0.1"), at(b"10.0.0.2")));
        assert_eq!(Request::ANY.own_addr(&Info::ANY), None);
        assert_eq!(Request::ANY.peer_addr(&Info::ANY), None);
    }
}
