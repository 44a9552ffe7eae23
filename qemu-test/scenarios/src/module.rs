// SPDX-License-Identifier: GPL-2.0
//! The module itself: loading it, refused and successful removal. These tests unload it, so they
//! run last, and leave it loaded.

use crate::{
    comp_cntr::counts,
    harness::tests,
    host::{Host, LINK, Options, errno, until},
};
use kfi::{Buffer, CompCntrOps, CompCntrType, Device, Errno, MemoryLocation, Wait};
use std::process::Command;

tests![
    completion_counters_wrap_at_the_maximum_of_the_module,
    unloading_is_refused_while_used,
    loaded_and_unloaded_many_times => 600,
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
    insmod_with(&[]);
}

/// Loads the module with these parameters.
fn insmod_with(parameters: &[&str]) {
    let status = Command::new("insmod")
        .arg("/kfabric.ko")
        .args(parameters)
        .status()
        .expect("insmod");
    assert!(status.success(), "insmod");
}

/// The module, loaded with other parameters. Dropping this value loads it as before, also if the
/// test fails.
pub(crate) struct Loaded(());

impl Loaded {
    /// Reloads it with these parameters. No file of it may be open, but one may be closing.
    pub(crate) fn with(parameters: &[&str]) -> Self {
        // A test that has ended may still be closing its files.
        until("the module is not used", rmmod);
        insmod_with(parameters);
        Self(())
    }
}

impl Drop for Loaded {
    fn drop(&mut self) {
        if rmmod() {
            insmod();
        }
    }
}

/// ibv_create_comp_cntr(3): an increment past the largest value wraps to zero.
fn completion_counters_wrap_at_the_maximum_of_the_module() {
    let _loaded = Loaded::with(&["comp_cntr_max_value=9"]);
    let (_fabric, domain) = crate::host::domain();
    assert_eq!(domain.comp_cntr_caps().expect("caps").max_value, 9);
    let memory = Buffer::new(16).expect("buffer");
    let place = |offset| MemoryLocation::va(&memory, offset);
    let cntr = domain.comp_cntr().external(place(0), place(8)).create();
    let cntr = cntr.expect("create");
    assert_eq!(cntr.comp_count_max_value(), 9);
    assert_eq!(cntr.err_count_max_value(), 9);
    let counts = || {
        let (comp, err) = counts(&cntr);
        let seen = (cntr.comp_count(), cntr.err_count());
        assert_eq!(seen, (Some(comp), Some(err)));
        (comp, err)
    };
    cntr.set(9).expect("set");
    cntr.set_err(9).expect("set_err");
    assert_eq!(counts(), (9, 9));
    cntr.inc(1).expect("inc");
    assert_eq!(counts(), (0, 9));
    cntr.inc_err(1).expect("inc_err");
    assert_eq!(counts(), (0, 0));
    // Modulo the largest value + 1.
    cntr.set(7).expect("set");
    cntr.inc(9).expect("inc");
    cntr.set_err(8).expect("set_err");
    cntr.inc_err(5).expect("inc_err");
    assert_eq!(counts(), (6, 3));
    for beyond in [10, u64::MAX] {
        for result in [
            cntr.set(beyond),
            cntr.inc(beyond),
            cntr.set_err(beyond),
            cntr.inc_err(beyond),
        ] {
            assert_eq!(errno(result), Some(Errno::EINVAL));
        }
    }
    assert_eq!(counts(), (6, 3), "a refused change changes nothing");
    // Operations wrap it, too: 25 messages, and 25 of 7 bytes.
    let bytes = domain.comp_cntr().unit(CompCntrType::Bytes);
    let bytes = bytes.create().expect("create");
    let host = Host::prepared(&domain, &Options::default(), None, |ep| {
        ep.attach_comp_cntr(&cntr, CompCntrOps::SEND)
            .expect("attach");
        ep.attach_comp_cntr(&bytes, CompCntrOps::RECV)
            .expect("attach");
    });
    let me = host.meet(&host);
    for _ in 0..25 {
        host.ep.recv(&memory, 1).expect("recv");
        host.ep.inject(me, b"7 bytes").expect("inject");
    }
    assert_eq!(counts(), ((6 + 25) % 10, 3));
    assert_eq!(bytes.read().expect("read"), (25 * 7) % 10);
    // 8 threads lose nothing.
    cntr.set(0).expect("set");
    std::thread::scope(|scope| {
        for _ in 0..8 {
            scope.spawn(|| {
                for _ in 0..1000 {
                    cntr.inc(3).expect("inc");
                }
            });
        }
    });
    assert_eq!(counts(), (8 * 1000 * 3 % 10, 3));
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

fn loaded_and_unloaded_many_times() {
    for round in 0..50 {
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
