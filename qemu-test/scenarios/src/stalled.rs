// SPDX-License-Identifier: GPL-2.0
//! Readers that wait for their own memory: a thread of the program decides when a page becomes
//! present (userfaultfd(2)), and the call that writes to it waits. Other calls on the same object
//! end in time, and SIGKILL ends the waiting one.

use crate::{
    abi_budget::LIMIT,
    abi_threads::{USER, open_to_all},
    harness::tests,
    host::{Host, Options, until, within},
    process::{Process, line, program},
    raw::{File, PAGE, Party, addr_of, addr_of_mut, arg, data, in_ms, refused, with},
    threads::{Sleeper, cloned},
    userfault::Missing,
};
use kfi::{Errno, abi};
use std::{
    os::unix::process::CommandExt,
    sync::Arc,
    time::{Duration, Instant},
};

tests![
    a_stalled_read_of_a_cq_delays_no_other_thread,
    a_stalled_sread_of_a_cq_delays_no_other_thread,
    a_stalled_sread_of_a_cq_is_released_by_a_signal,
    a_stalled_read_of_an_eq_delays_no_other_thread,
    a_stalled_sread_of_an_eq_delays_no_other_thread,
    a_stalled_poll_delays_no_other_thread,
    a_stalled_reader_can_be_killed,
    a_stalled_poster_keeps_nothing_of_a_peer_that_has_ended => 300,
];

/// The role in which a test starts this program as another process.
pub(crate) const ROLES: &[(&str, fn())] = &[("stalled", stalled), ("largest", largest)];

/// The deadline of calls that find no entry.
const SHORT: Duration = Duration::from_millis(50);

/// Longest time of a call that does not wait. It includes the time until its thread runs.
const BOUND: Duration = Duration::from_secs(5);

/// The result of `call` in a thread of its own, within the time; `None` if it has not ended then.
fn in_time<T: Send + 'static>(call: impl FnOnce() -> T + Send + 'static) -> Option<T> {
    let thread = Sleeper::new(call);
    within(BOUND, || thread.is_finished()).then(|| thread.join())
}

/// An endpoint that makes completions for itself, events, and a poll set.
struct Scene {
    file: File,
    eq: u32,
    cq: u32,
    cntr: u32,
    poll: u32,
    av: u32,
    ep: u32,
    me: u64,
}

/// The contexts of the members of the poll set.
const CQ_CONTEXT: u64 = 71;
const CNTR_CONTEXT: u64 = 72;

impl Scene {
    fn new() -> Arc<Self> {
        let (file, fabric, domain) = File::open().and_domain();
        let cq = file.make(arg!(kfabric_cq_open:
            domain, format: abi::KFI_CQ_FORMAT_TAGGED, wait_obj: abi::KFI_WAIT_QUEUE,
            context: CQ_CONTEXT
        ));
        let cntr = file.make(arg!(kfabric_cntr_open: domain, context: CNTR_CONTEXT));
        let Party { ep, av, me, .. } = file.party_with(domain, cq, arg!(kfabric_ep_open));
        let (eq, poll) = (file.eq(fabric), file.poll_set(domain));
        let scene = Self {
            me,
            file,
            eq,
            cq,
            cntr,
            poll,
            av,
            ep,
        };
        scene.member(cq, false);
        scene.member(cntr, false);
        Arc::new(scene)
    }

    /// Makes an entry in the CQ.
    fn complete(&self, context: u64) {
        let op = data!(kfabric_op:
            opcode: abi::KFABRIC_OP_SEND, flags: abi::KFI_INJECT | abi::KFI_COMPLETION, context,
            peer: self.me
        );
        self.file.post_one(self.ep, op).expect("send");
    }

    /// Makes an error entry in the CQ: there is no such key.
    fn fail(&self) {
        let op = data!(kfabric_op:
            opcode: abi::KFABRIC_OP_WRITE, flags: abi::KFI_INJECT, peer: self.me, rma_key: 0xdead
        );
        self.file.post_one(self.ep, op).expect("write");
    }

    /// Reads an entry of the CQ to `buf`, and its source to `sources`.
    fn cq_read(&self, buf: u64, sources: u64, deadline: u64) -> Result<u32, Errno> {
        let arg = self.file.call(arg!(kfabric_cq_read:
            cq: self.cq, buf, src_addrs: sources, count: 1, deadline
        ));
        arg.map(|arg| arg.count)
    }

    /// The context of an entry of the CQ.
    fn cq_next(&self, deadline: u64) -> Result<u64, Errno> {
        let entry = self.file.cq_wait(self.cq, deadline);
        entry.map(|entry| entry.op_context)
    }

    fn cq_signal(&self) {
        let arg = arg!(kfabric_cq_signal: cq: self.cq);
        self.file.call(arg).expect("signal");
    }

    /// Puts an event into the EQ.
    fn event(&self, data: u64) {
        let arg = arg!(kfabric_eq_write:
            eq: self.eq, buf: addr_of(&data), len: size_of_val(&data) as u32,
            event: abi::KFI_NOTIFY
        );
        self.file.call(arg).expect("eq_write");
    }

    /// Reads an event of the EQ to `buf`.
    fn eq_read(&self, buf: u64, deadline: u64) -> Result<(), Errno> {
        let arg = arg!(kfabric_eq_read: eq: self.eq, deadline, buf, len: size_of::<u64>() as u32);
        self.file.call(arg).map(|_| ())
    }

    /// The data of an event of the EQ.
    fn eq_next(&self, deadline: u64) -> Result<u64, Errno> {
        let mut data = 0u64;
        self.eq_read(addr_of_mut(&mut data), deadline)?;
        Ok(data)
    }

    /// Changes the poll set's members.
    fn member(&self, handle: u32, remove: bool) {
        let arg = arg!(kfabric_poll_change: poll: self.poll, handle, remove: remove.into());
        self.file.call(arg).expect("poll_change");
    }

    /// Polls the set; at most `count` contexts go to `contexts`.
    fn poll_to(&self, contexts: u64, count: u32) -> Result<u32, Errno> {
        let arg = arg!(kfabric_poll: poll: self.poll, contexts, count);
        self.file.call(arg).map(|arg| arg.count)
    }

    /// The contexts of members that have something to read.
    fn poll(&self) -> Vec<u64> {
        let mut contexts = [0u64; 4];
        let count = self.poll_to(addr_of_mut(&mut contexts), 4).expect("poll");
        let mut reported = contexts[..count as usize].to_vec();
        reported.sort_unstable();
        reported
    }
}

/// The result of `call` on `scene`, in time.
fn others<T: Send + 'static>(
    scene: &Arc<Scene>,
    call: impl FnOnce(&Scene) -> T + Send + 'static,
) -> Option<T> {
    let scene = scene.clone();
    in_time(move || call(&scene))
}

/// A thread that has called `call` with the address of a page, and waits for the page.
fn stall<T: Send + 'static>(
    scene: &Arc<Scene>,
    page: &Missing,
    call: impl FnOnce(&Scene, u64) -> T + Send + 'static,
) -> Sleeper<T> {
    let (scene, addr) = (scene.clone(), page.addr());
    let thread = Sleeper::new(move || call(&scene, addr));
    until("a thread that waits for its page", || page.is_awaited());
    thread
}

/// Checks that `next` takes two queued entries, 1 and 2, and then waits until its deadline, when it
/// fails with `late`, and no longer.
fn entries_come_in_time(next: impl Fn(u64) -> Result<u64, Errno>, late: Errno) {
    assert_eq!(next(in_ms(20_000)), Ok(1));
    assert_eq!(next(0), Ok(2));
    assert_eq!(next(0), Err(Errno::EAGAIN));
    let begin = Instant::now();
    assert_eq!(next(in_ms(SHORT.as_millis() as u64)), Err(late));
    assert!((SHORT..BOUND).contains(&begin.elapsed()));
}

/// While a reader of the CQ waits for its memory, others take the queued entries, and wait no
/// longer than their deadlines.
fn the_cq_goes_on(scene: &Arc<Scene>) {
    const IN_TIME: &str = "a reader of the CQ waits for the memory of another one";
    let next = |deadline: u64| others(scene, move |scene| scene.cq_next(deadline)).expect(IN_TIME);
    entries_come_in_time(next, Errno::EAGAIN);
    // Errors, too.
    scene.fail();
    assert_eq!(next(in_ms(20_000)), Err(Errno::KFI_EAVAIL));
    let error = others(scene, |scene| scene.file.cq_readerr(scene.cq)).expect(IN_TIME);
    assert_eq!(
        error.expect("an error entry").err,
        Errno::EACCES.raw() as u32
    );
}

fn a_stalled_read_of_a_cq_delays_no_other_thread() {
    // The entry's page, and that of its source.
    for at_source in [false, true] {
        let scene = Scene::new();
        scene.complete(1);
        scene.complete(2);
        let page = Missing::new();
        let reader = stall(&scene, &page, move |scene, addr| {
            let mut entry = abi::kfabric_cq_entry::default();
            if at_source {
                scene.cq_read(addr_of_mut(&mut entry), addr, 0)
            } else {
                scene.cq_read(addr, 0, 0)
            }
        });
        the_cq_goes_on(&scene);
        // The call returns the entry when its page is present.
        scene.complete(3);
        assert!(!reader.is_finished());
        page.bring();
        assert_eq!(reader.end(), Ok(1));
        if !at_source {
            assert_eq!(page.first_word(), 3);
        }
        refused(scene.cq_next(0), Errno::EAGAIN);
    }
}

fn a_stalled_sread_of_a_cq_delays_no_other_thread() {
    let scene = Scene::new();
    let page = Missing::new();
    let (reader, addr) = (scene.clone(), page.addr());
    // It sleeps until an entry is there, and then waits for its page.
    let reader = Sleeper::asleep(move || reader.cq_read(addr, 0, abi::KFABRIC_FOREVER));
    scene.complete(1);
    until("a thread that waits for its page", || page.is_awaited());
    scene.complete(2);
    the_cq_goes_on(&scene);
    // Others have taken the entry: the call sleeps again.
    page.bring();
    reader.until_asleep();
    scene.complete(3);
    assert_eq!(reader.end(), Ok(1));
    assert_eq!(page.first_word(), 3);
}

/// A signal releases sleeping readers at once, and the reader that waits for its memory when that
/// is present.
fn a_stalled_sread_of_a_cq_is_released_by_a_signal() {
    let scene = Scene::new();
    scene.complete(1);
    let page = Missing::new();
    let reader = stall(&scene, &page, |scene, addr| {
        scene.cq_read(addr, 0, abi::KFABRIC_FOREVER)
    });
    assert_eq!(others(&scene, |scene| scene.cq_next(0)), Some(Ok(1)));
    let sleeper = Sleeper::asleep(cloned!(scene; move || scene.cq_next(abi::KFABRIC_FOREVER)));
    scene.cq_signal();
    assert_eq!(sleeper.end(), Err(Errno::EAGAIN));
    assert!(!reader.is_finished());
    page.bring();
    assert_eq!(reader.end(), Err(Errno::EAGAIN));
}

/// The same for the EQ.
fn the_eq_goes_on(scene: &Arc<Scene>) {
    let next = |deadline: u64| {
        others(scene, move |scene| scene.eq_next(deadline))
            .expect("a reader of the EQ waits for the memory of another one")
    };
    entries_come_in_time(next, Errno::ETIMEDOUT);
}

fn a_stalled_read_of_an_eq_delays_no_other_thread() {
    let scene = Scene::new();
    scene.event(1);
    scene.event(2);
    let page = Missing::new();
    let reader = stall(&scene, &page, |scene, addr| scene.eq_read(addr, 0));
    the_eq_goes_on(&scene);
    scene.event(3);
    assert!(!reader.is_finished());
    page.bring();
    assert_eq!(reader.end(), Ok(()));
    assert_eq!(page.first_word(), 3);
    refused(scene.eq_next(0), Errno::EAGAIN);
}

fn a_stalled_sread_of_an_eq_delays_no_other_thread() {
    let scene = Scene::new();
    let page = Missing::new();
    let (reader, addr) = (scene.clone(), page.addr());
    let reader = Sleeper::asleep(move || reader.eq_read(addr, abi::KFABRIC_FOREVER));
    scene.event(1);
    until("a thread that waits for its page", || page.is_awaited());
    scene.event(2);
    the_eq_goes_on(&scene);
    page.bring();
    reader.until_asleep();
    scene.event(3);
    assert_eq!(reader.end(), Ok(()));
    assert_eq!(page.first_word(), 3);
}

fn a_stalled_poll_delays_no_other_thread() {
    const IN_TIME: &str = "a poll waits for the memory of another one";
    let scene = Scene::new();
    scene.complete(1);
    let add = |scene: &Scene| {
        let add = abi::KFABRIC_CNTR_ADD;
        scene.file.cntr_modify(scene.cntr, add, 1).expect("add");
    };
    add(&scene);
    let page = Missing::new();
    let poller = stall(&scene, &page, |scene, addr| scene.poll_to(addr, 4));
    // The call has reported no member yet.
    let reported = others(&scene, Scene::poll).expect(IN_TIME);
    assert_eq!(reported, [CQ_CONTEXT, CNTR_CONTEXT]);
    let reported = others(&scene, Scene::poll).expect(IN_TIME);
    assert_eq!(reported, [CQ_CONTEXT]);
    others(&scene, |scene| scene.member(scene.cq, true)).expect(IN_TIME);
    add(&scene);
    let reported = others(&scene, Scene::poll).expect(IN_TIME);
    assert_eq!(reported, [CNTR_CONTEXT]);
    others(&scene, |scene| scene.member(scene.cq, false)).expect(IN_TIME);
    assert!(!poller.is_finished());
    page.bring();
    assert_eq!(poller.end(), Ok(1));
    assert_eq!(page.first_word(), CQ_CONTEXT);
}

/// A process in which one thread waits for its page, in the call that its first line names.
fn stalled() {
    let call = line();
    let scene = Scene::new();
    scene.complete(1);
    scene.event(1);
    let page = Missing::new();
    let _thread = match call.as_str() {
        "cq read" => stall(&scene, &page, |scene, addr| scene.cq_read(addr, 0, 0)),
        "cq sread" => stall(&scene, &page, |scene, addr| {
            scene.cq_read(addr, 0, abi::KFABRIC_FOREVER)
        }),
        "eq read" => stall(&scene, &page, |scene, addr| {
            scene.eq_read(addr, 0).map(|()| 1)
        }),
        "eq sread" => stall(&scene, &page, |scene, addr| {
            scene.eq_read(addr, abi::KFABRIC_FOREVER).map(|()| 1)
        }),
        "poll" => stall(&scene, &page, |scene, addr| scene.poll_to(addr, 4)),
        other => panic!("{other}"),
    };
    println!("stalled");
    // Until it is killed, or the test has ended.
    line();
    std::process::abort();
}

fn a_stalled_reader_can_be_killed() {
    for call in ["cq read", "cq sread", "eq read", "eq sread", "poll"] {
        let mut process = Process::in_role("stalled");
        process.tell(call);
        assert_eq!(process.read_line(), "stalled", "{call}");
        process.kill();
        until(call, || process.has_ended());
    }
}

/// Entries of the largest CQ; its ring takes 4 MiB.
const ENTRIES: u32 = 65_536;

/// A process with an endpoint that has a CQ of [`ENTRIES`].
fn largest() {
    let host = Host::with(&Options {
        cq_entries: ENTRIES,
        ..Options::default()
    });
    println!("{}", host.ep.name().expect("name"));
    line();
}

/// The objects of a process are charged to its user. They go with the process, though a call of
/// another user has sent it a message, and now waits for the page of its next operation.
fn a_stalled_poster_keeps_nothing_of_a_peer_that_has_ended() {
    let scene = Scene::new();
    open_to_all();
    let mut stalled = Vec::new();
    // If the objects stayed, the user could have no more than this.
    for round in 0..LIMIT / 4 + 1 {
        let mut target = Process::start(program("largest").uid(USER));
        let reported = target.read_line();
        let addr = reported.parse::<std::net::SocketAddr>();
        let addr = addr.unwrap_or_else(|_| panic!("round {round}: no address: {reported}"));
        let page = Missing::new();
        let poster = stall(&scene, &page, move |scene, at| {
            let peer = scene.file.insert(scene.av, addr.into()).expect("insert");
            let send = data!(kfabric_op: opcode: abi::KFABRIC_OP_SEND, peer);
            let inject = with!(send; flags: abi::KFI_INJECT);
            // Bytes that the call takes along, and bytes that it pins.
            let len = if round % 2 == 0 { 8 } else { PAGE as u64 };
            let buf = at;
            scene
                .file
                .post(scene.ep, &[inject, abi::kfabric_op { buf, len, ..send }])
        });
        target.kill();
        until("the end of a process", || target.has_ended());
        stalled.push((page, poster));
    }
    for (page, poster) in stalled {
        assert!(!poster.is_finished());
        page.bring();
        let (arg, result) = poster.end();
        assert_eq!(result, Ok(()));
        assert_eq!((arg.done, arg.error), (1, Errno::EHOSTUNREACH.raw() as u32));
    }
}
