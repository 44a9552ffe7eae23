// SPDX-License-Identifier: GPL-2.0
//! The greeting that two endpoints exchange when they connect, as private data of connection
//! management.
//!
//! ```text
//!  0       1       2               4               8
//! +-------+-------+---------------+---------------+
//! |version| reads | port          | capabilities  |   in a REQ and in a REP
//! +-------+-------+---------------+---------------+
//! | incarnation                                   |
//! +-----------------------------------------------+
//! | epoch                                         |
//! +-----------------------------------------------+
//! | cookie                                        |
//! +---------------+-------------------------------+
//! | name port     | authorization key             |
//! +---------------+-------------------------------+ 38
//!
//! +-------+-------+-------------------------------+
//! |version| reason| 0                             |   in a REJ
//! +-------+-------+-------------------------------+
//! | cookie                                        |
//! +-----------------------------------------------+ 16
//! ```
//!
//! All fields are big endian. Bytes after them are ignored, because private data has a fixed
//! length.
//!
//! A **cookie** of 0 means that there is none. A REJ has one if its reason is [`Refusal::Retry`],
//! and the next REQ of its receiver repeats it. See [`unproven`](super::unproven).
//!
//! The **name port** is the port of the name of a scalable endpoint, of which the endpoint is a
//! context (see [`peer`](crate::peer)). Messages have the name as their source. 0 stands for the
//! port, so an endpoint that is no context sends what versions without names send. A peer that does
//! not know names ignores the field, and takes each context for an endpoint.
//!
//! An endpoint refuses the greeting of an endpoint with another [authorization key](AuthKey). A
//! peer that does not know keys has the key of zeros.
//!
//! An **incarnation** is a random number that an endpoint has for its lifetime. An endpoint that is
//! closed and opened again at the same address, or whose host was restarted, has another one. An
//! **epoch** counts the connections that an endpoint has requested or accepted, with all peers. Of
//! two epochs of one incarnation the larger is the later.

use super::unproven::Cookie;
use crate::{
    auth_key::AuthKey,
    flags::Caps,
    peer::PeerAddr, //
};
use kfi_roce::bytes::{
    Reader,
    Writer, //
};

/// The version that this module implements, of the greeting and of the [headers](super::header).
pub const VERSION: u8 = super::header::VERSION;

/// The length of a [`Hello`] in bytes.
pub const HELLO_LEN: usize = 34 + AuthKey::LEN;

/// The length of a [`Refusal`] in bytes.
pub const REFUSAL_LEN: usize = 16;

/// The capabilities that a peer needs to know: the operations that this endpoint can be the target
/// of.
const CAPS: [(u32, Caps); 7] = [
    (1 << 0, Caps::MSG.union(Caps::RECV)),
    (1 << 1, Caps::TAGGED.union(Caps::RECV)),
    (1 << 2, Caps::RMA.union(Caps::REMOTE_READ)),
    (1 << 3, Caps::RMA.union(Caps::REMOTE_WRITE)),
    (1 << 4, Caps::ATOMIC.union(Caps::REMOTE_READ)),
    (1 << 5, Caps::ATOMIC.union(Caps::REMOTE_WRITE)),
    (1 << 6, Caps::TAGGED_RMA),
];

/// The reason for which private data is not a greeting.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Unknown {
    /// The data is too short, or a field is invalid.
    Malformed,
    /// The data has another version.
    Version,
}

/// The incarnation of an endpoint and the epoch of a connection.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PeerEpoch {
    /// The incarnation, a random number.
    pub incarnation: u64,
    /// The epoch, counted from 1.
    pub epoch: u64,
}

/// The greeting of an endpoint.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Hello {
    /// The incarnation and the epoch.
    pub peer_epoch: PeerEpoch,
    /// The port of its address. The IP address is the source address of the message. Not 0.
    pub port: u16,
    /// The port of its name. Not 0; `port` unless the endpoint is a context.
    pub name_port: u16,
    /// The number of READs that the endpoint serves at the same time. Not 0.
    pub reads: u8,
    /// The operations that it can be the target of: a union of capabilities from [`Caps`].
    pub caps: Caps,
    /// The cookie of the peer's last REJ. A REQ only.
    pub cookie: Option<Cookie>,
    /// Its authorization key.
    pub auth_key: AuthKey,
}

impl Hello {
    /// Writes the greeting to the front of `bytes`; returns `None` if they are less than
    /// [`HELLO_LEN`].
    pub fn put(&self, bytes: &mut [u8]) -> Option<()> {
        let has = |need: Caps| self.caps.contains(need);
        let caps = CAPS
            .iter()
            .filter(|(_, need)| has(*need))
            .fold(0, |bits, (bit, _)| bits | bit);
        let mut writer = Writer::new(bytes);
        writer.put(&[VERSION, self.reads])?;
        writer.put(&self.port.to_be_bytes())?;
        writer.u32(caps)?;
        writer.u64(self.peer_epoch.incarnation)?;
        writer.u64(self.peer_epoch.epoch)?;
        writer.u64(self.cookie.map_or(0, Cookie::get))?;
        let name_port = match self.name_port {
            port if port == self.port => 0,
            port => port,
        };
        writer.put(&name_port.to_be_bytes())?;
        writer.put(self.auth_key.bytes())
    }

    /// Returns whether this is the greeting of `peer`, without its IP address.
    pub fn is_of(&self, peer: &PeerAddr) -> bool {
        self.port == peer.addr().port() && self.name_port == peer.name_port()
    }

    /// Parses the greeting at the front of `bytes`. Unknown capabilities are ignored.
    ///
    /// # Errors
    ///
    /// See [`Unknown`].
    pub fn parse(bytes: &[u8]) -> Result<Self, Unknown> {
        let mut reader = Reader::new(bytes);
        match reader.u8() {
            Some(VERSION) => Self::read(&mut reader).ok_or(Unknown::Malformed),
            Some(_) => Err(Unknown::Version),
            None => Err(Unknown::Malformed),
        }
    }

    fn read(reader: &mut Reader<'_>) -> Option<Self> {
        let reads = reader.u8().filter(|reads| *reads != 0)?;
        let port = reader.u16().filter(|port| *port != 0)?;
        let bits = reader.u32()?;
        let caps = CAPS
            .iter()
            .filter(|(bit, _)| bits & bit != 0)
            .fold(Caps::EMPTY, |caps, (_, has)| caps.union(*has));
        let incarnation = reader.u64()?;
        let epoch = reader.u64()?;
        let cookie = Cookie::new(reader.u64()?);
        let name_port = match reader.u16()? {
            0 => port,
            // One greeting for each content.
            name_port if name_port == port => return None,
            name_port => name_port,
        };
        let auth_key = AuthKey::new(reader.u32()?.to_be_bytes());
        Some(Self {
            peer_epoch: PeerEpoch { incarnation, epoch },
            port,
            name_port,
            reads,
            caps,
            cookie,
            auth_key,
        })
    }
}

/// The reason for which an endpoint refuses a connection.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Refusal {
    /// The endpoint does not exist, or is closing.
    Nobody,
    /// The endpoint has too many connections, or no memory, at present.
    Busy,
    /// The endpoint does not support this version.
    Version,
    /// The endpoint has too many requests whose source addresses may be forged. The peer repeats
    /// its request with this cookie.
    Retry(Cookie),
    /// The endpoint has another authorization key.
    Key,
}

impl Refusal {
    /// Returns the refusal as private data.
    pub fn to_bytes(self) -> [u8; REFUSAL_LEN] {
        let (reason, cookie) = match self {
            Self::Nobody => (1, 0),
            Self::Busy => (2, 0),
            Self::Version => (3, 0),
            Self::Retry(cookie) => (4, cookie.get()),
            Self::Key => (5, 0),
        };
        let [a, b, c, d, e, f, g, h] = u64::to_be_bytes(cookie);
        [
            VERSION, reason, 0, 0, 0, 0, 0, 0, a, b, c, d, e, f, g, h, //
        ]
    }

    /// Parses the refusal at the front of `bytes`, if there is one.
    pub fn parse(bytes: &[u8]) -> Option<Self> {
        match bytes {
            // The reasons of another version are unknown.
            [version, ..] if *version != VERSION && *version != 0 => Some(Self::Version),
            [VERSION, 1, ..] => Some(Self::Nobody),
            [VERSION, 2, ..] => Some(Self::Busy),
            [VERSION, 3, ..] => Some(Self::Version),
            [VERSION, 4, _, _, _, _, _, _, cookie @ ..] => {
                let cookie = Cookie::new(Reader::new(cookie).u64()?);
                // Without a cookie, all that the peer can do is to try again later.
                Some(cookie.map_or(Self::Busy, Self::Retry))
            }
            [VERSION, 5, ..] => Some(Self::Key),
            _ => None,
        }
    }
}

#[cfg(any(test, kfi_kunit))]
#[cfg_attr(kfi_kunit, kernel::prelude::kunit_tests(kfi_core_rdm_hello))]
mod tests {
    use super::*;
    use crate::addr::SockAddr;
    use core::net::Ipv4Addr;

    const HELLO: Hello = Hello {
        peer_epoch: PeerEpoch {
            incarnation: 0x0102_0304_0506_0708,
            epoch: 0x1112_1314_1516_1718,
        },
        port: 7471,
        name_port: 7471,
        reads: 16,
        caps: Caps::MSG.union(Caps::RECV).union(Caps::TAGGED),
        cookie: Cookie::new(0x2122_2324_2526_2728),
        auth_key: AuthKey::NONE,
    };

    #[test]
    fn bytes_are_where_they_belong() {
        let mut bytes = [0xff; 39];
        assert_eq!(HELLO.put(&mut bytes), Some(()));
        let expected = [
            1, 16, 0x1d, 0x2f, 0, 0, 0, 3, //
            1, 2, 3, 4, 5, 6, 7, 8, //
            0x11, 0x12, 0x13, 0x14, 0x15, 0x16, 0x17, 0x18, //
            0x21, 0x22, 0x23, 0x24, 0x25, 0x26, 0x27, 0x28, //
            0, 0, 0, 0, 0, 0, 0xff,
        ];
        assert_eq!(bytes, expected);
        assert_eq!(Hello::parse(&bytes), Ok(HELLO));
        let first = Hello {
            cookie: None,
            ..HELLO
        };
        assert_eq!(first.put(&mut bytes), Some(()));
        let end = [0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0xff];
        assert_eq!(bytes.get(24..), Some(&end[..]));
        assert_eq!(Hello::parse(&bytes), Ok(first));
    }

    #[test]
    fn a_context_tells_its_name() -> Result<(), Unknown> {
        let context = Hello {
            name_port: 7470,
            ..HELLO
        };
        let mut bytes = [0; 40];
        assert_eq!(context.put(&mut bytes), Some(()));
        assert_eq!(bytes.get(32..35), Some(&[0x1d, 0x2e, 0][..]));
        assert_eq!(Hello::parse(&bytes), Ok(context));
        let name = SockAddr::v4(Ipv4Addr::LOCALHOST, 7470);
        let peer = PeerAddr::context(name, 1).map_err(|_| Unknown::Malformed)?;
        assert!(context.is_of(&peer) && !HELLO.is_of(&peer));
        let alone = PeerAddr::new(name.with_port(7471), 7471);
        assert!(HELLO.is_of(&alone) && !context.is_of(&alone));
        // The name of an endpoint that is no context is not told.
        for (at, byte) in [(32, 0x1d), (33, 0x2f)] {
            if let Some(place) = bytes.get_mut(at) {
                *place = byte;
            }
        }
        assert_eq!(Hello::parse(&bytes), Err(Unknown::Malformed));
        Ok(())
    }

    #[test]
    fn a_greeting_has_the_key() {
        let keyed = Hello {
            auth_key: AuthKey::new([1, 2, 3, 4]),
            ..HELLO
        };
        let mut bytes = [0; HELLO_LEN];
        assert_eq!(keyed.put(&mut bytes), Some(()));
        assert_eq!(bytes.get(34..), Some(&[1, 2, 3, 4][..]));
        assert_eq!(Hello::parse(&bytes), Ok(keyed));
    }

    #[test]
    fn a_greeting_of_the_time_without_names_is_understood() {
        // The private data of a REQ behind the 32 bytes are 0.
        let mut bytes = [0; 92];
        assert_eq!(HELLO.put(&mut bytes), Some(()));
        assert!(bytes.iter().skip(32).all(|byte| *byte == 0));
        assert_eq!(Hello::parse(&bytes), Ok(HELLO));
    }

    #[test]
    fn truncated_greetings_are_refused() {
        let mut bytes = [0; HELLO_LEN];
        assert_eq!(HELLO.put(&mut bytes), Some(()));
        for len in 0..HELLO_LEN {
            let short = bytes.get(..len).unwrap_or_default();
            assert_eq!(Hello::parse(short), Err(Unknown::Malformed));
            let mut room = [0; HELLO_LEN];
            let room = room.get_mut(..len).unwrap_or_default();
            assert_eq!(HELLO.put(room), None);
        }
    }

    #[test]
    fn invalid_greetings_are_refused_and_unknown_bits_ignored() {
        let changed = |at: usize, byte: u8| {
            let mut bytes = [0; HELLO_LEN];
            let _ = HELLO.put(&mut bytes);
            if let Some(place) = bytes.get_mut(at) {
                *place = byte;
            }
            Hello::parse(&bytes)
        };
        assert_eq!(changed(0, 0), Err(Unknown::Version));
        assert_eq!(changed(0, 2), Err(Unknown::Version));
        assert_eq!(changed(1, 0), Err(Unknown::Malformed));
        // An unknown capability.
        assert_eq!(changed(4, 0x80), Ok(HELLO));
        let none = changed(7, 0).map(|hello| hello.caps);
        assert_eq!(none, Ok(Caps::EMPTY));
        let rma = changed(7, 0xc).map(|hello| hello.caps);
        let both = Caps::RMA | Caps::REMOTE_READ | Caps::REMOTE_WRITE;
        assert_eq!(rma, Ok(both));
        let atomic = changed(7, 0x30).map(|hello| hello.caps);
        let both = Caps::ATOMIC | Caps::REMOTE_READ | Caps::REMOTE_WRITE;
        assert_eq!(atomic, Ok(both));
        let mut bytes = [0; HELLO_LEN];
        let nowhere = Hello {
            port: 0,
            name_port: 0,
            ..HELLO
        };
        assert_eq!(nowhere.put(&mut bytes), Some(()));
        assert_eq!(Hello::parse(&bytes), Err(Unknown::Malformed));
    }

    #[test]
    fn refusals_convert_to_bytes_and_back() {
        let retry = Cookie::new(0x0102_0304_0506_0708).map(Refusal::Retry);
        let others = [
            Refusal::Nobody,
            Refusal::Busy,
            Refusal::Version,
            Refusal::Key, //
        ];
        for refusal in others.into_iter().chain(retry) {
            assert_eq!(Refusal::parse(&refusal.to_bytes()), Some(refusal));
        }
        let bytes = [1, 4, 0, 0, 0, 0, 0, 0, 1, 2, 3, 4, 5, 6, 7, 8, 9];
        assert_eq!(Refusal::parse(&bytes), retry);
        assert_eq!(retry.map(|refusal| refusal.to_bytes().len()), Some(16));
        for len in 2..REFUSAL_LEN {
            assert_eq!(Refusal::parse(bytes.get(..len).unwrap_or_default()), None);
        }
        assert_eq!(Refusal::parse(&[2, 1]), Some(Refusal::Version));
        assert_eq!(Refusal::parse(&[1, 6]), None);
        assert_eq!(Refusal::parse(&[1]), None);
        // A cookie that is none.
        let empty = [1, 4, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0];
        assert_eq!(Refusal::parse(&empty), Some(Refusal::Busy));
        // Private data of a peer that gave none.
        assert_eq!(Refusal::parse(&[0; 148]), None);
        assert_eq!(Refusal::parse(&[]), None);
    }
}
