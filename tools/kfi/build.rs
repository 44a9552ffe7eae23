// SPDX-License-Identifier: GPL-2.0
//! Generates the raw bindings of `kfi::abi` from `include/uapi/kfabric.h`, the
//! only definition of the interface.
//!
//! bindgen alone does not handle four things:
//!
//! - `KFABRIC_IOC_*` are function-like expansions with `sizeof` in them, which
//!   bindgen does not evaluate.  The names are read from the header, each is
//!   given a constant of the C language, and clang computes its value.
//! - The table of calls: each command with the structure of its argument, and whether that holds
//!   pointers, which the comment of the structure says.
//! - The names of error numbers: `E*` of `<linux/errno.h>` as clang sees them,
//!   `KFI_E*` of the header.  They become constants of `Errno` and its table.
//! - libclang may be missing.  bindgen panics then; this program replaces the
//!   panic by two lines that say what to install.

use std::{
    env,
    fmt::Write as _,
    fs, panic,
    path::{Path, PathBuf},
    process,
    sync::{Arc, Mutex},
};

use bindgen::callbacks::{IntKind, ItemInfo, ParseCallbacks};

/// Prefix of the constants that carry ioctl numbers through clang.
const CARRIER: &str = "kfi_carrier_";

#[derive(Debug, Default)]
struct Names {
    /// The system's error numbers, in the order of their definition.
    errnos: Arc<Mutex<Vec<(String, i64)>>>,
}

impl ParseCallbacks for Names {
    /// Flags are 64 bits wide wherever the interface has them.
    fn int_macro(&self, name: &str, value: i64) -> Option<IntKind> {
        if is_errno(name) {
            self.errnos.lock().unwrap().push((name.to_owned(), value));
        }
        if name.starts_with("KFI_MR_") || name == "KFI_OPT_ENDPOINT" {
            Some(IntKind::U32)
        } else if name.starts_with("KFI_")
            || matches!(
                name,
                "KFABRIC_FOREVER" | "KFABRIC_MAX_MSG_SIZE" | "KFABRIC_MAX_BUFFERED"
            )
        {
            Some(IntKind::U64)
        } else {
            Some(IntKind::U32)
        }
    }

    fn item_name(&self, item: ItemInfo<'_>) -> Option<String> {
        item.name.strip_prefix(CARRIER).map(str::to_owned)
    }
}

/// Whether a macro of `<linux/errno.h>` names an error number.
fn is_errno(name: &str) -> bool {
    name.len() > 2
        && name.starts_with('E')
        && name
            .bytes()
            .all(|c| c.is_ascii_uppercase() || c.is_ascii_digit())
}

/// `KFI_E* = number` of the header, without the prefix.
fn kfi_errnos(header: &str) -> Vec<(String, i64)> {
    header
        .lines()
        .filter_map(|line| line.trim().strip_prefix("KFI_E"))
        .filter_map(|rest| rest.trim_end_matches(',').split_once('='))
        .filter_map(|(name, value)| {
            let value = value.trim().parse::<i64>().ok()?;
            (value > 255).then(|| (format!("E{}", name.trim()), value))
        })
        .collect()
}

/// Constants of `Errno` and the table of names; the first name of a number wins.
fn errno_source(system: &[(String, i64)], kfi: &[(String, i64)]) -> String {
    let (mut consts, mut table) = (String::new(), String::new());
    let mut seen = Vec::new();
    for (prefix, name, value) in
        (system.iter().map(|(n, v)| ("", n, *v))).chain(kfi.iter().map(|(n, v)| ("KFI_", n, *v)))
    {
        if seen.contains(&value) {
            continue;
        }
        seen.push(value);
        writeln!(consts, "/// `{prefix}{name}`").unwrap();
        writeln!(consts, "pub const {prefix}{name}: Errno = Errno({value});").unwrap();
        writeln!(table, "({value}, \"{prefix}{name}\"),").unwrap();
    }
    format!("impl Errno {{\n{consts}}}\nconst NAMES: &[(i32, &str)] = &[\n{table}];\n")
}

/// All `KFABRIC_IOC_*` commands in the header's order, each with the structure of its argument.
fn commands(header: &str) -> Vec<(&str, &str)> {
    header
        .lines()
        .filter_map(|line| line.strip_prefix("#define "))
        .filter_map(|rest| rest.split_once(char::is_whitespace))
        .filter(|(name, _)| name.starts_with("KFABRIC_IOC_") && *name != "KFABRIC_IOC_TYPE")
        .map(|(name, value)| {
            let arg = value
                .rsplit_once("struct ")
                .and_then(|(_, arg)| arg.split(')').next());
            let Some(arg) = arg else {
                fail(&format!("{name} names no structure"));
            };
            (name, arg)
        })
        .collect()
}

/// Whether no field of a structure is a pointer, by its comment in the header.
fn is_plain(header: &str, name: &str) -> bool {
    let begin = format!(" * struct {name} - ");
    let comment = header
        .split_once(&begin)
        .and_then(|(_, rest)| rest.split("*/").next());
    comment.is_some_and(|comment| !comment.contains("pointer to"))
}

/// The table of calls: `calls!` of `abi/mod.rs` with a line for each.
fn calls_source(header: &str) -> String {
    let mut lines = String::new();
    for (command, arg) in commands(header) {
        let plain = if is_plain(header, arg) { " Plain" } else { "" };
        writeln!(lines, "{command} {arg}{plain};").unwrap();
    }
    format!("calls! {{\n{lines}}}\n")
}

fn fail(message: &str) -> ! {
    for line in message.lines() {
        println!("cargo::error={line}");
    }
    process::exit(1)
}

/// The header as it stands in the repository, or in `KFABRIC_UAPI`.
fn header_path() -> PathBuf {
    println!("cargo::rerun-if-env-changed=KFABRIC_UAPI");
    match env::var_os("KFABRIC_UAPI") {
        Some(path) => path.into(),
        None => Path::new(&env::var_os("CARGO_MANIFEST_DIR").unwrap())
            .join("../../include/uapi/kfabric.h"),
    }
}

fn main() {
    let path = header_path();
    println!("cargo::rerun-if-changed={}", path.display());
    println!("cargo::rerun-if-changed=build.rs");
    let header = fs::read_to_string(&path)
        .unwrap_or_else(|error| fail(&format!("cannot read {}: {error}", path.display())));

    let mut source = format!(
        "#include <linux/errno.h>\n#include \"{}\"\n",
        path.display()
    );
    for (name, _) in commands(&header) {
        writeln!(source, "static const __u32 {CARRIER}{name} = {name};").unwrap();
    }

    // bindgen panics if it cannot load libclang; its message does not help a
    // user.
    let hook = panic::take_hook();
    panic::set_hook(Box::new(|_| ()));
    let loaded = panic::catch_unwind(bindgen::clang_version).is_ok();
    panic::set_hook(hook);
    if !loaded {
        fail(
            "libclang is missing, which makes kfi's bindings from include/uapi/kfabric.h\n\
             install it (Debian, Ubuntu: apt install libclang-dev) or build with \
             scripts/tools, which has its own",
        );
    }

    let names = Names::default();
    let errnos = names.errnos.clone();
    let bindings = bindgen::Builder::default()
        .header_contents("kfi_abi.h", &source)
        .allowlist_item(format!("({CARRIER}|kfi_|KFI_|kfabric_|KFABRIC_).*"))
        .use_core()
        .prepend_enum_name(false)
        .default_enum_style(bindgen::EnumVariation::Consts)
        .default_macro_constant_type(bindgen::MacroTypeVariation::Unsigned)
        .derive_default(true)
        .derive_eq(true)
        .generate_cstr(true)
        .layout_tests(true)
        .parse_callbacks(Box::new(names))
        .generate()
        .unwrap_or_else(|error| fail(&format!("bindings of {}: {error}", path.display())));

    let out = PathBuf::from(env::var_os("OUT_DIR").unwrap());
    let errno = errno_source(&errnos.lock().unwrap(), &kfi_errnos(&header));
    for (name, text) in [
        ("kfabric.rs", bindings.to_string()),
        ("errno.rs", errno),
        ("calls.rs", calls_source(&header)),
    ] {
        let file = out.join(name);
        if let Err(error) = fs::write(&file, text) {
            fail(&format!("cannot write {}: {error}", file.display()));
        }
    }
}
