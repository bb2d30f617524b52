//! The inventory of the fixture machines (tests/fixtures/sysfs).

use std::{collections::BTreeSet, io};

use test_support::{Tree, sysfs};

use super::{Availability, EventItem, Inventory, InventoryPart};
use crate::{
    event::{self, Counter},
    machine::Pmus,
};

/// The PMUs of a recorded tree, and their inventory. `open` decides which generic events are
/// counted.
fn inventory(tree: &str, open: &dyn Fn(&Counter) -> io::Result<()>) -> (Pmus, Inventory) {
    let pmus = Pmus::read(&sysfs(tree)).unwrap();
    let inventory = Inventory::new(&pmus, open);
    (pmus, inventory)
}

/// Opens every counter.
fn opens(_: &Counter) -> io::Result<()> {
    Ok(())
}

fn text(inventory: &Inventory, part: Option<InventoryPart>) -> String {
    let mut text = Vec::new();
    inventory.write_text(part, &mut text).unwrap();
    String::from_utf8(text).unwrap()
}

fn events(inventory: &Inventory) -> impl Iterator<Item = &EventItem> {
    inventory
        .sections
        .iter()
        .flat_map(|section| &section.events)
}

#[test]
fn pmus_of_grace() {
    let (_, inventory) = inventory("grace", &opens);
    insta::assert_snapshot!(text(&inventory, Some(InventoryPart::Pmus)));
}

#[test]
fn events_of_spr() {
    let (_, inventory) = inventory("spr", &opens);
    insta::assert_snapshot!(text(&inventory, Some(InventoryPart::Events)));
}

/// Malformed PMUs, events that no counter can count, two kinds of core.
#[test]
fn everything_odd() {
    let (_, inventory) = inventory("odd", &|counter| {
        // The PMU has no L1-icache events, and the kernel refuses node events for lack of rights.
        match (counter.type_, counter.config & 0xff) {
            (3, 1) => Err(io::Error::from_raw_os_error(libc::ENOENT)),
            (3, 6) => Err(io::Error::from_raw_os_error(libc::EACCES)),
            _ => Ok(()),
        }
    });
    let odd = sysfs("odd");
    let text = text(&inventory, None).replace(odd.to_str().unwrap(), "/sysfs/odd");
    insta::assert_snapshot!(text);
}

#[test]
fn without_a_core_pmu_the_reason_is_shown_once() {
    let root = Tree::new();
    root.pmu("software", &[("type", "1\n")]);
    let pmus = Pmus::read(root.path()).unwrap();
    let inventory = Inventory::new(&pmus, &opens);
    insta::assert_snapshot!(text(&inventory, None));
}

/// An event that is listed as counted here can be written after `-e`. That opens its counter.
#[test]
fn listed_events_can_be_written() {
    for tree in ["grace", "vera", "spr", "odd"] {
        let (pmus, inventory) = inventory(tree, &opens);
        for section in &inventory.sections {
            let listed = section.events.iter();
            for item in listed.filter(|item| item.availability == Availability::Here) {
                let Some(counter) = &item.counter else {
                    continue;
                };
                for name in &item.names {
                    let instance = section.pmus.first().map_or("", String::as_str);
                    let written = name.replace("PMU/", &format!("{instance}/"));
                    let groups = event::parse(&written, &pmus).unwrap();
                    let event::Source::Counter(parsed) = &groups[0].events[0].source else {
                        panic!("{written} is no counter");
                    };
                    assert_eq!(parsed, counter, "{written}");
                }
            }
        }
    }
}

/// No event number of the kernel is left out: hardware 0 to 9, software 0 to 11 except bpf-output,
/// and the cache events that perf takes.
#[test]
fn every_generic_event_is_listed() {
    let (_, inventory) = inventory("grace", &opens);
    let configs = |type_: u32| -> BTreeSet<u64> {
        events(&inventory)
            .filter_map(|item| item.counter.as_ref())
            .filter(|counter| counter.type_ == type_)
            .map(|counter| counter.config)
            .collect()
    };
    assert_eq!(configs(0), (0..=9).collect());
    assert_eq!(
        configs(1),
        (0..=11).filter(|number| *number != 10).collect()
    );
    // Four caches have three operations, one has two, two have one, each with accesses and misses.
    assert_eq!(configs(3).len(), (4 * 3 + 2 + 2) * 2);
}

#[test]
fn instances_share_a_section_and_kinds_do_not() {
    let (_, inventory) = inventory("grace", &opens);
    let with = |pmu: &str| {
        let has = |section: &&super::EventSection| section.pmus.iter().any(|name| name == pmu);
        inventory.sections.iter().find(has).unwrap()
    };
    let c2c0 = with("nvidia_nvlink_c2c0_pmu_0");
    let names = ["nvidia_nvlink_c2c0_pmu_0", "nvidia_nvlink_c2c0_pmu_1"];
    assert_eq!(c2c0.pmus, names);
    assert_ne!(c2c0, with("nvidia_nvlink_c2c1_pmu_0"));
}

#[test]
fn the_json_has_every_pmu_and_event() {
    let (pmus, inventory) = inventory("odd", &opens);
    let mut text = Vec::new();
    inventory.write_json(None, &mut text).unwrap();
    let json: serde_json::Value = serde_json::from_slice(&text).unwrap();
    let all = json["pmus"].as_array().unwrap();
    assert_eq!(all.len(), pmus.names().count());
    let broken = all.iter().find(|pmu| pmu["name"] == "badtype").unwrap();
    assert_eq!(broken["usable"], false);
    assert!(broken["description"].as_str().unwrap().contains("a number"));
    let events = json["events"].as_array().unwrap();
    let find = |name: &str| {
        let mut same = events.iter().filter(|event| event["names"][0] == name);
        same.next().unwrap_or_else(|| panic!("no {name}"))
    };
    let scaled = find("split/scaled/");
    assert_eq!(scaled["scale"], 0.25);
    assert_eq!(scaled["counter"]["type"], 12);
    let impossible = find("split/toowide/");
    assert_eq!(impossible["state"], "not here");
    assert!(impossible["reason"].as_str().unwrap().contains("0x1000"));
}
