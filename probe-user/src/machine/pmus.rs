//! The PMUs of a machine, as `<sysfs>/bus/event_source/devices` describes them.
//!
//! Files: Documentation/ABI/testing/sysfs-bus-event_source-devices*. A PMU with a malformed file
//! does not hide the others: its error is stored and reported when that PMU is used.

use std::{
    collections::{BTreeMap, BTreeSet},
    io,
    path::{Path, PathBuf},
    sync::Arc,
};

use super::{
    Bdf, SysfsError, SysfsProblem,
    config_space::{ConfigSpaceError, RootPort, root_port_of},
    format::FieldFormat,
    terms,
    uncore_names::matches_pmu_name,
};
use crate::{
    machine::{cpus::CpuList, topology::Topology},
    sys::perf::TYPE_RAW,
};

/// All PMUs of a machine.
#[derive(Debug, Default)]
pub struct Pmus {
    by_name: BTreeMap<String, Result<Pmu, Arc<SysfsError>>>,
    topology: Topology,
    sysfs: PathBuf,
}

/// One PMU.
#[derive(Clone, Debug, PartialEq)]
pub struct Pmu {
    /// The name of its directory.
    pub name: String,
    /// `perf_event_attr.type` of its events.
    pub type_: u32,
    /// The scope of its counts.
    pub kind: PmuKind,
    /// `format/`: the terms of its events.
    pub formats: BTreeMap<String, FieldFormat>,
    /// `events/`: its named events.
    pub events: BTreeMap<String, PmuEvent>,
    /// `cpus`: the CPUs of a core PMU on a machine with several kinds of core.
    pub cpus: Option<CpuList>,
    /// `associated_cpus`: the CPUs of the part of the machine that an Arm uncore PMU counts for;
    /// its cpumask is one of them.
    pub associated: Option<CpuList>,
    /// `alias`: another name, for an Intel uncore PMU named by its type number.
    pub alias: Option<String>,
    /// `identifier`: the hardware revision, in a driver-specific form.
    pub identifier: Option<String>,
    /// `peer`: the other end of an NVIDIA link, such as `nr_gpu=2`.
    pub peer: Option<String>,
    /// `caps/`: abilities of the hardware, such as Arm's `slots`.
    pub caps: BTreeMap<String, String>,
}

/// The scope of a PMU's counts.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum PmuKind {
    /// The counters of the CPUs themselves, which count generic hardware events.
    Core,
    /// Counters shared by a socket or another part of the machine.
    Uncore {
        /// `cpumask`: the CPUs to open its events on, one for each instance of the hardware.
        cpus: CpuList,
    },
    /// A PMU that counts per CPU but is not the CPU's own: `software`, `msr` and the like.
    Other,
}

/// A named event of a PMU.
#[derive(Clone, Debug, PartialEq)]
pub struct PmuEvent {
    /// Its terms; a bare flag is 1.
    pub terms: Vec<(String, u64)>,
    /// `events/<name>.unit`: the unit of the scaled count.
    pub unit: Option<String>,
    /// `events/<name>.scale`: the factor from counts to that unit.
    pub scale: Option<f64>,
}

impl Pmus {
    /// The names of the PMUs under `sysfs`; empty if they cannot be listed.
    #[must_use]
    pub fn names_below(sysfs: &Path) -> BTreeSet<String> {
        let names = directory_names(&sysfs.join("bus/event_source/devices"));
        names.ok().flatten().into_iter().flatten().collect()
    }

    /// Reads the PMUs under `sysfs`, which is `/sys` on a live machine.
    ///
    /// # Errors
    /// The directory of the PMUs cannot be listed. A problem with a single PMU is no error here.
    pub fn read(sysfs: &Path) -> Result<Self, SysfsError> {
        let devices = sysfs.join("bus/event_source/devices");
        let names = directory_names(&devices)?.ok_or_else(|| SysfsError {
            path: devices.clone(),
            problem: SysfsProblem::NotMounted,
        })?;
        let pmus = names.into_iter().map(|name| {
            let pmu = Pmu::read(&devices.join(&name), &name).map_err(Arc::new);
            (name, pmu)
        });
        Ok(Self {
            by_name: pmus.collect(),
            topology: Topology::read(sysfs),
            sysfs: sysfs.to_owned(),
        })
    }

    /// The socket of a PMU with this number in its name. NVIDIA's drivers write the NUMA node of
    /// the PMU's first CPU (`cpu_to_node` in `nvidia_cspmu.c`), which equals the socket only if
    /// each socket is one node. Returns `node` itself if the machine does not describe its nodes.
    #[must_use]
    pub fn socket_named(&self, node: u32) -> u32 {
        self.topology.socket_of_node(node).unwrap_or(node)
    }

    /// The PMU of that name or alias, or its error; `None` if there is none.
    #[must_use]
    pub fn get(&self, name: &str) -> Option<Result<&Pmu, &Arc<SysfsError>>> {
        let by_alias = || self.iter().find(|pmu| pmu.alias.as_deref() == Some(name));
        match self.by_name.get(name) {
            Some(pmu) => Some(pmu.as_ref()),
            None => by_alias().map(Ok),
        }
    }

    /// The PMUs that match a name without its number, or a pattern with `*` and `?`, as in perf:
    /// `uncore_imc`, `imc` and `uncore_imc_*` are all memory controllers. Sorted by number.
    #[must_use]
    pub fn instances(&self, pattern: &str) -> Vec<&str> {
        let named = |(name, pmu): &(&String, &Result<Pmu, _>)| {
            let alias = pmu.as_ref().ok().and_then(|pmu| pmu.alias.as_deref());
            let mut names = [Some(name.as_str()), alias].into_iter().flatten();
            names.any(|name| matches_pmu_name(pattern, name))
        };
        let matching = self.by_name.iter().filter(named);
        let mut instances: Vec<&str> = matching.map(|(name, _)| name.as_str()).collect();
        instances.sort_by_key(|name| {
            let stem = name.trim_end_matches(|c: char| c.is_ascii_digit());
            (stem, name[stem.len()..].parse::<u64>().ok())
        });
        instances
    }

    /// The mapping register of the root port above a PCI function; `None` if the machine shows no
    /// PCI devices or the port has no such register.
    ///
    /// # Errors
    /// The function does not exist, or its root port's register cannot be used.
    pub(crate) fn root_port_of(&self, address: Bdf) -> Result<Option<RootPort>, ConfigSpaceError> {
        if !self.sysfs.join("bus/pci/devices").exists() {
            return Ok(None);
        }
        root_port_of(&self.sysfs, address)
    }

    /// The PMUs that could be read, ordered by name.
    pub fn iter(&self) -> impl Iterator<Item = &Pmu> {
        self.by_name.values().filter_map(|pmu| pmu.as_ref().ok())
    }

    /// The errors of PMUs that could not be read.
    pub fn unreadable(&self) -> impl Iterator<Item = &Arc<SysfsError>> {
        self.by_name.values().filter_map(|pmu| pmu.as_ref().err())
    }

    /// The names of all PMUs, readable or not.
    pub fn names(&self) -> impl Iterator<Item = &str> {
        self.by_name.keys().map(String::as_str)
    }

    /// The core PMUs: none in most virtual machines, several where cores differ in kind.
    pub fn cores(&self) -> impl Iterator<Item = &Pmu> {
        self.iter().filter(|pmu| pmu.kind == PmuKind::Core)
    }
}

impl Pmu {
    fn read(dir: &Path, name: &str) -> Result<Self, SysfsError> {
        let type_file = dir.join("type");
        let type_ = require(&type_file)?
            .parse()
            .map_err(|_| SysfsError::content(&type_file, "a number"))?;
        let cpumask = cpu_list(&dir.join("cpumask"))?;
        let cpus = cpu_list(&dir.join("cpus"))?;
        let kind = match cpumask {
            Some(cpus) => PmuKind::Uncore { cpus },
            None if cpus.is_some() || name == "cpu" || type_ == TYPE_RAW => PmuKind::Core,
            None => PmuKind::Other,
        };
        Ok(Self {
            name: name.to_owned(),
            type_,
            kind,
            formats: formats(&dir.join("format"))?,
            events: events(&dir.join("events"))?,
            cpus,
            associated: cpu_list(&dir.join("associated_cpus"))?,
            alias: optional(&dir.join("alias"))?,
            identifier: optional(&dir.join("identifier"))?,
            peer: optional(&dir.join("peer"))?,
            caps: files(&dir.join("caps"))?.into_iter().collect(),
        })
    }

    /// The event of that name, ignoring case: documents write Arm's names in capitals.
    #[must_use]
    pub fn event(&self, name: &str) -> Option<&PmuEvent> {
        self.events.get(name).or_else(|| {
            let mut events = self.events.iter();
            let same = events.find(|(known, _)| known.eq_ignore_ascii_case(name));
            same.map(|(_, event)| event)
        })
    }
}

fn formats(dir: &Path) -> Result<BTreeMap<String, FieldFormat>, SysfsError> {
    let parse = |(name, text): (String, String)| match text.parse() {
        Ok(format) => Ok((name, format)),
        Err(reason) => Err(SysfsError {
            path: dir.join(name),
            problem: SysfsProblem::Format { text, reason },
        }),
    };
    files(dir)?.into_iter().map(parse).collect()
}

/// Reads `events/`: one file for each event, and up to four more with its attributes.
fn events(dir: &Path) -> Result<BTreeMap<String, PmuEvent>, SysfsError> {
    let files: BTreeMap<String, String> = files(dir)?.into_iter().collect();
    let attributes = [".scale", ".unit", ".per-pkg", ".snapshot"];
    let mut events = BTreeMap::new();
    for (name, text) in &files {
        if attributes.iter().any(|suffix| name.ends_with(suffix)) {
            continue;
        }
        let terms = event_terms(text)
            .ok_or_else(|| SysfsError::content(&dir.join(name), "terms with numbers"))?;
        let scale_file = format!("{name}.scale");
        let scale = match files.get(&scale_file) {
            None => None,
            Some(text) => Some(factor(text).ok_or_else(|| {
                SysfsError::content(&dir.join(&scale_file), "a factor above zero")
            })?),
        };
        let event = PmuEvent {
            terms,
            unit: files.get(&format!("{name}.unit")).cloned(),
            scale,
        };
        events.insert(name.clone(), event);
    }
    Ok(events)
}

fn event_terms(text: &str) -> Option<Vec<(String, u64)>> {
    let terms = terms::parse_terms(text)?;
    let number = |term: terms::Term| match term.value {
        None => Some((term.name, 1)),
        Some(value) => Some((term.name, terms::number(&value)?)),
    };
    terms.into_iter().map(number).collect()
}

fn factor(text: &str) -> Option<f64> {
    let factor: f64 = text.parse().ok()?;
    (factor.is_finite() && factor > 0.0).then_some(factor)
}

fn cpu_list(path: &Path) -> Result<Option<CpuList>, SysfsError> {
    let Some(text) = optional(path)? else {
        return Ok(None);
    };
    match text.parse() {
        Ok(cpus) => Ok(Some(cpus)),
        Err(reason) => Err(SysfsError {
            path: path.to_owned(),
            problem: SysfsProblem::Cpus { text, reason },
        }),
    }
}

/// Names and contents of the regular files of a directory, which may be missing.
fn files(dir: &Path) -> Result<Vec<(String, String)>, SysfsError> {
    let mut files = Vec::new();
    for name in directory_names(dir)?.unwrap_or_default() {
        let path = dir.join(&name);
        if path.is_file() {
            let text = require(&path)?;
            files.push((name, text));
        }
    }
    Ok(files)
}

/// The names in a directory; `None` if there is no such directory.
fn directory_names(dir: &Path) -> Result<Option<Vec<String>>, SysfsError> {
    let entries = match std::fs::read_dir(dir) {
        Ok(entries) => entries,
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(None),
        Err(error) => return Err(SysfsError::read(dir, error)),
    };
    let mut names = Vec::new();
    for entry in entries {
        let entry = entry.map_err(|error| SysfsError::read(dir, error))?;
        let name = entry.file_name().into_string();
        names.push(name.map_err(|name| SysfsError {
            path: PathBuf::from(dir).join(name),
            problem: SysfsProblem::Name,
        })?);
    }
    Ok(Some(names))
}

/// The trimmed content of a file; `None` if there is no such file.
fn optional(path: &Path) -> Result<Option<String>, SysfsError> {
    match std::fs::read_to_string(path) {
        Ok(text) => Ok(Some(text.trim().to_owned())),
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(None),
        Err(error) => Err(SysfsError::read(path, error)),
    }
}

fn require(path: &Path) -> Result<String, SysfsError> {
    optional(path)?.ok_or_else(|| SysfsError {
        path: path.to_owned(),
        problem: SysfsProblem::Missing,
    })
}
