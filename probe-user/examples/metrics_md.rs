//! Writes the pages on metrics and self-counters below a directory, for `cargo xtask docs`.

use std::{env, fs, path::PathBuf};

use probe_user::{
    catalogue::{Catalogue, pages},
    derive::self_counters_page,
};

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let docs: PathBuf = env::args_os().nth(1).ok_or("usage: metrics_md DIR")?.into();
    fs::create_dir_all(docs.join("metrics"))?;
    for page in pages(&Catalogue::builtin()?) {
        fs::write(docs.join(page.path), page.text)?;
    }
    fs::write(docs.join("self-counters.md"), self_counters_page())?;
    Ok(())
}
