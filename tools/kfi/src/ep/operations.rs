// SPDX-License-Identifier: GPL-2.0
//! Operations of endpoints: posting and cancelling them.

use super::Endpoint;
use crate::{
    abi::{self, Call, calls},
    addr::FiAddr,
    buffer::Slice,
    enums::{AtomicOp, Datatype},
    errno::Errno,
    error::{Error, Result},
    op::{Local, Op, Remote},
};

/// Result of [`Endpoint::post`]: it may have accepted only some operations.
///
/// [`into_result`](Posted::into_result) makes the refusal of one an error.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[must_use = "only some operations may have been accepted: see `error`, or use `into_result`"]
pub struct Posted {
    /// Operations that were accepted, from the first on: one at least.
    pub done: usize,
    /// Why the next operation was not accepted; `None`: all were.
    pub error: Option<Errno>,
}

impl Posted {
    /// From the members of the call's structure.
    pub(crate) fn new(done: u32, error: u32) -> Self {
        Self {
            done: done as usize,
            error: (error != 0).then(|| Errno::from_raw(error as i32)),
        }
    }

    /// Whether all were accepted.
    pub fn all(&self) -> bool {
        self.error.is_none()
    }

    /// The number of operations, if all were accepted.
    ///
    /// # Errors
    ///
    /// [`Error::Partial`]: one was refused.  Those before it stay posted.
    pub fn into_result(self) -> Result<usize> {
        match self.error {
            None => Ok(self.done),
            Some(errno) => Err(Error::Partial {
                call: "KFABRIC_IOC_POST",
                done: self.done,
                errno,
            }),
        }
    }
}

/// Operations.
impl Endpoint {
    /// Posts operations, in order, in one call.  The result has the number of
    /// those that were accepted, and must be looked at:
    ///
    /// ```compile_fail
    /// #![deny(unused_must_use)]
    /// # fn f(ep: kfi::Endpoint, ops: &[kfi::Op<'_>]) -> kfi::Result<()> {
    /// ep.post(ops)?;
    /// # Ok(())
    /// # }
    /// ```
    ///
    /// ```no_run
    /// #![deny(unused_must_use)]
    /// # fn f(ep: kfi::Endpoint, ops: &[kfi::Op<'_>]) -> kfi::Result<()> {
    /// ep.post(ops)?.into_result()?;
    /// # Ok(())
    /// # }
    /// ```
    ///
    /// # Errors
    ///
    /// The error of the first operation, if not even that was accepted:
    ///
    /// - `EAGAIN`: no room in a queue: read completions, then try again.
    /// - `KFI_EOPBADSTATE`: not enabled; `EOPNOTSUPP`: the endpoint does not
    ///   have the capability.
    /// - `ENOENT`: the peer is not in the address vector; `EHOSTUNREACH`: no
    ///   endpoint at its address, no route to it (reliable datagrams), or the
    ///   route refuses; `ENETUNREACH`: no route leaves by the link's interface
    ///   (other types); `EADDRNOTAVAIL`: the link has lost the endpoint's own
    ///   address; `ENETDOWN`, `ENODEV`: the link is down or gone.
    /// - `EMSGSIZE`: longer than one operation, or an injected one, can be, or
    ///   the route or the interface carries no path MTU; `EINVAL`: flags or
    ///   lists that do not fit the kind, no operations.
    /// - Connected endpoints: `ENOTCONN`: not connected yet; `ESHUTDOWN`: the
    ///   connection is over; `EKEYREJECTED`: a key of more than 32 bits.
    /// - Atomics: `EOPNOTSUPP`: a datatype or op that the endpoint does not have, or
    ///   it may have no reads and atomics under way
    ///   ([`QpOption::RdAtomic`](crate::QpOption::RdAtomic)); `EMSGSIZE`: more than
    ///   one word; `EINVAL`: not a whole number of words, or an address at the peer
    ///   that is not a multiple of 8.
    /// - `EFAULT`, `ENOMEM`: the memory, as with [`MrBuilder::open`];
    ///   `EACCES`: the region does not allow it.
    ///
    /// [`MrBuilder::open`]: crate::MrBuilder::open
    #[inline]
    pub fn post(&self, ops: &[Op<'_>]) -> Result<Posted> {
        let (arg, result) = calls::post(self.device(), self.handle(), ops);
        result?;
        Ok(Posted::new(arg.done, arg.error))
    }

    /// Posts one operation.
    ///
    /// # Errors
    ///
    /// As [`Endpoint::post`].
    #[inline]
    pub fn post_one(&self, op: &Op<'_>) -> Result<()> {
        self.post(std::slice::from_ref(op)).map(drop)
    }

    /// Sends a message.
    ///
    /// # Errors
    ///
    /// As [`Endpoint::post`].
    pub fn send<'a>(&self, peer: FiAddr, local: impl Into<Local<'a>>, context: u64) -> Result<()> {
        self.post_one(&Op::send(peer, local).context(context))
    }

    /// Sends a message, and a number to the peer's CQ.
    ///
    /// # Errors
    ///
    /// As [`Endpoint::post`].
    pub fn senddata<'a>(
        &self,
        peer: FiAddr,
        local: impl Into<Local<'a>>,
        data: u64,
        context: u64,
    ) -> Result<()> {
        self.post_one(&Op::send(peer, local).data(data).context(context))
    }

    /// Receives a message.
    ///
    /// # Errors
    ///
    /// As [`Endpoint::post`].
    pub fn recv<'a>(&self, local: impl Into<Local<'a>>, context: u64) -> Result<()> {
        self.post_one(&Op::recv(local).context(context))
    }

    /// Sends a tagged message.
    ///
    /// # Errors
    ///
    /// As [`Endpoint::post`].
    pub fn tsend<'a>(
        &self,
        peer: FiAddr,
        local: impl Into<Local<'a>>,
        tag: u64,
        context: u64,
    ) -> Result<()> {
        self.post_one(&Op::tsend(peer, local, tag).context(context))
    }

    /// Receives a message with this tag; bits in `ignore` do not matter.
    ///
    /// # Errors
    ///
    /// As [`Endpoint::post`].
    pub fn trecv<'a>(
        &self,
        local: impl Into<Local<'a>>,
        tag: u64,
        ignore: u64,
        context: u64,
    ) -> Result<()> {
        self.post_one(&Op::trecv(local, tag, ignore).context(context))
    }

    /// Reads a peer's memory.
    ///
    /// # Errors
    ///
    /// As [`Endpoint::post`].
    pub fn read<'a>(
        &self,
        peer: FiAddr,
        local: impl Into<Local<'a>>,
        remote: Remote,
        context: u64,
    ) -> Result<()> {
        self.post_one(&Op::read(peer, local, remote).context(context))
    }

    /// Writes to a peer's memory.
    ///
    /// # Errors
    ///
    /// As [`Endpoint::post`].
    pub fn write<'a>(
        &self,
        peer: FiAddr,
        local: impl Into<Local<'a>>,
        remote: Remote,
        context: u64,
    ) -> Result<()> {
        self.post_one(&Op::write(peer, local, remote).context(context))
    }

    /// Changes a word of a peer's memory atomically; see [`Op::atomic`].
    ///
    /// # Errors
    ///
    /// As [`Endpoint::post`].
    pub fn atomic<'a>(
        &self,
        peer: FiAddr,
        operand: impl Into<Local<'a>>,
        remote: Remote,
        datatype: Datatype,
        op: AtomicOp,
        context: u64,
    ) -> Result<()> {
        self.post_one(&Op::atomic(peer, operand, remote, datatype, op).context(context))
    }

    /// Changes a word of a peer's memory atomically, and stores its old value in
    /// `result`; see [`Op::fetch_atomic`].
    ///
    /// ```no_run
    /// # fn f(ep: kfi::Endpoint, cq: kfi::Cq, word: kfi::Remote) -> kfi::Result<()> {
    /// use kfi::{AtomicOp, Buffer, Datatype, Deadline, FiAddr};
    ///
    /// let one = Buffer::from_bytes(&1u64.to_ne_bytes())?;
    /// let before = Buffer::new(8)?;
    /// let (uint64, sum) = (Datatype::Uint64, AtomicOp::Sum);
    /// ep.fetch_atomic(FiAddr::UNSPEC, &one, &before, word, uint64, sum, 1)?;
    /// cq.next(Deadline::FOREVER)?;
    /// println!("it was {:?}", before.to_vec(..));
    /// # Ok(())
    /// # }
    /// ```
    ///
    /// # Errors
    ///
    /// As [`Endpoint::post`].
    #[expect(clippy::too_many_arguments, reason = "those of fi_fetch_atomic(3)")]
    pub fn fetch_atomic<'a>(
        &self,
        peer: FiAddr,
        operand: impl Into<Slice<'a>>,
        result: impl Into<Slice<'a>>,
        remote: Remote,
        datatype: Datatype,
        op: AtomicOp,
        context: u64,
    ) -> Result<()> {
        let op = Op::fetch_atomic(peer, operand, result, remote, datatype, op);
        self.post_one(&op.context(context))
    }

    /// Changes a word of a peer's memory if a comparison holds, and stores its old
    /// value in `result`; see [`Op::compare_atomic`].
    ///
    /// # Errors
    ///
    /// As [`Endpoint::post`].
    #[expect(clippy::too_many_arguments, reason = "those of fi_compare_atomic(3)")]
    pub fn compare_atomic<'a>(
        &self,
        peer: FiAddr,
        operand: impl Into<Slice<'a>>,
        compare: impl Into<Slice<'a>>,
        result: impl Into<Slice<'a>>,
        remote: Remote,
        datatype: Datatype,
        op: AtomicOp,
        context: u64,
    ) -> Result<()> {
        let op = Op::compare_atomic(peer, operand, compare, result, remote, datatype, op);
        self.post_one(&op.context(context))
    }

    /// Sends a short message whose bytes are copied at once, and whose success
    /// makes no CQ entry; see [`Op::inject`].
    ///
    /// # Errors
    ///
    /// As [`Endpoint::post`].
    pub fn inject(&self, peer: FiAddr, bytes: &[u8]) -> Result<()> {
        self.post_one(&Op::inject(peer, bytes))
    }

    /// Sends a short tagged message; see [`Op::inject`].
    ///
    /// # Errors
    ///
    /// As [`Endpoint::post`].
    pub fn tinject(&self, peer: FiAddr, bytes: &[u8], tag: u64) -> Result<()> {
        self.post_one(&Op::tinject(peer, bytes, tag))
    }

    /// Writes a few bytes to a peer's memory; see [`Op::inject`].
    ///
    /// # Errors
    ///
    /// As [`Endpoint::post`].
    pub fn inject_write(&self, peer: FiAddr, bytes: &[u8], remote: Remote) -> Result<()> {
        self.post_one(&Op::inject_write(peer, bytes, remote))
    }

    /// Cancels the operation with this context: the oldest receive, else the
    /// oldest transmit that still waits, else one that waits for its
    /// [trigger](Op::trigger).  It completes with `ECANCELED`.
    ///
    /// There is no guarantee: an operation whose trigger has been reached, and
    /// that is about to start, is not found, and starts afterwards.
    ///
    /// # Errors
    ///
    /// `ENOENT`: there is none that can still be cancelled;
    /// `KFI_EOPBADSTATE`: not enabled.
    pub fn cancel(&self, context: u64) -> Result<()> {
        let mut arg = abi::kfabric_ep_cancel {
            ep: self.handle(),
            context,
            ..Call::sized()
        };
        calls::plain(self.device(), &mut arg)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_refused_operation_becomes_an_error() {
        assert_eq!(Posted::new(3, 0).into_result().unwrap(), 3);
        let refused = Posted::new(2, Errno::EINVAL.raw() as u32);
        assert!(!refused.all());
        let error = refused.into_result().unwrap_err();
        assert!(matches!(error, Error::Partial { done: 2, .. }), "{error}");
        assert!(error.is(Errno::EINVAL));
    }
}
