// SPDX-License-Identifier: GPL-2.0
//! The QP under a connected or a datagram endpoint: for peers that do not use kfabric, and that are
//! found without the CM.
//!
//! ```no_run
//! # fn f(ep: kfi::Endpoint, tell: impl FnOnce(kfi::QpInfo) -> (kfi::QpAddr, u32)) -> kfi::Result<()> {
//! ep.enable()?;
//! // Each end tells the other its QP, on a way of their own.
//! let (peer, psn) = tell(ep.qp()?);
//! ep.connect_qp(peer, psn)?;
//! # Ok(())
//! # }
//! ```

use std::net::{IpAddr, Ipv6Addr, SocketAddr};

use crate::{
    abi::{self, Call, calls},
    addr::FiAddr,
    av::Av,
    enums::QpState,
    ep::Endpoint,
    error::{Error, Result},
};

/// The address of a QP.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct QpAddr {
    /// The IP address, with the scope of a link-local one; the port does not
    /// matter.
    pub host: SocketAddr,
    /// The number of the QP, 24 bits.
    pub qpn: u32,
}

impl From<QpAddr> for abi::kfabric_sockaddr {
    fn from(addr: QpAddr) -> Self {
        let mut host = addr.host;
        host.set_port(0);
        Self {
            qpn: addr.qpn,
            ..Self::from(host)
        }
    }
}

/// The address of a peer.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum PeerAddr {
    /// An address and port.
    Socket(SocketAddr),
    /// A QP: the peer was connected to by hand.
    Qp(QpAddr),
}

impl abi::kfabric_sockaddr {
    /// As the address of a peer; `None` if the family is neither IPv4 nor
    /// IPv6, as for "no address".
    pub fn to_peer(&self) -> Option<PeerAddr> {
        let host = self.to_std()?;
        Some(match self.qpn {
            0 => PeerAddr::Socket(host),
            qpn => PeerAddr::Qp(QpAddr { host, qpn }),
        })
    }
}

/// The attributes of a QP that its peer needs, and its state.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct QpInfo {
    /// Its number, 24 bits.
    pub qpn: u32,
    /// PSN of the first packet that it sends; 0 for datagrams.
    pub psn: u32,
    /// Its GID: its IPv6 address, or its IPv4 address mapped into one.
    pub gid: [u8; 16],
    /// The peer's number, if it has a peer.
    pub dest_qpn: Option<u32>,
    /// Its state.
    pub state: QpState,
    /// Path MTU, bytes, if it is known: towards its peer; of datagrams, the
    /// longest message.
    pub path_mtu: Option<u32>,
}

impl QpInfo {
    /// Its IP address.
    pub fn ip(&self) -> IpAddr {
        ip_of_gid(self.gid)
    }
}

/// The IP address of a GID.
pub fn ip_of_gid(gid: [u8; 16]) -> IpAddr {
    Ipv6Addr::from(gid).to_canonical()
}

/// Options of a QP that connects, see ibv_modify_qp(3).
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum QpOption {
    /// Path MTU, bytes: 256, 512, 1024, 2048, 4096; 0: as much as the path allows.
    PathMtu,
    /// Local ACK timeout, a code: 4.096 us times 2 to its power; 0: none. It grows to four times
    /// its value while the peer does not answer.
    Timeout,
    /// Retries of packets without an answer, 0 to 7.
    RetryCnt,
    /// Retries towards a peer that has no receive posted, 0 to 6; 7: without limit.
    RnrRetry,
    /// The time that a peer waits after it found no receive here, a code of InfiniBand's.
    MinRnrTimer,
    /// READs and atomics that may be under way, 0 to 16.
    RdAtomic,
    /// READs and atomics of the peer that may be under way, 0 to 16.
    DestRdAtomic,
}

impl QpOption {
    fn raw(self) -> u32 {
        match self {
            Self::PathMtu => abi::KFABRIC_OPT_PATH_MTU,
            Self::Timeout => abi::KFABRIC_OPT_TIMEOUT,
            Self::RetryCnt => abi::KFABRIC_OPT_RETRY_CNT,
            Self::RnrRetry => abi::KFABRIC_OPT_RNR_RETRY,
            Self::MinRnrTimer => abi::KFABRIC_OPT_MIN_RNR_TIMER,
            Self::RdAtomic => abi::KFABRIC_OPT_RD_ATOMIC,
            Self::DestRdAtomic => abi::KFABRIC_OPT_DEST_RD_ATOMIC,
        }
    }
}

/// The QP under a connected or datagram endpoint.
impl Endpoint {
    /// Its QP.
    ///
    /// # Errors
    ///
    /// `EOPNOTSUPP`: reliable datagrams have none of their own;
    /// `KFI_EOPBADSTATE`: not enabled.
    pub fn qp(&self) -> Result<QpInfo> {
        let mut arg = abi::kfabric_ep_qp {
            ep: self.handle(),
            ..Call::sized()
        };
        calls::plain(self.device(), &mut arg)?;
        Ok(QpInfo {
            qpn: arg.qpn,
            psn: arg.psn,
            gid: arg.gid,
            dest_qpn: (arg.dest_qpn != 0).then_some(arg.dest_qpn),
            state: QpState::from_raw(arg.state),
            path_mtu: (arg.path_mtu != 0).then_some(arg.path_mtu),
        })
    }

    /// Connects its QP with that of a peer, whose first packet will have this PSN.  The call
    /// enables the endpoint if necessary; there is no event.
    ///
    /// # Errors
    ///
    /// Those of [`enable`](Endpoint::enable); `EOPNOTSUPP`: another type than
    /// [`EpType::Msg`](crate::EpType::Msg); `EINVAL`: the address belongs to no host or is of
    /// another family, number or PSN have more than 24 bits; `EADDRNOTAVAIL`, `ENETUNREACH`,
    /// `EHOSTUNREACH`, `EMSGSIZE` as [`connect`](Endpoint::connect); `EISCONN`: connected already.
    pub fn connect_qp(&self, peer: QpAddr, psn: u32) -> Result<()> {
        let mut arg = abi::kfabric_ep_connect_qp {
            ep: self.handle(),
            addr: peer.into(),
            psn,
            ..Call::sized()
        };
        calls::plain(self.device(), &mut arg)
    }

    /// Ends the connection: transmits that are under way and posted receives
    /// end with `ECANCELED`.
    ///
    /// # Errors
    ///
    /// `EOPNOTSUPP`: another type than [`EpType::Msg`](crate::EpType::Msg);
    /// `ENOTCONN`: not connected, or not any more.
    pub fn shutdown(&self) -> Result<()> {
        let mut arg = abi::kfabric_ep_shutdown {
            ep: self.handle(),
            ..Call::sized()
        };
        calls::plain(self.device(), &mut arg)
    }

    /// The address of the peer to which it is or was connected.
    ///
    /// # Errors
    ///
    /// `EOPNOTSUPP`: another type than [`EpType::Msg`](crate::EpType::Msg);
    /// `ENOTCONN`: never connected.
    pub fn peer(&self) -> Result<PeerAddr> {
        let mut arg = abi::kfabric_ep_peer {
            ep: self.handle(),
            ..Call::sized()
        };
        calls::plain(self.device(), &mut arg)?;
        arg.addr
            .to_peer()
            .ok_or(Error::Nonsense("an address of no family"))
    }

    /// An option of the QP of a connected endpoint.
    ///
    /// # Errors
    ///
    /// `ENOPROTOOPT`: another type of endpoint.
    pub fn qp_option(&self, option: QpOption) -> Result<u64> {
        self.opt(abi::KFABRIC_OPT_QP, option.raw(), None)
    }

    /// Sets an option of the QP of a connected endpoint, before it connects.
    ///
    /// # Errors
    ///
    /// `ENOPROTOOPT`: another type of endpoint; `EINVAL`: not a value that it
    /// can have; `KFI_EOPBADSTATE`: it was connected.
    pub fn set_qp_option(&self, option: QpOption, value: u64) -> Result<()> {
        self.opt(abi::KFABRIC_OPT_QP, option.raw(), Some(value))
            .map(drop)
    }

    /// The Q key of a datagram endpoint, with which it sends and receives.
    ///
    /// # Errors
    ///
    /// `ENOPROTOOPT`: another type of endpoint.
    pub fn qkey(&self) -> Result<u32> {
        let qkey = self.opt(abi::KFABRIC_OPT_QP, abi::KFABRIC_OPT_QKEY, None)?;
        u32::try_from(qkey).map_err(|_| Error::Nonsense("a long Q key"))
    }

    /// Sets the Q key of a datagram endpoint, before it is enabled.
    ///
    /// # Errors
    ///
    /// `ENOPROTOOPT`: another type of endpoint; `EPERM`: the highest bit is
    /// set; `KFI_EOPBADSTATE`: enabled.
    pub fn set_qkey(&self, qkey: u32) -> Result<()> {
        self.opt(
            abi::KFABRIC_OPT_QP,
            abi::KFABRIC_OPT_QKEY,
            Some(qkey.into()),
        )
        .map(drop)
    }
}

impl Av {
    /// Inserts a QP: a peer of datagram endpoints that does not use kfabric.
    ///
    /// # Errors
    ///
    /// `EINVAL`: no number of a QP; else as [`Av::insert`].
    pub fn insert_qp(&self, addr: QpAddr) -> Result<FiAddr> {
        let mut fi_addrs = [FiAddr::NOTAVAIL];
        calls::av_insert(
            self.device(),
            self.handle(),
            &[addr.into()],
            &mut fi_addrs,
            &mut [],
            0,
        )?;
        fi_addrs[0]
            .known()
            .ok_or(Error::Nonsense("no address for the one inserted"))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn addresses_of_qps() {
        let addr = QpAddr {
            host: "10.0.0.1:7471".parse().unwrap(),
            qpn: 0xa2,
        };
        let raw = abi::kfabric_sockaddr::from(addr);
        assert_eq!((raw.port, raw.qpn), (0, 0xa2));
        let host = "10.0.0.1:0".parse().unwrap();
        assert_eq!(
            raw.to_peer(),
            Some(PeerAddr::Qp(QpAddr { host, qpn: 0xa2 }))
        );
        let socket: SocketAddr = "[::1]:5".parse().unwrap();
        assert_eq!(
            abi::kfabric_sockaddr::from(socket).to_peer(),
            Some(PeerAddr::Socket(socket))
        );
        assert_eq!(abi::kfabric_sockaddr::default().to_peer(), None);
    }

    #[test]
    fn gids() {
        let mapped: Ipv6Addr = "::ffff:192.0.2.1".parse().unwrap();
        assert_eq!(
            ip_of_gid(mapped.octets()),
            "192.0.2.1".parse::<IpAddr>().unwrap()
        );
        let v6: Ipv6Addr = "2001:db8::1".parse().unwrap();
        assert_eq!(ip_of_gid(v6.octets()), IpAddr::V6(v6));
    }
}
