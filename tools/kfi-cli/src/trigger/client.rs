// SPDX-License-Identifier: GPL-2.0
//! The host that starts the allreduce, and shows what happened.

use std::{
    fs,
    net::SocketAddr,
    time::{Duration, Instant},
};

use kfi::{
    Domain, Link,
    collective::{Group, Ring},
};
use serde::Serialize;

use super::{
    check,
    control::{By, Prepare},
    hosts::{ClockOffset, OtherHost, SAME_CLOCK},
    micros,
    observe::{Fired, Observer, nanos},
    open,
    server::in_turn,
    set_inputs, svg,
    timeline::{self, Timeline},
};
use crate::{
    args::Trigger,
    error::{Doing, Error, Result},
    link::from_peer,
    out::Out,
    pingpong::latency::Latency,
    text,
};

/// The result, in JSON.
#[derive(Debug, Serialize)]
struct ResultJson {
    event: &'static str,
    role: &'static str,
    link: String,
    peer: Option<SocketAddr>,
    endpoints: usize,
    size: usize,
    chunks: usize,
    /// Operations of all endpoints.
    operations: usize,
    iterations: u64,
    /// From the start to the end, without observers.
    deferred_us: Option<Latency>,
    /// The same, posted by programs.
    driven_us: Option<Latency>,
    /// And without operations for the sums.
    adding_us: Option<Latency>,
    /// Of the observed run.
    observed_us: f64,
    /// Times of the other host may be wrong by this.
    clock_error_us: f64,
}

/// Runs the client.
pub(super) fn run(
    args: &Trigger,
    ring: Ring,
    (own, server): (Option<SocketAddr>, Option<SocketAddr>),
    link: &Link,
    domain: &Domain,
    out: &mut Out,
) -> Result<()> {
    let group = open(domain, link, ring, 0, own).doing("open the endpoints")?;
    let addresses = group.addresses().doing("get the endpoints' addresses")?;
    let mut client = Client {
        args,
        group,
        other: None,
        offset: SAME_CLOCK,
        epoch: Instant::now(),
        run: 0,
    };
    let all = match server {
        Some(server) => {
            let (other, theirs) =
                OtherHost::meet(domain, own, server, args.timeout, ring, addresses.clone())?;
            let theirs: Vec<_> = { theirs.into_iter() }
                .map(|addr| from_peer(link, addr))
                .collect();
            client.offset = other.compare_clocks(client.epoch)?;
            client.other = Some(other);
            in_turn(&addresses, &theirs)
        }
        None => addresses,
    };
    client
        .group
        .meet(&all)
        .doing("add the endpoints' addresses")?;

    let deferred = client.times(By::Counters)?;
    let observed = client.once(By::Counters, true)?;
    let (driven, adding) = match args.compare {
        true => (client.times(By::Programs)?, client.times(By::Adding)?),
        false => (Vec::new(), Vec::new()),
    };
    if let Some(other) = &client.other {
        other.bye()?;
    }
    let result = ResultJson {
        event: "result",
        role: "client",
        link: link.name.clone(),
        peer: server,
        endpoints: ring.ranks(),
        size: ring.words() * 8,
        chunks: ring.chunks(),
        operations: { 0..ring.ranks() }
            .map(|rank| ring.plan(rank).steps.len())
            .sum(),
        iterations: args.iterations,
        deferred_us: Latency::of_times(deferred),
        driven_us: Latency::of_times(driven),
        adding_us: Latency::of_times(adding),
        observed_us: micros(observed.time),
        clock_error_us: micros(client.offset.error),
    };
    let timeline = Timeline::new(ring, observed.fired, observed.time);
    if let Some(path) = &args.svg {
        fs::write(path, svg::draw(&timeline, &title(&result))).map_err(|source| Error::Io {
            doing: "write the picture",
            source,
        })?;
    }
    show(&result, &timeline, out)
}

struct Client<'a> {
    args: &'a Trigger,
    group: Group,
    other: Option<OtherHost>,
    offset: ClockOffset,
    epoch: Instant,
    /// Number of the next run.
    run: u64,
}

/// A run.
struct Run {
    /// From the addition that starts it until the program knows that it has ended here.
    time: Duration,
    /// The observations, in nanoseconds since the start.
    fired: Vec<Fired>,
}

impl Client<'_> {
    /// One allreduce.
    fn once(&mut self, by: By, observed: bool) -> Result<Run> {
        let run = self.run;
        self.run += 1;
        set_inputs(&self.group, run);
        if let Some(other) = &self.other {
            other.prepare(Prepare { run, by, observed })?;
        }
        self.group
            .prepare(by.into())
            .doing("queue the operations")?;
        let timeout = self.args.timeout;
        let observer = observed.then(|| Observer::start(&self.group, self.epoch, timeout));
        let (start, begin) = (nanos(self.epoch), Instant::now());
        self.group.start().doing("start the operations")?;
        self.group.finish(timeout).doing("finish the allreduce")?;
        let time = begin.elapsed();
        check(&self.group, run)
            .map_err(|error| Error::with_help(error, "this is a defect of the module"))?;
        let mut fired = observer.map_or(Vec::new(), Observer::join);
        let end = u64::try_from(time.as_nanos()).unwrap_or(u64::MAX);
        for fired in &mut fired {
            // All of this host happened before the end of the run, also if it was seen later.
            fired.ns = fired.ns.saturating_sub(start).min(end);
        }
        if let Some(other) = &self.other {
            let theirs = other.finish(self.offset)?.into_iter();
            fired.extend(theirs.map(|fired| Fired {
                ns: fired.ns.saturating_sub(start),
                ..fired
            }));
        }
        fired.sort_by_key(|fired| fired.ns);
        Ok(Run { time, fired })
    }

    /// The times of as many runs as wanted, without observers.
    fn times(&mut self, by: By) -> Result<Vec<Duration>> {
        // The first one makes the connections, and touches the memory.
        self.once(by, false)?;
        { 0..self.args.iterations }
            .map(|_| Ok(self.once(by, false)?.time))
            .collect()
    }
}

fn title(result: &ResultJson) -> String {
    let hosts = match result.peer {
        Some(_) => "on two hosts",
        None => "on one host",
    };
    format!(
        "allreduce of {} over {} endpoints {hosts}",
        text::bytes(result.size as u64),
        result.endpoints
    )
}

fn show(result: &ResultJson, timeline: &Timeline, out: &mut Out) -> Result<()> {
    if out.is_json() {
        for fired in &timeline.fired {
            out.document(&timeline::document(fired, timeline.hosts()))?;
        }
        return out.document(result);
    }
    out.text(&summary(result))?;
    out.text(&timeline.text())
}

/// The result as text.
fn summary(result: &ResultJson) -> String {
    let first = format!(
        "{}, {} {}: {} operations, queued before the start",
        title(result),
        result.chunks,
        if result.chunks == 1 {
            "chunk"
        } else {
            "chunks"
        },
        result.operations
    );
    let mut text = text::wrapped(&first, 4) + "\n";
    let mut line = |times: &Option<Latency>, what: &str| {
        if let Some(times) = times {
            let line = format!(
                "{what}: median {:.1} us, least {:.1}, greatest {:.1} (of {})",
                times.median, times.min, times.max, result.iterations
            );
            text.push_str(&text::wrapped(&line, 4));
            text.push('\n');
        }
    };
    line(
        &result.deferred_us,
        "one addition starts them, the program sleeps until the end",
    );
    line(
        &result.driven_us,
        "the same operations, posted by a program that reads completions",
    );
    line(
        &result.adding_us,
        "the same, but the program adds by itself",
    );
    text.push_str("every endpoint has the right sum\n\n");
    text.push_str(&format!(
        "One more run, while a thread reads the counters all the time: {:.1} us. The times are those\n\
         at which it found them changed",
        result.observed_us
    ));
    if result.peer.is_some() {
        text.push_str(&format!(
            "; those of the other host may be wrong by {:.1} us",
            result.clock_error_us
        ));
    }
    text.push_str(".\n\n");
    text
}

#[cfg(test)]
pub(crate) mod tests {
    use super::*;

    fn example(peer: Option<&str>) -> ResultJson {
        let times = vec![Duration::from_micros(100); 3];
        ResultJson {
            event: "result",
            role: "client",
            link: "roce0".to_owned(),
            peer: peer.map(|peer| peer.parse().unwrap()),
            endpoints: 4,
            size: 8,
            chunks: 1,
            operations: 17,
            iterations: 3,
            deferred_us: Latency::of_times(times),
            driven_us: None,
            adding_us: None,
            observed_us: 150.0,
            clock_error_us: 12.5,
        }
    }

    pub(crate) fn result() -> serde_json::Value {
        serde_json::json!(example(Some("127.0.0.1:7472")))
    }

    #[test]
    fn the_summary_says_what_was_measured() {
        assert_eq!(
            summary(&example(None)),
            "allreduce of 8 B over 4 endpoints on one host, 1 chunk: 17 operations, queued before the \
             start\n\
             one addition starts them, the program sleeps until the end: median 100.0 us, least \
             100.0, greatest\n    100.0 (of 3)\n\
             every endpoint has the right sum\n\n\
             One more run, while a thread reads the counters all the time: 150.0 us. The times are \
             those\nat which it found them changed.\n\n"
        );
        let two = summary(&example(Some("127.0.0.1:7472")));
        assert!(two.contains("on two hosts"), "{two}");
        assert!(two.contains("may be wrong by 12.5 us"), "{two}");
    }
}
