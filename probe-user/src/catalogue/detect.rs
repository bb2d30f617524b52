//! Which machine this is, from sysfs.
//!
//! The rule:
//!
//! 1. PMUs named `nvidia_ucf_pmu_*` or `nvidia_cmem_latency_pmu_*`: Tegra410 (Vera).
//!    So are those named `nvidia_uncore_pmu_*` whose `identifier` says that they are the fabric.
//! 2. PMUs named `nvidia_scf_pmu_*`: Grace. The chip is told by the sockets (one SCF PMU each) and
//!    the GH200 GPUs on PCI (vendor 10de, device 2342, 2345 or 2348): one socket and GPUs is
//!    Grace Hopper, several sockets and GPUs is multi-socket Grace Hopper, two sockets without any
//!    NVIDIA GPU is the Grace CPU Superchip. Anything else (one socket without GPU, other GPUs,
//!    which may or may not be on NVLink-C2C) cannot be told.
//! 3. An Arm core with MIDR 0x41 / 0xd4f: Neoverse V2.
//! 4. An Intel core of family 6: model 8f is Sapphire Rapids, cf Emerald Rapids, 2a and 2d Sandy
//!    Bridge.
//! 5. Anything else: generic.
//!
//! The PMUs of Grace do not tell the chip themselves: NVLink-C2C1 and CNVLINK are registered on
//! chips that do not use them, and count zero there. `--chip` overrides all of this.

use std::path::Path;

use super::chip::{Chip, Machine, Platform};
use crate::machine::product_of;

/// Product id of the coherent fabric and last-level cache (`nvidia_cspmu.c`).
const FABRIC: u32 = 0x2cf;

/// `MIDR_EL1` without variant and revision.
const MIDR_PART: u32 = 0xff0f_fff0;
const NEOVERSE_V2: u32 = 0x410f_d4f0;

/// PCI device ids of GH200 by pci.ids: with 96 GB (two ids) and with 144 GB of GPU memory.
const GH200: [&str; 3] = ["0x2342", "0x2345", "0x2348"];

impl Machine {
    /// The machine that `sysfs` describes, which is `/sys` on a live one.
    #[must_use]
    pub fn detect(sysfs: &Path) -> Self {
        let midr = midr(sysfs);
        let pmus = names(&sysfs.join("bus/event_source/devices"));
        let count = |prefix: &str| pmus.iter().filter(|pmu| pmu.starts_with(prefix)).count();
        let unnamed = || {
            pmus.iter()
                .filter(|pmu| pmu.starts_with("nvidia_uncore_pmu_"))
        };
        let is_fabric = |pmu: &String| {
            let identifier = sysfs
                .join("bus/event_source/devices")
                .join(pmu)
                .join("identifier");
            product_of(&text(&identifier)) == Some(FABRIC)
        };
        let machine = if count("nvidia_ucf_pmu_") + count("nvidia_cmem_latency_pmu_") > 0 {
            Self::of_platform(Platform::Vera)
        } else if count("nvidia_scf_pmu_") > 0 {
            grace(sysfs, count("nvidia_scf_pmu_"))
        } else if unnamed().any(is_fabric) {
            // Grace's fabric has the same product id, but every kernel that knows Grace names it.
            Self::of_platform(Platform::Vera)
        } else if midr == Some(NEOVERSE_V2) {
            Self::of_platform(Platform::NeoverseV2)
        } else {
            Self::of_platform(intel(sysfs).unwrap_or(Platform::Generic))
        };
        Self { midr, ..machine }
    }
}

fn grace(sysfs: &Path, sockets: usize) -> Machine {
    let (hopper, other) = gpus(sysfs);
    let chip = match (sockets, hopper, other) {
        (2, 0, 0) => Some(Chip::GraceCpuSuperchip),
        (1, 1.., _) => Some(Chip::GraceHopper),
        (2.., 1.., _) => Some(Chip::GraceHopperMulti),
        _ => None,
    };
    let whole = |gpus: usize| gpus.is_multiple_of(sockets).then_some(gpus / sockets);
    Machine {
        platform: Platform::Grace,
        chip,
        gpus_per_socket: chip
            .and(whole(hopper))
            .and_then(|gpus| u32::try_from(gpus).ok()),
        midr: None,
    }
}

/// The GH200 GPUs, and all other NVIDIA GPUs.
fn gpus(sysfs: &Path) -> (usize, usize) {
    let devices = sysfs.join("bus/pci/devices");
    let (mut hopper, mut other) = (0, 0);
    for device in names(&devices) {
        let file = |name: &str| text(&devices.join(&device).join(name));
        // Class 03 is a display controller: 0300 VGA, 0302 3D.
        let gpu = file("vendor") == "0x10de" && file("class").starts_with("0x03");
        if gpu && GH200.contains(&file("device").as_str()) {
            hopper += 1;
        } else if gpu {
            other += 1;
        }
    }
    (hopper, other)
}

fn midr(sysfs: &Path) -> Option<u32> {
    let file = "devices/system/cpu/cpu0/regs/identification/midr_el1";
    let text = text(&sysfs.join(file));
    let midr = u64::from_str_radix(text.strip_prefix("0x")?, 16).ok()?;
    Some(u32::try_from(midr).ok()? & MIDR_PART)
}

fn intel(sysfs: &Path) -> Option<Platform> {
    // cpu:type:x86,ven0000fam0006mod008F:feature:...; vendor 0 is Intel.
    let modalias = text(&sysfs.join("devices/system/cpu/modalias"));
    let model = modalias.strip_prefix("cpu:type:x86,ven0000fam0006mod")?;
    match model.get(..4)?.to_ascii_uppercase().as_str() {
        "008F" => Some(Platform::Spr),
        "00CF" => Some(Platform::Emr),
        "002A" | "002D" => Some(Platform::Snb),
        _ => None,
    }
}

/// What a file holds; empty where it cannot be read: then nothing is known from it.
fn text(path: &Path) -> String {
    let text = std::fs::read_to_string(path).unwrap_or_default();
    text.trim().to_owned()
}

fn names(dir: &Path) -> Vec<String> {
    let entries = std::fs::read_dir(dir).into_iter().flatten().flatten();
    entries
        .filter_map(|entry| entry.file_name().into_string().ok())
        .collect()
}
