//! `cargo xtask vm`: boots Debian's kernels under QEMU and runs the guest tests (tests/vm) in them.

mod apt;
mod binaries;
mod boots;
mod guest;
mod initramfs;
mod kmod;
mod modules;
mod packages;
mod report;
mod tools;

use std::{
    collections::BTreeSet,
    fs::{self, File},
    path::{Path, PathBuf},
    time::Instant,
};

use anyhow::{Context as _, Result, bail, ensure};

use self::{
    apt::Archive,
    binaries::Binaries,
    boots::{BOOTS, Boot, Firmware},
    initramfs::Initramfs,
    packages::{Arch, Kernel, Package},
    report::{Report, Totals},
};
use crate::{setup, sh};

#[derive(clap::Args, Default)]
pub(crate) struct Args {
    /// Only guests of this architecture
    #[arg(long)]
    arch: Option<Arch>,
    /// Only guests of this kernel series, such as 6.12
    #[arg(long, value_name = "SERIES")]
    kernel: Option<String>,
    /// Only guests whose name contains this; where there is none, only tests whose name does
    #[arg(long, value_name = "NAME")]
    filter: Option<String>,
    /// Boot the first guest that matches with a shell on this terminal
    #[arg(long)]
    shell: bool,
}

/// Whether guests can run on this machine; the error is the reason why not.
pub(crate) fn can_run() -> Result<(), String> {
    if sh::output(sh::command("apt-get").arg("--version")).is_none() {
        return Err("the test guests are made of Debian packages and apt-get is not there".into());
    }
    let missing = tools::missing();
    if missing.is_empty() || rustix::process::geteuid().is_root() {
        return Ok(());
    }
    let install = tools::apt_line(&missing);
    Err(format!("the test guests need `sudo {install}`"))
}

/// Runs the guests that `args` selects; a failed test is an error.
pub(crate) fn run(args: &Args) -> Result<()> {
    let start = Instant::now();
    let (boots, filter) = select(args)?;
    if let Err(reason) = can_run() {
        bail!(reason);
    }
    setup::run()?;
    tools::provide()?;
    let vm = sh::target_dir().join("vm");
    fs::create_dir_all(&vm)?;
    let rig = Rig::prepare(&vm, &boots)?;

    if args.shell {
        let boot = boots[0];
        let initramfs = rig.initramfs(boot, "", true)?;
        return guest::shell(boot, &rig.kernel(boot), &initramfs);
    }
    let mut totals = Totals::default();
    for boot in boots {
        let initramfs = rig.initramfs(boot, filter, false)?;
        let since = Instant::now();
        let mut report = Report::new(&mut totals);
        guest::run(boot, &rig.kernel(boot), &initramfs, &mut report)?;
        let planned = report.planned();
        println!(
            "[{}] {planned} tests in {:.1} s",
            boot.name,
            since.elapsed().as_secs_f32()
        );
        if planned == 0 && filter.is_empty() {
            totals.failed += 1;
            println!("[{}] FAILED  no test of the boot table is there", boot.name);
        }
    }
    println!("xtask: guests ended after {} s", start.elapsed().as_secs());
    println!("{totals}");
    ensure!(
        totals.passed + totals.failed + totals.skipped > 0,
        "no test matches {filter:?}"
    );
    ensure!(totals.failed == 0, "tests failed in the guests");
    Ok(())
}

/// The guests to boot and the part of test names asked for.
fn select(args: &Args) -> Result<(Vec<&'static Boot>, &str)> {
    let mut boots: Vec<_> = BOOTS.iter().collect();
    boots.retain(|boot| args.arch.is_none_or(|arch| boot.arch == arch));
    boots.retain(|boot| {
        args.kernel
            .as_ref()
            .is_none_or(|kernel| boot.series == kernel)
    });
    let names: Vec<_> = BOOTS.iter().map(|boot| boot.name).collect();
    ensure!(
        !boots.is_empty(),
        "no guest has this architecture and kernel; there are {}",
        names.join(", ")
    );
    let filter = args.filter.as_deref().unwrap_or_default();
    if !boots.iter().any(|boot| boot.name.contains(filter)) {
        return Ok((boots, filter));
    }
    boots.retain(|boot| boot.name.contains(filter));
    Ok((boots, ""))
}

/// Everything the guests are made of, ready on disk.
struct Rig {
    vm: PathBuf,
    archive: Archive,
    binaries: Binaries,
    /// Where tests/vm/kmod is.
    module_sources: Option<PathBuf>,
    /// Two runs at once would write the same files.
    _lock: File,
}

impl Rig {
    fn prepare(vm: &Path, boots: &[&'static Boot]) -> Result<Self> {
        let lock = File::create(vm.join("lock"))?;
        if lock.try_lock().is_err() {
            println!(
                "xtask: waiting for another `cargo xtask vm` in {}",
                vm.display()
            );
            lock.lock().context("cannot lock target/vm")?;
        }
        let module_sources = kmod::sources();
        if module_sources.is_none() {
            println!("xtask: tests/vm/kmod has no Makefile: guests have no test modules");
        }
        let mut packages: BTreeSet<Package> = BTreeSet::new();
        for boot in boots {
            let kernel = Kernel::of(boot);
            packages.extend(kernel.boot_packages());
            if module_sources.is_some() {
                packages.extend(kernel.build_packages());
            }
        }
        let archive = Archive::new(vm);
        archive.provide(&packages)?;
        Ok(Self {
            vm: vm.to_path_buf(),
            archive,
            binaries: Binaries::build(boots)?,
            module_sources,
            _lock: lock,
        })
    }

    fn kernel(&self, boot: &Boot) -> PathBuf {
        let kernel = Kernel::of(boot);
        let [image, _] = kernel.boot_packages();
        let tree = self.archive.tree(&image);
        tree.join(format!("boot/vmlinuz-{}", kernel.release()))
    }

    /// Writes the root file system of a boot.
    fn initramfs(&self, boot: &Boot, filter: &str, shell: bool) -> Result<PathBuf> {
        let kernel = Kernel::of(boot);
        let [image, busybox] = kernel.boot_packages();
        let tree = self.archive.tree(&image);
        let mut root = Initramfs::default();
        let busybox = self.archive.tree(&busybox).join("bin/busybox");
        root.copy("/bin/busybox", &busybox)?;
        root.file("/init", include_bytes!("vm/init.sh"));

        root.copy("/bin/pmuscope", self.binaries.get(boot.arch, "pmuscope")?)?;
        let mut plan = String::new();
        for tests in boot.tests {
            let binary = self.binaries.get(boot.arch, tests.binary)?;
            root.copy(&format!("/tests/{}", tests.binary), binary)?;
            let modules = tests.modules.join("|");
            plan += &format!("{} ^({modules}) {filter}\n", tests.binary);
        }
        root.file("/etc/tests", plan.as_bytes());

        let mut list = String::new();
        for module in modules::with_dependencies(&tree, &kernel.release(), boot.modules)? {
            let path = format!("/lib/modules/{}.ko", module.name);
            root.file(&path, &module.content);
            list += &format!("{path}\n");
        }
        root.file("/etc/modules", list.as_bytes());
        if let Some(sources) = &self.module_sources {
            for module in kmod::build(&self.vm, &tree, sources, boot.arch, &kernel)? {
                let name = module.file_name().unwrap_or_default().to_string_lossy();
                root.copy(&format!("/lib/pmuscope/{name}"), &module)?;
            }
        }
        root.file("/etc/vm.env", environment(boot, &kernel, shell).as_bytes());
        let path = self.vm.join(format!("{}.cpio", boot.name));
        root.write(&path)?;
        Ok(path)
    }
}

/// What the init and the tests know of their boot, as shell assignments.
fn environment(boot: &Boot, kernel: &Kernel, shell: bool) -> String {
    let firmware = match (boot.arch, &boot.firmware) {
        (Arch::Amd64, _) | (Arch::Arm64, Firmware::Uefi) => "acpi",
        (Arch::Arm64, Firmware::Default) => "dt",
    };
    let icount = boot.icount_shift.map(|shift| shift.to_string());
    let controllers = if boot.controllers { "1" } else { "" };
    [
        ("PMUSCOPE_VM_BOOT", boot.name),
        ("PMUSCOPE_VM_ARCH", boot.arch.debian()),
        ("PMUSCOPE_VM_RELEASE", &kernel.release()),
        ("PMUSCOPE_VM_FIRMWARE", firmware),
        ("PMUSCOPE_VM_APPEND", boot.append),
        ("PMUSCOPE_VM_ICOUNT", icount.as_deref().unwrap_or_default()),
        ("PMUSCOPE_VM_CONTROLLERS", controllers),
        ("PMUSCOPE_VM_MODULES", &boot.modules.join(",")),
        ("PMUSCOPE_BIN", "/bin/pmuscope"),
        ("VM_SHELL", if shell { "1" } else { "" }),
    ]
    .map(|(name, value)| format!("export {name}='{value}'\n"))
    .concat()
}
