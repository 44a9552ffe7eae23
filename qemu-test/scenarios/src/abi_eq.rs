// SPDX-License-Identifier: GPL-2.0
//! Event queues: every refusal, and that a refused read takes nothing.

use crate::{
    harness::tests,
    raw::{File, Pages, addr_of, addr_of_mut, arg, bytes_of, in_ms, now, refused, text, with},
};
use kfi::{Errno, abi};

tests![
    writes_to_an_eq_are_checked,
    a_full_eq_refuses_events,
    an_empty_eq_gives_no_events,
    an_event_that_does_not_fit_stays,
    an_error_event_comes_first,
    lost_events_are_reported_once,
    invalid_waits_on_an_eq_are_refused,
];

/// A file, a fabric and a domain.
fn domain() -> (File, u32, u32) {
    let file = File::open();
    let fabric = file.fabric();
    let domain = file.domain(fabric);
    (file, fabric, domain)
}

/// Writes `len` bytes of 5 as event `event`.
fn eq_write(file: &File, eq: u32, event: u32, len: u32) -> Result<(), Errno> {
    let data = [5u8; 512];
    file.call(arg!(kfabric_eq_write: eq, buf: addr_of(&data), len, event))
        .map(|_| ())
}

/// Reads an event, whatever its length: its number and length.
fn eq_read(file: &File, eq: u32, flags: u64, deadline: u64) -> Result<(u32, u32), Errno> {
    let mut data = [0u8; abi::KFABRIC_MAX_EVENT as usize];
    file.call(arg!(kfabric_eq_read:
        eq, deadline, flags, buf: addr_of_mut(&mut data), len: abi::KFABRIC_MAX_EVENT
    ))
    .map(|arg| (arg.event, arg.len))
}

fn eq_readerr(file: &File, eq: u32, flags: u64) -> Result<abi::kfabric_eq_readerr, Errno> {
    file.call(arg!(kfabric_eq_readerr: eq, flags))
}

fn writes_to_an_eq_are_checked() {
    let file = File::open();
    let fabric = file.fabric();
    let eq = file.make(arg!(kfabric_eq_open: fabric));
    refused(eq_write(&file, eq, 1, 8), Errno::EINVAL);
    refused(eq_read(&file, eq, 0, 0), Errno::EAGAIN);
    let writable = file.eq(fabric);
    for len in [abi::KFABRIC_MAX_EVENT + 1, u32::MAX] {
        refused(eq_write(&file, writable, 1, len), Errno::EINVAL);
    }
    for len in [0, abi::KFABRIC_MAX_EVENT] {
        eq_write(&file, writable, 7, len).expect("write");
        assert_eq!(eq_read(&file, writable, 0, 0), Ok((7, len)));
    }
    file.close_all(&[eq, writable, fabric]);
}

fn a_full_eq_refuses_events() {
    let file = File::open();
    let fabric = file.fabric();
    let eq = file.make(arg!(kfabric_eq_open: fabric, entries: 2, flags: abi::KFI_WRITE));
    for event in 1..=2 {
        eq_write(&file, eq, event, 4).expect("write");
    }
    refused(eq_write(&file, eq, 3, 4), Errno::EAGAIN);
    assert_eq!(eq_read(&file, eq, 0, 0), Ok((1, 4)));
    eq_write(&file, eq, 3, 4).expect("there is room again");
    for event in 2..=3 {
        assert_eq!(eq_read(&file, eq, 0, 0), Ok((event, 4)));
    }
    // The program was informed, so no event was lost.
    refused(eq_read(&file, eq, 0, 0), Errno::EAGAIN);
    file.close_all(&[eq, fabric]);
}

fn an_empty_eq_gives_no_events() {
    let file = File::open();
    let fabric = file.fabric();
    let eq = file.eq(fabric);
    for flags in [0, abi::KFI_PEEK] {
        refused(eq_read(&file, eq, flags, 0), Errno::EAGAIN);
        refused(eq_read(&file, eq, flags, in_ms(0)), Errno::ETIMEDOUT);
        let deadline = in_ms(50);
        refused(eq_read(&file, eq, flags, deadline), Errno::ETIMEDOUT);
        assert!(now() >= deadline);
        refused(eq_readerr(&file, eq, flags), Errno::EAGAIN);
    }
    file.close_all(&[eq, fabric]);
}

fn an_event_that_does_not_fit_stays() {
    let file = File::open();
    let fabric = file.fabric();
    let eq = file.eq(fabric);
    eq_write(&file, eq, 9, 24).expect("write");
    let pages = Pages::new(1);
    for (len, deadline) in [(0, 0), (23, 0), (8, in_ms(1000))] {
        let mut arg = arg!(kfabric_eq_read: eq, deadline, buf: pages.addr(), len);
        assert_eq!(file.call_mut(&mut arg), Err(Errno::KFI_ETOOSMALL));
        assert_eq!(arg.len, 24, "what is needed");
    }
    assert_eq!(pages.read(0, 24), [0; 24]);
    // Nor is an event whose data cannot be copied.
    let arg = arg!(kfabric_eq_read: eq, buf: pages.before_hole(16), len: 24);
    refused(file.call(arg), Errno::EFAULT);
    let reported = Pages::new(1);
    let good = with!(arg; buf: pages.addr());
    reported.write(0, &bytes_of(&good));
    reported.protect(true);
    refused(
        file.call_raw(abi::KFABRIC_IOC_EQ_READ, reported.addr()),
        Errno::EFAULT,
    );
    assert_eq!(eq_read(&file, eq, abi::KFI_PEEK, 0), Ok((9, 24)));
    assert_eq!(eq_read(&file, eq, 0, 0), Ok((9, 24)));
    refused(eq_read(&file, eq, 0, 0), Errno::EAGAIN);
    file.close_all(&[eq, fabric]);
}

/// An AV that reports to `eq`.
fn reporting_av(file: &File, domain: u32, eq: u32) -> u32 {
    let av = file.make(arg!(kfabric_av_open:
        domain, type_: abi::KFI_AV_TABLE, flags: abi::KFI_EVENT
    ));
    file.bind(av, eq, 0).expect("bind");
    av
}

fn an_error_event_comes_first() {
    let (file, fabric, domain) = domain();
    let eq = file.eq(fabric);
    let av = reporting_av(&file, domain, eq);
    let addrs = [abi::kfabric_sockaddr::default(); 2];
    file.call(arg!(kfabric_av_insert: av, addrs: addr_of(&addrs), context: 55, count: 2))
        .expect("insert");
    for deadline in [0, in_ms(1000)] {
        refused(eq_read(&file, eq, 0, deadline), Errno::KFI_EAVAIL);
        refused(
            eq_read(&file, eq, abi::KFI_PEEK, deadline),
            Errno::KFI_EAVAIL,
        );
    }
    // The error stays if it cannot be written, and after a peek.
    let reported = Pages::new(1);
    reported.write(0, &bytes_of(&arg!(kfabric_eq_readerr: eq)));
    reported.protect(true);
    refused(
        file.call_raw(abi::KFABRIC_IOC_EQ_READERR, reported.addr()),
        Errno::EFAULT,
    );
    // There are no private data, so the address for them is not used.
    let nowhere = file.call(arg!(kfabric_eq_readerr:
        eq, flags: abi::KFI_PEEK, err_data: reported.addr(), err_data_size: 8
    ));
    assert_eq!(nowhere.map(|error| error.err_data_size), Ok(0));
    for (index, flags) in [(0, abi::KFI_PEEK), (0, 0), (1, 0)] {
        let error = eq_readerr(&file, eq, flags).expect("readerr");
        assert_eq!(
            (error.handle, error.err, error.context, error.data),
            (av, Errno::EINVAL.raw() as u32, 55, index)
        );
    }
    refused(eq_readerr(&file, eq, 0), Errno::EAGAIN);
    // Then comes the event for both.
    let (event, len) = eq_read(&file, eq, 0, 0).expect("read");
    assert_eq!((event, len), (abi::KFI_AV_COMPLETE, 24));
    file.close_all(&[av, eq, domain, fabric]);
}

fn lost_events_are_reported_once() {
    let (file, fabric, domain) = domain();
    let eq = file.make(arg!(kfabric_eq_open:
        fabric, entries: 1, wait_obj: abi::KFI_WAIT_QUEUE, flags: abi::KFI_WRITE
    ));
    let av = reporting_av(&file, domain, eq);
    for deadline in [0, in_ms(20_000)] {
        for _ in 0..3 {
            file.call(arg!(kfabric_av_insertsvc: av, node: text("10.0.0.1"), service: text("1")))
                .expect("insertsvc");
        }
        assert_eq!(eq_read(&file, eq, 0, 0), Ok((abi::KFI_AV_COMPLETE, 24)));
        // A peek leaves it.
        refused(eq_read(&file, eq, abi::KFI_PEEK, 0), Errno::KFI_EOVERRUN);
        refused(eq_read(&file, eq, 0, deadline), Errno::KFI_EOVERRUN);
        refused(eq_read(&file, eq, 0, 0), Errno::EAGAIN);
        eq_write(&file, eq, 3, 4).expect("write");
        assert_eq!(eq_read(&file, eq, 0, 0), Ok((3, 4)));
    }
    file.close_all(&[av, eq, domain, fabric]);
}

fn invalid_waits_on_an_eq_are_refused() {
    let file = File::open();
    let fabric = file.fabric();
    let wait_set = file.wait_set(fabric);
    for (wait_obj, wait_set) in [(abi::KFI_WAIT_NONE, 0), (abi::KFI_WAIT_SET, wait_set)] {
        let eq = file.make(arg!(kfabric_eq_open:
            fabric, wait_obj, wait_set, flags: abi::KFI_WRITE
        ));
        for deadline in [in_ms(1000), abi::KFABRIC_FOREVER] {
            refused(eq_read(&file, eq, 0, deadline), Errno::EINVAL);
        }
        // A deadline that has passed polls, and the call returns `ETIMEDOUT`.
        refused(eq_read(&file, eq, 0, 0), Errno::EAGAIN);
        for deadline in [1, in_ms(0)] {
            refused(eq_read(&file, eq, 0, deadline), Errno::ETIMEDOUT);
        }
        eq_write(&file, eq, 3, 4).expect("write");
        assert_eq!(eq_read(&file, eq, 0, 0), Ok((3, 4)));
        file.close_all(&[eq]);
    }
    file.close_all(&[wait_set, fabric]);
}
