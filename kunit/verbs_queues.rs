// SPDX-License-Identifier: GPL-2.0

//! Suite `kfabric_verbs_queues`: the receive queues of verbs, and what they and completion queues
//! have in common.

use super::{
    cq::{
        Access,
        Arm,
        Cq,
        Entry,
        MAX_CQE, //
    },
    device::Device,
    kunit_fixture::{
        cookie,
        entry,
        functions,
        polls,
        Calls,
        Case, //
    },
    pd::Pd,
    qp::{
        Parents,
        Qp, //
    },
    raw,
    recv::{
        Limits,
        RecvQueue,
        MAX_RECV_WR, //
    },
    sge::{
        Sge,
        MAX_SGE, //
    },
    srq::Srq, //
};
use crate::{
    kunit::{
        contexts::in_hard_irq,
        helpers::{
            raw_name,
            user,
            Count, //
        }, //
    },
    mem::{
        Budget,
        Part, //
    },
    net::{
        kunit_links::NoLinks,
        IfName,
        LinkName,
        NetNs,
        Path, //
    },
    shim::{
        memory::kmalloc_array_size,
        reclaim::OwnerKind, //
    }, //
};
use core::net::IpAddr;
use kernel::{
    interrupt::local_interrupt_disable,
    prelude::*,
    sync::Arc,
    types::ForeignOwnable, //
};
use kfi_roce::state::State;

/// The parts of the receive `n`.
fn parts<const N: usize>(n: u64) -> [Sge; N] {
    core::array::from_fn(|at| Sge {
        addr: n << 16 | at as u64,
        length: at as u32,
        lkey: n as u32,
    })
}

fn pops(queue: &RecvQueue, n: u64, count: usize) -> bool {
    let Some(recv) = queue.pop() else {
        return false;
    };
    recv.wr_id == n
        && recv.sges().len() == count
        && recv.sges().iter().enumerate().all(|(at, sge)| {
            sge.addr == n << 16 | at as u64 && sge.length == at as u32 && sge.lkey == n as u32
        })
}

/// A device on the loopback interface, which goes with this.
struct TestDevice {
    device: Arc<Device>,
    _link: NoLinks,
}

impl TestDevice {
    fn new() -> Result<Self> {
        let no_links = NoLinks;
        let device = Device::add(
            &NetNs::current()?,
            LinkName::new(&raw_name(b"kfi-test"))?,
            IfName::new(&raw_name(b"lo"))?,
            1,
            functions(),
        )?;
        Ok(Self {
            device,
            _link: no_links,
        })
    }

    fn srq(&self, calls: &Arc<Calls>, max_wr: u32, max_sge: u32) -> Result<Arc<Srq>> {
        let pd = Pd::new(self.device.kernel().clone())?;
        Srq::new(pd, cookie(calls), max_wr, max_sge)
    }
}

#[kunit_tests(kfabric_verbs_queues)]
mod tests {
    use super::*;

    #[test]
    fn queues_are_charged_and_limited() -> Result {
        let case = Case::new(67)?;
        ensure_eq!(case.charged(), 0);
        for entries in [0, MAX_CQE + 1, u32::MAX] {
            ensure_eq!(case.cq(entries).err(), Some(EINVAL));
        }
        let cq = case.cq(1000)?;
        let small = case.charged();
        ensure!((48_000..72_000).contains(&small));
        cq.resize(10_000)?;
        let large = case.charged();
        let taken = |entries| kmalloc_array_size::<Entry>(entries) as u64;
        ensure_eq!(large - small, taken(10_000) - taken(1000));
        ensure_eq!(cq.resize(0), Err(EINVAL));
        ensure_eq!(case.charged(), large);
        cq.resize(1000)?;
        ensure_eq!(case.charged(), small);
        drop(cq);
        ensure_eq!(case.charged(), 0);
        ensure!(case.cq(MAX_CQE).is_ok());

        let queue = RecvQueue::new(&case.budget, MAX_RECV_WR, MAX_SGE as u32)?;
        ensure!(case.charged() > 16384 * 256);
        queue.modify(Some(1), None)?;
        ensure!(case.charged() < 2000);
        drop(queue);
        ensure_eq!(case.charged(), 0);

        let poor = Budget::of(user(68), Some(90_000))?;
        let cq = Cq::new(&poor, functions(), cookie(&case.calls), 1000, Access::Calls)?;
        ensure_eq!(cq.resize(1000), Err(ENOMEM));
        ensure_eq!(RecvQueue::new(&poor, 10_000, 1).err(), Some(ENOMEM));
        drop(cq);
        ensure_eq!(poor.charged(Part::Peers).0, 0);
        Ok(())
    }

    #[test]
    fn receives_are_taken_in_order() -> Result {
        let case = Case::new(69)?;
        let queue = RecvQueue::new(&case.budget, 3, 2)?;
        ensure!(queue.is_empty() && queue.pop().is_none());
        let limits = Limits {
            max_wr: 3,
            max_sge: 2,
            limit: 0,
        };
        ensure_eq!(queue.limits(), limits);
        for n in (0..30).step_by(3) {
            queue.post(n, &parts::<2>(n))?;
            queue.post(n + 1, &parts::<0>(n + 1))?;
            queue.post(n + 2, &parts::<1>(n + 2))?;
            ensure_eq!(queue.post(9, &parts::<1>(9)), Err(ENOMEM));
            ensure_eq!(queue.post(9, &parts::<3>(9)), Err(EINVAL));
            ensure!(!queue.is_empty());
            ensure!(pops(&queue, n, 2) && pops(&queue, n + 1, 0) && pops(&queue, n + 2, 1));
            ensure!(queue.is_empty() && queue.pop().is_none());
            // The next round begins at another place.
            queue.post(9, &[])?;
            ensure!(pops(&queue, 9, 0));
        }
        queue.post(1, &[])?;
        queue.set_closed(true);
        ensure_eq!(queue.post(2, &[]), Err(EINVAL));
        ensure!(pops(&queue, 1, 0));
        queue.set_closed(false);
        queue.post(2, &[])?;
        queue.post(3, &[])?;
        queue.clear();
        ensure!(queue.is_empty() && queue.pop().is_none());
        queue.post(4, &parts::<2>(4))?;
        ensure!(pops(&queue, 4, 2));
        Ok(())
    }

    #[test]
    fn receive_queues_have_limits() -> Result {
        let case = Case::new(69)?;
        let new = |wr, sge| RecvQueue::new(&case.budget, wr, sge);
        ensure_eq!(new(MAX_RECV_WR + 1, 1).err(), Some(EINVAL));
        ensure_eq!(new(u32::MAX, 1).err(), Some(EINVAL));
        ensure_eq!(new(1, MAX_SGE as u32 + 1).err(), Some(EINVAL));
        let none = new(0, 0)?;
        ensure_eq!(none.post(0, &[]), Err(ENOMEM));
        ensure_eq!(none.post(0, &parts::<1>(0)), Err(EINVAL));
        ensure!(none.pop().is_none());
        let most = new(2, MAX_SGE as u32)?;
        for n in 0..5 {
            most.post(n, &parts::<MAX_SGE>(n))?;
            ensure!(pops(&most, n, MAX_SGE));
        }
        ensure_eq!(most.post(0, &parts::<17>(0)), Err(EINVAL));
        Ok(())
    }

    #[test]
    fn a_receive_queue_gets_another_size() -> Result {
        let case = Case::new(69)?;
        let queue = RecvQueue::new(&case.budget, 100, 2)?;
        for n in 0..90 {
            queue.post(n, &[])?;
            ensure!(pops(&queue, n, 0));
        }
        for n in 0..100 {
            queue.post(n, &parts::<2>(n))?;
        }
        ensure_eq!(queue.modify(Some(99), None), Err(EINVAL));
        ensure_eq!(queue.modify(Some(0), None), Err(EINVAL));
        ensure_eq!(queue.modify(Some(MAX_RECV_WR + 1), None), Err(EINVAL));
        ensure_eq!(queue.modify(None, Some(101)), Err(EINVAL));
        ensure_eq!(queue.modify(Some(101), Some(102)), Err(EINVAL));
        ensure_eq!(queue.limits().max_wr, 100);
        queue.modify(Some(101), Some(101))?;
        queue.post(100, &parts::<1>(100))?;
        ensure_eq!(queue.post(101, &[]), Err(ENOMEM));
        // It has less room than the limit that is set, unless both change.
        ensure!(pops(&queue, 0, 2) && queue.limits().limit == 0);
        queue.modify(None, Some(101))?;
        ensure_eq!(queue.modify(Some(100), None), Err(EINVAL));
        queue.modify(Some(100), Some(50))?;
        let limits = Limits {
            max_wr: 100,
            max_sge: 2,
            limit: 50,
        };
        ensure_eq!(queue.limits(), limits);
        for n in 1..100 {
            ensure!(pops(&queue, n, 2));
        }
        ensure!(pops(&queue, 100, 1) && queue.is_empty());
        Ok(())
    }

    #[test]
    fn a_limit_is_reported_once() -> Result {
        let case = Case::new(70)?;
        let device = TestDevice::new()?;
        ensure_eq!(device.srq(&case.calls, 0, 1).err(), Some(EINVAL));
        let srq = device.srq(&case.calls, 10, 1)?;
        for n in 0..10 {
            srq.queue().post(n, &[])?;
        }
        let limits = || case.calls.numbers().2;
        ensure!(srq.pop().is_some());
        ensure_eq!(limits(), 0);
        srq.queue().modify(None, Some(8))?;
        ensure_eq!(srq.queue().limits().limit, 8);
        ensure!(srq.pop().is_some());
        ensure_eq!(limits(), 0);
        ensure!(srq.pop().is_some());
        ensure_eq!((limits(), srq.queue().limits().limit), (1, 0));
        ensure!(srq.pop().is_some());
        ensure_eq!(limits(), 1);
        // It is armed again, above what is left: the next receive that is taken reports it.
        srq.queue().modify(None, Some(10))?;
        ensure_eq!(limits(), 1);
        ensure!(srq.pop().is_some());
        ensure_eq!(limits(), 2);
        srq.queue().modify(None, Some(1))?;
        for left in (0..5).rev() {
            ensure!(srq.pop().is_some());
            ensure_eq!(limits(), if left == 0 { 3 } else { 2 });
        }
        ensure!(srq.pop().is_none());
        ensure!(srq.pd().context().budget().principal().kind() == OwnerKind::Consumer);
        drop(srq);
        Ok(())
    }

    /// It keeps as many as it is charged for, whatever it sends to.
    #[test]
    fn a_qp_for_datagrams_is_charged_for_its_paths() -> Result {
        const KEPT: usize = 64;
        let case = Case::new(72)?;
        let device = TestDevice::new()?;
        let context = device.device.kernel();
        let (budget, calls) = (context.budget(), cookie(&case.calls));
        let charged = || budget.charged(Part::Peers).0;
        let before = charged();
        let cq = || Cq::new(budget, functions(), calls, 1, Access::Calls);
        let pd = Pd::new(context.clone())?;
        let parents = Parents {
            pd,
            send_cq: cq()?,
            recv_cq: cq()?,
            srq: None,
        };
        let init = raw::kfabric_verbs_qp_init {
            type_: raw::KFABRIC_VERBS_QP_UD,
            ..Default::default()
        };
        let without_qp = charged();
        let qp = Qp::new(parents, &init)?;
        let with_qp = charged();
        ensure!(with_qp - without_qp > (KEPT * size_of::<Path>()) as u64);
        let mut paths = KVec::new();
        for number in 0..2 * KEPT as u8 {
            for class in [0, 4] {
                let [from, to] = [1, number + 2].map(|last| IpAddr::from([127, 0, 0, last]));
                let path = qp.paths()?.path(context.link(), from, to, class)?;
                let again = qp.paths()?.path(context.link(), from, to, class)?;
                ensure!(Arc::ptr_eq(&path, &again));
                paths.push(path, GFP_KERNEL)?;
            }
        }
        ensure_eq!(charged(), with_qp);
        let kept = paths
            .into_iter()
            .filter_map(|path| Arc::into_unique_or_drop(path).is_none().then_some(()));
        ensure_eq!(kept.count(), KEPT);
        let handle: *mut raw::kfabric_verbs_qp = qp.into_foreign().cast();
        // SAFETY: The handle is valid, and not used any more.
        unsafe { raw::kfabric_verbs_qp_destroy(handle) };
        ensure_eq!(charged(), before);
        Ok(())
    }

    /// No lock is taken that sleeps, which a kernel with checks of atomic context would report.
    #[test]
    fn any_context_may_ask_for_the_state() -> Result {
        let case = Case::new(73)?;
        let device = TestDevice::new()?;
        let context = device.device.kernel();
        for type_ in [raw::KFABRIC_VERBS_QP_RC, raw::KFABRIC_VERBS_QP_UD] {
            let calls = cookie(&case.calls);
            let cq = || Cq::new(context.budget(), functions(), calls, 1, Access::Calls);
            let parents = Parents {
                pd: Pd::new(context.clone())?,
                send_cq: cq()?,
                recv_cq: cq()?,
                srq: None,
            };
            let init = raw::kfabric_verbs_qp_init {
                type_,
                ..Default::default()
            };
            let qp = Qp::new(parents, &init)?;
            let right = Count::new()?;
            let (asked, count) = (qp.clone(), right.clone());
            in_hard_irq(move || {
                count.add((asked.reported_state() == (State::Reset, false)).into())
            })?;
            ensure_eq!(right.get(), 1);
            let handle: *mut raw::kfabric_verbs_qp = qp.into_foreign().cast();
            // SAFETY: The handle is valid, and not used any more.
            unsafe { raw::kfabric_verbs_qp_destroy(handle) };
        }
        Ok(())
    }

    #[test]
    fn queues_are_used_with_interrupts_off() -> Result {
        let case = Case::new(71)?;
        let cq = case.cq(4)?;
        let queue = RecvQueue::new(&case.budget, 4, 1)?;
        let right = Count::new()?;
        let (in_cq, in_queue, count) = (cq.clone(), queue.clone(), right.clone());
        let use_them = move || {
            count.add((!in_cq.arm(Arm::Next)).into());
            count.add(in_cq.push(&entry(1, 0), true).is_ok().into());
            count.add(in_cq.arm(Arm::Next).into());
            count.add(polls(&in_cq, 1, 1).into());
            count.add(in_queue.post(5, &parts::<1>(5)).is_ok().into());
            count.add(pops(&in_queue, 5, 1).into());
        };
        {
            let _off = local_interrupt_disable();
            use_them();
        }
        ensure_eq!(right.get(), 6);
        in_hard_irq(use_them)?;
        ensure_eq!(right.get(), 12);
        cq.notify();
        ensure_eq!(case.calls.numbers().0, 1);
        Ok(())
    }
}
