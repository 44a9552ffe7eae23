// SPDX-License-Identifier: GPL-2.0
//! `kfi cq`: shows completions in every format.
//!
//! For each format an endpoint posts a few operations to itself, and the
//! command shows the entries of its CQ with exactly the fields that the format
//! has.

use std::time::Duration;

use kfi::{
    Access, AvKind, Buffer, Caps, Cq, CqBind, CqFormat, Deadline, Domain, Entry, ErrEntry, Errno,
    Error as KfiError, MrMode, Op, Wait,
};
use serde::Serialize;

use crate::{
    args::{self, Format},
    error::{Doing, Result},
    link,
    out::Out,
    table::Table,
    text,
};

/// The kind of operation by its context, which makes an entry readable.
const POSTED: &[(u64, &str)] = &[
    (1, "receive of 16 bytes"),
    (2, "send of 5 bytes"),
    (3, "tagged receive, any tag"),
    (4, "tagged send of 7 bytes, tag 0x22, remote CQ data 0x77"),
    (5, "write of 8 bytes, remote CQ data 0x99"),
    (6, "receive of 4 bytes"),
    (7, "send of 10 bytes: more than the receive has room for"),
];

/// An entry in JSON; fields that the format does not have are null.
#[derive(Debug, Serialize)]
pub(crate) struct EntryJson {
    op_context: u64,
    flags: Option<Vec<String>>,
    len: Option<u64>,
    buf: Option<u64>,
    data: Option<u64>,
    tag: Option<u64>,
    src_addr: Option<u64>,
}

/// An error entry in JSON.
#[derive(Debug, Serialize)]
pub(crate) struct ErrJson {
    op_context: u64,
    flags: Vec<String>,
    len: u64,
    olen: u64,
    tag: u64,
    data: u64,
    src_addr: Option<u64>,
    err: i32,
    errno: Option<&'static str>,
    prov_errno: u32,
    text: String,
}

/// The completions of one format.
#[derive(Debug, Serialize)]
pub(crate) struct Shown {
    format: &'static str,
    entry_bytes: usize,
    entries: Vec<EntryJson>,
    errors: Vec<ErrJson>,
}

/// Number of fields of an entry in a format.
fn fields(format: CqFormat) -> usize {
    match format {
        CqFormat::Context => 1,
        CqFormat::Msg => 3,
        CqFormat::Data => 5,
        _ => 6,
    }
}

impl EntryJson {
    fn new(entry: &Entry, format: CqFormat) -> Self {
        let has = |count: usize| fields(format) >= count;
        Self {
            op_context: entry.op_context,
            flags: has(3).then(|| text::comp_flags(entry.flags)),
            len: has(3).then_some(entry.len),
            buf: has(5).then_some(entry.buf),
            data: has(5).then_some(entry.data),
            tag: has(6).then_some(entry.tag),
            // Returned beside the entry, by readfrom, with every format.
            src_addr: entry.src_addr.known().map(|addr| addr.0),
        }
    }

    fn cells(&self) -> Vec<String> {
        let hex = |value: Option<u64>| value.map(|value| format!("{value:#x}"));
        let all = [
            Some(self.op_context.to_string()),
            self.flags.as_deref().map(text::row),
            self.len.map(|len| len.to_string()),
            hex(self.buf),
            hex(self.data),
            hex(self.tag),
        ];
        let mut cells: Vec<String> = all.into_iter().flatten().collect();
        cells.push(
            self.src_addr
                .map_or("-".to_owned(), |addr| addr.to_string()),
        );
        cells
    }
}

impl ErrJson {
    fn new(entry: &ErrEntry, cq: &Cq) -> kfi::Result<Self> {
        Ok(Self {
            op_context: entry.op_context,
            flags: text::comp_flags(entry.flags),
            len: entry.len,
            olen: entry.olen,
            tag: entry.tag,
            data: entry.data,
            src_addr: entry.src_addr.known().map(|addr| addr.0),
            err: entry.err.raw(),
            errno: Errno::name(entry.err),
            prov_errno: entry.prov_errno,
            // Without a number of its own the module knows no more than the error says.
            text: match entry.prov_errno {
                0 => entry.err.text(),
                own => cq.strerror(own)?,
            },
        })
    }
}

/// Posts the operations, and reads their completions.
fn collect(domain: &Domain, format: CqFormat) -> kfi::Result<Shown> {
    let cq = domain
        .cq()
        .entries(64)
        .format(format)
        .wait(Wait::Queue)
        .open()?;
    let av = domain.av().kind(AvKind::Table).open()?;
    let caps = Caps::MSG | Caps::TAGGED | Caps::RMA | Caps::SOURCE;
    let ep = domain.endpoint().caps(caps).open()?;
    ep.bind_cq(&cq, CqBind::TRANSMIT | CqBind::RECV)?;
    ep.bind_av(&av)?;
    ep.enable()?;
    let me = av.insert_one(ep.name()?)?;
    let (from, into) = (Buffer::from_bytes(b"hello, myself")?, Buffer::new(64)?);
    let memory = Buffer::new(64)?;
    let mr = domain.mr(&memory).access(Access::REMOTE_WRITE).open()?;
    let ops = [
        Op::recv(into.slice(..16)).context(1),
        Op::send(me, from.slice(..5)).context(2),
        Op::trecv(into.slice(16..32), 0, u64::MAX).context(3),
        Op::tsend(me, from.slice(..7), 0x22).data(0x77).context(4),
        Op::write(me, from.slice(..8), mr.remote(0))
            .data(0x99)
            .context(5),
        Op::recv(into.slice(32..36)).context(6),
        Op::send(me, from.slice(..10)).context(7),
    ];
    let mut left = ops.as_slice();
    while !left.is_empty() {
        left = &left[ep.post(left)?.done..];
    }
    let mut shown = Shown {
        format: format.name(),
        entry_bytes: 8 * fields(format),
        entries: Vec::new(),
        errors: Vec::new(),
    };
    // Two completions for each exchange; there are no others.
    let mut due = 8;
    while due > 0 {
        match cq.next(Deadline::after(Duration::from_secs(2))) {
            Ok(Some(entry)) => shown.entries.push(EntryJson::new(&entry, format)),
            Err(KfiError::Completion(entry)) => shown.errors.push(ErrJson::new(&entry, &cq)?),
            Ok(None) => break,
            Err(error) => return Err(error),
        }
        due -= 1;
    }
    Ok(shown)
}

/// Runs `kfi cq`.
pub(crate) fn run(args: &args::Cq, out: &mut Out) -> Result<()> {
    let device = link::open()?;
    let link = link::choose(&device, args.link.as_deref(), None, None)?;
    let domain = device
        .fabric()
        .and_then(|fabric| fabric.domain(&link.name).mr_mode(MrMode::PROV_KEY).open())
        .doing(format!("open a domain on {}", link.name))?;
    let all = [Format::Context, Format::Msg, Format::Data, Format::Tagged];
    let formats = match args.format.as_slice() {
        [] => &all,
        some => some,
    };
    let mut shown = Vec::new();
    for format in formats {
        let format = match format {
            Format::Context => CqFormat::Context,
            Format::Msg => CqFormat::Msg,
            Format::Data => CqFormat::Data,
            Format::Tagged => CqFormat::Tagged,
        };
        shown.push(collect(&domain, format).doing(format!("fill a CQ of format {format}"))?);
    }
    if out.is_json() {
        return out.document(&serde_json::json!({ "link": link.name, "formats": shown }));
    }
    out.line(format!("an endpoint on {} posts to itself:", link.name))?;
    let mut posted = Table::new(&[">CONTEXT", "OPERATION"]).indent(2);
    for (context, what) in POSTED {
        posted.cells(&[context, what]);
    }
    out.table(&posted)?;
    for format in &shown {
        out.text(&render(format))?;
    }
    Ok(())
}

fn render(shown: &Shown) -> String {
    let columns = [">op_context", "flags", ">len", ">buf", ">data", ">tag"];
    let count = shown.entry_bytes / 8;
    let mut head = columns[..count].to_vec();
    head.push(">src_addr");
    let mut table = Table::new(&head).indent(2);
    for entry in &shown.entries {
        table.row(entry.cells());
    }
    let mut text = format!(
        "\nformat {}: {} bytes an entry (src_addr comes from readfrom)\n{table}",
        shown.format.to_uppercase(),
        shown.entry_bytes
    );
    for error in &shown.errors {
        let line = format!(
            "  error entry (readerr): op_context {}, flags {}, len {}, olen {}, err {} ({}), \
             prov_errno {}: {}",
            error.op_context,
            text::row(&error.flags),
            error.len,
            error.olen,
            error.err,
            error.errno.unwrap_or("unknown"),
            error.prov_errno,
            error.text
        );
        text.push_str(&text::wrapped(&line, 4));
        text.push('\n');
    }
    text
}

#[cfg(test)]
pub(crate) mod tests {
    use super::*;

    pub(crate) fn shown(format: CqFormat) -> Shown {
        let mut entry = Entry::default();
        entry.op_context = 3;
        entry.flags = kfi::CompFlags::TAGGED | kfi::CompFlags::RECV;
        entry.len = 7;
        entry.tag = 0x22;
        entry.src_addr = kfi::FiAddr(0);
        Shown {
            format: format.name(),
            entry_bytes: 8 * fields(format),
            entries: vec![EntryJson::new(&entry, format)],
            errors: vec![ErrJson {
                op_context: 6,
                flags: vec!["MSG".to_owned(), "RECV".to_owned()],
                len: 4,
                olen: 6,
                tag: 0,
                data: 0,
                src_addr: None,
                err: 265,
                errno: Some("KFI_ETRUNC"),
                prov_errno: 0,
                text: Errno::KFI_ETRUNC.text(),
            }],
        }
    }

    #[test]
    fn json_has_the_documented_keys() {
        assert_eq!(
            serde_json::to_string(&shown(CqFormat::Tagged)).unwrap(),
            r#"{"format":"tagged","entry_bytes":48,"entries":[{"op_context":3,"#.to_owned()
                + r#""flags":["TAGGED","RECV"],"len":7,"buf":0,"data":0,"tag":34,"src_addr":0}],"#
                + r#""errors":[{"op_context":6,"flags":["MSG","RECV"],"len":4,"olen":6,"tag":0,"#
                + r#""data":0,"src_addr":null,"err":265,"errno":"KFI_ETRUNC","prov_errno":0,"#
                + r#""text":"The message was truncated"}]}"#
        );
        let context = serde_json::to_value(shown(CqFormat::Context)).unwrap();
        assert!(context["entries"][0]["flags"].is_null());
        assert_eq!(context["entries"][0]["src_addr"], 0);
    }

    #[test]
    fn text_shows_the_fields_of_the_format() {
        assert_eq!(
            render(&shown(CqFormat::Msg)),
            "\nformat MSG: 24 bytes an entry (src_addr comes from readfrom)\n  \
             op_context  flags        len  src_addr\n           \
             3  TAGGED|RECV    7         0\n  \
             error entry (readerr): op_context 6, flags MSG|RECV, len 4, olen 6, \
             err 265 (KFI_ETRUNC),\n    prov_errno 0: The message was truncated\n"
        );
    }

    #[test]
    fn contexts_are_explained_in_order() {
        let contexts: Vec<u64> = POSTED.iter().map(|(context, _)| *context).collect();
        assert_eq!(contexts, [1, 2, 3, 4, 5, 6, 7]);
    }
}
