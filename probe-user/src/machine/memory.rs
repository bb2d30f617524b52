//! How much memory cgroups and processes hold: the files of the memory controller (of cgroup2,
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
    process::born,
};
use crate::sys::clock::now;

/// A limit of v1 from here on is none: the kernel writes the largest number of pages that fits.
const NO_LIMIT: u64 = 1 << 62;

/// What an owner holds in memory, in bytes. A part that the kernel does not tell is None.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct MemoryUse {
    /// All of it: `memory.current`, with that of cgroups below; of a process its resident set.
    pub used: u64,
    /// Memory of no file: heaps and stacks. Shared memory is no part of it.
    pub anon: Option<u64>,
    /// Pages of files, shared memory included.
    pub file: Option<u64>,
    /// What of these is in huge pages, of the transparent kind.
    pub huge: Option<u64>,
    /// The most that was ever used, since the cgroup or the process began.
    pub peak: Option<u64>,
    /// The least limit of the cgroup and those above it.
    pub limit: Option<u64>,
    /// Of a process: how long ago it began, to the next 10 ms.
    #[serde(default)]
    pub age: Option<Duration>,
}

/// Who holds memory.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
pub enum Holder {
    /// A cgroup with those below it.
    Cgroup(CgroupId),
    /// A process, by its id in the initial pid namespace.
    Process(u32),
    /// The processes of the command that pmuscope started.
    Command,
}

/// The processes of the command that pmuscope started.
#[derive(Clone, Debug, Default)]
pub(crate) struct CommandProcesses {
    /// Those that live, by their ids in the initial pid namespace.
    pub(crate) live: HashSet<u32>,
    /// The resident set of the largest that has ended, in bytes, where it is known.
    pub(crate) largest_ended: Option<u64>,
}

/// What everybody held at one moment.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct MemoryReading {
    /// Those that could be read, in their order.
    pub held: Vec<(Holder, MemoryUse)>,
    /// The machine: what is not available, of all that there is. No part of it is told; nothing is
    /// where procfs has no meminfo.
    pub machine: Option<MemoryUse>,
    /// The sizes of pages; None in recordings that do not tell.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub pages: Option<PageSizes>,
}

/// The sizes of pages that the kernel gives to processes.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct PageSizes {
    /// Bytes of most pages.
    pub small: u64,
    /// Bytes of a transparent huge page; None where the kernel has none.
    pub huge: Option<u64>,
}

/// Which files there are.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Version {
    V1,
    V2,
}

/// Why nobody's memory can be read.
#[derive(Clone, Debug, thiserror::Error)]
pub enum MemoryError {
    /// The kernel has no memory controller, or it is mounted nowhere.
    #[error(
        "no cgroup has a memory controller: boot with cgroup_enable=memory, or mount it (`mount -t \
         cgroup -o memory none /sys/fs/cgroup/memory` where cgroup2 does not have it)"
    )]
    NoController,
    /// The ids of /proc are not those by which processes are counted.
    #[error(
        "processes here have other ids than those that are counted: run in the host's pid \
         namespace (hostPID: true, --pid=host)"
    )]
    PidNamespace,
    /// The mounts cannot be read.
    #[error(transparent)]
    Cgroups(#[from] CgroupError),
}

/// Reads what cgroups, or processes, hold.
#[derive(Debug)]
pub(crate) struct Reader {
    proc: PathBuf,
    of: Of,
    pages: PageSizes,
}

#[derive(Debug)]
enum Of {
    Cgroups {
        /// Where ids are told by.
        cgroup2: Hierarchy,
        /// Where the memory controller is.
        memory: Hierarchy,
        version: Version,
    },
    Processes,
}

impl Reader {
    /// What cgroups hold.
    ///
    /// # Errors
    ///
    /// Where there is no memory controller.
    pub(crate) fn of_cgroups(machine: &Machine) -> Result<Self, MemoryError> {
        let proc = machine.procfs().to_owned();
        let hierarchy = machine.hierarchy()?;
        let root = hierarchy.mount.join("cgroup.controllers");
        let controllers = fs::read_to_string(root).unwrap_or_default();
        let has = |list: &str| list.split_whitespace().any(|name| name == "memory");
        let (memory, version) = if has(&controllers) {
            (hierarchy.clone(), Version::V2)
        } else {
            let v1 = Hierarchy::of_controller(&proc, "memory")?;
            (v1.ok_or(MemoryError::NoController)?, Version::V1)
        };
        let cgroup2 = hierarchy.clone();
        let of = Of::Cgroups {
            cgroup2,
            memory,
            version,
        };
        let pages = page_sizes(machine);
        Ok(Self { proc, of, pages })
    }

    /// What processes hold.
    ///
    /// # Errors
    ///
    /// In another pid namespace than the initial one.
    pub(crate) fn of_processes(machine: &Machine) -> Result<Self, MemoryError> {
        if machine.is_in_initial_pid_namespace() {
            Ok(Self {
                proc: machine.procfs().to_owned(),
                of: Of::Processes,
                pages: page_sizes(machine),
            })
        } else {
            Err(MemoryError::PidNamespace)
        }
    }

    /// What these hold; who is gone, or has no memory of its own, is left out. The command's
    /// processes are one holder. Paths of cgroups are as in /proc/PID/cgroup. In v1 a cgroup is
    /// looked up by the same path, which systemd and the runtimes make in every hierarchy. A new
    /// cgroup at the path of one that is gone is not taken for it.
    pub(crate) fn read<'a>(
        &self,
        cgroups: impl Iterator<Item = (CgroupId, &'a str)>,
        processes: impl Iterator<Item = u32>,
        command: Option<&CommandProcesses>,
    ) -> MemoryReading {
        let is_of_command = |id: &u32| command.is_some_and(|command| command.live.contains(id));
        let mut held: Vec<(Holder, MemoryUse)> = match &self.of {
            Of::Cgroups {
                cgroup2,
                memory,
                version,
            } => cgroups
                .filter(|(id, _)| id.is_cgroup() && *id != CgroupId::ROOT)
                .filter(|(id, path)| is_at(cgroup2, path, *id))
                .filter_map(|(id, path)| {
                    Some((Holder::Cgroup(id), of_cgroup(memory, *version, path)?))
                })
                .collect(),
            Of::Processes => processes
                .filter(|id| !is_of_command(id))
                .filter_map(|id| {
                    let held = self.of_process(id)?;
                    let age = born(&self.proc, id)
                        .map(|born| now().saturating_sub(Duration::from_nanos(born)));
                    Some((Holder::Process(id), MemoryUse { age, ..held }))
                })
                .collect(),
        };
        let of_command = command.and_then(|command| self.of_command(command));
        held.extend(of_command.map(|of_command| (Holder::Command, of_command)));
        held.sort_unstable_by_key(|(holder, _)| *holder);
        held.dedup_by_key(|(holder, _)| *holder);
        let meminfo = fs::read_to_string(self.proc.join("meminfo")).unwrap_or_default();
        MemoryReading {
            held,
            machine: of_machine(&meminfo),
            pages: Some(self.pages),
        }
    }
}

impl Reader {
    fn of_process(&self, id: u32) -> Option<MemoryUse> {
        let status = self.proc.join(id.to_string()).join("status");
        of_process(&fs::read_to_string(status).ok()?)
    }

    /// What the processes of a command hold together. What they held at one time before is not
    /// known, only what the largest of them did. None where nothing is known of any.
    fn of_command(&self, command: &CommandProcesses) -> Option<MemoryUse> {
        let live = command.live.iter().filter_map(|id| self.of_process(*id));
        let largest = |a: Option<u64>, b: Option<u64>| a.into_iter().chain(b).max();
        let live = live.reduce(|sum, more| MemoryUse {
            peak: largest(sum.peak, more.peak),
            ..sum.with(&more)
        });
        let ended = command.largest_ended.map(|_| MemoryUse {
            anon: Some(0),
            file: Some(0),
            ..MemoryUse::default()
        });
        let held = live.or(ended)?;
        Some(MemoryUse {
            peak: largest(held.peak, command.largest_ended),
            ..held
        })
    }
}

impl MemoryUse {
    /// What two hold together. Their peaks were not at one time, so that the sum has none.
    pub(crate) fn with(&self, more: &Self) -> Self {
        let both = |a: Option<u64>, b: Option<u64>| Some(a?.saturating_add(b?));
        Self {
            used: self.used.saturating_add(more.used),
            anon: both(self.anon, more.anon),
            file: both(self.file, more.file),
            huge: both(self.huge, more.huge),
            peak: None,
            limit: both(self.limit, more.limit),
            age: None,
        }
    }
}

/// Documentation/admin-guide/mm/transhuge.rst: `hpage_pmd_size`.
fn page_sizes(machine: &Machine) -> PageSizes {
    let huge = machine.sys("kernel/mm/transparent_hugepage/hpage_pmd_size");
    PageSizes {
        small: rustix::param::page_size() as u64,
        huge: huge.and_then(|size| size.parse().ok()),
    }
}

fn of_cgroup(hierarchy: &Hierarchy, version: Version, path: &str) -> Option<MemoryUse> {
    let directory = hierarchy.directory(path)?;
    let number = |file: &str| -> Option<u64> {
        let text = fs::read_to_string(directory.join(file)).ok()?;
        text.trim().parse().ok()
    };
    let stat = || fs::read_to_string(directory.join("memory.stat")).unwrap_or_default();
    Some(match version {
        Version::V2 => {
            let used = number("memory.current")?;
            let stat = stat();
            let part = |name| field(&stat, name);
            let huge = ["anon_thp", "file_thp", "shmem_thp"].map(part);
            MemoryUse {
                used,
                anon: part("anon"),
                file: part("file"),
                // Kernels without some of them (before 5.11) have none of files.
                huge: huge[0].map(|anon| huge[1..].iter().flatten().sum::<u64>() + anon),
                peak: number("memory.peak"),
                limit: limit_above(hierarchy, &directory),
                age: None,
            }
        }
        Version::V1 => {
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

/// The least `memory.max` of a cgroup and those above it.
fn limit_above(hierarchy: &Hierarchy, directory: &Path) -> Option<u64> {
    directory
        .ancestors()
        .take_while(|above| above.starts_with(&hierarchy.mount))
        .filter_map(|above| fs::read_to_string(above.join("memory.max")).ok())
        .filter_map(|text| text.trim().parse().ok())
        .min()
}

/// A line `name number` of memory.stat.
pub(super) fn field(stat: &str, name: &str) -> Option<u64> {
    let mut lines = stat.lines().filter_map(|line| line.split_once(' '));
    let (_, value) = lines.find(|(known, _)| *known == name)?;
    value.trim().parse().ok()
}

/// A line `Name:   number kB` of a file of procfs, in bytes.
pub(super) fn kilobytes(text: &str, name: &str) -> Option<u64> {
    let mut lines = text.lines().filter_map(|line| line.split_once(':'));
    let (_, value) = lines.find(|(known, _)| *known == name)?;
    let number: u64 = value.trim().strip_suffix(" kB")?.trim().parse().ok()?;
    number.checked_mul(1024)
}

/// None of a thread of the kernel, which has no memory of its own, and of a zombie.
fn of_process(status: &str) -> Option<MemoryUse> {
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

fn of_machine(meminfo: &str) -> Option<MemoryUse> {
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
