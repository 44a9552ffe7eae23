// SPDX-License-Identifier: GPL-2.0

//! Suite `kfabric_pep_refused_peer`: a passive endpoint ignores requests from an address that was
//! refused too many accesses to memory of its owner.

use super::*;
use crate::{
    kunit::{
        fixture::a_while,
        helpers::{
            user,
            REFUSALS, //
        }, //
    },
    net::Stat, //
};

#[kunit_tests(kfabric_pep_refused_peer)]
mod tests {
    use super::*;

    #[test]
    fn a_refused_peer_gets_no_connection() -> Result {
        let owner = Budget::of(user(122), None)?;
        let target = Target::open_for(&owner)?;
        for _ in 0..REFUSALS {
            owner.refused_peer(THERE);
        }
        let link = target.domain.domain.link();
        let delayed = || link.socket().receiver().stats().get(Stat::CmDelayed);
        let before = delayed();
        let remote = Remote::new()?;
        let qp = Qp::connection(link, 1, &Budget::of_program()?, remote)?;
        let conn = target.request(&qp, reply_receiver()?)?;
        ensure!(eventually(|| delayed() > before));
        a_while();
        ensure!(target.eq.read(false, |_| Ok(())).is_err());
        qp.close();
        conn.close();
        Ok(())
    }
}
