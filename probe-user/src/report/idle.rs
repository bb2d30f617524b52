//! Sets values of 0 in windows that have a row but no series of it, although the metric was
//! measured: the row had no part in it. So means over time include these windows.

use std::{collections::HashMap, ops::Range};

use super::{Run, RunIndex, RunLine};
use crate::{
    derive::{self, Attributes, Reason, Report, Subject, Value, ValueMethod},
    join::share::Method,
};

/// Indices of windows, as ranges in ascending order.
#[derive(Default)]
pub(super) struct WindowSet(Vec<Range<usize>>);

impl WindowSet {
    /// Adds a window that is not before the last one.
    pub(super) fn add(&mut self, window: usize) {
        match self.0.last_mut() {
            Some(last) if last.end >= window => last.end = window + 1,
            _ => self.0.push(window..window + 1),
        }
    }

    fn contains(&self, window: usize) -> bool {
        let at = self.0.partition_point(|range| range.end <= window);
        self.0.get(at).is_some_and(|range| range.start <= window)
    }

    fn iter(&self) -> impl Iterator<Item = usize> {
        self.0.iter().cloned().flatten()
    }
}

/// What is divided among rows: the index of a metric, with the socket and the device.
type Divided = (usize, Option<u32>, Option<String>);

/// Which subjects windows have and what they measured, while a run is built.
#[derive(Default)]
pub(super) struct IdleWindows {
    /// The windows that have a subject.
    present: HashMap<Subject, WindowSet>,
    /// The windows in which a metric was divided by a method.
    divided: HashMap<(Divided, Method), WindowSet>,
    /// The windows in which a subject's share was not known.
    unknown: HashMap<(usize, Divided), WindowSet>,
    /// The lines of shares, by their indices.
    shares: HashMap<usize, (Divided, Method)>,
    /// The windows in which memory accesses were sampled.
    sampled: WindowSet,
    /// Indices of the lines that count sampled accesses.
    accesses: Vec<usize>,
}

impl IdleWindows {
    /// Adds a window with its subjects. An idle row may have no series, but is a subject.
    pub(super) fn add_window(&mut self, report: &Report, window: usize) {
        if report.metrics.iter().any(|it| it.name == derive::ACCESSES) {
            self.sampled.add(window);
        }
        for subject in &report.subjects {
            // Copies the subject only if it is new.
            if let Some(windows) = self.present.get_mut(subject) {
                windows.add(window);
            } else {
                let windows = self.present.entry(subject.clone()).or_default();
                windows.add(window);
            }
        }
    }

    /// Adds a share in a window. `at` is the index of its line.
    pub(super) fn add_share(
        &mut self,
        (at, line): (usize, &RunLine),
        attributes: &Attributes,
        value: &Result<Value, Reason>,
        window: usize,
    ) {
        let divided = (line.metric, attributes.socket, attributes.device.clone());
        match (&attributes.method, value) {
            // An unknown share has no method, and so a line of its own.
            (_, Err(_)) => {
                let windows = self.unknown.entry((line.subject, divided)).or_default();
                windows.add(window);
            }
            (ValueMethod::Apportioned(by), Ok(_)) => {
                let share = (divided, by.clone());
                self.divided.entry(share.clone()).or_default().add(window);
                self.shares.insert(at, share);
            }
            // What resctrl counted is no share.
            (_, Ok(_)) => {}
        }
    }

    /// Adds a value of sampled accesses in a window. `at` is the index of its line, which begins
    /// with the first such sample of the row.
    pub(super) fn add_accesses(
        &mut self,
        (at, line): (usize, &RunLine),
        value: &Result<Value, Reason>,
        window: usize,
    ) {
        if line.first == window && matches!(value, Ok(Value::Counter(_))) {
            self.accesses.push(at);
        }
    }
}

impl Run {
    /// Sets values to 0 in the windows that have the row and measured the metric, but have no
    /// series of it for the row.
    pub(super) fn fill_idle_windows(&mut self, index: &RunIndex) {
        let idle = &index.idle;
        let subjects = index.subjects.iter();
        let subjects: HashMap<usize, &Subject> =
            subjects.map(|((_, subject), at)| (*at, subject)).collect();
        let present = |subject: usize| {
            let windows = idle.present.get(subjects[&subject]).into_iter();
            windows.flat_map(WindowSet::iter)
        };
        for (at, share) in &idle.shares {
            let line = &mut self.lines[*at];
            let divided = &idle.divided[share];
            let unknown = idle.unknown.get(&(line.subject, share.0.clone()));
            let has_zero_share = |window: &usize| {
                divided.contains(*window) && unknown.is_none_or(|it| !it.contains(*window))
            };
            line.fill(present(line.subject).filter(has_zero_share));
        }
        for at in &idle.accesses {
            let line = &mut self.lines[*at];
            let first = line.first;
            let before = present(line.subject).take_while(|window| *window < first);
            line.fill(before.filter(|window| idle.sampled.contains(*window)));
        }
        let counted = &index.waits.windows;
        for ((waiting, _), at) in index.waits.lines() {
            let windows = present(waiting).filter(|window| counted.contains(*window));
            self.lines[at].fill(windows);
        }
    }
}
