// SPDX-License-Identifier: GPL-2.0
//! Network interfaces of a test, the programs that set them up, and sockets that are bound to one.

use rustix::net::{AddressFamily, SocketFlags, SocketType, bind, socket_with};
use std::{
    io::{Error, Result},
    net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr, UdpSocket},
    os::fd::AsRawFd,
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
    let (family, any): (_, IpAddr) = match ipv6 {
        true => (AddressFamily::INET6, Ipv6Addr::UNSPECIFIED.into()),
        false => (AddressFamily::INET, Ipv4Addr::UNSPECIFIED.into()),
    };
    let socket = socket_with(family, SocketType::DGRAM, SocketFlags::CLOEXEC, None)?;
    // SAFETY: The name is valid for the call, with this length.
    let result = unsafe {
        libc::setsockopt(
            socket.as_raw_fd(),
            libc::SOL_SOCKET,
            libc::SO_BINDTODEVICE,
            netdev.as_ptr().cast(),
            netdev.len() as u32,
        )
    };
    if result != 0 {
        return Err(Error::last_os_error());
    }
    bind(&socket, &SocketAddr::new(any, port))?;
    Ok(socket.into())
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
