//! Checks the layers of probe-user: a module names only modules before it in one order, so that
//! there are no cycles.

use std::{
    collections::BTreeSet,
    fs,
    path::{Path, PathBuf},
};

use anyhow::{Context as _, Result, ensure};
use syn::{
    UseTree,
    visit::{self, Visit},
};

use crate::sh;

/// The modules in their order (docs/how-it-works/architecture.md). Each may name only those before
/// it.
const ORDER: &[&str] = &[
    "sys",
    "formula",
    "machine",
    "event",
    "calibration",
    "catalogue",
    "devices",
    "plan",
    "names",
    "snapshot",
    "symbols",
    "session",
    "window",
    "join",
    "state",
    "derive",
    "emit",
    "pipeline",
    "plot",
    "samples",
    "recording",
    "report",
    "import",
    "list",
    "roofline",
    "calibrate",
    "agent",
    "doctor",
    "top",
];

/// Modules that [`PURE`] stages must not name, although they come earlier: pure stages also work on
/// recorded snapshots.
const LIVE: &[&str] = &["symbols", "session"];
const PURE: &[&str] = &["window", "join", "state", "derive", "emit"];

/// Checks all sources; the error names each file and the modules that it must not name.
pub(crate) fn check() -> Result<()> {
    let source = sh::root().join("probe-user/src");
    let mut wrong = Vec::new();
    for file in files(&source)? {
        let relative = file.strip_prefix(&source).unwrap_or(&file);
        let Some(module) = module_of(relative) else {
            continue;
        };
        let text = fs::read_to_string(&file)?;
        let named = modules_named(&text).with_context(|| format!("in {}", file.display()))?;
        wrong.extend(
            named
                .iter()
                .filter_map(|other| violation(&module, other))
                .map(|reason| format!("probe-user/src/{}: {reason}", relative.display())),
        );
    }
    ensure!(wrong.is_empty(), "{}", wrong.join("\n"));
    Ok(())
}

/// Every Rust file below a directory.
pub(crate) fn files(directory: &Path) -> Result<Vec<PathBuf>> {
    let mut found = Vec::new();
    let entries =
        fs::read_dir(directory).with_context(|| format!("cannot list {}", directory.display()))?;
    for entry in entries {
        let path = entry?.path();
        if path.is_dir() {
            found.extend(files(&path)?);
        } else if path.extension().is_some_and(|extension| extension == "rs") {
            found.push(path);
        }
    }
    found.sort();
    Ok(found)
}

/// The library's module that a file belongs to. None for lib.rs and the binary, which may name all
/// modules.
fn module_of(file: &Path) -> Option<String> {
    let top_level = file.iter().next()?.to_str()?;
    let module = top_level.strip_suffix(".rs").unwrap_or(top_level);
    (!["lib", "bin"].contains(&module)).then(|| module.to_owned())
}

/// Why `module` must not name `other`; None if it may.
fn violation(module: &str, other: &str) -> Option<String> {
    let position = |name: &str| ORDER.iter().position(|known| *known == name);
    let (Some(own), Some(named)) = (position(module), position(other)) else {
        let unknown = if position(module).is_none() {
            module
        } else {
            other
        };
        return Some(format!(
            "the module {unknown} has no place in the order of xtask/src/layers.rs: give it one"
        ));
    };
    if named > own {
        Some(format!(
            "{module} must not name {other}, which comes after it"
        ))
    } else if LIVE.contains(&other) && PURE.contains(&module) {
        Some(format!(
            "{module} works on snapshots and must not name {other}"
        ))
    } else {
        None
    }
}

/// The modules that a file names, anywhere after `crate::`.
fn modules_named(text: &str) -> Result<BTreeSet<String>> {
    let mut named = ModuleNames::default();
    named.visit_file(&syn::parse_file(text)?);
    Ok(named.0)
}

#[derive(Default)]
struct ModuleNames(BTreeSet<String>);

impl ModuleNames {
    /// Adds the modules directly after `crate::` in a `use`.
    fn insert_first(&mut self, tree: &UseTree) {
        match tree {
            UseTree::Path(path) => self.insert(&path.ident),
            UseTree::Name(name) => self.insert(&name.ident),
            UseTree::Rename(rename) => self.insert(&rename.ident),
            UseTree::Group(group) => group.items.iter().for_each(|tree| self.insert_first(tree)),
            _ => {}
        }
    }

    fn insert(&mut self, name: &syn::Ident) {
        self.0.insert(name.to_string());
    }
}

impl<'a> Visit<'a> for ModuleNames {
    fn visit_macro(&mut self, item: &'a syn::Macro) {
        // syn does not parse a macro's tokens.
        let tokens = item.tokens.to_string();
        for after in tokens.split("crate ::").skip(1) {
            let after = after.trim_start();
            let end = after.find(|it: char| !it.is_alphanumeric() && it != '_');
            self.0
                .insert(after[..end.unwrap_or(after.len())].to_owned());
        }
    }

    fn visit_item_use(&mut self, item: &'a syn::ItemUse) {
        if let UseTree::Path(path) = &item.tree
            && path.ident == "crate"
        {
            self.insert_first(&path.tree);
        }
    }

    fn visit_path(&mut self, path: &'a syn::Path) {
        let mut segments = path.segments.iter();
        if segments.next().is_some_and(|first| first.ident == "crate")
            && let Some(second) = segments.next()
        {
            self.insert(&second.ident);
        }
        visit::visit_path(self, path);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_way_to_name_a_module_is_found() {
        let text = "
            use crate::{event::{self, Event}, plan::Plan as Other};
            pub(crate) use crate::names;
            use std::fs;
            use super::sys;
            list! { x: crate::snapshot::Names => $crate::state::Totals }
            fn f(x: crate::machine::Pmus) -> Vec<crate::window::Window> {
                use crate::join::By;
                crate::session::start()
            }
        ";
        let found = modules_named(text).unwrap();
        let found: Vec<&str> = found.iter().map(String::as_str).collect();
        let expected = [
            "event", "join", "machine", "names", "plan", "session", "snapshot", "state", "window",
        ];
        assert_eq!(found, expected);
    }

    #[test]
    fn a_later_module_and_a_session_in_a_pure_stage_are_refused() {
        assert_eq!(violation("plan", "event"), None);
        assert_eq!(violation("doctor", "session"), None);
        let why = violation("machine", "event").unwrap();
        assert_eq!(why, "machine must not name event, which comes after it");
        let why = violation("join", "session").unwrap();
        assert_eq!(why, "join works on snapshots and must not name session");
        assert!(violation("derive", "symbols").is_some());
        assert!(
            violation("join", "no_such_module")
                .unwrap()
                .contains("no place")
        );
    }

    #[test]
    fn lib_rs_and_the_binary_may_name_all_modules() {
        assert_eq!(module_of(Path::new("bin/pmuscope/main.rs")), None);
        assert_eq!(module_of(Path::new("lib.rs")), None);
        let module = module_of(Path::new("plan/capacity/broken_counters.rs"));
        assert_eq!(module.as_deref(), Some("plan"));
    }
}
