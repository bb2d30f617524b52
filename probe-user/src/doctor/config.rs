//! Remedies for missing drivers, by the kernel's configuration.

use super::Remedy;
use crate::{
    catalogue::Driver,
    machine::kernel_config::{Built, KernelConfig},
};

/// Remedies for a missing PMU, by the configuration of its drivers. `absent` is the reason if the
/// drivers exist, but not the PMU.
pub(super) fn driver_remedies(
    config: Option<&KernelConfig>,
    drivers: &[Driver],
    absent: &str,
) -> Vec<Remedy> {
    let Some(config) = config else {
        return vec![load(drivers.iter(), "the kernel needs")];
    };
    let built = |wanted: Built| {
        let drivers = drivers.iter();
        drivers.filter(move |driver| config.built(&driver.option) == wanted)
    };
    let mut remedies = Vec::new();
    if built(Built::Not).next().is_some() {
        let options = options(built(Built::Not));
        remedies.push(Remedy {
            advice: format!(
                "this kernel is built without {options}: use one with it (NVIDIA's and newer \
                 distribution kernels have it), or build it"
            ),
            commands: Vec::new(),
        });
    }
    if built(Built::Module).next().is_some() {
        remedies.push(load(built(Built::Module), "load the module of"));
    }
    if remedies.is_empty() {
        let options = options(drivers.iter());
        remedies.push(Remedy {
            advice: format!("{options} is built in, so {absent}"),
            commands: Vec::new(),
        });
    } else if built(Built::Not).next().is_none() {
        remedies.push(Remedy {
            advice: format!("if the module is loaded already, {absent}"),
            commands: Vec::new(),
        });
    }
    remedies
}

/// A remedy that loads the drivers' modules.
fn load<'d>(drivers: impl Iterator<Item = &'d Driver> + Clone, verb: &str) -> Remedy {
    let modules = drivers.clone().filter_map(|driver| driver.module.as_ref());
    Remedy {
        advice: format!("{verb} {}", options(drivers)),
        commands: modules
            .map(|module| format!("sudo modprobe {module}"))
            .collect(),
    }
}

fn options<'d>(drivers: impl Iterator<Item = &'d Driver>) -> String {
    let names: Vec<String> = drivers
        .map(|driver| format!("CONFIG_{}", driver.option))
        .collect();
    names.join(" and ")
}
