// SPDX-License-Identifier: GPL-2.0
//! Tables: columns as wide as they need to be, numbers to the right.

use std::fmt;

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

impl fmt::Display for Table {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let widths: Vec<usize> = (0..self.head.len()).map(|at| self.width(at)).collect();
        let head: Vec<String> = self.head.iter().map(|name| name.to_string()).collect();
        for row in std::iter::once(&head).chain(&self.rows) {
            let mut line = " ".repeat(self.indent);
            for (at, width) in widths.iter().enumerate() {
                let cell = row.get(at).map_or("", String::as_str);
                if at > 0 {
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
    fn short_and_missing_rows_are_accepted() {
        let mut table = Table::new(&["A", "B"]).indent(2);
        assert_eq!(table.to_string(), "  A  B\n");
        table.row(["long"]);
        assert_eq!(table.to_string(), "  A     B\n  long\n");
    }
}
