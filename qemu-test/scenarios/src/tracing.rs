// SPDX-License-Identifier: GPL-2.0
//! Tracepoints: operations are reported if they are enabled, and not otherwise.

use crate::{
    harness::tests,
    host::{device, pair, until},
};
use kfi::Buffer;
use std::{net::UdpSocket, path::Path};

tests![operations_are_traced, dropped_packets_are_traced];

const TRACING: &str = "/sys/kernel/tracing";

/// Writes to a file of tracefs.
fn set(file: &str, value: &str) {
    let path = Path::new(TRACING).join(file);
    std::fs::write(&path, value).unwrap_or_else(|e| panic!("{}: {e}", path.display()));
}

/// Enables or disables an event, or all events of a folder.
///
/// The names of tasks are not recorded: that patches calls in the scheduler, which both CPUs
/// execute all the time, and an emulated CPU sometimes executes code that the other one is patching
/// (`Oops: int3`). The code that is patched here is kfabric's, and no other task executes it.
fn enable(event: &str, on: bool) {
    set("options/record-cmd", "0");
    set(
        &format!("events/{event}/enable"),
        if on { "1" } else { "0" },
    );
}

/// How often the module calls the C function `name` while `run` runs, by a kprobe.
pub(crate) fn count_calls(name: &str, run: impl FnOnce()) -> u64 {
    set("kprobe_events", &format!("p:kfi/{name} kfabric:{name}"));
    enable("kfi", true);
    run();
    let profile = std::fs::read_to_string(Path::new(TRACING).join("kprobe_profile"));
    enable("kfi", false);
    // Opened with O_TRUNC, which removes all probes.
    set("kprobe_events", "");
    let profile = profile.expect("kprobe_profile");
    let mut words = profile.split_whitespace().skip_while(|word| *word != name);
    let hits = words.nth(1).expect("the hits of the probe");
    hits.parse().expect("a number")
}

/// The lines of the event `name` with this context.
fn lines(name: &str, context: u64) -> Vec<String> {
    trace()
        .lines()
        .filter(|line| line.contains(&format!(" {name}: ")))
        .filter(|line| line.contains(&format!(" context={context:#x}")))
        .map(ToOwned::to_owned)
        .collect()
}

/// All lines of the trace.
fn trace() -> String {
    std::fs::read_to_string(Path::new(TRACING).join("trace")).expect("trace")
}

/// A datagram that is no packet of RoCEv2, and one to an unknown QP.
fn dropped_packets_are_traced() {
    let _link = device();
    let socket = UdpSocket::bind("127.0.0.1:0").expect("bind");
    let mut packet = [0; 24];
    // SEND ONLY of RC, to QP 0x123456, with the default P_Key.
    packet[0] = 0x04;
    packet[2..4].fill(0xff);
    packet[5..8].copy_from_slice(&[0x12, 0x34, 0x56]);
    set("trace", "");
    enable("kfabric/kfabric_drop", true);
    for bytes in [&[0; 3][..], &packet] {
        socket.send_to(bytes, "127.0.0.1:4791").expect("send");
    }
    until("two dropped packets", || {
        trace().matches(" kfabric_drop: ").count() == 2
    });
    enable("kfabric/kfabric_drop", false);
    let trace = trace();
    assert!(trace.contains(" kfabric_drop: qpn=0x0 cause="), "{trace}");
    assert!(
        trace.contains(" kfabric_drop: qpn=0x123456 cause="),
        "{trace}"
    );
}

fn operations_are_traced() {
    let (a, to_b, b, _) = pair();
    let (from, into) = (
        Buffer::new(24).expect("buffer"),
        Buffer::new(24).expect("buffer"),
    );
    let exchange = |context| {
        b.ep.recv(&into, context).expect("recv");
        a.ep.send(to_b, &from, context).expect("send");
        assert_eq!(a.completion().op_context, context);
        assert_eq!(b.completion().op_context, context);
    };
    set("trace", "");
    exchange(0x0ff);
    enable("kfabric", true);
    exchange(0x1234);
    b.ep.recv(&into, 0x5678).expect("recv");
    b.ep.cancel(0x5678).expect("cancel");
    b.cq.readerr().expect("readerr").expect("an error");
    enable("kfabric", false);
    exchange(0xfff);

    for silent in [0x0ff, 0xfff] {
        assert!(lines("kfabric_post", silent).is_empty());
        assert!(lines("kfabric_complete", silent).is_empty());
    }
    // The receive and the send, and the end of each.
    let posts = lines("kfabric_post", 0x1234);
    assert_eq!(posts.len(), 2, "{posts:?}");
    assert!(
        posts[0].contains(" op=0 ") && posts[1].contains(" op=1 "),
        "{posts:?}"
    );
    let ends = lines("kfabric_complete", 0x1234);
    assert_eq!(ends.len(), 2, "{ends:?}");
    assert!(
        ends.iter().all(|line| line.contains(" error=0")),
        "{ends:?}"
    );
    assert!(
        ends.iter().any(|line| line.contains(" len=24 ")),
        "{ends:?}"
    );
    // ECANCELED.
    let ends = lines("kfabric_complete", 0x5678);
    assert!(
        ends.len() == 1 && ends[0].contains(" error=125"),
        "{ends:?}"
    );
}
