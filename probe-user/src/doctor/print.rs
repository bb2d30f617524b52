//! A diagnosis as text and as JSON.

use std::io::{self, Write};

use serde_json::json;

use super::{CounterProfile, Diagnosis, Finding, Loss, Remedy};
use crate::emit::printable::printable_json;

impl Diagnosis {
    /// Writes the diagnosis for people: one line for each finding, with the loss and the remedies
    /// below it, and the verdict last.
    ///
    /// # Errors
    ///
    /// The writer fails.
    pub fn write_text(&self, out: &mut impl Write) -> io::Result<()> {
        let mut area = None;
        for finding in &self.findings {
            if area.replace(finding.area) != Some(finding.area) {
                writeln!(out, "{}", finding.area.name())?;
            }
            let Finding {
                check,
                found,
                state,
                ..
            } = finding;
            writeln!(out, "  {:<9} {check}: {found}", state.name())?;
            if let Some(loss) = state.loss() {
                write_loss(out, loss)?;
            }
        }
        writeln!(out, "verdict: {}", self.verdict())
    }

    /// Writes the diagnosis for programs, as one JSON object.
    ///
    /// # Errors
    ///
    /// The writer fails.
    pub fn write_json(&self, out: &mut impl Write) -> io::Result<()> {
        let remedy =
            |remedy: &Remedy| json!({"advice": remedy.advice, "commands": remedy.commands});
        let finding = |finding: &Finding| {
            let loss = finding.state.loss();
            let remedies = loss.map_or(&[][..], |loss| &loss.remedies);
            json!({
                "area": finding.area.name(),
                "check": finding.check,
                "found": finding.found,
                "state": finding.state.name(),
                "stops_counting": finding.state.stops_counting(),
                "lost": loss.map(|loss| &loss.lost),
                "remedies": remedies.iter().map(remedy).collect::<Vec<_>>(),
            })
        };
        let findings: Vec<_> = self.findings.iter().map(finding).collect();
        let machine = &self.machine;
        let diagnosis = json!({
            "machine": {
                "arch": machine.arch,
                "kernel": machine.kernel,
                "vendor": machine.vendor,
                "product": machine.product,
            },
            "counters": self.counters.as_ref().map(CounterProfile::json),
            "findings": findings,
            "counting_works": self.counting_works(),
            "verdict": self.verdict(),
        });
        writeln!(out, "{}", printable_json(&diagnosis))
    }
}

fn write_loss(out: &mut impl Write, loss: &Loss) -> io::Result<()> {
    let indent = " ".repeat(12);
    writeln!(out, "{indent}lost: {}", loss.lost)?;
    for remedy in &loss.remedies {
        let colon = if remedy.commands.is_empty() { "" } else { ":" };
        writeln!(out, "{indent}fix: {}{colon}", remedy.advice)?;
        for command in &remedy.commands {
            writeln!(out, "{indent}      $ {command}")?;
        }
    }
    Ok(())
}
