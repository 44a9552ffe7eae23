// SPDX-License-Identifier: GPL-2.0

//! Suite `kfabric_account`: the accounts to which users are charged for their objects.

use super::*;
use crate::{
    kunit::helpers::{
        user,
        CountedWork, //
    },
    mem::Budget,
    shim::{
        cred::Owner,
        reclaim::OwnerKind, //
    }, //
};
use core::net::{
    Ipv4Addr,
    Ipv6Addr, //
};

fn is_listed(user: Kuid) -> bool {
    let accounts = ACCOUNTS.lock();
    let tree = accounts.tree.as_ref();
    tree.is_some_and(|tree| tree.values().any(|account| account.user == user))
}

#[kunit_tests(kfabric_account)]
mod tests {
    use super::*;

    /// An account accepts charges up to its limit. Memory that is released can be charged again.
    #[test]
    fn an_account_has_a_limit() -> Result {
        let budget = Budget::of(user(1), Some(100))?;
        let most = budget.take(60)?;
        ensure_eq!(budget.take(41).err(), Some(ENOMEM));
        let rest = budget.take(40)?;
        ensure_eq!(budget.take(1).err(), Some(ENOMEM));
        ensure!(budget.take(0).is_ok());
        drop(most);
        ensure_eq!(budget.take(61).err(), Some(ENOMEM));
        let again = budget.take(60)?;
        drop((rest, again));
        ensure!(budget.take(100).is_ok());
        ensure_eq!(budget.take(u64::MAX).err(), Some(ENOMEM));
        Ok(())
    }

    /// The charges of peers have a part of the limit, also of a user without one.
    #[test]
    fn charges_of_peers_have_a_part_of_the_limit() -> Result {
        let limit = ACCOUNTS.lock().limit;
        let unlimited = Budget::of(user(9), Some(u64::MAX))?;
        let limited = Budget::of(user(13), Some(1000))?;
        for (budget, part, share) in [
            (&unlimited, Part::HalfOpen, limit / 4),
            (&limited, Part::HalfOpen, limit / 4),
            (&unlimited, Part::Peers, large_limit().max(limit) / 2),
            (&limited, Part::Peers, 500),
        ] {
            let most = budget.take_part(part, share)?;
            ensure_eq!(budget.take_part(part, 1).err(), Some(ENOMEM));
            ensure_eq!(budget.clone().take_part(part, 1).err(), Some(ENOMEM));
            // The rest of the account is available to the owner.
            ensure!(budget.take(1000).is_ok());
            drop(most);
            ensure!(budget.take_part(part, share).is_ok());
        }
        // A charge that cannot be refused is made even above the limit.
        let anyway = limited.take_anyway(2000);
        ensure_eq!(limited.take(1).err(), Some(ENOMEM));
        drop(anyway);
        ensure!(limited.take(1000).is_ok());
        Ok(())
    }

    /// Work of peers beyond the workers of a user waits for one of them, once each and in order.
    /// Other users, and users of another kind, have their own.
    #[test]
    fn workers_for_peers_are_limited() -> Result {
        let owner = Owner::current(OwnerKind::Program)?;
        let budget = Budget::of(user(24), None)?;
        let work = CountedWork::new()?;
        let mut workers = KVec::new();
        while let Some(worker) = budget.enter_peer_worker(&owner, work.clone()) {
            workers.push(worker, GFP_KERNEL)?;
            ensure!(workers.len() < 1024);
        }
        ensure!(workers.len() >= 64);
        let second = CountedWork::new()?;
        for _ in 0..3 {
            ensure!(budget.enter_peer_worker(&owner, second.clone()).is_none());
            ensure!(budget.enter_peer_worker(&owner, work.clone()).is_none());
        }
        for other in [Budget::of(user(25), None)?, Budget::of_consumer(user(24))?] {
            ensure!(other.enter_peer_worker(&owner, second.clone()).is_some());
        }
        let queued = || (work.queued.get(), second.queued.get());
        ensure_eq!(queued(), (0, 0));
        drop(workers.pop());
        ensure_eq!(queued(), (1, 0));
        drop(workers.pop());
        ensure_eq!(queued(), (1, 1));
        // Both have a slot, which work that comes later does not take.
        let late = CountedWork::new()?;
        ensure!(budget.enter_peer_worker(&owner, late.clone()).is_none());
        let first = budget.enter_peer_worker(&owner, second.clone());
        ensure!(first.is_some());
        ensure!(budget.enter_peer_worker(&owner, late.clone()).is_none());
        drop(first);
        ensure_eq!(late.queued.get(), 1);
        // Work that has nothing to do any more returns its slot: the next one gets it. Work without
        // a slot returns nothing.
        ensure!(budget.enter_peer_worker(&owner, second.clone()).is_none());
        budget.return_peer_slot(&second.peer_place);
        ensure_eq!(second.queued.get(), 1);
        budget.return_peer_slot(&late.peer_place);
        ensure_eq!(second.queued.get(), 2);
        budget.return_peer_slot(&second.peer_place);
        let again = budget.enter_peer_worker(&owner, late.clone());
        ensure!(again.is_some());
        drop(again);
        // The last worker queues all that waits.
        let mut many = KVec::new();
        while let Some(worker) = budget.enter_peer_worker(&owner, work.clone()) {
            workers.push(worker, GFP_KERNEL)?;
        }
        for _ in 0..3 * workers.len() {
            let work = CountedWork::new()?;
            ensure!(budget.enter_peer_worker(&owner, work.clone()).is_none());
            many.push(work, GFP_KERNEL)?;
        }
        drop(workers);
        ensure!(many.iter().all(|work| work.queued.get() == 1));
        ensure_eq!(queued(), (2, 2));
        ensure!(budget.enter_peer_worker(&owner, work.clone()).is_some());
        Ok(())
    }

    /// Work that finds no worker waits in order. Each worker that ends queues one item.
    #[test]
    fn work_waits_for_the_end_of_a_worker() -> Result {
        let budget = Budget::of(user(26), None)?;
        let mut workers = KVec::new();
        while let Some(worker) = budget.enter_worker() {
            workers.push(worker, GFP_KERNEL)?;
            ensure!(workers.len() < 1024);
        }
        ensure!(workers.len() >= 64);
        let all = [
            CountedWork::new()?,
            CountedWork::new()?,
            CountedWork::new()?,
        ];
        let [first, second, third] = &all;
        let enter =
            |work: &Arc<CountedWork>| budget.enter_worker_or_wait(|| work.clone(), &work.place);
        let queued = || all.each_ref().map(|work| work.queued.get());
        let waiting = || all.each_ref().map(|work| work.place.is_waiting());
        for work in [first, second, first, third, second] {
            ensure!(enter(work).is_none());
        }
        ensure_eq!((queued(), waiting()), ([0; 3], [true; 3]));
        drop(workers.pop());
        ensure_eq!((queued(), waiting()), ([1, 0, 0], [false, true, true]));
        // It runs, or others do. Whichever ends queues the next one.
        let worker = enter(first);
        ensure!(worker.is_some());
        ensure!(enter(first).is_none());
        budget.wait_no_more(&second.place);
        ensure_eq!((queued(), waiting()), ([1, 0, 0], [true, false, true]));
        drop(worker);
        ensure_eq!((queued(), waiting()), ([1, 0, 1], [true, false, false]));
        // Work that runs by another way does not wait any more. That which waits no more is not
        // queued, and does not wait again.
        let worker = budget.enter_worker();
        ensure!(worker.is_some());
        ensure!(enter(second).is_none());
        ensure_eq!(waiting(), [true, false, false]);
        drop((workers, worker));
        ensure_eq!((queued(), waiting()), ([2, 0, 1], [false; 3]));
        ensure!(enter(third).is_some());
        ensure_eq!(queued(), [2, 0, 1]);
        Ok(())
    }

    /// Peers that take what they can have equal shares in the end, and there is room for another.
    #[test]
    fn peers_have_equal_shares() -> Result {
        let limit = ACCOUNTS.lock().limit;
        let limited = Budget::of(user(22), Some(8000))?;
        let unlimited = Budget::of(user(23), Some(u64::MAX))?;
        for (budget, part, bytes) in [
            (&limited, Part::Peers, 4000),
            (&limited, Part::HalfOpen, limit / 4),
            (&unlimited, Part::Peers, large_limit().max(limit) / 2),
            (&unlimited, Part::HalfOpen, limit / 4),
        ] {
            let ip = |host| Ipv4Addr::new(192, 0, 2, host).into();
            let peer = |host| budget.share_of(Source::host(ip(host), 0));
            let (first, again, second) = (peer(1)?, peer(1)?, peer(2)?);
            let step = bytes / 400;
            // One alone gets four fifths, with any number of sessions.
            let mut taken = KVec::new();
            while let Ok(bytes) = first
                .take(budget, part, step)
                .or_else(|_| again.take(budget, part, step))
            {
                taken.push(bytes, GFP_KERNEL)?;
            }
            ensure_eq!(taken.len(), 320);
            taken.clear();
            drop(first);
            for share in [&again, &second].into_iter().cycle().take(400) {
                if let Ok(bytes) = share.take(budget, part, step) {
                    taken.push(bytes, GFP_KERNEL)?;
                }
            }
            ensure_eq!(taken.len(), 355);
            let third = peer(3)?.take(budget, part, 45 * step)?;
            drop((taken, third));
            ensure_eq!(budget.charged(part), (0, 0));
        }
        Ok(())
    }

    /// A host may have any number of addresses of an IPv6 network, and leaves as much as one
    /// source.
    #[test]
    fn the_addresses_of_a_network_leave_room_for_others() -> Result {
        let budget = Budget::of(user(26), Some(8000))?;
        let peer = |network, host| {
            let ip = Ipv6Addr::new(0x2001, 0xdb8, 0, network, 0, 0, 0, host);
            budget.share_of(Source::host(ip.into(), 0))
        };
        let (mut taken, mut shares) = (KVec::new(), KVec::new());
        for host in 0..100 {
            let share = peer(1, host)?;
            while let Ok(bytes) = share.take(&budget, Part::Peers, 10) {
                taken.push(bytes, GFP_KERNEL)?;
            }
            ensure!(host != 0 || taken.len() < 300);
            shares.push(share, GFP_KERNEL)?;
        }
        // Four fifths of the part.
        ensure!((310..=320).contains(&taken.len()));
        let elsewhere = peer(2, 1)?;
        let others = elsewhere.take(&budget, Part::Peers, 400)?;
        ensure!(peer(1, 100)?.take(&budget, Part::Peers, 10).is_err());
        drop((taken, others, elsewhere, shares));
        ensure_eq!(budget.charged(Part::Peers), (0, 0));
        ensure!(budget.account.0.peer_uses.lock().is_empty());
        Ok(())
    }

    /// Waiting packets may use a part of the limit, also of a user without a limit, and affect no
    /// other users.
    #[test]
    fn waiting_packets_have_a_part_of_the_limit() -> Result {
        let limit = ACCOUNTS.lock().limit;
        let limited = Budget::of(user(14), Some(1000))?;
        let other = Budget::of(user(15), Some(1000))?;
        let unlimited = Budget::of(user(16), Some(u64::MAX))?;
        for (budget, part) in [(&limited, 250), (&unlimited, limit / 4)] {
            budget.charge_inbox(part, 0)?;
            ensure_eq!(budget.charge_inbox(1, 0), Err(ENOMEM));
            ensure_eq!(budget.clone().charge_inbox(1, 0), Err(ENOMEM));
            ensure_eq!(budget.charged(Part::Inboxes), (part, part));
            ensure!(other.charge_inbox(250, 0).is_ok());
            other.uncharge_inbox(250);
            // Memory that was released can be charged again.
            budget.uncharge_inbox(1);
            ensure!(budget.charge_inbox(1, 0).is_ok());
        }
        // An inbox leaves as much free as it has charged.
        limited.uncharge_inbox(130);
        ensure_eq!(limited.charge_inbox(11, 120), Err(ENOMEM));
        ensure!(limited.charge_inbox(10, 120).is_ok());
        ensure!(limited.charge_inbox(120, 0).is_ok());
        // Packets and objects share the limit.
        ensure_eq!(limited.take(751).err(), Some(ENOMEM));
        let objects = limited.take(750)?;
        limited.uncharge_inbox(250);
        ensure_eq!(limited.charged(Part::Inboxes), (750, 0));
        let rest = limited.take(200)?;
        ensure_eq!(limited.charge_inbox(51, 0), Err(ENOMEM));
        ensure_eq!(limited.charged(Part::Inboxes), (950, 0));
        ensure!(limited.charge_inbox(50, 0).is_ok());
        limited.uncharge_inbox(50);
        unlimited.uncharge_inbox(limit / 4);
        drop((objects, rest));
        for budget in [&limited, &other, &unlimited] {
            ensure_eq!(budget.charged(Part::Inboxes), (0, 0));
        }
        Ok(())
    }

    /// The users of a namespace share the part of its owner.
    #[test]
    fn waiting_packets_in_namespaces_share_a_part() -> Result {
        let owner = Budget::of(user(17), Some(1000))?;
        let parent = || Budget::of(user(17), Some(1000)).map(|budget| Some(budget.account));
        let one = Budget::below(parent()?, OwnerKind::Program, user(18), Some(1000))?;
        let other = Budget::below(parent()?, OwnerKind::Program, user(19), Some(1000))?;
        one.charge_inbox(200, 0)?;
        ensure_eq!(owner.charged(Part::Inboxes), (200, 200));
        ensure_eq!(other.charge_inbox(51, 0), Err(ENOMEM));
        // A charge that the parent refuses is not made in its child either.
        ensure_eq!(other.charged(Part::Inboxes), (0, 0));
        ensure!(other.charge_inbox(50, 0).is_ok());
        one.uncharge_inbox(200);
        other.uncharge_inbox(50);
        ensure_eq!(owner.charged(Part::Inboxes), (0, 0));
        Ok(())
    }

    /// The programs of a user do not use up what the user's kernel consumers may have.
    #[test]
    fn programs_and_kernel_consumers_have_an_account_each() -> Result {
        let programs = Budget::of(user(21), Some(1000))?;
        let consumers = Budget::of_consumer(user(21))?;
        let held = programs.take(1000)?;
        ensure_eq!(consumers.charged(Part::Inboxes), (0, 0));
        let other = consumers.take(500)?;
        ensure_eq!(programs.charged(Part::Inboxes), (1000, 0));
        drop(held);
        ensure_eq!(consumers.charged(Part::Inboxes), (500, 0));
        ensure_eq!(programs.charged(Part::Inboxes), (0, 0));
        drop(other);
        ensure_eq!(
            Budget::of_consumer(user(21))?.charged(Part::Inboxes),
            (0, 0)
        );
        Ok(())
    }

    /// A sum that does not fit in its number exceeds every limit.
    #[test]
    fn charges_without_a_limit_do_not_wrap() -> Result {
        let budget = Budget::of(user(2), Some(u64::MAX))?;
        let _most = budget.take(u64::MAX)?;
        ensure_eq!(budget.take(1).err(), Some(ENOMEM));
        Ok(())
    }

    /// All files of a user share one account; those of other users are not affected.
    #[test]
    fn all_files_of_a_user_share_an_account() -> Result {
        let (one, two) = (
            Budget::of(user(3), Some(10))?,
            Budget::of(user(3), Some(10))?,
        );
        let other = Budget::of(user(4), Some(10))?;
        let held = one.take(10)?;
        ensure_eq!(two.take(1).err(), Some(ENOMEM));
        ensure_eq!(two.clone().take(1).err(), Some(ENOMEM));
        ensure!(other.take(10).is_ok());
        drop(held);
        ensure!(two.take(10).is_ok());
        Ok(())
    }

    /// Closing a file and opening another one does not start a new account.
    #[test]
    fn an_allowance_keeps_the_account() -> Result {
        let held = Budget::of(user(5), Some(10))?.take(10)?;
        ensure!(is_listed(user(5)));
        ensure_eq!(Budget::of(user(5), Some(10))?.take(1).err(), Some(ENOMEM));
        drop(held);
        ensure!(!is_listed(user(5)));
        ensure!(Budget::of(user(5), Some(10))?.take(10).is_ok());
        Ok(())
    }

    /// Charges of every user of a namespace also count for the owner of the namespace.
    #[test]
    fn namespaces_share_the_account_of_their_owner() -> Result {
        let owner = Budget::of(user(7), Some(100))?;
        let parent = || Budget::of(user(7), Some(100)).map(|budget| Some(budget.account));
        let one = Budget::below(parent()?, OwnerKind::Program, user(8), Some(100))?;
        let other = Budget::below(parent()?, OwnerKind::Program, user(9), Some(100))?;
        // The same user outside of the namespace has another account.
        let outside = Budget::of(user(8), Some(100))?;
        let held = one.take(60)?;
        ensure_eq!(other.take(41).err(), Some(ENOMEM));
        ensure_eq!(owner.take(41).err(), Some(ENOMEM));
        let rest = other.take(40)?;
        ensure!(outside.take(100).is_ok());
        // A charge that the parent refused was not made in the child.
        drop(held);
        let all = one.take(60)?;
        drop((rest, all));
        ensure!(other.take(100).is_ok() && owner.take(100).is_ok());
        // A second file of the user gets the same account.
        let again = Budget::below(parent()?, OwnerKind::Program, user(8), Some(100))?;
        let held = again.take(100)?;
        ensure_eq!(one.take(1).err(), Some(ENOMEM));
        drop((held, one, other, again, owner, outside));
        for n in 7..10 {
            ensure!(!is_listed(user(n)));
        }
        Ok(())
    }

    /// The owner of the namespace is delayed for refusals; a user without a limit is not.
    #[test]
    fn refusals_delay_the_user() -> Result {
        let parent = Budget::of(user(10), Some(100))?;
        let account = Budget::of(user(10), Some(100))?.account;
        let child = Budget::below(Some(account), OwnerKind::Program, user(11), Some(100))?;
        let privileged = Budget::of(user(10), Some(u64::MAX))?;
        for _ in 0..100 {
            child.refused(1);
        }
        ensure!(child.is_delayed(1) && parent.is_delayed(1) && !privileged.is_delayed(1));
        ensure_eq!(child.enter_access(1, false), Err(EAGAIN));
        // Most other endpoints of the user are not delayed.
        let others = (2..102).filter(|number| child.is_delayed(*number)).count();
        ensure!(others < 20);
        let free = Budget::of(user(12), Some(u64::MAX))?;
        for _ in 0..100 {
            free.refused(1);
        }
        ensure!(!Budget::of(user(12), Some(1))?.is_delayed(1));
        Ok(())
    }

    /// An account ends with its last reference.
    #[test]
    fn an_account_ends_with_its_last_reference() -> Result {
        let budget = Budget::of(user(6), None)?;
        let copy = budget.clone();
        drop(budget);
        ensure!(is_listed(user(6)));
        drop(copy);
        ensure!(!is_listed(user(6)));
        Ok(())
    }
}
