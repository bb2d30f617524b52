//! Debian packages unpacked under one directory, fetched by apt with sources and state of its own:
//! the machine's apt configuration is read (mirror, proxy) and never changed.

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

    /// Fetches and unpacks what is missing. Uses no network if nothing is.
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
        // First: it has the links that the kernels' packages follow, such as /lib.
        if !complete {
            self.install(buildroot::SUITE, buildroot::PROGRAMS, &root)?;
            buildroot::complete(&root)?;
        }
        // apt itself continues a download that was cut off, and checks each against its hash.
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

    /// Unpacks the packages `names` and all that they depend on. No package's own script runs.
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

    /// Where the packages of a tree are unpacked.
    pub(super) fn tree(&self, tree: Tree) -> PathBuf {
        self.directory.join(tree.directory())
    }

    /// A file that exists once the package is completely unpacked.
    fn stamp(&self, package: &Package) -> PathBuf {
        let tree = self.tree(package.tree);
        tree.join(".unpacked").join(package.to_string())
    }

    /// An apt program that sees only our sources and keeps its state in our directory.
    fn apt(&self, program: &str) -> Command {
        let mut apt = sh::command(program);
        apt.env("APT_CONFIG", self.directory.join("apt/apt.conf"));
        apt.env("LC_ALL", "C");
        apt
    }

    /// apt reads this before the machine's own configuration, which still adds its proxy.
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
        // apt's own user may not be able to write below the target directory.
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
            .max_by_key(|entry| natural(entry))
    }
}

/// Unpacks and removes a package file. Directories of Debian 12's packages that are links in Debian
/// 13, such as /lib, stay links: `dpkg-deb --extract` would replace them.
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
