//! What the names and identifiers of uncore PMUs tell.

use super::pmus::Pmu;

/// The product id of one of NVIDIA's `CoreSight` PMUs, such as 0x2cf for the coherent fabric.
///
/// A kernel that does not know a product names its PMU `nvidia_uncore_pmu_<n>`, with a number that
/// is not the socket, and lists no event but `cycles` (`drivers/perf/arm_cspmu/nvidia_cspmu.c`):
/// then only this tells what it is.
#[must_use]
pub fn product(pmu: &Pmu) -> Option<u32> {
    product_of(pmu.identifier.as_deref()?)
}

/// The product id of an `identifier`: the register PMIIDR in hexadecimal has it in bits 31:20.
#[must_use]
pub fn product_of(identifier: &str) -> Option<u32> {
    let pmiidr = u32::from_str_radix(identifier, 16).ok()?;
    Some(pmiidr >> 20)
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
