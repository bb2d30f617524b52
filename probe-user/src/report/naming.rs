//! Names of the subjects of a run: each the shortest that no other subject of the run has.

use std::collections::HashMap;

use super::{Run, RunIndex, waits::Ran};
use crate::{
    derive::{Report, Subject},
    emit::names::{SubjectName, shown_names},
};

/// The subjects named so far.
#[derive(Default)]
pub(super) struct RunNames(HashMap<Subject, SubjectName>);

impl RunNames {
    /// Learns a subject's name. A runtime may report a container's name after its first window.
    pub(super) fn learn(&mut self, report: &Report, subject: &Subject) {
        let is_known =
            |known: &SubjectName| known.is_given() || !subject.labels(&report.described).is_named();
        if !self.0.get(subject).is_some_and(is_known) {
            let name = SubjectName::new(subject, &report.described);
            self.0.insert(subject.clone(), name);
        }
    }

    /// Learns the names of the subjects of a window's findings.
    pub(super) fn learn_findings(&mut self, report: &Report) {
        for finding in &report.findings {
            let about = finding.about.subject(report).into_iter();
            for subject in about.chain(&finding.named) {
                self.learn(report, subject);
            }
        }
    }

    /// The names to show.
    fn shown(&self) -> HashMap<&Subject, String> {
        let names: Vec<SubjectName> = self.0.values().cloned().collect();
        self.0.keys().zip(shown_names(&names, false)).collect()
    }
}

impl Run {
    /// Names all subjects and sets the findings, once the whole recording is read.
    pub(super) fn name_subjects(&mut self, index: &RunIndex, last: &Report) {
        let shown = index.names.shown();
        for ((_, subject), at) in &index.subjects {
            self.subjects[*at].label.clone_from(&shown[subject]);
        }
        for ((_, ran), at) in index.waits.lines() {
            if let Some(Ran::Subject(owner)) = ran {
                self.lines[at].qualifier = format!("behind {}", shown[owner]);
            }
        }
        self.set_findings(index, last, &shown);
    }
}
