//! The Debian package (deb(5)): the static binary, the unit, its configuration, the manual,
//! completions for shells.

use std::{collections::BTreeSet, fs, io::Read as _};

use anyhow::{Context as _, Result, ensure};
use flate2::read::GzDecoder;

use super::{
    VERSION,
    pack::{self, Entry},
};
use crate::{docs, sh};

/// Files of deploy/ and where they are installed.
const FILES: [(&str, &str); 2] = [
    (
        "pmuscope.service",
        "usr/lib/systemd/system/pmuscope.service",
    ),
    ("agent.toml", "etc/pmuscope/agent.toml"),
];

const BINARY: &str = "usr/bin/pmuscope";

pub(super) fn write(architecture: &str, binary: &[u8], modified: u64) -> Result<Vec<u8>> {
    let data = data(binary)?;
    let control = control(architecture, binary.len())?;
    let mut deb = ar::Builder::new(Vec::new());
    let mut add = |name: &str, bytes: &[u8]| {
        let mut header = ar::Header::new(name.into(), bytes.len() as u64);
        header.set_mode(0o100_644);
        header.set_mtime(modified);
        deb.append(&header, bytes)
            .with_context(|| format!("cannot pack {name}"))
    };
    add("debian-binary", b"2.0\n")?;
    add(
        "control.tar.gz",
        &pack::gzip(&pack::tar(&control, modified)?)?,
    )?;
    add("data.tar.gz", &pack::gzip(&pack::tar(&data, modified)?)?)?;
    deb.into_inner().context("cannot end a package")
}

fn read(path: &str) -> Result<Vec<u8>> {
    fs::read(sh::root().join(path)).with_context(|| format!("cannot read {path}"))
}

/// The names of the files in a directory.
fn names(directory: &str) -> Result<BTreeSet<String>> {
    let list = fs::read_dir(sh::root().join(directory));
    let list = list.with_context(|| format!("cannot read {directory}"))?;
    list.map(|entry| Ok(entry?.file_name().to_string_lossy().into_owned()))
        .collect()
}

/// The installed files, after their parent directories.
fn data(binary: &[u8]) -> Result<Vec<Entry>> {
    let mut files = vec![Entry::file(BINARY, 0o755, binary)];
    for (from, to) in FILES {
        files.push(Entry::file(to, 0o644, read(&format!("deploy/{from}"))?));
    }
    for page in names("deploy/man")? {
        let zipped = pack::gzip(&read(&format!("deploy/man/{page}"))?)?;
        files.push(Entry::file(
            format!("usr/share/man/man1/{page}.gz"),
            0o644,
            zipped,
        ));
    }
    for (_, name, to) in docs::COMPLETIONS {
        let script = read(&format!("deploy/completions/{name}"))?;
        files.push(Entry::file(to, 0o644, script));
    }
    let mut copyright = format!("pmuscope: {}\n\n", env!("CARGO_PKG_LICENSE")).into_bytes();
    copyright.extend(read("LICENSE-MIT")?);
    copyright.extend(read("LICENSE-APACHE")?);
    files.push(Entry::file(
        "usr/share/doc/pmuscope/copyright",
        0o644,
        copyright,
    ));

    let parents = |path: &str| -> Vec<String> {
        let slashes = path.match_indices('/');
        slashes.map(|(at, _)| path[..at].to_owned()).collect()
    };
    let directories: BTreeSet<_> = files.iter().flat_map(|file| parents(&file.path)).collect();
    let mut entries: Vec<_> = directories.into_iter().map(Entry::directory).collect();
    entries.extend(files);
    Ok(entries)
}

fn control(architecture: &str, size: usize) -> Result<Vec<Entry>> {
    let text = format!(
        "Package: pmuscope\n\
         Version: {VERSION}\n\
         Architecture: {architecture}\n\
         Maintainer: The pmuscope developers <root@localhost>\n\
         Installed-Size: {}\n\
         Section: admin\n\
         Priority: optional\n\
         Description: hardware counters and memory traffic of each container\n \
         eBPF programs attached to the scheduler account perf counters for each\n \
         cgroup. pmuscope joins the sums with the names of containers and shows or\n \
         exports them.\n",
        size.div_ceil(1024)
    );
    let mut entries = vec![
        Entry::file("control", 0o644, text),
        Entry::file("conffiles", 0o644, "/etc/pmuscope/agent.toml\n"),
    ];
    for script in ["postinst", "postrm", "prerm"] {
        let bytes = read(&format!("deploy/debian/{script}"))?;
        entries.push(Entry::file(script, 0o755, bytes));
    }
    Ok(entries)
}

/// Checks that a package has its members, and among its files the binary, the unit and the
/// configuration.
pub(super) fn check(deb: &[u8]) -> Result<()> {
    let mut archive = ar::Archive::new(deb);
    let mut members = Vec::new();
    let mut installed = Vec::new();
    while let Some(member) = archive.next_entry() {
        let mut member = member?;
        let name = String::from_utf8_lossy(member.header().identifier()).into_owned();
        let mut bytes = Vec::new();
        member.read_to_end(&mut bytes)?;
        if name == "data.tar.gz" {
            for entry in tar::Archive::new(GzDecoder::new(&bytes[..])).entries()? {
                installed.push(entry?.path()?.to_string_lossy().into_owned());
            }
        }
        members.push(name);
    }
    ensure!(
        members == ["debian-binary", "control.tar.gz", "data.tar.gz"],
        "has {members:?}"
    );
    for path in FILES.iter().map(|(_, to)| *to).chain([BINARY]) {
        ensure!(installed.iter().any(|it| it == path), "has no {path}");
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Uses dpkg itself, if it is installed.
    #[test]
    fn dpkg_reads_the_package() {
        if sh::output(sh::command("dpkg-deb").arg("--version")).is_none() {
            println!("skipped: dpkg-deb is not installed");
            return;
        }
        let directory = sh::target_dir().join(format!("test-deb-{}", std::process::id()));
        fs::create_dir_all(&directory).unwrap();
        let path = directory.join("pmuscope.deb");
        fs::write(&path, write("arm64", b"a binary", 1_700_000_000).unwrap()).unwrap();
        let dpkg = |option: &str| {
            let mut dpkg = sh::command("dpkg-deb");
            sh::output(dpkg.arg(option).arg(&path)).unwrap_or_else(|| panic!("{option}"))
        };
        let fields = dpkg("--field");
        assert!(fields.contains(&format!("Version: {VERSION}\nArchitecture: arm64\n")));
        let contents = dpkg("--contents");
        assert!(contents.contains("-rwxr-xr-x root/root"), "{contents}");
        for directory in ["etc/pmuscope", "usr/share/doc/pmuscope"] {
            assert!(contents.contains(&format!(" {directory}/\n")), "{contents}");
        }
        let mut unpack = sh::command("dpkg-deb");
        unpack.arg("--raw-extract").arg(&path);
        sh::check(unpack.arg(directory.join("root"))).unwrap();
        let unpacked = fs::read(directory.join("root/usr/bin/pmuscope")).unwrap();
        assert_eq!(unpacked, b"a binary");
        fs::remove_dir_all(&directory).unwrap();
    }
}
