//! Checks that CI's guests together have all options.

use std::collections::BTreeSet;

use super::*;

/// The options in which guests differ.
fn options(boot: &Boot) -> [String; 8] {
    [
        format!("{:?} {}", boot.arch, boot.series),
        format!("{:?}", boot.flavour),
        format!("UEFI {}", matches!(boot.firmware, Firmware::Uefi)),
        format!("icount {}", boot.icount_shift.is_some()),
        format!("CPUs {}", boot.cpus),
        format!("PMU {}", boot.pmu),
        format!("append {}", boot.append),
        format!("controllers {}", boot.controllers),
    ]
}

#[test]
fn guests_of_ci_cover_every_option() {
    let all: BTreeSet<_> = BOOTS.iter().flat_map(options).collect();
    let ci = BOOTS.iter().filter(|boot| boot.ci);
    let ci: BTreeSet<_> = ci.flat_map(options).collect();
    assert_eq!(ci, all);
}

#[test]
fn names_are_unique() {
    let names: BTreeSet<_> = BOOTS.iter().map(|boot| boot.name).collect();
    assert_eq!(names.len(), BOOTS.len());
}
