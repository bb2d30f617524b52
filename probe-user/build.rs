//! Builds the eBPF object for the target's architecture; `include_bytes!` puts it into the library.

use std::{env, path::Path};

use anyhow::{Context as _, Result};

fn main() -> Result<()> {
    println!("cargo::rerun-if-changed=../probe-common");
    let out_dir = env::var_os("OUT_DIR").context("cargo sets OUT_DIR")?;
    // `cargo xtask setup` puts bpf-linker below the target directory, wherever that is.
    let tools = Path::new(&out_dir)
        .ancestors()
        .map(|dir| dir.join("tools/bin"))
        .find(|dir| dir.join("bpf-linker").exists());
    let path = env::var_os("PATH").unwrap_or_default();
    let path = env::join_paths(tools.into_iter().chain(env::split_paths(&path)))?;
    // SAFETY: a build script has one thread. The variables reach only the cargo that aya-build
    // starts: -Z build-std on the pinned stable toolchain needs RUSTC_BOOTSTRAP.
    unsafe {
        env::set_var("PATH", path);
        env::set_var("RUSTC_BOOTSTRAP", "1");
        // aya-build shows every line of that cargo as a warning.
        env::set_var("CARGO_TERM_QUIET", "true");
    }
    let toolchain =
        env::var("RUSTUP_TOOLCHAIN").context("build pmuscope through rustup's cargo")?;
    aya_build::build_ebpf(
        [aya_build::Package {
            name: "probe-ebpf",
            root_dir: "../probe-ebpf",
            ..Default::default()
        }],
        aya_build::Toolchain::Custom(&toolchain),
    )
    .context("cannot build the eBPF programs; `cargo xtask setup` installs bpf-linker")
}
