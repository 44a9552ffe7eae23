// SPDX-License-Identifier: GPL-2.0
//! `kfi top`: live statistics of links, endpoints, completion queues, counters and completion
//! counters.
//!
//! [`sample`] reads the statistics and compares two samples, [`view`] draws
//! them on a terminal. Without a terminal, or with `--once` or `--json`, they
//! are printed.

mod sample;
mod view;

#[cfg(test)]
pub(crate) use sample::tests;

use std::{
    io::{self, IsTerminal},
    thread,
    time::{Duration, Instant},
};

use kfi::Device;
use ratatui::crossterm::event::{self, Event, KeyCode, KeyEventKind, KeyModifiers};

use crate::{
    args,
    error::{Error, Result},
    link,
    out::Out,
};
use sample::{Change, Sample};
use view::View;

/// Runs `kfi top`.
pub(crate) fn run(args: &args::Top, out: &mut Out) -> Result<()> {
    let device = link::open()?;
    if args.once || out.is_json() || !has_screen() {
        return print(&device, args, out);
    }
    watch(&device, args.interval)
}

/// Whether there is a terminal, and one that has a size.
fn has_screen() -> bool {
    let size = ratatui::crossterm::terminal::size();
    io::stdout().is_terminal() && size.is_ok_and(|(width, height)| width > 0 && height > 0)
}

/// Prints once, or repeatedly.
fn print(device: &Device, args: &args::Top, out: &mut Out) -> Result<()> {
    let mut before = Sample::take(device)?;
    if args.once {
        return show(&before.since_ever(), out);
    }
    show(&before.since_ever(), out)?;
    loop {
        thread::sleep(args.interval);
        let now = Sample::take(device)?;
        if !out.is_json() {
            out.line("\n----")?;
        }
        show(&now.since(&before), out)?;
        before = now;
    }
}

fn show(change: &Change, out: &mut Out) -> Result<()> {
    if out.is_json() {
        return out.document(change);
    }
    for (at, (name, table, rows)) in change.tables().into_iter().enumerate() {
        if at > 0 {
            out.line("")?;
        }
        if rows > 0 {
            out.table(&table)?;
        } else {
            out.line(format!("no {name}"))?;
        }
    }
    Ok(())
}

fn terminal(source: io::Error) -> Error {
    let doing = "use the terminal";
    Error::Io { doing, source }
}

/// Fills the screen until the user quits.
fn watch(device: &Device, interval: Duration) -> Result<()> {
    let mut screen = ratatui::try_init().map_err(terminal)?;
    let result = watch_on(&mut screen, device, interval);
    ratatui::try_restore().map_err(terminal)?;
    result
}

fn watch_on(
    screen: &mut ratatui::DefaultTerminal,
    device: &Device,
    interval: Duration,
) -> Result<()> {
    let mut view = View::new(interval);
    let mut before = Sample::take(device)?;
    view.update(before.since_ever());
    let mut next = Instant::now() + interval;
    loop {
        screen.draw(|frame| view.draw(frame)).map_err(terminal)?;
        while event::poll(next.saturating_duration_since(Instant::now())).map_err(terminal)? {
            let Event::Key(key) = event::read().map_err(terminal)? else {
                break;
            };
            if key.kind != KeyEventKind::Press {
                continue;
            }
            let interrupt = key.modifiers.contains(KeyModifiers::CONTROL);
            match key.code {
                KeyCode::Char('q') | KeyCode::Esc => return Ok(()),
                KeyCode::Char('c') if interrupt => return Ok(()),
                KeyCode::Char(' ') => view.hold(),
                KeyCode::Down | KeyCode::Char('j') => view.scroll(1),
                KeyCode::Up | KeyCode::Char('k') => view.scroll(-1),
                KeyCode::Right | KeyCode::Char('l') => view.shift(8),
                KeyCode::Left | KeyCode::Char('h') => view.shift(-8),
                KeyCode::PageDown => view.scroll(10),
                KeyCode::PageUp => view.scroll(-10),
                KeyCode::Home => view.scroll(isize::MIN),
                _ => continue,
            }
            break;
        }
        if Instant::now() >= next {
            next = Instant::now() + interval;
            let now = Sample::take(device)?;
            view.update(now.since(&before));
            before = now;
        }
    }
}
