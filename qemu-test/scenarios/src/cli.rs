// SPDX-License-Identifier: GPL-2.0
//! The command `kfi`, as a user or a script runs it: its output, its JSON, its exit status.
//!
//! Each test has a network namespace of its own, so that its links are its own. The command is
//! `/bin/kfi` of the guest.

pub(crate) mod between;
mod command;
pub(crate) mod flow;
pub(crate) mod pingpong;
pub(crate) mod rping;
mod terminal;
pub(crate) mod top;
pub(crate) mod trigger;
pub(crate) mod watch;

use std::{io::Read, os::unix::process::CommandExt, process::Command};

use serde_json::Value;

use crate::{harness::tests, host::domain_on, raw::Netdev};
use command::{Ended, Server, alone, command, ended, kfi, parse, with_link};

tests![
    links_are_made_shown_and_removed,
    errors_of_links_have_advice,
    info_shows_the_available_endpoints,
    a_wrong_command_line_is_status_2,
    users_need_the_node_and_the_capability,
    cntr_does_its_steps,
    comp_cntr_does_its_steps,
    cq_shows_every_format,
    bench_prints_its_results,
    a_closed_pipe_is_quiet,
    shell_completions_are_printed,
];

fn links_are_made_shown_and_removed() {
    alone();
    for line in ["link show", "link"] {
        assert_eq!(
            kfi(line).succeeds().out,
            "no links; kfi link add roce0 netdev lo makes one\n"
        );
    }
    let netdev = Netdev::dummy("dmy0", "10.9.0.1/24");
    kfi("link add roce0 netdev lo").succeeds();
    let added = kfi("--json link add roce1 netdev dmy0").succeeds().json();
    assert_eq!(added["links"][0]["name"], "roce1");
    let shown = kfi("link show --json").succeeds().json();
    let links = shown["links"].as_array().expect("a list");
    assert_eq!(links.len(), 2);
    assert_eq!(links[0]["netdev"], "lo");
    assert_eq!(links[0]["ipv4"], "127.0.0.1");
    assert_eq!(
        (&links[1]["ipv4"], &links[1]["state"]),
        (&"10.9.0.1".into(), &"up".into())
    );
    assert_eq!(
        kfi("link --json").succeeds().json()["links"],
        shown["links"]
    );
    // Of an interface with a link-local address the table is too wide for one part.
    let text = kfi("link show -s").succeeds().out;
    let head = text.lines().rfind(|line| line.starts_with("LINK "));
    assert!(head.expect("a head").ends_with("RX-BYTES"), "{text}");
    assert!(
        text.lines().all(|line| line.chars().count() <= 100),
        "{text}"
    );
    let one = kfi("link show roce1").succeeds().out;
    assert!(one.contains("dmy0") && !one.contains("roce0"), "{one}");
    // A program holds a link that has gone; the name means the one that is there.
    let held = domain_on("roce1");
    netdev.delete();
    let _netdev = Netdev::dummy("dmy0", "10.9.0.1/24");
    kfi("link add roce1 netdev dmy0").succeeds();
    let shown = kfi("link show --json").succeeds().json();
    assert_eq!(shown["links"][1]["state"], "gone");
    let one = kfi("link show roce1 --json").succeeds().json();
    assert_eq!(one["links"][0]["state"], "up");
    kfi("bench calls --link roce1 --time 0.01").succeeds();
    drop(held);
    assert_eq!(kfi("link del roce0").succeeds().out, "link roce0 removed\n");
    assert_eq!(
        kfi("link del roce1 --json").succeeds().json()["removed"],
        "roce1"
    );
    assert_eq!(
        kfi("link show --json").json()["links"],
        serde_json::json!([])
    );
}

fn errors_of_links_have_advice() {
    with_link();
    kfi("link add roce0 netdev lo").fails("(EEXIST)", "kfi link show");
    kfi("link add other netdev lo").fails("(EEXIST)", "the interface has a link");
    kfi("link add other netdev nope").fails("add link other on nope", "ip link");
    kfi("link add a/b netdev lo").fails("(EINVAL)", "printable");
    kfi("link add sixteen_letters_ netdev lo").fails("longer than 15", "");
    kfi("link del nope").fails("(ENODEV)", "kfi link show");
    kfi("link show nope").fails("there is no link \"nope\"", "kfi link show");
    let json = kfi("link del nope --json").with(1);
    assert_eq!(json.out, "");
    assert_eq!(parse(json.err.trim())["error"]["errno"], "ENODEV");
    // In use: the holder is named, also one that has a domain only.
    let server = Server::start("");
    let holder = format!("kfi (PID {})", server.child.id());
    kfi("link del roce0").fails("(EBUSY)", &format!("{holder} has objects on it"));
    drop(server);
    let holder = format!("(PID {}) has /dev/kfabric open", std::process::id());
    let domain = crate::host::domain_on("roce0");
    kfi("link del roce0").fails("(EBUSY)", &holder);
    drop(domain);
    kfi("link del roce0").succeeds();
}

fn info_shows_the_available_endpoints() {
    alone();
    let empty = kfi("info --json").succeeds().json();
    assert_eq!(empty["module"]["abi_version"], 1);
    // The command has the version of the module.
    let module = empty["module"]["module_version"]
        .as_str()
        .expect("a version");
    let version = kfi("--version").succeeds().out;
    assert!(version.starts_with(&format!("kfi {module}.")), "{version}");
    assert_eq!(empty["infos"], serde_json::json!([]));
    assert!(kfi("info").succeeds().out.contains("no links"));
    kfi("info -e rdm").fails("(ENODATA)", "is there a link");
    kfi("link add roce0 netdev lo").succeeds();
    let all = kfi("info --json").succeeds().json();
    let infos = all["infos"].as_array().expect("a list");
    // Of each type, for IPv4 and for IPv6.
    for (info, ep_type) in infos.iter().zip(["rdm", "msg", "dgram"].repeat(2)) {
        assert_eq!(info["domain"], "roce0");
        assert_eq!(info["ep_type"], ep_type);
    }
    assert_eq!(infos.len(), 6);
    assert_eq!(infos[2]["max_msg_size"], 4096);
    let one = kfi("info --json -l roce0 -e rdm -c msg,rma -n 127.0.0.1 -p 7471")
        .succeeds()
        .json();
    assert_eq!(one["infos"].as_array().expect("a list").len(), 1);
    assert_eq!(one["infos"][0]["dest_addr"], "127.0.0.1:7471");
    assert!(infos.iter().all(|info| info["auth_key"].is_null()));
    let keyed = kfi("info --json --auth-key 1a2b").succeeds().json();
    let keyed = keyed["infos"].as_array().expect("a list");
    assert_eq!(keyed.len(), 2);
    for info in keyed {
        assert_eq!(
            (&info["ep_type"], &info["auth_key"]),
            (&"rdm".into(), &"00001a2b".into())
        );
    }
    kfi("info -e msg --auth-key 1").fails("(ENODATA)", "hints");
    kfi("info -l nope").fails("(ENODATA)", "hints");
    kfi("info -e dgram -c rma").fails("(ENODATA)", "hints");
    kfi("info -e dgram -c atomic").fails("(ENODATA)", "hints");
    let atomic = kfi("info --json -c atomic").succeeds().json();
    let types: Vec<_> = atomic["infos"].as_array().expect("a list").iter().collect();
    assert!(
        types.iter().all(|info| info["ep_type"] != "dgram"),
        "{atomic}"
    );
    for ep_type in ["msg", "rdm"] {
        assert!(
            types.iter().any(|info| info["ep_type"] == ep_type),
            "{atomic}"
        );
    }
    for info in types {
        let atomics = info["atomics"].as_array().expect("a list");
        let has = |form: &str, op: &str, datatype: &str| {
            let holds = |list: &serde_json::Value, name: &str| {
                let list = list.as_array().expect("a list");
                list.iter().any(|entry| entry == name)
            };
            atomics.iter().any(|row| {
                row["form"] == form && holds(&row["ops"], op) && holds(&row["datatypes"], datatype)
            })
        };
        assert!(has("fetch", "sum", "uint64"), "{info}");
        assert!(has("compare", "cswap", "uint64"), "{info}");
        assert_eq!(has("base", "min", "int8"), info["ep_type"] == "rdm");
        assert!(!has("compare", "sum", "uint64"), "{info}");
    }
    let dgram = kfi("info --json -e dgram").succeeds().json();
    assert_eq!(dgram["infos"][0]["atomics"], serde_json::json!([]));
    let text = kfi("info -v").succeeds().out;
    for word in ["tx.inject_size", "mr_key_size", "limits:", "atomics.fetch"] {
        assert!(text.contains(word), "{word}: {text}");
    }
}

fn a_wrong_command_line_is_status_2() {
    for line in [
        "",
        "nothing",
        "link add roce0",
        "link add roce0 device lo",
        "pingpong here:x",
        "cntr --link roce0 watch",
        "pingpong --mode rdma",
        "cntr jump=1",
        "comp-cntr jump=1",
        "comp-cntr --ops atomic",
        "completions tcsh",
    ] {
        let ended = kfi(line).with(2);
        assert_eq!(ended.out, "", "kfi {line}");
        let reported = ended.err.contains("Usage: kfi") || ended.err.contains("try '--help'");
        assert!(reported, "kfi {line}: {}", ended.err);
    }
    let help = kfi("--help").succeeds().out;
    for word in [
        "info",
        "link",
        "pingpong",
        "bench",
        "cntr",
        "comp-cntr",
        "cq",
        "trigger",
        "top",
        "completions",
    ] {
        assert!(help.contains(&format!("  {word} ")), "{word}: {help}");
    }
}

/// A command of the ordinary user 1000.
fn kfi_of_user(line: &str) -> Ended {
    let output = command(line)
        .uid(1000)
        .gid(1000)
        .output()
        .expect("start kfi");
    ended(line, output)
}

fn users_need_the_node_and_the_capability() {
    use std::os::unix::fs::PermissionsExt;
    with_link();
    let admit = |mode| {
        let mode = std::fs::Permissions::from_mode(mode);
        std::fs::set_permissions("/dev/kfabric", mode).expect("chmod");
    };
    let before = std::fs::metadata("/dev/kfabric")
        .expect("stat")
        .permissions();
    admit(0o600);
    kfi_of_user("info").fails("(EACCES)", "chmod");
    admit(0o666);
    kfi_of_user("info").succeeds();
    kfi_of_user("cntr add=1 wait=1").succeeds();
    kfi_of_user("link add mine netdev lo").fails("(EPERM)", "CAP_NET_ADMIN");
    kfi_of_user("link del roce0").fails("(EPERM)", "CAP_NET_ADMIN");
    std::fs::set_permissions("/dev/kfabric", before).expect("chmod");
}

fn cntr_does_its_steps() {
    with_link();
    let steps = kfi("cntr --json read add=3 60ms:add=1 120ms:add=1 wait=5 adderr=2 set=1 read")
        .succeeds()
        .documents();
    let reported: Vec<String> = steps
        .iter()
        .map(|step| {
            format!(
                "{} {} {}",
                step["step"].as_str().expect("text"),
                step["value"],
                step["err"]
            )
        })
        .collect();
    assert_eq!(
        reported,
        [
            "read 0 0",
            "add=3 3 0",
            "add=1 4 0",
            "add=1 5 0",
            "wait=5 5 0",
            "adderr=2 5 2",
            "set=1 1 2",
            "read 1 2"
        ]
    );
    let wait = &steps[4];
    assert!(
        // The command slept. On a busy machine it begins late.
        wait["waited_ms"].as_f64() > Some(10.0) && wait["errno"].is_null(),
        "{wait}"
    );

    let outcome = |steps: &str| {
        let documents = kfi(&format!("cntr --json --timeout 0.2 {steps}"))
            .succeeds()
            .documents();
        documents.last().expect("a step")["errno"].clone()
    };
    assert_eq!(outcome("wait=1"), "ETIMEDOUT");
    assert_eq!(outcome("50ms:adderr=1 wait=1"), "KFI_EAVAIL");
    let wrapped = kfi("cntr --json -m 3 add=5").succeeds().json();
    assert_eq!(wrapped["value"], 1);
    kfi("cntr -m 3 set=4").fails("set=4", "");
    let text = kfi("cntr").succeeds().out;
    assert!(text.contains("# sleeps; another thread"), "{text}");
    assert!(
        text.contains("(ETIMEDOUT)") && text.contains("(KFI_EAVAIL)"),
        "{text}"
    );
}

fn comp_cntr_does_its_steps() {
    with_link();
    let counts = |line: &str| -> Vec<String> {
        kfi(&format!("comp-cntr --json {line}"))
            .succeeds()
            .documents()
            .iter()
            .map(|step| {
                format!(
                    "{} {} {} {} {}",
                    step["step"].as_str().expect("text"),
                    step["comp_count"],
                    step["err_count"],
                    step["memory_comp_count"],
                    step["memory_err_count"]
                )
            })
            .collect()
    };
    assert_eq!(
        counts("read send=100 rdma-write=8 rdma-read fail inc=5 set=1 set-err=0"),
        [
            "read 0 0 null null",
            "send=100 2 0 null null",
            "rdma-write=8 4 0 null null",
            "rdma-read 6 0 null null",
            "fail 6 1 null null",
            "inc=5 11 1 null null",
            "set=1 1 1 null null",
            "set-err=0 1 0 null null",
        ]
    );
    assert_eq!(
        counts("-e -u bytes -o recv,remote_rdma_write send=100 rdma-write=8 overwrite=9 inc"),
        [
            "send=100 100 0 100 0",
            "rdma-write=8 108 0 108 0",
            "overwrite=9 108 0 9 0",
            "inc 109 0 109 0",
        ]
    );
    let text = kfi("comp-cntr -e").succeeds().out;
    assert!(
        text.contains("# the program's memory is only a copy"),
        "{text}"
    );
    kfi("comp-cntr overwrite=1").fails("external memory", "--external");
}

fn cq_shows_every_format() {
    with_link();
    let shown = kfi("cq --json").succeeds().json();
    let formats = shown["formats"].as_array().expect("a list");
    let sizes: Vec<u64> = formats
        .iter()
        .filter_map(|f| f["entry_bytes"].as_u64())
        .collect();
    assert_eq!(sizes, [8, 24, 40, 48]);
    for format in formats {
        assert_eq!(
            format["entries"].as_array().map(Vec::len),
            Some(7),
            "{format}"
        );
        let error = &format["errors"][0];
        assert_eq!(
            (&error["errno"], &error["olen"]),
            (&"KFI_ETRUNC".into(), &6.into())
        );
        let tagged = &format["entries"][2];
        assert_eq!(tagged["op_context"], 3);
        let has = |size: u64, value: Value| {
            if format["entry_bytes"].as_u64() >= Some(size) {
                value
            } else {
                Value::Null
            }
        };
        assert_eq!(tagged["len"], has(24, 7.into()));
        assert_eq!(tagged["data"], has(40, 0x77.into()));
        assert_eq!(tagged["tag"], has(48, 0x22.into()));
    }
    let one = kfi("cq -f data").succeeds().out;
    assert!(
        one.contains("format DATA") && !one.contains("format MSG"),
        "{one}"
    );
}

fn bench_prints_its_results() {
    with_link();
    let results = kfi("bench --time 0.05 --json").succeeds().json();
    let results = results["results"].as_array().expect("a list");
    let names: Vec<&str> = results
        .iter()
        .filter_map(|result| result["name"].as_str())
        .collect();
    assert_eq!(
        names,
        [
            "ioctl/empty",
            "cntr/read_mapped",
            "cntr/add",
            "cq/read_empty",
            "cq/ring_empty",
            "rdm/lat_8B_sread",
            "rdm/lat_8B_spin",
            "rdm/bw_1MiB",
            "rma/write_bw_1MiB",
            "rdm/rate_8B"
        ]
    );
    assert!(
        results
            .iter()
            .all(|result| result["value"].as_f64() > Some(0.0)),
        "{results:?}"
    );
    assert_eq!(
        kfi("bench calls --time 0.01")
            .succeeds()
            .out
            .lines()
            .count(),
        6
    );
}

fn a_closed_pipe_is_quiet() {
    with_link();
    for line in [
        "info",
        "link show",
        "cntr",
        "comp-cntr",
        "cq",
        "top --interval 0.05",
        "top --json",
        "cntr watch --interval 0.05",
        "completions bash",
    ] {
        let mut child = command(line).spawn().expect("start kfi");
        drop(child.stdout.take());
        let mut err = String::new();
        child
            .stderr
            .take()
            .expect("a pipe")
            .read_to_string(&mut err)
            .expect("read");
        assert_eq!(err, "", "kfi {line}");
        assert_eq!(child.wait().expect("wait").code(), Some(0), "kfi {line}");
    }
}

fn shell_completions_are_printed() {
    let script = kfi("completions bash").succeeds().out;
    std::fs::write("/tmp/kfi.bash", script).expect("write");
    let reported = Command::new("/bin/bash")
        .args(["-c", "complete() { :; }; . /tmp/kfi.bash; COMP_WORDS=(kfi link a); COMP_CWORD=2; _kfi kfi a link; echo ${COMPREPLY[*]}"])
        .output()
        .expect("start bash");
    assert_eq!(String::from_utf8_lossy(&reported.stdout).trim(), "add");
    for shell in ["zsh", "fish"] {
        let script = kfi(&format!("completions {shell}")).succeeds().out;
        assert!(script.contains("pingpong"), "{shell}");
    }
}
