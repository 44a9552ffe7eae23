// SPDX-License-Identifier: GPL-2.0
//! The server of `kfi pingpong`: does what its clients ask for, one after the other.
//!
//! What a client asks for has the limits of the command's own arguments ([`Hello::refusal`]). With
//! `--keep` no message and no client ends the server.

use std::{collections::VecDeque, net::SocketAddr, time::Instant};

use kfi::{Domain, Link};

use super::{
    Ends,
    control::{Control, FromClient, Hello, Peer, Welcome},
    player::{Foul, Game, Player},
    result::ResultJson,
    trace::Trace,
};
use crate::{
    args::{Completion, Mode, PORT, Pingpong},
    error::{Error, Result},
    link::{self, from_peer},
    out::Out,
    text,
};

/// Clients that wait until the server has time for them; more have to ask again.
const WAITING: usize = 64;

/// Runs the server.
pub(super) fn run(args: &Pingpong, ends: &Ends<'_>, out: &mut Out) -> Result<()> {
    let link = ends.link;
    let addr = link::server_addr(link, ends.own, PORT)?;
    let control = Control::open(ends.domain, Some(addr), args.auth_key.unwrap_or_default())?;
    let addr = control.name()?;
    if out.is_json() {
        out.document(&serde_json::json!({
            "event": "listening", "role": "server", "link": link.name, "address": addr,
        }))?;
    } else {
        out.line(format!(
            "server  at {}, waiting for: kfi pingpong {}",
            link::place(addr, &link.name),
            text::for_client(addr)
        ))?;
    }
    let mut server = Server {
        args,
        control: &control,
        link,
        domain: ends.domain,
        waiting: VecDeque::new(),
    };
    // The client that has announced another game.
    let mut expected = None;
    loop {
        let served = match server.next(expected.take())? {
            Next::Client(hello) => {
                expected = hello.more.then_some(hello.control);
                server.serve_at(&hello, out)
            }
            Next::Stray => continue,
            Next::Silence => Err(Foul::Silent(args.timeout).into()),
        };
        match served {
            Err(error) if args.keep && !error.is_broken_pipe() => {
                error.report(out.is_json());
                expected = None;
            }
            served => served?,
        }
        if !args.keep && expected.is_none() {
            return Ok(());
        }
    }
}

/// What a server gets next.
enum Next {
    Client(Hello),
    /// A message of another program, or of a client that has left too late.
    Stray,
    /// The client that has announced another game does not ask for it.
    Silence,
}

/// A server, and the clients that wait for it.
struct Server<'a> {
    args: &'a Pingpong,
    control: &'a Control,
    link: &'a Link,
    domain: &'a Domain,
    waiting: VecDeque<Hello>,
}

impl Server<'_> {
    /// The next client; or this one, if one is expected.
    fn next(&mut self, expected: Option<SocketAddr>) -> Result<Next> {
        let wanted = |hello: &Hello| expected.is_none_or(|addr| hello.control == addr);
        let waiting = self.waiting.iter().position(wanted);
        if let Some(hello) = waiting.and_then(|at| self.waiting.remove(at)) {
            return Ok(Next::Client(hello));
        }
        let begin = Instant::now();
        loop {
            let left = self.args.timeout.saturating_sub(begin.elapsed());
            match self.control.receive(None, expected.map(|_| left))? {
                Some(Ok(FromClient::Hello(hello))) => {
                    let hello = self.adopt(hello);
                    if wanted(&hello) {
                        return Ok(Next::Client(hello));
                    }
                    self.keep_waiting(hello);
                }
                None => return Ok(Next::Silence),
                Some(_) if expected.is_none() => return Ok(Next::Stray),
                Some(_) => {}
            }
        }
    }

    /// A request with its addresses seen from this host.
    fn adopt(&self, hello: Hello) -> Hello {
        Hello {
            control: from_peer(self.link, hello.control),
            data: from_peer(self.link, hello.data),
            ..hello
        }
    }

    fn keep_waiting(&mut self, hello: Hello) {
        if self.waiting.len() < WAITING {
            self.waiting.push_back(hello);
        }
    }

    /// Plays one game with a client, whose address is known during it.
    fn serve_at(&mut self, hello: &Hello, out: &mut Out) -> Result<()> {
        let peer = self.control.meet(hello.control)?;
        let served = self.serve(hello, peer, out);
        let parted = self.control.part(peer);
        served.and(parted)
    }

    /// Plays one game with a client.
    fn serve(&mut self, hello: &Hello, peer: Peer, out: &mut Out) -> Result<()> {
        let args = self.args;
        if let Some(why) = hello.refusal(args.max_size) {
            return self.refuse(hello, peer, why);
        }
        // A counter tells of writes that nobody waits for one by one.
        let completion = match (hello.window, hello.mode) {
            (Some(_), Mode::Rma) => Completion::Cntr,
            (Some(_), _) => Completion::Cq,
            (None, _) => args.completion.unwrap_or(hello.completion),
        };
        let game = Game {
            mode: hello.mode,
            completion,
            wait: args.wait.unwrap_or(hello.wait),
            size: hello.size as usize,
            window: hello.window,
            timeout: args.timeout,
            trace: (args.trace || hello.trace) && hello.window.is_none(),
            auth_key: args.auth_key.unwrap_or_default(),
        };
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
        let posted = match game.window {
            None => {
                player.prepare(&mut trace)?;
                0
            }
            Some(_) => player.prepare_all(hello.count)?,
        };
        let region = player.region();
        self.control.send(peer, &Welcome::Play { data, region })?;
        // A client that has left meanwhile does not hold up others.
        self.control.sent(peer)?;
        let mut start = Instant::now();
        if game.window.is_some() {
            player.receive_all(hello.count, posted)?;
        } else {
            for number in 0..hello.count {
                player.catch(&mut trace)?;
                player.throw(number, number + 1 == hello.count, &mut trace)?;
                if number + 1 == hello.warmup {
                    start = Instant::now();
                }
            }
        }
        let time = start.elapsed();
        player.finish(&mut trace)?;
        self.wait_for_bye(hello, peer)?;
        let what = ("server", self.link, hello.control);
        let iterations = hello.count - hello.warmup;
        let result = ResultJson::new(what, &game, iterations, time, None);
        match out.is_json() {
            true => out.document(&result),
            false => out.text(&result.summary(game.trace)),
        }
    }

    /// Tells a client that its request is refused, and shows it here.
    fn refuse(&self, hello: &Hello, peer: Peer, why: String) -> Result<()> {
        self.control.send(peer, &Welcome::No { why: why.clone() })?;
        Err(Error::with_help(
            format!("cannot serve {}: {why}", hello.control),
            "the client was informed",
        ))
    }

    /// The client says when the last answer has arrived.
    fn wait_for_bye(&mut self, hello: &Hello, peer: Peer) -> Result<()> {
        let begin = Instant::now();
        loop {
            let left = self.args.timeout.saturating_sub(begin.elapsed());
            match self.control.receive(Some(peer), Some(left))? {
                Some(Ok(FromClient::Bye(bye))) if bye.answers == hello.count => return Ok(()),
                Some(Ok(FromClient::Hello(other))) => {
                    let other = self.adopt(other);
                    self.keep_waiting(other);
                }
                Some(_) => {}
                None => return Err(Foul::Silent(self.args.timeout).into()),
            }
        }
    }
}
