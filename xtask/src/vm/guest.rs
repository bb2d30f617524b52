//! Runs one guest under QEMU: its command line, its console, its end.
//!
//! Guests use software emulation, never KVM. On some machines /dev/kvm opens but a guest hangs, and
//! only emulation offers the other architecture, its PMU and `-icount`.

use std::{
    io::{BufRead as _, BufReader, Read},
    path::Path,
    process::{Child, Command, Stdio},
    sync::mpsc::{self, RecvTimeoutError, Sender},
    thread,
    time::{Duration, Instant},
};

use anyhow::{Context as _, Result};

use super::{
    boots::{Boot, Firmware},
    packages::Arch,
    report::{Death, Report},
};
use crate::sh;

/// The firmware of an arm64 server, from Debian's qemu-efi-aarch64.
pub(super) const UEFI: &str = "/usr/share/qemu-efi-aarch64/QEMU_EFI.fd";

/// The longest time of a boot. It takes about 4 s on an idle machine, but other work may share the
/// cores.
const BOOT_LIMIT: Duration = Duration::from_secs(120);
/// The longest time of one test in CI. The slowest test takes two minutes, and three if other work
/// shares the cores.
const TEST_LIMIT: Duration = Duration::from_secs(600);
/// The longest time of one test with `--all`, where tests of rare events run longer.
const TEST_LIMIT_OF_ALL: Duration = Duration::from_secs(3600);

/// The longest time of one test, by this machine's clock.
pub(super) const fn test_limit(all: bool) -> Duration {
    if all { TEST_LIMIT_OF_ALL } else { TEST_LIMIT }
}

/// The command that runs a guest in QEMU, without the options of its console.
pub(super) fn qemu(boot: &Boot, kernel: &Path, initramfs: &Path) -> Command {
    let (program, machine, console) = match boot.arch {
        Arch::Arm64 => {
            let cpu = if boot.pmu {
                "neoverse-n1"
            } else {
                "neoverse-n1,pmu=off"
            };
            (
                "qemu-system-aarch64",
                ["-M", "virt", "-cpu", cpu],
                "ttyAMA0",
            )
        }
        Arch::Amd64 => ("qemu-system-x86_64", ["-M", "q35", "-cpu", "max"], "ttyS0"),
    };
    let mut qemu = sh::command(program);
    qemu.args(machine);
    if let (Firmware::Uefi, Arch::Arm64) = (&boot.firmware, boot.arch) {
        qemu.args(["-bios", UEFI]);
    }
    // With one thread per CPU, QEMU fails on x86 kernels that patch their own code (static keys,
    // BPF attachments): a CPU still executes a removed int3, and the kernel reports "Oops: int3"
    // within seconds. One thread for all CPUs survives thousands of patches. On arm64 many threads
    // work.
    let threads = match (boot.arch, boot.icount_shift) {
        (Arch::Arm64, None) => "tcg,thread=multi",
        _ => "tcg,thread=single",
    };
    qemu.args(["-accel", threads]);
    if let Some(shift) = boot.icount_shift {
        // sleep=off: guest time skips idle periods.
        qemu.arg("-icount").arg(format!("shift={shift},sleep=off"));
    }
    let cpus = format!("{0},sockets={0}", boot.cpus);
    qemu.args(["-smp", &cpus, "-m", "2G", "-nodefaults", "-display", "none"]);
    qemu.arg("-no-reboot");
    qemu.arg("-kernel")
        .arg(kernel)
        .arg("-initrd")
        .arg(initramfs);
    // Without this parameter x86 kernels panic if a busy host delays the emulated timer while they
    // check it.
    let timer = match boot.arch {
        Arch::Amd64 => "no_timer_check",
        Arch::Arm64 => "",
    };
    let append = boot.append;
    qemu.arg("-append").arg(format!(
        "console={console} quiet oops=panic panic=-1 {timer} {append}"
    ));
    qemu
}

/// Runs an interactive guest on this terminal.
pub(super) fn shell(boot: &Boot, kernel: &Path, initramfs: &Path) -> Result<()> {
    let mut qemu = qemu(boot, kernel, initramfs);
    sh::check(qemu.args(["-serial", "mon:stdio"]))
}

/// Boots a guest, runs its tests, and prints the lines of its report.
pub(super) fn run(
    boot: &Boot,
    kernel: &Path,
    initramfs: &Path,
    all: bool,
    report: &mut Report<'_>,
) -> Result<()> {
    let mut qemu = qemu(boot, kernel, initramfs);
    qemu.args(["-serial", "stdio"])
        .stdin(Stdio::null())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped());
    let child = qemu
        .spawn()
        .with_context(|| format!("cannot start {}", qemu.get_program().display()))?;
    let mut child = KillOnDrop(child);
    let (sender, lines) = mpsc::channel();
    forward(child.0.stdout.take(), sender.clone());
    forward(child.0.stderr.take(), sender);

    let show = |line: &str| println!("[{}] {line}", boot.name);
    let mut since = Instant::now();
    let death = loop {
        let limit = match report.booted() {
            false => BOOT_LIMIT,
            true => test_limit(all),
        };
        match lines.recv_timeout(limit.saturating_sub(since.elapsed())) {
            Ok(line) => {
                // Only progress resets the limit: a hanging test may still print.
                if line.starts_with("@@ ") {
                    since = Instant::now();
                }
                report.line(&line).iter().for_each(|line| show(line));
            }
            Err(RecvTimeoutError::Timeout) => break Death::Silent(limit),
            Err(RecvTimeoutError::Disconnected) => break Death::Quit,
        }
    };
    drop(child);
    report.close(&death).iter().for_each(|line| show(line));
    Ok(())
}

/// Sends each line of a pipe until either end closes.
fn forward(pipe: Option<impl Read + Send + 'static>, lines: Sender<String>) {
    let Some(pipe) = pipe else { return };
    thread::spawn(move || {
        for line in BufReader::new(pipe).split(b'\n') {
            let Ok(line) = line else { return };
            let line = String::from_utf8_lossy(&line).into_owned();
            if lines.send(line).is_err() {
                return;
            }
        }
    });
}

/// Kills QEMU when the run ends for any reason.
struct KillOnDrop(Child);

impl Drop for KillOnDrop {
    fn drop(&mut self) {
        // Both calls fail only if QEMU has already ended.
        let _ended = self.0.kill();
        let _ended = self.0.wait();
    }
}
