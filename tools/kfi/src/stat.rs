// SPDX-License-Identifier: GPL-2.0
//! Live statistics of objects, for other programs.

use std::net::SocketAddr;

use crate::{
    abi::{self, Call, calls},
    device::Device,
    enums::CompCntrType,
    errno::Errno,
    error::Result,
};

/// Class of objects that have statistics.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum StatClass {
    /// Endpoints.
    Endpoint,
    /// Completion queues.
    Cq,
    /// Counters.
    Cntr,
    /// Counters of flows.
    Counters,
    /// Flows.
    Flow,
    /// Completion counters of verbs.
    CompCntr,
}

impl StatClass {
    /// All of them.
    pub const ALL: [Self; 6] = [
        Self::Endpoint,
        Self::Cq,
        Self::Cntr,
        Self::CompCntr,
        Self::Counters,
        Self::Flow,
    ];

    fn raw(self) -> u32 {
        match self {
            Self::Endpoint => abi::KFI_CLASS_EP,
            Self::Cq => abi::KFI_CLASS_CQ,
            Self::Cntr => abi::KFI_CLASS_CNTR,
            Self::Counters => abi::KFABRIC_CLASS_COUNTERS,
            Self::Flow => abi::KFABRIC_CLASS_FLOW,
            Self::CompCntr => abi::KFABRIC_CLASS_COMP_CNTR,
        }
    }
}

/// An object and its statistics.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Stat {
    /// Number of the object, in the whole system; each new object has a higher
    /// one.
    pub id: u64,
    /// Process that opened the device; `None` if it is not in this PID
    /// namespace.
    pub pid: Option<u32>,
    /// Handle of the object there.
    pub handle: u32,
    /// Name of the link.
    pub link: String,
    /// The statistics.
    pub values: StatValues,
}

/// Statistics of an object, by its class.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum StatValues {
    /// An endpoint.
    Endpoint {
        /// Its address.
        addr: Option<SocketAddr>,
        /// Transmits.
        tx_ops: u64,
        /// Bytes sent.
        tx_bytes: u64,
        /// Receives.
        rx_ops: u64,
        /// Bytes received.
        rx_bytes: u64,
        /// Transmits under way.
        tx_pending: u64,
        /// Receives posted.
        rx_posted: u64,
        /// Unexpected messages that are kept.
        unexpected: u64,
        /// Their bytes.
        unexpected_bytes: u64,
    },
    /// A completion queue.
    Cq {
        /// Completions that it holds.
        size: u64,
        /// Completions queued.
        queued: u64,
        /// Error entries queued.
        errors: u64,
        /// Completions ever.
        total: u64,
        /// Completions lost.
        overruns: u64,
        /// Places that operations under way have reserved.
        reserved: u64,
        /// Number of waiters.
        waiters: u64,
    },
    /// A counter.
    Cntr {
        /// Successes.
        value: u64,
        /// Errors.
        err: u64,
        /// Number of waiters.
        waiters: u64,
        /// Lowest threshold of a waiter.
        threshold: Option<u64>,
        /// Deferred work and triggered operations that wait for it.
        work: u64,
        /// Lowest threshold of these.
        work_threshold: Option<u64>,
        /// Work that has become due, ever.
        work_due: u64,
    },
    /// Counters of flows.
    Counters {
        /// Number of values.
        count: u64,
        /// Points for flows that are made with it.
        points: u64,
        /// Number of flows that were made with it, and of points of flows.
        bound: u64,
    },
    /// A flow.
    Flow {
        /// Address of its endpoint.
        addr: Option<SocketAddr>,
        /// Packets that belonged to it.
        packets: u64,
        /// Their bytes.
        bytes: u64,
        /// Its priority.
        priority: u32,
        /// Its counter points.
        points: u64,
        /// Handle of its endpoint.
        ep: u32,
    },
    /// A completion counter of verbs.
    CompCntr {
        /// Successes: work requests, or bytes.
        comp: u64,
        /// Errors.
        err: u64,
        /// Largest value.
        max: u64,
        /// Times it is attached to an endpoint.
        attached: u64,
        /// What it counts.
        unit: CompCntrType,
        /// Whether its values are also in memory of the program.
        external: bool,
    },
}

impl Stat {
    fn new(class: StatClass, raw: &abi::kfabric_stat) -> Self {
        let v = raw.v;
        let values = match class {
            StatClass::Endpoint => StatValues::Endpoint {
                addr: raw.addr.to_std(),
                tx_ops: v[0],
                tx_bytes: v[1],
                rx_ops: v[2],
                rx_bytes: v[3],
                tx_pending: v[4],
                rx_posted: v[5],
                unexpected: v[6],
                unexpected_bytes: v[7],
            },
            StatClass::Cq => StatValues::Cq {
                size: v[0],
                queued: v[1],
                errors: v[2],
                total: v[3],
                overruns: v[4],
                reserved: v[5],
                waiters: v[6],
            },
            StatClass::Cntr => StatValues::Cntr {
                value: v[0],
                err: v[1],
                waiters: v[2],
                threshold: (v[3] != abi::KFABRIC_FOREVER).then_some(v[3]),
                work: v[4],
                work_threshold: (v[5] != abi::KFABRIC_FOREVER).then_some(v[5]),
                work_due: v[6],
            },
            StatClass::Counters => StatValues::Counters {
                count: v[0],
                points: v[1],
                bound: v[2],
            },
            StatClass::Flow => StatValues::Flow {
                addr: raw.addr.to_std(),
                packets: v[0],
                bytes: v[1],
                priority: v[2] as u32,
                points: v[3],
                ep: v[4] as u32,
            },
            StatClass::CompCntr => StatValues::CompCntr {
                comp: v[0],
                err: v[1],
                max: v[2],
                attached: v[3],
                unit: CompCntrType::from_raw(u32::try_from(v[4]).unwrap_or(u32::MAX)),
                external: v[5] != 0,
            },
        };
        Self {
            id: raw.after,
            pid: u32::try_from(raw.pid).ok().filter(|pid| *pid != 0),
            handle: raw.handle,
            link: calls::text(&raw.link),
            values,
        }
    }
}

/// The objects of a class; from [`Device::stats`].
///
/// Ends after the last one, or after an error.
#[derive(Debug)]
pub struct Stats {
    device: Device,
    class: StatClass,
    after: Option<u64>,
}

impl Stats {
    pub(crate) fn new(device: &Device, class: StatClass) -> Self {
        Self {
            device: device.clone(),
            class,
            after: Some(0),
        }
    }
}

impl Iterator for Stats {
    type Item = Result<Stat>;

    fn next(&mut self) -> Option<Self::Item> {
        let mut arg = abi::kfabric_stat {
            object_class: self.class.raw(),
            after: self.after.take()?,
            ..Call::sized()
        };
        match calls::plain(&self.device, &mut arg) {
            Ok(()) => {
                self.after = Some(arg.after);
                Some(Ok(Stat::new(self.class, &arg)))
            }
            Err(error) if error.is(Errno::ENOENT) => None,
            Err(error) => Some(Err(error)),
        }
    }
}

impl std::iter::FusedIterator for Stats {}

#[cfg(test)]
mod tests {
    use super::*;

    fn raw() -> abi::kfabric_stat {
        abi::kfabric_stat {
            after: 5,
            pid: 77,
            handle: 2,
            link: calls::chars("", "roce0").unwrap(),
            v: [1, 2, 3, 4, 5, 6, 7, 8],
            ..Default::default()
        }
    }

    #[test]
    fn endpoint_statistics_are_decoded() {
        let stat = Stat::new(StatClass::Endpoint, &raw());
        assert_eq!((stat.id, stat.pid, stat.handle), (5, Some(77), 2));
        assert_eq!(stat.link, "roce0");
        assert_eq!(
            stat.values,
            StatValues::Endpoint {
                addr: None,
                tx_ops: 1,
                tx_bytes: 2,
                rx_ops: 3,
                rx_bytes: 4,
                tx_pending: 5,
                rx_posted: 6,
                unexpected: 7,
                unexpected_bytes: 8
            }
        );
    }

    #[test]
    fn counter_statistics_are_decoded() {
        let nobody = abi::kfabric_stat {
            v: [9, 1, 0, u64::MAX, 0, 0, 0, 0],
            pid: 0,
            ..raw()
        };
        let stat = Stat::new(StatClass::Cntr, &nobody);
        assert_eq!(stat.pid, None);
        assert_eq!(
            stat.values,
            StatValues::Cntr {
                value: 9,
                err: 1,
                waiters: 0,
                threshold: None,
                work: 0,
                work_threshold: Some(0),
                work_due: 0,
            }
        );
    }

    #[test]
    fn statistics_of_flows_are_decoded() {
        assert_eq!(
            Stat::new(StatClass::Counters, &raw()).values,
            StatValues::Counters {
                count: 1,
                points: 2,
                bound: 3
            }
        );
        assert_eq!(
            Stat::new(StatClass::Flow, &raw()).values,
            StatValues::Flow {
                addr: None,
                packets: 1,
                bytes: 2,
                priority: 3,
                points: 4,
                ep: 5
            }
        );
    }

    #[test]
    fn completion_counter_statistics_are_decoded() {
        let bytes = abi::kfabric_stat {
            v: [9, 1, 100, 2, 1, 1, 0, 0],
            ..raw()
        };
        assert_eq!(
            Stat::new(StatClass::CompCntr, &bytes).values,
            StatValues::CompCntr {
                comp: 9,
                err: 1,
                max: 100,
                attached: 2,
                unit: CompCntrType::Bytes,
                external: true
            }
        );
    }

    #[test]
    fn cq_statistics_are_decoded() {
        let stat = Stat::new(StatClass::Cq, &raw());
        assert!(matches!(
            stat.values,
            StatValues::Cq {
                size: 1,
                queued: 2,
                errors: 3,
                total: 4,
                overruns: 5,
                reserved: 6,
                waiters: 7
            }
        ));
    }
}
