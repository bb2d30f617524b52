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
fn product_of(identifier: &str) -> Option<u32> {
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

/// Whether a name of a PMU is one that perf takes this for: the name without its number (of
/// decimal digits, or more than two hexadecimal ones), or a pattern with `*` and `?`; either
/// without `uncore_` in front (`perf_pmu__wildcard_match` in tools/perf/util/pmu.c).
#[must_use]
pub(super) fn stands_for(pattern: &str, name: &str) -> bool {
    let one = |name: &str| {
        if pattern.contains(['*', '?']) {
            return matches(pattern.as_bytes(), name.as_bytes());
        }
        let number = name
            .strip_prefix(pattern)
            .and_then(|rest| rest.strip_prefix('_'));
        number.is_some_and(|number| {
            let mut digits = number.bytes();
            !number.is_empty()
                && match number.len() {
                    1 | 2 => digits.all(|digit| digit.is_ascii_digit()),
                    _ => digits.all(|digit| digit.is_ascii_hexdigit()),
                }
        })
    };
    one(name) || name.strip_prefix("uncore_").is_some_and(one)
}

/// Whether a text is as the pattern has it: `*` is any text, `?` any character. A star takes as
/// little as it can, and more where what is behind it does not fit.
fn matches(pattern: &[u8], text: &[u8]) -> bool {
    let (mut in_pattern, mut in_text, mut star) = (0, 0, None);
    while let Some(byte) = text.get(in_text) {
        match (pattern.get(in_pattern), star) {
            (Some(b'*'), _) => {
                star = Some((in_pattern, in_text));
                in_pattern += 1;
            }
            (Some(one), _) if *one == b'?' || one == byte => {
                (in_pattern, in_text) = (in_pattern + 1, in_text + 1);
            }
            (_, Some((at, from))) => {
                star = Some((at, from + 1));
                (in_pattern, in_text) = (at + 1, from + 1);
            }
            (_, None) => return false,
        }
    }
    pattern[in_pattern..].iter().all(|byte| *byte == b'*')
}
