// SPDX-License-Identifier: GPL-2.0
//! Completion queues read by call: formats, room, errors, losses, sources.
//!
//! Reads that sleep are in [`sleepers`](crate::sleepers), the choice of operations that report in
//! [`selective`](crate::selective), the mapped ring in [`rings`](crate::rings), a CQ as a
//! descriptor in [`descriptors`](crate::descriptors).

use crate::{
    alone::{Alone, WROTE, values},
    connected::{connect, open_region},
    harness::tests,
    host::{BOTH, Host, Options, SOON, buffer, domain, errno, is_refused, pair_with, until},
    raw::{File, Pages, addr_of_mut, refused},
    threads::Sleeper,
    ways::Way,
};
use kfi::{
    Av, Buffer, Caps, CompFlags, Cq, CqFormat, Domain, Endpoint, Entry, EpType, Errno, FiAddr, Op,
    OpFlags, StatValues,
    abi::{self, Call},
};
use std::{
    collections::HashSet,
    sync::{
        Arc,
        atomic::{AtomicU64, Ordering::SeqCst},
    },
    time::Duration,
};

tests![
    sizes_are_rounded_up,
    a_read_gives_what_the_format_has,
    each_entry_takes_room_until_it_is_read,
    errors_take_room_too,
    errors_are_read_first_and_in_order,
    a_read_into_a_short_buffer_takes_no_entry,
    losses_of_entries_without_an_operation_are_reported_once,
    remote_cq_data_without_room_are_lost,
    data_on_a_connection_waits_for_room,
    sources_are_given_where_known,
    a_bound_cq_stays_open,
    a_cq_closes_with_entries_in_it,
    an_affinity_is_only_a_hint,
    refusals_have_a_text,
    everything_completes_once,
    endpoints_that_share_a_cq_share_its_room,
    a_closed_endpoint_gives_its_room_back: [OneHost, TwoHosts, Connection, Datagrams],
];

fn sizes_are_rounded_up() {
    let (_, domain) = domain();
    let entries = |wanted| domain.cq().entries(wanted).open().map(|cq| cq.entries());
    for (wanted, made) in [
        (1, 1),
        (2, 2),
        (3, 4),
        (100, 128),
        (65_535, 65_536),
        (65_536, 65_536),
    ] {
        assert_eq!(entries(wanted).expect("cq"), made);
    }
    assert!(entries(0).expect("cq").is_power_of_two());
    for wanted in [65_537, u32::MAX] {
        is_refused(entries(wanted), Errno::EINVAL);
    }
}

fn a_read_gives_what_the_format_has() {
    let file = File::open();
    let fabric = file.fabric();
    let domain = file.domain(fabric);
    for (format, size) in [
        (abi::KFI_CQ_FORMAT_CONTEXT, 8),
        (abi::KFI_CQ_FORMAT_MSG, 24),
        (abi::KFI_CQ_FORMAT_DATA, 40),
        (abi::KFI_CQ_FORMAT_TAGGED, 48),
        (abi::KFI_CQ_FORMAT_UNSPEC, 0),
    ] {
        let opened = file
            .call(abi::kfabric_cq_open {
                domain,
                format,
                ..Call::sized()
            })
            .expect("cq");
        let size = match opened.format {
            chosen if chosen == format => size,
            // The module's choice is one of the others.
            abi::KFI_CQ_FORMAT_CONTEXT => 8,
            abi::KFI_CQ_FORMAT_MSG => 24,
            abi::KFI_CQ_FORMAT_DATA => 40,
            abi::KFI_CQ_FORMAT_TAGGED => 48,
            other => panic!("format {other}"),
        };
        assert_ne!(size, 0);
        let (cq, av) = (opened.handle, file.av(domain));
        let ep = file.ep(domain);
        file.bind(ep, cq, abi::KFI_SEND | abi::KFI_RECV)
            .expect("bind");
        file.bind(ep, av, 0).expect("bind");
        file.enable(ep).expect("enable");
        let me = file
            .insert(av, file.ep_name(ep).expect("name"))
            .expect("insert");
        let mut into = [0u8; 16];
        let ops: Vec<_> = (0..3)
            .flat_map(|i| {
                let recv = abi::kfabric_op {
                    opcode: abi::KFABRIC_OP_TRECV,
                    context: 100 + i,
                    buf: addr_of_mut(&mut into),
                    len: 16,
                    tag: 7,
                    peer: abi::KFI_ADDR_UNSPEC,
                    ..Default::default()
                };
                let send = abi::kfabric_op {
                    opcode: abi::KFABRIC_OP_TSEND,
                    flags: abi::KFI_INJECT | abi::KFI_REMOTE_CQ_DATA,
                    buf: crate::raw::addr_of(&into),
                    len: 10 + i,
                    peer: me,
                    data: 0x1122_3344_5566_7788,
                    tag: 7,
                    ..Default::default()
                };
                [recv, send]
            })
            .collect();
        let (posted, result) = file.post(ep, &ops);
        assert_eq!((result, posted.done), (Ok(()), 6));
        let mut bytes = [0xeeu8; 48 * 4];
        let read = file
            .call(abi::kfabric_cq_read {
                cq,
                buf: addr_of_mut(&mut bytes),
                count: 4,
                ..Call::sized()
            })
            .expect("read");
        assert_eq!(read.count, 3);
        let flags = abi::KFI_TAGGED | abi::KFI_RECV | abi::KFI_REMOTE_CQ_DATA;
        for (i, entry) in bytes[..3 * size].chunks(size).enumerate() {
            let i = i as u64;
            let whole = [100 + i, flags, 10 + i, 0, 0x1122_3344_5566_7788, 7];
            let words: Vec<u64> = entry
                .chunks(8)
                .map(|word| u64::from_ne_bytes(word.try_into().expect("8 bytes")))
                .collect();
            assert_eq!(words, whole[..size / 8], "format {format}, entry {i}");
        }
        assert!(
            bytes[3 * size..].iter().all(|byte| *byte == 0xee),
            "format {format}: written behind the entries"
        );
        file.close_all(&[ep, av, cq]);
    }
}

fn each_entry_takes_room_until_it_is_read() {
    let alone = Alone::with_cq(|cq| cq.entries(8));
    alone.complete_all(0..8);
    is_refused(alone.try_complete(8), Errno::EAGAIN);
    // An operation whose success makes no entry needs no room.
    let silent = alone.ep.inject_write(alone.me, b"", alone.remote());
    assert_eq!(errno(silent), None);
    assert_eq!(alone.read(3), [0, 1, 2]);
    alone.complete_all(8..11);
    is_refused(alone.try_complete(11), Errno::EAGAIN);
    assert_eq!(alone.read(64), [3, 4, 5, 6, 7, 8, 9, 10]);
    assert!(alone.read(64).is_empty());
    // Silent successes take no room.
    for _ in 0..20 {
        alone
            .ep
            .inject_write(alone.me, b"", alone.remote())
            .expect("write");
    }
    // A posted receive keeps it.
    let into = buffer(8);
    for i in 0..8 {
        alone.ep.recv(&into, i).expect("recv");
    }
    is_refused(alone.try_complete(0), Errno::EAGAIN);
    alone.ep.cancel(3).expect("cancel");
    is_refused(alone.try_complete(0), Errno::EAGAIN);
    assert_eq!(alone.read_error(), Some(3));
    alone.complete(99);
}

fn errors_take_room_too() {
    let alone = Alone::with_cq(|cq| cq.entries(4));
    alone.complete(1);
    for context in 2..5 {
        alone.fail(context);
    }
    is_refused(alone.try_complete(5), Errno::EAGAIN);
    let StatValues::Cq {
        size,
        queued,
        errors,
        reserved,
        overruns,
        ..
    } = values(&alone.cq)
    else {
        panic!("figures of a CQ");
    };
    assert_eq!((size, queued, errors, reserved, overruns), (4, 1, 3, 0, 0));
    assert_eq!(alone.read_error(), Some(2));
    alone.complete(5);
    assert_eq!(alone.read_error(), Some(3));
    assert_eq!(alone.read_error(), Some(4));
    assert_eq!(alone.read_error(), None);
    assert_eq!(alone.read(9), [1, 5]);
}

fn errors_are_read_first_and_in_order() {
    let alone = Alone::new();
    alone.complete(1);
    for context in [10, 11, 12] {
        alone.fail(context);
        alone.complete(context + 10);
    }
    for context in [10, 11, 12] {
        for _ in 0..2 {
            let read = alone.cq.read(&mut [Entry::default(); 8]);
            is_refused(read, Errno::KFI_EAVAIL);
        }
        // A read that would sleep gets the same.
        let read = alone.cq.sread(&mut [Entry::default()], SOON);
        is_refused(read, Errno::KFI_EAVAIL);
        let entry = alone.cq.readerr().expect("readerr").expect("an error");
        assert_eq!((entry.op_context, entry.err), (context, Errno::EACCES));
        assert_eq!(entry.flags, WROTE);
    }
    assert_eq!(alone.read_error(), None);
    assert_eq!(alone.read(8), [1, 20, 21, 22]);
}

fn a_read_into_a_short_buffer_takes_no_entry() {
    let file = File::open();
    let fabric = file.fabric();
    let domain = file.domain(fabric);
    let party = file.party(domain, Call::sized());
    let pages = Pages::new(1);
    for i in 0..5 {
        let op = abi::kfabric_op {
            opcode: abi::KFABRIC_OP_SEND,
            flags: abi::KFI_INJECT | abi::KFI_COMPLETION,
            context: i,
            peer: party.me,
            ..Default::default()
        };
        file.post_one(party.ep, op).expect("send");
    }
    let read = |buf, src_addrs, count| {
        file.call(abi::kfabric_cq_read {
            cq: party.cq,
            buf,
            src_addrs,
            count,
            ..Call::sized()
        })
        .map(|arg| arg.count)
    };
    let context = |at: usize| {
        let word = pages.read(at, 8);
        u64::from_ne_bytes(word.try_into().expect("8 bytes"))
    };
    // Not one of them: an error. Two of them: two. The rest is still there.
    refused(read(pages.before_hole(47), 0, 4), Errno::EFAULT);
    assert_eq!(read(pages.before_hole(100), 0, 4), Ok(2));
    assert_eq!((context(4096 - 100), context(4096 - 52)), (0, 1));
    // The same for the sources.
    assert_eq!(read(pages.addr(), pages.before_hole(8), 2), Ok(1));
    assert_eq!(context(0), 2);
    refused(read(pages.addr(), pages.hole(), 2), Errno::EFAULT);
    assert_eq!(read(pages.addr(), 0, 4), Ok(2));
    assert_eq!((context(0), context(48)), (3, 4));
    refused(read(pages.addr(), 0, 4), Errno::EAGAIN);
}

fn losses_of_entries_without_an_operation_are_reported_once() {
    let (a, to_b, b, _) = pair_with(&Options::sized(0, 0, 4));
    let into = buffer(1000);
    b.ep.post_one(&Op::multi_recv(&into).context(5))
        .expect("multi");
    // Room for three parts beside the buffer itself.
    for i in 0..6u8 {
        a.ep.inject(to_b, &[i; 10]).expect("inject");
    }
    let mut entries = [Entry::default(); 8];
    assert_eq!(b.cq.read(&mut entries).expect("read"), 3);
    for (i, entry) in entries[..3].iter().enumerate() {
        assert_eq!(
            (entry.op_context, entry.buf),
            (5, into.addr() + 10 * i as u64)
        );
    }
    is_refused(b.cq.read(&mut entries), Errno::KFI_EOVERRUN);
    b.expect_nothing();
    // The messages themselves are not lost.
    assert_eq!(into.to_vec(50..60), [5; 10]);
    // The next loss is reported again.
    for i in 0..4u8 {
        a.ep.inject(to_b, &[i; 10]).expect("inject");
    }
    assert_eq!(b.cq.read(&mut entries).expect("read"), 3);
    is_refused(b.cq.read(&mut entries), Errno::KFI_EOVERRUN);
    b.expect_nothing();
    let lost = crate::host::device()
        .stats(kfi::StatClass::Cq)
        .map(|stat| stat.expect("stat").values)
        .map(|values| match values {
            StatValues::Cq { overruns, .. } => overruns,
            _ => panic!("figures of a CQ"),
        })
        .sum::<u64>();
    assert_eq!(lost, 4);
}

fn remote_cq_data_without_room_are_lost() {
    let a = Alone::new();
    let b = Alone::with_cq(|cq| cq.entries(2));
    let to_b = a.av.insert_one(b.ep.name().expect("name")).expect("insert");
    for data in 0..5 {
        let op = Op::inject_write(to_b, b"12345678", b.remote()).data(data);
        a.ep.post_one(&op).expect("write");
    }
    let mut entries = [Entry::default(); 8];
    assert_eq!(b.cq.read(&mut entries).expect("read"), 2);
    let flags = CompFlags::RMA | CompFlags::REMOTE_WRITE | CompFlags::REMOTE_CQ_DATA;
    for (data, entry) in (0..).zip(&entries[..2]) {
        assert_eq!((entry.flags, entry.data, entry.len), (flags, data, 0));
    }
    is_refused(b.cq.read(&mut entries), Errno::KFI_EOVERRUN);
    assert_eq!(b.cq.read(&mut entries).expect("read"), 0);
}

/// A connected endpoint takes a write with CQ data only when its CQ has room for the entry.
fn data_on_a_connection_waits_for_room() {
    let options = |cq_entries| Options {
        ep_type: EpType::Msg,
        caps: Caps::MSG | Caps::RMA,
        cq_entries,
        ..Options::default()
    };
    let (a, b) = (Host::with(&options(256)), Host::with(&options(2)));
    connect(&a, &b);
    let mr = open_region(&b, &buffer(8), 1);
    let ours = buffer(8);
    for data in 0..5 {
        let op = Op::write(FiAddr::UNSPEC, &ours, mr.remote(0))
            .context(data)
            .flags(OpFlags::REMOTE_CQ_DATA)
            .data(data);
        a.ep.post_one(&op).expect("writedata");
    }
    for data in 0..2 {
        a.expect(WROTE, data);
    }
    let third = a.cq.next(Duration::from_millis(200)).expect("next");
    assert_eq!(third, None, "there is no room for it");
    let flags = CompFlags::RMA | CompFlags::REMOTE_WRITE | CompFlags::REMOTE_CQ_DATA;
    for data in 0..5 {
        let entry = b.completion();
        assert_eq!((entry.flags, entry.data), (flags, data));
    }
    for data in 2..5 {
        a.expect(WROTE, data);
    }
    b.expect_nothing();
}

fn sources_are_given_where_known() {
    let (a, to_b, b, to_a) = pair_with(&Options::default());
    let stranger = Host::new();
    let from_stranger = stranger.meet(&b);
    let into = buffer(8);
    for i in 0..2 {
        b.ep.recv(&into, i).expect("recv");
    }
    a.ep.inject(to_b, b"known").expect("inject");
    stranger
        .ep
        .inject(from_stranger, b"unknown")
        .expect("inject");
    let mut entries = [Entry::default(); 4];
    let mut sources = [FiAddr(99); 4];
    assert_eq!(
        b.cq.readfrom(&mut entries, &mut sources).expect("readfrom"),
        2
    );
    assert_eq!(sources, [to_a, FiAddr::NOTAVAIL, FiAddr(99), FiAddr(99)]);
    // A transmit has no source.
    a.ep.send(to_b, &into, 1).expect("send");
    assert_eq!(
        a.cq.sreadfrom(&mut entries, &mut sources, SOON)
            .expect("read"),
        1
    );
    assert_eq!(sources[0], FiAddr::NOTAVAIL);
    // An endpoint without the capability does not give the source.
    let (a, to_b, b, _) = pair_with(&Options::of(EpType::Rdm, Caps::MSG));
    b.ep.recv(&into, 0).expect("recv");
    a.ep.inject(to_b, b"known").expect("inject");
    assert_eq!(
        b.cq.readfrom(&mut entries[..1], &mut sources[..1])
            .expect("readfrom"),
        1
    );
    assert_eq!(sources[0], FiAddr::NOTAVAIL);
    // The error of a receive names its source as well.
    let (a, to_b, b, to_a) = pair_with(&Options::default());
    let short = buffer(1);
    b.ep.recv(&short, 0).expect("recv");
    a.ep.inject(to_b, b"longer").expect("inject");
    let entry = b.cq.readerr().expect("readerr").expect("an error");
    assert_eq!((entry.err, entry.src_addr), (Errno::KFI_ETRUNC, to_a));
}

fn a_bound_cq_stays_open() {
    let alone = Alone::new();
    is_refused(alone.cq.clone().close(), Errno::EBUSY);
    // The refused calls had no effect.
    alone.complete(4);
    assert_eq!(alone.read(2), [4]);
    let Alone { cq, ep, .. } = alone;
    ep.close().expect("close");
    cq.close().expect("close");
    // Also one that is bound to an endpoint that is not enabled.
    let (_, domain) = domain();
    let (cq, ep) = (
        domain.cq().open().expect("cq"),
        domain.endpoint().open().expect("ep"),
    );
    ep.bind_cq(&cq, kfi::CqBind::RECV).expect("bind");
    is_refused(cq.clone().close(), Errno::EBUSY);
    ep.close().expect("close");
    cq.close().expect("close");
}

/// fi_cq(3): completions that remain on a CQ that is closed are lost.
fn a_cq_closes_with_entries_in_it() {
    let alone = Alone::new();
    alone.complete_all(0..3);
    alone.fail(9);
    let Alone { domain, cq, ep, .. } = alone;
    ep.close().expect("close");
    cq.close().expect("entries do not keep it open");
    // They go to no other CQ.
    let fresh = domain.cq().entries(64).open().expect("cq");
    assert_eq!(fresh.read(&mut [Entry::default(); 8]).expect("read"), 0);
    assert!(fresh.readerr().expect("readerr").is_none());
}

/// fi_cq(3): signaling_vector is a hint, with FI_AFFINITY only.
fn an_affinity_is_only_a_hint() {
    for cpu in [0, 1, -1, i32::MAX] {
        let alone = Alone::with_cq(|cq| cq.affinity(cpu));
        alone.complete(1);
        assert_eq!(alone.read(2), [1], "CPU {cpu}");
    }
    let file = File::open();
    let domain = file.domain(file.fabric());
    for signaling_vector in [1, -1, i32::MAX] {
        file.make(abi::kfabric_cq_open {
            domain,
            signaling_vector,
            ..Call::sized()
        });
    }
}

fn refusals_have_a_text() {
    let alone = Alone::new();
    // One past the last, numbers of the wire, and one without a meaning.
    let texts: Vec<String> = [0, 257, 261, 266, 268, 1]
        .into_iter()
        .map(|number| alone.cq.strerror(number).expect("strerror"))
        .collect();
    assert!(texts.iter().all(|text| text.len() > 4), "{texts:?}");
    assert_eq!(texts.iter().collect::<HashSet<_>>().len(), 6, "{texts:?}");
    assert_eq!(alone.cq.strerror(u32::MAX).expect("strerror"), texts[5]);
}

fn everything_completes_once() {
    const POSTERS: u64 = 3;
    const EACH: u64 = 2000;
    let alone = Arc::new(Alone::with_cq(|cq| cq.entries(32)));
    let left = Arc::new(AtomicU64::new(POSTERS * EACH));
    let posters: Vec<_> = (0..POSTERS)
        .map(|poster| {
            let alone = alone.clone();
            Sleeper::new(move || {
                for i in 0..EACH {
                    let context = poster * EACH + i;
                    loop {
                        match alone.try_complete(context) {
                            Ok(()) => break,
                            Err(error) if error.is_again() => std::thread::yield_now(),
                            Err(error) => panic!("{error}"),
                        }
                    }
                }
            })
        })
        .collect();
    let readers: Vec<_> = (0..3usize)
        .map(|reader| {
            let (alone, left) = (alone.clone(), left.clone());
            Sleeper::new(move || {
                let mut seen = Vec::new();
                let mut entries = [Entry::default(); 7];
                while left.load(SeqCst) > 0 {
                    let count = alone
                        .cq
                        .sread(&mut entries[..2 * reader + 1], Duration::from_millis(20))
                        .expect("sread");
                    seen.extend(entries[..count].iter().map(|entry| entry.op_context));
                    left.fetch_sub(count as u64, SeqCst);
                }
                seen
            })
        })
        .collect();
    posters.into_iter().for_each(Sleeper::join);
    let mut seen: Vec<u64> = readers.into_iter().flat_map(Sleeper::join).collect();
    seen.sort_unstable();
    assert!(seen.iter().copied().eq(0..POSTERS * EACH));
    assert!(alone.read(1).is_empty());
}

/// An endpoint on `domain` that completes into `cq`, and its own address.
fn sharing(domain: &Domain, cq: &Cq) -> (Endpoint, Av, FiAddr) {
    let ep = domain.endpoint().open().expect("endpoint");
    let av = domain.av().open().expect("av");
    let both = BOTH;
    ep.bind_cq(cq, both).expect("bind");
    ep.bind_av(&av).expect("bind");
    ep.enable().expect("enable");
    let me = av.insert_one(ep.name().expect("name")).expect("insert");
    (ep, av, me)
}

/// "size: specifies the minimum size of a completion queue", whatever the number of endpoints: one
/// that is refused by a full queue has lost nothing, and goes on when another one's entries were
/// read.
fn endpoints_that_share_a_cq_share_its_room() {
    const EACH: u64 = 300;
    let (_, domain) = domain();
    let cq = domain.cq().entries(8).format(CqFormat::Tagged).open();
    let cq = cq.expect("cq");
    let endpoints = [(); 3].map(|()| sharing(&domain, &cq));
    let mut told = vec![0; 3 * EACH as usize];
    let mut refused = 0;
    std::thread::scope(|scope| {
        let threads: Vec<_> = (0..)
            .zip(&endpoints)
            .map(|(number, (ep, _, me))| {
                scope.spawn(move || {
                    let buffer = Buffer::new(8).expect("buffer");
                    let mut refused = 0;
                    for i in 0..EACH {
                        let context = number * EACH + i;
                        // A message to itself: its send makes no entry, its receive does.
                        while let Err(error) = ep.recv(&buffer, context) {
                            assert!(error.is_again(), "{error}");
                            refused += 1;
                            std::thread::yield_now();
                        }
                        ep.inject(*me, b"message").expect("it needs no room");
                    }
                    refused
                })
            })
            .collect();
        let mut entries = [Entry::default(); 3];
        until("all completions", || {
            let count = cq.read(&mut entries).expect("read");
            for entry in &entries[..count] {
                told[entry.op_context as usize] += 1;
            }
            told.iter().sum::<u64>() == 3 * EACH
        });
        for thread in threads {
            refused += thread.join().expect("a thread");
        }
    });
    assert!(told.iter().all(|times| *times == 1));
    assert!(refused > 0, "the queue was never full");
    let StatValues::Cq {
        queued, reserved, ..
    } = values(&cq)
    else {
        panic!("figures of a CQ");
    };
    assert_eq!((queued, reserved), (0, 0));
}

/// Operations that a close drops make no entries, and keep no room for them.
fn a_closed_endpoint_gives_its_room_back(way: Way) {
    let (a, to_b, b) = way.pair_with(&Options::sized(0, 0, 16));
    let (from, into) = (buffer(100_000), buffer(8));
    for context in 0..10 {
        a.ep.recv(&into, context).expect("recv");
    }
    // These wait for receives.
    if way.has_rma() {
        for context in 10..14 {
            a.ep.send(to_b, &from, context).expect("send");
        }
    }
    let Host { domain, cq, ep, .. } = a;
    ep.close().expect("close");
    drop(b);
    // If this host was two hosts, the next endpoint is on the same one.
    let (other, _av, me) = sharing(&domain, &cq);
    for context in 100..116 {
        other.recv(&into, context).expect("all the room");
    }
    is_refused(other.recv(&into, 0), Errno::EAGAIN);
    for _ in 0..16 {
        other.inject(me, b"message").expect("inject");
    }
    let mut entries = [Entry::default(); 32];
    assert_eq!(cq.read(&mut entries).expect("read"), 16);
    assert!(
        (100..)
            .zip(&entries[..16])
            .all(|(context, entry)| entry.op_context == context)
    );
    assert!(cq.readerr().expect("readerr").is_none());
}
