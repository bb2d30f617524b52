//! Arm's Statistical Profiling Extension: driver, kpti, page size, thread ids in records, physical
//! addresses, locked memory; on x86, what samples memory accesses instead.

use rustix::thread::CapabilitySet;

use super::{Area, Finding, Loss, Subject, config::driver_remedies, subject::Arch};
use crate::{
    catalogue::Driver,
    event::{
        accesses::describe_mechanism,
        spe::{self, NoSpe},
    },
    machine::{
        Pmu, Pmus,
        kernel_config::{Built, KernelConfig},
    },
};

const AREA: Area = Area::Spe;

/// What is lost without SPE.
const LOST: &str = "where loads get their data from and how long that takes, per container";

fn driver() -> Driver {
    Driver {
        option: "ARM_SPE_PMU".to_owned(),
        module: Some("arm_spe_pmu".to_owned()),
    }
}

/// Bytes of a record (Arm's SPE on Neoverse cores).
const RECORD_BYTES: usize = 64;

/// Nanoseconds in the kernel to decode one synthetic SPE record, measured on x86-64 with Linux
/// 6.18.
const NANOS_PER_RECORD: usize = 127;

/// Default limit of the time with interrupts off to decode a chunk, in nanoseconds.
const IRQ_OFF_MAX_NANOS: usize = 50_000;

pub(super) fn check(
    subject: &Subject,
    config: Option<&KernelConfig>,
    pmus: &Result<&Pmus, String>,
) -> Vec<Finding> {
    if subject.process.arch != Arch::Arm64 {
        return vec![x86_alternative(pmus)];
    }
    let Ok(pmus) = pmus else {
        return Vec::new();
    };
    let spe_pmus = match spe::pmus(pmus) {
        Ok(spe_pmus) => spe_pmus,
        Err(NoSpe::Unreadable(reason)) => {
            let loss = Loss::new(LOST).advise("see PMU files above");
            return vec![AREA.missing("driver", reason.to_string(), loss)];
        }
        Err(_) => return vec![missing(subject, config)],
    };
    let names: Vec<String> = spe_pmus.iter().map(|pmu| describe(pmu)).collect();
    vec![
        AREA.ok("driver", names.join(", ")),
        page_size(subject),
        thread_ids(config),
        physical_addresses(subject),
        locked_memory(subject),
    ]
}

/// The finding about the mechanism by which `mem` samples on x86.
fn x86_alternative(pmus: &Result<&Pmus, String>) -> Finding {
    if let Some(mechanism) = pmus.as_ref().ok().and_then(|pmus| describe_mechanism(pmus)) {
        let found = format!("`pmuscope mem` samples by {mechanism}");
        return AREA.ok("alternative to SPE", found);
    }
    let loss = Loss::new(LOST).advise(
        "run pmuscope on the host: x86 has AMD's ibs_op or Intel's event mem-loads in its place, \
         which hypervisors hide from guests",
    );
    let found = "SPE exists only on Arm, and what `pmuscope mem` uses instead (AMD's IBS, Intel's \
                 mem-loads) is not there";
    AREA.missing("driver", found, loss)
}

fn describe(pmu: &Pmu) -> String {
    let interval = pmu
        .caps
        .get("min_interval")
        .map_or(String::new(), |n| format!(", interval at least {n}"));
    let cpus = match &pmu.kind {
        crate::machine::PmuKind::Uncore { cpus } => format!(" on CPUs {cpus}"),
        _ => String::new(),
    };
    format!("{}{cpus}{interval}", pmu.name)
}

/// The finding about a missing PMU. With kernel page-table isolation some cores cannot access the
/// buffer, and the driver does not register the PMU.
fn missing(subject: &Subject, config: Option<&KernelConfig>) -> Finding {
    let loss = Loss::new(LOST);
    if subject.is_virtual() {
        let found = "no arm_spe_* PMU: this is a virtual machine";
        let advice = "hypervisors do not give SPE to guests: run pmuscope on the host";
        return AREA.missing("driver", found, loss.advise(advice));
    }
    let built = config.map(|config| config.built("ARM_SPE_PMU"));
    let is_isolated = subject
        .sys("devices/system/cpu/vulnerabilities/meltdown")
        .is_some_and(|text| text.contains("PTI"));
    let is_switched_off = subject.proc("cmdline").is_some_and(|line| {
        let mut words = line.split_whitespace();
        words.any(|word| matches!(word, "kpti=off" | "kpti=0" | "kpti=n" | "kpti=no"))
    });
    let (found, mut loss) = if is_isolated && !is_switched_off && built != Some(Built::Not) {
        let advice = "boot without isolation of page tables: add `kpti=off` to the kernel's \
             command line (this removes the protection against Meltdown: ask the administrator \
             first)";
        let found = "no arm_spe_* PMU; kernel page-table isolation is on, with which some cores \
             cannot reach its buffer";
        (found, loss.advise(advice))
    } else {
        ("no arm_spe_* PMU", loss)
    };
    loss = loss.with(driver_remedies(
        config,
        &[driver()],
        "the core has no SPE, or the firmware does not give it to the kernel: see `dmesg | grep \
         -i spe` (with \"profiling buffer inaccessible\" there, boot with `kpti=off`)",
    ));
    AREA.missing("driver", found, loss)
}

/// The finding about the page size. A chunk of SPE's buffer is at least a page, and is decoded with
/// interrupts off, so large pages take long.
fn page_size(subject: &Subject) -> Finding {
    let page = subject.process.page_size;
    let records = page / RECORD_BYTES;
    let nanos = records * NANOS_PER_RECORD;
    let found = format!(
        "{} KiB: a chunk of one page is {records} records, about {} us with interrupts off",
        page / 1024,
        nanos / 1000
    );
    if nanos <= IRQ_OFF_MAX_NANOS {
        return AREA.ok("page size", found);
    }
    let loss = Loss::new(
        "some records: those that do not fit the time limit are skipped and counted, and the \
         estimate is scaled",
    )
    .advise(
        "boot the distribution's kernel with 4 KiB pages, or allow the longer time by \
         --spe-irq-max",
    );
    AREA.degraded("page size", found, loss)
}

fn thread_ids(config: Option<&KernelConfig>) -> Finding {
    let check = "thread ids";
    let loss = Loss::new(
        "exact owners: without thread ids in the records, owners are inferred from the times of \
         context switches",
    );
    let option = "CONFIG_PID_IN_CONTEXTIDR";
    match config.map(|config| config.built("PID_IN_CONTEXTIDR")) {
        Some(Built::In) => AREA.ok(check, format!("{option} is set")),
        Some(Built::Module | Built::Not) => AREA.degraded(
            check,
            format!("{option} is not set"),
            loss.advise(format!(
                "boot a kernel that is built with {option}=y, as Debian's are"
            )),
        ),
        None => AREA.degraded(
            check,
            format!("whether {option} is set is not known"),
            loss.advise("make the kernel's configuration readable (see config above)"),
        ),
    }
}

/// The driver allows physical addresses by the rule for kernel profiling (`perf_allow_kernel`).
fn physical_addresses(subject: &Subject) -> Finding {
    let check = "physical addresses";
    if subject.has(CapabilitySet::PERFMON) {
        return AREA.ok(check, "CAP_PERFMON allows them");
    }
    let text = subject.proc("sys/kernel/perf_event_paranoid");
    let level = text.as_deref().map_or("", str::trim);
    if level.parse::<i64>().is_ok_and(|level| level <= 1) {
        return AREA.ok(check, format!("kernel.perf_event_paranoid is {level}"));
    }
    let binary = subject.process.binary.display();
    let loss = Loss::new(
        "cache lines shared between processes: without physical addresses, `mem --hot-lines` \
         identifies lines by virtual address within one process",
    )
    .run(
        "grant the capability",
        format!("sudo setcap cap_bpf,cap_perfmon+ep {binary}"),
    );
    AREA.degraded(
        check,
        "no CAP_PERFMON, and kernel.perf_event_paranoid is above 1",
        loss,
    )
}

/// AUX buffers are locked memory: beyond the limit they need a capability (kernel/events/core.c,
/// `perf_mmap`).
fn locked_memory(subject: &Subject) -> Finding {
    let check = "locked memory";
    if subject.has(CapabilitySet::IPC_LOCK) {
        return AREA.ok(check, "CAP_IPC_LOCK lifts its limit");
    }
    let limit = subject
        .proc("sys/kernel/perf_event_mlock_kb")
        .map_or("a limit".to_owned(), |kb| format!("{kb} KiB per CPU"));
    let binary = subject.process.binary.display();
    let loss = Loss::new("SPE buffers past that limit").run(
        "grant the capability",
        format!("sudo setcap cap_bpf,cap_perfmon,cap_ipc_lock+ep {binary}"),
    );
    AREA.degraded(check, format!("{limit}, and no CAP_IPC_LOCK"), loss)
}
