// SPDX-License-Identifier: GPL-2.0
//! Network interfaces of a test, the programs that set them up, and sockets that are bound to one.

use std::{
    io::{Error, Result},
    net::UdpSocket,
    os::fd::{AsRawFd, FromRawFd},
};

/// Runs `ip` with these words; it must succeed.
#[track_caller]
pub(crate) fn ip(words: &str) {
    program("ip", words);
}

/// Runs a program with these words as arguments.
#[track_caller]
pub(crate) fn program(name: &str, words: &str) {
    let status = std::process::Command::new(name)
        .args(words.split_whitespace())
        .status()
        .unwrap_or_else(|error| panic!("start {name}: {error}"));
    assert!(status.success(), "{name} {words}: {status}");
}

/// Runs these commands of ip(8), one per line, in one batch.
#[track_caller]
pub(crate) fn ip_batch(lines: &[String]) {
    use std::io::Write;
    let mut child = std::process::Command::new("ip")
        .args(["-batch", "-"])
        .stdin(std::process::Stdio::piped())
        .spawn()
        .expect("start ip");
    let mut stdin = child.stdin.take().expect("stdin");
    stdin.write_all(lines.join("\n").as_bytes()).expect("write");
    drop(stdin);
    let status = child.wait().expect("wait");
    assert!(status.success(), "{lines:?}: {status}");
}

/// A UDP socket at a port of all addresses of a family, bound to this interface.
pub(crate) fn udp_on(netdev: &str, ipv6: bool, port: u16) -> Result<UdpSocket> {
    let check = |result: i32| match result {
        0 => Ok(()),
        _ => Err(Error::last_os_error()),
    };
    let family = if ipv6 { libc::AF_INET6 } else { libc::AF_INET };
    // SAFETY: The call takes three numbers.
    let fd = unsafe { libc::socket(family, libc::SOCK_DGRAM | libc::SOCK_CLOEXEC, 0) };
    if fd < 0 {
        return Err(Error::last_os_error());
    }
    // SAFETY: The descriptor is new and has no other owner.
    let socket = unsafe { UdpSocket::from_raw_fd(fd) };
    // SAFETY: The name is valid for the call, with this length.
    check(unsafe {
        libc::setsockopt(
            socket.as_raw_fd(),
            libc::SOL_SOCKET,
            libc::SO_BINDTODEVICE,
            netdev.as_ptr().cast(),
            netdev.len() as u32,
        )
    })?;
    // SAFETY: All zeros is an unspecified address. It is longer than that of either family.
    let mut at: libc::sockaddr_in6 = unsafe { std::mem::zeroed() };
    at.sin6_family = family as u16;
    // At the same place in both families.
    at.sin6_port = port.to_be();
    let len = match ipv6 {
        true => size_of::<libc::sockaddr_in6>(),
        false => size_of::<libc::sockaddr_in>(),
    };
    // SAFETY: The address is valid for the call, with this length.
    check(unsafe { libc::bind(socket.as_raw_fd(), (&raw const at).cast(), len as u32) })?;
    Ok(socket)
}

/// A network interface of a test; dropping this value removes it.
pub(crate) struct Netdev(&'static str);

impl Netdev {
    /// A dummy interface that is up and has this address (`10.9.0.1/24`), unless it is empty.
    #[track_caller]
    pub(crate) fn dummy(name: &'static str, addr: &str) -> Self {
        // An interface that a failed test has left.
        let _ = std::process::Command::new("ip")
            .args(["link", "del", name])
            .stderr(std::process::Stdio::null())
            .status();
        ip(&format!("link add {name} type dummy"));
        let netdev = Self(name);
        if !addr.is_empty() {
            ip(&format!("addr add {addr} dev {name}"));
        }
        ip(&format!("link set {name} up"));
        netdev
    }

    /// Removes it now.
    pub(crate) fn delete(self) {}
}

impl Drop for Netdev {
    fn drop(&mut self) {
        ip(&format!("link del {}", self.0));
    }
}
