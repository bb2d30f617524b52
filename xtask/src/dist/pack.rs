//! Reproducible archives: the same content makes the same bytes.

use std::io::Write as _;

use anyhow::{Context as _, Result};
use flate2::{Compression, GzBuilder};
use tar::{Builder, EntryType, Header};

/// A file or directory of an archive.
pub(super) struct Entry {
    /// Without a leading slash.
    pub(super) path: String,
    mode: u32,
    /// None for a directory.
    bytes: Option<Vec<u8>>,
}

impl Entry {
    pub(super) fn file(path: impl Into<String>, mode: u32, bytes: impl Into<Vec<u8>>) -> Self {
        Self {
            path: path.into(),
            mode,
            bytes: Some(bytes.into()),
        }
    }

    pub(super) fn directory(path: impl Into<String>) -> Self {
        Self {
            path: path.into(),
            mode: 0o755,
            bytes: None,
        }
    }
}

/// A tar file in which everything belongs to root.
pub(super) fn tar(entries: &[Entry], modified: u64) -> Result<Vec<u8>> {
    let mut tar = Builder::new(Vec::new());
    for entry in entries {
        let bytes = entry.bytes.as_deref().unwrap_or_default();
        let mut header = Header::new_gnu();
        header.set_entry_type(match entry.bytes {
            Some(_) => EntryType::Regular,
            None => EntryType::Directory,
        });
        header.set_size(bytes.len() as u64);
        header.set_mode(entry.mode);
        header.set_mtime(modified);
        header.set_uid(0);
        header.set_gid(0);
        header.set_username("root")?;
        header.set_groupname("root")?;
        // By convention, names of directories end with a slash.
        let slash = if entry.bytes.is_none() { "/" } else { "" };
        tar.append_data(&mut header, format!("{}{slash}", entry.path), bytes)
            .with_context(|| format!("cannot pack {}", entry.path))?;
    }
    tar.into_inner().context("cannot end an archive")
}

pub(super) fn gzip(bytes: &[u8]) -> Result<Vec<u8>> {
    let mut gzip = GzBuilder::new().write(Vec::new(), Compression::best());
    gzip.write_all(bytes).context("cannot compress")?;
    gzip.finish().context("cannot compress")
}

pub(super) fn hex(bytes: &[u8]) -> String {
    bytes.iter().map(|byte| format!("{byte:02x}")).collect()
}
