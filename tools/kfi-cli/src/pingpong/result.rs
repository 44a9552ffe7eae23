// SPDX-License-Identifier: GPL-2.0
//! The result of a game of `kfi pingpong`: as JSON, as text, and as a line of a sweep of sizes.

use std::{net::SocketAddr, time::Duration};

use kfi::Link;
use serde::Serialize;

use super::{latency::Latency, player::Game};
use crate::{
    args::{Completion, Mode, WaitBy},
    text,
};

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
    /// Null: one after the other.
    window: Option<u32>,
    iterations: u64,
    seconds: f64,
    /// Of one way; only the client knows it, and only without a window.
    latency_us: Option<Latency>,
    /// Of both ways together.
    bytes_per_second: f64,
    messages_per_second: f64,
}

impl ResultJson {
    /// The result of `role` on a link, with a peer.
    pub(crate) fn new(
        (role, link, peer): (&'static str, &Link, SocketAddr),
        game: &Game,
        iterations: u64,
        time: Duration,
        latency_us: Option<Latency>,
    ) -> Self {
        // Messages are answered, or not.
        let messages = iterations as f64 * if game.window.is_some() { 1.0 } else { 2.0 };
        let seconds = time.as_secs_f64().max(1e-9);
        Self {
            event: "result",
            role,
            link: link.name.clone(),
            peer,
            mode: game.mode,
            completion: game.completion,
            wait: game.wait,
            size: game.size as u64,
            window: game.window,
            iterations,
            seconds: time.as_secs_f64(),
            latency_us,
            bytes_per_second: text::rounded(messages * game.size as f64 / seconds),
            messages_per_second: text::rounded(messages / seconds),
        }
    }

    /// The lines above those of a sweep.
    pub(crate) fn sweep_head(&self) -> String {
        let ResultJson {
            role,
            peer,
            mode,
            completion,
            wait,
            iterations,
            ..
        } = self;
        match self.window {
            None => format!(
                "{}\n{:>10}  {:>9}  {:>9}  {:>9}  {:>9}  {:>11}\n",
                line(format!(
                    "{role:<8}{iterations} messages of each size each way with {peer} \
                     ({mode}, {completion}, {wait}), one way in us"
                )),
                "SIZE",
                "MEDIAN",
                "LEAST",
                "99%",
                "GREATEST",
                "BANDWIDTH",
            ),
            Some(window) => format!(
                "{}\n{:>10}  {:>11}  {:>11}  {:>9}\n",
                line(format!(
                    "{role:<8}{iterations} messages of each size to {peer} ({mode}), \
                     {window} under way"
                )),
                "SIZE",
                "BANDWIDTH",
                "MESSAGES/S",
                "SECONDS",
            ),
        }
    }

    /// The line of a size.
    pub(crate) fn sweep_row(&self) -> String {
        let size = text::bytes(self.size);
        let bandwidth = text::bytes_per_second(self.bytes_per_second);
        match &self.latency_us {
            Some(Latency {
                min,
                median,
                p99,
                max,
                ..
            }) => format!(
                "{size:>10}  {median:>9.1}  {min:>9.1}  {p99:>9.1}  {max:>9.1}  {bandwidth:>11}"
            ),
            None => format!(
                "{size:>10}  {bandwidth:>11}  {:>11}  {:>9.3}",
                text::si(self.messages_per_second).trim_end(),
                self.seconds
            ),
        }
    }

    /// The result as text; after a trace without times, because they would be those
    /// of the terminal.
    pub(crate) fn summary(&self, traced: bool) -> String {
        let ResultJson {
            role,
            peer,
            mode,
            completion,
            wait,
            iterations,
            ..
        } = self;
        if let Some(window) = self.window {
            return format!(
                "{}\n{role:<8}{}, {} messages/s\n",
                line(format!(
                    "{role:<8}{iterations} messages of {} {} {peer} ({mode}), {window} under way, \
                     in {:.3} s",
                    text::bytes(self.size),
                    if *role == "client" { "to" } else { "from" },
                    self.seconds,
                )),
                text::bytes_per_second(self.bytes_per_second),
                text::si(self.messages_per_second).trim_end(),
            );
        }
        let mut text = line(format!(
            "{role:<8}{iterations} messages of {} each way with {peer} ({mode}, {completion}, {wait}) \
             in {:.3} s",
            text::bytes(self.size),
            self.seconds,
        ));
        text.push('\n');
        if let Some(latency) = self.latency_us.as_ref().filter(|_| !traced) {
            let Latency {
                min,
                median,
                p99,
                max,
                ..
            } = latency;
            text.push_str(&line(format!(
                "{role:<8}one way: median {median:.1} us, least {min:.1}, 99% {p99:.1}, greatest {max:.1}; \
                 {}",
                text::bytes_per_second(self.bytes_per_second),
            )));
            text.push('\n');
        }
        text
    }
}

/// A line, continued below what it says.
fn line(text: String) -> String {
    text::wrapped(&text, 8)
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
            window: None,
            iterations: 1000,
            seconds: 0.05,
            latency_us: Latency::of_round_trips(vec![Duration::from_micros(50)]),
            bytes_per_second: 320_000.0,
            messages_per_second: 40_000.0,
        }
    }

    #[test]
    fn json_has_the_documented_keys() {
        assert_eq!(
            serde_json::to_string(&result()).unwrap(),
            r#"{"event":"result","role":"client","link":"roce0","peer":"127.0.0.1:7471","#
                .to_owned()
                + r#""mode":"msg","completion":"cq","wait":"sread","size":8,"window":null,"#
                + r#""iterations":1000,"#
                + r#""seconds":0.05,"latency_us":{"min":25.0,"median":25.0,"p99":25.0,"max":25.0,"#
                + r#""mean":25.0},"bytes_per_second":320000.0,"messages_per_second":40000.0}"#
        );
    }

    #[test]
    fn text_shows_the_result() {
        assert_eq!(
            result().summary(false),
            "client  1000 messages of 8 B each way with 127.0.0.1:7471 (msg, cq, sread) in 0.050 s\n\
             client  one way: median 25.0 us, least 25.0, 99% 25.0, greatest 25.0; 320 kB/s\n"
        );
        let server = ResultJson {
            latency_us: None,
            ..result()
        };
        assert_eq!(server.summary(false).lines().count(), 1);
    }

    fn stream(role: &'static str) -> ResultJson {
        ResultJson {
            role,
            size: 65536,
            window: Some(16),
            latency_us: None,
            bytes_per_second: 1.31072e9,
            messages_per_second: 20_000.0,
            ..result()
        }
    }

    #[test]
    fn a_game_without_answers_shows_bandwidth_and_rate() {
        assert_eq!(
            stream("client").summary(false),
            "client  1000 messages of 64 KiB to 127.0.0.1:7471 (msg), 16 under way, in 0.050 s\n\
             client  1.31 GB/s, 20.0 k messages/s\n"
        );
        assert!(
            stream("server")
                .summary(false)
                .contains(" from 127.0.0.1:7471")
        );
    }

    #[test]
    fn a_sweep_is_a_table() {
        assert_eq!(
            format!("{}{}\n", result().sweep_head(), result().sweep_row()),
            "client  1000 messages of each size each way with 127.0.0.1:7471 (msg, cq, sread), one \
             way in us\n\
             \u{20}     SIZE     MEDIAN      LEAST        99%   GREATEST    BANDWIDTH\n\
             \u{20}      8 B       25.0       25.0       25.0       25.0     320 kB/s\n"
        );
        let stream = stream("client");
        assert_eq!(
            format!("{}{}\n", stream.sweep_head(), stream.sweep_row()),
            "client  1000 messages of each size to 127.0.0.1:7471 (msg), 16 under way\n\
             \u{20}     SIZE    BANDWIDTH   MESSAGES/S    SECONDS\n\
             \u{20}   64 KiB    1.31 GB/s       20.0 k      0.050\n"
        );
    }

    /// Also with the longest address.
    #[test]
    fn text_fits_the_width() {
        let long = |result: ResultJson| ResultJson {
            peer: "[fe80:ffff:ffff:ffff:ffff:ffff:ffff:ffff%123]:65535"
                .parse()
                .unwrap(),
            size: 1 << 30,
            ..result
        };
        for result in [
            result(),
            stream("client"),
            long(result()),
            long(stream("client")),
        ] {
            let text = result.summary(false) + &result.sweep_head() + &result.sweep_row();
            for line in text.lines() {
                let width = line.chars().count();
                assert!(width <= text::WIDTH, "{width}: {line}");
            }
        }
    }
}
