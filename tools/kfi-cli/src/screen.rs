// SPDX-License-Identifier: GPL-2.0
//! A screen of text that is drawn again at intervals, until the user quits.
//!
//! The lines are shown as far as there is room; the rest comes by scrolling. `kfi top` and
//! `kfi cntr watch` use it.

use std::{
    io::{self, IsTerminal},
    time::{Duration, Instant},
};

use ratatui::{
    Frame,
    crossterm::event::{self, Event, KeyCode, KeyEvent, KeyEventKind, KeyModifiers},
    layout::{Constraint, Layout},
    style::{Modifier, Style},
    text::{Line, Span},
    widgets::Paragraph,
};

use crate::{
    error::{Error, Result},
    table::Table,
};

/// The text of a screen.
#[derive(Debug, Default)]
pub(crate) struct Page {
    /// The first line, without the state that the screen adds.
    pub(crate) title: String,
    /// The lines below it.
    pub(crate) lines: Vec<Line<'static>>,
}

impl Page {
    /// Adds a table, with a bold head.
    pub(crate) fn table(&mut self, table: &Table) {
        for (at, text) in table.to_string().lines().enumerate() {
            let bold = Style::new().add_modifier(Modifier::BOLD);
            let style = if at == 0 { bold } else { Style::new() };
            self.lines.push(Line::styled(text.to_owned(), style));
        }
    }

    /// Adds a line.
    pub(crate) fn line(&mut self, text: impl Into<String>) {
        self.lines.push(Line::from(text.into()));
    }
}

/// Whether there is a terminal, and one that has a size.
pub(crate) fn has_screen() -> bool {
    let size = ratatui::crossterm::terminal::size();
    io::stdout().is_terminal() && size.is_ok_and(|(width, height)| width > 0 && height > 0)
}

/// Shows the page of each interval until the user quits, or `next` gives none.
pub(crate) fn run(
    interval: Duration,
    mut next: impl FnMut() -> Result<Option<Page>>,
) -> Result<()> {
    let Some(first) = next()? else {
        return Ok(());
    };
    let mut screen = Screen::new(interval);
    screen.update(first);
    let mut terminal = ratatui::try_init().map_err(failed)?;
    let result = run_on(&mut terminal, &mut screen, next);
    ratatui::try_restore().map_err(failed)?;
    result
}

fn failed(source: io::Error) -> Error {
    let doing = "use the terminal";
    Error::Io { doing, source }
}

fn run_on(
    terminal: &mut ratatui::DefaultTerminal,
    screen: &mut Screen,
    mut next: impl FnMut() -> Result<Option<Page>>,
) -> Result<()> {
    let mut due = Instant::now() + screen.interval;
    loop {
        terminal.draw(|frame| screen.draw(frame)).map_err(failed)?;
        while event::poll(due.saturating_duration_since(Instant::now())).map_err(failed)? {
            let Event::Key(key) = event::read().map_err(failed)? else {
                break;
            };
            match screen.press(key) {
                Press::Quit => return Ok(()),
                Press::Draw => break,
                Press::Nothing => {}
            }
        }
        if Instant::now() >= due {
            due = Instant::now() + screen.interval;
            match next()? {
                Some(page) => screen.update(page),
                None => return Ok(()),
            }
        }
    }
}

/// The effect of a key.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Press {
    Quit,
    Draw,
    Nothing,
}

/// A page, and the part of it that is shown.
struct Screen {
    interval: Duration,
    page: Page,
    held: bool,
    offset: usize,
    column: usize,
}

impl Screen {
    /// A screen without text.
    fn new(interval: Duration) -> Self {
        Self {
            interval,
            page: Page::default(),
            held: false,
            offset: 0,
            column: 0,
        }
    }

    /// Takes a new page, unless the user has paused the screen.
    fn update(&mut self, page: Page) {
        if !self.held {
            self.page = page;
        }
    }

    /// Does what a key stands for.
    fn press(&mut self, key: KeyEvent) -> Press {
        if key.kind != KeyEventKind::Press {
            return Press::Nothing;
        }
        let control = key.modifiers.contains(KeyModifiers::CONTROL);
        match key.code {
            KeyCode::Char('q') | KeyCode::Esc => return Press::Quit,
            KeyCode::Char('c') if control => return Press::Quit,
            KeyCode::Char(' ') => self.held = !self.held,
            KeyCode::Down | KeyCode::Char('j') => self.scroll(1),
            KeyCode::Up | KeyCode::Char('k') => self.scroll(-1),
            KeyCode::Right | KeyCode::Char('l') => self.shift(8),
            KeyCode::Left | KeyCode::Char('h') => self.shift(-8),
            KeyCode::PageDown => self.scroll(10),
            KeyCode::PageUp => self.scroll(-10),
            KeyCode::Home => self.scroll(isize::MIN),
            _ => return Press::Nothing,
        }
        Press::Draw
    }

    /// Scrolls by lines.
    fn scroll(&mut self, lines: isize) {
        self.offset = self.offset.saturating_add_signed(lines);
    }

    /// Scrolls to the right, or to the left.
    fn shift(&mut self, columns: isize) {
        self.column = self.column.saturating_add_signed(columns);
    }

    /// Draws it.
    fn draw(&mut self, frame: &mut Frame<'_>) {
        let [head, body, foot] = Layout::vertical([
            Constraint::Length(1),
            Constraint::Fill(1),
            Constraint::Length(1),
        ])
        .areas(frame.area());
        let bar = Style::new().add_modifier(Modifier::REVERSED);
        let state = if self.held {
            "held".to_owned()
        } else {
            format!("every {:?}", self.interval)
        };
        let title = format!(" {}; {state} ", self.page.title);
        frame.render_widget(Paragraph::new(Span::styled(title, bar)), head);

        let lines = &self.page.lines;
        let widest = lines.iter().map(Line::width).max().unwrap_or(0);
        let hidden = widest.saturating_sub(usize::from(body.width));
        self.column = self.column.min(hidden);
        let room = usize::from(body.height);
        self.offset = self.offset.min(lines.len().saturating_sub(room));
        let below = lines.len().saturating_sub(self.offset + room);
        let shown: Vec<Line<'_>> = lines.iter().skip(self.offset).take(room).cloned().collect();
        // Columns beyond the greatest width of a terminal are not shown.
        let column = u16::try_from(self.column).unwrap_or(u16::MAX);
        frame.render_widget(Paragraph::new(shown).scroll((0, column)), body);

        let more = match (self.offset, below) {
            (0, 0) => String::new(),
            (above, below) => format!("{above} lines above, {below} below; "),
        };
        let keys = format!(" {more}q ends, space holds, arrows move ");
        frame.render_widget(Paragraph::new(Span::styled(keys, bar)), foot);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use ratatui::{Terminal, backend::TestBackend};

    fn shown(screen: &mut Screen, width: u16, height: u16) -> Vec<String> {
        let mut terminal = Terminal::new(TestBackend::new(width, height)).unwrap();
        terminal.draw(|frame| screen.draw(frame)).unwrap();
        let buffer = terminal.backend().buffer().clone();
        let cells: Vec<String> = buffer
            .content()
            .iter()
            .map(|cell| cell.symbol().to_owned())
            .collect();
        cells
            .chunks(usize::from(width))
            .map(|row| row.concat().trim_end().to_owned())
            .collect()
    }

    /// Twelve lines, the third one of 100 columns.
    fn page() -> Page {
        let mut page = Page {
            title: "kfi test: 12 lines".to_owned(),
            ..Page::default()
        };
        for number in 0..12 {
            match number {
                2 => page.line(format!("line 2{:.<90}end", "")),
                _ => page.line(format!("line {number}")),
            }
        }
        page
    }

    fn screen() -> Screen {
        let mut screen = Screen::new(Duration::from_secs(1));
        screen.update(page());
        screen
    }

    fn key(code: KeyCode) -> KeyEvent {
        KeyEvent::new(code, KeyModifiers::NONE)
    }

    #[test]
    fn a_large_screen_shows_all_lines() {
        let rows = shown(&mut screen(), 140, 24);
        assert_eq!(rows[0].trim(), "kfi test: 12 lines; every 1s");
        assert_eq!(
            (&*rows[1], &*rows[12], &*rows[13]),
            ("line 0", "line 11", "")
        );
        assert_eq!(rows[23].trim(), "q ends, space holds, arrows move");
    }

    #[test]
    fn small_screens_scroll_and_do_not_panic() {
        let mut screen = screen();
        let rows = shown(&mut screen, 60, 6);
        assert!(rows[5].contains("0 lines above, 8 below"), "{rows:?}");
        screen.press(key(KeyCode::PageDown));
        screen.press(key(KeyCode::Down));
        let rows = shown(&mut screen, 60, 6);
        assert!(rows[5].contains("8 lines above, 0 below"), "{rows:?}");
        screen.press(key(KeyCode::Home));
        assert_eq!(shown(&mut screen, 60, 6)[1], "line 0");
        for (width, height) in [(1, 1), (3, 2), (10, 3)] {
            shown(&mut screen, width, height);
        }
    }

    #[test]
    fn narrow_screens_scroll_sideways() {
        let mut screen = screen();
        assert!(shown(&mut screen, 60, 24)[3].starts_with("line 2.."));
        for _ in 0..20 {
            screen.press(key(KeyCode::Right));
        }
        assert!(shown(&mut screen, 60, 24)[3].ends_with("..end"));
        for _ in 0..20 {
            screen.press(key(KeyCode::Left));
        }
        assert!(shown(&mut screen, 60, 24)[3].starts_with("line 2.."));
    }

    #[test]
    fn a_paused_screen_does_not_change() {
        let mut screen = screen();
        assert_eq!(screen.press(key(KeyCode::Char(' '))), Press::Draw);
        screen.update(Page::default());
        let rows = shown(&mut screen, 100, 24);
        assert!(rows[0].contains("12 lines; held"), "{rows:?}");
        screen.press(key(KeyCode::Char(' ')));
        screen.update(Page::default());
        assert_eq!(shown(&mut screen, 100, 24)[1], "");
    }

    #[test]
    fn keys_end_the_screen() {
        let mut screen = screen();
        let interrupt = KeyEvent::new(KeyCode::Char('c'), KeyModifiers::CONTROL);
        for key in [key(KeyCode::Char('q')), key(KeyCode::Esc), interrupt] {
            assert_eq!(screen.press(key), Press::Quit);
        }
        assert_eq!(screen.press(key(KeyCode::Char('c'))), Press::Nothing);
    }
}
