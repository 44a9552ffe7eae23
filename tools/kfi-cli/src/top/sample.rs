// SPDX-License-Identifier: GPL-2.0
//! Statistics at one time, and the rates since an earlier time.

use std::{collections::HashMap, net::SocketAddr, time::Instant};

use kfi::{Device, Packets, PacketsOf, Stat, StatClass, StatValues};
use serde::Serialize;

use crate::{
    error::{Doing, Result},
    holders,
    link::{self, LinkJson},
    text,
};

/// All statistics at one time.
pub(crate) struct Sample {
    when: Instant,
    links: Vec<LinkJson>,
    stats: Vec<Stat>,
    /// Of endpoints, by their ids.
    packets: HashMap<u64, Packets>,
    /// Names of the processes that have objects.
    programs: HashMap<u32, String>,
}

/// Statistics, and rates since the last sample; also the JSON.
#[derive(Debug, Default, Serialize)]
pub(crate) struct Change {
    /// Seconds since the last sample; null in the first one.
    pub(crate) seconds: Option<f64>,
    pub(crate) links: Vec<LinkRow>,
    pub(crate) endpoints: Vec<EndpointRow>,
    pub(crate) cqs: Vec<CqRow>,
    pub(crate) cntrs: Vec<CntrRow>,
    pub(crate) flows: Vec<FlowRow>,
    pub(crate) comp_cntrs: Vec<CompCntrRow>,
}

/// A link and its rates.
#[derive(Debug, Serialize)]
pub(crate) struct LinkRow {
    #[serde(flatten)]
    pub(crate) link: LinkJson,
    pub(crate) tx_ops_per_second: Option<f64>,
    pub(crate) tx_bytes_per_second: Option<f64>,
    pub(crate) rx_ops_per_second: Option<f64>,
    pub(crate) rx_bytes_per_second: Option<f64>,
}

/// The owner of an object.
#[derive(Clone, Debug, Serialize)]
pub(crate) struct Owner {
    pub(crate) id: u64,
    pub(crate) pid: Option<u32>,
    /// Name of that process; `None`: it has ended, as the insmod of a kernel module has.
    pub(crate) program: Option<String>,
    pub(crate) handle: u32,
    pub(crate) link: String,
}

/// An endpoint.
#[derive(Debug, Serialize)]
pub(crate) struct EndpointRow {
    #[serde(flatten)]
    pub(crate) owner: Owner,
    pub(crate) address: Option<SocketAddr>,
    pub(crate) tx_ops: u64,
    pub(crate) tx_bytes: u64,
    pub(crate) rx_ops: u64,
    pub(crate) rx_bytes: u64,
    pub(crate) tx_pending: u64,
    pub(crate) rx_posted: u64,
    pub(crate) unexpected: u64,
    pub(crate) unexpected_bytes: u64,
    pub(crate) tx_ops_per_second: Option<f64>,
    pub(crate) rx_ops_per_second: Option<f64>,
    #[serde(serialize_with = "link::packets_json")]
    pub(crate) packets: Option<Packets>,
}

/// A completion queue.
#[derive(Debug, Serialize)]
pub(crate) struct CqRow {
    #[serde(flatten)]
    pub(crate) owner: Owner,
    pub(crate) size: u64,
    pub(crate) queued: u64,
    pub(crate) errors: u64,
    pub(crate) total: u64,
    pub(crate) overruns: u64,
    pub(crate) reserved: u64,
    pub(crate) waiters: u64,
    pub(crate) total_per_second: Option<f64>,
}

/// A counter.
#[derive(Debug, Serialize)]
pub(crate) struct CntrRow {
    #[serde(flatten)]
    pub(crate) owner: Owner,
    pub(crate) value: u64,
    pub(crate) err: u64,
    pub(crate) waiters: u64,
    pub(crate) threshold: Option<u64>,
    pub(crate) work: u64,
    pub(crate) work_threshold: Option<u64>,
    pub(crate) work_due: u64,
    pub(crate) value_per_second: Option<f64>,
}

/// A flow.
#[derive(Debug, Serialize)]
pub(crate) struct FlowRow {
    #[serde(flatten)]
    pub(crate) owner: Owner,
    pub(crate) address: Option<SocketAddr>,
    pub(crate) endpoint: u32,
    pub(crate) priority: u32,
    pub(crate) points: u64,
    pub(crate) packets: u64,
    pub(crate) bytes: u64,
    pub(crate) packets_per_second: Option<f64>,
    pub(crate) bytes_per_second: Option<f64>,
}

/// A completion counter of verbs.
#[derive(Debug, Serialize)]
pub(crate) struct CompCntrRow {
    #[serde(flatten)]
    pub(crate) owner: Owner,
    pub(crate) comp: u64,
    pub(crate) err: u64,
    pub(crate) max: u64,
    pub(crate) attached: u64,
    pub(crate) unit: &'static str,
    pub(crate) external: bool,
    pub(crate) comp_per_second: Option<f64>,
}

impl Sample {
    /// Reads the present statistics.
    pub(crate) fn take(device: &Device) -> Result<Self> {
        let links = link::all(device)?
            .iter()
            .map(|link| LinkJson::with_packets(device, link))
            .collect::<Result<_>>()?;
        let of_objects = Self::of_objects(device, &StatClass::ALL)?;
        Ok(Self {
            links,
            ..of_objects
        })
    }

    /// Reads the present statistics of objects of these classes only.
    pub(crate) fn of_objects(device: &Device, classes: &[StatClass]) -> Result<Self> {
        let mut stats = Vec::new();
        let mut packets = HashMap::new();
        let mut programs = HashMap::new();
        for &class in classes {
            for stat in device.stats(class) {
                let stat = stat.doing("read the statistics")?;
                // An object that is closed meanwhile has none.
                if class == StatClass::Endpoint
                    && let Ok(found) = device.packets(PacketsOf::Endpoint(stat.id))
                {
                    packets.insert(stat.id, found);
                }
                if let Some(pid) = stat.pid
                    && let Some(name) = holders::program(pid)
                {
                    programs.insert(pid, name);
                }
                stats.push(stat);
            }
        }
        let when = Instant::now();
        Ok(Self {
            when,
            links: Vec::new(),
            stats,
            packets,
            programs,
        })
    }

    /// The statistics without rates.
    pub(crate) fn since_ever(&self) -> Change {
        self.compare(None)
    }

    /// The statistics, with rates since `before`.
    pub(crate) fn since(&self, before: &Self) -> Change {
        self.compare(Some(before))
    }

    /// The statistics, with rates if there is an earlier sample.
    pub(crate) fn compare(&self, before: Option<&Self>) -> Change {
        let seconds = before.map(|before| self.when.duration_since(before.when).as_secs_f64());
        // An object that is new, or was made again, has no rate.
        let rate = |now: u64, then: Option<u64>| {
            let more = now.checked_sub(then?)?;
            Some(text::rounded(more as f64 / seconds?.max(1e-9)))
        };
        let mut change = Change {
            seconds: seconds.map(text::rounded),
            ..Change::default()
        };
        let old_links: HashMap<&str, &LinkJson> = before
            .iter()
            .flat_map(|before| &before.links)
            .map(|link| (&*link.name, link))
            .collect();
        for link in &self.links {
            let old = old_links.get(&*link.name);
            change.links.push(LinkRow {
                link: link.clone(),
                tx_ops_per_second: rate(link.tx_ops, old.map(|old| old.tx_ops)),
                tx_bytes_per_second: rate(link.tx_bytes, old.map(|old| old.tx_bytes)),
                rx_ops_per_second: rate(link.rx_ops, old.map(|old| old.rx_ops)),
                rx_bytes_per_second: rate(link.rx_bytes, old.map(|old| old.rx_bytes)),
            });
        }
        let old: HashMap<(StatKind, u64), &StatValues> = before
            .iter()
            .flat_map(|before| &before.stats)
            .map(|stat| ((kind(&stat.values), stat.id), &stat.values))
            .collect();
        for stat in &self.stats {
            let old = old.get(&(kind(&stat.values), stat.id)).map(|old| sums(old));
            let owner = Owner {
                id: stat.id,
                pid: stat.pid,
                program: stat.pid.and_then(|pid| self.programs.get(&pid)).cloned(),
                handle: stat.handle,
                link: stat.link.clone(),
            };
            let [first, second] = sums(&stat.values);
            let first = rate(first, old.map(|[first, _]| first));
            let second = rate(second, old.map(|[_, second]| second));
            change.add(owner, stat.values, first, second);
        }
        for row in &mut change.endpoints {
            row.packets = self.packets.get(&row.owner.id).cloned();
        }
        change
    }
}

/// The kind of object of these statistics.
#[derive(Clone, Copy, PartialEq, Eq, Hash)]
enum StatKind {
    Endpoint,
    Cq,
    Cntr,
    Counters,
    Flow,
    CompCntr,
}

fn kind(values: &StatValues) -> StatKind {
    match values {
        StatValues::Endpoint { .. } => StatKind::Endpoint,
        StatValues::Cq { .. } => StatKind::Cq,
        StatValues::Counters { .. } => StatKind::Counters,
        StatValues::Flow { .. } => StatKind::Flow,
        StatValues::CompCntr { .. } => StatKind::CompCntr,
        _ => StatKind::Cntr,
    }
}

/// The counters of an object that only grow.
fn sums(values: &StatValues) -> [u64; 2] {
    match *values {
        StatValues::Endpoint { tx_ops, rx_ops, .. } => [tx_ops, rx_ops],
        StatValues::Cq { total, .. } => [total, 0],
        StatValues::Cntr { value, .. } => [value, 0],
        StatValues::Flow { packets, bytes, .. } => [packets, bytes],
        StatValues::CompCntr { comp, .. } => [comp, 0],
        _ => [0, 0],
    }
}

impl Change {
    fn add(&mut self, owner: Owner, values: StatValues, first: Option<f64>, second: Option<f64>) {
        match values {
            StatValues::Endpoint {
                addr,
                tx_ops,
                tx_bytes,
                rx_ops,
                rx_bytes,
                tx_pending,
                rx_posted,
                unexpected,
                unexpected_bytes,
            } => self.endpoints.push(EndpointRow {
                owner,
                address: addr,
                tx_ops,
                tx_bytes,
                rx_ops,
                rx_bytes,
                tx_pending,
                rx_posted,
                unexpected,
                unexpected_bytes,
                tx_ops_per_second: first,
                rx_ops_per_second: second,
                packets: None,
            }),
            StatValues::Cq {
                size,
                queued,
                errors,
                total,
                overruns,
                reserved,
                waiters,
            } => self.cqs.push(CqRow {
                owner,
                size,
                queued,
                errors,
                total,
                overruns,
                reserved,
                waiters,
                total_per_second: first,
            }),
            StatValues::Cntr {
                value,
                err,
                waiters,
                threshold,
                work,
                work_threshold,
                work_due,
            } => self.cntrs.push(CntrRow {
                owner,
                value,
                err,
                waiters,
                threshold,
                work,
                work_threshold,
                work_due,
                value_per_second: first,
            }),
            StatValues::CompCntr {
                comp,
                err,
                max,
                attached,
                unit,
                external,
            } => self.comp_cntrs.push(CompCntrRow {
                owner,
                comp,
                err,
                max,
                attached,
                unit: unit.name(),
                external,
                comp_per_second: first,
            }),
            StatValues::Flow {
                addr,
                packets,
                bytes,
                priority,
                points,
                ep,
            } => self.flows.push(FlowRow {
                owner,
                address: addr,
                endpoint: ep,
                priority,
                points,
                packets,
                bytes,
                packets_per_second: first,
                bytes_per_second: second,
            }),
            // A class that is not shown.
            _ => {}
        }
    }
}

#[cfg(test)]
pub(crate) mod tests {
    use super::*;
    use crate::link::tests::example;
    use kfi::CompCntrType;
    use std::time::Duration;

    fn sample(when: Instant, tx_ops: u64) -> Sample {
        let links = vec![LinkJson {
            tx_ops,
            ..example()
        }];
        Sample {
            when,
            links,
            stats: Vec::new(),
            packets: HashMap::new(),
            programs: HashMap::new(),
        }
    }

    /// A change with one object of each kind, as `Sample` would make it.
    pub(crate) fn change() -> Change {
        let start = Instant::now();
        let before = sample(start, 10);
        let mut change = sample(start + Duration::from_secs(2), 30).since(&before);
        let owner = Owner {
            id: 7,
            pid: Some(321),
            program: Some("server".to_owned()),
            handle: 4,
            link: "roce0".to_owned(),
        };
        let endpoint = StatValues::Endpoint {
            addr: "127.0.0.1:7471".parse().ok(),
            tx_ops: 1,
            tx_bytes: 2,
            rx_ops: 3,
            rx_bytes: 4,
            tx_pending: 5,
            rx_posted: 6,
            unexpected: 7,
            unexpected_bytes: 8,
        };
        change.add(owner.clone(), endpoint, Some(1.5), Some(2500.0));
        let cq = StatValues::Cq {
            size: 64,
            queued: 1,
            errors: 2,
            total: 3,
            overruns: 4,
            reserved: 5,
            waiters: 6,
        };
        change.add(owner.clone(), cq, Some(0.0), None);
        let cntr = StatValues::Cntr {
            value: 9,
            err: 1,
            waiters: 2,
            threshold: None,
            work: 3,
            work_threshold: Some(12),
            work_due: 5,
        };
        change.add(owner.clone(), cntr, None, None);
        let flow = StatValues::Flow {
            addr: None,
            packets: 3,
            bytes: 96,
            priority: 1,
            points: 2,
            ep: 5,
        };
        change.add(owner.clone(), flow, Some(3.0), Some(96.0));
        let comp_cntr = StatValues::CompCntr {
            comp: 4096,
            err: 1,
            max: u64::MAX,
            attached: 2,
            unit: CompCntrType::Bytes,
            external: true,
        };
        change.add(owner, comp_cntr, Some(8.0), None);
        change
    }

    #[test]
    fn rates_need_two_samples() {
        let start = Instant::now();
        let sample = |tx_ops| sample(start, tx_ops);
        assert_eq!(sample(5).since_ever().links[0].tx_ops_per_second, None);
        assert_eq!(change().links[0].tx_ops_per_second, Some(10.0));
        // A link that was removed and made again.
        let again = sample(5).since(&sample(10));
        assert_eq!(again.links[0].tx_ops_per_second, None);
    }

    #[test]
    fn json_has_the_documented_keys() {
        let json = serde_json::to_value(change()).unwrap();
        let keys = |value: &serde_json::Value| {
            let keys: Vec<String> = value.as_object().unwrap().keys().cloned().collect();
            keys.join(" ")
        };
        assert_eq!(
            keys(&json),
            "cntrs comp_cntrs cqs endpoints flows links seconds"
        );
        assert_eq!(json["seconds"], 2.0);
        assert_eq!(json["links"][0]["name"], "roce0");
        assert_eq!(
            keys(&json["endpoints"][0]),
            "address handle id link packets pid program rx_bytes rx_ops rx_ops_per_second rx_posted tx_bytes \
             tx_ops tx_ops_per_second tx_pending unexpected unexpected_bytes"
        );
        assert_eq!(
            keys(&json["cqs"][0]),
            "errors handle id link overruns pid program queued reserved size total total_per_second waiters"
        );
        assert_eq!(
            serde_json::to_string(&change().cntrs[0]).unwrap(),
            r#"{"id":7,"pid":321,"program":"server","handle":4,"link":"roce0","value":9,"err":1,"waiters":2,"#
                .to_owned()
                + r#""threshold":null,"work":3,"work_threshold":12,"work_due":5,"#
                + r#""value_per_second":null}"#
        );
        assert_eq!(
            keys(&json["flows"][0]),
            "address bytes bytes_per_second endpoint handle id link packets packets_per_second pid \
             points priority program"
        );
        assert_eq!(
            keys(&json["comp_cntrs"][0]),
            "attached comp comp_per_second err external handle id link max pid program unit"
        );
    }
}
