// SPDX-License-Identifier: GPL-2.0
//! Generates Documentation/man: a manual page for each command, from [`args`],
//! and for kfi(1) also from its [`SECTIONS`].
//!
//! The test fails when a page differs from the generated text; with
//! `KFI_UPDATE_MAN=1` in the environment it writes the pages.

use std::{collections::BTreeSet, fs, path::PathBuf};

use clap::{Command, CommandFactory};
use clap_mangen::Man;
use serde_json::{Value, json};

use crate::{
    args::Args, bench, cntr, comp_cntr, cq, error, flow, info, link, pingpong, rping, top, trigger,
};

/// Sections of kfi(1) that are not generated from the command line.
const SECTIONS: &str = include_str!("../man/kfi.sections");

/// The end of the other pages.
const SEE_ALSO: &[u8] = b".SH SEE ALSO\n.BR kfi (1),\n.BR kfabric (4)\n";

fn folder() -> PathBuf {
    PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("../../Documentation/man")
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
    man.render_synopsis_section(&mut text).unwrap();
    man.render_description_section(&mut text).unwrap();
    man.render_options_section(&mut text).unwrap();
    if command.has_subcommands() {
        man.render_subcommands_section(&mut text).unwrap();
    }
    text.extend_from_slice(if top { SECTIONS.as_bytes() } else { SEE_ALSO });
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
        json!(pingpong::tests::result()),
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
