//! Error messages of wrong lists, word for word.

use test_support::Tree;

use super::{Pmus, machine, refusal};
use crate::event::parse_countable;

fn assert_refusals(pmus: &Pmus, table: &[(&str, &str)]) {
    for (text, sentence) in table {
        assert_eq!(refusal(text, pmus), *sentence, "{text}");
    }
}

#[test]
fn wrong_syntax_is_reported_with_its_column() {
    assert_refusals(
        &machine("spr"),
        &[
            (
                "",
                "the list of events is empty; name at least one, such as task-clock",
            ),
            (
                "  ",
                "the list of events is empty; name at least one, such as task-clock",
            ),
            (
                "{cycles,instructions",
                "cannot read the events `{cycles,instructions` at column 21: expected `,` or `}`",
            ),
            (
                "cycles}",
                "cannot read the events `cycles}` at column 7: expected `,` or the end of the list",
            ),
            (
                "cycles instructions",
                "cannot read the events `cycles instructions` at column 8: expected `,` or the \
                 end of the list",
            ),
            (
                "cycles,,cs",
                "cannot read the events `cycles,,cs` at column 8: expected an event name, \
                 `pmu/term/` or `{`",
            ),
            (
                "cycles,",
                "cannot read the events `cycles,` at column 8: expected an event name, \
                 `pmu/term/` or `{`",
            ),
            (
                ",cycles",
                "cannot read the events `,cycles` at column 1: expected an event name, \
                 `pmu/term/` or `{`",
            ),
            (
                "{}",
                "cannot read the events `{}` at column 2: expected an event name or `pmu/term/`",
            ),
            (
                "{cs,{cs}}",
                "cannot read the events `{cs,{cs}}` at column 5: expected an event name or \
                 `pmu/term/`",
            ),
            (
                "cpu/slots",
                "cannot read the events `cpu/slots` at column 10: expected `,` or the closing `/`",
            ),
            (
                "cpu//",
                "cannot read the events `cpu//` at column 5: expected a term or an event of the \
                 PMU",
            ),
            (
                "cpu/slots,/",
                "cannot read the events `cpu/slots,/` at column 11: expected a term or an event \
                 of the PMU",
            ),
            (
                "cpu/event=/",
                "cannot read the events `cpu/event=/` at column 11: expected a value",
            ),
            (
                "cycles:",
                "cannot read the events `cycles:` at column 8: expected a modifier such as `u` or \
                 `k`",
            ),
            (
                "{cs}:",
                "cannot read the events `{cs}:` at column 6: expected a modifier such as `u` or \
                 `k`",
            ),
            (
                "zyklen-übrig",
                "cannot read the events `zyklen-übrig` at column 8: expected `,` or the end of \
                 the list",
            ),
        ],
    );
}

#[test]
fn wrong_names_are_reported_with_a_correction() {
    assert_refusals(
        &machine("spr"),
        &[
            (
                "cylces",
                "unknown event `cylces`; the nearest known ones are cycles, cpu-cycles, \
                 cache-misses",
            ),
            (
                "Page-Faults2",
                "unknown event `Page-Faults2`; the nearest known ones are page-faults, faults, \
                 major-faults",
            ),
            (
                "rxyz",
                "unknown event `rxyz`; the nearest known ones are ref-cycles, voluntary-switches, \
                 involuntary-switches",
            ),
            (
                "r10000000000000000",
                "unknown event `r10000000000000000`; the nearest known ones are branches, \
                 LLC-stores, mem-stores",
            ),
            (
                "clockticks",
                "`clockticks` is an event of uncore_imc_0, which is not the CPU's own PMU; write \
                 `uncore_imc_0/clockticks/`",
            ),
            (
                "tsc",
                "`tsc` is an event of msr, which is not the CPU's own PMU; write `msr/tsc/`",
            ),
            (
                "msr",
                "`msr` is a PMU and not an event; write `msr/event/` (its events: aperf, mperf, \
                 smi)",
            ),
            (
                "uncore_imx/clockticks/",
                "unknown PMU `uncore_imx` in `uncore_imx/clockticks/`; the nearest ones of this \
                 machine are uncore_imc_0, uncore_imc_1, uncore_iio_0",
            ),
            (
                "sched:sched_switch",
                "`sched:sched_switch` looks like a tracepoint; pmuscope counts events of PMUs, \
                 software events and duration_time",
            ),
            (
                "iTLB-stores",
                "no hardware counts `iTLB-stores`: perf knows no store on iTLB; use iTLB-loads",
            ),
        ],
    );
}

#[test]
fn wrong_terms_are_reported() {
    assert_refusals(
        &machine("grace"),
        &[
            (
                "nvidia_pcie_pmu_0/rd_bytes_loc,root_port=0x400/",
                "0x400 does not fit the term `root_port` of `nvidia_pcie_pmu_0`, which has room \
                 for 10 bits (config1:0-9); the largest value is 0x3ff",
            ),
            (
                "nvidia_pcie_pmu_0/rd_bytes_loc,port=1/",
                "`nvidia_pcie_pmu_0` has no term `port`; its terms are event, root_port, config, \
                 config1, config2, config3, config4, name",
            ),
            (
                "nvidia_pcie_pmu_0/rd_byte_loc/",
                "`nvidia_pcie_pmu_0` has no event or term `rd_byte_loc`; its nearest events are \
                 rd_bytes_loc, wr_bytes_loc, rd_req_loc, its terms event, root_port, config, \
                 config1, config2, config3, config4, name",
            ),
            (
                "nvidia_pcie_pmu_0/event=rd_byte_loc/",
                "`nvidia_pcie_pmu_0` has no event `rd_byte_loc`; its nearest ones are \
                 rd_bytes_loc, wr_bytes_loc, rd_req_loc",
            ),
            (
                "nvidia_pcie_pmu_0/rd_bytes_loc,root_port=first/",
                "`first` is no value for the term `root_port` of `nvidia_pcie_pmu_0`; give a \
                 number of at most 64 bits, decimal or with 0x",
            ),
            (
                "nvidia_pcie_pmu_0/config=0x10000000000000000/",
                "`0x10000000000000000` is no value for the term `config` of `nvidia_pcie_pmu_0`; \
                 give a number of at most 64 bits, decimal or with 0x",
            ),
            (
                "nvidia_pcie_pmu_0/rd_bytes_loc=1/",
                "`rd_bytes_loc` is an event of `nvidia_pcie_pmu_0` and takes no value; leave out \
                 the `=`",
            ),
            (
                "nvidia_pcie_pmu_0/rd_bytes_loc,wr_bytes_loc/",
                "`nvidia_pcie_pmu_0` is given two events at once, `rd_bytes_loc` and \
                 `wr_bytes_loc`; write them as two events of the list",
            ),
            (
                "nvidia_pcie_pmu_0/event=1,event=2/",
                "the term `event` of `nvidia_pcie_pmu_0` is given twice; keep one",
            ),
            (
                "armv8_pmuv3_0/cpu_cycles,period=1000/",
                "the term `period` of `armv8_pmuv3_0` is for perf's sampling and task modes; \
                 pmuscope counts per CPU, so leave it out",
            ),
            (
                "armv8_pmuv3_0/cpu_cycles,percore/",
                "the term `percore` of `armv8_pmuv3_0` is for perf's sampling and task modes; \
                 pmuscope counts per CPU, so leave it out",
            ),
        ],
    );
    assert_refusals(
        &machine("odd"),
        &[
            (
                "split/stranger/",
                "the event `stranger` of `split` asks for nosuch=0x1, which the format/ of its \
                 driver does not have; write the event's terms out",
            ),
            (
                "split/toowide/",
                "the event `toowide` of `split` asks for event=0x1000, which the format/ of its \
                 driver does not have; write the event's terms out",
            ),
            (
                "noformat/event=1/",
                "`noformat` has no term `event`; its terms are config, config1, config2, config3, \
                 config4, name",
            ),
            (
                "noformat/x/",
                "`noformat` has no event or term `x`; its nearest events are none, its terms \
                 config, config1, config2, config3, config4, name",
            ),
            (
                "split/event=0x1000/",
                "0x1000 does not fit the term `event` of `split`, which has room for 12 bits \
                 (config:0-7,32-35); the largest value is 0xfff",
            ),
            (
                "split/flag=2/",
                "0x2 does not fit the term `flag` of `split`, which has room for 1 bit \
                 (config:63); the largest value is 0x1",
            ),
        ],
    );
}

#[test]
fn wrong_modifiers_are_reported() {
    assert_refusals(
        &machine("spr"),
        &[
            (
                "cycles:pp",
                "the modifier `p` of `cycles:pp` asks for precise samples, and only sampled events \
                 have them (--sample); the modifiers are u (user), k (kernel), h (hypervisor) and, \
                 for --sample, p (precise)",
            ),
            (
                "cycles:x",
                "the modifier `x` of `cycles:x` is not known; the modifiers are u (user), k \
                 (kernel), h (hypervisor) and, for --sample, p (precise)",
            ),
            (
                "{cycles,cs}:D",
                "the modifier `D` of `{cycles,cs}:D` changes how the kernel schedules a group, \
                 and pmuscope does that itself; the modifiers are u (user), k (kernel), h \
                 (hypervisor) and, for --sample, p (precise)",
            ),
            (
                "uncore_imc_0/clockticks/u",
                "`uncore_imc_0/clockticks/u` cannot be narrowed to user or kernel: its PMU counts \
                 for the whole socket; leave out its modifiers",
            ),
            (
                "page-faults,task-clock:u",
                "`task-clock:u` cannot be narrowed to user or kernel: the kernel counts a clock at \
                 all levels; leave out its modifiers, or sample it: `stat --sample task-clock:u`",
            ),
            (
                "{page-faults,cpu-clock}:k",
                "`cpu-clock:k` cannot be narrowed to user or kernel: the kernel counts a clock at \
                 all levels; leave out its modifiers, or sample it: `stat --sample cpu-clock:k`",
            ),
            (
                "duration_time:u",
                "`duration_time:u` cannot be narrowed to user or kernel: it is the wall clock; \
                 leave out its modifiers",
            ),
        ],
    );
}

#[test]
fn groups_that_the_kernel_cannot_open_are_reported() {
    assert_refusals(
        &machine("grace"),
        &[
            (
                "{cycles,duration_time}",
                "duration_time is the wall clock and no counter, so it cannot be in the group \
                 `{cycles,duration_time}`; put it beside the group",
            ),
            (
                "{cycles,nvidia_scf_pmu_0/cycles/}",
                "the group `{cycles,nvidia_scf_pmu_0/cycles/}` mixes `cycles`, counted per CPU, \
                 with `nvidia_scf_pmu_0/cycles/`, counted per socket; put them in two groups",
            ),
            (
                "{nvidia_scf_pmu_0/cycles/,task-clock}",
                "the group `{nvidia_scf_pmu_0/cycles/,task-clock}` mixes `task-clock`, counted per \
                 CPU, with `nvidia_scf_pmu_0/cycles/`, counted per socket; put them in two groups",
            ),
            (
                "{nvidia_scf_pmu_0/cycles/,nvidia_scf_pmu_1/cycles/}",
                "the group `{nvidia_scf_pmu_0/cycles/,nvidia_scf_pmu_1/cycles/}` has events of \
                 the PMUs nvidia_scf_pmu_0 and nvidia_scf_pmu_1, and the kernel groups counters \
                 of one PMU only; make a group of each",
            ),
        ],
    );
}

#[test]
fn events_that_the_machine_cannot_count_are_reported() {
    let odd = machine("odd");
    assert_refusals(
        &odd,
        &[
            (
                "emptymask/ok/",
                "the cpumask of `emptymask` is empty, so there is no CPU to open `emptymask/ok/` \
                 on; bring a CPU of that part of the machine online",
            ),
            (
                "r11",
                "`r11` means something else on each kind of CPU of this machine; write it as \
                 `pmu/config=0x11/` with one of armv8_cortex_a55, armv8_cortex_a76",
            ),
            (
                "cpu_cycles",
                "`cpu_cycles` means something else on each kind of CPU of this machine; write it \
                 as `pmu/cpu_cycles/` with one of armv8_cortex_a55, armv8_cortex_a76",
            ),
            (
                "{armv8_cortex_a55/cpu_cycles/,armv8_cortex_a76/cpu_cycles/}",
                "the group `{armv8_cortex_a55/cpu_cycles/,armv8_cortex_a76/cpu_cycles/}` has \
                 events of the PMUs armv8_cortex_a55 and armv8_cortex_a76, and the kernel groups \
                 counters of one PMU only; make a group of each",
            ),
        ],
    );
}

/// A machine without a core PMU, such as most virtual machines.
#[test]
fn events_that_need_a_core_pmu_are_reported_without_one() {
    let root = Tree::new();
    root.pmu("software", &[("type", "1\n")]);
    let pmus = Pmus::read(root.path()).unwrap();
    for event in ["cycles", "LLC-loads", "r1a"] {
        assert_eq!(
            refusal(event, &pmus),
            format!(
                "`{event}` needs the CPU's own PMU, and this machine shows none; software events \
                 such as task-clock work without"
            )
        );
    }
    let list = "{cycles,task-clock},instructions:u,{r1a,LLC-loads},page-faults";
    let (groups, uncountable) = parse_countable(list, &pmus).unwrap();
    let counted = groups.iter().flat_map(|group| &group.events);
    let counted: Vec<&str> = counted.map(|event| event.name.as_str()).collect();
    assert_eq!(counted, ["task-clock", "page-faults"]);
    let names: Vec<&str> = uncountable.iter().map(|it| it.name.as_str()).collect();
    assert_eq!(names, ["cycles", "instructions:u", "r1a", "LLC-loads"]);
    assert_eq!(uncountable[0].reason, refusal("cycles", &pmus));
    // A wrong name is an error also beside events that cannot be counted.
    assert!(parse_countable("cycles,page-fault", &pmus).is_err());
    root.pmu("cpu", &[("type", "four\n")]);
    let pmus = Pmus::read(root.path()).unwrap();
    assert_eq!(
        refusal("cycles", &pmus),
        format!(
            "`cycles` needs the CPU's own PMU, and this machine shows none (not read: \
             {}/cpu/type: does not hold a number); software events such as task-clock work without",
            root.join("bus/event_source/devices").display()
        )
    );
}
