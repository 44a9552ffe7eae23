// SPDX-License-Identifier: GPL-2.0

//! Suite `kfabric_answer_count`: answers that are due to peers are counted, and charged to the
//! owner of the endpoint.

use super::*;
use crate::kunit::helpers::user;

#[kunit_tests(kfabric_answer_count)]
mod tests {
    use super::*;

    /// Answers to messages are charged in the part of peers, up to its limit.
    #[test]
    fn answers_are_charged_in_the_part_of_peers() -> Result {
        let owner = Budget::of(user(100), Some(1000))?;
        let answers = AnswerCount::new()?;
        let first = answers.share(&owner, 300)?;
        ensure_eq!(answers.count(), 1);
        ensure_eq!(owner.charged(Part::Peers), (300, 300));
        // One byte more than half of the limit is refused, and nothing stays charged or counted.
        ensure_eq!(answers.share(&owner, 201).err(), Some(ENOMEM));
        ensure_eq!(answers.count(), 1);
        ensure_eq!(owner.charged(Part::Peers), (300, 300));
        let second = answers.share(&owner, 200)?;
        ensure_eq!(answers.count(), 2);
        ensure_eq!(owner.charged(Part::Peers), (500, 500));
        // The sessions of one owner share the part.
        let other = AnswerCount::new()?;
        ensure_eq!(other.share(&owner, 1).err(), Some(ENOMEM));
        ensure_eq!(other.count(), 0);
        // The rest of the account is available to the owner.
        ensure!(owner.take(500).is_ok());
        drop(first);
        ensure_eq!(answers.count(), 1);
        ensure_eq!(owner.charged(Part::Peers), (200, 200));
        ensure!(other.share(&owner, 300).is_ok());
        // An answer can outlive its session.
        drop(answers);
        ensure_eq!(owner.charged(Part::Peers), (200, 200));
        drop(second);
        ensure_eq!(owner.charged(Part::Peers), (0, 0));
        Ok(())
    }

    /// The memory that the owner uses limits answers as well.
    #[test]
    fn a_full_account_has_no_room_for_an_answer() -> Result {
        let owner = Budget::of(user(101), Some(1000))?;
        let answers = AnswerCount::new()?;
        let held = owner.take(900)?;
        ensure_eq!(answers.share(&owner, 101).err(), Some(ENOMEM));
        ensure_eq!(answers.count(), 0);
        ensure_eq!(owner.charged(Part::Peers), (900, 0));
        let share = answers.share(&owner, 100)?;
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
        let answers = AnswerCount::new()?;
        let held = owner.take(1000)?;
        let cancel = answers.share_of_cancel(&owner, 300);
        ensure_eq!(answers.count(), 1);
        ensure_eq!(owner.charged(Part::Peers), (1300, 0));
        drop(held);
        let message = answers.share(&owner, 500)?;
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
