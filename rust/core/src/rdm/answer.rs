// SPDX-License-Identifier: GPL-2.0
//! What is owed to the peer for a message of its own: its bytes are read, if they are with the peer
//! and wanted, and then a FIN says that the message has ended.
//!
//! Bytes are read in the order in which messages were matched, in pieces of
//! [`READ_SIZE`](super::times::READ_SIZE), several at a time; FINs go out in the same order. A FIN that
//! was acknowledged is the end.

use super::{
    header::{
        Fate,
        Place, //
    },
    session::Conn,
    store::Store,
};

/// What has become of a message of the peer's.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Due {
    /// The connection over which it came.
    pub conn: Conn,
    /// Its number.
    pub id: u64,
    /// How it ends.
    pub fate: Fate,
    /// What is to be read before, and how many bytes: less than the message has if the receive is
    /// shorter.
    pub read: Option<(Place, u32)>,
}

/// One message of the peer's.
#[derive(Debug)]
pub struct Answer<R> {
    pub(super) due: Due,
    /// The receive that is being filled.
    pub(super) receive: Option<R>,
    /// Bytes for which READs were handed to the QP, and those of them that have come.
    pub(super) asked: u32,
    pub(super) come: u32,
}

impl<R> Answer<R> {
    pub(super) const fn new(due: Due, receive: Option<R>) -> Self {
        Self {
            due,
            receive,
            asked: 0,
            come: 0,
        }
    }

    /// Bytes to be read.
    pub(super) const fn len(&self) -> u32 {
        match self.due.read {
            Some((_, len)) => len,
            None => 0,
        }
    }

    pub(super) const fn is_read(&self) -> bool {
        self.come >= self.len()
    }
}

/// All that is owed.
#[derive(Debug)]
pub(super) struct Answers<M> {
    pub(super) map: M,
    /// The number of the next one.
    pub(super) next: u64,
    /// All before it have been asked for.
    pub(super) reading: u64,
    /// The FINs of all before it were handed to the QP.
    pub(super) finishing: u64,
}

impl<M> Answers<M> {
    pub(super) const fn new(map: M) -> Self {
        Self {
            map,
            next: 0,
            reading: 0,
            finishing: 0,
        }
    }

    /// The first that is not wholly asked for, with bytes to be read, if it came over `conn`.
    pub(super) fn next_to_read<R>(&mut self, conn: Conn) -> Option<u64>
    where
        M: Store<Answer<R>>,
    {
        while let Some(number) = self.map.next(self.reading) {
            let answer = self.map.get(number)?;
            if answer.asked < answer.len() {
                return (answer.due.conn == conn).then_some(number);
            }
            self.reading = number.wrapping_add(1);
        }
        None
    }

    /// The first whose FIN was not handed to the QP, if that is due. With `skip`, those are left
    /// alone that are not wholly asked for.
    pub(super) fn next_to_finish<R>(&mut self, conn: Conn, skip: bool) -> Option<u64>
    where
        M: Store<Answer<R>>,
    {
        while let Some(number) = self.map.next(self.finishing) {
            let answer = self.map.get(number)?;
            if answer.due.conn == conn && answer.is_read() {
                return Some(number);
            }
            if !skip || answer.asked >= answer.len() {
                return None;
            }
            self.finishing = number.wrapping_add(1);
        }
        None
    }
}
