// SPDX-License-Identifier: GPL-2.0
//! The programs and kernel modules that can hold a link: those that have the device open, and those
//! that use the module.
//!
//! The module knows the objects of a link and their processes (`KFABRIC_IOC_STAT`), but not the
//! processes that have only a domain. Those have `/dev/kfabric` open, which `/proc` shows to root
//! and to their own user.

use std::{
    collections::BTreeMap,
    fs,
    os::unix::fs::{FileTypeExt, MetadataExt},
    path::Path,
};

use kfi::{Device, StatClass};

/// Names of programs by process.
type Programs = BTreeMap<u32, String>;

/// Advice about a link that is in use: who can hold it.
pub(crate) fn help(device: &Device, link: &str) -> String {
    let mut sure = Programs::new();
    for class in StatClass::ALL {
        let objects = device.stats(class).flatten();
        let pids = objects.filter(|stat| stat.link == link);
        sure.extend(pids.filter_map(|stat| Some((stat.pid?, program(stat.pid?)?))));
    }
    let all = programs(Path::new("/proc"), Device::path());
    advice(
        &sure,
        &all,
        &modules(Path::new("/sys/module/kfabric/holders")),
    )
}

/// The advice, from the programs with objects on the link, all that have the device open, and
/// the kernel modules that use it.
fn advice(sure: &Programs, all: &Programs, modules: &[String]) -> String {
    let list = |programs: &Programs| {
        let each = programs
            .iter()
            .map(|(pid, name)| format!("{name} (PID {pid})"));
        each.collect::<Vec<_>>().join(", ")
    };
    let mut parts = Vec::new();
    if !sure.is_empty() {
        parts.push(format!("{} has objects on it", list(sure)));
    }
    let others: Programs = { all.iter() }
        .filter(|(pid, _)| !sure.contains_key(pid))
        .map(|(pid, name)| (*pid, name.clone()))
        .collect();
    if !others.is_empty() {
        parts.push(format!("{} has /dev/kfabric open", list(&others)));
    }
    if !modules.is_empty() {
        parts.push(format!(
            "kernel modules use kfabric: {}",
            modules.join(", ")
        ));
    }
    if parts.is_empty() {
        return "a program of another user, which root can see, has a domain on it".to_owned();
    }
    format!("{}: end it, or let it close its domain", parts.join("; "))
}

/// The name of a process of this PID namespace; `None`: it has ended.
pub(crate) fn program(pid: u32) -> Option<String> {
    name(Path::new("/proc"), pid)
}

/// The name of a process.
fn name(proc: &Path, pid: u32) -> Option<String> {
    let name = fs::read_to_string(proc.join(pid.to_string()).join("comm")).ok()?;
    Some(name.trim_end().to_owned())
}

/// The processes that have a device open, apart from this one.
fn programs(proc: &Path, device: &Path) -> Programs {
    let Ok(device) = fs::metadata(device) else {
        return Programs::new();
    };
    let processes = { fs::read_dir(proc).into_iter().flatten().flatten() }
        .filter_map(|entry| entry.file_name().to_str()?.parse::<u32>().ok())
        .filter(|pid| *pid != std::process::id());
    let has_open = |pid: &u32| {
        let fds = fs::read_dir(proc.join(pid.to_string()).join("fd"));
        // The descriptor leads to the open file itself.
        let mut files =
            { fds.into_iter().flatten().flatten() }.filter_map(|fd| fs::metadata(fd.path()).ok());
        files.any(|file| file.file_type().is_char_device() && file.rdev() == device.rdev())
    };
    processes
        .filter(has_open)
        .filter_map(|pid| Some((pid, name(proc, pid)?)))
        .collect()
}

/// The kernel modules that use one; `holders` is its folder of them.
fn modules(holders: &Path) -> Vec<String> {
    let entries = fs::read_dir(holders).into_iter().flatten().flatten();
    let mut names: Vec<String> = entries
        .map(|entry| entry.file_name().to_string_lossy().into_owned())
        .collect();
    names.sort();
    names
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::process::{Command, Stdio};

    #[test]
    fn a_program_that_has_a_device_open_is_found_by_name() {
        // A program with a device of its own choice: this one has /dev/full open, too.
        let mut child = Command::new("sleep")
            .arg("60")
            .stdin(fs::File::open("/dev/full").unwrap())
            .stdout(Stdio::null())
            .spawn()
            .unwrap();
        let found = programs(Path::new("/proc"), Path::new("/dev/full"));
        child.kill().unwrap();
        child.wait().unwrap();
        assert_eq!(found.get(&child.id()).map(String::as_str), Some("sleep"));
        assert!(!found.contains_key(&std::process::id()));
        assert!(programs(Path::new("/proc"), Path::new("/nowhere")).is_empty());
    }

    #[test]
    fn the_advice_names_who_holds_the_link() {
        let one = |pid, name: &str| Programs::from([(pid, name.to_owned())]);
        let (server, other) = (one(7, "server"), one(9, "python3"));
        assert_eq!(
            advice(&server, &Programs::new(), &[]),
            "server (PID 7) has objects on it: end it, or let it close its domain"
        );
        let both = Programs::from_iter(server.clone().into_iter().chain(other));
        assert_eq!(
            advice(&server, &both, &["lnet".to_owned()]),
            "server (PID 7) has objects on it; python3 (PID 9) has /dev/kfabric open; \
             kernel modules use kfabric: lnet: end it, or let it close its domain"
        );
        assert!(advice(&Programs::new(), &Programs::new(), &[]).contains("root"));
    }

    #[test]
    fn modules_are_listed_in_order() {
        // No module uses this one.
        assert!(modules(Path::new("/sys/module/nowhere/holders")).is_empty());
        let folder = std::env::temp_dir().join(format!("kfi-holders-{}", std::process::id()));
        for name in ["b", "a"] {
            fs::create_dir_all(folder.join(name)).unwrap();
        }
        assert_eq!(modules(&folder), ["a", "b"]);
        fs::remove_dir_all(folder).unwrap();
    }
}
