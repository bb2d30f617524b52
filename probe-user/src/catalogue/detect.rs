//! Detects a machine's platform and chip by the platforms' tables.
//!
//! The most specific evidence goes first: a PMU that only one platform has, the chip id, the
//! product of a PMU without a name of its own, the core's MIDR, the model of an x86 CPU. Without
//! any of these the platform is generic.
//!
//! Sockets and GPUs on PCI identify the chip of a platform; if they fit no chip, or several, the
//! chip is unknown. The PMUs of Grace do not identify it: NVLink-C2C1 and CNVLINK are registered on
//! chips that do not use them, and count zero there. `--chip` overrides all of this.

use super::{
    chip::{Chip, Platform},
    hardware::Hardware,
    platform::{Gpus, PlatformSpec},
};
use crate::machine::{Machine, Pmu, Pmus, product};

/// Mask of `MIDR_EL1` without variant and revision.
const MIDR_PART: u64 = 0xff0f_fff0;

/// The name prefix of PMUs whose product the kernel does not know.
const UNNAMED_PREFIX: &str = "nvidia_uncore_pmu_";

impl Hardware {
    /// Detects the hardware of this machine.
    #[must_use]
    pub fn detect(machine: &Machine) -> Self {
        let midr = midr(machine);
        let platform = platform(machine, midr);
        let hardware = chip(machine, platform).map_or_else(
            || Self {
                platform,
                chip: None,
                gpus_per_socket: None,
                midr: None,
                sockets: None,
            },
            |(chip, gpus_per_socket)| Self {
                gpus_per_socket,
                ..Self::of_chip(chip)
            },
        );
        Self {
            midr,
            sockets: sockets(machine, platform.spec()),
            ..hardware
        }
    }
}

fn platform(machine: &Machine, midr: Option<u32>) -> Platform {
    let pmus = machine.pmus().ok();
    let soc = machine.sys("devices/soc0/soc_id");
    let model = machine.cpu_model();
    let is_unnamed = |pmu: &&Pmu| pmu.name.starts_with(UNNAMED_PREFIX);
    let products: Vec<u32> = pmus
        .iter()
        .flat_map(|pmus| pmus.iter().filter(is_unnamed).filter_map(product))
        .collect();
    let evidence: [&dyn Fn(&PlatformSpec) -> bool; 5] = [
        &|spec| spec.pmus.iter().any(|prefix| count_pmus(pmus, prefix) > 0),
        &|spec| soc.as_ref().is_some_and(|soc| spec.soc.contains(soc)),
        &|spec| spec.products.iter().any(|one| products.contains(one)),
        &|spec| midr.is_some_and(|midr| spec.midr.contains(&midr)),
        &|spec| {
            spec.cpus.iter().any(|cpus| {
                model.is_some_and(|model| {
                    (&*cpus.vendor, cpus.family) == (&*model.vendor, model.family)
                        && cpus.models.iter().any(|some| some.contains(model.model))
                })
            })
        },
    ];
    let all = || Platform::all().iter().copied();
    evidence
        .iter()
        .find_map(|fits| all().find(|platform| fits(platform.spec())))
        .unwrap_or_else(Platform::generic)
}

/// The number of PMUs with this name prefix.
fn count_pmus(pmus: Option<&Pmus>, prefix: &str) -> usize {
    let names = pmus.into_iter().flat_map(Pmus::names);
    names.filter(|name| name.starts_with(prefix)).count()
}

/// The chip that fits the machine, with its GPUs per socket; `None` if no chip fits, or several do.
fn chip(machine: &Machine, platform: Platform) -> Option<(Chip, Option<u32>)> {
    if let Some(chip) = platform.only_chip() {
        return Some((chip, chip.spec().gpus_per_socket));
    }
    let spec = platform.spec();
    let sockets = sockets(machine, spec)?;
    let (own_gpus, other_gpus) = gpus(machine, spec.gpus.as_ref()?);
    let fits = |chip: &Chip| {
        let chip = chip.spec();
        let (least, most) = chip.sockets.unwrap_or((1, u32::MAX));
        let gpus_fit = chip.gpus.is_none_or(|has_gpus| match has_gpus {
            true => own_gpus > 0,
            false => own_gpus + other_gpus == 0,
        });
        (least..=most).contains(&sockets) && gpus_fit
    };
    let mut chips = platform.chips().filter(fits);
    let chip = chips.next().filter(|_| chips.next().is_none())?;
    Some((
        chip,
        own_gpus.is_multiple_of(sockets).then(|| own_gpus / sockets),
    ))
}

/// The number of sockets: the number of PMUs of which each socket has one or, without their driver,
/// by the topology of the CPUs.
fn sockets(machine: &Machine, spec: &PlatformSpec) -> Option<u32> {
    let by_pmus = spec
        .pmus
        .first()
        .map_or(0, |prefix| count_pmus(machine.pmus().ok(), prefix));
    match u32::try_from(by_pmus) {
        Ok(0) | Err(_) => machine.topology().known_sockets(),
        Ok(sockets) => Some(sockets),
    }
}

/// The number of GPUs that belong to chips of the platform, and of all other GPUs of their vendor.
fn gpus(machine: &Machine, gpus: &Gpus) -> (u32, u32) {
    let directory = std::fs::read_dir(machine.sysfs().join("bus/pci/devices"));
    let devices = directory.into_iter().flatten().flatten();
    let (mut own, mut other) = (0, 0);
    for device in devices.filter_map(|entry| entry.file_name().into_string().ok()) {
        let id = |file: &str| {
            let text = machine.sys(&format!("bus/pci/devices/{device}/{file}"))?;
            u32::from_str_radix(text.strip_prefix("0x")?, 16).ok()
        };
        // Class 03 is a display controller: 0300 VGA, 0302 3D.
        let is_display = id("class").is_some_and(|class| class >> 16 == 0x03);
        if id("vendor") != Some(gpus.vendor) || !is_display {
            continue;
        }
        match id("device").is_some_and(|id| gpus.devices.contains(&id)) {
            true => own += 1,
            false => other += 1,
        }
    }
    (own, other)
}

fn midr(machine: &Machine) -> Option<u32> {
    u32::try_from(machine.midr(0)? & MIDR_PART).ok()
}
