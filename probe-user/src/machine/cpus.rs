//! Sets of CPU numbers in the kernel's list format (`0-3,8,10-11`), and the sysfs files of online
//! and possible CPUs.

use std::{
    fmt,
    path::{Path, PathBuf},
    str::FromStr,
};

use thiserror::Error;

use super::by_text::serde_by_text;

/// The largest CPU number. No kernel is built for more CPUs, so a larger number is a damaged file.
/// The bound also keeps a range such as `0-4294967295` from filling the memory.
const MAX_CPU: u32 = 65_535;

/// An ordered set of CPU numbers.
#[derive(Clone, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct CpuList(Vec<u32>);

impl CpuList {
    /// The CPUs in rising order.
    pub fn iter(&self) -> impl ExactSizeIterator<Item = u32> + '_ {
        self.0.iter().copied()
    }

    /// How many CPUs are in the set.
    #[must_use]
    pub fn len(&self) -> usize {
        self.0.len()
    }

    /// Whether the set is empty.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// Whether `cpu` is in the set.
    #[must_use]
    pub fn contains(&self, cpu: u32) -> bool {
        self.position(cpu).is_some()
    }

    /// Number of CPUs of the set before `cpu`: its index where the kernel packs one value per CPU.
    /// None if `cpu` is not in the set.
    #[must_use]
    pub fn position(&self, cpu: u32) -> Option<usize> {
        self.0.binary_search(&cpu).ok()
    }

    /// The highest CPU of the set.
    #[must_use]
    pub fn last(&self) -> Option<u32> {
        self.0.last().copied()
    }
}

impl FromIterator<u32> for CpuList {
    fn from_iter<I: IntoIterator<Item = u32>>(cpus: I) -> Self {
        let mut cpus: Vec<u32> = cpus.into_iter().collect();
        cpus.sort_unstable();
        cpus.dedup();
        Self(cpus)
    }
}

impl<'a> IntoIterator for &'a CpuList {
    type Item = u32;
    type IntoIter = std::iter::Copied<std::slice::Iter<'a, u32>>;

    fn into_iter(self) -> Self::IntoIter {
        self.0.iter().copied()
    }
}

/// Prints the kernel's list format: consecutive numbers as ranges, nothing for the empty set.
impl fmt::Display for CpuList {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let ranges = self.0.chunk_by(|a, b| a + 1 == *b);
        for (i, range) in ranges.enumerate() {
            let comma = if i == 0 { "" } else { "," };
            match range {
                [] => {}
                [only] => write!(f, "{comma}{only}")?,
                [first, .., last] => write!(f, "{comma}{first}-{last}")?,
            }
        }
        Ok(())
    }
}

serde_by_text!(CpuList);

/// Why a text is not a list of CPUs.
#[derive(Clone, Debug, Error, PartialEq, Eq)]
pub enum ParseCpuListError {
    /// A part between two commas is neither a number nor a range.
    #[error("`{0}` is neither a CPU number nor a range of them")]
    Part(String),
    /// A range whose end is below its start.
    #[error("the range `{0}` runs backwards")]
    Backwards(String),
    /// A number no machine has.
    #[error("there is no CPU {0}")]
    TooLarge(u64),
}

impl FromStr for CpuList {
    type Err = ParseCpuListError;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        let text = text.trim_matches(|c: char| c.is_ascii_whitespace());
        if text.is_empty() {
            return Ok(Self::default());
        }
        let mut cpus = Vec::new();
        for part in text.split(',') {
            let (first, last) = part.split_once('-').unwrap_or((part, part));
            let (first, last) = (cpu(first, part)?, cpu(last, part)?);
            if first > last {
                return Err(ParseCpuListError::Backwards(part.to_owned()));
            }
            cpus.extend(first..=last);
        }
        Ok(cpus.into_iter().collect())
    }
}

/// Parses a CPU number of the list part `part`.
fn cpu(digits: &str, part: &str) -> Result<u32, ParseCpuListError> {
    let malformed = || ParseCpuListError::Part(part.to_owned());
    if !digits.bytes().all(|b| b.is_ascii_digit()) {
        return Err(malformed());
    }
    let number: u64 = digits.parse().map_err(|_| malformed())?;
    u32::try_from(number)
        .ok()
        .filter(|cpu| *cpu <= MAX_CPU)
        .ok_or(ParseCpuListError::TooLarge(number))
}

/// Why sysfs gave no list of CPUs.
#[derive(Debug, Error)]
pub enum CpuListError {
    /// The file could not be read.
    #[error("cannot read {}: {reason}; is sysfs mounted?", path.display())]
    Read {
        /// The file.
        path: PathBuf,
        /// The error of the read.
        reason: std::io::Error,
    },
    /// The file holds something else.
    #[error("{} holds `{content}`, which is no list of CPUs: {reason}", path.display())]
    Content {
        /// The file.
        path: PathBuf,
        /// Its content, without the line end.
        content: String,
        /// Why it is no list.
        reason: ParseCpuListError,
    },
}

/// The CPUs that are online, from `<sysfs>/devices/system/cpu/online`.
///
/// # Errors
/// The file cannot be read or is no CPU list.
pub fn online(sysfs: &Path) -> Result<CpuList, CpuListError> {
    read(sysfs.join("devices/system/cpu/online"))
}

/// The CPUs that can ever be online, from `<sysfs>/devices/system/cpu/possible`.
///
/// # Errors
/// The file cannot be read or is no CPU list.
pub fn possible(sysfs: &Path) -> Result<CpuList, CpuListError> {
    read(sysfs.join("devices/system/cpu/possible"))
}

fn read(path: PathBuf) -> Result<CpuList, CpuListError> {
    let content = match std::fs::read_to_string(&path) {
        Ok(content) => content,
        Err(reason) => return Err(CpuListError::Read { path, reason }),
    };
    content.parse().map_err(|reason| CpuListError::Content {
        path,
        content: content.trim_end().to_owned(),
        reason,
    })
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;
    use test_support::Tree;

    use super::*;

    fn list(text: &str) -> CpuList {
        text.parse().unwrap()
    }

    #[test]
    fn the_kernels_format_is_read() {
        assert_eq!(list("0-3,8,10-11\n"), CpuList(vec![0, 1, 2, 3, 8, 10, 11]));
        assert_eq!(list("\n"), CpuList(vec![]));
        assert_eq!(list(""), CpuList(vec![]));
        assert_eq!(list("7"), CpuList(vec![7]));
        assert_eq!(
            list("5,1-2,2,1"),
            CpuList(vec![1, 2, 5]),
            "ordered and unique"
        );
        assert_eq!(list("65535").last(), Some(65_535));
    }

    #[test]
    fn the_kernels_format_is_printed() {
        for text in ["", "0", "0-1", "0-3,8,10-11", "0,2,4"] {
            assert_eq!(list(text).to_string(), text);
        }
        assert_eq!(list("2,1,0,0").to_string(), "0-2");
    }

    #[test]
    fn queries_of_a_list_agree_with_its_members() {
        let cpus = list("0-2,72");
        assert!(cpus.contains(72) && !cpus.contains(3));
        assert_eq!(
            (cpus.len(), cpus.is_empty(), cpus.last()),
            (4, false, Some(72))
        );
        assert_eq!(cpus.iter().collect::<Vec<_>>(), [0, 1, 2, 72]);
        assert_eq!((&cpus).into_iter().sum::<u32>(), 75);
    }

    #[test]
    fn a_position_skips_gaps() {
        let possible = list("0-1,4-5");
        let positions = [0, 1, 2, 3, 4, 5, 6].map(|cpu| possible.position(cpu));
        assert_eq!(
            positions,
            [Some(0), Some(1), None, None, Some(2), Some(3), None]
        );
    }

    #[test]
    fn a_text_that_is_no_list_is_refused() {
        let why = |text: &str| text.parse::<CpuList>().unwrap_err().to_string();
        assert_eq!(
            why("0-"),
            "`0-` is neither a CPU number nor a range of them"
        );
        assert_eq!(
            why("0,,1"),
            "`` is neither a CPU number nor a range of them"
        );
        assert_eq!(why("a"), "`a` is neither a CPU number nor a range of them");
        assert_eq!(
            why("+1"),
            "`+1` is neither a CPU number nor a range of them"
        );
        assert_eq!(
            why("1-2-3"),
            "`1-2-3` is neither a CPU number nor a range of them"
        );
        assert_eq!(why("3-1"), "the range `3-1` runs backwards");
        assert_eq!(why("0-4294967295"), "there is no CPU 4294967295");
    }

    #[test]
    fn online_and_possible_cpus_are_read() {
        let root = Tree::new();
        root.write("devices/system/cpu/online", "0-3\n");
        root.write("devices/system/cpu/possible", "0-x\n");

        assert_eq!(online(root.path()).unwrap(), list("0-3"));
        assert_eq!(
            possible(root.path()).unwrap_err().to_string(),
            format!(
                "{} holds `0-x`, which is no list of CPUs: `0-x` is neither a CPU number nor a \
                 range of them",
                root.join("devices/system/cpu/possible").display()
            )
        );
    }

    #[test]
    fn a_file_that_cannot_be_read_is_named() {
        let error = online(Path::new("/nonexistent")).unwrap_err().to_string();
        assert_eq!(
            error,
            "cannot read /nonexistent/devices/system/cpu/online: No such file or directory (os \
             error 2); is sysfs mounted?"
        );
    }

    proptest! {
        #[test]
        fn printing_and_reading_gives_the_list_back(
            cpus in prop::collection::vec(0..=MAX_CPU, 0..40),
        ) {
            let list: CpuList = cpus.into_iter().collect();
            prop_assert_eq!(list.to_string().parse::<CpuList>().unwrap(), list);
        }

        #[test]
        fn no_text_panics(text in "[0-9,\\-a-z \n]{0,40}") {
            let _ = text.parse::<CpuList>();
        }
    }
}
