//! Whether the guests of CI have all options and all tests between them.

use std::{collections::BTreeSet, path::PathBuf};

use super::*;

/// What makes one guest differ from another.
fn options(boot: &Boot) -> impl Iterator<Item = String> {
    let tests = boot.tests.iter();
    let tests =
        tests.flat_map(|tests| tests.modules.iter().map(|module| format!("tests {module}")));
    let options = [
        format!("{:?} {}", boot.arch, boot.series),
        format!("16k {}", matches!(boot.flavour, Flavour::Pages16k)),
        format!("UEFI {}", matches!(boot.firmware, Firmware::Uefi)),
        format!("icount {}", boot.icount_shift.is_some()),
        format!("CPUs {}", boot.cpus),
        format!("PMU {}", boot.pmu),
        format!("append {}", boot.append),
        format!("controllers {}", boot.controllers),
    ];
    options.into_iter().chain(tests)
}

#[test]
fn ci_has_every_option_and_every_test_that_all_have() {
    let all: BTreeSet<_> = BOOTS.iter().flat_map(options).collect();
    let ci = BOOTS.iter().filter(|boot| boot.ci);
    let ci: BTreeSet<_> = ci.flat_map(options).collect();
    assert_eq!(ci, all);
}

/// A test that no guest's list names would never run.
#[test]
fn every_test_is_in_a_guest() {
    let folder = concat!(env!("CARGO_MANIFEST_DIR"), "/../tests/vm");
    let lists = BOOTS.iter().flat_map(|boot| boot.tests);
    let lists: Vec<_> = lists.flat_map(|tests| tests.modules).collect();
    let mut folders = vec![(PathBuf::from(folder), String::new())];
    while let Some((folder, above)) = folders.pop() {
        for entry in std::fs::read_dir(folder).unwrap() {
            let path = entry.unwrap().path();
            let module = format!("{above}{}::", path.file_stem().unwrap().to_string_lossy());
            if path.is_dir() {
                folders.push((path, module));
                continue;
            }
            let text = std::fs::read_to_string(&path).unwrap_or_default();
            for test in text.split("#[test]\n").skip(1) {
                let name = test.split_once("fn ").unwrap().1;
                let name = format!("{module}{}", name.split('(').next().unwrap());
                assert!(
                    lists.iter().any(|list| name.starts_with(**list)),
                    "no guest runs {name}"
                );
            }
        }
    }
}

#[test]
fn names_are_unique() {
    let names: BTreeSet<_> = BOOTS.iter().map(|boot| boot.name).collect();
    assert_eq!(names.len(), BOOTS.len());
}
