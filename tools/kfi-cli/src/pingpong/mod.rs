// SPDX-License-Identifier: GPL-2.0
//! `kfi pingpong`: two programs exchange messages.
//!
//! [`control`] makes the two programs find each other, [`player`] is one side of
//! the game, [`trace`] shows its steps, [`latency`] its statistics, [`result`] what
//! came out. The client is here, and [`server`] is the other one. [`verbs`] plays the
//! game of other programs.

pub(crate) mod control;
pub(crate) mod latency;
pub(crate) mod player;
pub(crate) mod result;
mod server;
pub(crate) mod trace;
pub(crate) mod verbs;

use std::{
    net::SocketAddr,
    time::{Duration, Instant},
};

use kfi::{Device, Domain, Link};

use crate::{
    args::{HostPort, Mode, PORT, Pingpong},
    error::{Doing, Error, Result},
    link::{self, from_peer},
    out::Out,
    text,
};
use control::{Bye, Control, FromClient, Hello, Peer, VERSION, Welcome};
use latency::Latency;
use player::{Foul, Game, Player};
use result::ResultJson;
use trace::Trace;

/// Runs `kfi pingpong`.
pub(crate) fn run(args: &Pingpong, out: &mut Out) -> Result<()> {
    if args.mode == Mode::Rma && args.size.0.contains(&0) {
        return Err(Error::with_help(
            "a write of 0 bytes shows nothing",
            "give --size 1 or more",
        ));
    }
    let device = link::open()?;
    let port = if args.verbs.is_some() {
        verbs::PORT
    } else {
        PORT
    };
    let place = |place: &Option<HostPort>, port| -> Result<Option<SocketAddr>> {
        place.as_ref().map(|place| place.or_port(port)).transpose()
    };
    let server_addr = place(&args.server, port)?;
    // A client has any port of its own.
    let own = place(&args.bind, if server_addr.is_some() { 0 } else { port })?;
    let link = link::choose(&device, args.link.as_deref(), own, server_addr)?;
    let domain =
        player::domain(&device, &link.name).doing(format!("open a domain on {}", link.name))?;
    let ends = Ends {
        device: &device,
        link: &link,
        domain: &domain,
        own,
        server: server_addr.map(|addr| link::on(&link, addr)),
    };
    match (args.verbs, ends.server) {
        (Some(verbs), _) => verbs::run(args, verbs, &ends, out),
        (None, Some(server)) => client(args, server, &ends, out),
        (None, None) => server::run(args, &ends, out),
    }
}

/// Where the command plays.
pub(crate) struct Ends<'a> {
    device: &'a Device,
    link: &'a Link,
    domain: &'a Domain,
    /// The own address of the command line.
    own: Option<SocketAddr>,
    /// The server of a client.
    server: Option<SocketAddr>,
}

impl Ends<'_> {
    /// The own address of a client.
    fn client_addr(&self, server: SocketAddr) -> Result<SocketAddr> {
        link::client_addr(self.device, self.link, self.own, server)
    }
}

impl From<Foul> for Error {
    fn from(foul: Foul) -> Self {
        match foul {
            Foul::Kfi(source) => Self::Kfi {
                doing: "continue the exchange".to_owned(),
                source: Box::new(source),
                help: None,
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

fn client(args: &Pingpong, server: SocketAddr, ends: &Ends<'_>, out: &mut Out) -> Result<()> {
    let own = ends.client_addr(server)?;
    let control = Control::open(ends.domain, Some(own), args.auth_key.unwrap_or_default())?;
    let peer = control.meet(server)?;
    let sweep = args.size.0.len() > 1;
    for (at, &size) in args.size.0.iter().enumerate() {
        let client = Client {
            args,
            server,
            ends,
            own,
            control: &control,
            peer,
            size,
            more: at + 1 < args.size.0.len(),
        };
        let result = client.play(out)?;
        if out.is_json() {
            out.document(&result)?;
        } else if sweep {
            if at == 0 {
                out.text(&result.sweep_head())?;
            }
            out.line(result.sweep_row())?;
        } else {
            out.text(&result.summary(args.trace))?;
        }
    }
    Ok(())
}

/// The client of a game with messages of one size.
struct Client<'a> {
    args: &'a Pingpong,
    server: SocketAddr,
    ends: &'a Ends<'a>,
    own: SocketAddr,
    control: &'a Control,
    peer: Peer,
    size: u64,
    /// Another game follows.
    more: bool,
}

impl Client<'_> {
    fn game(&self) -> Game {
        let args = self.args;
        Game {
            mode: args.mode,
            completion: args.completion.unwrap_or_default(),
            wait: args.wait.unwrap_or_default(),
            size: self.size as usize,
            window: args.window,
            timeout: args.timeout,
            trace: args.trace,
            auth_key: args.auth_key.unwrap_or_default(),
        }
    }

    /// Plays one game.
    fn play(&self, out: &mut Out) -> Result<ResultJson> {
        let (args, game) = (self.args, self.game());
        let warmup = if args.trace { 0 } else { args.warmup };
        let mut player = Player::open(self.ends.domain, game, false, Some(self.own))
            .doing("set up the endpoint")?;
        let hello = Hello {
            version: VERSION,
            control: self.control.name()?,
            data: player.name().doing("get the endpoint's address")?,
            region: player.region(),
            mode: game.mode,
            completion: game.completion,
            wait: game.wait,
            size: self.size,
            count: warmup + args.iterations,
            warmup,
            window: game.window,
            more: self.more,
            trace: args.trace,
        };
        self.control.send(self.peer, &FromClient::Hello(hello))?;
        let (data, region) = self.welcome()?;
        player
            .meet(from_peer(self.ends.link, data), region)
            .doing("add the server's address")?;
        let (time, latency) = match game.window {
            None => {
                let (time, trips) = self.in_turn(&mut player, warmup, out)?;
                (time, Latency::of_round_trips(trips))
            }
            Some(_) => {
                player.send_all(warmup)?;
                (player.send_all(args.iterations)?, None)
            }
        };
        let answers = match game.window {
            None => player.caught,
            Some(_) => warmup + args.iterations,
        };
        self.control
            .send(self.peer, &FromClient::Bye(Bye { answers }))?;
        let what = ("client", self.ends.link, self.server);
        Ok(ResultJson::new(what, &game, args.iterations, time, latency))
    }

    /// The server's answer: where it plays.
    fn welcome(&self) -> Result<(SocketAddr, Option<control::Region>)> {
        let (server, timeout) = (self.server, self.args.timeout);
        match self.control.receive(Some(self.peer), Some(timeout))? {
            Some(Ok(Welcome::Play { data, region })) => Ok((data, region)),
            Some(Ok(Welcome::No { why })) => Err(Error::with_help(
                format!("the server refuses: {}", text::of_peer(&why)),
                "look at the server's output, and try something smaller",
            )),
            Some(Err(why)) => Err(Error::with_help(
                format!("the answer of {server} cannot be read: {why}"),
                "is that a kfi pingpong of the same version?",
            )),
            None => Err(Error::with_help(
                format!("no answer from {server} in {timeout:?}"),
                "is a kfi pingpong there that is not busy with another client?",
            )),
        }
    }

    /// Sends each message after the answer to the one before; gives the time of all and of each.
    fn in_turn(
        &self,
        player: &mut Player,
        warmup: u64,
        out: &mut Out,
    ) -> Result<(Duration, Vec<Duration>)> {
        let args = self.args;
        let mut trace = Trace::new("client", out, args.trace, args.mode);
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
        Ok((time, trips))
    }
}
