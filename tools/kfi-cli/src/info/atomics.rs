// SPDX-License-Identifier: GPL-2.0
//! The atomics that the endpoints of a link have (kfi_query_atomic).

use std::collections::HashMap;

use kfi::{AtomicForm, AtomicOp, Caps, Datatype, Device, Domain, EpType, Errno, Info};
use serde::Serialize;

use crate::error::{Doing, Result};

/// Operations of a form that have the same datatypes, in JSON.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub(crate) struct AtomicsJson {
    pub(super) form: &'static str,
    pub(super) ops: Vec<&'static str>,
    pub(super) datatypes: Vec<&'static str>,
}

impl AtomicsJson {
    /// The attribute's text.
    pub(super) fn text(&self) -> String {
        format!("{} of {}", self.ops.join(" "), self.datatypes.join(" "))
    }
}

/// The atomics of links and endpoint types that were asked for. The address format makes no
/// difference, so each pair is asked for once.
#[derive(Default)]
pub(super) struct Atomics {
    found: HashMap<(String, EpType), Vec<AtomicsJson>>,
}

impl Atomics {
    /// Returns the atomics of an entry; none if it does not have the capability.
    pub(super) fn of(&mut self, device: &Device, info: &Info) -> Result<Vec<AtomicsJson>> {
        if !info.caps.contains(Caps::ATOMIC) {
            return Ok(Vec::new());
        }
        let key = (info.domain_name.clone(), info.ep_type);
        if let Some(found) = self.found.get(&key) {
            return Ok(found.clone());
        }
        let link = &info.domain_name;
        let found = device
            .fabric()
            .and_then(|fabric| fabric.domain(link).open())
            .and_then(|domain| query(&domain, info.ep_type))
            .doing(format!("find the atomics of {link}"))?;
        self.found.insert(key, found.clone());
        Ok(found)
    }
}

/// Asks for each form, operation and datatype.
fn query(domain: &Domain, ep_type: EpType) -> kfi::Result<Vec<AtomicsJson>> {
    let forms = [
        (AtomicForm::Base, "base"),
        (AtomicForm::Fetch, "fetch"),
        (AtomicForm::Compare, "compare"),
    ];
    let mut all = Vec::new();
    for (form, name) in forms {
        for &op in AtomicOp::ALL {
            let mut datatypes = Vec::new();
            for &datatype in Datatype::ALL {
                match domain.query_atomic(ep_type, form, datatype, op) {
                    Ok(_) => datatypes.push(datatype.name()),
                    Err(error) if error.errno() == Some(Errno::EOPNOTSUPP) => {}
                    Err(error) => return Err(error),
                }
            }
            add(&mut all, name, op.name(), datatypes);
        }
    }
    Ok(all)
}

/// Adds an operation to those of its form that have the same datatypes.
fn add(
    all: &mut Vec<AtomicsJson>,
    form: &'static str,
    op: &'static str,
    datatypes: Vec<&'static str>,
) {
    if datatypes.is_empty() {
        return;
    }
    let same = all
        .iter_mut()
        .find(|row| row.form == form && row.datatypes == datatypes);
    match same {
        Some(row) => row.ops.push(op),
        None => all.push(AtomicsJson {
            form,
            ops: vec![op],
            datatypes,
        }),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn operations_with_the_same_datatypes_are_one_row() {
        let mut all = Vec::new();
        add(&mut all, "base", "min", vec!["int8", "float"]);
        add(&mut all, "base", "bor", vec!["int8"]);
        add(&mut all, "base", "max", vec!["int8", "float"]);
        add(&mut all, "base", "mswap", vec![]);
        add(&mut all, "fetch", "min", vec!["int8", "float"]);
        let rows: Vec<_> = all.iter().map(|row| (row.form, row.text())).collect();
        assert_eq!(
            rows,
            [
                ("base", "min max of int8 float".to_owned()),
                ("base", "bor of int8".to_owned()),
                ("fetch", "min of int8 float".to_owned()),
            ]
        );
    }
}
