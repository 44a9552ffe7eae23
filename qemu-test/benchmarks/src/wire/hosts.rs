// SPDX-License-Identifier: GPL-2.0
//! Two hosts and the cable between them: network namespaces, joined by a veth pair.
//!
//! rxe and the module take the same UDP port, so only one of them uses the hosts at a time: a run
//! adds the links it needs and removes them ([`Hosts::with_links`], [`Hosts::with_devices`]).

use crate::{
    Result,
    process::{self, Channel, Second},
};
use std::{
    net::{IpAddr, Ipv4Addr},
    process::{Command, Stdio},
    time::{Duration, Instant},
};

/// Longest time until an address has its GID.
const SOON: Duration = Duration::from_secs(20);

/// Whose devices programs use by verbs.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum Driver {
    /// `rdma_rxe.ko`.
    Rxe,
    /// `kfabric_ib.ko`.
    Kfabric,
}

impl Driver {
    /// Its name for `rdma link add`.
    pub(crate) fn name(self) -> &'static str {
        match self {
            Self::Rxe => "rxe",
            Self::Kfabric => "kfabric",
        }
    }
}

/// The first host, where time is measured, or the second.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum Host {
    Near,
    Far,
}

impl Host {
    /// Its namespace.
    pub(crate) fn namespace(self) -> &'static str {
        match self {
            Self::Near => "bench-near",
            Self::Far => "bench-far",
        }
    }

    /// Its end of the cable.
    pub(crate) fn netdev(self) -> &'static str {
        match self {
            Self::Near => "near0",
            Self::Far => "far0",
        }
    }

    /// Its device for verbs.
    pub(crate) fn device(self, driver: Driver) -> &'static str {
        match (driver, self) {
            (Driver::Rxe, Self::Near) => "rxe-near",
            (Driver::Rxe, Self::Far) => "rxe-far",
            (Driver::Kfabric, Self::Near) => "kf-near",
            (Driver::Kfabric, Self::Far) => "kf-far",
        }
    }

    /// Its address.
    pub(crate) fn ip(self) -> IpAddr {
        let last = match self {
            Self::Near => 1,
            Self::Far => 2,
        };
        IpAddr::V4(Ipv4Addr::new(192, 0, 2, last))
    }

    /// The CPU on which its programs run: each has one to itself, so that no number depends on
    /// where the scheduler puts two programs that never sleep.
    pub(crate) fn cpu(self) -> usize {
        match self {
            Self::Near => 0,
            Self::Far => 1,
        }
    }

    /// Moves the calling thread to this host. The thread never returns, so it should be in a
    /// process that was made for it.
    pub(crate) fn enter(self) -> Result<()> {
        process::bind_to(self.cpu())?;
        let path = format!("/run/netns/{}", self.namespace());
        let namespace = std::fs::File::open(&path).map_err(|e| format!("{path}: {e}"))?;
        rustix::thread::move_into_link_name_space(
            std::os::fd::AsFd::as_fd(&namespace),
            Some(rustix::thread::LinkNameSpaceType::Network),
        )?;
        Ok(())
    }

    /// A command on this host.
    pub(crate) fn command(self, words: &[&str]) -> Command {
        let mut command = Command::new("ip");
        command
            .args(["netns", "exec", self.namespace()])
            .args(words)
            .stdin(Stdio::null());
        command
    }

    fn run(self, words: &str) -> Result<()> {
        run(self.command(&words.split_whitespace().collect::<Vec<_>>()))
    }
}

/// Runs `near` and `far` in processes of their own, each on its host and with a channel to the
/// other; returns the result of `near`. `far` may run for ever.
pub(crate) fn between(
    near: impl FnOnce(&mut Channel) -> Result<f64>,
    far: impl FnOnce(&mut Channel) -> Result<()>,
) -> Result<f64> {
    let mut near = Second::new(move |mut channel| {
        let mut far = Second::new(move |mut channel| {
            Host::Far.enter()?;
            far(&mut channel)
        })?;
        Host::Near.enter()?;
        let value = near(&mut far.channel)?;
        drop(far);
        channel.put(value.to_bits())
    })?;
    Ok(f64::from_bits(near.channel.get()?))
}

/// Runs a command that must succeed.
fn run(mut command: Command) -> Result<()> {
    let output = command.output()?;
    if output.status.success() {
        return Ok(());
    }
    let message = String::from_utf8_lossy(&output.stderr);
    Err(format!("{command:?}: {}", message.trim()).into())
}

/// Runs `ip` or another program in the namespace of this process.
pub(crate) fn command(program: &str, words: &str) -> Result<()> {
    let mut command = Command::new(program);
    command.args(words.split_whitespace());
    run(command)
}

fn ip(words: &str) -> Result<()> {
    command("ip", words)
}

/// Both hosts; removed when dropped.
pub(crate) struct Hosts(());

impl Hosts {
    /// Joins two hosts by a cable with this MTU.
    pub(crate) fn new(mtu: u32) -> Result<Self> {
        let hosts = Self(());
        let (near, far) = (Host::Near, Host::Far);
        for host in [near, far] {
            ip(&format!("netns add {}", host.namespace()))?;
        }
        ip(&format!(
            "link add {} mtu {mtu} netns {} type veth peer name {} mtu {mtu} netns {}",
            near.netdev(),
            near.namespace(),
            far.netdev(),
            far.namespace()
        ))?;
        for host in [near, far] {
            host.run(&format!(
                "ip address add {}/24 dev {}",
                host.ip(),
                host.netdev()
            ))?;
            host.run(&format!("ip link set {} up", host.netdev()))?;
        }
        // The hosts know each other's link-layer addresses before the measurement.
        near.run(&format!("ping -c 1 -w 10 {}", far.ip()))?;
        Ok(hosts)
    }

    /// Makes the cable lose packets, `per_cent` of those that either host sends.
    pub(crate) fn lose(&self, per_cent: f64) -> Result<()> {
        for host in [Host::Near, Host::Far] {
            host.run(&format!(
                "tc qdisc replace dev {} root netem limit 100000 loss {per_cent}%",
                host.netdev()
            ))?;
        }
        Ok(())
    }

    /// Runs with a device of this driver on each host.
    pub(crate) fn with_devices<T>(
        &self,
        driver: Driver,
        run: impl FnOnce() -> Result<T>,
    ) -> Result<T> {
        self.between(
            |host| {
                host.run(&format!(
                    "rdma link add {} type {} netdev {}",
                    host.device(driver),
                    driver.name(),
                    host.netdev()
                ))
            },
            |host| host.run(&format!("rdma link delete {}", host.device(driver))),
            run,
        )
    }

    /// Runs with a link of the module's on each host, that has the name of its interface.
    pub(crate) fn with_links<T>(&self, run: impl FnOnce() -> Result<T>) -> Result<T> {
        let device = |host: Host, change: fn(&kfi::Device, &str) -> kfi::Result<()>| {
            let mut there = Second::new(move |mut channel| {
                host.enter()?;
                change(&kfi::Device::open()?, host.netdev())?;
                channel.put(0)
            })?;
            there.channel.get().map(drop)
        };
        self.between(
            |host| device(host, |device, name| device.link_add(name, name)),
            |host| device(host, |device, name| device.link_del(name)),
            run,
        )
    }

    fn between<T>(
        &self,
        add: impl Fn(Host) -> Result<()>,
        delete: impl Fn(Host) -> Result<()>,
        run: impl FnOnce() -> Result<T>,
    ) -> Result<T> {
        add(Host::Near)?;
        let result = match add(Host::Far) {
            Ok(()) => {
                let result = run();
                delete(Host::Far).and(result)
            }
            Err(error) => Err(error),
        };
        delete(Host::Near).and(result)
    }
}

impl Drop for Hosts {
    fn drop(&mut self) {
        // The kernel removes the cable with its ends; a host that was never made is ignored.
        for host in [Host::Near, Host::Far] {
            let _ = ip(&format!("netns delete {}", host.namespace()));
        }
    }
}

/// The index of an IPv4 address among the GIDs of a device. An address gets its GID a little later
/// than the device comes.
pub(crate) fn gid_index(device: &str, ip: IpAddr) -> Result<u32> {
    let IpAddr::V4(ip) = ip else {
        return Err("an IPv4 address is needed".into());
    };
    let [a, b, c, d] = ip.octets();
    let end = format!("ffff:{a:02x}{b:02x}:{c:02x}{d:02x}");
    let dir = format!("/sys/class/infiniband/{device}/ports/1/gids");
    let began = Instant::now();
    while began.elapsed() < SOON {
        let found = (0..16).find(|index| {
            std::fs::read_to_string(format!("{dir}/{index}"))
                .is_ok_and(|gid| gid.trim().ends_with(&end))
        });
        if let Some(index) = found {
            return Ok(index);
        }
        std::thread::sleep(Duration::from_millis(10));
    }
    Err(format!("{dir}: no {ip}").into())
}
