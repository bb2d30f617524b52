//! mapfile.csv: which files describe which CPU. A row begins with a regular expression of perf's
//! name for an x86 CPU (`GenuineIntel-6-8F-8`), or with `MIDR_EL1` of an Arm core.

use regex::RegexBuilder;

use super::processor::Processor;

/// Maximum size of a compiled expression in bytes: the file is not trusted.
const MAX_SIZE: usize = 256 << 10;

/// The files or directories that the rows of this CPU name, without duplicates.
pub(super) fn paths(text: &str, processor: &Processor) -> Vec<String> {
    let mut paths = Vec::new();
    for line in text.lines().filter(|line| !line.starts_with('#')) {
        let mut fields = line.split(',');
        let (Some(cpu), Some(path)) = (fields.next(), fields.nth(1)) else {
            continue;
        };
        let path = path.trim().trim_start_matches('/').to_owned();
        let is_safe = !path.is_empty() && path.split('/').all(|part| part != "..");
        if is_safe && !paths.contains(&path) && is_for(cpu.trim(), processor) {
            paths.push(path);
        }
    }
    paths
}

fn is_for(cpu: &str, processor: &Processor) -> bool {
    match cpu.strip_prefix("0x") {
        Some(midr) => u64::from_str_radix(midr, 16).is_ok_and(|midr| processor.is_part(midr)),
        None => processor.names().iter().any(|name| matches(cpu, name)),
    }
}

/// Whether the whole name matches the expression. An invalid or too large expression matches
/// nothing.
pub(super) fn matches(expression: &str, name: &str) -> bool {
    let regex = RegexBuilder::new(&format!("^(?:{expression})$"))
        .size_limit(MAX_SIZE)
        .build();
    regex.is_ok_and(|regex| regex.is_match(name))
}
