//! Build ids from ELF notes (`elf(5)`).

use std::{fs, path::Path};

const NT_GNU_BUILD_ID: usize = 3;

/// The build id in notes of this machine's byte order; None if they have none.
pub(crate) fn build_id(notes: &[u8]) -> Option<Vec<u8>> {
    let mut rest = notes;
    loop {
        let (header, after) = rest.split_first_chunk::<12>()?;
        let word = |at: usize| -> Option<usize> {
            let bytes = header.get(at..at + 4)?.try_into().ok()?;
            usize::try_from(u32::from_ne_bytes(bytes)).ok()
        };
        let (name_size, size, kind) = (word(0)?, word(4)?, word(8)?);
        let content = after.get(name_size.checked_next_multiple_of(4)?..)?;
        if after.get(..name_size)? == b"GNU\0" && kind == NT_GNU_BUILD_ID {
            return content.get(..size).map(<[u8]>::to_vec);
        }
        rest = content.get(size.checked_next_multiple_of(4)?..)?;
    }
}

/// The build id of the running kernel.
pub(crate) fn of_kernel(sysfs: &Path) -> Option<Vec<u8>> {
    build_id(&fs::read(sysfs.join("kernel/notes")).ok()?)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_running_kernel_has_a_build_id() {
        match of_kernel(Path::new("/sys")) {
            Some(id) => assert_eq!(id.len(), 20),
            None => assert!(!Path::new("/sys/kernel/notes").exists()),
        }
    }
}
