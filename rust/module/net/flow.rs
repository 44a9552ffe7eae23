// SPDX-License-Identifier: GPL-2.0

//! Flows: rules at a UD QP that count received packets.
//!
//! A softirq that receives a packet for a QP looks for the flows that the packet belongs to, and
//! adds to their counters ([`FlowTable::count`]). [`kfi_core::flow::rule`] has the fields that are
//! compared, and the order of the rules. A flow never changes what happens to a packet: the QP
//! number alone determines the QP that gets it.
//!
//! # Packets that are counted
//!
//! Each packet that arrives at the QP: its service is UD, its destination address is the QP's, and
//! its ICRC is valid. It is counted when it arrives, whether or not there is a receive for it, it
//! has the QP's Q key, or the inbox has room. Datagrams between two endpoints of one host pass
//! through the network stack, so they are counted too. The bytes of a packet are those of the
//! statistics of links and QPs: from the BTH to the ICRC. So they do not depend on the version of
//! IP.
//!
//! # Changes
//!
//! The rules of a table are one array, which is prepared when a flow is created or destroyed, and
//! replaced under RCU ([`RcuCell`]). So a packet is compared with the rules of one moment. What a
//! flow counts into ([`Counted`]) is replaced in the same way. Values are per CPU: counting takes
//! no lock, and CPUs do not contend for a cache line.
//!
//! Destroying a flow waits for no softirq. A packet that arrives at the same moment may be counted
//! afterwards; the memory is freed when that has ended. Destroying a flow cannot fail either, so it
//! must not depend on memory for a new array: without memory the array keeps a rule that matches
//! nothing any more ([`Counted::is_active`]), until the next change.
//!
//! Arrays are charged to the owner of the endpoint, or of the flow, until they are freed: a program
//! that changes flows in a loop gets `ENOMEM` when too many arrays wait for a grace period.

#[cfg(kfi_kunit)]
#[path = "../../../kunit/flow.rs"]
mod kunit;

use super::socket::AddrPair;
use crate::{
    mem::{
        Allowance,
        Budget, //
    },
    shim::{
        percpu::{
            PerCpu,
            PerCpuArray, //
        },
        rcu::{
            RcuBox,
            RcuCell, //
        },
        skb::RxSkb, //
    }, //
};
use core::{
    convert::Infallible,
    ops::ControlFlow, //
};
use kernel::{
    new_mutex,
    prelude::*,
    sync::{
        atomic::{
            Atomic,
            Relaxed, //
        },
        Arc,
        Mutex, //
    }, //
};
use kfi_core::{
    flow::{
        for_each_match,
        place,
        words_of,
        Fields,
        Point,
        Rule,
        Times, //
    },
    limits::MAX_FLOWS, //
};
use kfi_roce::{
    headers::Headers,
    packet::Packet, //
};

/// The values of a counters object. They only grow.
pub(crate) struct FlowValues {
    values: PerCpuArray,
    _memory: Allowance,
}

impl FlowValues {
    /// `len` values that are 0, charged to `budget`. Fails with `ENOMEM`. Sleeps.
    pub(crate) fn new(len: usize, budget: &Budget) -> Result<Arc<Self>> {
        let memory = budget.take_for::<Self>(PerCpuArray::bytes(len))?;
        let values = PerCpuArray::new(len)?;
        Ok(Arc::new(
            Self {
                values,
                _memory: memory,
            },
            GFP_KERNEL_ACCOUNT,
        )?)
    }

    /// The value at `index`, as it is at some moment of the call. Any context.
    pub(crate) fn get(&self, index: usize) -> u64 {
        self.values.sum(index)
    }

    /// The number of values.
    pub(crate) fn len(&self) -> usize {
        self.values.len()
    }
}

/// What a packet of a flow adds to one value.
struct Add {
    to: Arc<FlowValues>,
    index: usize,
    times: Times,
}

/// All that a packet of a flow adds. Dropped by a worker.
struct Adds {
    adds: KVec<Add>,
    _memory: Allowance,
}

/// The counter points of a flow, and the packets that belong to it.
pub(crate) struct Counted {
    /// The packets and their bytes.
    totals: PerCpu<2>,
    /// Empty if the flow has no points.
    adds: RcuCell<Adds>,
    is_active: Atomic<bool>,
}

impl Counted {
    /// Bytes of memory, on all CPUs.
    pub(crate) fn bytes() -> usize {
        size_of::<Self>().saturating_add(PerCpuArray::bytes(2))
    }

    /// A flow without points. Fails with `ENOMEM`. Sleeps.
    pub(crate) fn new() -> Result<Arc<Self>> {
        Ok(Arc::new(
            Self {
                totals: PerCpu::new()?,
                adds: RcuCell::empty(),
                is_active: Atomic::new(true),
            },
            GFP_KERNEL_ACCOUNT,
        )?)
    }

    /// Replaces the points by `points`, each with the values that it adds to. The memory is charged
    /// to `budget`. The caller prevents two changes at the same time. Fails with `ENOMEM`, and
    /// changes nothing then. Sleeps.
    pub(crate) fn set_points<'a>(
        &self,
        points: impl ExactSizeIterator<Item = (&'a Arc<FlowValues>, Point)>,
        budget: &Budget,
    ) -> Result {
        let memory = budget.take_for::<Adds>(points.len().saturating_mul(size_of::<Add>()))?;
        let mut adds = KVec::<Add>::with_capacity(points.len(), GFP_KERNEL_ACCOUNT)?;
        for (to, point) in points {
            let index = point.index as usize;
            // Points of one index are added in one step.
            let same = |add: &&mut Add| Arc::ptr_eq(&add.to, to) && add.index == index;
            if let Some(add) = adds.iter_mut().find(same) {
                add.times.count(point.description);
                continue;
            }
            let mut times = Times::default();
            times.count(point.description);
            let to = to.clone();
            adds.push(Add { to, index, times }, GFP_KERNEL_ACCOUNT)?;
        }
        let adds = RcuBox::pin_init::<Infallible>(Adds {
            adds,
            _memory: memory,
        })?;
        drop(self.adds.replace(Some(adds)));
        Ok(())
    }

    /// Ends counting: packets that arrive after this do not belong to the flow any more. Does not
    /// wait for those that are being counted. Process context.
    fn end(&self) {
        self.is_active.store(false, Relaxed);
        drop(self.adds.replace(None));
    }

    /// Whether packets can belong to the flow. Any context.
    fn is_active(&self) -> bool {
        self.is_active.load(Relaxed)
    }

    /// Counts a packet of `bytes` bytes. Any context.
    fn count(&self, bytes: u64) {
        self.totals.count(0, bytes);
        self.adds.with(|adds| {
            for add in &adds.adds {
                add.to.values.add(add.index, add.times.of(bytes));
            }
        });
    }

    /// The number of packets that belonged to the flow, and of their bytes, each as it is at some
    /// moment of the call. Any context.
    pub(crate) fn totals(&self) -> (u64, u64) {
        (self.totals.sum(0), self.totals.sum(1))
    }
}

/// A flow in a table.
struct Registered {
    rule: Rule,
    priority: u32,
    /// Packets that match are compared with later rules too.
    continues: bool,
    counted: Arc<Counted>,
}

/// The rules that packets are compared with. Dropped by a worker.
struct Rules {
    rules: KVec<Rule>,
    /// Of each rule: whether packets continue, and what they add to.
    flows: KVec<(bool, Arc<Counted>)>,
    _memory: Allowance,
}

/// The flows of a QP, see the module documentation.
#[pin_data]
pub(crate) struct FlowTable {
    /// In the order in which packets are compared with them. Held across allocations, in process
    /// context only; no other lock is taken under it but those of allocations and accounts.
    #[pin]
    flows: Mutex<KVec<Registered>>,
    /// The same for softirqs; empty if there are none.
    rules: RcuCell<Rules>,
    owner: Budget,
}

impl FlowTable {
    /// Bytes of memory in the table that a flow uses, and that its owner is charged for. The list
    /// grows to twice its length.
    pub(crate) const ENTRY_BYTES: usize = 2 * size_of::<Registered>();

    /// A table without flows, whose arrays are charged to `owner`. Fails with `ENOMEM`. Sleeps.
    pub(crate) fn new(owner: &Budget) -> Result<Arc<Self>> {
        let owner = owner.clone();
        Arc::pin_init(
            pin_init!(Self {
                flows <- new_mutex!(KVec::new(), "FlowTable::flows"),
                rules: RcuCell::empty(),
                owner,
            }),
            GFP_KERNEL_ACCOUNT,
        )
    }

    /// The array of `flows`. Fails with `ENOMEM`. Sleeps.
    fn prepare(&self, flows: &[Registered]) -> Result<RcuBox<Rules>> {
        let bytes = size_of::<Rule>().saturating_add(size_of::<(bool, Arc<Counted>)>());
        let memory = self
            .owner
            .take_for::<Rules>(bytes.saturating_mul(flows.len()))?;
        let mut rules = KVec::with_capacity(flows.len(), GFP_KERNEL_ACCOUNT)?;
        let mut counted = KVec::with_capacity(flows.len(), GFP_KERNEL_ACCOUNT)?;
        for flow in flows {
            rules.push(flow.rule, GFP_KERNEL_ACCOUNT)?;
            counted.push((flow.continues, flow.counted.clone()), GFP_KERNEL_ACCOUNT)?;
        }
        RcuBox::pin_init::<Infallible>(Rules {
            rules,
            flows: counted,
            _memory: memory,
        })
    }

    /// Adds a flow. Packets belong to it from now on. Fails with `ENOSPC` if there are
    /// [`MAX_FLOWS`], `ENOMEM`. Sleeps.
    pub(crate) fn insert(
        &self,
        rule: Rule,
        priority: u32,
        continues: bool,
        counted: &Arc<Counted>,
    ) -> Result {
        let mut flows = self.flows.lock();
        if flows.len() >= MAX_FLOWS {
            return Err(ENOSPC);
        }
        flows.reserve(1, GFP_KERNEL_ACCOUNT)?;
        let place = place(flows.iter().map(|flow| flow.priority), priority);
        let flow = Registered {
            rule,
            priority,
            continues,
            counted: counted.clone(),
        };
        // There is room, and the place is at most the length.
        flows
            .insert_within_capacity(place, flow)
            .map_err(|_| ENOMEM)?;
        match self.prepare(&flows) {
            Ok(rules) => {
                drop(self.rules.replace(Some(rules)));
                Ok(())
            }
            Err(error) => {
                let flow = flows.remove(place);
                drop(flow);
                Err(error)
            }
        }
    }

    /// Removes a flow; does nothing if it is not in the table. Packets that arrive after this do
    /// not belong to it any more. Does not wait for those that are being counted. Sleeps.
    pub(crate) fn remove(&self, counted: &Arc<Counted>) {
        counted.end();
        let mut flows = self.flows.lock();
        let is_it = |flow: &Registered| Arc::ptr_eq(&flow.counted, counted);
        let Some(place) = flows.iter().position(is_it) else {
            return;
        };
        let flow = flows.remove(place);
        drop(flow);
        let rules = match flows.is_empty() {
            true => Ok(None),
            false => self.prepare(&flows).map(Some),
        };
        // Without memory the present array stays. The flow is not active any more.
        if let Ok(rules) = rules {
            drop(self.rules.replace(rules));
        }
    }

    /// Counts a packet that has arrived. Softirq.
    #[inline]
    pub(super) fn count(&self, packet: &Packet, addrs: &AddrPair, skb: &RxSkb) {
        if !self.rules.is_empty() {
            self.count_matches(packet, addrs, skb);
        }
    }

    #[inline(never)]
    #[link_section = ".text.hot"]
    fn count_matches(&self, packet: &Packet, addrs: &AddrPair, skb: &RxSkb) {
        let Some(fields) = fields(packet, skb) else {
            return;
        };
        let words = words_of(addrs.from, addrs.to, &fields);
        let bytes = packet.len() as u64;
        self.rules.with(|rules| {
            for_each_match(&rules.rules, &words, |index| {
                match rules.flows.get(index) {
                    Some((continues, counted)) if counted.is_active() => {
                        counted.count(bytes);
                        if *continues {
                            ControlFlow::Continue(())
                        } else {
                            ControlFlow::Break(())
                        }
                    }
                    // It was destroyed.
                    _ => ControlFlow::Continue(()),
                }
            });
        });
    }

    /// The number of rules that a packet is compared with.
    #[cfg(kfi_kunit)]
    fn compared(&self) -> usize {
        self.rules.with(|rules| rules.rules.len()).unwrap_or(0)
    }
}

/// The fields of a UD packet, except for its addresses; `None` for other packets.
fn fields(packet: &Packet, skb: &RxSkb) -> Option<Fields> {
    let Headers::Datagram(deth, _) = packet.headers() else {
        return None;
    };
    let [high, low, ..] = *skb.udp();
    Some(Fields {
        src_port: u16::from_be_bytes([high, low]),
        dest_qp: packet.bth.dest_qp.get(),
        src_qp: deth.src_qp.get(),
        opcode: packet.opcode().byte(),
        ..Fields::default()
    })
}
