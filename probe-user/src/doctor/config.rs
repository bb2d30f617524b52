//! What the kernel was built with.

use std::{
    collections::HashMap,
    fs::File,
    io::{self, Read as _},
    path::{Path, PathBuf},
};

use flate2::read::GzDecoder;

use super::{Machine, Remedy};

/// The options of a kernel's build.
pub(super) struct Config {
    /// Where they were read, as the machine names it.
    pub(super) source: PathBuf,
    options: HashMap<String, String>,
}

/// How a part was built.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Built {
    /// Into the kernel.
    In,
    /// As a module.
    Module,
    /// Not at all.
    Not,
}

impl Config {
    /// Reads /proc/config.gz, or /boot/config-RELEASE; None where neither can be read.
    pub(super) fn read(machine: &Machine) -> Option<Self> {
        if let Ok(text) = gunzip(&machine.proc.join("config.gz")) {
            return Some(Self::parse(Path::new("/proc/config.gz"), &text));
        }
        let name = format!("config-{}", machine.release()?);
        let text = std::fs::read_to_string(machine.boot.join(&name)).ok()?;
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
    pub(super) fn built(&self, name: &str) -> Built {
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

/// A driver: the option it is built by, and its module.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Driver {
    /// Without `CONFIG_`.
    pub(super) option: &'static str,
    /// None where the driver cannot be a module.
    pub(super) module: Option<&'static str>,
}

/// How to get a PMU that is not there, by what the configuration says of its drivers. `absent` says
/// what it means that all of them are there and the PMU is not.
pub(super) fn driver_remedies(
    config: Option<&Config>,
    drivers: &[Driver],
    absent: &str,
) -> Vec<Remedy> {
    let Some(config) = config else {
        return vec![load(drivers.iter(), "the kernel needs")];
    };
    let built = |wanted: Built| {
        let drivers = drivers.iter();
        drivers.filter(move |driver| config.built(driver.option) == wanted)
    };
    let mut remedies = Vec::new();
    if built(Built::Not).next().is_some() {
        let options = options(built(Built::Not));
        remedies.push(Remedy {
            advice: format!(
                "this kernel is built without {options}: use one with it (NVIDIA's and newer \
                 distribution kernels have it), or build it"
            ),
            commands: Vec::new(),
        });
    }
    if built(Built::Module).next().is_some() {
        remedies.push(load(built(Built::Module), "load the module of"));
    }
    if remedies.is_empty() {
        let options = options(drivers.iter());
        remedies.push(Remedy {
            advice: format!("{options} is built in, so {absent}"),
            commands: Vec::new(),
        });
    } else if built(Built::Not).next().is_none() {
        remedies.push(Remedy {
            advice: format!("if the module is loaded already, {absent}"),
            commands: Vec::new(),
        });
    }
    remedies
}

/// A remedy that loads the drivers' modules.
fn load<'d>(drivers: impl Iterator<Item = &'d Driver> + Clone, verb: &str) -> Remedy {
    let modules = drivers.clone().filter_map(|driver| driver.module);
    Remedy {
        advice: format!("{verb} {}", options(drivers)),
        commands: modules
            .map(|module| format!("sudo modprobe {module}"))
            .collect(),
    }
}

fn options<'d>(drivers: impl Iterator<Item = &'d Driver>) -> String {
    let names: Vec<String> = drivers
        .map(|driver| format!("CONFIG_{}", driver.option))
        .collect();
    names.join(" and ")
}
