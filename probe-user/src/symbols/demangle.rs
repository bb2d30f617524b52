//! Demangles names of functions of Rust and C++.

use std::fmt::{self, Write};

use cpp_demangle::{DemangleOptions, Symbol};

/// Maximum length of a name in bytes, mangled and demangled. Some mangled names expand without
/// bound.
const MAX_NAME: usize = 4096;

/// The demangled name; the name itself if it is not mangled, or would be too long when demangled. A
/// mangled name longer than [`MAX_NAME`] is cut.
pub(super) fn demangled(name: &str) -> String {
    // Compiler suffixes of cloned functions stay, as in perf, since they distinguish the clones.
    if name.len() > MAX_NAME {
        return clipped(name);
    }
    rust(name)
        .or_else(|| cpp(name))
        .unwrap_or_else(|| name.to_owned())
}

fn rust(name: &str) -> Option<String> {
    let symbol = rustc_demangle::try_demangle(name).ok()?;
    let mut out = Bounded(String::new());
    // The alternate form omits the hash.
    write!(out, "{symbol:#}").ok()?;
    Some(out.0)
}

fn cpp(name: &str) -> Option<String> {
    name.starts_with("_Z").then_some(())?;
    let symbol = Symbol::new(name).ok()?;
    let mut out = Bounded(String::new());
    symbol
        .structured_demangle(&mut out, &DemangleOptions::default())
        .ok()?;
    Some(out.0)
}

fn clipped(name: &str) -> String {
    name[..name.floor_char_boundary(MAX_NAME)].to_owned()
}

/// A writer that fails beyond the maximum length.
struct Bounded(String);

impl Write for Bounded {
    fn write_str(&mut self, text: &str) -> fmt::Result {
        if self.0.len() + text.len() > MAX_NAME {
            return Err(fmt::Error);
        }
        self.0.push_str(text);
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn names_are_demangled_as_in_the_source() {
        for (mangled, plain) in [
            (
                "_ZN4core3fmt5Write9write_str17h0123456789abcdefE",
                "core::fmt::Write::write_str",
            ),
            ("_RNvCs1234_7mycrate3foo", "mycrate::foo"),
            (
                "_ZNSt6vectorIiSaIiEE9push_backERKi",
                "std::vector<int, std::allocator<int> >::push_back(int const&)",
            ),
            ("main", "main"),
            ("_Znonsense", "_Znonsense"),
        ] {
            assert_eq!(demangled(mangled), plain);
        }
    }

    #[test]
    fn a_name_that_expands_without_bound_is_limited() {
        // Each template argument contains the previous one twice.
        let expanding = format!("_Z1fI{}Evv", "1AI1BS_S_E".repeat(60));
        assert!(demangled(&expanding).len() <= MAX_NAME);
        assert!(demangled(&"é".repeat(MAX_NAME)).len() <= MAX_NAME);
    }

    proptest! {
        #[test]
        fn any_name_is_limited(text in "(_Z|_R|_ZN)?[A-Z0-9a-z_]{0,200}") {
            prop_assert!(demangled(&text).len() <= MAX_NAME);
        }
    }
}
