//! Writes the pages on metrics below a directory, for `cargo xtask docs`.

use std::{env, fs, path::PathBuf};

use probe_user::catalogue::{Catalogue, pages};

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let docs: PathBuf = env::args_os().nth(1).ok_or("usage: metrics_md DIR")?.into();
    fs::create_dir_all(docs.join("metrics"))?;
    for page in pages(&Catalogue::builtin()?) {
        fs::write(docs.join(page.path), page.text)?;
    }
    Ok(())
}
