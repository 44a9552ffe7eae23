// SPDX-License-Identifier: GPL-2.0

//! The memory of a session's outstanding operations that the peer reads, or fills with results. The
//! QP calls these functions where nothing may sleep, without the lock of the session's state.

use kernel::rbtree::{
    RBTree,
    RBTreeNodeReservation, //
};

use kfi_core::rdm::{
    session::Conn,
    Grant, //
};

use super::{
    super::super::prelude::*,
    session::Session, //
};
use crate::{
    mem::payload,
    shim::skb::Room, //
};

/// Memory that the peer may read.
pub(super) struct Granted {
    pub(super) memory: MemRef,
    /// The peer has begun to read it.
    pub(super) is_being_read: bool,
}

/// What the peer may read, by the ID of the message.
pub(super) type Grants = RBTree<u64, Granted>;

/// The destination of the old values of an atomic, or of the bytes of a tagged read.
pub(super) struct ResultPlace {
    pub(super) memory: MemRef,
    /// Whether fewer bytes may come: those of a read.
    pub(super) may_be_short: bool,
    /// The connection on which the operation was posted last.
    pub(super) conn: Option<Conn>,
}

/// Preallocated memory for a [`ResultPlace`].
pub(super) type ResultSlot = RBTreeNodeReservation<u64, ResultPlace>;

/// Preallocated memory for a grant.
pub(super) type GrantSlot = RBTreeNodeReservation<u64, Granted>;

impl Session {
    /// Copies granted bytes to `room`. Bytes of a message that has ended are replaced by zeros: the
    /// peer has reported that it has them, so the request is an old packet. Does not sleep.
    pub(super) fn read_grant(&self, grant: &Grant, room: &mut Room<'_>) {
        match self.grants.lock().get(&grant.id) {
            Some(granted) => {
                payload::gather_mem(room, &granted.memory, grant.offset as usize);
            }
            None => room.fill(0),
        }
    }

    /// Takes the destination of a result. `None` if the operation was not posted on this
    /// connection, the peer does not have to send so many bytes, or they have begun to arrive
    /// before. So no byte arrives after the operation has completed. Does not sleep.
    pub(super) fn take_result(&self, conn: Conn, number: u64, len: u32) -> Option<MemRef> {
        let node = {
            let mut results = self.results.lock();
            let place = results.get(&number)?;
            let (len, room) = (len as usize, place.memory.len());
            let fits = len == room || (place.may_be_short && len < room);
            if place.conn != Some(conn) || !fits {
                return None;
            }
            results.remove_node(&number)?
        };
        Some(node.to_key_value().1.memory)
    }

    /// Drops the destination of a result that will not come over this connection. Sleeps.
    pub(super) fn forget_result(&self, conn: Conn, number: u64) {
        let node = {
            let mut results = self.results.lock();
            match results.get(&number) {
                Some(place) if place.conn == Some(conn) => results.remove_node(&number),
                _ => None,
            }
        };
        drop(node);
    }

    /// Notes that the peer reads these bytes. Returns whether it has a grant for them. Does not
    /// sleep.
    pub(super) fn begin_to_read(&self, grant: &Grant) -> bool {
        let mut grants = self.grants.lock();
        let end = u64::from(grant.offset).saturating_add(u64::from(grant.len));
        grants.get_mut(&grant.id).is_some_and(|granted| {
            granted.is_being_read = true;
            end <= granted.memory.len() as u64
        })
    }

    /// Whether the peer has begun to read the message with this number. Does not sleep.
    pub(super) fn is_being_read(&self, number: u64) -> bool {
        let grants = self.grants.lock();
        grants
            .get(&number)
            .is_some_and(|granted| granted.is_being_read)
    }
}
