//! What the processes of cgroups use, from procfs (`proc_pid_stat(5)`), for a person who looks at a
//! container. Accounting uses the BPF programs instead.

use std::{
    collections::{BTreeSet, HashMap},
    fs,
    path::PathBuf,
    time::Duration,
};

use super::{Machine, cgroup::Hierarchy, process::stat};
use crate::sys::clock::now;

/// What a process uses.
#[derive(Clone, Debug, PartialEq)]
pub struct ProcessUse {
    /// Its id, in the pid namespace of the caller.
    pub pid: u32,
    /// Its command line, or its name in brackets.
    pub command: String,
    /// CPUs that it used since the previous reading; None at its first reading.
    pub cpus: Option<f64>,
    /// Its resident set in bytes, if known.
    pub resident: Option<u64>,
}

/// Reads what processes use, one reading after the other.
#[derive(Debug)]
pub struct ProcessReader {
    hierarchy: Hierarchy,
    proc: PathBuf,
    /// CPU time in ticks at the last reading, by process id and start time.
    last: HashMap<(u32, u64), u64>,
    /// `CLOCK_MONOTONIC` of the last reading.
    at: Duration,
}

impl ProcessReader {
    /// A reader of processes of this machine's cgroups; None if it has none.
    #[must_use]
    pub fn new(machine: &Machine) -> Option<Self> {
        Some(Self {
            hierarchy: machine.hierarchy().ok()?.clone(),
            proc: machine.procfs().to_owned(),
            last: HashMap::new(),
            at: Duration::ZERO,
        })
    }

    /// The processes in these cgroups, without those of their descendants. Processes that use most
    /// CPU time come first.
    pub fn read<'a>(&mut self, cgroups: impl Iterator<Item = &'a str>) -> Vec<ProcessUse> {
        let now = now();
        let seconds = now.saturating_sub(self.at).as_secs_f64();
        #[expect(clippy::cast_precision_loss, reason = "some 100")]
        let ticks = rustix::param::clock_ticks_per_second().max(1) as f64 * seconds;
        let page = u64::try_from(rustix::param::page_size()).unwrap_or(0);
        let mut last = HashMap::new();
        let read = |pid: u32| {
            let stat = stat(&self.proc, pid)?;
            let key = (pid, stat.start);
            last.insert(key, stat.cpu_time);
            let before = self.last.get(&key).copied();
            #[expect(clippy::cast_precision_loss, reason = "ticks of one interval")]
            let cpus = before.map(|before| stat.cpu_time.saturating_sub(before) as f64 / ticks);
            Some(ProcessUse {
                pid,
                command: self.command(pid, &stat.name),
                cpus,
                resident: Some(stat.resident_pages.saturating_mul(page)),
            })
        };
        let mut processes: Vec<ProcessUse> =
            self.pids(cgroups).into_iter().filter_map(read).collect();
        (self.last, self.at) = (last, now);
        processes.sort_by(|a, b| {
            let cpus = |used: &ProcessUse| used.cpus.unwrap_or(0.0);
            let by_cpus = cpus(b).total_cmp(&cpus(a));
            by_cpus.then(b.resident.cmp(&a.resident))
        });
        processes
    }

    fn pids<'a>(&self, cgroups: impl Iterator<Item = &'a str>) -> BTreeSet<u32> {
        let directories = cgroups.filter_map(|path| self.hierarchy.directory(path));
        let lists = directories.map(|directory| {
            fs::read_to_string(directory.join("cgroup.procs")).unwrap_or_default()
        });
        let lists: Vec<String> = lists.collect();
        let pids = lists.iter().flat_map(|list| list.lines());
        // Processes of other pid namespaces have the id 0.
        let pids = pids
            .filter_map(|pid| pid.parse().ok())
            .filter(|pid| *pid != 0);
        pids.collect()
    }

    fn command(&self, pid: u32, name: &str) -> String {
        let line = fs::read(self.proc.join(format!("{pid}/cmdline"))).unwrap_or_default();
        let line = String::from_utf8_lossy(&line).replace('\0', " ");
        match line.trim() {
            "" => format!("[{name}]"),
            line => line.to_owned(),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The process of this test, whatever its cgroup is.
    #[test]
    fn a_process_has_its_cpu_time_and_its_resident_set() {
        let machine = Machine::this();
        let Some(mut reader) = ProcessReader::new(&machine) else {
            return;
        };
        let pid = std::process::id();
        let stat = stat(&reader.proc, pid).unwrap();
        assert!(stat.resident_pages > 0 && stat.start > 0);
        let line = reader.command(pid, &stat.name);
        assert!(line.contains("probe_user"), "{line}");
        assert_eq!(reader.command(u32::MAX, "kworker/0:1"), "[kworker/0:1]");
        let own = fs::read_to_string("/proc/self/cgroup").unwrap();
        let own = own
            .lines()
            .find_map(|line| line.strip_prefix("0::"))
            .unwrap()
            .to_owned();
        let mut read = || {
            let processes = reader.read([own.as_str()].into_iter());
            processes.into_iter().find(|it| it.pid == pid)
        };
        // The machine has no cgroup2, or this process is in a namespace of it.
        let Some(first) = read() else {
            return;
        };
        assert_eq!(first.cpus, None);
        // The clock of CPU time has ticks of 10 ms.
        let before = cpu_ticks(pid);
        while cpu_ticks(pid) < before + 2 {}
        let second = read().unwrap();
        assert!(second.cpus.is_some_and(|cpus| cpus > 0.0), "{second:?}");
    }

    fn cpu_ticks(pid: u32) -> u64 {
        let machine = Machine::this();
        let reader = ProcessReader::new(&machine).unwrap();
        stat(&reader.proc, pid).unwrap().cpu_time
    }
}
