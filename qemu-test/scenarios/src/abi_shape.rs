// SPDX-License-Identifier: GPL-2.0
//! The rules of the interface that hold for every call: sizes, flags, reserved fields, handles,
//! addresses, command numbers.
//!
//! The tests are made from the [table](crate::abi_table). Each rule is tried on every call to which
//! it applies, in a world of its own: the call with one mistake must be refused with exactly the
//! errno of the rule and leave its argument as it was. Then the same call without the mistake must
//! succeed and all objects must close, which shows that the refusal changed nothing.

use crate::{
    abi_table::{Field, Kind, NETDEV, Row, table},
    abi_world::{Class, World},
    harness::tests,
    raw::{BAD_ADDRS, File, Netdev, PAGE, Pages, refused},
};
use kfi::{Errno, abi};

tests![
    the_table_equals_the_header => 120,
    every_call_of_the_table_succeeds => 600,
    a_structure_that_is_too_short_is_refused => 600,
    a_longer_structure_must_end_with_zeros => 600,
    reserved_fields_must_be_zero => 600,
    unknown_flags_are_refused => 600,
    unknown_handles_are_refused => 600,
    handles_of_another_class_are_refused => 600,
    invalid_socket_addresses_are_refused => 600,
    output_fields_are_ignored_on_input => 600,
    an_unmapped_argument_is_refused => 600,
    a_read_only_argument_is_refused => 600,
    unmapped_memory_is_refused => 600,
    unknown_commands_are_refused => 300,
    the_size_in_a_command_is_ignored => 600,
];

const HEADER: &str = include_str!("../../../include/uapi/kfabric.h");

/// Names of the fields of a structure of the header, in order.
fn header_fields(arg: &str) -> Vec<String> {
    let begin = format!("struct {arg} {{");
    let body = HEADER
        .split_once(&begin)
        .unwrap_or_else(|| panic!("no struct {arg}"))
        .1;
    let body = body.split_once("\n};").expect("an end").0;
    body.lines()
        .filter_map(|line| line.trim().strip_suffix(';'))
        .map(|line| {
            let name = line.rsplit([' ', '\t']).next().expect("a name");
            name.split('[').next().expect("a name").to_owned()
        })
        .collect()
}

fn the_table_equals_the_header() {
    let table = table();
    let mut known: Vec<&str> = table.iter().map(|row| row.name).collect();
    known.dedup();
    let defined: Vec<&str> = HEADER
        .lines()
        .filter_map(|line| line.strip_prefix("#define "))
        .filter_map(|rest| rest.split_whitespace().next())
        .filter(|name| name.starts_with("KFABRIC_IOC_") && *name != "KFABRIC_IOC_TYPE")
        .collect();
    let in_library: Vec<&str> = abi::CALLS.iter().map(|(name, ..)| *name).collect();
    assert_eq!(known, defined);
    assert_eq!(known, in_library);
    for row in &table {
        let fields = header_fields(row.arg);
        let names: Vec<&str> = row.fields.iter().map(|field| field.name).collect();
        assert_eq!(fields[0], "size", "{}", row.arg);
        assert_eq!(fields[1..], names, "{}", row.arg);
        let is_pointer = |field: &Field| {
            matches!(
                field.kind,
                Kind::In | Kind::InOrNull | Kind::Out | Kind::OutOrNull
            )
        };
        let pointers = row.fields.iter().any(is_pointer);
        assert!(!(pointers && row.plain), "{} is not plain", row.arg);
        // Each byte of it belongs to a field, and none is padding.
        let mut end = 4;
        for field in &row.fields {
            assert_eq!(field.offset, end, "{}.{}", row.arg, field.name);
            end += field.len;
        }
        assert_eq!(end, row.size, "{}", row.arg);
        assert!(row.v1 <= row.size, "{}", row.arg);
        assert_eq!(
            (row.request >> 16 & 0x3fff) as usize,
            row.size,
            "{}",
            row.name
        );
    }
}

/// Makes the call of `row` with `bytes`, which are right before a hole; returns them.
fn attempt(world: &World, row: &Row, bytes: &[u8]) -> (Result<(), Errno>, Vec<u8>) {
    let arg = Pages::new(2);
    let offset = 2 * PAGE - bytes.len();
    arg.write(offset, bytes);
    let result = world
        .file
        .call_raw(row.request, arg.before_hole(bytes.len()));
    (result, arg.read(offset, bytes.len()))
}

/// The call must be refused with this error, and leave its argument alone.
#[track_caller]
fn attempt_refused(world: &World, row: &Row, bytes: &[u8], errno: Errno, why: &str) {
    let (result, after) = attempt(world, row, bytes);
    assert_eq!(result, Err(errno), "{}: {why}", row.name);
    // These write results in any case.
    let always = [
        "KFABRIC_IOC_POST",
        "KFABRIC_IOC_QUEUE_WORK",
        "KFABRIC_IOC_CNTR_WAIT",
    ];
    if !always.contains(&row.name) {
        assert_eq!(after, bytes, "{}: {why}: argument changed", row.name);
    }
}

/// The call must succeed with `bytes`.
#[track_caller]
fn attempt_good(world: &World, row: &Row, bytes: &[u8], why: &str) -> Vec<u8> {
    let (result, after) = attempt(world, row, bytes);
    assert_eq!(result, Ok(()), "{}: {why}", row.name);
    (row.undo)(world, &after[..row.size]);
    after
}

/// Runs `rule` for each row in a world of its own, which must be as it was afterwards.
fn each_row(rule: impl Fn(&World, &Row, &[u8])) {
    let _netdev = Netdev::dummy(NETDEV, "");
    for row in &table() {
        let world = World::new();
        rule(&world, row, &(row.valid)(&world));
        let good = (row.valid)(&world);
        attempt_good(&world, row, &good, "after refusals");
        world.finish();
    }
}

/// Runs `rule` for each field.
fn each_field(rule: impl Fn(&World, &Row, &[u8], &Field)) {
    each_row(|world, row, good| {
        for field in &row.fields {
            rule(world, row, good, field);
        }
    });
}

/// `good` with `field` set to the bytes of `value`, in the byte order of the machine.
fn with(good: &[u8], field: &Field, value: u64) -> Vec<u8> {
    let mut bytes = good.to_vec();
    let value = value.to_ne_bytes();
    assert!(field.len <= value.len(), "{}", field.name);
    bytes[field.offset..field.offset + field.len].copy_from_slice(&value[..field.len]);
    bytes
}

fn number(good: &[u8], field: &Field) -> u64 {
    let mut value = [0; 8];
    value[..field.len].copy_from_slice(&good[field.offset..field.offset + field.len]);
    u64::from_ne_bytes(value)
}

fn with_size(good: &[u8], size: usize) -> Vec<u8> {
    let mut bytes = good.to_vec();
    bytes[..4].copy_from_slice(&(size as u32).to_ne_bytes());
    bytes
}

fn every_call_of_the_table_succeeds() {
    each_row(|_, _, _| {});
}

fn a_structure_that_is_too_short_is_refused() {
    each_row(|world, row, good| {
        for size in [0, 1, 4, 7, row.v1 - 4, row.v1 - 1] {
            let bytes = with_size(good, size);
            attempt_refused(world, row, &bytes, Errno::EINVAL, &format!("size {size}"));
        }
    });
    // The given size counts, not the length of the memory.
    let file = File::open();
    let page = Pages::new(1);
    page.write(PAGE - 4, &8u32.to_ne_bytes());
    refused(
        file.call_raw(abi::KFABRIC_IOC_NOP, page.before_hole(4)),
        Errno::EFAULT,
    );
    page.write(PAGE - 4, &4u32.to_ne_bytes());
    refused(
        file.call_raw(abi::KFABRIC_IOC_NOP, page.before_hole(4)),
        Errno::EINVAL,
    );
}

fn a_longer_structure_must_end_with_zeros() {
    each_row(|world, row, good| {
        for size in [row.size + 1, row.size + 8, PAGE] {
            let mut bytes = with_size(good, size);
            bytes.resize(size, 0);
            for wrong in [row.size, size - 1] {
                bytes[wrong] = 1;
                let why = format!("size {size}, byte {wrong}");
                attempt_refused(world, row, &bytes, Errno::E2BIG, &why);
                bytes[wrong] = 0;
            }
        }
        // No caller has structures of this length, whatever their contents.
        for size in [PAGE + 1, u32::MAX as usize] {
            let mut bytes = with_size(good, size);
            bytes.resize(PAGE + 1, 0);
            attempt_refused(world, row, &bytes, Errno::E2BIG, &format!("size {size}"));
        }
    });
    let _netdev = Netdev::dummy(NETDEV, "");
    for row in &table() {
        for size in [row.size + 1, row.size + 8, PAGE] {
            let world = World::new();
            let mut bytes = with_size(&(row.valid)(&world), size);
            bytes.resize(size, 0);
            let after = attempt_good(&world, row, &bytes, "a longer structure");
            assert_eq!(after[..4], bytes[..4], "{}: its size", row.name);
            assert_eq!(after[row.size..], bytes[row.size..], "{}", row.name);
            world.finish();
        }
    }
}

fn reserved_fields_must_be_zero() {
    each_field(|world, row, good, field| {
        if matches!(field.kind, Kind::Reserved) {
            for bit in 0..8 * field.len {
                let bytes = with(good, field, 1 << bit);
                let why = format!("{}, bit {bit}", field.name);
                attempt_refused(world, row, &bytes, Errno::EINVAL, &why);
            }
        }
    });
}

fn unknown_flags_are_refused() {
    each_field(|world, row, good, field| {
        if let Kind::Flags(known) = field.kind {
            for bit in 0..8 * field.len {
                if known & 1 << bit == 0 {
                    let bytes = with(good, field, number(good, field) | 1 << bit);
                    let why = format!("{}, bit {bit}", field.name);
                    attempt_refused(world, row, &bytes, Errno::EINVAL, &why);
                }
            }
        }
    });
}

fn unknown_handles_are_refused() {
    let other = File::open();
    let theirs = (0..300).fold(0, |_, _| other.fabric());
    each_field(|world, row, good, field| {
        let for_none = match field.kind {
            Kind::Handle(_) => Errno::EBADF,
            Kind::HandleOr(_, for_none, _) => for_none,
            _ => return,
        };
        let closed = world.file.fabric();
        world.file.close_all(&[closed]);
        for (handle, errno) in [
            (0, for_none),
            (closed, Errno::EBADF),
            (theirs, Errno::EBADF),
            (65535, Errno::EBADF),
            (65536, Errno::EBADF),
            // As many bits as a valid value has, and more.
            (world.of(Class::Domain) | 1 << 16, Errno::EBADF),
            (1 << 31, Errno::EBADF),
            (u32::MAX, Errno::EBADF),
        ] {
            let bytes = with(good, field, handle.into());
            let why = format!("{} {handle}", field.name);
            attempt_refused(world, row, &bytes, errno, &why);
        }
    });
    other.close_all(&[theirs]);
}

fn handles_of_another_class_are_refused() {
    each_field(|world, row, good, field| {
        let (classes, errno) = match field.kind {
            Kind::Handle(classes) => (classes, Errno::EBADF),
            Kind::HandleOr(classes, _, errno) => (classes, errno),
            _ => return,
        };
        for class in Class::ALL {
            if !classes.contains(&class) {
                let bytes = with(good, field, world.of(class).into());
                let why = format!("{} is a {class:?}", field.name);
                attempt_refused(world, row, &bytes, errno, &why);
            }
        }
    });
}

fn invalid_socket_addresses_are_refused() {
    each_field(|world, row, good, field| {
        if !matches!(field.kind, Kind::Addr) {
            return;
        }
        let at = |offset, len| Field {
            name: field.name,
            offset: field.offset + offset,
            len,
            kind: Kind::Value,
        };
        let (family, qpn) = (at(0, 2), at(28, 4));
        for bit in 0..32 {
            let bytes = with(good, &qpn, 1 << bit);
            attempt_refused(world, row, &bytes, Errno::EINVAL, "number of a QP");
        }
        for wrong in [1, 3, 9, 11, 99, 0xffff] {
            let bytes = with(good, &family, wrong);
            attempt_refused(
                world,
                row,
                &bytes,
                Errno::EINVAL,
                &format!("family {wrong}"),
            );
        }
    });
}

fn output_fields_are_ignored_on_input() {
    let _netdev = Netdev::dummy(NETDEV, "");
    for row in &table() {
        let world = World::new();
        let mut bytes = (row.valid)(&world);
        for field in &row.fields {
            if matches!(field.kind, Kind::Reported) {
                bytes[field.offset..field.offset + field.len].fill(0xa5);
            }
        }
        attempt_good(&world, row, &bytes, "with rubbish where it tells");
        world.finish();
    }
}

fn an_unmapped_argument_is_refused() {
    each_row(|world, row, good| {
        let hole = Pages::new(1);
        hole.write(PAGE - 4, &good[..4]);
        let others = [0, hole.hole(), hole.before_hole(2), hole.before_hole(4)];
        for addr in BAD_ADDRS.into_iter().chain(others) {
            let result = world.file.call_raw(row.request, addr);
            assert_eq!(result, Err(Errno::EFAULT), "{} at {addr:#x}", row.name);
        }
        hole.protect(false);
        let result = world.file.call_raw(row.request, hole.addr());
        assert_eq!(result, Err(Errno::EFAULT), "{} unreadable", row.name);
    });
}

fn a_read_only_argument_is_refused() {
    let _netdev = Netdev::dummy(NETDEV, "");
    for row in &table() {
        let world = World::new();
        let good = (row.valid)(&world);
        let page = Pages::new(1);
        page.write(0, &good);
        page.protect(true);
        let result = world.file.call_raw(row.request, page.addr());
        if row.tells() {
            assert_eq!(result, Err(Errno::EFAULT), "{}", row.name);
            // The call had no effect, or is repeated.
            attempt_good(&world, row, &good, "after one that could not tell");
        } else {
            assert_eq!(result, Ok(()), "{}", row.name);
            (row.undo)(&world, &good);
        }
        world.finish();
    }
}

fn unmapped_memory_is_refused() {
    each_field(|world, row, good, field| {
        let (null_is_none, written) = match field.kind {
            Kind::In => (false, false),
            Kind::InOrNull => (true, false),
            Kind::Out => (false, true),
            Kind::OutOrNull => (true, true),
            _ => return,
        };
        let pages = Pages::new(1);
        let mut addrs = BAD_ADDRS.to_vec();
        addrs.extend([pages.hole(), pages.before_hole(2)]);
        // Without errors KFI_SYNC_ERR is missing, which is another mistake.
        if !null_is_none && field.name != "errors" {
            addrs.push(0);
        }
        let refuse = |addr: u64, what: &str| {
            let bytes = with(good, field, addr);
            let why = format!("{} at {addr:#x}{what}", field.name);
            attempt_refused(world, row, &bytes, Errno::EFAULT, &why);
        };
        for addr in addrs {
            refuse(addr, "");
        }
        pages.protect(written);
        refuse(pages.addr(), ", which is protected");
    });
}

fn unknown_commands_are_refused() {
    let file = File::open();
    let arg = Pages::new(1);
    let nrs: Vec<u32> = table().iter().map(|row| row.request & 0xff).collect();
    let refused_all = |request: u32| {
        for size in [0u32, 8, 40, 0x3fff] {
            arg.write(0, &8u32.to_ne_bytes());
            let request = request & !(0x3fff << 16) | size << 16;
            let result = file.call_raw(request, arg.addr());
            assert_eq!(result, Err(Errno::ENOTTY), "{request:#x}");
            // The argument is not read.
            refused(file.call_raw(request, 0), Errno::ENOTTY);
        }
    };
    for nr in 0..=255 {
        if !nrs.contains(&nr) {
            refused_all(abi::KFABRIC_IOC_NOP & !0xff | nr);
        }
        // Types next to ours, and type 0.
        for other in [abi::KFABRIC_IOC_TYPE - 1, abi::KFABRIC_IOC_TYPE + 1, 0x3b] {
            refused_all(abi::KFABRIC_IOC_NOP & !0xffff | other << 8 | nr);
        }
    }
}

fn the_size_in_a_command_is_ignored() {
    let _netdev = Netdev::dummy(NETDEV, "");
    for row in &table() {
        for size in [0, 8, row.v1 as u32 + 8, 0x3fff] {
            let world = World::new();
            let good = (row.valid)(&world);
            let arg = Pages::new(1);
            arg.write(0, &good);
            let request = row.request & !(0x3fff << 16) | size << 16;
            let result = world.file.call_raw(request, arg.addr());
            assert_eq!(result, Ok(()), "{}: coded size {size}", row.name);
            (row.undo)(&world, &arg.read(0, row.size));
            world.finish();
        }
    }
}
