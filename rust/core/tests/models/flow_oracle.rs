// SPDX-License-Identifier: GPL-2.0
//! Model tests: which flows a packet belongs to, against a comparison of each field by itself and a
//! sort of the rules; what can be attached to a counters object, and what a flow counts, against
//! lists of everything that happened.

use kfi_core::{
    errno::Errno,
    flow::{
        for_each_match,
        place,
        words_of,
        Bindings,
        Description,
        Family,
        Fields,
        Point,
        Rule,
        Times, //
    },
    limits::MAX_FLOW_POINTS, //
};
use proptest::prelude::*;
use std::{
    net::IpAddr,
    ops::ControlFlow, //
};

/// A value near the others, so that rules match often.
fn small() -> impl Strategy<Value = u32> {
    prop_oneof![6 => 0u32..3, 1 => any::<u32>()]
}

/// A mask: mostly none of the field, or all of it.
fn mask() -> impl Strategy<Value = u32> {
    prop_oneof![4 => Just(0), 2 => Just(u32::MAX), 2 => 0u32..8, 1 => any::<u32>()]
}

/// Fields made of numbers. `wide` addresses have 16 bytes.
fn fields(number: BoxedStrategy<u32>, qp_bits: u32, wide: bool) -> impl Strategy<Value = Fields> {
    let ip = move |low: u32, high: u32| {
        let mut ip = [0; 16];
        ip[..4].copy_from_slice(&low.to_be_bytes());
        if wide {
            ip[12..].copy_from_slice(&high.to_be_bytes());
        }
        ip
    };
    prop::array::uniform8(number).prop_map(move |n| Fields {
        src_ip: ip(n[0], n[1]),
        dest_ip: ip(n[2], n[3]),
        src_port: n[4] as u16,
        dest_qp: n[5] & qp_bits,
        src_qp: n[6] & qp_bits,
        opcode: n[7] as u8,
    })
}

fn family() -> impl Strategy<Value = Option<Family>> {
    prop_oneof![Just(None), Just(Some(Family::V4)), Just(Some(Family::V6))]
}

/// A rule as a caller gives it.
#[derive(Clone, Debug)]
struct Given {
    family: Option<Family>,
    value: Fields,
    mask: Fields,
    priority: u32,
    continues: bool,
}

/// Clears the bits of a value that are outside its mask.
fn within(value: &Fields, mask: &Fields) -> Fields {
    let and = |a: [u8; 16], b: [u8; 16]| std::array::from_fn(|i| a[i] & b[i]);
    Fields {
        src_ip: and(value.src_ip, mask.src_ip),
        dest_ip: and(value.dest_ip, mask.dest_ip),
        src_port: value.src_port & mask.src_port,
        dest_qp: value.dest_qp & mask.dest_qp,
        src_qp: value.src_qp & mask.src_qp,
        opcode: value.opcode & mask.opcode,
    }
}

/// Whether the description of rules allows this one.
fn is_good(given: &Given) -> bool {
    let len = match given.family {
        None => 0,
        Some(Family::V4) => 4,
        Some(Family::V6) => 16,
    };
    let fits = |fields: &Fields| {
        let ips = [fields.src_ip, fields.dest_ip];
        ips.iter().all(|ip| ip[len..].iter().all(|byte| *byte == 0))
            && fields.dest_qp < 1 << 24
            && fields.src_qp < 1 << 24
    };
    fits(&given.value) && fits(&given.mask) && within(&given.value, &given.mask) == given.value
}

/// Whether a packet matches, field by field.
fn belongs(given: &Given, family: Family, packet: &Fields) -> bool {
    given.family.is_none_or(|wanted| wanted == family) && within(packet, &given.mask) == given.value
}

/// A rule: mostly a valid one.
fn given() -> impl Strategy<Value = Given> {
    let parts = |family: Option<Family>, qp_bits, tidy: bool| {
        let wide = family != Some(Family::V4) && (family.is_some() || !tidy);
        let value = fields(small().boxed(), qp_bits, wide);
        let mask = fields(mask().boxed(), qp_bits, wide);
        (
            Just(family),
            value,
            mask,
            Just(tidy),
            0u32..4,
            any::<bool>(),
        )
    };
    (family(), prop_oneof![9 => Just(true), 1 => Just(false)])
        .prop_flat_map(move |(family, tidy)| {
            parts(family, if tidy { 0xff_ffff } else { u32::MAX }, tidy)
        })
        .prop_map(|(family, value, mut mask, tidy, priority, continues)| {
            if tidy && family.is_none() {
                (mask.src_ip, mask.dest_ip) = ([0; 16], [0; 16]);
            }
            let value = if tidy { within(&value, &mask) } else { value };
            Given {
                family,
                value,
                mask,
                priority,
                continues,
            }
        })
}

fn packet() -> impl Strategy<Value = (Family, Fields)> {
    any::<bool>().prop_flat_map(|six| {
        let family = if six { Family::V6 } else { Family::V4 };
        (Just(family), fields(small().boxed(), 0xff_ffff, six))
    })
}

fn address(family: Family, bytes: [u8; 16]) -> IpAddr {
    match family {
        Family::V4 => IpAddr::from([bytes[0], bytes[1], bytes[2], bytes[3]]),
        Family::V6 => IpAddr::from(bytes),
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(20_000))]

    #[test]
    fn packets_belong_to_the_flows_that_match(
        all in prop::collection::vec(given(), 0..12),
        packets in prop::collection::vec(packet(), 1..6),
    ) {
        // The rules in order, as the module keeps them.
        let mut order: Vec<(Rule, Given)> = Vec::new();
        let mut good: Vec<Given> = Vec::new();
        for given in all {
            let rule = Rule::new(given.family, &given.value, &given.mask);
            prop_assert_eq!(rule.is_ok(), is_good(&given));
            let Ok(rule) = rule else {
                prop_assert_eq!(rule.err(), Some(Errno::EINVAL));
                continue;
            };
            let at = place(order.iter().map(|(_, given)| given.priority), given.priority);
            order.insert(at, (rule, given.clone()));
            good.push(given);
        }
        let rules: Vec<Rule> = order.iter().map(|(rule, _)| *rule).collect();
        // The model: a stable sort.
        good.sort_by_key(|given| given.priority);
        for (family, packet) in packets {
            let mut expected = Vec::new();
            for (index, given) in good.iter().enumerate() {
                if belongs(given, family, &packet) {
                    expected.push(index);
                    if !given.continues {
                        break;
                    }
                }
            }
            let source = address(family, packet.src_ip);
            let words = words_of(source, address(family, packet.dest_ip), &packet);
            let mut found = Vec::new();
            for_each_match(&rules, &words, |index| {
                found.push(index);
                if order[index].1.continues {
                    ControlFlow::Continue(())
                } else {
                    ControlFlow::Break(())
                }
            });
            prop_assert_eq!(found, expected);
        }
    }
}

/// A call for a counters object with four values.
#[derive(Clone, Debug)]
enum Step {
    /// Attach a static point.
    Attach(Point),
    /// Attach a point to a flow that exists.
    AttachToFlow(Point),
    /// Create a flow with the object.
    Create,
    /// End the binding at this place, if there is one.
    End(prop::sample::Index),
}

fn step() -> impl Strategy<Value = Step> {
    let point = || {
        (0u32..5, any::<bool>()).prop_map(|(index, bytes)| Point {
            description: if bytes {
                Description::Bytes
            } else {
                Description::Packets
            },
            index,
        })
    };
    prop_oneof![
        4 => point().prop_map(Step::Attach),
        2 => point().prop_map(Step::AttachToFlow),
        2 => Just(Step::Create),
        5 => any::<prop::sample::Index>().prop_map(Step::End),
    ]
}

/// What a packet of these bytes adds to each of the four values.
fn added(points: &[Point], bytes: u64) -> [u64; 4] {
    let mut values = [0; 4];
    for point in points {
        values[point.index as usize] += match point.description {
            Description::Packets => 1,
            Description::Bytes => bytes,
        };
    }
    values
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(5_000))]

    #[test]
    fn a_counters_object_follows_its_history(
        steps in prop::collection::vec(step(), 0..60),
        bytes in 0u64..5000,
    ) {
        let mut bindings = Bindings::new(4);
        let mut points: Vec<Point> = Vec::new();
        // Each binding that has not ended: whether it is static.
        let mut bound: Vec<bool> = Vec::new();
        // It was bound statically, and has been bound to something ever since.
        let mut is_static = false;
        for step in steps {
            match step {
                Step::Attach(point) => {
                    let expected = if point.index > 3 {
                        Err(Errno::EINVAL)
                    } else if is_static {
                        Err(Errno::EBUSY)
                    } else if points.len() == MAX_FLOW_POINTS {
                        Err(Errno::ENOSPC)
                    } else {
                        points.push(point);
                        Ok(())
                    };
                    prop_assert_eq!(bindings.attach(point), expected);
                }
                Step::AttachToFlow(point) => {
                    let expected = if point.index > 3 {
                        Err(Errno::EINVAL)
                    } else if is_static {
                        Err(Errno::EBUSY)
                    } else {
                        bound.push(false);
                        Ok(())
                    };
                    prop_assert_eq!(bindings.bind_point(point), expected);
                }
                Step::Create => match bindings.bind() {
                    Err(error) => prop_assert!(error == Errno::EINVAL && points.is_empty()),
                    Ok(given) => {
                        prop_assert!(!points.is_empty());
                        prop_assert_eq!(given, &points[..]);
                        // The sums of the points are those of a flow that adds one by one.
                        let mut times = [Times::default(); 4];
                        for point in given {
                            times[point.index as usize].count(point.description);
                        }
                        prop_assert_eq!(times.map(|times| times.of(bytes)), added(given, bytes));
                        bound.push(true);
                        is_static = true;
                    }
                },
                Step::End(which) => {
                    if !bound.is_empty() {
                        bound.swap_remove(which.index(bound.len()));
                        bindings.unbind();
                        is_static &= !bound.is_empty();
                    }
                }
            }
            prop_assert_eq!(bindings.bound(), bound.len() as u64);
            prop_assert_eq!((bindings.len(), bindings.is_static()), (points.len(), is_static));
        }
    }
}
