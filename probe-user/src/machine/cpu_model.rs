//! Identification of CPUs: `MIDR_EL1` on Arm; vendor, family and model on x86.

use std::path::Path;

use super::read_trimmed;

/// Vendor, family and model of an x86 CPU; all CPUs of a machine have the same.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct CpuModel {
    /// The vendor as in CPUID, such as `GenuineIntel`.
    pub vendor: String,
    /// The family, including the extended family.
    pub family: u32,
    /// The model, including the extended model.
    pub model: u32,
    /// The stepping; `None` if only the modalias was read, which has none.
    pub stepping: Option<u32>,
}

impl CpuModel {
    /// Reads `<proc>/cpuinfo`, else the CPU's modalias in sysfs.
    pub(super) fn read(sysfs: &Path, proc: &Path) -> Option<Self> {
        let cpuinfo = read_trimmed(&proc.join("cpuinfo"));
        let modalias = || read_trimmed(&sysfs.join("devices/system/cpu/modalias"));
        cpuinfo
            .and_then(|text| Self::parse_cpuinfo(&text))
            .or_else(|| Self::parse_modalias(&modalias()?))
    }

    fn parse_cpuinfo(text: &str) -> Option<Self> {
        let field = |name: &str| {
            text.lines().find_map(|line| {
                let (key, value) = line.split_once(':')?;
                (key.trim() == name).then(|| value.trim())
            })
        };
        Some(Self {
            vendor: field("vendor_id")?.to_owned(),
            family: field("cpu family")?.parse().ok()?,
            model: field("model")?.parse().ok()?,
            stepping: field("stepping").and_then(|it| it.parse().ok()),
        })
    }

    /// Parses `cpu:type:x86,ven0000fam0006mod008F:feature:...`; vendor numbers are in
    /// arch/x86/include/asm/processor.h.
    fn parse_modalias(text: &str) -> Option<Self> {
        let text = text.strip_prefix("cpu:type:x86,ven")?;
        let hex = |digits: Option<&str>| u32::from_str_radix(digits?, 16).ok();
        let vendor = match hex(text.get(..4))? {
            0 => "GenuineIntel",
            2 => "AuthenticAMD",
            9 => "HygonGenuine",
            _ => return None,
        };
        let text = text.get(4..)?.strip_prefix("fam")?;
        let family = hex(text.get(..4))?;
        let model = hex(text.get(4..)?.strip_prefix("mod")?.get(..4))?;
        Some(Self {
            vendor: vendor.to_owned(),
            family,
            model,
            stepping: None,
        })
    }
}

/// `MIDR_EL1` of a CPU; None on other architectures.
pub(super) fn midr(sysfs: &Path, cpu: u32) -> Option<u64> {
    let file = format!("devices/system/cpu/cpu{cpu}/regs/identification/midr_el1");
    let text = read_trimmed(&sysfs.join(file))?;
    u64::from_str_radix(text.strip_prefix("0x")?, 16).ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn cpuinfo_and_modalias_give_the_same_model() {
        let cpuinfo =
            "processor\t: 0\nvendor_id\t: AuthenticAMD\ncpu family\t: 25\nmodel\t\t: 17\n";
        let modalias = "cpu:type:x86,ven0002fam0019mod0011:feature:,0000,0001";
        let genoa = CpuModel {
            vendor: "AuthenticAMD".to_owned(),
            family: 25,
            model: 17,
            stepping: None,
        };
        assert_eq!(CpuModel::parse_cpuinfo(cpuinfo), Some(genoa.clone()));
        assert_eq!(CpuModel::parse_modalias(modalias), Some(genoa));
        for other in [
            "",
            "cpu:type:aarch64:feature:,0000",
            "cpu:type:x86,ven0002fam",
        ] {
            assert_eq!(CpuModel::parse_modalias(other), None, "{other}");
        }
    }
}
