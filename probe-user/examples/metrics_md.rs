//! Prints docs/metrics.md, for `cargo xtask docs`.

use std::io::Write as _;

use probe_user::catalogue::{Catalogue, markdown};

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let text = markdown(&Catalogue::builtin()?);
    std::io::stdout().write_all(text.as_bytes())?;
    Ok(())
}
