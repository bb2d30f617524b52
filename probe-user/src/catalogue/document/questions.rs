//! Questions of users, and the metrics that answer them.

use serde::Deserialize;

use super::push_line;
use crate::catalogue::{
    Catalogue,
    model::{Apportion, Metric, Per},
};

const QUESTIONS: &str = include_str!("../../../catalogue/questions.toml");

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct QuestionsFile {
    question: Vec<Question>,
}

/// A question.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct Question {
    ask: String,
    /// The command that prints the answer.
    command: String,
    /// The groups of the metrics that answer it.
    groups: Vec<String>,
    /// The units of these metrics; empty: any.
    #[serde(default)]
    units: Vec<String>,
}

impl Question {
    pub(super) fn all() -> Vec<Self> {
        let file: Result<QuestionsFile, _> = toml::from_str(QUESTIONS);
        file.unwrap_or_else(|error| panic!("catalogue/questions.toml: {error}"))
            .question
    }

    fn is_answered_by(&self, metric: &Metric) -> bool {
        let is_in_group = self.groups.iter().any(|group| metric.is_in(group));
        is_in_group && (self.units.is_empty() || self.units.contains(&metric.unit))
    }

    /// Writes the question as a heading, the command, and the metrics that answer it, by family and
    /// by subject.
    pub(super) fn write(&self, out: &mut String, catalogue: &Catalogue) {
        push_line(out, &format!("### {}\n", self.ask));
        push_line(out, &format!("`{}`\n", self.command));
        for family in catalogue.families() {
            let page = format!("metrics/{}.md", family.name);
            let mut answers: Vec<(&str, Vec<String>)> = Vec::new();
            let answering = catalogue
                .metrics()
                .filter(|metric| metric.family.name == family.name && self.is_answered_by(metric));
            for metric in answering {
                let name = format!("[`{0}`]({page}#{0})", metric.name);
                let subject = subject_of(metric);
                match answers.iter_mut().find(|(other, _)| *other == subject) {
                    Some((_, names)) => names.push(name),
                    None => answers.push((subject, vec![name])),
                }
            }
            for (subject, names) in answers {
                let (title, names) = (&family.title, names.join(", "));
                push_line(out, &format!("- [{title}]({page}), {subject}: {names}"));
            }
        }
        out.push('\n');
    }
}

/// The subject of the metric's values: containers, sockets or devices.
fn subject_of(metric: &Metric) -> &'static str {
    let is_shared = metric.apportion != Apportion::None;
    match (metric.pmu.per, is_shared) {
        (Per::Cpu, _) => "each container",
        (Per::Socket, false) => "each socket",
        (Per::Socket, true) => "each socket, and each container's share",
        (Per::Device, false) => "each device",
        (Per::Device, true) => "each device, and the share of its users",
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_metric_answers_a_question_and_every_question_has_an_answer() {
        let catalogue = Catalogue::builtin().unwrap();
        let questions = Question::all();
        for metric in catalogue.metrics() {
            let asked = questions
                .iter()
                .any(|question| question.is_answered_by(metric));
            assert!(asked, "no question asks for {}", metric.name);
        }
        for question in &questions {
            let answered = catalogue
                .metrics()
                .any(|metric| question.is_answered_by(metric));
            assert!(answered, "{}", question.ask);
            for group in &question.groups {
                let known = catalogue.metrics().any(|metric| metric.group == *group);
                assert!(known, "{}: no group {group}", question.ask);
            }
        }
    }
}
