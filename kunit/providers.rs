// SPDX-License-Identifier: GPL-2.0

//! Suite of the list of providers.

use kernel::prelude::*;

#[kunit_tests(kfabric_providers)]
mod tests {
    use super::super::*;

    type Numbers = Providers<u32>;

    fn add(list: &mut Numbers, name: &[u8], version: u32, provider: u32) -> Result {
        list.register(
            Name::new(name).unwrap_or(Name::EMPTY),
            version,
            Arc::new(provider, GFP_KERNEL)?,
            |other| *other != 1,
        )
    }

    fn found(list: &Numbers, name: &[u8]) -> Option<u32> {
        list.find(&Name::new(name).ok()?).map(|provider| *provider)
    }

    /// The providers in the order in which they are asked.
    fn all(list: &Numbers) -> Result<KVec<u32>> {
        let (mut after, mut all) = (0, KVec::new());
        while let Some((number, _, _, provider)) = list.next(after, None) {
            after = number;
            all.push(*provider, GFP_KERNEL)?;
        }
        Ok(all)
    }

    fn remove(list: &mut Numbers, provider: u32) -> Result<u32> {
        list.deregister(|other| *other == provider)
            .map(|provider| *provider)
    }

    #[test]
    fn several_providers_coexist() -> Result {
        let mut list = Numbers::new();
        ensure_eq!(add(&mut list, b"one", 1, 1), Ok(()));
        ensure_eq!(add(&mut list, b"two", 1, 2), Ok(()));
        ensure_eq!(add(&mut list, b"three", 1, 3), Ok(()));
        ensure_eq!(&all(&list)?[..], &[1, 2, 3]);
        ensure_eq!(found(&list, b"one"), Some(1));
        ensure_eq!(found(&list, b"two"), Some(2));
        ensure_eq!(found(&list, b"three"), Some(3));
        // A name that is not there finds none, not the last one.
        ensure_eq!(found(&list, b"four"), None);
        ensure_eq!(found(&list, b""), None);
        Ok(())
    }

    #[test]
    fn one_leaves_while_others_stay() -> Result {
        let mut list = Numbers::new();
        for provider in 1..=3u8 {
            add(&mut list, &[b'a' + provider], 1, u32::from(provider))?;
        }
        let (number, ..) = list.next(0, None).ok_or(ENOENT)?;
        ensure_eq!(remove(&mut list, 2), Ok(2));
        ensure_eq!(remove(&mut list, 2), Err(EINVAL));
        // A caller that goes through the list continues after the one that it has seen.
        ensure_eq!(list.next(number, None).map(|(.., it)| *it), Some(3));
        ensure_eq!(&all(&list)?[..], &[1, 3]);
        Ok(())
    }

    #[test]
    fn a_newer_version_replaces_an_older_one() -> Result {
        let mut list = Numbers::new();
        add(&mut list, b"one", 1, 1)?;
        add(&mut list, b"two", 5, 2)?;
        ensure_eq!(add(&mut list, b"two", 4, 3), Err(EEXIST));
        ensure_eq!(add(&mut list, b"two", 5, 3), Err(EEXIST));
        ensure_eq!(found(&list, b"two"), Some(2));
        ensure_eq!(add(&mut list, b"two", 6, 3), Ok(()));
        ensure_eq!(found(&list, b"two"), Some(3));
        ensure_eq!(&all(&list)?[..], &[1, 3]);
        // The replaced one is still registered for its module: neither twice, nor for ever.
        ensure!(list.contains(|provider| *provider == 2));
        ensure_eq!(remove(&mut list, 2), Ok(2));
        ensure!(!list.contains(|provider| *provider == 2));
        ensure_eq!(found(&list, b"two"), Some(3));
        Ok(())
    }

    #[test]
    fn what_may_not_be_replaced_stays() -> Result {
        let mut list = Numbers::new();
        add(&mut list, b"one", 1, 1)?;
        ensure_eq!(add(&mut list, b"one", 2, 2), Err(EEXIST));
        ensure_eq!(found(&list, b"one"), Some(1));
        ensure_eq!(add(&mut list, b"", 2, 2), Err(EINVAL));
        Ok(())
    }

    #[test]
    fn a_caller_keeps_a_provider_that_leaves() -> Result {
        let mut list = Numbers::new();
        add(&mut list, b"one", 1, 1)?;
        let kept = list
            .find(&Name::new(b"one").unwrap_or(Name::EMPTY))
            .ok_or(ENOENT)?;
        let left = list.deregister(|_| true)?;
        ensure!(Arc::ptr_eq(&kept, &left));
        drop(left);
        ensure_eq!(*kept, 1);
        Ok(())
    }
}
