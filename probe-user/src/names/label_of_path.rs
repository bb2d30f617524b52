//! The text that stands for a cgroup's path in labels: bounded, since any user who may create
//! cgroups chooses the path's length.

use std::borrow::Cow;

use sha2::{Digest as _, Sha256};

/// Maximum length of a path in a label in bytes. Paths of kind's nested containers have about 350.
const MAX_LENGTH: usize = 512;

/// Length of the path's end in the label of a longer path, in bytes. The end has the cgroup's own
/// name.
const TAIL: usize = 256;

/// Bytes of the hash in a label. To find a collision of 16 bytes of SHA-256 takes some 2^64 hashes.
const HASH_BYTES: usize = 16;

/// The path, or `…HASH…END` if it is too long. A path begins with `/`, so it never equals a
/// shortened label.
pub(crate) fn label_of_path(path: &str) -> Cow<'_, str> {
    if path.len() <= MAX_LENGTH {
        return path.into();
    }
    let hash = Sha256::digest(path);
    let digits: String = hash[..HASH_BYTES]
        .iter()
        .map(|byte| format!("{byte:02x}"))
        .collect();
    let end = &path[path.ceil_char_boundary(path.len() - TAIL)..];
    format!("…{digits}…{end}").into()
}

#[cfg(test)]
mod tests {
    use std::collections::HashSet;

    use super::*;

    #[test]
    fn only_long_paths_are_shortened() {
        let path = format!("/{}", "a".repeat(MAX_LENGTH - 1));
        assert_eq!(label_of_path(&path), path);
        // The hash is as `sha256sum` prints it.
        let path = format!("/{}", "a".repeat(MAX_LENGTH));
        let expected = format!("…d8534f0b3b979f2998f683ec3102b924…{}", "a".repeat(TAIL));
        assert_eq!(label_of_path(&path), expected);
    }

    #[test]
    fn paths_that_differ_somewhere_have_different_labels() {
        let long = format!("/é{}", "é/".repeat(1000));
        let mut paths: Vec<_> = (0..long.len())
            .filter(|at| long.is_char_boundary(*at))
            .map(|at| format!("{}x{}", &long[..at], &long[at..]))
            .collect();
        // A path that contains another path's label.
        paths.push(format!("/{}", label_of_path(&long)));
        paths.push(long);
        let labels: HashSet<_> = paths.iter().map(|path| label_of_path(path)).collect();
        assert_eq!(labels.len(), paths.iter().collect::<HashSet<_>>().len());
        assert!(labels.iter().all(|label| label.len() <= MAX_LENGTH));
    }
}
