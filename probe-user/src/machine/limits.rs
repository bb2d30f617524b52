//! CPU and memory limits of this process, from its cgroup and the cgroup's ancestors. The files are
//! of cgroup2 (Documentation/admin-guide/cgroup-v2.rst: cpu.max, memory.max) or of v1
//! (Documentation/scheduler/sched-bwc.rst, Documentation/admin-guide/cgroup-v1/memory.rst).

use std::{
    fs,
    path::{Path, PathBuf},
};

use super::{Machine, cgroup::Hierarchy, memory::field, memory::kilobytes};

/// Limits of v1 from this value on mean no limit.
const NO_LIMIT: u64 = 1 << 62;

/// Resources available to this process.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Limits {
    /// CPU time that the process's cgroup may use, in CPUs; None without a limit.
    pub cpus: Option<f64>,
    /// Bytes that can be allocated without swapping and within the cgroup's limit; None if unknown.
    pub memory: Option<u64>,
}

impl Limits {
    /// The limits of this process now.
    #[must_use]
    pub fn for_self(machine: &Machine) -> Self {
        let mut limits = Self {
            cpus: None,
            memory: machine
                .proc("meminfo")
                .and_then(|text| kilobytes(&text, "MemAvailable")),
        };
        for directory in directories(machine) {
            limits.apply(&directory);
        }
        limits
    }

    /// Applies the limits of one cgroup.
    fn apply(&mut self, directory: &Path) {
        let text = |file: &str| fs::read_to_string(directory.join(file)).ok();
        let number = |file: &str| text(file)?.trim().parse::<u64>().ok();
        let quota = text("cpu.max").and_then(|text| quota(&text)).or_else(|| {
            let (quota, period) = (number("cpu.cfs_quota_us")?, number("cpu.cfs_period_us")?);
            cpus(quota, period)
        });
        if let Some(quota) = quota {
            self.cpus = Some(self.cpus.map_or(quota, |least| least.min(quota)));
        }
        let stat = text("memory.stat").unwrap_or_default();
        let limits = [
            ("memory.max", "memory.current", "inactive_file"),
            (
                "memory.limit_in_bytes",
                "memory.usage_in_bytes",
                "total_inactive_file",
            ),
        ];
        for (limit, used, droppable) in limits {
            let limit = number(limit).filter(|limit| *limit < NO_LIMIT);
            let Some((limit, used)) = limit.zip(number(used)) else {
                continue;
            };
            // Inactive file pages count as available: the kernel drops them when memory is short.
            let used = used.saturating_sub(field(&stat, droppable).unwrap_or(0));
            let available = limit.saturating_sub(used);
            self.memory = Some(self.memory.map_or(available, |least| least.min(available)));
        }
    }
}

/// The directories of this process's cgroups, each with its ancestors.
fn directories(machine: &Machine) -> Vec<PathBuf> {
    let proc = machine.procfs();
    let own = machine.proc("self/cgroup").unwrap_or_default();
    let for_controller = |name: &str| {
        let hierarchy = Hierarchy::for_controller(proc, name).ok().flatten()?;
        let mut lines = own.lines().filter_map(|line| {
            let (controllers, path) = line.split_once(':')?.1.split_once(':')?;
            controllers
                .split(',')
                .any(|one| one == name)
                .then_some(path)
        });
        Some((hierarchy, lines.next()?.to_owned()))
    };
    let unified = || {
        Some((
            machine.hierarchy().ok()?.clone(),
            Hierarchy::current_cgroup(proc).ok()?,
        ))
    };
    let cgroups = [unified(), for_controller("memory"), for_controller("cpu")];
    let with_ancestors = |(hierarchy, path): (Hierarchy, String)| {
        let directory = hierarchy.directory(&path).unwrap_or_default();
        let own: Vec<PathBuf> = directory
            .ancestors()
            .take_while(|above| above.starts_with(&hierarchy.mount))
            .map(Path::to_owned)
            .collect();
        own
    };
    cgroups
        .into_iter()
        .flatten()
        .flat_map(with_ancestors)
        .collect()
}

/// Parses `cpu.max`: `50000 100000`, or `max 100000`.
fn quota(text: &str) -> Option<f64> {
    let (quota, period) = text.trim().split_once(' ')?;
    cpus(quota.parse().ok()?, period.parse().ok()?)
}

#[expect(clippy::cast_precision_loss, reason = "microseconds")]
fn cpus(quota: u64, period: u64) -> Option<f64> {
    (period > 0).then(|| quota as f64 / period as f64)
}

#[cfg(test)]
mod tests {
    use test_support::Tree;

    use super::*;
    use crate::machine::Roots;

    /// A machine with this text of /proc/self/cgroup and with these mounts, in which `AT` stands
    /// for the directory of the tree.
    fn machine(root: &Tree, cgroups: &str, mounts: &[&str]) -> Machine {
        root.write("proc/meminfo", "MemTotal: 2000 kB\nMemAvailable: 1000 kB\n");
        root.write("proc/self/cgroup", cgroups);
        let at = |mount: &&str| mount.replace("AT", root.path().to_str().unwrap());
        let mounts: Vec<String> = mounts.iter().map(at).collect();
        root.write("proc/self/mountinfo", mounts.join("\n"));
        Machine::at(Roots::below(root.path()))
    }

    #[test]
    fn the_lowest_limit_of_the_ancestors_applies() {
        let root = Tree::new();
        root.write("cg/pod/cpu.max", "150000 100000\n");
        root.write("cg/pod/memory.max", "600000\n");
        root.write("cg/pod/memory.current", "500000\n");
        root.write("cg/pod/memory.stat", "anon 1\ninactive_file 100000\n");
        root.write("cg/pod/own/cpu.max", "max 100000\n");
        root.write("cg/pod/own/memory.max", "max\n");
        root.write("cg/pod/own/memory.current", "400000\n");
        let mounts = ["29 23 0:26 / AT/cg rw - cgroup2 cgroup2 rw"];
        let limits = Limits::for_self(&machine(&root, "0::/pod/own\n", &mounts));
        // The limit of 600,000, less 500,000 in use of which 100,000 can be dropped.
        assert_eq!(limits.memory, Some(200_000));
        assert_eq!(limits.cpus, Some(1.5));
    }

    #[test]
    fn limits_with_controllers_of_v1_and_without_cgroups() {
        let root = Tree::new();
        root.write("v1/memory/a/memory.limit_in_bytes", "9223372036854771712\n");
        root.write("v1/memory/a/memory.usage_in_bytes", "1\n");
        root.write("v1/cpu/a/cpu.cfs_quota_us", "-1\n");
        root.write("v1/cpu/a/cpu.cfs_period_us", "100000\n");
        root.write("v1/cpu/cpu.cfs_quota_us", "400000\n");
        root.write("v1/cpu/cpu.cfs_period_us", "100000\n");
        let mounts = [
            "15 31 0:32 / AT/v1/memory rw - cgroup cgroup rw,memory",
            "14 31 0:30 / AT/v1/cpu rw - cgroup cgroup rw,cpu,cpuacct",
        ];
        let cgroups = "4:memory:/a\n1:cpu,cpuacct:/a\n";
        let limits = Limits::for_self(&machine(&root, cgroups, &mounts));
        assert_eq!(limits.memory, Some(1_024_000));
        assert_eq!(limits.cpus, Some(4.0));
        let nothing = Machine::at(Roots::below(Path::new("/nonexistent")));
        assert_eq!(Limits::for_self(&nothing), Limits::default());
    }
}
