// SPDX-License-Identifier: GPL-2.0
//! Event queues: events that a program writes, and those of regions and address vectors.

use crate::{
    harness::tests,
    host::{LINK, SOON, device, domain, errno},
    raw::{File, addr_of, addr_of_mut, arg, in_ms, ipv4, refused, with},
    threads::Sleeper,
};
use kfi::{
    Access, AvKind, Buffer, Domain, Eq, Errno, EventEntry, EventKind, Fabric, Mr, Wait, abi,
};
use std::{net::SocketAddr, time::Duration};

tests![
    events_are_read_as_they_were_written,
    events_have_any_length_up_to_the_limit,
    a_peek_leaves_the_event,
    a_full_queue_refuses_writers,
    a_reader_sleeps_until_there_is_an_event,
    registrations_report_with_the_flag,
    registrations_without_the_flag_make_no_event,
    a_close_removes_the_events_of_a_region,
    losses_are_reported_once,
    insertions_report_events,
    failed_insertions_are_reported_first,
    a_bound_eq_stays_open,
];

const NOW: Duration = Duration::ZERO;

fn queue(entries: u32) -> (Fabric, Eq) {
    let fabric = device().fabric().expect("fabric");
    let eq = fabric
        .eq()
        .entries(entries)
        .wait(Wait::Queue)
        .writable()
        .open()
        .expect("eq");
    (fabric, eq)
}

/// The next event, which must be there.
#[track_caller]
fn next(eq: &Eq) -> (EventKind, Vec<u8>) {
    let event = eq.read(NOW).expect("read").expect("an event");
    (event.kind, event.data)
}

/// The next event, which must be there and be one that the module made.
#[track_caller]
fn next_entry(eq: &Eq) -> (EventKind, EventEntry) {
    let event = eq.read(NOW).expect("read").expect("an event");
    assert_eq!(event.data.len(), size_of::<abi::kfabric_eq_entry>());
    (event.kind, event.entry().expect("an entry"))
}

#[track_caller]
fn nothing(eq: &Eq) {
    assert_eq!(eq.read(NOW).expect("read"), None);
}

fn events_are_read_as_they_were_written() {
    let (_fabric, eq) = queue(0);
    nothing(&eq);
    let all = [
        (EventKind::Notify, b"one".to_vec()),
        (EventKind::Shutdown, vec![]),
        (EventKind::MrComplete, vec![7; 24]),
        (
            EventKind::from_raw(0xffff_ffff),
            b"a kind of the program's own".to_vec(),
        ),
    ];
    for (kind, data) in &all {
        eq.write(*kind, data).expect("write");
    }
    for event in all {
        assert_eq!(next(&eq), event);
    }
    nothing(&eq);
}

fn events_have_any_length_up_to_the_limit() {
    let (_fabric, eq) = queue(8);
    for len in [0, 1, 7, 8, 319, 320] {
        let data = crate::host::pattern(len, len as u64);
        eq.write(EventKind::Notify, &data).expect("write");
        assert_eq!(next(&eq).1, data);
    }
    let write = eq.write(EventKind::Notify, &[0; 321]);
    assert_eq!(errno(write), Some(Errno::EINVAL));
    nothing(&eq);
}

fn a_peek_leaves_the_event() {
    let (_fabric, eq) = queue(4);
    assert_eq!(eq.peek(NOW).expect("peek"), None);
    eq.write(EventKind::Notify, b"first").expect("write");
    eq.write(EventKind::Notify, b"second").expect("write");
    for _ in 0..3 {
        let event = eq.peek(NOW).expect("peek").expect("an event");
        assert_eq!(event.data, b"first");
    }
    assert_eq!(next(&eq).1, b"first");
    // Also one that sleeps for it.
    let peeked = eq.peek(SOON).expect("peek").expect("an event");
    assert_eq!(peeked.data, b"second");
    assert_eq!(next(&eq).1, b"second");
}

fn a_full_queue_refuses_writers() {
    let (_fabric, eq) = queue(3);
    for round in 0..5u8 {
        for i in 0..3 {
            eq.write(EventKind::Notify, &[round, i]).expect("write");
        }
        let write = eq.write(EventKind::Notify, &[9, 9]);
        assert_eq!(errno(write), Some(Errno::EAGAIN));
        assert_eq!(next(&eq).1, [round, 0]);
        eq.write(EventKind::Notify, &[round, 3]).expect("write");
        for i in 1..4 {
            assert_eq!(next(&eq).1, [round, i]);
        }
    }
    nothing(&eq);
    let fabric = device().fabric().expect("fabric");
    assert!(fabric.eq().entries(4096).open().is_ok());
    assert_eq!(errno(fabric.eq().entries(4097).open()), Some(Errno::EINVAL));
}

fn a_reader_sleeps_until_there_is_an_event() {
    let (_fabric, eq) = queue(8);
    let readers: Vec<_> = (0..3)
        .map(|_| {
            let eq = eq.clone();
            Sleeper::asleep(move || eq.read(SOON).expect("read").expect("an event").data)
        })
        .collect();
    for i in 0..3 {
        eq.write(EventKind::Notify, &[i]).expect("write");
    }
    let mut got: Vec<_> = readers.into_iter().map(Sleeper::end).collect();
    got.sort_unstable();
    assert_eq!(got, [[0], [1], [2]]);
    nothing(&eq);
}

/// A domain whose registrations report to `eq`.
fn reporting(fabric: &Fabric, eq: &Eq) -> Domain {
    let domain = fabric.domain(LINK).open().expect("domain");
    domain.bind_eq(eq, true).expect("bind eq");
    domain
}

fn register(domain: &Domain, context: u64) -> Mr {
    domain
        .mr(&Buffer::new(64).expect("buffer"))
        .access(Access::REMOTE_READ)
        .requested_key(context)
        .context(context)
        .open()
        .expect("mr")
}

fn registrations_report_with_the_flag() {
    let (fabric, eq) = queue(8);
    let domain = reporting(&fabric, &eq);
    let regions = [5, 6].map(|context| register(&domain, context));
    for (region, context) in regions.iter().zip([5, 6]) {
        let entry = EventEntry {
            handle: region.handle(),
            context,
            data: 0,
        };
        assert_eq!(next_entry(&eq), (EventKind::MrComplete, entry));
    }
    nothing(&eq);
    // Only the call reports a registration that fails.
    let taken = domain
        .mr(&Buffer::new(64).expect("buffer"))
        .access(Access::REMOTE_READ)
        .requested_key(5)
        .open();
    assert_eq!(errno(taken), Some(Errno::KFI_ENOKEY));
    nothing(&eq);
    // A program's own events and those of the module are in one queue.
    eq.write(EventKind::Notify, b"before").expect("write");
    let _region = register(&domain, 7);
    eq.write(EventKind::Notify, b"after").expect("write");
    assert_eq!(next(&eq).1, b"before");
    assert_eq!(next_entry(&eq).1.context, 7);
    assert_eq!(next(&eq).1, b"after");
}

fn registrations_without_the_flag_make_no_event() {
    let (fabric, eq) = queue(8);
    let domain = fabric.domain(LINK).open().expect("domain");
    domain.bind_eq(&eq, false).expect("bind eq");
    let _region = register(&domain, 1);
    nothing(&eq);
}

fn a_close_removes_the_events_of_a_region() {
    let (fabric, eq) = queue(8);
    let domain = reporting(&fabric, &eq);
    let regions = [5, 6].map(|context| register(&domain, context));
    eq.write(EventKind::Notify, b"mine").expect("write");
    let av = domain.av().events().open().expect("av");
    av.bind_eq(&eq).expect("bind eq");
    av.insert_with_context(&addresses(2), 77).expect("insert");
    let [first, second] = regions;
    first.close().expect("close");
    av.close().expect("close");
    assert_eq!(next_entry(&eq).1.handle, second.handle());
    assert_eq!(next(&eq).1, b"mine");
    // The events of an address vector stay.
    assert_eq!(next_entry(&eq).1.context, 77);
    nothing(&eq);
}

fn losses_are_reported_once() {
    let (fabric, eq) = queue(2);
    let domain = reporting(&fabric, &eq);
    let _regions: Vec<Mr> = (0..5).map(|context| register(&domain, context)).collect();
    for context in 0..2 {
        assert_eq!(next_entry(&eq).1.context, context);
    }
    // A peek leaves it unreported.
    for _ in 0..2 {
        assert_eq!(errno(eq.peek(NOW)), Some(Errno::KFI_EOVERRUN));
    }
    assert_eq!(errno(eq.read(NOW)), Some(Errno::KFI_EOVERRUN));
    nothing(&eq);
    // The next loss, to one who sleeps... which a loss cannot find, since the queue is full then.
    let _more: Vec<Mr> = (10..13).map(|context| register(&domain, context)).collect();
    for context in 10..12 {
        let event = eq.read(SOON).expect("read").expect("an event");
        assert_eq!(event.entry().expect("entry").context, context);
    }
    assert_eq!(errno(eq.read(SOON)), Some(Errno::KFI_EOVERRUN));
    nothing(&eq);
}

fn addresses(count: u16) -> Vec<SocketAddr> {
    (1..=count)
        .map(|port| SocketAddr::from(([10, 0, 0, 1], port)))
        .collect()
}

fn insertions_report_events() {
    let (fabric, eq) = queue(8);
    let domain = fabric.domain(LINK).open().expect("domain");
    let av = domain
        .av()
        .kind(AvKind::Table)
        .events()
        .context(3)
        .open()
        .expect("av");
    av.bind_eq(&eq).expect("bind eq");
    let fi_addrs = av.insert_with_context(&addresses(20), 77).expect("insert");
    let entry = EventEntry {
        handle: av.handle(),
        context: 77,
        data: 20,
    };
    assert_eq!(next_entry(&eq), (EventKind::AvComplete, entry));
    nothing(&eq);
    // They are there.
    for (fi_addr, addr) in fi_addrs.iter().zip(addresses(20)) {
        assert_eq!(av.lookup(*fi_addr).expect("lookup"), addr);
    }
    av.insertsvc("10.0.0.2", "9").expect("insertsvc");
    let (kind, entry) = next_entry(&eq);
    assert_eq!(
        (kind, entry.context, entry.data),
        (EventKind::AvComplete, 0, 1)
    );
    // An AV without KFI_EVENT makes no events, bound or not.
    let quiet = domain.av().open().expect("av");
    quiet.bind_eq(&eq).expect("bind eq");
    quiet.insert(&addresses(2)).expect("insert");
    nothing(&eq);
}

fn failed_insertions_are_reported_first() {
    let file = File::open();
    let fabric = file.fabric();
    let (domain, eq) = (file.domain(fabric), file.eq(fabric));
    let av = file.make(arg!(kfabric_av_open:
        domain, type_: abi::KFI_AV_TABLE, flags: abi::KFI_EVENT
    ));
    file.bind(av, eq, 0).expect("bind");
    let bad = with!(ipv4([10, 0, 0, 9], 9); family: 77);
    let addrs = [ipv4([10, 0, 0, 1], 1), bad, ipv4([10, 0, 0, 2], 2), bad];
    let mut fi_addrs = [0u64; 4];
    let insert = file
        .call(arg!(kfabric_av_insert:
            av, addrs: addr_of(&addrs), fi_addrs: addr_of_mut(&mut fi_addrs), context: 5, count: 4
        ))
        .expect("insert");
    assert_eq!(insert.inserted, 0, "the event tells");
    assert_eq!(
        fi_addrs,
        [0, abi::KFI_ADDR_NOTAVAIL, 1, abi::KFI_ADDR_NOTAVAIL]
    );
    let mut entry = abi::kfabric_eq_entry::default();
    let mut read = |flags, deadline| {
        let result = file.call(arg!(kfabric_eq_read:
            eq, flags, deadline, buf: addr_of_mut(&mut entry), len: 24
        ));
        result.map(|arg| (arg.event, entry.handle, entry.context, entry.data))
    };
    let readerr = |flags| {
        file.call(arg!(kfabric_eq_readerr: eq, flags))
            .map(|arg| (arg.handle, arg.err, arg.context, arg.data))
    };
    let invalid = Errno::EINVAL.raw() as u32;
    for index in [1, 3] {
        for deadline in [0, in_ms(1000)] {
            refused(read(0, deadline), Errno::KFI_EAVAIL);
            refused(read(abi::KFI_PEEK, deadline), Errno::KFI_EAVAIL);
        }
        // There are no private data, so the address for them is not used.
        let nowhere = file.call(arg!(kfabric_eq_readerr:
            eq, flags: abi::KFI_PEEK, err_data: 8, err_data_size: 8
        ));
        assert_eq!(nowhere.map(|error| error.err_data_size), Ok(0));
        for flags in [abi::KFI_PEEK, abi::KFI_PEEK, 0] {
            assert_eq!(readerr(flags), Ok((av, invalid, 5, index)));
        }
    }
    refused(readerr(0), Errno::EAGAIN);
    refused(readerr(1), Errno::EINVAL);
    assert_eq!(read(0, 0), Ok((abi::KFI_AV_COMPLETE, av, 5, 2)));
    refused(read(0, 0), Errno::EAGAIN);
    // If all of them fail, the call has still succeeded: the events have the errors.
    let insert = file.call(arg!(kfabric_av_insert:
        av, addrs: addr_of(&bad), fi_addrs: addr_of_mut(&mut fi_addrs), context: 6, count: 1
    ));
    assert!(insert.is_ok());
    assert_eq!(readerr(0), Ok((av, invalid, 6, 0)));
    assert_eq!(read(0, 0), Ok((abi::KFI_AV_COMPLETE, av, 6, 0)));
}

fn a_bound_eq_stays_open() {
    let (fabric, domain) = domain();
    let busy = |eq: &Eq| assert_eq!(errno(eq.clone().close()), Some(Errno::EBUSY));
    let eq = fabric.eq().open().expect("eq");
    let av = domain.av().open().expect("av");
    av.bind_eq(&eq).expect("bind eq");
    busy(&eq);
    let ep = domain.endpoint().open().expect("ep");
    ep.bind_eq(&eq).expect("bind eq");
    av.close().expect("close");
    busy(&eq);
    domain.bind_eq(&eq, true).expect("bind eq");
    ep.close().expect("close");
    busy(&eq);
    domain.close().expect("close");
    eq.close().expect("close");
}
