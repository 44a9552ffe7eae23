// SPDX-License-Identifier: GPL-2.0
//! The names of the header that the library uses.
//!
//! Their values are the header's. What could go wrong is that a name is forgotten: a flag that no
//! set has, an enumerator that no enumeration has.  So the library uses each name of the header,
//! or [`NOT_USED`] has it, with the reason.

use std::{collections::HashSet, fs, path::Path};

/// Names that the library does not use.
const NOT_USED: &[(&str, &[&str])] = &[
    ("numbers of commands have it", &["KFABRIC_IOC_TYPE"]),
    (
        "the module checks the limits, and KFABRIC_IOC_QUERY tells those that programs need",
        &[
            "KFABRIC_MAX_HANDLES",
            "KFABRIC_MAX_MSG_SIZE",
            "KFABRIC_MAX_IOV",
            "KFABRIC_INJECT_SIZE",
            "KFABRIC_MAX_QUEUE",
            "KFABRIC_MAX_CQ",
            "KFABRIC_MAX_EQ",
            "KFABRIC_MAX_WAITERS",
            "KFABRIC_MAX_WORK",
            "KFABRIC_MAX_EP_CTX",
            "KFABRIC_MAX_BUFFERED",
            "KFABRIC_MAX_CONNECT_DATA",
            "KFABRIC_MAX_ACCEPT_DATA",
            "KFABRIC_MAX_BACKLOG",
            "KFABRIC_MAX_FLOWS",
            "KFABRIC_MAX_FLOW_POINTS",
            "KFABRIC_MAX_COUNTERS",
            "KFABRIC_MAX_COMP_CNTR",
        ],
    ),
    (
        "lengths of fields, which the structures have",
        &[
            "KFABRIC_NAME_MAX",
            "KFABRIC_LINK_NAME_MAX",
            "KFABRIC_STRADDR_MAX",
        ],
    ),
    (
        "no endpoint of the module takes it",
        &["KFI_COMMIT_COMPLETE"],
    ),
    (
        "the library's calls report errors in another way",
        &["KFI_SYNC_ERR", "KFI_KEY_NOTAVAIL"],
    ),
    (
        "the empty set of orders, and all of them",
        &["KFI_ORDER_NONE", "KFI_ORDER_STRICT"],
    ),
    (
        "KFABRIC_IOC_STAT lists no objects of these classes",
        &[
            "KFI_CLASS_UNSPEC",
            "KFI_CLASS_FABRIC",
            "KFI_CLASS_DOMAIN",
            "KFI_CLASS_PEP",
            "KFI_CLASS_AV",
            "KFI_CLASS_MR",
            "KFI_CLASS_EQ",
            "KFI_CLASS_WAIT",
            "KFI_CLASS_POLL",
        ],
    ),
    (
        "addresses of datagram endpoints have ports",
        &["KFABRIC_DGRAM_QPN"],
    ),
];

/// The constants of the header, as bindgen has found them.
fn constants() -> Vec<&'static str> {
    include_str!(concat!(env!("OUT_DIR"), "/kfabric.rs"))
        .split("pub const ")
        .skip(1)
        .filter_map(|rest| rest.split(':').next())
        .map(str::trim)
        .filter(|name| name.starts_with("KFI_") || name.starts_with("KFABRIC_"))
        // The table of calls has all commands.
        .filter(|name| !name.starts_with("KFABRIC_IOC_") || *name == "KFABRIC_IOC_TYPE")
        .collect()
}

/// The words of the library's sources, without comments and without this folder.
fn words(folder: &Path, found: &mut HashSet<String>) {
    for entry in fs::read_dir(folder).expect("the sources") {
        let path = entry.expect("an entry").path();
        if path.is_dir() {
            if !path.ends_with("src/abi") {
                words(&path, found);
            }
            continue;
        }
        let text = fs::read_to_string(&path).expect("a source");
        for line in text.lines() {
            let code = line.split("//").next().unwrap_or_default();
            let is_word = |c: char| c.is_ascii_alphanumeric() || c == '_';
            found.extend(code.split(|c| !is_word(c)).map(str::to_owned));
        }
    }
}

#[test]
fn every_name_of_the_header_is_used_or_has_a_reason() {
    let constants = constants();
    assert!(constants.len() > 250, "{}", constants.len());
    let mut used = HashSet::new();
    words(
        &Path::new(env!("CARGO_MANIFEST_DIR")).join("src"),
        &mut used,
    );
    let not_used: Vec<&str> = NOT_USED
        .iter()
        .flat_map(|(_, names)| *names)
        .copied()
        .collect();
    for name in &constants {
        let is_used = used.contains(*name);
        let listed = not_used.contains(name);
        assert!(
            is_used || listed,
            "{name} is new: use it, or say in NOT_USED why not"
        );
        assert!(!(is_used && listed), "{name} is used, and in NOT_USED");
    }
    for name in not_used {
        assert!(constants.contains(&name), "{name} is not in the header");
    }
}
