//! Debian packages unpacked under `<target>/vm`, fetched by apt with sources and state of its
//! own: the machine's apt configuration is read (mirror, proxy) and never changed.

use std::{
    collections::BTreeSet,
    fs,
    path::{Path, PathBuf},
    process::Command,
};

use anyhow::{Context as _, Result, bail, ensure};

use super::packages::{PIN_FILE, Package, RELEASE, Tree};
use crate::{debian, sh};

const KEYRING: &str = "/usr/share/keyrings/debian-archive-keyring.gpg";

pub(super) struct Archive {
    vm: PathBuf,
}

impl Archive {
    pub(super) fn new(vm: &Path) -> Self {
        Self {
            vm: vm.to_path_buf(),
        }
    }

    /// Fetches and unpacks what is not there yet; no network where all is.
    pub(super) fn provide(&self, packages: &BTreeSet<Package>) -> Result<()> {
        let missing: Vec<_> = packages
            .iter()
            .filter(|package| !self.stamp(package).exists())
            .collect();
        if missing.is_empty() {
            return Ok(());
        }
        self.update()?;
        for package in &missing {
            self.check_pin(package)?;
        }
        // apt itself continues a download that was cut off, and checks each against its hash.
        let debs = self.vm.join("debs");
        fs::create_dir_all(&debs)?;
        println!("xtask: downloading {} Debian packages", missing.len());
        let mut download = self.apt("apt-get");
        download.args(["-q", "download"]).current_dir(&debs);
        download.args(missing.iter().map(|package| apt_name(package)));
        sh::check(&mut download)?;
        for package in missing {
            self.unpack(&debs, package)?;
        }
        Ok(())
    }

    /// Where the packages of a tree are unpacked.
    pub(super) fn tree(&self, tree: Tree) -> PathBuf {
        self.vm.join(tree.directory())
    }

    /// Exists once the package is completely unpacked.
    fn stamp(&self, package: &Package) -> PathBuf {
        self.vm.join("unpacked").join(package.to_string())
    }

    fn unpack(&self, debs: &Path, package: &Package) -> Result<()> {
        let Package {
            name,
            arch,
            version,
            ..
        } = package;
        let deb = debs.join(format!("{name}_{}_{arch}.deb", version.replace(':', "%3a")));
        let tree = self.tree(package.tree);
        fs::create_dir_all(&tree)?;
        sh::check(sh::command("dpkg-deb").arg("-x").arg(&deb).arg(&tree))?;
        let stamp = self.stamp(package);
        fs::create_dir_all(stamp.parent().unwrap_or(&self.vm))?;
        fs::write(&stamp, "")?;
        fs::remove_file(&deb).with_context(|| format!("cannot remove {}", deb.display()))
    }

    /// An apt program that sees only our sources and keeps its state in our directory.
    fn apt(&self, program: &str) -> Command {
        let mut apt = sh::command(program);
        apt.env("APT_CONFIG", self.vm.join("apt/apt.conf"));
        apt.env("LC_ALL", "C");
        apt
    }

    /// apt reads this before the machine's own configuration, which still adds its proxy.
    fn configure(&self) -> Result<()> {
        let state = self.vm.join("apt");
        for dir in ["sources.list.d", "state", "lists/partial", "cache"] {
            fs::create_dir_all(state.join(dir))?;
        }
        fs::write(state.join("status"), "")?;
        let directories = [
            ("Dir::Etc::sourcelist", "sources.list"),
            ("Dir::Etc::sourceparts", "sources.list.d"),
            ("Dir::State", "state"),
            ("Dir::State::lists", "lists"),
            ("Dir::State::status", "status"),
            ("Dir::Cache", "cache"),
        ]
        .map(|(option, value)| format!("{option} \"{}\";\n", state.join(value).display()));
        // apt's own user may not be able to write below the target directory.
        let rest = "APT::Architectures { \"amd64\"; \"arm64\"; };\n\
                    APT::Sandbox::User \"\";\n\
                    Acquire::Languages \"none\";\n";
        fs::write(state.join("apt.conf"), directories.concat() + rest)
            .context("cannot write apt's configuration under target/vm")
    }

    fn update(&self) -> Result<()> {
        self.configure()?;
        ensure!(
            Path::new(KEYRING).exists(),
            "{KEYRING} is missing, so Debian's packages cannot be verified: \
             install debian-archive-keyring"
        );
        let mirror = debian::mirror()?;
        let sources = [RELEASE, &format!("{RELEASE}-backports")].map(|suite| {
            let options = format!("arch=amd64,arm64 target=Packages signed-by={KEYRING}");
            format!("deb [{options}] {mirror} {suite} main\n")
        });
        fs::write(self.vm.join("apt/sources.list"), sources.concat())?;
        sh::check(self.apt("apt-get").args(["-q", "update"]))
            .with_context(|| format!("cannot read Debian's package lists at {mirror}"))
    }

    /// An error that names the newest version where the pinned one is gone.
    fn check_pin(&self, package: &Package) -> Result<()> {
        let mut show = self.apt("apt-cache");
        show.args(["show", &apt_name(package)]);
        let shown = sh::output(&mut show).unwrap_or_default();
        let Package { name, version, .. } = package;
        // apt-cache also succeeds where only the name is there.
        let wanted = format!("Version: {version}");
        if shown.lines().any(|line| line == wanted) {
            return Ok(());
        }
        match self.newest(package) {
            Some(newest) => bail!(
                "{name}: version {version} is no longer in the archive; \
                 newest is {newest}: change {PIN_FILE}"
            ),
            None => bail!(
                "{name}: version {version} is no longer in the archive, nor is any other of its \
                 series: change the release or the series in {PIN_FILE}"
            ),
        }
    }

    /// `NAME VERSION` of the newest package of the series.
    fn newest(&self, package: &Package) -> Option<String> {
        let mut search = self.apt("apt-cache");
        search.args(["search", "--names-only", &package.series_pattern()]);
        let found = sh::output(&mut search)?;
        let names = found.lines().filter_map(|line| line.split(' ').next());
        let mut show = self.apt("apt-cache");
        show.args(["show", "--no-all-versions"]);
        show.args(names.map(|name| match package.arch {
            "all" => name.to_string(),
            arch => format!("{name}:{arch}"),
        }));
        let shown = sh::output(&mut show)?;
        shown
            .split("\n\n")
            .filter_map(|entry| {
                let field = |key: &str| entry.lines().find_map(|line| line.strip_prefix(key));
                Some(format!("{} {}", field("Package: ")?, field("Version: ")?))
            })
            .max_by_key(|entry| natural(entry))
    }
}

/// `NAME:ARCH=VERSION`, the way apt wants it.
fn apt_name(package: &Package) -> String {
    match package.arch {
        "all" => format!("{}={}", package.name, package.version),
        _ => package.to_string(),
    }
}

/// The numbers of a name in order: 6.12.100 sorts after 6.12.95.
fn natural(text: &str) -> Vec<u64> {
    text.split(|c: char| !c.is_ascii_digit())
        .filter_map(|digits| digits.parse().ok())
        .collect()
}

#[cfg(test)]
mod tests {
    use super::natural;

    #[test]
    fn versions_sort_by_number() {
        assert!(natural("6.12.100+deb12") > natural("6.12.95+deb12"));
    }
}
