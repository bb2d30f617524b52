//! Generic names have the numbers of `include/uapi/linux/perf_event.h`.

use super::{Counter, Source, counter, event, machine, refusal};
use crate::event::{Scope, generic};

fn numbered(pmu: &str, type_: u32, config: u64) -> Counter {
    Counter {
        pmu: Some(pmu.to_owned()),
        scope: Scope::Cpu,
        type_,
        config,
        config1: 0,
        config2: 0,
        config3: 0,
        config4: 0,
    }
}

#[test]
fn hardware_names_have_their_numbers() {
    let table = [
        ("cycles", 0),
        ("cpu-cycles", 0),
        ("instructions", 1),
        ("cache-references", 2),
        ("cache-misses", 3),
        ("branches", 4),
        ("branch-instructions", 4),
        ("branch-misses", 5),
        ("bus-cycles", 6),
        ("stalled-cycles-frontend", 7),
        ("idle-cycles-frontend", 7),
        ("stalled-cycles-backend", 8),
        ("idle-cycles-backend", 8),
        ("ref-cycles", 9),
    ];
    let (spr, grace) = (machine("spr"), machine("grace"));
    for (name, config) in table {
        assert_eq!(counter(name, &spr), numbered("cpu", 0, config), "{name}");
        assert_eq!(
            counter(name, &grace),
            numbered("armv8_pmuv3_0", 0, config),
            "{name}"
        );
    }
}

#[test]
fn software_names_have_their_numbers() {
    let table = [
        ("cpu-clock", 0),
        ("task-clock", 1),
        ("page-faults", 2),
        ("faults", 2),
        ("context-switches", 3),
        ("cs", 3),
        ("cpu-migrations", 4),
        ("migrations", 4),
        ("minor-faults", 5),
        ("major-faults", 6),
        ("alignment-faults", 7),
        ("emulation-faults", 8),
        ("dummy", 9),
        ("cgroup-switches", 11),
    ];
    let odd = machine("odd");
    for (name, config) in table {
        assert_eq!(
            counter(name, &odd),
            numbered("software", 1, config),
            "{name}"
        );
        let unit = event(name, &odd).unit;
        let is_clock = matches!(name, "cpu-clock" | "task-clock");
        assert_eq!(unit.as_deref(), is_clock.then_some("ns"), "{name}");
    }
    assert_eq!(
        refusal("bpf-output", &odd),
        "`bpf-output` carries data and counts nothing; leave it out"
    );
}

#[test]
fn duration_time_is_the_wall_clock() {
    let event = event("duration_time", &machine("odd"));
    assert_eq!(event.source, Source::DurationTime);
    assert_eq!(
        (event.name.as_str(), event.unit.as_deref()),
        ("duration_time", Some("ns"))
    );
}

/// cache | operation << 8 | result << 16, with the usual names of `perf list`.
#[test]
fn cache_names_have_their_numbers() {
    const ALL: &[u64] = &[0, 1, 2];
    let caches: [(&str, u64, &[u64]); 7] = [
        ("L1-dcache", 0, ALL),
        ("L1-icache", 1, &[0, 2]),
        ("LLC", 2, ALL),
        ("dTLB", 3, ALL),
        ("iTLB", 4, &[0]),
        ("branch", 5, &[0]),
        ("node", 6, ALL),
    ];
    let operations = [
        ("loads", "load", 0),
        ("stores", "store", 1),
        ("prefetches", "prefetch", 2),
    ];
    let spr = machine("spr");
    let mut accepted = 0;
    for (cache, id, allowed) in caches {
        for (plural, singular, op) in operations {
            let (all, misses) = (
                format!("{cache}-{plural}"),
                format!("{cache}-{singular}-misses"),
            );
            if allowed.contains(&op) {
                let config = id | op << 8;
                assert_eq!(counter(&all, &spr), numbered("cpu", 3, config), "{all}");
                let config = config | 1 << 16;
                assert_eq!(
                    counter(&misses, &spr),
                    numbered("cpu", 3, config),
                    "{misses}"
                );
                accepted += 2;
            } else {
                for name in [all, misses] {
                    assert_eq!(
                        refusal(&name, &spr),
                        format!(
                            "no hardware counts `{name}`: perf knows no {singular} on {cache}; use \
                             {cache}-loads"
                        )
                    );
                }
            }
        }
    }
    assert_eq!(accepted, 32);
}

#[test]
fn other_spellings_of_cache_names_resolve() {
    let spr = machine("spr");
    for (name, config) in [
        ("L1-dcache", 0),
        ("L1-data-load", 0),
        ("l1d-read-misses", 0x1_0000),
        ("l1-d-write-miss", 0x1_0100),
        ("l1d-speculative-read-refs", 0x200),
        ("L1-instruction-speculative-load-misses", 0x1_0201),
        ("L2-misses", 0x1_0002),
        ("LLC-access", 2),
        ("LLC-misses-store", 0x1_0102),
        ("Data-TLB-Reference", 3),
        ("d-tlb-stores", 0x103),
        ("i-tlb-miss", 0x1_0004),
        ("Instruction-TLB-ops", 4),
        ("bpu-load-misses", 0x1_0005),
        ("btb-loads", 5),
        ("bpc-read", 5),
        ("branches-loads", 5),
        ("node", 6),
    ] {
        assert_eq!(counter(name, &spr), numbered("cpu", 3, config), "{name}");
    }
}

#[test]
fn names_that_only_look_like_cache_events_are_none() {
    for name in [
        "LLC-",
        "LLC-loads-",
        "LLC--loads",
        "LLC-loads-stores",
        "LLC-misses-misses",
        "LLC-loads-misses-loads",
        "LLCs",
        "l1d_cache",
        "L3-loads",
        "loads",
        "",
    ] {
        assert_eq!(generic::cache(name), None, "{name}");
    }
}

#[test]
fn every_name_that_can_be_suggested_resolves() {
    let spr = machine("spr");
    let names: Vec<String> = generic::names().collect();
    // Hardware, software, scheduler and cache events, and duration_time.
    assert_eq!(names.len(), 14 + 14 + 7 + 32 + 1);
    for name in names {
        assert_eq!(event(&name, &spr).name, name);
    }
}
