//! Checks of dependencies: cargo-deny checks licences, bans and sources (deny.toml), cargo-shear
//! finds unused dependencies.

use anyhow::{Context as _, Result};

use crate::{
    sh,
    tools::{CARGO_DENY, CARGO_SHEAR},
};

pub(crate) fn check() -> Result<()> {
    CARGO_DENY.provide()?;
    CARGO_SHEAR.provide()?;
    let mut deny = sh::cargo();
    deny.args(["deny", "--log-level", "error", "check"]);
    deny.args(["licenses", "bans", "sources"]);
    sh::check(&mut deny).context("a dependency breaks a rule of deny.toml")?;
    sh::check(sh::cargo().args(["shear", "--deny-warnings"])).context("a dependency is not used")
}
