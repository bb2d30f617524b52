//! The uncore PMUs that doctor looks for, as a snapshot.

use std::fmt::Write as _;

use crate::catalogue::Platform;

#[test]
fn families_of_the_platforms() {
    let mut text = String::new();
    for platform in ["grace", "vera", "spr", "emr"] {
        let platform = Platform::named(platform).unwrap().spec();
        writeln!(text, "{}", platform.title).unwrap();
        for family in &platform.uncore {
            writeln!(text, "  {}: {}", family.pmu, family.lost).unwrap();
            for driver in family.drivers() {
                writeln!(text, "    {} {:?}", driver.option, driver.module).unwrap();
            }
        }
    }
    insta::assert_snapshot!(text);
}
