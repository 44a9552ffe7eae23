// SPDX-License-Identifier: GPL-2.0
//! `kfi top`: owners and waiters of objects, printed and drawn.

use std::{
    io::{BufRead, BufReader, Read, Write},
    os::fd::OwnedFd,
    process::{Command, Stdio},
    thread,
    time::{Duration, Instant},
};

use rustix::{pty::OpenptFlags, termios::Winsize};
use serde_json::Value;

use super::command::{Server, command, kfi, parse, with_link};
use crate::{harness::tests, host::SOON};

tests![top_shows_who_waits_for_what, top_draws_on_a_terminal];

/// Takes samples until `found` returns true.
fn top_until<T>(found: impl Fn(&Value) -> Option<T>) -> T {
    let end = Instant::now() + SOON;
    loop {
        let look = kfi("top --once --json").succeeds().json();
        if let Some(found) = found(&look) {
            return found;
        }
        assert!(Instant::now() < end, "not found: {look}");
        thread::sleep(Duration::from_millis(20));
    }
}

fn top_shows_who_waits_for_what() {
    with_link();
    let server = Server::start("");
    let endpoint = top_until(|look| {
        let found = &look["endpoints"][0];
        (found["rx_posted"] == 1).then(|| found.clone())
    });
    assert_eq!(endpoint["address"], server.address.as_str());
    assert_eq!(endpoint["pid"], server.child.id());
    assert_eq!(endpoint["link"], "roce0");
    let cq = top_until(|look| (look["cqs"][0]["waiters"] == 1).then(|| look["cqs"][0].clone()));
    assert_eq!((&cq["reserved"], &cq["queued"]), (&1.into(), &0.into()));
    drop(server);

    let mut waiting = command("cntr --timeout 30 add=3 wait=9")
        .spawn()
        .expect("start kfi");
    let cntr =
        top_until(|look| (look["cntrs"][0]["waiters"] == 1).then(|| look["cntrs"][0].clone()));
    assert_eq!((&cntr["value"], &cntr["threshold"]), (&3.into(), &9.into()));
    let text = kfi("top --once").succeeds().out;
    assert!(
        text.contains("COUNTER") && text.contains("no endpoints"),
        "{text}"
    );
    waiting.kill().expect("kill");
    waiting.wait().expect("wait");
    top_until(|look| look["cntrs"].as_array()?.is_empty().then_some(()));

    // With repeated samples the second one has rates.
    let mut looks = command("top --json --interval 0.05")
        .spawn()
        .expect("start kfi");
    let mut lines = BufReader::new(looks.stdout.take().expect("a pipe")).lines();
    let mut next = || parse(&lines.next().expect("a line").expect("read"));
    assert!(next()["seconds"].is_null());
    let second = next();
    assert!(second["seconds"].as_f64() >= Some(0.05), "{second}");
    assert_eq!(second["links"][0]["tx_ops_per_second"], 0.0);
    looks.kill().expect("kill");
    looks.wait().expect("wait");
}

/// A terminal: its controlling side, and the other.
fn terminal() -> (OwnedFd, OwnedFd) {
    let flags = OpenptFlags::RDWR | OpenptFlags::NOCTTY;
    let ours = rustix::pty::openpt(flags).expect("openpt");
    rustix::pty::grantpt(&ours).expect("grantpt");
    rustix::pty::unlockpt(&ours).expect("unlockpt");
    let size = Winsize {
        ws_row: 24,
        ws_col: 100,
        ws_xpixel: 0,
        ws_ypixel: 0,
    };
    rustix::termios::tcsetwinsize(&ours, size).expect("size");
    let theirs = rustix::pty::ioctl_tiocgptpeer(&ours, flags).expect("the other side");
    (ours, theirs)
}

fn top_draws_on_a_terminal() {
    with_link();
    let (ours, theirs) = terminal();
    let other = || Stdio::from(theirs.try_clone().expect("dup"));
    let before = rustix::termios::tcgetattr(&theirs)
        .expect("tcgetattr")
        .local_modes;
    // It is the controlling terminal, as that of a user.
    let mut child = Command::new("setsid")
        .args(["-c", "/bin/kfi", "top", "--interval", "0.1"])
        .env("TERM", "xterm")
        .stdin(other())
        .stdout(other())
        .stderr(Stdio::piped())
        .spawn()
        .expect("start kfi");
    let mut keyboard = std::fs::File::from(ours);
    let mut screen = keyboard.try_clone().expect("dup");
    let (send, drawn) = std::sync::mpsc::channel();
    // Reads and discards the output until no process has the terminal open.
    let reader = thread::spawn(move || {
        let mut bytes = [0; 4096];
        while let Ok(count @ 1..) = screen.read(&mut bytes) {
            let _ = send.send(bytes[..count].to_vec());
        }
    });
    let mut seen = Vec::new();
    let end = Instant::now() + SOON;
    while !String::from_utf8_lossy(&seen).contains("127.0.0.1") {
        if let Ok(bytes) = drawn.recv_timeout(Duration::from_millis(50)) {
            seen.extend(bytes);
        }
        if Instant::now() > end || child.try_wait().expect("wait").is_some() {
            let _ = child.kill();
            let mut err = String::new();
            child
                .stderr
                .take()
                .expect("a pipe")
                .read_to_string(&mut err)
                .expect("read");
            panic!("drawn: {:?}\n{err}", String::from_utf8_lossy(&seen));
        }
    }
    keyboard.write_all(b"jk q").expect("press keys");
    assert_eq!(child.wait().expect("wait").code(), Some(0));
    let mut err = String::new();
    child
        .stderr
        .take()
        .expect("a pipe")
        .read_to_string(&mut err)
        .expect("read");
    assert_eq!(err, "");
    let after = rustix::termios::tcgetattr(&theirs)
        .expect("tcgetattr")
        .local_modes;
    assert_eq!(before, after, "the terminal is left as it was");
    drop(theirs);
    reader.join().expect("the reader");
}
