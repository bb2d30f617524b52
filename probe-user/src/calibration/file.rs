//! The file of a calibration, in TOML.

use std::{fmt, fs, io, path::Path};

use serde::{Deserialize, Serialize};

use super::CalibratedTraffic;
use crate::machine::Machine;

/// The number of this format.
const FORMAT: u32 = 1;

/// A calibration of a machine.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Calibration {
    format: u32,
    /// Where it was made.
    pub machine: CalibratedMachine,
    /// What was calibrated.
    #[serde(rename = "traffic")]
    pub traffics: Vec<CalibratedTraffic>,
}

/// The facts of a machine on which its events' counts depend. A calibration holds for all machines
/// with the same.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct CalibratedMachine {
    /// The CPU: vendor, family and model on x86, `MIDR_EL1` on Arm.
    pub cpu: String,
    /// The sockets.
    pub sockets: u32,
    /// The NUMA nodes of a socket: more than one with sub-NUMA clustering.
    pub nodes_per_socket: usize,
    /// The version of the microcode, where the CPU has one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub microcode: Option<String>,
}

/// Why a calibration cannot be used. Each message says what to do.
#[derive(Debug, thiserror::Error)]
#[error("{file}: {problem}")]
pub struct CalibrationError {
    file: String,
    problem: Box<Problem>,
}

#[derive(Debug, thiserror::Error)]
enum Problem {
    #[error("cannot be read ({0}): give the file that `pmuscope calibrate shares` wrote")]
    Unreadable(io::Error),
    #[error("line {line}: {message}: give the file that `pmuscope calibrate shares` wrote")]
    Toml { line: usize, message: String },
    #[error("format {0}, and this pmuscope reads {FORMAT}: make it again")]
    Format(u32),
    #[error("{0}: make it again with `pmuscope calibrate shares`")]
    Wrong(String),
    #[error(
        "it is of another machine, {of}, and this is {this}: make one here with `pmuscope \
         calibrate shares`"
    )]
    Elsewhere { of: String, this: String },
}

impl Calibration {
    /// A calibration made on this machine.
    #[must_use]
    pub fn new(machine: CalibratedMachine, traffics: Vec<CalibratedTraffic>) -> Self {
        Self {
            format: FORMAT,
            machine,
            traffics,
        }
    }

    /// Reads a file for use on this machine.
    ///
    /// # Errors
    ///
    /// The file cannot be read, is no calibration, or was made on another type of machine.
    pub fn read(path: &Path, machine: &Machine) -> Result<Self, CalibrationError> {
        let read = || -> Result<Self, Problem> {
            let text = fs::read_to_string(path).map_err(Problem::Unreadable)?;
            let read = Self::parse(&text)?;
            let (of, this) = (&read.machine, CalibratedMachine::of(machine));
            let type_ = |it: &CalibratedMachine| CalibratedMachine {
                microcode: None,
                ..it.clone()
            };
            if type_(of) != type_(&this) {
                return Err(Problem::Elsewhere {
                    of: of.to_string(),
                    this: this.to_string(),
                });
            }
            if of.microcode != this.microcode {
                tracing::warn!(
                    "{}: made with microcode {}, and this machine has {}: make it again if a share \
                     has no mixture",
                    path.display(),
                    of.microcode.as_deref().unwrap_or("of no number"),
                    this.microcode.as_deref().unwrap_or("of no number"),
                );
            }
            Ok(read)
        };
        read().map_err(|problem| CalibrationError {
            file: path.display().to_string(),
            problem: Box::new(problem),
        })
    }

    fn parse(text: &str) -> Result<Self, Problem> {
        let read: Self = toml::from_str(text).map_err(|error| {
            let before = error.span().map_or("", |span| &text[..span.start]);
            Problem::Toml {
                line: before.matches('\n').count() + 1,
                message: error.message().to_owned(),
            }
        })?;
        if read.format != FORMAT {
            return Err(Problem::Format(read.format));
        }
        match read.traffics.iter().find_map(CalibratedTraffic::mistake) {
            Some(mistake) => Err(Problem::Wrong(mistake)),
            None => Ok(read),
        }
    }

    /// The text of its file.
    ///
    /// # Panics
    ///
    /// Never: numbers and texts have a form in TOML.
    #[must_use]
    pub fn text(&self) -> String {
        toml::to_string(self).expect("plain tables")
    }
}

impl CalibratedMachine {
    /// The facts of this machine.
    #[must_use]
    pub fn of(machine: &Machine) -> Self {
        let cpu = match (machine.cpu_model(), machine.midr(0)) {
            (Some(model), _) => format!(
                "{} family {} model {}",
                model.vendor, model.family, model.model
            ),
            (None, Some(midr)) => format!("MIDR {midr:#x}"),
            (None, None) => "unknown".to_owned(),
        };
        let topology = machine.topology();
        Self {
            cpu,
            sockets: topology.sockets(),
            nodes_per_socket: topology.nodes_per_socket(),
            microcode: machine.sys("devices/system/cpu/cpu0/microcode/version"),
        }
    }
}

impl fmt::Display for CalibratedMachine {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self {
            cpu,
            sockets,
            nodes_per_socket,
            ..
        } = self;
        write!(
            f,
            "{cpu} x {sockets} with {nodes_per_socket} NUMA nodes each"
        )
    }
}

impl CalibratedTraffic {
    /// What is wrong with it, if anything.
    fn mistake(&self) -> Option<String> {
        /// More would take too long to try.
        const EVENTS: usize = 4;
        const PATTERNS: usize = 24;
        let Self {
            metric,
            events,
            spreads,
            patterns,
        } = self;
        let number = |value: &f64| value.is_finite() && *value >= 0.0;
        if events.is_empty() || events.len() > EVENTS {
            return Some(format!(
                "{metric} has {} events, of 1 to {EVENTS}",
                events.len()
            ));
        }
        if patterns.is_empty() || patterns.len() > PATTERNS {
            return Some(format!(
                "{metric} has {} patterns, of 1 to {PATTERNS}",
                patterns.len()
            ));
        }
        if spreads.len() != events.len() || !spreads.iter().all(number) {
            return Some(format!(
                "{metric} has not one spread of 0 or more for each event"
            ));
        }
        let wrong = |counts: &[f64]| counts.len() != events.len() || !counts.iter().all(number);
        let wrong = patterns.iter().find(|pattern| wrong(&pattern.counts))?;
        Some(format!(
            "pattern {} of {metric} has not one count of 0 or more for each event",
            wrong.name
        ))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::calibration::Pattern;

    fn calibration() -> Calibration {
        let machine = CalibratedMachine {
            cpu: "MIDR 0x410fd4f0".into(),
            sockets: 1,
            nodes_per_socket: 1,
            microcode: None,
        };
        let traffic = CalibratedTraffic {
            metric: "cmem_read_bandwidth".into(),
            events: vec!["llc_read_misses".into()],
            spreads: vec![0.004],
            patterns: vec![Pattern {
                name: "read-stream on 1".into(),
                counts: vec![0.25],
            }],
        };
        Calibration::new(machine, vec![traffic])
    }

    #[test]
    fn a_file_reads_back() {
        let written = calibration();
        assert_eq!(Calibration::parse(&written.text()).unwrap(), written);
        insta::assert_snapshot!(written.text(), @r#"
        format = 1

        [machine]
        cpu = "MIDR 0x410fd4f0"
        sockets = 1
        nodes_per_socket = 1

        [[traffic]]
        metric = "cmem_read_bandwidth"
        events = ["llc_read_misses"]
        spreads = [0.004]

        [[traffic.pattern]]
        name = "read-stream on 1"
        counts = [0.25]
        "#);
    }

    #[test]
    fn mistakes_are_told() {
        let told = |change: &dyn Fn(&mut Calibration)| {
            let mut wrong = calibration();
            change(&mut wrong);
            Calibration::parse(&wrong.text()).unwrap_err().to_string()
        };
        let not_toml = Calibration::parse("format = 1\n\nx = 2\n").unwrap_err();
        assert!(
            not_toml
                .to_string()
                .starts_with("line 3: unknown field `x`"),
            "{not_toml}"
        );
        assert_eq!(
            told(&|it| it.format = 2),
            "format 2, and this pmuscope reads 1: make it again"
        );
        assert_eq!(
            told(&|it| it.traffics[0].patterns[0].counts.push(1.0)),
            "pattern read-stream on 1 of cmem_read_bandwidth has not one count of 0 or more for \
             each event: make it again with `pmuscope calibrate shares`"
        );
        assert_eq!(
            told(&|it| it.traffics[0].patterns[0].counts[0] = f64::NAN),
            "pattern read-stream on 1 of cmem_read_bandwidth has not one count of 0 or more for \
             each event: make it again with `pmuscope calibrate shares`"
        );
        assert_eq!(
            told(&|it| it.traffics[0].spreads[0] = -1.0),
            "cmem_read_bandwidth has not one spread of 0 or more for each event: make it again \
             with `pmuscope calibrate shares`"
        );
        assert_eq!(
            told(&|it| it.traffics[0].patterns.clear()),
            "cmem_read_bandwidth has 0 patterns, of 1 to 24: make it again with `pmuscope \
             calibrate shares`"
        );
    }

    #[test]
    fn it_is_for_machines_of_its_type() {
        let dir = tempfile::tempdir().unwrap();
        let file = dir.path().join("calibration.toml");
        fs::write(&file, calibration().text()).unwrap();
        let refused = Calibration::read(&file, &Machine::this()).unwrap_err();
        let refused = refused.to_string();
        assert!(
            refused
                .contains("it is of another machine, MIDR 0x410fd4f0 x 1 with 1 NUMA nodes each"),
            "{refused}"
        );
        let mut own = calibration();
        own.machine = CalibratedMachine::of(&Machine::this());
        fs::write(&file, own.text()).unwrap();
        assert_eq!(Calibration::read(&file, &Machine::this()).unwrap(), own);
        let none = Calibration::read(&dir.path().join("none"), &Machine::this()).unwrap_err();
        assert!(none.to_string().contains("give the file that"), "{none}");
    }
}
