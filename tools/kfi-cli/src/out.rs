// SPDX-License-Identifier: GPL-2.0
//! Output: text for people, or one JSON document a line for programs.
//!
//! All output goes through [`Out`], so that output without a reader is an error
//! like others and not a panic.

use std::io::{self, Write};

use serde::Serialize;

use crate::{
    error::{Error, Result},
    table::Table,
};

/// Where the output goes.
pub(crate) struct Out {
    json: bool,
    to: Box<dyn Write + Send>,
}

impl Out {
    /// Standard output.
    pub(crate) fn stdout(json: bool) -> Self {
        Self {
            json,
            to: Box::new(io::stdout()),
        }
    }

    /// Output in JSON is wanted.
    pub(crate) fn is_json(&self) -> bool {
        self.json
    }

    /// Text as it is.
    pub(crate) fn text(&mut self, text: &str) -> Result<()> {
        self.to
            .write_all(text.as_bytes())
            .and_then(|()| self.to.flush())
            .map_err(Error::output)
    }

    /// A line of text.
    pub(crate) fn line(&mut self, line: impl AsRef<str>) -> Result<()> {
        self.text(&format!("{}\n", line.as_ref()))
    }

    /// A table.
    pub(crate) fn table(&mut self, table: &Table) -> Result<()> {
        self.text(&table.to_string())
    }

    /// A document, on a line of its own.
    pub(crate) fn document(&mut self, document: &impl Serialize) -> Result<()> {
        let text = serde_json::to_string(document).map_err(|error| Error::output(error.into()))?;
        self.line(text)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::{Arc, Mutex};

    /// Text that was written.
    #[derive(Clone, Default)]
    pub(crate) struct Memory(Arc<Mutex<Vec<u8>>>);

    impl Memory {
        pub(crate) fn take(&self) -> String {
            let bytes = std::mem::take(&mut *self.0.lock().unwrap());
            String::from_utf8(bytes).unwrap()
        }
    }

    impl Write for Memory {
        fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
            self.0.lock().unwrap().write(bytes)
        }

        fn flush(&mut self) -> io::Result<()> {
            Ok(())
        }
    }

    impl Out {
        /// Output that a test can look at.
        pub(crate) fn memory(json: bool) -> (Self, Memory) {
            let memory = Memory::default();
            let to = Box::new(memory.clone());
            (Self { json, to }, memory)
        }
    }

    struct Closed;

    impl Write for Closed {
        fn write(&mut self, _: &[u8]) -> io::Result<usize> {
            Err(io::ErrorKind::BrokenPipe.into())
        }

        fn flush(&mut self) -> io::Result<()> {
            Ok(())
        }
    }

    #[test]
    fn a_closed_pipe_is_an_error_without_a_panic() {
        let mut out = Out {
            json: true,
            to: Box::new(Closed),
        };
        assert!(out.line("x").unwrap_err().is_broken_pipe());
        assert!(out.document(&1).unwrap_err().is_broken_pipe());
    }
}
