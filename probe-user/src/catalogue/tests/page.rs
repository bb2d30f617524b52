//! docs/reference/catalogue.md lists all keys of a catalogue file, and events without a metric have
//! a description.

use std::path::Path;

use super::{
    super::{Chip, Hardware},
    CATALOGUE, merged,
};

fn page() -> String {
    let root = Path::new(env!("CARGO_MANIFEST_DIR"));
    std::fs::read_to_string(root.join("../docs/reference/catalogue.md")).unwrap()
}

#[test]
fn the_example_of_the_page_parses() {
    let page = page();
    let (_, example) = page.split_once("```toml\n").unwrap();
    let (example, _) = example.split_once("```").unwrap();
    let catalogue = merged(example).unwrap();
    let mut metrics = catalogue.metrics();
    assert!(metrics.any(|metric| metric.name == "my_read_bandwidth"));
}

/// The parser's error on an unknown key lists all keys of the table.
#[test]
fn the_page_has_every_key_of_a_file() {
    let page = page();
    let (_, example) = page.split_once("```toml\n").unwrap();
    let (example, _) = example.split_once("```").unwrap();
    for (anchor, heading) in [
        ("name = \"my-fabric\"", "## The file"),
        ("per = \"socket\"", "## `[pmu.KEY]`"),
        ("CYCLES = {", "## Events"),
        ("unit = \"GB/s\"", "## `[[metric]]`"),
    ] {
        let wrong = match anchor.strip_suffix('{') {
            Some(_) => example.replacen(anchor, &format!("{anchor} zzz = 1,"), 1),
            None => example.replacen(anchor, &format!("{anchor}\nzzz = 1"), 1),
        };
        let error = merged(&wrong).unwrap_err();
        let (_, keys) = error
            .split_once("expected one of ")
            .unwrap_or_else(|| panic!("{error}"));
        let (_, section) = page.split_once(heading).unwrap();
        let section = section.split("\n## ").next().unwrap();
        for key in keys.split_terminator(", ") {
            let key = key.trim().split('`').nth(1).unwrap();
            assert!(
                section.contains(&format!("`{key}`")),
                "{heading} lacks {key}"
            );
        }
    }
}

#[test]
fn events_without_a_metric_say_what_they_count() {
    let sockets = ["SOCKET_n_RD_DATA", "SOCKET_n_WB_DATA", "SOCKET_n_WR_DATA"];
    let scf = [
        "BUS_CYCLES",
        "SCF_CACHE",
        "SCF_CACHE_ALLOCATE",
        "SCF_CACHE_REFILL",
        "SCF_CACHE_WB",
        "CMEM_WB_DATA",
        "CMEM_WR_DATA",
        "GMEM_WB_DATA",
        "GMEM_WR_DATA",
        "REMOTE_SOCKET_RD_ACCESS",
        "REMOTE_SOCKET_RD_OUTSTANDING",
    ];
    let occupancy = ["PCIRDCUR", "ITOM", "ITOMCACHENEAR"]
        .into_iter()
        .flat_map(|request| {
            ["HIT", "MISS"].map(|outcome| format!("UNC_CHA_TOR_OCCUPANCY.IO_{outcome}_{request}"))
        });
    let named = |family: &'static str, names: &[&str]| {
        let names = names.iter().map(move |name| (family, (*name).to_owned()));
        names.collect::<Vec<_>>()
    };
    let mut expected = named("nvidia-grace-scf", &scf);
    expected.extend(named("nvidia-grace-scf", &sockets));
    expected.extend(occupancy.map(|name| ("intel-spr", name)));
    expected.extend(named("intel-spr", &["UNC_IIO_CLOCKTICKS"]));
    expected.extend(named("neoverse-v2", &["L1D_CACHE_RD", "L1D_CACHE_WR"]));
    expected.extend(named(
        "intel-snb-stalls",
        &["CYCLE_ACTIVITY.CYCLES_L2_PENDING"],
    ));
    // An event of `sockets` stands for four events, one for each of four sockets.
    assert_eq!(expected.len() + 3 * sockets.len(), 33);
    for (family, name) in expected {
        let mut families = CATALOGUE.families();
        let family = families.find(|known| known.name == family).unwrap();
        let mut events = family.pmus.iter().filter_map(|pmu| pmu.events.get(&name));
        let event = events.next().unwrap_or_else(|| panic!("no {name}"));
        let text = event.text.as_deref().unwrap_or_else(|| panic!("{name}"));
        assert!(text.ends_with('.'), "{name}: {text}");
        let mut metrics = CATALOGUE
            .metrics()
            .filter(|it| it.family.name == family.name);
        assert!(
            metrics.all(|metric| !metric.events().contains(&name.as_str())),
            "{name}"
        );
    }
}

/// Events are found by the names in sysfs, which perf prints.
#[test]
fn the_text_of_a_listed_event_is_found() {
    let machine = Hardware::of_chip(Chip::named("grace-hopper").unwrap());
    let text = |pmu, name| CATALOGUE.event_text(pmu, name, &machine);
    let data = text("nvidia_scf_pmu_1", "socket_0_rd_data").unwrap();
    assert!(data.starts_with("Beats of up to 32 bytes"), "{data}");
    assert!(text("nvidia_scf_pmu_0", "scf_cache").is_some());
    assert_eq!(text("nvidia_scf_pmu_0", "cmem_rd_data"), None);
    assert_eq!(text("nvidia_pcie_pmu_0", "scf_cache"), None);
}

/// Readers of the documentation have no sources at hand.
#[test]
fn no_page_sends_its_reader_to_the_code() {
    for page in crate::catalogue::pages(&CATALOGUE) {
        assert!(!page.text.contains("probe-user/src"), "{}", page.path);
    }
}
