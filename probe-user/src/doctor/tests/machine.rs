//! A machine to examine: files of tests/fixtures, and a fake kernel.

use std::{
    fs::{self, File},
    io::{self, Write as _},
    path::{Path, PathBuf},
    sync::Arc,
};

use flate2::{Compression, write::GzEncoder};
use rustix::thread::CapabilitySet;
use test_support::{Tree, fixture};

use super::{
    super::{
        Diagnosis, Subject, examine,
        subject::{Arch, Process},
        trials::{TrialResult, Trials},
    },
    btf::{STRUCTURES, btf},
};
use crate::{
    catalogue::{Catalogue, Hardware},
    machine::{Machine, Pmus, Roots},
    plan::{
        self, Capacity, CounterTestError, PlanRequest, PlanRequestError, simulated::SimulatedCore,
    },
};

/// A fake kernel with fixed answers.
#[derive(Clone, Copy)]
pub(super) struct FakeKernel {
    /// The first CPU on which `perf_event_open` fails for all tasks, and its error.
    pub(super) cpu: Option<(u32, i32)>,
    /// Error of `perf_event_open` for a cgroup.
    pub(super) cgroup: Option<i32>,
    pub(super) session: Result<TrialResult, &'static str>,
    /// What each counter of PMU `cpu` counted of a million instructions, and how many counters
    /// others hold.
    pub(super) counters: Option<(&'static [u64], usize)>,
    /// The counters of each core; None: the documented ones.
    pub(super) core: Option<SimulatedCore>,
}

/// A kernel on which every trial succeeds.
pub(super) const WORKING: FakeKernel = FakeKernel {
    cpu: None,
    cgroup: None,
    session: Ok(TrialResult {
        owners: 12,
        percent: 100,
        within: 2,
        read: Some(52),
        ppm: Some(310),
    }),
    counters: None,
    core: None,
};

fn answer(error: Option<i32>) -> io::Result<()> {
    error.map_or(Ok(()), |error| Err(io::Error::from_raw_os_error(error)))
}

impl Trials for FakeKernel {
    fn open_on_cpu(&self, cpu: u32) -> io::Result<()> {
        let refused = self.cpu.filter(|(first, _)| cpu >= *first);
        answer(refused.map(|(_, error)| error))
    }

    fn open_in_cgroup(&self, directory: &Path) -> io::Result<()> {
        assert!(directory.is_dir(), "{}", directory.display());
        answer(self.cgroup)
    }

    fn capacity(
        &self,
        request: &PlanRequest,
        machine: &Machine,
        catalogue: &Catalogue,
        hardware: &Hardware,
    ) -> Result<Capacity, PlanRequestError> {
        let pmus = machine.pmus()?;
        let capacity = Capacity::documented(catalogue, hardware, pmus, request.reserve_counters);
        Ok(match self.core {
            Some(core) => capacity.simulated(core, pmus),
            None => capacity,
        })
    }

    fn counters(
        &self,
        _: &Pmus,
    ) -> Vec<(String, Result<plan::CounterTestResult, CounterTestError>)> {
        let tried = self.counters.map(|(counts, held)| {
            let counted = plan::CounterTestResult {
                executed: 1_000_000,
                counts: counts.to_vec(),
                held,
            };
            let tried = (!counts.is_empty())
                .then_some(counted)
                .ok_or(CounterTestError::Held);
            ("cpu".to_owned(), tried)
        });
        tried.into_iter().collect()
    }

    fn count(&self) -> Result<TrialResult, String> {
        self.session.map_err(str::to_owned)
    }
}

pub(super) fn process(arch: Arch) -> Process {
    Process {
        arch,
        capabilities: CapabilitySet::all(),
        page_size: 4096,
        descriptors: None,
        binary: PathBuf::from("/usr/bin/pmuscope"),
    }
}

/// A machine with its files in a temporary directory.
pub(super) struct Fixture {
    pub(super) root: Tree,
    pub(super) process: Process,
    pub(super) trials: FakeKernel,
}

impl Fixture {
    /// Lays the machine `name` over a tree of tests/fixtures/sysfs. `none` adds no files; `old` is
    /// a kernel without BTF, waits and pressure.
    pub(super) fn new(
        sysfs: Option<&str>,
        name: &str,
        process: Process,
        trials: FakeKernel,
    ) -> Self {
        let root = Tree::new();
        if let Some(sysfs) = sysfs {
            copy(&test_support::sysfs(sysfs), &root.join("sys"));
        }
        if name != "none" {
            copy(&fixture("doctor").join(name), root.path());
        }
        for directory in ["proc", "sys", "boot"] {
            root.dir(directory);
        }
        let fixture = Self {
            root,
            process,
            trials,
        };
        if name != "old" {
            fixture.write("sys/kernel/btf/vmlinux", &btf(&STRUCTURES));
            fixture.write("proc/self/schedstat", b"1 2 3\n");
            fixture.write("proc/pressure/cpu", b"some avg10=0.00 total=0\n");
        }
        fixture
    }

    pub(super) fn write(&self, path: &str, content: &[u8]) {
        self.root.write(path, content);
    }

    pub(super) fn link(&self, path: &str, target: &str) {
        self.root.link(path, self.root.join(target));
    }

    pub(super) fn examine(&self) -> Diagnosis {
        // A `Machine` caches what it reads: each examination takes a new one.
        examine(&Subject {
            machine: Arc::new(self.machine()),
            process: self.process.clone(),
            trials: Box::new(self.trials),
            calibrations: self.root.join("calibrations"),
        })
    }

    pub(super) fn machine(&self) -> Machine {
        Machine::at(Roots::below(self.root.path()))
    }

    /// The report, with paths as on the machine itself.
    pub(super) fn report(&self) -> String {
        let mut text = Vec::new();
        self.examine().write_text(&mut text).unwrap();
        let text = String::from_utf8(text).unwrap();
        text.replace(self.root.path().to_str().unwrap(), "")
    }
}

fn copy(from: &Path, to: &Path) {
    fs::create_dir_all(to).unwrap();
    for entry in fs::read_dir(from).unwrap() {
        let entry = entry.unwrap();
        let (source, name) = (entry.path(), entry.file_name());
        if source.is_dir() {
            copy(&source, &to.join(name));
        } else if name == "config.gz.txt" {
            let file = File::create(to.join("config.gz")).unwrap();
            let mut gzip = GzEncoder::new(file, Compression::default());
            gzip.write_all(&fs::read(source).unwrap()).unwrap();
            gzip.finish().unwrap();
        } else {
            fs::copy(source, to.join(name)).unwrap();
        }
    }
}
