//! Checks fixed paths: in probe-user only `sys::roots` may have paths of sysfs, procfs and /boot.
//! All other code reads facts of the machine below the roots of a `machine::Machine`.

use std::fs;

use anyhow::{Context as _, Result, ensure};
use syn::visit::{self, Visit};

use crate::{layers, sh};

/// The only file, apart from tests, that may have fixed paths.
const ROOTS: &str = "sys/roots.rs";

/// Checks all sources; the error names each file and its fixed paths.
pub(crate) fn check() -> Result<()> {
    let source = sh::root().join("probe-user/src");
    let mut wrong = Vec::new();
    for file in layers::files(&source)? {
        let relative = file
            .strip_prefix(&source)
            .unwrap_or(&file)
            .display()
            .to_string();
        if relative == ROOTS || relative.contains("/tests/") || relative.ends_with("/tests.rs") {
            continue;
        }
        let text = fs::read_to_string(&file)?;
        let found = fixed_paths(&text).with_context(|| format!("in {}", file.display()))?;
        wrong.extend(
            found
                .iter()
                .map(|path| format!("probe-user/src/{relative}: {path} is fixed: ask the Machine")),
        );
    }
    ensure!(wrong.is_empty(), "{}", wrong.join("\n"));
    Ok(())
}

/// The fixed paths in a file, without its tests.
fn fixed_paths(text: &str) -> Result<Vec<String>> {
    let mut found = FixedPaths::default();
    found.visit_file(&syn::parse_file(text)?);
    Ok(found.0)
}

#[derive(Default)]
struct FixedPaths(Vec<String>);

impl<'a> Visit<'a> for FixedPaths {
    fn visit_item_mod(&mut self, item: &'a syn::ItemMod) {
        let is_test = item.attrs.iter().any(|attribute| {
            let list = attribute.meta.require_list();
            list.is_ok_and(|list| list.path.is_ident("cfg") && list.tokens.to_string() == "test")
        });
        if !is_test {
            visit::visit_item_mod(self, item);
        }
    }

    fn visit_lit_str(&mut self, literal: &'a syn::LitStr) {
        self.check(&literal.value());
    }

    fn visit_macro(&mut self, item: &'a syn::Macro) {
        // syn does not parse a macro's tokens, so the text between quotes is checked.
        let tokens = item.tokens.to_string();
        tokens
            .split('"')
            .skip(1)
            .step_by(2)
            .for_each(|text| self.check(text));
    }
}

impl FixedPaths {
    /// Adds `text` if it is a fixed path. A text with white space is a sentence or a command.
    fn check(&mut self, text: &str) {
        let mut roots = ["/sys", "/proc", "/boot"].into_iter();
        let is_path = roots.any(|root| {
            let below = text.strip_prefix(root);
            below.is_some_and(|below| below.is_empty() || below.starts_with('/'))
        });
        if is_path && !text.contains(char::is_whitespace) {
            self.0.push(text.to_owned());
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn paths_are_found_and_sentences_are_not() {
        let text = r#"
            const A: &str = "/sys";
            fn f(pid: u32) {
                read(format!("/proc/{pid}/comm"));
                say("/proc/cgroups does not list it");
                run("mount -t sysfs none /sys");
                path("/system.slice");
            }
            #[cfg(test)]
            mod tests {
                const B: &str = "/proc";
            }
        "#;
        assert_eq!(fixed_paths(text).unwrap(), ["/sys", "/proc/{pid}/comm"]);
    }
}
