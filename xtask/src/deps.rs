//! Dependencies: every one is used by the crate that asks for it, under a licence that goes with
//! ours.

use std::{
    collections::BTreeSet,
    fs,
    path::{Path, PathBuf},
};

use anyhow::{Context as _, Result, ensure};
use serde_json::Value;

use crate::sh;

/// Licences that a package may offer; one of them is enough where it offers a choice.
const LICENCES: &[&str] = &[
    "0BSD",
    "Apache-2.0",
    "BSD-2-Clause",
    "BSD-3-Clause",
    // tiny-keccak, which parquet's hash needs: given to the public.
    "CC0-1.0",
    "ISC",
    "MIT",
    "Unicode-3.0",
    "Unlicense",
    "Zlib",
];

pub(crate) fn check() -> Result<()> {
    let metadata = sh::output(sh::cargo().args(["metadata", "--format-version", "1"]))
        .context("`cargo metadata` fails")?;
    let metadata: Value = serde_json::from_str(&metadata)?;
    let members: BTreeSet<&str> = list(&metadata["workspace_members"])
        .filter_map(Value::as_str)
        .collect();
    let mut wrong = Vec::new();
    for package in list(&metadata["packages"]) {
        let name = text(&package["name"]);
        if !licensed(text(&package["license"])) {
            wrong.push(format!(
                "{name} has the licence {}, which is not in xtask/src/deps.rs",
                package["license"]
            ));
        }
        if members.contains(text(&package["id"])) {
            wrong.extend(
                unused(package)?
                    .into_iter()
                    .map(|dependency| format!("{name} does not use {dependency}")),
            );
        }
    }
    ensure!(wrong.is_empty(), "{}", wrong.join("\n"));
    Ok(())
}

/// `A OR B` needs one of them, `A AND B` both; `/` is an old way to write OR.
fn licensed(expression: &str) -> bool {
    let plain = expression.replace('/', " OR ").replace(['(', ')'], " ");
    plain.split(" OR ").any(|choice| {
        choice.split(" AND ").all(|name| {
            let name = name.trim().split(" WITH ").next().unwrap_or_default();
            LICENCES.contains(&name)
        })
    })
}

/// Dependencies of a member that none of its sources names.
fn unused(package: &Value) -> Result<Vec<String>> {
    let sources: BTreeSet<PathBuf> = list(&package["targets"])
        .filter_map(|target| {
            Path::new(text(&target["src_path"]))
                .parent()
                .map(Path::to_path_buf)
        })
        .collect();
    let mut code = String::new();
    for directory in sources {
        read(&directory, &mut code)?;
    }
    let names = list(&package["dependencies"]).map(|dependency| {
        let rename = dependency["rename"].as_str();
        rename
            .unwrap_or_else(|| text(&dependency["name"]))
            .replace('-', "_")
    });
    let unused = names.filter(|name| {
        !code.contains(&format!("{name}::")) && !code.contains(&format!("use {name}"))
    });
    Ok(unused.collect())
}

fn read(directory: &Path, code: &mut String) -> Result<()> {
    for entry in
        fs::read_dir(directory).with_context(|| format!("cannot read {}", directory.display()))?
    {
        let path = entry?.path();
        if path.is_dir() {
            read(&path, code)?;
        } else if path.extension().is_some_and(|extension| extension == "rs") {
            code.push_str(&fs::read_to_string(&path)?);
        }
    }
    Ok(())
}

fn list(value: &Value) -> impl Iterator<Item = &Value> {
    value.as_array().into_iter().flatten()
}

fn text(value: &Value) -> &str {
    value.as_str().unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use super::licensed;

    #[test]
    fn licences_that_go_with_ours() {
        for good in [
            "MIT",
            "MIT OR Apache-2.0",
            "MIT/Apache-2.0",
            "GPL-3.0 OR MIT",
            "(MIT OR Apache-2.0) AND Unicode-3.0",
        ] {
            assert!(licensed(good), "{good}");
        }
        for bad in ["", "GPL-3.0", "MIT AND GPL-3.0"] {
            assert!(!licensed(bad), "{bad}");
        }
    }
}
