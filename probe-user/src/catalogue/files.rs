//! The compiled-in files, and the platforms that they describe. Platforms are read before families,
//! which name them.

use std::collections::{BTreeMap, BTreeSet};

use serde::{Deserialize, de::IgnoredAny};

use super::{
    error::{CatalogueError, Problem},
    platform::{Driver, PlatformSpec},
};

include!(concat!(env!("OUT_DIR"), "/catalogue_files.rs"));

/// The `order` of a file that states none.
const DEFAULT_ORDER: u32 = 500;

/// The part of a file that describes platforms.
#[derive(Deserialize)]
struct PlatformTables {
    order: Option<u32>,
    name: Option<IgnoredAny>,
    #[serde(default)]
    platform: Vec<PlatformSpec>,
    #[serde(default)]
    driver: BTreeMap<String, Vec<Driver>>,
}

fn platform_tables() -> Result<Vec<(&'static str, &'static str, PlatformTables)>, CatalogueError> {
    let read = |(file, text): &(&'static str, &'static str)| match toml::from_str::<PlatformTables>(
        text,
    ) {
        Ok(tables) => Ok((*file, *text, tables)),
        Err(error) => Err(CatalogueError {
            file: (*file).into(),
            line: None,
            problem: error.into(),
        }),
    };
    let mut platform_tables = FILES.iter().map(read).collect::<Result<Vec<_>, _>>()?;
    platform_tables.sort_by_key(|(_, _, tables)| tables.order.unwrap_or(DEFAULT_ORDER));
    Ok(platform_tables)
}

/// The names and texts of the files with a family, in the order of the documentation.
pub(super) fn families() -> Result<Vec<(&'static str, &'static str)>, CatalogueError> {
    let platform_tables = platform_tables()?.into_iter();
    let with_family = platform_tables.filter(|(_, _, tables)| tables.name.is_some());
    Ok(with_family.map(|(file, text, _)| (file, text)).collect())
}

type Platforms = (Vec<PlatformSpec>, BTreeMap<String, Vec<Driver>>);

/// All platforms, and the drivers of their PMUs.
pub(super) fn platforms() -> Result<Platforms, CatalogueError> {
    let (mut platforms, mut drivers) = (Vec::new(), BTreeMap::new());
    for (_, _, tables) in platform_tables()? {
        platforms.extend(tables.platform);
        drivers.extend(tables.driver);
    }
    check(&platforms, &drivers).map_err(|problem| CatalogueError {
        file: "of a platform".into(),
        line: None,
        problem,
    })?;
    Ok((platforms, drivers))
}

/// Checks that names are unique, that no PMU, chip id or MIDR identifies two platforms, that the
/// named drivers and platforms exist, and that no weight has `local` without `remote`.
fn check(
    platforms: &[PlatformSpec],
    drivers: &BTreeMap<String, Vec<Driver>>,
) -> Result<(), Problem> {
    let mut names = BTreeSet::new();
    let mut check_unique = |what: String| match names.insert(what.clone()) {
        true => Ok(()),
        false => Err(Problem::PlatformTwice(what)),
    };
    for platform in platforms {
        check_unique(format!("platform {}", platform.name))?;
        for chip in &platform.chips {
            check_unique(format!("chip {}", chip.name))?;
        }
        for pmu in &platform.pmus {
            check_unique(format!("PMU {pmu}"))?;
        }
        for soc in &platform.soc {
            check_unique(format!("SoC {soc}"))?;
        }
        for midr in &platform.midr {
            check_unique(format!("MIDR {midr:#x}"))?;
        }
        if let Some(other) = &platform.weights_of {
            let known = platforms.iter().any(|platform| platform.name == *other);
            known
                .then_some(())
                .ok_or_else(|| Problem::WeightsOf(other.clone()))?;
        }
        let mut weights = platform.weights.iter().flatten();
        if let Some(weight) = weights.find(|weight| weight.local && weight.remote.is_none()) {
            return Err(Problem::LocalAlone(weight.name.clone()));
        }
        for uncore in &platform.uncore {
            if !drivers.contains_key(&uncore.driver) {
                return Err(Problem::Driver(uncore.driver.clone()));
            }
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn files_without_an_order_are_between_the_others() {
        let files = families().unwrap();
        let names: Vec<&str> = files.iter().map(|(file, _)| *file).collect();
        assert_eq!(names[..2], ["neoverse-v2.toml", "nvidia-grace-scf.toml"]);
        assert_eq!(names[names.len() - 2..], ["arm-spe.toml", "generic.toml"]);
    }

    #[test]
    fn ambiguous_platforms_and_missing_drivers_are_refused() {
        let refusal = |text: &str| {
            let tables: PlatformTables = toml::from_str(text).unwrap();
            check(&tables.platform, &tables.driver)
                .unwrap_err()
                .to_string()
        };
        let platform = |name: &str, keys: &str| {
            let chip = format!("[[platform.chip]]\nname = \"{name}\"\ntitle = \"a chip\"\n");
            format!("[[platform]]\nname = \"{name}\"\ntitle = \"a platform\"\n{keys}\n{chip}")
        };
        let twice = platform("a", "midr = [0x410fd4f0]") + &platform("b", "midr = [0x410fd4f0]");
        assert_eq!(
            refusal(&twice),
            "MIDR 0x410fd4f0 is in two platforms: nothing would tell them apart"
        );
        let uncore = "[[platform.uncore]]\npmu = \"x_\"\nlost = \"y\"\ndriver = \"z\"\n";
        assert_eq!(
            refusal(&(platform("a", "") + uncore)),
            "there is no driver z in [driver] of any file: describe it there"
        );
    }
}
