// SPDX-License-Identifier: GPL-2.0
//! The test of cost: the counted ratio of some rows to their peers, beside the bounds in
//! `qemu-test/benchmarks/bounds`.
//!
//! A line of that file is a number, the ratio that was counted when the bound was set, and the name
//! of the row. A ratio that is more than [`MARGIN`] worse is a failed test, and so is a row without
//! a ratio. A ratio that is more than that better passes; its line says that the bound can be
//! changed.

use crate::{
    Result,
    row::{Better, Row},
};

/// The largest accepted difference from a bound.
const MARGIN: f64 = 0.05;

/// The ratio that a row should have.
#[derive(Debug, PartialEq)]
pub(crate) struct Bound {
    /// Of the row.
    pub(crate) name: String,
    ratio: f64,
}

/// Reads the file's text.
pub(crate) fn parse(text: &str) -> Result<Vec<Bound>> {
    let mut bounds: Vec<Bound> = Vec::new();
    for (number, line) in text.lines().enumerate() {
        let line = line.trim();
        if line.is_empty() || line.starts_with('#') {
            continue;
        }
        let wrong = |what: &str| format!("bounds, line {}: {what}: {line}", number + 1);
        let (ratio, name) = line
            .split_once(char::is_whitespace)
            .ok_or_else(|| wrong("a ratio and a name are needed"))?;
        let ratio: f64 = ratio.parse().map_err(|_| wrong("not a number"))?;
        if !ratio.is_finite() || ratio <= 0.0 {
            return Err(wrong("not a ratio").into());
        }
        let name = name.trim().to_owned();
        if bounds.iter().any(|bound| bound.name == name) {
            return Err(wrong("the row has a bound already").into());
        }
        bounds.push(Bound { name, ratio });
    }
    if bounds.is_empty() {
        return Err("bounds: no row has one".into());
    }
    Ok(bounds)
}

/// The difference of the row's ratio from `bound`: 0.1 is 10 % worse; below 0: better.
fn worse(row: &Row, bound: &Bound) -> f64 {
    match row.better {
        Better::Lower => row.ratio / bound.ratio - 1.0,
        Better::Higher => bound.ratio / row.ratio - 1.0,
    }
}

/// The result of one bound: whether the row meets it, and why.
fn judge(rows: &[Row], bound: &Bound) -> (bool, String) {
    let Some(row) = rows.iter().find(|row| row.name == bound.name) else {
        return (false, format!("{}: it was not measured", bound.name));
    };
    let worse = worse(row, bound);
    let good = worse <= MARGIN;
    let (way, note) = match worse < 0.0 {
        false => ("worse", ""),
        true if worse < -MARGIN => ("better", "; the bound can be changed"),
        true => ("better", ""),
    };
    let text = format!(
        "{}: {:.3} x {}, {:.1} % {way} than the bound {:.3}{note}",
        row.name,
        row.ratio,
        row.peer,
        worse.abs() * 100.0,
        bound.ratio
    );
    (good, text)
}

/// Writes a line of TAP for each bound; returns the number of bounds that are not met.
pub(crate) fn tap(rows: &[Row], bounds: &[Bound]) -> (String, usize) {
    let mut text = format!("1..{}\n", bounds.len());
    let mut failed = 0;
    for (number, bound) in bounds.iter().enumerate() {
        let (good, verdict) = judge(rows, bound);
        let result = if good { "ok" } else { "not ok" };
        text += &format!("{result} {} - {verdict}\n", number + 1);
        failed += usize::from(!good);
    }
    (text, failed)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::row::tests::row;

    fn bound(ratio: f64) -> Bound {
        Bound {
            name: "cntr/wake".into(),
            ratio,
        }
    }

    fn judged(ratio: f64, better: Better, limit: f64) -> (bool, String) {
        judge(&[row("cntr/wake", ratio, better)], &bound(limit))
    }

    #[test]
    fn a_file_has_ratios_and_names_with_spaces() {
        let bounds = parse("# a comment\n\n1.17  cntr/wake\n 0.5\tcall/post (inject) \n");
        let bounds = bounds.expect("a good file");
        assert_eq!(bounds[0], bound(1.17));
        assert_eq!(bounds[1].name, "call/post (inject)");
        assert_eq!(bounds.len(), 2);
    }

    #[test]
    fn a_file_with_a_mistake_is_refused_with_its_line() {
        for (text, verdict) in [
            ("1.0 a\n2.0", "line 2"),
            ("1.0 a\nx b", "not a number"),
            ("0 a", "not a ratio"),
            ("-1 a", "not a ratio"),
            ("inf a", "not a ratio"),
            ("NaN a", "not a ratio"),
            ("1.0 a\n1.1 a", "already"),
            ("# nothing\n", "no row"),
        ] {
            let error = parse(text).expect_err(text).to_string();
            assert!(error.contains(verdict), "{error}");
        }
    }

    #[test]
    fn times_may_be_five_per_cent_more() {
        assert!(judged(1.0, Better::Lower, 1.0).0);
        assert!(judged(1.049, Better::Lower, 1.0).0);
        let (good, verdict) = judged(1.06, Better::Lower, 1.0);
        assert!(!good);
        assert!(verdict.contains("6.0 % worse"), "{verdict}");
    }

    #[test]
    fn rates_may_be_five_per_cent_less() {
        assert!(judged(2.0, Better::Higher, 2.0).0);
        assert!(judged(1.91, Better::Higher, 2.0).0);
        assert!(!judged(1.89, Better::Higher, 2.0).0);
    }

    #[test]
    fn a_better_ratio_passes_and_says_so() {
        let (good, verdict) = judged(0.9, Better::Lower, 1.0);
        assert!(good && verdict.contains("can be changed"), "{verdict}");
        let (good, verdict) = judged(3.0, Better::Higher, 2.0);
        assert!(good && verdict.contains("can be changed"), "{verdict}");
        let (good, verdict) = judged(0.97, Better::Lower, 1.0);
        assert!(good && !verdict.contains("changed"), "{verdict}");
    }

    #[test]
    fn a_row_without_a_ratio_fails() {
        let rows = [row("cntr/add_idle", 1.0, Better::Lower)];
        let (text, failed) = tap(&rows, &[bound(1.0)]);
        assert_eq!(failed, 1);
        assert_eq!(text, "1..1\nnot ok 1 - cntr/wake: it was not measured\n");
        // A ratio that is not a number fails as a missing one does.
        assert!(!judged(f64::NAN, Better::Lower, 1.0).0);
    }

    #[test]
    fn the_committed_bounds_are_of_rows_that_can_be_counted() {
        let bounds = parse(include_str!("../bounds")).expect("a good file");
        let cases = crate::all_cases();
        for Bound { name, .. } in bounds {
            assert!(cases.iter().any(|case| case.name == name), "{name}");
            assert_eq!(crate::count::why_not(&name), None, "{name}");
        }
    }
}
