// SPDX-License-Identifier: GPL-2.0
//! The command `kfi`, as a person or a script uses it: what it prints, its JSON, its exit status.
//!
//! Each test has a network namespace of its own, so that its links are its own. The command is
//! `/bin/kfi` of the guest.

use std::{
    io::{BufRead, BufReader, Read, Write},
    os::{fd::OwnedFd, unix::process::CommandExt},
    process::{Child, ChildStdout, Command, Stdio},
    thread,
    time::{Duration, Instant},
};

use rustix::{pty::OpenptFlags, termios::Winsize, thread::UnshareFlags};
use serde_json::Value;

use crate::{
    harness::tests,
    host::SOON,
    raw::{Netdev, ip},
};

tests![
    links_are_made_shown_and_removed,
    what_is_wrong_with_a_link_is_said,
    info_tells_what_there_is,
    a_wrong_command_line_is_status_2,
    users_need_the_node_and_the_capability,
    pingpong_every_way => 180,
    pingpong_of_every_size => 120,
    pingpong_between_two_links,
    pingpong_over_ipv6,
    pingpong_shows_what_completes,
    a_server_does_as_it_was_told_itself,
    clients_wait_for_their_turn,
    nobody_there_is_said,
    silence_ends_a_game,
    a_client_that_dies_ends_the_server,
    counters_by_hand,
    completions_in_every_format,
    bench_has_its_figures,
    top_shows_who_waits_for_what,
    top_draws_on_a_terminal,
    a_closed_pipe_is_quiet,
    completions_are_for_the_shell,
];

/// A network namespace for this test, with its loopback interface up, and a link on that.
fn alone() {
    // SAFETY: No descriptor is unshared, and the process has one thread.
    unsafe { rustix::thread::unshare_unsafe(UnshareFlags::NEWNET) }.expect("unshare");
    ip("link set lo up");
}

/// As [`alone`], with the link roce0 on lo.
fn with_link() {
    alone();
    kfi("link add roce0 netdev lo").succeeds();
}

/// How a command ended.
struct Ended {
    line: String,
    code: Option<i32>,
    out: String,
    err: String,
}

impl Ended {
    #[track_caller]
    fn with(self, code: i32) -> Self {
        let Self { line, out, err, .. } = &self;
        assert_eq!(self.code, Some(code), "kfi {line}\n{out}\n{err}");
        assert!(!err.contains("panicked"), "kfi {line}\n{err}");
        self
    }

    /// It worked, and said nothing but its output.
    #[track_caller]
    fn succeeds(self) -> Self {
        let ended = self.with(0);
        assert_eq!(ended.err, "", "kfi {}", ended.line);
        ended
    }

    /// It failed, with this in the cause and this in what to try.
    #[track_caller]
    fn fails(self, cause: &str, help: &str) -> Self {
        let ended = self.with(1);
        let err = &ended.err;
        let line = |start: &str| {
            err.lines()
                .find(|line| line.starts_with(start))
                .unwrap_or("")
        };
        assert!(line("error: ").contains(cause), "{cause}: {err}");
        assert!(line("help: ").contains(help), "{help}: {err}");
        ended
    }

    /// Its one document.
    #[track_caller]
    fn json(&self) -> Value {
        let documents = self.documents();
        assert_eq!(documents.len(), 1, "{}", self.out);
        documents.into_iter().next().expect("one")
    }

    #[track_caller]
    fn documents(&self) -> Vec<Value> {
        self.out.lines().map(parse).collect()
    }
}

#[track_caller]
fn parse(line: &str) -> Value {
    serde_json::from_str(line).unwrap_or_else(|error| panic!("{error}: {line}"))
}

/// A command that is not started yet.
fn command(line: &str) -> Command {
    let mut command = Command::new("/bin/kfi");
    command
        .args(line.split_whitespace())
        .stdin(Stdio::null())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped());
    command
}

/// Runs a command to its end.
fn kfi(line: &str) -> Ended {
    let output = command(line).output().expect("start kfi");
    ended(line, output)
}

fn ended(line: &str, output: std::process::Output) -> Ended {
    Ended {
        line: line.to_owned(),
        code: output.status.code(),
        out: String::from_utf8(output.stdout).expect("text"),
        err: String::from_utf8(output.stderr).expect("text"),
    }
}

/// A ping-pong server in the background.
struct Server {
    child: Child,
    out: BufReader<ChildStdout>,
    address: String,
}

impl Server {
    fn start(options: &str) -> Self {
        let mut child = command(&format!("pingpong --json {options}"))
            .spawn()
            .expect("start the server");
        let mut out = BufReader::new(child.stdout.take().expect("a pipe"));
        let mut line = String::new();
        out.read_line(&mut line).expect("read");
        let listening = parse(&line);
        assert_eq!(listening["event"], "listening");
        let address = listening["address"]
            .as_str()
            .expect("an address")
            .to_owned();
        Self {
            child,
            out,
            address,
        }
    }

    /// Its next document.
    fn document(&mut self) -> Value {
        let mut line = String::new();
        self.out.read_line(&mut line).expect("read");
        parse(&line)
    }

    /// Its exit status and standard error.
    fn end(mut self) -> (Option<i32>, String) {
        let mut err = String::new();
        let mut pipe = self.child.stderr.take().expect("a pipe");
        pipe.read_to_string(&mut err).expect("read");
        (self.child.wait().expect("wait").code(), err)
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

fn links_are_made_shown_and_removed() {
    alone();
    assert_eq!(
        kfi("link show").succeeds().out,
        "no links; kfi link add roce0 netdev lo makes one\n"
    );
    let _netdev = Netdev::dummy("dmy0", "10.9.0.1/24");
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
    let text = kfi("link show -s").succeeds().out;
    assert_eq!(text.lines().count(), 3, "{text}");
    assert!(
        text.lines().next().expect("a head").ends_with("RX-BYTES"),
        "{text}"
    );
    let one = kfi("link show roce1").succeeds().out;
    assert!(one.contains("dmy0") && !one.contains("roce0"), "{one}");
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

fn what_is_wrong_with_a_link_is_said() {
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
    // In use.
    let _server = Server::start("");
    kfi("link del roce0").fails("(EBUSY)", "kfi top");
}

fn info_tells_what_there_is() {
    alone();
    let empty = kfi("info --json").succeeds().json();
    assert_eq!(empty["module"]["abi_version"], 1);
    assert_eq!(empty["infos"], serde_json::json!([]));
    assert!(kfi("info").succeeds().out.contains("no links"));
    kfi("info -e rdm").fails("(ENODATA)", "is there a link");
    kfi("link add roce0 netdev lo").succeeds();
    let all = kfi("info --json").succeeds().json();
    let infos = all["infos"].as_array().expect("a list");
    assert_eq!(infos.len(), 2, "one for IPv4 and one for IPv6");
    assert_eq!(infos[0]["domain"], "roce0");
    assert_eq!(infos[0]["ep_type"], "rdm");
    let one = kfi("info --json -l roce0 -c msg,rma -n 127.0.0.1 -p 7471")
        .succeeds()
        .json();
    assert_eq!(one["infos"].as_array().expect("a list").len(), 1);
    assert_eq!(one["infos"][0]["dest_addr"], "127.0.0.1:7471");
    kfi("info -l nope").fails("(ENODATA)", "hints");
    kfi("info -e dgram").fails("(ENODATA)", "hints");
    kfi("info -c atomic").fails("(ENODATA)", "hints");
    let text = kfi("info -v").succeeds().out;
    for word in ["tx.inject_size", "mr_key_size", "limits:"] {
        assert!(text.contains(word), "{word}: {text}");
    }
}

fn a_wrong_command_line_is_status_2() {
    for line in [
        "",
        "nothing",
        "link",
        "link add roce0",
        "link add roce0 device lo",
        "pingpong here:1",
        "pingpong --mode rdma",
        "cntr jump=1",
        "completions tcsh",
    ] {
        let ended = kfi(line).with(2);
        assert_eq!(ended.out, "", "kfi {line}");
        let told = ended.err.contains("Usage: kfi") || ended.err.contains("try '--help'");
        assert!(told, "kfi {line}: {}", ended.err);
    }
    let help = kfi("--help").succeeds().out;
    for word in [
        "info",
        "link",
        "pingpong",
        "bench",
        "cntr",
        "cq",
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

fn pingpong_every_way() {
    with_link();
    let mut server = Server::start("--keep");
    for mode in ["msg", "tagged", "rma"] {
        for completion in ["cq", "cntr"] {
            for wait in ["spin", "sread", "fd"] {
                let line = format!(
                    "pingpong {} -m {mode} -c {completion} -w {wait} -i 50 --json",
                    server.address
                );
                let client = kfi(&line).succeeds().json();
                let served = server.document();
                for (side, role, count) in [(&client, "client", 50), (&served, "server", 60)] {
                    assert_eq!(side["event"], "result");
                    assert_eq!(side["role"], role);
                    assert_eq!(side["mode"], mode, "{side}");
                    assert_eq!(side["completion"], completion, "{side}");
                    assert_eq!(side["wait"], wait, "{side}");
                    assert_eq!(side["iterations"], count, "{side}");
                }
                let latency = &client["latency_us"];
                let figure = |name: &str| latency[name].as_f64().expect("a number");
                assert!(
                    figure("min") > 0.0 && figure("min") <= figure("median"),
                    "{latency}"
                );
                assert!(figure("median") <= figure("p99") && figure("p99") <= figure("max"));
                assert!(served["latency_us"].is_null());
            }
        }
    }
}

fn pingpong_of_every_size() {
    with_link();
    let mut server = Server::start("--keep");
    for mode in ["msg", "tagged", "rma"] {
        for size in [
            "0", "1", "7", "255", "257", "4K", "8193", "100000", "1M", "16M",
        ] {
            let line = format!(
                "pingpong {} -m {mode} -s {size} -i 3 --warmup 1",
                server.address
            );
            if (mode, size) == ("rma", "0") {
                kfi(&line).fails("0 bytes", "--size");
                continue;
            }
            let text = kfi(&line).succeeds().out;
            assert!(text.contains("3 messages of"), "{text}");
            assert_eq!(server.document()["event"], "result");
        }
    }
}

fn pingpong_between_two_links() {
    with_link();
    let _netdev = Netdev::dummy("dmy0", "10.9.0.1/24");
    kfi("link add roce1 netdev dmy0").succeeds();
    for (at, from) in [("roce0", "roce1"), ("roce1", "roce0"), ("roce1", "roce1")] {
        let mut server = Server::start(&format!("--link {at}"));
        let line = format!(
            "pingpong {} --link {from} -m rma -i 5 --json",
            server.address
        );
        assert_eq!(kfi(&line).succeeds().json()["link"], from);
        assert_eq!(server.document()["link"], at);
        assert_eq!(server.end(), (Some(0), String::new()));
    }
    // Without --link it is the link that has the server's address.
    let server = Server::start("--bind 10.9.0.1:99");
    assert_eq!(server.address, "10.9.0.1:99");
    assert_eq!(
        kfi("pingpong 10.9.0.1:99 -i 5 --json").succeeds().json()["link"],
        "roce1"
    );
    drop(server);
    let links = kfi("link show --json").json();
    assert!(links["links"][1]["tx_ops"].as_u64() > Some(10), "{links}");
}

fn pingpong_over_ipv6() {
    with_link();
    let mut server = Server::start("--bind [::1]");
    assert_eq!(server.address, "[::1]:7471");
    kfi("pingpong ::1 -i 5").succeeds();
    let peer = server.document()["peer"]
        .as_str()
        .expect("an address")
        .to_owned();
    assert!(peer.starts_with("[::1]:"), "{peer}");
}

/// Events of one kind in a trace.
fn events<'a>(documents: &'a [Value], event: &str) -> Vec<&'a Value> {
    documents
        .iter()
        .filter(|document| document["event"] == event)
        .collect()
}

fn pingpong_shows_what_completes() {
    with_link();
    for (mode, completion, flags, counters) in [
        ("msg", "cq", "MSG", ["recv", "send"]),
        ("tagged", "cq", "TAGGED", ["recv", "send"]),
        ("rma", "cq", "RMA", ["remote write", "write"]),
        ("tagged", "cntr", "TAGGED", ["recv", "send"]),
        ("rma", "cntr", "RMA", ["remote write", "write"]),
    ] {
        let server = Server::start("");
        let line = format!(
            "pingpong {} -m {mode} -c {completion} -i 3 --trace --json",
            server.address
        );
        let documents = kfi(&line).succeeds().documents();
        assert_eq!(events(&documents, "posts").len(), 3);
        let entries = events(&documents, "cq_entry");
        assert_eq!(entries.len(), 6, "{documents:?}");
        for entry in entries {
            assert_eq!(entry["flags"][0], flags, "{entry}");
        }
        let ends = events(&documents, "counter");
        for (name, end) in counters.iter().zip(&ends[ends.len() - 2..]) {
            assert_eq!(end["counter"], *name);
            assert_eq!((&end["value"], &end["err"]), (&3.into(), &0.into()));
        }
        if completion == "cntr" {
            assert_eq!(ends[0]["value"], 1);
            assert_eq!(ends[0]["bytes"], "pong0000");
        }
        assert_eq!(server.end(), (Some(0), String::new()));
    }
}

fn a_server_does_as_it_was_told_itself() {
    with_link();
    let mut server = Server::start("--completion cntr --wait fd");
    kfi(&format!("pingpong {} -i 5", server.address)).succeeds();
    let served = server.document();
    assert_eq!(
        (&served["completion"], &served["wait"]),
        (&"cntr".into(), &"fd".into())
    );
}

fn clients_wait_for_their_turn() {
    with_link();
    let mut server = Server::start("--keep");
    let line = format!("pingpong {} -i 300 --json", server.address);
    let clients: Vec<Child> = (0..4)
        .map(|_| command(&line).spawn().expect("start kfi"))
        .collect();
    for client in clients {
        let output = client.wait_with_output().expect("wait");
        ended(&line, output).succeeds();
    }
    for _ in 0..4 {
        assert_eq!(server.document()["iterations"], 310);
    }
}

fn nobody_there_is_said() {
    alone();
    kfi("pingpong 127.0.0.1").fails("there is no link", "kfi link add");
    kfi("link add roce0 netdev lo").succeeds();
    kfi("pingpong 127.0.0.1").fails("send to 127.0.0.1:7471", "is there an endpoint");
    kfi("pingpong --bind 10.1.2.3").fails("(EADDRNOTAVAIL)", "kfi link show");
    let _server = Server::start("");
    kfi("pingpong").fails("(EADDRINUSE)", "port");
    ip("link set lo down");
    kfi("pingpong --link roce0 127.0.0.1").fails("", "");
}

/// An endpoint at port 7471 that never answers.
fn mute() -> (kfi::Endpoint, kfi::Cq) {
    use kfi::{CqBind, Device, Wait};
    let fabric = Device::open().expect("open").fabric().expect("fabric");
    let domain = fabric.domain("roce0").open().expect("domain");
    let cq = domain.cq().wait(Wait::Queue).open().expect("cq");
    let addr = "127.0.0.1:7471".parse().expect("an address");
    let ep = domain.endpoint().addr(addr).open().expect("endpoint");
    ep.bind_cq(&cq, CqBind::TRANSMIT | CqBind::RECV)
        .expect("bind");
    ep.bind_av(&domain.av().open().expect("av")).expect("bind");
    ep.enable().expect("enable");
    (ep, cq)
}

fn silence_ends_a_game() {
    with_link();
    let _mute = mute();
    let begin = Instant::now();
    kfi("pingpong 127.0.0.1 --timeout 0.3").fails("no answer from 127.0.0.1:7471", "pingpong");
    assert!(begin.elapsed() >= Duration::from_millis(300));
}

fn a_client_that_dies_ends_the_server() {
    with_link();
    for wait in ["spin", "sread", "fd"] {
        let mut server = Server::start("--timeout 0.5 --trace");
        let line = format!("pingpong {} -i 10000000 -w {wait}", server.address);
        let mut client = command(&line)
            .stdout(Stdio::null())
            .spawn()
            .expect("start kfi");
        for _ in 0..8 {
            server.document();
        }
        client.kill().expect("kill");
        client.wait().expect("wait");
        // It goes on reading what the server says, so that that is not held up.
        let mut rest = String::new();
        server.out.read_to_string(&mut rest).expect("read");
        let (code, err) = server.end();
        assert_eq!(code, Some(1), "{err}");
        let error = parse(err.trim());
        let message = error["error"]["message"].as_str().expect("text");
        assert!(
            message.contains("silent") || message.contains("EHOSTUNREACH"),
            "{message}"
        );
    }
    kfi("link del roce0").succeeds();
}

fn counters_by_hand() {
    with_link();
    let steps = kfi("cntr --json read add=3 60ms:add=1 120ms:add=1 wait=5 adderr=2 set=1 read")
        .succeeds()
        .documents();
    let told: Vec<String> = steps
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
        told,
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
        wait["waited_ms"].as_f64() > Some(100.0) && wait["errno"].is_null(),
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
    let lesson = kfi("cntr").succeeds().out;
    assert!(lesson.contains("# sleeps; another thread"), "{lesson}");
    assert!(
        lesson.contains("(ETIMEDOUT)") && lesson.contains("(KFI_EAVAIL)"),
        "{lesson}"
    );
}

fn completions_in_every_format() {
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

fn bench_has_its_figures() {
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

/// Looks until `found` says what was looked for.
fn top_until<T>(found: impl Fn(&Value) -> Option<T>) -> T {
    let end = Instant::now() + SOON;
    loop {
        let look = kfi("top --once --json").succeeds().json();
        if let Some(found) = found(&look) {
            return found;
        }
        assert!(Instant::now() < end, "not found: {look}");
        thread::sleep(Duration::from_millis(20));
    }
}

fn top_shows_who_waits_for_what() {
    with_link();
    let server = Server::start("");
    let endpoint = top_until(|look| {
        let found = &look["endpoints"][0];
        (found["rx_posted"] == 1).then(|| found.clone())
    });
    assert_eq!(endpoint["address"], server.address.as_str());
    assert_eq!(endpoint["pid"], server.child.id());
    assert_eq!(endpoint["link"], "roce0");
    let cq = top_until(|look| (look["cqs"][0]["waiters"] == 1).then(|| look["cqs"][0].clone()));
    assert_eq!((&cq["reserved"], &cq["queued"]), (&1.into(), &0.into()));
    drop(server);

    let mut waiting = command("cntr --timeout 30 add=3 wait=9")
        .spawn()
        .expect("start kfi");
    let cntr =
        top_until(|look| (look["cntrs"][0]["waiters"] == 1).then(|| look["cntrs"][0].clone()));
    assert_eq!((&cntr["value"], &cntr["threshold"]), (&3.into(), &9.into()));
    let text = kfi("top --once").succeeds().out;
    assert!(
        text.contains("COUNTER") && text.contains("no endpoints"),
        "{text}"
    );
    waiting.kill().expect("kill");
    waiting.wait().expect("wait");
    top_until(|look| look["cntrs"].as_array()?.is_empty().then_some(()));

    // Looks follow each other, and the second has rates.
    let mut looks = command("top --json --interval 0.05")
        .spawn()
        .expect("start kfi");
    let mut lines = BufReader::new(looks.stdout.take().expect("a pipe")).lines();
    let mut next = || parse(&lines.next().expect("a line").expect("read"));
    assert!(next()["seconds"].is_null());
    let second = next();
    assert!(second["seconds"].as_f64() >= Some(0.05), "{second}");
    assert_eq!(second["links"][0]["tx_ops_per_second"], 0.0);
    looks.kill().expect("kill");
    looks.wait().expect("wait");
}

/// A terminal: its controlling side, and the other.
fn terminal() -> (OwnedFd, OwnedFd) {
    let flags = OpenptFlags::RDWR | OpenptFlags::NOCTTY;
    let ours = rustix::pty::openpt(flags).expect("openpt");
    rustix::pty::grantpt(&ours).expect("grantpt");
    rustix::pty::unlockpt(&ours).expect("unlockpt");
    let size = Winsize {
        ws_row: 24,
        ws_col: 100,
        ws_xpixel: 0,
        ws_ypixel: 0,
    };
    rustix::termios::tcsetwinsize(&ours, size).expect("size");
    let theirs = rustix::pty::ioctl_tiocgptpeer(&ours, flags).expect("the other side");
    (ours, theirs)
}

fn top_draws_on_a_terminal() {
    with_link();
    let (ours, theirs) = terminal();
    let other = || Stdio::from(theirs.try_clone().expect("dup"));
    let before = rustix::termios::tcgetattr(&theirs)
        .expect("tcgetattr")
        .local_modes;
    // It is the controlling terminal, as a person's is.
    let mut child = Command::new("setsid")
        .args(["-c", "/bin/kfi", "top", "--interval", "0.1"])
        .env("TERM", "xterm")
        .stdin(other())
        .stdout(other())
        .stderr(Stdio::piped())
        .spawn()
        .expect("start kfi");
    let mut keyboard = std::fs::File::from(ours);
    let mut screen = keyboard.try_clone().expect("dup");
    let (send, drawn) = std::sync::mpsc::channel();
    // Takes away what is drawn until nobody has the terminal open.
    let reader = thread::spawn(move || {
        let mut bytes = [0; 4096];
        while let Ok(count @ 1..) = screen.read(&mut bytes) {
            let _ = send.send(bytes[..count].to_vec());
        }
    });
    let mut seen = Vec::new();
    let end = Instant::now() + SOON;
    while !String::from_utf8_lossy(&seen).contains("127.0.0.1") {
        if let Ok(bytes) = drawn.recv_timeout(Duration::from_millis(50)) {
            seen.extend(bytes);
        }
        if Instant::now() > end || child.try_wait().expect("wait").is_some() {
            let _ = child.kill();
            let mut err = String::new();
            child
                .stderr
                .take()
                .expect("a pipe")
                .read_to_string(&mut err)
                .expect("read");
            panic!("drawn: {:?}\n{err}", String::from_utf8_lossy(&seen));
        }
    }
    keyboard.write_all(b"jk q").expect("press keys");
    assert_eq!(child.wait().expect("wait").code(), Some(0));
    let mut err = String::new();
    child
        .stderr
        .take()
        .expect("a pipe")
        .read_to_string(&mut err)
        .expect("read");
    assert_eq!(err, "");
    let after = rustix::termios::tcgetattr(&theirs)
        .expect("tcgetattr")
        .local_modes;
    assert_eq!(before, after, "the terminal is left as it was");
    drop(theirs);
    reader.join().expect("the reader");
}

fn a_closed_pipe_is_quiet() {
    with_link();
    for line in [
        "info",
        "link show",
        "cntr",
        "cq",
        "top --interval 0.05",
        "top --json",
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

fn completions_are_for_the_shell() {
    let script = kfi("completions bash").succeeds().out;
    std::fs::write("/tmp/kfi.bash", script).expect("write");
    let told = Command::new("/bin/bash")
        .args(["-c", "complete() { :; }; . /tmp/kfi.bash; COMP_WORDS=(kfi link a); COMP_CWORD=2; _kfi kfi a link; echo ${COMPREPLY[*]}"])
        .output()
        .expect("start bash");
    assert_eq!(String::from_utf8_lossy(&told.stdout).trim(), "add");
    for shell in ["zsh", "fish"] {
        let script = kfi(&format!("completions {shell}")).succeeds().out;
        assert!(script.contains("pingpong"), "{shell}");
    }
}
