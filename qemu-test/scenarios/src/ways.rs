// SPDX-License-Identifier: GPL-2.0
//! The ways in which an endpoint reaches its peer. Statements of the manual pages hold for all of
//! them, and each has a path of its own through the module.

use crate::{
    connected::connect,
    host::{Host, Options},
    hosts::apart,
};
use kfi::{Caps, EpType, FiAddr};

/// See the top of the file.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Way {
    /// Reliable datagrams on one host.
    OneHost,
    /// Reliable datagrams between two hosts.
    TwoHosts,
    /// A connection.
    Connection,
    /// Datagrams.
    Datagrams,
}

impl Way {
    /// The type of the endpoints.
    pub(crate) fn ep_type(self) -> EpType {
        match self {
            Self::OneHost | Self::TwoHosts => EpType::Rdm,
            Self::Connection => EpType::Msg,
            Self::Datagrams => EpType::Dgram,
        }
    }

    /// Whether there is RMA.
    pub(crate) fn has_rma(self) -> bool {
        self != Self::Datagrams
    }

    /// The options of a host with the type and the capabilities of the way.
    pub(crate) fn options(self, options: &Options) -> Options {
        Options {
            ep_type: self.ep_type(),
            caps: match self {
                Self::OneHost | Self::TwoHosts => options.caps,
                Self::Connection => Caps::MSG | Caps::RMA | (options.caps & Caps::ATOMIC),
                Self::Datagrams => Caps::MSG | Caps::SOURCE | Caps::MULTI_RECV,
            },
            ..*options
        }
    }

    /// Introduces two hosts to each other. Returns what the first one calls the second one.
    pub(crate) fn introduce(self, a: &Host, b: &Host) -> FiAddr {
        if self == Self::Connection {
            connect(a, b);
            return FiAddr::UNSPEC;
        }
        a.meet(b)
    }

    /// Two hosts with these options, and what the first one calls the second one. The type and the
    /// capabilities are those of the way.
    pub(crate) fn pair_with(self, options: &Options) -> (Host, FiAddr, Host) {
        if self == Self::TwoHosts {
            apart();
        }
        let options = self.options(options);
        let (a, b) = (Host::with(&options), Host::with(&options));
        let to_b = self.introduce(&a, &b);
        (a, to_b, b)
    }

    /// With the usual options.
    pub(crate) fn pair(self) -> (Host, FiAddr, Host) {
        self.pair_with(&Options::default())
    }
}
