// SPDX-License-Identifier: GPL-2.0
//! NVMe over Fabrics on a device of `kfabric_ib.ko` and on one of rxe: the same requests of fio on
//! both sides, in turn.
//!
//! The target (nvmet-rdma) serves memory, `/dev/ram0`. The kernel's target and initiator
//! (nvme-rdma) live in the first network namespace, so the initiator connects to an address of its
//! own device. A run adds the device, connects, lets fio work for some seconds, disconnects, and
//! deletes the device: both drivers take the same UDP port.
//!
//! These rows need a kernel with these modules, which are loaded, configfs, which is mounted at
//! its usual place, and fio, from the root of the peers, which the guest has at /peers.
//!
//! - `storage/nvme_randread_4K`, `storage/nvme_randwrite_4K`: 32 requests of 4 KiB under way.
//! - `storage/nvme_read_128K`, `storage/nvme_write_128K`: 8 sequential requests of 128 KiB.

use crate::{
    Result,
    row::{Better, Case, Measure, Measurement},
    wire::hosts::{self, Driver},
};
use std::{
    fs::{self, File, OpenOptions},
    io::{Seek, SeekFrom, Write},
    net::{IpAddr, Ipv4Addr},
    os::unix::fs::symlink,
    path::{Path, PathBuf},
    process::{Command, Stdio},
    time::{Duration, Instant},
};

/// Runs of each side.
const RUNS: usize = 7;

/// Seconds that fio measures, and seconds before that.
const SECONDS: u32 = 2;
const BEFORE: u32 = 1;

/// Longest time until a disk is there, or has gone.
const SOON: Duration = Duration::from_secs(20);

/// What the target serves.
const RAM: &str = "/dev/ram0";

/// The name of the target's subsystem.
const NQN: &str = "bench";

/// The interface of the device, and the other end of its cable, which nobody uses.
const NETDEV: &str = "storage0";
const OTHER_END: &str = "storage1";

/// The device.
const DEVICE: &str = "bench-nvme";

/// The address of both sides.
const IP: Ipv4Addr = Ipv4Addr::new(192, 0, 2, 1);
const PORT: u16 = 4420;

/// Whether fio reads or writes.
#[derive(Clone, Copy)]
enum Way {
    Read,
    Write,
}

impl Way {
    /// Its name in fio's report.
    fn name(self) -> &'static str {
        match self {
            Self::Read => "read",
            Self::Write => "write",
        }
    }
}

/// What fio does, and what its row has.
struct Job {
    name: &'static str,
    unit: &'static str,
    way: Way,
    options: &'static str,
    /// The value in fio's report, and by what it is divided.
    value: &'static str,
    scale: f64,
}

/// Requests a second; the fields that differ are in the rows.
const RATE: Job = Job {
    name: "",
    unit: "1/s",
    way: Way::Read,
    options: "",
    value: "iops",
    scale: 1.0,
};

/// Bandwidth, likewise.
const BANDWIDTH: Job = Job {
    unit: "MB/s",
    value: "bw_bytes",
    scale: 1e6,
    ..RATE
};

const JOBS: [Job; 4] = [
    Job {
        name: "storage/nvme_randread_4K",
        options: "--rw=randread --bs=4k --iodepth=32",
        ..RATE
    },
    Job {
        name: "storage/nvme_randwrite_4K",
        way: Way::Write,
        options: "--rw=randwrite --bs=4k --iodepth=32",
        ..RATE
    },
    Job {
        name: "storage/nvme_read_128K",
        options: "--rw=read --bs=128k --iodepth=8",
        ..BANDWIDTH
    },
    Job {
        name: "storage/nvme_write_128K",
        way: Way::Write,
        options: "--rw=write --bs=128k --iodepth=8",
        ..BANDWIDTH
    },
];

impl Job {
    /// Runs fio on `disk`.
    fn run(&self, disk: &Path) -> Result<f64> {
        let output = Command::new("chroot")
            .args(["/peers", "fio", "--name=bench", "--filename"])
            .arg(disk)
            .args("--direct=1 --ioengine=io_uring --time_based --output-format=json".split(' '))
            .args([
                format!("--ramp_time={BEFORE}"),
                format!("--runtime={SECONDS}"),
            ])
            .args(self.options.split(' '))
            .stdin(Stdio::null())
            .output()?;
        let text = String::from_utf8_lossy(&output.stdout);
        match self.value_in(&text) {
            Ok(value) if output.status.success() => Ok(value),
            result => Err(format!(
                "fio: {}{}\n{text}{}",
                output.status,
                result.err().map_or(String::new(), |e| format!(", {e}")),
                String::from_utf8_lossy(&output.stderr)
            )
            .into()),
        }
    }

    /// The value in a report of fio, which may have remarks before it.
    fn value_in(&self, text: &str) -> Result<f64> {
        let start = text.find('{').ok_or("no report")?;
        let report: serde_json::Value = serde_json::from_str(&text[start..])?;
        let job = &report["jobs"][0];
        if job["error"].as_i64() != Some(0) {
            return Err(format!("error {}", job["error"]).into());
        }
        let value = job[self.way.name()][self.value].as_f64();
        Ok(value.ok_or_else(|| format!("no {}", self.value))? / self.scale)
    }
}

/// The target and the interface; removed when dropped.
struct Target(());

impl Target {
    fn path(name: &str) -> PathBuf {
        Path::new("/sys/kernel/config/nvmet").join(name)
    }

    fn subsystem() -> PathBuf {
        Self::path("subsystems").join(NQN)
    }

    fn port() -> PathBuf {
        Self::path("ports/1")
    }

    /// The link by which the port serves the subsystem.
    fn service() -> PathBuf {
        Self::port().join("subsystems").join(NQN)
    }

    /// Makes them. The target does not listen yet.
    fn new() -> Result<Self> {
        let target = Self(());
        hosts::command(
            "ip",
            &format!("link add {NETDEV} type veth peer name {OTHER_END}"),
        )?;
        hosts::command("ip", &format!("address add {IP}/24 dev {NETDEV}"))?;
        for end in [NETDEV, OTHER_END] {
            hosts::command("ip", &format!("link set {end} up"))?;
        }
        fill()?;
        let (subsystem, port) = (Self::subsystem(), Self::port());
        let namespace = subsystem.join("namespaces/1");
        for dir in [&subsystem, &namespace, &port] {
            fs::create_dir(dir).map_err(|e| format!("{}: {e}", dir.display()))?;
        }
        set(&subsystem, "attr_allow_any_host", "1")?;
        set(&namespace, "device_path", RAM)?;
        set(&namespace, "enable", "1")?;
        set(&port, "addr_trtype", "rdma")?;
        set(&port, "addr_adrfam", "ipv4")?;
        set(&port, "addr_traddr", &IP.to_string())?;
        set(&port, "addr_trsvcid", &PORT.to_string())?;
        Ok(target)
    }

    /// Runs `job` on a device of `driver`.
    fn run(&self, driver: Driver, job: &Job) -> Result<f64> {
        let add = || {
            hosts::command(
                "rdma",
                &format!("link add {DEVICE} type {} netdev {NETDEV}", driver.name()),
            )
        };
        let delete = || hosts::command("rdma", &format!("link delete {DEVICE}"));
        within(add, delete, || {
            // The target listens at an address that the device has.
            hosts::gid_index(DEVICE, IpAddr::V4(IP))?;
            within(serve, serve_no_more, || {
                within(connect, disconnect, || job.run(&disk()?))
            })
        })
    }
}

impl Drop for Target {
    fn drop(&mut self) {
        // A directory that was never made is ignored; the other end of the cable goes with the first.
        let subsystem = Self::subsystem();
        let namespace = subsystem.join("namespaces/1");
        let _ = fs::remove_file(Self::service());
        let _ = set(&namespace, "enable", "0");
        for dir in [Self::port(), namespace, subsystem] {
            let _ = fs::remove_dir(dir);
        }
        let _ = hosts::command("ip", &format!("link delete {NETDEV}"));
    }
}

/// Runs between a beginning and an end, which comes also if the run fails.
fn within<T>(
    begin: impl FnOnce() -> Result<()>,
    end: impl FnOnce() -> Result<()>,
    run: impl FnOnce() -> Result<T>,
) -> Result<T> {
    begin()?;
    let result = run();
    let ended = end();
    let value = result?;
    ended.map(|()| value)
}

/// Writes an attribute of configfs or sysfs.
fn set(dir: &Path, name: &str, value: &str) -> Result<()> {
    let path = dir.join(name);
    Ok(fs::write(&path, value).map_err(|e| format!("{}: {e}", path.display()))?)
}

/// Gives all blocks of the disk a page: reading a block without one costs less.
fn fill() -> Result<()> {
    let mut ram = OpenOptions::new().write(true).open(RAM)?;
    let size = ram.seek(SeekFrom::End(0))?;
    ram.rewind()?;
    let block = vec![7; 1 << 20];
    for _ in 0..size / block.len() as u64 {
        ram.write_all(&block)?;
    }
    Ok(ram.sync_all()?)
}

/// The target listens.
fn serve() -> Result<()> {
    Ok(symlink(Target::subsystem(), Target::service())
        .map_err(|e| format!("the target does not listen: {e}"))?)
}

fn serve_no_more() -> Result<()> {
    Ok(fs::remove_file(Target::service())?)
}

/// The initiator connects.
fn connect() -> Result<()> {
    let options =
        format!("transport=rdma,traddr={IP},trsvcid={PORT},nqn={NQN},nr_io_queues=2,queue_size=64");
    let mut file = OpenOptions::new().write(true).open("/dev/nvme-fabrics")?;
    Ok(file
        .write_all(options.as_bytes())
        .map_err(|e| format!("the initiator does not connect: {e}"))?)
}

/// The initiator disconnects, and its disk goes.
fn disconnect() -> Result<()> {
    for controller in fs::read_dir("/sys/class/nvme")? {
        set(&controller?.path(), "delete_controller", "1")?;
    }
    soon("the disk does not go", || {
        find_disk().is_none().then_some(())
    })
}

/// The initiator's disk, which comes, and can be opened, a little after the connection.
fn disk() -> Result<PathBuf> {
    soon("the initiator has no disk", || {
        find_disk().filter(|disk| File::open(disk).is_ok())
    })
}

fn find_disk() -> Option<PathBuf> {
    let names = fs::read_dir("/dev").ok()?.flatten();
    names.map(|entry| entry.path()).find(|path| {
        path.file_name()
            .is_some_and(|name| is_disk(&name.to_string_lossy()))
    })
}

/// Whether a name is `nvmeXn1`, with a number X.
fn is_disk(name: &str) -> bool {
    name.strip_prefix("nvme")
        .and_then(|rest| rest.strip_suffix("n1"))
        .is_some_and(|number| number.parse::<u32>().is_ok())
}

/// Waits until `found` gives something.
fn soon<T>(otherwise: &str, found: impl Fn() -> Option<T>) -> Result<T> {
    let began = Instant::now();
    while began.elapsed() < SOON {
        if let Some(value) = found() {
            return Ok(value);
        }
        std::thread::sleep(Duration::from_millis(10));
    }
    Err(otherwise.into())
}

fn measure<const JOB: usize>(measurement: &mut Measurement) -> Result<()> {
    let target = Target::new()?;
    let run = |driver| target.run(driver, &JOBS[JOB]);
    measurement.at_most(RUNS);
    measurement.take(&mut || run(Driver::Kfabric), &mut || run(Driver::Rxe))
}

fn case<const JOB: usize>() -> Case {
    let job = &JOBS[JOB];
    Case {
        name: job.name,
        unit: job.unit,
        peer: "rxe",
        better: Better::Higher,
        goal: None,
        measure: measure::<JOB> as Measure,
    }
}

/// The rows.
pub(crate) fn cases() -> Vec<Case> {
    vec![case::<0>(), case::<1>(), case::<2>(), case::<3>()]
}

#[cfg(test)]
mod tests {
    use super::*;

    const REPORT: &str = r#"fio: a remark
{"fio version": "fio-3.39", "jobs": [{"jobname": "bench", "error": 0,
 "read": {"bw_bytes": 25000000, "iops": 6103.5}, "write": {"bw_bytes": 0, "iops": 0.0}}]}"#;

    #[test]
    fn the_value_of_a_row_is_found_in_the_report() {
        for (job, value) in [(&JOBS[0], 6103.5), (&JOBS[2], 25.0), (&JOBS[3], 0.0)] {
            assert_eq!(
                job.value_in(REPORT).expect("a value"),
                value,
                "{}",
                job.name
            );
        }
    }

    #[test]
    fn a_report_of_an_error_has_no_value() {
        for (text, reason) in [
            (REPORT.replace("\"error\": 0", "\"error\": 5"), "error 5"),
            (REPORT.replace("iops", "other"), "no iops"),
            (REPORT.replace("jobs", "others"), "error null"),
            ("fio: no such engine".into(), "no report"),
        ] {
            let error = JOBS[0].value_in(&text).expect_err("no value").to_string();
            assert_eq!(error, reason);
        }
    }

    #[test]
    fn only_the_first_namespace_of_a_controller_is_the_disk() {
        assert!(is_disk("nvme0n1") && is_disk("nvme12n1"));
        for name in ["nvme0", "nvme-fabrics", "nvme0n1p1", "nvme0c0n1", "nvme0n2"] {
            assert!(!is_disk(name), "{name}");
        }
    }

    #[test]
    fn the_end_comes_after_a_failed_run_and_the_first_error_is_told() {
        let ended = std::cell::Cell::new(0);
        let end = || {
            ended.set(ended.get() + 1);
            Err("the end".into())
        };
        let failed: Result<u32> = within(|| Ok(()), end, || Err("the run".into()));
        assert_eq!(failed.expect_err("a failed run").to_string(), "the run");
        assert_eq!(ended.get(), 1);
        let not_ended = within(|| Ok(()), end, || Ok(1));
        assert_eq!(not_ended.expect_err("a failed end").to_string(), "the end");
        let not_begun = within(|| Err("the beginning".into()), end, || Ok(1));
        assert!(not_begun.is_err());
        assert_eq!(ended.get(), 2);
    }
}
