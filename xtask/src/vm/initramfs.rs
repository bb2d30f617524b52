//! The root file system of a guest: a cpio archive in the "newc" format (Linux documentation,
//! "initramfs buffer format").

use std::{collections::BTreeSet, fs, path::Path};

use anyhow::{Context as _, Result};

#[derive(Default)]
pub(super) struct Initramfs {
    archive: Vec<u8>,
    directories: BTreeSet<String>,
    inode: u32,
}

const DIRECTORY: u32 = 0o040_755;
const PROGRAM: u32 = 0o100_755;
const CHARACTER_DEVICE: u32 = 0o020_600;

impl Initramfs {
    /// Adds an executable file at the absolute `path`.
    pub(super) fn file(&mut self, path: &str, content: &[u8]) {
        self.add_parents(path);
        self.add_entry(path, PROGRAM, (0, 0), content);
    }

    /// Adds a copy of this machine's file `from`.
    pub(super) fn copy(&mut self, path: &str, from: &Path) -> Result<()> {
        let content = fs::read(from).with_context(|| format!("cannot read {}", from.display()))?;
        self.file(path, &content);
        Ok(())
    }

    /// Completes the archive and writes it.
    pub(super) fn write(mut self, to: &Path) -> Result<()> {
        // The kernel opens the console for PID 1 before anything is mounted.
        self.add_parents("/dev/console");
        self.add_entry("/dev/console", CHARACTER_DEVICE, (5, 1), &[]);
        self.add_entry("/TRAILER!!!", 0, (0, 0), &[]);
        fs::write(to, &self.archive).with_context(|| format!("cannot write {}", to.display()))
    }

    fn add_parents(&mut self, path: &str) {
        let ends = path.match_indices('/').map(|(end, _)| end);
        for end in ends.skip(1) {
            let directory = &path[..end];
            if self.directories.insert(directory.to_string()) {
                self.add_entry(directory, DIRECTORY, (0, 0), &[]);
            }
        }
    }

    fn add_entry(&mut self, path: &str, mode: u32, device: (u32, u32), content: &[u8]) {
        let name = path.trim_start_matches('/');
        let length = |bytes: usize| u32::try_from(bytes).expect("files of a guest are below 4 GiB");
        self.inode += 1;
        let header = [
            self.inode,
            mode,
            0, // uid
            0, // gid
            1, // links
            0, // modification time
            length(content.len()),
            0, // device of the file, major and minor
            0,
            device.0,
            device.1,
            length(name.len() + 1),
            0, // checksum, unused
        ];
        self.archive.extend(b"070701");
        for field in header {
            self.archive.extend(format!("{field:08x}").as_bytes());
        }
        self.archive.extend(name.as_bytes());
        self.archive.push(0);
        self.pad();
        self.archive.extend(content);
        self.pad();
    }

    /// Pads to a multiple of four, where names and contents must begin.
    fn pad(&mut self) {
        let padded = self.archive.len().next_multiple_of(4);
        self.archive.resize(padded, 0);
    }
}
