//! One guest under QEMU's software emulation: its command line, its console, its end.
//!
//! Never KVM: on machines where /dev/kvm opens but boots nothing it would hang, and only
//! emulation has the other architecture, its PMU and `-icount`.

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

/// Generous, because two cores may be shared with other work: a boot takes about 4 s alone.
const BOOT_LIMIT: Duration = Duration::from_secs(120);
/// The longest time of one test in CI, by this machine's clock.
const TEST_LIMIT: Duration = Duration::from_secs(180);
/// The same with `--all`, where tests of rare events run longer.
const TEST_LIMIT_OF_ALL: Duration = Duration::from_secs(3600);

/// QEMU with everything but the console.
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
    // With a thread per CPU, QEMU fails on x86 kernels that patch their own code (static keys, BPF
    // attachments): a CPU still runs an int3 that was removed, "Oops: int3" within seconds. One
    // thread for all CPUs survives thousands of patches. On arm64 many threads work.
    let threads = match (boot.arch, boot.icount_shift) {
        (Arch::Arm64, None) => "tcg,thread=multi",
        _ => "tcg,thread=single",
    };
    qemu.args(["-accel", threads]);
    if let Some(shift) = boot.icount_shift {
        // sleep=off: guest time jumps over what the guest sleeps.
        qemu.arg("-icount").arg(format!("shift={shift},sleep=off"));
    }
    let cpus = format!("{0},sockets={0}", boot.cpus);
    qemu.args(["-smp", &cpus, "-m", "2G", "-nodefaults", "-display", "none"]);
    qemu.arg("-no-reboot");
    qemu.arg("-kernel")
        .arg(kernel)
        .arg("-initrd")
        .arg(initramfs);
    // x86 kernels panic where the timer, emulated on a busy machine, ticks too late for their check
    // of it.
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

/// An interactive guest on this terminal.
pub(super) fn shell(boot: &Boot, kernel: &Path, initramfs: &Path) -> Result<()> {
    let mut qemu = qemu(boot, kernel, initramfs);
    sh::check(qemu.args(["-serial", "mon:stdio"]))
}

/// Boots, runs the tests, prints what their report shows.
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
        let limit = match (report.booted(), all) {
            (false, _) => BOOT_LIMIT,
            (true, false) => TEST_LIMIT,
            (true, true) => TEST_LIMIT_OF_ALL,
        };
        match lines.recv_timeout(limit.saturating_sub(since.elapsed())) {
            Ok(line) => {
                // Only progress resets the limit: a test may also hang while it prints.
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

/// Sends each line until the other end closes.
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

/// Ends QEMU with its run, however the run ends.
struct KillOnDrop(Child);

impl Drop for KillOnDrop {
    fn drop(&mut self) {
        // Both fail only where QEMU has ended, which is what is wanted.
        let _ended = self.0.kill();
        let _ended = self.0.wait();
    }
}
