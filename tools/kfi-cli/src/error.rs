// SPDX-License-Identifier: GPL-2.0
//! Errors of the command: what failed, why, and advice.
//!
//! For an error of the library the command adds what it was doing; an error of the
//! command itself has its own advice. Either is shown as
//!
//! ```text
//! error: cannot add link roce0: KFABRIC_IOC_LINK_ADD: Operation not permitted (EPERM)
//! help: links need CAP_NET_ADMIN in this network namespace: run as root
//! ```
//!
//! or, with `--json`, as one line `{"error": {"message", "errno", "help"}}`.

use std::io::{self, Write};

use serde::Serialize;

/// Result of this program's functions.
pub(crate) type Result<T, E = Error> = std::result::Result<T, E>;

/// Why the command failed.
#[derive(Debug, thiserror::Error)]
pub(crate) enum Error {
    /// A call of the library failed.
    #[error("cannot {doing}: {source}")]
    Kfi {
        /// The action that failed: "open the device".
        doing: String,
        /// Why it failed.
        source: Box<kfi::Error>,
        /// Advice in place of the library's.
        help: Option<String>,
    },
    /// Input or output of this program.
    #[error("cannot {doing}: {source}")]
    Io {
        /// The action that failed.
        doing: &'static str,
        /// Why it failed.
        source: io::Error,
    },
    /// An error that this program found itself.
    #[error("{what}")]
    Said {
        /// The error.
        what: String,
        /// The advice.
        help: String,
    },
}

impl Error {
    /// An error that this program found itself, with advice.
    pub(crate) fn with_help(what: impl Into<String>, help: impl Into<String>) -> Self {
        Self::Said {
            what: what.into(),
            help: help.into(),
        }
    }

    /// An error of the library, with advice that only this program can give.
    pub(crate) fn with_errno(source: kfi::Error, doing: impl Into<String>, help: String) -> Self {
        Self::Kfi {
            doing: doing.into(),
            source: Box::new(source),
            help: Some(help),
        }
    }

    /// Output that could not be written.
    pub(crate) fn output(source: io::Error) -> Self {
        let doing = "write the output";
        Self::Io { doing, source }
    }

    /// The reader has closed the output.
    pub(crate) fn is_broken_pipe(&self) -> bool {
        matches!(self, Self::Io { source, .. } if source.kind() == io::ErrorKind::BrokenPipe)
    }

    /// The number of the error, by name.
    fn errno(&self) -> Option<&'static str> {
        match self {
            Self::Kfi { source, .. } => source.errno().and_then(kfi::Errno::name),
            _ => None,
        }
    }

    /// The advice.
    fn help(&self) -> Option<&str> {
        match self {
            Self::Kfi { source, help, .. } => help.as_deref().or_else(|| source.advice()),
            Self::Said { help, .. } => Some(help),
            Self::Io { .. } => None,
        }
    }

    /// Writes it to standard error.
    pub(crate) fn report(&self, json: bool) {
        // A failure of this write cannot be reported.
        let _ = writeln!(io::stderr(), "{}", self.render(json));
    }

    pub(crate) fn render(&self, json: bool) -> String {
        if json {
            let error = Report {
                message: self.to_string(),
                errno: self.errno(),
                help: self.help(),
            };
            return serde_json::json!({ "error": error }).to_string();
        }
        match self.help() {
            Some(help) => format!("error: {self}\nhelp: {help}"),
            None => format!("error: {self}"),
        }
    }
}

/// An error in JSON.
#[derive(Serialize)]
struct Report<'a> {
    message: String,
    errno: Option<&'static str>,
    help: Option<&'a str>,
}

/// Adds the action to an error of the library.
pub(crate) trait Doing<T> {
    /// `doing` completes "cannot ...".
    fn doing(self, doing: impl Into<String>) -> Result<T>;
}

impl<T> Doing<T> for kfi::Result<T> {
    fn doing(self, doing: impl Into<String>) -> Result<T> {
        self.map_err(|source| Error::Kfi {
            doing: doing.into(),
            source: Box::new(source),
            help: None,
        })
    }
}

#[cfg(test)]
pub(crate) mod tests {
    use super::*;
    use kfi::Errno;

    pub(crate) fn refused() -> Error {
        let refused: kfi::Result<()> = Err(kfi::Error::Call {
            call: "KFABRIC_IOC_LINK_ADD",
            errno: Errno::EPERM,
        });
        refused.doing("add link roce0").unwrap_err()
    }

    #[test]
    fn text_has_the_cause_and_the_advice() {
        assert_eq!(
            refused().render(false),
            "error: cannot add link roce0: KFABRIC_IOC_LINK_ADD: \
             Operation not permitted (EPERM)\n\
             help: links need CAP_NET_ADMIN in this network namespace: run as root"
        );
        assert_eq!(
            Error::with_help("there is no link", "make one").render(false),
            "error: there is no link\nhelp: make one"
        );
    }

    #[test]
    fn json_is_one_line() {
        let text = refused().render(true);
        assert_eq!(text.lines().count(), 1);
        let json: serde_json::Value = serde_json::from_str(&text).unwrap();
        assert_eq!(json["error"]["errno"], "EPERM");
        assert!(json["error"]["help"].as_str().unwrap().contains("root"));
        assert!(
            json["error"]["message"]
                .as_str()
                .unwrap()
                .starts_with("cannot")
        );
    }

    #[test]
    fn only_a_broken_pipe_is_quiet() {
        assert!(Error::output(io::ErrorKind::BrokenPipe.into()).is_broken_pipe());
        assert!(!Error::output(io::ErrorKind::StorageFull.into()).is_broken_pipe());
        assert!(!refused().is_broken_pipe());
    }
}
