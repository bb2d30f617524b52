//! The build configuration of the running kernel.

use std::{
    collections::HashMap,
    fs::{self, File},
    io::{self, Read as _},
    path::{Path, PathBuf},
};

use flate2::read::GzDecoder;

use super::read_trimmed;
use crate::sys::roots::Roots;

/// The options of a kernel's build.
#[derive(Debug)]
pub(crate) struct KernelConfig {
    /// The file that was read, as a path of the machine itself.
    pub(crate) source: PathBuf,
    options: HashMap<String, String>,
}

/// How an option was built.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Built {
    /// Into the kernel.
    In,
    /// As a module.
    Module,
    /// Not at all.
    Not,
}

impl KernelConfig {
    /// Reads `<proc>/config.gz`, or `<boot>/config-RELEASE`; None if neither can be read.
    pub(super) fn read(roots: &Roots) -> Option<Self> {
        let running = roots.proc.join("config.gz");
        if let Ok(text) = gunzip(&running) {
            return Some(Self::parse(roots.named(&running), &text));
        }
        let release = read_trimmed(&roots.proc.join("sys/kernel/osrelease"))?;
        let installed = roots.boot.join(format!("config-{release}"));
        let text = fs::read_to_string(&installed).ok()?;
        Some(Self::parse(roots.named(&installed), &text))
    }

    fn parse(source: PathBuf, text: &str) -> Self {
        let options = text.lines().filter_map(|line| {
            let (name, value) = line.strip_prefix("CONFIG_")?.split_once('=')?;
            Some((name.to_owned(), value.to_owned()))
        });
        Self {
            source,
            options: options.collect(),
        }
    }

    /// How the option `CONFIG_<name>` was built.
    pub(crate) fn built(&self, name: &str) -> Built {
        match self.options.get(name).map(String::as_str) {
            Some("y") => Built::In,
            Some("m") => Built::Module,
            Some(_) | None => Built::Not,
        }
    }
}

fn gunzip(path: &Path) -> io::Result<String> {
    let mut text = String::new();
    GzDecoder::new(File::open(path)?).read_to_string(&mut text)?;
    Ok(text)
}
