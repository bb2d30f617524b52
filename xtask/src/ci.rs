//! `cargo xtask ci`: what CI runs on a clean clone.

use anyhow::Result;

use crate::{check, stages::Stages, test};

pub(crate) fn run() -> Result<()> {
    Stages::run(|stages| {
        check::all(stages);
        test::all(stages)
    })
}
