//! Decides which guests run which tests: [`GROUPS`]. A test's group names the guests of CI that run
//! it, and its needs; `--all` runs the test in every guest that meets the needs.
//!
//! A test runs on every kernel if its result depends on the kernel, on the oldest and the newest if
//! it uses an interface that sometimes changes, and else once.

#[cfg(test)]
mod tests;

use super::{
    boots::{BOOTS, Boot},
    packages::Arch,
};

/// The guests of CI that run a group.
pub(super) enum Runs {
    /// The first guest of each kernel series and architecture.
    Each,
    /// The first guests of an architecture's oldest and newest kernel series.
    Ends(Arch),
    /// The guests with these names.
    In(&'static [&'static str]),
}

/// What a guest must have to run a group.
#[derive(Clone, Copy)]
pub(super) enum Needs {
    Nothing,
    TwoCpus,
    /// Two CPUs, and a clock that follows the host: recorders have to keep up with samples, and
    /// host tests need real time.
    RunningClock,
    /// Two CPUs, and the test PMU as the only core PMU. Comparisons with a clock are exact if the
    /// clock counts instructions, else they have a wide bound.
    TestPmusAlone,
    /// As [`Needs::TestPmusAlone`], with a clock that counts instructions, on arm64.
    ExactArm,
    /// A PMU that counts each instruction.
    CountedInstructions,
}

/// Tests of one binary (a `[[test]]` of probe-user).
pub(super) struct Group {
    pub(super) binary: &'static str,
    runs: Runs,
    needs: Needs,
    /// Prefixes of the paths of the tests.
    pub(super) tests: &'static [&'static str],
}

/// Guests in which tests of metrics, shares and multiplexing are exact.
const EXACT: &[&str] = &["arm64-7.3-exact"];

/// The tests that make the recordings for tests without a kernel.
pub(super) const RECORDINGS: &str = "recordings::";

pub(super) const GROUPS: &[Group] = &[
    Group {
        binary: "vm",
        runs: Runs::Each,
        needs: Needs::Nothing,
        tests: &["smoke::"],
    },
    // The same tests in the guests of other groups.
    Group {
        binary: "vm",
        runs: Runs::In(&["amd64-7.3-nocss", "amd64-7.3-rt"]),
        needs: Needs::Nothing,
        tests: &["smoke::"],
    },
    // These guests have a kernel of another guest.
    Group {
        binary: "vm",
        runs: Runs::In(&["arm64-7.3-exact", "arm64-7.3-icount"]),
        needs: Needs::Nothing,
        tests: &["smoke::the_guest_is"],
    },
    // These depend on the kernel: the verifier, hooks, accounting, pins, hotplug.
    Group {
        binary: "vm",
        runs: Runs::Each,
        needs: Needs::TwoCpus,
        tests: &[
            "accounting::",
            "hooks::a_complete_hook",
            "hotplug::a_cpu_",
            "pins::",
            "sampled::processes",
        ],
    },
    Group {
        binary: "vm",
        runs: Runs::In(&["amd64-7.3-nocss"]),
        needs: Needs::TwoCpus,
        tests: &["hooks::without_the_perf_event_css"],
    },
    Group {
        binary: "vm",
        runs: Runs::In(&["amd64-7.3-rt"]),
        needs: Needs::TwoCpus,
        tests: &[
            "accounting::",
            "hooks::a_complete_hook",
            "pins::",
            "sampled::processes",
        ],
    },
    // Preemptible kernels.
    Group {
        binary: "vm",
        runs: Runs::In(&["amd64-6.12", "amd64-7.3", "amd64-7.3-rt", "arm64-7.3"]),
        needs: Needs::TwoCpus,
        tests: &["hooks::missed_switches"],
    },
    Group {
        binary: "vm",
        runs: Runs::Ends(Arch::Arm64),
        needs: Needs::TwoCpus,
        tests: &[
            "hotplug::groups_take_turns",
            "hotplug::the_time_of_an_offline_cpu",
            "hotplug::waits_go_on",
            "pmus::",
            "sampled::samples_of_a_clock",
            "sampled_plan::",
            "scale::",
            "uncore::",
        ],
    },
    // AMD's IBS and Intel's PEBS.
    Group {
        binary: "vm",
        runs: Runs::Ends(Arch::Amd64),
        needs: Needs::TwoCpus,
        tests: &["accesses::", "agent_accesses::"],
    },
    Group {
        binary: "vm",
        runs: Runs::Ends(Arch::Amd64),
        needs: Needs::RunningClock,
        tests: &["access_record::"],
    },
    // Arm's SPE: the program uses a kprobe on the oldest kernel, and fentry on the newest.
    Group {
        binary: "vm",
        runs: Runs::Ends(Arch::Arm64),
        needs: Needs::RunningClock,
        tests: &[
            "agent::",
            "regions::",
            "spe::",
            "spe_clock::",
            "spe_lives::",
            "spe_losses::",
        ],
    },
    // Sizes of buffers and chunks depend on the page size, here 16 KiB.
    Group {
        binary: "vm",
        runs: Runs::In(&["arm64-6.12"]),
        needs: Needs::RunningClock,
        tests: &[
            "mem_record::",
            "spe::every_record_is",
            "spe::pages_and_processes",
        ],
    },
    Group {
        binary: "vm",
        runs: Runs::In(&["arm64-7.3"]),
        needs: Needs::RunningClock,
        tests: &["roofline::", "spe_lines::"],
    },
    Group {
        binary: "vm",
        runs: Runs::In(EXACT),
        needs: Needs::TestPmusAlone,
        tests: &[
            "capacity::",
            "metrics::frequency_is_accurate",
            "metrics::every_core_metric_by",
            "metrics_stat::",
            "metrics_uncore::",
            "calibrated::",
            "shares::weights_are_live",
            "turns::",
        ],
    },
    // Intel PMUs.
    Group {
        binary: "vm",
        runs: Runs::In(&["amd64-6.12"]),
        needs: Needs::TestPmusAlone,
        tests: &[
            "hybrid::",
            "metrics::",
            "metrics_uncore::of_sapphire",
            "turns::",
        ],
    },
    // These take two minutes.
    Group {
        binary: "vm",
        runs: Runs::In(EXACT),
        needs: Needs::ExactArm,
        tests: &[
            "shares::shares_are_near",
            "shares::shares_by_samples",
            "shares::the_stated_error",
        ],
    },
    Group {
        binary: "vm",
        runs: Runs::In(EXACT),
        needs: Needs::ExactArm,
        tests: &[RECORDINGS],
    },
    Group {
        binary: "vm",
        runs: Runs::In(&["arm64-7.3-icount"]),
        needs: Needs::CountedInstructions,
        tests: &["capacity::", "icount::"],
    },
    // Host tests that depend on the kernel. Left out are tests that need programs that guests lack,
    // and tests that compare counts with clocks: emulation makes programs slow. Guest tests compare
    // with the exact counts of the test PMU instead.
    Group {
        binary: "host",
        runs: Runs::Ends(Arch::Arm64),
        needs: Needs::RunningClock,
        tests: &[
            "command::page_faults",
            "conservation::with_a_map",
            "conservation::with_one",
            "doctor::as_root",
            "doctor::events_listed",
            "lifetimes::five_hundred",
            "lifetimes::rows_of_cgroups",
            "memory::a_command_has_its_memory",
            "moves::by_process",
            "rights::",
            "sampled::samples_of",
            "sampled::rows_without",
            "waits_of_containers::who",
        ],
    },
    Group {
        binary: "host",
        runs: Runs::Each,
        needs: Needs::RunningClock,
        tests: &["waits::", "waits_of_containers::weights"],
    },
    // Kernels that preempt BPF programs.
    Group {
        binary: "host",
        runs: Runs::In(&["amd64-7.3", "amd64-7.3-rt"]),
        needs: Needs::TwoCpus,
        tests: &["lifetimes::records_are_whole"],
    },
];

/// The groups that run in a guest: those of CI, or with `all` every group whose needs it meets.
pub(super) fn groups(boot: &Boot, all: bool) -> impl Iterator<Item = &'static Group> {
    GROUPS
        .iter()
        .filter(move |group| group.needs.are_met(boot) && (all || group.runs.include(boot)))
}

/// Whether recordings are made in a guest.
pub(super) fn records(boot: &Boot) -> bool {
    groups(boot, false).any(|group| group.tests.contains(&RECORDINGS))
}

impl Needs {
    fn are_met(self, boot: &Boot) -> bool {
        let has_two_cpus = boot.cpus == 2;
        let test_pmus_alone =
            has_two_cpus && boot.controllers && !(boot.arch == Arch::Arm64 && boot.pmu);
        let counts_instructions = boot.icount_shift.is_some();
        match self {
            Self::Nothing => true,
            Self::TwoCpus => has_two_cpus,
            Self::RunningClock => has_two_cpus && boot.controllers && !counts_instructions,
            Self::TestPmusAlone => test_pmus_alone,
            Self::ExactArm => test_pmus_alone && counts_instructions && boot.arch == Arch::Arm64,
            Self::CountedInstructions => counts_instructions && !has_two_cpus,
        }
    }
}

impl Runs {
    fn include(&self, boot: &Boot) -> bool {
        let is_same_kernel = |other: &&Boot| (other.arch, other.series) == (boot.arch, boot.series);
        let is_first = BOOTS
            .iter()
            .find(is_same_kernel)
            .is_some_and(|it| it.name == boot.name);
        match self {
            Self::Each => is_first,
            Self::Ends(arch) => {
                let series = (BOOTS.iter())
                    .filter(|other| other.arch == *arch)
                    .map(|other| other.series);
                let oldest = series.clone().min_by_key(|series| version(series));
                let newest = series.max_by_key(|series| version(series));
                is_first && boot.arch == *arch && [oldest, newest].contains(&Some(boot.series))
            }
            Self::In(names) => names.contains(&boot.name),
        }
    }
}

/// The numbers of a series, to sort by.
fn version(series: &str) -> Vec<u32> {
    let numbers = series.split('.').map(str::parse);
    numbers.filter_map(Result::ok).collect()
}
