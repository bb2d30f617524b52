//! Memory use of cgroups and processes: the files of the memory controller (of cgroup2,
//! Documentation/admin-guide/cgroup-v2.rst, or of v1,
//! Documentation/admin-guide/cgroup-v1/memory.rst) and `/proc/PID/status`.

use std::{
    collections::HashSet,
    fs,
    path::{Path, PathBuf},
    time::Duration,
};

use probe_common::CgroupId;
use serde::{Deserialize, Serialize};

use super::{
    Machine,
    cgroup::{CgroupError, Hierarchy, is_at},
    process::start_time,
};
use crate::sys::clock::now;

/// Limits of v1 from this value on mean no limit: the kernel writes the largest number of pages
/// that fits.
const NO_LIMIT: u64 = 1 << 62;

/// Memory use of an owner, in bytes. Parts that the kernel does not report are None.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct MemoryUse {
    /// Total: `memory.current`, descendants included; for a process its resident set.
    pub used: u64,
    /// Anonymous memory: heaps and stacks, without shared memory.
    pub anon: Option<u64>,
    /// Pages of files, shared memory included.
    pub file: Option<u64>,
    /// Part of the memory that is in transparent huge pages.
    pub huge: Option<u64>,
    /// Maximum use since the cgroup or process began.
    pub peak: Option<u64>,
    /// The lowest limit of the cgroup and its ancestors.
    pub limit: Option<u64>,
    /// Age of a process, in steps of 10 ms.
    #[serde(default)]
    pub age: Option<Duration>,
}

/// An owner of memory.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
pub enum MemoryHolder {
    /// A cgroup with its descendants.
    Cgroup(CgroupId),
    /// A process, by its id in the initial pid namespace.
    Process(u32),
    /// The processes of the command that pmuscope started.
    Command,
}

/// The processes of the command that pmuscope started.
#[derive(Clone, Debug, Default)]
pub(crate) struct CommandProcesses {
    /// Running processes, by ids in the initial pid namespace.
    pub(crate) running: HashSet<u32>,
    /// Largest resident set among the ended processes in bytes, if known.
    pub(crate) largest_ended: Option<u64>,
}

/// Memory use of all owners at one moment.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct MemoryReading {
    /// The owners that could be read, sorted.
    pub held: Vec<(MemoryHolder, MemoryUse)>,
    /// The machine: `used` is total less available memory, `limit` the total, other parts None.
    /// None if procfs has no meminfo.
    pub machine: Option<MemoryUse>,
    /// The page sizes; None in recordings without them.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub pages: Option<PageSizes>,
}

/// The page sizes that processes can have.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct PageSizes {
    /// Bytes of a base page.
    pub small: u64,
    /// Bytes of a transparent huge page; None if the kernel has none.
    pub huge: Option<u64>,
}

/// Version of the controller's files.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum ControllerVersion {
    V1,
    V2,
}

/// Why memory use cannot be read.
#[derive(Clone, Debug, thiserror::Error)]
pub enum MemoryError {
    /// The kernel has no memory controller, or it is mounted nowhere.
    #[error(
        "no cgroup has a memory controller: boot with cgroup_enable=memory, or mount it (`mount -t \
         cgroup -o memory none /sys/fs/cgroup/memory` where cgroup2 does not have it)"
    )]
    NoController,
    /// Process ids in /proc differ from the ids that are counted.
    #[error(
        "processes here have other ids than those that are counted: run in the host's pid \
         namespace (hostPID: true, --pid=host)"
    )]
    PidNamespace,
    /// The mounts cannot be read.
    #[error(transparent)]
    Cgroups(#[from] CgroupError),
}

/// Reads the memory use of cgroups or of processes.
#[derive(Debug)]
pub(crate) struct MemoryReader {
    proc: PathBuf,
    subjects: Subjects,
    pages: PageSizes,
}

#[derive(Debug)]
enum Subjects {
    Cgroups {
        /// Maps paths to ids.
        cgroup2: Hierarchy,
        /// The hierarchy with the memory controller.
        memory: Hierarchy,
        version: ControllerVersion,
    },
    Processes,
}

/// Whether memory use can be read here: of processes, or of cgroups.
#[must_use]
pub fn is_readable(machine: &Machine, by_process: bool) -> bool {
    match by_process {
        true => MemoryReader::for_processes(machine).is_ok(),
        false => MemoryReader::for_cgroups(machine).is_ok(),
    }
}

impl MemoryReader {
    /// A reader of cgroups.
    ///
    /// # Errors
    ///
    /// There is no memory controller.
    pub(crate) fn for_cgroups(machine: &Machine) -> Result<Self, MemoryError> {
        let proc = machine.procfs().to_owned();
        let hierarchy = machine.hierarchy()?;
        let root = hierarchy.mount.join("cgroup.controllers");
        let controllers = fs::read_to_string(root).unwrap_or_default();
        let has_memory = |list: &str| list.split_whitespace().any(|name| name == "memory");
        let (memory, version) = if has_memory(&controllers) {
            (hierarchy.clone(), ControllerVersion::V2)
        } else {
            let v1 = Hierarchy::for_controller(&proc, "memory")?;
            (v1.ok_or(MemoryError::NoController)?, ControllerVersion::V1)
        };
        let cgroup2 = hierarchy.clone();
        let subjects = Subjects::Cgroups {
            cgroup2,
            memory,
            version,
        };
        let pages = page_sizes(machine);
        Ok(Self {
            proc,
            subjects,
            pages,
        })
    }

    /// A reader of processes.
    ///
    /// # Errors
    ///
    /// This process is not in the initial pid namespace.
    pub(crate) fn for_processes(machine: &Machine) -> Result<Self, MemoryError> {
        if machine.is_in_initial_pid_namespace() {
            Ok(Self {
                proc: machine.procfs().to_owned(),
                subjects: Subjects::Processes,
                pages: page_sizes(machine),
            })
        } else {
            Err(MemoryError::PidNamespace)
        }
    }

    /// Memory use of these owners, without those that are gone or have no memory of their own. The
    /// command's processes are one holder. Paths of cgroups are as in /proc/PID/cgroup. In v1 a
    /// cgroup is looked up by the same path, which systemd and the runtimes create in every
    /// hierarchy. A new cgroup at the path of a removed one is not mistaken for the removed one.
    pub(crate) fn read<'a>(
        &self,
        cgroups: impl Iterator<Item = (CgroupId, &'a str)>,
        processes: impl Iterator<Item = u32>,
        command: Option<&CommandProcesses>,
    ) -> MemoryReading {
        let is_of_command = |id: &u32| command.is_some_and(|command| command.running.contains(id));
        let mut held: Vec<(MemoryHolder, MemoryUse)> = match &self.subjects {
            Subjects::Cgroups {
                cgroup2,
                memory,
                version,
            } => cgroups
                .filter(|(id, _)| id.is_cgroup() && *id != CgroupId::ROOT)
                .filter(|(id, path)| is_at(cgroup2, path, *id))
                .filter_map(|(id, path)| {
                    Some((
                        MemoryHolder::Cgroup(id),
                        cgroup_memory(memory, *version, path)?,
                    ))
                })
                .collect(),
            Subjects::Processes => processes
                .filter(|id| !is_of_command(id))
                .filter_map(|id| {
                    let held = self.process_memory(id)?;
                    let age = start_time(&self.proc, id)
                        .map(|start| now().saturating_sub(Duration::from_nanos(start)));
                    Some((MemoryHolder::Process(id), MemoryUse { age, ..held }))
                })
                .collect(),
        };
        let of_command = command.and_then(|command| self.command_memory(command));
        held.extend(of_command.map(|of_command| (MemoryHolder::Command, of_command)));
        held.sort_unstable_by_key(|(holder, _)| *holder);
        held.dedup_by_key(|(holder, _)| *holder);
        let meminfo = fs::read_to_string(self.proc.join("meminfo")).unwrap_or_default();
        MemoryReading {
            held,
            machine: parse_meminfo(&meminfo),
            pages: Some(self.pages),
        }
    }
}

impl MemoryReader {
    fn process_memory(&self, id: u32) -> Option<MemoryUse> {
        let status = self.proc.join(id.to_string()).join("status");
        parse_status(&fs::read_to_string(status).ok()?)
    }

    /// Total memory use of a command's processes. The peak of their sum is unknown, so `peak` is
    /// the largest peak of a process. None if no process is known.
    fn command_memory(&self, command: &CommandProcesses) -> Option<MemoryUse> {
        let largest = |a: Option<u64>, b: Option<u64>| a.into_iter().chain(b).max();
        let uses = command
            .running
            .iter()
            .filter_map(|id| self.process_memory(*id));
        let running = uses.reduce(|sum, other| MemoryUse {
            peak: largest(sum.peak, other.peak),
            ..sum.with(&other)
        });
        let ended = command.largest_ended.map(|_| MemoryUse {
            anon: Some(0),
            file: Some(0),
            ..MemoryUse::default()
        });
        let held = running.or(ended)?;
        Some(MemoryUse {
            peak: largest(held.peak, command.largest_ended),
            ..held
        })
    }
}

impl MemoryUse {
    /// Sum of two owners. Their peaks may be at different times, so the sum has none.
    pub(crate) fn with(&self, other: &Self) -> Self {
        let both = |a: Option<u64>, b: Option<u64>| Some(a?.saturating_add(b?));
        Self {
            used: self.used.saturating_add(other.used),
            anon: both(self.anon, other.anon),
            file: both(self.file, other.file),
            huge: both(self.huge, other.huge),
            peak: None,
            limit: both(self.limit, other.limit),
            age: None,
        }
    }
}

/// Reads the page sizes. `hpage_pmd_size`: Documentation/admin-guide/mm/transhuge.rst.
fn page_sizes(machine: &Machine) -> PageSizes {
    let huge = machine.sys("kernel/mm/transparent_hugepage/hpage_pmd_size");
    PageSizes {
        small: rustix::param::page_size() as u64,
        huge: huge.and_then(|size| size.parse().ok()),
    }
}

fn cgroup_memory(
    hierarchy: &Hierarchy,
    version: ControllerVersion,
    path: &str,
) -> Option<MemoryUse> {
    let directory = hierarchy.directory(path)?;
    let number = |file: &str| -> Option<u64> {
        let text = fs::read_to_string(directory.join(file)).ok()?;
        text.trim().parse().ok()
    };
    let stat = || fs::read_to_string(directory.join("memory.stat")).unwrap_or_default();
    Some(match version {
        ControllerVersion::V2 => {
            let used = number("memory.current")?;
            let stat = stat();
            let part = |name| field(&stat, name);
            let huge = ["anon_thp", "file_thp", "shmem_thp"].map(part);
            MemoryUse {
                used,
                anon: part("anon"),
                file: part("file"),
                // Kernels before 5.11 report only `anon_thp`, so huge pages of files and shared
                // memory are missing there.
                huge: huge[0].map(|anon| huge[1..].iter().flatten().sum::<u64>() + anon),
                peak: number("memory.peak"),
                limit: lowest_limit(hierarchy, &directory),
                age: None,
            }
        }
        ControllerVersion::V1 => {
            let used = number("memory.usage_in_bytes")?;
            let stat = stat();
            let part = |name| field(&stat, name);
            MemoryUse {
                used,
                anon: part("total_rss"),
                file: part("total_cache"),
                huge: part("total_rss_huge"),
                peak: number("memory.max_usage_in_bytes"),
                limit: part("hierarchical_memory_limit").filter(|limit| *limit < NO_LIMIT),
                age: None,
            }
        }
    })
}

/// The lowest `memory.max` of a cgroup and its ancestors.
fn lowest_limit(hierarchy: &Hierarchy, directory: &Path) -> Option<u64> {
    directory
        .ancestors()
        .take_while(|above| above.starts_with(&hierarchy.mount))
        .filter_map(|above| fs::read_to_string(above.join("memory.max")).ok())
        .filter_map(|text| text.trim().parse().ok())
        .min()
}

/// The number in the line `name number` of memory.stat.
pub(super) fn field(stat: &str, name: &str) -> Option<u64> {
    let mut lines = stat.lines().filter_map(|line| line.split_once(' '));
    let (_, value) = lines.find(|(known, _)| *known == name)?;
    value.trim().parse().ok()
}

/// The number in a line `Name:   number kB` of a procfs file, in bytes.
pub(super) fn kilobytes(text: &str, name: &str) -> Option<u64> {
    let mut lines = text.lines().filter_map(|line| line.split_once(':'));
    let (_, value) = lines.find(|(known, _)| *known == name)?;
    let number: u64 = value.trim().strip_suffix(" kB")?.trim().parse().ok()?;
    number.checked_mul(1024)
}

/// Parses `/proc/PID/status`. None for kernel threads, which have no memory of their own, and for
/// zombies.
fn parse_status(status: &str) -> Option<MemoryUse> {
    let part = |name| kilobytes(status, name);
    let file = part("RssFile").map(|file| file + part("RssShmem").unwrap_or(0));
    Some(MemoryUse {
        used: part("VmRSS")?,
        anon: part("RssAnon"),
        file,
        huge: None,
        peak: part("VmHWM"),
        limit: None,
        age: None,
    })
}

fn parse_meminfo(meminfo: &str) -> Option<MemoryUse> {
    let total = kilobytes(meminfo, "MemTotal")?;
    let available = kilobytes(meminfo, "MemAvailable")?;
    Some(MemoryUse {
        used: total.checked_sub(available)?,
        limit: Some(total),
        ..MemoryUse::default()
    })
}

#[cfg(test)]
mod tests;
