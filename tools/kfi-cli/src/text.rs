// SPDX-License-Identifier: GPL-2.0
//! Values as text: flags, sizes, times.

use std::{net::SocketAddr, time::Duration};

use kfi::{AddrFormat, Caps, CompFlags, MrMode, MsgOrder, OpFlags};

/// Names of the flags that are set, and the other bits in hexadecimal.
macro_rules! names {
    ($flags:expr) => {{
        let flags = $flags;
        let mut left = flags.bits();
        let mut names: Vec<String> = Vec::new();
        for (name, flag) in flags.iter_names() {
            // Two names for the same bits are one flag.
            if left & flag.bits() != 0 {
                left &= !flag.bits();
                names.push(name.to_owned());
            }
        }
        if left != 0 {
            names.push(format!("{left:#x}"));
        }
        names
    }};
}

/// Names of capabilities.
pub(crate) fn caps(flags: Caps) -> Vec<String> {
    names!(flags)
}

/// Names of flags of operations.
pub(crate) fn op_flags(flags: OpFlags) -> Vec<String> {
    names!(flags)
}

/// Names of flags of completions.
pub(crate) fn comp_flags(flags: CompFlags) -> Vec<String> {
    names!(flags)
}

/// Names of modes of memory registration.
pub(crate) fn mr_mode(flags: MrMode) -> Vec<String> {
    names!(flags)
}

/// Names of message orders.
pub(crate) fn msg_order(flags: MsgOrder) -> Vec<String> {
    names!(flags)
}

/// A list of names: `MSG|RECV`, or `-`.
pub(crate) fn row(names: &[String]) -> String {
    if names.is_empty() {
        "-".to_owned()
    } else {
        names.join("|")
    }
}

/// The constant of the API.
pub(crate) fn addr_format(format: AddrFormat) -> String {
    let name = format.name().to_uppercase();
    match format {
        AddrFormat::Unspec => "KFI_FORMAT_UNSPEC".to_owned(),
        _ => format!("KFI_{name}"),
    }
}

/// An address or `-`; without the port if it is 0.
pub(crate) fn address(addr: Option<SocketAddr>) -> String {
    match addr {
        None => "-".to_owned(),
        Some(addr) if addr.port() == 0 => host(addr),
        Some(addr) => addr.to_string(),
    }
}

/// An address without its port, with the scope of a link-local address.
pub(crate) fn host(addr: SocketAddr) -> String {
    match addr {
        SocketAddr::V6(v6) if v6.scope_id() != 0 => format!("{}%{}", v6.ip(), v6.scope_id()),
        other => other.ip().to_string(),
    }
}

/// The address of a server as a client on another host writes it: the scope of a link-local
/// address is an interface of that host.
pub(crate) fn for_client(addr: SocketAddr) -> String {
    match addr {
        SocketAddr::V6(v6) if v6.scope_id() != 0 => {
            format!("[{}%INTERFACE]:{}", v6.ip(), v6.port())
        }
        other => other.to_string(),
    }
}

/// Text of a peer, for people: without control characters, which a terminal would obey, and not
/// longer than a few lines.
pub(crate) fn of_peer(text: &str) -> String {
    const LONGEST: usize = 400;
    let shown = text.chars().take(LONGEST);
    shown
        .map(|c| if c.is_control() { '?' } else { c })
        .collect()
}

/// Columns of a line of output.
pub(crate) const WIDTH: usize = 100;

/// The text in lines of at most [`WIDTH`] columns, broken between words; all but the first have
/// this indentation. A word that is longer stays whole.
pub(crate) fn wrapped(text: &str, indent: usize) -> String {
    let mut lines = String::new();
    // Columns of the line, and those of its indentation.
    let (mut width, mut begin) = (0, 0);
    for (at, word) in text.split(' ').enumerate() {
        let length = word.chars().count();
        if width > begin && width + 1 + length > WIDTH {
            lines.push('\n');
            lines.push_str(&" ".repeat(indent));
            (width, begin) = (indent, indent);
        } else if at > 0 {
            lines.push(' ');
            width += 1;
        }
        lines.push_str(word);
        width += length;
    }
    lines
}

/// Bytes, in the largest binary unit that leaves no fraction.
pub(crate) fn bytes(count: u64) -> String {
    for (unit, shift) in [("GiB", 30), ("MiB", 20), ("KiB", 10)] {
        if count >= 1 << shift && count.is_multiple_of(1 << shift) {
            return format!("{} {unit}", count >> shift);
        }
    }
    format!("{count} B")
}

/// A rate of bytes, with three digits.
pub(crate) fn bytes_per_second(rate: f64) -> String {
    format!("{}B/s", si(rate))
}

/// A number with three digits and a decimal prefix.
pub(crate) fn si(value: f64) -> String {
    let mut value = value;
    for prefix in ["", "k", "M", "G"] {
        if value.abs() < 999.5 {
            return format!("{} {prefix}", digits(value));
        }
        value /= 1000.0;
    }
    format!("{} T", digits(value))
}

/// At most three digits.
fn digits(value: f64) -> String {
    match value.abs() {
        size if size >= 99.95 || size == 0.0 => format!("{value:.0}"),
        size if size >= 9.995 => format!("{value:.1}"),
        _ => format!("{value:.2}"),
    }
}

/// Milliseconds, with one decimal.
pub(crate) fn millis(time: Duration) -> String {
    format!("{:.1}", time.as_secs_f64() * 1e3)
}

/// A number rounded to three decimals, for JSON.
pub(crate) fn rounded(value: f64) -> f64 {
    (value * 1e3).round() / 1e3
}

/// Parses a size: a number with an optional K, M or G, binary.
pub(crate) fn parse_size(text: &str) -> Result<u64, String> {
    let upper = text.trim().to_uppercase();
    let upper = upper
        .strip_suffix("IB")
        .or(upper.strip_suffix('B'))
        .unwrap_or(&upper);
    let (number, shift) = match upper.chars().last() {
        Some('K') => (&upper[..upper.len() - 1], 10),
        Some('M') => (&upper[..upper.len() - 1], 20),
        Some('G') => (&upper[..upper.len() - 1], 30),
        _ => (upper, 0),
    };
    let number: u64 = number
        .trim()
        .parse()
        .map_err(|_| "a number of bytes, such as 8, 4K or 1M".to_owned())?;
    let bytes = number
        .checked_mul(1 << shift)
        .filter(|bytes| *bytes <= MAX_SIZE);
    bytes.ok_or_else(|| format!("more than {}", self::bytes(MAX_SIZE)))
}

/// The largest size of an operation.
const MAX_SIZE: u64 = 1 << 30;

/// Parses a number of seconds.
pub(crate) fn parse_seconds(text: &str) -> Result<Duration, String> {
    let seconds: f64 = text
        .parse()
        .map_err(|_| "a number of seconds, such as 2 or 0.5".to_owned())?;
    if seconds < 0.001 {
        return Err("at least 0.001".to_owned());
    }
    Duration::try_from_secs_f64(seconds).map_err(|error| error.to_string())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn flags_have_names() {
        let flags = CompFlags::MSG | CompFlags::RECV | CompFlags::from_bits_retain(1 << 63);
        assert_eq!(row(&comp_flags(flags)), "MSG|RECV|0x8000000000000000");
        assert_eq!(row(&comp_flags(CompFlags::empty())), "-");
    }

    #[test]
    fn sizes_survive_formatting_and_parsing() {
        for (text, count) in [
            ("8 B", 8),
            ("4 KiB", 4096),
            ("1 MiB", 1 << 20),
            ("1 GiB", 1 << 30),
        ] {
            assert_eq!(bytes(count), text);
            assert_eq!(parse_size(text), Ok(count));
        }
        assert_eq!(bytes(1025), "1025 B");
        assert_eq!(parse_size("64k"), Ok(65536));
        for wrong in ["", "x", "-1", "1.5K", "2G", "K", "99999999999999999999"] {
            assert!(parse_size(wrong).is_err(), "{wrong}");
        }
    }

    #[test]
    fn three_digits() {
        for (value, text) in [
            (0.0, "0 "),
            (1.234, "1.23 "),
            (12.34, "12.3 "),
            (999.4, "999 "),
            (999.6, "1.00 k"),
            (1.5e7, "15.0 M"),
            (2e12, "2.00 T"),
        ] {
            assert_eq!(si(value), text);
        }
        assert_eq!(bytes_per_second(3.1e9), "3.10 GB/s");
    }

    #[test]
    fn text_of_peers_has_no_control_characters() {
        assert_eq!(of_peer("no\u{1b}[2J room\n"), "no?[2J room?");
        assert_eq!(of_peer(&"x".repeat(9000)).len(), 400);
    }

    #[test]
    fn lines_are_broken_between_words() {
        let words = ["word"; 60].join(" ");
        let lines = wrapped(&words, 4);
        assert!(lines.lines().all(|line| line.len() <= WIDTH), "{lines}");
        assert!(lines.lines().skip(1).all(|line| line.starts_with("    w")));
        assert_eq!(lines.split_whitespace().count(), 60);
        // Nothing is left of a blank at the beginning of a line.
        assert_eq!(wrapped("  a b", 2), "  a b");
        let long = "x".repeat(120);
        assert_eq!(wrapped(&long, 2), long);
        assert_eq!(
            wrapped(&format!("a {long} b"), 2),
            format!("a\n  {long}\n  b")
        );
    }

    #[test]
    fn seconds() {
        assert_eq!(parse_seconds("0.5"), Ok(Duration::from_millis(500)));
        for wrong in ["0", "-1", "x", "NaN", "1e300"] {
            assert!(parse_seconds(wrong).is_err(), "{wrong}");
        }
    }

    #[test]
    fn addresses() {
        assert_eq!(address(None), "-");
        assert_eq!(address("127.0.0.1:0".parse().ok()), "127.0.0.1");
        assert_eq!(address("[::1]:7471".parse().ok()), "[::1]:7471");
        assert_eq!(address("[fe80::1%3]:0".parse().ok()), "fe80::1%3");
        let client = |text: &str| for_client(text.parse().unwrap());
        assert_eq!(client("[fe80::1%3]:7471"), "[fe80::1%INTERFACE]:7471");
        assert_eq!(client("[2001:db8::1]:7471"), "[2001:db8::1]:7471");
        assert_eq!(addr_format(AddrFormat::SockaddrIn6), "KFI_SOCKADDR_IN6");
    }
}
