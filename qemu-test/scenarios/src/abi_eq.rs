// SPDX-License-Identifier: GPL-2.0
//! Event queues: every refusal, and that a refused read takes nothing.

use crate::{
    harness::tests,
    host::SOON,
    raw::{File, PAGE, Pages, addr_of, addr_of_mut, arg, in_ms, now, refused, with},
};
use kfi::{Errno, abi};
use std::mem::offset_of;

tests![
    writes_to_an_eq_are_checked,
    an_empty_eq_gives_no_events,
    an_event_that_does_not_fit_stays,
    an_event_of_a_connection_that_does_not_fit_stays,
    invalid_waits_on_an_eq_are_refused,
];

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
    for deadline in [0, in_ms(1000)] {
        refused(file.call(with!(arg; deadline)), Errno::EFAULT);
    }
    assert_eq!(eq_read(&file, eq, abi::KFI_PEEK, 0), Ok((9, 24)));
    // No more bytes are written than the event has.
    let long = with!(arg; buf: pages.before_hole(24), len: 4000);
    let read = file.call(long).expect("read");
    assert_eq!((read.event, read.len), (9, 24));
    assert_eq!(pages.read(PAGE - 24, 24), [5; 24]);
    refused(eq_read(&file, eq, 0, 0), Errno::EAGAIN);
    file.close_all(&[eq, fabric]);
}

/// The next event of a connection with so many bytes of private data. Without room for the last
/// one it stays, and nothing is written. Returns the event's memory.
#[track_caller]
fn read_with_room(file: &File, eq: u32, event: u32, private: u32) -> Pages {
    let all = size_of::<abi::kfabric_eq_cm_entry>() as u32 + private;
    let deadline = in_ms(SOON.as_millis() as u64);
    let pages = Pages::new(1);
    pages.write(0, &[7; PAGE]);
    let mut short = arg!(kfabric_eq_read: eq, deadline, buf: pages.addr(), len: all - 1);
    assert_eq!(file.call_mut(&mut short), Err(Errno::KFI_ETOOSMALL));
    assert_eq!(short.len, all, "what is needed");
    assert!(pages.read(0, PAGE) == [7; PAGE], "nothing is written");
    let whole = arg!(kfabric_eq_read: eq, buf: pages.addr(), len: short.len);
    let read = file.call(whole).expect("an event");
    assert_eq!((read.event, read.len), (event, all));
    pages
}

fn an_event_of_a_connection_that_does_not_fit_stays() {
    let (file, fabric, domain) = File::open().and_domain();
    let (eq, asking_eq) = (file.eq(fabric), file.eq(fabric));
    let cq = file.cq(domain);
    let ep = file.ep_msg(domain, [127, 0, 0, 2], cq, eq);
    let asking = file.ep_msg(domain, [127, 0, 0, 1], cq, asking_eq);
    let pep = file.pep(fabric);
    file.bind(pep, eq, 0).expect("bind");
    file.call(arg!(kfabric_pep_listen: pep)).expect("listen");
    let (question, answer) = ([5u8; 56], [6u8; 196]);
    file.call(arg!(kfabric_ep_connect:
        ep: asking, addr: file.ep_name(pep).expect("name"), param: addr_of(&question),
        param_len: 56
    ))
    .expect("connect");
    let request = read_with_room(&file, eq, abi::KFI_CONNREQ, 56);
    let head = size_of::<abi::kfabric_eq_cm_entry>();
    assert_eq!(request.read(head, 56), question);
    let number = request.read(offset_of!(abi::kfabric_eq_cm_entry, connreq), 4);
    let connreq = u32::from_ne_bytes(number.try_into().expect("four bytes"));
    file.call(arg!(kfabric_ep_accept:
        ep, pep, connreq, param: addr_of(&answer), param_len: 196
    ))
    .expect("accept");
    let connected = read_with_room(&file, asking_eq, abi::KFI_CONNECTED, 196);
    assert_eq!(connected.read(head, 196), answer);
    read_with_room(&file, eq, abi::KFI_CONNECTED, 0);
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
    for wait_obj in [abi::KFI_WAIT_UNSPEC, abi::KFI_WAIT_QUEUE] {
        let eq = file.make(arg!(kfabric_eq_open: fabric, wait_obj));
        refused(eq_read(&file, eq, 0, in_ms(1)), Errno::ETIMEDOUT);
        file.close_all(&[eq]);
    }
    file.close_all(&[wait_set, fabric]);
}
