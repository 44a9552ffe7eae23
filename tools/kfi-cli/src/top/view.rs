// SPDX-License-Identifier: GPL-2.0
//! The screen of `kfi top`: the tables one below the other, as far as there is
//! room; the rest comes by scrolling.

use std::time::Duration;

use ratatui::{
    Frame,
    layout::{Constraint, Layout},
    style::{Modifier, Style},
    text::{Line, Span},
    widgets::Paragraph,
};

use crate::{link::NO_LINKS, top::sample::Change};

/// The contents of the screen.
pub(crate) struct View {
    interval: Duration,
    change: Change,
    held: bool,
    offset: usize,
    column: usize,
}

impl View {
    /// An empty view.
    pub(crate) fn new(interval: Duration) -> Self {
        Self {
            interval,
            change: Change::default(),
            held: false,
            offset: 0,
            column: 0,
        }
    }

    /// Takes new statistics, unless the user has paused the screen.
    pub(crate) fn update(&mut self, change: Change) {
        if !self.held {
            self.change = change;
        }
    }

    /// Pauses the screen, or continues.
    pub(crate) fn hold(&mut self) {
        self.held = !self.held;
    }

    /// Scrolls by lines.
    pub(crate) fn scroll(&mut self, lines: isize) {
        self.offset = self.offset.saturating_add_signed(lines);
    }

    /// Scrolls to the right, or to the left.
    pub(crate) fn shift(&mut self, columns: isize) {
        self.column = self.column.saturating_add_signed(columns);
    }

    fn lines(&self) -> Vec<Line<'static>> {
        let mut lines = Vec::new();
        if self.change.links.is_empty() {
            lines.push(Line::from(NO_LINKS));
            lines.push(Line::default());
        }
        for (name, table, rows) in self.change.tables() {
            if rows == 0 {
                if name != "links" {
                    lines.push(Line::from(format!("no {name}")));
                    lines.push(Line::default());
                }
                continue;
            }
            for (at, text) in table.to_string().lines().enumerate() {
                let bold = Style::new().add_modifier(Modifier::BOLD);
                let style = if at == 0 { bold } else { Style::new() };
                lines.push(Line::styled(text.to_owned(), style));
            }
            lines.push(Line::default());
        }
        lines
    }

    /// Draws it.
    pub(crate) fn draw(&mut self, frame: &mut Frame<'_>) {
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
        let title = format!(
            " kfi top: {} links, {} endpoints, {} CQs, {} counters, {} flows; {state} ",
            self.change.links.len(),
            self.change.endpoints.len(),
            self.change.cqs.len(),
            self.change.cntrs.len(),
            self.change.flows.len(),
        );
        frame.render_widget(Paragraph::new(Span::styled(title, bar)), head);

        let lines = self.lines();
        let widest = lines.iter().map(Line::width).max().unwrap_or(0);
        let hidden = widest.saturating_sub(usize::from(body.width));
        self.column = self.column.min(hidden);
        let room = usize::from(body.height);
        self.offset = self.offset.min(lines.len().saturating_sub(room));
        let below = lines.len().saturating_sub(self.offset + room);
        let shown: Vec<Line<'_>> = lines.into_iter().skip(self.offset).take(room).collect();
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
    use crate::top::sample::tests::change;
    use ratatui::{Terminal, backend::TestBackend};

    fn screen(view: &mut View, width: u16, height: u16) -> Vec<String> {
        let mut terminal = Terminal::new(TestBackend::new(width, height)).unwrap();
        terminal.draw(|frame| view.draw(frame)).unwrap();
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

    fn view() -> View {
        let mut view = View::new(Duration::from_secs(1));
        view.update(change());
        view
    }

    #[test]
    fn a_large_screen_shows_all_tables() {
        let rows = screen(&mut view(), 140, 24);
        assert!(
            rows[0].contains("1 links, 1 endpoints, 1 CQs, 1 counters, 1 flows; every 1s"),
            "{rows:?}"
        );
        for word in ["roce0", "127.0.0.1:7471", "COUNTER", "THRESHOLD", "321"] {
            assert!(
                rows.iter().any(|row| row.contains(word)),
                "{word}: {rows:?}"
            );
        }
        assert!(rows[23].contains("q ends"), "{rows:?}");
    }

    #[test]
    fn small_screens_scroll_and_do_not_panic() {
        let mut view = view();
        let rows = screen(&mut view, 40, 6);
        assert!(rows[5].contains("0 lines above, 11 below"), "{rows:?}");
        view.scroll(100);
        let rows = screen(&mut view, 40, 6);
        assert!(rows[5].contains("11 lines above, 0 below"), "{rows:?}");
        view.scroll(isize::MIN);
        assert!(screen(&mut view, 40, 6)[1].contains("LINK"));
        for (width, height) in [(1, 1), (3, 2), (10, 3)] {
            screen(&mut view, width, height);
        }
    }

    #[test]
    fn narrow_screens_scroll_sideways() {
        let mut view = view();
        let has = |rows: &[String], word: &str| rows.iter().any(|row| row.contains(word));
        assert!(!has(&screen(&mut view, 60, 24), "UNEXPECTED"));
        view.shift(1000);
        let rows = screen(&mut view, 60, 24);
        assert!(
            has(&rows, "UNEXPECTED") && !has(&rows, "ENDPOINT "),
            "{rows:?}"
        );
        view.shift(-1000);
        assert!(has(&screen(&mut view, 60, 24), "ENDPOINT "));
    }

    #[test]
    fn a_paused_screen_does_not_change() {
        let mut view = view();
        view.hold();
        view.update(Change::default());
        assert!(screen(&mut view, 100, 24)[0].contains("1 links"));
        view.hold();
        view.update(Change::default());
        let rows = screen(&mut view, 100, 24);
        assert!(rows[1].contains("kfi link add"), "{rows:?}");
    }
}
