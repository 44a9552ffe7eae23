// SPDX-License-Identifier: GPL-2.0
//! The module itself: loading it, refused and successful removal. These tests unload it, so they
//! run last, and leave it loaded.

use crate::{
    harness::tests,
    host::{Host, LINK},
};
use kfi::{Device, Wait};
use std::process::Command;

tests![
    unloading_is_refused_while_used,
    loaded_and_unloaded_200_times => 600,
];

fn rmmod() -> bool {
    Command::new("rmmod")
        .arg("kfabric")
        .stderr(std::process::Stdio::null())
        .status()
        .expect("rmmod")
        .success()
}

fn insmod() {
    let status = Command::new("insmod")
        .arg("/kfabric.ko")
        .status()
        .expect("insmod");
    assert!(status.success(), "insmod");
}

fn unloading_is_refused_while_used() {
    let device = Device::open().expect("open");
    assert!(!rmmod(), "unloaded with the device open");
    drop(device);
    let host = Host::new();
    let cntr = host.domain.cntr().wait(Wait::Queue).open().expect("cntr");
    let fd = cntr.wait_fd().expect("fd");
    assert!(!rmmod(), "unloaded with objects open");
    drop((host, cntr));
    // The descriptor of a counter keeps the module loaded, too.
    assert!(!rmmod(), "unloaded with a wait descriptor open");
    drop(fd);
    assert!(rmmod(), "nothing is open");
    insmod();
}

fn loaded_and_unloaded_200_times() {
    for round in 0..200 {
        assert!(rmmod(), "round {round}");
        insmod();
        if round % 10 == 0 {
            // With links and objects in between.
            let host = Host::new();
            assert!(host.ep.name().is_ok());
        } else {
            let device = Device::open().expect("open");
            device
                .link_add(LINK, "lo")
                .expect("a fresh module has no links");
        }
    }
}
