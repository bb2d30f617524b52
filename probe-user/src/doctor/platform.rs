//! Which machine this is, and which uncore PMUs a machine of that kind should show.

use super::{Subject, config::Driver, subject::Arch};

/// A kind of machine whose uncore PMUs are known.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Platform {
    /// NVIDIA Grace (Tegra241).
    Grace,
    /// NVIDIA Vera (Tegra410).
    Vera,
    /// Intel Sapphire Rapids.
    SapphireRapids,
    /// Intel Emerald Rapids.
    EmeraldRapids,
}

/// Uncore PMUs that one driver gives.
pub(super) struct Family {
    /// What their names start with; before the number of the socket.
    pub(super) prefix: &'static str,
    /// What cannot be known without them.
    pub(super) lost: &'static str,
    pub(super) drivers: &'static [Driver],
}

const fn family(prefix: &'static str, drivers: &'static [Driver], lost: &'static str) -> Family {
    Family {
        prefix,
        lost,
        drivers,
    }
}

/// The names that NVIDIA's Grace guide gives ("Configuring Perf"); modules by `drivers/perf/arm_cspmu/Makefile`.
const CORESIGHT: &[Driver] = &[
    Driver {
        option: "ARM_CORESIGHT_PMU_ARCH_SYSTEM_PMU",
        module: Some("arm_cspmu_module"),
    },
    Driver {
        option: "NVIDIA_CORESIGHT_PMU_ARCH_SYSTEM_PMU",
        module: Some("nvidia_cspmu"),
    },
];

const CMEM_LATENCY: &[Driver] = &[Driver {
    option: "NVIDIA_TEGRA410_CMEM_LATENCY_PMU",
    module: Some("nvidia_t410_cmem_latency_pmu"),
}];

const C2C: &[Driver] = &[Driver {
    option: "NVIDIA_TEGRA410_C2C_PMU",
    module: Some("nvidia_t410_c2c_pmu"),
}];

const INTEL: &[Driver] = &[Driver {
    option: "PERF_EVENTS_INTEL_UNCORE",
    module: Some("intel_uncore"),
}];

const GRACE: [Family; 5] = [
    family(
        "nvidia_scf_pmu_",
        CORESIGHT,
        "traffic of L3 and CPU memory per socket: bandwidth, latency, the share of the other socket",
    ),
    family(
        "nvidia_pcie_pmu_",
        CORESIGHT,
        "bandwidth and latency of the PCIe root ports",
    ),
    family(
        "nvidia_nvlink_c2c0_pmu_",
        CORESIGHT,
        "NVLink-C2C traffic of a GPU that the ATS translates, or of the other socket's PCIe devices",
    ),
    family(
        "nvidia_nvlink_c2c1_pmu_",
        CORESIGHT,
        "NVLink-C2C traffic of a GPU that the ATS does not translate",
    ),
    family(
        "nvidia_cnvlink_pmu_",
        CORESIGHT,
        "traffic of GPUs to the memory of other sockets",
    ),
];

const VERA: [Family; 7] = [
    family(
        "nvidia_ucf_pmu_",
        CORESIGHT,
        "traffic of L3 and memory per socket: bandwidth and hits",
    ),
    family(
        "nvidia_pcie_pmu_",
        CORESIGHT,
        "bandwidth and latency of PCIe devices to memory",
    ),
    family(
        "nvidia_pcie_tgt_pmu_",
        CORESIGHT,
        "bandwidth and latency of accesses to PCIe devices",
    ),
    family(
        "nvidia_cmem_latency_pmu_",
        CMEM_LATENCY,
        "latency of CPU memory",
    ),
    family(
        "nvidia_nvlink_c2c_pmu_",
        C2C,
        "NVLink-C2C traffic of the GPU or the other socket",
    ),
    family(
        "nvidia_nvclink_pmu_",
        C2C,
        "NV-CLink traffic between sockets",
    ),
    family("nvidia_nvdlink_pmu_", C2C, "NV-DLink traffic"),
];

const XEON: [Family; 3] = [
    family(
        "uncore_cha_",
        INTEL,
        "requests of cores and PCIe devices to the L3, and how long they take (DDIO)",
    ),
    family("uncore_iio_", INTEL, "bandwidth of PCIe devices by port"),
    family("uncore_imc_", INTEL, "memory bandwidth per channel"),
];

impl Platform {
    /// Grace by the SMCCC id of its chip, Vera by the implementer of its cores, Xeons by family and
    /// model; Grace and Vera also by a PMU that only they have.
    pub(super) fn of(subject: &Subject, mut has_pmu: impl FnMut(&str) -> bool) -> Option<Self> {
        match subject.process.arch {
            Arch::Arm64 => {
                let soc = subject.sys("devices/soc0/soc_id");
                if soc.is_some_and(|id| id == "jep106:036b:0241") || has_pmu("nvidia_scf_pmu_") {
                    return Some(Self::Grace);
                }
                let vera = midr(subject) == Some((0x4e, 0x010)) || has_pmu("nvidia_ucf_pmu_");
                vera.then_some(Self::Vera)
            }
            Arch::X86 => match model(subject)? {
                (6, 143) => Some(Self::SapphireRapids),
                (6, 207) => Some(Self::EmeraldRapids),
                _ => None,
            },
        }
    }

    pub(super) fn name(self) -> &'static str {
        match self {
            Self::Grace => "NVIDIA Grace",
            Self::Vera => "NVIDIA Vera (Tegra410)",
            Self::SapphireRapids => "Intel Sapphire Rapids",
            Self::EmeraldRapids => "Intel Emerald Rapids",
        }
    }

    pub(super) fn families(self) -> &'static [Family] {
        match self {
            Self::Grace => &GRACE,
            Self::Vera => &VERA,
            Self::SapphireRapids | Self::EmeraldRapids => &XEON,
        }
    }
}

/// Implementer and part number of the first CPU (`MIDR_EL1`, bits 31:24 and 15:4).
fn midr(subject: &Subject) -> Option<(u64, u64)> {
    let text = subject.sys("devices/system/cpu/cpu0/regs/identification/midr_el1")?;
    let midr = u64::from_str_radix(text.trim_start_matches("0x"), 16).ok()?;
    Some((midr >> 24 & 0xff, midr >> 4 & 0xfff))
}

/// Family and model of an Intel CPU.
fn model(subject: &Subject) -> Option<(u32, u32)> {
    let cpuinfo = subject.proc("cpuinfo")?;
    let field = |name: &str| {
        cpuinfo.lines().find_map(|line| {
            let (key, value) = line.split_once(':')?;
            (key.trim() == name).then(|| value.trim())
        })
    };
    if field("vendor_id")? != "GenuineIntel" {
        return None;
    }
    Some((
        field("cpu family")?.parse().ok()?,
        field("model")?.parse().ok()?,
    ))
}
