// SPDX-License-Identifier: GPL-2.0

//! Suite `kfabric_account`: what users are charged for their objects.

use super::*;
use kernel::bindings;

/// Users that nobody is.
fn user(n: u32) -> Kuid {
    Kuid::from_raw(bindings::kuid_t {
        val: 0xf00d_0000 + n,
    })
}

fn is_listed(user: Kuid) -> bool {
    ACCOUNTS
        .lock()
        .list
        .iter()
        .any(|account| account.user == user)
}

#[kunit_tests(kfabric_account)]
mod tests {
    use super::*;

    /// Up to the limit and not a byte more; what is dropped can be had again.
    #[test]
    fn the_limit() -> Result {
        let budget = Budget::of(user(1), Some(100))?;
        let most = budget.take(60)?;
        assert_eq!(budget.take(41).err(), Some(ENOMEM));
        let rest = budget.take(40)?;
        assert_eq!(budget.take(1).err(), Some(ENOMEM));
        assert!(budget.take(0).is_ok());
        drop(most);
        assert_eq!(budget.take(61).err(), Some(ENOMEM));
        let again = budget.take(60)?;
        drop((rest, again));
        assert!(budget.take(100).is_ok());
        assert_eq!(budget.take(u64::MAX).err(), Some(ENOMEM));
        Ok(())
    }

    /// A sum that would not fit in its number is over every limit.
    #[test]
    fn no_limit_does_not_wrap() -> Result {
        let budget = Budget::of(user(2), Some(u64::MAX))?;
        let _most = budget.take(u64::MAX)?;
        assert_eq!(budget.take(1).err(), Some(ENOMEM));
        Ok(())
    }

    /// All files of a user share one account; nobody else's is touched.
    #[test]
    fn one_account_for_a_user() -> Result {
        let (one, two) = (
            Budget::of(user(3), Some(10))?,
            Budget::of(user(3), Some(10))?,
        );
        let other = Budget::of(user(4), Some(10))?;
        let held = one.take(10)?;
        assert_eq!(two.take(1).err(), Some(ENOMEM));
        assert_eq!(two.clone().take(1).err(), Some(ENOMEM));
        assert!(other.take(10).is_ok());
        drop(held);
        assert!(two.take(10).is_ok());
        Ok(())
    }

    /// Closing the file and opening another does not begin at nothing.
    #[test]
    fn an_allowance_keeps_the_account() -> Result {
        let held = Budget::of(user(5), Some(10))?.take(10)?;
        assert!(is_listed(user(5)));
        assert_eq!(Budget::of(user(5), Some(10))?.take(1).err(), Some(ENOMEM));
        drop(held);
        assert!(!is_listed(user(5)));
        assert!(Budget::of(user(5), Some(10))?.take(10).is_ok());
        Ok(())
    }

    /// The last that holds an account ends it.
    #[test]
    fn an_account_ends() -> Result {
        let budget = Budget::of(user(6), None)?;
        let copy = budget.clone();
        drop(budget);
        assert!(is_listed(user(6)));
        drop(copy);
        assert!(!is_listed(user(6)));
        Ok(())
    }
}
