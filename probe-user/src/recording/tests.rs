//! Recordings are read as written; invalid ones are refused with the line number.

mod generated;

use std::{
    fs::File,
    io::{self, Cursor, Read},
    sync::Arc,
};

use flate2::read::MultiGzDecoder;
use proptest::{collection, prelude::*};

use self::generated::snapshots;
use super::*;
use crate::{
    catalogue::{Catalogue, Chip, DeviceSpec, FoundBy, Hardware, MetricSettings},
    devices::{Complex, ComplexKind, Device, Devices, PciePmu, Port},
    event,
    machine::Pmus,
    plan::{Capacity, ResolvedRequest},
    snapshot::{Hook, Snapshot},
    window,
};

/// The lines of a recording, unpacked.
fn written(plan: &Plan, snapshots: &[Snapshot]) -> String {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("a");
    let head = RecordingHead {
        plan: plan.clone(),
        ..RecordingHead::default()
    };
    let (first, rest) = snapshots.split_first().unwrap();
    let mut file = RecordingFile::begin(&path, &head, first).unwrap();
    rest.iter().for_each(|it| file.add(it).unwrap());
    file.finish().unwrap();
    let mut text = String::new();
    let mut gzip = MultiGzDecoder::new(File::open(path).unwrap());
    gzip.read_to_string(&mut text).unwrap();
    text
}

fn read(text: &str) -> Result<(Plan, Vec<Snapshot>), ReadError> {
    let recording = Recording::read(Cursor::new(text.to_owned()), "a.jsonl")?;
    let plan = recording.head.plan.clone();
    Ok((plan, recording.collect::<Result<_, _>>()?))
}

proptest! {
    #[test]
    fn snapshots_are_read_as_they_were_written(all in collection::vec(snapshots(), 1..4)) {
        let text = written(&Plan::default(), &all);
        prop_assert_eq!(text.lines().count(), 2 + all.len());
        let (_, found) = read(&text).unwrap();
        prop_assert_eq!(&found, &all);
        // Equal snapshots have equal text.
        prop_assert_eq!(written(&Plan::default(), &found), text);
    }
}

/// A plan of all metrics of a chip on a recorded tree, with a device and some user-defined events.
fn plan(tree: &str, chip: &str) -> Plan {
    let pmus = Pmus::read(&test_support::sysfs(tree)).unwrap();
    let machine = Hardware::of_chip(Chip::named(chip).unwrap());
    let catalogue = Catalogue::builtin().unwrap();
    let request = ResolvedRequest {
        events: &event::parse("{cycles:u,instructions:u},task-clock,duration_time", &pmus).unwrap(),
        metrics: &catalogue.select("all", &machine).unwrap(),
        offered: &[],
        machine,
        cpus: 72,
        settings: MetricSettings::default(),
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
        numbers: vec![5],
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
                    stack: None,
                },
            }],
            ports: vec![port],
        }],
        ..Devices::default()
    });
    plan
}

/// A plan keeps everything that values, shares and texts need, on every platform.
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
        let text = written(&plan, &[Snapshot::default()]);
        let (found, _) = read(&text).unwrap_or_else(|error| panic!("{chip}: {error}"));
        assert_eq!(written(&found, &[Snapshot::default()]), text, "{chip}");
        // Metrics are compared separately, by their definitions: of a metric's PMU and family, a
        // recording keeps only what the plan needs.
        let mut without_metrics = (plan.clone(), found.clone());
        without_metrics.0.metrics.list.clear();
        without_metrics.1.metrics.list.clear();
        assert_eq!(
            format!("{:?}", without_metrics.1),
            format!("{:?}", without_metrics.0),
            "{chip}"
        );
        for (one, other) in plan.metrics.list.iter().zip(&found.metrics.list) {
            let definition = |planned: &crate::plan::PlannedMetric| {
                let metric = &planned.metric;
                let pmu = &metric.pmu;
                let io = metric.io.iter();
                let io = io.map(|(pmu, event)| (pmu.key.clone(), event.clone()));
                let io: Vec<_> = io.collect();
                let texts = (metric.help(), metric.name.clone(), metric.aliases.clone());
                let values = (metric.bound, metric.requires, metric.apportion, metric.kind);
                let of_pmu = (pmu.slots, pmu.mismatch, pmu.per, pmu.pattern.clone());
                let needs = (metric.events().join(","), metric.from_sockets.clone(), io);
                let chips = (metric.chips(), metric.family.name.clone());
                let places = (planned.sources.clone(), planned.io.clone());
                let formula = metric.formula.clone();
                format!("{texts:?}{values:?}{of_pmu:?}{needs:?}{chips:?}{places:?}{formula:?}")
            };
            assert_eq!(definition(other), definition(one), "{chip}");
        }
        assert_eq!(found.metrics.list.len(), plan.metrics.list.len());
    }
}

fn refusal(text: &str) -> String {
    read(text).map(drop).unwrap_err().to_string()
}

#[test]
fn an_invalid_recording_is_refused_by_name_and_line() {
    for foreign in [
        "",
        "\n",
        "{}\n",
        "[1]\n",
        "cycles=5\n",
        "{\"plan\":",
        "{\"version\":1}\n",
    ] {
        let message = refusal(foreign);
        let end = "is no recording of `pmuscope record`: its first line has no \
                   pmuscope_recording; give a file that is";
        assert_eq!(message, format!("a.jsonl {end}"), "{foreign}");
    }
    let snapshots = [Snapshot::default(), Snapshot::default()];
    let whole = written(&plan("grace", "grace-hopper"), &snapshots);
    let lines: Vec<&str> = whole.lines().collect();
    let [head, first, second, end] = lines[..] else {
        panic!("{} lines", lines.len());
    };
    // The file is cut within a line, or between two lines.
    let ends = [
        (30, 1),
        (head.len() / 2, 1),
        (head.len(), 1),
        (head.len() + 1, 2),
        (head.len() + 5, 2),
        (whole.len() - end.len() - 1, 4),
        (whole.len() - 2, 4),
        (whole.len() - 1, 4),
    ];
    for (length, line) in ends {
        let message = refusal(&whole[..length]);
        assert_eq!(
            message,
            format!(
                "a.jsonl has lost its end, from line {line} on: record it again, or give it a name \
                 that ends in .unfinished to read the windows until there"
            )
        );
    }
    for (lines, expected) in [
        (vec![head, "{\"at\":5}"], "line 2: invalid type"),
        (vec![head, first, end], "line 3: it is the end of 1 windows"),
        (
            vec![head, first, second, end, second],
            "line 4: it is the end, and more follows",
        ),
    ] {
        let message = refusal(&(lines.join("\n") + "\n"));
        let begin = format!("a.jsonl is damaged in {expected}");
        assert!(message.starts_with(&begin), "{message}");
    }
    let mark = format!("\"pmuscope_recording\":{FORMAT}");
    let old = whole.replacen(&mark, "\"pmuscope_recording\":1", 1);
    let version = env!("CARGO_PKG_VERSION");
    assert_eq!(
        refusal(&old),
        format!(
            "a.jsonl has format 1 of pmuscope {version}, and this program reads format {FORMAT} \
             only: record it again, or read it with that version"
        )
    );
    // The plan names a metric that has no definition.
    let without = whole.replacen("\"metric\":\"ipc\"", "\"metric\":\"ipd\"", 1);
    let message = refusal(&without);
    let why = "its plan has metric ipd of ";
    assert!(
        message.starts_with("a.jsonl is damaged in line 1: ") && message.contains(why),
        "{message}"
    );
}

#[test]
fn a_file_that_cannot_be_read_is_named() {
    struct Broken;
    impl Read for Broken {
        fn read(&mut self, _: &mut [u8]) -> io::Result<usize> {
            Err(io::Error::from_raw_os_error(5))
        }
    }
    let error = Recording::read(Broken, "/a").err().unwrap();
    let word = io::Error::from_raw_os_error(5);
    assert_eq!(error.to_string(), format!("cannot read /a: {word}"));
}

/// The hook `cgroup-switches` fell back in the second of three windows. It could not tell idle from
/// the root cgroup until then.
#[test]
fn the_window_of_a_fallback_has_idle_and_system_in_one_row() {
    let hooks = [
        Hook::CgroupSwitches,
        Hook::CgroupSwitches,
        Hook::SchedSwitch,
        Hook::SchedSwitch,
    ];
    let snapshots = hooks.map(|hook| {
        let mut snapshot = window::tests::snapshot([]);
        snapshot.health.hook = hook;
        snapshot
    });
    let text = written(&Plan::default(), &snapshots);
    let recording = Recording::read(Cursor::new(text), "a.jsonl").unwrap();
    let mut replay = Replay::begin(recording, View::default()).unwrap();
    let windows = std::iter::from_fn(|| {
        replay.advance().unwrap()?;
        Some(replay.view().merged_idle)
    });
    assert_eq!(windows.collect::<Vec<_>>(), [true, true, false]);
}
