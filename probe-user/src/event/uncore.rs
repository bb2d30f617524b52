//! What the names and identifiers of uncore PMUs tell.

use super::sysfs::Pmu;

/// The hardware behind one of NVIDIA's CoreSight PMUs, by the product id of its `identifier`: that is
/// the register PMIIDR in hexadecimal, with the product in bits 31:20
/// (`drivers/perf/arm_cspmu/nvidia_cspmu.c`).
///
/// A kernel that does not know the product yet names the PMU `nvidia_uncore_pmu_<n>`, with a number
/// that is not the socket, and lists no event but `cycles`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Product {
    /// Coherent fabric and last-level cache: SCF on Grace, UCF on Tegra410.
    Fabric,
    /// PCIe traffic from devices.
    Pcie,
    /// NVLink-C2C1 of Grace.
    NvlinkC2c1,
    /// NVLink-C2C0 of Grace.
    NvlinkC2c0,
    /// CNVLINK of Grace.
    Cnvlink,
    /// PCIe traffic to devices (Tegra410).
    PcieTarget,
}

impl Product {
    /// The product of a PMU of this driver; `None` for any other PMU.
    #[must_use]
    pub fn of(pmu: &Pmu) -> Option<Self> {
        if !pmu.name.starts_with("nvidia_") {
            return None;
        }
        let pmiidr = u32::from_str_radix(pmu.identifier.as_ref()?, 16).ok()?;
        match pmiidr >> 20 {
            0x2cf => Some(Self::Fabric),
            0x103 => Some(Self::Pcie),
            0x104 => Some(Self::NvlinkC2c1),
            0x105 => Some(Self::NvlinkC2c0),
            0x106 => Some(Self::Cnvlink),
            0x107 => Some(Self::PcieTarget),
            _ => None,
        }
    }
}

/// The NUMA node that NVIDIA's drivers put into the name of a PMU: that of its first CPU, which
/// the documents call the socket.
#[must_use]
pub fn named_node(pmu: &str) -> Option<u32> {
    let (hardware, numbers) = pmu.strip_prefix("nvidia_")?.split_once("_pmu_")?;
    if hardware == "uncore" {
        return None;
    }
    numbers.split('_').next()?.parse().ok()
}
