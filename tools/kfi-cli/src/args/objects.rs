// SPDX-License-Identifier: GPL-2.0
//! Arguments of the commands that show and set up objects: `kfi info`, `link`, `cq`, `top`.

use std::time::Duration;

use clap::{Parser, Subcommand, ValueEnum};

use crate::text;

/// Show the module and the available endpoints
///
/// The version and the limits of the module, and one entry for each link, endpoint type and address
/// format that matches the hints (kfi_getinfo). With hints, the command fails if nothing matches.
#[derive(Debug, Parser)]
pub(crate) struct Info {
    /// Show all attributes
    #[arg(short, long)]
    pub(crate) verbose: bool,

    /// Hint: only this link
    #[arg(short, long, value_name = "NAME")]
    pub(crate) link: Option<String>,

    /// Hint: endpoint type
    #[arg(short, long, value_name = "TYPE")]
    pub(crate) ep_type: Option<EpType>,

    /// Hint: capabilities, separated by commas: msg, tagged, rma, source, ...
    #[arg(short, long, value_name = "CAPS", value_parser = parse_caps)]
    pub(crate) caps: Option<kfi::Caps>,

    /// Hint: authorization key of endpoints, a hexadecimal number
    #[arg(long, value_name = "KEY")]
    pub(crate) auth_key: Option<kfi::AuthKey>,

    /// Hint: numeric address of the peer
    #[arg(short, long, value_name = "ADDRESS")]
    pub(crate) node: Option<String>,

    /// Hint: port of the peer
    #[arg(short = 'p', long, value_name = "PORT")]
    pub(crate) service: Option<String>,

    /// The address and port of the hints are those of this side, not of the peer; the address can
    /// be the name of a link
    #[arg(long)]
    pub(crate) source: bool,
}

/// Type of an endpoint.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(crate) enum EpType {
    /// Connected, reliable
    Msg,
    /// Unconnected, unreliable
    Dgram,
    /// Unconnected, reliable
    Rdm,
}

/// Add, remove and show links
///
/// A link is the software device on one network interface of this network namespace. Without a
/// link the module opens nothing to the network. Without a command, all links are shown.
#[derive(Debug, Parser)]
pub(crate) struct Link {
    #[command(subcommand)]
    pub(crate) command: Option<LinkCommand>,
}

/// Operations on links.
#[derive(Debug, Subcommand)]
pub(crate) enum LinkCommand {
    /// Add a link on a network interface (needs CAP_NET_ADMIN)
    ///
    /// A link on lo serves a single machine. An interface has one link at most.
    #[command(override_usage = "kfi link add [OPTIONS] <NAME> netdev <INTERFACE>")]
    Add {
        /// Name of the new link: up to 15 printable characters, no blank, no '/', not . or ..
        name: String,
        /// The word netdev
        #[arg(value_name = "netdev", value_parser = ["netdev"], hide_possible_values = true)]
        keyword: String,
        /// Network interface
        #[arg(value_name = "INTERFACE")]
        netdev: String,
    },
    /// Remove a link that no program has open (needs CAP_NET_ADMIN)
    Del {
        /// Name of the link
        name: String,
    },
    /// Show one link, or all of this network namespace
    ///
    /// The state is up; down: the interface is down, or there was no memory for a socket in its
    /// VRF; or gone: the interface was removed.
    Show {
        /// Name of the link
        name: Option<String>,
        /// Also show operations, bytes, and packet statistics
        #[arg(short, long)]
        stats: bool,
    },
}

/// Show completions in every format
///
/// Opens an endpoint, posts operations from it to itself (a message, a tagged message with remote
/// CQ data, a write, and a message that is too long for its receive), and shows the entries that a
/// completion queue of each format gives for them.
#[derive(Debug, Parser)]
pub(crate) struct Cq {
    /// Only this format
    #[arg(short, long, value_enum)]
    pub(crate) format: Vec<Format>,

    /// Link to use; without it, the first that is up, one on lo only if there is no other
    #[arg(short, long, value_name = "NAME")]
    pub(crate) link: Option<String>,
}

/// Format of the entries of a CQ.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(crate) enum Format {
    /// The operation's context
    Context,
    /// The context, flags and length
    Msg,
    /// The above, buffer and remote CQ data
    Data,
    /// And the tag
    Tagged,
}

/// Watch links, endpoints, completion queues, counters of all kinds, and flows
///
/// Shows the statistics of this network namespace: of all programs with CAP_NET_ADMIN, else of
/// one's own. On a terminal it fills the screen (q quits, arrows scroll, space pauses); without
/// one, or with --once, it prints tables.
#[derive(Debug, Parser)]
pub(crate) struct Top {
    /// Print once and exit
    #[arg(short = '1', long)]
    pub(crate) once: bool,

    /// Time between two updates
    #[arg(short, long, value_name = "SECONDS", default_value = "1", value_parser = text::parse_seconds)]
    pub(crate) interval: Duration,
}

fn parse_caps(text: &str) -> Result<kfi::Caps, String> {
    text.split(',').try_fold(kfi::Caps::empty(), |caps, name| {
        let upper = name.trim().to_uppercase();
        match kfi::Caps::from_name(upper.strip_prefix("KFI_").unwrap_or(&upper)) {
            Some(cap) => Ok(caps | cap),
            None => {
                let all: Vec<String> = kfi::Caps::all()
                    .iter_names()
                    .map(|(name, _)| name.to_lowercase())
                    .collect();
                Err(format!(
                    "no capability {name:?}; there are {}",
                    all.join(", ")
                ))
            }
        }
    })
}

#[cfg(test)]
mod tests {
    use super::{super::tests::parse, *};
    use crate::args::Command;
    use clap::error::ErrorKind;

    #[test]
    fn link_add_wants_netdev() {
        let Command::Link(link) = parse("kfi link add roce0 netdev lo").unwrap().command else {
            panic!("not link");
        };
        let Some(LinkCommand::Add { name, netdev, .. }) = link.command else {
            panic!("not add");
        };
        assert_eq!((&*name, &*netdev), ("roce0", "lo"));
        assert_eq!(
            parse("kfi link add roce0 device lo").unwrap_err(),
            ErrorKind::InvalidValue
        );
        for line in ["kfi link add roce0 netdev", "kfi link add", "kfi link del"] {
            assert_eq!(
                parse(line).unwrap_err(),
                ErrorKind::MissingRequiredArgument,
                "{line}"
            );
        }
    }

    #[test]
    fn link_without_a_command_is_a_command() {
        for line in ["kfi link", "kfi link --json"] {
            let Command::Link(link) = parse(line).unwrap().command else {
                panic!("not link");
            };
            assert!(link.command.is_none(), "{line}");
        }
    }

    #[test]
    fn capabilities_are_parsed() {
        use kfi::Caps;
        assert_eq!(parse_caps("msg,KFI_RMA"), Ok(Caps::MSG | Caps::RMA));
        assert!(parse_caps("msg,none").unwrap_err().contains("tagged"));
        // As it was typed.
        let error = parse_caps("KFI_Nothing").unwrap_err();
        assert!(error.contains("\"KFI_Nothing\""), "{error}");
    }
}
