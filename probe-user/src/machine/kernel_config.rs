//! What the running kernel was built with.

use std::{
    collections::HashMap,
    fs::{self, File},
    io::{self, Read as _},
    path::{Path, PathBuf},
};

use flate2::read::GzDecoder;

/// The options of a kernel's build.
pub(crate) struct KernelConfig {
    /// Where they were read, as the machine names it.
    pub(crate) source: PathBuf,
    options: HashMap<String, String>,
}

/// How a part was built.
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
    /// Reads /proc/config.gz, or /boot/config-RELEASE; None where neither can be read.
    pub(crate) fn read(proc: &Path, boot: &Path) -> Option<Self> {
        if let Ok(text) = gunzip(&proc.join("config.gz")) {
            return Some(Self::parse(Path::new("/proc/config.gz"), &text));
        }
        let name = format!("config-{}", release(proc)?);
        let text = fs::read_to_string(boot.join(&name)).ok()?;
        Some(Self::parse(&Path::new("/boot").join(name), &text))
    }

    fn parse(source: &Path, text: &str) -> Self {
        let options = text.lines().filter_map(|line| {
            let (name, value) = line.strip_prefix("CONFIG_")?.split_once('=')?;
            Some((name.to_owned(), value.to_owned()))
        });
        Self {
            source: source.to_owned(),
            options: options.collect(),
        }
    }

    /// How the part `CONFIG_<name>` was built.
    pub(crate) fn built(&self, name: &str) -> Built {
        match self.options.get(name).map(String::as_str) {
            Some("y") => Built::In,
            Some("m") => Built::Module,
            Some(_) | None => Built::Not,
        }
    }
}

/// `uname -r`
fn release(proc: &Path) -> Option<String> {
    let text = fs::read_to_string(proc.join("sys/kernel/osrelease")).ok()?;
    Some(text.trim().to_owned())
}

fn gunzip(path: &Path) -> io::Result<String> {
    let mut text = String::new();
    GzDecoder::new(File::open(path)?).read_to_string(&mut text)?;
    Ok(text)
}
