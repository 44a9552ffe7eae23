// SPDX-License-Identifier: GPL-2.0
//! Authorization keys in the structures of calls: which endpoints can have one, programs that
//! were compiled before there were keys, and the entries and hints of getinfo.

use crate::{
    harness::tests,
    host::SOON,
    raw::{File, Pages, addr_of_mut, arg, bytes_of, data, in_ms, ipv4, refused, with},
};
use kfi::{
    Errno,
    abi::{self, Call},
};

tests![
    only_reliable_datagrams_have_keys,
    a_program_with_the_first_structures_has_no_key,
    getinfo_has_the_key_of_its_hints,
    entries_have_the_size_that_the_program_knows,
    hints_have_the_size_that_the_program_knows,
];

/// The sizes of structures that do not have the key.
const EP_OPEN_V1: usize = 96;
const INFO_V1: usize = 512;
const INFO: usize = size_of::<abi::kfabric_info>();

const KEYS: [[u8; 4]; 5] = [
    [1, 0, 0, 0],
    [0, 1, 0, 0],
    [0, 0, 1, 0],
    [0, 0, 0, 1],
    [0xff; 4],
];

fn only_reliable_datagrams_have_keys() {
    let (file, fabric, domain) = File::open().and_domain();
    let open = |type_, auth_key| file.call(arg!(kfabric_ep_open: domain, type_, auth_key));
    for key in KEYS {
        for type_ in [abi::KFI_EP_MSG, abi::KFI_EP_DGRAM] {
            refused(open(type_, key), Errno::EOPNOTSUPP);
        }
        for type_ in [abi::KFI_EP_RDM, abi::KFI_EP_UNSPEC] {
            let ep = open(type_, key).expect("open").handle;
            file.close_all(&[ep]);
        }
        let sep = file.make(arg!(kfabric_sep_open: domain, auth_key: key));
        file.close_all(&[sep]);
    }
    // Those that were refused have left no object in the domain.
    file.close_all(&[domain, fabric]);
}

/// A message from `from` to `to`.
fn send(file: &File, from: &crate::raw::Party, to: abi::kfabric_sockaddr) -> Result<(), Errno> {
    let peer = file.insert(from.av, to).expect("insert");
    let pages = Pages::new(1);
    let op = data!(kfabric_op:
        opcode: abi::KFABRIC_OP_SEND, flags: abi::KFI_INJECT, buf: pages.addr(), len: 8, peer
    );
    file.post_one(from.ep, op)
}

fn a_program_with_the_first_structures_has_no_key() {
    let (file, fabric, domain) = File::open().and_domain();
    let mut arg = abi::kfabric_ep_open {
        size: EP_OPEN_V1 as u32,
        domain,
        // Behind the end of the structure.
        auth_key: [1; 4],
        ..Call::sized()
    };
    file.call_raw(abi::KFABRIC_IOC_EP_OPEN, addr_of_mut(&mut arg))
        .expect("open");
    let (ep, cq, av) = (arg.handle, file.cq(domain), file.av(domain));
    file.bind(ep, cq, abi::KFI_SEND | abi::KFI_RECV)
        .expect("bind");
    file.bind(ep, av, 0).expect("bind");
    file.enable(ep).expect("enable");
    let name = file.ep_name(ep).expect("name");
    let stranger = file.party(domain, arg!(kfabric_ep_open: auth_key: [1; 4]));
    refused(send(&file, &stranger, name), Errno::ENOTCONN);
    let friend = file.party(domain, Call::sized());
    send(&file, &friend, name).expect("send");
    let pages = Pages::new(1);
    let receive = data!(kfabric_op:
        opcode: abi::KFABRIC_OP_RECV, buf: pages.addr(), len: 8, peer: abi::KFI_ADDR_UNSPEC
    );
    file.post_one(ep, receive).expect("recv");
    let deadline = in_ms(SOON.as_millis() as u64);
    file.cq_wait(cq, deadline).expect("the message");
    file.part(&friend);
    file.part(&stranger);
    file.close_all(&[ep, cq, av, domain, fabric]);
}

/// getinfo at 127.0.0.1 with these hints. Returns the entries.
fn ask(file: &File, hints: &abi::kfabric_info) -> Result<Vec<abi::kfabric_info>, Errno> {
    let mut infos = vec![abi::kfabric_info::default(); 16];
    let hints = with!(*hints; src_addr: ipv4([127, 0, 0, 1], 0));
    let arg = file.call(arg!(kfabric_getinfo:
        hints: crate::raw::addr_of(&hints), infos: addr_of_mut(infos.as_mut_slice()),
        count: infos.len() as u32, info_size: INFO as u32
    ))?;
    infos.truncate(arg.count as usize);
    Ok(infos)
}

fn getinfo_has_the_key_of_its_hints() {
    let file = File::open();
    let with = |ep_type, auth_key_size, auth_key| {
        let hints = data!(kfabric_info: ep_type, auth_key_size, auth_key);
        ask(&file, &hints)
    };
    let unspec = abi::KFI_EP_UNSPEC;
    for entry in with(unspec, 0, [0; 4]).expect("getinfo") {
        assert_eq!((entry.auth_key_size, entry.auth_key), (0, [0; 4]));
    }
    for key in KEYS.into_iter().chain([[0; 4]]) {
        let entries = with(unspec, 4, key).expect("getinfo");
        assert!(!entries.is_empty());
        for entry in entries {
            assert_eq!(entry.ep_type, abi::KFI_EP_RDM);
            assert_eq!((entry.auth_key_size, entry.auth_key), (4, key));
            // An entry used as hints gives the same entry again.
            let again = ask(&file, &entry).expect("getinfo");
            assert!(again.iter().any(|it| bytes_of(it) == bytes_of(&entry)));
        }
        for ep_type in [abi::KFI_EP_MSG, abi::KFI_EP_DGRAM] {
            refused(with(ep_type, 4, key), Errno::ENODATA);
        }
        for size in [1, 2, 3, 5, 8, u32::MAX] {
            refused(with(abi::KFI_EP_RDM, size, key), Errno::ENODATA);
        }
    }
    // A key without its size.
    for key in KEYS {
        refused(with(abi::KFI_EP_RDM, 0, key), Errno::EINVAL);
    }
}

fn entries_have_the_size_that_the_program_knows() {
    let file = File::open();
    let pages = Pages::new(4);
    let all = ask(&file, &Default::default()).expect("getinfo");
    assert!(all.len() >= 2);
    let get = |info_size: u32| {
        pages.write(0, &[0xaa; 3 * 4096]);
        file.call(arg!(kfabric_getinfo:
            infos: pages.addr(), count: 2, info_size, flags: abi::KFI_SOURCE,
            node: crate::raw::text("127.0.0.1")
        ))
    };
    for (info_size, stride) in [
        (0, INFO_V1),
        (INFO_V1 as u32, INFO_V1),
        (INFO as u32, INFO),
        (INFO as u32 + 8, INFO + 8),
        (1000, 1000),
        (4096, 4096),
    ] {
        get(info_size).expect("getinfo");
        for (index, entry) in all[..2].iter().enumerate() {
            let mut expected = bytes_of(entry);
            // Zeros in place of what the module does not know.
            expected.resize(stride, 0);
            assert_eq!(pages.read(index * stride, stride), expected, "{info_size}");
        }
        // And nothing behind them.
        assert_eq!(pages.read(2 * stride, 64), [0xaa; 64], "{info_size}");
    }
    for info_size in [1, INFO_V1 as u32 - 1] {
        refused(get(info_size), Errno::EINVAL);
    }
    for info_size in [4097, u32::MAX] {
        refused(get(info_size), Errno::E2BIG);
    }
    assert_eq!(pages.read(0, 64), [0xaa; 64]);
}

fn hints_have_the_size_that_the_program_knows() {
    let file = File::open();
    let pages = Pages::new(2);
    let mut infos = vec![0u8; 2 * 4096];
    let hints = data!(kfabric_info: auth_key_size: 4, auth_key: [1, 2, 3, 4]);
    let mut get = |info_size: usize, last: u8| {
        let mut bytes = bytes_of(&hints);
        bytes.resize(4096, 0);
        bytes[info_size.max(INFO) - 1] |= last;
        pages.write(0, &bytes);
        file.call(arg!(kfabric_getinfo:
            hints: pages.addr(), infos: addr_of_mut(infos.as_mut_slice()), count: 1,
            info_size: info_size as u32
        ))
        .map(|arg| (arg.count, infos[INFO_V1]))
    };
    // The key is behind the end of hints of the first version.
    let (count, _) = get(INFO_V1, 0).expect("getinfo");
    let (with_key, key_size) = get(INFO, 0).expect("getinfo");
    assert!(with_key >= 1 && with_key < count, "{with_key} of {count}");
    assert_eq!(key_size, 4);
    for longer in [INFO + 8, 1000, 4096] {
        assert_eq!(get(longer, 0), Ok((with_key, 4)));
        refused(get(longer, 1), Errno::E2BIG);
    }
}
