// SPDX-License-Identifier: GPL-2.0
//! `kfi flow`: counts the packets that arrive at a datagram endpoint.
//!
//! Each rule is a flow with counters of its own: packets at index 0, bytes at
//! index 1.  The endpoint posts no receives: packets are counted and dropped.

use std::{
    fmt,
    net::{IpAddr, SocketAddr},
    str::FromStr,
    thread,
    time::{Duration, Instant},
};

use kfi::{
    AvKind, Caps, CounterDescription, Counters, CqBind, Domain, Endpoint, EpType, Flow,
    FlowBuilder, Op,
};
use serde::Serialize;

use crate::{
    args,
    error::{Doing, Error, Result},
    link,
    out::Out,
    table::Table,
    text,
};

/// A comparison of a rule.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Field {
    Src(IpAddr, u8),
    Dst(IpAddr, u8),
    SrcPort(u16, u16),
    SrcQp(u32, u32),
    DestQp(u32, u32),
    Opcode(u8, u8),
    Ipv4,
    Ipv6,
}

/// A rule of the command line.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Rule {
    fields: Vec<Field>,
    priority: u32,
    dont_trap: bool,
    text: String,
}

/// A number, decimal or with 0x.
fn number<T: TryFrom<u64>>(text: &str) -> Result<T, String> {
    let value = match text.strip_prefix("0x") {
        Some(digits) => u64::from_str_radix(digits, 16),
        None => text.parse(),
    };
    let value = value.map_err(|_| format!("{text:?} is no number"))?;
    T::try_from(value).map_err(|_| format!("{text} is too large"))
}

/// A number and its mask, which is `all` if none is given.
fn masked<T: TryFrom<u64> + Copy>(text: &str, all: T) -> Result<(T, T), String> {
    match text.split_once('/') {
        Some((value, mask)) => Ok((number(value)?, number(mask)?)),
        None => Ok((number(text)?, all)),
    }
}

/// A QP number and its mask: 24 bits.
fn qp(text: &str) -> Result<(u32, u32), String> {
    let (qp, mask) = masked(text, 0xff_ffff)?;
    if (qp | mask) >> 24 != 0 {
        return Err("a QP number has 24 bits".to_owned());
    }
    Ok((qp, mask))
}

/// An address and the length of its prefix.
fn address(text: &str) -> Result<(IpAddr, u8), String> {
    let (ip, prefix) = match text.split_once('/') {
        Some((ip, prefix)) => (ip, Some(prefix)),
        None => (text, None),
    };
    let ip: IpAddr = ip
        .parse()
        .map_err(|_| format!("{ip:?} is no numeric IP address"))?;
    let most = if ip.is_ipv4() { 32 } else { 128 };
    let prefix = match prefix {
        Some(prefix) => number(prefix)?,
        None => most,
    };
    if prefix > most {
        return Err(format!("a prefix of {ip} has at most {most} bits"));
    }
    Ok((ip, prefix))
}

impl FromStr for Rule {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let mut rule = Self {
            fields: Vec::new(),
            priority: 0,
            dont_trap: false,
            text: text.to_owned(),
        };
        let mut names = Vec::new();
        for part in text.split(',') {
            let (name, value) = match part.split_once('=') {
                Some((name, value)) => (name, Some(value)),
                None => (part, None),
            };
            if names.contains(&name) {
                return Err(format!("{name} is there twice"));
            }
            names.push(name);
            let field = match (name, value) {
                ("any", None) => continue,
                ("continue", None) => {
                    rule.dont_trap = true;
                    continue;
                }
                ("prio", Some(value)) => {
                    rule.priority = number(value)?;
                    continue;
                }
                ("ipv4", None) => Field::Ipv4,
                ("ipv6", None) => Field::Ipv6,
                ("src", Some(value)) => {
                    let (ip, prefix) = address(value)?;
                    Field::Src(ip, prefix)
                }
                ("dst", Some(value)) => {
                    let (ip, prefix) = address(value)?;
                    Field::Dst(ip, prefix)
                }
                ("sport", Some(value)) => {
                    let (port, mask) = masked(value, u16::MAX)?;
                    Field::SrcPort(port, mask)
                }
                ("sqp", Some(value)) => {
                    let (qp, mask) = qp(value)?;
                    Field::SrcQp(qp, mask)
                }
                ("dqp", Some(value)) => {
                    let (qp, mask) = qp(value)?;
                    Field::DestQp(qp, mask)
                }
                ("op", Some(value)) => {
                    let (opcode, mask) = masked(value, u8::MAX)?;
                    Field::Opcode(opcode, mask)
                }
                _ => {
                    return Err(format!(
                        "no field {part:?}; there are src=IP[/BITS], dst=, sport=N[/MASK], sqp=, \
                         dqp=, op=, ipv4, ipv6, any, prio=N, continue"
                    ));
                }
            };
            rule.fields.push(field);
        }
        let families: Vec<bool> = rule.fields.iter().filter_map(Field::is_ipv4).collect();
        if families.contains(&true) && families.contains(&false) {
            return Err("a packet is either IPv4 or IPv6".to_owned());
        }
        Ok(rule)
    }
}

impl Field {
    /// Whether it restricts packets to IPv4; `None`: to no version.
    fn is_ipv4(&self) -> Option<bool> {
        match self {
            Self::Src(ip, _) | Self::Dst(ip, _) => Some(ip.is_ipv4()),
            Self::Ipv4 => Some(true),
            Self::Ipv6 => Some(false),
            _ => None,
        }
    }

    fn apply(self, flow: FlowBuilder) -> FlowBuilder {
        match self {
            Self::Src(ip, prefix) => flow.src_ip(ip, prefix),
            Self::Dst(ip, prefix) => flow.dest_ip(ip, prefix),
            Self::SrcPort(port, mask) => flow.src_port(port, mask),
            Self::SrcQp(qp, mask) => flow.src_qp(qp, mask),
            Self::DestQp(qp, mask) => flow.dest_qp(qp, mask),
            Self::Opcode(opcode, mask) => flow.opcode(opcode, mask),
            Self::Ipv4 => flow.ipv4(),
            Self::Ipv6 => flow.ipv6(),
        }
    }
}

impl fmt::Display for Rule {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(&self.text)
    }
}

/// A flow with its counters.
struct Counted {
    rule: Rule,
    counters: Counters,
    _flow: Flow,
}

/// The values of a flow at one time, in JSON.
#[derive(Debug, Serialize)]
struct FlowJson<'a> {
    rule: &'a str,
    priority: u32,
    packets: u64,
    bytes: u64,
    /// Since the last document; null in the first one.
    packets_per_second: Option<f64>,
    bytes_per_second: Option<f64>,
}

/// All flows at one time, in JSON.
#[derive(Debug, Serialize)]
pub(crate) struct Shown<'a> {
    /// Seconds since the start.
    seconds: f64,
    address: SocketAddr,
    qp: u32,
    flows: Vec<FlowJson<'a>>,
}

/// Opens a datagram endpoint.
fn endpoint(domain: &Domain, addr: Option<SocketAddr>) -> kfi::Result<Endpoint> {
    let cq = domain.cq().open()?;
    let av = domain.av().kind(AvKind::Table).open()?;
    let mut ep = domain.endpoint().ep_type(EpType::Dgram).caps(Caps::MSG);
    if let Some(addr) = addr {
        ep = ep.addr(addr);
    }
    let ep = ep.open()?;
    ep.bind_cq(&cq, CqBind::TRANSMIT | CqBind::RECV)?;
    ep.bind_av(&av)?;
    ep.enable()?;
    Ok(ep)
}

/// Makes the flow of a rule.
fn count(domain: &Domain, ep: &Endpoint, rule: &Rule) -> Result<Counted> {
    let doing = || format!("make the flow {rule}");
    let counters = domain.counters().count(2).open().doing(doing())?;
    for (description, index) in [
        (CounterDescription::Packets, 0),
        (CounterDescription::Bytes, 1),
    ] {
        counters.attach(description, index).doing(doing())?;
    }
    let mut flow = ep.flow().priority(rule.priority).counters(&counters);
    if rule.dont_trap {
        flow = flow.dont_trap();
    }
    for field in &rule.fields {
        flow = field.apply(flow);
    }
    Ok(Counted {
        rule: rule.clone(),
        _flow: flow.open().doing(doing())?,
        counters,
    })
}

/// Sends datagrams to the endpoint from another endpoint of this program.
fn send(domain: &Domain, to: SocketAddr, count: u64) -> kfi::Result<()> {
    let cq = domain.cq().open()?;
    let av = domain.av().kind(AvKind::Table).open()?;
    // An address of the same version.
    let ep = domain.endpoint().ep_type(EpType::Dgram).caps(Caps::MSG);
    let ep = ep.addr(link::with_port(to, 0)).open()?;
    ep.bind_cq(&cq, CqBind::TRANSMIT | CqBind::RECV)?;
    ep.bind_av(&av)?;
    ep.enable()?;
    let to = av.insert_one(to)?;
    let message = [0; 64];
    let plain = Op::inject(to, &message);
    for number in 0..count {
        let op = match number % 2 {
            0 => plain,
            _ => plain.data(number),
        };
        ep.post_one(&op)?;
    }
    Ok(())
}

/// The values of the last sample.
struct Watch {
    start: Instant,
    last: Option<(Instant, Vec<[u64; 2]>)>,
}

impl Watch {
    /// Reads the counters of all flows, and shows them.
    fn show(
        &mut self,
        ep: &Endpoint,
        address: SocketAddr,
        flows: &[Counted],
        out: &mut Out,
    ) -> Result<()> {
        let mut values = Vec::new();
        for flow in flows {
            let mut value = [0; 2];
            flow.counters.read(&mut value).doing("read the counters")?;
            values.push(value);
        }
        let now = Instant::now();
        let qp = ep.qp().doing("read the QP")?.qpn;
        let rate = |flow: usize, which: usize| {
            let (when, last) = self.last.as_ref()?;
            let seconds = now.duration_since(*when).as_secs_f64().max(1e-9);
            // The values only grow.
            let more = values[flow][which].saturating_sub(last[flow][which]);
            Some(text::rounded(more as f64 / seconds))
        };
        let shown = Shown {
            seconds: text::rounded(now.duration_since(self.start).as_secs_f64()),
            address,
            qp,
            flows: flows
                .iter()
                .enumerate()
                .map(|(at, flow)| FlowJson {
                    rule: &flow.rule.text,
                    priority: flow.rule.priority,
                    packets: values[at][0],
                    bytes: values[at][1],
                    packets_per_second: rate(at, 0),
                    bytes_per_second: rate(at, 1),
                })
                .collect(),
        };
        self.last = Some((now, values));
        if out.is_json() {
            return out.document(&shown);
        }
        out.line(format!("after {:.1} s", shown.seconds))?;
        out.table(&table(&shown))
    }
}

fn table(shown: &Shown<'_>) -> Table {
    let mut table = Table::new(&[
        "RULE",
        ">PRIORITY",
        ">PACKETS",
        ">PACKETS/S",
        ">BYTES",
        ">BYTES/S",
    ])
    .indent(2);
    let rate = |rate: Option<f64>| {
        rate.map_or("-".to_owned(), |rate| text::si(rate).trim_end().to_owned())
    };
    for flow in &shown.flows {
        table.cells(&[
            &flow.rule,
            &flow.priority,
            &flow.packets,
            &rate(flow.packets_per_second),
            &flow.bytes,
            &rate(flow.bytes_per_second),
        ]);
    }
    table
}

/// Runs `kfi flow`.
pub(crate) fn run(args: &args::Flow, out: &mut Out) -> Result<()> {
    let device = link::open()?;
    let bind = { args.bind.as_ref() }
        .map(|bind| bind.or_port(0))
        .transpose()?;
    let link = link::choose(&device, args.link.as_deref(), bind, None)?;
    let bind = bind.map(|bind| link::on(&link, bind));
    let domain = device
        .fabric()
        .and_then(|fabric| fabric.domain(&link.name).open())
        .doing(format!("open a domain on {}", link.name))?;
    let ep = endpoint(&domain, bind).doing("open a datagram endpoint")?;
    let address = ep.name().doing("read the endpoint's address")?;
    let any = ["any"
        .parse()
        .map_err(|what: String| Error::with_help(what, "this is a defect of kfi"))?];
    let rules = if args.rules.is_empty() {
        &any[..]
    } else {
        &args.rules[..]
    };
    let flows = rules
        .iter()
        .map(|rule| count(&domain, &ep, rule))
        .collect::<Result<Vec<_>>>()?;
    if !out.is_json() {
        let qpn = ep.qp().doing("read the QP")?.qpn;
        out.line(format!(
            "counts datagrams to {address}, QP {qpn:#08x}, on {}",
            link.name
        ))?;
    }
    let mut watch = Watch {
        start: Instant::now(),
        last: None,
    };
    watch.show(&ep, address, &flows, out)?;
    if args.send > 0 {
        send(&domain, address, args.send).doing(format!("send to {address}"))?;
    }
    let end = args.time.map(|time| watch.start + time);
    loop {
        let left = end.map(|end| end.saturating_duration_since(Instant::now()));
        if left == Some(Duration::ZERO) {
            return Ok(());
        }
        thread::sleep(left.unwrap_or(args.interval).min(args.interval));
        watch.show(&ep, address, &flows, out)?;
    }
}

#[cfg(test)]
pub(crate) mod tests {
    use super::*;

    fn rule(text: &str) -> Rule {
        text.parse().unwrap()
    }

    pub(crate) fn shown() -> Shown<'static> {
        Shown {
            seconds: 1.5,
            address: "10.0.0.1:7471".parse().unwrap(),
            qp: 0x02_1d2f,
            flows: vec![FlowJson {
                rule: "src=10.0.0.0/8",
                priority: 1,
                packets: 3,
                bytes: 264,
                packets_per_second: Some(2.0),
                bytes_per_second: None,
            }],
        }
    }

    #[test]
    fn rules_are_parsed() {
        assert_eq!(rule("any").fields, []);
        let all = rule("src=10.1.0.0/16,dst=10.0.0.1,sport=0xc000/0xf000,sqp=17,op=0x65,prio=3");
        assert_eq!(
            all.fields,
            [
                Field::Src("10.1.0.0".parse().unwrap(), 16),
                Field::Dst("10.0.0.1".parse().unwrap(), 32),
                Field::SrcPort(0xc000, 0xf000),
                Field::SrcQp(17, 0xff_ffff),
                Field::Opcode(0x65, 0xff),
            ]
        );
        assert_eq!((all.priority, all.dont_trap), (3, false));
        let other = rule("ipv6,continue,dqp=0x20000/0xff0000");
        assert_eq!(
            (other.fields, other.dont_trap),
            (vec![Field::Ipv6, Field::DestQp(0x2_0000, 0xff_0000)], true)
        );
        for wrong in [
            "",
            "src",
            "src=here",
            "src=10.0.0.0/33",
            "src=10.0.0.1,dst=::1",
            "ipv6,src=10.0.0.1",
            "sport=65536",
            "sqp=0x1000000",
            "op=256",
            "op=x",
            "prio",
            "any=1",
            "jump=1",
            "prio=1,prio=2",
            "src=10.0.0.1,src=10.0.0.2",
        ] {
            assert!(wrong.parse::<Rule>().is_err(), "{wrong}");
        }
    }

    #[test]
    fn tables_show_every_flow() {
        assert_eq!(
            table(&shown()).to_string(),
            "  RULE            PRIORITY  PACKETS  PACKETS/S  BYTES  BYTES/S\n  \
             src=10.0.0.0/8         1        3       2.00    264        -\n"
        );
    }

    #[test]
    fn json_has_the_documented_keys() {
        assert_eq!(
            serde_json::to_string(&shown()).unwrap(),
            r#"{"seconds":1.5,"address":"10.0.0.1:7471","qp":138543,"flows":[{"rule":"#.to_owned()
                + r#""src=10.0.0.0/8","priority":1,"packets":3,"bytes":264,"#
                + r#""packets_per_second":2.0,"bytes_per_second":null}]}"#
        );
    }
}
