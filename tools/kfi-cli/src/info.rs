// SPDX-License-Identifier: GPL-2.0
//! `kfi info`: shows the module, its limits, and the available endpoints.

mod atomics;

use kfi::{EpType, Errno, Hints, Info, Query, Version};
use serde::Serialize;
use std::net::SocketAddr;

use crate::{
    args,
    error::{Doing, Error, Result},
    link,
    out::Out,
    table::Table,
    text,
};
use atomics::{Atomics, AtomicsJson};

/// The module in JSON.
#[derive(Serialize)]
pub(crate) struct ModuleJson {
    module_version: String,
    abi_version: u32,
    page_size: u32,
    caps: Vec<String>,
    max_msg_size: u64,
    inject_size: u32,
    max_iov: u32,
    max_handles: u32,
    max_queue: u32,
    max_cq: u32,
    max_eq: u32,
    max_av: u32,
    max_post: u32,
    max_buffered: u64,
    max_flows: u32,
    max_flow_points: u32,
    max_counters: u32,
    max_comp_cntr: u32,
    max_work: u32,
    max_ep_ctx: u32,
}

impl From<&Query> for ModuleJson {
    fn from(query: &Query) -> Self {
        Self {
            module_version: query.module_version.to_string(),
            abi_version: query.abi_version,
            page_size: query.page_size,
            caps: text::caps(query.caps),
            max_msg_size: query.max_msg_size,
            inject_size: query.inject_size,
            max_iov: query.max_iov,
            max_handles: query.max_handles,
            max_queue: query.max_queue,
            max_cq: query.max_cq,
            max_eq: query.max_eq,
            max_av: query.max_av,
            max_post: query.max_post,
            max_buffered: query.max_buffered,
            max_flows: query.max_flows,
            max_flow_points: query.max_flow_points,
            max_counters: query.max_counters,
            max_comp_cntr: query.max_comp_cntr,
            max_work: query.max_work,
            max_ep_ctx: query.max_ep_ctx,
        }
    }
}

/// An entry of kfi_getinfo in JSON.
#[derive(Serialize)]
pub(crate) struct InfoJson {
    provider: String,
    provider_version: String,
    api_version: String,
    fabric: String,
    domain: String,
    ep_type: &'static str,
    protocol: &'static str,
    protocol_version: u32,
    addr_format: String,
    src_addr: Option<SocketAddr>,
    dest_addr: Option<SocketAddr>,
    caps: Vec<String>,
    max_msg_size: u64,
    mem_tag_format: String,
    /// Null without a key.
    auth_key: Option<String>,
    threading: &'static str,
    control_progress: &'static str,
    data_progress: &'static str,
    resource_mgmt: &'static str,
    av_type: &'static str,
    mr_mode: Vec<String>,
    mr_key_size: u64,
    mr_iov_limit: u64,
    cq_data_size: u64,
    cq_cnt: u64,
    ep_cnt: u64,
    cntr_cnt: u64,
    mr_cnt: u64,
    atomics: Vec<AtomicsJson>,
    tx: SideJson,
    rx: SideJson,
}

/// The attributes of a side of an endpoint in JSON; attributes of the other
/// side only are null.
#[derive(Serialize)]
pub(crate) struct SideJson {
    caps: Vec<String>,
    op_flags: Vec<String>,
    msg_order: Vec<String>,
    size: u64,
    iov_limit: u64,
    inject_size: Option<u64>,
    rma_iov_limit: Option<u64>,
    total_buffered_recv: Option<u64>,
}

impl InfoJson {
    fn new(info: &Info, atomics: Vec<AtomicsJson>) -> Self {
        Self {
            provider: info.prov_name.clone(),
            provider_version: info.prov_version.to_string(),
            api_version: info.api_version.to_string(),
            fabric: info.fabric_name.clone(),
            domain: info.domain_name.clone(),
            ep_type: info.ep_type.name(),
            protocol: info.protocol.name(),
            protocol_version: info.protocol_version,
            addr_format: text::addr_format(info.addr_format),
            src_addr: info.src_addr,
            dest_addr: info.dest_addr,
            caps: text::caps(info.caps),
            max_msg_size: info.max_msg_size,
            mem_tag_format: format!("{:#x}", info.mem_tag_format),
            auth_key: info.auth_key.map(|key| key.to_string()),
            threading: info.threading.name(),
            control_progress: info.control_progress.name(),
            data_progress: info.data_progress.name(),
            resource_mgmt: info.resource_mgmt.name(),
            av_type: info.av_type.name(),
            mr_mode: text::mr_mode(info.mr_mode),
            mr_key_size: info.mr_key_size,
            mr_iov_limit: info.mr_iov_limit,
            cq_data_size: info.cq_data_size,
            cq_cnt: info.cq_cnt,
            ep_cnt: info.ep_cnt,
            cntr_cnt: info.cntr_cnt,
            mr_cnt: info.mr_cnt,
            atomics,
            tx: SideJson {
                caps: text::caps(info.tx.caps),
                op_flags: text::op_flags(info.tx.op_flags),
                msg_order: text::msg_order(info.tx.msg_order),
                size: info.tx.size,
                iov_limit: info.tx.iov_limit,
                inject_size: Some(info.tx.inject_size),
                rma_iov_limit: Some(info.tx.rma_iov_limit),
                total_buffered_recv: None,
            },
            rx: SideJson {
                caps: text::caps(info.rx.caps),
                op_flags: text::op_flags(info.rx.op_flags),
                msg_order: text::msg_order(info.rx.msg_order),
                size: info.rx.size,
                iov_limit: info.rx.iov_limit,
                inject_size: None,
                rma_iov_limit: None,
                total_buffered_recv: Some(info.rx.total_buffered_recv),
            },
        }
    }
}

/// Whether the command line has hints.
fn has_hints(args: &args::Info) -> bool {
    args.link.is_some()
        || args.ep_type.is_some()
        || args.caps.is_some()
        || args.auth_key.is_some()
        || args.node.is_some()
        || args.service.is_some()
}

/// An address with the name or number of an interface, which the module does not read as text.
fn scoped(node: &str, service: Option<&str>) -> Result<Option<SocketAddr>> {
    if !node.contains('%') {
        return Ok(None);
    }
    let help = "write an address as fe80::1%eth0; ip link lists the interfaces";
    let mut addr =
        kfi::parse_address(node).map_err(|error| Error::with_help(error.to_string(), help))?;
    if let Some(service) = service {
        let port = service.parse().map_err(|_| {
            Error::with_help(format!("{service:?} is no port"), "a port is a number")
        })?;
        addr.set_port(port);
    }
    Ok(Some(addr))
}

fn hints(args: &args::Info) -> Result<Hints> {
    let mut hints = Hints::new().version(Version { major: 1, minor: 7 });
    if let Some(name) = &args.link {
        hints = hints.domain_name(name);
    }
    if let Some(ep_type) = args.ep_type {
        hints = hints.ep_type(match ep_type {
            args::EpType::Msg => EpType::Msg,
            args::EpType::Dgram => EpType::Dgram,
            args::EpType::Rdm => EpType::Rdm,
        });
    }
    if let Some(caps) = args.caps {
        hints = hints.caps(caps);
    }
    if let Some(key) = args.auth_key {
        hints = hints.auth_key(key);
    }
    let service = args.service.as_deref();
    let addr = match &args.node {
        Some(node) => scoped(node, service)?,
        None => None,
    };
    match (addr, args.source) {
        (Some(addr), true) => hints = hints.src_addr(addr),
        (Some(addr), false) => hints = hints.dest_addr(addr),
        (None, _) => {
            if let Some(node) = &args.node {
                hints = hints.node(node);
            }
            if let Some(service) = service {
                hints = hints.service(service);
            }
            if args.source {
                hints = hints.source();
            }
        }
    }
    Ok(hints)
}

/// Runs `kfi info`.
pub(crate) fn run(args: &args::Info, out: &mut Out) -> Result<()> {
    let device = link::open()?;
    let query = device.query().doing("query the module")?;
    let infos = match device.getinfo(&hints(args)?) {
        // Without links and hints an empty list is an answer.
        Err(error) if error.errno() == Some(Errno::ENODATA) && !has_hints(args) => Vec::new(),
        infos => infos.doing("find entries that match the hints")?,
    };
    let module = ModuleJson::from(&query);
    let mut atomics = Atomics::default();
    let infos: Vec<InfoJson> = infos
        .iter()
        .map(|info| {
            // The table does not show them.
            let atomics = match out.is_json() || args.verbose {
                true => atomics.of(&device, info)?,
                false => Vec::new(),
            };
            Ok(InfoJson::new(info, atomics))
        })
        .collect::<Result<_>>()?;
    if out.is_json() {
        return out.document(&serde_json::json!({ "module": module, "infos": infos }));
    }
    out.line(format!(
        "kfabric {}, interface {}: messages up to {}, {} bytes injected",
        module.module_version,
        module.abi_version,
        text::bytes(module.max_msg_size),
        module.inject_size
    ))?;
    if args.verbose {
        out.text(&module_text(&module))?;
    }
    out.line("")?;
    if infos.is_empty() {
        return out.line(link::NO_LINKS);
    }
    if args.verbose {
        for info in &infos {
            out.text(&attributes(info)?)?;
        }
        return Ok(());
    }
    out.table(&table(&infos))
}

fn module_text(module: &ModuleJson) -> String {
    let lines = [
        format!("  capabilities: {}", module.caps.join(" ")),
        format!(
            "  limits: {} objects a file, {} operations a queue, {} CQ entries, {} events, \
             {} addresses, {} operations a post, {} pieces a list, {} of unexpected messages, \
             {} completion counters a domain, {} flows of an endpoint, {} points a flow, \
             {} values of counters, {} works that wait in a domain, {} contexts of each side of a \
             scalable endpoint",
            module.max_handles,
            module.max_queue,
            module.max_cq,
            module.max_eq,
            module.max_av,
            module.max_post,
            module.max_iov,
            text::bytes(module.max_buffered),
            module.max_comp_cntr,
            module.max_flows,
            module.max_flow_points,
            module.max_counters,
            module.max_work,
            module.max_ep_ctx,
        ),
    ];
    let lines = lines.map(|line| text::wrapped(&line, 4) + "\n");
    lines.concat()
}

/// The entries; the capabilities, of which there are many, take more than one line. The provider is
/// always the same.
fn table(infos: &[InfoJson]) -> Table {
    let mut table = Table::new(&["DOMAIN", "TYPE", "ADDRESS", "PROTOCOL", "CAPABILITIES"]);
    for info in infos {
        let caps = kinds(&info.caps);
        let mut lines = lines_of(&caps, CAPS).into_iter();
        table.cells(&[
            &info.domain,
            &info.ep_type,
            &text::address(info.src_addr),
            &info.protocol,
            &lines.next().unwrap_or_default(),
        ]);
        for more in lines {
            table.cells(&[&"", &"", &"", &"", &more]);
        }
    }
    table
}

/// Columns for the capabilities.
const CAPS: usize = 48;

/// The words of a text in lines of at most this width.
fn lines_of(text: &str, width: usize) -> Vec<String> {
    let mut lines: Vec<String> = Vec::new();
    for word in text.split_whitespace() {
        match lines.last_mut() {
            Some(line) if line.len() + 1 + word.len() <= width => {
                line.push(' ');
                line.push_str(word);
            }
            _ => lines.push(word.to_owned()),
        }
    }
    lines
}

/// Capabilities, without those that only give a direction.
fn kinds(caps: &[String]) -> String {
    let ways = [
        "READ",
        "WRITE",
        "SEND",
        "RECV",
        "REMOTE_READ",
        "REMOTE_WRITE",
    ];
    let kinds = caps.iter().filter(|cap| !ways.contains(&cap.as_str()));
    kinds
        .map(|cap| cap.to_lowercase())
        .collect::<Vec<_>>()
        .join(" ")
}

/// Every attribute of an entry, by its JSON key.
fn attributes(info: &InfoJson) -> Result<String> {
    let json = serde_json::to_value(info).map_err(|error| Error::output(error.into()))?;
    let mut text = format!(
        "{} {} {}\n",
        info.domain,
        info.ep_type,
        text::address(info.src_addr)
    );
    let mut put = |name: &str, value: &serde_json::Value| {
        let value = match value {
            serde_json::Value::Null => return,
            serde_json::Value::String(text) => text.clone(),
            serde_json::Value::Array(list) => {
                let names: Vec<_> = list.iter().filter_map(|name| name.as_str()).collect();
                if names.is_empty() {
                    "-".to_owned()
                } else {
                    names.join(" ")
                }
            }
            value => value.to_string(),
        };
        text.push_str(&text::wrapped(&format!("    {name:<24} {value}"), 29));
        text.push('\n');
    };
    for (name, value) in json.as_object().into_iter().flatten() {
        if name == "atomics" {
            for row in &info.atomics {
                put(&format!("{name}.{}", row.form), &row.text().into());
            }
            continue;
        }
        match value.as_object() {
            Some(side) => side
                .iter()
                .for_each(|(inner, value)| put(&format!("{name}.{inner}"), value)),
            None => put(name, value),
        }
    }
    Ok(text)
}

#[cfg(test)]
pub(crate) mod tests {
    use super::*;

    fn side() -> SideJson {
        SideJson {
            caps: vec!["MSG".to_owned()],
            op_flags: Vec::new(),
            msg_order: vec!["SAS".to_owned()],
            size: 256,
            iov_limit: 4,
            inject_size: Some(256),
            rma_iov_limit: Some(4),
            total_buffered_recv: None,
        }
    }

    pub(crate) fn module() -> ModuleJson {
        ModuleJson {
            module_version: "1.0".to_owned(),
            abi_version: 1,
            page_size: 4096,
            caps: Vec::new(),
            max_msg_size: 1,
            inject_size: 1,
            max_iov: 1,
            max_handles: 1,
            max_queue: 1,
            max_cq: 1,
            max_eq: 1,
            max_av: 1,
            max_post: 1,
            max_buffered: 1,
            max_flows: 1,
            max_flow_points: 1,
            max_counters: 1,
            max_comp_cntr: 1,
            max_work: 1,
            max_ep_ctx: 1,
        }
    }

    pub(crate) fn info() -> InfoJson {
        InfoJson {
            provider: "kfabric".to_owned(),
            provider_version: "0.1".to_owned(),
            api_version: "1.7".to_owned(),
            fabric: "net".to_owned(),
            domain: "roce0".to_owned(),
            ep_type: "rdm",
            protocol: "ib_rdm",
            protocol_version: 1,
            addr_format: "KFI_SOCKADDR_IN".to_owned(),
            src_addr: "127.0.0.1:0".parse().ok(),
            dest_addr: None,
            caps: ["MSG", "RMA", "REMOTE_READ"].map(str::to_owned).to_vec(),
            max_msg_size: 1 << 30,
            mem_tag_format: "0xff".to_owned(),
            auth_key: None,
            threading: "safe",
            control_progress: "auto",
            data_progress: "auto",
            resource_mgmt: "disabled",
            av_type: "unspec",
            mr_mode: Vec::new(),
            mr_key_size: 4,
            mr_iov_limit: 256,
            cq_data_size: 8,
            cq_cnt: 1,
            ep_cnt: 1,
            cntr_cnt: 1,
            mr_cnt: 1,
            atomics: vec![AtomicsJson {
                form: "fetch",
                ops: vec!["sum", "prod"],
                datatypes: vec!["int8"],
            }],
            tx: side(),
            rx: side(),
        }
    }

    #[test]
    fn json_has_the_keys_of_struct_kfi_info() {
        let json = serde_json::to_value(info()).unwrap();
        let keys: Vec<&str> = json.as_object().unwrap().keys().map(|key| &**key).collect();
        assert_eq!(
            keys.join(" "),
            "addr_format api_version atomics auth_key av_type caps cntr_cnt control_progress cq_cnt \
             cq_data_size data_progress dest_addr domain ep_cnt ep_type fabric max_msg_size mem_tag_format \
             mr_cnt mr_iov_limit mr_key_size mr_mode protocol protocol_version provider \
             provider_version resource_mgmt rx src_addr threading tx"
        );
        assert_eq!(
            serde_json::to_string(&side()).unwrap(),
            r#"{"caps":["MSG"],"op_flags":[],"msg_order":["SAS"],"size":256,"iov_limit":4,"#
                .to_owned()
                + r#""inject_size":256,"rma_iov_limit":4,"total_buffered_recv":null}"#
        );
    }

    #[test]
    fn text_shows_the_attributes() {
        assert_eq!(
            table(&[info()]).to_string(),
            "DOMAIN  TYPE  ADDRESS    PROTOCOL  CAPABILITIES\n\
             roce0   rdm   127.0.0.1  ib_rdm    msg rma\n"
        );
        let all = attributes(&info()).unwrap();
        assert!(all.starts_with("roce0 rdm 127.0.0.1\n"), "{all}");
        assert!(all.contains("    tx.inject_size           256\n"), "{all}");
        let atomics = "    atomics.fetch            sum prod of int8\n";
        assert!(all.contains(atomics), "{all}");
        assert!(!all.contains("total_buffered_recv"), "{all}");
    }

    /// Also with all capabilities, and with long names and addresses.
    #[test]
    fn text_fits_the_width() {
        let all = || -> Vec<String> { text::caps(kfi::Caps::all()) };
        let mut info = info();
        info.caps = all();
        info.domain = "x".repeat(15);
        info.src_addr = "[fe80::ffff:ffff:ffff:ffff%3]:0".parse().ok();
        info.tx.caps = all();
        let mut module = ModuleJson {
            max_msg_size: u64::MAX,
            ..module()
        };
        module.caps = all();
        let text = table(&[info]).to_string() + &attributes(&info_of(all())).unwrap();
        for line in (text + &module_text(&module)).lines() {
            assert!(line.chars().count() <= text::WIDTH, "{line}");
        }
    }

    fn info_of(caps: Vec<String>) -> InfoJson {
        InfoJson {
            caps: caps.clone(),
            tx: SideJson { caps, ..side() },
            ..info()
        }
    }

    #[test]
    fn a_node_can_have_a_scope() {
        let addr = |node, service| scoped(node, service).unwrap();
        assert_eq!(addr("192.0.2.1", Some("7")), None);
        assert_eq!(addr("fe80::1%lo", None), "[fe80::1%1]:0".parse().ok());
        assert_eq!(addr("fe80::1%7", Some("9")), "[fe80::1%7]:9".parse().ok());
        assert!(scoped("fe80::1%nosuchdev0", None).is_err());
        assert!(scoped("fe80::1%7", Some("http")).is_err());
    }

    #[test]
    fn only_given_options_are_hints() {
        use clap::Parser;
        let parse = |line: &str| args::Info::try_parse_from(line.split_whitespace()).unwrap();
        assert!(!has_hints(&parse("info -v")));
        for line in [
            "info -l x",
            "info -e rdm",
            "info -c msg",
            "info -n ::1",
            "info -p 1",
        ] {
            assert!(has_hints(&parse(line)), "{line}");
        }
    }
}
