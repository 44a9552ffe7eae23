// SPDX-License-Identifier: GPL-2.0
//! Tables: columns as wide as they need to be, numbers to the right.
//!
//! A table that is wider than [`WIDTH`] columns is shown in parts, one below the other, each of
//! which begins with the first column.

use std::fmt;

use crate::text::WIDTH;

/// A table with a header.
pub(crate) struct Table {
    head: Vec<&'static str>,
    right: Vec<bool>,
    rows: Vec<Vec<String>>,
    indent: usize,
}

impl Table {
    /// A table with these columns; a name that begins with `>` is that of a
    /// column of numbers.
    pub(crate) fn new(columns: &[&'static str]) -> Self {
        Self {
            head: columns
                .iter()
                .map(|name| name.trim_start_matches('>'))
                .collect(),
            right: columns.iter().map(|name| name.starts_with('>')).collect(),
            rows: Vec::new(),
            indent: 0,
        }
    }

    /// Indents each line by this number of blanks.
    pub(crate) fn indent(mut self, indent: usize) -> Self {
        self.indent = indent;
        self
    }

    /// Adds a row; missing cells are empty.
    pub(crate) fn row<T: Into<String>>(&mut self, cells: impl IntoIterator<Item = T>) {
        self.rows.push(cells.into_iter().map(Into::into).collect());
    }

    /// Adds a row of texts and numbers.
    pub(crate) fn cells(&mut self, cells: &[&dyn fmt::Display]) {
        self.row(cells.iter().map(|cell| cell.to_string()));
    }

    fn width(&self, column: usize) -> usize {
        let cell = |row: &Vec<String>| row.get(column).map_or(0, |cell| cell.chars().count());
        let head = self.head[column].chars().count();
        self.rows.iter().map(cell).max().unwrap_or(0).max(head)
    }
}

impl Table {
    /// The columns of each part.
    fn parts(&self, widths: &[usize]) -> Vec<Vec<usize>> {
        let key = self.indent + widths.first().copied().unwrap_or(0);
        let mut parts = vec![Vec::new()];
        let mut used = self.indent;
        for (at, width) in widths.iter().enumerate() {
            let gap = if at == 0 { 0 } else { 2 };
            // A part has one column besides the first at least.
            let alone = parts.last().is_none_or(|part| part.len() < 2);
            if used + gap + width > WIDTH && !alone {
                parts.push(vec![0]);
                used = key;
            }
            used += gap + width;
            parts.last_mut().into_iter().for_each(|part| part.push(at));
        }
        parts
    }

    /// The lines of some columns.
    fn part(&self, columns: &[usize], widths: &[usize], f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let head: Vec<String> = self.head.iter().map(|name| name.to_string()).collect();
        for row in std::iter::once(&head).chain(&self.rows) {
            let mut line = " ".repeat(self.indent);
            for (place, &at) in columns.iter().enumerate() {
                let (cell, width) = (row.get(at).map_or("", String::as_str), widths[at]);
                if place > 0 {
                    line.push_str("  ");
                }
                line.push_str(&if self.right[at] {
                    format!("{cell:>width$}")
                } else {
                    format!("{cell:<width$}")
                });
            }
            writeln!(f, "{}", line.trim_end())?;
        }
        Ok(())
    }
}

impl fmt::Display for Table {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let widths: Vec<usize> = (0..self.head.len()).map(|at| self.width(at)).collect();
        for (at, columns) in self.parts(&widths).iter().enumerate() {
            if at > 0 {
                writeln!(f)?;
            }
            self.part(columns, &widths, f)?;
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn columns_are_as_wide_as_they_need() {
        let mut table = Table::new(&["NAME", "STATE", ">BYTES"]);
        table.cells(&[&"roce0", &"up", &1]);
        table.cells(&[&"a", &"down", &1234567]);
        assert_eq!(
            table.to_string(),
            "NAME   STATE    BYTES\n\
             roce0  up           1\n\
             a      down   1234567\n"
        );
    }

    #[test]
    fn a_wide_table_is_shown_in_parts() {
        let mut table = Table::new(&["NAME", "ONE", ">TWO", "THREE"]);
        table.cells(&[&"roce0", &"x".repeat(60), &1, &"y".repeat(40)]);
        let text = table.to_string();
        let parts: Vec<&str> = text.split("\n\n").collect();
        assert_eq!(parts.len(), 2, "{text}");
        assert!(parts[0].starts_with("NAME   ONE ") && parts[0].contains("TWO"));
        assert!(parts[1].starts_with("NAME   THREE\nroce0  yyy"), "{text}");
        // A cell that is too long for a line has one for itself.
        let mut table = Table::new(&["NAME", "ONE", "TWO"]);
        table.cells(&[&"roce0", &"x".repeat(120), &"y"]);
        assert_eq!(table.to_string().lines().count(), 5);
    }

    #[test]
    fn short_and_missing_rows_are_accepted() {
        let mut table = Table::new(&["A", "B"]).indent(2);
        assert_eq!(table.to_string(), "  A  B\n");
        table.row(["long"]);
        assert_eq!(table.to_string(), "  A     B\n  long\n");
    }
}
