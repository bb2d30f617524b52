//! Recordings are read back the same, and invalid ones are refused with the line.

mod generated;

use std::sync::Arc;

use proptest::{collection, prelude::*};

use self::generated::snapshots;
use super::*;
use crate::{
    catalogue::{Catalogue, Chip, DeviceSpec, FoundBy, Hardware, MetricSettings},
    devices::{Complex, ComplexKind, Device, Devices, PciePmu, Port},
    event,
    machine::Pmus,
    plan::{Capacity, ResolvedRequest},
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

proptest! {
    #[test]
    fn snapshots_are_read_as_they_were_written(all in collection::vec(snapshots(), 0..3)) {
        let text = written(&Plan::default(), &all);
        prop_assert_eq!(text.lines().count(), 1 + all.len());
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

/// For every platform, with all that values, shares and texts need.
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
        // A metric's PMU and family keep only what the plan needs.
        let mut rest = (plan.clone(), found.clone());
        rest.0.metrics.list.clear();
        rest.1.metrics.list.clear();
        assert_eq!(format!("{:?}", rest.1), format!("{:?}", rest.0), "{chip}");
        for (one, other) in plan.metrics.list.iter().zip(&found.metrics.list) {
            let told = |planned: &crate::plan::PlannedMetric| {
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
    // Truncated anywhere in a line.
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
    let old = whole.replacen("\"pmuscope_recording\":2", "\"pmuscope_recording\":1", 1);
    let version = env!("CARGO_PKG_VERSION");
    assert_eq!(
        refusal(&old),
        format!(
            "a.jsonl has format 1 of pmuscope {version}, and this program reads format 2 only: \
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
    let word = io::Error::from_raw_os_error(5);
    let expected = format!("cannot read the recording /a: {word}");
    assert!(error.to_string().starts_with(&expected), "{error}");
}
