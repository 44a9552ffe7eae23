// SPDX-License-Identifier: GPL-2.0
//! A thread is preempted in the middle of a system call: others must be able to connect meanwhile.

use super::{End, Server, cancelled, queue};
use crate::{
    harness::tests,
    host::{SOON, buffer, domain},
    threads::{Hog, cpus, run_on},
};
use kfi::EventKind;
use std::time::{Duration, Instant};

tests![a_shutdown_that_stands_still_delays_no_other => 600];

/// The receives of the endpoint that is shut down. Cancelling so many takes long enough to preempt
/// the thread meanwhile.
const RECEIVES: u32 = 16_000;

/// How long others may take to connect meanwhile. It is less than the 0.95 s after which the
/// scheduler lets the preempted thread run for a while (`sched_rt_runtime_us`).
const BOUND: Duration = Duration::from_millis(700);

/// The CPU on which the thread is preempted.
const CPU: usize = 1;

/// The number of attempts to preempt the thread in the middle of the call.
const TRIES: usize = 10;

/// Makes a connection with `server`. Returns whether it is established before `end`.
fn connects(server: &Server, end: Instant) -> bool {
    let left = || end.saturating_duration_since(Instant::now());
    let comes = |eq: &kfi::Eq, kind| match eq.read(left()).expect("event") {
        Some(event) => {
            assert_eq!(event.kind, kind);
            Some(event.connection().expect("an event of a connection"))
        }
        None => None,
    };
    let a = server.asker(0);
    let Some(asked) = comes(&server.eq, EventKind::ConnReq) else {
        return false;
    };
    let b = server.accept(&asked, b"");
    [&a, &b]
        .iter()
        .all(|end| comes(&end.eq, EventKind::Connected).is_some())
}

/// A thread that shuts an endpoint down is preempted while it holds the lock that the events of the
/// endpoint's connection need. An event of that connection waits; other connections are made.
fn a_shutdown_that_stands_still_delays_no_other() {
    assert!(cpus() > CPU, "this needs two CPUs");
    run_on((0..cpus()).filter(|cpu| *cpu != CPU));
    let hog = Hog::on(CPU);
    let others = Server::new();
    assert!(connects(&others, Instant::now() + SOON));
    let stood_still = (0..TRIES).any(|_| stands_still(&hog, &others));
    assert!(stood_still, "it was never stopped in the middle");
}

/// Makes one attempt. Returns whether the thread was preempted in the call while others connected;
/// asserts that they connected then.
fn stands_still(hog: &Hog, others: &Server) -> bool {
    let server = Server::new();
    let (fabric, domain) = domain();
    let slow = End::sized(&domain, &queue(&fabric), None, 0, RECEIVES);
    let peer = server.connect(&slow);
    let into = buffer(1);
    for _ in 0..RECEIVES {
        slow.ep.recv(&into, 1).expect("recv");
    }
    std::thread::scope(|scope| {
        let shutdown = scope.spawn(|| {
            run_on([CPU]);
            slow.ep.shutdown()
        });
        // The shutdown has begun.
        cancelled(&slow, 1);
        hog.want(true);
        // This gives the blocked endpoint an event. It fails if the shutdown has come first.
        let reported = peer.ep.shutdown().is_ok();
        let connected = connects(others, Instant::now() + BOUND);
        let stood_still = reported && !shutdown.is_finished();
        hog.want(false);
        shutdown.join().expect("a thread").expect("shutdown");
        for _ in 1..RECEIVES {
            cancelled(&slow, 1);
        }
        if stood_still {
            assert!(connected, "others waited for a program that stands still");
            // Both ends have shut the connection down themselves, so neither gets an event.
            for end in [&slow, &peer] {
                assert!(end.eq.read(Duration::ZERO).expect("event").is_none());
            }
        }
        stood_still
    })
}
