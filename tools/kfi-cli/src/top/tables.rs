// SPDX-License-Identifier: GPL-2.0
//! The tables of the statistics: one for each kind of object.

use std::fmt::Display;

use kfi::{PacketCounter, Packets};

use crate::{
    table::Table,
    text,
    top::sample::{Change, Owner},
};

/// Columns for the owner of an object. A process that has ended is not shown by a number that may
/// be that of another one: the objects of a kernel module are those of its insmod.
pub(crate) fn owner(owner: &Owner) -> [String; 3] {
    let pid = match (owner.pid, &owner.program) {
        (None, _) => "-".to_owned(),
        (Some(_), None) => "gone".to_owned(),
        (Some(pid), Some(_)) => pid.to_string(),
    };
    [pid, owner.handle.to_string(), owner.link.clone()]
}

fn resent(packets: Option<&Packets>) -> u64 {
    packets.map_or(0, |packets| packets.get(PacketCounter::Resent))
}

fn dropped(packets: Option<&Packets>) -> u64 {
    packets.map_or(0, Packets::dropped)
}

/// A rate; `-` if there is none.
pub(crate) fn rate_text(rate: Option<f64>) -> String {
    rate.map_or("-".to_owned(), |rate| text::si(rate).trim_end().to_owned())
}

impl Change {
    /// The tables, with their kinds of objects and numbers of rows.
    pub(crate) fn tables(&self) -> [(&'static str, Table, usize); 6] {
        [
            ("links", self.link_table(), self.links.len()),
            ("endpoints", self.endpoint_table(), self.endpoints.len()),
            ("completion queues", self.cq_table(), self.cqs.len()),
            ("counters", self.cntr_table(), self.cntrs.len()),
            (
                "completion counters",
                self.comp_cntr_table(),
                self.comp_cntrs.len(),
            ),
            ("flows", self.flow_table(), self.flows.len()),
        ]
    }

    fn link_table(&self) -> Table {
        let mut table = Table::new(&[
            "LINK",
            "NETDEV",
            "STATE",
            "ADDRESS",
            ">ENDPOINTS",
            ">TX-OPS",
            ">TX-OPS/S",
            ">TX-B/S",
            ">RX-OPS",
            ">RX-OPS/S",
            ">RX-B/S",
            ">RESENT",
            ">DROPPED",
        ]);
        for row in &self.links {
            table.cells(&[
                &row.link.name,
                &row.link.netdev,
                &row.link.state,
                &row.link.addresses(),
                &row.link.endpoints,
                &row.link.tx_ops,
                &rate_text(row.tx_ops_per_second),
                &rate_text(row.tx_bytes_per_second),
                &row.link.rx_ops,
                &rate_text(row.rx_ops_per_second),
                &rate_text(row.rx_bytes_per_second),
                &resent(row.link.packets.as_ref()),
                &dropped(row.link.packets.as_ref()),
            ]);
        }
        table
    }

    fn endpoint_table(&self) -> Table {
        let mut table = Table::new(&[
            "ENDPOINT",
            ">PID",
            ">HANDLE",
            "LINK",
            ">TX-OPS",
            ">TX-OPS/S",
            ">TX-B",
            ">RX-OPS",
            ">RX-OPS/S",
            ">RX-B",
            ">PENDING",
            ">POSTED",
            ">UNEXPECTED",
            ">RESENT",
            ">DROPPED",
        ]);
        for row in &self.endpoints {
            let [pid, handle, link] = owner(&row.owner);
            table.cells(&[
                &text::address(row.address),
                &pid,
                &handle,
                &link,
                &row.tx_ops,
                &rate_text(row.tx_ops_per_second),
                &row.tx_bytes,
                &row.rx_ops,
                &rate_text(row.rx_ops_per_second),
                &row.rx_bytes,
                &row.tx_pending,
                &row.rx_posted,
                &row.unexpected,
                &resent(row.packets.as_ref()),
                &dropped(row.packets.as_ref()),
            ]);
        }
        table
    }

    fn cq_table(&self) -> Table {
        let mut table = Table::new(&[
            "CQ",
            ">PID",
            ">HANDLE",
            "LINK",
            ">ENTRIES",
            ">ENTRIES/S",
            ">QUEUED",
            ">SIZE",
            ">RESERVED",
            ">ERRORS",
            ">OVERRUNS",
            ">WAITERS",
        ]);
        for row in &self.cqs {
            let [pid, handle, link] = owner(&row.owner);
            table.cells(&[
                &row.owner.id as &dyn Display,
                &pid,
                &handle,
                &link,
                &row.total,
                &rate_text(row.total_per_second),
                &row.queued,
                &row.size,
                &row.reserved,
                &row.errors,
                &row.overruns,
                &row.waiters,
            ]);
        }
        table
    }

    fn cntr_table(&self) -> Table {
        let mut table = Table::new(&[
            "COUNTER",
            ">PID",
            ">HANDLE",
            "LINK",
            ">VALUE",
            ">VALUE/S",
            ">ERROR",
            ">WAITERS",
            ">THRESHOLD",
            ">WORK",
            ">WORK-AT",
            ">WORK-DUE",
        ]);
        for row in &self.cntrs {
            let [pid, handle, link] = owner(&row.owner);
            let text = |value: Option<u64>| value.map_or("-".to_owned(), |value| value.to_string());
            table.cells(&[
                &row.owner.id as &dyn Display,
                &pid,
                &handle,
                &link,
                &row.value,
                &rate_text(row.value_per_second),
                &row.err,
                &row.waiters,
                &text(row.threshold),
                &row.work,
                &text(row.work_threshold),
                &row.work_due,
            ]);
        }
        table
    }

    fn flow_table(&self) -> Table {
        let mut table = Table::new(&[
            "FLOW",
            ">PID",
            ">HANDLE",
            "LINK",
            "ENDPOINT",
            ">PRIORITY",
            ">PACKETS",
            ">PACKETS/S",
            ">BYTES",
            ">BYTES/S",
            ">POINTS",
        ]);
        for row in &self.flows {
            let [pid, handle, link] = owner(&row.owner);
            table.cells(&[
                &row.owner.id as &dyn Display,
                &pid,
                &handle,
                &link,
                &text::address(row.address),
                &row.priority,
                &row.packets,
                &rate_text(row.packets_per_second),
                &row.bytes,
                &rate_text(row.bytes_per_second),
                &row.points,
            ]);
        }
        table
    }

    fn comp_cntr_table(&self) -> Table {
        let mut table = Table::new(&[
            "COMP-CNTR",
            ">PID",
            ">HANDLE",
            "LINK",
            "UNIT",
            ">COMP",
            ">COMP/S",
            ">ERROR",
            ">ATTACHED",
            "EXTERNAL",
        ]);
        for row in &self.comp_cntrs {
            let [pid, handle, link] = owner(&row.owner);
            table.cells(&[
                &row.owner.id as &dyn Display,
                &pid,
                &handle,
                &link,
                &row.unit,
                &row.comp,
                &rate_text(row.comp_per_second),
                &row.err,
                &row.attached,
                &if row.external { "yes" } else { "no" },
            ]);
        }
        table
    }
}

#[cfg(test)]
mod tests {
    use crate::top::sample::tests::change;

    #[test]
    fn tables_show_every_object() {
        let tables = change().tables();
        assert_eq!(
            tables[1].1.to_string(),
            "ENDPOINT        PID  HANDLE  LINK   TX-OPS  TX-OPS/S  TX-B  RX-OPS  RX-OPS/S  RX-B  \
             PENDING  POSTED\n\
             127.0.0.1:7471  321       4  roce0       1      1.50     2       3    2.50 k     4  \
             \u{20}     5       6\n\n\
             ENDPOINT        UNEXPECTED  RESENT  DROPPED\n\
             127.0.0.1:7471           7       0        0\n"
        );
        assert!(tables.iter().all(|(_, _, rows)| *rows == 1));
    }

    #[test]
    fn counters_show_the_work_that_waits_for_them() {
        let (name, table, _) = &change().tables()[3];
        assert_eq!(*name, "counters");
        assert_eq!(
            table.to_string(),
            "COUNTER  PID  HANDLE  LINK   VALUE  VALUE/S  ERROR  WAITERS  THRESHOLD  WORK  \
             WORK-AT  WORK-DUE\n\
             7        321       4  roce0      9        -      1        2          -     3  \
             \u{20}    12         5\n"
        );
        // No work waits: there is no threshold of any.
        let mut change = change();
        let cntr = &mut change.cntrs[0];
        (cntr.work, cntr.work_threshold, cntr.work_due) = (0, None, 0);
        cntr.threshold = Some(40);
        let table = change.tables()[3].1.to_string();
        let cells: Vec<&str> = table.lines().nth(1).unwrap().split_whitespace().collect();
        assert_eq!(cells[8..], ["40", "0", "-", "0"]);
    }

    #[test]
    fn a_process_that_has_ended_has_no_number() {
        let mut change = change();
        change.endpoints[0].owner.program = None;
        let table = change.tables()[1].1.to_string();
        assert!(table.contains("127.0.0.1:7471  gone  "), "{table}");
        assert!(!table.contains("321"), "{table}");
    }

    #[test]
    fn tables_fit_the_width() {
        let mut change = change();
        for row in &mut change.endpoints {
            row.address = "[fe80:ffff:ffff:ffff:ffff:ffff:ffff:ffff%12]:65535"
                .parse()
                .ok();
            (row.tx_bytes, row.rx_bytes) = (u64::MAX, u64::MAX);
        }
        for row in &mut change.links {
            row.link.ipv6 = Some("2001:db8:ffff:ffff:ffff:ffff:ffff:ffff".to_owned());
        }
        for (name, table, _) in change.tables() {
            for line in table.to_string().lines() {
                assert!(line.chars().count() <= crate::text::WIDTH, "{name}: {line}");
            }
        }
    }

    #[test]
    fn completion_counters_show_their_unit_and_their_memory() {
        let (name, table, _) = &change().tables()[4];
        assert_eq!(*name, "completion counters");
        assert_eq!(
            table.to_string(),
            "COMP-CNTR  PID  HANDLE  LINK   UNIT   COMP  COMP/S  ERROR  ATTACHED  EXTERNAL\n\
             7          321       4  roce0  bytes  4096    8.00      1         2  yes\n"
        );
        let mut change = change();
        change.comp_cntrs[0].external = false;
        let table = change.tables()[4].1.to_string();
        assert!(table.trim_end().ends_with("  no"), "{table}");
    }
}
