//! The offset of `CLOCK_MONOTONIC` in a time namespace from the kernel's own `CLOCK_MONOTONIC`,
//! which is constant (`time_namespaces(7)`).

use std::{fs, io, path::Path};

/// Offset of this process's `CLOCK_MONOTONIC` from the kernel's, in ns; None if `proc` does not
/// provide it.
pub(super) fn monotonic_offset(proc: &Path) -> Option<i64> {
    let this_process = proc.join("self");
    let offsets = match fs::read_to_string(this_process.join("timens_offsets")) {
        Ok(offsets) => offsets,
        // A kernel without time namespaces.
        Err(error) if error.kind() == io::ErrorKind::NotFound && this_process.exists() => {
            return Some(0);
        }
        Err(_) => return None,
    };
    // The file has the offset of the namespace for children. That is also this process's namespace,
    // unless this process made another one for its children.
    let namespace = |name| fs::read_link(this_process.join("ns").join(name)).ok();
    if namespace("time")? != namespace("time_for_children")? {
        return None;
    }
    parse(&offsets)
}

/// Parses the file. It has a line for each clock: its name, and the seconds and nanoseconds to add.
fn parse(offsets: &str) -> Option<i64> {
    let mut fields = offsets
        .lines()
        .map(|line| line.split_whitespace())
        .find_map(|mut fields| (fields.next()? == "monotonic").then_some(fields))?;
    let mut number = || fields.next()?.parse::<i64>().ok();
    let (seconds, nanos) = (number()?, number()?);
    seconds.checked_mul(1_000_000_000)?.checked_add(nanos)
}

#[cfg(test)]
mod tests {
    use test_support::Tree;

    use super::*;

    #[test]
    fn the_offset_of_the_monotonic_clock_is_parsed() {
        let text = |monotonic| format!("{monotonic}\nboottime           7         1\n");
        let zero = "monotonic           0         0";
        assert_eq!(parse(&text(zero)), Some(0));
        let ahead = "monotonic      100000         5";
        assert_eq!(parse(&text(ahead)), Some(100_000_000_000_005));
        let behind = "monotonic          -2 999999999";
        assert_eq!(parse(&text(behind)), Some(-1_000_000_001));
        assert_eq!(parse("boottime 7 1\n"), None);
        assert_eq!(parse("monotonic 9223372036854775807 0"), None);
    }

    #[test]
    fn without_time_namespaces_the_offset_is_zero() {
        let proc = Tree::new();
        assert_eq!(monotonic_offset(proc.path()), None);
        proc.dir("self");
        assert_eq!(monotonic_offset(proc.path()), Some(0));
    }

    #[test]
    fn the_clock_offset_of_this_process_is_known() {
        assert!(monotonic_offset(Path::new("/proc")).is_some());
    }
}
