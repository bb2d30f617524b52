//! Compares shares of memory traffic with what resctrl counted for the same rows, in recordings
//! that have both: how far they are apart, and whether the stated intervals hold the counts.
//!
//! resctrl counts what a group of tasks read and wrote, wherever the memory is. So the shares in
//! reads and writes of all sockets' memories are added up.

use std::collections::{BTreeMap, BTreeSet};

use serde::Serialize;

use super::{Run, RunLine, line::is_partial};
use crate::{
    derive::{MonitoredRow, RESCTRL, ShareWidth, lacking},
    emit::{number_texts, printable::printable, table_lines, wrapped},
};

/// The shares of a recording beside resctrl's counts.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct VerifiedShares {
    /// Name of the recording.
    pub file: String,
    /// The metrics that were added up.
    pub metrics: Vec<String>,
    /// The methods of the shares.
    pub methods: Vec<String>,
    /// By row, the largest count first.
    pub rows: Vec<VerifiedRow>,
    /// All windows of all rows.
    pub all: Agreement,
}

/// A row with shares and a monitoring group of its own.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct VerifiedRow {
    /// The row, for people.
    pub label: String,
    /// Labels of the row.
    pub labels: BTreeMap<&'static str, String>,
    /// Mean of what resctrl counted in the windows that also have a share, in GB/s.
    pub counted: f64,
    /// Mean of its shares in these windows, in GB/s.
    pub shares: f64,
    /// How well they agree.
    #[serde(flatten)]
    pub agreement: Agreement,
}

/// How well shares and counts of some windows agree.
#[derive(Clone, Debug, Default, PartialEq, Serialize)]
pub struct Agreement {
    /// Windows with a share and a count.
    pub windows: usize,
    /// Windows with a count and without a share.
    pub without_share: usize,
    /// Median distance of the share from the count, relative to the count.
    pub median_error: Option<f64>,
    /// Median half width of the share's interval, relative to the share; None without an interval
    /// of a share above 0.
    pub median_stated: Option<f64>,
    /// Windows whose share has an interval.
    pub with_interval: usize,
    /// Windows whose interval holds the count.
    pub within: usize,
}

/// Why shares cannot be compared with resctrl. Each message says what to do.
#[derive(Debug, PartialEq, Eq, thiserror::Error)]
pub enum VerifyError {
    /// No row has a monitoring group.
    #[error(
        "{0} has no counts of resctrl: mount it (`mount -t resctrl resctrl /sys/fs/resctrl`), give \
         containers a monitoring group each (containerd: `intelRdt.enableMonitoring`), and record \
         again"
    )]
    NotMonitored(String),
    /// Shares of reads or of writes are missing, and resctrl counts both.
    #[error(
        "{file} has no shares of {missing}, and resctrl counts reads and writes: record metrics of \
         both with -M (`pmuscope list metrics` shows those that are divided)"
    )]
    OneSided {
        /// The recording.
        file: String,
        /// What is missing.
        missing: &'static str,
    },
    /// No row has a count and a share in the same window.
    #[error(
        "{0} has no window with both a share and a count of resctrl that is not 0: record longer"
    )]
    NothingToCompare(String),
}

/// A window of a row.
struct ComparedWindow {
    seconds: f64,
    counted: f64,
    share: Option<ShareWidth>,
}

impl VerifiedShares {
    /// Compares all windows of a recording.
    ///
    /// # Errors
    ///
    /// The recording lacks counts of resctrl, or shares of reads or of writes.
    pub fn of_run(run: &Run) -> Result<Self, VerifyError> {
        let counted = |line: &&RunLine| run.metrics[line.metric].name == RESCTRL;
        let counted_lines = run.lines.iter().filter(counted);
        let subjects: BTreeSet<usize> = counted_lines.map(|line| line.subject).collect();
        if subjects.is_empty() {
            return Err(VerifyError::NotMonitored(run.file.clone()));
        }
        if let Some(missing) = lacking(&run.shared) {
            let file = run.file.clone();
            return Err(VerifyError::OneSided { file, missing });
        }
        let metrics: Vec<String> = run.shared.iter().map(|(name, _)| name.clone()).collect();
        let is_share = |line: &&RunLine| metrics.contains(&run.metrics[line.metric].name);
        let method = |line: &RunLine| Some(line.qualifier.rsplit_once(" by ")?.1.to_owned());
        let mut methods: Vec<String> = run
            .lines
            .iter()
            .filter(is_share)
            .filter_map(method)
            .collect();
        methods.sort();
        methods.dedup();
        let (mut rows, mut all) = (Vec::new(), Vec::new());
        for subject in subjects {
            let lines = run.lines.iter().filter(|line| line.subject == subject);
            let (counts, others): (Vec<_>, Vec<_>) = lines.partition(counted);
            let shares: Vec<&RunLine> = others.into_iter().filter(is_share).collect();
            let windows = compared(run, &counts, &shares);
            rows.extend(VerifiedRow::new(run, subject, &windows));
            all.extend(windows);
        }
        if rows.is_empty() {
            return Err(VerifyError::NothingToCompare(run.file.clone()));
        }
        rows.sort_by(|a, b| b.counted.total_cmp(&a.counted));
        Ok(Self {
            file: run.file.clone(),
            metrics,
            methods,
            rows,
            all: Agreement::of_windows(&all),
        })
    }

    /// A table of the rows, and notes below it.
    #[must_use]
    pub fn table(&self, width: Option<usize>) -> String {
        let rows = || self.rows.iter();
        let percents = |part: fn(&Agreement) -> Option<f64>| -> Vec<String> {
            let all = rows().map(|row| &row.agreement).chain([&self.all]);
            all.map(|it| part(it).map_or("-".to_owned(), |part| format!("{:.1}%", part * 100.0)))
                .collect()
        };
        let numbers = |number: fn(&VerifiedRow) -> f64| {
            let mut texts = number_texts(rows().map(|row| Some(number(row))));
            texts.push(String::new());
            texts
        };
        let (counted, shares) = (numbers(|it| it.counted), numbers(|it| it.shares));
        let errors = percents(|it| it.median_error);
        let stated = percents(|it| it.median_stated);
        let within = percents(Agreement::coverage);
        let heads = [
            "",
            "windows",
            "resctrl GB/s",
            "share GB/s",
            "off",
            "stated",
            "within",
        ];
        let labels = rows().map(|row| printable(&row.label).into_owned());
        let counts = rows()
            .map(|row| row.agreement.windows)
            .chain([self.all.windows]);
        let lines = labels.chain(["all".to_owned()]).zip(counts).enumerate();
        let lines = lines.map(|(at, (label, windows))| {
            let texts = [&counted, &shares, &errors, &stated, &within].map(|it| it[at].clone());
            [label, windows.to_string()]
                .into_iter()
                .chain(texts)
                .collect()
        });
        let mut out = table_lines(&heads, lines, |at| at > 0);
        let mut notes = vec![format!(
            "{}: {} by {}, added up; off and stated are medians over windows",
            self.file,
            self.metrics.join(", "),
            self.methods.join(", ")
        )];
        if self.all.with_interval == 0 {
            let is_calibrated = |method: &String| method.contains("calibrated");
            let why = match self.methods.iter().any(is_calibrated) {
                true => "no sum has an interval: not all of its shares are calibrated",
                false => {
                    "no share has an interval: give --calibration when recording (`pmuscope \
                     calibrate shares` makes one)"
                }
            };
            notes.push(why.to_owned());
        }
        if self.all.without_share > 0 {
            let Agreement {
                windows,
                without_share,
                ..
            } = self.all;
            let all = windows + without_share;
            let have = if without_share == 1 { "has" } else { "have" };
            notes.push(format!(
                "{without_share} of {all} windows {have} a count and no share"
            ));
        }
        let notes = notes
            .iter()
            .flat_map(|note| wrapped(&format!(" {}", printable(note)), width, 3));
        out.extend(notes);
        out.join("\n") + "\n"
    }
}

impl VerifiedRow {
    /// None if no window has both a count and a share.
    fn new(run: &Run, subject: usize, windows: &[ComparedWindow]) -> Option<Self> {
        let both = || windows.iter().filter_map(|it| Some((it, it.share?.0)));
        let seconds: f64 = both().map(|(it, _)| it.seconds).sum();
        let mean = |sum: f64| sum / seconds;
        let row = &run.subjects[subject];
        (seconds > 0.0).then(|| Self {
            label: row.label.clone(),
            labels: row.labels.clone(),
            counted: mean(both().map(|(it, _)| it.counted * it.seconds).sum()),
            shares: mean(both().map(|(it, share)| share * it.seconds).sum()),
            agreement: Agreement::of_windows(windows),
        })
    }
}

impl Agreement {
    fn of_windows<'a>(windows: impl IntoIterator<Item = &'a ComparedWindow>) -> Self {
        let mut agreement = Self::default();
        let (mut errors, mut stated) = (Vec::new(), Vec::new());
        for window in windows {
            let Some((share, half)) = window.share else {
                agreement.without_share += 1;
                continue;
            };
            agreement.windows += 1;
            let distance = (share - window.counted).abs();
            errors.push(distance / window.counted);
            if let Some(half) = half {
                agreement.with_interval += 1;
                agreement.within += usize::from(distance <= half);
                // A share of 0 has no relative width.
                stated.extend((share > 0.0).then(|| half / share));
            }
        }
        agreement.median_error = median(errors);
        agreement.median_stated = median(stated);
        agreement
    }

    /// The fraction of the intervals that hold the count; None without an interval.
    #[must_use]
    #[expect(clippy::cast_precision_loss, reason = "numbers of windows")]
    pub fn coverage(&self) -> Option<f64> {
        (self.with_interval > 0).then(|| self.within as f64 / self.with_interval as f64)
    }
}

/// The windows of a row in which resctrl counted something, without a partial one at the end.
fn compared(run: &Run, counts: &[&RunLine], shares: &[&RunLine]) -> Vec<ComparedWindow> {
    let whole = (0..run.windows.len()).filter(|at| !is_partial(&run.windows, *at));
    let windows = whole.filter_map(|at| {
        let known = |line: &RunLine| Some(line.value(at)).filter(|it| it.is_finite());
        let mut row = MonitoredRow::default();
        for line in counts {
            row.add_count(known(line));
        }
        for line in shares {
            // A share that is unknown has no method, and so a line of its own.
            let place = (line.metric, line.qualifier.split(" by ").next());
            let interval = Some(line.interval(at)).filter(|(low, _)| low.is_finite());
            row.add_share(place, known(line), interval);
        }
        let counted = row.counted().filter(|it| *it > 0.0)?;
        let (start, end) = run.windows[at];
        Some(ComparedWindow {
            seconds: end - start,
            counted,
            share: row.share(run.shared.len()),
        })
    });
    windows.collect()
}

fn median(mut values: Vec<f64>) -> Option<f64> {
    let middle = values.len() / 2;
    let (_, median, _) =
        (!values.is_empty()).then(|| values.select_nth_unstable_by(middle, f64::total_cmp))?;
    Some(*median)
}

#[cfg(test)]
mod tests;
