//! Correct lists, resolved on a machine.

use super::{Source, counter, event, machine, parse};
use crate::{
    event::{Counter, Exclude, Scope},
    machine::Pmus,
};

const NOTHING: Exclude = Exclude {
    user: false,
    kernel: false,
    hv: false,
};
const ONLY_USER: Exclude = Exclude {
    kernel: true,
    hv: true,
    ..NOTHING
};
const ONLY_KERNEL: Exclude = Exclude {
    user: true,
    hv: true,
    ..NOTHING
};

#[test]
fn names_of_the_core_pmu_resolve() {
    let grace = machine("grace");
    for text in [
        "inst_retired",
        "INST_RETIRED",
        "armv8_pmuv3_0/inst_retired/",
    ] {
        let counter = counter(text, &grace);
        let pmu = grace.get("armv8_pmuv3_0").unwrap().unwrap();
        assert_eq!((counter.type_, counter.config), (pmu.type_, 8), "{text}");
        let cpus = pmu.cpus.clone().unwrap();
        assert_eq!(counter.scope, Scope::Cpus(cpus), "its own cores only");
        assert_eq!(event(text, &grace).name, text);
    }
    let spr = machine("spr");
    assert_eq!(counter("slots", &spr).config, 0x400);
    assert_eq!(counter("topdown-be-bound", &spr).type_, 4);
}

/// perf's other name of a generic event finds the PMU's own event.
#[test]
fn generic_names_between_slashes_are_the_pmus_events() {
    let spr = machine("spr");
    assert_eq!(counter("cpu/cycles/", &spr).config, 0x3c);
    assert_eq!(counter("cpu/branches,cmask=1/", &spr).config, 0x0100_00c4);
}

#[test]
fn cycles_without_a_pmu_are_those_of_the_cpu() {
    let grace = machine("grace");
    assert_eq!(counter("cycles", &grace).type_, 0);
    let scf = counter("nvidia_scf_pmu_0/cycles/", &grace);
    assert_eq!((scf.config, scf.config1), (1 << 32, 0));
}

#[test]
fn raw_codes_go_to_the_core_pmu() {
    let (grace, spr) = (machine("grace"), machine("spr"));
    let arm = grace.get("armv8_pmuv3_0").unwrap().unwrap().type_;
    assert_ne!(arm, 4);
    for (text, config) in [("r8", 8), ("r1A:u", 0x1a), ("rffffffffffffffff", u64::MAX)] {
        let type_and_config = |pmus| {
            let counter = counter(text, pmus);
            (counter.type_, counter.config)
        };
        assert_eq!(type_and_config(&spr), (4, config), "{text}");
        assert_eq!(type_and_config(&grace), (arm, config), "{text}");
    }
}

#[test]
fn generic_events_resolve_on_each_kind_of_core() {
    let odd = machine("odd");
    // One event for each PMU, on its CPUs. Where no PMU has the raw type, the kernel finds the PMU
    // by the CPU.
    let kinds = |text: &str, pmus: &Pmus| -> Vec<(String, String, u64)> {
        let groups = parse(text, pmus).unwrap();
        let events = groups.into_iter().flat_map(|group| group.events);
        let kinds = events.map(|event| match event.source {
            Source::Counter(Counter {
                scope: Scope::Cpus(cpus),
                config,
                ..
            }) => (event.name, cpus.to_string(), config),
            other => panic!("{other:?} is of no kind of core"),
        });
        kinds.collect()
    };
    let expected = |name: &str, cpus: &str, config| (name.to_owned(), cpus.to_owned(), config);
    assert_eq!(
        kinds("instructions:u", &odd),
        [
            expected("armv8_cortex_a55/instructions/u", "0-3", 1),
            expected("armv8_cortex_a76/instructions/u", "4-5", 1)
        ]
    );
    // cpu_core has the type of raw events, and the kernel would use it for all events.
    let hybrid = machine("hybrid");
    let (core, atom) = (4 << 32, 10 << 32);
    assert_eq!(
        kinds("{cycles,LLC-load-misses}", &hybrid),
        [
            expected("cpu_atom/cycles/", "4-11", atom),
            expected("cpu_atom/LLC-load-misses/", "4-11", atom | 0x1_0002),
            expected("cpu_core/cycles/", "0-3", core),
            expected("cpu_core/LLC-load-misses/", "0-3", core | 0x1_0002)
        ]
    );
    // The same holds in a group with an event of one kind, and for a name as it is printed.
    assert_eq!(
        kinds("{cpu_atom/branch-misses/,cycles}", &hybrid)[1],
        expected("cpu_atom/cycles/", "4-11", atom)
    );
    assert_eq!(
        kinds("cpu_core/cycles/", &hybrid),
        [expected("cpu_core/cycles/", "0-3", core)]
    );
    let groups = parse("{cycles,instructions}", &hybrid).unwrap();
    assert_eq!(groups.len(), 2);
    assert!(
        groups
            .iter()
            .all(|group| group.explicit && group.events.len() == 2)
    );
    let a76 = counter("armv8_cortex_a76/inst_retired/", &odd);
    assert_eq!((a76.type_, a76.config), (11, 8));
    assert_eq!(
        counter("inst_retired", &odd),
        a76,
        "only one of them has it"
    );
}

#[test]
fn fields_of_every_shape_are_encoded() {
    let odd = machine("odd");
    let words = |terms: &str| {
        let counter = counter(&format!("split/{terms}/"), &odd);
        [
            counter.config,
            counter.config1,
            counter.config2,
            counter.config3,
        ]
    };
    assert_eq!(words("event=0xabc"), [0xa_0000_00bc, 0, 0, 0]);
    assert_eq!(words("event=4095"), [0xf_0000_00ff, 0, 0, 0], "decimal");
    assert_eq!(words("plain"), [0xa_0000_00bc, 0, 0, 0]);
    assert_eq!(words("event=plain"), words("plain"));
    assert_eq!(words("flag"), [1 << 63, 0, 0, 0], "a bare flag is 1");
    assert_eq!(words("flagged"), [1 << 63 | 1, 0, 0, 0]);
    assert_eq!(
        words("flagged,flag=0"),
        [1, 0, 0, 0],
        "a field replaces the event's"
    );
    assert_eq!(words("flag=0,flagged"), [1, 0, 0, 0], "in either order");
    assert_eq!(words("far=0xf,low=1"), [0, 0xf000_0000_0000_0001, 0, 0]);
    assert_eq!(words("interleaved=0xb"), [0, 0b1_0001_0100, 0, 0]);
    assert_eq!(words("wide=0xffffffffffffffff"), [0, 0, u64::MAX, 0]);
    assert_eq!(words("third=0xff"), [0, 0, 0, 0xff0]);
    let fourth = counter("split/config4=0x9/", &odd);
    assert_eq!((fourth.config3, fourth.config4), (0, 9));
    assert_eq!(
        words("config=0x5,config1=6,config2=7,config3=8"),
        [5, 6, 7, 8]
    );
    assert_eq!(
        words("event=2,config=0xf00"),
        [0xf02, 0, 0, 0],
        "fields go on top of words"
    );
    assert_eq!(
        words("halves"),
        [2, 0, 0, 0],
        "a word of the event, then its field"
    );
}

#[test]
fn units_scales_and_names_are_read() {
    let (odd, spr) = (machine("odd"), machine("spr"));
    let read = event("uncore_imc_0/cas_count_read/", &spr);
    assert_eq!(
        (read.scale, read.unit.as_deref()),
        (Some(6.103_515_625e-5), Some("MiB"))
    );
    let both = event("split/both,name=traffic/", &odd);
    assert_eq!((both.scale, both.unit.as_deref()), (Some(64.0), Some("B")));
    assert_eq!(both.name, "traffic");
    let raw = event("split/event=0x4/", &odd);
    assert_eq!((raw.scale, raw.unit), (None, None));
    assert_eq!(event("cpu/cycles,name=c/u", &spr).name, "c");
}

/// The bits are those that `perf stat -vv` prints.
#[test]
fn modifiers_exclude_the_other_levels() {
    let spr = machine("spr");
    let excluded = |user, kernel, hv| Exclude { user, kernel, hv };
    for (text, exclude, name) in [
        ("cycles", NOTHING, "cycles"),
        ("cycles:u", ONLY_USER, "cycles:u"),
        ("cycles:k", ONLY_KERNEL, "cycles:k"),
        ("cycles:h", excluded(true, true, false), "cycles:h"),
        ("cycles:ku", excluded(false, false, true), "cycles:uk"),
        ("cycles:ukh", NOTHING, "cycles:ukh"),
        ("cpu/slots/k", ONLY_KERNEL, "cpu/slots/k"),
        ("cpu/slots/:k", ONLY_KERNEL, "cpu/slots/k"),
        ("r1a:u", ONLY_USER, "r1a:u"),
        ("page-faults:u", ONLY_USER, "page-faults:u"),
        ("msr/tsc/", NOTHING, "msr/tsc/"),
    ] {
        let event = event(text, &spr);
        assert_eq!(
            (event.exclude, event.name.as_str()),
            (exclude, name),
            "{text}"
        );
    }
}

#[test]
fn the_modifiers_of_a_group_apply_to_its_events() {
    let spr = machine("spr");
    let text = "duration_time, {cycles:u,instructions,page-faults,msr/tsc/,cpu/slots/}:k ,cs";
    let groups = parse(text, &spr).unwrap();
    let shape: Vec<_> = groups
        .iter()
        .map(|group| (group.explicit, group.events.len()))
        .collect();
    assert_eq!(shape, [(false, 1), (true, 5), (false, 1)]);
    let [cycles, rest @ ..] = &groups[1].events[..] else {
        unreachable!()
    };
    assert_eq!(
        (cycles.name.as_str(), cycles.exclude),
        (
            "cycles:uk",
            Exclude {
                hv: true,
                ..NOTHING
            }
        )
    );
    for event in rest {
        assert_eq!(event.exclude, ONLY_KERNEL, "{}", event.name);
    }
    assert_eq!(rest[0].name, "instructions:k");
    assert_eq!(rest[3].name, "cpu/slots/k");
    assert_eq!(groups[0].events[0].source, Source::DurationTime);
}

/// A whole command line of the documents.
#[test]
fn groups_of_the_documents_resolve() {
    let grace = machine("grace");
    let text = "duration_time,{nvidia_scf_pmu_0/event=cycles/,nvidia_scf_pmu_0/cmem_wb_access/},\
                {nvidia_scf_pmu_1/remote_socket_rd_data/}";
    let groups = parse(text, &grace).unwrap();
    let explicit: Vec<bool> = groups.iter().map(|group| group.explicit).collect();
    assert_eq!(explicit, [false, true, true]);
    let Source::Counter(counter) = &groups[2].events[0].source else {
        unreachable!()
    };
    assert_eq!(
        counter.scope,
        Scope::Uncore {
            cpus: "72".parse().unwrap()
        }
    );
}

/// As in perf: a name without its number, and patterns, stand for all instances.
#[test]
fn one_name_stands_for_all_instances() {
    let spr = machine("spr");
    let names = |text: &str| -> Vec<Vec<String>> {
        let groups = parse(text, &spr).unwrap_or_else(|error| panic!("{text}: {error}"));
        let names = groups.into_iter().map(|group| {
            let events = group.events.into_iter();
            events.map(|event| event.name).collect()
        });
        names.collect()
    };
    let for_each_unit = |events: &str| {
        let event = |unit: u32| vec![format!("uncore_imc_{unit}/{events}/")];
        [event(0), event(1)]
    };
    for pattern in ["uncore_imc", "imc", "uncore_imc_*", "uncore_imc_?", "*imc*"] {
        assert_eq!(
            names(&format!("{pattern}/event=0x5/")),
            for_each_unit("event=0x5"),
            "{pattern}"
        );
    }
    // A group of patterns becomes one group for each instance.
    assert_eq!(
        names("{uncore_imc/event=0x1/,uncore_imc/event=0x2/}"),
        [0, 1].map(|unit| [1, 2].map(|event| format!("uncore_imc_{unit}/event={event:#x}/")))
    );
    // Only PMUs that have the term: ch_mask exists on IIO units only.
    assert_eq!(
        names("uncore_*/event=0x83,ch_mask=0x1/"),
        [0, 1].map(|unit| [format!("uncore_iio_{unit}/event=0x83,ch_mask=0x1/")])
    );
    let refused = |text: &str| super::refusal(text, &spr);
    assert!(refused("uncore_*/nonsense=1/").contains("has no term `nonsense`"));
    assert!(refused("uncore_xyz_*/event=1/").starts_with("unknown PMU `uncore_xyz_*`"));
}
