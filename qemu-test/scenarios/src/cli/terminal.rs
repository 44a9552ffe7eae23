// SPDX-License-Identifier: GPL-2.0
//! Runs a command that fills the screen, on a terminal of its own.

use std::{
    fs::File,
    io::{Read, Write},
    os::fd::OwnedFd,
    process::{Child, Command, Stdio},
    sync::mpsc::{Receiver, channel},
    thread,
    time::{Duration, Instant},
};

use rustix::{pty::OpenptFlags, termios::Winsize};

use crate::host::SOON;

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

fn errors_of(child: &mut Child) -> String {
    let mut err = String::new();
    let mut pipe = child.stderr.take().expect("a pipe");
    pipe.read_to_string(&mut err).expect("read");
    err
}

/// Reads what is drawn until it has each of the texts.
fn wait_for(drawn: &Receiver<Vec<u8>>, child: &mut Child, texts: &[&str]) {
    let mut seen = Vec::new();
    let end = Instant::now() + SOON;
    loop {
        let text = String::from_utf8_lossy(&seen).into_owned();
        if texts.iter().all(|expected| text.contains(expected)) {
            return;
        }
        if let Ok(bytes) = drawn.recv_timeout(Duration::from_millis(50)) {
            seen.extend(bytes);
        }
        if Instant::now() > end || child.try_wait().expect("wait").is_some() {
            let _ = child.kill();
            panic!("drawn: {text:?}\n{}", errors_of(child));
        }
    }
}

/// Runs `kfi LINE` on a terminal until it has drawn each of the texts, presses the keys, and
/// checks that the command ends with success and leaves the terminal as it was.
pub(super) fn draws(line: &str, texts: &[&str], keys: &[u8]) {
    let (ours, theirs) = terminal();
    let other = || Stdio::from(theirs.try_clone().expect("dup"));
    let modes = || {
        rustix::termios::tcgetattr(&theirs)
            .expect("tcgetattr")
            .local_modes
    };
    let before = modes();
    // It is the controlling terminal, as that of a user.
    let mut child = Command::new("setsid")
        .args(["-c", "/bin/kfi"])
        .args(line.split_whitespace())
        .env("TERM", "xterm")
        .stdin(other())
        .stdout(other())
        .stderr(Stdio::piped())
        .spawn()
        .expect("start kfi");
    let mut keyboard = File::from(ours);
    let mut screen = keyboard.try_clone().expect("dup");
    let (send, drawn) = channel();
    // Reads the output until no process has the terminal open.
    let reader = thread::spawn(move || {
        let mut bytes = [0; 4096];
        while let Ok(count @ 1..) = screen.read(&mut bytes) {
            let _ = send.send(bytes[..count].to_vec());
        }
    });
    wait_for(&drawn, &mut child, texts);
    keyboard.write_all(keys).expect("press keys");
    assert_eq!(child.wait().expect("wait").code(), Some(0), "kfi {line}");
    assert_eq!(errors_of(&mut child), "", "kfi {line}");
    assert_eq!(before, modes(), "the terminal is left as it was");
    drop(theirs);
    reader.join().expect("the reader");
}
