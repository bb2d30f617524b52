//! The file of a calibration, in TOML.

use std::{
    fmt, fs, io,
    path::{Path, PathBuf},
};

use serde::{Deserialize, Serialize};
use sha2::{Digest, Sha256};

use super::{CalibratedTraffic, MadeOn, UsedCalibration};
use crate::machine::Machine;

/// The version of the format that this program reads and writes.
const FORMAT: u32 = 1;

/// The conventional directory for the calibrations of a fleet, also in the pods of the Helm chart.
pub const DIRECTORY: &str = "/etc/pmuscope-calibration";

/// A calibration of a machine.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Calibration {
    format: u32,
    /// The machine on which it was made.
    pub machine: CalibratedMachine,
    /// What events count, by metric.
    #[serde(rename = "traffic")]
    pub traffics: Vec<CalibratedTraffic>,
}

/// The facts of a machine on which the counts of its events depend, and the machine's identity. A
/// calibration holds for all machines with the same CPU, sockets and NUMA nodes per socket.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct CalibratedMachine {
    /// The CPU: vendor, family and model on x86, `MIDR_EL1` on Arm.
    pub cpu: String,
    /// Number of sockets.
    pub sockets: u32,
    /// Number of NUMA nodes of a socket: more than one with sub-NUMA clustering.
    pub nodes_per_socket: usize,
    /// The version of the microcode, if the CPU has one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub microcode: Option<String>,
    /// The identity of the machine: a hash of its firmware's UUID. None if there is none, or if
    /// this process may not read it (only root may).
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub id: Option<String>,
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
        "none of its {count} calibrations is of this machine, {this}: make one here with `pmuscope \
         calibrate shares`"
    )]
    NoneFits { count: usize, this: String },
    #[error(
        "it is of another machine, {of}, and this is {this}: make one here with `pmuscope \
         calibrate shares`"
    )]
    Elsewhere { of: String, this: String },
}

impl Problem {
    fn in_file(self, path: &Path) -> CalibrationError {
        CalibrationError {
            file: path.display().to_string(),
            problem: Box::new(self),
        }
    }
}

impl CalibrationError {
    /// Whether the calibrations are valid, but all of machines of other types.
    #[must_use]
    pub fn is_of_another_machine(&self) -> bool {
        matches!(
            *self.problem,
            Problem::Elsewhere { .. } | Problem::NoneFits { .. }
        )
    }
}

/// The `*.toml` files in a directory, sorted by name.
fn files_in(directory: &Path) -> Result<Vec<PathBuf>, CalibrationError> {
    let entries = fs::read_dir(directory).and_then(|entries| {
        entries
            .map(|entry| entry.map(|entry| entry.path()))
            .collect::<io::Result<Vec<_>>>()
    });
    let mut files = entries.map_err(|error| Problem::Unreadable(error).in_file(directory))?;
    files.retain(|file| file.extension().is_some_and(|it| it == "toml"));
    files.sort();
    Ok(files)
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

    /// Reads a calibration for this machine: a file, or the file of a directory that fits. The
    /// directory may have `*.toml` files of several types of machines. If several files fit, it
    /// takes one with this machine's microcode, else the last by name.
    ///
    /// # Errors
    ///
    /// A file cannot be read or is no calibration, or none was made on this type of machine
    /// ([`CalibrationError::is_of_another_machine`]).
    pub fn read(path: &Path, machine: &Machine) -> Result<Self, CalibrationError> {
        let this = CalibratedMachine::of(machine);
        let is_directory = path.is_dir();
        let files = match is_directory {
            true => files_in(path)?,
            false => vec![path.to_owned()],
        };
        let mut all = Vec::new();
        for file in files {
            let text = fs::read_to_string(&file).map_err(Problem::Unreadable);
            let read = text.and_then(|text| Self::parse(&text));
            all.push((read.map_err(|problem| problem.in_file(&file))?, file));
        }
        let count = all.len();
        let other = all.first().map(|(read, _)| read.machine.to_string());
        let fitting = all
            .into_iter()
            .filter(|(it, _)| it.machine.is_type_of(&this));
        let best = fitting.max_by_key(|(read, _)| read.machine.microcode == this.microcode);
        let Some((read, file)) = best else {
            let this = this.to_string();
            let problem = match other {
                Some(of) if !is_directory => Problem::Elsewhere { of, this },
                _ => Problem::NoneFits { count, this },
            };
            return Err(problem.in_file(path));
        };
        if read.machine.microcode != this.microcode {
            tracing::warn!(
                "{}: made with microcode {}, and this machine has {}: make it again if a share \
                 has no mixture",
                file.display(),
                read.machine.microcode.as_deref().unwrap_or("of no number"),
                this.microcode.as_deref().unwrap_or("of no number"),
            );
        }
        Ok(read)
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

    /// The part of the calibration that plans on this machine use.
    #[must_use]
    pub fn used_on(self, machine: &Machine) -> UsedCalibration {
        let this = CalibratedMachine::of(machine).id;
        let is_made_here = this.is_some() && this == self.machine.id;
        UsedCalibration {
            made_on: match is_made_here {
                true => MadeOn::ThisMachine,
                false => MadeOn::SameType,
            },
            traffics: self.traffics,
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
    /// Whether the machines are of one type: a calibration of one holds for the other.
    fn is_type_of(&self, other: &Self) -> bool {
        let of_type = |it: &Self| Self {
            microcode: None,
            id: None,
            ..it.clone()
        };
        of_type(self) == of_type(other)
    }

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
            id: machine.sys("class/dmi/id/product_uuid").map(|it| hash(&it)),
        }
    }
}

/// A hash of an identifier, since readers of a calibration must not learn the identifier.
fn hash(id: &str) -> String {
    let mut hash = Sha256::new_with_prefix("pmuscope calibration ");
    hash.update(id);
    (hash.finalize().iter().take(8))
        .map(|byte| format!("{byte:02x}"))
        .collect()
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
        /// With more, estimates would take too long: they try all combinations.
        const MAX_EVENTS: usize = 4;
        /// As for `MAX_EVENTS`.
        const MAX_PATTERNS: usize = 24;
        let Self {
            metric,
            events,
            spreads,
            patterns,
            remote,
        } = self;
        let is_valid = |value: &f64| value.is_finite() && *value >= 0.0;
        if events.is_empty() || events.len() > MAX_EVENTS {
            return Some(format!(
                "{metric} has {} events, of 1 to {MAX_EVENTS}",
                events.len()
            ));
        }
        if patterns.is_empty() || patterns.len() > MAX_PATTERNS {
            return Some(format!(
                "{metric} has {} patterns, of 1 to {MAX_PATTERNS}",
                patterns.len()
            ));
        }
        if remote.len() > MAX_PATTERNS {
            return Some(format!(
                "{metric} has {} remote patterns, of at most {MAX_PATTERNS}",
                remote.len()
            ));
        }
        if spreads.len() != events.len() || !spreads.iter().all(is_valid) {
            return Some(format!(
                "{metric} has not one spread of 0 or more for each event"
            ));
        }
        let is_wrong =
            |counts: &[f64]| counts.len() != events.len() || !counts.iter().all(is_valid);
        let mut all = patterns.iter().chain(remote);
        let wrong = all.find(|pattern| is_wrong(&pattern.counts))?;
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
            id: None,
        };
        let traffic = CalibratedTraffic {
            metric: "cmem_read_bandwidth".into(),
            events: vec!["llc_read_misses".into()],
            spreads: vec![0.004],
            patterns: vec![Pattern {
                name: "read-stream on 1".into(),
                counts: vec![0.25],
            }],
            remote: Vec::new(),
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
    fn mistakes_are_reported() {
        let message = |change: &dyn Fn(&mut Calibration)| {
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
            message(&|it| it.format = 2),
            "format 2, and this pmuscope reads 1: make it again"
        );
        assert_eq!(
            message(&|it| it.traffics[0].patterns[0].counts.push(1.0)),
            "pattern read-stream on 1 of cmem_read_bandwidth has not one count of 0 or more for \
             each event: make it again with `pmuscope calibrate shares`"
        );
        assert_eq!(
            message(&|it| it.traffics[0].patterns[0].counts[0] = f64::NAN),
            "pattern read-stream on 1 of cmem_read_bandwidth has not one count of 0 or more for \
             each event: make it again with `pmuscope calibrate shares`"
        );
        let remote = |name: &str, counts: &[f64]| Pattern {
            name: name.to_owned(),
            counts: counts.to_vec(),
        };
        assert_eq!(
            message(&|it| it.traffics[0].remote = vec![remote("chase on 1", &[-1.0])]),
            "pattern chase on 1 of cmem_read_bandwidth has not one count of 0 or more for each \
             event: make it again with `pmuscope calibrate shares`"
        );
        assert_eq!(
            message(&|it| it.traffics[0].remote = vec![remote("copy on 1", &[1.0]); 25]),
            "cmem_read_bandwidth has 25 remote patterns, of at most 24: make it again with \
             `pmuscope calibrate shares`"
        );
        assert_eq!(
            message(&|it| it.traffics[0].spreads[0] = -1.0),
            "cmem_read_bandwidth has not one spread of 0 or more for each event: make it again \
             with `pmuscope calibrate shares`"
        );
        assert_eq!(
            message(&|it| it.traffics[0].patterns.clear()),
            "cmem_read_bandwidth has 0 patterns, of 1 to 24: make it again with `pmuscope \
             calibrate shares`"
        );
    }

    #[test]
    fn a_calibration_is_for_machines_of_its_type() {
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
        // From a directory, the `*.toml` that fits is read; other files are ignored.
        let directory = Calibration::read(dir.path(), &Machine::this()).unwrap_err();
        assert!(directory.is_of_another_machine());
        let directory = directory.to_string();
        assert!(
            directory.contains("none of its 1 calibrations is of"),
            "{directory}"
        );
        let mut own = calibration();
        own.machine = CalibratedMachine::of(&Machine::this());
        let own_file = dir.path().join("own.toml");
        fs::write(&own_file, own.text()).unwrap();
        fs::write(dir.path().join("README"), "none").unwrap();
        for path in [&own_file, dir.path()] {
            assert_eq!(Calibration::read(path, &Machine::this()).unwrap(), own);
        }
        let used = own.clone().used_on(&Machine::this());
        assert_eq!(used.traffics, own.traffics);
        assert_eq!(
            used.made_on == MadeOn::ThisMachine,
            own.machine.id.is_some()
        );
        let mut older = own.clone();
        older.machine.id = Some("another".to_owned());
        let used = older.clone().used_on(&Machine::this());
        assert_eq!(used.made_on, MadeOn::SameType);
        older.machine.microcode = Some("older".to_owned());
        fs::write(dir.path().join("z.toml"), older.text()).unwrap();
        assert_eq!(
            Calibration::read(dir.path(), &Machine::this()).unwrap(),
            own
        );
        fs::write(&file, "format = 2").unwrap();
        let wrong = Calibration::read(dir.path(), &Machine::this()).unwrap_err();
        assert!(!wrong.is_of_another_machine());
        assert!(wrong.to_string().contains("calibration.toml: "), "{wrong}");
        let none = Calibration::read(&dir.path().join("none"), &Machine::this()).unwrap_err();
        assert!(none.to_string().contains("give the file that"), "{none}");
    }
}
