//! What changed in the course of a run: its second half against its first.

use std::collections::HashMap;

use serde_json::{Value, json};

use super::{
    ComparedValue, Comparison, Run, Side,
    compare::{MIN_WINDOWS, compare},
    text::number,
    waits::WAITED_BEHIND,
};

/// Least change that is listed, as a fraction of the larger mean.
const LEAST_CHANGE: f64 = 0.25;

/// Least number of windows of a run whose halves can be tested.
const LEAST_WINDOWS: usize = 2 * MIN_WINDOWS;

/// Least value whose change is listed, as a fraction of the largest row's.
const LEAST_SIZE: f64 = 0.01;

/// Most changes on a page.
const MAX_CHANGES: usize = 8;

impl Run {
    /// The rows' values that differ between the halves by more than chance allows, as JSON: the
    /// most surprising first, and their number.
    pub(super) fn changes(&self) -> Value {
        let [(begin, _), .., (_, end)] = self.windows[..] else {
            return Value::Null;
        };
        if self.windows.len() < LEAST_WINDOWS {
            return Value::Null;
        }
        let middle = begin + (end - begin) / 2.0;
        // The window around the middle belongs to neither half.
        let halves = [(0.0, Some(middle)), (middle, None)].map(|range| Side { range, rows: None });
        // Neither half names a row, so this does not fail.
        let Ok(Comparison { both, .. }) = compare([self, self], &halves) else {
            return Value::Null;
        };
        let is_row = |it: &ComparedValue| {
            it.subject.part == "row"
                && it.subject.get("kind") != Some("idle")
                && it.metric.name != WAITED_BEHIND
                && !it.metric.replaced_by_rates
        };
        let size = |it: &ComparedValue| it.a.mean.abs().max(it.b.mean.abs());
        let mut largest: HashMap<String, f64> = HashMap::new();
        for it in both.iter().filter(|it| is_row(it) && !it.subject.is_rest()) {
            let largest = largest.entry(it.metric.name.clone()).or_default();
            *largest = largest.max(size(it));
        }
        let is_large = |it: &ComparedValue| {
            let largest = largest.get(&it.metric.name).copied().unwrap_or(0.0);
            size(it) >= LEAST_SIZE * largest
                && (it.b.mean - it.a.mean).abs() >= LEAST_CHANGE * size(it)
        };
        let changed: Vec<&ComparedValue> = { both.iter() }
            .filter(|it| it.differs && is_row(it) && is_large(it))
            .collect();
        let shown = changed.iter().take(MAX_CHANGES).map(|it| {
            json!({
                "label": it.subject.label,
                "of": it.qualifier,
                "metric": it.metric.name,
                "unit": it.metric.shown_unit(),
                "from": number(it.a.mean),
                "to": number(it.b.mean),
            })
        });
        json!({
            "at_s": number(middle),
            "number": changed.len(),
            "shown": shown.collect::<Vec<_>>(),
            "started": self.rows_only_in(1, middle),
            "ended": self.rows_only_in(0, middle),
        })
    }
}

impl Run {
    /// Names of the rows that have values in this half (0 or 1) and not in the other one. `middle`
    /// is in seconds.
    fn rows_only_in(&self, half: usize, middle: f64) -> Vec<&str> {
        let mut seen = vec![[false; 2]; self.subjects.len()];
        for line in &self.lines {
            for at in line.windows().filter(|at| line.value(*at).is_finite()) {
                let (start, end) = self.windows[at];
                seen[line.subject][0] |= end <= middle;
                seen[line.subject][1] |= start >= middle;
            }
        }
        let wanted = [half == 0, half == 1];
        let rows = self.subjects.iter().zip(seen);
        rows.filter(|(subject, seen)| {
            subject.part == "row" && !subject.is_rest() && *seen == wanted
        })
        .map(|(subject, _)| subject.label.as_str())
        .collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::report::{LineSubject, RunLine, tests::metric};

    /// A run with rows of these names and values, in windows of one second.
    fn run(rows: &[(&str, Vec<f64>)]) -> Run {
        let windows = rows
            .iter()
            .map(|(_, values)| values.len())
            .max()
            .unwrap_or(0);
        let mut run = Run {
            windows: (0_u32..)
                .take(windows)
                .map(|at| (f64::from(at), f64::from(at + 1)))
                .collect(),
            metrics: vec![metric("cpus_used", "CPU", false)],
            ..Run::default()
        };
        for (at, (name, values)) in rows.iter().enumerate() {
            let kind = if *name == "idle" { "idle" } else { "container" };
            run.subjects.push(LineSubject {
                part: "row",
                label: (*name).to_owned(),
                labels: [("kind", kind.to_owned()), ("name", (*name).to_owned())].into(),
            });
            run.lines.push(RunLine {
                values: values.clone(),
                ..RunLine::new(at, 0, String::new(), 0)
            });
        }
        run
    }

    /// 40 windows around a level in each half, with the same small noise in both.
    fn halves(first: f64, second: f64) -> Vec<f64> {
        let noise = [0.97, 1.02, 0.99, 1.03, 1.0];
        let level = |at: usize| if at < 20 { first } else { second };
        (0..40).map(|at| level(at) * noise[at % 5]).collect()
    }

    #[test]
    fn a_change_is_listed_if_it_is_large_and_beyond_chance() {
        let until_20 = |value: f64| vec![value; 20];
        let run = run(&[
            ("steady", halves(1.0, 1.0)),
            ("more", halves(0.2, 0.5)),
            ("halved", halves(0.6, 0.3)),
            ("a little", halves(0.5, 0.55)),
            ("tiny", halves(0.001, 0.004)),
            ("idle", halves(2.0, 1.0)),
            ("ended", until_20(0.1)),
        ]);
        let changes = run.changes();
        let names: Vec<&str> = { changes["shown"].as_array().unwrap().iter() }
            .map(|it| it["label"].as_str().unwrap())
            .collect();
        assert_eq!(names, ["halved", "more"]);
        assert_eq!(
            (&changes["number"], &changes["at_s"]),
            (&json!(2), &json!(20.0))
        );
        assert_eq!(
            (&changes["ended"], &changes["started"]),
            (&json!(["ended"]), &json!([]))
        );
        let mut short = run;
        short.windows.truncate(5);
        for line in &mut short.lines {
            line.values.truncate(5);
        }
        assert_eq!(short.changes(), Value::Null);
    }
}
