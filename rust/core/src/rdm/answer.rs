// SPDX-License-Identifier: GPL-2.0
//! The answers of a session to messages of the peer: it reads the bytes of a message, if
//! the peer still has them and they are wanted, and then sends a FIN. The answer to an atomic is a
//! RESULT in the place of the FIN, and so is the answer to a tagged read.
//!
//! Bytes are read in the order in which messages were matched, in pieces of
//! [`READ_SIZE`](super::times::READ_SIZE), several at a time. FINs are sent in the same order. An
//! acknowledged FIN ends the answer.

use super::{
    header::{
        FinStatus,
        RemoteAddr, //
    },
    session::Conn,
    store::Store,
};

/// The result of a message of the peer, from which an answer is made.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Due {
    /// The connection over which the message came.
    pub conn: Conn,
    /// The number of the message.
    pub id: u64,
    /// The status for the FIN.
    pub status: FinStatus,
    /// The memory to read first, and the number of bytes: less than the length of the message if
    /// the receive is shorter.
    pub read: Option<(RemoteAddr, u32)>,
    /// The length of the old values of an atomic, or of the bytes of a tagged read, which are sent
    /// in the place of the FIN. They are in the memory of the receive that belongs to the answer.
    pub result: Option<u32>,
}

/// The answer to one message of the peer.
#[derive(Debug)]
pub struct Answer<R> {
    pub(super) due: Due,
    /// The receive that is being filled or read, or the memory with the old values of an atomic.
    pub(super) receive: Option<R>,
    /// The number of bytes for which READs were posted to the QP, and of those that were read.
    pub(super) requested: u32,
    pub(super) read: u32,
}

impl<R> Answer<R> {
    pub(super) const fn new(due: Due, receive: Option<R>) -> Self {
        Self {
            due,
            receive,
            requested: 0,
            read: 0,
        }
    }

    /// The number of bytes to read.
    pub(super) const fn len(&self) -> u32 {
        match self.due.read {
            Some((_, len)) => len,
            None => 0,
        }
    }

    pub(super) const fn is_read(&self) -> bool {
        self.read >= self.len()
    }
}

/// All answers that have not ended.
#[derive(Debug)]
pub(super) struct Answers<M> {
    pub(super) map: M,
    /// The number of the next answer.
    pub(super) next: u64,
    /// READs were posted for all answers before this one.
    pub(super) reading: u64,
    /// The FINs of all answers before this one were posted to the QP.
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

    /// Returns the first answer that still needs READs, if its message came over `conn`.
    pub(super) fn next_to_read<R>(&mut self, conn: Conn) -> Option<u64>
    where
        M: Store<Answer<R>>,
    {
        while let Some(number) = self.map.next(self.reading) {
            let answer = self.map.get(number)?;
            if answer.requested < answer.len() {
                return (answer.due.conn == conn).then_some(number);
            }
            self.reading = number.wrapping_add(1);
        }
        None
    }

    /// Returns the first answer whose FIN was not posted to the QP, if all of its bytes were read.
    /// With `skip`, answers that still need READs are skipped.
    pub(super) fn next_to_finish<R>(&mut self, conn: Conn, skip: bool) -> Option<u64>
    where
        M: Store<Answer<R>>,
    {
        while let Some(number) = self.map.next(self.finishing) {
            let answer = self.map.get(number)?;
            if answer.due.conn == conn && answer.is_read() {
                return Some(number);
            }
            if !skip || answer.requested >= answer.len() {
                return None;
            }
            self.finishing = number.wrapping_add(1);
        }
        None
    }
}
