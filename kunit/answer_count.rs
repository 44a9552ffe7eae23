// SPDX-License-Identifier: GPL-2.0

//! Suite `kfabric_answer_count`: answers that are due to peers are counted, and charged to the
//! owner of the endpoint.

use super::*;
use crate::{
    kunit::helpers::user,
    mem::Part, //
};
use core::net::Ipv4Addr;
use kfi_core::share::Source;

#[kunit_tests(kfabric_answer_count)]
mod tests {
    use super::*;

    /// The share of a peer at an address.
    fn peer(owner: &Budget, host: u8) -> Result<PeerShare> {
        owner.share_of(Source::host(Ipv4Addr::new(192, 0, 2, host).into(), 0))
    }

    /// Answers to messages are charged in the part of peers. A peer leaves some of it for others.
    #[test]
    fn answers_are_charged_in_the_part_of_peers() -> Result {
        let owner = Budget::of(user(100), Some(2000))?;
        let (one, two) = (peer(&owner, 1)?, peer(&owner, 2)?);
        let answers = AnswerCount::new()?;
        let first = answers.share(&owner, &one, 300)?;
        ensure_eq!(answers.count(), 1);
        ensure_eq!(owner.charged(Part::Peers), (300, 300));
        // 75 bytes must be left. One more is refused, and nothing stays charged or counted.
        ensure_eq!(answers.share(&owner, &one, 626).err(), Some(ENOMEM));
        ensure_eq!(answers.count(), 1);
        ensure_eq!(owner.charged(Part::Peers), (300, 300));
        let second = answers.share(&owner, &one, 600)?;
        ensure_eq!(answers.count(), 2);
        ensure_eq!(owner.charged(Part::Peers), (900, 900));
        // The sessions of one peer have one share. Another peer gets the rest.
        let other = AnswerCount::new()?;
        ensure_eq!(
            other.share(&owner, &peer(&owner, 1)?, 1).err(),
            Some(ENOMEM)
        );
        ensure_eq!(other.count(), 0);
        let third = other.share(&owner, &two, 100)?;
        ensure_eq!(other.share(&owner, &two, 1).err(), Some(ENOMEM));
        // The rest of the account is available to the owner.
        ensure!(owner.take(1000).is_ok());
        drop((first, third));
        ensure_eq!(answers.count(), 1);
        ensure_eq!(owner.charged(Part::Peers), (600, 600));
        ensure!(other.share(&owner, &one, 200).is_ok());
        // An answer can outlive its session.
        drop((answers, one));
        ensure_eq!(owner.charged(Part::Peers), (600, 600));
        drop(second);
        ensure_eq!(owner.charged(Part::Peers), (0, 0));
        Ok(())
    }

    /// The memory that the owner uses limits answers as well.
    #[test]
    fn a_full_account_has_no_room_for_an_answer() -> Result {
        let owner = Budget::of(user(101), Some(1000))?;
        let (answers, one) = (AnswerCount::new()?, peer(&owner, 1)?);
        let held = owner.take(900)?;
        ensure_eq!(answers.share(&owner, &one, 101).err(), Some(ENOMEM));
        ensure_eq!(answers.count(), 0);
        ensure_eq!(owner.charged(Part::Peers), (900, 0));
        let share = answers.share(&owner, &one, 100)?;
        ensure_eq!(owner.charged(Part::Peers), (1000, 100));
        drop((held, share));
        ensure_eq!(answers.count(), 0);
        ensure_eq!(owner.charged(Part::Peers), (0, 0));
        Ok(())
    }

    /// The answer to a CANCEL is charged regardless of the limit, and takes no room from messages.
    #[test]
    fn a_cancel_is_charged_whatever_the_limit() -> Result {
        let owner = Budget::of(user(102), Some(1000))?;
        let (answers, one) = (AnswerCount::new()?, peer(&owner, 1)?);
        let held = owner.take(1000)?;
        let cancel = answers.share_of_cancel(&owner, 300);
        ensure_eq!(answers.count(), 1);
        ensure_eq!(owner.charged(Part::Peers), (1300, 0));
        drop(held);
        let message = answers.share(&owner, &one, 500)?;
        ensure_eq!(answers.count(), 2);
        ensure_eq!(owner.charged(Part::Peers), (800, 500));
        drop(cancel);
        ensure_eq!(answers.count(), 1);
        ensure_eq!(owner.charged(Part::Peers), (500, 500));
        drop(message);
        ensure_eq!(answers.count(), 0);
        ensure_eq!(owner.charged(Part::Peers), (0, 0));
        Ok(())
    }
}
