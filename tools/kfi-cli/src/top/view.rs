// SPDX-License-Identifier: GPL-2.0
//! The page of `kfi top`: the tables one below the other.

use crate::{link::NO_LINKS, screen::Page, top::sample::Change};

/// The page of these statistics.
pub(crate) fn page(change: &Change) -> Page {
    let mut page = Page {
        title: format!(
            "kfi top: {} links, {} endpoints, {} CQs, {} counters, {} flows",
            change.links.len(),
            change.endpoints.len(),
            change.cqs.len(),
            change.cntrs.len() + change.comp_cntrs.len(),
            change.flows.len(),
        ),
        ..Page::default()
    };
    if change.links.is_empty() {
        page.line(NO_LINKS);
        page.line("");
    }
    for (name, table, rows) in change.tables() {
        match (name, rows) {
            ("links", 0) => continue,
            (_, 0) => page.line(format!("no {name}")),
            _ => page.table(&table),
        }
        page.line("");
    }
    page
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::top::sample::tests::change;

    fn lines(page: &Page) -> Vec<String> {
        page.lines.iter().map(ToString::to_string).collect()
    }

    #[test]
    fn it_has_all_tables() {
        let page = page(&change());
        assert_eq!(
            page.title,
            "kfi top: 1 links, 1 endpoints, 1 CQs, 2 counters, 1 flows"
        );
        let lines = lines(&page);
        for word in [
            "roce0",
            "127.0.0.1:7471",
            "COUNTER",
            "THRESHOLD",
            "COMP-CNTR",
            "FLOW",
            "321",
        ] {
            assert!(
                lines.iter().any(|line| line.contains(word)),
                "{word}: {lines:?}"
            );
        }
        // Those of links and endpoints have two parts.
        assert_eq!(lines.len(), 6 * 3 + 2 * 3);
        assert!(
            lines
                .iter()
                .all(|line| line.chars().count() <= crate::text::WIDTH)
        );
    }

    #[test]
    fn without_a_link_it_says_how_to_make_one() {
        let lines = lines(&page(&Change::default()));
        assert!(lines[0].contains("kfi link add"), "{lines:?}");
        assert_eq!(lines[2], "no endpoints");
    }
}
