// SPDX-License-Identifier: GPL-2.0
//! The messages between the two commands of an allreduce between two hosts.
//!
//! They travel as those of `kfi pingpong` do. The client begins with [`Hello`]; then it announces
//! each run with [`FromClient::Prepare`], and starts it when the server has prepared its part. No
//! message is sent between the start and the end of a run.

use std::net::SocketAddr;

use kfi::collective::Form;
use serde::{Deserialize, Serialize};

use super::observe::Fired;

/// Version of these messages.
pub(crate) const VERSION: u32 = 1;

/// A client's message to the server.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub(crate) enum FromClient {
    /// The client wants to begin.
    Hello(Hello),
    /// What time is it at the server?
    Clock,
    /// The server prepares its part of a run, and reports how it ends.
    Prepare(Prepare),
    /// All runs are over.
    Bye,
}

/// The client's request.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub(crate) struct Hello {
    /// [`VERSION`].
    pub(crate) version: u32,
    /// Address for the answers.
    pub(crate) control: SocketAddr,
    /// Endpoints of both hosts.
    pub(crate) endpoints: usize,
    /// Words of the vector.
    pub(crate) words: usize,
    /// Addresses of the client's endpoints.
    pub(crate) addresses: Vec<SocketAddr>,
}

/// A run.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Prepare {
    /// Its number, which the inputs depend on.
    pub(crate) run: u64,
    /// The party that starts its operations.
    pub(crate) by: By,
    /// A thread observes the counters.
    pub(crate) observed: bool,
}

/// The party that starts the operations of a run: [`Form`], for a message.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub(crate) enum By {
    /// The module.
    Counters,
    /// The programs.
    Programs,
    /// The programs, which add up by themselves.
    Adding,
}

impl From<By> for Form {
    fn from(by: By) -> Self {
        match by {
            By::Counters => Self::Deferred,
            By::Programs => Self::Driven,
            By::Adding => Self::DrivenAdding,
        }
    }
}

/// The server's answers.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub(crate) enum FromServer {
    /// To a hello: the addresses of the server's endpoints.
    Welcome {
        /// In the order of their ranks.
        addresses: Vec<SocketAddr>,
    },
    /// The server cannot do what was asked, and ends.
    No {
        /// Why not.
        why: String,
    },
    /// The server's clock, in nanoseconds since some time.
    Clock {
        /// Now.
        ns: u64,
    },
    /// The server's part of a run is prepared.
    Ready,
    /// Some of what the server's thread saw; times are those of its clock.
    Seen {
        /// The observations.
        fired: Vec<Fired>,
    },
    /// The server's part of a run is complete, and the result is right.
    Done,
}

/// Observations in one message.
pub(crate) const SEEN: usize = 64;

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{pingpong::control::ROOM, trigger::observe::What};
    use kfi::collective::MAX_RANKS;

    fn longest_address() -> SocketAddr {
        "[ffff:ffff:ffff:ffff:ffff:ffff:ffff:ffff]:65535"
            .parse()
            .unwrap()
    }

    #[test]
    fn messages_survive_encoding_and_fit_the_buffer() {
        let hello = FromClient::Hello(Hello {
            version: VERSION,
            control: longest_address(),
            endpoints: MAX_RANKS,
            words: usize::MAX,
            addresses: vec![longest_address(); MAX_RANKS / 2],
        });
        let text = serde_json::to_vec(&hello).unwrap();
        assert!(text.len() < ROOM, "{}", text.len());
        assert_eq!(serde_json::from_slice::<FromClient>(&text).unwrap(), hello);
        let fired = Fired {
            rank: MAX_RANKS - 1,
            chunk: MAX_RANKS - 1,
            what: What::Received,
            ns: u64::MAX,
        };
        let seen = FromServer::Seen {
            fired: vec![fired; SEEN],
        };
        let text = serde_json::to_vec(&seen).unwrap();
        assert!(text.len() < ROOM, "{}", text.len());
        assert_eq!(serde_json::from_slice::<FromServer>(&text).unwrap(), seen);
    }

    #[test]
    fn a_message_of_pingpong_is_not_understood() {
        assert!(serde_json::from_str::<FromClient>(r#"{"bye":{"answers":3}}"#).is_err());
    }
}
