//! Directories of the workspace, and running of commands. Errors name the command.

use std::{
    env,
    ffi::OsStr,
    path::{Path, PathBuf},
    process::Command,
};

use anyhow::{Context as _, Result, bail};

/// The workspace root.
pub(crate) fn root() -> &'static Path {
    Path::new(env!("CARGO_MANIFEST_DIR"))
        .parent()
        .expect("xtask lives one level below the workspace root")
}

/// The target directory: `CARGO_TARGET_DIR` if it is set, as for cargo itself.
pub(crate) fn target_dir() -> PathBuf {
    match env::var_os("CARGO_TARGET_DIR") {
        Some(dir) => env::current_dir().unwrap_or_default().join(dir),
        None => root().join("target"),
    }
}

/// The user's cache directory, which all checkouts share; without one, the target directory.
pub(crate) fn cache() -> PathBuf {
    let from_env = env::var_os("XDG_CACHE_HOME").map(PathBuf::from);
    let cache = from_env.or_else(|| Some(PathBuf::from(env::var_os("HOME")?).join(".cache")));
    cache.unwrap_or_else(target_dir)
}

/// PATH, with the directory of the tools that `setup` installs in front.
fn path_with_tools() -> std::ffi::OsString {
    let tools = target_dir().join("tools/bin");
    let path = env::var_os("PATH").unwrap_or_default();
    let directories = std::iter::once(tools).chain(env::split_paths(&path));
    env::join_paths(directories).unwrap_or(path)
}

/// A command that runs in the workspace root, with the tools of `setup` in its PATH.
pub(crate) fn command(program: impl AsRef<OsStr>) -> Command {
    let mut command = Command::new(program);
    command.current_dir(root()).env("PATH", path_with_tools());
    command
}

/// The `cargo` that runs this xtask.
pub(crate) fn cargo() -> Command {
    command(env::var_os("CARGO").unwrap_or_else(|| "cargo".into()))
}

/// Runs a command to its end. If it fails, the error shows the command.
pub(crate) fn check(command: &mut Command) -> Result<()> {
    let status = command
        .status()
        .with_context(|| format!("cannot start {}", show(command)))?;
    if !status.success() {
        bail!("{} ended with {status}", show(command));
    }
    Ok(())
}

/// The standard output of a command; None if it cannot start or fails.
pub(crate) fn output(command: &mut Command) -> Option<String> {
    let output = command.output().ok().filter(|o| o.status.success())?;
    String::from_utf8(output.stdout).ok()
}

fn show(command: &Command) -> String {
    let words = std::iter::once(command.get_program()).chain(command.get_args());
    let words: Vec<_> = words.map(|w| w.to_string_lossy()).collect();
    format!("`{}`", words.join(" "))
}
