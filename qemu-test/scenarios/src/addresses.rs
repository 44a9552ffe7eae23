// SPDX-License-Identifier: GPL-2.0
//! Address vectors: tables and maps, growth, duplicates, removal, text.

use crate::{
    harness::tests,
    host::{Host, domain, errno, pair},
    raw::{File, arg, ipv4, refused, with},
    threads::Sleeper,
};
use kfi::{Av, AvKind, Buffer, Errno, FiAddr};
use std::{
    collections::HashSet,
    net::SocketAddr,
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering::SeqCst},
    },
    time::{Duration, Instant},
};

tests![
    a_table_counts_from_0,
    a_table_gives_the_lowest_free_number,
    a_map_never_reuses_a_value,
    the_same_address_twice_is_two_entries,
    an_av_holds_65536_addresses,
    lookup_returns_the_inserted_address,
    addresses_are_formatted_as_text,
    addresses_are_parsed_from_text,
    all_are_removed_or_none,
    a_removed_address_is_no_peer,
    sources_are_those_of_the_av,
    an_av_can_change_while_it_is_used,
];

fn av(kind: AvKind) -> Av {
    let (_, domain) = domain();
    domain.av().kind(kind).open().expect("av")
}

fn v4(number: u32) -> SocketAddr {
    let [_, b, c, d] = number.to_be_bytes();
    SocketAddr::from(([10, b, c, d], 7471))
}

fn parse(text: &str) -> SocketAddr {
    text.parse().expect("an address")
}

fn a_table_counts_from_0() {
    for count in [1, 100] {
        let (_, domain) = domain();
        let av = domain
            .av()
            .kind(AvKind::Table)
            .count(count)
            .open()
            .expect("av");
        assert_eq!(av.kind(), AvKind::Table);
        let addrs: Vec<_> = (0..200).map(v4).collect();
        let mut given = av.insert(&addrs[..50]).expect("insert");
        for addr in &addrs[50..100] {
            given.push(av.insert_one(*addr).expect("insert"));
        }
        given.extend(av.insert(&addrs[100..]).expect("insert"));
        assert!(given.iter().map(|fi_addr| fi_addr.0).eq(0..200));
    }
}

fn a_table_gives_the_lowest_free_number() {
    let av = av(AvKind::Table);
    av.insert(&(0..10).map(v4).collect::<Vec<_>>())
        .expect("insert");
    av.remove(&[FiAddr(7), FiAddr(2), FiAddr(5)])
        .expect("remove");
    assert_eq!(errno(av.lookup(FiAddr(5))), Some(Errno::ENOENT));
    let again = av
        .insert(&(20..24).map(v4).collect::<Vec<_>>())
        .expect("insert");
    assert_eq!(again, [2, 5, 7, 10].map(FiAddr));
    assert_eq!(av.lookup(FiAddr(5)).expect("lookup"), v4(21));
    for nowhere in [11, 63, 64, 65_535, 65_536, 1 << 32, u64::MAX - 1, u64::MAX] {
        assert_eq!(
            errno(av.lookup(FiAddr(nowhere))),
            Some(Errno::ENOENT),
            "{nowhere:#x}"
        );
    }
}

fn a_map_never_reuses_a_value() {
    let av = av(AvKind::Map);
    assert_eq!(av.kind(), AvKind::Map);
    let mut given = HashSet::new();
    for round in 0..300 {
        let fi_addr = av.insert_one(v4(round)).expect("insert");
        assert!(given.insert(fi_addr), "{fi_addr:?} was given before");
        assert_eq!(av.lookup(fi_addr).expect("lookup"), v4(round));
        av.remove(&[fi_addr]).expect("remove");
        for old in &given {
            assert_eq!(errno(av.lookup(*old)), Some(Errno::ENOENT));
        }
        assert_eq!(errno(av.remove(&[fi_addr])), Some(Errno::ENOENT));
    }
}

fn the_same_address_twice_is_two_entries() {
    let (a, to_b, b, to_a) = pair();
    let twice = b.av.insert_one(a.ep.name().expect("name")).expect("insert");
    assert_ne!(twice, to_a);
    let into = Buffer::new(8).expect("buffer");
    let source = || {
        b.ep.recv(&into, 0).expect("recv");
        a.ep.inject(to_b, b"x").expect("inject");
        b.completion().src_addr
    };
    // Sources are named by the first one, until it is removed.
    assert_eq!(source(), to_a);
    b.av.remove(&[to_a]).expect("remove");
    assert_eq!(source(), twice);
    assert!(b.ep.inject(twice, b"x").is_ok());
    assert_eq!(errno(b.ep.inject(to_a, b"x")), Some(Errno::ENOENT));
    b.av.remove(&[twice]).expect("remove");
    assert_eq!(source(), FiAddr::NOTAVAIL);
    // However often it is inserted.
    let av = av(AvKind::Table);
    let begin = Instant::now();
    for _ in 0..20 {
        av.insert(&[v4(1); 500]).expect("insert");
    }
    av.remove(&(0..10_000).map(FiAddr).collect::<Vec<_>>())
        .expect("remove");
    assert!(
        begin.elapsed() < Duration::from_secs(10),
        "{:?}",
        begin.elapsed()
    );
}

fn an_av_holds_65536_addresses() {
    const ALL: u32 = 65_536;
    let begin = Instant::now();
    for kind in [AvKind::Table, AvKind::Map] {
        let av = av(kind);
        let addrs: Vec<_> = (0..ALL).map(v4).collect();
        let mut given = Vec::new();
        // One, then more and more in one call.
        let mut left = &addrs[..];
        while !left.is_empty() {
            let (some, rest) = left.split_at(left.len().min(given.len().max(1)));
            given.extend(av.insert(some).expect("insert"));
            left = rest;
        }
        assert_eq!(given.len(), ALL as usize);
        assert_eq!(errno(av.insert_one(v4(ALL))), Some(Errno::ENOSPC));
        for (number, fi_addr) in (0..ALL).zip(&given).step_by(251) {
            assert_eq!(av.lookup(*fi_addr).expect("lookup"), v4(number));
        }
        // One is removed, one inserted; one of two is removed.
        av.remove(&[given[777]]).expect("remove");
        let two = av.insert(&[v4(ALL), v4(ALL + 1)]).expect("insert");
        assert!(two[0].known().is_some() && two[1].known().is_none());
        if kind == AvKind::Table {
            assert_eq!(two[0], FiAddr(777));
        }
        given[777] = two[0];
        av.remove(&given).expect("remove");
        assert_eq!(errno(av.lookup(given[0])), Some(Errno::ENOENT));
    }
    // A linear search would take milliseconds each.
    assert!(
        begin.elapsed() < Duration::from_secs(20),
        "{:?}",
        begin.elapsed()
    );
}

fn lookup_returns_the_inserted_address() {
    let av = av(AvKind::Map);
    for text in [
        "10.0.0.1:7471",
        "255.255.255.255:65535",
        "127.0.0.1:1",
        "[::1]:7471",
        "[2001:db8::1]:80",
        "[fe80::1%3]:9",
    ] {
        let addr = parse(text);
        let fi_addr = av.insert_one(addr).expect("insert");
        assert_eq!(av.lookup(fi_addr).expect("lookup"), addr);
    }
    // The scope of an address that has none is dropped.
    let scoped = SocketAddr::V6(std::net::SocketAddrV6::new(
        "2001:db8::2".parse().expect("address"),
        1,
        0,
        9,
    ));
    let fi_addr = av.insert_one(scoped).expect("insert");
    assert_eq!(
        av.lookup(fi_addr).expect("lookup"),
        parse("[2001:db8::2]:1")
    );
}

fn addresses_are_formatted_as_text() {
    let av = av(AvKind::Table);
    for (addr, text) in [
        ("10.0.0.1:7471", "fi_sockaddr_in://10.0.0.1:7471"),
        (
            "255.255.255.255:65535",
            "fi_sockaddr_in://255.255.255.255:65535",
        ),
        ("[::1]:7471", "fi_sockaddr_in6://[::1]:7471"),
        (
            "[2001:db8::a:0:0:1]:80",
            "fi_sockaddr_in6://[2001:db8::a:0:0:1]:80",
        ),
        ("[fe80::1%3]:9", "fi_sockaddr_in6://[fe80::1%3]:9"),
        (
            "[1111:2222:3333:4444:5555:6666:7777:8888]:65535",
            "fi_sockaddr_in6://[1111:2222:3333:4444:5555:6666:7777:8888]:65535",
        ),
    ] {
        assert_eq!(av.straddr(parse(addr)).expect("straddr"), text);
    }
    let file = File::open();
    let handle = file.av(file.domain(file.fabric()));
    let straddr = |addr| {
        file.call(arg!(kfabric_av_straddr: av: handle, addr))
            .map(drop)
    };
    for family in [0, 1, 3, u16::MAX] {
        let addr = with!(ipv4([10, 0, 0, 1], 1); family);
        refused(straddr(addr), Errno::EINVAL);
    }
}

/// Other text: `abi_av::invalid_address_text_is_refused`.
fn addresses_are_parsed_from_text() {
    let av = av(AvKind::Table);
    for (node, service, addr) in [
        ("10.0.0.1", "7471", "10.0.0.1:7471"),
        ("127.0.0.1", "65535", "127.0.0.1:65535"),
        ("::1", "1", "[::1]:1"),
        ("2001:db8::1", "80", "[2001:db8::1]:80"),
        ("fe80::1%3", "9", "[fe80::1%3]:9"),
    ] {
        let fi_addr = av.insertsvc(node, service).expect("insertsvc");
        assert_eq!(av.lookup(fi_addr).expect("lookup"), parse(addr));
    }
}

fn all_are_removed_or_none() {
    for kind in [AvKind::Table, AvKind::Map] {
        let av = av(kind);
        let given = av
            .insert(&(0..5).map(v4).collect::<Vec<_>>())
            .expect("insert");
        let stranger = FiAddr(given[4].0 + 1);
        for list in [
            vec![given[0], given[1], stranger],
            vec![stranger, given[0]],
            vec![given[0], given[1], given[0]],
            vec![given[0]; 2],
            vec![given[0], given[1], given[2], FiAddr::NOTAVAIL],
            vec![FiAddr::NOTAVAIL],
        ] {
            assert_eq!(errno(av.remove(&list)), Some(Errno::ENOENT), "{list:?}");
        }
        assert_eq!(errno(av.remove(&[])), Some(Errno::EINVAL));
        for (number, fi_addr) in given.iter().enumerate() {
            assert_eq!(av.lookup(*fi_addr).expect("lookup"), v4(number as u32));
        }
        av.remove(&[given[3], given[0], given[4]]).expect("remove");
        let left = given.iter().filter(|fi_addr| av.lookup(**fi_addr).is_ok());
        assert!(left.eq([&given[1], &given[2]]));
        assert_eq!(errno(av.remove(&given[..1])), Some(Errno::ENOENT));
    }
}

fn a_removed_address_is_no_peer() {
    let (a, to_b, b, to_a) = pair();
    let into = Buffer::new(8).expect("buffer");
    b.ep.recv(&into, 0).expect("recv");
    a.ep.inject(to_b, b"before").expect("inject");
    b.completion();
    a.av.remove(&[to_b]).expect("remove");
    assert_eq!(errno(a.ep.inject(to_b, b"after")), Some(Errno::ENOENT));
    assert_eq!(errno(a.ep.send(to_b, &into, 0)), Some(Errno::ENOENT));
    // The peer is not informed of the removal: it can still send.
    let at_a = Buffer::new(8).expect("buffer");
    a.ep.recv(&at_a, 0).expect("recv");
    b.ep.inject(to_a, b"answer").expect("inject");
    assert_eq!(a.completion().src_addr, FiAddr::NOTAVAIL);
    b.expect_nothing();
}

fn sources_are_those_of_the_av() {
    let b = Host::new();
    let into = Buffer::new(8).expect("buffer");
    let hosts: Vec<_> = (0..20)
        .map(|_| {
            let host = Host::on(&b.domain, &crate::host::Options::default());
            let to_b = host.meet(&b);
            let from = b.meet(&host);
            (host, to_b, from)
        })
        .collect();
    for (host, to_b, from) in hosts.iter().rev() {
        b.ep.recv(&into, 0).expect("recv");
        host.ep.inject(*to_b, b"x").expect("inject");
        assert_eq!(b.completion().src_addr, *from);
    }
}

fn an_av_can_change_while_it_is_used() {
    let (a, to_b, b, _) = pair();
    let stop = Arc::new(AtomicBool::new(false));
    let changers: Vec<_> = (0..2u32)
        .map(|changer| {
            let (av, stop) = (a.av.clone(), stop.clone());
            Sleeper::new(move || {
                let mut rounds = 0u32;
                while !stop.load(SeqCst) {
                    rounds += 1;
                    let addrs: Vec<_> = (0..rounds % 200 + 1)
                        .map(|i| v4(changer << 16 | i))
                        .collect();
                    let given = av.insert(&addrs).expect("insert");
                    for (fi_addr, addr) in given.iter().zip(&addrs) {
                        assert_eq!(av.lookup(*fi_addr).expect("lookup"), *addr);
                    }
                    av.remove(&given).expect("remove");
                }
                rounds
            })
        })
        .collect();
    let into = Buffer::new(8).expect("buffer");
    for i in 0..1500u64 {
        b.ep.recv(&into, i).expect("recv");
        a.ep.inject(to_b, &i.to_le_bytes()).expect("inject");
        assert_eq!(b.completion().op_context, i);
    }
    stop.store(true, SeqCst);
    for changer in changers {
        assert!(changer.join() > 0);
    }
}
