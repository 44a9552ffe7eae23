// SPDX-License-Identifier: GPL-2.0
//! The example programs in C that the documents name: they compile without a warning, and know every
//! error number of the header.

use std::{fs, path::PathBuf, process::Command};

fn top() -> PathBuf {
    PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("../..")
}

fn programs() -> Vec<PathBuf> {
    let entries = fs::read_dir(top().join("packaging/examples")).unwrap();
    let paths = entries.map(|entry| entry.unwrap().path());
    let programs: Vec<_> = paths
        .filter(|path| path.extension().is_some_and(|end| end == "c"))
        .collect();
    assert!(programs.len() >= 2, "{programs:?}");
    programs
}

#[test]
fn programs_compile_without_warnings() {
    for program in programs() {
        let compile = |compiler: &str| {
            Command::new(compiler)
                .args([
                    "-std=gnu11",
                    "-Wall",
                    "-Wextra",
                    "-Werror",
                    "-fsyntax-only",
                    "-I",
                ])
                .arg(top().join("include/uapi"))
                .arg(&program)
                .output()
        };
        let output = { ["cc", "gcc", "clang"].into_iter() }
            .find_map(|compiler| compile(compiler).ok())
            .expect("a C compiler");
        let text = String::from_utf8_lossy(&output.stderr);
        assert!(output.status.success(), "{}: {text}", program.display());
    }
}

#[test]
fn programs_know_the_numbers_that_the_c_library_does_not() {
    let header = fs::read_to_string(top().join("include/uapi/kfabric.h")).unwrap();
    // The system's numbers are below.
    let is_own = |value: &str| {
        value
            .parse()
            .is_ok_and(|value: u32| (256..512).contains(&value))
    };
    let numbers: Vec<&str> = { header.lines() }
        .filter_map(|line| line.trim().trim_end_matches(',').split_once('='))
        .filter(|(name, value)| name.starts_with("KFI_E") && is_own(value.trim()))
        .map(|(name, _)| name.trim())
        .collect();
    assert_eq!(numbers.len(), 13, "{numbers:?}");
    for program in programs() {
        let text = fs::read_to_string(&program).unwrap();
        for name in &numbers {
            assert!(text.contains(&format!("case {name}:")), "{name}");
        }
    }
}

#[test]
fn the_guide_names_the_programs() {
    let guide = fs::read_to_string(top().join("Documentation/abi.md")).unwrap();
    for program in programs() {
        let name = program.file_name().unwrap().to_str().unwrap();
        assert!(
            guide.contains(&format!("packaging/examples/{name}")),
            "{name}"
        );
    }
}
