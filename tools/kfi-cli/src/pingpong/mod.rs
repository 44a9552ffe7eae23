// SPDX-License-Identifier: GPL-2.0
//! `kfi pingpong`: two programs exchange messages.
//!
//! [`control`] makes the two programs find each other, [`player`] is one side of
//! the game, [`trace`] shows its steps, [`latency`] its statistics. [`verbs`]
//! plays the game of other programs.

pub(crate) mod control;
pub(crate) mod latency;
pub(crate) mod player;
pub(crate) mod trace;
pub(crate) mod verbs;

use std::{
    collections::VecDeque,
    net::SocketAddr,
    time::{Duration, Instant},
};

use kfi::{Domain, FiAddr, Link};
use serde::Serialize;

use crate::{
    args::{Completion, Mode, PORT, Pingpong, WaitBy},
    error::{Doing, Error, Result},
    link,
    out::Out,
    text,
};
use control::{Bye, Control, FromClient, Hello, VERSION, Welcome};
use latency::Latency;
use player::{Foul, Game, Player};
use trace::Trace;

/// The result of a game, in JSON.
#[derive(Debug, Serialize)]
pub(crate) struct ResultJson {
    event: &'static str,
    role: &'static str,
    link: String,
    peer: SocketAddr,
    mode: Mode,
    completion: Completion,
    wait: WaitBy,
    size: u64,
    iterations: u64,
    seconds: f64,
    /// Of one way; only the client knows it.
    latency_us: Option<Latency>,
    /// Of both ways together.
    bytes_per_second: f64,
}

/// Runs `kfi pingpong`.
pub(crate) fn run(args: &Pingpong, out: &mut Out) -> Result<()> {
    if args.mode == Mode::Rma && args.size == 0 {
        return Err(Error::with_help(
            "a write of 0 bytes shows nothing",
            "give --size 1 or more",
        ));
    }
    let device = link::open()?;
    let domain_on = |link: &Link| {
        player::domain(&device, &link.name).doing(format!("open a domain on {}", link.name))
    };
    if let Some(verbs) = args.verbs {
        let link = link::choose(
            &device,
            args.link.as_deref(),
            args.bind.map(|at| at.or_port(0)),
        )?;
        return verbs::run(args, verbs, &link, &domain_on(&link)?, out);
    }
    let addr = args.bind.or(args.server).map(|place| place.or_port(PORT));
    let link = link::choose(&device, args.link.as_deref(), addr)?;
    let domain = domain_on(&link)?;
    match args.server {
        Some(server) => client(args, server.or_port(PORT), &link, &domain, out),
        None => server(args, &link, &domain, out),
    }
}

impl From<Foul> for Error {
    fn from(foul: Foul) -> Self {
        match foul {
            Foul::Kfi(source) => Self::Kfi {
                doing: "continue the exchange".to_owned(),
                source: Box::new(source),
            },
            Foul::Output(error) => *error,
            Foul::Silent(_) => Self::with_help(
                foul.to_string(),
                "is it still running? --timeout gives it longer",
            ),
            Foul::Wrong(_) => Self::with_help(foul.to_string(), "this is a defect of the module"),
        }
    }
}

fn client(
    args: &Pingpong,
    server: SocketAddr,
    link: &Link,
    domain: &Domain,
    out: &mut Out,
) -> Result<()> {
    let game = Game {
        mode: args.mode,
        completion: args.completion.unwrap_or_default(),
        wait: args.wait.unwrap_or_default(),
        size: args.size as usize,
        timeout: args.timeout,
        trace: args.trace,
        auth_key: args.auth_key.unwrap_or_default(),
    };
    let warmup = if args.trace { 0 } else { args.warmup };
    // An address of the server's family, if the link has one.
    let host = if server.is_ipv4() {
        link.ipv4
    } else {
        link.ipv6
    };
    let bind = args.bind.map(|place| place.or_port(0));
    let host = bind.or(host.map(|addr| SocketAddr::new(addr.ip(), 0)));
    let control = Control::open(domain, host, game.auth_key)?;
    let mut player = Player::open(domain, game, false, host).doing("set up the endpoint")?;
    let peer = control.meet(server)?;
    let hello = Hello {
        version: VERSION,
        control: control.name()?,
        data: player.name().doing("get the endpoint's address")?,
        region: player.region(),
        mode: game.mode,
        completion: game.completion,
        wait: game.wait,
        size: args.size,
        count: warmup + args.iterations,
        trace: args.trace,
    };
    control.send(peer, &FromClient::Hello(hello))?;
    let (data, region) = match control.receive(Some(args.timeout))? {
        Some(Ok(Welcome::Play { data, region })) => (data, region),
        Some(Ok(Welcome::No { why })) => {
            return Err(Error::with_help(
                format!("the server refuses: {why}"),
                "look at the server's output, and try something smaller",
            ));
        }
        Some(Err(why)) => {
            return Err(Error::with_help(
                format!("the answer of {server} cannot be read: {why}"),
                "is that a kfi pingpong of the same version?",
            ));
        }
        None => {
            return Err(Error::with_help(
                format!("no answer from {server} in {:?}", args.timeout),
                "is a kfi pingpong there that is not busy with another client?",
            ));
        }
    };
    player
        .meet(data, region)
        .doing("add the server's address")?;
    let (trips, time) = {
        let mut trace = Trace::new("client", out, args.trace, game.mode);
        let mut trips = Vec::with_capacity(args.iterations as usize);
        let mut begin = Instant::now();
        for number in 0..warmup + args.iterations {
            let start = Instant::now();
            if number == warmup {
                begin = start;
            }
            player.throw(number, false, &mut trace)?;
            player.catch(&mut trace)?;
            if number >= warmup {
                trips.push(start.elapsed());
            }
        }
        let time = begin.elapsed();
        player.finish(&mut trace)?;
        (trips, time)
    };
    let answers = player.caught;
    control.send(peer, &FromClient::Bye(Bye { answers }))?;
    let latency = Latency::of_round_trips(trips);
    report(
        "client",
        link,
        server,
        &game,
        args.iterations,
        time,
        latency,
        out,
    )
}

fn server(args: &Pingpong, link: &Link, domain: &Domain, out: &mut Out) -> Result<()> {
    let addr = link::server_addr(link, args.bind, PORT)?;
    let control = Control::open(domain, Some(addr), args.auth_key.unwrap_or_default())?;
    let addr = control.name()?;
    if out.is_json() {
        out.document(&serde_json::json!({
            "event": "listening", "role": "server", "link": link.name, "address": addr,
        }))?;
    } else {
        out.line(format!(
            "server  at {}, waiting for: kfi pingpong {addr}",
            link::place(addr, &link.name)
        ))?;
    }
    let mut waiting = VecDeque::new();
    loop {
        let hello = match waiting.pop_front() {
            Some(hello) => hello,
            None => match control.receive(None)? {
                Some(Ok(FromClient::Hello(hello))) => hello,
                // Not a client, or one that left too late.
                _ => continue,
            },
        };
        let Ok(peer) = control.meet(hello.control) else {
            continue;
        };
        let mut server = Server {
            args,
            control: &control,
            link,
            domain,
            waiting: &mut waiting,
        };
        let served = server.serve(&hello, peer, out);
        control.part(peer)?;
        match served {
            Err(error) if args.keep && !error.is_broken_pipe() => error.report(out.is_json()),
            served => served?,
        }
        if !args.keep {
            return Ok(());
        }
    }
}

/// A server, and the clients that wait for it.
struct Server<'a> {
    args: &'a Pingpong,
    control: &'a Control,
    link: &'a Link,
    domain: &'a Domain,
    waiting: &'a mut VecDeque<Hello>,
}

impl Server<'_> {
    /// Plays one game with a client.
    fn serve(&mut self, hello: &Hello, peer: FiAddr, out: &mut Out) -> Result<()> {
        let args = self.args;
        let game = Game {
            mode: hello.mode,
            completion: args.completion.unwrap_or(hello.completion),
            wait: args.wait.unwrap_or(hello.wait),
            size: hello.size as usize,
            timeout: args.timeout,
            trace: args.trace || hello.trace,
            auth_key: args.auth_key.unwrap_or_default(),
        };
        if hello.version != VERSION {
            let why = format!("version {VERSION} here, {} there", hello.version);
            return self.refuse(hello, peer, why);
        }
        let host = self.control.name()?;
        let opened = Player::open(self.domain, game, true, Some(host)).and_then(|mut player| {
            player.meet(hello.data, hello.region)?;
            let data = player.name()?;
            Ok((player, data))
        });
        let (mut player, data) = match opened {
            Ok(opened) => opened,
            Err(error) => return self.refuse(hello, peer, error.to_string()),
        };
        let mut trace = Trace::new("server", out, game.trace, game.mode);
        player.prepare(&mut trace)?;
        let region = player.region();
        self.control.send(peer, &Welcome::Play { data, region })?;
        let start = Instant::now();
        for number in 0..hello.count {
            player.catch(&mut trace)?;
            player.throw(number, number + 1 == hello.count, &mut trace)?;
        }
        let time = start.elapsed();
        player.finish(&mut trace)?;
        self.wait_for_bye(hello)?;
        report(
            "server",
            self.link,
            hello.control,
            &game,
            hello.count,
            time,
            None,
            out,
        )
    }

    /// Tells a client that its request is refused, and shows it here.
    fn refuse(&self, hello: &Hello, peer: FiAddr, why: String) -> Result<()> {
        self.control.send(peer, &Welcome::No { why: why.clone() })?;
        Err(Error::with_help(
            format!("cannot serve {}: {why}", hello.control),
            "the client was informed",
        ))
    }

    /// The client says when the last answer has arrived.
    fn wait_for_bye(&mut self, hello: &Hello) -> Result<()> {
        loop {
            match self.control.receive(Some(self.args.timeout))? {
                Some(Ok(FromClient::Bye(bye))) if bye.answers == hello.count => return Ok(()),
                Some(Ok(FromClient::Hello(other))) => self.waiting.push_back(other),
                Some(_) => {}
                None => return Err(Foul::Silent(self.args.timeout).into()),
            }
        }
    }
}

#[expect(
    clippy::too_many_arguments,
    reason = "the fields of one line of output"
)]
fn report(
    role: &'static str,
    link: &Link,
    peer: SocketAddr,
    game: &Game,
    iterations: u64,
    time: Duration,
    latency: Option<Latency>,
    out: &mut Out,
) -> Result<()> {
    let bytes = 2.0 * game.size as f64 * iterations as f64;
    let result = ResultJson {
        event: "result",
        role,
        link: link.name.clone(),
        peer,
        mode: game.mode,
        completion: game.completion,
        wait: game.wait,
        size: game.size as u64,
        iterations,
        seconds: time.as_secs_f64(),
        latency_us: latency,
        bytes_per_second: text::rounded(bytes / time.as_secs_f64().max(1e-9)),
    };
    if out.is_json() {
        return out.document(&result);
    }
    out.text(&summary(&result, game.trace))
}

/// The result as text; after a trace without times, because they would be those
/// of the terminal.
fn summary(result: &ResultJson, traced: bool) -> String {
    let ResultJson {
        role,
        peer,
        mode,
        completion,
        wait,
        iterations,
        ..
    } = result;
    let mut text = format!(
        "{role:<8}{iterations} messages of {} each way with {peer} ({mode}, {completion}, {wait}) \
         in {:.3} s\n",
        text::bytes(result.size),
        result.seconds,
    );
    if let Some(latency) = result.latency_us.as_ref().filter(|_| !traced) {
        let Latency {
            min,
            median,
            p99,
            max,
            ..
        } = latency;
        text.push_str(&format!(
            "{role:<8}one way: median {median:.1} us, least {min:.1}, 99% {p99:.1}, greatest {max:.1}; \
             {}\n",
            text::bytes_per_second(result.bytes_per_second),
        ));
    }
    text
}

#[cfg(test)]
pub(crate) mod tests {
    use super::*;

    pub(crate) fn result() -> ResultJson {
        ResultJson {
            event: "result",
            role: "client",
            link: "roce0".to_owned(),
            peer: "127.0.0.1:7471".parse().unwrap(),
            mode: Mode::Msg,
            completion: Completion::Cq,
            wait: WaitBy::Sread,
            size: 8,
            iterations: 1000,
            seconds: 0.05,
            latency_us: Latency::of_round_trips(vec![Duration::from_micros(50)]),
            bytes_per_second: 320_000.0,
        }
    }

    #[test]
    fn json_has_the_documented_keys() {
        assert_eq!(
            serde_json::to_string(&result()).unwrap(),
            r#"{"event":"result","role":"client","link":"roce0","peer":"127.0.0.1:7471","#
                .to_owned()
                + r#""mode":"msg","completion":"cq","wait":"sread","size":8,"iterations":1000,"#
                + r#""seconds":0.05,"latency_us":{"min":25.0,"median":25.0,"p99":25.0,"max":25.0,"#
                + r#""mean":25.0},"bytes_per_second":320000.0}"#
        );
    }

    #[test]
    fn text_shows_the_result() {
        assert_eq!(
            summary(&result(), false),
            "client  1000 messages of 8 B each way with 127.0.0.1:7471 (msg, cq, sread) in 0.050 s\n\
             client  one way: median 25.0 us, least 25.0, 99% 25.0, greatest 25.0; 320 kB/s\n"
        );
        let server = ResultJson {
            latency_us: None,
            ..result()
        };
        assert_eq!(summary(&server, false).lines().count(), 1);
    }
}
