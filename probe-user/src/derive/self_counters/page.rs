//! docs/reference/self-counters.md, written by `cargo xtask docs`.

use std::fmt::Write as _;

use super::{AGENT, COUNTING, FUNCTIONS, NAMING, SAMPLED, SAMPLING, SelfCounter};

const HEAD: &str = "\
# Self-counters: what pmuscope reports about itself

    # pmuscope stat --self --interval-count 1           # the end of the output
      self ns_per_run_same_owner                         210
      self counting_ppm_of_busiest_cpu                   223

`--self` prints these, version and hook with every window, in every format. Counts are since the \
start. OpenMetrics has
`pmuscope_self_...` in base units ([output](output.md#openmetrics)).
";

/// The page on self-counters, in Markdown: a table for each part of pmuscope.
#[must_use]
pub fn self_counters_page() -> String {
    let mut page = HEAD.to_owned();
    write_section(&mut page, "Counting", "", COUNTING);
    let sampling = "\
With [SPE](../how-it-works/spe.md), followed by the cores' own counts of sampling \
(`spe_sample_*`), undecodable records
by kind (`spe_bad_records_*`), and records without a known owner by reason (`spe_unattributed_*`).";
    write_section(&mut page, "Sampling", sampling, SAMPLING);
    let sampled = "Of all sampled events ([hot](hot.md)).";
    write_section(&mut page, "Sampled events", sampled, SAMPLED);
    let functions = "With [`hot`](hot.md).";
    write_section(&mut page, "Names of functions", functions, FUNCTIONS);
    let agent = "Of an [agent](configuration.md), also while counting is off.";
    write_section(&mut page, "The agent", agent, AGENT);
    let names = "Of requests to container runtimes ([names](names.md)).";
    write_section(&mut page, "Names", names, NAMING);
    page
}

fn write_section<T>(page: &mut String, title: &str, about: &str, counters: &[SelfCounter<T>]) {
    let _ = writeln!(page, "\n## {title}\n");
    if !about.is_empty() {
        let _ = writeln!(page, "{about}\n");
    }
    page.push_str("| name | unit | what it says |\n|---|---|---|\n");
    for SelfCounter {
        name, unit, help, ..
    } in counters
    {
        let _ = writeln!(page, "| `{name}` | {unit} | {help} |");
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_page_is_up_to_date() {
        let path = concat!(
            env!("CARGO_MANIFEST_DIR"),
            "/../docs/reference/self-counters.md"
        );
        let page = std::fs::read_to_string(path).unwrap();
        assert!(
            page == self_counters_page(),
            "docs/reference/self-counters.md: run `cargo xtask docs`"
        );
    }
}
