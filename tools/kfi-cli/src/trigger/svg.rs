// SPDX-License-Identifier: GPL-2.0
//! The observations of a run, as a picture: a line for each endpoint, and the way of each chunk.

use std::fmt::Write;

use super::{observe::What, timeline::Timeline};

const WIDTH: f64 = 720.0;
/// Space for the names of the endpoints.
const LEFT: f64 = 56.0;
const RIGHT: f64 = 16.0;
/// Space for the title.
const TOP: f64 = 34.0;
/// Distance of two endpoints.
const ROW: f64 = 18.0;
/// Space for the scale and the explanation.
const BOTTOM: f64 = 52.0;

/// Draws the timeline.
pub(super) fn draw(timeline: &Timeline, title: &str) -> String {
    Drawing::new(timeline).draw(title)
}

struct Drawing<'a> {
    timeline: &'a Timeline,
    ranks: usize,
    svg: String,
}

impl<'a> Drawing<'a> {
    fn new(timeline: &'a Timeline) -> Self {
        Self {
            timeline,
            ranks: timeline.ring.ranks(),
            svg: String::new(),
        }
    }

    fn add(&mut self, element: std::fmt::Arguments<'_>) {
        // Writing to a string does not fail.
        let _ = writeln!(self.svg, "{element}");
    }

    fn height(&self) -> f64 {
        TOP + self.ranks as f64 * ROW + BOTTOM
    }

    fn x(&self, ns: f64) -> f64 {
        LEFT + ns / self.timeline.end() as f64 * (WIDTH - LEFT - RIGHT)
    }

    fn y(&self, rank: usize) -> f64 {
        TOP + (rank as f64 + 0.5) * ROW
    }

    fn draw(mut self, title: &str) -> String {
        let (width, height, title) = (WIDTH, self.height(), escape(title));
        self.add(format_args!(
            r#"<svg xmlns="http://www.w3.org/2000/svg" width="{width}" height="{height}" viewBox="0 0 {width} {height}" font-family="sans-serif" font-size="11">"#
        ));
        self.add(format_args!("<title>{title}</title>"));
        self.add(format_args!(
            r##"<rect width="{width}" height="{height}" fill="#fff"/>"##
        ));
        self.add(format_args!(
            r#"<text x="{LEFT}" y="20" font-size="13">{title}</text>"#
        ));
        for rank in 0..self.ranks {
            self.endpoint(rank);
        }
        self.scale();
        for chunk in 0..self.timeline.chunks() {
            self.way(chunk);
        }
        self.marks();
        self.explain();
        self.svg.push_str("</svg>\n");
        self.svg
    }

    fn endpoint(&mut self, rank: usize) {
        let (y, name, end) = (self.y(rank), self.timeline.name(rank), WIDTH - RIGHT);
        self.add(format_args!(
            r#"<text x="{:.0}" y="{:.1}" text-anchor="end">{}</text>"#,
            LEFT - 8.0,
            y + 4.0,
            escape(&name)
        ));
        self.add(format_args!(
            r##"<path d="M{LEFT} {y:.1}H{end}" stroke="#ddd"/>"##
        ));
    }

    /// The times below.
    fn scale(&mut self) {
        let end = self.timeline.end() as f64 / 1e3;
        let step = step(end);
        let base = TOP + self.ranks as f64 * ROW;
        let mut at = 0.0;
        while at <= end {
            let x = self.x(at * 1e3);
            self.add(format_args!(
                r##"<path d="M{x:.1} {base:.0}v5" stroke="#888"/><text x="{x:.1}" y="{:.0}" text-anchor="middle">{at} us</text>"##,
                base + 17.0
            ));
            at += step;
        }
    }

    /// The way of a chunk from endpoint to endpoint.
    fn way(&mut self, chunk: usize) {
        // It starts at the endpoint of its number.
        let mut path = format!("M{:.1} {:.1}", self.x(0.0), self.y(chunk));
        for fired in { &self.timeline.fired }
            .iter()
            .filter(|fired| fired.chunk == chunk)
        {
            let (x, y) = (self.x(fired.ns as f64), self.y(fired.rank));
            let _ = write!(path, "L{x:.1} {y:.1}");
        }
        let colour = self.colour(chunk);
        self.add(format_args!(
            r#"<path d="{path}" fill="none" stroke="{colour}" stroke-opacity="0.5"/>"#
        ));
    }

    fn colour(&self, chunk: usize) -> String {
        let hue = 210 + chunk * 360 / self.timeline.chunks().max(1);
        format!("hsl({} 70% 42%)", hue % 360)
    }

    fn marks(&mut self) {
        for fired in &self.timeline.fired {
            let mark = mark(
                fired.what,
                self.x(fired.ns as f64),
                self.y(fired.rank),
                &self.colour(fired.chunk),
            );
            self.add(format_args!("{mark}"));
        }
    }

    fn explain(&mut self) {
        let y = self.height() - 12.0;
        let mut x = LEFT;
        for (what, text) in [
            (What::Received, "partial sums received"),
            (What::Added, "own input added"),
            (What::Output, "has the output"),
        ] {
            let mark = mark(what, x, y - 4.0, "#444");
            self.add(format_args!(
                r#"{mark}<text x="{:.0}" y="{y}">{text}</text>"#,
                x + 10.0
            ));
            x += 150.0;
        }
        self.add(format_args!(
            r#"<text x="{x}" y="{y}">times at which the counters were read</text>"#
        ));
    }
}

fn mark(what: What, x: f64, y: f64, colour: &str) -> String {
    match what {
        What::Received => {
            format!(r##"<circle cx="{x:.1}" cy="{y:.1}" r="3.5" fill="#fff" stroke="{colour}"/>"##)
        }
        What::Added => format!(
            r#"<path d="M{:.1} {y:.1}h8m-4 -4v8" stroke="{colour}" stroke-width="2"/>"#,
            x - 4.0
        ),
        What::Output => format!(r#"<circle cx="{x:.1}" cy="{y:.1}" r="3.5" fill="{colour}"/>"#),
    }
}

/// A step of the scale of 1, 2 or 5 times a power of ten, for at most ten steps.
fn step(end: f64) -> f64 {
    let mut power = 1.0;
    loop {
        for factor in [1.0, 2.0, 5.0] {
            if end <= 10.0 * factor * power {
                return factor * power;
            }
        }
        power *= 10.0;
    }
}

fn escape(text: &str) -> String {
    text.replace('&', "&amp;")
        .replace('<', "&lt;")
        .replace('>', "&gt;")
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::trigger::{observe::Fired, timeline::tests::example};
    use kfi::collective::Ring;
    use std::time::Duration;

    /// Panics unless the elements of `svg` are nested well; gives their number.
    fn well_formed(svg: &str) -> usize {
        let mut open: Vec<&str> = Vec::new();
        let mut count = 0;
        for part in svg.split('<').skip(1) {
            let (tag, text) = part.split_once('>').expect("the end of a tag");
            assert!(!text.contains('>'), "{part}");
            assert_eq!(tag.matches('"').count() % 2, 0, "{tag}");
            let name = tag.trim_matches('/').split_whitespace().next().unwrap();
            if tag.starts_with('/') {
                assert_eq!(open.pop(), Some(name));
                continue;
            }
            count += 1;
            if !tag.ends_with('/') {
                open.push(name);
            }
        }
        assert!(open.is_empty(), "{open:?}");
        count
    }

    #[test]
    fn a_picture_is_well_formed() {
        let svg = draw(&example(2), "8 B & <more>");
        well_formed(&svg);
        assert!(
            svg.contains("<title>8 B &amp; &lt;more&gt;</title>"),
            "{svg}"
        );
        assert!(
            svg.contains(">1 b</text>") && svg.contains(">80 us</text>"),
            "{svg}"
        );
        // Three outputs and one in the explanation.
        assert_eq!(svg.matches("r=\"3.5\" fill=\"hsl").count(), 3);
        assert!(!svg.contains("NaN"), "{svg}");
    }

    #[test]
    fn marks_are_where_their_times_are() {
        let svg = draw(&example(1), "");
        // The last one is at the right end, at rank 1.
        assert!(
            svg.contains(r#"cx="704.0" cy="61.0" r="3.5" fill="hsl"#),
            "{svg}"
        );
        assert!(svg.contains(r#"<path d="M56.0 43.0L137.0 61.0L"#), "{svg}");
    }

    #[test]
    fn pictures_of_nothing_and_of_much() {
        let ring = Ring::new(3, 3).unwrap();
        well_formed(&draw(&Timeline::new(ring, Vec::new(), Duration::ZERO), ""));
        let fired = { 0..256 }.flat_map(|rank| {
            { 0..4 }.map(move |chunk| Fired {
                rank,
                chunk,
                what: What::Output,
                ns: (rank + chunk) as u64,
            })
        });
        let ring = Ring::new(256, 256).unwrap();
        let svg = draw(&Timeline::new(ring, fired.collect(), Duration::ZERO), "");
        assert!(well_formed(&svg) > 1000);
        assert!(svg.len() < 200_000, "{}", svg.len());
    }

    #[test]
    fn the_scale_has_round_steps() {
        for (end, expected) in [
            (0.5, 1.0),
            (80.0, 10.0),
            (101.0, 20.0),
            (900.0, 100.0),
            (12_000.0, 2000.0),
        ] {
            assert_eq!(step(end), expected, "{end}");
        }
    }
}
