//! The text that stands for a cgroup's path in labels: bounded, since any user who may create
//! cgroups chooses the path's length.

use std::borrow::Cow;

use sha2::{Digest as _, Sha256};

/// The longest path in a label, in bytes. A pod's container in a container, as kind makes them, has
/// about 350.
const MOST: usize = 512;

/// Bytes of a longer path that its label keeps: the last ones, which have the cgroup's own name.
const KEPT: usize = 256;

/// Bytes of the hash in a label. Nobody finds two paths with the same 16 bytes of SHA-256.
const HASHED: usize = 16;

/// The path, or `…HASH…END` where it is too long. A path begins with `/`, so no path is equal to
/// the text of another.
pub(crate) fn label_of_path(path: &str) -> Cow<'_, str> {
    if path.len() <= MOST {
        return path.into();
    }
    let hash = Sha256::digest(path);
    let digits: String = hash[..HASHED]
        .iter()
        .map(|byte| format!("{byte:02x}"))
        .collect();
    let end = &path[path.ceil_char_boundary(path.len() - KEPT)..];
    format!("…{digits}…{end}").into()
}

#[cfg(test)]
mod tests {
    use std::collections::HashSet;

    use super::*;

    #[test]
    fn only_long_paths_are_shortened() {
        let path = format!("/{}", "a".repeat(MOST - 1));
        assert_eq!(label_of_path(&path), path);
        // The hash is that of `sha256sum`.
        let path = format!("/{}", "a".repeat(MOST));
        let expected = format!("…d8534f0b3b979f2998f683ec3102b924…{}", "a".repeat(KEPT));
        assert_eq!(label_of_path(&path), expected);
    }

    #[test]
    fn paths_that_differ_somewhere_have_different_labels() {
        let long = format!("/é{}", "é/".repeat(1000));
        let mut paths: Vec<_> = (0..long.len())
            .filter(|at| long.is_char_boundary(*at))
            .map(|at| format!("{}x{}", &long[..at], &long[at..]))
            .collect();
        // What another path's label looks like is no path's label.
        paths.push(format!("/{}", label_of_path(&long)));
        paths.push(long);
        let labels: HashSet<_> = paths.iter().map(|path| label_of_path(path)).collect();
        assert_eq!(labels.len(), paths.iter().collect::<HashSet<_>>().len());
        assert!(labels.iter().all(|label| label.len() <= MOST));
    }
}
