//! `cargo xtask fresh`: runs the two commands of the README in a new minimal Debian root, which has
//! only a C compiler, git, and rustup with the pinned toolchain. It finds set-up steps that depend
//! on something this machine already has.
//!
//! The root has its own mount namespace. It shares the kernel, processes, network, cgroups and
//! devices of this machine, and its settings for package registries. It has no pid namespace of
//! its own: there pmuscope could name neither functions nor processes.

use std::{
    env, fs,
    path::{Path, PathBuf},
    process::Command,
};

use anyhow::{Context as _, Result, bail, ensure};

use crate::{debian, sh};

/// Packages to install before the README's first command. The README asks for rustup and a C
/// compiler; ca-certificates and git are needed to clone.
const PACKAGES: &str = "gcc,libc6-dev,ca-certificates,git";

/// Files and directories outside of home with settings for package registries.
const SETTINGS: &[&str] = &[
    "etc/apt/apt.conf.d",
    "etc/hosts",
    "etc/resolv.conf",
    "etc/ssl",
    "usr/local/share/ca-certificates",
];

/// The path of the clone in the new root.
const CLONE: &str = "root/pmuscope";

/// Removes the parts of the toolchain that `cargo xtask setup` installs.
const REMOVE_SETUP: &str = "rustup component remove rust-src
rustup target remove x86_64-unknown-linux-musl aarch64-unknown-linux-musl";

/// The README's commands.
const COMMANDS: &str = "cargo xtask run -- doctor
cargo xtask test";

/// Runs the script $2 in the new root $1. Its mount namespace is new, so its mounts end with it. It
/// uses `pivot_root` and not chroot: runc's own `pivot_root` fails in a chroot.
const ENTER: &str = r#"
mount --bind "$1" "$1"
mount --rbind /sys "$1/sys" && mount --make-rslave "$1/sys"
mount --rbind /dev "$1/dev" && mount --make-rslave "$1/dev"
mount -t proc proc "$1/proc"
mount -t tmpfs tmpfs "$1/run"
cd "$1" && pivot_root . mnt && cd /
chroot /mnt umount --lazy --no-canonicalize /
exec sh -euxc "$2"
"#;

pub(crate) fn run() -> Result<()> {
    ensure!(
        rustix::process::geteuid().is_root(),
        "`cargo xtask fresh` makes a root file system and namespaces: run it as root"
    );
    ensure!(
        debian::has_apt(),
        "`cargo xtask fresh` makes a Debian root with mmdebstrap, and this machine has no apt"
    );
    let need = "`cargo xtask fresh` needs mmdebstrap";
    debian::install(&debian::missing(&[("mmdebstrap", "mmdebstrap")]), need)?;
    let uncommitted = sh::output(sh::command("git").args(["status", "--porcelain"]));
    if uncommitted.is_none_or(|files| !files.is_empty()) {
        println!("xtask: what is not committed is not in the clone that is tried");
    }

    let root = sh::target_dir().join("fresh");
    remove(&root)?;
    fs::create_dir_all(&root).with_context(|| format!("cannot make {}", root.display()))?;
    make_debian_root(&root)?;
    copy_settings(&root)?;
    copy_toolchain(&root)?;
    let clone = root.join(CLONE);
    let mut git = sh::command("git");
    // Without hard links: the new root shares no files with this one.
    git.args(["clone", "--quiet", "--no-hardlinks"]);
    sh::check(git.arg(sh::root()).arg(&clone))?;

    let script = format!("cd /{CLONE}\n{REMOVE_SETUP}\n{COMMANDS}\n");
    let status = enter(&root, &script)
        .status()
        .context("cannot start unshare (Debian package util-linux)")?;
    ensure!(
        status.success(),
        "a command of the README does not work on a fresh machine: its last lines above say why; \
         what it left is in {}",
        root.display()
    );
    println!("xtask: both commands of the README work on a fresh machine");
    remove(&root)
}

/// Makes a minimal Debian of this machine's release, from its mirror.
fn make_debian_root(root: &Path) -> Result<()> {
    let mut make = Command::new("mmdebstrap");
    make.args(["--quiet", "--variant=apt"]);
    make.arg(format!("--include={PACKAGES}"));
    make.arg(debian::codename()?)
        .arg(root)
        .arg(debian::mirror()?);
    sh::check(&mut make)
}

/// Copies this machine's settings for package registries.
fn copy_settings(root: &Path) -> Result<()> {
    let existing: Vec<_> = SETTINGS
        .iter()
        .map(|file| Path::new("/").join(file))
        .filter(|file| file.exists())
        .collect();
    for file in existing {
        let to = root.join(file.strip_prefix("/").unwrap_or(&file));
        copy(&file, to.parent().unwrap_or(root))?;
    }
    Ok(())
}

/// Copies rustup, the pinned toolchain and cargo's settings, but no installed programs or cached
/// crates.
fn copy_toolchain(root: &Path) -> Result<()> {
    let home = |variable: &str, default: &str| -> Result<PathBuf> {
        if let Some(dir) = env::var_os(variable) {
            return Ok(dir.into());
        }
        let home = env::var_os("HOME").context("HOME is not set")?;
        Ok(Path::new(&home).join(default))
    };
    let (rustup, cargo) = (
        home("RUSTUP_HOME", ".rustup")?,
        home("CARGO_HOME", ".cargo")?,
    );
    let active = sh::output(sh::command("rustup").args(["show", "active-toolchain"]))
        .context("rustup does not name the active toolchain")?;
    let Some(toolchain) = active.split_whitespace().next() else {
        bail!("rustup names no active toolchain: {active:?}");
    };
    let to = root.join("root/.rustup");
    for part in ["settings.toml", "update-hashes"] {
        copy(&rustup.join(part), &to)?;
    }
    // A toolchain may be a link to the directory of another toolchain.
    let files = rustup.join("toolchains").join(toolchain).join(".");
    copy(&files, &to.join("toolchains").join(toolchain))?;
    let to = root.join("root/.cargo");
    for program in [
        "rustup",
        "cargo",
        "rustc",
        "rustdoc",
        "rustfmt",
        "cargo-fmt",
        "cargo-clippy",
    ] {
        copy(&cargo.join("bin").join(program), &to.join("bin"))?;
    }
    for settings in ["config.toml", "credentials.toml"] {
        if cargo.join(settings).exists() {
            copy(&cargo.join(settings), &to)?;
        }
    }
    Ok(())
}

/// A command that runs `script` in the new root.
fn enter(root: &Path, script: &str) -> Command {
    let mut enter = Command::new("unshare");
    enter.args(["--mount", "--fork", "--kill-child", "--"]);
    enter
        .args(["sh", "-euc", ENTER, "sh"])
        .arg(root)
        .arg(script);
    // Removes variables that cargo and rustup set for this xtask, and paths outside of the new
    // root; other variables of the user stay.
    for (name, _) in env::vars_os() {
        let text = name.to_string_lossy();
        let removed = ["CARGO", "CARGO_HOME", "CARGO_TARGET_DIR", "LD_LIBRARY_PATH"];
        if removed.contains(&&*text)
            || text.starts_with("CARGO_MANIFEST")
            || text.starts_with("CARGO_PKG")
            || text.starts_with("RUST_RECURSION")
            || text.starts_with("RUSTUP_HOME")
            || text.starts_with("RUSTUP_TOOLCHAIN")
        {
            enter.env_remove(name);
        }
    }
    enter.env("HOME", "/root").env("TMPDIR", "/tmp");
    let path = "/root/.cargo/bin:/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin";
    enter.env("PATH", path);
    enter
}

/// Copies recursively, links as links.
fn copy(from: &Path, into: &Path) -> Result<()> {
    fs::create_dir_all(into).with_context(|| format!("cannot make {}", into.display()))?;
    let mut copy = Command::new("cp");
    sh::check(copy.args(["-a", "--reflink=auto"]).arg(from).arg(into))
}

fn remove(root: &Path) -> Result<()> {
    if !root.exists() {
        return Ok(());
    }
    let mounts = fs::read_to_string("/proc/self/mountinfo").context("cannot read mountinfo")?;
    let inside = format!(" {}/", root.display());
    ensure!(
        !mounts.contains(&inside),
        "something is mounted below {}: unmount it before it is removed",
        root.display()
    );
    fs::remove_dir_all(root).with_context(|| format!("cannot remove {}", root.display()))
}
