// SPDX-License-Identifier: GPL-2.0

//! Suite `kfabric_refused_peer`: accesses of a peer to memory that an endpoint for reliable
//! datagrams refuses count against the address of that peer.

use super::{
    super::conn::Connection,
    *, //
};
use crate::{
    kunit::helpers::REFUSALS,
    net::qp::rc, //
};
use kfi_core::rdm::{
    session::Reply,
    unproven::Proof,
    Cause, //
};
use kfi_roce::headers::Reth;

#[kunit_tests(kfabric_refused_peer)]
mod tests {
    use super::*;

    /// An access that a connection refuses counts against the address of its peer. The endpoint
    /// ignores requests from the address when it has too many, and no others.
    #[test]
    fn refused_accesses_count_against_their_peer() -> Result {
        let owner = Budget::of(user(121), None)?;
        let mut target = Target::open(&owner)?;
        let bound = target.endpoint.bound.as_ref().ok_or(EBADF)?;
        let peer = PeerAddr::new(target.ends(THERE, 1)?.peer, 1);
        let session = target.endpoint.session(bound, &peer)?;
        let hello = hello(1, None, AuthKey::NONE);
        let reply = session.with(|state, now| state.core.requested(now, &hello, 1, Proof::None));
        let Reply::Accept(conn, _) = reply else {
            return Err(EINVAL);
        };
        let connection = Connection::new(&session, conn, false)?;
        let nowhere = Reth {
            va: 0,
            rkey: 0x77,
            len: 8,
        };
        for _ in 0..REFUSALS {
            ensure!(rc::Consumer::check_write(&*connection, &nowhere).is_err());
        }
        ensure!(owner.is_delayed_peer(THERE));
        ensure!(!owner.is_delayed_peer(ELSEWHERE));
        connection.close();
        session.with(|state, _| state.core.failed(conn, Cause::Access));
        drop((connection, session));
        let before = target.count_of(Stat::CmDelayed);
        let ignored = target.request_proven(2)?;
        ensure!(eventually(|| target.count_of(Stat::CmDelayed) > before));
        target.from = ELSEWHERE;
        let accepted = target.request_proven(1)?;
        ensure!(target.peers.have_results(1, 0));
        for conn in [ignored, accepted] {
            conn.close();
        }
        ensure!(eventually(|| !target.has_state()));
        Ok(())
    }
}
