// SPDX-License-Identifier: GPL-2.0
//! Reads a counter and waits for it: `counter [LINK]`.
//!
//! One thread sleeps until the counter has reached 3, another adds.  The values
//! are read from mapped memory, without a system call.

use std::{env, thread, time::Duration};

use kfi::{Device, Wait};

fn main() -> kfi::Result<()> {
    let device = Device::open()?;
    let link = match env::args().nth(1) {
        Some(name) => name,
        None => device.first_link()?.name,
    };
    let domain = device.fabric()?.domain(&link).open()?;
    let cntr = domain.cntr().wait(Wait::Queue).open()?;

    let values = thread::scope(|scope| {
        let sleeper = scope.spawn(|| cntr.wait(3, Duration::from_secs(5)));
        for _ in 0..3 {
            cntr.add(1)?;
            println!("added 1, the counter is at {}", cntr.value());
        }
        sleeper.join().expect("the sleeper does not panic")
    })?;
    println!(
        "woken at {} successes and {} errors",
        values.value, values.err
    );

    // The same through a descriptor, as in a program with an event loop.
    let fd = cntr.wait_fd()?;
    fd.arm(5)?;
    assert!(!fd.wait(Duration::from_millis(10))?, "5 is not reached yet");
    cntr.add(2)?;
    assert!(fd.wait(Duration::from_secs(5))?, "5 is reached");
    println!("the descriptor is readable, and gives {:?}", fd.consume()?);
    Ok(())
}
