//! The files that guests boot from: kernels, modules and binaries on disk, and each guest's root
//! file system.

use std::{
    collections::{BTreeMap, BTreeSet},
    fs::{self, File},
    path::{Path, PathBuf},
    time::Duration,
};

use anyhow::{Context as _, Result};

use super::{
    apt::Archive,
    boots::{Boot, Firmware},
    buildroot, guest,
    initramfs::Initramfs,
    kmod, modules,
    packages::{Arch, Kernel, Package, Tree},
    placement,
};
use crate::{binaries::Binaries, sh};

/// What a guest does once it has booted.
#[derive(Clone, Copy)]
pub(super) enum GuestTask<'a> {
    /// Runs its tests with `filter` in their names; empty: all.
    Tests {
        filter: &'a str,
        /// Also run tests that CI leaves out in this guest.
        all: bool,
        /// Whether tests print recordings.
        record: bool,
    },
    /// Starts a shell on its console.
    Shell,
}

/// The kernels of guests on disk, with the test modules for each. All checkouts share them.
pub(crate) struct Kernels {
    archive: Archive,
    /// Our test modules by kernel release.
    test_modules: BTreeMap<String, Vec<PathBuf>>,
}

impl Kernels {
    /// Fetches the kernels of `boots` and builds their test modules, where these are missing.
    pub(super) fn provide(boots: &[&'static Boot]) -> Result<Self> {
        let directory = sh::cache().join("pmuscope-guests");
        let _lock = locked(&directory)?;
        let kernels: BTreeSet<_> = boots.iter().map(|boot| Kernel::for_boot(boot)).collect();
        let packages: BTreeSet<Package> = kernels.iter().flat_map(Kernel::packages).collect();
        let archive = Archive::new(&directory);
        archive.provide(&packages)?;
        let root = archive.tree(Tree::Root);
        // Modules are built one file at a time, to leave a CPU to cargo.
        let built =
            (kernels.iter()).map(|kernel| Ok((kernel.release(), kmod::build(&root, kernel)?)));
        Ok(Self {
            test_modules: built.collect::<Result<_>>()?,
            archive,
        })
    }
}

/// Makes a directory and locks it until the returned file is dropped, so that only one run writes
/// to it.
fn locked(directory: &Path) -> Result<File> {
    fs::create_dir_all(directory)
        .with_context(|| format!("cannot make {}", directory.display()))?;
    let lock = File::create(directory.join("lock"))?;
    if lock.try_lock().is_err() {
        println!("xtask: waiting for another run in {}", directory.display());
        let cannot = || format!("cannot lock {}", directory.display());
        lock.lock().with_context(cannot)?;
    }
    Ok(lock)
}

/// The files of one run's guests.
pub(crate) struct Rig<'a> {
    kernels: &'a Kernels,
    binaries: &'a BTreeMap<Arch, Binaries>,
    /// Binaries without symbols: guests boot faster, and tests that name the functions of all
    /// processes read less. The load keeps its symbols.
    stripped: BTreeMap<(Arch, &'static str), PathBuf>,
    /// The directory of the root file systems.
    directory: PathBuf,
    _lock: File,
}

impl<'a> Rig<'a> {
    /// Prepares the binaries of each architecture.
    ///
    /// # Errors
    ///
    /// The directory of root file systems cannot be made or locked, or a binary cannot be stripped.
    pub(crate) fn new(
        kernels: &'a Kernels,
        binaries: &'a BTreeMap<Arch, Binaries>,
    ) -> Result<Self> {
        let directory = sh::target_dir().join("vm");
        let _lock = locked(&directory)?;
        let root = kernels.archive.tree(Tree::Root);
        let mut stripped = BTreeMap::new();
        for (arch, built) in binaries {
            for name in ["pmuscope", "vm", "host"] {
                let to = directory.join(format!("{name}-{}", arch.debian()));
                buildroot::strip(&root, *arch, built.get(name)?, &to)?;
                stripped.insert((*arch, name), to);
            }
        }
        Ok(Self {
            kernels,
            binaries,
            stripped,
            directory,
            _lock,
        })
    }

    /// The directory of the guests' files.
    pub(super) fn directory(&self) -> &Path {
        &self.directory
    }

    fn tree(&self, tree: Tree) -> PathBuf {
        self.kernels.archive.tree(tree)
    }

    fn binary(&self, arch: Arch, name: &'static str) -> Result<&PathBuf> {
        if let Some(stripped) = self.stripped.get(&(arch, name)) {
            return Ok(stripped);
        }
        let binaries = self.binaries.get(&arch);
        binaries
            .with_context(|| format!("nothing was built for {}", arch.triple()))?
            .get(name)
    }

    /// The kernel image of a boot.
    pub(super) fn kernel(&self, boot: &Boot) -> PathBuf {
        self.tree(Tree::Root).join(Kernel::for_boot(boot).image())
    }

    /// Writes the root file system of a boot.
    pub(super) fn initramfs(&self, boot: &Boot, task: GuestTask<'_>) -> Result<PathBuf> {
        let kernel = Kernel::for_boot(boot);
        let tree = self.tree(Tree::Root);
        let mut root = Initramfs::default();
        let busybox = self.tree(Tree::Busybox(boot.arch));
        root.copy("/bin/busybox", &busybox.join("bin/busybox"))?;
        root.file("/init", include_bytes!("init.sh"));

        for name in ["pmuscope", "load"] {
            root.copy(&format!("/bin/{name}"), self.binary(boot.arch, name)?)?;
        }
        let (filter, all) = match task {
            GuestTask::Tests { filter, all, .. } => (filter, all),
            GuestTask::Shell => ("", true),
        };
        let mut tests: BTreeMap<&'static str, Vec<&str>> = BTreeMap::new();
        for group in placement::groups(boot, all) {
            tests.entry(group.binary).or_default().extend(group.tests);
        }
        let mut plan = String::new();
        for (binary, prefixes) in tests {
            let path = self.binary(boot.arch, binary)?;
            root.copy(&format!("/tests/{binary}"), path)?;
            plan += &format!("{binary} ^({}) {filter}\n", prefixes.join("|"));
        }
        root.file("/etc/tests", plan.as_bytes());

        let mut module_list = String::new();
        for module in modules::with_dependencies(&tree, &kernel.release(), boot.modules)? {
            let path = format!("/lib/modules/{}.ko", module.name);
            root.file(&path, &module.content);
            module_list += &format!("{path}\n");
        }
        root.file("/etc/modules", module_list.as_bytes());
        for module in self
            .kernels
            .test_modules
            .get(&kernel.release())
            .into_iter()
            .flatten()
        {
            let name = module.file_name().unwrap_or_default().to_string_lossy();
            let directory = if name == kmod::SELFTEST {
                "/bin"
            } else {
                "/lib/pmuscope"
            };
            root.copy(&format!("{directory}/{name}"), module)?;
        }
        root.file("/etc/vm.env", environment(boot, &kernel, task).as_bytes());
        let path = self.directory().join(format!("{}.cpio", boot.name));
        root.write(&path)?;
        Ok(path)
    }
}

/// The facts of a boot for init and the tests, as shell assignments.
fn environment(boot: &Boot, kernel: &Kernel, task: GuestTask<'_>) -> String {
    let firmware = match (boot.arch, &boot.firmware) {
        (Arch::Amd64, _) | (Arch::Arm64, Firmware::Uefi) => "acpi",
        (Arch::Arm64, Firmware::Default) => "dt",
    };
    // QEMU has one instruction counter for all CPUs: with two CPUs, a CPU's inst_retired also
    // counts instructions of the other CPU (thousands per tick).
    let icount = boot
        .icount_shift
        .filter(|_| boot.cpus == 1)
        .map(|shift| shift.to_string());
    let clock = boot.icount_shift.map_or("host", |_| "instructions");
    let (all, record) = match task {
        GuestTask::Tests { all, record, .. } => (all, record),
        GuestTask::Shell => (true, false),
    };
    let set = |flag| if flag { "1" } else { "" };
    // Leaves a minute to print all threads before the limit.
    let hang_after = guest::test_limit(all) - Duration::from_secs(60);
    [
        ("PMUSCOPE_VM_BOOT", boot.name),
        ("PMUSCOPE_VM_ARCH", boot.arch.debian()),
        ("PMUSCOPE_VM_RELEASE", &kernel.release()),
        ("PMUSCOPE_VM_FIRMWARE", firmware),
        ("PMUSCOPE_VM_APPEND", boot.append),
        ("PMUSCOPE_VM_CLOCK", clock),
        ("PMUSCOPE_VM_ICOUNT", icount.as_deref().unwrap_or_default()),
        // QEMU emulates no x86 counters, although some kernel versions register the PMU `cpu`.
        ("PMUSCOPE_VM_PMU", set(boot.arch == Arch::Arm64 && boot.pmu)),
        ("PMUSCOPE_VM_CONTROLLERS", set(boot.controllers)),
        ("PMUSCOPE_VM_ALL", set(all)),
        ("PMUSCOPE_VM_MODULES", &boot.modules.join(",")),
        ("PMUSCOPE_BIN", "/bin/pmuscope"),
        ("PMUSCOPE_LOAD", "/bin/load"),
        ("PMUSCOPE_VM_RECORD", set(record)),
        ("VM_HANG_AFTER", &hang_after.as_secs().to_string()),
        ("VM_SHELL", set(matches!(task, GuestTask::Shell))),
    ]
    .map(|(name, value)| format!("export {name}='{value}'\n"))
    .concat()
}
