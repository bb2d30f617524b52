//! Builds the eBPF object for the target's architecture; `include_bytes!` puts it into the library.
//! Lists the files of the catalogue, so that each file in its directory is compiled in. Compresses
//! the plotting library of pages.

use std::{env, fmt::Write as _, fs, path::Path};

use anyhow::{Context as _, Result};

fn main() -> Result<()> {
    println!("cargo::rerun-if-changed=../probe-common");
    let out_dir = env::var_os("OUT_DIR").context("cargo sets OUT_DIR")?;
    catalogue(Path::new(&out_dir))?;
    plotting(Path::new(&out_dir))?;
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

/// `FILES`: every file of `catalogue/` with a family or a platform, by name.
fn catalogue(out_dir: &Path) -> Result<()> {
    // Read at run time: the source tree may have been moved since this script was built.
    let manifest = env::var_os("CARGO_MANIFEST_DIR").context("cargo sets CARGO_MANIFEST_DIR")?;
    let directory = Path::new(&manifest).join("catalogue");
    println!("cargo::rerun-if-changed={}", directory.display());
    let entries = fs::read_dir(&directory).context("cannot list catalogue/")?;
    let names = entries.filter_map(|entry| entry.ok()?.file_name().into_string().ok());
    let mut names: Vec<String> = names
        .filter(|name| name.ends_with(".toml"))
        .filter(|name| !["documents.toml", "questions.toml"].contains(&name.as_str()))
        .collect();
    names.sort();
    let mut text = "const FILES: &[(&str, &str)] = &[\n".to_owned();
    for name in names {
        let path = directory.join(&name);
        writeln!(text, "    ({name:?}, include_str!({path:?})),")?;
    }
    text.push_str("];\n");
    fs::write(out_dir.join("catalogue_files.rs"), text).context("cannot write the list of files")
}

/// `plotly.js.gz`: the plotly.js that the crate plotly contains, compressed.
fn plotting(out_dir: &Path) -> Result<()> {
    use std::{fs::File, io::Write as _};

    use flate2::{Compression, GzBuilder};

    const BEGIN: &str = "<script type=\"text/javascript\">";
    // Two scripts: plotly.js, then MathJax, which pages do not need.
    let scripts = plotly::Plot::offline_js_sources();
    let (_, first) = scripts.split_once(BEGIN).context("plotly has no script")?;
    let (first, _) = first.split_once(BEGIN).context("plotly has one script")?;
    let end = first.rfind("</script>").context("a script has no end")?;
    let file = File::create(out_dir.join("plotly.js.gz")).context("cannot write plotly.js.gz")?;
    // Without a modification time, so that every build writes the same bytes.
    let mut gzip = GzBuilder::new().write(file, Compression::best());
    gzip.write_all(&first.as_bytes()[..end])?;
    gzip.finish().context("cannot write plotly.js.gz")?;
    Ok(())
}
