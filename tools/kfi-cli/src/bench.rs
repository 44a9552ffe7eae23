// SPDX-License-Identifier: GPL-2.0
//! `kfi bench`: short measurements, for a first look at a machine.
//!
//! Two threads, each with an endpoint of its own, use one link. Each
//! measurement takes as long as `--time` says. Messages are sent through the
//! same [`Player`] as those of `kfi pingpong`.

use std::{
    hint::black_box,
    thread,
    time::{Duration, Instant},
};

use kfi::{Access, AuthKey, Buffer, CompFlags, Deadline, Device, Domain, Endpoint, Entry, Op};
use serde::Serialize;

use crate::{
    args::{self, Completion, Measure, Mode, WaitBy},
    error::{Doing, Error, Result},
    link,
    out::Out,
    pingpong::{
        latency::Latency,
        player::{self, Foul, Game, Player},
        trace::Trace,
    },
    table::Table,
    text,
};

/// Longest silence of the other thread.
const PATIENCE: Duration = Duration::from_secs(10);

/// Bytes of a large operation.
const LARGE: usize = 1 << 20;

/// Number of large operations under way.
const WINDOW: usize = 8;

/// Number of messages in one post.
const BATCH: usize = 64;

/// One result.
#[derive(Debug, Serialize)]
pub(crate) struct BenchResult {
    name: &'static str,
    value: f64,
    unit: &'static str,
    better: &'static str,
    #[serde(skip)]
    about: &'static str,
}

impl BenchResult {
    fn less(name: &'static str, value: f64, unit: &'static str, about: &'static str) -> Self {
        let (value, better) = (text::rounded(value), "lower");
        Self {
            name,
            value,
            unit,
            better,
            about,
        }
    }

    fn more(name: &'static str, value: f64, unit: &'static str, about: &'static str) -> Self {
        let (value, better) = (text::rounded(value), "higher");
        Self {
            name,
            value,
            unit,
            better,
            about,
        }
    }
}

/// Runs `kfi bench`.
pub(crate) fn run(args: &args::Bench, out: &mut Out) -> Result<()> {
    let device = link::open()?;
    let link = link::choose(&device, args.link.as_deref(), None, None)?;
    let domain =
        player::domain(&device, &link.name).doing(format!("open a domain on {}", link.name))?;
    let all = [
        Measure::Calls,
        Measure::Latency,
        Measure::Bandwidth,
        Measure::Rate,
    ];
    let wanted = match args.what.as_slice() {
        [] => &all,
        some => some,
    };
    let mut results = Vec::new();
    for what in wanted {
        results.extend(match what {
            Measure::Calls => calls(&device, &domain, args.time),
            Measure::Latency => latency(&domain, args.time),
            Measure::Bandwidth => bandwidth(&domain, args.time),
            Measure::Rate => rate(&domain, args.time),
        }?);
    }
    if out.is_json() {
        return out.document(&serde_json::json!({ "link": link.name, "results": results }));
    }
    out.table(&table(&results))
}

fn table(results: &[BenchResult]) -> Table {
    let mut table = Table::new(&["NAME", ">VALUE", "UNIT", "WHAT"]);
    for result in results {
        let value = if result.value >= 1000.0 {
            format!("{:.0}", result.value)
        } else {
            format!("{:.1}", result.value)
        };
        table.cells(&[&result.name, &value, &result.unit, &result.about]);
    }
    table
}

/// Repeats `what` for about `time`; returns the nanoseconds of one.
fn each(time: Duration, mut what: impl FnMut() -> kfi::Result<()>) -> kfi::Result<f64> {
    let start = Instant::now();
    let mut count = 0u32;
    loop {
        for _ in 0..256 {
            what()?;
        }
        count += 256;
        let spent = start.elapsed();
        if spent >= time || count > u32::MAX - 256 {
            return Ok(spent.as_secs_f64() * 1e9 / f64::from(count));
        }
    }
}

fn calls(device: &Device, domain: &Domain, time: Duration) -> Result<Vec<BenchResult>> {
    let measure = || -> kfi::Result<_> {
        let cntr = domain.cntr().open()?;
        let cq = domain.cq().open()?;
        let nop = each(time, || device.nop())?;
        let load = each(time, || {
            black_box(cntr.value());
            Ok(())
        })?;
        let add = each(time, || cntr.add(1))?;
        let mut entry = [Entry::default()];
        let call = each(time, || cq.read(&mut entry).map(drop))?;
        let mut ring = cq.ring()?;
        let mapped = each(time, || ring.read(&mut entry).map(drop))?;
        Ok(vec![
            BenchResult::less("ioctl/empty", nop, "ns", "a call that does nothing"),
            BenchResult::less("cntr/read_mapped", load, "ns", "look at a counter"),
            BenchResult::less("cntr/add", add, "ns", "add to a counter, by call"),
            BenchResult::less("cq/read_empty", call, "ns", "read an empty CQ, by call"),
            BenchResult::less("cq/ring_empty", mapped, "ns", "look at an empty CQ's ring"),
        ])
    };
    measure().doing("measure calls")
}

/// Two players that know each other's addresses.
fn pair(domain: &Domain, wait: WaitBy) -> kfi::Result<(Player, Player)> {
    let game = Game {
        mode: Mode::Msg,
        completion: Completion::Cq,
        wait,
        size: 8,
        window: None,
        timeout: PATIENCE,
        trace: false,
        auth_key: AuthKey::NONE,
    };
    let mut one = Player::open(domain, game, false, None)?;
    let mut two = Player::open(domain, game, true, None)?;
    one.meet(two.name()?, two.region())?;
    two.meet(one.name()?, one.region())?;
    Ok((one, two))
}

fn latency(domain: &Domain, time: Duration) -> Result<Vec<BenchResult>> {
    let mut results = Vec::new();
    for (wait, name, about) in [
        (
            WaitBy::Sread,
            "rdm/lat_8B_sread",
            "one way of 8 bytes, sleeping",
        ),
        (
            WaitBy::Spin,
            "rdm/lat_8B_spin",
            "one way of 8 bytes, spinning",
        ),
    ] {
        let (one, two) = pair(domain, wait).doing("set up two endpoints")?;
        let trips = round_trips(one, two, time)?;
        let median = Latency::of_round_trips(trips).map_or(f64::NAN, |latency| latency.median);
        results.push(BenchResult::less(name, median, "us", about));
    }
    Ok(results)
}

/// Makes round trips for about `time`.
fn round_trips(mut one: Player, mut two: Player, time: Duration) -> Result<Vec<Duration>> {
    // The last message is known only when the time is over: this field has its
    // number then.
    let last = std::sync::atomic::AtomicU64::new(u64::MAX);
    let last = &last;
    let order = std::sync::atomic::Ordering::SeqCst;
    thread::scope(|scope| {
        two.prepare(&mut Trace::none())?;
        let other = scope.spawn(move || -> Result<(), Foul> {
            let mut trace = Trace::none();
            for number in 0.. {
                two.catch(&mut trace)?;
                let end = number >= last.load(order);
                two.throw(number, end, &mut trace)?;
                if end {
                    break;
                }
            }
            Ok(())
        });
        let mut trace = Trace::none();
        let mut trips = Vec::new();
        let start = Instant::now();
        for number in 0.. {
            let end = start.elapsed() >= time;
            if end {
                last.store(number, order);
            }
            let begin = Instant::now();
            one.throw(number, false, &mut trace)?;
            one.catch(&mut trace)?;
            trips.push(begin.elapsed());
            if end {
                break;
            }
        }
        joined(other.join())?;
        // The first round trips find cold caches.
        let cold = (trips.len() / 2).min(10);
        trips.drain(..cold);
        Ok(trips)
    })
}

/// The result of a thread.
fn joined<E: Into<Error>>(result: thread::Result<Result<(), E>>) -> Result<()> {
    match result {
        Ok(result) => result.map_err(Into::into),
        Err(_) => Err(Error::with_help(
            "a thread of the measurement failed",
            "this is a defect of kfi",
        )),
    }
}

fn bandwidth(domain: &Domain, time: Duration) -> Result<Vec<BenchResult>> {
    let send = stream(domain, time, LARGE, WINDOW, 1)?;
    let write = writes(domain, time).doing("measure writes")?;
    Ok(vec![
        BenchResult::more("rdm/bw_1MiB", send / 1e6, "MB/s", "messages of 1 MiB"),
        BenchResult::more(
            "rma/write_bw_1MiB",
            write / 1e6,
            "MB/s",
            "writes of 1 MiB to a peer's memory",
        ),
    ])
}

fn rate(domain: &Domain, time: Duration) -> Result<Vec<BenchResult>> {
    let bytes = stream(domain, time, 8, 4 * BATCH, BATCH)?;
    Ok(vec![BenchResult::more(
        "rdm/rate_8B",
        bytes / 8.0,
        "1/s",
        "messages of 8 bytes, 64 in a post",
    )])
}

/// Writes 1 MiB repeatedly; returns bytes per second.
fn writes(domain: &Domain, time: Duration) -> kfi::Result<f64> {
    let (one, two) = pair(domain, WaitBy::Sread)?;
    let (from, into) = (Buffer::new(LARGE)?, Buffer::new(LARGE)?);
    from.fill(1);
    into.fill(0);
    let target = domain.mr(&into).access(Access::REMOTE_WRITE).open()?;
    let source = domain.mr(&from).access(Access::WRITE).open()?;
    let (ep, cq, peer) = one.parts();
    let start = Instant::now();
    let mut count = 0u32;
    while start.elapsed() < time {
        let write = Op::write(peer, source.slice(..), target.remote(0));
        ep.post_one(&write.flags(kfi::OpFlags::COMPLETION))?;
        cq.next(PATIENCE)?;
        count += 1;
    }
    let rate = f64::from(count) * LARGE as f64 / start.elapsed().as_secs_f64();
    drop(two);
    Ok(rate)
}

/// Posts all of `ops`, and reads completions when there is no room.
fn post_all(
    ep: &Endpoint,
    ops: &[Op<'_>],
    mut make_room: impl FnMut() -> kfi::Result<()>,
) -> kfi::Result<()> {
    let mut left = ops;
    while !left.is_empty() {
        match ep.post(left) {
            Ok(posted) => left = &left[posted.done..],
            Err(error) if error.is_again() => make_room()?,
            Err(error) => return Err(error),
        }
    }
    Ok(())
}

/// Sends messages of `size` from one thread to the other, `window` of them
/// posted at the receiver, `batch` in a post; returns bytes per second.
fn stream(
    domain: &Domain,
    time: Duration,
    size: usize,
    window: usize,
    batch: usize,
) -> Result<f64> {
    let (one, two) = pair(domain, WaitBy::Sread).doing("set up two endpoints")?;
    let buffers = (Buffer::new(size * window), Buffer::new(size * batch));
    let (into, from) = (
        buffers.0.doing("get memory")?,
        buffers.1.doing("get memory")?,
    );
    into.fill(0);
    from.fill(1);
    let end = std::sync::atomic::AtomicU64::new(u64::MAX);
    let end = &end;
    let order = std::sync::atomic::Ordering::SeqCst;
    thread::scope(|scope| {
        let receiver = scope.spawn(|| -> kfi::Result<f64> {
            let (ep, cq, _) = two.parts();
            let receives: Vec<Op<'_>> = (0..window)
                .map(|at| Op::recv(into.slice(at * size..(at + 1) * size)))
                .collect();
            post_all(ep, &receives, || Ok(()))?;
            let mut entries = vec![Entry::default(); window];
            let (mut got, mut start) = (0u64, None);
            loop {
                let count = cq.sread(&mut entries, Deadline::after(PATIENCE))?;
                let start = *start.get_or_insert_with(Instant::now);
                got += entries[..count]
                    .iter()
                    .filter(|e| e.flags.contains(CompFlags::RECV))
                    .count() as u64;
                if got >= end.load(order) || count == 0 {
                    return Ok(got as f64 * size as f64 / start.elapsed().as_secs_f64());
                }
                post_all(ep, &receives[..count], || Ok(()))?;
            }
        });
        let (ep, _, peer) = one.parts();
        let sends: Vec<Op<'_>> = (0..batch)
            .map(|at| Op::send(peer, from.slice(at * size..(at + 1) * size)))
            .collect();
        let full = || {
            thread::yield_now();
            Ok(())
        };
        let (begin, mut sent) = (Instant::now(), 0);
        while begin.elapsed() < time && !receiver.is_finished() {
            post_all(ep, &sends, full).doing("send")?;
            sent += batch as u64;
        }
        // One more message, which the receiver takes as the last.
        end.store(sent + 1, order);
        post_all(ep, &sends[..1], full).doing("send")?;
        match receiver.join() {
            Ok(rate) => rate.doing("receive"),
            Err(_) => Err(Error::with_help(
                "the receiving thread failed",
                "this is a defect of kfi",
            )),
        }
    })
}

#[cfg(test)]
pub(crate) mod tests {
    use super::*;

    pub(crate) fn result() -> BenchResult {
        BenchResult::less("ioctl/empty", 512.34567, "ns", "a call that does nothing")
    }

    #[test]
    fn json_has_the_documented_keys() {
        assert_eq!(
            serde_json::to_string(&result()).unwrap(),
            r#"{"name":"ioctl/empty","value":512.346,"unit":"ns","better":"lower"}"#
        );
    }

    #[test]
    fn text_shows_name_value_and_unit() {
        let rate = BenchResult::more("rdm/rate_8B", 123456.7, "1/s", "messages");
        assert_eq!(
            table(&[result(), rate]).to_string(),
            "NAME          VALUE  UNIT  WHAT\n\
             ioctl/empty   512.3  ns    a call that does nothing\n\
             rdm/rate_8B  123457  1/s   messages\n"
        );
    }

    #[test]
    fn each_repeats_in_batches_until_the_time_is_over() {
        let mut count = 0;
        let nanos = each(Duration::from_millis(1), || {
            count += 1;
            Ok(())
        });
        assert!(nanos.unwrap() > 0.0);
        assert!(count >= 256 && count % 256 == 0);
    }
}
