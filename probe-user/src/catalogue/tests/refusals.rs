//! Users' files that are refused, each with a sentence, and files that are accepted.

use super::{
    super::{Chip, CountOf, Hardware, Metric},
    CATALOGUE, merged, metric_text,
};

const HEAD: &str = r#"
name = "mine"
title = "Mine"
platforms = ["grace"]
document = "my notes"
[notes]
known = "A note."
[pmu.scf]
pattern = "nvidia_scf_pmu_{socket}"
per = "socket"
[pmu.scf.events]
CYCLES = { perf = "{pmu}/cycles/", count = "cycle" }
CMEM_RD_DATA = { perf = "{pmu}/cmem_rd_data/", count = "beat32" }
CMEM_WR_TOTAL_BYTES = { perf = "{pmu}/cmem_wr_total_bytes/", count = "byte" }
CMEM_WR_DATA = { perf = "{pmu}/cmem_wr_data/", count = "byte" }
CMEM_RD_OUTSTANDING = { perf = "{pmu}/cmem_rd_outstanding/", count = "outstanding" }
CMEM_RD_ACCESS = { perf = "{pmu}/cmem_rd_access/", count = "request" }
"#;

fn file(name: &str, unit: &str, formula: &str, lines: &str) -> String {
    format!(
        "{HEAD}\n{}",
        metric_text(name, [unit, "rate"], formula, lines)
    )
}

fn refusal(text: &str) -> String {
    let error = merged(text)
        .err()
        .unwrap_or_else(|| panic!("taken: {text}"));
    let sentence = error
        .strip_prefix("catalogue mine.toml: ")
        .unwrap_or_else(|| panic!("{error}"));
    // `a_refusal_names_the_line` checks the line.
    let line = sentence.rsplit_once(" (line ").map(|(before, _)| before);
    line.unwrap_or(sentence).to_owned()
}

/// The line of the file that an error names.
fn line(text: &str) -> usize {
    let error = merged(text).unwrap_err();
    let (_, line) = error
        .rsplit_once(" (line ")
        .unwrap_or_else(|| panic!("{error}"));
    line.trim_end_matches(')').parse().unwrap()
}

#[test]
fn a_refusal_names_the_line() {
    let good = file("good", "GB/s", "CMEM_RD_DATA * 32 / duration_time", "");
    let bad = |lines: &str| format!("{good}\n{lines}");
    let last_line_with = |text: &str, needle: &str| {
        let lines = text.lines().collect::<Vec<_>>();
        lines
            .iter()
            .rposition(|line| line.contains(needle))
            .unwrap()
            + 1
    };
    let wrong = bad(&metric_text("wrong", ["GB/s", "rate"], "CMEM_RD_DATA", ""));
    assert_eq!(line(&wrong), last_line_with(&wrong, "\"wrong\""));
    let twice = bad(&metric_text("good", ["1", "ratio"], "CYCLES / CYCLES", ""));
    assert_eq!(line(&twice), last_line_with(&twice, "\"good\""));
    let event = good.replace("{pmu}/cmem_wr_data/", "{pmu}/{x}/");
    assert_eq!(line(&event), last_line_with(&event, "{x}"));
    let pattern = good.replace("pmu_{socket}", "pmu_{sock}");
    assert_eq!(line(&pattern), last_line_with(&pattern, "{sock}"));
    let platform = bad("[[platform]]\nname = \"x\"");
    assert_eq!(line(&platform), last_line_with(&platform, "[[platform]]"));
    // Errors of the TOML parser state their line.
    let error = merged(&bad("x = [")).unwrap_err();
    assert!(error.contains("at line "), "{error}");
}

#[test]
fn a_file_of_the_same_format_adds_metrics() {
    let text = file(
        "my_rd",
        "GB/s",
        "CMEM_RD_DATA * 32 / duration_time",
        "notes = [\"known\"]",
    );
    let catalogue = merged(&text).unwrap();
    let machine = Hardware::of_chip(Chip::named("grace-hopper").unwrap());
    let metric = catalogue.select("my_rd", &machine).unwrap()[0];
    assert_eq!(metric.document, "my notes");
    assert!(metric.help().ends_with("A note."));
    // A file on disk is read, too; one that does not exist is an error.
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("mine.toml");
    std::fs::write(&path, &text).unwrap();
    CATALOGUE.clone().merge_file(&path).unwrap();
    let error = CATALOGUE
        .clone()
        .merge_file(&dir.path().join("none.toml"))
        .unwrap_err();
    assert!(
        error
            .to_string()
            .contains("none.toml: cannot be read: No such file")
    );
}

/// The counts of clocks are corrected to begin at the context switch, those of counters are not. So
/// the time of counters is `counter_time`.
#[test]
fn a_formula_cannot_mix_clocks_and_counters() {
    let head = HEAD.replace(
        "[pmu.scf.events]",
        "[pmu.scf.events]\nCLOCK = { perf = \"task-clock\", count = \"ns\" }",
    );
    let with = |formula: &str| {
        format!(
            "{head}\n{}",
            metric_text("mine", ["1", "ratio"], formula, "")
        )
    };
    for formula in [
        "CYCLES / CLOCK",
        "CLOCK / CYCLES",
        "1000 / (CMEM_RD_ACCESS / CLOCK)",
    ] {
        let refusal = refusal(&with(formula));
        assert!(
            refusal.contains("the clock CLOCK and ") && refusal.contains("write counter_time"),
            "{refusal}"
        );
    }
    for formula in ["CLOCK / duration_time", "CYCLES / counter_time"] {
        merged(&with(formula)).unwrap();
    }
    // No metric of the catalogue mixes them.
    let is_clock = |metric: &Metric, event: &str| metric.pmu.events[event].count == CountOf::Ns;
    for metric in CATALOGUE.metrics() {
        let events = metric.formula.events();
        let clocks = events
            .iter()
            .filter(|event| is_clock(metric, event))
            .count();
        assert!(clocks == 0 || clocks == events.len(), "{}", metric.name);
    }
}

#[test]
fn a_bandwidth_needs_the_factor_of_its_unit() {
    for (unit, formula) in [
        ("GB/s", "CMEM_RD_DATA * 32 / duration_time"),
        ("GB/s", "32 * CMEM_RD_DATA / seconds / 1e9"),
        ("MB/s", "CMEM_RD_DATA * 32 / 1000000 / seconds"),
        (
            "MiB/s",
            "(CMEM_RD_DATA * 32 + CMEM_WR_TOTAL_BYTES) / 1048576 / seconds",
        ),
        ("B/s", "(CMEM_WR_TOTAL_BYTES + CMEM_WR_DATA) / seconds"),
        ("B/s", "(2 * CMEM_RD_DATA + 30 * CMEM_RD_DATA) / seconds"),
        (
            "B",
            "(CMEM_RD_DATA * 32 / duration_time) * (CMEM_RD_OUTSTANDING / CMEM_RD_ACCESS) / \
             (CYCLES / duration_time)",
        ),
        // The unit is not that of a bandwidth, so nothing is checked.
        ("beats/ns", "CMEM_RD_DATA / duration_time"),
    ] {
        merged(&file("m", unit, formula, "")).unwrap_or_else(|error| panic!("{error}"));
    }
    assert_eq!(
        refusal(&file("m", "GB/s", "CMEM_RD_DATA / duration_time", "")),
        "metric m: it is in GB/s and one count of CMEM_RD_DATA is a beat of up to 32 bytes: \
         the factor in the formula must be 0.000000032, it is 0.000000001"
    );
    for (unit, formula, says) in [
        (
            "GB/s",
            "CMEM_RD_DATA * 64 / duration_time",
            "the factor in the formula must be",
        ),
        (
            "MB/s",
            "CMEM_RD_DATA * 32 / seconds",
            "the factor in the formula must be",
        ),
        (
            "GB/s",
            "CMEM_WR_TOTAL_BYTES * 32 / duration_time",
            "CMEM_WR_TOTAL_BYTES is a byte",
        ),
        (
            "GB/s",
            "(CMEM_RD_DATA + CMEM_WR_TOTAL_BYTES) / duration_time",
            "CMEM_RD_DATA is a beat",
        ),
        (
            "GB/s",
            "(CMEM_RD_DATA * 32 + CMEM_WR_TOTAL_BYTES * 32) / duration_time",
            "CMEM_WR_TOTAL_BYTES is a byte",
        ),
        (
            "GB/s",
            "CMEM_RD_ACCESS * 64 / duration_time",
            "but one count of CMEM_RD_ACCESS is a request",
        ),
        (
            "GB/s",
            "CMEM_RD_DATA * 32 / CYCLES",
            "no sum of counts divided by time",
        ),
        (
            "B/s",
            "CMEM_RD_DATA * 32",
            "no sum of counts divided by time",
        ),
        (
            "B/s",
            "CMEM_RD_DATA * 32 / seconds + 1",
            "the factor in the formula must be",
        ),
        (
            "B/s",
            "max(CMEM_RD_DATA * 32, CMEM_WR_TOTAL_BYTES) / seconds",
            "no sum of counts divided by time",
        ),
        ("B/s", "1 / seconds", "no sum of counts divided by time"),
        (
            "B",
            "CMEM_RD_DATA * 64 * CMEM_RD_OUTSTANDING / CMEM_RD_ACCESS / CYCLES",
            "must be 32, it is 64",
        ),
        (
            "B",
            "CMEM_RD_OUTSTANDING / CMEM_RD_ACCESS / CYCLES",
            "no sum of counts divided by time",
        ),
    ] {
        let sentence = refusal(&file("m", unit, formula, ""));
        assert!(sentence.contains(says), "{formula}: {sentence}");
    }
}

#[test]
fn formulas_are_checked_against_the_events() {
    let sentence = refusal(&file("m", "x", "CMEM_RD_DAT / seconds", ""));
    assert!(
        sentence
            .starts_with("metric m: the file defines no event CMEM_RD_DAT; near: CMEM_RD_DATA, "),
        "{sentence}"
    );
    assert_eq!(
        refusal(&file("m", "x", "CYCLES / (seconds", "")),
        "metric m: `CYCLES / (seconds`: expected an operator or `)` at column 18"
    );
}

#[test]
fn a_formula_cannot_have_events_of_two_pmus() {
    let text = file("m", "x", "CYCLES / OTHER", "").replace(
        "[pmu.scf]",
        "[pmu.other]\npattern = \"p_{unit}\"\nper = \"socket\"\nevents.OTHER = { perf = \
         \"{pmu}/x/\", count = \"event\" }\n[pmu.scf]",
    );
    assert!(refusal(&text).contains("its events are of two PMUs, scf and other"));
    let text = text.replace("CYCLES / OTHER", "seconds");
    assert!(refusal(&text).contains("names no event"));
}

#[test]
fn other_mistakes_are_refused() {
    let good = || file("m", "x", "CYCLES", "");
    for (text, says) in [
        (
            good().replace("\"mine\"\ntitle", "\"generic\"\ntitle"),
            "there is a family generic already",
        ),
        (good().replace("[\"grace\"]", "[]"), "it has no platform"),
        (HEAD.to_owned(), "it has no metric"),
        (good().replace("[\"grace\"]", "[\"moon\"]"), "moon"),
        (
            good().replace("title = \"Mine\"\nunit", "tilte = \"Mine\"\nunit"),
            "tilte",
        ),
        (
            good().replace("_{socket}\"", "_{sokcet}\""),
            "its placeholders are",
        ),
        (
            good().replace("pmu_{socket}\"", "pmu_{socket}{unit}\""),
            "cannot be told apart",
        ),
        (
            good().replace("\"nvidia_scf_pmu_{socket}\"", "\"\""),
            "it is empty",
        ),
        (
            good().replace("\"nvidia_scf_pmu_{socket}\"", "\"{unit}_x\""),
            "begins with a number",
        ),
        (
            good().replace("\"nvidia_scf_pmu_{socket}\"", "\"x_{core}\""),
            "stands alone",
        ),
        (
            good().replace("{pmu}/cycles/", "{pum}/cycles/"),
            "{pum} is no placeholder of PMU scf",
        ),
        (
            good().replace("{pmu}/cycles/", "cyclse"),
            "event CYCLES: unknown event `cyclse`; the nearest known ones are cycles",
        ),
        (
            good().replace("{pmu}/cycles/", "{pmu}/cycles"),
            "event CYCLES: cannot read the events",
        ),
        (
            good().replace("CYCLES = {", "min = {"),
            "event min: a formula cannot name it",
        ),
        (
            good().replace("CYCLES = {", "seconds = {"),
            "event seconds: a formula cannot name it",
        ),
        (
            good().replace("CYCLES = {", "\"a-b\" = {"),
            "event a-b: a formula cannot name it",
        ),
        (
            good().replace("count = \"cycle\"", "count = \"mile\""),
            "mile",
        ),
        (
            file("Not Snake", "x", "CYCLES", ""),
            "its name is not snake_case",
        ),
        (
            file("m", "x", "CYCLES", "aliases = [\"9lives\"]"),
            "its name is not snake_case",
        ),
        (
            file("m", "x", "CYCLES", "notes = [\"nope\"]"),
            "there is no note nope",
        ),
        (
            file("m", "x", "CYCLES", "bound = 0"),
            "bound 0 is not above zero",
        ),
        (
            file("m", "x", "CYCLES", "bound = nan"),
            "bound NaN is not above zero",
        ),
        (
            file("m", "x", "CYCLES", "not_on = { tegra410 = \"known\" }"),
            "not_on names tegra410",
        ),
        (
            file("m", "x", "CYCLES", "not_on = { grace-hopper = \"nope\" }"),
            "there is no note nope",
        ),
        (
            file("scf_cycles", "x", "CYCLES", ""),
            "scf_cycles is a metric of nvidia-grace-scf already",
        ),
        (
            file("m", "x", "CYCLES", "aliases = [\"ipc\"]"),
            "ipc is a metric of neoverse-v2 already",
        ),
    ] {
        let sentence = refusal(&text);
        assert!(sentence.contains(says), "{says}: {sentence}");
    }
    let twice = format!("{}{}", good(), &good()[HEAD.len()..]);
    assert!(refusal(&twice).contains("m is a metric of mine already"));
    let event = good().replace(
        "[pmu.scf]",
        "[pmu.other]\npattern = \"p\"\nper = \"socket\"\nevents.CYCLES = { perf = \"{pmu}/x/\", \
         count = \"event\" }\n[pmu.scf]",
    );
    assert!(refusal(&event).contains("event CYCLES is defined twice"));
}

#[test]
fn nothing_of_a_refused_file_is_added() {
    let mut catalogue = CATALOGUE.clone();
    let before = catalogue.metrics().count();
    let text = format!(
        "{}{}",
        file("good", "x", "CYCLES", ""),
        &file("bad", "x", "NOPE", "")[HEAD.len()..]
    );
    catalogue.merge("mine.toml", &text).unwrap_err();
    assert_eq!(catalogue.metrics().count(), before);
    assert_eq!(catalogue.families().count(), CATALOGUE.families().count());
}

/// The bound is the PMU's `mismatch`; in Grace's file it is 79 thousandths.
#[test]
fn counts_of_other_sockets_need_a_bound_on_their_error() {
    let text = file(
        "m",
        "1/s",
        "CYCLES / seconds",
        "from_sockets = \"CMEM_RD_DATA\"",
    );
    assert_eq!(
        refusal(&text),
        "metric m: from_sockets needs `mismatch` of PMU scf: how far source and destination may \
         differ, in thousandths"
    );
    let scf = super::metric("nvidia-grace-scf", "cmem_read_bandwidth");
    assert_eq!(scf.pmu.mismatch, Some(79));
}
