//! Findings of a run: about the session (from its last window), about single windows, and about
//! waits over the whole run.

use std::collections::HashMap;

use super::{Run, RunIndex, waits::Ran};
use crate::{
    derive::{
        FindingKind, FindingSubject, LEAST_WAIT, MAX_FINDINGS, Report, ReportFinding,
        ReportSection, Subject, waits_sentence,
    },
    join::Entity,
};

/// Findings about single windows while a run is built.
#[derive(Default)]
pub(super) struct WindowFindings {
    /// One finding for each kind and subject.
    found: Vec<WindowFinding>,
    /// Subjects whose waits include throttling by a CPU quota.
    throttled: Vec<Subject>,
}

struct WindowFinding {
    kind: FindingKind,
    about: Subject,
    /// The finding of the last window that has it.
    finding: ReportFinding,
    /// Number of windows that have the finding.
    windows: usize,
}

/// The names of all subjects of the run.
type ShownNames<'a> = HashMap<&'a Subject, String>;

/// The subject of a finding.
fn subject(report: &Report, finding: &ReportFinding) -> Subject {
    match finding.about {
        FindingSubject::Socket(socket) => Subject::Socket(socket),
        FindingSubject::Subject(at) => report.subjects[at as usize].clone(),
    }
}

/// The name of a finding's subject, and the finding's sentence. The name is empty if the sentence
/// contains it.
fn named(about: &Subject, finding: &ReportFinding, shown: &ShownNames<'_>) -> (String, String) {
    let label = match finding.about {
        FindingSubject::Socket(_) => String::new(),
        FindingSubject::Subject(_) => shown[about].clone(),
    };
    (label, finding.sentence(|subject| shown[subject].clone()))
}

impl WindowFindings {
    /// Adds the findings of a window.
    pub(super) fn add(&mut self, report: &Report) {
        for finding in &report.findings {
            let kind = finding.kind;
            let about = subject(report, finding);
            match kind {
                FindingKind::Waits { throttled } => {
                    if throttled && !self.throttled.contains(&about) {
                        self.throttled.push(about);
                    }
                    continue;
                }
                kind if kind.is_of_session() => continue,
                _ => {}
            }
            let finding = finding.clone();
            let known =
                { self.found.iter_mut() }.find(|known| known.kind == kind && known.about == about);
            match known {
                Some(known) => {
                    known.finding = finding;
                    known.windows += 1;
                }
                None => self.found.push(WindowFinding {
                    kind,
                    about,
                    finding,
                    windows: 1,
                }),
            }
        }
    }
}

impl Run {
    /// Sets the findings, after the last window.
    pub(super) fn set_findings(&mut self, index: &RunIndex, last: &Report, shown: &ShownNames<'_>) {
        let of_session = { last.findings.iter() }
            .filter(|finding| finding.kind.is_of_session())
            .map(|finding| named(&subject(last, finding), finding, shown));
        let mut findings = self.waits(index, shown);
        findings.extend(of_session);
        let mut of_windows: Vec<&WindowFinding> = index.findings.found.iter().collect();
        of_windows.sort_by_key(|it| std::cmp::Reverse(it.windows));
        findings.extend(of_windows.into_iter().map(|it| {
            let (label, text) = named(&it.about, &it.finding, shown);
            let text = match it.windows {
                1 => format!("{text} (in one window)"),
                windows => format!("{text} (in the last of {windows} such windows)"),
            };
            (label, text)
        }));
        self.findings = findings;
    }

    /// Findings about the longest waits over all windows, worded like those of a single window.
    fn waits(&self, index: &RunIndex, shown: &ShownNames<'_>) -> Vec<(String, String)> {
        #[derive(Default)]
        struct Waits {
            nanos: f64,
            /// Behind whom most of this time was waited, and how many nanoseconds of it.
            most: Option<(Subject, f64)>,
        }
        let seconds: f64 = self.windows.iter().map(|(start, end)| end - start).sum();
        let mut by_subject: HashMap<usize, Waits> = HashMap::new();
        for ((waiting, behind), line) in index.waits.lines() {
            let values = self.lines[line].values.iter();
            let nanos: f64 = values.filter(|value| !value.is_nan()).sum();
            let waits = by_subject.entry(waiting).or_default();
            waits.nanos += nanos;
            let Some(Ran::Subject(other)) = behind else {
                continue;
            };
            let own = index.subjects.get(&(ReportSection::Rows, other.clone()));
            let is_other = own != Some(&waiting) && *other != Subject::Entity(Entity::Others);
            if is_other && waits.most.as_ref().is_none_or(|(_, most)| nanos > *most) {
                waits.most = Some((other.clone(), nanos));
            }
        }
        let throttled = |waiting: usize| {
            let mut subjects = index.findings.throttled.iter();
            subjects
                .any(|it| index.subjects.get(&(ReportSection::Rows, it.clone())) == Some(&waiting))
        };
        let mut longest: Vec<(usize, Waits)> = by_subject
            .into_iter()
            .filter(|(waiting, waits)| {
                waits.nanos >= LEAST_WAIT * seconds * 1e9 && !self.subjects[*waiting].is_rest()
            })
            .collect();
        longest.sort_by(|a, b| b.1.nanos.total_cmp(&a.1.nanos).then(a.0.cmp(&b.0)));
        let findings = longest
            .into_iter()
            .filter_map(|(waiting, Waits { nanos, most })| {
                let (text, named) = waits_sentence(nanos, throttled(waiting), most)?;
                let text = match named {
                    Some(other) => format!("{text} {}", shown[&other]),
                    None => text,
                };
                Some((self.subjects[waiting].label.clone(), text))
            });
        findings.take(MAX_FINDINGS).collect()
    }
}
