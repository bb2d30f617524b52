//! What is written is read back the same, and what was not written is refused with its line.

use std::{collections::BTreeMap, path::Path, sync::Arc, time::Duration};

use probe_common::{
    CgroupId, CpuState, UsageKey, UsageRow,
    spe::{Access, Class, PageKey, PageRow, SourceTable, SpeCpu, SpeKey, SpeRow},
};
use proptest::{collection, prelude::*};

use super::*;
use crate::{
    catalogue::{Catalogue, Chip, DeviceSpec, FoundBy, Hardware, Settings},
    devices::{CgroupIo, Complex, ComplexKind, Device, DeviceUse, Devices, Moved, PciePmu, Port},
    event,
    machine::{
        Pmus,
        resctrl::{Group, Monitored},
        topology::Topology,
    },
    plan::{Capacity, Request},
    snapshot::{Health, Hook, Names, SpeCounts, SpeHealth, SpeHook, SpeReading, UncoreReading},
};

fn written(plan: &Plan, snapshots: &[Snapshot]) -> String {
    let mut out = Vec::new();
    let mut writer = Writer::new(&mut out, plan).unwrap();
    for snapshot in snapshots {
        writer.write(snapshot).unwrap();
    }
    String::from_utf8(out).unwrap()
}

fn read(text: &str) -> Result<(Plan, Vec<Snapshot>), RecordingError> {
    let reader = Reader::new(text.as_bytes(), "a.jsonl")?;
    let plan = reader.plan().clone();
    Ok((plan, reader.collect::<Result<_, _>>()?))
}

fn keys() -> impl Strategy<Value = (CgroupId, u32, u16, u16)> {
    let cgroup = prop_oneof![0..9_u64, Just(u64::MAX), Just(u64::MAX - 2)];
    (cgroup.prop_map(CgroupId), any::<u32>(), 0..9_u16, 0..99_u16)
}

fn usage() -> impl Strategy<Value = (UsageKey, UsageRow)> {
    (keys(), any::<[u64; UsageRow::WORDS]>()).prop_map(|((cgroup, tgid, cpu, group), words)| {
        let key = UsageKey {
            cgroup,
            tgid,
            cpu,
            group,
        };
        (key, UsageRow::from_words(&words))
    })
}

/// Any number of JSON: no recording has others.
fn number() -> impl Strategy<Value = f64> {
    prop::num::f64::NORMAL | prop::num::f64::SUBNORMAL | prop::num::f64::ZERO
}

fn sampled() -> impl Strategy<Value = (SpeKey, SpeCounts)> {
    let access = (0..4_usize, prop::option::of(0..99_u64));
    let counts = (
        any::<[u64; SpeRow::WORDS]>(),
        number(),
        number(),
        any::<u64>(),
    );
    (keys(), access, counts).prop_map(
        |((cgroup, tgid, cpu, _), (class, source), (words, operations, variance, made))| {
            let key = SpeKey {
                cgroup,
                tgid,
                cpu,
                access: Access::new(Class::ALL[class], source),
            };
            let row = SpeRow::from_words(&words);
            let counts = SpeCounts {
                row,
                operations,
                variance,
                made,
            };
            (key, counts)
        },
    )
}

fn pages() -> impl Strategy<Value = Vec<(PageKey, PageRow)>> {
    let page = any::<([u64; PageKey::WORDS], [u64; PageRow::WORDS])>();
    let page = page.prop_map(|(key, row)| (PageKey::from_words(&key), PageRow::from_words(&row)));
    collection::vec(page, 0..3)
}

fn spe() -> impl Strategy<Value = SpeReading> {
    let rows = collection::hash_map(sampled().prop_map(|(key, _)| key), sampled(), 0..4);
    let rows = rows.prop_map(|rows| rows.into_iter().map(|(key, (_, row))| (key, row)).collect());
    let freed = collection::vec(sampled(), 0..3);
    let sum = any::<[u64; SpeCpu::WORDS]>();
    let stats = prop::option::of(any::<u64>());
    (rows, freed, pages(), sum, stats, any::<bool>()).prop_map(
        |(rows, freed, pages, sum, bpf_stats, kprobe)| SpeReading {
            rows,
            freed,
            pages,
            tables: Arc::new(BTreeMap::from([
                (0, SourceTable::Common),
                (9, SourceTable::HiSilicon),
            ])),
            health: SpeHealth {
                hook: if kprobe {
                    SpeHook::Kprobe
                } else {
                    SpeHook::Fentry
                },
                period: 4096,
                sum: SpeCpu::from_words(&sum),
                longest: 7,
                rows: 3,
                sampler: BTreeMap::from([("sample_pop".to_owned(), 5)]),
                aux_size: 65_536,
                unlogged: 2,
                bpf_stats,
            },
        },
    )
}

fn uncore() -> impl Strategy<Value = Vec<UncoreReading>> {
    let count = prop::option::of(any::<u64>());
    let reading = (0..9_usize, 0..4_u32, 0..3_u16, count, any::<[u64; 3]>());
    let reading =
        reading.prop_map(
            |(at, socket, instance, count, [skew, enabled, running])| UncoreReading {
                at,
                socket,
                instance,
                count,
                skew,
                enabled,
                running,
            },
        );
    collection::vec(reading, 0..5)
}

fn names() -> impl Strategy<Value = Names> {
    let cgroups = collection::hash_map(any::<u64>().prop_map(CgroupId), any::<String>(), 0..4);
    let processes = collection::hash_map(any::<u32>(), any::<String>(), 0..4);
    (cgroups, processes).prop_map(|(cgroups, processes)| Names { cgroups, processes })
}

fn device_use() -> DeviceUse {
    DeviceUse {
        io: vec![CgroupIo {
            id: CgroupId(7),
            path: "/a b".to_owned(),
            total: BTreeMap::from([(
                "259:0".to_owned(),
                Moved {
                    read: 1,
                    written: u64::MAX,
                },
            )]),
        }],
        holders: Arc::default(),
        fresh: true,
    }
}

fn snapshots() -> impl Strategy<Value = Snapshot> {
    let rows = collection::hash_map(usage().prop_map(|(key, _)| key), usage(), 0..6);
    let rows = rows.prop_map(|rows| rows.into_iter().map(|(key, (_, row))| (key, row)).collect());
    let parts = (rows, collection::vec(usage(), 0..3), uncore());
    let more = (prop::option::of(spe()), names(), any::<[bool; 4]>());
    let at = any::<u64>().prop_map(Duration::from_nanos);
    (at, parts, more, any::<[u64; CpuState::WORDS]>()).prop_map(
        |(at, (rows, freed, uncore), (spe, names, [topology, devices, monitored, hook]), state)| {
            let health = Health {
                hook: if hook {
                    Hook::CgroupSwitches
                } else {
                    Hook::SchedSwitch
                },
                sum: CpuState::from_words(&state),
                flushes: state[0],
                exchanges: state[1],
                map_retries: state[2],
                ..Health::default()
            };
            let group = Group {
                path: "/sys/fs/resctrl/mon_groups/a".into(),
                cgroups: [CgroupId(7), CgroupId(8)].into(),
            };
            let of_group = Monitored {
                group: Arc::new(group),
                bytes: BTreeMap::from([(0, state[3]), (1, 0)]),
            };
            Snapshot {
                at,
                boot_time: at / 3,
                rows,
                freed,
                uncore,
                topology: topology.then(|| Arc::new(Topology::of(&[0, 0, 1]))),
                devices: devices.then(device_use),
                monitored: if monitored {
                    vec![of_group]
                } else {
                    Vec::new()
                },
                spe,
                names: Arc::new(names),
                health,
            }
        },
    )
}

proptest! {
    #[test]
    fn snapshots_are_read_as_they_were_written(all in collection::vec(snapshots(), 0..3)) {
        let text = written(&Plan::default(), &all);
        prop_assert_eq!(text.lines().count(), 1 + all.len());
        let (_, found) = read(&text).unwrap();
        prop_assert_eq!(&found, &all);
        // The same has the same text: a recording that is made again differs by what happened.
        prop_assert_eq!(written(&Plan::default(), &found), text);
    }
}

/// A plan of all metrics of a chip on a recorded tree, with a device and some events of the user's.
fn plan(tree: &str, chip: &str) -> Plan {
    let fixtures = concat!(env!("CARGO_MANIFEST_DIR"), "/../tests/fixtures/sysfs");
    let pmus = Pmus::read(&Path::new(fixtures).join(tree)).unwrap();
    let machine = Hardware::of_chip(Chip::named(chip).unwrap());
    let catalogue = Catalogue::builtin().unwrap();
    let request = Request {
        events: &event::parse("{cycles:u,instructions:u},task-clock,duration_time", &pmus).unwrap(),
        metrics: &catalogue.select("all", &machine).unwrap(),
        offered: &[],
        machine,
        cpus: 72,
        settings: Settings::default(),
    };
    let capacity = Capacity::documented(&catalogue, &machine, &pmus, 1);
    let mut plan = Plan::packed(&request, &pmus, &capacity).unwrap();
    let device = Device {
        address: "0005:c1:00.0".parse().unwrap(),
        vendor: 0x10de,
        device: 0x2342,
        class: 0x03_02_00,
        names: vec!["card0".to_owned()],
        blocks: vec!["259:0".to_owned()],
    };
    let port = Port {
        address: "0005:c0:00.0".parse().unwrap(),
        number: Some(5),
        devices: vec![device],
    };
    plan.devices = Arc::new(Devices {
        complexes: vec![Complex {
            socket: Some(0),
            kind: ComplexKind::RootBus(5, 0xc0),
            pmus: vec![PciePmu {
                name: "nvidia_pcie_pmu_0".to_owned(),
                spec: DeviceSpec {
                    by: FoundBy::Domain,
                    ports: Some("root_port".to_owned()),
                    requester: None,
                },
            }],
            ports: vec![port],
        }],
        ..Devices::default()
    });
    plan
}

/// Of every platform, with all that values, shares and texts are made of.
#[test]
fn plans_are_read_as_they_were_written() {
    for (tree, chip) in [
        ("grace", "grace-hopper"),
        ("grace", "grace-cpu-superchip"),
        ("vera", "tegra410"),
        ("spr", "sapphire-rapids"),
        ("icx", "ice-lake-server"),
        ("hybrid", "other"),
        ("neoverse-n1", "neoverse-n1"),
    ] {
        let plan = plan(tree, chip);
        assert!(plan.metrics.list.len() > 5, "{chip}");
        let text = written(&plan, &[]);
        let (found, _) = read(&text).unwrap_or_else(|error| panic!("{chip}: {error}"));
        assert_eq!(written(&found, &[]), text, "{chip}");
        // Of a metric's PMU and family only what the plan needs is kept.
        let mut rest = (plan.clone(), found.clone());
        rest.0.metrics.list.clear();
        rest.1.metrics.list.clear();
        assert_eq!(format!("{:?}", rest.1), format!("{:?}", rest.0), "{chip}");
        for (one, other) in plan.metrics.list.iter().zip(&found.metrics.list) {
            let told = |planned: &crate::plan::PlannedMetric| {
                let metric = &planned.metric;
                let pmu = &metric.pmu;
                let io = metric
                    .io
                    .as_ref()
                    .map(|(pmu, event)| (pmu.key.clone(), event.clone()));
                let texts = (metric.help(), metric.name.clone(), metric.aliases.clone());
                let values = (metric.bound, metric.requires, metric.apportion, metric.kind);
                let of_pmu = (pmu.slots, pmu.mismatch, pmu.per, pmu.pattern.clone());
                let needs = (metric.events().join(","), metric.from_sockets.clone(), io);
                let chips = (metric.chips(), metric.family.name.clone());
                let places = (planned.sources.clone(), planned.io.clone());
                let formula = metric.formula.clone();
                format!("{texts:?}{values:?}{of_pmu:?}{needs:?}{chips:?}{places:?}{formula:?}")
            };
            assert_eq!(told(other), told(one), "{chip}");
        }
        assert_eq!(found.metrics.list.len(), plan.metrics.list.len());
    }
}

fn refusal(text: &str) -> String {
    read(text).map(drop).unwrap_err().to_string()
}

#[test]
fn what_is_no_recording_is_refused_by_name_and_line() {
    for foreign in [
        "",
        "\n",
        "{}\n",
        "[1]\n",
        "cycles=5\n",
        "{\"plan\":",
        "{\"version\":1}\n",
    ] {
        let said = refusal(foreign);
        let end = "is no recording of pmuscope: line 1 has no pmuscope_recording; give one that is";
        assert_eq!(said, format!("a.jsonl {end}"), "{foreign}");
    }
    let snapshots = [Snapshot::default(), Snapshot::default()];
    let whole = written(&plan("grace", "grace-hopper"), &snapshots);
    let head = whole.lines().next().unwrap();
    // Wherever it is cut in a line.
    for end in [30, head.len() / 2, head.len() - 1] {
        let said = refusal(&whole[..end]);
        assert_eq!(
            said,
            "a.jsonl was cut in line 1: record it again, or remove that line"
        );
    }
    for end in [whole.len() - 2, head.len() + 5] {
        let said = refusal(&whole[..end]);
        assert!(said.starts_with("a.jsonl was cut in line "), "{said}");
    }
    let wrong = format!("{head}\n{{\"at\":5}}\n");
    let said = refusal(&wrong);
    assert!(
        said.starts_with("a.jsonl, line 2 is not what pmuscope wrote: "),
        "{said}"
    );
    let old = whole.replacen("\"pmuscope_recording\":1", "\"pmuscope_recording\":0", 1);
    let version = env!("CARGO_PKG_VERSION");
    assert_eq!(
        refusal(&old),
        format!(
            "a.jsonl has format 0 of pmuscope {version}, and this program reads format 1 only: \
             record it again, or read it with that version"
        )
    );
    // A metric without its definition.
    let without = whole.replacen("\"metric\":\"ipc\"", "\"metric\":\"ipd\"", 1);
    let said = refusal(&without);
    let why = "its plan has metric ipd of ";
    assert!(
        said.starts_with("a.jsonl, line 1 ") && said.contains(why),
        "{said}"
    );
}

#[test]
fn a_file_that_cannot_be_read_is_named() {
    struct Broken;
    impl io::Read for Broken {
        fn read(&mut self, _: &mut [u8]) -> io::Result<usize> {
            Err(io::Error::from_raw_os_error(5))
        }
    }
    let error = Reader::new(io::BufReader::new(Broken), "/a")
        .map(drop)
        .unwrap_err();
    assert!(
        error
            .to_string()
            .starts_with("cannot read the recording /a: Input/output error")
    );
}
