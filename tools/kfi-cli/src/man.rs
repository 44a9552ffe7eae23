// SPDX-License-Identifier: GPL-2.0
//! Generates Documentation/man: a manual page for each command, from [`args`] and its
//! [`EXAMPLES`], and for kfi(1) from its [`SECTIONS`].
//!
//! The test fails when a page differs from the generated text; with
//! `KFI_UPDATE_MAN=1` in the environment it writes the pages.

use std::{collections::BTreeSet, fs, path::PathBuf};

use clap::{Arg, ArgAction, Command, CommandFactory};
use clap_mangen::Man;
use serde_json::{Value, json};

use crate::{
    args::Args, bench, cntr, comp_cntr, cq, error, flow, info, link, pingpong, rping, top, trigger,
};

/// Sections of kfi(1) that are not generated from the command line.
const SECTIONS: &str = include_str!("../man/kfi.sections");

/// Examples for the other pages.
const EXAMPLES: &str = include_str!("../man/kfi.examples");

/// The end of the other pages.
const SEE_ALSO: &[u8] = b".SH SEE ALSO\n.BR kfi (1),\n.BR kfabric (4)\n";

fn folder() -> PathBuf {
    PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("../../Documentation/man")
}

/// Text for roff.
fn roff(text: &str) -> String {
    text.replace('\\', "\\e")
        .replace('-', "\\-")
        .replace('\'', "\\(aq")
}

/// What an argument is followed by, or is: its values, or the name of one.
fn value(arg: &Arg) -> String {
    let known = arg.get_possible_values();
    let names = known.iter().filter(|value| !value.is_hide_set());
    let names: Vec<String> = names
        .map(|value| format!("\\fB{}\\fR", roff(value.get_name())))
        .collect();
    if !names.is_empty() {
        return names.join("|");
    }
    let names = arg.get_value_names().unwrap_or_default();
    let name = names.first().map_or("VALUE", |name| name.as_str());
    format!("\\fI{}\\fR", roff(name))
}

/// An argument in the synopsis.
fn synopsis_of(arg: &Arg) -> String {
    let many = match arg.get_action() {
        ArgAction::Append => " ...",
        _ => "",
    };
    if arg.is_positional() {
        return match arg.is_required_set() {
            true => format!("{}{many}", value(arg)),
            false => format!("[{}{many}]", value(arg)),
        };
    }
    let short = arg.get_short().map(|short| format!("\\-{short}"));
    let long = arg.get_long().map(|long| format!("\\-\\-{}", roff(long)));
    let names = { short.into_iter().chain(long) }
        .map(|name| format!("\\fB{name}\\fR"))
        .collect::<Vec<_>>()
        .join("|");
    match arg.get_action().takes_values() {
        true => format!("[{names} {}]{many}", value(arg)),
        false => format!("[{names}]"),
    }
}

/// The synopsis: every argument with its values, and whether it can be repeated.
fn synopsis(command: &Command, name: &str) -> String {
    let is_shown = |arg: &&Arg| {
        !matches!(
            arg.get_action(),
            ArgAction::Help | ArgAction::HelpShort | ArgAction::HelpLong | ArgAction::Version
        )
    };
    let words =
        |parts: Vec<String>| format!("\\fB{}\\fR {}\n", name.replace('-', "\\-"), parts.join(" "));
    let (places, options): (Vec<_>, Vec<_>) = { command.get_arguments() }
        .filter(is_shown)
        .partition(|arg| arg.is_positional());
    let args = { options.iter().chain(&places) }.map(|arg| synopsis_of(arg));
    let mut text = ".SH SYNOPSIS\n".to_owned();
    let inner: Vec<&Command> = { command.get_subcommands() }
        .filter(|inner| inner.get_name() != "help")
        .collect();
    // A command that has commands and is one by itself has two lines.
    if inner.is_empty() || !command.is_subcommand_required_set() {
        text.push_str(&words(args.collect()));
    }
    if let [only] = inner[..] {
        text.push_str(&format!(
            ".br\n{}",
            words(vec![format!("\\fB{}\\fR ...", only.get_name())])
        ));
    } else if !inner.is_empty() {
        let names: Vec<_> = { inner.iter() }
            .map(|inner| format!("\\fB{}\\fR", roff(inner.get_name())))
            .collect();
        let all = vec![format!("{} ...", names.join("|"))];
        if !text.ends_with("SYNOPSIS\n") {
            text.push_str(".br\n");
        }
        text.push_str(&words(all));
    }
    text
}

/// The lines of a page's examples.
fn examples_of(page: &str) -> Vec<&'static str> {
    let mut sections = EXAMPLES.split("\n== ").skip(1);
    let found = sections.find_map(|section| section.strip_prefix(page)?.strip_prefix('\n'));
    found.map_or(Vec::new(), |section| section.trim_end().lines().collect())
}

/// The prompt and the command of a line of examples, if it is one.
fn prompt(line: &str) -> Option<(&str, &str)> {
    let (prompt, command) = line.split_once(' ')?;
    ["$", "#", "a$", "b$"]
        .contains(&prompt)
        .then_some((prompt, command))
}

/// The section of examples.
fn examples(page: &str) -> String {
    let mut text = ".SH EXAMPLES\n".to_owned();
    let mut in_commands = false;
    for line in examples_of(page) {
        match prompt(line) {
            Some((prompt, command)) => {
                if !in_commands {
                    text.push_str(".PP\n.in +4n\n.nf\n");
                }
                text.push_str(&format!(".RB \"{prompt} \" \"{}\"\n", roff(command)));
            }
            None => {
                if in_commands {
                    text.push_str(".fi\n.in\n.PP\n");
                }
                text.push_str(&format!("{}\n", roff(line)));
            }
        }
        in_commands = prompt(line).is_some();
    }
    if in_commands {
        text.push_str(".fi\n.in\n");
    }
    text
}

/// The page of a command, whose full name is `name`.
fn page(command: &Command, name: &str, top: bool) -> String {
    let man = Man::new(command.clone())
        .title(name.to_uppercase())
        .source("kfabric")
        .manual("kfabric manual")
        .date("");
    let mut text = Vec::new();
    text.extend_from_slice(b".\\\" SPDX-License-Identifier: GPL-2.0\n");
    text.extend_from_slice(b".\\\" Made from tools/kfi-cli by its test of manual pages.\n");
    man.render_title(&mut text).unwrap();
    man.render_name_section(&mut text).unwrap();
    let words = command.get_bin_name().unwrap_or(name);
    text.extend_from_slice(synopsis(command, words).as_bytes());
    man.render_description_section(&mut text).unwrap();
    man.render_options_section(&mut text).unwrap();
    if command.has_subcommands() {
        man.render_subcommands_section(&mut text).unwrap();
    }
    if top {
        text.extend_from_slice(SECTIONS.as_bytes());
    } else {
        text.extend_from_slice(examples(name).as_bytes());
        text.extend_from_slice(SEE_ALSO);
    }
    String::from_utf8(text).unwrap()
}

/// All pages: file names and texts.
fn pages() -> Vec<(String, String)> {
    fn add(command: &Command, name: &str, pages: &mut Vec<(String, String)>) {
        pages.push((format!("{name}.1"), page(command, name, name == "kfi")));
        for inner in command.get_subcommands() {
            if inner.get_name() != "help" {
                add(inner, &format!("{name}-{}", inner.get_name()), pages);
            }
        }
    }
    let mut command = Args::command().disable_help_subcommand(true);
    command.build();
    let mut pages = Vec::new();
    add(&command, "kfi", &mut pages);
    pages
}

#[test]
fn pages_are_up_to_date() {
    let update = std::env::var_os("KFI_UPDATE_MAN").is_some();
    for (name, text) in pages() {
        let path = folder().join(&name);
        if update {
            fs::create_dir_all(folder()).unwrap();
            fs::write(&path, &text).unwrap();
        }
        let found = fs::read_to_string(&path).unwrap_or_default();
        assert!(
            found == text,
            "{name} is not up to date: KFI_UPDATE_MAN=1 cargo test -p kfi-cli man writes it"
        );
    }
}

#[test]
fn every_page_has_examples_that_are_commands() {
    for (name, _) in pages() {
        let name = name.trim_end_matches(".1");
        if name == "kfi" {
            continue;
        }
        let commands: Vec<&str> = { examples_of(name).into_iter() }
            .filter_map(|line| Some(prompt(line)?.1))
            .collect();
        // The page's own command is among them.
        let own = name.replace('-', " ").replace("comp cntr", "comp-cntr");
        let shows = |command: &&str| command.contains(&own) || command.contains("kfi --json");
        assert!(commands.iter().any(shows), "{name}: {commands:?}");
        for command in commands {
            let Some(at) = command.find("kfi ") else {
                continue;
            };
            let words = command[at..].split(" >").next().unwrap_or_default();
            let parsed = Args::of(words.split_whitespace());
            assert!(parsed.is_ok(), "{command}: {}", parsed.unwrap_err());
        }
    }
}

#[test]
fn synopses_have_values_and_repetitions() {
    let pages = pages();
    let synopsis = |page: &str| {
        let (_, text) = { pages.iter() }
            .find(|(name, _)| name.trim_end_matches(".1") == page)
            .expect(page);
        let (_, rest) = text.split_once(".SH SYNOPSIS\n").expect("a synopsis");
        let lines = rest.lines().take_while(|line| !line.starts_with(".ie"));
        lines.collect::<Vec<_>>().join("\n").replace('\\', "")
    };
    for (page, part) in [
        ("kfi-pingpong", "[fB-mfR|fB--modefR fBmsgfR|fBtagged"),
        ("kfi-pingpong", "[fB-lfR|fB--linkfR fINAMEfR]"),
        ("kfi-pingpong", "[fIHOST[:PORT]fR]"),
        ("kfi-cntr", "[fISTEPfR ...]"),
        ("kfi-cntr", "fBkfi cntrfR fBwatchfR ..."),
        ("kfi-cq", "fBtaggedfR] ..."),
        ("kfi-link", "fBaddfR|fBdelfR|fBshowfR ..."),
        (
            "kfi-link-add",
            "fBkfi link addfR [fB--jsonfR] fINAMEfR fBnetdevfR fIINTERFACEfR",
        ),
        (
            "kfi-info",
            "[fB-efR|fB--ep-typefR fBmsgfR|fBdgramfR|fBrdmfR]",
        ),
    ] {
        let found = synopsis(page);
        assert!(found.contains(part), "{page}: {part}: {found}");
    }
}

#[test]
fn no_page_is_left_over() {
    let ours: Vec<String> = pages().into_iter().map(|(name, _)| name).collect();
    for entry in fs::read_dir(folder()).unwrap() {
        let name = entry.unwrap().file_name().into_string().unwrap();
        assert!(
            !name.ends_with(".1") || ours.contains(&name),
            "no command has {name}"
        );
    }
}

/// All keys of a document, inner ones too.
fn keys(json: &Value, into: &mut BTreeSet<String>) {
    match json {
        Value::Object(map) => map.iter().for_each(|(key, value)| {
            into.insert(key.clone());
            keys(value, into);
        }),
        Value::Array(list) => list.iter().for_each(|value| keys(value, into)),
        _ => {}
    }
}

/// Documents of every command, from their own tests.
fn documents() -> Vec<Value> {
    let mut documents = vec![
        json!({ "links": [link::tests::example()], "removed": "x" }),
        json!({ "module": info::tests::module(), "infos": [info::tests::info()] }),
        json!(pingpong::result::tests::result()),
        json!({ "event": "listening", "role": "server", "link": "x", "address": "x" }),
        json!(pingpong::verbs::tests::result()),
        json!(rping::tests::result()),
        json!({ "link": "x", "results": [bench::tests::result()] }),
        json!(cntr::tests::done()),
        json!(comp_cntr::tests::done()),
        json!(cntr::watch::CntrsJson::new(&top::tests::change())),
        json!({ "link": "x", "formats": [cq::tests::shown(kfi::CqFormat::Tagged)] }),
        json!(flow::tests::shown()),
        json!(top::tests::change()),
    ];
    documents.extend(pingpong::trace::tests::documents());
    documents.extend(trigger::tests::documents());
    documents.push(serde_json::from_str(&error::tests::refused().render(true)).unwrap());
    documents
}

#[test]
fn keys_of_json_are_explained() {
    let page = SECTIONS.replace("\\-", "-");
    let words: BTreeSet<&str> = page
        .split(|c: char| !(c.is_alphanumeric() || c == '_'))
        .collect();
    let mut all = BTreeSet::new();
    documents().iter().for_each(|json| keys(json, &mut all));
    assert!(all.len() > 100, "{}", all.len());
    for key in all {
        assert!(words.contains(&*key), "kfi(1) does not explain {key}");
    }
}
