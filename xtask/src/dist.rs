//! `cargo xtask dist`: writes the release files to target/packages: static binaries of both
//! architectures, the chart, the image, Debian packages, the plain manifest, and checksums of all.

mod deb;
mod image;
mod pack;

use std::{
    fs,
    path::{Path, PathBuf},
};

use anyhow::{Context as _, Result, ensure};
use sha2::{Digest as _, Sha256};

use self::pack::{Entry, hex};
use crate::{build, sh};

/// The version of the whole workspace.
const VERSION: &str = env!("CARGO_PKG_VERSION");

/// The name of an architecture in Debian, Go and OCI, and its Rust target.
const ARCHITECTURES: [(&str, &str); 2] = [
    ("amd64", "x86_64-unknown-linux-musl"),
    ("arm64", "aarch64-unknown-linux-musl"),
];

#[derive(clap::Args)]
pub(crate) struct Args {
    /// Only check what is in target/packages: names, checksums, and that image and packages unpack
    #[arg(long)]
    check: bool,
}

pub(crate) fn run(args: &Args) -> Result<()> {
    if !args.check {
        write()?;
    }
    check()
}

/// Writes an image of one binary for this machine's tests; returns its path.
pub(crate) fn image_for(architecture: &str, binary: &Path) -> Result<PathBuf> {
    let bytes = fs::read(binary).with_context(|| format!("no {}", binary.display()))?;
    check_static(&bytes)?;
    let image = image::write(&[(architecture, bytes)], modified())?;
    let path = sh::target_dir().join("test-image.tar");
    fs::write(&path, image).with_context(|| format!("cannot write {}", path.display()))?;
    Ok(path)
}

fn directory() -> PathBuf {
    sh::target_dir().join("packages")
}

fn write() -> Result<()> {
    let directory = directory();
    // Files of an older version must not be released again.
    if directory.exists() {
        fs::remove_dir_all(&directory).context("cannot empty target/packages")?;
    }
    fs::create_dir_all(&directory).context("cannot make target/packages")?;
    let mut binaries = Vec::new();
    for (architecture, target) in ARCHITECTURES {
        let binary = build::run(&build::Args::dist(target))?;
        let binary = fs::read(&binary).with_context(|| format!("no {}", binary.display()))?;
        binaries.push((architecture, binary));
    }
    let files = files(&binaries, modified())?;
    let mut sums = String::new();
    for (name, bytes) in &files {
        #[expect(clippy::cast_precision_loss, reason = "a size to read")]
        let size = bytes.len() as f64 / 1e6;
        println!("xtask: target/packages/{name}: {size:.1} MB");
        fs::write(directory.join(name), bytes).with_context(|| format!("cannot write {name}"))?;
        sums += &format!("{}  {name}\n", hex(&Sha256::digest(bytes)));
    }
    fs::write(directory.join("SHA256SUMS"), sums).context("cannot write SHA256SUMS")
}

/// Name and content of every release file except SHA256SUMS, made from the binaries by
/// architecture.
fn files(binaries: &[(&str, Vec<u8>)], modified: u64) -> Result<Vec<(String, Vec<u8>)>> {
    let mut files = Vec::new();
    for (architecture, binary) in binaries {
        files.push((format!("pmuscope-{architecture}"), binary.clone()));
        let deb = deb::write(architecture, binary, modified)?;
        files.push((format!("pmuscope_{VERSION}_{architecture}.deb"), deb));
    }
    let image = image::write(binaries, modified)?;
    files.push((format!("pmuscope-{VERSION}-image.tar"), image));
    files.push((format!("pmuscope-{VERSION}.tgz"), chart(modified)?));
    let manifest = fs::read(sh::root().join("deploy/kubernetes.yaml"))
        .context("cannot read deploy/kubernetes.yaml")?;
    files.push(("kubernetes.yaml".to_owned(), manifest));
    Ok(files)
}

/// The chart as `helm package` makes it, but reproducible.
fn chart(modified: u64) -> Result<Vec<u8>> {
    let root = sh::root().join("deploy/helm");
    let mut entries = Vec::new();
    let mut directories = vec![root.join("pmuscope")];
    while let Some(directory) = directories.pop() {
        let list = fs::read_dir(&directory)
            .with_context(|| format!("cannot read {}", directory.display()))?;
        for entry in list {
            let path = entry?.path();
            let name = path.strip_prefix(&root)?.to_string_lossy().into_owned();
            if name.contains("/.") {
                continue;
            }
            if path.is_dir() {
                directories.push(path);
            } else {
                let bytes = fs::read(&path).with_context(|| format!("cannot read {name}"))?;
                entries.push(Entry::file(name, 0o644, bytes));
            }
        }
    }
    entries.sort_by(|a, b| a.path.cmp(&b.path));
    // helm expects Chart.yaml as the first file of the archive.
    entries.sort_by_key(|entry| entry.path != "pmuscope/Chart.yaml");
    pack::gzip(&pack::tar(&entries, modified)?)
}

/// The modification time in archives, in seconds of Unix time: `SOURCE_DATE_EPOCH`, or the time of
/// the commit. So the same sources make the same files.
fn modified() -> u64 {
    let from_env = std::env::var("SOURCE_DATE_EPOCH").ok();
    let commit = || sh::output(sh::command("git").args(["log", "-1", "--format=%ct"]));
    let time = from_env.or_else(commit);
    time.and_then(|time| time.trim().parse().ok()).unwrap_or(0)
}

/// Checks that target/packages is what [`write()`] makes.
fn check() -> Result<()> {
    let directory = directory();
    let read = |name: &str| {
        let bytes = fs::read(directory.join(name));
        bytes.with_context(|| format!("no target/packages/{name}: run `cargo xtask dist`"))
    };
    let mut binaries = Vec::new();
    for (architecture, _) in ARCHITECTURES {
        let binary = read(&format!("pmuscope-{architecture}"))?;
        check_static(&binary).with_context(|| format!("pmuscope-{architecture}"))?;
        binaries.push((architecture, binary));
    }
    let mut sums = String::new();
    for (name, bytes) in files(&binaries, modified())? {
        let found = read(&name)?;
        ensure!(
            found == bytes,
            "target/packages/{name} is not what its sources make now: run `cargo xtask dist`"
        );
        sums += &format!("{}  {name}\n", hex(&Sha256::digest(&found)));
        if name.ends_with(".deb") {
            deb::check(&found).with_context(|| name.clone())?;
        } else if name.ends_with("-image.tar") {
            image::check(&found, &binaries).with_context(|| name.clone())?;
        }
    }
    ensure!(
        read("SHA256SUMS")? == sums.as_bytes(),
        "target/packages/SHA256SUMS does not fit the files beside it: run `cargo xtask dist`"
    );
    println!("xtask: target/packages is complete");
    Ok(())
}

/// Checks that a program is static: the first bytes of a dynamic one name an interpreter.
fn check_static(binary: &[u8]) -> Result<()> {
    ensure!(binary.starts_with(b"\x7fELF"), "is no program");
    let interpreters = [&b"/ld-musl-"[..], b"/ld-linux"];
    let head = &binary[..binary.len().min(4096)];
    let mut names = interpreters.iter();
    let is_dynamic = names.any(|name| head.windows(name.len()).any(|part| part == *name));
    ensure!(
        !is_dynamic,
        "names a dynamic linker: it does not start in an empty image"
    );
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn packed() -> Vec<(String, Vec<u8>)> {
        let binaries = [
            ("amd64", b"\x7fELF first".to_vec()),
            ("arm64", b"\x7fELF second".to_vec()),
        ];
        files(&binaries, 1_700_000_000).unwrap()
    }

    #[test]
    fn the_same_sources_make_the_same_files() {
        let names = packed().into_iter().map(|(name, _)| name);
        let names: Vec<_> = names.map(|name| name.replace(VERSION, "V")).collect();
        assert_eq!(
            names,
            [
                "pmuscope-amd64",
                "pmuscope_V_amd64.deb",
                "pmuscope-arm64",
                "pmuscope_V_arm64.deb",
                "pmuscope-V-image.tar",
                "pmuscope-V.tgz",
                "kubernetes.yaml",
            ]
        );
        assert_eq!(packed(), packed());
    }

    #[test]
    fn packed_trees_unpack() {
        let binaries = [
            ("amd64", b"\x7fELF first".to_vec()),
            ("arm64", b"\x7fELF second".to_vec()),
        ];
        for (name, bytes) in packed() {
            if name.ends_with(".deb") {
                deb::check(&bytes).unwrap();
            } else if name.ends_with("-image.tar") {
                image::check(&bytes, &binaries).unwrap();
                let changed = [binaries[0].clone(), ("arm64", b"other".to_vec())];
                assert!(image::check(&bytes, &changed).is_err());
            }
        }
    }

    #[test]
    fn a_program_that_needs_a_dynamic_linker_is_refused() {
        assert!(check_static(&fs::read("/bin/sh").unwrap()).is_err());
        assert!(check_static(b"#!/bin/sh").is_err());
    }
}
