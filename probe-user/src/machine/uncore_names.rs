//! Facts encoded in names and identifiers of uncore PMUs.

use super::pmus::Pmu;

/// The product id of an NVIDIA `CoreSight` PMU, such as 0x2cf for the coherent fabric.
///
/// A kernel that does not know a product names its PMU `nvidia_uncore_pmu_<n>`, with a number that
/// is not the socket, and lists only the event `cycles` (`drivers/perf/arm_cspmu/nvidia_cspmu.c`):
/// then only the product id identifies the PMU.
#[must_use]
pub fn product(pmu: &Pmu) -> Option<u32> {
    parse_product(pmu.identifier.as_deref()?)
}

/// The product id in an `identifier`: bits 31:20 of the register PMIIDR in hexadecimal.
#[must_use]
fn parse_product(identifier: &str) -> Option<u32> {
    let pmiidr = u32::from_str_radix(identifier, 16).ok()?;
    Some(pmiidr >> 20)
}

/// The NUMA node in the name of a PMU of NVIDIA's drivers: the node of its first CPU, which the
/// documents call the socket.
#[must_use]
pub fn named_node(pmu: &str) -> Option<u32> {
    let (hardware, numbers) = pmu.strip_prefix("nvidia_")?.split_once("_pmu_")?;
    if hardware == "uncore" {
        return None;
    }
    numbers.split('_').next()?.parse().ok()
}

/// Whether a PMU's name matches `pattern` as in perf: a name without its number (decimal digits, or
/// more than two hexadecimal ones), or a pattern with `*` and `?`. Either may omit `uncore_`
/// (`perf_pmu__wildcard_match` in tools/perf/util/pmu.c).
#[must_use]
pub(super) fn matches_pmu_name(pattern: &str, name: &str) -> bool {
    let matches_name = |name: &str| {
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
    matches_name(name) || name.strip_prefix("uncore_").is_some_and(matches_name)
}

/// Whether a text matches a pattern: `*` is any text, `?` any character. A star first takes as
/// little as possible, and more if the rest does not match.
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
