//! Fetches Debian packages by apt and unpacks them into one directory. apt gets its own sources and
//! state: it reads the machine's configuration (mirror, proxy) and never changes it.

use std::{
    collections::BTreeSet,
    fs,
    path::{Path, PathBuf},
    process::{Command, Stdio},
};

use anyhow::{Context as _, Result, bail, ensure};

use super::{
    buildroot,
    packages::{PIN_FILE, Package, Tree, suites},
};
use crate::{debian, sh};

const KEYRING: &str = "/usr/share/keyrings/debian-archive-keyring.gpg";

pub(super) struct Archive {
    directory: PathBuf,
}

impl Archive {
    pub(super) fn new(directory: &Path) -> Self {
        Self {
            directory: directory.to_path_buf(),
        }
    }

    /// Fetches and unpacks missing packages. Uses no network if none are missing.
    pub(super) fn provide(&self, packages: &BTreeSet<Package>) -> Result<()> {
        let missing: Vec<_> = packages
            .iter()
            .filter(|package| !self.stamp(package).exists())
            .collect();
        let root = self.tree(Tree::Root);
        let complete = buildroot::is_complete(&root);
        if missing.is_empty() && complete {
            return Ok(());
        }
        self.update()?;
        // The root is made first: it has links that kernel packages follow, such as /lib.
        if !complete {
            self.install(buildroot::SUITE, buildroot::PROGRAMS, &root)?;
            buildroot::complete(&root)?;
        }
        // apt itself continues interrupted downloads, and verifies hashes.
        let debs = self.directory.join("debs");
        fs::create_dir_all(&debs)?;
        println!("xtask: downloading {} Debian packages", missing.len());
        let mut download = self.apt("apt-get");
        download.args(["-q", "download"]).current_dir(&debs);
        download.args(missing.iter().map(|package| apt_name(package)));
        if !missing.is_empty()
            && let Err(error) = sh::check(&mut download)
        {
            for package in &missing {
                self.check_pin(package)?;
            }
            return Err(error);
        }
        for package in missing {
            let Package {
                name,
                arch,
                version,
                ..
            } = package;
            let deb = format!("{name}_{}_{arch}.deb", version.replace(':', "%3a"));
            unpack(&debs.join(deb), &self.tree(package.tree))?;
            let stamp = self.stamp(package);
            fs::create_dir_all(stamp.parent().unwrap_or(&self.directory))?;
            fs::write(&stamp, "")?;
        }
        Ok(())
    }

    /// Unpacks the packages `names` and their dependencies, without running package scripts.
    fn install(&self, suite: &str, names: &[&str], tree: &Path) -> Result<()> {
        let debs = self.directory.join("debs").join(suite);
        fs::create_dir_all(debs.join("partial"))?;
        println!(
            "xtask: downloading the programs of Debian {suite} that build the guests' modules"
        );
        let mut install = self.apt("apt-get");
        install.args(["-qq", "--yes", "--no-install-recommends", "--download-only"]);
        install.args(["--target-release", suite]);
        install
            .arg("-o")
            .arg(format!("Dir::Cache::archives={}", debs.display()));
        sh::check(install.arg("install").args(names))?;
        for deb in fs::read_dir(&debs)? {
            let deb = deb?.path();
            if deb.extension().is_some_and(|extension| extension == "deb") {
                unpack(&deb, tree)?;
            }
        }
        fs::remove_dir_all(&debs).with_context(|| format!("cannot remove {}", debs.display()))
    }

    /// The directory where the packages of a tree are unpacked.
    pub(super) fn tree(&self, tree: Tree) -> PathBuf {
        self.directory.join(tree.directory())
    }

    /// A file that exists once the package is completely unpacked.
    fn stamp(&self, package: &Package) -> PathBuf {
        let tree = self.tree(package.tree);
        tree.join(".unpacked").join(package.to_string())
    }

    /// An apt program with only our sources, and its state in our directory.
    fn apt(&self, program: &str) -> Command {
        let mut apt = sh::command(program);
        apt.env("APT_CONFIG", self.directory.join("apt/apt.conf"));
        apt.env("LC_ALL", "C");
        apt
    }

    /// Writes the configuration that apt reads before the machine's own. The machine's own adds the
    /// proxy.
    fn configure(&self) -> Result<()> {
        let state = self.directory.join("apt");
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
        // apt's sandbox user may not be able to write below the user's cache directory.
        let rest = "APT::Architectures { \"amd64\"; \"arm64\"; };\n\
                    APT::Sandbox::User \"\";\n\
                    Acquire::Languages \"none\";\n";
        fs::write(state.join("apt.conf"), directories.concat() + rest)
            .context("cannot write apt's configuration")
    }

    fn update(&self) -> Result<()> {
        self.configure()?;
        ensure!(
            Path::new(KEYRING).exists(),
            "{KEYRING} is missing, so Debian's packages cannot be verified: \
             install debian-archive-keyring"
        );
        let mirror = debian::mirror()?;
        let options = format!("arch=amd64,arm64 target=Packages signed-by={KEYRING}");
        let suites = suites().into_iter();
        let sources: String = suites
            .map(|suite| format!("deb [{options}] {mirror} {suite} main\n"))
            .collect();
        fs::write(self.directory.join("apt/sources.list"), sources)?;
        sh::check(self.apt("apt-get").args(["-q", "update"]))
            .with_context(|| format!("cannot read Debian's package lists at {mirror}"))
    }

    /// Checks that the archive has the pinned version; the error names the newest one.
    fn check_pin(&self, package: &Package) -> Result<()> {
        let mut show = self.apt("apt-cache");
        show.args(["show", &apt_name(package)]);
        let shown = sh::output(&mut show).unwrap_or_default();
        let Package { name, version, .. } = package;
        // apt-cache also succeeds if it knows only the name.
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
                 series: change the suite or the series in {PIN_FILE}"
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
            .max_by_key(|entry| numbers(entry))
    }
}

/// Unpacks a package file and removes it. Directories of Debian 12 packages that are links in
/// Debian 13, such as /lib, stay links; `dpkg-deb --extract` would replace them.
fn unpack(deb: &Path, tree: &Path) -> Result<()> {
    fs::create_dir_all(tree)?;
    let mut read = sh::command("dpkg-deb");
    read.arg("--fsys-tarfile").arg(deb).stdout(Stdio::piped());
    let mut read = read.spawn().context("cannot start dpkg-deb")?;
    let mut write = sh::command("tar");
    write
        .args(["-x", "--keep-directory-symlink", "-C"])
        .arg(tree);
    write.stdin(read.stdout.take().context("dpkg-deb has no output")?);
    let written = sh::check(&mut write);
    ensure!(read.wait()?.success(), "cannot read {}", deb.display());
    written?;
    fs::remove_file(deb).with_context(|| format!("cannot remove {}", deb.display()))
}

/// A package as apt's argument: `NAME:ARCH=VERSION`.
fn apt_name(package: &Package) -> String {
    match package.arch {
        "all" => format!("{}={}", package.name, package.version),
        _ => package.to_string(),
    }
}

/// The numbers in a name, which sort versions: 6.12.100 after 6.12.95.
fn numbers(text: &str) -> Vec<u64> {
    text.split(|c: char| !c.is_ascii_digit())
        .filter_map(|digits| digits.parse().ok())
        .collect()
}

#[cfg(test)]
mod tests {
    use super::numbers;

    #[test]
    fn versions_sort_by_number() {
        assert!(numbers("6.12.100+deb12") > numbers("6.12.95+deb12"));
    }
}
