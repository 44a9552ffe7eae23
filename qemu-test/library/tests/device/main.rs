// SPDX-License-Identifier: GPL-2.0
//! Tests of the library against the module: they need /dev/kfabric and, for the
//! link, CAP_NET_ADMIN.
//!
//! A plain `cargo test` ignores them; the guest runs them with `--ignored`.
//! Each test uses a link on `lo`, which the first one makes.

mod closing;
mod comp_cntrs;
mod counters;
mod events;
mod operations;
mod queues;

use std::time::Duration;

use kfi::{
    AuthKey, Av, AvKind, Caps, Cq, CqBind, CqFormat, Device, Domain, Endpoint, Entry, EpType,
    Errno, Error, Fabric, FiAddr, Hints, LinkState, Result, StatClass, StatValues, Wait, abi,
};

const LINK: &str = "kfi0";
const PATIENCE: Duration = Duration::from_secs(10);
const SHORT: Duration = Duration::from_millis(30);

fn device() -> Device {
    let device = Device::open().expect("the module is loaded");
    match device.link_add(LINK, "lo") {
        Ok(()) => (),
        Err(error) if error.is(Errno::EEXIST) => (),
        Err(error) => panic!("{error}"),
    }
    device
}

fn fabric() -> Fabric {
    device().fabric().unwrap()
}

fn domain() -> Domain {
    fabric().domain(LINK).open().unwrap()
}

/// An enabled endpoint with its queue and addresses.
struct Peer {
    ep: Endpoint,
    cq: Cq,
    av: Av,
}

impl Peer {
    fn new(domain: &Domain) -> Self {
        Self::with(domain, CqBind::TRANSMIT | CqBind::RECV, |_| ())
    }

    fn with(domain: &Domain, bind: CqBind, more: impl FnOnce(&Endpoint)) -> Self {
        Self::keyed(domain, bind, AuthKey::NONE, more)
    }

    fn keyed(domain: &Domain, bind: CqBind, key: AuthKey, more: impl FnOnce(&Endpoint)) -> Self {
        let cq = domain
            .cq()
            .entries(64)
            .format(CqFormat::Tagged)
            .wait(Wait::Queue)
            .open()
            .unwrap();
        let av = domain.av().kind(AvKind::Table).open().unwrap();
        let caps = Caps::MSG
            | Caps::TAGGED
            | Caps::RMA
            | Caps::SOURCE
            | Caps::DIRECTED_RECV
            | Caps::MULTI_RECV;
        let ep = domain.endpoint().caps(caps).auth_key(key).open().unwrap();
        ep.bind_cq(&cq, bind).unwrap();
        ep.bind_av(&av).unwrap();
        more(&ep);
        ep.enable().unwrap();
        Self { ep, cq, av }
    }

    fn addr_of(&self, peer: &Peer) -> FiAddr {
        self.av.insert_one(peer.ep.name().unwrap()).unwrap()
    }

    fn next(&self) -> Entry {
        self.cq.next(PATIENCE).unwrap().expect("a completion")
    }
}

fn pair() -> (Peer, Peer, FiAddr, FiAddr) {
    let domain = domain();
    let (one, two) = (Peer::new(&domain), Peer::new(&domain));
    let (to_two, to_one) = (one.addr_of(&two), two.addr_of(&one));
    (one, two, to_two, to_one)
}

#[track_caller]
fn refused<T: std::fmt::Debug>(result: Result<T>, errno: Errno) {
    let error = result.expect_err("it is refused");
    assert!(error.is(errno), "{error}");
}

#[test]
#[ignore = "needs /dev/kfabric"]
fn query_and_nop() {
    let device = device();
    let query = device.query().unwrap();
    assert_eq!(query.abi_version, abi::KFABRIC_ABI_VERSION);
    assert_eq!(query.page_size as usize, rustix::param::page_size());
    assert!(
        query
            .caps
            .contains(Caps::MSG | Caps::TAGGED | Caps::RMA | Caps::ATOMIC)
    );
    device.nop().unwrap();
}

#[test]
#[ignore = "needs /dev/kfabric"]
fn links() {
    let device = device();
    let link = device
        .links()
        .map(Result::unwrap)
        .find(|link| link.name == LINK)
        .expect("the link is listed");
    assert_eq!(link.netdev, "lo");
    assert_eq!(link.state, LinkState::Up);
    assert_eq!(link.ipv4, Some("127.0.0.1:0".parse().unwrap()));
    refused(device.link_add(LINK, "lo"), Errno::EEXIST);
    refused(device.link_add("other", "nowhere"), Errno::ENODEV);
    refused(device.link_del("nowhere"), Errno::ENODEV);
    assert!(matches!(
        device.link_add("a-name-that-is-too-long", "lo"),
        Err(Error::Name { .. })
    ));
}

#[test]
#[ignore = "needs /dev/kfabric"]
fn getinfo() {
    let device = device();
    let hints = Hints::new()
        .caps(Caps::MSG)
        .ep_type(EpType::Rdm)
        .domain_name(LINK);
    let infos = device.getinfo(&hints).unwrap();
    assert!(!infos.is_empty());
    for info in &infos {
        assert_eq!(info.domain_name, LINK);
        assert_eq!(info.ep_type, EpType::Rdm);
        assert!(info.caps.contains(Caps::MSG));
        assert_eq!(info.auth_key, None);
    }
    let key = AuthKey::new([1, 2, 3, 4]);
    let keyed = device.getinfo(&Hints::new().auth_key(key)).unwrap();
    for info in keyed {
        assert_eq!((info.ep_type, info.auth_key), (EpType::Rdm, Some(key)));
    }
    let connected = Hints::new().ep_type(EpType::Msg).auth_key(key);
    refused(device.getinfo(&connected), Errno::ENODATA);
    refused(
        device.getinfo(&Hints::new().domain_name("nowhere")),
        Errno::ENODATA,
    );
}

#[test]
#[ignore = "needs /dev/kfabric"]
fn authorization_keys() {
    let domain = domain();
    let both = CqBind::TRANSMIT | CqBind::RECV;
    let peer = |key| Peer::keyed(&domain, both, key, |_| ());
    let key: AuthKey = "c0ffee".parse().unwrap();
    let (one, two, other) = (peer(key), peer(key), peer(AuthKey::NONE));
    one.ep.inject(one.addr_of(&two), b"friend").unwrap();
    let into = kfi::Buffer::new(8).unwrap();
    two.ep.recv(&into, 1).unwrap();
    assert_eq!((two.next().len, into.to_vec(..6)), (6, b"friend".to_vec()));
    refused(one.ep.inject(one.addr_of(&other), b"x"), Errno::ENOTCONN);
    refused(other.ep.inject(other.addr_of(&one), b"x"), Errno::ENOTCONN);
    for ep_type in [EpType::Msg, EpType::Dgram] {
        let opened = domain.endpoint().ep_type(ep_type).auth_key(key).open();
        refused(opened.map(drop), Errno::EOPNOTSUPP);
    }
    domain.scalable_endpoint().auth_key(key).open().unwrap();
}

#[test]
#[ignore = "needs /dev/kfabric"]
fn statistics() {
    let device = device();
    let domain = device.fabric().unwrap().domain(LINK).open().unwrap();
    let one = Peer::new(&domain);
    let cntr = domain.cntr().open().unwrap();
    cntr.add(42).unwrap();
    // Other tests of this process may have the same handles in their files.
    let shown = |class, handle: u32, like: &dyn Fn(StatValues) -> bool| {
        device.stats(class).map(Result::unwrap).any(|stat| {
            stat.pid == Some(std::process::id())
                && stat.handle == handle
                && stat.link == LINK
                && like(stat.values)
        })
    };
    assert!(shown(StatClass::Cntr, cntr.handle(), &|values| matches!(
        values,
        StatValues::Cntr {
            value: 42,
            err: 0,
            threshold: None,
            ..
        }
    )));
    assert!(shown(StatClass::Cq, one.cq.handle(), &|values| matches!(
        values,
        StatValues::Cq {
            size: 64,
            queued: 0,
            ..
        }
    )));
    let name = one.ep.name().ok();
    assert!(shown(
        StatClass::Endpoint,
        one.ep.handle(),
        &|values| matches!(
            values,
            StatValues::Endpoint { addr, tx_ops: 0, .. } if addr == name
        )
    ));
}
